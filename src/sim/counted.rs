// SPDX-License-Identifier: GPL-2.0-only
//! What is counted of threads on a simulated machine: what the scheduler would count on PMUs like its own
//! ([`CountedFor`]), as far as the model knows of it.
//!
//! Events that would take turns are counted all the time here.

use anyhow::Result;
use toml::Spanned;

use super::kernel::ThreadCounts;
use super::machine::{Core, SimulatedMachine};
use super::sourced::SourceText;
use crate::agent::counted::CountedFor;
use crate::pmu::sample::{EventCounts, Layout};
use crate::pmu::{Event, Meaning, Pmu, plan, tables};

/// An event that the model of a machine knows of, and its count.
type KnownEvent = (Meaning, fn(&ThreadCounts) -> f64);

const KNOWN: [KnownEvent; 7] = [
    (Meaning::Instructions, |of| of.instructions),
    (Meaning::Cycles, |of| of.cycles),
    (Meaning::LlcMisses, |of| of.misses),
    (Meaning::Loads, |of| of.loads),
    (Meaning::Branches, |of| of.branches),
    (Meaning::LlcReferences, |of| of.references),
    (Meaning::StalledMem, |of| of.stalled),
];

/// Whose counters a core has of which nothing is said.
pub(super) const USUAL: &str = "golden-cove";

/// What counts as a microarchitecture of this name does.
pub(super) fn pmu(source: &SourceText, name: Option<&Spanned<String>>) -> Result<Pmu> {
    let (name, at) = name.map_or((USUAL, 0), |name| (name.get_ref(), name.span().start));
    match tables::by_name(name) {
        Some(table) => Ok(Pmu::of_table(table)),
        None => {
            let known: Vec<&str> = tables::TABLES.iter().map(|table| table.name).collect();
            let known = known.join(", ");
            source.wrong(
                at,
                &format!("there is no table of {name}'s events, but of {known}"),
            )
        }
    }
}

/// Events of these names.
pub(super) fn meanings(source: &SourceText, names: &[Spanned<String>]) -> Result<Vec<Event>> {
    let event = |name: &Spanned<String>| match name.get_ref().parse::<Meaning>() {
        Ok(meaning) => Ok(meaning.into()),
        Err(why) => source.wrong(name.span().start, &format!("{why:#}")),
    };
    names.iter().map(event).collect()
}

/// What is counted on one core type.
struct TypeEvents {
    /// Of [`KNOWN`], in order.
    known: Vec<&'static KnownEvent>,
    layout: Layout,
}

/// What is counted, by core type.
pub(super) struct SimulatedEvents(Vec<TypeEvents>);

impl SimulatedEvents {
    /// What is counted on this machine for the sake of these.
    pub(super) fn plan(machine: &SimulatedMachine, counted: &CountedFor) -> Self {
        let of_type = |(core_type, core): (usize, &Core)| {
            let plan = plan(&counted.events(core_type, &core.pmu), &core.pmu);
            let is_counted = |(meaning, _): &&KnownEvent| {
                let always = matches!(meaning, Meaning::Instructions | Meaning::Cycles);
                always || plan.find(&(*meaning).into()).is_some()
            };
            let known: Vec<_> = KNOWN.iter().filter(is_counted).collect();
            let layout = known.iter().map(|(meaning, _)| *meaning).collect();
            TypeEvents { known, layout }
        };
        Self(machine.cores.iter().enumerate().map(of_type).collect())
    }

    /// How many events there are, by core type.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u8> {
        self.0.iter().map(|of| of.known.len() as u8)
    }

    /// What events of a core type have counted from `before` to `now`, in the order in which samples have it.
    pub(super) fn between(
        &self,
        core_type: usize,
        before: &ThreadCounts,
        now: &ThreadCounts,
    ) -> impl Iterator<Item = f64> {
        self.0[core_type]
            .known
            .iter()
            .map(|(_, count)| count(now) - count(before))
    }

    /// The counts of a sample.
    pub(super) fn counts(&self, core_type: usize, raw: impl Iterator<Item = u64>) -> EventCounts {
        let TypeEvents { known, layout } = &self.0[core_type];
        let raw = raw.map(|count| count as f64);
        EventCounts::new(layout, raw.take(known.len()))
    }
}
