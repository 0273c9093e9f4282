// SPDX-License-Identifier: GPL-2.0-or-later
//! The work of all threads in sums that only grow: a thread counts from its first moment in the table,
//! and what it did counts when it has ended. Throughput over any time is the difference of two.

use crate::policy::Insight;
use crate::table::{Task, TaskId, TaskState};

/// It is looked no closer than this, ns: threads are many.
const STEP_NS: u64 = 100_000_000;

/// A thread of which the policy says nothing takes part with so much of its time run.
const BUSY: f64 = 0.25;

/// See the module; differences per ns are what people ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// `amp_progress` of all threads but the kernel's, ns alone on the fastest core type: STP.
    pub progress_ns: f64,
    /// Σ(progress · SF - time there) of those that take part, ns: ASP.
    pub gain_ns: f64,
    /// How long these were there, together, ns.
    pub part_ns: f64,
}

#[derive(Clone, Copy, Debug)]
struct Before {
    id: TaskId,
    ran_ns: u64,
    progress_ns: u64,
}

/// Adds it up, look by look.
#[derive(Debug, Default)]
pub struct WorkLedger {
    before: Vec<Before>,
    at_ns: Option<u64>,
    work: Work,
}

impl WorkLedger {
    /// What was done so far.
    pub fn work(&self) -> Work {
        self.work
    }

    /// Takes in the table, in ascending order of ids. `capacities` are those of the core types,
    /// fastest first; `insight` is what the policy knows of a thread.
    pub fn update(
        &mut self,
        at_ns: u64,
        tasks: &[Task],
        capacities: impl Iterator<Item = u32>,
        insight: impl Fn(&Task) -> Insight,
    ) {
        let elapsed = self.at_ns.map(|before| at_ns.saturating_sub(before));
        if elapsed.is_some_and(|elapsed| elapsed < STEP_NS) {
            return;
        }
        let (nr_types, slowest) = capacities.fold((0, 1024), |(n, _), c| (n + 1, c));
        if let Some(elapsed) = elapsed {
            let mut before = self.before.iter().peekable();
            for task in tasks.iter().filter(|task| !task.kthread) {
                while before.next_if(|before| before.id < task.id).is_some() {}
                let known = before.next_if(|before| before.id == task.id);
                let (ran, progress, there) = match known {
                    Some(known) => (
                        task.total_ns().saturating_sub(known.ran_ns),
                        task.amp_progress.saturating_sub(known.progress_ns),
                        elapsed,
                    ),
                    // It has come since, at an unknown time: in the middle, or before all it ran.
                    None => (
                        task.total_ns(),
                        task.amp_progress.saturating_sub(task.first_progress),
                        (elapsed / 2).max(task.total_ns()).min(elapsed),
                    ),
                };
                self.work.progress_ns += progress as f64;
                if ran == 0 && task.state == TaskState::Blocked {
                    continue;
                }
                let insight = insight(task);
                let busy = ran as f64 >= BUSY * there as f64;
                // The policy has not seen a new one often enough to say.
                let takes_part = match insight.takes_part {
                    Some(takes_part) => takes_part || (known.is_none() && busy),
                    None => busy,
                };
                if takes_part {
                    let last = insight.asymmetry.get(usize::wrapping_sub(nr_types, 1));
                    let assumed = 1024.0 / f64::from(slowest.max(1));
                    let sf = last.copied().flatten().unwrap_or(assumed);
                    self.work.gain_ns += progress as f64 * sf - there as f64;
                    self.work.part_ns += there as f64;
                }
            }
        }
        self.at_ns = Some(at_ns);
        self.before.clear();
        self.before.extend(tasks.iter().map(|task| Before {
            id: task.id,
            ran_ns: task.total_ns(),
            progress_ns: task.amp_progress,
        }));
    }
}

impl Work {
    /// STP and ASP of the `elapsed` ns since it was `before`; no ASP where no thread took part.
    pub fn since(&self, before: &Self, elapsed: u64) -> (f64, Option<f64>) {
        let elapsed = elapsed as f64;
        let stp = (self.progress_ns - before.progress_ns) / elapsed;
        let took_part = self.part_ns > before.part_ns;
        let asp = took_part.then(|| (self.gain_ns - before.gain_ns) / elapsed);
        (stp, asp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{MS, task};

    const SECOND: u64 = 1000 * MS;

    /// Jobs of a build, each for `life` ms on one of four CPUs, one after another; looked at as often as
    /// a policy does.
    fn build(life: u64, seconds: u64) -> Work {
        let mut ledger = WorkLedger::default();
        let furthest = 7 * SECOND;
        for at in (0..seconds * 1000).step_by(50) {
            let tasks: Vec<Task> = (0..4)
                .map(|slot| {
                    // They do not begin all at once.
                    let age = at + slot * life / 4;
                    let mut task = task(slot as u32, slot as u32, usize::from(slot >= 2));
                    task.id.generation = (age / life) as u32;
                    let ran = age % life * MS;
                    task.run_ns[task.core_type] = ran;
                    task.first_progress = furthest;
                    task.amp_progress = furthest + ran / (1 + task.core_type as u64);
                    task
                })
                .collect();
            ledger.update(at * MS, &tasks, [1024, 512].into_iter(), |_| {
                Insight::default()
            });
        }
        ledger.work()
    }

    #[test]
    fn what_ran_counts_however_short_it_lived() {
        // Two CPUs of full speed and two of half of it: STP is 3, and ASP (2 - 1) * 2. What a job does after
        // the last look at it, up to 100 ms, is not seen.
        for (life, least) in [(100_000, 0.99), (1000, 0.9), (400, 0.7)] {
            let (stp, asp) = build(life, 20).since(&Work::default(), 20 * SECOND);
            assert!(stp <= 3.0 && stp >= 3.0 * least, "{life} ms: {stp}");
            let asp = asp.unwrap();
            assert!(asp < 2.5 && asp >= 2.0 * least, "{life} ms: {asp}");
        }
    }

    #[test]
    fn what_waits_takes_part_and_what_sleeps_or_is_the_kernels_does_not() {
        let mut tasks = [task(0, 0, 0), task(1, 1, 1), task(2, 1, 1)];
        tasks[1].state = TaskState::Queued;
        tasks[2].kthread = true;
        let mut ledger = WorkLedger::default();
        let says = |task: &Task| Insight {
            takes_part: Some(task.id.slot < 2),
            ..Insight::default()
        };
        ledger.update(0, &tasks, [1024, 512].into_iter(), says);
        for task in [0, 2] {
            tasks[task].run_ns[0] += SECOND;
            tasks[task].amp_progress += SECOND;
        }
        ledger.update(SECOND, &tasks, [1024, 512].into_iter(), says);
        let (stp, asp) = ledger.work().since(&Work::default(), SECOND);
        assert_eq!((stp, asp), (1.0, Some(2.0 - 1.0 - 1.0)));
        tasks
            .iter_mut()
            .for_each(|task| task.state = TaskState::Blocked);
        let before = ledger.work();
        ledger.update(2 * SECOND, &tasks, [1024, 512].into_iter(), says);
        assert_eq!(ledger.work().since(&before, SECOND), (0.0, None));
    }
}
