// SPDX-License-Identifier: GPL-2.0-only
//! The agent's side of in-kernel counting: opens each core type's events on its CPUs, lets sets
//! take turns where they do not fit the PMU at once, and turns what BPF sends into [`Sample`]s.
//!
//! Everything is opened once per CPU and for all tasks together, so that no task costs a
//! descriptor or a system call. User and kernel mode are counted both, unless told otherwise: a
//! task's run time, which the counts are divided by, contains its time in the kernel too.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use libbpf_rs::{MapCore, MapFlags};
use rustc_hash::FxHashMap;

use super::counts::{self, EventCounts, Layout};
use super::open::CounterOptions;
use super::round::{IPC_JUMP, Round};
use super::sample::{Sample, SampleMetrics, SfEstimate};
use super::sets::{CYCLES, INSTRUCTIONS, Plan};
use super::{Counter, Event, EventSet, MachinePmus, Meaning, Pmu, Target, availability, plan};
use crate::bpf::intf;
use crate::mechanism::Mechanism;
use crate::table::TaskId;
use crate::topology::{MAX_CORE_TYPES, Topology};

const MAX_EVENTS: usize = intf::hetero_consts_MAX_EVENTS as usize;
const MAX_SETS: usize = intf::hetero_consts_MAX_SETS as usize;

/// The events of one core type.
struct TypeEvents {
    pmu: Pmu,
    plan: Plan,
    /// Of every sample.
    layout: Layout,
    cpus: Vec<u32>,
    /// By set, then CPU, then event.
    counters: Vec<Vec<Vec<Counter>>>,
    current: usize,
    /// What its clock cannot exceed, Hz.
    clock_limit: f64,
}

/// What became of samples, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleTally {
    /// Taken from the ring buffer.
    pub received: u64,
    /// Of them, thrown away because the task's IPC jumped within a round.
    pub jumped: u64,
    /// Of them, thrown away because the task waited actively for some of the time.
    pub spun: u64,
    /// Of them, refused because no CPU counts so much in that time.
    pub refused: u64,
}

/// No CPU of these years has a clock beyond, Hz. Where the kernel tells a core type's own it is
/// believed with a margin, for a short run is not timed as exactly as it is counted.
const HIGHEST_CLOCK: f64 = 10e9;
const CLOCK_MARGIN: f64 = 2.0;

/// Instructions, or any other event, per cycle of the highest clock; no CPU comes near it.
const PER_CYCLE: f64 = 16.0;

/// Opens events, takes samples. Counting ends when it is dropped.
pub struct Sampler {
    /// By core type; `None` where nothing can be counted.
    types: Vec<Option<TypeEvents>>,
    nr_cpu_ids: u32,
    user_only: bool,
    /// Whether sets take turns.
    rotates: bool,
    /// What ends a round, see [`IPC_JUMP`].
    jump: f64,
    rounds: FxHashMap<(TaskId, usize), Round>,
    tally: SampleTally,
}

impl Sampler {
    /// Plans the events that are `wished` on a core type and its PMU. Opens nothing yet. `without` names parts to
    /// leave out.
    ///
    /// # Errors
    /// One line that says why nothing can be counted here, and what to do about it.
    pub fn plan(
        machine: &MachinePmus,
        topology: &Topology,
        wished: &dyn Fn(usize, &Pmu) -> Vec<Event>,
        user_only: bool,
        without: &[Mechanism],
    ) -> Result<Self> {
        if let Err(why) = availability(machine) {
            bail!("{why}");
        }
        let types = topology.types.iter().enumerate().map(|(core_type, kind)| {
            let pmu = machine.pmu_of(*kind.cpus.first()?)?.clone();
            let mut wished = wished(core_type, &pmu);
            wished.retain(|event| !always(event));
            let plan = plan(&wished, &pmu);
            (!plan.sets.is_empty()).then(|| TypeEvents {
                pmu,
                layout: layout_of(&plan),
                plan,
                cpus: kind.cpus.clone(),
                counters: Vec::new(),
                current: 0,
                clock_limit: clock_limit(topology, core_type),
            })
        });
        let types: Vec<_> = types.collect();
        for events in types.iter().flatten() {
            let fits = |set: &EventSet| set.counters.len() <= MAX_EVENTS;
            let many = events.layout.events().len() > counts::MOST;
            if many || events.plan.sets.len() > MAX_SETS || !events.plan.sets.iter().all(fits) {
                let counted = events.plan.sets.iter().map(|set| set.events.len());
                bail!(
                    "{} events need more than {MAX_SETS} sets of {MAX_EVENTS} on {}; ask for fewer",
                    counted.sum::<usize>(),
                    events.pmu.name
                );
            }
        }
        if types.iter().all(Option::is_none) {
            bail!("no core type's PMU counts instructions and cycles");
        }
        Ok(Self {
            types,
            nr_cpu_ids: topology.nr_cpu_ids,
            user_only,
            rotates: !without.contains(&Mechanism::Rotation),
            jump: if without.contains(&Mechanism::Jump) {
                f64::INFINITY
            } else {
                IPC_JUMP
            },
            rounds: FxHashMap::default(),
            tally: SampleTally::default(),
        })
    }

