// SPDX-License-Identifier: GPL-2.0-or-later
//! Ways to fit SF: what is seen, what is learnt, and by what.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use hetero_core::ml::boosting::{Boosting, Loss};
use hetero_core::ml::data::{Data, INSTRUCTIONS};
use hetero_core::ml::linear;
use hetero_core::ml::tree::Columns;

use crate::kinds;
use crate::trial::RowEstimator;

/// Added before a logarithm is taken: events per cycle may be none.
const LEAST: f64 = 1e-6;

/// One way to fit.
#[derive(Clone, Debug)]
pub struct Fit {
    /// What is learnt from.
    pub seen: FeatureKind,
    /// What is learnt.
    pub target: LearntTarget,
    /// By what.
    pub by: By,
    /// Learn the ratio of IPCs, and multiply by that of clocks: the row's own, and the mean of the other
    /// core type's.
    pub clocks: bool,
    /// Learn how far SF is from the mean of its machine, which is what a row's variant says.
    pub of_machine: bool,
}

/// What is learnt from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FeatureKind {
    /// IPC alone.
    Ipc,
    /// Events per cycle and IPC.
    Cycle,
    /// Events per instruction, and cycles per instruction.
    Instruction,
    /// The logarithms of those.
    Log,
}

/// What is learnt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LearntTarget {
    /// SF.
    Sf,
    /// 1 / SF.
    Inverse,
    /// Its logarithm.
    Log,
}

/// By what it is learnt.
#[derive(Clone, Debug)]
pub enum By {
    /// A weighted sum ([`linear::fit_by`]).
    Sum {
        /// The penalty.
        ridge: f64,
        /// Rounds towards least absolute deviations; 0 is least squares.
        rounds: usize,
    },
    /// The same of what has the sign that one expects: whatever makes a core wait makes it wait
    /// on both types, so that it lowers SF, and more instructions per cycle raise it.
    Signed {
        /// The penalty.
        ridge: f64,
        /// As of a sum.
        rounds: usize,
    },
    /// Boosted trees.
    Trees(Boosting),
    /// The mean of so many that are nearest.
    Near(usize),
}

impl Fit {
    /// Of events per cycle, SF as it is.
    pub fn new(by: By) -> Self {
        Self {
            seen: FeatureKind::Cycle,
            target: LearntTarget::Sf,
            by,
            clocks: false,
            of_machine: false,
        }
    }

    /// A weighted sum by least squares.
    pub fn squares(ridge: f64) -> Self {
        Self::new(By::Sum { ridge, rounds: 0 })
    }

    /// A weighted sum by least absolute deviations.
    pub fn deviations(ridge: f64) -> Self {
        Self::new(By::Sum {
            ridge,
            rounds: linear::ROUNDS,
        })
    }
}

/// The feature that is IPC.
///
/// # Errors
/// There is none.
pub fn instructions(data: &Data) -> Result<usize> {
    let found = data.features.iter().position(|name| name == INSTRUCTIONS);
    found.context("instructions per cycle are not known")
}

impl Fit {
    /// Learns from rows of one core type.
    ///
    /// # Errors
    /// It cannot be learnt.
    pub fn learn(&self, data: &Data, rows: &[usize], features: &[usize]) -> Result<RowEstimator> {
        let ipc = instructions(data)?;
        let features = match self.seen {
            FeatureKind::Ipc => vec![ipc],
            _ => features.to_vec(),
        };
        let unit = self.unit(data, rows, ipc);
        let sfs: Vec<f64> = rows
            .iter()
            .map(|&row| data.rows[row].sf / unit(data, row))
            .collect();
        let ends = sfs.iter().fold([f64::INFINITY, 0.0], |[least, most], &sf| {
            [least.min(sf), f64::max(most, sf)]
        });
        let targets: Vec<f64> = sfs.iter().map(|&sf| self.target.of(sf)).collect();
        let (seen, target) = (self.seen, self.target);
        let names: Vec<&str> = features
            .iter()
            .map(|&n| data.features[n].as_str())
            .collect();
        let signs: Vec<f64> = names.iter().map(|name| seen.sign(name)).collect();
        let values = move |data: &Data, row: usize| seen.values(data, row, &features, ipc);
        let table: Vec<Vec<f64>> = rows.iter().map(|&row| values(data, row)).collect();
        let ranges = ranges(&table);
        let scaled = move |values: Vec<f64>| -> Vec<f64> {
            let one = |(value, [min, max]): (f64, &[f64; 2])| (value - min) / (max - min);
            values.into_iter().zip(&ranges).map(one).collect()
        };
        let table: Vec<Vec<f64>> = table.into_iter().map(&scaled).collect();
        let score = self.by.fit(table, targets, &signs, target)?;
        Ok(Box::new(move |data, row| {
            let said = score(&scaled(values(data, row)));
            target.back(said).clamp(ends[0], ends[1]) * unit(data, row)
        }))
    }

