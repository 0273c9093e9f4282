// SPDX-License-Identifier: GPL-2.0-or-later
//! Examples from threads that change their core type while they work: the speeds before and after
//! give the SF, the counts on either side are what it is to be known by.
//!
//! That is the measurement that models are learnt from (PMCTrack 2017, section 4.1.2), without a
//! program being run for it. It takes a thread that does the same before and after: same phase, and
//! about as many others beside it, for contention slows both sides down, and not alike.

use rustc_hash::FxHashMap;

use crate::pmu::sample::Sample;
use crate::slowdown::Phase;
use crate::table::TaskId;

/// The first sample after a move is not used: part of it may be from an earlier stay there, and its
/// caches were cold. So many that follow are enough.
const SKIPPED: u32 = 1;

/// Before and after are of one phase only if they are no further apart, ns.
const APART_NS: u64 = 2_000_000_000;

/// By how many running threads of the contention domain both sides may differ, as a part of them;
/// one thread more or less is always allowed.
const LOAD_CHANGE: f64 = 0.25;

/// SFs beyond are no core type's.
const SFS: std::ops::RangeInclusive<f64> = 0.5..=10.0;

/// What a thread did on a core type, and what it would gain.
#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    /// The application: its process's name.
    pub program: String,
    /// Index of the core type that was counted on.
    pub core_type: usize,
    /// In the order of that core type's features.
    pub features: Vec<f64>,
    /// Speed on the fastest core type over that on the slowest.
    pub sf: f64,
}

/// A sample, with what the sample itself does not tell.
#[derive(Clone, Copy, Debug)]
pub struct SeenSample<'s> {
    /// The sample.
    pub sample: &'s Sample,
    /// Features of its counts.
    pub features: &'s [f64],
    /// Running threads of its contention domain, itself included.
    pub load: f64,
}

/// Samples of a thread in a row, from one core type and of one phase.
#[derive(Clone, Debug)]
struct Stay {
    core_type: usize,
    phase: Phase,
    /// Samples used.
    number: u32,
    /// Samples to be passed over still.
    skip: u32,
    at_ns: u64,
    /// Of the latest sample.
    ips: f64,
    features: Vec<f64>,
    load: f64,
}

#[derive(Debug, Default)]
struct Thread {
    now: Option<Stay>,
    before: Option<Stay>,
}

/// Finds examples among samples. Knows nothing of clocks, files and kernels.
#[derive(Debug)]
pub struct Examples {
    slowest: usize,
    threads: FxHashMap<TaskId, Thread>,
}

impl Examples {
    /// Of a machine whose slowest core type has this index. Moves to and from the types between are
    /// not used: SF is of the fastest over the slowest.
    pub fn new(slowest: usize) -> Self {
        Self {
            slowest,
            threads: FxHashMap::default(),
        }
    }

    /// Takes a sample in. Where it completes a move from one end of the machine to the other, that
    /// gives an example for each, of a program that `name` tells.
    pub fn observe(
        &mut self,
        seen: SeenSample,
        name: impl FnOnce() -> String,
    ) -> Option<[Example; 2]> {
        let sample = seen.sample;
        if sample.last {
            self.threads.remove(&sample.task);
            return None;
        }
        let thread = self.threads.entry(sample.task).or_default();
        let phase = Phase::of(&sample.metrics);
        match &mut thread.now {
            Some(now) if now.core_type != sample.core_type => {
                let was = thread.now.replace(Stay::new(&seen, phase, SKIPPED));
                thread.before = was.filter(|was| was.number > 0);
                return None;
            }
            Some(now) if now.skip > 0 => {
                let skip = now.skip - 1;
                *now = Stay::new(&seen, phase, skip);
            }
            Some(now) if !now.phase.is_same(&phase) => {
                // Another phase: what was before is of no use.
                *now = Stay::new(&seen, phase, 0);
                thread.before = None;
                return None;
            }
            Some(now) => now.take(&seen),
            None => {
                thread.now = Some(Stay::new(&seen, phase, SKIPPED));
                return None;
            }
        }
        let now = thread.now.as_ref().filter(|now| now.number > 0)?;
        let before = thread.before.take()?;
        labelled(&before, now, self.slowest, name)
    }

    /// Forgets threads that have ended.
    pub fn retain(&mut self, alive: impl Fn(TaskId) -> bool) {
        self.threads.retain(|&task, _| alive(task));
    }
}

/// What a move gives, if both sides can be compared.
fn labelled(
    before: &Stay,
    after: &Stay,
    slowest: usize,
    name: impl FnOnce() -> String,
) -> Option<[Example; 2]> {
    let (fast, slow) = if before.core_type < after.core_type {
        (before, after)
    } else {
        (after, before)
    };
    let ends = fast.core_type == 0 && slow.core_type == slowest;
    let near = after.at_ns.saturating_sub(before.at_ns) <= APART_NS;
    let most = (LOAD_CHANGE * before.load.max(after.load)).max(1.0);
    let alike = (before.load - after.load).abs() <= most;
    let sf = fast.ips / slow.ips;
    let sound = ends && near && alike && before.phase.is_same(&after.phase);
    if !sound || !SFS.contains(&sf) {
        return None;
    }
    let program = name();
    let example = |stay: &Stay| Example {
        program: program.clone(),
        core_type: stay.core_type,
        features: stay.features.clone(),
        sf,
    };
    Some([example(fast), example(slow)])
}

