// SPDX-License-Identifier: GPL-2.0-only
//! How threads wake up, run, wait and end: the part of the kernel that calls a scheduler, after
//! `kernel/sched/ext.c`.
//!
//! Of the order there is kept: who has slice left runs on; a local queue goes before the
//! scheduler's own; the scheduler is asked for work before the one that ran is put back; and one
//! that is alone is put back by `SCX_ENQ_LAST` if the scheduler wants that.

use rand_pcg::rand_core::Rng as _;

use super::event::Event;
use super::job::{Job, Step};
use super::kernel::{Kernel, ThreadState};
use super::mechanism::{Flags, Mechanism, Selected};

/// Before a program that has ended runs again: it is forked and read in; assumed, ns.
const RESTART_NS: u64 = 1_000_000;

/// A run of a program that has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Completion {
    /// Index of the job.
    pub(super) job: usize,
    /// How long it took, ns.
    pub(super) took: u64,
}

/// A machine and its scheduler.
pub(super) struct Sim<M> {
    pub(super) kernel: Kernel,
    pub(super) mechanism: M,
    pub(super) completions: Vec<Completion>,
    /// Programs that end start anew.
    pub(super) restarts: bool,
    /// Migrations of threads that have ended.
    pub(super) past_moves: u64,
    /// Instructions of a job's earlier runs.
    pub(super) past_work: Vec<f64>,
    /// Affinity of each job's threads, and how many they are.
    forms: Vec<(usize, u32)>,
}

impl<M: Mechanism> Sim<M> {
    pub(super) fn new(mut kernel: Kernel, mut mechanism: M) -> Self {
        mechanism.begin(&mut kernel);
        Self {
            kernel,
            mechanism,
            completions: Vec::new(),
            restarts: true,
            past_moves: 0,
            past_work: Vec::new(),
            forms: Vec::new(),
        }
    }

    /// Starts a program: its threads may use the CPUs of an affinity.
    pub(super) fn start(&mut self, job: Job, threads: u32, affinity: usize) {
        let index = self.kernel.jobs.len();
        self.kernel.jobs.push(job);
        self.past_work.push(0.0);
        self.forms.push((affinity, threads));
        self.fork(index);
        self.settle_down();
    }

    fn fork(&mut self, index: usize) {
        let k = &mut self.kernel;
        let (affinity, threads) = self.forms[index];
        let tgid = k.new_tid();
        let allowed: Vec<u32> = k.affinities[affinity].iter().collect();
        let parent = allowed[k.rng.next_u64() as usize % allowed.len()];
        let members = (0..threads).map(|member| k.new_thread(index, member, tgid, parent));
        let members: Vec<u32> = members.collect();
        let began = k.now;
        let program = k.jobs[index].program.clone();
        k.jobs[index] = Job::new(program, members.clone(), began);
        for (member, &thread) in members.iter().enumerate() {
            let k = &mut self.kernel;
            k.thread_mut(thread).affinity = affinity;
            self.mechanism.enable(k, thread);
            if let Step::Work(part) = k.jobs[index].begin(member as u32) {
                k.give_work(thread, part);
                self.wake(thread);
            }
        }
    }

    /// Goes on to `until`, ns, or until `done`, which is asked after each end of a program.
    pub(super) fn run(&mut self, until: u64, mut done: impl FnMut(&[Completion]) -> bool) {
        self.settle_down();
        let mut completed = self.completions.len();
        while let Some(at) = self.kernel.events.next_at() {
            if at > until {
                break;
            }
            self.kernel.now = at;
            while self.kernel.events.next_at() == Some(at) {
                if let Some((_, event)) = self.kernel.events.pop() {
                    self.handle(event);
                }
                self.switch_all();
            }
            self.settle_down();
            if self.completions.len() != completed {
                completed = self.completions.len();
                if done(&self.completions) {
                    return;
                }
            }
        }
        self.kernel.now = self.kernel.now.max(until);
        for cpu in 0..self.kernel.cpus.len() as u32 {
            self.kernel.update_current(cpu);
        }
    }

