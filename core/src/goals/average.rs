// SPDX-License-Identifier: GPL-2.0-or-later
//! How many beats a session has for what it spends, averaged over as many intervals as agree.
//!
//! A program that works on several beats at once, and hands them out in order, says late what it has done: the CPU time
//! between two of its beats errs by what either was late. Such an error is of the two ends of an interval, however many
//! beats lie between. So it has opposite signs in neighbouring intervals, by which it is told from beats that take more
//! now, and it falls with the length of what is averaged over. Where there is none of it, each interval speaks for itself.

use super::rate::BeatInterval;

/// Intervals that are averaged over, at most.
const INTERVALS: usize = 16;

/// Intervals agree with those before them if they are no farther off than so many standard deviations.
const DEVIATIONS: f64 = 4.0;

/// What the cost of a beat differs by in itself, at the least (standard deviation).
const LEAST_NOISE: f64 = 0.02;

/// What one more interval counts in what beats are late by.
const WEIGHT: f64 = 1.0 / 24.0;

/// Beats that are late by so much of an interval (standard deviation of its cost) are averaged.
const LATE: f64 = 0.12;

/// What happened in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cost {
    beats: f64,
    /// Fast-core seconds.
    spent: f64,
}

/// See the module. It takes the same room for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BeatAverage {
    /// The latest is the last one.
    costs: [Cost; INTERVALS],
    len: usize,
    /// By how many beats the latest interval cost more than those before.
    excess: Option<f64>,
    /// Mean product of two of these that are neighbours: below 0 where beats are late.
    covariance: f64,
}

impl BeatAverage {
    /// Takes in an interval. Beats that a fast-core second brings, if intervals are to be averaged.
    pub fn take(&mut self, interval: &BeatInterval) -> Option<f64> {
        let beats = interval.beats as f64;
        let cost = Cost {
            beats,
            spent: interval.spent * beats / interval.rate,
        };
        if !(cost.spent > 0.0 && cost.spent.is_finite()) {
            self.forget();
            return None;
        }
        let known = sum(&self.costs[INTERVALS - self.len..]);
        if self.len > 0 {
            let excess = (cost.spent * known.beats / known.spent - beats).clamp(-beats, beats);
            if let Some(before) = self.excess.replace(excess) {
                self.covariance += WEIGHT * (excess * before - self.covariance);
            }
        }
        self.costs.copy_within(1.., 0);
        self.costs[INTERVALS - 1] = cost;
        self.len = (self.len + 1).min(INTERVALS);
        // Of one end, beats squared.
        let late = self.late().powi(2);
        if (2.0 * late).sqrt() < LATE * beats {
            self.len = 1;
            return None;
        }
        self.drop_what_disagrees(late);
        let agree = sum(&self.costs[INTERVALS - self.len..]);
        Some(agree.beats / agree.spent)
    }

    /// By how many beats an end of an interval errs (standard deviation).
    pub fn late(&self) -> f64 {
        (-self.covariance).max(0.0).sqrt()
    }

    /// What came before says nothing of what comes.
    pub fn forget(&mut self) {
        (self.len, self.excess) = (0, None);
    }

    /// Holds the latest interval, the latest two and so on against all before, and forgets what is least like them, if it is unlike.
    fn drop_what_disagrees(&mut self, late: f64) {
        let (mut most, mut kept) = (DEVIATIONS, self.len);
        for of in 1..self.len {
            let (old, new) = self.costs[INTERVALS - self.len..].split_at(self.len - of);
            let (old, new) = (sum(old), sum(new));
            let off = (new.spent / new.beats) / (old.spent / old.beats) - 1.0;
            // The beat between both is the end of either.
            let (a, b) = (1.0 / old.beats, 1.0 / new.beats);
            let ends = late * (a * a + (a + b) * (a + b) + b * b);
            let deviations = off.abs() / (ends + LEAST_NOISE * LEAST_NOISE * (a + b)).sqrt();
            if deviations > most {
                (most, kept) = (deviations, of);
            }
        }
        self.len = kept;
    }
}

fn sum(costs: &[Cost]) -> Cost {
    costs.iter().fold(Cost::default(), |sum, cost| Cost {
        beats: sum.beats + cost.beats,
        spent: sum.spent + cost.spent,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Intervals of two beats, each of which costs `work` fast-core seconds and comes up to `late` beats late, as a program has
    /// them that gets what 20 of them a second take.
    fn live(average: &mut BeatAverage, work: f64, late: f64, intervals: u64) -> Vec<Option<f64>> {
        let ends = (0..=intervals).map(|n| 2.0 * n as f64 + late * ((n * 6) % 13) as f64 / 13.0);
        let ends: Vec<f64> = ends.collect();
        let intervals = ends.windows(2).map(|ends| {
            let lasted = (ends[1] - ends[0]) / 20.0;
            average.take(&BeatInterval {
                rate: 2.0 / lasted,
                spent: 20.0 * work,
                allotted: 20.0 * work,
                beats: 2,
            })
        });
        intervals.collect()
    }

    #[test]
    fn where_no_beat_is_late_each_interval_speaks_for_itself() {
        let mut average = BeatAverage::default();
        for work in [0.05, 0.08, 0.05, 0.03] {
            let told = live(&mut average, work, 0.05, 40);
            assert!(told.iter().all(Option::is_none), "{work}: {told:?}");
        }
    }

    #[test]
    fn what_late_beats_cost_is_found_far_nearer_than_by_one_interval() {
        let mut average = BeatAverage::default();
        let told = live(&mut average, 0.05, 1.0, 200);
        let worst = |told: &[Option<f64>]| {
            let off = told.iter().map(|told| (told.unwrap() * 0.05 - 1.0).abs());
            off.fold(0.0, f64::max)
        };
        // One interval alone is up to half off.
        assert!(worst(&told[40..]) < 0.06, "{told:?}");
        let told = live(&mut average, 0.08, 1.0, 40);
        let late = told.iter().map(|told| told.unwrap() * 0.08);
        assert!(
            late.skip(8).all(|part| (part - 1.0).abs() < 0.15),
            "{told:?}"
        );
    }

    #[test]
    fn whatever_comes_it_is_finite_and_above_nothing() {
        let values = [
            0.0,
            1e-300,
            1e-9,
            1.0,
            1e6,
            f64::MAX,
            f64::INFINITY,
            f64::NAN,
        ];
        let mut average = BeatAverage::default();
        for rate in values {
            for spent in values {
                for beats in [0, 1, 1000, u64::MAX] {
                    let interval = BeatInterval {
                        rate,
                        spent,
                        allotted: 1.0,
                        beats,
                    };
                    let told = average.take(&interval);
                    assert!(
                        told.is_none_or(|told| told > 0.0 && told.is_finite()),
                        "{interval:?}: {told:?}"
                    );
                }
            }
        }
    }
}
