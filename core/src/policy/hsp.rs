// SPDX-License-Identifier: GPL-2.0-or-later
//! `hsp`: highest speed-up first, the scheduler for throughput that CAMPS (2018, section 5.1) and
//! PMCTrack (2017, section 4.1) compare with. The threads that gain most from a big core get one,
//! and keep it; no attempt is made to be fair, and nice levels count for CPU time alone.
//!
//! # What a big core is worth
//!
//! A thread's **utility** is `(SF - 1) / N`, where its program wants N CPUs ([`utility`]). The two
//! papers have the utility factor of CAMP (Saez et al. 2012), of which they say that it takes SF and
//! thread-level parallelism together; why ours is another, says `docs/policies/hsp.md`. The SF is
//! measured ([`super::tools::speedup`]), so that every thread must have been on both types once, and again
//! from time to time ([`super::tools::explore`]);
//! but for those of which a model says it, and is sure.
//!
//! With three or more core types each is worth to a thread by how much faster it is there than on the
//! slowest, and two threads on any two types change places where that is worth more to both together.

use std::time::Duration;

use super::name::{About, Knows};
use super::reason::Measure;
use super::tools::demand::Demand;
use super::tools::exchange::Exchange;
use super::tools::explore::Explorer;
use super::tools::remembers;
use super::tools::speedup::{Speedups, utility};
use super::{Action, Insight, Policy, Reason, Snapshot};
use crate::pmu::Meaning;
use crate::pmu::sample::Sample;
use crate::table::{Task, TaskId};
use crate::topology::Topology;

/// What users are told.
pub(super) const ABOUT: About = About {
    name: "hsp",
    help: "Most throughput: the fastest cores to the threads that gain most from them",
    knows: &[Knows::Model],
    build: |_| Box::new(Hsp::default()),
};

/// Two threads change places only if that gains so much: less may be noise, and they would trade
/// places for ever.
const LEAST_GAIN: f64 = 0.1;

/// What an SF may err by without a visit: what [`LEAST_GAIN`] is of the SF of a thread that a fast core
/// hardly gains anything.
const SURE: f64 = LEAST_GAIN;

/// Time between decisions: there is seldom something to do, and to look costs time, too. It is the
/// interval at which PMCTrack samples (section 4.1.2).
const LOOK: Duration = Duration::from_millis(200);

/// Utilities are told in whole numbers: millionths.
const PER_UTILITY: f64 = 1e6;

/// See the module.
pub struct Hsp {
    speedups: Speedups,
    demand: Demand,
    exchange: Exchange,
    explorer: Explorer,
}

impl Default for Hsp {
    fn default() -> Self {
        Self {
            speedups: Speedups::default(),
            demand: Demand::default(),
            exchange: Exchange::by(Measure::Utility),
            explorer: Explorer::unless_sure(SURE),
        }
    }
}

