// SPDX-License-Identifier: GPL-2.0-or-later
//! What models are worth on programs that they were not learnt from. What is scored is the forest in
//! fixed point, as it is evaluated while scheduling.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng as _};

use super::boosting::{Boosting, TrainingError};
use super::data::Data;
use super::forest::{Forest, to_number};
use super::learn::{self, Pair, View, fixed};
use super::model::Trees;
use super::scores::{Confusion, Nearness, RowEstimate};

/// Deals programs into `number` groups of about equal size, by chance; the group of each row.
pub fn groups(data: &Data, number: usize, seed: u64) -> Vec<usize> {
    let mut programs = data.programs();
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    for n in (1..programs.len()).rev() {
        programs.swap(n, (rng.next_u64() % (n as u64 + 1)) as usize);
    }
    let group: BTreeMap<&str, usize> = programs
        .iter()
        .enumerate()
        .map(|(n, &name)| (name, n % number))
        .collect();
    data.rows
        .iter()
        .map(|row| group[row.program.as_str()])
        .collect()
}

/// Pairs of rows of different programs whose SF differs: all, or where those are more than `most`,
/// as many by chance of every two programs.
pub fn pairs(data: &Data, most: usize, seed: u64) -> Vec<Pair> {
    let programs = data.programs();
    let rows_of = |name: &str| -> Vec<usize> {
        let rows = data
            .rows
            .iter()
            .enumerate()
            .filter(|(_, row)| row.program == name);
        rows.map(|(n, _)| n).collect()
    };
    let rows: Vec<Vec<usize>> = programs.iter().map(|name| rows_of(name)).collect();
    let couples = programs.len() * programs.len().saturating_sub(1) / 2;
    let each = (most / couples.max(1)).max(1);
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut pairs = Vec::new();
    for (n, first) in rows.iter().enumerate() {
        for second in &rows[..n] {
            let all = first.len() * second.len();
            let mut take = |number: usize| {
                let pair = Pair {
                    a: first[number / second.len()],
                    b: second[number % second.len()],
                };
                if data.rows[pair.a].sf != data.rows[pair.b].sf {
                    pairs.push(pair);
                }
            };
            if all <= each {
                (0..all).for_each(&mut take);
            } else {
                for _ in 0..each {
                    take((rng.next_u64() % all as u64) as usize);
                }
            }
        }
    }
    pairs
}

/// Estimates of SF for rows whose program was not learnt from.
#[derive(Clone, Debug, Default)]
pub struct HeldOutSpeedups {
    /// What is, and what was said.
    pub rows: Vec<RowEstimate>,
    /// The mean learning curve.
    pub curve: Vec<TrainingError>,
}

impl HeldOutSpeedups {
    /// How good they are.
    pub fn nearness(&self) -> Nearness {
        Nearness::of(&self.rows)
    }
}

/// For each group that has some of the rows: these, and the others.
pub fn one_left_out(rows: &[usize], groups: &[usize]) -> Vec<(Vec<usize>, Vec<usize>)> {
    let last = groups.iter().max().map_or(0, |last| last + 1);
    let folds = (0..last).map(|group| rows.iter().partition(|&&row| groups[row] == group));
    folds
        .filter(|(out, learnt): &(Vec<usize>, Vec<usize>)| !out.is_empty() && !learnt.is_empty())
        .collect()
}

/// Two groups that are left out, perhaps twice the same.
pub struct TwoLeftOut {
    /// Both.
    pub groups: [usize; 2],
    /// The pairs between them. Either thread may be the one asked about.
    pub out: Vec<Pair>,
    /// The pairs that have to do with neither.
    pub learnt: Vec<Pair>,
}

/// Every two groups that have pairs between them, so each pair is left out once, and both its programs
/// are new then.
pub fn two_left_out(pairs: &[Pair], groups: &[usize]) -> Vec<TwoLeftOut> {
    let last = groups.iter().max().map_or(0, |last| last + 1);
    let twos = (0..last).flat_map(|first| (0..=first).map(move |second| [first, second]));
    let folds = twos.map(|two| {
        let [first, second] = two;
        let in_two = |row: usize| groups[row] == first || groups[row] == second;
        let between = |pair: &&Pair| {
            let (a, b) = (groups[pair.a], groups[pair.b]);
            (a == first && b == second) || (a == second && b == first)
        };
        let turned = |&Pair { a, b }: &Pair| match (a + b) % 2 {
            0 => Pair { a, b },
            _ => Pair { a: b, b: a },
        };
        let apart = |pair: &&Pair| !in_two(pair.a) && !in_two(pair.b);
        TwoLeftOut {
            groups: two,
            out: pairs.iter().filter(between).map(turned).collect(),
            learnt: pairs.iter().copied().filter(|pair| apart(&pair)).collect(),
        }
    });
    folds
        .filter(|fold| !fold.out.is_empty() && !fold.learnt.is_empty())
        .collect()
}

