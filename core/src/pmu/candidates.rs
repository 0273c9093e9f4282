// SPDX-License-Identifier: GPL-2.0-or-later
//! All events that anything names for a PMU, to find out which of them matter (Zellweger, Lin and Roscoe
//! 2016, section 5: no knowledge of a machine's events but how to count them).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::event::{ANY, Encoding, Event, Meaning};
use super::fallback;
use super::listed::ListedEvent;
use super::machine::Pmu;
use super::sets::{self, EventSet, same};

/// Where an event is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventSource {
    /// Our table of the microarchitecture.
    Table,
    /// `events/` of the PMU in sysfs.
    Sysfs,
    /// A vendor's list, which the user gave.
    List,
    /// The kernel's generalised events, of which only the kernel knows what this PMU has.
    Kernel,
}

impl EventSource {
    /// Every one, those first whose names are best known.
    pub const ALL: [Self; 4] = [Self::Table, Self::Sysfs, Self::List, Self::Kernel];

    /// What to call its events.
    pub fn name(self) -> &'static str {
        match self {
            Self::Table => "of the table",
            Self::Sysfs => "of sysfs",
            Self::List => "of lists",
            Self::Kernel => "the kernel's own",
        }
    }
}

/// An event that may matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// As [`Pmu::encode`] takes it: `llc-misses`, or with the PMU's name `cpu_core/r4f2e/`, for a code
    /// means something else to another PMU.
    pub name: String,
    /// How it is counted; named as the vendor, sysfs or the kernel does.
    pub encoding: Encoding,
    /// Where it is named, in order.
    pub sources: BTreeSet<EventSource>,
}

/// What a PMU may be asked to count.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    /// Each code once, under the name that is best known; instructions and cycles are not among them.
    pub found: Vec<Candidate>,
    /// Names that this PMU's format has no place for, each with the reason.
    pub unknown: Vec<(String, String)>,
}

