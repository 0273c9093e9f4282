// SPDX-License-Identifier: GPL-2.0-or-later
//! Joules from what a sensor says, and whether to believe it.
//!
//! Sensors lie: drivers show a register of another processor, firmware holds a value still, counters jump as a
//! machine wakes up. One that does is named and not used any more; a single slip only costs its interval.

use std::fmt;

/// No sensor of a processor has more, W.
const MOST_WATTS: f64 = 2000.0;

/// Where power is limited, peaks are no higher than so many times the limit, W, which is kept over milliseconds; and none is believed to
/// be kept below the second.
const PEAK: f64 = 2.0;
const LEAST_BOUND: f64 = 50.0;

/// Counters are brought up to date now and then: what comes in less time than this, s, may be of as long.
const SUDDEN: f64 = 0.1;

/// A sensor that shows less is of no processor, W: what hovers about zero may be below it.
const LEAST_WATTS: f64 = -0.5;

/// So many slips within this, ns, are a lie.
const SLIPS: u32 = 3;
const SLIPS_WITHIN: u64 = 600_000_000_000;

/// A counter that stands for so long, ns, while CPUs are busy for so many seconds, is stuck.
const STILL: u64 = 10_000_000_000;
const STILL_BUSY: f64 = 5.0;

/// And power, as it may be steady, for so long, ns, while the number of busy CPUs differs by so much.
const STEADY: u64 = 60_000_000_000;
const STEADY_BUSY: f64 = 1.0;

/// How often it may fail to answer in a row.
const SILENT: u32 = 20;

/// What a sensor shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SensorKind {
    /// Joules since some time.
    Counter {
        /// The highest, after which it begins at 0; `None` where nothing says.
        wraps_at: Option<f64>,
    },
    /// Watts now, or of a little while.
    Power,
}

/// Why a sensor is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SensorLie {
    /// It shows less than nothing, or counts backwards.
    Negative,
    /// It shows more than any processor takes, or than this one may.
    Jumps,
    /// It shows the same whatever CPUs do.
    Stuck,
    /// It no longer answers.
    Silent,
    /// A part takes more than the whole that it is of.
    Exceeds,
}

impl fmt::Display for SensorLie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Negative => "it shows negative power",
            Self::Jumps => "it jumps by more than the processor can take",
            Self::Stuck => "it stands still while CPUs are busy",
            Self::Silent => "it no longer answers",
            Self::Exceeds => "it shows more than the whole that it is a part of",
        })
    }
}

/// Of one sensor.
#[derive(Clone, Debug)]
pub struct SensorJudge {
    kind: SensorKind,
    before: Option<(u64, f64)>,
    /// Slips, and when the first of them was.
    slips: (u32, u64),
    failures: u32,
    /// Since when it has shown the same, CPU seconds since, and the fewest and most CPUs busy.
    still: Option<(u64, f64, f64, f64)>,
    /// No more is believed, W; by what the limit was when it was last asked for.
    bound: f64,
    lie: Option<SensorLie>,
}

impl SensorJudge {
    /// Of a sensor that has not been read.
    pub fn new(kind: SensorKind) -> Self {
        Self {
            kind,
            before: None,
            slips: (0, 0),
            failures: 0,
            still: None,
            bound: 0.0,
            lie: None,
        }
    }

    /// Why it is not used.
    pub fn lie(&self) -> Option<SensorLie> {
        self.lie
    }

    /// It is not used from now on.
    pub fn distrust(&mut self, lie: SensorLie) {
        self.lie.get_or_insert(lie);
    }

    /// Time has passed that clocks do not tell of: what it showed before is not compared with what it shows next.
    pub fn resume(&mut self) {
        self.before = None;
        self.still = None;
    }

