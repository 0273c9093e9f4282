// SPDX-License-Identifier: GPL-2.0-or-later
//! How much work threads want done that sleep in between: a frame each 33 ms, a key each 160.
//!
//! A thread that sleeps for a part of the time does so much work in a second and no more, wherever it runs, until a core
//! type is too slow for that: then it drops what is late, sleeps, and does less than it would elsewhere. So what it wants is
//! the most that it did on any core type, and it is to be seen on a fast one before it is kept on a slow one. What is late and
//! drops nothing computes all the time there, and cannot be told from what has no pace.
//!
//! To see it late costs frames. A thread of which the agent says nothing begins each frame on a slow core and ends those that
//! take long on a fast one (`order_unhinted()` in `src/bpf/idle.bpf.h`). Then it does all that it wants, and how fast it is on the
//! slow one follows from what is left for the fast one, of what it takes there alone.
//!
//! Work is counted in what the fastest core type does in a second at its highest clock: part of the time that the thread ran, times
//! its speed there, times the clock over the highest that was seen on that type. (Clocks follow the load: at half the clock a thread runs for
//! twice as long.)

use rustc_hash::FxHashMap;

use crate::energy::thrift::GivenWork;
use crate::pmu::clock::HighestClock;
use crate::pmu::sample::Sample;
use crate::policy::Snapshot;
use crate::policy::tools::progress::BUSY;
use crate::table::{Task, TaskId, TaskState};
use crate::topology::MAX_CORE_TYPES;

/// Of an interval, what a thread may have run on other core types for it to count.
const STRAY: f64 = 0.02;

/// It computes all the time if it runs for so much of it: what it waits for is little more than pages and locks.
const ALL: f64 = 0.9;

/// On a core type that suffices it does all but so much of what it does elsewhere, and sleeps for some of the time at least.
const AS_MUCH: f64 = 0.93;
const FULL: f64 = 0.97;

/// And so much less after one interval, and after two, which have a frame more or less at their ends. What drops every second one does half.
const FRAME_MORE_OR_LESS: [f64; 2] = [0.18, 0.08];

/// An interval counts for one in so many, at the least.
const AVERAGED: u32 = 3;

/// So long a thread has to have been on two types for its speeds to be told from that, ns: the frames that begin before
/// or end after are then few beside those in between.
const MIXED_NS: u64 = 600_000_000;

/// What is found asleep for so much of the latest time, ns, has a pace even where threads wait for CPUs, and run for less of the time than they
/// want. A video that shares its core sleeps for a quarter of the time; what only computes never does.
const ASLEEP: f64 = 0.12;
const ASLEEP_OF_NS: u64 = 1_500_000_000;

/// What is found asleep for less of it wants a CPU for itself.
const EVER_ASLEEP: f64 = 0.03;

/// A thread is new for so long, ns: what it does as it begins is not what it goes on with.
const NEW_NS: u64 = 1_000_000_000;

/// A core type suffices if a thread would run there for no more of the time, and does not if for longer than there is. In
/// between it has to be seen.
const SUFFICES: f64 = 0.92;
const TOO_SLOW: f64 = 1.0;

/// What is known of a thread on a core type.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// Part of the time that it ran.
    share: f64,
    /// The same, at the highest clock of the type.
    at_most: f64,
    /// Intervals that it is the mean of, at most [`AVERAGED`].
    of: u32,
    /// When that was, ns; 0 is never.
    at_ns: u64,
}

/// How long a thread ran on each core type while it was on more than one, ns at the highest clock.
#[derive(Clone, Copy, Debug, Default)]
struct Mixed {
    ran: [f64; MAX_CORE_TYPES],
    /// In so much time, ns.
    in_ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    ran_ns: [u64; MAX_CORE_TYPES],
    /// Latest clocks, Hz.
    clock: [f64; MAX_CORE_TYPES],
    on: [Load; MAX_CORE_TYPES],
    /// Wherever it runs.
    anywhere: Load,
    /// Since it was on one type alone.
    mixed: Mixed,
    /// The last that lasted for long enough, and until when that was, ns.
    told: Option<(Mixed, u64)>,
    /// When it was first seen, ns.
    since_ns: u64,
    /// Part of the latest time at which it slept, and how long that is, ns.
    asleep: f64,
    noticed_ns: u64,
}

/// Of all threads.
#[derive(Debug, Default)]
pub(super) struct Paces {
    threads: FxHashMap<TaskId, Pace>,
    /// The highest clock that was seen, Hz.
    highest: [HighestClock; MAX_CORE_TYPES],
    looked_ns: Option<u64>,
    noticed_ns: Option<u64>,
}

