// SPDX-License-Identifier: GPL-2.0-or-later
//! Files that are read up to a size, files that are written whole or not at all, and files that a command must not mix up.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf, absolute};

use anyhow::{Context, Result};

use crate::output::WrongUsage;
use tempfile::{Builder, NamedTempFile};

/// The largest file that is read as text, bytes: rules, mixes, models and the like have some MiB at the most.
const MOST_TEXT: u64 = 64 << 20;
/// The same of tables and results, which grow with what was measured.
const MOST_TABLE: u64 = 1 << 30;
/// Mode of a file like any other, of which the umask takes away.
const COMMON: u32 = 0o666;
/// So much tells that a device or a program is no text, bytes.
const BEGINNING: u64 = 64 << 10;

/// The text of a small file, as the kernel's are, without white space at its ends; `None` if it cannot be read.
pub fn read_trimmed(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_string())
}

/// Reads a file that a user has named, up to a size: a device may have no end. A FIFO is read like a file.
///
/// # Errors
/// As [`fs::read_to_string`]; or it is no text, or larger than any such file.
pub fn read_text(path: &Path) -> io::Result<String> {
    read_up_to(path, MOST_TEXT)
}

/// [`read_text`] of a table or of results.
///
/// # Errors
/// The same.
pub fn read_table(path: &Path) -> io::Result<String> {
    read_up_to(path, MOST_TABLE)
}

/// Whether it is a pipe that has a name. To open one waits for another program, without end and deaf to signals, which
/// what is read again while the scheduler runs must not be. A shell's `<(COMMAND)` is none.
pub fn is_named_pipe(path: &Path) -> bool {
    let is_pipe = fs::metadata(path).is_ok_and(|of| of.file_type().is_fifo());
    is_pipe && fs::canonicalize(path).is_ok()
}

fn read_up_to(path: &Path, most: u64) -> io::Result<String> {
    let no_text = || {
        io::Error::new(
            ErrorKind::InvalidData,
            "it is no text: is it the right file?",
        )
    };
    let file = File::open(path)?;
    let mut bytes = Vec::new();
    (&file).take(BEGINNING).read_to_end(&mut bytes)?;
    if bytes.contains(&0) {
        return Err(no_text());
    }
    let left = (most + 1).saturating_sub(bytes.len() as u64);
    file.take(left).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let why = format!(
            "it is larger than {} MiB, as no such file is: is it the right one?",
            most >> 20
        );
        return Err(io::Error::new(ErrorKind::FileTooLarge, why));
    }
    String::from_utf8(bytes).map_err(|_| no_text())
}

/// Refuses a command that would write over a file that it reads, or write one file twice; symlinks and other spellings
/// count. What is read is called by what it is, and what is written by the option that names it: [`named`].
///
/// # Errors
/// In words: which file, and which option is to name another.
pub fn check_distinct<'a>(
    reads: impl IntoIterator<Item = (&'a Path, &'a str)>,
    writes: impl IntoIterator<Item = (&'a Path, &'a str)>,
) -> Result<()> {
    let reads: Vec<(&Path, &str)> = reads.into_iter().collect();
    let writes: Vec<(&Path, &str)> = writes.into_iter().collect();
    for (place, (path, option)) in writes.iter().enumerate() {
        let same = |(other, _): &&(&Path, &str)| is_same(path, other);
        if let Some((_, what)) = reads.iter().find(same) {
            return Err(WrongUsage(format!(
                "{} is {what} itself: name another file with {option}",
                path.display()
            ))
            .into());
        }
        if let Some((_, other)) = writes[..place].iter().find(same) {
            return Err(WrongUsage(format!(
                "{} would be written for {other} and for {option}: name different files",
                path.display()
            ))
            .into());
        }
    }
    Ok(())
}

/// Files for [`check_distinct`], with what to call each.
pub fn named<'a, P: AsRef<Path> + ?Sized + 'a>(
    paths: impl IntoIterator<Item = &'a P>,
    what: &'a str,
) -> impl Iterator<Item = (&'a Path, &'a str)> {
    paths.into_iter().map(move |path| (path.as_ref(), what))
}

/// Whether two paths lead to one file, be it there or not. Devices may be named twice.
fn is_same(a: &Path, b: &Path) -> bool {
    match (fs::metadata(a), fs::metadata(b)) {
        (Ok(a), Ok(b)) => a.is_file() && (a.dev(), a.ino()) == (b.dev(), b.ino()),
        (Err(_), Err(_)) => a == b || place_of(a).is_some_and(|place| place_of(b) == Some(place)),
        _ => false,
    }
}

/// Where a file that is not there would be.
fn place_of(path: &Path) -> Option<PathBuf> {
    let folder = folder_of(path);
    let folder = folder.canonicalize().or_else(|_| absolute(folder)).ok()?;
    Some(folder.join(path.file_name()?))
}

/// Writes a file whole or not at all.
///
/// # Errors
/// In words; the old file is still there then.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    write_as(path, bytes, COMMON)
}

/// [`write_whole`] for the file's owner alone.
///
/// # Errors
/// The same.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<()> {
    write_as(path, bytes, 0o600)
}

