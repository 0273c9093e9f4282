// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's state, and its answers to what the BPF half calls.

use std::cell::{Cell, Ref, RefCell, RefMut, UnsafeCell};
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::marker::PhantomPinned;

use anyhow::{Result, ensure};

use super::calls::CALLS;
use super::cpu::{NativeCpu, Runs};
use super::ffi::{self, DSQ_GLOBAL};
use super::half::NativeHalf;
use super::machine::NativeMachine;
use super::queue::NativeQueue;
use super::task::{At, Entity, TaskIndex};
use crate::agent::{Allotment, Author};
use crate::bpf::{intf, types};
use crate::policy::{Action, Seen};
use crate::scheduler::encode::encode;
use crate::table;
use crate::topology::CpuMask;
use hetero_core::goals::SessionPlace;

/// The model's time when it begins, ns: an hour after the boot.
pub const BEGIN_NS: u64 = 3_600_000_000_000;

/// A call of `scx_bpf_kick_cpu()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kick {
    /// The CPU that is kicked.
    pub cpu: u32,
    /// The one that kicks.
    pub from: u32,
    /// `SCX_KICK_PREEMPT` (2) and the like.
    pub flags: u64,
}

/// What is put off until the run queue's lock is free, in the order in which it was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Later {
    /// The verdict of a task that names another CPU's queue.
    Insert(TaskIndex),
    Kick(Kick),
    /// All tasks of a queue go through enqueue anew.
    Requeue(At),
}

pub(super) struct KernelState {
    pub(super) tasks: Vec<Entity>,
    pub(super) cpus: Vec<NativeCpu>,
    pub(super) queues: BTreeMap<u64, NativeQueue>,
    pub(super) global: NativeQueue,
    pub(super) idle: CpuMask,
    /// CPUs that take tasks.
    pub(super) online: CpuMask,
    /// CPUs for whose tasks the BPF half is not asked: `scx_bypass()`.
    pub(super) bypass: CpuMask,
    /// When that began, and when it ended.
    pub(super) bypassed: (u64, u64),
    /// A CPU between its last look at the queues and being idle, which has its run queue's lock.
    pub(super) going_idle: Option<u32>,
    /// Which of the tasks that sleep is woken up when a CPU is there next: any number.
    pub(super) racer: Option<u64>,
    /// Tasks whose waker waits for that lock, with the flags.
    pub(super) held_up: Vec<(TaskIndex, u64)>,
    /// CPUs that are to tell that they idle, though they did before.
    pub(super) renotify: CpuMask,
    pub(super) later: Vec<Later>,
    /// CPUs that are to schedule.
    pub(super) resched: Vec<u32>,
    /// Tasks that run where they may no longer: their CPUs' stoppers are to move them.
    pub(super) stops: Vec<TaskIndex>,
    /// Tasks that began to run, and where, since this was last emptied.
    pub(super) started: Vec<(u32, TaskIndex)>,
    /// CPUs that no longer run any, since this was last emptied.
    pub(super) stopped: Vec<u32>,
    /// Tasks that have not ended.
    pub(super) alive: Vec<TaskIndex>,
    /// Armed timers: when, in which order, and on which CPU.
    pub(super) timers: BTreeMap<(u64, u64), (*mut ffi::bpf_timer, u32)>,
    /// Where in `timers` each is.
    pub(super) armed: HashMap<*mut ffi::bpf_timer, (u64, u64)>,
    pub(super) nr_timers: u64,
    pub(super) kicks: Vec<Kick>,
    pub(super) perf_requests: Vec<(u32, u32)>,
    pub(super) errors: Vec<String>,
    pub(super) samples: Vec<intf::task_sample>,
    pub(super) bells: u64,
    #[expect(clippy::vec_box, reason = "the BPF half keeps their addresses")]
    pub(super) cgroups: Vec<Box<UnsafeCell<ffi::cgroup>>>,
    /// `cpu.weight` of each.
    pub(super) cgroup_weights: Vec<u32>,
    /// The task that select_cpu or enqueue is asked about: the only one that may be inserted.
    pub(super) verdict_of: Option<TaskIndex>,
    /// Tasks that ops.dispatch has moved to a local queue.
    pub(super) nr_moved: u32,
    pub(super) next_pid: i32,
}

