// SPDX-License-Identifier: GPL-2.0-only
//! Goals in mixes: `soplex@60` is to be 60 % as fast as it is alone on the fastest cores.
//!
//! A beat is what it does alone in 1/30 s, so its target is 18 beats/s, as by `soplex@18/s`. With a deadline, as in
//! `film@12ms`, a beat is a frame, and its rate that of the work alone. It is started by a shell that sleeps, as by
//! `goal run`, whose session that is.

use anyhow::{Result, ensure};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::job::Compiled;
use super::kernel::{BEGIN_NS, SimulatedKernel};
use super::mix::{Member, MixGoal, MixTarget};
use super::native;
use crate::agent::{SessionBeats, SessionHeirs};
use crate::record::Encoder;
use hetero_core::goals::{SessionId, TargetRate};

/// Beats/s of a program alone on the fastest cores.
const BEATS_ALONE: f64 = 30.0;

/// Rates are held against targets over windows of so long, each so long after the one before, from so
/// much after the beginning.
const WINDOW_NS: u64 = 1_000_000_000;
const STEP_NS: u64 = 100_000_000;
const SETTLED_NS: u64 = 2_000_000_000;

/// A window is good if its rate is off by at most this part of the target.
const NEAR: f64 = 0.1;

/// How near a program was to its goal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GoalOutcome {
    /// Which.
    pub program: String,
    /// Beats/s; of the work alone, if it has a deadline.
    pub target: f64,
    /// How much it counts where goals exceed the machine.
    pub weight: u32,
    /// Beats/s, likewise, from two seconds after the beginning on; `None` if it ended before.
    pub rate: Option<f64>,
    /// Part of the windows of a second within 10 % of the target, or in which frames took no more than 1.1 times the deadline on
    /// average; `None` without any.
    pub within: Option<f64>,
    /// What it was allotted on average, CPUs of the fastest core type.
    pub allotted: f64,
}

/// A deadline needs frames.
///
/// # Errors
/// That a program has none, and is to keep one.
pub(super) fn check(member: &Member, program: &Compiled) -> Result<()> {
    let is_timed = |goal: MixGoal| matches!(goal.target, MixTarget::Deadline(_));
    ensure!(
        program.has_frames() || !member.goal.is_some_and(is_timed),
        "{member}: a deadline is for the work of a frame, and '{}' has no frames (`paced` in its file)",
        program.name
    );
    Ok(())
}

/// A job that has a goal.
#[derive(Clone, Debug)]
struct GoalJob {
    job: usize,
    program: String,
    /// The shell, and its process.
    shell: Option<(native::TaskIndex, u32)>,
    /// Instructions of a beat.
    beat: f64,
    /// Of each beat, whose target is the time from its begin to its end.
    by_work: bool,
    worked_ns: u64,
    /// Beats/s.
    target: TargetRate,
    weight: u32,
    /// Instructions of threads that have ended.
    past: f64,
    /// All, when it was looked at last.
    done: f64,
    looked: u64,
    beats: u64,
    beat_at: u64,
    /// Beats that were done at each step, and the time that they took, ns.
    steps: Vec<(f64, f64)>,
    allotted: f64,
    looks: u32,
}

/// All jobs that have one.
#[derive(Clone, Debug, Default)]
pub(super) struct SimulatedGoals {
    jobs: Vec<GoalJob>,
    /// Sessions by process.
    pub(super) sessions: FxHashMap<u32, SessionId>,
}

