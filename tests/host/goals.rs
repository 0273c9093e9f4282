// SPDX-License-Identifier: GPL-2.0-only
//! Programs that say how fast they must be: by the Rust crate, and as anybody may over the socket (the C library:
//! `heartbeats`). What hostile ones do costs the others nothing. Nothing is scheduled.

use std::fs;
use std::io::{BufRead, BufReader, IoSlice, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use hetero_heartbeats::{Heartbeat, HeartbeatOptions, HeartbeatTarget};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};
use rustix::io::pwrite;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use scx_hetero::goals::{
    Beats, GoalRules, GoalServer, GoalSource, GoalTarget, GoalWish, MAX_OF_USER, MAX_SESSIONS,
    RuledGoal, SessionReading,
};
use scx_hetero::rules::{ProcessInProc, Rules};

/// So long a test waits for what must come.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

fn until(what: &str, mut so: impl FnMut() -> bool) {
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

#[test]
fn what_is_no_page_is_refused_with_the_reason() {
    let bench = Bench::new();
    let file = tempfile::tempfile().unwrap();
    file.set_len(4096).unwrap();
    let (pipe, _other) = std::io::pipe().unwrap();
    let fine: &[u64] = &[HEAD, 1000];
    for (fd, why) in [
        (memfd(4096, SealFlags::empty(), fine), "not sealed"),
        (memfd(4096, SealFlags::SHRINK, fine), "not sealed"),
        (memfd(64, SEALED, fine), "4096"),
        (memfd(1 << 30, SEALED, fine), "4096"),
        (memfd(4096, SEALED, &[0]), "magic"),
        (memfd(4096, SEALED, &[HEAD + (1 << 32)]), "version"),
        (file.into(), "page"),
        (OwnedFd::from(pipe), "no memfd"),
        (fs::File::open("/dev/zero").unwrap().into(), "no memfd"),
        (fs::File::open("/proc/self/mem").unwrap().into(), "no memfd"),
        (bench.connect().into(), "no memfd"),
    ] {
        let client = bench.connect();
        send(&client, OPEN, &[fd.as_fd()]);
        let said = answer(&client);
        assert!(
            said.contains("error") && said.contains(why),
            "{why}: {said}"
        );
    }
    let client = bench.connect();
    send(&client, OPEN, &[]);
    assert!(answer(&client).contains("SCM_RIGHTS"));
    assert!(bench.read().is_empty());
    bench.assert_serves();
}

#[test]
fn a_page_may_be_spoilt_and_the_session_only_loses_its_goal() {
    let bench = Bench::new();
    let client = bench.connect();
    let page = page();
    send(&client, OPEN, &[page.as_fd()]);
    assert!(answer(&client).contains("session"));
    assert_eq!(bench.read()[0].target, GoalTarget::Rate(30_000));
    for words in [
        [u64::MAX; 8],
        [0; 8],
        [HEAD, 0, 0, 1, 2, 3, 4, 5],
        [HEAD, u64::MAX, 1, 0, u64::MAX, 0, 0, 0],
        [!HEAD, 30_000, 0, 9, 9, 9, 0, 0],
    ] {
        write(&page, &words);
        let reading = &bench.read()[0];
        assert_eq!(reading.target, GoalTarget::None, "{words:?}");
        // As they are: the control knows what to believe.
        assert_eq!(reading.beats.count, words[3]);
        assert_eq!(reading.beats.last_ns, words[4]);
    }
    // No page is left behind the hole.
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&page, hole, 0, 4096).unwrap();
    assert_eq!(bench.read()[0].beats, Beats::default());
    assert!(ftruncate(&page, 0).is_err() && ftruncate(&page, 8192).is_err());
    write(&page, &[HEAD, 5000]);
    assert_eq!(bench.read()[0].target, GoalTarget::Rate(5000));
}

