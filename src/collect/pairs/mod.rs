// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero collect --pairs`: programs beside antagonists in several placements, as data to learn from what
//! disturbs a thread (Zellweger, Lin and Roscoe 2016, section 5).
//!
//! A program runs once on each core type, alone and beside each antagonist in turn; what it does beside one is compared
//! with what the same phase does alone, as the scheduler does it.

mod beside;
mod label;
mod place;
mod stretch;
mod suite;
mod table;

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, anyhow, bail};
use crossbeam::channel::Receiver;
use hetero_core::interference::company::{Quietness, ThreadCompany};
use hetero_core::interference::signs::{InterferenceSigns, SignRates, at};
use hetero_core::interference::undisturbed::{BESIDE, Undisturbed};
use hetero_core::slowdown::Phase;
use log::warn;

use super::INTERRUPTED;
use super::args::Args;
use super::run::{RunPlace, RunningProgram};
use super::windows::Window;
use crate::ml::header::{MeasuredMachine, SCHEMA, TableHeader};
use crate::output;
use crate::pmc::session::one_set;
use crate::pmu::sample::{EventCounts, SampleMetrics};
use crate::pmu::{Event, EventSet, MachinePmus, Meaning, Plan, availability};
use crate::text::stamp;
use crate::topology::Topology;
use beside::{BesideDid, RunningBeside};
use label::{PairLoss, label};
use place::{PairPlacement, beside, own_cpus};
use stretch::{Stretch, StretchLimits, stretch};
use suite::{Antagonist, PairProgram, PairSuite};
use table::{PairRow, PairsTable};

/// What is counted where nothing else is asked for, the most telling first: a core type counts as many as fit it at
/// once.
const COUNTED: [Meaning; 7] = [
    Meaning::LlcMisses,
    Meaning::LlcReferences,
    Meaning::StalledMem,
    Meaning::Loads,
    Meaning::Branches,
    Meaning::L1Misses,
    Meaning::BranchMisses,
];

/// Windows at the beginning that are left out: a program prepares itself.
const PREPARES: usize = 10;

/// Windows alone before each antagonist.
const ALONE: usize = 3;

/// A stretch takes so long, so that it has all that a program does in turns.
const LEAST: Duration = Duration::from_millis(80);

/// An antagonist runs for so long before it is of use.
const SETTLES: Duration = Duration::from_millis(250);

/// The machine, and what is counted on each core type.
struct PairsMachine<'m> {
    pmus: &'m MachinePmus,
    topology: &'m Topology,
    plans: Vec<Plan>,
    /// What memory transfers at the most, by contention domain, bytes/s.
    bandwidth: Vec<f64>,
}

/// Measures and writes. The exit status.
///
/// # Errors
/// Nothing can be counted here, the table is another machine's, and such.
pub(super) fn run(args: &Args, stop: &Receiver<()>) -> Result<u8> {
    let pmus = MachinePmus::detect();
    if let Err(why) = availability(&pmus) {
        bail!("{why}");
    }
    let topology = Topology::detect(args.core_types.as_ref())?;
    let suite = PairSuite::read(args.suite.as_deref())?;
    let plans = plans(args, &pmus, &topology)?;
    let header = TableHeader {
        schema: SCHEMA,
        written_by: format!("scx_hetero {}", env!("CARGO_PKG_VERSION")),
        date: stamp(SystemTime::now())?,
        machine: MeasuredMachine::this(&topology, args.machine.as_deref(), Vec::new()),
        window: args.window,
        user_only: args.user_only,
        commands: BTreeMap::new(),
    };
    let mut table = PairsTable::open(&args.output, header)?;
    let mut machine = PairsMachine {
        pmus: &pmus,
        topology: &topology,
        plans,
        bandwidth: Vec::new(),
    };
    machine.bandwidth = bandwidth(&machine, &suite.antagonists)?;
    let done = table.done();
    let mut failed = 0;
    for program in &suite.programs {
        for (core_type, kind) in topology.types.iter().enumerate() {
            let label = [&program.name, &program.variant, &kind.name].map(String::clone);
            if done.contains(&label) {
                continue;
            }
            let measure = Pairs {
                machine: &machine,
                args,
                program,
                core_type,
                stop,
            };
            match measure.all(&suite.antagonists) {
                Ok(Some(rows)) => table.add(&rows)?,
                Ok(None) => {
                    output::note("Interrupted; the same command goes on from here.");
                    return Ok(INTERRUPTED);
                }
                Err(error) => {
                    failed += 1;
                    warn!("{} on {} is left out: {error:#}", program.name, kind.name);
                }
            }
        }
    }
    output::print(format_args!(
        "{} holds {} windows.",
        args.output.display(),
        table.len()
    ))?;
    match failed {
        0 => Ok(0),
        failed => bail!("{failed} programs could not be measured"),
    }
}

