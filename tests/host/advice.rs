// SPDX-License-Identifier: GPL-2.0-only
//! Programs that want advice: by the crate, by the OpenMP libraries, and as anybody may over the socket. What hostile ones do
//! costs the others nothing. Nothing is scheduled.

use std::env;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hetero_core::advice::{Advice, TypeRoom};
use hetero_core::testing::machine;
use hetero_heartbeats::advice::{Contention, Subscription};
use scx_hetero::advice::{AdviceServer, MAX_OF_PROCESS, SOCKET_VARIABLE, Subscribers};
use scx_hetero::topology::Topology;

/// So long a test waits for what must come.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !so() {
        assert!(begin.elapsed() < LIMIT, "in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

struct Bench {
    folder: tempfile::TempDir,
    server: AdviceServer,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = AdviceServer::start(&folder.path().join("new/advice.sock")).unwrap();
        Self { folder, server }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("new/advice.sock")
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.path()).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    fn until_there_are(&self, number: usize) {
        until("subscribers", || self.server.subscribers().len() == number);
    }

    /// A program of good manners is served.
    fn assert_serves(&self, threads: usize) {
        let mut subscription = Subscription::new(Some(&self.path())).unwrap();
        let mut told = None;
        until("advice", || {
            advise(self.server.subscribers(), threads);
            told = told.take().or(subscription.news());
            told.is_some()
        });
        assert_eq!(told.unwrap().threads, threads);
    }
}

/// A machine of two core types, as this one's CPUs are numbered: the even ones, and the odd ones at 0.4 of their speed.
fn even_and_odd() -> Topology {
    let cpus = 64;
    let mut topology = machine(&[cpus / 2, cpus / 2]);
    for cpu in &mut topology.cpus {
        cpu.core_type = cpu.id as usize % 2;
    }
    topology
}

/// Tells all subscribers to have so many threads, and that there is a free CPU of each type.
pub(crate) fn advise(subscribers: &Subscribers, threads: usize) {
    let room = |speed| TypeRoom {
        cpus: 32.0,
        taken: 31.0,
        speed,
    };
    subscribers.advise(|clients| {
        for client in clients {
            client.advice = Advice {
                rooms: vec![room(1.0), room(0.4)],
                threads,
                threads_equal: threads,
                fast_cores: 2.5,
                company: 1.0,
                interference: None,
                place: vec![3, 1],
            };
        }
    });
    subscribers.tell(&even_and_odd());
}

/// What the server says before it hangs up, after its greeting.
fn last_words(stream: &mut UnixStream) -> String {
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    let at = said.windows(6).position(|word| word == b"error:");
    let said = &said[at.unwrap_or(said.len())..];
    String::from_utf8_lossy(said).into_owned()
}

/// A frame of the protocol.
fn frame(kind: u32, number: u32, rate: u64, waited: u32) -> Vec<u8> {
    let mut frame = [kind, number].map(u32::to_ne_bytes).concat();
    frame.extend(rate.to_ne_bytes());
    frame.extend([waited, 0, 0, 0].map(u32::to_ne_bytes).concat());
    frame
}

#[test]
fn a_program_reads_what_is_advised_and_tells_what_it_measures() {
    let bench = Bench::new();
    let mut subscription = Subscription::new(Some(&bench.path())).unwrap();
    until("a subscription", || {
        assert!(subscription.news().is_none());
        bench.server.subscribers().len() == 1
    });
    advise(bench.server.subscribers(), 6);
    let mut told = None;
    until("advice", || {
        told = subscription.news();
        told.is_some()
    });
    let told = told.unwrap();
    assert_eq!((told.threads, told.fast_cores, told.company), (6, 2.5, 1.0));
    assert_eq!((told.types[1].speed, told.types[1].free), (0.4, 1.0));
    assert_eq!(told.place, [3, 1]);
    assert_eq!(told.type_of_cpu[..3], [Some(0), Some(1), Some(0)]);
    assert_eq!(told.contention.0, Contention::None);
    // The same again is no news.
    advise(bench.server.subscribers(), 6);
    assert!(subscription.news().is_none());

    subscription.tell_phase(3);
    subscription.tell_time(4, Some(700), Some(0.25));
    subscription.tell_member(std::process::id(), true);
    until("what is told", || {
        let mut heard = false;
        bench.server.subscribers().advise(|clients| {
            let told = &clients.next().unwrap().told;
            let of = told.measured().first();
            heard = of
                .is_some_and(|of| (of.threads, of.rate, of.waited) == (4, Some(700.0), Some(0.25)))
                && told.has(std::process::id())
                && !told.has(1);
        });
        heard
    });
    let own = std::process::id();
    let story = bench.server.subscribers().story(own).unwrap();
    assert_eq!((story.threads, story.place.len()), (6, 2));
    assert_eq!(
        (story.phase, story.members, story.measured[0].threads),
        (3, 1, 4)
    );
    assert_eq!(bench.server.subscribers().story(1), None);
    drop(subscription);
    bench.until_there_are(0);
    assert_eq!(bench.server.subscribers().story(own), None);
}