impl Policy for Hsp {
    fn events(&self) -> Option<&'static [Meaning]> {
        Some(&[])
    }

    fn observe(&mut self, sample: &Sample) {
        self.speedups.observe(sample);
    }

    fn interval(&self) -> Option<Duration> {
        Some(LOOK)
    }

    fn decide(&mut self, snapshot: &Snapshot, actions: &mut Vec<Action>) {
        let Self {
            speedups,
            demand,
            exchange,
            explorer,
        } = self;
        speedups.look(snapshot, actions);
        if snapshot.topology.types.len() < 2 {
            return;
        }
        demand.look(snapshot);
        exchange.look(snapshot, |_| u64::MAX);
        let slowest = snapshot.topology.types.len() - 1;
        exchange.rank_by_worth(snapshot, |task| {
            let speeds = speedups.speeds(task.id, snapshot.topology);
            let cpus = demand.of_program(task.tgid);
            speeds.map(|speed| utility(speed / speeds[slowest], cpus) * PER_UTILITY)
        });
        let least = LEAST_GAIN * PER_UTILITY;
        exchange.act_by_worth(snapshot, Some((explorer, speedups)), least, actions);
    }

    remembers!(speedups);

    fn reason(&self, task: TaskId) -> Option<Reason> {
        self.exchange.reason(task)
    }

    fn insight(&self, task: &Task, topology: &Topology) -> Insight {
        let insight = self.exchange.insight(task);
        self.speedups.insight(task.id, topology, insight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Task;
    use crate::testing::{MS, board, sample, task};

    /// Six threads on two big and four small cores, as fast on them as `speeds` says.
    struct Bench {
        tasks: Vec<Task>,
        speeds: Vec<(f64, f64)>,
        hsp: Hsp,
        now_ns: u64,
    }

    impl Bench {
        fn new(speeds: &[(f64, f64)]) -> Self {
            Self {
                tasks: (0..6).map(|i| task(i, i, usize::from(i >= 2))).collect(),
                speeds: speeds.to_vec(),
                hsp: Hsp::default(),
                now_ns: 0,
            }
        }

        /// Runs for 50 ms; says which changed places, and puts them there.
        fn step(&mut self) -> Vec<(u32, u32)> {
            self.now_ns += 50 * MS;
            for (task, speed) in self.tasks.iter_mut().zip(&self.speeds) {
                task.run_ns[task.core_type] += 50 * MS;
                let ipc = if task.core_type == 0 {
                    speed.0
                } else {
                    speed.1
                };
                self.hsp.observe(&sample(task, ipc, 300.0, 0.0));
            }
            let mut actions = Vec::new();
            let snapshot = Snapshot {
                now_ns: self.now_ns,
                topology: &board(2, 4),
                tasks: &self.tasks,
            };
            self.hsp.decide(&snapshot, &mut actions);
            let mut swaps = Vec::new();
            for action in actions {
                if let Action::Swap([(one, to), (other, back)]) = action {
                    self.tasks[one.task.slot as usize].core_type = to;
                    self.tasks[other.task.slot as usize].core_type = back;
                    swaps.push((one.task.slot, other.task.slot));
                }
            }
            swaps
        }

        fn on_big(&self) -> Vec<u32> {
            let big = self.tasks.iter().filter(|task| task.core_type == 0);
            big.map(|task| task.id.slot).collect()
        }
    }

    #[test]
    fn the_threads_with_the_highest_sf_get_the_big_cores_and_keep_them() {
        let sfs = [1.1, 1.5, 1.2, 2.8, 1.4, 2.6];
        let mut bench = Bench::new(&sfs.map(|sf| (1.0, 1.0 / sf)));
        for _ in 0..60 {
            bench.step();
        }
        assert_eq!(bench.on_big(), [3, 5]);
        for _ in 0..300 {
            assert_eq!(bench.step(), []);
        }
    }

    #[test]
    fn every_thread_is_brought_to_both_types_once() {
        let mut bench = Bench::new(&[(1.0, 0.5); 6]);
        let mut swaps = 0;
        for _ in 0..200 {
            swaps += bench.step().len();
        }
        for task in &bench.tasks {
            assert!(task.run_ns[0] > 0 && task.run_ns[1] > 0, "{task:?}");
        }
        assert!(swaps <= 6, "{swaps}");
    }

    #[test]
    fn nearly_equal_threads_do_not_trade_places() {
        let mut bench = Bench::new(&[(1.0, 0.5); 6]);
        for _ in 0..60 {
            bench.step();
        }
        let better = (0..6).find(|&i| bench.tasks[i].core_type == 1).unwrap();
        bench.speeds[better].1 = 1.0 / 2.05;
        let swaps: usize = (0..100).map(|_| bench.step().len()).sum();
        assert_eq!(swaps, 0);
        bench.speeds[better].1 = 1.0 / 2.3;
        let swaps: usize = (0..100).map(|_| bench.step().len()).sum();
        assert_eq!(swaps, 1);
    }

    #[test]
    fn a_program_of_many_threads_stands_back_for_a_serial_one() {
        let mut bench = Bench::new(&[
            (1.0, 0.4),
            (1.0, 0.4),
            (1.0, 0.4),
            (1.0, 0.4),
            (1.0, 0.6),
            (1.0, 0.6),
        ]);
        for task in &mut bench.tasks[..4] {
            task.tgid = 7;
        }
        for _ in 0..60 {
            bench.step();
        }
        assert_eq!(bench.on_big(), [4, 5]);
    }
}
