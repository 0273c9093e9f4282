// SPDX-License-Identifier: GPL-2.0-only
//! CPUs, the threads that run there, how fast they are, and the time.
//!
//! What threads do is [`super::switch`]; where they run, a [`super::scheduler::SimulatedScheduler`]
//! decides.

mod pace;

use std::rc::Rc;

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

use super::contention::{Contention, PhaseLoad, Rate, RunningThread};
use super::cpu_set::CpuSet;
use super::event::Events;
use super::job::Job;
use super::machine::SimulatedMachine;

/// When simulations begin: not at 0, so that virtual times before it have room.
pub(super) const BEGIN_NS: u64 = super::native::BEGIN_NS;

/// The affinity of a thread that may run anywhere: the first of [`SimulatedKernel::affinities`].
pub(super) const ANYWHERE: usize = 0;

/// Whether a thread is asleep, waits or runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadState {
    Blocked,
    Queued,
    Running,
    Dead,
}

/// What hardware has counted for a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ThreadCounts {
    pub(super) instructions: f64,
    pub(super) cycles: f64,
    pub(super) loads: f64,
    pub(super) branches: f64,
    pub(super) misses: f64,
    pub(super) references: f64,
    /// Cycles that it waited for memory.
    pub(super) stalled: f64,
}

/// Frames that a job has done, of those with a pace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct FrameCounts {
    pub(super) done: u64,
    /// Those of them that were late.
    pub(super) late: u64,
    /// How long they took from their begin to their end, together, ns.
    pub(super) worked_ns: u64,
    /// When the latest was done, ns.
    pub(super) done_at: u64,
}

/// A thread.
#[derive(Clone, Debug)]
pub(super) struct SimulatedThread {
    /// Index into the jobs.
    pub(super) job: usize,
    /// Its number among the job's threads.
    pub(super) member: u32,
    /// Index into [`SimulatedKernel::affinities`].
    pub(super) affinity: usize,
    pub(super) state: ThreadState,
    /// Where it runs, or is to run, or ran last.
    pub(super) cpu: u32,
    pub(super) sum_exec: u64,
    exec_start: u64,
    /// Index into the loads.
    pub(super) load: usize,
    /// Instructions left of its part of the stage, and until it sleeps.
    pub(super) left: f64,
    pub(super) awake_left: f64,
    /// When its present frame began, ns.
    pub(super) frame_from: u64,
    /// Time that goes by before it works: switches, others that it wakes up, and data that are brought along, ns.
    pub(super) debt: f64,
    pub(super) rate: Rate,
    settled_at: u64,
    /// Last-level cache where its data are.
    llc: Option<usize>,
    pub(super) counters: ThreadCounts,
    /// What it has taken, where the machine says so, nJ.
    pub(super) nj: f64,
    /// CPU where it ran last, and how often that was another than before.
    ran_on: Option<u32>,
    pub(super) moves: u64,
}

/// A CPU.
#[derive(Debug)]
pub(super) struct SimulatedCpu {
    /// The thread that runs there; none while it idles.
    pub(super) current: Option<u32>,
    pub(super) core_type: usize,
    pub(super) llc: usize,
    memory: usize,
    tick_armed: bool,
    next_tick: u64,
    offset: u64,
    stamp: u64,
    /// What ran last.
    last: Option<u32>,
    /// Time that threads ran here, ns.
    pub(super) busy_ns: u64,
}

/// See the module.
pub(super) struct SimulatedKernel {
    pub(super) now: u64,
    pub(super) machine: Rc<SimulatedMachine>,
    pub(super) cpus: Vec<SimulatedCpu>,
    pub(super) threads: Vec<SimulatedThread>,
    pub(super) jobs: Vec<Job>,
    /// Of each job, over all its runs.
    pub(super) frames: Vec<FrameCounts>,
    pub(super) affinities: Vec<CpuSet>,
    pub(super) events: Events,
    pub(super) rng: Pcg64Mcg,
    pub(super) contention: Contention,
    /// What threads took that have ended, nJ.
    past_nj: f64,
    /// CPUs by memory.
    by_memory: Vec<Vec<u32>>,
    /// CPUs that run something, since when any does, and for how long any did before, ns.
    running: usize,
    awake_from: u64,
    awake_ns: u64,
    dirty: Vec<usize>,
    is_dirty: Vec<bool>,
    /// CPUs whose next event is to be worked out.
    touched: Vec<u32>,
    free_threads: Vec<u32>,
    /// Room to look for balances.
    runners: Vec<(RunningThread, u32)>,
    key: Vec<RunningThread>,
    rates: Vec<Rate>,
}