#[test]
fn a_scheduler_that_ends_is_seen_and_another_is_found() {
    let bench = Bench::new();
    let mut subscription = Subscription::new(Some(&bench.path())).unwrap();
    until("advice", || {
        advise(bench.server.subscribers(), 6);
        subscription.news().is_some()
    });
    let path = bench.path();
    let Bench { folder, server } = bench;
    drop(server);
    let server = AdviceServer::start(&path).unwrap();
    until("advice of the other", || {
        advise(server.subscribers(), 5);
        subscription.news().is_some_and(|told| told.threads == 5)
    });
    drop((folder, server));
}

#[test]
fn nonsense_has_a_reason_and_ends_its_own_connection_alone() {
    let bench = Bench::new();
    let mut quiet = bench.connect();
    bench.until_there_are(1);
    for (bytes, why) in [
        (frame(0, 0, 0, 0), "no frame is of kind 0"),
        (frame(1, 0, 5, 0), "one thread at least"),
        (frame(1, 1, 5, 5000), "more than all of the time"),
        (frame(3, 1, 0, 0), "has no thread 1"),
        (vec![0xff; 4096], "no frame is of kind"),
    ] {
        let mut stream = bench.connect();
        let _ = stream.write_all(&bytes);
        let said = last_words(&mut stream);
        assert!(said.contains(why), "{said:?}, not {why:?}");
    }
    bench.until_there_are(1);
    bench.assert_serves(7);
    // Half a frame, and the end.
    let mut half = bench.connect();
    half.write_all(&[1, 2, 3]).unwrap();
    drop(half);
    bench.until_there_are(1);
    assert!(quiet.write_all(&frame(2, 1, 0, 0)).is_ok());
}

#[test]
fn thousands_of_subscribers_that_do_not_read_harm_none() {
    let bench = Bench::new();
    let mut kept = Vec::new();
    let mut refused = 0;
    for _ in 0..1000 {
        let Ok(mut stream) = UnixStream::connect(bench.path()) else {
            continue;
        };
        // A flood of what is not read.
        stream.set_nonblocking(true).unwrap();
        while kept.len() < 3 && stream.write(&frame(1, 4, 1, 1)).is_ok() {}
        kept.push(stream);
    }
    until("all but a few are refused", || {
        kept.retain_mut(|stream| {
            let over = matches!(stream.read(&mut [0; 256]), Ok(0));
            refused += usize::from(over);
            !over
        });
        kept.len() <= MAX_OF_PROCESS
    });
    assert!(refused >= 900, "{refused}");
    assert!(bench.server.subscribers().len() <= MAX_OF_PROCESS);
    drop(kept);
    bench.until_there_are(0);
    bench.assert_serves(3);
    // Its own are too many, too.
    let _held: Vec<UnixStream> = (0..MAX_OF_PROCESS).map(|_| bench.connect()).collect();
    bench.until_there_are(MAX_OF_PROCESS);
    let said = last_words(&mut bench.connect());
    assert!(said.contains("4 times already"), "{said:?}");
}

