// SPDX-License-Identifier: GPL-2.0-only
//! What must hold after every event.

mod cpus;

use std::collections::BTreeMap;

use super::cpu::Runs;
use super::ffi::{cgroup_ctx, process_ctx};
use super::kernel::NativeKernel;
use super::task::{At, Entity, TaskIndex};
use crate::bpf::intf;

const MS: u64 = 1_000_000;
const MAX_DOMAINS: u64 = intf::hetero_consts_MAX_DOMAINS as u64;
const MAX_CPUS: u64 = intf::hetero_consts_MAX_CPUS as u64;
/// Queues from here on hold tasks of parked CPUs.
const PARK_DSQS: u64 = MAX_DOMAINS + MAX_CPUS;
/// This one those of sessions that have used up their allotment.
const USED_UP_DSQ: u64 = MAX_DOMAINS + 2 * MAX_CPUS;

/// For how long what may wait.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// A task in a queue that others serve, beside an idle CPU that it may use.
    pub beside_idle_ns: u64,
    /// A task in the local queue of a CPU that idles: nothing but that CPU would take it.
    pub local_idle_ns: u64,
    /// A task in the local queue of one CPU, beside another that idles.
    pub local_beside_idle_ns: u64,
    /// A task whose session has used up its allotment.
    pub used_up_ns: u64,
    /// A task anywhere, but for the time that other classes take.
    pub starved_ns: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            beside_idle_ns: 5 * MS,
            local_idle_ns: MS / 2,
            local_beside_idle_ns: 40 * MS,
            used_up_ns: 125 * MS,
            starved_ns: 10_000 * MS,
        }
    }
}

impl NativeKernel {
    /// What is wrong at this moment, if anything.
    ///
    /// # Errors
    /// In words: which rule is broken, by which task or CPU.
    pub fn check(&self, bounds: &Bounds) -> Result<(), String> {
        if let Some(error) = self.look().errors.first() {
            return Err(format!("the kernel would end the scheduler: {error}"));
        }
        self.note_parked();
        let alive = self.look().alive.clone();
        let idle: Vec<u32> = {
            let state = self.look();
            let cpus = (0..).zip(&state.cpus);
            let idle = cpus.filter(|(_, of)| of.runs == Runs::Idle);
            idle.map(|(cpu, _)| cpu).collect()
        };
        for &task in &alive {
            self.check_task(task)?;
            // While the kernel bypasses the BPF half, it decides.
            if self.look().bypass.is_empty() {
                self.check_wait(task, &idle, bounds)?;
            }
        }
        self.check_counts(&alive)?;
        self.check_sets(&alive)?;
        self.check_cpus()
    }

    /// When each CPU was parked last. What ends that is a timer, which lets the CPU look for work.
    fn note_parked(&self) {
        let contexts = self.half.global::<super::cpu_ctx>("cpu_ctxs");
        let now = self.now();
        for (index, cpu) in self.st().cpus.iter_mut().enumerate() {
            // SAFETY: within the array; no operation runs.
            let parked = unsafe { (*contexts.add(index)).parked_until > 0 };
            if std::mem::replace(&mut cpu.parked, parked) || parked {
                cpu.parked_until = now;
            }
        }
    }

    fn name(&self, task: TaskIndex) -> String {
        let raw = self.task_struct(task);
        format!("task {} of CPU {}", raw.pid, raw.native_cpu)
    }

