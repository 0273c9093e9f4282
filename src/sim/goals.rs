// SPDX-License-Identifier: GPL-2.0-only
//! Goals in mixes: `soplex@60` is to be 60 % as fast as it is alone on the fastest cores.
//!
//! A beat is what it does alone in 1/30 s, so its target is 18 beats/s. It is started by a shell that sleeps, as by
//! `goal run`, whose session that is.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::kernel::{BEGIN_NS, SimulatedKernel};
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
    /// Beats/s.
    pub target: f64,
    /// Beats/s, from two seconds after the beginning on; `None` if it ended before.
    pub rate: Option<f64>,
    /// Part of the windows of a second within 10 % of the target; `None` without any.
    pub within: Option<f64>,
    /// What it was allotted on average, CPUs of the fastest core type.
    pub allotted: f64,
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
    target: f64,
    /// Instructions of threads that have ended.
    past: f64,
    /// All, when it was looked at last.
    done: f64,
    looked: u64,
    beats: u64,
    beat_at: u64,
    /// What was done at each step.
    steps: Vec<f64>,
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
    /// A job is to be so many percent as fast as alone, where it does so many instructions in a second.
    pub(super) fn add(&mut self, job: usize, program: String, percent: u32, alone: f64) {
        self.jobs.push(GoalJob {
            job,
            program,
            shell: None,
            beat: alone / BEATS_ALONE,
            target: BEATS_ALONE * f64::from(percent) / 100.0,
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
            if beats as u64 > goal.beats {
                // In between it went on evenly.
                let part = (beats * goal.beat - goal.done) / (done - goal.done);
                let passed = (k.now - goal.looked) as f64 * part.clamp(0.0, 1.0);
                goal.beat_at = goal.looked + passed as u64;
                goal.beats = beats as u64;
            }
            (goal.done, goal.looked) = (done, k.now);
            if (k.now - BEGIN_NS) >= goal.steps.len() as u64 * STEP_NS {
                goal.steps.push(done);
            }
        }
    }

    /// As the agent asks for them, in its time.
    pub(super) fn beats(&self, sessions: &mut Vec<SessionBeats>) {
        sessions.extend(self.jobs.iter().filter_map(|goal| {
            Some(SessionBeats {
                id: SessionId(goal.job as u64),
                target: TargetRate::per_second(goal.target).ok()?,
                weight: hetero_core::goals::WEIGHT_USUAL,
                gets_more: false,
                heirs: SessionHeirs::Children,
                beats: goal.beats,
                beat_at_ns: goal.beat_at - BEGIN_NS,
                worked_ns: None,
            })
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
            let rate = |from: f64, to: f64, steps: usize| {
                (to - from) / goal.beat * 1e9 / (steps as f64 * STEP_NS as f64)
            };
            let windows = steps.iter().zip(steps.iter().skip(width));
            let off = windows.map(|(from, to)| rate(*from, *to, width) / goal.target - 1.0);
            let (mut all, mut near) = (0, 0);
            off.for_each(|off| {
                all += 1;
                near += u32::from(off.abs() <= NEAR);
            });
            let mean = match steps {
                [from, .., to] => Some(rate(*from, *to, steps.len() - 1)),
                _ => None,
            };
            GoalOutcome {
                program: goal.program.clone(),
                target: goal.target,
                rate: mean,
                within: (all > 0).then(|| f64::from(near) / f64::from(all)),
                allotted: goal.allotted / f64::from(goal.looks.max(1)),
            }
        };
        self.jobs.iter().map(outcome).collect()
    }
}
