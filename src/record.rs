// SPDX-License-Identifier: GPL-2.0-only
//! Recordings ([`hetero_core::record`]), written while scheduling (`--record`).

use std::fs::File;
use std::io::ErrorKind::{QuotaExceeded, StorageFull};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use crossbeam::channel::{Receiver, Sender, bounded};
use log::{info, warn};

use hetero_core::record::format::Record;
pub use hetero_core::record::*;

use crate::connections::{LONGEST, join_within};
use crate::energy::Energy;
use crate::stream;

/// Begins a recording's file, in place of one that may be there.
///
/// # Errors
/// It cannot be written.
pub fn create(path: &Path) -> Result<Members> {
    let file = stream::create(path);
    let file = file.with_context(|| format!("cannot write the recording {}", path.display()))?;
    Ok(Members::new(path, file))
}

/// A file that a thread of its own writes: the disk may be slow, and the agent may not wait.
pub struct Background {
    full: Option<Sender<Vec<u8>>>,
    empty: Receiver<Vec<u8>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Writes to `file` from now on, and what energy has been taken since.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn start(file: Members) -> Result<Self> {
        Self::spawn("recording", |records, back| write_all(file, records, back))
    }

    /// Writes what comes to `file`, which is at `path`, as it is.
    ///
    /// # Errors
    /// No thread can be had.
    pub(crate) fn plain(path: &Path, file: File) -> Result<Self> {
        let path = path.to_path_buf();
        Self::spawn("samples", move |records, back| {
            write_plain(&path, file, records, back);
        })
    }

    fn spawn(
        name: &str,
        write: impl FnOnce(&Receiver<Vec<u8>>, &Sender<Vec<u8>>) + Send + 'static,
    ) -> Result<Self> {
        let (full, records) = bounded(1);
        let (give_back, empty) = bounded(2);
        let thread = thread::Builder::new()
            .name(name.to_string())
            // Locked in memory.
            .stack_size(256 << 10)
            .spawn(move || write(&records, &give_back))
            .context("cannot start a thread")?;
        Ok(Self {
            full: Some(full),
            empty,
            thread: Some(thread),
        })
    }

    /// Hands on what `fill` makes of a buffer that was written, if the thread would take it now; says whether it does. Does not wait.
    ///
    /// # Errors
    /// The thread has given up, as it has said.
    pub fn offer(&self, fill: impl FnOnce(Vec<u8>) -> Vec<u8>) -> Result<bool, Ended> {
        let is_alive = self.thread.as_ref().is_some_and(|it| !it.is_finished());
        let full = self.full.as_ref().filter(|_| is_alive).ok_or(Ended)?;
        let free = !full.is_full();
        if free {
            let written = self.empty.try_recv();
            // It can only have given up since, and has said so then.
            let _ = full.try_send(fill(written.unwrap_or_default()));
        }
        Ok(free)
    }

    /// Writes the last records, and waits until they are written, but not for long: the disk may be dead, or a pipe that
    /// nothing reads.
    pub fn finish(self, records: Vec<u8>) {
        self.finish_within(records, LONGEST);
    }

    /// The same; waits at most for `limit`, twice.
    fn finish_within(mut self, records: Vec<u8>, limit: Duration) {
        if let Some(full) = self.full.take() {
            let _ = full.send_timeout(records, limit);
        }
        if let Some(thread) = self.thread.take() {
            let _ = join_within(thread, limit);
        }
    }
}

/// Nothing more is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended;

fn write_all(mut file: Members, records: &Receiver<Vec<u8>>, give_back: &Sender<Vec<u8>>) {
    let mut energy = Energy::from_now();
    let mut told = Vec::new();
    for full in records {
        let mut outcome = file.write(&full);
        // After the records, whose end it is of; and in a member of its own, for they may end with
        // the recording.
        told.clear();
        if let (Ok(()), Some(joules)) = (&outcome, energy.joules()) {
            append(&mut told, &Record::Energy(joules));
            outcome = file.write(&told);
        }
        if let Err(error) = outcome {
            warn!("{error:#}; the scheduler goes on without");
            return;
        }
        let _ = give_back.try_send(full);
    }
    info!("recorded to {}", file.path().display());
}

/// Lines for which a full disk has no room are lost, and those after them are written once there is.
fn write_plain(path: &Path, mut file: File, full: &Receiver<Vec<u8>>, give_back: &Sender<Vec<u8>>) {
    let path = path.display();
    let mut is_said = false;
    for bytes in full {
        match write_whole(&mut file, &bytes) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), StorageFull | QuotaExceeded) => {
                if !std::mem::replace(&mut is_said, true) {
                    warn!("cannot write {path}: {error}; what there is no room for is lost");
                }
            }
            Err(error) => {
                warn!("cannot write {path}: {error}; the scheduler goes on without");
                return;
            }
        }
        let _ = give_back.try_send(bytes);
    }
}

/// Writes all or, to a plain file, nothing: no line is cut.
fn write_whole(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    let begin = file.stream_position();
    let outcome = file.write_all(bytes);
    if let (Err(_), Ok(begin)) = (&outcome, begin) {
        let _ = file.set_len(begin);
        let _ = file.seek(SeekFrom::Start(begin));
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_takes_nothing_holds_up_no_end() {
        let (go_on, wait) = bounded::<()>(0);
        let file = Background::spawn("stuck", move |_, _| _ = wait.recv()).unwrap();
        assert_eq!(file.offer(|_| vec![0]), Ok(true));
        assert_eq!(file.offer(|_| vec![0]), Ok(false));
        file.finish_within(vec![0], Duration::from_millis(1));
        drop(go_on);
    }

    #[test]
    fn a_line_is_there_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples");
        let mut file = File::create(&path).unwrap();
        write_whole(&mut file, b"one\n").unwrap();
        // As a disk that is full after a part of it.
        let mut full = File::options().read(true).open(&path).unwrap();
        assert!(write_whole(&mut full, b"two\n").is_err());
        write_whole(&mut file, b"three\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one\nthree\n");
        let mut room = File::create("/dev/full").unwrap();
        let told = write_whole(&mut room, b"two\n").unwrap_err();
        assert_eq!(told.kind(), StorageFull);
    }
}
