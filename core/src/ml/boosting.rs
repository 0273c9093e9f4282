// SPDX-License-Identifier: GPL-2.0-or-later
//! Gradient boosting of regression trees (Friedman 2001; the thesis' `GradientBoostingClassifier`).
//!
//! Each tree follows the gradient of the loss where those before it have left it. The same data and
//! options give the same trees, on any machine with IEEE arithmetic.

use anyhow::{Result, bail, ensure};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng as _};
use serde::{Deserialize, Serialize};

use super::linear;
use super::tree::{Binned, Columns, Growth, Tree, grow};

/// What is made small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Loss {
    /// Half the squared difference from the target.
    Squared,
    /// Minus the logarithm of the probability of the class, 0 or 1; what trees add up to is the
    /// logarithm of the odds of 1.
    Logistic,
}

/// How to boost. The defaults are those of scikit-learn, which the thesis uses.
#[derive(Clone, Copy, Debug)]
pub struct Boosting {
    /// See [`Loss`].
    pub loss: Loss,
    /// Begin with a weighted sum of the features instead of a constant; with squared loss, and
    /// features that lie between 0 and 1.
    pub linear: bool,
    /// Of SF: learn 1 / SF, which the forest turns round again ([`super::learn::speedup`]).
    pub inverse: bool,
    /// The most trees.
    pub trees: usize,
    /// The most splits in a row.
    pub depth: usize,
    /// How much of a tree is believed.
    pub shrinkage: f64,
    /// The part of the rows that each tree sees, drawn anew for each.
    pub subsample: f64,
    /// Every leaf has at least so many rows.
    pub least_leaf: usize,
    /// Stop when data held out were no nearer for so many trees.
    pub patience: Option<usize>,
    /// Of what is drawn.
    pub seed: u64,
}

impl Boosting {
    /// With this loss.
    pub fn new(loss: Loss) -> Self {
        Self {
            loss,
            linear: false,
            inverse: false,
            trees: 100,
            depth: 3,
            shrinkage: 0.1,
            subsample: 1.0,
            least_leaf: 1,
            patience: None,
            seed: 1,
        }
    }
}

/// A sum of trees.
#[derive(Clone, Debug, PartialEq)]
pub struct Ensemble {
    /// What it was made to make small.
    pub loss: Loss,
    /// What is added to all trees.
    pub base: f64,
    /// A weight for each feature, or none at all.
    pub weights: Vec<f64>,
    /// The trees.
    pub trees: Vec<Tree>,
}

impl Ensemble {
    /// What trees, weights and base add up to for the features that `of` gives: the target, or the
    /// logarithm of the odds.
    pub fn score(&self, of: impl Fn(usize) -> f64) -> f64 {
        let sum = self.base + linear::score(&self.weights, &of);
        sum + self.trees.iter().map(|tree| tree.value(&of)).sum::<f64>()
    }

    /// Scores of all rows.
    pub fn predict(&self, columns: &Columns) -> Vec<f64> {
        let score = |row: usize| self.score(|feature| columns.columns[feature][row]);
        (0..columns.rows).map(score).collect()
    }
}

/// How far off it is after so many trees: the mean absolute error, or with [`Loss::Logistic`] that loss.
/// Not the squared error: how many trees are best would be up to a few rows that no feature explains.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainingError {
    /// On what was learnt from.
    pub learnt: f64,
    /// On what was held out.
    pub held_out: Option<f64>,
}

/// What came of boosting.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The trees.
    pub ensemble: Ensemble,
    /// By how much each feature's splits lessened the squared error, as parts of 1.
    pub importances: Vec<f64>,
    /// The learning curve: before the first tree, and after each.
    pub curve: Vec<TrainingError>,
}

impl Boosting {
    /// Learns `targets` from rows.
    ///
    /// # Errors
    /// There is nothing to learn: no rows, a value that is no number, one class only.
    pub fn fit(&self, columns: &Columns, targets: &[f64]) -> Result<Fitted> {
        self.fit_watched(columns, targets, None)
    }

