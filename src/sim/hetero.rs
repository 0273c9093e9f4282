// SPDX-License-Identifier: GPL-2.0-only
//! scx_hetero: the BPF half itself on the model of a kernel ([`native`]), and the agent.
//!
//! Both kernels know which thread runs where, and what happens in one is told to the other: that
//! threads wake up, block and end goes there, what runs from then on comes back.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::agent::{MemoryRecording, SimulatedHalf, Told};
use super::caches::CacheTruth;
use super::energy;
use super::event::SimulatedEvent;
use super::goals::GoalOutcome;
use super::kernel::{SimulatedKernel, ThreadCounts, ThreadState};
use super::knowledge::SimulatedKnowledge;
use super::machine::SimulatedMachine;
use super::native::{self, Runs, Version};
use super::scheduler::SimulatedScheduler;
use crate::agent::{Agent, Applied, Backend as _, SAVING_LOOK};
#[cfg(test)]
use crate::agent::{Author, Outcome};
use crate::bpf::intf;
#[cfg(test)]
use crate::policy::Action;
#[cfg(test)]
use crate::table::{TableReader, Task};
use crate::topology::CpuMask;
use hetero_core::energy::reading::EnergyReading;

/// A thread in the BPF half's kernel.
#[derive(Clone, Copy, Debug)]
struct Twin {
    task: native::TaskIndex,
    pid: i32,
    /// It has not run yet.
    is_new: bool,
    /// What the events there have counted of it.
    counted: ThreadCounts,
    /// What it had taken, nJ, and for how long it had run, ns, at its last sample.
    spent: (f64, u64),
}

/// See the module.
pub(super) struct Hetero {
    pub(super) native: Box<native::NativeKernel>,
    /// By thread.
    twins: Vec<Option<Twin>>,
    /// Threads by task.
    threads: Vec<u32>,
    agent: Option<Agent>,
    told: Told,
}

/// What is left of it at the end.
pub(super) struct HeteroOutcome {
    pub(super) applied: Applied,
    pub(super) goals: Vec<GoalOutcome>,
    /// Members of a recording.
    pub(super) recorded: Vec<Vec<u8>>,
    pub(super) knowledge: Option<SimulatedKnowledge>,
    pub(super) caches: Option<CacheTruth>,
}

impl Hetero {
    /// For a machine, with slices of `slice` and, unless nothing is to be decided, an agent, with samples of so much
    /// run time if it is not zero.
    ///
    /// # Errors
    /// If the native BPF half cannot be loaded.
    pub(super) fn new(
        machine: &SimulatedMachine,
        slice: Duration,
        sample: Duration,
        agent: Option<Agent>,
        told: Told,
    ) -> Result<Self> {
        let mut described = native::NativeMachine::on(machine.topology.clone());
        described.version = Version(6, 18);
        described.hz = (1_000_000_000 / machine.tick_ns) as u32;
        described.cgroups = false;
        described.slice_ns = Some(slice.as_nanos() as u64);
        described.sample_ns = sample.as_nanos() as u64;
        described.set_events = told.events.numbers().map(|number| vec![number]).collect();
        Ok(Self {
            native: native::NativeKernel::new(&described)?,
            twins: Vec::new(),
            threads: Vec::new(),
            agent,
            told,
        })
    }

    /// Ends the recording, if there is one.
    ///
    /// # Errors
    /// What the kernel would have thrown the scheduler out for.
    pub(super) fn end(mut self) -> Result<HeteroOutcome> {
        if let Some(mut agent) = self.agent.take() {
            let mut half = SimulatedHalf {
                native: &self.native,
                told: &mut self.told,
                at: self.native.now(),
            };
            agent.keep_all(&mut half);
            self.agent = Some(agent);
        }
        let errors = self.native.errors();
        ensure!(errors.is_empty(), "the BPF half: {}", errors.join("; "));
        let recorded = self.told.recording.take();
        let recorded = recorded.map_or_else(Vec::new, MemoryRecording::end);
        let applied = self.agent.as_ref().map(Agent::applied);
        let goals = self.told.goals.outcomes();
        Ok(HeteroOutcome {
            applied: applied.unwrap_or_default(),
            goals,
            recorded,
            knowledge: self.told.knowledge.take(),
            caches: self.told.caches.take(),
        })
    }

