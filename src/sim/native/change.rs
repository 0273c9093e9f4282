// SPDX-License-Identifier: GPL-2.0-only
//! What changes a task, or takes its CPU: fork and exit, nice, affinity, cgroups, other scheduling
//! classes.
//!
//! A change of a task that runs, made by another CPU, calls ops.stopping(p, false) and ops.running(p)
//! on the *caller's* CPU: `sched_change_begin()` and `sched_change_end()`.

use std::cell::UnsafeCell;

use super::cpu::Runs;
use super::ffi::{self, ENQ_RESTORE};
use super::kernel::NativeKernel;
use super::machine::Version;
use super::task::{Entity, NewTask, TaskIndex};
use crate::topology::CpuMask;

impl NativeKernel {
    /// Forks a task from what runs on CPU `from`, and wakes it up.
    ///
    /// # Panics
    /// If the BPF half refuses it, or it may use no CPU.
    pub fn fork(&self, task: &NewTask, from: u32) -> TaskIndex {
        let id = self.make(task, from);
        self.wake_new(id, from);
        id
    }

    /// `wake_up_new_task()`, from what runs on CPU `from`.
    pub fn wake_new(&self, task: TaskIndex, from: u32) {
        self.enter(from);
        self.update_curr(from);
        let (cpu, _) = self.select(task, u64::from(ffi::SCX_WAKE_FORK));
        self.activate(task, cpu, 0);
        self.run_later();
    }

    /// `scx_fork()` and `scx_post_fork()`: a task that sleeps still.
    pub fn make(&self, task: &NewTask, from: u32) -> TaskIndex {
        let id = self.create(task, from);
        self.enter(from);
        self.init_task(id, true, task.maker);
        let raw = self.raw(id);
        // SAFETY: as in Kernel::new(), here and below.
        self.call(|ops| unsafe { ops.enable.unwrap()(raw) });
        self.call(|ops| unsafe { ops.set_weight.unwrap()(raw, 100) });
        id
    }

    /// The BPF half is told of a task, made by `maker` or by what runs here.
    pub(super) fn init_task(&self, task: TaskIndex, fork: bool, maker: Option<TaskIndex>) {
        let group = self.look().tasks[task.index()].cgroup;
        let cgroup = self.cgroup(group);
        let mut args = ffi::scx_init_task_args { fork, cgroup };
        let raw = self.raw(task);
        let err = self.call(|ops| {
            if let Some(maker) = maker {
                self.let_run(maker);
            }
            unsafe { ops.init_task.unwrap()(raw, &raw mut args) }
        });
        assert_eq!(err, 0, "the BPF half refuses a task");
        self.st().tasks[task.index()].known = true;
    }

    /// A task that sleeps still, and of which no scheduler knows.
    pub(super) fn create(&self, task: &NewTask, from: u32) -> TaskIndex {
        let cpus = task.cpus.unwrap_or(CpuMask::first(self.machine.nr_cpus()));
        let first = cpus.cpus().next().expect("a task may use some CPU");
        {
            let mut state = self.st();
            let pid = state.next_pid;
            state.next_pid += 1;
            let id = TaskIndex(state.tasks.len() as u32);
            let mut raw = ffi::task_struct {
                pid,
                tgid: task.tgid.unwrap_or(pid),
                flags: task.flags,
                static_prio: 120 + task.nice,
                policy: task.policy,
                nr_cpus_allowed: cpus.len() as i32,
                start_time: self.now(),
                native_index: id.0,
                native_cpu: if cpus.contains(from) { from } else { first } as i32,
                native_cpus: ffi::cpumask { bits: cpus.0 },
                ..Default::default()
            };
            raw.scx.slice = u64::from(ffi::SCX_SLICE_DFL);
            for (to, from) in raw.comm.iter_mut().zip(task.comm.bytes().take(15)) {
                *to = from as _;
            }
            let raw = Box::new(UnsafeCell::new(raw));
            // SAFETY: it is boxed: its own mask does not move.
            unsafe { (*raw.get()).cpus_ptr = &raw const (*raw.get()).native_cpus }
            state.alive.push(id);
            state.tasks.push(Entity {
                raw,
                alive: true,
                known: false,
                at: None,
                verdict: None,
                deferred: false,
                rates: task.rates,
                counted: [0; 12],
                only: Box::default(),
                waits_since: None,
                longest_wait: 0,
                first_wait: None,
                moves: 0,
                ran_on: None,
                in_queue_since: None,
                cgroup: task.cgroup,
                spin_word: 0,
            });
            id
        }
    }

