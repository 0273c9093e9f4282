// SPDX-License-Identifier: GPL-2.0-or-later
//! Tables of measurements: reading them, and what each thread gained from the fastest core type.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::fixed;
use super::header::TableHeader;
use crate::output::WrongUsage;

mod read;

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
    /// A value for each of [`Data::features`]; NaN where there is none.
    pub features: Vec<f64>,
    /// Instructions per second, if known.
    ips: Option<f64>,
    /// Energy of an instruction, J, if known.
    joules: Option<f64>,
    /// EF: the slowest core type's energy-delay product over the fastest's, if known.
    pub ef: Option<f64>,
    /// SF: how much faster the fastest core type is than the slowest.
    pub sf: f64,
}

impl Row {
    /// A measurement whose SF is known.
    pub fn labelled(program: String, core_type: usize, features: Vec<f64>, sf: f64) -> Self {
        Self {
            program,
            variant: String::new(),
            core_type,
            window: None,
            features,
            ips: None,
            joules: None,
            ef: None,
            sf,
        }
    }

    /// Instructions per second, if known.
    pub fn ips(&self) -> Option<f64> {
        self.ips
    }
}

/// What there is to learn from.
#[derive(Clone, Debug, Default)]
pub struct Data {
    /// Names of features.
    pub features: Vec<String>,
    /// What they are counted per.
    pub per: Per,
    /// Core types, fastest first.
    pub core_types: Vec<String>,
    /// The measurements, all with an SF.
    pub rows: Vec<Row>,
    /// The machine, where the tables have headers.
    pub header: Option<TableHeader>,
    /// What was missing or left out and what was made of it, a sentence each.
    pub notes: Vec<String>,
    /// Of all tables' text: tells data apart.
    pub digest: u64,
}

/// What events are divided by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Per {
    /// A cycle; instructions per cycle are a feature then. SF is a ratio of times, and in a stack
    /// of cycles, so many for each event, it is a sum of such rates.
    #[default]
    Cycle,
    /// An instruction, where cycles are not known (topology-aware-ml-2024, section 4.1).
    Instruction,
}

