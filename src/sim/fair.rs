// SPDX-License-Identifier: GPL-2.0-only
//! `default`: a fair scheduler that knows nothing of core types.
//!
//! **An approximation of the kernel's own (EEVDF), for comparison only.** Each CPU has a queue by
//! virtual run time. A task that wakes up goes to its last CPU if that is idle, else to an idle one near it,
//! else to any idle one; newcomers find the least loaded CPU, by lot among equals. An idle CPU pulls
//! from the busiest one, and ten times a second loads are evened out. Where capacities differ, one that
//! wakes up prefers an idle CPU that is large enough, and a fast CPU that idles takes over what runs on a
//! slow one ([`misfit`]). Otherwise threads stay where they are: a mix with a thread for each CPU moves
//! only where a program ends. Deadlines, lag and cgroups are left out.

mod misfit;
mod queue;

use std::cmp::Reverse;
use std::collections::VecDeque;

use rand_pcg::rand_core::Rng as _;

use super::cpu_set::CpuSet;
use super::event::SimulatedEvent;
use super::kernel::{SimulatedKernel, ThreadState};
use super::scheduler::SimulatedScheduler;
use misfit::{Utilization, is_faster};
use queue::{FairQueue, QueuePlace};

/// `base_slice_ns` of Linux 6.12 on eight CPUs or more.
const SLICE_NS: u64 = 2_800_000;

/// Between comparisons of loads, ns; assumed.
const BALANCE_NS: u64 = 100_000_000;

/// What waits for a program to end and starts it again runs on the program's CPU, so that it begins there
/// anew. One time in so many it does not, and for a moment that CPU idles: in the campaign's runs of
/// `default`, after 54 of 627 runs on a fast CPU the program's next one did not begin and end on one.
const IDLES_ONCE_IN: u64 = 12;

#[derive(Clone, Copy, Debug, Default)]
struct Ctx {
    vtime: u64,
    exec_seen: u64,
    /// Its slice is used up when it has run for so long, ns.
    runs_until: u64,
    /// The CPU in whose load it is counted.
    on: Option<u32>,
    place: Option<QueuePlace>,
    utilization: Utilization,
}

#[derive(Debug, Default)]
struct Runqueue {
    queue: FairQueue,
    /// Virtual time of the one that ran last.
    vtime: u64,
    /// Runnable threads.
    load: u32,
    /// Threads that come next, whatever is in the queue.
    local: VecDeque<u32>,
    /// It has gone idle.
    is_idle: bool,
    /// It is to look for something else to run.
    resched: bool,
    /// A program ended there and is about to start again.
    kept: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct Fair {
    ctxs: Vec<Ctx>,
    cpus: Vec<Runqueue>,
    llcs: Vec<CpuSet>,
    /// Idle CPUs that no thread has claimed, and where the next search of them begins.
    idle: CpuSet,
    search_from: u32,
    /// CPUs that are to look for something else to run.
    pending: VecDeque<u32>,
    order: u64,
    /// Threads that wait on all CPUs.
    waiting: usize,
}

impl Fair {
    fn ctx(&mut self, thread: u32) -> &mut Ctx {
        &mut self.ctxs[thread as usize]
    }

    fn charge(&mut self, k: &SimulatedKernel, thread: u32) {
        let t = k.thread(thread);
        let capacity = capacity(k, t.cpu);
        let ctx = self.ctx(thread);
        ctx.utilization.advance(k.now, capacity);
        ctx.vtime += t.sum_exec - ctx.exec_seen;
        ctx.exec_seen = t.sum_exec;
        let vtime = ctx.vtime;
        self.cpus[t.cpu as usize].vtime = vtime;
    }

    fn leave(&mut self, thread: u32) {
        if let Some(cpu) = self.ctx(thread).on.take() {
            self.cpus[cpu as usize].load -= 1;
        }
    }

