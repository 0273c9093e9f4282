// SPDX-License-Identifier: GPL-2.0-only
//! What threads do: they begin, work, sleep, wait for each other and end, and the scheduler is told.

use rand_pcg::rand_core::Rng as _;

use super::event::SimulatedEvent;
use super::job::{Job, JobStep};
use super::kernel::{ANYWHERE, FrameCounts, SimulatedKernel, ThreadState};
use super::scheduler::SimulatedScheduler;

/// Before a program that has ended runs again: it is forked and read in; assumed, ns.
const RESTART_NS: u64 = 1_000_000;

/// Instructions of a thread that meets others, finds that there is nothing to do for it in the next stage,
/// and waits again; assumed.
const LOOK: f64 = 2000.0;

/// A run of a program that has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Completion {
    /// Index of the job.
    pub(super) job: usize,
    /// How long it took, ns.
    pub(super) took: u64,
}

/// A machine and its scheduler.
pub(super) struct Sim<S> {
    pub(super) kernel: SimulatedKernel,
    pub(super) scheduler: S,
    pub(super) completions: Vec<Completion>,
    /// Programs that end start anew.
    pub(super) restarts: bool,
    /// Migrations of threads that have ended.
    pub(super) past_moves: u64,
    /// Instructions of a job's earlier runs.
    pub(super) past_work: Vec<f64>,
    /// What a job's earlier runs took, nJ.
    past_nj: Vec<f64>,
    /// A program does not start anew when it has run so often.
    pub(super) runs: Option<usize>,
    /// Affinity of each job's threads, and how many they are.
    forms: Vec<(usize, u32)>,
    /// Where each job ended last: what starts it again has waited for it, and is woken up there.
    parents: Vec<Option<u32>>,
    /// Of [`Self::start_by`]: the job whose member number N waits for job N, and starts it again.
    starters: Option<usize>,
}

impl<S: SimulatedScheduler> Sim<S> {
    pub(super) fn new(mut kernel: SimulatedKernel, mut scheduler: S) -> Self {
        scheduler.begin(&mut kernel);
        Self {
            kernel,
            scheduler,
            completions: Vec::new(),
            restarts: true,
            past_moves: 0,
            past_work: Vec::new(),
            past_nj: Vec::new(),
            runs: None,
            forms: Vec::new(),
            parents: Vec::new(),
            starters: None,
        }
    }

    /// Starts a program: its threads may use the CPUs of an affinity.
    pub(super) fn start(&mut self, job: Job, threads: u32, affinity: usize) {
        let index = self.add(job, threads, affinity);
        self.fork(index);
        self.settle_down();
    }

    /// Starts programs with so many threads by a program that has a thread for each: it is woken up where its program
    /// ends, and starts it again.
    pub(super) fn start_by(&mut self, starters: Job, jobs: impl Iterator<Item = (Job, u32)>) {
        for (job, threads) in jobs {
            self.add(job, threads, ANYWHERE);
        }
        let threads = self.kernel.jobs.len() as u32;
        let index = self.add(starters, threads, ANYWHERE);
        self.starters = Some(index);
        self.fork(index);
        self.settle_down();
    }

    fn add(&mut self, job: Job, threads: u32, affinity: usize) -> usize {
        let index = self.kernel.jobs.len();
        self.kernel.jobs.push(job);
        self.past_work.push(0.0);
        self.past_nj.push(0.0);
        self.kernel.frames.push(FrameCounts::default());
        self.forms.push((affinity, threads));
        self.parents.push(None);
        index
    }

    fn fork(&mut self, index: usize) {
        let k = &mut self.kernel;
        let (affinity, threads) = self.forms[index];
        let allowed: Vec<u32> = k.affinities[affinity].iter().collect();
        let by_lot = allowed[k.rng.next_u64() as usize % allowed.len()];
        let parent = self.parents[index].unwrap_or(by_lot);
        let members = (0..threads).map(|member| k.new_thread(index, member, parent));
        let members: Vec<u32> = members.collect();
        let began = k.now;
        let program = k.jobs[index].program.clone();
        k.jobs[index] = Job::new(program, members.clone(), began);
        for (member, &thread) in members.iter().enumerate() {
            let k = &mut self.kernel;
            k.thread_mut(thread).affinity = affinity;
            self.scheduler.add(k, thread, members[0]);
            if let JobStep::Work(part) = k.jobs[index].begin(member as u32) {
                k.give_work(thread, part);
                self.scheduler.wake(k, thread, parent);
            }
        }
    }