fn write_as(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let write = || -> io::Result<()> {
        let mut file = beside(path, mode)?;
        // Its errors do not name the temporary file, as those of NamedTempFile do.
        file.as_file_mut().write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Looks whether [`write_whole`] could write there, and leaves nothing.
///
/// # Errors
/// It could not.
pub fn check_writable(path: &Path) -> io::Result<()> {
    beside(path, COMMON).map(drop)
}

/// A new file in the same folder, so that it can be renamed. Its name cannot be foreseen, and what
/// is there already is not opened: in a folder of another user root would else follow a symlink.
fn beside(path: &Path, mode: u32) -> io::Result<NamedTempFile> {
    // Root could rename a file to /dev/null, and nothing would be as before.
    if fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        let why = "what is there is no file; name another place";
        return Err(io::Error::new(ErrorKind::InvalidInput, why));
    }
    let mut options = File::options();
    options.write(true).create_new(true).mode(mode);
    Builder::new()
        .prefix(".scx_hetero-")
        // What fails here does not name the temporary file, as with tempfile_in: that means nothing to people.
        .make_in(folder_of(path), |path| options.open(path))
}

/// The folder that a file is in, by its path alone.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn nothing_is_written_through_a_symlink_that_lies_in_wait() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("precious"), "kept").unwrap();
        for name in ["out.new", "out"] {
            symlink(at("precious"), at(name)).unwrap();
        }
        check_writable(&at("out")).unwrap();
        write_whole(&at("out"), b"text").unwrap();
        assert_eq!(fs::read_to_string(at("precious")).unwrap(), "kept");
        assert_eq!(fs::read_to_string(at("out")).unwrap(), "text");
        assert!(!at("out").is_symlink());
        // Nothing is left beside it, either.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_device_without_an_end_and_a_binary_file_are_refused_and_a_fifo_is_read() {
        let zero = read_table(Path::new("/dev/zero")).unwrap_err();
        assert!(zero.to_string().contains("no text"), "{zero}");
        assert_eq!(read_text(Path::new("/dev/null")).unwrap(), "");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, [b'a', 0xff]).unwrap();
        assert!(
            read_text(&path)
                .unwrap_err()
                .to_string()
                .contains("no text")
        );
        fs::write(&path, "four").unwrap();
        assert_eq!(read_up_to(&path, 4).unwrap(), "four");
        let large = read_up_to(&path, 3).unwrap_err();
        assert!(large.to_string().contains("larger than"), "{large}");
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"piped").unwrap();
        drop(writer);
        let fd = std::os::fd::AsRawFd::as_raw_fd(&reader);
        let fifo = PathBuf::from(format!("/proc/self/fd/{fd}"));
        assert_eq!(read_text(&fifo).unwrap(), "piped");
    }

    #[test]
    fn a_file_is_the_same_by_any_name_and_before_it_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("table"), "").unwrap();
        symlink(at("table"), at("link")).unwrap();
        symlink(folder.path(), at("again")).unwrap();
        let check = |read: &str, write: &str, other: &str| {
            let (read, write, other) = (at(read), at(write), at(other));
            check_distinct(
                named([&read], "the table"),
                named([&write], "--output").chain(named([&other], "--report")),
            )
            .map_err(|error| error.to_string())
        };
        for name in ["table", "link", "./table", "again/table", "again/./table"] {
            let said = check("table", name, "else").unwrap_err();
            assert!(
                said.ends_with("is the table itself: name another file with --output"),
                "{said}"
            );
        }
        for name in ["new", "./new", "again/new"] {
            let said = check("table", "new", name).unwrap_err();
            assert!(said.contains("for --output and for --report"), "{said}");
        }
        assert!(check("none/table", "none/table", "else").is_err());
        assert!(check("table", "new", "else").is_ok());
        let null = Path::new("/dev/null");
        assert!(check_distinct(named([null], "the table"), named([null], "--output")).is_ok());
    }

    #[test]
    fn where_nothing_can_be_written_that_is_said_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).unwrap();
        let error = write_whole(&taken, b"text").unwrap_err();
        assert!(error.to_string().contains("taken"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let error = check_writable(Path::new("/proc/none/file")).unwrap_err();
        assert!(!error.to_string().contains(".scx_hetero-"), "{error}");
    }

    #[test]
    fn what_is_no_file_stays_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let [socket, link] = ["socket", "link"].map(|name| folder.path().join(name));
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        symlink(&socket, &link).unwrap();
        for path in [&socket, &link] {
            let error = format!("{:#}", write_whole(path, b"text").unwrap_err());
            assert!(error.contains("no file"), "{error}");
        }
        assert!(link.is_symlink() && !socket.is_file());
        assert!(check_writable(Path::new("/dev/null")).is_err());
    }

    #[test]
    fn it_can_be_read_by_those_whom_the_umask_lets() {
        let folder = tempfile::tempdir().unwrap();
        let [ours, theirs] = ["ours", "theirs"].map(|name| folder.path().join(name));
        write_whole(&ours, b"").unwrap();
        fs::write(&theirs, "").unwrap();
        let mode = |path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&ours), mode(&theirs));
        // Also where there was one that others could read.
        write_private(&theirs, b"").unwrap();
        assert_eq!(mode(&theirs) & 0o777, 0o600);
    }
}
