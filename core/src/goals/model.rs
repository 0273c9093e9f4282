// SPDX-License-Identifier: GPL-2.0-or-later
//! How fast a session is with what it spends: r(k+1) = a r(k) + b c(k), equation 1 of Sironi et al.
//! (2013), with a and b estimated online by recursive least squares with forgetting.
//!
//! `c` is what was really spent between the same beats, so that `a` is small: it is only what a
//! pipeline still holds. At a steady rate a and b cannot be told apart; `a` then keeps what it was
//! by a prior, since a large one that is not true makes the controller nervous.

/// What an observation counts after one more: the last 25 count.
const FORGETTING: f64 = 0.96;

/// `a` is at most this: a rate of which less is new each interval is not steered but waited for.
const MAX_A: f64 = 0.9;

/// What the relative error of one measurement is taken for.
const NOISE: f64 = 0.05;
/// How far off `a` may be at first, and `b`, relative to itself, after one measurement.
const PRIOR_A: f64 = 0.04;
const PRIOR_B: f64 = 0.2;

/// A prediction that is off by so much, and by so many times its noise, is a surprise; so many one after
/// another in the same direction are another phase, and one is where a rate is so many times lower or higher.
const SURPRISE: f64 = 0.25;
const SURPRISE_NOISES: f64 = 3.0;
const SURPRISES: i8 = 2;
const SHOCK: f64 = 4.0;

/// The model is sure after so many intervals, if its predictions err by no more than this on average.
const LEARNT: u32 = 4;
const SURE: f64 = 0.2;

/// See the module. Rates are in beats/s, costs in fast cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateModel {
    a: f64,
    /// Beats/s by a fast core.
    b: f64,
    /// Covariance of a and b/`unit`, in units of [`NOISE`]: `aa`, `ab`, `bb`.
    covariance: [f64; 3],
    /// Rates are divided by this, so that they are about 1.
    unit: f64,
    surprises: i8,
    updates: u32,
    resets: u32,
    /// Mean relative error of predictions.
    error: f64,
}

impl RateModel {
    /// After the first measurement: proportional. Both are above 0.
    pub fn new(rate: f64, spent: f64) -> Self {
        let unit = rate.max(f64::MIN_POSITIVE);
        Self {
            a: 0.0,
            b: rate / spent,
            covariance: prior(1.0 / spent),
            unit,
            surprises: 0,
            updates: 1,
            resets: 0,
            error: 0.0,
        }
    }

    /// What of a rate is still there an interval later, 0 to 0.9.
    pub fn a(&self) -> f64 {
        self.a
    }

    /// Beats/s that a fast core brings within an interval.
    pub fn b(&self) -> f64 {
        self.b
    }

    /// Beats/s that a fast core brings for good.
    pub fn gain(&self) -> f64 {
        self.b / (1.0 - self.a)
    }

    /// Mean relative error of its predictions, the last ten or so.
    pub fn error(&self) -> f64 {
        self.error
    }

    /// What the relative error of a measurement is taken for (standard deviation).
    pub fn noise(&self) -> f64 {
        1.25 * self.error
    }

    /// Times that it began anew because the program was in another phase.
    pub fn resets(&self) -> u32 {
        self.resets
    }

    /// Whether it has been right often enough.
    pub fn is_sure(&self) -> bool {
        self.updates >= LEARNT && self.error <= SURE
    }

    /// The rate in an interval in which so much is spent, after one at rate `before`.
    pub fn predict(&self, before: f64, spent: f64) -> f64 {
        self.a * before + self.b * spent
    }

