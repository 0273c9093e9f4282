// SPDX-License-Identifier: GPL-2.0-or-later
//! From a rate that was measured to what its session needs: the PI controller of Sironi et al. (2013),
//! equation 2, c(k) = c(k-1) + (1-p)/b (e(k) - a e(k-1)), whose closed loop has the one pole p.
//!
//! It starts each time from what was really allotted, and where that was not what decided the rate,
//! from what was really spent: so nothing winds up while a goal is out of reach.

use super::model::RateModel;
use super::rate::BeatInterval;

/// Nothing is needed less than this, fast cores: a session that has nothing cannot be measured.
/// A thousand that hardly do anything must not ask for the whole machine.
pub const LEAST_DEMAND: f64 = 0.001;

/// A demand grows to so many times what was spent at most, and falls to this part of it, at a time. By that alone goals far
/// out of reach had demands as they were given, so that in sharing by demands the lighter ones fell to the least shares.
const LEAP: f64 = 4.0;

/// It grows from no less than this, fast cores.
const LEAST_BASE: f64 = 0.01;

/// The pole is p at the target, and falls to 0 where the rate is off by so much, or by so many times
/// its noise: that is to be put right at once.
const FAR: f64 = 0.3;
const FAR_NOISES: f64 = 3.0;

/// Where measurements err by so much (standard deviation) the pole is [`SLOW`], if p is less.
const NOISY: f64 = 0.25;
const SLOW: f64 = 0.6;

/// No step is longer than so many times the one that would do if rate and cost were proportional: a
/// model that takes noise for memory would make the loop unstable.
const BOLD: f64 = 1.3;

/// The allotment decides the rate if so much of it was spent.
const BOUND: std::ops::RangeInclusive<f64> = 0.5..=1.1;

/// Whether it was the allotment that decided the rate.
pub fn decides(interval: &BeatInterval) -> bool {
    interval.allotted > 0.0 && BOUND.contains(&(interval.spent / interval.allotted))
}

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PiController {
    demand: f64,
    /// e(k-1), beats/s.
    error: f64,
}

impl PiController {
    /// Fast cores that it asks for; 0 before the first step.
    pub fn demand(&self) -> f64 {
        self.demand
    }

    /// The target is another, or the program in another phase: the error before says nothing now.
    pub fn forget(&mut self) {
        self.error = 0.0;
    }

    /// It asks for so much now.
    pub fn set(&mut self, demand: f64) {
        self.demand = demand.max(LEAST_DEMAND);
    }

    /// Raises the demand to so much, if it is less.
    pub fn raise(&mut self, to: f64) {
        self.demand = self.demand.max(to);
    }

    /// After an interval. `granted` is whether what was asked for was allotted, and `part` what part of the answer is given.
    pub fn step(
        &mut self,
        target: f64,
        interval: &BeatInterval,
        granted: bool,
        model: &RateModel,
        (pole, part): (f64, f64),
    ) {
        let BeatInterval {
            rate,
            spent,
            allotted,
            ..
        } = *interval;
        let error = target - rate;
        let noise = model.noise();
        let pole = pole + (SLOW - pole).max(0.0) * (noise / NOISY).min(1.0);
        let far = error.abs() / (FAR.max(FAR_NOISES * noise) * target);
        let rest = part * (1.0 - pole * (1.0 - far).max(0.0));
        let demand = if granted && decides(interval) {
            let step = rest / model.b() * (error - model.a() * self.error);
            // In proportion the target would take so much more, or less.
            let most = BOLD * allotted * (target / rate.max(f64::MIN_POSITIVE) - 1.0).abs();
            allotted + step.clamp(-most, most)
        } else {
            // What it would need to the model's best knowledge; that is approached.
            let need = spent + error / model.gain();
            self.demand + rest * (need - self.demand)
        };
        self.error = error;
        // What has less than it asks for, and uses that, asks for no less because of it.
        let kept = if !granted && decides(interval) {
            self.demand
        } else {
            0.0
        };
        let most = LEAP * spent.max(kept).max(LEAST_BASE);
        self.demand = demand.clamp(spent / LEAP, most).max(LEAST_DEMAND);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(rate: f64, spent: f64, allotted: f64) -> BeatInterval {
        BeatInterval {
            rate,
            spent,
            allotted,
            beats: 10,
        }
    }

    fn after(demand: f64, target: f64, interval: BeatInterval, granted: bool) -> f64 {
        let mut controller = PiController::default();
        controller.set(demand);
        let model = RateModel::new(30.0, 1.0);
        controller.step(target, &interval, granted, &model, (0.5, 1.0));
        controller.demand()
    }

    #[test]
    fn near_the_target_it_is_equation_2_and_far_from_it_there_at_once() {
        // Off by a tenth, a third of what is far: the pole is 1/3.
        let near = after(0.9, 30.0, interval(27.0, 0.9, 0.9), true);
        assert!((near - (0.9 + 2.0 / 3.0 * 0.1)).abs() < 1e-9, "{near}");
        let far = after(0.5, 30.0, interval(15.0, 0.5, 0.5), true);
        assert!((far - 1.0).abs() < 1e-9, "{far}");
    }

    #[test]
    fn where_the_allotment_decides_nothing_it_asks_for_what_the_rate_took() {
        // Beyond its allotment, because a CPU was idle; or not granted what it had asked for.
        for (spent, allotted, granted) in [(2.0, 0.5, true), (0.5, 0.5, false)] {
            let mut demand = 1.5;
            for _ in 0..20 {
                let interval = interval(30.0 * spent, spent, allotted);
                demand = after(demand, 30.0, interval, granted);
            }
            assert!((demand - 1.0).abs() < 1e-3, "{demand}");
        }
    }

    #[test]
    fn no_step_is_bolder_than_in_proportion_or_longer_than_a_leap() {
        // As the model has it, it would take 1 more.
        let bold = after(2.0, 60.0, interval(30.0, 2.0, 2.0), true);
        assert!((2.0..=2.0 + BOLD * 2.0).contains(&bold), "{bold}");
        let slow = after(1.0, 60.0, interval(57.0, 1.0, 1.0), true);
        assert!(
            (slow - (1.0 + BOLD * (60.0 / 57.0 - 1.0))).abs() < 0.05,
            "{slow}"
        );
        assert_eq!(after(1.0, 1e6, interval(1.0, 1.0, 1.0), true), 1.0 * LEAP);
        assert_eq!(after(1.0, 1.0, interval(1e6, 0.0, 1.0), true), LEAST_DEMAND);
    }

    #[test]
    fn what_is_given_little_asks_for_what_it_needs_if_it_uses_that() {
        for (spent, asks) in [(0.5, 20.0), (0.1, 0.4)] {
            let mut demand = 1.0;
            for _ in 0..20 {
                demand = after(demand, 600.0, interval(30.0 * spent, spent, 0.5), false);
            }
            assert!((demand - asks).abs() < 1e-3, "{demand} of {asks}");
        }
    }

    #[test]
    fn a_session_that_needs_a_thousandth_of_a_core_asks_for_no_more_than_twice_that() {
        let mut demand = 0.01;
        for _ in 0..20 {
            demand = after(demand, 0.036, interval(0.036, 0.0012, demand), true);
        }
        assert!((0.0012..0.0025).contains(&demand), "{demand}");
    }
}
