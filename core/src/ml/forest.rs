// SPDX-License-Identifier: GPL-2.0-or-later
//! A model's trees as they are evaluated while scheduling: in fixed point, in memory that lies in
//! one piece, without allocation; the same in the agent, here, as in BPF (`src/bpf/forest.h`).

use anyhow::{Result, ensure};

use super::fixed::{self, FEATURE_BITS, FEATURE_ONE, SCORE_ONE};
use super::tree::Tree;

/// The most trees.
pub const MAX_TREES: usize = 256;
/// The most splits in a row.
pub const MAX_DEPTH: usize = 6;
/// The most features.
pub const MAX_FEATURES: usize = 64;
/// Room for the nodes of a tree, of which 0 is not used; and for its leaves.
const TREE: usize = 1 << MAX_DEPTH;
const MAX_NODES: usize = MAX_TREES * TREE;

/// What a thread's features are: events per cycle, see [`fixed::feature`].
pub type Features = [u32; MAX_FEATURES];

/// `struct forest_node`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node {
    threshold: u32,
    feature: u32,
}

/// The answer is always low.
const LOW: Node = Node {
    threshold: u32::MAX,
    feature: 0,
};

/// `struct forest_weight`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Weight {
    weight: i64,
    least: u32,
    most: u32,
}

/// The feature counts for nothing.
const NO_WEIGHT: Weight = Weight {
    weight: 0,
    least: 0,
    most: u32::MAX,
};

/// `struct forest`.
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forest {
    base: i64,
    least: i64,
    most: i64,
    nr_trees: u64,
    inverse: u64,
    weights: [Weight; MAX_FEATURES],
    nodes: [Node; MAX_NODES],
    leaves: [i32; MAX_NODES],
}

/// How a feature's number becomes what trees compare.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FeatureScale {
    /// What is 0 to the trees.
    pub min: f64,
    /// What is 1 to them.
    pub max: f64,
}

/// Which way a value that equals the threshold goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Comparison {
    /// Low: scikit-learn's trees, and ours.
    #[serde(rename = "<=")]
    AtMost,
    /// High: XGBoost's.
    #[serde(rename = "<")]
    Below,
}

/// What a forest is made of.
#[derive(Clone, Debug)]
pub struct Sum<'s> {
    /// A constant.
    pub base: f64,
    /// Of each feature between 0 and 1 on its scale, or none at all.
    pub weights: &'s [f64],
    /// The trees.
    pub trees: &'s [Tree],
    /// One for each feature.
    pub scales: &'s [FeatureScale],
    /// What goes low in trees.
    pub comparison: Comparison,
    /// All of that is 1 / SF, and what comes of it SF.
    pub inverse: bool,
    /// What comes of it is no less and no more.
    pub range: Option<[f64; 2]>,
}

impl Forest {
    /// Lays it out.
    ///
    /// # Errors
    /// There are too many trees, they are too deep, or a number is out of range.
    pub fn new(sum: &Sum) -> Result<Box<Self>> {
        let (trees, scales) = (sum.trees, sum.scales);
        ensure!(
            trees.len() <= MAX_TREES,
            "{} trees are more than {MAX_TREES}",
            trees.len()
        );
        ensure!(
            scales.len() <= MAX_FEATURES,
            "{} features are more than {MAX_FEATURES}",
            scales.len()
        );
        let depth = trees.iter().map(Tree::depth).max().unwrap_or(0);
        ensure!(
            depth <= MAX_DEPTH,
            "a tree {depth} deep is more than {MAX_DEPTH}"
        );
        let limits = sum.range.unwrap_or([-1e6, 1e6]);
        for number in [sum.base, limits[0], limits[1]] {
            ensure!(number.abs() <= 1e6, "{number} is out of range");
        }
        ensure!(limits[0] <= limits[1], "its least is more than its most");
        let mut forest = Box::new(Self {
            base: (sum.base * SCORE_ONE).round() as i64,
            least: (limits[0] * SCORE_ONE).round() as i64,
            most: (limits[1] * SCORE_ONE).round() as i64,
            nr_trees: trees.len() as u64,
            inverse: sum.inverse.into(),
            weights: [NO_WEIGHT; MAX_FEATURES],
            nodes: [LOW; MAX_NODES],
            leaves: [0; MAX_NODES],
        });
        ensure!(
            sum.weights.is_empty() || sum.weights.len() == scales.len(),
            "{} weights for {} features",
            sum.weights.len(),
            scales.len()
        );
        for ((to, weight), scale) in forest.weights.iter_mut().zip(sum.weights).zip(scales) {
            *to = Weight::new(*weight, *scale)?;
        }
        let layer = Layer {
            scales,
            comparison: sum.comparison,
        };
        for (number, tree) in trees.iter().enumerate() {
            let nodes = &mut forest.nodes[number * TREE..][..TREE];
            let leaves = &mut forest.leaves[number * TREE..][..TREE];
            layer.lay(tree, 1, nodes, leaves)?;
        }
        Ok(forest)
    }

