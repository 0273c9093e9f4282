// SPDX-License-Identifier: GPL-2.0-only
//! Takes sessions in, in a thread of its own: the scheduler's loop waits for no program.
//!
//! Any user may connect; each connection has one session at most, which ends with it, or with its
//! process. What that may cost is bounded: sessions, of each user, too; requests per second; bytes and
//! descriptors of a request.

use std::cell::RefCell;
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use crossbeam::channel::{Receiver, Sender, bounded};
use log::debug;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::io::ioctl_fionread;
use rustix::net::sockopt::set_socket_oobinline;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recv, recvmsg};

use super::closer::Closer;
use super::page::{self, Page};
use super::request::{self, GoalRequest, MAX_LEN, OpenSession};
use super::sessions::{GoalSessions, SessionReading};
use super::{MAX_OF_USER, MAX_SESSIONS};
use crate::connections::peer::{Peer, is_thread_of};
use crate::connections::{
    ClientLimits, CountedUsers, Keeps, Listener, MayIdle, Seat, Seats, Served, ServedSocket,
    Service, rest_after,
};

const LIMITS: ClientLimits = ClientLimits {
    // The service refuses before the oldest would have to go.
    connections: MAX_SESSIONS + 1,
    request: MAX_LEN,
    patience: Duration::from_secs(10),
    may_idle: MayIdle::Answered,
};

/// Descriptors that a message can have (the kernel's SCM_MAX_FD). With room for all of them none gets
/// lost on the way.
pub(super) const MAX_FDS: usize = 253;

/// The stack of the thread that reads pages, bytes; the agent's memory is locked.
const STACK: usize = 64 << 10;

/// Pages that are in memory are read in far less.
const MOST_WAIT: Duration = Duration::from_millis(1);

/// Listens until dropped.
pub struct GoalServer {
    /// Ends first.
    _socket: ServedSocket,
    sessions: Arc<GoalSessions>,
    news: Receiver<()>,
    /// Has the pages read; the thread that does it ends with this.
    ask: Sender<()>,
    /// It has.
    done: Receiver<()>,
}

impl GoalServer {
    /// Listens at `path`, in a directory that is made if need be. What is there gives way.
    ///
    /// # Errors
    /// What kept it from listening.
    pub fn start(path: &Path) -> Result<Self> {
        let sessions = Arc::new(GoalSessions::default());
        let (tell, news) = bounded(1);
        let (ask, asked) = bounded::<()>(1);
        let (tell_done, done) = bounded(1);
        let shared = sessions.clone();
        thread::Builder::new()
            .name("beats".into())
            .stack_size(STACK)
            .spawn(move || {
                while asked.recv().is_ok() {
                    shared.refresh(|| !asked.is_empty());
                    let _ = tell_done.try_send(());
                }
            })
            .context("cannot start a thread")?;
        let shared = sessions.clone();
        let closer = Closer::start().context("cannot start a thread")?;
        // The descriptors that wait to be taken are that thread's.
        let make = move |listener, over| {
            let desk = Desk {
                over,
                sessions: shared,
                seats: Seats::new(CountedUsers::here()),
                rest_until: Instant::now(),
                news: tell,
            };
            let listener = PageListener {
                listener,
                closer: Rc::new(closer),
            };
            (listener, desk)
        };
        Ok(Self {
            sessions,
            news,
            ask,
            done,
            _socket: ServedSocket::start(path, "goals", LIMITS, make)?,
        })
    }

    /// What programs want and have done.
    pub fn sessions(&self) -> &Arc<GoalSessions> {
        &self.sessions
    }

    /// All sessions into `readings`, with what their pages say; or said before, of those that take more than a millisecond to
    /// read: the caller waits no longer.
    pub fn read(&self, readings: &mut Vec<SessionReading>) {
        if !self.sessions.is_empty() {
            // Of one that took longer.
            let _ = self.done.try_recv();
            let _ = self.ask.try_send(());
            let _ = self.done.recv_timeout(MOST_WAIT);
        }
        self.sessions.read(readings);
    }

    /// Something arrives when sessions have come, gone or changed.
    pub fn news(&self) -> &Receiver<()> {
        &self.news
    }
}

/// A descriptor that has arrived and was not asked for yet, or why it is no page; the last of a message, for there
/// ought to be one only.
type Arrived = Rc<RefCell<Option<Result<OwnedFd, &'static str>>>>;

struct PageListener {
    listener: UnixListener,
    closer: Rc<Closer>,
}

impl AsFd for PageListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// A connection over which descriptors may come.
struct PageStream {
    stream: UnixStream,
    uid: u32,
    arrived: Arrived,
    closer: Rc<Closer>,
}

