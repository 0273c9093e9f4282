// SPDX-License-Identifier: GPL-2.0-or-later
//! What was found of a program's threads, each of which counts once: what is found of a thread that lives on
//! stands in the place of what was found of it before.

use super::losses::ThreadLoss;
use super::profile::{ThreadFinding, ThreadProfile};
use super::program::ProgramKnowledge;
use crate::table::Task;

/// Threads of one program that are told apart while they live; of more it is kept what they were like at their end.
const LIVING: usize = 32;

/// A thread that lives on, as it was found to be last.
#[derive(Clone, Copy, Debug, PartialEq)]
struct LivingThread {
    /// Thread id and time of its start: they name it for good, whichever slot of the task table it has.
    thread: (u32, u64),
    /// When that came.
    at: i64,
    profile: ThreadProfile,
    unlike: bool,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProgramFindings {
    /// By threads that have ended, and by earlier runs.
    settled: ProgramKnowledge,
    /// In the order in which they came first.
    living: Vec<LivingThread>,
}

impl From<ProgramKnowledge> for ProgramFindings {
    fn from(settled: ProgramKnowledge) -> Self {
        let living = Vec::new();
        Self { settled, living }
    }
}

impl ProgramFindings {
    /// Takes in what was found of a thread, at a time in any unit.
    pub fn take(&mut self, task: &Task, found: &ThreadFinding, at: i64) {
        let thread = (task.tid, task.start_time);
        let before = self.living.iter().position(|of| of.thread == thread);
        let profile = match before {
            Some(before) => found.profile.or(&self.living[before].profile),
            None => found.profile,
        };
        if profile.is_empty() {
            return;
        }
        let unlike = found.unlike || before.is_some_and(|at| self.living[at].unlike);
        let now = LivingThread {
            thread,
            at,
            profile,
            unlike,
        };
        match before {
            _ if found.last => {
                before.map(|before| self.living.remove(before));
                self.settled.take(&profile, unlike);
            }
            Some(before) => self.living[before] = now,
            None if self.living.len() < LIVING => self.living.push(now),
            None => {}
        }
    }

    /// Takes in what a thread of it lost to a process of another program, called so.
    pub fn lose(&mut self, program: &str, loss: &ThreadLoss) {
        self.settled.company.lose(program, loss);
    }

    /// Takes in what a thread of another program lost to it.
    pub fn harm(&mut self, loss: &ThreadLoss) {
        self.settled.company.harm(loss);
    }

    /// Forgets what it lost beside programs that are called so; whether there was anything.
    pub fn forget_beside(&mut self, is_meant: impl Fn(&str) -> bool) -> bool {
        !self.settled.company.forget(is_meant).is_empty()
    }

    /// Threads of which nothing came since then have ended.
    pub fn settle(&mut self, since: i64) {
        let settled = &mut self.settled;
        self.living.retain(|of| {
            let lives = of.at >= since;
            if !lives {
                settled.take(&of.profile, of.unlike);
            }
            lives
        });
    }

    /// Threads that live on, and are told apart.
    pub fn living(&self) -> usize {
        self.living.len()
    }

    /// What is known of threads that have ended, and of earlier runs.
    pub fn settled(&self) -> &ProgramKnowledge {
        &self.settled
    }

    /// Whether no thread has told anything.
    pub fn is_empty(&self) -> bool {
        self.living.is_empty() && self.settled.threads == 0
    }

    /// All that is known.
    pub fn known(&self) -> ProgramKnowledge {
        let mut known = self.settled.clone();
        for of in &self.living {
            known.take(&of.profile, of.unlike);
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knowledge::Sure;
    use crate::testing::task;

    fn finding(sf: f64, last: bool) -> ThreadFinding {
        let mut found = ThreadFinding {
            last,
            ..ThreadFinding::default()
        };
        found.profile.sf[1] = Sure::of_factor(sf, 0.005);
        found
    }

    fn thread(tid: u32) -> Task {
        Task {
            tid,
            ..task(tid, 0, 0)
        }
    }

    #[test]
    fn a_thread_counts_once_however_often_something_is_found_of_it() {
        let mut program = ProgramFindings::default();
        for minute in 0..60 {
            program.take(&thread(1), &finding(3.0, false), minute);
        }
        program.take(&thread(1), &finding(2.0, false), 60);
        let known = program.known();
        assert_eq!((known.threads, known.sf[1].values), (1, 1.0));
        assert!((known.sf[1].mean - 2f64.ln()).abs() < 1e-9);
        // As sure as of one thread: runs may differ.
        let once = {
            let mut once = ProgramKnowledge::default();
            once.take(&finding(2.0, true).profile, false);
            once
        };
        assert_eq!(known, once);
        program.take(&thread(1), &finding(2.0, true), 61);
        assert_eq!((program.known(), program.living()), (once, 0));
        program.take(&thread(2), &finding(2.0, false), 62);
        assert_eq!(program.known().threads, 2);
    }

    #[test]
    fn another_policy_adds_what_it_finds_to_what_was_found_before() {
        let mut program = ProgramFindings::default();
        program.take(&thread(1), &finding(2.0, false), 0);
        let mut other = ThreadFinding::default();
        other.profile.ipc[0] = Sure::of_factor(1.5, 0.01);
        program.take(&thread(1), &other, 1);
        let known = program.known();
        assert_eq!(
            (known.threads, known.sf[1].values, known.ipc[0].values),
            (1, 1.0, 1.0)
        );
    }

    #[test]
    fn a_thread_of_which_nothing_comes_any_more_has_ended_and_living_ones_are_bounded() {
        let mut program = ProgramFindings::default();
        for tid in 0..2 * LIVING as u32 {
            program.take(&thread(tid), &finding(2.0, false), i64::from(tid));
        }
        assert_eq!(program.living(), LIVING);
        program.settle(4);
        assert_eq!(program.living(), LIVING - 4);
        assert_eq!(program.known().threads, LIVING as u64);
        program.take(&thread(1000), &finding(2.0, true), 99);
        assert_eq!(program.known().threads, LIVING as u64 + 1);
    }

    #[test]
    fn one_that_is_unlike_the_others_is_so_once() {
        let mut program = ProgramFindings::default();
        for tid in 0..5 {
            program.take(&thread(tid), &finding(2.0, true), 0);
        }
        let unlike = ThreadFinding {
            unlike: true,
            ..finding(4.0, false)
        };
        for minute in 1..4 {
            program.take(&thread(9), &unlike, minute);
        }
        let known = program.known();
        assert_eq!((known.threads, known.unlike), (6, 1));
    }
}
