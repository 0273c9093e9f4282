// SPDX-License-Identifier: GPL-2.0-only
//! What the tests in the virtual machine stand on: the scheduler as a child
//! process, busy threads that know where they ran, and the kernel's log.
pub(crate) mod processes;
pub(crate) mod slice;

use std::collections::HashMap;
use std::fs;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use scx_hetero::stats::Metrics;
use scx_stats::prelude::StatsClient;
use serde::Deserialize;

/// CPUs of the virtual machine; its first two are declared P, the others E.
pub(crate) const CPUS: usize = 4;
pub(crate) const HYBRID: &str = "P=0-1,E=2-3";
pub(crate) const P_CPUS: [usize; 2] = [0, 1];

/// Hints for every thread, all the time.
pub(crate) const SWAPPING: &[&str] = &["--core-types", HYBRID, "--policy", "rr", "--swap-ms", "20"];

pub(crate) const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// How long attaching may take: the verifier runs under emulation.
const ATTACH: Duration = Duration::from_secs(120);

const STATE: &str = "/sys/kernel/sched_ext/state";

/// Complaints of the kernel that are known, each with its reason.
const HARMLESS: &[&str] = &[
    // 7.1 and later; what should replace it cannot be called on Debian's 7.1 and 7.2.
    "Writing directly to p->scx.slice/dsq_vtime is deprecated",
    // Likewise; there is no other way up to 6.18.
    "cpu_acquire/release() are deprecated",
    // What ends a suspend in tests has no other use in Linux; "installed" contains a bad word.
    "No installed handler for fixed event - PM_Timer",
];

pub(crate) fn binary() -> String {
    assert_eq!(
        std::env::var("SCX_HETERO_VM").as_deref(),
        Ok("1"),
        "these tests replace the machine's scheduler: `make test` runs them in a virtual machine"
    );
    std::env::var("SCX_HETERO_BIN").expect("SCX_HETERO_BIN names the scheduler")
}

/// What the virtual hybrid machine itself has counted in user mode: events by CPU.
pub(crate) fn truth() -> Vec<HashMap<String, f64>> {
    let output = Command::new("hybrid").arg("totals").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // cpu3 user instructions=123 loads=45 ...
    let user = text.lines().filter_map(|line| line.split_once(" user "));
    user.map(|(_, pairs)| {
        let pairs = pairs.split(' ').map(|pair| pair.split_once('=').unwrap());
        let event = |(name, value): (&str, &str)| (name.to_string(), value.parse().unwrap());
        pairs.map(event).collect()
    })
    .collect()
}

/// Programs of the virtual hybrid machine: `stream` leaves `chase` no moment without contention, but for NWC mode.
pub(crate) const PROGRAMS: [&str; 8] = [
    "stream", "chase", "integer", "fp", "branchy", "hash", "sort", "compress",
];

/// Where tests have the scheduler write its samples.
pub(crate) const SAMPLES: &str = "/tmp/samples";

/// A line of `--samples`, as far as tests look at it.
#[derive(Deserialize)]
pub(crate) struct Sample {
    pub at_ns: f64,
    pub tid: u64,
    pub tgid: u64,
    pub core_type: u64,
    pub set: u64,
    pub last: bool,
    pub spun: bool,
    pub run_ns: f64,
    pub discarded_ns: f64,
    pub counts: Vec<f64>,
    pub slowdown: f64,
    /// In 1/2^20; 0 is none.
    pub sf: i64,
    /// The same of EF.
    pub ef: i64,
}

impl Sample {
    pub(crate) fn ipc(&self) -> f64 {
        self.counts[0] / self.counts[1]
    }
}

/// All that were written to [`SAMPLES`].
pub(crate) fn samples() -> Vec<Sample> {
    let text = fs::read_to_string(SAMPLES).unwrap();
    let parse = |line: &str| serde_json::from_str(line).unwrap();
    text.lines().map(parse).collect()
}

/// The running scheduler's statistics: what happened since this was made.
pub(crate) struct Statistics(StatsClient);

impl Statistics {
    pub(crate) fn from_now() -> Self {
        // The scheduler opens its socket a moment after it has begun to schedule, and hangs up on
        // clients that it has no descriptor for.
        let mut answered = None;
        wait_until(Duration::from_secs(5), "answering", || {
            let client = StatsClient::new().connect(None).ok();
            answered = client.and_then(|mut client| {
                client.request::<Metrics>("stats", Vec::new()).ok()?;
                Some(Self(client))
            });
            answered.is_some()
        });
        answered.unwrap()
    }

    /// Since it was last asked.
    pub(crate) fn take(&mut self) -> Metrics {
        self.0.request("stats", Vec::new()).unwrap()
    }
}