/// The libraries and programs of spin/, and `loops` by Clang.
fn build(folder: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("spin");
    let clang = env::var("BPF_CLANG").unwrap_or_else(|_| "clang-19".into());
    let made = Command::new("make")
        .args(["-s", "-C"])
        .arg(source)
        .arg(format!("OUT={}", folder.display()))
        .args([
            "CFLAGS=-O2 -Werror",
            &format!("CLANG={clang}"),
            "all",
            "programs",
        ])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(
        made.status.success(),
        "{said}\n(libomp-19-dev and libomp5-19 are of 'testbed/setup tests')"
    );
}

fn run(bench: &Bench, program: &[&str], library: &str, more: &[(&str, &str)]) -> Output {
    let folder = bench.folder.path();
    let program = Command::new(folder.join(program[0]))
        .args(&program[1..])
        .env("LD_PRELOAD", folder.join(library))
        .env(SOCKET_VARIABLE, bench.path())
        .env("OMP_NUM_THREADS", "4")
        .env("KMP_BLOCKTIME", "0")
        .env("OMP_WAIT_POLICY", "passive")
        .envs(more.iter().copied())
        .stderr(Stdio::piped())
        .output();
    program.unwrap()
}

/// While `run` runs all subscribers are told to have so many threads.
fn while_advised<T>(bench: &Bench, threads: usize, run: impl FnOnce() -> T) -> T {
    let over = Arc::new(AtomicBool::new(false));
    let (ended, subscribers) = (over.clone(), bench.server.subscribers().clone());
    let tells = thread::spawn(move || {
        while !ended.load(Ordering::Relaxed) {
            advise(&subscribers, threads);
            thread::sleep(Duration::from_millis(10));
        }
    });
    let done = run();
    over.store(true, Ordering::Relaxed);
    tells.join().unwrap();
    done
}

#[test]
fn static_loops_by_core_type_do_each_iteration_once() {
    let bench = Bench::new();
    build(bench.folder.path());
    let count = |output: &Output| -> u32 {
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}");
        said.trim().split(' ').next().unwrap().parse().unwrap()
    };
    // On a busy machine the first of them may be over before advice comes.
    let loops = ["loops", "4"];
    let plain = count(&run(&bench, &loops, "libscx_hetero_spin.so", &[]));
    let all = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    for threads in [3, 4] {
        let advised = while_advised(&bench, threads, || {
            run(
                &bench,
                &loops,
                "libscx_hetero_advice.so",
                &[("SCX_HETERO_ADVICE", "always")],
            )
        });
        let advised = count(&advised);
        println!("unequal parts: {plain} without advice, {advised} for {threads} threads");
        // Where there is one CPU alone all are alike.
        assert!(all.trim() == "0" || advised > plain + 20);
    }
}

#[test]
fn a_thread_that_something_else_binds_is_left_there() {
    let bench = Bench::new();
    build(bench.folder.path());
    let bound = Command::new(bench.folder.path().join("bound"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&bound.stdout).into_owned();
    println!("{said}");
    assert!(bound.status.success(), "{said}");
}

#[test]
fn trials_cost_little_beside_the_best_way() {
    let bench = Bench::new();
    build(bench.folder.path());
    for seed in 1..=5 {
        let regret = Command::new(bench.folder.path().join("regret"))
            .arg(seed.to_string())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&regret.stdout).into_owned();
        println!("{said}");
        assert!(regret.status.success(), "{said}");
    }
}

#[test]
fn libgomp_has_fewer_threads_where_that_is_advised_and_no_more_than_it_asked_for() {
    let bench = Bench::new();
    build(bench.folder.path());
    let threads = |output: &Output| {
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}");
        said.trim().to_owned()
    };
    let always = [("SCX_HETERO_ADVICE", "always")];
    let library = "libscx_hetero_advice.so";
    for (advised, had) in [(2, "last 2"), (9, "last 4")] {
        let output = while_advised(&bench, advised, || {
            run(&bench, &["sizes"], library, &always)
        });
        assert_eq!(threads(&output), had);
    }
    let never = [("SCX_HETERO_ADVICE", "0")];
    let output = while_advised(&bench, 2, || run(&bench, &["sizes"], library, &never));
    assert_eq!(threads(&output), "last 4");
}
