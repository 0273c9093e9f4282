// SPDX-License-Identifier: GPL-2.0-only
//! The table of what was measured: a CSV file that is whole at any time, and its header.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use hetero_core::parse;

use super::suite::Program;
use super::windows::{ProgramRun, WindowMean, common, deviation};
use crate::files::{read_table, write_whole};
use crate::ml::header::{self, TableHeader};
use crate::pmu::sets::{CYCLES, INSTRUCTIONS};

/// The columns before those of events.
pub(crate) const COLUMNS: [&str; 9] = [
    "program",
    "variant",
    "core-type",
    "window",
    "runs",
    "deviation",
    "run-ns",
    "instructions",
    "cycles",
];

/// The column of what a window took, the last: empty where no sensor tells, and absent in tables of versions
/// that did not measure it.
pub(crate) const JOULES: &str = "joules";

/// Where an event is counted on a core type: its feature, number of the set, place in it.
pub(crate) type SetPlace = (String, usize, usize);

/// All runs of a program on a core type.
#[derive(Debug)]
pub(crate) struct Measured<'c> {
    /// The core type.
    pub core_type: &'c str,
    /// What was counted where.
    pub places: &'c [SetPlace],
    /// The runs.
    pub runs: Vec<ProgramRun>,
}

impl Measured<'_> {
    /// The mean of what the runs took, W, of those of which a sensor told.
    pub(crate) fn watts(&self) -> Option<f64> {
        let told: Vec<f64> = self.runs.iter().filter_map(|run| run.watts).collect();
        (!told.is_empty()).then(|| told.iter().sum::<f64>() / told.len() as f64)
    }
}

/// The table, as far as it has been measured.
#[derive(Debug)]
pub(crate) struct MeasuredTable {
    path: PathBuf,
    header: TableHeader,
    /// Features that have a column.
    features: Vec<String>,
    /// [`JOULES`] has one, too.
    joules: bool,
    rows: Vec<Vec<String>>,
}

impl MeasuredTable {
    /// Goes on with the table at `path` if there is one of the same kind, or begins it.
    ///
    /// # Errors
    /// There is one that this would spoil, or it cannot be written.
    pub(crate) fn open(
        path: &Path,
        mut header: TableHeader,
        features: Vec<String>,
    ) -> Result<Self> {
        let (mut rows, mut joules) = (Vec::new(), true);
        let advice = || {
            let path = path.display();
            format!("{path} is not gone on with; choose another file with --output")
        };
        // What lies there and is no header is somebody's, also where there is no table yet.
        let before = TableHeader::read(path).with_context(advice)?;
        if path.exists() {
            let before = before
                .with_context(|| format!("it has no header, {}", header::path_of(path).display()))
                .with_context(advice)?;
            same(&before, &header).with_context(advice)?;
            (rows, joules) = read(path, &features).with_context(advice)?;
            header = before;
        }
        let table = Self {
            path: path.to_path_buf(),
            header,
            features,
            joules,
            rows,
        };
        table.write()?;
        Ok(table)
    }

    /// The labels of the programs that are in it.
    pub(crate) fn labels(&self) -> BTreeSet<(String, String)> {
        let label = |row: &Vec<String>| (row[0].clone(), row[1].clone());
        self.rows.iter().map(label).collect()
    }

    /// Adds a program that was measured on every core type, by name, and writes the table.
    pub(crate) fn add(&mut self, program: &Program, measured: &[Measured]) -> Result<()> {
        let command = program.command.clone();
        self.header.commands.insert(program.label(), command);
        for of in measured {
            let windows = (program.skip..common(&of.runs)).map(Some);
            for window in windows.chain([None]) {
                self.rows.push(self.row(program, of, window));
            }
        }
        self.write()
    }

    fn row(&self, program: &Program, of: &Measured, window: Option<usize>) -> Vec<String> {
        let (places, runs) = (of.places, &of.runs);
        let mean = WindowMean::of(runs, window);
        let mut row = vec![
            program.name.clone(),
            program.variant.clone(),
            of.core_type.to_string(),
            window.map(|number| number.to_string()).unwrap_or_default(),
            runs.len().to_string(),
            format!("{:.5}", deviation(runs)),
            format!("{:.0}", mean.run_ns()),
            format!("{:.0}", mean.of_all(INSTRUCTIONS)),
            format!("{:.0}", mean.of_all(CYCLES)),
        ];
        row.extend(self.features.iter().map(|feature| {
            let place = places.iter().find(|(name, ..)| name == feature);
            let count = place.and_then(|&(_, set, counter)| mean.of_set(set, counter));
            count.map(|count| format!("{count:.1}")).unwrap_or_default()
        }));
        if self.joules {
            let joules = of.watts().map(|watts| watts * mean.run_ns() / 1e9);
            row.push(joules.map(|j| format!("{j:.9}")).unwrap_or_default());
        }
        row
    }

    fn write(&self) -> Result<()> {
        let json = serde_json::to_string_pretty(&self.header)? + "\n";
        write_whole(&header::path_of(&self.path), json.as_bytes())?;
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(
            COLUMNS
                .into_iter()
                .chain(self.features.iter().map(String::as_str))
                .chain(self.joules.then_some(JOULES)),
        )?;
        for row in &self.rows {
            writer.write_record(row)?;
        }
        write_whole(&self.path, &writer.into_inner()?)
    }
}

