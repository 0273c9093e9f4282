// SPDX-License-Identifier: GPL-2.0-or-later
//! While energy is saved, threads go where their work costs least, as long as there is room for all.
//!
//! Where it is known what places cost ([`thrift`]), each thread that computes all the time is placed by its own speeds
//! and watts: measured, by EF where a model says it, else as usual for the core types. What mostly sleeps, and
//! what is new, fills the core type first that is cheapest for such a load. Threads of which speeds on a type are not
//! known visit it for a moment, one at a time ([`visits`]). A thread with a goal, or with so much to do and no more ([`pace`](super::pace)), goes where
//! that is done for least, and fast enough; until that is known it is told nothing, and the BPF half has it begin each frame on the
//! core type that is filled first, and end those that take long on a fast one.
//!
//! The same, with another aim, where the package is at its limit though no energy is to be saved.
//!
//! Without sensors the slowest cores are filled first, and the policy has its say only when the fastest core
//! type is needed. With or without: where more threads want to run than there is room for, the policy decides.

mod placed;
mod visits;

use std::time::Duration;

use super::Author;
use super::goals::AgentGoals;
use super::pace::Paces;
use crate::energy::ledger::EnergyLedger;
use crate::energy::thrift::{self, GivenWork, PlaceAim, PlaceCosts, PlacedThread};
use crate::placement;
use crate::pmu::sample::Sample;
use crate::policy::tools::progress::Progress;
use crate::policy::tools::speedup::Speedups;
use crate::policy::{Action, Snapshot};
use crate::table::{Task, TaskId, TaskState};
use crate::topology::{MAX_CORE_TYPES, Topology};
use placed::{Placed, find};
use visits::stale_ns;

/// How often threads are placed at most.
pub const SAVING_LOOK: Duration = Duration::from_millis(200);

/// How often it is asked anew what places cost: it takes some 100 µs, ns.
const COSTS_NS: u64 = 1_000_000_000;

/// So long after threads were too many the policy goes on deciding, ns: places are not to change with each of them.
const CROWD_NS: u64 = 1_000_000_000;

/// How much of the last look counts in how long some CPU runs.
const AWAKE_STEP: f64 = 0.2;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct EnergySaving {
    speedups: Speedups,
    progress: Progress,
    paces: Paces,
    costs: Option<PlaceCosts>,
    costs_ns: u64,
    looked_ns: Option<u64>,
    crowded_ns: Option<u64>,
    /// Part of the time in which some CPU runs.
    awake: f64,
    /// What work is worth, J for what a fastest core does in a second.
    price: f64,
    /// What threads that were there together ran for on each core type, at the most, ns.
    ran_on: [u64; MAX_CORE_TYPES],
    /// The core type to fill first.
    first: Option<usize>,
    /// In the order of ids.
    placed: Vec<Placed>,
    /// Kept for their memory.
    threads: Vec<PlacedThread>,
    ids: Vec<TaskId>,
    needs: Vec<Option<GivenWork>>,
    order: Vec<usize>,
    next: Vec<Placed>,
    told: Vec<Action>,
}

/// What decides now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decider {
    /// The policy.
    Policy,
    /// Nothing is left to decide; actions, if any, are to be carried out in this name.
    Saving(Author),
}

impl EnergySaving {
    /// Takes note of what a thread did.
    pub(super) fn observe(&mut self, sample: &Sample) {
        self.speedups.observe(sample);
        self.paces.observe(sample);
    }

    /// The core type to fill first, where that is known.
    pub(super) fn first(&self) -> Option<usize> {
        self.first
    }

    /// Whether threads are placed here, by what they cost.
    pub(super) fn places(&self) -> bool {
        self.costs.is_some() && self.looked_ns.is_some() && !self.is_crowded()
    }

    /// Whether threads are more than can be placed, so that the policy decides.
    pub(super) fn is_crowded(&self) -> bool {
        self.crowded_ns.is_some()
    }

    /// Takes back where threads were placed, and forgets what was learnt; whether there was anything.
    pub(super) fn end(&mut self, tasks: &[Task], actions: &mut Vec<Action>) -> bool {
        if self.looked_ns.is_none() {
            return false;
        }
        self.release(tasks, actions);
        *self = Self::default();
        !actions.is_empty()
    }

