// SPDX-License-Identifier: GPL-2.0-only
//! Parts of the virtual machine's model, each with a test in C beside it (`testbed/hybrid/test/`).

use std::path::Path;
use std::process::Command;

/// Compiles a part of the plugin with its test and what else it needs, and runs that.
fn checked(part: &str, needs: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("check");
    let hybrid = Path::new(env!("CARGO_MANIFEST_DIR")).join("testbed/hybrid");
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
fn heat_follows_watts_in_its_time() {
    checked("heat.c", &[]);
}

#[test]
fn sensors_show_the_mean_of_a_conversion() {
    checked("sensor.c", &[]);
}

#[test]
fn lines_come_from_the_cpu_that_wrote_them_last() {
    checked("coherence.c", &[]);
}

#[test]
fn noise_is_as_large_as_it_says_and_comes_from_the_seed() {
    checked("noise.c", &[]);
}

#[test]
fn lines_have_their_rmids_and_masks_bind() {
    checked("rdt.c", &[]);
}

#[test]
fn feedback_is_what_was_worked_out() {
    checked("hfi.c", &[]);
}

#[test]
fn amd_says_what_a_dump_of_its_cpuid_says() {
    checked("amd.c", &[]);
}

#[test]
fn blocks_cost_what_was_worked_out() {
    checked("pipeline.c", &["operands.c", "decode.c"]);
}
