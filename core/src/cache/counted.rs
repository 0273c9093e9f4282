// SPDX-License-Identifier: GPL-2.0-or-later
//! Pairs of occupancy and MPKI of a thread whose occupancy hardware counts, for its miss-rate curve.
//!
//! A reading of what a process holds is told at the look after it was made. So what a thread misses between two readings are
//! its misses between the looks that told of the two before:
//!
//! ```text
//! looks     k          k+1          k+2
//! read      R(k)       R(k+1)
//! told                 R(k)         R(k+1)
//! ```

use crate::topology::MAX_CORE_TYPES;

/// What lies farther apart, ns, are no readings one after the other: their time is not that between looks. So are those closer
/// to each other.
const BETWEEN_NS: std::ops::Range<u64> = 500_000_000..2_000_000_000;

/// Fewer samples on a core type say too little.
const LEAST_SAMPLES: u32 = 3;

/// After so many samples on a core type without a reading, some ten seconds, its process is taken to be counted no more.
const STALE: u32 = 256;

/// On a core type between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Missed {
    samples: u32,
    instructions: f64,
    misses: f64,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CountedLines {
    /// The last reading: when it was made, ns, and how much the thread had, lines, of which cache.
    at_ns: u64,
    lines: f64,
    llc: usize,
    /// By core type: since it was told, and in the interval before.
    since: [Missed; MAX_CORE_TYPES],
    before: [Missed; MAX_CORE_TYPES],
}

impl CountedLines {
    /// Takes note of a sample.
    pub(super) fn observe(&mut self, core_type: usize, instructions: f64, misses: f64) {
        if let Some(sum) = self.since.get_mut(core_type) {
            sum.samples = sum.samples.saturating_add(1);
            sum.instructions += instructions;
            sum.misses += misses;
        }
    }

    /// Whether that is when the last reading was made.
    pub(super) fn is_of(&self, at_ns: u64) -> bool {
        self.at_ns == at_ns
    }

    /// Whether there was no reading for so long that there may be none any more.
    pub(super) fn is_stale(&self) -> bool {
        self.since.iter().map(|sum| sum.samples).max() > Some(STALE)
    }

    /// A reading, which was made at `at_ns`: what the thread held between it and the one before, lines, and its MPKI by core type; `None`
    /// where that was not steady within `steady` lines, or is not known.
    pub(super) fn read(
        &mut self,
        at_ns: u64,
        llc: usize,
        lines: f64,
        steady: f64,
    ) -> Option<(f64, [Option<f64>; MAX_CORE_TYPES])> {
        let follows = BETWEEN_NS.contains(&at_ns.saturating_sub(self.at_ns)) && llc == self.llc;
        let held =
            (follows && (lines - self.lines).abs() <= steady).then_some(0.5 * (lines + self.lines));
        let missed = std::mem::replace(&mut self.before, std::mem::take(&mut self.since));
        if !follows {
            self.before = Default::default();
        }
        (self.at_ns, self.lines, self.llc) = (at_ns, lines, llc);
        let mpki = |of: Missed| {
            let enough = of.samples >= LEAST_SAMPLES && of.instructions > 0.0;
            enough.then(|| 1000.0 * of.misses / of.instructions)
        };
        Some((held?, missed.map(mpki)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// Looks of a second, each with samples of so many misses before a reading of so many lines is told.
    fn looks(counted: &mut CountedLines, of: &[(f64, f64)]) -> Vec<Option<(f64, Option<f64>)>> {
        let looks = of.iter().enumerate().map(|(look, &(misses, lines))| {
            for _ in 0..4 {
                counted.observe(0, 1e6, misses);
            }
            let told = counted.read(look as u64 * S + 10 * S, 0, lines, 30.0);
            told.map(|(lines, mpki)| (lines, mpki[0]))
        });
        looks.collect()
    }

    #[test]
    fn misses_belong_to_the_readings_around_them() {
        let mut counted = CountedLines::default();
        // The last reading of 110 lines is told when there are 500 already.
        let told = looks(
            &mut counted,
            &[
                (1e3, 100.0),
                (2e3, 100.0),
                (3e3, 110.0),
                (9e3, 500.0),
                (9e3, 500.0),
                (9e3, 500.0),
            ],
        );
        assert_eq!(told[..2], [None, Some((100.0, None))]);
        assert_eq!(told[2], Some((105.0, Some(2.0))));
        // It has gone from 110 to 500.
        assert_eq!(told[3], None);
        assert_eq!(told[4..], [Some((500.0, Some(9.0))); 2]);
        assert!(counted.is_of(15 * S) && !counted.is_stale());
        for _ in 0..2 * STALE {
            counted.observe(0, 1e6, 1e3);
        }
        assert!(counted.is_stale());
    }

    #[test]
    fn readings_that_do_not_follow_each_other_say_nothing() {
        let mut counted = CountedLines::default();
        let steady = [(1e3, 100.0); 3];
        assert!(looks(&mut counted, &steady)[2].is_some());
        assert_eq!(counted.read(30 * S, 0, 100.0, 30.0), None, "later");
        counted.observe(0, 1e6, 1e3);
        let told = counted.read(31 * S, 0, 100.0, 30.0);
        assert_eq!(told.unwrap().1[0], None, "misses of longer");
        let told = counted.read(32 * S, 0, 100.0, 30.0);
        assert_eq!(told.unwrap().1[0], None, "one sample");
        assert_eq!(counted.read(33 * S, 1, 100.0, 30.0), None, "elsewhere");
    }
}
