// SPDX-License-Identifier: GPL-2.0-only
//! What a learnt model is to the simulator: the truth and an error, by lot or as a learnt one has it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use hetero_core::parse;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng as _};
use serde::Deserialize;

use super::mix::Mix;
use crate::files::read_text;
use crate::pmu::sample::SfEstimate;

/// A model of SF, EF and watts, such as could be learnt: the truth, and an error that a phase has on a core type
/// whenever it is seen there.
#[derive(Clone, Debug)]
pub(super) struct SimulatedModel {
    /// Standard deviation of the errors, as parts of SF. It says that they are of [`STATED`].
    error: f64,
    /// What they follow from.
    seed: u64,
    /// What a learnt one says of SF instead, by phase and core type.
    learnt: Vec<Vec<Option<LearntEstimate>>>,
}

impl SimulatedModel {
    /// One whose errors are drawn by lot, but for the phases of which a learnt one says something: by the number of the
    /// phase on this machine.
    pub(super) fn new(error: f64, seed: u64, learnt: Vec<Vec<Option<LearntEstimate>>>) -> Self {
        Self {
            error,
            seed,
            learnt,
        }
    }

    /// What it says of a phase, the `load`-th on this machine, whose SF is `sf`.
    pub(super) fn sf(&self, sf: f64, load: usize, core_type: usize) -> SfEstimate {
        let learnt = self.learnt.get(load).and_then(|of| *of.get(core_type)?);
        let (factor, sigma) = match learnt {
            Some(learnt) => (learnt.factor, learnt.sigma),
            None => (self.factor(0, load, core_type), STATED),
        };
        SfEstimate {
            sf: (sf * factor).max(1.0),
            sigma,
        }
    }

    /// The same of EF, with errors of their own.
    pub(super) fn ef(&self, ef: f64, load: usize, core_type: usize) -> f64 {
        (ef * self.factor(1 << 63, load, core_type)).max(0.01)
    }

    /// The same of watts there.
    pub(super) fn watts(&self, watts: f64, load: usize, core_type: usize) -> f64 {
        (watts * self.factor(1 << 62, load, core_type)).max(0.001)
    }

    /// What it errs by, of what `salt` stands for.
    fn factor(&self, salt: u64, load: usize, core_type: usize) -> f64 {
        let of_phase = (load as u64) << 8 | core_type as u64;
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed ^ salt ^ of_phase.rotate_left(32));
        // The sum of twelve uniform numbers is near enough to a normal one.
        let uniform = || rng.next_u64() as f64 / u64::MAX as f64;
        let normal: f64 = std::iter::repeat_with(uniform).take(12).sum::<f64>() - 6.0;
        1.0 + self.error * normal
    }
}

/// What the model says that it errs by: a model from another machine knows nothing of its errors here.
pub(super) const STATED: f64 = 0.05;

/// What a learnt model says of a program from a core type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LearntEstimate {
    /// What it says of SF, over SF.
    factor: f64,
    /// How sure it is: standard error of the logarithm.
    sigma: f64,
}

/// What a learnt model says of programs that it was not learnt from, as `scx_hetero train --leave-out PROGRAM,...
/// --estimates FILE` writes it.
///
/// Core types are told by their order, fastest first: each machine's file has names of its own.
#[derive(Debug)]
pub struct UnseenEstimates {
    core_types: Vec<String>,
    by_program: BTreeMap<String, Vec<Option<LearntEstimate>>>,
}

/// A line of such a file.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Line {
    program: String,
    core_type: String,
    sf: f64,
    said: f64,
    sigma: f64,
}

impl UnseenEstimates {
    /// Reads a file.
    ///
    /// # Errors
    /// In words: what is wrong with which line.
    pub fn read(path: &Path) -> Result<Self> {
        let what = || format!("cannot read {}", path.display());
        let text = read_text(path).with_context(what)?;
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let mut found = Self {
            core_types: Vec::new(),
            by_program: BTreeMap::new(),
        };
        ensure!(
            !text.trim_start().starts_with('{'),
            "{} is no table of estimates: it may be a model, and the table is what 'scx_hetero train \
             --leave-out PROGRAM,... --estimates FILE.csv' says of programs by it",
            path.display()
        );
        for (index, line) in reader.deserialize().enumerate() {
            let line = line.map_err(parse::of_csv);
            let line: Line = line.with_context(|| {
                format!(
                    "{} is no table of estimates, as 'scx_hetero train --leave-out PROGRAM,... \
                     --estimates FILE.csv' writes it",
                    path.display()
                )
            })?;
            let of = format!("{}, line {}: ", path.display(), index + 2);
            let sound = |value: f64| value.is_finite() && value > 0.0;
            if !(sound(line.sf) && sound(line.said) && sound(line.sigma)) {
                bail!("{of}sf, said and sigma must be above 0");
            }
            let core_type = found.number_of(&line.core_type);
            let of_program = found.by_program.entry(line.program.clone()).or_default();
            of_program.resize(of_program.len().max(core_type + 1), None);
            let estimate = LearntEstimate {
                factor: line.said / line.sf,
                sigma: line.sigma,
            };
            if of_program[core_type].replace(estimate).is_some() {
                let (program, on) = (line.program, line.core_type);
                bail!(
                    "{of}'{program}' on {on} is there twice, as run in two ways: delete all of its \
                     lines but those of one"
                );
            }
        }
        ensure!(
            !found.by_program.is_empty(),
            "{} says nothing of any program",
            path.display()
        );
        Ok(found)
    }

