// SPDX-License-Identifier: GPL-2.0-or-later
//! For experiments/ml-peers/compare.py: the pairs that `scx_hetero train` learns its classifier from,
//! as CSV, and on standard error how long ours takes.

use std::time::Instant;

use anyhow::Result;
use hetero_core::ml::boosting::{Boosting, Loss};
use hetero_core::ml::data::Data;
use hetero_core::ml::learn::{self, Pair, View};
use hetero_core::ml::validate::{Contest, comparisons, groups, pairs};

fn main() -> Result<()> {
    let tables: Vec<String> = std::env::args().skip(1).collect();
    let data = Data::read(&tables, &[])?;
    let types: Vec<usize> = (0..data.core_types.len()).collect();
    let view = View {
        features: data.usable(&types),
        core_type: types.len() > 1,
    };
    let (groups, pairs) = (groups(&data, 8, 1), pairs(&data, 10_000, 1));
    for &pair in &pairs {
        for (a, b) in [(pair.a, pair.b), (pair.b, pair.a)] {
            let class = u8::from(data.rows[a].sf > data.rows[b].sf);
            let values = view.of_pair(&data, Pair { a, b });
            let values: Vec<String> = values.iter().map(f64::to_string).collect();
            println!("{class},{},{},{}", groups[a], groups[b], values.join(","));
        }
    }
    let boosting = Boosting::new(Loss::Logistic);
    let begin = Instant::now();
    let (trees, _) = learn::classifier(&data, &pairs, &view, &boosting, &[])?;
    let learnt = begin.elapsed();
    let forest = trees.forest()?;
    let features: Vec<_> = pairs
        .iter()
        .map(|&pair| learn::fixed(&view.of_pair(&data, pair)))
        .collect();
    let begin = Instant::now();
    let sum: i64 = features.iter().map(|features| forest.score(features)).sum();
    let asked = begin.elapsed() / features.len() as u32;
    let constant = View {
        features: Vec::new(),
        core_type: true,
    };
    let views = vec![constant; types.len()];
    let ways = vec![
        Boosting {
            trees: 1,
            ..Boosting::new(Loss::Squared)
        };
        types.len()
    ];
    let contest = Contest {
        view: &view,
        classifier: boosting,
        speedup_views: &views,
        speedup: &ways,
    };
    let found = comparisons(&data, &pairs, &contest, &groups, &mut || ())?;
    eprintln!(
        "ours: {:.1}% of {} pairs not learnt from; learnt {} rows of {} features in {learnt:.2?}, one answer takes {asked:?} (sum {sum})",
        100.0 * found.classifier.accuracy(),
        found.classifier.number(),
        2 * pairs.len(),
        2 * view.features.len() + 2,
    );
    Ok(())
}