    /// Joules since it was last looked at, by what it shows at `at_ns` in joules or watts; `busy` is for how many
    /// CPU seconds CPUs have run since. `None` where that is not known. `limit` is what may be taken, W, where there is a
    /// limit; it is asked for only where more is taken than the last one allowed.
    pub fn look(
        &mut self,
        at_ns: u64,
        busy: f64,
        value: Option<f64>,
        limit: impl FnOnce() -> Option<f64>,
    ) -> Option<f64> {
        if self.lie.is_some() {
            return None;
        }
        let Some(value) = value.filter(|value| value.is_finite()) else {
            self.failures += 1;
            if self.failures >= SILENT {
                self.lie = Some(SensorLie::Silent);
            }
            self.before = None;
            return None;
        };
        self.failures = 0;
        if self.kind == SensorKind::Power && !(LEAST_WATTS..=MOST_WATTS).contains(&value) {
            self.slip(at_ns, value < 0.0);
            self.before = None;
            return None;
        }
        let (since, before) = self.before.replace((at_ns, value))?;
        let seconds = at_ns.saturating_sub(since) as f64 / 1e9;
        if seconds <= 0.0 {
            return None;
        }
        self.watch_still(at_ns, busy, seconds, value == before);
        let joules = match self.kind {
            SensorKind::Power => (value + before).max(0.0) / 2.0 * seconds,
            SensorKind::Counter { .. } if value >= before => value - before,
            SensorKind::Counter {
                wraps_at: Some(most),
            } if before <= most => most - before + value,
            SensorKind::Counter { .. } => {
                self.slip(at_ns, true);
                return None;
            }
        };
        let seconds = seconds.max(SUDDEN);
        if joules > self.bound * seconds {
            self.bound = limit().map_or(MOST_WATTS, |limit| {
                (PEAK * limit).clamp(LEAST_BOUND, MOST_WATTS)
            });
        }
        if joules > self.bound * seconds {
            self.slip(at_ns, value < before);
            return None;
        }
        self.lie.is_none().then_some(joules)
    }

    fn slip(&mut self, at_ns: u64, negative: bool) {
        let (count, since) = &mut self.slips;
        if at_ns.saturating_sub(*since) > SLIPS_WITHIN {
            (*count, *since) = (0, at_ns);
        }
        *count += 1;
        if *count >= SLIPS {
            self.lie = Some(match negative {
                true => SensorLie::Negative,
                false => SensorLie::Jumps,
            });
        }
    }

