// SPDX-License-Identifier: GPL-2.0-only
//! Goals of programs as lines of 80 columns: in short above the threads, and one by one in a view.

use crate::goals::{GoalStatus, short};
use crate::stats::live::LiveGoals;

/// Above the list.
pub(super) const HEADING: &str =
    "  ID      PID NAME            WEIGHT BY     TARGET   RATE   MET DEMAND  GIVEN";

/// All of them in short, and how many subscriptions to advice there are; nothing where there is neither.
pub(super) fn summary(goals: &LiveGoals, advised: u64) -> Option<String> {
    let advice = (advised > 0).then(|| format!("advised {advised}"));
    if goals.all == 0 {
        return advice;
    }
    let mut text = format!("goals {}, missed {}", goals.all, goals.missed);
    if let Some(worst) = goals.worst() {
        let rate = worst.rate.map_or_else(|| "-".into(), short);
        text += &format!("  {}: {rate} of {}", worst.name, worst.target_told());
        if let Some(reason) = &worst.reason {
            text += &format!(", {reason}");
        }
    }
    // Last: it is what can be done without where there is little room.
    if let Some(advice) = advice {
        text += &format!("  {advice}");
    }
    Some(text)
}

/// A line for each, and one more for each that is missed; whether it is such a one.
pub(super) fn lines(goals: &[GoalStatus]) -> Vec<(String, bool)> {
    let mut lines = Vec::new();
    for goal in goals {
        let known = |value: Option<f64>| value.map_or_else(|| "-".into(), short);
        let met = goal
            .met()
            .map_or_else(|| "-".into(), |met| format!("{:.0}%", 100.0 * met));
        lines.push((
            format!(
                "{:>4} {:>8} {:<15} {:>6} {:<4} {:>8} {:>6} {met:>5} {:>6} {:>6}",
                goal.id,
                goal.pid_told(),
                goal.name,
                goal.weight,
                goal.source.name(),
                goal.target_told(),
                known(goal.rate),
                known(goal.demand),
                known(goal.allotment)
            ),
            false,
        ));
        if let Some(reason) = &goal.reason {
            lines.push((format!("{:>14}{reason}", ""), true));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use hetero_core::goals::Miss;

    use super::*;

    #[test]
    fn what_is_lacking_is_seen_in_80_columns() {
        let missed = |miss: Miss| GoalStatus {
            id: 1023,
            pid: 4_194_304,
            name: "a-name-of-15-ch".into(),
            weight: 10_000,
            deadline: true,
            target: 125.0,
            rate: Some(24.5),
            reason: Some(miss.to_string()),
            ..GoalStatus::default()
        };
        let lacks = 12.34;
        for miss in [
            Miss::Machine { lacks },
            Miss::Cpus { lacks },
            Miss::Threads { threads: 1000 },
            Miss::Learning,
            Miss::Waits,
        ] {
            // After a space.
            let lines = lines(&[missed(miss)]);
            assert_eq!(lines.len(), 2);
            assert!(lines.iter().all(|(line, _)| line.len() < 80), "{lines:?}");
        }
        // In short the unit may be cut off, but not how much it is.
        let goals = LiveGoals::of(vec![missed(Miss::Machine { lacks })]);
        let text = summary(&goals, 0).unwrap();
        assert!(text[..79].contains(" lacks 12.34 "), "{text}");
    }

    #[test]
    fn subscriptions_to_advice_are_told_with_goals_and_without() {
        let mut goals = LiveGoals::default();
        assert_eq!(summary(&goals, 0), None);
        assert_eq!(summary(&goals, 3).as_deref(), Some("advised 3"));
        goals.all = 2;
        let both = summary(&goals, 1);
        assert_eq!(both.as_deref(), Some("goals 2, missed 0  advised 1"));
    }
}
