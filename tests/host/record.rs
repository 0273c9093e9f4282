// SPDX-License-Identifier: GPL-2.0-only
//! Recording, replaying and reporting as a user does it, of a run in the simulator.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program::{command, error, output, stdout};
use nix::sys::resource::{UsageWho, getrusage};
use scx_hetero::policy::Snapshot;
use scx_hetero::record::format::Record;
use scx_hetero::record::{BUDGET, Encoder, Input, Members, RecordReader, Tail, append};
use scx_hetero::replay::{Changes, compare};
use serde_json::Value;

/// A few seconds of a mix under a policy.
fn recording(folder: &Path, policy: &str, seconds: &str) -> PathBuf {
    let path = folder.join(format!("{policy}.scxrec"));
    let file = path.to_str().unwrap();
    let mix = "soplex,2*art,kmeans(3),galgel,lbm";
    let how = ["--machine", "juno-r1", "--seconds", seconds];
    stdout(
        &[
            &["sim", mix, "--policy", policy, "--record", file],
            &how[..],
        ]
        .concat(),
    );
    path
}

/// What a recording holds, in words, and how it ends.
fn contents(path: &Path) -> (Vec<String>, Tail) {
    let mut reader = RecordReader::open(path).unwrap();
    let mut inputs = Vec::new();
    while let Some(input) = reader.next_input().unwrap() {
        let tasks = match input {
            Input::Look { .. } => format!("{:?}", reader.tasks()),
            _ => String::new(),
        };
        inputs.push(format!("{input:?}{tasks}"));
    }
    (inputs, reader.tail().unwrap())
}

#[test]
fn every_policy_decides_again_what_it_did() {
    let folder = tempfile::tempdir().unwrap();
    for policy in ["camps", "acfs", "hsp", "rank", "eqp", "adwrr", "rr", "ef"] {
        let path = recording(folder.path(), policy, "6");
        let changes = Changes::default();
        let again = compare(&mut RecordReader::open(&path).unwrap(), changes, 10).unwrap();
        assert!(again.check.all >= 10, "{policy}: {:?}", again.check);
        assert_eq!(again.check.same, again.check.all, "{policy}");
        assert_eq!(again.all_differences, 0, "{policy}");
        assert_eq!(again.complaint, None, "{policy}");
        let moved = again.recorded.swaps + again.recorded.hints;
        assert!(moved > 0, "{policy} moved nothing: that would be no test");
    }
}

#[test]
fn another_policy_decides_otherwise_and_the_first_differences_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = recording(folder.path(), "camps", "6");
    let file = path.to_str().unwrap();
    let text = stdout(&["replay", file, "--policy", "hsp", "-n", "30"]);
    for expected in [
        "Open loop",
        "REPLAYED",
        "swaps/s",
        "the first 30 of",
        "replayed",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let even = folder.path().join("W5.scxrec");
    let even = even.to_str().unwrap();
    let seconds = ["--seconds", "6"];
    stdout(
        &[
            &["sim", "W5", "--policy", "camps", "--record", even],
            &seconds[..],
        ]
        .concat(),
    );
    let json = stdout(&["replay", even, "--fairness", "0", "--json"]);
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["same_again"], report["decided_again"]);
    assert!(report["differences"].as_u64().unwrap() > 0);
    // Throughput alone costs fairness, and is to gain some.
    let side = |name: &str, what: &str| report[name][what].as_f64().unwrap();
    assert!(
        side("replayed", "predicted_unfairness") > side("recorded", "predicted_unfairness"),
        "{json}"
    );
    let same: Value = serde_json::from_str(&stdout(&["replay", file, "--json"])).unwrap();
    assert_eq!(same["differences"], 0);
    assert_eq!(same["recorded"]["threads"], same["replayed"]["threads"]);
}

