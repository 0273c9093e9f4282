// SPDX-License-Identifier: GPL-2.0-only
//! Tables of measurements: reading them, and what each thread gained from the fastest core type.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::events;
use super::fixed;
use super::header::Header;

/// A program, or a window of it, on a core type.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The application.
    pub program: String,
    /// A way to run it.
    pub variant: String,
    /// Index into [`Data::core_types`].
    pub core_type: usize,
    /// Number or name of the window; `None` is the whole run.
    pub window: Option<String>,
    /// A value for each of [`Data::features`], per instruction; NaN where there is none.
    pub features: Vec<f64>,
    /// Instructions per second, if known.
    ips: Option<f64>,
    /// SF: how much faster the fastest core type is than the slowest.
    pub sf: f64,
}

/// What there is to learn from.
#[derive(Clone, Debug, Default)]
pub struct Data {
    /// Names of features.
    pub features: Vec<String>,
    /// Core types, fastest first.
    pub core_types: Vec<String>,
    /// The measurements, all with an SF.
    pub rows: Vec<Row>,
    /// The machine, where the tables have headers.
    pub header: Option<Header>,
    /// What was missing or left out and what was made of it, a sentence each.
    pub notes: Vec<String>,
    /// Of all tables' text: tells data apart.
    pub digest: u64,
}

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
    /// Reads tables, all of one machine. `wished` names further columns to learn from, as they are.
    ///
    /// # Errors
    /// Which table, line and column makes no sense, and why.
    pub fn read(paths: &[impl AsRef<Path>], wished: &[String]) -> Result<Self> {
        let mut data = Self {
            digest: 0xcbf2_9ce4_8422_2325,
            ..Self::default()
        };
        for path in paths {
            let path = path.as_ref();
            data.read_one(path, wished)
                .with_context(|| format!("cannot learn from {}", path.display()))?;
        }
        data.order_types();
        data.prefer_windows();
        data.speedups()?;
        data.drop_incomplete();
        Ok(data)
    }

    fn read_one(&mut self, path: &Path, wished: &[String]) -> Result<()> {
        let text = std::fs::read_to_string(path)?;
        for byte in text.bytes() {
            // FNV-1a.
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        match (Header::read(path)?, &self.header) {
            (Some(new), None) => self.header = Some(new),
            (Some(new), Some(old)) => {
                if let Some(difference) = new.machine.identity.differs(&old.machine.identity) {
                    bail!("{difference}, and not of the machine of the tables before");
                }
            }
            (None, _) => self.notes.push(format!(
                "{} has no header: nothing tells which machine it is of, nor how many counters that has.",
                path.display()
            )),
        }
        let mut reader = csv::ReaderBuilder::new()
            .trim(csv::Trim::All)
            .comment(Some(b'#'))
            .from_reader(text.as_bytes());
        let names: Vec<String> = reader.headers()?.iter().map(String::from).collect();
        let layout = self.layout(&names, wished)?;
        for record in reader.records() {
            let record = record.context("a line that is damaged")?;
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
        let plain = |name: &str| name.to_ascii_lowercase().replace('_', "-");
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
            instructions: find(&["instructions"]),
            run_ns: find(&["run-ns"]),
            features: Vec::new(),
        };
        let mut ignored = Vec::new();
        for (column, name) in names.iter().enumerate() {
            let given = wished.iter().find(|wish| plain(wish) == plain(name));
            let found = match (feature_of(&plain(name)), given) {
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
            ensure!(known, "it has no column '{wish}'");
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
        let program = text(Some(layout.program)).to_string();
        ensure!(!program.is_empty(), "it names no program");
        let kind = match layout.core_type {
            Some(_) => text(layout.core_type),
            None => "big",
        };
        ensure!(!kind.is_empty(), "it names no core type");
        let core_type = match self.core_types.iter().position(|name| name == kind) {
            Some(known) => known,
            None => {
                self.core_types.push(kind.to_string());
                self.core_types.len() - 1
            }
        };
        let window = match text(layout.window) {
            "" => None,
            window => Some(window.to_string()),
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
            let exact = fixed::quantised(per_instruction).with_context(|| {
                let name = &names[*column];
                format!("column '{name}': {per_instruction} per instruction is more than 255")
            })?;
            let place = self.features.iter().position(|name| name == feature);
            features[place.expect("added with the layout")] = fixed::number(exact);
        }
        Ok(Row {
            program,
            variant: text(layout.variant).to_string(),
            core_type,
            window,
            features,
            ips: ips.filter(|&ips| ips > 0.0),
            sf: number(layout.sf)?.unwrap_or(f64::NAN),
        })
    }

    /// Sorts core types by the header, else by their mean speed, else as they came.
    fn order_types(&mut self) {
        let by_header = |name: &String| {
            let types = &self.header.as_ref()?.machine.identity.core_types;
            types.iter().position(|kind| kind.name == *name)
        };
        let speed = |core_type: usize| {
            let of = self.rows.iter().filter(|row| row.core_type == core_type);
            let logs: Vec<f64> = of.filter_map(|row| Some(row.ips?.ln())).collect();
            logs.iter().sum::<f64>() / logs.len().max(1) as f64
        };
        let mut order: Vec<usize> = (0..self.core_types.len()).collect();
        if self.core_types.iter().all(|name| by_header(name).is_some()) {
            order.sort_by_key(|&n| by_header(&self.core_types[n]));
        } else if self.core_types.len() > 1 {
            let speeds: Vec<f64> = (0..self.core_types.len()).map(speed).collect();
            order.sort_by(|&a, &b| speeds[b].total_cmp(&speeds[a]));
            let names: Vec<&str> = order.iter().map(|&n| self.core_types[n].as_str()).collect();
            self.notes.push(format!(
                "Core types by their mean speed: {}.",
                names.join(", ")
            ));
        }
        let place: Vec<usize> = (0..order.len())
            .map(|old| order.iter().position(|&n| n == old).unwrap_or(old))
            .collect();
        self.core_types = order.iter().map(|&n| self.core_types[n].clone()).collect();
        for row in &mut self.rows {
            row.core_type = place[row.core_type];
        }
    }

    /// Whole runs are left out where there are windows of them.
    fn prefer_windows(&mut self) {
        let key = |row: &Row| (row.program.clone(), row.variant.clone());
        let windowed: BTreeSet<_> = self
            .rows
            .iter()
            .filter(|row| row.window.is_some())
            .map(key)
            .collect();
        self.rows
            .retain(|row| row.window.is_some() || !windowed.contains(&key(row)));
    }

    /// Works out SF where no column says: the same window's speed on the fastest core type over
    /// that on the slowest (PMCTrack 2017, section 4.1.2).
    fn speedups(&mut self) -> Result<()> {
        let slowest = self.core_types.len() - 1;
        let key = |row: &Row| (row.program.clone(), row.variant.clone(), row.window.clone());
        let mut speeds: BTreeMap<_, [Option<f64>; 2]> = BTreeMap::new();
        for row in &self.rows {
            let pair = speeds.entry(key(row)).or_default();
            for (n, core_type) in [0, slowest].into_iter().enumerate() {
                if row.core_type == core_type {
                    pair[n] = row.ips;
                }
            }
        }
        for row in &mut self.rows {
            if row.sf.is_nan()
                && slowest > 0
                && let Some(&[Some(fast), Some(slow)]) = speeds.get(&key(row))
            {
                row.sf = fast / slow;
            }
        }
        let before = self.rows.len();
        self.rows.retain(|row| row.sf.is_finite() && row.sf > 0.0);
        let without = before - self.rows.len();
        if self.rows.is_empty() {
            bail!(
                "no program was measured on both the fastest and the slowest core type ({}), and no \
                 column 'sf' says what it gains",
                self.core_types.join(", ")
            );
        }
        if without > 0 {
            self.notes.push(format!(
                "{without} of {before} rows are left out: the same window was not measured on both core types."
            ));
        }
        let most = self.rows.iter().map(|row| row.sf).fold(0.0, f64::max);
        ensure!(most < 100.0, "an SF of {most} makes no sense");
        Ok(())
    }

    /// Leaves out rows that lack what nearly all others of their core type have; features that
    /// more of them lack are left out when models are made, and said then.
    fn drop_incomplete(&mut self) {
        let mut lacking = BTreeSet::new();
        for core_type in 0..self.core_types.len() {
            let of_type = |row: &Row| row.core_type == core_type;
            let number = self.rows.iter().filter(|row| of_type(row)).count();
            for feature in 0..self.features.len() {
                let lacks = |row: &&Row| of_type(row) && row.features[feature].is_nan();
                let without = self.rows.iter().filter(lacks).count();
                if without > 0 && without * 20 <= number {
                    lacking.insert((core_type, feature));
                }
            }
        }
        let before = self.rows.len();
        self.rows.retain(|row| {
            let mut all = (0..row.features.len()).filter(|&f| row.features[f].is_nan());
            !all.any(|feature| lacking.contains(&(row.core_type, feature)))
        });
        let without = before - self.rows.len();
        if without > 0 {
            self.notes.push(format!(
                "{without} of {before} rows are left out, for they lack what at least 95 % of the others have."
            ));
        }
    }

    /// The programs, sorted.
    pub fn programs(&self) -> Vec<&str> {
        let names: BTreeSet<&str> = self.rows.iter().map(|row| row.program.as_str()).collect();
        names.into_iter().collect()
    }

    /// Indices of the features that all rows of `core_types` have, and that are not the same
    /// everywhere.
    pub fn usable(&self, core_types: &[usize]) -> Vec<usize> {
        let rows: Vec<&Row> = self
            .rows
            .iter()
            .filter(|row| core_types.contains(&row.core_type))
            .collect();
        let varies = |&feature: &usize| {
            let mut values = rows.iter().map(|row| row.features[feature]);
            let first = values.clone().next().unwrap_or(f64::NAN);
            rows.iter().all(|row| !row.features[feature].is_nan())
                && values.any(|value| value != first)
        };
        (0..self.features.len()).filter(varies).collect()
    }
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
    use super::*;

    fn read(text: &str) -> Result<Data> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.csv");
        std::fs::write(&path, text).unwrap();
        Data::read(&[&path], &[])
    }

    fn error(text: &str) -> String {
        format!("{:#}", read(text).unwrap_err())
    }

    #[test]
    fn windows_of_equal_work_give_the_speedup() {
        let data = read(
            "program,core_type,window,run_ns,instructions,cycles,llc_misses\n\
             a,E,0,2000,1000,4000,10\n\
             a,E,,9000,9000,1,1\n\
             a,P,0,1000,1000,2000,5\n\
             a,P,1,1000,1000,2000,5\n",
        )
        .unwrap();
        assert_eq!(data.core_types, ["P", "E"]);
        assert_eq!(data.features, ["cycles", "llc-misses"]);
        // The run as a whole and the window without a partner are gone.
        assert_eq!(data.rows.len(), 2);
        assert!(data.rows.iter().all(|row| (row.sf - 2.0).abs() < 1e-12));
        assert_eq!(data.rows[0].features[0], 4.0);
        assert!((data.rows[1].features[1] - 0.005).abs() < 1e-7);
        assert!(
            data.notes.iter().any(|note| note.contains("1 of 3 rows")),
            "{:?}",
            data.notes
        );
    }

    #[test]
    fn rates_and_a_given_speedup_will_do() {
        let data =
            read("benchmark,ipc,cache-misses-per-ki,weather,sf\nx,0.5,3,1,1.5\ny,2,1,2,2.5\n")
                .unwrap();
        assert_eq!(data.features, ["cycles", "llc-misses"]);
        assert_eq!(data.rows[0].features[0], 2.0);
        assert_eq!(data.rows[1].sf, 2.5);
        assert!(data.notes.iter().any(|note| note.contains("weather")));
        assert_eq!(data.programs(), ["x", "y"]);
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
        assert!(error("program,cpi,sf\nx,300,1\n").contains("more than 255"));
        assert!(error("program,cpi,sf\n").contains("no rows"));
        assert!(error("program,cpi,sf\nx,1\n").contains("damaged"));
        assert!(error("program,core-type,cpi,ips\nx,P,1,5\n").contains("both"));
        assert!(error("program,cpi,sf\nx,1,1000\n").contains("no sense"));
    }

    #[test]
    fn what_is_missing_now_and_then_costs_a_row_and_else_the_feature() {
        let mut text = "program,cpi,l1-misses-per-ki,loads-per-ki,sf\n".to_string();
        for n in 0..40 {
            let loads = if n % 2 == 0 { "" } else { "9" };
            let misses = if n == 7 { "" } else { "3" };
            text += &format!("p{n},{},{misses},{loads},1.5\n", 1 + n);
        }
        let data = read(&text).unwrap();
        assert_eq!(data.rows.len(), 39);
        // Misses are the same everywhere, loads are missing in half of the rows.
        assert_eq!(data.usable(&[0]), [0]);
    }
}
