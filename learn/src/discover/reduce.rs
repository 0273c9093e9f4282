// SPDX-License-Identifier: GPL-2.0-or-later
//! From all events to those that say different things: what never changes and what goes with another event is
//! left out, and principal components tell how much the others still have in common.

use std::cmp::Reverse;

use anyhow::Result;
use hetero_core::ml::data::{Data, INSTRUCTIONS};
use hetero_core::ml::header::EventCounted;
use hetero_core::pmu::Meaning;
use linfa_linalg::eigh::{EigSort, Eigh};
use ndarray::{Array2, Axis};

/// Two events with so much correlation are taken for one.
const TWINS: f64 = 0.98;
/// Principal components are shown that explain so much of the variance together.
pub(super) const EXPLAINED: f64 = 0.95;

/// Which of two twins is kept, the lesser: what is counted anyway, then what has a meaning that others know,
/// then what more counters can count, then by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EventRank {
    counted_anyway: Reverse<bool>,
    known: Reverse<bool>,
    counters: Reverse<u32>,
    name: String,
}

impl EventRank {
    /// Of a feature, and the event it is made of.
    pub(super) fn of(name: &str, event: Option<&EventCounted>) -> Self {
        let counters = event.map_or(0, |of| {
            of.general.count_ones() + u32::from(of.fixed.is_some())
        });
        Self {
            counted_anyway: Reverse(name == INSTRUCTIONS),
            known: Reverse(name.parse::<Meaning>().is_ok()),
            counters: Reverse(counters),
            name: name.to_string(),
        }
    }
}

/// A direction in which the events vary, independent of the others.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Component {
    /// The part of the variance that it explains, 0 to 1.
    pub part: f64,
    /// How much of it each event is, -1 to 1, the most first.
    pub loads: Vec<(usize, f64)>,
}

/// What is left of the events, as features by index.
#[derive(Clone, Debug, Default)]
pub(super) struct Reduced {
    /// Those that say different things.
    pub kept: Vec<usize>,
    /// Those that are the same in all rows.
    pub constant: Vec<usize>,
    /// Those that were not counted in all rows.
    pub lacking: Vec<usize>,
    /// Those that go with one that is kept, which that is, and their correlation.
    pub twins: Vec<(usize, usize, f64)>,
    /// As many principal components as explain [`EXPLAINED`].
    pub components: Vec<Component>,
}

/// Reduces the features of a core type's rows that `may` be used, of twins the one with the lesser `rank`.
///
/// # Errors
/// The components cannot be computed.
pub(super) fn reduce(
    data: &Data,
    core_type: usize,
    may: &dyn Fn(usize) -> bool,
    rank: &dyn Fn(usize) -> EventRank,
) -> Result<Reduced> {
    let rows = data.rows_of(core_type);
    let column = |feature: usize| -> Vec<f64> {
        rows.iter()
            .map(|&row| data.rows[row].features[feature])
            .collect()
    };
    let mut reduced = Reduced::default();
    let usable = data.usable(&[core_type]);
    for feature in (0..data.features.len()).filter(|&feature| may(feature)) {
        let values = column(feature);
        match values.iter().filter(|value| value.is_nan()).count() {
            _ if usable.contains(&feature) => reduced.kept.push(feature),
            0 => reduced.constant.push(feature),
            // Another PMU's.
            all if all == values.len() => (),
            _ => reduced.lacking.push(feature),
        }
    }
    let mut best_first = std::mem::take(&mut reduced.kept);
    best_first.sort_by_cached_key(|&feature| rank(feature));
    let columns: Vec<Vec<f64>> = best_first
        .iter()
        .map(|&feature| standard(&column(feature)))
        .collect();
    let mut kept: Vec<usize> = Vec::new();
    for (n, &feature) in best_first.iter().enumerate() {
        let like = |&other: &usize| {
            let r = correlation(&columns[n], &columns[other]);
            (r.abs() > TWINS).then_some((feature, best_first[other], r))
        };
        match kept.iter().find_map(like) {
            Some(twin) => reduced.twins.push(twin),
            None => kept.push(n),
        }
    }
    reduced.kept = kept.iter().map(|&n| best_first[n]).collect();
    let columns: Vec<Vec<f64>> = kept.iter().map(|&n| columns[n].clone()).collect();
    reduced.components = components(&columns, &reduced.kept)?;
    Ok(reduced)
}

