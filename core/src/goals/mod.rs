// SPDX-License-Identifier: GPL-2.0-or-later
//! Goals: how many fast cores each session needs to be as fast as it should, and how many it gets.
//!
//! Sessions, looks and allotments are plain values; there is no clock, no file and no kernel here:
//!
//! ```text
//!  beats, time ─► rate ─┐ rate and cost     ┌► model ─ a, b ─┐
//!  spent ───────► rate ─┴─ between beats ───┴───────────► control ─ demand ─► pace ─► share ─► allotment
//! ```
//!
//! - Rate and cost are taken between the same two whole beats, at least [`GoalSettings::beats`] and
//!   [`GoalSettings::interval`] apart, and what follows from them is in force at once. Sironi et al.
//!   allot each 500 ms, whatever was measured.
//! - Where beats come late, because several are in work at once, what they cost is averaged over as many intervals as agree
//!   ([`average`]).
//! - What has fallen behind its schedule of beats gets up to 1.3 times its demand, and what is ahead down to 0.7 of it
//!   ([`pace`]), so that a window of a second has its beats though one of them took longer.
//! - A rate that swings around its target because beats come late is answered by less ([`swing`]).
//! - A session that has not beaten for half a second yet, or no longer beats, gets what the others leave, and
//!   shares a quarter of the machine with its like where they leave less: so those that come, and those
//!   that lie, cost the others no more than that.
//! - A demand is no larger than the threads that could run at once.
//!
//! `cargo test -p hetero-core --test goals -- --nocapture` closes the loop over programs with 1 to 8
//! threads, up to 30 % of the work serial (a third of them spin meanwhile), beats that come 20 to 50 ms late, 5
//! to 120 a second with 10 % noise each, buckets of 10 to 100 ms, and phases of 0.6 to 1.7 times the work
//! each 4 to 12 s. What comes of it is in `docs/goals.md`.

pub mod average;
pub mod control;
pub mod model;
pub mod pace;
mod place;
pub mod rate;
pub mod room;
mod session;
pub mod share;
pub mod swing;
mod target;
pub mod together;
mod words;

use std::mem::take;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use model::RateModel;
pub use place::SessionPlace;
use rate::BeatRates;
use room::GoalRoom;
use session::{Session, Standing};
use share::{Claim, share};
pub use target::{MIN_RATE, TargetError, TargetRate};

/// Sessions at once, at most: others get nothing, and no room. One less than the BPF half has places, of
/// which the first stands for none.
pub const MAX_SESSIONS: usize = 1023;

/// A weight that is like most others'.
pub const WEIGHT_USUAL: u32 = 100;

/// Sessions of which nothing is known get what the others leave, and so much of the machine at least.
const UNKNOWN: f64 = 0.25;

/// Names a session for good.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct SessionId(pub u64);

/// What can be set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GoalSettings {
    /// So often sessions are looked at, at least (section 3.3).
    pub look: Duration,
    /// A measurement takes so long at least.
    pub interval: Duration,
    /// And so many beats.
    pub beats: u64,
    /// p in equation 2, from 0 (at once) to below 1 (slow and smooth).
    pub pole: f64,
    /// Of the windowed rate.
    pub window: Duration,
    /// A goal is met if its rate is at most this part below its target.
    pub tolerance: f64,
    /// A session that is silent for so long, and four of its beats, has stopped.
    pub patience: Duration,
}

impl Default for GoalSettings {
    fn default() -> Self {
        Self {
            look: Duration::from_millis(50),
            interval: Duration::from_millis(150),
            beats: 2,
            pole: 0.3,
            window: Duration::from_secs(1),
            tolerance: 0.05,
            patience: Duration::from_secs(2),
        }
    }
}

/// A session as it is at one look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionSight {
    /// Which.
    pub id: SessionId,
    /// What it is to reach.
    pub target: TargetRate,
    /// Its service level; [`WEIGHT_USUAL`] is that of most.
    pub weight: u32,
    /// How many of its threads are runnable, those that are held included.
    pub runnable: u32,
    /// The [room] to which all of them are confined; `None` where they may use any CPU.
    pub room: Option<u8>,
    /// Some have joined it since the look before, and spent until then what is not in `spent_ns`.
    pub joined: bool,
    /// Beats so far.
    pub beats: u64,
    /// When the latest of them was, monotonic time, ns.
    pub beat_at_ns: u64,
    /// How long all beats were worked on so far, ns, if the target is a deadline for the work of each,
    /// and not how often they come.
    pub worked_ns: Option<u64>,
    /// What its threads have spent so far, ns of the fastest core type.
    pub spent_ns: u64,
}

/// What there is to share, fast-core equivalents.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GoalMachine {
    /// All of the machine.
    pub fast_cores: f64,
    /// Of it, what threads without a goal keep at least.
    pub others: f64,
}

/// Why a target is not reached.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Miss {
    /// The machine has so many fast cores too few for all goals.
    Machine {
        /// Fast cores.
        lacks: f64,
    },
    /// It has too few threads that could run at once.
    Threads {
        /// How many there were of late.
        threads: u32,
    },
    /// No beat comes.
    NoBeats,
    /// The model does not know the program well enough yet.
    Learning,
    /// It does not use what it has: it waits for something else, or holds itself back.
    Waits,
    /// It has what it needs, and will be there soon.
    Approaching,
    /// The CPUs that it may use are so many fast cores too few for what is confined to them.
    Cpus {
        /// Fast cores.
        lacks: f64,
    },
}

