// SPDX-License-Identifier: GPL-2.0-only
//! Connections of clients that are bounded in every way: how many there are, how much of a request is
//! kept, how long a client may take. One thread serves all of them and waits for none.
//!
//! A client is read from only when it has taken its last answer, so one that asks and does not read
//! costs one request and one answer. When there are too many connections, the one that has asked for
//! nothing for the longest time is closed: a crowd of idle ones keeps no newcomer out.

mod end;
pub(crate) mod peer;
mod seats;
mod served;
mod users;

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use log::debug;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

pub(crate) use end::{LONGEST, join_in_time, join_within, refuse_descriptors};
pub(crate) use seats::{Seat, Seats};
pub(crate) use served::{Keeps, ServedSocket, rest_after};
pub(crate) use users::CountedUsers;

/// Bytes that are read at a time.
const CHUNK: usize = 4096;

/// How long a client that was told its last may go on sending. To close at once would reset the
/// connection, and with it what the client has not read yet.
const FAREWELL: Duration = Duration::from_secs(1);

/// How long nothing is accepted after the kernel has refused to, as where descriptors run out.
const PAUSE: Duration = Duration::from_secs(1);

/// What clients may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientLimits {
    /// Connections at a time.
    pub connections: usize,
    /// Bytes of a request.
    pub request: usize,
    /// How long a request may take to arrive, and an answer to be read.
    pub patience: Duration,
    /// Which clients may be silent for longer before they begin a request.
    pub may_idle: MayIdle,
}

/// Which clients may be silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MayIdle {
    /// None.
    Never,
    /// Those that were answered once.
    Answered,
    /// All.
    Always,
}

/// What is asked and answered over connections.
pub(crate) trait Service {
    /// Where clients come from.
    type Listener: Listener;
    /// What is kept of a client.
    type Client;

    /// What is to be kept of a client that has come.
    ///
    /// # Errors
    /// It is hung up on.
    fn greet(&mut self, stream: &<Self::Listener as Listener>::Stream) -> io::Result<Self::Client>;

    /// Answers the request that `received` begins with. If it is not `more` than this there will
    /// be no further bytes of it: the client has ended, or this is as large as a request may be.
    fn serve(&mut self, client: &mut Self::Client, received: &[u8], more: bool) -> Served;
}

/// What became of what was received.
#[derive(Debug)]
pub(crate) enum Served {
    /// The request is not whole yet.
    Partial,
    /// It is answered.
    Answer {
        /// How many bytes it had.
        taken: usize,
        /// The answer.
        bytes: Vec<u8>,
        /// Whether nothing more is answered.
        last: bool,
    },
}

/// A socket that clients connect to.
pub(crate) trait Listener: AsFd {
    /// A connection.
    type Stream: Read + Write + AsFd;

    /// The next one, if there is one; neither it nor this waits.
    ///
    /// # Errors
    /// As accept(2).
    fn next(&self) -> io::Result<Self::Stream>;

    /// Tells the client that nothing more will come.
    fn finish(stream: &Self::Stream);
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    fn next(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.accept()?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }

    fn finish(stream: &TcpStream) {
        let _ = stream.shutdown(Shutdown::Write);
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    fn next(&self) -> io::Result<UnixStream> {
        let (stream, _) = self.accept()?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }

    fn finish(stream: &UnixStream) {
        let _ = stream.shutdown(Shutdown::Write);
    }
}

/// All connections to a listener, which does not wait.
pub(crate) struct Connections<S: Service> {
    listener: S::Listener,
    limits: ClientLimits,
    open: Vec<Connection<S>>,
    /// Nothing is accepted before.
    paused: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Reads a request.
    Asks,
    /// Writes an answer.
    Answers,
    /// Writes the last one.
    AnswersLast,
    /// Reads and discards, until the client has ended.
    Leaves,
}

struct Connection<S: Service> {
    stream: <S::Listener as Listener>::Stream,
    client: S::Client,
    phase: Phase,
    received: Vec<u8>,
    /// There is something in `received` that the service has not seen.
    unseen: bool,
    /// The client sends nothing more.
    ended: bool,
    answer: Vec<u8>,
    written: usize,
    /// When it last asked for something, or else came.
    since: Instant,
    deadline: Option<Instant>,
}

impl<S: Service> Connections<S> {
    /// None yet.
    pub(crate) fn new(listener: S::Listener, limits: ClientLimits) -> Self {
        Self {
            listener,
            limits,
            open: Vec::with_capacity(limits.connections),
            paused: None,
        }
    }

