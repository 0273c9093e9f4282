// SPDX-License-Identifier: GPL-2.0-or-later
//! Samples and their metrics.
//!
//! A policy names the events that it wants counted ([`crate::policy::Policy::events`]). Metrics are the
//! same for all policies ([`SampleMetrics::of`]), unlike PMCTrack's, whose monitoring modules compute
//! their own (section 3.2 of the 2017 paper). Policies see [`Sample`]s, and no event codes.

use serde::{Deserialize, Serialize};

use super::Meaning;
pub use super::counts::{EventCounts, Layout};
use crate::table::TaskId;
use crate::topology::MAX_CORE_TYPES;

/// Bytes that a miss of the last-level cache moves over the bus.
pub const LINE_BYTES: f64 = 64.0;

/// How much faster a thread is on the fastest core type than on the slowest, as estimated, and how sure
/// that is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SfEstimate {
    /// The SF.
    pub sf: f64,
    /// Standard error of its logarithm: about the part of the SF by which it errs.
    pub sigma: f64,
}

/// What a task did on one core type for about `--sample-ms` of its run time.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The slot of the task, and its generation.
    pub task: TaskId,
    /// Its thread ID.
    pub tid: u32,
    /// Its process ID.
    pub tgid: u32,
    /// Index into the machine's core types, fastest first.
    pub core_type: usize,
    /// When it ended, in ns of the monotonic clock.
    pub at_ns: u64,
    /// The run time that the counts belong to, in ns.
    pub run_ns: u64,
    /// The task has ended.
    pub last: bool,
    /// What was counted during `run_ns`.
    pub counts: EventCounts,
    /// What that means.
    pub metrics: SampleMetrics,
    /// SF as a model of this machine estimates it from the counts; `None` without a model.
    pub sf: Option<SfEstimate>,
    /// Efficiency factor, EDP_small / EDP_big, as a model of this machine estimates it (PMCTrack 2017,
    /// Eq. 3); `None` without one.
    pub ef: Option<f64>,
    /// What it takes while it runs, core and memory; `None` where nothing tells.
    pub watts: Option<SampleWatts>,
}

/// What a thread takes while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SampleWatts {
    /// On each core type; `None` where it has not run.
    pub on: [Option<SureWatts>; MAX_CORE_TYPES],
    /// Standard error of how much more it takes on the fastest core type than on each, against other threads, W; `None` where it
    /// was not on both. It may be far less than that of either.
    pub apart: [Option<f32>; MAX_CORE_TYPES],
    /// What is usual there, W; 0 where nothing tells.
    pub usual: [f64; MAX_CORE_TYPES],
}

/// Watts of a thread on a core type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SureWatts {
    /// While it runs, W.
    pub watts: f64,
    /// Standard error of how much more that is than other threads take there, W: what all of them err by alike
    /// is not in it.
    pub sigma: f64,
}

impl SampleWatts {
    /// Of a thread of which it is known on one core type alone.
    pub fn on(core_type: usize, watts: f64, sigma: f64) -> Self {
        let mut all = Self::default();
        if let Some(on) = all.on.get_mut(core_type) {
            *on = Some(SureWatts { watts, sigma });
        }
        all
    }
}

/// What counts mean. `None` where this machine cannot count what it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SampleMetrics {
    /// Instructions per second of run time.
    pub ips: f64,
    /// Instructions per cycle.
    pub ipc: f64,
    /// Mean clock while it ran, in Hz: cycles per second of run time.
    pub frequency: f64,
    /// L1 data accesses per 1,000 instructions (CAMPS, section 4.2): loads alone, for not
    /// every E core counts stores with them, and a phase must look alike on all core types.
    pub l1_per_kilo: Option<f64>,
    /// Branches among the instructions, 0 to 1 (CAMPS, section 4.2).
    pub branch_fraction: Option<f64>,
    /// Bus transfer rate: bytes per second of run time that last-level misses move.
    pub btr: Option<f64>,
    /// Cycles that it waited for memory, 0 to 1.
    pub stalled: Option<f64>,
}

impl SampleMetrics {
    /// From counts of `run_ns` of run time; `None` without instructions and cycles.
    pub fn of(counts: &EventCounts, run_ns: u64) -> Option<Self> {
        let instructions = counts.get(Meaning::Instructions)?;
        let cycles = counts.get(Meaning::Cycles).filter(|&n| n > 0.0)?;
        if run_ns == 0 || instructions <= 0.0 {
            return None;
        }
        let seconds = run_ns as f64 / 1e9;
        let per_instruction = |meaning| Some(counts.get(meaning)? / instructions);
        Some(Self {
            ips: instructions / seconds,
            ipc: instructions / cycles,
            frequency: cycles / seconds,
            l1_per_kilo: counts.per_kilo(Meaning::Loads),
            branch_fraction: per_instruction(Meaning::Branches),
            btr: counts
                .get(Meaning::LlcMisses)
                .map(|misses| misses * LINE_BYTES / seconds),
            stalled: counts
                .get(Meaning::StalledMem)
                .map(|stalled| (stalled / cycles).min(1.0)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts() -> EventCounts {
        [
            (Meaning::Instructions, 2e6),
            (Meaning::Cycles, 4e6),
            (Meaning::Loads, 6e5),
            (Meaning::Branches, 3e5),
            (Meaning::LlcMisses, 1e4),
            (Meaning::StalledMem, 1e6),
        ]
        .into_iter()
        .collect()
    }

    #[test]
    fn metrics_are_rates_of_run_time() {
        let metrics = SampleMetrics::of(&counts(), 20_000_000).unwrap();
        assert_eq!(metrics.ips, 1e8);
        assert_eq!(metrics.ipc, 0.5);
        assert_eq!(metrics.frequency, 2e8);
        assert_eq!(metrics.l1_per_kilo, Some(300.0));
        assert_eq!(metrics.branch_fraction, Some(0.15));
        assert_eq!(metrics.btr, Some(1e4 * 64.0 / 0.02));
        assert_eq!(metrics.stalled, Some(0.25));
    }

    #[test]
    fn what_was_not_counted_is_absent_and_not_zero() {
        let few = [(Meaning::Instructions, 2e6), (Meaning::Cycles, 4e6)];
        let few: EventCounts = few.into_iter().collect();
        let metrics = SampleMetrics::of(&few, 20_000_000).unwrap();
        assert_eq!(metrics.btr, None);
        assert_eq!((metrics.branch_fraction, metrics.stalled), (None, None));
        assert_eq!(SampleMetrics::of(&few, 0), None);
        assert_eq!(SampleMetrics::of(&EventCounts::default(), 1), None);
    }
}
