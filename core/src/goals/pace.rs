// SPDX-License-Identifier: GPL-2.0-or-later
//! How far a session is behind its schedule of beats or ahead of it, and what part of its demand puts that right.
//!
//! The controller goes by rates: what was missed while it learnt that a beat takes more now, or what one beat took
//! beyond others, it never makes good. A window of a second sees that. So what is behind gets more at once, and what
//! is ahead gets less, with the schedule's own time constant: beats are late by the integral of what the rate is off,
//! and this is a proportional term on that.
//!
//! `cargo test -p hetero-core --test goals -- --nocapture`, seeds that were not held out: 1.5, 0.15 and 1 were the best
//! of thirteen settings for programs with noise and phases.

use std::time::Duration;

/// A lag of all of the horizon would be answered by so much more than the demand, which makes it good in 1/1.5 of that.
const GAIN: f64 = 1.5;

/// No more than this part of the horizon is to be made good, or given back: so a goal that was out of reach for a while
/// is not surpassed for as long afterwards.
const MOST_LAG: f64 = 0.15;

/// The same where what beats cost is averaged ([`super::average`]), so that an answer is not taken for a cost: the best of six.
const GAIN_AVERAGED: f64 = 3.0;
const MOST_LAG_AVERAGED: f64 = 0.1;

/// A beat that does not come at all raises what is given by so much at most.
const MOST_MORE: f64 = 0.3;

/// The horizon has so many beats, if that is longer than the window.
const BEATS: f64 = 10.0;

/// See the module. Times are in seconds where nothing else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BeatPace {
    /// By how much the latest beat came after its schedule; below 0 it came before.
    lag: f64,
    /// The latest beat's number, and when it came, ns. `None` where the schedule has yet to begin.
    latest: Option<(u64, u64)>,
}

impl BeatPace {
    /// Beat number `beats` came at `at_ns`, and is the schedule's first one if there is none yet. What is behind is forgotten
    /// within the horizon: rates are what a program is held to.
    pub fn beat(&mut self, beats: u64, at_ns: u64, target: f64, window: Duration) {
        if let Some((before, before_ns)) = self.latest {
            let horizon = horizon(target, window);
            let passed = at_ns.saturating_sub(before_ns) as f64 * 1e-9;
            let came = beats.saturating_sub(before) as f64;
            let lag = self.lag * (-passed / horizon).exp() + passed - came / target;
            self.lag = lag.clamp(-MOST_LAG * horizon, MOST_LAG * horizon);
        }
        self.latest = Some((beats, at_ns));
    }

    /// What it is to get now, over what it would get on schedule: 0.7 to 1.3. `late` is how many seconds its beats err by
    /// (standard deviation) where what they cost is averaged; that settles how a lag is answered.
    pub fn part(&self, now_ns: u64, target: f64, window: Duration, late: Option<f64>) -> f64 {
        let Some((_, at_ns)) = self.latest else {
            return 1.0;
        };
        // The next beat is late once its time is over, and not before. Beats that err are there sooner or later by themselves:
        // to count the later ones alone would give too much on average.
        let silent = now_ns.saturating_sub(at_ns) as f64 * 1e-9;
        let due = 1.0 / target + late.unwrap_or(0.0);
        let lag = self.lag + (silent - due).max(0.0);
        let lag = lag / horizon(target, window);
        let more = match late {
            Some(_) => GAIN_AVERAGED * lag.clamp(-MOST_LAG_AVERAGED, MOST_LAG_AVERAGED),
            None => GAIN * lag,
        };
        1.0 + more.min(MOST_MORE)
    }
}

