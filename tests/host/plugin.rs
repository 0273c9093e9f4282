// SPDX-License-Identifier: GPL-2.0-only
//! Parts of the virtual machine's model, each with a test in C beside it (`testbed/hybrid/test/`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::machines::settings;

fn hybrid() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testbed/hybrid")
}

/// Compiles a test with files of the plugin.
fn compile(program: &Path, test: &str, files: &[PathBuf]) {
    let test_folder = hybrid().join("test");
    let status = Command::new(std::env::var("CC").unwrap_or("cc".into()))
        .args(["-O1", "-ffp-contract=off", "-Wall", "-o"])
        .args([program, &test_folder.join(test)])
        .arg("-I")
        .arg(&test_folder)
        .args(files)
        .arg("-lm")
        .status()
        .unwrap();
    assert!(status.success());
}

/// Instead of the C library's functions.
const ELEMENTARY: &str = "elementary.c";

/// Compiles a part of the plugin with its test and what else it needs, and runs that.
fn checked(part: &str, needs: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("check");
    let parts = [&[part], needs].concat();
    let files: Vec<_> = parts.iter().map(|part| hybrid().join(part)).collect();
    compile(&program, part, &files);
    let output = Command::new(program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
}

#[test]
fn instructions_are_told_apart() {
    checked("decode.c", &[]);
}

#[test]
fn clocks_are_what_was_asked_for_and_preferred() {
    checked("power.c", &[]);
}

#[test]
fn energy_is_what_was_worked_out() {
    checked("energy.c", &[ELEMENTARY, "idle.c"]);
}

#[test]
fn heat_follows_watts_in_its_time() {
    checked("heat.c", &[ELEMENTARY]);
}

#[test]
fn sensors_show_the_mean_of_a_conversion() {
    checked("sensor.c", &[ELEMENTARY]);
}

#[test]
fn lines_come_from_the_cpu_that_wrote_them_last() {
    checked("coherence.c", &[]);
}

#[test]
fn noise_is_as_large_as_it_says_and_comes_from_the_seed() {
    checked("noise.c", &[ELEMENTARY]);
}

#[test]
fn lines_have_their_rmids_and_masks_bind() {
    checked("rdt.c", &[]);
}

#[test]
fn feedback_is_what_was_worked_out() {
    checked("hfi.c", &["heat.c", ELEMENTARY]);
}

#[test]
fn amd_says_what_a_dump_of_its_cpuid_says() {
    checked("amd.c", &[]);
}

#[test]
fn blocks_cost_what_was_worked_out() {
    checked("pipeline.c", &["operands.c", "decode.c"]);
}

#[test]
fn two_threads_of_a_core_get_what_real_ones_do() {
    checked("smt.c", &[]);
}

#[test]
fn elementary_functions_are_the_same_to_the_bit() {
    checked(ELEMENTARY, &[]);
}

/// What the C library makes of these depends on the CPU: the model would take another course on another host.
#[test]
fn the_model_calls_no_function_that_depends_on_the_host() {
    let names = [
        "exp", "exp2", "exp10", "expm1", "log", "log2", "log10", "log1p", "pow", "cbrt", "hypot",
        "fma", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh",
    ];
    for file in fs::read_dir(hybrid()).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|it| it != "c" && it != "h") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        // With nothing in its brackets it is the name of a function, in a comment.
        for (at, _) in text
            .match_indices('(')
            .filter(|(at, _)| !text[at + 1..].starts_with(')'))
        {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let name = text[..at].rsplit(|c| !is_name(c)).next().unwrap();
            assert!(!names.contains(&name), "{path:?}: {name}");
        }
    }
}

/// The same machine with a hundredth of the bandwidth: how full a bus is goes on from what it was, so what differs in the
/// last bit comes to light there.
fn crowded(settings: &str) -> String {
    let line = |line: &str| match line.split_once("bandwidth_mb_s = ") {
        Some((of, rate)) => format!(
            "{of}bandwidth_mb_s = {}\n",
            rate.parse::<f64>().unwrap() / 100.0
        ),
        None => format!("{line}\n"),
    };
    settings.lines().map(line).collect()
}

/// Two processes at a time, each with its memory elsewhere, one as on an older CPU: `testbed/vm-tests` boots twice, but seldom.
#[test]
fn the_whole_plugin_does_the_same_with_the_same_seed() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("plugin");
    let is_part = |file: &PathBuf| file.extension().is_some_and(|it| it == "c");
    let files = fs::read_dir(hybrid()).unwrap();
    let files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    let parts: Vec<_> = files.into_iter().filter(is_part).collect();
    compile(&program, "plugin.c", &parts);
    let begin = |machine: &str, cpus: &str, seed: &str, older: &str| {
        let file = folder.path().join(machine);
        fs::write(&file, crowded(&settings(machine))).unwrap();
        Command::new(&program)
            .arg(format!("machine={}", file.display()))
            .args([&format!("seed={seed}"), cpus, "30"])
            .env("GLIBC_TUNABLES", older)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let end = |child: Child| {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let noisy = ["i7-1260p-noisy", "i7-1260p-laptop"];
    // The others have what the first lacks, each but the laptop a part of it: energy and heat, idle states that the guest
    // chooses, resctrl, hardware feedback, AMD's registers, pipelines.
    for (machine, cpus) in [
        (noisy[0], "24"),
        (noisy[1], "24"),
        ("i7-1260p-energy", "24"),
        ("alder-lake-cpuidle", "8"),
        ("alder-lake-resctrl", "8"),
        ("alder-lake-hfi", "8"),
        ("ryzen-ai-9-hx-370-heat", "32"),
        ("odroid-xu4-pipeline", "8"),
    ] {
        // The second runs the C library's code for a CPU that is ten years older.
        let older = "glibc.cpu.hwcaps=-AVX2,-FMA";
        let processes = [("1", ""), ("1", older), ("2", "")];
        let [one, two, other] = processes.map(|(seed, older)| begin(machine, cpus, seed, older));
        let [one, two, other] = [one, two, other].map(end);
        assert!(one.lines().count() > 8, "{one}");
        assert_eq!(one, two, "{machine}");
        // Nothing but noise is drawn.
        assert_eq!(one != other, noisy.contains(&machine), "{machine}");
    }
}
