// SPDX-License-Identifier: GPL-2.0-or-later
//! What is kept of a program.

use serde::{Deserialize, Serialize};

use super::curves::{self, KeptCurvePoint, ThreadCurve};
use super::kept::{KeptMean, MOST, Sure};
use super::losses::KeptCompany;
use super::profile::{PHASES, ProfilePhase, Slope, ThreadProfile};
use super::undisturbed::{self, KeptUndisturbed};
use crate::slowdown::Phase;
use crate::topology::MAX_CORE_TYPES;

/// What was known of contention counts for so much of itself once more comes.
const FADES: f64 = 0.9;

/// A phase of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptPhase {
    /// Which.
    pub phase: Phase,
    /// Logarithm of the instructions per cycle undisturbed on the fastest core type.
    pub alone: KeptMean,
    /// The clock there, Hz.
    pub frequency: f64,
    /// Logarithm of the SF of the fastest core type over the slowest.
    pub sf: KeptMean,
    /// [`ProgramKnowledge::threads`] when it was seen last.
    pub seen: u64,
}

/// What is kept of a program: all means are of logarithms, over its threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgramKnowledge {
    /// Threads that told something.
    pub threads: u64,
    /// Of these, those that behaved unlike the ones before.
    pub unlike: u64,
    /// SF over each core type.
    pub sf: [KeptMean; MAX_CORE_TYPES],
    /// Instructions per cycle on each core type, beside whatever ran.
    pub ipc: [KeptMean; MAX_CORE_TYPES],
    /// EF/SF.
    pub energy: KeptMean,
    /// Bytes/s on each core type.
    pub btr: [KeptMean; MAX_CORE_TYPES],
    /// Watts on each core type over what counts say.
    #[serde(default)]
    pub watts: [KeptMean; MAX_CORE_TYPES],
    /// What contention does to it on each core type.
    pub sensitivity: [Slope; MAX_CORE_TYPES],
    /// How much others suffer for each byte that it transfers, over what they do in the mean.
    #[serde(default)]
    pub aggressiveness: KeptMean,
    /// How many times slower a busy thread of the same core makes it.
    #[serde(default)]
    pub sibling: KeptMean,
    /// What it loses beside others, and others beside it.
    #[serde(default)]
    pub company: KeptCompany,
    /// At most [`PHASES`].
    pub phases: Vec<KeptPhase>,
    /// Its miss-rate curves, by core type and size: one of each at most, in order.
    #[serde(default)]
    pub curves: Vec<KeptCurvePoint>,
    /// How fast its threads are undisturbed, one of each phase on each core type.
    #[serde(default)]
    pub undisturbed: Vec<KeptUndisturbed>,
}

fn means(of: &mut ProgramKnowledge) -> impl Iterator<Item = &mut KeptMean> {
    let by_type = [&mut of.sf, &mut of.ipc, &mut of.btr, &mut of.watts];
    by_type
        .into_iter()
        .flatten()
        .chain([&mut of.energy, &mut of.sibling, &mut of.aggressiveness])
        .chain(of.curves.iter_mut().map(|of| &mut of.mpki))
}

impl ProgramKnowledge {
    /// Takes in what was found of a thread, and whether that is unlike what was known.
    pub fn take(&mut self, found: &ThreadProfile, unlike: bool) {
        self.threads += 1;
        if unlike {
            self.unlike += 1;
            means(self).for_each(KeptMean::doubt);
            self.company.doubt();
            self.sensitivity = Default::default();
            self.undisturbed.clear();
        }
        let each = [
            (&mut self.sf, &found.sf),
            (&mut self.ipc, &found.ipc),
            (&mut self.btr, &found.btr),
            (&mut self.watts, &found.watts),
        ];
        for (kept, found) in each {
            for (kept, found) in kept.iter_mut().zip(found) {
                found.iter().for_each(|&found| kept.take(found));
            }
        }
        found.energy.iter().for_each(|&of| self.energy.take(of));
        found.sibling.iter().for_each(|&of| self.sibling.take(of));
        let aggressiveness = &mut self.aggressiveness;
        found
            .aggressiveness
            .iter()
            .for_each(|&of| aggressiveness.take(of));
        for (kept, found) in self.sensitivity.iter_mut().zip(&found.sensitivity) {
            found.iter().for_each(|found| kept.add(found));
        }
        curves::take(&mut self.curves, &found.curves);
        undisturbed::take(&mut self.undisturbed, &found.undisturbed, self.threads);
        for found in found.phases.iter().flatten() {
            let seen = self.threads;
            let kept = self.phase_mut(&found.phase);
            kept.seen = seen;
            if let Some((ipc, frequency)) = found.alone {
                // What was expected and is measured otherwise counts no more than this.
                let expected = kept.alone.next();
                if expected.is_some_and(|of| !super::check::agrees(ipc.factor(), &of)) {
                    kept.alone.doubt();
                }
                kept.alone.take(ipc);
                kept.frequency = frequency;
            }
            found.sf.iter().for_each(|&of| kept.sf.take(of));
        }
    }

