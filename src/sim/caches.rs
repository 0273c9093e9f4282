// SPDX-License-Identifier: GPL-2.0-only
//! How well the agent estimates what threads hold of last-level caches, and their miss-rate curves: the model
//! of caches ([`super::contention`]) knows the truth.

use std::collections::BTreeMap;

use serde::Serialize;

use super::kernel::{SimulatedKernel, ThreadState};
use crate::agent::Agent;
use hetero_core::cache::{CURVE_POINTS, CurvePoints};
use hetero_core::knowledge::told_points;
use hetero_core::pmu::sample::LINE_BYTES;

/// Curves are compared each time that the agent has looked so often: a second.
const CURVES_STEP: u32 = 20;

/// Threads that hold less of a cache are not asked about.
const LEAST_PART: f64 = 0.01;

/// A curve has a knee if the most of it is so many times the least.
const KNEE: f64 = 2.0;

/// Of curves with less MPKI at all sizes nothing is told.
const LEAST_MPKI: f64 = 1.0;

/// What the estimates go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum CacheEvents {
    /// Misses
    Misses,
    /// Misses and references
    References,
}

/// See the module; while a mix runs.
#[derive(Debug, Default)]
pub(super) struct CacheTruth {
    /// Parts of a cache, and of what is really held.
    errors: Vec<(f32, f32)>,
    curves: BTreeMap<(usize, usize), CurveOutcome>,
    looks: u32,
}

/// How far off the estimates were.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CacheOutcome {
    /// Threads that ran and hold something, at each look.
    pub readings: usize,
    /// Median and 90th percentile of the error of occupancy, as part of the cache.
    pub error: [f64; 2],
    /// Of its median, as part of what is really held.
    pub relative: f64,
    /// By program and core type.
    pub curves: Vec<CurveOutcome>,
}

/// A curve beside the true one.
#[derive(Clone, Debug, Serialize)]
pub struct CurveOutcome {
    /// Program.
    pub program: String,
    /// Core type.
    pub core_type: String,
    /// It misses far more with little room than with much.
    pub knee: bool,
    /// MPKI at eighths of the cache, by earlier runs, too; `None` where nothing is known.
    pub estimated: [Option<f64>; CURVE_POINTS],
    /// What earlier runs said when it began.
    pub kept: [Option<f64>; CURVE_POINTS],
    /// The truth.
    pub real: [f64; CURVE_POINTS],
}

impl CurveOutcome {
    /// How many sizes are known.
    pub fn known(&self) -> usize {
        self.estimated.iter().flatten().count()
    }

    /// Mean error over the sizes that are known, as part of the mean of the truth there.
    pub fn error(&self) -> Option<f64> {
        self.error_of(&self.estimated)
    }

    /// The same of what earlier runs said.
    pub fn kept_error(&self) -> Option<f64> {
        self.error_of(&self.kept)
    }

    fn error_of(&self, curve: &[Option<f64>; CURVE_POINTS]) -> Option<f64> {
        let both = curve.iter().zip(self.real);
        let both = both.filter_map(|(estimated, real)| Some(((*estimated)?, real)));
        let (off, all) = both.fold((0.0, 0.0), |(off, all), (estimated, real)| {
            (off + (estimated - real).abs(), all + real)
        });
        (all > 0.0).then(|| off / all)
    }
}

fn mpki(points: &CurvePoints) -> [Option<f64>; CURVE_POINTS] {
    points.map(|point| Some(point?.mpki))
}

impl CacheTruth {
    /// The agent has looked; `pid` says what the agent calls a thread.
    pub(super) fn look(
        &mut self,
        k: &SimulatedKernel,
        agent: &Agent,
        pid: impl Fn(u32) -> Option<u32>,
    ) {
        let tasks = agent.tasks().iter();
        let by_tid: BTreeMap<u32, _> = tasks.map(|task| (task.tid, task.id)).collect();
        let compare_curves = self.looks.is_multiple_of(CURVES_STEP);
        self.looks += 1;
        for thread in 0..k.threads.len() as u32 {
            let t = k.thread(thread);
            let of = &k.contention.loads[t.load];
            let task = pid(thread).and_then(|pid| by_tid.get(&pid));
            let (Some(&task), true) = (task, t.state == ThreadState::Running && of.matters())
            else {
                continue;
            };
            let cpu = k.cpu(t.cpu);
            let bytes = k.machine.llcs[cpu.llc].bytes;
            let real = t.rate.lines * LINE_BYTES;
            if real < LEAST_PART * bytes {
                continue;
            }
            if let Some(estimated) = agent.caches.bytes(task) {
                let off = (estimated - real).abs();
                self.errors
                    .push(((off / bytes) as f32, (off / real) as f32));
            }
            let phases = k.jobs[t.job].program.stages.iter();
            let one_phase = phases.clone().all(|stage| stage.load == t.load);
            if compare_curves && one_phase {
                self.compare(k, agent, thread, task);
            }
        }
    }

    fn compare(
        &mut self,
        k: &SimulatedKernel,
        agent: &Agent,
        thread: u32,
        task: hetero_core::table::TaskId,
    ) {
        let t = k.thread(thread);
        let cpu = k.cpu(t.cpu);
        let estimated = mpki(&agent.curve(task, cpu.core_type).points);
        if estimated.iter().all(Option::is_none) {
            return;
        }
        let kept = agent.remembered_curve(task, cpu.core_type);
        let of = &k.contention.loads[t.load];
        let bytes = k.machine.llcs[cpu.llc].bytes;
        let sizes: [f64; CURVE_POINTS] =
            std::array::from_fn(|point| (point + 1) as f64 / CURVE_POINTS as f64);
        let real = sizes.map(|part| 1e3 * of.misses_with(cpu.core_type, bytes, part));
        if real[0] < LEAST_MPKI {
            return;
        }
        let mut outcome = CurveOutcome {
            program: k.jobs[t.job].program.name.clone(),
            core_type: agent.topology.types[cpu.core_type].name.clone(),
            knee: real[0] > KNEE * real[CURVE_POINTS - 1],
            estimated,
            kept: kept
                .map(|kept| mpki(&told_points(kept)))
                .unwrap_or_default(),
            real,
        };
        let known = self.curves.get(&(t.job, cpu.core_type));
        if let Some(known) = known {
            outcome.kept = known.kept;
        }
        // That which has seen most, when there are several.
        if known.is_none_or(|known| known.known() <= outcome.known()) {
            self.curves.insert((t.job, cpu.core_type), outcome);
        }
    }

    /// What it comes to.
    pub(super) fn end(self) -> CacheOutcome {
        let sorted = |of: fn(&(f32, f32)) -> f32| {
            let mut values: Vec<f32> = self.errors.iter().map(of).collect();
            values.sort_by(f32::total_cmp);
            values
        };
        let at = |values: &[f32], part: f64| {
            let last = values.len().saturating_sub(1) as f64;
            values
                .get((last * part) as usize)
                .copied()
                .unwrap_or(0.0)
                .into()
        };
        let (parts, relative) = (sorted(|both| both.0), sorted(|both| both.1));
        CacheOutcome {
            readings: self.errors.len(),
            error: [at(&parts, 0.5), at(&parts, 0.9)],
            relative: at(&relative, 0.5),
            curves: self.curves.into_values().collect(),
        }
    }
}
