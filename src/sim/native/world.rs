// SPDX-License-Identifier: GPL-2.0-only
//! A random machine, and random lives of tasks on it: the same seed is the same to the last event.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::fmt;

use anyhow::Result;

use super::check::Bounds;
use super::cpu::Runs;
use super::dice::Dice;
use super::ffi;
use super::kernel::Kernel;
use super::machine::{AGENT_TGID, Machine, Version, topology};
use super::task::{Mask, Task, TaskId};
use crate::bpf::{intf, types};
use crate::mechanism::Mechanism;

const US: u64 = 1000;
const MS: u64 = 1_000_000;

/// What may happen besides waking, running and sleeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Chaos {
    Nice,
    Affinity,
    Cgroups,
    RealTime,
    MigrationDisabled,
    Hints,
    Swaps,
    Parks,
    Slowdowns,
    Hostile,
    Sync,
    Forks,
    Exits,
    Yields,
    Spins,
    Detach,
    Rotation,
    Silence,
    RingFull,
    Pinned,
}

impl Chaos {
    /// All of it.
    pub const ALL: [Self; 20] = [
        Self::Nice,
        Self::Affinity,
        Self::Cgroups,
        Self::RealTime,
        Self::MigrationDisabled,
        Self::Hints,
        Self::Swaps,
        Self::Parks,
        Self::Slowdowns,
        Self::Hostile,
        Self::Sync,
        Self::Forks,
        Self::Exits,
        Self::Yields,
        Self::Spins,
        Self::Detach,
        Self::Rotation,
        Self::Silence,
        Self::RingFull,
        Self::Pinned,
    ];
}

/// A broken rule.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The machine and its kernel, in short.
    pub machine: String,
    /// Of [`World::random`].
    pub seed: u64,
    /// At which event.
    pub event: u64,
    /// Simulated time since the start, ns.
    pub at_ns: u64,
    /// What is wrong.
    pub message: String,
    /// What had to happen for it; smaller than [`Chaos::ALL`] if it was made smaller.
    pub chaos: BTreeSet<Chaos>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            machine,
            seed,
            event,
            at_ns,
            message,
            chaos,
        } = self;
        let ms = *at_ns as f64 / 1e6;
        write!(
            f,
            "seed {seed}, event {event}, {ms:.3} ms: {message} (on {machine}; with {chaos:?})"
        )
    }
}

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

