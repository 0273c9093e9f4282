// SPDX-License-Identifier: GPL-2.0-only
//! What the scheduler knows of a thread.

use hetero_core::table::{Comm, Task, TaskId, TaskState};
use hetero_core::topology::MAX_CORE_TYPES;

use crate::bpf::QueuedTask;
use crate::queues::Key;

/// The kernel's weight of nice 0 in sched_ext, and that of policies.
const WEIGHT_NICE_0: u64 = 100;
const POLICY_NICE_0: u64 = 1024;

/// Policies see a thread once it has run for so long, ns.
const SEEN_AFTER_NS: u64 = 5_000_000;

/// The process that starts all kernel threads.
const KTHREADD: u32 = 2;

/// Times of a thread as the BPF half keeps them, ns by its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    /// Start of its last turn on a CPU.
    pub(crate) start: u64,
    /// End of the last turn that has ended.
    pub(crate) stop: u64,
}

/// See the module.
pub(crate) struct Thread {
    /// Its name for the policy. The slot is the thread id.
    pub(crate) id: TaskId,
    /// Process id.
    tgid: u32,
    kthread: bool,
    comm: Comm,
    /// When it was first seen, ns: with the thread id it names it for good.
    first_seen: u64,
    /// CPU that it was dispatched to, or came from, last.
    pub(crate) cpu: u32,
    /// Core type of that CPU.
    pub(crate) core_type: usize,
    /// Core type that the policy wants for it.
    pub(crate) hint: Option<usize>,
    /// CPU that it goes to next time, as its partner in a swap has run there.
    pub(crate) next_cpu: Option<u32>,
    /// Its place in a queue, if it waits in one.
    pub(crate) waits: Option<Key>,
    /// Its affinity is narrower than the machine: the kernel places it, and no policy.
    pub(crate) narrow: bool,
    /// Progress is charged at this rate on each core type.
    pub(crate) inverse: [f32; MAX_CORE_TYPES],
    weight: u64,
    /// Virtual time, ns.
    pub(crate) vtime: u64,
    /// Up to when its run time is charged, ns by the BPF half's clock.
    charged: u64,
    /// When it was last dispatched, ns by that clock.
    pub(crate) dispatched: u64,
    run_ns: [u64; MAX_CORE_TYPES],
    progress: u64,
    first_progress: u64,
}

impl Thread {
    /// As it comes for the first time. `progress` is that of the thread furthest ahead, where newcomers
    /// begin (CAMPS, section 4.3).
    pub(crate) fn new(id: TaskId, task: &QueuedTask, now: u64, vtime: u64, progress: u64) -> Self {
        Self {
            id,
            tgid: id.slot,
            kthread: false,
            comm: Comm(task.comm.map(|byte| byte as u8)),
            first_seen: now,
            cpu: task.cpu as u32,
            core_type: 0,
            hint: None,
            next_cpu: None,
            waits: None,
            narrow: false,
            inverse: [1.0; MAX_CORE_TYPES],
            weight: WEIGHT_NICE_0,
            vtime,
            charged: task.start_ts,
            dispatched: 0,
            run_ns: [0; MAX_CORE_TYPES],
            progress,
            first_progress: progress,
        }
    }

    /// Takes note of its process, and of that one's parent.
    pub(crate) fn set_process(&mut self, tgid: u32, parent: u32) {
        self.tgid = tgid;
        self.kthread = tgid == KTHREADD || parent == KTHREADD;
    }

    /// Takes note of what changes from one enqueue to the next.
    pub(crate) fn update(&mut self, task: &QueuedTask) {
        self.comm = Comm(task.comm.map(|byte| byte as u8));
        self.weight = task.weight.max(1);
    }

    /// Charges it for what it ran and was not charged for: its last turn, or, if it runs, until `now`.
    pub(crate) fn charge(&mut self, times: Times, now: u64) {
        let until = match times.start > times.stop {
            true => now,
            false => times.stop,
        };
        let ran = until.saturating_sub(times.start.max(self.charged));
        self.charged = self.charged.max(until);
        self.run_ns[self.core_type] += ran;
        self.vtime += ran * WEIGHT_NICE_0 / self.weight;
        let work = ran as f64 * f64::from(self.inverse[self.core_type]);
        self.progress += work as u64 * WEIGHT_NICE_0 / self.weight;
    }

    /// Work done, in ns at the fastest type.
    pub(crate) fn progress(&self) -> u64 {
        self.progress
    }

    /// As policies see it; `None` if it is too young. `types` has a bit for each core type of the machine.
    pub(crate) fn task(&self, times: Times, types: u8) -> Option<Task> {
        let ran: u64 = self.run_ns.iter().sum();
        let state = match self.waits {
            Some(_) => TaskState::Queued,
            None if times.start > times.stop => TaskState::Running,
            // It is in the queue of a CPU.
            None if self.dispatched > times.stop => TaskState::Queued,
            None => TaskState::Blocked,
        };
        (ran >= SEEN_AFTER_NS).then_some(Task {
            id: self.id,
            tid: self.id.slot,
            tgid: self.tgid,
            comm: self.comm,
            start_time: self.first_seen,
            state,
            cpu: self.cpu as i32,
            core_type: self.core_type,
            hint: self.hint,
            allowed_types: types,
            kthread: self.kthread,
            pinned: self.narrow,
            spinning: false,
            weight: (self.weight * POLICY_NICE_0 / WEIGHT_NICE_0) as u32,
            nr_runnable: 1,
            run_ns: self.run_ns,
            amp_progress: self.progress,
            first_progress: self.first_progress,
            sf: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn thread() -> Thread {
        let task = QueuedTask {
            pid: 1,
            cpu: 0,
            nr_cpus_allowed: 2,
            flags: 0,
            start_ts: 0,
            stop_ts: 0,
            exec_runtime: 0,
            weight: 200,
            vtime: 0,
            enq_cnt: 0,
            comm: [0; 16],
        };
        let id = TaskId {
            slot: 1,
            generation: 1,
        };
        let mut thread = Thread::new(id, &task, 0, 50, 70);
        thread.update(&task);
        thread
    }

    #[test]
    fn a_turn_is_charged_once_though_it_was_looked_at_while_it_lasted() {
        let mut thread = thread();
        let runs = Times {
            start: 10 * MS,
            stop: 0,
        };
        thread.charge(runs, 14 * MS);
        assert!(thread.task(runs, 3).is_none(), "4 ms are too young");
        let ended = Times {
            start: 10 * MS,
            stop: 16 * MS,
        };
        thread.charge(ended, 99 * MS);
        thread.charge(ended, 99 * MS);
        let task = thread.task(ended, 3).unwrap();
        assert_eq!((task.run_ns[0], task.state), (6 * MS, TaskState::Blocked));
        // Twice the weight of nice 0.
        assert_eq!(thread.vtime, 50 + 3 * MS);
        assert_eq!(task.amp_progress, 70 + 3 * MS);
        assert_eq!(task.weight, 2048);
    }

    #[test]
    fn what_was_dispatched_and_has_not_begun_waits() {
        let mut thread = thread();
        let times = Times {
            start: 10 * MS,
            stop: 16 * MS,
        };
        thread.charge(times, 0);
        thread.dispatched = 17 * MS;
        assert_eq!(thread.task(times, 3).unwrap().state, TaskState::Queued);
    }
}