impl SimulatedKernel {
    /// An idle machine. Ticks are as far from each other as `seed` has it.
    pub(super) fn new(machine: Rc<SimulatedMachine>, loads: Vec<PhaseLoad>, seed: u64) -> Self {
        use rand_pcg::rand_core::Rng as _;
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let topology = &machine.topology;
        let nr = topology.cpus.len();
        let mut by_memory = vec![Vec::new(); machine.memories.len()];
        let cpus = topology.cpus.iter().map(|cpu| {
            let memory = machine.llcs[cpu.llc].memory;
            by_memory[memory].push(cpu.id);
            SimulatedCpu {
                current: None,
                core_type: cpu.core_type,
                llc: cpu.llc,
                memory,
                tick_armed: false,
                next_tick: 0,
                offset: rng.next_u64() % machine.tick_ns,
                stamp: 0,
                last: None,
                busy_ns: 0,
            }
        });
        let cpus: Vec<SimulatedCpu> = cpus.collect();
        let everywhere = CpuSet::of(nr, 0..nr as u32);
        Self {
            now: BEGIN_NS,
            cpus,
            threads: Vec::new(),
            jobs: Vec::new(),
            frames: Vec::new(),
            affinities: vec![everywhere],
            events: Events::default(),
            rng,
            contention: Contention::new(&machine, loads),
            past_nj: 0.0,
            is_dirty: vec![false; by_memory.len()],
            by_memory,
            running: 0,
            awake_from: 0,
            awake_ns: 0,
            dirty: Vec::new(),
            touched: Vec::new(),
            free_threads: Vec::new(),
            runners: Vec::new(),
            key: Vec::new(),
            rates: Vec::new(),
            machine,
        }
    }

    /// A thread that is asleep; it was made on `cpu`.
    pub(super) fn new_thread(&mut self, job: usize, member: u32, cpu: u32) -> u32 {
        let thread = SimulatedThread {
            job,
            member,
            affinity: ANYWHERE,
            state: ThreadState::Blocked,
            cpu,
            sum_exec: 0,
            exec_start: self.now,
            load: 0,
            left: 0.0,
            awake_left: f64::INFINITY,
            frame_from: self.now,
            debt: 0.0,
            rate: Rate {
                ns_per_instruction: 1.0,
                misses: 0.0,
                lines: 0.0,
                stalled: 0.0,
            },
            settled_at: self.now,
            llc: None,
            counters: ThreadCounts::default(),
            nj: 0.0,
            ran_on: None,
            moves: 0,
        };
        match self.free_threads.pop() {
            Some(id) => {
                self.threads[id as usize] = thread;
                id
            }
            None => {
                self.threads.push(thread);
                self.threads.len() as u32 - 1
            }
        }
    }

    /// A thread gets its part of its job's present stage.
    pub(super) fn give_work(&mut self, thread: u32, part: f64) {
        let t = self.thread(thread);
        let stage = *self.jobs[t.job].stage_of(t.member);
        let t = self.thread_mut(thread);
        t.left = part;
        t.load = stage.load;
        t.awake_left = stage.sleep.map_or(f64::INFINITY, |(every, _)| every);
    }

    /// A thread is gone for good.
    pub(super) fn bury(&mut self, thread: u32) {
        self.past_nj += self.threads[thread as usize].nj;
        self.threads[thread as usize].state = ThreadState::Dead;
        self.free_threads.push(thread);
    }

    pub(super) fn thread(&self, thread: u32) -> &SimulatedThread {
        &self.threads[thread as usize]
    }

    pub(super) fn thread_mut(&mut self, thread: u32) -> &mut SimulatedThread {
        &mut self.threads[thread as usize]
    }

    pub(super) fn cpu(&self, cpu: u32) -> &SimulatedCpu {
        &self.cpus[cpu as usize]
    }

    /// The CPUs that a thread may use.
    pub(super) fn allowed(&self, thread: u32) -> &CpuSet {
        &self.affinities[self.thread(thread).affinity]
    }

    /// Whether a thread may use a CPU.
    pub(super) fn may_use(&self, thread: u32, cpu: u32) -> bool {
        let affinity = self.thread(thread).affinity;
        affinity == ANYWHERE || self.affinities[affinity].contains(cpu)
    }

    /// A thread goes onto a CPU.
    pub(super) fn put_on(&mut self, cpu: u32, thread: u32) {
        let now = self.now;
        let c = &mut self.cpus[cpu as usize];
        let (core_type, llc) = (c.core_type, c.llc);
        if c.current.is_none() {
            if self.running == 0 {
                self.awake_from = now;
            }
            self.running += 1;
        }
        let switched = c.last.replace(thread) != Some(thread);
        c.current = Some(thread);
        let bytes = self.machine.llcs[llc].bytes;
        let t = &mut self.threads[thread as usize];
        if switched {
            t.debt += self.machine.switch_ns;
        }
        if t.llc.replace(llc).is_some_and(|before| before != llc) {
            t.debt += self.contention.loads[t.load].refill_ns(core_type, bytes);
        }
        if t.ran_on.replace(cpu).is_some_and(|before| before != cpu) {
            t.moves += 1;
        }
        t.state = ThreadState::Running;
        t.cpu = cpu;
        t.exec_start = now;
        t.settled_at = now;
        self.arm_tick(cpu);
        self.changes_load(cpu);
    }

    /// The thread on a CPU leaves it.
    pub(super) fn take_off(&mut self, cpu: u32, state: ThreadState) {
        self.settle(cpu);
        if let Some(thread) = self.cpus[cpu as usize].current.take() {
            self.running -= 1;
            if self.running == 0 {
                self.awake_ns += self.now - self.awake_from;
            }
            self.thread_mut(thread).state = state;
            if self.disturbs(self.thread(thread).load) {
                self.mark_dirty(cpu);
            }
        }
        self.cpus[cpu as usize].stamp += 1;
    }
}
