// SPDX-License-Identifier: GPL-2.0-only
//! Run time, ticks, and switching, after `kernel/sched/ext.c` and `core.c`.
//! The names of their functions are in the comments.

use super::cpu::Runs;
use super::ffi::{self, ENQ_HEAD, ENQ_LAST};
use super::kernel::NativeKernel;
use super::task::{At, TaskIndex};

/// How often a CPU asks ops.dispatch in a row: `SCX_DSP_MAX_LOOPS`.
const MAX_LOOPS: u32 = 32;

impl NativeKernel {
    /// `update_curr_scx()`: brings the run time of what a CPU runs up to date.
    pub(super) fn update_curr(&self, cpu: u32) {
        self.count(cpu);
        let Runs::Task(task) = self.runs(cpu) else {
            return;
        };
        let now = self.clock(cpu);
        // SAFETY: as in Kernel::task_struct(), here and below.
        let raw = unsafe { &mut *self.raw(task) };
        let ran = now.saturating_sub(raw.se.exec_start);
        raw.se.exec_start = now;
        raw.se.sum_exec_runtime += ran;
        raw.scx.slice = raw.scx.slice.saturating_sub(ran);
    }

    fn slice(&self, task: TaskIndex) -> u64 {
        unsafe { (*self.raw(task)).scx.slice }
    }

    pub(super) fn resched(&self, cpu: u32) {
        let mut state = self.st();
        if !std::mem::replace(&mut state.cpus[cpu as usize].need_resched, true) {
            state.resched.push(cpu);
        }
    }

    /// `balance_one()`: finds something for a CPU to run. True: what runs goes on.
    pub(super) fn balance(&self, cpu: u32) -> bool {
        let prev = match self.runs(cpu) {
            Runs::Task(task) => Some(task),
            _ => None,
        };
        let bypass = self.bypasses(cpu);
        let goes_on = |this: &Self| {
            let has_slice = |prev| this.is_queued(prev) && this.slice(prev) > 0;
            !bypass && prev.is_some_and(has_slice)
        };
        let has_local = |this: &Self| !this.queued_on(cpu).is_empty();
        {
            let of = &mut self.st().cpus[cpu as usize];
            of.in_balance = true;
            of.released = false;
        }
        self.update_curr(cpu);
        let mut keep = goes_on(self);
        if !keep && !has_local(self) && !self.consume(cpu, At::Global) {
            if let Some(prev) = prev
                && bypass
                && self.is_queued(prev)
            {
                unsafe { (*self.raw(prev)).scx.slice = u64::from(ffi::SCX_SLICE_DFL) }
                keep = true;
            }
            for round in 0..if bypass { 0 } else { MAX_LOOPS + 1 } {
                if round == MAX_LOOPS {
                    self.kick(cpu as i32, 0);
                    break;
                }
                self.st().nr_moved = 0;
                let prev = prev.map_or(std::ptr::null_mut(), |prev| self.raw(prev));
                self.call(|ops| unsafe { ops.dispatch.unwrap()(cpu as i32, prev) });
                keep = goes_on(self);
                if keep || has_local(self) || self.consume(cpu, At::Global) {
                    break;
                }
                if self.look().nr_moved == 0 {
                    break;
                }
            }
        }
        self.st().cpus[cpu as usize].in_balance = false;
        keep
    }

    /// `__schedule()`: a CPU looks for what to run, and switches to it.
    pub fn schedule(&self, cpu: u32) {
        self.st().cpus[cpu as usize].need_resched = false;
        self.st().resched.retain(|&other| other != cpu);
        if self.runs(cpu) == Runs::Other {
            return;
        }
        self.enter(cpu);
        if !self.balance(cpu) {
            self.pick(cpu);
        }
        self.run_later();
    }

    /// `pick_task_scx()` and the switch to what it picks.
    pub(super) fn pick(&self, cpu: u32) {
        let next = self.queued_on(cpu).first().copied();
        let prev = self.runs(cpu);
        if let Some(next) = next
            && self.slice(next) == 0
        {
            unsafe { (*self.raw(next)).scx.slice = u64::from(ffi::SCX_SLICE_DFL) }
        }
        match prev {
            Runs::Task(prev) => self.put_prev(cpu, prev, next.is_none().then_some(ENQ_LAST)),
            Runs::Idle if next.is_some() => self.update_idle(cpu, false),
            // pick_task_idle(): from idle to idle only the kernel's own mask is brought up to date,
            // unless the BPF half is owed it.
            Runs::Idle if self.look().renotify.contains(cpu) => self.update_idle(cpu, true),
            Runs::Idle => self.st().idle.set(cpu, true),
            Runs::Other => {}
        }
        match next {
            Some(next) => self.set_next(cpu, next),
            None if prev != Runs::Idle => {
                self.race(cpu);
                self.set_runs(cpu, Runs::Idle);
                self.update_idle(cpu, true);
                self.end_race(cpu);
            }
            None => {}
        }
        if let Runs::Task(prev) = prev {
            self.switched_out(prev);
        }
    }

