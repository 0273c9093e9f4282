// SPDX-License-Identifier: GPL-2.0-only
//! Spin notifications, in the virtual hybrid machine (`make test`): what waiting threads say is
//! heard, and believed about themselves alone.

use std::hint::black_box;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicU32;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::*;
use scx_hetero::spin::{SOCKET, SpinRequest, begin};

/// Which part of its run time a thread's samples that are so make up.
fn share(samples: &[Sample], tid: u64, so: impl Fn(&Sample) -> bool) -> f64 {
    let of = || samples.iter().filter(|sample| sample.tid == tid);
    let sum: f64 = of().map(|sample| sample.run_ns).sum();
    assert!(sum > 0.3e9, "thread {tid} was counted for {sum} ns only");
    of().filter(|s| so(s)).map(|s| s.run_ns).sum::<f64>() / sum
}

fn spun(samples: &[Sample], tid: u64) -> f64 {
    share(samples, tid, |sample| sample.spun)
}

fn counting(more: &[&str]) -> Scheduler {
    let scheduler = Scheduler::start(&[&["--samples", SAMPLES][..], more].concat());
    wait_until(Duration::from_secs(5), "listening", || {
        Path::new(SOCKET).exists()
    });
    scheduler
}

fn integer(seconds: &str) -> Child {
    Command::new("hetero-programs")
        .args(["integer", "--seconds", seconds])
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn send(tid: u32, address: u64) {
    let socket = UnixDatagram::unbound().unwrap();
    let request = SpinRequest { tid, address };
    socket.send_to(&request.encode(), SOCKET).unwrap();
}

fn burn(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        (0..1000).for_each(|i| _ = black_box(i));
    }
}

/// Runs `work` in a thread of its own and returns its id.
fn in_thread(work: impl FnOnce(u32) + Send + 'static) -> u64 {
    let run = move || {
        // SAFETY: a plain system call.
        let tid = unsafe { libc::gettid() } as u32;
        work(tid);
        tid.into()
    };
    thread::spawn(run).join().unwrap()
}

/// Runs a program whose first thread has four times the work of each other, and sees that the others' waits are told.
fn waits_are_told(program: &str, units: &str) {
    let scheduler = counting(&["--policy", "camps"]);
    let mut others: Vec<Child> = (0..4).map(|_| integer("6")).collect();
    let program = Command::new(program)
        .arg(units)
        .env("LD_PRELOAD", "/lib/libscx_hetero_spin.so")
        .env("OMP_NUM_THREADS", "4")
        .env("OMP_WAIT_POLICY", "active")
        .output()
        .unwrap();
    others.iter_mut().for_each(|other| _ = other.wait());
    scheduler.stop();
    let said = String::from_utf8(program.stdout).unwrap();
    println!("\n{said}");
    let threads = said.lines().next().unwrap().split(' ').skip(1);
    let threads: Vec<u64> = threads.map(|tid| tid.parse().unwrap()).collect();
    let samples = samples();
    let on_p = |tid| share(&samples, tid, |sample| sample.core_type == 0);
    for &tid in &threads {
        let (spun, on_p) = (spun(&samples, tid), on_p(tid));
        println!("spun {:.0}%, on P {:.0}%", 100.0 * spun, 100.0 * on_p);
    }
    let (works, wait) = (threads[0], &threads[1..]);
    assert!(spun(&samples, works) < 0.2);
    assert!(wait.iter().all(|&tid| spun(&samples, tid) > 0.9));
    let on_p_waiting = wait.iter().map(|&tid| on_p(tid)).sum::<f64>() / 3.0;
    assert!(on_p(works) > 2.0 * on_p_waiting);
    // Half of the time it would be without a word of theirs.
    assert!(on_p_waiting < 0.35);
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn threads_that_wait_in_openmp_leave_fast_cores_to_those_that_work() {
    waits_are_told("imbalance", "500");
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn so_do_those_that_wait_in_openmp_of_llvm() {
    waits_are_told("imbalance-libomp", "500");
}

#[test]
fn a_process_lies_about_itself_alone() {
    let scheduler = counting(&[]);
    let mut victim = integer("2");
    let victims_tid = victim.id();
    let liar = in_thread(move |tid| {
        static LIE: AtomicU32 = AtomicU32::new(1);
        send(victims_tid, LIE.as_ptr() as u64);
        send(victims_tid, 0x40_0000); // where its program begins
        send(tid, LIE.as_ptr() as u64);
        burn(Duration::from_secs(1));
    });
    victim.wait().unwrap();
    scheduler.stop();
    let samples = samples();
    assert_eq!(spun(&samples, victims_tid.into()), 0.0);
    assert!(spun(&samples, liar) > 0.9, "{}", spun(&samples, liar));
}

#[test]
fn an_address_that_cannot_be_read_means_not_spinning() {
    static WORD: AtomicU32 = AtomicU32::new(1);
    let scheduler = counting(&[]);
    let addresses = [0x10, 0xffff_8880_0000_1000, u64::MAX, 0x0123_4567_89ab_cdef];
    let honest = in_thread(|tid| {
        send(tid, WORD.as_ptr() as u64);
        burn(Duration::from_millis(1000));
    });
    let wrong = addresses.map(|address| {
        in_thread(move |tid| {
            send(tid, WORD.as_ptr() as u64);
            send(tid, address);
            burn(Duration::from_millis(500));
        })
    });
    scheduler.stop();
    let samples = samples();
    assert!(spun(&samples, honest) > 0.9, "{}", spun(&samples, honest));
    for (tid, address) in wrong.into_iter().zip(addresses) {
        assert_eq!(spun(&samples, tid), 0.0, "{address:#x}");
    }
}

#[test]
fn a_word_does_not_outlive_its_memory() {
    let scheduler = counting(&[]);
    let mut command = Command::new("hetero-programs");
    command.args(["integer", "--seconds", "1"]);
    // After the exec there is a program at this address, which begins with "\x7fELF".
    // SAFETY: system calls alone, between fork and exec; nothing is allocated.
    unsafe {
        command.pre_exec(|| {
            let request = SpinRequest {
                tid: libc::gettid() as u32,
                address: 0x40_0000,
            };
            UnixDatagram::unbound()?.send_to(&request.encode(), SOCKET)?;
            // Until it has been taken.
            thread::sleep(Duration::from_millis(300));
            Ok(())
        })
    };
    let mut program = command.stdout(Stdio::null()).spawn().unwrap();
    let tid = program.id().into();
    program.wait().unwrap();
    scheduler.stop();
    assert_eq!(spun(&samples(), tid), 0.0);
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn words_are_registered_again_with_another_scheduler() {
    let first = counting(&[]);
    let waits = thread::spawn(|| {
        // SAFETY: a plain system call.
        let tid = unsafe { libc::gettid() } as u64;
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(8) {
            let waiting = begin();
            burn(Duration::from_millis(100));
            drop(waiting);
        }
        tid
    });
    thread::sleep(Duration::from_millis(1500));
    first.stop();
    let before = samples();
    let second = counting(&[]);
    thread::sleep(Duration::from_secs(4));
    second.stop();
    let tid = waits.join().unwrap();
    let after = samples();
    println!(
        "\nspun {:.2}, then {:.2}",
        spun(&before, tid),
        spun(&after, tid)
    );
    assert!(spun(&before, tid) > 0.9);
    assert!(spun(&after, tid) > 0.6);
}