/// With a mean of 0 and a standard deviation of 1.
fn standard(values: &[f64]) -> Vec<f64> {
    let number = values.len() as f64;
    let mean = values.iter().sum::<f64>() / number;
    let variance = values
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>()
        / number;
    let spread = variance.sqrt().max(f64::MIN_POSITIVE);
    values.iter().map(|value| (value - mean) / spread).collect()
}

/// Pearson's, of standardised values.
fn correlation(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>() / a.len() as f64
}

/// The principal components of standardised columns, named by `features`: the eigenvectors of their correlations.
fn components(columns: &[Vec<f64>], features: &[usize]) -> Result<Vec<Component>> {
    if columns.is_empty() {
        return Ok(Vec::new());
    }
    let number = columns.len();
    let correlations = Array2::from_shape_fn((number, number), |(a, b)| {
        correlation(&columns[a], &columns[b])
    });
    let (values, vectors) = correlations.eigh()?.sort_eig_desc();
    let mut components = Vec::new();
    let mut explained = 0.0;
    for (value, direction) in values.iter().zip(vectors.axis_iter(Axis(1))) {
        if explained >= EXPLAINED {
            break;
        }
        let part = value / number as f64;
        explained += part;
        let mut loads: Vec<(usize, f64)> = features
            .iter()
            .copied()
            .zip(direction.iter().copied())
            .collect();
        loads.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
        // Which end is which, nothing says.
        if loads.first().is_some_and(|(_, most)| *most < 0.0) {
            loads.iter_mut().for_each(|(_, load)| *load = -*load);
        }
        components.push(Component { part, loads });
    }
    Ok(components)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::tests::invented;
    use super::*;

    fn names(data: &Data, features: &[usize]) -> Vec<String> {
        features.iter().map(|&n| data.features[n].clone()).collect()
    }

    #[test]
    fn twins_and_what_never_changes_are_left_out() {
        let data = invented();
        let rank = |feature: usize| {
            let name = &data.features[feature];
            let pmu = &data.header.as_ref().unwrap().machine.pmus[0];
            EventRank::of(name, pmu.events.get(name))
        };
        let reduced = reduce(&data, 0, &|_| true, &rank).unwrap();
        let kept: BTreeSet<String> = names(&data, &reduced.kept).into_iter().collect();
        let expected = ["instructions", "loads", "branches", "cpu/r1/", "cpu/r2/"];
        assert_eq!(kept, expected.map(String::from).into());
        assert_eq!(names(&data, &reduced.constant), ["cpu/r5/"]);
        let [(twin, of, r)] = reduced.twins[..] else {
            panic!("{:?}", reduced.twins);
        };
        assert_eq!(names(&data, &[twin, of]), ["cpu/r3/", "loads"]);
        assert!(r > 0.999);
        let without = |feature: usize| data.features[feature] != "loads";
        let reduced = reduce(&data, 0, &without, &rank).unwrap();
        assert!(names(&data, &reduced.kept).contains(&"cpu/r3/".to_string()));
    }

    #[test]
    fn what_more_counters_count_is_the_cheaper_one() {
        let event = |general, fixed| EventCounted {
            name: String::new(),
            general,
            fixed,
            sources: Default::default(),
        };
        let of = |name: &str, event: EventCounted| EventRank::of(name, Some(&event));
        assert!(of("b", event(0xff, None)) < of("a", event(0xf, None)));
        assert!(of("loads", event(1, None)) < of("a", event(0xff, None)));
        assert!(of("a", event(1, None)) < of("b", event(1, None)));
        assert!(EventRank::of(INSTRUCTIONS, None) < of("loads", event(1, None)));
    }

    #[test]
    fn components_are_what_columns_have_in_common() {
        // Two that are nearly one, and one for itself: two directions.
        let a: Vec<f64> = (0..40).map(|n| f64::from(n * 7 % 40)).collect();
        let b: Vec<f64> = (0..40)
            .map(|n| f64::from(n * 7 % 40) + f64::from(n % 2))
            .collect();
        // As far from the middle on either side.
        let c: Vec<f64> = a.iter().map(|value| (value - 19.5).abs()).collect();
        let columns = [a, b, c].map(|column| standard(&column));
        let found = components(&columns, &[10, 11, 12]).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!((found[0].part - 2.0 / 3.0).abs() < 0.05, "{found:?}");
        assert!((found[1].part - 1.0 / 3.0).abs() < 0.05, "{found:?}");
        assert_eq!(found[1].loads[0].0, 12);
        assert!(found[1].loads[0].1 > 0.95);
        assert!(components(&[], &[]).unwrap().is_empty());
    }
}
