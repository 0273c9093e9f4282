// SPDX-License-Identifier: GPL-2.0-or-later
//! What policies are told of threads' watts, and how far that errs.

use super::known::Known;
use super::{EnergyLedger, LEARNT_AFTER};
use crate::energy::model::WorkSum;
use crate::pmu::sample::{SampleWatts, SureWatts};
use crate::table::TaskId;
use crate::topology::MAX_CORE_TYPES;

impl EnergyLedger {
    /// What a thread takes on each of so many core types where it has run, all by the model as it is now, and what is usual
    /// there; `None` while the model has seen little. It takes some 10 µs for each error, of which there are three with two core types.
    pub fn sample_watts(&self, id: TaskId, nr_types: usize) -> Option<SampleWatts> {
        let known = self
            .find(id)
            .filter(|_| self.model.seconds() >= LEARNT_AFTER)?;
        let mut told = SampleWatts::default();
        for core_type in 0..nr_types.min(MAX_CORE_TYPES) {
            let Some((seen, usual, _)) = self.usual_near(core_type, nr_types) else {
                continue;
            };
            told.usual[core_type] = match seen == core_type {
                true => usual,
                false => self.model.as_on(seen, core_type, usual).0,
            };
            let on = known
                .watts(core_type, &self.model)
                .filter(|_| seen == core_type);
            told.on[core_type] = on.map(|(watts, _)| SureWatts {
                watts,
                sigma: self.error_beside(id, known, &[(core_type, 1.0)]),
            });
            if core_type > 0 && told.on[0].is_some() && told.on[core_type].is_some() {
                let apart = self.error_beside(id, known, &[(0, 1.0), (core_type, -1.0)]);
                told.apart[core_type] = Some(apart as f32);
            }
        }
        Some(told)
    }

    /// Standard error of what a thread takes on these core types, so many times each, against others that were there, W: what the
    /// model errs by of all of them alike, as where all CPUs are busy and P cores' watts cannot be told from E cores', cancels where
    /// two change places. It is as if threads erred independently of each other.
    fn error_beside(&self, id: TaskId, known: &Known, on: &[(usize, f64)]) -> f64 {
        let mut sum = WorkSum::default();
        let mut add = |known: &Known, times: f64| {
            for &(core_type, each) in on {
                if let Some((watts, work)) = known.watts(core_type, &self.model) {
                    let owner = known.own[core_type].map(usize::from);
                    let spread = known.past[core_type].expected().variance.sqrt();
                    sum.add(times * each, core_type, &work);
                    sum.add_own(times * each, owner, spread * watts);
                }
            }
        };
        add(known, 1.0);
        let others = || {
            let owners = self.owners.iter().flatten();
            let there = owners.filter(|of| of.core_type == on[0].0 && of.id != id);
            let known = there.filter_map(|of| self.find(of.id));
            known.filter(|known| {
                on.iter()
                    .all(|&(core_type, _)| known.own[core_type].is_some())
            })
        };
        let number = others().count() as f64;
        others().for_each(|other| add(other, -1.0 / number));
        if number == 0.0 {
            for &(core_type, each) in on {
                if let Some((_, work)) = self.usual(core_type) {
                    sum.add(-each, core_type, &work);
                }
            }
            return self.model.error_of(&sum);
        }
        self.model.error_of(&sum) * (number / (number + 1.0)).sqrt()
    }
}
