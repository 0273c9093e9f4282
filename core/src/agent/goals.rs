// SPDX-License-Identifier: GPL-2.0-or-later
//! Goals at work: sessions get a place in the BPF half and an allotment there, their threads belong to
//! it, and are hinted to a core type that is fast enough for their part of the allotment.
//!
//! What a session can be given goes by the CPUs that its threads may use ([`rooms`]).
//!
//! [`AgentGoals::steer`] reads no task table, and is cheap; what needs one is done when the agent has it
//! anyway. What goals decide is [`crate::goals`].

mod rooms;
mod worth;

use std::mem::take;
use std::time::Duration;

use rustc_hash::FxHashMap;

use rooms::{SessionCpus, SessionRooms};
use worth::CoreWorth;

use super::backend::{Allotment, Backend, Belongs, SessionHeirs};
use crate::goals::{
    GoalMachine, GoalSettings, GoalState, Goals, MAX_SESSIONS, Miss, SessionId, SessionPlace,
    SessionSight, TargetRate,
};
use crate::policy::{Action, Reason, Seen};
use crate::table::{Task, TaskId, TaskState};
use crate::topology::{MAX_CORE_TYPES, Topology};

/// What threads without a goal keep of the machine where they want to run, unless they are too few.
const OTHERS: f64 = 0.1;

/// An allotment is told anew if it has changed by so much.
const CHANGED: f64 = 0.002;

/// How fast what is known of how many of a session's threads run at once follows what is seen, of the difference a look.
const FOLLOWS: f64 = 0.3;

/// A core type so fast, of the fastest, holds up no others that wait for a thread there.
const EVEN: f64 = 0.8;

/// A thread that was hinted to a fast type is left there until a slower one gives so much less or more
/// of what it needs.
const KEEPS: f64 = 0.9;

/// What says where threads with goals are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlacedBy {
    /// Sessions, whose threads are kept together.
    Sessions,
    /// Each thread's part of the allotment, where more than that costs energy.
    Parts,
    /// Something else that goes by what they [need](AgentGoals::needs).
    Others,
}

/// A session as the backend has it now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionBeats {
    /// Which; no other ever has this id.
    pub id: SessionId,
    /// What it is to reach.
    pub target: TargetRate,
    /// Its service level; 100 is that of most.
    pub weight: u32,
    /// Beyond its allotment it shares like others; else it is held.
    pub gets_more: bool,
    /// What its threads make.
    pub heirs: SessionHeirs,
    /// Beats so far.
    pub beats: u64,
    /// When the latest of them was, by [`Backend::now`].
    pub beat_at_ns: u64,
    /// See [`SessionSight::worked_ns`].
    pub worked_ns: Option<u64>,
}

/// A session that has a place.
#[derive(Clone, Copy, Debug)]
struct Placed {
    id: SessionId,
    place: SessionPlace,
    /// How many of its threads wanted to run since the table was read before.
    threads: u32,
    counted: u32,
    /// How many were runnable at once, on average over the looks that found any; 0 before the first one.
    at_once: f64,
    runnable: u32,
    /// Its threads are kept on the fastest core type, all together.
    together: bool,
    /// The machine lacks something for it, and a slow core is too slow for its threads one by one: they were hinted to a faster
    /// type, whether there is room or not. Where nothing is lacking allotments swing, and so would which session has room first.
    needs_fast: bool,
    cpus: SessionCpus,
    /// Its threads are to be asked for theirs.
    asks_cpus: bool,
    /// Of [`SessionRooms`].
    room: Option<u8>,
    /// Some were told that they are its.
    joined: bool,
    told: Allotment,
}

impl Placed {
    /// Threads among which the allotment is divided: where one hands on to the next each has all of it in its turn.
    fn at_once(&self) -> f64 {
        match self.at_once {
            0.0 => f64::from(self.threads.max(self.counted).max(1)),
            known => known,
        }
    }

