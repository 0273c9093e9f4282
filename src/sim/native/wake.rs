// SPDX-License-Identifier: GPL-2.0-only
//! Waking up, sleeping, yielding, after `kernel/sched/core.c`.

use super::cpu::Runs;
use super::ffi::{self, DSQ_GLOBAL, ENQ_CPU_SELECTED, ENQ_WAKEUP};
use super::kernel::NativeKernel;
use super::task::TaskIndex;
use crate::topology::CpuMask;

/// A wake-up like most: `SCX_WAKE_TTWU`.
pub const WAKE_TTWU: u64 = ffi::SCX_WAKE_TTWU as u64;

/// A task that sleeps.
const TASK_INTERRUPTIBLE: u32 = 1;
const TASK_DEAD: u32 = 0x80;

impl NativeKernel {
    /// `try_to_wake_up()` from what runs on `from`; `flags`: `SCX_WAKE_TTWU` (8), `SCX_WAKE_SYNC` (16).
    pub fn wake(&self, task: TaskIndex, from: u32, flags: u64) {
        if self.is_queued(task) {
            return;
        }
        self.enter(from);
        self.update_curr(from);
        let (cpu, selected) = self.select(task, flags);
        let selected = if selected { ENQ_CPU_SELECTED } else { 0 };
        unsafe { (*self.raw(task)).__state = 0 }
        if self.look().going_idle == Some(cpu) {
            self.st().held_up.push((task, ENQ_WAKEUP | selected));
            return;
        }
        self.activate(task, cpu, ENQ_WAKEUP | selected);
        self.run_later();
    }

    /// Another CPU wakes a task up when `cpu` has looked for one in vain, and is not idle yet.
    pub(super) fn race(&self, cpu: u32) {
        let Some(chance) = self.look().racer else {
            return;
        };
        let mut sleepers = self.look().alive.clone();
        sleepers.retain(|&task| {
            let from = self.cpu_of(task);
            let dies = self.task_struct(task).flags & ffi::PF_EXITING != 0;
            // One whose CPUs are all offline is parked.
            let parked = !self.look().online.cpus().any(|of| self.allows(task, of));
            from != cpu && self.is_online(from) && !dies && !parked && !self.is_queued(task)
        });
        if sleepers.is_empty() {
            return;
        }
        let task = sleepers[(chance % sleepers.len() as u64) as usize];
        let from = self.cpu_of(task);
        self.st().racer = None;
        self.trace(|| format!("CPU {cpu} is about to idle"));
        self.st().going_idle = Some(cpu);
        self.wake(task, from, WAKE_TTWU);
        self.enter(cpu);
    }

    pub(super) fn end_race(&self, cpu: u32) {
        self.st().going_idle = None;
        let held_up = std::mem::take(&mut self.st().held_up);
        for (task, flags) in held_up {
            self.activate(task, cpu, flags);
        }
    }

    /// `select_task_rq()`: a CPU, and whether ops.select_cpu was asked.
    pub(super) fn select(&self, task: TaskIndex, flags: u64) -> (u32, bool) {
        let raw = self.task_struct(task);
        let mut allowed = self.allowed(task);
        allowed.intersect(&self.look().online);
        let first = allowed.cpus().next().unwrap_or(0);
        if raw.nr_cpus_allowed <= 1 || raw.migration_disabled != 0 {
            return (first, false);
        }
        let prev = raw.native_cpu;
        if self.bypasses(prev as u32) {
            return (self.select_default(&allowed, prev as u32), true);
        }
        self.st().verdict_of = Some(task);
        let cpu = self.call(|ops| unsafe { ops.select_cpu.unwrap()(self.raw(task), prev, flags) });
        self.st().verdict_of = None;
        if cpu < 0 || cpu as u32 >= self.machine.nr_cpus() {
            self.error(format!("select_cpu says CPU {cpu}"));
            return (prev as u32, true);
        }
        let allowed = allowed.contains(cpu as u32);
        (if allowed { cpu as u32 } else { first }, true)
    }

    /// `scx_select_cpu_dfl()`, in short.
    fn select_default(&self, allowed: &CpuMask, prev: u32) -> u32 {
        if allowed.contains(prev) && self.test_and_clear_idle(prev as i32) {
            return prev;
        }
        let idle = self.pick_idle(allowed, 0);
        let first = || allowed.cpus().next().unwrap_or(prev);
        match u32::try_from(idle) {
            Ok(cpu) => cpu,
            Err(_) if allowed.contains(prev) => prev,
            Err(_) => first(),
        }
    }

    /// `activate_task()` and `wakeup_preempt()`.
    pub(super) fn activate(&self, task: TaskIndex, cpu: u32, flags: u64) {
        unsafe { (*self.raw(task)).native_cpu = cpu as i32 }
        self.st().tasks[task.0 as usize].waits_since = Some(self.now());
        self.enqueue(task, flags, false);
        // Its class is above the idle class, wherever it was put.
        self.resched_if_idle(cpu);
    }

    /// What runs on `cpu` goes to sleep.
    pub fn block(&self, cpu: u32) {
        self.leave(cpu, TASK_INTERRUPTIBLE);
    }

    /// What runs on `cpu` comes to the end of `do_exit()`. Nothing frees it as yet.
    pub fn die(&self, cpu: u32) {
        self.leave(cpu, TASK_DEAD);
    }

    fn leave(&self, cpu: u32, state: u32) {
        let Runs::Task(task) = self.runs(cpu) else {
            return;
        };
        self.enter(cpu);
        unsafe { (*self.raw(task)).__state = state }
        self.dequeue(task);
        self.schedule(cpu);
    }

    /// What runs on `cpu` yields: `yield_task_scx()`.
    pub fn yield_now(&self, cpu: u32) {
        let Runs::Task(task) = self.runs(cpu) else {
            return;
        };
        unsafe { (*self.raw(task)).scx.slice = 0 }
        self.schedule(cpu);
    }

    /// Tasks in the kernel's own queue.
    pub fn queued_globally(&self) -> Vec<TaskIndex> {
        self.queued(DSQ_GLOBAL)
    }
}
