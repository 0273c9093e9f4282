// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero bench run`: mixes under schedulers, on this machine.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, anyhow, bail, ensure};
use crossbeam::channel::Receiver;
use indicatif::{ProgressBar, ProgressStyle};
use log::{info, warn};

use super::machine::MachineIdentity;
use super::mixes::Mixes;
use super::processes::{Command, MixOutcome, MixPlan, together};
use super::results::{
    Alone, Book, Failed, MixProgram, MixRun, Results, ResultsHeader, ResultsLine, SCHEMA,
};
use super::scheduler::{Attached, BenchScheduler};
use crate::energy::Energy;
use crate::energy::meter::EnergyMeter;
use crate::files::{check_distinct, named};
use crate::output;
use crate::sim::experiment::shuffle;
use crate::sim::metrics::geometric_mean;
use crate::sim::mix::Mix;
use crate::slowdown::calibrate::render::date;
use crate::text::plain;
use crate::topology::{CoreTypesSpec, Topology};

/// The longest program of a mix ends so often.
const RUNS: usize = 3;
/// So often is a program measured alone.
const RUNS_ALONE: usize = 3;
/// A program takes at most so many times as long as alone on the slowest CPUs, times threads per
/// CPU.
const PATIENCE: f64 = 20.0;
/// The longest that a program may take alone.
const LONGEST_ALONE: Duration = Duration::from_secs(24 * 3600);
/// And a mix, whatever times alone a file lends.
const LONGEST_MIX: Duration = Duration::from_secs(30 * 24 * 3600);

/// What to run.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  \
    scx_hetero bench run MIXES.toml -s default camps 'scx_lavd --performance'")]
pub struct Args {
    /// A file that says which programs there are, and which run together (see
    /// docs/bench.md)
    #[arg(value_name = "MIXES.toml")]
    file: PathBuf,

    /// Schedulers to compare: policies of scx_hetero with their options, 'default'
    /// (the kernel's own), or the command of another one; with none, only the times
    /// that programs need alone are measured
    #[arg(short, long, value_name = "SCHEDULER", num_args = 1..)]
    scheduler: Vec<BenchScheduler>,

    /// Only these mixes of the file
    #[arg(short, long, value_name = "NAME", num_args = 1..)]
    mix: Vec<String>,

    /// How often each is repeated, or which repeats to run, as in 4-5
    #[arg(short, long, value_name = "N", default_value = "5")]
    repeats: Repeats,

    /// Append results to this file; what it has is not run again
    #[arg(short, long, value_name = "FILE", default_value = "bench.jsonl")]
    out: PathBuf,

    /// Take the times that programs need alone from another file of this machine
    #[arg(long, value_name = "FILE")]
    alone: Option<PathBuf>,

    /// Core types by hand, fastest first, e.g. P=0-7,E=8-15
    #[arg(long, value_name = "NAME=CPUS,...")]
    core_types: Option<CoreTypesSpec>,
}

/// A number of repeats, or a range of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Repeats {
    first: u32,
    last: u32,
}

impl FromStr for Repeats {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or(("1", text));
        let number = |text: &str| text.trim().parse::<u32>().ok();
        match (number(first), number(last)) {
            (Some(first), Some(last)) if (1..=last).contains(&first) && last <= 1000 => {
                Ok(Self { first, last })
            }
            _ => Err("a number from 1 to 1000, or a range such as 4-5".into()),
        }
    }
}

/// Runs what `args` say; whether all of it went well.
///
/// # Errors
/// In words for people: what is wrong with a file, a program that does not run, another scheduler
/// that is attached.
pub fn run(args: &Args, stop: &Receiver<()>) -> Result<Option<bool>> {
    check_distinct(
        named([&args.file], "the file of mixes"),
        named([&args.out], "--out"),
    )?;
    for scheduler in &args.scheduler {
        scheduler.check()?;
    }
    let mut mixes = Mixes::read(&args.file)?;
    mixes
        .choose(&args.mix)
        .with_context(|| args.file.display().to_string())?;
    let topology = Topology::detect(args.core_types.as_ref())?;
    let header = ResultsHeader {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_string(),
        date: date(SystemTime::now()),
        machine: MachineIdentity::detect(&topology),
    };
    let book = Book::open(&args.out, header)?;
    let mut session = Session {
        args,
        mixes,
        topology,
        book,
        stop,
    };
    if !session.measure_alone()? {
        return Ok(None);
    }
    session.compare()
}

struct Session<'a> {
    args: &'a Args,
    mixes: Mixes,
    topology: Topology,
    book: Book,
    stop: &'a Receiver<()>,
}

