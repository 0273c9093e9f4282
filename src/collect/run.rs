// SPDX-License-Identifier: GPL-2.0-only
//! Running a program on one CPU while it is counted.

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

/// Runs `words` on the first CPU of a core type; the windows that were filled, and what that took where
/// `meter` tells, or `None` if `stop` said so.
///
/// # Errors
/// It cannot be started or counted, or it failed before a window was full.
pub(super) fn run(
    words: &[String],
    (machine, topology): (&MachinePmus, &Topology),
    core_type: usize,
    set: &EventSet,
    limits: RunLimits,
    meter: &mut Meter,
    stop: &Receiver<()>,
) -> Result<Option<(Vec<Window>, Option<f64>)>> {
    let cpu = topology.types[core_type].cpus[0];
    let mut child = command(words)?;
    // A group of its own, so that all that it starts can be told to end. What it prints is no
    // concern of ours.
    child
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let launcher = Launcher::new(child)?;
    let mut cpus = CpuSet::new();
    cpus.set(cpu as usize)
        .and_then(|()| sched_setaffinity(Pid::from_raw(launcher.tid), &cpus))
        .with_context(|| {
            format!("cannot run on CPU {cpu}: it went offline, or this cpuset lacks it")
        })?;

    let mut places = places(machine, topology, true);
    places.retain(|place| place.cpu == Some(cpu));
    let mut plans = vec![Plan::default(); topology.types.len()];
    plans[core_type].sets.push(set.clone());
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
    while ended.is_none() && !stopped && begin.elapsed() < limits.time {
        select! {
            recv(end) -> status => ended = Some(status.context("a thread died")?),
            recv(stop) -> _ => stopped = true,
            default(FETCH) => (),
        }
        for step in sampling.steps(&mut threads) {
            cutter.push(step.counted.run_ns, &step.counted.counts);
        }
        if cutter.full.len() >= limits.windows {
            break;
        }
    }
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
    Ok(Some((cutter.full, watts)))
}

/// Ends a program with all that it has started.
fn end_group(pid: i32, end: &Receiver<ExitStatus>) {
    let group = Pid::from_raw(pid);
    let _ = killpg(group, Signal::SIGTERM);
    let _ = end.recv_timeout(GRACE);
    let _ = killpg(group, Signal::SIGKILL);
    let _ = end.recv_timeout(GRACE);
}