#[test]
fn wherever_it_is_cut_off_all_before_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = recording(folder.path(), "camps", "3");
    let (whole, tail) = contents(&path);
    assert_eq!(tail, Tail::Whole);
    let bytes = fs::read(&path).unwrap();
    let cut = folder.path().join("cut");
    // Where members begin: what is read grows there.
    let mut members = vec![];
    for end in (0..bytes.len()).filter(|&at| bytes[at..].starts_with(&[0x1f, 0x8b, 8, 0])) {
        fs::write(&cut, &bytes[..end]).unwrap();
        match RecordReader::open(&cut) {
            Err(_) => assert_eq!(end, 0),
            Ok(_) => {
                let (read, tail) = contents(&cut);
                if tail == Tail::Open {
                    assert_eq!(read, whole[..read.len()]);
                    members.push((end, read.len()));
                }
            }
        }
    }
    assert!(members.len() >= 4, "{members:?}");
    // Within the last two, at every byte.
    let [.., (first, some), (second, more)] = members[..] else {
        panic!("{members:?}");
    };
    for end in first + 1..bytes.len() {
        fs::write(&cut, &bytes[..end]).unwrap();
        let (read, tail) = contents(&cut);
        let expected = if end < second { some } else { more };
        assert_eq!(read.len(), expected, "cut at {end}");
        let lost = end - if end < second { first } else { second };
        let open = if lost == 0 {
            Tail::Open
        } else {
            Tail::Cut(lost as u64)
        };
        assert_eq!(tail, open, "cut at {end}");
    }
    // It is told of, and is of use all the same.
    let output = output(&["replay", cut.to_str().unwrap()]);
    assert!(output.status.success());
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("cut short or damaged"), "{told}");
}

#[test]
fn damage_in_the_middle_ends_it_there_and_garbage_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = recording(folder.path(), "rr", "4");
    let (whole, _) = contents(&path);
    let bytes = fs::read(&path).unwrap();
    let damaged = folder.path().join("damaged");
    // Every so often, over the whole file: never a panic, and what is read is what was there.
    for at in (0..bytes.len()).step_by(17) {
        let mut copy = bytes.clone();
        copy[at] ^= 0x55;
        fs::write(&damaged, copy).unwrap();
        if let Ok(mut reader) = RecordReader::open(&damaged) {
            let mut count = 0;
            while let Ok(Some(_)) = reader.next_input() {
                count += 1;
            }
            assert!(count <= whole.len());
        }
    }
    let file = damaged.to_str().unwrap();
    fs::write(&damaged, "what is mine").unwrap();
    assert!(error(&["replay", file]).contains("no recording of scx_hetero"));
    fs::write(&damaged, "").unwrap();
    assert!(error(&["replay", file]).contains("no recording of scx_hetero"));
    fs::remove_file(&damaged).unwrap();
    assert!(error(&["replay", file]).contains("cannot read the recording"));
}

/// Files that would fill the memory of a reader that believes them: a short one unpacks to a thousand
/// times as much, and that to many times as much again.
#[test]
fn a_file_made_to_fill_memory_is_refused_within_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    let source = recording(folder.path(), "camps", "2");
    let mut reader = RecordReader::open(&source).unwrap();
    let Some(Input::Begin(begin)) = reader.next_input().unwrap() else {
        panic!("no beginning");
    };
    let mut tasks = Vec::new();
    while let Ok(Some(input)) = reader.next_input() {
        if matches!(input, Input::Look { .. }) && !reader.tasks().is_empty() {
            tasks = reader.tasks().to_vec();
        }
    }
    let hostile = folder.path().join("hostile");
    let refused = |parts: &[Vec<u8>]| {
        let mut file = Members::create(&hostile).unwrap();
        for part in parts {
            file.write(part).unwrap();
        }
        let file = hostile.to_str().unwrap();
        let size = fs::metadata(&hostile).unwrap().len();
        let told = [error(&["replay", file]), error(&["report", file])];
        assert!(!told[0].contains("panicked") && !told[1].contains("panicked"));
        println!("{size} bytes: {}", told[0]);
        let used = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss();
        assert!((used as u64) << 10 < BUDGET, "{used} kB for {size} bytes");
        told[0].clone()
    };
    let start = || {
        let mut encoder = Encoder::default();
        encoder.begin((*begin).clone());
        encoder.take(Vec::new())
    };
    // A length, and zeros: these are sound actions, and sound tasks.
    let long = |head: &[u8], zeros: usize| {
        let mut bytes = start();
        bytes.extend(head);
        bytes.extend([0xff, 0xff, 0xff, 0x7f]);
        bytes.resize(bytes.len() + zeros, 0);
        bytes
    };
    for zeros in [60 << 20, 200 << 20] {
        let told = refused(&[long(&[6], zeros)]);
        assert!(
            told.contains("does not make sense") || told.contains("64 MiB"),
            "{told}"
        );
        refused(&[long(&[5, 1, 0, 0], zeros)]);
        refused(&[long(&[5, 1, 0], zeros)]);
        refused(&[long(&[3], zeros)]);
    }
    for joules in [-1.0, f64::NAN, f64::INFINITY, 1.5e308] {
        let mut bytes = start();
        append(&mut bytes, &Record::Energy(joules));
        assert!(
            refused(&[bytes]).contains("joules that cannot be"),
            "{joules}"
        );
    }
    let mut many = (*begin).clone();
    many.topology.nr_cpu_ids = u32::MAX;
    many.topology.cpus[0].llc = 1 << 40;
    let mut encoder = Encoder::default();
    encoder.begin(many);
    assert!(refused(&[encoder.take(Vec::new())]).contains("makes no sense"));

    // Each look has others in the slots of those before.
    let mut encoder = Encoder::default();
    encoder.begin((*begin).clone());
    let mut parts = Vec::new();
    let some = tasks[0];
    tasks = (0..16_000)
        .map(|slot| {
            let mut task = some;
            task.id.slot = slot;
            task
        })
        .collect();
    for look in 1..70_u32 {
        for task in &mut tasks {
            task.id.generation = look;
            task.run_ns[task.core_type] += 1000;
        }
        let snapshot = Snapshot {
            now_ns: u64::from(look) * 1_000_000,
            topology: &begin.topology,
            tasks: &tasks,
        };
        encoder.look(&snapshot, false);
        parts.push(encoder.take(Vec::new()));
    }
    let told = refused(&parts);
    assert!(told.contains("more than 1048576 threads"), "{told}");
}

