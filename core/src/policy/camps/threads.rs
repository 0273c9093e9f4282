// SPDX-License-Identifier: GPL-2.0-or-later
//! What is known of each thread's speed: samples in, slowdowns out (CAMPS 2018, sections 4.2 and
//! 4.5).

mod company;
mod forecast;
mod thread;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::knowledge::{Past, ThreadProfile};
use crate::pmu::sample::{Sample, SampleMetrics};
use crate::policy::{Action, Insight, Snapshot};
use crate::slowdown::history::APPLICATION_ENTRIES;
use crate::slowdown::{
    Estimator, History, MemoryLoad, Phase, Reading, ReadingOutcome, SiblingFactor, Thresholds,
    sibling,
};
use crate::table::{Task, TaskId, TaskState};
use crate::topology::{MAX_CORE_TYPES, Topology};

use company::{Company, Witness};
pub(super) use thread::Thread;

/// The fastest core type.
const BIG: usize = 0;

/// A sample that waits for the next look.
struct Noted {
    task: TaskId,
    /// Index into the snapshot.
    at: usize,
    core_type: usize,
    metrics: SampleMetrics,
}

/// The estimators of all threads.
pub struct ThreadEstimators {
    /// As calibrated.
    limits: Option<Thresholds>,
    /// Of a thread's history table.
    entries: usize,
    /// Samples of known phases, and of unknown ones.
    hits_and_misses: (u64, u64),
    /// Samples that went into history tables, and those of them whose phase was unknown.
    learned: (u64, u64),
    threads: FxHashMap<TaskId, Thread>,
    /// History tables of applications (L2), by process id.
    applications: FxHashMap<u32, History>,
    noted: Vec<Noted>,
    looked_at_ns: Option<u64>,
    /// Load now and at the last look.
    load: MemoryLoad,
    load_before: MemoryLoad,
    /// Process ids that there are; kept for its memory.
    processes: FxHashSet<u32>,
    /// Clock that can be had on the fastest type, Hz: the highest mean clock among the latest
    /// samples from there.
    big_frequency: Option<f64>,
    /// Clocks in samples, Hz.
    clocks: Recent,
    /// What siblings do to threads, all of them.
    siblings: SiblingFactor,
    /// What part of the threads on each core type share their core.
    shared: [f64; MAX_CORE_TYPES],
    company: Company,
}

/// The highest value of the last minute, or half of it: what was said once in error is forgotten.
#[derive(Default)]
struct Recent {
    now: Option<f64>,
    before: Option<f64>,
    since_ns: u64,
}

impl Recent {
    const HALF_NS: u64 = 30_000_000_000;

    fn note(&mut self, now_ns: u64, values: impl Iterator<Item = f64>) {
        if now_ns.saturating_sub(self.since_ns) >= Self::HALF_NS {
            // While nothing is said, what was said last holds.
            self.before = self.now.take().or(self.before);
            self.since_ns = now_ns;
        }
        self.now = values.chain(self.now).max_by(f64::total_cmp);
    }

    fn highest(&self) -> Option<f64> {
        self.now
            .into_iter()
            .chain(self.before)
            .max_by(f64::total_cmp)
    }
}

impl ThreadEstimators {
    pub(super) fn new(limits: Option<Thresholds>, entries: usize) -> Self {
        Self {
            limits,
            entries,
            hits_and_misses: (0, 0),
            learned: (0, 0),
            threads: FxHashMap::default(),
            applications: FxHashMap::default(),
            noted: Vec::new(),
            looked_at_ns: None,
            load: MemoryLoad::default(),
            load_before: MemoryLoad::default(),
            processes: FxHashSet::default(),
            big_frequency: None,
            clocks: Recent::default(),
            siblings: SiblingFactor::default(),
            shared: [0.0; MAX_CORE_TYPES],
            company: Company::default(),
        }
    }

    /// When contention is low.
    pub fn limits(&self) -> Thresholds {
        self.limits
            .unwrap_or_else(|| Thresholds::assumed(self.clocks.highest()))
    }

    /// The estimator of a thread.
    pub fn estimator(&self, task: TaskId) -> Option<&Estimator> {
        Some(&self.threads.get(&task)?.estimator)
    }

    /// The CPU that a task uses, if any, and its latest BTR, bytes/s; 0 if that is not known.
    pub(super) fn runs(&self, task: &Task) -> Option<(u32, f64)> {
        runs(&self.threads, task)
    }

