// SPDX-License-Identifier: GPL-2.0-or-later
//! Trees that others have learnt say the same here.

use std::path::{Path, PathBuf};

use hetero_core::ml::data::Per;
use hetero_core::ml::forest::{Forest, to_features, to_number};
use scx_hetero_learn::import;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/ml")
}

#[test]
fn imported_trees_say_what_the_originals_say() {
    let mut predictions = csv::Reader::from_path(fixtures().join("predictions.csv")).unwrap();
    let names: Vec<String> = predictions
        .headers()
        .unwrap()
        .iter()
        .skip(6)
        .map(String::from)
        .collect();
    assert_eq!(names.len(), 4);
    let forests: Vec<Box<Forest>> = names
        .iter()
        .map(|name| {
            let trees = import::read(&fixtures().join(format!("{name}.json")), Per::Cycle).unwrap();
            trees.forest().unwrap()
        })
        .collect();
    let mut rows = 0;
    for record in predictions.records() {
        let numbers: Vec<f64> = record
            .unwrap()
            .iter()
            .map(|cell| cell.parse().unwrap())
            .collect();
        let features = to_features(numbers[..6].iter().copied());
        for ((forest, expected), name) in forests.iter().zip(&numbers[6..]).zip(&names) {
            let said = to_number(forest.score(&features));
            // Each of 20 leaves is rounded to 1/2^20, and XGBoost adds in single precision.
            assert!(
                (said - expected).abs() < 2e-5,
                "{name}: {said}, not {expected}"
            );
        }
        rows += 1;
    }
    assert_eq!(rows, 100);
}

#[test]
fn trees_that_cannot_be_imported_are_explained() {
    let error = |text: &str| format!("{:#}", import::parse(text, Per::Cycle).unwrap_err());
    let text = std::fs::read_to_string(fixtures().join("xgboost-regressor.json")).unwrap();
    assert!(error(&text[..text.len() / 2]).contains("cut short"));
    assert!(error("{}").contains("neither XGBoost"));
    assert!(error(&text.replace("reg:squarederror", "rank:pairwise")).contains("rank:pairwise"));
    assert!(error(&text.replace("\"gbtree\"", "\"dart\"")).contains("dart"));
    let ours = std::fs::read_to_string(fixtures().join("sklearn-regressor.json")).unwrap();
    let other = import::parse(&ours, Per::Instruction).unwrap_err();
    assert!(other.to_string().contains("Instruction"), "{other}");
}
