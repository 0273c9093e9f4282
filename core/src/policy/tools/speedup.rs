// SPDX-License-Identifier: GPL-2.0-or-later
//! What each core type is worth to a thread: speedup factors, SF = IPS_big / IPS_small, by **IPC
//! sampling** (PMCTrack 2017, section 4.1: the SF measured directly, on both core types).
//!
//! A thread's SF between two types is the ratio of its own mean IPS there once it was sampled on both,
//! taken at the clocks that the types have at present. For other types it follows what a model of the
//! machine says ([`super::learnt`]), and without one the types' static capacities, from the nearest
//! type on which the thread was sampled ([`super::speeds`]). A model's word and what was measured weigh as
//! much as each is sure. Two means may belong to different phases
//! of the program: that is the weakness of the method, and why the means are short and start anew
//! after a while.

use rustc_hash::FxHashMap;

use super::expected::Expected;
use super::learnt::Learnt;
use super::mean::MeasuredMean;
use super::speeds::{Prior, Speeds, SureSpeeds};
use super::tell;
use crate::knowledge::{Past, ThreadProfile};
use crate::pmu::sample::Sample;
use crate::policy::{Action, Insight, Snapshot};
use crate::slowdown::estimator::DISCARDED;
use crate::table::TaskId;
use crate::topology::{MAX_CORE_TYPES, Topology};

/// A sample counts for one in so many in a thread's mean IPC, at the least.
const AVERAGED: u32 = 8;

/// A mean that got no sample for so long says nothing about the next one, ns.
const FORGOTTEN_NS: u64 = 5_000_000_000;

/// Run time of all threads on a core type over which its clock is averaged, ns: one that hardly runs has a low one.
const CLOCK_NS: f64 = 400e6;

/// The fastest core type.
const BIG: usize = 0;

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    /// Samples in its life; the first ones are not used.
    samples: u32,
    /// Instructions per cycle, by core type.
    ipc: [MeasuredMean; MAX_CORE_TYPES],
    /// 1/SF as the BPF half was told last.
    told: Option<[f32; MAX_CORE_TYPES]>,
    /// What earlier runs of its program were like.
    past: Expected,
}

/// The speedup factors of all threads.
#[derive(Debug, Default)]
pub(crate) struct Speedups {
    threads: FxHashMap<TaskId, Thread>,
    learnt: Learnt,
    /// Mean clock of late by core type, Hz.
    frequency: [Option<f64>; MAX_CORE_TYPES],
    now_ns: u64,
}

impl Speedups {
    /// Takes a sample in.
    pub(crate) fn observe(&mut self, sample: &Sample) {
        self.learnt.observe(sample);
        let metrics = &sample.metrics;
        let sound = metrics.ipc > 0.0 && metrics.frequency > 0.0;
        if sample.last || !sound || sample.core_type >= MAX_CORE_TYPES {
            return;
        }
        let clock = &mut self.frequency[sample.core_type];
        let before = clock.unwrap_or(metrics.frequency);
        let part = (sample.run_ns as f64 / CLOCK_NS).min(1.0);
        *clock = Some(before + part * (metrics.frequency - before));
        let thread = self.threads.entry(sample.task).or_default();
        thread.samples = thread.samples.saturating_add(1);
        if thread.samples <= DISCARDED {
            return;
        }
        let ipc = &mut thread.ipc[sample.core_type];
        if self.now_ns.saturating_sub(ipc.at_ns()) > FORGOTTEN_NS {
            *ipc = MeasuredMean::default();
        }
        ipc.take(metrics.ipc, AVERAGED, self.now_ns);
        if thread.past.is_wrong(sample, &thread.ipc, &self.frequency) {
            self.learnt.forget_the_past(sample.task);
        }
    }

    /// Takes note of what earlier runs of its program were like.
    pub(crate) fn remember(&mut self, task: TaskId, known: &ThreadProfile) {
        let past = &mut self.threads.entry(task).or_default().past;
        if known.is_empty() {
            *past = Expected::default();
            return self.learnt.forget_the_past(task);
        }
        *past = Expected::new(known);
        self.learnt.remember(task, known);
    }

    /// Adds what was measured of a thread, for later runs.
    pub(crate) fn find(&self, task: TaskId, found: &mut ThreadProfile) {
        if let Some(thread) = self.threads.get(&task) {
            thread
                .past
                .find(&thread.ipc, &self.frequency, self.now_ns, found);
        }
        self.learnt.find(task, found);
    }

    /// What became of what was known of a thread's program.
    pub(crate) fn past(&self, task: TaskId) -> Past {
        let thread = self.threads.get(&task);
        thread.map_or(Past::Unknown, |thread| thread.past.past())
    }

