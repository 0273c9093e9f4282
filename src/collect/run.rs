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
use crate::pmc::counting::places;
use crate::pmc::perf::How;
use crate::pmc::sampling::{SampledThreads, Sampling, Trigger};
use crate::pmc::target::{Launcher, command, exit_code};
use crate::pmu::{EventSet, MachinePmus, Meaning, Plan};
use crate::topology::Topology;

/// Samples are fetched so often.
const FETCH: Duration = Duration::from_millis(20);
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
    /// Part of the time from the first full window on in which its first thread ran or waited for a CPU, 0 to 1;
    /// `None` if that was too short.
    pub awake: Option<f64>,
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
    let launcher = Launcher::new(child)?;
    bind(launcher.tid, cpus)?;
    Ok(launcher)
}

/// Runs `words` on these CPUs; `None` if `stop` said so.
///
/// # Errors
/// It cannot be started or counted, or it failed before a window was full.
pub(super) fn run(
    words: &[String],
    (machine, topology): (&MachinePmus, &Topology),
    place: RunPlace,
    set: &EventSet,
    limits: RunLimits,
    meter: &mut Meter,
    stop: &Receiver<()>,
) -> Result<Option<RunOutcome>> {
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
    let mut sampling = Sampling::open(&places, &plans, &[launcher.tid], how, &trigger)?;
    let (pid, end) = launcher.start(&words[0])?;
    meter.begin();

    let mut threads = SampledThreads::default();
    let mut cutter = Cutter::new(limits.window);
    let begin = Instant::now();
    let mut ended: Option<ExitStatus> = None;
    let mut stopped = false;
    let mut first: Option<(Instant, Duration)> = None;
    while ended.is_none() && !stopped && begin.elapsed() < limits.time {
        select! {
            recv(end) -> status => ended = Some(status.context("a thread died")?),
            recv(stop) -> _ => stopped = true,
            default(FETCH) => (),
        }
        for step in sampling.steps(&mut threads) {
            cutter.push(step.counted.run_ns, &step.counted.counts);
        }
        if first.is_none() && !cutter.full.is_empty() {
            first = awake_for(pid).map(|awake| (Instant::now(), awake));
        }
        if cutter.full.len() >= limits.windows {
            break;
        }
    }
    let awake = first.and_then(|(since, before)| {
        let (now, passed) = (awake_for(pid)?, since.elapsed());
        (passed >= FETCH).then(|| {
            let part = now.saturating_sub(before).as_secs_f64() / passed.as_secs_f64();
            part.min(1.0)
        })
    });
    let watts = meter.watts();
    if ended.is_none() {
        end_group(pid, &end);
    }
    let slice = sampling.next()?;
    launcher.end();
    if stopped {
        return Ok(None);
    }
    let counted: u64 = slice.counted.iter().map(|counted| counted.run_ns).sum();
    if slice.run_ns.saturating_sub(counted) > slice.run_ns / 50 {
        bail!("another program had the counters meanwhile: stop it");
    }
    if threads.lost > 0 {
        bail!(
            "{} samples were lost: make windows larger with --window",
            threads.lost
        );
    }
    if let Some(status) = ended.filter(|status| !status.success()) {
        bail!("it ended with status {}", exit_code(status));
    }
    if cutter.full.is_empty() && ended.is_some() {
        bail!(
            "it ended before its first window was full: give it more to do, or make windows \
             smaller with --window"
        );
    }
    if cutter.full.is_empty() {
        bail!(
            "no window was full after {:.0} s: make windows smaller with --window, or --limit greater",
            limits.time.as_secs_f64()
        );
    }
    cutter.full.truncate(limits.windows);
    Ok(Some(RunOutcome {
        windows: cutter.full,
        watts,
        awake,
    }))
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
