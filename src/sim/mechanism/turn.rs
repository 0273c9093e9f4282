// SPDX-License-Identifier: GPL-2.0-only
//! Whose turn it is, and who need not wait for it, after `src/bpf/turn.bpf.h`. Synchronous wake-ups
//! are not modelled, for no thread here says who woke it.

use super::super::kernel::Kernel;
use super::hetero::Hetero;
use super::park::LATENCY_BURST_NS;
use super::queue::Place;
use crate::arith;

/// How many CPUs besides its last one a waking thread looks at.
const MAX_VICTIMS: usize = 4;

impl Hetero {
    pub(super) fn clock_now(&self, k: &Kernel) -> u64 {
        k.now.wrapping_add_signed(self.clock_offset)
    }

    /// From the tick of a thread that has run for `run_ns`: the clock follows those that run.
    pub(super) fn set_clock(&mut self, k: &Kernel, thread: u32, run_ns: u64) {
        let ctx = self.ctx(thread);
        if ctx.pinned.is_some() || self.is_latency_sensitive(thread) {
            return;
        }
        let lead = ctx.vtime.wrapping_sub(self.clock_now(k)) as i64;
        self.clock_offset += arith::clock_step(lead, run_ns, k.cpus.len() as u32);
    }

    pub(super) fn is_latency_sensitive(&self, thread: u32) -> bool {
        let ctx = self.ctx(thread);
        let now = ctx.work_ns - ctx.woke_at_work_ns;
        ctx.burst_ns > 0 && ctx.burst_ns < LATENCY_BURST_NS && now < LATENCY_BURST_NS
    }

    pub(super) fn current_deadline(&self, k: &Kernel, thread: u32) -> u64 {
        let period = self.vtime_of(k, thread, self.slice_ns);
        let ctx = self.ctx(thread);
        let burst = match ctx.burst_ns {
            0 if ctx.run_ns == 0 => self.slice_ns / 2,
            0 => 0,
            mean => mean.max(ctx.work_ns - ctx.woke_at_work_ns),
        };
        arith::deadline_of(ctx.vtime, burst, self.slice_ns, period)
    }

    /// A thread is about to be queued: no earlier and no later than is fair.
    pub(super) fn next_place(&mut self, k: &Kernel, thread: u32) -> Place {
        let period = self.vtime_of(k, thread, self.slice_ns);
        let now = self.clock_now(k);
        let ctx = self.ctx_mut(thread);
        ctx.vtime = arith::place_vtime(ctx.vtime, now, period);
        self.order += 1;
        Place {
            at: self.current_deadline(k, thread),
            order: self.order,
        }
    }

    /// Whether a thread may take over `cpu` from what runs there: if its burst costs less virtual
    /// time than a slice of that.
    fn may_preempt(&self, k: &Kernel, cpu: u32, thread: u32) -> bool {
        let Some(runner) = k.cpu(cpu).current else {
            return false;
        };
        let (ctx, theirs) = (self.ctx(thread), self.ctx(runner));
        !self.is_latency_sensitive(runner)
            && ctx.burst_ns * u64::from(theirs.share) < self.slice_ns * u64::from(ctx.share)
            && k.thread(runner).slice > 0
    }

    /// Whether nobody is in a queue that `cpu` serves first.
    pub(super) fn nobody_waits_for(&self, k: &Kernel, cpu: u32) -> bool {
        let domain = &self.domains[k.cpu(cpu).domain];
        domain.nr_waiting == 0 && self.cpus[cpu as usize].queue.len() == 0
    }

    /// The CPU that a brief thread takes over from one that computes.
    pub(super) fn claim_cpu_of_other(&self, k: &Kernel, thread: u32, previous: u32) -> Option<u32> {
        let ctx = self.ctx(thread);
        let paid = self.vtime_of(k, thread, ctx.run_ns - ctx.woke_at_ns);
        if !self.is_latency_sensitive(thread)
            || arith::vtime_before(self.clock_now(k), ctx.vtime.wrapping_sub(paid))
        {
            return None;
        }
        let hint = self.wished_type(thread);
        let mut domain = k.cpu(previous).domain;
        match hint {
            Some(hint) if self.domains[domain].core_type != hint => {
                domain = self.lightest_domain_of(hint)?;
            }
            _ if k.may_use(thread, previous) && self.may_preempt(k, previous, thread) => {
                return Some(previous);
            }
            _ => {}
        }
        if ctx.pinned.is_some() {
            return None;
        }
        let cpus = &self.masks.domains[domain];
        // The kernel takes them in turn, from some CPU on.
        let mut seen = cpus.iter().filter(|&cpu| k.may_use(thread, cpu));
        seen.by_ref()
            .take(MAX_VICTIMS)
            .find(|&cpu| self.may_preempt(k, cpu, thread))
    }
}