    /// The tasks in the table, by their ids.
    #[cfg(test)]
    pub(super) fn tasks(&self) -> Vec<Task> {
        let mut tasks = Vec::new();
        let (slots, used) = self.native.half().slots();
        TableReader::default().snapshot(slots, used, &mut tasks);
        tasks
    }

    /// A thread in the BPF half's kernel.
    pub(super) fn task_of(&self, thread: u32) -> Option<native::TaskIndex> {
        self.twin(thread).map(|twin| twin.task)
    }

    fn twin(&self, thread: u32) -> Option<&Twin> {
        self.twins.get(thread as usize)?.as_ref()
    }

    fn advance(&self, k: &SimulatedKernel) {
        self.native.advance(k.now - self.native.now());
    }

    /// Brings a CPU's events up to what its thread has done, as far as the native kernel's clock.
    fn count(&mut self, k: &mut SimulatedKernel, cpu: u32) {
        self.advance(k);
        k.update_current(cpu);
        let Some(thread) = k.cpu(cpu).current else {
            return;
        };
        let Some(Some(twin)) = self.twins.get_mut(thread as usize) else {
            return;
        };
        let now = k.thread(thread).counters;
        let before = std::mem::replace(&mut twin.counted, now);
        let core_type = k.cpu(cpu).core_type;
        let since = self.told.events.between(core_type, &before, &now);
        self.native.add_counts(cpu, since);
    }

    /// Puts onto a CPU what the BPF half's kernel runs there.
    fn follow(&mut self, k: &mut SimulatedKernel, cpu: u32) {
        let runs = match self.native.runs(cpu) {
            Runs::Task(task) => Some(self.threads[task.index()]),
            Runs::Idle | Runs::Other => None,
        };
        let before = k.cpu(cpu).current;
        if runs == before {
            return;
        }
        if let Some(before) = before {
            let waits = self.task_of(before).is_some_and(|it| self.native.waits(it));
            let state = if waits {
                ThreadState::Queued
            } else {
                ThreadState::Blocked
            };
            k.take_off(cpu, state);
        }
        if let Some(thread) = runs {
            k.put_on(cpu, thread);
        }
    }

