// SPDX-License-Identifier: GPL-2.0-only
//! Has limits of cgroups looked for when some have changed: seldom, and not by the loop. Whoever owns
//! a delegated cgroup can change them as often as it likes, and make many cgroups.

use std::time::{Duration, Instant};

use log::warn;

use crate::aside::Aside;
use crate::cgroups::Limited;

/// So long lies between two looks, at least.
const EVERY: Duration = Duration::from_secs(10);

/// See the module.
pub(super) struct CgroupLimits {
    changed: bool,
    not_before: Option<Instant>,
    known: Limited,
    /// What the thread that looks will know.
    job: Aside<Limited>,
}

impl CgroupLimits {
    /// Nothing is known, and so all has changed.
    pub(super) fn new() -> Self {
        Self {
            changed: true,
            not_before: None,
            known: Limited::default(),
            job: Aside::default(),
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
        if let Some(known) = self.job.take() {
            self.known = known;
        }
        if self.job.is_busy() || !self.changed || self.not_before.is_some_and(|at| now < at) {
            return;
        }
        self.changed = false;
        self.not_before = Some(now + EVERY);
        let mut known = std::mem::take(&mut self.known);
        let look = move || {
            look(&mut known);
            known
        };
        if let Err(error) = self.job.begin("limits", look) {
            warn!("limits of cgroups are not looked for: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam::channel::bounded;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

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
                assert!(limits.job.is_busy());
                // It ends by itself.
                limits.job.wait();
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
        assert!(limits.changed && limits.job.is_busy());
        drop(go_on);
        while limits.changed {
            limits.step_by(later, |_| ());
        }
        limits.step_by(later + 2 * EVERY, |_| panic!("nothing has changed"));
    }
}
