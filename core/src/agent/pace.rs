// SPDX-License-Identifier: GPL-2.0-or-later
//! How much work threads want done that sleep in between: a frame each 33 ms, a key each 160.
//!
//! A thread that sleeps for a part of the time does so much work in a second and no more, wherever it runs, until a core
//! type is too slow for that: then it drops what is late, sleeps, and does less than it would elsewhere. So what it wants is
//! the most that it did on any core type, and it is to be seen on a fast one before it is kept on a slow one. What is late and
//! drops nothing computes all the time there, and cannot be told from what has no pace.
//!
//! Work is counted in what the fastest core type does in a second at its highest clock: part of the time that the thread ran, times
//! its speed there, times the clock over the highest that was seen on that type. (Clocks follow the load: at half the clock a thread runs for
//! twice as long.)

use rustc_hash::FxHashMap;

use crate::energy::thrift::GivenWork;
use crate::pmu::sample::Sample;
use crate::policy::Snapshot;
use crate::policy::tools::progress::BUSY;
use crate::table::{Task, TaskId};
use crate::topology::MAX_CORE_TYPES;

/// Of an interval, what a thread may have run on other core types for it to count.
const STRAY: f64 = 0.02;

/// It computes all the time if it runs for so much of it: what it waits for is little more than pages and locks.
const ALL: f64 = 0.9;

/// On a core type that suffices it does all but so much of what it does elsewhere, and sleeps for some of the time at least.
const AS_MUCH: f64 = 0.93;
const FULL: f64 = 0.97;

/// An interval counts for one in so many.
const AVERAGED: f64 = 3.0;

/// What is known of a thread on a core type.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// Part of the time that it ran.
    share: f64,
    /// The same, at the highest clock of the type.
    at_most: f64,
    /// When that was, ns; 0 is never.
    at_ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    ran_ns: [u64; MAX_CORE_TYPES],
    /// Latest clocks, Hz.
    clock: [f64; MAX_CORE_TYPES],
    on: [Load; MAX_CORE_TYPES],
}

/// Of all threads.
#[derive(Debug, Default)]
pub(super) struct Paces {
    threads: FxHashMap<TaskId, Pace>,
    /// The highest clock that was seen, Hz.
    highest: [f64; MAX_CORE_TYPES],
    looked_ns: Option<u64>,
}

impl Paces {
    /// Takes note of a thread's clock.
    pub(super) fn observe(&mut self, sample: &Sample) {
        let (on, clock) = (sample.core_type, sample.metrics.frequency);
        if on >= MAX_CORE_TYPES || clock <= 0.0 {
            return;
        }
        self.highest[on] = self.highest[on].max(clock);
        if let Some(pace) = self.threads.get_mut(&sample.task) {
            pace.clock[on] = clock;
        }
    }

    /// Takes note of how long threads ran since the last look.
    pub(super) fn look(&mut self, snapshot: &Snapshot) {
        let now = snapshot.now_ns;
        let elapsed = self.looked_ns.map_or(0, |at| now.saturating_sub(at));
        self.looked_ns = Some(now);
        for task in snapshot.tasks.iter().filter(|task| !task.kthread) {
            match self.threads.get_mut(&task.id) {
                Some(pace) if elapsed > 0 => pace.look(task, now, elapsed, &self.highest),
                _ => {
                    let pace = self.threads.entry(task.id).or_default();
                    pace.ran_ns = task.run_ns;
                }
            }
        }
        if self.threads.len() > snapshot.tasks.len() {
            self.threads.retain(|&id, _| snapshot.is_alive(id));
        }
    }

    /// What a thread wants; `None` if it computes all the time, or nothing is known of it that is younger than `stale` ns. Its
    /// speeds are relative to the fastest core type.
    pub(super) fn wants(
        &self,
        task: TaskId,
        speeds: &[f64; MAX_CORE_TYPES],
        now_ns: u64,
        stale: u64,
    ) -> Option<GivenWork> {
        let on = &self.threads.get(&task)?.on;
        let fresh = || {
            let all = on.iter().zip(speeds).enumerate();
            all.filter(|(_, (load, _))| load.is_fresh(now_ns, stale))
        };
        let (fastest, (load, _)) = fresh().next()?;
        if load.share >= ALL {
            return None;
        }
        let most = fresh().fold(0.0_f64, |most, (_, (load, speed))| {
            most.max(load.at_most * speed)
        });
        let mut work = GivenWork {
            needs: most,
            fits: 1 << fastest,
            fails: 0,
        };
        for (at, (load, speed)) in fresh().skip(1) {
            match load.at_most * speed >= AS_MUCH * most && load.share < FULL {
                true => work.fits |= 1 << at,
                false => work.fails |= 1 << at,
            }
        }
        Some(work)
    }

    /// Whether a thread was seen on a core type for long enough to know what it does there.
    pub(super) fn is_seen(&self, task: TaskId, on: usize, now_ns: u64, stale: u64) -> bool {
        let pace = self.threads.get(&task);
        pace.is_some_and(|pace| pace.on[on].is_fresh(now_ns, stale))
    }

    /// Whether a thread wanted a good part of a CPU when it was last seen on that type: known sooner than a mean is.
    pub(super) fn is_busy(&self, task: TaskId, on: usize) -> bool {
        let load = self.threads.get(&task).map(|pace| pace.on[on]);
        load.is_some_and(|load| load.share >= BUSY)
    }

