// SPDX-License-Identifier: GPL-2.0-only
//! Sets of CPUs, a bit each.

/// A set of CPUs of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuSet {
    words: Vec<u64>,
}

impl CpuSet {
    /// No CPU, of a machine with `cpus`.
    pub(super) fn empty(cpus: usize) -> Self {
        Self {
            words: vec![0; cpus.div_ceil(64)],
        }
    }

    /// These CPUs, of a machine with `cpus`.
    pub(super) fn of(cpus: usize, members: impl IntoIterator<Item = u32>) -> Self {
        let mut set = Self::empty(cpus);
        members.into_iter().for_each(|cpu| set.set(cpu, true));
        set
    }

    pub(super) fn contains(&self, cpu: u32) -> bool {
        let word = self.words.get(cpu as usize / 64);
        word.is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    pub(super) fn set(&mut self, cpu: u32, member: bool) {
        let word = &mut self.words[cpu as usize / 64];
        *word = *word & !(1 << (cpu % 64)) | u64::from(member) << (cpu % 64);
    }

    /// Takes a CPU out; whether it was in.
    pub(super) fn take(&mut self, cpu: u32) -> bool {
        let was = self.contains(cpu);
        self.set(cpu, false);
        was
    }

    pub(super) fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// The first member of this and both others, at or after `from`, else the first of all.
    pub(super) fn first_common(&self, other: &Self, third: &Self, from: u32) -> Option<u32> {
        let common = |index: usize| self.words[index] & other.words[index] & third.words[index];
        let start = from as usize / 64 % self.words.len().max(1);
        let ahead = u64::MAX << (from % 64);
        let bit = |index: usize, mask: u64| {
            let word = common(index) & mask;
            (word != 0).then(|| index as u32 * 64 + word.trailing_zeros())
        };
        if self.words.is_empty() {
            return None;
        }
        bit(start, ahead)
            .or_else(|| (start + 1..self.words.len()).find_map(|i| bit(i, u64::MAX)))
            .or_else(|| (0..=start).find_map(|i| bit(i, u64::MAX)))
    }

    /// Members, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let words = self.words.iter().enumerate();
        words.flat_map(|(index, &word)| {
            let bits = (0..64).filter(move |bit| word >> bit & 1 == 1);
            bits.map(move |bit| index as u32 * 64 + bit)
        })
    }

    /// The first member.
    pub(super) fn first(&self) -> Option<u32> {
        self.iter().next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_goes_round() {
        let all = CpuSet::of(130, 0..130);
        let some = CpuSet::of(130, [3, 70, 129]);
        let next = |from| some.first_common(&all, &all, from);
        assert_eq!(next(0), Some(3));
        assert_eq!(next(4), Some(70));
        assert_eq!(next(71), Some(129));
        assert_eq!(CpuSet::of(130, [3]).first_common(&all, &all, 129), Some(3));
        assert_eq!(some.first_common(&CpuSet::of(130, [5]), &all, 0), None);
        assert_eq!(some.iter().collect::<Vec<_>>(), [3, 70, 129]);
        assert_eq!((some.len(), some.first()), (3, Some(3)));
    }

    #[test]
    fn taking_says_whether_it_was_there() {
        let mut set = CpuSet::of(8, [1, 2]);
        assert!(set.take(1));
        assert!(!set.take(1));
    }
}
