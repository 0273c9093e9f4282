// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero bench` as a user runs it, under the kernel's own scheduler.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::program::command;
use scx_hetero::bench::mixes::Mixes;
use scx_hetero::sim::library::Library;
use serde_json::Value;
use tempfile::TempDir;

const MIXES: &str = "[programs]\nshort = \"true\"\nlong = \"sleep 0.02\"\n\
                     [mixes]\nM1 = \"short, long\"\nM2 = \"2*short\"\n";

/// A folder with a file of mixes.
struct Place(TempDir);

impl Place {
    fn with(mixes: &str) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::write(place.path("mixes.toml"), mixes).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn bench(&self, args: &[&str]) -> Output {
        let mut command = command(&["bench"]);
        command.current_dir(self.0.path()).args(args);
        command.output().unwrap()
    }

    /// Runs the mixes twice under the kernel's own scheduler.
    fn run(&self, more: &[&str]) -> Output {
        let args = [
            "run",
            "mixes.toml",
            "--scheduler",
            "default",
            "--repeats",
            "2",
        ];
        self.bench(&[&args, more].concat())
    }

    fn lines(&self, name: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path(name)).unwrap();
        let parse = |line: &str| serde_json::from_str(line).unwrap();
        text.lines().map(parse).collect()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

fn well(output: Output) -> String {
    assert!(output.status.success(), "{}", said(&output));
    said(&output)
}

/// What it says when it fails.
fn error(output: Output) -> String {
    failed(&output, 1)
}

/// The same with this status.
fn failed(output: &Output, status: i32) -> String {
    assert_eq!(output.status.code(), Some(status), "{}", said(output));
    said(output)
}

fn of_kind<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["kind"] == kind).collect()
}

