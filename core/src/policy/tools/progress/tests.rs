// SPDX-License-Identifier: GPL-2.0-or-later
//! Which threads take part, and how far each has come, on plain values.

use super::*;
use crate::policy::Seen;
use crate::testing::{MS, board, task};
use crate::topology::Topology;

const PATIENCE: u64 = 300 * MS;

struct Bench {
    topology: Topology,
    tasks: Vec<Task>,
    progress: Progress,
    now_ns: u64,
}

impl Bench {
    /// Tasks 0 to 5 run on CPUs 0 to 5, of which two are big; each has come as far as said, ns.
    fn new(progress: &[u64]) -> Self {
        let mut bench = Self {
            topology: board(2, 4),
            tasks: Vec::new(),
            progress: Progress::default(),
            now_ns: 0,
        };
        for _ in progress {
            bench.push(0);
        }
        bench.step(0);
        for (task, &progress) in bench.tasks.iter_mut().zip(progress) {
            task.amp_progress += progress;
        }
        bench.step(50 * MS);
        bench.step(50 * MS);
        bench
    }

    fn push(&mut self, progress: u64) {
        let cpu = self.tasks.len() as u32;
        let mut task = task(cpu, cpu, usize::from(cpu >= 2));
        (task.amp_progress, task.first_progress) = (progress, progress);
        self.tasks.push(task);
    }

    /// Tasks that are running run for so long, without any progress; then it looks.
    fn step(&mut self, ns: u64) {
        for task in &mut self.tasks {
            if task.state == TaskState::Running {
                task.run_ns[task.core_type] += ns;
            }
        }
        self.look(ns);
    }

    fn look(&mut self, ns: u64) {
        self.now_ns += ns;
        let mut progress = std::mem::take(&mut self.progress);
        progress.update(&self.snapshot(), |_| PATIENCE);
        self.progress = progress;
    }

    fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            now_ns: self.now_ns,
            topology: &self.topology,
            tasks: &self.tasks,
        }
    }

    fn of(&self, index: usize) -> i64 {
        self.progress.of(&self.tasks[index]).unwrap()
    }
}

impl Progress {
    fn taking_part(&self, bench: &Bench) -> Vec<u32> {
        let mut runners = Vec::new();
        self.runners(&bench.snapshot(), &mut runners);
        runners.iter().map(|runner| runner.seen.task.slot).collect()
    }
}

#[test]
fn who_was_sent_somewhere_rests_there_unless_it_is_driven_away() {
    let mut bench = Bench::new(&[0; 6]);
    for _ in 0..3 {
        bench.look(50 * MS);
    }
    let mut runner = SwapCandidate::new(&bench.tasks[0], 0, 0);
    assert!(bench.progress.is_rested(&runner, bench.now_ns));
    let sent = Action::Hint((&bench.tasks[0]).into(), Some(0));
    bench.progress.note(&[sent], bench.now_ns);
    assert!(!bench.progress.is_rested(&runner, bench.now_ns + REST_NS));
    assert!(
        bench
            .progress
            .is_rested(&runner, bench.now_ns + REST_NS + 1)
    );
    runner.place = 1;
    assert!(bench.progress.is_rested(&runner, bench.now_ns));
}

#[test]
fn a_newcomer_takes_part_after_one_look_if_it_ran_for_most_of_that() {
    for (ran, takes_part) in [(20, false), (40, true)] {
        let mut bench = Bench::new(&[0; 5]);
        bench.push(0);
        bench.look(0);
        bench.tasks[5].run_ns[1] += ran * MS;
        bench.look(50 * MS);
        let it = bench.progress.takes_part(&bench.tasks[5]);
        assert_eq!(it, takes_part, "{ran} of 50 ms");
    }
}

#[test]
fn a_newcomer_starts_level_with_the_one_furthest_ahead() {
    let mut bench = Bench::new(&[100, 900, 500]);
    bench.push(7);
    bench.tasks[3].amp_progress += 20;
    bench.step(50 * MS);
    assert_eq!(bench.of(3), 920);
}

