// SPDX-License-Identifier: GPL-2.0-or-later
//! Which PMUs this machine's CPU cores have, and what each can count.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::candidates::EventSource;
use super::event::{ANY, Encoding, Event, Meaning, Space};
use super::facts::{self, MachineFacts, PmuFacts};
use super::tables::{ConfigLayout, Counters, EventTable};
use super::{fallback, format, identify};

/// A PMU that counts on CPU cores of one type.
#[derive(Clone, Debug)]
pub struct Pmu {
    /// Name of its sysfs device, such as `cpu_core`.
    pub name: String,
    /// `perf_event_attr.type` of its own events.
    pub type_id: u32,
    /// Online CPUs it serves, ascending.
    pub cpus: Vec<u32>,
    /// Counters of each CPU, whoever uses them now.
    pub counters: Counters,
    /// The NMI watchdog holds one of them for cycles.
    pub watchdog: bool,
    /// The events of its microarchitecture; `None` if that is unknown, and it is left to the
    /// kernel what can be counted.
    pub table: Option<&'static EventTable>,
    /// Generalised events need the PMU's type with them: there are several PMUs of CPU cores.
    extended: bool,
    facts: PmuFacts,
}

/// An event that a PMU can count, for a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Countable {
    /// What it means.
    pub meaning: Meaning,
    /// How it is counted.
    pub encoding: Encoding,
}

impl Pmu {
    /// One that counts what this microarchitecture does, beside the NMI watchdog that x86 kernels mostly have.
    pub fn of_table(table: &'static EventTable) -> Self {
        Self {
            name: table.name.to_string(),
            type_id: 0,
            cpus: Vec::new(),
            counters: table.counters,
            watchdog: table.layout != ConfigLayout::Arm,
            table: Some(table),
            extended: false,
            facts: PmuFacts::default(),
        }
    }

    /// The microarchitecture's name, such as `golden-cove`, or `unknown`.
    pub fn microarchitecture(&self) -> &'static str {
        self.table.map_or("unknown", |table| table.name)
    }

    /// How this PMU counts what is meant; `None` if it cannot.
    pub fn meaning(&self, meaning: Meaning) -> Option<Encoding> {
        match self.table {
            Some(table) => {
                let row = table.row(meaning)?;
                self.implements(table, row.event, row.name)
                    .then(|| table.encode(row))
            }
            None => self.in_sysfs(meaning).or_else(|| {
                fallback::generalised(meaning, self.type_id, self.extended, self.counters)
            }),
        }
    }

    /// Whether a chip has an event of the architecture that its core design may lack: the kernel
    /// lists, of events below 64, only those that the PMU says it has.
    fn implements(&self, table: &EventTable, event: u16, name: &str) -> bool {
        let listed =
            table.layout == ConfigLayout::Arm && self.name.starts_with("armv8") && event < 0x40;
        let events = &self.facts.events;
        !listed || events.is_empty() || events.contains_key(&name.to_ascii_lowercase())
    }

    fn in_sysfs(&self, meaning: Meaning) -> Option<Encoding> {
        let names = fallback::sysfs_names(meaning).iter();
        let (name, text) = names
            .filter_map(|&n| self.facts.events.get_key_value(n))
            .next()?;
        let config = format::terms(text, &self.facts.formats).ok()?;
        let encoding = self.constrained(config, name.clone());
        Some(fallback::with_fixed(encoding, meaning, self.counters))
    }

    /// How this PMU counts what the user asks for.
    pub fn encode(&self, event: &Event) -> Result<Encoding> {
        match event {
            Event::Meaning(meaning) => self.meaning(*meaning).with_context(|| {
                format!(
                    "{} ({}) cannot count {meaning}",
                    self.name,
                    self.microarchitecture()
                )
            }),
            Event::Raw(text) => self
                .raw(text)
                .with_context(|| format!("'{text}' is no event of {}", self.name)),
        }
    }

    fn raw(&self, text: &str) -> Result<Encoding> {
        // PMU/TERMS/ is how perf writes it.
        let terms = match text.split_once('/') {
            Some((pmu, terms)) if pmu == self.name => terms.trim_end_matches('/'),
            Some((pmu, _)) => bail!("it is one of {pmu}"),
            None => text,
        };
        let config = if let Some(listed) = self.facts.events.get(terms) {
            format::terms(listed, &self.facts.formats)?
        } else if let Some(encoding) = self.by_vendors_name(terms) {
            return Ok(encoding);
        } else if let Some(code) = format::code(terms) {
            [code, 0, 0]
        } else if let Some(encoding) = fallback::by_perfs_name(terms, self.type_id, self.extended) {
            return Ok(encoding);
        } else if terms.contains('=') {
            format::terms(terms, &self.facts.formats)?
        } else {
            bail!(
                "neither a meaning (see 'scx_hetero pmc events') nor a name in \
                 /sys/bus/event_source/devices/{}/events, nor a code such as r4f2e or \
                 event=0x2e,umask=0x4f",
                self.name
            );
        };
        Ok(self.constrained(config, text.to_string()))
    }

    fn by_vendors_name(&self, name: &str) -> Option<Encoding> {
        let table = self.table?;
        let row = table
            .rows
            .iter()
            .find(|row| row.name.eq_ignore_ascii_case(name))?;
        Some(table.encode(row))
    }

    /// A raw event with the constraints that our table knows of, if it has the same one.
    fn constrained(&self, [config, config1, config2]: format::Config, name: String) -> Encoding {
        let rows = self
            .table
            .into_iter()
            .flat_map(|table| table.rows.iter().map(|row| table.encode(row)));
        let known = rows.into_iter().find(|known| known.config == config);
        Encoding {
            space: Space::Pmu,
            config,
            config1,
            config2,
            fixed: known.as_ref().and_then(|known| known.fixed),
            general: known.map_or(ANY, |known| known.general),
            name: name.into(),
        }
    }

    /// All that can be counted here, by meaning.
    pub fn countable(&self) -> Vec<Countable> {
        let all = Meaning::all().iter();
        let known = all.filter_map(|&meaning| {
            let encoding = self.meaning(meaning)?;
            Some(Countable { meaning, encoding })
        });
        known.collect()
    }

    /// Names of the events that the kernel lists in sysfs, sorted.
    pub fn sysfs_events(&self) -> impl Iterator<Item = &str> {
        self.facts.events.keys().map(String::as_str)
    }

    /// Where it is named how this PMU counts what is meant.
    pub(super) fn source_of(&self, meaning: Meaning) -> EventSource {
        match (self.table, self.in_sysfs(meaning)) {
            (Some(_), _) => EventSource::Table,
            (None, Some(_)) => EventSource::Sysfs,
            (None, None) => EventSource::Kernel,
        }
    }

    /// What is held already: the NMI watchdog's cycles.
    pub fn held(&self) -> Option<Encoding> {
        self.watchdog
            .then(|| self.meaning(Meaning::Cycles))
            .flatten()
    }
}

