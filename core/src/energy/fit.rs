// SPDX-License-Identifier: GPL-2.0-or-later
//! Least squares with no coefficient below its least, online: watts of what cores do are never below zero.
//!
//! The normal equations are kept, with forgetting, and solved by coordinate descent from the last
//! solution on. What they leave open settles what is expected of each unknown beforehand. All of it has a fixed
//! size, so nothing is allocated.

/// Unknowns, at most.
pub const UNKNOWNS: usize = 114;

/// Of each diagonal element, which is added to it: unknowns that nothing tells apart share what they explain.
const RIDGE: f64 = 1e-6;

/// Passes over all unknowns for each solution. The last solution is near.
const SWEEPS: usize = 24;

/// See the module.
#[derive(Clone, Debug)]
pub struct NonNegativeFit {
    gram: Box<[[f64; UNKNOWNS]; UNKNOWNS]>,
    moment: [f64; UNKNOWNS],
    squares: f64,
    rows: f64,
    solution: [f64; UNKNOWNS],
    /// Of each unknown, what is expected, and how sure that is: one over its variance.
    expected: [(f64, f64); UNKNOWNS],
    /// The least that it can be.
    least: [f64; UNKNOWNS],
}

impl Default for NonNegativeFit {
    fn default() -> Self {
        Self {
            gram: Box::new([[0.0; UNKNOWNS]; UNKNOWNS]),
            moment: [0.0; UNKNOWNS],
            squares: 0.0,
            rows: 0.0,
            solution: [0.0; UNKNOWNS],
            expected: [(0.0, 0.0); UNKNOWNS],
            least: [0.0; UNKNOWNS],
        }
    }
}

impl NonNegativeFit {
    /// The coefficients; 0 of what was never seen.
    pub fn solution(&self) -> &[f64; UNKNOWNS] {
        &self.solution
    }

    /// What the coefficients make of a row.
    pub fn predict(&self, row: &[f64; UNKNOWNS]) -> f64 {
        dot(row, &self.solution)
    }

    /// Takes in a row that came to `target`, and counts for `weight`.
    pub fn add(&mut self, row: &[f64; UNKNOWNS], target: f64, weight: f64) {
        for (i, sums) in self.gram.iter_mut().enumerate() {
            let by = weight * row[i];
            if by == 0.0 {
                continue;
            }
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum += by * value;
            }
            self.moment[i] += by * target;
        }
        self.squares += weight * target * target;
        self.rows += 1.0;
    }

    /// Expects an unknown to be about `mean`, with a variance of one over `sureness`, where rows of weight 1 have a
    /// variance of 1.
    pub fn expect(&mut self, unknown: usize, mean: f64, sureness: f64) {
        self.expected[unknown] = (mean, sureness);
    }

    /// Lets an unknown be below zero, down to `least`.
    pub fn allow(&mut self, unknown: usize, least: f64) {
        self.least[unknown] = least;
    }

    /// Forgets an unknown, which stands for something else from now on.
    pub fn clear(&mut self, unknown: usize) {
        self.gram[unknown] = [0.0; UNKNOWNS];
        for sums in self.gram.iter_mut() {
            sums[unknown] = 0.0;
        }
        self.moment[unknown] = 0.0;
        self.solution[unknown] = 0.0;
    }

    /// By how much `pattern` is to be multiplied so that rows come closest, the unknowns beyond `below` being as they
    /// are; `None` where no row tells.
    pub fn scale_of(&self, pattern: &[f64; UNKNOWNS], below: usize) -> Option<f64> {
        let (mut with, mut against) = (0.0, 0.0);
        for i in 0..below {
            let others = dot_from(&self.gram[i], &self.solution, below);
            with += pattern[i] * (self.moment[i] - others);
            against += pattern[i] * dot(&self.gram[i], pattern);
        }
        (against > 0.0).then(|| (with / against).max(0.0))
    }

    /// All that was taken in counts for `keep` of what it did.
    pub fn forget(&mut self, keep: f64) {
        let sums = self.gram.iter_mut().flatten().chain(&mut self.moment);
        sums.for_each(|sum| *sum *= keep);
        self.squares *= keep;
        self.rows *= keep;
    }

    /// Brings the coefficients closer to the best.
    pub fn solve(&mut self) {
        for _ in 0..SWEEPS {
            let mut moved = 0.0_f64;
            for i in 0..UNKNOWNS {
                let own = self.gram[i][i];
                if own <= 0.0 {
                    continue;
                }
                let (mean, sureness) = self.expected[i];
                let rest = self.moment[i] - dot(&self.gram[i], &self.solution);
                let before = self.solution[i];
                let known = rest + own * before + sureness * mean;
                let after = (known / (own * (1.0 + RIDGE) + sureness)).max(self.least[i]);
                self.solution[i] = after;
                moved = moved.max((after - before).abs() * own.sqrt());
            }
            if moved * moved <= 1e-12 * self.squares {
                break;
            }
        }
    }

    /// Variance of a row of weight 1, by what the coefficients leave unexplained.
    pub fn unexplained(&self) -> f64 {
        if self.rows <= 0.0 {
            return 0.0;
        }
        let explained: f64 = (0..UNKNOWNS)
            .map(|i| self.solution[i] * (2.0 * self.moment[i] - dot(&self.gram[i], &self.solution)))
            .sum();
        ((self.squares - explained) / self.rows).max(0.0)
    }

    /// Variance of what the coefficients make of a row, if a row of weight 1 errs by a variance of `noise`.
    /// Coefficients held at zero are taken for known. It takes some 10 µs and a few KiB of stack.
    pub fn variance(&self, row: &[f64; UNKNOWNS], noise: f64) -> f64 {
        let free: [bool; UNKNOWNS] = std::array::from_fn(|i| self.solution[i] > self.least[i]);
        // Solves gram * x = row by conjugate gradients: the variance is row * x.
        let apply = |v: &[f64; UNKNOWNS]| -> [f64; UNKNOWNS] {
            std::array::from_fn(|i| match free[i] {
                true => {
                    let own = RIDGE * self.gram[i][i] + self.expected[i].1;
                    dot(&self.gram[i], v) + own * v[i]
                }
                false => 0.0,
            })
        };
        let scale: [f64; UNKNOWNS] = std::array::from_fn(|i| match free[i] {
            true => 1.0 / (self.gram[i][i] + self.expected[i].1).max(f64::MIN_POSITIVE),
            false => 0.0,
        });
        let mut x = [0.0; UNKNOWNS];
        let mut left: [f64; UNKNOWNS] = std::array::from_fn(|i| if free[i] { row[i] } else { 0.0 });
        let mut scaled: [f64; UNKNOWNS] = std::array::from_fn(|i| scale[i] * left[i]);
        let mut way = scaled;
        let mut gain = dot(&left, &scaled);
        let first = gain;
        for _ in 0..2 * UNKNOWNS {
            if gain <= 1e-12 * first || gain <= 0.0 {
                break;
            }
            let turned = apply(&way);
            let bend = dot(&way, &turned);
            if bend <= 0.0 {
                break;
            }
            let step = gain / bend;
            for i in 0..UNKNOWNS {
                x[i] += step * way[i];
                left[i] -= step * turned[i];
                scaled[i] = scale[i] * left[i];
            }
            let next = dot(&left, &scaled);
            for i in 0..UNKNOWNS {
                way[i] = scaled[i] + next / gain * way[i];
            }
            gain = next;
        }
        (noise * dot(row, &x)).max(0.0)
    }
}