    /// Takes note of the time, forgets threads that ended, and appends to `actions` the slowdowns
    /// that the BPF half is to charge progress with: 1 on the fastest type, the SF elsewhere.
    pub(crate) fn look(&mut self, snapshot: &Snapshot, actions: &mut Vec<Action>) {
        self.rest(snapshot);
        let alive = || snapshot.tasks.iter().map(|task| task.id);
        let prior = Prior::of(snapshot.topology);
        for id in alive() {
            let Some(thread) = self.threads.get_mut(&id) else {
                continue;
            };
            let prior = thread
                .past
                .prior(self.learnt.prior(id, prior), &self.frequency);
            let known = thread.speeds(&prior, &self.frequency, self.now_ns);
            let inverse = known.speeds.map(|speed| speed as f32);
            if tell(&mut thread.told, inverse) {
                actions.push(Action::Slowdown(id, inverse));
            }
        }
    }

    /// Takes note of the time, and forgets threads that ended.
    pub(crate) fn rest(&mut self, snapshot: &Snapshot) {
        self.now_ns = snapshot.now_ns;
        self.learnt.look(snapshot, &self.frequency);
        let known = |id: &TaskId| self.threads.contains_key(id);
        let alive = snapshot.tasks.iter().map(|task| task.id);
        if alive.filter(known).count() < self.threads.len() {
            self.threads.retain(|&id, _| snapshot.is_alive(id));
        }
    }

    /// 1/SF of a thread by core type.
    pub(crate) fn speeds(&self, task: TaskId, topology: &Topology) -> Speeds {
        self.sure_speeds(task, topology).speeds
    }

    /// 1/SF of a thread by core type, and how sure that is.
    pub(crate) fn sure_speeds(&self, task: TaskId, topology: &Topology) -> SureSpeeds {
        let unknown = Thread::default();
        let thread = self.threads.get(&task).unwrap_or(&unknown);
        let prior = self.learnt.prior(task, Prior::of(topology));
        let prior = thread.past.prior(prior, &self.frequency);
        thread.speeds(&prior, &self.frequency, self.now_ns)
    }

    /// What a model says of the threads.
    pub(crate) fn learnt(&self) -> &Learnt {
        &self.learnt
    }

    /// SF of a thread: how much faster it is on the fastest core type than on the slowest.
    pub(crate) fn sf(&self, task: TaskId, topology: &Topology) -> f64 {
        let slowest = topology.types.len().saturating_sub(1);
        1.0 / self.speeds(task, topology)[slowest]
    }

    /// Adds to `insight` what was measured, or what a model says.
    pub(crate) fn insight(
        &self,
        task: TaskId,
        topology: &Topology,
        mut insight: Insight,
    ) -> Insight {
        let speeds = self.speeds(task, topology);
        let types = speeds.iter().enumerate().take(topology.types.len());
        let past = self.threads.get(&task).is_some_and(|of| of.past.says_sf());
        let learnt = past || self.learnt.sf(task).is_some();
        for (core_type, speed) in types {
            let known = |on| self.age_ns(task, on).is_some();
            if learnt || (known(BIG) && known(core_type)) {
                let sf = 1.0 / speed;
                insight.asymmetry[core_type] = Some(sf);
                insight.slowdown[core_type] = Some(sf);
            }
        }
        insight
    }

    /// How long ago a thread was last sampled on a core type, ns; `None` if it never was.
    pub(crate) fn age_ns(&self, task: TaskId, core_type: usize) -> Option<u64> {
        let ipc = self.threads.get(&task)?.ipc.get(core_type)?;
        ipc.get()?;
        Some(self.now_ns.saturating_sub(ipc.at_ns()))
    }
}

/// What a core of the fastest type is worth to a thread with this SF: its part of what its program
/// gains, which wants so many CPUs ([`super::demand::Demand::of_program`]).
///
/// So serial programs and serial phases come first, as in CAMP (Saez et al. 2012). The utility factor
/// there, SF over the square of how many threads are more than the fast cores but one, takes a
/// program's threads for as many programs as long as they fit the fast cores: they would take them all,
/// for what a single thread of another program gains on one.
pub(crate) fn utility(sf: f64, cpus: f64) -> f64 {
    (sf - 1.0) / cpus.max(1.0)
}

impl Thread {
    /// Speeds by core type; `prior` is what stands in where it was not sampled.
    fn speeds(
        &self,
        prior: &Prior,
        frequency: &[Option<f64>; MAX_CORE_TYPES],
        now_ns: u64,
    ) -> SureSpeeds {
        let ips =
            |core_type: usize| self.ipc[core_type].of_at_least(1, frequency[core_type]?, now_ns);
        prior.fused(&std::array::from_fn(ips))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::sample::SfEstimate;
    use crate::slowdown::estimator::MAX_SLOWDOWN;
    use crate::table::Task;
    use crate::testing::{MS, board, sample, task};

    /// One thread that gives samples, on a board whose small cores have half the capacity.
    struct Bench {
        topology: Topology,
        task: Task,
        speedups: Speedups,
        now_ns: u64,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                topology: board(2, 4),
                task: task(0, 0, 0),
                speedups: Speedups::default(),
                now_ns: 0,
            }
        }