    fn saw_runnable(&mut self) {
        let runnable = f64::from(self.runnable);
        if self.at_once == 0.0 {
            self.at_once = runnable;
        } else if runnable > 0.0 {
            self.at_once += FOLLOWS * (runnable - self.at_once);
        }
    }
}

/// A thread that belongs to a session.
#[derive(Clone, Copy, Debug)]
struct Member {
    session: SessionId,
    ran_ns: [u64; MAX_CORE_TYPES],
    hinted: bool,
    /// How fast it has to be, of the fastest core type; `None` where that is not known.
    needs: Option<f64>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct AgentGoals {
    goals: Goals,
    /// In ascending order of ids.
    placed: Vec<Placed>,
    /// Places that were left.
    free: Vec<SessionPlace>,
    /// How many were ever had.
    used: u16,
    /// By place.
    at: Vec<SessionId>,
    members: FxHashMap<TaskId, Member>,
    /// How many threads without a goal wanted to run.
    others: u32,
    /// Threads that run where they are too slow, and where they are to be.
    strays: Vec<(Seen, usize)>,
    rooms: SessionRooms,
    worth: CoreWorth,
    /// Kept for their memory.
    beats: Vec<SessionBeats>,
    sights: Vec<SessionSight>,
}

impl AgentGoals {
    /// Without sessions.
    pub fn new(settings: GoalSettings) -> Self {
        Self {
            goals: Goals::new(settings),
            ..Self::default()
        }
    }

    /// How often sessions are looked at while there are any.
    pub fn look(&self) -> Duration {
        self.goals.settings().look
    }

    /// What each session gets, in ascending order of ids.
    pub fn states(&self) -> &[GoalState] {
        self.goals.states()
    }

    /// The session that a thread belongs to, and what that gets.
    pub fn of(&self, task: TaskId) -> Option<&GoalState> {
        let member = self.members.get(&task)?;
        self.goals.of(member.session)
    }

    /// How fast a thread has to be for its part of its session's allotment, relative to the fastest core type; `None` where it
    /// has no goal, or nothing is known of it yet.
    pub(super) fn needs(&self, task: TaskId) -> Option<f64> {
        self.members.get(&task)?.needs
    }

    /// Whether there is nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        self.placed.is_empty() && self.members.is_empty()
    }

    /// How long until [`super::Agent::steer`] is due again; `None` while there are no sessions.
    pub fn due_in(&self) -> Option<Duration> {
        (!self.placed.is_empty()).then_some(self.look())
    }

    /// Looks at all sessions, and tells the backend what they get.
    pub(super) fn steer<B: Backend>(&mut self, backend: &mut B, topology: &Topology) {
        let mut beats = take(&mut self.beats);
        beats.clear();
        backend.sessions(&mut beats);
        beats.sort_unstable_by_key(|beats| beats.id);
        beats.dedup_by_key(|beats| beats.id);
        self.come_and_go(backend, &beats);
        let mut sights = take(&mut self.sights);
        sights.clear();
        let mut placed = self.placed.iter_mut().peekable();
        for beats in &beats {
            // One for which there is no place has no goal.
            let Some(placed) = placed.next_if(|placed| placed.id == beats.id) else {
                continue;
            };
            sights.push(SessionSight {
                id: beats.id,
                target: beats.target,
                weight: beats.weight,
                runnable: placed.threads,
                room: placed.room,
                joined: take(&mut placed.joined),
                beats: beats.beats,
                beat_at_ns: beats.beat_at_ns,
                worked_ns: beats.worked_ns,
                spent_ns: backend.spent_ns(placed.place),
            });
        }
        self.goals.confine(self.rooms.rooms());
        let states = self.goals.look(
            backend.now(),
            &machine(topology, &self.worth, self.others),
            &sights,
        );
        let mut beats_of = beats.iter();
        for (placed, state) in self.placed.iter_mut().zip(states) {
            let Some(beats) = beats_of.find(|beats| beats.id == placed.id) else {
                break;
            };
            let before = placed.told.fast_cores;
            let near = |it: f64| (state.fast_cores / it - 1.0).abs() < CHANGED;
            let fast_cores = before.filter(|&it| near(it)).or(Some(state.fast_cores));
            let allotment = Allotment {
                fast_cores,
                gets_more: beats.gets_more,
                heirs: beats.heirs,
            };
            if allotment != placed.told {
                placed.told = allotment;
                backend.allot(placed.place, allotment);
                if before.is_none() {
                    backend.adopt(placed.id, placed.place);
                }
            }
        }
        self.beats = beats;
        self.sights = sights;
    }

