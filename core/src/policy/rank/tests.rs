// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use crate::pmu::sample::SfEstimate;
use crate::table::TaskState;
use crate::testing::{MS, board, sample, task};

/// Threads that compute all the time, with SFs that a model estimates.
struct Bench {
    topology: Topology,
    tasks: Vec<Task>,
    sfs: Vec<f64>,
    /// What the model says that they are; the truth, if nothing.
    said: Vec<f64>,
    /// What the model says that it errs by.
    sigma: f64,
    /// As long as all CPUs are busy, a thread that is told alone where to go does not get there.
    full: bool,
    rank: Rank,
    /// Between two looks.
    step_ns: u64,
    now_ns: u64,
}

impl Bench {
    /// So many big and small cores; threads begin on the big ones, in order.
    fn new(cores: (u32, u32), sfs: &[f64]) -> Self {
        let topology = board(cores.0, cores.1);
        let nr = topology.cpus.len() as u32;
        let on = |slot: u32| task(slot, slot % nr, usize::from(slot % nr >= cores.0));
        Self {
            topology,
            tasks: (0..sfs.len() as u32).map(on).collect(),
            sfs: sfs.to_vec(),
            said: Vec::new(),
            sigma: 0.0,
            full: false,
            rank: Rank::new(OVERSUBSCRIBE),
            step_ns: 200 * MS,
            now_ns: 0,
        }
    }

    /// A step, of 200 ms mostly, in which each thread runs that is not blocked, gives a sample, and goes where it
    /// is sent. Gives the actions but slowdowns.
    fn step(&mut self) -> Vec<Action> {
        self.now_ns += self.step_ns;
        for (task, &sf) in self.tasks.iter_mut().zip(&self.sfs) {
            if task.state == TaskState::Running {
                task.run_ns[task.core_type] += self.step_ns;
                let ipc = if task.core_type == 0 { sf } else { 1.0 };
                let mut sample = sample(task, ipc, 300.0, 0.0);
                let said = self.said.get(task.id.slot as usize);
                let (sf, sigma) = (*said.unwrap_or(&sf), self.sigma);
                sample.sf = Some(SfEstimate { sf, sigma });
                self.rank.observe(&sample);
            }
        }
        let snapshot = Snapshot {
            now_ns: self.now_ns,
            topology: &self.topology,
            tasks: &self.tasks,
        };
        let mut actions = Vec::new();
        self.rank.decide(&snapshot, &mut actions);
        actions.retain(|action| !matches!(action, Action::Slowdown(..)));
        for action in &actions {
            let moves: &[(Seen, Option<usize>)] = match action {
                Action::Hint(seen, to) => &[(*seen, *to)],
                Action::Swap([(a, x), (b, y)]) => &[(*a, Some(*x)), (*b, Some(*y))],
                _ => &[],
            };
            for (seen, to) in moves {
                let task = &mut self.tasks[seen.task.slot as usize];
                task.hint = *to;
                if !self.full || moves.len() > 1 {
                    task.core_type = to.unwrap_or(task.core_type);
                }
            }
        }
        actions
    }

    fn steps(&mut self, number: usize) -> usize {
        (0..number).map(|_| self.step().len()).sum()
    }

    /// Which are on a big core.
    fn on_big(&self) -> Vec<u32> {
        let on_big = self.tasks.iter().filter(|task| task.core_type == 0);
        on_big.map(|task| task.id.slot).collect()
    }
}

#[test]
fn those_that_gain_most_go_to_the_fast_cores_and_all_stay_there() {
    let mut bench = Bench::new((2, 4), &[1.2, 1.4, 2.0, 1.6, 2.4, 1.8]);
    bench.steps(10);
    assert_eq!(bench.on_big(), [2, 4]);
    // Until each of these two was tried elsewhere, once.
    assert!(bench.steps(50) > 0);
    assert_eq!(bench.on_big(), [2, 4]);
    assert_eq!(bench.steps(50), 0);
}

