// SPDX-License-Identifier: GPL-2.0-or-later
//! From rows to trees: which values trees see, and how they are normalised.

use anyhow::Result;

use super::boosting::{Boosting, Fitted};
use super::data::{Data, Per};
use super::forest::{Comparison, Features, to_features};
use super::model::{CORE_TYPE, Feature, Trees};
use super::tree::Columns;

/// Two rows of different programs, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The one asked about.
    pub a: usize,
    /// The one it is compared with.
    pub b: usize,
}

/// What of a row is looked at: features by index, and perhaps the core type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Indices into [`Data::features`].
    pub features: Vec<usize>,
    /// The core type is looked at, too.
    pub core_type: bool,
}

impl View {
    /// What it sees of a row.
    pub fn values(&self, data: &Data, row: usize) -> Vec<f64> {
        let row = &data.rows[row];
        let mut values: Vec<f64> = self
            .features
            .iter()
            .map(|&feature| row.features[feature])
            .collect();
        values.extend(self.core_type.then_some(row.core_type as f64));
        values
    }

    /// What it sees of both.
    pub fn of_pair(&self, data: &Data, pair: Pair) -> Vec<f64> {
        [self.values(data, pair.a), self.values(data, pair.b)].concat()
    }

    /// The same of a pair's.
    pub fn names_of_pair(&self, data: &Data) -> Vec<String> {
        let names = self.names(data);
        let side = |side: &'static str| names.iter().map(move |name| format!("{side}:{name}"));
        side("a").chain(side("b")).collect()
    }

    /// What the values of a row are called.
    pub fn names(&self, data: &Data) -> Vec<String> {
        let names = self
            .features
            .iter()
            .map(|&feature| data.features[feature].clone());
        names
            .chain(self.core_type.then(|| CORE_TYPE.to_string()))
            .collect()
    }
}

/// As the forest sees them.
pub fn fixed(values: &[f64]) -> Features {
    to_features(values.iter().copied())
}

/// Learns SF from rows, which are all of one core type. With `held_out` rows the learning curve
/// says how well those are known.
pub fn speedup(
    data: &Data,
    rows: &[usize],
    view: &View,
    boosting: &Boosting,
    held_out: &[usize],
) -> Result<(Trees, Fitted)> {
    let targets = |rows: &[usize]| -> Vec<f64> {
        let sfs = rows.iter().map(|&row| data.rows[row].sf);
        match boosting.inverse {
            true => sfs.map(f64::recip).collect(),
            false => sfs.collect(),
        }
    };
    let values = |rows: &[usize]| -> Vec<Vec<f64>> {
        rows.iter().map(|&row| view.values(data, row)).collect()
    };
    let (learnt, held) = (targets(rows), targets(held_out));
    let sfs = rows.iter().map(|&row| data.rows[row].sf);
    let ends = sfs.fold([f64::INFINITY, 0.0], |[least, most], sf| {
        [least.min(sf), f64::max(most, sf)]
    });
    let (mut trees, fitted) = fit(
        boosting,
        view.names(data),
        1,
        [values(rows), values(held_out)],
        [learnt, held],
    )?;
    trees.per = data.per;
    trees.inverse = boosting.inverse;
    trees.range = Some(ends);
    Ok((trees, fitted))
}

/// Learns which of two rows has the greater SF; each pair is learnt both ways round.
pub fn classifier(
    data: &Data,
    pairs: &[Pair],
    view: &View,
    boosting: &Boosting,
    held_out: &[Pair],
) -> Result<(Trees, Fitted)> {
    let ways = |pairs: &[Pair]| -> Vec<Pair> {
        pairs
            .iter()
            .flat_map(|&Pair { a, b }| [Pair { a, b }, Pair { a: b, b: a }])
            .collect()
    };
    let (learnt, held_out) = (ways(pairs), ways(held_out));
    let targets = |pairs: &[Pair]| -> Vec<f64> {
        let gains_more = |pair: &Pair| data.rows[pair.a].sf > data.rows[pair.b].sf;
        pairs
            .iter()
            .map(|pair| f64::from(u8::from(gains_more(pair))))
            .collect()
    };
    let values = |pairs: &[Pair]| -> Vec<Vec<f64>> {
        pairs.iter().map(|&pair| view.of_pair(data, pair)).collect()
    };
    let names = view.names_of_pair(data);
    let (mut trees, fitted) = fit(
        boosting,
        names,
        2,
        [values(&learnt), values(&held_out)],
        [targets(&learnt), targets(&held_out)],
    )?;
    trees.per = data.per;
    Ok((trees, fitted))
}

/// Values are brought to 0 to 1 by the least and the most of each feature, of both sides of a pair
/// together (topology-aware-ml-2024, chapter 4).
fn fit(
    boosting: &Boosting,
    names: Vec<String>,
    sides: usize,
    [learnt, held_out]: [Vec<Vec<f64>>; 2],
    [targets, held_targets]: [Vec<f64>; 2],
) -> Result<(Trees, Fitted)> {
    let of_side = names.len() / sides;
    let mut ranges = vec![(f64::INFINITY, f64::NEG_INFINITY); of_side];
    for (n, &value) in learnt.iter().flat_map(|values| values.iter().enumerate()) {
        let (min, max) = &mut ranges[n % of_side];
        *min = min.min(value);
        *max = max.max(value);
    }
    for (min, max) in &mut ranges {
        if *min >= *max {
            *max = *min + 1.0;
        }
    }
    let scale = |rows: Vec<Vec<f64>>| {
        let scaled: Vec<Vec<f64>> = rows
            .into_iter()
            .map(|row| {
                let one = |(n, value): (usize, f64)| {
                    let (min, max) = ranges[n % of_side];
                    (value - min) / (max - min)
                };
                row.into_iter().enumerate().map(one).collect()
            })
            .collect();
        Columns::from_rows(names.len(), scaled.iter().map(Vec::as_slice))
    };
    let (learnt, held_out) = (scale(learnt), scale(held_out));
    let watched = (!held_targets.is_empty()).then_some((&held_out, &held_targets[..]));
    let fitted = boosting.fit_watched(&learnt, &targets, watched)?;
    let features = names.iter().enumerate().map(|(n, name)| Feature {
        name: name.clone(),
        min: ranges[n % of_side].0,
        max: ranges[n % of_side].1,
    });
    let trees = Trees {
        loss: boosting.loss,
        comparison: Comparison::AtMost,
        per: Per::default(),
        base: fitted.ensemble.base,
        weights: fitted.ensemble.weights.clone(),
        inverse: false,
        range: None,
        features: features.collect(),
        trees: fitted.ensemble.trees.clone(),
    };
    Ok((trees, fitted))
}
