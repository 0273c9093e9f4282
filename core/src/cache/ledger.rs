// SPDX-License-Identifier: GPL-2.0-or-later
//! What threads hold of their last-level caches, and their miss-rate curves, from samples and the task
//! table.

use super::counted::CountedLines;
use super::curve::MissRateCurve;
use super::occupancy::{CacheShare, hazard, step};
use super::partition::ProcessMisses;
use super::told::CacheStory;
use crate::limits::MAX_SLOTS;
use crate::pmu::Meaning;
use crate::pmu::sample::{LINE_BYTES, Sample};
use crate::table::{Task, TaskId};
use crate::topology::{MAX_CORE_TYPES, Topology};
use rustc_hash::FxHashMap;

/// Threads with curves, at most: a kilobyte or so each.
const MOST_CURVES: usize = 2048;

/// Threads that have ended whose curves are there until they were kept, at most.
const ENDED: usize = 256;

/// A thread that misses less often, of 1,000 instructions, gets no curve: no cache is worth anything to it.
const LEAST_MPKI: f64 = 0.02;

/// While what a thread holds changes by more than this part of the cache from one sample to the next, its misses are
/// those of a cache that fills or empties, and say nothing of the curve.
const SETTLED: f64 = 0.03;

/// A thread that has this part of what its process holds is taken to have all of it: what is counted of several threads together
/// makes no curve.
const ALONE: f64 = 0.9;

/// What a thread has in one cache.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct HeldLines {
    llc: usize,
    lines: f64,
}

/// What a thread's samples on a core type say.
#[derive(Clone, Copy, Debug, Default)]
struct MissRate {
    /// Misses in a ns of run time.
    per_ns: f64,
    /// See [`hazard`].
    hazard: f64,
    /// It was ever sampled there.
    known: bool,
    /// Run time since the last sample, ns, and what was charged for it, misses.
    since_ns: u64,
    charged: f64,
    /// Misses that the last sample had beyond what was charged.
    owed: f64,
}

#[derive(Clone, Debug)]
struct CachedThread {
    task: TaskId,
    tgid: u32,
    /// In the cache that it uses, and in the one before.
    held: [HeldLines; 2],
    rates: [MissRate; MAX_CORE_TYPES],
    /// As it was last sampled.
    latest: MissRate,
    run_ns: [u64; MAX_CORE_TYPES],
    /// It is in the task table, or was not at one look.
    seen: bool,
    waits: bool,
    /// At the last sample: core type, cache, and lines of it.
    before: Option<(usize, HeldLines)>,
    curves: Option<Box<ThreadCurves>>,
    /// Hardware counts what its process holds.
    counted: Option<Box<CountedLines>>,
    /// A bit for each core type whose curve is of what hardware has counted, and takes nothing else.
    exact: u8,
}

/// By core type.
type ThreadCurves = [MissRateCurve; MAX_CORE_TYPES];

/// See the module.
#[derive(Debug, Default)]
pub struct CacheLedger {
    /// By slot.
    threads: Vec<Option<CachedThread>>,
    curves: usize,
    /// Of threads that have ended.
    ended: Vec<(TaskId, Box<ThreadCurves>)>,
    /// What processes did since this was last taken, if asked for: see [`Self::follow_processes`].
    pub processes: Option<FxHashMap<u32, ProcessMisses>>,
    /// Kept for its memory.
    shares: Vec<CacheShare>,
    owners: Vec<(usize, usize)>,
}

impl CacheLedger {
    /// Sums up what processes did in [`Self::processes`] from now on.
    pub fn follow_processes(&mut self) {
        self.processes.get_or_insert_default();
    }

    /// Whether there is anything that goes by [`Self::update`].
    pub fn is_on(&self) -> bool {
        !self.threads.is_empty() || self.processes.is_some()
    }

