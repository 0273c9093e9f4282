// SPDX-License-Identifier: GPL-2.0-or-later
//! How fast a program's threads are undisturbed, by core type and phase ([`crate::interference::undisturbed`]): what the
//! next one is compared with until it was seen undisturbed itself.

use serde::{Deserialize, Serialize};

use super::kept::{KeptMean, Sure};
use crate::interference::undisturbed::ENTRIES;
use crate::slowdown::Phase;
use crate::topology::MAX_CORE_TYPES;

/// A phase on a core type, with nothing in its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UndisturbedRates {
    /// Core type, index.
    pub core_type: usize,
    /// Which phase.
    pub phase: Phase,
    /// Instructions per cycle.
    pub ipc: Sure,
    /// Misses of the last-level cache in an instruction, where counted.
    pub llc_misses: Option<f64>,
}

/// Those of a thread.
pub type UndisturbedProfile = [Option<UndisturbedRates>; ENTRIES];

/// Those of a program, one of each phase on each core type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptUndisturbed {
    /// Core type, index.
    pub core_type: usize,
    /// Which phase.
    pub phase: Phase,
    /// Logarithm of the instructions per cycle.
    pub ipc: KeptMean,
    /// Misses of the last-level cache in an instruction, where counted.
    pub llc_misses: Option<f64>,
    /// [`super::ProgramKnowledge::threads`] when it was seen last.
    pub seen: u64,
}

impl KeptUndisturbed {
    fn is_of(&self, core_type: usize, phase: &Phase) -> bool {
        self.core_type == core_type && self.phase.is_same(phase)
    }

    /// What the next thread will be like.
    fn next(&self) -> Option<UndisturbedRates> {
        Some(UndisturbedRates {
            core_type: self.core_type,
            phase: self.phase,
            ipc: self.ipc.next()?,
            llc_misses: self.llc_misses,
        })
    }

    fn is_sound(&self) -> bool {
        self.core_type < MAX_CORE_TYPES
            && self.phase.is_sound()
            && self.ipc.is_sound()
            && self.llc_misses.is_none_or(|of| (0.0..=1e3).contains(&of))
    }
}

/// Whether all numbers are such that one can go by them: they may come from a file.
pub(super) fn is_sound(kept: &[KeptUndisturbed]) -> bool {
    kept.len() <= ENTRIES && kept.iter().all(KeptUndisturbed::is_sound)
}

/// Whether a thread's are.
pub(crate) fn is_profile_sound(told: &UndisturbedProfile) -> bool {
    told.iter().flatten().all(|of| {
        of.core_type < MAX_CORE_TYPES
            && of.phase.is_sound()
            && of.ipc.is_sound()
            && of.llc_misses.is_none_or(|of| (0.0..=1e3).contains(&of))
    })
}

/// Takes in what was found of a thread, the `seen`th of its program.
pub(super) fn take(kept: &mut Vec<KeptUndisturbed>, found: &UndisturbedProfile, seen: u64) {
    for found in found.iter().flatten() {
        let mut ipc = KeptMean::default();
        ipc.take(found.ipc);
        let found = KeptUndisturbed {
            core_type: found.core_type,
            phase: found.phase,
            ipc,
            llc_misses: found.llc_misses,
            seen,
        };
        add(kept, &found);
    }
}

/// Takes in what another store knows.
pub(super) fn merge(kept: &mut Vec<KeptUndisturbed>, other: &[KeptUndisturbed]) {
    other.iter().for_each(|other| add(kept, other));
}

/// Where there is no room the one not seen for longest gives way.
fn add(kept: &mut Vec<KeptUndisturbed>, other: &KeptUndisturbed) {
    let same = |of: &&mut KeptUndisturbed| of.is_of(other.core_type, &other.phase);
    if let Some(there) = kept.iter_mut().find(same) {
        // What was expected and is measured otherwise counts no more than this.
        let (expected, now) = (there.ipc.next(), other.ipc.next());
        if let Some((expected, now)) = expected.zip(now)
            && !super::agrees(now.factor(), &expected)
        {
            there.ipc.doubt();
        }
        there.ipc.merge(&other.ipc);
        let weight = other.ipc.values / there.ipc.values.max(other.ipc.values);
        there.phase.approach(&other.phase, weight);
        there.llc_misses = match (there.llc_misses, other.llc_misses) {
            (Some(of), Some(other)) => Some(of + (other - of) * weight),
            (of, other) => other.or(of),
        };
        there.seen = there.seen.max(other.seen);
    } else if kept.len() < ENTRIES {
        kept.push(*other);
    } else if let Some(oldest) = kept.iter_mut().min_by_key(|of| of.seen) {
        *oldest = *other;
    }
}

/// What the next thread is expected to be like.
pub(super) fn recollect(kept: &[KeptUndisturbed]) -> UndisturbedProfile {
    let mut told = UndisturbedProfile::default();
    for (room, kept) in told.iter_mut().zip(kept) {
        *room = kept.next();
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::phase;

    fn found(core_type: usize, l1: f64, ipc: f64) -> UndisturbedProfile {
        let mut found = UndisturbedProfile::default();
        found[0] = Some(UndisturbedRates {
            core_type,
            phase: phase(l1),
            ipc: Sure::of_factor(ipc, 0.001).unwrap(),
            llc_misses: Some(0.01 / ipc),
        });
        found
    }

    fn told(kept: &[KeptUndisturbed], core_type: usize, l1: f64) -> Option<UndisturbedRates> {
        let told = recollect(kept);
        let here = told.into_iter().flatten();
        let mut here = here.filter(|of| of.core_type == core_type);
        here.find(|of| of.phase.is_same(&phase(l1)))
    }

    #[test]
    fn phases_are_kept_by_core_type_and_the_more_threads_agree_the_surer() {
        let mut kept = Vec::new();
        take(&mut kept, &found(0, 300.0, 2.0), 1);
        let once = told(&kept, 0, 300.0).unwrap();
        (2..6).for_each(|seen| take(&mut kept, &found(0, 301.0, 2.0), seen));
        take(&mut kept, &found(1, 300.0, 0.5), 6);
        let (fast, slow) = (
            told(&kept, 0, 300.0).unwrap(),
            told(&kept, 1, 300.0).unwrap(),
        );
        assert!((fast.ipc.factor() - 2.0).abs() < 1e-9 && (slow.ipc.factor() - 0.5).abs() < 1e-9);
        assert!(fast.ipc.variance < once.ipc.variance / 2.0);
        assert_eq!(slow.llc_misses, Some(0.02));
        assert!(is_sound(&kept) && is_profile_sound(&recollect(&kept)));
        kept[0].core_type = MAX_CORE_TYPES;
        assert!(!is_sound(&kept) && !is_profile_sound(&recollect(&kept)));
    }

    #[test]
    fn they_are_bounded_and_what_is_found_otherwise_is_followed() {
        let mut kept = Vec::new();
        for nth in 0..=ENTRIES as u64 {
            take(&mut kept, &found(0, 100.0 * nth as f64, 1.0), nth);
        }
        assert_eq!(kept.len(), ENTRIES);
        assert!(told(&kept, 0, 0.0).is_none() && told(&kept, 0, 100.0).is_some());
        (10..40).for_each(|nth| take(&mut kept, &found(0, 100.0, 1.0), nth));
        let mut other = Vec::new();
        take(&mut other, &found(0, 100.0, 2.0), 1);
        merge(&mut kept, &other);
        let ipc = told(&kept, 0, 100.0).unwrap().ipc;
        assert!((ipc.value - 2f64.ln() / 2.0).abs() < 1e-9, "{ipc:?}");
    }
}
