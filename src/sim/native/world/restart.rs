// SPDX-License-Identifier: GPL-2.0-only
//! The machine suspends; a CPU goes or comes, for which the kernel ends the scheduler and the agent starts
//! it anew; the agent is killed, and started again later. See `attach.rs` for what the kernel calls.

use std::collections::BTreeMap;

use super::super::cpu::Runs;
use super::super::ffi;
use super::super::task::{NewTask, TaskIndex};
use super::life::Life;
use super::machine::without_cpus;
use super::{Chaos, Event, MS, US, World};
use crate::carried::Carried;
use crate::topology::CpuMask;

/// What is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Upheaval {
    /// `scx_bypass()` for a while, and nothing else: s2idle.
    Suspend,
    /// The scheduler is ended and started anew; what is known of tasks is carried over, or not, as where
    /// the agent was killed.
    Restart { carries: bool },
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RestartStage {
    Calm,
    /// The kernel is about to bypass the BPF half.
    Begun(Upheaval),
    Bypassed(Upheaval),
    /// Attached, and bypassed still.
    Attached,
}

impl World {
    /// Some lives have none of it; all others one every so often.
    pub(super) fn plan_upheavals(&mut self) {
        let any = [Chaos::Suspends, Chaos::Hotplug, Chaos::Killed];
        if any.into_iter().any(|chaos| self.has(chaos)) && self.fate.one_in(3) {
            let after = self.fate.around(200 * MS);
            self.post(after, Event::Upheaval);
        }
    }

    /// The next step of it.
    pub(super) fn upheave(&mut self) -> Result<(), String> {
        let from = self.online_cpu();
        let again = match self.stage {
            RestartStage::Calm => self.begin_upheaval(),
            RestartStage::Begun(upheaval) => {
                self.kernel.bypass(true, from);
                self.stage = RestartStage::Bypassed(upheaval);
                self.fate.of(&[0, 100 * US, 5 * MS, 40 * MS])
            }
            RestartStage::Bypassed(Upheaval::Suspend) | RestartStage::Attached => {
                self.kernel.bypass(false, from);
                self.watch.begin_anew(&self.kernel);
                self.stage = RestartStage::Calm;
                self.fate.around(400 * MS)
            }
            RestartStage::Bypassed(Upheaval::Restart { carries }) => {
                self.restart(carries, from)?;
                self.stage = RestartStage::Attached;
                self.fate.of(&[0, 100 * US, 5 * MS])
            }
        };
        self.post(again, Event::Upheaval);
        Ok(())
    }

    fn begin_upheaval(&mut self) -> u64 {
        let wanted = self
            .fate
            .of(&[Chaos::Suspends, Chaos::Hotplug, Chaos::Killed]);
        if !self.has(wanted) {
            return 100 * MS;
        }
        let upheaval = match wanted {
            Chaos::Suspends => Upheaval::Suspend,
            Chaos::Hotplug => {
                if !self.plug() {
                    return 50 * MS;
                }
                Upheaval::Restart { carries: true }
            }
            _ => Upheaval::Restart { carries: false },
        };
        self.kernel.trace(|| format!("{upheaval:?}"));
        self.stage = RestartStage::Begun(upheaval);
        // The kernel ends the scheduler from a thread of its own.
        self.fate.of(&[0, 50 * US, 2 * MS])
    }

    /// A CPU goes offline, or comes back. Not one where a task must stay, or that another class has.
    fn plug(&mut self) -> bool {
        let nr_cpus = self.kernel.machine.nr_cpus();
        let cpu = self.fate.below(nr_cpus.into()) as u32;
        if !self.kernel.is_online(cpu) {
            self.kernel.trace(|| format!("CPU {cpu} comes online"));
            self.kernel.take_online(cpu);
            return true;
        }
        let alive = self.kernel.look().alive.clone();
        let stays = |&task: &TaskIndex| {
            self.kernel.cpu_of(task) == cpu && self.kernel.is_migration_disabled(task)
        };
        let last = self.kernel.look().online.len() == 1;
        if last || self.kernel.runs(cpu) == Runs::Other || alive.iter().any(stays) {
            return false;
        }
        self.kernel.trace(|| format!("CPU {cpu} goes offline"));
        self.kernel.take_offline(cpu);
        true
    }

