// SPDX-License-Identifier: GPL-2.0-or-later
//! Which events are counted of threads, and for what: decided here alone, for the scheduler in the kernel and for the
//! simulator.
//!
//! What the policy, its model and the user ask for is counted, in turns if need be. What others would like besides is
//! counted as far as no event has to take turns for it. Under a policy that goes by no counters only what you ask for
//! is counted: each counter costs some 500 instructions at every switch (docs/counters.md#cost).

use crate::energy::model::FOR_ENERGY;
use crate::interference::InterferenceClass;
use crate::ml::live::{OF_PHASES, TO_LEARN_FROM};
use crate::pmu::sets::{add_what_fits, plan};
use crate::pmu::{Event, Meaning, Pmu};
use crate::policy::Policy;
use crate::topology::Topology;

/// What [interference](crate::interference) is told by besides instructions and cycles: misses, without which two
/// classes never are, and loads, or each other phase of a thread looks disturbed. Branches would add little to
/// that (docs/interference.md#what-is-counted-for-it).
pub const FOR_INTERFERENCE: [Meaning; 2] = [Meaning::LlcMisses, Meaning::Loads];

/// See the module.
#[derive(Clone, Copy, Default)]
pub struct CountedFor<'a> {
    /// What the policy needs ([`Policy::events`]); `None`: it goes by no counters.
    pub policy: Option<&'a [Meaning]>,
    /// What it goes by besides on core types of this machine whose cores have several threads ([`Policy::events_of_siblings`]).
    pub siblings: Option<(&'a Topology, &'static [Meaning])>,
    /// What a model at work needs, by core type.
    pub model: Option<&'a dyn Fn(usize) -> Vec<Event>>,
    /// What the user asks for.
    pub asked: &'a [Event],
    /// Caches are [partitioned](crate::cache).
    pub partition: bool,
    /// A model is learnt from what is counted.
    pub learns: bool,
    /// Joules are counted, and are to be told by thread.
    pub energy: bool,
}

impl<'a> CountedFor<'a> {
    /// For the sake of a policy alone.
    pub fn policy(policy: &'a dyn Policy, topology: &'a Topology) -> Self {
        // Where all are of one type, none is placed by what it does.
        let places = topology.types.len() > 1;
        Self {
            policy: policy.events(),
            siblings: places.then(|| (topology, policy.events_of_siblings())),
            ..Self::default()
        }
    }

    /// Whether anything is to be counted.
    pub fn anything(&self) -> bool {
        self.policy.is_some() || self.partition || !self.asked.is_empty()
    }

