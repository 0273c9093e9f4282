// SPDX-License-Identifier: GPL-2.0-only
//! The waiting thread's side.

use std::cell::Cell;
use std::fs;
use std::marker::PhantomData;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use nix::time::{ClockId, clock_gettime};
use nix::unistd::gettid;

use super::{SOCKET, SpinRequest};

/// A thread's word, and where it is registered.
struct Own {
    word: AtomicU32,
    /// When the socket was last looked at, monotonic s.
    looked: Cell<i64>,
    registered: Cell<Option<Registered>>,
}

/// As which thread (a child of `fork` is another), and with which incarnation of the scheduler.
#[derive(Clone, Copy, PartialEq)]
struct Registered {
    tid: i32,
    socket: (u64, i64, i64),
}

thread_local! {
    static OWN: Own = const {
        Own {
            word: AtomicU32::new(0),
            looked: Cell::new(-1),
            registered: Cell::new(None),
        }
    };
}

/// This thread waits actively until it is dropped.
#[must_use = "the wait ends when this is dropped"]
pub struct Waiting {
    /// The word is the thread's own: it must be dropped where it was made.
    not_send: PhantomData<*const ()>,
}

/// Says that this thread begins to wait actively. Never fails or blocks; where no scheduler runs
/// it costs a look at the clock. The word is registered when a thread first waits, and again when
/// it finds that the scheduler was restarted, at the earliest a second later.
pub fn begin() -> Waiting {
    OWN.with(|own| {
        own.word.fetch_add(1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE);
        let now = now.map_or(own.looked.get(), |now| now.tv_sec());
        if own.looked.replace(now) != now {
            own.look();
        }
    });
    Waiting {
        not_send: PhantomData,
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        // A thread that ends has no word any more.
        let _ = OWN.try_with(|own| own.word.fetch_sub(1, Ordering::Relaxed));
    }
}

impl Own {
    /// Registers the word, unless it is.
    #[cold]
    fn look(&self) {
        let Ok(socket) = fs::metadata(SOCKET) else {
            self.registered.set(None);
            return;
        };
        let registered = Registered {
            tid: gettid().as_raw(),
            socket: (socket.ino(), socket.ctime(), socket.ctime_nsec()),
        };
        if self.registered.get() != Some(registered) {
            let request = SpinRequest {
                tid: registered.tid as u32,
                address: self.word.as_ptr() as u64,
            };
            self.registered.set(send(&request).then_some(registered));
        }
    }
}

/// Whether the request was sent. Does not wait for a scheduler that is busy: there is a later wait.
fn send(request: &SpinRequest) -> bool {
    let sent = UnixDatagram::unbound().and_then(|socket| {
        socket.set_nonblocking(true)?;
        socket.send_to(&request.encode(), SOCKET)
    });
    sent.is_ok_and(|sent| sent == SpinRequest::LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word() -> u32 {
        OWN.with(|own| own.word.load(Ordering::Relaxed))
    }

    #[test]
    fn the_word_counts_the_waits_that_a_thread_is_in() {
        assert_eq!(word(), 0);
        let outer = begin();
        let inner = begin();
        assert_eq!(word(), 2);
        drop(outer);
        assert_eq!(word(), 1);
        std::thread::spawn(|| assert_eq!(word(), 0)).join().unwrap();
        drop(inner);
        assert_eq!(word(), 0);
    }
}
