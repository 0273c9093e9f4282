// SPDX-License-Identifier: GPL-2.0-or-later
//! Ways to learn SF: plain guesses that a model must beat, what `train` does, and what else was tried
//! on measurements of real CPUs (docs/real-hardware.md). All are asked by [`crate::trial`].

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use hetero_core::ml::boosting::Boosting;
use hetero_core::ml::data::Data;
use hetero_core::ml::forest::to_number;
use hetero_core::ml::learn::{self, View, fixed};
use hetero_core::ml::scores::median;
use hetero_core::ml::validate::{groups, one_left_out};

use crate::fit::{Fit, instructions};
use crate::kinds::{self, LinfaKind};
use crate::settle::{Limits, Settled, settle};
use crate::trial::RowEstimator;

/// Into so many groups programs are dealt by what something is chosen.
const GROUPS: usize = 8;
const SEED: u64 = 1;

/// A way to learn SF from rows of one core type.
#[derive(Clone, Debug)]
pub enum Way {
    /// All programs have the mean SF.
    Mean,
    /// All programs have the median SF, which is nearer to most.
    Median,
    /// More instructions per cycle are more SF: an order, and no estimate.
    Ipc,
    /// One way to fit.
    Fit(Fit),
    /// The one of these that is best for programs left out.
    Best(Vec<Fit>),
    /// The mean of what these say.
    Average(Vec<Fit>),
    /// With those features that serve programs left out best.
    Few(Fit),
    /// What `train` does, with all that it chooses; the limits of boosting.
    Train(Boosting),
    /// Another kind of models (`train --compare`), with all features.
    Kind(LinfaKind),
}

impl Way {
    /// Learns from rows of one core type. `features` are those that they all have.
    ///
    /// # Errors
    /// It cannot be learnt.
    pub fn learn(&self, data: &Data, rows: &[usize], features: &[usize]) -> Result<RowEstimator> {
        let sfs = || rows.iter().map(|&row| data.rows[row].sf);
        Ok(match self {
            Self::Mean => {
                let mean = sfs().sum::<f64>() / rows.len() as f64;
                Box::new(move |_, _| mean)
            }
            Self::Median => {
                let median = median(sfs().collect());
                Box::new(move |_, _| median)
            }
            Self::Ipc => {
                let ipc = instructions(data)?;
                Box::new(move |data, row| data.rows[row].features[ipc])
            }
            Self::Fit(fit) => fit.learn(data, rows, features)?,
            Self::Best(fits) => best(fits, data, rows, features)?.learn(data, rows, features)?,
            Self::Average(fits) => {
                let all = fits.iter().map(|fit| fit.learn(data, rows, features));
                let all = all.collect::<Result<Vec<_>>>()?;
                Box::new(move |data, row| {
                    all.iter().map(|says| says(data, row)).sum::<f64>() / all.len() as f64
                })
            }
            Self::Few(fit) => fit.learn(data, rows, &few(fit, data, rows, features)?)?,
            Self::Train(boosting) => {
                let limits = Limits {
                    boosting: *boosting,
                    all_features: false,
                    at_once: &|_| true,
                };
                train(data, rows, features, &limits, false)?
            }
            Self::Kind(kind) => {
                let view = View {
                    features: features.to_vec(),
                    core_type: false,
                };
                let says = kinds::speedup(*kind, data, rows, &view)?;
                let says = says.context("this kind estimates no SF")?;
                Box::new(move |data, row| says(&view.values(data, row)))
            }
        })
    }

    /// Whether what it says is an SF, and not only an order.
    pub fn estimates(&self) -> bool {
        !matches!(self, Self::Ipc)
    }
}

/// What `train` does, with all that it chooses, from these rows; `linear`, as with `--model-kind linear`.
///
/// # Errors
/// It cannot be learnt.
pub fn train(
    data: &Data,
    rows: &[usize],
    features: &[usize],
    limits: &Limits,
    linear: bool,
) -> Result<RowEstimator> {
    let part = data.part(rows);
    let core_type = part.rows[0].core_type;
    let programs = part.programs().len();
    let few = groups(&part, GROUPS.min(programs), SEED);
    let each = groups(&part, programs.min(100), SEED);
    // Of fewer programs one more feature may be the same everywhere.
    let usable = part.usable(&[core_type]);
    let features = features.iter().copied();
    let features = features.filter(|feature| usable.contains(feature));
    let settled = settle(&part, core_type, features.collect(), limits, [&few, &each])?;
    as_settled(&part, &part.rows_of(core_type), settled, linear)
}

/// What was settled on, learnt from these rows and asked in fixed point as while scheduling.
///
/// # Errors
/// It cannot be learnt.
pub fn as_settled(
    data: &Data,
    rows: &[usize],
    settled: Settled,
    linear: bool,
) -> Result<RowEstimator> {
    let Settled { view, boosting, .. } = settled;
    let trees = match linear {
        true => kinds::linear(data, rows, &view)?,
        false => learn::speedup(data, rows, &view, &boosting, &[])?.0,
    };
    let forest = trees.forest()?;
    Ok(Box::new(move |data, row| {
        to_number(forest.score(&fixed(&view.values(data, row))))
    }))
}

/// The sum of absolute errors on programs left out.
fn error(fit: &Fit, data: &Data, rows: &[usize], features: &[usize]) -> Result<f64> {
    let programs: BTreeSet<&str> = rows
        .iter()
        .map(|&row| data.rows[row].program.as_str())
        .collect();
    let group: BTreeMap<&str, usize> = programs
        .into_iter()
        .enumerate()
        .map(|(n, name)| (name, n % GROUPS))
        .collect();
    let mut groups = vec![0; data.rows.len()];
    for &row in rows {
        groups[row] = group[data.rows[row].program.as_str()];
    }
    let mut sum = 0.0;
    for (out, learnt) in one_left_out(rows, &groups) {
        let says = fit.learn(data, &learnt, features)?;
        let errors = out
            .iter()
            .map(|&row| (says(data, row) - data.rows[row].sf).abs());
        sum += errors.sum::<f64>();
    }
    Ok(sum)
}

fn best<'f>(fits: &'f [Fit], data: &Data, rows: &[usize], features: &[usize]) -> Result<&'f Fit> {
    let mut found: Option<(f64, &Fit)> = None;
    for fit in fits {
        let error = error(fit, data, rows, features)?;
        if found.is_none_or(|(least, _)| error < least) {
            found = Some((error, fit));
        }
    }
    found
        .map(|(_, fit)| fit)
        .context("there is nothing to choose from")
}

/// Leaves out the feature that is missed least as long as the error gets no greater.
fn few(fit: &Fit, data: &Data, rows: &[usize], features: &[usize]) -> Result<Vec<usize>> {
    let mut now = (error(fit, data, rows, features)?, features.to_vec());
    while now.1.len() > 1 {
        let mut next: Option<(f64, Vec<usize>)> = None;
        for left_out in &now.1 {
            let fewer = now.1.iter().copied();
            let fewer: Vec<usize> = fewer.filter(|feature| feature != left_out).collect();
            let error = error(fit, data, rows, &fewer)?;
            if next.as_ref().is_none_or(|(least, _)| error < *least) {
                next = Some((error, fewer));
            }
        }
        match next {
            Some(next) if next.0 <= now.0 => now = next,
            _ => break,
        }
    }
    Ok(now.1)
}
