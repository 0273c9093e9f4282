// SPDX-License-Identifier: GPL-2.0-or-later
//! The knob between fairness and throughput (`--fairness`), which the CAMPS paper (2018) does not
//! have: at 100 % all threads are to progress alike; at F % the one that gains least from a fast core
//! may fall back to F % of the progress of the one that gains most, which gets the fast cores
//! meanwhile.
//!
//! Progress is charged at a rate: threads with a high SF are charged less, so that they count as
//! behind for longer. Between the lowest and the highest SF the allowed lead goes with the power of
//! (100/F), so that the threads in between get leads in between. Where the lead cannot be had, for
//! a thread is no faster than it is, the high SFs stay on the fast cores, which is what `hsp` does.

use super::threads::ThreadEstimators;
use crate::policy::Snapshot;
use crate::policy::tools::ledger::Ledger;
use crate::policy::tools::progress::{APART_NS, Progress};
use crate::policy::tools::swap::SwapCandidate;
use crate::table::Task;
use crate::topology::Topology;

/// 0 % stands for this: at a lead of 100 all that can be had is had.
const LEAST: f64 = 0.01;

/// SFs that differ by less in all are taken to be alike.
const ALIKE: f64 = 0.25;

/// Differences are forgotten in so long, ns: one that cannot be made up must not grow for ever.
const FORGOTTEN_NS: f64 = 20e9;

/// The fastest core type.
const BIG: usize = 0;

/// See the module.
#[derive(Debug)]
pub struct Fairness {
    /// Allowed lead of the highest SF over the lowest, 1 or more.
    lead: f64,
    ledger: Ledger,
    /// SF by runner; kept for its memory.
    sfs: Vec<f64>,
}

impl Fairness {
    /// From 0 to 100 percent; `None` at 100, where nothing is to be done.
    pub fn new(percent: u8) -> Option<Self> {
        (percent < 100).then(|| Self {
            lead: 1.0 / (f64::from(percent) / 100.0).max(LEAST),
            ledger: Ledger::default(),
            sfs: Vec::new(),
        })
    }

    /// Changes the progress of `runners`, which are in the snapshot's order, into that by which they
    /// are to be compared. `elapsed_ns` is since the last look.
    pub(super) fn apply(
        &mut self,
        snapshot: &Snapshot,
        elapsed_ns: u64,
        progress: &Progress,
        threads: &ThreadEstimators,
        runners: &mut [SwapCandidate],
    ) {
        let tasks = snapshot.tasks.iter();
        let taking_part = tasks.filter(|task| progress.takes_part(task));
        let sfs = taking_part
            .zip(&*runners)
            .map(|(task, runner)| sf(task, runner.place, threads, snapshot.topology));
        self.sfs.clear();
        self.sfs.extend(sfs);
        let tasks = snapshot.tasks.iter();
        let taking_part = tasks.filter(|task| progress.takes_part(task));
        let rates = rates(&self.sfs, self.lead);
        for ((runner, task), rate) in runners.iter_mut().zip(taking_part).zip(rates) {
            // What it did itself: the ledger has its own rules for newcomers and sleepers.
            let done = task.amp_progress as i64;
            let of = (task.id, task.weight);
            runner.progress = self.ledger.charge(snapshot.now_ns, of, done, rate);
        }
        // As far as progress may be, and as much farther as the knob lets it.
        let apart = (APART_NS as f64 * self.lead) as i64;
        self.ledger.close(apart, |task| snapshot.is_alive(task));
        self.ledger.forgive(elapsed_ns as f64 / FORGOTTEN_NS);
    }
}

