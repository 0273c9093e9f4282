// SPDX-License-Identifier: GPL-2.0-or-later
//! A model from examples that were seen while scheduling, and whether it is better than the one at
//! work.
//!
//! Both are judged by the examples that came last. The new one estimates those of each program by
//! what it has learnt from other programs; what the one at work was learnt from is not asked, so it
//! is judged too kindly, if anything.

use std::collections::BTreeMap;
use std::time::SystemTime;

use anyhow::{Result, ensure};

use super::boosting::{Boosting, Loss};
use super::data::{Data, Per, Row};
use super::examples::Example;
use super::forest::{Forest, to_features, to_number};
use super::header::MeasuredMachine;
use super::learn::{self, View, fixed};
use super::model::{DataIdentity, Model, RankBy, SCHEMA, Speedup};
use super::reservoir::Kept;
use super::scores::{Nearness, RowEstimate};
use super::validate::{begin, groups, one_left_out};
use crate::text::stamp;

/// Fewer programs, or examples from a core type, are nothing to learn from.
pub const LEAST_PROGRAMS: usize = 4;
/// See [`LEAST_PROGRAMS`].
pub const LEAST_EXAMPLES: usize = 24;

/// The part of the examples that both models are judged by, those that came last.
const RECENT: f64 = 0.5;

/// The new model's error must be this much smaller: by chance one of two equals always is.
const BETTER: f64 = 0.95;

/// Of each sum; more are tried in `train`, which has more to learn from.
const MOST_TREES: usize = 40;

/// Into so many groups programs are dealt.
const GROUPS: usize = 8;

const SEED: u64 = 1;

/// What there is to learn from, and beside.
#[derive(Clone, Debug)]
pub struct RefitInput {
    /// The machine.
    pub machine: MeasuredMachine,
    /// Core types, fastest first.
    pub core_types: Vec<String>,
    /// By core type: the names of what is in an example's features.
    pub features: Vec<Vec<String>>,
    /// SF where nothing is known of a thread.
    pub usual: f64,
    /// The examples.
    pub kept: Vec<Kept>,
    /// The model at work.
    pub old: Option<Model>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Refit {
    /// Learnt from all examples.
    pub model: Model,
    /// Mean absolute error of the new way of estimating, on recent examples of other programs.
    pub error: f64,
    /// The same of the model at work; without one, of taking every thread for usual.
    pub old_error: f64,
}

impl Refit {
    /// Whether the new model should be put to work.
    pub fn is_better(&self) -> bool {
        self.error < BETTER * self.old_error
    }
}

impl RefitInput {
    /// Learns and judges. `None` if there are too few examples, of too few programs.
    ///
    /// # Errors
    /// They are not such that something can be learnt from them.
    pub fn run(&self) -> Result<Option<Refit>> {
        let data = self.data();
        let types: Vec<usize> = [0, self.core_types.len() - 1].into();
        let enough = |&core_type: &usize| {
            data.rows
                .iter()
                .filter(|row| row.core_type == core_type)
                .count()
                >= LEAST_EXAMPLES
        };
        if data.programs().len() < LEAST_PROGRAMS || !types.iter().all(enough) {
            return Ok(None);
        }
        let recent = self.recent();
        let programs = data.program_numbers();
        let estimate = |row: usize, said: f64| RowEstimate {
            program: programs[row],
            is: data.rows[row].sf,
            said,
        };
        let dealt = groups(&data, GROUPS.min(data.programs().len()), SEED);
        let (mut speedup, mut new, mut old) = (Vec::new(), Vec::new(), Vec::new());
        for core_type in types {
            let kind = &self.core_types[core_type];
            let all = data.usable(&[core_type]);
            ensure!(
                !all.is_empty(),
                "the counts on {kind} are the same in all examples"
            );
            let constant = Boosting {
                trees: MOST_TREES,
                seed: SEED,
                ..Boosting::new(Loss::Squared)
            };
            let boosting = begin(&data, core_type, &all, constant, &dealt)?;
            let view = View {
                features: all,
                core_type: false,
            };
            let rows = data.rows_of(core_type);
            let mut judged = Vec::new();
            for (out, rest) in one_left_out(&rows, &dealt) {
                let (trees, _) = learn::speedup(&data, &rest, &view, &boosting, &[])?;
                let forest = trees.forest()?;
                for row in out.into_iter().filter(|&row| recent(row)) {
                    let said = forest.score(&fixed(&view.values(&data, row)));
                    judged.push(estimate(row, to_number(said)));
                }
            }
            let at_work = self.old(&data, core_type)?;
            for row in rows.iter().copied().filter(|&row| recent(row)) {
                // Where it says nothing, every thread is usual.
                let said = at_work.as_ref().map_or(self.usual, |(forest, places)| {
                    let features = &data.rows[row].features;
                    let values = places.iter().map(|&place| features[place]);
                    to_number(forest.score(&to_features(values)))
                });
                old.push(estimate(row, said));
            }
            let (trees, fitted) = learn::speedup(&data, &rows, &view, &boosting, &[])?;
            speedup.push(Speedup {
                core_type: kind.clone(),
                imported: false,
                scores: Nearness::of(&judged),
                importances: fitted.importances,
                curve: Vec::new(),
                trees,
            });
            new.extend(judged);
        }
        let model = self.model(&data, speedup)?;
        model.check()?;
        Ok(Some(Refit {
            model,
            error: Nearness::of(&new).mae,
            old_error: Nearness::of(&old).mae,
        }))
    }

