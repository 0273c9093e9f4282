// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's perf events as this tool uses them: of a thread and all that it starts, in groups,
//! on one CPU or on all that the PMU serves.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use perf_event_open_sys as sys;
use sys::bindings as perf;

use crate::exit::{ExitReason, Failure};
use crate::pmu::{Counter, CounterOptions, Encoding, Pmu, Space, Target};

/// What an event counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What<'a> {
    /// An event of a PMU.
    Hardware(&'a Pmu, &'a Encoding),
    /// Run time in nanoseconds.
    RunTime,
    /// Switches from the thread to another.
    Switches,
    /// Times that the thread began to run on another CPU than before.
    Migrations,
}

/// How and where it counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct How {
    /// The thread; what it starts from then on is counted with it.
    pub tid: i32,
    /// Only on this CPU.
    pub cpu: Option<u32>,
    /// Leave out what the kernel does for it.
    pub user_only: bool,
    /// The thread is ours and is about to start the command: count from its `exec` on.
    pub on_exec: bool,
    /// Open it stopped.
    pub stopped: bool,
    /// Samples of this group are wanted.
    pub sampled: bool,
    /// Raise one every so many counts.
    pub period: Option<u64>,
}

/// What a group counted, over the thread and all that it started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupReading {
    /// Nanoseconds that threads ran while it was switched on.
    pub enabled: u64,
    /// Nanoseconds for which it really counted.
    pub running: u64,
    /// A count for each member, the leader first, the others in the order of their opening.
    pub values: Vec<u64>,
}

/// An open event. It counts until it is dropped.
#[derive(Debug)]
pub(crate) struct PerfEvent {
    file: File,
}

impl PerfEvent {
    /// Opens an event, in the group of `leader` where one is given.
    pub(crate) fn open(what: What, how: How, leader: Option<&Self>) -> anyhow::Result<Self> {
        let mut attr = attributes(what, how, leader.is_some());
        let cpu = how.cpu.map_or(-1, |cpu| cpu as i32);
        let group = leader.map_or(-1, |leader| leader.file.as_raw_fd());
        // SAFETY: `attr` is a whole perf_event_attr that says its own size, and outlives the call.
        let fd = unsafe {
            let flags = perf::PERF_FLAG_FD_CLOEXEC as std::ffi::c_ulong;
            sys::perf_event_open(&mut attr, how.tid, cpu, group, flags)
        };
        if fd < 0 {
            return Err(refusal(Errno::last(), what, how));
        }
        // SAFETY: the kernel has just made this descriptor, and nobody else knows of it.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        Ok(Self { file })
    }

