// SPDX-License-Identifier: GPL-2.0-or-later
//! Which threads the policy moved of late, and why.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::story::{self, MOVES};
use crate::policy::{Action, Reason, Seen};
use crate::table::{Comm, Task, TaskId};

struct Move {
    at_ns: u64,
    from: usize,
    to: usize,
    partner: Option<(u32, Comm)>,
    reason: Option<Reason>,
}

struct Log {
    last: VecDeque<Move>,
    all: u64,
}

/// See the module. A thread that was never moved takes no room.
#[derive(Default)]
pub struct Moves {
    logs: FxHashMap<TaskId, Log>,
}

impl Moves {
    /// Notes an action that was carried out.
    pub(super) fn note(
        &mut self,
        now_ns: u64,
        action: &Action,
        reason: &dyn Fn(TaskId) -> Option<Reason>,
        tasks: &[Task],
    ) {
        match action {
            // To stay where it is, is no move.
            Action::Hint(seen, Some(to)) if *to == seen.on => {}
            Action::Hint(seen, Some(to)) => self.moved(now_ns, *seen, *to, None, reason),
            Action::Swap(pair) => {
                let partner = |id: TaskId| {
                    let found = tasks.iter().find(|task| task.id == id)?;
                    Some((found.tid, found.comm))
                };
                let [(one, to), (other, back)] = *pair;
                self.moved(now_ns, one, to, partner(other.task), reason);
                self.moved(now_ns, other, back, partner(one.task), reason);
            }
            Action::Hint(_, None)
            | Action::Slowdown(..)
            | Action::Park(..)
            | Action::Weight(..)
            | Action::Join(..) => {}
        }
    }

    fn moved(
        &mut self,
        at_ns: u64,
        seen: Seen,
        to: usize,
        partner: Option<(u32, Comm)>,
        reason: &dyn Fn(TaskId) -> Option<Reason>,
    ) {
        let log = self.logs.entry(seen.task).or_insert_with(|| Log {
            last: VecDeque::with_capacity(MOVES),
            all: 0,
        });
        log.all += 1;
        if log.last.len() == MOVES {
            log.last.pop_front();
        }
        log.last.push_back(Move {
            at_ns,
            from: seen.on,
            to,
            partner,
            reason: reason(seen.task),
        });
    }

    /// Forgets threads that ended.
    pub(super) fn retain(&mut self, tasks: &[Task]) {
        let alive = |id: &TaskId| tasks.binary_search_by_key(id, |task| task.id).is_ok();
        self.logs.retain(|id, _| alive(id));
    }

    /// How often a thread was moved.
    pub fn of(&self, task: TaskId) -> u64 {
        self.logs.get(&task).map_or(0, |log| log.all)
    }

    /// Its last moves in words, oldest first.
    pub fn told(&self, task: TaskId, now_ns: u64) -> Vec<story::Move> {
        let moves = self.logs.get(&task).into_iter().flat_map(|log| &log.last);
        moves
            .map(|moved| story::Move {
                ago_ns: now_ns.saturating_sub(moved.at_ns),
                from: moved.from,
                to: moved.to,
                why: moved.words(),
            })
            .collect()
    }
}

impl Move {
    fn words(&self) -> String {
        let how = match self.partner {
            Some((tid, comm)) => format!("swapped with {tid} ({comm})"),
            None => "sent".into(),
        };
        match self.reason {
            Some(reason) => format!("{how}: {}", reason.words()),
            None => how,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything is moved for the same reason.
    fn roomy(_: TaskId) -> Option<Reason> {
        Some(Reason::Room)
    }

    const ID: TaskId = TaskId {
        slot: 7,
        generation: 1,
    };

    #[test]
    fn the_last_moves_are_kept_with_their_reasons_and_times() {
        let mut moves = Moves::default();
        for second in 0..20 {
            let seen = Seen { task: ID, on: 1 };
            moves.note(second, &Action::Hint(seen, Some(0)), &roomy, &[]);
        }
        assert_eq!(moves.of(ID), 20);
        let told = moves.told(ID, 20);
        assert_eq!(told.len(), MOVES);
        assert_eq!((told[0].ago_ns, told[15].ago_ns), (16, 1));
        assert_eq!((told[0].from, told[0].to), (1, 0));
        assert_eq!(told[0].why, "sent: there was room on a faster core type");
    }

    #[test]
    fn both_of_a_swap_were_moved_and_the_ended_are_forgotten() {
        let mut moves = Moves::default();
        let other = TaskId { slot: 8, ..ID };
        let pair = [ID, other].map(|task| (Seen { task, on: 0 }, 1));
        moves.note(0, &Action::Swap(pair), &roomy, &[]);
        assert_eq!((moves.of(ID), moves.of(other)), (1, 1));
        moves.note(0, &Action::Slowdown(ID, [1.0; 4]), &roomy, &[]);
        assert_eq!(moves.of(ID), 1);
        moves.retain(&[]);
        assert_eq!(moves.of(ID), 0);
    }
}
