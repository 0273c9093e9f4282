// SPDX-License-Identifier: GPL-2.0-or-later
//! Rows as models of linfa's that go by distances want them: each column brought to 0 to 1.

use anyhow::Result;
use linfa::prelude::*;
use linfa_preprocessing::linear_scaling::LinearScaler;
use ndarray::{Array1, Array2, Axis};

/// Rows that are learnt from.
pub(crate) struct ScaledRows {
    /// One after the other.
    pub(crate) matrix: Array2<f64>,
    scaler: LinearScaler<f64>,
}

impl ScaledRows {
    /// Of rows of as many values each.
    ///
    /// # Errors
    /// There are none, or they are not of one length.
    pub(crate) fn new(rows: Vec<Vec<f64>>) -> Result<Self> {
        let shape = (rows.len(), rows.first().map_or(0, Vec::len));
        let matrix = Array2::from_shape_vec(shape, rows.concat())?;
        let scaler = LinearScaler::min_max().fit(&DatasetBase::from(matrix.clone()))?;
        let matrix = scaler.transform(matrix);
        Ok(Self { matrix, scaler })
    }

    /// Brings another row to what those that are learnt from were brought to.
    pub(crate) fn scaler(&self) -> impl Fn(&[f64]) -> Array2<f64> + use<> {
        let scaler = self.scaler.clone();
        move |values| {
            let row = Array1::from_iter(values.iter().copied());
            scaler.transform(row.insert_axis(Axis(0)))
        }
    }

    /// Of each column, what became 0, and what a unit of it became.
    pub(crate) fn columns(&self) -> impl Iterator<Item = (f64, f64)> {
        let scales = self.scaler.scales().iter();
        self.scaler.offsets().iter().copied().zip(scales.copied())
    }
}
