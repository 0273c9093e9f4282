// SPDX-License-Identifier: GPL-2.0-only
//! Tells the service manager that the scheduler has started and that its loop goes on, as
//! sd_notify(3) describes. Where none has started it, nothing is told.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use log::{debug, warn};

/// It is told so many times in the time after which it takes the scheduler for hung.
const TIMES: u32 = 3;

/// See the module.
pub(crate) struct Watchdog {
    manager: Option<(UnixDatagram, SocketAddr)>,
    every: Option<Duration>,
    next: Instant,
    /// That it schedules was not taken yet.
    owes_ready: bool,
}

impl Watchdog {
    /// As the environment says: `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`.
    pub(crate) fn from_env() -> Self {
        let number = |name: &str| std::env::var(name).ok()?.parse().ok();
        let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let limit = number("WATCHDOG_USEC").filter(|_| ours);
        let socket = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        Self::new(socket.as_deref(), limit.map(Duration::from_micros))
    }

    fn new(socket: Option<&OsStr>, limit: Option<Duration>) -> Self {
        let manager = socket.and_then(|name| {
            let why = match connect(name) {
                Ok(manager) => return Some(manager),
                Err(why) => why,
            };
            warn!("the service manager cannot be told anything: {why}");
            None
        });
        Self {
            manager,
            every: limit.map(|limit| limit / TIMES),
            next: Instant::now(),
            owes_ready: false,
        }
    }

    /// The scheduler schedules. Said again with [`Self::alive`] where the manager has no room for it now: one that never
    /// hears it ends the scheduler.
    pub(crate) fn ready(&mut self) {
        self.owes_ready = !self.tell("READY=1");
    }

    /// The loop has come round; said no more often than it takes.
    pub(crate) fn alive(&mut self, now: Instant) {
        if self.owes_ready {
            self.ready();
        }
        if let Some(every) = self.every
            && now >= self.next
            && self.tell("WATCHDOG=1")
        {
            self.next = now + every;
        }
    }

    /// Whether it was taken. A manager that does not read must not hold up the loop.
    fn tell(&self, what: &str) -> bool {
        let Some((socket, manager)) = &self.manager else {
            return true;
        };
        let told = socket.send_to_addr(what.as_bytes(), manager);
        told.inspect_err(|error| debug!("the service manager does not hear {what}: {error}"))
            .is_ok()
    }
}

fn connect(name: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(manager: &UnixDatagram) -> Option<String> {
        let mut bytes = [0; 100];
        let read = manager.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..read]).into_owned())
    }

    /// A manager that wants to hear so often, in a folder of its own.
    fn managed(limit: Option<Duration>) -> (tempfile::TempDir, UnixDatagram, Watchdog) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        manager.set_nonblocking(true).unwrap();
        let watchdog = Watchdog::new(Some(path.as_os_str()), limit);
        (folder, manager, watchdog)
    }

    #[test]
    fn the_manager_hears_that_it_is_ready_and_then_in_time_that_it_is_alive() {
        let (_folder, manager, mut watchdog) = managed(Some(Duration::from_secs(30)));
        watchdog.ready();
        assert_eq!(heard(&manager).as_deref(), Some("READY=1"));
        let begin = watchdog.next;
        for (seconds, expected) in [(0, true), (5, false), (9, false), (11, true), (20, false)] {
            watchdog.alive(begin + Duration::from_secs(seconds));
            let heard = heard(&manager);
            assert_eq!(
                heard.as_deref(),
                expected.then_some("WATCHDOG=1"),
                "{seconds}"
            );
        }
    }

    #[test]
    fn a_manager_that_has_no_room_hears_that_it_is_ready_as_soon_as_it_has() {
        let (_folder, manager, mut watchdog) = managed(None);
        while watchdog.tell("STATUS=") {}
        watchdog.ready();
        watchdog.alive(watchdog.next);
        while heard(&manager).is_some_and(|said| said == "STATUS=") {}
        watchdog.alive(watchdog.next);
        watchdog.alive(watchdog.next);
        assert_eq!(heard(&manager).as_deref(), Some("READY=1"));
        assert_eq!(heard(&manager), None);
    }

    #[test]
    fn a_manager_that_does_not_read_or_is_not_there_holds_nothing_up() {
        let name = format!("@scx_hetero-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name[1..]).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let mut watchdog = Watchdog::new(Some(OsStr::new(&name)), Some(Duration::ZERO));
        let now = watchdog.next;
        for _ in 0..10_000 {
            watchdog.alive(now);
        }
        assert_eq!(heard(&manager).as_deref(), Some("WATCHDOG=1"));
        for socket in [
            None,
            Some(OsStr::new("/nowhere")),
            Some(OsStr::new("vsock:2:1")),
        ] {
            let mut watchdog = Watchdog::new(socket, Some(Duration::from_secs(1)));
            watchdog.ready();
            watchdog.alive(now + Duration::from_secs(60));
        }
    }
}
