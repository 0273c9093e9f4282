// SPDX-License-Identifier: GPL-2.0-or-later
//! A weighted sum of features, as what boosting begins with: trees need many rows to follow a slope,
//! and then know nothing beyond its ends. By least absolute deviations: a few programs that no feature
//! explains, whose data fit into the cache of one core type alone, would bend the sum for all others
//! if their deviations were squared.

use anyhow::{Context, Result};

use super::tree::Columns;

/// Added to each feature's sum of squares, so that features that say the same share a weight.
pub const RIDGE: f64 = 0.01;
/// An absolute deviation is its square by its inverse: so rows count by the inverse of what they deviated
/// by last, in so many rounds (iteratively reweighted least squares).
pub const ROUNDS: usize = 30;
/// Deviations below this part of the mean target count as if they were so large.
const NEAR: f64 = 0.001;

/// A constant, and a weight for each feature.
///
/// # Errors
/// The numbers are beyond what can be computed with.
pub fn fit(columns: &Columns, targets: &[f64]) -> Result<(f64, Vec<f64>)> {
    fit_by(columns, targets, RIDGE, ROUNDS)
}

/// The same with another penalty than [`RIDGE`] (ridge regression), and another number of rounds than
/// [`ROUNDS`]: after none it is by least squares.
///
/// # Errors
/// As [`fit`].
pub fn fit_by(
    columns: &Columns,
    targets: &[f64],
    ridge: f64,
    rounds: usize,
) -> Result<(f64, Vec<f64>)> {
    let size = targets.iter().map(|target| target.abs()).sum::<f64>() / columns.rows as f64;
    let near = f64::max(NEAR * size, f64::MIN_POSITIVE);
    let mut counts = vec![1.0; columns.rows];
    let mut found = least_squares(columns, targets, &counts, ridge)?;
    for _ in 0..rounds {
        let said = scores(columns, found.0, &found.1);
        for ((count, target), said) in counts.iter_mut().zip(targets).zip(said) {
            *count = near / (target - said).abs().max(near);
        }
        let mean = counts.iter().sum::<f64>() / columns.rows as f64;
        counts.iter_mut().for_each(|count| *count /= mean);
        found = least_squares(columns, targets, &counts, ridge)?;
    }
    Ok(found)
}

/// The same by least squares, where row n counts `counts[n]` times.
fn least_squares(
    columns: &Columns,
    targets: &[f64],
    counts: &[f64],
    ridge: f64,
) -> Result<(f64, Vec<f64>)> {
    let number: f64 = counts.iter().sum();
    let mean = |values: &[f64]| {
        let terms = values
            .iter()
            .zip(counts)
            .map(|(value, count)| value * count);
        terms.sum::<f64>() / number
    };
    let means: Vec<f64> = columns.columns.iter().map(|column| mean(column)).collect();
    let target = mean(targets);
    let product = |a: usize, others: &[f64], their_mean: f64| {
        let both = columns.columns[a].iter().zip(others).zip(counts);
        both.map(|((x, y), count)| count * (x - means[a]) * (y - their_mean))
            .sum::<f64>()
    };
    let features = means.len();
    let mut rows: Vec<Vec<f64>> = (0..features)
        .map(|a| {
            let mut row: Vec<f64> = (0..features)
                .map(|b| product(a, &columns.columns[b], means[b]))
                .collect();
            row[a] += ridge;
            row.push(product(a, targets, target));
            row
        })
        .collect();
    let weights = solve(&mut rows).context("features cannot be weighed")?;
    let base = target - weights.iter().zip(&means).map(|(w, m)| w * m).sum::<f64>();
    Ok((base, weights))
}

