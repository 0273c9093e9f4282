// SPDX-License-Identifier: GPL-2.0-or-later
//! What was found, for people.

use std::collections::BTreeSet;
use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};
use hetero_core::ml::data::{Data, INSTRUCTIONS};
use hetero_core::text::{hang_words, percent, plain};

use super::reduce::EXPLAINED;
use super::{Among, Answer, FromType};
use crate::resample::Interval;

/// So many twins are named.
const TWINS: usize = 12;
/// So many events of a component are named, of which each has at least so much.
const LOADS: usize = 4;
const LEAST_LOAD: f64 = 0.25;

/// All of it. `data` has the names of features.
pub(super) fn text(data: &Data, answers: &[Answer]) -> String {
    let mut out = String::new();
    for answer in answers {
        for from in &answer.core_types {
            of_type(&mut out, data, answer, from);
        }
        of_pairs(&mut out, data, answer);
    }
    let mut names: BTreeSet<&str> = BTreeSet::new();
    let chosen = answers.iter().flat_map(|answer| &answer.core_types);
    for feature in chosen.flat_map(|from| &from.choices[0].0.features) {
        names.insert(&data.features[*feature]);
    }
    names.remove(INSTRUCTIONS);
    let names: Vec<&str> = names.into_iter().collect();
    say(&mut out, "To count only what was chosen:");
    let _ = writeln!(out, "  scx_hetero collect --events {}", names.join(","));
    out
}

fn say(out: &mut String, text: &str) {
    let _ = writeln!(out, "{}", hang_words(text, 0, 2));
}

/// An event by the name that counts it, and the vendor's where that is another.
fn event(data: &Data, from: &FromType, feature: usize) -> String {
    let name = &data.features[feature];
    match from.pmu.events.get(name) {
        // Of what has no meaning the name is a code.
        Some(event) if name.contains('/') && !name.contains(&event.name) => {
            format!("{name} ({})", plain(&event.name))
        }
        _ if name == INSTRUCTIONS => "IPC".to_string(),
        _ => name.clone(),
    }
}

fn of_type(out: &mut String, data: &Data, answer: &Answer, from: &FromType) {
    let event = |&feature: &usize| event(data, from, feature);
    let (what, reduced) = (answer.what, &from.reduced);
    let of_ipc = |feature: &&usize| data.features[**feature] == INSTRUCTIONS;
    let ipc = reduced.kept.iter().filter(of_ipc).count();
    let measured = reduced.kept.len() - ipc
        + reduced.constant.len()
        + reduced.lacking.len()
        + reduced.twins.len();
    say(
        out,
        &format!(
            "{what} from {} ({}, {} general counters and {} fixed): {measured} events, of which {} never change, {} \
             were not counted everywhere and {} go with another.",
            from.pmu.core_type,
            from.pmu.microarchitecture,
            from.pmu.counters[0],
            from.pmu.counters[1],
            reduced.constant.len(),
            reduced.lacking.len(),
            reduced.twins.len(),
        ),
    );
    for (twin, of, r) in reduced.twins.iter().take(TWINS) {
        say(
            out,
            &format!("  {} goes with {} (r {r:.3})", event(twin), event(of)),
        );
    }
    if reduced.twins.len() > TWINS {
        say(out, &format!("  and {} more", reduced.twins.len() - TWINS));
    }
    say(
        out,
        &format!(
            "\n{} principal components explain {:.0} % of what the other {} vary{}:",
            reduced.components.len(),
            100.0 * EXPLAINED,
            reduced.kept.len() - ipc,
            if ipc > 0 { ", and IPC" } else { "" }
        ),
    );
    for component in &reduced.components {
        let loads = component.loads.iter().take(LOADS);
        let loads = loads.filter(|(_, load)| load.abs() >= LEAST_LOAD);
        let loads: Vec<String> = loads
            .map(|(feature, load)| format!("{} {load:+.2}", event(feature)))
            .collect();
        let line = format!("{:>5.1} %  {}", 100.0 * component.part, loads.join(", "));
        let _ = writeln!(out, "{}", hang_words(&line, 0, 9));
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "chosen among",
        "error",
        "explains",
        "pairs right",
        "events",
    ]);
    for (among, (choice, right)) in answer.among.iter().zip(&from.choices) {
        let paid = choice.features.iter();
        let paid = paid.filter(|&&feature| data.features[feature] != INSTRUCTIONS);
        table.add_row([
            among.name().to_string(),
            format!("{:.3}", choice.error),
            format!("{:.1} %", 100.0 * choice.explained),
            format!("{:.1} %", 100.0 * right.accuracy()),
            paid.count().to_string(),
        ]);
    }
    table.add_row([
        "(the mean)",
        &format!("{:.3}", from.mean),
        "0.0 %",
        "50.0 %",
        "0",
    ]);
    for column in 1..5 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let _ = writeln!(out, "\n{}\n", table.trim_fmt());
    for (among, (choice, _)) in answer.among.iter().zip(&from.choices) {
        let names: Vec<String> = choice.features.iter().map(event).collect();
        say(out, &format!("{}: {}.", among.name(), names.join(", ")));
    }
    if let Some((choice, _)) = from.choices.first() {
        let steps = choice.steps.iter();
        let steps: Vec<String> = steps
            .map(|(feature, error)| format!("{} {error:.3}", event(feature)))
            .collect();
        let text = match steps.is_empty() {
            true => "Found by leaving out what is missed least, again and again.".to_string(),
            false => format!(
                "Added in this order, with the error then: {}.",
                steps.join(", ")
            ),
        };
        say(out, &text);
    }
    out.push('\n');
}

fn of_pairs(out: &mut String, data: &Data, answer: &Answer) {
    let Some(first) = answer.pairs.first() else {
        return;
    };
    let of = |right: &hetero_core::ml::scores::Confusion| {
        percent(right.true_yes + right.true_no, right.number())
    };
    let each = answer.among.iter().zip(&answer.pairs);
    let each: Vec<String> = each
        .map(|(among, right)| format!("{} {:.1} %", among.name(), of(right)))
        .collect();
    say(
        out,
        &format!(
            "Which of two has the higher {}, of {} pairs from {} alike: {}.",
            answer.what,
            first.number(),
            data.core_types.join(" and "),
            each.join(", ")
        ),
    );
    say(
        out,
        "(All on programs that were not learnt from. Events were chosen by the same ones, so \
         that all numbers are too good.)\n",
    );
    of_held_out(out, answer);
}

/// What was chosen is worth so much to programs that had no part in it.
fn of_held_out(out: &mut String, answer: &Answer) {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(["chosen among", "error", "pairs right, %"]);
    for (among, trial) in answer.among.iter().zip(&answer.held_out) {
        table.add_row([
            among.name().to_string(),
            format!("{:.3}", trial.error().value),
            format!("{:.1}", Interval::of_percent(trial.right())),
        ]);
    }
    say(
        out,
        "Chosen anew without an eighth of the programs, and tried on these; in brackets lie 95 % of random draws of \
         programs:\n",
    );
    let _ = writeln!(out, "{}\n", table.trim_fmt());
    let of = |name: Among| {
        let at = answer.among.iter().position(|among| *among == name);
        at.and_then(|at| answer.held_out.get(at))
    };
    if let Some((table, without)) = of(Among::Table).zip(of(Among::NoTable)) {
        let more = Interval::of_percent(without.more_right_than(table));
        say(
            out,
            &format!("Without the table {more:.1} points more are right than by it.\n"),
        );
    }
}
