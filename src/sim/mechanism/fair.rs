// SPDX-License-Identifier: GPL-2.0-only
//! `default`: a fair scheduler that knows nothing of core types.
//!
//! **An approximation of the kernel's own (EEVDF), for comparison only.** Each CPU has a queue by
//! virtual run time. Who wakes up goes to its last CPU if that is idle, else to an idle one near it,
//! else to any idle one; newcomers find the least loaded CPU, by lot among equals. An idle CPU pulls
//! from the busiest one, and ten times a second loads are evened out. Otherwise threads stay where
//! they are, which is why a mix with a thread for each CPU never moves. Deadlines, lag, cgroups and
//! the capacity-aware rules of some kernels are left out.

use rand_pcg::rand_core::Rng as _;

use super::super::cpu_set::CpuSet;
use super::super::event::Event;
use super::super::kernel::Kernel;
use super::queue::{Place, Queue};
use super::{Flags, Mechanism, Selected};
use crate::arith;

/// `base_slice_ns` of Linux 6.12 on eight CPUs or more.
const SLICE_NS: u64 = 2_800_000;

/// Between comparisons of loads, ns; assumed.
const BALANCE_NS: u64 = 100_000_000;

#[derive(Clone, Copy, Debug, Default)]
struct Ctx {
    vtime: u64,
    exec_seen: u64,
    /// The CPU in whose load it is counted.
    on: Option<u32>,
    place: Option<Place>,
}

#[derive(Debug, Default)]
struct Runqueue {
    queue: Queue,
    /// Virtual time of the one that ran last.
    vtime: u64,
    /// Runnable threads.
    load: u32,
}

/// See the module.
#[derive(Default)]
pub(in crate::sim) struct Fair {
    ctxs: Vec<Ctx>,
    cpus: Vec<Runqueue>,
    llcs: Vec<CpuSet>,
    order: u64,
    /// Threads that wait on all CPUs.
    waiting: usize,
}

impl Fair {
    fn ctx(&mut self, thread: u32) -> &mut Ctx {
        &mut self.ctxs[thread as usize]
    }