    /// Takes note of what a thread missed.
    pub fn observe(&mut self, sample: &Sample, topology: &Topology) {
        let Some(misses) = sample.counts.get(Meaning::LlcMisses) else {
            return;
        };
        let instructions = sample.counts.get(Meaning::Instructions);
        if let (Some(processes), Some(instructions)) = (&mut self.processes, instructions)
            && (processes.len() < MAX_SLOTS as usize || processes.contains_key(&sample.tgid))
        {
            let process = processes.entry(sample.tgid).or_default();
            process.pid = sample.tgid;
            process.instructions += instructions;
            process.misses += misses;
        }
        if sample.last || sample.run_ns == 0 || sample.core_type >= MAX_CORE_TYPES {
            return;
        }
        let slot = sample.task.slot as usize;
        if slot >= MAX_SLOTS as usize {
            return;
        }
        if slot >= self.threads.len() {
            self.threads.resize(slot + 1, None);
        }
        if !matches!(&self.threads[slot], Some(thread) if thread.task == sample.task) {
            // Of one that has ended before.
            let before = self.threads[slot].take();
            self.curves -= usize::from(end(before, &mut self.ended));
        }
        let thread = self.threads[slot].get_or_insert_with(|| CachedThread::new(sample));
        let rate = &mut thread.rates[sample.core_type];
        rate.per_ns = misses / sample.run_ns as f64;
        rate.hazard = hazard(misses, sample.counts.get(Meaning::LlcReferences));
        rate.known = true;
        // The table may have been read a little later than the sample was sent.
        let really = rate.per_ns * rate.since_ns as f64;
        rate.owed = really - rate.charged;
        (rate.charged, rate.since_ns) = (0.0, 0);
        thread.latest = *rate;
        let here = thread.held[0];
        let before = thread.before.replace((sample.core_type, here));
        let same = |&(core_type, held): &(usize, HeldLines)| {
            core_type == sample.core_type && held.llc == here.llc && thread.seen
        };
        if let (Some(counted), Some(instructions)) = (&mut thread.counted, instructions) {
            counted.observe(sample.core_type, instructions, misses);
            if counted.is_stale() {
                (thread.counted, thread.exact) = (None, 0);
            }
        }
        let mpki = sample.counts.per_kilo(Meaning::LlcMisses);
        if let (Some(mpki), Some(capacity), Some((_, before))) =
            (mpki, capacity(topology, here.llc), before.filter(same))
            && (here.lines - before.lines).abs() <= SETTLED * capacity
            && thread.exact & 1 << sample.core_type == 0
        {
            let part = 0.5 * (here.lines + before.lines) / capacity;
            thread.take(sample.core_type, part, mpki, &mut self.curves);
        }
    }

    /// Takes an interval in: `tasks` as they are now, in ascending order of ids.
    pub fn update(&mut self, tasks: &[Task], topology: &Topology) {
        if self.threads.is_empty() {
            return;
        }
        let mut tasks = tasks.iter().peekable();
        for (slot, place) in self.threads.iter_mut().enumerate() {
            while tasks
                .next_if(|task| (task.id.slot as usize) < slot)
                .is_some()
            {}
            let task = tasks.next_if(|task| task.id.slot as usize == slot);
            let Some(thread) = place else { continue };
            match task.filter(|task| task.id == thread.task) {
                Some(task) => thread.follow(task, topology),
                // Its first sample may come before the table has it.
                None if !thread.seen && !std::mem::replace(&mut thread.waits, true) => {}
                None => self.curves -= usize::from(end(place.take(), &mut self.ended)),
            }
        }
        for llc in 0..topology.llc_bytes.len() {
            self.share(llc, topology);
        }
    }

    /// What happened in one cache.
    fn share(&mut self, llc: usize, topology: &Topology) {
        let Some(capacity) = capacity(topology, llc) else {
            return;
        };
        self.shares.clear();
        self.owners.clear();
        for (at, thread) in self.threads.iter_mut().enumerate() {
            let Some(thread) = thread else { continue };
            for place in 0..thread.held.len() {
                let here = thread.held[place];
                if here.llc != llc || (place > 0 && here.lines <= 0.0) {
                    continue;
                }
                let (misses, hazard) = match place {
                    0 => thread.take_misses(),
                    _ => (0.0, 1.0),
                };
                self.owners.push((at, place));
                self.shares.push(CacheShare {
                    lines: here.lines,
                    misses,
                    hazard,
                });
            }
        }
        step(capacity, &mut self.shares);
        for (&(at, place), share) in self.owners.iter().zip(&self.shares) {
            if let Some(thread) = &mut self.threads[at] {
                thread.held[place].lines = share.lines;
            }
        }
    }

    /// What a thread holds of the cache that it uses, bytes; `None` where it is not known.
    pub fn bytes(&self, task: TaskId) -> Option<f64> {
        let thread = self.find(task).filter(|thread| thread.seen)?;
        Some(thread.held[0].lines * LINE_BYTES)
    }

