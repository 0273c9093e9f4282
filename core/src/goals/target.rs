// SPDX-License-Identifier: GPL-2.0-or-later
//! What a session is to reach: beats per second, as a program or a user says it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::rate::MAX_RATE;

/// Less often than each thousand seconds nothing can be steered.
pub const MIN_RATE: f64 = 1e-3;

/// Beats per second, from [`MIN_RATE`] to [`MAX_RATE`].
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct TargetRate(f64);

/// Why a target is none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TargetError {
    /// It is no number, or endless.
    NotFinite,
    /// It is below [`MIN_RATE`]: 0, or less than nothing, say.
    TooLow(f64),
    /// It is above [`MAX_RATE`].
    TooHigh(f64),
}

impl TargetRate {
    /// So many beats per second.
    ///
    /// # Errors
    /// See [`TargetError`].
    pub fn per_second(rate: f64) -> Result<Self, TargetError> {
        if !rate.is_finite() {
            Err(TargetError::NotFinite)
        } else if rate < MIN_RATE {
            Err(TargetError::TooLow(rate))
        } else if rate > MAX_RATE {
            Err(TargetError::TooHigh(rate))
        } else {
            Ok(Self(rate))
        }
    }

    /// A beat each so long.
    ///
    /// # Errors
    /// See [`TargetError`].
    pub fn each(duration: Duration) -> Result<Self, TargetError> {
        if duration.is_zero() {
            return Err(TargetError::TooHigh(f64::INFINITY));
        }
        Self::per_second(1.0 / duration.as_secs_f64())
    }

    /// Beats/s.
    pub fn rate(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for TargetRate {
    type Error = TargetError;

    fn try_from(rate: f64) -> Result<Self, TargetError> {
        Self::per_second(rate)
    }
}

impl From<TargetRate> for f64 {
    fn from(target: TargetRate) -> Self {
        target.0
    }
}

impl std::error::Error for TargetError {}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFinite => write!(f, "a target has to be a finite number of beats per second"),
            Self::TooLow(rate) => write!(
                f,
                "a target of {rate} beats per second is too low: the least is {MIN_RATE}"
            ),
            Self::TooHigh(rate) => write!(
                f,
                "a target of {rate} beats per second is too high: the most is {MAX_RATE}; let a \
                 beat stand for more work"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_number_that_can_be_reached() {
        for rate in [MIN_RATE, 0.5, 30.0, 59.94, MAX_RATE] {
            assert_eq!(TargetRate::per_second(rate).unwrap().rate(), rate);
        }
        let period = TargetRate::each(Duration::from_millis(40)).unwrap();
        assert!((period.rate() - 25.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_none_is_said_with_the_reason() {
        for (rate, reason) in [
            (0.0, "too low"),
            (-0.0, "too low"),
            (-30.0, "too low"),
            (f64::MIN_POSITIVE, "too low"),
            (1e9, "too high"),
            (f64::NAN, "finite"),
            (f64::INFINITY, "finite"),
            (f64::NEG_INFINITY, "finite"),
        ] {
            let error = TargetRate::per_second(rate).unwrap_err();
            assert!(error.to_string().contains(reason), "{rate}: {error}");
        }
        assert!(TargetRate::each(Duration::ZERO).is_err());
        assert!(TargetRate::each(Duration::from_nanos(1)).is_err());
        assert!(TargetRate::each(Duration::MAX).is_err());
        assert!(serde_json::from_str::<TargetRate>("0.0").is_err());
    }
}
