// SPDX-License-Identifier: GPL-2.0-only
//! What is printed: lines of a table, of CSV, or of JSON, each as soon as it is known. Touches no
//! kernel and no clock.

use std::io::{self, Write};

use serde_json::{Value as Json, json};

use super::columns::{Align, Column, LineWriter, amount, quantity};
use super::totals::{OutputRow, Value};
use crate::pmu::virtual_counters::{Description, VirtualReading};
use crate::pmu::{Event, Meaning};

/// How it is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// For people
    #[default]
    Table,
    /// Comma-separated values with a header
    Csv,
    /// An object in each line
    Json,
}

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineKind {
    /// The time since the line before.
    Interval,
    /// One sample of a thread.
    Sample,
    /// A thread, from begin to end.
    Thread,
    /// All of the program, from begin to end.
    Total,
}

impl LineKind {
    fn name(self) -> &'static str {
        match self {
            Self::Interval => "interval",
            Self::Sample => "sample",
            Self::Thread => "thread",
            Self::Total => "total",
        }
    }
}

/// Which thread, and when.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Label {
    /// Seconds since counting began.
    pub time: Option<f64>,
    /// The thread.
    pub tid: Option<u32>,
    /// Its name.
    pub name: Option<String>,
    /// The CPU.
    pub cpu: Option<u32>,
}

/// Writes lines.
pub(super) struct PmcReport {
    out: Box<dyn Write>,
    format: Format,
    events: Vec<Event>,
    scaled: Vec<bool>,
    /// Rows have joules.
    joules: bool,
    lines: Option<(LineKind, bool, LineWriter)>,
    headed: bool,
}

/// Bytes that a miss of the last-level cache moves.
const LINE_BYTES: f64 = 64.0;

impl PmcReport {
    /// Writes to `out`. `scaled`: which of the events take turns with others.
    pub(super) fn new(
        out: Box<dyn Write>,
        format: Format,
        events: &[Event],
        scaled: &[bool],
    ) -> Self {
        Self {
            out,
            format,
            events: events.to_vec(),
            scaled: scaled.to_vec(),
            joules: false,
            lines: None,
            headed: false,
        }
    }

    /// Rows have joules, from now on.
    pub(super) fn with_joules(&mut self) {
        self.joules = true;
    }

    /// A row. `all_ns`: the run time that its own is a share of.
    pub(super) fn row(
        &mut self,
        kind: LineKind,
        label: &Label,
        row: &OutputRow,
        all_ns: f64,
    ) -> io::Result<()> {
        let share = if all_ns > 0.0 {
            row.run_ns / all_ns
        } else {
            0.0
        };
        match self.format {
            Format::Table => self.table_row(kind, label, row, share),
            Format::Csv => self.csv_row(kind, label, row, share),
            Format::Json => {
                let line = self.json(kind, label, row, share);
                writeln!(self.out, "{line}")
            }
        }?;
        self.out.flush()
    }

    /// What a virtual counter says, at a time or of all the time.
    pub(super) fn virtual_counter(
        &mut self,
        time: Option<f64>,
        counter: &Description,
        reading: &VirtualReading,
    ) -> io::Result<()> {
        let (name, scope) = (counter.name.as_str(), counter.scope.to_string());
        let unit = counter.unit.symbol();
        match (self.format, reading) {
            (Format::Table, VirtualReading::Value(value)) => {
                let time = time.map_or(String::new(), |time| format!("{time:>8.3} "));
                let value = quantity(*value, unit);
                writeln!(self.out, "{time}{name} of {scope}: {value}")
            }
            (Format::Table, VirtualReading::Absent(_)) => Ok(()),
            (Format::Csv, _) => {
                let value = reading.value().map(|value| value.to_string());
                let mut fields = vec!["virtual".to_string(), seconds(time)];
                fields.extend([String::new(), name.into(), String::new(), scope]);
                fields.extend([String::new(), String::new()]);
                fields.extend(vec![String::new(); self.csv_events().count() + 1]);
                fields.extend([value.unwrap_or_default(), unit.to_string()]);
                self.csv(&fields)
            }
            (Format::Json, _) => {
                let line = json!({
                    "kind": "virtual", "time_s": time, "counter": counter.name,
                    "scope": scope, "value": reading.value(), "unit": unit,
                });
                writeln!(self.out, "{line}")
            }
        }?;
        self.out.flush()
    }