    /// Counts a thread in a CPU's load; its virtual time comes along.
    fn join(&mut self, thread: u32, cpu: u32) {
        let before = self.ctx(thread).on;
        if before == Some(cpu) {
            return;
        }
        if let Some(before) = before {
            let (from, to) = (
                self.cpus[before as usize].vtime,
                self.cpus[cpu as usize].vtime,
            );
            let ctx = self.ctx(thread);
            ctx.vtime = (ctx.vtime + to).saturating_sub(from);
            self.leave(thread);
        }
        self.ctx(thread).on = Some(cpu);
        self.cpus[cpu as usize].load += 1;
    }

    /// Takes a thread out of the queue where it waits.
    fn unqueue(&mut self, thread: u32) {
        if let (Some(on), Some(place)) = (self.ctx(thread).on, self.ctx(thread).place.take()) {
            self.cpus[on as usize].queue.remove(thread, place);
            self.waiting -= 1;
        }
    }

    fn take(&mut self, k: &mut SimulatedKernel, thread: u32, cpu: u32) {
        self.unqueue(thread);
        self.join(thread, cpu);
        self.insert_local(k, cpu, thread);
    }

    fn put(&mut self, thread: u32, cpu: u32) {
        self.join(thread, cpu);
        self.order += 1;
        let place = QueuePlace {
            at: self.ctx(thread).vtime,
            order: self.order,
        };
        self.ctx(thread).place = Some(place);
        self.cpus[cpu as usize].queue.insert(thread, place);
        self.waiting += 1;
    }

    /// The least loaded CPU that a thread may use, by lot among equals.
    fn least_loaded(&self, k: &mut SimulatedKernel, thread: u32) -> u32 {
        let load = |cpu: &u32| self.cpus[*cpu as usize].load;
        let least = k.allowed(thread).iter().map(|cpu| load(&cpu)).min();
        let equals = || {
            k.allowed(thread)
                .iter()
                .filter(|cpu| Some(load(cpu)) == least)
        };
        let (count, draw) = (equals().count().max(1) as u64, k.rng.clone().next_u64());
        let chosen = equals().nth((draw % count) as usize);
        k.rng.next_u64();
        chosen.unwrap_or(0)
    }

    /// A thread that waits on the busiest CPU, of those in `among` if given, and may come to `cpu`.
    fn pull(&self, k: &SimulatedKernel, cpu: u32, among: Option<&CpuSet>) -> Option<u32> {
        if self.waiting == 0 {
            return None;
        }
        let candidates = (0..self.cpus.len() as u32).filter(|&other| {
            let waits = other != cpu && self.cpus[other as usize].queue.len() > 0;
            waits && among.is_none_or(|among| among.contains(other))
        });
        let busiest =
            candidates.max_by_key(|&other| (self.cpus[other as usize].load, u32::MAX - other))?;
        let mut waiting = self.cpus[busiest as usize].queue.iter();
        waiting
            .find(|(thread, _)| k.may_use(*thread, cpu))
            .map(|(thread, _)| thread)
    }

    /// A CPU with a thread that it is too small for, and that may come to `cpu`, which is faster: one that
    /// never sleeps rather than another, and of those that are alike always the first CPU, as
    /// `sched_balance_find_src_rq()` has it. So one slow CPU exchanges threads, and the others keep theirs.
    fn misfit(&self, k: &SimulatedKernel, cpu: u32) -> Option<u32> {
        let to = capacity(k, cpu);
        let others = (0..self.cpus.len() as u32).filter(|&other| other != cpu);
        let misfits = others.filter_map(|other| {
            let has = capacity(k, other);
            let thread = k.cpu(other).current.filter(|_| is_faster(to, has))?;
            let utilization = self.ctxs[thread as usize].utilization;
            let wants = !utilization.fits(has) && k.may_use(thread, cpu);
            wants.then(|| (utilization.percent(has), Reverse(other)))
        });
        misfits.max().map(|(_, Reverse(other))| other)
    }

