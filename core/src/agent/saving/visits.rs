// SPDX-License-Identifier: GPL-2.0-or-later
//! Which threads go, for a moment, where they were not measured for long, and which are told nothing until it is known what
//! suffices for them.

use super::EnergySaving;
use super::placed::Placed;
use crate::agent::goals::AgentGoals;
use crate::policy::Snapshot;
use crate::table::{Task, TaskState};
use crate::topology::{MAX_CORE_TYPES, Topology};

/// How long a thread stays where it is measured, and how old what was measured may be, ns, see
/// `policy/tools/explore.rs`.
const VISIT_NS: u64 = 300_000_000;
const STALE_NS: u64 = 60_000_000_000;

/// A thread visits a type only if it would be better there if that were so many times as fast as is thought: before it was
/// measured there, and after. Watts of a fast core are not to be spent to learn what makes no difference.
const HOPED: f64 = 1.6;
const HOPED_AGAIN: f64 = 1.2;

/// A core type on which nothing has run yet is looked at once, for longer, by a thread that computes for so much of the time:
/// of what it takes there is but a guess.
const UNSEEN_NS: u64 = 600_000_000;
const COMPUTES: f64 = 0.8;

/// What ran there for less than that, as where a frame might have been late, tells little of it.
const HARDLY_NS: u64 = 300_000_000;

impl EnergySaving {
    /// Core types on which hardly anything has run, a bit each.
    pub(super) fn hardly_seen(&self, nr_types: usize) -> u8 {
        let types = self.ran_on.iter().take(nr_types).enumerate();
        types.fold(0, |mask, (on, &ran)| mask | u8::from(ran < HARDLY_NS) << on)
    }

    /// Sends threads to where they were not measured for long, if there is room: one at a time, but for those that sleep in
    /// between, which may be late for something meanwhile.
    pub(super) fn visit(&mut self, snapshot: &Snapshot, goals: &AgentGoals, unseen: u8) {
        let (now, topology) = (snapshot.now_ns, snapshot.topology);
        let nr_types = topology.types.len();
        let goes_on = |placed: &&Placed| placed.visits.is_some_and(|until| now < until);
        let mut is_free = true;
        for visiting in self.placed.iter().filter(goes_on) {
            if let Ok(at) = self.next.binary_search_by_key(&visiting.id, |next| next.id) {
                self.next[at] = *visiting;
                is_free &= self.paces.sleeps(visiting.id);
            }
        }
        let stale = stale_ns(topology);
        let mut there = [0; MAX_CORE_TYPES];
        self.next.iter().for_each(|next| there[next.to] += 1);
        for at in 0..self.next.len() {
            let (next, thread) = (self.next[at], &self.threads[at]);
            let sleeps = self.paces.sleeps(next.id);
            let is_known = self.speedups.age_ns(next.id, next.to).is_some();
            if next.visits.is_some() || !(sleeps || (is_known && is_free)) {
                continue;
            }
            let computes = self.progress.usage(next.id) >= COMPUTES && !thread.is_given;
            // What sleeps may be late for something there, and drop it.
            let is_open = sleeps && goals.needs(next.id).is_none();
            let is_held =
                |on: usize| is_open && on < next.to && !self.paces.is_seen(next.id, on, now, stale);
            let is_new = |on: usize| computes && unseen & 1 << on != 0;
            let hoped = |on: usize| {
                let age = self.speedups.age_ns(next.id, on);
                let times = if age.is_some() { HOPED_AGAIN } else { HOPED };
                match age.is_none_or(|age| age > stale) {
                    true if is_new(on) => Some(f64::INFINITY),
                    true => Some(thread.hoped_gain(self.price, on, times)),
                    false => None,
                }
            };
            let has_room = |on: usize| there[on] < topology.types[on].cpus.len();
            let wanted = (0..nr_types).find_map(|on| {
                if on == next.to || thread.allowed & 1 << on == 0 {
                    return None;
                }
                let hoped = match is_held(on) {
                    true => f64::INFINITY,
                    false if is_known && is_free => hoped(on)?,
                    false => return None,
                };
                if has_room(on) {
                    return (hoped > 0.0).then_some((on, None));
                }
                let other = self.makes_room(at, on, goals)?;
                (hoped + self.gain(other, next.to) > 0.0).then_some((on, Some(other)))
            });
            if let Some((to, other)) = wanted {
                let is_long = is_new(to) || is_held(to);
                let until = now + if is_long { UNSEEN_NS } else { VISIT_NS };
                match other {
                    Some(other) => {
                        self.next[other].to = next.to;
                        self.next[other].visits = Some(until);
                        is_free = false;
                    }
                    None => there[to] += 1,
                }
                self.next[at].to = to;
                self.next[at].visits = Some(until);
                is_free &= is_held(to);
            }
        }
    }

