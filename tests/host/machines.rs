// SPDX-License-Identifier: GPL-2.0-only
//! Files of virtual hybrid machines: those that there are are right, wrong ones are refused in words.

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

/// Of each case what is in the machine's file, what is there instead, and a word of the error.
pub(crate) fn refuses(name: &str, cases: &[(&str, &str, &str)]) {
    for (from, to, word) in cases {
        let text = refused(name, from, to);
        assert!(text.contains(word), "{to}: {text}");
    }
}

/// What the plugin reads of a machine.
pub(crate) fn settings(name: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let output = machine(&[name, out.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    fs::read_to_string(out).unwrap()
}

/// Two threads of a core compute 1.0 to 1.35 of what one does; what the model makes of that is in testbed/hybrid/test/smt.c.
#[test]
fn two_threads_of_a_core_compute_what_real_ones_do() {
    let mut cores = 0;
    for name in [
        "i7-1260p",
        "i7-1370p",
        "meteor-lake-smt",
        "ryzen-ai-9-hx-370",
    ] {
        for line in settings(name).lines() {
            let Some((key, value)) = line.split_once(" = ") else {
                continue;
            };
            let together: f64 = match key.ends_with(".smt") {
                true => value.parse().unwrap(),
                false => continue,
            };
            // 1 is a type without a second thread.
            assert!((1.0..=1.35).contains(&together), "{name}: {line}");
            cores += usize::from(together > 1.0);
        }
    }
    assert_eq!(cores, 5);
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
    refuses(
        "alder-lake-4p4e",
        &[
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
            (
                "cpus = 4",
                "cpus = 1000000000000",
                "`cpus` are 1 to 64, not 1000000000000",
            ),
            ("[llc.l3]", "[llc]\nl3 = 5\n[x]", "`llc` l3 is no table"),
            ("[llc.l3]", "[llc]\n[x]", "`llc`: there are 1 to 8, not 0"),
            ("mhz = [4400]", "mhz = []", "P: `mhz` needs at least one"),
            (
                "mhz = [4400]",
                "mhz = [\"fast\"]",
                "P: `mhz` has clocks from 1 to 10000 MHz, not 'fast'",
            ),
            ("mhz = [4400]", "mhz = [0]", "10000 MHz, not 0"),
            ("mhz = [4400]", "mhz = [nan]", "10000 MHz, not nan"),
            (
                "mhz = [4400]",
                "mhz = [4000, 4400]",
                "`mhz` rises with the number of busy cores",
            ),
            (
                "mhz = [4400]",
                "mhz = [1000]",
                "`base_mhz` is more than the highest of `mhz`",
            ),
            (
                "events = \"golden-cove\"",
                "events = \"zen6\"",
                "`events` is one of golden-cove,",
            ),
            (
                "counters = 8",
                "counters = 9",
                "`counters` must be at most 8, not 9",
            ),
            (
                "stepping = 3",
                "stepping = 16",
                "`stepping` must be at most 15",
            ),
            (
                "time = 20",
                "time = 1e30",
                "`time` must be at most 1000000000",
            ),
            (
                "bandwidth_mb_s = 42000",
                "bandwidth_mb_s = 0",
                "memory: `bandwidth_mb_s` must be at least 1, not 0",
            ),
            (
                "insn = 0.40, load = 0.1, store = 0.1, branch = 0.1, fp = 0.6, mul = 0.5, div = 6, sys = 30, branch_miss = 14",
                "insn = 0, load = 0, store = 0, branch = 0, fp = 0, mul = 0, div = 0, sys = 0, branch_miss = 0",
                "P, cycles: `insn` must be at least 0.01, not 0",
            ),
            (
                "kib = 1280, ways = 10",
                "kib = 16, ways = 4",
                "cluster 0, l2: `kib` is less than the `l1` of P: 16 and 48",
            ),
            (
                "kib = 12288",
                "kib = 1536",
                "llc l3: `kib` is less than the l2 of cluster 1: 1536 and 2048",
            ),
        ],
    );
    refuses(
        "odroid-xu4",
        &[(
            "kib = 512",
            "kib = 16",
            "`kib` is less than the l1 of cluster",
        )],
    );
    refuses(
        "laptop",
        &[
            (
                "until_s = 40",
                "until_s = 20",
                "P, thermal: `until_s` is not after `at_s`: 20 and 20",
            ),
            (
                "[{ at_s = 20, until_s = 40, mhz = 2200 }]",
                "[20]",
                "P: `thermal` 0 is no table",
            ),
            (
                "mhz = 2200",
                "mhz = 0",
                "P, thermal: `mhz` must be at least 1",
            ),
            (
                "mhz = 2200",
                "mhz = 4500",
                "P, thermal: `mhz` is more than the highest of the type's: 4500 and 4400",
            ),
            ("[memory]", "[memory", "wrong.toml"),
        ],
    );
    let text = String::from_utf8(machine(&["pdp-11"]).stderr).unwrap();
    assert!(text.contains("alder-lake-4p4e"), "{text}");
}

#[test]
fn impossible_cpus_of_amd_are_refused_by_their_key() {
    let ranks = "ranking = [208, 203, 208, 198]";
    refuses(
        "ryzen-ai-9-hx-370",
        &[
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
        ],
    );
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
    for (name, level) in [("lunar-lake", 56), ("meteor-lake-smt", 57)] {
        let settings = settings(name);
        let line = format!("type.0.highest_level = {level}");
        assert!(settings.lines().any(|l| l == line), "{name}: {settings}");
    }
    let text = refused("lunar-lake", "level_mhz = 86.957", "level_mhz = \"all\"");
    assert!(text.contains("`level_mhz` cannot be 'all'"), "{text}");
}

/// Turned off by a line, a machine is the one without it, but for its name.
#[test]
fn a_line_turns_a_dimension_off() {
    let folder = tempfile::tempdir().unwrap();
    let [file, out] = ["less.toml", "out"].map(|name| folder.path().join(name));
    let words = [&file, &out].map(|path| path.to_str().unwrap());
    let of = |like: &str, line: &str| {
        let text = format!("description = \"less\"\nlike = \"{like}\"\n{line}\n");
        fs::write(&file, text).unwrap();
        let output = machine(&words);
        assert!(output.status.success(), "{line}: {output:?}");
        let text = fs::read_to_string(&out).unwrap();
        text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    for (like, line) in [
        ("alder-lake-energy", "energy = \"off\""),
        ("alder-lake-resctrl", "resctrl = \"off\""),
        (
            "alder-lake-noisy",
            "latency = \"off\"\nidle_exit = \"off\"\nnoise = \"off\"",
        ),
    ] {
        assert_eq!(of(like, line), of("alder-lake-4p4e", ""), "{line}");
    }
    assert_eq!(
        of("alder-lake-cpuidle", "cpuidle = \"off\""),
        of("alder-lake-energy", "")
    );
    let feedback = of("alder-lake-hfi", "hfi = \"off\"");
    assert!(feedback.contains(&"hfi = 0".into()) && feedback.contains(&"energy = 1".into()));
    let one = of("i7-1260p", "smt = \"off\"");
    assert!(one.contains(&"cpus = 12".into()) && one.contains(&"ids_of_core = 1".into()));
    let sum = of("alder-lake-pipeline", "pipeline = \"off\"");
    assert!(sum.contains(&"type.0.pipeline = 0".into()));
    // Line by line, the laptop becomes another machine, but for what a wrong branch costs with a pipeline.
    let off =
        ["pipeline", "hfi", "cpuidle", "latency", "noise"].map(|key| format!("{key} = \"off\"\n"));
    let branches = "[core_type.P.cycles]\nbranch_miss = 13\n[core_type.E.cycles]\nbranch_miss = 14";
    assert_eq!(
        of("i7-1260p-laptop", &off.concat()),
        of("i7-1260p-energy", branches)
    );
}

/// Where one machine has what several others have, it has the same.
#[test]
fn the_laptop_is_what_its_parts_are() {
    let laptop = settings("i7-1260p-laptop");
    for (name, keys) in [
        (
            "alder-lake-pipeline",
            &["pipeline", "branch_miss_cycles"][..],
        ),
        ("alder-lake-cpuidle", &["cpuidle"]),
        ("alder-lake-hfi", &["hfi"]),
        (
            "i7-1260p-noisy",
            &[
                "sibling_ns",
                "cluster_ns",
                "llc_ns",
                "other_ns",
                "noise",
                "smt",
            ],
        ),
        ("i7-1260p-energy", &["energy"]),
    ] {
        let settings = settings(name);
        let is = |line: &&str| keys.iter().any(|key| line.contains(key));
        let [its, ours] =
            [&settings, &laptop].map(|text| text.lines().skip(1).filter(is).collect::<Vec<_>>());
        assert!(its.len() > 2, "{name}: {its:?}");
        assert_eq!(ours, its, "{name}");
    }
}
