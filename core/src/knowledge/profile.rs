// SPDX-License-Identifier: GPL-2.0-or-later
//! What a thread is like, as a policy has found it, or is told of its program: of fixed size, so that it takes no
//! memory while decisions are made.

use serde::{Deserialize, Serialize};

use super::curves::ThreadCurves;
use super::kept::Sure;
use super::losses::ThreadLosses;
use super::undisturbed::{UndisturbedProfile, is_profile_sound};
use crate::slowdown::Phase;
use crate::topology::MAX_CORE_TYPES;

/// Phases that are kept of a program.
pub const PHASES: usize = 8;

/// How many times slower a thread is for each byte/s that others transfer: *k* of 1 + *k* B, as sums of least
/// squares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slope {
    /// B times the slowdown beyond 1, (bytes/s).
    pub covariance: f64,
    /// B squared, (bytes/s)².
    pub variance: f64,
}

/// A phase of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProfilePhase {
    /// Which.
    pub phase: Phase,
    /// Instructions per cycle undisturbed on the fastest core type, and the clock there, Hz.
    pub alone: Option<(Sure, f64)>,
    /// SF of the fastest core type over the slowest, measured.
    pub sf: Option<Sure>,
}

/// What a thread was found to be like in its life, or is expected to be like from its program's earlier runs, and
/// how sure that is; empty where nothing is known, or the policy has no such thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadProfile {
    /// How much faster it is on the fastest core type than on each, measured on both.
    pub sf: [Option<Sure>; MAX_CORE_TYPES],
    /// Instructions per cycle on each core type, beside whatever ran.
    pub ipc: [Option<Sure>; MAX_CORE_TYPES],
    /// EF/SF, as a model has it (PMCTrack 2017, Eq. 6).
    pub energy: Option<Sure>,
    /// What it transferred, bytes/s, by core type.
    pub btr: [Option<Sure>; MAX_CORE_TYPES],
    /// What contention does to it on each core type.
    pub sensitivity: [Option<Slope>; MAX_CORE_TYPES],
    /// How much others suffer for each byte that it transfers, over what they do in the mean.
    pub aggressiveness: Option<Sure>,
    /// How many times slower a busy thread of the same core makes it ([`crate::slowdown::sibling`]).
    pub sibling: Option<Sure>,
    /// What it takes while it runs on each core type over what its counts say, which joules are shared by and no policy goes by.
    /// No recording has it.
    #[serde(skip)]
    pub watts: [Option<Sure>; MAX_CORE_TYPES],
    /// Its phases, the latest last.
    pub phases: [Option<ProfilePhase>; PHASES],
    /// What it misses by core type and size of the cache, which no policy goes by. No recording has it.
    #[serde(skip)]
    pub curves: ThreadCurves,
    /// How fast it is undisturbed, which the classification of interference goes by and no policy. Recordings have a
    /// record of its own for it.
    #[serde(skip)]
    pub undisturbed: UndisturbedProfile,
}

impl ThreadProfile {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// This, and what was found `before` where this says nothing: another policy may have found that.
    pub fn or(mut self, before: &Self) -> Self {
        fn fill<T: Copy>(own: &mut [Option<T>], before: &[Option<T>]) {
            for (own, before) in own.iter_mut().zip(before) {
                *own = own.or(*before);
            }
        }
        fill(&mut self.sf, &before.sf);
        fill(&mut self.ipc, &before.ipc);
        fill(&mut self.btr, &before.btr);
        fill(&mut self.watts, &before.watts);
        fill(&mut self.sensitivity, &before.sensitivity);
        for (own, before) in self.curves.iter_mut().zip(&before.curves) {
            fill(own, before);
        }
        self.energy = self.energy.or(before.energy);
        self.sibling = self.sibling.or(before.sibling);
        self.aggressiveness = self.aggressiveness.or(before.aggressiveness);
        if self.phases[0].is_none() {
            self.phases = before.phases;
        }
        if self.undisturbed[0].is_none() {
            self.undisturbed = before.undisturbed;
        }
        self
    }

    /// Puts a phase among the others, if there is room.
    pub fn add_phase(&mut self, found: ProfilePhase) {
        if let Some(room) = self.phases.iter_mut().find(|of| of.is_none()) {
            *room = Some(found);
        }
    }

    /// The phase nearest to this one, if that is the same.
    pub fn phase(&self, phase: &Phase) -> Option<&ProfilePhase> {
        let apart = |of: &&ProfilePhase| of.phase.distance(phase);
        let phases = self.phases.iter().flatten();
        let nearest = phases.min_by(|a, b| apart(a).total_cmp(&apart(b)));
        nearest.filter(|of| of.phase.is_same(phase))
    }

    /// Whether all numbers are such that one can go by them: it may come from a file.
    pub fn is_sound(&self) -> bool {
        let by_type = [&self.sf, &self.ipc, &self.btr, &self.watts];
        let sure = by_type
            .into_iter()
            .flatten()
            .chain([&self.energy, &self.sibling, &self.aggressiveness])
            .flatten();
        let phases = || self.phases.iter().flatten();
        let alone = phases().filter_map(|of| of.alone.as_ref());
        let sf = phases().filter_map(|of| of.sf.as_ref());
        let mut clocks = alone.clone().map(|(_, clock)| clock);
        let mut all = sure.chain(alone.map(|(ipc, _)| ipc)).chain(sf);
        let mut slopes = self.sensitivity.iter().flatten();
        all.all(Sure::is_sound)
            && clocks.all(|clock| (0.0..=1e12).contains(clock))
            && is_profile_sound(&self.undisturbed)
            && slopes.all(|of| of.covariance >= 0.0 && of.variance > 0.0 && of.variance <= 1e40)
    }

    /// Less sure, as of a program that is only like this one: by so many times the variance.
    pub fn vaguely(mut self, times: f64) -> Self {
        let widen = |of: &mut Sure| of.variance *= times;
        let each = [&mut self.sf, &mut self.ipc, &mut self.btr, &mut self.watts];
        each.into_iter().flatten().flatten().for_each(widen);
        self.energy.iter_mut().for_each(widen);
        self.sibling.iter_mut().for_each(widen);
        self.aggressiveness.iter_mut().for_each(widen);
        let curves = self.curves.iter_mut().flatten();
        curves.flatten().for_each(widen);
        for phase in self.phases.iter_mut().flatten() {
            phase.alone.iter_mut().for_each(|(of, _)| widen(of));
            phase.sf.iter_mut().for_each(widen);
        }
        for of in self.undisturbed.iter_mut().flatten() {
            widen(&mut of.ipc);
        }
        for slope in self.sensitivity.iter_mut().flatten() {
            slope.covariance /= times;
            slope.variance /= times;
        }
        self
    }
}

/// What a policy has found of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThreadFinding {
    /// What it is like. Of a thread that lives on this comes again, and stands in the place of what came before.
    pub profile: ThreadProfile,
    /// What it lost to others since this was told last; unlike the profile that is added to what came before.
    pub losses: ThreadLosses,
    /// It is unlike what was known of its program.
    pub unlike: bool,
    /// The thread has ended: no more comes of it.
    pub last: bool,
}

/// What is known of the program that a thread runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Remembered<'k> {
    /// Nothing is, or nothing ever will be.
    #[default]
    Nothing,
    /// It is looked up: ask again.
    Later,
    /// This.
    Known(&'k ThreadProfile),
}