    /// Samples so far whose phase was known, and those whose phase was not.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        self.hits_and_misses
    }

    /// Samples so far that went into history tables, and those of them whose phase was not known.
    pub fn learned(&self) -> (u64, u64) {
        self.learned
    }

    /// What was made of a thread's latest sample.
    pub fn last_outcome(&self, task: TaskId) -> Option<ReadingOutcome> {
        self.threads.get(&task)?.last
    }

    /// What is known of a thread, to be shown.
    pub(super) fn insight(&self, task: TaskId, topology: &Topology) -> Insight {
        let mut insight = Insight::default();
        let Some(thread) = self.threads.get(&task) else {
            return insight;
        };
        for core_type in 0..topology.types.len() {
            insight.slowdown[core_type] = thread.estimator.slowdown(core_type);
            insight.asymmetry[core_type] = thread.asymmetry[core_type];
        }
        insight.asymmetry[BIG] = Some(1.0);
        let known = matches!(
            thread.last,
            Some(ReadingOutcome::Hit | ReadingOutcome::Learned { .. })
        );
        insight.btr = thread
            .btr_on
            .iter()
            .any(Option::is_some)
            .then_some(thread.btr);
        insight.phase = thread.estimator.history().latest().filter(|_| known);
        let intervals = thread.estimator.intervals();
        insight.hit_rate =
            (intervals > 0).then(|| thread.estimator.hit_rate(Estimator::MAX_INTERVALS));
        insight
    }

    /// A thread's estimator and its latest BTR, bytes/s.
    pub(super) fn known(&self, task: TaskId) -> Option<(&Estimator, f64)> {
        let thread = self.threads.get(&task)?;
        Some((&thread.estimator, thread.btr))
    }

    /// Takes note of what earlier runs of its program were like.
    pub(super) fn remember(&mut self, task: TaskId, known: &ThreadProfile) {
        let fresh = || Thread::new(self.entries);
        let thread = self.threads.entry(task).or_insert_with(fresh);
        thread.now_ns = self.looked_at_ns.unwrap_or_default();
        thread.remember(known);
    }

    /// Adds what was found of a thread, for later runs.
    pub(super) fn find(&self, task: TaskId, found: &mut ThreadProfile) {
        if let Some(thread) = self.threads.get(&task) {
            thread.find(found);
        }
    }

    /// What became of what was known of a thread's program.
    pub(super) fn past(&self, task: TaskId) -> Past {
        let thread = self.threads.get(&task);
        thread.map_or(Past::Unknown, |thread| thread.past.past())
    }

    /// Notes a sample. Whether contention was low is for [`ThreadEstimators::look`] to say, which
    /// knows what runs where.
    pub(super) fn take(&mut self, sample: &Sample) {
        if !sample.last && sample.core_type < MAX_CORE_TYPES {
            self.noted.push(Noted {
                task: sample.task,
                at: 0,
                core_type: sample.core_type,
                metrics: sample.metrics,
            });
        }
    }

    /// Turns the samples since the last look into slowdowns, and appends those that changed.
    pub(super) fn look(&mut self, snapshot: &Snapshot, actions: &mut Vec<Action>) {
        let topology = snapshot.topology;
        self.noted.retain_mut(|noted| {
            let at = snapshot.index(noted.task);
            noted.at = at.unwrap_or_default();
            at.is_some()
        });
        for noted in &self.noted {
            let fresh = || Thread::new(self.entries);
            let thread = self.threads.entry(noted.task).or_insert_with(fresh);
            thread.btr = noted.metrics.btr.unwrap_or(0.0);
            thread.btr_on[noted.core_type] = noted.metrics.btr;
            thread.sampled |= 1 << noted.core_type;
        }
        let on_big = self.noted.iter().filter(|noted| noted.core_type == BIG);
        let clocks = on_big.map(|noted| noted.metrics.frequency);
        self.big_frequency = clocks
            .max_by(f64::total_cmp)
            .or(self.big_frequency)
            .filter(|&clock| clock > 0.0);

        let clocks = self.noted.iter().map(|noted| noted.metrics.frequency);
        self.clocks.note(snapshot.now_ns, clocks);

        let now = snapshot.now_ns;
        let elapsed = now.saturating_sub(self.looked_at_ns.unwrap_or(now));
        self.looked_at_ns = Some(now);
        let mut alive = 0;
        for task in snapshot.tasks {
            if let Some(thread) = self.threads.get_mut(&task.id) {
                alive += 1;
                thread.cpu_before = thread.cpu;
                // One that was preempted for a moment, by the agent that looks, say, is in the
                // others' way all the same.
                let ran = task.total_ns().saturating_sub(thread.total_ns);
                let waits = task.state == TaskState::Queued && ran > 0 && 2 * ran >= elapsed;
                thread.cpu = running_on(task).or(waits.then_some(task.cpu.max(0) as u32));
                thread.total_ns = task.total_ns();
            }
        }
        if alive < self.threads.len() {
            self.forget(snapshot);
        }
        std::mem::swap(&mut self.load, &mut self.load_before);
        let running = |task: &Task| {
            let (cpu, btr) = runs(&self.threads, task)?;
            let thread = self.threads.get(&task.id);
            let factor = thread.map_or(1.0, |of| of.aggressiveness.factor());
            Some((cpu, btr * factor))
        };
        self.load
            .refill(topology, snapshot.tasks.iter().filter_map(running));
        self.shared = self.load.shared_part(topology);

        self.company.look(snapshot, &self.threads, &self.load);
        let noted = std::mem::take(&mut self.noted);
        for sample in &noted {
            self.learn(sample, &snapshot.tasks[sample.at], topology);
        }
        self.noted = noted;
        self.noted.clear();

        for task in snapshot.tasks {
            let Some(thread) = self.threads.get_mut(&task.id) else {
                continue;
            };
            if let Some(inverse) = thread.news(topology) {
                actions.push(Action::Slowdown(task.id, inverse));
            }
        }
    }

    /// Another decides: samples are of no use when nothing is known of what ran beside them, and what ran where is
    /// not what runs at the next look.
    pub(super) fn rest(&mut self, snapshot: &Snapshot) {
        self.noted.clear();
        self.looked_at_ns = Some(snapshot.now_ns);
        self.threads
            .values_mut()
            .for_each(|thread| thread.cpu = None);
        if self.threads.keys().any(|&id| !snapshot.is_alive(id)) {
            self.forget(snapshot);
        }
    }

    /// Drops what belongs to tasks that ended.
    fn forget(&mut self, snapshot: &Snapshot) {
        self.threads.retain(|&id, _| snapshot.is_alive(id));
        self.processes.clear();
        self.processes
            .extend(snapshot.tasks.iter().map(|task| task.tgid));
        let alive = &self.processes;
        self.applications.retain(|tgid, _| alive.contains(tgid));
    }

    fn learn(&mut self, sample: &Noted, task: &Task, topology: &Topology) {
        let limits = self.limits();
        let Some(thread) = self.threads.get_mut(&task.id) else {
            return;
        };
        // Where it ran while the sample was taken: if both looks agree with the sample on the
        // type, contention must be low at both, for the sample spans the time between.
        let is_there = |cpu: &u32| {
            let cpu = topology.cpu(*cpu);
            cpu.is_some_and(|cpu| cpu.core_type == sample.core_type)
        };
        let low = |load: &MemoryLoad, cpu| load.is_low(topology, cpu, thread.btr, &limits);
        let before = thread
            .cpu_before
            .filter(is_there)
            .map(|cpu| low(&self.load_before, cpu));
        let now = thread.cpu.filter(is_there).map(|cpu| low(&self.load, cpu));
        let low_contention = match (before, now) {
            (Some(before), Some(now)) => before && now,
            (Some(low), None) | (None, Some(low)) => low,
            (None, None) => false,
        };
        // Likewise whether it had the core to itself.
        let shared = |load: &MemoryLoad, cpu: Option<u32>| {
            let cpu = cpu.filter(is_there)?;
            Some(load.is_shared(topology, cpu))
        };
        let before = shared(&self.load_before, thread.cpu_before);
        let now = shared(&self.load, thread.cpu);
        let is_shared = match (before, now) {
            (Some(before), Some(now)) if before != now => None,
            (one, other) => one.or(other),
        };
        thread.note_computing(sibling::computing(&sample.metrics, &limits));
        let waits = !low_contention && thread.btr >= limits.low_btr;
        let others = self.siblings.of_others();
        let sibling = is_shared.map(|is_shared| match is_shared {
            true if waits => thread.sibling.of_waiting(others),
            true => thread.sibling.known(others).factor(),
            false => 1.0,
        });
        let reading = Reading {
            core_type: sample.core_type,
            phase: Phase::of(&sample.metrics),
            ips: sample.metrics.ips,
            ipc: sample.metrics.ipc,
            frequency: sample.metrics.frequency,
            big_frequency: self.big_frequency,
            low_contention,
            sibling,
        };
        if let (Some(true), true, BIG) = (is_shared, low_contention, sample.core_type)
            && let Some(alone) = thread.estimator.history().peek(&reading.phase)
            && alone.exact
        {
            let factor = alone.ipc / reading.ipc;
            thread.sibling.take(factor);
            self.siblings.take(factor);
        }
        let shared = self
            .applications
            .entry(task.tgid)
            .or_insert_with(|| History::new(self.entries * APPLICATION_ENTRIES));
        if thread.past.is_wrong(&reading, &thread.estimator) {
            thread.forget_the_past();
        }
        let outcome = thread.estimator.observe(&reading, Some(shared));
        thread.shared[sample.core_type] = reading.shared();
        if let ReadingOutcome::Learned { new } = outcome {
            self.learned.0 += 1;
            self.learned.1 += u64::from(new);
        }
        match outcome {
            ReadingOutcome::Discarded => {}
            ReadingOutcome::Hit | ReadingOutcome::Learned { new: false } => {
                self.hits_and_misses.0 += 1
            }
            ReadingOutcome::Miss
            | ReadingOutcome::Unknown
            | ReadingOutcome::Learned { new: true } => {
                self.hits_and_misses.1 += 1;
            }
        }
        if sample.core_type != BIG
            && matches!(outcome, ReadingOutcome::Hit | ReadingOutcome::Miss)
            && low_contention
            && sibling.is_some()
            && let Some(all) = thread.estimator.slowdown(sample.core_type)
        {
            thread.asymmetry[sample.core_type] = Some((all / reading.shared()).max(1.0));
        }
        // What it met while the sample was taken: the mean of both looks, where both know.
        let met = |load: &MemoryLoad, cpu: Option<u32>| {
            let cpu = topology.cpu(cpu.filter(is_there)?)?;
            let own = load.on(cpu.id).unwrap_or(0.0);
            Some((load.in_domain(cpu.llc) - own).max(0.0))
        };
        let before = met(&self.load_before, thread.cpu_before);
        let now = met(&self.load, thread.cpu);
        let met = match (before, now) {
            (Some(before), Some(now)) => Some(0.5 * (before + now)),
            (one, other) => one.or(other),
        };
        let is_new = matches!(
            outcome,
            ReadingOutcome::Hit | ReadingOutcome::Miss | ReadingOutcome::Learned { .. }
        );
        let contention = thread
            .contention(sample.core_type)
            .filter(|_| is_new && sibling.is_some());
        let mut witness = None;
        if let (Some(others), Some(contention)) = (met, contention) {
            let at_ns = self.looked_at_ns.unwrap_or_default();
            let sensitivity = &mut thread.sensitivity[sample.core_type];
            witness = Some(Witness {
                found: contention - 1.0,
                foreseen: sensitivity.per_byte(&limits, at_ns) * others,
                others,
            });
            sensitivity.take(contention, others, at_ns);
        }
        thread.last = Some(outcome);
        let cpu = thread.cpu.and_then(|cpu| topology.cpu(cpu));
        if let (Some(witness), Some(cpu)) = (witness, cpu) {
            self.company
                .tell(&mut self.threads, task.id, cpu.llc, witness);
        }
    }

    /// How much each uses memory.
    pub(super) fn load(&self) -> &MemoryLoad {
        &self.load
    }
}

fn runs(threads: &FxHashMap<TaskId, Thread>, task: &Task) -> Option<(u32, f64)> {
    match threads.get(&task.id) {
        Some(thread) => Some((thread.cpu?, thread.btr)),
        None => Some((running_on(task)?, 0.0)),
    }
}

fn running_on(task: &Task) -> Option<u32> {
    (task.state == TaskState::Running)
        .then(|| u32::try_from(task.cpu).ok())
        .flatten()
}

#[cfg(test)]
mod tests;