    /// The examples as `train` has its tables.
    fn data(&self) -> Data {
        let mut names: Vec<String> = Vec::new();
        for name in self.features.iter().flatten() {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        let row = |Example {
                       program,
                       core_type,
                       features,
                       sf,
                   }: &Example| {
            let counted: BTreeMap<&String, f64> = self.features[*core_type]
                .iter()
                .zip(features.iter().copied())
                .collect();
            let value = |name: &String| counted.get(name).copied().unwrap_or(f64::NAN);
            Row::labelled(
                program.clone(),
                *core_type,
                names.iter().map(value).collect(),
                *sf,
            )
        };
        let rows = self.kept.iter().map(|kept| row(&kept.example)).collect();
        Data {
            features: names,
            per: Per::Cycle,
            core_types: self.core_types.clone(),
            rows,
            ..Data::default()
        }
    }

    /// Whether the example at a place is one of those that came last.
    fn recent(&self) -> impl Fn(usize) -> bool + '_ {
        let mut numbers: Vec<u64> = self.kept.iter().map(|kept| kept.number).collect();
        numbers.sort_unstable();
        let first = (numbers.len() as f64 * (1.0 - RECENT)) as usize;
        let since = numbers.get(first).copied().unwrap_or(0);
        move |place| self.kept[place].number >= since
    }

    /// What the model at work asks on a core type, and where that is among the features; `None`
    /// where it says nothing of what is counted here.
    fn old(&self, data: &Data, core_type: usize) -> Result<Option<(Box<Forest>, Vec<usize>)>> {
        let kind = &self.core_types[core_type];
        let mut all = self.old.iter().flat_map(|old| &old.speedup);
        let Some(of) = all.find(|of| of.core_type == *kind && of.trees.per == Per::Cycle) else {
            return Ok(None);
        };
        let place = |name: &String| {
            let counted = self.features[core_type].contains(name);
            let place = data.features.iter().position(|known| known == name)?;
            counted.then_some(place)
        };
        let features = of.trees.features.iter().map(|feature| place(&feature.name));
        let places: Option<Vec<usize>> = features.collect();
        let forest = of.trees.forest()?;
        Ok(places.map(|places| (forest, places)))
    }