    /// What a process's threads hold of all caches, bytes; `None` where it is not known.
    pub fn process_bytes(&self, tgid: u32) -> Option<f64> {
        let threads = self
            .threads
            .iter()
            .flatten()
            .filter(|thread| thread.tgid == tgid);
        let lines = threads.map(|thread| thread.held[0].lines + thread.held[1].lines);
        lines.reduce(|a, b| a + b).map(|lines| lines * LINE_BYTES)
    }

    /// Hardware has counted what a process holds, bytes, at `at_ns`: its threads have as much, in the proportions that
    /// were estimated. Told again it changes nothing.
    pub fn measured(&mut self, tgid: u32, at_ns: u64, bytes: f64, topology: &Topology) {
        if !(bytes.is_finite() && bytes >= 0.0) {
            return;
        }
        let is_own = |thread: &CachedThread| thread.tgid == tgid && thread.seen;
        let threads = || self.threads.iter().flatten().filter(|of| is_own(of));
        let told = |of: &CachedThread| of.counted.as_ref().is_some_and(|last| last.is_of(at_ns));
        if threads().any(told) {
            return;
        }
        let estimated = self.process_bytes(tgid).unwrap_or(0.0) / LINE_BYTES;
        let lines = bytes / LINE_BYTES;
        // Where it was taken to hold nothing, all have as much.
        let each = lines / threads().count().max(1) as f64;
        let own = |thread: &&mut CachedThread| is_own(thread);
        for thread in self.threads.iter_mut().flatten().filter(own) {
            for (place, held) in thread.held.iter_mut().enumerate() {
                let most = capacity(topology, held.llc).unwrap_or(0.0);
                let share = match estimated >= 1.0 {
                    true => held.lines * (lines / estimated),
                    false if place == 0 => each,
                    false => 0.0,
                };
                held.lines = share.min(most);
            }
            let alone = thread.held[0].lines >= ALONE * lines;
            thread.read(at_ns, alone, topology, &mut self.curves);
        }
    }

    /// What is told of a thread, but for its curve; `None` where nothing is known. `measured` is what hardware has counted of its
    /// process: bytes held, and moved in a second.
    pub fn story(
        &self,
        task: &Task,
        topology: &Topology,
        measured: Option<(f64, Option<f64>)>,
    ) -> Option<CacheStory> {
        let llc = topology.cpu(u32::try_from(task.cpu).ok()?)?.llc;
        let size = capacity(topology, llc)? * LINE_BYTES;
        let bytes = self.bytes(task.id);
        let process_bytes = measured.map(|(bytes, _)| bytes);
        let process_bytes = process_bytes.or_else(|| self.process_bytes(task.tgid));
        Some(CacheStory {
            // Where hardware has counted, the thread's part is still estimated, and no more than all of it.
            bytes: bytes.unwrap_or(f64::INFINITY).min(process_bytes?),
            size,
            process_bytes: process_bytes?,
            measured: measured.is_some(),
            moved: measured.and_then(|(_, moved)| moved),
            ..CacheStory::default()
        })
    }

    /// All processes that hold anything, and how much, bytes; one may be there several times.
    pub fn holders(&self) -> impl Iterator<Item = (u32, f64)> {
        self.threads.iter().flatten().map(|thread| {
            let lines = thread.held[0].lines + thread.held[1].lines;
            (thread.tgid, lines * LINE_BYTES)
        })
    }

    /// The miss-rate curve of a thread on a core type; it may have ended since [`Self::forget_ended`].
    pub fn curve(&self, task: TaskId, core_type: usize) -> Option<&MissRateCurve> {
        let ended = || self.ended.iter().rev().find(|(of, _)| *of == task);
        let curves = match self.find(task) {
            Some(thread) => thread.curves.as_deref()?,
            None => &*ended()?.1,
        };
        curves.get(core_type).filter(|curve| !curve.is_empty())
    }

    /// Forgets the curves of threads that have ended.
    pub fn forget_ended(&mut self) {
        self.ended.clear();
    }

    fn find(&self, task: TaskId) -> Option<&CachedThread> {
        let thread = self.threads.get(task.slot as usize)?.as_ref()?;
        (thread.task == task).then_some(thread)
    }
}