fn dot(a: &[f64; UNKNOWNS], b: &[f64; UNKNOWNS]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Of the elements from `first` on.
fn dot_from(a: &[f64; UNKNOWNS], b: &[f64; UNKNOWNS], first: usize) -> f64 {
    a[first..].iter().zip(&b[first..]).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[f64]) -> [f64; UNKNOWNS] {
        let mut row = [0.0; UNKNOWNS];
        row[..values.len()].copy_from_slice(values);
        row
    }

    /// Rows of three unknowns of different sizes, as of seconds and billions of instructions.
    fn fitted(truth: [f64; 3], noise: f64) -> NonNegativeFit {
        let mut fit = NonNegativeFit::default();
        let mut random = 1_u64;
        let mut next = || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) as f64 / (1_u64 << 31) as f64
        };
        for _ in 0..400 {
            let values = [1.0, next(), 1e3 * next()];
            let exact: f64 = truth.iter().zip(values).map(|(t, v)| t * v).sum();
            fit.add(&row(&values), exact + noise * (next() - 0.5), 1.0);
            fit.solve();
        }
        fit
    }

    #[test]
    fn coefficients_are_found_and_none_is_negative() {
        let fit = fitted([2.0, 3.0, 0.004], 0.0);
        for (found, truth) in fit.solution().iter().zip([2.0, 3.0, 0.004]) {
            assert!((found / truth - 1.0).abs() < 0.01, "{found} {truth}");
        }
        let fit = fitted([2.0, -1.0, 0.004], 0.0);
        assert!(fit.solution().iter().all(|&value| value >= 0.0));
        assert_eq!(fit.solution()[1], 0.0);
    }

    #[test]
    fn what_rows_leave_open_is_as_expected() {
        let mut fit = NonNegativeFit::default();
        fit.expect(0, 1.0, 1.0);
        fit.expect(1, 2.0, 1.0);
        for n in 1..50 {
            fit.add(&row(&[n as f64, n as f64]), 4.0 * n as f64, 1.0);
            fit.solve();
        }
        let [a, b] = [fit.solution()[0], fit.solution()[1]];
        assert!(
            (b - a - 1.0).abs() < 0.05 && (a + b - 4.0).abs() < 0.02,
            "{a} {b}"
        );
        let mut pattern = row(&[1.0, 2.0]);
        assert!((fit.scale_of(&pattern, 2).unwrap() - 4.0 / 3.0).abs() < 1e-9);
        pattern[1] = 0.0;
        // The second is left as it is.
        assert!((fit.scale_of(&pattern, 1).unwrap() - (4.0 - b)).abs() < 1e-9);
        assert_eq!(NonNegativeFit::default().scale_of(&pattern, 2), None);
    }

    #[test]
    fn variance_is_small_where_rows_were_and_large_where_none_was() {
        let fit = fitted([2.0, 3.0, 0.004], 1.0);
        // Noise is uniform over 1: its variance is 1/12.
        let noise = fit.unexplained();
        assert!((noise * 12.0 - 1.0).abs() < 0.2, "{noise}");
        let seen = fit.variance(&row(&[1.0, 0.5, 500.0]), noise).sqrt();
        let far = fit.variance(&row(&[1.0, 50.0, 0.0]), noise).sqrt();
        assert!(seen < 0.05 && far > 1.0, "{seen} {far}");
    }
}
