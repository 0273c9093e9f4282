// SPDX-License-Identifier: GPL-2.0-only
//! Which features are worth their counters.

use std::collections::BTreeSet;

use anyhow::Result;

use super::boosting::Boosting;
use super::data::Data;
use super::header::CountedBy;
use super::learn::View;
use super::validate::speedups;
use crate::pmu::sets::fit;
use crate::pmu::{Counters, Encoding};

/// Of fewer features the error may be so much greater.
const WORTH: f64 = 1.02;
/// And so much greater of some that are counted at once, where more would have to take turns.
const WORTH_TURNS: f64 = 1.1;

/// What estimates of SF on a core type are learnt from: starts with `all`, and leaves out the
/// feature that is missed least, again and again. Of the views on the way the smallest is taken
/// whose mean absolute error on programs not learnt from is within 2 % of the best; or if the PMU
/// does not count that `at_once`, the smallest that it does, within 10 %.
///
/// # Errors
/// Nothing can be learnt.
pub fn select(
    data: &Data,
    core_type: usize,
    all: &[usize],
    boosting: &Boosting,
    groups: &[usize],
    at_once: &dyn Fn(&[usize]) -> bool,
) -> Result<View> {
    let view = |features: Vec<usize>| View {
        features,
        core_type: false,
    };
    let error = |features: &[usize]| -> Result<f64> {
        let found = speedups(data, core_type, &view(features.to_vec()), boosting, groups)?;
        Ok(found.nearness().mae)
    };
    let mut now = all.to_vec();
    let mut way = vec![(error(&now)?, now.clone())];
    while now.len() > 1 {
        let mut best: Option<(f64, Vec<usize>)> = None;
        for left_out in &now {
            let fewer: Vec<usize> = now
                .iter()
                .copied()
                .filter(|feature| feature != left_out)
                .collect();
            let error = error(&fewer)?;
            if best.as_ref().is_none_or(|(least, _)| error < *least) {
                best = Some((error, fewer));
            }
        }
        let Some(step) = best else { break };
        now.clone_from(&step.1);
        way.push(step);
    }
    let least = way
        .iter()
        .map(|(error, _)| *error)
        .fold(f64::INFINITY, f64::min);
    let within = |worth: f64, turns: bool| {
        let mut from_fewest = way.iter().rev();
        from_fewest
            .find(|(error, features)| *error <= least * worth && (turns || at_once(features)))
    };
    let chosen = within(WORTH, false)
        .or_else(|| within(WORTH_TURNS, false))
        .or_else(|| within(WORTH, true));
    Ok(view(chosen.map_or_else(
        || all.to_vec(),
        |(_, features)| features.clone(),
    )))
}

/// Whether a PMU counts these events at once, with instructions and cycles and beside the kernel's NMI
/// watchdog, which counts cycles of its own on most machines; `None` if one of them is not known to it.
pub fn at_once(pmu: &CountedBy, events: &BTreeSet<&str>) -> Option<bool> {
    let always = ["instructions", "cycles", "cycles"];
    let encodings = always.iter().chain(events).map(|name| {
        let event = pmu.events.get(*name)?;
        Some(Encoding {
            fixed: event.fixed,
            general: event.general,
            ..Encoding::raw(0, event.name.clone())
        })
    });
    let encodings: Vec<Encoding> = encodings.collect::<Option<_>>()?;
    let [general, fixed] = pmu.counters;
    Some(fit(
        &encodings.iter().collect::<Vec<_>>(),
        Counters { general, fixed },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ml::header::EventCounted;

    #[test]
    fn events_need_counters_that_can_count_them() {
        let event = |name: &str, general, fixed| {
            let counted = EventCounted {
                name: name.to_string(),
                general,
                fixed,
            };
            (name.to_string(), counted)
        };
        let pmu = CountedBy {
            core_type: "P".into(),
            microarchitecture: "some".into(),
            counters: [3, 2],
            events: [
                event("instructions", u64::MAX, Some(0)),
                event("cycles", u64::MAX, Some(1)),
                event("loads", 1, None),
                event("stores", 1, None),
                event("branches", u64::MAX, None),
                event("misses", u64::MAX, None),
            ]
            .into(),
        };
        let fits = |names: &[&'static str]| at_once(&pmu, &names.iter().copied().collect());
        assert_eq!(fits(&["loads", "branches"]), Some(true));
        assert_eq!(fits(&["loads", "stores"]), Some(false));
        assert_eq!(fits(&["loads", "branches", "misses"]), Some(false));
        assert_eq!(fits(&["weather"]), None);
    }
}
