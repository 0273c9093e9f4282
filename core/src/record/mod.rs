// SPDX-License-Identifier: GPL-2.0-or-later
//! Recordings: all that a policy saw, and what it decided and why (`--record`), such that it can
//! decide again, or another in its place (`scx_hetero replay`), and that it can be drawn
//! (`scx_hetero report`).
//!
//! What is recorded is what goes into a policy and what comes out of it: the machine, samples, the task table,
//! settings; actions, reasons, and what became of them. Besides what programs with goals were given, to be drawn.

mod encode;
pub mod format;
mod members;
mod read;

use std::time::Duration;

pub use encode::{Encoder, append, reasons};
pub use members::Members;
pub use read::{BUDGET, Input, RecordReader, Tail};

/// Sessions that are recorded at a look, those with the least numbers.
pub const GOALS: usize = 256;

/// And so often at the most.
const GOALS_EACH: Duration = Duration::from_millis(100);

/// Programs whose joules are recorded at a look, those that took most.
pub const PROGRAMS: usize = 32;

/// And so often.
const JOULES_EACH: Duration = Duration::from_secs(1);

/// How often a file is added to: a scheduler that is killed loses no more than this, and what the disk
/// has not taken yet.
pub const FLUSH: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests;