    pub(super) fn set_runs(&self, cpu: u32, runs: Runs) {
        self.count(cpu);
        let now = self.now();
        self.trace(|| format!("CPU {cpu} runs {runs:?}"));
        let state = &mut *self.st();
        let of = &mut state.cpus[cpu as usize];
        of.runs = runs;
        of.idle_since = now;
        if let Runs::Task(task) = runs {
            state.started.push((cpu, task));
        } else {
            state.stopped.push(cpu);
        }
    }

    /// `set_next_task_scx()`, on the CPU where the model is: that of the caller, if another CPU
    /// changes what the task is.
    pub(super) fn set_next(&self, cpu: u32, task: TaskIndex) {
        self.unlink(task);
        self.set_runs(cpu, Runs::Task(task));
        self.st().tasks[task.0 as usize].begins(cpu, self.now());
        unsafe { (*self.raw(task)).se.exec_start = self.clock(cpu) }
        if self.is_queued(task) {
            self.call(|ops| unsafe { ops.running.unwrap()(self.raw(task)) });
        }
    }

    /// `put_prev_task_scx()`. `flags`: `ENQ_LAST` if the CPU idles next.
    pub(super) fn put_prev(&self, cpu: u32, task: TaskIndex, flags: Option<u64>) {
        self.update_curr(cpu);
        if !self.is_queued(task) {
            return;
        }
        self.call(|ops| unsafe { ops.stopping.unwrap()(self.raw(task), true) });
        self.st().tasks[task.0 as usize].waits_since = Some(self.now());
        if self.slice(task) > 0 {
            // A class above takes the CPU: it is next when that is done.
            self.insert(At::Local(cpu), task, false, ENQ_HEAD);
        } else {
            self.enqueue(task, flags.unwrap_or(0), false);
        }
    }

    /// `__scx_update_idle()`: the kernel's mask first, then the BPF half (since 6.16).
    pub(super) fn update_idle(&self, cpu: u32, idle: bool) {
        let bypass = {
            let state = &mut *self.st();
            state.idle.set(cpu, idle && state.online.contains(cpu));
            if !state.bypass.contains(cpu) {
                state.renotify.set(cpu, false);
            }
            state.bypass.contains(cpu)
        };
        if bypass {
            return;
        }
        self.call(|ops| unsafe { ops.update_idle.unwrap()(cpu as i32, idle) });
    }

    /// `task_tick_scx()`, and the switch that follows if the slice is used up.
    pub fn tick(&self, cpu: u32) {
        let Runs::Task(task) = self.runs(cpu) else {
            return;
        };
        self.enter(cpu);
        self.update_curr(cpu);
        if self.bypasses(cpu) {
            unsafe { (*self.raw(task)).scx.slice = 0 }
        } else {
            self.call(|ops| unsafe { ops.tick.unwrap()(self.raw(task)) });
        }
        self.run_later();
        if self.slice(task) == 0 {
            self.schedule(cpu);
        }
    }

    /// The next CPU that is to schedule.
    pub fn next_to_schedule(&self) -> Option<u32> {
        self.look().resched.first().copied()
    }

    /// Every CPU that is to schedule does so, in turn, until none is left; stoppers come first.
    pub fn settle(&self) {
        loop {
            let stop = self.st().stops.pop();
            if let Some(task) = stop {
                self.move_away(task);
                continue;
            }
            let Some(cpu) = self.next_to_schedule() else {
                return;
            };
            self.schedule(cpu);
        }
    }

    /// Time passes with ticks, timers and what follows from them: for tests without events of their
    /// own. What runs runs on.
    pub fn run_for(&self, ns: u64) {
        self.st().started.clear();
        self.st().stopped.clear();
        let end = self.now() + ns;
        let period = 1_000_000_000 / u64::from(self.machine.hz);
        self.settle();
        while self.now() < end {
            let tick = (self.now() / period + 1) * period;
            let timer = self.next_timer().unwrap_or(u64::MAX).max(self.now());
            let next = tick.min(timer).min(end);
            self.advance(next - self.now());
            while self.fire_timer() {}
            self.settle();
            if next == tick {
                for cpu in 0..self.machine.nr_cpus() {
                    self.tick(cpu);
                    self.settle();
                }
            }
        }
    }
}
