// SPDX-License-Identifier: GPL-2.0-or-later
//! Of places while energy is saved.

use super::*;
use crate::testing::{MS, board, sample, task};

#[test]
fn while_threads_begin_and_end_the_package_is_awake_all_the_same() {
    let topology = board(2, 2);
    let mut saving = EnergySaving::default();
    // Two compilers at a time, of a second each; what else there is sleeps.
    let mut tasks = [task(0, 0, 0), task(1, 1, 0), task(2, 2, 1)];
    tasks[2].state = TaskState::Blocked;
    tasks[2].run_ns[1] = 1_000_000 * MS;
    for look in 1..=100 {
        for (half, task) in [0, 3].into_iter().zip(&mut tasks) {
            task.run_ns[0] += 200 * MS;
            if look % 5 == half {
                task.id.generation += 1;
                task.run_ns = [0; MAX_CORE_TYPES];
            }
        }
        let snapshot = Snapshot {
            now_ns: look * 200 * MS,
            topology: &topology,
            tasks: &tasks,
        };
        saving.look(&snapshot);
    }
    assert!(saving.awake > 0.7, "{}", saving.awake);
}

#[test]
fn threads_are_too_many_by_what_they_want_whenever_they_are_looked_at() {
    let topology = board(2, 2);
    let fits = |busy: usize, video: TaskState| {
        let mut saving = EnergySaving::default();
        let mut tasks: Vec<Task> = (0..=busy as u32).map(|n| task(n, n % 4, 0)).collect();
        for look in 1..=20 {
            // Each frame takes a third of its time; looks fall into the same part of all of them.
            for (n, task) in tasks.iter_mut().enumerate() {
                task.run_ns[0] += if n == busy { 70 * MS } else { 200 * MS };
            }
            let middle = look * 200 * MS - 90 * MS;
            for (now_ns, state) in [(middle, TaskState::Blocked), (look * 200 * MS, video)] {
                tasks[busy].state = state;
                let snapshot = Snapshot {
                    now_ns,
                    topology: &topology,
                    tasks: &tasks,
                };
                saving.paces.notice(&snapshot);
                if now_ns > middle {
                    saving.look(&snapshot);
                    if look == 20 {
                        return saving.fits(&snapshot);
                    }
                }
            }
        }
        unreachable!()
    };
    for video in [TaskState::Blocked, TaskState::Running] {
        assert!(fits(3, video));
        assert!(!fits(4, video));
    }
}

#[test]
fn what_a_video_does_as_a_crowd_begins_says_nothing_of_what_it_does_alone() {
    let topology = board(2, 2);
    // So many compute, and a video is on a small core.
    let is_seen = |busy: u32| {
        let mut saving = EnergySaving::default();
        let mut tasks: Vec<Task> = (0..=busy).map(|n| task(n, n % 4, 0)).collect();
        tasks[busy as usize].core_type = 1;
        for look in 1..=3 {
            for (n, task) in (0..).zip(&mut tasks) {
                let share = if n == busy { 80 } else { 100 };
                task.run_ns[task.core_type] += 6 * share * MS;
            }
            saving.look(&Snapshot {
                now_ns: look * 600 * MS,
                topology: &topology,
                tasks: &tasks,
            });
        }
        let stale = stale_ns(&topology);
        let video = tasks[busy as usize].id;
        saving.paces.is_seen(video, 1, 1800 * MS, stale)
    };
    assert!(is_seen(3));
    assert!(!is_seen(4));
}

#[test]
fn what_is_known_of_threads_that_ended_is_forgotten_without_sensors_too() {
    let topology = board(2, 2);
    let mut saving = EnergySaving::default();
    let mut task = task(0, 0, 0);
    for look in 1..100 {
        task.id.generation += 1;
        (0..3).for_each(|_| saving.observe(&sample(&task, 1.0, 300.0, 0.0)));
        let snapshot = Snapshot {
            now_ns: look * 200 * MS,
            topology: &topology,
            tasks: &[task],
        };
        let (energy, goals) = (EnergyLedger::default(), AgentGoals::default());
        saving.decide(
            &snapshot,
            PlaceAim::Energy,
            &energy,
            &goals,
            &mut Vec::new(),
        );
    }
    let before = crate::table::TaskId {
        generation: task.id.generation - 1,
        ..task.id
    };
    assert!(saving.speedups.age_ns(task.id, 0).is_some());
    assert_eq!(saving.speedups.age_ns(before, 0), None);
}

#[test]
fn while_efficient_cores_suffice_no_thread_is_wished_elsewhere() {
    let topology = board(2, 2);
    let mut tasks = [task(0, 0, 0), task(1, 0, 0), task(2, 1, 0)];
    tasks[1].hint = Some(0);
    let mut actions = Vec::new();
    assert!(!leave_to_efficient(&tasks, &topology, &mut actions));
    assert_eq!(actions, []);

    tasks[0].state = TaskState::Blocked;
    tasks[2].hint = Some(0);
    tasks[2].pinned = true;
    assert!(leave_to_efficient(&tasks, &topology, &mut actions));
    assert_eq!(actions, [Action::Hint((&tasks[1]).into(), None)]);
}