    /// Goes on to `until`, ns, or until `done`, which is asked after each end of a program.
    pub(super) fn run(&mut self, until: u64, mut done: impl FnMut(&[Completion]) -> bool) {
        self.settle_down();
        let mut completed = self.completions.len();
        while let Some(at) = self.next_at() {
            if at > until {
                break;
            }
            self.kernel.now = self.kernel.now.max(at);
            self.scheduler.fire_timers(&mut self.kernel);
            while self.kernel.events.next_at() == Some(at) {
                if let Some((_, event)) = self.kernel.events.pop() {
                    self.handle(event);
                }
                self.scheduler.switch_all(&mut self.kernel);
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

    /// When something happens next, ns.
    fn next_at(&self) -> Option<u64> {
        let timer = self.scheduler.next_timer();
        self.kernel.events.next_at().into_iter().chain(timer).min()
    }

    fn handle(&mut self, event: SimulatedEvent) {
        let k = &mut self.kernel;
        match event {
            SimulatedEvent::Tick(cpu) if k.next_tick(cpu) => self.scheduler.tick(k, cpu),
            SimulatedEvent::Work(cpu, stamp) if k.is_current(cpu, stamp) => self.work(cpu),
            SimulatedEvent::Tick(_) | SimulatedEvent::Work(..) => {}
            SimulatedEvent::Wake(thread) => {
                let t = k.thread(thread);
                let part = k.jobs[t.job].stage_of(t.member).sleep;
                k.thread_mut(thread).awake_left = part.map_or(f64::INFINITY, |(every, _)| every);
                let cpu = k.thread(thread).cpu;
                self.scheduler.wake(k, thread, cpu);
            }
            // The program may have ended meanwhile.
            SimulatedEvent::Rouse(thread, waker) => {
                if k.thread(thread).state == ThreadState::Blocked {
                    self.scheduler.wake(k, thread, waker);
                }
            }
            SimulatedEvent::Start(job) => self.fork(job as usize),
            SimulatedEvent::Agent | SimulatedEvent::Goals | SimulatedEvent::Balance => {
                self.scheduler.event(k, event)
            }
        }
    }

    fn settle_down(&mut self) {
        self.scheduler.switch_all(&mut self.kernel);
        self.kernel.end_instant();
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
        let t = k.thread(thread);
        let stage = *k.jobs[t.job].stage_of(t.member);
        let (every, ns) = stage.sleep.unwrap_or((f64::INFINITY, 0.0));
        let (now, job) = (k.now, k.thread(thread).job);
        k.thread_mut(thread).awake_left = every;
        let at = if stage.paced {
            let began = k.thread(thread).frame_from;
            let due = began + ns as u64;
            let frames = &mut k.frames[job];
            frames.done += 1;
            frames.late += u64::from(now > due);
            frames.worked_ns += now - began;
            frames.done_at = now;
            // Those that should have begun meanwhile are left out, as a player does.
            let left_out = (now.saturating_sub(due) as f64 / ns.max(1.0)).ceil();
            let due = now.max(due + (left_out * ns) as u64);
            k.thread_mut(thread).frame_from = due;
            due
        } else {
            // Between half and one and a half times as long.
            let factor = 0.5 + k.rng.next_u64() as f64 / u64::MAX as f64;
            now + (ns * factor) as u64
        };
        k.events.push(at, SimulatedEvent::Wake(thread));
        self.scheduler.block(k, cpu);
    }

    /// A thread has done what it was given of a stage.
    fn arrive(&mut self, cpu: u32, thread: u32) {
        let k = &mut self.kernel;
        let index = k.thread(thread).job;
        let member = k.thread(thread).member;
        if self.starters == Some(index) {
            self.parents[member as usize] = Some(cpu);
            self.fork(member as usize);
            self.scheduler.block(&mut self.kernel, cpu);
            return;
        }
        if member >= k.jobs[index].workers() {
            // It was woken up only to wait for the next stage.
            self.scheduler.block(k, cpu);
            return;
        }
        let looks = k.jobs[index].meets_twice();
        match k.jobs[index].arrive(member) {
            JobStep::Wait => self.scheduler.block(k, cpu),
            JobStep::Meet(workers) => {
                let members = k.jobs[index].members.clone();
                let each = k.machine.wake_ns(k.cpu(cpu).core_type);
                let mut woken = 0.0;
                for (other, &id) in (0..).zip(&members) {
                    if other != member && (other < workers || looks) {
                        woken += each;
                        self.assign(id, other < workers, cpu, woken);
                    }
                }
                // What comes last wakes the others, one after the other, and only then goes on, or waits.
                if member < workers || woken > 0.0 {
                    self.kernel.thread_mut(thread).debt += woken;
                    self.assign(thread, member < workers, cpu, 0.0);
                } else {
                    self.scheduler.block(&mut self.kernel, cpu);
                }
            }
            JobStep::GoOn => self.assign(thread, true, cpu, 0.0),
            JobStep::End => self.end(cpu, index),
            JobStep::Work(part) => {
                k.thread_mut(thread).left = part;
                k.look_again(cpu);
            }
        }
    }

    /// A stage begins: a thread is given its part of it, or nothing but a look at what the others do, and
    /// is woken up by what runs on `waker` if it waits, in so many ns.
    fn assign(&mut self, thread: u32, works: bool, waker: u32, in_ns: f64) {
        let k = &mut self.kernel;
        let t = k.thread(thread);
        let (state, cpu, job, member) = (t.state, t.cpu, t.job, t.member);
        if state == ThreadState::Running {
            k.update_current(cpu);
        }
        let part = if works {
            k.jobs[job].part(member)
        } else {
            LOOK
        };
        k.give_work(thread, part);
        match state {
            ThreadState::Running => {
                k.mark_dirty(cpu);
                k.changes_load(cpu);
            }
            ThreadState::Blocked if in_ns > 0.0 => {
                let at = k.now + in_ns as u64;
                k.events.push(at, SimulatedEvent::Rouse(thread, waker));
            }
            ThreadState::Blocked => self.scheduler.wake(k, thread, waker),
            ThreadState::Queued | ThreadState::Dead => {}
        }
    }

    /// A program ends: all its threads do, the one on `cpu` as well.
    fn end(&mut self, cpu: u32, index: usize) {
        let ended = self.completions.iter().filter(|run| run.job == index);
        let again = self.restarts && self.runs.is_none_or(|runs| ended.count() + 1 < runs);
        let starters = self.starters.filter(|_| again);
        if let Some(starters) = starters {
            // It still runs here when it is waited for no longer.
            let starter = self.kernel.jobs[starters].members[index];
            self.assign(starter, true, cpu, 0.0);
        }
        let k = &mut self.kernel;
        self.scheduler.block(k, cpu);
        let members = std::mem::take(&mut k.jobs[index].members);
        let took = k.now - k.jobs[index].began_at;
        for &thread in &members {
            self.scheduler.remove(k, thread);
            self.past_moves += k.thread(thread).moves;
            self.past_nj[index] += k.thread(thread).nj;
            k.bury(thread);
        }
        self.past_work[index] += k.jobs[index].program.instructions();
        self.completions.push(Completion { job: index, took });
        if again && starters.is_none() {
            self.scheduler.restarts(&mut self.kernel, cpu);
            self.parents[index] = Some(cpu);
            let at = self.kernel.now + RESTART_NS;
            self.kernel
                .events
                .push(at, SimulatedEvent::Start(index as u32));
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

    /// What a job's threads took, over all its runs, nJ.
    pub(super) fn nj_of(&self, index: usize) -> f64 {
        let members = self.kernel.jobs[index].members.iter();
        let now: f64 = members.map(|&id| self.kernel.thread(id).nj).sum();
        self.past_nj[index] + now
    }
}

#[cfg(test)]
mod tests;
