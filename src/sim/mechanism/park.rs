// SPDX-License-Identifier: GPL-2.0-only
//! Parked CPUs, after `src/bpf/park.bpf.h`.

use super::super::event::Event;
use super::super::kernel::Kernel;
use super::Flags;
use super::hetero::Hetero;
use crate::table::State;

/// The longest that a CPU is parked, ns.
pub(super) const MAX_PARK_NS: u64 = 100_000_000;

/// Who runs for less than this each time it wakes up is latency-sensitive, ns.
pub(super) const LATENCY_BURST_NS: u64 = 4_000_000;

impl Hetero {
    /// Is `cpu` kept from ordinary threads at present?
    pub(super) fn is_parked(&self, k: &Kernel, cpu: u32) -> bool {
        k.now < self.cpus[cpu as usize].parked_until
    }

    /// Must a thread not be made to wait? Then it may run on parked CPUs.
    pub(super) fn must_not_wait(&self, thread: u32) -> bool {
        self.ctx(thread).pinned.is_some() || self.is_latency_sensitive(thread)
    }

    pub(super) fn is_parked_for(&self, k: &Kernel, thread: u32, cpu: u32) -> bool {
        self.is_parked(k, cpu) && !self.must_not_wait(thread)
    }

    /// Holds a thread that has just been on a parked CPU.
    pub(super) fn hold(&mut self, k: &Kernel, thread: u32, flags: Flags) -> bool {
        let cpu = k.thread(thread).cpu;
        if flags.wakeup || !self.is_parked_for(k, thread, cpu) || !k.may_use(thread, cpu) {
            return false;
        }
        self.set_state(thread, State::Queued);
        self.cpus[cpu as usize].held.push_back(thread);
        true
    }

    /// Takes back what was held on a CPU that is not parked any more.
    pub(super) fn take_held(&mut self, k: &mut Kernel, cpu: u32) -> bool {
        if self.is_parked(k, cpu) {
            return false;
        }
        let Some(thread) = self.cpus[cpu as usize].held.pop_front() else {
            return false;
        };
        k.insert_local(cpu, thread, self.slice_ns, false);
        true
    }

    /// A parked CPU of the domain for a thread that must not wait there in the queue.
    pub(super) fn parked_cpu_for(&self, k: &Kernel, thread: u32, domain: usize) -> Option<u32> {
        if k.now >= self.all_unparked_at || !self.must_not_wait(thread) {
            return None;
        }
        let mut cpus = self.masks.domains[domain].iter();
        cpus.find(|&cpu| self.is_parked(k, cpu) && k.may_use(thread, cpu))
    }

    /// Parks a CPU from now on, whether it is parked already or not.
    pub(super) fn park(&mut self, k: &mut Kernel, cpu: u32, ns: u64) -> bool {
        if cpu as usize >= self.cpus.len() {
            return false;
        }
        let until = k.now + ns.min(MAX_PARK_NS);
        self.cpus[cpu as usize].parked_until = until;
        self.all_unparked_at = self.all_unparked_at.max(until);
        k.events.push(until, Event::Unpark(cpu, until));
        if self.cpus[cpu as usize].is_idle {
            self.note_idle(k, cpu, false);
        }
        true
    }

    /// The deadline: what was held goes back, and the CPU may be found idle again.
    pub(super) fn unpark(&mut self, k: &mut Kernel, cpu: u32, until: u64) {
        if self.cpus[cpu as usize].parked_until != until {
            return;
        }
        self.cpus[cpu as usize].parked_until = 0;
        while let Some(thread) = self.cpus[cpu as usize].held.pop_front() {
            k.insert_local(cpu, thread, self.slice_ns, false);
        }
        if self.cpus[cpu as usize].is_idle {
            self.note_idle(k, cpu, true);
            k.resched(cpu);
        }
    }
}
