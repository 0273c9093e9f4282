// SPDX-License-Identifier: GPL-2.0-only
//! Takes subscribers in, in a thread of its own: the scheduler's loop waits for no program.
//!
//! Any user may connect. What that may cost is bounded: connections, of each user and process, too; frames per second; and
//! nothing waits for a program that does not read, for all that it is sent is a greeting and at most one
//! line that says why it is hung up on.

use std::io::{self, IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use crossbeam::channel::{Receiver, Sender, bounded};
use log::debug;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::frame::{self, LEN};
use super::subscribers::Subscribers;
use super::{MAX_OF_USER, MAX_SUBSCRIBERS};
use crate::connections::peer::{Peer, is_thread_of};
use crate::connections::{
    ClientLimits, CountedUsers, Keeps, MayIdle, Seat, Seats, Served, ServedSocket, Service,
};
use hetero_core::advice::told::ProgramSays;

const LIMITS: ClientLimits = ClientLimits {
    // The service refuses before the oldest would have to go.
    connections: MAX_SUBSCRIBERS + 1,
    request: 4 * LEN,
    patience: Duration::from_secs(10),
    may_idle: MayIdle::Always,
};

/// Between two frames or new subscribers, whosever they are: the thread goes before all other tasks, as one of the
/// agent's.
const REST: Duration = Duration::from_millis(1);

/// Listens until dropped.
pub struct AdviceServer {
    /// Ends first.
    _socket: ServedSocket,
    subscribers: Arc<Subscribers>,
    news: Receiver<()>,
}

impl AdviceServer {
    /// Listens at `path`, in a directory that is made if need be. What is there gives way.
    ///
    /// # Errors
    /// What kept it from listening.
    pub fn start(path: &Path) -> Result<Self> {
        let subscribers = Arc::new(Subscribers::default());
        let (tell, news) = bounded(1);
        let shared = subscribers.clone();
        let make = move |listener, _| {
            let counter = Counter {
                subscribers: shared,
                seats: Seats::new(CountedUsers::here()),
                news: tell,
            };
            (listener, counter)
        };
        Ok(Self {
            subscribers,
            news,
            _socket: ServedSocket::start(path, "advice", LIMITS, make)?,
        })
    }

    /// The programs that have subscribed.
    pub fn subscribers(&self) -> &Arc<Subscribers> {
        &self.subscribers
    }

    /// Something arrives when one has.
    pub fn news(&self) -> &Receiver<()> {
        &self.news
    }
}

/// A connection, and its subscription. Both end when this is dropped.
struct Reader {
    id: u64,
    subscribers: Arc<Subscribers>,
    _seat: Seat,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.subscribers.remove(self.id);
    }
}

/// Serves clients.
struct Counter {
    subscribers: Arc<Subscribers>,
    seats: Seats,
    news: Sender<()>,
}

impl Service for Counter {
    type Listener = UnixListener;
    type Client = Reader;

    fn greet(&mut self, stream: &UnixStream) -> io::Result<Reader> {
        thread::sleep(REST);
        let reader = self.admit(stream).map_err(|why| {
            // It has room for that, or the client does not learn why.
            let mut stream = stream;
            let _ = stream.write(&refusal(&why));
            io::Error::other(why)
        })?;
        // One that was not taken yet will do.
        let _ = self.news.try_send(());
        Ok(reader)
    }

    fn serve(&mut self, client: &mut Reader, received: &[u8], more: bool) -> Served {
        let Some(frame) = received.first_chunk::<LEN>() else {
            return match more {
                true => Served::Partial,
                // The program has ended in the middle of it.
                false => answer(received.len(), Vec::new(), true),
            };
        };
        thread::sleep(REST);
        match self.hear(client, frame) {
            Ok(()) => answer(LEN, Vec::new(), false),
            Err(why) => {
                debug!("a subscriber is hung up on: {why}");
                answer(received.len(), refusal(&why), true)
            }
        }
    }
}

impl Keeps for Counter {
    fn is_empty(&self) -> bool {
        self.subscribers.is_empty()
    }

    fn bury(&mut self) {
        self.subscribers.bury();
    }
}

fn answer(taken: usize, bytes: Vec<u8>, last: bool) -> Served {
    Served::Answer { taken, bytes, last }
}

/// A line for people.
fn refusal(why: &str) -> Vec<u8> {
    format!("error: {why}\n").into_bytes()
}

impl Counter {
    fn admit(&self, stream: &UnixStream) -> Result<Reader, String> {
        let mut peer = Peer::of(stream)?;
        let seat = self
            .seats
            .take(peer.uid, MAX_SUBSCRIBERS, MAX_OF_USER, "subscribers")?;
        let process = peer.process(None)?;
        let (id, fd) = self.subscribers.add(process, seat.user())?;
        // From here on it ends with this.
        let reader = Reader {
            id,
            subscribers: self.subscribers.clone(),
            _seat: seat,
        };
        send(stream, &fd).map_err(|error| format!("the page cannot be sent: {error}"))?;
        Ok(reader)
    }

    fn hear(&self, client: &Reader, frame: &[u8; LEN]) -> Result<(), String> {
        let told = frame::decode(frame)?;
        if let ProgramSays::Member(tid, true) = told {
            let tgid = self.subscribers.process(client.id);
            let tgid = tgid.ok_or("the subscription has ended with its process")?;
            if !is_thread_of(tid, tgid) {
                return Err(format!("process {tgid} has no thread {tid}"));
            }
        }
        Ok(self.subscribers.hear(client.id, told)?)
    }
}

/// Sends the greeting and the page. The socket is new, so there is room.
fn send(stream: &UnixStream, page: &OwnedFd) -> rustix::io::Result<()> {
    let fds = [page.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let greeting = frame::greeting();
    let sent = sendmsg(stream, &[IoSlice::new(&greeting)], &mut control, flags)?;
    match sent == greeting.len() {
        true => Ok(()),
        false => Err(rustix::io::Errno::AGAIN),
    }
}