/// One set of events for each core type, which counts them at once.
fn plans(args: &Args, pmus: &MachinePmus, topology: &Topology) -> Result<Vec<Plan>> {
    let of_type = |kind: &crate::topology::CoreType| {
        let pmu = pmus
            .pmu_of(kind.cpus[0])
            .ok_or_else(|| anyhow!("no PMU counts on core type {}", kind.name))?;
        let mut events: Vec<Event> = vec![Meaning::Instructions.into(), Meaning::Cycles.into()];
        match args.events.is_empty() {
            true => events.extend(COUNTED.map(Event::from)),
            false => events.extend(args.events.iter().cloned()),
        }
        events.retain(|event| pmu.encode(event).is_ok());
        let plan = one_set(&events, pmu);
        match plan.sets.len() {
            1 => Ok(plan),
            _ => bail!("{} cannot count instructions and cycles", pmu.name),
        }
    };
    topology.types.iter().map(of_type).collect()
}

/// What the first antagonist, on each core of a contention domain, gets from memory.
fn bandwidth(machine: &PairsMachine, antagonists: &[Antagonist]) -> Result<Vec<f64>> {
    let topology = machine.topology;
    let domains = topology.cpus.iter().map(|cpu| cpu.llc + 1).max();
    let of_domain = |llc: usize| {
        let cpus = topology.cpus.iter();
        let cpus = cpus.filter(|cpu| cpu.llc == llc && cpu.core == cpu.id);
        let cpus: Vec<u32> = cpus.map(|cpu| cpu.id).collect();
        let on = (machine.pmus, topology);
        let mut all = RunningBeside::start(&antagonists[0].command, &cpus, on)?;
        sleep(2 * SETTLES);
        all.count()?;
        sleep(2 * SETTLES);
        Ok(all.did()?.btr)
    };
    (0..domains.unwrap_or(0)).map(of_domain).collect()
}

/// What a program was like alone a moment ago.
#[derive(Debug, Default)]
struct AloneReference {
    rates: Undisturbed,
    awake: Option<f64>,
}

/// A program on a core type, beside everything.
struct Pairs<'p> {
    machine: &'p PairsMachine<'p>,
    args: &'p Args,
    program: &'p PairProgram,
    core_type: usize,
    stop: &'p Receiver<()>,
}

