// SPDX-License-Identifier: GPL-2.0-or-later
//! What a program has told in return: sizes that it has measured, by phase, and which of its threads are a team. Bounded,
//! whatever it says.

use super::team::TeamTime;

/// Numbers of threads whose measurements are kept for a phase.
pub const MOST_SIZES: usize = 8;

/// Phases of which something is kept; the oldest gives way.
pub const MOST_PHASES: usize = 8;

/// Threads that can be named as the team.
pub const MOST_MEMBERS: usize = 256;

/// A new measurement counts for one in so many.
const AVERAGED: f64 = 4.0;

/// Something that a program says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ProgramSays {
    /// What it has measured with some threads since it said so last.
    Time(TeamTime),
    /// It is in this phase from now on, by a number of its own.
    Phase(u32),
    /// A thread belongs to the team, or (false) no longer does. While there are none, all threads of the process are the
    /// team.
    Member(u32, bool),
}

/// All that one program has told.
#[derive(Clone, Debug, Default)]
pub struct ToldByProgram {
    phase: u32,
    /// Oldest first.
    phases: Vec<(u32, Vec<TeamTime>)>,
    members: Vec<u32>,
}

impl ToldByProgram {
    /// Takes something in. False if there is no room for it.
    pub fn hear(&mut self, told: ProgramSays) -> bool {
        match told {
            ProgramSays::Time(time) => self.time(time),
            ProgramSays::Phase(phase) => self.phase = phase,
            ProgramSays::Member(tid, false) => self.members.retain(|&of| of != tid),
            ProgramSays::Member(tid, true) => {
                if self.members.contains(&tid) {
                    return true;
                }
                if self.members.len() >= MOST_MEMBERS {
                    return false;
                }
                self.members.push(tid);
            }
        }
        true
    }

    fn time(&mut self, time: TeamTime) {
        let at = self
            .phases
            .iter()
            .position(|(phase, _)| *phase == self.phase);
        let at = at.unwrap_or_else(|| {
            if self.phases.len() >= MOST_PHASES {
                self.phases.remove(0);
            }
            self.phases.push((self.phase, Vec::new()));
            self.phases.len() - 1
        });
        let sizes = &mut self.phases[at].1;
        let mean = |old: Option<f64>, new: Option<f64>| match (old, new) {
            (Some(old), Some(new)) if old.is_finite() => Some(old + (new - old) / AVERAGED),
            (old, new) => new.or(old),
        };
        match sizes.iter_mut().find(|of| of.threads == time.threads) {
            Some(known) => {
                known.rate = mean(known.rate, time.rate);
                known.waited = mean(known.waited, time.waited);
            }
            None => {
                if sizes.len() >= MOST_SIZES {
                    sizes.remove(0);
                }
                sizes.push(time);
            }
        }
    }

    /// What it has measured in its present phase.
    pub fn measured(&self) -> &[TeamTime] {
        let phase = self.phases.iter().find(|(phase, _)| *phase == self.phase);
        phase.map_or(&[], |(_, sizes)| sizes)
    }

    /// Forgets what was measured: it was in other company.
    pub fn forget(&mut self) {
        self.phases.clear();
    }

    /// The phase that it is in, as it says.
    pub fn phase(&self) -> u32 {
        self.phase
    }

    /// How many threads it has named as its team.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// Whether a thread of the process belongs to the team.
    pub fn has(&self, tid: u32) -> bool {
        self.members.is_empty() || self.members.contains(&tid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(threads: usize, rate: f64) -> ProgramSays {
        ProgramSays::Time(TeamTime {
            threads,
            rate: Some(rate),
            waited: None,
        })
    }

    #[test]
    fn measurements_belong_to_phases_and_average() {
        let mut told = ToldByProgram::default();
        told.hear(time(4, 1.0));
        told.hear(time(4, 5.0));
        assert_eq!(told.measured()[0].rate, Some(2.0));
        told.hear(ProgramSays::Phase(7));
        assert!(told.measured().is_empty());
        told.hear(time(8, 3.0));
        told.hear(ProgramSays::Phase(0));
        assert_eq!(told.measured().len(), 1);
        told.forget();
        assert!(told.measured().is_empty());
    }

    #[test]
    fn whatever_is_told_is_bounded() {
        let mut told = ToldByProgram::default();
        for n in 0..10_000 {
            told.hear(ProgramSays::Phase(n));
            for size in 0..20 {
                told.hear(time(size, f64::NAN));
            }
            told.hear(ProgramSays::Member(n, true));
        }
        assert_eq!(told.phases.len(), MOST_PHASES);
        assert!(told.phases.iter().all(|(_, of)| of.len() <= MOST_SIZES));
        assert_eq!(told.members.len(), MOST_MEMBERS);
        assert!(!told.hear(ProgramSays::Member(20_000, true)));
        assert!(told.has(3) && !told.has(20_000));
    }

    #[test]
    fn without_members_all_threads_are_the_team() {
        let mut told = ToldByProgram::default();
        assert!(told.has(1));
        told.hear(ProgramSays::Member(2, true));
        assert!(!told.has(1));
        told.hear(ProgramSays::Member(2, false));
        assert!(told.has(1));
    }
}
