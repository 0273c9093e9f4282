// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler on a real kernel, in the virtual machine (`make test`). One
//! test at a time: there is one scheduler to replace.

use std::fs::{self, File};
use std::io::IoSlice;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::*;
use libbpf_rs::query::MapInfoIter;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};

/// No policy but to find the best idle CPU. How that is woken depends on the kernel: by an interrupt
/// up to 7.0, by a timer where that cannot be had.
const PLACED: &[&str] = &["--core-types", HYBRID, "--policy", "none"];

/// The scheduler's exit status and what it printed.
fn outcome(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(binary()).args(args).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text)
}

#[test]
fn attaches_and_detaches_without_arguments() {
    for _ in 0..2 {
        let scheduler = Scheduler::start(&[]);
        let ops = std::fs::read_to_string("/sys/kernel/sched_ext/root/ops").unwrap();
        assert!(ops.starts_with("hetero"), "{ops}");
        thread::sleep(s(1));
        scheduler.stop();
    }
}

#[test]
fn refuses_a_second_scheduler_and_says_so() {
    let scheduler = Scheduler::start(&[]);
    let (status, text) = outcome(&[]);
    assert_eq!(status, Some(5), "{text}");
    assert!(
        text.contains("attached already") && text.contains("hetero"),
        "{text}"
    );
    scheduler.stop();
}

#[test]
fn refuses_wrong_core_types_and_says_why() {
    let (status, text) = outcome(&["--core-types", "P=0-1,E=2-9"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("CPU"), "{text}");
    assert_eq!(state(), "disabled");
}

/// These virtual CPUs have no counters at all.
#[test]
fn without_a_pmu_it_says_so_once_and_schedules() {
    let log = "/tmp/no-pmu.log";
    let mut scheduler = Command::new(binary())
        .args(["--policy", "camps", "--core-types", HYBRID])
        .stderr(std::fs::File::create(log).unwrap())
        .spawn()
        .unwrap();
    wait_until(s(120), "attached", || state() == "enabled");
    let hogs = Hog::start_many(CPUS);
    for ran in measure(&hogs, ms(200), ms(500)) {
        assert!(ran.total() > 0);
    }
    // SAFETY: a plain system call on our own child.
    assert_eq!(
        unsafe { libc::kill(scheduler.id() as i32, libc::SIGINT) },
        0
    );
    assert!(scheduler.wait().unwrap().success());
    let text = std::fs::read_to_string(log).unwrap();
    let without = text.matches("without hardware counters").count();
    assert_eq!(without, 1, "{text}");
}

#[test]
fn nobody_else_but_root_may_start_it() {
    use std::os::unix::process::CommandExt;
    let output = Command::new(binary()).uid(65534).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("root"));
}

#[test]
fn pinned_tasks_stay_pinned_while_others_are_swapped() {
    let scheduler =
        Scheduler::start(&["--core-types", HYBRID, "--policy", "rr", "--swap-ms", "20"]);
    let hogs = Hog::start_many(3 * CPUS);
    for (cpu, hog) in hogs.iter().take(CPUS).enumerate() {
        hog.pin(&[cpu]);
    }
    // Affinity to a part of a type, and across types.
    hogs[CPUS].pin(&[0, 2]);
    hogs[CPUS + 1].pin(&[1, 2, 3]);
    let ran = measure(&hogs, ms(500), s(1));
    for (cpu, ran) in ran.iter().take(CPUS).enumerate() {
        assert!(ran.total() > 0, "pinned to {cpu}, never ran");
        assert_eq!(ran.on(&[cpu]), ran.total(), "pinned to {cpu}: {ran:?}");
    }
    assert_eq!(ran[CPUS].on(&[0, 2]), ran[CPUS].total());
    assert_eq!(ran[CPUS + 1].on(&[1, 2, 3]), ran[CPUS + 1].total());
    scheduler.stop();
}

