// SPDX-License-Identifier: GPL-2.0-or-later
//! As many busy threads on each core type as it should hold: the core scheduler's system-wide load
//! balance, fast cores first (CAMPS 2018, sections 4.1 and 4.3).

use std::cmp::Reverse;

use super::progress::Progress;
use super::swap::SwapCandidate;
use crate::limits::MAX_CPUS;
use crate::placement;
use crate::policy::{Action, Snapshot};
use crate::topology::MAX_CORE_TYPES;

/// Puts the numbers right where they are wrong, and appends what that takes to `actions`. Those
/// behind go up first, those ahead go down first. Leaves `runners` in any order, each with the place
/// where it goes. Takes O(n log n).
pub(crate) fn balance(
    snapshot: &Snapshot,
    progress: &Progress,
    runners: &mut [SwapCandidate],
    actions: &mut Vec<Action>,
) {
    let nr_types = snapshot.topology.types.len();
    // Threads that cannot move take up room where they are: each CPU that has some, as much as one does.
    let (mut nr_busy, mut fixed) = (0, [0; MAX_CORE_TYPES]);
    let mut taken = [0u64; MAX_CPUS / 64];
    for task in snapshot.tasks.iter().filter(|task| progress.is_busy(task)) {
        if !task.may_choose() {
            let cpu = task.cpu.max(0) as usize % MAX_CPUS;
            let (word, bit) = (&mut taken[cpu / 64], 1 << (cpu % 64));
            if *word & bit != 0 {
                continue;
            }
            *word |= bit;
            fixed[task.core_type.min(nr_types - 1)] += 1;
        }
        nr_busy += 1;
    }
    let mut room = placement::shares(snapshot.topology, nr_busy);
    for (room, fixed) in room.iter_mut().zip(fixed) {
        *room = room.saturating_sub(fixed);
    }
    let mut held = [0; MAX_CORE_TYPES];
    for runner in &*runners {
        held[runner.place.min(nr_types - 1)] += 1;
    }
    if held == room {
        return;
    }
    let is_free =
        |runner: &SwapCandidate| runner.place < nr_types && !progress.is_moving(runner.seen.task);

    // One that was sent there, and cannot go, is not sent again: that would hold up all swaps.
    let send = |runner: &mut SwapCandidate, to: usize, actions: &mut Vec<Action>| {
        if !progress.is_stuck(runner, to, snapshot.now_ns) {
            actions.push(Action::Hint(runner.seen, Some(to)));
            runner.place = to;
        }
    };

    // Up: from types that hold too many to faster ones that hold too few. Those that spin only
    // where no other has a use for the place.
    runners.sort_unstable_by_key(|runner| (runner.spinning, runner.progress, runner.seen.task));
    for runner in runners.iter_mut().filter(|runner| is_free(runner)) {
        let from = runner.place;
        if held[from] <= room[from] {
            continue;
        }
        let to = (0..from).find(|&to| held[to] < room[to] && runner.may_use(to));
        if let Some(to) = to {
            held[from] -= 1;
            held[to] += 1;
            send(runner, to, actions);
        }
    }
    // Down: from types that hold too many to the emptiest of the slower ones. No type that
    // a thread was just sent to holds too many.
    runners.sort_unstable_by_key(|runner| Reverse((runner.progress, runner.seen.task)));
    for runner in runners.iter_mut().filter(|runner| is_free(runner)) {
        let from = runner.place;
        if held[from] <= room[from] {
            continue;
        }
        let to = (from + 1..nr_types)
            .filter(|&to| held[to] < room[to] && runner.may_use(to))
            .max_by_key(|&to| (room[to] - held[to], Reverse(to)));
        if let Some(to) = to {
            held[from] -= 1;
            held[to] += 1;
            send(runner, to, actions);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Task;
    use crate::testing::{MS, board, task};

    /// What is sent where, of threads that are on these core types; thread n has come n ns.
    fn sent(places: &[usize], change: impl Fn(&mut Vec<Task>)) -> Vec<(u32, usize)> {
        let topology = board(2, 4);
        let mut tasks: Vec<Task> = places
            .iter()
            .enumerate()
            .map(|(slot, &place)| {
                let mut task = task(slot as u32, slot as u32, place);
                task.amp_progress = slot as u64;
                task
            })
            .collect();
        let mut progress = Progress::default();
        for look in 0..4 {
            for task in &mut tasks {
                task.run_ns[task.core_type] += 50 * MS;
            }
            if look == 3 {
                change(&mut tasks);
            }
            let snapshot = Snapshot {
                now_ns: look * 50 * MS,
                topology: &topology,
                tasks: &tasks,
            };
            progress.update(&snapshot, |_| u64::MAX);
        }
        let snapshot = Snapshot {
            now_ns: 150 * MS,
            topology: &topology,
            tasks: &tasks,
        };
        let (mut runners, mut actions) = (Vec::new(), Vec::new());
        progress.runners(&snapshot, &mut runners);
        balance(&snapshot, &progress, &mut runners, &mut actions);
        let hint = |action: &Action| match action {
            Action::Hint(seen, Some(to)) => (seen.task.slot, *to),
            other => panic!("{other:?}"),
        };
        actions.iter().map(hint).collect()
    }

    #[test]
    fn right_numbers_are_left_alone() {
        assert_eq!(sent(&[0, 0, 1, 1, 1, 1], |_| {}), []);
        assert_eq!(sent(&[0, 0], |_| {}), []);
    }

    #[test]
    fn those_behind_go_up_where_there_is_room_and_those_ahead_go_down() {
        assert_eq!(sent(&[1, 1, 1, 1], |_| {}), [(0, 0), (1, 0)]);
        assert_eq!(sent(&[0, 0, 0, 0, 1, 1], |_| {}), [(3, 1), (2, 1)]);
    }

    #[test]
    fn threads_that_cannot_move_take_up_room() {
        let pinned = |tasks: &mut Vec<Task>| tasks[0].pinned = true;
        assert_eq!(sent(&[0, 1, 1, 1], pinned), [(1, 0)]);
        let little = |tasks: &mut Vec<Task>| tasks[1].allowed_types = 0b10;
        assert_eq!(sent(&[0, 1, 1, 1], little), [(2, 0)]);
    }

    #[test]
    fn of_those_that_are_confined_to_one_cpu_one_counts() {
        let confined = |tasks: &mut Vec<Task>| {
            for task in &mut tasks[..2] {
                (task.pinned, task.cpu) = (true, 0);
            }
        };
        assert_eq!(sent(&[0, 0, 0, 1, 1, 1, 1], confined), []);
    }

    #[test]
    fn one_that_cannot_go_where_it_was_sent_is_not_sent_there_for_ever() {
        let topology = board(2, 4);
        let mut tasks: Vec<Task> = (0..3).map(|slot| task(slot, slot, 0)).collect();
        tasks[2].amp_progress = 1;
        let (mut progress, mut sent) = (Progress::default(), Vec::new());
        for look in 0..20 {
            for task in &mut tasks {
                task.run_ns[0] += 50 * MS;
            }
            let snapshot = Snapshot {
                now_ns: look * 50 * MS,
                topology: &topology,
                tasks: &tasks,
            };
            progress.update(&snapshot, |_| u64::MAX);
            let (mut runners, mut actions) = (Vec::new(), Vec::new());
            progress.runners(&snapshot, &mut runners);
            balance(&snapshot, &progress, &mut runners, &mut actions);
            progress.note(&actions, snapshot.now_ns);
            for action in actions {
                let Action::Hint(seen, to) = action else {
                    panic!("{action:?}");
                };
                assert_eq!((seen.task, to), (tasks[2].id, Some(1)));
                sent.push(look);
            }
            if !sent.is_empty() {
                tasks[2].hint = Some(1);
            }
        }
        assert!((1..=5).contains(&sent.len()), "{sent:?}");
    }
}
