// SPDX-License-Identifier: GPL-2.0-only
//! The CPUs, by core type and cluster: load, frequency, and what runs there.

use ratatui::text::{Line, Span};

use super::{Appearance, fit};
use crate::stats::live::{Live, LiveCpu};

/// Columns for the name of the core type.
const LABEL: usize = 6;

/// Columns of a CPU with the one that parts it from the next, the most telling first; the narrowest
/// show no names.
const WIDTHS: [usize; 4] = [36, 24, 18, 10];

/// Columns that a CPU takes at the most: those of a name of 15 letters.
const WIDEST: usize = 41;

/// Columns of a bar.
const BAR: usize = 6;

/// CPUs that stand in one line.
pub(super) struct CpuRow<'a> {
    core_type: usize,
    /// It is the first of its core type.
    first: bool,
    cpus: Vec<&'a LiveCpu>,
    /// CPUs for which there is no room, and all of their type.
    rest: Option<(Vec<&'a LiveCpu>, usize)>,
    /// Which of [`WIDTHS`].
    narrowness: usize,
    /// Columns, with those that would be left over.
    width: usize,
}

/// Lays them out in `most` rows. Where that is too few at the narrowest, each core type has its part of
/// the rows, and the CPUs that find no room are told of together.
pub(super) fn rows(live: &Live, columns: u16, most: usize) -> Vec<CpuRow<'_>> {
    let columns = usize::from(columns).saturating_sub(LABEL);
    let fits = |narrowness: &usize| laid(live, columns, *narrowness).len() <= most;
    let narrowest = WIDTHS.len() - 1;
    let narrowness = (0..narrowest).find(fits).unwrap_or(narrowest);
    let rows = laid(live, columns, narrowness);
    if rows.len() <= most {
        return rows;
    }
    let mut types: Vec<Vec<CpuRow>> = Vec::new();
    for row in rows {
        match types.last_mut() {
            Some(of) if !row.first => of.push(row),
            _ => types.push(vec![row]),
        }
    }
    let mut left = most;
    let mut parts: Vec<usize> = vec![0; types.len()];
    // One each in turn, as long as there are any, and one in any case.
    for turn in 0..most.max(1) {
        for (part, of) in parts.iter_mut().zip(&types) {
            if of.len() > turn && (turn == 0 || left > 0) {
                *part += 1;
                left = left.saturating_sub(1);
            }
        }
    }
    let types = types.into_iter().zip(parts);
    types.flat_map(|(of, part)| shortened(of, part)).collect()
}

/// A type's rows cut to so many, of which the last tells of the rest.
fn shortened(mut rows: Vec<CpuRow<'_>>, part: usize) -> Vec<CpuRow<'_>> {
    if rows.len() > part {
        let all = rows.iter().map(|row| row.cpus.len()).sum();
        let mut rest = rows.split_off(part.max(1) - 1);
        let cpus = rest.iter_mut().flat_map(|row| row.cpus.drain(..)).collect();
        rest.truncate(1);
        rest[0].rest = Some((cpus, all));
        rows.append(&mut rest);
    }
    rows
}

fn laid(live: &Live, columns: usize, narrowness: usize) -> Vec<CpuRow<'_>> {
    let mut clusters: Vec<((usize, usize), Vec<&LiveCpu>)> = Vec::new();
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
    let mut rows: Vec<CpuRow> = Vec::new();
    for ((core_type, _), cpus) in &clusters {
        // Rows of the same length look better than a short last one.
        let nr_rows = cpus.len().div_ceil(in_row);
        for part in cpus.chunks(cpus.len().div_ceil(nr_rows)) {
            let first = rows.last().is_none_or(|row| row.core_type != *core_type);
            rows.push(CpuRow {
                core_type: *core_type,
                first,
                cpus: part.to_vec(),
                rest: None,
                narrowness,
                width,
            });
        }
    }
    rows
}

pub(super) fn line(live: &Live, row: &CpuRow, look: Appearance) -> Line<'static> {
    let kind = live.core_types.get(row.core_type);
    let name = kind.filter(|_| row.first).map_or("", |kind| &kind.name);
    let style = look.core_type(row.core_type);
    let label = format!(" {name:<width$.width$} ", width = LABEL - 2);
    let mut spans = vec![Span::styled(label, style)];
    if let Some((cpus, all)) = &row.rest {
        let count = cpus.len();
        let busy = cpus.iter().map(|cpu| cpu.busy_pct).sum::<f64>() / count.max(1) as f64;
        let more = if count < *all { "more " } else { "" };
        spans.push(format!("  {count} {more}CPUs, busy {busy:.0}% on average").into());
        return spans.into();
    }
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
            rest += &format!(" {}", fit(&cpu.comm, left));
        }
        text += &rest;
        spans.push(format!("{} ", fit(&text, row.width - 1)).into());
    }
    spans.into()
}
