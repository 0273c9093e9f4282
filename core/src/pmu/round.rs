// SPDX-License-Identifier: GPL-2.0-or-later
//! Rounds: samples of one task over all event sets, put together.
//!
//! Where the events wished need several sets, a task runs under one set after the other, and
//! values from different sets belong together only if the task did the same all the while. So
//! each task's IPC, which every set measures, is followed by a running average. A sample whose
//! IPC is suddenly another belongs to another phase: what the round has collected is discarded,
//! and the sample starts a new round. A round is complete when every set has been seen.
//! (PMCTrack, The Computer Journal 2017, section 4.1.2 and figure 7.)
//!
//! What is combined is per instruction, as the samples are of different lengths.

use super::sets::{CYCLES, INSTRUCTIONS, Plan};

/// A sample's IPC that is off the running average by more than this share starts a new phase.
/// The paper gives no number; 15 % is above what a steady program's IPC wavers from sample to
/// sample, and below what a change of phase does to it.
pub const IPC_JUMP: f64 = 0.15;

/// How many samples the running average remembers, about.
const MEMORY: u32 = 8;

/// What became of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// So many earlier samples of the round were discarded: the IPC jumped.
    pub discarded: u32,
    /// All sets have been seen: the round's values can be read until the next sample.
    pub complete: bool,
}

/// A task's round on one core type. Allocates only when it is made.
#[derive(Clone, Debug)]
pub struct Round {
    sets: Vec<Sums>,
    jump: f64,
    ipc: f64,
    samples_of_phase: u32,
    samples: u32,
    complete: bool,
}

#[derive(Clone, Debug)]
struct Sums {
    seen: bool,
    counts: Vec<u64>,
}

impl Round {
    /// A round over the sets of `plan` that is discarded when the IPC jumps by more than `jump`
    /// ([`IPC_JUMP`]).
    pub fn new(plan: &Plan, jump: f64) -> Self {
        let sets = plan.sets.iter().map(|set| Sums {
            seen: false,
            counts: vec![0; set.counters.len()],
        });
        Self {
            sets: sets.collect(),
            jump,
            ipc: 0.0,
            samples_of_phase: 0,
            samples: 0,
            complete: false,
        }
    }

    /// Takes in a sample: what the counters of set number `set` counted while the task ran under
    /// it. A sample without instructions or cycles, or of no such set, is passed over.
    pub fn push(&mut self, set: usize, counts: &[u64]) -> Pushed {
        let ignored = Pushed {
            discarded: 0,
            complete: false,
        };
        let known = self
            .sets
            .get(set)
            .is_some_and(|sums| sums.counts.len() == counts.len());
        if !known || counts[INSTRUCTIONS] == 0 || counts[CYCLES] == 0 {
            return ignored;
        }
        if self.complete {
            self.forget_samples();
        }
        let ipc = counts[INSTRUCTIONS] as f64 / counts[CYCLES] as f64;
        let jumped = self.samples_of_phase > 0 && (ipc - self.ipc).abs() > self.jump * self.ipc;
        let mut discarded = 0;
        if jumped {
            discarded = self.samples;
            self.restart();
        }
        self.samples_of_phase = (self.samples_of_phase + 1).min(MEMORY);
        self.ipc += (ipc - self.ipc) / f64::from(self.samples_of_phase);
        self.samples += 1;
        let sums = &mut self.sets[set];
        sums.seen = true;
        for (sum, count) in sums.counts.iter_mut().zip(counts) {
            *sum += count;
        }
        self.complete = self.sets.iter().all(|sums| sums.seen);
        Pushed {
            discarded,
            complete: self.complete,
        }
    }

    /// Forgets samples and phase, as when the task has changed its core type.
    pub fn restart(&mut self) {
        self.forget_samples();
        self.samples_of_phase = 0;
        self.ipc = 0.0;
    }

    fn forget_samples(&mut self) {
        for sums in &mut self.sets {
            sums.seen = false;
            sums.counts.fill(0);
        }
        self.samples = 0;
        self.complete = false;
    }

    /// Instructions of the round so far.
    pub fn instructions(&self) -> u64 {
        self.sets.iter().map(|sums| sums.counts[INSTRUCTIONS]).sum()
    }

    /// Cycles of the round so far.
    pub fn cycles(&self) -> u64 {
        self.sets.iter().map(|sums| sums.counts[CYCLES]).sum()
    }

    /// Instructions per cycle over the round; `None` before its first sample.
    pub fn ipc(&self) -> Option<f64> {
        let cycles = self.cycles();
        (cycles > 0).then(|| self.instructions() as f64 / cycles as f64)
    }

