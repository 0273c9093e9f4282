// SPDX-License-Identifier: GPL-2.0-only
//! Learning from tables, and models: what others' trees say, what Rust and C say, and what a user
//! sees who gives what cannot be used.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::program::command;
use proptest::prelude::*;
use scx_hetero::arith::forest as native;
use scx_hetero::ml::fixed;
use scx_hetero::ml::forest::{Comparison, FeatureScale, Forest, MAX_FEATURES, Sum, to_number};
use scx_hetero::ml::model::Model;
use scx_hetero::ml::tree::Tree;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/ml")
}

#[test]
fn the_layout_of_a_forest_is_that_of_the_header() {
    assert_eq!(size_of::<Forest>(), native::size());
}

fn trees() -> impl Strategy<Value = Tree> {
    let leaf = (-50.0..50.0f64).prop_map(Tree::Leaf);
    leaf.prop_recursive(6, 64, 2, |inner| {
        (0..MAX_FEATURES, -0.2..1.2f64, inner.clone(), inner).prop_map(
            |(feature, threshold, low, high)| Tree::Split {
                feature,
                threshold,
                low: Box::new(low),
                high: Box::new(high),
            },
        )
    })
}

proptest! {
    #[test]
    fn rust_and_c_give_the_same_to_the_last_bit(
        base in -10.0..10.0f64,
        trees in prop::collection::vec(trees(), 0..20),
        weights in prop::collection::vec(-100.0..100.0f64, MAX_FEATURES),
        ends in prop::collection::vec((0.0..1.0f64, 1e-6..2.0f64), MAX_FEATURES),
        below in any::<bool>(),
        inverse in any::<bool>(),
        range in prop::option::of((-20.0..0.0f64, 0.0..20.0f64)),
        rows in prop::collection::vec(prop::collection::vec(prop_oneof![any::<u32>(), 0..1u32 << 25], MAX_FEATURES), 20),
    ) {
        let scales: Vec<FeatureScale> = ends.iter().map(|&(min, width)| FeatureScale { min, max: min + width }).collect();
        let forest = Forest::new(&Sum {
            base,
            weights: &weights,
            trees: &trees,
            scales: &scales,
            comparison: if below { Comparison::Below } else { Comparison::AtMost },
            inverse,
            range: range.map(|(least, most)| [least, most]),
        }).unwrap();
        for row in &rows {
            let features = row.as_slice().try_into().unwrap();
            prop_assert_eq!(forest.score(&features), native::score(&forest, &features));
        }
    }

    #[test]
    fn a_feature_is_the_same_in_rust_and_c(count in any::<u64>(), cycles in any::<u64>(), small in 0..1000u64) {
        for (count, cycles) in [(count, cycles), (count, small), (small, cycles), (small, small)] {
            prop_assert_eq!(fixed::feature(count, cycles), native::feature(count, cycles));
        }
    }

    #[test]
    fn trees_in_fixed_point_go_the_way_that_the_numbers_go(
        tree in trees(),
        row in prop::collection::vec(0..1u32 << 25, MAX_FEATURES),
    ) {
        let scales = [FeatureScale { min: 0.25, max: 1.25 }; MAX_FEATURES];
        let forest = Forest::new(&Sum {
            base: 0.0,
            weights: &[],
            trees: std::slice::from_ref(&tree),
            scales: &scales,
            comparison: Comparison::AtMost,
            inverse: false,
            range: None,
        }).unwrap();
        let features = row.as_slice().try_into().unwrap();
        let value = tree.value(|feature| fixed::number(row[feature]) - 0.25);
        prop_assert!((to_number(forest.score(&features)) - value).abs() < 1e-6);
    }
}

