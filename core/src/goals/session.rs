// SPDX-License-Identifier: GPL-2.0-or-later
//! One session: its beats, its model, its controller, and what these make of a look.

use super::average::BeatAverage;
use super::control::{LEAST_DEMAND, PiController, decides};
use super::model::RateModel;
use super::pace::BeatPace;
use super::rate::{BeatInterval, BeatLog, BeatReading, MAX_RATE};
use super::swing::RateSwing;
use super::{GoalSettings, GoalState, Miss, SessionId, SessionSight};

/// A session with a deadline is left so many times what it spends.
const ROOM: f64 = 1.1;

/// A beat that has taken so many times what the model expects, and is not there yet, is no beat like those
/// before: an encoder that looks ahead takes its first pictures for next to nothing.
const REFUTED: f64 = 4.0;

/// Where beats come late by themselves, one is overdue beyond so many standard deviations of that.
const ERRS: f64 = 3.0;

/// What beats so many times faster than it wants in its first half second fills its queues.
const FILLS: f64 = 4.0;

/// How a demand came about, and so how it is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// By measurement.
    Measured,
    /// Nothing is known yet, or no beat comes any more.
    Unknown,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) id: SessionId,
    target: f64,
    pub(super) weight: f64,
    /// See [`SessionSight::room`].
    pub(super) room: Option<u8>,
    /// Fast cores that the CPUs to which it is confined have for it.
    limit: f64,
    log: BeatLog,
    model: Option<RateModel>,
    controller: PiController,
    swing: RateSwing,
    average: BeatAverage,
    /// Rate and cost in the interval before.
    before: f64,
    spent: f64,
    looked_ns: u64,
    allotted_ns: u64,
    /// Fast cores that it may spend now.
    given: f64,
    /// The least part of its demand that it was given since the last interval.
    met: f64,
    /// The most threads that were runnable of late; an old most is forgotten by and by.
    threads: f64,
    /// The interval that has begun is no measure: not all was spent by it that its beats took.
    partial: bool,
    /// When its first beat was seen, ns.
    begun_ns: Option<u64>,
    /// Since then half a window has not passed: how it begins (it fills its queues, it is compiled) says little of how it goes on.
    young: bool,
    /// It was as the interval began.
    was_young: bool,
    standing: Standing,
    pace: BeatPace,
    /// What it is to get now of what it would get on schedule.
    part: f64,
    /// Its allotment decided its rate in the latest interval: with more it catches up.
    steered: bool,
    /// Its beats are late: what they cost is averaged.
    averages: bool,
}

impl Session {
    pub(super) fn new(sight: &SessionSight, now_ns: u64, settings: &GoalSettings) -> Self {
        Self {
            id: sight.id,
            target: sight.target.rate(),
            weight: f64::from(sight.weight.max(1)),
            room: sight.room,
            limit: f64::INFINITY,
            log: BeatLog::new(settings.window),
            model: None,
            controller: PiController::default(),
            swing: RateSwing::default(),
            average: BeatAverage::default(),
            before: 0.0,
            spent: 0.0,
            looked_ns: now_ns,
            allotted_ns: 0,
            given: 0.0,
            met: 1.0,
            threads: 1.0,
            partial: false,
            begun_ns: None,
            young: true,
            was_young: true,
            standing: Standing::Unknown,
            pace: BeatPace::default(),
            part: 1.0,
            steered: false,
            averages: false,
        }
    }

