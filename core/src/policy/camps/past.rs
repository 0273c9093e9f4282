// SPDX-License-Identifier: GPL-2.0-or-later
//! Earlier runs of a thread's program: what they knew stands in until it is measured, and is forgotten where
//! the thread behaves otherwise ([`crate::knowledge`]).

use super::sensitivity::Sensitivity;
use super::threads::Thread;
use crate::knowledge::{Past, PastCheck, ProfilePhase, Sure, ThreadProfile, agrees};
use crate::slowdown::{Estimator, Reading};

/// The fastest core type.
const BIG: usize = 0;

/// What a measured factor errs by, of the logarithm, whatever the samples say: variance.
const UNTOLD: f64 = 0.05 * 0.05;

/// An IPC that is less sure is one that was worked out beside a busy sibling, of the logarithm: standard deviation.
const EXACT: f64 = 0.12;

/// An SF that is less sure is no better than the types' capacities, of the logarithm: standard deviation.
const VAGUE: f64 = 0.3;

/// What is known, and whether it is right.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PastThread {
    known: Option<ThreadProfile>,
    check: PastCheck,
}

impl PastThread {
    /// What became of it.
    pub(super) fn past(&self) -> Past {
        self.check.past()
    }

    /// Whether this reading shows that the thread is none like those before: of a phase that none of them
    /// had, or much faster or slower undisturbed than they were in it.
    pub(super) fn is_wrong(&mut self, reading: &Reading, estimator: &Estimator) -> bool {
        let Some(known) = &self.known else {
            return false;
        };
        if estimator.is_starting() || known.phases[0].is_none() {
            return false;
        }
        let phase = known.phase(&reading.phase);
        let alone = phase.and_then(|phase| phase.alone);
        let undisturbed = reading.core_type == BIG && reading.is_undisturbed();
        let as_expected = match alone {
            Some((ipc, _)) if undisturbed => agrees(reading.ipc, &ipc),
            _ => phase.is_some(),
        };
        let wrong = self.check.take(as_expected);
        if wrong {
            self.known = None;
        }
        wrong
    }
}

impl Thread {
    /// Takes note of what earlier runs were like; what was measured already stays.
    pub(super) fn remember(&mut self, known: &ThreadProfile) {
        if self.past.known.is_some() {
            self.forget_the_past();
        }
        if known.is_empty() {
            self.past = PastThread::default();
            return;
        }
        self.past = PastThread {
            known: Some(*known),
            check: PastCheck::expected(),
        };
        for phase in known.phases.iter().flatten() {
            if let Some((ipc, frequency)) = phase.alone
                && self.estimator.lacks(&phase.phase)
            {
                let exact = ipc.variance.sqrt() <= EXACT;
                let ipc = ipc.factor();
                self.estimator.remember(&phase.phase, ipc, frequency, exact);
            }
        }
        for (core_type, sf) in known.sf.iter().enumerate().skip(1) {
            let sure = sf.filter(|sf| sf.variance.sqrt() <= VAGUE);
            if let Some(sf) = sure.map(|sf| sf.factor().max(1.0)) {
                self.estimator.expect(core_type, sf);
                self.asymmetry[core_type].get_or_insert(sf);
            }
        }
        for (own, known) in self.sensitivity.iter_mut().zip(&known.sensitivity) {
            if let Some(slope) = known.filter(|_| !own.is_known()) {
                *own = Sensitivity::remembered(&slope, self.now_ns);
            }
        }
        if let Some(known) = known.aggressiveness {
            self.aggressiveness.remember(known);
        }
        if let Some(known) = known.sibling {
            self.sibling.remember(known);
        }
        for (own, known) in self.btr_on.iter_mut().zip(&known.btr) {
            *own = own.or(known.map(|btr| btr.factor()));
        }
    }

    /// What earlier runs knew is wrong.
    pub(super) fn forget_the_past(&mut self) {
        self.estimator.forget_the_past();
        for core_type in 1..self.asymmetry.len() {
            if !self.estimator.is_measured(core_type) {
                self.asymmetry[core_type] = None;
            }
        }
        for (core_type, btr) in self.btr_on.iter_mut().enumerate() {
            *btr = btr.filter(|_| self.sampled & 1 << core_type != 0);
        }
        self.aggressiveness.forget_the_past();
        self.sibling.forget_the_past();
        self.sensitivity = Default::default();
    }

    /// Adds what was measured, and is not of earlier runs.
    pub(super) fn find(&self, found: &mut ThreadProfile) {
        let sure = |factor: f64| Sure::of_factor(factor, UNTOLD);
        for core_type in 1..found.sf.len() {
            let own = self.asymmetry[core_type].filter(|_| self.estimator.is_measured(core_type));
            found.sf[core_type] = own.and_then(|sf| Sure::of_factor(sf, 2.0 * UNTOLD));
        }
        for (core_type, btr) in found.btr.iter_mut().enumerate() {
            let own = self.btr_on[core_type].filter(|_| self.sampled & 1 << core_type != 0);
            *btr = own.filter(|&btr| btr > 0.0).and_then(sure);
        }
        for (found, own) in found.sensitivity.iter_mut().zip(&self.sensitivity) {
            *found = own.found();
        }
        found.aggressiveness = self.aggressiveness.found();
        found.sibling = self.sibling.measured();
        let entries = self.estimator.history().entries().iter();
        for entry in entries.filter(|of| !of.past || of.samples > 1) {
            // What was worked out by what other threads' siblings do is no finding.
            let variance = match (entry.exact, found.sibling) {
                (true, _) => UNTOLD,
                (false, Some(sibling)) => UNTOLD + sibling.variance,
                (false, None) => continue,
            };
            let ipc = Sure::of_factor(entry.ipc, variance);
            found.add_phase(ProfilePhase {
                phase: entry.phase,
                alone: ipc.map(|ipc| (ipc, entry.frequency)),
                sf: None,
            });
        }
    }
}
