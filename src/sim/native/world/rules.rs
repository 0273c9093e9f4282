// SPDX-License-Identifier: GPL-2.0-only
//! Rules of single steps: what a tick, a start, an end or the agent's word must have brought about.
//! What holds at all times is in `check.rs`.

use std::collections::HashMap;

use super::super::cpu::Runs;
use super::super::ffi::{self, task_ctx};
use super::super::kernel::NativeKernel;
use super::super::task::TaskIndex;
use super::MS;
use crate::bpf::{intf, types};

/// Of the BPF half, see heartbeat.bpf.h, bell.bpf.h, state.bpf.h and cpuperf.bpf.h.
const STALL_NS: u64 = 1000 * MS;
const COMPUTES_AFTER_NS: u64 = 50 * MS;
const LATENCY_BURST_NS: u64 = 4 * MS;
const PERF_ONE: u32 = 1024;

/// A CPU that has been busy for so long is asked for all it can; one that has slept for so long, for
/// nothing.
const BUSY_NS: u64 = 60 * MS;
const ASLEEP_NS: u64 = 400 * MS;

/// A task that has run for less than this in so long a time, waiting apart, is not counted.
const FRUGAL_NS: u64 = 99 * MS / 10;
const FRUGAL_WINDOW_NS: u64 = 1600 * MS;

/// What was seen so far.
pub(super) struct Watch {
    busy_since: Vec<Option<u64>>,
    started_at: Vec<u64>,
    /// CPUs that went idle while the kernel did not say so, up to 7.2 not even later.
    missed: Vec<bool>,
    /// A task's run time, and that with what it slept, when it last did much.
    frugal: HashMap<TaskIndex, (u64, u64)>,
    /// A task that has just ended with something in its account.
    flushed: Option<i32>,
    wrong: Option<String>,
}

fn is_brief(ctx: &task_ctx) -> bool {
    let so_far = ctx.work_ns.wrapping_sub(ctx.woke_at_work_ns);
    ctx.burst_ns > 0 && ctx.burst_ns < LATENCY_BURST_NS && so_far < LATENCY_BURST_NS
}

impl Watch {
    pub(super) fn new(kernel: &NativeKernel) -> Self {
        let nr = kernel.machine.nr_cpus() as usize;
        Self {
            busy_since: vec![None; nr],
            started_at: vec![0; nr],
            missed: vec![false; nr],
            frugal: HashMap::new(),
            flushed: None,
            wrong: None,
        }
    }

    fn wrong(&mut self, what: impl FnOnce() -> String) {
        self.wrong.get_or_insert_with(what);
    }

    /// The first rule that was broken.
    pub(super) fn verdict(&mut self) -> Result<(), String> {
        self.wrong.take().map_or(Ok(()), Err)
    }

    /// A task began to run.
    pub(super) fn started(&mut self, kernel: &NativeKernel, cpu: u32, task: TaskIndex) {
        let now = kernel.now();
        self.started_at[cpu as usize] = now;
        self.missed[cpu as usize] = false;
        self.busy_since[cpu as usize].get_or_insert(now);
        self.check_domain(kernel, cpu, task);
        if kernel.machine.sample_ns == 0 || !kernel.is_running(task) {
            return;
        }
        let Some((ran, slept, counting)) =
            kernel.with_task_ctx(task, |ctx| (ctx.run_ns, ctx.slept_ns, ctx.counting != 0))
        else {
            return;
        };
        let passed = ran + slept;
        let (ran_then, passed_then) = *self.frugal.entry(task).or_insert((ran, passed));
        if ran - ran_then >= FRUGAL_NS {
            self.frugal.insert(task, (ran, passed));
        } else if passed - passed_then >= FRUGAL_WINDOW_NS && counting {
            self.wrong(|| {
                let ms = (passed - passed_then) / MS;
                format!("{task:?} is counted, and hardly ran for {ms} ms")
            });
        }
    }

