// SPDX-License-Identifier: GPL-2.0-or-later
//! A model as a file: what it asks, what it was learnt from, and how good it was.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};

use super::boosting::{Loss, TrainingError};
use super::data::{INSTRUCTIONS, Per};
use super::forest::{Comparison, FeatureScale, Forest, Sum};
use super::header::MeasuredMachine;
use super::scores::{Confusion, Nearness};
use super::tree::Tree;
use crate::files::read_text;
use crate::parse;
use crate::topology::Identity;

/// Where a model lies that nobody has named.
pub const PATH: &str = "/var/lib/scx_hetero/model.json";

/// Grows when a field changes its meaning.
pub const SCHEMA: u32 = 2;

/// The feature that is the index of the core type a thread was counted on.
pub const CORE_TYPE: &str = "core-type";

/// What was learnt of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The program that wrote it, with its version.
    pub written_by: String,
    /// When, in UTC.
    pub date: String,
    /// The machine; `None` if the tables did not say.
    pub machine: Option<MeasuredMachine>,
    /// What it was learnt from.
    pub data: DataIdentity,
    /// Core types, fastest first. SF is the speed on the first over that on the last.
    pub core_types: Vec<String>,
    /// By which of both threads are better ranked.
    pub rank_by: RankBy,
    /// SF by what a thread does on a core type.
    pub speedup: Vec<Speedup>,
    /// EF by what a thread does on a core type, in the same form, where energy was measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub efficiency: Vec<Speedup>,
    /// Which of two threads has the higher EF by that, on pairs of programs neither of which was learnt from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub efficiency_pairs: Option<Confusion>,
    /// Which of two threads gains more; `None` if there was nothing to learn it from.
    pub classifier: Option<Classifier>,
}

/// By what threads are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RankBy {
    /// The SF that each is estimated to have: one evaluation a thread.
    Speedup,
    /// The classifier: one for each comparison.
    Classifier,
}

/// What tells data apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataIdentity {
    /// Names of the tables.
    pub tables: Vec<String>,
    /// FNV-1a of their text, hexadecimal.
    pub digest: String,
    /// How many measurements.
    pub rows: usize,
    /// Of which programs.
    pub programs: Vec<String>,
}

/// Trees with what they ask.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trees {
    /// What was made small.
    pub loss: Loss,
    /// What goes low.
    pub comparison: Comparison,
    /// What events are divided by.
    #[serde(default)]
    pub per: Per,
    /// What is added to all trees.
    pub base: f64,
    /// A weight for each feature, from 0 to 1, or none at all.
    #[serde(default)]
    pub weights: Vec<f64>,
    /// All of that is 1 / SF.
    #[serde(default)]
    pub inverse: bool,
    /// What comes of it is no less and no more.
    #[serde(default)]
    pub range: Option<[f64; 2]>,
    /// In the order in which trees number them.
    pub features: Vec<Feature>,
    /// The trees.
    pub trees: Vec<Tree>,
}

/// A feature: events per cycle or per instruction, of which `min` is 0 to the trees and `max` is 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Feature {
    /// The event; of a pair with `a:` or `b:` before it.
    pub name: String,
    /// The least that was learnt from.
    pub min: f64,
    /// The most.
    pub max: f64,
}

/// What estimates SF from one core type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speedup {
    /// The core type that the thread is on.
    pub core_type: String,
    /// Its trees come from elsewhere.
    pub imported: bool,
    /// On programs that were not learnt from; of imported trees on all, for nobody knows what
    /// those were learnt from.
    pub scores: Nearness,
    /// By how much each feature lessened the error, as parts of 1.
    pub importances: Vec<f64>,
    /// The loss after so many trees, mean over the folds.
    pub curve: Vec<TrainingError>,
    /// What it asks.
    pub trees: Trees,
}

/// What says which of two threads gains more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Classifier {
    /// Its trees come from elsewhere.
    pub imported: bool,
    /// On pairs of programs neither of which was learnt from; of imported trees on all.
    pub scores: Confusion,
    /// The same pairs by the estimated SF.
    pub by_speedup: Confusion,
    /// By how much each feature lessened the error, as parts of 1.
    pub importances: Vec<f64>,
    /// The loss after so many trees, mean over the folds.
    pub curve: Vec<TrainingError>,
    /// What it asks, of features of both.
    pub trees: Trees,
}

/// What the logarithms of programs' SFs differ by, standard deviation, where a model does not say: about
/// what the mean errs by on an i9-12900KS (`docs/real-hardware.md`).
const SPREAD: f64 = 0.2;

