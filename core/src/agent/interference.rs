// SPDX-License-Identifier: GPL-2.0-or-later
//! Tells of each thread what slows it down, and which process does ([`crate::interference`]).
//!
//! A look at the task table says what runs beside what; a sample says how a thread fares there. What it takes is
//! bounded: a look goes through the table once, and seeks the culprits of no more than [`SOUGHT`] threads.

mod most;
mod thread;

use crate::interference::company::ThreadCompany;
use crate::interference::culprit::{Neighbour, culprit};
use crate::interference::signs::SignRates;
use crate::interference::undisturbed::BESIDE;
use crate::interference::{CLASSES, Interference, InterferenceClass};
use crate::knowledge::{ThreadLosses, UndisturbedProfile};
use crate::pmu::Meaning;
use crate::pmu::clock::HighestClock;
use crate::pmu::sample::{LINE_BYTES, Sample};
use crate::slowdown::{Phase, Thresholds, likely_bandwidth};
use crate::table::{Task, TaskId, TaskState};
use crate::topology::{MAX_CORE_TYPES, Topology};
use most::MostTraffic;
use thread::{COLD, DisturbedThread, ENOUGH};

/// Looks closer than this say nothing of what ran between them, ns.
const LEAST_NS: u64 = 10_000_000;

/// Threads whose culprits a look seeks, at most; others have their turn at the next.
const SOUGHT: usize = 64;

/// Threads that can be culprits: those that ran, the first so many.
const ACTIVE: usize = 512;

/// What ran for less than this part of the time is no culprit.
const RUNS: f64 = 0.02;

/// A thread that has to share its CPU may not run at all between two looks, which may be 10 ms apart: what waits for what is told by
/// their run time in so long, ns.
const LATELY: f64 = 500e6;

/// Other processes' threads are not waited for by less than this part of the time.
const LATE: f64 = 0.1;

/// What is known of a slot's thread, as company.
#[derive(Clone, Copy, Debug, Default)]
struct SlotLoad {
    /// Of the task; 0 is none.
    generation: u32,
    tgid: u32,
    cpu: u32,
    /// Of that CPU, since the last look.
    llc: Option<usize>,
    core_type: u8,
    /// Run time at the last look, ns.
    ran_ns: u64,
    /// Part of the time since the one before in which it ran.
    share: f64,
    /// The same over [`LATELY`].
    lately: f64,
    /// While it runs, bytes/s.
    btr: f64,
    l2: Option<f64>,
    /// Look at which it was there.
    look: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub struct AgentInterference {
    limits: Option<Thresholds>,
    /// What memory has transferred, where nothing was measured.
    most: MostTraffic,
    /// The highest clock of each core type so far, Hz.
    clocks: [HighestClock; MAX_CORE_TYPES],
    loads: Vec<SlotLoad>,
    threads: Vec<Option<Box<DisturbedThread>>>,
    /// Slots that ran lately.
    active: Vec<u32>,
    /// Busy part of each CPU, by id; of each cluster; and traffic of each contention domain, bytes/s.
    cpus: Vec<f64>,
    clusters: Vec<f64>,
    domains: Vec<f64>,
    looked_ns: Option<u64>,
    look: u32,
    /// Where the next look goes on to seek culprits.
    next: usize,
}

impl AgentInterference {
    /// Goes by what was measured of the machine's memory; `None`: by the clock.
    pub fn set_limits(&mut self, limits: Option<Thresholds>) {
        self.limits = limits;
    }

    /// What memory transfers at the most, bytes/s, as far as is known: at the least, and most likely.
    fn bandwidth(&self) -> [f64; 2] {
        if let Some(limits) = self.limits {
            return [limits.bandwidth(); 2];
        }
        let hz = self.clocks[0].hz();
        let likely = likely_bandwidth(hz).max(self.most.bytes_per_second());
        [Thresholds::assumed(hz).bandwidth(), likely]
    }

    /// Takes note of what runs where. `watts` is what a thread takes on a core type while it runs, where that is
    /// known.
    pub(super) fn look(
        &mut self,
        now_ns: u64,
        tasks: &[Task],
        topology: &Topology,
        watts: impl Fn(TaskId, usize) -> Option<f64>,
    ) {
        let since = self.looked_ns.map(|before| now_ns.saturating_sub(before));
        if since.is_some_and(|passed| passed < LEAST_NS) {
            return;
        }
        self.looked_ns = Some(now_ns);
        self.look = self.look.wrapping_add(1);
        let passed = since.unwrap_or(u64::MAX).max(1) as f64;
        self.most.look(now_ns);
        self.clear(topology);
        for task in tasks {
            self.take(task, passed, since.is_some());
        }
        for &slot in &self.active {
            let load = &mut self.loads[slot as usize];
            let Some(cpu) = topology.cpu(load.cpu) else {
                continue;
            };
            load.llc = Some(cpu.llc);
            let busy = &mut self.cpus[load.cpu as usize];
            *busy = (*busy + load.share).min(1.0);
            self.clusters[cpu.domain] += load.share;
            self.domains[cpu.llc] += load.share * load.btr;
        }
        self.seek(topology, watts);
    }