    fn handle(&mut self, event: Event) {
        let k = &mut self.kernel;
        match event {
            Event::Tick(cpu) => self.tick(cpu),
            Event::Work(cpu, stamp) if k.is_current(cpu, stamp) => self.work(cpu),
            Event::Work(..) => {}
            Event::Wake(thread) => {
                let part = k.jobs[k.thread(thread).job].stage().sleep;
                k.thread_mut(thread).awake_left = part.map_or(f64::INFINITY, |(every, _)| every);
                self.wake(thread);
            }
            Event::Start(job) => self.fork(job as usize),
            Event::Unpark(..) | Event::Agent | Event::Balance => self.mechanism.timer(k, event),
        }
    }

    fn tick(&mut self, cpu: u32) {
        let k = &mut self.kernel;
        if !k.next_tick(cpu) {
            return;
        }
        let Some(thread) = k.cpu(cpu).current else {
            return;
        };
        k.update_current(cpu);
        self.mechanism.tick(k, thread);
        if k.thread(thread).slice == 0 {
            k.resched(cpu);
        }
    }

    /// Switches on all CPUs that are to, and on those that these cause to.
    fn switch_all(&mut self) {
        while let Some(cpu) = self.kernel.pending.pop_front() {
            self.kernel.cpus[cpu as usize].resched = false;
            self.schedule(cpu);
        }
    }

    fn settle_down(&mut self) {
        self.switch_all();
        self.kernel.end_instant();
    }

    /// A CPU decides what to run.
    fn schedule(&mut self, cpu: u32) {
        let Self {
            kernel: k,
            mechanism,
            ..
        } = self;
        k.update_current(cpu);
        let previous = k.cpu(cpu).current;
        let has_slice = |k: &Kernel| previous.is_some_and(|p| k.thread(p).slice > 0);
        if has_slice(k) {
            return;
        }
        if k.cpu(cpu).local.is_empty() {
            mechanism.dispatch(k, cpu, previous);
            if has_slice(k) {
                return;
            }
        }
        let alone = k.cpu(cpu).local.is_empty();
        if let Some(previous) = previous {
            if alone && !M::ENQ_LAST {
                k.thread_mut(previous).slice = mechanism.slice_ns();
                return;
            }
            mechanism.stopping(k, previous, true);
            k.take_off(cpu, ThreadState::Queued);
            let flags = Flags {
                last: alone,
                ..Flags::default()
            };
            mechanism.enqueue(k, previous, flags);
        }
        match k.cpus[cpu as usize].local.pop_front() {
            Some(next) => {
                if std::mem::take(&mut k.cpus[cpu as usize].is_idle) {
                    k.idle.set(cpu, false);
                    mechanism.update_idle(k, cpu, false);
                }
                k.put_on(cpu, next);
                mechanism.running(k, next);
            }
            None => {
                let was_idle = std::mem::replace(&mut k.cpus[cpu as usize].is_idle, true);
                k.idle.set(cpu, true);
                if !was_idle {
                    mechanism.update_idle(k, cpu, true);
                }
            }
        }
    }

    /// A thread that is asleep becomes runnable.
    fn wake(&mut self, thread: u32) {
        let Self {
            kernel: k,
            mechanism,
            ..
        } = self;
        let previous = k.thread(thread).cpu;
        let choice = k.allowed(thread).len() > 1;
        let selected = choice
            .then(|| mechanism.select_cpu(k, thread, previous))
            .flatten();
        let cpu = selected.map(|selected| selected.cpu).unwrap_or_else(|| {
            let allowed = k.allowed(thread);
            if allowed.contains(previous) {
                previous
            } else {
                allowed.first().unwrap_or(previous)
            }
        });
        let t = k.thread_mut(thread);
        t.cpu = cpu;
        t.state = ThreadState::Queued;
        mechanism.runnable(k, thread);
        if let Some(Selected { preempts, .. }) = selected {
            k.insert_local(cpu, thread, mechanism.slice_ns(), preempts);
        } else {
            let flags = Flags {
                wakeup: true,
                cpu_selected: choice,
                last: false,
            };
            mechanism.enqueue(k, thread, flags);
            if k.cpu(cpu).is_idle {
                k.resched(cpu);
            }
        }
    }

