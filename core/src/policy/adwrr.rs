// SPDX-License-Identifier: GPL-2.0-or-later
//! `adwrr`: asymmetry-aware distributed weighted round-robin, after Li et al. (2010), as PMCTrack
//! (2017, section 4.1.1) describes it. CPU time is **scaled**: a nanosecond on a core counts for the
//! rating of its type, whatever the thread makes of it, over the thread's weight. Rounds see to it
//! that all get the same: a thread that is a whole round ahead on a fast core gives way to the one
//! that lags most. It needs no counters.
//!
//! The rating is the type's static capacity over 1024. A round is so much scaled time as passes on
//! the fastest type between two swaps. Where the paper's run queues hold back a thread whose round
//! is over, here CPU time is shared by the BPF half, by weight, and a round decides about core types
//! alone. Programs are nothing to it: one with many threads gets as much more.
//!
//! With three or more core types each has its own rating, and a thread that is a round ahead changes
//! places with one on any slower type.

use std::time::Duration;

use super::name::About;
use super::reason::Measure;
use super::tools::LOOK;
use super::tools::exchange::Exchange;
use super::tools::ledger::Ledger;
use super::tools::progress::APART_NS;
use super::{Action, Insight, Policy, Reason, Snapshot};
use crate::table::{Task, TaskId};
use crate::topology::Topology;

/// What users are told.
pub(super) const ABOUT: About = About {
    name: "adwrr",
    help: "Share computing power by weight, in rounds of scaled CPU time",
    knows: &[],
    build: |settings| Box::new(Adwrr::new(settings.swap_interval)),
};

/// Weight of nice 0.
const WEIGHT_NICE_0: f64 = 1024.0;

/// See the module.
pub struct Adwrr {
    round: Duration,
    exchange: Exchange,
    ledger: Ledger,
}

impl Adwrr {
    /// Rounds are of `round` of the fastest type's time.
    pub fn new(round: Duration) -> Self {
        Self {
            round,
            exchange: Exchange::by(Measure::ScaledTime),
            ledger: Ledger::default(),
        }
    }
}

/// CPU time of a task, scaled, ns of the fastest type.
fn scaled_ns(task: &Task, topology: &Topology) -> i64 {
    let by_type = task.run_ns.iter().zip(&topology.types);
    let scaled = by_type.map(|(&ns, kind)| ns as f64 * f64::from(kind.capacity) / 1024.0);
    scaled.sum::<f64>() as i64
}

impl Policy for Adwrr {
    fn interval(&self) -> Option<Duration> {
        Some(LOOK.max(self.round / 4))
    }

    fn decide(&mut self, snapshot: &Snapshot, actions: &mut Vec<Action>) {
        if snapshot.topology.types.len() < 2 {
            return;
        }
        let Self {
            round,
            exchange,
            ledger,
        } = self;
        exchange.look(snapshot, |_| u64::MAX);
        exchange.rank(snapshot, |task, _| {
            let scaled = scaled_ns(task, snapshot.topology);
            // What it had before its weight changed (as where siblings in its cgroup wake up) counts as it did.
            let rate = WEIGHT_NICE_0 / f64::from(task.weight.max(1));
            ledger.charge(snapshot.now_ns, (task.id, task.weight), scaled, rate)
        });
        ledger.close(APART_NS, |task| snapshot.is_alive(task));
        exchange.act(snapshot, None, round.as_nanos() as i64, actions);
    }

    fn reason(&self, task: TaskId) -> Option<Reason> {
        self.exchange.reason(task)
    }

    fn insight(&self, task: &Task, _: &Topology) -> Insight {
        self.exchange.insight(task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{MS, board, task};

    const ROUND: Duration = Duration::from_millis(400);

    #[test]
    fn cpu_time_is_scaled_by_the_rating_of_the_type() {
        let topology = board(2, 4); // capacities 1024 and 512
        let mut task = task(0, 0, 0);
        task.run_ns = [100, 100, 0, 0];
        assert_eq!(scaled_ns(&task, &topology), 150);
    }

    /// Time in steps of 50 ms until the first swap among threads on one big core and small ones;
    /// and which threads took part in it. None has a counter.
    fn first_swap(weights: &[u32]) -> Option<(u64, u32, u32)> {
        first_swap_after(weights, weights)
    }

    /// The same of threads that had other weights for 1000 s, and by these their shares.
    fn first_swap_after(before: &[u32], weights: &[u32]) -> Option<(u64, u32, u32)> {
        let nr_small = weights.len() as u32 - 1;
        let topology = board(1, nr_small);
        let mut adwrr = Adwrr::new(ROUND);
        let mut tasks: Vec<Task> = Vec::new();
        for (slot, &weight) in before.iter().enumerate() {
            let mut task = task(slot as u32, slot as u32, usize::from(slot > 0));
            task.weight = weight;
            tasks.push(task);
        }
        if before != weights {
            for look in 1..=10 {
                let ms = if look == 10 { 999_000 } else { 50 };
                for task in &mut tasks {
                    task.run_ns[0] += u64::from(task.weight) * ms * MS / 1024;
                }
                let snapshot = Snapshot {
                    now_ns: (look - 1) * 50 * MS + ms * MS,
                    topology: &topology,
                    tasks: &tasks,
                };
                adwrr.decide(&snapshot, &mut Vec::new());
            }
            for (task, &weight) in tasks.iter_mut().zip(weights) {
                task.weight = weight;
            }
        }
        for look in 1..200 {
            for task in &mut tasks {
                task.run_ns[task.core_type] += 50 * MS;
            }
            let mut actions = Vec::new();
            let snapshot = Snapshot {
                now_ns: 1_000_000 * MS + look * 50 * MS,
                topology: &topology,
                tasks: &tasks,
            };
            adwrr.decide(&snapshot, &mut actions);
            if let Some(Action::Swap([(one, _), (other, _)])) = actions.first() {
                return Some((look * 50, one.task.slot, other.task.slot));
            }
        }
        None
    }

    #[test]
    fn who_is_a_round_ahead_gives_way_to_the_one_that_lags_most() {
        // 400 ms ahead at 500 ms per second, once the threads are seen to be busy.
        let (at_ms, one, other) = first_swap(&[1024, 1024, 1024]).unwrap();
        assert_eq!((one, other), (0, 1));
        assert!((800..=1000).contains(&at_ms), "{at_ms}");
    }

    #[test]
    fn a_heavier_thread_stays_until_it_had_as_much_more() {
        let (light, ..) = first_swap(&[1024, 1024]).unwrap();
        let (heavy, ..) = first_swap(&[1536, 1024]).unwrap();
        assert!(heavy > 2 * light, "{heavy} ms, not {light}");
        assert_eq!(first_swap(&[4096, 1024]), None);
    }

    #[test]
    fn a_change_of_weight_counts_from_then_on() {
        let (at_ms, ..) = first_swap_after(&[1024, 512], &[1024, 1024]).unwrap();
        assert!((400..=1000).contains(&at_ms), "{at_ms}");
    }
}
