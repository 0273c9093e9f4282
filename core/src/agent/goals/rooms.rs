// SPDX-License-Identifier: GPL-2.0-or-later
//! Which CPUs sessions are confined to, all threads of each together: by `taskset`, a cpuset, `AllowedCPUs=`, or because others
//! have the rest to themselves.

use std::time::Duration;

use super::{AgentGoals, OTHERS};
use crate::agent::backend::Backend;
use crate::goals::room::{GoalRoom, MAX_ROOMS};
use crate::goals::together::FastRoom;
use crate::table::Task;
use crate::topology::{CpuMask, MAX_CORE_TYPES, Topology};

/// So often threads are asked for the CPUs that they may use: no news of that comes.
const CPUS_AGE: Duration = Duration::from_secs(1);

/// What is known of a session's CPUs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SessionCpus {
    /// Those that any of its threads may use; none where that is not known yet.
    pub(super) cpus: CpuMask,
    /// How fast its threads are at most, by core type.
    pub(super) speeds: [f64; MAX_CORE_TYPES],
}

impl SessionCpus {
    /// One of its threads may use these.
    pub(super) fn add(&mut self, cpus: &CpuMask, speeds: &[f64; MAX_CORE_TYPES]) {
        self.cpus.add(cpus);
        for (most, speed) in self.speeds.iter_mut().zip(speeds) {
            *most = most.max(*speed);
        }
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionRooms {
    /// From the smallest on.
    masks: Vec<CpuMask>,
    rooms: Vec<GoalRoom>,
    fastest: Vec<usize>,
    /// When threads were asked for their CPUs last, ns.
    pub(super) read_ns: u64,
}

impl SessionRooms {
    pub(super) fn rooms(&self) -> &[GoalRoom] {
        &self.rooms
    }

    /// Finds the rooms of all sessions.
    pub(super) fn set<'a>(
        &mut self,
        topology: &Topology,
        sessions: impl Iterator<Item = &'a SessionCpus> + Clone,
    ) {
        let all: CpuMask = topology.cpus.iter().map(|cpu| cpu.id).collect();
        self.masks.clear();
        for SessionCpus { cpus, .. } in sessions.clone() {
            let is_room = !cpus.is_empty() && !cpus.holds(&all) && !self.masks.contains(cpus);
            if is_room && self.masks.len() < MAX_ROOMS {
                self.masks.push(*cpus);
            }
        }
        self.masks.sort_by_key(CpuMask::len);
        self.rooms.clear();
        self.fastest.clear();
        for mask in &self.masks {
            let held = self.masks.iter().enumerate();
            let held = held.filter(|(_, other)| mask.holds(other));
            let mut room = GoalRoom {
                fast_cores: 0.0,
                holds: held.fold(0, |holds, (at, _)| holds | 1 << at),
            };
            let inside = sessions.clone().filter(|it| mask.holds(&it.cpus));
            for (of, kind) in topology.types.iter().enumerate().take(MAX_CORE_TYPES) {
                let cpus = kind.cpus.iter().filter(|&&cpu| mask.contains(cpu)).count();
                // What is allotted beyond what there is does no harm, but a thread that is held there finds no other CPU.
                let speeds = inside.clone().map(|it| it.speeds[of]);
                let speed = speeds.fold(f64::from(kind.capacity) / 1024.0, f64::max);
                room.fast_cores += cpus as f64 * speed;
                if of == 0 {
                    self.fastest.push(cpus);
                }
            }
            self.rooms.push(room);
        }
    }

    /// The room of what may use these CPUs.
    pub(super) fn of(&self, cpus: &CpuMask) -> Option<u8> {
        let at = self.masks.iter().position(|mask| mask == cpus)?;
        u8::try_from(at).ok()
    }

    /// Whether the fastest CPUs of a room have so many fast cores. Where they do not, threads that all waited for these would leave
    /// the room's slower ones to others.
    pub(super) fn fast_ones_do(&self, room: Option<u8>, fast_cores: f64) -> bool {
        let there = room.and_then(|room| self.fastest.get(usize::from(room)));
        there.is_none_or(|&cpus| fast_cores <= cpus as f64)
    }

    /// The fastest CPUs, of which the machine has so many.
    pub(super) fn fast_rooms(&self, fastest: usize) -> FastRooms<'_> {
        let of = |cpus: usize| FastRoom::new((1.0 - OTHERS) * cpus as f64);
        let mut left = [of(0); MAX_ROOMS];
        for (left, &cpus) in left.iter_mut().zip(&self.fastest) {
            *left = of(cpus);
        }
        FastRooms {
            rooms: &self.rooms,
            fastest: &self.fastest,
            left,
            all: of(fastest),
        }
    }
}

impl AgentGoals {
    /// Finds out where sessions are confined: all of them once a second, and those of which that is not known yet. `speeds` are
    /// those on each core type, relative to the fastest.
    pub(in crate::agent) fn confine<B: Backend>(
        &mut self,
        backend: &mut B,
        topology: &Topology,
        tasks: &[Task],
        speeds: impl Fn(&Task) -> [f64; MAX_CORE_TYPES],
    ) {
        let now_ns = backend.now();
        let all = now_ns.saturating_sub(self.rooms.read_ns) >= CPUS_AGE.as_nanos() as u64;
        if all {
            self.rooms.read_ns = now_ns;
        }
        for placed in &mut self.placed {
            placed.asks_cpus = all || placed.cpus.cpus.is_empty();
            if placed.asks_cpus {
                placed.cpus = SessionCpus::default();
            }
        }
        let mut asked = false;
        for task in tasks {
            let Some(member) = self.members.get(&task.id) else {
                continue;
            };
            let found = self
                .placed
                .binary_search_by_key(&member.session, |it| it.id);
            let Some(placed) = found.ok().map(|index| &mut self.placed[index]) else {
                continue;
            };
            if placed.asks_cpus
                && let Some(cpus) = backend.cpus_of(task)
            {
                placed.cpus.add(&cpus, &speeds(task));
                asked = true;
            }
        }
        if asked {
            let sessions = self.placed.iter().map(|it| &it.cpus);
            self.rooms.set(topology, sessions);
            for placed in &mut self.placed {
                placed.room = self.rooms.of(&placed.cpus.cpus);
            }
        }
    }
}

/// What is left of the fastest CPUs, in each room and in all.
pub(super) struct FastRooms<'a> {
    rooms: &'a [GoalRoom],
    fastest: &'a [usize],
    left: [FastRoom; MAX_ROOMS],
    all: FastRoom,
}

impl FastRooms<'_> {
    /// Whether there is room for a session that is confined to `room`; see [`FastRoom::take`].
    pub(super) fn fits(&self, room: Option<u8>, fast_cores: f64, is_there: bool) -> bool {
        let those = self.rooms.iter().zip(&self.left);
        let those = those.filter(|(it, _)| it.has(room)).map(|(_, left)| left);
        let mut those = those.chain([&self.all]);
        those.all(|left| left.fits(fast_cores, is_there))
    }

    /// So much of it is taken; by what is confined, no more than it has there.
    pub(super) fn fill(&mut self, room: Option<u8>, fast_cores: f64) {
        let there = room.and_then(|room| self.fastest.get(usize::from(room)));
        let fast_cores = there.map_or(fast_cores, |&cpus| fast_cores.min(cpus as f64));
        let those = self.rooms.iter().zip(&mut self.left);
        let those = those.filter(|(it, _)| it.has(room)).map(|(_, left)| left);
        let those = those.chain([&mut self.all]);
        those.for_each(|left| left.fill(fast_cores));
    }
}
