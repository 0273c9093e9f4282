// SPDX-License-Identifier: GPL-2.0-only
//! The parts of the virtual hybrid machine that need no machine: its files are
//! right, wrong ones are refused in words, and instructions are told apart.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

fn testbed() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testbed")
}

fn machine(args: &[&str]) -> Output {
    let program = testbed().join("machine");
    Command::new(program).args(args).output().unwrap()
}

/// A machine with one line changed.
fn refused(name: &str, from: &str, to: &str) -> String {
    let machines = testbed().join("machines");
    let text = fs::read_to_string(machines.join(format!("{name}.toml"))).unwrap();
    assert!(text.contains(from), "{from}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.toml");
    fs::write(&file, text.replacen(from, to, 1)).unwrap();
    let output = machine(&[file.to_str().unwrap()]);
    assert!(!output.status.success(), "accepted: {to}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!text.contains("Traceback"), "{text}");
    text
}

#[test]
fn every_machine_is_right() {
    let list = String::from_utf8(machine(&["--list"]).stdout).unwrap();
    assert!(list.lines().count() >= 7, "{list}");
    for line in list.lines() {
        assert!(line.len() <= 110, "{line}");
        let name = line.split_whitespace().next().unwrap();
        let output = machine(&[name]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{name}: {error}");
    }
}

fn alder_lake() -> String {
    fs::read_to_string(testbed().join("machines/alder-lake-4p4e.toml")).unwrap()
}

#[test]
fn wrong_threads_are_refused_in_words() {
    for (threads, smt, words) in [
        ("threads = 3", None, "`threads` is 1 or 2, not 3"),
        ("threads = 0", None, "`threads` must be at least 1, not 0"),
        ("threads = 1.5", None, "`threads` cannot be 1.5"),
        ("threads = 2", None, "core type P lacks `smt`"),
        (
            "threads = 2",
            Some("0.9"),
            "`smt` must be at least 1, not 0.9",
        ),
        (
            "threads = 2",
            Some("2.1"),
            "`smt` must be at most 2, not 2.1",
        ),
        ("threads = 2", Some("nan"), "`smt`"),
        ("threads = 2", Some("\"much\""), "`smt` cannot be 'much'"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("wrong.toml");
        let mut text = alder_lake().replacen("cpus = 4", &format!("cpus = 4\n{threads}"), 1);
        if let Some(value) = smt.map(|v| format!("prefetch = 56\nsmt = {v}")) {
            text = text.replacen("prefetch = 56", &value, 1);
        }
        fs::write(&file, text).unwrap();
        let output = machine(&[file.to_str().unwrap()]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "accepted: {threads}, {smt:?}");
        assert!(
            error.contains(words) && !error.contains("Traceback"),
            "{error}"
        );
    }
}

/// APIC ids: siblings are neighbours, E cores leave every second id free, and a shared
/// cache begins at a multiple of its size, whatever comes before it.
#[test]
fn cores_of_two_threads_take_two_ids() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("smt.toml");
    let text = alder_lake()
        .replacen("cpus = 4", "cpus = 6\nthreads = 2", 1)
        .replacen("prefetch = 56", "prefetch = 56\nsmt = 1.25", 1);
    fs::write(&file, text).unwrap();
    let out = folder.path().join("out");
    let output = machine(&[file.to_str().unwrap(), out.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let settings = fs::read_to_string(out).unwrap();
    for line in [
        "cluster.1.first = 8",
        "cpus = 10",
        "ids = 16",
        "ids_of_core = 2",
    ] {
        assert!(settings.lines().any(|l| l == line), "{line}: {settings}");
    }
    let options = String::from_utf8(output.stdout).unwrap();
    assert!(
        options.contains("-smp 6,maxcpus=16,sockets=1,cores=8,threads=2 "),
        "{options}"
    );
    assert_eq!(options.matches("-device max-x86_64-cpu").count(), 4);
    for core in 4..8 {
        assert!(
            options.contains(&format!("core-id={core},thread-id=0")),
            "{options}"
        );
    }
}

#[test]
fn wrong_machines_are_refused_in_words() {
    for (from, to, word) in [
        ("[cpuid]", "[cpu_id]", "lacks `cpuid`"),
        (
            "counters = 8",
            "counters = \"many\"",
            "`counters` cannot be 'many'",
        ),
        ("counters = 8", "counter = 8", "lacks `counters`"),
        (
            "hybrid = true",
            "hybrid = true\ncolour = 1",
            "unknown setting `colour`",
        ),
        (
            "core_type = \"P\"",
            "core_type = \"Q\"",
            "there is no core_type Q",
        ),
        ("cpus = 4", "cpus = 3", "cannot begin at CPU 3"),
        ("[memory]", "[memory", "wrong.toml"),
    ] {
        let text = refused("alder-lake-4p4e", from, to);
        assert!(text.contains(word), "{to}: {text}");
    }
    let text = String::from_utf8(machine(&["pdp-11"]).stderr).unwrap();
    assert!(text.contains("alder-lake-4p4e"), "{text}");
}

#[test]
fn impossible_energies_are_refused_by_their_key() {
    for (from, to, word) in [
        (
            "uncore_w = 3.0",
            "uncore_w = -3.0",
            "energy: `uncore_w` must be at least 0",
        ),
        (
            "dram_nj = 12",
            "dram_nj = nan",
            "energy: `dram_nj` cannot be nan",
        ),
        ("pl2_w = 95", "pl2_w = 20", "`pl2_w` is less than `pl1_w`"),
        ("leakage_w = 1.2\n", "", "P, energy lacks `leakage_w`"),
        ("llc = 6", "llc = -6", "P, energy, nj: `llc` must be"),
        ("llc = 6 }", "llc = 6, l4 = 1 }", "unknown setting `l4`"),
        (
            "[2000, 0.78]",
            "[300, 0.78]",
            "300 after 400 does not ascend",
        ),
        ("[2000, 0.82]", "[2000, 0.6]", "E, energy: `volts` fall"),
        (
            "[400, 0.65]",
            "[400, 0]",
            "`volts`: [400, 0] must be positive",
        ),
        ("[400, 0.65]", "400", "list of [MHz, volts], not 400"),
        ("[0, 0.6]", "[5, 0.6]", "`idle` must begin at 0"),
        (
            "[200, 0.15]",
            "[200, 1.5]",
            "`idle`: a deeper state takes 1.5",
        ),
        (
            "[core_type.E.energy]",
            "[core_type.F.energy]",
            "core type E lacks `energy`",
        ),
        ("[energy]", "[energies]", "P has `energy`, but the machine"),
        (
            "like = \"alder-lake-4p4e\"",
            "like = \"i7-1260p\"",
            "cluster 0: `threads` and `[energy]` do not go together",
        ),
        (
            "like = \"alder-lake-4p4e\"",
            "like = \"pdp-11\"",
            "no machine pdp-11",
        ),
    ] {
        let text = refused("alder-lake-energy", from, to);
        assert!(text.contains(word), "{to}: {text}");
    }
}

/// A pipeline's settings are named where they are wrong.
#[test]
fn impossible_pipelines_are_refused_by_their_key() {
    for (from, to, word) in [
        ("width = 6", "width = 0", "P, pipeline: `width` must be"),
        ("width = 6\n", "", "P, pipeline lacks `width`"),
        ("window = 512", "window = -1", "`window` must be at least 0"),
        ("hide = 0.", "hide = 1.", "`hide` must be at most 1"),
        ("hide = 0.", "hide = nan # ", "`hide` cannot be nan"),
        ("alu = 5", "alu = 0", "P, pipeline, ports: `alu` must be"),
        ("load = 5, ", "", "P, pipeline, latency lacks `load`"),
        ("div = 15", "div = \"long\"", "`div` cannot be 'long'"),
        ("fp = 4", "fp = 4, fma = 4", "unknown setting `fma`"),
        (
            "[core_type.E.pipeline]",
            "[core_type.E.pipelines]",
            "core type E lacks `pipeline`",
        ),
        (
            "like = \"alder-lake-4p4e\"",
            "like = \"meteor-lake\"",
            "core types with a `pipeline` are at most 2, not 3",
        ),
    ] {
        let text = refused("alder-lake-pipeline", from, to);
        assert!(text.contains(word), "{to}: {text}");
    }
}

/// Compiles a part of the plugin with its test and what else it needs, and runs that.
fn checked(part: &str, needs: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("check");
    let hybrid = testbed().join("hybrid");
    let status = Command::new(std::env::var("CC").unwrap_or("cc".into()))
        .args(["-O1", "-Wall", "-o"])
        .args([
            &program,
            &hybrid.join("test").join(part),
            &hybrid.join(part),
        ])
        .args(needs.iter().map(|part| hybrid.join(part)))
        .arg("-lm")
        .status()
        .unwrap();
    assert!(status.success());
    let output = Command::new(program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
}

#[test]
fn instructions_are_told_apart() {
    checked("decode.c", &[]);
}

#[test]
fn energy_is_what_was_worked_out() {
    checked("energy.c", &[]);
}

#[test]
fn blocks_cost_what_was_worked_out() {
    checked("pipeline.c", &["operands.c", "decode.c"]);
}
