// SPDX-License-Identifier: GPL-2.0-or-later
//! Event sets: which events are counted together, so that a PMU can count each set at once.
//!
//! Instructions and cycles are in every set. All events go into one set if they fit, else into
//! few: the ones that the fewest counters can count are placed first, each in the first set with
//! room. Where counters' abilities are nested, as they are on all PMUs of our tables, no plan has
//! fewer sets. The same wish on the same PMU gives the same plan.

use serde::Serialize;

use super::event::{Encoding, Event, Meaning};
use super::machine::Pmu;
use super::tables::Counters;
use crate::limits::MAX_EVENTS;

/// Position of instructions in [`EventSet::counters`].
pub const INSTRUCTIONS: usize = 0;
/// Position of cycles in [`EventSet::counters`].
pub const CYCLES: usize = 1;

/// What is counted at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventSet {
    /// What to open on each CPU: [`INSTRUCTIONS`], [`CYCLES`], and the rest in the order wished.
    pub counters: Vec<Encoding>,
    /// The events wished that this set counts, each with its position in `counters`. Two that the
    /// PMU counts by the same code share one.
    pub events: Vec<(Event, usize)>,
}

/// An event that is in no set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Absent {
    /// What was wished.
    pub event: Event,
    /// Why it cannot be had.
    pub why: String,
}

/// How the events wished are counted on a PMU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// In the order in which they take turns. Empty where instructions and cycles cannot be
    /// counted: then nothing is.
    pub sets: Vec<EventSet>,
    /// What is not counted, in the order wished.
    pub absent: Vec<Absent>,
}

impl Plan {
    /// In which set, and where there, an event is counted.
    pub fn find(&self, event: &Event) -> Option<(usize, usize)> {
        self.sets.iter().enumerate().find_map(|(number, set)| {
            let (_, counter) = set.events.iter().find(|(e, _)| e == event)?;
            Some((number, *counter))
        })
    }
}

/// Plans the sets in which `pmu` counts what is wished. Without a wish there is one set, of
/// instructions and cycles.
pub fn plan(wished: &[Event], pmu: &Pmu) -> Plan {
    let base = [Meaning::Instructions, Meaning::Cycles].map(|meaning| pmu.meaning(meaning));
    let held = pmu.held();
    let fits = |counters: &[Encoding]| {
        let all: Vec<_> = counters.iter().chain(&held).collect();
        fit(&all, pmu.counters)
    };
    let mut events: Vec<&Event> = Vec::new();
    for event in wished {
        if !events.contains(&event) {
            events.push(event);
        }
    }
    let base = match base {
        [Some(instructions), Some(cycles)] => vec![instructions, cycles],
        _ => {
            return nothing(
                &events,
                &format!("{} cannot count instructions and cycles", pmu.name),
            );
        }
    };
    if !fits(&base) {
        return nothing(&events, &format!("{} has too few counters free", pmu.name));
    }

    // What to count, each code once; and why not.
    let mut distinct = base.clone();
    let mut found = Vec::new();
    let mut absent = Vec::new();
    for &event in &events {
        let encoding = match pmu.encode(event) {
            Ok(encoding) => encoding,
            Err(error) => {
                let why = format!("{error:#}");
                absent.push(Absent {
                    event: event.clone(),
                    why,
                });
                continue;
            }
        };
        let known = distinct.iter().position(|other| same(other, &encoding));
        let index = known.unwrap_or(distinct.len());
        if known.is_none() {
            let alone = [&base[..], std::slice::from_ref(&encoding)].concat();
            if !fits(&alone) {
                let why = format!("no counter of {} is free for it", pmu.name);
                absent.push(Absent {
                    event: event.clone(),
                    why,
                });
                continue;
            }
            distinct.push(encoding);
        }
        found.push((event, index));
    }

    let mut order: Vec<usize> = (base.len()..distinct.len()).collect();
    order.sort_by_key(|&index| choices(&distinct[index], pmu.counters).count());
    let mut members: Vec<Vec<usize>> = vec![(0..base.len()).collect()];
    for index in order {
        let room = members.iter_mut().find(|set| {
            let with = set.iter().chain([&index]).map(|&i| distinct[i].clone());
            fits(&with.collect::<Vec<_>>())
        });
        match room {
            Some(set) => set.push(index),
            None => members.push((0..base.len()).chain([index]).collect()),
        }
    }
    let sets = members.into_iter().map(|mut set| {
        set.sort_unstable();
        let place = |index: &usize| set.iter().position(|i| i == index);
        let events = found
            .iter()
            .filter_map(|(event, i)| Some(((*event).clone(), place(i)?)));
        EventSet {
            events: events.collect(),
            counters: set.iter().map(|&i| distinct[i].clone()).collect(),
        }
    });
    Plan {
        sets: sets.collect(),
        absent,
    }
}

