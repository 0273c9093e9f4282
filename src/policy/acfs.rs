// SPDX-License-Identifier: GPL-2.0-only
//! `acfs`: the fair scheduler that CAMPS (2018, section 4.3) improves upon. Progress is tracked and
//! evened out as there, but contention is unknown to it: a thread's slowdown is 1 on the fastest
//! type and its speedup factor, SF, elsewhere.
//!
//! # Where the SF comes from
//!
//! The paper's ACFS predicts it with a model trained for the platform. Until there are models,
//! the SF is **the ratio of the thread's own mean IPS on the two types** once it was sampled on
//! both, taken at the clocks that the types have at present, and the ratio of the types' **static
//! capacities** before. Measuring both costs accuracy where a thread changes phase between them.
//!
//! With three or more core types, each has its own SF, and swaps are pairwise as under `camps`.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::camps::progress::{Progress, patience_ns};
use super::camps::swap::{NoContention, Runner, plan};
use super::camps::threads::tell;
use super::camps::threshold::Threshold;
use super::camps::{LOOK, balance, is_contested};
use super::{Action, Policy, Snapshot};
use crate::pmu::module::{self, Module, Sample};
use crate::slowdown::estimator::{DISCARDED, MAX_SLOWDOWN};
use crate::table::{Task, TaskId};
use crate::topology::{MAX_CORE_TYPES, Topology};

/// A new sample counts for one in so many in a thread's mean IPC.
const AVERAGED: f64 = 8.0;

/// The fastest core type.
const BIG: usize = 0;

/// What is known of a thread.
#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    /// Samples so far; the first ones are not used.
    samples: u32,
    /// Mean instructions per cycle by core type.
    ipc: [Option<f64>; MAX_CORE_TYPES],
    /// What the BPF half was told last.
    told: Option<[f32; MAX_CORE_TYPES]>,
    /// Mean slowdown on other types than the fastest, for the sleepers' rule.
    slowdown: f64,
}

/// See the module.
pub struct Acfs {
    threads: HashMap<TaskId, Thread>,
    /// Latest mean clock by core type, Hz.
    frequency: [Option<f64>; MAX_CORE_TYPES],
    progress: Progress,
    threshold: Threshold,
    looked_at_ns: Option<u64>,
    runners: Vec<Runner>,
}

impl Acfs {
    /// Aims at one migration per `migration_interval` on the whole machine.
    pub fn new(migration_interval: Duration) -> Self {
        Self {
            threads: HashMap::new(),
            frequency: [None; MAX_CORE_TYPES],
            progress: Progress::default(),
            threshold: Threshold::new(migration_interval),
            looked_at_ns: None,
            runners: Vec::new(),
        }
    }

    /// Brings the threads up to date and appends the slowdowns that changed.
    fn look(&mut self, snapshot: &Snapshot, actions: &mut Vec<Action>) {
        let known = |task: &&Task| self.threads.contains_key(&task.id);
        if snapshot.tasks.iter().filter(known).count() < self.threads.len() {
            let alive: HashSet<TaskId> = snapshot.tasks.iter().map(|task| task.id).collect();
            self.threads.retain(|id, _| alive.contains(id));
        }
        for task in snapshot.tasks {
            let Some(thread) = self.threads.get_mut(&task.id) else {
                continue;
            };
            let inverse = thread.inverse(snapshot.topology, &self.frequency);
            let slowest = snapshot.topology.types.len() - 1;
            thread.slowdown = 1.0 / f64::from(inverse[slowest]);
            if tell(&mut thread.told, inverse) {
                actions.push(Action::Slowdown(task.id, inverse));
            }
        }
    }
}

impl Thread {
    /// 1/SF by core type.
    fn inverse(
        &self,
        topology: &Topology,
        frequency: &[Option<f64>; MAX_CORE_TYPES],
    ) -> [f32; MAX_CORE_TYPES] {
        let ips = |core_type: usize| Some(self.ipc[core_type]? * frequency[core_type]?);
        let mut inverse = [1.0; MAX_CORE_TYPES];
        for (core_type, kind) in topology.types.iter().enumerate().skip(1) {
            let measured = ips(BIG).zip(ips(core_type)).map(|(big, here)| here / big);
            let assumed = f64::from(kind.capacity) / 1024.0;
            let ratio = measured.unwrap_or(assumed);
            inverse[core_type] = ratio.clamp(1.0 / MAX_SLOWDOWN, 1.0) as f32;
        }
        inverse
    }
}

