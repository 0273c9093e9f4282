// SPDX-License-Identifier: GPL-2.0-or-later
//! What choosing events is worth to programs that had no part in it: events are chosen anew without each of some groups of
//! programs, and what is learnt from those events is tried on that group.

use anyhow::Result;
use hetero_core::ml::data::Data;
use hetero_core::ml::forest::to_number;
use hetero_core::ml::learn::{self, Pair, fixed};
use hetero_core::ml::validate::one_left_out;

use super::choose::EventChoice;
use crate::trial::HeldOutTrial;

/// Chooses events of a core type by these rows.
pub(super) type Choose<'c> = dyn Fn(&Data, usize) -> Result<EventChoice> + 'c;

/// Tries what is chosen on each group of programs, by choices that knew nothing of it.
///
/// # Errors
/// Nothing can be learnt without some group.
pub(super) fn try_choices(
    data: &Data,
    choose: &Choose,
    pairs: &[Pair],
    groups: &[usize],
) -> Result<HeldOutTrial> {
    let mut said = vec![f64::NAN; data.rows.len()];
    for core_type in 0..data.core_types.len() {
        for (out, learnt) in one_left_out(&data.rows_of(core_type), groups) {
            let choice = choose(&data.part(&learnt), core_type)?;
            let view = choice.view();
            let (trees, _) = learn::speedup(data, &learnt, &view, &choice.boosting, &[])?;
            let forest = trees.forest()?;
            for row in out {
                said[row] = to_number(forest.score(&fixed(&view.values(data, row))));
            }
        }
    }
    Ok(HeldOutTrial::of_rows(data, &said, pairs))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use super::super::tests::invented;
    use super::*;
    use hetero_core::ml::boosting::{Boosting, Loss};
    use hetero_core::ml::validate::{groups, pairs};

    #[test]
    fn no_choice_has_seen_the_programs_that_it_is_tried_on() {
        let data = invented();
        let groups = groups(&data, 4, 1);
        let without = RefCell::new(Vec::new());
        let all: BTreeSet<&str> = data.programs().into_iter().collect();
        // SF is a weighted sum of these two.
        let choose = |part: &Data, _| {
            let there = part.programs().into_iter().collect();
            let missing = all.difference(&there).map(ToString::to_string);
            without.borrow_mut().extend(missing);
            Ok(EventChoice {
                steps: Vec::new(),
                features: vec![3, 4],
                boosting: Boosting {
                    linear: true,
                    trees: 0,
                    ..Boosting::new(Loss::Squared)
                },
                error: 0.0,
                explained: 0.0,
            })
        };
        let trial = try_choices(&data, &choose, &pairs(&data, 1000, 1), &groups).unwrap();
        let mut without = without.into_inner();
        without.sort_unstable();
        assert!(without.iter().eq(&all), "each once: {without:?}");
        assert_eq!(trial.said().len(), data.rows.len());
        assert!(trial.right().value > 0.99 && trial.error().value < 0.01);
        assert_eq!(trial.more_right_than(&trial).value, 0.0);
    }
}
