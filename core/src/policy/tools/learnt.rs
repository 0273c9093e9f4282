// SPDX-License-Identifier: GPL-2.0-or-later
//! What a model says of threads ([`Sample::sf`]), averaged by phase as history tables do it (CAMPS
//! 2018, section 4.2), so that one sample more or less changes little, and a phase that comes back
//! is known at once. So are the watts of threads, which need no model.
//!
//! Estimates from different core types have errors of their own. A phase's SF is the mean over the
//! types that it was seen on, however often on each: else a thread's SF would depend on where it is,
//! and two that are alike would trade places for ever.
//!
//! Once a phase ran for a while on two core types, how much faster it was on the one, at the clocks that
//! the types have at present, counts beside the model, each as much as it is sure ([`super::speeds`]): a
//! model learns from programs that run alone, and knows nothing of what others leave of caches and memory.
//!
//! How sure a model says it is holds for programs like those it was learnt from. How sure it is of those
//! that run, [`Trust`] tells, from what was measured of them.

use rustc_hash::{FxHashMap, FxHashSet};

use super::mean::{Mean, MeasuredMean, MeasuredSpeed};
use super::speeds::{Prior, SureSpeeds};
use super::trust::{Residual, Residuals, Trust};
use crate::knowledge::{ProfilePhase, Sure, ThreadProfile};
use crate::pmu::sample::{Sample, SampleWatts, SfEstimate, SureWatts};
use crate::policy::Snapshot;
use crate::slowdown::Phase;
use crate::slowdown::estimator::DISCARDED;
use crate::table::{Task, TaskId};
use crate::topology::MAX_CORE_TYPES;

/// Phases that are kept of a thread; the one not seen for longest gives way.
const PHASES: usize = 8;

/// A sample counts for one in so many in a phase's mean, at the least.
const AVERAGED: u32 = 16;

/// So many samples on a core type say how fast a phase is there.
const MEASURED: u32 = 2;

/// And in the mean of all that a thread, or a program, does.
const AVERAGED_USUAL: u32 = 64;

/// What a model's EF/SF errs by, of the logarithm, as far as is known.
pub(crate) const ENERGY: f64 = 0.1;

#[derive(Clone, Copy, Debug)]
struct Entry {
    phase: Phase,
    /// Estimates from each core type.
    by_type: [Mean; MAX_CORE_TYPES],
    /// Variances that the model gave them.
    variance: Mean,
    /// Estimates of EF/SF from each core type, where there are any.
    energy: [Mean; MAX_CORE_TYPES],
    /// What it takes on each core type, W, and the square of the standard error.
    watts: [(Mean, Mean); MAX_CORE_TYPES],
    /// And the square of that of how much more it takes on the fastest.
    apart: [Mean; MAX_CORE_TYPES],
    /// Instructions per cycle on each core type.
    ipc: [MeasuredMean; MAX_CORE_TYPES],
    /// Logarithm of what was measured over what the model said, once it was.
    residual: Option<Residual>,
    /// That of the phase of the same thread that was measured last.
    another: Option<Residual>,
    /// SF of this phase in earlier runs of the program.
    past: Option<Sure>,
    /// Number of the sample that was its last.
    used: u64,
}

/// The mean over core types, however often it was seen on each.
fn over_types(means: &[Mean; MAX_CORE_TYPES]) -> Option<f64> {
    let known = || means.iter().filter_map(Mean::get);
    let count = known().count();
    (count > 0).then(|| known().sum::<f64>() / count as f64)
}

impl Entry {
    /// Whether a model has said anything of it.
    fn is_estimated(&self) -> bool {
        self.by_type.iter().any(|mean| mean.get().is_some())
    }

    /// SF of the fastest core type over the slowest, by a model alone.
    fn estimate(&self) -> f64 {
        over_types(&self.by_type).unwrap_or_default()
    }

    /// Speeds by core type.
    fn speeds(&self, machine: &KnownMachine) -> SureSpeeds {
        let variance = self.variance.get().unwrap_or_default();
        let another = self.another.filter(|_| self.residual.is_none());
        let estimate = machine.trust.of_thread(self.estimate(), variance, another);
        let mut past = [None; MAX_CORE_TYPES];
        past[machine.prior.slowest()] = self.past;
        let prior = machine.prior.with_estimate(estimate).with_past(&past);
        prior.fused(&std::array::from_fn(|of| self.measured(of, machine)))
    }

