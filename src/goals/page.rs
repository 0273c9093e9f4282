// SPDX-License-Identifier: GPL-2.0-only
//! The page that a program counts its beats in.
//!
//! It is the program's memory, and the program may write anything there at any time. It is never mapped
//! here, so nothing that the program does to it is a fault of the agent's: 64 bytes are read as of a
//! file, whose length is sealed.

use std::os::fd::OwnedFd;

use rustix::fs::{FileType, SealFlags, fcntl_get_seals, fstat};
use rustix::io::pread;

/// "SHB1" as it lies in the memory of a little-endian machine.
const MAGIC: u32 = 0x3142_4853;
const VERSION: u32 = 1;

/// Bytes that are read.
pub(super) const LEN: usize = 64;

/// Bytes that the file has.
const SIZE: i64 = 4096;

const FLAG_DEADLINE: u64 = 1;

/// How fast a session must be, in thousandths of a beat per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GoalTarget {
    /// As fast as it happens to be.
    #[default]
    None,
    /// Beats come so often: the count over [`Beats::last_ns`].
    Rate(u64),
    /// Beats are worked on so fast, though they may come less often: the count over
    /// [`Beats::work_ns`].
    Deadline(u64),
}

impl GoalTarget {
    /// Beats per second that are wanted; 0 is none.
    pub fn per_second(self) -> f64 {
        self.thousandths() as f64 / 1000.0
    }

    /// The same in thousandths.
    pub(super) fn thousandths(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Rate(target) | Self::Deadline(target) => target,
        }
    }

    /// Another target, in thousandths, held against the same.
    pub(super) fn with(self, target: u64) -> Self {
        match self {
            Self::None | Self::Rate(_) => Self::Rate(target),
            Self::Deadline(_) => Self::Deadline(target),
        }
    }
}

/// What a program says that it has done. None of it need be true, nor go forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beats {
    /// Beats so far.
    pub count: u64,
    /// Monotonic time of the latest, ns.
    pub last_ns: u64,
    /// Time that beats took from their start to their end, as far as the program tells that, ns.
    pub work_ns: u64,
}

/// Memory that it may have, in units of 512 bytes: a huge page, where the kernel gives those.
const MOST_BLOCKS: i64 = (4 << 20) / 512;

/// Whether a descriptor is one of memory that is closed at once, now and later, which a page is.
///
/// # Errors
/// It is not, and may take any time to close; in words.
pub(super) fn check_memory(fd: &OwnedFd) -> Result<(), &'static str> {
    // Only memory of the kernel's can be sealed: no file on a slow disk or of a program's own. Those are not asked.
    let seals = fcntl_get_seals(fd).map_err(|_| "the page is no memfd")?;
    // Without seals a small one may have gigabytes by the time that it is closed.
    if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
        return Err("the page is not sealed: F_SEAL_SHRINK, F_SEAL_GROW");
    }
    let stat = fstat(fd).map_err(|_| "the page cannot be looked at")?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    match is_file && stat.st_size == SIZE && stat.st_blocks <= MOST_BLOCKS {
        true => Ok(()),
        false => Err("the page has not 4096 bytes"),
    }
}

/// A program's page.
#[derive(Debug)]
pub(super) struct Page(OwnedFd);

impl Page {
    /// Takes a descriptor that a program has sent.
    ///
    /// # Errors
    /// Why it cannot be read for sure and at once, in words.
    pub(super) fn new(fd: OwnedFd) -> Result<Self, &'static str> {
        check_memory(&fd)?;
        let page = Self(fd);
        match page.read() {
            Some(words) if words.fits() => Ok(page),
            Some(_) => Err("the page has another magic number or version"),
            None => Err("the page cannot be read"),
        }
    }

    /// What it says; `None` where the kernel does not give it away.
    pub(super) fn read(&self) -> Option<Words> {
        let mut bytes = [0u8; LEN];
        match pread(&self.0, &mut bytes, 0) {
            Ok(LEN) => Some(Words(bytes)),
            _ => None,
        }
    }
}

/// What is in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Words([u8; LEN]);

impl Words {
    fn word(&self, n: usize) -> u64 {
        let bytes = self.0.as_chunks::<8>().0;
        u64::from_ne_bytes(bytes[n])
    }