/// Whether measurements of `now` may stand in a table that was begun with `before`.
fn same(before: &TableHeader, now: &TableHeader) -> Result<()> {
    if let Some(difference) = before.machine.identity.differs(&now.machine.identity) {
        anyhow::bail!("{difference}");
    }
    ensure!(
        before.machine.pmus == now.machine.pmus,
        "it has other events"
    );
    ensure!(
        before.window == now.window,
        "its windows have {} instructions, not {}",
        before.window,
        now.window
    );
    ensure!(
        before.user_only == now.user_only,
        "one has user mode only, the other not"
    );
    Ok(())
}

/// Its rows, and whether it has a column of joules.
fn read(path: &Path, features: &[String]) -> Result<(Vec<Vec<String>>, bool)> {
    let text = read_table(path)?;
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let expected = COLUMNS
        .into_iter()
        .chain(features.iter().map(String::as_str));
    let columns = reader.headers().map_err(parse::of_csv)?;
    let joules = columns.iter().next_back() == Some(JOULES);
    let expected = expected.chain(joules.then_some(JOULES));
    ensure!(columns.iter().eq(expected), "it has other columns");
    let rows = reader.records().map(|record| {
        let record = record.map_err(parse::of_csv)?;
        Ok(record.iter().map(String::from).collect())
    });
    Ok((rows.collect::<Result<_>>()?, joules))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::windows::Window;
    use super::*;
    use crate::ml::data::Data;
    use crate::ml::header::{MeasuredMachine, SCHEMA};
    use crate::topology::Identity;

    fn header(cpu: &str, window: u64) -> TableHeader {
        TableHeader {
            schema: SCHEMA,
            written_by: "a test".into(),
            date: "2026-11-22T00:00:00Z".into(),
            machine: MeasuredMachine {
                name: cpu.into(),
                identity: Identity {
                    cpu: cpu.into(),
                    core_types: Vec::new(),
                },
                microcode: None,
                kernel: "6.18".into(),
                pmus: Vec::new(),
            },
            window,
            user_only: false,
            commands: Default::default(),
        }
    }

    fn program(name: &str) -> Program {
        Program {
            name: name.into(),
            variant: String::new(),
            command: vec![name.into()],
            skip: 1,
        }
    }

    /// Three windows of so many ns each, with one event.
    fn measured<'c>(core_type: &'c str, run_ns: f64, places: &'c [SetPlace]) -> Measured<'c> {
        let window = Window {
            run_ns,
            counts: vec![1000.0, 2000.0, 30.0],
        };
        Measured {
            core_type,
            places,
            runs: vec![
                ProgramRun {
                    set: 0,
                    windows: vec![window; 3],
                    watts: Some(if core_type == "P" { 10.0 } else { 2.0 }),
                };
                3
            ],
        }
    }

    #[test]
    fn a_table_is_gone_on_with_and_can_be_learnt_from() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.csv");
        let features = vec!["loads".to_string()];
        let places = [("loads".to_string(), 0, 2)];
        for name in ["one", "two"] {
            let mut table =
                MeasuredTable::open(&path, header("this", 1000), features.clone()).unwrap();
            let both = [
                measured("P", 500.0, &places),
                measured("E", 1000.0, &places),
            ];
            table.add(&program(name), &both).unwrap();
        }
        let table = MeasuredTable::open(&path, header("this", 1000), features).unwrap();
        assert_eq!(table.labels().len(), 2);
        assert_eq!(table.header.commands.len(), 2);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        let data = Data::read(&[&path], &[]).unwrap();
        // Two programs, two core types, three windows less the one that is skipped.
        assert_eq!(data.rows.len(), 8);
        assert!(data.rows.iter().all(|row| row.sf == 2.0));
        // SF² times the ratio of watts.
        let ef = |row: &crate::ml::data::Row| (row.ef.unwrap() - 0.8).abs() < 1e-3;
        assert!(data.rows.iter().all(ef), "{:?}", data.rows[0].ef);
        assert_eq!(data.features, ["instructions", "loads"]);
        assert_eq!(data.rows[0].features[0], 0.5);
    }

    #[test]
    fn runs_of_which_no_sensor_told_take_no_part_in_the_watts() {
        let mut some = measured("P", 500.0, &[]);
        some.runs[0].watts = None;
        some.runs[1].watts = Some(4.0);
        assert_eq!(some.watts(), Some(7.0));
        some.runs.iter_mut().for_each(|run| run.watts = None);
        assert_eq!(some.watts(), None);
    }

    #[test]
    fn a_table_of_something_else_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.csv");
        let open = |cpu: &str, window, features: &[&str]| {
            let features = features.iter().map(|name| name.to_string()).collect();
            let opened = MeasuredTable::open(&path, header(cpu, window), features);
            opened.map(drop).map_err(|error| format!("{error:#}"))
        };
        fs::write(&path, "what is mine").unwrap();
        assert!(
            open("this", 1000, &["loads"])
                .unwrap_err()
                .contains("no header")
        );
        fs::remove_file(&path).unwrap();
        open("this", 1000, &["loads"]).unwrap();
        let before = fs::read_to_string(&path).unwrap();
        assert!(
            open("other", 1000, &["loads"])
                .unwrap_err()
                .contains("another CPU")
        );
        assert!(
            open("this", 2000, &["loads"])
                .unwrap_err()
                .contains("1000 instructions")
        );
        assert!(
            open("this", 1000, &["stores"])
                .unwrap_err()
                .contains("columns")
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), before);
    }
}