    /// Where it is, it is once, and it may be there.
    fn check_task(&self, task: TaskIndex) -> Result<(), String> {
        let (queued, running) = (self.is_queued(task), self.is_running(task));
        let (at, deferred) = {
            let state = self.look();
            let entity = &state.tasks[task.0 as usize];
            (entity.at.map(|at| at.0), entity.deferred)
        };
        let places = u32::from(at.is_some()) + u32::from(running) + u32::from(deferred);
        if places != u32::from(queued) {
            return Err(format!(
                "{} is in {places} places ({at:?}, running: {running}), runnable: {queued}",
                self.name(task)
            ));
        }
        // Its affinity may change while it must not migrate; the stopper takes a moment; and where all its CPUs went
        // offline while it must not migrate, there is none to which it could go when it may again.
        let nowhere = || !self.look().online.cpus().any(|cpu| self.allows(task, cpu));
        let stays = || {
            let held = self.look().stops.contains(&task) || self.is_migration_disabled(task);
            held || nowhere()
        };
        if running && !self.allows(task, self.cpu_of(task)) && !stays() {
            return Err(format!("{} runs where it may not", self.name(task)));
        }
        let (counted, domain) = match at {
            Some(At::User(dsq)) => (dsq < PARK_DSQS, u32::try_from(dsq).ok()),
            _ => (false, None),
        };
        let domains = &self.machine.topology.domains;
        let served = domain.and_then(|domain| domains.get(domain as usize));
        if served.is_some_and(|served| !served.cpus.iter().any(|&cpu| self.allows(task, cpu))) {
            return Err(format!(
                "{} waits in {at:?}, which no CPU serves that it may use",
                self.name(task)
            ));
        }
        let waiting = self
            .with_task_ctx(task, |ctx| ctx.waiting != 0)
            .unwrap_or(false);
        // One that was moved to a local queue is counted until it runs, and one that a timer let go is not.
        let own = domain.filter(|_| counted);
        let own = own.and_then(|dsq| dsq.checked_sub(MAX_DOMAINS as u32));
        let let_go = match own {
            Some(cpu) => self.cpu_ctx(cpu).moved_in != 0,
            None => served.is_some() && domain.is_some_and(|it| self.domain_ctx(it).moved_in != 0),
        };
        if counted && !waiting && !let_go {
            return Err(format!(
                "{} waits in {at:?}, and is not counted",
                self.name(task)
            ));
        }
        if waiting && (running || !queued) {
            return Err(format!(
                "{} is counted as waiting, and does not wait",
                self.name(task)
            ));
        }
        Ok(())
    }

    /// It has not waited for too long; not at all, or beside a CPU that has nothing to do.
    fn check_wait(&self, task: TaskIndex, idle: &[u32], bounds: &Bounds) -> Result<(), String> {
        let now = self.now();
        let (at, since, came) = {
            let state = self.look();
            let entity = &state.tasks[task.0 as usize];
            let (Some(at), Some(since)) = (entity.at, entity.waits_since) else {
                return Ok(());
            };
            // What may take it depends on the queue.
            let came = entity.in_queue_since.map_or(since, |(_, came)| came);
            (at.0, since, came.max(since))
        };
        let waited = now - since;
        let bound = match at {
            At::Local(cpu) if idle.contains(&cpu) && self.is_online(cpu) => {
                let since = came.max(self.look().cpus[cpu as usize].idle_since);
                if now - since > bounds.local_idle_ns {
                    let us = (now - since) / 1000;
                    return Err(format!(
                        "{} waits for {us} us in the local queue of CPU {cpu}, which idles",
                        self.name(task)
                    ));
                }
                bounds.local_beside_idle_ns
            }
            At::Local(cpu) => {
                if self.runs(cpu) == Runs::Other {
                    return self.check_held_up(task, cpu, bounds);
                }
                bounds.local_beside_idle_ns
            }
            At::User(USED_UP_DSQ) => {
                if now - came > bounds.used_up_ns {
                    let ms = (now - came) / MS;
                    let name = self.name(task);
                    return Err(format!("{name} is held for its allotment for {ms} ms"));
                }
                self.st().tasks[task.0 as usize].waits_since = Some(now);
                return Ok(());
            }
            At::User(dsq) if dsq >= PARK_DSQS => {
                let cpu = (dsq - PARK_DSQS) as u32;
                let parked_until = self.look().cpus[cpu as usize].parked_until;
                if idle.contains(&cpu) && now - parked_until > bounds.beside_idle_ns {
                    let ms = (now - parked_until) / MS;
                    let name = self.name(task);
                    return Err(format!("{name} is held on CPU {cpu}, unparked for {ms} ms"));
                }
                self.st().tasks[task.0 as usize].waits_since = Some(now);
                return Ok(());
            }
            _ => bounds.beside_idle_ns,
        };
        if waited <= bound {
            return Ok(());
        }
        if waited > bounds.starved_ns {
            return Err(format!(
                "{} has waited for {} ms in {at:?}",
                self.name(task),
                waited / MS
            ));
        }
        if now - came <= bound || self.is_migration_disabled(task) {
            return Ok(());
        }
        for &cpu in idle {
            let (idle_since, parked_until) = {
                let of = &self.look().cpus[cpu as usize];
                (of.idle_since, of.parked_until)
            };
            let free_since = idle_since.max(parked_until);
            // One that came online since is for what can run nowhere else.
            let known = self.machine.topology.cpu(cpu).is_some();
            if !known && self.task_struct(task).nr_cpus_allowed > 1 {
                continue;
            }
            if self.allows(task, cpu) && now.saturating_sub(free_since) > bound {
                return Err(format!(
                    "{} has waited for {} us in {at:?} beside CPU {cpu}, idle for {} us",
                    self.name(task),
                    waited / 1000,
                    (now - idle_since) / 1000
                ));
            }
        }
        Ok(())
    }

