// SPDX-License-Identifier: GPL-2.0-only
//! Which process a client may speak for: its own; one that it has started, and that has not become
//! another user's since; as root any.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::{PeerCredentials, PeerPidfd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Ancestors that are looked at.
const GENERATIONS: usize = 64;

/// A process that cannot be taken for a later one with its number.
#[derive(Debug)]
pub(crate) struct Process {
    /// Its number.
    pub tgid: u32,
    pidfd: OwnedFd,
}

impl Process {
    /// The one with this number; `None` if there is none.
    pub(crate) fn of(tgid: u32) -> Option<Self> {
        let pid = Pid::from_raw(i32::try_from(tgid).ok()?)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        Some(Self { tgid, pidfd })
    }

    /// Whether it has not ended.
    pub(crate) fn lives(&self) -> bool {
        let mut ended = [false];
        which_ended([self].into_iter(), &mut ended);
        !ended[0]
    }
}

/// Which of these have ended, in one system call. As with a failure, none of those that do not fit.
pub(crate) fn which_ended<'a>(processes: impl Iterator<Item = &'a Process>, ended: &mut [bool]) {
    let fds =
        processes.map(|process| PollFd::from_borrowed_fd(process.pidfd.as_fd(), PollFlags::IN));
    let mut fds: Vec<PollFd> = fds.collect();
    if poll(&mut fds, Some(&Timespec::default())).is_ok() {
        for (fd, ended) in fds.iter().zip(ended) {
            *ended = !fd.revents().is_empty();
        }
    }
}

/// What has connected.
#[derive(Debug)]
pub(crate) struct Peer {
    /// The user.
    pub uid: u32,
    pid: u32,
    /// Until it has a session.
    process: Option<Process>,
}

impl Peer {
    /// Of a connection.
    ///
    /// # Errors
    /// The kernel does not tell, in words.
    pub(crate) fn of(stream: &UnixStream) -> Result<Self, String> {
        let credentials = getsockopt(stream, PeerCredentials);
        let credentials = credentials.map_err(|_| "the kernel does not tell who connects")?;
        let pid = u32::try_from(credentials.pid()).ok().filter(|&pid| pid > 0);
        let pid = pid.ok_or("the scheduler cannot see your process: another PID namespace?")?;
        let pidfd = getsockopt(stream, PeerPidfd);
        let pidfd = pidfd.map_err(|_| "the kernel does not tell who connects, or it has ended")?;
        let process = Some(Process { tgid: pid, pidfd });
        Ok(Self {
            uid: credentials.uid(),
            pid,
            process,
        })
    }

    /// The process that it speaks for: itself, or that with this number.
    ///
    /// # Errors
    /// It may not, in words.
    pub(crate) fn process(&mut self, tgid: Option<u32>) -> Result<Process, String> {
        let Some(tgid) = tgid.filter(|&tgid| tgid != self.pid) else {
            let own = self.process.take().filter(Process::lives);
            return own.ok_or_else(|| "the process has ended".into());
        };
        let gone = || format!("there is no process {tgid}");
        let process = Process::of(tgid).ok_or_else(gone)?;
        let may = self.uid == 0 || (uids(tgid) == Some([self.uid; 3]) && self.has_started(tgid));
        // What was read is of this process if it has lived all the while.
        if !process.lives() {
            return Err(gone());
        }
        match may {
            true => Ok(process),
            false => Err(format!(
                "process {tgid} is neither yours nor one that you have started; root may speak for all"
            )),
        }
    }

    fn has_started(&self, tgid: u32) -> bool {
        descends(tgid, self.pid)
    }
}

/// Whether a process was started by another, or by one that was.
pub(crate) fn descends(mut tgid: u32, from: u32) -> bool {
    for _ in 0..GENERATIONS {
        match parent(tgid) {
            Some(parent) if parent == from => return true,
            Some(parent) if parent > 1 => tgid = parent,
            _ => return false,
        }
    }
    false
}

/// The process that has started another, or has adopted it since.
pub(crate) fn parent(tgid: u32) -> Option<u32> {
    status(tgid, "PPid:")?.trim().parse().ok()
}

/// A line of what the kernel tells of a process. Unlike `/proc/PID/stat` that takes no longer the more threads it has.
fn status(tgid: u32, name: &str) -> Option<String> {
    // Its name is of any bytes, with none that ends a line.
    let status = fs::read(format!("/proc/{tgid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix(name))?;
    Some(line.to_string())
}

/// Real, effective and saved.
pub(crate) fn uids(tgid: u32) -> Option<[u32; 3]> {
    let line = status(tgid, "Uid:")?;
    let mut uids = line.split_whitespace().map(|uid| uid.parse().ok());
    Some([uids.next()??, uids.next()??, uids.next()??])
}

/// Whether `tid` is a thread of process `tgid`.
pub(crate) fn is_thread_of(tid: u32, tgid: u32) -> bool {
    Path::new(&format!("/proc/{tgid}/task/{tid}")).exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::process::{Command, Stdio};

    #[test]
    fn a_child_is_one_that_was_started_and_a_parent_is_not() {
        let (stream, _other) = UnixStream::pair().unwrap();
        let mut peer = Peer::of(&stream).unwrap();
        let own = std::process::id();
        assert_eq!(peer.pid, own);
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(peer.has_started(child.id()));
        assert!(!peer.has_started(own) && !peer.has_started(1));
        // As if this were not root's.
        peer.uid = uids(own).unwrap()[0];
        assert_eq!(peer.process(Some(child.id())).unwrap().tgid, child.id());
        peer.uid += 1;
        let refused = peer.process(Some(child.id())).unwrap_err();
        assert!(refused.contains("neither yours"), "{refused}");
        assert_eq!(peer.process(None).unwrap().tgid, own);

        let process = Peer::of(&stream).unwrap();
        let process = Peer { uid: 0, ..process }.process(Some(child.id()));
        let process = process.unwrap();
        assert!(process.lives());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!process.lives());
        let mut root = Peer::of(&stream).unwrap();
        root.uid = 0;
        let refused = root.process(Some(child.id())).unwrap_err();
        assert!(refused.contains("no process"), "{refused}");
        assert!(root.process(Some(u32::MAX)).is_err());
    }

    #[test]
    fn a_process_may_be_called_anything() {
        let rename = r"printf '\377\nPPid:\t1)' >/proc/$$/comm; echo; read line";
        let mut child = Command::new("sh")
            .args(["-c", rename])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = [0];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut told)
            .unwrap();
        let found = (parent(child.id()), uids(child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
        let own = std::process::id();
        assert_eq!(found, (Some(own), uids(own)));
    }

    #[test]
    fn own_threads_are_known() {
        let own = std::process::id();
        assert!(is_thread_of(own, own));
        assert!(!is_thread_of(1, own));
    }
}
