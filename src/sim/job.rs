// SPDX-License-Identifier: GPL-2.0-only
//! Programs that run: which thread's turn it is in which phase, and what waits for what.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::contention::PhaseLoad;
use super::machine::SimulatedMachine;
use super::program::{ProgramPhase, SimulatedProgram};

/// A program as a machine runs it: its phases with their place among the machine's loads.
#[derive(Clone, Debug)]
pub(super) struct Compiled {
    pub(super) name: String,
    pub(super) rounds: u32,
    pub(super) stages: Vec<JobStage>,
}

/// A phase of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobStage {
    /// Index into the loads.
    pub(super) load: usize,
    pub(super) serial: bool,
    /// See [`super::program::ProgramPhase::pieces`].
    pub(super) pieces: Option<u32>,
    /// See [`super::program::ProgramPhase::goes_on`].
    pub(super) goes_on: bool,
    /// Of one round, of all threads together.
    pub(super) instructions: f64,
    /// See [`super::program::ProgramPhase::sleep`].
    pub(super) sleep: Option<(f64, f64)>,
    /// See [`super::program::ProgramPhase::paced`].
    pub(super) paced: bool,
}

impl Compiled {
    /// Puts the program's phases among `loads`.
    pub(super) fn new(
        machine: &SimulatedMachine,
        program: &SimulatedProgram,
        loads: &mut Vec<PhaseLoad>,
    ) -> Rc<Self> {
        let stages = program.phases.iter().map(|phase| {
            loads.push(PhaseLoad::new(machine, phase));
            JobStage {
                load: loads.len() - 1,
                serial: phase.serial,
                pieces: phase.pieces,
                goes_on: phase.goes_on,
                instructions: phase.instructions,
                sleep: phase.sleep,
                paced: phase.paced,
            }
        });
        Rc::new(Self {
            name: program.name.clone(),
            rounds: program.rounds,
            stages: stages.collect(),
        })
    }

    /// What starts programs: so many threads, each of which works for `ns`, on the slowest CPUs, when it is woken up. It
    /// computes as most kernel code does: assumed.
    pub(super) fn starters(
        machine: &SimulatedMachine,
        threads: usize,
        ns: f64,
        loads: &mut Vec<PhaseLoad>,
    ) -> Rc<Self> {
        let mut phase = ProgramPhase {
            serial: false,
            pieces: None,
            goes_on: false,
            instructions: 0.0,
            ipc: 1.0,
            asymmetry: 0.5,
            sf: BTreeMap::new(),
            loads: 0.3,
            branches: 0.2,
            stream: 0.0,
            reuse: 0.0,
            working_set: 0.0,
            kept: false,
            in_turn: false,
            written: 0.0,
            sequential: 0.0,
            dependent: 0.0,
            sleep: None,
            paced: false,
        };
        let slowest = machine.cores.len() - 1;
        let each = ns / PhaseLoad::new(machine, &phase).alone_ns(slowest);
        phase.instructions = each * threads as f64;
        let program = SimulatedProgram {
            name: "starter".into(),
            description: String::new(),
            rounds: 1,
            phases: vec![phase],
        };
        Self::new(machine, &program, loads)
    }

    /// Whether any of its work is in frames.
    pub(super) fn has_frames(&self) -> bool {
        self.stages.iter().any(|stage| stage.paced)
    }

    /// Instructions of a whole run, of all threads.
    pub(super) fn instructions(&self) -> f64 {
        let round: f64 = self.stages.iter().map(|stage| stage.instructions).sum();
        round * f64::from(self.rounds)
    }
}

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum JobStep {
    /// Works: so many instructions of its present stage.
    Work(f64),
    /// Works on at the next stage, which is its present one from now on.
    GoOn,
    /// Waits for the others.
    Wait,
    /// All have come: the next stage begins, in which those up to this one, and no others, work.
    Meet(u32),
    /// The program has ended.
    End,
}

/// A run of a program.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// What it runs.
    pub(super) program: Rc<Compiled>,
    /// Its threads; none before it starts.
    pub(super) members: Vec<u32>,
    /// It has few ways of the last-level caches.
    pub(super) confined: bool,
    /// When it began, ns.
    pub(super) began_at: u64,
    stage: usize,
    /// How many stages beyond it a member is.
    ahead: Vec<usize>,
    round: u32,
    /// Members that have done their part of the present stage.
    arrived: u32,
    /// Pieces of the present stage that no member has taken yet.
    untaken: u32,
}

impl Job {
    pub(super) fn new(program: Rc<Compiled>, members: Vec<u32>, began_at: u64) -> Self {
        let mut job = Self {
            program,
            ahead: vec![0; members.len()],
            members,
            confined: false,
            began_at,
            stage: 0,
            round: 0,
            arrived: 0,
            untaken: 0,
        };
        job.hand_out();
        job
    }

    /// The present stage begins: each worker takes a piece of it.
    fn hand_out(&mut self) {
        let pieces = self.stage().pieces.unwrap_or(0);
        self.untaken = pieces.saturating_sub(self.workers());
    }

    /// The present stage.
    fn stage(&self) -> &JobStage {
        &self.program.stages[self.stage]
    }

    /// A member's present stage.
    pub(super) fn stage_of(&self, member: u32) -> &JobStage {
        &self.program.stages[self.stage + self.ahead[member as usize]]
    }