#[test]
fn requests_of_any_kind_end_nothing_but_their_connection() {
    let bench = Bench::new();
    let page = page();
    for (text, why) in [
        ("\n", "no request"),
        ("open\n", "no request"),
        ("{\"open\":{\"version\":2}}\n", "version"),
        ("{\"change\":{\"weight\":1}}\n", "no session yet"),
        ("{\"open\":{\"version\":1,\"weight\":0}}\n", "weight"),
        ("{\"open\":{\"version\":1,\"tids\":[1]}}\n", "no thread 1"),
        ("{\"open\":{\"version\":1,\"tids\":[-1]}}\n", "no request"),
    ] {
        let client = bench.connect();
        send(&client, text, &[page.as_fd()]);
        let said = answer(&client);
        assert!(
            said.contains("error") && said.contains(why),
            "{why}: {said}"
        );
    }
    let client = bench.connect();
    let _ = (&client).write_all(&[b'['; 1 << 16]);
    assert!(answer(&client).contains("at most"));
    // Half a request, and gone.
    send(&bench.connect(), &OPEN[..20], &[page.as_fd()]);
    // More descriptors than one; none of them stays open here.
    let many = vec![page.as_fd(); 200];
    let client = bench.connect();
    send(&client, OPEN, &many);
    assert!(answer(&client).contains("session"));
    // A second session on the same connection, and a change that makes no sense.
    send(&client, OPEN, &[page.as_fd()]);
    assert!(answer(&client).contains("open another one"));
    send(&client, "{\"change\":{\"weight\":20000}}\n", &[]);
    assert!(answer(&client).contains("1 to 10000"));
    send(&client, "{\"change\":{\"weight\":7}}\n", &[page.as_fd()]);
    assert!(answer(&client).contains("session"));
    assert_eq!(bench.read()[0].weight, 7);
    // Its own descriptors are this process's, too: those that were sent, and the one that is kept.
    let pages = || {
        let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let open = open.filter_map(|fd| fs::metadata(fd.path()).ok());
        let inode = rustix::fs::fstat(&page).unwrap().st_ino;
        open.filter(|of| std::os::unix::fs::MetadataExt::ino(of) == inode)
            .count()
    };
    until("descriptors are closed", || pages() == 2);
    drop(client);
    until("the last, too", || pages() == 1);
    bench.assert_serves();
}

/// A connection whose end waits for its peer, which does not read.
fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    set_socket_linger(&stream, Some(Duration::from_secs(10_000))).unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 1 << 16]).is_ok() {}
    (stream.into(), peer)
}

#[test]
fn descriptors_that_take_forever_to_close_hold_nothing_up() {
    let bench = Bench::new();
    let mut peers = Vec::new();
    let mut sent = |client: &UnixStream, text: &str, flags: SendFlags| {
        let (fd, peer) = lingering();
        peers.push(peer);
        send_with(client, text, &[fd.as_fd()], flags);
    };
    let client = bench.connect();
    sent(&client, OPEN, SendFlags::NOSIGNAL);
    assert!(answer(&client).contains("no memfd"));
    // Some that the server never reads, one of them out of band.
    let client = bench.connect();
    for flags in [SendFlags::NOSIGNAL, SendFlags::OOB, SendFlags::NOSIGNAL] {
        sent(&client, "x", flags);
    }
    drop(client);
    let client = bench.connect();
    send(&client, &OPEN[..20], &[]);
    sent(&client, "x", SendFlags::OOB);
    send(&client, "\n", &[]);
    assert!(answer(&client).contains("error"));
    bench.assert_serves();
    // Nothing is waited for at the end, either.
    let began = Instant::now();
    drop(bench);
    assert!(began.elapsed() < Duration::from_secs(4));
}

fn sleeper() -> Child {
    Command::new("sleep").arg("1000").spawn().unwrap()
}

