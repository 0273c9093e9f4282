// SPDX-License-Identifier: GPL-2.0-or-later
//! A model at work: what it asks for on each core type of this machine, and what it says of a
//! thread's counts.

use std::collections::BTreeSet;

use anyhow::Result;

use super::data::{INSTRUCTIONS, Per};
use super::events::countable;
use super::fixed::feature;
use super::forest::{Forest, MAX_FEATURES, to_number};
use super::model::{self, Feature, Model, Speedup};
use crate::pmu::sample::{EventCounts, SfEstimate};
use crate::pmu::{Event, Meaning, Pmu};
use crate::topology::Topology;

/// By which phases are told apart ([`crate::slowdown::Phase`]).
pub const OF_PHASES: [Meaning; 2] = [Meaning::Loads, Meaning::Branches];

/// What is counted to learn from (`--learn`), those first that models mostly ask for.
pub const TO_LEARN_FROM: [Meaning; 12] = [
    Meaning::Loads,
    Meaning::Branches,
    Meaning::BranchMisses,
    Meaning::L1Misses,
    Meaning::LlcReferences,
    Meaning::StalledMem,
    Meaning::FpOps,
    Meaning::Divider,
    Meaning::LlcMisses,
    Meaning::Stores,
    Meaning::L2Misses,
    Meaning::DtlbMisses,
];

/// Estimates SF and EF of threads on this machine. Allocates nothing once it is made.
pub struct LiveEstimator {
    /// SF by core type; `None` where the model knows of none.
    by_type: Vec<Option<Estimate>>,
    /// The same of EF.
    efficiency: Vec<Option<Estimate>>,
}

/// What a forest says of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimated {
    /// Its speedup factor.
    Sf,
    /// Its energy efficiency factor.
    Ef,
}

/// SF or EF from one core type.
struct Estimate {
    per: Per,
    /// Of each feature; those that the PMU knows by no meaning have a code.
    events: Vec<Event>,
    features: Vec<Feature>,
    forest: Box<Forest>,
    /// Standard error of the logarithm of SF, where features are as they were where it was learnt.
    sigma: f64,
    /// And where they are nothing like that.
    spread: f64,
}

impl LiveEstimator {
    /// A model on core types that have these PMUs (`None`: nothing counts there).
    ///
    /// # Errors
    /// It cannot be laid out, as [`Model::check`] would have told.
    pub fn new<'p>(
        model: &Model,
        topology: &Topology,
        pmu_of: impl Fn(usize) -> Option<&'p Pmu>,
    ) -> Result<Self> {
        let by_type = |learnt: &[Speedup]| {
            let types = topology.types.iter().enumerate();
            let of_type = types.map(|(core_type, kind)| {
                let found = learnt.iter().find(|of| of.core_type == kind.name);
                match found.zip(pmu_of(core_type)) {
                    Some((speedup, pmu)) => Estimate::new(speedup, pmu).map(Some),
                    None => Ok(None),
                }
            });
            of_type.collect::<Result<_>>()
        };
        Ok(Self {
            by_type: by_type(&model.speedup)?,
            efficiency: by_type(&model.efficiency)?,
        })
    }

    /// The forest of SF, or of EF, from a core type with its features numbered as `place` says that events stand in
    /// samples, and what those are divided by; `None` where it has none, or where an event has no
    /// place, or not one of its own.
    pub fn laid_out(
        &self,
        what: Estimated,
        core_type: usize,
        place: impl Fn(&Event) -> Option<usize>,
    ) -> Option<(Per, Box<Forest>)> {
        let of = match what {
            Estimated::Sf => self.on(core_type)?,
            Estimated::Ef => self.efficiency.get(core_type)?.as_ref()?,
        };
        let places: Vec<usize> = of.events.iter().map(place).collect::<Option<_>>()?;
        let distinct: BTreeSet<&usize> = places.iter().collect();
        let fits =
            distinct.len() == places.len() && places.iter().all(|&place| place < MAX_FEATURES);
        fits.then(|| (of.per, of.forest.renumbered(&places)))
    }

    fn on(&self, core_type: usize) -> Option<&Estimate> {
        self.by_type.get(core_type)?.as_ref()
    }

    /// What its estimate from a core type is made of, with instructions and cycles; `None` if it has none.
    pub fn events(&self, core_type: usize) -> Option<&[Event]> {
        Some(&self.on(core_type)?.events)
    }

    /// What its estimates from a core type are made of, those of EF included.
    pub fn needs(&self, core_type: usize) -> Vec<Event> {
        let mut needs = self.events(core_type).unwrap_or_default().to_vec();
        if let Some(Some(of)) = self.efficiency.get(core_type) {
            let more = of.events.iter().filter(|event| !needs.contains(event));
            needs.extend(more.cloned().collect::<Vec<_>>());
        }
        needs
    }

    /// How sure it is of `sf`, which it has said of these counts; `None` if something was not counted.
    pub fn rated(&self, core_type: usize, counts: &EventCounts, sf: f64) -> Option<SfEstimate> {
        let of = self.on(core_type)?;
        let per = of.per(counts)?;
        let mut beyond = 0.0;
        for (event, feature) in of.events.iter().zip(&of.features) {
            beyond += feature.beyond(counts.of(event)? / per);
        }
        let sigma = model::sigma_beyond(of.sigma, of.spread, beyond);
        Some(SfEstimate { sf, sigma })
    }

    /// SF of a thread that counted this on a core type, and how sure it is; `None` if something was not
    /// counted.
    pub fn estimate(&self, core_type: usize, counts: &EventCounts) -> Option<SfEstimate> {
        self.rated(core_type, counts, self.sf(core_type, counts)?)
    }

    /// SF of a thread that counted this on a core type; `None` if something was not counted.
    pub fn sf(&self, core_type: usize, counts: &EventCounts) -> Option<f64> {
        self.on(core_type)?.of(counts)
    }

    /// EF of a thread that counted this on a core type; `None` if something was not counted, or the model
    /// says nothing of energy.
    pub fn ef(&self, core_type: usize, counts: &EventCounts) -> Option<f64> {
        self.efficiency.get(core_type)?.as_ref()?.of(counts)
    }
}

impl Estimate {
    fn new(speedup: &Speedup, pmu: &Pmu) -> Result<Self> {
        let (_, further) = countable(pmu);
        let event = |name: &String| {
            let code = further.iter().find(|(known, _)| known == name);
            match code {
                Some((_, code)) => code.clone(),
                None if name == INSTRUCTIONS => Meaning::Instructions.into(),
                None => Event::from(name.clone()),
            }
        };
        let features = &speedup.trees.features;
        Ok(Self {
            per: speedup.trees.per,
            events: features.iter().map(|of| event(&of.name)).collect(),
            features: features.clone(),
            forest: speedup.trees.forest()?,
            sigma: speedup.sigma(),
            spread: speedup.spread(),
        })
    }

    /// What it says of counts; `None` if something was not counted.
    fn of(&self, counts: &EventCounts) -> Option<f64> {
        let per = self.per(counts)?;
        let mut features = [0; MAX_FEATURES];
        for (to, event) in features.iter_mut().zip(&self.events) {
            *to = feature(counts.of(event)?.round() as u64, per.round() as u64);
        }
        Some(to_number(self.forest.score(&features)))
    }

    /// What features are divided by.
    fn per(&self, counts: &EventCounts) -> Option<f64> {
        counts.get(match self.per {
            Per::Cycle => Meaning::Cycles,
            Per::Instruction => Meaning::Instructions,
        })
    }
}