    fn charge(&mut self, k: &Kernel, thread: u32) {
        let t = k.thread(thread);
        let ctx = self.ctx(thread);
        let ran = arith::run_delta(t.sum_exec, ctx.exec_seen);
        ctx.exec_seen = t.sum_exec;
        ctx.vtime += ran * 1024 / u64::from(t.weight.max(1));
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
    fn remove(&mut self, thread: u32) {
        if let (Some(on), Some(place)) = (self.ctx(thread).on, self.ctx(thread).place.take()) {
            self.cpus[on as usize].queue.remove(thread, place);
            self.waiting -= 1;
        }
    }

    fn take(&mut self, k: &mut Kernel, thread: u32, cpu: u32) {
        self.remove(thread);
        self.join(thread, cpu);
        k.insert_local(cpu, thread, SLICE_NS, false);
    }

    fn put(&mut self, thread: u32, cpu: u32) {
        self.join(thread, cpu);
        self.order += 1;
        let place = Place {
            at: self.ctx(thread).vtime,
            order: self.order,
        };
        self.ctx(thread).place = Some(place);
        self.cpus[cpu as usize].queue.insert(thread, place);
        self.waiting += 1;
    }

    /// The least loaded CPU that a thread may use, by lot among equals.
    fn least_loaded(&self, k: &mut Kernel, thread: u32) -> u32 {
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
    fn pull(&self, k: &Kernel, cpu: u32, among: Option<&CpuSet>) -> Option<u32> {
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
}

impl Mechanism for Fair {
    const ENQ_LAST: bool = false;

    fn begin(&mut self, k: &mut Kernel) {
        let nr = k.cpus.len();
        self.cpus.resize_with(nr, Runqueue::default);
        self.llcs = vec![CpuSet::empty(nr); k.machine.llcs.len()];
        for (cpu, of) in (0..).zip(&k.cpus) {
            self.llcs[of.llc].set(cpu, true);
        }
        k.events.push(k.now + BALANCE_NS, Event::Balance);
    }

    fn slice_ns(&self) -> u64 {
        SLICE_NS
    }

    fn enable(&mut self, _: &mut Kernel, thread: u32) {
        if self.ctxs.len() <= thread as usize {
            self.ctxs.resize(thread as usize + 1, Ctx::default());
        }
        *self.ctx(thread) = Ctx::default();
    }

    fn exit(&mut self, _: &mut Kernel, thread: u32) {
        self.leave(thread);
    }

    fn select_cpu(&mut self, k: &mut Kernel, thread: u32, previous: u32) -> Option<Selected> {
        let selected = |cpu| Selected {
            cpu,
            preempts: false,
        };
        let is_new = k.thread(thread).sum_exec == 0;
        if !is_new && k.may_use(thread, previous) && k.idle.take(previous) {
            return Some(selected(previous));
        }
        let near = self.llcs[k.cpu(previous).llc].clone();
        let mut found = if is_new {
            None
        } else {
            k.find_idle(thread, &near)
        };
        if found.is_none() {
            let least = self.least_loaded(k, thread);
            found = k.idle.contains(least).then_some(least);
        }
        found.filter(|&cpu| k.idle.take(cpu)).map(selected)
    }

    fn enqueue(&mut self, k: &mut Kernel, thread: u32, flags: Flags) {
        let mut cpu = k.thread(thread).cpu;
        if flags.wakeup && k.thread(thread).sum_exec == 0 {
            cpu = self.least_loaded(k, thread);
        }
        if flags.wakeup {
            // No claim to the time that it slept, but for a slice.
            let floor = self.cpus[cpu as usize].vtime.saturating_sub(SLICE_NS);
            let ctx = self.ctx(thread);
            ctx.vtime = ctx.vtime.max(floor);
        }
        self.put(thread, cpu);
        if k.cpu(cpu).is_idle {
            k.resched(cpu);
        }
    }

    fn dispatch(&mut self, k: &mut Kernel, cpu: u32, previous: Option<u32>) {
        let first = self.cpus[cpu as usize].queue.iter().next();
        match (first, previous) {
            (Some((_, place)), Some(previous)) if self.ctx(previous).vtime < place.at => {
                k.thread_mut(previous).slice = SLICE_NS;
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
                }
            }
        }
    }

    fn runnable(&mut self, k: &mut Kernel, thread: u32) {
        let cpu = k.thread(thread).cpu;
        let now = self.cpus[cpu as usize].vtime;
        let ctx = self.ctx(thread);
        if k.thread(thread).sum_exec == 0 {
            ctx.vtime = now;
        }
        self.join(thread, cpu);
    }

    fn running(&mut self, k: &mut Kernel, thread: u32) {
        self.join(thread, k.thread(thread).cpu);
        self.ctx(thread).exec_seen = k.thread(thread).sum_exec;
    }

    fn tick(&mut self, k: &mut Kernel, thread: u32) {
        self.charge(k, thread);
    }

    fn stopping(&mut self, k: &mut Kernel, thread: u32, _: bool) {
        self.charge(k, thread);
    }

    fn quiescent(&mut self, _: &mut Kernel, thread: u32) {
        self.leave(thread);
    }

    fn update_idle(&mut self, _: &mut Kernel, _: u32, _: bool) {}

    fn timer(&mut self, k: &mut Kernel, event: Event) {
        if event != Event::Balance {
            return;
        }
        k.events.push(k.now + BALANCE_NS, Event::Balance);
        if self.waiting == 0 {
            return;
        }
        // The lightest and the heaviest meet, until they are alike.
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
                self.remove(thread);
                k.thread_mut(thread).cpu = to;
                self.put(thread, to);
                if k.cpu(to).is_idle {
                    k.resched(to);
                }
            }
            light += 1;
            heavy -= 1;
        }
    }
}
