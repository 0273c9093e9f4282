// SPDX-License-Identifier: GPL-2.0-or-later
//! Kinds of models beside boosted trees, by linfa, on the same features and the same programs left out:
//! the thesis' comparison (topology-aware-ml-2024, chapter 4). Only a weighted sum can be evaluated in
//! the kernel as boosted trees are; the others are there to see what that costs.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;
use hetero_core::ml::boosting::Loss;
use hetero_core::ml::data::{Data, Per};
use hetero_core::ml::forest::{Comparison, to_number};
use hetero_core::ml::learn::{Pair, View, fixed};
use hetero_core::ml::linear::{self, RIDGE};
use hetero_core::ml::model::{Feature, Model, Trees};
use hetero_core::ml::scores::{Confusion, RowEstimate};
use hetero_core::ml::tree::Columns;
use hetero_core::ml::validate::{HeldOutSpeedups, TwoLeftOut, one_left_out, two_left_out};
use linfa::prelude::*;
use linfa_logistic::LogisticRegression;
use linfa_nn::distance::L2Dist;
use linfa_nn::{CommonNearestNeighbour, NearestNeighbour as _};
use linfa_svm::Svm;
use ndarray::{Array1, Array2};

use crate::scaled::ScaledRows;
use crate::voting::{VOTERS, VotingForest};

/// Neighbours that have a say.
const NEIGHBOURS: usize = 9;
const FOREST: VotingForest = VotingForest {
    depth: 12,
    features: 0.6,
};
/// A support vector machine takes time by the square of the rows: it learns from so many.
const ROWS_OF_SVM: usize = 2000;
/// How much a support vector machine minds an error, and how near rows are alike: in features of which
/// each is brought to 0 to 1.
const COST: f64 = 10.0;
const WIDTH: f64 = 1.0;
/// An error of SF that a support vector machine does not mind.
const SLACK: f64 = 0.02;

/// A kind of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinfaKind {
    /// A weighted sum by least squares; of pairs by logistic regression.
    Linear,
    /// A support vector machine with a Gaussian kernel.
    Svm,
    /// A random forest, of pairs alone: linfa's trees tell classes, not numbers.
    Forest,
    /// The mean of the nearest neighbours, or what most of them say.
    Nearest,
}

impl LinfaKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Linear, Self::Svm, Self::Forest, Self::Nearest];
}

impl fmt::Display for LinfaKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Linear => "linear, logistic",
            Self::Svm => "SVM",
            Self::Forest => "random forest",
            Self::Nearest => "nearest neighbours",
        })
    }
}

/// What one kind is worth.
#[derive(Clone, Debug)]
pub struct Worth {
    /// Estimates of SF, by core type; `None` where the kind makes none.
    pub speedup: Vec<Option<HeldOutSpeedups>>,
    /// Pairs by those estimates.
    pub by_speedup: Option<Confusion>,
    /// Pairs by the classifier, asked both ways round.
    pub classifier: Confusion,
    /// How long it takes to learn from all rows of each core type and all pairs.
    pub took: Duration,
}

/// Puts weighted sums, and what they are worth, in the place of boosted trees.
///
/// # Errors
/// They cannot be learnt.
pub fn replace_by_linear(
    model: &mut Model,
    data: &Data,
    views: &[View],
    (pairs, view): (&[Pair], &View),
    worth: &Worth,
) -> Result<()> {
    for (core_type, speedup) in model.speedup.iter_mut().enumerate() {
        speedup.trees = linear(data, &data.rows_of(core_type), &views[core_type])?;
        let worth = worth.speedup[core_type].as_ref();
        speedup.scores = worth.map(HeldOutSpeedups::nearness).unwrap_or_default();
        speedup.importances.clear();
        speedup.curve.clear();
    }
    if let Some(classifier) = &mut model.classifier {
        classifier.trees = logistic(data, pairs, view)?;
        classifier.scores = worth.classifier;
        classifier.by_speedup = worth.by_speedup.unwrap_or_default();
        classifier.importances.clear();
        classifier.curve.clear();
    }
    Ok(())
}

/// What says a number of a row's values; of a pair's, above 0 is that the first gains more.
pub type Says = Box<dyn Fn(&[f64]) -> f64>;