#[test]
fn who_slept_long_comes_back_level_with_the_one_furthest_behind() {
    let mut bench = Bench::new(&[100, 900, 500]);
    bench.tasks[0].state = TaskState::Blocked;
    for _ in 0..10 {
        bench.step(50 * MS);
    }
    bench.tasks[0].state = TaskState::Running;
    bench.step(50 * MS);
    assert_eq!(bench.of(0), 500);
    assert_eq!((bench.of(1), bench.of(2)), (900, 500));
}

#[test]
fn short_sleep_changes_nothing_and_long_sleep_never_sets_back() {
    let mut bench = Bench::new(&[100, 900, 500]);
    for (sleeper, looks) in [(0, 4), (1, 20)] {
        bench.tasks[sleeper].state = TaskState::Blocked;
        for _ in 0..looks {
            bench.step(50 * MS);
        }
        bench.tasks[sleeper].state = TaskState::Running;
        bench.step(50 * MS);
    }
    assert_eq!((bench.of(0), bench.of(1)), (100, 900));
}

#[test]
fn patience_is_the_time_to_be_swapped_back() {
    assert_eq!(patience_ns(100, 2.0), 200);
    assert_eq!(patience_ns(100, 1.0), 2_000_000_000);
    assert!(patience_ns(100, 4.0) < patience_ns(100, 2.0));
}

#[test]
fn blocked_idle_pinned_restricted_and_kernel_threads_take_no_part() {
    let mut bench = Bench::new(&[0; 6]);
    assert_eq!(bench.progress.taking_part(&bench), [0, 1, 2, 3, 4, 5]);
    bench.tasks[0].state = TaskState::Blocked;
    bench.tasks[1].pinned = true;
    bench.tasks[2].allowed_types = 0b10;
    bench.tasks[3].kthread = true;
    assert_eq!(bench.progress.taking_part(&bench), [4, 5]);
    // Hardly ever running, though runnable at the moment of the look.
    bench.tasks[4].state = TaskState::Blocked;
    for _ in 0..20 {
        bench.step(50 * MS);
    }
    bench.tasks[4].state = TaskState::Running;
    bench.tasks[4].run_ns[1] += MS;
    for task in &mut bench.tasks[5..] {
        task.run_ns[1] += 50 * MS;
    }
    bench.look(50 * MS);
    assert_eq!(bench.progress.taking_part(&bench), [5]);
}

#[test]
fn a_queued_thread_is_where_it_was_sent_until_it_runs() {
    let mut bench = Bench::new(&[0; 3]);
    let seen: Seen = (&bench.tasks[2]).into();
    bench
        .progress
        .note(&[Action::Hint(seen, Some(0))], bench.now_ns);
    bench.tasks[2].state = TaskState::Queued;
    bench.step(50 * MS);
    assert_eq!(bench.progress.place(&bench.tasks[2]), 0);
    assert!(bench.progress.is_moving(bench.tasks[2].id));
    bench.tasks[2].state = TaskState::Running;
    bench.tasks[2].core_type = 0;
    bench.step(50 * MS);
    assert!(!bench.progress.is_moving(bench.tasks[2].id));
    bench.tasks[2].core_type = 1;
    bench.tasks[2].state = TaskState::Queued;
    assert_eq!(bench.progress.place(&bench.tasks[2]), 1);
}

const S: i64 = 1_000_000_000;

#[test]
fn what_threads_did_before_the_first_look_is_no_claim() {
    let mut bench = Bench::new(&[]);
    bench.progress = Progress::default();
    bench.push(1000 * S as u64);
    bench.push(10);
    bench.step(0);
    assert_eq!(bench.of(0), bench.of(1));
    bench.tasks[1].amp_progress += 7;
    bench.step(50 * MS);
    assert_eq!(bench.of(1) - bench.of(0), 7);
}

