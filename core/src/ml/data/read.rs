// SPDX-License-Identifier: GPL-2.0-or-later
//! Reading a table: which column is what, and what its cells say.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::{Data, Row};
use crate::files::read_table;
use crate::ml::events;
use crate::ml::header::{self, TableHeader};
use crate::output::WrongUsage;
use crate::parse;
use crate::pmu::plain;
use crate::text;

/// What the columns of a table are.
struct Layout {
    program: usize,
    variant: Option<usize>,
    core_type: Option<usize>,
    window: Option<usize>,
    sf: Option<usize>,
    ips: Option<usize>,
    instructions: Option<usize>,
    run_ns: Option<usize>,
    joules: Option<usize>,
    ef: Option<usize>,
    /// Column, feature, and what a number in it means.
    features: Vec<(usize, String, Unit)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Unit {
    /// Events in all.
    Count,
    /// Events per so many instructions.
    Per(f64),
    /// The other way round: instructions per event.
    Inverse,
}

/// A table is read as far as this, at most.
const MOST_ROWS: usize = 1_000_000;

impl Data {
    /// Adds a table's rows, as they are.
    pub(super) fn read_one(&mut self, path: &Path, wished: &[String]) -> Result<()> {
        let text = read_table(path)?;
        for byte in text.bytes() {
            // FNV-1a.
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        match (TableHeader::read(path)?, &self.header) {
            (Some(new), None) => self.header = Some(new),
            (Some(new), Some(old)) => {
                if let Some(difference) = new.machine.identity.differs(&old.machine.identity) {
                    bail!("{difference}, and not of the machine of the tables before");
                }
            }
            (None, _) => self.notes.push(format!(
                "{} has no header: there is no {}, which 'scx_hetero collect' writes beside a table, to be \
                 copied with it. Nothing tells which machine it is of, nor how many counters that has.",
                path.display(),
                header::path_of(path).display()
            )),
        }
        let mut reader = csv::ReaderBuilder::new()
            .trim(csv::Trim::All)
            .comment(Some(b'#'))
            .from_reader(text.as_bytes());
        let names: Vec<String> = reader
            .headers()
            .map_err(parse::of_csv)?
            .iter()
            .map(shown)
            .collect();
        let layout = self.layout(&names, wished)?;
        for record in reader.records() {
            let record = record.map_err(parse::of_csv)?;
            let line = record.position().map_or(0, csv::Position::line);
            let row = self
                .row(&record, &layout, &names)
                .with_context(|| format!("line {line}"))?;
            self.rows.push(row);
            ensure!(self.rows.len() <= MOST_ROWS, "more than {MOST_ROWS} rows");
        }
        ensure!(!self.rows.is_empty(), "it has no rows");
        Ok(())
    }

    /// Finds out what columns mean, and adds the features that are new.
    fn layout(&mut self, names: &[String], wished: &[String]) -> Result<Layout> {
        let find = |ways: &[&str]| {
            names
                .iter()
                .position(|name| ways.contains(&plain(name).as_str()))
        };
        let Some(program) = find(&["program", "benchmark", "application"]) else {
            bail!(
                "it has no column 'program': which rows are of one application must be known, or a \
                 model would be tested on what it was learnt from (its columns: {})",
                names.join(", ")
            );
        };
        let mut layout = Layout {
            program,
            variant: find(&["variant"]),
            core_type: find(&["core-type"]),
            window: find(&["window", "phase"]),
            sf: find(&["sf", "speedup"]),
            ips: find(&["ips"]),
            instructions: names
                .iter()
                .position(|name| events::known(name) == Some("instructions")),
            run_ns: find(&["run-ns"]),
            joules: find(&["joules"]),
            ef: find(&["ef"]),
            features: Vec::new(),
        };
        let mut ignored = Vec::new();
        for (column, name) in names.iter().enumerate() {
            let given = wished.iter().find(|wish| plain(wish) == plain(name));
            let counted = self.counted(name).map(|name| (name, Unit::Count));
            let found = match (counted.or_else(|| feature_of(&plain(name))), given) {
                (Some(found), _) => found,
                (None, Some(_)) => (plain(name), Unit::Per(1.0)),
                (None, None) => {
                    let used = [
                        "program",
                        "benchmark",
                        "application",
                        "variant",
                        "core-type",
                        "window",
                        "phase",
                        "sf",
                        "speedup",
                        "ips",
                        "instructions",
                        "run-ns",
                        "joules",
                        "ef",
                        "runs",
                        "deviation",
                    ];
                    if !used.contains(&plain(name).as_str()) {
                        ignored.push(name.clone());
                    }
                    continue;
                }
            };
            if found.0 == "instructions"
                || layout
                    .features
                    .iter()
                    .any(|(_, other, _)| *other == found.0)
            {
                continue;
            }
            ensure!(
                found.1 != Unit::Count || layout.instructions.is_some(),
                "column '{name}' counts events, and there is no column 'instructions' to divide by; \
                 '{name}-per-ki' would be events per 1000 instructions"
            );
            if !self.features.contains(&found.0) {
                self.features.push(found.0.clone());
                for row in &mut self.rows {
                    row.features.push(f64::NAN);
                }
            }
            layout.features.push((column, found.0, found.1));
        }
        for wish in wished {
            let known = names.iter().any(|name| plain(name) == plain(wish));
            if !known {
                return Err(WrongUsage(format!("it has no column '{wish}'")).into());
            }
        }
        if !ignored.is_empty() {
            self.notes.push(format!(
                "Columns that say nothing known are ignored: {}; --column uses one as it is.",
                ignored.join(", ")
            ));
        }
        ensure!(
            !layout.features.is_empty(),
            "it has no column to learn from: name events as 'scx_hetero pmc events' does (its columns: {})",
            names.join(", ")
        );
        let ips =
            layout.ips.is_some() || (layout.instructions.is_some() && layout.run_ns.is_some());
        ensure!(
            layout.sf.is_some() || (ips && layout.core_type.is_some()),
            "nothing tells what programs gain: there must be a column 'sf', or 'core-type' and \
             'ips' (or 'instructions' and 'run-ns') with rows of each program on each core type"
        );
        Ok(layout)
    }

    /// The event that the header says this column counts, by that name: it is then the one that is counted
    /// while scheduling.
    fn counted(&self, column: &str) -> Option<String> {
        let base = ["instructions", "cycles"];
        let mut pmus = self.header.iter().flat_map(|header| &header.machine.pmus);
        (!base.contains(&column) && pmus.any(|pmu| pmu.events.contains_key(column)))
            .then(|| column.to_string())
    }

    fn row(
        &mut self,
        record: &csv::StringRecord,
        layout: &Layout,
        names: &[String],
    ) -> Result<Row> {
        let text =
            |column: Option<usize>| column.and_then(|column| record.get(column)).unwrap_or("");
        let number = |column: Option<usize>| -> Result<Option<f64>> {
            let cell = text(column);
            if cell.is_empty() {
                return Ok(None);
            }
            let name = &names[column.unwrap_or(0)];
            let value: f64 = cell
                .parse()
                .with_context(|| format!("'{cell}' in column '{name}' is not a number"))?;
            ensure!(
                value.is_finite(),
                "'{cell}' in column '{name}' is not a number; leave it empty if it is not known"
            );
            ensure!(value >= 0.0, "'{cell}' in column '{name}' is below 0");
            Ok(Some(value))
        };
        let program = shown(text(Some(layout.program)));
        ensure!(!program.is_empty(), "it names no program");
        let kind = match layout.core_type {
            Some(_) => shown(text(layout.core_type)),
            None => "big".into(),
        };
        ensure!(!kind.is_empty(), "it names no core type");
        let core_type = match self.core_types.iter().position(|name| *name == kind) {
            Some(known) => known,
            None => {
                self.core_types.push(kind.clone());
                self.core_types.len() - 1
            }
        };
        let window = match text(layout.window) {
            "" => None,
            window => Some(shown(window)),
        };
        let instructions = number(layout.instructions)?;
        let run_ns = number(layout.run_ns)?;
        let ips = match (number(layout.ips)?, instructions, run_ns) {
            (Some(ips), ..) => Some(ips),
            (None, Some(instructions), Some(ns)) if ns > 0.0 => Some(instructions / ns * 1e9),
            _ => None,
        };
        let mut features = vec![f64::NAN; self.features.len()];
        for (column, feature, unit) in &layout.features {
            let Some(value) = number(Some(*column))? else {
                continue;
            };
            let per_instruction = match (unit, instructions) {
                (Unit::Count, Some(instructions)) if instructions > 0.0 => value / instructions,
                (Unit::Count, _) => continue,
                (Unit::Per(many), _) => value / many,
                (Unit::Inverse, _) if value > 0.0 => 1.0 / value,
                (Unit::Inverse, _) => continue,
            };
            ensure!(
                per_instruction < 256.0,
                "column '{}': {per_instruction} per instruction makes no sense",
                names[*column]
            );
            let place = self.features.iter().position(|name| name == feature);
            features[place.expect("added with the layout")] = per_instruction;
        }
        Ok(Row {
            program,
            variant: shown(text(layout.variant)),
            core_type,
            window,
            features,
            ips: ips.filter(|&ips| ips > 0.0),
            joules: number(layout.joules)?
                .zip(instructions)
                .map(|(joules, instructions)| joules / instructions)
                .filter(|joules| joules.is_finite() && *joules > 0.0),
            ef: number(layout.ef)?,
            sf: number(layout.sf)?.unwrap_or(f64::NAN),
        })
    }
}

/// Names come from elsewhere.
fn shown(name: &str) -> String {
    text::plain(name).into_owned()
}

/// The feature that a column is about, and its unit.
fn feature_of(name: &str) -> Option<(String, Unit)> {
    match name {
        "ipc" => return Some(("cycles".into(), Unit::Inverse)),
        "cpi" => return Some(("cycles".into(), Unit::Per(1.0))),
        _ => (),
    }
    let (event, unit) = if let Some(event) = name.strip_suffix("-per-ki") {
        (event, Unit::Per(1e3))
    } else if let Some(event) = name.strip_suffix("-per-mi") {
        (event, Unit::Per(1e6))
    } else if let Some(event) = name.strip_suffix("-per-instruction") {
        (event, Unit::Per(1.0))
    } else {
        (name, Unit::Count)
    };
    events::known(event).map(|known| (known.to_string(), unit))
}

#[cfg(test)]
mod tests {
    use super::super::Data;
    use super::super::tests::read;