impl Listener for PageListener {
    type Stream = PageStream;

    fn next(&self) -> io::Result<PageStream> {
        self.closer.room()?;
        let stream = Listener::next(&self.listener)?;
        let uid = getsockopt(&stream, PeerCredentials).map_or(u32::MAX, |peer| peer.uid());
        // A byte that is sent out of band would be passed over, and its descriptors closed, while others are read.
        let inline = set_socket_oobinline(&stream, true);
        let stream = PageStream {
            stream,
            uid,
            arrived: Arrived::default(),
            closer: self.closer.clone(),
        };
        inline.map_or_else(|error| Err(error.into()), |()| Ok(stream))
    }

    fn finish(stream: &PageStream) {
        <UnixListener as Listener>::finish(&stream.stream);
    }
}

impl AsFd for PageStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Drop for PageStream {
    /// With what was not read descriptors are closed, too.
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        if ioctl_fionread(&self.stream) != Ok(0)
            && let Ok(last) = self.stream.try_clone()
        {
            self.closer.close(self.uid, last.into());
        }
    }
}

impl Read for PageStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.closer.room().is_err() {
            // What waits is not taken, but the end of a connection is seen.
            let (_, waiting) = recv(&self.stream, &mut [0][..], RecvFlags::PEEK)?;
            return match waiting {
                0 => Ok(0),
                _ => Err(io::ErrorKind::WouldBlock.into()),
            };
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(bytes)];
        let got = recvmsg(
            &self.stream,
            &mut parts,
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        for message in control.drain() {
            let RecvAncillaryMessage::ScmRights(fds) = message else {
                continue;
            };
            for fd in fds {
                // What is no page is not closed here: that may take as long as its user likes.
                let page = match page::check_memory(&fd) {
                    Ok(()) => Ok(fd),
                    Err(why) => {
                        self.closer.close(self.uid, fd);
                        Err(why)
                    }
                };
                *self.arrived.borrow_mut() = Some(page);
            }
        }
        Ok(got.bytes)
    }
}

impl Write for PageStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// A client, and its session. Both end when this is dropped.
struct Customer {
    peer: Peer,
    session: Option<u64>,
    arrived: Arrived,
    sessions: Arc<GoalSessions>,
    _seat: Seat,
    news: Sender<()>,
}

impl Drop for Customer {
    fn drop(&mut self) {
        if let Some(id) = self.session {
            self.sessions.close(id);
            let _ = self.news.try_send(());
        }
    }
}

/// Serves clients.
struct Desk {
    /// Nothing is served any more.
    over: Arc<AtomicBool>,
    sessions: Arc<GoalSessions>,
    seats: Seats,
    /// Between two requests, whoever sends them.
    rest_until: Instant,
    news: Sender<()>,
}

impl Service for Desk {
    type Listener = PageListener;
    type Client = Customer;

    fn greet(&mut self, stream: &PageStream) -> io::Result<Customer> {
        let customer = self.admit(stream);
        customer.map_err(|why| {
            // It has room for that, or the client does not learn why.
            let _ = (&stream.stream).write(&request::answer(&Err(why.clone())));
            io::Error::other(why)
        })
    }

    fn serve(&mut self, client: &mut Customer, received: &[u8], more: bool) -> Served {
        let end = received.iter().position(|&byte| byte == b'\n');
        let (outcome, taken) = match end {
            Some(end) => (self.respond(client, &received[..end]), end + 1),
            None if more => return Served::Partial,
            None => {
                let why = format!("a request is a line of at most {MAX_LEN} bytes");
                (Err(why), received.len())
            }
        };
        if let Err(why) = &outcome {
            debug!("process {:?} is refused: {why}", client.peer);
        }
        Served::Answer {
            taken,
            bytes: request::answer(&outcome),
            // A client without a session now has no business here.
            last: client.session.is_none() || end.is_none(),
        }
    }
}

impl Keeps for Desk {
    const TAKES_DESCRIPTORS: bool = true;

    fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    fn bury(&mut self) {
        if self.sessions.bury() {
            self.tell();
        }
    }
}

impl Desk {
    fn tell(&self) {
        // One that was not taken yet will do.
        let _ = self.news.try_send(());
    }

    fn admit(&self, stream: &PageStream) -> Result<Customer, String> {
        let peer = Peer::of(&stream.stream)?;
        let seat = self
            .seats
            .take(peer.uid, MAX_SESSIONS, MAX_OF_USER, "sessions")?;
        Ok(Customer {
            peer,
            session: None,
            arrived: stream.arrived.clone(),
            sessions: self.sessions.clone(),
            _seat: seat,
            news: self.news.clone(),
        })
    }

