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
fn refuses(name: &str, cases: &[(&str, &str, &str)]) {
    for (from, to, word) in cases {
        let text = refused(name, from, to);
        assert!(text.contains(word), "{to}: {text}");
    }
}

/// What the plugin reads of a machine.
fn settings(name: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let output = machine(&[name, out.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    fs::read_to_string(out).unwrap()
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
        ],
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
            ("[memory]", "[memory", "wrong.toml"),
        ],
    );
    let text = String::from_utf8(machine(&["pdp-11"]).stderr).unwrap();
    assert!(text.contains("alder-lake-4p4e"), "{text}");
}

#[test]
fn impossible_energies_are_refused_by_their_key() {
    refuses(
        "alder-lake-energy",
        &[
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
            (
                "uncore_w = 3.0",
                "uncore_w = 1e9",
                "energy: `uncore_w` must be at most 4095",
            ),
            (
                "idle_w = 1.2",
                "idle_w = 5",
                "energy: `idle_w` is more than `uncore_w`",
            ),
            (
                "[4400, 1.2]",
                "[4400, 12]",
                "P, energy: `volts`: [4400, 12] must be at most 10000 MHz, 5 volts",
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
            ("pl2_w = 95", "thermal_r = 2", "energy lacks `thermal_s`"),
            (
                "pl2_w = 95",
                "thermal_r = 0\nthermal_s = 5",
                "energy: `thermal_r` must be at least 0.001",
            ),
            (
                "pl2_w = 95",
                "thermal_r = 2\nthermal_s = 5\nmax_c = 128",
                "energy: `max_c` is at most 127, not 128",
            ),
            (
                "pl2_w = 95",
                "thermal_r = 2\nthermal_s = 5\nmax_c = 20",
                "`ambient_c` is not below `max_c`: 25 and 20",
            ),
            (
                "like = \"alder-lake-4p4e\"",
                "like = \"pdp-11\"",
                "no machine pdp-11",
            ),
        ],
    );
}

#[test]
fn impossible_sensors_are_refused_by_their_key() {
    refuses(
        "odroid-xu4-energy",
        &[
            ("A7 = 0x45", "A8 = 0x45", "`A8` is no core type, nor memory"),
            ("A7 = 0x45", "A7 = 0x40", "`A7` and `A15` have one address"),
            (
                "A7 = 0x45",
                "A7 = 0x50",
                "0x08 to 0x77, but for 0x50 to 0x57, not 0x50",
            ),
            (
                "A7 = 0x45",
                "A7 = 0x100",
                "`A7`: an address is 0x08 to 0x77",
            ),
            (
                "A7 = 0x45",
                "A7 = \"0x45\"",
                "sensors: `A7` cannot be '0x45'",
            ),
            ("[energy.sensors]", "[sensors]", "unknown setting `sensors`"),
        ],
    );
}

#[test]
fn impossible_latencies_and_noise_are_refused_by_their_key() {
    refuses(
        "i7-1260p-noisy",
        &[
            (
                "sibling_ns = 4.3\n",
                "",
                "latency lacks `sibling_ns`: there are cores of 2 threads",
            ),
            ("llc_ns = 32\n", "", "latency lacks `llc_ns`"),
            (
                "other_ns = 33.5",
                "other_ns = -1",
                "latency: `other_ns` must be at least 0",
            ),
            (
                "other_ns = 33.5",
                "other_ns = nan",
                "latency: `other_ns` cannot be nan",
            ),
            (
                "other_ns = 33.5",
                "other_ns = 33.5\nmoon_ns = 1",
                "latency: unknown setting `moon_ns`",
            ),
            (
                "noise = \"low\"",
                "noise = \"loud\"",
                "`noise` is off, low or high, not loud",
            ),
            ("noise = \"low\"", "noise = 3", "`noise` cannot be 3"),
            ("[[4, 2]", "[4, 2", "wrong.toml"),
            ("[[4, 2]", "[4", "P: `idle_exit` is a list of [microseconds"),
            ("[500, 170]", "[500, 1]", "P: `idle_exit`: a deeper state"),
            (
                "[500, 170]",
                "[3, 170]",
                "`idle_exit`: microseconds 3 after",
            ),
            ("[500, 170]", "[500, -1]", "must be at least 0"),
        ],
    );
}

/// Time is stretched for latencies between cores, as for caches; sleep is the guest's own.
#[test]
fn latencies_are_scaled_and_idle_states_are_not() {
    let noisy = settings("i7-1260p-noisy");
    for line in [
        "latency.llc_ns = 640",
        "latency.sibling_ns = 86.0",
        "noise = 1",
        "noise.clock = 0.002",
        "type.1.idle_exit.3.exit_us = 230",
    ] {
        assert!(noisy.lines().any(|l| l == line), "{line}: {noisy}");
    }
    let plain = settings("i7-1260p");
    for line in ["latency = 0", "noise = 0", "type.0.idle_exit = 0"] {
        assert!(plain.lines().any(|l| l == line), "{line}: {plain}");
    }
}

#[test]
fn impossible_settings_of_resctrl_are_refused_by_their_key() {
    refuses(
        "alder-lake-resctrl",
        &[
            (
                "rmids = 64",
                "rmids = 0",
                "resctrl: `rmids` must be at least 1, not 0",
            ),
            (
                "rmids = 64",
                "rmids = 1025",
                "resctrl: `rmids` must be at most 1024",
            ),
            (
                "rmids = 64",
                "rmids = 6.4",
                "resctrl: `rmids` cannot be 6.4",
            ),
            ("rmids = 64\n", "", "resctrl lacks `rmids`"),
            (
                "clos = 16",
                "clos = 0",
                "resctrl: `clos` must be at least 1",
            ),
            (
                "clos = 16",
                "clos = 129",
                "resctrl: `clos` must be at most 128",
            ),
            (
                "clos = 16",
                "clos = 16\nways = 13",
                "resctrl: unknown setting `ways`",
            ),
            (
                "[resctrl]",
                "llc.l3.ways = 48\n[resctrl]",
                "llc l3: `ways` must be at most 32 with",
            ),
            (
                "like = \"alder-lake-4p4e\"",
                "like = \"juno-r1\"",
                "cluster 0 lacks `l2`: `[resctrl]`",
            ),
            (
                "like = \"alder-lake-4p4e\"",
                "like = \"meteor-lake\"",
                "llc soc: `ways` must be those of the first",
            ),
        ],
    );
}

#[test]
fn impossible_feedback_is_refused_by_its_key() {
    refuses(
        "alder-lake-hfi",
        &[
            (
                "step = 4",
                "step = 0",
                "hfi: `step` must be at least 1, not 0",
            ),
            (
                "step = 4",
                "step = 256",
                "hfi: `step` must be at most 255, not 256",
            ),
            ("step = 4", "step = 1.5", "hfi: `step` cannot be 1.5"),
            (
                "interval_ms = 100",
                "interval_ms = 0",
                "hfi: `interval_ms` must be at least 1, not 0",
            ),
            (
                "interval_ms = 100",
                "interval_s = 1",
                "hfi: unknown setting `interval_s`",
            ),
            (
                "like = \"alder-lake-energy\"",
                "like = \"alder-lake-4p4e\"",
                "hfi: efficiency needs `[energy]`",
            ),
        ],
    );
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

/// A pipeline's settings are named where they are wrong.
#[test]
fn impossible_pipelines_are_refused_by_their_key() {
    refuses(
        "alder-lake-pipeline",
        &[
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
        ],
    );
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
    let feedback = of("alder-lake-hfi", "hfi = \"off\"");
    assert!(feedback.contains(&"hfi = 0".into()) && feedback.contains(&"energy = 1".into()));
    let one = of("i7-1260p", "smt = \"off\"");
    assert!(one.contains(&"cpus = 12".into()) && one.contains(&"ids_of_core = 1".into()));
    let sum = of("alder-lake-pipeline", "pipeline = \"off\"");
    assert!(sum.contains(&"type.0.pipeline = 0".into()));
}
