// SPDX-License-Identifier: GPL-2.0-or-later
//! What a way to learn SF is worth: tried on programs that it has not learnt from, whatever it chooses
//! (features, penalties, numbers of trees) chosen anew from what each fold learns from.

use std::collections::BTreeMap;

use anyhow::Result;
use hetero_core::ml::data::{Data, Row};
use hetero_core::ml::learn::Pair;
use hetero_core::ml::scores::RowEstimate;

use crate::resample::Interval;

/// What says the SF of a row.
pub type RowEstimator = Box<dyn Fn(&Data, usize) -> f64>;

/// A way to learn from rows of one core type.
pub type Learn<'l> = dyn Fn(&Data, &[usize]) -> Result<RowEstimator> + 'l;

/// What is tried.
pub struct Setting<'s> {
    /// The tables.
    pub data: &'s Data,
    /// Rows that may be learnt from.
    pub learnt: Vec<usize>,
    /// Rows that it is tried on; they may be the same.
    pub tried: Vec<usize>,
    /// The group of each row. Groups are left out; what shares a program shares a group.
    pub groups: Vec<usize>,
    /// The same in fewer groups, of which every two are left out for pairs.
    pub few: Vec<usize>,
    /// Pairs of rows that are tried.
    pub pairs: Vec<Pair>,
    /// The number of each program, where trials of several tables are looked at together.
    pub programs: &'s BTreeMap<String, usize>,
}

/// What came of the pairs between two programs.
struct Couple {
    programs: [usize; 2],
    right: f64,
    number: f64,
}

/// Couples by their programs.
#[derive(Default)]
struct Couples(BTreeMap<[usize; 2], Couple>);

impl Couples {
    /// Of a pair of rows of these programs so much was said.
    fn add(&mut self, data: &Data, pair: &Pair, programs: [usize; 2], [first, second]: [f64; 2]) {
        let is = data.rows[pair.a].sf > data.rows[pair.b].sf;
        let couple = self.0.entry(programs).or_insert(Couple {
            programs,
            right: 0.0,
            number: 0.0,
        });
        couple.number += 1.0;
        couple.right += match first == second {
            // Any order is as good.
            true => 0.5,
            false => f64::from(u8::from(is == (first > second))),
        };
    }

    fn all(self) -> Vec<Couple> {
        self.0.into_values().collect()
    }
}

/// What was said of programs that were not learnt from.
pub struct HeldOutTrial {
    programs: usize,
    said: Vec<RowEstimate>,
    couples: Vec<Couple>,
}

impl Setting<'_> {
    /// Tries one way.
    ///
    /// # Errors
    /// Something cannot be learnt.
    pub fn of(&self, learn: &Learn) -> Result<HeldOutTrial> {
        let data = self.data;
        let number = |row: usize| self.programs[&data.rows[row].program];
        let mut said = Vec::new();
        let without = |groups: &[usize], out: [usize; 2]| -> Vec<usize> {
            let rows = self.learnt.iter().copied();
            rows.filter(|&row| !out.contains(&groups[row])).collect()
        };
        let last = self.groups.iter().max().map_or(0, |last| last + 1);
        for group in 0..last {
            let out = self
                .tried
                .iter()
                .filter(|&&row| self.groups[row] == group)
                .copied();
            let out: Vec<usize> = out.collect();
            let learnt = without(&self.groups, [group; 2]);
            if out.is_empty() || learnt.is_empty() {
                continue;
            }
            let says = learn(data, &learnt)?;
            said.extend(out.iter().map(|&row| RowEstimate {
                program: number(row),
                is: data.rows[row].sf,
                said: says(data, row),
            }));
        }
        let mut couples = Couples::default();
        let last = self.few.iter().max().map_or(0, |last| last + 1);
        for two in (0..last).flat_map(|first| (0..=first).map(move |second| [first, second])) {
            let between = |pair: &&Pair| {
                let of = [self.few[pair.a], self.few[pair.b]];
                of == two || of == [two[1], two[0]]
            };
            let out: Vec<&Pair> = self.pairs.iter().filter(between).collect();
            let learnt = without(&self.few, two);
            if out.is_empty() || learnt.is_empty() {
                continue;
            }
            let says = learn(data, &learnt)?;
            for pair in &out {
                let rows = [pair.a, pair.b];
                couples.add(
                    data,
                    pair,
                    rows.map(number),
                    rows.map(|row| says(data, row)),
                );
            }
        }
        Ok(HeldOutTrial {
            programs: self.programs.len(),
            said,
            couples: couples.all(),
        })
    }
}

