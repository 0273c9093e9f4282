// SPDX-License-Identifier: GPL-2.0-only
//! Which executable a file is: its ELF build id, or else a hash of parts of it. What is read is bounded, and
//! nothing that a user serves is read at all.

use std::fs::{self, File};
use std::hash::Hasher;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, ensure};
use object::Endianness;
use object::elf::{FileHeader32, FileHeader64, NT_GNU_BUILD_ID};
use object::read::elf::{FileHeader, ProgramHeader};
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, open, statx};
use twox_hash::XxHash64;

/// What is read at each place: headers and notes of an ELF file lie at its beginning.
const PART: usize = 64 << 10;

/// A build id of more bytes is cut.
const LONGEST_ID: usize = 32;

/// File systems without a device of their own whose files are here all the same. All others (FUSE, NFS, 9p) may
/// make wait whoever reads from them.
const LOCAL: [&str; 9] = [
    "bcachefs", "btrfs", "erofs", "ext4", "ramfs", "rootfs", "squashfs", "tmpfs", "zfs",
];

/// Its files are those of others, which in a user namespace of its own any user chooses: on FUSE, too.
const OVERLAY: &str = "overlay";

/// What tells a file from others, and from what it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileVersion {
    device: (u32, u32),
    inode: u64,
    size: u64,
    changed: (i64, u32),
}

/// The executable of a process, not opened yet.
pub(super) struct Executable {
    path_only: OwnedFd,
    pub(super) version: FileVersion,
}

impl Executable {
    /// That of a process.
    ///
    /// # Errors
    /// It has none, has ended, or its file is none that may be read.
    pub(super) fn of(tgid: u32) -> Result<Self> {
        let link = format!("/proc/{tgid}/exe");
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let path_only = open(&link, flags, Mode::empty())?;
        // DONT_SYNC: what serves the file is not asked.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
        let stat = statx(path_only.as_fd(), "", flags, wanted)?;
        ensure!(
            u32::from(stat.stx_mode) & 0o170_000 == 0o100_000,
            "it is no file"
        );
        ensure!(
            is_local(&stat, tgid),
            "its file is served by another program or machine"
        );
        let version = FileVersion {
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            size: stat.stx_size,
            changed: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
        };
        Ok(Self { path_only, version })
    }

    /// Reads what tells it from others: `build:` or `hash:`, and hexadecimal digits.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn identity(&self) -> Result<String> {
        let link = format!("/proc/self/fd/{}", self.path_only.as_raw_fd());
        let file = File::open(link).context("its file cannot be opened")?;
        identity(&file, self.version.size)
    }
}

fn is_local(stat: &Statx, tgid: u32) -> bool {
    if stat.stx_dev_major != 0 {
        return true;
    }
    let Ok(file) = File::open(format!("/proc/{tgid}/mountinfo")) else {
        return false;
    };
    let mut text = String::new();
    if file.take(1 << 20).read_to_string(&mut text).is_err() {
        return false;
    }
    match file_system(&text, stat.stx_mnt_id) {
        // After the mounts were read: no process of a user comes back from a namespace.
        Some(OVERLAY) => is_in_own_user_namespace(tgid),
        kind => kind.is_some_and(|kind| LOCAL.contains(&kind)),
    }
}

/// Whether a process is in this process's user namespace, which is that of the machine. All that it sees mounted was
/// then mounted by root or by what root has started.
fn is_in_own_user_namespace(tgid: u32) -> bool {
    let own = fs::read_link("/proc/self/ns/user");
    let its = fs::read_link(format!("/proc/{tgid}/ns/user"));
    matches!((own, its), (Ok(own), Ok(its)) if own == its)
}

/// The type of a mounted file system.
fn file_system(mountinfo: &str, id: u64) -> Option<&str> {
    let id = id.to_string();
    let mut lines = mountinfo.lines();
    let line = lines.find(|line| line.split(' ').next() == Some(&id))?;
    let (_, after) = line.split_once(" - ")?;
    after.split(' ').next()
}