    /// Totals per 1,000 instructions, below a table of them; the other formats need no help.
    pub(super) fn rates(&mut self, rows: &[OutputRow]) -> io::Result<()> {
        let base = [Meaning::Instructions, Meaning::Cycles].map(Event::from);
        let chosen: Vec<usize> = (0..self.events.len())
            .filter(|&n| !base.contains(&self.events[n]))
            .collect();
        if self.format != Format::Table || rows.is_empty() {
            return Ok(());
        }
        let mut columns = vec![Column::new("TYPE", 6, Align::Left)];
        columns.push(Column::new("GHz", 6, Align::Right));
        columns.push(Column::new("IPC", 6, Align::Right));
        columns.extend(
            chosen
                .iter()
                .map(|&n| Column::event(&self.events[n], false)),
        );
        let misses = self
            .events
            .iter()
            .position(|e| *e == Meaning::LlcMisses.into());
        columns.extend(misses.map(|_| Column::new("BTR\nMB/s", 8, Align::Right)));
        let lines = LineWriter::new(columns);
        writeln!(self.out, "\nEvents per 1000 instructions:")?;
        lines.header(&mut self.out)?;
        for row in rows {
            let mut cells = vec![row.core_type.clone()];
            cells.push(number(Some(row.cycles / row.run_ns), 3));
            cells.push(number(row.ipc(), 3));
            let per_kilo = |n: usize| Some(1000.0 * row.values[n].count? / row.instructions);
            cells.extend(chosen.iter().map(|&n| number(per_kilo(n), 3)));
            let btr = |n: usize| btr(row, n).map(|btr| btr / 1e6);
            cells.extend(misses.map(|n| number(btr(n), 1)));
            lines.line(&mut self.out, &cells)?;
        }
        Ok(())
    }

    /// Run time of which nothing is known. Unlike other remarks, programs need it, too.
    pub(super) fn lost(&mut self, lost_ns: u64, share: f64) -> io::Result<()> {
        match self.format {
            Format::Table => {
                let seconds = lost_ns as f64 / 1e9;
                self.note(&format!(
                    "Not counted, and not in these numbers: {seconds:.3} s ({:.0}%), while \
                     another program had the counters.",
                    100.0 * share
                ))
            }
            Format::Csv => {
                let mut fields = vec![String::new(); 8 + self.csv_events().count() + 3];
                fields[0] = "lost".into();
                fields[6] = lost_ns.to_string();
                fields[7] = format!("{share:.4}");
                self.csv(&fields)
            }
            Format::Json => {
                let line = json!({ "kind": "lost", "run_ns": lost_ns, "share": share });
                writeln!(self.out, "{line}")
            }
        }?;
        self.out.flush()
    }

    /// A remark for people; the other formats have none.
    pub(super) fn note(&mut self, text: &str) -> io::Result<()> {
        if self.format == Format::Table {
            writeln!(self.out, "{}", crate::text::wrap(text))?;
        }
        Ok(())
    }

    fn table_row(
        &mut self,
        kind: LineKind,
        label: &Label,
        row: &OutputRow,
        share: f64,
    ) -> io::Result<()> {
        let threads = label.tid.is_some() || label.name.is_some();
        let known = matches!(self.lines, Some((old, of, _)) if (old, of) == (kind, threads));
        if !known {
            let lines = LineWriter::new(self.columns(kind, threads));
            if self.lines.is_some() {
                writeln!(self.out)?;
            }
            lines.header(&mut self.out)?;
            self.lines = Some((kind, threads, lines));
        }
        let mut cells = Vec::new();
        if matches!(kind, LineKind::Interval | LineKind::Sample) {
            cells.push(
                label
                    .time
                    .map_or(String::new(), |time| format!("{time:.3}")),
            );
        }
        if threads {
            cells.push(label.tid.map_or("-".into(), |tid| tid.to_string()));
        }
        if kind == LineKind::Thread {
            cells.push(label.name.clone().unwrap_or_default());
        }
        if kind == LineKind::Sample && !self.joules {
            cells.push(label.cpu.map_or(String::new(), |cpu| cpu.to_string()));
        }
        cells.push(row.core_type.clone());
        if self.has_run(kind, threads) {
            cells.push(number(Some(row.run_ns / 1e9), 3));
        }
        if self.has_share(kind, threads) {
            cells.push(format!("{:.1}%", 100.0 * share));
        }
        cells.extend(row.values.iter().map(marked));
        cells.push(number(row.ipc(), 2));
        if self.joules {
            cells.push(number(row.joules, 2));
        }
        let Some((_, _, lines)) = &self.lines else {
            return Ok(());
        };
        lines.line(&mut self.out, &cells)
    }

    /// Where joules need the room of 80 columns, rows of threads have no run time, and no share of it.
    fn has_run(&self, kind: LineKind, threads: bool) -> bool {
        match kind {
            LineKind::Interval => !(self.joules && threads),
            LineKind::Total => true,
            LineKind::Sample | LineKind::Thread => false,
        }
    }

    fn has_share(&self, kind: LineKind, threads: bool) -> bool {
        matches!(kind, LineKind::Thread | LineKind::Total) && !(self.joules && threads)
    }

