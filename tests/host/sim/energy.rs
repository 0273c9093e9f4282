// SPDX-License-Identifier: GPL-2.0-only
//! What schedulers take, and how energy is saved, in `scx_hetero sim`.

use serde_json::Value;

use super::{number, stdout};

/// What a scheduler took.
fn energy(json: &str, scheduler: &str, key: &str) -> f64 {
    let report: Value = serde_json::from_str(json).unwrap();
    let rows = report["schedulers"].as_array().unwrap();
    let row = rows.iter().find(|row| row["scheduler"] == scheduler);
    row.unwrap()["energy"][key].as_f64().unwrap()
}

#[test]
fn energy_is_saved_by_cost_and_not_always_by_slow_cores() {
    let joules = |machine: &str, saving: &str, mix: &str| {
        let args = [
            "--machine",
            machine,
            "--policy",
            "camps",
            "--once",
            "6",
            "--json",
        ];
        let json = stdout(&[&args[..], &[saving, mix]].concat());
        energy(&json, "camps", "joules_above_idle")
    };
    let over_slow_first = |machine: &str, mix: &str| {
        joules(machine, "--powersave", mix) / joules(machine, "--powersave=blind", mix)
    };
    // The package sleeps the sooner, and both gain much on big cores.
    let gains = over_slow_first("juno-r1", "libquantum, galgel");
    assert!(gains < 0.9, "{gains}");
    // Its big cores take nine times as much.
    let loses = over_slow_first("odroid-xu4", "bzip2");
    assert!(loses < 1.03, "{loses}");
}

/// A film that an E core is too slow for, and a video that it is not.
#[test]
fn while_energy_is_saved_hardly_a_frame_is_late() {
    let laptop = format!("{}/experiments/laptop", env!("CARGO_MANIFEST_DIR"));
    let run = |mix: &str, saving: &[&str]| {
        let programs = format!("{laptop}/programs.toml");
        let of_all = [
            "--machine",
            "alder-lake-4p4e",
            "--add-programs",
            &programs,
            "--policy",
            "camps",
            "--once",
            "1",
            "--json",
            mix,
        ];
        stdout(&[&of_all[..], saving].concat())
    };
    let late = |json: &str| {
        let report: Value = serde_json::from_str(json).unwrap();
        let programs = report["schedulers"][0]["programs"].as_array().unwrap();
        let frames = programs.iter().find_map(|of| of["frames"].as_array());
        frames.unwrap()[1].as_u64().unwrap()
    };
    let joules = |json: &str| energy(json, "camps", "joules_above_idle");
    let film = run("film, desktop", &["--powersave"]);
    assert!(late(&film) <= 2, "{film}");
    let video = run("video, desktop", &["--powersave"]);
    assert!(late(&video) <= 2, "{video}");
    let without = run("video, desktop", &[]);
    assert!(joules(&video) < 0.7 * joules(&without), "{video}");
}

#[test]
fn goals_are_met_for_less_while_energy_is_saved() {
    for (machine, most) in [("alder-lake-4p4e", 0.85), ("juno-r1", 0.97)] {
        let run = |saving: &[&str]| {
            let args = [
                "--machine",
                machine,
                "--policy",
                "camps",
                "--seconds",
                "20",
                "--json",
            ];
            stdout(&[&args, saving, &["hmmer@70, kmeans(2)@40"]].concat())
        };
        let joules = |json: &str| energy(json, "camps", "joules_above_idle");
        let (without, saving) = (run(&[]), run(&["--powersave"]));
        let part = joules(&saving) / joules(&without);
        assert!(part < most, "{part} on {machine}");
        let report: Value = serde_json::from_str(&saving).unwrap();
        for goal in report["schedulers"][0]["goals"].as_array().unwrap() {
            assert!(
                goal["within"].as_f64().unwrap() > 0.9,
                "{goal} on {machine}"
            );
        }
    }
}

#[test]
fn energy_and_its_product_with_time_are_said_where_the_machine_has_a_model_of_them() {
    let text = stdout(&["J1", "--policy", "hsp,ef", "--optimum", "--programs"]);
    for expected in ["WATTS", "EDP", "(least)", "ENERGY"] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    let phone = [
        "--machine",
        "phone-1-2-2-2",
        "gobmk,hmmer",
        "--policy",
        "none",
    ];
    assert!(!stdout(&phone).contains("WATTS"));
    let json = stdout(&["J1", "--policy", "hsp,none", "--json", "--optimum"]);
    let [watts, work, edp] = ["watts", "work_per_s", "edp"].map(|of| energy(&json, "hsp", of));
    assert!((0.5..4.0).contains(&watts), "{watts}");
    assert!(
        (work / number(&json, "hsp", "stp") - 1.0).abs() < 0.1,
        "{json}"
    );
    assert!((edp / (watts / work / work) - 1.0).abs() < 1e-9);
    for scheduler in ["hsp", "none"] {
        assert!(number(&json, scheduler, "of_least_edp") > 0.99, "{json}");
    }
}

#[test]
fn ef_has_less_energy_times_time_than_hsp_and_prim_by_what_it_is_told_to_go_by() {
    let mixes = ["J2", "J5", "J9", "J14", "J20", "J27", "J33", "J40"];
    let run = |words: &[&str]| {
        let all = [&mixes[..], &["--json", "--model-error", "5"], words].concat();
        stdout(&all)
    };
    let mean = |text: &str, scheduler: &str, key: &str| {
        let of = text.lines().map(|json| energy(json, scheduler, key).ln());
        (of.sum::<f64>() / mixes.len() as f64).exp()
    };
    let text = run(&["--policy", "hsp,ef,prim"]);
    let of = |scheduler| mean(&text, scheduler, "edp");
    assert!(of("ef") < of("hsp") && of("ef") < of("prim"), "{text}");
    let own = run(&["--policy", "hsp,ef", "--objective", "ef"]);
    let of = |scheduler| mean(&own, scheduler, "edp_of_programs");
    assert!(of("ef") < of("hsp"), "{own}");
    let thrifty = run(&["--policy", "ef", "--objective", "energy"]);
    let joules = |text: &str| mean(text, "ef", "joules_per_work");
    // They differ by little, and visits cost both alike.
    assert!(joules(&thrifty) < 1.01 * joules(&text), "{thrifty}");
    assert!(
        joules(&thrifty) < mean(&text, "hsp", "joules_per_work"),
        "{thrifty}"
    );
}
