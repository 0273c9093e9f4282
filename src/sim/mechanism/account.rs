// SPDX-License-Identifier: GPL-2.0-only
//! Run time, virtual time, progress, runnable weight and slots, after `src/bpf/account.bpf.h`.
//! All threads are in the root cgroup here, and none spins.

use super::super::kernel::{ANYWHERE, Kernel};
use super::hetero::{Hetero, Slot};
use super::idle::types_of;
use super::park::LATENCY_BURST_NS;
use crate::arith;
use crate::table::{Comm, State, Task, TaskId};
use crate::topology::MAX_CORE_TYPES;

/// Run time after which a thread gets a slot, ns.
const SLOT_AFTER_NS: u64 = 5_000_000;

/// A slowdown of 1, inverted.
pub(super) const INV_SLOWDOWN_ONE: u32 = 1 << 16;

impl Hetero {
    /// Tells the domain (and the CPU, if pinned) that a thread is runnable there, or (0) no longer.
    pub(super) fn count_share(&mut self, thread: u32, share: u32) {
        let ctx = &mut self.ctxs[thread as usize];
        let before = std::mem::replace(&mut ctx.counted_share, share);
        let (domain, pinned, cpu_set) = (ctx.domain, ctx.pinned, ctx.cpu_set);
        let apply = |sum: &mut u64| *sum = *sum + u64::from(share) - u64::from(before);
        if let Some(set) = cpu_set {
            apply(&mut self.cpu_set_weights[set]);
        }
        apply(&mut self.domains[domain].weight);
        if let Some(cpu) = pinned {
            apply(&mut self.domains[domain].pinned_weight);
            apply(&mut self.cpus[cpu as usize].pinned_weight);
        }
    }

    pub(super) fn change_domain(&mut self, thread: u32, domain: usize) {
        let ctx = self.ctx(thread);
        if ctx.domain == domain {
            return;
        }
        let share = ctx.counted_share;
        self.count_share(thread, 0);
        self.ctxs[thread as usize].domain = domain;
        self.count_share(thread, share);
    }

    /// Counts a thread as waiting in its queue.
    pub(super) fn count_waiting(&mut self, k: &Kernel, thread: u32) {
        self.set_state(thread, State::Queued);
        let ctx = &mut self.ctxs[thread as usize];
        ctx.waiting = true;
        if ctx.pinned.is_none() {
            let domain = &mut self.domains[ctx.domain];
            if domain.nr_waiting == 0 {
                domain.waiting_since = k.now;
            }
            domain.nr_waiting += 1;
        }
    }

    pub(super) fn uncount_waiting(&mut self, thread: u32) {
        let ctx = &mut self.ctxs[thread as usize];
        if std::mem::take(&mut ctx.waiting) && ctx.pinned.is_none() {
            self.domains[ctx.domain].nr_waiting -= 1;
        }
    }

    /// Virtual time of `run_ns` for a thread, against those it competes with.
    pub(super) fn vtime_of(&self, k: &Kernel, thread: u32, run_ns: u64) -> u64 {
        let ctx = self.ctx(thread);
        let domain = &self.domains[ctx.domain];
        let Some(cpu) = ctx.pinned else {
            if let Some(set) = ctx.cpu_set {
                let (weight, allowed) = (self.cpu_set_weights[set], k.allowed(thread).len() as u32);
                if arith::more_crowded(weight, allowed, domain.weight, domain.cpus) {
                    return arith::charge_vtime(run_ns, ctx.share, weight, allowed);
                }
            }
            return arith::charge_vtime(run_ns, ctx.share, domain.weight, domain.cpus);
        };
        let shared = domain.weight.saturating_sub(domain.pinned_weight);
        let pinned = self.cpus[cpu as usize].pinned_weight;
        arith::charge_vtime(
            run_ns,
            ctx.share,
            pinned + shared / u64::from(domain.cpus),
            1,
        )
    }

    pub(super) fn read_affinity(&mut self, k: &Kernel, thread: u32) {
        let affinity = k.thread(thread).affinity;
        let cpus = &k.affinities[affinity];
        let ctx = &mut self.ctxs[thread as usize];
        ctx.allowed_types = types_of(&self.masks, cpus);
        ctx.pinned = cpus.first().filter(|_| cpus.len() == 1);
        ctx.cpu_set = (affinity != ANYWHERE && ctx.pinned.is_none()).then_some(affinity);
        if self.cpu_set_weights.len() <= affinity {
            self.cpu_set_weights.resize(affinity + 1, 0);
        }
        if let Some(cpu) = ctx.pinned {
            ctx.domain = k.cpu(cpu).domain;
        }
    }