        /// After so many samples of this IPC on this type: the SF.
        fn sampled(&mut self, place: usize, ipc: f64, times: u32) -> f64 {
            self.task.core_type = place;
            for _ in 0..times {
                self.speedups.observe(&sample(&self.task, ipc, 300.0, 0.0));
                self.look(50 * MS);
            }
            self.speedups.sf(self.task.id, &self.topology)
        }

        fn look(&mut self, ns: u64) -> Vec<Action> {
            self.now_ns += ns;
            let mut actions = Vec::new();
            let snapshot = Snapshot {
                now_ns: self.now_ns,
                topology: &self.topology,
                tasks: std::slice::from_ref(&self.task),
            };
            self.speedups.look(&snapshot, &mut actions);
            actions
        }
    }

    #[test]
    fn the_sf_is_that_of_static_capacities_until_measured_on_both_types() {
        let mut bench = Bench::new();
        assert_eq!(bench.sampled(0, 2.0, 3), 2.0);
        assert_eq!(bench.sampled(0, 2.0, 1), 2.0);
        assert_eq!(bench.sampled(1, 0.5, 1), 4.0);
    }

    #[test]
    fn a_model_stands_in_until_the_sf_is_measured() {
        let mut bench = Bench::new();
        let mut sampled = sample(&bench.task, 2.0, 300.0, 0.0);
        sampled.sf = Some(SfEstimate {
            sf: 4.0,
            sigma: 10.0,
        });
        bench.speedups.observe(&sampled);
        assert_eq!(
            bench.look(0),
            [Action::Slowdown(bench.task.id, [1.0, 0.25, 1.0, 1.0])]
        );
        assert_eq!(bench.sampled(0, 2.0, 3), 4.0);
        let measured = bench.sampled(1, 0.25, 1);
        assert!((measured - 8.0).abs() < 0.01, "{measured}");
    }

    #[test]
    fn a_type_that_was_never_visited_follows_from_the_one_between() {
        let mut bench = Bench::new();
        let mut third = bench.topology.types[1].clone();
        third.capacity = 256;
        bench.topology.types.push(third);
        assert_eq!(bench.sampled(0, 2.0, 3), 4.0, "static capacities");
        assert_eq!(bench.sampled(1, 0.5, 1), 8.0, "4 on the middle one");
        let speeds = bench.speedups.speeds(bench.task.id, &bench.topology);
        assert_eq!(speeds, [1.0, 0.25, 0.125, 1.0]);
    }

    #[test]
    fn a_mean_follows_and_starts_anew_after_a_while() {
        let mut bench = Bench::new();
        bench.sampled(0, 2.0, 3);
        bench.sampled(1, 0.5, 10);
        let drifting = bench.sampled(1, 1.0, 1);
        assert!((3.0..4.0).contains(&drifting), "{drifting}");
        bench.look(FORGOTTEN_NS);
        assert_eq!(bench.sampled(1, 1.0, 1), 2.0);
    }

    #[test]
    fn the_age_is_that_of_the_last_sample_used() {
        let mut bench = Bench::new();
        let id = bench.task.id;
        bench.sampled(0, 2.0, 2);
        assert_eq!(bench.speedups.age_ns(id, 0), None);
        bench.sampled(0, 2.0, 1);
        bench.look(100 * MS);
        assert_eq!(bench.speedups.age_ns(id, 0), Some(150 * MS));
        assert_eq!(bench.speedups.age_ns(id, 1), None);
    }

    #[test]
    fn the_sf_stays_within_what_is_believed() {
        let mut bench = Bench::new();
        bench.sampled(0, 1.0, 3);
        assert_eq!(bench.sampled(1, 2.0, 3), 1.0);
        bench.sampled(1, 1e-6, 100);
        assert!(bench.sampled(1, 1e-6, 100) <= MAX_SLOWDOWN + 0.01);
    }

    #[test]
    fn one_that_hardly_runs_does_not_set_the_clock_of_all() {
        let mut bench = Bench::new();
        bench.sampled(0, 2.0, 10);
        assert_eq!(bench.sampled(1, 1.0, 10), 2.0);
        let mut other = sample(&task(1, 1, 0), 2.0, 300.0, 0.0);
        (other.metrics.frequency, other.run_ns) = (0.3e9, MS);
        bench.speedups.observe(&other);
        let sf = bench.speedups.sf(bench.task.id, &bench.topology);
        assert!((sf - 2.0).abs() < 0.01, "{sf}");
    }

    #[test]
    fn utility_is_the_gain_shared_by_the_programs_threads() {
        assert_eq!(utility(2.5, 1.0), 1.5);
        assert_eq!(utility(2.5, 0.3), 1.5);
        assert_eq!(utility(2.5, 3.0), 0.5);
        assert_eq!(utility(1.0, 1.0), 0.0);
        assert!(utility(1.4, 1.0) > utility(2.4, 4.0));
    }

    #[test]
    fn threads_that_ended_are_forgotten() {
        let mut bench = Bench::new();
        bench.sampled(0, 2.0, 3);
        let old = bench.task.id;
        bench.task.id.generation += 1;
        bench.look(50 * MS);
        assert_eq!(bench.speedups.age_ns(old, 0), None);
    }
}
