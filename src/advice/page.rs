// SPDX-License-Identifier: GPL-2.0-only
//! The page that a program reads its advice in.
//!
//! A memfd of the scheduler's. It is sealed before anybody else has it: its length stays, and no later mapping can
//! write, so the program can neither change nor truncate it. The scheduler writes through the mapping made before.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use hetero_core::advice::Advice;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::frame::{MAGIC, PAGE, VERSION};
use crate::topology::{MAX_CORE_TYPES, Topology};

const WORDS: usize = PAGE / 4;

/// CPUs that a page has room for.
const CPUS: usize = 1024;

/// Words of the record, by place. `heartbeats/scx_hetero_advice.h` has the same as a struct.
pub(super) mod at {
    pub(in super::super) const MAGIC: usize = 0;
    pub(in super::super) const VERSION: usize = 1;
    pub(in super::super) const SEQUENCE: usize = 2;
    pub(in super::super) const THREADS: usize = 3;
    pub(in super::super) const THREADS_EQUAL: usize = 4;
    pub(in super::super) const FAST_CORES: usize = 5;
    pub(in super::super) const COMPANY: usize = 6;
    pub(in super::super) const TYPES: usize = 7;
    pub(in super::super) const CLASS: usize = 8;
    pub(in super::super) const SLOWDOWN: usize = 9;
    pub(in super::super) const CONFIDENCE: usize = 10;
    pub(in super::super) const CULPRIT: usize = 11;
    pub(in super::super) const CULPRIT_PART: usize = 12;
    pub(in super::super) const NR_PLACE: usize = 13;
    /// Four words for each core type: CPUs, free, speed, 0.
    pub(in super::super) const TYPE: usize = 16;
    /// A byte for each CPU: its core type + 1, 0 where there is none.
    pub(in super::super) const TYPE_OF_CPU: usize = 128;
    /// Two bytes for each of the CPUs advised.
    pub(in super::super) const PLACE: usize = 384;
}

/// What is written; 4 KiB, to be compared.
type Record = [u32; WORDS];

/// See the module.
#[derive(Debug)]
pub(super) struct AdvicePage {
    words: NonNull<[AtomicU32; WORDS]>,
    fd: OwnedFd,
    /// What is there.
    record: Box<Record>,
}

// SAFETY: the mapping is this one's own until it is dropped, and is accessed by atomic operations alone.
unsafe impl Send for AdvicePage {}

impl AdvicePage {
    /// An empty one.
    ///
    /// # Errors
    /// The kernel has no memory or no descriptor.
    pub(super) fn new() -> Result<Self, rustix::io::Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create("scx_hetero advice", flags)?;
        ftruncate(&fd, PAGE as u64)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let length = const { std::num::NonZeroUsize::new(PAGE).unwrap() };
        // SAFETY: a new mapping, at a place of the kernel's choice, of as many bytes as the file has.
        let words = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, &fd, 0) };
        let words = words.map_err(|_| rustix::io::Errno::NOMEM)?;
        let mut page = Self {
            words: words.cast(),
            fd,
            record: Box::new([0; WORDS]),
        };
        fcntl_add_seals(
            &page.fd,
            SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL,
        )?;
        page.clear();
        Ok(page)
    }

    /// For a program.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    fn words(&self) -> &[AtomicU32; WORDS] {
        // SAFETY: the mapping has that many words, is aligned to a page, and lives as long as this. Its
        // length is sealed, so no access fails. Others that map it can only read.
        unsafe { self.words.as_ref() }
    }

    /// Has the program see this. Nothing is written where nothing has changed.
    pub(super) fn write(&mut self, advice: &Advice, topology: &Topology) {
        let mut record = Box::new([0; WORDS]);
        fill(&mut record, advice, topology);
        record[at::SEQUENCE] = self.record[at::SEQUENCE];
        if record == self.record {
            return;
        }
        record[at::SEQUENCE] = record[at::SEQUENCE].wrapping_add(2);
        self.put(record);
    }

    /// As new, for another program.
    pub(super) fn clear(&mut self) {
        let mut record = Box::new([0; WORDS]);
        (record[at::MAGIC], record[at::VERSION]) = (MAGIC, VERSION);
        self.put(record);
    }

    fn put(&mut self, record: Box<Record>) {
        let odd = self.record[at::SEQUENCE].wrapping_add(1);
        let words = self.words();
        words[at::SEQUENCE].store(odd, Ordering::Relaxed);
        fence(Ordering::Release);
        for (at, (word, new)) in words.iter().zip(record.iter()).enumerate() {
            if at != at::SEQUENCE && *new != self.record[at] {
                word.store(*new, Ordering::Relaxed);
            }
        }
        words[at::SEQUENCE].store(record[at::SEQUENCE], Ordering::Release);
        self.record = record;
    }
}

impl Drop for AdvicePage {
    fn drop(&mut self) {
        // SAFETY: it was mapped so, and nothing refers to it any more.
        let _ = unsafe { munmap(self.words.cast(), PAGE) };
    }
}

/// Thousandths, in steps that do not change with each look.
fn thousandths(value: f64, step: f64) -> u32 {
    ((value * 1000.0 / step).round() * step).clamp(0.0, 1e9) as u32
}

