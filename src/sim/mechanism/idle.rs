// SPDX-License-Identifier: GPL-2.0-only
//! Finding idle CPUs, after `src/bpf/idle.bpf.h`. CPUs have one thread each here: no siblings.

use crate::placement;
use crate::topology::{MAX_CORE_TYPES, Topology};

use super::super::cpu_set::CpuSet;
use super::super::kernel::Kernel;
use super::hetero::Hetero;
use super::queue::Queue;

/// Sets of CPUs, and in which order they are looked through.
pub(super) struct Masks {
    /// CPUs by core type, and by domain.
    pub(super) types: Vec<CpuSet>,
    pub(super) domains: Vec<CpuSet>,
    /// Idle ones by core type: looked at without claiming.
    pub(super) idle: Vec<CpuSet>,
    /// Core types in the order for a hint; the last row is for none.
    tiers: Vec<Vec<usize>>,
}

impl Masks {
    pub(super) fn new(topology: &Topology) -> Self {
        let nr = topology.cpus.len();
        let of = |cpus: &[u32]| CpuSet::of(nr, cpus.iter().copied());
        let types: Vec<CpuSet> = topology.types.iter().map(|kind| of(&kind.cpus)).collect();
        let order = |tiers: &mut dyn Iterator<Item = placement::Tier>| {
            tiers.map(|tier| tier.core_type).collect()
        };
        let hinted = (0..types.len())
            .map(|hint| order(&mut placement::tiers_for(topology, hint).into_iter()));
        let mut tiers: Vec<Vec<usize>> = hinted.collect();
        tiers.push(order(&mut placement::tiers(topology)));
        Self {
            idle: types.clone(),
            domains: topology
                .domains
                .iter()
                .map(|domain| of(&domain.cpus))
                .collect(),
            types,
            tiers,
        }
    }

    fn tiers(&self, hint: Option<usize>) -> &[usize] {
        let row = hint.unwrap_or(self.tiers.len() - 1);
        self.tiers.get(row).map_or(&[], |row| row)
    }
}

impl Hetero {
    pub(super) fn hint_of(&self, thread: u32) -> Option<usize> {
        self.slot_of(thread).and_then(|slot| slot.task.hint)
    }

    /// Its hint, if it may run there.
    pub(super) fn wished_type(&self, thread: u32) -> Option<usize> {
        self.hint_of(thread)
            .filter(|&hint| self.allows_type(thread, hint))
    }

    pub(super) fn allows_type(&self, thread: u32, core_type: usize) -> bool {
        self.ctx(thread).allowed_types >> core_type & 1 == 1
    }

    /// Claims an idle CPU out of `cpus`. A parked one that is found stays claimed.
    fn pick_idle(&self, k: &mut Kernel, thread: u32, cpus: &CpuSet) -> Option<u32> {
        const MAX_PARKED: usize = 8;
        for _ in 0..MAX_PARKED {
            let cpu = k.find_idle(thread, cpus)?;
            k.idle.take(cpu);
            if !self.is_parked_for(k, thread, cpu) {
                return Some(cpu);
            }
        }
        None
    }

    /// Claims the only CPU that a thread may use, if it is idle.
    fn claim_only(&self, k: &mut Kernel, thread: u32, cpu: u32) -> Option<u32> {
        (!self.is_parked_for(k, thread, cpu) && k.idle.take(cpu)).then_some(cpu)
    }

    fn claim_of_tier(
        &self,
        k: &mut Kernel,
        thread: u32,
        previous: u32,
        core_type: usize,
    ) -> Option<u32> {
        let here = k.cpu(previous);
        let domain = here.domain;
        if here.core_type == core_type {
            if k.may_use(thread, previous)
                && !self.is_parked_for(k, thread, previous)
                && k.idle.take(previous)
            {
                return Some(previous);
            }
            let near = self.pick_idle(k, thread, &self.masks.domains[domain]);
            if near.is_some() {
                return near;
            }
        }
        self.pick_idle(k, thread, &self.masks.types[core_type])
    }

    /// Claims the best idle CPU, in the order of the thread's hint.
    pub(super) fn claim_idle(&self, k: &mut Kernel, thread: u32, previous: u32) -> Option<u32> {
        let tiers = self.masks.tiers(self.hint_of(thread)).iter().copied();
        self.claim_idle_of(k, thread, previous, tiers)
    }

