// SPDX-License-Identifier: GPL-2.0-only
//! Lives without chaos, long enough for what shows on average only: shares of CPU time, and how long
//! tasks wait. Machine, weights and numbers are random; each rule has a bound of its own.

use std::collections::BTreeSet;

use anyhow::{Result, anyhow};

use super::super::dice::Dice;
use super::super::machine::{AGENT_TGID, NativeMachine, Version};
use super::super::task::{NewTask, TaskIndex};
use super::life::Life;
use super::{MS, US, World};
use crate::agent::Author;
use crate::mechanism::Mechanism;
use crate::topology::CpuMask;

const SLICE_NS: u64 = 5 * MS;

/// What a calm life is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calm {
    /// CPU time follows weights within 5 %.
    Weights,
    /// The same with `cpu.weight` of cgroups, nested.
    Cgroups,
    /// A brief task that wakes up takes the CPU of one that computes.
    Brief,
    /// A task that is preempted for a moment stays on its CPU.
    Stay,
    /// A newcomer has a turn sooner than all others that wait.
    Newcomer,
    /// Tasks that wake each other up synchronously are near each other.
    Pairs,
    /// What is preempted in an RCU read-side section soon gets out of it.
    Rcu,
    /// The agent does not wait for a crowd.
    Agent,
    /// A task that hardly runs is not counted.
    Frugal,
    /// While the agent is silent, equal tasks have equal time on the fastest cores.
    Silence,
    /// Where tasks are one too many for their domain, they and those of another take turns.
    Rotation,
    /// Tasks that were kept from their share do not shut others out once they may have it.
    Debt,
}

impl Calm {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Weights,
        Self::Cgroups,
        Self::Brief,
        Self::Stay,
        Self::Newcomer,
        Self::Pairs,
        Self::Rcu,
        Self::Agent,
        Self::Frugal,
        Self::Silence,
        Self::Rotation,
        Self::Debt,
    ];
}

/// Tasks that compute for ever.
struct Plan {
    /// `cpu.weight` of each cgroup.
    groups: Vec<u32>,
    /// Nice, and cgroup.
    tasks: Vec<(i32, Option<usize>)>,
}

impl Plan {
    /// What each weighs beside all others; nice 0 in the root is 1.
    fn weights(&self) -> Vec<f64> {
        let by_nice = |nice: i32| 1.25f64.powi(-nice);
        let members = |group| {
            let members = self.tasks.iter().filter(|task| task.1 == Some(group));
            members.map(|task| by_nice(task.0)).sum::<f64>()
        };
        let weight = |&(nice, group): &(i32, Option<usize>)| match group {
            None => by_nice(nice),
            Some(group) => by_nice(nice) * f64::from(self.groups[group]) / 100.0 / members(group),
        };
        self.tasks.iter().map(weight).collect()
    }
}

impl World {
    /// Lives through it, and says which bound was broken.
    ///
    /// # Errors
    /// If the BPF half cannot be loaded; in words, if a rule is broken.
    pub fn calm(calm: Calm, seed: u64, without: &[Mechanism]) -> Result<()> {
        let mut dice = Dice::new(seed);
        let nr_cpus = match calm {
            Calm::Newcomer | Calm::Rcu => 1 + dice.below(2),
            Calm::Debt => 2,
            Calm::Stay => 2 + dice.below(4),
            Calm::Pairs => 3 + dice.below(4),
            _ => 1 + dice.below(6),
        } as u32;
        let mut machine = match calm {
            Calm::Silence | Calm::Rotation => {
                NativeMachine::of(&[1 + dice.below(3) as u32, 1 + dice.below(4) as u32])
            }
            _ => NativeMachine::of(&[nr_cpus]),
        };
        machine.hz = dice.of(&[250, 1000]);
        machine.version = dice.of(&[Version(6, 16), Version(6, 18), Version(7, 0), Version(7, 3)]);
        machine.without = without.to_vec();
        machine.sample_ns = if calm == Calm::Frugal { 50 * MS } else { 0 };
        let mut world = Self::on(&machine, dice, seed, &BTreeSet::new())?;
        let done = match calm {
            Calm::Weights | Calm::Cgroups => world.live_by_weight(nr_cpus, calm == Calm::Cgroups),
            Calm::Brief => world.live_briefly(nr_cpus),
            Calm::Stay => world.live_disturbed(nr_cpus),
            Calm::Newcomer => world.live_in_a_crowd(nr_cpus),
            Calm::Pairs => world.live_in_pairs(nr_cpus),
            Calm::Rcu => world.live_in_rcu_sections(nr_cpus),
            Calm::Agent => world.live_beside_the_agent(nr_cpus),
            Calm::Frugal => world.live_frugally(nr_cpus),
            Calm::Silence => world.live_in_silence(),
            Calm::Rotation => world.live_in_turns(),
            Calm::Debt => world.live_in_debt(),
        };
        let machine = machine.in_short();
        done.map_err(|message| anyhow!("seed {seed}: {message} (on {machine})"))
    }

