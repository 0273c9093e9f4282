// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero sim` as a user runs it.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use crate::program;

mod energy;

fn stdout(args: &[&str]) -> String {
    program::stdout(&[&["sim"], args].concat())
}

/// What it says when it fails.
fn error(args: &[&str]) -> String {
    program::error(&[&["sim"], args].concat())
}

/// A number of a scheduler in a line of JSON.
fn number(json: &str, scheduler: &str, key: &str) -> f64 {
    let report: Value = serde_json::from_str(json).unwrap();
    let rows = report["schedulers"].as_array().unwrap();
    let row = rows.iter().find(|row| row["scheduler"] == scheduler);
    row.unwrap()[key].as_f64().unwrap()
}

#[test]
fn of_a_goal_without_a_window_nothing_is_told() {
    let mix = [
        "hmmer@70,gobmk",
        "-m",
        "alder-lake-4p4e",
        "--policy",
        "camps",
    ];
    let text = stdout(&[&mix[..], &["--seconds", "2"]].concat());
    let goal = text
        .lines()
        .find(|line| line.trim_start().starts_with("hmmer@70"));
    let cells: Vec<&str> = goal.unwrap().split_whitespace().collect();
    assert_eq!(cells[2..4], ["-", "-"], "{text}");
}

/// As in experiments/results.
#[test]
fn a_machine_is_known_by_its_name_beside_a_folder_that_is_called_so() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("juno-r1")).unwrap();
    let simulate = |machine: &str| {
        let args = [
            "sim",
            "W5",
            "--policy",
            "none",
            "--seconds",
            "1",
            "-m",
            machine,
        ];
        let output = program::command(&args)
            .current_dir(folder.path())
            .output()
            .unwrap();
        output.status.success()
    };
    assert!(simulate("juno-r1"));
    assert!(!simulate("./juno-r1"));
}

#[test]
fn a_mix_is_a_table_that_fits_the_terminal() {
    let text = stdout(&["W5", "--policy", "all", "--optimum", "--programs"]);
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    for expected in [
        "camps",
        "default",
        "GemsFDTD",
        "UNFAIRNESS",
        "(fairest)",
        "SLOWDOWN",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
}

/// The made-up programs of `experiments/powersave --day`.
fn laptop() -> [&'static str; 4] {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/laptop");
    let [programs, mixes] = ["programs", "mixes"].map(|name| format!("{folder}/{name}.toml"));
    [
        "--add-programs",
        programs.leak(),
        "--add-mixes",
        mixes.leak(),
    ]
}

#[test]
fn frames_are_counted_and_late_ones_among_them() {
    let frames = |mix: &str| {
        let json = stdout(
            &[
                &laptop()[..],
                &["--seconds", "5", "--policy", "none", "--json", mix],
            ]
            .concat(),
        );
        let report: Value = serde_json::from_str(&json).unwrap();
        let frames = &report["schedulers"][0]["programs"][1]["frames"];
        [0, 1].map(|of| frames[of].as_u64().unwrap())
    };
    let [done, late] = frames("day-video");
    assert!((148..=151).contains(&done) && late == 0, "{done} {late}");
    let slow = ["--machine", "juno-r1", "--seconds", "5", "--policy", "none"];
    let json = stdout(&[&laptop()[..], &slow, &["--json", "video,desktop"]].concat());
    let report: Value = serde_json::from_str(&json).unwrap();
    let frames = &report["schedulers"][0]["programs"][0]["frames"];
    assert_eq!(frames[0], frames[1], "a slow board misses them all");
}

#[test]
fn json_has_a_line_for_each_mix() {
    let text = stdout(&["W5", "W24", "--policy", "camps", "--json", "--optimum"]);
    let lines: Vec<Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[1]["mix"], "W24");
    let row = &lines[1]["schedulers"][0];
    let least = row["of_least_unfairness"].as_f64().unwrap();
    let most = row["of_best_asp"].as_f64().unwrap();
    assert!(
        (1.0..1.5).contains(&least) && (0.8..=1.01).contains(&most),
        "{row}"
    );
    assert_eq!(row["programs"].as_array().unwrap().len(), 6);
}

