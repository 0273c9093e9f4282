// SPDX-License-Identifier: GPL-2.0-or-later
//! `scx_hetero train --interference`: how well classes of interference are told, by rules and by what is learnt, of
//! programs and beside antagonists that were not learnt from (Zellweger, Lin and Roscoe 2016, section 5).

use std::collections::BTreeSet;
use std::fmt;

use anyhow::{Result, ensure};
use comfy_table::{CellAlignment, Table, presets};
use hetero_core::interference::data::{PairExample, read};
use hetero_core::interference::rules::{best, classify};
use hetero_core::interference::scores::ClassConfusion;
use hetero_core::interference::signs::{InterferenceSigns, NR_SIGNS, at};
use hetero_core::interference::{CLASSES, InterferenceClass};
use hetero_core::ml::args::Train;
use hetero_core::ml::boosting::{Boosting, Ensemble, Loss};
use hetero_core::ml::tree::Columns;
use hetero_core::output;
use hetero_core::text::hang_words;
use linfa::prelude::*;
use linfa_svm::Svm;
use log::info;
use ndarray::Array1;

use crate::discover::classes;
use crate::scaled::ScaledRows;
use crate::voting::VotingForest;

/// Signs that no policy's counters tell: misses of the L2 and stalled cycles.
const FURTHER: [usize; 4] = [at::L2_MORE, at::L2, at::STALLED_MORE, at::OTHER_MORE];

/// Of boosted trees, a sum for each class.
const TREES: usize = 60;
const LEAST_LEAF: usize = 5;
const FOREST: VotingForest = VotingForest {
    depth: 10,
    features: 0.7,
};
/// Of support vector machines.
const COST: f64 = 10.0;
const WIDTH: f64 = 1.0;

/// What tells classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Teller {
    Rules,
    Boosted,
    Svm,
    Forest,
}

impl Teller {
    const ALL: [Self; 4] = [Self::Rules, Self::Boosted, Self::Svm, Self::Forest];
}

impl fmt::Display for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Rules => "rules",
            Self::Boosted => "boosted trees",
            Self::Svm => "SVM",
            Self::Forest => "random forest",
        })
    }
}

/// Says the class.
type Says = Box<dyn Fn(&InterferenceSigns) -> InterferenceClass>;

/// Compares, and prints.
///
/// # Errors
/// What is wrong with the tables, or why nothing can be learnt of them.
pub fn run(args: &Train) -> Result<()> {
    let mut examples = read(&args.tables)?;
    examples.retain(|example| !args.leave_out.contains(&example.program));
    output::print(match args.discover {
        true => choice(&examples)?,
        false => report(&examples)?,
    })
}

/// Which events are worth counting.
fn choice(examples: &[PairExample]) -> Result<String> {
    enough(examples)?;
    classes::choose(&|signs| {
        info!("learnt anew for each program left out");
        let seen: Vec<PairExample> = examples.iter().map(|of| restricted(of, signs)).collect();
        let scores = left_out(&seen, Teller::Boosted, signs, |of| &of.program)?;
        Ok((scores.macro_f1(), scores.accuracy()))
    })
}

/// The programs and antagonists, if there are enough to leave some out.
fn enough(examples: &[PairExample]) -> Result<[BTreeSet<&str>; 2]> {
    let names =
        |of: fn(&PairExample) -> &str| -> BTreeSet<&str> { examples.iter().map(of).collect() };
    let programs = names(|of| &of.program);
    let antagonists = names(|of| &of.antagonist);
    ensure!(
        programs.len() > 2 && antagonists.len() > 2,
        "the tables have {} programs and {} antagonists: to leave one out takes more",
        programs.len(),
        antagonists.len().saturating_sub(1)
    );
    Ok([programs, antagonists])
}

