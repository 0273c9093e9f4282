// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero pmc`: counts events of a program on each core type, without the scheduler.
//!
//! Counters are opened on the program's threads and inherited by all that these start; each
//! counts only on the CPUs of its own PMU, so that core types come apart by themselves. The
//! kernel adds up what ended threads have counted. Modules from the bottom up: [`perf`] opens
//! events, [`ring`] reads samples, [`counting`] and [`sampling`] use them, [`totals`] adds up,
//! [`joules`] knows its energy, [`lines`] prints, and [`session`] is what goes on while the program runs.

mod args;
mod cache_group;
mod columns;
pub(crate) mod counting;
mod events;
mod joules;
mod lines;
pub(crate) mod perf;
mod ring;
pub(crate) mod sampling;
pub(crate) mod session;
pub(crate) mod target;
mod totals;

use std::path::Path;

use anyhow::Result;
use crossbeam::channel::Receiver;

pub use args::Args;

use crate::output;
use crate::pmu::MachinePmus;
use crate::pmu::virtual_counters::VirtualCounters;
use crate::topology::Topology;

/// Runs the subcommand until the program ends or `stop` says so; the exit status is the
/// program's.
pub fn run(args: &Args, stop: &Receiver<()>) -> Result<u8> {
    let machine = MachinePmus::detect();
    let topology = Topology::detect(args.core_types.as_ref())?;
    if let Some(args::List::Events { json }) = args.list {
        let counters = VirtualCounters::discover(Path::new("/"));
        let counters = counters.describe();
        if json {
            let value = events::to_json(&machine, &topology, counters);
            output::json(&value)?;
        } else {
            output::print(events::text(&machine, &topology, counters).trim_end())?;
        }
        return Ok(0);
    }
    session::run(args, &machine, &topology, stop)
}