    /// By what an SF is divided before it is learnt.
    fn unit(&self, data: &Data, rows: &[usize], ipc: usize) -> RowEstimator {
        let clock = move |data: &Data, row: usize| {
            let row = &data.rows[row];
            row.ips().map(|ips| ips / row.features[ipc])
        };
        let last = data.core_types.len() - 1;
        let other = last - data.rows[rows[0]].core_type.min(last);
        let learnt: BTreeSet<(&str, &str)> = rows
            .iter()
            .map(|&row| {
                let row = &data.rows[row];
                (row.program.as_str(), row.variant.as_str())
            })
            .collect();
        let theirs = data.rows_of(other).into_iter();
        let theirs = theirs.filter(|&row| {
            let row = &data.rows[row];
            learnt.contains(&(row.program.as_str(), row.variant.as_str()))
        });
        let clocks: Vec<f64> = theirs.filter_map(|row| clock(data, row)).collect();
        let clocks = (self.clocks && !clocks.is_empty())
            .then(|| clocks.iter().sum::<f64>() / clocks.len() as f64);
        let mut sfs: BTreeMap<String, [f64; 2]> = BTreeMap::new();
        for &row in rows.iter().filter(|_| self.of_machine) {
            let row = &data.rows[row];
            for machine in [row.variant.as_str(), ""] {
                let [sum, number] = sfs.entry(machine.to_string()).or_default();
                (*sum, *number) = (*sum + row.sf, *number + 1.0);
            }
        }
        Box::new(move |data, row| {
            let ratio = clocks
                .zip(clock(data, row))
                .map_or(1.0, |(theirs, own)| match other {
                    0 => theirs / own,
                    _ => own / theirs,
                });
            let of = sfs.get(&data.rows[row].variant).or_else(|| sfs.get(""));
            ratio * of.map_or(1.0, |[sum, number]| sum / number)
        })
    }
}

/// The least and the most of each column.
fn ranges(table: &[Vec<f64>]) -> Vec<[f64; 2]> {
    let columns = table.first().map_or(0, Vec::len);
    let range = |n: usize| {
        let values = table.iter().map(|row| row[n]);
        let [min, max] = values.fold([f64::INFINITY, f64::NEG_INFINITY], |[min, max], value| {
            [f64::min(min, value), f64::max(max, value)]
        });
        [min, if max > min { max } else { min + 1.0 }]
    };
    (0..columns).map(range).collect()
}

impl FeatureKind {
    fn values(self, data: &Data, row: usize, features: &[usize], ipc: usize) -> Vec<f64> {
        let row = &data.rows[row].features;
        let value = |&feature: &usize| {
            let per_cycle = row[feature];
            let per_instruction = match feature == ipc {
                true => 1.0 / row[ipc],
                false => per_cycle / row[ipc],
            };
            match self {
                Self::Ipc | Self::Cycle => per_cycle,
                Self::Instruction => per_instruction,
                Self::Log => (per_instruction + LEAST).ln(),
            }
        };
        features.iter().map(value).collect()
    }

    /// Whether more of it is more SF, see [`By::Signed`]; 0 says nothing.
    fn sign(self, name: &str) -> f64 {
        let up = matches!(self, Self::Ipc | Self::Cycle);
        match name {
            INSTRUCTIONS if up => 1.0,
            INSTRUCTIONS => -1.0,
            _ if name.contains("miss") || name.contains("refill") => -1.0,
            _ => 0.0,
        }
    }
}

impl LearntTarget {
    fn of(self, sf: f64) -> f64 {
        match self {
            Self::Sf => sf,
            Self::Inverse => 1.0 / sf,
            Self::Log => sf.ln(),
        }
    }

    fn back(self, said: f64) -> f64 {
        match self {
            Self::Sf => said,
            // Beyond what was learnt; the caller's range brings it back.
            Self::Inverse if said <= 0.0 => f64::MAX,
            Self::Inverse => 1.0 / said,
            Self::Log => said.exp(),
        }
    }
}

impl By {
    /// From features that lie between 0 and 1 to targets.
    fn fit(
        &self,
        table: Vec<Vec<f64>>,
        targets: Vec<f64>,
        signs: &[f64],
        target: LearntTarget,
    ) -> Result<kinds::Says> {
        let columns = Columns::from_rows(signs.len(), table.iter().map(Vec::as_slice));
        let weighed = |(base, weights): (f64, Vec<f64>)| -> kinds::Says {
            Box::new(move |values| base + linear::score(&weights, |n| values[n]))
        };
        Ok(match self {
            Self::Sum { ridge, rounds } => {
                weighed(linear::fit_by(&columns, &targets, *ridge, *rounds)?)
            }
            Self::Signed { ridge, rounds } => {
                // What is 1 / SF falls where SF rises.
                let turned = if target == LearntTarget::Inverse {
                    -1.0
                } else {
                    1.0
                };
                weighed(signed(columns, &targets, signs, turned, (*ridge, *rounds))?)
            }
            Self::Trees(boosting) => {
                let ensemble = boosting.fit(&columns, &targets)?.ensemble;
                Box::new(move |values| ensemble.score(|n| values[n]))
            }
            Self::Near(number) => {
                let number = (*number).min(table.len());
                Box::new(move |values| {
                    let far = |row: &Vec<f64>| -> f64 {
                        let squares = row.iter().zip(values).map(|(a, b)| (a - b).powi(2));
                        squares.sum()
                    };
                    let mut all: Vec<(f64, f64)> =
                        table.iter().map(far).zip(targets.iter().copied()).collect();
                    all.sort_by(|a, b| a.0.total_cmp(&b.0));
                    all[..number].iter().map(|one| one.1).sum::<f64>() / number as f64
                })
            }
        })
    }
}

