// SPDX-License-Identifier: GPL-2.0-or-later
//! Small files that are read as a line, and files that are written whole or not at all.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use tempfile::{Builder, NamedTempFile};

/// The text of a small file, as the kernel's are, without white space at its ends; `None` if it cannot be read.
pub fn read_trimmed(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_string())
}

/// Writes a file whole or not at all.
///
/// # Errors
/// In words; the old file is still there then.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || -> io::Result<()> {
        let mut file = beside(path)?;
        file.write_all(bytes)?;
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
    beside(path).map(drop)
}

/// A new file in the same folder, so that it can be renamed. Its name cannot be foreseen, and what
/// is there already is not opened: in a folder of another user root would else follow a symlink.
fn beside(path: &Path) -> io::Result<NamedTempFile> {
    // Root could rename a file to /dev/null, and nothing would be as before.
    if fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        let why = "what is there is no file; name another place";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Builder::new()
        .prefix(".scx_hetero-")
        // Less what the umask takes away, like any other file.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder_of(path))
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
    use std::os::unix::fs::symlink;

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
    fn where_nothing_can_be_written_that_is_said_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).unwrap();
        let error = write_whole(&taken, b"text").unwrap_err();
        assert!(error.to_string().contains("taken"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(check_writable(Path::new("/proc/none/file")).is_err());
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
    }
}
