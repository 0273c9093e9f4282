// SPDX-License-Identifier: GPL-2.0-or-later
//! Which features are worth their counters.

use std::collections::BTreeSet;

use anyhow::Result;

use hetero_core::ml::boosting::Boosting;
use hetero_core::ml::data::Data;
use hetero_core::ml::header::CountedBy;
use hetero_core::ml::learn::View;
use hetero_core::ml::validate::speedups;
use hetero_core::pmu::sets::fit;
use hetero_core::pmu::{Counters, Encoding};

/// Of fewer features the error may be so much greater.
pub(crate) const WORTH: f64 = 1.02;
/// And so much greater of some that are counted at once, where more would have to take turns.
const WORTH_TURNS: f64 = 1.3;

/// What estimates of SF on a core type are learnt from: starts with `all`, and leaves out the
/// feature that is missed least, again and again. Of the views on the way the smallest is taken
/// whose mean absolute error on programs not learnt from is within 2 % of the best; or if the PMU
/// does not count that `at_once`, the best found that it does, within 30 %.
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
    let least_of = |may: &dyn Fn(&[usize]) -> bool| {
        let errors = way.iter().filter(|(_, features)| may(features));
        errors
            .map(|(error, _)| *error)
            .fold(f64::INFINITY, f64::min)
    };
    let fewest = |most: f64, may: &dyn Fn(&[usize]) -> bool| {
        let mut from_fewest = way.iter().rev();
        from_fewest.find(|(error, features)| *error <= most && may(features))
    };
    let least = least_of(&|_| true);
    if let Some((_, features)) = fewest(least * WORTH, at_once) {
        return Ok(view(features.clone()));
    }
    if let Some(limited) = fewest(least_of(at_once) * WORTH, at_once) {
        let (least_at_once, features) = exchange(limited.clone(), all, at_once, &error)?;
        if least_at_once <= least * WORTH_TURNS {
            return Ok(view(features));
        }
    }
    let taking_turns = fewest(least * WORTH, &|_| true);
    Ok(view(taking_turns.map_or_else(
        || all.to_vec(),
        |(_, features)| features.clone(),
    )))
}

/// Exchanges one feature for another as long as that lessens the error: what was left out while others
/// were there may serve best without them.
pub(crate) fn exchange(
    mut now: (f64, Vec<usize>),
    all: &[usize],
    at_once: &dyn Fn(&[usize]) -> bool,
    error: &dyn Fn(&[usize]) -> Result<f64>,
) -> Result<(f64, Vec<usize>)> {
    loop {
        let mut best = now.clone();
        for place in 0..now.1.len() {
            for &other in all.iter().filter(|other| !now.1.contains(other)) {
                let mut features = now.1.clone();
                features[place] = other;
                features.sort_unstable();
                if !at_once(&features) {
                    continue;
                }
                let error = error(&features)?;
                if error < best.0 {
                    best = (error, features);
                }
            }
        }
        if best.0 >= now.0 {
            return Ok(now);
        }
        now = best;
    }
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
    use hetero_core::ml::header::EventCounted;

    #[test]
    fn events_need_counters_that_can_count_them() {
        let event = |name: &str, general, fixed| {
            let counted = EventCounted {
                name: name.to_string(),
                general,
                fixed,
                sources: BTreeSet::new(),
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

    #[test]
    fn what_serves_better_without_the_others_takes_their_place() {
        let two = |features: &[usize]| features.len() == 2;
        let worth = [0.1, 0.4, 0.2, 0.3];
        let error = |features: &[usize]| -> Result<f64> {
            Ok(1.0 - features.iter().map(|&feature| worth[feature]).sum::<f64>())
        };
        let (error, features) = exchange((0.7, vec![0, 2]), &[0, 1, 2, 3], &two, &error).unwrap();
        assert_eq!(features, [1, 3]);
        assert!((error - 0.3).abs() < 1e-9);
    }
}
