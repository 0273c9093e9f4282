// SPDX-License-Identifier: GPL-2.0-only
//! What schedules: attaches it, and sees that it is the one that stays attached.

use std::collections::VecDeque;
use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader, PipeReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Arg, ArgAction, Args as _, ValueEnum};
use crossbeam::channel::Receiver;
use hetero_core::output::WrongUsage;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::processes::end_with_us;
use crate::policy;
use crate::scheduler::NAME;
use crate::scheduler::args::SchedulerArgs;
use crate::sim::library::nearest;
use crate::text::plain;

const SYSFS: &str = "/sys/kernel/sched_ext";

/// How long attaching may take: the verifier needs minutes for some schedulers on slow machines.
const ATTACH: Duration = Duration::from_secs(900);
/// How long detaching may take.
const DETACH: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(100);

/// Lines of a scheduler's output that are kept, to tell what it said last.
const KEPT: usize = 3;

/// A scheduler by the words of `--scheduler`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BenchScheduler {
    /// As given.
    pub name: String,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// The kernel's own.
    Default,
    /// scx_hetero with a policy and its arguments.
    Ours(Vec<String>),
    /// Any other command.
    Other(Vec<String>),
}

impl FromStr for BenchScheduler {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let words = shlex::split(text).context("a quote is not closed")?;
        let first = words.first().context("which scheduler?")?;
        let kind = if first == "default" {
            ensure!(words.len() == 1, "'default' takes no arguments");
            Kind::Default
        } else if policy::Name::from_str(first, false).is_ok() {
            Kind::Ours(words)
        } else {
            Kind::Other(words)
        };
        let name = text.trim().to_string();
        Ok(Self { name, kind })
    }
}

impl BenchScheduler {
    /// Where it stands among others: the kernel's own, then policies in their order, then others.
    pub fn place(name: &str) -> (usize, usize, &str) {
        let first = name.split_whitespace().next().unwrap_or_default();
        let policies = policy::Name::value_variants().iter();
        let policy = policy::Name::from_str(first, false).ok();
        match policy.and_then(|policy| policies.clone().position(|p| *p == policy)) {
            Some(place) => (1, place, name),
            None if first == "default" => (0, 0, name),
            None => (2, 0, name),
        }
    }

    /// The start of the name by which the kernel knows it, or a part of it.
    fn is(&self, ops: &str) -> bool {
        match &self.kind {
            Kind::Default => false,
            Kind::Ours(_) => ops.starts_with("hetero"),
            Kind::Other(words) => {
                let program = Path::new(&words[0]).file_name().unwrap_or_default();
                let program = program.to_string_lossy();
                ops.contains(program.strip_prefix("scx_").unwrap_or(&program))
            }
        }
    }

    /// Whether it can be started, as far as that can be told beforehand.
    ///
    /// # Errors
    /// In words: it is no command, or a policy has no such options.
    pub fn check(&self) -> Result<()> {
        match &self.kind {
            Kind::Default => Ok(()),
            Kind::Ours(words) => {
                let words = [NAME, "--policy"]
                    .into_iter()
                    .chain(words.iter().map(String::as_str));
                // And what else it takes that does not keep it from scheduling.
                let others = [
                    Arg::new("verbose")
                        .short('v')
                        .long("verbose")
                        .action(ArgAction::SetTrue),
                    Arg::new("stats").long("stats"),
                ];
                let asked = SchedulerArgs::augment_args(clap::Command::new(NAME)).args(others);
                let asked = asked
                    .allow_negative_numbers(true)
                    .try_get_matches_from(words);
                let Err(wrong) = asked else {
                    return Ok(());
                };
                let said = wrong.render().to_string();
                let said = said.split("\n\nUsage").next().unwrap_or_default();
                let said = plain(said.trim_start_matches("error: "));
                Err(WrongUsage(format!("scheduler '{}': {said}", self.name)).into())
            }
            Kind::Other(words) => {
                if is_command(&words[0]) {
                    return Ok(());
                }
                let policies = policy::Name::value_variants().iter();
                let policies: Vec<String> = policies.map(ToString::to_string).collect();
                let known = policies.iter().map(String::as_str).chain(["default"]);
                let meant = nearest(&words[0], known);
                let meant =
                    meant.map_or(String::new(), |known| format!("; did you mean '{known}'?"));
                Err(WrongUsage(format!(
                    "scheduler '{}' is neither a policy nor a command that can be run{meant}",
                    words[0]
                ))
                .into())
            }
        }
    }