fn report(examples: &[PairExample]) -> Result<String> {
    let [programs, antagonists] = enough(examples)?;
    let all: Vec<usize> = (0..NR_SIGNS).collect();
    let common: Vec<usize> = all
        .iter()
        .copied()
        .filter(|at| !FURTHER.contains(at))
        .collect();
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "TOLD BY",
        "SIGNS",
        "PROGRAMS",
        "RIGHT",
        "ANTAGONISTS",
        "RIGHT",
    ]);
    let mut shown = Vec::new();
    for (signs, known) in [("all", &all), ("policies'", &common)] {
        let seen: Vec<PairExample> = examples.iter().map(|of| restricted(of, known)).collect();
        for teller in Teller::ALL {
            info!("{teller}: learnt anew for each program and antagonist left out");
            let by_program = left_out(&seen, teller, known, |of| &of.program)?;
            let by_antagonist = left_out(&seen, teller, known, |of| &of.antagonist)?;
            let cells = [by_program, by_antagonist].map(|scores| {
                let percent = 100.0 * scores.accuracy();
                [
                    format!("{:.3}", scores.macro_f1()),
                    format!("{percent:.1} %"),
                ]
            });
            let row = [teller.to_string(), signs.to_string()];
            table.add_row(row.into_iter().chain(cells.into_iter().flatten()));
            shown.push((teller, signs, by_program));
        }
    }
    for column in [2, 3, 4, 5] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let caption = format!(
        "{} windows of {} programs, beside {} antagonists. The table has the macro F1 of programs, and of antagonists, \
         that were left out, and how many of their windows are told right; by all signs, or by those that policies' \
         counters tell.",
        examples.len(),
        programs.len(),
        antagonists.iter().filter(|name| !name.is_empty()).count()
    );
    let mut text = format!("{}\n\n{}\n", hang_words(&caption, 0, 0), table.trim_fmt());
    for (teller, signs, scores) in &shown {
        let signs = match *signs {
            "all" => "all signs",
            _ => "policies' signs",
        };
        text += &format!("\nBy {teller}, {signs}, of programs left out; a row is what it was:\n\n");
        text += &confusion(scores).trim_fmt();
        text.push('\n');
    }
    Ok(text.trim_end().to_string())
}

/// With these signs alone.
fn restricted(of: &PairExample, known: &[usize]) -> PairExample {
    let mut values = [None; NR_SIGNS];
    for &at in known {
        values[at] = of.signs.get(at);
    }
    PairExample {
        signs: InterferenceSigns::from_values(values),
        ..of.clone()
    }
}

/// How often each class is told right, of those left out one after the other; what runs alone is never left out with
/// an antagonist.
fn left_out(
    examples: &[PairExample],
    teller: Teller,
    known: &[usize],
    group: fn(&PairExample) -> &String,
) -> Result<ClassConfusion> {
    let groups: BTreeSet<&String> = examples.iter().map(group).collect();
    let mut scores = ClassConfusion::default();
    for name in groups.into_iter().filter(|name| !name.is_empty()) {
        let (out, learnt): (Vec<&PairExample>, Vec<&PairExample>) =
            examples.iter().partition(|of| group(of) == name);
        let says = teach(teller, &learnt, known)?;
        for of in out {
            scores.add(of.class, says(&of.signs));
        }
    }
    Ok(scores)
}

fn teach(teller: Teller, learnt: &[&PairExample], known: &[usize]) -> Result<Says> {
    Ok(match teller {
        Teller::Rules => Box::new(|signs| best(&classify(signs)).0),
        Teller::Boosted => boosted(learnt, known)?,
        Teller::Svm => svm(learnt, known)?,
        Teller::Forest => forest(learnt, known)?,
    })
}

fn values(signs: &InterferenceSigns, known: &[usize]) -> Vec<f64> {
    known.iter().map(|&at| signs.values[at]).collect()
}

/// Whether each is of a class; `None` if all are, or none is.
fn of_class(learnt: &[&PairExample], class: InterferenceClass) -> Option<Vec<bool>> {
    let of: Vec<bool> = learnt.iter().map(|of| of.class == class).collect();
    let both = of.contains(&true) && of.contains(&false);
    both.then_some(of)
}

/// The class with the greatest score.
fn greatest(scores: impl Iterator<Item = (InterferenceClass, f64)>) -> InterferenceClass {
    let most = scores.max_by(|(_, a), (_, b)| a.total_cmp(b));
    most.map_or(InterferenceClass::None, |(class, _)| class)
}

fn boosted(learnt: &[&PairExample], known: &[usize]) -> Result<Says> {
    let rows: Vec<Vec<f64>> = learnt.iter().map(|of| values(&of.signs, known)).collect();
    let columns = Columns::from_rows(known.len(), rows.iter().map(Vec::as_slice));
    let boosting = Boosting {
        trees: TREES,
        least_leaf: LEAST_LEAF,
        ..Boosting::new(Loss::Logistic)
    };
    let mut sums: Vec<(InterferenceClass, Ensemble)> = Vec::new();
    for &class in InterferenceClass::ALL {
        let Some(is) = of_class(learnt, class) else {
            continue;
        };
        let targets: Vec<f64> = is.iter().map(|&is| f64::from(u8::from(is))).collect();
        sums.push((class, boosting.fit(&columns, &targets)?.ensemble));
    }
    let known = known.to_vec();
    Ok(Box::new(move |signs| {
        let of = |feature: usize| signs.values[known[feature]];
        greatest(sums.iter().map(|(class, sum)| (*class, sum.score(of))))
    }))
}

/// Those that are learnt from.
fn scaled(learnt: &[&PairExample], known: &[usize]) -> Result<ScaledRows> {
    ScaledRows::new(learnt.iter().map(|of| values(&of.signs, known)).collect())
}