    /// Waits until there is something to do, but not for longer than `limit`, nor when `wake` can be
    /// read; and does it.
    ///
    /// # Errors
    /// The kernel does not tell what there is to do.
    pub(crate) fn round(
        &mut self,
        service: &mut S,
        wake: Option<BorrowedFd>,
        limit: Option<Duration>,
    ) -> io::Result<()> {
        let (wake_ready, listener_ready, ready) = self.wait(wake, limit)?;
        let now = Instant::now();
        if wake_ready {
            return Ok(());
        }
        let mut ready = ready.into_iter();
        let limits = self.limits;
        self.open.retain_mut(|connection| {
            let ready = ready.next().unwrap_or(false);
            let late = connection.deadline.is_some_and(|at| at <= now);
            !late && connection.go_on(service, &limits, ready)
        });
        if listener_ready {
            self.accept(service, now);
        }
        Ok(())
    }

    /// What can be served: whether it is `wake`, the listener, and each connection.
    fn wait(
        &mut self,
        wake: Option<BorrowedFd>,
        limit: Option<Duration>,
    ) -> io::Result<(bool, bool, Vec<bool>)> {
        let now = Instant::now();
        self.paused = self.paused.filter(|&until| until > now);
        let deadlines = self.open.iter().filter_map(|open| open.deadline);
        let next = deadlines.chain(self.paused).min();
        let next = next.map(|at| at.saturating_duration_since(now));
        let mut wait = next.into_iter().chain(limit).min();
        if self.open.iter().any(Connection::can_go_on) {
            wait = Some(Duration::ZERO);
        }
        let accepts = match self.paused {
            None => PollFlags::POLLIN,
            Some(_) => PollFlags::empty(),
        };
        let mut fds = vec![PollFd::new(self.listener.as_fd(), accepts)];
        fds.extend(self.open.iter().map(|connection| {
            let wants = match connection.phase {
                Phase::Asks if connection.ended => PollFlags::empty(),
                Phase::Asks | Phase::Leaves => PollFlags::POLLIN,
                Phase::Answers | Phase::AnswersLast => PollFlags::POLLOUT,
            };
            PollFd::new(connection.stream.as_fd(), wants)
        }));
        fds.extend(wake.map(|wake| PollFd::new(wake, PollFlags::POLLIN)));
        // Rounded up, or it would come round in vain until the time has come.
        let timeout = wait.map_or(Ok(PollTimeout::NONE), |wait| {
            let up = Duration::from_micros(999);
            PollTimeout::try_from(wait.saturating_add(if wait.is_zero() { wait } else { up }))
        });
        match poll(&mut fds, timeout.unwrap_or(PollTimeout::MAX)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut ready = fds.iter().map(|fd| fd.any().unwrap_or(false));
        let listener = ready.next().unwrap_or(false) && self.paused.is_none();
        let open = ready.by_ref().take(self.open.len()).collect();
        Ok((ready.next().unwrap_or(false), listener, open))
    }

    fn accept(&mut self, service: &mut S, now: Instant) {
        let stream = match self.listener.next() {
            Ok(stream) => stream,
            Err(error) => {
                let passes = [
                    ErrorKind::WouldBlock,
                    ErrorKind::Interrupted,
                    ErrorKind::ConnectionAborted,
                ];
                if !passes.contains(&error.kind()) {
                    debug!("no client is accepted for a second: {error}");
                    self.paused = Some(now + PAUSE);
                }
                return;
            }
        };
        let client = match service.greet(&stream) {
            Ok(client) => client,
            Err(error) => return debug!("a client is hung up on: {error}"),
        };
        if self.open.len() >= self.limits.connections {
            let oldest = self.open.iter().enumerate();
            if let Some((oldest, _)) = oldest.min_by_key(|(_, open)| open.since) {
                self.open.swap_remove(oldest);
            }
        }
        self.open.push(Connection {
            stream,
            client,
            phase: Phase::Asks,
            received: Vec::new(),
            unseen: false,
            ended: false,
            answer: Vec::new(),
            written: 0,
            since: now,
            deadline: (self.limits.may_idle != MayIdle::Always)
                .then_some(now + self.limits.patience),
        });
    }
}

impl<S: Service> Connection<S> {
    /// Whether it has something to do that it need not wait for.
    fn can_go_on(&self) -> bool {
        self.phase == Phase::Asks && self.unseen
    }

    /// Does what can be done without waiting, and one request at most. Whether it stays open.
    fn go_on(&mut self, service: &mut S, limits: &ClientLimits, ready: bool) -> bool {
        let done = match self.phase {
            Phase::Asks => if ready && !self.unseen {
                self.read(limits)
            } else {
                Ok(())
            }
            .map(|()| self.ask(service, limits)),
            Phase::Answers | Phase::AnswersLast if ready => self.write(limits),
            Phase::Leaves if ready => self.leave(),
            _ => Ok(true),
        };
        done.unwrap_or_else(|error| {
            debug!("a client has gone: {error}");
            false
        })
    }