    /// Applies what a policy might have decided.
    #[cfg(test)]
    pub(super) fn apply(&mut self, k: &SimulatedKernel, actions: &[Action]) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        let Ok(()) = self.half(k).apply(actions, Author::Policy, &mut outcomes);
        outcomes
    }

    /// The BPF half as it is now.
    fn half(&mut self, k: &SimulatedKernel) -> SimulatedHalf<'_> {
        SimulatedHalf {
            native: &self.native,
            told: &mut self.told,
            at: k.now,
        }
    }

    /// The agent's loop comes round.
    fn look(&mut self, k: &mut SimulatedKernel) {
        let Some(mut agent) = self.agent.take() else {
            return;
        };
        if self.told.has_sensor {
            self.read_sensor(k);
        }
        let mut half = self.half(k);
        let Ok(()) = agent.take_samples(&mut half);
        agent.measure(&mut half);
        let Ok(()) = agent.decide(&mut half);
        let now_ns = half.now();
        if let Some(mut caches) = self.told.caches.take() {
            let pid = |thread| self.twin(thread).map(|twin| twin.pid as u32);
            caches.look(k, &agent, pid);
            self.told.caches = Some(caches);
        }
        if let Some(mut partition) = self.told.partition.take() {
            let twins = &self.twins;
            partition.look(k, &mut agent.caches, |k, pid| {
                let is = |twin: &Option<Twin>| twin.is_some_and(|it| it.pid as u32 == pid);
                Some(k.thread(twins.iter().position(is)? as u32).job)
            });
            self.told.partition = Some(partition);
        }
        if agent.saves {
            self.tell_order(&agent);
        }
        if let Some(recording) = &mut self.told.recording {
            recording.flush(now_ns);
        }
        if let Some(interval) = agent.due_in(now_ns) {
            k.events
                .push(k.now + interval.as_nanos() as u64, SimulatedEvent::Agent);
        }
        self.agent = Some(agent);
    }

    /// Reads what energy has been counted, and how long CPUs were busy.
    fn read_sensor(&mut self, k: &mut SimulatedKernel) {
        for cpu in 0..k.cpus.len() as u32 {
            self.count(k, cpu);
        }
        let mut reading = EnergyReading {
            package: k.counted_j(),
            ..EnergyReading::default()
        };
        for cpu in &k.cpus {
            reading.busy_ns[cpu.core_type] += cpu.busy_ns;
        }
        self.told.reading = Some(reading);
    }

    fn tell_order(&self, agent: &Agent) {
        let first = agent.filled_first();
        let first = first.map_or(intf::hetero_consts_NO_TYPE, |kind| kind as u32);
        let half = self.native.half();
        half.set("filled_first", first);
        half.set("hosts_first", u32::from(agent.puts_hosts_first()));
    }

    /// The agent looks at goals.
    fn steer(&mut self, k: &mut SimulatedKernel) {
        for cpu in 0..k.cpus.len() as u32 {
            self.count(k, cpu);
        }
        self.told.goals.count(k);
        let Some(mut agent) = self.agent.take() else {
            return;
        };
        agent.steer(&mut self.half(k));
        for state in agent.goals.states() {
            self.told.goals.allotted(state.session, state.fast_cores);
        }
        let wait = agent.goals.look();
        k.events
            .push(k.now + wait.as_nanos() as u64, SimulatedEvent::Goals);
        self.agent = Some(agent);
    }

    /// Hands samples on. They carry what a model would say of the thread's phase now.
    fn take_samples(&mut self, k: &SimulatedKernel) {
        let samples = self.native.take_samples();
        if self.agent.is_none() {
            return;
        }
        for sample in samples {
            let of = |twin: &Option<Twin>| twin.is_some_and(|it| it.pid as u32 == sample.tid);
            let Some(thread) = self.twins.iter().position(of) else {
                continue;
            };
            let t = k.thread(thread as u32);
            let of = &k.contention.loads[t.load];
            let ef = energy::ratio(&k.machine, of).map(|ratio| ratio * of.sf());
            let Some(Some(twin)) = self.twins.get_mut(thread) else {
                continue;
            };
            let (nj, ns) = std::mem::replace(&mut twin.spent, (t.nj, t.sum_exec));
            let watts = (t.nj - nj) / (t.sum_exec - ns).max(1) as f64;
            self.told
                .note(&sample, t.load, (of.sf(), ef.map(|ef| (ef, watts))));
        }
    }
}

impl SimulatedScheduler for Hetero {
    fn begin(&mut self, k: &mut SimulatedKernel) {
        let first = self.agent.as_ref().and_then(|it| it.policy().interval());
        let agent = self.agent.as_ref();
        let goals = agent.filter(|_| !self.told.goals.is_empty());
        let goals = goals.map(|agent| agent.goals.look());
        if let Some(agent) = &self.agent {
            self.tell_order(agent);
        }
        let saves = self.agent.as_ref().is_some_and(|agent| agent.saves);
        let saving = saves.then_some(SAVING_LOOK);
        if let Some(first) = first.or(goals).or(saving) {
            k.events
                .push(k.now + first.as_nanos() as u64, SimulatedEvent::Agent);
        }
        if goals.is_some() {
            k.events.push(k.now, SimulatedEvent::Goals);
        }
    }