impl Paces {
    /// Takes note of which threads sleep. As often as there is an occasion: six frames of a video take as long as it is from one
    /// look to the next, so that looks alone would find it asleep for many seconds, or awake.
    pub(super) fn notice(&mut self, snapshot: &Snapshot) {
        let now = snapshot.now_ns;
        let elapsed = self.noticed_ns.map_or(0, |at| now.saturating_sub(at));
        self.noticed_ns = Some(now);
        if elapsed == 0 {
            return;
        }
        for task in snapshot.tasks {
            if let Some(pace) = self.threads.get_mut(&task.id) {
                pace.noticed_ns = (pace.noticed_ns + elapsed).min(ASLEEP_OF_NS);
                let asleep = f64::from(u8::from(task.state == TaskState::Blocked));
                let part = (elapsed as f64 / pace.noticed_ns as f64).min(1.0);
                pace.asleep += part * (asleep - pace.asleep);
            }
        }
    }

    /// Takes note of a thread's clock.
    pub(super) fn observe(&mut self, sample: &Sample) {
        let (on, clock) = (sample.core_type, sample.metrics.frequency);
        if on >= MAX_CORE_TYPES || clock <= 0.0 {
            return;
        }
        self.highest[on].note(clock);
        if let Some(pace) = self.threads.get_mut(&sample.task) {
            pace.clock[on] = clock;
        }
    }

    /// Takes note of how long threads ran since the last look. In a crowd they may have waited for a CPU, and left work out for that.
    pub(super) fn look(&mut self, snapshot: &Snapshot, is_crowded: bool) {
        let now = snapshot.now_ns;
        let elapsed = self.looked_ns.map_or(0, |at| now.saturating_sub(at));
        self.looked_ns = Some(now);
        for task in snapshot.tasks.iter().filter(|task| !task.kthread) {
            let pace = self.threads.entry(task.id).or_insert_with(|| Pace {
                ran_ns: task.run_ns,
                since_ns: now,
                ..Pace::default()
            });
            if elapsed > 0 {
                pace.look(task, now, elapsed, &self.highest, is_crowded);
            }
        }
        if self.threads.len() > snapshot.tasks.len() {
            self.threads.retain(|&id, _| snapshot.is_alive(id));
        }
    }

    /// What a thread wants; `None` if it computes all the time, or nothing is known of it that is younger than `stale` ns. Its
    /// speeds are relative to the fastest core type.
    pub(super) fn wants(
        &self,
        task: TaskId,
        speeds: &[f64; MAX_CORE_TYPES],
        now_ns: u64,
        stale: u64,
    ) -> Option<GivenWork> {
        let pace = self.threads.get(&task)?;
        let fresh = || {
            let all = pace.on.iter().zip(speeds).enumerate();
            all.filter(|(_, (load, _))| load.is_fresh(now_ns, stale))
        };
        let (fastest, (load, _)) = fresh().next()?;
        if load.share >= ALL {
            return None;
        }
        let most = fresh().fold(0.0_f64, |most, (_, (load, speed))| {
            most.max(load.at_most * speed)
        });
        let mut work = GivenWork {
            needs: most,
            fits: 1 << fastest,
            fails: 0,
        };
        let told = pace.told_by_mixed(fastest, now_ns, stale);
        for (at, (load, &speed)) in fresh().skip(1) {
            // Its own speed, if that is known, is better than what is usual.
            let speed = match told {
                Some((on, share)) if on == at => pace.on[fastest].at_most / share,
                _ => speed,
            };
            match load.at_most * speed >= load.as_much() * most && load.share < FULL {
                true => work.fits |= 1 << at,
                false => work.fails |= 1 << at,
            }
        }
        if let Some((on, share)) = told
            && (work.fits | work.fails) & 1 << on == 0
        {
            work.fits |= u8::from(share <= SUFFICES) << on;
            work.fails |= u8::from(share >= TOO_SLOW) << on;
        }
        Some(work)
    }

    /// Whether a thread was seen on a core type for long enough to know what it does there.
    pub(super) fn is_seen(&self, task: TaskId, on: usize, now_ns: u64, stale: u64) -> bool {
        let pace = self.threads.get(&task);
        pace.is_some_and(|pace| pace.on[on].is_fresh(now_ns, stale))
    }

    /// Whether it is told what a thread would do on a core type, though it was not seen there alone.
    pub(super) fn is_told(&self, task: TaskId, on: usize, now_ns: u64, stale: u64) -> bool {
        let Some(pace) = self.threads.get(&task) else {
            return false;
        };
        let fastest = pace.on.iter().position(|load| load.is_fresh(now_ns, stale));
        let told = fastest.and_then(|fastest| pace.told_by_mixed(fastest, now_ns, stale));
        told.is_some_and(|(at, _)| at == on)
    }

    /// Whether a thread was first seen a moment ago.
    pub(super) fn is_new(&self, task: TaskId, now_ns: u64) -> bool {
        let pace = self.threads.get(&task);
        pace.is_none_or(|pace| now_ns.saturating_sub(pace.since_ns) < NEW_NS)
    }

    /// Whether a thread wants a good part of a CPU: known sooner than a mean is.
    pub(super) fn is_busy(&self, task: TaskId) -> bool {
        let pace = self.threads.get(&task);
        pace.is_some_and(|pace| pace.anywhere.share >= BUSY)
    }