    /// Reads the group that this event leads.
    pub(crate) fn read_group(&self) -> io::Result<GroupReading> {
        let mut bytes = [0; 8 * (3 + MOST)];
        let length = (&self.file).read(&mut bytes)?;
        parse_group(&bytes[..length]).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Sends this event's samples to the buffer of `other`.
    pub(crate) fn output_to(&self, other: &Self) -> io::Result<()> {
        // SAFETY: both descriptors are open, and the request has no other argument.
        let result =
            unsafe { sys::ioctls::SET_OUTPUT(self.file.as_raw_fd(), other.file.as_raw_fd()) };
        Errno::result(result).map(drop).map_err(io::Error::from)
    }

    /// Starts or stops the group that this event leads.
    pub(crate) fn switch(&self, on: bool) -> io::Result<()> {
        let (fd, group) = (self.file.as_raw_fd(), perf::PERF_IOC_FLAG_GROUP);
        // SAFETY: these requests have no argument but a flag.
        let result = unsafe {
            match on {
                true => sys::ioctls::ENABLE(fd, group),
                false => sys::ioctls::DISABLE(fd, group),
            }
        };
        Errno::result(result).map(drop).map_err(io::Error::from)
    }
}

impl AsFd for PerfEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The most members of a group: more than a PMU has counters.
const MOST: usize = 64;

/// Reads what PERF_FORMAT_GROUP with both times makes of a group.
pub(crate) fn parse_group(bytes: &[u8]) -> Option<GroupReading> {
    let mut words = bytes
        .chunks_exact(8)
        .map(|b| u64::from_ne_bytes(b.try_into().expect("eight bytes")));
    let number = usize::try_from(words.next()?).ok()?;
    let (enabled, running) = (words.next()?, words.next()?);
    let values = (0..number.min(MOST)).map(|_| words.next());
    Some(GroupReading {
        enabled,
        running,
        values: values.collect::<Option<_>>()?,
    })
}

fn attributes(what: What, how: How, member: bool) -> perf::perf_event_attr {
    let (type_, config, config1, config2) = match what {
        What::Hardware(pmu, encoding) => {
            let type_ = match encoding.space {
                Space::Pmu => pmu.type_id,
                Space::Hardware => perf::PERF_TYPE_HARDWARE,
                Space::Cache => perf::PERF_TYPE_HW_CACHE,
            };
            (type_, encoding.config, encoding.config1, encoding.config2)
        }
        What::RunTime => software(perf::PERF_COUNT_SW_TASK_CLOCK),
        What::Switches => software(perf::PERF_COUNT_SW_CONTEXT_SWITCHES),
        What::Migrations => software(perf::PERF_COUNT_SW_CPU_MIGRATIONS),
    };
    let mut attr = perf::perf_event_attr {
        type_,
        size: size_of::<perf::perf_event_attr>() as u32,
        config,
        read_format: u64::from(
            perf::PERF_FORMAT_TOTAL_TIME_ENABLED
                | perf::PERF_FORMAT_TOTAL_TIME_RUNNING
                | perf::PERF_FORMAT_GROUP,
        ),
        ..Default::default()
    };
    attr.__bindgen_anon_3.config1 = config1;
    attr.__bindgen_anon_4.config2 = config2;
    if how.sampled {
        // The layout that `ring::parse` reads.
        attr.sample_type = u64::from(
            perf::PERF_SAMPLE_TID
                | perf::PERF_SAMPLE_TIME
                | perf::PERF_SAMPLE_CPU
                | perf::PERF_SAMPLE_READ,
        );
        attr.__bindgen_anon_1.sample_period = how.period.unwrap_or(0);
        attr.set_use_clockid(1);
        attr.clockid = CLOCK_MONOTONIC;
        attr.set_comm((!member).into());
    }
    attr.set_inherit(1);
    attr.set_exclude_kernel(how.user_only.into());
    // A group starts and stops with its leader.
    attr.set_disabled((!member && (how.on_exec || how.stopped)).into());
    attr.set_enable_on_exec((!member && how.on_exec).into());
    attr
}

const CLOCK_MONOTONIC: i32 = 1;

fn software(config: perf::perf_sw_ids) -> (u32, u64, u64, u64) {
    (perf::PERF_TYPE_SOFTWARE, u64::from(config), 0, 0)
}

/// Says why an event could not be opened, in the words that [`Counter`] has for it.
fn refusal(errno: Errno, what: What, how: How) -> anyhow::Error {
    let in_words = match what {
        What::Hardware(pmu, encoding) => {
            let options = CounterOptions {
                exclude_kernel: how.user_only,
                inherit: true,
                disabled: true,
                ..CounterOptions::default()
            };
            let alone = Counter::open(pmu, encoding, Target::Thread(how.tid), None, options);
            alone.err().filter(|error| error.errno == errno)
        }
        _ => None,
    };
    let message = match (in_words, errno) {
        (Some(error), _) => error.to_string(),
        (None, Errno::EINVAL) if how.sampled && !samples_groups() => {
            "this kernel cannot sample a group of counters through a program's threads: \
             Linux 6.13 can"
                .to_string()
        }
        (None, Errno::EINVAL) => match what {
            What::Hardware(pmu, event) => format!(
                "{} cannot count {} beside what the group has already",
                pmu.name, event.name
            ),
            _ => "the PMU cannot count these events at once".to_string(),
        },
        (None, Errno::EMFILE) => {
            "too many open files: raise the limit ('ulimit -n') or name fewer events".to_string()
        }
        (None, errno) => format!("cannot open a counter: {} ({errno:?})", errno.desc()),
    };
    match errno {
        Errno::EACCES | Errno::EPERM => Failure {
            reason: ExitReason::NotAllowed,
            message,
        }
        .into(),
        _ => anyhow::Error::msg(message),
    }
}

/// Whether this kernel samples groups through a program's threads, whatever the PMU.
fn samples_groups() -> bool {
    let how = How {
        stopped: true,
        sampled: true,
        ..How::default()
    };
    let mut attr = attributes(What::RunTime, how, false);
    // SAFETY: as in Event::open(); of the calling thread, on any CPU.
    let fd = unsafe { sys::perf_event_open(&mut attr, 0, -1, -1, 0) };
    if fd < 0 {
        return false;
    }
    // SAFETY: the kernel has just made this descriptor, and nothing else knows of it.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn a_group_is_read_member_by_member() {
        let group = parse_group(&bytes(&[2, 100, 90, 5, 6])).unwrap();
        assert_eq!((group.enabled, group.running), (100, 90));
        assert_eq!(group.values, [5, 6]);
    }

    #[test]
    fn what_is_cut_short_is_no_group() {
        for words in [&[][..], &[1, 2], &[2, 100, 90, 5]] {
            assert_eq!(parse_group(&bytes(words)), None);
        }
    }
}
