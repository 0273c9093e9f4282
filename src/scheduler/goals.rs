// SPDX-License-Identifier: GPL-2.0-only
//! What programs want to be, as the agent asks for it, and what is told of it.

use std::path::Path;
use std::time::Instant;

use crossbeam::channel::{Receiver, never};
use libbpf_rs::ProgramMut;
use log::{debug, info, warn};
use rustc_hash::FxHashMap;

use super::Scheduler;
use super::half::{BpfHalf, monotonic, request};
use super::pace::{Allowance, cpu_time};
use super::rules::RulesFile;
use crate::agent::{Belongs, SessionBeats, SessionHeirs};
use crate::connections::CountedUsers;
use crate::goals::{
    Families, FamilyHead, GoalRules, GoalServer, GoalStatus, GoalTarget, GoalWish, RuledGoal,
    SOCKET, SessionReading, TreeInProc, UserWeights,
};
use crate::record::Encoder;
use crate::table::Task;
use hetero_core::goals::{SessionId, SessionPlace, TargetRate};

/// Programs that have goals. Outlives a restart, as on CPU hotplug.
pub(super) struct ProgramGoals {
    server: Option<GoalServer>,
    rules: GoalRules,
    families: Families,
    readings: Vec<SessionReading>,
    weights: UserWeights,
    /// For threads that belong to their session at once.
    adoptions: Allowance,
    /// By process: which of the readings are about its threads.
    by_process: FxHashMap<u32, Vec<usize>>,
}

impl ProgramGoals {
    /// Nothing is listened to yet.
    pub(super) fn new() -> Self {
        Self {
            server: None,
            rules: GoalRules::default(),
            families: Families::default(),
            readings: Vec::new(),
            weights: UserWeights::new(CountedUsers::here()),
            adoptions: Allowance::new(Instant::now()),
            by_process: FxHashMap::default(),
        }
    }

    /// Listens to them from now on, unless it does. Where that fails, says why and goes on without.
    pub(super) fn listen(&mut self) {
        if self.server.is_some() {
            return;
        }
        match GoalServer::start(Path::new(SOCKET)) {
            Ok(server) => self.server = Some(server),
            Err(why) => warn!("programs cannot tell how fast they must be: {why:#}"),
        }
    }

    /// Something arrives when sessions have come, gone or changed.
    pub(super) fn news(&self) -> Receiver<()> {
        let server = self.server.as_ref();
        server.map_or_else(never, |server| server.news().clone())
    }

    /// Whether there are any, with a goal or not.
    pub(super) fn is_empty(&self) -> bool {
        let server = self.server.as_ref();
        server.is_none_or(|server| server.sessions().is_empty())
    }

    /// The user's rules are others from now on.
    pub(super) fn renew_rules(&mut self) {
        self.rules.renew();
    }

    /// Whether rules of sessions are still to be looked up.
    pub(super) fn awaits_rules(&self) -> bool {
        self.rules.is_behind()
    }

    fn read(&mut self, rules: &RulesFile) {
        self.by_process.clear();
        self.readings.clear();
        if let Some(server) = &self.server {
            let sessions = server.sessions();
            server.read(&mut self.readings);
            let now_ns = monotonic().unwrap_or_default().as_nanos() as u64;
            let any = (now_ns, rules.on_goals());
            let rule = |tgid| rules.goal_of(tgid);
            if self.rules.look_up(sessions, &self.readings, any, rule) {
                sessions.read(&mut self.readings);
            }
        }
        let readings = &self.readings;
        let heads = |with: bool| {
            let heads = readings.iter().filter(|reading| reading.about.children);
            heads.filter(move |reading| (reading.target != GoalTarget::None) == with)
        };
        // Children go where their parent's threads go: see `first_of`.
        let heads = heads(true).chain(heads(false));
        self.families.set(heads.map(|reading| {
            let about = &reading.about;
            let head = FamilyHead {
                session: about.id,
                uid: Some(about.uid).filter(|&uid| uid != 0),
            };
            (about.tgid, head)
        }));
        for (at, reading) in self.readings.iter().enumerate() {
            let of = self.by_process.entry(reading.about.tgid).or_default();
            of.push(at);
        }
    }

