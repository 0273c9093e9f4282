// SPDX-License-Identifier: GPL-2.0-only
//! Bypass, detaching and attaching, CPUs that come and go: `scx_bypass()`, `scx_root_disable()` and
//! `scx_root_enable_workfn()` of `kernel/sched/ext.c`, 7.3. Up to 6.18 the last two are called
//! `scx_disable_workfn()` and `scx_enable()`, and call the operations in the same order.
//!
//! While the kernel bypasses the BPF half it calls neither ops.select_cpu, ops.enqueue, ops.dispatch,
//! ops.tick nor ops.update_idle, but ops.running and ops.stopping, and whatever tells of a change. From
//! 6.19 on what waits then does so by CPU, and is evened out; here, as before, in one queue.

use std::ffi::c_void;

use anyhow::{Result, ensure};

use super::calls::CALLS;
use super::cpu::Runs;
use super::ffi;
use super::half::NativeHalf;
use super::kernel::NativeKernel;
use super::machine::{NativeMachine, Version};
use super::queue::NativeQueue;
use super::task::TaskIndex;
use crate::carried::{self, Carried};
use crate::topology::CpuMask;

impl NativeKernel {
    /// Does the kernel call no more than it must, for what is of this CPU?
    pub(super) fn bypasses(&self, cpu: u32) -> bool {
        self.look().bypass.contains(cpu)
    }

    pub(super) fn is_online(&self, cpu: u32) -> bool {
        self.look().online.contains(cpu)
    }

    /// `scx_bypass()`, called on CPU `from`: what is queued, and what runs, is taken off and put back.
    pub fn bypass(&self, on: bool, from: u32) {
        for cpu in 0..self.machine.nr_cpus() {
            {
                let mut state = self.st();
                state.bypass.set(cpu, on);
                state.bypassed = match on {
                    true => (self.now(), u64::MAX),
                    false => (state.bypassed.0, self.now()),
                };
                // "Notify the BPF scheduler of idle CPUs when it leaves bypass".
                let told = !on && self.machine.version >= Version(7, 3);
                state.renotify.set(cpu, told);
            }
            let mut tasks = self.look().alive.clone();
            tasks.retain(|&task| self.is_queued(task) && self.cpu_of(task) == cpu);
            for &task in tasks.iter().rev() {
                if on && self.is_running(task) {
                    unsafe { (*self.raw(task)).scx.slice = 0 }
                }
                self.change(task, from, |_| ());
            }
            if self.is_online(cpu) && self.runs(cpu) != Runs::Other {
                self.resched(cpu);
            }
        }
        self.run_later();
    }

    /// `scx_root_disable()`, of a BPF half that is bypassed, up to ops.exit. Returns the tasks that can
    /// run, which are now the kernel's own scheduler's; no CPU runs one, as far as the model goes.
    pub fn detach(&self, from: u32) -> Vec<TaskIndex> {
        self.enter(from);
        let groups: Vec<_> = self.look().cgroups.iter().map(|of| of.get()).collect();
        for &group in groups.iter().rev() {
            self.call(|ops| unsafe { ops.cgroup_exit.unwrap()(group) });
        }
        let mut runnable = Vec::new();
        let alive = self.look().alive.clone();
        for task in alive {
            let raw = self.raw(task);
            if self.is_queued(task) {
                runnable.push(task);
                let runs = self.is_running(task);
                self.dequeue(task);
                if runs {
                    let cpu = self.cpu_of(task);
                    self.set_runs(cpu, Runs::Idle);
                }
            }
            if !std::mem::take(&mut self.st().tasks[task.index()].known) {
                continue;
            }
            self.call(|ops| unsafe { ops.disable.unwrap()(raw) });
            let mut args = ffi::scx_exit_task_args { cancelled: false };
            self.call(|ops| unsafe { ops.exit_task.unwrap()(raw, &raw mut args) });
            unsafe {
                (*raw).scx.slice = 0;
                (*raw).scx.dsq_vtime = 0;
            }
        }
        let mut info = ffi::scx_exit_info { kind: 65 };
        self.call(|ops| unsafe { ops.exit.unwrap()(&raw mut info) });
        let mut state = self.st();
        state.later.clear();
        state.resched.clear();
        state.stops.clear();
        for cpu in &mut state.cpus {
            cpu.need_resched = false;
            cpu.open_set = None;
        }
        runnable
    }

    /// What the agent keeps of a BPF half that the kernel has ended.
    pub fn carry(&self) -> Carried {
        let (slots, used) = self.half.slots();
        let max_progress = self.half.get("max_progress");
        Carried::of(&self.machine.topology, slots, used, max_progress)
    }

