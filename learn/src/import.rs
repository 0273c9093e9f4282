// SPDX-License-Identifier: GPL-2.0-or-later
//! Trees that others have learnt: XGBoost's own JSON, and what
//! `experiments/ml-peers/export_sklearn.py` prints, which is ours.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use hetero_core::files::read_text;
use hetero_core::ml::boosting::Loss;
use hetero_core::ml::data::{Data, Per, Row};
use hetero_core::ml::forest::{Comparison, MAX_DEPTH, to_features, to_number};
use hetero_core::ml::learn::Pair;
use hetero_core::ml::model::{CORE_TYPE, Feature, Trees};
use hetero_core::ml::scores::{Confusion, RowEstimate};
use hetero_core::ml::tree::Tree;
use hetero_core::ml::validate::HeldOutSpeedups;
use hetero_core::parse;

/// Reads a file of either kind, for tables whose features are counted `per`.
pub fn read(path: &Path, per: Per) -> Result<Trees> {
    read_text(path)
        .map_err(anyhow::Error::from)
        .and_then(|text| parse(&text, per))
        .with_context(|| format!("cannot import {}", path.display()))
}

/// Reads trees of either kind. XGBoost does not say what features are counted per: it is taken to
/// be what those of the tables are.
///
/// # Errors
/// It is neither, or asks what we cannot answer.
pub fn parse(text: &str, per: Per) -> Result<Trees> {
    let value: serde_json::Value = parse::json(text)?;
    if value.get("learner").is_some() {
        let saved: Saved = parse::json(text)
            .context("it is not as XGBoost saves a model of trees with save_model('....json')")?;
        return saved.learner.trees(per);
    }
    ensure!(
        value.get("trees").is_some(),
        "it is neither XGBoost's JSON nor what export_sklearn.py prints"
    );
    let trees: Trees = parse::json(text)?;
    ensure!(
        trees.per == per,
        "its features are per {:?}, and those of the tables per {per:?}",
        trees.per
    );
    Ok(trees)
}

/// What trees from elsewhere say of SF of these rows.
pub fn score_speedup(data: &Data, rows: &[usize], trees: &Trees) -> Result<HeldOutSpeedups> {
    ensure!(
        trees.loss == Loss::Squared,
        "imported trees tell classes apart, not SF"
    );
    let programs = data.program_numbers();
    let said = estimates(data, rows, trees)?.into_iter();
    let estimate = |(&row, (said, _)): (&usize, (f64, Vec<f64>))| RowEstimate {
        program: programs[row],
        is: data.rows[row].sf,
        said,
    };
    Ok(HeldOutSpeedups {
        rows: rows.iter().zip(said).map(estimate).collect(),
        curve: Vec::new(),
    })
}

/// What trees say of these rows, and by which features.
///
/// # Errors
/// The rows lack what they ask for.
pub fn estimates(data: &Data, rows: &[usize], trees: &Trees) -> Result<Vec<(f64, Vec<f64>)>> {
    let asked = asked(data, trees)?;
    let forest = trees.forest()?;
    let of_row = |&row: &usize| {
        let row = &data.rows[row];
        let features = values(&asked, row, row)?;
        let said = forest.score(&to_features(features.iter().copied()));
        Ok((to_number(said), features))
    };
    rows.iter().map(of_row).collect()
}

/// What they say of pairs, asked both ways round.
pub fn score_classifier(data: &Data, pairs: &[Pair], trees: &Trees) -> Result<Confusion> {
    ensure!(
        trees.loss == Loss::Logistic,
        "imported trees estimate a number, and tell no classes apart"
    );
    let asked = asked(data, trees)?;
    let forest = trees.forest()?;
    let mut scores = Confusion::default();
    for pair in pairs {
        let (a, b) = (&data.rows[pair.a], &data.rows[pair.b]);
        let score =
            |a, b| Ok::<_, anyhow::Error>(forest.score(&to_features(values(&asked, a, b)?)));
        scores.add(a.sf > b.sf, score(a, b)? > score(b, a)?);
    }
    Ok(scores)
}

/// A feature of the first or the second row of a pair; without an index, the core type.
type Asked = (bool, Option<usize>);

fn asked(data: &Data, trees: &Trees) -> Result<Vec<Asked>> {
    let find = |feature: &Feature| {
        let (second, name) = match feature.name.split_once(':') {
            Some(("a", name)) => (false, name),
            Some(("b", name)) => (true, name),
            _ => (false, feature.name.as_str()),
        };
        if name == CORE_TYPE {
            return Ok((second, None));
        }
        let index = data.features.iter().position(|known| known == name);
        let index = index.with_context(|| {
            let known = data.features.join(", ");
            format!("imported trees ask for '{name}', which the tables have not: they have {known}")
        })?;
        Ok((second, Some(index)))
    };
    trees.features.iter().map(find).collect()
}

