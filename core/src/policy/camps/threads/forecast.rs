// SPDX-License-Identifier: GPL-2.0-or-later
//! How fast a thread would be elsewhere.

use super::super::sharing::SharedParts;
use super::super::worth::{Forecast, Worths};
use super::{BIG, ThreadEstimators};
use crate::policy::tools::speeds::Prior;
use crate::policy::tools::swap::SwapCandidate;
use crate::topology::{MAX_CORE_TYPES, Topology};

impl ThreadEstimators {
    /// How fast a runner would be on each core type, beside those that run now, and what it would
    /// transfer: what was measured there last, or else in proportion to speed.
    pub(in crate::policy::camps) fn forecast(
        &self,
        topology: &Topology,
        runner: &SwapCandidate,
        worths: &Worths,
    ) -> Forecast {
        // Of more threads than there are fast CPUs some would wait even alone (section 4.5).
        let nr_fast = topology.types[BIG].cpus.len().max(1);
        let turns = (f64::from(runner.nr_runnable) / nr_fast as f64).max(1.0);
        let thread = self.threads.get(&runner.seen.task);
        let on = runner.seen.on.min(MAX_CORE_TYPES - 1);
        let (limits, now_ns) = (self.limits(), self.looked_at_ns.unwrap_or_default());
        let mut forecast = Forecast::default();
        if let Some(thread) = thread {
            let types = 0..topology.types.len();
            for (btr, core_type) in forecast.btr.iter_mut().zip(types) {
                *btr = thread.btr(topology, on, core_type) * thread.aggressiveness.factor();
            }
        }
        let others = worths.others(topology, runner, forecast.btr[runner.place]);
        let undisturbed = match thread {
            Some(thread) => thread.undisturbed(topology),
            None => Prior::of(topology).speeds(&[None; MAX_CORE_TYPES]),
        };
        for (core_type, others) in (0..topology.types.len()).zip(others) {
            let asymmetry = 1.0 / undisturbed[core_type];
            let sensitivity = thread.map_or(0.0, |thread| {
                thread.sensitivity(core_type).per_byte(&limits, now_ns)
            });
            let contention = 1.0 + sensitivity * others;
            let others_do = self.siblings.of_others();
            let factor = thread.map_or(others_do, |thread| thread.sibling.known(others_do));
            let sibling = 1.0 + self.shared[core_type] * (factor.factor() - 1.0);
            forecast.speed[core_type] = 1.0 / (asymmetry * contention * sibling / turns).max(1.0);
            if core_type == runner.place {
                forecast.sensitivity = sensitivity / contention;
                forecast.unshared = 1.0 / (asymmetry * contention / turns).max(1.0);
            }
        }
        forecast.computing = thread.map_or(1.0, |thread| thread.computing);
        forecast
    }

    /// What part of the threads on each core type share their core.
    pub(in crate::policy::camps) fn shared(&self) -> &SharedParts {
        &self.shared
    }
}
