// SPDX-License-Identifier: GPL-2.0-or-later
//! Watts by core type: what a second, a cycle and an event cost on each, learnt from sensors.
//!
//! A core's energy is linear in its busy time, its cycles and its events (PMCTrack 2017, section 4.2, fits EF
//! by such terms). What switches costs the square of the voltage, which no counter tells: it is taken
//! to follow the clock as [`voltage`] says.

use super::fit::{NonNegativeFit, UNKNOWNS};
use crate::knowledge::Sure;
use crate::pmu::Meaning;
use crate::pmu::clock::HighestClock;
use crate::pmu::sample::EventCounts;
use crate::topology::MAX_CORE_TYPES;

/// Events that cost energy of their own, beside cycles. Of these the model has what is counted anyway.
pub const EVENTS: [Meaning; 9] = [
    Meaning::Instructions,
    Meaning::Loads,
    Meaning::Stores,
    Meaning::Branches,
    Meaning::BranchMisses,
    Meaning::L1Misses,
    Meaning::LlcReferences,
    Meaning::LlcMisses,
    Meaning::FpOps,
];

/// Of these, those that are counted for energy's sake alone, where counters are free: what takes much of it and is in
/// no policy's set, the first most.
pub const FOR_ENERGY: [Meaning; 4] = [
    Meaning::BranchMisses,
    Meaning::FpOps,
    Meaning::Stores,
    Meaning::LlcReferences,
];

/// What terms of one core are to each other, as far as nothing was measured: of a second at the highest clock without an
/// event but cycles, 10^9 cycles, and as many of each event. Of the order of published figures, and made up beyond that.
const PATTERN: [f64; OF_TYPE] = [0.17, 0.8, 0.4, 0.3, 0.3, 0.1, 10.0, 2.0, 4.0, 8.0, 0.4];

/// The highest clock of a core type of which no cycles are counted, GHz.
const TYPICAL_GHZ: f64 = 4.0;

/// Standard deviation of a term from that, relative.
const SPREAD: f64 = 0.7;

/// And of all terms of a core type from those of the others, beyond what capacities say.
const TYPE_SPREAD: f64 = 0.3;

/// The least scale of a core type, of the mean of all.
const LEAST_SCALE: f64 = 0.05;

/// And what is expected beside, of the most power that was seen: of an idle CPU, of the rest of a package, and the same while
/// some CPU runs.
const BESIDE: [f64; 3] = [0.001, 0.01, 0.08];

/// Unknowns of a core type: of its busy seconds, its cycles, its events.
const OF_TYPE: usize = 2 + EVENTS.len();
const IDLE: usize = MAX_CORE_TYPES * OF_TYPE;
const UNCORE: usize = IDLE + MAX_CORE_TYPES;
const AWAKE: usize = UNCORE + 1;
/// How large all terms of a core type are.
const SCALE: usize = AWAKE + 1;
const OWN: usize = SCALE + MAX_CORE_TYPES;

/// So many threads may have a term of their own.
pub const OWNERS: usize = UNKNOWNS - OWN;

/// Standard deviation of a thread's watts from what its counts say, relative; and how far below they can be.
const OWN_SPREAD: f64 = 0.2;
const OWN_LEAST: f64 = -0.6;

/// The model forgets by half in so many seconds: leakage follows the temperature.
const HALF_LIFE: f64 = 300.0;

/// Of the power of a second, how much it errs, as run time is charged a tick late; and W besides. Where rows
/// turn out to err by more, what is typical weighs more.
const ERROR: (f64, f64) = (0.01, 0.01);

/// And of the power of threads that began or did something else than in the interval before: clocks and rates are
/// means, and energy is not linear in them.
const UNSTEADY: f64 = 0.3;

/// Cycles and events per second of run time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EventRates {
    /// Cycles.
    pub cycles: f32,
    /// In the order of [`EVENTS`]; 0 of what is not counted.
    pub events: [f32; EVENTS.len()],
}

impl EventRates {
    /// Counts of `run_ns` of run time, which is above 0.
    pub fn of(counts: &EventCounts, run_ns: u64) -> Self {
        let per_second = 1e9 / run_ns as f64;
        let rate = |meaning| (counts.get(meaning).unwrap_or_default() * per_second) as f32;
        Self {
            cycles: rate(Meaning::Cycles),
            events: EVENTS.map(rate),
        }
    }