    fn model(&self, data: &Data, speedup: Vec<Speedup>) -> Result<Model> {
        let programs = data
            .programs()
            .iter()
            .map(|name| name.to_string())
            .collect();
        Ok(Model {
            schema: SCHEMA,
            written_by: format!("scx_hetero {}", env!("CARGO_PKG_VERSION")),
            date: stamp(SystemTime::now())?,
            machine: Some(self.machine.clone()),
            data: DataIdentity {
                tables: vec!["seen while scheduling (--learn)".into()],
                digest: format!("{:016x}", data.digest),
                rows: data.rows.len(),
                programs,
            },
            core_types: self.core_types.clone(),
            rank_by: RankBy::Speedup,
            speedup,
            // Nothing is seen of energy while scheduling.
            efficiency: self
                .old
                .iter()
                .flat_map(|old| old.efficiency.clone())
                .collect(),
            efficiency_pairs: self.old.as_ref().and_then(|old| old.efficiency_pairs),
            classifier: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::ml::reservoir::Reservoir;

    /// So many moves of threads of each program, whose SF its stalls tell, in a way of each core
    /// type's own.
    fn examples(programs: usize, moves: usize) -> Vec<Kept> {
        let mut reservoir = Reservoir::default();
        for round in 0..moves {
            for program in 0..programs {
                let stalls = (program as f64 + 0.01 * round as f64) / programs as f64;
                let sf = 2.5 - stalls;
                for (core_type, told) in [(0, stalls / 2.0), (1, stalls)] {
                    reservoir.add(Example {
                        program: format!("p{program}"),
                        core_type,
                        features: vec![1.0 - stalls / 3.0, told],
                        sf,
                    });
                }
            }
        }
        reservoir.kept().to_vec()
    }

    fn task(kept: Vec<Kept>) -> RefitInput {
        let path = "models/virtual-alder-lake-4p4e.model.json";
        let other =
            Model::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap();
        let names = || ["instructions", "stalled-mem"].map(String::from).to_vec();
        RefitInput {
            machine: other.machine.unwrap(),
            core_types: ["P", "E"].map(String::from).to_vec(),
            features: vec![names(), names()],
            usual: 1.7,
            kept,
            old: None,
        }
    }

    #[test]
    fn what_is_learnt_beats_taking_everybody_for_usual_and_cannot_be_beaten_by_itself() {
        let mut task = task(examples(8, 10));
        let first = task.run().unwrap().unwrap();
        assert!(first.is_better(), "{} {}", first.error, first.old_error);
        assert!(first.error < 0.05, "{}", first.error);
        assert_eq!(first.model.data.programs.len(), 8);
        task.old = Some(first.model);
        let second = task.run().unwrap().unwrap();
        assert!(!second.is_better(), "{} {}", second.error, second.old_error);
    }

    #[test]
    fn a_model_that_is_wrong_is_beaten_and_one_that_asks_something_else_says_nothing() {
        let mut task = task(examples(8, 10));
        let mut wrong = task.run().unwrap().unwrap().model;
        for speedup in &mut wrong.speedup {
            speedup.trees.base += 0.5;
            speedup.trees.range = None;
        }
        task.old = Some(wrong.clone());
        let found = task.run().unwrap().unwrap();
        assert!(found.is_better() && found.old_error > 0.4, "{found:?}");
        for speedup in &mut wrong.speedup {
            speedup.trees.features[0].name = "weather".into();
        }
        task.old = Some(wrong);
        let not_asked = task.run().unwrap().unwrap();
        task.old = None;
        let without = task.run().unwrap().unwrap();
        assert_eq!(not_asked.old_error, without.old_error);
    }

    #[test]
    fn a_few_examples_or_programs_are_nothing_to_learn_from() {
        assert!(
            task(examples(LEAST_PROGRAMS - 1, 50))
                .run()
                .unwrap()
                .is_none()
        );
        assert!(task(examples(8, 2)).run().unwrap().is_none());
        assert!(task(Vec::new()).run().unwrap().is_none());
    }
}