/// A simulated kernel, with its own copy of the BPF half.
///
/// Shared references only: an operation of the BPF half calls back into its kernel, which may call
/// an operation again. The state is borrowed for no longer than nothing else can run.
pub struct NativeKernel {
    pub(super) half: NativeHalf,
    pub(super) machine: NativeMachine,
    pub(super) here: UnsafeCell<ffi::native_here>,
    pub(super) state: RefCell<KernelState>,
    pub(super) now: Cell<u64>,
    /// What is put off stays in `later` for the caller to run: other CPUs may come between.
    pub(super) waits: Cell<bool>,
    /// By how much `bpf_ktime_get_ns()` is ahead of the model's time.
    pub(super) ktime_offset: Cell<i64>,
    /// Where time passes while the kernel schedules: what the BPF half saw last of the model's time, and any number.
    pub(super) lapses: Cell<Option<(u64, u64)>>,
    pub(super) samples_map: *mut c_void,
    /// Prints what happens: `NATIVE_TRACE=1`.
    trace: bool,
    /// The BPF half knows where this is.
    _pinned: PhantomPinned,
}

impl NativeKernel {
    /// A kernel for this machine, to which the BPF half is attached; all its CPUs are idle. Time
    /// begins an hour after the boot.
    ///
    /// # Errors
    /// If the BPF half cannot be loaded, or refuses the machine.
    pub fn new(machine: &NativeMachine) -> Result<Box<Self>> {
        let nr_cpus = machine.nr_cpus();
        let mut half = NativeHalf::load()?;
        machine.describe(&mut half)?;
        let samples_map = half.global("samples");
        let mut kernel = Box::new(Self {
            half,
            machine: machine.clone(),
            here: UnsafeCell::new(ffi::native_here {
                has: machine.ksyms(),
                cursor: nr_cpus.saturating_sub(1),
                ..Default::default()
            }),
            state: RefCell::new(KernelState {
                tasks: Vec::new(),
                cpus: (0..nr_cpus).map(NativeCpu::new).collect(),
                queues: BTreeMap::new(),
                global: NativeQueue::default(),
                idle: CpuMask::default(),
                online: CpuMask::first(nr_cpus),
                bypass: CpuMask::default(),
                bypassed: (0, 0),
                going_idle: None,
                racer: None,
                held_up: Vec::new(),
                renotify: CpuMask::default(),
                later: Vec::new(),
                resched: Vec::new(),
                stops: Vec::new(),
                started: Vec::new(),
                stopped: Vec::new(),
                alive: Vec::new(),
                timers: BTreeMap::new(),
                armed: HashMap::new(),
                nr_timers: 0,
                kicks: Vec::new(),
                perf_requests: Vec::new(),
                errors: Vec::new(),
                samples: Vec::new(),
                bells: 0,
                cgroups: Vec::new(),
                cgroup_weights: Vec::new(),
                verdict_of: None,
                nr_moved: 0,
                next_pid: 1000,
            }),
            now: Cell::new(BEGIN_NS),
            waits: Cell::new(false),
            ktime_offset: Cell::new(0),
            lapses: Cell::new(None),
            samples_map,
            trace: std::env::var_os("NATIVE_TRACE").is_some(),
            _pinned: PhantomPinned,
        });
        let model: *mut c_void = (&raw const *kernel).cast_mut().cast();
        let here = kernel.here.get();
        kernel.half.start(nr_cpus, here, &raw const CALLS, model)?;
        kernel.beat();
        kernel.enter(0);
        let init = kernel.half.ops().init.expect("the BPF half has init");
        // SAFETY: the operation is called as the kernel does, here and wherever one is called.
        let err = unsafe { init() };
        ensure!(
            err == 0,
            "the BPF half refuses the machine: {err}, {:?}",
            kernel.errors()
        );
        for cpu in 0..nr_cpus {
            kernel.open_events(cpu, 0);
            kernel.update_idle(cpu, true);
        }
        Ok(kernel)
    }

    /// The BPF half's memory.
    pub fn half(&self) -> &NativeHalf {
        &self.half
    }

    /// The machine.
    pub fn machine(&self) -> &NativeMachine {
        &self.machine
    }

