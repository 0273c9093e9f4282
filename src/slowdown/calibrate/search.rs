// SPDX-License-Identifier: GPL-2.0-only
//! From measurements to thresholds and capacities. Touches no machine.

use serde::{Deserialize, Serialize};

use crate::slowdown::Thresholds;

/// Contention is low while it costs no more than this.
pub const LOW: f64 = 1.05;

/// Capacity of the fastest core type.
const FULL: f64 = 1024.0;

/// How far a search goes below the most that there can be, and in how many steps.
const OCTAVES: f64 = 8.0;
const STEPS: usize = 7;

/// How a thread fared among others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Bytes/s: of which threads, says the search.
    pub btr: f64,
    /// Its speed alone over its speed then.
    pub slowdown: f64,
}

/// Looks for the BTR at which the slowdown reaches [`LOW`], by halving on a scale of octaves from
/// `most`, bytes/s, down. `measure` gets the BTR wished for, and tells what it got. Returns all
/// points, in the order in which they were measured.
pub fn search<E>(
    most: f64,
    mut measure: impl FnMut(f64) -> Result<Point, E>,
) -> Result<Vec<Point>, E> {
    let mut points = vec![measure(most)?];
    if points[0].slowdown < LOW {
        return Ok(points);
    }
    // In octaves below the most.
    let (mut over, mut under) = (0.0, OCTAVES);
    for _ in 0..STEPS {
        let middle = (over + under) / 2.0;
        let point = measure(most * (-middle).exp2())?;
        if point.slowdown < LOW {
            under = middle;
        } else {
            over = middle;
        }
        points.push(point);
    }
    Ok(points)
}

/// The greatest BTR at which the slowdown is still below [`LOW`], bytes/s: between the points next
/// to it. If all are below, the greatest measured; if none is, in proportion to the least.
pub fn crossing(points: &[Point]) -> Option<f64> {
    let mut points = points.to_vec();
    points.retain(|point| point.btr > 0.0 && point.slowdown.is_finite());
    points.sort_by(|a, b| a.btr.total_cmp(&b.btr));
    let Some(over) = points.iter().position(|point| point.slowdown >= LOW) else {
        return points.last().map(|point| point.btr);
    };
    let above = points[over];
    let Some(below) = over.checked_sub(1).map(|index| points[index]) else {
        return Some(above.btr * (LOW - 1.0) / (above.slowdown - 1.0));
    };
    let part = (LOW - below.slowdown) / (above.slowdown - below.slowdown);
    Some(below.btr * (above.btr / below.btr).powf(part))
}

/// Thresholds that hold in every contention domain: the least of each, from (low, high) by domain
/// in bytes/s. `None` without any.
pub fn thresholds(by_domain: &[(f64, f64)]) -> Option<Thresholds> {
    let least = |values: &mut dyn Iterator<Item = f64>| values.reduce(f64::min);
    let high_btr = least(&mut by_domain.iter().map(|domain| domain.1))?;
    let low_btr = least(&mut by_domain.iter().map(|domain| domain.0))?;
    Some(Thresholds {
        low_btr: low_btr.min(high_btr),
        high_btr,
    })
}

/// Capacity of each core type, 1024 for the fastest: by the geometric mean of its rates over
/// several loads, which are in the same order for every type.
pub fn capacities(rates: &[Vec<f64>]) -> Vec<u32> {
    let means: Vec<f64> = rates.iter().map(|rates| geometric_mean(rates)).collect();
    let fastest = means.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let capacity = |mean: f64| ((FULL * mean / fastest).round() as u32).max(1);
    means.into_iter().map(capacity).collect()
}

fn geometric_mean(values: &[f64]) -> f64 {
    let sum: f64 = values
        .iter()
        .map(|value| value.max(f64::MIN_POSITIVE).ln())
        .sum();
    (sum / values.len().max(1) as f64).exp()
}

/// The middle value; 0 of none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(most: f64, slowdown: impl Fn(f64) -> f64) -> (Vec<Point>, f64) {
        let measure = |btr: f64| {
            let slowdown = slowdown(btr);
            Ok::<_, ()>(Point { btr, slowdown })
        };
        let points = search(most, measure).unwrap();
        let found = crossing(&points).unwrap();
        (points, found)
    }

    #[test]
    fn the_search_finds_where_a_curve_crosses() {
        // A queue: 1 + load^2 / 2 is 1.05 at a load of 0.316.
        let (points, high) = run(1000.0, |btr| 1.0 + (btr / 1000.0).powi(2) / 2.0);
        assert!((high / 316.2 - 1.0).abs() < 0.01, "{high}");
        assert_eq!(points.len(), 1 + STEPS);
        // A share of time that waits, three times as long as alone: 5 % at a 60th.
        let (_, low) = run(40.0, |btr| 1.0 + 3.0 * btr / 40.0);
        assert!((low / 0.667 - 1.0).abs() < 0.01, "{low}");
    }

    #[test]
    fn noise_moves_the_threshold_but_little() {
        let (_, high) = run(1000.0, |btr| {
            1.0 + (btr / 1000.0).powi(2) / 2.0 + 0.01 * (btr * 7.0).sin()
        });
        assert!((250.0..400.0).contains(&high), "{high}");
    }

    #[test]
    fn curves_that_never_cross_have_an_end() {
        let (points, undisturbed) = run(1000.0, |_| 1.01);
        assert_eq!((points.len(), undisturbed), (1, 1000.0));
        // A hundred times too much even at the least: far below it.
        let (_, low) = run(1000.0, |btr| 1.0 + btr);
        assert!(low < 0.1, "{low}");
        assert_eq!(crossing(&[]), None);
        let broken = Point {
            btr: 0.0,
            slowdown: f64::INFINITY,
        };
        assert_eq!(crossing(&[broken]), None);
    }

    #[test]
    fn the_most_cautious_domain_decides() {
        let both = thresholds(&[(2.0, 100.0), (1.0, 300.0)]).unwrap();
        assert_eq!((both.low_btr, both.high_btr), (1.0, 100.0));
        let odd = thresholds(&[(20.0, 10.0)]).unwrap();
        assert_eq!(odd.low_btr, odd.high_btr);
        assert_eq!(thresholds(&[]), None);
    }

    #[test]
    fn capacities_are_geometric_means_against_the_fastest() {
        assert_eq!(
            capacities(&[vec![200.0, 8.0], vec![100.0, 1.0]]),
            [1024, 256]
        );
        assert_eq!(capacities(&[vec![1.0], vec![2.0]]), [512, 1024]);
        assert_eq!(capacities(&[]), [] as [u32; 0]);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    }
}
