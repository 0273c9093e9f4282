// SPDX-License-Identifier: GPL-2.0-or-later
//! scx_hetero without a kernel: what is known of threads and machines, and what is decided.
//!
//! Data goes one way round. A [`agent::Backend`] (the BPF half in the kernel, the same compiled
//! natively in the simulator, a recording) gives [`pmu::sample::Sample`]s and snapshots of the task
//! [`table`]; a [`policy`] turns these into [`policy::Action`]s; the backend carries them out. Policies
//! touch no kernel, no clock and no file, so they run the same in tests.
//!
//! It builds without clang, libbpf and sched_ext: `cargo test -p hetero-core`.

#![deny(clippy::print_stdout, clippy::print_stderr)] // `output` is the way.

pub mod advice;
pub mod agent;
pub mod cache;
pub mod energy;
pub mod files;
pub mod goals;
pub mod interference;
pub mod kernel;
pub mod knowledge;
pub mod limits;
pub mod mechanism;
pub mod ml;
pub mod output;
pub mod parse;
pub mod placement;
pub mod pmu;
pub mod policy;
pub mod record;
pub mod slowdown;
pub mod table;
#[doc(hidden)]
pub mod testing;
pub mod text;
pub mod topology;
pub mod whole;