    /// Gives places to sessions that have come, and takes them from those that are gone.
    fn come_and_go<B: Backend>(&mut self, backend: &mut B, beats: &[SessionBeats]) {
        let Self {
            placed, free, at, ..
        } = self;
        let there = |id: SessionId| beats.binary_search_by_key(&id, |it| it.id).is_ok();
        placed.retain(|placed| {
            let stays = there(placed.id);
            if !stays {
                backend.allot(placed.place, Allotment::default());
                free.push(placed.place.next());
            }
            stays
        });
        for beats in beats {
            let Err(index) = placed.binary_search_by_key(&beats.id, |placed| placed.id) else {
                continue;
            };
            let place = match free.pop() {
                Some(place) => place,
                None if usize::from(self.used) < MAX_SESSIONS => {
                    self.used += 1;
                    SessionPlace::first(self.used)
                }
                None => continue,
            };
            let new = Placed {
                id: beats.id,
                place,
                threads: 1,
                counted: 0,
                at_once: 0.0,
                runnable: 0,
                together: false,
                needs_fast: false,
                cpus: SessionCpus::default(),
                asks_cpus: true,
                room: None,
                joined: false,
                told: Allotment::default(),
            };
            placed.insert(index, new);
            at.resize(at.len().max(place.place() + 1), SessionId::default());
            at[place.place()] = beats.id;
        }
    }

