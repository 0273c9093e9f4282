// SPDX-License-Identifier: GPL-2.0-only
//! Runs programs together, each started again when it ends.
//!
//! A thread for each program starts it and waits for it, and does nothing else. Migrations are
//! counted by an event of the kernel on that thread, which counts from the program's `exec` on and
//! is inherited by all that it starts.

use std::os::unix::process::CommandExt;
use std::process::{self, Child, ExitStatus, Stdio};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use crossbeam::channel::{Receiver, after, unbounded};
use crossbeam::select;
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use super::method::CompletionTimes;
use crate::pmc::perf::{How, PerfEvent, What};
use crate::text::plain;
use crate::topology::cpulist;

/// A program to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// As mixes write it, with its number of threads.
    pub program: String,
    /// What starts it: a program and its arguments.
    pub words: Vec<String>,
}

impl Command {
    /// As a shell takes it, in one line: so it is the same once it was written to a file and read.
    pub fn line(&self) -> String {
        let words = self.words.iter().map(String::as_str);
        let line = shlex::try_join(words).unwrap_or_else(|_| self.words.join(" "));
        plain(&line).into_owned()
    }
}

/// How programs are run together.
#[derive(Clone, Copy, Debug)]
pub struct MixPlan<'a> {
    /// The programs.
    pub commands: &'a [Command],
    /// In which order they start, all at once.
    pub order: &'a [usize],
    /// Only on these CPUs.
    pub cpus: Option<&'a [u32]>,
    /// So often must each of them end.
    pub runs: usize,
    /// The longest it may take.
    pub limit: Duration,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct MixOutcome {
    /// By program, the seconds of each of its completed runs.
    pub times: Vec<Vec<f64>>,
    /// How long it took, s.
    pub seconds: f64,
    /// How often their threads changed CPUs; `None` where the kernel does not let us count that.
    pub migrations: Option<u64>,
}

/// Runs them until each has ended often enough; `None` if `stop` came before.
///
/// # Errors
/// A program cannot be started, fails, or takes too long.
pub fn together(plan: &MixPlan, stop: &Receiver<()>) -> Result<Option<MixOutcome>> {
    ensure!(!plan.commands.is_empty(), "no programs to run");
    let slots: Vec<Slot> = plan.commands.iter().map(|_| Slot::default()).collect();
    let begin = Barrier::new(plan.commands.len() + 1);
    let (tell, ends) = unbounded();
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for &program in plan.order {
            let (command, slot, begin) = (&plan.commands[program], &slots[program], &begin);
            let tell = tell.clone();
            let tell = move |end| drop(tell.send((program, end)));
            threads.push(scope.spawn(move || {
                let (bound, migrations) = (bind(plan.cpus), count_migrations());
                begin.wait();
                match bound {
                    Ok(()) => slot.keep_running(command, tell),
                    Err(error) => tell(Err(error)),
                }
                let counted = migrations?.read_group().ok()?;
                counted.values.first().copied()
            }));
        }
        begin.wait();
        let began = Instant::now();
        let tally = wait(plan, &ends, stop);
        let seconds = seconds_since(began);
        slots.iter().for_each(Slot::end);
        let migrations = threads
            .into_iter()
            .map(|thread| thread.join().ok().flatten());
        let migrations: Option<u64> = migrations.sum();
        Ok(tally?.map(|tally| MixOutcome {
            times: tally.into_times(),
            seconds,
            migrations,
        }))
    })
}

/// In whole microseconds: finer is noise, and files keep these exactly.
fn seconds_since(began: Instant) -> f64 {
    began.elapsed().as_micros() as f64 / 1e6
}

/// How a run of a program ended: after so many seconds, with that status.
type End = Result<(f64, ExitStatus)>;

fn wait(
    plan: &MixPlan,
    ends: &Receiver<(usize, End)>,
    stop: &Receiver<()>,
) -> Result<Option<CompletionTimes>> {
    let mut tally = CompletionTimes::new(plan.commands.len(), plan.runs);
    let late = after(plan.limit);
    loop {
        select! {
            recv(ends) -> end => {
                let (program, end) = end.context("a thread died")?;
                let command = &plan.commands[program];
                let (seconds, status) = end?;
                if !status.success() {
                    bail!(
                        "'{}' failed ({status}): try it by itself: {}",
                        command.program,
                        command.line()
                    );
                }
                if tally.ended(program, seconds) {
                    return Ok(Some(tally));
                }
            }
            recv(stop) -> _ => return Ok(None),
            recv(late) -> _ => {
                let last = tally.last().map_or("", |last| &plan.commands[last].program);
                bail!(
                    "'{last}' did not end {} times within {:.0} s",
                    plan.runs,
                    plan.limit.as_secs_f64()
                );
            }
        }
    }
}

/// Lets the calling thread, and what it starts from now on, run on these CPUs only.
fn bind(cpus: Option<&[u32]>) -> Result<()> {
    let Some(cpus) = cpus else { return Ok(()) };
    let mut set = CpuSet::new();
    let all = || format!("cannot run on CPUs {}", cpulist::format(cpus));
    for &cpu in cpus {
        set.set(cpu as usize).with_context(all)?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).with_context(all)
}

