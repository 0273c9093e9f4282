// SPDX-License-Identifier: GPL-2.0-only
//! A random machine, and random lives of tasks on it: the same seed is the same to the last event.

use std::cmp::Reverse;
mod agent;
mod changes;
mod chaos;
mod life;
mod machine;

use std::collections::{BTreeSet, BinaryHeap};

use anyhow::Result;

use super::check::Bounds;
use super::cpu::Runs;
use super::dice::Dice;
use super::ffi;
use super::kernel::Kernel;
use super::machine::Machine;
use super::task::TaskId;
use crate::mechanism::Mechanism;
use life::Life;
use machine::random_machine;

pub use chaos::{Chaos, Failure};

const US: u64 = 1000;
const MS: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Tick(u32),
    Resched(u32),
    /// A task has done what it woke up for, unless it has been switched since.
    BurstEnds(TaskId, u64),
    Wake(TaskId),
    Stop(TaskId),
    GiveBack(u32),
    Free(TaskId),
    Agent,
    Change,
}

/// A machine, its kernel, its tasks and its agent.
pub struct World {
    /// The kernel.
    pub kernel: Box<Kernel>,
    dice: Dice,
    seed: u64,
    chaos: BTreeSet<Chaos>,
    bounds: Bounds,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    nr_posted: u64,
    nr_events: u64,
    begun: u64,
    lives: Vec<Life>,
    ticks: Vec<bool>,
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
        let machine = random_machine(&mut dice, without);
        let nr_cpus = machine.nr_cpus();
        let crowded = dice.of(&[1, 2, 4]);
        let most_tasks = dice.around(u64::from(nr_cpus) * crowded) as usize + 1;
        let mut world = Self::on(&machine, dice, seed, chaos)?;
        world.most_tasks = most_tasks.min(120);
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
        Ok(world)
    }

    fn on(machine: &Machine, dice: Dice, seed: u64, chaos: &BTreeSet<Chaos>) -> Result<Self> {
        let kernel = Kernel::new(machine)?;
        Ok(Self {
            begun: kernel.now(),
            dice,
            seed,
            chaos: chaos.clone(),
            bounds: Bounds::default(),
            events: BinaryHeap::new(),
            nr_posted: 0,
            nr_events: 0,
            lives: Vec::new(),
            ticks: vec![false; machine.nr_cpus() as usize],
            groups: 0,
            most_tasks: 0,
            kernel,
        })
    }

    /// Runs so many events more.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn run(&mut self, nr_events: u64) -> Result<(), Failure> {
        for _ in 0..nr_events {
            self.step().map_err(|message| Failure {
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
    pub fn shrink(failure: Failure, without: &[Mechanism]) -> Result<Failure> {
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

    fn any_cpu(&mut self) -> u32 {
        self.dice.below(self.kernel.machine.nr_cpus().into()) as u32
    }

    fn any_task(&mut self) -> Option<TaskId> {
        let alive = self.kernel.look().alive.clone();
        (!alive.is_empty()).then(|| self.dice.of(&alive))
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
            self.handle(event);
        }
        self.follow();
        self.nr_events += 1;
        for sample in self.kernel.take_samples() {
            self.kernel.check_sample(&sample)?;
        }
        self.kernel.check(&self.bounds)
    }

    /// Makes events of what the last one caused.
    fn follow(&mut self) {
        let (resched, stops, started) = {
            let mut state = self.kernel.st();
            let resched = std::mem::take(&mut state.resched);
            (
                resched,
                state.stops.clone(),
                std::mem::take(&mut state.started),
            )
        };
        for cpu in resched {
            // An interrupt, or at the end of this one.
            let after = self.dice.below(3 * US);
            self.post(after, Event::Resched(cpu));
        }
        for task in stops {
            if !self
                .events
                .iter()
                .any(|event| event.0.2 == Event::Stop(task))
            {
                let after = self.dice.below(50 * US);
                self.post(after, Event::Stop(task));
            }
        }
        let period = 1_000_000_000 / u64::from(self.kernel.machine.hz);
        for (cpu, task) in started {
            if !std::mem::replace(&mut self.ticks[cpu as usize], true) {
                // Each CPU's tick has a place of its own in the period.
                let now = self.kernel.now();
                let offset = u64::from(cpu) * 7 * US % period;
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
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Tick(cpu) => {
                self.ticks[cpu as usize] = self.kernel.runs(cpu) != Runs::Idle;
                if self.ticks[cpu as usize] {
                    let period = 1_000_000_000 / u64::from(self.kernel.machine.hz);
                    self.post(period, Event::Tick(cpu));
                    self.kernel.tick(cpu);
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
                if self.kernel.look().tasks[task.0 as usize].alive {
                    let cpu = self.any_cpu();
                    self.kernel.wake(task, cpu, u64::from(ffi::SCX_WAKE_TTWU));
                }
            }
            Event::Stop(task) => {
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
        }
    }
}