    /// The thread that runs on a CPU goes to another that idles (the kernel's active balance).
    fn push(&mut self, k: &mut SimulatedKernel, from: u32, to: u32) {
        k.update_current(from);
        let Some(thread) = k.cpu(from).current else {
            return;
        };
        self.charge(k, thread);
        k.take_off(from, ThreadState::Queued);
        self.idle.set(to, false);
        self.join(thread, to);
        self.insert_local(k, to, thread);
        self.resched(from);
    }

    /// A thread comes next on a CPU.
    fn insert_local(&mut self, k: &mut SimulatedKernel, cpu: u32, thread: u32) {
        self.grant(k, thread);
        k.thread_mut(thread).cpu = cpu;
        self.cpus[cpu as usize].local.push_back(thread);
        if k.cpu(cpu).current.is_none() {
            self.resched(cpu);
        }
    }

    /// A thread gets a slice.
    fn grant(&mut self, k: &SimulatedKernel, thread: u32) {
        self.ctx(thread).runs_until = k.thread(thread).sum_exec + SLICE_NS;
    }

    fn resched(&mut self, cpu: u32) {
        if !std::mem::replace(&mut self.cpus[cpu as usize].resched, true) {
            self.pending.push_back(cpu);
        }
    }

    fn has_slice(&self, k: &SimulatedKernel, thread: u32) -> bool {
        k.thread(thread).sum_exec < self.ctxs[thread as usize].runs_until
    }

    /// An idle CPU, claimed by no thread, in `cpus` and in a thread's affinity. The search goes
    /// round, as the kernel's does.
    fn find_idle(&mut self, k: &SimulatedKernel, thread: u32, cpus: &CpuSet) -> Option<u32> {
        let found = self
            .idle
            .first_common(cpus, k.allowed(thread), self.search_from)?;
        self.search_from = (found + 1) % k.cpus.len() as u32;
        Some(found)
    }

    /// An idle CPU for a thread that wakes up, claimed for it.
    fn select_cpu(&mut self, k: &mut SimulatedKernel, thread: u32, previous: u32) -> Option<u32> {
        let is_new = k.thread(thread).sum_exec == 0;
        let utilization = self.ctx(thread).utilization;
        let most = k.machine.topology.types.iter().map(|kind| kind.capacity);
        let most = f64::from(most.max().unwrap_or(0));
        let fits = |cpu| {
            let has = capacity(k, cpu);
            has == most || utilization.fits(has)
        };
        let stays = !is_new && k.may_use(thread, previous) && fits(previous);
        if stays && self.idle.take(previous) {
            return Some(previous);
        }
        if !is_new && !fits(previous) {
            let idle = k
                .allowed(thread)
                .iter()
                .filter(|&cpu| self.idle.contains(cpu));
            // The largest, and of those that are alike its last one.
            let best = idle.max_by_key(|&cpu| (capacity(k, cpu) as u32, cpu == previous));
            return best.filter(|&cpu| self.idle.take(cpu));
        }
        let near = self.llcs[k.cpu(previous).llc].clone();
        let mut found = if is_new {
            None
        } else {
            self.find_idle(k, thread, &near)
        };
        if found.is_none() {
            let least = self.least_loaded(k, thread);
            found = self.idle.contains(least).then_some(least);
        }
        found.filter(|&cpu| self.idle.take(cpu))
    }

    /// A thread is to wait.
    fn enqueue(&mut self, k: &mut SimulatedKernel, thread: u32, wakes_up: bool) {
        let cpu = k.thread(thread).cpu;
        if wakes_up {
            // No claim to the time that it slept, but for a slice.
            let floor = self.cpus[cpu as usize].vtime.saturating_sub(SLICE_NS);
            let ctx = self.ctx(thread);
            ctx.vtime = ctx.vtime.max(floor);
        }
        self.put(thread, cpu);
        if self.cpus[cpu as usize].is_idle {
            self.resched(cpu);
        }
    }

