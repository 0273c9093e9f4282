// SPDX-License-Identifier: GPL-2.0-only
//! A socket that a thread of its own serves, so that the scheduler's loop waits for no program.

use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use log::debug;

use crate::scheduler::pace::cpu_time;

use super::{
    ClientLimits, Connections, Service, SocketPlace, join_in_time, open_to_everybody,
    refuse_descriptors,
};

/// Between two looks for requests, and after ones that take longer so many times as long, up to the most: the thread
/// goes before all other tasks, as one of the agent's.
const BREATH: Duration = Duration::from_millis(1);
const REST_TIMES: u32 = 10;
const MOST_REST: Duration = Duration::from_millis(250);

/// How soon it is seen that a process has ended whose connection another one has.
const BURY: Duration = Duration::from_secs(1);

/// The thread's stack, bytes; the agent's memory is locked.
const STACK: usize = 256 << 10;

/// How long to rest after what took so long.
pub(crate) fn rest_after(took: Duration) -> Duration {
    took.saturating_mul(REST_TIMES).clamp(BREATH, MOST_REST)
}

/// What keeps something for processes, whoever has their connections.
pub(crate) trait Keeps: Service {
    /// Whether clients may send descriptors; then what is closed is its affair.
    const TAKES_DESCRIPTORS: bool = false;

    /// Nothing is kept.
    fn is_empty(&self) -> bool;

    /// Ends what is kept for processes that have ended.
    fn bury(&mut self);
}

/// Serves until dropped.
pub(crate) struct ServedSocket {
    _place: SocketPlace,
    over: Arc<AtomicBool>,
    wake: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl ServedSocket {
    /// Listens at `path`, in a directory that is made if need be, in a thread called `name`. What is there gives way.
    ///
    /// `make` is called in that thread, with the socket and what is true once all is over.
    ///
    /// # Errors
    /// What kept it from listening.
    pub(crate) fn start<S: Keeps>(
        path: &Path,
        name: &str,
        limits: ClientLimits,
        make: impl FnOnce(UnixListener, Arc<AtomicBool>) -> (S::Listener, S) + Send + 'static,
    ) -> Result<Self> {
        let (listener, place) = open_to_everybody(path, |path| {
            let listener = UnixListener::bind(path)?;
            listener.set_nonblocking(true)?;
            if !S::TAKES_DESCRIPTORS {
                refuse_descriptors(&listener)?;
            }
            Ok(listener)
        })?;
        let (wake, woken) = UnixStream::pair().context("cannot make a socket")?;
        let over = Arc::new(AtomicBool::new(false));
        let ended = over.clone();
        let serve = move || {
            let (listener, mut service) = make(listener, ended.clone());
            let mut connections = Connections::new(listener, limits);
            let mut buried = Instant::now();
            while !ended.load(Ordering::Relaxed) {
                let before = cpu_time();
                let limit = (!service.is_empty()).then_some(BURY);
                let round = connections.round(&mut service, Some(woken.as_fd()), limit);
                // As where memory is short: it passes, and is no reason to be busy meanwhile.
                if let Err(error) = round {
                    debug!("no program can be served for the moment: {error}");
                    thread::sleep(Duration::from_secs(1));
                }
                if buried.elapsed() >= BURY {
                    buried = Instant::now();
                    service.bury();
                }
                // Also what is no whole request costs time.
                thread::sleep(rest_after(cpu_time().saturating_sub(before)));
            }
        };
        let thread = thread::Builder::new()
            .name(name.into())
            .stack_size(STACK)
            .spawn(serve)
            .context("cannot start a thread")?;
        Ok(Self {
            _place: place,
            over,
            wake: Some(wake),
            thread: Some(thread),
        })
    }
}

impl Drop for ServedSocket {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            join_in_time(thread);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_clients_take_the_longer_they_wait_but_none_shuts_out_the_others() {
        let us = Duration::from_micros;
        for (took, rest) in [
            (0, 1000),
            (100, 1000),
            (700, 7000),
            (25_000, 250_000),
            (u64::MAX, 250_000),
        ] {
            assert_eq!(rest_after(us(took)), us(rest), "{took}");
        }
    }
}
