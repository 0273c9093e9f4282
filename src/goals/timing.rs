// SPDX-License-Identifier: GPL-2.0-only
//! How often programs with goals are looked at, and over how long they are measured.

use std::time::Duration;

use clap::Args;
use hetero_core::goals::GoalSettings;
use hetero_core::whole::whole;

/// What can be said of it on the command line.
#[derive(Args, Clone, Copy, Debug)]
pub struct GoalTimingArgs {
    /// Time between looks at programs with goals, in milliseconds
    #[arg(long, default_value_t = 50, value_name = "MS", value_parser = whole::<u64>(10..=1000))]
    goal_look_ms: u64,

    /// Time, and two beats, over which such a program is measured before it is
    /// allotted more or less, in milliseconds
    #[arg(long, default_value_t = 150, value_name = "MS", value_parser = whole::<u64>(10..=10_000))]
    goal_interval_ms: u64,
}

impl GoalTimingArgs {
    /// All else as it is by default.
    pub fn settings(self) -> GoalSettings {
        GoalSettings {
            look: Duration::from_millis(self.goal_look_ms),
            interval: Duration::from_millis(self.goal_interval_ms),
            ..GoalSettings::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        goals: GoalTimingArgs,
    }

    #[test]
    fn what_is_not_said_is_as_by_default_and_what_is_absurd_is_refused() {
        let of = |words: &[&str]| {
            let words = [&["it"], words].concat();
            Line::try_parse_from(words).map(|line| line.goals.settings())
        };
        assert_eq!(of(&[]).unwrap(), GoalSettings::default());
        let paper = of(&["--goal-interval-ms", "500"]).unwrap();
        assert_eq!(paper.interval, Duration::from_millis(500));
        assert!(of(&["--goal-look-ms", "0"]).is_err());
    }
}