impl Session<'_> {
    /// CT_alone and CT_slow of each program that has none yet; whether it came to an end.
    fn measure_alone(&mut self) -> Result<bool> {
        let commands = self.mixes.all_commands();
        let lent = self.args.alone.as_deref();
        let lent = lent.map(|path| lent_from(path, &self.book.results.header));
        let lent = lent.transpose()?;
        let mut missing = Vec::new();
        for (program, command) in &commands {
            let known = self.book.results.alone.get(program);
            if let Some(alone) = known {
                check_same(alone, command, &self.args.out)?;
                continue;
            }
            match lent.as_ref().and_then(|lent| lent.alone.get(program)) {
                Some(alone) => {
                    check_same(
                        alone,
                        command,
                        self.args.alone.as_deref().unwrap_or(Path::new("")),
                    )?;
                    self.book.push(ResultsLine::Alone(alone.clone()))?;
                }
                None => missing.push(command),
            }
        }
        if missing.is_empty() {
            return Ok(true);
        }
        let default: BenchScheduler = "default".parse()?;
        let Some(mut scheduler) = default.attach(self.stop)? else {
            return Ok(false);
        };
        let progress = Progress::new(missing.len());
        for command in missing {
            progress.begin(&format!("{} alone", command.program));
            let Some(alone) = alone(command, &self.topology, self.stop)? else {
                return Ok(false);
            };
            scheduler.check()?;
            let mean = |times: &[f64]| geometric_mean(times.iter().copied()).unwrap_or(0.0);
            let (fast, slow) = (mean(&alone.fastest), mean(&alone.slowest));
            progress.end(&format!(
                "{} alone: {fast:.2} s, {slow:.2} s on the slowest CPUs",
                alone.program
            ));
            self.book.push(ResultsLine::Alone(alone))?;
        }
        Ok(true)
    }

    /// All mixes under all schedulers; `None` if somebody stopped it, and else whether all went
    /// well.
    fn compare(&mut self) -> Result<Option<bool>> {
        let mut todo = Vec::new();
        let results = &self.book.results;
        for repeat in self.args.repeats.first..=self.args.repeats.last {
            for scheduler in &self.args.scheduler {
                let mixes = self.mixes.mixes.iter();
                let mixes = mixes.filter(|mix| !results.has(&scheduler.name, &mix.name, repeat));
                let mixes: Vec<Mix> = mixes.cloned().collect();
                if !mixes.is_empty() {
                    todo.push((repeat, scheduler, mixes));
                }
            }
        }
        if todo.is_empty() && !self.args.scheduler.is_empty() {
            info!(
                "nothing is left to run: {} has all of it",
                self.args.out.display()
            );
        }
        let progress = Progress::new(todo.iter().map(|(_, _, mixes)| mixes.len()).sum());
        let mut all_well = true;
        for (repeat, scheduler, mixes) in todo {
            let mut attached = None;
            // One that did not attach once is not waited for again.
            let mut absent = None;
            for mix in mixes {
                let title = format!("{}, {}, repeat {repeat}", scheduler.name, mix.name);
                progress.begin(&title);
                if attached.is_none() && absent.is_none() {
                    match scheduler.attach(self.stop) {
                        Ok(None) => return Ok(None),
                        Ok(now) => attached = now,
                        Err(error) => absent = Some(format!("{error:#}")),
                    }
                }
                let run = match (&mut attached, &absent) {
                    (Some(attached), _) => self.one(scheduler, attached, &mix, repeat),
                    (None, why) => Err(anyhow!("{}", why.as_deref().unwrap_or_default())),
                };
                match run {
                    Ok(None) => return Ok(None),
                    Ok(Some(run)) => {
                        progress.end(&format!("{title}: {:.1} s", run.seconds));
                        self.book.push(ResultsLine::Run(run))?;
                    }
                    Err(error) => {
                        all_well = false;
                        // The next one gets a fresh scheduler.
                        attached = None;
                        progress.end(&format!("{title}: FAILED: {error:#}"));
                        self.book.push(ResultsLine::Failed(Failed {
                            scheduler: scheduler.name.clone(),
                            mix: mix.name.clone(),
                            repeat,
                            error: format!("{error:#}"),
                        }))?;
                    }
                }
            }
        }
        Ok(Some(all_well))
    }

    /// A mix under a scheduler; `None` if somebody stopped it.
    fn one(
        &self,
        scheduler: &BenchScheduler,
        attached: &mut Attached,
        mix: &Mix,
        repeat: u32,
    ) -> Result<Option<MixRun>> {
        attached.check()?;
        let commands = self.mixes.commands(mix);
        let mut order: Vec<usize> = (0..commands.len()).collect();
        shuffle(&mut order, repeat.into());
        let plan = MixPlan {
            commands: &commands,
            order: &order,
            cpus: None,
            runs: RUNS,
            limit: self.patience(mix),
        };
        let energy = EnergyMeter::start(Energy::from_now());
        let outcome = together(&plan, self.stop);
        let joules = energy.stop();
        // Why a program failed may be that its scheduler did: that is to be told.
        attached.check()?;
        let Some(outcome) = outcome? else {
            return Ok(None);
        };
        let programs = commands.into_iter().zip(outcome.times);
        let programs = programs.map(|(command, times)| MixProgram {
            program: command.program,
            times,
        });
        Ok(Some(MixRun {
            scheduler: scheduler.name.clone(),
            mix: mix.name.clone(),
            repeat,
            seconds: outcome.seconds,
            migrations: outcome.migrations,
            joules,
            programs: programs.collect(),
        }))
    }

    /// How long a mix may take.
    fn patience(&self, mix: &Mix) -> Duration {
        let threads: u32 = mix.members.iter().map(|member| member.threads).sum();
        let crowd = f64::from(threads) / self.topology.cpus.len().max(1) as f64;
        let slowest = mix.members.iter().filter_map(|member| {
            let alone = self.book.results.alone.get(&member.to_string())?;
            geometric_mean(alone.slowest.iter().copied())
        });
        let slowest = slowest.fold(1.0, f64::max);
        patience(PATIENCE * RUNS as f64 * crowd.max(1.0) * slowest)
    }
}

