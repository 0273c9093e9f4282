// SPDX-License-Identifier: GPL-2.0-or-later
//! What policies are made of: how far threads have come ([`progress`]) and what they had ([`ledger`]),
//! how fast they are where ([`speedup`], from [`speeds`] measured, [`learnt`] models and what earlier runs
//! have [`expected`]), which of them
//! are to find that out ([`explore`]), and which change places ([`swap`], [`exchange`], [`balance`]).

pub(super) mod balance;
pub(super) mod demand;
pub(super) mod exchange;
pub(super) mod expected;
pub(super) mod explore;
pub(super) mod learnt;
pub(super) mod ledger;
pub(super) mod mean;
pub(crate) mod progress;
pub(super) mod speeds;
pub(crate) mod speedup;
pub(super) mod swap;
pub(super) mod threshold;
pub(super) mod trust;
pub(super) mod weights;

use std::time::Duration;

use crate::topology::MAX_CORE_TYPES;
use swap::SwapCandidate;

/// Time between decisions: the paper's monitoring interval.
pub(super) const LOOK: Duration = Duration::from_millis(50);

/// A slowdown is passed on when it changed by more than this part of itself.
const CHANGE: f32 = 0.03;

/// Whether threads compete: some are on a type faster than that of others.
pub(super) fn is_contested(runners: &[SwapCandidate]) -> bool {
    let mut places = runners.iter().map(|runner| runner.place);
    let first = places.next();
    places.any(|place| Some(place) != first)
}

/// Whether `inverse` is worth telling the BPF half, which knows `told`; notes that it is told.
pub(super) fn tell(
    told: &mut Option<[f32; MAX_CORE_TYPES]>,
    inverse: [f32; MAX_CORE_TYPES],
) -> bool {
    let differs = |told: [f32; MAX_CORE_TYPES]| {
        let mut pairs = told.iter().zip(&inverse);
        pairs.any(|(told, now)| (told - now).abs() > CHANGE * told)
    };
    let news = told.is_none_or(differs);
    if news {
        *told = Some(inverse);
    }
    news
}

/// What is known of threads' speeds, in earlier runs of their programs, too, is known to a field of a policy: see
/// [`super::Policy::rest`], [`super::Policy::remember`] and what follows it there.
macro_rules! remembers {
    ($field:ident) => {
        fn rest(&mut self, snapshot: &$crate::policy::Snapshot) {
            self.$field.rest(snapshot);
        }

        fn remembers(&self) -> bool {
            true
        }

        fn remember(
            &mut self,
            task: $crate::table::TaskId,
            known: &$crate::knowledge::ThreadProfile,
        ) {
            self.$field.remember(task, known);
        }

        fn find(&self, task: $crate::table::TaskId, found: &mut $crate::knowledge::ThreadProfile) {
            self.$field.find(task, found);
        }

        fn past(&self, task: $crate::table::TaskId) -> $crate::knowledge::Past {
            self.$field.past(task)
        }
    };
}

pub(super) use remembers;
