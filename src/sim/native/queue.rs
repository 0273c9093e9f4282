// SPDX-License-Identifier: GPL-2.0-only
//! A dispatch queue: in the order of virtual time, or first in, first out.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use super::TaskIndex;

/// Where a task is in its queue. Virtual time is compared as signed, which orders it all through a
/// simulation that begins at a small positive time.
pub(super) type QueueKey = (i64, u64);

#[derive(Default)]
pub(super) struct NativeQueue {
    tasks: BTreeMap<QueueKey, TaskIndex>,
    /// Tasks that came so far.
    seq: u64,
    by_vtime: bool,
}

impl NativeQueue {
    /// Inserts a task. `None` if the order is not that of the tasks that wait already, which the kernel
    /// refuses.
    pub(super) fn insert(
        &mut self,
        task: TaskIndex,
        vtime: Option<u64>,
        head: bool,
    ) -> Option<QueueKey> {
        if !self.tasks.is_empty() && self.by_vtime != vtime.is_some() {
            return None;
        }
        self.by_vtime = vtime.is_some();
        self.seq += 1;
        let first = self.tasks.first_key_value().map_or(0, |(place, _)| place.0);
        let last = self.tasks.last_key_value().map_or(0, |(place, _)| place.0);
        let place = match vtime {
            Some(vtime) => (vtime as i64, self.seq),
            None if head => (first - 1, self.seq),
            None => (last + 1, self.seq),
        };
        self.tasks.insert(place, task);
        Some(place)
    }

    pub(super) fn remove(&mut self, place: QueueKey) -> Option<TaskIndex> {
        self.tasks.remove(&place)
    }

    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = TaskIndex> {
        self.tasks.values().copied()
    }

    /// The number of the last one that came.
    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    /// The first one after `place`, or of all, that came no later than `seq`.
    pub(super) fn after(&self, place: Option<QueueKey>, seq: u64) -> Option<(QueueKey, TaskIndex)> {
        let from = place.map_or(Unbounded, Excluded);
        let mut rest = self.tasks.range((from, Unbounded));
        let next = rest.find(|(place, _)| place.1 <= seq);
        next.map(|(&place, &task)| (place, task))
    }
}
