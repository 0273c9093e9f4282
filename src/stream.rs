// SPDX-License-Identifier: GPL-2.0-only
//! Files that are written little by little, as recordings: what is written whole, [`files`](crate::files) writes.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::libc;
use nix::unistd::geteuid;

use crate::files::folder_of;

/// Creates a file, or empties the one that is there. Root follows no symlink in a folder that others may write to: that
/// user could have root empty any file.
///
/// # Errors
/// As open(2).
pub(crate) fn create(path: &Path) -> io::Result<File> {
    let follows = !geteuid().is_root() || is_roots(path);
    open(path, follows)
}

fn open(path: &Path, follows: bool) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    if !follows {
        options.custom_flags(libc::O_NOFOLLOW);
    }
    options.open(path).map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) if !follows => io::Error::other(
            "it is a symlink in a folder that other users may write to, and root does not follow it; name another place",
        ),
        _ => error,
    })
}

/// Whether only root may write to a file's folder, as to /dev with its symlink `stdout`.
fn is_roots(path: &Path) -> bool {
    fs::metadata(folder_of(path))
        .is_ok_and(|folder| folder.uid() == 0 && folder.mode() & 0o022 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::io::Write as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn a_symlink_that_lies_in_wait_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("precious"), "kept").unwrap();
        symlink(at("precious"), at("link")).unwrap();
        let refused = open(&at("link"), false).unwrap_err().to_string();
        assert!(refused.contains("symlink"), "{refused}");
        assert_eq!(fs::read_to_string(at("precious")).unwrap(), "kept");
        // Others may write there.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        assert!(!is_roots(&at("link")) && is_roots(Path::new("/dev/stdout")));
        for text in ["long", "new"] {
            open(&at("out"), false)
                .unwrap()
                .write_all(text.as_bytes())
                .unwrap();
        }
        assert_eq!(fs::read_to_string(at("out")).unwrap(), "new");
        open(&at("link"), true).unwrap();
        assert_eq!(fs::read_to_string(at("precious")).unwrap(), "");
    }
}