/// Solves equations, the right side in the last column, by Gauss's elimination.
fn solve(rows: &mut [Vec<f64>]) -> Option<Vec<f64>> {
    let number = rows.len();
    for column in 0..number {
        let pivot = (column..number)
            .max_by(|&a, &b| rows[a][column].abs().total_cmp(&rows[b][column].abs()))?;
        rows.swap(column, pivot);
        if rows[column][column].abs() < 1e-300 {
            return None;
        }
        let (above, below) = rows.split_at_mut(column + 1);
        let pivot = &above[column];
        for row in below {
            let factor = row[column] / pivot[column];
            for (value, above) in row.iter_mut().zip(pivot).skip(column) {
                *value -= factor * above;
            }
        }
    }
    let mut solution = vec![0.0; number];
    for n in (0..number).rev() {
        let known: f64 = (n + 1..number).map(|m| rows[n][m] * solution[m]).sum();
        solution[n] = (rows[n][number] - known) / rows[n][n];
    }
    solution
        .iter()
        .all(|value| value.is_finite())
        .then_some(solution)
}

/// The weighted sum. What lies beyond 0 to 1, where nothing was learnt, counts as the nearer of both.
pub fn score(weights: &[f64], of: impl Fn(usize) -> f64) -> f64 {
    let term = |(feature, weight): (usize, &f64)| weight * of(feature).clamp(0.0, 1.0);
    weights.iter().enumerate().map(term).sum()
}

/// The constant and the weighted sum, for all rows.
pub fn scores(columns: &Columns, base: f64, weights: &[f64]) -> Vec<f64> {
    let of = |row: usize| base + score(weights, |feature| columns.columns[feature][row]);
    (0..columns.rows).map(of).collect()
}

/// How much each feature's term varies, as a sum of squares: nothing without weights.
pub fn explained(weights: &[f64], columns: &Columns) -> Vec<f64> {
    let of = |(n, column): (usize, &Vec<f64>)| {
        let mean = column.iter().sum::<f64>() / columns.rows.max(1) as f64;
        let squares: f64 = column.iter().map(|value| (value - mean).powi(2)).sum();
        weights
            .get(n)
            .map_or(0.0, |weight| weight * weight * squares)
    };
    columns.columns.iter().enumerate().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_are_found_also_where_two_features_are_one() {
        let x: Vec<f64> = (0..50).map(|n| f64::from(n) / 50.0).collect();
        let y: Vec<f64> = (0..50).map(|n| f64::from(n * 17 % 50) / 50.0).collect();
        let targets: Vec<f64> = x.iter().zip(&y).map(|(x, y)| 2.0 + 3.0 * x - y).collect();
        let columns = Columns {
            rows: 50,
            columns: vec![x.clone(), y, x],
        };
        let (base, weights) = fit(&columns, &targets).unwrap();
        assert!((base - 2.0).abs() < 0.02, "{base}");
        assert!((weights[0] + weights[2] - 3.0).abs() < 0.02, "{weights:?}");
        assert!((weights[0] - weights[2]).abs() < 1e-6);
        assert!((weights[1] + 1.0).abs() < 0.02);
        assert_eq!(score(&[1.0, 2.0], |feature| [3.0, 0.25][feature]), 1.5);
        let explained = explained(&weights, &columns);
        assert!(explained[0] > explained[1]);
    }

    #[test]
    fn a_few_that_nothing_explains_do_not_bend_the_sum() {
        let x: Vec<f64> = (0..50).map(|n| f64::from(n) / 50.0).collect();
        let odd = |n: usize| n % 7 == 6 && n > 20;
        let targets = x.iter().enumerate();
        let targets: Vec<f64> = targets
            .map(|(n, x)| 2.0 + x + if odd(n) { 5.0 } else { 0.0 })
            .collect();
        let columns = Columns {
            rows: 50,
            columns: vec![x],
        };
        let (base, weights) = fit(&columns, &targets).unwrap();
        assert!((base - 2.0).abs() < 0.01, "{base}");
        assert!((weights[0] - 1.0).abs() < 0.02, "{weights:?}");
    }
}