    /// What is counted where, and what is not, in words.
    pub fn describe(&self, topology: &Topology) -> Vec<String> {
        let mut lines = Vec::new();
        for (kind, events) in topology.types.iter().zip(&self.types) {
            let Some(events) = events else {
                lines.push(format!("{}: nothing can be counted", kind.name));
                continue;
            };
            let sets = events.plan.sets.len();
            let turns = match sets {
                1 => String::new(),
                _ => format!(" in {sets} sets that take turns"),
            };
            let names = events.plan.sets.iter().flat_map(|set| &set.events);
            let names: Vec<String> = names.map(|(event, _)| event.to_string()).collect();
            let more = if names.is_empty() { "" } else { ", " };
            lines.push(format!(
                "{} counts instructions, cycles{more}{}{turns}, by {}",
                kind.name,
                names.join(", "),
                events.pmu.name
            ));
            for absent in &events.plan.absent {
                lines.push(format!(
                    "{}: no {}: {}",
                    kind.name, absent.event, absent.why
                ));
            }
        }
        lines
    }

    /// Which of `events` are not counted on a core type.
    pub fn lacks<'e>(&self, core_type: usize, events: &'e [Event]) -> Vec<&'e Event> {
        let of_type = self.types.get(core_type).and_then(Option::as_ref);
        let counted = |event: &Event| {
            of_type.is_some_and(|of| always(event) || of.plan.find(event).is_some())
        };
        events.iter().filter(|event| !counted(event)).collect()
    }

    /// Where an event stands in each sample from a core type; `None` if it is not counted there, or
    /// sets take turns.
    pub fn place(&self, core_type: usize, event: &Event) -> Option<usize> {
        let plan = &self.types.get(core_type)?.as_ref()?.plan;
        if plan.sets.len() != 1 {
            return None;
        }
        match event {
            Event::Meaning(Meaning::Instructions) => Some(INSTRUCTIONS),
            Event::Meaning(Meaning::Cycles) => Some(CYCLES),
            event => plan.find(event).map(|(_, place)| place),
        }
    }

    /// How many events each set of each core type has, for the BPF half.
    pub fn set_events(&self) -> [[u8; MAX_SETS]; MAX_CORE_TYPES] {
        let mut numbers = [[0; MAX_SETS]; MAX_CORE_TYPES];
        for (row, events) in numbers.iter_mut().zip(&self.types) {
            let sets = events.iter().flat_map(|events| &events.plan.sets);
            for (number, set) in row.iter_mut().zip(sets) {
                *number = set.counters.len() as u8;
            }
        }
        numbers
    }

    /// Entries that the map of events needs.
    pub fn map_entries(&self) -> u32 {
        let sets = self.types.iter().flatten().map(|e| e.plan.sets.len());
        (sets.max().unwrap_or(1) * MAX_EVENTS) as u32 * self.nr_cpu_ids
    }

    /// Opens all events and hands them to the BPF half. Those of the first set count at once.
    ///
    /// # Errors
    /// The first event that could not be opened, and why.
    pub fn open(&mut self, map: &impl MapCore) -> Result<()> {
        let nr_cpu_ids = self.nr_cpu_ids as usize;
        for events in self.types.iter_mut().flatten() {
            for (number, set) in events.plan.sets.iter().enumerate() {
                let options = CounterOptions {
                    disabled: number != 0,
                    exclude_kernel: self.user_only,
                    ..CounterOptions::default()
                };
                let mut of_set = Vec::with_capacity(events.cpus.len());
                for &cpu in &events.cpus {
                    let target = Target::Cpu(cpu);
                    // Each for itself: a group of all is refused where the kernel's watchdog
                    // or somebody's perf holds a counter, though all may still have theirs.
                    let mut of_cpu = Vec::with_capacity(set.counters.len());
                    for (place, encoding) in set.counters.iter().enumerate() {
                        let counter = Counter::open(&events.pmu, encoding, target, None, options)?;
                        let index = (number * MAX_EVENTS + place) * nr_cpu_ids + cpu as usize;
                        let fd = counter.as_fd().as_raw_fd();
                        map.update(
                            &(index as u32).to_ne_bytes(),
                            &fd.to_ne_bytes(),
                            MapFlags::ANY,
                        )
                        .with_context(|| format!("cannot hand {} to BPF", encoding.name))?;
                        of_cpu.push(counter);
                    }
                    of_set.push(of_cpu);
                }
                events.counters.push(of_set);
            }
        }
        Ok(())
    }

    /// How long a set counts before the next has its turn; `None` if no core type needs that.
    pub fn turn(&self, sample: Duration) -> Option<Duration> {
        let many = |events: &TypeEvents| events.plan.sets.len() > 1;
        // Long enough for a task that runs all the time to fill a sample under each.
        let any = self.types.iter().flatten().any(many);
        (any && self.rotates).then_some(2 * sample)
    }

    /// Gives the next set of each core type its turn. Returns the sets that count now.
    pub fn rotate(&mut self) -> [u8; MAX_CORE_TYPES] {
        let mut current = [0; MAX_CORE_TYPES];
        for (set, events) in current.iter_mut().zip(&mut self.types) {
            let Some(events) = events else { continue };
            let sets = events.plan.sets.len();
            if sets > 1 {
                // An event that will not start, its CPU being offline, counts nothing: its
                // stretches are found invalid.
                for counter in events.counters[events.current].iter().flatten() {
                    let _ = counter.disable();
                }
                events.current = (events.current + 1) % sets;
                for counter in events.counters[events.current].iter().flatten() {
                    let _ = counter.enable();
                }
            }
            *set = events.current as u8;
        }
        current
    }

    /// Whether a CPU can have counted what BPF has sent, which is counted one way or the other. To be
    /// asked before anything is made of it: what is learnt from one that cannot be is soon everywhere.
    pub fn admits(&mut self, raw: &intf::task_sample) -> bool {
        self.tally.received += 1;
        let events = self.types.get(usize::from(raw.core_type));
        let limit = events
            .and_then(Option::as_ref)
            .map_or(HIGHEST_CLOCK, |events| events.clock_limit);
        let admitted = is_possible(raw, limit);
        self.tally.refused += u64::from(!admitted);
        admitted
    }

    /// Makes a sample of what BPF has sent, with the SF and EF that `estimate` has for counts from a core type;
    /// `None` until a round is complete where sets take turns, if the task waited actively meanwhile,
    /// or if it says nothing.
    pub fn sample(
        &mut self,
        raw: &intf::task_sample,
        estimate: impl FnOnce(usize, &EventCounts) -> (Option<SfEstimate>, Option<f64>),
    ) -> Option<Sample> {
        if raw.spun != 0 {
            // What it retired says nothing of its work (CAMPS 2018, section 4.5).
            self.tally.spun += 1;
            return None;
        }
        let core_type = usize::from(raw.core_type);
        let events = self.types.get(core_type)?.as_ref()?;
        let task = TaskId {
            slot: raw.slot,
            generation: raw.generation,
        };
        let set = events.plan.sets.get(usize::from(raw.set))?;
        let counts = if events.plan.sets.len() == 1 {
            Some(counts_of(&events.layout, set, raw))
        } else {
            let round = self
                .rounds
                .entry((task, core_type))
                .or_insert_with(|| Round::new(&events.plan, self.jump));
            let pushed = round.push(raw.set.into(), &raw.counts[..set.counters.len()]);
            self.tally.jumped += u64::from(pushed.discarded);
            pushed
                .complete
                .then(|| counts_of_round(&events.layout, &events.plan, round, raw))
        };
        if raw.last != 0 {
            self.rounds.remove(&(task, core_type));
        }
        let counts = counts?;
        let (sf, ef) = estimate(core_type, &counts);
        complete(raw, counts, sf, ef)
    }

    /// Forgets tasks that are gone.
    pub fn retain(&mut self, alive: impl Fn(TaskId) -> bool) {
        self.rounds.retain(|(task, _), _| alive(*task));
    }

    /// What became of the samples so far.
    pub fn tally(&self) -> SampleTally {
        self.tally
    }
}

