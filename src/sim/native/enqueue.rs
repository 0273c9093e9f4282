// SPDX-License-Identifier: GPL-2.0-only
//! Into queues, out of them, and from one to another, after `kernel/sched/ext.c`. The names of its
//! functions are in the comments.

use super::cpu::Runs;
use super::ffi::{self, ENQ_HEAD, ENQ_PREEMPT, ENQ_REENQ};
use super::kernel::{Later, NativeKernel};
use super::machine::Version;
use super::queue::QueueKey;
use super::task::{At, TaskIndex};

impl NativeKernel {
    /// `dispatch_enqueue()`.
    pub(super) fn insert(&self, at: At, task: TaskIndex, by_vtime: bool, flags: u64) {
        let raw = unsafe { &*self.raw(task) };
        self.trace(|| format!("{} goes to {at:?}, flags {flags:#x}", raw.pid));
        if self.look().tasks[task.0 as usize].at.is_some() {
            self.error(format!("task {} is queued twice", raw.pid));
        }
        let by_vtime = match at {
            At::User(_) => by_vtime,
            _ if by_vtime => {
                self.error("a built-in queue has no order by vtime".into());
                false
            }
            _ => false,
        };
        let vtime = by_vtime.then_some(raw.scx.dsq_vtime);
        let head = flags & (ENQ_HEAD | ENQ_PREEMPT) != 0;
        let Some(place) = self.queue(at, |queue| queue.insert(task, vtime, head)) else {
            self.error(format!("{at:?} is in two orders"));
            self.insert(At::Global, task, false, 0);
            return;
        };
        {
            let entity = &mut self.st().tasks[task.0 as usize];
            entity.at = Some((at, place));
            if entity.in_queue_since.is_none_or(|(before, _)| before != at) {
                entity.in_queue_since = Some((at, self.now()));
            }
            entity.verdict = None;
        }
        if let At::Local(cpu) = at {
            self.inserted_locally(cpu, task, flags);
        }
    }

    /// `local_dsq_post_enq()`.
    fn inserted_locally(&self, cpu: u32, task: TaskIndex, flags: u64) {
        if self.look().cpus[cpu as usize].in_balance {
            return;
        }
        match self.runs(cpu) {
            Runs::Task(current) if flags & ENQ_PREEMPT != 0 && current != task => {
                unsafe { (*self.raw(current)).scx.slice = 0 }
                self.resched(cpu);
            }
            Runs::Idle => self.resched(cpu),
            _ => {}
        }
    }

    pub(super) fn unlink(&self, task: TaskIndex) {
        let at = self.st().tasks[task.0 as usize].at.take();
        if let Some((at, place)) = at {
            let removed = self.queue(at, |queue| queue.remove(place));
            debug_assert_eq!(removed, Some(task));
        }
    }

    /// `do_enqueue_task()`, after `enqueue_task_scx()`. `sticky`: straight to its CPU's local queue,
    /// since it comes there from another CPU, or runs and is put back.
    pub(super) fn enqueue(&self, task: TaskIndex, flags: u64, sticky: bool) {
        let cpu = self.cpu_of(task);
        unsafe { (*self.raw(task)).scx.flags |= ffi::SCX_TASK_QUEUED }
        if sticky {
            self.insert(At::Local(cpu), task, false, flags);
            return;
        }
        if !self.is_online(cpu) || self.bypasses(cpu) {
            self.enqueue_without(task, flags);
            return;
        }
        if self.look().tasks[task.0 as usize].verdict.is_none() {
            let exiting = self.task_struct(task).flags & ffi::PF_EXITING != 0;
            if exiting && self.half.ops().flags & ffi::OPS_ENQ_EXITING == 0 {
                unsafe { (*self.raw(task)).scx.slice = u64::from(ffi::SCX_SLICE_DFL) }
                self.insert(At::Local(cpu), task, false, flags);
                return;
            }
            let before = self.st().verdict_of.replace(task);
            self.call(|ops| unsafe { ops.enqueue.unwrap()(self.raw(task), flags) });
            self.st().verdict_of = before;
        }
        let Some(verdict) = self.look().tasks[task.0 as usize].verdict else {
            // The BPF half keeps no task to itself.
            self.error(format!(
                "task {} was put nowhere by enqueue",
                self.task_struct(task).pid
            ));
            return;
        };
        // direct_dispatch()
        let at = self.find_queue(verdict.dsq, cpu);
        if matches!(at, At::Local(other) if other != cpu) {
            let mut state = self.st();
            let entity = &mut state.tasks[task.0 as usize];
            entity.deferred = true;
            // It is on its way: what takes that CPU meanwhile comes after it.
            entity.in_queue_since = Some((at, self.now()));
            entity.verdict = Some(super::task::Insertion {
                flags: verdict.flags | flags,
                ..verdict
            });
            state.later.push(Later::Insert(task));
            return;
        }
        self.insert(at, task, verdict.by_vtime, verdict.flags | flags);
    }