/// All that is named for `pmu`: by meaning, `further` by a name of ours, in sysfs, in `lists`, and by the
/// kernel.
pub fn candidates(
    pmu: &Pmu,
    further: &[(&'static str, Event)],
    lists: &[ListedEvent],
) -> Candidates {
    let base: Vec<Encoding> = [Meaning::Instructions, Meaning::Cycles]
        .iter()
        .filter_map(|&meaning| pmu.meaning(meaning))
        .collect();
    let mut all = Gathering {
        base,
        candidates: Candidates::default(),
    };
    let raw = |terms: &str| format!("{}/{terms}/", pmu.name);
    for &meaning in Meaning::all() {
        if let Some(encoding) = pmu.meaning(meaning) {
            all.add(meaning.name().to_string(), encoding, pmu.source_of(meaning));
        }
    }
    for (name, event) in further {
        if let Ok(encoding) = pmu.encode(event) {
            all.add(name.to_string(), encoding, EventSource::Table);
        }
    }
    let names: Vec<&str> = pmu.sysfs_events().collect();
    for name in names {
        all.ask(pmu, raw(name), name, EventSource::Sysfs);
    }
    for listed in lists
        .iter()
        .filter(|of| of.unit.as_ref().is_none_or(|unit| *unit == pmu.name))
    {
        match pmu.encode(&Event::Raw(listed.terms.clone())) {
            Ok(encoding) if encoding.config1 | encoding.config2 == 0 => {
                let name = raw(&format!("r{:x}", encoding.config));
                let encoding = Encoding {
                    name: listed.name.clone().into(),
                    ..encoding
                };
                all.add(name, encoding, EventSource::List);
            }
            Ok(_) => all.unknown(&listed.name, "needs a register of its own"),
            Err(error) => all.unknown(&listed.name, &error.root_cause().to_string()),
        }
    }
    for name in fallback::perfs_names() {
        all.ask(pmu, raw(&name), &name, EventSource::Kernel);
    }
    all.candidates
}

struct Gathering {
    /// Counted in any case.
    base: Vec<Encoding>,
    candidates: Candidates,
}

impl Gathering {
    fn add(&mut self, name: String, encoding: Encoding, source: EventSource) {
        if self.base.iter().any(|of| same(of, &encoding)) {
            return;
        }
        let known = self.candidates.found.iter_mut();
        match known.into_iter().find(|of| same(&of.encoding, &encoding)) {
            Some(known) => {
                known.sources.insert(source);
                // A vendor's name says more than terms do.
                if known.encoding.name.contains('=') {
                    known.encoding.name = encoding.name;
                }
            }
            None => self.candidates.found.push(Candidate {
                name,
                encoding,
                sources: BTreeSet::from([source]),
            }),
        }
    }

    /// Adds what the PMU itself makes of a name.
    fn ask(&mut self, pmu: &Pmu, name: String, shown: &str, source: EventSource) {
        match pmu.encode(&Event::Raw(name.clone())) {
            Ok(encoding) => {
                let encoding = Encoding {
                    name: shown.to_string().into(),
                    ..encoding
                };
                self.add(name, encoding, source);
            }
            Err(error) => self.unknown(shown, &error.root_cause().to_string()),
        }
    }

    fn unknown(&mut self, name: &str, why: &str) {
        let unknown = &mut self.candidates.unknown;
        unknown.push((name.to_string(), why.to_string()));
    }
}

/// Which general counters can count an event of which so many at once found room, of `general`: where it is
/// not all, the first so many, as on every PMU of our tables whose counters differ.
pub fn counters_for(copies: u32, general: u32) -> u64 {
    match copies >= general {
        true => ANY,
        false => (1 << copies) - 1,
    }
}

/// Sorts events into sets that are counted one after the other, each with `base` (instructions and cycles)
/// in front: those that few counters can count first, each in the first set with room. Also the events
/// that have no room beside `base` alone. `fits` says whether so much is counted at once.
pub fn rotation(
    base: &[Encoding],
    events: &[(Event, Encoding)],
    fits: &mut dyn FnMut(&[Encoding]) -> bool,
) -> (Vec<EventSet>, Vec<Event>) {
    let mut order: Vec<usize> = (0..events.len()).collect();
    order.sort_by_key(|&n| events[n].1.general.count_ones());
    let mut members: Vec<Vec<usize>> = Vec::new();
    let mut homeless = Vec::new();
    let all = |set: &[usize]| -> Vec<Encoding> {
        let of = set.iter().map(|&n| events[n].1.clone());
        base.iter().cloned().chain(of).collect()
    };
    for n in order {
        let room = members.iter_mut().find(|set| {
            let with = [&set[..], &[n]].concat();
            fits(&all(&with))
        });
        match room {
            Some(set) => set.push(n),
            None if fits(&all(&[n])) => members.push(vec![n]),
            None => homeless.push(events[n].0.clone()),
        }
    }
    let set_of = |mut members: Vec<usize>| {
        members.sort_unstable();
        let named = members.iter().enumerate();
        let named = named.map(|(place, &n)| (events[n].0.clone(), base.len() + place));
        let always = [
            (Meaning::Instructions.into(), sets::INSTRUCTIONS),
            (Meaning::Cycles.into(), sets::CYCLES),
        ];
        EventSet {
            counters: all(&members),
            events: always.into_iter().chain(named).collect(),
        }
    };
    (members.into_iter().map(set_of).collect(), homeless)
}

#[cfg(test)]
mod tests {
    use super::super::facts::{MachineFacts, PmuFacts};
    use super::super::format::Field;
    use super::super::identify::CpuIdentity;
    use super::super::listed::VendorLists;
    use super::super::machine::MachinePmus;
    use super::*;

    fn p_core(model: u32) -> Pmu {
        let field = |name: &str, bits: &str| (name.to_string(), Field::parse(bits).unwrap());
        let event = |name: &str, terms: &str| (name.to_string(), terms.to_string());
        let pmu = PmuFacts {
            name: "cpu_core".into(),
            type_id: 4,
            cpus: vec![0],
            cpu: Some(CpuIdentity::Intel { family: 6, model }),
            formats: [
                field("event", "config:0-7"),
                field("umask", "config:8-15"),
                field("ldlat", "config1:0-15"),
            ]
            .into(),
            events: [
                event("instructions", "event=0xc0"),
                event("cpu-cycles", "event=0x3c"),
                event("branch-misses", "event=0xc5"),
                event("mem-loads", "event=0xcd,umask=0x1,ldlat=3"),
                event("odd", "weather=1"),
            ]
            .into(),
        };
        let facts = MachineFacts {
            pmus: vec![pmu],
            ..MachineFacts::default()
        };
        MachinePmus::from_facts(facts).pmus.remove(0)
    }

    fn lists() -> Vec<ListedEvent> {
        let text = r#"[
            {"EventName": "L2_LINES_IN.ALL", "EventCode": "0x25", "UMask": "0x1f", "Unit": "cpu_core"},
            {"EventName": "BR_MISP_RETIRED.ALL_BRANCHES", "EventCode": "0xc5", "Unit": "cpu_core"},
            {"EventName": "FOR.E", "EventCode": "0x34", "Unit": "cpu_atom"},
            {"EventName": "TOO.WIDE", "EventCode": "0x134", "Unit": "cpu_core"}
        ]"#;
        VendorLists::parse(&[("list".into(), text.into())])
            .unwrap()
            .events
    }

    fn by_name<'c>(all: &'c Candidates, name: &str) -> Option<&'c Candidate> {
        all.found.iter().find(|of| of.name == name)
    }

    #[test]
    fn each_code_is_there_once_under_its_best_known_name() {
        let pmu = p_core(0x9a);
        let all = candidates(&pmu, &[], &lists());
        let misses = by_name(&all, "branch-misses").unwrap();
        assert_eq!(misses.sources, EventSource::ALL.into(), "each names it");
        let listed = by_name(&all, "cpu_core/r1f25/").unwrap();
        assert_eq!(listed.encoding.name, "L2_LINES_IN.ALL");
        assert!(by_name(&all, "cpu_core/mem-loads/").is_some());
        assert!(by_name(&all, "cpu_core/LLC-loads/").is_some());
        assert!(by_name(&all, "instructions").is_none());
        assert!(by_name(&all, "cpu_core/cpu-cycles/").is_none());
        let unknown: Vec<_> = all.unknown.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(unknown, ["odd", "TOO.WIDE"]);
        for candidate in &all.found {
            let encoded = pmu.encode(&Event::from(candidate.name.clone())).unwrap();
            assert!(same(&encoded, &candidate.encoding), "{}", candidate.name);
        }
    }

    #[test]
    fn a_machine_without_a_table_has_sysfs_lists_and_the_kernel() {
        let all = candidates(&p_core(0xfe), &[], &lists());
        let misses = by_name(&all, "branch-misses").unwrap();
        let named = [EventSource::Sysfs, EventSource::List, EventSource::Kernel];
        assert_eq!(misses.sources, named.into());
        let branches = by_name(&all, "branches").unwrap();
        assert_eq!(branches.sources, [EventSource::Kernel].into());
        assert!(by_name(&all, "fp-ops").is_none());
    }

    #[test]
    fn sets_are_as_full_as_they_may_be_and_have_the_base_in_front() {
        let base = [Encoding::raw(0xc0, "i"), Encoding::raw(0x3c, "c")];
        let event = |n: u64, general| {
            let encoding = Encoding {
                general,
                ..Encoding::raw(n, n.to_string())
            };
            (Event::Raw(n.to_string()), encoding)
        };
        let events = [
            event(1, ANY),
            event(2, 1),
            event(3, 1),
            event(4, ANY),
            event(5, ANY),
        ];
        // Two beside the base, one of those with a single counter; the fifth not at all.
        let mut fits = |all: &[Encoding]| {
            let few = all.iter().filter(|of| of.general == 1).count();
            all.len() <= 4 && few <= 1 && all.iter().all(|of| of.config != 5)
        };
        let (sets, homeless) = rotation(&base, &events, &mut fits);
        let codes: Vec<Vec<u64>> = sets
            .iter()
            .map(|set| set.counters.iter().map(|of| of.config).collect())
            .collect();
        assert_eq!(codes, [[0xc0, 0x3c, 1, 2], [0xc0, 0x3c, 3, 4]]);
        assert_eq!(sets[0].events[2], (Event::Raw("1".into()), 2));
        assert_eq!(homeless, [Event::Raw("5".into())]);
    }

    #[test]
    fn how_many_at_once_find_room_tells_which_counters() {
        assert_eq!(counters_for(8, 8), ANY);
        assert_eq!(counters_for(4, 8), 0xf);
        assert_eq!(counters_for(1, 8), 1);
    }
}
