// SPDX-License-Identifier: GPL-2.0-only
//! `--record`: what the policy sees and decides goes to a file, which another thread writes. The
//! agent never waits for it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use log::warn;
use scx_utils::build_id;

use super::Scheduler;
use crate::policy::{self, Settings};
use crate::record::format::{Begin, Chosen};
use crate::record::{self, Background, Encoder, FLUSH};
use crate::slowdown::calibrate;
use crate::text::stamp;
use crate::topology::{Topology, cpu_name};

/// How often the task table is looked at, if the policy looks more seldom: what another policy
/// would have decided cannot be told in more detail.
const LOOK: Duration = Duration::from_millis(50);

/// So many bytes may wait for the disk.
const MOST: usize = 32 << 20;

/// Nothing, unless a recording was asked for.
#[derive(Default)]
pub(super) struct Recording {
    /// Where it is to be, before it begins.
    path: Option<PathBuf>,
    open: Option<Open>,
}

struct Open {
    encoder: Encoder,
    file: Background,
    flushed: Instant,
    looked: Instant,
}

impl Recording {
    /// To a file at `path`, if there is to be one. Nothing is written yet: a start that fails leaves what is there.
    pub(super) fn new(path: Option<&Path>) -> Self {
        Self {
            path: path.map(Path::to_path_buf),
            open: None,
        }
    }

    fn open(&mut self) -> Result<()> {
        if let Some(path) = self.path.take() {
            let now = Instant::now();
            self.open = Some(Open {
                encoder: Encoder::default(),
                file: Background::start(record::create(&path)?)?,
                flushed: now,
                looked: now,
            });
        }
        Ok(())
    }

    /// Where to note what is to be recorded, if anything is.
    pub(super) fn encoder(&mut self) -> Option<&mut Encoder> {
        let open = self.open.as_mut()?;
        Some(&mut open.encoder)
    }

    /// The task table was read for it.
    fn looked(&mut self, now: Instant) {
        if let Some(open) = &mut self.open {
            open.looked = now;
        }
    }

    /// Begins, the first time with the file, or goes on in it after a restart.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn begin(
        &mut self,
        topology: &Topology,
        name: policy::Name,
        settings: &Settings,
        kept: bool,
    ) -> Result<()> {
        self.open()?;
        if let Some(encoder) = self.encoder() {
            encoder.begin(Begin {
                version: build_id::full_version(env!("CARGO_PKG_VERSION")),
                date: stamp(SystemTime::now()).unwrap_or_default(),
                kernel: calibrate::kernel(),
                cpu: cpu_name(),
                topology: topology.clone(),
                chosen: Chosen::new(name, settings),
                kept,
            });
        }
        Ok(())
    }

    /// When it wants to look at the task table, if nothing else does before.
    pub(super) fn due(&self) -> Option<Instant> {
        Some(self.open.as_ref()?.looked + LOOK)
    }

    /// Hands to the file what has come together for a while.
    fn flush(&mut self, now: Instant) {
        let Some(open) = &mut self.open else { return };
        if now - open.flushed < FLUSH || open.encoder.pending() == 0 {
            return;
        }
        match open.file.offer(|empty| open.encoder.take(empty)) {
            Ok(true) => open.flushed = now,
            Ok(false) if open.encoder.pending() <= MOST => {}
            Ok(false) => {
                warn!(
                    "the recording ends here: its disk is too slow; the scheduler goes on without"
                );
                self.open = None;
            }
            Err(_) => self.open = None,
        }
    }
}

impl Drop for Recording {
    /// Closes the file.
    fn drop(&mut self) {
        if let Some(mut open) = self.open.take() {
            open.encoder.end();
            let records = open.encoder.take(Vec::new());
            open.file.finish(records);
        }
    }
}

impl Scheduler<'_> {
    /// Has the policy decide on what there is now.
    pub(super) fn decide(&mut self) -> Result<()> {
        self.half.recording.looked(Instant::now());
        self.agent.decide(&mut self.half)?;
        if let Some(learning) = &mut self.learning {
            learning.look(self.agent.tasks(), &self.agent.topology);
        }
        Ok(())
    }

    /// Looks at the task table for the recording, if that is due, and lets it be written.
    pub(super) fn record(&mut self, now: Instant) -> Result<()> {
        if self.half.recording.due().is_some_and(|due| now >= due) {
            self.half.recording.looked(Instant::now());
            self.agent.see_to_record(&mut self.half)?;
        }
        self.half.recording.flush(now);
        Ok(())
    }
}