/// Leaves out what has the wrong sign, the worst first, until nothing has.
fn signed(
    mut columns: Columns,
    targets: &[f64],
    signs: &[f64],
    turned: f64,
    (ridge, rounds): (f64, usize),
) -> Result<(f64, Vec<f64>)> {
    loop {
        let (base, weights) = linear::fit_by(&columns, targets, ridge, rounds)?;
        let wrong = |&n: &usize| turned * signs[n] * weights[n] < -1e-9;
        let worst = (0..weights.len())
            .filter(wrong)
            .max_by(|&a, &b| weights[a].abs().total_cmp(&weights[b].abs()));
        match worst {
            Some(worst) => columns.columns[worst].fill(0.0),
            None => return Ok((base, weights)),
        }
    }
}

/// Boosting of squared errors, with so many trees so deep.
pub fn trees(trees: usize, depth: usize, least_leaf: usize) -> Boosting {
    Boosting {
        trees,
        depth,
        least_leaf,
        ..Boosting::new(Loss::Squared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hetero_core::ml::validate::groups;

    /// IPCs whose ratio the rate of branch misses says, at clocks that differ from program to program, on
    /// two machines of which one has twice the SF.
    fn data() -> Data {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.csv");
        let columns = "program,variant,core-type,run-ns,instructions,cycles,branches,branch-misses";
        let mut text = format!("{columns}\n");
        for n in 0..24_u32 {
            let misses = f64::from(n * 7 % 11);
            let ghz = 3.0 + f64::from(n % 4) / 2.0;
            for (machine, more) in [("one", 1.0), ("two", 2.0)] {
                for (kind, cycles, ghz) in [
                    ("P", 1000.0, ghz),
                    ("E", more * (3000.0 - 100.0 * misses), 2.0),
                ] {
                    let branches = 100 + n * 5 % 7;
                    text += &format!(
                        "p{n},{machine},{kind},{},1000,{cycles},{branches},{misses}\n",
                        cycles / ghz
                    );
                }
            }
        }
        std::fs::write(&path, text).unwrap();
        Data::read(&[path], &[]).unwrap()
    }

    /// The mean error of what is learnt from three quarters of the programs, on the others.
    fn error(data: &Data, fit: &Fit, machine: Option<&str>) -> f64 {
        let features = data.usable(&[0]);
        let groups = groups(data, 4, 1);
        let of = |row: &usize| machine.is_none_or(|name| data.rows[*row].variant == name);
        let rows = data.rows_of(0).into_iter().filter(of);
        let (out, learnt): (Vec<usize>, Vec<usize>) = rows.partition(|&row| groups[row] == 0);
        let says = fit.learn(data, &learnt, &features).unwrap();
        let errors = out
            .iter()
            .map(|&row| (says(data, row) - data.rows[row].sf).abs());
        errors.sum::<f64>() / out.len() as f64
    }

    #[test]
    fn clocks_and_machines_that_are_taken_apart_leave_what_counters_say() {
        let data = data();
        let (plain, apart) = (Fit::squares(0.001), |clocks, of_machine| Fit {
            clocks,
            of_machine,
            ..Fit::squares(0.001)
        });
        assert!(error(&data, &plain, Some("one")) > 0.2);
        assert!(error(&data, &apart(true, false), Some("one")) < 0.01);
        assert!(error(&data, &apart(true, false), None) > 0.5);
        assert!(error(&data, &apart(false, true), None) > 0.2);
    }

    #[test]
    fn a_sum_whose_signs_are_known_does_without_what_has_the_wrong_one() {
        let rows: Vec<Vec<f64>> = (0..20_u32)
            .map(|n| vec![f64::from(n) / 20.0, f64::from(n * 7 % 20) / 20.0])
            .collect();
        let targets: Vec<f64> = rows.iter().map(|row| 1.0 + row[0] + row[1]).collect();
        let fitted = |signs: [f64; 2]| {
            let columns = Columns::from_rows(2, rows.iter().map(Vec::as_slice));
            signed(columns, &targets, &signs, 1.0, (0.001, 0))
                .unwrap()
                .1
        };
        assert!(fitted([1.0, 0.0]).iter().all(|weight| *weight > 0.9));
        let weights = fitted([1.0, -1.0]);
        assert!(weights[0] > 0.9 && weights[1].abs() < 1e-9, "{weights:?}");
    }

    #[test]
    fn what_is_near_and_what_trees_say_is_learnt_too() {
        let data = data();
        let fit = |by| Fit {
            clocks: true,
            ..Fit::new(by)
        };
        for by in [By::Near(1), By::Trees(trees(100, 2, 1))] {
            let error = error(&data, &fit(by), Some("one"));
            assert!(error < 0.3, "{error}");
        }
    }
}