    fn columns(&self, kind: LineKind, threads: bool) -> Vec<Column> {
        let mut columns = Vec::new();
        if matches!(kind, LineKind::Interval | LineKind::Sample) {
            columns.push(Column::new("TIME", 7, Align::Right));
        }
        if threads {
            columns.push(Column::new("TID", 7, Align::Right));
        }
        if kind == LineKind::Thread {
            columns.push(Column::new("NAME", 9, Align::Left));
        }
        if kind == LineKind::Sample && !self.joules {
            columns.push(Column::new("CPU", 3, Align::Right));
        }
        columns.push(Column::new("TYPE", 4, Align::Left));
        if self.has_run(kind, threads) {
            columns.push(Column::new("RUN s", 6, Align::Right));
        }
        if self.has_share(kind, threads) {
            columns.push(Column::new("SHARE", 6, Align::Right));
        }
        let events = self.events.iter().zip(&self.scaled);
        columns.extend(events.map(|(event, &scaled)| Column::event(event, scaled)));
        columns.push(Column::new("IPC", 5, Align::Right));
        if self.joules {
            columns.push(Column::new("J", 5, Align::Right));
        }
        columns
    }

    /// The events, and for each whether it has a column for the share that was counted.
    fn csv_events(&self) -> impl Iterator<Item = String> {
        self.events
            .iter()
            .zip(&self.scaled)
            .flat_map(|(event, &scaled)| {
                let share = scaled.then(|| format!("{event} counted share"));
                [event.to_string()].into_iter().chain(share)
            })
    }

    fn csv_row(
        &mut self,
        kind: LineKind,
        label: &Label,
        row: &OutputRow,
        share: f64,
    ) -> io::Result<()> {
        let text = |number: Option<u32>| number.map_or(String::new(), |n| n.to_string());
        let mut fields = vec![
            kind.name().to_string(),
            seconds(label.time),
            text(label.tid),
            label.name.clone().unwrap_or_default(),
            text(label.cpu),
            row.core_type.clone(),
            format!("{:.0}", row.run_ns),
            format!("{share:.4}"),
        ];
        for (value, &scaled) in row.values.iter().zip(&self.scaled) {
            fields.push(value.count.map_or(String::new(), |n| format!("{n:.0}")));
            if scaled {
                fields.push(format!("{:.4}", value.share));
            }
        }
        fields.push(row.ipc().map_or(String::new(), |ipc| format!("{ipc:.4}")));
        // As virtual counters have their values.
        let joules = row
            .joules
            .map(|joules| [format!("{joules:.6}"), "J".into()]);
        fields.extend(joules.unwrap_or_default());
        self.csv(&fields)
    }

    fn csv(&mut self, fields: &[String]) -> io::Result<()> {
        if !std::mem::replace(&mut self.headed, true) {
            let mut header = [
                "kind",
                "time_s",
                "tid",
                "name",
                "cpu",
                "core_type",
                "run_ns",
            ]
            .map(String::from)
            .to_vec();
            header.push("share".into());
            header.extend(self.csv_events());
            header.extend(["ipc", "value", "unit"].map(String::from));
            writeln!(self.out, "{}", csv_line(&header))?;
        }
        writeln!(self.out, "{}", csv_line(fields))
    }

    fn json(&self, kind: LineKind, label: &Label, row: &OutputRow, share: f64) -> Json {
        let mut line = json!({
            "kind": kind.name(),
            "core_type": row.core_type,
            "run_ns": row.run_ns as u64,
            "share": share,
            "ipc": row.ipc(),
        });
        let optional = [
            ("time_s", json!(label.time)),
            ("tid", json!(label.tid)),
            ("name", json!(label.name)),
            ("cpu", json!(label.cpu)),
            ("joules", json!(row.joules)),
        ];
        for (key, value) in optional.into_iter().filter(|(_, value)| !value.is_null()) {
            line[key] = value;
        }
        for (n, (event, value)) in self.events.iter().zip(&row.values).enumerate() {
            let event_name = event.to_string();
            line["counts"][&event_name] = json!(value.count.map(|count| count.round() as u64));
            if self.scaled[n] {
                line["counted_share"][&event_name] = json!(value.share);
            }
            if *event == Meaning::LlcMisses.into() {
                line["btr_bytes_per_s"] = json!(btr(row, n));
            }
        }
        line
    }
}

/// Bus transfer rate by the row's event number `n`, the misses of the last-level cache: bytes per
/// second of run time.
fn btr(row: &OutputRow, n: usize) -> Option<f64> {
    Some(row.values[n].count? * LINE_BYTES / (row.run_ns / 1e9))
}

fn seconds(time: Option<f64>) -> String {
    time.map_or(String::new(), |time| format!("{time:.6}"))
}

fn number(value: Option<f64>, decimals: usize) -> String {
    match value.filter(|value| value.is_finite()) {
        Some(value) if value >= 1000.0 => amount(value),
        Some(value) if value >= 100.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.decimals$}"),
        None => "-".into(),
    }
}

/// A count, with the share of the time for which it was counted where that is not all.
fn marked(value: &Value) -> String {
    match value.count {
        None => "-".to_string(),
        Some(count) if value.share < 0.9995 => {
            format!("{} ({:.0}%)", amount(count), 100.0 * value.share)
        }
        Some(count) => amount(count),
    }
}

fn csv_line(fields: &[String]) -> String {
    let quoted = fields.iter().map(|field| {
        if field.contains([',', '"', '\n', '\r']) {
            format!("\"{}\"", field.replace('"', "\"\""))
        } else {
            field.clone()
        }
    });
    quoted.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
