// SPDX-License-Identifier: GPL-2.0-or-later
//! Threads of one core (SMT) share its leakage and its clock: while both run, each has half of them. How their
//! times lay within an interval is not known, so siblings are taken for independent of each other.

use crate::topology::{Cpu, MAX_CORE_TYPES, Topology};

/// What part of their cores CPUs have while they run.
#[derive(Debug, Default)]
pub(super) struct CoreShares {
    /// By CPU id: for what part of the interval it ran.
    busy: Vec<f32>,
    /// By CPU id.
    shares: Vec<f32>,
    /// By core type.
    means: [f32; MAX_CORE_TYPES],
}

impl CoreShares {
    /// Takes in what ran in an interval of so many seconds: the CPU where it was last, a core type, and for how
    /// long it ran there, s.
    pub(super) fn update(
        &mut self,
        elapsed: f32,
        runs: impl Iterator<Item = (i32, usize, f32)>,
        topology: &Topology,
    ) {
        if !topology.smt {
            self.shares.clear();
            return;
        }
        let nr = topology.nr_cpu_ids as usize;
        self.busy.clear();
        self.busy.resize(nr, 0.0);
        self.shares.clear();
        self.shares.resize(nr, 1.0);
        // Where on a core type it ran before it was moved to another is not known: anywhere.
        let mut anywhere = [0.0; MAX_CORE_TYPES];
        for (cpu, core_type, seconds) in runs {
            match cpu_of(cpu, core_type, topology) {
                Some(cpu) => self.busy[cpu.id as usize] += seconds / elapsed,
                None => anywhere[core_type] += seconds / elapsed,
            }
        }
        for (kind, more) in topology.types.iter().zip(anywhere) {
            for &id in &kind.cpus {
                let busy = &mut self.busy[id as usize];
                *busy = (*busy + more / kind.cpus.len() as f32).min(1.0);
            }
        }
        let mut sums = [(0.0, 0.0); MAX_CORE_TYPES];
        for cpu in &topology.cpus {
            let others = cpu.siblings.iter().filter(|&&id| id != cpu.id);
            let beside: f32 = others.map(|&id| self.busy[id as usize]).sum();
            let share = match cpu.siblings.len() {
                0..=2 => 1.0 - beside / 2.0,
                _ => 1.0 / (1.0 + beside),
            };
            let id = cpu.id as usize;
            self.shares[id] = share;
            if let Some((weighted, busy)) = sums.get_mut(cpu.core_type) {
                *weighted += share * self.busy[id];
                *busy += self.busy[id];
            }
        }
        self.means = sums.map(|(weighted, busy)| if busy > 0.0 { weighted / busy } else { 1.0 });
    }

    /// What part of its core a thread had that was last on `cpu` and ran on a core type; 1 without SMT.
    pub(super) fn of(&self, cpu: i32, core_type: usize, topology: &Topology) -> f32 {
        if self.shares.is_empty() {
            return 1.0;
        }
        let cpu = cpu_of(cpu, core_type, topology);
        cpu.map_or(self.means[core_type], |cpu| self.shares[cpu.id as usize])
    }

    /// The mean over what ran on a core type.
    pub(super) fn mean(&self, core_type: usize) -> f64 {
        match self.shares.is_empty() {
            true => 1.0,
            false => self.means[core_type].into(),
        }
    }
}

/// The CPU where a thread was last, if it is of a core type.
fn cpu_of(id: i32, core_type: usize, topology: &Topology) -> Option<&Cpu> {
    let cpu = topology.cpu(id.try_into().ok()?)?;
    (cpu.core_type == core_type).then_some(cpu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{board, with_smt};

    #[test]
    fn siblings_share_a_core_for_as_long_as_both_run() {
        let topology = with_smt(board(4, 2), 0);
        let mut shares = CoreShares::default();
        // CPUs 0 and 1 are a core, 2 and 3 another.
        let runs = [(0, 0, 1.0), (1, 0, 0.5), (2, 0, 1.0), (4, 1, 1.0)];
        shares.update(1.0, runs.into_iter(), &topology);
        let of = |cpu, core_type| shares.of(cpu, core_type, &topology);
        assert_eq!([of(0, 0), of(1, 0), of(2, 0)], [0.75, 0.5, 1.0]);
        assert_eq!(of(4, 1), 1.0, "no sibling");
        // What was on the fast cores before it came here had what is usual there.
        assert_eq!(of(4, 0), of(-1, 0));
        assert!((shares.mean(0) - 2.0 / 2.5).abs() < 1e-6);
        // Both cores' time is what they ran in all.
        let all: f32 = runs[..3]
            .iter()
            .map(|&(cpu, t, seconds)| seconds * of(cpu, t))
            .sum();
        assert_eq!(all, 2.0);
        shares.update(1.0, [(5, 0, 1.0)].into_iter(), &topology);
        assert!(shares.busy[..4].iter().all(|&busy| busy == 0.25));
        shares.update(1.0, [].into_iter(), &board(4, 2));
        assert_eq!(shares.of(0, 0, &topology), 1.0);
    }
}
