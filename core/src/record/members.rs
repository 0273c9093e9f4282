// SPDX-License-Identifier: GPL-2.0-or-later
//! The file: gzip members one after another, each of whole records, so that a recording that was cut
//! short is readable up to the last member that came through.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;

/// Writes members.
pub struct Members {
    path: PathBuf,
    file: File,
    member: Vec<u8>,
}

impl Members {
    /// Begins a file, in place of one that may be there.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| cannot_write(path))?;
        Ok(Self::new(path, file))
    }

    /// Begins in a file that is empty, and is at `path`.
    pub fn new(path: &Path, file: File) -> Self {
        Self {
            path: path.to_path_buf(),
            file,
            member: Vec::new(),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes these records as one member.
    ///
    /// # Errors
    /// They may be there in part, which a reader passes by.
    pub fn write(&mut self, records: &[u8]) -> Result<()> {
        self.member.clear();
        let mut write = || {
            let mut packed = GzEncoder::new(&mut self.member, Compression::fast());
            packed.write_all(records)?;
            packed.finish()?;
            // In one go, so that a reader meanwhile seldom finds half a member.
            self.file.write_all(&self.member)
        };
        write().with_context(|| cannot_write(&self.path))
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write the recording {}", path.display())
}