    fn clear(&mut self, topology: &Topology) {
        let fill = |of: &mut Vec<f64>, number: usize| {
            of.clear();
            of.resize(number, 0.0);
        };
        let domains = topology.cpus.iter().map(|cpu| cpu.llc + 1).max();
        fill(&mut self.cpus, topology.nr_cpu_ids as usize);
        fill(&mut self.clusters, topology.domains.len());
        fill(&mut self.domains, domains.unwrap_or(0));
        self.active.clear();
    }

    fn take(&mut self, task: &Task, passed: f64, looked: bool) {
        let slot = task.id.slot as usize;
        if self.loads.len() <= slot {
            self.loads.resize(slot + 1, SlotLoad::default());
        }
        let load = &mut self.loads[slot];
        let ran_ns = task.total_ns();
        if load.generation != task.id.generation {
            *load = SlotLoad {
                generation: task.id.generation,
                ran_ns,
                ..SlotLoad::default()
            };
        }
        let share = ran_ns.saturating_sub(load.ran_ns) as f64 / passed;
        let now = if looked { share.min(1.0) } else { 0.0 };
        let lately = load.lately + (now - load.lately) * (1.0 - (-passed / LATELY).exp());
        *load = SlotLoad {
            tgid: task.tgid,
            cpu: task.cpu.max(0) as u32,
            core_type: task.core_type as u8,
            ran_ns,
            share: now,
            lately,
            look: self.look,
            ..*load
        };
        if load.share.max(load.lately) >= RUNS && self.active.len() < ACTIVE {
            self.active.push(task.id.slot);
        }
        let Some(thread) = self.thread_mut(task.id) else {
            return;
        };
        thread.lose(share.min(1.0) * passed / 1e9);
        thread.look(task.state == TaskState::Blocked && !task.spinning);
    }

    /// Finds out what disturbs threads, those whose turn it is.
    fn seek(&mut self, topology: &Topology, watts: impl Fn(TaskId, usize) -> Option<f64>) {
        let all = self.threads.len();
        let (mut sought, mut seen) = (0, 0);
        while sought < SOUGHT && seen < all {
            seen += 1;
            self.next = (self.next + 1) % all;
            let slot = self.next;
            let Some(mut thread) = self.threads[slot].take() else {
                continue;
            };
            // One that was told of before it was seen may have ended since.
            let load = self.loads.get(slot).copied().unwrap_or_default();
            if load.look == self.look && load.generation == thread.generation {
                let longer = thread.sleeps_longer();
                (thread.waits, thread.late) = match longer {
                    Some(longer) => self.waits(slot, &thread, longer),
                    None => (0.0, None),
                };
                sought += usize::from(longer.is_some());
                let (class, _) = thread.suspected();
                thread.culprit = None;
                if class != InterferenceClass::None {
                    let beside = self.beside(slot, topology, &watts);
                    thread.culprit = culprit(class, beside, &thread.before);
                    sought += 1;
                }
            }
            self.threads[slot] = Some(thread);
        }
    }

