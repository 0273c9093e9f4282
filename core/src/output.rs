// SPDX-License-Identifier: GPL-2.0-or-later
//! What commands say on standard output and standard error: the only way there, so that no name from
//! elsewhere (of a thread, in a file) can act on a terminal.

use std::fmt::{self, Display};
use std::io::{self, ErrorKind, IsTerminal, Write};

use anyhow::{Context, Result};
use log::{Level, LevelFilter, Log, Metadata, Record};
use serde::Serialize;
use simplelog::{ColorChoice, ConfigBuilder, TermLogger, TerminalMode};

use crate::text::{printable, printable_json};

/// Whoever read has seen enough, as in `scx_hetero sim | head`: there is nothing left to do, and nothing
/// went wrong.
#[derive(Debug)]
pub struct Unread;

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody reads what is printed")
    }
}

impl std::error::Error for Unread {}

/// Wrong usage that only shows once files and the machine were looked at: a name of which there is nothing, a file that
/// a command would read and write. The exit status is as for a wrong option.
#[derive(Debug)]
pub struct WrongUsage(pub String);

impl fmt::Display for WrongUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongUsage {}

/// The exit status of an error, as far as that does not depend on the kernel.
pub fn status(error: &anyhow::Error) -> u8 {
    if error.is::<WrongUsage>() { 2 } else { 1 }
}

/// Prints a text and ends its line; see [`printable`].
///
/// # Errors
/// It cannot be written, or nobody reads it: [`Unread`].
pub fn print(text: impl Display) -> Result<()> {
    write(printable(&text.to_string()))
}

/// Prints a text in which escape sequences are ours and all else went through [`printable`]; colours
/// are left out where it is no terminal.
///
/// # Errors
/// As [`print()`].
pub fn styled(text: impl Display) -> Result<()> {
    write(text)
}

/// Says a line on standard error. That it cannot be written there, as on a full disk, changes no exit status.
pub fn note(line: impl Display) {
    let _ = writeln!(io::stderr(), "{}", printable(&line.to_string()));
}

/// Says on standard error why a program ends, and what to do about it.
pub fn complain(program: &str, error: &anyhow::Error) {
    let remedy = remedy(error).map(|remedy| format!("; {remedy}"));
    note(format_args!(
        "{program}: {error:#}{}",
        remedy.unwrap_or_default()
    ));
}

/// What to do about an error of the file system that nothing more is known of.
fn remedy(error: &anyhow::Error) -> Option<&'static str> {
    match error.root_cause().downcast_ref::<io::Error>()?.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            Some("is the name right, and is its folder there?")
        }
        ErrorKind::PermissionDenied => Some("run it with sudo, or name a file that is yours"),
        ErrorKind::IsADirectory => Some("name a file, not a folder"),
        ErrorKind::ReadOnlyFilesystem => Some("name a place that can be written to"),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            Some("make room, or name another place")
        }
        _ => None,
    }
}

/// Logs to standard error from now on, what matters as much as `level` or more.
pub fn start_log(level: LevelFilter) {
    let config = ConfigBuilder::new()
        .set_time_level(LevelFilter::Off)
        .set_thread_level(LevelFilter::Off)
        .set_target_level(LevelFilter::Off)
        .set_location_level(LevelFilter::Off)
        .build();
    let colors = if io::stderr().is_terminal() {
        ColorChoice::Auto
    } else {
        ColorChoice::Never
    };
    let logger = TermLogger::new(level, config, TerminalMode::Stderr, colors);
    if log::set_boxed_logger(Box::new(Printable(*logger))).is_ok() {
        log::set_max_level(level);
    }
}

/// A log that is [`printable`].
struct Printable<L>(L);

impl<L: Log> Log for Printable<L> {
    fn enabled(&self, metadata: &Metadata) -> bool {
        self.0.enabled(metadata)
    }

    fn log(&self, record: &Record) {
        // What the libraries of sched_ext have to tell is for those who look for faults.
        let of_library = ["scx_utils", "scx_stats"]
            .iter()
            .any(|name| record.target().starts_with(name));
        if of_library && record.level() == Level::Info && log::max_level() == LevelFilter::Info {
            return;
        }
        let text = record.args().to_string();
        self.0.log(
            &Record::builder()
                .metadata(record.metadata().clone())
                .module_path(record.module_path())
                .args(format_args!("{}", printable(&text)))
                .build(),
        );
    }

    fn flush(&self) {
        self.0.flush();
    }
}

fn write(text: impl Display) -> Result<()> {
    let mut out = anstream::stdout().lock();
    written(writeln!(out, "{text}").and_then(|()| out.flush()))
}

/// What came of writing to standard output, in words.
///
/// # Errors
/// As [`print()`].
pub fn written(result: io::Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Unread.into()),
        written => written.context("cannot write to standard output"),
    }
}

/// Prints a value as JSON, indented.
///
/// # Errors
/// As [`print()`].
pub fn json(value: &impl Serialize) -> Result<()> {
    write(printable_json(&serde_json::to_string_pretty(value)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_file_system_has_a_remedy() {
        let missing: anyhow::Error = std::fs::read("/is/not/there").unwrap_err().into();
        let missing = missing.context("cannot read it");
        assert!(remedy(&missing).is_some_and(|remedy| remedy.contains("folder")));
        assert_eq!(remedy(&anyhow::anyhow!("it is damaged")), None);
    }
}