    /// Takes in what another store knows of the program: each counts by how much it has seen.
    pub fn merge(&mut self, other: &Self) {
        self.threads = self.threads.saturating_add(other.threads);
        self.unlike = self.unlike.saturating_add(other.unlike);
        let each = [
            (&mut self.sf, &other.sf),
            (&mut self.ipc, &other.ipc),
            (&mut self.btr, &other.btr),
            (&mut self.watts, &other.watts),
        ];
        for (kept, other) in each {
            kept.iter_mut().zip(other).for_each(|(a, b)| a.merge(b));
        }
        self.energy.merge(&other.energy);
        self.sibling.merge(&other.sibling);
        self.aggressiveness.merge(&other.aggressiveness);
        self.company.merge(&other.company);
        curves::merge(&mut self.curves, &other.curves);
        undisturbed::merge(&mut self.undisturbed, &other.undisturbed);
        for (kept, other) in self.sensitivity.iter_mut().zip(&other.sensitivity) {
            kept.add(other);
        }
        for other in &other.phases {
            let kept = self.phase_mut(&other.phase);
            kept.alone.merge(&other.alone);
            kept.sf.merge(&other.sf);
            if kept.frequency <= 0.0 {
                kept.frequency = other.frequency;
            }
            kept.seen = kept.seen.max(other.seen);
        }
    }

    /// What the next thread is expected to be like; `None` where that is anything.
    pub fn recollect(&self) -> Option<ThreadProfile> {
        let next = |of: &[KeptMean; MAX_CORE_TYPES]| of.map(|kept| kept.next());
        let mut told = ThreadProfile {
            sf: next(&self.sf),
            ipc: next(&self.ipc),
            energy: self.energy.next(),
            sibling: self.sibling.next(),
            aggressiveness: self.aggressiveness.next(),
            btr: next(&self.btr),
            watts: next(&self.watts),
            sensitivity: self.sensitivity.map(|of| (of.variance > 0.0).then_some(of)),
            phases: [None; PHASES],
            curves: std::array::from_fn(|on| self.curve(on)),
            undisturbed: undisturbed::recollect(&self.undisturbed),
        };
        let mut latest: Vec<&KeptPhase> = self.phases.iter().collect();
        latest.sort_by_key(|phase| phase.seen);
        let latest = latest.into_iter().rev().take(PHASES).rev();
        for (room, kept) in told.phases.iter_mut().zip(latest) {
            *room = Some(ProfilePhase {
                phase: kept.phase,
                alone: kept.alone.next().zip(Some(kept.frequency)),
                sf: kept.sf.next(),
            });
        }
        (!told.is_empty()).then_some(told)
    }

    /// The miss-rate curve of a core type, as its next thread is expected to have it.
    pub fn curve(&self, core_type: usize) -> ThreadCurve {
        curves::curve_on(&self.curves, core_type)
    }

    /// How sure the SF over the slowest of so many core types is: its next value.
    pub fn sf_over_slowest(&self, nr_types: usize) -> Option<Sure> {
        let slowest = nr_types.clamp(1, MAX_CORE_TYPES) - 1;
        let measured = self.sf[slowest].next();
        let [fast, slow] = [0, slowest].map(|on| self.ipc[on].next());
        let apart = fast.zip(slow).map(|(fast, slow)| Sure {
            value: fast.value - slow.value,
            variance: fast.variance + slow.variance,
        });
        measured.or(apart.filter(|_| slowest > 0))
    }

    /// Whether all numbers are such that one can go by them: it may come from a file.
    pub fn is_sound(&self) -> bool {
        let phases = self.phases.iter().flat_map(|of| [&of.alone, &of.sf]);
        let by_type = [&self.sf, &self.ipc, &self.btr, &self.watts];
        let means = by_type.into_iter().flatten().chain([
            &self.energy,
            &self.sibling,
            &self.aggressiveness,
        ]);
        let number = |of: &f64| (0.0..=1e40).contains(of);
        let slopes = self.sensitivity.iter();
        let mut sums = slopes.flat_map(|of| [of.covariance, of.variance]);
        let is_phase_sound = |of: &KeptPhase| of.phase.is_sound() && number(&of.frequency);
        self.phases.len() <= PHASES
            && self.unlike <= self.threads
            && self.company.is_sound()
            && curves::is_sound(&self.curves)
            && undisturbed::is_sound(&self.undisturbed)
            && means.chain(phases).all(KeptMean::is_sound)
            && sums.all(|of| number(&of))
            && self.phases.iter().all(is_phase_sound)
    }

