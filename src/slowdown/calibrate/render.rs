// SPDX-License-Identifier: GPL-2.0-only
//! A calibration for people.

use std::time::SystemTime;

use comfy_table::{CellAlignment, Table, presets};

use super::loads::COMPUTE;
use super::store::Calibration;
use crate::text::{stamp, wrap};

/// As text of at most 80 columns: core types, contention domains, and what is used of it.
pub(crate) fn table(calibration: &Calibration) -> String {
    let mut text = String::new();
    let mut types = Table::new();
    let mut header = vec!["TYPE".to_string(), "CPU".to_string()];
    header.extend(COMPUTE.map(|name| format!("{name}/ms")));
    header.push("CAPACITY".to_string());
    types.load_style(presets::NOTHING).set_header(header);
    for (kind, capacity) in calibration.compute.iter().zip(&calibration.capacities) {
        let mut row = vec![kind.core_type.clone(), kind.cpu.to_string()];
        row.extend(kind.rates.iter().map(|rate| format!("{:.0}", rate / 1e3)));
        row.push(capacity.to_string());
        types.add_row(row);
    }
    text += &right_aligned(types);

    if !calibration.domains.is_empty() {
        let mut domains = Table::new();
        let header = ["CPUS", "VICTIM", "MB/S", "LOW_BTR", "HIGH_BTR"];
        domains.load_style(presets::NOTHING).set_header(header);
        for domain in &calibration.domains {
            domains.add_row([
                domain.cpus.clone(),
                domain.victim.to_string(),
                format!("{:.0}", domain.bandwidth / 1e6),
                format!("{:.2}", domain.low_btr / 1e6),
                format!("{:.1}", domain.high_btr / 1e6),
            ]);
        }
        text += "\n\n";
        text += &right_aligned(domains);
    }
    text += "\n\n";
    text += &wrap(&format!("Used: {}.", calibration.summary()));
    if let Some(why) = &calibration.no_thresholds {
        text.push('\n');
        text += &wrap(&format!("No thresholds: {why}"));
    }
    text
}

fn right_aligned(mut table: Table) -> String {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

/// `2026-11-21T13:45:00Z`.
pub(crate) fn date(time: SystemTime) -> String {
    stamp(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_civil() {
        let at = |seconds| date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_798_761_599), "2026-12-31T23:59:59Z");
    }
}