    /// Starts it and waits until it schedules; `None` if `stop` came before.
    ///
    /// # Errors
    /// It did not attach, or another one did, and what it said last.
    pub fn attach(&self, stop: &Receiver<()>) -> Result<Option<Attached<'_>>> {
        let nobody = Status::read(Path::new(SYSFS));
        ensure!(
            nobody.state == "disabled",
            "{} is attached ({}): stop it first (for instance: systemctl stop scx, or scxctl stop)",
            if nobody.ops.is_empty() {
                "a sched_ext scheduler"
            } else {
                &nobody.ops
            },
            nobody.state,
        );
        let mut command = match &self.kind {
            Kind::Default => return Ok(Some(Attached::new(self, nobody, None))),
            Kind::Ours(words) => {
                let ours = std::env::current_exe().context("cannot find scx_hetero itself")?;
                let mut command = Command::new(ours);
                command.arg("--policy").args(words);
                // What one run has taught would count in the next: the order of runs would matter.
                if !words.iter().any(|word| word.starts_with("--knowledge")) {
                    command.arg("--knowledge=off");
                }
                command
            }
            Kind::Other(words) => {
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]);
                command
            }
        };
        let process = Process::start(&mut command)
            .with_context(|| format!("cannot run scheduler '{}'", self.name))?;
        // From here on it is ended, whatever happens.
        let mut attached = Attached::new(self, nobody, Some(process));
        let began = Instant::now();
        loop {
            attached.status = Status::read(Path::new(SYSFS));
            if attached.status.state == "enabled" && !attached.status.ops.is_empty() {
                attached.check()?;
                return Ok(Some(attached));
            }
            attached.check_alive("before it attached")?;
            if began.elapsed() > ATTACH {
                bail!("it did not attach within {} s", ATTACH.as_secs());
            }
            if stop.recv_timeout(LOOK).is_ok() {
                return Ok(None);
            }
        }
    }
}

/// A scheduler that schedules; it is detached when this is dropped.
pub struct Attached<'a> {
    scheduler: &'a BenchScheduler,
    status: Status,
    process: Option<Process>,
}

impl<'a> Attached<'a> {
    fn new(scheduler: &'a BenchScheduler, status: Status, process: Option<Process>) -> Self {
        Self {
            scheduler,
            status,
            process,
        }
    }

    /// Whether it is still the one, without a break.
    ///
    /// # Errors
    /// It is not, and what it said last.
    pub fn check(&mut self) -> Result<()> {
        self.check_alive("while it was measured")?;
        let now = Status::read(Path::new(SYSFS));
        let is_ours = self.process.is_none() || self.scheduler.is(&now.ops);
        if now != self.status || !is_ours {
            let said = self.process.as_ref().map(Process::said);
            bail!(
                "not '{}' was attached, but {now}{}",
                self.scheduler.name,
                said.unwrap_or_default()
            );
        }
        Ok(())
    }

    fn check_alive(&mut self, when: &str) -> Result<()> {
        let Some(process) = &mut self.process else {
            return Ok(());
        };
        let ended = process.child.try_wait();
        if let Some(status) = ended.context("cannot wait for the scheduler")? {
            bail!("it ended {when} ({status}){}", process.said());
        }
        Ok(())
    }
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            process.end();
        }
    }
}

/// A scheduler's process, and what it said last.
struct Process {
    child: Child,
    last: Arc<Mutex<VecDeque<String>>>,
}

impl Process {
    fn start(command: &mut Command) -> Result<Self> {
        let (said, say) = std::io::pipe()?;
        command.stdin(Stdio::null());
        command.stdout(say.try_clone()?).stderr(say);
        // Ctrl-C is for us, and we end it.
        command.process_group(0);
        end_with_us(command);
        let child = command.spawn()?;
        let last = Arc::new(Mutex::new(VecDeque::new()));
        let keep = last.clone();
        thread::spawn(move || listen(said, &keep));
        Ok(Self { child, last })
    }

    /// What it said last, as the end of a sentence.
    fn said(&self) -> String {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &last.iter().cloned().collect::<Vec<_>>()[..] {
            [] => String::new(),
            lines => format!("; it said: {}", lines.join(" / ")),
        }
    }