    /// What runs on `cpu` ends: `do_exit()`, and the switch to what comes next.
    pub fn exit(&self, cpu: u32) {
        let Runs::Task(task) = self.runs(cpu) else {
            return;
        };
        unsafe { (*self.raw(task)).flags |= ffi::PF_EXITING }
        self.die(cpu);
        self.free(task, cpu);
    }

    /// `sched_ext_free()`: the kernel forgets a task that has ended. Since Linux 6.19 it does so at once
    /// (`finish_task_switch()`), before when the last reference to the task goes (`__put_task_struct()`).
    pub fn free(&self, task: TaskIndex, cpu: u32) {
        self.enter(cpu);
        let raw = self.raw(task);
        // It has ended, or the kernel would keep it.
        unsafe { (*raw).flags |= ffi::PF_EXITING }
        let mut args = ffi::scx_exit_task_args { cancelled: false };
        if self.look().tasks[task.index()].known {
            self.call(|ops| unsafe { ops.disable.unwrap()(raw) });
            self.call(|ops| unsafe { ops.exit_task.unwrap()(raw, &raw mut args) });
        }
        unsafe { (self.half.forget_task)(raw) }
        let mut state = self.st();
        state.tasks[task.0 as usize].alive = false;
        state.alive.retain(|&other| other != task);
        drop(state);
        self.run_later();
    }

    /// `sched_change_begin()` ... `sched_change_end()`, on the caller's CPU.
    pub(super) fn change(&self, task: TaskIndex, from: u32, change: impl FnOnce(&Self)) {
        self.enter(from);
        let cpu = self.cpu_of(task);
        let (queued, runs) = (self.is_queued(task), self.is_running(task));
        if queued {
            self.dequeue(task);
        }
        if runs {
            self.update_curr(cpu);
        }
        change(self);
        if queued {
            if !runs {
                // Where it waits from now on, and for what, is another matter.
                self.st().tasks[task.0 as usize].waits_since = Some(self.now());
            }
            self.enqueue(task, ENQ_RESTORE, runs);
        }
        if runs {
            self.set_next(cpu, task);
        }
    }

    /// `set_user_nice()`, called on CPU `from`.
    pub fn set_nice(&self, task: TaskIndex, nice: i32, from: u32) {
        self.change(task, from, |this| {
            unsafe { (*this.raw(task)).static_prio = 120 + nice }
            this.call(|ops| unsafe { ops.set_weight.unwrap()(this.raw(task), 100) });
        });
        self.run_later();
    }

    /// `sched_setscheduler()` within the policies of sched_ext: normal, batch, idle.
    pub fn set_policy(&self, task: TaskIndex, policy: u32, from: u32) {
        self.change(task, from, |this| {
            unsafe { (*this.raw(task)).policy = policy }
            this.call(|ops| unsafe { ops.set_weight.unwrap()(this.raw(task), 100) });
        });
        self.run_later();
    }

    /// `sched_setaffinity()`, called on CPU `from`. A task that runs where it may no longer is moved
    /// by its CPU's stopper soon: [`NativeKernel::move_away`], which [`NativeKernel::settle`] calls.
    pub fn set_affinity(&self, task: TaskIndex, cpus: &CpuMask, from: u32) {
        self.change(task, from, |this| {
            let raw = this.raw(task);
            unsafe {
                (*raw).native_cpus.bits = cpus.0;
                (*raw).nr_cpus_allowed = cpus.len() as i32;
            }
            let mask = unsafe { (*raw).cpus_ptr };
            this.call(|ops| unsafe { ops.set_cpumask.unwrap()(raw, mask) });
        });
        if !self.allows(task, self.cpu_of(task)) && !self.is_migration_disabled(task) {
            if self.is_running(task) {
                self.st().stops.push(task);
            } else if self.is_queued(task) {
                self.move_queued(task);
            }
        }
        self.run_later();
    }

