// SPDX-License-Identifier: GPL-2.0-only
//! What may take long at the end of a connection or a thread, and how long is waited for it.
//!
//! A descriptor that a user sends along (`SCM_RIGHTS`) may be the last reference to a socket with `SO_LINGER`, whose
//! close waits for its peer, or be a file on FUSE, whose close waits for its server, unkillably. Either can be
//! that user's.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use log::warn;
use nix::libc::{self, c_int, socklen_t};

/// Whether a socket takes descriptors at all; else senders get `EPERM`. Connections have it from their listener.
/// Since Linux 6.16.
const SO_PASSRIGHTS: c_int = 83;

/// The longest that a thread is waited for.
pub(crate) const LONGEST: Duration = Duration::from_secs(5);

/// Between two looks whether it has ended.
const GLANCE: Duration = Duration::from_millis(1);

/// From now on the kernel refuses descriptors at a socket, and at those that connect to it. It does not where it is
/// too old for the scheduler.
///
/// # Errors
/// As setsockopt(2).
pub(crate) fn refuse_descriptors(socket: &impl AsFd) -> io::Result<()> {
    match take_descriptors(socket, false) {
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
        outcome => outcome,
    }
}

fn take_descriptors(socket: &impl AsFd, takes: bool) -> io::Result<()> {
    let value = c_int::from(takes);
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is borrowed for the call, which reads one int.
    let outcome = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const value).cast(),
            size_of::<c_int>() as socklen_t,
        )
    };
    match outcome {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits for a thread that was told to end, but not for long: whatever holds it up, the scheduler ends. What it leaves; `None`
/// where it does not end in time, or has panicked.
pub(crate) fn join_in_time<T>(thread: JoinHandle<T>) -> Option<T> {
    join_within(thread, LONGEST)
}

/// The same, for no longer than `limit`.
pub(crate) fn join_within<T>(thread: JoinHandle<T>, limit: Duration) -> Option<T> {
    let began = Instant::now();
    while !thread.is_finished() {
        if began.elapsed() >= limit {
            let name = thread.thread().name().unwrap_or("unnamed");
            warn!("the thread '{name}' has not ended within {limit:?}, and is left behind");
            return None;
        }
        thread::sleep(GLANCE);
    }
    thread.join().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use std::io::IoSlice;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn a_thread_that_does_not_end_is_left_behind() {
        let limit = Duration::from_millis(20);
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let hangs = thread::spawn(move || {
            let _ = ended.recv();
        });
        assert_eq!(join_within(hangs, limit), None);
        drop(end);
        let ends = thread::spawn(|| 7);
        assert_eq!(join_within(ends, Duration::from_secs(60)), Some(7));
    }

    #[test]
    fn connections_to_a_socket_that_refuses_descriptors_refuse_them_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        if let Err(error) = take_descriptors(&listener, true) {
            assert_eq!(error.raw_os_error(), Some(libc::ENOPROTOOPT));
            return;
        }
        let send = |stream: &UnixStream| {
            let fds = [stream.as_fd()];
            let mut space = [std::mem::MaybeUninit::uninit(); 64];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
            let bytes = [IoSlice::new(b"x")];
            sendmsg(stream, &bytes, &mut control, SendFlags::NOSIGNAL)
        };
        assert!(send(&UnixStream::connect(&path).unwrap()).is_ok());
        refuse_descriptors(&listener).unwrap();
        let refused = send(&UnixStream::connect(&path).unwrap());
        assert_eq!(refused, Err(rustix::io::Errno::PERM));
    }
}
