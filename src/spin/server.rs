// SPDX-License-Identifier: GPL-2.0-only
//! The agent's side: a socket, and a thread that takes requests from it, so that the scheduler's
//! loop waits for none.
//!
//! Any process may send. The kernel says which one did, and a thread must be of that process: one that
//! lies, lies about itself. Nothing is kept here, not even a connection, so nothing can be filled
//! up: the BPF half keeps a word with the task that it belongs to.

use std::io::IoSliceMut;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use crossbeam::channel::{Receiver, Sender, bounded};
use log::debug;
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, UnixCredentials, recvmsg, setsockopt, sockopt::PassCred,
};

use super::SpinRequest;
use crate::connections::peer::is_thread_of;
use crate::connections::{SocketPlace, join_in_time, open_to_everybody, refuse_descriptors};

/// Requests that may wait for the loop. When there are more the thread waits, then the socket
/// fills, and senders try again a second later.
pub(crate) const WAITING: usize = 64;

/// After so many requests the thread rests, so that nobody can keep the agent, which goes before
/// all others, busy with them.
const BURST: u32 = 64;
const REST: Duration = Duration::from_millis(10);

/// After an error that is not about one datagram, so that one that persists costs next to nothing.
const PAUSE: Duration = Duration::from_secs(1);

/// The thread's stack, bytes; the agent's memory is locked.
const STACK: usize = 128 << 10;

/// A request that was found to be in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registration {
    /// The thread and its word.
    pub request: SpinRequest,
    /// Its process.
    pub tgid: u32,
}

/// Listens until dropped.
pub(crate) struct SpinServer {
    _place: SocketPlace,
    socket: UnixDatagram,
    over: Arc<AtomicBool>,
    registrations: Receiver<Registration>,
    thread: Option<JoinHandle<()>>,
}

impl SpinServer {
    /// Listens at `path`, in a directory that is made if need be. What is there gives way.
    ///
    /// # Errors
    /// What kept it from listening.
    pub(crate) fn start(path: &Path) -> Result<Self> {
        let (socket, place) = open_to_everybody(path, |path| {
            let socket = UnixDatagram::bind(path)?;
            refuse_descriptors(&socket)?;
            // The kernel is to say which process sends.
            setsockopt(&socket, PassCred, &true)?;
            Ok(socket)
        })?;

        let (sender, registrations) = bounded(WAITING);
        let over = Arc::new(AtomicBool::new(false));
        let (theirs, ended) = (socket.try_clone()?, over.clone());
        let thread = thread::Builder::new()
            .name("spin".into())
            .stack_size(STACK)
            .spawn(move || serve(&theirs, &ended, &sender))
            .context("cannot start a thread")?;
        Ok(Self {
            _place: place,
            socket,
            over,
            registrations,
            thread: Some(thread),
        })
    }

    /// What has been found to be in order.
    pub(crate) fn registrations(&self) -> &Receiver<Registration> {
        &self.registrations
    }
}

impl Drop for SpinServer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        // Lets it go if it waits for the loop.
        self.registrations = crossbeam::channel::never();
        if let Some(thread) = self.thread.take() {
            join_in_time(thread);
        }
    }
}

fn serve(socket: &UnixDatagram, over: &AtomicBool, sender: &Sender<Registration>) {
    for taken in 1.. {
        let received = receive(socket);
        if over.load(Ordering::Relaxed) {
            return;
        }
        match received {
            Ok(Some((request, tgid))) => {
                if !is_thread_of(request.tid, tgid) {
                    debug!("process {tgid} may not speak for thread {}", request.tid);
                } else if sender.send(Registration { request, tgid }).is_err() {
                    return;
                }
            }
            Ok(None) => debug!("a datagram at the spin socket is no request"),
            Err(Errno::EINTR) => {}
            // Only the end of the server ends it: no sender may have a say in that.
            Err(error) => {
                debug!("nothing can be read from the spin socket: {error}");
                thread::sleep(PAUSE);
            }
        }
        if taken % BURST == 0 {
            thread::sleep(REST);
        }
    }
}