/// Computes for so many times 64 instructions.
pub(crate) fn compute(times: u64) {
    // SAFETY: counts a register down.
    unsafe {
        std::arch::asm!(
            "2:", ".rept 62", "add {x}, 1", ".endr", "sub {n}, 1", "jnz 2b",
            x = inout(reg) 0u64 => _, n = inout(reg) times.max(1) => _,
        );
    }
}

/// Computes until this thread has run for so long.
pub(crate) fn work(time: Duration) {
    let end = clock(libc::CLOCK_THREAD_CPUTIME_ID) + time.as_nanos() as u64;
    while clock(libc::CLOCK_THREAD_CPUTIME_ID) < end {
        compute(20);
    }
}

pub(crate) fn state() -> String {
    fs::read_to_string(STATE).unwrap().trim().to_string()
}

/// How often a sched_ext scheduler has been attached since boot.
pub(crate) fn starts() -> u64 {
    let count = fs::read_to_string("/sys/kernel/sched_ext/enable_seq").unwrap();
    count.trim().parse().unwrap()
}

/// Waits until `done`, and fails if that takes longer than `limit`.
pub(crate) fn wait_until(limit: Duration, what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < limit, "not {what} after {limit:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// The scheduler, attached.
pub(crate) struct Scheduler {
    child: Child,
    log: KernelLog,
}

impl Scheduler {
    /// Starts it with `args` and waits until it schedules.
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_by(&mut Command::new(binary()), args)
    }

    /// By a command that has been told how to run it.
    pub(crate) fn start_by(command: &mut Command, args: &[&str]) -> Self {
        let log = KernelLog::from_now();
        // What tests/can-fail leaves out, to see the test fail.
        let without = std::env::var("SCX_HETERO_WITHOUT").ok();
        // What one test has taught would count in the next.
        let keeps = args.iter().any(|arg| arg.starts_with("--knowledge"));
        let mut child = command
            .args(args)
            .args((!keeps).then_some("--knowledge=off"))
            .args(without.map(|part| format!("--without={part}")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("the scheduler can be started");
        wait_until(ATTACH, "attached", || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("the scheduler ended before it attached: {status}");
            }
            state() == "enabled"
        });
        Self { child, log }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Seconds that its first thread, which decides, was runnable and did not run.
    pub(crate) fn waited(&self) -> f64 {
        self.schedstat(1)
    }

    /// Seconds that it ran.
    pub(crate) fn ran(&self) -> f64 {
        self.schedstat(0)
    }

    fn schedstat(&self, word: usize) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/schedstat", self.pid())).unwrap();
        stat.split(' ').nth(word).unwrap().parse::<f64>().unwrap() / 1e9
    }

    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: a plain system call on our own child.
        assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
    }

    /// Detaches it as Ctrl-C would; it must end cleanly and leave a clean log.
    pub(crate) fn stop(mut self) {
        assert_eq!(
            state(),
            "enabled",
            "thrown out early:\n{}",
            self.log.complaints().join("\n")
        );
        self.signal(libc::SIGINT);
        let status = self.wait();
        assert!(status.success(), "ended with {status}");
        assert_eq!(state(), "disabled");
        self.log.assert_clean();
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The kernel's log from a moment on.
pub(crate) struct KernelLog {
    seen: usize,
}

impl KernelLog {
    pub(crate) fn from_now() -> Self {
        Self {
            seen: dmesg().len(),
        }
    }

    pub(crate) fn complaints(&self) -> Vec<String> {
        const BAD: [&str; 8] = [
            "WARNING:",
            "BUG:",
            "Oops",
            "Call Trace",
            "stall",
            "lockup",
            "runtime error",
            "deprecated",
        ];
        dmesg()
            .into_iter()
            .skip(self.seen)
            .filter(|line| BAD.iter().any(|bad| line.contains(bad)))
            .filter(|line| !HARMLESS.iter().any(|known| line.contains(known)))
            .collect()
    }

    pub(crate) fn assert_clean(&self) {
        let complaints = self.complaints();
        assert!(
            complaints.is_empty(),
            "the kernel complains:\n{}",
            complaints.join("\n")
        );
    }
}

fn dmesg() -> Vec<String> {
    let output = Command::new("dmesg").output().unwrap();
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_string)
        .collect()
}

/// A thread that computes until it is stopped, and keeps book of where.
pub(crate) struct Hog {
    record: Arc<Record>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Record {
    tid: AtomicI32,
    stop: AtomicBool,
    cpu_ns: [AtomicU64; CPUS],
    longest_wait_ns: AtomicU64,
}

/// What a thread ran since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ran {
    pub cpu_ns: [u64; CPUS],
}

impl Ran {
    pub(crate) fn total(&self) -> u64 {
        self.cpu_ns.iter().sum()
    }

    pub(crate) fn on(&self, cpus: &[usize]) -> u64 {
        cpus.iter().map(|&cpu| self.cpu_ns[cpu]).sum()
    }
}

