// SPDX-License-Identifier: GPL-2.0-or-later
//! Regression trees, and how one is grown: by the split of a histogram that lessens the squared
//! error most, down to a given depth.

use serde::{Deserialize, Serialize};

/// Values by column, all of one length: a column for each feature.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Columns {
    /// How long each column is.
    pub rows: usize,
    /// A value for each row.
    pub columns: Vec<Vec<f64>>,
}

impl Columns {
    /// From rows of `features` values each.
    pub fn from_rows<'r>(features: usize, rows: impl Iterator<Item = &'r [f64]>) -> Self {
        let mut all = Self {
            rows: 0,
            columns: vec![Vec::new(); features],
        };
        for row in rows {
            for (column, &value) in all.columns.iter_mut().zip(row) {
                column.push(value);
            }
            all.rows += 1;
        }
        all
    }
}

/// A tree: what is at most the threshold goes low.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Tree {
    /// What it says.
    Leaf(f64),
    /// What it asks.
    Split {
        /// Index of the feature.
        feature: usize,
        /// What it is compared with.
        threshold: f64,
        /// Where it is at most that.
        low: Box<Tree>,
        /// Where it is more.
        high: Box<Tree>,
    },
}

impl Tree {
    /// What it says where the features have these values.
    pub fn value(&self, of: impl Fn(usize) -> f64) -> f64 {
        let mut tree = self;
        loop {
            match tree {
                Self::Leaf(value) => return *value,
                Self::Split {
                    feature,
                    threshold,
                    low,
                    high,
                } => {
                    tree = if of(*feature) <= *threshold {
                        low
                    } else {
                        high
                    };
                }
            }
        }
    }

    /// The most splits in a row.
    pub fn depth(&self) -> usize {
        match self {
            Self::Leaf(_) => 0,
            Self::Split { low, high, .. } => 1 + low.depth().max(high.depth()),
        }
    }
}

/// The most bins of a histogram; a column with no more different values is split exactly.
const BINS: usize = 256;

/// Columns sorted into bins.
#[derive(Clone, Debug)]
pub struct Binned {
    rows: usize,
    /// By column: the bin of each row.
    bins: Vec<Vec<u8>>,
    /// By column: the values between a bin and the next.
    cuts: Vec<Vec<f64>>,
}

impl Binned {
    /// Sorts columns of finite values.
    pub fn new(columns: &Columns) -> Self {
        let cuts: Vec<Vec<f64>> = columns.columns.iter().map(|column| cuts(column)).collect();
        let bins = columns.columns.iter().zip(&cuts).map(|(column, cuts)| {
            let bin = |value: &f64| cuts.partition_point(|cut| cut < value) as u8;
            column.iter().map(bin).collect()
        });
        Self {
            rows: columns.rows,
            bins: bins.collect(),
            cuts,
        }
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }
}

/// Midway between neighbouring values; between every so many where there are too many.
fn cuts(column: &[f64]) -> Vec<f64> {
    let mut sorted = column.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mut distinct: Vec<(f64, usize)> = Vec::new();
    for &value in &sorted {
        match distinct.last_mut() {
            Some((last, number)) if *last == value => *number += 1,
            _ => distinct.push((value, 1)),
        }
    }
    let least = if distinct.len() <= BINS {
        0
    } else {
        column.len().div_ceil(BINS - 1)
    };
    let (mut cuts, mut held) = (Vec::new(), 0);
    for pair in distinct.windows(2) {
        held += pair[0].1;
        if held >= least.max(1) {
            cuts.push(pair[0].0 + (pair[1].0 - pair[0].0) / 2.0);
            held = 0;
        }
    }
    cuts
}

/// How a tree is grown.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    /// The most splits in a row.
    pub depth: usize,
    /// Every leaf has at least so many rows.
    pub least_leaf: usize,
}

/// Grows a tree on `rows` that follows `targets`. `leaf` says what the leaf of some rows says;
/// `gains` collects by how much each column's splits lessened the squared error.
pub fn grow(
    binned: &Binned,
    targets: &[f64],
    rows: &mut [u32],
    growth: Growth,
    leaf: &impl Fn(&[u32]) -> f64,
    gains: &mut [f64],
) -> Tree {
    let best = match growth.depth {
        0 => None,
        _ => best_split(binned, targets, rows, growth.least_leaf),
    };
    let Some(split) = best else {
        return Tree::Leaf(leaf(rows));
    };
    gains[split.column] += split.gain;
    let bins = &binned.bins[split.column];
    let middle = partition(rows, |row| bins[row as usize] <= split.bin);
    let (low, high) = rows.split_at_mut(middle);
    let growth = Growth {
        depth: growth.depth - 1,
        ..growth
    };
    let mut below = |rows| Box::new(grow(binned, targets, rows, growth, leaf, gains));
    Tree::Split {
        feature: split.column,
        threshold: binned.cuts[split.column][usize::from(split.bin)],
        low: below(low),
        high: below(high),
    }
}

struct Split {
    column: usize,
    bin: u8,
    gain: f64,
}

