// SPDX-License-Identifier: GPL-2.0-only
//! Samples: the buffer in which the kernel leaves them, and what they say.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use perf_event_open_sys::bindings as perf;

use super::perf::{GroupReading, PerfEvent, parse_group};
use crate::text::plain;

/// Bytes for samples, a power of two; with the page before them no more than the kernel lets every
/// user have for each CPU (`kernel.perf_event_mlock_kb`).
const DATA: usize = 512 << 10;

/// A record that matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PerfRecord {
    /// A group's counts at one moment.
    Sample(PerfSample),
    /// So many records found no room.
    Lost(u64),
    /// A thread has this name from now on.
    Name(u32, String),
}

/// A group's counts at one moment, for one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PerfSample {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Monotonic time, ns.
    pub at_ns: u64,
    /// Where it ran.
    pub cpu: u32,
    /// What this thread has counted on this CPU so far.
    pub group: GroupReading,
}

/// Reads records, passing over those of no interest; stops at one that makes no sense.
pub(super) fn parse(mut bytes: &[u8]) -> Vec<PerfRecord> {
    let mut records = Vec::new();
    while let Some((header, _)) = bytes.split_at_checked(8) {
        let kind = u32::from_ne_bytes(header[..4].try_into().expect("four bytes"));
        let size = u16::from_ne_bytes(header[6..8].try_into().expect("two bytes")) as usize;
        if size < 8 || size > bytes.len() {
            break;
        }
        let (record, rest) = bytes.split_at(size);
        let body = &record[8..];
        let word = |n: usize| {
            let bytes = body.get(8 * n..8 * n + 8)?;
            Some(u64::from_ne_bytes(bytes.try_into().expect("eight bytes")))
        };
        let half = |n: usize| {
            let bytes = body.get(4 * n..4 * n + 4)?;
            Some(u32::from_ne_bytes(bytes.try_into().expect("four bytes")))
        };
        let parsed = match kind {
            perf::PERF_RECORD_SAMPLE => (|| {
                Some(PerfRecord::Sample(PerfSample {
                    pid: half(0)?,
                    tid: half(1)?,
                    at_ns: word(1)?,
                    cpu: half(4)?,
                    group: parse_group(body.get(24..)?)?,
                }))
            })(),
            perf::PERF_RECORD_LOST => word(1).map(PerfRecord::Lost),
            perf::PERF_RECORD_COMM => (|| {
                let name = body.get(8..)?.split(|&byte| byte == 0).next()?;
                Some(PerfRecord::Name(
                    half(1)?,
                    plain(&String::from_utf8_lossy(name)).into_owned(),
                ))
            })(),
            _ => None,
        };
        records.extend(parsed);
        bytes = rest;
    }
    records
}

/// The buffer of an event, and of those that send their samples there.
#[derive(Debug)]
pub(super) struct PerfRing {
    page: NonNull<perf::perf_event_mmap_page>,
    length: NonZeroUsize,
}

impl PerfRing {
    /// Maps the buffer of `event`.
    pub(super) fn map(event: &PerfEvent) -> Result<Self> {
        let length = NonZeroUsize::new(page_size() + DATA).context("no room")?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses aliases nothing.
        let page = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, event, 0) }
            .context(
                "cannot map a buffer for samples: raise 'sysctl kernel.perf_event_mlock_kb', or \
                 run it as root",
            )?;
        Ok(Self {
            page: page.cast(),
            length,
        })
    }

    /// Takes out all that the kernel has put in.
    pub(super) fn drain(&self) -> Vec<PerfRecord> {
        let page = self.page.as_ptr();
        // SAFETY: the page is mapped as long as `self` lives. The kernel writes `data_head` at any
        // time, hence atomically, and never `data_tail`.
        let (head, tail) = unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*page).data_head),
                AtomicU64::from_ptr(&raw mut (*page).data_tail),
            )
        };
        let end = head.load(Ordering::Acquire);
        let mut bytes = Vec::new();
        for part in parts(tail.load(Ordering::Relaxed), end, DATA) {
            let old = bytes.len();
            bytes.resize(old + part.len(), 0);
            // SAFETY: `part` lies within the data, which follow the page in the mapping; the
            // kernel leaves these bytes alone until `data_tail` is moved past them.
            unsafe {
                let data = page.cast::<u8>().add(self.length.get() - DATA);
                let from = data.add(part.start);
                from.copy_to_nonoverlapping(bytes[old..].as_mut_ptr(), part.len());
            }
        }
        tail.store(end, Ordering::Release);
        parse(&bytes)
    }
}