    /// It waits where another class has the CPU, which does not count as waiting; but if that lasts, and
    /// another CPU idles, it must not wait there.
    fn check_held_up(&self, task: TaskIndex, cpu: u32, bounds: &Bounds) -> Result<(), String> {
        let now = self.now();
        self.st().tasks[task.0 as usize].waits_since = Some(now);
        let (taken, told) = {
            let of = &self.look().cpus[cpu as usize];
            (of.idle_since, of.released)
        };
        let came = self.look().tasks[task.0 as usize].in_queue_since;
        let since = came.map_or(taken, |(_, came)| came.max(taken));
        // Where the CPU idled before, the kernel does not ask for what was just sent there.
        let on_its_way = !told && since == taken;
        // After a bypass the kernel offers CPUs as idle that another class has taken meanwhile.
        let unseen = taken <= self.look().bypassed.1;
        let excused = on_its_way || unseen;
        if excused || now - since <= bounds.beside_idle_ns || self.is_migration_disabled(task) {
            return Ok(());
        }
        let state = self.look();
        let mut others = (0..).zip(&state.cpus);
        let idle = others.find(|(other, of)| {
            let since = now - of.idle_since.max(of.parked_until);
            let idles = of.runs == Runs::Idle && since > bounds.beside_idle_ns;
            // As in check_wait(): the BPF half knows nothing of some.
            let known = self.machine.topology.cpu(*other).is_some();
            idles && known && self.allows(task, *other)
        });
        match idle {
            Some((other, _)) => Err(format!(
                "{} has waited for {} us behind another class, beside CPU {other}",
                self.name(task),
                (now - since) / 1000
            )),
            None => Ok(()),
        }
    }

    /// What the BPF half has added up is the sum of what it counted for each task.
    fn check_counts(&self, alive: &[TaskIndex]) -> Result<(), String> {
        let mut domains: BTreeMap<u32, (u64, u64, u64)> = BTreeMap::new();
        let mut cpus: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        let mut processes: BTreeMap<u32, (u32, u32, u32)> = BTreeMap::new();
        let mut cgroups: BTreeMap<u32, i64> = BTreeMap::new();
        for &task in alive {
            self.with_task_ctx(task, |ctx| {
                let domain = domains.entry(ctx.domain).or_default();
                let waiting = u64::from(ctx.waiting);
                domain.0 += u64::from(ctx.counted_share);
                let known = u64::from(ctx.domain) < MAX_DOMAINS;
                if ctx.pinned_cpu >= 0 && !known {
                    // On a CPU that came online since.
                    cpus.entry(ctx.pinned_cpu as u32).or_default().1 += waiting;
                } else if ctx.pinned_cpu >= 0 {
                    domain.1 += u64::from(ctx.counted_share);
                    let cpu = cpus.entry(ctx.pinned_cpu as u32).or_default();
                    cpu.0 += u64::from(ctx.counted_share);
                    cpu.1 += waiting;
                } else {
                    domain.2 += waiting;
                }
                let process = processes.entry(ctx.process).or_default();
                process.0 += 1;
                process.1 += u32::from(ctx.competes);
                process.2 += u32::from(ctx.spinning);
                if ctx.cgroup != 0 {
                    *cgroups.entry(ctx.cgroup).or_default() += i64::from(ctx.cgroup_share);
                }
            });
        }
        for domain in 0..self.machine.topology.domains.len() as u32 {
            let (weight, pinned, waiting) = domains.get(&domain).copied().unwrap_or_default();
            let ctx = self.domain_ctx(domain);
            if (ctx.weight, ctx.pinned_weight, ctx.nr_waiting) != (weight, pinned, waiting) {
                return Err(format!(
                    "domain {domain} counts weight {}, {} pinned, {} waiting; its tasks are \
                     {weight}, {pinned}, {waiting}",
                    ctx.weight, ctx.pinned_weight, ctx.nr_waiting
                ));
            }
        }
        for cpu in 0..self.machine.nr_cpus() {
            let (pinned, waiting) = cpus.get(&cpu).copied().unwrap_or_default();
            let contexts = self.half.global::<super::cpu_ctx>("cpu_ctxs");
            // SAFETY: within the array; no operation runs.
            let ctx = unsafe { &*contexts.add(cpu as usize) };
            if (ctx.pinned_weight, ctx.nr_waiting) != (pinned, waiting) {
                return Err(format!(
                    "CPU {cpu} counts weight {}, {} waiting; its tasks are {pinned}, {waiting}",
                    ctx.pinned_weight, ctx.nr_waiting
                ));
            }
        }
        for (process, (threads, runnable, spinning)) in processes {
            if u64::from(process) >= intf::hetero_consts_MAX_PROCESSES.into() {
                continue;
            }
            let contexts = self.half.global::<process_ctx>("process_ctxs");
            // SAFETY: within the array.
            let ctx = unsafe { *contexts.add(process as usize) };
            if (ctx.nr_threads, ctx.nr_runnable, ctx.nr_spinning) != (threads, runnable, spinning) {
                return Err(format!(
                    "process {process} counts {} threads, {} runnable, {} spinning; they are \
                     {threads}, {runnable}, {spinning}",
                    ctx.nr_threads, ctx.nr_runnable, ctx.nr_spinning
                ));
            }
        }
        self.check_cgroups(&cgroups)
    }