    /// How many members work in the present stage.
    pub(super) fn workers(&self) -> u32 {
        let members = self.members.len() as u32;
        match *self.stage() {
            JobStage { serial: true, .. } => 1,
            JobStage {
                pieces: Some(pieces),
                ..
            } => members.min(pieces),
            _ => members,
        }
    }

    /// Instructions that a worker is given at once of its present stage.
    pub(super) fn part(&self, member: u32) -> f64 {
        let stage = self.stage_of(member);
        stage.instructions / f64::from(stage.pieces.unwrap_or_else(|| self.workers()))
    }

    /// Whether at the end of the present stage also those wake up that have no part in the next: after one in
    /// pieces threads meet, and then wait at another barrier for the next (`serial_parallel.c`). At the
    /// program's end all are to be asleep.
    pub(super) fn meets_twice(&self) -> bool {
        let last = self.program.stages.last();
        self.stage().pieces.is_some() && last.is_some_and(|last| !last.serial)
    }

    /// Member number `member` comes to the program's beginning.
    pub(super) fn begin(&self, member: u32) -> JobStep {
        if member < self.workers() {
            JobStep::Work(self.part(member))
        } else {
            JobStep::Wait
        }
    }

    /// A member has done what it was given of its present stage.
    pub(super) fn arrive(&mut self, member: u32) -> JobStep {
        if self.untaken > 0 {
            self.untaken -= 1;
            return JobStep::Work(self.part(member));
        }
        if self.stage_of(member).goes_on {
            self.ahead[member as usize] += 1;
            return JobStep::GoOn;
        }
        self.arrived += 1;
        if self.arrived < self.workers() {
            return JobStep::Wait;
        }
        self.arrived = 0;
        self.stage += self.ahead[member as usize] + 1;
        self.ahead.fill(0);
        if self.stage == self.program.stages.len() {
            self.stage = 0;
            self.round += 1;
            if self.round == self.program.rounds {
                return JobStep::End;
            }
        }
        self.hand_out();
        JobStep::Meet(self.workers())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(rounds: u32, serial: &[bool]) -> Rc<Compiled> {
        let stages = serial.iter().map(|&serial| JobStage {
            load: 0,
            serial,
            pieces: None,
            goes_on: false,
            instructions: 12.0,
            sleep: None,
            paced: false,
        });
        Rc::new(Compiled {
            name: "p".into(),
            rounds,
            stages: stages.collect(),
        })
    }

    #[test]
    fn the_last_one_to_come_opens_the_next_stage() {
        let mut job = Job::new(program(1, &[false, true]), vec![7, 8, 9], 0);
        assert_eq!(job.begin(2), JobStep::Work(4.0));
        assert_eq!(
            [job.arrive(0), job.arrive(0)],
            [JobStep::Wait, JobStep::Wait]
        );
        assert_eq!(job.arrive(0), JobStep::Meet(1), "a serial one");
        assert_eq!(job.part(0), 12.0);
        assert_eq!(job.arrive(0), JobStep::End);
    }

    #[test]
    fn each_goes_on_to_the_next_stage_by_itself_where_they_do_not_meet() {
        let mut program = program(2, &[false, false]);
        let stages = &mut Rc::make_mut(&mut program).stages;
        stages[0].goes_on = true;
        stages[1].instructions = 30.0;
        let mut job = Job::new(program, vec![4, 5], 0);
        assert_eq!(job.begin(1), JobStep::Work(6.0));
        assert_eq!(job.arrive(1), JobStep::GoOn);
        assert_eq!([job.part(0), job.part(1)], [6.0, 15.0]);
        assert_eq!(job.arrive(1), JobStep::Wait);
        assert_eq!(
            [job.arrive(0), job.arrive(0)],
            [JobStep::GoOn, JobStep::Meet(2)]
        );
        assert_eq!([job.part(0), job.part(1)], [6.0, 6.0], "the next round");
    }

    #[test]
    fn a_program_that_begins_serially_lets_the_others_wait() {
        let mut job = Job::new(program(2, &[true, false]), vec![1, 2], 0);
        assert_eq!(
            (job.begin(0), job.begin(1)),
            (JobStep::Work(12.0), JobStep::Wait)
        );
        assert_eq!(job.arrive(0), JobStep::Meet(2));
        assert_eq!(
            [job.arrive(0), job.arrive(0)],
            [JobStep::Wait, JobStep::Meet(1)]
        );
        assert_eq!(job.program.instructions(), 48.0);
    }

    #[test]
    fn of_a_stage_in_pieces_the_faster_take_more() {
        let mut program = program(1, &[false]);
        Rc::make_mut(&mut program).stages[0].pieces = Some(4);
        let mut job = Job::new(program, vec![5, 6], 0);
        assert_eq!(
            [job.begin(0), job.begin(1)],
            [JobStep::Work(3.0), JobStep::Work(3.0)]
        );
        // Two more pieces, whichever comes for them.
        assert_eq!(
            [job.arrive(0), job.arrive(0)],
            [JobStep::Work(3.0), JobStep::Work(3.0)]
        );
        assert_eq!(
            [job.arrive(0), job.arrive(0)],
            [JobStep::Wait, JobStep::End]
        );
    }
}
