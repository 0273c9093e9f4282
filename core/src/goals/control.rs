// SPDX-License-Identifier: GPL-2.0-or-later
//! From a rate that was measured to what its session needs: the PI controller of Sironi et al. (2013),
//! equation 2, c(k) = c(k-1) + (1-p)/b (e(k) - a e(k-1)), whose closed loop has the one pole p.
//!
//! It starts each time from what was really allotted, and where that was not what decided the rate,
//! from what was really spent: so nothing winds up while a goal is out of reach.

use super::model::RateModel;
use super::rate::BeatInterval;

/// Nothing is needed less than this, fast cores: a session that has nothing cannot be measured.
pub const LEAST_DEMAND: f64 = 0.01;

/// A demand grows to so many times what was spent at most, and falls to this part of it, at a time.
const LEAP: f64 = 4.0;

/// The allotment decides the rate if so much of it was spent.
const BOUND: std::ops::RangeInclusive<f64> = 0.8..=1.1;

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

    /// After an interval. `granted` is whether what was asked for was allotted.
    pub fn step(
        &mut self,
        target: f64,
        interval: &BeatInterval,
        granted: bool,
        model: &RateModel,
        pole: f64,
    ) {
        let BeatInterval {
            rate,
            spent,
            allotted,
            ..
        } = *interval;
        let error = target - rate;
        let rest = 1.0 - pole;
        let decides = granted && allotted > 0.0 && BOUND.contains(&(spent / allotted));
        let demand = if decides {
            allotted + rest / model.b() * (error - model.a() * self.error)
        } else {
            // What it would need to the model's best knowledge; that is approached.
            let need = spent + error / model.gain();
            self.demand + rest * (need - self.demand)
        };
        self.error = error;
        let base = spent.max(LEAST_DEMAND);
        self.demand = demand.clamp(base / LEAP, base * LEAP).max(LEAST_DEMAND);
    }
}