    /// Learns from an interval: `before` is the rate in the one before it. Where nothing was spent or
    /// nothing beat there is nothing to learn.
    pub fn update(&mut self, before: f64, spent: f64, rate: f64) {
        if !(rate > 0.0 && spent > 0.0) {
            return;
        }
        let predicted = self.predict(before, spent);
        let miss = rate / predicted.max(f64::MIN_POSITIVE) - 1.0;
        self.error += 0.1 * (miss.abs().min(1.0) - self.error);
        let surprise = SURPRISE.max(SURPRISE_NOISES * self.noise());
        self.surprises = match miss {
            // Half as fast is as much of a surprise as twice as fast.
            miss if miss > surprise => self.surprises.max(0) + 1,
            miss if miss < -surprise / (1.0 + surprise) => self.surprises.min(0) - 1,
            _ => 0,
        };
        if self.surprises.abs() >= SURPRISES || !(-1.0 + 1.0 / SHOCK..SHOCK - 1.0).contains(&miss) {
            *self = Self {
                resets: self.resets.saturating_add(1),
                error: 0.5 * self.error,
                ..Self::new(rate, spent)
            };
            return;
        }
        self.updates = self.updates.saturating_add(1);
        let (x, y) = (before / self.unit, spent);
        let [aa, ab, bb] = self.covariance;
        let (px, py) = (aa * x + ab * y, ab * x + bb * y);
        let noise = (rate / self.unit).max(0.01) * (self.noise() / NOISE).max(1.0);
        let size = FORGETTING * noise * noise + x * px + y * py;
        let residual = (rate - predicted) / self.unit;
        let (gain_a, gain_b) = (px / size, py / size);
        let a = self.a + gain_a * residual;
        self.b += gain_b * residual * self.unit;
        self.a = a.clamp(0.0, MAX_A);
        // What a would have explained beyond its bounds is b's to explain.
        self.b += (a - self.a) * before / spent;
        self.b = self.b.max(0.05 * rate / spent);
        let covariance = [
            (aa - gain_a * px) / FORGETTING,
            (ab - gain_a * py) / FORGETTING,
            (bb - gain_b * py) / FORGETTING,
        ];
        // Where nothing new is seen forgetting would make it grow without bound.
        let most = prior(self.b / self.unit);
        let excess = (covariance[0] / most[0]).max(covariance[2] / most[2]);
        self.covariance = covariance.map(|it| it / excess.max(1.0));
    }
}

fn prior(b: f64) -> [f64; 3] {
    [
        (PRIOR_A / NOISE).powi(2),
        0.0,
        (PRIOR_B * b / NOISE).powi(2),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lives on a plant with such a and b for so many intervals, with costs that differ.
    fn live(model: &mut RateModel, a: f64, b: f64, intervals: usize) -> f64 {
        let mut before = b;
        for k in 0..intervals {
            let spent = 1.0 + 0.5 * ((k * 7) % 5) as f64 / 5.0;
            let rate = a * before + b * spent;
            model.update(before, spent, rate);
            before = rate;
        }
        before
    }

    #[test]
    fn a_and_b_are_found() {
        for (a, b) in [(0.0, 30.0), (0.3, 2.0), (0.2, 5000.0), (0.05, 0.01)] {
            let mut model = RateModel::new(b, 1.0);
            live(&mut model, a, b, 200);
            assert!((model.a() - a).abs() < 0.1, "{model:?}");
            assert!(
                (model.gain() / (b / (1.0 - a)) - 1.0).abs() < 0.05,
                "{model:?}"
            );
            assert!(model.is_sure(), "{model:?}");
        }
    }

    #[test]
    fn another_phase_is_learnt_at_once() {
        for factor in [0.4, 2.5] {
            let mut model = RateModel::new(30.0, 1.0);
            live(&mut model, 0.0, 30.0, 50);
            live(&mut model, 0.0, 30.0 * factor, SURPRISES as usize);
            assert_eq!(model.resets(), 1, "{model:?}");
            assert!(
                (model.gain() / (30.0 * factor) - 1.0).abs() < 0.01,
                "{model:?}"
            );
        }
    }

    #[test]
    fn noise_alone_is_no_phase_and_makes_nothing_grow() {
        let mut model = RateModel::new(30.0, 1.0);
        for k in 0..10_000 {
            let noise = if k % 3 == 0 { 1.15 } else { 0.93 };
            model.update(30.0, 1.0, 30.0 * noise);
            let off = model.gain() / 30.0 - 1.0;
            assert!(off.abs() < if k < 10 { 0.2 } else { 0.1 }, "{k}: {model:?}");
        }
        assert_eq!(model.resets(), 0);
        assert!(model.covariance.iter().all(|it| it.is_finite()));
    }

    #[test]
    fn whatever_comes_it_stays_finite_and_b_above_nothing() {
        let values = [0.0, 1e-9, 1e-3, 1.0, 1e3, 1e6];
        let mut model = RateModel::new(1.0, 1.0);
        for before in values {
            for spent in values {
                for rate in values {
                    model.update(before, spent, rate);
                    assert!(model.b() > 0.0 && model.b().is_finite(), "{model:?}");
                    assert!((0.0..=MAX_A).contains(&model.a()), "{model:?}");
                    assert!(
                        model.covariance.iter().all(|it| it.is_finite()),
                        "{model:?}"
                    );
                }
            }
        }
        assert!(!model.is_sure());
    }
}
