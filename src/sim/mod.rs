// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero sim`: mixes of programs on machines that need not be at hand.
//!
//! Discrete events, and nothing random but what follows from a seed: the same command prints the
//! same bytes. The policies are the live ones, and the BPF half is the kernel's, compiled natively
//! (`native`). What is a model is the kernel around it, how fast threads are (`contention`) and what
//! programs do ([`program`]): `docs/sim.md` says from where.
//!
//! ```text
//!  data/*.toml ─► library ─► experiment ─► switch ◄──► hetero ◄──► agent ◄──► policy
//!                                │           │       │     └─► native: src/bpf, a kernel
//!                   metrics, optimum         │       └──► fair: the kernel's own, in short
//!                                         kernel: CPUs, threads, time ─► contention
//! ```

mod agent;
pub mod args;
pub mod caches;
mod contention;
mod counted;
mod cpu_set;
pub mod energy;
mod event;
pub mod experiment;
mod fair;
pub mod goals;
mod hetero;
mod job;
mod kernel;
mod knowledge;
pub mod library;
mod lp;
pub mod machine;
pub mod metrics;
pub mod mix;
pub mod model;
pub mod native;
pub mod optimum;
mod partition;
pub mod program;
mod render;
mod scheduler;
pub mod sourced;
mod swap_rules;
mod switch;
#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use hetero_core::output::WrongUsage;

pub use args::Args;
use experiment::{Bench, ExperimentOptions, SchedulerChoice, SimulatedSaving};
use library::Library;
use model::UnseenEstimates;

use crate::output;
use crate::policy::{Name, Settings};
use crate::record;

/// Simulates what `args` say, and prints what came of it.
///
/// # Errors
/// In words for people: no such mix, machine or program, or which line of a file is wrong.
pub fn run(args: &Args) -> Result<()> {
    args.check_files()?;
    let mut library = Library::builtin()?;
    for path in &args.add_programs {
        library.add_programs(path)?;
    }
    for path in &args.add_mixes {
        library.add_mixes(path)?;
    }
    if args.list {
        return match args.json {
            true => output::json(&render::list_json(&library)),
            false => output::print(render::list(&library)),
        };
    }
    args.check_record()?;
    let learnt = args
        .model
        .as_deref()
        .map(UnseenEstimates::read)
        .transpose()?;
    // All names first: a misspelt one should not show after minutes.
    let mixes: Result<Vec<_>> = args.mixes.iter().map(|name| library.mix(name)).collect();
    let mut jobs = Vec::new();
    for mix in mixes? {
        let name = args.machine.as_ref().or(mix.machine.as_ref());
        let name = name.ok_or_else(|| {
            WrongUsage(format!(
                "on which machine? '{}' says none: --machine",
                mix.name
            ))
        })?;
        let mut machine = library.machine(name)?;
        if args.as_testbed {
            machine = machine.as_testbed()?;
        }
        if let Some(learnt) = &learnt {
            learnt.check(machine.topology.types.len())?;
        }
        if args.calibrated && machine.thresholds.is_none() {
            bail!(
                "nobody has calibrated {}: its file has no [thresholds]",
                machine.name
            );
        }
        jobs.push((mix, Rc::new(machine)));
    }
    if let Some(learnt) = &learnt {
        learnt.check_programs(jobs.iter().map(|(mix, _)| mix))?;
    }
    let recording = args.record.as_deref().map(record::create);
    let mut recording = recording.transpose()?;
    for (index, (mix, machine)) in jobs.iter().enumerate() {
        ensure!(
            args.powersave != Some(SimulatedSaving::Measured) || machine.energy.is_some(),
            "{} has no [energy], so that no sensor tells what places cost: --powersave=blind does \
             without one",
            machine.name
        );
        let bench = Bench::new(&library, machine, mix)?;
        let prim = SchedulerChoice::Policy(Name::Prim);
        let swap_rules = match args.schedulers().contains(&prim) {
            true => swap_rules::induced(&library, machine),
            false => None,
        };
        let options = ExperimentOptions {
            seed: args.seed,
            until: args.until(),
            slice: Duration::from_micros(args.slice_us),
            sample: Duration::from_millis(args.sample_ms),
            model_error: args.model_error.map(|percent| percent / 100.0),
            learnt: learnt.as_ref(),
            record: args.record.is_some(),
            knowledge: args.knowledge,
            warm_runs: args.warm_runs,
            caches: args.caches,
            partition: args.partition,
            saving: args.powersave,
            sensor: args.sensor,
            settings: Settings {
                swap_interval: Duration::from_millis(args.swap_ms),
                fairness: args.fairness,
                oversubscribe: args.oversubscribe,
                objective: args.objective,
                swap_rules: swap_rules.as_ref(),
                limits: machine.thresholds.filter(|_| args.calibrated),
                without: &[],
            },
        };
        let optimum = args.optimum.then(|| optimum::Optimum::of(&bench));
        let outcomes: Result<Vec<_>> = args
            .schedulers()
            .into_iter()
            .map(|scheduler| Ok((scheduler, bench.run(scheduler, &options)?)))
            .collect();
        let outcomes = outcomes?;
        if let (Some(file), [(_, outcome)]) = (&mut recording, &outcomes[..]) {
            for part in &outcome.recorded {
                file.write(part)?;
            }
        }
        let report = render::MixReport::new(mix, machine, &outcomes, optimum.as_ref());
        if args.json {
            output::print(serde_json::to_string(&report)?)?;
        } else {
            let gap = if index > 0 { "\n" } else { "" };
            output::print(format_args!("{gap}{}", report.text(args.programs)))?;
        }
    }
    Ok(())
}
