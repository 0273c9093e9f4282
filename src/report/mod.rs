// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero report`: a recording as one page of HTML.

mod beside;
mod curves;
mod gather;
mod goals;
mod misses;
mod page;
mod power;
mod timeline;

use std::path::{Path, PathBuf};

use anyhow::Result;
use log::warn;

use crate::files::{check_distinct, named, write_whole};
use crate::output;
use crate::record::RecordReader;
pub use goals::{PlotArgs, plot};

/// What to draw, and where.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    scx_hetero report FILE                  writes FILE.html\n  \
    scx_hetero report FILE --out page.html  then open page.html in a browser")]
pub struct Args {
    /// A recording, by `scx_hetero --record FILE`
    file: PathBuf,

    /// The page, or - for standard output [default: the recording's name and .html]
    #[arg(short, long, value_name = "PAGE")]
    out: Option<PathBuf>,
}

/// Writes the page.
///
/// # Errors
/// The file is no recording that this version can read, or the page cannot be written.
pub fn run(args: &Args) -> Result<()> {
    let to = place(&args.file, args.out.as_deref(), ".html")?;
    let story = gather::gather(|| RecordReader::open(&args.file))?;
    if let Some(complaint) = &story.complaint {
        warn!("{complaint}");
    }
    let name = args.file.file_name().unwrap_or_default().to_string_lossy();
    let page = page::page(&story, &name);
    let size = page.len().div_ceil(1000);
    write(&page, to.as_deref(), &format!("{size} kB"))
}

/// Where what is made of a recording goes: to `out`, or beside the recording with `end` on its name; `None` is standard
/// output.
///
/// # Errors
/// The recording is there.
fn place(recording: &Path, out: Option<&Path>, end: &str) -> Result<Option<PathBuf>> {
    let Some(out) = out else {
        let mut beside = recording.as_os_str().to_os_string();
        beside.push(end);
        return Ok(Some(beside.into()));
    };
    check_distinct(named([recording], "the recording"), named([out], "--out"))?;
    Ok((out != Path::new("-")).then(|| out.to_path_buf()))
}

/// Writes it there, then tells where and what it is.
fn write(text: &str, to: Option<&Path>, what: &str) -> Result<()> {
    let Some(to) = to else {
        return output::print(text.trim_end());
    };
    write_whole(to, text.as_bytes())?;
    output::print(format_args!("{}: {what}", to.display()))
}
