// SPDX-License-Identifier: GPL-2.0-or-later
//! Sets of CPUs as affinities have them, a bit each.

use std::fmt;

use crate::limits::MAX_CPUS;

/// A set of CPUs.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuMask(pub [u64; MAX_CPUS / 64]);

impl CpuMask {
    /// The CPUs `0..nr`.
    pub fn first(nr: u32) -> Self {
        Self::from_iter(0..nr)
    }

    /// Puts a CPU in, if there can be one of that number.
    pub fn insert(&mut self, cpu: u32) {
        self.set(cpu, true);
    }

    /// Puts a CPU in or takes it out, if there can be one of that number.
    #[inline]
    pub fn set(&mut self, cpu: u32, present: bool) {
        if let Some(word) = self.0.get_mut(cpu as usize / 64) {
            *word = *word & !(1 << (cpu % 64)) | u64::from(present) << (cpu % 64);
        }
    }

    /// Whether a CPU is in it.
    #[inline]
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

    /// Keeps those that are in another, too.
    pub fn intersect(&mut self, other: &Self) {
        let words = self.0.iter_mut().zip(other.0);
        words.for_each(|(word, other)| *word &= other);
    }

    /// Whether all of another are in it.
    pub fn holds(&self, other: &Self) -> bool {
        let mut words = self.0.iter().zip(other.0);
        words.all(|(word, other)| other & !word == 0)
    }

    /// The CPUs of it, ascending.
    pub fn cpus(&self) -> impl Iterator<Item = u32> {
        self.into_cpus()
    }

    /// The same from `cpu` on, and round.
    pub fn cpus_from(self, cpu: u32) -> impl Iterator<Item = u32> + Clone {
        let (mut after, mut before) = (self, self);
        let (word, bit) = (cpu as usize / 64, cpu % 64);
        after.0.iter_mut().take(word).for_each(|word| *word = 0);
        before
            .0
            .iter_mut()
            .skip(word + 1)
            .for_each(|word| *word = 0);
        if let (Some(after), Some(before)) = (after.0.get_mut(word), before.0.get_mut(word)) {
            *after &= u64::MAX << bit;
            *before &= !(u64::MAX << bit);
        }
        after.into_cpus().chain(before.into_cpus())
    }

    fn into_cpus(self) -> impl Iterator<Item = u32> + Clone {
        (0..).zip(self.0).flat_map(|(index, mut word)| {
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros())?;
                word &= word - 1;
                Some(index * 64 + bit)
            })
        })
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

impl fmt::Debug for CpuMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.cpus()).finish()
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
        some.set(63, false);
        assert_eq!(format!("{some:?}"), "[0, 1, 64, 1023]");
        assert!(Vec::from_iter(some.cpus_from(64)) == [64, 1023, 0, 1]);
        assert!(Vec::from_iter(some.cpus_from(1024)) == [0, 1, 64, 1023]);
        some.intersect(&CpuMask::first(65));
        assert_eq!(some, CpuMask::from_iter([0, 1, 64]));
    }
}