    fn watch_still(&mut self, at_ns: u64, busy: f64, seconds: f64, same: bool) {
        if !same {
            self.still = None;
            return;
        }
        let cpus = busy / seconds;
        let (since, ran, least, most) = self.still.get_or_insert((at_ns, 0.0, cpus, cpus));
        *ran += busy;
        (*least, *most) = (least.min(cpus), most.max(cpus));
        let passed = at_ns.saturating_sub(*since);
        let is_stuck = match self.kind {
            SensorKind::Counter { .. } => passed >= STILL && *ran >= STILL_BUSY,
            SensorKind::Power => passed >= STEADY && *most - *least >= STEADY_BUSY,
        };
        if is_stuck {
            self.lie = Some(SensorLie::Stuck);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const RAPL: SensorKind = SensorKind::Counter {
        wraps_at: Some(262_143.0),
    };

    fn unlimited() -> Option<f64> {
        None
    }

    fn judged(kind: SensorKind, values: &[f64]) -> (Vec<Option<f64>>, Option<SensorLie>) {
        let mut judge = SensorJudge::new(kind);
        let looks = values.iter().enumerate();
        let joules =
            looks.map(|(n, &value)| judge.look(n as u64 * SECOND, 2.0, Some(value), unlimited));
        (joules.collect(), judge.lie())
    }

    #[test]
    fn a_counter_grows_and_wraps_around() {
        let (joules, lie) = judged(RAPL, &[262_100.0, 262_140.0, 20.0, 20.0, 60.0]);
        assert_eq!(
            joules,
            [None, Some(40.0), Some(23.0), Some(0.0), Some(40.0)]
        );
        assert_eq!(lie, None);
    }

    #[test]
    fn power_is_integrated_between_looks() {
        let (joules, lie) = judged(SensorKind::Power, &[2.0, 4.0, 4.0]);
        assert_eq!(joules, [None, Some(3.0), Some(4.0)]);
        assert_eq!(lie, None);
    }

    #[test]
    fn one_slip_costs_an_interval_and_three_the_sensor() {
        // As after a suspend, which resets RAPL.
        let (joules, lie) = judged(RAPL, &[90_000.0, 10.0, 20.0, 30.0]);
        assert_eq!(joules, [None, None, Some(10.0), Some(10.0)]);
        assert_eq!(lie, None);

        let (joules, lie) = judged(RAPL, &[0.0, 5e4, 0.0, 5e4, 6e4]);
        assert_eq!(joules.last(), Some(&None));
        assert_eq!(lie, Some(SensorLie::Jumps));
        let endless = SensorKind::Counter { wraps_at: None };
        let (_, lie) = judged(endless, &[9.0, 8.0, 7.0, 6.0]);
        assert_eq!(lie, Some(SensorLie::Negative));
        let (_, lie) = judged(SensorKind::Power, &[-3.0; 4]);
        assert_eq!(lie, Some(SensorLie::Negative));
    }

    #[test]
    fn no_package_takes_twice_its_limit() {
        let judged = |limit: fn(u64) -> Option<f64>, watts: f64| {
            let mut judge = SensorJudge::new(RAPL);
            for n in 0..10 {
                let value = n as f64 * watts;
                judge.look(n * SECOND, 1.0, Some(value), || limit(n));
            }
            judge.lie()
        };
        let jumps = Some(SensorLie::Jumps);
        assert_eq!(judged(|_| Some(64.0), 120.0), None);
        assert_eq!(judged(|_| Some(64.0), 140.0), jumps);
        assert_eq!(judged(|_| None, 140.0), None);
        // More is allowed at the third look, as when a charger is plugged in.
        assert_eq!(
            judged(|n| Some(if n < 3 { 30.0 } else { 90.0 }), 140.0),
            None
        );
        // A limit that no processor keeps, and firmware's way to say that there is none.
        assert_eq!(judged(|_| Some(4.0), 40.0), None);
        assert_eq!(judged(|_| Some(4095.0), 1900.0), None);
        assert_eq!(judged(|_| Some(4095.0), 2100.0), jumps);
        // What a register shows late is of the time before.
        let mut judge = SensorJudge::new(RAPL);
        for n in 0..100 {
            let value = (n / 10) as f64 * 4.0;
            judge.look(n * SECOND / 100, 1.0, Some(value), || Some(25.0));
        }
        assert_eq!(judge.lie(), None);
    }

    #[test]
    fn what_came_while_all_slept_is_of_no_interval() {
        let mut judge = SensorJudge::new(RAPL);
        judge.look(SECOND, 1.0, Some(10.0), unlimited);
        judge.resume();
        assert_eq!(judge.look(2 * SECOND, 1.0, Some(1010.0), unlimited), None);
        assert_eq!(
            judge.look(3 * SECOND, 1.0, Some(1015.0), unlimited),
            Some(5.0)
        );
        assert_eq!(judge.lie(), None);
    }

    #[test]
    fn what_stands_still_while_cpus_are_busy_is_stuck() {
        let (_, lie) = judged(RAPL, &[100.0; 20]);
        assert_eq!(lie, Some(SensorLie::Stuck));
        // Power may be steady, but not whatever CPUs do.
        let (_, lie) = judged(SensorKind::Power, &[5.0; 100]);
        assert_eq!(lie, None);
        let mut judge = SensorJudge::new(SensorKind::Power);
        for n in 0..100 {
            judge.look(n * SECOND, (n % 20 / 10 * 4) as f64, Some(5.0), unlimited);
        }
        assert_eq!(judge.lie(), Some(SensorLie::Stuck));
        // An idle machine's counter that hardly moves is none.
        let mut judge = SensorJudge::new(RAPL);
        for n in 0..100 {
            judge.look(n * SECOND, 0.01, Some(5.0), unlimited);
        }
        assert_eq!(judge.lie(), None);
    }

    #[test]
    fn one_that_is_gone_is_silent_and_may_miss_a_look() {
        let mut judge = SensorJudge::new(RAPL);
        for n in 0..60 {
            let value = (n % 3 != 0).then_some(n as f64);
            judge.look(n * SECOND, 1.0, value, unlimited);
        }
        assert_eq!(judge.lie(), None);
        for n in 60..90 {
            assert_eq!(judge.look(n * SECOND, 1.0, None, unlimited), None);
        }
        assert_eq!(judge.lie(), Some(SensorLie::Silent));
    }
}
