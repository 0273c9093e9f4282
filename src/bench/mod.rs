// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero bench`: mixes of programs under schedulers on this machine, by the method of the
//! papers (CAMPS 2018, section 5.1; PMCTrack 2017, section 4.1.3).
//!
//! ```text
//!  mixes ─► run ─► scheduler, processes ─► method
//!            │
//!            └──► results ─► report ─► tables, CSV, JSON, charts
//! ```
//!
//! What a schedule is worth is computed as by the simulator ([`crate::sim::metrics`]), and mixes are
//! written as there ([`crate::sim::mix`]): `docs/bench.md`.

pub mod machine;
pub mod method;
pub mod mixes;
pub mod processes;
pub mod report;
pub mod results;
pub mod run;
pub mod scheduler;

use anyhow::Result;
use clap::Subcommand;
use crossbeam::channel::Receiver;

/// The subcommand's own.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    scx_hetero bench run MIXES.toml --scheduler default camps\n  \
    scx_hetero bench report results.jsonl")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// Run mixes under schedulers
    Run(run::Args),
    /// Compare what was run: tables, CSV, JSON and charts
    Report(report::Args),
}

/// The exit status of a program that Ctrl-C has ended.
const INTERRUPTED: u8 = 130;

/// Does what `args` say; the exit status.
///
/// # Errors
/// In words for people.
pub fn run(args: &Args, stop: &Receiver<()>) -> Result<u8> {
    match &args.command {
        Command::Run(args) => Ok(match run::run(args, stop)? {
            Some(true) => 0,
            Some(false) => 1,
            None => INTERRUPTED,
        }),
        Command::Report(args) => report::run(args).map(|()| 0),
    }
}
