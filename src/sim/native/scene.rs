// SPDX-License-Identifier: GPL-2.0-only
//! What scenarios are made of: a machine, tasks that compute, tasks that work and sleep in turn, and
//! an agent that is alive.

use clap::ValueEnum as _;

use super::*;
use crate::agent::Author;
use crate::mechanism::Mechanism;
use crate::policy::{Policy, Snapshot};
use crate::scheduler::encode::encode;
use crate::table::TableReader;
use crate::topology::CpuMask;

pub(super) const US: u64 = 1000;
pub(super) const MS: u64 = 1_000_000;
pub(super) const S: u64 = 1_000_000_000;

/// `try_to_wake_up()`, by a task that goes on, and by one that says that it is about to sleep.
pub(super) const WAKE: u64 = WAKE_TTWU;
pub(super) const WAKE_SYNC: u64 = WAKE_TTWU | ffi::SCX_WAKE_SYNC as u64;

/// The parts that tests/can-fail leaves out, to see a scenario fail.
pub(super) fn left_out() -> Vec<Mechanism> {
    let names = std::env::var("SCX_HETERO_WITHOUT").unwrap_or_default();
    let parts = names.split(',').filter(|name| !name.is_empty());
    parts
        .map(|name| Mechanism::from_str(name, true).expect("a part of that name"))
        .collect()
}

/// A machine of so many CPUs of each type, but for what is left out.
pub(super) fn machine(cpus_by_type: &[u32]) -> NativeMachine {
    NativeMachine {
        without: left_out(),
        ..NativeMachine::of(cpus_by_type)
    }
}

/// A task that may use no other CPU.
pub(super) fn pinned(cpu: u32) -> NewTask {
    on([cpu])
}

/// A task that may use these CPUs alone.
pub(super) fn on(cpus: impl IntoIterator<Item = u32>) -> NewTask {
    NewTask {
        cpus: Some(CpuMask::from_iter(cpus)),
        ..NewTask::default()
    }
}

pub(super) fn nice(nice: i32) -> NewTask {
    NewTask {
        nice,
        ..NewTask::default()
    }
}

/// Largest deviation from the mean, relative to it.
pub(super) fn spread(values: impl IntoIterator<Item = u64>) -> f64 {
    let values: Vec<f64> = values.into_iter().map(|value| value as f64).collect();
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let off = values.iter().map(|value| (value - mean).abs() / mean);
    off.fold(0.0, f64::max)
}

/// One that works for `burst_ns` and sleeps for `sleep_ns`, in turn.
struct Worker {
    task: TaskIndex,
    burst_ns: u64,
    sleep_ns: u64,
    /// It is due again so long after it was due last, and not after it was done.
    in_step: bool,
    /// Its run time when this burst ends; while it sleeps, when that ends.
    until_ran: u64,
    wakes_at: Option<u64>,
    woke_at: u64,
    /// From each waking to the end of the work.
    took: Vec<u64>,
}

/// A kernel with an agent that says that it is alive, and tasks that work and sleep.
pub(super) struct Scene {
    pub(super) kernel: Box<NativeKernel>,
    workers: Vec<Worker>,
    /// The agent is stopped.
    pub(super) silent: bool,
    reader: TableReader,
}

impl Scene {
    pub(super) fn new(machine: &NativeMachine) -> Self {
        Self {
            kernel: NativeKernel::new(machine).unwrap(),
            workers: Vec::new(),
            silent: false,
            reader: TableReader::default(),
        }
    }

    /// So many tasks that compute.
    pub(super) fn hogs(&self, count: usize, task: &NewTask) -> Vec<TaskIndex> {
        (0..count).map(|_| self.kernel.fork(task, 0)).collect()
    }

    /// A task that works for `burst_ns` and then sleeps for `sleep_ns`, again and again.
    pub(super) fn worker(&mut self, task: &NewTask, burst_ns: u64, sleep_ns: u64) -> TaskIndex {
        let task = self.kernel.fork(task, 0);
        self.workers.push(Worker {
            task,
            burst_ns,
            sleep_ns,
            in_step: false,
            until_ran: burst_ns,
            wakes_at: None,
            woke_at: self.kernel.now(),
            took: Vec::new(),
        });
        task
    }

    /// A task that has `work_ns` to do each `period_ns`.
    pub(super) fn periodic(&mut self, task: &NewTask, work_ns: u64, period_ns: u64) -> TaskIndex {
        let task = self.worker(task, work_ns, period_ns);
        self.workers.last_mut().expect("just pushed").in_step = true;
        task
    }

    /// From each waking of a worker to the end of its work, since this was last asked, ns.
    pub(super) fn took(&mut self, task: TaskIndex) -> Vec<u64> {
        let found = self.workers.iter_mut().find(|worker| worker.task == task);
        std::mem::take(&mut found.expect("a worker").took)
    }

