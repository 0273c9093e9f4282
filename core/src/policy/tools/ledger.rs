// SPDX-License-Identifier: GPL-2.0-or-later
//! Accounts of what threads got, for policies that even out something else than progress: with the
//! rules for newcomers and sleepers that CAMPS (2018, section 4.3) has for progress.

use rustc_hash::FxHashMap;

use super::weights::NearMiddle;
use crate::table::TaskId;

/// A thread that was away for longer keeps no claim for that time, ns.
const PATIENCE_NS: u64 = 2_000_000_000;

#[derive(Clone, Copy, Debug)]
struct Account {
    sum: i64,
    /// What was read last.
    last: i64,
    charged_at_ns: u64,
}

/// The accounts.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    accounts: FxHashMap<TaskId, Account>,
    /// Least and most at the last look.
    range: Option<(i64, i64)>,
    /// Accounts and weights of those that were charged in this look so far; kept for its memory.
    charged: Vec<(i64, u32)>,
}

impl Ledger {
    /// Charges a task with what `reading` grew by since it was last charged, times `rate`; gives
    /// its account. A newcomer starts level with the one that got most; one that was away for long
    /// comes back with no less than the one that got least.
    pub(crate) fn charge(
        &mut self,
        now_ns: u64,
        (task, weight): (TaskId, u32),
        reading: i64,
        rate: f64,
    ) -> i64 {
        let (least, most) = self.range.unwrap_or_default();
        let account = self.accounts.entry(task).or_insert(Account {
            sum: most,
            last: reading,
            charged_at_ns: now_ns,
        });
        account.sum += ((reading - account.last) as f64 * rate) as i64;
        if now_ns.saturating_sub(account.charged_at_ns) > PATIENCE_NS {
            account.sum = account.sum.max(least);
        }
        account.last = reading;
        account.charged_at_ns = now_ns;
        self.charged.push((account.sum, weight));
        account.sum
    }

    /// Ends a look. `is_alive` says which tasks there are. None stays farther than `apart` from the middle of those that
    /// were charged: by its weight one may get many times what others do, and a newcomer starts level with it.
    pub(crate) fn close(&mut self, apart: i64, is_alive: impl Fn(TaskId) -> bool) {
        self.accounts.retain(|&task, _| is_alive(task));
        if let Some(all) = NearMiddle::of(&mut self.charged, apart) {
            if !all.holds_all {
                let accounts = self.accounts.values_mut();
                accounts.for_each(|account| account.sum = all.near(account.sum));
            }
            self.range = Some(all.range);
        }
        self.charged.clear();
    }

    /// Takes `part`, 0 to 1, of all differences away.
    pub(crate) fn forgive(&mut self, part: f64) {
        let Some((least, most)) = self.range else {
            return;
        };
        let middle = least + (most - least) / 2;
        let nearer = |sum: i64| sum - ((sum - middle) as f64 * part.clamp(0.0, 1.0)) as i64;
        for account in self.accounts.values_mut() {
            account.sum = nearer(account.sum);
        }
        self.range = Some((nearer(least), nearer(most)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Farther than any here is.
    const FAR: i64 = 1_000_000;

    const A: TaskId = id(0);
    const B: TaskId = id(1);
    const C: TaskId = id(2);

    const fn id(slot: u32) -> TaskId {
        TaskId {
            slot,
            generation: 1,
        }
    }

    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        for (now, a, b) in [(0, 7, 9), (1, 107, 309)] {
            ledger.charge(now, (A, 1024), a, 1.0);
            ledger.charge(now, (B, 1024), b, 0.5);
            ledger.close(FAR, |_| true);
        }
        ledger
    }

    #[test]
    fn what_was_got_is_charged_at_the_rate() {
        let mut ledger = ledger();
        assert_eq!(ledger.charge(2, (A, 1024), 107, 1.0), 100);
        assert_eq!(ledger.charge(2, (B, 1024), 329, 2.0), 190);
    }

    #[test]
    fn a_newcomer_starts_level_with_the_one_that_got_most() {
        assert_eq!(ledger().charge(2, (C, 1024), 5_000, 1.0), 150);
    }

    #[test]
    fn who_was_away_for_long_comes_back_level_with_the_one_that_got_least() {
        let mut ledger = ledger();
        ledger.charge(2, (B, 1024), 9_309, 1.0);
        ledger.close(FAR, |_| true);
        assert_eq!(ledger.charge(3, (A, 1024), 107, 1.0), 100, "a short pause");
        ledger.charge(3, (B, 1024), 9_309, 1.0);
        ledger.close(FAR, |_| true);
        let late = 4 + PATIENCE_NS;
        ledger.charge(late - 1, (B, 1024), 9_309, 1.0);
        ledger.close(FAR, |_| true);
        assert_eq!(ledger.charge(late, (A, 1024), 107, 1.0), 9_150);
    }

    #[test]
    fn differences_are_forgiven_in_part_and_the_order_is_kept() {
        let mut ledger = ledger();
        ledger.forgive(0.5);
        assert_eq!(ledger.charge(2, (A, 1024), 107, 1.0), 112);
        assert_eq!(ledger.charge(2, (B, 1024), 309, 1.0), 138);
    }

    #[test]
    fn who_ended_is_forgotten() {
        let mut ledger = ledger();
        ledger.close(FAR, |task| task != A);
        assert_eq!(ledger.charge(2, (A, 1024), 0, 1.0), 150);
    }

    #[test]
    fn none_is_far_from_the_middle_nor_is_a_newcomer() {
        let mut ledger = Ledger::default();
        for (now, light) in [(0, 0), (1, 70_000)] {
            ledger.charge(now, (A, 15), light, 1.0);
            ledger.charge(now, (B, 1024), now as i64, 1.0);
            ledger.close(1_000, |_| true);
        }
        assert_eq!(ledger.charge(2, (A, 15), 70_000, 1.0), 1_001);
        assert_eq!(ledger.charge(2, (C, 1024), 0, 1.0), 1_001);
    }
}