/// Leaves out each group in turn, and estimates SF of its rows of a core type by what was learnt
/// from the others.
pub fn speedups(
    data: &Data,
    core_type: usize,
    view: &View,
    boosting: &Boosting,
    groups: &[usize],
) -> Result<HeldOutSpeedups> {
    let mut found = HeldOutSpeedups::default();
    let mut curves = Vec::new();
    let programs = data.program_numbers();
    for (out, learnt) in one_left_out(&data.rows_of(core_type), groups) {
        let (trees, fitted) = learn::speedup(data, &learnt, view, boosting, &out)?;
        curves.push((fitted.curve, out.len()));
        let forest = trees.forest()?;
        found.rows.extend(out.iter().map(|&row| {
            let said = forest.score(&fixed(&view.values(data, row)));
            RowEstimate {
                program: programs[row],
                is: data.rows[row].sf,
                said: to_number(said),
            }
        }));
    }
    found.curve = mean_curve(&curves);
    Ok(found)
}

/// How well pairs are told apart neither of whose programs was learnt from.
#[derive(Clone, Debug, Default)]
pub struct Comparisons {
    /// By the classifier, asked one way round.
    pub classifier: Confusion,
    /// By the classifier, asked both ways round.
    pub both_ways: Confusion,
    /// By the estimated SF.
    pub by_speedup: Confusion,
    /// The last two, of pairs whose SF differs by more than 5 %.
    pub apart: [Confusion; 2],
    /// The mean learning curve of the classifier.
    pub curve: Vec<TrainingError>,
}

/// What is compared by, and how it is learnt.
pub struct Contest<'c> {
    /// What the classifier sees.
    pub view: &'c View,
    /// How it is learnt.
    pub classifier: Boosting,
    /// What the estimate of SF sees, by core type.
    pub speedup_views: &'c [View],
    /// How that is learnt, by core type.
    pub speedup: &'c [Boosting],
}

/// Leaves out every two groups in turn, the same one twice included, and compares pairs between
/// them by what was learnt from the others: so each pair counts once, and both its programs are new.
pub fn comparisons(
    data: &Data,
    pairs: &[Pair],
    contest: &Contest,
    groups: &[usize],
    progress: &mut dyn FnMut(),
) -> Result<Comparisons> {
    let mut found = Comparisons::default();
    let mut curves = Vec::new();
    for TwoLeftOut {
        groups: two,
        out,
        learnt,
    } in two_left_out(pairs, groups)
    {
        progress();
        let without = |row: usize| !two.contains(&groups[row]);
        let (trees, fitted) =
            learn::classifier(data, &learnt, contest.view, &contest.classifier, &out)?;
        curves.push((fitted.curve, out.len()));
        let forest = trees.forest()?;
        let by = (contest.speedup_views, contest.speedup);
        let estimates = estimates(data, by, &without)?;
        let says = |pair: Pair| forest.score(&fixed(&contest.view.of_pair(data, pair)));
        let estimate = |row: usize| {
            let core_type = data.rows[row].core_type;
            let forest = estimates[core_type].as_ref()?;
            Some(forest.score(&fixed(&contest.speedup_views[core_type].values(data, row))))
        };
        for &pair in &out {
            let (a, b) = (data.rows[pair.a].sf, data.rows[pair.b].sf);
            let score = says(pair);
            let both = score
                > says(Pair {
                    a: pair.b,
                    b: pair.a,
                });
            let by_speedup = estimate(pair.a) > estimate(pair.b);
            found.classifier.add(a > b, score > 0);
            found.both_ways.add(a > b, both);
            found.by_speedup.add(a > b, by_speedup);
            if (a / b).max(b / a) > 1.05 {
                found.apart[0].add(a > b, both);
                found.apart[1].add(a > b, by_speedup);
            }
        }
    }
    found.curve = mean_curve(&curves);
    Ok(found)
}