impl<'p> Pairs<'p> {
    /// `None` if interrupted.
    fn all(&self, antagonists: &'p [Antagonist]) -> Result<Option<Vec<PairRow<'p>>>> {
        let topology = self.machine.topology;
        let own = own_cpus(topology, self.core_type, self.program.threads);
        if own.len() < self.program.threads {
            bail!("it takes {} cores", self.program.threads);
        }
        let mut running = self.start(&own)?;
        let limits = self.args.limits();
        let stretch_limits = |skipped, windows| StretchLimits {
            skipped,
            windows,
            least: LEAST,
            most: limits.time,
        };
        let beside_limits = stretch_limits(1, limits.windows);
        let Some(first) = stretch(
            &mut running,
            stretch_limits(PREPARES, limits.windows),
            self.stop,
        )?
        else {
            return Ok(None);
        };
        let mut alone = self.alone(&first);
        let Some(again) = stretch(&mut running, beside_limits, self.stop)? else {
            return Ok(None);
        };
        let llc = topology.cpu(own[0]).map_or(0, |cpu| cpu.llc);
        let quiet = ThreadCompany::alone(self.machine.bandwidth[llc]);
        let mut rows = vec![self.row(None, PairPlacement::Alone, (&again, &alone), quiet, None)];
        for other in antagonists {
            let mut further = None;
            let mut places = other.places.clone();
            places.sort_unstable();
            for place in places {
                let cpus = beside(topology, &own, place, other.copies);
                if cpus.is_empty() {
                    continue;
                }
                let on = (self.machine.pmus, topology);
                let mut antagonist = RunningBeside::start(&other.command, &cpus, on)?;
                let begin = Instant::now();
                while begin.elapsed() < SETTLES {
                    if !running.fetch(self.stop)? {
                        break;
                    }
                }
                antagonist.count()?;
                let Some(run) = stretch(&mut running, beside_limits, self.stop)? else {
                    return Ok(None);
                };
                let company = company(quiet, place, antagonist.did()?);
                drop(antagonist);
                let both = (&run, &alone);
                let beside = Some((other, cpus.len()));
                let row = self.row(beside, place, both, company, further.as_ref());
                if place == PairPlacement::Llc {
                    further = Some(row.loss);
                }
                rows.push(row);
                let Some(after) = stretch(&mut running, stretch_limits(ALONE, ALONE), self.stop)?
                else {
                    return Ok(None);
                };
                // What an antagonist leaves behind in a cache can stay there.
                alone = self.alone(&after);
            }
        }
        running.end()?;
        Ok(Some(rows))
    }

    fn start(&self, own: &[u32]) -> Result<RunningProgram> {
        let cpus: Vec<String> = own.iter().map(u32::to_string).collect();
        let words = self.program.command.iter();
        let words: Vec<String> = words
            .map(|word| word.replace("{cpus}", &cpus.join(",")))
            .collect();
        let place = RunPlace {
            core_type: self.core_type,
            cpus: own,
        };
        RunningProgram::start(
            &words,
            (self.machine.pmus, self.machine.topology),
            place,
            self.set(),
            self.args.limits(),
        )
    }

    fn alone(&self, run: &Stretch) -> AloneReference {
        let mut alone = AloneReference {
            awake: run.awake,
            ..AloneReference::default()
        };
        for (rates, phase) in run.windows.iter().filter_map(|window| self.rates(window)) {
            let none = || [(0, 0.0); BESIDE];
            alone
                .rates
                .learn(self.core_type, &phase, &rates, Quietness::Alone, none);
        }
        alone
    }

    fn set(&self) -> &EventSet {
        &self.machine.plans[self.core_type].sets[0]
    }

    fn row(
        &self,
        antagonist: Option<(&'p Antagonist, usize)>,
        placement: PairPlacement,
        (now, alone): (&Stretch, &AloneReference),
        company: ThreadCompany,
        further: Option<&PairLoss>,
    ) -> PairRow<'p> {
        let fast = self.core_type == 0;
        let signs = |window| {
            let (rates, phase) = self.rates(window)?;
            let quiet = alone.rates.find(self.core_type, &phase)?.rates;
            let [now, quiet] = [(rates, now.awake), (quiet, alone.awake)]
                .map(|(rates, awake)| SignRates { awake, ..rates });
            InterferenceSigns::of(&now, &quiet, &company, fast)
        };
        let signs: Vec<InterferenceSigns> = now.windows.iter().filter_map(signs).collect();
        let mean = |at: usize| {
            let sum: f64 = signs.iter().map(|of| of.values[at]).sum();
            sum / signs.len().max(1) as f64
        };
        let loss = PairLoss {
            slow: mean(at::SLOW),
            clock: mean(at::CLOCK),
            asleep: mean(at::ASLEEP),
            fresh_misses: mean(at::MISSES_MORE) / mean(at::MISSES).max(1e-9),
        };
        PairRow {
            program: self.program,
            core_type: &self.machine.topology.types[self.core_type].name,
            antagonist,
            placement,
            class: label(placement, &loss, further),
            loss,
            signs,
        }
    }

    fn rates(&self, window: &Window) -> Option<(SignRates, Phase)> {
        let plan = &self.machine.plans[self.core_type];
        let counted = COUNTED.into_iter().filter_map(|meaning| {
            let (_, counter) = plan.find(&meaning.into())?;
            Some((Event::from(meaning), *window.counts.get(counter)?))
        });
        let base = [Meaning::Instructions, Meaning::Cycles]
            .into_iter()
            .enumerate();
        let base = base.filter_map(|(at, of)| Some((of.into(), *window.counts.get(at)?)));
        let counts: EventCounts = base.chain(counted).collect();
        let run_ns = window.run_ns as u64;
        let phase = Phase::of(&SampleMetrics::of(&counts, run_ns)?);
        Some((SignRates::of(&counts, run_ns)?, phase))
    }
}

/// What a program at `place` of antagonists that did this has for company.
fn company(quiet: ThreadCompany, place: PairPlacement, did: BesideDid) -> ThreadCompany {
    let busy = |of: PairPlacement| if of == place { did.busy } else { 0.0 };
    ThreadCompany {
        sibling: busy(PairPlacement::Sibling).min(1.0),
        cluster: busy(PairPlacement::Cluster),
        // Behind another cache it is not in this domain, yet in the way to memory.
        btr: did.btr,
        ..quiet
    }
}
