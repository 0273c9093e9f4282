// SPDX-License-Identifier: GPL-2.0-only
//! Hardware feedback (HFI) comes all the way: from the virtual machine's table by Linux' driver to
//! thermal netlink. On `alder-lake-hfi`, whose heat lasts from its 20th second to the 40th.

use std::fs::{self, File};
use std::process::Command;
use std::thread;

use crate::support::{Scheduler, binary, s, wait_until};
use crate::testbed::run;

/// What the scheduler says meanwhile.
const LOG: &str = "/tmp/feedback.log";

/// A CPU's capabilities, as Linux passed them on: 0 to 1023.
#[derive(Debug)]
struct Event {
    at_s: f64,
    cpu: usize,
    performance: i32,
    efficiency: i32,
}

fn listen(seconds: u32) -> Vec<Event> {
    let (text, _) = run("feedback", &[&seconds.to_string()]);
    let parse = |line: &str| {
        let mut fields = line.split([' ', '=']);
        let event = Event {
            at_s: fields.next()?.parse().ok()?,
            cpu: fields.next()?.strip_prefix("cpu")?.parse().ok()?,
            performance: fields.nth(1)?.parse().ok()?,
            efficiency: fields.nth(1)?.parse().ok()?,
        };
        Some(event)
    };
    let lines = text.lines().map(|line| parse(line).expect(line));
    lines.collect()
}

/// What the machine itself says: performance and efficiency of class 0, 0 to 255.
fn truth(cpu: usize) -> [i32; 2] {
    let (text, _) = run("hybrid", &["hfi"]);
    let line = text.lines().nth(cpu).unwrap();
    let first = |key| {
        let (_, values) = line.split_once(key).unwrap();
        values.split([',', ' ']).next().unwrap().parse().unwrap()
    };
    [first("performance="), first("efficiency=")]
}

#[test]
fn capabilities_fall_with_heat_and_come_back() {
    let mut command = Command::new(binary());
    command.stderr(File::create(LOG).unwrap());
    let scheduler = Scheduler::start_by(&mut command, &["--policy", "none"]);
    let listener = thread::spawn(|| listen(50));
    thread::sleep(s(30));
    let hot = [truth(0), truth(4)];
    let events = listener.join().unwrap();
    let says = |part| fs::read_to_string(LOG).unwrap().contains(part);
    assert!(says("lowers clocks for heat"));
    // That it lasts is seen first.
    wait_until(s(30), "said to be over", || says("no longer at its limit"));
    scheduler.stop();
    let cool = [truth(0), truth(4)];
    for (cpu, hot, cool) in [(0, hot[0], cool[0]), (4, hot[1], cool[1])] {
        let last = |from: f64, to: f64| {
            let within = |e: &&Event| e.cpu == cpu && (from..to).contains(&e.at_s);
            let event = events.iter().rev().find(within);
            event.unwrap_or_else(|| panic!("nothing of CPU {cpu} from {from} s: {events:?}"))
        };
        for (event, is) in [(last(20.0, 38.0), hot), (last(39.0, 60.0), cool)] {
            let slack = 4 * 4; // little changes are not told
            assert!(
                (event.performance - 4 * is[0]).abs() <= slack
                    && (event.efficiency - 4 * is[1]).abs() <= slack,
                "{event:?}, really {is:?} of 255"
            );
        }
        assert!(cool[0] > hot[0] && cool[1] < hot[1], "{hot:?} {cool:?}");
    }
    // Half of the clock, half of the performance; and P is the best when it is cool.
    assert!((hot[0][0] - 128).abs() <= 2, "{hot:?}");
    assert!(cool[0][0] >= 253 && cool[1][0] < 200, "{cool:?}");
}
