// SPDX-License-Identifier: GPL-2.0-only
//! Results for people and for programs.

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use serde_json::json;

use super::caches::CacheOutcome;
use super::energy::MixEnergy;
use super::experiment::{ExperimentOutcome, SchedulerChoice};
use super::goals::GoalOutcome;
use super::library::Library;
use super::machine::SimulatedMachine;
use super::metrics::{ScheduleMetrics, Times};
use super::mix::Mix;
use super::optimum::Optimum;
use crate::text::wrap;
use hetero_core::cache::CURVE_POINTS;

/// What came of a mix.
#[derive(Serialize)]
pub(super) struct MixReport<'a> {
    mix: &'a str,
    machine: &'a str,
    programs: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    optimum: Option<&'a Optimum>,
    schedulers: Vec<Row<'a>>,
}

/// What came of it under a scheduler.
#[derive(Serialize)]
struct Row<'a> {
    scheduler: String,
    #[serde(flatten)]
    metrics: ScheduleMetrics,
    #[serde(skip_serializing_if = "Option::is_none")]
    energy: Option<MixEnergy>,
    /// Energy-delay product over the least.
    #[serde(skip_serializing_if = "Option::is_none")]
    of_least_edp: Option<f64>,
    migrations_per_s: f64,
    seconds: f64,
    busy: f64,
    events: u64,
    actions_applied: u64,
    actions_stale: u64,
    /// ASP over the most at the same unfairness.
    #[serde(skip_serializing_if = "Option::is_none")]
    of_best_asp: Option<f64>,
    /// Unfairness over the least.
    #[serde(skip_serializing_if = "Option::is_none")]
    of_least_unfairness: Option<f64>,
    programs: &'a [Times],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    goals: &'a [GoalOutcome],
    #[serde(skip_serializing_if = "Option::is_none")]
    caches: Option<&'a CacheOutcome>,
}