    /// Whether a thread wants a good part of a CPU, and sleeps in between, and does not just wait for one.
    pub(super) fn is_paced(&self, task: TaskId) -> bool {
        let pace = self.threads.get(&task);
        self.is_busy(task) && pace.is_some_and(|pace| pace.asleep >= ASLEEP)
    }

    /// Whether a thread was found asleep of late.
    pub(super) fn is_found_asleep(&self, task: TaskId) -> bool {
        let pace = self.threads.get(&task);
        pace.is_some_and(|pace| pace.asleep >= EVER_ASLEEP)
    }

    /// Whether a thread sleeps in between.
    pub(super) fn sleeps(&self, task: TaskId) -> bool {
        let load = self.threads.get(&task).map(|pace| pace.anywhere);
        load.is_some_and(|load| load.at_ns > 0 && load.share < ALL)
    }
}

impl Load {
    fn is_fresh(&self, now_ns: u64, stale: u64) -> bool {
        self.at_ns > 0 && now_ns.saturating_sub(self.at_ns) <= stale
    }

    /// What part of what it does elsewhere it is to do here at the least.
    fn as_much(&self) -> f64 {
        let before = self.of.saturating_sub(1) as usize;
        AS_MUCH - FRAME_MORE_OR_LESS.get(before).unwrap_or(&0.0)
    }

    fn take(&mut self, share: f64, at_most: f64, now_ns: u64) {
        self.of = AVERAGED.min(self.of + 1);
        let step = 1.0 / f64::from(self.of);
        self.share += step * (share - self.share);
        self.at_most += step * (at_most - self.at_most);
        self.at_ns = now_ns;
    }
}

impl Pace {
    fn look(
        &mut self,
        task: &Task,
        now: u64,
        elapsed: u64,
        highest: &[HighestClock; MAX_CORE_TYPES],
        is_crowded: bool,
    ) {
        let ran: [u64; MAX_CORE_TYPES] =
            std::array::from_fn(|on| task.run_ns[on].saturating_sub(self.ran_ns[on]));
        self.ran_ns = task.run_ns;
        let all = ran.iter().sum::<u64>();
        let (on, &most) = (ran.iter().enumerate().max_by_key(|(_, ran)| **ran)).unwrap_or((0, &0));
        if most == 0 {
            return;
        }
        let share = |ran: u64| (ran as f64 / elapsed as f64).min(1.0);
        let clock = |on: usize| match highest[on].hz() {
            Some(highest) if self.clock[on] > 0.0 => (self.clock[on] / highest).min(1.0),
            _ => 1.0,
        };
        let at_most: [f64; MAX_CORE_TYPES] = std::array::from_fn(|on| ran[on] as f64 * clock(on));
        self.anywhere.take(share(all), 0.0, now);
        if is_crowded {
            // It may have waited for a CPU, and left work out for that.
            self.mixed = Mixed::default();
        } else if (all - most) as f64 > STRAY * elapsed as f64 {
            self.mixed.take(at_most, elapsed);
            if self.mixed.in_ns >= MIXED_NS {
                self.told = Some((self.mixed, now));
            }
        } else {
            let at_most = share(most) * clock(on);
            self.on[on].take(share(most), at_most, now);
            self.mixed = Mixed::default();
        }
    }

    /// A core type that takes over from the fastest on which the thread was seen, and for which part of the time it would
    /// run there alone.
    fn told_by_mixed(&self, fastest: usize, now_ns: u64, stale: u64) -> Option<(usize, f64)> {
        let (mixed, at_ns) = self.told?;
        let others = (0..MAX_CORE_TYPES).filter(|&on| on != fastest);
        let slow = others.max_by(|&a, &b| mixed.ran[a].total_cmp(&mixed.ran[b]))?;
        let part = |ran: f64| ran / mixed.in_ns.max(1) as f64;
        let two = part(mixed.ran[fastest]) + part(mixed.ran[slow]);
        let is_of_two = part(mixed.ran.iter().sum()) - two <= STRAY;
        if slow < fastest || !is_of_two || now_ns.saturating_sub(at_ns) > stale {
            return None;
        }
        // Of its work, in time on the fastest type, what was done elsewhere.
        let all = self.on[fastest].at_most;
        let there = all - part(mixed.ran[fastest]);
        (there > STRAY).then(|| (slow, all * part(mixed.ran[slow]) / there))
    }
}

impl Mixed {
    fn take(&mut self, ran: [f64; MAX_CORE_TYPES], elapsed: u64) {
        // What was long ago counts for less.
        if self.in_ns >= 2 * MIXED_NS {
            self.in_ns /= 2;
            self.ran.iter_mut().for_each(|ran| *ran /= 2.0);
        }
        self.in_ns += elapsed;
        for (sum, ran) in self.ran.iter_mut().zip(ran) {
            *sum += ran;
        }
    }
}

#[cfg(test)]
mod tests;