#[test]
fn mixes_are_run_and_reported() {
    let place = Place::with(MIXES);
    let progress = well(place.run(&[]));
    assert!(
        progress.contains("4/4: default, M2, repeat 2"),
        "{progress}"
    );
    let lines = place.lines("bench.jsonl");
    assert_eq!(lines[0]["kind"], "header");
    assert_eq!(of_kind(&lines, "alone").len(), 2);
    let runs = of_kind(&lines, "run");
    assert_eq!(runs.len(), 4);
    for run in runs {
        let programs = run["programs"].as_array().unwrap();
        let ends = programs
            .iter()
            .map(|p| p["times"].as_array().unwrap().len());
        assert_eq!(
            ends.min(),
            Some(3),
            "the longest has ended three times: {run}"
        );
    }

    let text = well(place.bench(&["report", "bench.jsonl"]));
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    for expected in [
        "M1: short, long\n",
        "UNFAIRNESS",
        "Means over M1, M2",
        "default",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    let files = [
        "report",
        "bench.jsonl",
        "--json",
        "--csv",
        "runs.csv",
        "--svg",
        "charts",
    ];
    let json: Value = serde_json::from_str(&well(place.bench(&files))).unwrap();
    let row = &json["mixes"][0]["schedulers"][0];
    let slowdowns = row["programs"].as_array().unwrap().iter();
    let slowdowns: Vec<f64> = slowdowns.map(|p| p["slowdown"].as_f64().unwrap()).collect();
    assert_eq!((row["repeats"].as_u64(), slowdowns.len()), (Some(2), 2));
    assert!(slowdowns.iter().all(|slowdown| *slowdown > 0.0));
    let csv = fs::read_to_string(place.path("runs.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 4);
    let chart = fs::read_to_string(place.path("charts/unfairness.svg")).unwrap();
    assert!(chart.starts_with("<svg") && chart.contains("M2, default: "));
}

#[test]
fn what_was_run_is_not_run_again() {
    let place = Place::with(MIXES);
    well(place.run(&["--mix", "M1"]));
    let first = fs::read_to_string(place.path("bench.jsonl")).unwrap();
    let said = well(place.run(&["--mix", "M1"]));
    assert!(said.contains("nothing is left to run"), "{said}");
    assert_eq!(
        fs::read_to_string(place.path("bench.jsonl")).unwrap(),
        first
    );

    // Cut off in the midst of its last line, as by a power failure.
    fs::write(place.path("bench.jsonl"), &first[..first.len() - 9]).unwrap();
    let progress = well(place.run(&[]));
    assert!(progress.contains("was cut off"), "{progress}");
    let again = fs::read_to_string(place.path("bench.jsonl")).unwrap();
    let whole = first[..first.len() - 1].rfind('\n').unwrap() + 1;
    assert!(again.starts_with(&first[..whole]));
    let lines = place.lines("bench.jsonl");
    assert_eq!(
        (of_kind(&lines, "alone").len(), of_kind(&lines, "run").len()),
        (2, 4)
    );
}

#[test]
fn times_alone_can_be_lent() {
    let place = Place::with(MIXES);
    well(place.bench(&["run", "mixes.toml", "--out", "alone.jsonl"]));
    let lent = place.lines("alone.jsonl");
    assert_eq!((lent.len(), of_kind(&lent, "alone").len()), (3, 2));
    let said = error(place.bench(&["report", "alone.jsonl"]));
    assert!(said.contains("no mix was run there yet"), "{said}");
    well(place.run(&["--alone", "alone.jsonl"]));
    let lines = place.lines("bench.jsonl");
    assert_eq!(of_kind(&lines, "alone"), of_kind(&lent, "alone"));

    fs::write(place.path("mixes.toml"), MIXES.replace("0.02", "0.03")).unwrap();
    let text = error(place.run(&["--alone", "alone.jsonl", "--out", "other.jsonl"]));
    assert!(
        text.contains("'sleep 0.02', and now it is 'sleep 0.03'"),
        "{text}"
    );
}

#[test]
fn results_of_another_machine_are_refused() {
    let place = Place::with(MIXES);
    well(place.run(&["--mix", "M2"]));
    let text = fs::read_to_string(place.path("bench.jsonl")).unwrap();
    let kernel = place.lines("bench.jsonl")[0]["machine"]["kernel"].clone();
    let other = text.replace(&kernel.to_string(), "\"2.4.20\"");
    fs::write(place.path("other.jsonl"), &other).unwrap();
    let said = error(place.run(&["--out", "other.jsonl"]));
    assert!(
        said.contains("other.jsonl was measured on another machine"),
        "{said}"
    );
    assert!(said.contains("2.4.20"), "{said}");
    assert_eq!(
        fs::read_to_string(place.path("other.jsonl")).unwrap(),
        other
    );
    let said = error(place.run(&["--alone", "other.jsonl", "--out", "new.jsonl"]));
    assert!(said.contains("other.jsonl is of another machine"), "{said}");
    let said = error(place.bench(&["report", "bench.jsonl", "other.jsonl"]));
    assert!(said.contains("are of different machines"), "{said}");
    let said = error(place.bench(&["report", "bench.jsonl", "bench.jsonl"]));
    assert!(
        said.contains("both bench.jsonl and bench.jsonl have M2"),
        "{said}"
    );
}

#[test]
fn mistakes_are_told_before_anything_is_run() {
    let told = |status, from: &str, to: &str, more: &[&str]| {
        let place = Place::with(&MIXES.replace(from, to));
        let text = failed(&place.run(more), status);
        let runs = fs::read_to_string(place.path("bench.jsonl")).unwrap_or_default();
        assert!(!runs.contains("\"run\""), "{runs}");
        text
    };
    let wrong = |from, to| told(1, from, to, &[]);
    let wrong_usage = |more| told(2, "", "", more);
    let text = wrong("2*short", "2*shorts");
    assert!(
        text.contains("mixes.toml:6: mix M2: [programs] has no 'shorts'"),
        "{text}"
    );
    let text = wrong("\"true\"", "\"/nowhere/nothing -x\"");
    assert!(
        text.contains("cannot run '/nowhere/nothing', which is 'short'"),
        "{text}"
    );
    let text = wrong("\"true\"", "\"sh -c 'exit 3'\"");
    assert!(text.contains("'short' failed (exit status: 3)"), "{text}");
    let text = wrong_usage(&["--scheduler", "defalt"]);
    assert!(
        text.contains("neither a policy nor a command that can be run; did you mean 'default'?"),
        "{text}"
    );
    let text = wrong_usage(&["--scheduler", "camps --fairnes 50"]);
    assert!(text.contains("unexpected argument '--fairnes'"), "{text}");
    let text = wrong_usage(&["--mix", "M3"]);
    assert!(text.contains("there is no mix 'M3'"), "{text}");
    let text = wrong_usage(&["--out", "mixes.toml"]);
    assert!(text.contains("name another file with --out"), "{text}");
}

#[test]
fn a_program_that_fails_in_company_is_told_and_tried_again() {
    // Two of it at once cannot be: the lock is taken for the second.
    let alone = "sh -c 'exec flock -n proud sleep 0.02'";
    let mixes = format!(
        "[programs]\nshort = \"true\"\nproud = \"{alone}\"\n[mixes]\nM1 = \"2*proud\"\nM2 = \"short\"\n"
    );
    let place = Place::with(&mixes);
    let text = error(place.run(&[]));
    assert!(
        text.contains("default, M1, repeat 1: FAILED: 'proud' failed"),
        "{text}"
    );
    let lines = place.lines("bench.jsonl");
    assert_eq!(of_kind(&lines, "failed").len(), 2);
    assert_eq!(of_kind(&lines, "run").len(), 2, "M2 was run all the same");
    let text = well(place.bench(&["report", "bench.jsonl"]));
    assert!(
        text.contains("Failed:") && text.contains("default, M1, repeat 2"),
        "{text}"
    );

    fs::write(place.path("mixes.toml"), mixes.replace("2*proud", "proud")).unwrap();
    well(place.run(&[]));
    let text = well(place.bench(&["report", "bench.jsonl"]));
    assert!(!text.contains("Failed:"), "{text}");
}

#[test]
fn the_simulator_has_the_mixes_of_the_virtual_machines() {
    let library = Library::builtin().unwrap();
    for machine in ["alder-lake-4p4e", "juno-r1", "odroid-xu4"] {
        let path = format!(
            "{}/experiments/mixes/{machine}.toml",
            env!("CARGO_MANIFEST_DIR")
        );
        let file = Mixes::read(Path::new(&path)).unwrap();
        assert_eq!(file.mixes.len(), 8, "{machine}");
        let cpus = library.machine(machine).unwrap().cpus();
        for mix in &file.mixes {
            assert_eq!(library.mix(&mix.name).unwrap().members, mix.members);
            let threads: u32 = mix.members.iter().map(|member| member.threads).sum();
            assert_eq!(threads as usize, cpus, "{machine}, {}", mix.name);
        }
    }
}

#[test]
fn the_simulator_can_be_given_the_mixes_of_the_machine_with_smt() {
    let file = |name| {
        format!(
            "{}/experiments/mixes/{name}.toml",
            env!("CARGO_MANIFEST_DIR")
        )
    };
    let mut library = Library::builtin().unwrap();
    library.add_mixes(Path::new(&file("smt"))).unwrap();
    let cpus = library.machine("i7-1260p").unwrap().cpus();
    let virtual_machine = Mixes::read(Path::new(&file("i7-1260p"))).unwrap();
    for mix in &virtual_machine.mixes {
        assert_eq!(library.mix(&mix.name).unwrap().members, mix.members);
        let threads: u32 = mix.members.iter().map(|member| member.threads).sum();
        assert_eq!(threads as usize, cpus, "{}", mix.name);
    }
}

#[test]
fn mixes_of_real_programs_are_no_more_threads_than_cpus() {
    for (machine, cpus) in [("alder-lake-4p4e", 8), ("i7-1260p", 16)] {
        let path = format!(
            "{}/experiments/mixes/real/{machine}.toml",
            env!("CARGO_MANIFEST_DIR")
        );
        let file = Mixes::read(Path::new(&path)).unwrap();
        for mix in &file.mixes {
            let threads: u32 = mix.members.iter().map(|member| member.threads).sum();
            // H1 leaves half of the CPUs idle, and so a thread of each core.
            let full = if mix.name == "H1" { cpus / 2 } else { cpus };
            assert_eq!(threads, full, "{machine}, {}", mix.name);
        }
    }
}
