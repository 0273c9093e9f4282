// SPDX-License-Identifier: GPL-2.0-or-later
//! Which threads share a core (SMT).
//!
//! CAMPS (2018) has machines without SMT. Two threads that compute take much of a core from each other, and one that waits for
//! memory takes little from one that computes ([`crate::slowdown::sibling`]). So two that compute and two that wait are better
//! mixed. Threads of different cores of one type change places where that is worth most, by the same weights as between types
//! ([`super::worth`]): one that lags gets the quiet sibling.

use std::time::Duration;

use crate::slowdown::sibling::beside;
use crate::table::TaskId;
use crate::topology::MAX_CORE_TYPES;

/// So many of those on a core type that lose most to their sibling are looked at: a server's look is to be short, too.
const CANDIDATES: usize = 16;

/// A thread that did not come where it was sent, as one that may not use that CPU, is left alone for so long, ns.
const UNMOVED_NS: u64 = 5_000_000_000;

/// A thread that runs, on a type whose cores have several.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedPlace {
    pub(super) task: TaskId,
    /// Index of its runner.
    pub(super) runner: usize,
    /// Where it is.
    pub(super) core_type: usize,
    pub(super) core: u32,
    pub(super) cpu: u32,
    /// Another thread is on the core, too, of which no more may be known.
    pub(super) shared: bool,
    /// It may go elsewhere.
    pub(super) free: bool,
    /// What part of its time it computes, 0 to 1.
    pub(super) computing: f64,
    /// What its speed is worth, had it the core to itself, ns of progress.
    pub(super) value: f64,
}

/// Decides on exchanges, one for a while.
#[derive(Debug)]
pub(super) struct Pairing {
    interval_ns: u64,
    due_ns: u64,
    /// The threads exchanged last, and the core to which each was to come.
    sent: [Option<(TaskId, u32)>; 2],
    /// Threads that did not come, and until when that is remembered, ns.
    unmoved: Vec<(TaskId, u64)>,
    // Kept for their memory.
    places: Vec<SharedPlace>,
    siblings: Vec<Option<usize>>,
    first: Vec<usize>,
}

impl Pairing {
    /// With so much time between exchanges.
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            interval_ns: interval.as_nanos() as u64,
            due_ns: 0,
            sent: [None; 2],
            unmoved: Vec::new(),
            places: Vec::new(),
            siblings: Vec::new(),
            first: Vec::new(),
        }
    }

    /// Whether there may be one.
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns
    }

    /// The runners whose exchange is worth most, if that is `least` or more, ns of progress.
    pub(super) fn exchange(
        &mut self,
        places: impl Iterator<Item = SharedPlace>,
        least: f64,
        now_ns: u64,
    ) -> Option<[usize; 2]> {
        self.places.clear();
        self.places.extend(places);
        self.note_unmoved(now_ns);
        self.order();
        let pair = self.best(least)?.map(|at| self.places[at]);
        let [a, b] = pair;
        self.sent = [Some((a.task, b.core)), Some((b.task, a.core))];
        self.due_ns = now_ns + self.interval_ns;
        Some(pair.map(|place| place.runner))
    }

    fn note_unmoved(&mut self, now_ns: u64) {
        self.unmoved.retain(|(_, until)| now_ns < *until);
        for (task, core) in self.sent.iter_mut().filter_map(Option::take) {
            let mut places = self.places.iter();
            if places.any(|place| place.task == task && place.core != core) {
                self.unmoved.push((task, now_ns + UNMOVED_NS));
            }
        }
        let unmoved = &self.unmoved;
        for place in &mut self.places {
            place.free &= unmoved.iter().all(|(task, _)| *task != place.task);
        }
    }

    /// Brings places in the order of their cores, and leaves out those beside a thread of which nothing is known: that is on
    /// its way, not to be moved, or waits for the same CPU.
    fn order(&mut self) {
        let places = &mut self.places;
        places.sort_unstable_by_key(|place| (place.core, place.cpu, place.runner));
        self.siblings.clear();
        let mut kept = 0;
        let mut begin = 0;
        while begin < places.len() {
            let here = places[begin].core;
            let others = places[begin..]
                .iter()
                .take_while(|place| place.core == here);
            let end = begin + others.count();
            let known = match &places[begin..end] {
                [alone] => !alone.shared,
                [one, other] => one.cpu != other.cpu,
                _ => false,
            };
            if known {
                let both = end - begin == 2;
                self.siblings
                    .extend((0..end - begin).map(|at| both.then_some(kept + 1 - at)));
                places.copy_within(begin..end, kept);
                kept += end - begin;
            }
            begin = end;
        }
        places.truncate(kept);
    }

    /// The two places, by index.
    fn best(&mut self, least: f64) -> Option<[usize; 2]> {
        let (places, siblings) = (&self.places, &self.siblings);
        let worth = |of: usize, other: Option<usize>| {
            let other = other.map_or(0.0, |other| places[other].computing);
            places[of].value * beside(places[of].computing, other)
        };
        let loss = |of: usize| places[of].value - worth(of, siblings[of]);
        let gain = |a: usize, b: usize| {
            // What one comes to, and what it leaves.
            let moves = |from: usize, to: usize| {
                let [left, met] = [siblings[from], siblings[to]];
                let relieved = met.map_or(0.0, |met| worth(met, Some(from)) - worth(met, Some(to)));
                worth(from, met) - worth(from, left) + relieved
            };
            moves(a, b) + moves(b, a)
        };
        let mut best: Option<(f64, [usize; 2])> = None;
        for core_type in 0..MAX_CORE_TYPES {
            let is_here = |of: &usize| places[*of].free && places[*of].core_type == core_type;
            let first = &mut self.first;
            first.clear();
            first.extend((0..places.len()).filter(is_here));
            first.sort_unstable_by(|&a, &b| loss(b).total_cmp(&loss(a)).then(a.cmp(&b)));
            for (nth, &a) in first.iter().enumerate().take(CANDIDATES) {
                for &b in &first[nth + 1..] {
                    let gain = gain(a, b);
                    let apart = places[a].core != places[b].core;
                    if apart && gain >= least && best.is_none_or(|(most, _)| gain > most) {
                        best = Some((gain, [a, b]));
                    }
                }
            }
        }
        Some(best?.1)
    }
}

#[cfg(test)]
mod tests;
