// SPDX-License-Identifier: GPL-2.0-only
//! Has limits of cgroups looked for when some have changed: seldom, and not by the loop. Whoever owns
//! a delegated cgroup can change them as often as it likes, and make many cgroups.

use std::thread;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, TryRecvError, bounded};
use log::warn;

use super::priority::run_when_idle;
use crate::cgroups::Limited;

/// So long lies between two looks, at least.
const EVERY: Duration = Duration::from_secs(10);

/// The thread's stack, bytes; the agent's memory is locked.
const STACK: usize = 128 << 10;

/// See the module.
pub(super) struct CgroupLimits {
    changed: bool,
    not_before: Option<Instant>,
    known: Limited,
    /// What the thread that looks will know.
    job: Option<Receiver<Limited>>,
}

impl CgroupLimits {
    /// Nothing is known, and so all has changed.
    pub(super) fn new() -> Self {
        Self {
            changed: true,
            not_before: None,
            known: Limited::default(),
            job: None,
        }
    }

    /// Some limit has changed.
    pub(super) fn changed(&mut self) {
        self.changed = true;
    }

    /// Has them looked for, where that is due. Waits for nothing.
    pub(super) fn step(&mut self, now: Instant) {
        self.step_by(now, Limited::warn_of_new);
    }

    fn step_by(&mut self, now: Instant, look: impl FnOnce(&mut Limited) + Send + 'static) {
        match self.job.as_ref().map(Receiver::try_recv) {
            Some(Err(TryRecvError::Empty)) => return,
            Some(Ok(known)) => self.known = known,
            Some(Err(TryRecvError::Disconnected)) | None => {}
        }
        self.job = None;
        if !self.changed || self.not_before.is_some_and(|at| now < at) {
            return;
        }
        self.changed = false;
        self.not_before = Some(now + EVERY);
        let mut known = std::mem::take(&mut self.known);
        let (sender, receiver) = bounded(1);
        let spawned = thread::Builder::new()
            .name("limits".into())
            .stack_size(STACK)
            .spawn(move || {
                // Where it may not, it is quick all the same.
                let _ = run_when_idle();
                look(&mut known);
                let _ = sender.send(known);
            });
        match spawned {
            Ok(_) => self.job = Some(receiver),
            Err(error) => warn!("limits of cgroups are not looked for: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_storm_of_changes_is_looked_at_once_in_ten_seconds_and_by_another_thread() {
        let begin = Instant::now();
        let looks = Arc::new(AtomicUsize::new(0));
        let mut limits = CgroupLimits::new();
        let own = thread::current().id();
        // A minute of changes, each millisecond one.
        for ms in 0..60_000 {
            limits.changed();
            let looks = Arc::clone(&looks);
            let (sender, done) = bounded(1);
            let before = limits.not_before;
            limits.step_by(begin + Duration::from_millis(ms), move |_| {
                assert_ne!(thread::current().id(), own);
                looks.fetch_add(1, Ordering::Relaxed);
                let _ = sender.send(());
            });
            if limits.not_before != before {
                done.recv().unwrap();
                let job = limits.job.clone().unwrap();
                // It ends by itself.
                while job.is_empty() {
                    thread::yield_now();
                }
            }
        }
        assert_eq!(looks.load(Ordering::Relaxed), 6);
    }

    #[test]
    fn while_it_looks_nothing_waits_and_what_changes_is_looked_at_later() {
        let begin = Instant::now();
        let mut limits = CgroupLimits::new();
        let (go_on, wait) = bounded::<()>(0);
        limits.step_by(begin, move |_| _ = wait.recv());
        limits.changed();
        let later = begin + 2 * EVERY;
        limits.step_by(later, |_| panic!("two at a time"));
        assert!(limits.changed && limits.job.is_some());
        drop(go_on);
        while limits.changed {
            limits.step_by(later, |_| ());
        }
        limits.step_by(later + 2 * EVERY, |_| panic!("nothing has changed"));
    }
}