impl SimulatedGoals {
    /// A job has a goal; alone it does so many instructions in a second.
    pub(super) fn add(&mut self, job: usize, program: String, goal: MixGoal, alone: f64) {
        let per_second = |rate| TargetRate::per_second(rate).ok();
        let target = match goal.target {
            MixTarget::Percent(percent) => per_second(BEATS_ALONE * f64::from(percent) / 100.0),
            MixTarget::Rate(rate) => Some(rate),
            MixTarget::Deadline(ms) => per_second(1000.0 / ms),
        };
        let Some(target) = target else {
            return;
        };
        self.jobs.push(GoalJob {
            job,
            program,
            shell: None,
            beat: alone / BEATS_ALONE,
            by_work: matches!(goal.target, MixTarget::Deadline(_)),
            worked_ns: 0,
            target,
            weight: goal.weight,
            past: 0.0,
            done: 0.0,
            looked: BEGIN_NS,
            beats: 0,
            beat_at: BEGIN_NS,
            steps: Vec::new(),
            allotted: 0.0,
            looks: 0,
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// The shell that starts a job, if that has a goal; made by `make`, which says its process, too.
    pub(super) fn shell(
        &mut self,
        job: usize,
        make: impl FnOnce() -> (native::TaskIndex, u32),
    ) -> Option<native::TaskIndex> {
        let goal = self.jobs.iter_mut().find(|it| it.job == job)?;
        Some(goal.shell.get_or_insert_with(make).0)
    }

    /// The process that a session is named after.
    pub(super) fn head_of(&self, session: SessionId) -> Option<u32> {
        let goal = self.jobs.iter().find(|it| it.job as u64 == session.0)?;
        goal.shell.map(|(_, tgid)| tgid)
    }

    /// A thread of a process has come to a job.
    pub(super) fn came(&mut self, job: usize, tgid: u32) {
        if self.jobs.iter().any(|it| it.job == job) {
            self.sessions.insert(tgid, SessionId(job as u64));
        }
    }

    /// A thread of a job has ended, after so many instructions.
    pub(super) fn ended(&mut self, job: usize, tgid: u32, instructions: f64) {
        self.sessions.remove(&tgid);
        if let Some(goal) = self.jobs.iter_mut().find(|it| it.job == job) {
            goal.past += instructions;
        }
    }

    /// Counts beats; what runs is up to date.
    pub(super) fn count(&mut self, k: &SimulatedKernel) {
        for goal in &mut self.jobs {
            let members = k.jobs[goal.job].members.iter();
            let now: f64 = members.map(|&id| k.thread(id).counters.instructions).sum();
            let done = goal.past + now;
            let beats = (done / goal.beat).floor();
            if goal.by_work {
                let frames = k.frames[goal.job];
                (goal.beats, goal.worked_ns) = (frames.done, frames.worked_ns);
                goal.beat_at = frames.done_at.max(BEGIN_NS);
            } else if beats as u64 > goal.beats {
                // In between it went on evenly.
                let part = (beats * goal.beat - goal.done) / (done - goal.done);
                let passed = (k.now - goal.looked) as f64 * part.clamp(0.0, 1.0);
                goal.beat_at = goal.looked + passed as u64;
                goal.beats = beats as u64;
            }
            (goal.done, goal.looked) = (done, k.now);
            let passed = goal.steps.len() as u64 * STEP_NS;
            if (k.now - BEGIN_NS) >= passed {
                goal.steps.push(match goal.by_work {
                    true => (goal.beats as f64, goal.worked_ns as f64),
                    false => (done / goal.beat, passed as f64),
                });
            }
        }
    }

    /// As the agent asks for them, in its time.
    pub(super) fn beats(&self, sessions: &mut Vec<SessionBeats>) {
        sessions.extend(self.jobs.iter().map(|goal| SessionBeats {
            id: SessionId(goal.job as u64),
            target: goal.target,
            weight: goal.weight,
            gets_more: false,
            heirs: SessionHeirs::Children,
            beats: goal.beats,
            beat_at_ns: goal.beat_at - BEGIN_NS,
            worked_ns: goal.by_work.then_some(goal.worked_ns),
        }));
    }

    /// Says in a recording what they are called.
    pub(super) fn name_in(&self, recording: &mut Encoder) {
        for goal in &self.jobs {
            let id = goal.job as u64;
            let of = |(tgid, session): (&u32, &SessionId)| (session.0 == id).then_some(*tgid);
            let pid = self.sessions.iter().find_map(of);
            recording.session(id, pid.unwrap_or(0), &goal.program);
        }
    }

    /// So much is allotted to a session now.
    pub(super) fn allotted(&mut self, session: SessionId, fast_cores: f64) {
        let of = |goal: &&mut GoalJob| goal.job as u64 == session.0;
        if let Some(goal) = self.jobs.iter_mut().find(of) {
            goal.allotted += fast_cores;
            goal.looks += 1;
        }
    }

    /// What came of them.
    pub(super) fn outcomes(&self) -> Vec<GoalOutcome> {
        let outcome = |goal: &GoalJob| {
            let from = (SETTLED_NS / STEP_NS) as usize;
            let steps = goal.steps.get(from..).unwrap_or_default();
            let width = (WINDOW_NS / STEP_NS) as usize;
            let rate = |from: &(f64, f64), to: &(f64, f64)| {
                let (beats, ns) = (to.0 - from.0, to.1 - from.1);
                (ns > 0.0).then_some(beats * 1e9 / ns)
            };
            let target = goal.target.rate();
            let windows = steps.iter().zip(steps.iter().skip(width));
            let (mut all, mut near) = (0, 0);
            for rate in windows.filter_map(|(from, to)| rate(from, to)) {
                all += 1;
                near += u32::from(match goal.by_work {
                    true => target / rate - 1.0 <= NEAR,
                    false => (rate / target - 1.0).abs() <= NEAR,
                });
            }
            let mean = match steps {
                [from, .., to] => rate(from, to),
                _ => None,
            };
            GoalOutcome {
                program: goal.program.clone(),
                target,
                weight: goal.weight,
                rate: mean,
                within: (all > 0).then(|| f64::from(near) / f64::from(all)),
                allotted: goal.allotted / f64::from(goal.looks.max(1)),
            }
        };
        self.jobs.iter().map(outcome).collect()
    }
}
