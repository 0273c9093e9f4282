// SPDX-License-Identifier: GPL-2.0-only
//! The operations, in the order of `src/bpf/main.bpf.c`.

use super::super::super::agent::Agent;
use super::super::super::event::Event;
use super::super::super::kernel::Kernel;
use super::super::{Flags, Mechanism, Selected};
use super::{Ctx, Hetero};
use crate::arith;
use crate::table::State;

impl Mechanism for Hetero {
    const ENQ_LAST: bool = true;

    fn begin(&mut self, k: &mut Kernel) {
        if let Some(first) = self.agent.as_ref().and_then(Agent::first_look) {
            k.events.push(k.now + first, Event::Agent);
        }
    }

    fn slice_ns(&self) -> u64 {
        self.slice_ns
    }

    fn enable(&mut self, k: &mut Kernel, thread: u32) {
        let index = thread as usize;
        if self.ctxs.len() <= index {
            self.ctxs.resize_with(index + 1, Ctx::default);
        }
        let t = k.thread(thread);
        if self.processes.len() <= t.job {
            self.processes.resize(t.job + 1, 0);
        }
        self.ctxs[index] = Ctx {
            vtime: self.clock_now(k),
            share: arith::task_share(t.weight),
            domain: k.cpu(t.cpu).domain,
            ..Ctx::default()
        };
        self.read_affinity(k, thread);
    }

    fn exit(&mut self, k: &mut Kernel, thread: u32) {
        self.flush_counting(k, thread);
        self.give_back_slot(thread);
    }

    fn select_cpu(&mut self, k: &mut Kernel, thread: u32, previous: u32) -> Option<Selected> {
        let (cpu, preempts) = match self.claim_idle(k, thread, previous) {
            Some(idle) => (idle, false),
            None => (self.claim_cpu_of_other(k, thread, previous)?, true),
        };
        Some(Selected { cpu, preempts })
    }

    fn enqueue(&mut self, k: &mut Kernel, thread: u32, flags: Flags) {
        let cpu = k.thread(thread).cpu;
        if self.hold(k, thread, flags) {
            return;
        }
        if let Some(claimed) = self.ctx_mut(thread).claimed.take()
            && k.may_use(thread, claimed)
        {
            k.insert_local(claimed, thread, self.slice_ns, false);
            return;
        }
        if let Some(target) = self.take_swap_target(k, thread, cpu) {
            k.insert_local(target, thread, self.slice_ns, true);
            return;
        }
        if !flags.cpu_selected
            && let Some(Selected { cpu, preempts }) = self.select_cpu(k, thread, cpu)
        {
            k.insert_local(cpu, thread, self.slice_ns, preempts);
            return;
        }
        if let Some(pinned) = self.ctx(thread).pinned {
            if self.is_latency_sensitive(thread) && self.nobody_waits_for(k, pinned) {
                k.insert_local(pinned, thread, self.slice_ns, false);
                return;
            }
            self.count_waiting(k, thread);
            let place = self.next_place(k, thread);
            self.cpus[pinned as usize].queue.insert(thread, place);
        } else if self.is_parked(k, cpu) && self.must_not_wait(thread) {
            k.insert_local(cpu, thread, self.slice_ns, false);
            return;
        } else {
            let mut domain = self.choose_domain(k, thread);
            if !self.may_use_domain(k, thread, domain) {
                let first = k.allowed(thread).first().unwrap_or(cpu);
                domain = k.cpu(first).domain;
            }
            if let Some(parked) = self.parked_cpu_for(k, thread, domain) {
                k.insert_local(parked, thread, self.slice_ns, false);
                return;
            }
            self.change_domain(thread, domain);
            self.count_waiting(k, thread);
            let place = self.next_place(k, thread);
            self.domains[domain].queue.insert(thread, place);
        }
        self.wake_idle_for(k, thread);
    }