impl Policy for Acfs {
    fn module(&self) -> Option<&dyn Module> {
        Some(&module::Speed)
    }

    fn observe(&mut self, sample: &Sample) {
        let metrics = &sample.metrics;
        let sound = metrics.ipc > 0.0 && metrics.frequency > 0.0;
        if sample.last || !sound || sample.core_type >= MAX_CORE_TYPES {
            return;
        }
        self.frequency[sample.core_type] = Some(metrics.frequency);
        let thread = self.threads.entry(sample.task).or_default();
        thread.samples = thread.samples.saturating_add(1);
        if thread.samples > DISCARDED {
            let mean = thread.ipc[sample.core_type].get_or_insert(metrics.ipc);
            *mean += (metrics.ipc - *mean) / AVERAGED;
        }
    }

    fn interval(&self) -> Option<Duration> {
        Some(LOOK)
    }

    fn decide(&mut self, snapshot: &Snapshot, actions: &mut Vec<Action>) {
        self.look(snapshot, actions);
        let nr_types = snapshot.topology.types.len();
        if nr_types < 2 {
            return;
        }
        let threshold = self.threshold.ns();
        let capacity = snapshot.topology.types[nr_types - 1].capacity.max(1);
        let assumed = 1024.0 / f64::from(capacity);
        self.progress.update(snapshot, |id| {
            let slowdown = self.threads.get(&id).map_or(assumed, |t| t.slowdown);
            patience_ns(threshold, slowdown)
        });
        self.runners.clear();
        self.progress.runners(snapshot, &mut self.runners);
        let elapsed = snapshot.now_ns - self.looked_at_ns.unwrap_or(snapshot.now_ns);
        self.looked_at_ns = Some(snapshot.now_ns);

        let first = actions.len();
        balance(snapshot, &self.progress, &self.runners, actions);
        let contested = is_contested(&self.runners);
        let mut swaps = 0;
        if actions.len() == first {
            self.progress.settled(snapshot, &mut self.runners);
            let none = &mut NoContention;
            swaps = plan(&mut self.runners, nr_types, threshold, none, actions);
        }
        if contested {
            self.threshold.note(elapsed, swaps);
        }
        self.progress.note(&actions[first..], snapshot.now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::super::camps::tests::{board, sample, task};
    use super::*;

    #[test]
    fn slowdown_is_one_on_big_and_the_sf_elsewhere_measured_where_it_can_be() {
        let topology = board(2, 4);
        let it = &mut task(0, 0, 0);
        let mut acfs = Acfs::new(Duration::from_millis(400));
        let mut step = |task: &mut Task, place: usize, ipc: f64, btr: f64| {
            task.core_type = place;
            task.cpu = 2 * place as i32;
            acfs.observe(&sample(task, ipc, 300.0, btr));
            let mut actions = Vec::new();
            let snapshot = Snapshot {
                now_ns: 0,
                topology: &topology,
                tasks: std::slice::from_ref(task),
            };
            acfs.decide(&snapshot, &mut actions);
            actions.into_iter().find_map(|action| match action {
                Action::Slowdown(_, inverse) => Some((inverse[0], inverse[1])),
                _ => None,
            })
        };
        assert_eq!(step(it, 0, 2.0, 0.0), Some((1.0, 0.5)), "static capacity");
        assert_eq!(step(it, 0, 2.0, 0.0), None);
        assert_eq!(step(it, 0, 2.0, 0.0), None);
        assert_eq!(step(it, 1, 0.5, 0.0), Some((1.0, 0.25)), "measured on both");
        // Contention is unknown to it: a slow big core moves the SF, never the 1.
        let slower = step(it, 0, 1.0, 9e9).unwrap();
        assert!(slower.0 == 1.0 && slower.1 > 0.25);
    }
}
