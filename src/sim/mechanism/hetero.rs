// SPDX-License-Identifier: GPL-2.0-only
//! scx_hetero, after `src/bpf/main.bpf.c`: the same rules and, by [`crate::arith`], the same
//! arithmetic.
//!
//! Not modelled: cgroups, spin notifications, the heartbeat (the agent is always there), other
//! scheduling classes, kernels on which no CPU can be woken, that nobody is put aside twice
//! within a millisecond, and that who was put aside waits there where nobody else does.

mod ops;

use std::collections::VecDeque;
use std::time::Duration;

use super::super::agent::Agent;
use super::super::kernel::Kernel;
use super::account::INV_SLOWDOWN_ONE;
use super::actions::Applied;
use super::idle::Masks;
use super::queue::{Place, Queue};
use super::sampling::Account;
use crate::arith;
use crate::placement;
use crate::table::{Comm, State, Task, TaskId};
use crate::topology::{MAX_CORE_TYPES, Topology};

/// Load is evened out between queues at most once in this time per queue, ns.
const ROTATE_INTERVAL_NS: u64 = 40_000_000;

/// So many tasks a CPU looks at for the first one that it may take.
const LOOKED_AT: usize = 32;

/// What is kept of a thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Ctx {
    pub(super) exec_seen: u64,
    pub(super) run_ns: u64,
    pub(super) slot: Option<usize>,
    pub(super) share: u32,
    pub(super) counted_share: u32,
    pub(super) domain: usize,
    pub(super) pinned: Option<u32>,
    pub(super) cpu_set: Option<usize>,
    claimed: Option<u32>,
    pub(super) allowed_types: u8,
    pub(super) waiting: bool,
    upgrade: bool,
    pub(super) vtime: u64,
    pub(super) burst_ns: u64,
    pub(super) woke_at_ns: u64,
    /// As the fastest core type would take for it.
    pub(super) work_ns: u64,
    pub(super) woke_at_work_ns: u64,
    /// See [`super::sampling`].
    pub(super) account: Account,
}

/// A task in the table.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) thread: Option<u32>,
    pub(super) task: Task,
    pub(super) inv_slowdown: [u32; MAX_CORE_TYPES],
    /// The CPU that a swap sends it to.
    pub(super) target_cpu: Option<u32>,
}