    fn respond(&mut self, client: &mut Customer, line: &[u8]) -> Result<u64, String> {
        if self.over.load(Ordering::Relaxed) {
            return Err("the scheduler ends".into());
        }
        thread::sleep(self.rest_until.saturating_duration_since(Instant::now()));
        let began = Instant::now();
        let outcome = self.attend(client, line);
        let ended = Instant::now();
        self.rest_until = ended + rest_after(ended - began);
        if outcome.is_ok() {
            self.tell();
        }
        outcome
    }

    fn attend(&self, client: &mut Customer, line: &[u8]) -> Result<u64, String> {
        // Whatever is asked for, nothing is kept of it that is not.
        let page = client.arrived.take();
        let request = GoalRequest::parse(line)?;
        match (request, client.session) {
            (GoalRequest::Open(_), Some(_)) => {
                Err("this connection has a session: open another one".into())
            }
            (GoalRequest::Open(open), None) => {
                let id = self.open(client, open, page)?;
                client.session = Some(id);
                Ok(id)
            }
            (GoalRequest::Change(_), None) => Err("there is no session yet".into()),
            (GoalRequest::Change(shape), Some(id)) => {
                let gone = "the session has ended with its process";
                let tgid = self.sessions.process(id).ok_or(gone)?;
                check_threads(&shape.tids, tgid)?;
                let changed = self.sessions.change(id, shape.tids, shape.weight);
                changed.then_some(id).ok_or_else(|| gone.into())
            }
        }
    }

    fn open(
        &self,
        client: &mut Customer,
        open: OpenSession,
        page: Option<Result<OwnedFd, &'static str>>,
    ) -> Result<u64, String> {
        let page = page.ok_or("no page came along, as a descriptor (SCM_RIGHTS)")?;
        let page = Page::new(page?)?;
        let process = client.peer.process(open.pid)?;
        check_threads(&open.shape.tids, process.tgid)?;
        let about = (client.peer.uid, request::name(&open.name), open.children);
        let shape = (open.shape.tids, open.shape.weight);
        self.sessions.open(process, page, about, shape)
    }
}

fn check_threads(tids: &[u32], tgid: u32) -> Result<(), String> {
    match tids.iter().find(|&&tid| !is_thread_of(tid, tgid)) {
        None => Ok(()),
        Some(tid) => Err(format!("process {tgid} has no thread {tid}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use std::io::{ErrorKind, IoSlice};

    struct Ends {
        client: UnixStream,
        server: PageStream,
        waiting: Receiver<(u32, OwnedFd)>,
    }

    fn ends() -> Ends {
        let (client, stream) = UnixStream::pair().unwrap();
        stream.set_nonblocking(true).unwrap();
        let (closer, waiting) = Closer::stuck();
        let server = PageStream {
            stream,
            uid: 1000,
            arrived: Arrived::default(),
            closer: Rc::new(closer),
        };
        Ends {
            client,
            server,
            waiting,
        }
    }

    /// Memory that its owner may make larger at any time.
    fn growing() -> OwnedFd {
        let fd = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, 4096).unwrap();
        fd
    }

    fn send(client: &UnixStream, fd: &OwnedFd) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [fd.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let text = [IoSlice::new(b"{")];
        sendmsg(client, &text, &mut control, SendFlags::NOSIGNAL).unwrap();
    }

    #[test]
    fn what_may_grow_is_not_closed_where_clients_are_served() {
        let mut ends = ends();
        send(&ends.client, &growing());
        assert_eq!(ends.server.read(&mut [0; 8]).unwrap(), 1);
        let arrived = ends.server.arrived.take();
        assert!(arrived.unwrap().unwrap_err().contains("not sealed"));
        assert_eq!(ends.waiting.len(), 1);
    }

    #[test]
    fn while_too_much_waits_to_be_closed_connections_stay_and_end_but_are_not_read() {
        let mut ends = ends();
        ends.server.closer.fill(&growing());
        let full = ends.waiting.len();
        let closer = ends.server.closer.clone();
        let mut read = || ends.server.read(&mut [0; 8]).map_err(|error| error.kind());
        let later = Err(ErrorKind::WouldBlock);
        assert_eq!(read(), later);
        send(&ends.client, &growing());
        assert_eq!((read(), read()), (later, later));
        assert_eq!(ends.waiting.len(), full);
        // Nothing is lost.
        ends.waiting.try_iter().for_each(drop);
        assert_eq!((read(), ends.waiting.len()), (Ok(1), 1));
        closer.fill(&growing());
        drop(ends.client);
        assert_eq!(read(), Ok(0));
    }
}