fn values(asked: &[Asked], a: &Row, b: &Row) -> Result<Vec<f64>> {
    let value = |&(second, index): &Asked| {
        let row = if second { b } else { a };
        let value = index.map_or(row.core_type as f64, |index| row.features[index]);
        ensure!(
            value.is_finite(),
            "trees ask for what {} lacks",
            row.program
        );
        Ok(value)
    };
    asked.iter().map(value).collect()
}

#[derive(Deserialize)]
struct Saved {
    learner: Learner,
}

#[derive(Deserialize)]
struct Learner {
    #[serde(default)]
    feature_names: Vec<String>,
    gradient_booster: Booster,
    learner_model_param: Param,
    objective: Objective,
}

#[derive(Deserialize)]
struct Booster {
    name: String,
    model: Forest,
}

#[derive(Deserialize)]
struct Forest {
    trees: Vec<Arrays>,
}

#[derive(Deserialize)]
struct Param {
    base_score: String,
    #[serde(default)]
    num_class: String,
    num_feature: String,
}

#[derive(Deserialize)]
struct Objective {
    name: String,
}

#[derive(Deserialize)]
struct Arrays {
    left_children: Vec<i32>,
    right_children: Vec<i32>,
    split_indices: Vec<usize>,
    split_conditions: Vec<f32>,
    #[serde(default)]
    categories: Vec<i32>,
}

impl Learner {
    fn trees(self, per: Per) -> Result<Trees> {
        ensure!(
            self.gradient_booster.name == "gbtree",
            "booster '{}' is no plain sum of trees: use gbtree",
            self.gradient_booster.name
        );
        ensure!(
            ["", "0", "1"].contains(&self.learner_model_param.num_class.as_str()),
            "it has more than two classes"
        );
        let base = self.learner_model_param.base_score.trim_matches(['[', ']']);
        let base: f32 = base
            .parse()
            .with_context(|| format!("its base_score '{base}' is not a number"))?;
        let base = f64::from(base);
        let (loss, base) = match self.objective.name.as_str() {
            "reg:squarederror" => (Loss::Squared, base),
            // The score is a probability; trees add to the logarithm of its odds.
            "binary:logistic" => (Loss::Logistic, (base / (1.0 - base)).ln()),
            other => bail!("objective '{other}' is neither reg:squarederror nor binary:logistic"),
        };
        let number: usize = self
            .learner_model_param
            .num_feature
            .parse()
            .context("it does not say how many features it has")?;
        ensure!(
            self.feature_names.len() == number,
            "it does not name its features: train with feature_names, of events as in docs/ml.md"
        );
        let trees = self.gradient_booster.model.trees.iter().enumerate();
        let trees = trees.map(|(n, arrays)| arrays.tree(0, 0).with_context(|| format!("tree {n}")));
        // Thresholds are of features as they are.
        let feature = |name: String| Feature {
            name,
            min: 0.0,
            max: 1.0,
        };
        Ok(Trees {
            loss,
            comparison: Comparison::Below,
            per,
            base,
            weights: Vec::new(),
            inverse: false,
            range: None,
            features: self.feature_names.into_iter().map(feature).collect(),
            trees: trees.collect::<Result<_>>()?,
        })
    }
}

impl Arrays {
    fn tree(&self, node: usize, depth: usize) -> Result<Tree> {
        ensure!(
            depth <= MAX_DEPTH,
            "it is deeper than {MAX_DEPTH}: train with a smaller max_depth"
        );
        ensure!(self.categories.is_empty(), "it splits by categories");
        let of = |values: &[i32]| values.get(node).copied().context("it is damaged");
        let (left, right) = (of(&self.left_children)?, of(&self.right_children)?);
        let condition = self
            .split_conditions
            .get(node)
            .copied()
            .context("it is damaged")?;
        if left < 0 {
            return Ok(Tree::Leaf(condition.into()));
        }
        let below = |child: i32| -> Result<Box<Tree>> {
            let child = usize::try_from(child).context("it is damaged")?;
            Ok(Box::new(self.tree(child, depth + 1)?))
        };
        Ok(Tree::Split {
            feature: self
                .split_indices
                .get(node)
                .copied()
                .context("it is damaged")?,
            threshold: condition.into(),
            low: below(left)?,
            high: below(right)?,
        })
    }
}
