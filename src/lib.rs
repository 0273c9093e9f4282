// SPDX-License-Identifier: GPL-2.0-only
//! scx_hetero as a library: everything but the command line.
//!
//! What decides is [`hetero_core`]; here is what it sees and acts on: the BPF half ([`scheduler`] loads
//! it), counters, the simulator, recordings, and what users look at.

#![deny(clippy::print_stdout, clippy::print_stderr)] // `output` is the way.

pub mod advice;
pub mod arith;
mod aside;
pub mod ask;
pub mod bench;
mod bpf;
mod carried;
mod cgroups;
mod chart;
pub mod collect;
mod connections;
mod described;
pub mod doctor;
pub mod energy;
pub mod exit;
pub mod goals;
pub mod knowledge;
mod mechanism;
pub mod ml;
pub mod monitor;
mod order;
pub mod pmc;
pub mod pmu;
pub mod power;
pub mod preflight;
pub mod profile;
pub mod record;
pub mod replay;
pub mod report;
pub mod resctrl;
pub mod rules;
pub mod scheduler;
pub mod sim;
pub mod slowdown;
pub mod spin;
pub mod stats;
mod stream;
pub mod table;
#[cfg(test)]
mod testing;
mod toml_text;
mod watchdog;

pub use hetero_core::{agent, output, placement, policy, topology};
use hetero_core::{files, text};