    /// Whether a thread slept in between, when it was last seen there.
    pub(super) fn sleeps(&self, task: TaskId, on: usize) -> bool {
        let load = self.threads.get(&task).map(|pace| pace.on[on]);
        load.is_some_and(|load| load.at_ns > 0 && load.share < ALL)
    }
}

impl Load {
    fn is_fresh(&self, now_ns: u64, stale: u64) -> bool {
        self.at_ns > 0 && now_ns.saturating_sub(self.at_ns) <= stale
    }
}

impl Pace {
    fn look(&mut self, task: &Task, now: u64, elapsed: u64, highest: &[f64; MAX_CORE_TYPES]) {
        let ran: [u64; MAX_CORE_TYPES] =
            std::array::from_fn(|on| task.run_ns[on].saturating_sub(self.ran_ns[on]));
        self.ran_ns = task.run_ns;
        let all = ran.iter().sum::<u64>();
        let (on, &most) = (ran.iter().enumerate().max_by_key(|(_, ran)| **ran)).unwrap_or((0, &0));
        if most == 0 || (all - most) as f64 > STRAY * elapsed as f64 {
            return;
        }
        let share = (most as f64 / elapsed as f64).min(1.0);
        let clock = match highest[on] > 0.0 && self.clock[on] > 0.0 {
            true => self.clock[on] / highest[on],
            false => 1.0,
        };
        let load = &mut self.on[on];
        let step = if load.at_ns == 0 { 1.0 } else { 1.0 / AVERAGED };
        load.share += step * (share - load.share);
        load.at_most += step * (share * clock - load.at_most);
        load.at_ns = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{MS, board, sample, task};
    use crate::topology::Topology;

    const STALE: u64 = 60_000 * MS;
    const SPEEDS: [f64; MAX_CORE_TYPES] = [1.0, 0.35, 1.0, 1.0];

    struct Bench {
        topology: Topology,
        tasks: [Task; 1],
        paces: Paces,
        now_ns: u64,
    }

    impl Bench {
        fn new() -> Self {
            let mut bench = Self {
                topology: board(2, 2),
                tasks: [task(0, 0, 0)],
                paces: Paces::default(),
                now_ns: MS,
            };
            bench.runs(0, 0.0, 1);
            bench
        }

        /// For so many looks it runs there for so much of the time.
        fn runs(&mut self, on: usize, share: f64, looks: u32) {
            for _ in 0..looks {
                self.now_ns += 200 * MS;
                self.tasks[0].run_ns[on] += (share * 200.0) as u64 * MS;
                self.paces.look(&Snapshot {
                    now_ns: self.now_ns,
                    topology: &self.topology,
                    tasks: &self.tasks,
                });
            }
        }

        fn wants(&self) -> Option<f64> {
            self.work().map(|work| (work.needs * 100.0).round() / 100.0)
        }

        fn work(&self) -> Option<GivenWork> {
            self.paces
                .wants(self.tasks[0].id, &SPEEDS, self.now_ns, STALE)
        }
    }

    #[test]
    fn what_drops_frames_on_a_slow_type_is_known_by_what_it_does_on_a_fast_one() {
        let mut bench = Bench::new();
        assert_eq!(bench.wants(), None);
        bench.runs(1, 0.5, 3);
        assert_eq!(bench.wants(), Some(0.18));
        let seen = |bench: &Bench| {
            bench
                .paces
                .is_seen(bench.tasks[0].id, 0, bench.now_ns, STALE)
        };
        assert!(!seen(&bench));
        bench.runs(0, 0.36, 2);
        assert!(seen(&bench));
        assert_eq!(bench.wants(), Some(0.36));
        // On the slow type again it does half, and that is not taken for what it wants.
        bench.runs(1, 0.5, 8);
        assert_eq!(bench.wants(), Some(0.36));
        let seen_to = |bench: &Bench| bench.work().map(|work| (work.fits, work.fails));
        assert_eq!(seen_to(&bench), Some((0b01, 0b10)));
        // Half as much is wanted, which the slow type does.
        bench.runs(0, 0.18, 8);
        assert_eq!(seen_to(&bench), Some((0b11, 0)));
        bench.now_ns += STALE + MS;
        assert!(!seen(&bench));
    }

    #[test]
    fn what_computes_all_the_time_wants_no_certain_amount() {
        let mut bench = Bench::new();
        bench.runs(1, 1.0, 3);
        assert_eq!(bench.wants(), None);
        bench.runs(0, 0.6, 2);
        assert_eq!(bench.wants(), Some(0.6));
        bench.runs(0, 1.0, 9);
        assert_eq!(bench.wants(), None);
    }

    #[test]
    fn at_a_lower_clock_it_runs_for_longer_and_wants_no_more() {
        let mut bench = Bench::new();
        let at = |bench: &mut Bench, clock: f64| {
            let mut sample = sample(&bench.tasks[0], 1.0, 300.0, 0.0);
            sample.metrics.frequency = clock;
            bench.paces.observe(&sample);
        };
        at(&mut bench, 4e9);
        at(&mut bench, 2e9);
        bench.runs(0, 0.8, 3);
        assert_eq!(bench.wants(), Some(0.4));
    }

    #[test]
    fn an_interval_on_two_types_says_nothing() {
        let mut bench = Bench::new();
        bench.tasks[0].run_ns[1] += 50 * MS;
        bench.runs(0, 0.4, 1);
        assert_eq!(bench.wants(), None);
    }
}
