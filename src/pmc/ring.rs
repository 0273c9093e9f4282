// SPDX-License-Identifier: GPL-2.0-only
//! Samples, and what else the kernel leaves in their buffer.

use perf_event_open_sys::bindings as perf;

use super::perf::{GroupReading, parse_group};
use crate::pmu::ring::records;
use crate::text::plain;

/// Bytes for samples, a power of two; with the page before them no more than the kernel lets every
/// user have for each CPU (`kernel.perf_event_mlock_kb`).
pub(super) const DATA: usize = 512 << 10;

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
pub(super) fn parse(bytes: &[u8]) -> Vec<PerfRecord> {
    let mut parsed = Vec::new();
    for (kind, body) in records(bytes) {
        let word = |n: usize| {
            let bytes = body.get(8 * n..8 * n + 8)?;
            Some(u64::from_ne_bytes(bytes.try_into().expect("eight bytes")))
        };
        let half = |n: usize| {
            let bytes = body.get(4 * n..4 * n + 4)?;
            Some(u32::from_ne_bytes(bytes.try_into().expect("four bytes")))
        };
        let record = match kind {
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
        parsed.extend(record);
    }
    parsed
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
}