    /// Has threads belong to their sessions, and be where these need them: such a thread looks pinned to
    /// the policy, unless it is placed `by` others. `speeds` are those on each core type, relative
    /// to the fastest.
    pub(super) fn place(
        &mut self,
        topology: &Topology,
        by: PlacedBy,
        tasks: &mut [Task],
        mut session_of: impl FnMut(&Task) -> (Belongs, SessionPlace),
        speeds: impl Fn(&Task) -> [f64; MAX_CORE_TYPES],
        actions: &mut Vec<Action>,
    ) {
        if self.is_idle() {
            return;
        }
        let Self {
            goals,
            placed,
            members,
            at,
            strays,
            rooms,
            worth,
            ..
        } = self;
        strays.clear();
        worth.fade();
        self.others = 0;
        for placed in placed.iter_mut() {
            (placed.counted, placed.runnable) = (0, 0);
        }
        keep_together(topology, goals, rooms, placed, by);
        placed.iter_mut().for_each(|it| it.needs_fast = false);
        for task in tasks.iter_mut().filter(|task| !task.kthread) {
            let member = members.get(&task.id).copied();
            let awake = task.state != TaskState::Blocked;
            let (belongs, is_at) = session_of(task);
            let id = match belongs {
                Belongs::To(id) => Some(id),
                Belongs::ToNone => None,
                Belongs::Unknown => at.get(is_at.place()).copied(),
            };
            let found = id.and_then(|id| placed.binary_search_by_key(&id, |it| it.id).ok());
            let found = found.map(|index| &mut placed[index]);
            let stays = |it: &&mut Placed| belongs != Belongs::Unknown || it.place == is_at;
            let Some(placed) = found.filter(stays) else {
                self.others += u32::from(awake);
                if is_at != SessionPlace::NONE {
                    actions.push(Action::Join(task.id, SessionPlace::NONE));
                }
                if let Some(member) = members.remove(&task.id)
                    && member.hinted
                    && task.hint.is_some()
                {
                    actions.push(Action::Hint((&*task).into(), None));
                }
                continue;
            };
            let ran_ns = task.run_ns;
            let ran = member.is_some_and(|member| member.ran_ns != ran_ns);
            let speeds = speeds(task);
            if let Some(member) = member {
                let longer = |kind: usize| ran_ns[kind].saturating_sub(member.ran_ns[kind]);
                worth.ran(std::array::from_fn(longer), &speeds);
            }
            placed.counted += u32::from(awake || ran);
            placed.runnable += u32::from(awake);
            if is_at != placed.place {
                placed.joined = true;
                actions.push(Action::Join(task.id, placed.place));
            }
            let was_hinted = member.is_some_and(|member| member.hinted);
            let state = goals.of(placed.id).filter(|state| is_known(state));
            let needs = state.map(|state| state.fast_cores / placed.at_once());
            let even = if placed.together { EVEN } else { 0.0 };
            let fits = state.is_some_and(|it| rooms.fast_ones_do(placed.room, it.fast_cores));
            let decides = needs.filter(|_| fits && task.may_choose() && by != PlacedBy::Others);
            let wanted = |needs: f64| wanted(needs, was_hinted, task, &speeds);
            let lacks = state.is_some_and(|it| matches!(it.miss, Some(Miss::Machine { .. })));
            placed.needs_fast |= lacks && decides.and_then(wanted).is_some();
            let wanted = decides.and_then(|needs| wanted(needs.max(even)));
            match wanted {
                Some(to) => {
                    if task.hint != Some(to) {
                        actions.push(Action::Hint((&*task).into(), Some(to)));
                    }
                    if task.state == TaskState::Running && task.core_type != to {
                        strays.push(((&*task).into(), to));
                    }
                    task.pinned = true;
                    task.core_type = to;
                }
                // One that a rule places meanwhile is the rule's.
                None if was_hinted
                    && task.hint.is_some()
                    && !task.pinned
                    && by != PlacedBy::Others =>
                {
                    actions.push(Action::Hint((&*task).into(), None));
                }
                None => {}
            }
            let member = Member {
                session: placed.id,
                ran_ns,
                hinted: wanted.is_some(),
                needs,
            };
            members.insert(task.id, member);
        }
        for placed in placed {
            placed.threads = placed.counted.max(1);
            placed.saw_runnable();
        }
        self.trade(topology, tasks, actions);
    }

    /// Where no CPU is idle a hint alone moves nothing: a thread that runs where it is too slow trades places with
    /// the one that has got furthest of those without a goal.
    fn trade(&mut self, topology: &Topology, tasks: &[Task], actions: &mut Vec<Action>) {
        let is_stray = |task: &Task| self.strays.iter().any(|(seen, _)| seen.task == task.id);
        let first = actions.len();
        for &(stray, to) in &self.strays {
            let there = |task: &&Task| {
                task.state == TaskState::Running && task.core_type == to && !is_stray(task)
            };
            if tasks.iter().filter(there).count() < topology.types[to].cpus.len() {
                continue;
            }
            let trades = |task: &Task, action: &Action| match action {
                Action::Swap(both) => both.iter().any(|(seen, _)| seen.task == task.id),
                _ => false,
            };
            let traded = |task: &Task| actions[first..].iter().any(|action| trades(task, action));
            let gives_way = tasks.iter().filter(there).filter(|task| {
                !task.kthread
                    && task.may_choose()
                    && task.may_use(stray.on)
                    && !self.members.contains_key(&task.id)
                    && !traded(task)
            });
            if let Some(task) = gives_way.max_by_key(|task| task.amp_progress) {
                actions.push(Action::Swap([(stray, to), (task.into(), stray.on)]));
            }
        }
    }

