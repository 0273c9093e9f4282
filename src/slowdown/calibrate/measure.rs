// SPDX-License-Identifier: GPL-2.0-only
//! Runs loads side by side, each on a CPU of its own, and tells how fast they were and what their
//! counters say.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::loads::{LINE, Load};
use crate::pmu::{Counter, CounterOptions, Encoding, MachinePmus, Meaning, Pmu, Target};

/// Before it counts: caches fill and queues settle.
const WARM_UP: Duration = Duration::from_millis(40);
/// For which it counts.
const MEASURE: Duration = Duration::from_millis(100);

/// A load, and where it runs.
pub(super) struct PlacedLoad<'l> {
    /// The CPU.
    pub cpu: u32,
    /// What it does there.
    pub load: Box<dyn Load + 'l>,
}

/// What came of a job.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LoadOutcome {
    /// Work/s, in the load's own unit.
    pub rate: f64,
    /// Bytes/s moved by misses of the last-level cache; 0 if not counted.
    pub btr: f64,
}

/// Counts the last-level misses of a thread.
pub(super) struct MissCounter<'m> {
    pmu: &'m Pmu,
    misses: Encoding,
}

impl<'m> MissCounter<'m> {
    /// For a thread on `cpu`. Opens one for a moment, to see whether that is possible.
    ///
    /// # Errors
    /// Why it cannot be counted there.
    pub(super) fn new(machine: &'m MachinePmus, cpu: u32) -> Result<Self> {
        let pmu = machine
            .pmu_of(cpu)
            .with_context(|| format!("no PMU counts on CPU {cpu}"))?;
        let misses = pmu
            .meaning(Meaning::LlcMisses)
            .with_context(|| format!("{} cannot count llc-misses", pmu.name))?;
        let sensor = Self { pmu, misses };
        sensor.open()?;
        Ok(sensor)
    }

    /// Of the calling thread, in user mode, where the loads are.
    fn open(&self) -> Result<Counter> {
        let options = CounterOptions {
            exclude_kernel: true,
            ..CounterOptions::default()
        };
        let target = Target::Thread(0);
        Ok(Counter::open(
            self.pmu,
            &self.misses,
            target,
            None,
            options,
        )?)
    }
}

/// Runs all jobs at once, and counts each with the sensor of its CPU if there is one.
///
/// # Errors
/// A thread could not be pinned, or its counter was taken away.
pub(super) fn together<'m>(
    jobs: Vec<PlacedLoad>,
    sensor: impl Fn(u32) -> Option<&'m MissCounter<'m>> + Sync,
) -> Result<Vec<LoadOutcome>> {
    let start = Barrier::new(jobs.len());
    let running = AtomicUsize::new(jobs.len());
    let run = |job: PlacedLoad| {
        let ready = prepare(&job, &sensor);
        start.wait();
        let mut load = job.load;
        let outcome = ready.and_then(|counter| measure(job.cpu, &mut *load, counter));
        running.fetch_sub(1, Ordering::Relaxed);
        // The others still measure, and this is part of what disturbs them.
        while running.load(Ordering::Relaxed) > 0 {
            load.step();
        }
        outcome
    };
    thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = jobs
            .into_iter()
            .map(|job| scope.spawn(move || run(job)))
            .collect();
        let outcome = |thread: ScopedJoinHandle<Result<LoadOutcome>>| {
            let died = |_| Err(anyhow!("a load came to an end by itself"));
            thread.join().unwrap_or_else(died)
        };
        threads.into_iter().map(outcome).collect()
    })
}

fn prepare<'m>(
    job: &PlacedLoad,
    sensor: &impl Fn(u32) -> Option<&'m MissCounter<'m>>,
) -> Result<Option<Counter>> {
    let mut cpus = CpuSet::new();
    cpus.set(job.cpu as usize)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &cpus))
        .with_context(|| {
            format!(
                "cannot run on CPU {}: it went offline, or this container or cpuset lacks it",
                job.cpu
            )
        })?;
    sensor(job.cpu).map(MissCounter::open).transpose()
}

fn measure(cpu: u32, load: &mut dyn Load, counter: Option<Counter>) -> Result<LoadOutcome> {
    let read = || counter.as_ref().map(Counter::read).transpose();
    let begin = Instant::now();
    while begin.elapsed() < WARM_UP {
        load.step();
    }
    let (begin, before, mut work) = (Instant::now(), read()?, 0);
    while begin.elapsed() < MEASURE {
        work += load.step();
    }
    let (seconds, after) = (begin.elapsed().as_secs_f64(), read()?);
    let misses = match (before, after) {
        (Some(before), Some(after)) => after.since(&before).with_context(|| {
            format!("another program took the counters of CPU {cpu} meanwhile: stop it")
        })?,
        _ => 0,
    };
    Ok(LoadOutcome {
        rate: work as f64 / seconds,
        btr: misses as f64 * LINE as f64 / seconds,
    })
}