    /// What ran beside a slot's thread.
    fn beside<'a>(
        &'a self,
        slot: usize,
        topology: &'a Topology,
        watts: impl Fn(TaskId, usize) -> Option<f64> + 'a,
    ) -> impl Iterator<Item = Neighbour> + 'a {
        let here = topology.cpu(self.loads[slot].cpu);
        let others = self.active.iter().filter(move |&&of| of as usize != slot);
        others.filter_map(move |&of| {
            let load = &self.loads[of as usize];
            let (here, there) = (here?, topology.cpu(load.cpu)?);
            let id = TaskId {
                slot: of,
                generation: load.generation,
            };
            let core_type = usize::from(load.core_type);
            let capacity = topology.types.get(core_type).map_or(1024, |t| t.capacity);
            let same_core = here.core == there.core;
            let cluster = here.domain == there.domain && topology.domains[here.domain].shares_l2;
            Some(Neighbour {
                tgid: load.tgid,
                share: load.share,
                sibling: same_core && here.id != there.id,
                cluster: cluster && !same_core,
                domain: here.llc == there.llc,
                btr: load.btr,
                l2: load.l2,
                watts: watts(id, core_type).unwrap_or(f64::from(capacity) / 1024.0),
            })
        })
    }

    /// How many times `longer` a thread takes for one of its process that is late, as a logarithm, and the process that
    /// keeps that.
    fn waits(
        &self,
        slot: usize,
        thread: &DisturbedThread,
        longer: f64,
    ) -> (f64, Option<(u32, f64)>) {
        let own = self.loads[slot];
        let mates = self.active.iter().map(|&of| of as usize);
        let mates = mates.filter(|&of| of != slot && self.loads[of].tgid == own.tgid);
        // That which sleeps least is what the others wait for.
        let awake = |of: usize| self.known(of).map_or(0.0, |mate| 1.0 - mate.sleep);
        let Some(late) = mates.max_by(|&a, &b| awake(a).total_cmp(&awake(b))) else {
            return (0.0, None);
        };
        if awake(late) < 1.0 - thread.sleep + LATE {
            return (0.0, None);
        }
        // What shares its CPU keeps it, or else what disturbs it there.
        let cpu = self.loads[late].cpu;
        let there = self.active.iter().map(|&of| &self.loads[of as usize]);
        let there = there.filter(|of| of.cpu == cpu && of.tgid != own.tgid);
        let most = there.max_by(|a, b| a.lately.total_cmp(&b.lately));
        let culprit = match most.filter(|of| of.lately >= LATE) {
            Some(of) => Some((of.tgid, of.lately / (of.lately + self.loads[late].lately))),
            None => self.known(late).and_then(|mate| mate.culprit),
        };
        (longer, culprit)
    }

    fn known(&self, slot: usize) -> Option<&DisturbedThread> {
        let thread = self.threads.get(slot)?.as_deref()?;
        (thread.generation == self.loads.get(slot)?.generation).then_some(thread)
    }

    fn thread_mut(&mut self, id: TaskId) -> Option<&mut DisturbedThread> {
        let thread = self.threads.get_mut(id.slot as usize)?.as_deref_mut()?;
        (thread.generation == id.generation).then_some(thread)
    }

    /// What is known of a thread, out of its slot; of a new one nothing.
    fn take_thread(&mut self, id: TaskId) -> Box<DisturbedThread> {
        let slot = id.slot as usize;
        if self.threads.len() <= slot {
            self.threads.resize_with(slot + 1, || None);
        }
        match self.threads[slot].take() {
            Some(thread) if thread.generation == id.generation => thread,
            // Its memory is of use to another.
            Some(mut thread) => {
                *thread = DisturbedThread::new(id);
                thread
            }
            None => Box::new(DisturbedThread::new(id)),
        }
    }

    /// Takes note of what earlier runs of a thread's program did undisturbed.
    pub(super) fn remember(&mut self, task: TaskId, known: &UndisturbedProfile) {
        if known.iter().all(Option::is_none) {
            return self.forget_the_past(task);
        }
        let mut thread = self.take_thread(task);
        thread.undisturbed.remember(known);
        self.threads[task.slot as usize] = Some(thread);
    }

    /// What earlier runs did is wrong.
    pub(super) fn forget_the_past(&mut self, task: TaskId) {
        if let Some(thread) = self.thread_mut(task) {
            thread.undisturbed.forget_the_past();
        }
    }

    /// What a thread does undisturbed, for later runs.
    pub(super) fn undisturbed(&self, task: TaskId) -> UndisturbedProfile {
        let thread = self.threads.get(task.slot as usize);
        let thread = thread.and_then(|of| of.as_deref());
        thread
            .filter(|of| of.generation == task.generation)
            .map(|of| of.undisturbed.found())
            .unwrap_or_default()
    }

    /// Takes in how a thread fared.
    pub(super) fn observe(&mut self, sample: &Sample, topology: &Topology) {
        let slot = sample.task.slot as usize;
        let (metrics, core_type) = (&sample.metrics, sample.core_type);
        let sound = metrics.ipc > 0.0 && metrics.frequency > 0.0 && core_type < MAX_CORE_TYPES;
        if sample.last || !sound || slot >= self.loads.len() {
            return;
        }
        let each = |meaning| Some(sample.counts.per_kilo(meaning)? / 1e3);
        let now = SignRates {
            ipc: metrics.ipc,
            frequency: metrics.frequency,
            llc_misses: metrics.btr.map(|btr| btr / LINE_BYTES / metrics.ips),
            l2_misses: each(Meaning::L2Misses).or_else(|| each(Meaning::LlcReferences)),
            stalled: each(Meaning::StalledMem),
            awake: None,
        };
        self.clocks[core_type].note(now.frequency);
        let load = &mut self.loads[slot];
        if load.generation != sample.task.generation {
            return;
        }
        // What disturbs another begins in the same batch of samples as the disturbance.
        if let Some(domain) = load.llc.and_then(|llc| self.domains.get_mut(llc)) {
            *domain = (*domain + load.share * (now.btr() - load.btr)).max(0.0);
        }
        if let Some(llc) = load.llc {
            self.most.take(llc, now.btr() * sample.run_ns as f64 / 1e9);
        }
        load.btr = now.btr();
        load.l2 = now.l2_misses.map(|of| of * now.ips() * LINE_BYTES);
        let mut thread = self.take_thread(sample.task);
        if thread.core_type != core_type {
            (thread.core_type, thread.samples) = (core_type, 0);
            thread.likely = [0.0; CLASSES];
            thread.slow = 0.0;
        }
        thread.samples = thread.samples.saturating_add(1);
        if thread.samples > COLD
            && let Some(company) = self.company(slot, topology)
        {
            let clock = self.clocks[core_type].hz().unwrap_or(now.frequency);
            let beside = || self.loudest(slot);
            thread.take(&now, &Phase::of(metrics), company, beside, clock);
        }
        self.threads[slot] = Some(thread);
    }

    /// What a slot's thread has for company.
    fn company(&self, slot: usize, topology: &Topology) -> Option<ThreadCompany> {
        let load = self.loads.get(slot)?;
        let here = topology.cpu(load.cpu)?;
        let busy = |&id: &u32| self.cpus.get(id as usize).copied().unwrap_or(0.0);
        let siblings = here.siblings.iter().filter(|&&id| id != here.id);
        let sibling: f64 = siblings.map(busy).sum();
        let shares_l2 = topology.domains.get(here.domain)?.shares_l2;
        let on_core: f64 = here.siblings.iter().map(busy).sum();
        let cluster = self.clusters.get(here.domain).copied().unwrap_or(0.0) - on_core;
        let own = load.share * load.btr;
        let (mut near, mut far) = (0.0, 0.0);
        for (llc, &traffic) in self.domains.iter().enumerate() {
            *if llc == here.llc { &mut near } else { &mut far } += traffic;
        }
        let [least_bandwidth, bandwidth] = self.bandwidth();
        let near = (near - own).max(0.0);
        Some(ThreadCompany {
            sibling: sibling.min(1.0),
            cluster: if shares_l2 { cluster.max(0.0) } else { 0.0 },
            btr: ThreadCompany::traffic(near, far, self.domains.len()),
            near_btr: near,
            bandwidth,
            least_bandwidth,
        })
    }

    /// The processes that transferred most in a slot's contention domain, and how much, bytes/s.
    fn loudest(&self, slot: usize) -> [(u32, f64); BESIDE] {
        let mut most = [(0, 0.0); BESIDE];
        let here = self.loads[slot].llc;
        // Of a crowd only the first: a sample is taken in on the way of every decision.
        for &of in self
            .active
            .iter()
            .take(64)
            .filter(|&&of| of as usize != slot)
        {
            let load = &self.loads[of as usize];
            let traffic = load.share * load.btr;
            if load.llc != here || traffic <= 0.0 {
                continue;
            }
            match most.iter_mut().find(|of| of.0 == load.tgid) {
                Some(of) => of.1 += traffic,
                None => {
                    let least = most.iter_mut().min_by(|a, b| a.1.total_cmp(&b.1));
                    if let Some(least) = least.filter(|least| least.1 < traffic) {
                        *least = (load.tgid, traffic);
                    }
                }
            }
        }
        most
    }

    /// What a thread suffers from; `None` if too little is known of it.
    pub fn of(&self, task: TaskId) -> Option<Interference> {
        let thread = self.threads.get(task.slot as usize)?.as_deref()?;
        let known = thread.generation == task.generation && thread.samples >= ENOUGH;
        known.then(|| thread.told())
    }

    /// What a thread has lost to others, and was not kept yet.
    pub(super) fn losses_mut(&mut self, task: TaskId) -> Option<&mut ThreadLosses> {
        self.thread_mut(task).map(|thread| &mut thread.losses)
    }

    /// Forgets threads that were not there at the last look.
    pub(super) fn forget_the_gone(&mut self) {
        for (slot, thread) in self.threads.iter_mut().enumerate() {
            if self
                .loads
                .get(slot)
                .is_none_or(|load| load.look != self.look)
            {
                *thread = None;
            }
        }
    }
}

#[cfg(test)]
mod tests;