/// So many seconds, within reason.
fn patience(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).map_or(LONGEST_MIX, |patience| patience.min(LONGEST_MIX))
}

/// A file that lends its times alone to that of this header.
fn lent_from(path: &Path, header: &ResultsHeader) -> Result<Results> {
    let lent = Results::read(path)?;
    if let Some(difference) = lent.header.machine.differs(&header.machine) {
        bail!("{} is of another machine: {difference}", path.display());
    }
    Ok(lent)
}

fn check_same(alone: &Alone, command: &Command, path: &Path) -> Result<()> {
    ensure!(
        alone.command == command.line(),
        "in {} the program '{}' is '{}', and now it is '{}': the times cannot be compared",
        path.display(),
        alone.program,
        alone.command,
        command.line()
    );
    Ok(())
}

fn alone(command: &Command, topology: &Topology, stop: &Receiver<()>) -> Result<Option<Alone>> {
    let on = |core_type: usize| -> Result<Option<Vec<f64>>> {
        let plan = MixPlan {
            commands: std::slice::from_ref(command),
            order: &[0],
            cpus: Some(&topology.types[core_type].cpus),
            runs: RUNS_ALONE,
            limit: LONGEST_ALONE,
        };
        let outcome = together(&plan, stop)?;
        Ok(outcome.map(|outcome: MixOutcome| outcome.times.concat()))
    };
    let slowest = topology.types.len().saturating_sub(1);
    let Some(on_fastest) = on(0)? else {
        return Ok(None);
    };
    let on_slowest = match slowest {
        0 => Some(on_fastest.clone()),
        slowest => on(slowest)?,
    };
    Ok(on_slowest.map(|on_slowest| Alone {
        program: command.program.clone(),
        command: command.line(),
        fastest: on_fastest,
        slowest: on_slowest,
    }))
}

/// A bar on a terminal, lines elsewhere.
struct Progress {
    bar: ProgressBar,
    length: usize,
}

impl Progress {
    fn new(length: usize) -> Self {
        let bar = ProgressBar::new(length as u64);
        match ProgressStyle::with_template("{bar:20} {pos}/{len}, {eta} left  {msg}") {
            Ok(style) => bar.set_style(style),
            Err(error) => warn!("no progress bar: {error}"),
        }
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_secs(1));
        }
        Self { bar, length }
    }

    fn begin(&self, what: &str) {
        self.bar.set_message(plain(what).into_owned());
    }

    fn end(&self, what: &str) {
        self.bar.inc(1);
        let line = format!("{}/{}: {what}", self.bar.position(), self.length);
        self.bar.suspend(|| output::note(line));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_cannot_be_are_waited_for_within_reason() {
        assert_eq!(patience(90.0), Duration::from_secs(90));
        for absurd in [1e12, 1e300, f64::INFINITY, f64::NAN] {
            assert_eq!(patience(absurd), LONGEST_MIX, "{absurd}");
        }
    }

    #[test]
    fn repeats_are_a_number_or_a_range() {
        let range = |text: &str| text.parse::<Repeats>().map(|r| (r.first, r.last)).ok();
        assert_eq!(range("3"), Some((1, 3)));
        assert_eq!(range("4-5"), Some((4, 5)));
        for bad in ["0", "", "5-4", "x", "1-", "-3"] {
            assert_eq!(range(bad), None, "{bad}");
        }
    }
}
