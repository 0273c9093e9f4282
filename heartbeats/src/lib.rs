// SPDX-License-Identifier: MIT
//! Tell `scx_hetero`, a scheduler for hybrid CPUs, how fast this program must be, and how fast it is.
//!
//! ```
//! use hetero_heartbeats::{Heartbeat, HeartbeatOptions, HeartbeatTarget};
//!
//! let heartbeat = Heartbeat::open(HeartbeatOptions {
//!     name: "player",
//!     target: HeartbeatTarget::Rate(30.0),
//!     ..HeartbeatOptions::default()
//! })?;
//! for _frame in 0..3 {
//!     // Decode it, then:
//!     heartbeat.beat();
//! }
//! assert_eq!(heartbeat.count(), 3);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! The scheduler gives the program the CPU time that its target takes. Where none runs everything works
//! as well and the rates can be read; a session connects by itself when one starts. A beat is a few
//! additions in memory and a look at the clock. All of it is the C library beside this crate
//! (`scx_hetero_heartbeat.h`), built into it; `docs/goals.md` of the project has the whole story.

#![deny(unsafe_op_in_unsafe_fn)]

pub mod advice;
mod ffi;

use std::ffi::{CStr, CString};
use std::io;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::time::Duration;

/// How fast a program must be.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum HeartbeatTarget {
    /// There is no goal, or none yet; the rates can be read all the same.
    #[default]
    None,
    /// Beats per second, from 0.001 to 1e6.
    Rate(f64),
    /// From beat to beat.
    Period(Duration),
    /// The work of a beat may take so long; see [`Heartbeat::beats_between`].
    Deadline(Duration),
}

/// What a session is.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeartbeatOptions<'a> {
    /// For people, up to 15 bytes; empty is the program's.
    pub name: &'a str,
    /// The goal.
    pub target: HeartbeatTarget,
    /// 1 to 10000, where goals exceed the machine; 0 is 100.
    pub weight: u32,
    /// Beats that the windowed rate is over, up to 1023; 0 is 20.
    pub window: u32,
    /// A child to speak for, or, as root, any process; 0 is this one.
    pub pid: u32,
    /// These threads alone; none are all that the process has.
    pub tids: &'a [i32],
    /// What the process starts is meant, too, as far as it is the same user's; only without `tids`.
    pub children: bool,
    /// The scheduler's socket; `None` is `$SCX_HETERO_GOALS`, or the usual one.
    pub socket: Option<&'a Path>,
}

/// A session. It ends when this is dropped.
#[derive(Debug)]
pub struct Heartbeat(NonNull<ffi::Session>);

// SAFETY: the library's functions may be called from any thread, several at once; only `close` may not,
// and that takes the owner.
unsafe impl Send for Heartbeat {}
// SAFETY: as above.
unsafe impl Sync for Heartbeat {}