#[test]
fn the_same_seed_prints_the_same_bytes() {
    let run = |seed| stdout(&["W1", "--policy", "all", "--json", "--seed", seed]);
    assert_eq!(run("7"), run("7"));
    assert_ne!(run("7"), run("8"));
}

#[test]
fn camps_is_fairer_than_default_where_programs_disturb_each_other() {
    for seed in ["1", "2", "3"] {
        let json = stdout(&["W5", "--policy", "default,camps", "--json", "--seed", seed]);
        let of = |scheduler| number(&json, scheduler, "unfairness");
        assert!(of("camps") < 0.7 * of("default"), "{json}");
    }
}

#[test]
fn rank_has_the_throughput_of_hsp_by_a_model_and_errors_cost_it_some() {
    let with = |words: &[&str]| {
        let all = [&["W24", "--policy", "rank,hsp", "--json"], words].concat();
        let json = stdout(&all);
        (number(&json, "rank", "asp"), number(&json, "hsp", "asp"))
    };
    let (rank, hsp) = with(&["--model-error", "0"]);
    let (bad, _) = with(&["--model-error", "40"]);
    assert!(rank > 0.95 * hsp && bad < 1.01 * rank, "{rank} {bad} {hsp}");
}

#[test]
fn ef_takes_less_by_what_it_learns_from_a_sensor() {
    let args = ["J7", "--policy", "hsp,ef", "--sensor", "--json"];
    let json: Value = serde_json::from_str(&stdout(&args)).unwrap();
    let edp = [0, 1].map(|at| json["schedulers"][at]["energy"]["edp"].as_f64().unwrap());
    assert!(edp[1] < 0.97 * edp[0], "{edp:?}");
}

#[test]
fn a_model_that_knows_nothing_costs_rank_a_little_and_never_what_default_has() {
    for mix in ["W1", "W24", "M3", "M9"] {
        let args = [
            mix,
            "--policy",
            "default,rank,hsp",
            "--json",
            "--model-error",
            "100",
        ];
        let json = stdout(&args);
        let [default, rank, hsp] = ["default", "rank", "hsp"].map(|of| number(&json, of, "asp"));
        assert!(
            rank > default && rank > 0.85 * hsp,
            "{mix}: {default} {rank} {hsp}"
        );
    }
}

#[test]
fn hsp_has_the_throughput_where_speedups_differ_and_nobody_disturbs() {
    let json = stdout(&["W24", "--policy", "hsp,camps", "--json"]);
    assert!(number(&json, "hsp", "asp") >= number(&json, "camps", "asp"));
}

#[test]
fn fairness_can_be_given_up_for_throughput() {
    let run = |fairness| {
        let args = ["W24", "--policy", "camps", "--json", "--fairness", fairness];
        let json = stdout(&args);
        (
            number(&json, "camps", "unfairness"),
            number(&json, "camps", "asp"),
        )
    };
    let (fair, fast) = (run("100"), run("0"));
    assert!(fast.0 > fair.0 && fast.1 > fair.1, "{fair:?} {fast:?}");
}

#[test]
fn a_minute_of_six_threads_takes_well_under_a_second() {
    let run = |_| {
        let begin = std::time::Instant::now();
        stdout(&["W1", "--policy", "camps", "--seconds", "60", "--json"]);
        begin.elapsed()
    };
    // The best of some: others use the machine, too.
    let took = (0..5).map(run).min().unwrap();
    assert!(took.as_secs_f64() < 1.0, "{took:?}");
}

