// SPDX-License-Identifier: GPL-2.0-only
//! What is told of a session: by `goal list`, and in JSON.

use comfy_table::{CellAlignment, Table, presets};
use serde::{Deserialize, Serialize};

use super::{GoalSource, GoalTarget, SessionReading};

/// A session, its goal, and what becomes of it. What is `None` is not known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GoalStatus {
    /// The session's number.
    pub id: u64,
    /// The process that it is about.
    pub pid: u32,
    /// For people.
    pub name: String,
    /// It is about all that the process has started, too.
    #[serde(default)]
    pub children: bool,
    /// Threads that it is about; none are all of the process.
    pub tids: Vec<u32>,
    /// How much it counts where goals exceed the machine.
    pub weight: u32,
    /// Whether the target is one for the work of a beat, and not for the time from beat to beat.
    pub deadline: bool,
    /// Beats per second that are wanted; 0 is no goal.
    pub target: f64,
    /// Whose target that is.
    #[serde(default)]
    pub source: GoalSource,
    /// Beats so far.
    pub beats: u64,
    /// Beats per second of late.
    pub rate: Option<f64>,
    /// What the target takes, in fast-core equivalents.
    pub demand: Option<f64>,
    /// What it is given, in fast-core equivalents.
    pub allotment: Option<f64>,
    /// Why the target is missed, in words; nothing if it is not.
    pub reason: Option<String>,
}

impl From<&SessionReading> for GoalStatus {
    /// What is known before the control has seen it.
    fn from(reading: &SessionReading) -> Self {
        Self {
            id: reading.about.id,
            pid: reading.about.tgid,
            name: reading.about.name.clone(),
            children: reading.about.children,
            tids: reading.tids.to_vec(),
            weight: reading.weight,
            deadline: matches!(reading.target, GoalTarget::Deadline(_)),
            target: reading.target.per_second(),
            source: reading.source,
            beats: reading.beats.count,
            ..Self::default()
        }
    }
}

impl GoalStatus {
    /// Its target as people say it: beats per second, or the time that a beat's work may take.
    pub fn target_told(&self) -> String {
        match self.target {
            0.0 => "-".into(),
            target if self.deadline => format!("{} ms", short(1000.0 / target)),
            target => short(target),
        }
    }

    /// The process that it is about, with a "+" if also what that has started.
    pub fn pid_told(&self) -> String {
        format!("{}{}", self.pid, if self.children { "+" } else { "" })
    }

    /// Its rate over its target, where both are known.
    pub fn met(&self) -> Option<f64> {
        let target = Some(self.target).filter(|&target| target > 0.0)?;
        Some(self.rate? / target)
    }
}

/// A number of three digits or so.
pub(crate) fn short(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// All of them as a table.
pub(super) fn table(goals: &[GoalStatus]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "ID", "PID", "NAME", "WEIGHT", "BY", "TARGET", "RATE", "DEMAND", "GIVEN", "WHY NOT",
    ]);
    for goal in goals {
        let known = |value: Option<f64>| value.map_or("-".into(), short);
        table.add_row([
            goal.id.to_string(),
            goal.pid_told(),
            goal.name.clone(),
            goal.weight.to_string(),
            goal.source.name().into(),
            goal.target_told(),
            known(goal.rate),
            known(goal.demand),
            known(goal.allotment),
            goal.reason.clone().unwrap_or_default(),
        ]);
    }
    let last = table.column_count() - 1;
    for (at, column) in table.column_iter_mut().enumerate() {
        if ![2, 4, last].contains(&at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines = table.lines().map(|line| line.trim_end().to_string());
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use hetero_core::goals::Miss;

    use super::*;

    #[test]
    fn the_list_says_what_is_known_and_why_a_goal_is_missed() {
        let miss = Miss::Machine { lacks: 0.8 };
        let goals = [
            GoalStatus {
                id: 3,
                pid: 4711,
                name: "x264".into(),
                weight: 100,
                target: 30.0,
                source: GoalSource::Rule,
                rate: Some(24.56),
                demand: Some(3.21),
                allotment: Some(2.4),
                reason: Some(miss.to_string()),
                ..GoalStatus::default()
            },
            GoalStatus {
                id: 12,
                pid: 5,
                name: "game".into(),
                weight: 200,
                target: 125.0,
                deadline: true,
                children: true,
                ..GoalStatus::default()
            },
            GoalStatus::default(),
        ];
        let table = table(&goals);
        let lines: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            lines[1].join(" "),
            format!("3 4711 x264 100 rule 30.0 24.6 3.21 2.40 {miss}")
        );
        assert_eq!(lines[2].join(" "), "12 5+ game 200 own 8.00 ms - - -");
        assert_eq!(lines[3].join(" "), "0 0 0 own - - - -");
        assert!(table.lines().all(|line| line == line.trim_end()));
    }
}
