// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero replay`: what another policy would have decided, seeing what was recorded.
//!
//! Open loop: what it decides changes nothing of what it sees next. The policy that was recorded,
//! run again, decides exactly what it did, and this says whether that is so.

mod compare;
mod player;
mod render;
mod sums;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use log::warn;

pub use compare::{Difference, ReplayComparison, Reproduced, compare};
pub use player::{Changes, Player};

use crate::output;
use crate::policy::{self, rank};
use crate::record::RecordReader;
use hetero_core::whole::whole;

/// What to run again, and how.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    scx_hetero replay FILE                  does it decide again what it did?\n  \
    scx_hetero replay FILE --policy hsp     what would another policy have done?\n  \
    scx_hetero replay FILE --fairness 50    or the same one, set otherwise?")]
pub struct Args {
    /// A recording, by `scx_hetero --record FILE`
    file: PathBuf,

    /// What decides in place of the recorded policy
    #[arg(short, long, value_enum)]
    policy: Option<policy::Name>,

    /// Another time between swaps, as for the scheduler itself
    #[arg(long, value_name = "MS", value_parser = whole::<u64>(1..=60_000))]
    swap_ms: Option<u64>,

    /// Of policy camps, as for the scheduler itself
    #[arg(long, value_name = "PERCENT", value_parser = whole::<u8>(0..=100))]
    fairness: Option<u8>,

    /// Of policy rank, as for the scheduler itself
    #[arg(long, value_name = "THREADS", value_parser = rank::parse_oversubscribe)]
    oversubscribe: Option<f64>,

    /// Of policy ef, as for the scheduler itself
    #[arg(long, value_enum)]
    objective: Option<policy::Objective>,

    /// How many differences to list
    #[arg(short = 'n', long, default_value_t = 20, value_name = "N")]
    differences: usize,

    /// Print JSON instead
    #[arg(long)]
    json: bool,
}

/// Runs a recording again, and prints what came of it.
///
/// # Errors
/// The file is no recording that this version can read.
pub fn run(args: &Args) -> Result<()> {
    let changes = Changes {
        policy: args.policy,
        swap_interval: args.swap_ms.map(Duration::from_millis),
        fairness: args.fairness,
        oversubscribe: args.oversubscribe,
        objective: args.objective,
    };
    let comparison = compare(
        &mut RecordReader::open(&args.file)?,
        changes,
        args.differences,
    )?;
    if let Some(complaint) = &comparison.complaint {
        warn!("{complaint}");
    }
    let report = render::ReplayReport::new(&comparison);
    if args.json {
        return output::json(&report);
    }
    output::print(report.text())
}