#[test]
fn affinity_can_change_while_a_task_runs_waits_and_sleeps() {
    let scheduler = Scheduler::start(PLACED);
    let hogs = Hog::start_many(2 * CPUS);
    for round in 0..60 {
        for (i, hog) in hogs.iter().enumerate() {
            hog.pin(&[(round + i) % CPUS]);
        }
        thread::sleep(Duration::from_millis(10));
    }
    for hog in &hogs {
        hog.pin(&[3]);
    }
    let ran = measure(&hogs, ms(300), s(1));
    for ran in &ran {
        assert_eq!(ran.on(&[3]), ran.total());
    }
    scheduler.stop();
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn nice_0_and_nice_19_across_all_cpus_get_shares_by_weight() {
    let scheduler = Scheduler::start(&[]);
    let hogs = Hog::start_many(4 * CPUS);
    let (plain, nice) = hogs.split_at(2 * CPUS);
    for hog in nice {
        hog.renice(19);
    }
    let ran = measure(&hogs, s(1), s(10));
    let total = |part: &[Ran]| part.iter().map(Ran::total).sum::<u64>() as f64;
    let (plain, nice) = ran.split_at(plain.len());
    let share = total(nice) / (total(nice) + total(plain));
    let fair = 15.0 / 1039.0;
    eprintln!("share of nice 19: {share:.4}, fair {fair:.4}");
    assert!((share / fair - 1.0).abs() < 0.10);
    scheduler.stop();
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn fourfold_oversubscription_starves_nobody_for_a_second() {
    let scheduler = Scheduler::start(PLACED);
    let hogs = Hog::start_many(4 * CPUS);
    thread::sleep(s(1));
    for hog in &hogs {
        hog.take();
    }
    thread::sleep(s(4));
    let worst = hogs.iter().map(Hog::longest_wait).max().unwrap();
    let shares = spread(hogs.iter().map(|hog| hog.take().total()));
    eprintln!("longest wait {worst:?}, spread {:.1} %", 100.0 * shares);
    assert!(worst < s(1));
    assert!(shares < 0.10);
    drop(hogs);
    scheduler.stop();
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn equal_threads_get_equal_time_on_each_type_under_constant_swapping() {
    const SWAPPING: &[&str] = &["--core-types", HYBRID, "--policy", "rr", "--swap-ms", "20"];
    // Whose turn it is in a queue that four of five leave before theirs comes, is chance in part.
    for (threads, seconds) in [(CPUS, 8), (2 * CPUS, 24)] {
        let scheduler = Scheduler::start(SWAPPING);
        let hogs = Hog::start_many(threads);
        let ran = measure(&hogs, s(1), s(seconds));
        let total = spread(ran.iter().map(Ran::total));
        let big = spread(ran.iter().map(|ran| ran.on(&P_CPUS)));
        let small = spread(ran.iter().map(|ran| ran.total() - ran.on(&P_CPUS)));
        eprintln!(
            "{threads} threads: off by {:.1} % in all, {:.1} % on P, {:.1} % on E",
            100.0 * total,
            100.0 * big,
            100.0 * small
        );
        assert!(total < 0.10 && big < 0.10 && small < 0.10, "{ran:?}");
        drop(hogs);
        scheduler.stop();
    }
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn a_lone_busy_thread_ends_up_on_a_fast_core() {
    let scheduler = Scheduler::start(PLACED);
    let hog = Hog::start();
    for slow in [2, 3] {
        hog.pin(&[slow]);
        thread::sleep(Duration::from_millis(200));
        hog.pin(&[0, 1, 2, 3]);
        thread::sleep(Duration::from_millis(100));
        hog.take();
        thread::sleep(s(1));
        let ran = hog.take();
        assert!(
            ran.on(&P_CPUS) as f64 > 0.98 * ran.total() as f64,
            "{ran:?}"
        );
    }
    scheduler.stop();
}

#[test]
fn fast_cores_are_filled_first_and_no_cpu_idles_while_a_task_waits() {
    let scheduler = Scheduler::start(PLACED);
    let two = Hog::start_many(2);
    let ran = measure(&two, ms(300), ms(700));
    let big: u64 = ran.iter().map(|ran| ran.on(&P_CPUS)).sum();
    let total: u64 = ran.iter().map(Ran::total).sum();
    assert!(big as f64 > 0.95 * total as f64, "{ran:?}");

    // The CPUs together run six threads as fully as four: none idles.
    let four_more = Hog::start_many(4);
    let all = || two.iter().chain(&four_more);
    all().for_each(|hog| {
        hog.take();
    });
    let begin = std::time::Instant::now();
    thread::sleep(s(1));
    let ran: u64 = all().map(|hog| hog.take().total()).sum();
    let used = ran as f64 / begin.elapsed().as_nanos() as f64 / CPUS as f64;
    eprintln!("CPUs used {:.1} %", 100.0 * used);
    assert!(used > 0.95);
    drop((two, four_more));
    scheduler.stop();
}

/// The kernel's number of the map with this name.
fn map_id(name: &str) -> u32 {
    let mut maps = MapInfoIter::default();
    let found = maps.find(|map| map.name.to_str() == Some(name));
    found.expect("the map of a running scheduler").id
}

#[test]
fn a_cpu_may_go_and_come_back() {
    let scheduler = Scheduler::start(PLACED);
    // See src/scheduler/storage.rs: some kernels stop where these are freed while CPUs go.
    let stored = ["task_ctxs", "cgroup_places"];
    let maps = stored.map(map_id);
    // Few, for it starts anew beside them.
    let mut hogs = Hog::start_many(2);
    hogs[0].pin(&[1]);
    for online in ["0", "1"] {
        std::fs::write("/sys/devices/system/cpu/cpu3/online", online).unwrap();
        wait_until(s(120), "attached again", || state() == "enabled");
        thread::sleep(s(1));
    }
    wait_until(s(60), "attached at the end", || state() == "enabled");
    assert_eq!(
        stored.map(map_id),
        maps,
        "what is stored by task outlives restarts"
    );
    hogs.extend(Hog::start_many(CPUS - hogs.len()));
    let ran = measure(&hogs, ms(500), s(1));
    assert_eq!(ran[0].on(&[1]), ran[0].total());
    assert!(ran.iter().all(|ran| ran.total() > 0), "{ran:?}");
    let used: u64 = ran.iter().map(Ran::total).sum();
    assert!(
        used as f64 > 0.9 * (CPUS as f64) * 1e9,
        "all CPUs are in use again: {used}"
    );
    drop(hogs);
    scheduler.stop();
}

/// The words of the line that `--monitor` prints last for process `pid`.
fn monitored(pid: u32) -> Vec<String> {
    let output = Command::new("timeout")
        .args(["-s", "INT", "2.5", &binary(), "--monitor", "1"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert!(
        text.contains("policy none") && text.contains("ON P"),
        "{text}"
    );
    text.lines()
        .map(|line| {
            line.split_whitespace()
                .map(str::to_string)
                .collect::<Vec<_>>()
        })
        .rfind(|words| words.first() == Some(&pid.to_string()))
        .unwrap_or_else(|| panic!("process {pid} is not listed:\n{text}"))
}

fn percent(word: &str) -> f64 {
    word.trim_end_matches('%').parse().unwrap()
}

#[test]
fn statistics_name_the_busy_process_and_its_runnable_threads() {
    let scheduler = Scheduler::start(PLACED);
    let hogs = Hog::start_many(3);
    thread::sleep(s(1));
    let words = monitored(std::process::id());
    eprintln!("{}", words.join(" "));
    let runnable: u32 = words[3].parse().unwrap();
    assert!((3..=5).contains(&runnable));
    assert!((270.0..=310.0).contains(&percent(&words[4])));
    drop(hogs);
    scheduler.stop();
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn with_smt_whole_cores_are_filled_before_second_threads() {
    let smt = std::fs::read_to_string("/sys/devices/system/cpu/smt/active").unwrap();
    if smt.trim() != "1" {
        eprintln!("skipped: these CPUs have no second threads; another boot has them");
        return;
    }
    // CPUs 0 and 1 are the threads of one core, 2 and 3 of the other.
    let scheduler = Scheduler::start(PLACED);
    let hogs = Hog::start_many(2);
    let ran = measure(&hogs, s(1), s(5));
    let on_p: Vec<f64> = ran
        .iter()
        .map(|ran| ran.on(&P_CPUS) as f64 / ran.total() as f64)
        .collect();
    eprintln!("shares on the P core: {on_p:?}");
    // One on each core: the two shares of the P core come to one.
    assert!((on_p[0] + on_p[1] - 1.0).abs() < 0.1);

    // A third goes to the second thread of the P core.
    let third = Hog::start();
    thread::sleep(s(1));
    for hog in hogs.iter().chain([&third]) {
        hog.take();
    }
    thread::sleep(s(4));
    let ran: Vec<Ran> = hogs.iter().chain([&third]).map(Hog::take).collect();
    let total: u64 = ran.iter().map(Ran::total).sum();
    let on_p: u64 = ran.iter().map(|ran| ran.on(&P_CPUS)).sum();
    let share = on_p as f64 / total as f64;
    eprintln!("three threads: {share:.3} of the time on the P core");
    assert!((share - 2.0 / 3.0).abs() < 0.05);
    drop((hogs, third));
    scheduler.stop();
}

#[test]
#[ignore = "two restarts more, in a machine of its own; make test-kernels runs it"]
fn with_smt_switched_off_and_on_again_threads_go_on() {
    let control = "/sys/devices/system/cpu/smt/control";
    if std::fs::read_to_string(control).unwrap().trim() != "on" {
        eprintln!("skipped: these CPUs have no second threads; another boot has them");
        return;
    }
    let scheduler = Scheduler::start(&["--policy", "none"]);
    let hogs = Hog::start_many(CPUS);
    for (state_of_smt, cpus) in [("off", 2), ("on", CPUS)] {
        std::fs::write(control, state_of_smt).unwrap();
        thread::sleep(s(2));
        wait_until(s(120), "attached again", || state() == "enabled");
        let ran = measure(&hogs, ms(500), s(1));
        let used = ran.iter().map(Ran::total).sum::<u64>() as f64 / 1e9;
        eprintln!("SMT {state_of_smt}: {used:.2} CPUs used");
        assert!(ran.iter().all(|ran| ran.total() > 0), "{ran:?}");
        assert!((0.8 * cpus as f64..1.1 * cpus as f64).contains(&used));
    }
    drop(hogs);
    scheduler.stop();
}

/// Has the machine wake up in 2.3 s, half the time in which ACPI's 24-bit timer overflows
/// (ACPI 6.5, section 4.8.3.1): its interrupt is one that ends a suspend, and all that QEMU has
/// of these without one from outside.
fn set_alarm() {
    let ports = fs::read_to_string("/proc/ioports").unwrap();
    let line = ports
        .lines()
        .find(|line| line.ends_with("ACPI PM1a_EVT_BLK"));
    let first = line.unwrap().trim_start().split('-').next().unwrap();
    let status = u64::from_str_radix(first, 16).unwrap();
    let enable = status + 2;
    let file = File::options().read(true).write(true).open("/dev/port");
    let port = file.unwrap();
    let overflowed = || {
        let mut byte = [0];
        port.read_exact_at(&mut byte, status).unwrap();
        byte[0] & 1 != 0
    };
    let write_one = |register| port.write_all_at(&[1], register).unwrap();
    // Which is how the bit is cleared. The whole time is from one overflow to the next.
    write_one(status);
    wait_until(s(10), "the timer overflows", overflowed);
    write_one(status);
    write_one(enable);
}

#[test]
fn suspended_to_idle_and_resumed_it_goes_on() {
    let suspended = || {
        let times = fs::read_to_string("/sys/power/suspend_stats/success").unwrap();
        times.trim().parse::<u32>().unwrap()
    };
    let scheduler = Scheduler::start(&["--core-types", HYBRID, "--policy", "rr"]);
    let hogs = Hog::start_many(2 * CPUS);
    for times in 1..=3 {
        set_alarm();
        let begun = Instant::now();
        fs::write("/sys/power/state", "freeze").unwrap();
        println!("suspended for {:.1} s", begun.elapsed().as_secs_f64());
        assert_eq!(suspended(), times);
        thread::sleep(ms(300));
    }
    let ran = measure(&hogs, s(0), s(2));
    assert!(ran.iter().all(|ran| ran.total() > 0), "{ran:?}");
    drop(hogs);
    scheduler.stop();
}

#[test]
fn a_rule_holds_whatever_the_policy_and_a_wrong_one_changes_nothing() {
    const RULES: &str = "/tmp/rules.toml";
    let prefer = |core_type: &str| {
        let text = format!("[[rule]]\ncomm = \"ruled\"\nprefer = \"{core_type}\"\n");
        fs::write(RULES, text).unwrap();
    };
    prefer("E");
    let scheduler = Scheduler::start(&[SWAPPING, &["--rules", RULES]].concat());
    let hogs = Hog::start_many(4);
    for hog in &hogs[..2] {
        fs::write(format!("/proc/self/task/{}/comm", hog.tid()), "ruled").unwrap();
    }
    let on_p = || -> Vec<f64> {
        let ran = measure(&hogs, s(1), s(1));
        let share = |ran: &Ran| ran.on(&[0, 1]) as f64 / ran.total() as f64;
        ran.iter().map(share).collect()
    };
    let apart = |on_p: &[f64], fast: std::ops::Range<usize>| {
        println!("on P: {on_p:.2?}");
        // A hint is advice: a CPU that idles for a moment is taken by what comes.
        let is_right = |(i, &share)| {
            if fast.contains(&i) {
                share > 0.7
            } else {
                share < 0.3
            }
        };
        on_p.iter().enumerate().all(is_right)
    };
    assert!(apart(&on_p(), 2..4));

    prefer("Q");
    let (status, said) = outcome(&["set", "rules"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(
        said.contains("line 3, column 10") && said.contains("it has P, E"),
        "{said}"
    );
    assert!(apart(&on_p(), 2..4));

    prefer("P");
    scheduler.signal(libc::SIGHUP);
    assert!(apart(&on_p(), 0..2));

    fs::write(RULES, "[[rule]]\ncomm = \"ruled\"\nweight = 300\n").unwrap();
    scheduler.signal(libc::SIGHUP);
    hogs.iter().for_each(|hog| hog.pin(&[3]));
    let ran = measure(&hogs, s(1), s(2));
    let ns: Vec<f64> = ran.iter().map(|ran| ran.total() as f64).collect();
    println!("on one CPU: {ns:.0?}");
    let ratio = (ns[0] + ns[1]) / (ns[2] + ns[3]);
    assert!((2.7..3.3).contains(&ratio), "{ratio:.2}");

    scheduler.stop();
}

/// What an agent that locks its memory has of it, kB.
fn locked(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
    let number = line.unwrap().split_whitespace().next();
    number.unwrap().parse().unwrap()
}

#[test]
fn clients_cost_the_agent_little_and_its_service_manager_hears_from_it_at_rest() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(s(10))).unwrap();
    let heard = || {
        let mut bytes = [0; 100];
        let read = manager
            .recv(&mut bytes)
            .expect("the manager hears something");
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    };
    let mut command = Command::new(binary());
    command
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "3000000")
        // Were it heeded, there would be no CPU.
        .env("SCX_SYSFS_PREFIX", folder.path());
    let scheduler = Scheduler::start_by(&mut command, PLACED);
    while heard() != "READY=1" {}

    drop(Statistics::from_now());
    let before = locked(scheduler.pid());
    let crowd: Vec<_> = (0..300)
        .map(|_| UnixStream::connect(scx_hetero::stats::SOCKET).unwrap())
        .collect();
    Statistics::from_now().take();
    let more = locked(scheduler.pid()).saturating_sub(before);
    assert!(more < 8 << 10, "{more} kB for 300 clients");
    drop(crowd);

    // A descriptor comes along with no datagram, and the thread that takes them goes on.
    let sender = UnixDatagram::unbound().unwrap();
    let to = UnixAddr::new(scx_hetero::spin::SOCKET).unwrap();
    let sent = sendmsg(
        sender.as_raw_fd(),
        &[IoSlice::new(&[1; 16])],
        &[ControlMessage::ScmRights(&[0])],
        MsgFlags::empty(),
        Some(&to),
    );
    assert_eq!(sent, Err(Errno::EPERM));
    thread::sleep(s(1));
    let threads = fs::read_dir(format!("/proc/{}/task", scheduler.pid())).unwrap();
    let names = threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("comm")));
    assert!(names.flatten().any(|name| name == "spin\n"));

    // Nothing runs now.
    for _ in 0..5 {
        assert_eq!(heard(), "WATCHDOG=1");
    }
    scheduler.stop();
}
