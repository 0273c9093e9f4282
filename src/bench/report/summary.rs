// SPDX-License-Identifier: GPL-2.0-only
//! What the runs come to.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::bench::machine::MachineIdentity;
use crate::bench::results::{Failed, MixRun, Results};
use crate::bench::scheduler::BenchScheduler;
use crate::sim::metrics::{ScheduleMetrics, Times, geometric_mean};
use crate::sim::mix::place;

/// Everything, compared.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Where it was run.
    pub machine: MachineIdentity,
    /// By mix.
    pub mixes: Vec<OfMix>,
    /// Over the mixes that every scheduler has run.
    pub means: Vec<MixMean>,
    /// These mixes.
    pub mixes_of_means: Vec<String>,
    /// What did not come to its end.
    pub failed: Vec<Failed>,
}

/// A mix under each scheduler.
#[derive(Clone, Debug, Serialize)]
pub struct OfMix {
    /// Its name.
    pub mix: String,
    /// Its programs.
    pub programs: Vec<String>,
    /// In the order of [`BenchScheduler::place`].
    pub schedulers: Vec<SummaryRow>,
}

/// A mix under a scheduler, over all repeats.
#[derive(Clone, Debug, Serialize)]
pub struct SummaryRow {
    /// The scheduler.
    pub scheduler: String,
    /// How many there are.
    pub repeats: usize,
    /// The greatest slowdown over the least.
    pub unfairness: Stat,
    /// Aggregate speedup.
    pub asp: Stat,
    /// System throughput.
    pub stp: Stat,
    /// The mean slowdown.
    pub antt: Stat,
    /// Changes of CPU per second.
    pub migrations_per_s: Option<Stat>,
    /// Energy for what one second alone on a fastest core does, J: power over STP.
    pub joules_per_s_alone: Option<Stat>,
    /// Seconds of a run.
    pub seconds: Stat,
    /// How far completion times of one program are apart: their standard deviation over their
    /// mean, over all runs of it in all repeats; the mean over the programs.
    pub spread: f64,
    /// In the order of the mix.
    pub programs: Vec<OfProgram>,
}

/// A program of a mix under a scheduler, over all repeats.
#[derive(Clone, Debug, Serialize)]
pub struct OfProgram {
    /// CT_alone, CT_slow, and the geometric mean of all completion times.
    #[serde(flatten)]
    pub times: Times,
    /// CT_sched / CT_alone.
    pub slowdown: f64,
    /// The standard deviation of its completion times over their mean.
    pub spread: f64,
}

/// A number over the repeats: CAMPS reports these three (section 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Stat {
    /// Arithmetic.
    pub mean: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

/// Over mixes.
#[derive(Clone, Debug, Serialize)]
pub struct MixMean {
    /// The scheduler.
    pub scheduler: String,
    /// Geometric mean.
    pub unfairness: f64,
    /// Arithmetic mean, for it may be negative.
    pub asp: f64,
    /// Arithmetic mean.
    pub stp: f64,
    /// Geometric mean.
    pub antt: f64,
    /// Arithmetic mean.
    pub migrations_per_s: Option<f64>,
    /// Geometric mean.
    pub joules_per_s_alone: Option<f64>,
    /// Arithmetic mean.
    pub spread: f64,
}

