// SPDX-License-Identifier: GPL-2.0-or-later
//! Sets of CPUs as affinities have them, a bit each.

/// The most CPUs there are: what the BPF half serves (`MAX_CPUS`).
const MOST: usize = 1024;

/// A set of CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuMask([u64; MOST / 64]);

impl CpuMask {
    /// Puts a CPU in, if there can be one of that number.
    pub fn insert(&mut self, cpu: u32) {
        if let Some(word) = self.0.get_mut(cpu as usize / 64) {
            *word |= 1 << (cpu % 64);
        }
    }

    /// Whether a CPU is in it.
    pub fn contains(&self, cpu: u32) -> bool {
        let word = self.0.get(cpu as usize / 64);
        word.is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// Puts all of another in.
    pub fn add(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word |= other;
        }
    }

    /// Whether all of another are in it.
    pub fn holds(&self, other: &Self) -> bool {
        let mut words = self.0.iter().zip(other.0);
        words.all(|(word, other)| other & !word == 0)
    }

    /// How many are in it.
    pub fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl FromIterator<u32> for CpuMask {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut mask = Self::default();
        cpus.into_iter().for_each(|cpu| mask.insert(cpu));
        mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_of_any_cpus_that_there_can_be() {
        let mut some = CpuMask::from_iter([0, 63, 64, 1023, 1024, u32::MAX]);
        assert_eq!((some.len(), some.is_empty()), (4, false));
        assert!(some.contains(1023) && !some.contains(1024) && !some.contains(1));
        let one = CpuMask::from_iter([64]);
        assert!(some.holds(&one) && !one.holds(&some) && one.holds(&CpuMask::default()));
        some.add(&CpuMask::from_iter([1]));
        assert!(some.contains(1) && some.len() == 5);
    }
}