    /// What decides, and what is to be done if that is not the policy.
    pub(super) fn decide(
        &mut self,
        snapshot: &Snapshot,
        aim: PlaceAim,
        energy: &EnergyLedger,
        goals: &AgentGoals,
        actions: &mut Vec<Action>,
    ) -> Decider {
        let nr_types = snapshot.topology.types.len();
        let now = snapshot.now_ns;
        let is_due = |at: Option<u64>, every| at.is_none_or(|at| now.saturating_sub(at) >= every);
        if self.costs.is_none() || is_due(Some(self.costs_ns), COSTS_NS) {
            let known = energy.is_on() && nr_types > 1;
            let costs = known.then(|| energy.place_costs(nr_types)).flatten();
            // What was known once stands while a sensor says nothing.
            self.costs = costs.or(self.costs.filter(|_| known));
            self.costs_ns = now;
        }
        let Some(costs) = self.costs else {
            self.first = None;
            // Threads that ended are to be forgotten all the same.
            self.speedups.rest(snapshot);
            if aim == PlaceAim::AtLimit {
                return Decider::Policy;
            }
            return match leave_to_efficient(snapshot.tasks, snapshot.topology, actions) {
                true => Decider::Saving(Author::Policy),
                false => Decider::Policy,
            };
        };
        self.paces.notice(snapshot);
        if !is_due(self.looked_ns, SAVING_LOOK.as_nanos() as u64) {
            return match self.crowded_ns {
                Some(_) => Decider::Policy,
                None => Decider::Saving(Author::Saving),
            };
        }
        let begins = self.looked_ns.is_none();
        self.look(snapshot);
        self.first = Some(self.cheapest(snapshot.topology, &costs));
        if self.crowded_ns.is_some_and(|at| now - at < CROWD_NS) {
            self.next.clear();
            if aim == PlaceAim::Energy {
                self.keep_paces(snapshot, goals);
            }
            self.tell(snapshot, actions);
            return match actions.is_empty() {
                true => Decider::Policy,
                false => Decider::Saving(Author::Saving),
            };
        }
        if self.crowded_ns.take().is_some() || begins {
            take_back(snapshot.tasks, actions);
        }
        self.place(snapshot, aim, energy, goals, &costs);
        self.visit(snapshot, goals, costs.unseen | self.hardly_seen(nr_types));
        if aim == PlaceAim::Energy {
            self.loosen(snapshot, goals);
        }
        self.tell(snapshot, actions);
        Decider::Saving(Author::Saving)
    }

    fn look(&mut self, snapshot: &Snapshot) {
        self.told.clear();
        // Progress is charged by what the policy says.
        self.speedups.look(snapshot, &mut self.told);
        self.progress.update(snapshot, |_| u64::MAX);
        if !self.fits(snapshot) {
            self.crowded_ns = Some(snapshot.now_ns);
        }
        self.paces.look(snapshot, self.is_crowded());
        let is_first = self.looked_ns.replace(snapshot.now_ns).is_none();
        for (on, most) in self.ran_on.iter_mut().enumerate() {
            let ran = snapshot.tasks.iter().map(|task| task.run_ns[on]).sum();
            *most = (*most).max(ran);
        }
        if !is_first {
            let usage = snapshot.tasks.iter();
            let usage: f64 = usage.map(|task| self.progress.usage(task.id)).sum();
            self.awake += AWAKE_STEP * (usage.min(1.0) - self.awake);
        }
    }

    /// The core type for what mostly sleeps, or is new.
    fn cheapest(&self, topology: &Topology, costs: &PlaceCosts) -> usize {
        let mut speeds = [1.0; MAX_CORE_TYPES];
        for (speed, kind) in speeds.iter_mut().zip(&topology.types) {
            *speed = f64::from(kind.capacity.clamp(1, 1024)) / 1024.0;
        }
        costs.cheapest(topology.types.len(), &speeds, self.awake, self.first)
    }

    /// Whether there are cores for all that busy threads want, be they asleep just now: looks may fall into the same
    /// part of each frame for many seconds.
    fn fits(&self, snapshot: &Snapshot) -> bool {
        let types = 0..snapshot.topology.types.len();
        let cores: usize = types.map(|of| snapshot.topology.cores_of(of)).sum();
        let wants = |task: &Task| match self.progress.is_wanting(task) {
            false => 0.0,
            true if self.paces.is_found_asleep(task.id) => self.progress.usage(task.id),
            true => 1.0,
        };
        snapshot.tasks.iter().map(wants).sum::<f64>() <= cores as f64
    }

    /// Where each busy thread is best: `next`.
    fn place(
        &mut self,
        snapshot: &Snapshot,
        aim: PlaceAim,
        energy: &EnergyLedger,
        goals: &AgentGoals,
        costs: &PlaceCosts,
    ) {
        let topology = snapshot.topology;
        let nr_types = topology.types.len();
        let mut rooms = [0_usize; MAX_CORE_TYPES];
        for (core_type, room) in rooms.iter_mut().enumerate().take(nr_types) {
            *room = topology.cores_of(core_type);
        }
        self.threads.clear();
        self.ids.clear();
        self.needs.clear();
        for task in snapshot.tasks {
            let on = task.core_type.min(nr_types - 1);
            let is_new = !task.kthread && task.may_choose() && self.paces.is_busy(task.id);
            if is_new || self.progress.wants_much(task) {
                let before = find(&self.placed, task.id);
                let now = before.map_or(on, |placed| placed.home);
                let thread = self.thread(task, now.min(nr_types - 1), topology, energy, costs);
                let paced = || {
                    let stale = stale_ns(topology);
                    self.paces
                        .wants(task.id, &thread.speeds, snapshot.now_ns, stale)
                };
                let goal = goals.needs(task.id).map(|needs| GivenWork {
                    needs,
                    ..GivenWork::default()
                });
                let needs = goal.or_else(paced);
                // Asleep, what computes all the time has no place to keep.
                if needs.is_some() || task.state != TaskState::Blocked {
                    self.threads.push(thread);
                    self.ids.push(task.id);
                    self.needs.push(needs);
                }
            } else if self.progress.is_busy(task) {
                let room = &mut rooms[task.core_type.min(nr_types - 1)];
                *room = room.saturating_sub(1);
            }
        }
        self.meet_needs(snapshot, costs.awake);
        self.price = thrift::place(
            &mut self.threads,
            &rooms[..nr_types],
            costs.awake,
            aim,
            &mut self.order,
        );
        self.next.clear();
        for (&id, thread) in self.ids.iter().zip(&self.threads) {
            self.next.push(Placed {
                id,
                to: thread.best,
                home: thread.best,
                visits: None,
                is_loose: false,
            });
        }
    }

