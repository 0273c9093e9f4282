// SPDX-License-Identifier: GPL-2.0-only
//! What hostile clients can send to the sockets: it costs a bounded amount of memory and threads,
//! and other clients are answered all the same. Nothing is scheduled.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::program::{Ends, command, open_folder, serving};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use scx_hetero::policy::Name;
use scx_hetero::stats::{self, Answer, Request, Totals};

/// So long a test waits for what must come.
const LIMIT: Duration = Duration::from_secs(60);

/// A number of a process's status, as its threads, or its memory in kB.
pub(crate) fn status(pid: u32, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|line| line.trim_start_matches(':').split_whitespace().next());
    number.unwrap().parse().unwrap()
}

/// `scx_hetero --prometheus`, while no scheduler runs.
struct Exporter {
    child: Ends,
    address: SocketAddr,
}

impl Exporter {
    fn start() -> Self {
        let mut child = command(&["--prometheus", "127.0.0.1:0"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("http://") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "it has ended");
        }
        let address = line.split("http://").nth(1).unwrap();
        let address = address.split('/').next().unwrap().parse().unwrap();
        // What a panic would say is for whoever reads the test's output.
        thread::spawn(move || std::io::copy(&mut said, &mut std::io::stderr()));
        let child = Ends(child);
        Self { child, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        stream
    }

    /// The status of the answer to what is sent; none if the connection was closed without.
    fn send(&self, request: &[u8]) -> Option<u16> {
        let mut stream = self.connect();
        // It may have been answered before all was sent.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        if let Err(error) = stream.read_to_end(&mut answer) {
            assert_ne!(error.kind(), ErrorKind::WouldBlock, "nothing is said to it");
        }
        let answer = String::from_utf8_lossy(&answer);
        answer.split(' ').nth(1)?.parse().ok()
    }

    /// It answers others, and ends when it is told to.
    fn assert_serves_and_ends(mut self) {
        assert_eq!(self.send(b"GET / HTTP/1.1\r\n\r\n"), Some(200));
        let pid = Pid::from_raw(self.child.id() as i32);
        kill(pid, Signal::SIGTERM).unwrap();
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begin.elapsed() < LIMIT, "it does not heed SIGTERM");
            thread::sleep(Duration::from_millis(10));
        };
        assert!(status.success(), "{status}");
    }
}

#[test]
fn a_body_of_any_length_neither_ends_the_exporter_nor_holds_it_up() {
    let exporter = Exporter::start();
    let mut hanging = Vec::new();
    for length in ["9223372036854775808", "4611686018427387904", "2000", "-1"] {
        for method in ["GET", "POST"] {
            let head = format!("{method} /metrics HTTP/1.1\r\nContent-Length: {length}\r\n\r\n");
            let answered = exporter.send(head.as_bytes());
            assert!(
                (400..500).contains(&answered.unwrap()),
                "{head}: {answered:?}"
            );
            let mut stream = exporter.connect();
            stream.write_all(head.as_bytes()).unwrap();
            hanging.push(stream);
        }
    }
    let chunked = b"GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(exporter.send(chunked), Some(413));
    exporter.assert_serves_and_ends();
}

#[test]
fn hundreds_of_idle_connections_cost_no_threads_and_hardly_any_memory() {
    let exporter = Exporter::start();
    let pid = exporter.child.id();
    exporter.send(b"GET / HTTP/1.1\r\n\r\n");
    let before = status(pid, "VmRSS");
    let crowd: Vec<_> = (0..600)
        .map(|i| {
            let mut stream = exporter.connect();
            if i % 2 == 0 {
                stream
                    .write_all(b"GET /metrics HTTP/1.1\r\nHost: ")
                    .unwrap();
            }
            stream
        })
        .collect();
    assert_eq!(exporter.send(b"GET / HTTP/1.1\r\n\r\n"), Some(200));
    let (threads, memory) = (status(pid, "Threads"), status(pid, "VmRSS") - before);
    assert!(
        threads <= 4 && memory < 4096,
        "{threads} threads, {memory} kB"
    );
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    assert!(open < 100, "{open} descriptors");
    exporter.assert_serves_and_ends();
    drop(crowd);
}