    /// The same, where the BPF half is not asked.
    fn enqueue_without(&self, task: TaskIndex, flags: u64) {
        let cpu = self.cpu_of(task);
        self.st().tasks[task.0 as usize].verdict = None;
        unsafe { (*self.raw(task)).scx.slice = u64::from(ffi::SCX_SLICE_DFL) }
        let at = match self.is_online(cpu) {
            true => At::Global,
            false => At::Local(cpu),
        };
        self.insert(at, task, false, flags);
    }

    /// `dequeue_task_scx()`: off its run queue, whether it runs or waits.
    pub(super) fn dequeue(&self, task: TaskIndex) {
        if !self.is_queued(task) {
            return;
        }
        if self.is_running(task) {
            self.update_curr(self.cpu_of(task));
            self.call(|ops| unsafe { ops.stopping.unwrap()(self.raw(task), false) });
        }
        unsafe { (*self.raw(task)).scx.flags &= !ffi::SCX_TASK_QUEUED }
        self.unlink(task);
        let entity = &mut self.st().tasks[task.0 as usize];
        if entity.deferred {
            entity.deferred = false;
            entity.verdict = None;
        }
    }

    /// Calls an operation where the model is; what it is told of time is up to date.
    pub(super) fn call<R>(&self, operation: impl FnOnce(&ffi::sched_ext_ops) -> R) -> R {
        self.enter(self.here());
        operation(self.half.ops())
    }

    /// `task_can_run_on_remote_rq()`; `must`: that it cannot ends the scheduler.
    fn may_move_to(&self, task: TaskIndex, cpu: u32, must: bool) -> bool {
        let why = if self.is_migration_disabled(task) {
            "its migration is disabled"
        } else if !self.allows(task, cpu) {
            "it may not use that"
        } else {
            return true;
        };
        if must {
            let raw = self.task_struct(task);
            self.error(format!(
                "task {} of CPU {} is sent to the local queue of CPU {cpu}: {why}",
                raw.pid, raw.native_cpu
            ));
        }
        false
    }

    /// `move_remote_task_to_local_dsq()`. Up to 6.18 the upper half of the flags is lost, since
    /// `enqueue_task_scx()` takes an int.
    fn migrate(&self, task: TaskIndex, cpu: u32, flags: u64) {
        self.dequeue(task);
        unsafe { (*self.raw(task)).native_cpu = cpu as i32 }
        let lost = self.machine.version < Version(6, 19);
        let flags = if lost { u64::from(flags as u32) } else { flags };
        self.enqueue(task, flags, true);
        self.resched_if_idle(cpu);
    }

    pub(super) fn resched_if_idle(&self, cpu: u32) {
        if self.runs(cpu) == Runs::Idle && !self.look().cpus[cpu as usize].in_balance {
            self.resched(cpu);
        }
    }

    /// To a local queue: `dispatch_to_local_dsq()`, and `move_task_between_dsqs()` (`moved`: from
    /// another queue).
    fn to_local(&self, task: TaskIndex, cpu: u32, flags: u64, moved: bool) -> bool {
        if self.cpu_of(task) != cpu {
            // To an offline CPU nothing goes, which is no fault of the BPF half's.
            if !self.is_online(cpu) || !self.may_move_to(task, cpu, true) {
                self.unlink(task);
                self.insert(At::Global, task, false, 0);
                return false;
            }
            self.migrate(task, cpu, flags);
            return true;
        }
        self.unlink(task);
        // Until 6.19 ("Fix missing post-enqueue handling in move_local_task_to_local_dsq()") nothing
        // but the move happens: neither preemption nor a look by the CPU, should it idle.
        let quiet = moved && self.machine.version < Version(6, 19);
        if quiet {
            let balancing = |on| {
                let of = &mut self.st().cpus[cpu as usize];
                std::mem::replace(&mut of.in_balance, on)
            };
            let before = balancing(true);
            self.insert(At::Local(cpu), task, false, flags);
            balancing(before);
        } else {
            self.insert(At::Local(cpu), task, false, flags);
        }
        true
    }