/// The time over which rates are judged.
fn horizon(target: f64, window: Duration) -> f64 {
    window.as_secs_f64().max(BEATS / target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MS;

    const WINDOW: Duration = Duration::from_secs(1);

    /// After so many beats, so many ms apart, from `pace` on.
    fn beaten(pace: &mut BeatPace, beats: u64, period_ms: u64, target: f64) -> f64 {
        let (first, at_ns) = pace.latest.unwrap_or((0, 0));
        for beat in 1..=beats {
            pace.beat(first + beat, at_ns + beat * period_ms * MS, target, WINDOW);
        }
        pace.part(at_ns + beats * period_ms * MS, target, WINDOW, None)
    }

    #[test]
    fn on_schedule_it_gets_its_demand_behind_more_and_ahead_less() {
        let mut pace = BeatPace::default();
        assert_eq!(pace.part(0, 20.0, WINDOW, None), 1.0);
        assert!((beaten(&mut pace, 100, 50, 20.0) - 1.0).abs() < 1e-9);
        // One beat that takes 50 ms longer: a twentieth of the horizon.
        let late = beaten(&mut pace, 1, 100, 20.0);
        assert!((late - 1.075).abs() < 1e-3, "{late}");
        // Made good, or forgotten.
        assert!((beaten(&mut pace.clone(), 1, 3, 20.0) - 1.0).abs() < 0.02);
        assert!((beaten(&mut pace, 100, 50, 20.0) - 1.0).abs() < 1e-2);
        let ahead = beaten(&mut pace, 5, 40, 20.0);
        assert!((0.9..0.95).contains(&ahead), "{ahead}");
    }

    #[test]
    fn no_more_is_made_good_or_given_back_than_a_part_of_the_horizon() {
        let (mut slow, mut fast) = (BeatPace::default(), BeatPace::default());
        let behind = beaten(&mut slow, 100, 500, 20.0);
        assert!((behind - (1.0 + GAIN * MOST_LAG)).abs() < 1e-9, "{behind}");
        let ahead = beaten(&mut fast, 1000, 5, 20.0);
        assert!((ahead - (1.0 - GAIN * MOST_LAG)).abs() < 1e-9, "{ahead}");
        // Three beats later it is nearly forgotten that it was.
        assert!(beaten(&mut slow, 4, 20, 20.0) < 1.1);
    }

    #[test]
    fn a_beat_is_late_once_its_time_is_over() {
        let mut pace = BeatPace::default();
        beaten(&mut pace, 3, 2000, 0.5);
        let at = |ms: u64| pace.part((6000 + ms) * MS, 0.5, WINDOW, None);
        assert!((at(1999) - 1.0).abs() < 1e-9);
        // The horizon is ten beats: 20 s.
        assert!((at(4000) - 1.15).abs() < 1e-9, "{}", at(4000));
        assert_eq!(at(600_000), 1.0 + MOST_MORE);
    }

    #[test]
    fn where_beats_err_one_is_late_by_what_is_beyond_that() {
        let mut pace = BeatPace::default();
        beaten(&mut pace, 100, 100, 10.0);
        let at = |ms: u64, late: Option<f64>| pace.part((10_000 + ms) * MS, 10.0, WINDOW, late);
        assert!((at(150, None) - 1.075).abs() < 1e-9);
        assert!((at(150, Some(0.05)) - 1.0).abs() < 1e-9);
        assert!((at(200, Some(0.05)) - 1.15).abs() < 1e-9);
    }

    #[test]
    fn whatever_a_page_says_the_part_is_bounded() {
        let hostile = [0, 1, 1000 * MS, u64::MAX / 2, u64::MAX];
        let mut pace = BeatPace::default();
        for target in [1e-3, 1.0, 1e6] {
            for beats in hostile {
                for at_ns in hostile {
                    pace.beat(beats, at_ns, target, WINDOW);
                    for now_ns in hostile {
                        for late in [None, Some(0.0), Some(1e300)] {
                            let part = pace.part(now_ns, target, WINDOW, late);
                            assert!((0.7..=1.0 + MOST_MORE).contains(&part), "{pace:?}: {part}");
                        }
                    }
                }
            }
        }
    }
}