    fn half(&self, n: usize) -> u32 {
        let bytes = self.0.as_chunks::<4>().0;
        u32::from_ne_bytes(bytes[n])
    }

    /// Whether these are words of this version. A program may spoil that later; then it has no goal.
    fn fits(&self) -> bool {
        self.half(0) == MAGIC && self.half(1) == VERSION
    }

    /// What is wanted; nothing, if it is beyond what can be wanted.
    pub(super) fn target(&self) -> GoalTarget {
        let target = self.word(1);
        if !self.fits() || !(1..=super::MAX_TARGET).contains(&target) {
            return GoalTarget::None;
        }
        match self.word(2) & FLAG_DEADLINE {
            0 => GoalTarget::Rate(target),
            _ => GoalTarget::Deadline(target),
        }
    }

    /// What was done.
    pub(super) fn beats(&self) -> Beats {
        Beats {
            count: self.word(3),
            last_ns: self.word(4),
            work_ns: self.word(5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{
        FallocateFlags, MemfdFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
    };
    use std::fs::File;
    use std::io::Write;

    fn words(half: [u32; 2], words: [u64; 7]) -> Words {
        let mut bytes = Vec::new();
        bytes.extend(half.map(u32::to_ne_bytes).concat());
        bytes.extend(words.map(u64::to_ne_bytes).concat());
        Words(bytes.try_into().unwrap())
    }

    const HEAD: [u32; 2] = [MAGIC, VERSION];

    #[test]
    fn words_mean_what_the_library_wrote() {
        let read = words(HEAD, [60_000, 0, 7, 8, 9, 0, 0]);
        assert_eq!(read.target(), GoalTarget::Rate(60_000));
        let beats = Beats {
            count: 7,
            last_ns: 8,
            work_ns: 9,
        };
        assert_eq!(read.beats(), beats);
        let read = words(HEAD, [125_000, 1, 0, 0, 0, 0, 0]);
        assert_eq!(read.target(), GoalTarget::Deadline(125_000));
        assert_eq!(read.target().per_second(), 125.0);
    }

    #[test]
    fn garbage_wants_nothing() {
        for read in [
            words([0, VERSION], [60_000, 0, 0, 0, 0, 0, 0]),
            words([MAGIC, 2], [60_000, 0, 0, 0, 0, 0, 0]),
            words(HEAD, [0; 7]),
            words(HEAD, [u64::MAX; 7]),
            Words([0xff; LEN]),
        ] {
            assert_eq!(read.target(), GoalTarget::None, "{read:?}");
            let _ = read.beats();
        }
    }

    /// A memfd of `size` bytes with a page's head.
    fn memfd(size: u64, seals: SealFlags) -> OwnedFd {
        let fd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        let mut file = File::from(fd);
        file.write_all(&HEAD.map(u32::to_ne_bytes).concat())
            .unwrap();
        let fd = OwnedFd::from(file);
        ftruncate(&fd, size).unwrap();
        fcntl_add_seals(&fd, seals).unwrap();
        fd
    }

    #[test]
    fn only_a_sealed_memfd_of_one_page_is_taken() {
        let both = SealFlags::SHRINK | SealFlags::GROW;
        let page = Page::new(memfd(4096, both)).unwrap();
        assert_eq!(page.read().unwrap().beats(), Beats::default());

        let why = |fd| Page::new(fd).unwrap_err();
        assert!(why(memfd(4096, SealFlags::GROW)).contains("not sealed"));
        assert!(why(memfd(4096, SealFlags::empty())).contains("not sealed"));
        assert!(why(memfd(64, both)).contains("4096 bytes"));
        assert!(why(memfd(1 << 40, both)).contains("4096 bytes"));
        // Of the right length, but with more behind it.
        let large = memfd(4096, SealFlags::empty());
        fallocate(&large, FallocateFlags::KEEP_SIZE, 0, 8 << 20).unwrap();
        fcntl_add_seals(&large, both).unwrap();
        assert!(why(large).contains("4096 bytes"));
        let file = File::open("/proc/self/status").unwrap();
        assert!(why(file.into()).contains("no memfd"));
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let told = why(file.into());
        assert!(told.contains("no memfd") || told.contains("not sealed"));
        let empty = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&empty, 4096).unwrap();
        fcntl_add_seals(&empty, both).unwrap();
        assert!(why(empty).contains("magic"));
    }
}