    fn live_for(&mut self, ns: u64) -> Result<(), String> {
        let end = self.kernel.now() + ns;
        // What was forked since has caused nothing yet.
        self.follow();
        while self.kernel.now() < end {
            self.step()?;
        }
        Ok(())
    }

    /// The same, and the agent says now and then that it is there.
    fn live_with_agent_for(&mut self, ns: u64) -> Result<(), String> {
        let end = self.kernel.now() + ns;
        while self.kernel.now() < end {
            self.kernel.beat();
            self.live_for(250 * MS)?;
        }
        Ok(())
    }

    fn hogs(&mut self, nr: u64) -> Vec<TaskIndex> {
        let nr_cpus = self.kernel.machine.nr_cpus();
        let tasks = (0..nr).map(|nr| {
            let cpu = nr as u32 % nr_cpus;
            self.fork_as(&NewTask::default(), Life::of(0, 0), cpu)
        });
        tasks.collect()
    }

    fn ran(&self, task: TaskIndex) -> u64 {
        self.kernel.update_curr(self.kernel.cpu_of(task));
        self.kernel.task_struct(task).se.sum_exec_runtime
    }

    fn longest_wait(&self, tasks: &[TaskIndex]) -> u64 {
        let state = self.kernel.look();
        let now = self.kernel.now();
        let waits = tasks.iter().map(|task| {
            let entity = &state.tasks[task.0 as usize];
            let still = entity.waits_since.map_or(0, |since| now - since);
            entity.longest_wait.max(still)
        });
        waits.max().unwrap_or(0)
    }

    fn forget_waits(&self) {
        for entity in &mut self.kernel.st().tasks {
            (entity.longest_wait, entity.moves) = (0, 0);
        }
    }

    fn live_by_weight(&mut self, nr_cpus: u32, cgroups: bool) -> Result<(), String> {
        let plan = self.plan(nr_cpus, cgroups);
        for &weight in &plan.groups {
            self.kernel.make_cgroup(None, weight);
        }
        let mut tasks = Vec::new();
        for &(nice, cgroup) in &plan.tasks {
            let task = NewTask {
                nice,
                cgroup,
                ..NewTask::default()
            };
            let cpu = self.any_cpu();
            tasks.push(self.fork_as(&task, Life::of(0, 0), cpu));
        }
        self.live_with_agent_for(3_000 * MS)?;
        let before: Vec<_> = tasks.iter().map(|&task| self.ran(task)).collect();
        let passed = 20_000 * MS;
        self.live_with_agent_for(passed)?;
        let weights = plan.weights();
        let sum: f64 = weights.iter().sum();
        for ((&task, before), weight) in tasks.iter().zip(before).zip(&weights) {
            let got = (self.ran(task) - before) as f64 / passed as f64;
            let share = weight / sum * f64::from(nr_cpus);
            // And two slices of those 4,000.
            if (got - share).abs() > share * 0.05 + 0.0005 {
                return Err(format!(
                    "{task:?} got {got:.4} of a CPU, not {share:.4}; weights {weights:.2?}"
                ));
            }
        }
        Ok(())
    }

    /// Tasks none of which is entitled to more than a CPU: that one would leave the others more than
    /// by weight, which is not made up for.
    fn plan(&mut self, nr_cpus: u32, cgroups: bool) -> Plan {
        loop {
            let nr = 2 * u64::from(nr_cpus) + self.dice.below(3 * u64::from(nr_cpus));
            let nr_groups = if cgroups { 1 + self.dice.below(3) } else { 0 };
            let groups = (0..nr_groups).map(|_| self.dice.of(&[50, 100, 200, 300]));
            let groups: Vec<u32> = groups.collect();
            let tasks = (0..nr).map(|_| {
                let group = (self.dice.below(nr_groups + 1) as usize).checked_sub(1);
                (self.dice.below(9) as i32 - 4, group)
            });
            let tasks = tasks.collect();
            let plan = Plan { groups, tasks };
            let weights = plan.weights();
            let sum: f64 = weights.iter().sum();
            if weights
                .iter()
                .all(|weight| weight * f64::from(nr_cpus) < 0.95 * sum)
            {
                return plan;
            }
        }
    }

