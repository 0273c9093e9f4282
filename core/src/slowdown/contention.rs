// SPDX-License-Identifier: GPL-2.0-or-later
//! Contention by the bus transfer rate, BTR (CAMPS 2018, sections 2.2 and 4.2).
//!
//! The contention domain is the set of CPUs that share the last-level cache, whatever their type
//! ([`crate::topology::Cpu::llc`]): a cluster on the paper's boards, P and E cores together on
//! Alder Lake.

use serde::{Deserialize, Serialize};

use crate::topology::{MAX_CORE_TYPES, Topology};

/// Memory bandwidth of a machine that was not calibrated, bytes per cycle of its fastest core at
/// its highest clock: 4 bytes, where laptops and phones have 5 to 15. On machines with more,
/// contention is suspected too early, which costs samples and never poisons a history table.
pub const ASSUMED_BYTES_PER_CYCLE: f64 = 4.0;

/// What it most likely is: where less is assumed, one thread alone seems to fill memory, and a full cache is told as full
/// memory (`docs/decisions/assumed-bandwidth.md`).
const LIKELY_BYTES_PER_CYCLE: f64 = 12.0;

/// The clock of a machine of which nothing was measured yet, Hz.
const ASSUMED_CLOCK: f64 = 3.2e9;

/// When contention is low; both in bytes/s.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thresholds {
    /// A thread below this hardly waits for memory, whatever else uses it.
    pub low_btr: f64,
    /// A domain whose threads together stay below this does not queue for memory.
    pub high_btr: f64,
}

impl Thresholds {
    /// From the bandwidth, bytes/s, that the CPUs of a domain reach together; measured or declared.
    ///
    /// `low_btr` is 1/200 of it: 64 MB/s or a million lines a second on the assumed machine. At
    /// 100 ns a line that is a tenth of the time spent waiting, so even doubled latency costs no
    /// more than 10 %. `high_btr` is 3/10: a queue at that load waits 0.4 of the time that one
    /// transfer takes, which next to the latency is nothing.
    pub fn from_bandwidth(bytes_per_second: f64) -> Self {
        Self {
            low_btr: bytes_per_second / 200.0,
            high_btr: bytes_per_second * 3.0 / 10.0,
        }
    }

    /// For a machine that was not calibrated and whose highest clock is `hz`, if that is known.
    pub fn assumed(hz: Option<f64>) -> Self {
        Self::from_bandwidth(hz.unwrap_or(ASSUMED_CLOCK) * ASSUMED_BYTES_PER_CYCLE)
    }

    /// The bandwidth that these are of, bytes/s.
    pub fn bandwidth(&self) -> f64 {
        self.high_btr * 10.0 / 3.0
    }
}

/// What the memory of such a machine most likely transfers, bytes/s.
pub fn likely_bandwidth(hz: Option<f64>) -> f64 {
    hz.unwrap_or(ASSUMED_CLOCK) * LIKELY_BYTES_PER_CYCLE
}

/// How much memory is used at one moment: the latest BTR of the thread on each busy CPU.
#[derive(Clone, Debug, Default)]
pub struct MemoryLoad {
    /// By CPU id; `None` is idle.
    by_cpu: Vec<Option<f64>>,
    /// Sums by contention domain, bytes/s.
    by_domain: Vec<f64>,
}

impl MemoryLoad {
    /// From the threads that run: each one's CPU and latest BTR, bytes/s (0 if not known yet). Where
    /// two are said to be on one CPU, the greater one counts.
    pub fn of(topology: &Topology, running: impl Iterator<Item = (u32, f64)>) -> Self {
        let mut load = Self::default();
        load.refill(topology, running);
        load
    }

    /// As [`MemoryLoad::of`], in place.
    pub fn refill(&mut self, topology: &Topology, running: impl Iterator<Item = (u32, f64)>) {
        self.by_cpu.clear();
        self.by_cpu.resize(topology.nr_cpu_ids as usize, None);
        let domains = topology.cpus.iter().map(|cpu| cpu.llc + 1).max();
        self.by_domain.clear();
        self.by_domain.resize(domains.unwrap_or(0), 0.0);
        for (cpu, btr) in running {
            if let Some(slot) = self.by_cpu.get_mut(cpu as usize) {
                *slot = Some(slot.unwrap_or(0.0).max(btr));
            }
        }
        for cpu in &topology.cpus {
            self.by_domain[cpu.llc] += self.on(cpu.id).unwrap_or(0.0);
        }
    }

    /// As `other`, in place.
    pub fn copy(&mut self, other: &Self) {
        self.by_cpu.clone_from(&other.by_cpu);
        self.by_domain.clone_from(&other.by_domain);
    }

    /// BTR of the thread on a CPU, bytes/s; `None` if the CPU is idle.
    pub fn on(&self, cpu: u32) -> Option<f64> {
        self.by_cpu.get(cpu as usize).copied().flatten()
    }

    /// Summed BTR of a contention domain, bytes/s.
    pub fn in_domain(&self, llc: usize) -> f64 {
        self.by_domain.get(llc).copied().unwrap_or(0.0)
    }

    /// Moves BTR about, as a planned swap would; bytes/s, negative to take away.
    pub fn add(&mut self, llc: usize, btr: f64) {
        if let Some(sum) = self.by_domain.get_mut(llc) {
            *sum += btr;
        }
    }