impl<'a> MixReport<'a> {
    pub(super) fn new(
        mix: &'a Mix,
        machine: &'a SimulatedMachine,
        outcomes: &'a [(SchedulerChoice, ExperimentOutcome)],
        optimum: Option<&'a Optimum>,
    ) -> Self {
        let best = match optimum {
            Some(Optimum::Known(best)) => Some(best),
            _ => None,
        };
        let row = |(scheduler, outcome): &'a (SchedulerChoice, ExperimentOutcome)| {
            let metrics = outcome.metrics;
            let most = best.and_then(|best| best.asp_at(metrics.unfairness));
            Row {
                scheduler: scheduler.to_string(),
                metrics,
                energy: outcome.energy,
                of_least_edp: outcome
                    .energy
                    .zip(best.and_then(|best| best.thriftiest))
                    .map(|(energy, least)| energy.edp / least.edp),
                migrations_per_s: outcome.migrations,
                seconds: outcome.seconds,
                busy: outcome.busy,
                events: outcome.events,
                actions_applied: outcome.actions.0,
                actions_stale: outcome.actions.1,
                of_best_asp: most.map(|most| metrics.asp / most),
                of_least_unfairness: best.map(|best| metrics.unfairness / best.fairest.0),
                programs: &outcome.times,
                goals: &outcome.goals,
                caches: outcome.caches.as_ref(),
            }
        };
        Self {
            mix: &mix.name,
            machine: &machine.name,
            programs: mix.members_in_words(),
            optimum,
            schedulers: outcomes.iter().map(row).collect(),
        }
    }

    /// As text of at most 80 columns; completion times by program if `programs`.
    pub(super) fn text(&self, programs: bool) -> String {
        let list = self.programs.join(", ");
        let title = if self.mix.contains([',', '(', '*', '@']) {
            "Mix"
        } else {
            self.mix
        };
        let mut text = wrap(&format!("{title} on {}: {list}", self.machine));
        text += "\n\n";
        text += &self.table();
        match self.optimum {
            Some(Optimum::Known(best)) => {
                let words = format!(
                    "OF LEAST: unfairness over the least possible. OF MOST: ASP over the most \
                     possible at that unfairness ({} ways to place threads).",
                    best.columns
                );
                text += "\n\n";
                text += &wrap(&words);
            }
            Some(Optimum::Skipped { skipped }) => {
                text += "\n\n";
                text += &wrap(&format!("No optimum: {skipped}."));
            }
            None => {}
        }
        if self.schedulers.iter().any(|row| row.energy.is_some()) {
            text += "\n\n";
            text += &self.energy_table();
            text += "\n\n";
            text += &wrap(
                "J/WORK: joules for what a thread alone on a fastest core does in a second. EDP: these, \
                 times the seconds that it takes. PROGRAMS' EDP: the mean of their own, over those alone \
                 on a fastest core.",
            );
        }
        for row in self.schedulers.iter().filter(|row| !row.goals.is_empty()) {
            text += &format!("\n\n{}\n", row.scheduler);
            text += &goals(row.goals);
        }
        for row in &self.schedulers {
            if let Some(outcome) = row.caches {
                text += &format!("\n\n{}\n", row.scheduler);
                text += &caches(outcome);
            }
        }
        if programs {
            for row in &self.schedulers {
                text += &format!("\n\n{}\n", row.scheduler);
                text += &times(row.programs);
            }
        }
        text
    }

    fn table(&self) -> String {
        let known = matches!(self.optimum, Some(Optimum::Known(_)));
        let mut table = Table::new();
        let mut header = vec!["SCHEDULER", "UNFAIRNESS", "ASP", "STP", "ANTT", "MIGR/S"];
        if known {
            header.extend(["OF LEAST", "OF MOST"]);
        }
        table.load_style(presets::NOTHING).set_header(header);
        for row in &self.schedulers {
            let mut cells = vec![
                row.scheduler.clone(),
                format!("{:.3}", row.metrics.unfairness),
                format!("{:.3}", row.metrics.asp),
                format!("{:.3}", row.metrics.stp),
                format!("{:.3}", row.metrics.antt),
                format!("{:.1}", row.migrations_per_s),
            ];
            if known {
                let percent =
                    |of: Option<f64>| of.map_or("-".into(), |of| format!("{:.0}%", 100.0 * of));
                cells.push(percent(row.of_least_unfairness));
                cells.push(percent(row.of_best_asp));
            }
            table.add_row(cells);
        }
        if let Some(Optimum::Known(best)) = self.optimum {
            for (name, (unfairness, asp)) in [("fairest", best.fairest), ("fastest", best.fastest)]
            {
                let bound = [
                    format!("({name})"),
                    format!("{unfairness:.3}"),
                    format!("{asp:.3}"),
                ];
                table.add_row(bound);
            }
        }
        right_aligned(table)
    }

    /// What it took: joules for what a fastest core does alone in a second, and these times the seconds
    /// that it takes.
    fn energy_table(&self) -> String {
        let best = match self.optimum {
            Some(Optimum::Known(best)) => best.thriftiest,
            _ => None,
        };
        let mut table = Table::new();
        let mut header = vec!["SCHEDULER", "WATTS", "J/WORK", "EDP", "PROGRAMS' EDP"];
        if best.is_some() {
            header.push("OF LEAST EDP");
        }
        table.load_style(presets::NOTHING).set_header(header);
        for row in &self.schedulers {
            let Some(energy) = row.energy else { continue };
            let mut cells = vec![
                row.scheduler.clone(),
                format!("{:.3}", energy.watts),
                format!("{:.4}", energy.joules_per_work),
                format!("{:.4}", energy.edp),
                format!("{:.3}", energy.edp_of_programs),
            ];
            cells.extend(row.of_least_edp.map(|of| format!("{:.1}%", 100.0 * of)));
            table.add_row(cells);
        }
        if let Some(best) = best {
            table.add_row([
                "(least)".to_string(),
                format!("{:.3}", best.watts),
                format!("{:.4}", best.watts / best.stp),
                format!("{:.4}", best.edp),
            ]);
        }
        right_aligned(table)
    }
}

fn times(programs: &[Times]) -> String {
    let mut table = Table::new();
    let mut header = vec!["PROGRAM", "RUNS", "ALONE", "SLOW", "TIME", "SLOWDOWN"];
    if programs.iter().any(|times| times.energy.is_some()) {
        header.extend(["ENERGY", "EDP"]);
    }
    table.load_style(presets::NOTHING).set_header(header);
    for times in programs {
        let mut cells = vec![
            times.program.clone(),
            times.runs.to_string(),
            format!("{:.2} s", times.alone),
            format!("{:.2} s", times.slow),
            format!("{:.2} s", times.scheduled),
            format!("{:.3}", times.slowdown()),
        ];
        if let Some((energy, edp)) = times.energy.zip(times.energy_delay()) {
            cells.extend([format!("{:.2} J", energy.scheduled), format!("{edp:.3}")]);
        }
        table.add_row(cells);
    }
    right_aligned(table)
}

