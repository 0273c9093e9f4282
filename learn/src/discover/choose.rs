// SPDX-License-Identifier: GPL-2.0-or-later
//! Which events answer a question best, as many as the PMU counts at once.

use anyhow::Result;
use hetero_core::ml::boosting::Boosting;
use hetero_core::ml::data::{Data, INSTRUCTIONS};
use hetero_core::ml::learn::View;
use hetero_core::ml::validate::{begin, speedups};

use crate::select::{self, WORTH};

/// What is asked of one core type's rows.
pub(super) struct EventQuestion<'q> {
    /// SF, or EF in its place.
    pub data: &'q Data,
    /// Which.
    pub core_type: usize,
    /// How to boost, and the most trees.
    pub boosting: Boosting,
    /// Groups of programs that are left out: few, by which events are chosen, and each program for itself, by which
    /// the choice is scored.
    pub groups: [&'q [usize]; 2],
    /// Whether the PMU counts these features at once.
    pub at_once: &'q dyn Fn(&[usize]) -> bool,
}

/// What was chosen.
#[derive(Clone, Debug)]
pub(super) struct EventChoice {
    /// In the order in which they were chosen, and the mean absolute error with each and those before it.
    pub steps: Vec<(usize, f64)>,
    /// In the order of features.
    pub features: Vec<usize>,
    /// How it is learnt.
    pub boosting: Boosting,
    /// Mean absolute error on programs not learnt from.
    pub error: f64,
    /// The part of the variance of what was asked that estimates of programs not learnt from explain.
    pub explained: f64,
}

impl EventChoice {
    /// What it sees.
    pub(super) fn view(&self) -> View {
        view(&self.features)
    }
}

fn view(features: &[usize]) -> View {
    View {
        features: features.to_vec(),
        core_type: false,
    }
}

impl EventQuestion<'_> {
    /// Begins with IPC, which is counted anyway, and adds the event that lessens the error most, again and again
    /// while the PMU counts all at once; the fewest are taken whose error is within 2 % of the least on the way. What
    /// does better in the place of another then takes it.
    ///
    /// # Errors
    /// Nothing can be learnt.
    pub(super) fn forward(&self, all: &[usize]) -> Result<EventChoice> {
        let [few, each] = self.groups;
        let boosting = begin(self.data, self.core_type, all, self.boosting, few)?;
        let error = |features: &[usize]| -> Result<f64> {
            let found = speedups(self.data, self.core_type, &view(features), &boosting, few)?;
            Ok(found.nearness().mae)
        };
        let ipc = all.iter().copied();
        let free: Vec<usize> = ipc
            .filter(|&n| self.data.features[n] == INSTRUCTIONS)
            .collect();
        let mut now = free.clone();
        let mut way: Vec<(usize, f64)> = Vec::new();
        if let &[ipc] = &now[..] {
            way.push((ipc, error(&now)?));
        }
        loop {
            let mut best: Option<(usize, f64)> = None;
            for &feature in all.iter().filter(|feature| !now.contains(feature)) {
                let with = sorted(&now, feature);
                if !(self.at_once)(&with) {
                    continue;
                }
                let error = error(&with)?;
                if best.is_none_or(|(_, least)| error < least) {
                    best = Some((feature, error));
                }
            }
            let Some(step) = best else { break };
            now = sorted(&now, step.0);
            way.push(step);
        }
        let least = way
            .iter()
            .map(|(_, error)| *error)
            .fold(f64::INFINITY, f64::min);
        let enough = way.iter().position(|(_, error)| *error <= least * WORTH);
        way.truncate(enough.map_or(0, |last| last + 1));
        let reached = way.last().map_or(f64::INFINITY, |(_, error)| *error);
        let paid = |feature: &usize| self.data.features[*feature] != INSTRUCTIONS;
        let mut chosen: Vec<usize> = way
            .iter()
            .map(|(feature, _)| *feature)
            .filter(paid)
            .collect();
        chosen.sort_unstable();
        let others: Vec<usize> = all.iter().copied().filter(paid).collect();
        let with = |features: &[usize]| {
            free.iter()
                .fold(features.to_vec(), |all, &n| sorted(&all, n))
        };
        let error = |features: &[usize]| error(&with(features));
        let (_, chosen) = select::exchange((reached, chosen), &others, self.at_once, &error)?;
        let features = with(&chosen);
        let found = speedups(self.data, self.core_type, &view(&features), &boosting, each)?;
        Ok(EventChoice {
            steps: way,
            features,
            boosting,
            error: found.nearness().mae,
            explained: explained(&found.pairs),
        })
    }

    /// The mean absolute error of guessing the mean of the other programs.
    pub(super) fn error_of_the_mean(&self) -> f64 {
        let [_, each] = self.groups;
        let rows = self.data.rows_of(self.core_type);
        let errors = rows.iter().map(|&row| {
            let others = rows.iter().filter(|&&other| each[other] != each[row]);
            let (sum, number) = others.fold((0.0, 0.0), |(sum, number), &other| {
                (sum + self.data.rows[other].sf, number + 1.0)
            });
            (self.data.rows[row].sf - sum / number).abs()
        });
        errors.sum::<f64>() / rows.len() as f64
    }
}

fn sorted(now: &[usize], more: usize) -> Vec<usize> {
    let mut with = [now, &[more]].concat();
    with.sort_unstable();
    with
}

/// 1 less the part of the variance that is left.
fn explained(pairs: &[(f64, f64)]) -> f64 {
    let mean = pairs.iter().map(|(is, _)| is).sum::<f64>() / pairs.len() as f64;
    let all: f64 = pairs.iter().map(|(is, _)| (is - mean).powi(2)).sum();
    let left: f64 = pairs.iter().map(|(is, said)| (is - said).powi(2)).sum();
    1.0 - left / all
}

#[cfg(test)]
mod tests {
    use super::super::tests::invented;
    use super::*;
    use hetero_core::ml::boosting::Loss;
    use hetero_core::ml::validate::groups;

    #[test]
    fn what_sf_is_made_of_is_chosen_and_no_more_than_is_counted_at_once() {
        let data = invented();
        let groups = groups(&data, 6, 1);
        let all = data.usable(&[0]);
        let names = |most: usize| -> Vec<String> {
            let question = EventQuestion {
                data: &data,
                core_type: 0,
                boosting: Boosting {
                    trees: 3,
                    ..Boosting::new(Loss::Squared)
                },
                groups: [&groups, &groups],
                at_once: &|features| features.len() <= most,
            };
            let choice = question.forward(&all).unwrap();
            assert!(choice.features.len() <= most);
            if most == 3 {
                assert!(choice.explained > 0.99, "{choice:?}");
                assert!(
                    choice.error < 0.1 * question.error_of_the_mean(),
                    "{choice:?}"
                );
            }
            choice
                .features
                .iter()
                .map(|&n| data.features[n].clone())
                .collect()
        };
        assert_eq!(names(3), ["instructions", "cpu/r1/", "cpu/r2/"]);
        // The first says more.
        assert!(names(2).contains(&"cpu/r1/".to_string()));
    }

    #[test]
    fn what_is_explained_is_the_variance_that_is_not_left() {
        assert_eq!(explained(&[(1.0, 1.0), (3.0, 3.0)]), 1.0);
        assert_eq!(explained(&[(1.0, 2.0), (3.0, 2.0)]), 0.0);
        assert_eq!(explained(&[(1.0, 1.5), (3.0, 2.5)]), 0.75);
    }
}
