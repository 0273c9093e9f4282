// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero pmc` in the virtual hybrid machine (`make test`), without the scheduler.

use std::fs;
use std::process::{Command, Output};

use crate::support::{binary, compute, pin, truth};
use serde_json::Value;

const OUT: &str = "/tmp/pmc.json";

/// Runs `pmc` with these arguments and returns the lines it wrote.
fn pmc(args: &str, command: &[&str]) -> (Vec<Value>, Output) {
    let mut tool = Command::new(binary());
    tool.arg("pmc").args(args.split_whitespace());
    tool.args(["--format", "json", "-o", OUT, "--"])
        .args(command);
    let output = tool.output().unwrap();
    let lines = fs::read_to_string(OUT).unwrap();
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    (lines.collect(), output)
}

fn of<'a>(lines: &'a [Value], kind: &str, core_type: &str) -> Vec<&'a Value> {
    let wanted = |line: &&Value| line["kind"] == kind && line["core_type"] == core_type;
    lines.iter().filter(wanted).collect()
}

fn count(line: &Value, event: &str) -> f64 {
    line["counts"][event].as_f64().unwrap()
}

fn program(args: &str) -> Vec<&str> {
    std::iter::once("hetero-programs")
        .chain(args.split(' '))
        .collect()
}

/// Instructions of `-u` on CPU `cpu` for so many units of a program.
fn work(units: u32, cpu: u32, core_type: &str) -> f64 {
    let args = format!("integer --units {units}");
    let cpu = cpu.to_string();
    let command = [&["taskset", "-c", &cpu][..], &program(&args)].concat();
    let (lines, _) = pmc("-u", &command);
    count(of(&lines, "total", core_type)[0], "instructions")
}

/// User mode's instructions on P and E cores, as the machine itself counted them.
fn instructions() -> [f64; 2] {
    let mut sums = [0.0; 2];
    for (cpu, counted) in truth().iter().enumerate() {
        sums[cpu / 4] += counted["instructions"];
    }
    sums
}

