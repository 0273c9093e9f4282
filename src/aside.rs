// SPDX-License-Identifier: GPL-2.0-only
//! What may take its time, as firmware does: a thread of its own looks at it, and the agent's loop waits for nothing.

use std::io;
use std::thread;

use crossbeam::channel::{Receiver, TryRecvError, bounded};

use crate::scheduler::priority::run_when_idle;

/// The thread's stack, bytes; the agent's memory is locked.
const STACK: usize = 128 << 10;

/// A look, one at a time.
pub(crate) struct Aside<T> {
    job: Option<Receiver<T>>,
}

impl<T> Default for Aside<T> {
    fn default() -> Self {
        Self { job: None }
    }
}

impl<T: Send + 'static> Aside<T> {
    /// Whether what was begun is neither taken nor lost.
    pub(crate) fn is_busy(&self) -> bool {
        self.job.is_some()
    }

    /// What was found, once.
    pub(crate) fn take(&mut self) -> Option<T> {
        let found = match self.job.as_ref()?.try_recv() {
            Err(TryRecvError::Empty) => return None,
            found => found.ok(),
        };
        self.job = None;
        found
    }

    /// Begins to look, unless it still does.
    ///
    /// # Errors
    /// No thread can be had.
    pub(crate) fn begin(
        &mut self,
        name: &str,
        look: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<()> {
        if self.is_busy() {
            return Ok(());
        }
        let (sender, receiver) = bounded(1);
        let thread = thread::Builder::new().name(name.into()).stack_size(STACK);
        thread.spawn(move || {
            // Where it may not, it is quick all the same.
            let _ = run_when_idle();
            let _ = sender.send(look());
        })?;
        self.job = Some(receiver);
        Ok(())
    }

    /// Waits until there is something to take.
    #[cfg(test)]
    pub(crate) fn wait(&self) {
        while self.job.as_ref().is_some_and(Receiver::is_empty) {
            thread::yield_now();
        }
    }
}