#[test]
fn who_asks_and_does_not_read_or_does_not_end_its_request_costs_hardly_any_memory() {
    let exporter = Exporter::start();
    let pid = exporter.child.id();
    exporter.send(b"GET / HTTP/1.1\r\n\r\n");
    let before = status(pid, "VmRSS");
    // As much as it takes of it, and no more than this.
    let flood = |text: &[u8]| {
        let mut stream = exporter.connect();
        let patience = Duration::from_secs(2);
        stream.set_write_timeout(Some(patience)).unwrap();
        let text = text.repeat((1 << 20) / text.len());
        for _ in 0..100 {
            if stream.write_all(&text).is_err() {
                break;
            }
        }
        stream
    };
    let pipelining = flood(b"GET /metrics HTTP/1.1\r\n\r\n");
    let endless = flood(b"GET /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    let (threads, memory) = (status(pid, "Threads"), status(pid, "VmRSS") - before);
    assert!(
        threads <= 4 && memory < 4096,
        "{threads} threads, {memory} kB"
    );
    let long = [b"GET /".to_vec(), vec![b'a'; 9000]].concat();
    assert_eq!(exporter.send(&long), Some(431));
    exporter.assert_serves_and_ends();
    drop((pipelining, endless));
}

/// A statistics socket in a process of its own, so that its threads can be counted: this very test,
/// run as the server.
struct Served {
    child: Ends,
    _folder: tempfile::TempDir,
    socket: PathBuf,
}

const SERVE: &str = "SCX_HETERO_TEST_SERVE";

/// Not a test by itself.
#[test]
fn serves_where_it_is_told_to() {
    let Some(socket) = std::env::var_os(SERVE) else {
        return;
    };
    let server = stats::StatisticsServer::listen(Path::new(&socket), None).unwrap();
    let (answers, requests) = server.channels();
    println!("serving");
    // Until it is killed.
    for request in requests {
        let answer = match request {
            Request::Totals => Answer::Totals(Box::new(Totals {
                policy: "p".repeat(1 << 20),
                ..Totals::default()
            })),
            Request::Reading => Answer::Reading(Box::default()),
            other => Answer::Set(Ok(format!("{other:?}"))),
        };
        answers.send(answer).unwrap();
    }
}

impl Served {
    fn start() -> Self {
        Self::start_with_umask("022")
    }

    fn start_with_umask(umask: &str) -> Self {
        // Whoever means ill may be another user.
        let folder = open_folder();
        let socket = folder.path().join("new/root/stats");
        let first = format!("umask {umask}");
        let test = "attack::serves_where_it_is_told_to";
        let child = serving(&first, test, (SERVE, &socket));
        Self {
            child,
            _folder: folder,
            socket,
        }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    /// Memory and threads that `attack` costs it, kB.
    fn cost<T>(&self, attack: impl FnOnce() -> T) -> (u64, u64, T) {
        self.assert_serves();
        let pid = self.child.id();
        let before = (status(pid, "VmSize"), status(pid, "Threads"));
        let held = attack();
        self.assert_serves();
        let (memory, threads) = (status(pid, "VmSize"), status(pid, "Threads"));
        (
            memory.saturating_sub(before.0),
            threads.saturating_sub(before.1),
            held,
        )
    }

    fn assert_serves(&self) {
        assert_eq!(ask(&self.connect(), THREADS)["errno"], 0);
    }
}

const THREADS: &str = r#"{"req":"stats","args":{"target":"threads"}}"#;
const TOP: &str = r#"{"req":"stats"}"#;

/// What is answered to a line.
fn ask(mut stream: &UnixStream, line: &str) -> serde_json::Value {
    stream.write_all(format!("{line}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

#[test]
fn idle_clients_of_the_scheduler_cost_no_threads_and_leave_room_for_others() {
    let served = Served::start();
    let (memory, threads, crowd) = served.cost(|| {
        let crowd = (0..300).map(|_| served.connect());
        crowd.collect::<Vec<_>>()
    });
    assert!(threads == 0 && memory < 16 << 10, "{threads}, {memory} kB");
    drop(crowd);
}

#[test]
fn a_line_without_an_end_and_a_client_that_does_not_read_cost_hardly_any_memory() {
    let served = Served::start();
    let (memory, threads, held) = served.cost(|| {
        let mut endless = served.connect();
        endless.set_write_timeout(Some(LIMIT)).unwrap();
        // It hangs up on it.
        while endless.write_all(&[b'x'; 1 << 16]).is_ok() {}
        let deaf: Vec<_> = (0..8).map(|_| served.connect()).collect();
        for mut stream in &deaf {
            stream
                .set_write_timeout(Some(Duration::from_millis(200)))
                .unwrap();
            let asks = format!("{TOP}\n").repeat(1000);
            // As many as it takes.
            while stream.write_all(asks.as_bytes()).is_ok() {}
        }
        (endless, deaf)
    });
    assert!(threads == 0 && memory < 64 << 10, "{threads}, {memory} kB");
    drop(held);
}

#[test]
fn what_is_no_request_is_answered_with_an_error_as_scx_stats_does() {
    let served = Served::start();
    let stream = served.connect();
    for (line, why) in [
        ("", "EOF"),
        ("{", "EOF"),
        (r#"{"req":"format"}"#, "unknown command"),
        (
            r#"{"req":"stats","args":{"target":"x"}}"#,
            "unknown stat target",
        ),
        (r#"{"req":"stats","args":{"target":"why"}}"#, "of which pid"),
        ("\u{7f}\\", "expected"),
        (&"[".repeat(10_000), ""),
    ] {
        let answer = ask(&stream, line);
        assert_eq!(answer["errno"], 22, "{answer}");
        let said = answer["args"]["resp"].as_str().unwrap();
        assert!(said.contains(why), "{line}: {said}");
    }
    let meta = ask(&stream, r#"{"req":"stats_meta"}"#);
    assert!(meta["args"]["resp"]["Metrics"]["fields"].is_object());
    let top: stats::Metrics =
        serde_json::from_value(ask(&stream, TOP)["args"]["resp"].take()).unwrap();
    assert_eq!(top.policy.len(), 1 << 20);
}

#[test]
fn a_flood_of_requests_is_answered_at_a_hundred_a_second() {
    let served = Served::start();
    let streams: Vec<_> = (0..8).map(|_| served.connect()).collect();
    ask(&streams[0], THREADS);
    let begin = Instant::now();
    for stream in streams.iter().cycle().take(50) {
        ask(stream, "nonsense");
    }
    // However slow this machine is, no sooner.
    assert!(begin.elapsed() >= Duration::from_millis(490));
}

#[test]
fn whatever_the_umask_those_who_may_read_get_at_the_socket() {
    let served = Served::start_with_umask("077");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&served.socket) & 0o077, 0);
    for folder in served.socket.ancestors().skip(1).take(2) {
        assert_eq!(mode(folder), 0o755, "{}", folder.display());
    }
}

/// A stream that another user has opened: the kernel notes which user connects.
fn connect_as(user: u32, socket: &Path) -> UnixStream {
    let socket = socket.to_path_buf();
    thread::spawn(move || {
        // SAFETY: plain system calls, which change this thread's credentials alone.
        let became = unsafe {
            let keep = u32::MAX;
            libc::syscall(libc::SYS_setresgid, keep, user, keep)
                | libc::syscall(libc::SYS_setresuid, keep, user, keep)
        };
        assert_eq!(became, 0);
        UnixStream::connect(socket).unwrap()
    })
    .join()
    .unwrap()
}

#[test]
fn who_may_only_read_changes_nothing() {
    let served = Served::start();
    let set = r#"{"req":"stats","args":{"target":"set","policy":"rr"}}"#;
    let of_owner = ask(&served.connect(), set)["args"]["resp"].take();
    let policy = format!("{:?}", Request::SetPolicy(Name::Rr));
    assert_eq!(of_owner["Ok"].as_str(), Some(&*policy));
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: only root can be another user");
        return;
    }
    // As a member of the group gets in.
    let mut shared = fs::metadata(&served.socket).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut shared, 0o666);
    fs::set_permissions(&served.socket, shared).unwrap();
    let reader = connect_as(65534, &served.socket);
    assert_eq!(ask(&reader, THREADS)["errno"], 0);
    let refused = ask(&reader, set)["args"]["resp"].take();
    assert!(
        refused["Err"].as_str().unwrap().contains("root"),
        "{refused}"
    );
}

/// Whether an exporter handles what a terminal sends that is gone, where that was the default or ignored before it began.
fn heeds_a_hangup(before: &str) -> bool {
    let program = command(&[]).get_program().to_owned();
    let mut child = Command::new("env")
        .arg(format!("--{before}-signal=HUP"))
        .arg(program)
        .args(["--prometheus", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("http://")));
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let _ = child.kill();
    let _ = child.wait();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
    caught >> (Signal::SIGHUP as u32 - 1) & 1 == 1
}

#[test]
fn what_nohup_has_started_outlives_its_terminal() {
    assert!(heeds_a_hangup("default"));
    assert!(!heeds_a_hangup("ignore"));
}

#[test]
fn an_exit_status_is_the_same_where_nothing_can_be_said() {
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut wrong = command(&["report", "/is/not/there"]);
    let said = wrong.output().unwrap();
    let silent = wrong.stderr(full).status().unwrap();
    assert_eq!((said.status.code(), silent.code()), (Some(1), Some(1)));
}

#[test]
fn a_scheduler_does_not_look_where_a_variable_points() {
    // It would be refused for the model before it attached, were it let get that far.
    let output = command(&["--policy", "hsp", "--model", "/is/not/there"])
        .env("SCX_SYSFS_PREFIX", "/is/not/there/either")
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("SCX_SYSFS_PREFIX is ignored"), "{said}");
}
