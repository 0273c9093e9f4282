// SPDX-License-Identifier: GPL-2.0-only
//! Programs that say how fast they must be: by the Rust crate, and as anybody may over the socket (the C library:
//! `heartbeats`). Nothing is scheduled.

mod hostile;

use std::fs;
use std::io::{BufRead, BufReader, IoSlice, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use hetero_heartbeats::{Heartbeat, HeartbeatOptions, HeartbeatTarget};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::pwrite;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use scx_hetero::goals::{
    Beats, GoalRules, GoalServer, GoalSource, GoalTarget, GoalWish, RuledGoal, SessionReading,
};
use scx_hetero::rules::{ProcessInProc, Rules};

/// So long a test waits for what must come.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

pub(super) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !so() {
        assert!(begin.elapsed() < LIMIT, "in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A server in a folder of its own.
pub(super) struct Bench {
    pub(super) folder: tempfile::TempDir,
    pub(super) server: GoalServer,
}

impl Bench {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = GoalServer::start(&folder.path().join("new/goals.sock")).unwrap();
        Self { folder, server }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("new/goals.sock")
    }

    pub(super) fn read(&self) -> Vec<SessionReading> {
        let mut readings = Vec::new();
        self.server.sessions().refresh(|| false);
        self.server.sessions().read(&mut readings);
        readings
    }

    fn heartbeat(&self, name: &str, rate: f64) -> Heartbeat {
        let path = self.path();
        let heartbeat = Heartbeat::open(HeartbeatOptions {
            name,
            target: HeartbeatTarget::Rate(rate),
            socket: Some(&path),
            ..HeartbeatOptions::default()
        });
        let heartbeat = heartbeat.unwrap();
        until("it connects", || heartbeat.connected());
        heartbeat
    }

    /// As somebody who does not use the library.
    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.path()).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    /// There are so many sessions, by and by.
    pub(super) fn until_there_are(&self, sessions: usize) {
        until("sessions", || self.server.sessions().len() == sessions);
    }

    /// A program of good manners is served.
    fn assert_serves(&self) {
        let before = self.server.sessions().len();
        let heartbeat = self.heartbeat("good", 30.0);
        heartbeat.beats(7);
        let readings = self.read();
        let last = readings.last().unwrap();
        assert_eq!((last.about.name.as_str(), last.beats.count), ("good", 7));
        drop(heartbeat);
        self.until_there_are(before);
    }
}

fn send(stream: &UnixStream, text: &str, fds: &[BorrowedFd]) {
    send_with(stream, text, fds, SendFlags::NOSIGNAL);
}

fn send_with(stream: &UnixStream, text: &str, fds: &[BorrowedFd], flags: SendFlags) {
    let mut space = vec![std::mem::MaybeUninit::uninit(); 2048];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    }
    let text = [IoSlice::new(text.as_bytes())];
    sendmsg(stream, &text, &mut control, flags).unwrap();
}

/// The answer to a request; empty if there is none but the end.
fn answer(stream: &UnixStream) -> String {
    let mut line = String::new();
    // Who is hung up on while it sends is told by a reset.
    let _ = BufReader::new(stream).read_line(&mut line);
    line
}

const OPEN: &str = "{\"open\":{\"version\":1,\"name\":\"by hand\"}}\n";

fn memfd(size: u64, seals: SealFlags, words: &[u64]) -> OwnedFd {
    let fd = memfd_create("page", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&fd, size).unwrap();
    write(&fd, words);
    fcntl_add_seals(&fd, seals).unwrap();
    fd
}

fn write(page: &OwnedFd, words: &[u64]) {
    let words: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    assert_eq!(pwrite(page, &words, 0).unwrap(), words.len());
}

/// Magic number and version, as they lie in memory.
const HEAD: u64 = 0x3142_4853 | 1 << 32;
const SEALED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

fn page() -> OwnedFd {
    memfd(4096, SEALED, &[HEAD, 30_000])
}

