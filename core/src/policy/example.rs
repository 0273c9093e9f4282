// SPDX-License-Identifier: GPL-2.0-or-later
//! `turns`: the fast cores to the threads that have had least of them.

use std::time::Duration;

use super::name::About;
use super::tools::exchange::Exchange;
use super::{Action, Policy, Snapshot};

/// What users are told.
pub(super) const ABOUT: About = About {
    name: "turns",
    help: "The fast cores to the threads that have had least of them",
    knows: &[],
    build: |settings| Box::new(Turns::new(settings.swap_interval)),
};

/// Threads change places only if they have had so much more and less, ns: each swap costs both
/// their caches.
const APART: i64 = 200_000_000;

/// See the module.
struct Turns {
    interval: Duration,
    exchange: Exchange,
}

impl Turns {
    /// `interval` is the time between decisions.
    fn new(interval: Duration) -> Self {
        Self {
            interval,
            exchange: Exchange::default(),
        }
    }
}

impl Policy for Turns {
    fn interval(&self) -> Option<Duration> {
        Some(self.interval)
    }

    fn decide(&mut self, snapshot: &Snapshot, actions: &mut Vec<Action>) {
        if snapshot.topology.types.len() < 2 {
            return;
        }
        // A thread that sleeps now may come back: its place is kept for so long, ns.
        self.exchange.look(snapshot, |_| 100_000_000);
        self.exchange
            .rank(snapshot, |task, _| task.run_ns[0] as i64);
        self.exchange.act(snapshot, None, APART, actions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Seen;
    use crate::testing::{MS, board, task};

    #[test]
    fn who_had_least_of_the_big_core_gets_it() {
        let topology = board(1, 1);
        let mut policy = Turns::new(Duration::from_millis(400));
        let mut tasks = [task(0, 0, 0), task(1, 1, 1)];
        tasks[0].run_ns[0] = 5000 * MS;
        let mut actions = Vec::new();
        for look in 1..=5 {
            for (core_type, task) in tasks.iter_mut().enumerate() {
                task.run_ns[core_type] += 400 * MS;
            }
            let snapshot = Snapshot {
                now_ns: look * 400 * MS,
                topology: &topology,
                tasks: &tasks,
            };
            policy.decide(&snapshot, &mut actions);
        }
        let up = |(seen, to): &(Seen, usize)| (seen.task, *to) == (tasks[1].id, 0);
        let swap = actions.iter().any(|action| match action {
            Action::Swap(both) => both.iter().any(up),
            _ => false,
        });
        assert!(swap, "{actions:?}");
    }
}
