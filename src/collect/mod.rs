// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero collect`: measures programs on each core type, as data to learn from.
//!
//! Each program runs alone, pinned to a CPU of each core type in turn, until the speeds of its runs
//! agree; events that do not fit the PMU at once are counted in different runs. A run is cut into
//! windows of equally many retired instructions, so that those of different core types can be
//! compared (PMCTrack 2017, section 4.1.2). The table is written after every program and gone on
//! with when the command is given again.

mod args;
mod discover;
pub(crate) mod measured;
mod meter;
mod pairs;
mod run;
mod share;
mod suite;
mod windows;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result, anyhow, bail};
use crossbeam::channel::Receiver;
use indicatif::{ProgressBar, ProgressStyle};
use log::warn;

pub use args::Args;

use crate::files::folder_of;
use crate::ml::events;
use crate::ml::header::{CountedBy, EventCounted, MeasuredMachine, SCHEMA, TableHeader};
use crate::output;
use crate::pmu::candidates::EventSource;
use crate::pmu::{Counters, Event, EventSet, MachinePmus, Meaning, Plan, Pmu, availability, plan};
use crate::text::stamp;
use crate::topology::Topology;
use measured::{JOULES, Measured, MeasuredTable, SetPlace};
use meter::{LEAST, Meter};
use share::Shared;
use suite::Program;
use windows::{ProgramRun, deviation};

/// The standard deviation that runs may have, over their mean (topology-aware-ml-2024, section 3.3).
const STEADY: f64 = 0.035;
/// Each program runs at least so often on a core type,
const LEAST_RUNS: usize = 3;
/// and if it is not steady then, so often.
const MOST_RUNS: usize = 10;

/// What is counted on a core type, and in which runs.
struct Counted {
    name: String,
    sets: Vec<EventSet>,
    places: Vec<SetPlace>,
    counters: Counters,
    /// Where each event is named, if that was asked.
    sources: BTreeMap<String, BTreeSet<EventSource>>,
}

/// The exit status of an interruption, as a shell has it.
pub(crate) const INTERRUPTED: u8 = 130;

/// Measures, writes, and shares if asked to. The exit status.
///
/// # Errors
/// As [`fill`] and [`share::share`]; or some programs could not be measured, and the others are in
/// the table.
pub fn run(args: &Args, stop: &Receiver<()>) -> Result<u8> {
    args.check_files()?;
    if args.pairs {
        return pairs::run(args, stop);
    }
    if let Some(to) = &args.share {
        share::check(args.table(), to)?;
    }
    let failed = match args.from {
        Some(_) => 0,
        None => match fill(args, stop)? {
            None => return Ok(INTERRUPTED),
            Some(failed) => failed,
        },
    };
    if let Some(to) = &args.share {
        tell(to, &share::share(args.table(), to, args.share_names)?)?;
    }
    match failed {
        0 => Ok(0),
        failed => bail!("{failed} programs could not be measured"),
    }
}

/// Tells what is shared: its owner is to look at it first.
fn tell(to: &Path, shared: &Shared) -> Result<()> {
    let renamed = match shared.renamed {
        0 => String::new(),
        n => format!(", {n} of them by number"),
    };
    output::print(format_args!(
        "{} holds {} programs{renamed}. Look at it before you give it away; docs/real-hardware.md says where to.",
        to.display(),
        shared.programs
    ))
}

