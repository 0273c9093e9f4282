// SPDX-License-Identifier: GPL-2.0-only
//! Programs that speak for what is not theirs, spoil what is read, or ask without end: nothing is lost but what is
//! their own.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::net::sockopt::set_socket_linger;
use scx_hetero::goals::{MAX_OF_USER, MAX_SESSIONS};

use super::*;

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
        // Whoever is the last to close it waits: if the server was faster, that is not to be this thread.
        thread::spawn(|| drop(fd));
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
