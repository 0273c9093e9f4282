// SPDX-License-Identifier: GPL-2.0-only
//! Linux' resctrl on the virtual hybrid machine `alder-lake-resctrl`: it shows what the model's L3
//! holds and moves for each group of tasks, and its masks bind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use scx_hetero::stats::{Client, SOCKET};

use crate::support::{Scheduler, Statistics, pin, s, truth, wait_until};

const LINE: f64 = 64.0;
/// Of the L3, of 12 ways.
const WAY_BYTES: f64 = 256.0 * 1024.0;

const RESCTRL: &str = "/sys/fs/resctrl";

/// A control group of resctrl, which is mounted if need be.
struct Group(PathBuf);

fn mount() -> PathBuf {
    let root = PathBuf::from(RESCTRL);
    if !root.join("schemata").exists() {
        let args = ["-t", "resctrl", "resctrl", RESCTRL];
        let status = Command::new("mount").args(args).status().unwrap();
        assert!(status.success(), "{args:?}");
    }
    root
}

impl Group {
    fn new(name: &str, ways: &str) -> Self {
        let root = mount();
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
/// occupancy is to be looked at first, and tests run by name.
#[test]
fn a_group_shows_what_its_programs_take_and_masks_bind() {
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

/// Ends with the test.
struct Running(Child);

impl Running {
    fn start(args: &str) -> Self {
        let mut command = Command::new("hetero-programs");
        let args = args.split(' ').chain(["--seconds", "10000"]);
        Self(command.args(args).stdout(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn stand_still(&self) {
        // SAFETY: a plain system call on our own child.
        assert_eq!(unsafe { libc::kill(self.pid() as i32, libc::SIGSTOP) }, 0);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Folders that the scheduler has made.
fn ours() -> usize {
    let entries = fs::read_dir(Path::new(RESCTRL).join("mon_groups")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("scx_hetero-")).count()
}

/// Where the scheduler puts what it confines, if there is such a group.
fn confined() -> Option<PathBuf> {
    let entries = fs::read_dir(RESCTRL).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    paths.find(|path| path.to_string_lossy().ends_with("-confined"))
}

/// After `a_group_shows_...`, whose lines are all evicted soon. A stream is confined to few ways, and what the cache serves is the faster
/// for it.
#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn the_scheduler_monitors_and_confines_processes_and_leaves_nothing_behind() {
    mount();
    let scheduler = Scheduler::start(&["--policy", "camps", "--partition"]);
    let resident = Running::start("resident --working-set 1536 --pin 0");
    let stream = Running::start("stream --pin 1");
    let mut statistics = Statistics::from_now();
    thread::sleep(s(2));
    let before = statistics.take().processes[&resident.pid()].ipc;
    let mut client = Client::connect(Path::new(SOCKET)).unwrap();
    let mut told = || client.story(stream.pid()).unwrap().lines().join("\n");
    wait_until(s(30), "confined", || {
        let told = told();
        told.contains("is confined to 1 of 12 ways") && !told.contains("tried")
    });
    println!("{}", told());
    let group = confined().unwrap();
    let of_group = |file: &str| fs::read_to_string(group.join(file)).unwrap();
    let schemata = of_group("schemata");
    let mask = schemata.trim().trim_start_matches("L3:0=");
    assert_eq!(mask.trim_start_matches('0'), "1", "{schemata}");
    let pid = stream.pid().to_string();
    assert!(of_group("tasks").lines().any(|task| task == pid));

    // It is monitored there.
    wait_until(s(10), "counted", || told().contains("counted"));
    statistics.take();
    let truth_before = truth()[1]["llc-misses"];
    thread::sleep(s(1));
    let really = (truth()[1]["llc-misses"] - truth_before) * LINE / 1e6;
    let metrics = statistics.take();
    let of = &metrics.processes[&stream.pid()];
    println!("{of:?}, really {really} MB/s");
    assert_eq!((of.llc_confined, of.llc_measured), (1, 1));
    assert!(of.llc_mib > 0.1 && of.llc_mib <= 0.3);
    let moved = of.memory_mb_s / really;
    assert!((moved - 1.0).abs() < 0.2, "{moved}");
    let after = metrics.processes[&resident.pid()].ipc;
    println!("IPC beside the stream {before}, beside it confined {after}");
    assert!(after > 1.2 * before);
    assert!(ours() >= 1);

    // Killed, it leaves its groups, and the next one removes them; meanwhile nothing has to be emulated.
    drop(resident);
    stream.stand_still();
    let killed = scheduler.pid().to_string();
    scheduler.signal(libc::SIGKILL);
    drop(scheduler);
    assert!(ours() >= 1 && confined().is_some());
    let scheduler = Scheduler::start(&["--policy", "none"]);
    wait_until(s(10), "removed by the next one", || {
        let left = fs::read_dir(Path::new(RESCTRL).join("mon_groups")).unwrap();
        let names = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        confined().is_none()
            && names
                .collect::<Vec<_>>()
                .iter()
                .all(|name| !name.contains(&killed))
    });
    scheduler.stop();
    assert_eq!(ours(), 0);
    let all = fs::read_to_string(Path::new(RESCTRL).join("tasks")).unwrap();
    assert!(all.lines().any(|task| task == pid));
}

/// Its agent decides nothing, so that no look at tasks is made for a policy.
#[test]
fn under_none_too_a_process_is_monitored_soon_after_it_has_begun() {
    mount();
    let scheduler = Scheduler::start(&["--policy", "none"]);
    thread::sleep(s(2));
    let busy = ours();
    let stream = Running::start("stream --pin 1");
    wait_until(s(5), "monitored", || ours() > busy);
    drop(stream);
    scheduler.stop();
    assert_eq!(ours(), 0);
}

/// `pmc` counts what a program has of them itself.
#[test]
fn pmc_tells_a_programs_part_of_caches() {
    mount();
    let stream = Running::start("stream --pin 1");
    let args = "pmc --virtual llc-occupancy,mbm-total --format json -o /tmp/pmc.json -- \
        hetero-programs resident --working-set 1024 --pin 0 --seconds 0.5";
    let mut command = Command::new(crate::support::binary());
    let status = command
        .args(args.split_whitespace())
        .stdout(Stdio::null())
        .status();
    assert!(status.unwrap().success());
    drop(stream);
    let lines = fs::read_to_string("/tmp/pmc.json").unwrap();
    println!("{lines}");
    let value = |counter: &str| {
        let lines = lines
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let mut of = lines.filter(|line| line["counter"] == counter);
        of.next().unwrap()["value"].as_f64().unwrap()
    };
    assert!(value("mbm-total") > 0.1e6);
    assert!(value("llc-occupancy") > 0.0);
    assert_eq!(ours(), 0);
}

/// The estimate beside the truth: programs are in groups of the test's, which the scheduler leaves alone.
#[test]
#[ignore = "measures for docs/caches.md"]
fn estimates_of_occupancy_beside_the_truth() {
    mount();
    for events in ["", "llc-references"] {
        let mut args = vec!["--policy", "camps"];
        if !events.is_empty() {
            args.extend(["--events", events]);
        }
        let scheduler = Scheduler::start(&args);
        let mut errors = Vec::new();
        for (mix, programs) in [
            [
                "stream",
                "resident --working-set 1024",
                "chase --working-set 4096",
                "sort",
            ],
            [
                "resident --working-set 1536",
                "resident --working-set 512",
                "stream",
                "hash",
            ],
            [
                "chase --working-set 2048",
                "matmul",
                "compress",
                "resident --working-set 3072",
            ],
        ]
        .iter()
        .enumerate()
        {
            let groups: Vec<(Group, Running, &str)> = programs
                .iter()
                .enumerate()
                .map(|(i, program)| {
                    let group = Path::new(RESCTRL).join(format!("mon_groups/{mix}{i}{events}"));
                    fs::create_dir(&group).unwrap();
                    let running = Running::start(program);
                    fs::write(group.join("tasks"), running.pid().to_string()).unwrap();
                    (Group(group), running, *program)
                })
                .collect();
            thread::sleep(s(3));
            let mut client = Client::connect(Path::new(SOCKET)).unwrap();
            for _ in 0..10 {
                thread::sleep(crate::support::ms(400));
                for (group, running, program) in &groups {
                    let really = group.bytes("llc_occupancy");
                    let story = client.story(running.pid()).unwrap();
                    let cache = story
                        .threads
                        .first()
                        .and_then(|thread| thread.cache.clone());
                    let Some(cache) = cache else { continue };
                    println!(
                        "occupancy {events:?} {mix} {program}: {:.0} KiB, really {:.0}; {:?}",
                        cache.process_bytes / 1024.0,
                        really / 1024.0,
                        cache.curve_told()
                    );
                    errors.push((cache.process_bytes - really).abs() / (12.0 * WAY_BYTES));
                }
            }
            let folders: Vec<PathBuf> = groups.iter().map(|(group, ..)| group.0.clone()).collect();
            drop(groups);
            for folder in folders {
                fs::remove_dir(folder).unwrap();
            }
        }
        errors.sort_by(f64::total_cmp);
        let at = |part: f64| 100.0 * errors[((errors.len() - 1) as f64 * part) as usize];
        println!(
            "with {events:?}: median error {:.1} % of the cache, 90 % within {:.1} %, {} readings",
            at(0.5),
            at(0.9),
            errors.len()
        );
        scheduler.stop();
    }
}
