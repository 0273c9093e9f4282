// SPDX-License-Identifier: GPL-2.0-only
//! What goes on while the program runs.

use std::collections::HashMap;
use std::io::{self, PipeReader};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use crossbeam::channel::{Receiver, RecvTimeoutError, bounded};
use hetero_heartbeats::{Heartbeat, HeartbeatOptions, HeartbeatTarget};
use log::{info, warn};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::RunArgs;
use super::events::{Happened, WatchedEvents, is_group, unknown};
use super::kind::{BeatKind, Output};
use super::libraries::places;
use super::passed::{PassedBeats, pass_on};
use crate::connections::peer::descends;
use crate::pmc::target::{Launcher, command, exit_code};
use crate::pmu::{Counter, CounterOptions, MachinePmus, Meaning, Target};
use crate::scheduler::priority::run_first;

/// How often it is looked whether there were beats.
const LOOK: Duration = Duration::from_millis(10);

/// Processes of which it is known whether they belong to the program.
const KNOWN: usize = 4096;

/// Processes that are looked up at a look.
const LOOKUPS: usize = 256;

/// How long what a program has printed may take after its end.
const REST: Duration = Duration::from_secs(1);

/// Instructions of the program and all that it starts, on every core type.
struct Instructions {
    counters: Vec<Counter>,
    each: u64,
    told: u64,
}

impl Instructions {
    fn open(each: u64, tid: i32) -> Result<Self> {
        let options = CounterOptions {
            // Without it everybody may count; and it is the program's own work.
            exclude_kernel: true,
            inherit: true,
            ..CounterOptions::default()
        };
        let mut counters = Vec::new();
        for pmu in &MachinePmus::detect().pmus {
            if let Some(encoding) = pmu.meaning(Meaning::Instructions) {
                let target = Target::Thread(tid);
                counters.push(Counter::open(pmu, &encoding, target, None, options)?);
            }
        }
        ensure!(
            !counters.is_empty(),
            "this machine cannot count instructions: 'scx_hetero doctor' says why"
        );
        Ok(Self {
            counters,
            each,
            told: 0,
        })
    }

    /// Beats since the last call.
    fn beats(&mut self) -> u64 {
        let counts = self.counters.iter().flat_map(Counter::read).map(|reading| {
            // Where others count, too, it was counted for a part of the time.
            let part = reading.enabled as f64 / reading.running.max(1) as f64;
            (reading.value as f64 * part) as u64
        });
        let all = counts.sum::<u64>() / self.each;
        let beats = all.saturating_sub(self.told);
        self.told += beats;
        beats
    }
}

/// Where beats come from.
enum Source {
    /// From a thread that passes on what the program prints; it tells its end.
    Passed(Receiver<()>),
    Functions(WatchedEvents),
    Tracepoint(WatchedEvents),
    Instructions(Instructions),
}

/// Runs the program; the exit status is its own.
///
/// # Errors
/// It cannot be run, or its beats cannot be seen.
pub(in crate::goals) fn run(args: &RunArgs, stop: &Arc<AtomicBool>) -> Result<u8> {
    let beat = match &args.beat {
        BeatKind::Either(first, second) => {
            let files = vec![first.clone()];
            let is_tracepoint = match is_group(first) {
                Some(known) => known,
                None => {
                    places(&files, second).map_err(|error| unknown(&error))?;
                    false
                }
            };
            match is_tracepoint {
                true => &BeatKind::Tracepoint(first.clone(), second.clone()),
                false => &BeatKind::Function(files, second.clone()),
            }
        }
        beat => beat,
    };
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
    let tid = launcher.tid;
    // All that may fail does before the program has started.
    let source = match beat {
        BeatKind::Function(files, symbol) => Some(Source::Functions(WatchedEvents::functions(
            &places(files, symbol)?,
        )?)),
        BeatKind::Tracepoint(group, name) => Some(Source::Tracepoint(WatchedEvents::tracepoint(
            group, name, tid,
        )?)),
        BeatKind::Instructions(each) => Some(Source::Instructions(Instructions::open(*each, tid)?)),
        _ => None,
    };
    let (pid, end) = launcher.start(&args.command[0])?;
    // With it goes the end of the pipe that the program has.
    launcher.end();
    let voice = Voice::new(args, u32::try_from(pid)?)?;
    let source = match (source, pipe) {
        (Some(source), _) => source,
        (None, pipe) => {
            let (pipe, output) = pipe.context("where do beats come from?")?;
            Source::Passed(listen(pipe, output, passed, voice.heartbeat.clone())?)
        }
    };
    voice.follow(source, stop, &end)
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
            Output::Stderr => pass_on(pipe, io::stderr().lock(), beats, tell),
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
    /// The process that was started.
    pid: u32,
    /// Whether a process is of the program.
    known: HashMap<u32, bool>,
    begin: Instant,
}