fn fill(record: &mut Record, advice: &Advice, topology: &Topology) {
    record[at::MAGIC] = MAGIC;
    record[at::VERSION] = VERSION;
    record[at::THREADS] = advice.threads as u32;
    record[at::THREADS_EQUAL] = advice.threads_equal as u32;
    record[at::FAST_CORES] = thousandths(advice.fast_cores, 50.0);
    record[at::COMPANY] = thousandths(advice.company, 50.0);
    record[at::TYPES] = advice.rooms.len().min(MAX_CORE_TYPES) as u32;
    if let Some(found) = &advice.interference {
        record[at::CLASS] = found.class as u32;
        record[at::SLOWDOWN] = thousandths(found.slowdown, 10.0);
        record[at::CONFIDENCE] = thousandths(found.confidence, 50.0);
        let (culprit, part) = found.culprit.unwrap_or_default();
        record[at::CULPRIT] = culprit;
        record[at::CULPRIT_PART] = thousandths(part, 50.0);
    }
    for (core_type, room) in advice.rooms.iter().enumerate().take(MAX_CORE_TYPES) {
        let of = &mut record[at::TYPE + 4 * core_type..][..3];
        let free = thousandths(room.free().min(room.cpus), 50.0);
        of.copy_from_slice(&[room.cpus as u32, free, thousandths(room.speed, 10.0)]);
    }
    let cpus = topology.cpus.iter().filter(|cpu| (cpu.id as usize) < CPUS);
    for cpu in cpus {
        let id = cpu.id as usize;
        let mut bytes = record[at::TYPE_OF_CPU + id / 4].to_ne_bytes();
        bytes[id % 4] = cpu.core_type as u8 + 1;
        record[at::TYPE_OF_CPU + id / 4] = u32::from_ne_bytes(bytes);
    }
    let place = &advice.place[..advice.place.len().min(CPUS)];
    record[at::NR_PLACE] = place.len() as u32;
    for (pair, word) in place.chunks(2).zip(&mut record[at::PLACE..]) {
        let of = |at: usize| pair.get(at).map_or(0, |&id| id as u16).to_ne_bytes();
        let (first, second) = (of(0), of(1));
        *word = u32::from_ne_bytes([first[0], first[1], second[0], second[1]]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hetero_core::advice::TypeRoom;
    use hetero_core::testing::board;
    use rustix::io::{pread, pwrite};
    use std::os::fd::AsFd;

    fn word(fd: &OwnedFd, at: usize) -> u32 {
        let mut bytes = [0; 4];
        assert_eq!(pread(fd, &mut bytes, 4 * at as u64), Ok(4));
        u32::from_ne_bytes(bytes)
    }

    #[test]
    fn a_program_reads_what_is_written_and_writes_nothing() {
        let mut page = AdvicePage::new().unwrap();
        let fd = page.descriptor().unwrap();
        assert_eq!(word(&fd, at::MAGIC), MAGIC);
        assert_eq!(word(&fd, at::SEQUENCE), 0);
        let advice = Advice {
            threads: 6,
            threads_equal: 4,
            fast_cores: 4.5,
            rooms: vec![TypeRoom {
                cpus: 4.0,
                taken: 1.0,
                speed: 1.0,
            }],
            place: vec![0, 1, 2],
            ..Advice::default()
        };
        let topology = board(4, 4);
        page.write(&advice, &topology);
        assert_eq!(word(&fd, at::SEQUENCE), 2);
        assert_eq!(
            (word(&fd, at::THREADS), word(&fd, at::FAST_CORES)),
            (6, 4500)
        );
        assert_eq!(word(&fd, at::TYPE + 1), 3000);
        assert_eq!(word(&fd, at::TYPE_OF_CPU).to_ne_bytes(), [1; 4]);
        assert_eq!(word(&fd, at::TYPE_OF_CPU + 1).to_ne_bytes(), [2; 4]);
        // The same again is no news.
        page.write(&advice, &topology);
        assert_eq!(word(&fd, at::SEQUENCE), 2);

        // Whoever has it next finds nothing of that.
        page.clear();
        let left = [at::MAGIC, at::SEQUENCE, at::THREADS, at::TYPE_OF_CPU].map(|at| word(&fd, at));
        assert_eq!(left, [MAGIC, 0, 0, 0]);
        page.write(&advice, &topology);
        assert_eq!((word(&fd, at::SEQUENCE), word(&fd, at::THREADS)), (2, 6));

        assert!(pwrite(&fd, &[1], 0).is_err());
        assert!(ftruncate(&fd, 0).is_err());
        let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let length = std::num::NonZeroUsize::new(PAGE).unwrap();
        // SAFETY: a new mapping, if there is one at all.
        let mapped = unsafe { mmap(None, length, both, MapFlags::MAP_SHARED, fd.as_fd(), 0) };
        assert!(mapped.is_err(), "a program can write");
    }

    #[test]
    fn whatever_is_advised_fits() {
        let mut page = AdvicePage::new().unwrap();
        let room = TypeRoom {
            cpus: f64::NAN,
            taken: f64::INFINITY,
            speed: -1.0,
        };
        let advice = Advice {
            rooms: vec![room; 9],
            threads: usize::MAX,
            company: 1e300,
            place: (0..5000).collect(),
            ..Advice::default()
        };
        page.write(&advice, &board(4, 4));
    }
}
