// SPDX-License-Identifier: GPL-2.0-or-later
//! Which code counts what, by microarchitecture: data, one file a vendor.
//!
//! The codes are those of the vendors' event lists, as the Linux kernel carries them in
//! `tools/perf/pmu-events`. `tests/host/pmu_tables.rs` holds every row against that data, by the
//! microarchitecture's own file and core type, as the crate `scx_raw_pmu` ships it.
//!
//! A name in braces (`MEM_BOUND_STALLS.{LOAD_LLC_HIT,LOAD_DRAM_HIT}`) is several of the vendor's
//! events in one: they share a code, and their unit masks are or-ed.

mod amd;
mod arm;
mod intel;

use super::event::{ANY, Encoding, Meaning, Space};

/// How many counters a PMU has for each CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// General ones, which count (almost) anything.
    pub general: u32,
    /// Fixed ones, each for one event.
    pub fixed: u32,
}

/// Bit fields of `perf_event_attr.config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigLayout {
    /// Intel: event 0-7, umask 8-15, edge 18, inv 23, cmask 24-31.
    Intel,
    /// AMD: as Intel, and the event's upper bits at 32-35.
    Amd,
    /// ARM: the event's number.
    Arm,
}

/// One event of a microarchitecture.
#[derive(Clone, Copy, Debug)]
pub struct EventRow {
    /// What it counts.
    pub meaning: Meaning,
    /// The vendor's name, as in the kernel's event lists.
    pub name: &'static str,
    /// Event code.
    pub event: u16,
    /// Unit mask.
    pub umask: u8,
    /// Count cycles with at least so many occurrences, where not 0.
    pub cmask: u8,
    /// General counters that can count it, a bit each.
    pub general: u64,
    /// The fixed counter that counts it.
    pub fixed: Option<u8>,
}

impl EventRow {
    /// Only these general counters can count it.
    const fn on(mut self, general: u64) -> Self {
        self.general = general;
        self
    }

    /// Counts cycles with at least `cmask` occurrences.
    const fn cmask(mut self, cmask: u8) -> Self {
        self.cmask = cmask;
        self
    }

    /// A fixed counter counts it, too.
    const fn fixed(mut self, counter: u8) -> Self {
        self.fixed = Some(counter);
        self
    }
}

/// A row for an event that any general counter can count.
const fn row(meaning: Meaning, name: &'static str, event: u16, umask: u8) -> EventRow {
    EventRow {
        meaning,
        name,
        event,
        umask,
        cmask: 0,
        general: ANY,
        fixed: None,
    }
}

/// The events of a microarchitecture.
#[derive(Debug)]
pub struct EventTable {
    /// Its name, such as `golden-cove`.
    pub name: &'static str,
    /// How a row becomes a `config`.
    pub layout: ConfigLayout,
    /// Counters of a CPU, as the vendor builds it.
    pub counters: Counters,
    /// The events, at most one for a meaning.
    pub rows: &'static [EventRow],
}

impl EventTable {
    /// The row for a meaning.
    pub fn row(&self, meaning: Meaning) -> Option<&'static EventRow> {
        self.rows.iter().find(|row| row.meaning == meaning)
    }

    /// How the PMU is told to count what `row` says.
    pub fn encode(&self, row: &EventRow) -> Encoding {
        let event = u64::from(row.event);
        let config = match self.layout {
            ConfigLayout::Arm => event,
            ConfigLayout::Intel | ConfigLayout::Amd => {
                event & 0xff
                    | u64::from(row.umask) << 8
                    | u64::from(row.cmask) << 24
                    | event >> 8 << 32
            }
        };
        Encoding {
            space: Space::Pmu,
            config,
            config1: 0,
            config2: 0,
            fixed: row.fixed,
            general: row.general,
            name: row.name.into(),
        }
    }
}

/// All tables.
pub static TABLES: &[&EventTable] = &[
    &intel::GOLDEN_COVE,
    &intel::REDWOOD_COVE,
    &intel::LION_COVE,
    &intel::GRACEMONT,
    &intel::CRESTMONT,
    &intel::SKYMONT,
    &intel::ICE_LAKE,
    &intel::SKYLAKE,
    &amd::ZEN4,
    &amd::ZEN5,
    &arm::CORTEX_A7,
    &arm::CORTEX_A15,
    &arm::CORTEX_A53,
    &arm::CORTEX_A55,
    &arm::CORTEX_A57,
    &arm::CORTEX_A72,
    &arm::CORTEX_A76,
    &arm::CORTEX_A78,
    &arm::CORTEX_X1,
];

/// The table of this name.
pub fn by_name(name: &str) -> Option<&'static EventTable> {
    TABLES.iter().copied().find(|table| table.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_table_names_each_meaning_once_and_can_count_instructions_and_cycles() {
        let mut names = BTreeSet::new();
        for table in TABLES {
            assert!(names.insert(table.name), "{} twice", table.name);
            let meanings: BTreeSet<_> = table.rows.iter().map(|row| row.meaning).collect();
            assert_eq!(meanings.len(), table.rows.len(), "{}", table.name);
            for needed in [Meaning::Instructions, Meaning::Cycles] {
                assert!(table.row(needed).is_some(), "{}: {needed}", table.name);
            }
            for row in table.rows {
                let on_fixed = row
                    .fixed
                    .is_some_and(|n| u32::from(n) < table.counters.fixed);
                let on_general = row.general & ((1 << table.counters.general) - 1) != 0;
                assert!(on_fixed || on_general, "{}: no counter", row.name);
            }
        }
        assert_eq!(by_name("zen5").unwrap().name, "zen5");
        assert!(by_name("zen1").is_none());
    }

    #[test]
    fn configs_are_laid_out_as_the_kernel_lays_them_out() {
        let config = |table: &str, meaning| {
            let table = by_name(table).unwrap();
            table.encode(table.row(meaning).unwrap()).config
        };
        assert_eq!(config("golden-cove", Meaning::LlcMisses), 0x412e);
        assert_eq!(config("golden-cove", Meaning::StalledMem), 0x50005a3);
        assert_eq!(config("golden-cove", Meaning::RefCycles), 0x300);
        assert_eq!(config("zen4", Meaning::RefCycles), 0x1_0000_0120);
        assert_eq!(config("cortex-x1", Meaning::StalledMem), 0x4005);
    }
}
