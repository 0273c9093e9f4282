// SPDX-License-Identifier: GPL-2.0-only
//! What goes wrong around the scheduler, in the virtual machine (`make test`): the agent stops or
//! dies, something runs out, others disturb. Tasks must go on, and fairly.

use std::fs;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::panic::{self, AssertUnwindSafe};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::processes::*;
use crate::support::*;

fn on_p(ran: &[Ran]) -> Vec<u64> {
    ran.iter().map(|ran| ran.on(&P_CPUS)).collect()
}

/// A thread that sleeps for a millisecond again and again, and how often it woke up.
struct Sleeper {
    tid: AtomicU32,
    woke: AtomicU64,
}

/// Runs `test` beside `count` sleepers.
fn beside_sleepers(count: usize, pause: Duration, test: impl FnOnce(&[Sleeper])) {
    let new = || Sleeper {
        tid: AtomicU32::new(0),
        woke: AtomicU64::new(0),
    };
    let sleepers: Vec<Sleeper> = (0..count).map(|_| new()).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for sleeper in &sleepers {
            let stop = &stop;
            let sleep = move || {
                // SAFETY: a plain system call.
                let tid = unsafe { libc::gettid() } as u32;
                sleeper.tid.store(tid, Ordering::Relaxed);
                while !stop.load(Ordering::Relaxed) {
                    thread::sleep(pause);
                    sleeper.woke.fetch_add(1, Ordering::Relaxed);
                }
            };
            let builder = thread::Builder::new().stack_size(64 << 10);
            builder.spawn_scoped(scope, sleep).unwrap();
        }
        // The scope waits for them, whatever becomes of the test.
        let tested = panic::catch_unwind(AssertUnwindSafe(|| test(&sleepers)));
        stop.store(true, Ordering::Relaxed);
        if let Err(why) = tested {
            panic::resume_unwind(why);
        }
    });
}

fn wakeups(sleepers: &[Sleeper], during: Duration) -> Vec<u64> {
    for sleeper in sleepers {
        sleeper.woke.store(0, Ordering::Relaxed);
    }
    thread::sleep(during);
    let woke = |sleeper: &Sleeper| sleeper.woke.load(Ordering::Relaxed);
    sleepers.iter().map(woke).collect()
}

