// SPDX-License-Identifier: GPL-2.0-only
//! The library of programs with goals as they have it: from C, C++ and Python.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use scx_hetero::goals::{GoalTarget, SessionReading};

use crate::goals::{Bench, LIMIT, until};
use crate::program::Ends;

/// The C library, built into a folder.
fn library(folder: &Path, targets: &[&str]) -> PathBuf {
    let out = folder.join("lib");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("heartbeats");
    let made = Command::new("make")
        .args(["-s", "-C"])
        .arg(source)
        .arg(format!("OUT={}", out.display()))
        .arg("CFLAGS=-O2 -Werror")
        .args(targets)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    out
}

fn run(command: &mut Command) -> String {
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{:?}: {said}", output.status);
    said
}

#[test]
fn a_c_program_has_sessions_threads_and_children() {
    has_sessions_threads_and_children(&[]);
}

/// Its beats go to the page that the scheduler's half of goals reads as often as in a scheduler.
#[test]
#[ignore = "for experiments/heartbeat-cost; nothing is asserted of time"]
fn what_a_beat_costs() {
    let bench = Bench::new();
    let out = library(bench.folder.path(), &["cost"]);
    let mut cost = Command::new(out.join("cost"));
    cost.args(std::env::var("THREADS"))
        .env("SCX_HETERO_GOALS", bench.path())
        .stdout(Stdio::piped());
    let mut cost = cost.spawn().unwrap();
    let mut beats = 0;
    while cost.try_wait().unwrap().is_none() {
        beats = bench.read().last().map_or(beats, |of| of.beats.count);
        thread::sleep(Duration::from_millis(50));
    }
    let said = cost.wait_with_output().unwrap().stdout;
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("on one session, connected"), "{said}");
    assert!(beats > 1_000_000, "{beats}");
    println!("{said}");
}

#[test]
fn so_has_one_of_32_bits() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("try.c");
    fs::write(
        &source,
        "#include <errno.h>\nint main(void) { return errno; }\n",
    )
    .unwrap();
    let compiles = Command::new("cc")
        .args(["-m32", "-o"])
        .args([&folder.path().join("try"), &source])
        .output();
    if !compiles.is_ok_and(|made| made.status.success()) {
        return println!("SKIPPED: no compiler for programs of 32 bits (Debian: gcc-multilib)");
    }
    has_sessions_threads_and_children(&["BITS=32"]);
}