fn svm(learnt: &[&PairExample], known: &[usize]) -> Result<Says> {
    let rows = scaled(learnt, known)?;
    let scale = rows.scaler();
    let mut machines = Vec::new();
    for &class in InterferenceClass::ALL {
        let Some(is) = of_class(learnt, class) else {
            continue;
        };
        let machine = Svm::<f64, bool>::params()
            .pos_neg_weights(COST, COST)
            .gaussian_kernel(WIDTH)
            .fit(&Dataset::new(rows.matrix.clone(), Array1::from(is)))?;
        machines.push((class, machine));
    }
    let known = known.to_vec();
    Ok(Box::new(move |signs| {
        let row = scale(&values(signs, &known));
        let score = |of: &Svm<f64, bool>| of.weighted_sum(&row.row(0)) - of.rho;
        greatest(machines.iter().map(|(class, of)| (*class, score(of))))
    }))
}

fn forest(learnt: &[&PairExample], known: &[usize]) -> Result<Says> {
    let rows = scaled(learnt, known)?;
    let scale = rows.scaler();
    let classes: Array1<usize> = learnt.iter().map(|of| of.class as usize).collect();
    let votes = FOREST.fit(rows.matrix, classes)?;
    let known = known.to_vec();
    Ok(Box::new(move |signs| {
        let row = scale(&values(signs, &known));
        let mut counts = [0.0; CLASSES];
        for class in votes(&row) {
            counts[class] += 1.0;
        }
        greatest(InterferenceClass::ALL.iter().copied().zip(counts))
    }))
}

fn confusion(scores: &ClassConfusion) -> Table {
    let column = |class: InterferenceClass| {
        let said = scores.counts.iter().map(move |is| is[class as usize]);
        said.sum::<u64>()
    };
    let mut there = InterferenceClass::ALL.to_vec();
    there.retain(|&class| scores.of(class) + column(class) > 0);
    let mut table = Table::new();
    let names = there.iter().map(|class| class.name().to_uppercase());
    let head = std::iter::once(String::new())
        .chain(names)
        .chain(["F1".to_string()]);
    table.load_style(presets::NOTHING).set_header(head);
    for &is in &there {
        let counts = there
            .iter()
            .map(|&said| scores.counts[is as usize][said as usize].to_string());
        let f1 = scores
            .f1(is)
            .map_or_else(String::new, |f1| format!("{f1:.3}"));
        let row = std::iter::once(is.name().to_string())
            .chain(counts)
            .chain([f1]);
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use hetero_core::text::WIDTH;

    /// Four programs, beside three antagonists, of which each shows in a sign of its own.
    fn examples() -> Vec<PairExample> {
        use InterferenceClass::{Llc, None, Power, Sibling};
        let of = [
            ("", None, [0.0, 0.0, 0.0, 0.0]),
            ("stream", Llc, [0.5, 0.0, 8.0, 0.0]),
            ("integer", Sibling, [0.4, 0.0, 0.0, 1.0]),
            ("fp", Power, [0.3, 0.3, 0.0, 0.0]),
        ];
        let mut examples = Vec::new();
        for program in 0..4 {
            for (antagonist, class, signs) in of {
                for window in 0..6 {
                    let noise = 0.01 * f64::from(window + program);
                    let mut values = [Some(0.0); NR_SIGNS];
                    for (sign, value) in [at::SLOW, at::CLOCK, at::MISSES_MORE, at::SIBLING]
                        .into_iter()
                        .zip(signs)
                    {
                        values[sign] = Some(value * (1.0 + noise));
                    }
                    values[at::MISSES] = values[at::MISSES_MORE];
                    examples.push(PairExample {
                        program: format!("p{program}"),
                        antagonist: antagonist.into(),
                        class,
                        signs: InterferenceSigns::from_values(values),
                    });
                }
            }
        }
        examples
    }

    #[test]
    fn every_teller_tells_new_programs_what_differs_in_a_sign() {
        let (examples, known) = (examples(), (0..NR_SIGNS).collect::<Vec<_>>());
        for teller in Teller::ALL {
            let scores = left_out(&examples, teller, &known, |of| &of.program).unwrap();
            assert!(scores.macro_f1() > 0.99, "{teller}: {scores:?}");
        }
        let text = report(&examples).unwrap();
        assert!(
            text.contains("96 windows of 4 programs, beside 3 antagonists"),
            "{text}"
        );
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        // What differs shows without events.
        let text = choice(&examples).unwrap();
        assert!(text.contains("Nothing is gained by llc-misses"), "{text}");
        for few in [report(&examples[..24]), choice(&examples[..24])] {
            assert!(few.is_err(), "one program is too few");
        }
    }
}
