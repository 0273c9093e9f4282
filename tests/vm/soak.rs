// SPDX-License-Identifier: GPL-2.0-only
//! Strain, in the virtual machine (`make test`, and for longer `make test-kernels`): nobody is
//! thrown out by the watchdog, and the kernel has nothing to complain about.

use std::process::{Child, Command, Stdio};

use crate::support::*;

fn stress(args: &str) -> Child {
    let mut command = Command::new("stress-ng");
    command.args(args.split(' ')).args(["--temp-path", "/tmp"]);
    command.stdout(Stdio::null()).spawn().unwrap()
}

fn soak(all: &[&str]) {
    let scheduler = Scheduler::start(SWAPPING);
    let mut statistics = Statistics::from_now();
    let children: Vec<Child> = all.iter().map(|args| stress(args)).collect();
    for mut child in children {
        let status = child.wait().unwrap();
        // What it thinks of its stressors, some of which are killed as they count, is another
        // matter; but 1 is that it did not understand, and did nothing.
        assert!(status.code().is_some_and(|code| code != 1), "{status}");
    }
    println!("{:?}", statistics.take().counts);
    scheduler.stop();
}

/// The settings with which schedulers are tried in sched_ext's own continuous integration.
#[test]
fn stress_ng_throws_nobody_out() {
    soak(&["-t 3 --aggressive -M -c 4 -f 4"]);
}

/// Before Linux 7.0 nothing keeps a CPU's real-time tasks from starving sched_ext's that may use no
/// other, under any scheduler; and here all get such affinities. There real-time stressors are left out.
#[test]
#[ignore = "takes many minutes of the host's time; make test-kernels runs it"]
fn every_stressor_of_schedulers_for_45_seconds() {
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap();
    let mut without = String::from("cyclic,hrtimers");
    if !symbols.contains("ext_server") {
        without += ",mutex,schedpolicy,softlockup";
    }
    println!("without {without}");
    soak(&[
        "-t 45 --aggressive -M -c 4 -f 4",
        &format!("-t 45 --aggressive -M --class scheduler --all 1 -x {without}"),
    ]);
}

/// Without those that keep an emulated machine busy with timer interrupts (hrtimers, cyclic) or with
/// real-time threads (mutex, schedpolicy): there the kernel's own scheduler does not get anywhere,
/// either, or not before it finds RCU stalled (docs/desktop.md).
#[test]
#[ignore = "takes twenty minutes of the machine's time; make test-kernels runs it"]
fn a_mix_for_twenty_minutes() {
    soak(&[
        "-t 1200 -c 2 -f 2 --pipe 2 --switch 2 --futex 2 --yield 2 --clone 2 --affinity 2 \
            --sleep 1 --nice 1 --vfork 1 --sem 1 --wait 1 \
            --poll 1 --pthread 1 --msg 1 --eventfd 1",
    ]);
}
