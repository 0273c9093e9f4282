// SPDX-License-Identifier: GPL-2.0-only
//! What to count: a command that is about to start, or a process that runs.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow, bail};
use crossbeam::channel::{Receiver, Sender, bounded};

/// A thread that starts the command once its counters are open: the command inherits them, and
/// they begin to count when it becomes itself. Nothing else is run in this thread meanwhile, so
/// that it is not counted when its counters are switched.
pub(crate) struct Launcher {
    /// The thread's id.
    pub tid: i32,
    start: Sender<()>,
    started: Receiver<std::io::Result<Child>>,
    thread: JoinHandle<()>,
}

impl Launcher {
    /// Makes the thread, which will start this.
    pub(crate) fn new(mut command: Command) -> Result<Self> {
        let (start, wait) = bounded::<()>(0);
        let (tell, started) = bounded(1);
        let (say, said) = bounded(1);
        let thread = thread::spawn(move || {
            let _ = say.send(own_tid());
            if wait.recv().is_ok() {
                let _ = tell.send(command.spawn());
                // Until the launcher is dropped.
                let _ = wait.recv();
            }
        });
        let tid = said.recv().context("a thread died")??;
        Ok(Self {
            tid,
            start,
            started,
            thread,
        })
    }

    /// Starts the command; its process id, and how it ends.
    pub(crate) fn start(&self, name: &str) -> Result<(i32, Receiver<ExitStatus>)> {
        self.start.send(()).context("a thread died")?;
        let child = self.started.recv().context("a thread died")?;
        let mut child = child.with_context(|| format!("cannot run '{name}'"))?;
        let pid = child.id() as i32;
        let (ended, end) = bounded(1);
        thread::spawn(move || {
            if let Ok(status) = child.wait() {
                let _ = ended.send(status);
            }
        });
        Ok((pid, end))
    }

    /// Ends the thread.
    pub(crate) fn end(self) {
        drop(self.start);
        let _ = self.thread.join();
    }
}

/// A program with its arguments.
pub(crate) fn command(words: &[String]) -> Result<Command> {
    let [program, arguments @ ..] = words else {
        bail!("which command?");
    };
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

fn own_tid() -> Result<i32> {
    let link = fs::read_link("/proc/thread-self").context("cannot read /proc/thread-self")?;
    let name = link.file_name().and_then(|name| name.to_str());
    name.and_then(|name| name.parse().ok())
        .ok_or_else(|| anyhow!("/proc/thread-self makes no sense"))
}

/// The status that a shell gives a command that ended so.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|signal| signal + 128);
    let code = status.code().or(signal).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

/// The threads of a process.
pub(crate) fn threads(pid: u32) -> Result<Vec<i32>> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).map_err(|_| {
        anyhow!("there is no process {pid}: 'pgrep NAME' finds those that there are")
    })?;
    let tids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut tids: Vec<i32> = tids.collect();
    tids.sort_unstable();
    Ok(tids)
}

/// Whether a process is still there and not just waiting to be reaped.
pub(crate) fn lives(pid: u32) -> bool {
    // Its name may be of any bytes.
    let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let stat = String::from_utf8_lossy(&stat);
    let state = stat.rsplit(") ").next().unwrap_or_default();
    !state.starts_with(['Z', 'X']) || threads(pid).is_ok_and(|tids| tids.len() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_as_a_shell_tells_them() {
        assert_eq!(exit_code(ExitStatus::from_raw(0)), 0);
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(exit_code(ExitStatus::from_raw(9)), 137);
    }

    #[test]
    fn a_command_starts_when_told_and_tells_its_end() {
        let launcher =
            Launcher::new(command(&["sh", "-c", "exit 7"].map(String::from)).unwrap()).unwrap();
        assert_ne!(launcher.tid, 0);
        let (_, end) = launcher.start("sh").unwrap();
        assert_eq!(exit_code(end.recv().unwrap()), 7);
        launcher.end();
        let launcher = Launcher::new(Command::new("/nowhere/nothing")).unwrap();
        let error = launcher.start("/nowhere/nothing").unwrap_err();
        assert!(format!("{error:#}").contains("cannot run '/nowhere/nothing'"));
        launcher.end();
    }

    #[test]
    fn this_process_has_threads_and_lives() {
        let pid = std::process::id();
        assert!(threads(pid).unwrap().contains(&(pid as i32)));
        assert!(lives(pid));
        assert!(!lives(u32::MAX));
        assert!(threads(u32::MAX).is_err());
    }
}