/// Learns and scores one kind: SF with each of the groups `each` left out, pairs with every two of `few`.
///
/// # Errors
/// Something cannot be learnt.
pub fn worth(
    kind: LinfaKind,
    data: &Data,
    views: &[View],
    pairs: &[Pair],
    view: &View,
    [each, few]: [&[usize]; 2],
) -> Result<Worth> {
    let estimate = |core_type: usize, rows: &[usize]| match rows {
        [] => Ok(None),
        rows => speedup(kind, data, rows, &views[core_type]),
    };
    let said =
        |core_type: usize, says: &Says, row: usize| says(&views[core_type].values(data, row));

    let mut speedups = Vec::new();
    let programs = data.program_numbers();
    for core_type in 0..views.len() {
        let rows = data.rows_of(core_type);
        let mut all = Some(Vec::new());
        for (out, learnt) in one_left_out(&rows, each) {
            let says = estimate(core_type, &learnt)?;
            all = all.zip(says).map(|(mut all, says)| {
                all.extend(out.iter().map(|&row| RowEstimate {
                    program: programs[row],
                    is: data.rows[row].sf,
                    said: said(core_type, &says, row),
                }));
                all
            });
        }
        speedups.push(all.map(|rows| HeldOutSpeedups {
            rows,
            curve: Vec::new(),
        }));
    }

    let (mut classified, mut by_speedup) = (Confusion::default(), Some(Confusion::default()));
    for TwoLeftOut {
        groups,
        out,
        learnt,
    } in two_left_out(pairs, few)
    {
        let classifier = classifier(kind, data, &learnt, view)?;
        let estimates: Vec<Option<Says>> = (0..views.len())
            .map(|core_type| {
                let mut rows = data.rows_of(core_type);
                rows.retain(|&row| !groups.contains(&few[row]));
                estimate(core_type, &rows)
            })
            .collect::<Result<_>>()?;
        for pair in out {
            let is = data.rows[pair.a].sf > data.rows[pair.b].sf;
            let says = |a, b| classifier(&view.of_pair(data, Pair { a, b }));
            classified.add(is, says(pair.a, pair.b) > says(pair.b, pair.a));
            let sf = |row: usize| {
                let core_type = data.rows[row].core_type;
                let says = estimates[core_type].as_ref()?;
                Some(said(core_type, says, row))
            };
            match (&mut by_speedup, sf(pair.a), sf(pair.b)) {
                (Some(matrix), Some(a), Some(b)) => matrix.add(is, a > b),
                _ => by_speedup = None,
            }
        }
    }

    let begun = Instant::now();
    for core_type in 0..views.len() {
        estimate(core_type, &data.rows_of(core_type))?;
    }
    let _ = classifier(kind, data, pairs, view)?;
    Ok(Worth {
        speedup: speedups,
        by_speedup,
        classifier: classified,
        took: begun.elapsed(),
    })
}

impl ScaledRows {
    /// SF of rows of one core type, and what is seen of them.
    fn of_rows(data: &Data, rows: &[usize], view: &View) -> Result<(Self, Array1<f64>)> {
        let values = rows.iter().map(|&row| view.values(data, row));
        let sfs = rows.iter().map(|&row| data.rows[row].sf);
        Ok((Self::new(values.collect())?, sfs.collect()))
    }

    /// Whether the first gains more, for pairs and for the same turned round.
    fn of_pairs(data: &Data, pairs: &[Pair], view: &View) -> Result<(Self, Array1<bool>)> {
        let both = pairs
            .iter()
            .flat_map(|&Pair { a, b }| [Pair { a, b }, Pair { a: b, b: a }]);
        let both: Vec<Pair> = both.collect();
        let values = both.iter().map(|&pair| view.of_pair(data, pair));
        let classes = both
            .iter()
            .map(|pair| data.rows[pair.a].sf > data.rows[pair.b].sf);
        Ok((Self::new(values.collect())?, classes.collect()))
    }

    /// A weighted sum of the columns, as a model has it.
    fn sum(&self, names: Vec<String>, base: f64, weights: Vec<f64>, loss: Loss) -> Trees {
        let features = names.into_iter().zip(self.columns());
        Trees {
            loss,
            comparison: Comparison::AtMost,
            per: Per::default(),
            base,
            weights,
            inverse: false,
            range: None,
            features: features
                .map(|(name, (min, scale))| Feature {
                    name,
                    min,
                    max: min + scale.recip(),
                })
                .collect(),
            trees: Vec::new(),
        }
    }
}