#[test]
fn a_child_may_be_spoken_for_and_its_end_ends_the_session() {
    let bench = Bench::new();
    let mut child = sleeper();
    let path = bench.path();
    let heartbeat = Heartbeat::open(HeartbeatOptions {
        pid: child.id(),
        socket: Some(&path),
        ..HeartbeatOptions::default()
    });
    let heartbeat = heartbeat.unwrap();
    until("it connects", || heartbeat.connected());
    assert_eq!(bench.read()[0].about.tgid, child.id());
    child.kill().unwrap();
    child.wait().unwrap();
    // Though the connection lives on.
    bench.until_there_are(0);
    assert!(bench.server.news().recv_timeout(LIMIT).is_ok());
    drop(heartbeat);

    let gone = Heartbeat::open(HeartbeatOptions {
        pid: child.id(),
        socket: Some(&path),
        ..HeartbeatOptions::default()
    });
    let gone = gone.unwrap();
    until("it is refused", || gone.state().starts_with("refused"));
    assert!(gone.state().contains("no process"), "{}", gone.state());
}

/// Makes the calling thread, and no other, another user's.
fn become_nobody() {
    use nix::libc::{SYS_setresuid, syscall};
    // SAFETY: it takes numbers alone. glibc's function would change all threads.
    assert_eq!(unsafe { syscall(SYS_setresuid, 65534, 65534, 65534) }, 0);
}

#[test]
fn who_is_not_root_speaks_for_nobody_elses_process_and_has_a_part_of_the_sessions() {
    if !nix::unistd::geteuid().is_root() {
        return println!("SKIPPED: only root can be another user");
    }
    let bench = Bench::new();
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(bench.folder.path(), all).unwrap();
    let mut other = sleeper();
    let ask = format!("{{\"open\":{{\"version\":1,\"pid\":{}}}}}\n", other.id());
    let page = page();
    thread::scope(|scope| {
        let nobody = scope.spawn(|| {
            become_nobody();
            let client = bench.connect();
            send(&client, &ask, &[page.as_fd()]);
            assert!(answer(&client).contains("neither yours"));
            drop(client);
            let mut crowd = Vec::new();
            for _ in 0..MAX_OF_USER {
                let client = bench.connect();
                send(&client, OPEN, &[page.as_fd()]);
                crowd.push(client);
            }
            bench.until_there_are(MAX_OF_USER);
            assert_eq!(bench.read()[0].about.uid, 65534);
            assert!(answer(&bench.connect()).contains("user 65534 has"));
            crowd
        });
        let crowd = nobody.join().unwrap();
        // Others have the rest.
        bench.assert_serves();
        drop(crowd);
        bench.until_there_are(0);
    });
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn a_crowd_that_never_reads_keeps_no_newcomer_out_for_longer_than_it_stays() {
    let bench = Bench::new();
    let page = page();
    let mut crowd = Vec::new();
    // Root may have all, another user no more than its share.
    let most = match nix::unistd::geteuid().is_root() {
        true => MAX_SESSIONS,
        false => MAX_OF_USER,
    };
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let room = limit.current.unwrap_or(u64::MAX);
    if room < 3 * most as u64 + 200 {
        let files = rustix::process::Resource::Nofile;
        let raised = rustix::process::Rlimit {
            current: limit.maximum,
            ..limit
        };
        rustix::process::setrlimit(files, raised).unwrap();
    }
    for _ in 0..most {
        let client = bench.connect();
        send(&client, OPEN, &[page.as_fd()]);
        crowd.push(client);
    }
    bench.until_there_are(most);
    assert_eq!(bench.read().len(), most);
    // Those that come are told, those that are there stay.
    for _ in 0..100 {
        let client = bench.connect();
        assert!(answer(&client).contains("already"));
    }
    let heartbeat = Heartbeat::open(HeartbeatOptions {
        socket: Some(&bench.path()),
        ..HeartbeatOptions::default()
    });
    let heartbeat = heartbeat.unwrap();
    until("it is told", || heartbeat.state().starts_with("refused"));
    assert!(heartbeat.state().contains("already"));
    assert_eq!(bench.server.sessions().len(), most);
    drop(crowd);
    bench.until_there_are(0);
    bench.assert_serves();
}