    /// What runs on `cpu` must not migrate for now: `migrate_disable()`.
    pub fn migrate_disable(&self, cpu: u32) {
        if let Runs::Task(task) = self.runs(cpu) {
            unsafe { (*self.raw(task)).migration_disabled += 1 }
        }
    }

    /// `migrate_disable_switch()`: a task whose migration is disabled has left its CPU to another
    /// one; it may use no other from now on, and the BPF half is told. The kernel takes it off its
    /// queue and puts it back for that.
    pub(super) fn switched_out(&self, task: TaskIndex) {
        let raw = self.raw(task);
        let own = unsafe { (*raw).cpus_ptr == &raw const (*raw).native_cpus };
        if !own || !self.is_migration_disabled(task) || !self.is_queued(task) {
            return;
        }
        let only = CpuMask::from_iter([self.cpu_of(task)]);
        let mask = {
            let entity = &mut self.st().tasks[task.0 as usize];
            *entity.only = ffi::cpumask { bits: only.0 };
            &raw const *entity.only
        };
        self.change(task, self.here(), |this| {
            unsafe { (*raw).cpus_ptr = mask }
            this.call(|ops| unsafe { ops.set_cpumask.unwrap()(raw, mask) });
        });
    }

    /// `migrate_enable()`, of what runs on `cpu`. Its affinity may have changed meanwhile.
    pub fn migrate_enable(&self, cpu: u32) {
        let Runs::Task(task) = self.runs(cpu) else {
            return;
        };
        let raw = self.raw(task);
        if unsafe { (*raw).migration_disabled } != 1 {
            unsafe { (*raw).migration_disabled = (*raw).migration_disabled.saturating_sub(1) }
            return;
        }
        let own = unsafe { &raw const (*raw).native_cpus };
        if unsafe { (*raw).cpus_ptr } != own {
            // The count falls after this: the BPF half is told while it is 1 still.
            self.change(task, cpu, |this| {
                unsafe { (*raw).cpus_ptr = own }
                this.call(|ops| unsafe { ops.set_cpumask.unwrap()(raw, own) });
            });
        }
        unsafe { (*raw).migration_disabled = 0 }
        if !self.allows(task, cpu) {
            self.st().stops.push(task);
        }
        self.run_later();
    }

    /// `move_queued_task()`, on the CPU where the model is.
    pub(super) fn move_queued(&self, task: TaskIndex) {
        let mut cpus = self.allowed(task);
        cpus.intersect(&self.look().online);
        let Some(to) = cpus.cpus().next() else {
            return;
        };
        self.dequeue(task);
        self.activate(task, to, 0);
    }

    /// `migration_cpu_stop()`: the stopper takes the task's CPU, and sends the task elsewhere.
    pub fn move_away(&self, task: TaskIndex) {
        let cpu = self.cpu_of(task);
        let needless = self.allows(task, cpu) || !self.is_queued(task);
        if needless || self.is_migration_disabled(task) {
            return;
        }
        // The stopper comes before real-time tasks, too, and leaves the CPU to them.
        let taken = self.runs(cpu) == Runs::Other;
        self.take_cpu(cpu, ffi::SCX_CPU_PREEMPT_STOP as i32);
        if self.is_queued(task) && !self.allows(task, self.cpu_of(task)) {
            self.enter(cpu);
            self.move_queued(task);
        }
        self.run_later();
        if taken {
            return;
        }
        self.give_back(cpu);
    }

