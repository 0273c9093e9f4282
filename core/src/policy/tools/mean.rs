// SPDX-License-Identifier: GPL-2.0-or-later
//! Means that follow what they are the mean of, and how sure they are.

/// Of values that count alike at first, and then for one in so many.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mean {
    averaged: u32,
    value: f64,
}

impl Mean {
    /// Takes a value in, which counts for one in `most` at the least.
    pub(super) fn take(&mut self, value: f64, most: u32) {
        self.averaged = (self.averaged + 1).min(most);
        self.value += (value - self.value) / f64::from(self.averaged);
    }

    /// From now on all values so far count for so many.
    fn fade(&mut self, to: u32) {
        self.averaged = self.averaged.min(to);
    }

    /// `None` before there were so many values.
    pub(super) fn of_at_least(&self, values: u32) -> Option<f64> {
        (self.averaged >= values).then_some(self.value)
    }

    /// `None` before the first value.
    pub(super) fn get(&self) -> Option<f64> {
        self.of_at_least(1)
    }
}

/// What no number of samples tells of a speed, as part of it: what else ran meanwhile. Standard
/// deviation.
const UNTOLD: f64 = 0.05;

/// By how much the variance of a speed's logarithm grows in a second in which it was not measured: what
/// else runs changes, and so does the program. A standard deviation of 0.1 after a minute.
const DRIFT: f64 = 0.01 / 60.0;

/// After so long all values before count for one, ns.
const OLD_NS: u64 = 5_000_000_000;

/// A speed that was measured again and again, with its standard error.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MeasuredMean {
    mean: Mean,
    /// Of the squares.
    square: Mean,
    /// When it was measured last, ns.
    at_ns: u64,
}

/// A speed in any unit, and the variance of its logarithm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MeasuredSpeed {
    pub(crate) speed: f64,
    pub(crate) variance: f64,
}

impl MeasuredMean {
    /// Takes a value in, see [`Mean::take`].
    pub(super) fn take(&mut self, value: f64, most: u32, now_ns: u64) {
        if now_ns.saturating_sub(self.at_ns) > OLD_NS {
            self.mean.fade(1);
            self.square.fade(1);
        }
        self.mean.take(value, most);
        self.square.take(value * value, most);
        self.at_ns = now_ns;
    }

    /// The mean; `None` before the first value.
    pub(super) fn get(&self) -> Option<f64> {
        self.mean.get()
    }

    /// When the last value came, ns.
    pub(super) fn at_ns(&self) -> u64 {
        self.at_ns
    }

    /// The mean times `unit`, from so many values on, and how sure that is by now.
    pub(super) fn of_at_least(&self, values: u32, unit: f64, now_ns: u64) -> Option<MeasuredSpeed> {
        let mean = self.mean.of_at_least(values)?;
        let square = self.square.get()?;
        let noise = (square / (mean * mean) - 1.0).max(0.0) / f64::from(self.mean.averaged);
        let age = now_ns.saturating_sub(self.at_ns) as f64 / 1e9;
        Some(MeasuredSpeed {
            speed: mean * unit,
            variance: noise + UNTOLD * UNTOLD + DRIFT * age,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_and_age_make_a_speed_unsure_and_more_samples_surer() {
        let variance = |values: &[f64], age_s: u64| {
            let mut measured = MeasuredMean::default();
            values.iter().for_each(|&value| measured.take(value, 16, 0));
            let now = age_s * 1_000_000_000;
            measured.of_at_least(2, 3.0, now).unwrap().variance
        };
        let calm = variance(&[2.0, 2.0], 0);
        assert!((calm - UNTOLD * UNTOLD).abs() < 1e-12, "{calm}");
        let noisy = variance(&[1.9, 2.1], 0);
        assert!((noisy - calm - 0.0025 / 2.0).abs() < 1e-6, "{noisy}");
        let more = variance(&[1.9, 2.1, 1.9, 2.1], 0);
        assert!((more - calm - 0.0025 / 4.0).abs() < 1e-6, "{more}");
        let old = variance(&[2.0, 2.0], 60);
        assert!((old - calm - 0.01).abs() < 1e-9, "{old}");
    }

    #[test]
    fn it_is_told_in_a_unit_and_from_so_many_values_on() {
        let mut measured = MeasuredMean::default();
        measured.take(2.0, 16, 5);
        assert_eq!(measured.of_at_least(2, 3.0, 5), None);
        assert_eq!(measured.of_at_least(1, 3.0, 5).unwrap().speed, 6.0);
        assert_eq!((measured.get(), measured.at_ns()), (Some(2.0), 5));
    }

    #[test]
    fn what_was_measured_long_ago_counts_for_one_value() {
        let mut measured = MeasuredMean::default();
        (0..16).for_each(|_| measured.take(2.0, 16, 0));
        measured.take(1.0, 16, 2 * OLD_NS);
        assert_eq!(measured.get(), Some(1.5));
    }
}
