// SPDX-License-Identifier: GPL-2.0-or-later
//! Miss-rate curves of a program's threads ([`crate::cache::curve`]): MPKI by eighths of the last-level cache of each
//! core type. What is kept is of one machine, so how large these caches are follows from the core type.
//!
//! Each size is a mean of its own, over the threads that were seen to hold about so much, and made one curve
//! that only falls when it is told.

use serde::{Deserialize, Serialize};

use super::check::agrees;
use super::kept::{KeptMean, Sure};
use crate::cache::{CURVE_POINTS, CurvePoint, CurvePoints, falling};
use crate::topology::MAX_CORE_TYPES;

/// Logarithms of MPKI at eighths of a cache, the smallest first; `None` where nothing is known.
pub type ThreadCurve = [Option<Sure>; CURVE_POINTS];

/// By core type.
pub type ThreadCurves = [ThreadCurve; MAX_CORE_TYPES];

/// Less is not told apart from nothing, MPKI.
const LEAST_MPKI: f64 = 0.01;

/// More is no miss rate.
const MOST_MPKI: f64 = 1000.0;

/// What is less sure is not kept: variance of the logarithm, off by a third. A single pair is.
const UNSURE: f64 = 0.1;

/// A miss-rate curve of a program at one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptCurvePoint {
    /// Core type, index.
    pub core_type: usize,
    /// Eighths of its last-level cache, 1 to 8.
    pub eighths: usize,
    /// Logarithm of MPKI.
    pub mpki: KeptMean,
}

/// A thread's curve as it is known now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ToldCurve {
    /// By what was measured of it and by earlier runs of its program.
    pub points: CurvePoints,
    /// How many of these only earlier runs tell.
    pub earlier: usize,
}

/// Of a curve that was measured what can be kept.
pub fn logarithms(points: &CurvePoints) -> ThreadCurve {
    points.map(|point| {
        let CurvePoint { mpki, error } = point?;
        let mpki = mpki.clamp(LEAST_MPKI, MOST_MPKI);
        let sure = Sure::of_factor(mpki, (error / mpki).powi(2))?;
        (sure.variance <= UNSURE).then_some(sure)
    })
}

/// As one that only falls.
pub fn told_points(curve: &ThreadCurve) -> CurvePoints {
    let points = curve.map(|of| {
        let (mpki, of) = (of?.factor(), of?);
        let error = mpki * of.variance.sqrt();
        Some(CurvePoint { mpki, error })
    });
    falling(&points)
}

impl ToldCurve {
    /// What was measured of a thread, with what is known of its program unless that is another curve. Each counts by
    /// how sure it is.
    pub fn new(measured: &CurvePoints, past: Option<&ThreadCurve>) -> Self {
        let own = logarithms(measured);
        let past = past.filter(|past| !is_unlike(&own, past));
        let Some(past) = past.filter(|past| past.iter().any(Option::is_some)) else {
            return Self {
                points: *measured,
                earlier: 0,
            };
        };
        let mut both = *past;
        for (both, own) in both.iter_mut().zip(own) {
            *both = match (*both, own) {
                (Some(past), Some(own)) => Some(own.with(past)),
                (past, own) => own.or(past),
            };
        }
        // Where little was measured it says what nothing else does.
        let mut points = told_points(&both);
        for (point, measured) in points.iter_mut().zip(measured) {
            *point = point.or(*measured);
        }
        let only_past = |at: &usize| past[*at].is_some() && own[*at].is_none();
        Self {
            points,
            earlier: (0..CURVE_POINTS).filter(only_past).count(),
        }
    }
}

/// Whether two curves of a core type differ at more sizes than they agree at.
fn is_unlike(measured: &ThreadCurve, expected: &ThreadCurve) -> bool {
    let both = measured.iter().zip(expected);
    let both = both.filter_map(|(measured, expected)| Some(((*measured)?, (*expected)?)));
    let (mut alike, mut unlike) = (0, 0);
    for (measured, expected) in both {
        let expected = Sure {
            variance: expected.variance + measured.variance,
            ..expected
        };
        match agrees(measured.factor(), &expected) {
            true => alike += 1,
            false => unlike += 1,
        }
    }
    unlike > alike
}

/// The curve of a core type, as it is kept.
pub(super) fn curve_on(points: &[KeptCurvePoint], core_type: usize) -> ThreadCurve {
    let mut curve = ThreadCurve::default();
    for point in points.iter().filter(|of| of.core_type == core_type) {
        if let Some(room) = curve.get_mut(point.eighths.wrapping_sub(1)) {
            *room = point.mpki.next();
        }
    }
    curve
}

/// Takes a thread's curves in.
pub(super) fn take(points: &mut Vec<KeptCurvePoint>, found: &ThreadCurves) {
    for (core_type, found) in found.iter().enumerate() {
        if is_unlike(found, &curve_on(points, core_type)) {
            // What was expected and is measured otherwise counts no more than this.
            let there = points.iter_mut().filter(|of| of.core_type == core_type);
            there.for_each(|of| of.mpki.doubt());
        }
        for (at, sure) in found.iter().enumerate() {
            if let Some(sure) = sure {
                mean(points, core_type, at + 1).take(*sure);
            }
        }
    }
}

/// Takes in what another store has kept.
pub(super) fn merge(points: &mut Vec<KeptCurvePoint>, other: &[KeptCurvePoint]) {
    for of in other {
        mean(points, of.core_type, of.eighths).merge(&of.mpki);
    }
}

