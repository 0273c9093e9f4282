// SPDX-License-Identifier: GPL-2.0-only
//! What others do to tasks and CPUs.

use super::super::cpu::Runs;
use super::super::ffi;
use super::{Chaos, Event, MS, US, World};
use crate::topology::CpuMask;

impl World {
    pub(super) fn any_mask(&mut self) -> CpuMask {
        let nr = self.kernel.machine.nr_cpus();
        let mask = match self.dice.below(6) {
            0 => CpuMask::from_iter([self.any_cpu()]),
            1 => CpuMask::from_iter((0..nr).filter(|_| self.dice.one_in(2))),
            2 => {
                let core_type = self.dice.below(4) as usize;
                let types = &self.kernel.machine.topology.types;
                CpuMask::from_iter(
                    types
                        .get(core_type)
                        .map_or(Vec::new(), |kind| kind.cpus.clone()),
                )
            }
            _ => CpuMask::first(nr),
        };
        let mut online = mask;
        online.intersect(&self.kernel.look().online);
        if online.is_empty() {
            CpuMask::first(nr)
        } else {
            mask
        }
    }

    /// What others do to tasks and CPUs.
    pub(super) fn change(&mut self) {
        let again = self.dice.below(10 * MS);
        self.post(again, Event::Change);
        let from = self.any_cpu();
        if self.has(Chaos::Races) {
            self.kernel.st().racer = Some(self.fate.below(1 << 32));
        }
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
                    let last = if reason == 2 { MS } else { 40 * MS };
                    let after = self.dice.of(&[20 * US, MS, last]);
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
}