    /// The same, and says how well rows that are held out are known meanwhile.
    pub fn fit_watched(
        &self,
        columns: &Columns,
        targets: &[f64],
        held_out: Option<(&Columns, &[f64])>,
    ) -> Result<Fitted> {
        self.check(columns, targets)?;
        let (base, weights) = match (self.linear, self.loss) {
            (true, Loss::Squared) => linear::fit(columns, targets)?,
            (true, Loss::Logistic) => bail!("classes have no linear begin"),
            (false, _) => (self.base(targets), Vec::new()),
        };
        let begin = |columns: &Columns| linear::scores(columns, base, &weights);
        let binned = Binned::new(columns);
        let mut gains = linear::explained(&weights, columns);
        let mut scores = begin(columns);
        let mut watched = held_out.map(|(rows, _)| begin(rows));
        let now = |scores: &[f64], watched: &Option<Vec<f64>>| TrainingError {
            learnt: self.distance(scores, targets),
            held_out: held_out
                .zip(watched.as_ref())
                .map(|((_, y), s)| self.distance(s, y)),
        };
        let mut curve = vec![now(&scores, &watched)];
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed);
        let mut trees = Vec::new();
        let mut best = (f64::INFINITY, 0);
        while trees.len() < self.trees {
            let gradient: Vec<f64> = scores
                .iter()
                .zip(targets)
                .map(|(&s, &y)| self.residual(s, y))
                .collect();
            let mut rows = self.drawn(binned.rows(), &mut rng);
            let leaf = |rows: &[u32]| self.shrinkage * self.leaf(rows, &gradient, &scores);
            let growth = Growth {
                depth: self.depth,
                least_leaf: self.least_leaf,
            };
            let tree = grow(&binned, &gradient, &mut rows, growth, &leaf, &mut gains);
            add(&tree, columns, &mut scores);
            if let (Some((rows, _)), Some(scores)) = (held_out, &mut watched) {
                add(&tree, rows, scores);
            }
            trees.push(tree);
            let step = now(&scores, &watched);
            curve.push(step);
            if let (Some(patience), Some(loss)) = (self.patience, step.held_out) {
                if loss < best.0 {
                    best = (loss, trees.len());
                } else if trees.len() - best.1 >= patience {
                    trees.truncate(best.1);
                    break;
                }
            }
        }
        let sum: f64 = gains.iter().sum();
        if sum > 0.0 {
            gains.iter_mut().for_each(|gain| *gain /= sum);
        }
        Ok(Fitted {
            ensemble: Ensemble {
                loss: self.loss,
                base,
                weights,
                trees,
            },
            importances: gains,
            curve,
        })
    }

    fn check(&self, columns: &Columns, targets: &[f64]) -> Result<()> {
        ensure!(columns.rows > 0, "there are no rows to learn from");
        ensure!(
            columns.rows == targets.len() && columns.rows <= u32::MAX as usize,
            "{} rows and {} targets do not go together",
            columns.rows,
            targets.len()
        );
        ensure!(
            self.subsample > 0.0 && self.subsample <= 1.0 && self.shrinkage > 0.0,
            "subsample and shrinkage lie between 0 and 1"
        );
        let mut values = columns.columns.iter().flatten().chain(targets);
        ensure!(
            values.all(|value| value.is_finite()),
            "a value is not a number"
        );
        if self.loss == Loss::Logistic {
            ensure!(
                targets.iter().all(|&target| target == 0.0 || target == 1.0),
                "a class is neither 0 nor 1"
            );
            if targets.iter().all(|&target| target == targets[0]) {
                bail!("there is one class only: nothing tells what makes a difference");
            }
        }
        Ok(())
    }

    fn base(&self, targets: &[f64]) -> f64 {
        let mean = targets.iter().sum::<f64>() / targets.len() as f64;
        match self.loss {
            Loss::Squared => mean,
            Loss::Logistic => (mean / (1.0 - mean)).ln(),
        }
    }

    /// Minus the gradient of the loss.
    fn residual(&self, score: f64, target: f64) -> f64 {
        match self.loss {
            Loss::Squared => target - score,
            Loss::Logistic => target - probability(score),
        }
    }

    /// What lessens the loss of these rows most; for classes one step of Newton's method.
    fn leaf(&self, rows: &[u32], gradient: &[f64], scores: &[f64]) -> f64 {
        let sum: f64 = rows.iter().map(|&row| gradient[row as usize]).sum();
        match self.loss {
            Loss::Squared => sum / rows.len() as f64,
            Loss::Logistic => {
                let curvature: f64 = rows
                    .iter()
                    .map(|&row| probability(scores[row as usize]))
                    .map(|p| p * (1.0 - p))
                    .sum();
                if curvature < 1e-150 {
                    0.0
                } else {
                    sum / curvature
                }
            }
        }
    }

    fn distance(&self, scores: &[f64], targets: &[f64]) -> f64 {
        let one = |(&score, &target): (&f64, &f64)| match self.loss {
            Loss::Squared => (target - score).abs(),
            // ln(1 + e^score) - target * score, without overflow.
            Loss::Logistic => score.max(0.0) + (-score.abs()).exp().ln_1p() - target * score,
        };
        scores.iter().zip(targets).map(one).sum::<f64>() / targets.len().max(1) as f64
    }

    /// The rows that a tree sees, ascending.
    fn drawn(&self, rows: usize, rng: &mut Pcg64Mcg) -> Vec<u32> {
        let mut all: Vec<u32> = (0..rows as u32).collect();
        let wanted = ((self.subsample * rows as f64).round() as usize).clamp(1, rows);
        if wanted < rows {
            for n in 0..wanted {
                let other = n + (rng.next_u64() % (rows - n) as u64) as usize;
                all.swap(n, other);
            }
            all.truncate(wanted);
            all.sort_unstable();
        }
        all
    }
}

