// SPDX-License-Identifier: GPL-2.0-or-later
//! One thread: how fast it is where, alone and in company.

use super::super::aggressiveness::Aggressiveness;
use super::super::past::PastThread;
use super::super::sensitivity::Sensitivity;
use super::BIG;
use crate::policy::tools::speeds::{Prior, Speeds};
use crate::policy::tools::tell;
use crate::slowdown::{Estimator, ReadingOutcome, SiblingFactor};
use crate::topology::{MAX_CORE_TYPES, Topology};

/// A sample counts for one in so many in what part of its time a thread computes.
const AVERAGED: f64 = 4.0;

/// What is known of a thread.
pub(in crate::policy::camps) struct Thread {
    pub(in crate::policy::camps) estimator: Estimator,
    pub(in crate::policy::camps) last: Option<ReadingOutcome>,
    /// Latest BTR, bytes/s, and by core type.
    pub(in crate::policy::camps) btr: f64,
    pub(in crate::policy::camps) btr_on: [Option<f64>; MAX_CORE_TYPES],
    /// A bit for each core type on which it gave a sample.
    pub(in crate::policy::camps) sampled: u8,
    /// What it does to others for each byte that it transfers.
    pub(in crate::policy::camps) aggressiveness: Aggressiveness,
    /// What the other thread of its core does to it, and how many times slower it made it in the latest sample on each
    /// core type.
    pub(in crate::policy::camps) sibling: SiblingFactor,
    pub(in crate::policy::camps) shared: [f64; MAX_CORE_TYPES],
    /// What part of its time it computes ([`crate::slowdown::sibling::computing`]), over its latest samples.
    pub(in crate::policy::camps) computing: f64,
    /// By core type: what contention does to it there.
    pub(in crate::policy::camps) sensitivity: [Sensitivity; MAX_CORE_TYPES],
    /// By slower core type: the slowdown that was measured there last without contention, which the type alone makes.
    pub(in crate::policy::camps) asymmetry: [Option<f64>; MAX_CORE_TYPES],
    /// CPU that it was using at this look, and at the last one.
    pub(in crate::policy::camps) cpu: Option<u32>,
    pub(in crate::policy::camps) cpu_before: Option<u32>,
    /// Run time at the last look, ns.
    pub(in crate::policy::camps) total_ns: u64,
    /// What the BPF half was told last.
    pub(in crate::policy::camps) told: Option<[f32; MAX_CORE_TYPES]>,
    /// What is known of its program from earlier runs.
    pub(in crate::policy::camps) past: PastThread,
    /// When it was told what is known of it, ns.
    pub(in crate::policy::camps) now_ns: u64,
}

impl Thread {
    pub(super) fn new(entries: usize) -> Self {
        Self {
            estimator: Estimator::new(entries),
            last: None,
            btr: 0.0,
            btr_on: [None; MAX_CORE_TYPES],
            sampled: 0,
            aggressiveness: Aggressiveness::default(),
            sibling: SiblingFactor::default(),
            shared: [1.0; MAX_CORE_TYPES],
            computing: 1.0,
            sensitivity: [Sensitivity::default(); MAX_CORE_TYPES],
            asymmetry: [None; MAX_CORE_TYPES],
            cpu: None,
            cpu_before: None,
            total_ns: 0,
            told: None,
            past: PastThread::default(),
            now_ns: 0,
        }
    }

    /// Takes in what part of its time it computes by a sample. A phase of a moment is worth no move.
    pub(super) fn note_computing(&mut self, part: f64) {
        self.computing += (part - self.computing) / AVERAGED;
    }

    /// 1/slowdown by core type: as estimated, or from the nearest type where it is.
    pub(super) fn inverse(&self, topology: &Topology) -> [f32; MAX_CORE_TYPES] {
        let speed = |core_type| Some(1.0 / self.estimator.slowdown(core_type)?);
        // What slows it down on the fastest type is no matter of core types.
        let mut known: [_; MAX_CORE_TYPES] = std::array::from_fn(speed);
        let on_big = known[BIG].replace(1.0);
        let mut inverse = Prior::of(topology).speeds(&known);
        inverse[BIG] = on_big.unwrap_or(1.0);
        inverse.map(|speed| speed as f32)
    }

    /// What it transfers on a core type, bytes/s, as it does on the type `on` where it is.
    pub(super) fn btr(&self, topology: &Topology, on: usize, core_type: usize) -> f64 {
        match self.btr_on[core_type] {
            _ if core_type == on => self.btr,
            Some(btr) => btr,
            None => {
                let inverse = self.inverse(topology);
                self.btr * f64::from(inverse[core_type] / inverse[on])
            }
        }
    }

    /// Speeds by core type undisturbed, as known or from the nearest type where they are.
    pub(super) fn undisturbed(&self, topology: &Topology) -> Speeds {
        let speed = |core_type| Some(1.0 / self.alone(core_type)?);
        Prior::of(topology).speeds(&std::array::from_fn(speed))
    }

    /// The slowdown that a core type alone makes; a slowdown is a product of that, of contention's,
    /// 1 + *k* B where others transfer B bytes/s ([`Sensitivity`]), and of the sibling's ([`SiblingFactor`]).
    pub(super) fn alone(&self, core_type: usize) -> Option<f64> {
        if core_type == BIG {
            return Some(1.0);
        }
        let [on_big, here] =
            [BIG, core_type].map(|on| Some(self.estimator.slowdown(on)? / self.shared[on]));
        match (self.asymmetry[core_type], here) {
            // No more than the whole, which in another phase may be less. What it was there is none for good.
            (Some(alone), Some(here)) => Some(alone.min(here).max(1.0)),
            (Some(alone), None) => Some(alone),
            // Where it was never undisturbed, what contention did to it on the fastest type tells.
            (None, _) => Some((here? / on_big?).max(1.0)),
        }
    }

    /// The slowdown that contention made on a core type last.
    pub(super) fn contention(&self, core_type: usize) -> Option<f64> {
        let all = self.estimator.slowdown(core_type)?;
        Some(all / self.shared[core_type] / self.alone(core_type)?)
    }

    /// What contention does to it on a core type; where it never was, as on the fastest.
    pub(super) fn sensitivity(&self, core_type: usize) -> &Sensitivity {
        let here = &self.sensitivity[core_type];
        if here.is_known() {
            here
        } else {
            &self.sensitivity[BIG]
        }
    }

    /// 1/slowdowns, if they differ from what the BPF half was told. It knows the static ones itself.
    pub(super) fn news(&mut self, topology: &Topology) -> Option<[f32; MAX_CORE_TYPES]> {
        let nothing = (0..MAX_CORE_TYPES).all(|t| self.estimator.slowdown(t).is_none());
        if nothing && self.told.is_none() {
            return None;
        }
        let inverse = self.inverse(topology);
        tell(&mut self.told, inverse).then_some(inverse)
    }
}