#[test]
fn goals_are_drawn_from_a_recording() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("goals.scxrec");
    let file = file.to_str().unwrap();
    let sim = ["sim", "hmmer@70,soplex@40,6*gobmk", "--policy", "camps"];
    let how = [
        "--machine",
        "alder-lake-4p4e",
        "--seconds",
        "6",
        "--record",
        file,
    ];
    stdout(&[&sim[..], &how].concat());
    let said = stdout(&["goal", "plot", file]);
    assert_eq!(said, format!("{file}.svg: goals of 2 sessions\n"));
    let drawing = fs::read_to_string(format!("{file}.svg")).unwrap();
    let (rates, given) = drawing.split_once("Allotment, CPUs").unwrap();
    for part in [rates, given] {
        assert_eq!(part.matches("<path class=\"curve").count(), 4, "{drawing}");
        assert!(part.contains("hmmer@70 ") && part.contains("soplex@40 "));
        // Ten points a second, and each has a line to it but the first.
        assert!(part.matches('L').count() > 2 * 40);
    }
    assert_eq!(stdout(&["goal", "plot", file, "--out", "-"]), drawing);
    stdout(&["report", file]);
    let page = fs::read_to_string(format!("{file}.html")).unwrap();
    assert!(page.contains("<h2>Rate over target") && page.contains("<h2>Allotment"));
    // Goals change nothing in how it is replayed.
    let json = stdout(&["replay", file, "--json"]);
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["same_again"], report["decided_again"]);

    let path = recording(folder.path(), "rr", "1");
    let told = error(&["goal", "plot", path.to_str().unwrap()]);
    assert!(told.contains("no program had a goal"), "{told}");
    let told = error(&["goal", "plot", "/dev/null"]);
    assert!(told.contains("no recording of scx_hetero"), "{told}");
}

#[test]
fn what_cannot_be_recorded_is_said_before_anything_runs() {
    let told = error(&["sim", "W5", "--record", "/tmp/none"]);
    assert!(told.contains("one policy that decides"), "{told}");
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("none/file");
    let args = ["sim", "W5", "--seconds", "1", "--policy", "rr", "--record"];
    let told = error(&[&args[..], &[nowhere.to_str().unwrap()]].concat());
    assert!(told.contains("cannot write the recording"), "{told}");
}

/// The browser, where there is one.
fn chromium() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let runs = |name: &&str| {
        let mut command = Command::new(name);
        command
            .arg("--version")
            .output()
            .is_ok_and(|out| out.status.success())
    };
    names.into_iter().find(runs)
}

/// What a browser makes of a page.
fn browse(browser: &str, folder: &Path, page: &Path, args: &[&str]) -> Vec<u8> {
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu"])
        .arg(format!(
            "--user-data-dir={}",
            folder.join("profile").display()
        ))
        .args(args)
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    output.stdout
}

