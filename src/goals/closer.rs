// SPDX-License-Identifier: GPL-2.0-only
//! Closes descriptors that programs have sent, in a thread that nothing waits for.
//!
//! Any user may send any descriptor, and to close one may take as long as that user likes
//! ([`crate::connections`]). Pages are small memory of the kernel's and are closed where they are; all others,
//! and connections with something in them that was not read, are closed here. While one hangs, the others
//! wait behind it; when too many do, no connection is accepted or read from. Sessions go on, and the scheduler ends
//! when it is to.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use crossbeam::channel::{Receiver, Sender, bounded};
use log::warn;

use super::MAX_SESSIONS;
use super::server::MAX_FDS;

/// No more is accepted or read while more than so many wait.
const FULL: usize = 256;

/// There is room for what may come then: a message's, and all connections that there are.
const ROOM: usize = FULL + MAX_FDS + MAX_SESSIONS + 2;

/// The thread's stack, bytes; the agent's memory is locked.
const STACK: usize = 64 << 10;

/// Ends when this is dropped, as soon as all that waits is closed.
pub(super) struct Closer {
    queue: Sender<(u32, OwnedFd)>,
    /// The user whose descriptor was begun with last.
    whose: Arc<AtomicU32>,
    complained: Cell<bool>,
}

impl Closer {
    /// # Errors
    /// There is no thread to be had.
    pub(super) fn start() -> io::Result<Self> {
        let (queue, waiting) = bounded(ROOM);
        let whose = Arc::new(AtomicU32::new(0));
        let theirs = whose.clone();
        thread::Builder::new()
            .name("close".into())
            .stack_size(STACK)
            .spawn(move || close(&waiting, &theirs))?;
        Ok(Self {
            queue,
            whose,
            complained: Cell::new(false),
        })
    }

    /// Closes a user's descriptor, sooner or later.
    pub(super) fn close(&self, uid: u32, fd: OwnedFd) {
        if let Err(full) = self.queue.try_send((uid, fd)) {
            // There is room for all that can come: see `ROOM`. To close it here could hang.
            std::mem::forget(full.into_inner());
        }
    }

    /// Whether more may be accepted and read.
    ///
    /// # Errors
    /// Something hangs.
    pub(super) fn room(&self) -> io::Result<()> {
        if self.queue.len() <= FULL {
            self.complained.set(false);
            return Ok(());
        }
        let uid = self.whose.load(Ordering::Relaxed);
        let why = format!("what user {uid} has sent to goals.sock does not get closed");
        if !self.complained.replace(true) {
            warn!("no program can open a session until that is over: {why}");
        }
        Err(io::Error::other(why))
    }
}

#[cfg(test)]
impl Closer {
    /// One that closes nothing by itself, and what waits.
    pub(super) fn stuck() -> (Self, Receiver<(u32, OwnedFd)>) {
        let (queue, waiting) = bounded(ROOM);
        let closer = Self {
            queue,
            whose: Arc::default(),
            complained: Cell::new(false),
        };
        (closer, waiting)
    }

    /// Nothing is accepted or read any more.
    pub(super) fn fill(&self, with: &OwnedFd) {
        while self.queue.len() <= FULL {
            self.close(0, with.try_clone().unwrap());
        }
    }
}

fn close(waiting: &Receiver<(u32, OwnedFd)>, whose: &AtomicU32) {
    for (uid, fd) in waiting {
        whose.store(uid, Ordering::Relaxed);
        drop(fd);
    }
}