#[test]
fn misspelt_names_are_answered_with_what_was_meant() {
    assert!(error(&["W5x"]).contains("did you mean 'W5'?"));
    let text = error(&["soplx,astar", "--machine", "juno-r1"]);
    assert!(
        text.contains("no program 'soplx'; did you mean 'soplex'?"),
        "{text}"
    );
    let text = error(&["W5", "--machine", "juno"]);
    assert!(
        text.contains("no machine 'juno'") && text.contains("--list"),
        "{text}"
    );
    assert!(error(&["W5", "--policy", "camp"]).contains("camps"));
    assert!(error(&["soplex,astar"]).contains("--machine"));
    assert!(error(&["W5", "--machine", "server-1024", "--as-testbed"]).contains("[scale]"));
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let builtin = include_str!("../../src/sim/data/machines/juno-r1.toml");
    let run = |text: &str| {
        let path = dir.path().join("mine.toml");
        fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap().to_string();
        (
            program::output(&["sim", "W5", "--machine", &path, "--policy", "none"]),
            path,
        )
    };
    assert!(run(builtin).0.status.success());
    for (from, to, line, said) in [
        (
            "value = 1150,",
            "value = -1,",
            0,
            "`clock_mhz` must lie between",
        ),
        ("hz = {", "herz = {", 3, "herz"),
        ("llc = \"a53\"", "llc = \"a54\"", 0, "there is no llc a54"),
        (
            "paper = \"CAMPS, section",
            "note = \"CAMPS, section",
            0,
            "note",
        ),
        ("cpus = 4", "cpus = ", 0, ""),
    ] {
        let text = builtin.replacen(from, to, 1);
        assert_ne!(text, builtin);
        let (output, path) = run(&text);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(said), "{error}");
        let changed = 1 + text
            .lines()
            .zip(builtin.lines())
            .position(|(a, b)| a != b)
            .unwrap();
        let line = if line > 0 { line } else { changed };
        assert!(
            error.contains(&format!("{path}:{line}:")),
            "line {line}: {error}"
        );
    }
}

#[test]
fn programs_and_mixes_can_be_added() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_string()
    };
    let all = include_str!("../../src/sim/data/programs/cpu2006.toml");
    let start = all.find("[gamess]").unwrap();
    let end = start + all[start..].find("\n\n[").unwrap();
    let mine = all[start..end].replace("gamess", "mine");
    let programs = write("programs.toml", &mine);
    let mixes = "machine = \"juno-r1\"\nsource = \"here\"\n[mixes]\nOurs = \"2*mine, lbm\"\n";
    let mixes = write("mixes.toml", mixes);
    let text = stdout(&["Ours", "--add-programs", &programs, "--add-mixes", &mixes]);
    assert!(text.contains("Ours on juno-r1: 2*mine, lbm"), "{text}");
    // An asymmetry out of range, and a phase without one to go on to.
    for (right, wrong, place, told) in [
        (
            "asymmetry = { value = 0",
            "asymmetry = { value = 7",
            "broken.toml:",
            "asymmetry",
        ),
        (
            "[[mine.phase]]",
            "[[mine.phase]]\ngoes_on = true",
            "broken.toml:1:",
            "goes_on",
        ),
    ] {
        let broken = write("broken.toml", &mine.replace(right, wrong));
        let text = error(&["Ours", "--add-programs", &broken]);
        assert!(text.contains(place) && text.contains(told), "{text}");
    }
}