impl Stat {
    fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().collect();
        (!values.is_empty()).then(|| Self {
            mean: mean(&values),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The standard deviation of a sample over its mean; 0 of one value.
fn spread(values: &[f64]) -> f64 {
    let middle = mean(values);
    let squares: f64 = values.iter().map(|v| (v - middle).powi(2)).sum();
    (squares / (values.len().max(2) - 1) as f64).sqrt() / middle
}

/// What a run was worth: completion times of its programs by geometric mean.
///
/// # Errors
/// Nobody has measured one of its programs alone, or a program has no times.
pub(super) fn times(run: &MixRun, results: &Results) -> Result<Vec<Times>> {
    let times = run.programs.iter().map(|program| {
        let times = || program.times.iter().copied();
        of_program(&program.program, times(), results)
    });
    times.collect()
}

fn of_program(
    program: &str,
    times: impl Iterator<Item = f64> + Clone,
    results: &Results,
) -> Result<Times> {
    let alone = results.alone.get(program);
    let alone = alone.with_context(|| format!("nobody has measured '{program}' alone"))?;
    let mean = |times: &[f64]| {
        let sound = times.iter().all(|&seconds| seconds > 0.0);
        let mean = geometric_mean(times.iter().copied()).filter(|_| sound);
        mean.with_context(|| format!("'{program}' has no times, or such as cannot be"))
    };
    let scheduled: Vec<f64> = times.collect();
    Ok(Times {
        energy: None,
        frames: None,
        program: program.to_string(),
        alone: mean(&alone.fastest)?,
        slow: mean(&alone.slowest)?,
        scheduled: mean(&scheduled)?,
        runs: scheduled.len(),
        times: scheduled,
    })
}

impl Summary {
    /// Of all results.
    ///
    /// # Errors
    /// Times are missing, or repeats of a mix have different programs.
    pub fn of(results: &Results) -> Result<Self> {
        let mut mixes: Vec<&str> = results.runs.iter().map(|run| run.mix.as_str()).collect();
        mixes.sort_by_key(|mix| place(mix));
        mixes.dedup();
        let names = results.runs.iter().map(|run| run.scheduler.as_str());
        let mut schedulers: Vec<&str> = names.collect();
        schedulers.sort_by_key(|name| BenchScheduler::place(name));
        schedulers.dedup();
        let of_mix = |mix: &&str| of_mix(mix, &schedulers, results);
        let mixes: Vec<OfMix> = mixes.iter().map(of_mix).collect::<Result<_>>()?;
        let complete = |of: &&OfMix| of.schedulers.len() == schedulers.len();
        let complete: Vec<&OfMix> = mixes.iter().filter(complete).collect();
        let means = schedulers.iter().filter_map(|name| {
            let rows = complete.iter().flat_map(|mix| &mix.schedulers);
            MixMean::of(
                &rows
                    .filter(|row| row.scheduler == *name)
                    .collect::<Vec<_>>(),
            )
        });
        Ok(Self {
            machine: results.header.machine.clone(),
            means: means.collect(),
            mixes_of_means: complete.iter().map(|of| of.mix.clone()).collect(),
            failed: results.failed.clone(),
            mixes,
        })
    }
}

fn of_mix(mix: &str, schedulers: &[&str], results: &Results) -> Result<OfMix> {
    let of = |scheduler: &str| -> Vec<&MixRun> {
        let runs = results.runs.iter();
        let of = |run: &&MixRun| run.mix == mix && run.scheduler == scheduler;
        runs.filter(of).collect()
    };
    let programs = |run: &MixRun| -> Vec<String> {
        let programs = run.programs.iter();
        programs.map(|program| program.program.clone()).collect()
    };
    let runs: Vec<&MixRun> = schedulers.iter().flat_map(|s| of(s)).collect();
    let first = runs.first().map(|run| programs(run)).unwrap_or_default();
    ensure!(
        runs.iter().all(|run| programs(run) == first),
        "mix {mix} is not always of the same programs: the runs cannot be compared"
    );
    let rows = schedulers
        .iter()
        .map(|scheduler| (*scheduler, of(scheduler)));
    let rows = rows.filter(|(_, runs)| !runs.is_empty());
    let rows = rows.map(|(scheduler, runs)| {
        SummaryRow::of(scheduler, &runs, results)
            .with_context(|| format!("{mix} under {scheduler}"))
    });
    Ok(OfMix {
        mix: mix.to_string(),
        programs: first,
        schedulers: rows.collect::<Result<_>>()?,
    })
}

impl SummaryRow {
    /// Of the repeats of a mix under a scheduler, of which there is one at least.
    fn of(scheduler: &str, runs: &[&MixRun], results: &Results) -> Result<Self> {
        let metrics = runs
            .iter()
            .map(|run| Ok(ScheduleMetrics::of(&times(run, results)?)));
        let metrics: Vec<ScheduleMetrics> = metrics.collect::<Result<_>>()?;
        let stat =
            |of: fn(&ScheduleMetrics) -> f64| Stat::of(metrics.iter().map(of)).context("no runs");
        // One that lacks the number makes a mean of the others one of something else.
        let rate = |of: &dyn Fn(&MixRun, &ScheduleMetrics) -> Option<f64>| {
            let pairs = runs.iter().zip(&metrics);
            let values: Option<Vec<f64>> = pairs.map(|(run, metrics)| of(run, metrics)).collect();
            values.and_then(Stat::of)
        };
        let first = runs.first().context("no runs")?;
        let programs = first.programs.iter().enumerate().map(|(place, program)| {
            let times = runs.iter().flat_map(|run| &run.programs[place].times);
            let times = times.copied();
            let apart = spread(&times.clone().collect::<Vec<_>>());
            let times = of_program(&program.program, times, results)?;
            Ok(OfProgram {
                slowdown: times.slowdown(),
                spread: apart,
                times,
            })
        });
        let programs: Vec<OfProgram> = programs.collect::<Result<_>>()?;
        let spreads: Vec<f64> = programs.iter().map(|program| program.spread).collect();
        Ok(Self {
            scheduler: scheduler.to_string(),
            repeats: runs.len(),
            unfairness: stat(|metrics| metrics.unfairness)?,
            asp: stat(|metrics| metrics.asp)?,
            stp: stat(|metrics| metrics.stp)?,
            antt: stat(|metrics| metrics.antt)?,
            migrations_per_s: rate(&|run, _| Some(run.migrations? as f64 / run.seconds)),
            joules_per_s_alone: rate(&|run, metrics| Some(run.joules? / run.seconds / metrics.stp)),
            seconds: Stat::of(runs.iter().map(|run| run.seconds)).context("no runs")?,
            spread: mean(&spreads),
            programs,
        })
    }
}

impl MixMean {
    /// Of a scheduler's mixes; `None` of none.
    fn of(rows: &[&SummaryRow]) -> Option<Self> {
        let scheduler = rows.first()?.scheduler.clone();
        let arithmetic =
            |of: fn(&SummaryRow) -> f64| mean(&rows.iter().map(|row| of(row)).collect::<Vec<_>>());
        let geometric = |of: fn(&SummaryRow) -> f64| geometric_mean(rows.iter().map(|row| of(row)));
        let some = |of: fn(&SummaryRow) -> Option<f64>| -> Option<Vec<f64>> {
            rows.iter().map(|row| of(row)).collect()
        };
        Some(Self {
            scheduler,
            unfairness: geometric(|row| row.unfairness.mean)?,
            asp: arithmetic(|row| row.asp.mean),
            stp: arithmetic(|row| row.stp.mean),
            antt: geometric(|row| row.antt.mean)?,
            migrations_per_s: some(|row| Some(row.migrations_per_s?.mean)).map(|v| mean(&v)),
            joules_per_s_alone: some(|row| Some(row.joules_per_s_alone?.mean))
                .and_then(geometric_mean),
            spread: arithmetic(|row| row.spread),
        })
    }
}

/// The names of all schedulers, each once, in their order.
pub(super) fn schedulers(summary: &Summary) -> Vec<&str> {
    let rows = summary.mixes.iter().flat_map(|of| &of.schedulers);
    let names: BTreeSet<_> = rows
        .map(|row| BenchScheduler::place(&row.scheduler))
        .collect();
    names.into_iter().map(|(_, _, name)| name).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::report::tests::results;
    use crate::bench::results::tests::run;

    /// `camps` on two mixes, of which `default` has only one.
    pub(crate) fn example() -> Summary {
        let summary = Summary::of(&results(vec![
            run("camps", "M1", 1, [&[1.0, 4.0], &[4.0]]),
            run("camps", "M1", 2, [&[4.0], &[4.0]]),
            run("camps", "M2", 1, [&[2.0], &[4.0]]),
            run("default", "M2", 1, [&[1.0], &[8.0]]),
        ]));
        summary.unwrap()
    }

    #[test]
    fn repeats_have_a_mean_a_least_and_a_greatest() {
        let summary = example();
        let camps = &summary.mixes[0].schedulers[0];
        // Slowdowns 2 and 2, then 4 and 2.
        let near = |stat: Stat, expected: [f64; 3]| {
            let found = [stat.mean, stat.min, stat.max].into_iter();
            found.zip(expected).all(|(a, b)| (a - b).abs() < 1e-12)
        };
        assert_eq!(camps.repeats, 2);
        assert!(near(camps.unfairness, [1.5, 1.0, 2.0]));
        assert!(near(camps.asp, [0.75, 0.5, 1.0]));
        assert_eq!(camps.migrations_per_s.unwrap().mean, 5.0);
        assert!(camps.joules_per_s_alone.is_none());
        // a: 1, 4, 4; b: always 4.
        assert!((camps.programs[0].spread - 3f64.sqrt() / 3.0).abs() < 1e-12);
        assert_eq!(camps.programs[1].spread, 0.0);
        assert!((camps.programs[0].times.scheduled - 16f64.cbrt()).abs() < 1e-12);
    }

    #[test]
    fn means_are_over_mixes_that_all_have_run() {
        let summary = example();
        assert_eq!(summary.mixes_of_means, ["M2"]);
        let names: Vec<_> = summary.means.iter().map(|m| m.scheduler.as_str()).collect();
        assert_eq!(names, ["default", "camps"]);
        assert!((summary.means[0].unfairness - 4.0).abs() < 1e-12);
        assert_eq!(schedulers(&summary), names);
    }

    #[test]
    fn what_was_not_measured_alone_cannot_be_judged() {
        let mut results = results(vec![run("camps", "M1", 1, [&[1.0], &[1.0]])]);
        results.alone.remove("b");
        let error = format!("{:#}", Summary::of(&results).unwrap_err());
        assert!(error.contains("nobody has measured 'b' alone"), "{error}");
    }
}
