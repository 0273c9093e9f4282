// SPDX-License-Identifier: GPL-2.0-or-later
//! Exploration: a thread whose speed on some core type is not known, or known from long ago, is
//! brought there for a moment by an exchange. For policies that would otherwise leave it where it
//! is for ever.

use rustc_hash::FxHashMap;

use super::speedup::Speedups;
use super::swap::SwapCandidate;
use crate::policy::{Action, Snapshot};
use crate::table::TaskId;
use crate::topology::Topology;

/// How long a thread stays where it is looked at, ns: some samples, after those discarded.
const VISIT_NS: u64 = 300_000_000;

/// What was measured so long ago is measured again, ns, times the core types but one: visits are to take
/// no greater part of the time where there are more types to visit.
const STALE_NS: u64 = 20_000_000_000;

/// A visit that brought no samples is not tried again before, ns.
const RETRY_NS: u64 = 3_000_000_000;

/// The most exchanges at once.
const MAX_EXCHANGES: usize = 4;

/// Which thread is to be looked at where.
#[derive(Debug, Default)]
pub(crate) struct Explorer {
    /// What the logarithm of an SF may err by without a visit: by a model, before all is measured.
    sure: f64,
    /// When a visit of a thread to a core type began, ns.
    visits: FxHashMap<(TaskId, usize), u64>,
    /// Which threads change places in this step; kept for its memory.
    busy: Vec<TaskId>,
    /// See [`STALE_NS`].
    stale_ns: u64,
}

impl Explorer {
    /// One that visits no core type of which it is that sure what it is worth to a thread, see [`Self::sure`].
    pub(crate) fn unless_sure(sure: f64) -> Self {
        Self {
            sure,
            ..Self::default()
        }
    }

    /// Appends the exchanges that it wants, and leaves in `runners` those that are not concerned.
    pub(crate) fn step(
        &mut self,
        snapshot: &Snapshot,
        speedups: &Speedups,
        runners: &mut Vec<SwapCandidate>,
        actions: &mut Vec<Action>,
    ) {
        let now = snapshot.now_ns;
        self.visits.retain(|_, began| now - *began < RETRY_NS);
        runners.retain(|runner| !self.is_visiting(runner, now));
        runners.sort_unstable_by_key(|runner| (runner.progress, runner.seen.task));
        let topology = snapshot.topology;
        let nr_types = topology.types.len();
        self.stale_ns = STALE_NS * nr_types.saturating_sub(1) as u64;
        let mut busy = std::mem::take(&mut self.busy);
        busy.clear();
        for runner in runners.iter() {
            if busy.len() >= 2 * MAX_EXCHANGES {
                break;
            }
            if busy.contains(&runner.seen.task) {
                continue;
            }
            let wanted = (0..nr_types).find_map(|to| {
                let wants = self.wants(runner, to, topology, speedups);
                let partner = wants
                    .then(|| self.partner(runner, to, topology, runners, &busy, speedups))??;
                Some((to, partner))
            });
            let Some((to, partner)) = wanted else {
                continue;
            };
            actions.push(Action::Swap([
                (runner.seen, to),
                (partner.seen, runner.place),
            ]));
            if self.wants(partner, runner.place, topology, speedups) {
                self.visits.insert((partner.seen.task, runner.place), now);
            }
            self.visits.insert((runner.seen.task, to), now);
            busy.extend([runner.seen.task, partner.seen.task]);
        }
        runners.retain(|runner| !busy.contains(&runner.seen.task));
        self.busy = busy;
    }

    fn is_visiting(&self, runner: &SwapCandidate, now: u64) -> bool {
        let began = self.visits.get(&(runner.seen.task, runner.place));
        began.is_some_and(|began| now - began < VISIT_NS)
    }

    /// Whether `runner` should be looked at on core type `to`. Only a thread that was sampled
    /// where it is: elsewhere it may be that nothing can be counted at all.
    fn wants(
        &self,
        runner: &SwapCandidate,
        to: usize,
        topology: &Topology,
        speedups: &Speedups,
    ) -> bool {
        let task = runner.seen.task;
        // What was measured once is measured again: the program may be in another phase.
        let unsure = || {
            let measured = speedups.age_ns(task, to).is_some();
            measured
                || self.sure <= 0.0
                || speedups.sure_speeds(task, topology).sigma(to, runner.place) > self.sure
        };
        to != runner.place
            && runner.allowed & 1 << to != 0
            && speedups.age_ns(task, runner.place).is_some()
            && speedups
                .age_ns(task, to)
                .is_none_or(|age| age > self.stale_ns)
            && !self.visits.contains_key(&(task, to))
            && unsure()
    }