#[test]
fn counts_are_those_of_the_machine_on_each_core_type() {
    // A run so short that beginning to count takes part of it may not be believed.
    const SHORT: u32 = 400;
    const LONG: u32 = 1900;
    for (core_type, index, cpu, elsewhere) in [("P", 0, 0, 4), ("E", 1, 4, 0)] {
        // What the tool itself takes is not of that type, and what others take there
        // is about the same both times.
        pin(0, &[elsewhere]);
        let mut differences = Vec::new();
        for units in [SHORT, LONG] {
            let before = instructions()[index];
            let counted = work(units, cpu, core_type);
            differences.push(instructions()[index] - before - counted);
        }
        let error = (differences[1] - differences[0]).abs();
        let counted = work(LONG, cpu, core_type) - work(SHORT, cpu, core_type);
        println!("{core_type}: off by {:.4} %", 100.0 * error / counted);
        assert!(
            error < 0.001 * counted,
            "{core_type}: off by {error} of {counted}"
        );
    }
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn the_same_program_counts_the_same_each_time() {
    let counted = [work(400, 0, "P"), work(400, 0, "P"), work(400, 4, "E")];
    let [first, ..] = counted;
    for again in counted {
        // taskset starts on any core.
        assert!((again - first).abs() < 0.002 * first, "{counted:?}");
    }
}

#[test]
fn threads_come_apart_and_add_up() {
    let (lines, _) = pmc("--per-thread", &program("barrier --threads 4 --units 100"));
    let total = count(of(&lines, "total", "P")[0], "instructions");
    let threads = of(&lines, "thread", "P");
    let sum: f64 = threads.iter().map(|line| count(line, "instructions")).sum();
    assert!(threads.len() >= 4, "{lines:?}");
    assert!(sum <= total && sum > 0.95 * total, "{sum} of {total}");
}

#[test]
fn threads_that_a_running_process_makes_later_are_counted() {
    const TIMES: u64 = 500_000;
    let mut tool = Command::new(binary())
        .args(["pmc", "-u", "-e", "instructions", "--format", "json"])
        .args(["-o", OUT, "-p", &std::process::id().to_string()])
        .spawn()
        .unwrap();
    // It is attached when it has opened its file, and counts soon after.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let threads = (0..8).map(|_| std::thread::spawn(|| compute(TIMES)));
    for thread in threads.collect::<Vec<_>>() {
        thread.join().unwrap();
    }
    // SAFETY: a plain system call on our own child.
    unsafe { libc::kill(tool.id() as i32, libc::SIGINT) };
    tool.wait().unwrap();
    let text = fs::read_to_string(OUT).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let types = ["P", "E"].iter().flat_map(|name| of(&lines, "total", name));
    let counted: f64 = types.map(|line| count(line, "instructions")).sum();
    let really = (8 * 64 * TIMES) as f64;
    let off = counted / really - 1.0;
    println!("off by {:.4} %", 100.0 * off);
    // Starting threads is some work, too.
    assert!((0.0..0.002).contains(&off), "{off}");
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn a_sample_comes_each_so_many_events_of_a_thread() {
    let (lines, _) = pmc(
        "--ebs instructions=5M",
        &program("sort --units 100 --pin 0"),
    );
    let samples = of(&lines, "sample", "P");
    let total = count(of(&lines, "total", "P")[0], "instructions");
    assert_eq!(samples.len(), (total / 5e6) as usize);
    for sample in samples {
        let instructions = count(sample, "instructions");
        assert!((instructions - 5e6).abs() < 5e4, "{sample}");
    }
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn sets_that_take_turns_give_what_one_set_gives() {
    let command = program("sort --units 300 --pin 0");
    let (alone, _) = pmc("-e branches,loads,stores", &command);
    let many = "-e branches,loads,stores,branch-misses,l1-misses,l2-misses,l2-accesses,\
                dtlb-misses,divider,fp-ops,stalled-mem";
    let (turns, _) = pmc(many, &command);
    let (alone, turns) = (of(&alone, "total", "P")[0], of(&turns, "total", "P")[0]);
    let mut scaled = 0;
    for event in ["branches", "loads", "stores"] {
        let (a, b) = (count(alone, event), count(turns, event));
        assert!((a - b).abs() < 0.03 * a, "{event}: {b} instead of {a}");
        let share = turns["counted_share"][event].as_f64();
        scaled += usize::from(share.is_some_and(|share| share < 0.9));
    }
    assert!(scaled > 0, "nothing took turns: {turns}");
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn intervals_add_up_to_the_totals() {
    let (lines, _) = pmc("-I 100", &program("sort --units 100 --pin 0"));
    let intervals = of(&lines, "interval", "P");
    let sum: f64 = intervals.iter().map(|line| count(line, "cycles")).sum();
    assert!(intervals.len() >= 7, "{lines:?}");
    assert_eq!(sum, count(of(&lines, "total", "P")[0], "cycles"));
}

#[test]
fn the_exit_status_is_the_commands() {
    for (script, status) in [("exit 7", 7), ("kill -9 $$", 137)] {
        assert_eq!(pmc("", &["sh", "-c", script]).1.status.code(), Some(status));
    }
}

#[test]
fn what_another_program_took_away_is_told_and_not_guessed() {
    let args = "stat -a -e branches,branch-misses,cache-misses,cache-references,ref-cycles,\
                instructions,cycles,r81d0,r82d0,r151,r3f24,rff24,re12,r10009b0 sleep 60";
    let mut perf = Command::new("perf").args(args.split(' ')).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    let (lines, _) = pmc("", &program("sort --units 300 --pin 0"));
    perf.kill().unwrap();
    perf.wait().unwrap();
    let (alone, _) = pmc("", &program("sort --units 300 --pin 0"));
    assert!(alone.iter().all(|line| line["kind"] != "lost"), "{alone:?}");
    let alone = of(&alone, "total", "P")[0];
    assert!(lines.iter().any(|line| line["kind"] == "lost"), "{lines:?}");
    // Whatever was believed is right: its rates are those of the undisturbed program.
    for line in of(&lines, "total", "P") {
        let rate = |line: &Value| count(line, "branches") / count(line, "instructions");
        assert!(
            (rate(line) - rate(alone)).abs() < 0.02 * rate(alone),
            "{line}"
        );
        let whole = count(alone, "instructions");
        let lost = line["run_ns"].as_f64().unwrap() < 0.9 * alone["run_ns"].as_f64().unwrap();
        assert!(
            lost || (count(line, "instructions") - whole).abs() < 0.02 * whole,
            "{line}"
        );
    }
}