#[test]
fn programs_that_sleep_wake_up_again() {
    let dir = tempfile::tempdir().unwrap();
    let all = include_str!("../../src/sim/data/programs/cpu2006.toml");
    let start = all.find("[gamess]").unwrap();
    let end = start + all[start..].find("\n\n[").unwrap();
    let sleeper = all[start..end].replace("gamess", "sleeper");
    let sleep = "every_minstructions = { value = 8, assumed = \"5 ms\" }\n\
                 ms = { value = 10, assumed = \"twice as long\" }\n";
    let path = dir.path().join("sleeper.toml");
    fs::write(&path, format!("{sleeper}\n[sleeper.phase.sleep]\n{sleep}")).unwrap();
    let add = path.to_str().unwrap();
    let args = ["--machine", "juno-r1", "--add-programs", add, "--json"];
    let json = stdout(
        &[
            &["2*sleeper,gamess", "--policy", "camps", "--optimum"],
            &args[..],
        ]
        .concat(),
    );
    let report: Value = serde_json::from_str(&json).unwrap();
    let alone = |program: usize| {
        let times = &report["schedulers"][0]["programs"][program];
        times["alone"].as_f64().unwrap()
    };
    // 13 s of work, and 10 ms of sleep after each of 2710 parts of it.
    assert!(
        (alone(0) - 40.1).abs() < 0.5 && (alone(2) - 13.0).abs() < 0.1,
        "{json}"
    );
    // Three threads have room on the board: none waits long.
    assert!(number(&json, "camps", "unfairness") < 1.2, "{json}");
    assert!(
        report["optimum"]["skipped"]
            .as_str()
            .unwrap()
            .contains("sleep")
    );
}

#[test]
fn the_list_names_all() {
    let text = stdout(&["--list"]);
    for expected in [
        "juno-r1",
        "W24",
        "M16",
        "blackscholes(4), EP(4)",
        "GemsFDTD",
    ] {
        assert!(text.contains(expected), "{expected}");
    }
}

/// What came of a scheduler, means over seeds.
#[derive(Clone, Copy, Default)]
struct Came {
    unfairness: f64,
    asp: f64,
    stp: f64,
    /// The greatest slowdown of a program over what it has on the slowest type.
    worst: f64,
}

/// What all schedulers come to with the first so many of `programs` on a machine, and the most ASP and
/// the least unfairness that there can be, where that is known.
fn all_schedulers(
    machine: &str,
    programs: &[&str],
    number: usize,
) -> (BTreeMap<String, Came>, Option<(f64, f64)>) {
    const SEEDS: [&str; 3] = ["1", "2", "3"];
    let mix: Vec<&str> = programs.iter().copied().cycle().take(number).collect();
    let mix = mix.join(",");
    let (mut all, mut best) = (BTreeMap::<String, Came>::new(), None);
    for seed in SEEDS {
        let mut args = vec!["-m", machine, "--json", "--seconds", "15", "--seed", seed];
        args.extend(["--policy", "all", &mix]);
        if !machine.starts_with("phone") {
            args.push("--as-testbed");
        }
        if seed == "1" {
            args.push("--optimum");
        }
        let report: Value = serde_json::from_str(&stdout(&args)).unwrap();
        for row in report["schedulers"].as_array().unwrap() {
            let of = |key: &str| row[key].as_f64().unwrap() / SEEDS.len() as f64;
            let name = row["scheduler"].as_str().unwrap();
            let came = all.entry(name.to_string()).or_default();
            came.unfairness += of("unfairness");
            came.asp += of("asp");
            came.stp += of("stp");
            for program in row["programs"].as_array().unwrap() {
                let time = |key: &str| program[key].as_f64().unwrap();
                came.worst = came.worst.max(time("scheduled") / time("slow"));
            }
        }
        let optimum = &report["optimum"];
        if optimum["fastest"].is_array() {
            let number = |which: &str, at: usize| optimum[which][at].as_f64().unwrap();
            best = Some((number("fastest", 1), number("fairest", 0)));
        }
    }
    (all, best)
}

/// Programs that nothing disturbs, and some that disturb each other.
const CALM: &str = "fp, hash, branchy, matmul, sort, fp, integer, compress, barrier(1), branchy";
const IN_COMPANY: &str = "fp, stream, integer, hash, chase, sort, fp, compress, branchy, matmul";

