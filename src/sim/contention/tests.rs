// SPDX-License-Identifier: GPL-2.0-only
//! Contention as the virtual machines have it.

use super::*;
use crate::sim::library::Library;
use proptest::prelude::*;

const STREAM: usize = 0;
const RESIDENT: usize = 1;
const INTEGER: usize = 2;
const CHASE: usize = 3;

fn contention(machine: &str) -> Contention {
    let library = Library::builtin().unwrap();
    let machine = library.machine(machine).unwrap();
    let load = |name| PhaseLoad::new(&machine, &library.program(name).unwrap().phases[0]);
    let loads = ["stream", "resident", "integer", "chase"].map(load);
    Contention::new(&machine, loads.to_vec())
}

/// How much longer the first takes than alone.
fn slowdown(contention: &mut Contention, mut runners: Vec<RunningThread>) -> f64 {
    let first = runners[0];
    runners.sort_unstable();
    let place = runners.iter().position(|&runner| runner == first).unwrap();
    let rate = contention.rates(&runners)[place];
    rate.ns_per_instruction / contention.loads[first.load].alone_ns(first.core_type)
}

/// On the boards each core type has a cache, by name: that of big cores is the second on the
/// Juno board, where a53 comes before a57, and the first on the other one.
fn on(board: &str, core_type: usize, load: usize) -> RunningThread {
    let llc = if board == "juno-r1" {
        1 - core_type
    } else {
        core_type
    };
    RunningThread {
        llc,
        core_type,
        load,
        beside: None,
        confined: false,
    }
}

#[test]
fn slowdowns_by_a_stream_are_those_of_the_virtual_machines() {
    // docs/testbed-calibration.md, Contention: by one stream on a big core, and by four on small ones; and how
    // far off the model is at most.
    for (board, load, by_big, by_small, off) in [
        ("juno-r1", STREAM, 1.76, 1.07, 0.1),
        ("juno-r1", RESIDENT, 3.03, 0.99, 0.15),
        ("juno-r1", CHASE, 1.52, 1.07, 0.1),
        ("juno-r1", INTEGER, 1.0, 1.0, 0.01),
        ("odroid-xu4", STREAM, 2.01, 1.04, 0.1),
        ("odroid-xu4", RESIDENT, 6.95, 1.0, 0.25),
        ("odroid-xu4", CHASE, 2.57, 1.07, 0.25),
        ("odroid-xu4", INTEGER, 1.0, 1.0, 0.01),
    ] {
        let mut contention = contention(board);
        let beside = |core_type, count| {
            let streams = std::iter::repeat_n(on(board, core_type, STREAM), count);
            std::iter::once(on(board, 0, load)).chain(streams).collect()
        };
        let big = slowdown(&mut contention, beside(0, 1));
        let small = slowdown(&mut contention, beside(1, 4));
        assert!(
            (big / by_big - 1.0).abs() < off,
            "{board} {load}: {big} for {by_big}"
        );
        assert!(
            (small / by_small - 1.0).abs() < 0.15,
            "{board} {load}: {small} for {by_small}"
        );
    }
}

#[test]
fn who_leaves_memory_alone_neither_disturbs_nor_is_disturbed() {
    let contention = contention("juno-r1");
    assert!(!contention.loads[INTEGER].matters());
    assert!(contention.loads[STREAM].matters());
    assert_eq!(
        contention.loads[STREAM].refill_ns(0, 1e6),
        0.0,
        "nothing to bring along"
    );
    assert!(contention.loads[RESIDENT].refill_ns(0, 1e7) > 1e4);
}

proptest! {
    /// Company never helps, one more never helps any, and a port moves no more than it can.
    #[test]
    fn contention_grows_with_company(
        counts in proptest::collection::vec(0usize..3, 3),
        one_more in 0usize..3,
    ) {
        const LOADS: [usize; 3] = [STREAM, RESIDENT, CHASE];
        let mut contention = contention("odroid-xu4");
        let mut runners: Vec<RunningThread> = Vec::new();
        for (&load, &count) in LOADS.iter().zip(&counts) {
            runners.extend(std::iter::repeat_n(on("odroid-xu4", 0, load), count));
        }
        runners.sort_unstable();
        let first = contention.rates(&runners).to_vec();
        let mut traffic = 0.0;
        for (runner, rate) in runners.iter().zip(&first) {
            let load = &contention.loads[runner.load];
            prop_assert!(rate.ns_per_instruction >= load.alone_ns(0) * 0.999);
            traffic += rate.misses * load.line_bytes / rate.ns_per_instruction;
        }
        // 2 % above what it settles at, for it is found by steps.
        prop_assert!(traffic <= contention.llcs[0].1.max(contention.llcs[1].1) * 0.97, "{traffic}");
        let mut more = runners.clone();
        more.push(on("odroid-xu4", 0, LOADS[one_more]));
        more.sort_unstable();
        let second = contention.rates(&more).to_vec();
        for (runner, rate) in runners.iter().zip(&first) {
            let place = more.iter().position(|other| other == runner).unwrap();
            prop_assert!(second[place].ns_per_instruction >= rate.ns_per_instruction * 0.99);
        }
    }
}