    /// The same, of features that are numbered otherwise: number n is `places[n]`.
    ///
    /// # Panics
    /// A place is no number of a feature, or there are more than those.
    pub fn renumbered(&self, places: &[usize]) -> Box<Self> {
        let mut forest = Box::new(self.clone());
        for node in &mut forest.nodes {
            // What is beyond is asked by nodes that are none.
            let place = places.get(node.feature as usize);
            node.feature = place.map_or(0, |&place| place as u32);
        }
        forest.weights = [NO_WEIGHT; MAX_FEATURES];
        for (weight, &place) in self.weights.iter().zip(places) {
            forest.weights[place] = *weight;
        }
        forest
    }

    /// As the BPF half reads it.
    pub fn bytes(&self) -> &[u8] {
        let start = std::ptr::from_ref(self).cast();
        // SAFETY: it is integers without padding, as `the_layout_is_that_of_the_header` tests.
        unsafe { std::slice::from_raw_parts(start, size_of::<Self>()) }
    }

    /// What it says, in 1/2^20: an SF, or the logarithm of the odds.
    pub fn score(&self, features: &Features) -> i64 {
        let terms = self.weights.iter().zip(features);
        let weighted: i64 = terms.map(|(weight, &value)| weight.of(value)).sum();
        let mut sum = self.base + (weighted >> FEATURE_BITS);
        for tree in 0..self.nr_trees as usize {
            let nodes = &self.nodes[tree * TREE..][..TREE];
            let mut node = 1;
            for _ in 0..MAX_DEPTH {
                let at = nodes[node % TREE];
                let value = features[at.feature as usize % MAX_FEATURES];
                node = 2 * node + usize::from(value > at.threshold);
            }
            sum += i64::from(self.leaves[tree * TREE + node % TREE]);
        }
        if self.inverse != 0 {
            sum = fixed::inverted(sum).unwrap_or(self.most);
        }
        sum.clamp(self.least, self.most)
    }
}

impl Weight {
    fn new(weight: f64, scale: FeatureScale) -> Result<Self> {
        let end = |number: f64| fixed::quantised(number.max(0.0)).unwrap_or(u32::MAX);
        let (least, most) = (end(scale.min), end(scale.max));
        let per_one = (weight / (scale.max - scale.min) * SCORE_ONE).round();
        // So that no sum of all can overflow.
        let greatest = per_one.abs() * f64::from(most.saturating_sub(least));
        ensure!(
            least <= most && greatest < (1u64 << 56) as f64 && per_one.abs() < (1u64 << 56) as f64,
            "a weight of {weight} is out of range"
        );
        Ok(Self {
            weight: per_one as i64,
            least,
            most,
        })
    }

    fn of(&self, value: u32) -> i64 {
        self.weight * i64::from(value.clamp(self.least, self.most) - self.least)
    }
}

/// Lays trees out.
struct Layer<'s> {
    scales: &'s [FeatureScale],
    comparison: Comparison,
}

