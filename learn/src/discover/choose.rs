// SPDX-License-Identifier: GPL-2.0-or-later
//! Which events answer a question best, as many as the PMU counts at once.

use anyhow::Result;
use hetero_core::ml::boosting::Boosting;
use hetero_core::ml::data::{Data, INSTRUCTIONS};
use hetero_core::ml::learn::View;
use hetero_core::ml::scores::RowEstimate;
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
    /// In the order in which they were added, and the mean absolute error with each and those before it. What was
    /// exchanged after that is still there; empty if they were found by leaving out others.
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

/// What was chosen, before it is scored.
struct Grown {
    steps: Vec<(usize, f64)>,
    features: Vec<usize>,
    error: f64,
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
    /// Adds the event that lessens the error most, again and again while the PMU counts all at once; the fewest are taken
    /// whose error is within 2 % of the least on the way. What does better in the place of another takes it, and where
    /// that has helped, more are added. So with IPC, which is counted anyway, and without;
    /// and the other way round, leaving out what is missed least ([`select::select`]). The best is taken.
    ///
    /// # Errors
    /// Nothing can be learnt.
    pub(super) fn choose(&self, all: &[usize]) -> Result<EventChoice> {
        let [few, each] = self.groups;
        let boosting = begin(self.data, self.core_type, all, self.boosting, few)?;
        let error = |features: &[usize]| -> Result<f64> {
            let found = speedups(self.data, self.core_type, &view(features), &boosting, few)?;
            Ok(found.nearness().mae)
        };
        let (free, others): (Vec<usize>, Vec<usize>) = all
            .iter()
            .partition(|&&feature| self.data.features[feature] == INSTRUCTIONS);
        let mut best = self.from(&free, &others, &error)?;
        if !free.is_empty() && !others.is_empty() {
            let without = self.from(&[], &others, &error)?;
            if without.error < best.error {
                best = without;
            }
        }
        // Two that say together what one says nearly are found from the other end.
        let fewer = select::select(self.data, self.core_type, all, &boosting, few, self.at_once)?;
        if (self.at_once)(&fewer.features) {
            let error = error(&fewer.features)?;
            if error < best.error {
                best = Grown {
                    steps: Vec::new(),
                    features: fewer.features,
                    error,
                };
            }
        }
        let found = speedups(
            self.data,
            self.core_type,
            &view(&best.features),
            &boosting,
            each,
        )?;
        Ok(EventChoice {
            steps: best.steps,
            features: best.features,
            boosting,
            error: found.nearness().mae,
            explained: explained(&found.rows),
        })
    }

    /// Forward, with what is `free` always there.
    fn from(
        &self,
        free: &[usize],
        others: &[usize],
        error: &dyn Fn(&[usize]) -> Result<f64>,
    ) -> Result<Grown> {
        let with = |paid: &[usize]| free.iter().fold(paid.to_vec(), |all, &n| sorted(&all, n));
        let error = |paid: &[usize]| error(&with(paid));
        let mut steps = Vec::new();
        let mut reached = f64::INFINITY;
        if let &[ipc] = free {
            reached = error(&[])?;
            steps.push((ipc, reached));
        }
        let mut chosen: Vec<usize> = Vec::new();
        loop {
            let way = self.grow(&chosen, others, &error)?;
            let errors = way.iter().map(|(_, error)| *error);
            let least = errors.fold(reached, f64::min);
            if reached <= least * WORTH {
                break;
            }
            let enough = way.iter().position(|(_, error)| *error <= least * WORTH);
            let more = &way[..enough.map_or(0, |last| last + 1)];
            steps.extend_from_slice(more);
            for (feature, error) in more {
                chosen = sorted(&chosen, *feature);
                reached = *error;
            }
            let before = reached;
            (reached, chosen) = select::exchange((reached, chosen), others, self.at_once, &error)?;
            if reached >= before {
                break;
            }
        }
        Ok(Grown {
            steps,
            features: with(&chosen),
            error: reached,
        })
    }

    /// The events that are added to those `chosen`, one by one, and the error with each.
    fn grow(
        &self,
        chosen: &[usize],
        others: &[usize],
        error: &dyn Fn(&[usize]) -> Result<f64>,
    ) -> Result<Vec<(usize, f64)>> {
        let (mut now, mut way) = (chosen.to_vec(), Vec::new());
        loop {
            let mut best: Option<(usize, f64)> = None;
            for &feature in others.iter().filter(|feature| !now.contains(feature)) {
                let with = sorted(&now, feature);
                if !(self.at_once)(&with) {
                    continue;
                }
                let error = error(&with)?;
                if best.is_none_or(|(_, least)| error < least) {
                    best = Some((feature, error));
                }
            }
            let Some(step) = best else { return Ok(way) };
            now = sorted(&now, step.0);
            way.push(step);
        }
    }
}

/// The mean absolute error of guessing the mean of the other programs.
pub(super) fn error_of_the_mean(data: &Data, core_type: usize) -> f64 {
    let rows = data.rows_of(core_type);
    let errors = rows.iter().map(|&row| {
        let program = &data.rows[row].program;
        let others = rows
            .iter()
            .filter(|&&other| data.rows[other].program != *program);
        let (sum, number) = others.fold((0.0, 0.0), |(sum, number), &other| {
            (sum + data.rows[other].sf, number + 1.0)
        });
        (data.rows[row].sf - sum / number).abs()
    });
    errors.sum::<f64>() / rows.len() as f64
}

fn sorted(now: &[usize], more: usize) -> Vec<usize> {
    let mut with = [now, &[more]].concat();
    with.sort_unstable();
    with
}

/// 1 less the part of the variance that is left.
fn explained(rows: &[RowEstimate]) -> f64 {
    let mean = rows.iter().map(|it| it.is).sum::<f64>() / rows.len() as f64;
    let all: f64 = rows.iter().map(|it| (it.is - mean).powi(2)).sum();
    let left: f64 = rows.iter().map(|it| (it.is - it.said).powi(2)).sum();
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
            let choice = question.choose(&all).unwrap();
            assert!(choice.features.len() <= most);
            if most == 3 {
                assert!(choice.explained > 0.99, "{choice:?}");
                assert!(
                    choice.error < 0.1 * error_of_the_mean(&data, 0),
                    "{choice:?}"
                );
            }
            choice
                .features
                .iter()
                .map(|&n| data.features[n].clone())
                .collect()
        };
        let three = names(3);
        for name in ["cpu/r1/", "cpu/r2/"] {
            assert!(three.contains(&name.to_string()), "{three:?}");
        }
        // The first says more.
        assert!(names(2).contains(&"cpu/r1/".to_string()));
    }

    #[test]
    fn what_is_explained_is_the_variance_that_is_not_left() {
        let explained = |pairs: [(f64, f64); 2]| {
            let program = 0;
            explained(&pairs.map(|(is, said)| RowEstimate { program, is, said }))
        };
        assert_eq!(explained([(1.0, 1.0), (3.0, 3.0)]), 1.0);
        assert_eq!(explained([(1.0, 2.0), (3.0, 2.0)]), 0.0);
        assert_eq!(explained([(1.0, 1.5), (3.0, 2.5)]), 0.75);
    }
}