/// Of what the BPF half has sent, the counts that were made of it, and what a model says of these.
/// `None` without instructions and cycles.
pub(crate) fn complete(
    raw: &intf::task_sample,
    counts: EventCounts,
    sf: Option<SfEstimate>,
    ef: Option<f64>,
) -> Option<Sample> {
    let metrics = SampleMetrics::of(&counts, raw.run_ns)?;
    Some(Sample {
        task: TaskId {
            slot: raw.slot,
            generation: raw.generation,
        },
        tid: raw.tid,
        tgid: raw.tgid,
        core_type: usize::from(raw.core_type),
        at_ns: raw.at,
        run_ns: raw.run_ns,
        last: raw.last != 0,
        counts,
        metrics,
        sf,
        ef,
        watts: None,
    })
}

/// What the clock of a core type cannot exceed, Hz.
fn clock_limit(topology: &Topology, core_type: usize) -> f64 {
    let cpus = topology
        .cpus
        .iter()
        .filter(|cpu| cpu.core_type == core_type);
    let highest = cpus.filter_map(|cpu| cpu.max_freq_khz).max();
    highest.map_or(HIGHEST_CLOCK, |khz| {
        (f64::from(khz) * 1e3 * CLOCK_MARGIN).min(HIGHEST_CLOCK)
    })
}

