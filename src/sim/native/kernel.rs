// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's state, and its answers to what the BPF half calls.

use std::cell::{Cell, Ref, RefCell, RefMut, UnsafeCell};
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::marker::PhantomPinned;

use anyhow::{Result, ensure};

use super::calls::CALLS;
use super::cpu::{Cpu, Event, Runs};
use super::ffi::{self, DSQ_GLOBAL, DSQ_LOCAL, DSQ_LOCAL_ON};
use super::half::Half;
use super::machine::Machine;
use super::queue::{Place, Queue};
use super::task::{At, Entity, Mask, TaskId, Verdict};
use crate::bpf::{intf, types};

const MAX_EVENTS: usize = intf::hetero_consts_MAX_EVENTS as usize;

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
    Insert(TaskId),
    Kick(Kick),
    /// All tasks of a queue go through enqueue anew.
    Requeue(At),
}

pub(super) struct State {
    pub(super) tasks: Vec<Entity>,
    pub(super) cpus: Vec<Cpu>,
    pub(super) queues: BTreeMap<u64, Queue>,
    pub(super) global: Queue,
    pub(super) idle: Mask,
    pub(super) later: Vec<Later>,
    /// CPUs that are to schedule.
    pub(super) resched: Vec<u32>,
    /// Tasks that run where they may no longer: their CPUs' stoppers are to move them.
    pub(super) stops: Vec<TaskId>,
    /// Tasks that began to run, and where, since this was last emptied.
    pub(super) started: Vec<(u32, TaskId)>,
    /// CPUs that no longer run any, since this was last emptied.
    pub(super) stopped: Vec<u32>,
    /// Tasks that have not ended.
    pub(super) alive: Vec<TaskId>,
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
    /// The task that select_cpu or enqueue is asked about: the only one that may be inserted.
    pub(super) verdict_of: Option<TaskId>,
    /// Tasks that ops.dispatch has moved to a local queue.
    pub(super) nr_moved: u32,
    pub(super) next_pid: i32,
}

/// A simulated kernel, with its own copy of the BPF half.
///
/// Shared references only: an operation of the BPF half calls back into its kernel, which may call
/// an operation again. The state is borrowed for no longer than nothing else can run.
pub struct Kernel {
    pub(super) half: Half,
    pub(super) machine: Machine,
    pub(super) here: UnsafeCell<ffi::native_here>,
    pub(super) state: RefCell<State>,
    pub(super) now: Cell<u64>,
    /// What is put off stays in `later` for the caller to run: other CPUs may come between.
    pub(super) waits: Cell<bool>,
    /// By how much `bpf_ktime_get_ns()` is ahead of the model's time.
    ktime_offset: Cell<i64>,
    samples_map: *mut c_void,
    /// Prints what happens: `NATIVE_TRACE=1`.
    trace: bool,
    /// The BPF half knows where this is.
    _pinned: PhantomPinned,
}

impl Kernel {
    /// A kernel for this machine, to which the BPF half is attached; all its CPUs are idle. Time
    /// begins an hour after the boot.
    ///
    /// # Errors
    /// If the BPF half cannot be loaded, or refuses the machine.
    pub fn new(machine: &Machine) -> Result<Box<Self>> {
        let nr_cpus = machine.nr_cpus();
        let mut half = Half::load()?;
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
            state: RefCell::new(State {
                tasks: Vec::new(),
                cpus: (0..nr_cpus).map(Cpu::new).collect(),
                queues: BTreeMap::new(),
                global: Queue::default(),
                idle: Mask::NONE,
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
                verdict_of: None,
                nr_moved: 0,
                next_pid: 1000,
            }),
            now: Cell::new(BEGIN_NS),
            waits: Cell::new(false),
            ktime_offset: Cell::new(0),
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
    pub fn half(&self) -> &Half {
        &self.half
    }

    /// The machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    pub(super) fn st(&self) -> RefMut<'_, State> {
        self.state.borrow_mut()
    }