    /// How fast it was on a core type, in instructions per second.
    fn measured(&self, core_type: usize, machine: &KnownMachine) -> Option<MeasuredSpeed> {
        let clock = machine.clocks[core_type]?;
        self.ipc[core_type].of_at_least(MEASURED, clock, machine.now_ns)
    }

    /// SF of the fastest core type over the slowest, and how sure it is.
    fn sf(&self, machine: &KnownMachine) -> SfEstimate {
        let slowest = machine.prior.slowest();
        let speeds = self.speeds(machine);
        let sf = match slowest {
            0 => self.estimate(),
            slowest => 1.0 / speeds.speeds[slowest],
        };
        SfEstimate {
            sf,
            sigma: speeds.sigma(0, slowest),
        }
    }

    /// See [`Self::residual`].
    fn measured_over_said(&self, machine: &KnownMachine) -> Option<Residual> {
        let slowest = machine.prior.slowest();
        let (fast, slow) = (self.measured(0, machine)?, self.measured(slowest, machine)?);
        let residual = Residual {
            value: (fast.speed / slow.speed / self.estimate()).ln(),
            variance: fast.variance + slow.variance,
        };
        (slowest > 0).then_some(residual)
    }
}

/// What is known of the machine.
#[derive(Clone, Copy, Debug, Default)]
struct KnownMachine {
    prior: Prior,
    /// Mean clock by core type, Hz, once known.
    clocks: [Option<f64>; MAX_CORE_TYPES],
    /// How far the model is believed.
    trust: Trust,
    now_ns: u64,
}

#[derive(Debug)]
struct Thread {
    phases: Vec<Entry>,
    /// Which phase it is in.
    now: usize,
    /// Core type of its last sample.
    on: Option<usize>,
    samples: u64,
    usual: Mean,
    /// What earlier runs of its program were like.
    known: Option<ThreadProfile>,
    /// Of the phase that was measured last, see [`Entry::residual`].
    measured: Option<Residual>,
}

impl Thread {
    fn new() -> Self {
        Self {
            known: None,
            measured: None,
            phases: Vec::new(),
            now: 0,
            on: None,
            samples: 0,
            usual: Mean::default(),
        }
    }

    /// SF of the phase that this sample belongs to, if a model says any.
    fn take(
        &mut self,
        sample: &Sample,
        said: Option<SfEstimate>,
        machine: &KnownMachine,
    ) -> Option<f64> {
        let (mut phase, core_type) = (Phase::of(&sample.metrics), sample.core_type);
        self.samples += 1;
        // A core type that counts nothing of phases tells of none: it is the one of before.
        if let Some(entry) = self.phases.get_mut(self.now) {
            if phase == Phase::default() {
                phase = entry.phase;
            } else if entry.phase == Phase::default() {
                entry.phase = phase;
            }
        }
        let distances = self.phases.iter().map(|entry| entry.phase.distance(&phase));
        let nearest = distances.enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
        let same = |&(index, _): &(usize, f64)| self.phases[index].phase.is_same(&phase);
        self.now = match nearest.filter(same) {
            Some((index, _)) => index,
            None => self.put(phase),
        };
        let entry = &mut self.phases[self.now];
        entry.used = self.samples;
        if let Some(said) = said {
            entry.by_type[core_type].take(said.sf, AVERAGED);
            entry.variance.take(said.sigma * said.sigma, AVERAGED);
            if let Some(ef) = sample.ef.filter(|&ef| ef.is_finite() && ef > 0.0) {
                entry.energy[core_type].take(ef / said.sf, AVERAGED);
            }
        }
        // The first sample after a move is one of cold caches.
        let stays = self.on.replace(core_type) == Some(core_type);
        if stays && self.samples > DISCARDED.into() && sample.metrics.ipc > 0.0 {
            entry.ipc[core_type].take(sample.metrics.ipc, AVERAGED, machine.now_ns);
        }
        let told = sample.watts.filter(|_| stays).unwrap_or_default();
        for (apart, told) in entry.apart.iter_mut().zip(told.apart) {
            if let Some(sigma) = told.filter(|sigma| sigma.is_finite()) {
                apart.take(f64::from(sigma).powi(2), AVERAGED);
            }
        }
        for ((watts, variance), told) in entry.watts.iter_mut().zip(told.on) {
            let sound = |told: &SureWatts| {
                told.watts.is_finite() && told.watts > 0.0 && told.sigma.is_finite()
            };
            if let Some(told) = told.filter(sound) {
                watts.take(told.watts, AVERAGED);
                variance.take(told.sigma * told.sigma, AVERAGED);
            }
        }
        if !entry.is_estimated() {
            return None;
        }
        entry.residual = entry.measured_over_said(machine);
        entry.another = self.measured;
        self.measured = entry.residual.or(self.measured);
        let sf = entry.sf(machine).sf;
        self.usual.take(sf, AVERAGED_USUAL);
        Some(sf)
    }

