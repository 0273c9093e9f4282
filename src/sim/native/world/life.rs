// SPDX-License-Identifier: GPL-2.0-only
//! What a task is, and what it does while it runs.

use super::super::cpu::Runs;
use super::super::ffi;
use super::super::machine::AGENT_TGID;
use super::super::task::{NewTask, TaskIndex};
use super::{Chaos, Event, MS, US, World};
use crate::topology::CpuMask;

#[derive(Clone, Debug)]
pub(super) struct Life {
    /// Means; no burst: it computes for ever.
    pub(super) burst_ns: u64,
    sleep_ns: u64,
    /// It sleeps when its run time is this.
    pub(super) until_ns: u64,
    pub(super) generation: u64,
    pub(super) ends: bool,
    /// It sleeps until this one wakes it up, synchronously, and wakes it up in turn.
    pub(super) partner: Option<TaskIndex>,
}

impl Life {
    /// Means; no burst: it computes for ever.
    pub(super) fn of(burst_ns: u64, sleep_ns: u64) -> Self {
        Self {
            burst_ns,
            sleep_ns,
            until_ns: if burst_ns > 0 { burst_ns } else { u64::MAX },
            generation: 0,
            ends: false,
            partner: None,
        }
    }
}

impl World {
    pub(super) fn fork(&mut self, from: u32) {
        let flags = if self.has(Chaos::Pinned) && self.dice.one_in(8) {
            ffi::PF_KTHREAD
        } else {
            0
        };
        let cpus = match flags {
            0 if self.has(Chaos::Affinity) => self.any_mask(),
            0 => CpuMask::first(self.kernel.machine.nr_cpus()),
            _ => CpuMask::from_iter([self.any_cpu()]),
        };
        let mut task = NewTask {
            flags,
            cpus: Some(cpus),
            ..NewTask::default()
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
        let agent = task.tgid == Some(AGENT_TGID);
        let busy_agent = agent && self.has(Chaos::BusyAgent) && self.dice.one_in(2);
        let brief = flags != 0 || agent && !busy_agent;
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
        let life = Life {
            until_ns,
            ..Life::of(burst_ns, sleep_ns)
        };
        self.fork_as(&task, life, from);
    }

    pub(super) fn fork_as(&mut self, task: &NewTask, life: Life, from: u32) -> TaskIndex {
        self.lives.push(life);
        self.kernel.fork(task, from)
    }

    /// A task has done what it woke up for.
    pub(super) fn end_burst(&mut self, task: TaskIndex) {
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
        let raw = self.kernel.raw(task);
        let exiting = unsafe { (*raw).flags } & ffi::PF_EXITING != 0;
        if life.ends && !exiting {
            // do_exit() takes a while: it may be preempted in there, and moved.
            unsafe { (*raw).flags |= ffi::PF_EXITING }
            let left = self.dice.of(&[20 * US, 300 * US, 8 * MS]);
            self.lives[task.0 as usize].until_ns = ran + left;
            self.post(left, Event::BurstEnds(task, life.generation));
            return;
        }
        if exiting {
            let had_slot = self.watch.ends(&self.kernel, task);
            self.kernel.die(cpu);
            self.watch.ended(&self.kernel, task, had_slot);
            let after = self.dice.below(5 * MS);
            self.post(after, Event::Free(task));
            return;
        }
        let mut yields = false;
        let others = if self.chaos.is_empty() {
            12
        } else {
            self.dice.below(12)
        };
        match others {
            0 if self.has(Chaos::Forks) && self.kernel.look().alive.len() < self.most_tasks => {
                self.fork(cpu);
            }
            1..=4 if self.has(Chaos::Sync) => {
                if let Some(other) = self.any_task() {
                    let flags = ffi::SCX_WAKE_TTWU | self.dice.of(&[0, ffi::SCX_WAKE_SYNC]);
                    let asleep = self.kernel.task_struct(other).flags & ffi::PF_EXITING == 0
                        && self.can_wake(other);
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
        if let Some(partner) = life.partner {
            let flags = ffi::SCX_WAKE_TTWU | ffi::SCX_WAKE_SYNC;
            self.kernel.wake(partner, cpu, flags.into());
            self.pairs.0 += u64::from(self.kernel.cpu_of(partner) == cpu);
            self.pairs.1 += 1;
            self.kernel.block(cpu);
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
}