/// What a task does.
#[derive(Clone, Debug)]
struct Life {
    /// Means; no burst: it computes for ever.
    burst_ns: u64,
    sleep_ns: u64,
    /// It sleeps when its run time is this.
    until_ns: u64,
    generation: u64,
    ends: bool,
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

/// A machine that this seed makes.
fn random_machine(dice: &mut Dice, without: &[Mechanism]) -> Machine {
    let types = dice.of(&[1, 2, 2, 2, 3, 3, 4]);
    let mut clusters = Vec::new();
    for core_type in 0..types {
        for _ in 0..dice.of(&[1, 1, 1, 2, 3]) {
            clusters.push((core_type, dice.of(&[1, 1, 2, 2, 3, 4, 4, 6, 8])));
        }
    }
    // CPUs of a type need not follow each other.
    if dice.one_in(4) {
        clusters.rotate_left(1);
    }
    let smt: Vec<usize> = (0..types).filter(|_| dice.one_in(4)).collect();
    if dice.one_in(64) {
        clusters.push((0, dice.of(&[64, 120])));
    }
    let mut machine = Machine::on(topology(&clusters, &smt));
    machine.version = dice.of(&[
        Version(6, 16),
        Version(6, 17),
        Version(6, 18),
        Version(6, 19),
        Version(7, 0),
        Version(7, 1),
        Version(7, 2),
        Version(7, 3),
    ]);
    // Debian's kernels of these versions, see src/bpf/idle.bpf.h.
    let debian = dice.one_in(2);
    machine.can_kick = !(debian && [Version(7, 1), Version(7, 2)].contains(&machine.version));
    machine.can_iterate = !(debian && machine.version == Version(7, 1));
    machine.hz = dice.of(&[100, 250, 1000]);
    machine.sample_ns = dice.of(&[0, 20 * MS, 100 * MS]);
    machine.set_events = vec![dice.of(&[&[2][..], &[4, 3], &[2, 2, 12]]).to_vec(); types];
    machine.slots = dice.of(&[intf::hetero_consts_MAX_SLOTS, 4]);
    machine.without = without.to_vec();
    machine
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

    fn any_mask(&mut self) -> Mask {
        let nr = self.kernel.machine.nr_cpus();
        let mask = match self.dice.below(6) {
            0 => Mask::of([self.any_cpu()]),
            1 => Mask::of((0..nr).filter(|_| self.dice.one_in(2))),
            2 => {
                let core_type = self.dice.below(4) as usize;
                let types = &self.kernel.machine.topology.types;
                Mask::of(
                    types
                        .get(core_type)
                        .map_or(Vec::new(), |kind| kind.cpus.clone()),
                )
            }
            _ => Mask::first(nr),
        };
        if mask.is_empty() {
            Mask::first(nr)
        } else {
            mask
        }
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
            self.check_sample(&sample)?;
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

    fn fork(&mut self, from: u32) {
        let flags = if self.has(Chaos::Pinned) && self.dice.one_in(8) {
            ffi::PF_KTHREAD
        } else {
            0
        };
        let cpus = match flags {
            0 if self.has(Chaos::Affinity) => self.any_mask(),
            0 => Mask::first(self.kernel.machine.nr_cpus()),
            _ => Mask::of([self.any_cpu()]),
        };
        let mut task = Task {
            flags,
            cpus: Some(cpus),
            ..Task::default()
        };
        if self.has(Chaos::Nice) {
            task.nice = self.dice.below(40) as i32 - 20;
            task.policy = self.dice.of(&[0, 0, 0, 3, 5]);
        }
        task.tgid = match self.dice.below(8) {
            0 => Some(AGENT_TGID),
            1..=3 => Some(100 + self.dice.below(3) as i32),
            _ => None,
        };
        if self.groups > 0 {
            task.cgroup = (self.dice.below(self.groups as u64 + 1) as usize).checked_sub(1);
        }
        // Each counts at a rate of its own: what is another's shows.
        for rates in &mut task.rates {
            let instructions = 300 + self.dice.below(3000) as u32;
            rates[0] = instructions;
        }
        let burst_ns = self
            .dice
            .of(&[0, 20 * US, 300 * US, 3 * MS, 8 * MS, 50 * MS]);
        let sleep_ns = self
            .dice
            .of(&[10 * US, 200 * US, 2 * MS, 30 * MS, 200 * MS]);
        // What serves one CPU is brief, and so is the agent.
        let brief = flags != 0 || task.tgid == Some(AGENT_TGID);
        let burst_ns = if !brief {
            burst_ns
        } else {
            burst_ns.clamp(20 * US, 300 * US)
        };
        let until_ns = if burst_ns > 0 {
            self.dice.around(burst_ns)
        } else {
            u64::MAX
        };
        self.lives.push(Life {
            burst_ns,
            sleep_ns,
            until_ns,
            generation: 0,
            ends: false,
        });
        self.kernel.fork(&task, from);
    }

    /// A task has done what it woke up for.
    fn end_burst(&mut self, task: TaskId) {
        let cpu = self.kernel.cpu_of(task);
        self.kernel.update_curr(cpu);
        let ran = self.kernel.task_struct(task).se.sum_exec_runtime;
        let life = self.lives[task.0 as usize].clone();
        if ran < life.until_ns {
            self.post(life.until_ns - ran, Event::BurstEnds(task, life.generation));
            return;
        }
        self.lives[task.0 as usize].until_ns = ran + self.dice.around(life.burst_ns);
        if self.has(Chaos::MigrationDisabled) && self.kernel.is_migration_disabled(task) {
            self.kernel.migrate_enable(cpu);
        }
        // It may end, yield or wake others up; most often it goes to sleep.
        if life.ends {
            unsafe { (*self.kernel.raw(task)).flags |= ffi::PF_EXITING }
            self.kernel.block(cpu);
            let after = self.dice.below(5 * MS);
            self.post(after, Event::Free(task));
            return;
        }
        let mut yields = false;
        match self.dice.below(12) {
            0 if self.has(Chaos::Forks) && self.kernel.look().alive.len() < self.most_tasks => {
                self.fork(cpu);
            }
            1..=4 if self.has(Chaos::Sync) => {
                if let Some(other) = self.any_task() {
                    let flags = ffi::SCX_WAKE_TTWU | self.dice.of(&[0, ffi::SCX_WAKE_SYNC]);
                    let asleep = self.kernel.task_struct(other).flags & ffi::PF_EXITING == 0;
                    if asleep {
                        self.kernel.wake(other, cpu, flags.into());
                    }
                }
            }
            5 => yields = self.has(Chaos::Yields),
            6 if self.has(Chaos::MigrationDisabled) => {
                self.kernel.migrate_disable(cpu);
                yields = true;
            }
            7 if self.has(Chaos::Nice) => {
                let nice = self.dice.below(40) as i32 - 20;
                self.kernel.set_nice(task, nice, cpu);
            }
            8 if self.has(Chaos::Affinity) => {
                let mask = self.any_mask();
                self.kernel.set_affinity(task, &mask, cpu);
            }
            9 if self.has(Chaos::Spins) => {
                let raw = self.kernel.task_struct(task);
                self.kernel
                    .register_spin(raw.pid, raw.tgid, self.dice.of(&[0, 4096, 4096]));
                let word = self.dice.below(2) as u32;
                self.kernel.set_spin_word(task, word);
            }
            10 => unsafe { (*self.kernel.raw(task)).self_exec_id += 1 },
            _ => {}
        }
        if self.kernel.runs(cpu) != Runs::Task(task) {
            return;
        }
        if yields {
            let generation = self.lives[task.0 as usize].generation;
            self.post(life.burst_ns, Event::BurstEnds(task, generation));
            self.kernel.yield_now(cpu);
        } else {
            self.kernel.block(cpu);
            let after = self.dice.around(life.sleep_ns);
            self.post(after, Event::Wake(task));
        }
    }

    /// What others do to tasks and CPUs.
    fn change(&mut self) {
        let again = self.dice.below(10 * MS);
        self.post(again, Event::Change);
        let from = self.any_cpu();
        let Some(task) = self.any_task() else {
            return self.fork(from);
        };
        let exiting = self.kernel.task_struct(task).flags & ffi::PF_EXITING != 0;
        let kthread = self.kernel.task_struct(task).flags & ffi::PF_KTHREAD != 0;
        match self.dice.below(10) {
            0 if self.has(Chaos::Nice) => {
                let nice = self.dice.below(40) as i32 - 20;
                self.kernel.set_nice(task, nice, from);
            }
            1 if self.has(Chaos::Affinity) && !exiting && !kthread => {
                let mask = self.any_mask();
                self.kernel.set_affinity(task, &mask, from);
            }
            2 if self.has(Chaos::Forks) && self.kernel.look().alive.len() < self.most_tasks => {
                self.fork(from);
            }
            3 if self.has(Chaos::Exits) && self.lives[task.0 as usize].burst_ns > 0 => {
                self.lives[task.0 as usize].ends = true;
            }
            4 if self.has(Chaos::RealTime) => {
                let reason = self.dice.of(&[0, 0, 1, 2]);
                if self.kernel.runs(from) != Runs::Other {
                    self.kernel.take_cpu(from, reason);
                    let after = self.dice.of(&[20 * US, MS, 12 * MS]);
                    self.post(after, Event::GiveBack(from));
                }
            }
            5 if self.groups > 0 && !exiting => {
                let group = (self.dice.below(self.groups as u64 + 1) as usize).checked_sub(1);
                self.kernel.move_to_cgroup(task, group, from);
            }
            6 if self.groups > 0 => {
                let group = self.dice.below(self.groups as u64) as usize;
                let weight = self.dice.of(&[1, 50, 100, 200, 10_000]);
                self.kernel.set_cgroup_weight(group, weight, from);
            }
            7 if self.has(Chaos::Detach) => {
                let k = self.dice.below(2) as usize;
                let detached = self.dice.one_in(2);
                self.kernel.detach_event(from, k, detached);
            }
            8 if self.has(Chaos::RingFull) => {
                let full = self.dice.one_in(8);
                self.kernel.set_ring_full(full);
            }
            9 if self.has(Chaos::Nice) && !kthread => {
                let policy = self.dice.of(&[0, 3, 5]);
                self.kernel.set_policy(task, policy, from);
            }
            _ => {}
        }
    }

    /// The agent: it says that it is there, and asks for this and that.
    fn act(&mut self) {
        let silent = self.has(Chaos::Silence) && self.dice.one_in(24);
        let again = if silent {
            2500 * MS
        } else {
            self.dice.of(&[20 * MS, 100 * MS, 900 * MS])
        };
        self.post(again, Event::Agent);
        self.kernel.beat();
        let nr = self.dice.below(4);
        let actions: Vec<_> = (0..nr).filter_map(|_| self.action()).collect();
        for action in &actions {
            self.kernel.trace(|| format!("{action:?}"));
        }
        let from = self.any_cpu();
        self.kernel.apply(&actions, from);
        if self.has(Chaos::Rotation) && self.dice.one_in(3) {
            let core_type = self
                .dice
                .below(self.kernel.machine.topology.types.len() as u64);
            let sets = self.kernel.machine.set_events[core_type as usize].len() as u64;
            let set = self.dice.below(sets) as usize;
            let before = self.kernel.half.global::<u8>("current_set");
            // SAFETY: within the array.
            if usize::from(unsafe { *before.add(core_type as usize) }) == set {
                return;
            }
            let cpus = self.kernel.machine.topology.types[core_type as usize]
                .cpus
                .clone();
            // First it closes the old ones, then it says which are open.
            cpus.iter()
                .for_each(|&cpu| self.kernel.open_events(cpu, set));
            self.kernel
                .half
                .set_at("current_set", core_type as usize, set as u8);
        }
    }

    fn slot_of(&mut self) -> Option<(u32, intf::task_slot)> {
        let task = self.any_task()?;
        let slot = self.kernel.with_task_ctx(task, |ctx| ctx.slot)?;
        Some((slot, self.kernel.slot(task)?))
    }

    fn action(&mut self) -> Option<types::action> {
        let none = intf::hetero_consts_NO_TYPE as u8;
        let mut action = types::action {
            op: self.dice.below(5) as u32,
            core_type: none,
            other_core_type: none,
            expected_type: none,
            other_expected_type: none,
            ruled: self.dice.one_in(8).into(),
            ..types::action::default()
        };
        let types = self.kernel.machine.topology.types.len() as u64;
        let hostile = self.has(Chaos::Hostile) && self.dice.one_in(4);
        if hostile {
            let mut number = |bits: u32| self.dice.below(1 << bits) as u32;
            action.op = number(3);
            action.slot = number(15).wrapping_sub(number(4));
            action.other_slot = number(3);
            action.generation = number(2);
            action.other_generation = number(2);
            action.core_type = number(3) as u8;
            action.other_core_type = number(3) as u8;
            action.expected_type = number(3) as u8;
            action.park_ns = number(31);
            action.rule_weight = number(31);
            action.inv_slowdown = [0, number(31), u32::MAX, number(17)];
            // Its park would be as good as any; see below.
            let parks = action.op == intf::action_op_ACTION_PARK && !self.has(Chaos::Parks);
            return (!parks).then_some(action);
        }
        let wanted = match action.op {
            intf::action_op_ACTION_HINT => Chaos::Hints,
            intf::action_op_ACTION_SWAP => Chaos::Swaps,
            intf::action_op_ACTION_PARK => Chaos::Parks,
            _ => Chaos::Slowdowns,
        };
        if !self.has(wanted) {
            return None;
        }
        if wanted == Chaos::Parks {
            action.slot = self.any_cpu();
            action.park_ns = self.dice.below(150 * MS) as u32;
            return Some(action);
        }
        let (index, slot) = self.slot_of()?;
        (action.slot, action.generation) = (index, slot.generation);
        action.core_type = self.dice.below(types + 1) as u8;
        if u64::from(action.core_type) == types {
            action.core_type = none;
        }
        if wanted == Chaos::Swaps {
            let (other_index, other) = self.slot_of()?;
            (action.other_slot, action.other_generation) = (other_index, other.generation);
            (action.core_type, action.other_core_type) = (other.core_type, slot.core_type);
        }
        action.rule_weight = self.dice.of(&[1, 50, 100, 200, 10_000]);
        action.inv_slowdown = [65536, 40_000, 30_000, 20_000];
        Some(action)
    }

    /// A sample holds what its task has counted, and nothing else.
    fn check_sample(&self, sample: &intf::task_sample) -> Result<(), String> {
        let Some(task) = sample.tid.checked_sub(1000).map(TaskId) else {
            return Err(format!("a sample of task {}", sample.tid));
        };
        let rates = {
            let state = self.kernel.look();
            let entity = state.tasks.get(task.0 as usize);
            entity.ok_or("a sample of no task")?.rates[usize::from(sample.core_type)]
        };
        let set = &self.kernel.machine.set_events[usize::from(sample.core_type)];
        let nr = usize::from(set[usize::from(sample.set)]);
        let counted = sample.counts.iter().zip(rates).take(nr).enumerate();
        for (k, (&counted, rate)) in counted {
            let expected = u128::from(rate) * u128::from(sample.run_ns) / 1024;
            let counted = u128::from(counted);
            if counted.abs_diff(expected) > expected / 500 + 300 {
                return Err(format!(
                    "a sample of task {} has {counted} of event {k} of set {} on core type {} in \
                     {} ns, not {expected}",
                    sample.tid, sample.set, sample.core_type, sample.run_ns
                ));
            }
        }
        Ok(())
    }
}
