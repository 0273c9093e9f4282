// SPDX-License-Identifier: GPL-2.0-only
//! Queues ordered by virtual time; what came first goes first where that is the same.

use std::collections::BTreeSet;

/// Where a thread stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueuePlace {
    /// A virtual time, ns. Simulations begin and end far from its wrap.
    pub(super) at: u64,
    /// When it came, by number.
    pub(super) order: u64,
}

/// A queue.
#[derive(Debug, Default)]
pub(super) struct FairQueue {
    waiting: BTreeSet<(QueuePlace, u32)>,
}

impl FairQueue {
    pub(super) fn insert(&mut self, thread: u32, place: QueuePlace) {
        self.waiting.insert((place, thread));
    }

    /// Takes a thread out; whether it was in.
    pub(super) fn remove(&mut self, thread: u32, place: QueuePlace) -> bool {
        self.waiting.remove(&(place, thread))
    }

    /// Threads and their places, first to last.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, QueuePlace)> + '_ {
        self.waiting.iter().map(|&(place, thread)| (thread, place))
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_furthest_behind_goes_first_and_equals_in_the_order_they_came() {
        let mut queue = FairQueue::default();
        let place = |at, order| QueuePlace { at, order };
        queue.insert(1, place(30, 1));
        queue.insert(2, place(20, 3));
        queue.insert(3, place(20, 2));
        assert_eq!(queue.iter().map(|(t, _)| t).collect::<Vec<_>>(), [3, 2, 1]);
        assert!(queue.remove(3, place(20, 2)) && !queue.remove(3, place(20, 2)));
        assert_eq!(queue.len(), 2);
    }
}
