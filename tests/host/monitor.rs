// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero monitor`, `why` and `set` as people use them: on a terminal (tmux's), against a
//! server on a socket that knows a machine of its own. Nothing is scheduled.

mod fake;
mod terminal;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::program::{self, PROGRAM, command};
use fake::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use scx_hetero::policy::{Name, Snapshot};
use scx_hetero::record::{Encoder, Input, Members, RecordReader};
use scx_hetero::stats::prometheus::Exporter;
use scx_hetero::stats::{self, Request};
use terminal::{Terminal, has_tmux, lists};

fn ask(socket: &Path, args: &[&str]) -> Output {
    let mut command = command(args);
    command.arg("--socket").arg(socket).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn goals_are_listed_set_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("stats");
    let fake = Fake::start(&socket);
    let list = text(&ask(&socket, &["goal", "list"]).stdout);
    let row = list.lines().nth(1).unwrap().split_whitespace();
    let row = row.collect::<Vec<_>>().join(" ");
    let lacks = lacks();
    assert_eq!(
        row,
        format!("3 1000 openssl 100 own 30.0 24.5 3.20 2.40 {lacks}")
    );
    let json = ask(&socket, &["goal", "list", "--json"]).stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(
        (&json[0]["beats"], &json[0]["reason"]),
        (&7.into(), &lacks.into())
    );

    for (args, wish) in [
        (
            &["set", "3", "--rate", "24", "--weight", "200"][..],
            "Set(24000, Some(200))",
        ),
        (&["set", "3", "--rate", "59.94"], "Set(59940, None)"),
        (&["set", "3", "--own"], "Own"),
        (&["remove", "3"], "Remove"),
    ] {
        let said = ask(&socket, &[&["goal"], args].concat());
        assert_eq!(text(&said.stdout), format!("{wish}\n"), "{said:?}");
    }
    assert!(fake.was_asked(Request::Goals));
    let nobody = ask(&socket, &["goal", "remove", "4"]);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(text(&nobody.stderr).contains("no session 4"), "{nobody:?}");
    for nonsense in [
        &["3"][..],
        &["3", "--rate", "0"],
        &["3", "--rate", "NaN"],
        &["3", "--own", "--rate", "3"],
        &["3", "--rate", "3", "--weight", "0"],
    ] {
        let said = ask(&socket, &[&["goal", "set"], nonsense].concat());
        assert_eq!(said.status.code(), Some(2), "{said:?}");
    }
}

