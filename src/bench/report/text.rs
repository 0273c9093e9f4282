// SPDX-License-Identifier: GPL-2.0-only
//! Tables for terminals.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};

use super::summary::{OfMix, Stat, Summary};
use crate::text::{WIDTH, wrap};

/// What stands where something cannot be counted.
const NOTHING: &str = "-";

/// A table for each mix and one of means.
pub(super) fn text(summary: &Summary) -> String {
    let mut text = wrap(&summary.machine.describe());
    for of in &summary.mixes {
        text += "\n\n";
        text += &wrap(&format!("{}: {}", of.mix, of.programs.join(", ")));
        text += "\n\n";
        text += &table_of(of);
    }
    if !summary.means.is_empty() {
        text += "\n\n";
        let mixes = summary.mixes_of_means.join(", ");
        text += &wrap(&format!("Means over {mixes}"));
        text += "\n\n";
        text += &means(summary);
    }
    text += "\n\n";
    text += &wrap(
        "N: repeats. UNFAIRNESS: greatest slowdown over least. ASP: sum of speedups over the slowest CPUs, less \
         one each. STP: sum of speeds over those alone. ANTT: mean slowdown. MIGR/S: changes of CPU \
         per second. SPREAD: standard deviation of completion times over their mean. Beside \
         unfairness and ASP stand the least and the greatest of several repeats. Over mixes, unfairness, \
         ANTT and J/S are geometric means, the others arithmetic ones.",
    );
    text += "\n";
    text += &wrap(match energy_is_known(summary) {
        true => "J/S: energy for what a fastest core does alone in a second.",
        false => "Energy: not countable here.",
    });
    if !summary.failed.is_empty() {
        text += "\n\nFailed:";
        for failed in &summary.failed {
            let what = format!(
                "{}, {}, repeat {}",
                failed.scheduler, failed.mix, failed.repeat
            );
            text += "\n";
            text += &wrap(&format!("  {what}: {}", failed.error));
        }
    }
    text
}

fn energy_is_known(summary: &Summary) -> bool {
    let mut rows = summary.mixes.iter().flat_map(|of| &of.schedulers);
    rows.any(|row| row.joules_per_s_alone.is_some())
}

fn table_of(of: &OfMix) -> String {
    let energy = of
        .schedulers
        .iter()
        .any(|row| row.joules_per_s_alone.is_some());
    let rows = of.schedulers.iter().map(|row| {
        let mut cells = vec![
            row.scheduler.clone(),
            row.repeats.to_string(),
            range(row.unfairness, row.repeats),
            range(row.asp, row.repeats),
            format!("{:.2}", row.stp.mean),
            format!("{:.2}", row.antt.mean),
            number(row.migrations_per_s.map(|stat| stat.mean), 1),
            format!("{:.1}%", 100.0 * row.spread),
        ];
        if energy {
            cells.push(number(row.joules_per_s_alone.map(|stat| stat.mean), 2));
        }
        cells
    });
    let n = ["N"];
    table(&n, rows.collect(), energy)
}

fn means(summary: &Summary) -> String {
    let energy = summary
        .means
        .iter()
        .any(|mean| mean.joules_per_s_alone.is_some());
    let rows = summary.means.iter().map(|mean| {
        let mut cells = vec![
            mean.scheduler.clone(),
            format!("{:.2}", mean.unfairness),
            format!("{:.2}", mean.asp),
            format!("{:.2}", mean.stp),
            format!("{:.2}", mean.antt),
            number(mean.migrations_per_s, 1),
            format!("{:.1}%", 100.0 * mean.spread),
        ];
        if energy {
            cells.push(number(mean.joules_per_s_alone, 2));
        }
        cells
    });
    table(&[], rows.collect(), energy)
}

fn table(after_name: &[&'static str], rows: Vec<Vec<String>>, energy: bool) -> String {
    let mut table = Table::new();
    let mut header = vec!["SCHEDULER"];
    header.extend(after_name);
    header.extend(["UNFAIRNESS", "ASP", "STP", "ANTT", "MIGR/S", "SPREAD"]);
    header.extend(energy.then_some("J/S"));
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH as u16)
        .set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for (at, column) in table.column_iter_mut().enumerate() {
        // One space between columns: with ranges of two numbers the line has to fit, and if it does not,
        // a scheduler's name has several.
        column.set_padding((u16::from(at > 0), 0));
        if at > 0 {
            column.set_cell_alignment(CellAlignment::Right);
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table.trim_fmt()
}

/// One run is no range.
fn range(stat: Stat, repeats: usize) -> String {
    match repeats {
        0 | 1 => format!("{:.2}", stat.mean),
        _ => format!("{:.2} {:.2}..{:.2}", stat.mean, stat.min, stat.max),
    }
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or(NOTHING.into(), |value| format!("{value:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::summary::tests::example;
    use crate::bench::results::Failed;

    #[test]
    fn tables_fit_the_terminal_and_failures_are_told() {
        let mut summary = example();
        summary.failed.push(Failed {
            scheduler: "scx_lavd".into(),
            mix: "M1".into(),
            repeat: 1,
            error: "it ended while it was measured (exit status: 1)".into(),
        });
        let text = text(&summary);
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        for expected in [
            "M1: a, b\n",
            " N ",
            "1.50 1.00..2.00",
            "Means over M2",
            "not countable",
            "scx_lavd, M1",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
        // Each scheduler has its own number of repeats, and a single one no range.
        for of in &summary.mixes {
            for row in &of.schedulers {
                let line = text.lines().find(|line| {
                    let mut words = line.split_whitespace();
                    words.next() == Some(&row.scheduler)
                        && words.next() == Some(&row.repeats.to_string())
                });
                let line = line.unwrap_or_else(|| panic!("{}\n{text}", row.scheduler));
                assert_eq!(line.contains(".."), row.repeats > 1, "{line}");
            }
        }
    }

    #[test]
    fn a_scheduler_with_many_options_has_several_lines() {
        let mut summary = example();
        let row = &mut summary.mixes[0].schedulers[0];
        row.scheduler = "scx_lavd --performance --some-option --and-another 1000".into();
        row.asp.min = -1000.0;
        let text = text(&summary);
        let fits = |line: &str| line.chars().count() <= WIDTH;
        assert!(text.lines().all(fits), "{text}");
        for part in ["scx_lavd", "--performance", "--and-another", "-1000.00.."] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
    }
}