fn identity(file: &File, size: u64) -> Result<String> {
    let mut start = vec![0; PART];
    let read = read_at(file, &mut start, 0)?;
    start.truncate(read);
    let by_id = build_id::<FileHeader64<Endianness>>(&start)
        .or_else(|| build_id::<FileHeader32<Endianness>>(&start));
    if let Some(id) = by_id {
        return Ok(format!("build:{}", hex(&id)));
    }
    // Twice 64 bits, for one may be the same by chance.
    let mut hashers = [0, 1].map(XxHash64::with_seed);
    let mut take = |bytes: &[u8]| hashers.iter_mut().for_each(|hasher| hasher.write(bytes));
    take(&size.to_le_bytes());
    take(&start);
    let mut part = start;
    for place in [size / 2, size.saturating_sub(PART as u64)] {
        part.resize(PART, 0);
        let read = read_at(file, &mut part, place)?;
        take(&part[..read]);
    }
    let [one, other] = hashers.map(|hasher| hasher.finish());
    Ok(format!("hash:{one:016x}{other:016x}"))
}

/// Fills as much of `buffer` as there is.
fn read_at(file: &File, buffer: &mut [u8], place: u64) -> Result<usize> {
    let mut read = 0;
    while read < buffer.len() {
        match file.read_at(&mut buffer[read..], place + read as u64)? {
            0 => break,
            more => read += more,
        }
    }
    Ok(read)
}

/// Of an ELF file that begins so.
fn build_id<Elf: FileHeader<Endian = Endianness>>(start: &[u8]) -> Option<Vec<u8>> {
    let header = Elf::parse(start).ok()?;
    let endian = header.endian().ok()?;
    for segment in header.program_headers(endian, start).ok()? {
        let Ok(Some(mut notes)) = segment.notes(endian, start) else {
            continue;
        };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == b"GNU" && note.n_type(endian) == NT_GNU_BUILD_ID {
                let id = note.desc();
                let id = &id[..id.len().min(LONGEST_ID)];
                // Some linkers are told to write none, and write zeros.
                return id.iter().any(|&byte| byte != 0).then(|| id.to_vec());
            }
        }
    }
    None
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_program_is_known_by_its_build_id_and_anything_else_by_its_content() {
        let own = Executable::of(std::process::id()).unwrap();
        let id = own.identity().unwrap();
        assert!(id.starts_with("build:") || id.starts_with("hash:"), "{id}");
        assert_eq!(id, own.identity().unwrap());
        assert!(Executable::of(u32::MAX).is_err());
        let of = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            identity(&file, bytes.len() as u64).unwrap()
        };
        let mut script = vec![b'#'; 3 * PART];
        let before = of(&script);
        script[3 * PART - 1] = b'!';
        assert!(before.starts_with("hash:") && before != of(&script));
        // Headers that point anywhere are no id, and read nothing.
        let mut lies = b"\x7fELF\x02\x01\x01".to_vec();
        lies.resize(64, 0xff);
        assert!(of(&lies).starts_with("hash:") && of(b"").starts_with("hash:"));
    }

    #[test]
    fn what_another_program_serves_is_not_read() {
        let info = "36 28 0:31 / /home/x rw shared:1 - fuse.sshfs x@y:/ rw\n\
                    37 28 0:32 / /b rw - btrfs /dev/sda rw\n";
        assert_eq!(file_system(info, 36), Some("fuse.sshfs"));
        assert_eq!(file_system(info, 37), Some("btrfs"));
        assert_eq!(file_system(info, 3), None);
        assert!(!LOCAL.contains(&"fuse.sshfs") && !LOCAL.contains(&OVERLAY));
        assert!(is_in_own_user_namespace(std::process::id()));
        assert!(!is_in_own_user_namespace(u32::MAX));
    }
}