    fn live_briefly(&mut self, nr_cpus: u32) -> Result<(), String> {
        let per_cpu = 1 + self.dice.below(3);
        self.hogs(per_cpu * u64::from(nr_cpus));
        let life = Life::of(self.dice.of(&[300 * US, MS]), 15 * MS);
        let brief = self.fork_as(&NewTask::default(), life, 0);
        self.live_with_agent_for(1000 * MS)?;
        self.forget_waits();
        self.live_with_agent_for(3000 * MS)?;
        let waited = self.longest_wait(&[brief]);
        if waited > 2 * MS {
            return Err(format!("a brief task waited for {} us", waited / US));
        }
        Ok(())
    }

    fn live_disturbed(&mut self, nr_cpus: u32) -> Result<(), String> {
        let hogs = self.hogs(nr_cpus.into());
        for _ in 0..nr_cpus {
            let sleep = self.dice.around(8 * MS);
            self.fork_as(&NewTask::default(), Life::of(30 * US, sleep), 0);
        }
        self.live_with_agent_for(1000 * MS)?;
        self.forget_waits();
        self.live_with_agent_for(4000 * MS)?;
        let state = self.kernel.look();
        let moves: u32 = hogs
            .iter()
            .map(|task| state.tasks[task.0 as usize].moves)
            .sum();
        if moves > 20 {
            return Err(format!("{} tasks moved {moves} times in 4 s", hogs.len()));
        }
        Ok(())
    }

    fn live_in_a_crowd(&mut self, nr_cpus: u32) -> Result<(), String> {
        let nr = (20 + self.dice.below(20)) * u64::from(nr_cpus);
        self.hogs(nr);
        self.live_with_agent_for(3000 * MS)?;
        let newcomers: Vec<_> = (0..4)
            .map(|_| {
                let cpu = self.any_cpu();
                let task = self.fork_as(&NewTask::default(), Life::of(0, 0), cpu);
                self.live_with_agent_for(1000 * MS).map(|()| task)
            })
            .collect::<Result<_, _>>()?;
        let waits: u64 = newcomers.iter().map(|&task| self.first_wait(task)).sum();
        let (mean, round) = (waits / 4, nr * SLICE_NS / u64::from(nr_cpus));
        if mean * 4 > round {
            let ms = [mean, round].map(|ns| ns / MS);
            return Err(format!(
                "newcomers waited for {} ms; a round is {} ms",
                ms[0], ms[1]
            ));
        }
        Ok(())
    }

    fn first_wait(&self, task: TaskIndex) -> u64 {
        self.kernel.look().tasks[task.0 as usize]
            .first_wait
            .unwrap_or(u64::MAX / 8)
    }

    fn live_in_pairs(&mut self, nr_cpus: u32) -> Result<(), String> {
        // One CPU is theirs; all others compute.
        for cpu in 1..nr_cpus {
            let pinned = NewTask {
                cpus: Some(CpuMask::from_iter([cpu])),
                ..NewTask::default()
            };
            self.fork_as(&pinned, Life::of(0, 0), cpu);
        }
        let first = self.fork_as(&NewTask::default(), Life::of(80 * US, MS), 0);
        let second = self.fork_as(&NewTask::default(), Life::of(80 * US, MS), 0);
        // They are known to be brief before they meet.
        self.live_with_agent_for(500 * MS)?;
        self.lives[first.0 as usize].partner = Some(second);
        self.lives[second.0 as usize].partner = Some(first);
        self.live_with_agent_for(2000 * MS)?;
        let (near, all) = self.pairs;
        if all < 100 || near * 10 < all * 9 {
            return Err(format!("{near} of {all} wake-ups were near the waker"));
        }
        Ok(())
    }

    fn live_in_rcu_sections(&mut self, nr_cpus: u32) -> Result<(), String> {
        self.hogs(150 * u64::from(nr_cpus));
        let least = NewTask {
            nice: 19,
            ..NewTask::default()
        };
        let task = self.fork_as(&least, Life::of(0, 0), 0);
        // SAFETY: the model writes it between operations.
        unsafe { (*self.kernel.raw(task)).rcu_read_unlock_special.b.blocked = 1 }
        self.live_with_agent_for(4000 * MS)?;
        self.forget_waits();
        self.live_with_agent_for(6000 * MS)?;
        let waited = self.longest_wait(&[task]);
        if waited > 1000 * MS {
            return Err(format!(
                "it waited for {} ms in an RCU section",
                waited / MS
            ));
        }
        Ok(())
    }