    fn claim_idle_of(
        &self,
        k: &mut Kernel,
        thread: u32,
        near: u32,
        mut types: impl Iterator<Item = usize>,
    ) -> Option<u32> {
        if let Some(cpu) = self.ctx(thread).pinned {
            return self.claim_only(k, thread, cpu);
        }
        types.find_map(|core_type| {
            if !self.allows_type(thread, core_type) || self.nr_idle[core_type] == 0 {
                return None;
            }
            self.claim_of_tier(k, thread, near, core_type)
        })
    }

    /// Core types that rank above that of `cpu`, whatever the hint: there are no rules here.
    fn better_types(&self, k: &Kernel, cpu: u32) -> impl Iterator<Item = usize> + use<'_> {
        let here = k.cpu(cpu).core_type;
        let types = self.masks.tiers(None).iter().copied();
        types.take_while(move |&core_type| core_type != here)
    }

    /// Is there an idle CPU that ranks above `cpu`? Claims nothing.
    pub(super) fn better_idle_exists(&self, k: &Kernel, thread: u32, cpu: u32) -> bool {
        let mut idle = self
            .better_types(k, cpu)
            .map(|core_type| &self.masks.idle[core_type]);
        idle.any(|idle| idle.intersects(k.allowed(thread)))
    }

    /// The same, and claims it.
    pub(super) fn claim_better_idle(&self, k: &mut Kernel, thread: u32, cpu: u32) -> Option<u32> {
        let better = self.better_types(k, cpu);
        self.claim_idle_of(k, thread, cpu, better)
    }

    pub(super) fn count_idle(&mut self, k: &Kernel, cpu: u32, idle: bool) {
        let core_type = k.cpu(cpu).core_type;
        let known = &mut self.cpus[cpu as usize].is_idle;
        if *known != idle {
            *known = idle;
            if idle {
                self.nr_idle[core_type] += 1;
            } else {
                self.nr_idle[core_type] -= 1;
            }
        }
    }

    pub(super) fn note_idle(&mut self, k: &Kernel, cpu: u32, idle: bool) {
        self.masks.idle[k.cpu(cpu).core_type].set(cpu, idle);
    }

    fn work_waits_for(&self, k: &Kernel, cpu: u32) -> bool {
        let takes = |queue: &Queue| queue.iter().any(|(thread, _)| k.may_use(thread, cpu));
        self.cpus[cpu as usize].queue.len() > 0
            || (!self.is_parked(k, cpu) && self.domains.iter().any(|d| takes(&d.queue)))
    }

    fn any_idle_for(&mut self, k: &mut Kernel, thread: u32) -> Option<u32> {
        let found = match self.ctx(thread).pinned {
            Some(cpu) => self.claim_only(k, thread, cpu),
            None => {
                let near = k.thread(thread).cpu;
                self.claim_idle(k, thread, near).or_else(|| {
                    let everywhere = k.affinities[0].clone();
                    self.pick_idle(k, thread, &everywhere)
                })
            }
        };
        // One that was claimed and not used looks busy to the kernel.
        found.or_else(|| {
            for idle in &mut self.masks.idle {
                let allowed = k.allowed(thread);
                if let Some(cpu) = idle.first_common(allowed, allowed, 0) {
                    idle.set(cpu, false);
                    return Some(cpu);
                }
            }
            None
        })
    }

    /// A thread was just counted as waiting: wakes an idle CPU that may take it.
    pub(super) fn wake_idle_for(&mut self, k: &mut Kernel, thread: u32) {
        if let Some(cpu) = self.any_idle_for(k, thread) {
            k.resched(cpu);
        }
    }

    /// A CPU was just marked idle: if something waits for it, looks again.
    pub(super) fn recheck_idle(&self, k: &mut Kernel, cpu: u32) {
        if self.work_waits_for(k, cpu) {
            k.resched(cpu);
        }
    }
}

/// Which core types `cpus` has some of, a bit each.
pub(super) fn types_of(masks: &Masks, cpus: &CpuSet) -> u8 {
    let types = masks.types.iter().enumerate().take(MAX_CORE_TYPES);
    types.fold(0, |bits, (t, of)| bits | u8::from(of.intersects(cpus)) << t)
}