    fn check_cgroups(&self, tasks: &BTreeMap<u32, i64>) -> Result<(), String> {
        let used = self
            .half
            .get::<u32>("nr_cgroups_used")
            .min(intf::hetero_consts_MAX_CGROUPS);
        let contexts = self.half.global::<cgroup_ctx>("cgroup_ctxs");
        // SAFETY: within the array, and no operation runs.
        let contexts = unsafe { std::slice::from_raw_parts(contexts, used as usize) };
        let mut sums: Vec<i64> = (0..used)
            .map(|index| tasks.get(&index).copied().unwrap_or(0))
            .collect();
        for ctx in contexts.iter().skip(1) {
            if ctx.parent != 0 {
                sums[ctx.parent as usize] += ctx.told as i64;
            }
        }
        for (index, ctx) in contexts.iter().enumerate().skip(1) {
            if ctx.runnable != sums[index] {
                return Err(format!(
                    "cgroup {index} counts {} runnable; its tasks and children are {}",
                    ctx.runnable, sums[index]
                ));
            }
        }
        Ok(())
    }

    /// One is due after `sample_ns`, and sent at the next tick; or when the task gets a slot.
    fn longest_sample(&self) -> u64 {
        if self.machine.slots < intf::hetero_consts_MAX_SLOTS {
            return u64::MAX;
        }
        let tick = 1_000_000_000 / u64::from(self.machine.hz);
        let most = self.machine.sample_ns + 2 * tick + 5 * MS;
        // No tick tells of the end while the BPF half is bypassed.
        let (from, to) = self.look().bypassed;
        let bypassed = to.saturating_add(most) >= self.now();
        most + if bypassed {
            to.min(self.now()) - from
        } else {
            0
        }
    }

    /// A sample holds what its task has counted, and nothing else.
    pub(super) fn check_sample(&self, sample: &intf::task_sample) -> Result<(), String> {
        let (total, most) = (sample.run_ns + sample.discarded_ns, self.longest_sample());
        if total > most {
            return Err(format!(
                "a sample of task {} is of {total} ns, and one is due each {} ns",
                sample.tid, self.machine.sample_ns
            ));
        }
        let rates = {
            let state = self.look();
            // The last one of this id: others may have had it before.
            // SAFETY: as in task_struct().
            let is_it = |entity: &&Entity| unsafe { (*entity.raw.get()).pid } as u32 == sample.tid;
            let entity = state.tasks.iter().rfind(is_it);
            entity.ok_or("a sample of no task")?.rates[usize::from(sample.core_type)]
        };
        let set = &self.machine.set_events[usize::from(sample.core_type)];
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
