// SPDX-License-Identifier: GPL-2.0-only
//! Running a program on one CPU while it is counted.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use crossbeam::channel::Receiver;
use crossbeam::select;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::meter::Meter;
use super::windows::{Cutter, Window};
use crate::bench::processes::end_with_us;
use crate::pmc::counting::places;
use crate::pmc::perf::How;
use crate::pmc::sampling::{SampledThreads, Sampling, Trigger};
use crate::pmc::target::{Launcher, command, exit_code};
use crate::pmu::{EventSet, MachinePmus, Meaning, Plan};
use crate::topology::Topology;

/// Samples are fetched so often.
pub(super) const FETCH: Duration = Duration::from_millis(20);
/// A program that is told to end has so long to do it.
const GRACE: Duration = Duration::from_millis(500);

/// How each program is run.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunLimits {
    /// Instructions of a window.
    pub window: u64,
    /// It is stopped after so many windows,
    pub windows: usize,
    /// or after so long.
    pub time: Duration,
    /// User mode is counted alone.
    pub user_only: bool,
}

/// Where a program runs and is counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunPlace<'p> {
    /// Index.
    pub core_type: usize,
    /// CPUs of that type.
    pub cpus: &'p [u32],
}

/// What a run gave.
#[derive(Debug)]
pub(super) struct RunOutcome {
    /// The windows that were filled.
    pub windows: Vec<Window>,
    /// What that took, W, where the meter tells.
    pub watts: Option<f64>,
}

/// A program that is to run on these CPUs, once it is told to start.
///
/// # Errors
/// It cannot be started, or not there.
pub(super) fn launcher_on(words: &[String], cpus: &[u32]) -> Result<Launcher> {
    let mut child = command(words)?;
    // A group of its own, so that all that it starts can be told to end. What it prints is no
    // concern of ours.
    child
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    end_with_us(&mut child);
    let launcher = Launcher::new(child)?;
    bind(launcher.tid, cpus)?;
    Ok(launcher)
}

/// A program that runs and is counted.
pub(super) struct RunningProgram {
    /// Its process.
    pid: i32,
    end: Receiver<ExitStatus>,
    ended: Option<ExitStatus>,
    launcher: Option<Launcher>,
    sampling: Sampling,
    threads: SampledThreads,
    /// The windows that were filled.
    pub cutter: Cutter,
}

impl RunningProgram {
    /// Starts `words` on these CPUs.
    ///
    /// # Errors
    /// It cannot be started, or not be counted.
    pub(super) fn start(
        words: &[String],
        (machine, topology): (&MachinePmus, &Topology),
        place: RunPlace,
        set: &EventSet,
        limits: RunLimits,
    ) -> Result<Self> {
        let launcher = launcher_on(words, place.cpus)?;
        let mut places = places(machine, topology, true);
        places.retain(|of| of.cpu.is_some_and(|cpu| place.cpus.contains(&cpu)));
        let mut plans = vec![Plan::default(); topology.types.len()];
        plans[place.core_type].sets.push(set.clone());
        let how = How {
            user_only: limits.user_only,
            on_exec: true,
            ..How::default()
        };
        let trigger = Trigger::Events(Meaning::Instructions.into(), limits.window);
        let sampling = Sampling::open(&places, &plans, &[launcher.tid], how, &trigger)?;
        let (pid, end) = launcher.start(&words[0])?;
        Ok(Self {
            pid,
            end,
            ended: None,
            launcher: Some(launcher),
            sampling,
            threads: SampledThreads::default(),
            cutter: Cutter::new(limits.window),
        })
    }

    /// Waits a moment, and takes in what was counted. Whether it goes on: it has not ended, nor did `stop` say so.
    ///
    /// # Errors
    /// A thread of ours has died.
    pub(super) fn fetch(&mut self, stop: &Receiver<()>) -> Result<bool> {
        let mut stopped = false;
        select! {
            recv(self.end) -> status => self.ended = Some(status.context("a thread died")?),
            recv(stop) -> _ => stopped = true,
            default(FETCH) => (),
        }
        for step in self.sampling.steps(&mut self.threads) {
            self.cutter.push(step.counted.run_ns, &step.counted.counts);
        }
        Ok(self.ended.is_none() && !stopped)
    }

    /// Whether it has ended by itself.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// How long its first thread has run, and waited for a CPU.
    pub(super) fn awake_for(&self) -> Option<Duration> {
        awake_for(self.pid)
    }