    /// Appends those that have a goal, times by a clock that began at `began_ns` of the monotonic one.
    pub(super) fn sessions(
        &mut self,
        began_ns: u64,
        rules: &RulesFile,
        sessions: &mut Vec<SessionBeats>,
    ) {
        self.read(rules);
        self.weights.look(&self.readings);
        sessions.extend(self.readings.iter().filter_map(|reading| {
            let worked_ns = match reading.target {
                GoalTarget::None => return None,
                GoalTarget::Rate(_) => None,
                GoalTarget::Deadline(_) => Some(reading.beats.work_ns),
            };
            Some(SessionBeats {
                id: SessionId(reading.about.id),
                target: TargetRate::per_second(reading.target.per_second()).ok()?,
                weight: self.weights.of(reading),
                gets_more: false,
                heirs: match &reading.about {
                    _ if !reading.tids.is_empty() => SessionHeirs::None,
                    about if about.children => SessionHeirs::Children,
                    _ => SessionHeirs::Threads,
                },
                beats: reading.beats.count,
                beat_at_ns: reading.beats.last_ns.saturating_sub(began_ns),
                worked_ns,
            })
        }));
    }

    /// Says in a recording what those with a goal are called.
    pub(super) fn name_in(&self, recording: &mut Encoder) {
        for reading in &self.readings {
            if reading.target != GoalTarget::None {
                let about = &reading.about;
                recording.session(about.id, about.tgid, &about.name);
            }
        }
    }

    /// The session of a thread, as of the last look: one about its process, or else that of a process that has
    /// started it.
    pub(super) fn session_of(&mut self, task: &Task) -> Belongs {
        let all = self.by_process.get(&task.tgid).into_iter().flatten();
        let all = all.map(|&at| &self.readings[at]);
        let family = &mut self.families;
        match first_of(all, task.tid) {
            Some(found) => Belongs::To(SessionId(found.about.id)),
            None => family.of(task.id, task.tgid, &TreeInProc),
        }
    }

    /// Has the threads that a session names, or the first of its process, belong to it at once. They may have ended. Where
    /// programs take up goals and give them up all the time, the threads wait for the next look at all tasks.
    pub(super) fn adopt(&mut self, program: &ProgramMut, session: SessionId, place: SessionPlace) {
        let now = Instant::now();
        let mut all = self.readings.iter();
        if self.adoptions.owes(now) {
            return;
        }
        let began = cpu_time();
        let Some(of) = all.find(|of| of.about.id == session.0) else {
            return;
        };
        let first = [of.about.tgid];
        let tids = if of.tids.is_empty() {
            &first
        } else {
            &of.tids[..]
        };
        for tid in tids {
            // A struct session_request: tid, tgid, session.
            let mut context = [0; 12];
            context[..4].copy_from_slice(&tid.to_ne_bytes());
            context[4..8].copy_from_slice(&of.about.tgid.to_ne_bytes());
            context[8..].copy_from_slice(&place.raw().to_ne_bytes());
            if let Err(error) = request(program, &mut context) {
                debug!("the kernel refused that thread {tid} joins a session: {error}");
            }
        }
        let took = cpu_time().saturating_sub(began);
        self.adoptions.spend(now, took);
    }

    /// The task table is read anew, at `now_ns`.
    pub(super) fn begin_look(&mut self, now_ns: u64) {
        self.families.begin_look(now_ns);
    }

    /// Forgets threads that are gone.
    pub(super) fn retain(&mut self, tasks: &[Task]) {
        let alive = |id| tasks.binary_search_by_key(&id, |task| task.id).is_ok();
        self.families.retain(alive);
    }
}

/// Of sessions about a process the one that a thread of it belongs to: with a goal rather than without, then one that
/// names it rather than one of all threads, then the oldest.
fn first_of<'a>(
    sessions: impl Iterator<Item = &'a SessionReading>,
    tid: u32,
) -> Option<&'a SessionReading> {
    sessions
        .filter(|of| of.tids.is_empty() || of.tids.binary_search(&tid).is_ok())
        .min_by_key(|of| (of.target == GoalTarget::None, of.tids.is_empty()))
}