    /// Whether a thread with BTR `own`, bytes/s, is undisturbed on `cpu`: its own BTR is below
    /// `low_btr`, or the domain's is below `high_btr`, or (not in the paper) the others' is below a
    /// tenth of that, for a thread that exceeds `high_btr` all alone is not in its own way. Of SMT siblings
    /// [`MemoryLoad::is_shared`] tells.
    pub fn is_low(&self, topology: &Topology, cpu: u32, own: f64, limits: &Thresholds) -> bool {
        let Some(here) = topology.cpu(cpu) else {
            return false;
        };
        let others = (self.in_domain(here.llc) - self.on(cpu).unwrap_or(0.0)).max(0.0);
        is_low(own, others, limits)
    }

    /// Whether another thread has a part of the core that `cpu` is of.
    pub fn is_shared(&self, topology: &Topology, cpu: u32) -> bool {
        let siblings = topology.cpu(cpu).map_or(&[][..], |here| &here.siblings);
        let mut others = siblings.iter().filter(|&&sibling| sibling != cpu);
        others.any(|&sibling| self.on(sibling).is_some())
    }

    /// What part of the threads that run on each core type share their core.
    pub fn shared_part(&self, topology: &Topology) -> [f64; MAX_CORE_TYPES] {
        let mut counts = [(0.0, 0.0); MAX_CORE_TYPES];
        if topology.smt {
            let busy = topology.cpus.iter();
            for cpu in busy.filter(|cpu| self.on(cpu.id).is_some()) {
                let (shared, all) = &mut counts[cpu.core_type];
                *all += 1.0;
                *shared += f64::from(u8::from(self.is_shared(topology, cpu.id)));
            }
        }
        counts.map(|(shared, all)| if all > 0.0 { shared / all } else { 0.0 })
    }
}

/// The rule of [`MemoryLoad::is_low`] for a thread with BTR `own` where others' is `others`, bytes/s.
pub fn is_low(own: f64, others: f64, limits: &Thresholds) -> bool {
    own < limits.low_btr || own + others < limits.high_btr || others < limits.high_btr / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{CoreType, Cpu, Source};

    const LIMITS: Thresholds = Thresholds {
        low_btr: 10.0,
        high_btr: 100.0,
    };

    /// CPUs 0 and 1 are siblings; 2 and 3 share a cache of their own, or (`shared`) with the others.
    fn topology(shared: bool) -> Topology {
        let cpu = |id: u32| Cpu {
            id,
            core_type: usize::from(id >= 2),
            domain: usize::from(id >= 2),
            core: if id == 1 { 0 } else { id },
            siblings: if id < 2 { vec![0, 1] } else { vec![id] },
            llc: usize::from(id >= 2 && !shared),
            package: 0,
            max_freq_khz: None,
            capacity: None,
            highest_perf: None,
        };
        Topology {
            types: Vec::<CoreType>::new(),
            domains: Vec::new(),
            cpus: (0..4).map(cpu).collect(),
            llc_bytes: Vec::new(),
            nr_cpu_ids: 4,
            smt: true,
            source: Source::Override,
            capacity_source: None,
            disagreements: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn low(shared: bool, running: &[(u32, f64)], cpu: u32, own: f64) -> bool {
        let topology = topology(shared);
        let load = MemoryLoad::of(&topology, running.iter().copied());
        load.is_low(&topology, cpu, own, &LIMITS)
    }

    #[test]
    fn contention_is_low_below_either_threshold() {
        assert!(low(false, &[(2, 50.0), (3, 40.0)], 2, 50.0));
        assert!(!low(false, &[(2, 50.0), (3, 60.0)], 2, 50.0));
        assert!(low(false, &[(2, 9.0), (3, 600.0)], 2, 9.0));
        assert!(
            low(false, &[(2, 500.0), (3, 9.0)], 2, 500.0),
            "alone with its own traffic"
        );
    }

    #[test]
    fn the_domain_is_whoever_shares_the_cache() {
        let running = [(0, 500.0), (2, 50.0)];
        assert!(low(false, &running, 2, 50.0));
        assert!(!low(true, &running, 2, 50.0));
    }

    #[test]
    fn a_core_is_shared_whatever_its_other_thread_does() {
        let topology = topology(false);
        let load = |running: &[(u32, f64)]| MemoryLoad::of(&topology, running.iter().copied());
        let one = load(&[(0, 1.0), (2, 1.0)]);
        assert!(!one.is_shared(&topology, 0) && one.is_shared(&topology, 1));
        assert!(!one.is_shared(&topology, 2) && !one.is_shared(&topology, 9));
        assert_eq!(one.shared_part(&topology)[..2], [0.0, 0.0]);
        let both = load(&[(0, 1.0), (1, 0.0), (2, 1.0)]);
        assert!(both.is_shared(&topology, 0));
        assert_eq!(both.shared_part(&topology)[..2], [1.0, 0.0]);
    }

    #[test]
    fn sums_take_one_thread_a_cpu_and_ignore_unknown_cpus() {
        let topology = topology(false);
        let mut load = MemoryLoad::of(&topology, [(2, 5.0), (2, 3.0), (9, 7.0)].into_iter());
        assert_eq!(load.in_domain(1), 5.0);
        load.add(1, -2.0);
        assert_eq!((load.in_domain(1), load.in_domain(0)), (3.0, 0.0));
        assert!(!load.is_low(&topology, 9, 0.0, &LIMITS));
    }

    #[test]
    fn without_calibration_the_thresholds_follow_the_clock() {
        let limits = Thresholds::assumed(Some(2.5e9));
        assert_eq!((limits.low_btr, limits.high_btr), (50e6, 3e9));
        assert!(Thresholds::assumed(None).low_btr > limits.low_btr);
    }
}
