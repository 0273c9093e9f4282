// SPDX-License-Identifier: GPL-2.0-or-later
//! The middle of what threads have: what half of their weight has not passed. What weighs next to nothing does not move
//! it, however many there are.

/// Weight of nice 0. A heavier thread has no more say in where the middle is: it cannot have more than a CPU,
/// and all others would count as far ahead of it.
const WEIGHT_NICE_0: u32 = 1024;

/// Of values with weights, which are in order afterwards.
pub(super) fn middle(values: &mut [(i64, u32)]) -> Option<i64> {
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
}
