// SPDX-License-Identifier: GPL-2.0-or-later
//! What estimates SF, or EF, from each core type: chosen, learnt and tried on programs left out.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use log::info;

use crate::beside::{Beside, FEW_ROWS};
use crate::settle::{Limits, Settled, settle};
use crate::{beside, import, select, ways};
use hetero_core::ml::args::{ModelKind, Train};
use hetero_core::ml::boosting::{Boosting, Loss};
use hetero_core::ml::data::Data;
use hetero_core::ml::header::MeasuredMachine;
use hetero_core::ml::learn::{self, Pair, View};
use hetero_core::ml::model::{Speedup, events};
use hetero_core::ml::validate::{HeldOutSpeedups, speedups};

/// What is learnt from, and how.
pub struct Lesson<'l> {
    /// The measurements; where EF is learnt, with that in place of SF.
    pub data: &'l Data,
    /// What the user said.
    pub args: &'l Train,
    /// It is EF that is learnt.
    pub efficiency: bool,
    /// What is counted already, by core type: features by name.
    pub counted: Vec<Vec<String>>,
    /// Where it was measured.
    pub machine: Option<&'l MeasuredMachine>,
    /// Pairs of rows whose order is asked for.
    pub pairs: &'l [Pair],
    /// Programs each in a group of its own, and in few.
    pub groups: [&'l [usize]; 2],
    /// How to boost.
    pub boosting: &'l dyn Fn(Loss) -> Boosting,
}

/// By core type.
#[derive(Default)]
pub struct LearntEstimates {
    /// Of the model.
    pub estimates: Vec<Speedup>,
    /// What is and what was said.
    pub found: Vec<HeldOutSpeedups>,
    /// Which features it sees.
    pub views: Vec<View>,
    /// How it was learnt.
    pub by: Vec<Boosting>,
    /// Beside plain guesses.
    pub guesses: Vec<Beside>,
    /// How long learning took.
    pub took: Duration,
}

impl Lesson<'_> {
    fn what(&self) -> &'static str {
        if self.efficiency { "EF" } else { "SF" }
    }

    /// Learns from all core types.
    ///
    /// # Errors
    /// In words: nothing can be learnt, or what is to be imported is of no use.
    pub fn learn(&self) -> Result<LearntEstimates> {
        let unknown = self
            .imports()
            .find(|(kind, _)| !self.data.core_types.iter().any(|known| known == kind));
        if let Some((unknown, _)) = unknown {
            bail!(
                "the tables have no core type {unknown}, only {}",
                self.data.core_types.join(", ")
            );
        }
        let mut learnt = LearntEstimates::default();
        for core_type in 0..self.data.core_types.len() {
            self.learn_from(core_type, &mut learnt)?;
        }
        Ok(learnt)
    }

    /// Trees that are to be taken from elsewhere, by core type.
    fn imports(&self) -> impl Iterator<Item = (&str, &std::path::Path)> {
        let of = self.args.import.iter();
        let of = of.filter(|import| import.efficiency == self.efficiency);
        of.filter_map(|import| Some((import.core_type.as_deref()?, import.path.as_path())))
    }

    fn learn_from(&self, core_type: usize, learnt: &mut LearntEstimates) -> Result<()> {
        let (data, what) = (self.data, self.what());
        let [each, few] = self.groups;
        let kind = &data.core_types[core_type];
        let mut all = data.usable(&[core_type]);
        let pmus = self.machine.iter().flat_map(|machine| &machine.pmus);
        let pmu = pmus.into_iter().find(|pmu| pmu.core_type == *kind);
        let counted: &[String] = self.counted.get(core_type).map_or(&[], Vec::as_slice);
        // What nothing is known of cannot be chosen by it.
        let at_once = |features: &[usize]| {
            let names = names(data, features);
            let all = names.iter().chain(counted);
            let events = events(all.map(String::as_str));
            pmu.is_none_or(|pmu| select::at_once(pmu, &events).unwrap_or(true))
        };
        if self.efficiency && at_once(&[]) {
            // What is counted at once for SF is not to take turns for EF.
            let mut fit = Vec::new();
            all.sort_by_key(|&feature| !counted.contains(&data.features[feature]));
            for &feature in &all {
                fit.push(feature);
                if !at_once(&fit) {
                    fit.pop();
                }
            }
            fit.sort_unstable();
            all = fit;
        }
        ensure!(
            !all.is_empty(),
            "the rows of core type {kind} have no feature in common that is not the same in all"
        );
        info!(
            "{what} from {kind}: choosing among {}",
            names(data, &all).join(", ")
        );
        let limits = Limits {
            boosting: (self.boosting)(Loss::Squared),
            all_features: self.args.all_features,
            at_once: &at_once,
        };
        let settled = settle(data, core_type, all.clone(), &limits, [few, each])?;
        let rows = data.rows_of(core_type);
        let import = self.imports().find(|(name, _)| name == kind);
        let import = import.map(|(_, path)| import::read(path, data.per));
        let import = import.transpose()?;
        let linear = self.args.model_kind == ModelKind::Linear && !self.efficiency;
        let mut of_new = None;
        if import.is_none() {
            let anew = rows.len() <= FEW_ROWS;
            let learn = |data: &Data, rows: &[usize]| match anew {
                true => ways::train(data, rows, &all, &limits, linear),
                false => ways::as_settled(data, rows, settled.clone(), linear),
            };
            let tried = (&learn as _, anew);
            let beside = beside::beside(data, core_type, what, tried, self.pairs, [each, few])?;
            // The scores of weighted sums come with their kind.
            of_new = (!linear).then(|| HeldOutSpeedups {
                rows: beside.said().to_vec(),
                ..HeldOutSpeedups::default()
            });
            learnt.guesses.push(beside);
        }
        let Settled {
            view,
            boosting,
            curve,
        } = settled;
        let mut of_new = match of_new {
            Some(of_new) => of_new,
            None => speedups(data, core_type, &view, &boosting, each)?,
        };
        let begun = Instant::now();
        let (trees, fitted) = learn::speedup(data, &rows, &view, &boosting, &[])?;
        learnt.took += begun.elapsed();
        let mut estimate = Speedup {
            core_type: kind.clone(),
            imported: false,
            scores: of_new.nearness(),
            importances: fitted.importances,
            curve,
            trees,
        };
        if let Some(trees) = import {
            of_new = import::score_speedup(data, &rows, &trees)
                .with_context(|| format!("imported trees for {what} from {kind}"))?;
            estimate = Speedup::imported(kind, of_new.nearness(), trees);
        }
        learnt.estimates.push(estimate);
        learnt.by.push(boosting);
        learnt.found.push(of_new);
        learnt.views.push(view);
        Ok(())
    }
}

/// Names of features.
pub fn names(data: &Data, features: &[usize]) -> Vec<String> {
    features
        .iter()
        .map(|&feature| data.features[feature].clone())
        .collect()
}