    /// Which thread on a core type that is full is to change places with the one `at` for a visit: of those that compute all
    /// the time one that was not measured there either, and of these the one that loses least by that.
    fn makes_room(&self, at: usize, on: usize, goals: &AgentGoals) -> Option<usize> {
        let back = self.next[at].to;
        let may = |&other: &usize| {
            let (next, thread) = (&self.next[other], &self.threads[other]);
            let is_there = next.to == on && next.visits.is_none() && !thread.is_given;
            is_there && thread.allowed & 1 << back != 0 && goals.needs(next.id).is_none()
        };
        let is_known = |other: usize| self.speedups.age_ns(self.next[other].id, back).is_some();
        let others = (0..self.next.len()).filter(may);
        others.min_by(|&a, &b| {
            let by_known = is_known(a).cmp(&is_known(b));
            by_known.then(self.gain(b, back).total_cmp(&self.gain(a, back)))
        })
    }

    /// What a thread gains by going there, by what is thought of it, W.
    fn gain(&self, at: usize, on: usize) -> f64 {
        self.threads[at].hoped_gain(self.price, on, 1.0)
    }

    /// In a crowd: what has a pace is not to wait for its turn on a slow core, which makes it late whatever it gets. The
    /// rest is the policy's.
    pub(super) fn keep_paces(&mut self, snapshot: &Snapshot, goals: &AgentGoals) {
        let (now, topology) = (snapshot.now_ns, snapshot.topology);
        let slowest = topology.types.len() - 1;
        let room = topology.cores_of(0).div_ceil(2);
        for task in snapshot.tasks {
            let is_paced = self.paces.is_paced(task.id) && !task.kthread && task.may_choose();
            if !is_paced || goals.needs(task.id).is_some() || self.next.len() >= room {
                continue;
            }
            let (speeds, stale) = (self.speedups.speeds(task.id, topology), stale_ns(topology));
            let wants = self.paces.wants(task.id, &speeds, now, stale);
            // What was seen on a slow core alone may want more.
            let suffices = self.paces.is_seen(task.id, 0, now, stale)
                && wants.is_some_and(|work| work.fits & 1 << slowest != 0);
            if task.allowed_types & 1 != 0 && !suffices {
                self.next.push(Placed {
                    id: task.id,
                    to: 0,
                    home: 0,
                    visits: None,
                    is_loose: false,
                });
            }
        }
    }

    /// Leaves those on the core type that is filled first to the BPF half of which it is not known whether that suffices for them. Where
    /// all fast CPUs are taken none is idle to end their frames: what has a pace is to be there itself.
    pub(super) fn loosen(&mut self, snapshot: &Snapshot, goals: &AgentGoals) {
        let (now_ns, stale) = (snapshot.now_ns, stale_ns(snapshot.topology));
        let running = |task: &&Task| task.state != TaskState::Blocked && task.core_type == 0;
        let running = snapshot.tasks.iter().filter(running).count();
        let is_full = running >= snapshot.topology.types[0].cpus.len();
        for (next, thread) in self.next.iter_mut().zip(&self.threads) {
            let may = next.visits.is_none() && goals.needs(next.id).is_none();
            if !may || next.to == 0 || Some(next.to) != self.first {
                continue;
            }
            let paces = &self.paces;
            let is_known = || {
                paces.is_seen(next.id, next.to, now_ns, stale)
                    || paces.is_told(next.id, next.to, now_ns, stale)
            };
            next.is_loose = paces.is_new(next.id, now_ns) || (paces.sleeps(next.id) && !is_known());
            if next.is_loose && is_full && paces.is_paced(next.id) && thread.allowed & 1 != 0 {
                (next.to, next.is_loose) = (0, false);
            }
        }
    }
}