    /// `consume_dispatch_q()`: the first task that the CPU may take.
    pub(super) fn consume(&self, cpu: u32, at: At) -> bool {
        let mut place: Option<QueueKey> = None;
        while let Some((next, task)) = self.queue(at, |queue| queue.after(place, u64::MAX)) {
            place = Some(next);
            if self.cpu_of(task) == cpu || self.may_move_to(task, cpu, false) {
                return self.to_local(task, cpu, 0, true);
            }
        }
        false
    }

    /// `scx_bpf_dsq_move_to_local()`, from ops.dispatch.
    pub(super) fn move_to_local(&self, dsq: u64) -> bool {
        let cpu = self.here();
        if !self.look().cpus[cpu as usize].in_balance {
            self.error("scx_bpf_dsq_move_to_local() outside of dispatch".into());
            return false;
        }
        let moved = self.consume(cpu, self.find_queue(dsq, cpu));
        self.st().nr_moved += u32::from(moved);
        moved
    }

    /// `scx_dsq_move()`.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn move_between(
        &self,
        from: u64,
        first_seq: u64,
        task: TaskIndex,
        to: u64,
        slice: Option<u64>,
        vtime: Option<u64>,
        flags: u64,
        by_vtime: bool,
    ) -> bool {
        let from = self.find_queue(from, self.here());
        let at = self.look().tasks[task.0 as usize].at;
        if at.is_none_or(|(at, place)| at != from || place.1 > first_seq) {
            return false;
        }
        let raw = unsafe { &mut *self.raw(task) };
        if let Some(vtime) = vtime {
            raw.scx.dsq_vtime = vtime;
        }
        if let Some(slice) = slice {
            raw.scx.slice = slice;
        }
        // Within ops.dispatch a local queue is this CPU's, else that of the task.
        let in_dispatch = self.look().cpus[self.here() as usize].in_balance;
        let cpu = if in_dispatch {
            self.here()
        } else {
            self.cpu_of(task)
        };
        match self.find_queue(to, cpu) {
            At::Local(cpu) => {
                self.to_local(task, cpu, flags, true);
            }
            to => {
                self.unlink(task);
                self.insert(to, task, by_vtime, flags);
            }
        }
        self.st().nr_moved += 1;
        true
    }

    /// `scx_bpf_reenqueue_local()`. From 6.19 on it is put off until the caller is done.
    pub(super) fn reenqueue_local(&self) -> u32 {
        let at = At::Local(self.here());
        if self.machine.version >= Version(6, 19) {
            self.st().later.push(Later::Requeue(at));
            return 0;
        }
        self.requeue(at)
    }

    /// `reenq_local()`: what is in a queue now goes through enqueue anew.
    fn requeue(&self, at: At) -> u32 {
        let tasks: Vec<TaskIndex> = self.queue(at, |queue| queue.iter().collect());
        let mut nr = 0;
        for task in tasks {
            // A task that is about to move with its CPU's stopper stays.
            if self.look().tasks[task.0 as usize]
                .at
                .is_none_or(|(there, _)| there != at)
            {
                continue;
            }
            self.unlink(task);
            self.enqueue(task, ENQ_REENQ, false);
            nr += 1;
        }
        nr
    }

    /// What was put off: `run_deferred()`, `kick_cpus_irq_workfn()`.
    pub(super) fn run_later(&self) {
        while !self.waits.get() && self.look().going_idle.is_none() {
            let later = std::mem::take(&mut self.st().later);
            if later.is_empty() {
                return;
            }
            self.run_deferred(later);
        }
    }

    /// The same, of what the caller has kept.
    pub(super) fn run_deferred(&self, later: Vec<Later>) {
        for what in later {
            match what {
                Later::Insert(task) => self.insert_deferred(task),
                Later::Requeue(at) => {
                    self.requeue(at);
                }
                Later::Kick(kick) => {
                    if let Runs::Task(current) = self.runs(kick.cpu)
                        && kick.flags & u64::from(ffi::SCX_KICK_PREEMPT) != 0
                    {
                        unsafe { (*self.raw(current)).scx.slice = 0 }
                    }
                    // What runs in a class above is left alone.
                    if self.runs(kick.cpu) != Runs::Other {
                        self.resched(kick.cpu);
                    }
                }
            }
        }
    }

    /// `process_ddsp_deferred_locals()`.
    fn insert_deferred(&self, task: TaskIndex) {
        let verdict = {
            let entity = &mut self.st().tasks[task.0 as usize];
            if !std::mem::take(&mut entity.deferred) {
                return;
            }
            entity.verdict.take()
        };
        let Some(verdict) = verdict else { return };
        if let At::Local(cpu) = self.find_queue(verdict.dsq, self.cpu_of(task)) {
            self.to_local(task, cpu, verdict.flags, false);
        }
    }
}
