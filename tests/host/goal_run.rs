// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero goal run`: programs that know nothing of goals, and what they are seen to do.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::program::{Ends, command};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use scx_hetero::goals::{GoalServer, GoalTarget, SessionReading};

/// So long a test waits for what must come.
const LIMIT: Duration = Duration::from_secs(60);

fn until<T>(what: &str, mut so: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(there) = so() {
            return there;
        }
        assert!(begin.elapsed() < LIMIT, "in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// `goal run` without a scheduler.
fn goal_run(options: &[&str], program: &[&str]) -> Command {
    let mut run = command(&[&["goal", "run"], options, &["--"], program].concat());
    run.env("SCX_HETERO_GOALS", "/proc/none/goals.sock");
    run
}

/// What it says at its end.
fn beats(said: &[u8]) -> Option<u64> {
    let said = String::from_utf8_lossy(said);
    let before = said.split(" beats in ").next()?;
    before
        .rsplit(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

#[test]
fn what_a_program_prints_is_passed_on_and_counted_and_its_status_is_its_own() {
    let script = "echo a; echo b >&2; printf 'c\\nd'; exit 7";
    let output = goal_run(&["--rate", "5"], &["sh", "-c", script])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(output.stdout, b"a\nc\nd");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("b\n") && said.contains("the goal is 5"),
        "{said}"
    );
    assert_eq!(beats(&output.stderr), Some(2), "{said}");

    let output = goal_run(&["--rate", "5", "--beat", "bytes:stderr=10"], &["sh", "-c"])
        .arg("printf '%025d' 0 >&2; echo not this")
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"not this\n");
    assert!(output.stderr.starts_with(&[b'0'; 25]));
    assert_eq!(beats(&output.stderr), Some(2));
}

#[test]
fn what_cannot_be_is_told_before_anything_is_run() {
    let folder = tempfile::tempdir().unwrap();
    let touched = folder.path().join("touched");
    let touch = ["touch", touched.to_str().unwrap()];
    for (beat, why) in [
        ("frames", "vulkan"),
        ("libnowhere:f", "no library or program 'libnowhere'"),
        ("libc:fopenn", "it has fopen"),
        ("libc:vkQueuePresentKHR", "no function vkQueuePresentKHR"),
        ("./nowhere:main", "cannot read ./nowhere"),
        ("tracepoint:no_such:thing", "tracepoint"),
    ] {
        let output = goal_run(&["--rate", "5", "--beat", beat], &touch)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(why),
            "{beat}: {said}"
        );
        assert!(!touched.exists(), "{beat}");
    }
    let output = goal_run(&["--rate", "5"], &touch)
        .env("SCX_HETERO_GOALS", "/long".repeat(30))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("no socket can be at /long"),
        "{said}"
    );
    assert!(!touched.exists());
    for rate in ["0", "NaN", "-3", "1e9", "inf", "fast"] {
        let output = goal_run(&[&format!("--rate={rate}")], &touch)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{rate}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("beats per second"), "{rate}: {said}");
    }
    let output = goal_run(&["--rate", "5"], &["/nowhere/x"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cannot run '/nowhere/x'"), "{said}");
}

#[test]
fn the_scheduler_is_told_of_the_child_and_of_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("goals.sock");
    let server = GoalServer::start(&path).unwrap();
    let read = || {
        let mut readings = Vec::new();
        server.sessions().refresh(|| false);
        server.sessions().read(&mut readings);
        readings
    };
    // It prints what it is given.
    let mut run = goal_run(
        &["--rate", "12.5", "--weight", "300", "--name", "mine"],
        &["cat"],
    )
    .env("SCX_HETERO_GOALS", &path)
    .stdin(Stdio::piped())
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    let mut cat = run.stdin.take().unwrap();
    writeln!(cat, "one\ntwo").unwrap();
    let beats = |n| move |reading: &SessionReading| reading.beats.count == n;
    let reading = until("beats", || read().into_iter().find(beats(2)));
    assert_eq!(reading.target, GoalTarget::Rate(12_500));
    assert_eq!((reading.about.name.as_str(), reading.weight), ("mine", 300));
    assert!(reading.about.children);
    let comm = fs::read_to_string(format!("/proc/{}/comm", reading.about.tgid));
    assert_eq!(comm.unwrap(), "cat\n");
    writeln!(cat, "three").unwrap();
    until("another", || read().into_iter().find(beats(3)));
    // What ends it ends the program.
    kill(Pid::from_raw(run.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(
        run.wait().unwrap().code(),
        Some(128 + Signal::SIGTERM as i32)
    );
    until("the end", || read().is_empty().then_some(()));
    let mut text = String::new();
    run.stdout.unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "one\ntwo\nthree\n");
}

#[test]
fn that_nobody_reads_any_more_the_program_notices() {
    let mut run = goal_run(&["--rate", "5"], &["yes"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut bytes = [0; 100];
    run.stdout.take().unwrap().read_exact(&mut bytes).unwrap();
    assert_eq!(
        run.wait().unwrap().code(),
        Some(128 + Signal::SIGPIPE as i32)
    );
}

#[test]
fn what_is_said_at_the_end_does_not_wait_for_those_that_still_may_print_to_stderr() {
    let script = "sleep 1000 >/dev/null & echo $!; echo a >&2";
    let options = ["--rate", "5", "--beat", "lines:stderr"];
    let mut run = goal_run(&options, &["sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut printed = BufReader::new(run.stdout.take().unwrap());
    printed.read_line(&mut line).unwrap();
    let status = until("the end", || run.try_wait().unwrap());
    kill(Pid::from_raw(line.trim().parse().unwrap()), Signal::SIGKILL).unwrap();
    assert!(status.success(), "{status}");
    let mut said = Vec::new();
    run.stderr.unwrap().read_to_end(&mut said).unwrap();
    assert!(said.starts_with(b"a\n"));
    assert_eq!(beats(&said), Some(1));
}

/// Compiles a C program or library into `folder`.
fn made(folder: &Path, name: &str, text: &str, options: &[&str]) -> PathBuf {
    let (source, made) = (folder.join(format!("{name}.c")), folder.join(name));
    fs::write(&source, text).unwrap();
    let mut cc = Command::new("cc");
    cc.arg("-o").args([&made, &source]).args(options);
    assert!(cc.status().unwrap().success());
    made
}

/// A program that does 50 steps, in a process of its own.
fn steps(folder: &Path) -> PathBuf {
    let text = "#include <unistd.h>\n\
                __attribute__((noinline)) void one_step(void) { __asm__ volatile(\"\"); }\n\
                int main(void) { for (int i = 0; i < 50; i++) { one_step(); usleep(1000); }\n\
                return 3; }\n";
    made(folder, "steps", text, &[])
}

/// Whether calls cannot be watched here, which is said.
fn cannot_be_watched(said: &str) -> bool {
    let skipped = said.contains("cannot be watched") || said.contains("cannot watch");
    if skipped {
        println!("SKIPPED: {said}");
    }
    skipped
}

#[test]
fn calls_of_a_function_are_beats_also_of_a_program_that_a_script_starts() {
    let folder = tempfile::tempdir().unwrap();
    let program = steps(folder.path());
    let program = program.to_str().unwrap();
    let beat = format!("{program}:one_step");
    let near = goal_run(
        &["--rate", "5", "--beat", &format!("{program}:one_stop")],
        &["true"],
    )
    .output()
    .unwrap();
    let said = String::from_utf8_lossy(&near.stderr);
    assert!(said.contains("it has one_step"), "{said}");

    // Another that runs at the same time is not this one.
    let mut other = Command::new(program).spawn().unwrap();
    for script in [format!("exec {program}"), format!("{program}; exit $?")] {
        let output = goal_run(&["--rate", "5", "--beat", &beat], &["sh", "-c", &script])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if cannot_be_watched(&said) {
            break;
        }
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert_eq!(beats(&output.stderr), Some(50), "{said}");
    }
    other.wait().unwrap();
}

#[test]
fn a_preset_is_a_call_of_the_function_that_ends_a_picture() {
    for (preset, library, function) in [
        ("vulkan", "libvulkan.so.1", "vkQueuePresentKHR"),
        ("egl", "libEGL.so.1", "eglSwapBuffers"),
        ("glx", "libGL.so.1", "glXSwapBuffers"),
        ("x264", "libx264.so.164", "x264_encoder_encode"),
        ("ffmpeg", "libavcodec.so.61", "avcodec_send_frame"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().to_str().unwrap();
        let shared = |name: &str, head: &str, inner: &str| {
            let text = format!("{head}void {function}(void) {{ {inner} }}\n");
            made(
                folder.path(),
                name,
                &text,
                &["-shared", "-fPIC", "-Wl,-rpath,$ORIGIN"],
            )
        };
        const NOTHING: &str = "__asm__ volatile(\"\");";
        let library = if preset == "glx" {
            // As libglvnd has it: a function of each name, and one calls the other.
            shared("libGLX.so.0", "", NOTHING);
            let forward = format!(
                "((void (*)(void))dlsym(dlopen(\"libGLX.so.0\", RTLD_LAZY), \"{function}\"))();"
            );
            shared(library, "#include <dlfcn.h>\n", &forward)
        } else {
            shared(library, "", NOTHING)
        };
        let text = format!(
            "void {function}(void);\n\
             int main(void) {{ for (int i = 0; i < 50; i++) {function}(); return 3; }}\n"
        );
        let options = [library.to_str().unwrap(), "-Wl,-rpath,$ORIGIN"];
        let program = made(folder.path(), "pictures", &text, &options);
        let options = ["--rate", "5", "--beat", preset];
        let output = goal_run(&options, &[program.to_str().unwrap()])
            .env("LD_LIBRARY_PATH", at)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if cannot_be_watched(&said) {
            continue;
        }
        assert_eq!(output.status.code(), Some(3), "{preset}: {said}");
        assert_eq!(beats(&output.stderr), Some(50), "{preset}: {said}");
    }
}

#[test]
fn a_tracepoint_is_a_beat_where_there_are_tracepoints() {
    let beat = ["--rate", "5", "--beat", "syscalls:sys_enter_nanosleep"];
    let clock = [
        "--rate",
        "5",
        "--beat",
        "tracepoint:sched:sched_process_exec",
    ];
    for options in [clock, beat] {
        let output = goal_run(&options, &["sh", "-c", "env true; env true"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            let listed = ["tracing", "debug/tracing"];
            let listed = listed.map(|root| format!("/sys/kernel/{root}/events/sched"));
            if !listed.iter().any(|group| Path::new(group).is_dir()) {
                let (status, told) = match nix::unistd::geteuid().is_root() {
                    true => (1, "'mount -t tracefs"),
                    false => (3, "it takes root"),
                };
                assert_eq!(output.status.code(), Some(status), "{options:?}: {said}");
                assert!(said.contains(told), "{options:?}: {said}");
            }
            println!("SKIPPED: {said}");
            continue;
        }
        if options == clock {
            // Each env, and what it becomes; that of the shell itself need not be seen.
            assert!(beats(&output.stderr).unwrap() >= 4, "{said}");
        }
    }
}

#[test]
fn instructions_are_beats_where_they_can_be_counted() {
    let options = ["--rate", "5", "--beat", "instructions=1M"];
    let script = "i=0; while [ $i -lt 30000 ]; do i=$((i + 1)); done";
    let output = goal_run(&options, &["sh", "-c", script]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return println!("SKIPPED: {said}");
    }
    assert!(beats(&output.stderr).unwrap() >= 1, "{said}");
}

/// `goal run` of a process that runs.
fn goal_watch(options: &[&str], pid: u32) -> Command {
    let pid = pid.to_string();
    let mut watch = command(&[&["goal", "run", "--rate", "5", "-p", &pid], options].concat());
    watch.env("SCX_HETERO_GOALS", "/proc/none/goals.sock");
    watch
}

/// A process that does 50 steps at a line, says so, and ends at the next.
struct Waiting(Ends);

impl Waiting {
    fn start(program: &Path) -> Self {
        let mut one = Command::new(program);
        let one = one.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(Ends(one.spawn().unwrap()))
    }

    fn go_on(&mut self) {
        writeln!(self.0.stdin.as_mut().unwrap()).unwrap();
    }

    fn step(&mut self) {
        self.go_on();
        let done = self.0.stdout.as_mut().unwrap().read_exact(&mut [0; 5]);
        done.unwrap();
    }
}

/// Starts to watch a process by such beats, and what is said from then on; `None` where that cannot be, and is told.
fn watched(beat: &str, pid: u32) -> Option<(Child, impl BufRead)> {
    let mut watch = goal_watch(&["--beat", beat], pid);
    let mut watch = watch.stderr(Stdio::piped()).spawn().unwrap();
    let mut says = BufReader::new(watch.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("is watched until") {
        if says.read_line(&mut line).unwrap() > 0 {
            continue;
        }
        let status = watch.wait().unwrap();
        let refused = [
            "cannot be watched",
            "cannot watch",
            "cannot be looked up",
            "cannot be counted",
        ];
        let is_refused = refused.iter().any(|why| line.contains(why));
        assert!(!status.success() && is_refused, "{beat}: {line}");
        println!("SKIPPED: {line}");
        return None;
    }
    Some((watch, says))
}

#[test]
fn a_process_that_runs_is_watched_until_that_or_itself_ends() {
    let folder = tempfile::tempdir().unwrap();
    let text = "#include <unistd.h>\n\
                __attribute__((noinline)) void one_step(void) { __asm__ volatile(\"\"); }\n\
                static void line(void) { char c; while (read(0, &c, 1) == 1 && c != '\\n'); }\n\
                int main(void) { line(); for (int i = 0; i < 50; i++) { one_step(); usleep(1000); }\n\
                if (write(1, \"done\\n\", 5) == 5) line(); return 3; }\n";
    let program = made(folder.path(), "goes-on", text, &[]);
    let by_path = format!("{}:one_step", program.display());
    let both = |one: &mut Waiting| {
        // Another that does the same is not this one.
        let mut other = Waiting::start(&program);
        other.step();
        one.step();
    };
    // It lies where no program is looked for, but the process has it loaded.
    let by_name = "goes-on:one_step";
    for beat in [
        by_path.as_str(),
        by_name,
        "tracepoint:syscalls:sys_enter_clock_nanosleep",
        "instructions=1k",
    ] {
        let mut one = Waiting::start(&program);
        let Some((mut watch, mut says)) = watched(beat, one.0.id()) else {
            continue;
        };
        both(&mut one);
        kill(Pid::from_raw(watch.id() as i32), Signal::SIGINT).unwrap();
        let mut said = Vec::new();
        says.read_to_end(&mut said).unwrap();
        assert!(watch.wait().unwrap().success(), "{beat}");
        let beats = beats(&said).unwrap();
        let is_right = match beat.starts_with("instructions") {
            true => beats > 0,
            false => beats == 50,
        };
        assert!(is_right, "{beat}: {beats}");
        assert!(one.0.try_wait().unwrap().is_none(), "{beat}");

        // Its end is the other's.
        let mut one = Waiting::start(&program);
        let (mut watch, mut says) = watched(beat, one.0.id()).unwrap();
        both(&mut one);
        one.go_on();
        assert_eq!(one.0.wait().unwrap().code(), Some(3));
        says.read_to_end(&mut said).unwrap();
        assert!(watch.wait().unwrap().success(), "{beat}");
    }
}

#[test]
fn what_cannot_be_of_a_process_that_runs_is_told() {
    let own = std::process::id();
    for (options, pid, why) in [
        (&[][..], own, "name another --beat"),
        (&["--beat", "bytes=1k"], own, "name another --beat"),
        (
            &["--beat", "vulkan"],
            i32::MAX as u32,
            "there is no process 2147483647",
        ),
    ] {
        let output = goal_watch(options, pid).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(why), "{said}");
    }
    for wrong in [
        &["-p", "0", "--beat", "vulkan"][..],
        &["-p", "1", "--", "true"],
        &[],
    ] {
        let output = command(&[&["goal", "run", "--rate", "5"], wrong].concat())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}
