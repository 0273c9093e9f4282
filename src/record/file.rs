// SPDX-License-Identifier: GPL-2.0-only
//! The file: gzip members one after another, each of whole records, so that a recording that was cut
//! short is readable up to the last member that came through.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use flate2::Compression;
use flate2::write::GzEncoder;
use log::{info, warn};

use super::encode::append;
use super::format::Record;
use crate::energy::Energy;

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
        let path = path.to_path_buf();
        let file = File::create(&path).with_context(|| cannot_write(&path))?;
        let member = Vec::new();
        Ok(Self { path, file, member })
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
            // In one go, so that who reads meanwhile seldom finds half a member.
            self.file.write_all(&self.member)
        };
        write().with_context(|| cannot_write(&self.path))
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write the recording {}", path.display())
}

/// Members written by a thread of their own: the disk may be slow, and the agent may not wait.
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
        let (full, records) = bounded(1);
        let (give_back, empty) = bounded(2);
        let thread = thread::Builder::new()
            .name("recording".to_string())
            // Locked in memory.
            .stack_size(256 << 10)
            .spawn(move || write_all(file, &records, &give_back))
            .context("cannot start a thread")?;
        Ok(Self {
            full: Some(full),
            empty,
            thread: Some(thread),
        })
    }

    /// Whether the thread would take records now; an error if it has given up, as it has said.
    ///
    /// # Errors
    /// The recording has ended.
    pub fn is_free(&self) -> Result<bool, Ended> {
        match &self.full {
            Some(full) if self.thread.as_ref().is_some_and(|t| !t.is_finished()) => {
                Ok(!full.is_full())
            }
            _ => Err(Ended),
        }
    }

    /// A buffer that was written.
    pub fn empty(&self) -> Vec<u8> {
        self.empty.try_recv().unwrap_or_default()
    }

    /// Hands records on; does not wait.
    ///
    /// # Errors
    /// The recording has ended.
    pub fn write(&self, records: Vec<u8>) -> Result<(), Ended> {
        match self.full.as_ref().map(|full| full.try_send(records)) {
            Some(Ok(())) => Ok(()),
            Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) | None => Err(Ended),
        }
    }

    /// Writes the last records, and waits until they are written.
    pub fn finish(mut self, records: Vec<u8>) {
        if let Some(full) = self.full.take() {
            let _ = full.send(records);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
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
    info!("recorded to {}", file.path.display());
}