#[test]
fn a_killed_agent_takes_no_task_with_it() {
    let log = KernelLog::from_now();
    // Before the others, beside which it would take seconds.
    let mut scheduler = Scheduler::start(SWAPPING);
    let hogs = Hog::start_many(3 * CPUS);
    for (cpu, hog) in hogs.iter().take(CPUS).enumerate() {
        hog.pin(&[cpu]);
    }
    beside_sleepers(50, ms(5), |sleepers| {
        thread::sleep(s(1));
        scheduler.signal(libc::SIGKILL);
        wait_until(s(1), "handed back", || state() == "disabled");
        scheduler.wait();
        assert!(wakeups(sleepers, s(1)).iter().all(|&woke| woke > 0));
    });
    let ran = measure(&hogs, s(0), s(1));
    assert!(ran.iter().all(|ran| ran.total() > 0), "{ran:?}");
    log.assert_clean();
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn a_stopped_agent_leaves_equal_threads_equal_time_on_fast_cores() {
    for threads in [CPUS, 2 * CPUS + 1] {
        let scheduler = Scheduler::start(SWAPPING);
        let mut statistics = Statistics::from_now();
        let hogs = Hog::start_many(threads);
        thread::sleep(s(1));
        scheduler.signal(libc::SIGSTOP);
        let ran = measure(&hogs, ms(1500), s(6));
        scheduler.signal(libc::SIGCONT);
        let stopped = statistics.take().counts;
        let total = spread(ran.iter().map(Ran::total));
        let big = spread(on_p(&ran));
        println!(
            "{threads} threads: off by {:.1} % in all, {:.1} % on P; {} trades",
            100.0 * total,
            100.0 * big,
            stopped.shared
        );
        assert!(total < 0.10 && big < 0.15, "{ran:?}");
        assert!(stopped.stalls == 1 && stopped.shared > 0, "{stopped:?}");

        // Its word counts again: perhaps not at once, for what had the fast cores in the second
        // before its silence was noticed now lets the others have them for as long.
        statistics.take();
        wait_until(s(5), "swaps", || {
            let counts = statistics.take().counts;
            assert_eq!((counts.stalls, counts.shared), (0, 0), "{counts:?}");
            counts.actions_applied > 0
        });
        drop(hogs);
        scheduler.stop();
    }
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn more_tasks_than_the_table_holds_run_all_the_same() {
    let scheduler = Scheduler::start(&[SWAPPING, &["--slots", "8"]].concat());
    let mut statistics = Statistics::from_now();
    let hogs = Hog::start_many(6 * CPUS);
    let ran = measure(&hogs, s(1), s(5));
    let told = statistics.take();
    let off = spread(ran.iter().map(Ran::total));
    println!("off by {:.1} %, {told:?}", 100.0 * off);
    assert!(off < 0.15, "{ran:?}");
    assert!(told.tasks <= 8 && told.counts.slots_full > 0);
    drop(hogs);
    // What ended made room.
    let hog = Hog::start();
    statistics.take();
    thread::sleep(s(1));
    let pid = std::process::id();
    assert!(statistics.take().processes[&pid].cpu_pct > 10.0);
    drop(hog);
    scheduler.stop();
}

/// Memory that forks share.
fn shared<T>() -> &'static T {
    // SAFETY: fresh zeroed pages, larger than T; T is made of atomics here.
    unsafe {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let at = libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        &*at.cast()
    }
}

/// How long commands take, the shortest first, `LONGEST` where one is not done, beside five thousand
/// processes that fork each other and compute.
fn commands_beside_a_fork_bomb() -> Vec<Duration> {
    const PROCESSES: u32 = 5000;
    const LONGEST: Duration = s(20);
    let (begun, born): (&AtomicU32, &AtomicU32) = (shared(), shared());
    // SAFETY: the children make system calls and compute, and allocate nothing.
    let bomb = unsafe { libc::fork() };
    if bomb == 0 {
        // SAFETY: as above.
        unsafe { libc::setpgid(0, 0) };
        loop {
            if begun.load(Ordering::Relaxed) < PROCESSES
                && begun.fetch_add(1, Ordering::Relaxed) < PROCESSES
                // SAFETY: as above.
                && unsafe { libc::fork() } == 0
            {
                born.fetch_add(1, Ordering::Relaxed);
            }
            compute(1000);
        }
    }
    let begin = Instant::now();
    wait_until(s(120), "five thousand", || {
        begun.load(Ordering::Relaxed) >= PROCESSES
    });
    let there = born.load(Ordering::Relaxed);
    println!(
        "{there} processes of {PROCESSES} after {:.1?}",
        begin.elapsed()
    );
    let waits = (0..10).map(|_| {
        thread::sleep(ms(50));
        let begin = Instant::now();
        let (done, waits) = mpsc::channel();
        thread::spawn(move || {
            assert!(Command::new("true").status().unwrap().success());
            let _ = done.send(());
        });
        let ended = waits.recv_timeout(LONGEST);
        ended.map_or(LONGEST, |()| begin.elapsed())
    });
    let mut waits: Vec<_> = waits.collect();
    println!("a command takes {waits:.1?}");
    let begin = Instant::now();
    // SAFETY: a plain system call on our own children.
    unsafe { libc::kill(-bomb, libc::SIGKILL) };
    let mut status = 0;
    let mut gone = 0;
    // SAFETY: writes to the local above.
    while unsafe { libc::waitpid(-bomb, &mut status, 0) } > 0 {
        gone += 1;
    }
    println!("{gone} gone after {:.1?}", begin.elapsed());
    assert!(gone > there);
    waits.sort();
    waits
}

#[test]
#[ignore = "takes minutes; make test-kernels runs it"]
fn a_fork_bomb_of_five_thousand_leaves_the_machine_usable() {
    // SAFETY: a plain system call: children of children come back to us.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    println!("under the kernel's own scheduler:");
    let theirs = commands_beside_a_fork_bomb();
    let scheduler = Scheduler::start(&["--core-types", HYBRID]);
    let ours = commands_beside_a_fork_bomb();
    println!("shortest first, theirs {theirs:.1?}, ours {ours:.1?}");
    // A round in which all of them have a turn takes 6 s; and what waits for a lock of the kernel
    // behind those that fork may wait for longer, under either.
    assert!(ours[ours.len() / 2] < s(6));
    scheduler.stop();
}

#[test]
#[ignore = "takes minutes; make test-kernels runs it"]
fn ten_thousand_threads_that_sleep_and_wake_all_get_their_turns() {
    fs::write("/proc/sys/kernel/threads-max", "20000").unwrap();
    let scheduler = Scheduler::start(&["--core-types", HYBRID]);
    beside_sleepers(10_000, s(1), |sleepers| {
        wait_until(s(120), "all awake once", || {
            let woke = |sleeper: &Sleeper| sleeper.woke.load(Ordering::Relaxed) > 0;
            sleepers.iter().all(woke)
        });
        let begin = Instant::now();
        let woke = wakeups(sleepers, s(6));
        let least = woke.iter().min().unwrap();
        let sum: u64 = woke.iter().sum();
        println!(
            "{sum} wake-ups in {:.1?}, {least} at least",
            begin.elapsed()
        );
        assert!(*least >= 3);
    });
    scheduler.stop();
}

/// The first process id that the next fork gives.
fn next_pid(pid: u32) {
    fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).unwrap();
}

