// SPDX-License-Identifier: GPL-2.0-only
//! Sums over sets of CPUs, and over the CPUs themselves.

use std::collections::BTreeMap;

use super::super::kernel::NativeKernel;
use super::super::task::TaskIndex;

impl NativeKernel {
    /// What may use the same few CPUs, and what cgroups take from weights by nice.
    pub(super) fn check_sets(&self, alive: &[TaskIndex]) -> Result<(), String> {
        let mut sets: BTreeMap<u16, u64> = BTreeMap::new();
        let mut surplus: BTreeMap<u32, i64> = BTreeMap::new();
        let topology = &self.machine.topology;
        for &task in alive {
            let cpus = self.allowed(task);
            let wrong = self.with_task_ctx(task, |ctx| {
                *sets.entry(ctx.cpu_set).or_default() += u64::from(ctx.counted_share);
                *surplus.entry(ctx.domain).or_default() += i64::from(ctx.counted_surplus);
                // A count holds no more.
                let some = 1 < cpus.len() && cpus.len() < self.machine.nr_cpus().min(256);
                let allowed = topology.cpus.iter().filter(|cpu| cpus.contains(cpu.id));
                let expected = match some {
                    true => allowed.map(|cpu| 1 << (8 * cpu.domain % 64)).sum(),
                    false => u64::MAX,
                };
                (ctx.nr_cpus_allowed > 0 && ctx.allowed_of != expected)
                    .then_some((ctx.allowed_of, expected))
            });
            if let Some((counted, expected)) = wrong.flatten() {
                let name = self.name(task);
                return Err(format!(
                    "{name} counts CPUs {counted:#x}, and may use {expected:#x}"
                ));
            }
        }
        for (set, weight) in sets.into_iter().filter(|&(set, _)| set != 0) {
            let weights = self.half.global::<u64>("cpu_set_weights");
            // SAFETY: within the array.
            let counted = unsafe { *weights.add(usize::from(set)) };
            if counted != weight {
                return Err(format!(
                    "set {set} counts weight {counted}; its tasks are {weight}"
                ));
            }
        }
        for domain in 0..topology.domains.len() as u32 {
            let of_tasks = surplus.get(&domain).copied().unwrap_or_default();
            let counted = self.domain_ctx(domain).surplus;
            if counted != of_tasks {
                return Err(format!(
                    "domain {domain} counts a surplus of {counted}; its tasks have {of_tasks}"
                ));
            }
        }
        Ok(())
    }

    /// CPUs that idle, or that another class has, as they are counted.
    pub(super) fn check_cpus(&self) -> Result<(), String> {
        let topology = &self.machine.topology;
        let contexts = self.half.global::<super::super::cpu_ctx>("cpu_ctxs");
        // SAFETY: within the array; no operation runs.
        let ctx = |cpu: u32| unsafe { &*contexts.add(cpu as usize) };
        let mut lost = 0;
        for (domain, of) in (0..).zip(&topology.domains) {
            let taken = of.cpus.iter().filter(|&&cpu| ctx(cpu).taken != 0).count() as u32;
            lost += u32::from(taken as usize == of.cpus.len());
            let counted = self.domain_ctx(domain).nr_taken;
            if counted != taken {
                return Err(format!(
                    "domain {domain} counts {counted} CPUs as taken, of {taken}"
                ));
            }
        }
        let counted: u32 = self.half.get("nr_lost_domains");
        if counted != lost {
            return Err(format!("{counted} domains count as taken, of {lost}"));
        }
        for index in 0..topology.types.len() {
            // One that came online since is of the first type.
            let of_type = |&cpu: &u32| {
                topology.cpu(cpu).map_or(0, |of| of.core_type) == index && ctx(cpu).is_idle != 0
            };
            let idle = (0..self.machine.nr_cpus()).filter(of_type).count() as u32;
            // SAFETY: within the array.
            let counted = unsafe { *self.half.global::<u32>("nr_idle").add(index) };
            if counted != idle {
                return Err(format!(
                    "type {index} counts {counted} idle CPUs, of {idle}"
                ));
            }
        }
        Ok(())
    }
}
