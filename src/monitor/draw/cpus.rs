// SPDX-License-Identifier: GPL-2.0-only
//! The CPUs, by core type and cluster: load, frequency, and who is there.

use ratatui::text::{Line, Span};

use super::Look;
use crate::stats::live::{Cpu, Live};

/// Columns for the name of the core type.
const LABEL: usize = 6;

/// Columns of a CPU, the most telling first; the narrowest show no names.
const WIDTHS: [usize; 4] = [36, 24, 17, 9];

/// Columns that a CPU takes at the most: those of a name of 15 letters.
const WIDEST: usize = 41;

/// Columns of a bar.
const BAR: usize = 6;

/// CPUs that stand in one line.
pub(super) struct Row<'a> {
    core_type: usize,
    /// It is the first of its core type.
    first: bool,
    cpus: Vec<&'a Cpu>,
    /// Which of [`WIDTHS`].
    narrowness: usize,
    /// Columns, with those that would be left over.
    width: usize,
}

/// Lays them out in `most` rows, or as many as it takes at the narrowest and `most` of these.
pub(super) fn rows(live: &Live, columns: u16, most: usize) -> Vec<Row<'_>> {
    let columns = usize::from(columns).saturating_sub(LABEL);
    let fits = |narrowness: &usize| laid(live, columns, *narrowness).len() <= most;
    let narrowest = WIDTHS.len() - 1;
    let narrowness = (0..narrowest).find(fits).unwrap_or(narrowest);
    let mut rows = laid(live, columns, narrowness);
    rows.truncate(most);
    rows
}

fn laid(live: &Live, columns: usize, narrowness: usize) -> Vec<Row<'_>> {
    let mut clusters: Vec<((usize, usize), Vec<&Cpu>)> = Vec::new();
    for cpu in &live.cpus {
        let key = (cpu.core_type, cpu.domain);
        match clusters.iter_mut().find(|(of, _)| *of == key) {
            Some((_, cpus)) => cpus.push(cpu),
            None => clusters.push((key, vec![cpu])),
        }
    }
    clusters.sort_by_key(|(key, _)| *key);
    let in_row = (columns / WIDTHS[narrowness]).max(1);
    let width = (columns / in_row).clamp(WIDTHS[narrowness], WIDEST);
    let mut rows: Vec<Row> = Vec::new();
    for ((core_type, _), cpus) in &clusters {
        // Rows of the same length look better than a short last one.
        let nr_rows = cpus.len().div_ceil(in_row);
        for part in cpus.chunks(cpus.len().div_ceil(nr_rows)) {
            let first = rows.last().is_none_or(|row| row.core_type != *core_type);
            rows.push(Row {
                core_type: *core_type,
                first,
                cpus: part.to_vec(),
                narrowness,
                width,
            });
        }
    }
    rows
}

pub(super) fn line(live: &Live, row: &Row, look: Look) -> Line<'static> {
    let kind = live.core_types.get(row.core_type);
    let name = kind.filter(|_| row.first).map_or("", |kind| &kind.name);
    let style = look.core_type(row.core_type);
    let label = format!(" {name:<width$.width$} ", width = LABEL - 2);
    let mut spans = vec![Span::styled(label, style)];
    for cpu in &row.cpus {
        let (id, load) = (cpu.cpu, cpu.busy_pct);
        let mut text = format!("{id:>3} ");
        let mut rest = String::new();
        if row.narrowness < 3 {
            let full = (load / 100.0 * BAR as f64).round() as usize;
            rest = format!("[{:<BAR$}]", "|".repeat(full.min(BAR)));
        }
        rest += &format!("{load:>4.0}%");
        if row.narrowness == 0 {
            rest += &match cpu.mhz {
                Some(mhz) => format!(" {:.2}G", f64::from(mhz) / 1000.0),
                None => "    - ".into(),
            };
        }
        if row.narrowness <= 1 {
            let used = text.len() + rest.len() + 2;
            let left = row.width.saturating_sub(used);
            rest += &format!(" {:<left$.left$}", cpu.comm);
        }
        text += &rest;
        spans.push(format!("{text:<width$.width$}", width = row.width).into());
    }
    spans.into()
}