/// Adds events, as far as nothing has to take turns for them.
pub fn add_what_fits(wishes: &mut Vec<Event>, more: &[Meaning], pmu: &Pmu) {
    let sets = |events: &[Event]| plan(events, pmu).sets;
    let needed = sets(wishes).len();
    for event in more.iter().copied().map(Event::from) {
        if wishes.contains(&event) {
            continue;
        }
        wishes.push(event.clone());
        let sets = sets(wishes);
        let fits = |set: &EventSet| set.counters.len() <= MAX_EVENTS;
        let counted = |set: &EventSet| set.events.iter().any(|(of, _)| *of == event);
        if sets.len() > needed.max(1) || !sets.iter().all(fits) || !sets.iter().any(counted) {
            wishes.pop();
        }
    }
}

fn nothing(events: &[&Event], why: &str) -> Plan {
    let absent = events.iter().map(|&event| Absent {
        event: event.clone(),
        why: why.to_string(),
    });
    Plan {
        sets: Vec::new(),
        absent: absent.collect(),
    }
}

/// Both count the same, whatever they are called.
pub(super) fn same(a: &Encoding, b: &Encoding) -> bool {
    let code = |e: &Encoding| (e.space, e.config, e.config1, e.config2);
    code(a) == code(b)
}

/// The counters that can count an event: general ones by number, the fixed ones after them.
fn choices(encoding: &Encoding, counters: Counters) -> impl Iterator<Item = usize> {
    let mask = encoding.general;
    let general = (0..counters.general.min(64)).filter(move |n| mask >> n & 1 != 0);
    let fixed = encoding
        .fixed
        .map(u32::from)
        .filter(|&n| n < counters.fixed);
    let fixed = fixed.map(|n| counters.general + n);
    general.chain(fixed).map(|n| n as usize)
}

/// Whether each event can have a counter of its own.
pub fn fit(events: &[&Encoding], counters: Counters) -> bool {
    let mut holder = vec![None; (counters.general + counters.fixed) as usize];
    (0..events.len()).all(|event| {
        let mut tried = vec![false; holder.len()];
        place(event, events, counters, &mut holder, &mut tried)
    })
}

