// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero collect --discover`: all events that anything names for this machine's PMUs are measured, in
//! rotation over runs, to find out which of them matter (Zellweger, Lin and Roscoe 2016, section 5).
//!
//! What a machine has hundreds of, mostly counts nothing. So the kernel is asked first which events it takes, and
//! one short run of each program tells which of those count at all; only these get runs of their own.

pub(super) mod lists;
mod probe;
mod scout;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use crossbeam::channel::Receiver;

use self::scout::Scouting;
use super::args::Args;
use super::suite::Suite;
use super::{Counted, LEAST_RUNS};
use crate::ml::events;
use crate::ml::header::TableHeader;
use crate::output;
use crate::pmu::candidates::{Candidate, EventSource, candidates, rotation};
use crate::pmu::listed::VendorLists;
use crate::pmu::{Event, MachinePmus, Meaning, Pmu};
use crate::text::wrap;
use crate::topology::{CoreType, Topology};

/// So many names are told of what is left out for one reason.
const TOLD: usize = 6;

/// What is left of a core type's events, and why the others are not.
struct Sifted<'m> {
    pmu: &'m Pmu,
    name: String,
    named: usize,
    by_source: BTreeMap<EventSource, usize>,
    candidates: Vec<Candidate>,
    /// By reason.
    left_out: BTreeMap<&'static str, Vec<String>>,
}

/// What is counted on each core type, and in which runs; `None` if interrupted.
///
/// # Errors
/// In words: a list is broken, or nothing can be counted.
pub(super) fn counted(
    args: &Args,
    lists: &VendorLists,
    (machine, topology): (&MachinePmus, &Topology),
    suite: &Suite,
    stop: &Receiver<()>,
) -> Result<Option<Vec<Counted>>> {
    for (why, number) in &lists.left_out {
        output::note(format_args!(
            "{number} events of the lists are left out: {why}."
        ));
    }
    let mut all = Vec::new();
    for kind in &topology.types {
        all.push(sift(kind, machine, lists)?);
    }
    let took = match chosen_before(args)? {
        // The same again, or the table could not be gone on with.
        Some(before) => {
            for of in &mut all {
                let names = before.get(&of.name);
                let kept =
                    |candidate: &Candidate| names.is_some_and(|all| all.contains(&candidate.name));
                of.candidates.retain(kept);
            }
            None
        }
        None => {
            let scouting = Scouting {
                args,
                topology,
                suite,
                stop,
            };
            let Some(took) = scouting.sift(&mut all)? else {
                return Ok(None);
            };
            Some(took)
        }
    };
    let mut counted = Vec::new();
    for mut of in all {
        output::note(of.told());
        counted.push(of.in_turns()?);
    }
    output::note(wrap(&runs(&counted, suite.programs.len(), took.as_deref())));
    Ok(Some(counted))
}

/// The events of a table that this command has begun, by core type.
fn chosen_before(args: &Args) -> Result<Option<BTreeMap<String, BTreeSet<String>>>> {
    if !args.output.exists() {
        return Ok(None);
    }
    let header = TableHeader::read(&args.output)?;
    Ok(header.map(|header| {
        let pmus = header.machine.pmus.into_iter();
        pmus.map(|pmu| (pmu.core_type, pmu.events.into_keys().collect()))
            .collect()
    }))
}

/// What the kernel takes of all that is named for a core type's PMU.
fn sift<'m>(kind: &CoreType, machine: &'m MachinePmus, lists: &VendorLists) -> Result<Sifted<'m>> {
    let pmu = machine
        .pmu_of(kind.cpus[0])
        .ok_or_else(|| anyhow!("no PMU counts on core type {}", kind.name))?;
    let (_, further) = events::countable(pmu);
    let found = candidates(pmu, &further, &lists.events);
    let mut by_source = BTreeMap::new();
    for source in found.found.iter().flat_map(|of| &of.sources) {
        *by_source.entry(*source).or_default() += 1;
    }
    let mut sifted = Sifted {
        pmu,
        name: kind.name.clone(),
        named: found.found.len(),
        by_source,
        candidates: Vec::new(),
        left_out: BTreeMap::new(),
    };
    for (name, _) in found.unknown {
        sifted.leave_out("do not fit the PMU's format", name);
    }
    for candidate in found.found {
        match probe::takes(pmu, &candidate.encoding)? {
            true => sifted.candidates.push(candidate),
            false => sifted.leave_out(
                "are refused by the kernel",
                candidate.encoding.name.to_string(),
            ),
        }
    }
    Ok(sifted)
}

