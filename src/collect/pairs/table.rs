// SPDX-License-Identifier: GPL-2.0-only
//! The table of pairs: a CSV file that is whole at any time, with a header beside it as the other tables have.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use hetero_core::interference::InterferenceClass;
use hetero_core::interference::signs::{InterferenceSigns, SIGNS};
use hetero_core::parse;

use super::label::PairLoss;
use super::place::PairPlacement;
use super::suite::{Antagonist, PairProgram};
use crate::files::{read_table, write_whole};
use crate::ml::header::{self, TableHeader};

/// The columns before those of signs.
const COLUMNS: [&str; 10] = [
    "program",
    "variant",
    "core-type",
    "antagonist",
    "antagonist-variant",
    "copies",
    "placement",
    "window",
    "class",
    "slowdown",
];

/// See the module.
pub(super) struct PairsTable {
    path: PathBuf,
    header: TableHeader,
    rows: Vec<Vec<String>>,
}

/// A run beside an antagonist, or alone.
pub(super) struct PairRow<'p> {
    /// What is disturbed, and on which core type.
    pub program: &'p PairProgram,
    /// See `program`.
    pub core_type: &'p str,
    /// What disturbs it, and how many of them.
    pub antagonist: Option<(&'p Antagonist, usize)>,
    /// Where that is.
    pub placement: PairPlacement,
    /// What it lost, over all windows.
    pub loss: PairLoss,
    /// And to what.
    pub class: InterferenceClass,
    /// By window.
    pub signs: Vec<InterferenceSigns>,
}

impl PairsTable {
    /// Goes on with the table at `path` if there is one of the same machine, or begins it.
    ///
    /// # Errors
    /// There is one that this would spoil, or it cannot be written.
    pub(super) fn open(path: &Path, mut header: TableHeader) -> Result<Self> {
        let mut rows = Vec::new();
        let advice = || {
            let path = path.display();
            format!("{path} is not gone on with; choose another file with --output")
        };
        // As for other tables: what is no header is left alone.
        let before = TableHeader::read(path).with_context(advice)?;
        if path.exists() {
            let before = before.context("it has no header").with_context(advice)?;
            if let Some(difference) = before.machine.identity.differs(&header.machine.identity) {
                return Err(anyhow::anyhow!(difference)).with_context(advice);
            }
            let read = || -> Result<Vec<Vec<String>>> {
                let text = read_table(path)?;
                let mut reader = csv::Reader::from_reader(text.as_bytes());
                let expected = COLUMNS.iter().chain(&SIGNS);
                ensure!(
                    reader
                        .headers()
                        .map_err(parse::of_csv)?
                        .iter()
                        .eq(expected.copied()),
                    "it has other columns"
                );
                let records = reader.records();
                let rows = records.map(|row| {
                    let row = row.map_err(parse::of_csv)?;
                    Ok(row.iter().map(String::from).collect())
                });
                rows.collect()
            };
            rows = read().with_context(advice)?;
            header = before;
        }
        let table = Self {
            path: path.to_path_buf(),
            header,
            rows,
        };
        table.write()?;
        Ok(table)
    }

    /// What is in it: programs, variants and core types.
    pub(super) fn done(&self) -> BTreeSet<[String; 3]> {
        let of = |row: &Vec<String>| [0, 1, 2].map(|at| row[at].clone());
        self.rows.iter().map(of).collect()
    }

    /// How many rows it has.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Adds runs of a program on a core type, and writes the table.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn add(&mut self, runs: &[PairRow]) -> Result<()> {
        for run in runs {
            let label = format!("{} {}", run.program.name, run.program.variant);
            let commands = &mut self.header.commands;
            commands.insert(label.trim().into(), run.program.command.clone());
            let (name, variant, copies) = match run.antagonist {
                Some((other, copies)) => (&*other.name, &*other.variant, copies),
                None => ("", "", 0),
            };
            if let Some((other, _)) = run.antagonist {
                let label = format!("beside: {} {}", other.name, other.variant);
                commands.insert(label.trim().into(), other.command.clone());
            }
            for (window, signs) in run.signs.iter().enumerate() {
                let mut row = vec![
                    run.program.name.clone(),
                    run.program.variant.clone(),
                    run.core_type.to_string(),
                    name.to_string(),
                    variant.to_string(),
                    copies.to_string(),
                    run.placement.name().to_string(),
                    window.to_string(),
                    run.class.to_string(),
                    format!("{:.4}", run.loss.slowdown()),
                ];
                let sign = |at| signs.get(at).map(|value| format!("{value:.5}"));
                row.extend((0..SIGNS.len()).map(|at| sign(at).unwrap_or_default()));
                self.rows.push(row);
            }
        }
        self.write()
    }

    fn write(&self) -> Result<()> {
        let json = serde_json::to_string_pretty(&self.header)? + "\n";
        write_whole(&header::path_of(&self.path), json.as_bytes())?;
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(COLUMNS.iter().chain(&SIGNS))?;
        for row in &self.rows {
            writer.write_record(row)?;
        }
        write_whole(&self.path, &writer.into_inner()?)
    }
}
