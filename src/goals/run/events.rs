// SPDX-License-Identifier: GPL-2.0-only
//! Beats by what the kernel sees a program do: calls of a function (uprobes), and tracepoints. Each CPU has
//! an event, and a buffer with the time of each time that it happened.

use std::ffi::CString;
use std::fs;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use nix::errno::Errno;
use perf_event_open_sys as sys;
use sys::bindings as perf;

use super::libraries::ProbePlace;
use crate::exit::{ExitReason, Failure};
use crate::pmu::ring::{PerfRing, records};
use crate::topology::cpulist;

/// Bytes of each CPU's buffer: of a beat it takes 24. Twice that and a page is what every user may have
/// (`kernel.perf_event_mlock_kb`).
const DATA: usize = 64 << 10;

const UPROBES: &str = "/sys/bus/event_source/devices/uprobe/type";
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Where tracepoints are listed.
const TRACING: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// What lists them where they are not.
const MOUNT: &str = "'mount -t tracefs tracefs /sys/kernel/tracing'";

/// It has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Happened {
    /// When, monotonic ns.
    pub(super) at_ns: u64,
    /// In which process.
    pub(super) pid: u32,
}

/// Events that are watched until this is dropped.
pub(super) struct WatchedEvents {
    watched: Vec<(PerfRing, OwnedFd)>,
    /// Events that found no room.
    pub(super) lost: u64,
}

impl WatchedEvents {
    /// Watches calls of functions, in all processes: an event of one process would be inherited with an
    /// address in ours, and keep its children from starting.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub(super) fn functions(places: &[ProbePlace]) -> Result<Self> {
        let kind = fs::read_to_string(UPROBES).ok();
        let kind: Option<u32> = kind.and_then(|kind| kind.trim().parse().ok());
        let kind = kind.context(
            "this kernel cannot watch functions of programs: it needs CONFIG_UPROBE_EVENTS",
        )?;
        let mut events = Self::none();
        for place in places {
            let path = CString::new(place.path.as_os_str().as_bytes())?;
            let mut attr = attributes(kind);
            attr.__bindgen_anon_3.uprobe_path = path.as_ptr() as u64;
            attr.__bindgen_anon_4.probe_offset = place.offset;
            let what = format!("calls of a function of {}", place.path.display());
            events.watch(&attr, -1, &what)?;
        }
        Ok(events)
    }

    /// Watches a tracepoint in what the thread `tid`, which is ours, is about to start.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub(super) fn tracepoint_of(group: &str, name: &str, tid: i32) -> Result<Self> {
        let mut attr = attributes(perf::PERF_TYPE_TRACEPOINT);
        attr.set_inherit(1);
        attr.set_disabled(1);
        attr.set_enable_on_exec(1);
        Self::at(group, name, attr, tid)
    }

    /// Watches a tracepoint in all processes: of one that runs each thread would take an event for each CPU.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub(super) fn tracepoint(group: &str, name: &str) -> Result<Self> {
        Self::at(group, name, attributes(perf::PERF_TYPE_TRACEPOINT), -1)
    }

    fn at(group: &str, name: &str, mut attr: perf::perf_event_attr, tid: i32) -> Result<Self> {
        attr.config = tracepoint(group, name)?;
        let mut events = Self::none();
        events.watch(&attr, tid, &format!("tracepoint {group}:{name}"))?;
        Ok(events)
    }

    fn none() -> Self {
        Self {
            watched: Vec::new(),
            lost: 0,
        }
    }

    fn watch(&mut self, attr: &perf::perf_event_attr, tid: i32, what: &str) -> Result<()> {
        let online = fs::read_to_string(ONLINE).context("which CPUs are online?")?;
        for cpu in cpulist::parse(online.trim()).context("which CPUs are online?")? {
            let mut attr = *attr;
            // SAFETY: `attr` is a whole perf_event_attr that says its own size, and outlives the call,
            // as does the path that it may point to.
            let fd = unsafe {
                let flags = perf::PERF_FLAG_FD_CLOEXEC as std::ffi::c_ulong;
                sys::perf_event_open(&mut attr, tid, cpu as i32, -1, flags)
            };
            if fd < 0 {
                return Err(refusal(Errno::last(), what));
            }
            // SAFETY: the kernel has just made this descriptor, and nothing else knows of it.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            self.watched.push((PerfRing::map(&fd, DATA)?, fd));
        }
        Ok(())
    }

    /// What has happened since the last call, in its order.
    pub(super) fn drain(&mut self) -> Vec<Happened> {
        let mut all = Vec::new();
        for (ring, _) in &self.watched {
            let (happened, lost) = parse(&ring.drain());
            all.extend(happened);
            self.lost = self.lost.saturating_add(lost);
        }
        all.sort_unstable();
        all
    }
}