    fn dispatch(&mut self, k: &mut Kernel, cpu: u32, previous: Option<u32>) {
        if self.take_held(k, cpu) {
            return;
        }
        let parked = self.is_parked(k, cpu);
        let domain = k.cpu(cpu).domain;
        let mut stays = None;
        if let Some(previous) = previous
            && (!parked || self.must_not_wait(previous))
            && !self.take_other_place(k, previous, cpu)
        {
            stays = Some(previous);
        }
        let shared_waits = !parked && self.domains[domain].somebody_waits();
        let own = self.cpus[cpu as usize]
            .queue
            .iter()
            .next()
            .map(|(_, place)| place.at);
        let shared = shared_waits
            .then(|| self.first_in(k, &self.domains[domain].queue, cpu))
            .flatten()
            .map(|(_, place)| place.at);
        let own_first = own.is_some_and(|own| shared.is_none_or(|s| arith::vtime_before(own, s)));
        let best = if own_first { own } else { shared };
        if let (Some(previous), Some(best)) = (stays, best) {
            let hint = self.hint_of(previous);
            if hint.is_none_or(|hint| hint == k.cpu(cpu).core_type)
                && arith::vtime_before(self.current_deadline(k, previous), best)
            {
                k.thread_mut(previous).slice = self.slice_ns;
                return;
            }
        }
        if own_first && self.move_own(k, cpu)
            || shared_waits && self.move_shared(k, domain, cpu)
            || self.move_own(k, cpu)
            || !parked && self.rotate(k, domain, cpu)
        {
            return;
        }
        if let Some(previous) = stays {
            k.thread_mut(previous).slice = self.slice_ns;
            return;
        }
        if parked {
            self.take_urgent(k, domain, cpu);
        } else if !self.steal(k, domain, cpu) {
            self.move_shared(k, domain, cpu);
        }
    }

    fn runnable(&mut self, k: &mut Kernel, thread: u32) {
        self.processes[k.thread(thread).job] += 1;
        let (now, slice) = (self.clock_now(k), self.slice_ns);
        let ctx = self.ctx_mut(thread);
        ctx.vtime = arith::wake_vtime(ctx.vtime, now, slice);
        let share = ctx.share;
        self.count_share(thread, share);
        self.note_sleep(k, thread, false);
    }

    fn running(&mut self, k: &mut Kernel, thread: u32) {
        let cpu = k.thread(thread).cpu;
        self.uncount_waiting(thread);
        self.change_domain(thread, k.cpu(cpu).domain);
        let ctx = self.ctx_mut(thread);
        ctx.exec_seen = k.thread(thread).sum_exec;
        ctx.claimed = None;
        ctx.upgrade = false;
        let core_type = k.cpu(cpu).core_type;
        if let Some(slot) = self.slot_of_mut(thread) {
            slot.task.state = State::Running;
            slot.task.cpu = cpu as i32;
            slot.task.core_type = core_type;
            if slot.task.hint == Some(core_type) {
                slot.target_cpu = None;
            }
        }
        self.start_counting(k, thread);
    }

    fn tick(&mut self, k: &mut Kernel, thread: u32) {
        let cpu = k.thread(thread).cpu;
        let run_ns = self.charge(k, thread);
        self.set_clock(k, thread, run_ns);
        self.tick_counting(k, thread);
        if self.ctx(thread).pinned.is_some() {
            return;
        }
        let hint = self.hint_of(thread);
        let makes_room = || {
            let elsewhere = hint.is_some_and(|hint| hint != k.cpu(cpu).core_type);
            elsewhere && self.domains[self.ctx(thread).domain].nr_waiting > 0
        };
        if self.is_parked_for(k, thread, cpu) || self.swap_target(k, thread, cpu).is_some() {
            k.thread_mut(thread).slice = 0;
        } else if self.better_idle_exists(k, thread, cpu) {
            self.ctx_mut(thread).upgrade = true;
            k.thread_mut(thread).slice = 0;
        } else if makes_room() {
            k.thread_mut(thread).slice = 0;
        }
    }

    fn stopping(&mut self, k: &mut Kernel, thread: u32, runnable: bool) {
        self.charge(k, thread);
        self.stop_counting(k, thread);
        if !runnable {
            self.note_burst(thread);
        }
    }

    fn quiescent(&mut self, k: &mut Kernel, thread: u32) {
        self.uncount_waiting(thread);
        self.processes[k.thread(thread).job] -= 1;
        self.count_share(thread, 0);
        self.note_sleep(k, thread, true);
        self.ctx_mut(thread).claimed = None;
        self.forget_target(thread);
        self.set_state(thread, State::Blocked);
    }

    fn update_idle(&mut self, k: &mut Kernel, cpu: u32, idle: bool) {
        self.count_idle(k, cpu, idle);
        let found = idle && !self.is_parked(k, cpu);
        self.note_idle(k, cpu, found);
        if idle {
            self.recheck_idle(k, cpu);
        }
    }

    fn timer(&mut self, k: &mut Kernel, event: Event) {
        match event {
            Event::Unpark(cpu, until) => self.unpark(k, cpu, until),
            Event::Agent => self.look(k),
            _ => {}
        }
    }
}
