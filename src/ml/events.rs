// SPDX-License-Identifier: GPL-2.0-only
//! Which events features are made of.
//!
//! Every feature is a number of events per retired instruction (topology-aware-ml-2024, section
//! 4.1), so that it does not depend on how long a sample is. Most events have a
//! [`Meaning`]; those that only some PMUs know have a name and a code here.

use crate::pmu::{Event, Meaning, Pmu};

/// Events of the thesis (table 3.3) that have no [`Meaning`]: a feature's name, the
/// microarchitecture, and its code there.
///
/// Top-down events count issue slots. Those of Golden Cove are ordinary events beside the metrics
/// that need the counter of slots as a leader. Instruction fetches that miss the L1 are there the
/// requests for code that the L2 sees. `tests/ml_events.rs` holds them against the vendor's lists.
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

/// Names that perf and the thesis use for events that have another one here.
const ALIASES: [(&str, &str); 8] = [
    ("branch-instructions", "branches"),
    ("l1-dcache-loads", "loads"),
    ("l1-dcache-load-misses", "l1-misses"),
    ("l1-icache-load-misses", "l1i-misses"),
    ("l1-dcache-stores", "stores"),
    ("cache-references", "llc-references"),
    ("cache-misses", "llc-misses"),
    ("cpu-cycles", "cycles"),
];

/// The feature that a column of this name is about, if we know it: `llc-misses`, also written
/// `LLC_misses`, `cache-misses` or `cpu_core/cache-misses/`.
pub fn known(column: &str) -> Option<&'static str> {
    let name = column.trim().to_ascii_lowercase().replace('_', "-");
    let name = match name.split_once('/') {
        Some((_, event)) => event.trim_end_matches('/'),
        None => &name,
    };
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
    let name = alias.map_or(name, |(_, ours)| ours);
    let meanings = Meaning::all().iter().map(|meaning| meaning.name());
    let mut all = meanings.chain(FURTHER.iter().map(|(name, ..)| *name));
    all.find(|known| *known == name)
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
        assert_eq!(known("weather"), None);
    }
}