    fn restart(&mut self, carries: bool, from: u32) -> Result<(), String> {
        let runnable = self.kernel.detach(from);
        let carried = carries.then(|| self.kernel.carry());
        // Those of the BPF half that goes, of tasks whose ids others may have next.
        self.watch.samples(&self.kernel)?;
        self.deferred.clear();
        self.stops.clear();
        if !carries {
            self.late_actions.clear();
        }
        let before = self.slots();
        let runnable = self.live_without(runnable);
        let offline = (0..self.kernel.machine.nr_cpus()).filter(|&cpu| !self.kernel.is_online(cpu));
        let mut machine = self.whole.clone();
        machine.topology = without_cpus(&machine.topology, &offline.collect::<Vec<_>>());
        self.watch.begin_anew(&self.kernel);
        let carried = self.attach(&machine, carried.as_ref(), &runnable, from)?;
        self.check_slots(carried.then_some(&before))
    }

    fn attach(
        &mut self,
        machine: &super::NativeMachine,
        carried: Option<&Carried>,
        runnable: &[TaskIndex],
        from: u32,
    ) -> Result<bool, String> {
        let done = self.kernel.attach(machine, carried, runnable, from);
        done.map_err(|error| format!("it cannot be attached again: {error:#}"))
    }

    /// The slot of each task that has one.
    fn slots(&self) -> BTreeMap<TaskIndex, u32> {
        let alive = self.kernel.look().alive.clone();
        let slots = alive.into_iter().filter_map(|task| {
            let slot = self.kernel.with_task_ctx(task, |ctx| ctx.slot)?;
            self.kernel.slot(task).map(|_| (task, slot))
        });
        slots.collect()
    }

    /// Each task has the slot that it had, if that was carried over; none has that of another.
    fn check_slots(&self, before: Option<&BTreeMap<TaskIndex, u32>>) -> Result<(), String> {
        let mut owners = BTreeMap::new();
        for (task, index) in self.slots() {
            let (raw, slot) = (self.kernel.task_struct(task), self.kernel.slot(task));
            let same = slot.is_some_and(|slot| {
                (slot.tid, slot.start_time) == (raw.pid as u32, raw.start_time)
            });
            if !same {
                return Err(format!(
                    "{task:?} has slot {index}, which is of another task"
                ));
            }
            if let Some(other) = owners.insert(index, task) {
                return Err(format!("{task:?} and {other:?} both have slot {index}"));
            }
        }
        for (task, index) in before.into_iter().flatten() {
            let known = self.kernel.look().tasks[task.index()].known;
            if known && owners.get(index) != Some(task) {
                return Err(format!("{task:?} had slot {index}, and is not known again"));
            }
        }
        Ok(())
    }