fn goals(goals: &[GoalOutcome]) -> String {
    let mut table = Table::new();
    let header = ["GOAL", "TARGET", "BEATS/S", "WITHIN 10%", "FAST CORES"];
    table.load_style(presets::NOTHING).set_header(header);
    for goal in goals {
        let rate = goal.rate.map(|rate| format!("{rate:.1}"));
        let within = goal.within.map(|part| format!("{:.0}%", 100.0 * part));
        table.add_row([
            goal.program.clone(),
            format!("{:.1}", goal.target),
            rate.unwrap_or("-".into()),
            within.unwrap_or("-".into()),
            format!("{:.2}", goal.allotted),
        ]);
    }
    right_aligned(table)
}

/// How well caches were estimated.
fn caches(outcome: &CacheOutcome) -> String {
    let [median, high] = outcome.error.map(|part| 100.0 * part);
    let mut text = wrap(&format!(
        "Occupancy: off by {median:.1}% of the cache in the median, {high:.1}% in 9 of 10; \
         {:.1}% of what is held ({} readings).",
        100.0 * outcome.relative,
        outcome.readings
    ));
    text += "\n";
    if outcome.curves.is_empty() {
        return text.trim_end().to_string();
    }
    let mut line = |name: &str, on: &str, off: &str, cells: [String; CURVE_POINTS]| {
        let name: String = name.chars().take(12).collect();
        let cells = cells.map(|cell| format!("{cell:>6}")).concat();
        text += &format!("\n{name:<12} {on:<7}{off:>5}{cells}");
    };
    let sizes = std::array::from_fn(|point| format!("{}/8", point + 1));
    line("MPKI WITH", "ON", "OFF", sizes);
    for curve in &outcome.curves {
        let off = curve.error();
        let off = off.map_or("-".into(), |off| format!("{:.0}%", 100.0 * off));
        let told = |mpki: Option<f64>| mpki.map_or("-".into(), |mpki| format!("{mpki:.1}"));
        let estimated = curve.estimated.map(told);
        line(&curve.program, &curve.core_type, &off, estimated);
        if let Some(off) = curve.kept_error() {
            let kept = curve.kept.map(told);
            line("", "kept", &format!("{:.0}%", 100.0 * off), kept);
        }
        line("", "", "real", curve.real.map(|mpki| format!("{mpki:.1}")));
    }
    text
}

/// The same as JSON.
pub(super) fn list_json(library: &Library) -> serde_json::Value {
    let described = |name: &str, what: &str| json!({"name": name, "description": what});
    let machines = library.machines.iter();
    let machines: Vec<_> = machines
        .map(|of| described(&of.name, &of.description))
        .collect();
    let programs = library.programs.iter();
    let programs: Vec<_> = programs
        .map(|of| described(&of.name, &of.description))
        .collect();
    let mixes = library.mixes.iter().map(
        |mix| json!({"name": mix.name, "machine": mix.machine, "programs": mix.members_in_words()}),
    );
    json!({"machines": machines, "mixes": mixes.collect::<Vec<_>>(), "programs": programs})
}

/// All that can be named.
pub(super) fn list(library: &Library) -> String {
    let mut text = "Machines:\n".to_string();
    for machine in &library.machines {
        text += &wrap(&format!("  {}: {}\n", machine.name, machine.description));
    }
    text += "\nMixes:\n";
    for mix in &library.mixes {
        let members = mix.members_in_words().join(", ");
        let on = mix.machine.as_ref().map(|machine| format!(" on {machine}"));
        let on = on.unwrap_or_default();
        text += &wrap(&format!("  {}{on}: {members}\n", mix.name));
    }
    text += "\nPrograms:\n";
    for program in &library.programs {
        text += &wrap(&format!("  {}: {}\n", program.name, program.description));
    }
    text.trim_end().to_string()
}

fn right_aligned(mut table: Table) -> String {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}