    /// Takes in what it did since the look before, and updates its demand.
    pub(super) fn look(&mut self, sight: &SessionSight, now_ns: u64, settings: &GoalSettings) {
        let step_ns = now_ns.saturating_sub(self.looked_ns);
        self.looked_ns = now_ns;
        self.allotted_ns += (self.given * step_ns as f64) as u64;
        let faded = self.threads * (-(step_ns as f64) / settings.window.as_nanos() as f64).exp2();
        self.threads = f64::from(sight.runnable).max(faded).max(1.0);
        self.weight = f64::from(sight.weight.max(1));
        self.room = sight.room;
        if sight.target.rate() != self.target {
            self.target = sight.target.rate();
            self.controller.forget();
            self.pace = BeatPace::default();
            if let Some(model) = &self.model {
                self.controller.set(self.target / model.gain());
            }
        }
        let reading = BeatReading {
            beats: sight.beats,
            at_ns: sight.beat_at_ns,
            worked_ns: sight.worked_ns,
            spent_ns: sight.spent_ns,
            allotted_ns: self.allotted_ns,
        };
        if self.log.read(now_ns, &reading) {
            self.begun_ns.get_or_insert(now_ns);
            if self.standing() == Standing::Measured {
                let at_ns = sight.beat_at_ns.min(now_ns);
                self.pace
                    .beat(sight.beats, at_ns, self.target, settings.window);
            } else {
                self.pace = BeatPace::default();
            }
        }
        let since_ns = self
            .begun_ns
            .map(|begun_ns| now_ns.saturating_sub(begun_ns));
        let was_young = self.young;
        self.young = since_ns.is_none_or(|ns| u128::from(ns) < settings.window.as_nanos() / 2);
        if was_young && !self.young && (self.model.is_none() || self.before > FILLS * self.target) {
            self.begin_anew();
        }
        let least_ns = settings.interval.as_nanos() as u64;
        self.partial |= sight.joined;
        let beats_again = self.standing == Standing::Unknown && self.model.is_some();
        if self.partial || beats_again {
            // The next beat is where it is measured from.
            if self.log.silent_ns(now_ns) == Some(0) {
                self.log.skip();
                self.partial = false;
                if beats_again {
                    self.standing = Standing::Measured;
                }
            }
        } else if let Some(interval) = self.log.interval(settings.beats, least_ns) {
            // What beats and spends nothing is not known to be its own yet, or no longer.
            if interval.spent > 0.0 {
                self.measured(interval, sight.worked_ns.is_some(), settings);
            }
        } else {
            self.overdue(now_ns, least_ns, settings);
        }
        let late = self.averages.then(|| self.average.late() / self.target);
        self.part = match self.steered {
            true => self.pace.part(now_ns, self.target, settings.window, late),
            false => 1.0,
        };
    }

    /// What it did until now says nothing of what it needs: it is measured from its next beat on.
    fn begin_anew(&mut self) {
        self.model = None;
        self.average.forget();
        self.standing = Standing::Unknown;
        self.partial = true;
    }

    fn measured(&mut self, mut interval: BeatInterval, by_work: bool, settings: &GoalSettings) {
        self.spent = interval.spent;
        let part = self.swing.part(interval.rate / self.target - 1.0);
        if by_work {
            // It spends the same however fast it works: that follows from what it may spend.
            interval.spent = interval.allotted;
        }
        let spent = interval.spent.max(1e-6);
        let averaged = match by_work {
            true => None,
            false => self.average.take(&interval),
        };
        if let Some(beats) = averaged {
            interval.rate = (beats * interval.spent).min(MAX_RATE);
        }
        self.averages = averaged.is_some();
        let (pole, fresh) = match &mut self.model {
            Some(model) => {
                let resets = model.resets();
                model.update(self.before, spent, interval.rate);
                let reset = model.resets() != resets;
                let at_once = reset || self.averages;
                (if at_once { 0.0 } else { settings.pole }, reset)
            }
            None => (0.0, true),
        };
        let model = *self
            .model
            .get_or_insert_with(|| RateModel::new(interval.rate, spent));
        if fresh {
            self.controller.forget();
        }
        // Nor was what it had as it began what it had asked for.
        let granted = self.met > 0.98 && !self.was_young;
        let before = interval.rate;
        self.steered = granted && !by_work && decides(&interval);
        if self.steered {
            // What it was given because it was behind or ahead says nothing of what it needs.
            interval = interval.as_if_allotted(self.needed());
        }
        self.controller
            .step(self.target, &interval, granted, &model, (pole, part));
        if by_work {
            // With less it would be in arrears with its work.
            self.controller.raise(ROOM * self.spent);
        }
        self.before = before;
        self.met = 1.0;
        self.was_young = self.young;
        self.standing = Standing::Measured;
    }