    /// A task weighs where it runs.
    fn check_domain(&mut self, kernel: &NativeKernel, cpu: u32, task: TaskIndex) {
        let Some(of) = kernel.machine.topology.cpu(cpu) else {
            return;
        };
        let counted = kernel.with_task_ctx(task, |ctx| ctx.domain as usize);
        if kernel.is_running(task) && counted.is_some_and(|domain| domain != of.domain) {
            self.wrong(|| {
                let domain = of.domain;
                format!("{task:?} runs in domain {domain}, and counts in {counted:?}")
            });
        }
    }

    /// A task was woken up: it has no claim to the time that it slept.
    pub(super) fn woke(&mut self, kernel: &NativeKernel, task: TaskIndex) {
        let offset: u64 = kernel.half.get("clock_offset");
        let slice: u64 = kernel.half.get("slice_ns");
        // Each CPU's clock is its own.
        let clock = kernel.now().wrapping_add(offset);
        // Kernel threads of one CPU, and the agent, are put on their CPU before anything is counted.
        let behind = kernel.with_task_ctx(task, |ctx| {
            let behind = clock.wrapping_sub(ctx.vtime) as i64;
            if ctx.competes != 0 { behind } else { 0 }
        });
        let most = (slice + MS / 10) as i64;
        if kernel.is_queued(task) && behind.is_some_and(|behind| behind > most) {
            self.wrong(|| format!("{task:?} woke up {behind:?} ns behind the clock"));
        }
    }

    /// The BPF half was attached anew, or has missed what CPUs did.
    pub(super) fn begin_anew(&mut self, kernel: &NativeKernel) {
        let (now, state) = (kernel.now(), kernel.look());
        for (cpu, of) in (0..).zip(&state.cpus) {
            let idle = of.runs == Runs::Idle;
            self.busy_since[cpu] = (of.runs != Runs::Idle).then_some(now);
            self.started_at[cpu] = now;
            self.missed[cpu] = idle && of.perf > 0;
        }
        self.frugal.clear();
        self.flushed = None;
    }

    /// CPUs that no longer run tasks.
    pub(super) fn stopped(&mut self, cpu: u32) {
        self.busy_since[cpu as usize] = None;
    }

    /// The tick of a CPU came by, which ran `task` until then.
    pub(super) fn ticked(&mut self, kernel: &NativeKernel, cpu: u32, task: TaskIndex) {
        self.check_heartbeat(kernel);
        let since = self.busy_since[cpu as usize];
        let busy = since.is_some_and(|since| kernel.now() - since > BUSY_NS);
        let perf = kernel.look().cpus[cpu as usize].perf;
        if busy && kernel.machine.can_set_perf && perf != PERF_ONE {
            self.wrong(|| format!("CPU {cpu} is busy, and is asked for {perf} of {PERF_ONE}"));
        }
        // What it was switched to will be looked at by the next one.
        if kernel.runs(cpu) == Runs::Task(task) && self.started_at[cpu as usize] < kernel.now() {
            self.check_runner(kernel, cpu, task);
            self.check_parked(kernel, cpu, task);
        }
    }

    fn check_heartbeat(&mut self, kernel: &NativeKernel) {
        let seen: u64 = kernel.half.get("agent_seen");
        let sleeps: u32 = kernel.half.get("agent_sleeps");
        let stalled: u32 = kernel.half.get("agent_stalled");
        let silent = kernel.ktime().saturating_sub(seen);
        // Where time passes while the kernel schedules, the tick looked a little later.
        if kernel.lapses.get().is_some() && silent.abs_diff(STALL_NS) < MS {
            return;
        }
        if (stalled != 0) != (sleeps == 0 && silent > STALL_NS) {
            self.wrong(|| {
                let ms = silent / MS;
                format!("the agent is silent for {ms} ms, sleeps: {sleeps}, stalled: {stalled}")
            });
        }
    }

    /// What a tick must have found out about the task that it interrupted.
    fn check_runner(&mut self, kernel: &NativeKernel, cpu: u32, task: TaskIndex) {
        let Some(ctx) = kernel.task_ctx(task) else {
            return;
        };
        let raw = kernel.task_struct(task);
        let word = kernel.look().tasks[task.0 as usize].spin_word != 0;
        let has_slot = ctx.slot < intf::hetero_consts_MAX_SLOTS;
        let registered = ctx.spin_word != 0 && ctx.spin_exec_id == raw.self_exec_id;
        if has_slot && registered && word != (ctx.spinning != 0) {
            self.wrong(|| format!("{task:?} spins: {word}, and is taken for one: {}", !word));
        }
        let sleeps = kernel.half.get::<u32>("agent_sleeps") != 0;
        if sleeps && ctx.run_ns - ctx.woke_at_ns >= COMPUTES_AFTER_NS {
            self.wrong(|| format!("{task:?} computes on CPU {cpu}, and the agent sleeps on"));
        }
    }