/// SF as a weighted sum by least squares, learnt from rows of one core type. With a small penalty: where features say the
/// same, as few programs soon have it, plain least squares find weights that are beyond all numbers.
///
/// # Errors
/// It cannot be learnt.
pub fn linear(data: &Data, rows: &[usize], view: &View) -> Result<Trees> {
    let (table, sfs) = ScaledRows::of_rows(data, rows, view)?;
    let ends = sfs.iter().fold([f64::INFINITY, 0.0], |[least, most], &sf| {
        [least.min(sf), f64::max(most, sf)]
    });
    let columns = Columns {
        rows: table.matrix.nrows(),
        columns: table
            .matrix
            .columns()
            .into_iter()
            .map(|column| column.to_vec())
            .collect(),
    };
    let (base, weights) = linear::fit_by(&columns, &sfs.to_vec(), RIDGE, 0)?;
    let names = view.names(data);
    Ok(Trees {
        per: data.per,
        range: Some(ends),
        ..table.sum(names, base, weights, Loss::Squared)
    })
}

/// Which of two gains more, by logistic regression.
///
/// # Errors
/// It cannot be learnt.
pub fn logistic(data: &Data, pairs: &[Pair], view: &View) -> Result<Trees> {
    let (table, classes) = ScaledRows::of_pairs(data, pairs, view)?;
    let fitted = LogisticRegression::default()
        .max_iterations(300)
        .fit(&Dataset::new(table.matrix.clone(), classes))?;
    // Of whichever class linfa takes for the positive one.
    let sign = if fitted.labels().pos.class { 1.0 } else { -1.0 };
    let names = view.names_of_pair(data);
    let base = sign * fitted.intercept();
    let weights = (fitted.params() * sign).to_vec();
    Ok(Trees {
        per: data.per,
        ..table.sum(names, base, weights, Loss::Logistic)
    })
}

/// As the scheduler asks it, in fixed point.
fn as_asked(trees: &Trees) -> Result<Says> {
    let forest = trees.forest()?;
    Ok(Box::new(move |values| {
        to_number(forest.score(&fixed(values)))
    }))
}

/// Of all, evenly, no more than `most`.
fn thinned<T: Copy>(all: &[T], most: usize) -> Vec<T> {
    let step = all.len().div_ceil(most).max(1);
    all.iter().step_by(step).copied().collect()
}

/// What estimates SF, learnt from rows of one core type; `None` if the kind does not.
///
/// # Errors
/// It cannot be learnt.
pub fn speedup(kind: LinfaKind, data: &Data, rows: &[usize], view: &View) -> Result<Option<Says>> {
    Ok(Some(match kind {
        LinfaKind::Linear => as_asked(&linear(data, rows, view)?)?,
        LinfaKind::Svm => {
            let (table, sfs) = ScaledRows::of_rows(data, &thinned(rows, ROWS_OF_SVM), view)?;
            let scale = table.scaler();
            let machine = Svm::<f64, f64>::params()
                .c_svr(COST, Some(SLACK))
                .gaussian_kernel(WIDTH)
                .fit(&Dataset::new(table.matrix, sfs))?;
            Box::new(move |values| machine.predict(scale(values).row(0)))
        }
        LinfaKind::Forest => return Ok(None),
        LinfaKind::Nearest => {
            let (table, sfs) = ScaledRows::of_rows(data, rows, view)?;
            nearest(table, sfs)
        }
    }))
}

/// What tells which of two gains more.
fn classifier(kind: LinfaKind, data: &Data, pairs: &[Pair], view: &View) -> Result<Says> {
    Ok(match kind {
        LinfaKind::Linear => as_asked(&logistic(data, pairs, view)?)?,
        LinfaKind::Svm => {
            let few = thinned(pairs, ROWS_OF_SVM / 2);
            let (table, classes) = ScaledRows::of_pairs(data, &few, view)?;
            let scale = table.scaler();
            let machine = Svm::<f64, bool>::params()
                .pos_neg_weights(COST, COST)
                .gaussian_kernel(WIDTH)
                .fit(&Dataset::new(table.matrix, classes))?;
            Box::new(move |values| machine.weighted_sum(&scale(values).row(0)) - machine.rho)
        }
        LinfaKind::Forest => {
            let (table, classes) = ScaledRows::of_pairs(data, pairs, view)?;
            let scale = table.scaler();
            let classes = classes.map(|&class| usize::from(class));
            let votes = FOREST.fit(table.matrix, classes)?;
            Box::new(move |values| {
                let yes: usize = votes(&scale(values)).iter().sum();
                yes as f64 - VOTERS as f64 / 2.0
            })
        }
        LinfaKind::Nearest => {
            let (table, classes) = ScaledRows::of_pairs(data, pairs, view)?;
            nearest(table, classes.map(|&class| if class { 1.0 } else { -1.0 }))
        }
    })
}