impl<'a> Voice<'a> {
    fn new(args: &'a RunArgs, pid: u32) -> Result<Self> {
        Ok(Self {
            args,
            heartbeat: Arc::new(open(args, pid)?),
            pid,
            known: HashMap::new(),
            begin: Instant::now(),
        })
    }

    /// Until the program ends; its exit status.
    fn follow(
        mut self,
        mut source: Source,
        stop: &AtomicBool,
        end: &Receiver<std::process::ExitStatus>,
    ) -> Result<u8> {
        // Beside a crowd an ordinary thread saw beats up to four seconds late, and the program was given all that there was
        // meanwhile, so that the thread got still less. What there is to see in a look is bounded by its buffers.
        if !matches!(source, Source::Passed(_))
            && let Err(why) = run_first()
        {
            warn!("beats may be seen late beside many busy threads: no real-time priority ({why})");
        }
        let mut told = false;
        let status = loop {
            let ended = end.recv_timeout(LOOK);
            match &mut source {
                Source::Passed(_) => {}
                Source::Instructions(instructions) => match instructions.beats() {
                    0 => {}
                    beats => self.heartbeat.beats(beats),
                },
                Source::Functions(events) => {
                    let happened = events.drain();
                    let mut left = LOOKUPS;
                    let own = happened.into_iter();
                    let own = own.filter(|one| self.is_own(one.pid, &mut left));
                    let own: Vec<Happened> = own.collect();
                    self.beat(&own);
                }
                // All that it sees is of the program.
                Source::Tracepoint(events) => self.beat(&events.drain()),
            }
            match ended {
                Ok(status) => break status,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    anyhow::bail!("it is not known how the command has ended")
                }
            }
            if !told && self.begin.elapsed() > REST {
                told = true;
                let state = self.heartbeat.state();
                if state != "connected" {
                    warn!("the program has no goal yet: {state}");
                }
            }
            if stop.swap(false, Ordering::Relaxed) {
                let _ = kill(Pid::from_raw(self.pid as i32), Signal::SIGTERM);
            }
        };
        if let Source::Passed(passed) = &source {
            // A child that it has left behind may have the pipe for ever.
            let _ = passed.recv_timeout(REST);
        }
        if let Source::Functions(events) | Source::Tracepoint(events) = &source
            && events.lost > 0
        {
            warn!("{} events came too fast to be counted", events.lost);
        }
        self.sum_up();
        Ok(exit_code(status))
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

    /// Whether a process is the program's, or one that it has started. Those of other users may call the same function, as
    /// many as they like: of those that are not known some are looked up, and what the rest does is no beat.
    fn is_own(&mut self, pid: u32, left: &mut usize) -> bool {
        if let Some(&own) = self.known.get(&pid) {
            return own;
        }
        let Some(one_less) = left.checked_sub(1) else {
            return false;
        };
        *left = one_less;
        if self.known.len() >= KNOWN {
            self.known.retain(|_, own| *own);
        }
        if self.known.len() >= KNOWN {
            self.known.clear();
        }
        let own = pid == self.pid || descends(pid, self.pid);
        self.known.insert(pid, own);
        own
    }

    fn beat(&self, happened: &[Happened]) {
        for one in happened {
            self.heartbeat.beats_between(1, 0, one.at_ns);
        }
    }
}

fn open(args: &RunArgs, pid: u32) -> Result<Heartbeat> {
    let command = Path::new(&args.command[0]);
    let name = command.file_name().map(|name| name.to_string_lossy());
    Heartbeat::open(HeartbeatOptions {
        name: args.name.as_deref().or(name.as_deref()).unwrap_or_default(),
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
