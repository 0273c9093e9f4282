// SPDX-License-Identifier: GPL-2.0-only
//! How often the agent decides. Beside thousands of threads a look at all of them takes its time:
//! then it looks less often, rather than take a CPU from those that it serves. What it did not
//! use lately it may use where much changes at once: many programs begin after the machine was idle.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

/// For each moment that decisions take there are so many in which none is made: a hundredth of a CPU.
const TIMES: u32 = 100;

/// So much may be saved up: a hundredth of ten seconds.
const MOST_SAVED: Duration = Duration::from_millis(100);

/// No decision is further off, however long the last one took.
const MOST_WAIT: Duration = Duration::from_secs(2);

/// CPU time of this thread so far.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map_or(Duration::ZERO, Duration::from)
}

/// What decisions may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    saved: Duration,
    at: Instant,
}

impl Allowance {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            saved: MOST_SAVED,
            at: now,
        }
    }

    /// Whether what was spent is yet to be earned: what any user may ask for at any time is put off for so long.
    pub(super) fn owes(&self, now: Instant) -> bool {
        self.at > now
    }

    /// Takes off what was done now.
    pub(super) fn spend(&mut self, now: Instant, took: Duration) {
        let earned = now.saturating_duration_since(self.at) / TIMES;
        let has = (self.saved + earned).min(MOST_SAVED);
        let lacks = took.saturating_sub(has).saturating_mul(TIMES);
        self.saved = has.saturating_sub(took);
        // It is earned by then. What could not wait for that adds to it.
        let until = self.at.max(now) + lacks.min(MOST_WAIT);
        self.at = until.min(now + MOST_WAIT);
    }

    /// Time until the next decision, of what wants one each `interval`, by what CPU time the one that was made now `took`.
    pub(super) fn next(&mut self, now: Instant, interval: Duration, took: Duration) -> Duration {
        self.spend(now, took);
        interval.max(self.at.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn who_takes_long_to_decide_decides_less_often_but_is_heard_of() {
        let mut now = Instant::now();
        let mut allowance = Allowance::new(now);
        let mut next = |interval, took| {
            let wait = allowance.next(now, interval, took);
            now += wait;
            wait
        };
        // What was saved up is used first.
        assert_eq!(next(ms(50), ms(40)), ms(50));
        assert_eq!(next(ms(50), ms(0)), ms(50));
        assert_eq!(next(ms(50), ms(61)), ms(50));
        assert_eq!(next(ms(50), ms(4)), ms(350));
        assert_eq!(next(ms(50), ms(4)), ms(400));
        // What could not be waited for is not owed.
        assert_eq!(next(ms(50), ms(900)), MOST_WAIT);
        assert_eq!(next(ms(50), ms(4)), ms(400));
        assert_eq!(next(ms(3000), ms(90)), ms(3000));
        assert_eq!(next(ms(50), ms(10)), ms(50));
    }

    #[test]
    fn a_decision_that_cannot_wait_is_not_free() {
        let now = Instant::now();
        let mut allowance = Allowance::new(now);
        assert_eq!(allowance.next(now, ms(50), MOST_SAVED + ms(5)), ms(500));
        assert!(allowance.owes(now + ms(499)) && !allowance.owes(now + ms(500)));
        allowance.spend(now + ms(100), ms(2));
        assert!(allowance.owes(now + ms(699)) && !allowance.owes(now + ms(700)));
        assert_eq!(allowance.next(now + ms(100), ms(50), ms(5)), ms(1100));
    }

    #[test]
    fn in_the_long_run_a_hundredth_of_a_cpu() {
        let begin = Instant::now();
        let mut now = begin;
        let mut allowance = Allowance::new(now);
        let mut used = Duration::ZERO;
        while now - begin < Duration::from_secs(100) {
            let took = ms(1 + used.as_millis() as u64 % 13);
            used += took;
            now += allowance.next(now, ms(50), took);
        }
        assert!((ms(1090)..=ms(1120)).contains(&used), "{used:?}");
    }

    #[test]
    fn only_what_this_thread_computes_counts() {
        let before = cpu_time();
        std::thread::sleep(Duration::from_millis(20));
        assert!(cpu_time() - before < Duration::from_millis(20));
    }
}