/// A table of made-up programs that a few rules explain.
fn table(programs: usize) -> String {
    let mut text = "program,core-type,window,run-ns,instructions,cycles,llc-misses,branch-misses\n"
        .to_string();
    for program in 0..programs {
        for window in 0..2 {
            let misses = (program * 7 % 11) as f64 / 1000.0;
            let branches = (program * 5 % 13 + window) as f64 / 500.0;
            let cpi = [
                0.4 + 14.0 * branches + 40.0 * misses,
                0.8 + 13.0 * branches + 50.0 * misses,
            ];
            for (name, cpi, ghz) in [("P", cpi[0], 4.0), ("E", cpi[1], 3.0)] {
                let cycles = 1e6 * cpi;
                text += &format!(
                    "p{program},{name},{window},{},1000000,{cycles},{},{}\n",
                    cycles / ghz,
                    misses * 1e6,
                    branches * 1e6
                );
            }
        }
    }
    text
}

/// The same with what it takes: watts that grow with instructions per cycle and with misses.
fn with_joules(table: &str) -> String {
    let mut lines = table.lines();
    let mut text = format!("{},joules\n", lines.next().unwrap());
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        let number = |column: usize| cells[column].parse::<f64>().unwrap();
        let (ns, cycles, misses) = (number(3), number(5), number(6));
        let (cycle, instruction) = if cells[1] == "P" {
            (1.6, 0.9)
        } else {
            (0.4, 0.4)
        };
        let nj = cycle * cycles + instruction * 1e6 + 20.0 * misses + 0.5 * ns;
        text += &format!("{line},{}\n", nj / 1e9);
    }
    text
}

#[test]
fn where_a_table_has_joules_ef_is_learnt_beside_sf() {
    let place = Place::new();
    place.write("table.csv", &with_joules(&table(12)));
    let output = place.run(&["train", "table.csv", "--trees", "10"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let said = String::from_utf8(output.stdout).unwrap();
    for expected in ["EF from P", "EF from E", "Which of two has the higher EF"] {
        assert!(said.contains(expected), "{expected}\n{said}");
    }
    let model = Model::read(&place.folder.path().join("model.json")).unwrap();
    assert_eq!(model.efficiency.len(), 2);
    for ef in &model.efficiency {
        assert!(ef.scores.correlation > 0.9, "{:?}", ef.scores);
    }
    assert!(model.efficiency_pairs.unwrap().accuracy() > 0.9);
    // Without, there is none, and trees for it cannot be scored.
    place.write("plain.csv", &table(12));
    let words = [
        "train",
        "plain.csv",
        "--trees",
        "10",
        "-o",
        "plain.model.json",
    ];
    assert!(place.run(&words).status.success());
    let plain = Model::read(&place.folder.path().join("plain.model.json")).unwrap();
    assert_eq!((plain.efficiency.len(), plain.efficiency_pairs), (0, None));
    let error = place.fails(&["train", "plain.csv", "--import", "ef:P=trees.json"]);
    assert!(error.contains("'joules'"), "{error}");
}

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap()
    }

    fn run(&self, words: &[&str]) -> Output {
        command(words)
            .current_dir(self.folder.path())
            .output()
            .unwrap()
    }

    /// What it complains about.
    fn fails(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(!output.status.success(), "{words:?} succeeded");
        String::from_utf8(output.stderr).unwrap()
    }
}

#[test]
fn a_table_makes_a_model_and_a_report_and_the_same_ones_again() {
    let place = Place::new();
    place.write("table.csv", &table(20));
    let words = [
        "train",
        "table.csv",
        "--trees",
        "50",
        "--report",
        "report.svg",
    ];
    let output = place.run(&words);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.contains("SF from P") && said.contains("SF from E"),
        "{said}"
    );
    let model = Model::read(&place.folder.path().join("model.json")).unwrap();
    for speedup in &model.speedup {
        assert!(speedup.scores.correlation > 0.95, "{:?}", speedup.scores);
    }
    let classifier = model.classifier.as_ref().unwrap();
    assert!(
        classifier.scores.accuracy() > 0.85,
        "{:?}",
        classifier.scores
    );
    assert!(
        classifier.by_speedup.accuracy() > 0.9,
        "{:?}",
        classifier.by_speedup
    );
    let report = place.read("report.svg");
    assert!(report.starts_with("<svg") && report.trim_end().ends_with("</svg>"));
    assert!(place.run(&words).status.success());
    let again = Model::read(&place.folder.path().join("model.json")).unwrap();
    assert_eq!(
        (again.speedup, again.classifier),
        (model.speedup, model.classifier)
    );
    // Nothing says which machine it is of.
    assert!(place.fails(&["model", "model.json"]).contains("header"));
    assert!(
        place
            .run(&["model", "model.json", "--any-machine"])
            .status
            .success()
    );
}