/// Counts migrations of what the calling thread will start; `None` without the right to.
fn count_migrations() -> Option<PerfEvent> {
    let how = How {
        on_exec: true,
        ..How::default()
    };
    PerfEvent::open(What::Migrations, how, None).ok()
}

/// The place of a program: its process now, and whether it shall not be started again.
#[derive(Default)]
struct Slot(Mutex<Running>);

#[derive(Default)]
struct Running {
    pid: Option<Pid>,
    over: bool,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Running> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the program over and over, and tells of each end, until it shall not be started again
    /// or cannot be.
    fn keep_running(&self, command: &Command, tell: impl Fn(End)) {
        while let Some(end) = self.run(command).transpose() {
            let failed = end.is_err();
            tell(end);
            if failed {
                break;
            }
        }
    }

    /// Runs the program once; `None` if it was ended.
    fn run(&self, command: &Command) -> Result<Option<(f64, ExitStatus)>> {
        let mut running = self.lock();
        if running.over {
            return Ok(None);
        }
        let began = Instant::now();
        let mut child = start(command)?;
        let pid = Pid::from_raw(child.id() as i32);
        running.pid = Some(pid);
        drop(running);
        // It stays a zombie: until it is reaped below, its number is nobody else's.
        let wait = || waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
        while wait() == Err(Errno::EINTR) {}
        let seconds = seconds_since(began);
        let mut running = self.lock();
        running.pid = None;
        // What it left behind would run beside its next run.
        let _ = killpg(pid, Signal::SIGKILL);
        let status = child.wait().context("cannot wait for a program")?;
        Ok((!running.over).then_some((seconds, status)))
    }

    /// Ends the program, and all that it started.
    fn end(&self) {
        let mut running = self.lock();
        running.over = true;
        if let Some(pid) = running.pid {
            let _ = killpg(pid, Signal::SIGKILL);
        }
    }
}

fn start(command: &Command) -> Result<Child> {
    let [program, arguments @ ..] = &command.words[..] else {
        bail!("'{}' has no command", command.program);
    };
    let mut process = process::Command::new(program);
    process.args(arguments).process_group(0);
    process.stdin(Stdio::null()).stdout(Stdio::null());
    end_with_us(&mut process);
    process
        .spawn()
        .with_context(|| format!("cannot run '{program}', which is '{}'", command.program))
}

/// However we end, the process ends with us: else it would disturb whoever measures next. The thread that starts it is
/// to live as long as it.
pub fn end_with_us(process: &mut process::Command) {
    // SAFETY: between fork and exec this only makes a system call.
    unsafe {
        process.pre_exec(|| Ok(set_pdeathsig(Signal::SIGKILL)?));
    }
}

#[cfg(test)]
mod tests {
    use crossbeam::channel::{bounded, never};

    use super::*;

    fn shell(script: &str) -> Command {
        Command {
            program: "p".into(),
            words: ["sh", "-c", script].map(String::from).to_vec(),
        }
    }

    fn run(scripts: &[&str], limit: u64, stop: &Receiver<()>) -> Result<Option<MixOutcome>> {
        let commands: Vec<_> = scripts.iter().map(|script| shell(script)).collect();
        let order: Vec<usize> = (0..commands.len()).rev().collect();
        let plan = MixPlan {
            commands: &commands,
            order: &order,
            cpus: None,
            runs: 3,
            limit: Duration::from_secs(limit),
        };
        together(&plan, stop)
    }

    #[test]
    fn a_command_of_two_lines_is_the_same_once_it_was_written_and_read() {
        let line = shell("true\ntrue").line();
        let written = serde_json::to_string(&line).unwrap();
        assert_eq!(
            hetero_core::parse::json::<serde_json::Value>(&written).unwrap(),
            line
        );
    }

    #[test]
    fn each_is_started_again_until_all_have_ended_often_enough() {
        let outcome = run(&["exit 0", "sleep 0.05"], 60, &never())
            .unwrap()
            .unwrap();
        assert!(outcome.times[0].len() >= 3);
        assert_eq!(outcome.times[1].len(), 3);
        assert!(outcome.times[1].iter().all(|&seconds| seconds >= 0.05));
        assert!(outcome.seconds >= 0.15);
    }

    #[test]
    fn who_fails_or_is_not_there_is_named() {
        let error = |scripts: &[&str]| run(scripts, 60, &never()).unwrap_err().to_string();
        let failed = error(&["sleep 60", "exit 7"]);
        assert!(failed.contains("'p' failed (exit status: 7)"), "{failed}");
        assert!(failed.contains("sh -c 'exit 7'"), "{failed}");
        let mut nothing = shell("");
        nothing.words = vec!["/nowhere/nothing".into()];
        assert!(format!("{:#}", start(&nothing).unwrap_err()).contains("'/nowhere/nothing'"));
    }

    #[test]
    fn who_takes_too_long_is_ended() {
        let error = run(&["sleep 60", "exit 0"], 0, &never()).unwrap_err();
        assert!(error.to_string().contains("did not end 3 times"), "{error}");
        let (sender, stop) = bounded(1);
        sender.send(()).unwrap();
        assert!(run(&["sleep 60"], 60, &stop).unwrap().is_none());
    }
}
