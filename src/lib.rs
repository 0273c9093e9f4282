// SPDX-License-Identifier: GPL-2.0-only
//! scx_hetero as a library: everything but the command line.
//!
//! Data goes one way round. The BPF half ([`scheduler`] loads it) keeps a table
//! of tasks; [`table`] takes snapshots of it; a [`policy`] turns a snapshot into
//! actions; the BPF half carries them out. Policies touch no kernel, no clock
//! and no file, so they run the same in tests.

#![deny(clippy::print_stdout, clippy::print_stderr)] // `output` is the way.

pub mod agent;
pub mod arith;
pub mod ask;
pub mod bench;
mod bpf;
pub mod calibrate;
mod carried;
mod cgroups;
mod chart;
pub mod collect;
mod connections;
mod described;
pub mod doctor;
pub mod energy;
pub mod exit;
mod files;
pub mod mechanism;
pub mod ml;
pub mod monitor;
pub mod output;
pub mod placement;
pub mod pmc;
pub mod pmu;
pub mod policy;
pub mod power;
pub mod preflight;
pub mod profile;
pub mod record;
pub mod replay;
pub mod report;
pub mod rules;
pub mod scheduler;
pub mod sim;
pub mod slowdown;
pub mod spin;
pub mod stats;
pub mod table;
mod text;
pub mod topology;
mod watchdog;