    /// A CPU has nothing to run but `previous`, whose slice is used up.
    fn dispatch(&mut self, k: &mut SimulatedKernel, cpu: u32, previous: Option<u32>) {
        let first = self.cpus[cpu as usize].queue.iter().next();
        match (first, previous) {
            (Some((_, place)), Some(previous)) if self.ctx(previous).vtime < place.at => {
                self.grant(k, previous);
            }
            (Some((thread, _)), _) => self.take(k, thread, cpu),
            (None, Some(_)) => {}
            (None, None) => {
                let near = &self.llcs[k.cpu(cpu).llc];
                let pulled = self
                    .pull(k, cpu, Some(near))
                    .or_else(|| self.pull(k, cpu, None));
                if let Some(thread) = pulled {
                    self.take(k, thread, cpu);
                } else if let Some(from) = self.misfit(k, cpu) {
                    self.push(k, from, cpu);
                }
            }
        }
    }

    /// A CPU decides what to run. A thread that is alone there goes on.
    fn schedule(&mut self, k: &mut SimulatedKernel, cpu: u32) {
        k.update_current(cpu);
        let previous = k.cpu(cpu).current;
        let goes_on =
            |fair: &Self, k: &SimulatedKernel| previous.is_some_and(|p| fair.has_slice(k, p));
        if goes_on(self, k) {
            return;
        }
        let kept = self.cpus[cpu as usize].kept && self.cpus[cpu as usize].queue.len() == 0;
        if self.cpus[cpu as usize].local.is_empty() && !kept {
            self.dispatch(k, cpu, previous);
            if goes_on(self, k) {
                return;
            }
        }
        if let Some(previous) = previous {
            if self.cpus[cpu as usize].local.is_empty() {
                self.grant(k, previous);
                return;
            }
            self.charge(k, previous);
            k.take_off(cpu, ThreadState::Queued);
            self.enqueue(k, previous, false);
        }
        let next = self.cpus[cpu as usize].local.pop_front();
        self.cpus[cpu as usize].is_idle = next.is_none();
        self.idle.set(cpu, next.is_none() && !kept);
        if let Some(next) = next {
            self.cpus[cpu as usize].kept = false;
            k.put_on(cpu, next);
            self.join(next, cpu);
            let ctx = self.ctx(next);
            ctx.exec_seen = k.thread(next).sum_exec;
            ctx.utilization.advance(k.now, 0.0);
        }
    }

    /// Loads are evened out: the lightest CPU and the heaviest meet, until they are alike.
    fn balance(&mut self, k: &mut SimulatedKernel) {
        let mut by_load: Vec<u32> = (0..self.cpus.len() as u32).collect();
        by_load.sort_by_key(|&cpu| self.cpus[cpu as usize].load);
        let load = |of: &Self, cpu: u32| of.cpus[cpu as usize].load;
        let (mut light, mut heavy) = (0, by_load.len() - 1);
        while light < heavy {
            let (to, from) = (by_load[light], by_load[heavy]);
            if load(self, from) < load(self, to) + 2 {
                break;
            }
            let mut waiting = self.cpus[from as usize].queue.iter();
            let found = waiting.find(|(thread, _)| k.may_use(*thread, to));
            drop(waiting);
            if let Some((thread, _)) = found {
                self.unqueue(thread);
                k.thread_mut(thread).cpu = to;
                self.put(thread, to);
                if self.cpus[to as usize].is_idle {
                    self.resched(to);
                }
            }
            light += 1;
            heavy -= 1;
        }
    }
}

/// The kernel's number for how fast a CPU is.
fn capacity(k: &SimulatedKernel, cpu: u32) -> f64 {
    f64::from(k.machine.topology.types[k.cpu(cpu).core_type].capacity)
}

impl SimulatedScheduler for Fair {
    fn begin(&mut self, k: &mut SimulatedKernel) {
        let nr = k.cpus.len();
        self.cpus.resize_with(nr, || Runqueue {
            is_idle: true,
            ..Runqueue::default()
        });
        self.idle = CpuSet::of(nr, 0..nr as u32);
        self.llcs = vec![CpuSet::empty(nr); k.machine.llcs.len()];
        for (cpu, of) in (0..).zip(&k.cpus) {
            self.llcs[of.llc].set(cpu, true);
        }
        k.events.push(k.now + BALANCE_NS, SimulatedEvent::Balance);
    }

