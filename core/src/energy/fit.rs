// SPDX-License-Identifier: GPL-2.0-or-later
//! Least squares with no coefficient below its least, online: watts of what cores do are never below zero.
//!
//! The normal equations are kept, with forgetting, and solved by Cholesky's method among the coefficients that are
//! above their least. What they leave open settles what is expected of each unknown beforehand: a value, or a multiple
//! of another unknown. All of it has a fixed size, so nothing is allocated.

/// Unknowns, at most.
pub const UNKNOWNS: usize = 118;

/// Of each diagonal element, which is added to it: unknowns that nothing tells apart share what they explain.
const RIDGE: f64 = 1e-6;

/// So often at the most coefficients are held at their least, or let go, for one solution. The last one is near.
const ROUNDS: usize = 6;

type Square = [[f64; UNKNOWNS]; UNKNOWNS];

/// What is expected of an unknown beforehand.
#[derive(Clone, Copy, Debug, Default)]
struct Expected {
    mean: f64,
    /// One over the variance.
    sureness: f64,
    /// The mean is so much times another unknown instead.
    of: Option<(usize, f64)>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct NonNegativeFit {
    gram: Box<Square>,
    moment: [f64; UNKNOWNS],
    squares: f64,
    rows: f64,
    solution: [f64; UNKNOWNS],
    expected: [Expected; UNKNOWNS],
    /// The least that it can be.
    least: [f64; UNKNOWNS],
    held: [bool; UNKNOWNS],
    /// Cholesky's factor of the last solution, and the unknowns that it is of.
    factor: Box<Square>,
    free: [usize; UNKNOWNS],
    nr_free: usize,
}

impl Default for NonNegativeFit {
    fn default() -> Self {
        Self {
            gram: Box::new([[0.0; UNKNOWNS]; UNKNOWNS]),
            moment: [0.0; UNKNOWNS],
            squares: 0.0,
            rows: 0.0,
            solution: [0.0; UNKNOWNS],
            expected: [Expected::default(); UNKNOWNS],
            least: [0.0; UNKNOWNS],
            held: [false; UNKNOWNS],
            factor: Box::new([[0.0; UNKNOWNS]; UNKNOWNS]),
            free: [0; UNKNOWNS],
            nr_free: 0,
        }
    }
}

impl NonNegativeFit {
    /// The coefficients; 0 of what was never seen.
    pub fn solution(&self) -> &[f64; UNKNOWNS] {
        &self.solution
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
        self.expected[unknown] = Expected {
            mean,
            sureness,
            of: None,
        };
    }

    /// The mean that an unknown was expected to have last, and how sure that was.
    pub fn expected(&self, unknown: usize) -> (f64, f64) {
        let Expected { mean, sureness, .. } = self.expected[unknown];
        (mean, sureness)
    }

    /// Expects an unknown to be about `times` what another is, likewise.
    pub fn expect_of(&mut self, unknown: usize, times: f64, other: usize, sureness: f64) {
        self.expected[unknown] = Expected {
            mean: 0.0,
            sureness,
            of: Some((other, times)),
        };
    }

    /// Lets an unknown be below zero, down to `least`.
    pub fn allow(&mut self, unknown: usize, least: f64) {
        self.least[unknown] = least;
    }

    /// Whether any row had an unknown.
    pub fn has_seen(&self, unknown: usize) -> bool {
        self.gram[unknown][unknown] > 0.0
    }

