// SPDX-License-Identifier: GPL-2.0-or-later
//! Fixed-point numbers of `src/bpf/forest.h`: features and scores are the same integers in training,
//! in the agent and in BPF.

/// Fraction bits of a feature.
pub const FEATURE_BITS: u32 = 24;
/// Fraction bits of a score.
pub const SCORE_BITS: u32 = 20;

/// One, as a feature.
pub const FEATURE_ONE: f64 = (1u64 << FEATURE_BITS) as f64;
/// One, as a score.
pub const SCORE_ONE: f64 = (1u64 << SCORE_BITS) as f64;

/// Events per cycle (or per instruction), in 1/2^24; the most is 256. No cycle: 0.
pub fn feature(count: u64, cycles: u64) -> u32 {
    if cycles == 0 {
        return 0;
    }
    let count = count.min((1 << (64 - FEATURE_BITS)) - 1);
    u32::try_from((count << FEATURE_BITS) / cycles).unwrap_or(u32::MAX)
}

/// One over a sum of scores that is 1 / SF, rounded down; `None` where that says nothing.
pub fn inverted(sum: i64) -> Option<i64> {
    (sum > 0).then(|| (1_i64 << (2 * SCORE_BITS)) / sum)
}

/// A feature's value that is known as a number, rounded down as [`feature`] does; `None` if it is
/// none that a feature can have.
pub fn quantised(value: f64) -> Option<u32> {
    let scaled = (value * FEATURE_ONE).floor();
    (value.is_finite() && (0.0..=f64::from(u32::MAX)).contains(&scaled)).then_some(scaled as u32)
}

/// As a number again, exactly.
pub fn number(feature: u32) -> f64 {
    f64::from(feature) / FEATURE_ONE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_rounded_down_and_end_at_256() {
        assert_eq!(feature(1, 2), 1 << 23);
        assert_eq!(feature(1, 3), (1 << 24) / 3);
        assert_eq!(feature(5, 0), 0);
        assert_eq!(feature(u64::MAX, 1), u32::MAX);
        assert_eq!(quantised(0.5), Some(1 << 23));
        assert_eq!(quantised(-0.1), None);
        assert_eq!(quantised(f64::NAN), None);
        assert_eq!(quantised(256.0), None);
        assert_eq!(number(feature(1, 2)), 0.5);
        assert_eq!(inverted(1 << (SCORE_BITS - 1)), Some(2 << SCORE_BITS));
        assert_eq!(inverted(0), None);
    }
}
