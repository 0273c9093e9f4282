// SPDX-License-Identifier: GPL-2.0-only
//! Scheduling by a learnt model, in the virtual hybrid machine (`make test`), whose model it is.

mod support;

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;

use support::*;

const MODEL: &str = include_str!("../models/virtual-alder-lake-4p4e.model.json");
const PATH: &str = "/tmp/model.json";

/// Four of a program, for as long as they are let.
fn four(program: &str) -> Vec<Child> {
    let start = |_| {
        let mut command = Command::new("hetero-programs");
        command.args([program, "--seconds", "300"]);
        command.stdout(Stdio::null()).spawn().unwrap()
    };
    (0..4).map(start).collect()
}

#[test]
fn rank_gives_fast_cores_to_who_computes_and_not_to_who_waits_for_memory() {
    fs::write(PATH, MODEL).unwrap();
    // These gain 7 %, those 179 %; the first come is on the fast cores at first.
    let waiting = four("chase");
    thread::sleep(s(1));
    let computing = four("fp");
    let scheduler = Scheduler::start(&["--policy", "rank", "--model", PATH]);
    let mut statistics = Statistics::from_now();
    thread::sleep(s(4));
    statistics.take();
    thread::sleep(s(4));
    let metrics = statistics.take();
    scheduler.stop();
    let on_p = |children: &[Child]| -> Vec<f64> {
        let share = |child: &Child| metrics.processes[&child.id()].big_pct;
        children.iter().map(share).collect()
    };
    let shares = [on_p(&computing), on_p(&waiting)];
    println!("on P: {shares:.1?} percent; {:?}", metrics.counts);
    for mut child in waiting.into_iter().chain(computing) {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // In all: something else may have had a fast core for a moment, and sent one of them away.
    assert!(shares[0].iter().sum::<f64>() > 360.0);
    assert!(shares[1].iter().sum::<f64>() < 40.0);
    assert!(metrics.counts.swapped < 8, "they trade places");
}

#[test]
fn a_model_that_is_of_no_use_here_is_refused_before_anything_is_attached() {
    for (text, expected) in [
        (MODEL.replace("QEMU TCG CPU", "Some CPU"), "another machine"),
        (MODEL[..MODEL.len() / 2].to_string(), "cut short"),
        (MODEL.replace("\"schema\":1", "\"schema\":9"), "schema is 9"),
        (
            MODEL.replacen("\"base\":", "\"base\":NaN,\"was\":", 1),
            "damaged",
        ),
    ] {
        fs::write(PATH, text).unwrap();
        let output = Command::new(binary())
            .args(["--policy", "rank", "--model", PATH])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(PATH) && said.contains(expected), "{said}");
        assert_eq!(state(), "disabled");
    }
}