impl HeldOutTrial {
    /// Of what was said of all rows, each by what has not learnt from its program; of those, these pairs.
    pub fn of_rows(data: &Data, said: &[f64], pairs: &[Pair]) -> Self {
        let program = data.program_numbers();
        let mut couples = Couples::default();
        for pair in pairs {
            let rows = [pair.a, pair.b];
            couples.add(
                data,
                pair,
                rows.map(|row| program[row]),
                rows.map(|row| said[row]),
            );
        }
        let rows = data.rows.iter().zip(said).zip(&program);
        let row = |((row, &said), &program): ((&Row, &f64), &usize)| RowEstimate {
            program,
            is: row.sf,
            said,
        };
        Self {
            programs: data.programs().len(),
            said: rows.map(row).collect(),
            couples: couples.all(),
        }
    }

    /// The part of the pairs that was said right, with programs counting so often.
    pub fn right_by(&self, weights: &[f64]) -> f64 {
        let sums = self.couples.iter().fold([0.0; 2], |sums, couple| {
            let weight: f64 = couple.programs.iter().map(|&n| weights[n]).product();
            [
                sums[0] + weight * couple.right,
                sums[1] + weight * couple.number,
            ]
        });
        sums[0] / sums[1]
    }

    /// The mean absolute error, with programs counting so often.
    pub fn error_by(&self, weights: &[f64]) -> f64 {
        let mean = |value: &dyn Fn(&RowEstimate) -> f64| self.mean_by(weights, value);
        mean(&|one| (one.said - one.is).abs())
    }

    fn mean_by(&self, weights: &[f64], value: &dyn Fn(&RowEstimate) -> f64) -> f64 {
        let sums = self.said.iter().fold([0.0; 2], |sums, one| {
            let weight = weights[one.program];
            [sums[0] + weight * value(one), sums[1] + weight]
        });
        sums[0] / sums[1]
    }

    /// Pearson's correlation of what is and what was said; NaN where one is always the same.
    pub fn correlation_by(&self, weights: &[f64]) -> f64 {
        let mean = |value: &dyn Fn(&RowEstimate) -> f64| self.mean_by(weights, value);
        let (is, said) = (mean(&|one| one.is), mean(&|one| one.said));
        let spread = |a: &dyn Fn(&RowEstimate) -> f64, b: &dyn Fn(&RowEstimate) -> f64| {
            mean(&|one| a(one) * b(one))
        };
        let (x, y) = (
            |one: &RowEstimate| one.is - is,
            |one: &RowEstimate| one.said - said,
        );
        spread(&x, &y) / (spread(&x, &x) * spread(&y, &y)).sqrt()
    }

    /// What is, and what was said.
    pub fn said(&self) -> &[RowEstimate] {
        &self.said
    }

    /// Pairs that were said right.
    pub fn right(&self) -> Interval {
        Interval::of(self.programs, |weights| self.right_by(weights))
    }

    /// The mean absolute error.
    pub fn error(&self) -> Interval {
        Interval::of(self.programs, |weights| self.error_by(weights))
    }

    /// The correlation.
    pub fn correlation(&self) -> Interval {
        Interval::of(self.programs, |weights| self.correlation_by(weights))
    }

    /// By how much more of the pairs it says right than another, for the same programs.
    pub fn more_right_than(&self, other: &Self) -> Interval {
        Interval::of(self.programs, |weights| {
            self.right_by(weights) - other.right_by(weights)
        })
    }

    /// By how much its error is less than another's, for the same programs.
    pub fn nearer_than(&self, other: &Self) -> Interval {
        Interval::of(self.programs, |weights| {
            other.error_by(weights) - self.error_by(weights)
        })
    }
}