    fn read(&mut self, limits: &ClientLimits) -> io::Result<()> {
        let mut chunk = [0; CHUNK];
        let room = limits.request - self.received.len().min(limits.request);
        match self.stream.read(&mut chunk[..room.min(CHUNK)]) {
            Ok(0) => self.ended = true,
            Ok(read) => self.received.extend_from_slice(&chunk[..read]),
            Err(error) if passes(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
        self.unseen = true;
        Ok(())
    }

    /// Has the service look at what was received.
    fn ask(&mut self, service: &mut S, limits: &ClientLimits) -> bool {
        if !std::mem::take(&mut self.unseen) {
            return true;
        }
        if self.received.is_empty() {
            return !self.ended;
        }
        let more = !self.ended && self.received.len() < limits.request;
        match service.serve(&mut self.client, &self.received, more) {
            Served::Partial => {
                let now = Instant::now();
                self.deadline.get_or_insert(now + limits.patience);
                more
            }
            Served::Answer { taken, bytes, last } => {
                let now = Instant::now();
                self.received.drain(..taken.min(self.received.len()));
                self.answer = bytes;
                self.written = 0;
                self.since = now;
                self.deadline = Some(now + limits.patience);
                self.phase = if last {
                    Phase::AnswersLast
                } else {
                    Phase::Answers
                };
                self.write(limits).unwrap_or(false)
            }
        }
    }

    fn write(&mut self, limits: &ClientLimits) -> io::Result<bool> {
        while self.written < self.answer.len() {
            match self.stream.write(&self.answer[self.written..]) {
                Ok(0) => return Ok(false),
                Ok(written) => self.written += written,
                Err(error) if passes(&error) => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        self.answer = Vec::new();
        let now = Instant::now();
        if self.phase == Phase::AnswersLast {
            self.received = Vec::new();
            S::Listener::finish(&self.stream);
            self.phase = Phase::Leaves;
            self.deadline = Some(now + FAREWELL);
            return Ok(!self.ended);
        }
        self.phase = Phase::Asks;
        self.unseen = !self.received.is_empty();
        self.deadline = (limits.may_idle == MayIdle::Never).then_some(now + limits.patience);
        Ok(self.unseen || !self.ended)
    }

    fn leave(&mut self) -> io::Result<bool> {
        match self.stream.read(&mut [0; CHUNK]) {
            Ok(read) => Ok(read > 0),
            Err(error) if passes(&error) => Ok(true),
            Err(error) => Err(error),
        }
    }
}

/// Whether there is merely nothing to do for the moment.
fn passes(error: &io::Error) -> bool {
    [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind())
}

/// Makes a folder into which all users may look, whatever the umask, and those above it, as far as they are not there.
///
/// # Errors
/// As mkdir(2).
pub(crate) fn make_open_folder(folder: &Path) -> io::Result<()> {
    if folder.as_os_str().is_empty() || folder.exists() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        make_open_folder(above)?;
    }
    match fs::create_dir(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made.and_then(|()| fs::set_permissions(folder, Permissions::from_mode(0o755))),
    }
}

/// Where a socket is. It is removed when this is dropped, unless there is another one by then: that of a scheduler that
/// began as soon as this one had detached.
#[derive(Debug)]
pub(crate) struct SocketPlace {
    path: PathBuf,
    /// Device and inode.
    is: Option<(u64, u64)>,
}

impl SocketPlace {
    fn of(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            is: Self::there(path),
        }
    }

    fn there(path: &Path) -> Option<(u64, u64)> {
        let about = fs::symlink_metadata(path).ok()?;
        Some((about.dev(), about.ino()))
    }
}

impl Drop for SocketPlace {
    fn drop(&mut self) {
        if self.is.is_some() && self.is == Self::there(&self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A socket at `path` that every user may use, in a directory that is made if need be, and its place. What is there gives
/// way.
///
/// # Errors
/// What kept it from being there.
pub(crate) fn open_to_everybody<S>(
    path: &Path,
    bind: impl FnOnce(&Path) -> io::Result<S>,
) -> Result<(S, SocketPlace)> {
    if let Some(directory) = path.parent() {
        make_open_folder(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot replace {}", path.display()));
        }
        _ => {}
    }
    let socket = bind(path).with_context(|| format!("cannot listen at {}", path.display()))?;
    let place = SocketPlace::of(path);
    fs::set_permissions(path, Permissions::from_mode(0o666))
        .with_context(|| format!("cannot open {} to everybody", path.display()))?;
    Ok((socket, place))
}

#[cfg(test)]
mod tests;
