// SPDX-License-Identifier: GPL-2.0-only
//! When the agent may rest, and what wakes it: on an idle machine it looks less than once a second,
//! and the BPF half rings as soon as something computes.

use std::cell::Cell;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use crossbeam::channel::{Receiver, Sender, bounded};
use libbpf_rs::{MapHandle, RingBufferBuilder};
use log::warn;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// A machine that is busy for less than this part of one CPU's time needs no agent.
const QUIET: f64 = 0.1;

/// So long it must have been, at least.
const WINDOW: Duration = Duration::from_millis(250);

/// Watches how busy the machine is.
pub(super) struct Rest {
    since: Instant,
    busy_ns: u64,
    rests: bool,
}

impl Rest {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            since: now,
            busy_ns: 0,
            rests: false,
        }
    }

    /// Whether the agent may rest, now that all CPUs together have been busy for so long.
    pub(super) fn look(&mut self, now: Instant, busy_ns: u64) -> bool {
        let passed = now - self.since;
        if passed >= WINDOW {
            let busy = busy_ns.saturating_sub(self.busy_ns) as f64;
            self.rests = busy < QUIET * passed.as_nanos() as f64;
            self.since = now;
            self.busy_ns = busy_ns;
        }
        self.rests
    }

    /// It was woken: it stays awake until all has been quiet for a while.
    pub(super) fn disturb(&mut self, now: Instant, busy_ns: u64) {
        *self = Self {
            since: now,
            busy_ns,
            rests: false,
        };
    }
}

/// What the BPF half rings; ends with the scheduler that it belongs to.
pub(super) struct Bell {
    rung: Receiver<()>,
    /// Closed, it wakes the thread that listens, which then ends.
    _alive: UnixStream,
}

impl Bell {
    /// Listens to the ring buffer `map`.
    pub(super) fn listen(map: MapHandle) -> Result<Self> {
        let (alive, ended) = UnixStream::pair().context("cannot make a socket")?;
        let (sender, rung) = bounded(1);
        thread::Builder::new()
            .name("bell".to_string())
            // Locked in memory.
            .stack_size(64 << 10)
            .spawn(move || {
                if let Err(error) = wait(&map, &ended, &sender) {
                    warn!("the agent no longer hears what begins to compute: {error:#}");
                }
            })
            .context("cannot start a thread")?;
        Ok(Self {
            rung,
            _alive: alive,
        })
    }

    pub(super) fn rung(&self) -> &Receiver<()> {
        &self.rung
    }
}

fn wait(map: &MapHandle, ended: &UnixStream, sender: &Sender<()>) -> Result<()> {
    let rung = Cell::new(false);
    let mut builder = RingBufferBuilder::new();
    builder.add(map, |_| {
        rung.set(true);
        0
    })?;
    let ring = builder.build()?;
    // SAFETY: it is the ring's, and open as long as that, which lives longer.
    let readable = unsafe { BorrowedFd::borrow_raw(ring.epoll_fd()) };
    loop {
        let mut all = [readable, ended.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut all, PollTimeout::NONE) {
            // As by a suspend.
            Err(Errno::EINTR) => continue,
            polled => polled?,
        };
        if all[1].any() != Some(false) {
            return Ok(());
        }
        ring.consume()?;
        if rung.take() {
            // If the last ring has not been heard yet, this one is the same.
            let _ = sender.try_send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_quiet_for_a_while_lets_the_agent_rest() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let ms = |ms: u64| ms * 1_000_000;
        let mut rest = Rest::new(begin);
        assert!(!rest.look(at(100), ms(1)), "too early to say");
        assert!(rest.look(at(250), ms(20)));
        assert!(rest.look(at(1000), ms(70)));
        assert!(!rest.look(at(2000), ms(300)), "one CPU to a fifth");
        assert!(rest.look(at(3000), ms(310)));
        rest.disturb(at(3100), ms(320));
        assert!(!rest.look(at(3200), ms(320)));
        assert!(rest.look(at(3350), ms(320)));
    }
}