    /// What makes room on `to`: one that should be looked at where `runner` is, else the one whose
    /// rank suits that place best. `runners` are in order of rank.
    fn partner<'a>(
        &self,
        runner: &SwapCandidate,
        to: usize,
        topology: &Topology,
        runners: &'a [SwapCandidate],
        busy: &[TaskId],
        speedups: &Speedups,
    ) -> Option<&'a SwapCandidate> {
        let may = |other: &&SwapCandidate| {
            other.place == to
                && other.allowed & 1 << runner.place != 0
                && !busy.contains(&other.seen.task)
        };
        let alike = |other: &&SwapCandidate| self.wants(other, runner.place, topology, speedups);
        let mut free = runners.iter().filter(may);
        let mutual = runners.iter().filter(may).find(alike);
        mutual.or_else(|| {
            if to < runner.place {
                free.next_back()
            } else {
                free.next()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Task;
    use crate::testing::{MS, board, sample, task};

    struct Bench {
        topology: Topology,
        tasks: Vec<Task>,
        speedups: Speedups,
        explorer: Explorer,
        now_ns: u64,
    }

    impl Bench {
        fn new(places: &[usize]) -> Self {
            let place = |(slot, &place)| task(slot as u32, slot as u32, place);
            Self {
                topology: board(2, 4),
                tasks: places.iter().enumerate().map(place).collect(),
                speedups: Speedups::default(),
                explorer: Explorer::default(),
                now_ns: 0,
            }
        }

        /// Which threads change places after 50 ms, in which each of `sampled` gave a sample;
        /// and which are left. Exchanges are carried out.
        fn step(&mut self, sampled: &[usize]) -> (Vec<(u32, u32)>, Vec<u32>) {
            self.now_ns += 50 * MS;
            for &slot in sampled {
                let sample = sample(&self.tasks[slot], 1.0, 300.0, 0.0);
                self.speedups.observe(&sample);
            }
            let snapshot = Snapshot {
                now_ns: self.now_ns,
                topology: &self.topology,
                tasks: &self.tasks,
            };
            let mut actions = Vec::new();
            self.speedups.look(&snapshot, &mut Vec::new());
            let ranked =
                |task: &Task| SwapCandidate::new(task, task.core_type, task.id.slot.into());
            let mut runners: Vec<SwapCandidate> = self.tasks.iter().map(ranked).collect();
            self.explorer
                .step(&snapshot, &self.speedups, &mut runners, &mut actions);
            let mut swaps = Vec::new();
            for action in actions {
                let Action::Swap(pair) = action else {
                    panic!("{action:?}")
                };
                for (seen, to) in pair {
                    self.tasks[seen.task.slot as usize].core_type = to;
                }
                swaps.push((pair[0].0.task.slot, pair[1].0.task.slot));
            }
            let left = runners.iter().map(|runner| runner.seen.task.slot);
            (swaps, left.collect())
        }
    }

    #[test]
    fn threads_that_lack_each_others_type_change_places_once() {
        let mut bench = Bench::new(&[0, 0, 1, 1]);
        let all = [0, 1, 2, 3];
        assert_eq!(bench.step(&all).0, []);
        assert_eq!(bench.step(&all).0, []);
        let (swaps, left) = bench.step(&all);
        assert_eq!((swaps, left), (vec![(0, 2), (1, 3)], vec![]));
        for _ in 0..5 {
            assert_eq!(
                bench.step(&all),
                (vec![], vec![]),
                "they stay to be looked at"
            );
        }
        for _ in 0..100 {
            assert_eq!(bench.step(&all), (vec![], vec![0, 1, 2, 3]));
        }
    }

    #[test]
    fn the_more_core_types_the_later_each_is_visited_again() {
        let first_again = |nr_types: usize| {
            let mut bench = Bench::new(&[0, 1]);
            let third = bench.topology.types[1].clone();
            bench.topology.types.resize(nr_types, third);
            let all = [0, 1];
            let looks = (0..2000).filter(|_| !bench.step(&all).0.is_empty());
            looks.map(|look| look as u64 * 50 * MS).nth(1).unwrap()
        };
        let [two, three, four] = [2, 3, 4].map(first_again);
        assert!(two.abs_diff(STALE_NS) < STALE_NS / 10, "{two}");
        assert!(three.abs_diff(2 * STALE_NS) < STALE_NS / 10, "{three}");
        assert!(four.abs_diff(3 * STALE_NS) < STALE_NS / 10, "{four}");
    }

    #[test]
    fn a_newcomer_changes_places_with_the_one_whose_rank_suits_best() {
        let mut bench = Bench::new(&[0, 0, 1, 1]);
        for _ in 0..20 {
            bench.step(&[0, 1, 2, 3]);
        }
        // By now 0 and 1 are on small cores, 2 and 3 on big ones.
        bench.tasks[1].id.generation += 1;
        let swaps: Vec<_> = (0..4).flat_map(|_| bench.step(&[0, 1, 2, 3]).0).collect();
        assert_eq!(swaps, [(1, 3)]);
    }

    #[test]
    fn who_was_never_sampled_where_it_is_is_not_moved() {
        let mut bench = Bench::new(&[0, 0, 1, 1]);
        for _ in 0..20 {
            assert_eq!(bench.step(&[]).0, []);
        }
    }

    #[test]
    fn a_visit_without_samples_is_tried_again_later_and_affinity_is_respected() {
        let mut bench = Bench::new(&[0, 1]);
        let mut swaps = |looks| {
            let mut sum = 0;
            for _ in 0..looks {
                let on_big = |&slot: &usize| bench.tasks[slot].core_type == 0;
                let on_big: Vec<usize> = (0..2).filter(on_big).collect();
                sum += bench.step(&on_big).0.len();
            }
            sum
        };
        assert_eq!(swaps(60), 2, "there and back");
        assert!(swaps(20) > 0);
        let mut bench = Bench::new(&[0, 1]);
        bench.tasks[1].allowed_types = 0b10;
        for _ in 0..20 {
            assert_eq!(bench.step(&[0, 1]).0, []);
        }
    }
}