#[test]
fn one_that_waits_for_a_fast_core_changes_places_with_the_next_that_is_to_leave_it() {
    let mut bench = Bench::new((2, 4), &[2.4, 1.2, 1.4, 1.6, 1.8, 2.0]);
    bench.full = true;
    // A fast core has nothing to do yet.
    bench.tasks[1].state = TaskState::Blocked;
    bench.steps(2);
    assert_eq!(bench.tasks[5].hint, Some(0));
    assert_eq!(bench.on_big(), [0, 1]);
    bench.tasks[1].state = TaskState::Running;
    bench.steps(3);
    assert_eq!(bench.on_big(), [0, 5]);
}

#[test]
fn what_a_model_is_sure_of_is_tried_all_the_same() {
    let mut bench = Bench::new((2, 4), &[1.2, 1.5, 1.5, 1.6, 3.0, 1.5]);
    // Right about all but one, and far from the border.
    bench.said = vec![4.0, 1.5, 1.5, 1.6, 3.0, 1.5];
    bench.steps(20);
    assert_eq!(bench.on_big(), [0, 4]);
    bench.steps(60);
    assert_eq!(bench.on_big(), [3, 4]);
}

/// A program that lasts for a second has no time for visits.
#[test]
fn what_a_model_moves_was_measured_where_it_began() {
    let mut bench = Bench::new((2, 4), &[1.5, 1.5, 1.05, 1.6, 1.9, 1.5]);
    bench.step_ns = 50 * MS;
    (bench.said, bench.sigma) = (vec![1.5, 1.5, 3.0, 1.6, 1.9, 1.5], 0.1);
    assert_eq!(bench.steps(2), 0);
    let mut moves = |_| {
        bench.step();
        bench.on_big() == [2, 4]
    };
    assert!((0..3).any(&mut moves));
    bench.steps(10);
    assert!(!bench.on_big().contains(&2));
    // One that cannot be measured does not wait for ever.
    let mut bench = Bench::new((1, 1), &[1.2, 2.0]);
    bench.step_ns = 50 * MS;
    bench.sigma = 0.1;
    bench.tasks[0].run_ns[0] = FIRST_NS;
    bench.tasks[1].run_ns[1] = FIRST_NS;
    bench.steps(2);
    assert_eq!(bench.on_big(), [1]);
}

/// How many threads are not where they would be if all were known, on 2 big cores.
fn misplaced(bench: &Bench) -> usize {
    let mut best: Vec<usize> = (0..bench.sfs.len()).collect();
    best.sort_by(|&a, &b| bench.sfs[b].total_cmp(&bench.sfs[a]));
    let on_big = |slot: &&usize| bench.on_big().contains(&(**slot as u32));
    2 - best[..2].iter().filter(on_big).count()
}

#[test]
fn a_model_that_is_wrong_is_found_out_whatever_it_says() {
    let sfs = [1.2, 1.4, 2.0, 1.6, 2.4, 1.8];
    for said in [
        [2.4, 2.0, 1.4, 1.8, 1.2, 1.6], // the other way round
        [1.8; 6],
        [5.0, 1.0, 1.0, 1.0, 1.0, 1.0],
    ] {
        let mut bench = Bench::new((2, 4), &sfs);
        (bench.said, bench.sigma) = (said.to_vec(), 0.05);
        bench.steps(50);
        assert_eq!(misplaced(&bench), 0, "{said:?}: {:?}", bench.on_big());
        // Later visits are short, and few.
        let wrong: usize = (0..500)
            .map(|_| {
                bench.step();
                misplaced(&bench)
            })
            .sum();
        assert!(wrong <= 100, "{said:?}: {wrong} of 1000");
    }
}