/// The mean of what is known of the nearest neighbours.
fn nearest(table: ScaledRows, known: Array1<f64>) -> Says {
    let scale = table.scaler();
    let mean = move |row: Array2<f64>| -> Result<f64> {
        // An index borrows what it searches, and to build one that is fast takes longer than one look.
        let index = CommonNearestNeighbour::LinearSearch.from_batch(&table.matrix, L2Dist)?;
        let found = index.k_nearest(row.row(0), NEIGHBOURS)?;
        let sum: f64 = found.iter().map(|(_, at)| known[*at]).sum();
        Ok(sum / found.len().max(1) as f64)
    };
    // Rows have the width of those that were learnt, which is all that a search can refuse.
    Box::new(move |values| mean(scale(values)).unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use hetero_core::ml::validate::{groups, pairs};

    use super::*;

    /// SF is a weighted sum of two rates, on one core type; each program has one row.
    fn data() -> Data {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.csv");
        let mut text = String::from("program,instructions,cycles,branches,loads,sf\n");
        for n in 0..40_u32 {
            let (branches, loads) = (100 + 10 * (n * 7 % 11), 100 + 10 * (n * 5 % 13));
            let sf = 1.0 + f64::from(branches) / 400.0 + f64::from(loads) / 800.0;
            text += &format!("p{n},1000,1000,{branches},{loads},{sf}\n");
        }
        std::fs::write(&path, text).unwrap();
        Data::read(&[path], &[]).unwrap()
    }

    #[test]
    fn features_that_say_the_same_share_a_weight_that_the_kernel_can_hold() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.csv");
        let mut text = String::from("program,instructions,cycles,branches,loads,stores,sf\n");
        for n in 0..12_u32 {
            // One is a sum of the other two, but for the last digit.
            let (branches, loads) = (100 + 10 * (n * 7 % 11), 100 + 10 * (n * 5 % 13));
            let stores = f64::from(branches + loads) + 1e-7 * f64::from(n % 3);
            let sf = 1.0 + f64::from(branches) / 400.0 + f64::from(n % 2) / 100.0;
            text += &format!("p{n},1000,1000,{branches},{loads},{stores},{sf}\n");
        }
        std::fs::write(&path, text).unwrap();
        let data = Data::read(&[path], &[]).unwrap();
        let view = View {
            features: data.usable(&[0]),
            core_type: false,
        };
        let sum = linear(&data, &data.rows_of(0), &view).unwrap();
        assert!(
            sum.weights.iter().all(|weight| weight.abs() < 10.0),
            "{sum:?}"
        );
        assert!(sum.forest().is_ok());
    }

    #[test]
    fn every_kind_learns_a_sum_of_rates_and_the_sum_itself_does_so_best() {
        let data = data();
        let view = View {
            features: data.usable(&[0]),
            core_type: false,
        };
        let (few, pairs) = (groups(&data, 5, 1), pairs(&data, 400, 1));
        for kind in LinfaKind::ALL {
            let views = std::slice::from_ref(&view);
            let worth = worth(kind, &data, views, &pairs, &view, [&few, &few]).unwrap();
            assert!(worth.classifier.accuracy() > 0.7, "{kind}: {worth:?}");
            let least = match kind {
                // No estimate is beyond what was seen.
                LinfaKind::Linear => 0.99,
                _ => 0.9,
            };
            let speedup = worth.speedup[0].as_ref().map(HeldOutSpeedups::nearness);
            match (kind, speedup) {
                (LinfaKind::Forest, speedup) => assert_eq!(speedup, None),
                (_, speedup) => {
                    assert!(speedup.unwrap().correlation > least, "{kind}: {speedup:?}");
                    assert!(worth.by_speedup.unwrap().accuracy() > 0.8, "{kind}");
                }
            }
        }
    }

    #[test]
    fn logistic_regression_says_which_of_two_whichever_is_asked_about() {
        let data = data();
        let view = View {
            features: data.usable(&[0]),
            core_type: false,
        };
        let pairs = pairs(&data, 400, 1);
        let says = as_asked(&logistic(&data, &pairs, &view).unwrap()).unwrap();
        let right = |&&Pair { a, b }: &&Pair| {
            let is = data.rows[a].sf > data.rows[b].sf;
            is == (says(&view.of_pair(&data, Pair { a, b })) > 0.0)
                && is == (says(&view.of_pair(&data, Pair { a: b, b: a })) < 0.0)
        };
        let share = pairs.iter().filter(right).count() as f64 / pairs.len() as f64;
        assert!(share > 0.97, "{share}");
    }
}
