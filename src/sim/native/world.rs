// SPDX-License-Identifier: GPL-2.0-only
//! A random machine, and random lives of tasks on it: the same seed is the same to the last event.

mod agent;
mod calm;
mod changes;
mod chaos;
mod life;
mod machine;
mod restart;
mod rules;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use anyhow::Result;

use super::check::Bounds;
use super::cpu::Runs;
use super::dice::Dice;
use super::ffi;
use super::kernel::{Later, NativeKernel};
use super::machine::{NativeMachine, topology};
use super::task::TaskIndex;
use crate::bpf::types;
use crate::mechanism::Mechanism;
use life::Life;
use machine::{forget_a_cpu, random_machine};
use restart::RestartStage;
use rules::Watch;

pub use calm::Calm;
pub use chaos::{BrokenRule, Chaos};

const US: u64 = 1000;
const MS: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Tick(u32),
    Resched(u32),
    /// A task has done what it woke up for, unless it has been switched since.
    BurstEnds(TaskIndex, u64),
    Wake(TaskIndex),
    Stop(TaskIndex),
    GiveBack(u32),
    Free(TaskIndex),
    /// What an operation put off, of `World::deferred`.
    Deferred(u64),
    Agent,
    Change,
    Upheaval,
}

/// A machine, its kernel, its tasks and its agent.
pub struct World {
    /// The kernel.
    pub kernel: Box<NativeKernel>,
    dice: Dice,
    /// Decides on restarts and the like, so that a life is the same until the first of them.
    fate: Dice,
    /// Decides on goals, which only some lives have.
    goals: Dice,
    has_goals: bool,
    stage: RestartStage,
    /// The machine with all its CPUs online.
    whole: NativeMachine,
    seed: u64,
    chaos: BTreeSet<Chaos>,
    bounds: Bounds,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    nr_posted: u64,
    nr_events: u64,
    begun: u64,
    lives: Vec<Life>,
    ticks: Vec<bool>,
    /// Tasks whose stoppers are on their way.
    stops: BTreeSet<TaskIndex>,
    /// By a number of its own: on which CPU, and what.
    deferred: BTreeMap<u64, (u32, Vec<Later>)>,
    /// No sooner than that; in the order in which it was put off.
    deferred_until: Vec<u64>,
    /// What the agent decided by what it saw some time ago.
    late_actions: Vec<types::action>,
    watch: Watch,
    /// Synchronous wake-ups of partners: near the waker, and all.
    pairs: (u64, u64),
    groups: usize,
    most_tasks: usize,
}

impl World {
    /// What `seed` makes, with so much chaos.
    ///
    /// # Errors
    /// If the BPF half cannot be loaded.
    pub fn random(seed: u64, chaos: &BTreeSet<Chaos>, without: &[Mechanism]) -> Result<Self> {
        let mut dice = Dice::new(seed);
        let mut machine = random_machine(&mut dice, without);
        // Of their own, so that a life without them is the same otherwise.
        let whole = machine.clone();
        let mut more = Dice::new(!seed);
        if chaos.contains(&Chaos::Unknown) && more.one_in(6) {
            forget_a_cpu(&mut machine, &mut more);
        }
        let nr_cpus = machine.nr_cpus();
        let crowded = dice.of(&[1, 2, 4]);
        let most_tasks = dice.around(u64::from(nr_cpus) * crowded) as usize + 1;
        let mut world = Self::on(&machine, dice, seed, chaos)?;
        world.most_tasks = most_tasks.min(120);
        world.whole = whole;
        world.kernel.waits.set(world.has(Chaos::Delays));
        if world.has(Chaos::Clocks) {
            let hour = 3_600_000 * MS as i64;
            world.kernel.skew_ktime(more.of(&[-hour / 2, 0, hour]));
            for cpu in 0..nr_cpus {
                let us = more.below(41) as i64 - 20;
                world.kernel.skew_cpu(cpu, us * US as i64);
            }
            world.kernel.beat();
        }
        if world.has(Chaos::Lapses) && more.one_in(2) {
            world.kernel.lapses.set(Some((0, seed)));
        }
        if world.has(Chaos::Cgroups) {
            for _ in 0..world.dice.below(6) {
                let parent = world.dice.below(world.groups as u64 + 1) as usize;
                let weight = world.dice.of(&[1, 50, 100, 100, 200, 10_000]);
                world.kernel.make_cgroup(parent.checked_sub(1), weight);
                world.groups += 1;
            }
        }
        for _ in 0..1 + world.dice.below(world.most_tasks as u64) {
            let cpu = world.any_cpu();
            world.fork(cpu);
        }
        world.post(0, Event::Agent);
        world.post(0, Event::Change);
        world.plan_upheavals();
        Ok(world)
    }