fn has_sessions_threads_and_children(set: &[&str]) {
    let bench = Bench::new();
    let out = library(bench.folder.path(), &[&["all", "test"], set].concat());
    let mut child = Command::new(out.join("test"));
    child
        .env("SCX_HETERO_GOALS", bench.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut go_on = child.stdin.take().unwrap();
    let mut next = || lines.next().unwrap().unwrap();
    // Two sessions of one process, four threads that beat at once.
    assert_eq!(next(), "threads have beaten");
    let readings = bench.read();
    let names: Vec<&str> = readings.iter().map(|r| r.about.name.as_str()).collect();
    assert_eq!(names, ["video", "sound"]);
    assert_eq!(readings[0].beats.count, 40_000);
    assert_eq!(readings[0].target, GoalTarget::Rate(60_000));
    assert_eq!(readings[1].target, GoalTarget::Deadline(100_000));
    writeln!(go_on).unwrap();
    // A child of fork() has sessions of its own, from the beat on.
    assert_eq!(next(), "a child has beaten");
    let of_child: Vec<_> = bench.read().split_off(2);
    assert_eq!(of_child.len(), 1, "{of_child:?}");
    assert_ne!(of_child[0].about.tgid, child.id());
    assert_eq!(of_child[0].beats.count, 3);
    assert_eq!(of_child[0].target, GoalTarget::Rate(60_000));
    assert_eq!(bench.read()[0].beats.count, 40_000);
    writeln!(go_on).unwrap();
    assert_eq!(next(), "the child has ended");
    bench.until_there_are(2);
    writeln!(go_on).unwrap();
    // A process that any system call but read() and write() would have killed.
    let said = next();
    if said == "the clock takes calls" {
        println!("SKIPPED: whether beats take system calls: the clock takes them here");
    } else {
        assert_eq!(said, "beats took no call");
        let of_child: Vec<_> = bench.read().split_off(2);
        assert_eq!(of_child.len(), 1, "{of_child:?}");
        assert_eq!(of_child[0].beats.count, 10_000);
        writeln!(go_on).unwrap();
        assert_eq!(next(), "that process has ended");
        bench.until_there_are(2);
    }
    // And a program that dies takes its sessions with it.
    child.kill().unwrap();
    child.wait().unwrap();
    bench.until_there_are(0);
}

#[test]
fn the_header_is_c_plus_plus_as_well_and_pkg_config_finds_the_library() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("usr");
    let set = format!("PREFIX={}", prefix.display());
    library(folder.path(), &[&set, "install"]);
    let source = folder.path().join("try.cc");
    fs::write(
        &source,
        "#include <scx_hetero_heartbeat.h>\n\
         int main() { auto *hb = scx_hetero_hb_open(nullptr); scx_hetero_hb_beat(hb);\n\
         int n = (int)scx_hetero_hb_count(hb); scx_hetero_hb_close(hb); return n - 1; }\n",
    )
    .unwrap();
    let pkg = |arguments: &[&str], name: &str| {
        let output = Command::new("pkg-config")
            .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
            .args(arguments)
            .arg(name)
            .output();
        output.map(|output| String::from_utf8(output.stdout).unwrap())
    };
    let flags = match (
        pkg(&["--cflags", "--libs"], "scx_hetero_heartbeat"),
        Command::new("c++").arg("--version").output(),
    ) {
        (Ok(flags), Ok(_)) => flags,
        _ => return println!("SKIPPED: there is no pkg-config, or no c++"),
    };
    let program = folder.path().join("try");
    let make = |flags: &str| {
        let made = Command::new("c++")
            .args(["-Wall", "-Wextra", "-Werror", "-o"])
            .args([&program, &source])
            .args(flags.split_whitespace())
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
    };
    make(&flags);
    run(Command::new(&program).env("LD_LIBRARY_PATH", prefix.join("lib")));
    // The header of advice needs no library. Without a scheduler there is no advice.
    fs::write(
        &source,
        "#include <scx_hetero_advice.h>\n\
         int main() { static struct scx_hetero_advice advice = SCX_HETERO_ADVICE_INIT;\n\
         struct scx_hetero_advice_record now; advice.socket = \"/nothing\";\n\
         return scx_hetero_advice_changed(&advice) || !scx_hetero_advice_read(&advice, &now); }\n",
    )
    .unwrap();
    let flags = pkg(&["--cflags", "--libs"], "scx_hetero_advice").unwrap();
    assert!(!flags.contains("-l"), "{flags}");
    make(&flags);
    run(&mut Command::new(&program));
    for page in ["scx_hetero_advice.3", "scx_hetero_heartbeat.3"] {
        assert!(prefix.join("share/man/man3").join(page).exists(), "{page}");
    }
}

#[test]
fn the_example_in_python_beats() {
    let bench = Bench::new();
    let out = library(bench.folder.path(), &["all"]);
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("heartbeats/example.py");
    let mut python = Command::new("python3");
    python
        .arg(example)
        .args(["--rate", "1000", "--beats", "20"])
        .env("LD_LIBRARY_PATH", &out)
        .env("SCX_HETERO_GOALS", bench.path());
    if Command::new("python3").arg("--version").output().is_err() {
        return println!("SKIPPED: there is no python3");
    }
    let said = run(&mut python);
    assert!(said.contains("20 beats"), "{said}");
    bench.server.news().recv_timeout(LIMIT).unwrap();
    bench.until_there_are(0);
}