    /// Of threads with goals, and of those with so much to do and no more, what that takes of each core type.
    fn meet_needs(&mut self, snapshot: &Snapshot, awake_watts: f64) {
        let nr_types = snapshot.topology.types.len();
        // The part of the time in which others sleep, as if they were independent.
        let mut sleep = 1.0;
        for task in snapshot.tasks.iter().filter(|task| !task.kthread) {
            let known = self.ids.binary_search(&task.id).ok();
            sleep *= match known.map(|at| (self.needs[at], &self.threads[at])) {
                Some((Some(work), thread)) => 1.0 - part_of_time(work.needs, thread),
                _ => 1.0 - self.progress.usage(task.id),
            };
        }
        for (thread, work) in self.threads.iter_mut().zip(&self.needs) {
            let Some(work) = work else {
                continue;
            };
            let beside = sleep / (1.0 - part_of_time(work.needs, thread)).max(1e-3);
            let own = awake_watts * beside.clamp(0.0, 1.0);
            *thread = thread.with_given(*work, own, nr_types);
        }
    }

    /// What is known of a thread.
    fn thread(
        &self,
        task: &Task,
        now: usize,
        topology: &Topology,
        energy: &EnergyLedger,
        costs: &PlaceCosts,
    ) -> PlacedThread {
        let nr_types = topology.types.len();
        let slowest = nr_types - 1;
        let speeds = self.speedups.speeds(task.id, topology);
        let ratio = self.speedups.learnt().energy_ratio(task.id);
        let usual = |on: usize| costs.sure_watts(on, slowest);
        // Of the fastest core type's watts, what another takes: by EF, or as usual there.
        let of_fast = |on: usize| match ratio {
            Some(ratio) if on == slowest => ratio * speeds[on],
            _ => usual(on) / usual(0).max(1e-6),
        };
        let mut measured = [None; MAX_CORE_TYPES];
        let (mut sum, mut known) = (0.0, 0_u32);
        for (on, watts) in measured.iter_mut().enumerate().take(nr_types) {
            let least = 0.1 * usual(on);
            let beyond_idle = |watts: f64| (watts - energy.idle_watts(on)).max(least);
            // As of core types, the faster one has to be sure.
            let own = match on < slowest {
                true => energy.sure_watts(task.id, on),
                false => energy.watts(task.id, on),
            };
            *watts = own.map(beyond_idle);
            if let Some(watts) = watts {
                (sum, known) = (sum + *watts / of_fast(on).max(1e-6), known + 1);
            }
        }
        let fast = match known {
            0 => usual(0),
            known => sum / f64::from(known),
        };
        PlacedThread {
            speeds,
            watts: std::array::from_fn(|on| match on < nr_types {
                true => measured[on].unwrap_or_else(|| fast * of_fast(on)),
                false => 0.0,
            }),
            is_given: false,
            allowed: task.allowed_types,
            now,
            best: now,
            kept: now,
        }
    }
}

/// For which part of the time a thread runs that is to be so fast.
fn part_of_time(needs: f64, thread: &PlacedThread) -> f64 {
    (needs / thread.speeds[thread.now].max(1e-3)).clamp(0.0, 1.0)
}

/// Takes back what the policy wished for, while all that want to run fit on the efficient cores;
/// whether they do.
fn leave_to_efficient(tasks: &[Task], topology: &Topology, actions: &mut Vec<Action>) -> bool {
    let room = placement::efficient_room(topology);
    let wants = |task: &&Task| task.state != TaskState::Blocked && !task.kthread;
    if tasks.iter().filter(wants).count() > room {
        return false;
    }
    take_back(tasks, actions);
    true
}

/// Takes back what was wished for.
fn take_back(tasks: &[Task], actions: &mut Vec<Action>) {
    // The rules' threads are shown as pinned.
    let wished = tasks
        .iter()
        .filter(|task| task.hint.is_some() && !task.pinned);
    actions.extend(wished.map(|task| Action::Hint(task.into(), None)));
}

#[cfg(test)]
mod tests;