    /// The thread on a CPU goes to sleep, or waits for others.
    fn block(&mut self, cpu: u32) {
        let k = &mut self.kernel;
        k.update_current(cpu);
        if let Some(thread) = k.cpu(cpu).current {
            self.mechanism.stopping(k, thread, false);
            k.take_off(cpu, ThreadState::Blocked);
            self.mechanism.quiescent(k, thread);
        }
        k.resched(cpu);
    }

    /// The thread on a CPU has come to the end of what it did.
    fn work(&mut self, cpu: u32) {
        let k = &mut self.kernel;
        k.update_current(cpu);
        let Some(thread) = k.cpu(cpu).current else {
            return;
        };
        let (left, awake) = (k.thread(thread).left, k.thread(thread).awake_left);
        if k.is_done(thread, left) {
            self.arrive(cpu, thread);
        } else if k.is_done(thread, awake) {
            self.sleep(cpu, thread);
        } else {
            k.look_again(cpu);
        }
    }

    fn sleep(&mut self, cpu: u32, thread: u32) {
        let k = &mut self.kernel;
        let stage = *k.jobs[k.thread(thread).job].stage();
        let (every, ns) = stage.sleep.unwrap_or((f64::INFINITY, 0.0));
        k.thread_mut(thread).awake_left = every;
        // Between half and one and a half times as long.
        let factor = 0.5 + k.rng.next_u64() as f64 / u64::MAX as f64;
        let at = k.now + (ns * factor) as u64;
        k.events.push(at, Event::Wake(thread));
        self.block(cpu);
    }

    /// A thread has done its part of a stage.
    fn arrive(&mut self, cpu: u32, thread: u32) {
        let k = &mut self.kernel;
        let index = k.thread(thread).job;
        let member = k.thread(thread).member;
        match k.jobs[index].arrive() {
            Step::Wait => self.block(cpu),
            Step::Meet(workers) => {
                let part = k.jobs[index].part();
                let members = k.jobs[index].members.clone();
                if member < workers {
                    k.give_work(thread, part);
                    k.mark_dirty(cpu);
                    k.changes_load(cpu);
                } else {
                    self.block(cpu);
                }
                for (other, &id) in (0..workers).zip(&members) {
                    if other != member {
                        self.kernel.give_work(id, part);
                        self.wake(id);
                    }
                }
            }
            Step::End => self.end(cpu, index),
            Step::Work(_) => {}
        }
    }

    /// A program ends: all its threads do, the one on `cpu` as well.
    fn end(&mut self, cpu: u32, index: usize) {
        self.block(cpu);
        let k = &mut self.kernel;
        let members = std::mem::take(&mut k.jobs[index].members);
        let took = k.now - k.jobs[index].began_at;
        for &thread in &members {
            self.mechanism.exit(k, thread);
            self.past_moves += k.thread(thread).moves;
            k.bury(thread);
        }
        self.past_work[index] += k.jobs[index].program.instructions();
        self.completions.push(Completion { job: index, took });
        if self.restarts {
            let at = self.kernel.now + RESTART_NS;
            self.kernel.events.push(at, Event::Start(index as u32));
        }
    }

    /// Times that threads changed CPUs.
    pub(super) fn moves(&self) -> u64 {
        let alive = self.kernel.threads.iter();
        let alive = alive.filter(|thread| thread.state != ThreadState::Dead);
        self.past_moves + alive.map(|thread| thread.moves).sum::<u64>()
    }

    /// Instructions that a job has done, over all its runs.
    pub(super) fn work_of(&self, index: usize) -> f64 {
        let members = self.kernel.jobs[index].members.iter();
        let now: f64 = members
            .map(|&id| self.kernel.thread(id).counters.instructions)
            .sum();
        self.past_work[index] + now
    }
}