impl Feature {
    /// How far a value lies outside of what was learnt from, in parts of that range.
    pub(super) fn beyond(&self, value: f64) -> f64 {
        let most = (value - self.max).max(self.min - value);
        (most / (self.max - self.min)).max(0.0)
    }
}

/// `sigma` of a thread whose features lie so far outside, in all, of what was learnt from: the farther, the less is
/// known, and a whole range beyond nothing but the `spread`.
pub(super) fn sigma_beyond(sigma: f64, spread: f64, beyond: f64) -> f64 {
    sigma.hypot(spread * beyond.min(1.0))
}

impl Speedup {
    /// Standard error of the logarithm of SF, of programs like those it was learnt from.
    pub fn sigma(&self) -> f64 {
        self.scores.sigma.unwrap_or_else(|| {
            // The mean absolute error of a normal distribution is less than its deviation.
            let deviation = self.scores.mae * std::f64::consts::FRAC_PI_2.sqrt();
            let usual = |[least, most]: [f64; 2]| (least.max(1.0) * most.max(1.0)).sqrt();
            deviation / self.trees.range.map_or(1.0, usual)
        })
    }

    /// Standard deviation of the logarithms of the SFs that it was learnt from, as if all between the
    /// least and the greatest were as frequent.
    pub fn spread(&self) -> f64 {
        let even = |[least, most]: [f64; 2]| (most / least).ln().abs() / 12.0_f64.sqrt();
        let spread = self.trees.range.map(even);
        spread.filter(|spread| spread.is_finite()).unwrap_or(SPREAD)
    }

    /// Standard error of the logarithm of SF of a thread with these features, one for each of its trees'.
    pub fn sigma_at(&self, values: &[f64]) -> f64 {
        let features = self.trees.features.iter().zip(values);
        let beyond = features
            .map(|(feature, &value)| feature.beyond(value))
            .sum();
        sigma_beyond(self.sigma(), self.spread(), beyond)
    }

    /// Of trees from elsewhere.
    pub fn imported(core_type: &str, scores: Nearness, trees: Trees) -> Self {
        Self {
            core_type: core_type.to_string(),
            imported: true,
            scores,
            importances: Vec::new(),
            curve: Vec::new(),
            trees,
        }
    }
}

impl Classifier {
    /// Of trees from elsewhere.
    pub fn imported(scores: Confusion, by_speedup: Confusion, trees: Trees) -> Self {
        Self {
            imported: true,
            scores,
            by_speedup,
            importances: Vec::new(),
            curve: Vec::new(),
            trees,
        }
    }
}

impl Trees {
    /// Lays them out for evaluation.
    ///
    /// # Errors
    /// They do not fit, or a number makes no sense.
    pub fn forest(&self) -> Result<Box<Forest>> {
        let scales = self.features.iter().map(|feature| FeatureScale {
            min: feature.min,
            max: feature.max,
        });
        Forest::new(&Sum {
            base: self.base,
            weights: &self.weights,
            trees: &self.trees,
            scales: &scales.collect::<Vec<_>>(),
            comparison: self.comparison,
            inverse: self.inverse,
            range: self.range,
        })
    }

    fn check(&self) -> Result<()> {
        let mut names = BTreeSet::new();
        for Feature { name, min, max } in &self.features {
            ensure!(names.insert(name), "feature {name} is there twice");
            ensure!(
                min.is_finite() && max.is_finite() && min < max,
                "feature {name} has no range"
            );
        }
        self.forest().map(drop)
    }

    /// See [`events`].
    pub fn events(&self) -> BTreeSet<&str> {
        events(self.features.iter().map(|feature| feature.name.as_str()))
    }
}

/// The events that must be counted for these features, but instructions and cycles, which always
/// are.
pub fn events<'n>(features: impl Iterator<Item = &'n str>) -> BTreeSet<&'n str> {
    let names = features.map(|name| name.split_once(':').map_or(name, |(_, event)| event));
    names
        .filter(|name| !["cycles", INSTRUCTIONS, CORE_TYPE].contains(name))
        .collect()
}