    /// A machine of so many CPUs of two types, in domains of 32, and lives without chaos on it.
    ///
    /// # Errors
    /// If the BPF half cannot be loaded.
    pub fn large(nr_cpus: u32, nr_tasks: usize) -> Result<Self> {
        let nr_clusters = nr_cpus.div_ceil(32);
        let clusters: Vec<_> = (0..nr_clusters)
            .map(|nr| (usize::from(2 * nr >= nr_clusters), nr_cpus / nr_clusters))
            .collect();
        let machine = NativeMachine::on(topology(&clusters, &[]));
        let calm = [Chaos::Nice, Chaos::Hints].into_iter().collect();
        let mut world = Self::on(&machine, Dice::new(1), 1, &calm)?;
        world.most_tasks = nr_tasks;
        for _ in 0..nr_tasks {
            let cpu = world.any_cpu();
            world.fork(cpu);
        }
        world.post(0, Event::Agent);
        world.post(0, Event::Change);
        Ok(world)
    }

    fn on(machine: &NativeMachine, dice: Dice, seed: u64, chaos: &BTreeSet<Chaos>) -> Result<Self> {
        let kernel = NativeKernel::new(machine)?;
        let mut goals = Dice::new(seed ^ 0x676f_616c);
        Ok(Self {
            has_goals: chaos.contains(&Chaos::Goals) && goals.one_in(3),
            goals,
            begun: kernel.now(),
            dice,
            fate: Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            stage: RestartStage::Calm,
            whole: machine.clone(),
            seed,
            chaos: chaos.clone(),
            bounds: Bounds::default(),
            events: BinaryHeap::new(),
            nr_posted: 0,
            nr_events: 0,
            lives: Vec::new(),
            ticks: vec![false; machine.nr_cpus() as usize],
            stops: BTreeSet::new(),
            deferred: BTreeMap::new(),
            deferred_until: vec![0; machine.nr_cpus() as usize],
            late_actions: Vec::new(),
            watch: Watch::new(&kernel),
            pairs: (0, 0),
            groups: 0,
            most_tasks: 0,
            kernel,
        })
    }