    /// No beat comes, though it should have long since: it works harder for this one, or it rests.
    fn overdue(&mut self, now_ns: u64, least_ns: u64, settings: &GoalSettings) {
        let (Some(model), Some(so_far)) = (&self.model, self.log.so_far(now_ns)) else {
            return;
        };
        let silent_ns = self.log.silent_ns(now_ns).unwrap_or(0);
        let expected = self.target.min(self.before).max(f64::MIN_POSITIVE);
        let err_ns = match self.averages {
            true => ERRS * self.average.late() / expected * 1e9,
            false => 0.0,
        };
        let patience = (4e9 / expected).max(settings.patience.as_nanos() as f64);
        if silent_ns as f64 > patience {
            self.standing = Standing::Unknown;
        } else if silent_ns as f64 > least_ns as f64 + err_ns
            && so_far.rate < 0.7 * expected
            && so_far.spent > 0.5 * so_far.allotted
        {
            let expects = self.target / model.gain();
            let need = self.target * so_far.spent / so_far.rate;
            let twice = 2.0 * expects;
            // More than its threads can use would only have to be taken back later.
            let most = match need > REFUTED * expects {
                true => twice.max(self.threads),
                false => twice,
            };
            self.controller.raise(need.min(most));
        }
    }

    /// See [`Standing`].
    pub(super) fn standing(&self) -> Standing {
        match self.young {
            true => Standing::Unknown,
            false => self.standing,
        }
    }

    /// It is confined nowhere, as far as is known.
    pub(super) fn set_free(&mut self) {
        self.limit = f64::INFINITY;
    }

    /// CPUs to which it is confined have so much for it.
    pub(super) fn confine_to(&mut self, fast_cores: f64) {
        self.limit = fast_cores;
    }

    /// Fast cores that it asks for: what the CPUs that it may use have of what it wishes.
    pub(super) fn claim(&self) -> f64 {
        self.wish().min(self.limit)
    }

    /// What it can use of its demand.
    fn wish(&self) -> f64 {
        match self.standing() {
            Standing::Measured => (self.part * self.controller.demand()).min(self.threads),
            Standing::Unknown => self.threads,
        }
    }

    /// Fast cores that it can use of its demand, were it on schedule.
    fn needed(&self) -> f64 {
        self.controller.demand().min(self.threads)
    }

    /// It gets so much of what it asked for.
    pub(super) fn give(&mut self, given: f64) {
        self.given = given;
        // To catch up is not what it must have.
        let asked = match self.standing() {
            Standing::Measured => self.wish().min(self.needed()),
            Standing::Unknown => self.wish(),
        };
        self.met = self.met.min(given / asked.max(LEAST_DEMAND));
    }

    pub(super) fn state(&self, now_ns: u64, settings: &GoalSettings) -> GoalState {
        let rates = self.log.rates(now_ns);
        GoalState {
            session: self.id,
            fast_cores: self.given,
            demand: match self.standing() {
                Standing::Measured => self.controller.demand(),
                Standing::Unknown => self.wish(),
            },
            target: self.target,
            rates,
            spent: self.spent,
            model: self.model,
            miss: self.miss(rates.windowed, settings),
        }
    }

    fn miss(&self, rate: Option<f64>, settings: &GoalSettings) -> Option<Miss> {
        let model = match (&self.model, self.standing) {
            (Some(model), Standing::Measured) => model,
            (Some(_), Standing::Unknown) => return Some(Miss::NoBeats),
            (None, _) if rate.is_none() => return Some(Miss::NoBeats),
            (None, _) => return Some(Miss::Learning),
        };
        if rate.is_some_and(|rate| rate >= self.target * (1.0 - settings.tolerance)) {
            return None;
        }
        let demand = self.controller.demand();
        let lacks = self.needed().min(self.wish()) - self.given;
        Some(if lacks > 0.02 * self.needed() {
            // Where both lack something, what lacks more is told.
            match self.limit - self.given > 0.5 * lacks {
                true => Miss::Machine { lacks },
                false => Miss::Cpus { lacks },
            }
        } else if demand > 1.05 * self.threads {
            Miss::Threads {
                threads: self.threads.round() as u32,
            }
        } else if !model.is_sure() {
            Miss::Learning
        } else if self.spent < 0.8 * self.given {
            Miss::Waits
        } else {
            Miss::Approaching
        })
    }
}