    /// Moved towards `other` by `part`, 0 to 1.
    pub fn mixed(&self, other: &Self, part: f32) -> Self {
        let mix = |a: f32, b: f32| a + part * (b - a);
        Self {
            cycles: mix(self.cycles, other.cycles),
            events: std::array::from_fn(|k| mix(self.events[k], other.events[k])),
        }
    }
}

/// What one or many did on a core type, as the model takes it.
pub type CoreWork = [f64; OF_TYPE];

/// What CPUs did beside running threads, seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdleWork {
    /// Idle, all CPUs of a core type together.
    pub idle: [f64; MAX_CORE_TYPES],
    /// The time itself.
    pub elapsed: f64,
    /// And for how much of it some CPU ran.
    pub awake: f64,
}

/// Square of the voltage at a clock, of that at the highest, both relative: what CPUs of Intel, AMD and Arm have
/// is within some percent of this in the upper half of their clocks.
fn voltage(clock: f64) -> f64 {
    0.4 + 0.6 * clock * clock * clock
}

/// Seconds of work of threads, so many times each, to ask for the error of all of it together: what they err by alike cancels
/// where one is taken off another.
#[derive(Clone, Debug)]
pub struct WorkSum {
    row: [f64; UNKNOWNS],
    /// Variance of what threads without a term of their own take beyond what the model makes of their work, J².
    untold: f64,
}

impl Default for WorkSum {
    fn default() -> Self {
        Self {
            row: [0.0; UNKNOWNS],
            untold: 0.0,
        }
    }
}

impl WorkSum {
    /// Adds work on a core type so many times.
    pub fn add(&mut self, times: f64, core_type: usize, work: &CoreWork) {
        let of_type = self.row[core_type * OF_TYPE..][..OF_TYPE].iter_mut();
        of_type
            .zip(work)
            .for_each(|(sum, work)| *sum += times * work);
    }

