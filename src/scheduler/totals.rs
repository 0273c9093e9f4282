// SPDX-License-Identifier: GPL-2.0-only
//! What the BPF half, the policy and the task table have counted, in sums.

use std::collections::BTreeMap;

use super::Scheduler;
use super::counting::OpenEvents;
use crate::agent::Backend as _;
use crate::bpf::intf;
use crate::energy::EnergyDomain;
use crate::stats::{self, CoreTypeTotals, Counts, EnergyTotals, OfBpf, ProcessCaches, Totals};
use crate::table::TaskState;

impl Scheduler<'_> {
    pub(super) fn totals(&mut self) -> Totals {
        self.agent.measure(&mut self.half);
        self.agent.look(&mut self.half);
        let tasks = self.agent.tasks();
        let mut processes: BTreeMap<u32, stats::ProcessTotals> = BTreeMap::new();
        for task in tasks.iter().filter(|task| !task.kthread) {
            let process = processes.entry(task.tgid).or_default();
            if process.name.is_empty() || task.tid == task.tgid {
                process.name = task.comm.to_string();
            }
            process.threads += 1;
            process.runnable = task.nr_runnable.into();
            process.big_ns += task.run_ns[0];
            process.total_ns += task.total_ns();
            process.progress_ns += task.amp_progress.saturating_sub(task.first_progress);
        }
        for (tgid, process) in &mut processes {
            process.joules = self.agent.energy.process(*tgid);
        }
        for (tgid, bytes) in self.agent.caches.holders() {
            if let Some(process) = processes.get_mut(&tgid) {
                *process.caches.bytes.get_or_insert(0.0) += bytes;
            }
        }
        for known in self.resctrl.iter().flat_map(|resctrl| resctrl.all()) {
            if let Some(process) = processes.get_mut(&known.pid) {
                let counted = known.settled(self.agent.topology.largest_llc());
                process.caches = ProcessCaches {
                    bytes: counted.or(process.caches.bytes),
                    measured: counted.is_some(),
                    moved: known.rate,
                    confined: false,
                };
            }
        }
        for (tgid, process) in &mut processes {
            let confined = self.resctrl.as_ref().and_then(|it| it.confined(*tgid));
            process.caches.confined = confined.is_some();
        }
        if let Some(subscribers) = self.advice.subscribers() {
            subscribers.advised(|tgid, threads| {
                if let Some(process) = processes.get_mut(&tgid) {
                    process.advised = process.advised.max(threads);
                }
            });
        }
        if let Some(counting) = &self.half.counting {
            for (tgid, counted) in counting.processes() {
                if let Some(process) = processes.get_mut(&tgid) {
                    process.counted = counted;
                }
            }
        }

        let mut core_types: Vec<CoreTypeTotals> = self
            .agent
            .topology
            .types
            .iter()
            .map(|kind| CoreTypeTotals {
                name: kind.name.clone(),
                cpus: kind.cpus.len() as u64,
                busy_ns: 0,
                perf: 0,
            })
            .collect();
        let mut counted = OfBpf::default();
        if let Some(bss) = &self.half.skel.maps.bss_data {
            for cpu in &self.agent.topology.cpus {
                core_types[cpu.core_type].perf += u64::from(bss.cpu_ctxs[cpu.id as usize].perf);
            }
            for cpu in &bss.cpu_ctxs[..self.agent.topology.nr_cpu_ids as usize] {
                for (sum, value) in counted.iter_mut().zip(cpu.stats) {
                    *sum += value;
                }
            }
        }
        let busy_ns = self.half.busy_ns(self.agent.topology.nr_cpu_ids);
        for (kind, busy_ns) in core_types.iter_mut().zip(busy_ns) {
            kind.busy_ns = busy_ns;
        }
        let counting = self.half.counting.as_ref();
        let sampled = counting.map(OpenEvents::tally).unwrap_or_default();
        let applied = self.agent.applied();
        let tally = self.agent.policy().tally();
        Totals {
            at_ns: self.half.now(),
            policy: self.agent.name().to_string(),
            core_types,
            processes,
            tasks: tasks.len() as u64,
            runnable: tasks
                .iter()
                .filter(|task| task.state != TaskState::Blocked)
                .count() as u64,
            carried: counted[intf::stat_id_STAT_CARRIED as usize],
            energy: self.energy(),
            saves: self.saver.is_on(),
            counts: Counts {
                samples: sampled.received,
                samples_jumped: sampled.jumped,
                samples_spun: sampled.spun,
                samples_refused: sampled.refused,
                phase_hits: tally.phase_hits,
                phase_misses: tally.phase_misses,
                samples_learned: tally.samples_learned,
                phases_learned: tally.phases_learned,
                forced_swaps: tally.forced_swaps,
                nwc_episodes: tally.nwc_episodes,
                nwc_learned: tally.nwc_learned,
                nwc_ns: tally.nwc_ns,
                actions_applied: applied.applied,
                actions_stale: applied.stale,
                ..Counts::of_bpf(&counted)
            },
        }
    }

    fn energy(&self) -> Option<EnergyTotals> {
        let energy = self.half.sensors.energy();
        let types = self.agent.topology.types.len();
        let looked = energy
            .looked()?
            .saturating_duration_since(self.half.started);
        Some(EnergyTotals {
            at_ns: looked.as_nanos() as u64,
            joules: energy.reading().total_of(types)?,
            memory: energy.of(EnergyDomain::Memory),
            sums: self.agent.energy.sums(),
        })
    }
}
