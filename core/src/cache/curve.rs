// SPDX-License-Identifier: GPL-2.0-or-later
//! Miss-rate curves: what a thread misses of the last-level cache for each 1,000 instructions (MPKI), by
//! how much of it it occupies, gathered while its company changes (PMCTrack 2017, section 4.3.1).
//!
//! Pairs of occupancy and MPKI are averaged in bins, and made a curve by isotonic regression: more
//! room never means more misses. What lies outside of all that was seen is not told.

/// Sizes that a curve is told at: eighths of the cache.
pub const CURVE_POINTS: usize = 8;

/// Bins.
const BINS: usize = 2 * CURVE_POINTS;

/// A bin's means are of so many pairs at most: programs change.
const AVERAGED: f32 = 24.0;

/// More is no miss rate: each instruction would miss.
const MOST_MPKI: f64 = 1000.0;

/// How far beyond what was seen a curve is told, as part of the cache: half a point's distance.
const REACH: f64 = 0.5 / CURVE_POINTS as f64;

/// Pairs in a bin.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bin {
    /// How many, at most [`AVERAGED`].
    number: f32,
    /// Mean of the occupied part of the cache.
    part: f32,
    /// Mean of MPKI, and of its square.
    mpki: f32,
    square: f32,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MissRateCurve {
    bins: [Bin; BINS],
}

/// A curve at one size.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CurvePoint {
    /// Misses for 1,000 instructions.
    pub mpki: f64,
    /// Standard error of that.
    pub error: f64,
}

/// A curve at eighths of the cache, the smallest first; `None` where nothing is known.
pub type CurvePoints = [Option<CurvePoint>; CURVE_POINTS];

impl MissRateCurve {
    /// Takes in what it missed for 1,000 instructions with this part of the cache, 0 to 1.
    pub fn take(&mut self, part: f64, mpki: f64) {
        if !(0.0..=1.01).contains(&part) || !(0.0..=MOST_MPKI).contains(&mpki) {
            return;
        }
        let bin = &mut self.bins[((part * BINS as f64) as usize).min(BINS - 1)];
        bin.number = (bin.number + 1.0).min(AVERAGED);
        let step = 1.0 / bin.number;
        bin.part += (part as f32 - bin.part) * step;
        bin.mpki += (mpki as f32 - bin.mpki) * step;
        bin.square += ((mpki * mpki) as f32 - bin.square) * step;
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.bins.iter().all(|bin| bin.number == 0.0)
    }

    /// The range of occupied parts that was seen, least and most.
    pub fn seen(&self) -> Option<(f64, f64)> {
        let mut bins = self.bins.iter().filter(|bin| bin.number > 0.0);
        let first = bins.next()?;
        let last = bins.next_back().unwrap_or(first);
        Some((f64::from(first.part), f64::from(last.part)))
    }

    /// At eighths of the cache, the smallest first; `None` where nothing near was seen.
    pub fn points(&self) -> CurvePoints {
        let fitted = self.fitted();
        std::array::from_fn(|point| fitted.at(size(point), REACH))
    }

    /// The same in between: with this part of the cache; beyond what was seen the nearest that was.
    pub fn at(&self, part: f64) -> Option<CurvePoint> {
        self.fitted().at(part, f64::INFINITY)
    }

    /// To ask for several points.
    pub fn fitted(&self) -> FittedCurve {
        let mut fitted = FittedCurve::default();
        for bin in self.bins.iter().filter(|bin| bin.number > 0.0) {
            let variance = (bin.square - bin.mpki * bin.mpki).max(0.0);
            // A single one may be anything: as if half of it were error.
            let error = match bin.number {
                n if n < 2.0 => 0.5 * bin.mpki,
                n => (variance / n).sqrt(),
            };
            fitted.push(Level {
                part: f64::from(bin.part),
                weight: f64::from(bin.number),
                mpki: f64::from(bin.mpki),
                error: f64::from(error),
            });
        }
        fitted.settle();
        fitted
    }
}

/// The part of the cache that a point is of.
fn size(point: usize) -> f64 {
    (point + 1) as f64 / CURVE_POINTS as f64
}

/// Points that come from several curves, as one that only falls; each counts by how sure it is.
pub fn falling(points: &CurvePoints) -> CurvePoints {
    let mut fitted = FittedCurve::default();
    for (at, point) in points.iter().enumerate() {
        let Some(point) = point else { continue };
        let least = 0.01 * point.mpki;
        fitted.push(Level {
            part: size(at),
            weight: point.error.max(least).max(1e-6).powi(-2),
            mpki: point.mpki,
            error: point.error,
        });
    }
    fitted.settle();
    let known = |at: usize| points[at].and_then(|_| fitted.at(size(at), 0.0));
    std::array::from_fn(known)
}

#[derive(Clone, Copy, Debug, Default)]
struct Level {
    part: f64,
    weight: f64,
    mpki: f64,
    error: f64,
}

/// A curve that only falls.
#[derive(Clone, Copy, Debug, Default)]
pub struct FittedCurve {
    levels: [Level; BINS],
    number: usize,
}

impl FittedCurve {
    fn push(&mut self, level: Level) {
        self.levels[self.number] = level;
        self.number += 1;
    }