    /// And what its owner takes beyond that in a second, which for a thread without a term of its own errs by `error`, W.
    pub fn add_own(&mut self, times: f64, owner: Option<usize>, error: f64) {
        match owner {
            Some(owner) => self.row[OWN + owner] += times,
            None => self.untold += (times * error).powi(2),
        }
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct PowerModel {
    fit: NonNegativeFit,
    /// The highest clock seen of each core type, Hz.
    highest: [HighestClock; MAX_CORE_TYPES],
    /// What each core type's terms are, of those of the fastest, as far as nothing was measured.
    sizes: [f64; MAX_CORE_TYPES],
    /// The most that a row had, W.
    watts: f64,
    seconds: f64,
}

/// What any thread takes over what its counts say.
pub fn own_spread() -> Sure {
    Sure {
        value: 0.0,
        variance: OWN_SPREAD * OWN_SPREAD,
    }
}

impl PowerModel {
    /// How many seconds it has seen.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// What core types are capable of, of 1024: their energy for the same goes with the square of that.
    pub fn set_capacities(&mut self, capacities: impl Iterator<Item = u32>) {
        for (size, capacity) in self.sizes.iter_mut().zip(capacities) {
            *size = (f64::from(capacity.clamp(1, 1024)) / 1024.0).powi(2);
        }
    }

    /// Takes note of a core type's clock.
    pub fn observe(&mut self, core_type: usize, rates: &EventRates) {
        self.highest[core_type].note(rates.cycles.into());
    }

    /// What `seconds` of run time at these rates are on a core type.
    pub fn work(&self, core_type: usize, seconds: f64, rates: &EventRates) -> CoreWork {
        let cycles = f64::from(rates.cycles);
        let highest = self.highest[core_type].hz();
        let clock = highest.map_or(1.0, |highest| (cycles / highest).min(1.0));
        let scale = seconds * voltage(clock) / 1e9;
        let mut work = [0.0; OF_TYPE];
        work[0] = seconds;
        work[1] = scale * cycles;
        for (value, rate) in work[2..].iter_mut().zip(rates.events) {
            *value = scale * f64::from(rate);
        }
        work
    }

    /// What is typical of that, as far as nothing was measured, at a scale of its own.
    pub fn typical(&self, core_type: usize, work: &CoreWork) -> f64 {
        let pattern = self.pattern(core_type);
        pattern.iter().zip(work).map(|(a, b)| a * b).sum()
    }

    /// What the model makes of work on a core type, J.
    pub fn joules(&self, core_type: usize, work: &CoreWork) -> f64 {
        let from = core_type * OF_TYPE;
        let known = &self.fit.solution()[from..from + OF_TYPE];
        known.iter().zip(work).map(|(a, b)| a * b).sum()
    }

    /// Standard error of that, J, for an owner with its own term for `work[0]` seconds.
    pub fn error(&self, core_type: usize, work: &CoreWork, owner: Option<usize>) -> f64 {
        let mut row = [0.0; UNKNOWNS];
        if let Some(owner) = owner {
            row[OWN + owner] = work[0];
        }
        row[core_type * OF_TYPE..][..OF_TYPE].copy_from_slice(work);
        self.variance(&row).sqrt()
    }

    /// Standard error of a sum of works, J.
    pub fn error_of(&self, sum: &WorkSum) -> f64 {
        (self.variance(&sum.row) + sum.untold).sqrt()
    }

    /// Of what the solution makes of a row.
    fn variance(&self, row: &[f64; UNKNOWNS]) -> f64 {
        // Rows weigh by what they should err by.
        let noise = self.fit.unexplained().max(1.0);
        self.fit.variance(row, noise)
    }

    /// What an owner takes beyond what the model makes of its work, W.
    pub fn own(&self, owner: usize) -> f64 {
        self.fit.solution()[OWN + owner]
    }

    /// An owner is another thread now.
    pub fn clear_own(&mut self, owner: usize) {
        self.fit.clear(OWN + owner);
    }

    /// An owner takes `expected` times so many watts while it runs, of which counts tell that.
    pub fn expect_own(&mut self, owner: usize, watts: f64, expected: Sure) {
        let watts = watts.max(0.01);
        let mean = (expected.factor() - 1.0) * watts;
        let variance = expected.variance * (expected.factor() * watts).powi(2);
        self.fit.expect(OWN + owner, mean, 1.0 / variance);
        self.fit.allow(OWN + owner, OWN_LEAST * watts);
    }

    /// What rows alone tell of that: what an owner takes over the `watts` that its counts say; `None` where they tell less than is known of
    /// any thread.
    pub fn own_tells(&self, owner: usize, watts: f64) -> Option<Sure> {
        let watts = watts.max(0.01);
        let mut row = [0.0; UNKNOWNS];
        row[OWN + owner] = 1.0;
        let (known, variance) = (self.own(owner), self.variance(&row));
        let noise = self.fit.unexplained().max(1.0);
        let (mean, sureness) = self.fit.expected(OWN + owner);
        let before = sureness / noise;
        let told = 1.0 / variance - before;
        // Held at its least it has no variance.
        if !told.is_finite() || told < 1.0 / (OWN_SPREAD * watts).powi(2) {
            return None;
        }
        let beyond = (known / variance - mean * before) / told;
        let factor = (1.0 + beyond / watts).max(1.0 + OWN_LEAST);
        Sure::of_factor(factor, 1.0 / (told * (factor * watts).powi(2)))
    }

    /// What one idle CPU of a core type takes, W.
    pub fn idle_watts(&self, core_type: usize) -> f64 {
        self.fit.solution()[IDLE + core_type]
    }

    /// What a package takes beside its cores while any of them runs, beyond what it takes while none does, W.
    pub fn awake_watts(&self) -> f64 {
        self.fit.solution()[AWAKE]
    }

    /// Standard error of what a second of work on a core type takes, and the package meanwhile, beyond the same work on a
    /// slower one, where it takes longer by their capacities, J.
    pub fn difference_error(&self, fast: (usize, &CoreWork), slow: (usize, &CoreWork)) -> f64 {
        let ratio = (self.sizes[fast.0] / self.sizes[slow.0]).sqrt();
        let ratio = if ratio.is_finite() { ratio } else { 1.0 };
        let mut row = [0.0; UNKNOWNS];
        row[AWAKE] = 1.0 - ratio;
        row[fast.0 * OF_TYPE..][..OF_TYPE].copy_from_slice(fast.1);
        let of_slow = row[slow.0 * OF_TYPE..][..OF_TYPE].iter_mut().zip(slow.1);
        of_slow.for_each(|(value, work)| *value -= ratio * work);
        self.variance(&row).sqrt()
    }

    /// Watts on a core type where nothing was seen yet, by those on another, and how far that may err.
    pub fn as_on(&self, other: usize, core_type: usize, watts: f64) -> (f64, f64) {
        let ratio = self.sizes[core_type] / self.sizes[other];
        let watts = match ratio.is_finite() {
            true => watts * ratio,
            false => watts,
        };
        (watts, SPREAD * watts)
    }

    /// What idle CPUs of a core type take, J.
    pub fn idle_joules(&self, core_type: usize, idle: &IdleWork) -> f64 {
        self.fit.solution()[IDLE + core_type] * idle.idle[core_type]
    }

    /// What a package takes beside its cores, J.
    pub fn uncore_joules(&self, idle: &IdleWork) -> f64 {
        self.fit.solution()[UNCORE] * idle.elapsed + self.fit.solution()[AWAKE] * idle.awake
    }

    /// Learns that some core types, and what is beside the cores if `uncore`, took `joules` for all this, of which a part
    /// was not `steady`; owners on these types ran for some of the seconds.
    /// [`Self::settle`] follows when all is known of an interval.
    pub fn learn(
        &mut self,
        types: impl Iterator<Item = (usize, CoreWork)>,
        own: impl Iterator<Item = (usize, f64)>,
        uncore: bool,
        idle: &IdleWork,
        (joules, steady): (f64, f64),
    ) {
        if idle.elapsed <= 0.0 {
            return;
        }
        let mut row = [0.0; UNKNOWNS];
        for (core_type, work) in types {
            row[core_type * OF_TYPE..][..OF_TYPE].copy_from_slice(&work);
            row[IDLE + core_type] = idle.idle[core_type];
        }
        for (owner, seconds) in own {
            row[OWN + owner] = seconds;
        }
        if uncore {
            (row[UNCORE], row[AWAKE]) = (idle.elapsed, idle.awake);
        }
        row.iter_mut().for_each(|value| *value /= idle.elapsed);
        let watts = joules / idle.elapsed;
        let error = (ERROR.0 + UNSTEADY * (1.0 - steady)) * watts + ERROR.1;
        self.fit.add(&row, watts, idle.elapsed / (error * error));
        self.watts = self.watts.max(watts);
    }

    /// Settles the model after what was learnt of an interval.
    pub fn settle(&mut self, seconds: f64) {
        self.fit.forget(0.5_f64.powf(seconds / HALF_LIFE));
        self.expect();
        self.fit.solve();
        self.seconds += seconds;
    }

    /// What terms of a core type are to each other, and to those of other types of the same scale.
    fn pattern(&self, core_type: usize) -> [f64; OF_TYPE] {
        let mut pattern = PATTERN.map(|term| self.sizes[core_type] * term);
        // Of what cycles take at the highest clock, whatever that is.
        let highest = self.highest[core_type].hz();
        pattern[0] *= PATTERN[1] * highest.map_or(TYPICAL_GHZ, |hz| hz / 1e9);
        pattern
    }

    /// Expects what is typical, at the scales that rows are of.
    fn expect(&mut self) {
        let solution = self.fit.solution();
        let scale = |t: usize| Some(solution[SCALE + t]).filter(|&scale| scale > 0.0);
        let known = (0..MAX_CORE_TYPES).filter_map(scale);
        let (sum, number) = known.fold((0.0, 0.0), |(sum, n), scale| (sum + scale, n + 1.0));
        let mean = if number > 0.0 {
            Some(sum / number)
        } else {
            let mut pattern = [0.0; UNKNOWNS];
            for (t, terms) in pattern[..IDLE].chunks_mut(OF_TYPE).enumerate() {
                terms.copy_from_slice(&self.pattern(t));
            }
            self.fit.scale_of(&pattern, IDLE)
        };
        let Some(mean) = mean.filter(|&scale| scale > 0.0) else {
            return;
        };
        let scales: [f64; MAX_CORE_TYPES] =
            std::array::from_fn(|t| scale(t).unwrap_or(mean).max(LEAST_SCALE * mean));
        // Where rows err by more than they should, they tell less.
        let noise = self.fit.unexplained().max(1.0);
        let sureness = |spread: f64, mean: f64| noise / (spread * mean).powi(2);
        for (t, scale) in scales.into_iter().enumerate() {
            self.fit
                .expect(SCALE + t, mean, sureness(TYPE_SPREAD, mean));
            for (term, typical) in self.pattern(t).into_iter().enumerate() {
                let sure = match typical > 0.0 {
                    true => sureness(SPREAD, scale * typical),
                    false => 0.0,
                };
                self.fit
                    .expect_of(t * OF_TYPE + term, typical, SCALE + t, sure);
            }
        }
        for (unknown, part) in (IDLE..UNCORE)
            .map(|idle| (idle, BESIDE[0]))
            .chain([(UNCORE, BESIDE[1]), (AWAKE, BESIDE[2])])
        {
            let mean = part * self.watts;
            self.fit.expect(unknown, mean, sureness(SPREAD, mean));
        }
    }
}