/// Whether a CPU whose clock does not exceed `limit`, Hz, can have counted this.
fn is_possible(raw: &intf::task_sample, limit: f64) -> bool {
    let cycles = limit * raw.run_ns as f64 / 1e9;
    raw.counts[CYCLES] as f64 <= cycles
        && raw
            .counts
            .iter()
            .all(|&count| count as f64 <= cycles * PER_CYCLE)
}

/// Instructions and cycles are in every set, wished or not.
fn always(event: &Event) -> bool {
    matches!(
        event,
        Event::Meaning(Meaning::Instructions | Meaning::Cycles)
    )
}

/// Instructions and cycles, and then set by set what else is counted.
fn layout_of(plan: &Plan) -> Layout {
    let fixed = [Meaning::Instructions, Meaning::Cycles].map(Event::from);
    let others = plan.sets.iter().flat_map(|set| &set.events);
    let others = others.map(|(event, _)| event.clone());
    fixed.into_iter().chain(others).collect()
}

/// The counts of a sample whose set is the only one.
fn counts_of(layout: &Layout, set: &EventSet, raw: &intf::task_sample) -> EventCounts {
    let others = set.events.iter().map(|(_, place)| *place);
    let places = [INSTRUCTIONS, CYCLES].into_iter().chain(others);
    EventCounts::new(layout, places.map(|place| raw.counts[place] as f64))
}

/// The counts of a whole round, as if they all belonged to the sample that completed it.
fn counts_of_round(
    layout: &Layout,
    plan: &Plan,
    round: &Round,
    raw: &intf::task_sample,
) -> EventCounts {
    let instructions = raw.counts[INSTRUCTIONS] as f64;
    let fixed = [instructions, raw.counts[CYCLES] as f64];
    let others = plan.sets.iter().enumerate().flat_map(|(number, set)| {
        // All sets of a complete round have been seen.
        let share = move |&(_, place): &(Event, usize)| round.per_instruction((number, place));
        set.events
            .iter()
            .map(move |event| share(event).unwrap_or(0.0) * instructions)
    });
    EventCounts::new(layout, fixed.into_iter().chain(others))
}

/// Takes a record of the ring buffer apart; `None` if it is no sample.
pub fn decode(bytes: &[u8]) -> Option<intf::task_sample> {
    if bytes.len() < size_of::<intf::task_sample>() {
        return None;
    }
    // SAFETY: there are enough bytes, a task_sample is plain integers for which any bits are
    // valid, and the read does not care about alignment.
    Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
}

#[cfg(test)]
mod tests;