/// The feature that is instructions per cycle.
pub const INSTRUCTIONS: &str = "instructions";

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
        data.efficiencies();
        data.drop_incomplete();
        data.normalise();
        Ok(data)
    }

    /// Takes out the rows of these programs, and says what they were. One may be named twice.
    ///
    /// # Errors
    /// There are no rows of one of them.
    pub fn leave_out(&mut self, programs: &[String]) -> Result<Vec<Row>> {
        let mut all = Vec::new();
        for program in programs.iter().collect::<BTreeSet<_>>() {
            let before = all.len();
            all.extend(self.rows.extract_if(.., |row| row.program == *program));
            if all.len() == before {
                let what = format!("cannot leave out '{program}': the tables have no such program");
                return Err(WrongUsage(what).into());
            }
        }
        Ok(all)
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

    /// Works out EF where no column says: of the same window, energy × time on the slowest core type over
    /// that on the fastest (PMCTrack 2017, Eq. 3 and 5).
    fn efficiencies(&mut self) {
        let slowest = self.core_types.len() - 1;
        let key = |row: &Row| (row.program.clone(), row.variant.clone(), row.window.clone());
        let mut products: BTreeMap<_, [Option<f64>; 2]> = BTreeMap::new();
        for row in &self.rows {
            let pair = products.entry(key(row)).or_default();
            for (n, core_type) in [0, slowest].into_iter().enumerate() {
                if row.core_type == core_type {
                    pair[n] = row.joules.zip(row.ips).map(|(joules, ips)| joules / ips);
                }
            }
        }
        for row in &mut self.rows {
            if row.ef.is_none()
                && slowest > 0
                && let Some(&[Some(fast), Some(slow)]) = products.get(&key(row))
            {
                row.ef = Some(slow / fast);
            }
            let sound = |ef: &f64| ef.is_finite() && (0.001..1000.0).contains(ef);
            row.ef = row.ef.filter(sound);
        }
    }

    /// The same with EF in place of SF, of the rows whose EF is known, so that it is learnt as that is; `None`
    /// where there are none.
    pub fn efficiency(&self) -> Option<Self> {
        let known = (0..self.rows.len()).filter(|&row| self.rows[row].ef.is_some());
        let mut data = self.part(&known.collect::<Vec<_>>());
        for row in &mut data.rows {
            row.sf = row.ef.unwrap_or(row.sf);
        }
        (!data.rows.is_empty()).then_some(data)
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

    /// Makes of numbers per instruction what features are, with the bits that they have in BPF.
    fn normalise(&mut self) {
        let cycles = self.features.iter().position(|name| name == "cycles");
        let known = cycles.filter(|&cycles| self.rows.iter().all(|row| row.features[cycles] > 0.0));
        self.per = match known {
            Some(_) => Per::Cycle,
            None => Per::Instruction,
        };
        for row in &mut self.rows {
            let per_instruction = known.map_or(1.0, |cycles| row.features[cycles]);
            for (feature, value) in row.features.iter_mut().enumerate() {
                let number = match known == Some(feature) {
                    true => 1.0 / per_instruction,
                    false => *value / per_instruction,
                };
                *value = fixed::quantised(number).map_or(f64::NAN, fixed::number);
            }
        }
        match known {
            Some(cycles) => self.features[cycles] = INSTRUCTIONS.to_string(),
            None => self.notes.push(
                "Cycles (or IPC) are not known of all rows: features are per instruction, which \
                 tells less of SF than per cycle."
                    .to_string(),
            ),
        }
    }

    /// The same with these rows only.
    pub fn part(&self, rows: &[usize]) -> Self {
        let rows = rows.iter().map(|&row| self.rows[row].clone());
        Self {
            features: self.features.clone(),
            core_types: self.core_types.clone(),
            rows: rows.collect(),
            header: self.header.clone(),
            notes: Vec::new(),
            ..*self
        }
    }

    /// The programs, sorted.
    pub fn programs(&self) -> Vec<&str> {
        let names: BTreeSet<&str> = self.rows.iter().map(|row| row.program.as_str()).collect();
        names.into_iter().collect()
    }

    /// The number of each row's program among these.
    pub fn program_numbers(&self) -> Vec<usize> {
        let programs = self.programs();
        let number = |row: &Row| programs.partition_point(|&name| name < row.program.as_str());
        self.rows.iter().map(number).collect()
    }

    /// Indices of the rows of a core type.
    pub fn rows_of(&self, core_type: usize) -> Vec<usize> {
        let rows = self.rows.iter().enumerate();
        rows.filter(|(_, row)| row.core_type == core_type)
            .map(|(index, _)| index)
            .collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ef_is_the_ratio_of_energy_times_time_of_the_same_window() {
        let text = "program,core-type,window,instructions,cycles,run-ns,joules\n\
            a,P,1,1000,500,100,4\na,E,1,1000,800,300,1\nb,P,1,1000,500,100,\nb,E,1,1000,800,200,1\n";
        let data = read(text).unwrap();
        let efs: Vec<_> = data.rows.iter().map(|row| (row.sf, row.ef)).collect();
        for (sf, ef) in &efs[..2] {
            assert!(*sf == 3.0 && (ef.unwrap() - 0.75).abs() < 1e-12, "{efs:?}");
        }
        assert_eq!(efs[2].1, None);
        let efficiency = data.efficiency().unwrap();
        assert_eq!(efficiency.rows.len(), 2);
        let near = |row: &Row| (row.sf - 0.75).abs() < 1e-12;
        assert!(efficiency.rows.iter().all(near));
        assert!(
            read("program,sf,ipc\na,1.5,1")
                .unwrap()
                .efficiency()
                .is_none()
        );
        let given = read("program,sf,ef,ipc\na,1.5,0.5,1").unwrap();
        assert_eq!(given.rows[0].ef, Some(0.5));
    }

    #[test]
    fn programs_can_be_left_out_if_they_are_there() {
        let mut data = read("program,sf,ipc\na,1.0,1\nb,1.5,2\na,1.1,3").unwrap();
        data.leave_out(&["a".into(), "a".into()]).unwrap();
        assert_eq!(data.programs(), ["b"]);
        let error = data.leave_out(&["a".into()]).unwrap_err();
        assert!(error.to_string().contains("'a'"));
    }

    /// A table of this text.
    pub(super) fn read(text: &str) -> Result<Data> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.csv");
        std::fs::write(&path, text).unwrap();
        Data::read(&[&path], &[])
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
        assert_eq!(data.features, ["instructions", "llc-misses"]);
        assert_eq!(data.per, Per::Cycle);
        // The run as a whole and the window without a partner are gone.
        assert_eq!(data.rows.len(), 2);
        assert!(data.rows.iter().all(|row| (row.sf - 2.0).abs() < 1e-12));
        assert_eq!(data.rows[0].features[0], 0.25);
        assert!((data.rows[1].features[1] - 0.0025).abs() < 1e-7);
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
        assert_eq!(data.features, ["instructions", "llc-misses"]);
        assert_eq!(data.rows[0].features[0], 0.5);
        assert!((data.rows[0].features[1] - 0.0015).abs() < 1e-7);
        assert_eq!(data.rows[1].sf, 2.5);
        assert!(data.notes.iter().any(|note| note.contains("weather")));
        assert_eq!(data.programs(), ["x", "y"]);
    }

    #[test]
    fn without_cycles_rates_are_per_instruction() {
        let data = read("program,llc-misses-per-ki,sf\nx,3,1.5\ny,1,2.5\n").unwrap();
        assert_eq!(data.per, Per::Instruction);
        assert!((data.rows[0].features[0] - 0.003).abs() < 1e-7);
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
        // Misses per cycle vary with the cycles; loads are missing in half of the rows.
        assert_eq!(data.usable(&[0]), [0, 1]);
    }
}