fn add(tree: &Tree, columns: &Columns, scores: &mut [f64]) {
    for (row, score) in scores.iter_mut().enumerate() {
        *score += tree.value(|feature| columns.columns[feature][row]);
    }
}

/// Of class 1, by the logarithm of its odds.
pub fn probability(score: f64) -> f64 {
    1.0 / (1.0 + (-score).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(seed: u64, number: usize) -> Vec<f64> {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut draw = || (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        (0..number).map(|_| draw()).collect()
    }

    fn some(number: usize) -> Columns {
        Columns {
            rows: number,
            columns: (0..4).map(|seed| noise(seed, number)).collect(),
        }
    }

    /// Of three features, the fourth says nothing.
    fn target(columns: &Columns, row: usize) -> f64 {
        let x = |feature: usize| columns.columns[feature][row];
        3.0 * x(0) + if x(1) > 0.5 { 1.0 } else { 0.0 } + x(1) * x(2)
    }

    #[test]
    fn a_function_is_learnt_and_what_says_nothing_has_no_say() {
        let (learnt, new) = (some(500), some(300));
        let targets = |columns: &Columns| -> Vec<f64> {
            (0..columns.rows).map(|row| target(columns, row)).collect()
        };
        let y = targets(&learnt);
        let fitted = Boosting::new(Loss::Squared).fit(&learnt, &y).unwrap();
        let scores = fitted.ensemble.predict(&new);
        let errors = scores.iter().zip(targets(&new)).map(|(s, t)| (s - t).abs());
        let mean = errors.sum::<f64>() / new.rows as f64;
        assert!(mean < 0.1, "{mean}");
        assert!(fitted.importances[3] < 0.01);
        assert!((fitted.importances.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!(
            fitted
                .curve
                .windows(2)
                .all(|pair| pair[1].learnt <= pair[0].learnt)
        );
    }

    #[test]
    fn classes_are_learnt() {
        let (learnt, new) = (some(500), some(300));
        let class = |columns: &Columns, row: usize| f64::from(u8::from(target(columns, row) > 2.0));
        let y: Vec<f64> = (0..learnt.rows).map(|row| class(&learnt, row)).collect();
        let fitted = Boosting::new(Loss::Logistic).fit(&learnt, &y).unwrap();
        let scores = fitted.ensemble.predict(&new);
        let right = (0..new.rows).filter(|&row| (scores[row] > 0.0) == (class(&new, row) == 1.0));
        assert!(right.count() > 270);
    }

    #[test]
    fn the_same_seed_gives_the_same_trees_and_another_does_not() {
        let columns = some(200);
        let y: Vec<f64> = (0..200).map(|row| target(&columns, row)).collect();
        let fit = |seed| {
            let boosting = Boosting {
                subsample: 0.5,
                seed,
                ..Boosting::new(Loss::Squared)
            };
            boosting.fit(&columns, &y).unwrap().ensemble
        };
        assert_eq!(fit(1), fit(1));
        assert_ne!(fit(1), fit(2));
    }

    #[test]
    fn it_stops_when_what_is_held_out_is_known_no_better() {
        let (learnt, new) = (some(60), some(60));
        let y = noise(7, 60);
        let held = noise(8, 60);
        let boosting = Boosting {
            patience: Some(5),
            ..Boosting::new(Loss::Squared)
        };
        let fitted = boosting
            .fit_watched(&learnt, &y, Some((&new, &held)))
            .unwrap();
        let best = fitted
            .curve
            .iter()
            .enumerate()
            .min_by(|a, b| a.1.held_out.unwrap().total_cmp(&b.1.held_out.unwrap()))
            .unwrap();
        assert!(fitted.ensemble.trees.len() < 50);
        assert!(fitted.ensemble.trees.len() == best.0 || best.0 == 0);
    }

    #[test]
    fn what_cannot_be_learnt_is_said() {
        let columns = some(4);
        let error = |loss, y: &[f64]| {
            let fitted = Boosting::new(loss).fit(&columns, y);
            format!("{:#}", fitted.unwrap_err())
        };
        assert!(error(Loss::Logistic, &[1.0; 4]).contains("one class"));
        assert!(error(Loss::Logistic, &[1.0, 2.0, 0.0, 1.0]).contains("neither"));
        assert!(error(Loss::Squared, &[1.0, f64::NAN, 0.0, 1.0]).contains("not a number"));
        assert!(error(Loss::Squared, &[1.0]).contains("do not go together"));
        let none = Columns::default();
        assert!(Boosting::new(Loss::Squared).fit(&none, &[]).is_err());
    }
}