#[test]
fn a_session_is_read_as_its_program_wrote_it_and_ends_with_it() {
    let bench = Bench::new();
    let first = bench.heartbeat("first", 30.0);
    let second = bench.heartbeat("second", 59.94);
    bench.server.news().recv_timeout(LIMIT).unwrap();
    first.beat();
    first.beats(4);
    second.beats_between(1, 1000, 3500);
    let readings = bench.read();
    let [one, two] = &readings[..] else {
        panic!("{readings:?}");
    };
    assert!(one.about.id < two.about.id);
    assert_eq!(one.about.tgid, std::process::id());
    assert_eq!((one.about.name.as_str(), one.weight), ("first", 100));
    assert_eq!(one.target, GoalTarget::Rate(30_000));
    assert_eq!(one.beats.count, 5);
    assert!(one.beats.last_ns > 0 && one.beats.last_ns <= hetero_heartbeats::now_ns());
    let beats = Beats {
        count: 1,
        last_ns: 3500,
        work_ns: 2500,
    };
    assert_eq!((two.target, two.beats), (GoalTarget::Rate(59_940), beats));

    // What it has once said it may change.
    let deadline = HeartbeatTarget::Deadline(Duration::from_millis(8));
    second.set_target(deadline).unwrap();
    assert_eq!(bench.read()[1].target, GoalTarget::Deadline(125_000));
    let tid = nix::unistd::gettid().as_raw();
    first.set_threads(&[tid]).unwrap();
    first.set_weight(300).unwrap();
    until("it changes", || bench.read()[0].weight == 300);
    assert_eq!(bench.read()[0].tids[..], [tid as u32]);

    drop(first);
    bench.until_there_are(1);
    assert_eq!(bench.read()[0].about.name, "second");
}

#[test]
fn a_session_connects_by_itself_when_a_scheduler_starts_and_goes_on_with_its_count() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("goals.sock");
    let heartbeat = Heartbeat::open(HeartbeatOptions {
        target: HeartbeatTarget::Rate(10.0),
        socket: Some(&path),
        ..HeartbeatOptions::default()
    });
    let heartbeat = heartbeat.unwrap();
    assert!(!heartbeat.connected(), "{}", heartbeat.state());
    heartbeat.beats(5);
    for _ in 0..2 {
        let server = GoalServer::start(&path).unwrap();
        let before = heartbeat.count();
        // By its beats alone; a second later at the latest.
        until("a beat connects", || {
            heartbeat.beat();
            !server.sessions().is_empty()
        });
        let mut readings = Vec::new();
        server.sessions().refresh(|| false);
        server.sessions().read(&mut readings);
        assert_eq!(readings[0].target, GoalTarget::Rate(10_000));
        assert!(readings[0].beats.count > before);
        assert_eq!(readings[0].beats.count, heartbeat.count());
        drop(server);
        until("it notices", || !heartbeat.connected());
    }
}

#[test]
fn who_only_takes_what_was_read_has_it_read_by_that() {
    let bench = Bench::new();
    let heartbeat = bench.heartbeat("beats", 30.0);
    heartbeat.beats(7);
    let mut readings = Vec::new();
    until("its beats", || {
        bench.server.read(&mut readings);
        readings[0].beats.count == 7
    });
}

#[test]
fn an_administrators_goal_comes_before_the_programs() {
    let bench = Bench::new();
    let heartbeat = bench.heartbeat("program", 30.0);
    let id = bench.read()[0].about.id;
    let wish = |wish| bench.server.sessions().wish(id, wish);
    let now = || (bench.read()[0].target, bench.read()[0].weight);
    assert_eq!(wish(GoalWish::Set(24_000, Some(50))).unwrap(), "program");
    assert_eq!(now(), (GoalTarget::Rate(24_000), 50));
    heartbeat.set_target(HeartbeatTarget::Rate(60.0)).unwrap();
    assert_eq!(now(), (GoalTarget::Rate(24_000), 50));
    wish(GoalWish::Remove).unwrap();
    assert_eq!(now(), (GoalTarget::None, 100));
    wish(GoalWish::Own).unwrap();
    assert_eq!(now(), (GoalTarget::Rate(60_000), 100));
    for bad in [
        GoalWish::Set(0, None),
        GoalWish::Set(u64::MAX, None),
        GoalWish::Set(1000, Some(0)),
    ] {
        assert!(wish(bad).is_err());
    }
    let nobody = bench.server.sessions().wish(id + 1, GoalWish::Remove);
    assert!(nobody.unwrap_err().contains("goal list"));
}