    /// Isotonic regression: pool adjacent violators.
    fn settle(&mut self) {
        // Mean, weight and number of each block.
        let mut blocks = [(0.0, 0.0, 0usize); BINS];
        let mut last = 0;
        for level in &self.levels[..self.number] {
            blocks[last] = (level.mpki, level.weight, 1);
            last += 1;
            while last > 1 && blocks[last - 1].0 > blocks[last - 2].0 {
                let (mean, weight, number) = blocks[last - 1];
                let before = &mut blocks[last - 2];
                let sum = before.1 + weight;
                before.0 = (before.0 * before.1 + mean * weight) / sum;
                (before.1, before.2) = (sum, before.2 + number);
                last -= 1;
            }
        }
        let mut levels = self.levels[..self.number].iter_mut();
        for (mean, _, number) in &blocks[..last] {
            for level in levels.by_ref().take(*number) {
                // What it was moved by is an error, too.
                level.error = level.error.hypot(level.mpki - mean);
                level.mpki = *mean;
            }
        }
    }

    /// With this part of the cache, unless that is further away from all that was seen than `reach`.
    pub fn at(&self, part: f64, reach: f64) -> Option<CurvePoint> {
        let levels = &self.levels[..self.number];
        let (first, last) = (levels.first()?, levels.last()?);
        if part + reach < first.part || part - reach > last.part {
            return None;
        }
        let after = levels.partition_point(|level| level.part < part);
        let told = |level: &Level| CurvePoint {
            mpki: level.mpki,
            error: level.error,
        };
        if after == 0 {
            return Some(told(first));
        }
        let Some(next) = levels.get(after) else {
            return Some(told(last));
        };
        let before = &levels[after - 1];
        let way = (part - before.part) / (next.part - before.part).max(f64::MIN_POSITIVE);
        let between = |a: f64, b: f64| a + (b - a) * way;
        // Between two it may be as high as the one and as low as the other.
        let gap = (before.mpki - next.mpki).max(0.0) * (way * (1.0 - way));
        Some(CurvePoint {
            mpki: between(before.mpki, next.mpki),
            error: between(before.error, next.error).hypot(gap),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A program with a knee at half of the cache.
    fn knee(part: f64) -> f64 {
        (20.0 - 38.0 * part).max(1.0)
    }

    #[test]
    fn it_is_what_was_seen_and_nothing_where_nothing_was() {
        let mut curve = MissRateCurve::default();
        assert!(curve.is_empty() && curve.at(0.5).is_none() && curve.seen().is_none());
        for i in 0..200 {
            let part = 0.2 + 0.5 * f64::from(i % 50) / 50.0;
            curve.take(part, knee(part));
        }
        let points = curve.points();
        assert_eq!(points[0], None);
        assert_eq!(points[7], None);
        for (i, point) in points.iter().enumerate().take(5).skip(1) {
            let (point, truth) = (point.unwrap(), knee((i + 1) as f64 / 8.0));
            assert!(
                (point.mpki - truth).abs() < 0.1 * truth + 0.6,
                "{i}: {point:?}"
            );
            assert!(point.error < 2.0, "{i}: {point:?}");
        }
        assert!((curve.at(1.0).unwrap().mpki - 1.0).abs() < 1e-6);
    }

    #[test]
    fn more_room_never_means_more_misses_and_noise_is_told() {
        let mut curve = MissRateCurve::default();
        for i in 0..40 {
            let noise = if i % 2 == 0 { 3.0 } else { -3.0 };
            curve.take(0.25, 10.0 + noise);
            curve.take(0.5, 11.0 + noise);
        }
        let points = curve.points();
        let (low, high) = (points[1].unwrap(), points[3].unwrap());
        assert!(
            (low.mpki - 10.5).abs() < 0.3 && low.mpki == high.mpki,
            "{points:?}"
        );
        assert!(low.error > 0.5, "{low:?}");
    }

    #[test]
    fn it_follows_a_program_that_changes() {
        let mut curve = MissRateCurve::default();
        for _ in 0..100 {
            curve.take(0.5, 20.0);
        }
        for _ in 0..100 {
            curve.take(0.5, 5.0);
        }
        assert!((curve.at(0.5).unwrap().mpki - 5.0).abs() < 0.5);
    }

    #[test]
    fn points_of_several_curves_fall_and_those_that_do_are_left_alone() {
        let point = |mpki, error| Some(CurvePoint { mpki, error });
        let mut points: CurvePoints = [None; CURVE_POINTS];
        (points[1], points[3]) = (point(20.0, 1.0), point(10.0, 1.0));
        assert_eq!(falling(&points), points);
        // The surer one counts for more.
        points[6] = point(12.0, 0.1);
        let told = falling(&points);
        assert!(
            told[3]
                == told[6].map(|of| CurvePoint {
                    error: told[3].unwrap().error,
                    ..of
                })
        );
        assert!((told[6].unwrap().mpki - 11.98).abs() < 0.01, "{told:?}");
        assert_eq!((told[0], told[1]), (None, points[1]));
    }

    proptest! {
        #[test]
        fn it_is_bounded_and_falls_whatever_comes(
            pairs in proptest::collection::vec((-1.0..2.0f64, -10.0..2000.0f64), 0..200),
        ) {
            let mut curve = MissRateCurve::default();
            for (part, mpki) in pairs {
                curve.take(part, mpki);
                curve.take(f64::NAN, mpki);
                curve.take(part, f64::INFINITY);
            }
            let told: Vec<CurvePoint> = curve.points().into_iter().flatten().collect();
            let sound = |p: &CurvePoint| (0.0..=MOST_MPKI).contains(&p.mpki) && p.error >= 0.0;
            prop_assert!(told.iter().all(sound), "{told:?}");
            prop_assert!(told.is_sorted_by(|a, b| a.mpki >= b.mpki - 1e-3), "{told:?}");
        }
    }
}