    fn live_beside_the_agent(&mut self, nr_cpus: u32) -> Result<(), String> {
        self.hogs(60 * u64::from(nr_cpus));
        let task = NewTask {
            tgid: Some(AGENT_TGID),
            ..NewTask::default()
        };
        let agent = self.fork_as(&task, Life::of(12 * MS, 100 * MS), 0);
        self.live_with_agent_for(4000 * MS)?;
        let waited = self.longest_wait(&[agent]);
        // At first for the end of a slice, and a tick.
        if waited > 12 * MS {
            return Err(format!("the agent waited for {} ms", waited / MS));
        }
        Ok(())
    }

    /// What must hold is in `rules.rs`.
    fn live_frugally(&mut self, nr_cpus: u32) -> Result<(), String> {
        self.hogs(nr_cpus.into());
        for _ in 0..3 {
            let sleep = self.dice.around(20 * MS);
            self.fork_as(&NewTask::default(), Life::of(30 * US, sleep), 0);
        }
        self.live_with_agent_for(6000 * MS)
    }

    fn live_in_turns(&mut self) -> Result<(), String> {
        let nr_cpus = u64::from(self.kernel.machine.nr_cpus());
        let nr = nr_cpus + 1 + self.dice.below(nr_cpus);
        let tasks = self.hogs(nr);
        self.live_with_agent_for(2_000 * MS)?;
        let before: Vec<_> = tasks.iter().map(|&task| self.ran(task)).collect();
        self.live_with_agent_for(10_000 * MS)?;
        let fair = 10_000.0 * nr_cpus as f64 / nr as f64;
        for (&task, before) in tasks.iter().zip(before) {
            let got = (self.ran(task) - before) as f64 / MS as f64;
            if (got - fair).abs() > fair * 0.1 {
                return Err(format!(
                    "{task:?} of {nr} ran for {got:.0} ms, not {fair:.0}"
                ));
            }
        }
        Ok(())
    }

    fn live_in_debt(&mut self) -> Result<(), String> {
        let all = CpuMask::first(2);
        let nr_kept = 4 + self.dice.below(4);
        let mut on = |cpu| {
            let task = NewTask {
                cpus: Some(CpuMask::from_iter([cpu])),
                ..NewTask::default()
            };
            self.fork_as(&task, Life::of(0, 0), cpu)
        };
        let kept: Vec<_> = (0..nr_kept).map(|_| on(0)).collect();
        let alone = on(1);
        // A real-time task leaves them a tenth of their CPU.
        for _ in 0..1000 {
            self.kernel.beat();
            self.kernel.take_cpu(0, 0);
            self.live_for(9 * MS)?;
            self.kernel.give_back(0);
            self.live_for(MS)?;
        }
        for task in kept.into_iter().chain([alone]) {
            self.kernel.set_affinity(task, &all, 0);
        }
        self.forget_waits();
        self.live_with_agent_for(4_000 * MS)?;
        let waited = self.longest_wait(&[alone]);
        if waited > 1000 * MS {
            let ms = waited / MS;
            return Err(format!("{nr_kept} tasks shut another one out for {ms} ms"));
        }
        Ok(())
    }

    fn live_in_silence(&mut self) -> Result<(), String> {
        let [fast, slow] = [0, 1].map(|core_type: usize| {
            self.kernel.machine.topology.types[core_type].cpus.len() as u64
        });
        let tasks = self.hogs(fast + slow);
        self.live_with_agent_for(500 * MS)?;
        for (index, &task) in tasks.iter().enumerate() {
            let core_type = u8::from(index as u64 >= fast);
            self.kernel.hint(task, core_type, Author::Policy);
        }
        self.live_with_agent_for(500 * MS)?;
        // From now on nothing is heard of it.
        self.live_for(4_000 * MS)?;
        let on_fast = |world: &Self, task| world.kernel.slot(task).map_or(0, |slot| slot.run_ns[0]);
        let before: Vec<_> = tasks.iter().map(|&task| on_fast(self, task)).collect();
        self.live_for(16_000 * MS)?;
        let fair = 16_000.0 * fast as f64 / (fast + slow) as f64;
        for (&task, before) in tasks.iter().zip(before) {
            let got = (on_fast(self, task) - before) as f64 / MS as f64;
            if (got - fair).abs() > fair * 0.1 {
                return Err(format!(
                    "{task:?} had {got:.0} ms on fast cores in 16 s of silence, not {fair:.0}"
                ));
            }
        }
        Ok(())
    }
}