/// How old what was measured of a thread may be, ns.
pub(super) fn stale_ns(topology: &Topology) -> u64 {
    STALE_NS * topology.types.len().saturating_sub(1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::energy::thrift::PlacedThread;
    use crate::testing::{MS, board, task};

    /// A thread that is placed where it is, and is so fast on a small core.
    fn placed(task: &Task, small: f64) -> (Placed, PlacedThread) {
        let next = Placed {
            id: task.id,
            to: task.core_type,
            home: task.core_type,
            visits: None,
            is_loose: false,
        };
        let thread = PlacedThread {
            speeds: [1.0, small, 1.0, 1.0],
            watts: [10.0, 4.0, 0.0, 0.0],
            is_given: false,
            allowed: 0b11,
            now: task.core_type,
            best: task.core_type,
            kept: task.core_type,
        };
        (next, thread)
    }

    #[test]
    fn where_fast_cores_are_full_what_sleeps_is_seen_there_in_the_place_of_what_loses_least() {
        let topology = board(2, 2);
        let mut saving = EnergySaving::default();
        // Two that compute on big cores; on a small one a video that drops frames, which it is not known to do.
        let mut tasks = [task(0, 0, 0), task(1, 1, 0), task(2, 2, 1)];
        let mut now_ns = 0;
        for _ in 0..5 {
            now_ns += 200 * MS;
            for (task, ran) in tasks.iter_mut().zip([200, 200, 100]) {
                task.run_ns[task.core_type] += ran * MS;
            }
            let tasks = &tasks[..];
            let topology = &topology;
            saving.look(&Snapshot {
                now_ns,
                topology,
                tasks,
            });
        }
        for (task, small) in tasks.iter().zip([0.4, 0.6, 0.5]) {
            let (next, thread) = placed(task, small);
            saving.next.push(next);
            saving.threads.push(thread);
        }
        (saving.threads[2].is_given, saving.price) = (true, 12.0);
        let snapshot = Snapshot {
            now_ns,
            topology: &topology,
            tasks: &tasks,
        };
        saving.visit(&snapshot, &AgentGoals::default(), 0);
        let until = Some(now_ns + UNSEEN_NS);
        let next: Vec<_> = saving.next.iter().map(|it| (it.to, it.visits)).collect();
        assert_eq!(next, [(0, None), (1, until), (0, until)]);
        // They change places, for neither would find an idle CPU.
        let mut actions = Vec::new();
        saving.tell(&snapshot, &mut actions);
        let swaps =
            |action: &&crate::policy::Action| matches!(action, crate::policy::Action::Swap(_));
        assert_eq!(actions.iter().filter(swaps).count(), 1, "{actions:?}");
    }

    #[test]
    fn where_others_have_all_fast_cpus_a_video_does_not_begin_its_frames_on_a_slow_one() {
        let topology = board(2, 2);
        let mut saving = EnergySaving::default();
        // A video that was seen on both at once, so that it is not known what suffices; and two pages that are drawn.
        let mut tasks = [task(0, 0, 0), task(1, 1, 0), task(2, 2, 1)];
        let mut now_ns = 0;
        for look in 0..30 {
            now_ns += 100 * MS;
            tasks[2].run_ns[0] += 20 * MS;
            tasks[2].run_ns[1] += 30 * MS;
            tasks[2].state = match look % 2 {
                0 => TaskState::Blocked,
                _ => TaskState::Running,
            };
            let snapshot = Snapshot {
                now_ns,
                topology: &topology,
                tasks: &tasks,
            };
            saving.look(&snapshot);
            saving.paces.notice(&snapshot);
        }
        saving.first = Some(1);
        let mut on = |drawn: usize| {
            let mut tasks = tasks;
            for page in &mut tasks[drawn..2] {
                page.state = TaskState::Blocked;
            }
            let (next, thread) = placed(&tasks[2], 0.5);
            (saving.next, saving.threads) = (vec![next], vec![thread]);
            let snapshot = Snapshot {
                now_ns,
                topology: &topology,
                tasks: &tasks,
            };
            saving.loosen(&snapshot, &AgentGoals::default());
            (saving.next[0].to, saving.next[0].is_loose)
        };
        assert_eq!(on(1), (1, true));
        assert_eq!(on(2), (0, false));
    }
}
