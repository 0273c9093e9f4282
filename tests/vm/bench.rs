// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero bench` in the virtual hybrid machine (`make test`): that what is measured is what
//! was asked for.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use crate::support::*;
use serde_json::Value;

const MIXES: &str = r#"
[programs]
integer = "hetero-programs integer --units 40"
fp = "hetero-programs fp --units 10"
barrier = "hetero-programs barrier --threads {threads} --units 10"
long = "hetero-programs integer --seconds 2"

[mixes]
X1 = "barrier(4), integer, fp"
X2 = "long"
"#;

fn bench(args: &[&str]) -> Output {
    fs::write("/tmp/mixes.toml", MIXES).unwrap();
    let mut command = Command::new(binary());
    command.args(["bench", "run", "/tmp/mixes.toml", "--repeats", "1"]);
    command.args(args).output().unwrap()
}

fn results(path: &str) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let parse = |line: &str| serde_json::from_str(line).unwrap();
    text.lines().map(parse).collect()
}

fn geometric_mean(times: &Value) -> f64 {
    let times = times.as_array().unwrap();
    let sum: f64 = times.iter().map(|t| t.as_f64().unwrap().ln()).sum();
    (sum / times.len() as f64).exp()
}

#[test]
fn mixes_are_run_under_the_schedulers_asked_for() {
    let path = "/tmp/results.jsonl";
    let log = KernelLog::from_now();
    let output = bench(&[
        "--out",
        path,
        "--mix",
        "X1",
        "--scheduler",
        "default",
        "none --slice-us 3000",
    ]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    println!("{said}");
    assert_eq!(state(), "disabled");
    log.assert_clean();

    let lines = results(path);
    assert_eq!(lines[0]["machine"]["testbed"], "alder-lake-cpuidle");
    let alone = |program: &str, on: &str| {
        let line = lines
            .iter()
            .find(|line| line["kind"] == "alone" && line["program"] == program);
        geometric_mean(&line.unwrap()[on])
    };
    // docs/testbed-calibration.md; starting takes its time, too, and gains less.
    for (program, speedup) in [("integer", 1.68), ("fp", 2.79)] {
        let found = alone(program, "slowest") / alone(program, "fastest");
        assert!(
            (0.85 * speedup..1.05 * speedup).contains(&found),
            "{program}: {found}"
        );
    }
    let runs: Vec<_> = lines.iter().filter(|line| line["kind"] == "run").collect();
    assert_eq!(runs.len(), 2, "a mix under two schedulers");
    for run in runs {
        for program in run["programs"].as_array().unwrap() {
            let times = &program["times"];
            assert!(times.as_array().unwrap().len() >= 3, "{run}");
            let slowdown =
                geometric_mean(times) / alone(program["program"].as_str().unwrap(), "fastest");
            assert!((0.95..8.0).contains(&slowdown), "{slowdown}: {run}");
        }
        assert!(run["migrations"].is_u64(), "{run}");
        // More than an idle package's, and no more than its short-term limit.
        let watts = run["joules"].as_f64().unwrap() / run["seconds"].as_f64().unwrap();
        assert!((10.0..95.0).contains(&watts), "{watts} W: {run}");
    }
}

/// A command by the name of a scheduler that does something else.
fn script(path: &str, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn a_scheduler_that_is_not_attached_is_not_measured() {
    let hetero = binary();
    // Attaches for long enough to begin, and then is gone.
    script(
        "/tmp/scx_hetero",
        &format!("timeout -s INT 4 {hetero} --policy none"),
    );
    script("/tmp/scx_other", &format!("exec {hetero} --policy none"));
    script("/tmp/scx_dead", "echo no such luck >&2; exit 5");
    let path = "/tmp/failures.jsonl";
    let schedulers = ["/tmp/scx_hetero", "/tmp/scx_other", "/tmp/scx_dead"];
    let output = bench(
        &[
            &["--out", path, "--mix", "X2", "--scheduler"],
            &schedulers[..],
        ]
        .concat(),
    );
    assert_eq!(output.status.code(), Some(1));
    println!("{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(state(), "disabled");
    let lines = results(path);
    assert!(!lines.iter().any(|line| line["kind"] == "run"));
    let error = |scheduler: &str| {
        let mut lines = lines.iter().filter(|line| line["scheduler"] == scheduler);
        lines.next().unwrap()["error"].as_str().unwrap().to_string()
    };
    let fell = error("/tmp/scx_hetero");
    assert!(fell.contains("ended while it was measured"), "{fell}");
    let other = error("/tmp/scx_other");
    assert!(
        other.contains("not '/tmp/scx_other' was attached, but 'hetero"),
        "{other}"
    );
    let dead = error("/tmp/scx_dead");
    assert!(
        dead.contains("exit status: 5") && dead.contains("no such luck"),
        "{dead}"
    );
}
