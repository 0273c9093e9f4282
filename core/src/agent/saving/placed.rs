// SPDX-License-Identifier: GPL-2.0-or-later
//! Where threads were placed, and what is said of it to the BPF half.

use super::EnergySaving;
use crate::policy::{Action, Seen, Snapshot};
use crate::table::{Task, TaskId};

/// A thread that was placed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) id: TaskId,
    pub(super) to: usize,
    /// Where it belongs.
    pub(super) home: usize,
    /// Until when it is only looked at there, ns.
    pub(super) visits: Option<u64>,
    /// It is not told to be there: on the core type that is filled first the BPF half lets it go on elsewhere before a frame is late.
    pub(super) is_loose: bool,
}

impl Placed {
    /// Where it is to be, if it is told so.
    fn hint(&self) -> Option<usize> {
        (!self.is_loose).then_some(self.to)
    }
}

impl EnergySaving {
    /// Says what has changed since the last time.
    pub(super) fn tell(&mut self, snapshot: &Snapshot, actions: &mut Vec<Action>) {
        for before in &self.placed {
            let stays = find(&self.next, before.id).is_some();
            if let Some(task) = snapshot.task(before.id).filter(|_| !stays) {
                actions.push(Action::Hint(task.into(), None));
            }
        }
        self.order.clear();
        for (at, next) in self.next.iter().enumerate() {
            let Some(task) = snapshot.task(next.id) else {
                continue;
            };
            let before = find(&self.placed, next.id);
            let hint = next.hint();
            if before.is_some_and(|before| before.hint() == hint) && task.hint == hint {
                continue;
            }
            let seen = Seen::from(task);
            if hint.is_some() || task.hint.is_some() {
                actions.push(Action::Hint(seen, hint));
            }
            if hint.is_none() {
                continue;
            }
            // Where all CPUs are busy neither of two would find an idle one.
            let goes_back = |&other: &usize| {
                let other = self.next[other];
                let on = snapshot.task(other.id).map(|task| task.core_type);
                other.to == seen.on && on == Some(next.to)
            };
            match self.order.iter().position(goes_back) {
                _ if seen.on == next.to => {}
                Some(pair) => {
                    let other = self.next[self.order.swap_remove(pair)];
                    let other = snapshot.task(other.id).map(|task| (task.into(), other.to));
                    actions.extend(other.map(|other| Action::Swap([(seen, next.to), other])));
                }
                None => self.order.push(at),
            }
        }
        std::mem::swap(&mut self.placed, &mut self.next);
    }

    /// Takes back where threads were placed.
    pub(super) fn release(&mut self, tasks: &[Task], actions: &mut Vec<Action>) {
        for placed in self.placed.drain(..) {
            if let Ok(at) = tasks.binary_search_by_key(&placed.id, |task| task.id) {
                actions.push(Action::Hint((&tasks[at]).into(), None));
            }
        }
    }
}

/// Of threads in the order of ids, that one.
pub(super) fn find(placed: &[Placed], id: TaskId) -> Option<&Placed> {
    let at = placed.binary_search_by_key(&id, |placed| placed.id).ok()?;
    Some(&placed[at])
}
