// SPDX-License-Identifier: GPL-2.0-only
//! One short run of each program, in which all events take turns: which of them count anything at all.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use crossbeam::channel::Receiver;
use crossbeam::select;
use indicatif::{ProgressBar, ProgressStyle};
use log::warn;

use super::Sifted;
use crate::collect::args::Args;
use crate::collect::run::{end_group, launcher_on};
use crate::collect::suite::{Program, Suite};
use crate::pmu::{Counter, CounterOptions, CounterReading, Encoding, Meaning, Pmu, Target};
use crate::topology::Topology;

/// How long each program runs. The kernel lets the next event have its turn every 4 ms.
const TIME: Duration = Duration::from_secs(2);
/// So many events take turns in a run, at most: each has then some 10 ms of it, and a descriptor.
const AT_ONCE: usize = 400;
/// A run begins and ends in so much.
const AROUND: Duration = Duration::from_millis(100);

/// The programs, and where they run.
pub(super) struct Scouting<'s> {
    pub(super) args: &'s Args,
    pub(super) topology: &'s Topology,
    pub(super) suite: &'s Suite,
    pub(super) stop: &'s Receiver<()>,
}

/// What became of an event so far.
#[derive(Clone, Copy, Default)]
struct Seen {
    counted: bool,
    had_a_counter: bool,
}

impl Scouting<'_> {
    /// Leaves what counts nothing out of `all`, by core type. What a run of every program of the suite takes on
    /// each; `None` if interrupted.
    ///
    /// # Errors
    /// No program can be run.
    pub(super) fn sift(&self, all: &mut [Sifted]) -> Result<Option<Vec<Duration>>> {
        let programs = &self.suite.programs;
        let bar = ProgressBar::new((programs.len() * all.len()) as u64);
        bar.set_style(ProgressStyle::with_template(
            "{bar:30} {pos}/{len} which events count anything, {eta} left",
        )?);
        let mut took = Vec::new();
        for (of, kind) in all.iter_mut().zip(&self.topology.types) {
            let mut seen = vec![Seen::default(); of.candidates.len()];
            let mut time = Duration::ZERO;
            let mut wrong = None;
            let mut ran = 0;
            for program in programs {
                match self.program(program, kind.cpus[0], of, &mut seen) {
                    Ok(Some(run)) => {
                        time += run;
                        ran += 1;
                    }
                    Ok(None) => {
                        bar.abandon();
                        return Ok(None);
                    }
                    Err(error) => wrong = Some(error),
                }
                bar.inc(1);
            }
            match wrong {
                Some(error) if ran == 0 => {
                    return Err(error).context("no program of the suite can be run");
                }
                Some(error) => bar.suspend(|| {
                    warn!(
                        "{} of the programs cannot be run: {error:#}",
                        programs.len() - ran
                    );
                }),
                None => (),
            }
            let candidates = std::mem::take(&mut of.candidates);
            for (candidate, seen) in candidates.into_iter().zip(seen) {
                let name = candidate.encoding.name.to_string();
                match (seen.counted, seen.had_a_counter) {
                    (true, _) => of.candidates.push(candidate),
                    (false, true) => of.leave_out("count nothing in any program", name),
                    (false, false) => of.leave_out("never got a counter", name),
                }
            }
            took.push(time);
        }
        bar.finish_and_clear();
        Ok(Some(took))
    }

    /// Runs a program with all candidates, as many at once as may be open. What a run of all its windows takes.
    fn program(
        &self,
        program: &Program,
        cpu: u32,
        of: &Sifted,
        seen: &mut [Seen],
    ) -> Result<Option<Duration>> {
        let instructions = of.pmu.meaning(Meaning::Instructions);
        let instructions = instructions.context("instructions cannot be counted")?;
        let mut speed = 0.0;
        for (candidates, seen) in of.candidates.chunks(AT_ONCE).zip(seen.chunks_mut(AT_ONCE)) {
            let events = candidates.iter().map(|candidate| &candidate.encoding);
            let events: Vec<&Encoding> = std::iter::once(&instructions).chain(events).collect();
            let Some(readings) = self.run(program, cpu, of.pmu, &events)? else {
                return Ok(None);
            };
            if let Some(all) = readings.first().filter(|of| of.running > 0) {
                speed = all.value as f64 / all.running as f64;
            }
            for (seen, reading) in seen.iter_mut().zip(&readings[1..]) {
                seen.counted |= reading.value > 0;
                seen.had_a_counter |= reading.running > 0;
            }
        }
        let limits = self.args.limits();
        let needed = limits.window as f64 * limits.windows as f64;
        let seconds = needed / (speed * 1e9);
        let most = limits.time.as_secs_f64();
        let seconds = if seconds.is_finite() {
            seconds.min(most)
        } else {
            most
        };
        Ok(Some(Duration::from_secs_f64(seconds) + AROUND))
    }

    fn run(
        &self,
        program: &Program,
        cpu: u32,
        pmu: &Pmu,
        events: &[&Encoding],
    ) -> Result<Option<Vec<CounterReading>>> {
        let launcher = launcher_on(&program.command, &[cpu])?;
        let options = CounterOptions {
            exclude_kernel: self.args.user_only,
            inherit: true,
            ..CounterOptions::default()
        };
        let target = Target::Thread(launcher.tid);
        let open = events
            .iter()
            .map(|of| Counter::open(pmu, of, target, None, options));
        let counters: Vec<Counter> = open.collect::<Result<_, _>>()?;
        let (pid, end) = launcher.start(&program.command[0])?;
        let mut stopped = false;
        select! {
            recv(end) -> status => {
                let status = status.context("a thread died")?;
                if !status.success() {
                    bail!("{} ended with {status}", program.label());
                }
            }
            recv(self.stop) -> _ => stopped = true,
            default(TIME.min(self.args.limits().time)) => (),
        }
        let readings: std::io::Result<Vec<_>> = counters.iter().map(Counter::read).collect();
        end_group(pid, &end);
        launcher.end();
        Ok(if stopped { None } else { Some(readings?) })
    }
}
