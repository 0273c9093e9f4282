// SPDX-License-Identifier: GPL-2.0-only
//! `--samples`: lines of JSON, which another thread writes. The scheduling loop waits for no disk.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use log::warn;
use serde::Serialize;

use crate::record::{Background, FLUSH};
use crate::stream;

/// So many bytes are written at once.
const CHUNK: usize = 64 << 10;

/// So many may wait for the disk.
const MOST: usize = 16 << 20;

/// Nothing, unless samples are to be written. It outlives a restart of the scheduler.
#[derive(Default)]
pub(super) struct SampleLog {
    /// Where the file is to be, before it begins.
    path: Option<PathBuf>,
    open: Option<Open>,
}

struct Open {
    file: Background,
    lines: Vec<u8>,
    flushed: Instant,
}

impl SampleLog {
    /// To a file at `path`, if there is to be one. Nothing is written yet: a start that fails leaves what is there.
    pub(super) fn new(path: Option<&Path>) -> Self {
        Self {
            path: path.map(Path::to_path_buf),
            open: None,
        }
    }

    /// Makes the file, the first time.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn begin(&mut self) -> Result<()> {
        if let Some(path) = self.path.take() {
            let file = stream::create(&path);
            let file =
                file.with_context(|| format!("cannot write samples to {}", path.display()))?;
            self.open = Some(Open {
                file: Background::plain(&path, file)?,
                lines: Vec::new(),
                flushed: Instant::now(),
            });
        }
        Ok(())
    }

    /// Whether lines are wanted.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Takes a line.
    pub(super) fn add(&mut self, line: &impl Serialize) {
        if let Some(Open { lines, .. }) = &mut self.open
            && serde_json::to_writer(&mut *lines, line).is_ok()
        {
            lines.push(b'\n');
        }
    }

    /// Hands what has come together to the thread, where it is much or has waited for a while.
    pub(super) fn flush(&mut self, now: Instant) {
        let Some(open) = &mut self.open else { return };
        if open.lines.is_empty() || open.lines.len() < CHUNK && now - open.flushed < FLUSH {
            return;
        }
        let fill = |mut empty: Vec<u8>| {
            empty.clear();
            std::mem::replace(&mut open.lines, empty)
        };
        match open.file.offer(fill) {
            Ok(true) => open.flushed = now,
            Ok(false) if open.lines.len() <= MOST => {}
            Ok(false) => {
                warn!("no more samples are written: their disk is too slow");
                self.open = None;
            }
            Err(_) => self.open = None,
        }
    }
}

impl Drop for SampleLog {
    /// Closes the file.
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            open.file.finish(open.lines);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn all_lines_get_to_the_file_whatever_becomes_of_it_and_none_before_it_begins() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples");
        fs::write(&path, "before").unwrap();
        let mut log = SampleLog::new(Some(&path));
        log.add(&0);
        assert!(!log.is_open());
        assert_eq!(fs::read_to_string(&path).unwrap(), "before");
        log.begin().unwrap();
        // As by logrotate; a restart of the scheduler is none of the file's.
        let moved = folder.path().join("samples.1");
        fs::rename(&path, &moved).unwrap();
        for line in 0..1000 {
            log.add(&line);
            log.flush(Instant::now() + FLUSH);
        }
        log.begin().unwrap();
        drop(log);
        let lines: Vec<usize> = fs::read_to_string(&moved)
            .unwrap()
            .lines()
            .map(|line| line.parse().unwrap())
            .collect();
        assert_eq!(lines, (0..1000).collect::<Vec<_>>());
        let nowhere = folder.path().join("none/samples");
        let error = SampleLog::new(Some(&nowhere)).begin().unwrap_err();
        assert!(error.to_string().contains("none/samples"), "{error}");
    }
}