    /// Of the phase that it is in, see [`Entry::residual`].
    fn residual(&self) -> Option<Residual> {
        self.phases.get(self.now)?.residual
    }

    fn put(&mut self, phase: Phase) -> usize {
        let entry = Entry {
            another: None,
            phase,
            by_type: Default::default(),
            variance: Mean::default(),
            energy: Default::default(),
            watts: Default::default(),
            apart: Default::default(),
            ipc: Default::default(),
            residual: None,
            past: self
                .known
                .as_ref()
                .and_then(|known| known.phase(&phase)?.sf),
            used: 0,
        };
        if self.phases.len() < PHASES {
            self.phases.push(entry);
            return self.phases.len() - 1;
        }
        let ages = self.phases.iter().map(|entry| entry.used).enumerate();
        let oldest = ages.min_by_key(|&(_, used)| used).map_or(0, |(at, _)| at);
        self.phases[oldest] = entry;
        oldest
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Learnt {
    threads: FxHashMap<TaskId, Thread>,
    /// By process id.
    programs: FxHashMap<u32, Mean>,
    /// Process ids that there are; kept for its memory.
    processes: FxHashSet<u32>,
    machine: KnownMachine,
    /// Of threads that have ended.
    past: Residuals,
    /// What is usual on each core type, W; 0 where it is not known.
    usual_watts: [f64; MAX_CORE_TYPES],
}

impl Learnt {
    /// Takes an estimate in, and watts, if the sample has any.
    pub(crate) fn observe(&mut self, sample: &Sample) {
        let sound = |said: &SfEstimate| said.sf.is_finite() && said.sigma.is_finite();
        let said = sample.sf.filter(sound);
        let tells = said.is_some() || sample.watts.is_some();
        if sample.core_type >= MAX_CORE_TYPES || !tells {
            return;
        }
        if let Some(told) = sample.watts {
            self.usual_watts = told.usual;
        }
        let sf = match (sample.last, said) {
            // All that is known of a thread that lives for less than a sample.
            (true, Some(said)) => Some(self.machine.trust.of(said.sf, 0.0).sf),
            (true, None) => None,
            (false, said) => {
                let thread = self.threads.entry(sample.task).or_insert_with(Thread::new);
                thread.take(sample, said, &self.machine)
            }
        };
        if let Some(sf) = sf {
            let program = self.programs.entry(sample.tgid).or_default();
            program.take(sf, AVERAGED_USUAL);
        }
    }

    /// Takes note of the mean clock of each core type, Hz, and forgets threads and programs that have
    /// ended.
    pub(crate) fn look(&mut self, snapshot: &Snapshot, clocks: &[Option<f64>; MAX_CORE_TYPES]) {
        let known = |task: &&Task| self.threads.contains_key(&task.id);
        if snapshot.tasks.iter().filter(known).count() < self.threads.len() {
            let past = &mut self.past;
            self.threads.retain(|&id, thread| {
                let alive = snapshot.is_alive(id);
                if !alive && let Some(residual) = thread.residual() {
                    past.remember(residual);
                }
                alive
            });
        }
        let mut residuals = self.past;
        let now = self.threads.values().filter_map(Thread::residual);
        now.for_each(|residual| residuals.add(residual));
        self.machine = KnownMachine {
            prior: Prior::of(snapshot.topology),
            clocks: *clocks,
            trust: residuals.trust(),
            now_ns: snapshot.now_ns,
        };
        if self.programs.is_empty() {
            return;
        }
        self.processes.clear();
        let processes = snapshot.tasks.iter().map(|task| task.tgid);
        self.processes.extend(processes);
        self.programs
            .retain(|tgid, _| self.processes.contains(tgid));
    }

    /// Whether no phase of a thread was measured on both core types, now or in earlier runs: a model alone says what it is.
    pub(crate) fn is_on_trust(&self, task: TaskId) -> bool {
        let tried = |known: &ThreadProfile| known.phases.iter().flatten().any(|of| of.sf.is_some());
        self.threads.get(&task).is_some_and(|thread| {
            let is_said = thread.samples == 0 || thread.usual.get().is_some();
            is_said && thread.measured.is_none() && !thread.known.as_ref().is_some_and(tried)
        })
    }

    /// Takes note of what earlier runs of its program were like.
    pub(crate) fn remember(&mut self, task: TaskId, known: &ThreadProfile) {
        let thread = self.threads.entry(task).or_insert_with(Thread::new);
        thread.known = Some(*known);
        for entry in &mut thread.phases {
            entry.past = known.phase(&entry.phase).and_then(|phase| phase.sf);
        }
    }

    /// That was wrong.
    pub(crate) fn forget_the_past(&mut self, task: TaskId) {
        if let Some(thread) = self.threads.get_mut(&task) {
            thread.known = None;
            thread.phases.iter_mut().for_each(|entry| entry.past = None);
        }
    }

    /// Adds what was measured of a thread's phases, for later runs.
    pub(crate) fn find(&self, task: TaskId, found: &mut ThreadProfile) {
        let Some(thread) = self.threads.get(&task) else {
            return;
        };
        let slowest = self.machine.prior.slowest();
        for entry in thread.phases.iter().filter(|entry| entry.is_estimated()) {
            let on = |of| entry.measured(of, &self.machine);
            if let (true, Some(fast), Some(slow)) = (slowest > 0, on(0), on(slowest)) {
                found.add_phase(ProfilePhase {
                    phase: entry.phase,
                    alone: None,
                    sf: Sure::of_factor(fast.speed / slow.speed, fast.variance + slow.variance),
                });
            }
        }
        let ratio = self.own_energy_ratio(task);
        found.energy = ratio.and_then(|ratio| Sure::of_factor(ratio, ENERGY * ENERGY));
    }

    /// SF of a thread in the phase that it was in last, where a model says any.
    pub(crate) fn sf(&self, task: TaskId) -> Option<SfEstimate> {
        Some(self.estimated(task)?.sf(&self.machine))
    }

    /// What a thread takes on the slowest core type over what it takes on the fastest for the same work, in the
    /// phase that it was in last: EF/SF (PMCTrack 2017, Eq. 6).
    pub(crate) fn energy_ratio(&self, task: TaskId) -> Option<f64> {
        let known = || self.threads.get(&task)?.known?.energy;
        self.own_energy_ratio(task)
            .or_else(|| Some(known()?.factor()))
    }

    /// Not that of earlier runs.
    fn own_energy_ratio(&self, task: TaskId) -> Option<f64> {
        over_types(&self.phase(task)?.energy)
    }

    /// What a thread takes on each core type, in the phase that it was in last, and what is usual.
    pub(crate) fn watts(&self, task: TaskId) -> SampleWatts {
        let phase = self.phase(task);
        SampleWatts {
            on: std::array::from_fn(|on| {
                let (watts, variance) = &phase?.watts[on];
                Some(SureWatts {
                    watts: watts.get()?,
                    sigma: variance.get()?.sqrt(),
                })
            }),
            apart: std::array::from_fn(|on| Some(phase?.apart[on].get()?.sqrt() as f32)),
            usual: self.usual_watts,
        }
    }

    /// Speeds of a thread by core type in the phase that it was in last, where a model says any.
    pub(crate) fn speeds(&self, task: TaskId) -> Option<SureSpeeds> {
        Some(self.estimated(task)?.speeds(&self.machine))
    }

    /// What a thread is assumed to be on core types where it was not measured: what the model says,
    /// or `otherwise`.
    pub(crate) fn prior(&self, task: TaskId, otherwise: Prior) -> Prior {
        self.sf(task)
            .map_or(otherwise, |sf| otherwise.with_estimate(sf))
    }

    fn phase(&self, task: TaskId) -> Option<&Entry> {
        let thread = self.threads.get(&task)?;
        thread.phases.get(thread.now)
    }

    fn estimated(&self, task: TaskId) -> Option<&Entry> {
        self.phase(task).filter(|entry| entry.is_estimated())
    }

    /// SF of a thread over all that it does; of a new one, that of its program.
    pub(crate) fn usual(&self, task: &Task) -> Option<f64> {
        let thread = self.threads.get(&task.id).and_then(|t| t.usual.get());
        thread.or_else(|| self.programs.get(&task.tgid)?.get())
    }
}

#[cfg(test)]
mod tests;