impl Layer<'_> {
    fn lay(&self, tree: &Tree, node: usize, nodes: &mut [Node], leaves: &mut [i32]) -> Result<()> {
        match tree {
            Tree::Leaf(value) => {
                let scaled = (value * SCORE_ONE).round();
                ensure!(
                    scaled.abs() <= f64::from(i32::MAX),
                    "a leaf of {value} is out of range"
                );
                if node >= nodes.len() {
                    leaves[node % TREE] = scaled as i32;
                    return Ok(());
                }
                // What is below is asked and never answered but low; all say the same.
                self.lay(tree, 2 * node, nodes, leaves)?;
                self.lay(tree, 2 * node + 1, nodes, leaves)
            }
            Tree::Split {
                feature,
                threshold,
                low,
                high,
            } => {
                let scale = self.scales.get(*feature);
                let Some(scale) = scale else {
                    anyhow::bail!("a tree asks for feature {feature} of {}", self.scales.len());
                };
                ensure!(threshold.is_finite(), "a threshold is not a number");
                let (mut low, high) = (low, high);
                match self.at_most(*threshold, *scale) {
                    Some(threshold) => {
                        nodes[node] = Node {
                            threshold,
                            feature: *feature as u32,
                        }
                    }
                    None => low = high,
                }
                self.lay(low, 2 * node, nodes, leaves)?;
                self.lay(high, 2 * node + 1, nodes, leaves)
            }
        }
    }

    /// The greatest feature that goes low; `None`: none does.
    fn at_most(&self, threshold: f64, scale: FeatureScale) -> Option<u32> {
        let number = (scale.min + threshold * (scale.max - scale.min)) * FEATURE_ONE;
        let most = match self.comparison {
            Comparison::AtMost => number.floor(),
            Comparison::Below => number.ceil() - 1.0,
        };
        (most >= 0.0).then(|| most.min(f64::from(u32::MAX)) as u32)
    }
}

/// A score as a number.
pub fn to_number(score: i64) -> f64 {
    score as f64 / SCORE_ONE
}

