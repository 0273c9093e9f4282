// SPDX-License-Identifier: GPL-2.0-only
//! What others do to tasks while they are scheduled: other scheduling classes, affinity, cpusets,
//! exec, ptrace, migration disabled. In the virtual machine (`make test`).

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::processes::*;
use crate::support::*;
use libbpf_rs::libbpf_sys;

/// Linux's struct sched_attr, first version.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

const SCHED_DEADLINE: u32 = 6;
const SCHED_EXT: i32 = 7;

fn deadline(tid: i32, runtime: Duration, period: Duration) {
    let attr = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        policy: SCHED_DEADLINE,
        runtime: runtime.as_nanos() as u64,
        deadline: period.as_nanos() as u64,
        period: period.as_nanos() as u64,
        ..Default::default()
    };
    // SAFETY: reads the local above.
    let status = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &attr, 0) };
    assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn real_time_and_deadline_tasks_hold_nobody_up() {
    let scheduler = Scheduler::start(&["--core-types", HYBRID]);
    let hogs = Hog::start_many(2 * CPUS);
    let others = Hog::start_many(2);
    thread::sleep(s(1));
    hogs.iter().chain(&others).for_each(|hog| _ = hog.take());
    deadline(others[1].tid(), ms(30), ms(100));
    // Arrives in the midst of another's slice.
    realtime(others[0].tid());
    others[0].pin(&[1]);
    thread::sleep(s(4));
    let waits: Vec<Duration> = hogs.iter().map(Hog::longest_wait).collect();
    let ran: Vec<u64> = hogs.iter().map(|hog| hog.take().total()).collect();
    let theirs: Vec<u64> = others.iter().map(|hog| hog.take().total()).collect();
    println!("longest waits {waits:.0?}, ran {ran:?}, they {theirs:?}");
    // It had between 3.49 and 3.70 s: the kernel keeps some for the other classes.
    assert!(theirs[0] > 3_200_000_000 && theirs[1] > 1_000_000_000);
    assert!(waits.iter().all(|&wait| wait < s(1)));
    // Half of what is left, for each.
    let left = 4_000_000_000 * CPUS as u64 - theirs.iter().sum::<u64>();
    assert!(ran.iter().all(|&ran| ran > left / hogs.len() as u64 / 2));
    drop((others, hogs));
    scheduler.stop();
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn affinity_changed_in_sleep_holds_on_waking() {
    let scheduler = Scheduler::start(SWAPPING);
    let hogs = Hog::start_many(CPUS);
    let (mut here, there) = UnixStream::pair().unwrap();
    let tid = AtomicU32::new(0);
    thread::scope(|scope| {
        let asleep = scope.spawn(|| {
            // SAFETY: plain system calls.
            tid.store(unsafe { libc::gettid() } as u32, Ordering::Relaxed);
            let mut there = there;
            let mut byte = [0];
            while there.read(&mut byte).unwrap() == 1 {
                let cpu = unsafe { libc::sched_getcpu() } as u8;
                there.write_all(&[cpu]).unwrap();
            }
        });
        wait_until(s(5), "begun", || tid.load(Ordering::Relaxed) != 0);
        for round in 0..200 {
            let cpu = round % CPUS;
            pin(tid.load(Ordering::Relaxed) as i32, &[cpu]);
            let mut byte = [0];
            here.write_all(&byte).unwrap();
            here.read_exact(&mut byte).unwrap();
            assert_eq!(usize::from(byte[0]), cpu);
        }
        here.shutdown(std::net::Shutdown::Both).unwrap();
        asleep.join().unwrap();
    });
    drop(hogs);
    scheduler.stop();
}

/// CPU time and last CPU of a process, from /proc: ticks of 10 ms.
fn stat(pid: u32) -> (u64, usize) {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let words: Vec<&str> = text.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks = |at: usize| words[at].parse::<u64>().unwrap();
    (ticks(11) + ticks(12), words[36].parse().unwrap())
}

#[test]
fn cpusets_that_change_under_load_hold() {
    let scheduler = Scheduler::start(SWAPPING);
    let group = Cgroup::new("faults", "cpuset");
    let burners = burners(2 * CPUS);
    for burner in &burners {
        group.set("cgroup.procs", &burner.id().to_string());
    }
    for round in 0..30 {
        let cpus = ["0-1", "2", "1-3", "0,3", "3"][round % 5];
        group.set("cpuset.cpus", cpus);
        thread::sleep(ms(50));
    }
    // The last one was CPU 3 alone.
    let before: Vec<_> = burners.iter().map(|burner| stat(burner.id())).collect();
    thread::sleep(s(1));
    for (burner, before) in burners.iter().zip(before) {
        let now = stat(burner.id());
        assert!(now.0 > before.0 && now.1 == 3, "{before:?} {now:?}");
    }
    drop(burners);
    scheduler.stop();
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn exec_and_ptrace_go_well_with_swaps() {
    let scheduler = Scheduler::start(SWAPPING);
    let hogs = Hog::start_many(CPUS);
    let burner = burner();
    let pid = burner.id() as i32;
    let mut status = 0;
    let ptrace = |request, data: usize| {
        // SAFETY: our own child; no address is passed.
        let done = unsafe { libc::ptrace(request, pid, 0usize, data) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    };
    ptrace(libc::PTRACE_SEIZE, 0);
    for _ in 0..50 {
        thread::sleep(ms(15));
        ptrace(libc::PTRACE_INTERRUPT, 0);
        // SAFETY: writes to the local above.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        assert!(libc::WIFSTOPPED(status), "{status:x}");
        ptrace(libc::PTRACE_CONT, 0);
    }
    ptrace(libc::PTRACE_INTERRUPT, 0);
    // SAFETY: writes to the local above.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    // Stopped is stopped, and goes on after.
    let stopped = stat(burner.id()).0;
    thread::sleep(ms(500));
    assert!(stat(burner.id()).0 <= stopped + 1);
    ptrace(libc::PTRACE_DETACH, 0);
    let before = stat(burner.id()).0;
    thread::sleep(s(1));
    assert!(stat(burner.id()).0 > before + 10);
    // Programs that replace themselves, from a thread that is not the first, too.
    for _ in 0..50 {
        assert!(
            Command::new("sh")
                .args(["-c", "exec true"])
                .status()
                .unwrap()
                .success()
        );
    }
    drop(burner);
    drop(hogs);
    scheduler.stop();
}

#[test]
fn in_partial_mode_only_those_who_ask_are_scheduled() {
    let scheduler = Scheduler::start(&["--partial", "--core-types", HYBRID]);
    let mut statistics = Statistics::from_now();
    let (one, other) = (burner(), burner());
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: reads the local above.
    assert_eq!(
        unsafe { libc::sched_setscheduler(one.id() as i32, SCHED_EXT, &none) },
        0
    );
    thread::sleep(s(1));
    let told = statistics.take();
    let before = [stat(one.id()).0, stat(other.id()).0];
    thread::sleep(s(1));
    let after = [stat(one.id()).0, stat(other.id()).0];
    assert!(told.processes.contains_key(&one.id()), "{told:?}");
    assert!(!told.processes.contains_key(&other.id()), "{told:?}");
    assert!(after[0] > before[0] && after[1] > before[1]);
    drop((one, other));
    scheduler.stop();
}

/// Runs the program that does nothing, so and so often, in the kernel; which keeps the thread
/// from migrating meanwhile.
fn run_in_kernel(times: i32) {
    const MOVE: u8 = 0xb7;
    const EXIT: u8 = 0x95;
    let program = [MOVE, EXIT].map(|code| libbpf_sys::bpf_insn {
        code,
        ..Default::default()
    });
    let packet = [0u8; 64];
    // SAFETY: all that is pointed to lives until the calls return; lengths are theirs.
    unsafe {
        let fd = libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_SOCKET_FILTER,
            c"nothing".as_ptr(),
            c"GPL".as_ptr(),
            program.as_ptr(),
            program.len() as u64,
            std::ptr::null_mut(),
        );
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as u64,
            data_in: packet.as_ptr().cast(),
            data_size_in: packet.len() as u32,
            repeat: times,
            ..Default::default()
        };
        let status = libbpf_sys::bpf_prog_test_run_opts(fd, &mut options);
        assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
        libc::close(fd);
    }
}

/// Without this the kernel does not preempt what is in it.
fn preempt_fully() {
    let _ = Command::new("mount")
        .args("-t debugfs none /sys/kernel/debug".split(' '))
        .status();
    fs::write("/sys/kernel/debug/sched/preempt", "full").unwrap();
}

/// The kernel runs the program inside an RCU read-side section, and gets out of it only where the
/// program ends and not where it is preempted.
#[test]
#[ignore = "native, and here with make test-kernels"]
fn who_is_preempted_inside_an_rcu_section_soon_gets_out_of_it() {
    preempt_fully();
    let scheduler = Scheduler::start(&[]);
    let hog = Hog::start();
    hog.pin(&[3]);
    hog.renice(-20);
    let times = AtomicU64::new(10_000);
    thread::scope(|scope| {
        scope.spawn(|| {
            // As many times as take 150 ms of CPU time, while it has a CPU for itself.
            let cpu_time = || clock(libc::CLOCK_THREAD_CPUTIME_ID);
            loop {
                let (begun, now) = (cpu_time(), times.load(Ordering::Relaxed));
                run_in_kernel(now as i32);
                if cpu_time() - begun > 150_000_000 {
                    break;
                }
                times.store(2 * now, Ordering::Relaxed);
            }
            pin(0, &[3]);
            renice(0, 19);
            let begun = Instant::now();
            run_in_kernel(times.load(Ordering::Relaxed) as i32);
            println!("{times:?} times: {:?}", begun.elapsed());
            // By its weight alone it has 5 ms in 2.5 s.
            assert!(begun.elapsed() < s(10));
        });
    });
    drop(hog);
    scheduler.stop();
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn who_must_not_migrate_for_a_moment_stays_where_it_is() {
    preempt_fully();
    let scheduler = Scheduler::start(&[]);
    let begin = Instant::now();
    let rounds = AtomicU64::new(0);
    beside_realtime(ms(2), ms(1), || {
        thread::scope(|scope| {
            for _ in 1..CPUS {
                scope.spawn(|| {
                    while begin.elapsed() < s(4) {
                        run_in_kernel(20_000);
                        rounds.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
    });
    println!("{rounds:?} rounds");
    assert!(rounds.load(Ordering::Relaxed) > 100);
    scheduler.stop();
}