/// What is told of a process that has no session though a rule gives it a goal.
fn told_without_beats(rule: RuledGoal) -> Option<String> {
    let RuledGoal::Given {
        rate: Some(rate), ..
    } = rule
    else {
        return None;
    };
    Some(format!(
        "a rule wants {} beats/s, but the program reports none: 'scx_hetero goal run' counts them from \
         outside",
        rate as f64 / 1000.0
    ))
}

/// An instant by the monotonic clock, as programs have it, ns.
pub(super) fn monotonic_ns(at: Instant) -> u64 {
    let now = monotonic().unwrap_or_default();
    now.saturating_sub(at.elapsed()).as_nanos() as u64
}

impl Scheduler<'_> {
    /// Every session.
    pub(super) fn goals(&self) -> Vec<GoalStatus> {
        let mut readings = Vec::new();
        if let Some(server) = &self.half.programs.server {
            server.sessions().read(&mut readings);
        }
        let states = self.agent.goals.states();
        let status = |reading: &SessionReading| {
            let mut status = GoalStatus::from(reading);
            let id = SessionId(status.id);
            if let Ok(at) = states.binary_search_by_key(&id, |state| state.session) {
                let state = &states[at];
                status.rate = state.rates.windowed;
                status.demand = state.model.map(|_| state.demand);
                status.allotment = Some(state.fast_cores);
                status.reason = state.miss.map(|miss| miss.to_string());
            }
            status
        };
        readings.iter().map(status).collect()
    }

    /// How fast the session of a thread is, or why there is none though a rule wants it, in words.
    pub(super) fn goal_told(&self, task: &Task) -> Option<String> {
        if let Some(state) = self.agent.goals.of(task.id) {
            return Some(state.to_string());
        }
        let BpfHalf {
            programs, rules, ..
        } = &self.half;
        if programs.by_process.contains_key(&task.tgid) || !rules.on_goals() {
            return None;
        }
        rules.goal_of(task.tgid).and_then(told_without_beats)
    }

    /// Gives a session another goal.
    pub(super) fn set_goal(&self, id: u64, wish: GoalWish) -> Result<String, String> {
        let server = self.half.programs.server.as_ref();
        let server =
            server.ok_or("the scheduler could not open the socket for goals: see its log")?;
        let name = server.sessions().wish(id, wish)?;
        let becomes = match wish {
            GoalWish::Own => "what the program wants, or a rule".to_string(),
            GoalWish::Remove => "none".into(),
            GoalWish::Set(target, _) => format!("{} beats per second", target as f64 / 1000.0),
        };
        info!("goal of session {id} ({name}): {becomes}");
        Ok(format!("goal of session {id} ({name}): {becomes}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goals::{Beats, GoalSource, SessionAbout};

    fn session(id: u64, target: GoalTarget, tids: &[u32]) -> SessionReading {
        let about = SessionAbout {
            id,
            tgid: 10,
            uid: 1000,
            children: false,
            name: "a".into(),
        };
        SessionReading {
            about: about.into(),
            tids: tids.into(),
            weight: 100,
            weight_is_given: false,
            target,
            source: GoalSource::Own,
            beats: Beats::default(),
        }
    }

    #[test]
    fn a_session_without_a_goal_hides_none_with_one() {
        let (none, rate) = (GoalTarget::None, GoalTarget::Rate(1000));
        let sessions = [
            session(1, none, &[]),
            session(2, none, &[11]),
            session(3, rate, &[]),
            session(4, rate, &[12]),
            session(5, rate, &[12]),
        ];
        let of = |n, tid| first_of(sessions[..n].iter(), tid).map(|of| of.about.id);
        assert_eq!((of(2, 10), of(2, 11)), (Some(1), Some(2)));
        assert_eq!(
            (of(5, 10), of(5, 11), of(5, 12)),
            (Some(3), Some(3), Some(4))
        );
        assert_eq!(
            first_of(sessions[3..].iter(), 10).map(|of| of.about.id),
            None
        );
    }
}