impl Stay {
    /// Begun by a sample, which counts unless it is one to be passed over.
    fn new(seen: &SeenSample, phase: Phase, skip: u32) -> Self {
        Self {
            core_type: seen.sample.core_type,
            phase,
            number: u32::from(skip == 0),
            skip,
            at_ns: seen.sample.at_ns,
            ips: seen.sample.metrics.ips,
            features: seen.features.to_vec(),
            load: seen.load,
        }
    }

    fn take(&mut self, seen: &SeenSample) {
        self.number += 1;
        self.at_ns = seen.sample.at_ns;
        self.ips = seen.sample.metrics.ips;
        self.features.clear();
        self.features.extend_from_slice(seen.features);
        self.load = seen.load;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Task;
    use crate::testing::{MS, sample, task};

    /// A thread that gives a sample every 50 ms.
    struct Bench {
        examples: Examples,
        task: Task,
        now_ns: u64,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                examples: Examples::new(1),
                task: task(0, 0, 0),
                now_ns: 0,
            }
        }

        /// So many samples from a core type, of this speed, mix and load; the SFs that they gave.
        fn runs(&mut self, core_type: usize, number: u32, [ips, l1, load]: [f64; 3]) -> Vec<f64> {
            self.task.core_type = core_type;
            let one = |_| {
                self.now_ns += 50 * MS;
                let mut sample = sample(&self.task, 1.0, l1, 0.0);
                sample.at_ns = self.now_ns;
                sample.metrics.ips = ips;
                let seen = SeenSample {
                    sample: &sample,
                    features: &[ips],
                    load,
                };
                let found = self.examples.observe(seen, || "some".into());
                let [fast, slow] = found?;
                assert_eq!((fast.core_type, slow.core_type), (0, 1));
                assert_eq!(fast.sf, slow.sf);
                assert_eq!(fast.features[0] / slow.features[0], fast.sf);
                Some(fast.sf)
            };
            (0..number).filter_map(one).collect()
        }
    }

    #[test]
    fn a_move_there_and_one_back_give_the_sf_once_each() {
        let mut bench = Bench::new();
        assert!(bench.runs(0, 9, [3e9, 300.0, 4.0]).is_empty());
        assert_eq!(bench.runs(1, 9, [2e9, 300.0, 4.0]), [1.5]);
        assert_eq!(bench.runs(0, 9, [4e9, 300.0, 4.0]), [2.0]);
    }

    #[test]
    fn a_stay_of_one_sample_says_nothing() {
        let mut bench = Bench::new();
        bench.runs(0, 9, [3e9, 300.0, 4.0]);
        assert!(bench.runs(1, 1, [2e9, 300.0, 4.0]).is_empty());
        assert!(bench.runs(0, 9, [3e9, 300.0, 4.0]).is_empty());
    }

    #[test]
    fn another_phase_another_load_a_long_time_and_nonsense_give_nothing() {
        for (ips, l1, load, sleeps) in [
            (2e9, 400.0, 4.0, 0),
            (2e9, 300.0, 6.0, 0),
            (2e9, 300.0, 4.0, 3000 * MS),
            (2e8, 300.0, 4.0, 0),
        ] {
            let mut bench = Bench::new();
            bench.runs(0, 9, [3e9, 300.0, 4.0]);
            bench.now_ns += sleeps;
            assert!(bench.runs(1, 9, [ips, l1, load]).is_empty());
        }
        let mut bench = Bench::new();
        bench.runs(0, 9, [3e9, 300.0, 8.0]);
        assert_eq!(bench.runs(1, 9, [2e9, 300.0, 10.0]), [1.5], "a quarter");
    }

    #[test]
    fn a_phase_that_ends_before_the_move_is_not_compared() {
        let mut bench = Bench::new();
        bench.runs(0, 9, [3e9, 300.0, 4.0]);
        bench.runs(0, 1, [3e9, 500.0, 4.0]);
        assert_eq!(bench.runs(1, 9, [2e9, 500.0, 4.0]), [1.5]);
        bench.runs(1, 1, [2e9, 300.0, 4.0]);
        assert!(bench.runs(0, 9, [3e9, 500.0, 4.0]).is_empty());
    }

    #[test]
    fn moves_between_middle_types_are_not_used() {
        let mut bench = Bench::new();
        bench.examples = Examples::new(2);
        bench.runs(0, 9, [3e9, 300.0, 4.0]);
        assert!(bench.runs(1, 9, [2e9, 300.0, 4.0]).is_empty());
        assert!(bench.runs(2, 9, [1e9, 300.0, 4.0]).is_empty());
    }
}
