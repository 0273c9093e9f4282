// SPDX-License-Identifier: GPL-2.0-only
//! How often the agent decides. Beside thousands of threads a look at all of them takes its time:
//! then it looks less often, rather than take a CPU from those that it serves.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// So many times as long as a decision took it does not decide again: a hundredth of a CPU at most.
const TIMES: u32 = 100;

/// Unless the last decision was so long ago.
const MOST: Duration = Duration::from_secs(2);

/// CPU time of this thread so far.
pub(super) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map_or(Duration::ZERO, Duration::from)
}

/// Time until the next decision, of a policy that wants one each `interval`, by what CPU time the last
/// one `took`.
pub(super) fn next(interval: Duration, took: Duration) -> Duration {
    interval.max(took.saturating_mul(TIMES).min(MOST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_long_to_decide_decides_less_often_but_is_heard_of() {
        let ms = Duration::from_millis;
        assert_eq!(next(ms(50), ms(0)), ms(50));
        assert_eq!(next(ms(50), ms(4)), ms(400));
        assert_eq!(next(ms(50), ms(90)), MOST);
        assert_eq!(next(ms(3000), ms(90)), ms(3000));
    }

    #[test]
    fn only_what_this_thread_computes_counts() {
        let before = cpu_time();
        std::thread::sleep(Duration::from_millis(20));
        assert!(cpu_time() - before < Duration::from_millis(20));
    }
}