#[test]
fn bad_data_is_explained_and_the_old_model_stays() {
    let place = Place::new();
    place.write("model.json", "what was there");
    let same = "program,ipc,sf\na,1,1.5\nb,2,1.5\nc,3,1.5\n";
    for (text, expected) in [
        (table(20).replace("program,", "who,"), "'program'"),
        (table(20).replacen(",1000000,", ",NaN,", 1), "line 2"),
        (
            table(20).replace(",E,", ",P,"),
            "both the fastest and the slowest",
        ),
        (table(2), "too few programs"),
        (same.to_string(), "one class"),
        (String::new(), "cannot learn from"),
    ] {
        place.write("table.csv", &text);
        let said = place.fails(&["train", "table.csv"]);
        assert!(said.contains(expected), "{said}");
        assert_eq!(place.read("model.json"), "what was there");
    }
    assert!(
        place
            .fails(&["train", "nowhere.csv"])
            .contains("nowhere.csv")
    );
    place.write("table.csv", &table(20));
    place.write("table.json", "{\"schema\": 99}");
    assert!(place.fails(&["train", "table.csv"]).contains("table.json"));
    assert_eq!(place.read("model.json"), "what was there");
}

#[test]
fn models_that_cannot_be_used_are_explained() {
    let place = Place::new();
    place.write("table.csv", &table(20));
    let output = place.run(&["train", "table.csv", "--trees", "10"]);
    assert!(output.status.success());
    let text = place.read("model.json");
    for (text, expected) in [
        (text[..text.len() / 2].to_string(), "cut short"),
        (
            text.replacen("\"schema\":2", "\"schema\":7", 1),
            "schema is 7",
        ),
        ("[]".to_string(), "another kind"),
        (text.replace("\"threshold\":", "\"treshold\":"), "damaged"),
        (text.replacen("\"max\":", "\"max\":-", 1), "no range"),
    ] {
        place.write("bad.json", &text);
        let said = place.fails(&["model", "bad.json"]);
        assert!(
            said.contains("bad.json") && said.contains(expected),
            "{said}"
        );
    }
}

#[test]
fn a_weighted_sum_is_a_model_and_kinds_are_compared_in_a_table_that_fits_the_terminal() {
    let place = Place::new();
    place.write("table.csv", &table(10));
    let words = ["train", "table.csv", "--model-kind", "linear", "--compare"];
    let output = place.run(&words);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    for kind in ["boosted trees", "linear, logistic", "SVM", "random forest"] {
        assert!(said.contains(kind), "{said}");
    }
    assert!(
        said.lines().all(|line| line.chars().count() <= 80),
        "{said}"
    );
    let model = Model::read(&place.folder.path().join("model.json")).unwrap();
    for speedup in &model.speedup {
        let trees = &speedup.trees;
        assert!(trees.trees.is_empty() && !trees.weights.is_empty());
        assert!(speedup.scores.correlation > 0.9, "{:?}", speedup.scores);
    }
    assert!(model.classifier.unwrap().trees.trees.is_empty());
    // Trees from elsewhere are no weighted sum.
    let both = ["--model-kind", "linear", "--import", "classifier=x.json"];
    let said = place.fails(&[&["train", "table.csv"][..], &both].concat());
    assert!(said.contains("--import"), "{said}");
}