    fn number_of(&mut self, core_type: &str) -> usize {
        let known = self.core_types.iter().position(|name| name == core_type);
        known.unwrap_or_else(|| {
            self.core_types.push(core_type.to_string());
            self.core_types.len() - 1
        })
    }

    /// Whether it is of a machine with so many core types.
    ///
    /// # Errors
    /// In words: it is of another.
    pub(super) fn check(&self, core_types: usize) -> Result<()> {
        ensure!(
            self.core_types.len() == core_types,
            "the model is of a machine with {} core types ({}), and this one has {core_types}",
            self.core_types.len(),
            self.core_types.join(", ")
        );
        Ok(())
    }

    /// Whether it says anything of any program of these mixes.
    ///
    /// # Errors
    /// In words: it does not, and of which it does.
    pub(super) fn check_programs<'a>(&self, mixes: impl Iterator<Item = &'a Mix>) -> Result<()> {
        let mut members = mixes.flat_map(|mix| &mix.members);
        let known: Vec<&str> = self.by_program.keys().map(String::as_str).collect();
        ensure!(
            members.any(|member| self.by_program.contains_key(&member.program)),
            "the model says nothing of any program of the mix; it does of {}",
            known.join(", ")
        );
        Ok(())
    }

    /// By core type, fastest first, what is said of a program.
    pub(super) fn of(&self, program: &str) -> Vec<Option<LearntEstimate>> {
        self.by_program.get(program).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_errs_in_the_same_way_whenever_it_is_asked_and_as_much_as_it_is_said_to() {
        let model = SimulatedModel::new(0.05, 7, Vec::new());
        let errors: Vec<f64> = (0..4000)
            .map(|of| model.sf(2.0, of / 2, of % 2).sf / 2.0 - 1.0)
            .collect();
        let number = errors.len() as f64;
        let mean = errors.iter().sum::<f64>() / number;
        let variance = errors.iter().map(|e| (e - mean).powi(2)).sum::<f64>() / number;
        assert!(mean.abs() < 0.003, "{mean}");
        assert!((variance.sqrt() - 0.05).abs() < 0.002, "{variance}");
        assert_eq!(model.sf(2.0, 3, 1), model.sf(2.0, 3, 1));
        assert_ne!(model.sf(2.0, 3, 1), model.sf(2.0, 3, 0));
    }

    #[test]
    fn what_a_learnt_model_says_takes_the_place_of_the_truth_on_its_core_type_alone() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "program,variant,core-type,sf,said,sigma\nfp,,P,2.0,3.0,0.2\n";
        std::fs::write(&file, text).unwrap();
        let learnt = UnseenEstimates::read(file.path()).unwrap();
        assert!(learnt.check(1).is_ok() && learnt.check(2).is_err());
        let check = |mix: &str| learnt.check_programs(std::iter::once(&mix.parse().unwrap()));
        assert!(check("hash,2*fp").is_ok());
        let error = check("hash").unwrap_err().to_string();
        assert!(error.ends_with("it does of fp"), "{error}");
        let of = ["fp", "hash"].map(|program| learnt.of(program));
        let model = SimulatedModel::new(0.0, 1, of.into());
        let told = model.sf(4.0, 0, 0);
        assert_eq!((told.sf, told.sigma), (6.0, 0.2));
        for (load, core_type) in [(0, 1), (1, 0), (1, 1)] {
            let told = model.sf(4.0, load, core_type);
            assert_eq!((told.sf, told.sigma), (4.0, STATED));
        }
    }

    #[test]
    fn a_file_that_says_nothing_sound_is_refused_in_words() {
        let head = "program,variant,core-type,sf,said,sigma\n";
        for (text, expected) in [
            (String::new(), "says nothing of any program"),
            (format!("{head}fp,,P,0,3,0.2\n"), "line 2"),
            (format!("{head}fp,,P,2,NaN,0.2\n"), "line 2"),
            (format!("{head}fp,,P,two,3,0.2\n"), "line 2, cell 4"),
            (format!("{head}fp,a,P,2,3,0.2\nfp,b,P,2,3,0.2\n"), "twice"),
            ("program,sf\nfp,2\n".to_string(), "core-type"),
        ] {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(&file, &text).unwrap();
            let error = UnseenEstimates::read(file.path()).unwrap_err();
            let error = format!("{error:#}");
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