impl Model {
    /// Reads a file.
    ///
    /// # Errors
    /// In words: it is not there, damaged, of another version, or says what cannot be.
    pub fn read(path: &Path) -> Result<Self> {
        let read = || {
            let text = read_text(path)?;
            Self::parse(&text)
        };
        read().with_context(|| format!("cannot use the model {}", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let model: Self = parse::json_of(text, SCHEMA..=SCHEMA)
            .map_err(|why| anyhow!("{why}; 'scx_hetero train' makes it anew"))?;
        model.check()?;
        Ok(model)
    }

    /// Whether it can be what it says.
    pub fn check(&self) -> Result<()> {
        ensure!(!self.speedup.is_empty(), "it estimates nothing");
        for (what, all) in [("SF", &self.speedup), ("EF", &self.efficiency)] {
            for of in all {
                self.check_estimate(what, of)?;
            }
        }
        if let Some(classifier) = &self.classifier {
            ensure!(
                classifier.trees.loss == Loss::Logistic,
                "its classifier knows no classes"
            );
            classifier.trees.check().context("its classifier's trees")?;
        }
        Ok(())
    }

    fn check_estimate(&self, what: &str, of: &Speedup) -> Result<()> {
        let kind = &of.core_type;
        ensure!(
            self.core_types.contains(kind),
            "it knows no core type {kind}"
        );
        ensure!(
            of.trees.loss == Loss::Squared,
            "{what} from {kind} is no class"
        );
        let error = of.scores.sigma.unwrap_or(of.scores.mae);
        ensure!(
            error.is_finite() && error >= 0.0,
            "`scores` of {what} from {kind}: {error} is no error"
        );
        let trees = of.trees.check();
        trees.with_context(|| format!("its trees for {what} from {kind}"))
    }

    /// Whether it is of this machine.
    ///
    /// # Errors
    /// In which way it is of another.
    pub fn check_machine(&self, identity: &Identity) -> Result<()> {
        let Some(machine) = &self.machine else {
            bail!(
                "nothing tells which machine the model is of: the table it was learnt from had no header"
            );
        };
        if let Some(difference) = machine.identity.differs(identity) {
            bail!(
                "the model is of another machine ({}): {difference}; 'scx_hetero train --here' makes \
                 one of this machine",
                machine.name
            );
        }
        Ok(())
    }

    /// Its text.
    pub fn to_json(&self) -> Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn virtual_machine() -> Model {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../models/virtual-alder-lake-4p4e.model.json");
        Model::read(&path).unwrap()
    }

    #[test]
    fn what_comes_along_can_be_used_and_says_that_it_is_virtual() {
        let model = virtual_machine();
        let machine = model.machine.as_ref().unwrap();
        assert!(machine.name.starts_with("virtual "));
        model.check_machine(&machine.identity).unwrap();
        let text = model.to_json().unwrap();
        assert_eq!(Model::parse(&text).unwrap(), model);
    }

    #[test]
    fn a_model_without_a_standard_error_has_that_of_its_mean_absolute_error() {
        let mut model = virtual_machine();
        let of = &mut model.speedup[0];
        (of.scores.sigma, of.scores.mae, of.trees.range) = (None, 0.08, Some([1.0, 4.0]));
        assert!((of.sigma() - 0.05).abs() < 0.001, "{}", of.sigma());
        assert!((of.spread() - 0.4).abs() < 0.001, "{}", of.spread());
        of.scores.sigma = Some(0.07);
        assert_eq!(of.sigma(), 0.07);
        let text = model.to_json().unwrap();
        assert_eq!(Model::parse(&text).unwrap(), model);
    }

    #[test]
    fn another_machine_is_told() {
        let mut model = virtual_machine();
        let mut other = model.machine.as_ref().unwrap().identity.clone();
        other.cpu = "Some CPU".into();
        let said = model.check_machine(&other).unwrap_err().to_string();
        assert!(
            said.contains("another machine") && said.contains("virtual alder-lake"),
            "{said}"
        );
        model.machine = None;
        let said = model.check_machine(&other).unwrap_err().to_string();
        assert!(said.contains("no header"), "{said}");
    }

    #[test]
    fn a_model_that_cannot_be_is_refused() {
        let error = |change: fn(&mut Model)| {
            let mut model = virtual_machine();
            change(&mut model);
            format!("{:#}", model.check().unwrap_err())
        };
        assert!(error(|model| model.speedup.clear()).contains("nothing"));
        assert!(error(|model| model.speedup[0].core_type = "X".into()).contains("no core type X"));
        assert!(error(|model| model.speedup[0].trees.loss = Loss::Logistic).contains("no class"));
        assert!(error(|model| model.speedup[0].trees.weights.truncate(1)).contains("weights"));
        assert!(error(|model| model.speedup[0].trees.features[0].max = f64::NAN).contains("range"));
        assert!(error(|model| model.speedup[0].trees.base = f64::NAN).contains("out of range"));
        assert!(error(|model| model.speedup[0].scores.sigma = Some(-1.0)).contains("no error"));
    }
}