/// A thread has ended; says whether it had curves.
fn end(thread: Option<CachedThread>, ended: &mut Vec<(TaskId, Box<ThreadCurves>)>) -> bool {
    let Some((task, curves)) = thread.and_then(|of| Some((of.task, of.curves?))) else {
        return false;
    };
    if ended.len() < ENDED {
        ended.push((task, curves));
    }
    true
}

impl CachedThread {
    fn new(sample: &Sample) -> Self {
        Self {
            task: sample.task,
            tgid: sample.tgid,
            held: Default::default(),
            rates: Default::default(),
            latest: MissRate::default(),
            run_ns: [0; MAX_CORE_TYPES],
            seen: false,
            waits: false,
            before: None,
            curves: None,
            counted: None,
            exact: 0,
        }
    }

    /// Takes a pair in for its curve on a core type; `curves` is how many threads have any.
    fn take(&mut self, core_type: usize, part: f64, mpki: f64, curves: &mut usize) {
        if self.curves.is_none() && *curves < MOST_CURVES && mpki >= LEAST_MPKI {
            *curves += 1;
            self.curves = Some(Box::default());
        }
        if let Some(curves) = &mut self.curves {
            curves[core_type].take(part, mpki);
        }
    }

    /// Hardware has counted what its process holds now; `alone` says that this is what the thread does.
    fn read(&mut self, at_ns: u64, alone: bool, topology: &Topology, curves: &mut usize) {
        let HeldLines { llc, lines } = self.held[0];
        let Some(capacity) = capacity(topology, llc) else {
            return;
        };
        let counted = self.counted.get_or_insert_default();
        let Some((lines, mpki)) = counted.read(at_ns, llc, lines, SETTLED * capacity) else {
            return;
        };
        if !alone {
            return;
        }
        for (core_type, mpki) in mpki.into_iter().enumerate() {
            let Some(mpki) = mpki else { continue };
            if self.exact & 1 << core_type == 0
                && let Some(curves) = &mut self.curves
            {
                curves[core_type] = MissRateCurve::default();
            }
            self.exact |= 1 << core_type;
            self.take(core_type, lines / capacity, mpki, curves);
        }
    }

    /// Where it is, and for how long it ran.
    fn follow(&mut self, task: &Task, topology: &Topology) {
        let cpu = u32::try_from(task.cpu).ok();
        if let Some(cpu) = cpu.and_then(|cpu| topology.cpu(cpu))
            && (cpu.llc != self.held[0].llc || !self.seen)
        {
            self.held.swap(0, 1);
            if self.held[0].llc != cpu.llc || !self.seen {
                self.held[0] = HeldLines {
                    llc: cpu.llc,
                    lines: 0.0,
                };
            }
        }
        for ((rate, before), now) in self.rates.iter_mut().zip(&mut self.run_ns).zip(task.run_ns) {
            let ran = now.saturating_sub(*before);
            *before = now;
            if self.seen && ran > 0 {
                if !rate.known {
                    let latest = self.latest;
                    (rate.per_ns, rate.hazard) = (latest.per_ns, latest.hazard);
                }
                rate.since_ns += ran;
            }
        }
        self.seen = true;
    }

    /// Its misses since the last time, and how easily its lines are evicted.
    fn take_misses(&mut self) -> (f64, f64) {
        let (mut misses, mut weighed) = (0.0, 0.0);
        for rate in &mut self.rates {
            let so_far = rate.per_ns * rate.since_ns as f64;
            let new = (so_far - rate.charged + std::mem::take(&mut rate.owed)).max(0.0);
            rate.charged = so_far;
            misses += new;
            weighed += new * rate.hazard;
        }
        // What does not run hits nothing.
        match misses > 0.0 {
            true => (misses, weighed / misses),
            false => (0.0, self.resting()),
        }
    }

    fn resting(&self) -> f64 {
        let ran = self.rates.iter().any(|rate| rate.since_ns > 0);
        match ran && self.latest.known {
            true => self.latest.hazard,
            false => 1.0,
        }
    }
}

/// Lines of a cache.
fn capacity(topology: &Topology, llc: usize) -> Option<f64> {
    let bytes = topology.llc_bytes.get(llc).filter(|&&bytes| bytes > 0)?;
    Some(*bytes as f64 / LINE_BYTES)
}

#[cfg(test)]
mod tests;