    /// The phase that this one is, or a new one in the place of the one not seen for longest.
    fn phase_mut(&mut self, phase: &Phase) -> &mut KeptPhase {
        let distances = self.phases.iter().map(|of| of.phase.distance(phase));
        let nearest = distances.enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
        let same = nearest.filter(|&(at, _)| self.phases[at].phase.is_same(phase));
        if let Some((at, _)) = same {
            let kept = &mut self.phases[at];
            let values = kept.alone.values.max(kept.sf.values).min(MOST);
            kept.phase.approach(phase, 1.0 / (values + 1.0));
            return kept;
        }
        let fresh = KeptPhase {
            phase: *phase,
            ..KeptPhase::default()
        };
        let at = match self.phases.len() < PHASES {
            true => {
                self.phases.push(fresh);
                self.phases.len() - 1
            }
            false => {
                let ages = self.phases.iter().map(|of| of.seen).enumerate();
                let oldest = ages.min_by_key(|&(_, seen)| seen).map_or(0, |(at, _)| at);
                self.phases[oldest] = fresh;
                oldest
            }
        };
        &mut self.phases[at]
    }
}

impl Slope {
    /// Takes another in; what was there before counts less.
    fn add(&mut self, other: &Self) {
        self.covariance = self.covariance * FADES + other.covariance;
        self.variance = self.variance * FADES + other.variance;
    }
}

#[cfg(test)]
mod tests {
    use super::super::ProfilePhase;
    use super::*;
    use crate::testing::phase;

    fn found(sf: f64, phases: &[(f64, f64)]) -> ThreadProfile {
        let mut found = ThreadProfile::default();
        found.sf[1] = Sure::of_factor(sf, 0.005);
        for &(l1, ipc) in phases {
            found.add_phase(ProfilePhase {
                phase: phase(l1),
                alone: Sure::of_factor(ipc, 0.0025).map(|ipc| (ipc, 4e9)),
                sf: None,
            });
        }
        found
    }

    #[test]
    fn what_threads_were_like_is_what_the_next_one_is_expected_to_be() {
        let mut program = ProgramKnowledge::default();
        assert_eq!(program.recollect(), None);
        for _ in 0..3 {
            program.take(&found(2.0, &[(300.0, 1.5), (100.0, 3.0)]), false);
        }
        let told = program.recollect().unwrap();
        assert!((told.sf[1].unwrap().factor() - 2.0).abs() < 1e-9);
        assert_eq!(told.phases.iter().flatten().count(), 2);
        let (ipc, clock) = told.phase(&phase(105.0)).unwrap().alone.unwrap();
        assert!((ipc.factor() - 3.0).abs() < 1e-9 && clock == 4e9);
        assert!(told.phase(&phase(200.0)).is_none() && program.is_sound());
        let vague = told.vaguely(4.0);
        assert_eq!(
            vague.sf[1].unwrap().variance,
            4.0 * told.sf[1].unwrap().variance
        );
    }

    #[test]
    fn what_proved_wrong_is_forgotten() {
        let mut program = ProgramKnowledge::default();
        (0..40).for_each(|_| program.take(&found(1.2, &[(300.0, 1.5)]), false));
        let other = found(2.5, &[(300.0, 0.5)]);
        for unlike in [true, false, false, false] {
            program.take(&other, unlike);
        }
        let told = program.recollect().unwrap();
        let sf = told.sf[1].unwrap();
        assert!(sf.factor() > 2.1 && sf.variance.sqrt() > 0.2, "{sf:?}");
        let (ipc, _) = told.phase(&phase(300.0)).unwrap().alone.unwrap();
        assert!(ipc.factor() < 0.7, "{ipc:?}");
        assert_eq!((program.threads, program.unlike), (44, 1));
    }

    #[test]
    fn phases_are_bounded_and_the_one_not_seen_for_longest_gives_way() {
        let mut program = ProgramKnowledge::default();
        for nth in 0..2 * PHASES {
            program.take(&found(2.0, &[(100.0 * nth as f64, 1.0)]), false);
        }
        assert_eq!(program.phases.len(), PHASES);
        let told = program.recollect().unwrap();
        assert!(told.phase(&phase(0.0)).is_none() && told.phase(&phase(1500.0)).is_some());
    }

    #[test]
    fn what_another_store_knows_counts_by_what_it_has_seen() {
        let (mut one, mut other) = (ProgramKnowledge::default(), ProgramKnowledge::default());
        one.take(&found(2.0, &[(300.0, 1.0)]), false);
        (0..3).for_each(|_| other.take(&found(4.0, &[(300.0, 2.0), (700.0, 1.0)]), false));
        one.merge(&other);
        let told = one.recollect().unwrap();
        assert!((told.sf[1].unwrap().factor() - 2.0 * 2f64.powf(0.75)).abs() < 1e-6);
        assert_eq!((one.threads, one.phases.len()), (4, 2));
        one.sf[0].mean = f64::NAN;
        assert!(!one.is_sound());
    }
}