#[test]
fn a_process_id_used_again_is_another_process() {
    let scheduler = Scheduler::start(&["--core-types", HYBRID, "--policy", "rr"]);
    let mut statistics = Statistics::from_now();
    let first = burner();
    let pid = first.id();
    thread::sleep(s(1));
    assert_eq!(statistics.take().processes[&pid].name, "sh");
    drop(first);
    let mut again = None;
    for _ in 0..50 {
        next_pid(pid);
        let mut child = Command::new("yes").stdout(Stdio::null()).spawn().unwrap();
        if child.id() == pid {
            again = Some(child);
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let mut again = again.expect("the process id can be had again");
    // What the first one ran is forgotten a moment after its end.
    thread::sleep(ms(500));
    statistics.take();
    thread::sleep(s(1));
    let told = statistics.take();
    let process = &told.processes[&pid];
    println!("{process:?}");
    assert_eq!((process.name.as_str(), process.threads), ("yes", 1));
    assert!(process.cpu_pct > 50.0 && process.progress_pct <= process.cpu_pct + 1.0);
    again.kill().unwrap();
    again.wait().unwrap();
    scheduler.stop();
}

/// The scheduler with a limit on one of its resources; how it ended, and what it said.
fn limited(resource: libc::__rlimit_resource_t, most: u64) -> (std::process::ExitStatus, String) {
    let mut command = Command::new("timeout");
    command.args(["5", &binary(), "--core-types", HYBRID]);
    // SAFETY: a system call on plain values, between fork and exec.
    unsafe {
        command.pre_exec(move || {
            let limit = libc::rlimit {
                rlim_cur: most,
                rlim_max: most,
            };
            match libc::setrlimit(resource, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        })
    };
    let output = command.output().unwrap();
    (
        output.status,
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
fn too_few_file_descriptors_and_too_little_memory_are_said_so() {
    let limits = [
        (libc::RLIMIT_NOFILE, 12, "ulimit -n"),
        (libc::RLIMIT_AS, 20 << 20, "too little memory"),
    ];
    for (resource, most, told) in limits {
        let (status, text) = limited(resource, most);
        assert_eq!(state(), "disabled");
        assert_eq!(status.code(), Some(1), "{text}");
        assert!(text.contains(told) && !text.contains("panicked"), "{text}");
    }
}

#[test]
fn an_agent_that_runs_out_of_memory_leaves_everything_to_the_kernel() {
    // The kernel tells of this with a backtrace: not on the console, which is searched for such.
    Command::new("dmesg").args(["-n", "1"]).status().unwrap();
    let hogs = Hog::start_many(CPUS);
    let group = Cgroup::new("poor", "memory");
    let mut scheduler = Scheduler::start(SWAPPING);
    group.set("cgroup.procs", &scheduler.pid().to_string());
    // What it has is charged where it was: it needs some more to run into the limit.
    group.set("memory.max", "65536");
    let clients: Vec<UnixStream> = (0..200).filter_map(|_| client().ok()).collect();
    wait_until(s(20), "ended", || state() == "disabled");
    let status = scheduler.wait();
    println!("{status} with {} clients", clients.len());
    let ran = measure(&hogs, s(0), s(1));
    assert!(ran.iter().all(|ran| ran.total() > 0), "{ran:?}");
    thread::sleep(ms(200));
    Command::new("dmesg").args(["-n", "7"]).status().unwrap();
}

fn client() -> std::io::Result<UnixStream> {
    UnixStream::connect("/var/run/scx/root/stats")
}

#[test]
fn a_flood_of_statistics_clients_does_not_end_it() {
    let scheduler = Scheduler::start(SWAPPING);
    // Once it answers it has opened all that it needs.
    drop(Statistics::from_now());
    let open = fs::read_dir(format!("/proc/{}/fd", scheduler.pid()));
    let most = open.unwrap().count() as u64 + 16;
    let limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    };
    // SAFETY: reads the local above.
    let status = unsafe {
        libc::prlimit(
            scheduler.pid(),
            libc::RLIMIT_NOFILE,
            &limit,
            std::ptr::null_mut(),
        )
    };
    assert_eq!(status, 0);
    let hogs = Hog::start_many(2 * CPUS);
    let clients: Vec<UnixStream> = (0..300).filter_map(|_| client().ok()).collect();
    let ran = measure(&hogs, ms(500), s(2));
    let off = spread(ran.iter().map(Ran::total));
    println!(
        "{} clients, {most} descriptors, off by {:.1} %",
        clients.len(),
        100.0 * off
    );
    assert!(off < 0.10, "{ran:?}");
    drop(clients);
    thread::sleep(s(1));
    let mut statistics = Statistics::from_now();
    thread::sleep(ms(500));
    assert!(statistics.take().counts.actions_applied > 0);
    drop(hogs);
    scheduler.stop();
}
