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

#[test]
fn impossible_cpus_of_amd_are_refused_by_their_key() {
    let ranks = "ranking = [208, 203, 208, 198]";
    for (from, to, word) in [
        (
            "vendor = \"amd\"",
            "vendor = \"via\"",
            "cpuid: `vendor` is intel or amd, not via",
        ),
        (
            "vendor = \"amd\"",
            "",
            "core type zen5: `cpuid_type` is core or atom, not performance",
        ),
        (
            "cpuid_type = \"efficiency\"",
            "cpuid_type = \"atom\"",
            "zen5c: `cpuid_type` is performance or efficiency, not atom",
        ),
        (ranks, "", "core type zen5 lacks `ranking`"),
        (ranks, "ranking = 208", "`ranking` cannot be 208"),
        (ranks, "ranking = [208, 300]", "numbers from 1 to 255"),
        (ranks, "ranking = [true]", "numbers from 1 to 255"),
        (
            ranks,
            "ranking = [208, 203]",
            "`ranking` has 2 entries for 4 cores",
        ),
        (
            "ranking = [132]",
            "ranking = [132, 131, 130, 129, 128, 127, 126, 125]",
            "`ranking` of efficiency cores is one number",
        ),
        (
            "ranking = [132]",
            "ranking = [132]\nthermal = [{ at_s = 1, until_s = 2, mhz = 9, cores = [8] }]",
            "`cores` are numbers from 0 to 7, not [8]",
        ),
        (
            "[memory]",
            "[energy]\nuncore_w = 1\nidle_w = 1\ndram_w = 1\ndram_nj = 1\n[memory]",
            "`[energy]` do not go together",
        ),
    ] {
        let text = refused("ryzen-ai-9-hx-370", from, to);
        assert!(text.contains(word), "{to}: {text}");
    }
}

/// What Linux reads of the table: its signature, length and sum; then every CPU that there is has
/// its levels, and ids without a CPU have none.
#[test]
fn the_table_of_performance_levels_is_one_of_acpi() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let output = machine(&["ryzen-ai-9-hx-370", out.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let table = fs::read(folder.path().join("out.aml")).unwrap();
    let options = String::from_utf8(output.stdout).unwrap();
    assert!(options.contains("vendor=AuthenticAMD,"), "{options}");
    assert!(options.contains("out.aml"), "{options}");
    let length = u32::from_le_bytes(table[4..8].try_into().unwrap());
    assert_eq!((&table[..4], length as usize), (&b"SSDT"[..], table.len()));
    let sum = table.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    assert_eq!(sum, 0);
    let count = |what: &[u8]| table.windows(what.len()).filter(|w| *w == what).count();
    assert_eq!(count(b"_CPC"), 24);
    for id in 0..32 {
        // Once with its levels, once to be told when they change.
        let named = count(format!("CPUSC{id:03X}").as_bytes());
        assert_eq!(named, if (8..16).contains(&id) { 0 } else { 2 }, "{id}");
    }
    // Intel's machines need none.
    let output = machine(&["lunar-lake", out.to_str().unwrap()]);
    assert!(!String::from_utf8(output.stdout).unwrap().contains("aml"));
}

#[test]
fn a_level_may_be_worth_what_linux_has_it_for() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    for (name, level) in [("lunar-lake", 56), ("meteor-lake-smt", 57)] {
        machine(&[name, out.to_str().unwrap()]);
        let settings = fs::read_to_string(&out).unwrap();
        let line = format!("type.0.highest_level = {level}");
        assert!(settings.lines().any(|l| l == line), "{name}: {settings}");
    }
    let text = refused("lunar-lake", "level_mhz = 86.957", "level_mhz = \"all\"");
    assert!(text.contains("`level_mhz` cannot be 'all'"), "{text}");
}

/// Compiles a part of the plugin with its test, and runs that.
fn checked(part: &str) {
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
    checked("decode.c");
}

#[test]
fn energy_is_what_was_worked_out() {
    checked("energy.c");
}

#[test]
fn amd_says_what_a_dump_of_its_cpuid_says() {
    checked("amd.c");
}
