// SPDX-License-Identifier: GPL-2.0-or-later
//! What a model says of programs that were left out, so that it was not learnt from them.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::import;
use hetero_core::ml::data::Data;
use hetero_core::ml::model::Model;
use hetero_core::ml::scores::median;
use hetero_core::text::wrap;

/// A way to run a program on a core type: means over its windows.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct LeftOut {
    /// Its name.
    pub program: String,
    /// The way to run it.
    pub variant: String,
    /// Where it was measured.
    pub core_type: String,
    /// How much faster it is on the fastest core type than on the slowest.
    pub sf: f64,
    /// What the model says of that.
    pub said: f64,
    /// How sure it is: standard error of the logarithm of SF.
    pub sigma: f64,
}

/// What `model` says of the rows of `data`.
///
/// # Errors
/// The model asks for what they lack.
pub fn estimates(model: &Model, data: &Data) -> Result<Vec<LeftOut>> {
    let mut found = Vec::new();
    for speedup in &model.speedup {
        let of_type = |&row: &usize| data.core_types[data.rows[row].core_type] == speedup.core_type;
        let rows: Vec<usize> = (0..data.rows.len()).filter(of_type).collect();
        let said = import::estimates(data, &rows, &speedup.trees)?;
        let mut ways: BTreeMap<(&str, &str), Vec<[f64; 3]>> = BTreeMap::new();
        for (&row, (said, features)) in rows.iter().zip(said) {
            let row = &data.rows[row];
            let way = ways.entry((&row.program, &row.variant)).or_default();
            way.push([row.sf, said, speedup.sigma_at(&features)]);
        }
        found.extend(ways.into_iter().map(|((program, variant), windows)| {
            let mean = |which: usize| {
                windows.iter().map(|window| window[which]).sum::<f64>() / windows.len() as f64
            };
            LeftOut {
                program: program.to_string(),
                variant: variant.to_string(),
                core_type: speedup.core_type.clone(),
                sf: mean(0),
                said: mean(1),
                sigma: mean(2),
            }
        }));
    }
    Ok(found)
}

/// As a CSV file, which `scx_hetero sim --model` reads.
///
/// # Errors
/// Memory.
pub fn csv(found: &[LeftOut]) -> Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for way in found {
        writer.serialize(way)?;
    }
    writer.into_inner().context("cannot write the table")
}

/// In a sentence for each core type.
pub fn text(found: &[LeftOut], core_types: &[String]) -> String {
    let mut out = String::new();
    for core_type in core_types {
        let of_type = found.iter().filter(|way| way.core_type == *core_type);
        let off: Vec<f64> = of_type.map(|way| (way.said / way.sf - 1.0).abs()).collect();
        if let Some(most) = off.iter().copied().reduce(f64::max) {
            let text = format!(
                "Left out: {} ways to run programs on {core_type}, of which SF is off by {:.0} % in the median, {:.0} % at most.",
                off.len(),
                100.0 * median(off.clone()),
                100.0 * most
            );
            out += &wrap(&text);
            out.push('\n');
        }
    }
    out
}
