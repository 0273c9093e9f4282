// SPDX-License-Identifier: GPL-2.0-or-later
//! Whether a rate swings around its target because of how it is answered, and what part of an answer ends that.
//!
//! Where beats come late, as when a pipeline holds them, a rate says what was allotted an interval or more before. A full
//! answer is then given again before its effect is seen, and rate and allotment swing for ever. Such a swing is on either
//! side of the target for two intervals or more, in turn: beats that differ do not last so. Each change of sides after the
//! first makes answers smaller, and quiet makes them whole again.
//!
//! `cargo test -p hetero-core --test goals stable -- --nocapture` has what it is worth.

/// A rate is on one side of its target from so much of it on.
const EDGE: f64 = 0.15;

/// A change of sides comes within so many intervals of when it was last on the other, or it is none.
const PATIENCE: u8 = 6;

/// What a change of sides leaves of an answer, and what is left of it at the least.
const LEAVES: f64 = 0.7;
const LEAST: f64 = 0.25;

/// What of what was taken is given back an interval.
const RECOVERS: f64 = 0.01;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RateSwing {
    /// What is taken of an answer.
    taken: f64,
    /// Intervals in a row on one side, up to two, and the side as their sign.
    run: i8,
    /// The side on which it was last for two intervals, or 0, and how long ago.
    side: i8,
    age: u8,
    /// How often it changed sides, each time in time.
    changes: u8,
}

impl RateSwing {
    /// In the latest interval a rate was off its target by so much, relative to that. What part of an answer is to be given.
    pub fn part(&mut self, off: f64) -> f64 {
        let side = i8::from(off > EDGE) - i8::from(off < -EDGE);
        self.run = match side * self.run.signum() {
            1 => 2 * side,
            _ => side,
        };
        self.age = self.age.saturating_add(1);
        if self.age > PATIENCE {
            (self.side, self.changes) = (0, 0);
        }
        self.taken -= RECOVERS * self.taken;
        if self.run.abs() == 2 {
            if side == -self.side {
                self.changes = self.changes.saturating_add(1);
                if self.changes > 1 {
                    self.taken = (1.0 - LEAVES * (1.0 - self.taken)).min(1.0 - LEAST);
                }
            }
            (self.side, self.age) = (side, 0);
        }
        1.0 - self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of an answer after these, over and over.
    fn after(offs: &[f64], times: usize) -> f64 {
        let mut swing = RateSwing::default();
        let parts = std::iter::repeat_n(offs, times).flatten();
        parts.map(|&off| swing.part(off)).last().unwrap()
    }

    #[test]
    fn a_swing_makes_answers_smaller_and_quiet_makes_them_whole() {
        let swings = [0.2, 0.3, 0.05, -0.2, -0.3, -0.05];
        assert!(after(&swings, 20) < LEAST + 0.05);
        let mut swing = RateSwing::default();
        let quiet = std::iter::repeat_n(&0.05, 500);
        let part = std::iter::repeat_n(&swings, 20).flatten().chain(quiet);
        assert!(part.map(|&off| swing.part(off)).last().unwrap() > 0.99);
    }

    #[test]
    fn what_differs_from_beat_to_beat_is_no_swing_nor_is_another_phase() {
        for offs in [
            &[0.4, -0.4][..],
            &[0.4, 0.0, -0.4, 0.0],
            &[0.1, 0.1, -0.1, -0.1],
            &[0.4, 0.4, 0.0],
            // Much work at once, and what makes it good, now and then.
            &[-0.5, -0.5, 0.2, 0.2, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
            &[f64::NAN, f64::INFINITY, f64::NAN, f64::NEG_INFINITY],
        ] {
            assert_eq!(after(offs, 50), 1.0, "{offs:?}");
        }
    }
}