    /// Another BPF half is loaded, for the CPUs that are online, and attached up to the end of the bypass
    /// ([`NativeKernel::bypass`]). `runnable`: tasks that can run, all of the kernel's own scheduler;
    /// the first of each CPU runs there. Returns whether what is known of the tasks was carried over.
    ///
    /// # Errors
    /// If the BPF half cannot be loaded, or refuses the machine.
    pub fn attach(
        &mut self,
        machine: &NativeMachine,
        carried: Option<&Carried>,
        runnable: &[TaskIndex],
        from: u32,
    ) -> Result<bool> {
        let mut half = NativeHalf::load()?;
        machine.describe(&mut half)?;
        self.forget_half(carried.is_none());
        self.half = half;
        self.machine = machine.clone();
        self.samples_map = self.half.global("samples");
        let model: *mut c_void = (&raw mut *self).cast();
        let (nr_cpus, here) = (machine.nr_cpus(), self.here.get());
        self.half.start(nr_cpus, here, &raw const CALLS, model)?;
        let carried = carried.filter(|of| of.fits(&machine.topology));
        if let Some(carried) = carried {
            carried.restore(&mut self.half)?;
        }
        self.beat();
        for cpu in 0..nr_cpus {
            self.open_events(cpu, 0);
        }
        self.enable(runnable, from)?;
        if carried.is_some() {
            carried::free_the_rest(&mut self.half)?;
        }
        Ok(carried.is_some())
    }

    /// The BPF half that was detached is unloaded; `all`: with it goes what the kernel stored for it by
    /// task and by cgroup.
    fn forget_half(&mut self, all: bool) {
        let state = self.state.get_mut();
        for task in state.tasks.iter().filter(|task| all || !task.alive) {
            // SAFETY: the BPF half runs no more.
            unsafe { (self.half.forget_task)(task.raw.get()) }
        }
        for group in state.cgroups.iter().filter(|_| all) {
            // SAFETY: as above.
            unsafe { (self.half.forget_cgroup)(group.get()) }
        }
        state.timers.clear();
        state.armed.clear();
        state.queues.clear();
        state.global = NativeQueue::default();
    }

    /// `scx_root_enable_workfn()`, from ops.init on.
    fn enable(&self, runnable: &[TaskIndex], from: u32) -> Result<()> {
        let all = CpuMask::first(self.machine.nr_cpus());
        {
            // reset_idle_masks(): for now all count as idle, also those that run something.
            let state = &mut *self.st();
            (state.idle, state.bypass, state.renotify) = (state.online, all, CpuMask::default());
            for cpu in &mut state.cpus {
                cpu.perf = ffi::SCX_CPUPERF_ONE;
                // cpu_release is of the other scheduler's time.
                (cpu.parked, cpu.parked_until, cpu.released) = (false, 0, false);
            }
        }
        self.enter(from);
        let err = self.call(|ops| unsafe { ops.init.unwrap()() });
        let errors = self.errors();
        ensure!(err == 0, "refuses the machine: {err}, {errors:?}");
        for (group, weight) in self.cgroups() {
            let mut args = ffi::scx_cgroup_init_args { weight };
            let err = self.call(|ops| unsafe { ops.cgroup_init.unwrap()(group, &raw mut args) });
            ensure!(err == 0, "cgroup_init: {err}");
        }
        // Those that are dead already, and only not freed yet, are left out.
        let mut tasks = self.look().alive.clone();
        let dead = |task| self.task_struct(task).flags & ffi::PF_EXITING != 0;
        tasks.retain(|task| runnable.contains(task) || !dead(*task));
        for &task in &tasks {
            self.init_task(task, false, None);
        }
        for &task in &tasks {
            let raw = self.raw(task);
            unsafe { (*raw).scx.slice = u64::from(ffi::SCX_SLICE_DFL) }
            self.call(|ops| unsafe { ops.enable.unwrap()(raw) });
            self.call(|ops| unsafe { ops.set_weight.unwrap()(raw, 100) });
            let cpus = unsafe { (*raw).cpus_ptr };
            self.call(|ops| unsafe { ops.set_cpumask.unwrap()(raw, cpus) });
            if !runnable.contains(&task) {
                continue;
            }
            let cpu = self.cpu_of(task);
            self.st().tasks[task.index()].waits_since = Some(self.now());
            if self.runs(cpu) == Runs::Idle && self.is_online(cpu) {
                unsafe { (*raw).scx.flags |= ffi::SCX_TASK_QUEUED }
                self.set_next(cpu, task);
            } else {
                self.enqueue(task, ffi::ENQ_RESTORE, false);
            }
        }
        self.run_later();
        Ok(())
    }

    // CPUs that come and go.

    /// `sched_cpu_deactivate()`: the CPU takes no task any more, and those that were there are pushed away.
    /// The kernel is about to end the scheduler, which goes on for a moment.
    pub fn take_offline(&self, cpu: u32) {
        {
            let mut state = self.st();
            state.online.set(cpu, false);
            state.idle.set(cpu, false);
        }
        self.enter(cpu);
        self.take_cpu(cpu, ffi::SCX_CPU_PREEMPT_STOP as i32);
        let alive = self.look().alive.clone();
        for task in alive {
            if self.cpu_of(task) != cpu || !self.is_queued(task) {
                continue;
            }
            // select_fallback_rq()
            let allowed = self.look().online.cpus().any(|cpu| self.allows(task, cpu));
            if !allowed {
                self.set_affinity(task, &CpuMask::first(self.machine.nr_cpus()), cpu);
            }
            if self.cpu_of(task) == cpu && self.is_queued(task) {
                self.enter(cpu);
                self.move_queued(task);
            }
        }
        self.run_later();
    }

    /// A CPU that was offline is there again.
    pub fn take_online(&self, cpu: u32) {
        self.st().online.set(cpu, true);
        self.give_back(cpu);
    }
}