/// SF of a thread, fastest type over slowest, TLP scaled as progress is (section 4.5), with what others do to it there at present
/// (`docs/decisions/fairness.md` has what came of leaving that out). One that is not known is
/// taken to be such that the thread goes where it will be known: high on slow types, low on fast.
fn sf(task: &Task, place: usize, threads: &ThreadEstimators, topology: &Topology) -> f64 {
    let slowest = topology.types.len() - 1;
    let estimator = threads.estimator(task.id);
    let capacity = |core_type: usize| f64::from(topology.types[core_type].capacity.max(1));
    // On types that the threads do not need it may never have run: from the slowest where it ran.
    let known = (BIG + 1..=slowest).rev().find_map(|core_type| {
        let slowdown = estimator?.slowdown(core_type)?;
        Some(slowdown * capacity(core_type) / capacity(slowest))
    });
    let unknown = if place == BIG { 1.0 } else { f64::INFINITY };
    let sf = known.unwrap_or(unknown);
    let nr_fast = topology.types[BIG].cpus.len().max(1);
    let turns = f64::from(task.nr_runnable) / nr_fast as f64;
    (sf / turns.max(1.0)).max(1.0)
}

/// At what rate each thread's progress counts: `lead` times less for the highest SF than for the
/// lowest, and 1 in the middle.
fn rates(sfs: &[f64], lead: f64) -> impl Iterator<Item = f64> {
    let known = sfs.iter().copied().filter(|sf| sf.is_finite());
    let least = known.clone().fold(f64::INFINITY, f64::min);
    let most = known.fold(1.0, f64::max);
    let range = (most - least).max(ALIKE);
    let share = move |sf: f64| {
        if sf.is_finite() {
            ((sf - least) / range).clamp(0.0, 1.0)
        } else {
            1.0
        }
    };
    sfs.iter().map(move |&sf| lead.powf(0.5 - share(sf)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::TaskState;
    use crate::testing::{MS, board, task};

    fn all(sfs: &[f64], lead: f64) -> Vec<f64> {
        rates(sfs, lead).collect()
    }

    #[test]
    fn the_highest_sf_may_lead_the_lowest_by_the_factor_and_those_between_by_less() {
        let rates = all(&[1.0, 2.0, 3.0], 4.0);
        assert_eq!(rates, [2.0, 1.0, 0.5]);
    }

    #[test]
    fn threads_that_are_alike_progress_alike() {
        let rates = all(&[2.0, 2.01], 4.0);
        assert!(rates[0] / rates[1] < 1.06, "{rates:?}");
        assert_eq!(all(&[2.0; 3], 100.0), [10.0; 3]);
    }

    #[test]
    fn who_is_not_known_counts_as_gaining_most_and_disturbs_nobody() {
        assert_eq!(all(&[1.0, f64::INFINITY, 3.0], 4.0), [2.0, 0.5, 0.5]);
        assert_eq!(all(&[f64::INFINITY], 4.0), [0.5]);
    }

    #[test]
    fn what_slept_is_level_with_the_others_and_not_ahead_of_them_for_it() {
        let topology = board(2, 4);
        let mut tasks = [task(0, 0, 0), task(1, 1, 0), task(2, 2, 1)];
        let mut fairness = Fairness::new(50).unwrap();
        let mut progress = Progress::default();
        let threads = ThreadEstimators::new(None, 22);
        let mut runners = Vec::new();
        for look in 1..=2000 {
            let sleeps = (100..1995).contains(&look);
            tasks[2].state = match sleeps {
                true => TaskState::Blocked,
                false => TaskState::Running,
            };
            for task in &mut tasks[..if sleeps { 2 } else { 3 }] {
                task.run_ns[task.core_type] += 50 * MS;
                task.amp_progress += 50 * MS;
            }
            let snapshot = Snapshot {
                now_ns: look * 50 * MS,
                topology: &topology,
                tasks: &tasks,
            };
            progress.update(&snapshot, |_| 300 * MS);
            runners.clear();
            progress.runners(&snapshot, &mut runners);
            fairness.apply(&snapshot, 50 * MS, &progress, &threads, &mut runners);
        }
        let ahead = runners[2].progress - runners[0].progress;
        assert!(ahead.abs() < 1000 * MS as i64, "{ahead}");
    }

    #[test]
    fn at_100_percent_there_is_nothing_to_do() {
        assert!(Fairness::new(100).is_none());
        assert_eq!(Fairness::new(50).unwrap().lead, 2.0);
        assert_eq!(Fairness::new(0).unwrap().lead, 100.0);
    }
}