#[test]
fn why_tells_a_story_and_set_changes_what_may_be_changed() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("stats");
    let fake = Fake::start(&socket);

    let why = ask(&socket, &["why", "1001"]);
    let told = text(&why.stdout);
    assert!(why.status.success(), "{why:?}");
    assert!(
        told.contains("1001 (xz): running on CPU 5, type E"),
        "{told}"
    );
    assert!(
        told.contains("E 1.92 = 1.80 by the core type x 1.07"),
        "{told}"
    );
    assert!(told.contains("swapped with 1005 (gzip)"), "{told}");
    let json = ask(&socket, &["why", "1001", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["threads"][0]["tid"], 1001);
    let nobody = ask(&socket, &["why", "7"]);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(text(&nobody.stderr).contains("does not know 7"));

    let set = ask(&socket, &["set", "fairness", "50"]);
    assert_eq!(text(&set.stdout), "fairness 50\n");
    let set = ask(&socket, &["set", "policy", "rr"]);
    assert_eq!(text(&set.stdout), "policy rr\n");
    assert!(fake.was_asked(Request::SetPolicy(Name::Rr)));
    let set = ask(&socket, &["set", "profile", "gaming"]);
    assert_eq!(text(&set.stdout), "profile gaming, policy hsp\n");
    let set = ask(&socket, &["set", "policy", "rr"]);
    assert!(set.status.success());
    let refused = ask(&socket, &["set", "fairness", "50"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("for policy camps; rr is in force"));
    for wrong in [["policy", "cfs"], ["fairness", "101"], ["profile", "x"]] {
        let wrong = ask(&socket, &["set", wrong[0], wrong[1]]);
        assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn only_the_owner_may_ask() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("stats");
    let _fake = Fake::start(&socket);
    let mode = socket.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
}

#[test]
fn without_a_scheduler_or_a_terminal_it_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("nobody");
    let why = ask(&socket, &["why", "1"]);
    assert_eq!(why.status.code(), Some(1));
    assert!(text(&why.stderr).contains("start it with"), "{why:?}");
    let monitor = ask(&socket, &["monitor"]);
    assert_eq!(monitor.status.code(), Some(1));
    assert!(text(&monitor.stderr).contains("--monitor 1"), "{monitor:?}");
}

#[test]
fn the_monitor_is_driven_by_keys() {
    if !has_tmux() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("stats");
    let fake = Fake::start(&socket);
    let terminal = Terminal::open(folder.path(), (80, 24), "LANG=C.UTF-8", &socket);
    terminal.see("policy camps, fairness 100");
    let screen = terminal.wait("rates", |screen| {
        let parts = [
            "10 threads, 8 runnable",
            "throughput 5.5",
            &format!(" goals 2, missed 1  openssl: 24.5 of 30.0, {}", lacks()),
            " P      0 [",
            " E      4 [",
            " 99% 1.05=1.00x1.05",
        ];
        parts.iter().all(|part| screen.contains(part)) && lists(screen, &["xz", "sqlite3"])
    });
    println!("{screen}");

    terminal.press(&["s"]);
    terminal.wait("order by tid", |screen| lists(screen, &["openssl", "xz"]));
    terminal.press(&["S"]);
    terminal.press(&["/"]);
    terminal.press(&["-l", "zip"]);
    terminal.see("filter: zip_");
    terminal.wait("filter", |screen| lists(screen, &["bzip2", "gzip"]));
    terminal.press(&["Escape"]);
    // A key that follows at once would be one with Alt.
    terminal.wait("all", |screen| !screen.contains("filter:"));

    // Which is busiest changes with the moments at which a busy host lets them be asked.
    terminal.press(&["s"]);
    terminal.wait("order by tid", |screen| lists(screen, &["openssl", "xz"]));
    terminal.press(&["Down"]);
    terminal.press(&["Enter"]);
    let screen = terminal.wait("story", |screen| {
        let words: Vec<&str> = screen.split_whitespace().collect();
        screen.contains("1001 (xz)")
            && screen.contains("where    P")
            && words.join(" ").contains("15,000 ms ahead of 11,200")
    });
    println!("{screen}");
    terminal.press(&["q"]);
    terminal.press(&["S"]);

    terminal.see("NAME");
    terminal.press(&["p"]);
    let screen = terminal.see("> camps (in force)");
    println!("{screen}");
    terminal.press(&["Up"]);
    terminal.press(&["Enter"]);
    terminal.see("now policy rr");
    terminal.see("policy rr  ");
    assert!(fake.was_asked(Request::SetPolicy(Name::Rr)));

    terminal.press(&["g"]);
    let screen = terminal.wait("goals", |screen| {
        let lines: Vec<&str> = screen.lines().collect();
        let at = lines
            .iter()
            .position(|line| line.contains("TARGET   RATE   MET"));
        let rows = at.map(|at| &lines[at + 1..]).unwrap_or_default();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let rows: Vec<String> = rows.iter().take(4).map(|line| words(line)).collect();
        rows == [
            "3 1000 openssl 100 own 30.0 24.5 82% 3.20 2.40",
            &lacks(),
            "12 4000002+ a-name-of-15-ch 10000 rule 8.00 ms 127 102% 0.61 0.62",
            "1023 1001 xz 100 own - - - - -",
        ]
    });
    println!("{screen}");
    assert!(fake.was_asked(Request::Goals));
    terminal.press(&["Down"]);
    terminal.wait("the next line", |screen| !screen.contains("82%"));
    terminal.press(&["q"]);
    terminal.see("NAME      ON");

    terminal.press(&["?"]);
    println!("{}", terminal.see("Keys, and columns"));
    // Before a key follows: Escape and a letter at once are Alt and that letter.
    terminal.press(&["Escape"]);
    terminal.wait("table", |screen| !screen.contains("Keys, and columns"));
    terminal.press(&["Space"]);
    terminal.see("PAUSED");
    terminal.press(&["Space"]);

    // It says when the scheduler is gone, and finds the next one.
    drop(fake);
    std::fs::remove_file(&socket).unwrap();
    terminal.see("NO ANSWER");
    let _fake = Fake::start(&socket);
    terminal.wait("a new one", |screen| {
        !screen.contains("NO ANSWER") && screen.contains("policy camps")
    });

    terminal.press(&["q"]);
    let left = terminal.see("left with 0");
    assert!(left.contains(" icanon") && !left.contains("NAME"), "{left}");
}

#[test]
fn names_from_elsewhere_do_nothing_to_a_terminal() {
    if !has_tmux() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("stats");
    let _fake = Fake::start(&socket);
    let file = |name: &str| folder.path().join(name).display().to_string();

    // A recording of a machine and a thread called so, and models and results of such.
    let recording = file("run.scxrec");
    let mut encoder = Encoder::default();
    program::stdout(&[
        "sim",
        "W5",
        "--policy",
        "rr",
        "--seconds",
        "2",
        "--record",
        &recording,
    ]);
    let mut reader = RecordReader::open(Path::new(&recording)).unwrap();
    let Ok(Some(Input::Begin(mut begin))) = reader.next_input() else {
        panic!("no beginning");
    };
    begin.cpu = HOSTILE.into();
    begin.topology.types[0].name = HOSTILE.into();
    encoder.begin((*begin).clone());
    let mut parts = Vec::new();
    while let Some(input) = reader.next_input().unwrap() {
        if let Input::Look {
            now_ns, decides, ..
        } = input
        {
            let mut tasks = reader.tasks().to_vec();
            for task in &mut tasks {
                task.comm = comm("\x1b]2;owned\x07");
            }
            let snapshot = Snapshot {
                now_ns,
                topology: &begin.topology,
                tasks: &tasks,
            };
            encoder.look(&snapshot, decides);
        }
    }
    parts.push(encoder.take(Vec::new()));
    let mut members = Members::create(Path::new(&recording)).unwrap();
    parts.iter().for_each(|part| members.write(part).unwrap());

    let folder_of_models = Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
    let model = folder_of_models.join("virtual-alder-lake-4p4e.model.json");
    let text = fs::read_to_string(model).unwrap();
    let json_of = serde_json::to_string(HOSTILE).unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value["machine"]["name"] = HOSTILE.into();
    value["data"]["tables"] = vec![HOSTILE].into();
    fs::write(file("model.json"), value.to_string()).unwrap();
    let broken = format!("{{\"schema\": 2, \"rank_by\": {json_of}}}");
    fs::write(file("broken.json"), broken).unwrap();

    let at = format!("--socket {}", socket.display());
    for (name, command) in [
        ("why", format!("why {ODD} {at}")),
        ("why --json", format!("why {ODD} --json {at}")),
        ("replay", format!("replay {recording} -n 3")),
        (
            "model",
            format!("model --any-machine {}", file("model.json")),
        ),
        ("an error", format!("model {}", file("broken.json"))),
        ("an error of a file", format!("model '/{HOSTILE}'")),
    ] {
        let binary = PROGRAM;
        let here = tempfile::tempdir().unwrap();
        let script = here.path().join("script");
        fs::write(
            &script,
            format!("{binary} {command}; echo left with $?; cat\n"),
        )
        .unwrap();
        let run = format!("LANG=C.UTF-8 sh {}", script.display());
        let terminal = Terminal::run(here.path(), (100, 100), &run);
        let screen = terminal.see("left with");
        println!("{name}:\n{}", screen.trim_end());
        assert!(
            screen.contains("]2;owned"),
            "{name}: it shows as text\n{screen}"
        );
        assert!(!screen.contains('\u{202e}'), "{name}:\n{screen}");
        let title = terminal.tmux(&["display-message", "-p", "#{pane_title}"]);
        assert!(
            !title.contains("owned"),
            "{name} has changed the title: {title}"
        );
    }
}

#[test]
fn it_is_plain_where_that_is_asked_for_and_leaves_on_control_c() {
    if !has_tmux() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("stats");
    let _fake = Fake::start(&socket);
    let plain = "NO_COLOR=1 LC_ALL=C";
    let terminal = Terminal::open(folder.path(), (120, 40), plain, &socket);
    let screen = terminal.see("BEHIND|AHEAD");
    println!("{screen}");
    assert!(screen.is_ascii(), "{screen}");
    // Colours are set by ESC [ 3x or 4x m; reversed and bold text may be.
    let styled = terminal.tmux(&["capture-pane", "-p", "-e"]);
    for color in ["[3", "[4", "[9"] {
        assert!(!styled.contains(&format!("\x1b{color}1")), "{styled:?}");
        assert!(!styled.contains(&format!("\x1b{color}2")), "{styled:?}");
    }
    terminal.press(&["C-c"]);
    let left = terminal.see("left with 0");
    assert!(left.contains(" icanon") && left.contains(" echo"), "{left}");
}

#[test]
fn it_leaves_when_it_is_told_to_and_when_its_terminal_is_gone() {
    if !has_tmux() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("stats");
    let _fake = Fake::start(&socket);
    let terminal = Terminal::open(folder.path(), (80, 24), "LANG=C.UTF-8", &socket);
    terminal.see("policy camps");
    let signalled = kill(Pid::from_raw(terminal.pid()), Signal::SIGTERM);
    assert_eq!(signalled, Ok(()));
    let left = terminal.see("left with 0");
    assert!(left.contains(" icanon"), "{left}");
    drop(terminal);

    let other = tempfile::tempdir().unwrap();
    let terminal = Terminal::open(other.path(), (80, 24), "LANG=C.UTF-8", &socket);
    terminal.see("policy camps");
    let monitor = PathBuf::from(format!("/proc/{}", terminal.pid()));
    drop(terminal);
    let give_up = Instant::now() + Duration::from_secs(60);
    while monitor.exists() {
        assert!(Instant::now() < give_up, "it stays without a terminal");
        thread::sleep(Duration::from_millis(50));
    }
}

/// What is said to a request over HTTP: the status, and the text.
fn get(address: SocketAddr, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{request} HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap();
    (status.parse().unwrap(), text.into())
}

#[test]
fn prometheus_gets_what_the_dashboard_shows_and_hears_when_nobody_schedules() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("stats");
    let exporter = Exporter::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = exporter.address().unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| exporter.serve(&socket, &stop).unwrap());
        // A page is repeated for a second.
        let scrape = || {
            thread::sleep(Duration::from_millis(1100));
            get(address, "GET /metrics")
        };
        let (status, why) = scrape();
        assert_eq!(status, 503);
        assert!(why.contains("start it with"), "{why}");

        let fake = Fake::of(&socket, with_all_sensors);
        assert_eq!(scrape().0, 200);
        let (_, metrics) = scrape();
        let value = |name: &str| -> f64 {
            let line = metrics
                .lines()
                .find(|line| line.starts_with(&format!("{name} ")));
            line.unwrap_or_else(|| panic!("{name}: {metrics}"))
                .rsplit(' ')
                .next()
                .unwrap()
                .parse()
                .unwrap()
        };
        assert_eq!(value("scx_hetero_swapped_total"), 2.0 * 102.0);
        assert!(value("scx_hetero_unfairness") > 1.0);
        assert!(metrics.contains("scx_hetero_cpu_busy_ratio{cpu=\"7\",core_type=\"E\"} 0.65"));
        assert_eq!(value("scx_hetero_goal_sessions"), 2.0);
        let openssl = r#"{session="3",pid="1000",name="openssl"}"#;
        assert_eq!(value(&format!("scx_hetero_goal_rate_hertz{openssl}")), 24.5);
        let openssl = r#"{pid="1000",comm="openssl"}"#;
        assert_eq!(
            value(&format!("scx_hetero_process_llc_bytes{openssl}")),
            1_572_864.0
        );

        let dashboard = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/grafana.json");
        let dashboard: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(dashboard).unwrap()).unwrap();
        let mut shown = 0;
        for panel in dashboard["panels"].as_array().unwrap() {
            // Headings of rows have none.
            let targets = panel.get("targets").map(|all| all.as_array().unwrap());
            assert_eq!(targets.is_none(), panel["type"] == "row", "{panel}");
            for target in targets.into_iter().flatten() {
                let query = target["expr"].as_str().unwrap();
                let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                for name in words.filter(|word| word.starts_with("scx_hetero_")) {
                    assert!(metrics.contains(&format!("# TYPE {name} ")), "{name}");
                    shown += 1;
                }
            }
        }
        assert!(shown > 30, "{shown}");

        assert_eq!(get(address, "GET /").0, 200);
        assert_eq!(get(address, "GET /secret").0, 404);
        assert_eq!(get(address, "POST /metrics").0, 405);
        // One that starts in its place is found.
        drop(fake);
        let _ = fs::remove_file(&socket);
        let _fake = Fake::start(&socket);
        assert_eq!(scrape().0, 200);
        stop.store(true, Ordering::Relaxed);
    });
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let Err(error) = Exporter::listen(taken.local_addr().unwrap()) else {
        panic!("two listen at one address");
    };
    assert!(error.to_string().contains("--prometheus"), "{error}");
}

#[test]
fn what_only_looks_takes_no_option_of_what_schedules() {
    for looks in [["--monitor", "1"], ["--prometheus", "127.0.0.1:0"]] {
        for schedules in [
            ["--policy", "hsp"],
            ["--slice-us", "5000"],
            ["--record", "r"],
        ] {
            let told = program::error(&[looks, schedules].concat());
            assert!(told.contains("cannot be used with"), "{told}");
        }
    }
}

#[test]
fn a_group_may_be_let_in() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("stats");
    let mode = || fs::metadata(&socket).unwrap().permissions().mode() & 0o777;
    drop(stats::StatisticsServer::listen(&socket, None).unwrap());
    assert_eq!(mode() & 0o077, 0);
    fs::remove_file(&socket).unwrap();
    let own = nix::unistd::getgid();
    let _server = stats::StatisticsServer::listen(&socket, Some(own)).unwrap();
    assert_eq!(mode(), 0o660);
    assert_eq!(fs::metadata(&socket).unwrap().gid(), own.as_raw());
    assert!(
        stats::parse_group("no such group")
            .unwrap_err()
            .contains("groupadd")
    );
}
