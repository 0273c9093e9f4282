// SPDX-License-Identifier: GPL-2.0-or-later
//! What weight has to do with core types: whose progress is the middle, and which threads weigh too little to count.

/// A thread whose weight entitles it to less than this part of what threads get in the mean does not count. By the number
/// of threads that a core type holds it would be worth as much as any other, and have a slow CPU for itself where others share
/// the fast ones.
const LIGHT: f64 = 0.25;

/// Weight of nice 0. A heavier thread has no more say in where the middle is: it cannot have more than a CPU,
/// and all others would count as far ahead of it.
const WEIGHT_NICE_0: u32 = 1024;

/// The value that half of all weight has not passed, of values with weights, which are in order afterwards. What weighs next to
/// nothing does not move it, however many there are.
fn middle(values: &mut [(i64, u32)]) -> Option<i64> {
    values.sort_unstable();
    let counts = |weight: u32| u64::from(weight.clamp(1, WEIGHT_NICE_0));
    let all: u64 = values.iter().map(|&(_, weight)| counts(weight)).sum();
    let mut so_far = 0;
    let middle = values.iter().find(|&&(_, weight)| {
        so_far += counts(weight);
        2 * so_far >= all
    });
    middle.map(|&(value, _)| value)
}

/// How far values may be from their middle.
pub(super) struct NearMiddle {
    least: i64,
    most: i64,
    /// The least and the greatest value, brought near.
    pub(super) range: (i64, i64),
    /// All are near as they are.
    pub(super) holds_all: bool,
}

impl NearMiddle {
    /// No farther than `apart` from the middle of values with weights, which are in order afterwards; `None` of none.
    pub(super) fn of(values: &mut [(i64, u32)], apart: i64) -> Option<Self> {
        let middle = middle(values)?;
        let [least, most] = [-apart, apart].map(|apart| middle.saturating_add(apart));
        let (&(first, _), &(last, _)) = (values.first()?, values.last()?);
        Some(Self {
            least,
            most,
            range: (first.max(least), last.min(most)),
            holds_all: least <= first && last <= most,
        })
    }

    /// A value, brought near.
    pub(super) fn near(&self, value: i64) -> i64 {
        value.clamp(self.least, self.most)
    }
}

/// The weight below which one of these threads may have less than [`LIGHT`] of what threads get in the mean, on so many CPUs; 0
/// where there is one for each.
pub(in crate::policy) fn least_weight(weights: &mut [u32], nr_cpus: usize) -> u32 {
    if weights.len() <= nr_cpus {
        return 0;
    }
    weights.sort_unstable_by(|a, b| b.cmp(a));
    let counts = |&weight: &u32| u64::from(weight.max(1));
    let (mut cpus, mut sum) = (nr_cpus as u64, weights.iter().map(counts).sum::<u64>());
    // None can have more than a CPU: what its weight entitles it to beyond that is for the others.
    for weight in weights.iter().map(counts) {
        if weight * cpus < sum {
            break;
        }
        (cpus, sum) = (cpus - 1, sum - weight);
    }
    let mean = nr_cpus as f64 / weights.len() as f64;
    (LIGHT * mean * sum as f64 / cpus.max(1) as f64).ceil() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_weight_is_on_either_side_and_none_has_more_than_nice_0() {
        assert_eq!(middle(&mut []), None);
        assert_eq!(middle(&mut [(9, 1024), (1, 1024), (4, 1024)]), Some(4));
        let many_light = [(9, 15), (9, 15), (9, 15), (1, 1024), (2, 1024)];
        assert_eq!(middle(&mut many_light.clone()), Some(2));
        assert_eq!(middle(&mut [(1, 88_761), (5, 1024), (6, 1024)]), Some(5));
    }

    #[test]
    fn what_weighs_next_to_nothing_does_not_count_where_cpus_are_short() {
        let least = |weights: &[u32], nr_cpus| least_weight(&mut weights.to_vec(), nr_cpus);
        assert_eq!(least(&[1024, 15], 2), 0, "a CPU for each");
        assert_eq!(least(&[16; 64], 8), 4, "all get as little");
        let nice = least(&[[1024; 8], [15; 8]].concat(), 8);
        assert!((16..1024).contains(&nice), "{nice}");
        // What is left by one that needs no more than a CPU is enough for the others.
        assert!(least(&[1024, 15, 15, 15, 15], 4) <= 15);
        assert!(least(&[88_761, 1024, 1024, 1024, 1024], 4) <= 1024);
        assert_eq!(least(&[], 0), 0);
    }
}