fn attributes(kind: u32) -> perf::perf_event_attr {
    let mut attr = perf::perf_event_attr {
        type_: kind,
        size: size_of::<perf::perf_event_attr>() as u32,
        // The layout that `parse` reads.
        sample_type: u64::from(perf::PERF_SAMPLE_TID | perf::PERF_SAMPLE_TIME),
        clockid: nix::libc::CLOCK_MONOTONIC,
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = 1;
    // Nothing waits for them: they are fetched now and then.
    attr.__bindgen_anon_2.wakeup_events = u32::MAX;
    attr.set_use_clockid(1);
    attr
}

fn parse(bytes: &[u8]) -> (Vec<Happened>, u64) {
    let (mut happened, mut lost) = (Vec::new(), 0u64);
    for (kind, body) in records(bytes) {
        let word = |n: usize| {
            body.as_chunks::<8>()
                .0
                .get(n)
                .map(|&word| u64::from_ne_bytes(word))
        };
        let pid = body.first_chunk().map(|&half| u32::from_ne_bytes(half));
        match (kind, pid, word(1)) {
            (perf::PERF_RECORD_SAMPLE, Some(pid), Some(at_ns)) => {
                happened.push(Happened { at_ns, pid });
            }
            (perf::PERF_RECORD_LOST, _, Some(number)) => lost = lost.saturating_add(number),
            _ => {}
        }
    }
    (happened, lost)
}

/// Whether there are tracepoints of that group; `None` where they cannot be looked up.
pub(super) fn is_group(group: &str) -> Option<bool> {
    match is_word(group) {
        true => Some(Path::new(&format!("{}/{group}", listed()?)).is_dir()),
        false => Some(false),
    }
}

/// Why what is no function may be no tracepoint, either.
pub(super) fn unknown(no_function: &anyhow::Error) -> anyhow::Error {
    hidden(&format!("{no_function}; "))
}

/// Tracepoints cannot be looked up.
fn hidden(before: &str) -> anyhow::Error {
    match nix::unistd::geteuid().is_root() {
        true => anyhow!("{before}tracepoints cannot be looked up: {MOUNT}"),
        false => not_allowed(format!(
            "{before}tracepoints cannot be looked up: it takes root, and tracefs ({MOUNT})"
        )),
    }
}

/// Where tracepoints are listed, if this user may see them.
fn listed() -> Option<String> {
    let mut places = TRACING.iter().map(|root| format!("{root}/events"));
    places.find(|events| fs::read_dir(events).is_ok_and(|mut all| all.next().is_some()))
}

/// What names of tracepoints are made of.
fn is_word(word: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !word.is_empty() && word.bytes().all(fits)
}

/// A tracepoint's number.
fn tracepoint(group: &str, name: &str) -> Result<u64> {
    if !is_word(group) || !is_word(name) {
        bail!("there is no tracepoint {group}:{name}: those have names of letters, digits and _");
    }
    let Some(events) = listed() else {
        return Err(hidden(""));
    };
    let id = fs::read_to_string(format!("{events}/{group}/{name}/id"));
    let id = id.ok().and_then(|id| id.trim().parse().ok());
    id.ok_or_else(|| anyhow!("there is no tracepoint {group}:{name}: 'ls {events}/{group}'"))
}

fn not_allowed(message: String) -> anyhow::Error {
    Failure {
        reason: ExitReason::NotAllowed,
        message,
    }
    .into()
}

fn refusal(errno: Errno, what: &str) -> anyhow::Error {
    match errno {
        Errno::EACCES | Errno::EPERM => not_allowed(format!(
            "{what} cannot be watched: it takes root ('sudo scx_hetero goal run', and before COMMAND \
             'runuser -u USER --', for it to run as you). Anybody may have lines, bytes or \
             instructions for beats"
        )),
        Errno::EMFILE => anyhow!(
            "{what} cannot be watched on all CPUs: too many open files, raise the limit ('ulimit -n')"
        ),
        Errno::EINVAL | Errno::EILSEQ | Errno::EOPNOTSUPP => anyhow!(
            "{what} cannot be watched there ({errno:?}): the kernel does not probe that instruction"
        ),
        errno => anyhow!("{what} cannot be watched: {} ({errno:?})", errno.desc()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, words: &[u64]) -> Vec<u8> {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend([0, 0]);
        bytes.extend((8 + 8 * words.len() as u16).to_ne_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    #[test]
    fn records_say_when_and_which_process() {
        let ids = u64::from_ne_bytes([7u32, 8].map(u32::to_ne_bytes).concat().try_into().unwrap());
        let bytes = [
            record(perf::PERF_RECORD_SAMPLE, &[ids, 1000]),
            record(perf::PERF_RECORD_LOST, &[1, 5]),
            record(perf::PERF_RECORD_EXIT, &[1, 2, 3]),
            record(perf::PERF_RECORD_SAMPLE, &[ids]),
        ];
        let happened = Happened {
            at_ns: 1000,
            pid: 7,
        };
        assert_eq!(parse(&bytes.concat()), (vec![happened], 5));
    }

    #[test]
    fn no_path_is_made_of_what_is_no_name() {
        for (group, name) in [
            ("..", "x"),
            ("sched", "../../x"),
            ("a/b", "c"),
            ("sched", "no_such"),
        ] {
            assert!(tracepoint(group, name).is_err());
        }
    }
}