    /// Ends it.
    ///
    /// # Errors
    /// It had failed, or not all of it was counted.
    pub(super) fn end(mut self) -> Result<()> {
        let launcher = self.launcher.take();
        self.end_now();
        let slice = self.sampling.next();
        if let Some(launcher) = launcher {
            launcher.end();
        }
        let slice = slice?;
        let counted: u64 = slice.counted.iter().map(|counted| counted.run_ns).sum();
        if slice.run_ns.saturating_sub(counted) > slice.run_ns / 50 {
            bail!("another program had the counters meanwhile: stop it");
        }
        if self.threads.lost > 0 {
            bail!(
                "{} samples were lost: make windows larger with --window",
                self.threads.lost
            );
        }
        if let Some(status) = self.ended.filter(|status| !status.success()) {
            bail!("it ended with status {}", exit_code(status));
        }
        Ok(())
    }

    fn end_now(&mut self) {
        if self.ended.is_none() {
            end_group(self.pid, &self.end);
        }
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        if let Some(launcher) = self.launcher.take() {
            self.end_now();
            launcher.end();
        }
    }
}

/// Runs `words` on these CPUs; `None` if `stop` said so.
///
/// # Errors
/// It cannot be started or counted, or it failed before a window was full.
pub(super) fn run(
    words: &[String],
    on: (&MachinePmus, &Topology),
    place: RunPlace,
    set: &EventSet,
    limits: RunLimits,
    meter: &mut Meter,
    stop: &Receiver<()>,
) -> Result<Option<RunOutcome>> {
    let mut running = RunningProgram::start(words, on, place, set, limits)?;
    meter.begin();
    let begin = Instant::now();
    while begin.elapsed() < limits.time && running.cutter.full.len() < limits.windows {
        if running.fetch(stop)? {
            continue;
        }
        if running.ended.is_none() {
            return Ok(None);
        }
        break;
    }
    let watts = meter.watts();
    let mut windows = std::mem::take(&mut running.cutter.full);
    let ended = running.ended.is_some();
    running.end()?;
    if windows.is_empty() && ended {
        bail!(
            "it ended before its first window was full: give it more to do, or make windows \
             smaller with --window"
        );
    }
    if windows.is_empty() {
        bail!(
            "no window was full after {:.0} s: make windows smaller with --window, or --limit greater",
            limits.time.as_secs_f64()
        );
    }
    windows.truncate(limits.windows);
    Ok(Some(RunOutcome { windows, watts }))
}

/// Keeps a thread, and what it starts, on these CPUs.
pub(super) fn bind(tid: i32, on: &[u32]) -> Result<()> {
    let mut cpus = CpuSet::new();
    for &cpu in on {
        cpus.set(cpu as usize)?;
    }
    sched_setaffinity(Pid::from_raw(tid), &cpus).with_context(|| {
        format!("cannot run on CPUs {on:?}: one went offline, or this cpuset lacks it")
    })
}

/// How long a process's first thread has run, and waited for a CPU.
fn awake_for(pid: i32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat")).ok()?;
    let mut words = text.split_whitespace().map(str::parse::<u64>);
    let (ran, waited) = (words.next()?.ok()?, words.next()?.ok()?);
    Some(Duration::from_nanos(ran + waited))
}

/// Ends a program with all that it has started.
pub(super) fn end_group(pid: i32, end: &Receiver<ExitStatus>) {
    let group = Pid::from_raw(pid);
    let _ = killpg(group, Signal::SIGTERM);
    let _ = end.recv_timeout(GRACE);
    let _ = killpg(group, Signal::SIGKILL);
    let _ = end.recv_timeout(GRACE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_ends_with_what_started_it() {
        let words = ["sleep", "600"].map(String::from);
        let all = nix::sched::sched_getaffinity(Pid::from_raw(0)).unwrap();
        let cpus: Vec<u32> = (0..CpuSet::count() as u32)
            .filter(|&cpu| all.is_set(cpu as usize).unwrap_or(false))
            .collect();
        let launcher = launcher_on(&words, &cpus).unwrap();
        let (_, end) = launcher.start(&words[0]).unwrap();
        // As where all of us is killed.
        launcher.end();
        assert_eq!(exit_code(end.recv().unwrap()), 128 + 9);
    }
}
