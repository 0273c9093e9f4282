// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero train --here`: measures this machine first.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use crossbeam::channel::Receiver;

use crate::collect;
use crate::topology::{CoreTypesSpec, Topology};

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub struct Here {
    /// Measure this machine first, which should be idle for some minutes, and have
    /// the scheduler go by what is learnt. Interrupted, the same command goes on
    #[arg(long, conflicts_with = "tables")]
    pub(super) here: bool,

    /// With --here, the programs to measure, as for 'scx_hetero collect' [default:
    /// those of bench/programs]
    #[arg(long, value_name = "FILE", requires = "here")]
    suite: Option<PathBuf>,

    /// With --here, instructions of a window, as for 'scx_hetero collect'
    #[arg(long, value_name = "N", requires = "here", default_value = "100M", value_parser = collect::number)]
    window: u64,

    /// With --here, core types by hand, fastest first, e.g. P=0-7,E=8-15
    #[arg(long, value_name = "NAME=CPUS,...", requires = "here")]
    core_types: Option<CoreTypesSpec>,
}

/// Where the measurements lie: beside the model.
pub fn table(model: &Path) -> PathBuf {
    model.with_file_name("measurements.csv")
}

/// Fills the table. The exit status: 0, or that of an interruption. A program that cannot be measured
/// is left out, with a warning.
///
/// # Errors
/// In words: there is nothing to learn on this machine, or nothing can be counted; what was measured
/// so far is kept.
pub fn measure(args: &Here, table: &Path, stop: &Receiver<()>) -> Result<u8> {
    let topology = Topology::detect(args.core_types.as_ref())?;
    ensure!(
        topology.types.len() > 1,
        "all cores of this machine are alike ({}): there is nothing to learn. 'scx_hetero topology' \
         says why, --core-types names core types by hand",
        topology.summary()
    );
    if let Some(folder) = table
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        fs::create_dir_all(folder).with_context(|| {
            format!(
                "cannot make {}; be root, or choose another file with --output",
                folder.display()
            )
        })?;
    }
    let args = collect::Args::to_train(
        table,
        args.suite.clone(),
        args.window,
        args.core_types.clone(),
    );
    Ok(match collect::fill(&args, stop)? {
        None => collect::INTERRUPTED,
        Some(_) => 0,
    })
}
