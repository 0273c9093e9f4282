// SPDX-License-Identifier: GPL-2.0-only
//! Putting things in order.

/// By their values, the greatest first; those with the same in the order of their keys.
pub(crate) fn greatest_first<K: Ord>(values: impl IntoIterator<Item = (K, f64)>) -> Vec<(K, f64)> {
    let mut all: Vec<(K, f64)> = values.into_iter().collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    all
}
