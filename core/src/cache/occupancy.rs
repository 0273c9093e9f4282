// SPDX-License-Identifier: GPL-2.0-or-later
//! How many lines of a last-level cache are whose, estimated from what each misses (West, Zaroo,
//! Waldspurger and Zhang, "Online Cache Modeling for Commodity Multicore Processors", 2010, on which
//! PMCTrack 2017, section 4.3.1, builds).
//!
//! With E lines of a cache of C, a thread that misses *m* times while all others miss *n* times has then
//!
//! ```text
//! E' = E + m (1 - E/C) - n E/C
//! ```
//!
//! for each miss evicts a line, and any line is as likely to be it. That is so for data that are used once. In a
//! cache that keeps what was used last, data that are used again and again stay, though its thread hardly
//! misses, so that the rule takes them for gone. Where references are counted beside misses, a line's
//! chance to be evicted is therefore weighed by
//!
//! ```text
//! h = m ln(a/m) / (a - m)
//! ```
//!
//! with *a* references. It is 1 for data that are used once (a = m), and falls with the part that hits. It follows
//! from the characteristic-time approximation (Che, Tung and Wang 2002): a line stays for a time T that is the
//! same for all; of N lines used at random a times a second a part of e^(-aT/N) is missed and
//! N (1 - e^(-aT/N)) are there, that is T (a - m) / ln(a/m). Without references h is 1, and all is West's.

/// Misses of more than this part of a cache are taken in in several steps: lines change hands meanwhile.
const STEP: f64 = 0.5;

/// Steps in an interval, at most; after so many misses nothing is left of what was.
const STEPS: f64 = 16.0;

/// The least chance to be evicted, of lines that are hit all the time.
const LEAST_HAZARD: f64 = 0.02;

/// Lines in a cache that belong to one, and what it did in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CacheShare {
    /// Lines.
    pub lines: f64,
    /// Misses in the interval, of all its threads.
    pub misses: f64,
    /// See [`hazard`].
    pub hazard: f64,
}

/// How likely a line is to be evicted beside one of data that are used once; *h* in the module. `misses` and
/// `references` are of the same time.
pub fn hazard(misses: f64, references: Option<f64>) -> f64 {
    let Some(references) = references.filter(|&all| all > misses && misses >= 0.0) else {
        return 1.0;
    };
    let missed = (misses / references).max(1e-9);
    if missed > 0.999 {
        return 1.0;
    }
    (missed * -missed.ln() / (1.0 - missed)).clamp(LEAST_HAZARD, 1.0)
}

/// Takes an interval in: what each of those that share a cache of `capacity` lines has at its end. Lines that
/// are none of theirs go like data that are used once.
pub fn step(capacity: f64, shares: &mut [CacheShare]) {
    let misses: f64 = shares.iter().map(|share| share.misses).sum();
    // Not so for what is no number.
    if !(capacity > 0.0 && misses > 0.0 && misses.is_finite()) {
        return;
    }
    let steps = (misses / (STEP * capacity)).ceil().clamp(1.0, STEPS);
    for _ in 0..steps as usize {
        let (mut held, mut weight) = (0.0, 0.0);
        for share in shares.iter() {
            held += share.lines;
            weight += share.lines * share.hazard;
        }
        weight += (capacity - held).max(0.0);
        // How often a line of hazard 1 is evicted.
        let rate = misses / steps / weight.max(1.0);
        for share in shares.iter_mut() {
            let often = rate * share.hazard;
            let settles = share.misses / steps / often.max(f64::MIN_POSITIVE);
            share.lines = settles + (share.lines - settles) * (-often).exp();
        }
        let held: f64 = shares.iter().map(|share| share.lines).sum();
        if held > capacity {
            for share in shares.iter_mut() {
                share.lines *= capacity / held;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const C: f64 = 1000.0;

    fn share(lines: f64, misses: f64, references: Option<f64>) -> CacheShare {
        CacheShare {
            lines,
            misses,
            hazard: hazard(misses, references),
        }
    }

    #[test]
    fn a_few_misses_are_wests_rule() {
        let mut shares = [share(400.0, 3.0, None), share(100.0, 5.0, None)];
        step(C, &mut shares);
        let [own, other] = shares.map(|share| share.lines);
        assert!(
            (own - (400.0 + 3.0 * 0.6 - 5.0 * 0.4)).abs() < 0.01,
            "{own}"
        );
        assert!(
            (other - (100.0 + 5.0 * 0.9 - 3.0 * 0.1)).abs() < 0.03,
            "{other}"
        );
    }

    #[test]
    fn in_the_long_run_lines_go_by_misses() {
        let mut shares = [share(900.0, 300.0, None), share(0.0, 100.0, None)];
        for _ in 0..40 {
            step(C, &mut shares);
        }
        assert!((shares[0].lines - 750.0).abs() < 1.0, "{shares:?}");
        // At once, too, if there were enough of them.
        let mut shares = [share(900.0, 3e6, None), share(0.0, 1e6, None)];
        step(C, &mut shares);
        assert!((shares[0].lines - 750.0).abs() < 1.0, "{shares:?}");
    }

    #[test]
    fn one_that_sleeps_loses_what_others_bring() {
        let mut shares = [share(800.0, 0.0, None), share(0.0, 1000.0, None)];
        step(C, &mut shares);
        let left = shares[0].lines;
        assert!((left - 800.0 / 1f64.exp()).abs() < 5.0, "{left}");
    }

    #[test]
    fn data_that_are_hit_stay() {
        // Used at random: 400 lines, of which 2 % of 10,000 references miss.
        let mut shares = [
            share(400.0, 200.0, Some(1e4)),
            share(0.0, 2000.0, Some(2000.0)),
        ];
        for _ in 0..20 {
            step(C, &mut shares);
        }
        let mean = (1e4 - 200.0) / (1e4 / 200.0f64).ln();
        let expected = C * mean / (mean + 2000.0);
        assert!(
            (shares[0].lines - expected).abs() < 5.0,
            "{shares:?}, not {expected}"
        );
    }

    #[test]
    fn what_hits_and_what_makes_no_sense() {
        assert_eq!(hazard(5.0, None), 1.0);
        assert_eq!(hazard(5.0, Some(5.0)), 1.0);
        assert_eq!(hazard(5.0, Some(2.0)), 1.0);
        assert_eq!(hazard(0.0, Some(9.0)), LEAST_HAZARD);
        assert!(hazard(1.0, Some(2.0)) > hazard(1.0, Some(3.0)));
        let mut shares = [share(5.0, f64::NAN, None)];
        step(C, &mut shares);
        step(0.0, &mut shares);
        step(f64::NAN, &mut shares);
        assert_eq!(shares[0].lines, 5.0);
    }

    proptest! {
        /// No share is less than nothing, nor all together more than there is.
        #[test]
        fn shares_stay_within_the_cache(
            of in proptest::collection::vec((0.0..2000.0f64, 0.0..1e7f64, 0.0..1e8f64), 1..8),
            steps in 1..20,
        ) {
            let each = of.iter().map(|&(lines, misses, more)| {
                share(lines / of.len() as f64, misses, Some(misses + more))
            });
            let mut shares: Vec<CacheShare> = each.collect();
            for _ in 0..steps {
                step(C, &mut shares);
            }
            let sum: f64 = shares.iter().map(|share| share.lines).sum();
            let held: f64 = of.iter().map(|of| of.0 / shares.len() as f64).sum();
            prop_assert!(sum <= C.max(held) * 1.001, "{shares:?}");
            prop_assert!(shares.iter().all(|share| share.lines >= 0.0), "{shares:?}");
        }
    }
}