    /// What a counter counted per instruction, by [`Plan::find`]'s numbers; `None` if its set has
    /// not been seen in this round.
    pub fn per_instruction(&self, (set, counter): (usize, usize)) -> Option<f64> {
        let sums = self.sets.get(set).filter(|sums| sums.seen)?;
        let count = *sums.counts.get(counter)?;
        Some(count as f64 / sums.counts[INSTRUCTIONS] as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::Encoding;
    use super::super::sets::EventSet;
    use super::*;

    /// Three sets, each of instructions, cycles, and one event more.
    fn round() -> Round {
        let counters = ["instructions", "cycles", "one more"].map(|name| Encoding::raw(0, name));
        let set = EventSet {
            counters: counters.to_vec(),
            events: Vec::new(),
        };
        let plan = Plan {
            sets: vec![set; 3],
            absent: Vec::new(),
        };
        Round::new(&plan, IPC_JUMP)
    }

    fn pushed(discarded: u32, complete: bool) -> Pushed {
        Pushed {
            discarded,
            complete,
        }
    }

    #[test]
    fn a_steady_task_completes_a_round_per_instruction() {
        let mut round = round();
        assert_eq!(round.push(0, &[1000, 500, 10]), pushed(0, false));
        assert_eq!(round.push(1, &[3000, 1500, 60]), pushed(0, false));
        assert_eq!(round.per_instruction((2, 2)), None);
        assert_eq!(round.push(2, &[500, 260, 50]), pushed(0, true));
        assert_eq!(round.per_instruction((0, 2)), Some(0.01));
        assert_eq!(round.per_instruction((1, 2)), Some(0.02));
        assert_eq!(round.per_instruction((2, 2)), Some(0.1));
        assert_eq!((round.instructions(), round.cycles()), (4500, 2260));
        assert_eq!(round.ipc(), Some(4500.0 / 2260.0));
        // The next sample starts the next round.
        assert_eq!(round.push(1, &[1000, 500, 1]), pushed(0, false));
        assert_eq!(round.per_instruction((0, 2)), None);
    }

    #[test]
    fn sets_come_in_any_order_and_often() {
        let mut round = round();
        for (set, complete) in [(2, false), (2, false), (0, false), (0, false), (1, true)] {
            assert_eq!(round.push(set, &[100, 100, 1]), pushed(0, complete));
        }
        assert_eq!(round.per_instruction((2, 2)), Some(0.01));
        assert_eq!(round.instructions(), 500);
    }

    #[test]
    fn a_jump_of_the_ipc_discards_what_was_collected() {
        let mut round = round();
        round.push(0, &[1000, 1000, 1]);
        round.push(1, &[1000, 1000, 1]);
        assert_eq!(round.push(2, &[1000, 1200, 7]), pushed(2, false));
        // It belongs to the new phase, and the round begins with it.
        assert_eq!(round.per_instruction((0, 2)), None);
        assert_eq!(round.per_instruction((2, 2)), Some(0.007));
        assert_eq!(round.push(0, &[1000, 1200, 2]), pushed(0, false));
        assert_eq!(round.push(1, &[1000, 1200, 3]), pushed(0, true));
        assert_eq!(round.ipc(), Some(3000.0 / 3600.0));
    }

    #[test]
    fn a_jump_between_rounds_discards_nothing() {
        let mut round = round();
        for set in 0..3 {
            round.push(set, &[1000, 1000, 1]);
        }
        assert_eq!(round.push(0, &[1000, 3000, 1]), pushed(0, false));
        assert_eq!(round.push(1, &[1000, 1000, 1]), pushed(1, false));
    }

    #[test]
    fn a_slow_drift_is_one_phase() {
        let mut round = round();
        for step in 0..30 {
            let cycles = 1000 + step * 20;
            let pushed = round.push(step as usize % 3, &[1000, cycles, 1]);
            assert_eq!(pushed.discarded, 0, "step {step}");
        }
    }

    #[test]
    fn what_says_nothing_is_passed_over() {
        let mut round = round();
        round.push(0, &[1000, 1000, 1]);
        assert_eq!(round.push(1, &[0, 1000, 1]), pushed(0, false));
        assert_eq!(round.push(1, &[1000, 0, 1]), pushed(0, false));
        assert_eq!(round.push(3, &[1000, 1000, 1]), pushed(0, false));
        assert_eq!(round.push(1, &[1000, 1000]), pushed(0, false));
        assert_eq!(round.push(1, &[1000, 1000, 1]), pushed(0, false));
        assert_eq!(round.push(2, &[1000, 1000, 1]), pushed(0, true));
    }

    #[test]
    fn another_core_type_is_no_jump() {
        let mut round = round();
        round.push(0, &[1000, 1000, 1]);
        round.restart();
        assert_eq!(round.push(1, &[1000, 3000, 1]), pushed(0, false));
        assert_eq!(round.per_instruction((0, 2)), None);
    }
}