/// Features by their numbers, rounded down; those that are not given are 0.
pub fn to_features(values: impl IntoIterator<Item = f64>) -> Features {
    let mut features = [0; MAX_FEATURES];
    for (feature, value) in features.iter_mut().zip(values) {
        *feature = fixed::quantised(value).unwrap_or(0);
    }
    features
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: FeatureScale = FeatureScale { min: 0.0, max: 1.0 };

    fn split(feature: usize, threshold: f64, low: f64, high: f64) -> Tree {
        Tree::Split {
            feature,
            threshold,
            low: Box::new(Tree::Leaf(low)),
            high: Box::new(Tree::Leaf(high)),
        }
    }

    fn made(
        base: f64,
        trees: &[Tree],
        scales: &[FeatureScale],
        comparison: Comparison,
    ) -> Result<Box<Forest>> {
        Forest::new(&Sum {
            base,
            weights: &[],
            trees,
            scales,
            comparison,
            inverse: false,
            range: None,
        })
    }

    fn says(forest: &Forest, values: &[f64]) -> f64 {
        let features = to_features(values.iter().copied());
        to_number(forest.score(&features))
    }

    #[test]
    fn nothing_lies_between_what_the_header_declares() {
        let fields = 5 * size_of::<u64>()
            + MAX_FEATURES * (size_of::<i64>() + 2 * size_of::<u32>())
            + MAX_NODES * (2 * size_of::<u32>() + size_of::<i32>());
        assert_eq!(size_of::<Forest>(), fields);
    }

    #[test]
    fn trees_of_different_depth_add_up() {
        let deep = Tree::Split {
            feature: 1,
            threshold: 0.25,
            low: Box::new(split(0, 0.5, 10.0, 20.0)),
            high: Box::new(Tree::Leaf(40.0)),
        };
        let trees = [deep, Tree::Leaf(1.0), split(0, 0.5, 0.0, 0.5)];
        let forest = made(-1.0, &trees, &[PLAIN; 2], Comparison::AtMost).unwrap();
        assert_eq!(says(&forest, &[0.5, 0.25]), 10.0);
        assert_eq!(says(&forest, &[0.6, 0.0]), 20.5);
        assert_eq!(says(&forest, &[0.6, 0.3]), 40.5);
    }

    #[test]
    fn equal_goes_where_the_comparison_says() {
        let trees = [split(0, 0.5, 1.0, 2.0)];
        let of = |comparison| made(0.0, &trees, &[PLAIN], comparison).unwrap();
        assert_eq!(says(&of(Comparison::AtMost), &[0.5]), 1.0);
        assert_eq!(says(&of(Comparison::Below), &[0.5]), 2.0);
        let less = f64::from((1u32 << 23) - 1) / FEATURE_ONE;
        assert_eq!(says(&of(Comparison::Below), &[less]), 1.0);
    }

    #[test]
    fn scales_are_undone_and_what_no_value_reaches_has_one_answer() {
        let scale = FeatureScale { min: 2.0, max: 6.0 };
        let of = |threshold| {
            let trees = [split(0, threshold, 1.0, 2.0)];
            made(0.0, &trees, &[scale], Comparison::AtMost).unwrap()
        };
        assert_eq!(says(&of(0.5), &[4.0]), 1.0);
        assert_eq!(says(&of(0.5), &[4.1]), 2.0);
        assert_eq!(says(&of(-1.0), &[0.0]), 2.0);
        assert_eq!(says(&of(1000.0), &[255.0]), 1.0);
    }

    #[test]
    fn weights_end_where_nothing_was_learnt_and_so_does_the_sum() {
        let scale = FeatureScale { min: 1.0, max: 3.0 };
        let forest = Forest::new(&Sum {
            base: 1.0,
            weights: &[-4.0, 10.0],
            trees: &[],
            scales: &[scale, PLAIN],
            comparison: Comparison::AtMost,
            inverse: false,
            range: Some([-2.0, 8.0]),
        });
        let forest = forest.unwrap();
        assert_eq!(says(&forest, &[2.0, 0.25]), 1.5);
        assert_eq!(says(&forest, &[0.5, 0.25]), 3.5);
        assert_eq!(says(&forest, &[9.0, 0.25]), -0.5);
        assert_eq!(says(&forest, &[0.0, 1.0]), 8.0);
        assert_eq!(says(&forest, &[3.0, 0.0]), -2.0);
    }

    #[test]
    fn one_over_the_sum_ends_where_nothing_was_learnt_too() {
        let forest = Forest::new(&Sum {
            base: 0.5,
            weights: &[-1.0],
            trees: &[],
            scales: &[PLAIN],
            comparison: Comparison::AtMost,
            inverse: true,
            range: Some([1.0, 8.0]),
        });
        let forest = forest.unwrap();
        assert_eq!(says(&forest, &[0.0]), 2.0);
        assert_eq!(says(&forest, &[0.25]), 4.0);
        assert_eq!(says(&forest, &[0.4375]), 8.0);
        assert_eq!(says(&forest, &[0.5]), 8.0);
        assert_eq!(says(&forest, &[1.0]), 8.0);
    }

    #[test]
    fn features_can_be_numbered_as_they_are_counted() {
        let trees = [split(0, 0.5, 1.0, 2.0), split(1, 0.25, 0.0, 10.0)];
        let forest = Forest::new(&Sum {
            base: 0.0,
            weights: &[100.0, 1000.0],
            trees: &trees,
            scales: &[PLAIN; 2],
            comparison: Comparison::AtMost,
            inverse: false,
            range: None,
        });
        let forest = forest.unwrap();
        let other = forest.renumbered(&[5, 3]);
        for (a, b) in [(0.0, 0.0), (0.75, 0.125), (0.25, 0.5), (1.0, 1.0)] {
            assert_eq!(
                says(&forest, &[a, b]),
                says(&other, &[9.0, 9.0, 9.0, b, 9.0, a])
            );
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let error = |trees: &[Tree], base| {
            let forest = made(base, trees, &[PLAIN], Comparison::AtMost);
            forest.unwrap_err().to_string()
        };
        assert!(error(&vec![Tree::Leaf(0.0); 257], 0.0).contains("257 trees"));
        assert!(error(&[Tree::Leaf(1e9)], 0.0).contains("out of range"));
        assert!(error(&[Tree::Leaf(f64::NAN)], 0.0).contains("out of range"));
        assert!(error(&[split(1, 0.0, 0.0, 0.0)], 0.0).contains("feature 1 of 1"));
        assert!(error(&[split(0, f64::NAN, 0.0, 0.0)], 0.0).contains("not a number"));
        assert!(error(&[], f64::INFINITY).contains("out of range"));
        let mut deep = Tree::Leaf(0.0);
        for _ in 0..7 {
            deep = Tree::Split {
                feature: 0,
                threshold: 0.0,
                low: Box::new(deep.clone()),
                high: Box::new(deep),
            };
        }
        assert!(error(&[deep], 0.0).contains("7 deep"));
    }
}
