// SPDX-License-Identifier: GPL-2.0-or-later
//! `acfs`: the fair scheduler that CAMPS (2018, section 4.3) improves upon. Progress is tracked and
//! evened out as there, but contention is unknown to it: a thread's slowdown is 1 on the fastest
//! type and its speedup factor, SF, elsewhere.
//!
//! The paper's ACFS predicts the SF with a model trained for the platform. Here it is measured where
//! it can be, and a model stands in before: see [`super::tools::speedup`].
//!
//! With three or more core types, each has its own SF, and swaps are pairwise as under `camps`.

use std::time::Duration;

use super::name::{About, Knows};
use super::reason::Measure;
use super::tools::exchange::Exchange;
use super::tools::progress::patience_ns;
use super::tools::speedup::Speedups;
use super::tools::threshold::Threshold;
use super::tools::{LOOK, remembers};
use super::{Action, Insight, Policy, Reason, Snapshot};
use crate::pmu::Meaning;
use crate::pmu::sample::Sample;
use crate::table::{Task, TaskId};
use crate::topology::Topology;

/// What users are told.
pub(super) const ABOUT: About = About {
    name: "acfs",
    help: "Even out progress, by speedup factors alone",
    knows: &[Knows::Model],
    build: |settings| Box::new(Acfs::new(settings.swap_interval)),
};

/// See the module.
pub struct Acfs {
    speedups: Speedups,
    exchange: Exchange,
    threshold: Threshold,
}

impl Acfs {
    /// Aims at one migration per `migration_interval` on the whole machine.
    pub fn new(migration_interval: Duration) -> Self {
        Self {
            speedups: Speedups::default(),
            exchange: Exchange::by(Measure::Progress),
            threshold: Threshold::new(migration_interval),
        }
    }
}

impl Policy for Acfs {
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
        self.speedups.look(snapshot, actions);
        if snapshot.topology.types.len() < 2 {
            return;
        }
        let threshold = self.threshold.ns();
        let sf = |id| self.speedups.sf(id, snapshot.topology);
        self.exchange
            .look(snapshot, |id| patience_ns(threshold, sf(id)));
        self.exchange.rank(snapshot, |_, progress| progress);
        let contested_ns = self.exchange.contested_ns();
        let swaps = self.exchange.act(snapshot, None, threshold, actions);
        self.threshold.note(contested_ns, swaps);
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
    use crate::testing::{board, sample, task};

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