    /// Charges a thread for what it ran since it was last charged; how long that was, ns.
    pub(super) fn charge(&mut self, k: &Kernel, thread: u32) -> u64 {
        let t = k.thread(thread);
        let (cpu, job) = (t.cpu, t.job);
        let run_ns = arith::run_delta(t.sum_exec, self.ctx(thread).exec_seen);
        if run_ns == 0 {
            return 0;
        }
        let core_type = k.cpu(cpu).core_type;
        let vtime = self.vtime_of(k, thread, run_ns);
        let ctx = &mut self.ctxs[thread as usize];
        ctx.exec_seen = t.sum_exec;
        ctx.run_ns += run_ns;
        ctx.vtime += vtime;
        if ctx.slot.is_none() && ctx.run_ns >= SLOT_AFTER_NS {
            self.take_slot(k, thread);
        }
        let Some(slot) = self.ctx(thread).slot else {
            let inverse = &self.static_inv_slowdown;
            let work_ns = arith::fastest_ns(run_ns, inverse[core_type], inverse[0]);
            self.ctx_mut(thread).work_ns += work_ns;
            return run_ns;
        };
        let inverse = &self.slots[slot].inv_slowdown;
        let work_ns = arith::fastest_ns(run_ns, inverse[core_type], inverse[0]);
        self.ctx_mut(thread).work_ns += work_ns;
        let nr_runnable = self.processes[job].max(1);
        let slot = &mut self.slots[slot];
        slot.task.run_ns[core_type] += run_ns;
        slot.task.weight = t.weight;
        slot.task.amp_progress += arith::charge_progress(
            run_ns,
            slot.inv_slowdown[core_type],
            nr_runnable,
            self.nr_fast,
            slot.task.weight,
        );
        slot.task.nr_runnable = nr_runnable;
        slot.task.cpu = cpu as i32;
        slot.task.core_type = core_type;
        self.max_progress = self.max_progress.max(slot.task.amp_progress);
        run_ns
    }

    /// A thread gets another nice level.
    #[cfg(test)]
    pub(in crate::sim) fn set_weight(&mut self, k: &mut Kernel, thread: u32, weight: u32) {
        k.thread_mut(thread).weight = weight;
        let share = arith::task_share(weight);
        self.ctxs[thread as usize].share = share;
        if self.ctx(thread).counted_share > 0 {
            self.count_share(thread, share);
        }
    }

    fn take_slot(&mut self, k: &Kernel, thread: u32) {
        let index = match self.free_slots.pop_front() {
            Some(index) => index,
            None if self.slots.len() < self.most_slots => {
                self.slots.push(Slot::free(self.slots.len()));
                self.slots.len() - 1
            }
            None => return,
        };
        let t = k.thread(thread);
        let generation = self.slots[index].task.id.generation + 1;
        let mut comm = Comm::default();
        let name = k.jobs[t.job].program.name.as_bytes();
        let length = name.len().min(comm.0.len() - 1);
        comm.0[..length].copy_from_slice(&name[..length]);
        self.ctxs[thread as usize].slot = Some(index);
        let ctx = self.ctx(thread);
        self.slots[index] = Slot {
            thread: Some(thread),
            inv_slowdown: self.static_inv_slowdown,
            target_cpu: None,
            task: Task {
                id: TaskId {
                    slot: index as u32,
                    generation,
                },
                tid: t.tid,
                tgid: t.tgid,
                comm,
                start_time: t.began_at,
                state: State::Queued,
                cpu: t.cpu as i32,
                core_type: k.cpu(t.cpu).core_type,
                hint: None,
                allowed_types: ctx.allowed_types,
                kthread: false,
                pinned: ctx.pinned.is_some(),
                spinning: false,
                weight: t.weight,
                nr_runnable: 1,
                run_ns: [0; MAX_CORE_TYPES],
                amp_progress: self.max_progress,
                first_progress: self.max_progress,
                sf: None,
            },
        };
    }

    pub(super) fn give_back_slot(&mut self, thread: u32) {
        if let Some(index) = self.ctxs[thread as usize].slot.take() {
            self.slots[index].thread = None;
            self.slots[index].task.id.generation += 1;
            self.free_slots.push_back(index);
        }
    }

    pub(super) fn set_state(&mut self, thread: u32, state: State) {
        if let Some(slot) = self.slot_of_mut(thread) {
            slot.task.state = state;
        }
    }

    /// A thread goes to sleep: brings its mean burst up to date. The first one counts in full.
    pub(super) fn note_burst(&mut self, thread: u32) {
        let ctx = &mut self.ctxs[thread as usize];
        let ran = ctx.work_ns - ctx.woke_at_work_ns;
        ctx.woke_at_ns = ctx.run_ns;
        ctx.woke_at_work_ns = ctx.work_ns;
        ctx.burst_ns = arith::mean_burst(ctx.burst_ns, ran, 2 * LATENCY_BURST_NS);
    }
}