    /// Forgets an unknown, which stands for something else from now on.
    pub fn clear(&mut self, unknown: usize) {
        self.gram[unknown] = [0.0; UNKNOWNS];
        for sums in self.gram.iter_mut() {
            sums[unknown] = 0.0;
        }
        self.moment[unknown] = 0.0;
        self.solution[unknown] = 0.0;
        self.held[unknown] = false;
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

    /// Finds the coefficients.
    pub fn solve(&mut self) {
        for _ in 0..ROUNDS {
            let mut right = [0.0; UNKNOWNS];
            self.assemble(&mut right);
            if !self.factorize() {
                return;
            }
            self.substitute(&mut right);
            let mut is_best = true;
            for (&i, &value) in self.free[..self.nr_free].iter().zip(&right) {
                let below = value < self.least[i];
                self.held[i] = below;
                self.solution[i] = if below { self.least[i] } else { value };
                is_best &= !below;
            }
            if is_best && !self.let_go() {
                return;
            }
        }
    }

    /// The equations of the coefficients that are free now: `factor` and `right`.
    fn assemble(&mut self, right: &mut [f64; UNKNOWNS]) {
        let mut place_of = [None; UNKNOWNS];
        let mut is_used: [bool; UNKNOWNS] = std::array::from_fn(|i| self.has_seen(i));
        for i in 0..UNKNOWNS {
            if let Some((other, _)) = self.expected[i].of.filter(|_| self.has_seen(i)) {
                is_used[other] = true;
            }
        }
        self.nr_free = 0;
        for i in (0..UNKNOWNS).filter(|&i| is_used[i]) {
            if self.held[i] {
                self.solution[i] = self.least[i];
                continue;
            }
            place_of[i] = Some(self.nr_free);
            self.free[self.nr_free] = i;
            self.nr_free += 1;
        }
        for place in 0..self.nr_free {
            let i = self.free[place];
            let row = &mut self.factor[place];
            let mut known = self.moment[i];
            for (k, at) in place_of.iter().enumerate() {
                match *at {
                    Some(at) => row[at] = self.gram[i][k],
                    None => known -= self.gram[i][k] * self.solution[k],
                }
            }
            row[place] += RIDGE * self.gram[i][i] + f64::MIN_POSITIVE;
            right[place] = known;
        }
        for i in (0..UNKNOWNS).filter(|&i| is_used[i]) {
            let Expected { mean, sureness, of } = self.expected[i];
            let own = place_of[i];
            if let Some(own) = own {
                self.factor[own][own] += sureness;
                right[own] += sureness * mean;
            }
            let Some((other, times)) = of else { continue };
            match (own, place_of[other]) {
                (Some(own), Some(at)) => {
                    self.factor[own][at] -= sureness * times;
                    self.factor[at][own] -= sureness * times;
                    self.factor[at][at] += sureness * times * times;
                }
                (None, Some(at)) => {
                    right[at] += sureness * times * self.solution[i];
                    self.factor[at][at] += sureness * times * times;
                }
                (Some(own), None) => right[own] += sureness * times * self.solution[other],
                (None, None) => {}
            }
        }
    }

    /// Lets coefficients go that are held and would rise; whether there were any.
    fn let_go(&mut self) -> bool {
        let mut any = false;
        for i in 0..UNKNOWNS {
            if !self.held[i] {
                continue;
            }
            let Expected { mean, sureness, of } = self.expected[i];
            let mean = of.map_or(mean, |(other, times)| times * self.solution[other]);
            let rises = self.moment[i] - dot(&self.gram[i], &self.solution)
                + sureness * (mean - self.solution[i]);
            // By more than rounding makes of it.
            if rises > 1e-9 * (self.moment[i].abs() + sureness * mean.abs()) {
                self.held[i] = false;
                any = true;
            }
        }
        any
    }

    /// Cholesky's factor, in place; false where rounding leaves none.
    fn factorize(&mut self) -> bool {
        for i in 0..self.nr_free {
            let (above, below) = self.factor.split_at_mut(i);
            let row = &mut below[0];
            for j in 0..i {
                let sum = row[j] - partial(row, &above[j], j);
                row[j] = sum / above[j][j];
            }
            let rest = row[i] - partial(row, row, i);
            if rest <= 0.0 || !rest.is_finite() {
                self.nr_free = 0;
                return false;
            }
            row[i] = rest.sqrt();
        }
        true
    }

    /// `right` becomes what solves the equations.
    fn substitute(&self, right: &mut [f64; UNKNOWNS]) {
        self.forwards(right);
        for i in (0..self.nr_free).rev() {
            let later = i + 1..self.nr_free;
            let known = self.factor[later.clone()].iter().zip(&right[later]);
            let known: f64 = known.map(|(row, value)| row[i] * value).sum();
            right[i] = (right[i] - known) / self.factor[i][i];
        }
    }

    /// Half of that.
    fn forwards(&self, right: &mut [f64; UNKNOWNS]) {
        for i in 0..self.nr_free {
            let rest = right[i] - partial(&self.factor[i], right, i);
            right[i] = rest / self.factor[i][i];
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
    /// Coefficients held at their least are taken for known. It takes some 10 µs.
    pub fn variance(&self, row: &[f64; UNKNOWNS], noise: f64) -> f64 {
        let mut half = [0.0; UNKNOWNS];
        for (value, &i) in half.iter_mut().zip(&self.free[..self.nr_free]) {
            *value = row[i];
        }
        self.forwards(&mut half);
        noise * partial(&half, &half, self.nr_free)
    }
}

/// Of the first `below` elements.
fn partial(a: &[f64; UNKNOWNS], b: &[f64; UNKNOWNS], below: usize) -> f64 {
    a[..below].iter().zip(&b[..below]).map(|(a, b)| a * b).sum()
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
    fn what_is_expected_of_another_unknown_follows_it() {
        // Of two unknowns one is known from rows, and both are about the third, once and twice.
        let mut fit = NonNegativeFit::default();
        fit.expect(2, 0.0, 1e-9);
        fit.expect_of(0, 1.0, 2, 1.0);
        fit.expect_of(1, 2.0, 2, 1.0);
        for _ in 0..50 {
            fit.add(&row(&[1.0, 0.0]), 3.0, 1.0);
        }
        // A row tells nearly nothing of the second.
        fit.add(&row(&[0.0, 1e-3]), 1.0, 1e-6);
        fit.solve();
        let [a, b, scale] = [0, 1, 2].map(|i| fit.solution()[i]);
        assert!(
            (a - 3.0).abs() < 0.01 && (scale - 3.0).abs() < 0.05,
            "{a} {scale}"
        );
        assert!((b - 6.0).abs() < 0.1, "{b}");
    }

    #[test]
    fn one_that_was_held_is_let_go_when_rows_say_so() {
        let mut fit = NonNegativeFit::default();
        fit.allow(1, -0.5);
        let mut learn = |second: f64| {
            for n in 1..40 {
                let values = [1.0, f64::from(n % 3)];
                fit.add(&row(&values), 2.0 + second * values[1], 1.0);
            }
            fit.solve();
            fit.forget(1e-3);
            fit.solution()[1]
        };
        assert_eq!(learn(-3.0), -0.5);
        assert!((learn(1.0) - 1.0).abs() < 0.02);
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