#[test]
fn a_rule_gives_goals_and_an_administrators_goal_comes_before_it() {
    let bench = Bench::new();
    let plain = Heartbeat::open(HeartbeatOptions {
        name: "plain",
        socket: Some(&bench.path()),
        ..HeartbeatOptions::default()
    });
    let plain = plain.unwrap();
    until("it connects", || plain.connected());
    let _wants = bench.heartbeat("wants", 60.0);
    let sessions = bench.server.sessions();
    let now = || {
        let all = bench.read().into_iter();
        let all = all.map(|it| (it.target, it.weight, it.source));
        all.collect::<Vec<_>>()
    };
    let rate = GoalTarget::Rate;
    let (own, rule, set) = (GoalSource::Own, GoalSource::Rule, GoalSource::Set);
    let as_they_are = [(GoalTarget::None, 100, own), (rate(60_000), 100, own)];
    assert_eq!(now(), as_they_are);

    // This very process, by what a file says of it.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.toml");
    let read = |text: &str| {
        fs::write(
            &path,
            format!("[[rule]]\nexe = \"*/host-*\"\ngoal = {text}\n"),
        )
        .unwrap();
        let rules = Rules::read(&path, &hetero_core::testing::board(1, 1)).unwrap();
        move |tgid| rules.goal_of(&ProcessInProc { tgid })
    };
    let mut ruled = GoalRules::default();
    let second = 1_000_000_000;
    let rules = read("{ rate = 30, weight = 200 }");
    assert!(ruled.look_up(sessions, &bench.read(), (second, true), rules));
    assert_eq!(now(), [(rate(30_000), 200, rule); 2]);
    let id = bench.read()[0].about.id;
    let wish = |wish| sessions.wish(id, wish).unwrap();
    wish(GoalWish::Set(24_000, None));
    assert_eq!(now()[0], (rate(24_000), 200, set));
    wish(GoalWish::Remove);
    assert_eq!(now()[0], (GoalTarget::None, 200, set));
    wish(GoalWish::Own);
    assert_eq!(now()[0], (rate(30_000), 200, rule));

    // What is known holds for a second, unless the rules are others.
    let never = |_| -> Option<RuledGoal> { panic!("it is known") };
    assert!(!ruled.look_up(sessions, &bench.read(), (2 * second - 1, true), never));
    ruled.renew();
    let rules = read("{ most = 50 }");
    assert!(ruled.look_up(sessions, &bench.read(), (2 * second - 1, true), rules));
    assert_eq!(
        now(),
        [(GoalTarget::None, 100, own), (rate(50_000), 100, rule)]
    );
    let rules = read("false");
    assert!(ruled.look_up(sessions, &bench.read(), (3 * second, true), rules));
    assert_eq!(now(), [(GoalTarget::None, 100, rule); 2]);
    assert!(ruled.look_up(sessions, &bench.read(), (3 * second, false), never));
    assert_eq!(now(), as_they_are);
}

#[test]
fn of_many_sessions_a_few_are_looked_up_at_a_time_and_none_has_a_goal_before() {
    let bench = Bench::new();
    let all: Vec<_> = (0..20).map(|_| bench.heartbeat("one", 60.0)).collect();
    let sessions = bench.server.sessions();
    let mut ruled = GoalRules::default();
    let cap = RuledGoal::Given {
        rate: None,
        most: Some(30_000),
        weight: None,
    };
    for (look, (known, behind)) in [(8, true), (16, true), (20, false)].into_iter().enumerate() {
        let now_ns = 50_000_000 * look as u64;
        assert!(ruled.look_up(sessions, &bench.read(), (now_ns, true), |_| Some(cap)));
        let readings = bench.read();
        let capped = readings
            .iter()
            .filter(|it| it.target == GoalTarget::Rate(30_000));
        let none = readings.iter().filter(|it| it.target == GoalTarget::None);
        assert_eq!((capped.count(), none.count()), (known, 20 - known));
        assert_eq!(ruled.is_behind(), behind);
    }
    // Later each has its turn, eight at a time.
    let mut looked = [0; 20];
    for look in 0..5 {
        let readings = bench.read();
        let mut seen = 0;
        ruled.look_up(sessions, &readings, (1_200_000_000 + look, true), |_| {
            seen += 1;
            Some(cap)
        });
        looked[look as usize] = seen;
    }
    assert_eq!(looked[..5], [8, 8, 4, 0, 0]);
    drop(all);
}