#[test]
fn a_model_that_is_right_and_sure_sends_few_threads_on_visits() {
    let sfs = [1.2, 1.4, 2.0, 1.6, 2.4, 1.8];
    let visits = |said: [f64; 6]| {
        let mut bench = Bench::new((2, 4), &sfs);
        (bench.said, bench.sigma) = (said.to_vec(), 0.03);
        let mut visits = 0;
        for _ in 0..100 {
            let swaps = bench.step();
            let explored = |action: &&Action| match action {
                Action::Swap([(seen, _), _]) => {
                    bench.rank.reason(seen.task) == Some(Reason::Explore)
                }
                _ => false,
            };
            visits += swaps.iter().filter(explored).count();
        }
        visits
    };
    let (right, wrong) = (visits(sfs), visits([2.4, 2.0, 1.4, 1.8, 1.2, 1.6]));
    assert!(right <= 3 && right < wrong, "{right} {wrong}");
}

#[test]
fn who_is_hardly_better_takes_nobodys_place() {
    let mut bench = Bench::new((2, 4), &[2.0, 2.0, 2.08, 2.0, 1.9, 2.06]);
    bench.steps(50);
    assert_eq!(bench.on_big(), [0, 1]);
    bench.sfs[3] = 2.3;
    bench.steps(50);
    assert_eq!(bench.on_big().len(), 2);
    assert!(bench.on_big().contains(&3));
    // Nor back again, when the difference is as small as before.
    bench.sfs[3] = 2.0;
    let before = bench.on_big();
    bench.steps(50);
    assert_eq!(bench.on_big(), before);
}

#[test]
fn fast_cores_take_more_threads_as_long_as_the_slow_ones_have_one_each() {
    let topology = board(4, 4);
    let rooms = |wanted, oversubscribe| {
        let rooms = rooms(&topology, wanted, oversubscribe);
        [rooms[0], rooms[1]]
    };
    assert_eq!(rooms(3.0, 2.5), [3.0, 0.0]);
    assert_eq!(rooms(2.4, 2.5), [3.0, 0.0]);
    assert_eq!(rooms(8.0, 2.5), [4.0, 4.0]);
    assert_eq!(rooms(8.4, 1.0), [4.0, 4.0]);
    assert_eq!(rooms(12.0, 2.5), [8.0, 4.0]);
    assert_eq!(rooms(16.0, 2.5), [10.0, 6.0]);
    assert_eq!(rooms(16.0, 3.0), [12.0, 4.0]);
    assert_eq!(rooms(16.0, 1.0), [8.0, 8.0]);
    assert_eq!(rooms(40.0, 2.5), [20.0, 20.0]);
    let mut bench = Bench::new((2, 2), &[1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8]);
    bench.steps(20);
    assert_eq!(bench.on_big(), [3, 4, 5, 6, 7]);
}

#[test]
fn who_hardly_runs_is_left_alone_and_loses_its_hint() {
    let mut bench = Bench::new((2, 4), &[1.2, 1.4, 2.0, 1.6, 2.4, 1.8]);
    bench.steps(10);
    assert_eq!(bench.tasks[4].hint, Some(0));
    bench.tasks[4].state = TaskState::Blocked;
    bench.steps(60);
    assert_eq!(bench.tasks[4].hint, None);
    bench.tasks[4].core_type = 1;
    assert_eq!(bench.on_big(), [2, 5], "there is room for another");
}

#[test]
fn who_comes_and_goes_is_ranked_by_all_that_it_does() {
    let mut rank = Rank::new(OVERSUBSCRIBE);
    let (topology, it) = (board(2, 4), task(0, 0, 0));
    let mut take = |l1: f64, sf: f64, times: usize| {
        let mut sample = sample(&it, 1.0, l1, 0.0);
        sample.sf = Some(SfEstimate { sf, sigma: 0.0 });
        (0..times).for_each(|_| rank.observe(&sample));
    };
    take(300.0, 2.0, 30);
    take(600.0, 1.0, 1);
    rank.decide(
        &Snapshot {
            now_ns: 0,
            topology: &topology,
            tasks: &[it],
        },
        &mut Vec::new(),
    );
    let sf = |task: &Task, wants| 1.0 / rank.speeds(task, wants, &topology).speeds[1];
    assert_eq!(sf(&it, 1.0), 1.0);
    let usual = sf(&it, 0.2);
    assert!((1.9..2.0).contains(&usual), "{usual}");
    let mut new = task(1, 1, 1);
    assert_eq!(sf(&new, 1.0), 2.0, "static capacities");
    new.tgid = it.tgid;
    assert_eq!(sf(&new, 1.0), usual, "its program's");
    new.spinning = true;
    assert_eq!(sf(&new, 1.0), 1.0);
}

