// SPDX-License-Identifier: GPL-2.0-or-later
//! What a thread's speeds are expected to be, from earlier runs of its program ([`crate::knowledge`]): how
//! much faster it was on one core type than on another, in one run, or as the ratio of what one run did on the
//! one and another on the other. The latter is all that can be known of programs too short to be moved.

use super::mean::MeasuredMean;
use super::speeds::Prior;
use crate::knowledge::{Past, PastCheck, Sure, ThreadProfile, agrees};
use crate::pmu::sample::Sample;
use crate::topology::MAX_CORE_TYPES;

/// The fastest core type.
const BIG: usize = 0;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Expected {
    sf: [Option<Sure>; MAX_CORE_TYPES],
    ipc: [Option<Sure>; MAX_CORE_TYPES],
    check: PastCheck,
}

impl Expected {
    /// As earlier runs were.
    pub(super) fn new(known: &ThreadProfile) -> Self {
        Self {
            sf: known.sf,
            ipc: known.ipc,
            check: PastCheck::expected(),
        }
    }

    /// Whether anything is known of its SF.
    pub(super) fn says_sf(&self) -> bool {
        let both = |on: &usize| self.ipc[BIG].is_some() && self.ipc[*on].is_some();
        (1..MAX_CORE_TYPES).any(|on| self.sf[on].is_some() || both(&on))
    }

    /// What is assumed of it, beside what others say; clocks are in Hz.
    pub(super) fn prior(&self, others: Prior, clocks: &[Option<f64>; MAX_CORE_TYPES]) -> Prior {
        if !self.says_sf() {
            return others;
        }
        let sf = std::array::from_fn(|on| match on {
            BIG => None,
            on => surer(self.sf[on], self.ratio(on, clocks)),
        });
        others.with_past(&sf)
    }

    /// By what earlier runs did on the two core types.
    fn ratio(&self, on: usize, clocks: &[Option<f64>; MAX_CORE_TYPES]) -> Option<Sure> {
        let (fast, slow) = (self.ipc[BIG]?, self.ipc[on]?);
        let clock = (clocks[BIG]? / clocks[on]?).ln();
        Some(Sure {
            value: fast.value - slow.value + clock,
            variance: fast.variance + slow.variance,
        })
    }

    /// What became of it.
    pub(super) fn past(&self) -> Past {
        self.check.past()
    }

    /// Takes a sample in; whether just now it is known that the thread is none like those before. It is
    /// forgotten then.
    pub(super) fn is_wrong(
        &mut self,
        sample: &Sample,
        own: &[MeasuredMean; MAX_CORE_TYPES],
        clocks: &[Option<f64>; MAX_CORE_TYPES],
    ) -> bool {
        if self.check.past() != Past::Expected {
            return false;
        }
        let on = sample.core_type;
        let like = |ipc: &Sure| agrees(sample.metrics.ipc, ipc);
        let as_before = self.ipc[on].as_ref().map(like);
        let measured = own[BIG].get().zip(own[on].get()).filter(|_| on != BIG);
        let as_fast = measured.and_then(|(fast, slow)| {
            let sf = fast * clocks[BIG]? / (slow * clocks[on]?);
            Some(agrees(sf, self.sf[on].as_ref()?))
        });
        // An SF was measured beside the same others, an IPC was not.
        let Some(as_expected) = as_fast.or(as_before) else {
            return false;
        };
        let wrong = self.check.take(as_expected);
        if wrong {
            (self.sf, self.ipc) = Default::default();
        }
        wrong
    }

    /// Adds what was measured, for later runs.
    pub(super) fn find(
        &self,
        own: &[MeasuredMean; MAX_CORE_TYPES],
        clocks: &[Option<f64>; MAX_CORE_TYPES],
        now_ns: u64,
        found: &mut ThreadProfile,
    ) {
        let on = |on: usize, unit| own[on].of_at_least(1, unit, now_ns);
        let fast = clocks[BIG].and_then(|clock| on(BIG, clock));
        for (core_type, clock) in clocks.iter().enumerate() {
            let ipc = on(core_type, 1.0);
            found.ipc[core_type] = ipc.and_then(|ipc| Sure::of_factor(ipc.speed, ipc.variance));
            let slow = clock.and_then(|clock| on(core_type, clock));
            if let (Some(fast), Some(slow), 1..) = (fast, slow, core_type) {
                let variance = fast.variance + slow.variance;
                found.sf[core_type] = Sure::of_factor(fast.speed / slow.speed, variance);
            }
        }
    }
}

/// The one of the two that is surer.
fn surer(one: Option<Sure>, other: Option<Sure>) -> Option<Sure> {
    match (one, other) {
        (Some(a), Some(b)) if b.variance < a.variance => Some(b),
        (one, other) => one.or(other),
    }
}