    fn error(text: &str) -> String {
        format!("{:#}", read(text).unwrap_err())
    }

    #[test]
    fn a_table_that_was_copied_without_its_header_is_told_of_it() {
        let data = read("program,cpi,sf\nx,1,1.5\ny,2,1.2\n").unwrap();
        let note = &data.notes[0];
        assert!(
            note.contains("there is no ") && note.contains(".json, which"),
            "{note}"
        );
    }

    #[test]
    fn what_the_header_calls_an_event_is_learnt_from_by_that_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.csv");
        let text =
            "program,instructions,cycles,cpu_core/r1f25/,cache-misses,sf\nx,100,50,5,1,1.5\n";
        std::fs::write(&path, text).unwrap();
        let read = || Data::read(&[&path], &[]).unwrap();
        assert_eq!(read().features, ["instructions", "llc-misses"]);
        let event = r#"{"name": "x", "general": 15, "fixed": null}"#;
        let header = format!(
            r#"{{"schema": 1, "written_by": "a test", "date": "", "window": 100, "user_only": false,
            "commands": {{}}, "machine": {{"name": "m", "identity": {{"cpu": "c", "core_types": []}},
            "microcode": null, "kernel": "7.3", "pmus": [{{"core_type": "big", "microarchitecture": "m",
            "counters": [4, 0], "events": {{"instructions": {event}, "cycles": {event},
            "cpu_core/r1f25/": {event}, "cache-misses": {event}}}}}]}}}}"#
        );
        std::fs::write(path.with_extension("json"), header).unwrap();
        let data = read();
        let names = ["instructions", "cpu_core/r1f25/", "cache-misses"];
        assert_eq!(data.features, names);
        assert!((data.rows[0].features[1] - 0.1).abs() < 1e-6);
    }

    #[test]
    fn bad_tables_are_explained() {
        assert!(error("a,b\n1,2\n").contains("'program'"));
        assert!(error("program,sf\nx,1\n").contains("no column to learn from"));
        assert!(error("program,llc-misses,sf\nx,1,1\n").contains("'instructions'"));
        assert!(error("program,cpi\nx,1\n").contains("what programs gain"));
        assert!(error("program,cpi,sf\nx,1,NaN\n").contains("line 2"));
        assert!(error("program,cpi,sf\nx,one,1\n").contains("'one' in column 'cpi'"));
        assert!(error("program,cpi,sf\nx,-1,1\n").contains("below 0"));
        assert!(error("program,cpi,sf\nx,300,1\n").contains("makes no sense"));
        assert!(error("program,cpi,sf\n").contains("no rows"));
        assert!(error("program,cpi,sf\nx,1\n").contains("line 2: 3 cells are expected, not 2"));
        assert!(error("program,core-type,cpi,ips\nx,P,1,5\n").contains("both"));
        assert!(error("program,cpi,sf\nx,1,1000\n").contains("no sense"));
    }
}
