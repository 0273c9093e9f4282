// SPDX-License-Identifier: GPL-2.0-or-later
//! What runs beside what, averaged over about a second.

use super::TypeRoom;
use crate::table::{Task, TaskState};
use crate::topology::{MAX_CORE_TYPES, Topology};

/// Looks over which is averaged.
const AVERAGED: f64 = 6.0;

/// Looks closer than this say nothing of what ran between them, ns.
const LEAST_NS: u64 = 10_000_000;

/// The weight of nice 0: a task that weighs less takes less from others, and no task takes more than a CPU.
const WEIGHT: f64 = 1024.0;

/// What is known of a slot's task.
#[derive(Clone, Copy, Debug, Default)]
struct SlotUse {
    /// Of the task; 0 is none.
    generation: u32,
    look: u32,
    looks: u32,
    ran_ns: [u64; MAX_CORE_TYPES],
    /// Part of the time that it ran on each core type.
    share: [f64; MAX_CORE_TYPES],
    /// Part of the looks at which it ran or was runnable, by weight.
    wants: f64,
}

/// What some tasks use together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuUse {
    /// CPUs of each core type that they run on, on average.
    pub share: [f64; MAX_CORE_TYPES],
    /// CPUs that they would run on if they could.
    pub wants: f64,
}

impl CpuUse {
    /// What is left without that of others.
    pub fn without(&self, others: &Self) -> Self {
        let mut left = *self;
        for (left, theirs) in left.share.iter_mut().zip(others.share) {
            *left = (*left - theirs).max(0.0);
        }
        left.wants = (left.wants - others.wants).max(0.0);
        left
    }

