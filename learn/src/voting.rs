// SPDX-License-Identifier: GPL-2.0-or-later
//! A random forest of linfa's, whose trees vote on classes.

use anyhow::Result;
use linfa::prelude::*;
use linfa_ensemble::EnsembleLearnerParams;
use linfa_trees::DecisionTree;
use ndarray::{Array1, Array2, Axis};
use rand::SeedableRng;
use rand::rngs::SmallRng;

/// How many trees vote.
pub(crate) const VOTERS: usize = 40;

const SEED: u64 = 1;

/// How trees are made.
#[derive(Clone, Copy)]
pub(crate) struct VotingForest {
    /// How deep each is at most.
    pub(crate) depth: usize,
    /// The part of the features that each sees: linfa draws them for each tree and not for each split, and with
    /// few of them most trees see one side alone.
    pub(crate) features: f64,
}

impl VotingForest {
    /// Learns from rows and the class of each; what that votes of another row.
    ///
    /// # Errors
    /// There are no rows.
    pub(crate) fn fit(
        self,
        rows: Array2<f64>,
        classes: Array1<usize>,
    ) -> Result<impl Fn(&Array2<f64>) -> Vec<usize> + use<>> {
        let rng = SmallRng::seed_from_u64(SEED);
        let tree = DecisionTree::params().max_depth(Some(self.depth));
        let forest = EnsembleLearnerParams::new_fixed_rng(tree, rng)
            .ensemble_size(VOTERS)
            .bootstrap_proportion(1.0)
            .feature_proportion(self.features)
            .fit(&Dataset::new(rows, classes))?;
        Ok(move |row: &Array2<f64>| {
            let votes = forest.models.iter().zip(&forest.model_features);
            let vote = |(tree, seen): (&DecisionTree<f64, usize>, &Vec<usize>)| {
                tree.predict(&row.select(Axis(1), seen))[0]
            };
            votes.map(vote).collect()
        })
    }
}
