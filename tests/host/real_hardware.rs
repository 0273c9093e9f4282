// SPDX-License-Identifier: GPL-2.0-only
//! Learning from measurements of real hybrid CPUs, which are not part of the project: where their folder
//! is not there, nothing is tried (docs/real-hardware.md).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program::command;
use crate::tables::{Row, rows, spread};

/// The tables in the form of `train`, if there are any.
fn tables() -> Option<tempfile::TempDir> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let converted = Command::new(root.join("experiments/real-hardware"))
        .arg("--convert")
        .arg(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&converted.stderr);
    assert!(converted.status.success(), "{said}");
    if said.contains("SKIPPED") {
        eprint!("{said}");
        return None;
    }
    Some(folder)
}

/// The least, the median and the most SF of a suite.
fn sfs(rows: &[Row], suite: &str) -> [f64; 3] {
    let mut times: BTreeMap<&str, [f64; 2]> = BTreeMap::new();
    for row in rows.iter().filter(|row| row["program"].starts_with(suite)) {
        let side = usize::from(row["core-type"] == "E");
        times.entry(&row["program"]).or_default()[side] = row["run-ns"].parse().unwrap();
    }
    spread(times.values().map(|[p, e]| e / p).collect())
}

#[test]
fn tables_of_real_cpus_have_the_speedups_that_their_source_gives() {
    let Some(folder) = tables() else { return };
    let given = [
        ("i9-12900ks", "int2017", [1.36, 1.60, 1.88]),
        ("i9-12900ks", "fp2017", [1.54, 1.89, 4.03]),
        ("i9-12900ks", "int2026", [1.48, 1.70, 2.44]),
        ("i9-12900ks", "fp2026", [1.61, 1.90, 2.52]),
        ("i7-13700k", "int2017", [1.27, 1.50, 2.35]),
        ("i7-13700k", "fp2017", [1.70, 1.90, 3.67]),
        ("apple-m1", "int2017", [1.96, 2.47, 3.17]),
        ("apple-m1", "fp2017", [2.20, 2.99, 5.05]),
        ("8cx-gen3", "int2017", [1.26, 1.41, 1.54]),
    ];
    for (cpu, suite, expected) in given {
        let found = sfs(&rows(&folder.path().join(format!("{cpu}.csv"))), suite);
        let near = |(is, given): (&f64, &f64)| (is - given).abs() < 0.006;
        assert!(
            found.iter().zip(&expected).all(near),
            "{cpu} {suite}: {found:?}"
        );
    }
    // EF is the A7's EDP over the A15's: the source has 4.4 the other way round, and 1.8.
    let board = rows(&folder.path().join("xu3-ef.csv"));
    assert_eq!(board.len(), 28);
    for (program, expected) in [("network_dijkstra", 4.4), ("telecom_gsm", 1.8)] {
        let row = board.iter().find(|row| row["program"] == program).unwrap();
        let edp = 1.0 / row["sf"].parse::<f64>().unwrap();
        assert!((edp - expected).abs() < 0.06, "{program}: {edp}");
    }
    let all = rows(&folder.path().join("xu3-all.csv"));
    let of_a15 = || all.iter().filter(|row| row["core-type"] == "A15");
    let number = |row: &Row, column: &str| row[column].parse::<f64>().unwrap();
    let cheaper = of_a15().filter(|row| number(row, "ef") < number(row, "sf"));
    let lower = of_a15().filter(|row| number(row, "ef") < 1.0);
    assert_eq!(
        (of_a15().count(), cheaper.count(), lower.count()),
        (30, 30, 29)
    );
}

#[test]
fn of_the_board_ef_is_learnt_beside_sf_from_one_table() {
    let Some(folder) = tables() else { return };
    let words = ["train", "xu3.csv", "-o", "model.json"];
    let output = command(&words).current_dir(folder.path()).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let model = scx_hetero::ml::model::Model::read(&folder.path().join("model.json")).unwrap();
    let types: Vec<_> = model.efficiency.iter().map(|ef| &ef.core_type).collect();
    assert_eq!(types, ["A15", "A7"]);
    let from_a15 = model.efficiency[0].scores;
    assert!((0.3..0.8).contains(&from_a15.correlation), "{from_a15:?}");
    assert!(from_a15.mae < 0.17, "{from_a15:?}");
}

/// The errors of the model and of the mean on a core type, of what `train` prints.
fn errors(folder: &Path, table: &str, kind: &str, more: &[&str]) -> [f64; 2] {
    let words = [&["train", table, "-o", "model.json"][..], more].concat();
    let output = command(&words).current_dir(folder).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines = said
        .lines()
        .skip_while(|line| line.trim() != format!("SF from {kind}"));
    let error = |name: &str| -> f64 {
        let line = lines
            .clone()
            .find(|line| line.trim().starts_with(name))
            .unwrap();
        // The number before the last bracket that holds an interval of errors.
        let words: Vec<&str> = line.split_whitespace().collect();
        let error = words
            .iter()
            .find(|word| word.len() == 5 && word.starts_with("0."));
        error.unwrap().parse().unwrap()
    };
    [error("this model"), error("the mean of all")]
}

#[test]
fn what_is_learnt_of_a_real_cpu_is_nearer_than_the_mean_from_p() {
    let Some(folder) = tables() else { return };
    let linear = ["--model-kind", "linear"];
    let [model, mean] = errors(folder.path(), "i9-12900ks.csv", "P", &linear);
    assert!(model < mean && model < 0.27, "{model} {mean}");
    let [model, mean] = errors(folder.path(), "apple-m1.csv", "P", &[]);
    assert!(model < 0.9 * mean, "{model} {mean}");
    let model: PathBuf = folder.path().join("model.json");
    let model = scx_hetero::ml::model::Model::read(&model).unwrap();
    // A correlation like that of the virtual machines' models would be too good to be true.
    assert!(
        model
            .speedup
            .iter()
            .all(|speedup| speedup.scores.correlation < 0.9)
    );
}
