// SPDX-License-Identifier: GPL-2.0-only
//! Why the program stops, in a form that scripts can test.

use std::fmt;

use hetero_core::output;

/// Reasons to fail that a script may want to tell apart; the value is the exit
/// status. Everything else exits with 1, wrong usage with 2, a clean detach
/// with 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitReason {
    /// Not root, in a PID namespace of its own, or not allowed to load BPF programs.
    NotAllowed = 3,
    /// The running kernel has no sched_ext, or takes this scheduler neither as it was built nor as it was booted.
    NoSchedExt = 4,
    /// Another sched_ext scheduler is attached.
    AnotherScheduler = 5,
    /// The kernel's type information is missing or cannot be used.
    BadBtf = 6,
    /// The kernel threw the scheduler out while it ran.
    Ejected = 7,
}

/// An error with a [`ExitReason`]; find it in an [`anyhow::Error`] by downcasting.
#[derive(Debug)]
pub struct Failure {
    /// What a script gets to see.
    pub reason: ExitReason,
    /// What a person gets to see: what happened, why, and what to do.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// The exit status for an error.
pub fn status(error: &anyhow::Error) -> u8 {
    error
        .downcast_ref::<Failure>()
        .map_or_else(|| output::status(error), |failure| failure.reason as u8)
}