/// A display without a screen, and its name.
fn display() -> Option<(Ends, String)> {
    // Without -noreset the server begins anew when its last client has gone, and throws out one that connects just then.
    let server = Command::new("Xvfb")
        .args(["-displayfd", "1", "-nolisten", "tcp", "-noreset"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut server = Ends(server.ok()?);
    let mut number = String::new();
    let mut says = BufReader::new(server.0.stdout.take()?);
    says.read_line(&mut number).unwrap();
    (!number.is_empty()).then(|| (server, format!(":{}", number.trim())))
}

/// Mesa's driver for CPUs, as the loader finds it.
fn driver() -> Option<PathBuf> {
    let drivers = fs::read_dir("/usr/share/vulkan/icd.d").ok()?.flatten();
    let mut drivers = drivers.filter(|of| of.file_name().to_string_lossy().starts_with("lvp_icd"));
    drivers.next().map(|of| of.path())
}

/// A bench, and what shows pictures by Vulkan there with the layer.
struct Pictures {
    bench: Bench,
    display: String,
    driver: PathBuf,
    _server: Ends,
}

const WANTED: [(&str, &str); 2] = [("SCX_HETERO_FRAMES", "1"), ("SCX_HETERO_RATE", "59.94")];

impl Pictures {
    fn new() -> Option<Self> {
        let has_headers = Path::new("/usr/include/vulkan/vk_layer.h").exists();
        let has_cube = Command::new("vkcube").arg("--help").output().is_ok();
        let (Some((server, display)), Some(driver), true, true) =
            (display(), driver(), has_headers, has_cube)
        else {
            println!(
                "SKIPPED: Vulkan's headers, vkcube, Mesa's driver for CPUs or Xvfb is missing ('testbed/setup tests')"
            );
            return None;
        };
        let bench = Bench::new();
        let folder = bench.folder.path();
        let prefix = format!("PREFIX={}", folder.join("usr").display());
        library(folder, &[&prefix, "install-frames"]);
        Some(Self {
            bench,
            display,
            driver,
            _server: server,
        })
    }

    /// `program`, which starts Khronos' cube if need be: it asks the device for what shows pictures, as DXVK does.
    fn cube(&self, mut program: Command, said: &[(&str, &str)]) -> Command {
        let folder = self.bench.folder.path();
        program
            .env("DISPLAY", &self.display)
            .env("XDG_DATA_HOME", folder.join("usr/share"))
            .env("XDG_RUNTIME_DIR", folder)
            .env("VK_DRIVER_FILES", &self.driver)
            .envs(said.iter().copied())
            .stdout(Stdio::null());
        program
    }

    /// Starts it, and waits for twenty of its beats.
    fn shows(&self, mut cube: Command) -> (Ends, SessionReading) {
        let mut shows = Ends(cube.spawn().unwrap());
        until("pictures", || {
            assert!(shows.0.try_wait().unwrap().is_none(), "vkcube has ended");
            self.bench
                .read()
                .iter()
                .any(|session| session.beats.count >= 20)
        });
        let mut sessions = self.bench.read();
        assert_eq!(sessions.len(), 1, "{sessions:?}");
        let session = sessions.remove(0);
        assert_eq!(session.target, GoalTarget::Rate(59_940));
        (shows, session)
    }
}

#[test]
fn a_picture_by_vulkan_is_a_beat_also_where_the_device_is_asked_for_the_function() {
    let Some(pictures) = Pictures::new() else {
        return;
    };
    let bench = &pictures.bench;
    let cube = |said: &[(&str, &str)]| {
        let mut cube = Command::new("vkcube");
        cube.env("SCX_HETERO_GOALS", bench.path());
        pictures.cube(cube, said)
    };
    let (shows, session) = pictures.shows(cube(&WANTED));
    assert_eq!(session.about.tgid, shows.0.id());
    drop(shows);
    bench.until_there_are(0);

    // Whatever is said, the program runs; and without the word for it nothing is loaded that could say anything.
    let (on, fast) = (("SCX_HETERO_FRAMES", "1"), ("SCX_HETERO_RATE", "fast"));
    for (said, told) in [(&[on, fast][..], true), (&[on], true), (&[fast], false)] {
        let output = cube(said).args(["--c", "30"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said:?}: {text}");
        assert_eq!(text.contains("no goal"), told, "{said:?}: {text}");
        assert!(bench.read().is_empty(), "{said:?}");
    }
}

#[test]
fn a_picture_is_a_beat_in_a_container_that_has_the_folder_of_the_socket() {
    let Some(pictures) = Pictures::new() else {
        return;
    };
    let bench = &pictures.bench;
    // As Steam's: a user namespace, and a /run of its own but for what is asked for.
    let container = |program: &str| {
        let mut contained = Command::new("bwrap");
        contained
            .args([
                "--die-with-parent",
                "--unshare-user",
                "--dev-bind",
                "/",
                "/",
            ])
            .args(["--tmpfs", "/run", "--bind"])
            .arg(bench.path().parent().unwrap())
            .args(["/run/scx_hetero", program]);
        contained
    };
    if !container("true")
        .output()
        .is_ok_and(|ran| ran.status.success())
    {
        return println!("SKIPPED: no containers here, or no bwrap ('testbed/setup tests')");
    }
    let (shows, session) = pictures.shows(pictures.cube(container("vkcube"), &WANTED));
    assert_eq!(session.about.name, "vkcube");
    drop(shows);
    bench.until_there_are(0);
}
