// SPDX-License-Identifier: GPL-2.0-or-later
//! Which events features are made of.
//!
//! Every feature is a number of events per cycle, or per instruction where a table has no cycles
//! (docs/ml.md, "Features"), so it does not depend on the length of a sample. Most events have a
//! [`Meaning`]; those that only some PMUs count have a name and a code here. [`known`] maps the
//! names that perf and the vendors use to features, [`countable`] says what a PMU can count.

use crate::pmu::tables::TABLES;
use crate::pmu::{Event, Meaning, Pmu, plain};

/// Events of the thesis (table 3.3) that have no [`Meaning`]: a feature's name, the
/// microarchitecture, and its code there.
///
/// Top-down events count issue slots. Those of Golden Cove are ordinary events beside the metrics
/// that need the counter of slots as a leader. Instruction fetches that miss the L1 are there the
/// requests for code that the L2 sees. `tests/host/ml_events.rs` holds them against the vendor's lists.
pub const FURTHER: [(&str, &str, &str); 11] = [
    ("l1i-misses", "golden-cove", "event=0x24,umask=0xe4"),
    ("topdown-retiring", "golden-cove", "event=0xc2,umask=0x02"),
    ("topdown-fe-bound", "golden-cove", "event=0x9c,umask=0x01"),
    ("topdown-be-bound", "golden-cove", "event=0xa4,umask=0x02"),
    ("topdown-bad-spec", "golden-cove", "event=0xa4,umask=0x04"),
    ("topdown-mem-bound", "golden-cove", "event=0xa4,umask=0x10"),
    ("l1i-misses", "gracemont", "event=0x80,umask=0x02"),
    ("topdown-retiring", "gracemont", "event=0xc2"),
    ("topdown-fe-bound", "gracemont", "event=0x71"),
    ("topdown-be-bound", "gracemont", "event=0x74"),
    ("topdown-bad-spec", "gracemont", "event=0x73"),
];

/// Names that perf and the thesis use for events that have another one here; the vendors' own are in
/// the tables.
const ALIASES: [(&str, &str); 11] = [
    ("branch-instructions", "branches"),
    ("l1-dcache-loads", "loads"),
    ("l1-dcache-load-misses", "l1-misses"),
    ("l1-icache-load-misses", "l1i-misses"),
    ("l1-dcache-stores", "stores"),
    ("cache-references", "llc-references"),
    ("cache-misses", "llc-misses"),
    ("cpu-cycles", "cycles"),
    ("inst-retired.any", "instructions"),
    ("cpu-clk-unhalted.thread", "cycles"),
    ("cpu-clk-unhalted.core", "cycles"),
];

/// The feature that a column of this name is about, if we know it: `llc-misses`, also written
/// `LLC_misses`, `cache-misses:u`, `cpu_core/cache-misses/u` or, with Intel, `LONGEST_LAT_CACHE.MISS`.
pub fn known(column: &str) -> Option<&'static str> {
    let name = plain(column.trim());
    let event = match name.split_once('/') {
        Some((_, event)) => event.split('/').next(),
        None => name.split(':').next(),
    };
    let event = event.unwrap_or_default();
    let alias = ALIASES.iter().find(|(alias, _)| *alias == event);
    let event = alias.map_or(event, |(_, ours)| ours);
    let meanings = Meaning::all().iter().map(|meaning| meaning.name());
    let mut all = meanings.chain(FURTHER.iter().map(|(name, ..)| *name));
    all.find(|known| *known == event).or_else(|| {
        let mut rows = TABLES.iter().flat_map(|table| table.rows);
        let row = rows.find(|row| plain(row.name) == event);
        row.map(|row| row.meaning.name())
    })
}

/// What this PMU can count: by meaning, and further events by name.
pub fn countable(pmu: &Pmu) -> (Vec<Event>, Vec<(&'static str, Event)>) {
    let meanings = pmu
        .countable()
        .into_iter()
        .map(|known| known.meaning.into());
    let further = FURTHER.iter().filter(|(_, where_, code)| {
        *where_ == pmu.microarchitecture() && pmu.encode(&Event::from(code.to_string())).is_ok()
    });
    let further = further.map(|(name, _, code)| (*name, Event::from(code.to_string())));
    (meanings.collect(), further.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_are_understood() {
        assert_eq!(known("llc-misses"), Some("llc-misses"));
        assert_eq!(known("LLC_misses"), Some("llc-misses"));
        assert_eq!(known("cpu_core/cache-misses/"), Some("llc-misses"));
        assert_eq!(known("cpu_core/L1-dcache-loads/"), Some("loads"));
        assert_eq!(known("topdown-bad-spec"), Some("topdown-bad-spec"));
        assert_eq!(known("instructions:u"), Some("instructions"));
        assert_eq!(known("cpu_core/branch-misses/u"), Some("branch-misses"));
        assert_eq!(known("weather"), None);
    }

    #[test]
    fn the_vendors_names_are_understood() {
        assert_eq!(known("INST_RETIRED"), Some("instructions"));
        assert_eq!(known("inst_retired.any"), Some("instructions"));
        assert_eq!(known("BR_MIS_PRED"), Some("branch-misses"));
        assert_eq!(known("l2d_cache_refill"), Some("l2-misses"));
        assert_eq!(
            known("cpu_atom/LONGEST_LAT_CACHE.MISS/"),
            Some("llc-misses")
        );
        // All stalls, not those for memory alone.
        assert_eq!(known("stall_backend"), None);
    }
}