impl Sifted<'_> {
    fn leave_out(&mut self, why: &'static str, name: String) {
        self.left_out.entry(why).or_default().push(name);
    }

    /// What became of all that is named, for people.
    fn told(&self) -> String {
        let sources = self.by_source.iter();
        let sources: Vec<_> = sources
            .map(|(source, n)| format!("{n} {}", source.name()))
            .collect();
        let mut text = format!(
            "{} ({}): {} events are named, {}; {} count something.",
            self.name,
            self.pmu.name,
            self.named,
            sources.join(", "),
            self.candidates.len()
        );
        for (why, names) in &self.left_out {
            let more = names.len().saturating_sub(TOLD);
            let more = match more {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let first = names[..names.len().min(TOLD)].join(", ");
            text += &format!(" {} {why}: {first}{more}.", names.len());
        }
        wrap(&text)
    }

    /// Finds out which counters can count what is left, and sorts it into sets.
    fn in_turns(&mut self) -> Result<Counted> {
        let base = [Meaning::Instructions, Meaning::Cycles].map(|of| self.pmu.meaning(of));
        let [Some(instructions), Some(cycles)] = base else {
            bail!("{} cannot count instructions and cycles", self.pmu.name);
        };
        let base = [instructions, cycles];
        let mut pmu = self.pmu.clone();
        pmu.counters = probe::counters(&pmu, &base, &mut self.candidates)?;
        let all: Vec<(Event, _)> = self
            .candidates
            .iter()
            .map(|of| (Event::from(of.name.clone()), of.encoding.clone()))
            .collect();
        let mut refused = None;
        let (mut sets, homeless) = rotation(&base, &all, &mut |set| {
            probe::at_once(&pmu, set).unwrap_or_else(|error| {
                refused = Some(error);
                false
            })
        });
        if let Some(error) = refused {
            return Err(error);
        }
        for event in &homeless {
            log::warn!("{}: no counter is free for {event}", self.name);
        }
        if sets.is_empty() {
            sets = crate::pmu::plan(&[], &pmu).sets;
        }
        let mut places = Vec::new();
        for of in &self.candidates {
            let event = Event::from(of.name.clone());
            let found = sets.iter().enumerate().find_map(|(number, set)| {
                let (_, counter) = set.events.iter().find(|(known, _)| *known == event)?;
                Some((of.name.clone(), number, *counter))
            });
            places.extend(found);
        }
        let sources = self.candidates.iter();
        Ok(Counted {
            name: self.name.clone(),
            sets,
            places,
            counters: pmu.counters,
            sources: sources
                .map(|of| (of.name.clone(), of.sources.clone()))
                .collect(),
        })
    }
}

/// How much there is to do. `took`: what a run of each program takes on each core type.
fn runs(counted: &[Counted], programs: usize, took: Option<&[Duration]>) -> String {
    let of = |counted: &Counted| counted.sets.len().max(LEAST_RUNS);
    let each: Vec<String> = counted
        .iter()
        .map(|of_type| {
            let sets = of_type.sets.len();
            format!("{} on {} for {sets} sets", of(of_type), of_type.name)
        })
        .collect();
    let all: usize = counted.iter().map(of).sum::<usize>() * programs;
    let time = took.map(|took| {
        let times = counted.iter().zip(took);
        let all: f64 = times
            .map(|(counted, took)| of(counted) as f64 * took.as_secs_f64())
            .sum();
        format!(", some {:.0} min", (all / 60.0).ceil())
    });
    format!(
        "Each program runs {}: {all} runs in all{}, if speeds are steady.",
        each.join(", "),
        time.unwrap_or_default()
    )
}