#[test]
fn the_page_is_whole_small_and_asks_for_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = recording(folder.path(), "camps", "12");
    let out = folder.path().join("page.html");
    stdout(&[
        "report",
        path.to_str().unwrap(),
        "--out",
        out.to_str().unwrap(),
    ]);
    let page = fs::read_to_string(&out).unwrap();
    assert!(page.len() < 500_000, "{} bytes", page.len());
    for expected in [
        "Where each thread ran",
        "Unfairness",
        "Slowdown",
        "Progress",
        "camps.scxrec",
        "soplex",
        "progress ",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
    // The simulator counts no energy.
    assert!(!page.contains("<h2>Power"));
    for asking in ["http:", "https:", "src=", "@import", "url(", "<script"] {
        let found = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!found.contains(asking), "{asking}");
    }
    // By default it lies beside the recording.
    stdout(&["report", path.to_str().unwrap()]);
    assert_eq!(
        fs::read_to_string(folder.path().join("camps.scxrec.html")).unwrap(),
        page
    );
}

#[test]
fn miss_rate_curves_are_drawn_where_cache_is_worth_something_and_were_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("W12.scxrec");
    let file = path.to_str().unwrap();
    for (policy, counts) in [("camps", true), ("rr", false)] {
        stdout(&["sim", "W12", "--policy", policy, "--record", file]);
        let page = stdout(&["report", file, "--out", "-"]);
        let drawn = [
            "Miss-rate curves",
            "\n2 MiB\n",
            "art on big",
            "Others gain less",
        ];
        for part in drawn {
            assert_eq!(page.contains(part), counts, "{policy}: {part}");
        }
    }
}

#[test]
fn the_page_goes_to_standard_output_and_no_recording_comes_from_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let path = recording(folder.path(), "camps", "4");
    let mut command = command(&["report", "camps.scxrec", "-o", "-"]);
    let output = command.current_dir(folder.path()).output().unwrap();
    assert!(output.status.success());
    stdout(&["report", path.to_str().unwrap()]);
    let page = fs::read(folder.path().join("camps.scxrec.html")).unwrap();
    assert_eq!(output.stdout, page);
    assert!(!folder.path().join("-").exists());
    for command in ["replay", "report"] {
        assert!(error(&[command, "-"]).contains("standard input"));
    }
}

#[test]
fn what_was_recorded_is_judged_alike_whoever_replays() {
    let folder = tempfile::tempdir().unwrap();
    let path = recording(folder.path(), "rr", "6");
    let file = path.to_str().unwrap();
    let recorded = |policy: &str| {
        let json = stdout(&["replay", file, "--policy", policy, "--json"]);
        let report: Value = serde_json::from_str(&json).unwrap();
        for told in report["first_differences"].as_array().unwrap() {
            assert_ne!(told["from"], told["to"], "{policy}: {told}");
        }
        report["recorded"].clone()
    };
    let all = ["rr", "camps", "hsp", "rank"].map(recorded);
    assert!(all.iter().all(|one| *one == all[0]), "{all:#?}");
}

#[test]
fn a_browser_shows_it_light_and_dark_and_as_wide_as_its_window() {
    let Some(browser) = chromium() else {
        println!("SKIPPED: there is no chromium here");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = recording(folder.path(), "camps", "4");
    stdout(&["report", path.to_str().unwrap()]);
    let page = folder.path().join("camps.scxrec.html");
    let dom = browse(browser, folder.path(), &page, &["--dump-dom"]);
    let dom = String::from_utf8(dom).unwrap();
    assert!(dom.matches("<svg").count() >= 4, "{dom}");
    let shot = folder.path().join("shot.png");
    let screenshot = format!("--screenshot={}", shot.display());
    let shoot = |window: &str, scheme: &str| {
        let window = format!("--window-size={window}");
        let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
        browse(
            browser,
            folder.path(),
            &page,
            &[&screenshot, &window, &scheme],
        );
        fs::read(&shot).unwrap()
    };
    // A PNG's width stands in its bytes 16 to 20; schemes of Blink are 0, dark, and 1, light.
    for width in [360_u32, 1600] {
        let window = format!("{width},1200");
        let (dark, light) = (shoot(&window, "0"), shoot(&window, "1"));
        assert_eq!(dark[16..20], width.to_be_bytes());
        assert_ne!(dark, light, "it does not follow the reader's colours");
    }
}