#[test]
fn a_program_of_many_threads_stands_back_for_a_serial_one() {
    let mut bench = Bench::new((2, 4), &[2.4, 2.4, 2.4, 2.4, 1.5, 1.6]);
    bench.steps(20);
    assert_eq!(bench.on_big().iter().filter(|&&slot| slot < 4).count(), 2);
    bench.tasks[..4].iter_mut().for_each(|task| task.tgid = 7);
    bench.steps(20);
    assert_eq!(bench.on_big(), [4, 5]);
}

#[test]
fn threads_that_cannot_move_take_up_room() {
    let mut bench = Bench::new((2, 4), &[1.2, 1.4, 2.0, 1.6, 2.4, 1.8]);
    bench.tasks[0].pinned = true;
    bench.tasks[4].allowed_types = 0b10;
    bench.steps(10);
    assert_eq!(bench.on_big(), [0, 2]);
    assert_eq!((bench.tasks[0].hint, bench.tasks[4].hint), (None, None));
}

#[test]
fn places_are_given_from_the_fastest_type_down_as_far_as_affinity_allows() {
    let ranked = |slot: u32, allowed: u8| Ranked {
        seen: Seen::from(&task(slot, slot, 0)),
        speeds: SureSpeeds::sure([1.0; MAX_CORE_TYPES]),
        cpus: 1.0,
        place: 0,
        score: 0.0,
        doubt: f64::NEG_INFINITY,
        other: 0,
        rank: (0, 0),
        takes: 1.0,
        allowed,
        hint: None,
        to: 9,
        settled: true,
        on_trust: false,
    };
    let mut all = [
        ranked(0, 0b110),
        ranked(1, 0b111),
        ranked(2, 0b111),
        ranked(3, 0b011),
        ranked(4, 0b111),
    ];
    place(&mut all, &mut [1.0, 2.0, 1.0]);
    assert_eq!(all.map(|ranked| ranked.to), [1, 0, 1, 1, 2]);
}

#[test]
fn each_move_is_told_with_sf_and_rank() {
    let mut bench = Bench::new((1, 1), &[1.2, 2.1]);
    bench.steps(1);
    let actions = bench.step();
    assert!(matches!(actions[..], [Action::Swap(_)]), "{actions:?}");
    let words = |task: &Task| bench.rank.reason(task.id).unwrap().words();
    let words: Vec<String> = bench.tasks.iter().map(words).collect();
    assert_eq!(words, ["SF 1.20, rank 2 of 2", "SF 2.10, rank 1 of 2"]);
    let insight = bench.rank.insight(&bench.tasks[1], &bench.topology);
    assert_eq!(insight.rank, Some((1, 2)));
    let sf = insight.asymmetry[1].unwrap();
    assert!((sf - 2.1).abs() < 1e-6, "{sf}");
}

#[test]
fn what_the_kernel_knows_of_a_thread_stands_in_until_it_runs() {
    let mut bench = Bench::new((1, 1), &[1.5, 1.5]);
    bench.tasks[1].sf = Some(3.0);
    let sf = |bench: &Bench, slot: usize| {
        1.0 / bench
            .rank
            .speeds(&bench.tasks[slot], 1.0, &bench.topology)
            .speeds[1]
    };
    assert_eq!([sf(&bench, 0), sf(&bench, 1)], [2.0, 3.0]);
    bench.step();
    assert_eq!([sf(&bench, 0), sf(&bench, 1)], [1.5, 1.5]);
}
