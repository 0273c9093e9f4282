// SPDX-License-Identifier: GPL-2.0-or-later
//! `scx_hetero model`: what a model is, in words and tables.

use std::collections::BTreeSet;
use std::fmt::Write;

use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};

use crate::kinds::Worth;
use crate::select::at_once;
use hetero_core::ml::args::Show;
use hetero_core::ml::model::{Classifier, Model, RankBy, Speedup};
use hetero_core::ml::scores::Confusion;
use hetero_core::ml::validate::Comparisons;
use hetero_core::output;
use hetero_core::text::wrap;
use hetero_core::topology::Topology;
use hetero_core::topology::{Identity, cpu_name};

/// Shows a model, and whether it is of this machine.
///
/// # Errors
/// It cannot be used, or not here.
pub fn run(args: &Show) -> Result<()> {
    let model = Model::read(&args.path)?;
    output::print(text(&model).trim_end())?;
    if args.any_machine {
        return Ok(());
    }
    let topology = Topology::detect(None)?;
    model.check_machine(&Identity::of(&topology, cpu_name()))
}

/// A model in words.
pub fn text(model: &Model) -> String {
    let mut out = String::new();
    let data = &model.data;
    let name = model
        .machine
        .as_ref()
        .map_or("a machine that its tables do not name", |m| &m.name);
    let line = format!(
        "Of {name}: {} measurements of {} programs ({}, {}).\n",
        data.rows,
        data.programs.len(),
        data.tables.join(", "),
        data.digest
    );
    let mut say = |text: &str| {
        let _ = writeln!(out, "{}", wrap(text));
    };
    say(&line);
    for speedup in &model.speedup {
        say(&of_speedup("SF", speedup));
    }
    for efficiency in &model.efficiency {
        say(&of_speedup("EF", efficiency));
    }
    if let Some(pairs) = &model.efficiency_pairs {
        say(&format!(
            "Which of two has the higher EF, by that: {} on pairs not learnt from.\n",
            of_matrix(pairs)
        ));
    }
    if let Some(classifier) = &model.classifier {
        say(&of_classifier(classifier, &model.core_types));
        say(match model.rank_by {
            RankBy::Speedup => {
                "Threads are ranked by the estimated SF, which is as good as the classifier or better.\n"
            }
            RankBy::Classifier => {
                "Threads are ranked by the classifier, which is better than the estimated SF.\n"
            }
        });
    }
    for (kind, events) in events(model) {
        let names: Vec<&str> = events.iter().copied().collect();
        let list = if names.is_empty() {
            "nothing more".into()
        } else {
            names.join(", ")
        };
        let pmu = model
            .machine
            .iter()
            .flat_map(|m| &m.pmus)
            .find(|pmu| pmu.core_type == kind);
        let fits = match pmu.and_then(|pmu| at_once(pmu, &events)) {
            Some(true) => "which are counted at once",
            Some(false) => {
                "which are MORE than its PMU counts at once beside the kernel's NMI watchdog: they take turns"
            }
            None => "and nothing tells whether its PMU counts them at once",
        };
        say(&format!(
            "On {kind} it needs instructions, cycles and {list}, {fits}."
        ));
    }
    out
}

/// What must be counted on each core type.
pub fn events(model: &Model) -> Vec<(&str, BTreeSet<&str>)> {
    let of_pair = model
        .classifier
        .iter()
        .flat_map(|classifier| classifier.trees.events());
    let of_pair: BTreeSet<&str> = match model.rank_by {
        RankBy::Classifier => of_pair.collect(),
        RankBy::Speedup => BTreeSet::new(),
    };
    let each = model.speedup.iter().map(|speedup| {
        let mut events = speedup.trees.events();
        let efficiency = model.efficiency.iter();
        let of_type = efficiency.filter(|of| of.core_type == speedup.core_type);
        events.extend(of_type.flat_map(|of| of.trees.events()));
        events.extend(&of_pair);
        (speedup.core_type.as_str(), events)
    });
    each.collect()
}

