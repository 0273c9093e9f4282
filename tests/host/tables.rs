// SPDX-License-Identifier: GPL-2.0-only
//! Tables in CSV files, such as others' measurements of real machines.

use std::collections::BTreeMap;
use std::path::Path;

use hetero_core::ml::scores::median;

/// A row, by column.
pub(crate) type Row = BTreeMap<String, String>;

/// The rows of a file.
pub(crate) fn rows(path: &Path) -> Vec<Row> {
    let mut reader =
        csv::Reader::from_path(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    reader.deserialize().map(Result::unwrap).collect()
}

/// Least, median, most.
pub(crate) fn spread(values: Vec<f64>) -> [f64; 3] {
    assert!(!values.is_empty());
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    [least, median(values), most]
}
