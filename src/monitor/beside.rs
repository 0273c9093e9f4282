// SPDX-License-Identifier: GPL-2.0-only
//! Which program slows down which, now: a matrix of the greatest slowdowns, as lines.

use std::collections::{BTreeMap, HashMap};

use hetero_core::interference::InterferenceClass;

use crate::agent::disturbed::SURE;
use crate::order::greatest_first;
use crate::stats::live::Live;

/// Columns of text for the program that is slowed down, and for each that does.
const VICTIM: usize = 24;
const COLUMN: usize = 15;

/// Programs that slow others down, at most: those that do it most come first.
const CULPRITS: usize = 64;

/// A process that slows a thread down; `None` where it is not known.
type By = Option<u32>;

/// Its lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct BesideLines {
    /// Above the others.
    pub heading: String,
    /// One a program that is slowed down, the slowest first.
    pub rows: Vec<String>,
}

/// See the module; of so many columns of text.
pub(super) fn lines(live: &Live, wide: usize) -> BesideLines {
    let mut names: HashMap<u32, &str> = HashMap::new();
    let mut cells: BTreeMap<(u32, By), (f64, InterferenceClass)> = BTreeMap::new();
    for thread in &live.threads {
        let name = names.entry(thread.pid).or_insert(&thread.comm);
        if thread.tid == thread.pid {
            *name = &thread.comm;
        }
        let Some(found) = thread.disturbed.as_ref().filter(|of| of.confidence >= SURE) else {
            continue;
        };
        if let (Some(pid), Some(name)) = (found.pid, &found.by) {
            names.entry(pid).or_insert(name);
        }
        let cell = cells.entry((thread.pid, found.pid)).or_default();
        // Of its threads the one that is slowed down most.
        if found.slowdown > cell.0 {
            *cell = (found.slowdown, found.class);
        }
    }
    let (mut victims, mut others): (HashMap<u32, f64>, HashMap<By, f64>) = Default::default();
    for (&(victim, by), &(slowdown, _)) in &cells {
        let worst = victims.entry(victim).or_default();
        *worst = worst.max(slowdown);
        *others.entry(by).or_default() += slowdown - 1.0;
    }
    let victims: Vec<u32> = greatest_first(victims)
        .into_iter()
        .map(|(pid, _)| pid)
        .collect();
    let mut others: Vec<By> = greatest_first(others)
        .into_iter()
        .map(|(by, _)| by)
        .collect();
    others.truncate((wide.saturating_sub(VICTIM) / COLUMN).clamp(1, CULPRITS));
    let named = |pid: u32, most: usize| {
        let pid_told = pid.to_string();
        let room = most.saturating_sub(pid_told.len() + 1);
        let name = names.get(&pid).copied().unwrap_or_default();
        let name: String = name.chars().take(room).collect();
        format!("{name} {pid_told}").trim_start().to_string()
    };
    let mut heading = format!("{:<VICTIM$}", "SLOWED DOWN");
    for by in &others {
        let by = by.map_or("not known".into(), |pid| named(pid, COLUMN - 4));
        heading += &format!("{:<COLUMN$}", format!("BY {by}"));
    }
    let rows = victims.iter().map(|&victim| {
        let mut line = format!("{:<VICTIM$}", named(victim, VICTIM - 1));
        for by in &others {
            let cell = cells.get(&(victim, *by));
            let told = cell.map(|(slowdown, class)| format!("{slowdown:.2} {class}"));
            line += &format!("{:<COLUMN$}", told.unwrap_or_default());
        }
        line.trim_end().to_string()
    });
    BesideLines {
        heading,
        rows: rows.collect(),
    }
}