    fn add(&mut self, _: &mut SimulatedKernel, thread: u32, _: u32) {
        if self.ctxs.len() <= thread as usize {
            self.ctxs.resize(thread as usize + 1, Ctx::default());
        }
        *self.ctx(thread) = Ctx::default();
    }

    fn remove(&mut self, _: &mut SimulatedKernel, thread: u32) {
        self.leave(thread);
    }

    /// How often a program begins where it ended was counted, see [`IDLES_ONCE_IN`].
    fn has_starters(&self) -> bool {
        false
    }

    fn restarts(&mut self, k: &mut SimulatedKernel, cpu: u32) {
        self.cpus[cpu as usize].kept = !k.rng.next_u64().is_multiple_of(IDLES_ONCE_IN);
    }

    fn wake(&mut self, k: &mut SimulatedKernel, thread: u32, _: u32) {
        let previous = k.thread(thread).cpu;
        let choice = k.allowed(thread).len() > 1;
        let selected = choice
            .then(|| self.select_cpu(k, thread, previous))
            .flatten();
        let is_new = k.thread(thread).sum_exec == 0;
        let cpu = match selected {
            Some(cpu) => cpu,
            // The CPU of a program that has ended has nothing to do, though it does not count as idle.
            None if is_new => self.least_loaded(k, thread),
            None if k.allowed(thread).contains(previous) => previous,
            None => k.allowed(thread).first().unwrap_or(previous),
        };
        let t = k.thread_mut(thread);
        t.cpu = cpu;
        t.state = ThreadState::Queued;
        if is_new {
            self.ctx(thread).vtime = self.cpus[cpu as usize].vtime;
            let capacity = capacity(k, cpu);
            self.ctx(thread).utilization.begin(k.now, capacity);
        }
        self.join(thread, cpu);
        if selected.is_some() {
            self.insert_local(k, cpu, thread);
        } else {
            self.enqueue(k, thread, true);
            if self.cpus[cpu as usize].is_idle {
                self.resched(cpu);
            }
        }
    }

    fn block(&mut self, k: &mut SimulatedKernel, cpu: u32) {
        k.update_current(cpu);
        if let Some(thread) = k.cpu(cpu).current {
            self.charge(k, thread);
            k.take_off(cpu, ThreadState::Blocked);
            self.leave(thread);
        }
        self.resched(cpu);
    }

    fn tick(&mut self, k: &mut SimulatedKernel, cpu: u32) {
        k.update_current(cpu);
        if let Some(thread) = k.cpu(cpu).current {
            self.charge(k, thread);
            if !self.has_slice(k, thread) {
                self.resched(cpu);
            }
            // A misfit's tick lets a larger CPU that idles look (`nohz_balancer_kick()`).
            let has = capacity(k, cpu);
            if !self.ctx(thread).utilization.fits(has) {
                let faster = |to: &u32| is_faster(capacity(k, *to), has) && k.may_use(thread, *to);
                let to = self.idle.iter().find(faster);
                if let Some(to) = to {
                    self.resched(to);
                }
            }
        }
    }

    fn switch_all(&mut self, k: &mut SimulatedKernel) {
        while let Some(cpu) = self.pending.pop_front() {
            self.cpus[cpu as usize].resched = false;
            self.schedule(k, cpu);
        }
    }

    fn event(&mut self, k: &mut SimulatedKernel, event: SimulatedEvent) {
        if event == SimulatedEvent::Balance {
            k.events.push(k.now + BALANCE_NS, SimulatedEvent::Balance);
            if self.waiting > 0 {
                self.balance(k);
            }
        }
    }
}