/// How often the estimates of both tell which of two has the greater one, neither of whose programs was
/// learnt from: as [`Comparisons::by_speedup`], without a classifier.
pub fn by_estimate(
    data: &Data,
    pairs: &[Pair],
    views: &[View],
    boosting: &[Boosting],
    groups: &[usize],
) -> Result<Confusion> {
    let mut found = Confusion::default();
    for TwoLeftOut {
        groups: two, out, ..
    } in two_left_out(pairs, groups)
    {
        let without = |row: usize| !two.contains(&groups[row]);
        let estimates = estimates(data, (views, boosting), &without)?;
        let estimate = |row: usize| {
            let core_type = data.rows[row].core_type;
            let forest = estimates[core_type].as_ref()?;
            Some(forest.score(&fixed(&views[core_type].values(data, row))))
        };
        for pair in out {
            let (a, b) = (data.rows[pair.a].sf, data.rows[pair.b].sf);
            found.add(a > b, estimate(pair.a) > estimate(pair.b));
        }
    }
    Ok(found)
}

/// What estimates SF on each core type, learnt from these rows; `None` where there are none.
fn estimates(
    data: &Data,
    (views, boosting): (&[View], &[Boosting]),
    learnt: &dyn Fn(usize) -> bool,
) -> Result<Vec<Option<Box<Forest>>>> {
    let of_type = |core_type: usize| {
        let mut rows = data.rows_of(core_type);
        rows.retain(|&row| learnt(row));
        if rows.is_empty() {
            return Ok(None);
        }
        let view = &views[core_type];
        let (trees, _): (Trees, _) = learn::speedup(data, &rows, view, &boosting[core_type], &[])?;
        trees.forest().map(Some)
    };
    (0..data.core_types.len()).map(of_type).collect()
}

/// Curves of folds, each weighing as much as it held out.
fn mean_curve(curves: &[(Vec<TrainingError>, usize)]) -> Vec<TrainingError> {
    let length = curves
        .iter()
        .map(|(curve, _)| curve.len())
        .min()
        .unwrap_or(0);
    let weight: f64 = curves.iter().map(|(_, weight)| *weight as f64).sum();
    let mean = |n: usize, value: fn(&TrainingError) -> f64| {
        let terms = curves
            .iter()
            .map(|(curve, weight)| value(&curve[n]) * *weight as f64);
        terms.sum::<f64>() / weight
    };
    let step = |n| TrainingError {
        learnt: mean(n, |step| step.learnt),
        held_out: Some(mean(n, |step| step.held_out.unwrap_or(step.learnt))),
    };
    (0..length).map(step).collect()
}

/// Whether boosting begins with a weighted sum, whether SF or 1 / SF is learnt, and how many trees it
/// takes: what is best for programs that are not learnt from, with all features.
///
/// Where each event costs a core so many cycles, time on the one core type over cycles on the other is
/// a weighted sum of events per cycle: on the fastest that is SF, and on the slowest 1 / SF.
///
/// # Errors
/// Nothing can be learnt.
pub fn begin(
    data: &Data,
    core_type: usize,
    all: &[usize],
    boosting: Boosting,
    groups: &[usize],
) -> Result<Boosting> {
    let view = View {
        features: all.to_vec(),
        core_type: false,
    };
    let mut found: Option<(f64, Boosting)> = None;
    for (linear, inverse) in [(false, false), (true, false), (false, true), (true, true)] {
        let boosting = Boosting {
            linear,
            inverse,
            ..boosting
        };
        let first = speedups(data, core_type, &view, &boosting, groups)?;
        let boosting = Boosting {
            trees: best(&first.curve).max(usize::from(!linear)),
            ..boosting
        };
        let error = speedups(data, core_type, &view, &boosting, groups)?
            .nearness()
            .mae;
        if found.is_none_or(|(least, _)| error < least) {
            found = Some((error, boosting));
        }
    }
    found
        .map(|(_, boosting)| boosting)
        .context("nothing can be learnt")
}

/// After how many trees what was held out was nearest.
pub fn best(curve: &[TrainingError]) -> usize {
    let losses = curve
        .iter()
        .map(|step| step.held_out.unwrap_or(f64::INFINITY));
    let least = losses.enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
    least.map_or(0, |(trees, _)| trees)
}