    /// For how long a task has run, ns.
    pub(super) fn ran(&self, task: TaskIndex) -> u64 {
        let se = self.kernel.task_struct(task).se;
        let since = match self.kernel.is_running(task) {
            true => self.kernel.now().saturating_sub(se.exec_start),
            false => 0,
        };
        se.sum_exec_runtime + since
    }

    /// On the CPUs of each core type, as far as a task has been charged, ns.
    pub(super) fn ran_on(&self, task: TaskIndex) -> [u64; 4] {
        self.kernel.slot(task).map_or([0; 4], |slot| slot.run_ns)
    }

    /// Lets so much time pass.
    pub(super) fn run(&mut self, ns: u64) {
        let end = self.kernel.now() + ns;
        while self.kernel.now() < end {
            if !self.silent {
                self.kernel.beat();
            }
            let now = self.kernel.now();
            let next = (0..self.workers.len()).map(|at| self.next(at)).min();
            let tick = 1_000_000_000 / u64::from(self.kernel.machine().hz);
            let until = next
                .unwrap_or(u64::MAX)
                .min((now / tick + 1) * tick)
                .min(self.kernel.next_timer().unwrap_or(u64::MAX).max(now + 1))
                .min(end)
                .max(now);
            self.kernel.run_for(until - now);
            (0..self.workers.len()).for_each(|at| self.step(at));
        }
    }

    /// The same, and what each of these ran meanwhile, ns.
    pub(super) fn measure(&mut self, tasks: &[TaskIndex], ns: u64) -> Vec<u64> {
        let before: Vec<_> = tasks.iter().map(|&task| self.ran(task)).collect();
        self.run(ns);
        let now = tasks.iter().map(|&task| self.ran(task));
        now.zip(before).map(|(now, before)| now - before).collect()
    }

    /// The longest time for which one of these did not run, in so much time, ns.
    pub(super) fn longest_wait(&mut self, tasks: &[TaskIndex], ns: u64) -> u64 {
        let mut seen: Vec<_> = tasks.iter().map(|&task| (self.ran(task), 0)).collect();
        let mut longest = 0;
        for _ in 0..ns / MS {
            self.run(MS);
            for (&task, (ran, waited)) in tasks.iter().zip(&mut seen) {
                let now = self.ran(task);
                *waited = if now > *ran { 0 } else { *waited + MS };
                *ran = now;
                longest = longest.max(*waited);
            }
        }
        longest
    }

    /// When something happens to a worker next, if nothing else comes between.
    fn next(&self, at: usize) -> u64 {
        let worker = &self.workers[at];
        match worker.wakes_at {
            Some(at) => at,
            None if self.kernel.is_running(worker.task) => {
                self.kernel.now() + worker.until_ran.saturating_sub(self.ran(worker.task))
            }
            None => u64::MAX,
        }
    }

    fn step(&mut self, at: usize) {
        let now = self.kernel.now();
        let (task, wakes_at) = (self.workers[at].task, self.workers[at].wakes_at);
        if let Some(due) = wakes_at {
            if due <= now {
                let ran = self.ran(task);
                let worker = &mut self.workers[at];
                (worker.wakes_at, worker.woke_at) = (None, now);
                worker.until_ran = ran + worker.burst_ns;
                self.kernel.wake(task, self.kernel.cpu_of(task), WAKE);
                self.kernel.settle();
            }
            return;
        }
        if !self.kernel.is_running(task) || self.ran(task) < self.workers[at].until_ran {
            return;
        }
        self.kernel.block(self.kernel.cpu_of(task));
        self.kernel.settle();
        let worker = &mut self.workers[at];
        worker.took.push(now - worker.woke_at);
        worker.wakes_at = Some(match worker.in_step {
            true => (worker.woke_at + worker.sleep_ns).max(now + 1),
            false => now + worker.sleep_ns,
        });
    }

    /// What the agent tells of where `task` is to be: a policy's hint, or a rule's.
    pub(super) fn hint(&self, task: TaskIndex, core_type: u8, ruled: bool) {
        let by = if ruled { Author::Rules } else { Author::Policy };
        assert!(self.kernel.hint(task, core_type, by));
    }

    /// A policy looks at the tasks, and its hints and swaps are applied; how many.
    pub(super) fn decide(&mut self, policy: &mut dyn Policy) -> usize {
        let (slots, used) = self.kernel.half().slots();
        let mut tasks = Vec::new();
        self.reader.snapshot(slots, used, &mut tasks);
        let snapshot = Snapshot {
            now_ns: self.kernel.now(),
            topology: &self.kernel.machine().topology,
            tasks: &tasks,
        };
        let mut actions = Vec::new();
        policy.decide(&snapshot, &mut actions);
        let encoded = actions.iter().map(|action| encode(action, Author::Policy));
        let encoded: Vec<_> = encoded.collect();
        self.kernel.apply(&encoded, 0);
        self.kernel.settle();
        encoded.len()
    }
}