    /// A parked CPU runs only what must not wait.
    fn check_parked(&mut self, kernel: &NativeKernel, cpu: u32, task: TaskIndex) {
        let contexts = kernel.half.global::<ffi::cpu_ctx>("cpu_ctxs");
        // SAFETY: within the array; no operation runs.
        let until = unsafe { (*contexts.add(cpu as usize)).parked_until };
        if until <= kernel.ktime() || kernel.is_migration_disabled(task) {
            return;
        }
        let kthread = kernel.task_struct(task).flags & ffi::PF_KTHREAD != 0;
        let urgent = kernel.with_task_ctx(task, |ctx| {
            ctx.pinned_cpu >= 0 || ctx.is_agent != 0 || is_brief(ctx)
        });
        if !kthread && urgent == Some(false) {
            self.wrong(|| format!("{task:?} runs on CPU {cpu}, which is parked"));
        }
    }

    /// What the agent asked for was done.
    pub(super) fn applied(&mut self, kernel: &NativeKernel, actions: &[types::action]) {
        for action in actions {
            let parks = action.op == intf::action_op_ACTION_PARK;
            let known = kernel.machine.topology.cpu(action.slot).is_some();
            if parks && known && action.result != intf::action_result_ACTION_APPLIED {
                self.wrong(|| format!("CPU {} cannot be parked", action.slot));
            }
        }
        let state = kernel.look();
        for (cpu, of) in (0..).zip(&state.cpus) {
            let known = kernel.machine.topology.cpu(cpu).is_some();
            let asleep = of.runs == Runs::Idle && kernel.now() - of.idle_since > ASLEEP_NS;
            if known
                && asleep
                && !self.missed[cpu as usize]
                && kernel.machine.can_set_perf
                && of.perf > 0
            {
                let perf = of.perf;
                self.wrong(|| format!("CPU {cpu} sleeps, and is asked for {perf} of {PERF_ONE}"));
            }
        }
    }

    /// A task is about to leave its CPU for the last time. Whether it has a slot.
    pub(super) fn ends(&mut self, kernel: &NativeKernel, task: TaskIndex) -> bool {
        self.frugal.remove(&task);
        let has_slot = kernel.slot(task).is_some();
        let counted = has_slot && has_counts(kernel, task);
        self.flushed = counted.then(|| kernel.task_struct(task).pid);
        has_slot
    }

    /// It has ended. The kernel frees it by and by.
    pub(super) fn ended(&mut self, kernel: &NativeKernel, task: TaskIndex, had_slot: bool) {
        if had_slot && has_counts(kernel, task) {
            self.wrong(|| format!("{task:?} has ended, and its last counts are lost"));
        }
        if kernel.slot(task).is_some() {
            self.wrong(|| format!("{task:?} has ended, and keeps its slot"));
        }
        self.flushed.take_if(|_| kernel.ring_is_full());
    }

    /// The samples since the last call of this. What an ended task has left is the last one of its, unless what
    /// it ran for just now completes one.
    pub(super) fn samples(&mut self, kernel: &NativeKernel) -> Result<(), String> {
        let samples = kernel.take_samples();
        if let Some(pid) = self.flushed.take()
            && !samples.iter().any(|of| of.tid as i32 == pid)
        {
            return Err(format!("task {pid} ended, and its last counts are lost"));
        }
        samples.iter().try_for_each(|of| kernel.check_sample(of))
    }
}

fn has_counts(kernel: &NativeKernel, task: TaskIndex) -> bool {
    let left = kernel.with_task_ctx(task, |ctx| ctx.accounts.iter().any(|of| of.run_ns > 0));
    left.unwrap_or(false)
}
