// SPDX-License-Identifier: GPL-2.0-only
//! Hardware counters inside the scheduler, in the virtual hybrid machine (`make test`),
//! where the truth is known: `hybrid totals` prints what the machine itself has counted.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::*;

fn of(child: &Child) -> Vec<Sample> {
    let mut all = samples();
    all.retain(|s| s.tid == u64::from(child.id()));
    all
}

fn sum(samples: &[Sample], value: impl Fn(&Sample) -> f64) -> f64 {
    samples.iter().map(value).sum()
}

fn program(args: &str) -> Child {
    Command::new("hetero-programs")
        .args(args.split(' '))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn counting(more: &[&str]) -> Scheduler {
    let base = ["--samples", SAMPLES, "--user-only"];
    let policy: &[&str] = match more.contains(&"--policy") {
        true => &[],
        false => &["--policy", "none"],
    };
    Scheduler::start(&[&base, policy, more].concat())
}

/// Instructions in user mode, on all CPUs, since boot.
fn instructions() -> f64 {
    truth().iter().map(|cpu| cpu["instructions"]).sum()
}

/// What `run` really is, in instructions.
fn really(run: impl Fn()) -> f64 {
    let asking = instructions();
    let before = instructions();
    run();
    instructions() - before - (before - asking)
}

/// What `units` of `integer` really are, in instructions.
fn work(units: u32) -> f64 {
    really(|| {
        program(&format!("integer --units {units} --pin 0"))
            .wait()
            .unwrap();
    })
}

/// How far the instructions that samples claim are off the truth.
fn off_by(samples: &[Sample], really: f64) -> f64 {
    let off = sum(samples, |s| s.counts[0]) / really - 1.0;
    println!("off by {:+.4} %", 100.0 * off);
    assert_eq!(sum(samples, |s| s.discarded_ns), 0.0);
    off.abs()
}

/// Exact to a thousandth.
const EXACT: f64 = 0.001;

/// Forks a process that does `run` and ends.
fn fork(run: impl FnOnce()) -> i32 {
    // SAFETY: the child makes system calls and computes, and allocates nothing.
    unsafe {
        match libc::fork() {
            0 => {
                run();
                libc::_exit(0)
            }
            pid => pid,
        }
    }
}

/// Waits for the end of all.
fn join(pids: &[i32]) {
    for &pid in pids {
        let mut status = -1;
        // SAFETY: writes to the local above.
        unsafe { libc::waitpid(pid, &mut status, 0) };
        assert_eq!(status, 0, "a child failed");
    }
}

/// Many processes at once, each of which computes.
fn storm(children: usize, times: u64) -> Vec<i32> {
    let pids: Vec<i32> = (0..children).map(|_| fork(|| compute(times))).collect();
    join(&pids);
    pids
}

/// Two tasks on each of these CPUs that hand a byte to and fro.
fn ping_pong(cpus: &[usize], rounds: usize) -> Vec<i32> {
    let mut pids = Vec::new();
    for &cpu in cpus {
        let mut pipes = [0; 4];
        // SAFETY: fills the local above, two by two.
        let made = unsafe { libc::pipe(&mut pipes[0]) | libc::pipe(&mut pipes[2]) };
        assert_eq!(made, 0);
        let [to, from, back_to, back_from] = pipes;
        for (read, write, first) in [(to, back_from, true), (back_to, from, false)] {
            pids.push(fork(|| {
                pin(0, &[cpu]);
                let mut byte = 0u8;
                let byte = (&raw mut byte).cast();
                for round in 0..rounds {
                    compute(10);
                    // SAFETY: a byte of ours.
                    unsafe {
                        if !(first && round == 0) {
                            libc::read(read, byte, 1);
                        }
                        libc::write(write, byte, 1);
                    }
                }
            }));
        }
        for end in pipes {
            // SAFETY: a plain system call; the children have their own.
            unsafe { libc::close(end) };
        }
    }
    join(&pids);
    pids
}

fn of_all(pids: &[i32]) -> Vec<Sample> {
    let mut all = samples();
    all.retain(|s| pids.contains(&(s.tid as i32)));
    all
}

#[test]
fn counts_are_exact_on_each_core_type() {
    let really = work(1000);
    for cpu in [0, 4] {
        let scheduler = counting(&[]);
        let mut hog = program(&format!("integer --units 1000 --pin {cpu}"));
        hog.wait().unwrap();
        scheduler.stop();
        print!("\ncpu{cpu}: ");
        assert!(off_by(&of(&hog), really) < EXACT);
    }
}

#[test]
fn counts_are_exact_over_migrations_and_switches() {
    let really = work(500);
    // Twelve on eight CPUs, swapped 50 times a second.
    let scheduler = counting(&["--policy", "rr", "--swap-ms", "20", "--slice-us", "500"]);
    let mut hogs: Vec<Child> = (0..12).map(|_| program("integer --units 500")).collect();
    for hog in &mut hogs {
        hog.wait().unwrap();
    }
    scheduler.stop();
    let both = of(&hogs[0]).iter().any(|s| s.core_type == 0)
        && of(&hogs[0]).iter().any(|s| s.core_type == 1);
    assert!(both, "it did not run on both core types");
    for hog in &hogs {
        assert!(off_by(&of(hog), really) < EXACT);
    }
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn counts_are_exact_in_a_storm_of_forks() {
    let (children, times) = (200, 100_000);
    let storming = |times| {
        really(|| {
            storm(children, times);
        })
    };
    let really = storming(times) - storming(0);
    let scheduler = counting(&[]);
    let pids = storm(children, times);
    scheduler.stop();
    let samples = of_all(&pids);
    let ended = samples.iter().filter(|s| s.last).count();
    println!("\n{ended} last samples of {children} children");
    assert!(off_by(&samples, really) < EXACT);
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn counts_are_exact_over_ten_thousand_switches_a_second() {
    let (cpus, rounds) = ([0, 1, 4, 5], 8000);
    let playing = |rounds| {
        really(|| {
            ping_pong(&cpus, rounds);
        })
    };
    let really = playing(rounds) - playing(0);
    let scheduler = counting(&[]);
    let begin = Instant::now();
    let pids = ping_pong(&cpus, rounds);
    let seconds = begin.elapsed().as_secs_f64();
    scheduler.stop();
    let rate = (2 * rounds * cpus.len()) as f64 / seconds;
    println!("\n{rate:.0} switches/s");
    assert!(off_by(&of_all(&pids), really) < EXACT);
    assert!(rate > 10_000.0, "{rate}");
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn no_sample_is_lost_with_a_thousand_threads() {
    const THREADS: usize = 1000;
    const TIMES: u64 = 1000;
    let scheduler = counting(&["--sample-ms", "5"]);
    let mut statistics = Statistics::from_now();
    let stop = AtomicBool::new(false);
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        // Ahead of those it starts, or it would wait for its turn a thousand times.
        renice(0, -20);
        for _ in 0..THREADS {
            scope.spawn(|| {
                renice(0, 0);
                while !stop.load(Ordering::Relaxed) {
                    compute(TIMES);
                    done.fetch_add(TIMES, Ordering::Relaxed);
                }
            });
        }
        thread::sleep(Duration::from_secs(2));
        stop.store(true, Ordering::Relaxed);
        renice(0, 0);
    });
    let told = statistics.take().counts;
    assert!(told.samples > 0, "no samples in the statistics");
    scheduler.stop();
    let mut samples = samples();
    // SAFETY: a plain system call.
    let own = unsafe { libc::gettid() } as u64;
    samples.retain(|s| s.tgid == u64::from(std::process::id()) && s.tid != own);
    let mut tids: Vec<u64> = samples.iter().map(|s| s.tid).collect();
    tids.sort_unstable();
    tids.dedup();
    let really = 64.0 * done.into_inner() as f64;
    let off = sum(&samples, |s| s.counts[0]) / really - 1.0;
    println!("\n{told:?}; off by {:.2} %", 100.0 * off);
    let missing = THREADS - tids.len();
    let discarded = sum(&samples, |s| s.discarded_ns) / 1e9;
    let counted = sum(&samples, |s| s.run_ns) / 1e9;
    println!("{missing} threads without a sample; {counted:.2} s counted, {discarded:.2} s not");
    assert_eq!(told.samples_lost, 0);
    assert_eq!(missing, 0);
    // Starting a thread, and looking whether to stop, are some work, too.
    assert!((-0.001..0.01).contains(&off), "{off}");
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn a_lone_spinner_gives_a_sample_each_50_ms() {
    let scheduler = counting(&[]);
    let seconds = std::env::var("SPINNER_SECONDS").map_or(10, |text| text.parse().unwrap());
    let mut hog = program(&format!("integer --seconds {seconds} --warmup 0 --pin 2"));
    hog.wait().unwrap();
    scheduler.stop();
    let mut samples = of(&hog);
    // What is left at its end is no whole sample.
    samples.retain(|s| !s.last);
    let times: Vec<f64> = samples.iter().map(|s| s.run_ns / 1e6).collect();
    let least = times.iter().copied().fold(f64::MAX, f64::min);
    let most = times.iter().copied().fold(0.0, f64::max);
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    println!(
        "\n{} samples of {least:.1} to {most:.1} ms, {mean:.2} on average",
        times.len()
    );
    assert!(times.len().abs_diff(20 * seconds) <= 2, "{}", times.len());
    // Ticks are 4 ms apart, so 48 or 52 ms; now and then one comes late.
    let late = times.iter().filter(|ms| (**ms - 50.0).abs() > 2.5).count();
    assert!(100 * late <= times.len(), "{late} beyond 5 %");
    assert!(least > 45.0 && most < 55.0, "{least} to {most}");
    assert!((mean - 50.0).abs() < 0.25, "{mean}");
}

#[test]
fn nothing_wrong_gets_through_while_others_count() {
    let scheduler = counting(&["--events", "llc-misses,branches,loads"]);
    let mut hog = program("integer --seconds 8 --pin 2");
    thread::sleep(Duration::from_secs(1));
    // Ten events of its own on every CPU, for three seconds.
    let events: Vec<String> = [
        "81d0", "82d0", "c4", "c5", "4f2e", "412e", "1d1", "8d1", "2d1", "10d1",
    ]
    .iter()
    .map(|code| format!("cpu_core/r{code}/"))
    .collect();
    let begin = uptime() * 1e9;
    let perf = Command::new("perf")
        .args(["stat", "-a", "-e", &events.join(","), "sleep", "3"])
        .output()
        .unwrap();
    assert!(perf.status.success());
    hog.wait().unwrap();
    scheduler.stop();
    let samples = of(&hog);
    let ipc = samples[1].ipc();
    let discarded = sum(&samples, |s| s.discarded_ns) / 1e9;
    println!("\n{discarded:.2} s not believed");
    for s in samples
        .iter()
        .filter(|s| s.at_ns > begin && s.run_ns > 1e6 && !s.last)
    {
        assert!((s.ipc() - ipc).abs() < 0.02 * ipc, "{} of {ipc}", s.ipc());
    }
    assert!(discarded > 0.5, "the others did not disturb: {discarded} s");
    assert!(discarded < 4.5, "counting did not come back: {discarded} s");
}

#[test]
fn events_that_do_not_fit_take_turns() {
    let events =
        "llc-references,llc-misses,loads,stores,branches,branch-misses,l1-misses,l2-misses";
    let scheduler = counting(&["--events", events]);
    let mut hog = program("integer --seconds 4 --pin 5");
    hog.wait().unwrap();
    scheduler.stop();
    let samples = of(&hog);
    let under = |set| samples.iter().filter(|s| s.set == set).count();
    assert!(under(0) > 10 && under(1) > 10, "{} {}", under(0), under(1));
    let whole: Vec<_> = samples.iter().filter(|s| s.run_ns > 20e6).collect();
    let ipc = whole[1].ipc();
    for s in whole {
        assert!((s.ipc() - ipc).abs() < 0.02 * ipc, "{} of {ipc}", s.ipc());
    }
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn realtime_tasks_do_not_disturb() {
    let scheduler = counting(&[]);
    let mut hog = program("integer --seconds 5 --pin 3");
    thread::sleep(Duration::from_millis(500));
    // Runs a few milliseconds, with quite another IPC, many times.
    for _ in 0..25 {
        let mut command = Command::new("hetero-programs");
        command
            .args("branchy --units 3 --pin 3".split(' '))
            .stdout(Stdio::null());
        // SAFETY: one system call on plain values, between fork and exec.
        unsafe {
            command.pre_exec(|| {
                let priority = libc::sched_param { sched_priority: 10 };
                match libc::sched_setscheduler(0, libc::SCHED_FIFO, &priority) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            })
        };
        assert!(command.status().unwrap().success());
        thread::sleep(Duration::from_millis(50));
    }
    hog.wait().unwrap();
    scheduler.stop();
    let samples = of(&hog);
    let ipc = samples[1].ipc();
    assert!(samples.len() > 60, "{}", samples.len());
    for s in samples.iter().filter(|s| s.run_ns > 5e6) {
        assert!((s.ipc() - ipc).abs() < 0.02 * ipc, "{} of {ipc}", s.ipc());
    }
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn nothing_wrong_gets_through_while_others_change_nice_and_affinity() {
    let scheduler = counting(&["--events", "llc-misses,branches,loads"]);
    let mut statistics = Statistics::from_now();
    let mut hogs = [
        program("integer --seconds 8 --pin 2"),
        program("stream --seconds 8 --pin 6"),
    ];
    thread::sleep(Duration::from_secs(1));
    // Ours is a CPU that neither runs on, and from there their counters cannot be read.
    pin(0, &[0]);
    for round in 0..60 {
        for (hog, cpu) in hogs.iter().zip([2, 6]) {
            let tid = hog.id() as i32;
            match round % 2 {
                0 => renice(tid, 1 + round / 2 % 2),
                _ => pin(tid, &[cpu, cpu ^ 1]),
            }
        }
        thread::sleep(Duration::from_millis(100));
    }
    let refused = statistics.take().counts.samples_refused;
    for hog in &mut hogs {
        hog.wait().unwrap();
    }
    scheduler.stop();
    for hog in &hogs {
        let mut samples = of(hog);
        samples.retain(|s| s.run_ns > 1e6 && !s.last);
        let clock = |s: &Sample| 1e3 * s.counts[1] / s.run_ns;
        let mut clocks: Vec<f64> = samples.iter().map(clock).collect();
        clocks.sort_by(f64::total_cmp);
        let (least, most) = (clocks[0], clocks[clocks.len() - 1]);
        let counted = sum(&samples, |s| s.run_ns) / 1e9;
        let discarded = sum(&samples, |s| s.discarded_ns) / 1e9;
        println!("{least:.0} to {most:.0} MHz, {counted:.1} s counted, {discarded:.1} s not");
        assert!(most < 1.05 * clocks[clocks.len() / 2], "{clocks:?}");
        assert!(counted > 4.0, "{counted} s");
    }
    assert_eq!(refused, 0);
}

#[test]
fn counters_come_back_after_hotplug() {
    let online = "/sys/devices/system/cpu/cpu6/online";
    let scheduler = counting(&[]);
    fs::write(online, "0").unwrap();
    wait_until(Duration::from_secs(30), "attached without it", || {
        state() == "enabled"
    });
    thread::sleep(Duration::from_secs(1));
    let starts = starts();
    fs::write(online, "1").unwrap();
    // What begins to run before the kernel has ended the scheduler is not counted until it is there.
    wait_until(Duration::from_secs(30), "attached with it", || {
        self::starts() > starts && state() == "enabled"
    });
    let back = uptime();
    let mut hog = program("integer --seconds 3 --pin 6");
    hog.wait().unwrap();
    scheduler.stop();
    let samples = of(&hog);
    let first = &samples[0];
    let after = (first.at_ns - first.run_ns) / 1e9 - back;
    println!("\ncounted {after:.2} s after the scheduler is there again");
    assert!(after < 1.0, "{after} s");
    assert!(samples.len() > 20, "{}", samples.len());
    assert_eq!(sum(&samples, |s| s.discarded_ns), 0.0);
}

/// Seconds since boot, as the samples' times are.
fn uptime() -> f64 {
    let text = fs::read_to_string("/proc/uptime").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn a_round_is_thrown_away_when_the_phase_changes() {
    let events =
        "llc-references,llc-misses,loads,stores,branches,branch-misses,l1-misses,l2-misses";
    for (name, changes) in [("integer", false), ("phased", true)] {
        let scheduler = counting(&["--events", events]);
        let mut statistics = Statistics::from_now();
        program(&format!("{name} --seconds 5 --pin 5"))
            .wait()
            .unwrap();
        let told = statistics.take().counts;
        assert!(told.samples > 0, "no samples in the statistics");
        scheduler.stop();
        println!("\n{name}: {told:?}");
        // All tasks are in it, and one that begins may change its ways, too.
        if changes {
            assert!(told.samples_jumped * 10 > told.samples, "{name}: {told:?}");
        } else {
            assert!(told.samples_jumped <= 1, "{name}: {told:?}");
        }
    }
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn tasks_that_do_little_cost_nothing() {
    const TIMES: u64 = 15_000;
    let scheduler = counting(&[]);
    // A fiftieth of a CPU, for long enough to be known.
    let lazy = fork(|| {
        for _ in 0..80 {
            compute(TIMES);
            // SAFETY: a plain system call.
            unsafe { libc::usleep(50_000) };
        }
    });
    join(&[lazy]);
    scheduler.stop();
    let counted = sum(&of_all(&[lazy]), |s| s.counts[0]) / (80 * 64 * TIMES) as f64;
    println!("\n{:.1} % of a lazy task was counted", 100.0 * counted);
    assert!(counted < 0.2, "{counted}");
}

/// What the verifier goes through is what attaching costs, here and whenever CPUs come or go; and
/// there is a limit, a million for one program, beyond which a kernel refuses.
#[test]
fn the_verifier_stays_within_its_budget() {
    const EACH: u32 = 13_000;
    const ALL: u32 = 68_500;
    let begin = Instant::now();
    let scheduler = Scheduler::start(&["--policy", "camps"]);
    let took = begin.elapsed();
    let ours: Vec<(String, u32)> = libbpf_rs::query::ProgInfoIter::default()
        .map(|program| {
            (
                program.name.to_string_lossy().into_owned(),
                program.verified_insns,
            )
        })
        .filter(|(name, _)| name.starts_with("hetero_") || name == "apply_actions")
        .collect();
    let all: u32 = ours.iter().map(|(_, insns)| insns).sum();
    println!(
        "\n{all} instructions in all, attached after {:.1} s",
        took.as_secs_f64()
    );
    for (name, insns) in &ours {
        println!("  {name:16} {insns:6}");
        assert!(*insns <= EACH, "{name}: {insns}");
    }
    assert!(ours.len() > 15 && all <= ALL, "{all}");
    scheduler.stop();
}

/// On kernels that refuse counters to all but CAP_SYS_ADMIN, too.
#[test]
fn what_its_service_may_do_is_enough_to_count() {
    const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
    let unit = include_str!("../../packaging/scx_hetero.service");
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let number = |name| match name {
        "CAP_SYS_PTRACE" => 19,
        "CAP_SYS_ADMIN" => 21,
        "CAP_PERFMON" => 38,
        "CAP_BPF" => 39,
        _ => panic!("{name}"),
    };
    let keeps: Vec<libc::c_ulong> = line.unwrap().split(' ').map(number).collect();
    let drop_others = move || {
        for other in (0..64).filter(|number| !keeps.contains(number)) {
            // SAFETY: plain system calls on our own process. The last ones do not exist.
            unsafe { libc::prctl(libc::PR_CAPBSET_DROP, other) };
        }
        // SAFETY: likewise.
        match unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    let before = fs::read_to_string(PARANOID).unwrap();
    fs::write(PARANOID, "3").unwrap();
    let mut command = Command::new(binary());
    // SAFETY: between fork and exec it makes system calls and nothing else.
    unsafe { command.pre_exec(drop_others) };
    let scheduler = Scheduler::start_by(&mut command, &["--policy", "camps"]);
    let mut statistics = Statistics::from_now();
    let mut children: Vec<Child> = (0..4).map(|_| program("integer --seconds 100")).collect();
    thread::sleep(Duration::from_secs(1));
    let told = statistics.take().counts;
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(told.samples > 0, "{told:?}");
    scheduler.stop();
    fs::write(PARANOID, before).unwrap();
}
