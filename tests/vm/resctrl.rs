// SPDX-License-Identifier: GPL-2.0-only
//! Linux' resctrl on the virtual hybrid machine `alder-lake-resctrl`: it shows what the model's L3
//! holds and moves for each group of tasks, and its masks bind.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::support::{pin, truth};

const LINE: f64 = 64.0;
/// Of the L3, of 12 ways.
const WAY_BYTES: f64 = 256.0 * 1024.0;

/// A control group of resctrl, which is mounted if need be.
struct Group(PathBuf);

impl Group {
    fn new(name: &str, ways: &str) -> Self {
        let root = PathBuf::from("/sys/fs/resctrl");
        if !root.join("schemata").exists() {
            let args = ["-t", "resctrl", "resctrl", "/sys/fs/resctrl"];
            let status = Command::new("mount").args(args).status().unwrap();
            assert!(status.success(), "{args:?}");
        }
        let group = Self(root.join(name));
        fs::create_dir(&group.0).unwrap();
        fs::write(group.0.join("schemata"), format!("L3:0={ways}\n")).unwrap();
        group
    }

    /// A program of `hetero-programs` that belongs to the group from its first instruction.
    fn start(&self, args: &str) -> Child {
        let tasks = self.0.join("tasks");
        let script = format!(
            "echo $$ >{} && exec hetero-programs {args} --json",
            tasks.display()
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stdout(Stdio::piped());
        command.spawn().unwrap()
    }

    fn bytes(&self, event: &str) -> f64 {
        let file = self.0.join("mon_data/mon_L3_00").join(event);
        let text = fs::read_to_string(file).unwrap();
        text.trim().parse().unwrap()
    }
}

/// Units per second, when it has ended.
fn rate(program: Child) -> f64 {
    let output = program.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    value["rate"].as_f64().unwrap()
}

/// One test, for pages of programs that have ended bring lines along, which stay their groups':
/// occupancy is to be looked at first.
#[test]
fn groups_show_what_their_programs_take_and_masks_bind() {
    pin(0, &[7]);
    occupancy_and_bytes();
    masks();
}

fn occupancy_and_bytes() {
    let resident = Group::new("resident", "fff");
    rate(resident.start("resident --working-set 1024 --pin 0 --seconds 0.3"));
    let occupied = resident.bytes("llc_occupancy");
    let share = occupied / (1024.0 * 1024.0);
    // What it touches as it starts is a little more.
    assert!((0.75..1.1).contains(&share), "{share} of its working set");

    let stream = Group::new("stream", "fff");
    let before = truth()[1]["llc-misses"];
    rate(stream.start("stream --pin 1 --units 100"));
    let moved = (truth()[1]["llc-misses"] - before) * LINE;
    for event in ["mbm_total_bytes", "mbm_local_bytes"] {
        let bytes = stream.bytes(event);
        assert!(
            (bytes / moved - 1.0).abs() < 0.01,
            "{event} {bytes}, really {moved}"
        );
    }
    assert!(
        stream.bytes("llc_occupancy") > 4.0 * WAY_BYTES && moved > 100e6,
        "{moved}"
    );
    // What it has brought in once, it finds there.
    let bytes = resident.bytes("mbm_total_bytes");
    assert!(bytes < 1.02 * occupied, "{bytes} for {occupied}");
}

/// A mask confines a polluter, and its neighbour gains.
fn masks() {
    let both = |name: &str, ways: [&str; 2]| {
        let groups = [0, 1].map(|i| Group::new(&format!("{name}{i}"), ways[i]));
        let programs = [0, 1].map(|i| {
            let args = "--working-set 1536 --warmup 0.2 --seconds 0.3";
            groups[i].start(&format!("resident {args} --pin {i}"))
        });
        let rates = programs.map(rate);
        (rates, groups[1].bytes("llc_occupancy"))
    };
    let (free, took) = both("free", ["fff", "fff"]);
    let (masked, takes) = both("masked", ["ffe", "001"]);
    println!("\nfree {free:?}, {took} bytes; masked {masked:?}, {takes} bytes");
    assert!(takes <= WAY_BYTES && took > 2.0 * WAY_BYTES);
    assert!(masked[0] > 1.05 * free[0], "the neighbour");
    assert!(masked[1] < 0.9 * free[1], "the polluter");
}
