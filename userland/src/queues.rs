// SPDX-License-Identifier: GPL-2.0-only
//! The runqueues: one per core type, and one for tasks without a hint; each ordered by vtime.

use std::collections::BTreeMap;

/// Where a task is in its queue. The pid tells tasks of the same vtime apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Virtual time, ns.
    pub(crate) vtime: u64,
    /// Thread id.
    pub(crate) pid: i32,
}

/// See the module.
pub(crate) struct Queues<T> {
    /// By core type; the last one is for tasks without a hint.
    queues: Vec<BTreeMap<Key, T>>,
}

impl<T> Queues<T> {
    /// All empty.
    pub(crate) fn new(nr_types: usize) -> Self {
        let queues = (0..=nr_types).map(|_| BTreeMap::new()).collect();
        Self { queues }
    }

    /// The queue of tasks with this hint.
    pub(crate) fn of(&self, hint: Option<usize>) -> usize {
        hint.unwrap_or(self.queues.len() - 1)
    }

    /// How many tasks wait.
    pub(crate) fn len(&self) -> usize {
        self.queues.iter().map(BTreeMap::len).sum()
    }

    /// Enqueues a task.
    pub(crate) fn push(&mut self, queue: usize, key: Key, task: T) {
        self.queues[queue].insert(key, task);
    }

    /// Takes a task out of a queue.
    pub(crate) fn remove(&mut self, queue: usize, key: Key) -> Option<T> {
        self.queues[queue].remove(&key)
    }

    /// The task that a free CPU of a core type should run: of its own queue and that of tasks without a
    /// hint the one of least vtime. If both are empty and `steals`, of the others'.
    pub(crate) fn next(&self, core_type: usize, steals: bool) -> Option<(usize, Key)> {
        let any = self.queues.len() - 1;
        let first = |queue: usize| {
            let (&key, _) = self.queues[queue].first_key_value()?;
            Some((queue, key))
        };
        let least = |&(_, key): &(usize, Key)| key;
        let own = [core_type, any]
            .into_iter()
            .filter_map(first)
            .min_by_key(least);
        let others = || (0..any).filter_map(first).min_by_key(least);
        own.or_else(|| steals.then(others).flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(tasks: &[(Option<usize>, u64)]) -> Queues<()> {
        let mut queues = Queues::new(2);
        for (pid, &(hint, vtime)) in (1..).zip(tasks) {
            queues.push(queues.of(hint), Key { vtime, pid }, ());
        }
        queues
    }

    fn next(queues: &Queues<()>, core_type: usize, steals: bool) -> Option<i32> {
        queues.next(core_type, steals).map(|(_, key)| key.pid)
    }

    #[test]
    fn a_cpu_takes_what_is_hinted_to_its_type_or_has_no_hint_by_vtime() {
        let queues = queues(&[(Some(0), 30), (None, 20), (Some(1), 10)]);
        assert_eq!(next(&queues, 0, true), Some(2));
        assert_eq!(next(&queues, 1, true), Some(3));
        assert_eq!(queues.len(), 3);
    }

    #[test]
    fn it_takes_what_is_hinted_elsewhere_only_if_it_steals() {
        let mut queues = queues(&[(Some(0), 30), (Some(0), 20)]);
        assert_eq!(next(&queues, 1, false), None);
        let (queue, key) = queues.next(1, true).unwrap();
        assert_eq!(key.pid, 2);
        assert_eq!(queues.remove(queue, key), Some(()));
        assert_eq!(next(&queues, 1, true), Some(1));
    }
}