    /// Forgets threads that ended.
    pub(super) fn retain(&mut self, tasks: &[Task]) {
        let alive = |id: &TaskId| tasks.binary_search_by_key(id, |task| task.id).is_ok();
        self.members.retain(|id, _| alive(id));
    }

    /// Why a thread is moved.
    pub(super) fn reason(&self, task: TaskId) -> Option<Reason> {
        let state = self.of(task)?;
        let hundredths = |number: f64| (100.0 * number).round() as u32;
        Some(Reason::Goal {
            rate: hundredths(state.rates.windowed.unwrap_or(0.0)),
            target: hundredths(state.target),
            needs: hundredths(state.demand),
            has: hundredths(state.fast_cores),
        })
    }
}

/// What there is to share; `others` threads without a goal want to run.
fn machine(topology: &Topology, worth: &CoreWorth, others: u32) -> GoalMachine {
    let worths = topology.cpus.iter().map(|cpu| {
        let kind = topology.types.get(cpu.core_type);
        kind.map_or(1.0, |kind| worth.of(cpu.core_type, kind))
    });
    let fast_cores: f64 = worths.sum();
    GoalMachine {
        fast_cores,
        others: (OTHERS * fast_cores).min(f64::from(others)),
    }
}

/// Says which sessions' threads are kept together; see [`together`](crate::goals::together). One that may have more than it is
/// allotted is not: it would leave slow cores idle.
fn keep_together(
    topology: &Topology,
    goals: &Goals,
    rooms: &SessionRooms,
    placed: &mut [Placed],
    by: PlacedBy,
) {
    let fast_cores = |placed: &Placed| {
        let state = goals.of(placed.id).filter(|state| is_known(state));
        state.map_or(0.0, |state| state.fast_cores)
    };
    let fastest = topology.types.first().map_or(0, |kind| kind.cpus.len());
    let mut left = rooms.fast_rooms(fastest);
    for placed in placed.iter().filter(|placed| placed.threads == 1) {
        left.fill(placed.room, fast_cores(placed));
    }
    // First those that are there anyway: in the order in which they came, ones that could be elsewhere took their room.
    // Before these what is confined: it is on the fast CPUs that it may use, whether it fits there or not.
    for (confined, needs_fast) in [(true, true), (true, false), (false, true), (false, false)] {
        let has_turn =
            |it: &&mut Placed| it.room.is_some() == confined && it.needs_fast == needs_fast;
        for placed in placed.iter_mut().filter(has_turn) {
            let fast_cores = fast_cores(placed);
            let may = by == PlacedBy::Sessions && placed.threads > 1 && !placed.told.gets_more;
            let fits = || left.fits(placed.room, fast_cores, placed.together);
            placed.together = may && fast_cores > 0.0 && fits();
            if placed.together || (confined || needs_fast) && placed.threads > 1 {
                left.fill(placed.room, fast_cores);
            }
        }
    }
}

/// Whether it is known how much a session's threads need.
fn is_known(state: &GoalState) -> bool {
    state.model.is_some() && state.miss != Some(Miss::NoBeats)
}

/// The slowest core type that is as fast as a thread needs; `None` if any is.
fn wanted(
    needs: f64,
    was_hinted: bool,
    task: &Task,
    speeds: &[f64; MAX_CORE_TYPES],
) -> Option<usize> {
    let enough = if was_hinted { KEEPS } else { 1.0 };
    let mut usable = (0..MAX_CORE_TYPES).rev().filter(|&kind| task.may_use(kind));
    let slowest = usable.next()?;
    if needs <= enough * speeds[slowest] {
        return None;
    }
    let fastest = (0..MAX_CORE_TYPES).find(|&kind| task.may_use(kind));
    usable.find(|&kind| needs <= speeds[kind]).or(fastest)
}

#[cfg(test)]
mod tests;