/// The PMUs of a machine's CPU cores.
#[derive(Clone, Debug, Default)]
pub struct MachinePmus {
    /// By name. Empty where there are none, as in most virtual machines.
    pub pmus: Vec<Pmu>,
}

impl MachinePmus {
    /// This machine, or what lies below `SCX_SYSFS_PREFIX` where it is set.
    pub fn detect() -> Self {
        Self::read(&facts::root_from_env())
    }

    /// The machine whose `/sys` and `/proc` lie below `root`.
    pub fn read(root: &Path) -> Self {
        Self::from_facts(facts::read(root))
    }

    /// The same as if no table knew its microarchitectures.
    pub fn detect_without_tables() -> Self {
        Self::of(facts::read(&facts::root_from_env()), false)
    }

    /// Works out what the PMUs are. Touches no file.
    pub fn from_facts(facts: MachineFacts) -> Self {
        Self::of(facts, true)
    }

    fn of(facts: MachineFacts, tables: bool) -> Self {
        let extended = facts.pmus.len() > 1;
        let pmus = facts.pmus.into_iter().map(|pmu| {
            let table = identify::table(&pmu.name, pmu.cpu).filter(|_| tables);
            let by_type = facts.counters_by_type || facts.counters.is_none();
            let counters = counters(&pmu, table, facts.counters, by_type);
            Pmu {
                name: pmu.name.clone(),
                type_id: pmu.type_id,
                cpus: pmu.cpus.clone(),
                watchdog: facts.nmi_watchdog,
                counters,
                table,
                extended,
                facts: pmu,
            }
        });
        Self {
            pmus: pmus.collect(),
        }
    }

    /// The PMU that counts on a CPU.
    pub fn pmu_of(&self, cpu: u32) -> Option<&Pmu> {
        self.pmus
            .iter()
            .find(|pmu| pmu.cpus.binary_search(&cpu).is_ok())
    }

    /// The PMU of this name.
    pub fn pmu(&self, name: &str) -> Option<&Pmu> {
        self.pmus.iter().find(|pmu| pmu.name == name)
    }
}

/// How many counters each CPU of a PMU has.
///
/// On Intel's hybrids CPUID gives those that all core types have, whichever CPU is asked. The
/// kernel's driver knows the further ones of Alder Lake's P cores, and is told those of later ones
/// `by_type`, where they are told: they stand in the table. Elsewhere CPUID is right, in virtual
/// machines too. ARM's count is in a register that only the kernel reads.
fn counters(
    pmu: &PmuFacts,
    table: Option<&EventTable>,
    cpuid: Option<Counters>,
    by_type: bool,
) -> Counters {
    let built = table.map(|table| table.counters);
    let hybrid = pmu.name.starts_with("cpu_");
    let driver_knows =
        table.is_some_and(|table| ["golden-cove", "gracemont"].contains(&table.name));
    let known = if hybrid && (by_type || driver_knows) {
        built.or(cpuid)
    } else {
        cpuid.or(built)
    };
    known.unwrap_or(Counters {
        general: fallback::FEWEST,
        fixed: u32::from(pmu.name.starts_with("armv")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::identify::CpuIdentity;

    #[test]
    fn a_virtual_meteor_lake_has_no_more_counters_than_its_kernel_knows() {
        let of = |model, counters_by_type| {
            let facts = MachineFacts {
                pmus: vec![PmuFacts {
                    name: "cpu_core".into(),
                    cpu: Some(CpuIdentity::Intel { family: 6, model }),
                    ..PmuFacts::default()
                }],
                counters: Some(Counters {
                    general: 6,
                    fixed: 3,
                }),
                counters_by_type,
                ..MachineFacts::default()
            };
            MachinePmus::from_facts(facts).pmus[0].counters.general
        };
        assert_eq!(of(0xaa, false), 6);
        assert_eq!(of(0xaa, true), 8);
        assert_eq!(of(0x9a, false), 8, "Linux knows Alder Lake's");
    }
}