/// Where in a buffer of `size` bytes that is written round and round the bytes from `tail` to
/// `head` lie, in their order.
fn parts(tail: u64, head: u64, size: usize) -> [Range<usize>; 2] {
    let length = (head.wrapping_sub(tail) as usize).min(size);
    let start = (tail % size as u64) as usize;
    let first = length.min(size - start);
    [start..start + first, 0..length - first]
}

/// Monotonic time, the samples' clock, ns.
pub(super) fn now_ns() -> u64 {
    let mut now = nix::libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills in `now` and keeps no pointer.
    unsafe { nix::libc::clock_gettime(nix::libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn page_size() -> usize {
    // SAFETY: this only asks for a number.
    let size = unsafe { nix::libc::sysconf(nix::libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

impl Drop for PerfRing {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it any more.
        let _ = unsafe { munmap(self.page.cast(), self.length.get()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let size = (8 + body.len()) as u16;
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend([0, 0]);
        bytes.extend(size.to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    fn sample(tid: u32, at_ns: u64, values: &[u64]) -> Vec<u8> {
        let mut body: Vec<u8> = [7u32, tid].iter().flat_map(|n| n.to_ne_bytes()).collect();
        body.extend(at_ns.to_ne_bytes());
        body.extend([3u32, 0].iter().flat_map(|n| n.to_ne_bytes()));
        for word in [&[values.len() as u64, 50, 40], values].concat() {
            body.extend(word.to_ne_bytes());
        }
        record(perf::PERF_RECORD_SAMPLE, &body)
    }

    #[test]
    fn records_are_told_apart() {
        let lost = [9u64, 4].map(u64::to_ne_bytes).concat();
        let mut named = [7u32, 8].map(u32::to_ne_bytes).concat();
        named.extend(b"sort\0\0\0\0");
        let bytes = [
            sample(8, 1000, &[10, 20]),
            record(perf::PERF_RECORD_EXIT, &[0; 24]),
            record(perf::PERF_RECORD_LOST, &lost),
            record(perf::PERF_RECORD_COMM, &named),
        ]
        .concat();
        let group = GroupReading {
            enabled: 50,
            running: 40,
            values: vec![10, 20],
        };
        let expected = PerfSample {
            pid: 7,
            tid: 8,
            at_ns: 1000,
            cpu: 3,
            group,
        };
        assert_eq!(
            parse(&bytes),
            [
                PerfRecord::Sample(expected),
                PerfRecord::Lost(4),
                PerfRecord::Name(8, "sort".into())
            ]
        );
    }

    #[test]
    fn nonsense_ends_the_reading_and_does_no_harm() {
        let good = sample(8, 1000, &[10]);
        for bad in [&[0; 8][..], &good[..12], &record(9, &[1; 5])] {
            let bytes = [&good[..], bad].concat();
            assert_eq!(parse(&bytes).len(), 1);
        }
    }

    #[test]
    fn what_wraps_around_lies_in_two_parts() {
        assert_eq!(parts(0, 10, 16), [0..10, 0..0]);
        assert_eq!(parts(26, 38, 16), [10..16, 0..6]);
        assert_eq!(parts(16, 32, 16), [0..16, 0..0]);
        assert_eq!(parts(5, 5, 16), [5..5, 0..0]);
    }
}
