// SPDX-License-Identifier: GPL-2.0-or-later
//! The topology as one line, as a table, and as JSON.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde_json::{Value, json};

use super::{Source, Topology, cpulist};
use crate::text::{WIDTH, wrap};

impl Topology {
    /// The topology in one line: "4P (8 threads) + 8E in 2 clusters, from the hybrid PMUs".
    pub fn summary(&self) -> String {
        let types: Vec<String> = (0..self.types.len())
            .map(|i| self.type_summary(i))
            .collect();
        match self.source {
            Source::AllSame => format!("{}, one core type: {}", types[0], self.source),
            source => format!("{}, from {source}", types.join(" + ")),
        }
    }

    fn type_summary(&self, index: usize) -> String {
        let core_type = &self.types[index];
        let (threads, cores) = (core_type.cpus.len(), self.nr_cores(&core_type.cpus));
        let mut text = match core_type.name.as_str() {
            _ if self.types.len() == 1 && cores == 1 => "1 core".to_string(),
            _ if self.types.len() == 1 => format!("{cores} cores"),
            name if name.len() <= 2 => format!("{cores}{name}"),
            name => format!("{cores} {name}"),
        };
        if threads > cores {
            text += &format!(" ({threads} threads)");
        }
        let clusters = self.domains.iter().filter(|d| d.core_type == index).count();
        if clusters > 1 {
            text += &format!(" in {clusters} clusters");
        }
        text
    }

    /// The topology as text of at most 80 columns: the summary, a table with a row per cluster,
    /// notes, and last where it comes from and which sources see it otherwise.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(WIDTH as u16)
            .set_header(["TYPE", "CPUS", "CORES", "LLC", "CAPACITY", "MAX GHZ", "PMU"]);
        for (i, domain) in self.domains.iter().enumerate() {
            let core_type = &self.types[domain.core_type];
            let first = i == 0 || self.domains[i - 1].core_type != domain.core_type;
            let once = |text: String| if first { text } else { String::new() };
            let llc = self.cpu(domain.cpus[0]).map_or(0, |cpu| cpu.llc);
            table.add_row([
                once(core_type.name.clone()),
                cpulist::format(&domain.cpus),
                self.nr_cores(&domain.cpus).to_string(),
                llc.to_string(),
                once(core_type.capacity.to_string()),
                self.max_ghz(&domain.cpus),
                once(core_type.pmu.clone().unwrap_or("-".into())),
            ]);
        }
        for column in 2..=5 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }

        let mut text = format!("{}\n\n{}", wrap(&self.summary()), table.trim_fmt());
        let notes = self.notes.iter().map(|note| format!("Note: {note}."));
        let disagreements = self.disagreements.iter();
        let disagreements = disagreements.map(|d| format!("Sources disagree: {d}."));
        let below = notes.chain(self.source_line()).chain(disagreements);
        let below: Vec<String> = below.map(|line| wrap(&line)).collect();
        if !below.is_empty() {
            text += "\n\n";
            text += &below.join("\n");
        }
        text
    }

    /// `None` if there was none: the summary says that.
    fn source_line(&self) -> Option<String> {
        let capacities = match (self.source, self.capacity_source) {
            (Source::AllSame, _) => return None,
            (_, Some(source)) => format!("capacities from {source}"),
            (_, None) => "capacities assumed".to_string(),
        };
        Some(format!("Core types from {}; {capacities}.", self.source))
    }

    /// "4.70", or "4.50-4.80" where these CPUs differ.
    fn max_ghz(&self, cpus: &[u32]) -> String {
        let khz = cpus.iter().filter_map(|&id| self.cpu(id)?.max_freq_khz);
        let ghz = |khz: u32| format!("{:.2}", f64::from(khz) / 1e6);
        match (khz.clone().min(), khz.max()) {
            (Some(low), Some(high)) if ghz(low) != ghz(high) => {
                format!("{}-{}", ghz(low), ghz(high))
            }
            (Some(low), _) => ghz(low),
            _ => "-".to_string(),
        }
    }

    /// The topology as JSON: an object with the fields of [`Topology`] under their own names, the
    /// nested types likewise, and `schema`, which is 1 and grows when a field changes its meaning
    /// or goes; new fields may come at any time.
    ///
    /// `source` and `capacity_source` are one of `override`, `pmu`, `pmu-and-l3`, `capacity`,
    /// `cppc`, `max-freq`, `calibrated`, `all-same`; what is not known is null. Indices (`core_type`, `domain`)
    /// count from 0 into `types` and `domains`; frequencies are in kHz.
    pub fn to_json(&self) -> Value {
        let mut value = serde_json::to_value(self).expect("plain values with string keys");
        value["schema"] = json!(1);
        value
    }
}