    /// Runs so many events more.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn run(&mut self, nr_events: u64) -> Result<(), BrokenRule> {
        for _ in 0..nr_events {
            self.step().map_err(|message| BrokenRule {
                machine: self.kernel.machine.in_short(),
                seed: self.seed,
                event: self.nr_events,
                at_ns: self.kernel.now() - self.begun,
                message,
                chaos: self.chaos.clone(),
            })?;
        }
        Ok(())
    }

    /// The seed's failure with as little chaos as it needs.
    ///
    /// # Errors
    /// If the BPF half cannot be loaded.
    pub fn shrink(failure: BrokenRule, without: &[Mechanism]) -> Result<BrokenRule> {
        let mut smallest = failure;
        for chaos in Chaos::ALL {
            let mut less = smallest.chaos.clone();
            if less.remove(&chaos)
                && let Err(still) =
                    Self::random(smallest.seed, &less, without)?.run(2 * smallest.event + 2000)
            {
                smallest = still;
            }
        }
        Ok(smallest)
    }

    fn has(&self, chaos: Chaos) -> bool {
        self.chaos.contains(&chaos)
    }

    fn post(&mut self, after: u64, event: Event) {
        self.nr_posted += 1;
        self.events
            .push(Reverse((self.kernel.now() + after, self.nr_posted, event)));
    }

    /// One that is online.
    fn any_cpu(&mut self) -> u32 {
        let cpu = self.dice.below(self.kernel.machine.nr_cpus().into()) as u32;
        match self.kernel.is_online(cpu) {
            true => cpu,
            false => self.online_cpu(),
        }
    }

    fn any_task(&mut self) -> Option<TaskIndex> {
        let nr = self.kernel.look().alive.len();
        let index = self.dice.below(nr as u64) as usize;
        self.kernel.look().alive.get(index).copied()
    }

    /// The next event, and what must hold after it.
    fn step(&mut self) -> Result<(), String> {
        let next = self.events.peek().map_or(u64::MAX, |next| next.0.0);
        let timer = self.kernel.next_timer().unwrap_or(u64::MAX);
        let at = next.min(timer);
        self.kernel.advance(at.saturating_sub(self.kernel.now()));
        if timer <= next {
            self.kernel.trace(|| "timer".into());
            self.kernel.fire_timer();
        } else if let Some(Reverse((_, _, event))) = self.events.pop() {
            self.kernel.trace(|| format!("{event:?}"));
            self.handle(event)?;
        }
        self.follow();
        self.watch.verdict()?;
        self.nr_events += 1;
        self.watch.samples(&self.kernel)?;
        // After every event; on large machines after every so many, or it would cost n squared.
        let size = self.kernel.look().alive.len() + self.ticks.len();
        let each = if size <= 256 { 1 } else { size as u64 / 32 };
        if self.nr_events.is_multiple_of(each) {
            self.kernel.check(&self.bounds)?;
        }
        Ok(())
    }

    /// Makes events of what the last one caused.
    fn follow(&mut self) {
        let (resched, stops, started, later, stopped) = {
            let state = &mut *self.kernel.st();
            let stops = state.stops.clone();
            (
                std::mem::take(&mut state.resched),
                stops,
                std::mem::take(&mut state.started),
                std::mem::take(&mut state.later),
                std::mem::take(&mut state.stopped),
            )
        };
        stopped.iter().for_each(|&cpu| self.watch.stopped(cpu));
        if !later.is_empty() {
            // irq_work, or what runs when the run queue's lock is free: soon, and in order.
            let cpu = self.kernel.here();
            let at = (self.kernel.now() + self.dice.below(3 * US))
                .max(self.deferred_until[cpu as usize]);
            self.deferred_until[cpu as usize] = at;
            self.deferred.insert(self.nr_posted, (cpu, later));
            let event = Event::Deferred(self.nr_posted);
            self.post(at - self.kernel.now(), event);
        }
        for cpu in resched {
            // An interrupt, or at the end of this one.
            let after = self.dice.below(3 * US);
            self.post(after, Event::Resched(cpu));
        }
        for task in stops {
            if self.stops.insert(task) {
                let after = self.dice.below(50 * US);
                self.post(after, Event::Stop(task));
            }
        }
        let period = 1_000_000_000 / u64::from(self.kernel.machine.hz);
        for (cpu, task) in started {
            self.watch.started(&self.kernel, cpu, task);
            if !std::mem::replace(&mut self.ticks[cpu as usize], true) {
                // As with `skew_tick=1` each CPU's tick has a place of its own in the period, or as without it all come at
                // once, before what any of them causes.
                let now = self.kernel.now();
                let offset = match self.seed % 2 {
                    0 => u64::from(cpu) * 7 * US % period,
                    _ => 0,
                };
                let after = period - (now + period - offset) % period;
                self.post(after, Event::Tick(cpu));
            }
            let ran = self.kernel.task_struct(task).se.sum_exec_runtime;
            let life = &mut self.lives[task.0 as usize];
            life.generation += 1;
            if life.burst_ns > 0 {
                let (left, generation) = (life.until_ns.saturating_sub(ran), life.generation);
                self.post(left, Event::BurstEnds(task, generation));
            }
        }
        for cpu in stopped {
            if !matches!(self.kernel.runs(cpu), Runs::Task(_)) {
                self.watch.stopped(cpu);
            }
        }
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Tick(cpu) => {
                self.ticks[cpu as usize] = self.kernel.runs(cpu) != Runs::Idle;
                if self.ticks[cpu as usize] {
                    let period = 1_000_000_000 / u64::from(self.kernel.machine.hz);
                    self.post(period, Event::Tick(cpu));
                    let runs = self.kernel.runs(cpu);
                    self.kernel.tick(cpu);
                    if let Runs::Task(task) = runs
                        && !self.kernel.bypasses(cpu)
                    {
                        self.watch.ticked(&self.kernel, cpu, task);
                    }
                }
            }
            Event::Resched(cpu) => {
                if self.kernel.look().cpus[cpu as usize].need_resched {
                    self.kernel.schedule(cpu);
                }
            }
            Event::BurstEnds(task, generation) => {
                let current = self.lives[task.0 as usize].generation == generation;
                if current && self.kernel.is_running(task) {
                    self.end_burst(task);
                }
            }
            Event::Wake(task) => {
                // It may have been woken up before, and have ended since.
                let exiting = self.kernel.task_struct(task).flags & ffi::PF_EXITING != 0;
                if !self.can_wake(task) {
                    self.post(50 * MS, event);
                } else if self.kernel.look().tasks[task.0 as usize].alive && !exiting {
                    let cpu = self.any_cpu();
                    let slept = !self.kernel.is_queued(task);
                    self.kernel.wake(task, cpu, u64::from(ffi::SCX_WAKE_TTWU));
                    // A bypassed one is not asked.
                    if slept && self.stage == RestartStage::Calm {
                        self.watch.woke(&self.kernel, task);
                    }
                }
            }
            Event::Deferred(number) => {
                if let Some((cpu, later)) = self.deferred.remove(&number) {
                    self.kernel.enter(cpu);
                    self.kernel.run_deferred(later);
                }
            }
            Event::Stop(task) => {
                self.stops.remove(&task);
                self.kernel.st().stops.retain(|&other| other != task);
                self.kernel.move_away(task);
            }
            Event::GiveBack(cpu) => self.kernel.give_back(cpu),
            Event::Free(task) => {
                let cpu = self.any_cpu();
                self.kernel.free(task, cpu);
            }
            Event::Agent => self.act(),
            Event::Change => self.change(),
            Event::Upheaval => self.upheave()?,
        }
        Ok(())
    }
}