impl Hog {
    pub(crate) fn start() -> Self {
        let record = Arc::new(Record::default());
        let theirs = record.clone();
        let thread = thread::spawn(move || theirs.burn());
        while record.tid.load(Ordering::Relaxed) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        Self {
            record,
            thread: Some(thread),
        }
    }

    pub(crate) fn start_many(count: usize) -> Vec<Self> {
        (0..count).map(|_| Self::start()).collect()
    }

    pub(crate) fn tid(&self) -> i32 {
        self.record.tid.load(Ordering::Relaxed)
    }

    pub(crate) fn pin(&self, cpus: &[usize]) {
        pin(self.tid(), cpus);
    }

    pub(crate) fn renice(&self, nice: i32) {
        renice(self.tid(), nice);
    }

    /// CPU time by CPU since the last call, ns.
    pub(crate) fn take(&self) -> Ran {
        self.record.longest_wait_ns.store(0, Ordering::Relaxed);
        Ran {
            cpu_ns: std::array::from_fn(|cpu| self.record.cpu_ns[cpu].swap(0, Ordering::Relaxed)),
        }
    }

    /// The longest time since the last `take` in which it did not run.
    pub(crate) fn longest_wait(&self) -> Duration {
        Duration::from_nanos(self.record.longest_wait_ns.load(Ordering::Relaxed))
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        self.record.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Record {
    fn burn(&self) {
        // SAFETY: plain system calls.
        self.tid.store(unsafe { libc::gettid() }, Ordering::Relaxed);
        let mut ran = clock(libc::CLOCK_THREAD_CPUTIME_ID);
        let mut now = clock(libc::CLOCK_MONOTONIC);
        let mut x = 1u64;
        while !self.stop.load(Ordering::Relaxed) {
            for _ in 0..20_000 {
                x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
            }
            let cpu = unsafe { libc::sched_getcpu() } as usize;
            let (ran_before, before) = (ran, now);
            ran = clock(libc::CLOCK_THREAD_CPUTIME_ID);
            now = clock(libc::CLOCK_MONOTONIC);
            if let Some(sum) = self.cpu_ns.get(cpu) {
                sum.fetch_add(ran - ran_before, Ordering::Relaxed);
            }
            let waited = (now - before).saturating_sub(ran - ran_before);
            self.longest_wait_ns.fetch_max(waited, Ordering::Relaxed);
        }
    }
}

pub(crate) fn realtime(tid: i32) {
    let priority = libc::sched_param { sched_priority: 10 };
    // SAFETY: reads the local above.
    let status = unsafe { libc::sched_setscheduler(tid, libc::SCHED_FIFO, &priority) };
    assert_eq!(status, 0);
}

/// Runs `test` beside a real-time thread that, over and over, goes to the next CPU, computes for
/// `busy` and sleeps for `pause`.
pub(crate) fn beside_realtime<T>(busy: Duration, pause: Duration, test: impl FnOnce() -> T) -> T {
    let going = Arc::new(());
    let wanted = Arc::downgrade(&going);
    let wanders = thread::spawn(move || {
        // SAFETY: a plain system call.
        let own = unsafe { libc::gettid() };
        realtime(own);
        for cpu in (0..CPUS).cycle() {
            if wanted.strong_count() == 0 {
                break;
            }
            pin(own, &[cpu]);
            work(busy);
            thread::sleep(pause);
        }
    });
    let outcome = test();
    drop(going);
    wanders.join().unwrap();
    outcome
}

/// Sets the nice level of a thread; 0 is the caller.
pub(crate) fn renice(tid: i32, nice: i32) {
    // SAFETY: a plain system call.
    let status = unsafe { libc::setpriority(libc::PRIO_PROCESS, tid as u32, nice) };
    assert_eq!(status, 0);
}

/// Lets a thread run on these CPUs and no others; 0 is this one, and what it starts from now on.
pub(crate) fn pin(tid: i32, cpus: &[usize]) {
    // SAFETY: the set is a plain bit array that these calls fill and read.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &cpu in cpus {
            libc::CPU_SET(cpu, &mut set);
        }
        assert_eq!(libc::sched_setaffinity(tid, size_of_val(&set), &set), 0);
    }
}

pub(crate) fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes to the local above.
    unsafe { libc::clock_gettime(id, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Lets everything settle, then measures for a while.
pub(crate) fn measure(hogs: &[Hog], settle: Duration, run: Duration) -> Vec<Ran> {
    thread::sleep(settle);
    for hog in hogs {
        hog.take();
    }
    thread::sleep(run);
    hogs.iter().map(Hog::take).collect()
}

/// Largest deviation from the mean, relative to it.
pub(crate) fn spread(values: impl IntoIterator<Item = u64>) -> f64 {
    let values: Vec<f64> = values.into_iter().map(|v| v as f64).collect();
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values
        .iter()
        .map(|v| (v - mean).abs() / mean)
        .fold(0.0, f64::max)
}