    fn add(&mut self, k: &mut SimulatedKernel, thread: u32, leader: u32) {
        self.advance(k);
        let t = k.thread(thread);
        let allowed = k.allowed(thread);
        let (job, cpu) = (t.job, t.cpu);
        let native = &self.native;
        let shell = self.told.goals.shell(job, || {
            let shell = native.make(&native::NewTask::default(), cpu);
            (shell, native.task_struct(shell).pid as u32)
        });
        // It never runs.
        self.threads.resize(
            self.threads.len().max(shell.map_or(0, |it| it.index() + 1)),
            u32::MAX,
        );
        let task = native::NewTask {
            comm: k.jobs[t.job].program.name.clone(),
            tgid: self.twin(leader).map(|leader| leader.pid),
            cpus: Some(CpuMask::from_iter(allowed.iter())),
            // What it counts is told by add_counts().
            rates: [[0; _]; _],
            maker: shell,
            ..native::NewTask::default()
        };
        let task = self.native.make(&task, cpu);
        self.twins.resize(k.threads.len(), None);
        self.twins[thread as usize] = Some(Twin {
            task,
            pid: self.native.task_struct(task).pid,
            is_new: true,
            counted: ThreadCounts::default(),
            spent: (0.0, 0),
        });
        let tgid = self.twin(leader).map_or(0, |leader| leader.pid as u32);
        self.told.goals.came(k.thread(thread).job, tgid);
        debug_assert_eq!(task.index(), self.threads.len());
        self.threads.push(thread);
    }

    fn remove(&mut self, k: &mut SimulatedKernel, thread: u32) {
        self.advance(k);
        if let Some(task) = self.task_of(thread) {
            self.native.free(task, k.thread(thread).cpu);
        }
        self.take_samples(k);
        let pid = self.twin(thread).map_or(0, |twin| twin.pid as u32);
        let t = k.thread(thread);
        let done = t.counters.instructions;
        self.told.goals.ended(t.job, pid, done);
        self.twins[thread as usize] = None;
    }

    fn wake(&mut self, k: &mut SimulatedKernel, thread: u32, from: u32) {
        self.advance(k);
        let Some(Some(twin)) = self.twins.get_mut(thread as usize) else {
            return;
        };
        let task = twin.task;
        if std::mem::take(&mut twin.is_new) {
            self.native.wake_new(task, from);
        } else {
            self.native.wake(task, from, native::WAKE_TTWU);
        }
        k.thread_mut(thread).state = ThreadState::Queued;
    }

    fn block(&mut self, k: &mut SimulatedKernel, cpu: u32) {
        self.count(k, cpu);
        self.native.block(cpu);
        self.follow(k, cpu);
    }

    fn tick(&mut self, k: &mut SimulatedKernel, cpu: u32) {
        self.count(k, cpu);
        self.native.tick(cpu);
        self.follow(k, cpu);
        self.take_samples(k);
    }

    fn switch_all(&mut self, k: &mut SimulatedKernel) {
        while let Some(cpu) = self.native.next_to_schedule() {
            self.count(k, cpu);
            self.native.schedule(cpu);
            self.follow(k, cpu);
        }
    }

    fn event(&mut self, k: &mut SimulatedKernel, event: SimulatedEvent) {
        if event == SimulatedEvent::Agent {
            self.take_samples(k);
            self.look(k);
        } else if event == SimulatedEvent::Goals {
            self.steer(k);
        }
    }

    fn next_timer(&self) -> Option<u64> {
        self.native.next_timer()
    }

    fn fire_timers(&mut self, k: &mut SimulatedKernel) {
        self.advance(k);
        // The agent is always there.
        self.native.beat();
        while self.native.fire_timer() {
            self.switch_all(k);
        }
        self.native.take_kicks();
        self.native.take_perf_requests();
    }
}