/// A request, and the process that sent it; `None` if it is neither.
///
/// There is room for credentials alone. The kernel refuses descriptors to their sender: one that came would be closed
/// here, which can take as long as its user likes. A kernel that is too old for that writes credentials first, and says
/// that something was cut off: such a datagram is no request, either.
fn receive(socket: &UnixDatagram) -> nix::Result<Option<(SpinRequest, u32)>> {
    // One byte more than a request has, so that a longer datagram is told apart.
    let mut bytes = [0; SpinRequest::LEN + 1];
    let mut buffers = [IoSliceMut::new(&mut bytes)];
    let mut space = cmsg_space!(UnixCredentials);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut buffers, Some(&mut space), flags)?;
    let Ok(mut controls) = message.cmsgs() else {
        return Ok(None);
    };
    let sent_by = controls.find_map(|control| match control {
        ControlMessageOwned::ScmCredentials(credentials) => Some(credentials.pid()),
        _ => None,
    });
    let len = message.bytes;
    let request = SpinRequest::decode(&bytes[..len]);
    Ok(request.zip(sent_by.and_then(|pid| u32::try_from(pid).ok())))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use std::fs;
    use std::process::Command;

    /// Below a directory that is the test's own.
    const PLACE: &str = "new/spin.sock";

    /// A server in a directory of its own, and a socket to send from.
    fn start() -> (tempfile::TempDir, SpinServer, UnixDatagram) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(PLACE);
        let server = SpinServer::start(&path).unwrap();
        let client = UnixDatagram::unbound().unwrap();
        client.connect(&path).unwrap();
        (directory, server, client)
    }

    fn next(server: &SpinServer) -> Option<Registration> {
        // Long enough for any machine: a request that is lost is to fail, not to hang.
        let limit = Duration::from_secs(60);
        server.registrations().recv_timeout(limit).ok()
    }

    fn own(address: u64) -> SpinRequest {
        SpinRequest {
            tid: nix::unistd::gettid().as_raw() as u32,
            address,
        }
    }

    #[test]
    fn a_process_may_speak_for_its_own_threads() {
        let (directory, server, client) = start();
        client.send(&own(0x1000).encode()).unwrap();
        assert_eq!(
            next(&server),
            Some(Registration {
                request: own(0x1000),
                tgid: std::process::id(),
            })
        );
        // And any user may send.
        let path = directory.path().join(PLACE);
        let mode = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o666);
    }

    #[test]
    fn nobody_speaks_for_threads_of_others() {
        let (_directory, server, client) = start();
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        let foreign = SpinRequest {
            tid: other.id(),
            address: 0x1000,
        };
        client.send(&foreign.encode()).unwrap();
        client.send(&own(0x2000).encode()).unwrap();
        let first = next(&server);
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(first.unwrap().request, own(0x2000));
    }

    #[test]
    fn what_is_no_request_is_passed_over() {
        let (_directory, server, client) = start();
        client.send(b"").unwrap();
        client.send(b"spin").unwrap();
        client.send(&[1; 4096]).unwrap();
        client.send(&own(0x1000).encode()).unwrap();
        assert_eq!(next(&server).unwrap().request, own(0x1000));
    }

    #[test]
    fn descriptors_are_refused_or_neither_end_it_nor_pile_up() {
        use nix::sys::socket::{ControlMessage, sendmsg};
        use std::io::IoSlice;
        let (directory, server, client) = start();
        let sent = fs::File::create(directory.path().join("sent")).unwrap();
        for fds in [1, 3, 200] {
            let fds = vec![sent.as_raw_fd(); fds];
            let bytes = own(0x1000).encode();
            let sent = sendmsg::<()>(
                client.as_raw_fd(),
                &[IoSlice::new(&bytes)],
                &[ControlMessage::ScmRights(&fds)],
                MsgFlags::empty(),
                None,
            );
            // Since Linux 6.16 they are refused.
            assert!(matches!(sent, Ok(_) | Err(Errno::EPERM)), "{sent:?}");
        }
        client.send(&own(0x2000).encode()).unwrap();
        assert_eq!(next(&server).unwrap().request, own(0x2000));
        // Read, all of them are closed again: this test has the only one.
        let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let open = open.filter_map(|fd| fs::read_link(fd.path()).ok());
        let path = directory.path().join("sent");
        assert_eq!(open.filter(|of| *of == path).count(), 1);
    }

    #[test]
    fn it_ends_at_once_and_leaves_nothing() {
        let (directory, server, client) = start();
        // More than the loop takes: the thread waits for it.
        client.set_nonblocking(true).unwrap();
        for _ in 0..4 * WAITING {
            let _ = client.send(&own(0x1000).encode());
            thread::sleep(Duration::from_micros(100));
        }
        let path = directory.path().join(PLACE);
        drop(server);
        assert!(!path.exists());
        drop(directory);
    }

    #[test]
    fn one_that_has_begun_meanwhile_keeps_its_socket() {
        let (directory, first, _) = start();
        let path = directory.path().join(PLACE);
        let second = SpinServer::start(&path).unwrap();
        drop(first);
        let client = UnixDatagram::unbound().unwrap();
        client.send_to(&own(0x1000).encode(), &path).unwrap();
        assert!(next(&second).is_some());
    }

    #[test]
    fn what_a_killed_scheduler_left_gives_way() {
        let (directory, server, _) = start();
        let path = directory.path().join(PLACE);
        std::mem::forget(server);
        assert!(path.exists());
        let server = SpinServer::start(&path).unwrap();
        let client = UnixDatagram::unbound().unwrap();
        client.send_to(&own(0x1000).encode(), &path).unwrap();
        assert!(next(&server).is_some());
        drop((server, directory));
    }

    #[test]
    fn an_impossible_place_is_an_error_that_says_so() {
        let Err(error) = SpinServer::start(Path::new("/proc/none/spin.sock")) else {
            panic!("it listens in /proc");
        };
        assert!(error.to_string().contains("/proc/none"), "{error}");
    }
}
