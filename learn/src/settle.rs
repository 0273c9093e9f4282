// SPDX-License-Identifier: GPL-2.0-or-later
//! What an estimate of SF is made of: what boosting begins with, which features it sees, and how many
//! trees it has. All of it is chosen by programs left out.

use anyhow::Result;
use hetero_core::ml::boosting::{Boosting, TrainingError};
use hetero_core::ml::data::Data;
use hetero_core::ml::learn::View;
use hetero_core::ml::validate::{begin, best, speedups};

use crate::select;

/// What was chosen.
#[derive(Clone)]
pub struct Settled {
    /// The features.
    pub view: View,
    /// How it is learnt.
    pub boosting: Boosting,
    /// The learning curve, with as many trees as there may be.
    pub curve: Vec<TrainingError>,
}

/// What may be chosen.
pub struct Limits<'l> {
    /// How to boost, and the most trees.
    pub boosting: Boosting,
    /// Keep all features.
    pub all_features: bool,
    /// Whether the PMU counts features at once.
    pub at_once: &'l dyn Fn(&[usize]) -> bool,
}

/// Chooses among the features `all` of a core type: what to begin with and which features by the groups
/// `few`, how many trees by `each`.
///
/// # Errors
/// Nothing can be learnt.
pub fn settle(
    data: &Data,
    core_type: usize,
    all: Vec<usize>,
    limits: &Limits,
    [few, each]: [&[usize]; 2],
) -> Result<Settled> {
    let mut boosting = begin(data, core_type, &all, limits.boosting, few)?;
    let view = match limits.all_features {
        true => View {
            features: all,
            core_type: false,
        },
        false => select::select(data, core_type, &all, &boosting, few, limits.at_once)?,
    };
    boosting.trees = limits.boosting.trees;
    let curve = speedups(data, core_type, &view, &boosting, each)?.curve;
    // As many trees as were best for programs that were not learnt from.
    boosting.trees = best(&curve).max(usize::from(!boosting.linear));
    Ok(Settled {
        view,
        boosting,
        curve,
    })
}