/// The first of the best ones.
fn best_split(binned: &Binned, targets: &[f64], rows: &[u32], least: usize) -> Option<Split> {
    let number = rows.len() as f64;
    let sum: f64 = rows.iter().map(|&row| targets[row as usize]).sum();
    let squares: f64 = rows.iter().map(|&row| targets[row as usize].powi(2)).sum();
    // Less is what rounding makes of nothing.
    let mut best_gain = 1e-9 * squares.max(f64::MIN_POSITIVE);
    let mut best = None;
    for (column, bins) in binned.bins.iter().enumerate() {
        let cuts = binned.cuts[column].len();
        if cuts == 0 {
            continue;
        }
        let mut histogram = [(0.0f64, 0u32); BINS];
        for &row in rows {
            let bin = &mut histogram[usize::from(bins[row as usize])];
            bin.0 += targets[row as usize];
            bin.1 += 1;
        }
        let (mut low_sum, mut low_number) = (0.0, 0usize);
        for (bin, &(bin_sum, bin_number)) in histogram[..cuts].iter().enumerate() {
            low_sum += bin_sum;
            low_number += bin_number as usize;
            let high_number = rows.len() - low_number;
            if bin_number == 0 || low_number < least.max(1) || high_number < least.max(1) {
                continue;
            }
            let high_sum = sum - low_sum;
            let gain = low_sum * low_sum / low_number as f64
                + high_sum * high_sum / high_number as f64
                - sum * sum / number;
            // By a hair better is no better: which of two columns alike is first must not
            // depend on rounding.
            if gain > best_gain * (1.0 + 1e-9) {
                best_gain = gain;
                best = Some(Split {
                    column,
                    bin: bin as u8,
                    gain,
                });
            }
        }
    }
    best
}

/// Moves the rows for which `low` holds to the front; how many they are.
fn partition(rows: &mut [u32], low: impl Fn(u32) -> bool) -> usize {
    let (mut kept, mut others) = (0, Vec::with_capacity(rows.len()));
    for n in 0..rows.len() {
        if low(rows[n]) {
            rows[kept] = rows[n];
            kept += 1;
        } else {
            others.push(rows[n]);
        }
    }
    rows[kept..].copy_from_slice(&others);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grown(columns: Columns, targets: &[f64], depth: usize) -> (Tree, Vec<f64>) {
        let binned = Binned::new(&columns);
        let mut rows: Vec<u32> = (0..columns.rows as u32).collect();
        let mut gains = vec![0.0; columns.columns.len()];
        let mean = |rows: &[u32]| {
            rows.iter().map(|&row| targets[row as usize]).sum::<f64>() / rows.len() as f64
        };
        let growth = Growth {
            depth,
            least_leaf: 1,
        };
        let tree = grow(&binned, targets, &mut rows, growth, &mean, &mut gains);
        (tree, gains)
    }

    #[test]
    fn a_step_is_found_where_it_is() {
        let columns = Columns {
            rows: 6,
            columns: vec![vec![1.0; 6], vec![1.0, 2.0, 3.0, 5.0, 6.0, 7.0]],
        };
        let (tree, gains) = grown(columns, &[1.0, 1.0, 1.0, 9.0, 9.0, 9.0], 3);
        let expected = Tree::Split {
            feature: 1,
            threshold: 4.0,
            low: Box::new(Tree::Leaf(1.0)),
            high: Box::new(Tree::Leaf(9.0)),
        };
        assert_eq!(tree, expected);
        assert_eq!(gains[0], 0.0);
        assert!((gains[1] - 96.0).abs() < 1e-9);
    }

    #[test]
    fn two_questions_answer_an_exclusive_or_with_a_slope() {
        let columns = Columns {
            rows: 4,
            columns: vec![vec![0.0, 0.0, 1.0, 1.0], vec![0.0, 1.0, 0.0, 1.0]],
        };
        let targets = [0.0, 1.0, 1.1, 0.0];
        let (tree, _) = grown(columns.clone(), &targets, 2);
        for (row, target) in targets.iter().enumerate() {
            let value = tree.value(|column| columns.columns[column][row]);
            assert!((value - target).abs() < 1e-12);
        }
        assert_eq!(tree.depth(), 2);
    }

    #[test]
    fn many_values_make_few_bins_of_about_equal_size() {
        let column: Vec<f64> = (0..10_000).map(f64::from).collect();
        let cuts = cuts(&column);
        assert!((200..BINS).contains(&cuts.len()), "{}", cuts.len());
        assert!(cuts.is_sorted());
        assert_eq!(super::cuts(&[1.0, 1.0, 3.0, 2.0]), [1.5, 2.5]);
        assert!(super::cuts(&[1.0, 1.0]).is_empty());
    }

    #[test]
    fn a_tree_is_written_as_nested_objects() {
        let text = r#"{"feature":0,"threshold":0.5,"low":1.0,"high":{"feature":1,"threshold":2.0,"low":3.0,"high":4.0}}"#;
        let tree: Tree = serde_json::from_str(text).unwrap();
        assert_eq!(tree.value(|feature| [0.6, 1.0][feature]), 3.0);
        assert_eq!(serde_json::to_string(&tree).unwrap(), text);
    }
}