    /// Asks it to end as Ctrl-C does, and after a while does not ask.
    fn end(&mut self) {
        let pid = Pid::from_raw(self.child.id() as i32);
        let began = Instant::now();
        let running = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        if running(&mut self.child) {
            let _ = kill(pid, Signal::SIGINT);
        }
        while running(&mut self.child) && began.elapsed() < DETACH {
            thread::sleep(LOOK);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let state = || Status::read(Path::new(SYSFS)).state;
        while state() != "disabled" && began.elapsed() < DETACH {
            thread::sleep(LOOK);
        }
    }
}

/// Whether there is such a file to be run, by its path or in `PATH`.
fn is_command(name: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut files = std::env::split_paths(&folders).map(|folder| folder.join(name));
    let runs = |path: &Path| {
        nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok() && path.is_file()
    };
    match name.contains('/') {
        true => runs(Path::new(name)),
        false => files.any(|file| runs(&file)),
    }
}

/// Takes in all that it says, so that it never waits for us, and keeps the end.
fn listen(said: PipeReader, last: &Mutex<VecDeque<String>>) {
    for line in BufReader::new(said).split(b'\n') {
        let Ok(line) = line else { break };
        let line = String::from_utf8_lossy(&line).trim().to_string();
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if !line.is_empty() {
            last.push_back(line);
        }
        if last.len() > KEPT {
            // What is wrong is said before what to do about it.
            let is_error = last[0].starts_with("error:");
            last.remove(usize::from(is_error));
        }
    }
}

/// What the kernel says of sched_ext.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Status {
    /// `disabled` also where there is no sched_ext.
    state: String,
    /// What is attached.
    ops: String,
    /// How often one was attached since boot.
    attached: String,
}

impl Status {
    fn read(sysfs: &Path) -> Self {
        let read = |file: &str| {
            let text = fs::read_to_string(sysfs.join(file)).unwrap_or_default();
            text.trim().to_string()
        };
        let state = read("state");
        Self {
            state: if state.is_empty() {
                "disabled".into()
            } else {
                state
            },
            ops: read("root/ops"),
            attached: read("enable_seq"),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state.as_str() {
            "disabled" => f.write_str("the kernel's own scheduler"),
            state => write!(f, "'{}' ({state})", self.ops),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scheduler(text: &str) -> BenchScheduler {
        text.parse().unwrap()
    }

    #[test]
    fn schedulers_are_ours_others_or_the_kernels() {
        assert_eq!(scheduler("default").kind, Kind::Default);
        let camps = scheduler("camps --fairness 50");
        assert!(matches!(&camps.kind, Kind::Ours(words) if words.len() == 3));
        let lavd = scheduler("/usr/bin/scx_lavd --performance");
        assert!(matches!(&lavd.kind, Kind::Other(words) if words.len() == 2));
        for bad in ["", "default -x", "scx_lavd 'x"] {
            assert!(bad.parse::<BenchScheduler>().is_err(), "{bad}");
        }
        assert!(camps.is("hetero") && !camps.is("lavd_1.1.4"));
        assert!(lavd.is("lavd_1.1.4_x86_64") && !lavd.is("hetero"));
    }

    #[test]
    fn what_cannot_be_started_is_told_beforehand() {
        for good in [
            "default",
            "camps",
            "camps -v --fairness 50 --stats 1",
            "sh -c x",
        ] {
            assert!(scheduler(good).check().is_ok(), "{good}");
        }
        for bad in ["defalt", "camps --fairnes 50", "/nowhere/scx_lavd"] {
            assert!(scheduler(bad).check().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_kernels_own_comes_first_and_others_last() {
        let mut names = ["scx_lavd", "camps", "none", "default", "camps --fairness 0"];
        names.sort_by_key(|name| BenchScheduler::place(name));
        assert_eq!(names[0], "default");
        assert_eq!(names[4], "scx_lavd");
    }

    #[test]
    fn the_kernel_says_who_is_attached() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        assert_eq!(Status::read(path).state, "disabled");
        fs::create_dir(path.join("root")).unwrap();
        fs::write(path.join("root/ops"), "lavd_1.1.4\n").unwrap();
        fs::write(path.join("state"), "enabled\n").unwrap();
        fs::write(path.join("enable_seq"), "3\n").unwrap();
        let status = Status::read(path);
        assert_eq!(status.to_string(), "'lavd_1.1.4' (enabled)");
        fs::write(path.join("enable_seq"), "4\n").unwrap();
        assert_ne!(Status::read(path), status, "it fell out and came back");
    }

    #[test]
    fn the_last_words_of_a_scheduler_are_kept() {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "for i in 1 2 3 4 5; do echo line $i; done; echo worse >&2",
        ]);
        let mut process = Process::start(&mut command).unwrap();
        process.child.wait().unwrap();
        let began = Instant::now();
        while !process.said().contains("worse") && began.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(process.said(), "; it said: line 4 / line 5 / worse");
    }
}
