// SPDX-License-Identifier: GPL-2.0-or-later
//! `eqp`: Equal-Progress, after van Craeynest et al. (2013), as CAMPS (2018, section 5.1) and
//! PMCTrack (2017, section 4.1) describe it: the variant by IPC sampling.
//!
//! A thread's slowdown is the time that it ran on all core types, over the time in which the
//! fastest would have done the same by its **present** speedup factors: unlike ACFS it revalues the
//! whole past with every new SF. The thread that is slowed down most goes to a big core. Programs
//! are nothing to it, nor are nice levels, nor contention: every thread is to be slowed down alike.
//!
//! Slowdowns are compared in time: how far a thread is ahead of where the mean slowdown of all
//! would have it. So the threshold, and the rate of migrations, are those of `acfs`, and a
//! newcomer is neither ahead nor behind.
//!
//! SFs are measured on both core types ([`super::tools::speedup`]), again from time to time where a thread
//! has not been on one of them of late ([`super::tools::explore`]).
//!
//! With three or more core types each has its own SF, and the thread that is slowed down most
//! changes places with one on any faster type.

use std::time::Duration;

use super::name::{About, Knows};
use super::reason::Measure;
use super::tools::exchange::Exchange;
use super::tools::explore::Explorer;
use super::tools::speeds::Speeds;
use super::tools::speedup::Speedups;
use super::tools::threshold::Threshold;
use super::tools::{LOOK, remembers};
use super::{Action, Insight, Policy, Reason, Snapshot};
use crate::pmu::Meaning;
use crate::pmu::sample::Sample;
use crate::table::{Task, TaskId};
use crate::topology::{MAX_CORE_TYPES, Topology};

/// What users are told.
pub(super) const ABOUT: About = About {
    name: "eqp",
    help: "Even out slowdowns, by sampling each thread's speed on every core type",
    knows: &[Knows::Model],
    build: |settings| Box::new(Eqp::new(settings.swap_interval)),
};

/// See the module.
pub struct Eqp {
    speedups: Speedups,
    exchange: Exchange,
    explorer: Explorer,
    threshold: Threshold,
}

impl Eqp {
    /// Aims at one migration per `migration_interval` on the whole machine.
    pub fn new(migration_interval: Duration) -> Self {
        Self {
            speedups: Speedups::default(),
            exchange: Exchange::by(Measure::Lead),
            explorer: Explorer::default(),
            threshold: Threshold::new(migration_interval),
        }
    }
}

/// Time in which the fastest core type would have done what a task did, ns.
fn worth_ns(run_ns: &[u64; MAX_CORE_TYPES], speeds: &Speeds) -> f64 {
    let by_type = run_ns.iter().zip(speeds);
    by_type.map(|(&ns, speed)| ns as f64 * speed).sum()
}

/// What a task did, ns on the fastest core type, and how long it ran, ns.
fn account(task: &Task, speedups: &Speedups, topology: &Topology) -> (f64, f64) {
    let speeds = speedups.speeds(task.id, topology);
    (worth_ns(&task.run_ns, &speeds), task.total_ns() as f64)
}

impl Policy for Eqp {
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
            exchange,
            explorer,
            threshold,
        } = self;
        speedups.look(snapshot, actions);
        if snapshot.topology.types.len() < 2 {
            return;
        }
        exchange.look(snapshot, |_| u64::MAX);
        let account = |task: &Task| account(task, speedups, snapshot.topology);
        let (mut done, mut ran) = (0.0, 0.0);
        for task in exchange.taking_part(snapshot) {
            let (worth, total) = account(task);
            done += worth;
            ran += total;
        }
        exchange.rank(snapshot, |task, _| {
            let (worth, total) = account(task);
            (worth - total * done / f64::max(ran, 1.0)) as i64
        });
        let contested_ns = exchange.contested_ns();
        let explorer = Some((explorer, &*speedups));
        let swaps = exchange.act(snapshot, explorer, threshold.ns(), actions);
        threshold.note(contested_ns, swaps);
    }

    remembers!(speedups);

    /// It would only visit core types sooner, which a thread that ends soon never gets back.
    fn decides_when_told(&self) -> bool {
        false
    }

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
    use crate::policy::Action;
    use crate::testing::{MS, board, sample, task};

    #[test]
    fn the_whole_past_is_valued_by_the_present_sf() {
        assert_eq!(worth_ns(&[100, 100, 0, 0], &[1.0, 0.5, 1.0, 1.0]), 150.0);
        assert_eq!(worth_ns(&[100, 100, 0, 0], &[1.0, 0.25, 1.0, 1.0]), 125.0);
    }

    /// Swaps after three threads on one big and two small cores ran so long on either, ms.
    fn swaps(ran: [(u64, u64); 3], small_ipc: [f64; 3]) -> Vec<(u32, u32)> {
        let topology = board(1, 2);
        let mut tasks: Vec<Task> = (0..3).map(|i| task(i, i, usize::from(i >= 1))).collect();
        let mut eqp = Eqp::new(Duration::from_millis(400));
        for (task, ipc) in tasks.iter_mut().zip(small_ipc) {
            for place in [0, 1] {
                let sampled = Task {
                    core_type: place,
                    ..*task
                };
                let ipc = if place == 0 { 1.0 } else { ipc };
                (0..3).for_each(|_| eqp.observe(&sample(&sampled, ipc, 300.0, 0.0)));
            }
        }
        let mut swaps = Vec::new();
        for look in 0..3 {
            for (task, (big, small)) in tasks.iter_mut().zip(ran) {
                task.run_ns = [0; MAX_CORE_TYPES];
                task.run_ns[0] = big * MS * (look + 1) / 3;
                task.run_ns[1] = small * MS * (look + 1) / 3;
            }
            let snapshot = Snapshot {
                now_ns: look * 50 * MS,
                topology: &topology,
                tasks: &tasks,
            };
            let mut actions = Vec::new();
            eqp.decide(&snapshot, &mut actions);
            if look == 2 {
                swaps.extend(actions.iter().filter_map(|action| match action {
                    Action::Swap([(a, _), (b, _)]) => Some((a.task.slot, b.task.slot)),
                    _ => None,
                }));
            }
        }
        swaps
    }

    #[test]
    fn the_thread_that_is_slowed_down_most_goes_to_a_big_core() {
        let ran = [(1000, 0), (500, 500), (500, 500)];
        assert_eq!(swaps(ran, [0.5, 0.5, 0.25]), [(0, 2)]);
        assert_eq!(swaps(ran, [0.5, 0.25, 0.5]), [(0, 1)]);
    }

    #[test]
    fn equal_slowdowns_are_left_alone_whoever_ran_longer() {
        let ran = [(500, 500), (50, 50), (5000, 5000)];
        assert_eq!(swaps(ran, [0.5; 3]), []);
    }
}