#[test]
fn what_no_other_is_awake_to_be_compared_with_comes_back_level_all_the_same() {
    let mut bench = Bench::new(&[100, 900]);
    for task in &mut bench.tasks {
        task.state = TaskState::Blocked;
    }
    bench.step(50 * MS);
    bench.tasks[1].state = TaskState::Running;
    bench.tasks[1].amp_progress += S as u64;
    bench.step(50 * MS);
    bench.tasks[1].state = TaskState::Blocked;
    for _ in 0..10 {
        bench.step(50 * MS);
    }
    bench.tasks[0].state = TaskState::Running;
    bench.step(50 * MS);
    assert_eq!(bench.of(0), bench.of(1));
}

/// One at this weight that has come `ahead` of two others, and one at nice 0 that begins then: how far those are apart.
fn newcomer_beside(weight: u32, ahead: u64, indexers: u32) -> i64 {
    let mut bench = Bench::new(&[0]);
    for _ in 0..indexers {
        bench.push(0);
        bench.tasks.last_mut().unwrap().weight = weight;
    }
    for _ in 0..4 {
        bench.step(50 * MS);
    }
    for task in &mut bench.tasks {
        task.amp_progress += if task.weight == weight {
            ahead
        } else {
            S as u64
        };
    }
    bench.step(50 * MS);
    bench.push(0);
    let newcomer = bench.tasks.len() - 1;
    for _ in 0..4 {
        bench.step(50 * MS);
    }
    bench.of(newcomer) - bench.of(0)
}

#[test]
fn a_newcomer_beside_an_indexer_that_is_hours_ahead_has_but_seconds_to_wait() {
    for indexers in [1, 4] {
        let apart = newcomer_beside(3, 10_000 * S as u64, indexers);
        assert_eq!(apart, APART_NS, "{indexers}");
    }
}

#[test]
fn one_that_cannot_have_its_share_leaves_the_order_of_the_others() {
    // At nice -20, hardly any progress.
    let mut bench = Bench::new(&[0; 5]);
    bench.tasks[0].weight = 88_761;
    for (progress, task) in (0..).zip(&mut bench.tasks) {
        task.amp_progress += 1000 * S as u64 * u64::from(progress > 0) + progress;
    }
    bench.step(50 * MS);
    let order: Vec<i64> = (1..5).map(|of| bench.of(of) - bench.of(1)).collect();
    assert_eq!(order, [0, 1, 2, 3]);
    assert_eq!(bench.of(2) - bench.of(0), APART_NS);
}

#[test]
fn what_weighs_next_to_nothing_takes_no_part_where_cpus_are_short() {
    let mut bench = Bench::new(&[0; 7]);
    assert!(
        bench
            .tasks
            .iter()
            .all(|task| bench.progress.takes_part(task))
    );
    bench.tasks[6].weight = 15;
    bench.step(50 * MS);
    let takes_part = |bench: &Bench, at: usize| bench.progress.takes_part(&bench.tasks[at]);
    assert!(takes_part(&bench, 0) && !takes_part(&bench, 6));
    assert!(!bench.progress.is_busy(&bench.tasks[6]));
    bench.tasks[0].state = TaskState::Blocked;
    bench.step(50 * MS);
    assert!(takes_part(&bench, 6), "there is a CPU for it");
}

#[test]
fn hints_are_taken_back_from_those_that_want_little() {
    let mut bench = Bench::new(&[0; 3]);
    let released = |bench: &Bench| {
        let mut actions = Vec::new();
        bench.progress.release(&bench.snapshot(), &mut actions);
        actions
    };
    for task in &mut bench.tasks[..2] {
        task.hint = Some(1);
    }
    assert!(released(&bench).is_empty());
    bench.tasks[0].state = TaskState::Blocked;
    bench.step(50 * MS);
    assert!(released(&bench).is_empty(), "it is only asleep");
    for _ in 0..20 {
        bench.step(50 * MS);
    }
    let seen = Seen::from(&bench.tasks[0]);
    assert_eq!(released(&bench), [Action::Hint(seen, None)]);
}
