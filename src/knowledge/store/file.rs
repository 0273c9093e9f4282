// SPDX-License-Identifier: GPL-2.0-only
//! The file of the database: made for its owner alone, refused where it is no plain file of this user, and set aside
//! where it is of no use.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::libc;
use rusqlite::ErrorCode;

use crate::files::folder_of;

/// What it is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreAccess {
    /// To be written, and made if need be.
    Make,
    /// To be written.
    Change,
    /// To be read.
    Read,
}

/// Why it cannot be used.
pub(super) enum Unusable {
    /// It is none of ours, or damaged: it can be set aside.
    Foreign(anyhow::Error),
    /// An older version has written it: what may write brings it to the present form.
    Older,
    /// It must stay as it is.
    Other(anyhow::Error),
}

impl Unusable {
    /// For people, with the file's name.
    pub(super) fn told(self, path: &Path) -> anyhow::Error {
        let why = match self {
            Self::Foreign(why) | Self::Other(why) => why,
            Self::Older => anyhow!("an older version has written it"),
        };
        why.context(format!("cannot use {}", path.display()))
    }
}

impl From<rusqlite::Error> for Unusable {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Foreign(anyhow!("it is damaged, or no database ({error})"))
            }
            _ => Self::Other(error.into()),
        }
    }
}

/// Whether a write was interrupted.
pub(super) fn has_journal(path: &Path) -> bool {
    fs::metadata(with(path, "-journal")).is_ok_and(|file| file.size() > 0)
}

/// Makes the file, for its owner alone, and says where it is without symlinks in its folder's path. What lies there
/// and is no plain file of this user is refused.
pub(super) fn prepare(path: &Path, access: StoreAccess) -> Result<PathBuf> {
    let create = access == StoreAccess::Make;
    let name = path
        .file_name()
        .context("it is a folder: name another place")?;
    let folder = folder_of(path);
    if create {
        make_folder(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let folder = folder.canonicalize().context("its folder is not there")?;
    let path = folder.join(name);
    let opened = OpenOptions::new()
        .read(true)
        .write(access != StoreAccess::Read)
        .create(create)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(&path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            bail!("it is a symlink, which is not followed: remove it")
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            bail!("permission denied: run as root")
        }
        Err(error) => return Err(error).context("it cannot be opened"),
    };
    let about = file.metadata()?;
    ensure!(
        about.is_file(),
        "what is there is no file: name another place"
    );
    ensure!(
        about.uid() == nix::unistd::geteuid().as_raw(),
        "it belongs to another user"
    );
    ensure!(
        about.nlink() == 1,
        "it has other names, too (hard links): remove it"
    );
    if about.mode() & 0o077 != 0 && access != StoreAccess::Read {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(path)
}

/// Makes the folder for its owner alone; those above it are others' business.
fn make_folder(folder: &Path) -> io::Result<()> {
    if let Some(above) = folder.parent() {
        fs::create_dir_all(above)?;
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// What an unusable file is called from then on.
const ASIDE: &str = ".damaged";

fn with(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// Removes what was set aside, if anything was.
pub(super) fn remove_aside(path: &Path) -> Result<()> {
    let aside = with(path, ASIDE);
    match fs::remove_file(&aside) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", aside.display()))
        }
        _ => Ok(()),
    }
}

/// Gives the file another name; what was set aside before is gone.
pub(super) fn set_aside(path: &Path) -> Result<PathBuf> {
    let aside = with(path, ASIDE);
    fs::rename(path, &aside).context("and it cannot be set aside")?;
    // It belongs to what is gone.
    for end in ["-journal", "-wal", "-shm"] {
        let _ = fs::remove_file(with(path, end));
    }
    Ok(aside)
}
