// SPDX-License-Identifier: GPL-2.0-only
//! What goes on while the program runs.

use std::fs;
use std::io::{self, PipeReader};
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use crossbeam::channel::{Receiver, RecvTimeoutError, TryRecvError, bounded};
use hetero_heartbeats::{Heartbeat, HeartbeatOptions, HeartbeatTarget};
use log::{info, warn};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::RunArgs;
use super::events::Happened;
use super::kind::{BeatKind, Output};
use super::own::OwnProcesses;
use super::passed::{PassedBeats, pass_on};
use super::source::{BeatSource, decided};
use crate::connections::peer::{Process, parent};
use crate::pmc::target::{Launcher, command, exit_code};
use crate::scheduler::priority::run_first;

/// How often it is looked whether there were beats.
const LOOK: Duration = Duration::from_millis(10);

/// How long what a program has printed may take after its end.
const REST: Duration = Duration::from_secs(1);

/// Runs a program, or watches one that runs; the exit status is the program's own, where it is run.
///
/// # Errors
/// It cannot be run, or its beats cannot be seen.
pub(in crate::goals) fn run(args: &RunArgs, stop: &Arc<AtomicBool>) -> Result<u8> {
    let beat = decided(&args.beat, args.pid)?;
    match args.pid {
        Some(pid) => watch(args, &beat, pid, stop).map(|()| 0),
        None => start(args, &beat, stop),
    }
}

fn start(args: &RunArgs, beat: &BeatKind, stop: &AtomicBool) -> Result<u8> {
    let too_long = || format!("no socket can be at {}", args.goals.display());
    SocketAddr::from_pathname(&args.goals).with_context(too_long)?;
    let mut command = command(&args.command)?;
    let (pipe, passed) = match beat {
        BeatKind::Lines(output) => (Some(output), PassedBeats::lines()),
        BeatKind::Bytes(output, each) => (Some(output), PassedBeats::bytes(*each)),
        _ => (None, PassedBeats::lines()),
    };
    let pipe = pipe
        .map(|output| pipe_of(&mut command, *output))
        .transpose()?;
    let launcher = Launcher::new(command)?;
    // What may fail does so before the program has started, as far as that can be.
    let source = BeatSource::of_command(beat, &args.command[0], launcher.tid)?;
    let (pid, end) = launcher.start(&args.command[0])?;
    // With it goes the end of the pipe that the program has.
    launcher.end();
    let status = go_along(args, pid, &end, (source, pipe, passed), stop);
    if status.is_err() && end.try_recv() == Err(TryRecvError::Empty) {
        // It is not left behind without its goal.
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        let _ = end.recv();
    }
    status.map(exit_code)
}

/// Until the program that was started has ended.
fn go_along(
    args: &RunArgs,
    pid: i32,
    end: &Receiver<ExitStatus>,
    (source, pipe, passed): (
        Option<BeatSource>,
        Option<(PipeReader, Output)>,
        PassedBeats,
    ),
    stop: &AtomicBool,
) -> Result<ExitStatus> {
    let name = Path::new(&args.command[0]).file_name();
    let name = name.map(|name| name.to_string_lossy());
    let voice = Voice::new(args, u32::try_from(pid)?, &name.unwrap_or_default())?;
    let source = match (source, pipe) {
        (Some(source), _) => source,
        (None, pipe) => {
            let (pipe, output) = pipe.context("where do beats come from?")?;
            BeatSource::Passed(listen(pipe, output, passed, voice.heartbeat.clone())?)
        }
    };
    voice.follow(source, || {
        if stop.swap(false, Ordering::Relaxed) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        match end.recv_timeout(LOOK) {
            Ok(status) => Ok(Some(status)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                anyhow::bail!("it is not known how the command has ended")
            }
        }
    })
}

/// Until the process ends, or this program is to.
fn watch(args: &RunArgs, beat: &BeatKind, pid: u32, stop: &AtomicBool) -> Result<()> {
    let process = Process::of(pid).with_context(|| {
        format!("there is no process {pid}: 'pgrep NAME' finds those that there are")
    })?;
    let source = BeatSource::of_process(beat, pid, stop)?;
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let voice = Voice::new(args, pid, String::from_utf8_lossy(&name).trim_end())?;
    info!("process {pid} is watched until Ctrl-C, or until it ends");
    voice.follow(source, || {
        thread::sleep(LOOK);
        let over = stop.load(Ordering::Relaxed) || !process.lives();
        Ok(over.then_some(()))
    })
}

/// Has the program print into a pipe.
fn pipe_of(command: &mut Command, output: Output) -> Result<(PipeReader, Output)> {
    let (reader, writer) = io::pipe().context("cannot make a pipe")?;
    match output {
        Output::Stdout => command.stdout(writer),
        Output::Stderr => command.stderr(writer),
    };
    Ok((reader, output))
}

