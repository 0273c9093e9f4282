// SPDX-License-Identifier: GPL-2.0-or-later
//! A program that beats, under a token bucket, in steps of a millisecond or parts of it.

use std::collections::VecDeque;

use hetero_core::goals::{SessionId, SessionSight, TargetRate};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;

pub(crate) const MS: u64 = 1_000_000;

/// From 0 to 1.
pub(crate) fn unit(rng: &mut Pcg64Mcg) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

pub(crate) fn between(rng: &mut Pcg64Mcg, from: f64, to: f64) -> f64 {
    from + (to - from) * unit(rng)
}

/// Like `between`, with each factor as likely.
pub(crate) fn scale(rng: &mut Pcg64Mcg, from: f64, to: f64) -> f64 {
    from * (to / from).powf(unit(rng))
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Plant {
    pub(crate) id: SessionId,
    pub(crate) target: f64,
    pub(crate) weight: u32,
    pub(crate) threads: u32,
    /// What part of each beat's work one thread does alone.
    pub(crate) serial: f64,
    /// The others wait actively meanwhile.
    pub(crate) spins: bool,
    /// Of a beat, fast-core seconds.
    pub(crate) work: f64,
    /// Standard deviation of it, relative.
    pub(crate) noise: f64,
    /// Each so many beats one takes three times the work; 0 is never.
    pub(crate) heavy_each: u64,
    /// What beats take in turn, over the mean: an encoder's pictures come in groups, of which the first takes most.
    pub(crate) group: Vec<f64>,
    /// So many beats at its beginning take a twentieth of the work, of one thread, and one after them six times
    /// that: an encoder that looks ahead takes pictures before it has to do anything with them.
    pub(crate) fills: u64,
    /// How long after its work a beat comes, ms.
    pub(crate) lag: u64,
    /// It comes up to so much later still, but never before the one ahead of it, ms: an encoder that works on several pictures at once
    /// hands them out in order.
    pub(crate) jitter: u64,
    /// From when on a beat takes so many times the work, ms.
    pub(crate) phases: Vec<(u64, f64)>,
    /// It waits for a clock: no more beats/s than this.
    pub(crate) paced: f64,
    /// Its target is a deadline: it tells how long it works on beats.
    pub(crate) timed: bool,
    /// What is not spent is kept for so long, s.
    pub(crate) depth: f64,
    /// The room to which its threads are confined.
    pub(crate) room: Option<u8>,
    /// It may run beyond its allotment where a CPU is idle.
    pub(crate) surplus: bool,
    /// It goes on in so many steps a millisecond. What waits actively wastes what is left of a step, on all its threads: in
    /// whole milliseconds a beat costs it now more, now less, as no real one does.
    pub(crate) steps: u32,
    tokens: f64,
    spent: f64,
    done: f64,
    cost: f64,
    next: f64,
    begun: u64,
    began_ns: Option<u64>,
    pub(crate) worked_ns: u64,
    pending: VecDeque<u64>,
    pub(crate) beats: u64,
    pub(crate) beat_at: u64,
    pub(crate) history: Vec<u64>,
}

impl Plant {
    /// One thread, no noise: spends all it gets.
    pub(crate) fn new(id: u64, target: f64, work: f64) -> Self {
        Self {
            id: SessionId(id),
            target,
            weight: 100,
            threads: 1,
            serial: 0.0,
            spins: false,
            work,
            noise: 0.0,
            heavy_each: 0,
            group: Vec::new(),
            fills: 0,
            lag: 0,
            jitter: 0,
            phases: Vec::new(),
            paced: f64::INFINITY,
            timed: false,
            depth: 0.05,
            room: None,
            surplus: false,
            steps: 1,
            tokens: 0.0,
            spent: 0.0,
            done: 0.0,
            cost: work,
            next: 0.0,
            begun: 0,
            began_ns: None,
            worked_ns: 0,
            pending: VecDeque::new(),
            beats: 0,
            beat_at: 0,
            history: Vec::new(),
        }
    }

    /// A random one, whose target takes at most so many fast cores at any time in `ms`.
    pub(crate) fn random(id: u64, rng: &mut Pcg64Mcg, fast_cores: f64, ms: u64) -> Self {
        let threads = 1 + (unit(rng) * 8.0) as u32;
        let serial = between(rng, 0.0, 0.3);
        let most = (1.0 / (serial + (1.0 - serial) / f64::from(threads))).min(fast_cores);
        let mut phases = Vec::new();
        let mut at = 0;
        let mut heaviest = 1.0_f64;
        loop {
            at += between(rng, 4000.0, 12_000.0) as u64;
            if at >= ms {
                break;
            }
            let factor = scale(rng, 0.6, 1.7);
            heaviest = heaviest.max(factor);
            phases.push((at, factor));
        }
        let target = scale(rng, 5.0, 120.0);
        let takes = between(rng, 0.1, 0.85) * most;
        Self {
            threads,
            serial,
            spins: unit(rng) < 0.3,
            noise: 0.1,
            lag: between(rng, 20.0, 50.0) as u64,
            phases,
            depth: scale(rng, 0.01, 0.1),
            ..Self::new(id, target, takes / target / heaviest)
        }
    }

    /// A millisecond from `now`, with so many fast cores allotted and so many free for it.
    pub(crate) fn step(&mut self, now: u64, allotted: f64, free: f64, rng: &mut Pcg64Mcg) -> f64 {
        let steps = 0..self.steps;
        let dt = 1e-3 / f64::from(self.steps);
        steps
            .map(|_| self.part_of_step(now, dt, allotted, free, rng))
            .sum()
    }

    /// So many seconds of it.
    fn part_of_step(
        &mut self,
        now: u64,
        dt: f64,
        allotted: f64,
        free: f64,
        rng: &mut Pcg64Mcg,
    ) -> f64 {
        self.tokens = (self.tokens + allotted * dt).min(self.depth.max(dt) * allotted.max(1e-3));
        let alone = self.begun < self.fills || self.done < self.serial * self.cost;
        let wide = f64::from(self.threads);
        let useful = if alone { 1.0 } else { wide };
        let rests = now as f64 * 1e-9 < self.next;
        let wants = match rests {
            true => 0.0,
            false if self.spins => wide,
            false => useful,
        };
        let mut ran = (wants * dt).min(free * dt);
        if !self.surplus {
            ran = ran.min(self.tokens);
        }
        self.tokens -= ran.min(self.tokens);
        self.spent += ran;
        self.done += if wants > 0.0 {
            ran * useful / wants
        } else {
            0.0
        };
        if !rests {
            self.began_ns.get_or_insert(now);
        }
        while self.done >= self.cost {
            let began = self.began_ns.take().unwrap_or(now);
            self.worked_ns += now + MS - began;
            self.done -= self.cost;
            let late = between(rng, 0.0, self.jitter as f64) as u64;
            let at = now + MS + (self.lag + late) * MS;
            self.pending
                .push_back(at.max(self.pending.back().copied().unwrap_or(0)));
            let ms = now / MS;
            let phase = self.phases.iter().rev().find(|(at, _)| *at <= ms);
            let factor = phase.map_or(1.0, |(_, factor)| *factor);
            let sum: f64 = (0..12).map(|_| unit(rng)).sum();
            let noise = 1.0 + self.noise * (sum - 6.0);
            self.begun += 1;
            let heavy = if self.begun < self.fills {
                0.05
            } else if self.fills > 0 && self.begun == self.fills {
                6.0
            } else if self.heavy_each > 0 && self.begun.is_multiple_of(self.heavy_each) {
                3.0
            } else {
                1.0
            };
            let turn = self
                .group
                .get(self.begun as usize % self.group.len().max(1));
            self.cost = self.work * factor * noise.max(0.2) * heavy * turn.unwrap_or(&1.0);
            if self.paced.is_finite() {
                self.next = self.next.max(now as f64 * 1e-9 - 1.0 / self.paced) + 1.0 / self.paced;
            }
        }
        while self.pending.front().is_some_and(|at| *at <= now + MS) {
            self.beat_at = self.pending.pop_front().unwrap();
            self.beats += 1;
            self.history.push(self.beat_at);
        }
        ran
    }

    /// Begins another beat, whatever was done for this one.
    pub(crate) fn again(&mut self) {
        (self.done, self.cost) = (0.0, self.work);
    }

    /// When the phase began that it is in at `ms`.
    pub(crate) fn phase_began(&self, ms: u64) -> u64 {
        let began = self.phases.iter().rev().find(|(at, _)| *at <= ms);
        began.map_or(0, |(at, _)| *at)
    }

    pub(crate) fn sight(&self) -> SessionSight {
        SessionSight {
            id: self.id,
            target: TargetRate::per_second(self.target).unwrap(),
            weight: self.weight,
            runnable: self.threads,
            room: self.room,
            joined: false,
            worked_ns: self.timed.then_some(self.worked_ns),
            beats: self.beats,
            beat_at_ns: self.beat_at,
            spent_ns: (self.spent * 1e9) as u64,
        }
    }

    /// Rate in a window of a second, or ten beats where that is longer, before `at`, ns: between the first beats since its
    /// begin and since its end, so that beats which come in groups are not counted for more than they are. Its end is
    /// two beats ago, and 200 ms, when the beat after it should have come.
    pub(crate) fn rate_before(&self, at: u64) -> f64 {
        let ns = |beats: f64| (beats * 1e9 / self.target) as u64;
        let end = at.saturating_sub(ns(2.0).max(200 * MS));
        let begin = end.saturating_sub(ns(10.0).max(1000 * MS));
        let first = self.history.partition_point(|beat| *beat < begin);
        let last = self.history.partition_point(|beat| *beat < end);
        let Some(began) = self.history.get(first) else {
            return 0.0;
        };
        let ended = self.history.get(last).copied().unwrap_or(at);
        (last - first) as f64 * 1e9 / ended.saturating_sub(*began).max(1) as f64
    }

    /// How long before now the window of [`Self::rate_before`] began, ms.
    pub(crate) fn window_began(&self) -> u64 {
        ((10_000.0 / self.target).max(1000.0) + (2000.0 / self.target).max(200.0)) as u64
    }
}