/// Finds a counter for `event`; one that holds it already moves on if it can.
fn place(
    event: usize,
    events: &[&Encoding],
    counters: Counters,
    holder: &mut [Option<usize>],
    tried: &mut [bool],
) -> bool {
    for counter in choices(events[event], counters) {
        if std::mem::replace(&mut tried[counter], true) {
            continue;
        }
        let free = match holder[counter] {
            None => true,
            Some(other) => place(other, events, counters, holder, tried),
        };
        if free {
            holder[counter] = Some(event);
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::facts::{MachineFacts, PmuFacts};
    use super::super::identify::CpuIdentity;
    use super::super::machine::MachinePmus;
    use super::*;

    fn pmu(name: &str, cpu: CpuIdentity, nmi_watchdog: bool) -> Pmu {
        let pmu = PmuFacts {
            name: name.to_string(),
            type_id: 4,
            cpus: vec![0],
            cpu: Some(cpu),
            ..PmuFacts::default()
        };
        let facts = MachineFacts {
            pmus: vec![pmu],
            nmi_watchdog,
            counters_by_type: true,
            counters: None,
        };
        MachinePmus::from_facts(facts).pmus.remove(0)
    }

    fn p_core() -> Pmu {
        pmu(
            "cpu_core",
            CpuIdentity::Intel {
                family: 6,
                model: 0x9a,
            },
            false,
        )
    }

    fn zen(nmi_watchdog: bool) -> Pmu {
        let cpu = CpuIdentity::Amd {
            family: 0x1a,
            model: 0x24,
        };
        pmu("cpu", cpu, nmi_watchdog)
    }

    fn events(text: &str) -> Vec<Event> {
        text.split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect()
    }

    /// The events of each set, by name.
    fn sets(plan: &Plan) -> Vec<String> {
        let names = |set: &EventSet| {
            let names: Vec<_> = set
                .events
                .iter()
                .map(|(event, _)| event.to_string())
                .collect();
            names.join(" ")
        };
        plan.sets.iter().map(names).collect()
    }

    #[test]
    fn what_fits_is_counted_at_once() {
        let wished = events("branch-misses llc-misses llc-references l1-misses");
        let plan = plan(&wished, &zen(false));
        assert_eq!(
            sets(&plan),
            ["branch-misses llc-misses llc-references l1-misses"]
        );
        assert!(plan.absent.is_empty());
        let names: Vec<_> = plan.sets[0]
            .counters
            .iter()
            .map(|c| c.name.as_ref())
            .collect();
        assert_eq!(
            names[..3],
            ["ex_ret_instr", "ls_not_halted_cyc", "ex_ret_brn_misp"]
        );
        assert_eq!(plan.find(&wished[1]), Some((0, 3)));
    }

    #[test]
    fn more_is_wished_as_long_as_no_event_takes_turns() {
        let mut wished = events("llc-misses loads");
        let more = [Meaning::BranchMisses, Meaning::Loads, Meaning::Stores];
        add_what_fits(&mut wished, &more, &p_core());
        assert_eq!(wished, events("llc-misses loads branch-misses stores"));
        let mut wished = events("branch-misses llc-misses llc-references");
        add_what_fits(&mut wished, &more, &zen(true));
        assert_eq!(wished.len(), 3, "the watchdog has the sixth counter");
    }

    #[test]
    fn the_watchdog_takes_a_counter() {
        let wished = events("branch-misses llc-misses llc-references l1-misses");
        let watched = plan(&wished, &zen(true));
        assert_eq!(
            sets(&watched),
            ["branch-misses llc-misses llc-references", "l1-misses"]
        );
        for set in &watched.sets {
            assert_eq!(set.counters[INSTRUCTIONS].name, "ex_ret_instr");
            assert_eq!(set.counters[CYCLES].name, "ls_not_halted_cyc");
        }
        // With fixed counters it sits on the one for cycles, and cycles on a general one.
        let mut p = p_core();
        let eight = events(
            "branches branch-misses llc-references llc-misses fp-ops divider \
                            loads stores",
        );
        assert_eq!(plan(&eight, &p).sets.len(), 1);
        p.watchdog = true;
        assert_eq!(plan(&eight, &p).sets.len(), 2);
        assert_eq!(plan(&eight[..7], &p).sets.len(), 1);
    }

    #[test]
    fn counters_that_cannot_count_everything_split_sets() {
        // Five of these have four counters between them; eight are free.
        let wished = events("llc-misses loads stores l1-misses l2-misses dtlb-misses branches");
        let plan = plan(&wished, &p_core());
        assert_eq!(
            sets(&plan),
            [
                "llc-misses loads stores l1-misses l2-misses branches",
                "dtlb-misses"
            ]
        );
    }

    #[test]
    fn few_sets_for_everything() {
        let all: Vec<Event> = Meaning::all().iter().map(|&m| m.into()).collect();
        for (pmu, expected) in [(p_core(), 2), (zen(false), 4), (zen(true), 6)] {
            let plan = plan(&all, &pmu);
            assert_eq!(plan.sets.len(), expected, "{}", pmu.name);
            assert_eq!(plan.absent, []);
            let counted: usize = plan.sets.iter().map(|set| set.events.len()).sum();
            // Instructions and cycles are events of every set.
            assert_eq!(counted, all.len() + 2 * (expected - 1));
        }
    }

    #[test]
    fn what_the_pmu_lacks_is_said_and_what_it_counts_alike_is_counted_once() {
        let e = pmu(
            "cpu_atom",
            CpuIdentity::Intel {
                family: 6,
                model: 0x9a,
            },
            false,
        );
        let plan = plan(&events("fp-ops loads l1-accesses r4f2e nonsense loads"), &e);
        assert_eq!(sets(&plan), ["loads l1-accesses r4f2e"]);
        assert_eq!(plan.sets[0].counters.len(), 4);
        assert_eq!(plan.absent[0].event, Meaning::FpOps.into());
        assert_eq!(
            plan.absent[0].why,
            "cpu_atom (gracemont) cannot count fp-ops"
        );
        assert!(
            plan.absent[1]
                .why
                .contains("'nonsense' is no event of cpu_atom")
        );
        assert_eq!(plan.absent.len(), 2);
    }

    #[test]
    fn no_wish_is_instructions_and_cycles_and_no_counter_is_nothing() {
        let mut pmu = zen(false);
        let least = plan(&[], &pmu);
        assert_eq!((least.sets.len(), least.sets[0].counters.len()), (1, 2));
        pmu.counters.general = 2;
        let none = plan(&events("llc-misses cycles"), &pmu);
        assert_eq!(sets(&none), ["cycles"]);
        assert_eq!(none.absent[0].why, "no counter of cpu is free for it");
        pmu.counters.general = 1;
        let none = plan(&events("cycles"), &pmu);
        assert!(none.sets.is_empty());
        assert_eq!(none.absent[0].why, "cpu has too few counters free");
    }

    #[test]
    fn events_move_on_to_make_room() {
        let any = Encoding::raw(1, "any");
        let first = Encoding {
            general: 1,
            ..Encoding::raw(2, "first")
        };
        let counters = Counters {
            general: 2,
            fixed: 0,
        };
        assert!(fit(&[&any, &first], counters));
        assert!(!fit(&[&first, &first], counters));
        let fixed = Encoding {
            fixed: Some(0),
            ..Encoding::raw(3, "fixed")
        };
        assert!(!fit(&[&any, &any, &fixed], counters));
        assert!(fit(
            &[&any, &any, &fixed],
            Counters {
                fixed: 1,
                ..counters
            }
        ));
    }
}
