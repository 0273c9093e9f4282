// SPDX-License-Identifier: GPL-2.0-only
//! What tests of several modules stand on.

use std::fs;
use std::path::Path;

/// A machine of files such as sysfs has, below a folder that goes with it.
pub(crate) struct SysfsFiles {
    dir: tempfile::TempDir,
    below: &'static str,
}

impl SysfsFiles {
    /// Files of a line each, by their paths.
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        Self::below("", files)
    }

    /// The same by paths below a folder, as those that are set later.
    pub(crate) fn below(below: &'static str, files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let machine = Self { dir, below };
        files
            .iter()
            .for_each(|(path, text)| machine.set(path, text));
        machine
    }

    /// What is `/` there.
    pub(crate) fn root(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a line into a file.
    pub(crate) fn set(&self, path: &str, text: &str) {
        let path = self.root().join(self.below).join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }
}