#[test]
fn what_is_said_of_programs_left_out_is_written_and_the_simulator_goes_by_it() {
    let place = Place::new();
    place.write("table.csv", &table(12).replace("p3,", "fp,"));
    let words = "train table.csv --trees 10 --leave-out p2,fp --estimates said.csv";
    let output = place.run(&words.split(' ').collect::<Vec<_>>());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("Left out: 2 ways to run programs on P"),
        "{text}"
    );
    let said = place.read("said.csv");
    let mut lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.remove(0), "program,variant,core-type,sf,said,sigma");
    lines.sort_unstable();
    let of = |line: &str| line.split(',').step_by(2).take(2).collect::<String>();
    assert_eq!(
        lines.iter().map(|line| of(line)).collect::<Vec<_>>(),
        ["fpE", "fpP", "p2E", "p2P"]
    );
    for line in lines {
        let numbers: Vec<f64> = line
            .split(',')
            .skip(3)
            .map(|word| word.parse().unwrap())
            .collect();
        assert!(
            (numbers[1] / numbers[0] - 1.0).abs() < 0.2 && numbers[2] > 0.0,
            "{line}"
        );
    }

    let sim = |machine: &str, more: &[&str]| {
        let words = [
            "sim",
            "2*fp,6*hash",
            "-m",
            machine,
            "--policy",
            "rank",
            "--seconds",
            "2",
            "--json",
        ];
        place.run(&[&words[..], more].concat())
    };
    // One that is wrong changes what is done.
    place.write(
        "wrong.csv",
        "program,variant,core-type,sf,said,sigma\nfp,,P,2,1,0.01\nfp,,E,2,1,0.01\n",
    );
    let [right, wrong] = ["said.csv", "wrong.csv"].map(|file| {
        let output = sim("alder-lake-4p4e", &["--model", file]);
        assert!(output.status.success(), "{file}");
        output.stdout
    });
    assert_ne!(right, wrong);
    let refused = sim("meteor-lake", &["--model", "said.csv"]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && error.contains("2 core types (P, E)"),
        "{error}"
    );
    let error = place.fails(&["train", "table.csv", "--estimates", "said.csv"]);
    assert!(error.contains("--leave-out"), "{error}");
}

#[test]
fn imported_trees_are_scored_on_the_tables() {
    let place = Place::new();
    place.write("table.csv", &table(20));
    let import = format!(
        "sf:P={}",
        fixtures().join("xgboost-regressor.json").display()
    );
    let output = place.run(&["train", "table.csv", "--trees", "10", "--import", &import]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        String::from_utf8(output.stdout)
            .unwrap()
            .contains("imported")
    );
    let wrong = import.replace("sf:P", "sf:LITTLE");
    assert!(
        place
            .fails(&["train", "table.csv", "--trees", "10", "--import", &wrong])
            .contains("LITTLE")
    );
    let class = import.replace("sf:P", "classifier");
    assert!(
        place
            .fails(&["train", "table.csv", "--trees", "10", "--import", &class])
            .contains("tell no classes")
    );
}

#[test]
fn where_nothing_can_be_measured_no_folder_is_made() {
    let machine = scx_hetero::pmu::MachinePmus::detect();
    let cpus = scx_hetero::topology::Topology::detect(None)
        .unwrap()
        .cpus
        .len();
    if cpus < 2 || scx_hetero::pmu::availability(&machine).is_ok() {
        return;
    }
    let place = Place::new();
    let types = format!("P=0,E=1-{}", cpus - 1);
    place.fails(&[
        "train",
        "--here",
        "--core-types",
        &types,
        "-o",
        "here/model.json",
    ]);
    assert!(!place.folder.path().join("here").exists());
}

#[test]
fn where_all_cores_are_alike_there_is_nothing_to_learn() {
    let place = Place::new();
    if scx_hetero::topology::Topology::detect(None)
        .unwrap()
        .types
        .len()
        > 1
    {
        return;
    }
    let said = place.fails(&["train", "--here", "--output", "here/model.json"]);
    assert!(said.contains("nothing to learn"), "{said}");
    assert!(said.contains("--core-types"), "{said}");
}