    pub(super) fn look(&self) -> Ref<'_, State> {
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
        let scx_now = self.clock(cpu);
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
            here.ktime = self.ktime();
            here.cpu = cpu as i32;
            here.current = current;
        }
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

    pub(super) fn raw(&self, task: TaskId) -> *mut ffi::task_struct {
        self.look().tasks[task.0 as usize].raw.get()
    }

    /// The kernel's side of a task, as it is at this moment.
    pub fn task_struct(&self, task: TaskId) -> ffi::task_struct {
        // SAFETY: it lives as long as the kernel, and is written on this thread only.
        unsafe { *self.raw(task) }
    }

    /// What the BPF half remembers of a task, as it is at this moment; none once it has ended.
    pub fn task_ctx(&self, task: TaskId) -> Option<ffi::task_ctx> {
        self.with_task_ctx(task, |ctx| *ctx)
    }

    /// The same, without a copy.
    pub(super) fn with_task_ctx<R>(
        &self,
        task: TaskId,
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
    pub fn slot(&self, task: TaskId) -> Option<intf::task_slot> {
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
    pub fn task_of(&self, pid: i32) -> Option<TaskId> {
        let state = self.look();
        let found = state.tasks.iter().position(|task| {
            // SAFETY: as in task_struct().
            task.alive && unsafe { (*task.raw.get()).pid } == pid
        });
        found.map(|index| TaskId(index as u32))
    }

    pub(super) fn is_queued(&self, task: TaskId) -> bool {
        self.task_struct_flags(task) & ffi::SCX_TASK_QUEUED != 0
    }

    fn task_struct_flags(&self, task: TaskId) -> u32 {
        // SAFETY: as in task_struct().
        unsafe { (*self.raw(task)).scx.flags }
    }

    /// Can it run, and does not?
    pub fn waits(&self, task: TaskId) -> bool {
        self.is_queued(task) && !self.is_running(task)
    }

    /// The CPU whose run queue a task is of.
    pub fn cpu_of(&self, task: TaskId) -> u32 {
        // SAFETY: as in task_struct().
        unsafe { (*self.raw(task)).native_cpu as u32 }
    }

    /// May it run there, as far as its affinity goes?
    pub(super) fn allows(&self, task: TaskId, cpu: u32) -> bool {
        // SAFETY: cpus_ptr points to the task's own mask.
        Mask(unsafe { (*(*self.raw(task)).cpus_ptr).bits }).has(cpu)
    }

    pub(super) fn is_migration_disabled(&self, task: TaskId) -> bool {
        // SAFETY: as in task_struct().
        unsafe { (*self.raw(task)).migration_disabled != 0 }
    }

    /// What a CPU runs.
    pub fn runs(&self, cpu: u32) -> Runs {
        self.look().cpus[cpu as usize].runs
    }

    /// Does it run at this moment?
    pub fn is_running(&self, task: TaskId) -> bool {
        self.runs(self.cpu_of(task)) == Runs::Task(task)
    }

    /// CPUs that the kernel takes for idle, and that are not claimed.
    pub fn idle(&self) -> Mask {
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
    pub fn queued(&self, dsq: u64) -> Vec<TaskId> {
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
    pub fn queued_on(&self, cpu: u32) -> Vec<TaskId> {
        self.look().cpus[cpu as usize].local.iter().collect()
    }

    /// Applies actions as the agent does, from `cpu`, and returns them with their results.
    pub fn apply(&self, actions: &[types::action], cpu: u32) -> Vec<types::action> {
        self.enter(cpu);
        let done = self.half.apply(actions);
        self.run_later();
        done
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
    pub fn set_spin_word(&self, task: TaskId, word: u32) {
        self.st().tasks[task.0 as usize].spin_word = word;
    }

    // Counters.

    /// Opens the events of a set on a CPU, as the agent does when sets take turns. Counts begin
    /// anywhere.
    pub fn open_events(&self, cpu: u32, set: usize) {
        let core_type = self.machine.type_of(cpu);
        let nr = self
            .machine
            .set_events
            .get(core_type)
            .and_then(|sets| sets.get(set));
        let nr = usize::from(nr.copied().unwrap_or(0));
        self.count(cpu);
        let of = &mut self.st().cpus[cpu as usize];
        of.open_set = (nr > 0).then_some((set, nr));
        let fresh = Event {
            count_q10: 1 << 50,
            counts: true,
            ..Event::default()
        };
        of.events = [fresh; MAX_EVENTS];
    }

    /// Takes the counters of one event on a CPU away (another user has them), or gives them back.
    pub fn detach_event(&self, cpu: u32, k: usize, detached: bool) {
        self.count(cpu);
        self.st().cpus[cpu as usize].events[k].counts = !detached;
    }

    /// Closes the events of a CPU: they cannot be read any more.
    pub fn close_events(&self, cpu: u32) {
        self.count(cpu);
        self.st().cpus[cpu as usize].open_set = None;
    }

    /// Brings the counters of a CPU up to the model's time.
    pub(super) fn count(&self, cpu: u32) {
        let now = self.now();
        let core_type = self.machine.type_of(cpu);
        let mut state = self.st();
        let State { cpus, tasks, .. } = &mut *state;
        let of = &mut cpus[cpu as usize];
        // What runs in other classes counts, too, and belongs to no task.
        const OTHERS: [u32; MAX_EVENTS] = [1024; MAX_EVENTS];
        match of.runs {
            Runs::Idle => of.count(now, None),
            Runs::Other => of.count(now, Some(&OTHERS)),
            Runs::Task(task) => {
                let task = &mut tasks[task.0 as usize];
                let rates = task.rates[core_type];
                let passed = now - of.counted_at;
                for (counted, rate) in task.counted.iter_mut().zip(rates) {
                    *counted += u64::from(rate) * passed;
                }
                of.count(now, Some(&rates));
            }
        }
    }

    /// The events of a CPU have counted so much more than the rates of what runs there say.
    pub fn add_counts(&self, cpu: u32, counts: &[f64]) {
        self.count(cpu);
        let of = &mut self.st().cpus[cpu as usize];
        for (event, count) in of.events.iter_mut().zip(counts) {
            if event.counts {
                event.count_q10 += (count * 1024.0) as u64;
            }
        }
    }

    /// What a task has counted of an event in truth, wherever it ran.
    pub fn counted(&self, task: TaskId, k: usize) -> u64 {
        if self.is_running(task) {
            self.count(self.cpu_of(task));
        }
        self.look().tasks[task.0 as usize].counted[k] >> 10
    }

    /// An event that counts on one CPU can be read there only: `perf_event_read_local()`.
    pub(super) fn perf_read(&self, index: u64) -> Result<ffi::bpf_perf_event_value, i32> {
        let nr_cpus = u64::from(self.machine.nr_cpus());
        let (cpu, event) = ((index % nr_cpus) as u32, (index / nr_cpus) as usize);
        let (set, k) = (event / MAX_EVENTS, event % MAX_EVENTS);
        self.count(cpu);
        let state = self.look();
        let of = &state.cpus[cpu as usize];
        if of.open_set.is_none_or(|(open, nr)| open != set || k >= nr) {
            return Err(ffi::NOT_EXISTING);
        }
        if cpu != self.here() {
            return Err(ffi::INVALID);
        }
        let Event {
            count_q10,
            enabled,
            running,
            ..
        } = of.events[k];
        Ok(ffi::bpf_perf_event_value {
            counter: count_q10 >> 10,
            enabled,
            running,
        })
    }

    pub(super) fn record(&self, map: *mut c_void, data: &[u8]) {
        if map != self.samples_map {
            self.st().bells += 1;
        } else if data.len() == size_of::<intf::task_sample>() {
            // SAFETY: the BPF half writes samples, of this size, to this ring.
            let sample = unsafe { data.as_ptr().cast::<intf::task_sample>().read_unaligned() };
            self.st().samples.push(sample);
        } else {
            self.error(format!("a sample of {} bytes", data.len()));
        }
    }

    /// Has the ring of the samples no room from now on?
    pub fn set_ring_full(&self, full: bool) {
        // SAFETY: as in enter().
        unsafe { (*self.here.get()).ring_is_full = full }
    }

    pub(super) fn ring_is_full(&self) -> bool {
        // SAFETY: as in enter().
        unsafe { (*self.here.get()).ring_is_full }
    }

    /// The word that the running task's memory has at `address`.
    pub(super) fn read_user(&self, _address: u64) -> Option<u32> {
        match self.runs(self.here()) {
            Runs::Task(task) => Some(self.look().tasks[task.0 as usize].spin_word),
            _ => None,
        }
    }

    // Timers.

    pub(super) fn timer_start(&self, timer: *mut ffi::bpf_timer, ns: u64) {
        let cpu = self.here();
        let at = self.now() + ns;
        let mut state = self.st();
        state.nr_timers += 1;
        let key = (at, state.nr_timers);
        if let Some(before) = state.armed.insert(timer, key) {
            state.timers.remove(&before);
        }
        state.timers.insert(key, (timer, cpu));
    }

    /// When the next timer is due.
    pub fn next_timer(&self) -> Option<u64> {
        self.look().timers.first_key_value().map(|(key, _)| key.0)
    }

    /// Fires the next timer, on the CPU that armed it, if it is due. Says whether it was.
    pub fn fire_timer(&self) -> bool {
        let due = self.next_timer().is_some_and(|at| at <= self.now());
        let Some((_, (timer, cpu))) = due.then(|| self.st().timers.pop_first()).flatten() else {
            return false;
        };
        self.st().armed.remove(&timer);
        self.enter(cpu);
        // SAFETY: the BPF half armed it, and its memory lives as long as the maps.
        unsafe { (self.half.fire)(timer) };
        self.run_later();
        true
    }

    // Idle CPUs.

    pub(super) fn test_and_clear_idle(&self, cpu: i32) -> bool {
        let mut state = self.st();
        let idle = state.idle.has(cpu as u32);
        if idle {
            state.idle.set(cpu as u32, false);
        }
        idle
    }

    /// `pick_idle_cpu_in_node()`: of a core that is idle as a whole, else, unless only that is asked
    /// for, any.
    pub(super) fn pick_idle(&self, cpus: &Mask, flags: u64) -> i32 {
        let whole_cores = flags & u64::from(ffi::SCX_PICK_IDLE_CORE) != 0;
        let idle = self.idle();
        let mut both = *cpus;
        both.0
            .iter_mut()
            .zip(idle.0)
            .for_each(|(word, idle)| *word &= idle);
        let topology = &self.machine.topology;
        let is_whole = |cpu: &u32| {
            // One that came online since has no sibling that is known.
            let Some(of) = topology.cpu(*cpu) else {
                return true;
            };
            of.siblings.iter().all(|&sibling| idle.has(sibling))
        };
        // SAFETY: as in enter().
        let cursor = unsafe { &mut (*self.here.get()).cursor };
        let from = *cursor + 1;
        let mut in_turn = both.cpus_from(from);
        let found = if topology.smt {
            let whole = in_turn.clone().find(is_whole);
            whole.or_else(|| in_turn.next().filter(|_| !whole_cores))
        } else {
            in_turn.next()
        };
        let Some(cpu) = found else {
            return -(ffi::EBUSY as i32);
        };
        *cursor = cpu;
        self.st().idle.set(cpu, false);
        cpu as i32
    }

    // Kicks, performance, errors.

    pub(super) fn kick(&self, cpu: i32, flags: u64) {
        if cpu < 0 || cpu as u32 >= self.machine.nr_cpus() {
            return self.error(format!("kick of CPU {cpu}"));
        }
        let kick = Kick {
            cpu: cpu as u32,
            from: self.here(),
            flags,
        };
        self.trace(|| format!("kicks CPU {cpu}, flags {flags:#x}"));
        let mut state = self.st();
        state.kicks.push(kick);
        state.later.push(Later::Kick(kick));
    }

    pub(super) fn cpuperf_set(&self, cpu: i32, perf: u32) {
        if cpu < 0 || cpu as u32 >= self.machine.nr_cpus() || perf > ffi::SCX_CPUPERF_ONE {
            return self.error(format!("performance {perf} for CPU {cpu}"));
        }
        self.trace(|| format!("CPU {cpu} is asked for {perf}"));
        let mut state = self.st();
        state.cpus[cpu as usize].perf = perf;
        state.perf_requests.push((cpu as u32, perf));
    }

    pub(super) fn error(&self, message: String) {
        self.st().errors.push(message);
    }

    // Queues.

    pub(super) fn create_dsq(&self, dsq: u64) -> i32 {
        let mut state = self.st();
        if state.queues.contains_key(&dsq) {
            return -(ffi::EEXIST as i32);
        }
        state.queues.insert(dsq, Queue::default());
        0
    }

    /// Which queue an id means, for a task of this CPU.
    pub(super) fn find_queue(&self, dsq: u64, cpu: u32) -> At {
        let on = dsq as u32;
        if dsq == DSQ_LOCAL {
            return At::Local(cpu);
        }
        if dsq & DSQ_LOCAL_ON == DSQ_LOCAL_ON {
            if on < self.machine.nr_cpus() {
                return At::Local(on);
            }
            self.error(format!("local queue of CPU {on}"));
        } else if self.look().queues.contains_key(&dsq) {
            return At::User(dsq);
        } else if dsq != DSQ_GLOBAL {
            self.error(format!("non-existent DSQ {dsq:#x}"));
        }
        At::Global
    }

    pub(super) fn queue<R>(&self, at: At, with: impl FnOnce(&mut Queue) -> R) -> R {
        let state = &mut *self.st();
        with(match at {
            At::Local(cpu) => &mut state.cpus[cpu as usize].local,
            At::Global => &mut state.global,
            At::User(dsq) => state.queues.get_mut(&dsq).expect("find_queue() found it"),
        })
    }

    pub(super) fn seq_of(&self, dsq: u64) -> u64 {
        self.queue(self.find_queue(dsq, self.here()), |queue| queue.seq())
    }

    pub(super) fn next_in(
        &self,
        dsq: u64,
        place: Option<Place>,
        seq: u64,
    ) -> Option<(Place, TaskId)> {
        self.queue(self.find_queue(dsq, self.here()), |queue| {
            queue.after(place, seq)
        })
    }

    pub(super) fn nr_queued(&self, dsq: u64) -> i32 {
        self.queue(self.find_queue(dsq, self.here()), |queue| {
            queue.len() as i32
        })
    }

    /// `scx_bpf_dsq_insert()` and `scx_bpf_dsq_insert_vtime()` within select_cpu and enqueue.
    pub(super) fn dsq_insert(
        &self,
        task: TaskId,
        dsq: u64,
        slice: u64,
        vtime: Option<u64>,
        flags: u64,
    ) {
        let mut state = self.st();
        if state.verdict_of != Some(task) {
            state
                .errors
                .push("a task is inserted that was not asked about".into());
            return;
        }
        let entity = &mut state.tasks[task.0 as usize];
        // SAFETY: as in task_struct().
        let raw = unsafe { &mut *entity.raw.get() };
        raw.scx.slice = if slice > 0 {
            slice
        } else {
            raw.scx.slice.max(1)
        };
        if let Some(vtime) = vtime {
            raw.scx.dsq_vtime = vtime;
        }
        let verdict = Verdict {
            dsq,
            flags,
            by_vtime: vtime.is_some(),
        };
        if entity.verdict.replace(verdict).is_some() {
            state
                .errors
                .push(format!("task {} is inserted twice", raw.pid));
        }
    }

    pub(super) fn reenqueue_later(&self, dsq: u64) {
        let at = self.find_queue(dsq, self.here());
        self.st().later.push(Later::Requeue(at));
    }
}