    /// Another class takes a CPU (`SCX_CPU_PREEMPT_RT` is 0, deadline 1, stop 2).
    pub fn take_cpu(&self, cpu: u32, reason: i32) {
        let runs = self.runs(cpu);
        if runs == Runs::Other {
            return;
        }
        self.enter(cpu);
        // prev_balance(): up to 6.18 the class of what ran balances before any class picks.
        if self.machine.version < Version(6, 19) {
            self.balance(cpu);
        }
        match runs {
            Runs::Task(task) => self.put_prev(cpu, task, None),
            _ => self.update_idle(cpu, false),
        }
        self.set_runs(cpu, Runs::Other);
        // switch_class(): from idle the kernel does not say so.
        if matches!(runs, Runs::Task(_)) && !self.look().cpus[cpu as usize].released {
            self.st().cpus[cpu as usize].released = true;
            let task = self.look().cpus[cpu as usize].other_task.get();
            let mut args = ffi::scx_cpu_release_args { reason, task };
            self.call(|ops| unsafe { ops.cpu_release.unwrap()(cpu as i32, &raw mut args) });
        }
        if let Runs::Task(prev) = runs {
            self.switched_out(prev);
        }
        self.run_later();
    }

    /// What took the CPU leaves it.
    pub fn give_back(&self, cpu: u32) {
        if self.runs(cpu) != Runs::Other {
            return;
        }
        self.st().cpus[cpu as usize].need_resched = false;
        self.st().resched.retain(|&other| other != cpu);
        self.enter(cpu);
        self.balance(cpu);
        self.pick(cpu);
        self.run_later();
    }

    /// Makes a cgroup below `parent`, or below the root, with this `cpu.weight`.
    pub fn make_cgroup(&self, parent: Option<usize>, weight: u32) -> usize {
        let (index, group) = {
            let mut state = self.st();
            let above = parent.map(|parent| state.cgroups[parent].get());
            let group = ffi::cgroup {
                level: above.map_or(1, |above| unsafe { (*above).level } + 1),
                id: state.cgroups.len() as u64 + 2,
                parent: above.unwrap_or(std::ptr::null_mut()),
                storage: std::ptr::null_mut(),
            };
            state.cgroups.push(Box::new(UnsafeCell::new(group)));
            state.cgroup_weights.push(weight);
            let index = state.cgroups.len() - 1;
            (index, state.cgroups[index].get())
        };
        let mut args = ffi::scx_cgroup_init_args { weight };
        let err = self.call(|ops| unsafe { ops.cgroup_init.unwrap()(group, &raw mut args) });
        if err != 0 {
            self.error(format!("cgroup_init: {err}"));
        }
        index
    }

    fn cgroup(&self, index: Option<usize>) -> *mut ffi::cgroup {
        index.map_or(std::ptr::null_mut(), |index| {
            self.look().cgroups[index].get()
        })
    }

    /// All cgroups, parents first, with what they weigh.
    pub(super) fn cgroups(&self) -> Vec<(*mut ffi::cgroup, u32)> {
        let state = self.look();
        let groups = state.cgroups.iter().map(|group| group.get());
        groups.zip(state.cgroup_weights.iter().copied()).collect()
    }

    /// Writes a `cpu.weight`.
    pub fn set_cgroup_weight(&self, group: usize, weight: u32, from: u32) {
        self.enter(from);
        self.st().cgroup_weights[group] = weight;
        let group = self.cgroup(Some(group));
        self.call(|ops| unsafe { ops.cgroup_set_weight.unwrap()(group, weight) });
        self.run_later();
    }

    /// `sched_move_task()`, called on CPU `from`.
    pub fn move_to_cgroup(&self, task: TaskIndex, group: Option<usize>, from: u32) {
        let before = self.look().tasks[task.0 as usize].cgroup;
        let (old, new) = (self.cgroup(before), self.cgroup(group));
        self.change(task, from, |this| {
            this.call(|ops| unsafe { ops.cgroup_move.unwrap()(this.raw(task), old, new) });
        });
        self.st().tasks[task.0 as usize].cgroup = group;
        if self.is_running(task) {
            self.resched(self.cpu_of(task));
        }
        self.run_later();
    }
}

impl Drop for NativeKernel {
    fn drop(&mut self) {
        for task in &self.state.get_mut().tasks {
            // SAFETY: the BPF half runs no more; what it stored with a task is freed once.
            unsafe { (self.half.forget_task)(task.raw.get()) }
        }
        for group in &self.state.get_mut().cgroups {
            // SAFETY: as above.
            unsafe { (self.half.forget_cgroup)(group.get()) }
        }
    }
}
