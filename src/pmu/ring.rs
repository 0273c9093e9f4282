// SPDX-License-Identifier: GPL-2.0-only
//! The buffer in which the kernel leaves records of an event, round and round.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use perf_event_open_sys::bindings as perf;

/// Kind and body of each record; stops at one that makes no sense.
pub(crate) fn records(mut bytes: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    std::iter::from_fn(move || {
        let (header, _) = bytes.split_at_checked(8)?;
        let kind = u32::from_ne_bytes(header[..4].try_into().expect("four bytes"));
        let size = u16::from_ne_bytes(header[6..8].try_into().expect("two bytes")) as usize;
        if size < 8 {
            return None;
        }
        let (record, rest) = bytes.split_at_checked(size)?;
        bytes = rest;
        Some((kind, &record[8..]))
    })
}

/// The buffer of an event, and of those that send their samples there.
#[derive(Debug)]
pub(crate) struct PerfRing {
    page: NonNull<perf::perf_event_mmap_page>,
    length: NonZeroUsize,
    data: usize,
}

impl PerfRing {
    /// Maps the buffer of `event`, with `data` bytes for records: pages, by a power of two.
    pub(crate) fn map(event: impl AsFd, data: usize) -> Result<Self> {
        let length = NonZeroUsize::new(page_size() + data).context("no room")?;
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
            data,
        })
    }

    /// Takes out all that the kernel has put in.
    pub(crate) fn drain(&self) -> Vec<u8> {
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
        for part in parts(tail.load(Ordering::Relaxed), end, self.data) {
            let old = bytes.len();
            bytes.resize(old + part.len(), 0);
            // SAFETY: `part` lies within the data, which follow the page in the mapping; the
            // kernel leaves these bytes alone until `data_tail` is moved past them.
            unsafe {
                let data = page.cast::<u8>().add(self.length.get() - self.data);
                let from = data.add(part.start);
                from.copy_to_nonoverlapping(bytes[old..].as_mut_ptr(), part.len());
            }
        }
        tail.store(end, Ordering::Release);
        bytes
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

    #[test]
    fn what_wraps_around_lies_in_two_parts() {
        assert_eq!(parts(0, 10, 16), [0..10, 0..0]);
        assert_eq!(parts(26, 38, 16), [10..16, 0..6]);
        assert_eq!(parts(16, 32, 16), [0..16, 0..0]);
        assert_eq!(parts(5, 5, 16), [5..5, 0..0]);
    }
}