fn of_speedup(what: &str, speedup: &Speedup) -> String {
    let scores = speedup.scores;
    let on = if speedup.imported {
        "all programs, imported"
    } else {
        "programs not learnt from"
    };
    format!(
        "{what} from {}, {}{} trees: correlation {:.3}, mean absolute error {:.3}, standard error {:.1} % on {on}; asks for {}.\n",
        speedup.core_type,
        if speedup.trees.inverse {
            format!("learnt as 1 / {what}, ")
        } else {
            String::new()
        },
        speedup.trees.trees.len(),
        scores.correlation,
        scores.mae,
        speedup.sigma() * 100.0,
        shares(
            speedup.trees.features.iter().map(|f| f.name.as_str()),
            &speedup.importances
        ),
    )
}

fn of_classifier(classifier: &Classifier, core_types: &[String]) -> String {
    let on = if classifier.imported {
        "all pairs, imported"
    } else {
        "pairs not learnt from"
    };
    let first = core_types.first().map_or("", String::as_str);
    format!(
        "Which of two gains more from {first}, {} trees: {} on {on}; by the estimated SF: {}. It asks for {}.\n",
        classifier.trees.trees.len(),
        of_matrix(&classifier.scores),
        of_matrix(&classifier.by_speedup),
        shares(
            classifier.trees.features.iter().map(|f| f.name.as_str()),
            &classifier.importances
        ),
    )
}

/// Names with what each is worth, most first.
fn shares<'n>(names: impl Iterator<Item = &'n str>, importances: &[f64]) -> String {
    let given = importances
        .iter()
        .copied()
        .chain(std::iter::repeat(f64::NAN));
    let mut all: Vec<(&str, f64)> = names.zip(given).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    let one = |(name, share): &(&str, f64)| match share.is_nan() {
        true => name.to_string(),
        false => format!("{name} {:.0}%", 100.0 * share),
    };
    all.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn of_matrix(matrix: &Confusion) -> String {
    format!(
        "accuracy {:.1}%, precision {:.3}, recall {:.3}, F1 {:.3}",
        100.0 * matrix.accuracy(),
        matrix.precision(),
        matrix.recall(),
        matrix.f1()
    )
}

/// What was compared while a model was made.
pub fn comparisons(found: &Comparisons) -> String {
    let row = |name: &str, matrix: &Confusion| {
        format!(
            "  {name:<32}{:>8}{:>9.1}%{:>7}{:>7}{:>7}{:>7}\n",
            matrix.number(),
            100.0 * matrix.accuracy(),
            matrix.true_yes,
            matrix.false_no,
            matrix.false_yes,
            matrix.true_no
        )
    };
    let mut text = format!(
        "\nPairs of programs not learnt from:\n  {:<32}{:>8}{:>10}{:>7}{:>7}{:>7}{:>7}\n",
        "", "PAIRS", "ACCURACY", "TP", "FN", "FP", "TN"
    );
    text += &row("classifier, asked one way round", &found.classifier);
    text += &row("classifier, asked both ways", &found.both_ways);
    text += &row("estimated SF", &found.by_speedup);
    text += &row("SF over 5% apart: classifier", &found.apart[0]);
    text += &row("SF over 5% apart: estimated SF", &found.apart[1]);
    text
}

/// Kinds of models side by side.
pub fn kinds(core_types: &[String], kinds: &[(String, Worth)]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let mut header = vec!["KIND".to_string()];
    header.extend(core_types.iter().map(|kind| format!("SF FROM {kind}")));
    header.extend(["BY SF", "CLASSIFIER", "TIME"].map(String::from));
    table.set_header(header);
    for (name, worth) in kinds {
        let nearness = worth.speedup.iter().map(|speedup| match speedup {
            Some(speedup) => {
                let near = speedup.nearness();
                format!("{:.3} +- {:.3}", near.correlation, near.mae)
            }
            None => "-".to_string(),
        });
        let right = |matrix: &Confusion| format!("{:.1}%", 100.0 * matrix.accuracy());
        let mut row = vec![name.clone()];
        row.extend(nearness);
        row.push(worth.by_speedup.as_ref().map_or("-".to_string(), right));
        row.push(right(&worth.classifier));
        row.push(format!("{:.2} s", worth.took.as_secs_f64()));
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!(
        "\nKinds of models, on programs not learnt from: correlation and mean absolute\n\
         error of SF, pairs that are right, and how long learning takes:\n{}\n",
        table.trim_fmt()
    )
}