/// Monotonic time as [`Heartbeat::beats_between`] wants it, ns.
pub fn now_ns() -> u64 {
    ffi::scx_hetero_hb_now_ns()
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// More than a period can be.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Heartbeat {
    /// Opens a session.
    ///
    /// # Errors
    /// The options make no sense, or memory is short. That there is no scheduler is no error.
    pub fn open(options: HeartbeatOptions) -> io::Result<Self> {
        let name = CString::new(options.name).map_err(|_| wrong("a name with a zero byte"))?;
        let socket = options
            .socket
            .map(|path| path.as_os_str().as_encoded_bytes());
        let socket = socket.map(CString::new).transpose();
        let socket = socket.map_err(|_| wrong("a path with a zero byte"))?;
        let pid = i32::try_from(options.pid).map_err(|_| wrong("no process has that number"))?;
        let nr_tids = u32::try_from(options.tids.len()).map_err(|_| wrong("too many threads"))?;
        let (mut rate, mut period_ns, mut deadline_ns) = (0.0, 0, 0);
        match options.target {
            HeartbeatTarget::None => {}
            HeartbeatTarget::Rate(beats) => rate = beats,
            HeartbeatTarget::Period(period) => period_ns = nanoseconds(period),
            HeartbeatTarget::Deadline(deadline) => deadline_ns = nanoseconds(deadline),
        }
        let options = ffi::Options {
            size: size_of::<ffi::Options>(),
            name: name.as_ptr(),
            rate,
            period_ns,
            deadline_ns,
            weight: options.weight,
            window: options.window,
            pid,
            nr_tids,
            tids: match options.tids {
                [] => ptr::null(),
                tids => tids.as_ptr(),
            },
            socket: socket.as_ref().map_or(ptr::null(), |path| path.as_ptr()),
            children: options.children.into(),
        };
        // SAFETY: the options say their own size, and what they point to outlives the call, after which
        // the library has copies.
        let session = unsafe { ffi::scx_hetero_hb_open(&options) };
        NonNull::new(session)
            .map(Self)
            .ok_or_else(io::Error::last_os_error)
    }

    fn raw(&self) -> *mut ffi::Session {
        self.0.as_ptr()
    }

    /// A piece of work is done.
    #[inline]
    pub fn beat(&self) {
        // SAFETY: as in all that follow, the session is open as long as `self` is.
        unsafe { ffi::scx_hetero_hb_beat(self.raw()) }
    }

    /// So many are, since the last call.
    pub fn beats(&self, n: u64) {
        // SAFETY: see `beat`.
        unsafe { ffi::scx_hetero_hb_beats(self.raw(), n) }
    }

    /// `n` pieces were begun and done at these times, by [`now_ns`]. For a program that waits between
    /// pieces, as for the screen: a deadline is held against the time from start to end, and not
    /// against the rate. A start of 0 is not known.
    pub fn beats_between(&self, n: u64, start_ns: u64, end_ns: u64) {
        // SAFETY: see `beat`.
        unsafe { ffi::scx_hetero_hb_beats_between(self.raw(), n, start_ns, end_ns) }
    }

    /// Has another goal from now on.
    ///
    /// # Errors
    /// It makes no sense; the old one stays.
    pub fn set_target(&self, target: HeartbeatTarget) -> io::Result<()> {
        let hb = self.raw();
        // SAFETY: see `beat`.
        let said = unsafe {
            match target {
                HeartbeatTarget::None => ffi::scx_hetero_hb_set_rate(hb, 0.0),
                HeartbeatTarget::Rate(rate) => ffi::scx_hetero_hb_set_rate(hb, rate),
                HeartbeatTarget::Period(period) => {
                    ffi::scx_hetero_hb_set_period(hb, nanoseconds(period))
                }
                HeartbeatTarget::Deadline(deadline) => {
                    ffi::scx_hetero_hb_set_deadline(hb, nanoseconds(deadline))
                }
            }
        };
        outcome(said)
    }

    /// Is about these threads from now on; none are all that the process has.
    ///
    /// # Errors
    /// They are too many (256), or no threads' numbers.
    pub fn set_threads(&self, tids: &[i32]) -> io::Result<()> {
        let n = u32::try_from(tids.len()).map_err(|_| wrong("too many threads"))?;
        // SAFETY: see `beat`; there are `n` of them, which the library copies.
        outcome(unsafe { ffi::scx_hetero_hb_set_threads(self.raw(), tids.as_ptr(), n) })
    }

    /// Weighs so much from now on.
    ///
    /// # Errors
    /// It is not 1 to 10000.
    pub fn set_weight(&self, weight: u32) -> io::Result<()> {
        // SAFETY: see `beat`.
        outcome(unsafe { ffi::scx_hetero_hb_set_weight(self.raw(), weight) })
    }

    /// Beats so far.
    pub fn count(&self) -> u64 {
        // SAFETY: see `beat`.
        unsafe { ffi::scx_hetero_hb_count(self.raw()) }
    }

    /// Beats per second since the first; `None` where there are too few to tell.
    pub fn global_rate(&self) -> Option<f64> {
        // SAFETY: see `beat`.
        known(unsafe { ffi::scx_hetero_hb_global_rate(self.raw()) })
    }

    /// Beats per second over the last ones, see [`HeartbeatOptions::window`].
    pub fn window_rate(&self) -> Option<f64> {
        // SAFETY: see `beat`.
        known(unsafe { ffi::scx_hetero_hb_window_rate(self.raw()) })
    }

    /// Beats per second by the last one.
    pub fn instant_rate(&self) -> Option<f64> {
        // SAFETY: see `beat`.
        known(unsafe { ffi::scx_hetero_hb_instant_rate(self.raw()) })
    }

    /// Beats per second that are wanted.
    pub fn target(&self) -> Option<f64> {
        // SAFETY: see `beat`.
        known(unsafe { ffi::scx_hetero_hb_target(self.raw()) })
    }

    /// Whether the scheduler has the session; looks at once.
    pub fn connected(&self) -> bool {
        // SAFETY: see `beat`.
        unsafe { ffi::scx_hetero_hb_connected(self.raw()) != 0 }
    }

    /// The same in words, with the reason if the scheduler refuses.
    pub fn state(&self) -> String {
        let mut text = [0u8; 256];
        // SAFETY: see `beat`; the text has so much room, and a zero at the end.
        unsafe { ffi::scx_hetero_hb_state(self.raw(), text.as_mut_ptr().cast(), text.len()) };
        let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
        text.to_string_lossy().into_owned()
    }
}

fn known(rate: f64) -> Option<f64> {
    (rate > 0.0).then_some(rate)
}

fn outcome(said: i32) -> io::Result<()> {
    match said {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        // SAFETY: nothing else has the session any more.
        unsafe { ffi::scx_hetero_hb_close(self.raw()) }
    }
}

#[cfg(test)]
mod tests;
