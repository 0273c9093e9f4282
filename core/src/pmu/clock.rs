// SPDX-License-Identifier: GPL-2.0-or-later
//! The highest clock of a core type, as samples tell it.

/// The highest clock that two samples in succession have reached, Hz. One alone may be wrong, as where a count was
/// read late, and would stand for ever. What was right is not forgotten: an idle machine, or one that is hot, runs for
/// hours at less.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HighestClock {
    highest: f64,
    before: f64,
}

impl HighestClock {
    /// Takes in the clock of a sample, Hz.
    pub fn note(&mut self, hz: f64) {
        let before = std::mem::replace(&mut self.before, hz);
        self.highest = self.highest.max(hz.min(before));
    }

    /// In Hz; `None` before the second sample.
    pub fn hz(&self) -> Option<f64> {
        (self.highest > 0.0).then_some(self.highest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_wrong_once_does_not_count_and_a_right_one_stands() {
        let mut clock = HighestClock::default();
        clock.note(3e9);
        assert_eq!(clock.hz(), None);
        for hz in [9e9, 3e9, 4e9, 4.1e9] {
            clock.note(hz);
        }
        assert_eq!(clock.hz(), Some(4e9));
        (0..1000).for_each(|_| clock.note(1e9));
        assert_eq!(clock.hz(), Some(4e9));
    }
}