    pub(super) fn st(&self) -> RefMut<'_, KernelState> {
        self.state.borrow_mut()
    }

    pub(super) fn look(&self) -> Ref<'_, KernelState> {
        self.state.borrow()
    }

    #[expect(clippy::print_stderr, reason = "asked for, in a test")]
    pub(super) fn trace(&self, what: impl FnOnce() -> String) {
        if self.trace {
            let us = (self.now() - BEGIN_NS) as f64 / 1e3;
            eprintln!("{us:12.3} us, CPU {:3}: {}", self.here(), what());
        }
    }

    // Where the BPF half is, and when.

    /// The model's time, ns.
    pub fn now(&self) -> u64 {
        self.now.get()
    }

    /// Time passes on all CPUs, and nothing else happens: no tick, no timer.
    pub fn advance(&self, ns: u64) {
        self.now.set(self.now.get() + ns);
    }

    /// Lets `scx_bpf_now()` of a CPU be ahead of the model's time by so much, or behind.
    pub fn skew_cpu(&self, cpu: u32, ns: i64) {
        self.st().cpus[cpu as usize].skew = ns;
    }

    /// Lets `bpf_ktime_get_ns()` be ahead of the model's time by so much, or behind.
    pub fn skew_ktime(&self, ns: i64) {
        self.ktime_offset.set(ns);
    }

    /// What `bpf_ktime_get_ns()` says.
    pub fn ktime(&self) -> u64 {
        self.now().wrapping_add_signed(self.ktime_offset.get())
    }

    /// The clock of a CPU's run queue.
    pub(super) fn clock(&self, cpu: u32) -> u64 {
        self.now()
            .wrapping_add_signed(self.look().cpus[cpu as usize].skew)
    }

    /// What the BPF half calls from now on it calls on this CPU.
    pub(super) fn enter(&self, cpu: u32) {
        let lapsed = self.lapse();
        let scx_now = self.clock(cpu) + lapsed;
        let current = {
            let state = self.look();
            let of = &state.cpus[cpu as usize];
            match of.runs {
                Runs::Idle => of.idle_task.get(),
                Runs::Other => of.other_task.get(),
                Runs::Task(task) => state.tasks[task.0 as usize].raw.get(),
            }
        };
        // SAFETY: only this thread has the address, and no reference to it is alive.
        unsafe {
            let here = &mut *self.here.get();
            here.scx_now = scx_now;
            here.ktime = self.ktime() + lapsed;
            here.cpu = cpu as i32;
            here.current = current;
        }
    }

    /// By how much the clocks that the BPF half reads are ahead of the model's time: a moment has passed since it was
    /// called last, though nothing else has happened.
    fn lapse(&self) -> u64 {
        let Some((seen, any)) = self.lapses.get() else {
            return 0;
        };
        let any = any.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Seldom more than what a few hundred instructions take.
        let most = if any >> 60 == 0 { 5000 } else { 300 };
        let seen = seen.max(self.now()) + (any >> 32) % most;
        self.lapses.set(Some((seen, any)));
        seen - self.now()
    }

    /// The BPF half takes a task for the one that runs where it was entered.
    pub(super) fn let_run(&self, task: TaskIndex) {
        let raw = self.raw(task);
        // SAFETY: as in enter().
        unsafe { (*self.here.get()).current = raw };
    }

    pub(super) fn here(&self) -> u32 {
        // SAFETY: as in enter().
        unsafe { (*self.here.get()).cpu as u32 }
    }

    /// The agent says that it is alive.
    pub fn beat(&self) {
        self.half.set("agent_seen", self.ktime());
    }

    // Tasks.

    pub(super) fn raw(&self, task: TaskIndex) -> *mut ffi::task_struct {
        self.look().tasks[task.0 as usize].raw.get()
    }

    /// The kernel's side of a task, as it is at this moment.
    pub fn task_struct(&self, task: TaskIndex) -> ffi::task_struct {
        // SAFETY: it lives as long as the kernel, and is written on this thread only.
        unsafe { *self.raw(task) }
    }

    /// Says that a task ran for so much longer than it did, as Debian's 7.1 and 7.2 do where its CPU slept before.
    #[cfg(test)]
    pub(super) fn overcharge(&self, task: TaskIndex, ns: u64) {
        // SAFETY: as in task_struct().
        unsafe { (*self.raw(task)).se.sum_exec_runtime += ns }
    }

    /// What the BPF half remembers of a task, as it is at this moment; none once it has ended.
    pub fn task_ctx(&self, task: TaskIndex) -> Option<ffi::task_ctx> {
        self.with_task_ctx(task, |ctx| *ctx)
    }

    /// The same, without a copy.
    pub(super) fn with_task_ctx<R>(
        &self,
        task: TaskIndex,
        look: impl FnOnce(&ffi::task_ctx) -> R,
    ) -> Option<R> {
        // SAFETY: the storage is one of task_ctxs, the only map of its kind; while `look` has the
        // reference, no operation runs.
        unsafe {
            (*self.raw(task))
                .native_storage
                .cast::<ffi::task_ctx>()
                .as_ref()
        }
        .map(look)
    }

    /// A task's slot in the table, if it has one.
    pub fn slot(&self, task: TaskIndex) -> Option<intf::task_slot> {
        let slot = self.task_ctx(task)?.slot;
        (slot < intf::hetero_consts_MAX_SLOTS).then(|| {
            let slots = self.half.global::<intf::task_slot>("slots");
            // SAFETY: within the array.
            unsafe { *slots.add(slot as usize) }
        })
    }

    /// What the BPF half remembers of a CPU.
    pub fn cpu_ctx(&self, cpu: u32) -> ffi::cpu_ctx {
        let contexts = self.half.global::<ffi::cpu_ctx>("cpu_ctxs");
        assert!(cpu < intf::hetero_consts_MAX_CPUS);
        // SAFETY: within the array.
        unsafe { *contexts.add(cpu as usize) }
    }

    /// What the BPF half remembers of a domain.
    pub fn domain_ctx(&self, domain: u32) -> ffi::domain_ctx {
        let contexts = self.half.global::<ffi::domain_ctx>("domain_ctxs");
        assert!(domain < intf::hetero_consts_MAX_DOMAINS);
        // SAFETY: within the array.
        unsafe { *contexts.add(domain as usize) }
    }

    /// A statistic, over all CPUs.
    pub fn stat(&self, id: intf::stat_id) -> u64 {
        (0..self.machine.nr_cpus())
            .map(|cpu| self.cpu_ctx(cpu).stats[id as usize])
            .sum()
    }

    /// The task with this id.
    pub fn task_of(&self, pid: i32) -> Option<TaskIndex> {
        let state = self.look();
        let found = state.tasks.iter().position(|task| {
            // SAFETY: as in task_struct().
            task.alive && unsafe { (*task.raw.get()).pid } == pid
        });
        found.map(|index| TaskIndex(index as u32))
    }

    pub(super) fn is_queued(&self, task: TaskIndex) -> bool {
        self.task_struct_flags(task) & ffi::SCX_TASK_QUEUED != 0
    }

    fn task_struct_flags(&self, task: TaskIndex) -> u32 {
        // SAFETY: as in task_struct().
        unsafe { (*self.raw(task)).scx.flags }
    }

    /// Can it run, and does not?
    pub fn waits(&self, task: TaskIndex) -> bool {
        self.is_queued(task) && !self.is_running(task)
    }

    /// The CPU whose run queue a task is of.
    pub fn cpu_of(&self, task: TaskIndex) -> u32 {
        // SAFETY: as in task_struct().
        unsafe { (*self.raw(task)).native_cpu as u32 }
    }

    /// The CPUs where it may run, as far as its affinity goes.
    pub fn allowed(&self, task: TaskIndex) -> CpuMask {
        // SAFETY: cpus_ptr points to the task's own mask.
        CpuMask(unsafe { (*(*self.raw(task)).cpus_ptr).bits })
    }

    /// May it run there, as far as its affinity goes?
    pub(super) fn allows(&self, task: TaskIndex, cpu: u32) -> bool {
        self.allowed(task).contains(cpu)
    }

    pub(super) fn is_migration_disabled(&self, task: TaskIndex) -> bool {
        // SAFETY: as in task_struct().
        unsafe { (*self.raw(task)).migration_disabled != 0 }
    }

    /// What a CPU runs.
    pub fn runs(&self, cpu: u32) -> Runs {
        self.look().cpus[cpu as usize].runs
    }

    /// Does it run at this moment?
    pub fn is_running(&self, task: TaskIndex) -> bool {
        self.runs(self.cpu_of(task)) == Runs::Task(task)
    }

    /// CPUs that the kernel takes for idle, and that are not claimed.
    pub fn idle(&self) -> CpuMask {
        self.look().idle
    }

    /// What ended the scheduler, or would have.
    pub fn errors(&self) -> Vec<String> {
        self.look().errors.clone()
    }

    /// Kicks since the last call of this.
    pub fn take_kicks(&self) -> Vec<Kick> {
        std::mem::take(&mut self.st().kicks)
    }

    /// Calls of `scx_bpf_cpuperf_set()` since the last call of this: CPU, performance.
    pub fn take_perf_requests(&self) -> Vec<(u32, u32)> {
        std::mem::take(&mut self.st().perf_requests)
    }

    /// Samples since the last call of this.
    pub fn take_samples(&self) -> Vec<intf::task_sample> {
        std::mem::take(&mut self.st().samples)
    }

    /// How often the BPF half rang for the agent.
    pub fn bells(&self) -> u64 {
        self.look().bells
    }

    /// Tasks in the queue with this id (`SCX_DSQ_GLOBAL` and those of `src/bpf/`), first one first.
    pub fn queued(&self, dsq: u64) -> Vec<TaskIndex> {
        let state = self.look();
        match dsq {
            DSQ_GLOBAL => state.global.iter().collect(),
            _ => state
                .queues
                .get(&dsq)
                .map_or(Vec::new(), |queue| queue.iter().collect()),
        }
    }

    /// Tasks in a CPU's local queue.
    pub fn queued_on(&self, cpu: u32) -> Vec<TaskIndex> {
        self.look().cpus[cpu as usize].local.iter().collect()
    }

    /// A task as the agent names it, if it has a slot.
    pub fn seen(&self, task: TaskIndex) -> Option<table::TaskId> {
        Some(table::TaskId {
            slot: self.task_ctx(task)?.slot,
            generation: self.slot(task)?.generation,
        })
    }

    /// Gives a task that has a slot a hint, as a policy or a rule of the user's does, or takes it back. Whether it was
    /// applied.
    pub(crate) fn hint(
        &self,
        task: TaskIndex,
        core_type: impl Into<Option<u8>>,
        by: Author,
    ) -> bool {
        let Some(id) = self.seen(task) else {
            return false;
        };
        let seen = Seen {
            task: id,
            on: usize::MAX,
        };
        let action = encode(&Action::Hint(seen, core_type.into().map(usize::from)), by);
        self.apply(&[action], 0)[0].result == intf::action_result_ACTION_APPLIED
    }

    /// Has two tasks that have slots trade core types, as a policy does. Whether it was applied.
    #[cfg(test)]
    pub(crate) fn swap(&self, [one, two]: [TaskIndex; 2]) -> bool {
        let (Some(first), Some(second)) = (self.seen(one), self.seen(two)) else {
            return false;
        };
        let [on, to] = [one, two].map(|task| self.machine().type_of(self.cpu_of(task)));
        let pair = [
            (Seen { task: first, on }, to),
            (
                Seen {
                    task: second,
                    on: to,
                },
                on,
            ),
        ];
        let action = encode(&Action::Swap(pair), Author::Policy);
        self.apply(&[action], 0)[0].result == intf::action_result_ACTION_APPLIED
    }

    /// Applies actions as the agent does, from `cpu`, and returns them with their results.
    pub fn apply(&self, actions: &[types::action], cpu: u32) -> Vec<types::action> {
        self.enter(cpu);
        let done = self.half.apply(actions);
        self.run_later();
        done
    }

    /// As the agent allots CPU time to a session.
    pub fn allot(&self, session: SessionPlace, allotment: Allotment) {
        self.trace(|| format!("{session:?}: {allotment:?}"));
        self.half.allot(session, allotment);
    }

    /// A thread belongs to a session from now on. The error is the kernel's.
    pub fn join_session(&self, tid: u32, tgid: u32, session: SessionPlace) -> i32 {
        self.half.join_session(intf::session_request {
            tid,
            tgid,
            session: session.raw(),
        })
    }

    /// A thread registers its word for spin notifications at `address`.
    pub fn register_spin(&self, tid: i32, tgid: i32, address: u64) -> i32 {
        let request = intf::spin_request {
            tid: tid as u32,
            tgid: tgid as u32,
            address,
        };
        self.half.register_spin(request)
    }

    /// What a task's word says when it is looked at.
    pub fn set_spin_word(&self, task: TaskIndex, word: u32) {
        self.st().tasks[task.0 as usize].spin_word = word;
    }
}