/// Measures and writes. How many programs could not be measured, of which it has told; `None` if
/// interrupted.
///
/// # Errors
/// In words for people: nothing can be counted here, the table is another machine's, and such.
pub(crate) fn fill(args: &Args, stop: &Receiver<()>) -> Result<Option<usize>> {
    let lists = discover::lists::read(&args.list)?;
    let machine = match args.no_tables {
        true => MachinePmus::detect_without_tables(),
        false => MachinePmus::detect(),
    };
    if let Err(why) = availability(&machine) {
        bail!("{why}");
    }
    let topology = Topology::detect(args.core_types.as_ref())?;
    let suite = args.suite()?;
    let counted = match args.discover {
        true => match discover::counted(args, &lists, (&machine, &topology), &suite, stop)? {
            Some(counted) => counted,
            None => return Ok(None),
        },
        false => counted(&machine, &topology, &args.events)?,
    };
    let mut features: Vec<String> = Vec::new();
    for (feature, ..) in counted.iter().flat_map(|counted| &counted.places) {
        if !features.contains(feature) {
            features.push(feature.clone());
        }
    }
    let header = header(args, &topology, &machine, &counted)?;
    if args.makes_folder {
        let folder = folder_of(&args.output);
        fs::create_dir_all(folder).with_context(|| {
            let folder = folder.display();
            format!("cannot make {folder} (--output names a file elsewhere)")
        })?;
    }
    let mut table = MeasuredTable::open(&args.output, header, features)?;

    let done = table.labels();
    let is_done =
        |program: &Program| done.contains(&(program.name.clone(), program.variant.clone()));
    let left: Vec<&Program> = suite.programs.iter().filter(|p| !is_done(p)).collect();
    if left.len() < suite.programs.len() {
        let number = suite.programs.len() - left.len();
        log::info!("{number} programs are in {} already", args.output.display());
    }
    let mut meter = Meter::new();
    if !meter.tells() {
        log::info!(
            "no sensor tells what programs take: column {JOULES} stays empty, and train learns no EF"
        );
    }
    let bar = ProgressBar::new(left.len() as u64);
    bar.set_style(ProgressStyle::with_template(
        "{bar:30} {pos}/{len} {msg}, {eta} left",
    )?);
    let (mut failed, mut untold) = (0, 0);
    for program in &left {
        let on = (&machine, &topology);
        match measure(program, args, on, &counted, &mut meter, &bar, stop) {
            Ok(Some(measured)) => {
                untold += usize::from(measured.iter().any(|of| of.watts().is_none()));
                table.add(program, &measured)?;
            }
            Ok(None) => {
                bar.abandon();
                output::note("Interrupted; the same command goes on from here.");
                return Ok(None);
            }
            Err(error) => {
                failed += 1;
                bar.suspend(|| warn!("{} is left out: {error:#}", program.label()));
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if meter.tells() && untold > 0 {
        warn!(
            "{untold} of {} programs have no {JOULES} on some core type: the sensor does not tell what a run takes that lasts \
             less than {:.1} s (give more --windows, or a greater --window), or that takes hardly more than the idle machine",
            left.len(),
            LEAST.as_secs_f64()
        );
    }
    output::print(format_args!(
        "{} holds {} programs on {} core types.",
        args.output.display(),
        table.labels().len(),
        topology.types.len()
    ))?;
    Ok(Some(failed))
}

/// Runs a program on every core type until its speed is known; `None` if interrupted.
fn measure<'c>(
    program: &Program,
    args: &Args,
    on: (&MachinePmus, &Topology),
    counted: &'c [Counted],
    meter: &mut Meter,
    bar: &ProgressBar,
    stop: &Receiver<()>,
) -> Result<Option<Vec<Measured<'c>>>> {
    let mut measured = Vec::new();
    for (core_type, of) in counted.iter().enumerate() {
        let mut runs: Vec<ProgramRun> = Vec::new();
        loop {
            bar.set_message(format!(
                "{} on {}, run {}",
                program.label(),
                of.name,
                runs.len() + 1
            ));
            bar.tick();
            let set = runs.len() % of.sets.len();
            let cpus = &on.1.types[core_type].cpus[..1];
            let outcome = run::run(
                &program.command,
                on,
                run::RunPlace { core_type, cpus },
                &of.sets[set],
                args.limits(),
                meter,
                stop,
            )?;
            let Some(run::RunOutcome { windows, watts }) = outcome else {
                return Ok(None);
            };
            if windows.len() <= program.skip {
                bail!(
                    "it has no more than the {} windows that are skipped",
                    program.skip
                );
            }
            runs.push(ProgramRun {
                set,
                windows,
                watts,
            });
            let deviation = deviation(&runs);
            if runs.len() >= LEAST_RUNS.max(of.sets.len()) && deviation < STEADY {
                break;
            }
            if runs.len() >= MOST_RUNS.max(of.sets.len()) {
                let label = program.label();
                let percent = 100.0 * deviation;
                bar.suspend(|| {
                    warn!(
                        "{label} on {}: speeds of {} runs deviate by {percent:.1} %",
                        of.name,
                        runs.len()
                    );
                });
                break;
            }
        }
        measured.push(Measured {
            core_type: &of.name,
            places: &of.places,
            runs,
        });
    }
    Ok(Some(measured))
}

/// What is counted on each core type: `wished`, or all that its PMU can.
fn counted(machine: &MachinePmus, topology: &Topology, wished: &[Event]) -> Result<Vec<Counted>> {
    let of_type = |kind: &crate::topology::CoreType| {
        let pmu = machine
            .pmu_of(kind.cpus[0])
            .ok_or_else(|| anyhow!("no PMU counts on core type {}", kind.name))?;
        let (meanings, further) = events::countable(pmu);
        // Events of which we do not know which counters can count them go into sets of their own.
        let mut plans: Vec<(Plan, Vec<(String, Event)>)> = Vec::new();
        let mut add = |named: Vec<(String, Event)>| {
            let mut events: Vec<Event> = vec![Meaning::Instructions.into(), Meaning::Cycles.into()];
            events.extend(named.iter().map(|(_, event)| event.clone()));
            plans.push((plan(&events, pmu), named));
        };
        if wished.is_empty() {
            add(meanings
                .into_iter()
                .map(|event| (event.to_string(), event))
                .collect());
            if !further.is_empty() {
                add(further
                    .into_iter()
                    .map(|(name, event)| (name.to_string(), event))
                    .collect());
            }
        } else {
            add(wished
                .iter()
                .map(|event| (event.to_string(), event.clone()))
                .collect());
        }
        let (mut sets, mut places) = (Vec::new(), Vec::new());
        for (plan, named) in plans {
            let first = sets.len();
            for (name, event) in named {
                let base = event == Meaning::Instructions.into() || event == Meaning::Cycles.into();
                if let (Some((set, counter)), false) = (plan.find(&event), base) {
                    places.push((name, first + set, counter));
                }
            }
            if !wished.is_empty() {
                for absent in &plan.absent {
                    log::info!("{}: no {}: {}", kind.name, absent.event, absent.why);
                }
            }
            sets.extend(plan.sets);
        }
        if sets.is_empty() {
            bail!("{} cannot count instructions and cycles", pmu.name);
        }
        Ok(Counted {
            name: kind.name.clone(),
            sets,
            places,
            counters: pmu.counters,
            sources: BTreeMap::new(),
        })
    };
    topology.types.iter().map(of_type).collect()
}

fn header(
    args: &Args,
    topology: &Topology,
    machine: &MachinePmus,
    counted: &[Counted],
) -> Result<TableHeader> {
    let of_type = |(of, kind): (&Counted, &crate::topology::CoreType)| {
        let pmu: &Pmu = machine.pmu_of(kind.cpus[0])?;
        let base =
            [("instructions", 0, 0), ("cycles", 0, 1)].map(|(n, s, c)| (n.to_string(), s, c));
        let events = base.iter().chain(&of.places).map(|(name, set, counter)| {
            let encoding = &of.sets[*set].counters[*counter];
            let event = EventCounted {
                name: encoding.name.to_string(),
                general: encoding.general,
                fixed: encoding.fixed,
                sources: of.sources.get(name).cloned().unwrap_or_default(),
            };
            (name.clone(), event)
        });
        Some(CountedBy {
            core_type: of.name.clone(),
            microarchitecture: pmu.microarchitecture().to_string(),
            counters: [of.counters.general, of.counters.fixed],
            events: events.collect(),
        })
    };
    let pmus = counted
        .iter()
        .zip(&topology.types)
        .filter_map(of_type)
        .collect();
    Ok(TableHeader {
        schema: SCHEMA,
        written_by: format!("scx_hetero {}", env!("CARGO_PKG_VERSION")),
        date: stamp(SystemTime::now())?,
        machine: MeasuredMachine::this(topology, args.machine.as_deref(), pmus),
        window: args.window,
        user_only: args.user_only,
        commands: BTreeMap::new(),
    })
}