    /// Adds that of others.
    pub fn add(&mut self, others: &Self) {
        for (sum, theirs) in self.share.iter_mut().zip(others.share) {
            *sum += theirs;
        }
        self.wants += others.wants;
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct AdviceWatch {
    slots: Vec<SlotUse>,
    /// All tasks' together.
    all: CpuUse,
    /// By CPU, the part of the time that tasks ran there.
    cpus: Vec<f64>,
    looked_ns: Option<u64>,
    look: u32,
}

impl AdviceWatch {
    /// Takes note of the task table. False if that is too early.
    ///
    /// `own` is the process that looks: it runs at each look, and wants no more than it runs.
    pub fn look(
        &mut self,
        now_ns: u64,
        tasks: &[Task],
        topology: &Topology,
        own: Option<u32>,
    ) -> bool {
        let since = self.looked_ns.map(|before| now_ns.saturating_sub(before));
        if since.is_some_and(|passed| passed < LEAST_NS) {
            return false;
        }
        self.looked_ns = Some(now_ns);
        self.look = self.look.wrapping_add(1);
        self.all = CpuUse::default();
        self.cpus.clear();
        self.cpus.resize(topology.nr_cpu_ids as usize, 0.0);
        for task in tasks {
            self.take(task, since, own == Some(task.tgid));
        }
        true
    }

    fn take(&mut self, task: &Task, since: Option<u64>, looks: bool) {
        let at = task.id.slot as usize;
        if self.slots.len() <= at {
            self.slots.resize(at + 1, SlotUse::default());
        }
        let slot = &mut self.slots[at];
        let fresh = slot.generation != task.id.generation;
        if fresh {
            *slot = SlotUse {
                generation: task.id.generation,
                ran_ns: task.run_ns,
                ..SlotUse::default()
            };
        }
        slot.look = self.look;
        slot.looks = slot.looks.saturating_add(1);
        let awake = task.state != TaskState::Blocked && !task.spinning && !looks;
        let weight = (f64::from(task.weight) / WEIGHT).min(1.0);
        let part = 1.0 / f64::from(slot.looks).min(AVERAGED);
        slot.wants += (f64::from(u8::from(awake)) * weight - slot.wants) * part;
        if let (Some(passed), false) = (since, fresh) {
            // The first look at a task has no time before it.
            let part = 1.0 / f64::from(slot.looks - 1).min(AVERAGED);
            for ((share, ran), before) in slot.share.iter_mut().zip(task.run_ns).zip(slot.ran_ns) {
                let ran = ran.saturating_sub(before) as f64 / passed.max(1) as f64;
                *share += (ran.min(1.0) - *share) * part;
            }
        }
        slot.ran_ns = task.run_ns;
        let used = slot.cpu_use();
        self.all.add(&used);
        if let Some(cpu) = usize::try_from(task.cpu)
            .ok()
            .and_then(|cpu| self.cpus.get_mut(cpu))
        {
            *cpu += used.share.iter().sum::<f64>();
        }
    }

    /// What all tasks use.
    pub fn all(&self) -> &CpuUse {
        &self.all
    }

    /// What a task uses, as of the last look.
    pub fn of(&self, task: &Task) -> CpuUse {
        let slot = self.slots.get(task.id.slot as usize);
        let slot =
            slot.filter(|slot| slot.generation == task.id.generation && slot.look == self.look);
        slot.map_or_else(CpuUse::default, SlotUse::cpu_use)
    }

    /// By CPU, the part of the time that all tasks but `team` ran there.
    pub fn taken<'a>(&self, team: impl Iterator<Item = &'a Task>) -> Vec<f64> {
        let mut taken = self.cpus.clone();
        for task in team {
            let cpu = usize::try_from(task.cpu).ok();
            if let Some(cpu) = cpu.and_then(|cpu| taken.get_mut(cpu)) {
                let own = self.of(task).share.iter().sum::<f64>();
                *cpu = (*cpu - own).max(0.0);
            }
        }
        taken
    }
}

impl SlotUse {
    fn cpu_use(&self) -> CpuUse {
        CpuUse {
            share: self.share,
            wants: self.wants,
        }
    }
}

/// What there is of each core type for a team beside company.
///
/// Company that waits for CPUs would run as it does where it gets one. `allowed` has a bit for each core type.
pub fn rooms(
    topology: &Topology,
    company: &CpuUse,
    speeds: &[f64; MAX_CORE_TYPES],
    allowed: u8,
) -> Vec<TypeRoom> {
    let cpus = |core_type: usize| topology.types[core_type].cpus.len() as f64;
    let types = topology.types.len().min(MAX_CORE_TYPES);
    let runs: f64 = company.share.iter().sum();
    let wants = company.wants.max(runs);
    let mut taken = company.share;
    // What has no CPU yet takes what is left of those where it runs now, then any.
    let mut rest = (wants - runs).max(0.0);
    for by_use in [true, false] {
        let mut shared = rest;
        for (core_type, taken) in taken.iter_mut().enumerate().take(types) {
            let part = match by_use {
                true if runs > 0.0 => rest * company.share[core_type] / runs,
                true => 0.0,
                false => shared,
            };
            let more = part.min((cpus(core_type) - *taken).max(0.0));
            *taken += more;
            shared -= more;
        }
        rest = shared.max(0.0);
    }
    let room = |core_type: usize| TypeRoom {
        cpus: match allowed & (1 << core_type) {
            0 => 0.0,
            _ => cpus(core_type),
        },
        taken: taken[core_type].min(cpus(core_type)),
        speed: speeds[core_type],
    };
    (0..types).map(room).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{MS, board, task};

    const SPEEDS: [f64; MAX_CORE_TYPES] = [1.0, 0.5, 1.0, 1.0];

    /// Two that run on big cores, and one that waits.
    fn watched() -> (AdviceWatch, Vec<Task>, Topology) {
        let topology = board(2, 2);
        let mut watch = AdviceWatch::default();
        let mut tasks = vec![task(0, 0, 0), task(1, 1, 0), task(2, 1, 0)];
        for look in 0..40 {
            for task in &mut tasks[..2] {
                task.state = TaskState::Running;
                task.run_ns[0] += 100 * MS;
            }
            tasks[2].state = TaskState::Queued;
            assert!(watch.look(look * 100 * MS, &tasks, &topology, None));
        }
        (watch, tasks, topology)
    }

    #[test]
    fn what_runs_and_what_waits_is_company() {
        let (watch, tasks, topology) = watched();
        let all = *watch.all();
        assert!((all.share[0] - 2.0).abs() < 0.01, "{all:?}");
        assert!((all.wants - 3.0).abs() < 0.01, "{all:?}");
        let company = all.without(&watch.of(&tasks[0]));
        let rooms = rooms(&topology, &company, &SPEEDS, 3);
        // One runs on a big core, and the one that waits would, too.
        assert!((rooms[0].taken - 2.0).abs() < 0.01, "{rooms:?}");
        assert!(rooms[1].free() > 1.99, "{rooms:?}");
    }

    #[test]
    fn more_company_than_cpus_takes_all_and_no_more() {
        let topology = board(2, 2);
        let company = CpuUse {
            share: [2.0, 1.0, 0.0, 0.0],
            wants: 77.0,
        };
        for room in rooms(&topology, &company, &SPEEDS, 3) {
            assert_eq!((room.free(), room.taken), (0.0, 2.0));
        }
        // What waits and has never run, too.
        let company = CpuUse {
            share: [0.0; 4],
            wants: 3.0,
        };
        let rooms = rooms(&topology, &company, &SPEEDS, 1);
        assert_eq!((rooms[0].free(), rooms[1].cpus), (0.0, 0.0));
        assert_eq!(rooms[1].taken, 1.0);
    }

    #[test]
    fn a_slot_with_another_task_begins_anew_and_too_early_looks_are_none() {
        let (mut watch, mut tasks, topology) = watched();
        assert!(!watch.look(3901 * MS, &tasks, &topology, None));
        tasks[0].id.generation += 1;
        tasks.truncate(1);
        assert!(watch.look(4000 * MS, &tasks, &topology, None));
        assert_eq!(watch.of(&tasks[0]).share, [0.0; 4]);
        assert_eq!(watch.of(&task(1, 1, 0)), CpuUse::default());
        let taken = watch.taken(tasks.iter());
        assert!(taken.iter().all(|&of| of == 0.0), "{taken:?}");
    }

    #[test]
    fn a_task_of_little_weight_is_little_company() {
        let topology = board(1, 1);
        let mut watch = AdviceWatch::default();
        let mut nice = task(0, 0, 0);
        nice.state = TaskState::Running;
        nice.weight = 15;
        watch.look(100 * MS, &[nice], &topology, None);
        assert!(watch.all().wants < 0.02);
    }

    #[test]
    fn what_looks_is_no_company_for_being_there() {
        let topology = board(1, 1);
        let mut watch = AdviceWatch::default();
        let agent = task(0, 0, 0);
        watch.look(100 * MS, &[agent], &topology, Some(agent.tgid));
        assert_eq!(*watch.all(), CpuUse::default());
    }
}