/// With the first so many of `programs` on a machine of so many CPUs: each policy is as good as the
/// default in what it is for, and near the optimum where that is known. The default is a lottery, of
/// which this is the mean.
fn check(machine: &str, cpus: usize, programs: &str, number: usize) {
    let calm = programs == CALM;
    let programs: Vec<&str> = programs.split(", ").collect();
    let (all, best) = all_schedulers(machine, &programs, number);
    let what = format!("{number} on {machine}, calm: {calm}");
    println!("{what}; most ASP and least unfairness {best:.2?}");
    for (name, came) in &all {
        let Came {
            unfairness,
            asp,
            stp,
            worst,
        } = came;
        println!("  {name:8} {unfairness:6.2} {asp:6.2} {stp:6.2} {worst:5.2}");
    }
    let default = all["default"];
    for name in ["hsp", "rank"] {
        let Came { asp, .. } = all[name];
        let floor = default.asp.max(all["none"].asp);
        assert!(asp > floor - 0.05 * floor.abs(), "{name}, {what}: {asp}");
        if let Some((most, _)) = best {
            let part = if calm { 0.9 } else { 0.85 };
            assert!(asp > part * most, "{name}, {what}: {asp} of {most}");
        }
    }
    for name in ["camps", "acfs", "eqp", "rr"] {
        let Came {
            unfairness, stp, ..
        } = all[name];
        // Of contention only one of them knows.
        let most = if calm || name == "camps" { 1.0 } else { 1.2 };
        let most = most * default.unfairness;
        assert!(unfairness < most, "{name}, {what}: {unfairness}");
        assert!(stp > 0.92 * default.stp, "{name}, {what}: STP {stp}");
        if let Some((_, least)) = best.filter(|_| calm && name != "rr") {
            assert!(
                unfairness < 1.3 * least,
                "{name}, {what}: {unfairness} of {least}"
            );
        }
    }
    let turns = (number as f64 / cpus as f64).max(1.0);
    let ours = all
        .iter()
        .filter(|(name, _)| !["default", "none"].contains(&name.as_str()));
    // Two streams alone slow a chase of pointers down fourfold.
    let most = if calm { 3.0 } else { 4.0 };
    for (name, Came { worst, .. }) in ours {
        // It draws pairs by lot, and its rules know nothing of company.
        let most = if *name == "prim" { 1.5 * most } else { most };
        assert!(*worst < most * turns, "{name}, {what}: one waits, {worst}");
    }
}

#[test]
fn with_two_types_each_policy_is_good_at_what_it_is_for() {
    for programs in [CALM, IN_COMPANY] {
        for number in [6, 12] {
            check("alder-lake-4p4e", 8, programs, number);
        }
    }
}

#[test]
fn with_three_types_each_policy_is_good_at_what_it_is_for() {
    for programs in [CALM, IN_COMPANY] {
        for number in [8, 20] {
            check("meteor-lake", 14, programs, number);
        }
    }
}

#[test]
fn with_four_types_each_policy_is_good_at_what_it_is_for() {
    for programs in [CALM, IN_COMPANY] {
        for number in [5, 11] {
            check("phone-1-2-2-2", 7, programs, number);
        }
    }
}

#[test]
fn what_threads_hold_of_caches_is_estimated_beside_the_truth() {
    let args = ["W1", "--policy", "acfs", "--seconds", "10"];
    for events in ["--caches", "--caches=references"] {
        let json = stdout(&[&args[..], &[events, "--json"]].concat());
        let report: Value = serde_json::from_str(&json).unwrap();
        let caches = &report["schedulers"][0]["caches"];
        let error = caches["error"][0].as_f64().unwrap();
        assert!(error < 0.03, "{events}: {caches}");
        assert!(!caches["curves"].as_array().unwrap().is_empty());
    }
    let text = stdout(&[&args[..], &["--caches"]].concat());
    let fits = |line: &str| line.chars().count() <= 80;
    assert!(
        text.lines().all(fits) && text.contains("Occupancy: off by"),
        "{text}"
    );
}