/// What a session gets, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GoalState {
    /// Which.
    pub session: SessionId,
    /// Fast cores that it may spend.
    pub fast_cores: f64,
    /// Fast cores that its target takes, as far as is known.
    pub demand: f64,
    /// Beats/s.
    pub target: f64,
    /// Beats/s.
    pub rates: BeatRates,
    /// Fast cores that it spent when it was measured last.
    pub spent: f64,
    /// What is known of it.
    pub model: Option<RateModel>,
    /// Why its target is not reached, if it is not.
    pub miss: Option<Miss>,
}

/// See the module. Nothing is allocated once as many sessions have been there at once.
#[derive(Debug, Default)]
pub struct Goals {
    settings: GoalSettings,
    /// In ascending order of ids.
    sessions: Vec<Session>,
    states: Vec<GoalState>,
    /// Kept for their memory.
    before: Vec<Session>,
    claims: Vec<Claim>,
    /// From the smallest on.
    rooms: Vec<GoalRoom>,
}

impl Goals {
    /// Without sessions.
    pub fn new(settings: GoalSettings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// What is set.
    pub fn settings(&self) -> &GoalSettings {
        &self.settings
    }

    /// What was allotted at the last look, in ascending order of ids.
    pub fn states(&self) -> &[GoalState] {
        &self.states
    }

    /// What a session was allotted at the last look.
    pub fn of(&self, session: SessionId) -> Option<&GoalState> {
        let found = self
            .states
            .binary_search_by_key(&session, |state| state.session);
        Some(&self.states[found.ok()?])
    }

    /// Has [rooms](room), each after all that it holds, from the next look on.
    pub fn confine(&mut self, rooms: &[GoalRoom]) {
        self.rooms.clear();
        self.rooms.extend(rooms);
    }

    /// Takes in all sessions there are, in ascending order of ids, and allots. Those that are no longer
    /// among them are forgotten.
    pub fn look(
        &mut self,
        now_ns: u64,
        machine: &GoalMachine,
        sights: &[SessionSight],
    ) -> &[GoalState] {
        let ids = self.sessions.iter().map(|session| session.id);
        if ids.eq(sights.iter().map(|sight| sight.id)) {
            for (session, sight) in self.sessions.iter_mut().zip(sights) {
                session.look(sight, now_ns, &self.settings);
            }
        } else {
            self.come_and_go(now_ns, sights);
        }
        self.share(machine);
        self.states.clear();
        let all = self.sessions.iter();
        self.states
            .extend(all.map(|session| session.state(now_ns, &self.settings)));
        &self.states
    }

    fn come_and_go(&mut self, now_ns: u64, sights: &[SessionSight]) {
        let mut before = take(&mut self.before);
        std::mem::swap(&mut before, &mut self.sessions);
        let mut known = before.drain(..).peekable();
        let mut last = None;
        for sight in sights {
            if last.is_some_and(|last| sight.id <= last) {
                continue;
            }
            if self.sessions.len() == MAX_SESSIONS {
                break;
            }
            last = Some(sight.id);
            while known.next_if(|session| session.id < sight.id).is_some() {}
            let mut session = known
                .next_if(|session| session.id == sight.id)
                .unwrap_or_else(|| Session::new(sight, now_ns, &self.settings));
            session.look(sight, now_ns, &self.settings);
            self.sessions.push(session);
        }
        drop(known);
        self.before = before;
    }

    fn share(&mut self, machine: &GoalMachine) {
        let rooms = take(&mut self.rooms);
        self.sessions.iter_mut().for_each(Session::set_free);
        for room in &rooms {
            self.share_out(room.fast_cores, |it| room.has(it.room), Session::confine_to);
        }
        self.rooms = rooms;
        let all = (machine.fast_cores - machine.others).max(0.0);
        self.share_out(all, |_| true, Session::give);
    }

    /// Among some sessions: what each gets, it is told.
    fn share_out(
        &mut self,
        all: f64,
        is_one: impl Fn(&Session) -> bool,
        tell: impl Fn(&mut Session, f64),
    ) {
        let is_of = |standing| move |it: &Session| it.standing() == standing;
        let (measured, unknown) = (is_of(Standing::Measured), is_of(Standing::Unknown));
        let asked = |standing: &dyn Fn(&Session) -> bool| -> f64 {
            let those = self.sessions.iter().filter(|it| is_one(it) && standing(it));
            those.map(Session::claim).sum()
        };
        let (asked, unknown_asked) = (asked(&measured), asked(&unknown));
        let left = (all - asked).max(UNKNOWN * all).min(unknown_asked);
        self.share_among(left, |it| is_one(it) && unknown(it), &tell);
        self.share_among(all - left, |it| is_one(it) && measured(it), &tell);
    }

    fn share_among(
        &mut self,
        fast_cores: f64,
        is_one: impl Fn(&Session) -> bool,
        tell: impl Fn(&mut Session, f64),
    ) {
        let mut claims = take(&mut self.claims);
        claims.clear();
        let those = self.sessions.iter().filter(|it| is_one(it));
        claims.extend(those.map(|session| Claim {
            demand: session.claim(),
            weight: session.weight,
            given: 0.0,
        }));
        share(fast_cores, &mut claims);
        let those = self.sessions.iter_mut().filter(|it| is_one(it));
        for (session, claim) in those.zip(&claims) {
            tell(session, claim.given);
        }
        self.claims = claims;
    }
}