    /// What is to be counted on a core type, by its PMU.
    pub fn events(&self, core_type: usize, pmu: &Pmu) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        let mut add = |more: Vec<Event>| {
            for event in more {
                if !events.contains(&event) {
                    events.push(event);
                }
            }
        };
        let meant = |of: &[Meaning]| of.iter().map(|&of| Event::from(of)).collect();
        add(meant(self.policy.unwrap_or_default()));
        if let Some(model) = self.model {
            add(model(core_type));
        }
        add(self.asked.to_vec());
        if self.partition {
            add(meant(&[Meaning::Instructions, Meaning::LlcMisses]));
        }
        let mut add_what_fits = |more: &[Meaning]| add_what_fits(&mut events, more, pmu);
        if self.model.is_some() {
            add_what_fits(&OF_PHASES);
        }
        // You have asked for that, so it comes before what is only good to have.
        if self.learns {
            add_what_fits(&TO_LEARN_FROM);
        }
        if self.policy.is_some() {
            add_what_fits(&FOR_INTERFERENCE);
        }
        if self.energy {
            add_what_fits(&FOR_ENERGY);
        }
        if let Some((topology, more)) = self.siblings
            && topology.has_siblings(core_type)
        {
            add_what_fits(more);
        }
        events
    }

    /// What cannot be told of threads on a core type for want of counted events, and why, in words.
    pub fn untold(&self, core_type: usize, pmu: &Pmu) -> Option<String> {
        let missed = Event::from(Meaning::LlcMisses);
        if plan(&self.events(core_type, pmu), pmu)
            .find(&missed)
            .is_some()
        {
            return None;
        }
        let why = match pmu.encode(&missed) {
            Err(why) => format!("{why:#}"),
            Ok(_) if self.policy.is_none() => {
                format!("{missed} are not counted, as --events {missed} would have it")
            }
            Ok(_) => format!("no counter of {} is left for {missed}", pmu.name),
        };
        let classes = InterferenceClass::ALL.iter();
        let classes = classes.filter(|class| class.takes_misses());
        let names: Vec<&str> = classes.map(|class| class.told()).collect();
        let names = names.join(" and ");
        Some(format!("contention for {names} cannot be told: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::tables;
    use crate::policy::{Name, Settings};
    use crate::testing::{board, machine, with_smt};
    use clap::ValueEnum as _;

    fn pmu(name: &str) -> Pmu {
        Pmu::of_table(tables::by_name(name).unwrap())
    }

    fn names(counted: &CountedFor, pmu: &Pmu) -> String {
        let names = counted.events(0, pmu);
        let names: Vec<String> = names.iter().map(Event::to_string).collect();
        names.join(" ")
    }

    fn of_policy(name: Name) -> CountedFor<'static> {
        CountedFor {
            policy: name.build(Settings::default()).events(),
            ..CountedFor::default()
        }
    }

    #[test]
    fn interference_is_told_under_each_policy_that_counts_and_none_counts_for_it_alone() {
        for &name in Name::value_variants() {
            let counted = of_policy(name);
            for core in ["golden-cove", "gracemont", "cortex-a53", "zen5"] {
                let pmu = pmu(core);
                let events = names(&counted, &pmu);
                let is_told = events.contains("llc-misses");
                assert_eq!(
                    is_told,
                    counted.policy.is_some(),
                    "{name}, {core}: {events}"
                );
                assert_eq!(counted.untold(0, &pmu).is_none(), is_told);
                assert_eq!(plan(&counted.events(0, &pmu), &pmu).sets.len(), 1);
            }
        }
    }

    #[test]
    fn what_has_no_room_is_left_out_and_told() {
        let model = |_| {
            let names = "branches branch-misses loads stores fp-ops";
            names
                .split(' ')
                .map(|name| name.to_string().into())
                .collect()
        };
        let counted = CountedFor {
            policy: Some(&[]),
            model: Some(&model),
            energy: true,
            ..CountedFor::default()
        };
        let (full, free) = (pmu("cortex-a15"), pmu("golden-cove"));
        assert_eq!(
            names(&counted, &full),
            "branches branch-misses loads stores fp-ops"
        );
        let untold = counted.untold(0, &full).unwrap();
        assert!(
            untold.ends_with("cannot be told: no counter of cortex-a15 is left for llc-misses"),
            "{untold}"
        );
        assert!(names(&counted, &free).contains("llc-misses"));
        assert_eq!(counted.untold(0, &free), None);
    }

    #[test]
    fn what_the_user_asks_for_is_counted_before_what_interference_would_like() {
        let asked = ["dtlb-misses", "stalled-mem"].map(|name| Event::from(name.to_string()));
        let counted = CountedFor {
            asked: &asked,
            ..of_policy(Name::Rr)
        };
        assert!(counted.anything() && !of_policy(Name::Rr).anything());
        assert_eq!(
            names(&counted, &pmu("golden-cove")),
            "dtlb-misses stalled-mem"
        );
    }

    #[test]
    fn what_a_thread_waits_is_counted_where_it_tells_of_siblings_and_takes_no_turn() {
        let of = |name: Name, core: &str, topology: &Topology, energy| {
            let policy = name.build(Settings::default());
            let counted = CountedFor {
                energy,
                ..CountedFor::policy(policy.as_ref(), topology)
            };
            let without = CountedFor {
                siblings: None,
                ..counted
            };
            let pmu = pmu(core);
            assert_eq!(plan(&counted.events(0, &pmu), &pmu).sets.len(), 1);
            assert!(names(&counted, &pmu).starts_with(&names(&without, &pmu)));
            names(&counted, &pmu).contains("stalled-mem")
        };
        let smt = with_smt(board(4, 4), 0);
        assert!(of(Name::Camps, "golden-cove", &smt, false));
        // All seven beside the watchdog tell joules; of zen5's six, instructions and cycles are two.
        assert!(!of(Name::Camps, "golden-cove", &smt, true));
        assert!(!of(Name::Camps, "zen5", &smt, false));
        assert!(!of(Name::Hsp, "golden-cove", &smt, false));
        assert!(!of(Name::Camps, "golden-cove", &board(4, 4), false));
        assert!(!of(
            Name::Camps,
            "golden-cove",
            &with_smt(board(4, 4), 1),
            false
        ));
        assert!(!of(
            Name::Camps,
            "golden-cove",
            &with_smt(machine(&[4]), 0),
            false
        ));
    }

    #[test]
    fn what_is_learnt_from_comes_before_what_interference_would_like() {
        let counted = CountedFor {
            policy: Some(&[]),
            learns: true,
            ..CountedFor::default()
        };
        // Beside the watchdog there are seven.
        let events = names(&counted, &pmu("golden-cove"));
        assert!(
            events.contains("fp-ops") && !events.contains("llc-misses"),
            "{events}"
        );
        assert!(counted.untold(0, &pmu("golden-cove")).is_some());
    }
}