fn mean(points: &mut Vec<KeptCurvePoint>, core_type: usize, eighths: usize) -> &mut KeptMean {
    let place = |of: &KeptCurvePoint| (of.core_type, of.eighths);
    let at = match points.binary_search_by_key(&(core_type, eighths), place) {
        Ok(at) => at,
        Err(at) => {
            let fresh = KeptCurvePoint {
                core_type,
                eighths,
                ..KeptCurvePoint::default()
            };
            points.insert(at, fresh);
            at
        }
    };
    &mut points[at].mpki
}

/// Whether there is one of each at most, in order, with numbers that one can go by: they may come from a file.
pub(super) fn is_sound(points: &[KeptCurvePoint]) -> bool {
    let rates = LEAST_MPKI.ln() - 1e-9..=MOST_MPKI.ln() + 1e-9;
    points.is_sorted_by(|a, b| (a.core_type, a.eighths) < (b.core_type, b.eighths))
        && points.iter().all(|of| {
            of.core_type < MAX_CORE_TYPES
                && (1..=CURVE_POINTS).contains(&of.eighths)
                && of.mpki.is_sound()
                && rates.contains(&of.mpki.mean)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of so many MPKI at the sizes that are known, each off by a twentieth.
    fn curve(mpki: [Option<f64>; CURVE_POINTS]) -> CurvePoints {
        mpki.map(|mpki| {
            let (mpki, error) = (mpki?, 0.05 * mpki?);
            Some(CurvePoint { mpki, error })
        })
    }

    fn knee() -> CurvePoints {
        let mut mpki = [20.0, 20.0, 12.0, 6.0, 2.0, 2.0, 2.0, 2.0].map(Some);
        mpki[7] = None;
        curve(mpki)
    }

    fn kept_of(points: &CurvePoints, times: usize) -> Vec<KeptCurvePoint> {
        let mut kept = Vec::new();
        let mut found = ThreadCurves::default();
        found[1] = logarithms(points);
        (0..times).for_each(|_| take(&mut kept, &found));
        kept
    }

    #[test]
    fn what_threads_miss_is_what_the_next_one_is_expected_to_and_is_outweighed() {
        let kept = kept_of(&knee(), 3);
        assert!(is_sound(&kept) && kept.len() == 7);
        let past = curve_on(&kept, 1);
        assert_eq!(curve_on(&kept, 0), ThreadCurve::default());
        let nothing = CurvePoints::default();
        let all = ToldCurve::new(&nothing, Some(&past));
        assert_eq!((all.earlier, all.points[7]), (7, None));
        assert!((all.points[2].unwrap().mpki - 12.0).abs() < 1e-6);
        // Measured more surely than three runs are: where it is, it counts for most.
        let mut own = nothing;
        own[2] = Some(CurvePoint {
            mpki: 13.0,
            error: 0.1,
        });
        let both = ToldCurve::new(&own, Some(&past));
        assert_eq!(both.earlier, 6);
        assert!((both.points[2].unwrap().mpki - 13.0).abs() < 0.1);
        assert_eq!(ToldCurve::new(&own, None).points, own);
    }

    #[test]
    fn one_that_is_unlike_is_not_gone_by_and_what_was_kept_counts_no_more_than_it() {
        let mut kept = kept_of(&knee(), 32);
        let mut flat = [Some(2.0); CURVE_POINTS];
        flat[7] = None;
        (flat[4], flat[5], flat[6]) = (None, None, None);
        let flat = curve(flat);
        let past = curve_on(&kept, 1);
        let told = ToldCurve::new(&flat, Some(&past));
        assert_eq!((told.points, told.earlier), (flat, 0));
        let mut found = ThreadCurves::default();
        found[1] = logarithms(&flat);
        take(&mut kept, &found);
        assert_eq!(kept[0].mpki.values, 2.0);
    }

    #[test]
    fn a_damaged_curve_is_found_out() {
        let good = kept_of(&knee(), 2);
        let spoilt = |spoil: fn(&mut Vec<KeptCurvePoint>)| {
            let mut kept = good.clone();
            spoil(&mut kept);
            !is_sound(&kept)
        };
        assert!(is_sound(&good) && is_sound(&[]));
        assert!(spoilt(|kept| kept[1].mpki.mean = f64::NAN));
        assert!(spoilt(|kept| kept[1].mpki.mean = 8.0));
        assert!(spoilt(|kept| kept[1].mpki.noise = -1.0));
        assert!(spoilt(|kept| kept[1].mpki.values = 33.0));
        assert!(spoilt(|kept| kept[1].eighths = 0));
        assert!(spoilt(|kept| kept[6].eighths = 9));
        assert!(spoilt(|kept| kept[6].core_type = MAX_CORE_TYPES));
        assert!(spoilt(|kept| kept[1] = kept[0]));
        assert!(spoilt(|kept| *kept = kept.repeat(1000)));
    }

    #[test]
    fn what_is_hardly_known_is_not_kept_and_no_misses_have_a_logarithm() {
        let mut points = CurvePoints::default();
        points[0] = Some(CurvePoint {
            mpki: 10.0,
            error: 5.0,
        });
        points[1] = Some(CurvePoint::default());
        // One instruction may miss several times, but no more than this is kept, or the program would be thrown away.
        points[2] = Some(CurvePoint {
            mpki: 4000.0,
            error: 1.0,
        });
        let kept = logarithms(&points);
        assert_eq!(kept[0], None);
        assert!((kept[1].unwrap().factor() - LEAST_MPKI).abs() < 1e-9);
        assert!(is_sound(&kept_of(&points, 3)));
    }
}
