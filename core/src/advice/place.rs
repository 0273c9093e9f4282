// SPDX-License-Identifier: GPL-2.0-or-later
//! On which CPUs there is most room for a team.

use crate::topology::Topology;

/// Up to `threads` of the CPUs that `may` be used, best first: those that others leave most of, then the faster core type, then
/// cores of which none was taken yet, so that SMT siblings stay apart.
///
/// `taken` is by CPU, the part of the time in which others run there.
pub fn place(
    topology: &Topology,
    taken: &[f64],
    threads: usize,
    may: impl Fn(u32) -> bool,
) -> Vec<u32> {
    // What others use of a CPU's siblings counts for half of it. Tenths, or chance would decide.
    let used = |id: u32| {
        let at = |id: u32| taken.get(id as usize).copied().unwrap_or(0.0);
        let siblings = topology.cpu(id).map_or(&[][..], |cpu| &cpu.siblings);
        let beside = siblings.iter().filter(|&&of| of != id).map(|&of| at(of));
        ((at(id) + beside.fold(0.0, f64::max) / 2.0) * 4.0).round() as i64
    };
    let mut cpus: Vec<(bool, i64, usize, u32)> = Vec::new();
    for cpu in topology.cpus.iter().filter(|cpu| may(cpu.id)) {
        let mut usable = cpu.siblings.iter().filter(|&&of| may(of));
        let second = usable.next().is_some_and(|&first| first != cpu.id);
        cpus.push((second, used(cpu.id), cpu.core_type, cpu.id));
    }
    cpus.sort_unstable();
    cpus.truncate(threads);
    cpus.into_iter().map(|(.., id)| id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{board, with_smt};

    #[test]
    fn free_cpus_come_first_then_fast_ones() {
        let topology = board(2, 2);
        assert_eq!(place(&topology, &[], 4, |_| true), [0, 1, 2, 3]);
        assert_eq!(place(&topology, &[1.0], 3, |_| true), [1, 2, 3]);
        assert_eq!(place(&topology, &[0.05, 0.0], 1, |_| true), [0]);
        assert_eq!(place(&topology, &[], 9, |id| id > 1), [2, 3]);
    }

    #[test]
    fn siblings_stay_apart() {
        let topology = with_smt(board(4, 2), 0);
        assert_eq!(place(&topology, &[], 4, |_| true), [0, 2, 4, 5]);
        assert_eq!(place(&topology, &[], 6, |_| true), [0, 2, 4, 5, 1, 3]);
        // The core of which others have a thread comes last of its kind.
        assert_eq!(place(&topology, &[0.0, 1.0], 2, |_| true), [2, 4]);
        assert_eq!(place(&topology, &[], 2, |id| id == 1 || id == 2), [1, 2]);
    }
}