impl Slot {
    pub(super) fn free(index: usize) -> Self {
        Self {
            thread: None,
            inv_slowdown: [0; MAX_CORE_TYPES],
            target_cpu: None,
            task: Task {
                id: TaskId {
                    slot: index as u32,
                    generation: 0,
                },
                tid: 0,
                tgid: 0,
                comm: Comm::default(),
                start_time: 0,
                state: State::Blocked,
                cpu: 0,
                core_type: 0,
                hint: None,
                allowed_types: 0,
                kthread: false,
                pinned: false,
                spinning: false,
                weight: 0,
                nr_runnable: 0,
                run_ns: [0; MAX_CORE_TYPES],
                amp_progress: 0,
                first_progress: 0,
                sf: None,
            },
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Domain {
    pub(super) core_type: usize,
    pub(super) cpus: u32,
    pub(super) weight: u64,
    pub(super) pinned_weight: u64,
    pub(super) nr_waiting: u64,
    pub(super) waiting_since: u64,
    rotated_at: u64,
    pub(super) queue: Queue,
}

impl Domain {
    /// Whether anybody is in the queue; who was moved there may be counted elsewhere still.
    pub(super) fn somebody_waits(&self) -> bool {
        self.nr_waiting > 0 || self.queue.len() > 0
    }
}

#[derive(Debug, Default)]
pub(super) struct CpuCtx {
    pub(super) pinned_weight: u64,
    pub(super) parked_until: u64,
    pub(super) is_idle: bool,
    /// Of the threads that may use no other CPU.
    pub(super) queue: Queue,
    pub(super) held: VecDeque<u32>,
}

/// See the module.
pub(in crate::sim) struct Hetero {
    pub(super) slice_ns: u64,
    pub(super) ctxs: Vec<Ctx>,
    pub(super) slots: Vec<Slot>,
    pub(super) free_slots: VecDeque<usize>,
    /// How many tasks get a slot.
    pub(super) most_slots: usize,
    pub(super) domains: Vec<Domain>,
    pub(super) cpus: Vec<CpuCtx>,
    /// When the last CPU that was parked no longer is, ns.
    pub(super) all_unparked_at: u64,
    pub(super) cpu_set_weights: Vec<u64>,
    /// Runnable threads by job.
    pub(super) processes: Vec<u32>,
    pub(super) max_progress: u64,
    pub(super) static_inv_slowdown: [u32; MAX_CORE_TYPES],
    pub(super) masks: Masks,
    pub(super) nr_idle: [u32; MAX_CORE_TYPES],
    pub(super) clock_offset: i64,
    /// CPUs of the fastest type.
    pub(super) nr_fast: u32,
    steal_order: Vec<Vec<usize>>,
    pub(super) order: u64,
    pub(in crate::sim) outcome: Applied,
    /// Which of the actions applied last were carried out.
    pub(in crate::sim) carried_out: Vec<bool>,
    pub(in crate::sim) agent: Option<Agent>,
}

impl Hetero {
    /// For a machine, with slices of `slice` and, unless nothing is to be decided, an agent.
    pub(in crate::sim) fn new(topology: &Topology, slice: Duration, agent: Option<Agent>) -> Self {
        let domains = topology.domains.iter().map(|domain| Domain {
            core_type: domain.core_type,
            cpus: domain.cpus.len() as u32,
            ..Domain::default()
        });
        let cpus = topology.cpus.iter().map(|_| CpuCtx {
            is_idle: true,
            ..CpuCtx::default()
        });
        let mut static_inv_slowdown = [0; MAX_CORE_TYPES];
        let mut nr_idle = [0; MAX_CORE_TYPES];
        for (core_type, kind) in topology.types.iter().enumerate() {
            static_inv_slowdown[core_type] = kind.capacity * INV_SLOWDOWN_ONE / 1024;
            nr_idle[core_type] = kind.cpus.len() as u32;
        }
        let home = 0..topology.domains.len();
        Self {
            slice_ns: slice.as_nanos() as u64,
            ctxs: Vec::new(),
            slots: Vec::new(),
            free_slots: VecDeque::new(),
            most_slots: crate::scheduler::MAX_SLOTS as usize,
            domains: domains.collect(),
            cpus: cpus.collect(),
            all_unparked_at: 0,
            cpu_set_weights: Vec::new(),
            processes: Vec::new(),
            max_progress: 0,
            static_inv_slowdown,
            masks: Masks::new(topology),
            nr_idle,
            nr_fast: nr_idle[0],
            clock_offset: 0,
            steal_order: home
                .map(|domain| placement::steal_order(topology, domain))
                .collect(),
            order: 0,
            outcome: Applied::default(),
            carried_out: Vec::new(),
            agent,
        }
    }

    pub(super) fn ctx(&self, thread: u32) -> &Ctx {
        &self.ctxs[thread as usize]
    }

    pub(super) fn ctx_mut(&mut self, thread: u32) -> &mut Ctx {
        &mut self.ctxs[thread as usize]
    }

    fn may_use_domain(&self, k: &Kernel, thread: u32, domain: usize) -> bool {
        self.masks.domains[domain].intersects(k.allowed(thread))
    }

    /// The queue for a thread that found no idle CPU.
    fn choose_domain(&self, k: &Kernel, thread: u32) -> usize {
        let ctx = self.ctx(thread);
        let hint = self.wished_type(thread);
        let mut best = ctx.domain;
        if let Some(hint) = hint
            && self.domains[best].core_type != hint
        {
            best = self.lightest_domain_of(hint).unwrap_or(best);
        }
        let home = &self.domains[best];
        let (mut weight, mut cpus) = (home.weight, home.cpus);
        for (index, domain) in self.domains.iter().enumerate() {
            if index == best || hint.is_some_and(|hint| domain.core_type != hint) {
                continue;
            }
            let with_it = domain.weight + u64::from(ctx.share);
            if arith::more_crowded(weight, cpus, with_it, domain.cpus)
                && self.may_use_domain(k, thread, index)
            {
                best = index;
                weight = with_it;
                cpus = domain.cpus;
            }
        }
        best
    }

    fn swap_target(&self, k: &Kernel, thread: u32, cpu: u32) -> Option<u32> {
        let target = self.slot_of(thread)?.target_cpu?;
        let fits = target != cpu && !self.is_parked_for(k, thread, target);
        (fits && k.may_use(thread, target)).then_some(target)
    }

    fn take_swap_target(&mut self, k: &Kernel, thread: u32, cpu: u32) -> Option<u32> {
        let target = self.swap_target(k, thread, cpu);
        self.forget_target(thread);
        target
    }

    fn forget_target(&mut self, thread: u32) {
        if let Some(slot) = self.slot_of_mut(thread) {
            slot.target_cpu = None;
        }
    }

    fn first_in(&self, k: &Kernel, queue: &Queue, cpu: u32) -> Option<(u32, Place)> {
        let mut seen = queue.iter().take(LOOKED_AT);
        seen.find(|(thread, _)| k.may_use(*thread, cpu))
    }

    /// `scx_bpf_dsq_move_to_local`: the first thread that the CPU may take, however far behind.
    fn move_shared(&mut self, k: &mut Kernel, domain: usize, cpu: u32) -> bool {
        let mut waiting = self.domains[domain].queue.iter();
        let found = waiting.find(|(thread, _)| k.may_use(*thread, cpu));
        drop(waiting);
        self.move_found(k, domain, cpu, found)
    }

    /// What must not wait, and did so when the CPU was parked.
    fn take_urgent(&mut self, k: &mut Kernel, domain: usize, cpu: u32) {
        let mut waiting = self.domains[domain].queue.iter().take(LOOKED_AT);
        let found =
            waiting.find(|(thread, _)| self.must_not_wait(*thread) && k.may_use(*thread, cpu));
        drop(waiting);
        self.move_found(k, domain, cpu, found);
    }

    fn move_found(
        &mut self,
        k: &mut Kernel,
        domain: usize,
        cpu: u32,
        found: Option<(u32, Place)>,
    ) -> bool {
        let Some((thread, place)) = found else {
            return false;
        };
        self.domains[domain].queue.remove(thread, place);
        k.insert_local(cpu, thread, self.slice_ns, false);
        true
    }

    fn move_own(&mut self, k: &mut Kernel, cpu: u32) -> bool {
        let Some((thread, place)) = self.cpus[cpu as usize].queue.iter().next() else {
            return false;
        };
        self.cpus[cpu as usize].queue.remove(thread, place);
        k.insert_local(cpu, thread, self.slice_ns, false);
        true
    }

    /// Should `previous` leave this CPU for another? If so, the place is taken here.
    fn take_other_place(&mut self, k: &mut Kernel, previous: u32, cpu: u32) -> bool {
        if self.ctx(previous).pinned.is_some() {
            return false;
        }
        if self.swap_target(k, previous, cpu).is_some() {
            return true;
        }
        if !std::mem::take(&mut self.ctx_mut(previous).upgrade) {
            return false;
        }
        let target = self.claim_better_idle(k, previous, cpu);
        self.ctx_mut(previous).claimed = target;
        target.is_some()
    }

    /// Pulls a thread from a queue that is more crowded, where somebody has waited for two slices.
    fn rotate(&mut self, k: &mut Kernel, domain: usize, cpu: u32) -> bool {
        let home = &self.domains[domain];
        if k.now - home.rotated_at < ROTATE_INTERVAL_NS {
            return false;
        }
        for place in 1..self.steal_order[domain].len() {
            let other = self.steal_order[domain][place];
            let (theirs, ours) = (&self.domains[other], &self.domains[domain]);
            if !theirs.somebody_waits()
                || k.now < theirs.waiting_since + 2 * self.slice_ns
                || !arith::more_crowded(theirs.weight, theirs.cpus, ours.weight, ours.cpus)
            {
                continue;
            }
            self.domains[domain].rotated_at = k.now;
            if self.move_shared(k, other, cpu) {
                return true;
            }
        }
        false
    }

    fn steal(&mut self, k: &mut Kernel, domain: usize, cpu: u32) -> bool {
        (1..self.steal_order[domain].len()).any(|place| {
            let other = self.steal_order[domain][place];
            self.domains[other].somebody_waits() && self.move_shared(k, other, cpu)
        })
    }
}