/// Passes on and counts, in a thread, which ends as the pipe does.
fn listen(
    pipe: PipeReader,
    output: Output,
    beats: PassedBeats,
    heartbeat: Arc<Heartbeat>,
) -> Result<Receiver<()>> {
    let (ended, end) = bounded::<()>(0);
    let work = move || {
        let tell = |n| heartbeat.beats(n);
        // That nobody reads it any more the program is told by the pipe.
        let _ = match output {
            Output::Stdout => pass_on(pipe, io::stdout().lock(), beats, tell),
            // Not locked: what this program says itself goes there, too.
            Output::Stderr => pass_on(pipe, io::stderr(), beats, tell),
        };
        drop(ended);
    };
    let thread = thread::Builder::new().name("passes on".into());
    thread.spawn(work).context("cannot start a thread")?;
    Ok(end)
}

/// Speaks for the program.
struct Voice<'a> {
    args: &'a RunArgs,
    heartbeat: Arc<Heartbeat>,
    own: OwnProcesses,
    begin: Instant,
}

impl<'a> Voice<'a> {
    fn new(args: &'a RunArgs, pid: u32, name: &str) -> Result<Self> {
        Ok(Self {
            args,
            heartbeat: Arc::new(open(args, pid, name)?),
            own: OwnProcesses::of(pid),
            begin: Instant::now(),
        })
    }

    /// Until the program has `ended`, which waits for the next look as well; what that says.
    fn follow<T>(
        mut self,
        mut source: BeatSource,
        mut ended: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        // Beside a crowd an ordinary thread saw beats up to four seconds late, and the program was given all that there was
        // meanwhile, so that the thread got still less. What there is to see in a look is bounded by its buffers.
        if !matches!(source, BeatSource::Passed(_))
            && let Err(why) = run_first()
        {
            warn!("beats may be seen late beside many busy threads: no real-time priority ({why})");
        }
        let (mut told, mut lost) = (false, false);
        let end = loop {
            let end = ended()?;
            match &mut source {
                BeatSource::Passed(_) => {}
                BeatSource::Instructions(instructions) => match instructions.beats() {
                    0 => {}
                    beats => self.heartbeat.beats(beats),
                },
                BeatSource::OfAll(events) => {
                    let mut happened = events.drain();
                    self.own.begin_look();
                    happened.retain(|one| self.own.contains(one.pid, parent));
                    self.beat(&happened);
                }
                BeatSource::Own(events) => self.beat(&events.drain()),
            }
            if let Some(end) = end {
                break end;
            }
            if let BeatSource::OfAll(events) | BeatSource::Own(events) = &source
                && events.lost > 0
                && !lost
            {
                lost = true;
                warn!("events come too fast to be counted: beats are missing");
            }
            if !told && self.begin.elapsed() > REST {
                told = true;
                self.warn_without_goal("yet");
            }
        };
        if let BeatSource::Passed(passed) = &source {
            // A child that it has left behind may have the pipe for ever.
            let _ = passed.recv_timeout(REST);
        }
        if lost && let BeatSource::OfAll(events) | BeatSource::Own(events) = &source {
            warn!("{} events came too fast to be counted", events.lost);
        }
        if !told {
            self.warn_without_goal("so far");
        }
        self.sum_up();
        Ok(end)
    }

    fn warn_without_goal(&self, when: &str) {
        let state = self.heartbeat.state();
        if state != "connected" {
            warn!("the program has had no goal {when}: {state}");
        }
    }

    fn sum_up(&self) {
        let beats = self.heartbeat.count();
        let seconds = self.begin.elapsed().as_secs_f64();
        let rate = self.heartbeat.global_rate();
        let rate = rate.map_or_else(String::new, |rate| format!(", {rate:.2} per second"));
        info!(
            "{beats} beats in {seconds:.1} s{rate}; the goal is {}",
            self.args.rate
        );
    }

    fn beat(&self, happened: &[Happened]) {
        for one in happened {
            self.heartbeat.beats_between(1, 0, one.at_ns);
        }
    }
}

fn open(args: &RunArgs, pid: u32, name: &str) -> Result<Heartbeat> {
    Heartbeat::open(HeartbeatOptions {
        name: args.name.as_deref().unwrap_or(name),
        target: HeartbeatTarget::Rate(args.rate),
        weight: args.weight.unwrap_or(0),
        pid,
        // What does the work may be a child of what was started: a script, say.
        children: true,
        socket: Some(&args.goals),
        ..HeartbeatOptions::default()
    })
    .with_context(|| format!("cannot open a session at {}", args.goals.display()))
}
