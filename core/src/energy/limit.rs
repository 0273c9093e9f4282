// SPDX-License-Identifier: GPL-2.0-or-later
//! Whether a package is at its limit: it takes what its long-term power limit (PL1) allows, or the firmware lowers
//! clocks for heat.

/// It is at its power limit from such a part of it on, and no longer below the second.
const FROM: f64 = 0.95;
const BELOW: f64 = 0.85;

/// After so many looks in a row it is believed, and after so many without it is over.
const BELIEVED: u32 = 2;
const OVER: u32 = 5;

/// What a machine may be at the limit of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AtLimit {
    /// Takes so many W of so many.
    Power(f64, f64),
    /// The firmware has lowered clocks for heat.
    Heat,
}

/// What is seen in one look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LimitSigns {
    /// What packages took since the last look, W.
    pub watts: Option<f64>,
    /// What they may take for long, W.
    pub limit: Option<f64>,
    /// Clocks were lowered for heat since the last look.
    pub throttled: bool,
}

/// Judges look by look.
#[derive(Clone, Copy, Debug, Default)]
pub struct LimitJudge {
    seen: u32,
    missed: u32,
    at: Option<AtLimit>,
}

impl LimitJudge {
    /// Takes a look in; what limits now.
    pub fn take(&mut self, signs: &LimitSigns) -> Option<AtLimit> {
        let part = signs
            .watts
            .zip(signs.limit)
            .filter(|&(watts, limit)| watts.is_finite() && limit > 0.0);
        let reached = |from: f64| part.filter(|&(watts, limit)| watts >= from * limit);
        let sign = match (signs.throttled, reached(FROM)) {
            (true, _) => Some(AtLimit::Heat),
            (false, Some((watts, limit))) => Some(AtLimit::Power(watts, limit)),
            (false, None) => None,
        };
        match sign {
            Some(sign) => {
                (self.seen, self.missed) = (self.seen.saturating_add(1), 0);
                if self.seen >= BELIEVED {
                    self.at = Some(sign);
                }
            }
            None => {
                self.seen = 0;
                // Between the two parts it stays as it is.
                self.missed = match reached(BELOW) {
                    Some(_) => 0,
                    None => self.missed.saturating_add(1),
                };
                if self.missed >= OVER {
                    self.at = None;
                }
            }
        }
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn power(watts: f64) -> LimitSigns {
        LimitSigns {
            watts: Some(watts),
            limit: Some(15.0),
            throttled: false,
        }
    }

    #[test]
    fn one_look_is_not_believed_and_it_ends_when_much_less_is_taken_for_a_while() {
        let mut judge = LimitJudge::default();
        assert_eq!(judge.take(&power(15.0)), None);
        assert_eq!(judge.take(&power(10.0)), None);
        assert_eq!(judge.take(&power(14.9)), None);
        assert_eq!(judge.take(&power(15.1)), Some(AtLimit::Power(15.1, 15.0)));
        for _ in 0..20 {
            assert!(judge.take(&power(13.5)).is_some(), "little less");
        }
        for _ in 1..OVER {
            assert!(judge.take(&power(8.0)).is_some());
        }
        assert_eq!(judge.take(&power(8.0)), None);
    }

    #[test]
    fn heat_needs_no_sensor_and_nonsense_says_nothing() {
        let mut judge = LimitJudge::default();
        let hot = LimitSigns {
            throttled: true,
            ..LimitSigns::default()
        };
        judge.take(&hot);
        assert_eq!(judge.take(&hot), Some(AtLimit::Heat));
        let mut judge = LimitJudge::default();
        for _ in 0..10 {
            for (watts, limit) in [
                (f64::NAN, 15.0),
                (20.0, 0.0),
                (20.0, -1.0),
                (f64::INFINITY, 15.0),
            ] {
                let signs = LimitSigns {
                    watts: Some(watts),
                    limit: Some(limit),
                    throttled: false,
                };
                assert_eq!(judge.take(&signs), None);
            }
            assert_eq!(judge.take(&LimitSigns::default()), None);
        }
    }
}