    /// What tasks do while the kernel's own scheduler has them, of which no BPF half is told. Returns
    /// those that can run, which each have a CPU that is online.
    fn live_without(&mut self, mut runnable: Vec<TaskIndex>) -> Vec<TaskIndex> {
        let most = self.fate.of(&[0, 3 * MS, 80 * MS, 600 * MS]);
        let passed = self.fate.below(most + 1);
        self.kernel.advance(passed);
        let alive = self.kernel.look().alive.clone();
        for task in alive {
            let raw = self.kernel.raw(task);
            // SAFETY: the model writes it while no operation runs, here and below.
            let exiting = unsafe { (*raw).flags } & ffi::PF_EXITING != 0;
            let stays = self.kernel.is_migration_disabled(task);
            let runs = runnable.contains(&task);
            if exiting || stays {
                continue;
            }
            match self.fate.below(8) {
                0 if runs && self.lives[task.index()].burst_ns > 0 => {
                    runnable.retain(|&other| other != task);
                    unsafe { (*raw).__state = 1 }
                    let after = self.fate.below(30 * MS);
                    self.post(after, Event::Wake(task));
                }
                1 if !runs && self.can_wake(task) => {
                    runnable.push(task);
                    unsafe { (*raw).__state = 0 }
                }
                2 if self.has(Chaos::Exits) && self.lives[task.index()].burst_ns > 0 => {
                    runnable.retain(|&other| other != task);
                    self.kernel.free(task, 0);
                    self.succeed(task, &mut runnable);
                }
                3 => unsafe { (*raw).self_exec_id += 1 },
                4 if self.has(Chaos::Nice) => unsafe {
                    (*raw).static_prio = 100 + self.fate.below(40) as i32;
                },
                5 if self.has(Chaos::Affinity)
                    && unsafe { (*raw).flags } & ffi::PF_KTHREAD == 0 =>
                {
                    let cpus = self.fateful_mask();
                    unsafe {
                        (*raw).native_cpus.bits = cpus.0;
                        (*raw).nr_cpus_allowed = cpus.len() as i32;
                    }
                }
                _ => {}
            }
        }
        for &task in &runnable {
            self.settle_down(task, passed);
        }
        // Which of them runs is left to chance.
        for index in (1..runnable.len()).rev() {
            let other = self.fate.below(index as u64 + 1) as usize;
            runnable.swap(index, other);
        }
        runnable
    }

    /// A new task, which may have the id of one that ended.
    fn succeed(&mut self, ended: TaskIndex, runnable: &mut Vec<TaskIndex>) {
        if !self.has(Chaos::Forks) || self.fate.one_in(3) {
            return;
        }
        let pid = self.kernel.task_struct(ended).pid;
        let mut task = NewTask {
            cpus: Some(self.fateful_mask()),
            ..NewTask::default()
        };
        for rates in &mut task.rates {
            rates[0] = 300 + self.fate.below(3000) as u32;
        }
        self.lives.push(Life::of(3 * MS, 2 * MS));
        let new = self.kernel.create(&task, 0);
        if self.fate.one_in(2) {
            // SAFETY: as above.
            unsafe {
                (*self.kernel.raw(new)).pid = pid;
                (*self.kernel.raw(new)).tgid = pid;
            }
        }
        runnable.push(new);
    }

    /// A task that can run is somewhere, and has run for some of the time.
    fn settle_down(&mut self, task: TaskIndex, passed: u64) {
        let raw = self.kernel.raw(task);
        let ran = self.fate.below(passed + 1);
        let mut cpus = self.kernel.allowed(task);
        cpus.intersect(&self.kernel.look().online);
        // SAFETY: as above.
        unsafe { (*raw).se.sum_exec_runtime += ran }
        let life = &mut self.lives[task.index()];
        if life.burst_ns > 0 {
            life.until_ns = life.until_ns.saturating_add(ran);
        }
        let cpus: Vec<u32> = cpus.cpus().collect();
        let cpu = match cpus.is_empty() {
            true => self.online_cpu(),
            false => self.fate.of(&cpus),
        };
        if !self.kernel.is_migration_disabled(task) {
            unsafe { (*raw).native_cpu = cpu as i32 }
        }
    }

    /// A task whose CPUs are all offline is parked, or not woken up, until one comes back.
    pub(super) fn can_wake(&self, task: TaskIndex) -> bool {
        let online = self.kernel.look().online;
        let mut cpus = online.cpus();
        cpus.any(|cpu| self.kernel.allows(task, cpu))
    }

    /// Some CPUs, at least one of which is online.
    fn fateful_mask(&mut self) -> CpuMask {
        let nr_cpus = self.kernel.machine.nr_cpus();
        let mut mask = CpuMask::from_iter((0..nr_cpus).filter(|_| self.fate.one_in(2)));
        mask.set(self.online_cpu(), true);
        mask
    }

    pub(super) fn online_cpu(&mut self) -> u32 {
        let online: Vec<u32> = self.kernel.look().online.cpus().collect();
        self.fate.of(&online)
    }
}
