// SPDX-License-Identifier: GPL-2.0-or-later
//! Rates of beats, from (count, time of the latest) pairs; and what a session spent between the same
//! two beats, which is what makes rate and cost comparable.
//!
//! Readings come from a page that the program writes: counts may fall or leap, times may lie in the
//! future or fall. Whatever comes, rates are finite, at least 0 and at most [`MAX_RATE`].

use std::time::Duration;

/// Rates, and targets, are at most this, beats/s: a beat each microsecond.
pub const MAX_RATE: f64 = 1e6;

/// Marks that are kept for the windowed rate.
const MARKS: usize = 32;

/// A beat that was seen, and what had been spent and allotted by then.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Mark {
    beats: u64,
    at_ns: u64,
    /// What rates are taken by: `at_ns`, or the time that was worked.
    clock_ns: u64,
    spent_ns: u64,
    allotted_ns: u64,
}

/// What is known of a session at one look. All but the time only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BeatReading {
    /// Beats so far.
    pub beats: u64,
    /// When the latest of them was, monotonic time, ns.
    pub at_ns: u64,
    /// How long all beats were worked on so far, ns, if rates are to be by that: so for deadlines.
    pub worked_ns: Option<u64>,
    /// What its threads have spent so far, ns of the fastest core type.
    pub spent_ns: u64,
    /// What they were allotted so far, in the same unit.
    pub allotted_ns: u64,
}

/// Beats/s; `None` while there are too few beats.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BeatRates {
    /// Over the window, a second by default; it falls while beats are overdue.
    pub windowed: Option<f64>,
    /// Since the first beat.
    pub global: Option<f64>,
    /// Between the latest two looks that saw a new beat.
    pub instant: Option<f64>,
}

/// What happened between two beats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BeatInterval {
    /// Beats/s.
    pub rate: f64,
    /// Fast cores spent, on average.
    pub spent: f64,
    /// Fast cores allotted, on average.
    pub allotted: f64,
    /// How many beats it has.
    pub beats: u64,
}

impl BeatInterval {
    /// What it had been if so many fast cores had been allotted, and all in proportion. Something was.
    pub fn as_if_allotted(&self, fast_cores: f64) -> Self {
        let part = fast_cores / self.allotted;
        Self {
            rate: part * self.rate,
            spent: part * self.spent,
            allotted: fast_cores,
            beats: self.beats,
        }
    }
}

/// The beats of a session. It takes the same room for ever.
#[derive(Clone, Debug)]
pub struct BeatLog {
    window_ns: u64,
    /// The first beat that was seen.
    first: Option<Mark>,
    /// Where the next interval begins.
    since: Mark,
    latest: Mark,
    instant: Option<f64>,
    /// Rates are by the time worked.
    by_work: bool,
    /// A ring of marks, `window_ns / (MARKS / 2)` apart at least; the next is written at `at`.
    ring: [Mark; MARKS],
    at: usize,
    len: usize,
    /// The look before: its time, and what was spent and allotted by then.
    looked: Option<(u64, u64, u64)>,
    /// When a new beat was seen last, by our own clock.
    seen_ns: u64,
}

impl BeatLog {
    /// Its windowed rate is over so long.
    pub fn new(window: Duration) -> Self {
        Self {
            window_ns: u64::try_from(window.as_nanos()).unwrap_or(u64::MAX).max(1),
            first: None,
            since: Mark::default(),
            latest: Mark::default(),
            instant: None,
            by_work: false,
            ring: [Mark::default(); MARKS],
            at: 0,
            len: 0,
            looked: None,
            seen_ns: 0,
        }
    }

    /// Takes in what is there now; true if there is a new beat.
    pub fn read(&mut self, now_ns: u64, reading: &BeatReading) -> bool {
        let (before_ns, spent, allotted) =
            self.looked
                .unwrap_or((now_ns, reading.spent_ns, reading.allotted_ns));
        self.looked = Some((now_ns, reading.spent_ns, reading.allotted_ns));
        let at_ns = reading.at_ns.min(now_ns);
        // What was spent when the beat came lies between what it was at two looks.
        let step_ns = now_ns.saturating_sub(before_ns);
        let part = at_ns.saturating_sub(before_ns) as f64 / step_ns.max(1) as f64;
        let then = |before: u64, now: u64| {
            let since = now.saturating_sub(before) as f64 * part.min(1.0);
            before.saturating_add(since as u64)
        };
        let mark = Mark {
            beats: reading.beats,
            at_ns,
            clock_ns: reading.worked_ns.unwrap_or(at_ns),
            spent_ns: then(spent, reading.spent_ns),
            allotted_ns: then(allotted, reading.allotted_ns),
        };
        let by_work = reading.worked_ns.is_some();
        if self.first.is_none() || reading.beats < self.latest.beats || by_work != self.by_work {
            // A count that falls is that of another beginning.
            self.by_work = by_work;
            if reading.beats > 0 {
                self.begin(now_ns, mark);
                return true;
            }
            self.first = None;
            self.latest = mark;
            return false;
        }
        if reading.beats == self.latest.beats || at_ns <= self.latest.at_ns {
            return false;
        }
        self.instant = Some(rate(&self.latest, &mark));
        self.latest = mark;
        self.seen_ns = now_ns;
        self.keep(mark);
        true
    }

    fn begin(&mut self, now_ns: u64, mark: Mark) {
        self.first = Some(mark);
        self.since = mark;
        self.latest = mark;
        self.instant = None;
        self.seen_ns = now_ns;
        self.len = 0;
        self.keep(mark);
    }

    fn keep(&mut self, mark: Mark) {
        let last = self.ring[(self.at + MARKS - 1) % MARKS];
        let apart = self.window_ns / (MARKS as u64 / 2);
        if self.len > 0 && mark.at_ns.saturating_sub(last.at_ns) < apart {
            return;
        }
        self.ring[self.at] = mark;
        self.at = (self.at + 1) % MARKS;
        self.len = (self.len + 1).min(MARKS);
    }

    /// What happened since the interval before, if that is so many beats and so long; the next one
    /// begins with its last beat.
    pub fn interval(&mut self, beats: u64, least_ns: u64) -> Option<BeatInterval> {
        self.first?;
        let came = self.latest.beats - self.since.beats;
        let lasted = self.latest.at_ns.saturating_sub(self.since.at_ns);
        if came < beats.max(1) || lasted < least_ns.max(1) {
            return None;
        }
        let interval = between(&self.since, &self.latest);
        self.since = self.latest;
        Some(interval)
    }

    /// What it is at best, if the next beat comes at once: rate and cost from the last interval until
    /// now. `None` before the first beat, and where rates are by the time worked.
    pub fn so_far(&self, now_ns: u64) -> Option<BeatInterval> {
        self.first.filter(|_| !self.by_work)?;
        let (_, spent_ns, allotted_ns) = self.looked?;
        let now = Mark {
            beats: self.latest.beats.saturating_add(1),
            at_ns: now_ns,
            clock_ns: now_ns,
            spent_ns,
            allotted_ns,
        };
        Some(between(&self.since, &now))
    }

    /// The next interval begins now, with the latest beat: what came before is no measure of it.
    pub fn skip(&mut self) {
        self.since = self.latest;
    }

    /// How long no beat has been seen, ns; `None` before the first one.
    pub fn silent_ns(&self, now_ns: u64) -> Option<u64> {
        self.first.map(|_| now_ns.saturating_sub(self.seen_ns))
    }

    /// Rates as they are now.
    pub fn rates(&self, now_ns: u64) -> BeatRates {
        let Some(first) = self.first.filter(|first| first.beats < self.latest.beats) else {
            return BeatRates::default();
        };
        let mut begin = first;
        for back in 1..=self.len {
            begin = self.ring[(self.at + MARKS - back) % MARKS];
            if now_ns.saturating_sub(begin.at_ns) >= self.window_ns
                && begin.beats < self.latest.beats
            {
                break;
            }
        }
        let overdue = Mark {
            beats: self.latest.beats.saturating_add(1),
            clock_ns: now_ns,
            ..self.latest
        };
        let mut windowed = rate(&begin, &self.latest);
        if !self.by_work {
            windowed = windowed.min(rate(&begin, &overdue));
        }
        BeatRates {
            windowed: Some(windowed),
            global: Some(rate(&first, &self.latest)),
            instant: self.instant,
        }
    }
}

fn rate(from: &Mark, to: &Mark) -> f64 {
    let beats = to.beats.saturating_sub(from.beats) as f64;
    let lasted = to.clock_ns.saturating_sub(from.clock_ns).max(1) as f64;
    (beats * 1e9 / lasted).min(MAX_RATE)
}

fn between(from: &Mark, to: &Mark) -> BeatInterval {
    let lasted = to.at_ns.saturating_sub(from.at_ns).max(1) as f64;
    let per_ns = |from: u64, to: u64| to.saturating_sub(from) as f64 / lasted;
    BeatInterval {
        rate: rate(from, to),
        spent: per_ns(from.spent_ns, to.spent_ns),
        allotted: per_ns(from.allotted_ns, to.allotted_ns),
        beats: to.beats.saturating_sub(from.beats),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MS;

    const SECOND: u64 = 1000 * MS;

    fn log() -> BeatLog {
        BeatLog::new(Duration::from_secs(1))
    }

    fn reading(beats: u64, at_ns: u64) -> BeatReading {
        BeatReading {
            beats,
            at_ns,
            worked_ns: None,
            spent_ns: at_ns / 2,
            allotted_ns: at_ns,
        }
    }

    /// Looks each 50 ms for so many ms at a program with a beat each `period` ms, which spends half
    /// a core.
    fn steady(log: &mut BeatLog, from: u64, to: u64, period: u64) {
        for ms in (from..to).step_by(50) {
            let reading = BeatReading {
                beats: ms / period,
                at_ns: ms / period * period * MS,
                worked_ns: None,
                spent_ns: ms * MS / 2,
                allotted_ns: ms * MS,
            };
            log.read(ms * MS, &reading);
        }
    }

    #[test]
    fn rates_are_taken_between_whole_beats() {
        for period in [1, 7, 33, 90, 400] {
            let mut log = log();
            steady(&mut log, 0, 3000, period);
            let rates = log.rates(2950 * MS);
            let expected = 1000.0 / period as f64;
            for rate in [rates.windowed, rates.global, rates.instant] {
                let rate = rate.unwrap();
                assert!((rate / expected - 1.0).abs() < 1e-3, "{period}: {rates:?}");
            }
            let interval = log.interval(2, 200 * MS).unwrap();
            assert!((interval.rate / expected - 1.0).abs() < 1e-3);
            assert!((interval.spent - 0.5).abs() < 1e-3, "{interval:?}");
            assert!((interval.allotted - 1.0).abs() < 1e-3, "{interval:?}");
            assert_eq!(log.interval(2, 200 * MS), None);
        }
    }

    #[test]
    fn where_work_is_timed_rates_are_by_that() {
        let mut log = log();
        for beat in 0..100 {
            let reading = BeatReading {
                worked_ns: Some(beat * 4 * MS),
                ..reading(beat, beat * 20 * MS)
            };
            log.read(beat * 20 * MS, &reading);
        }
        let rates = log.rates(1990 * MS);
        for rate in [rates.windowed, rates.global, rates.instant] {
            assert!((rate.unwrap() - 250.0).abs() < 0.1, "{rates:?}");
        }
        assert_eq!(log.so_far(1990 * MS), None);
        // What it cost is by the clock all the same.
        assert!((log.interval(2, 200 * MS).unwrap().spent - 0.5).abs() < 1e-3);
        // Another way to take them begins anew.
        log.read(2000 * MS, &reading(100, 2000 * MS));
        assert_eq!(log.rates(2000 * MS), BeatRates::default());
    }

    #[test]
    fn the_window_forgets_and_the_global_rate_does_not() {
        let mut log = log();
        steady(&mut log, 0, 5000, 10);
        steady(&mut log, 5000, 10_000, 5);
        let rates = log.rates(9950 * MS);
        assert!((rates.windowed.unwrap() - 200.0).abs() < 0.1, "{rates:?}");
        // Where the period changes there is a leap of 500 beats.
        assert!((rates.global.unwrap() - 200.0).abs() < 1.0, "{rates:?}");
    }

    #[test]
    fn a_windowed_rate_falls_while_no_beat_comes() {
        let mut log = log();
        steady(&mut log, 0, 2000, 10);
        let at = |now| log.rates(now).windowed.unwrap();
        assert!(at(1950 * MS) > 99.0);
        assert!(at(3 * SECOND) < 60.0);
        assert!(at(20 * SECOND) < 6.0);
        assert_eq!(log.silent_ns(3 * SECOND), Some(1050 * MS));
    }

    #[test]
    fn a_count_that_falls_begins_anew() {
        let mut log = log();
        steady(&mut log, 0, 2000, 10);
        log.read(2000 * MS, &reading(3, 2000 * MS));
        assert_eq!(log.rates(2000 * MS), BeatRates::default());
        assert_eq!(log.interval(1, 0), None);
        log.read(2100 * MS, &reading(13, 2100 * MS));
        assert!((log.rates(2100 * MS).global.unwrap() - 100.0).abs() < 0.1);
        log.read(2200 * MS, &reading(0, 2200 * MS));
        assert_eq!(log.silent_ns(2200 * MS), None);
    }

    #[test]
    fn whatever_a_page_says_rates_are_finite_and_bounded() {
        let hostile = [
            0,
            1,
            2,
            3,
            SECOND,
            5 * SECOND,
            u64::MAX / 2,
            u64::MAX - 1,
            u64::MAX,
        ];
        let mut log = log();
        let mut now = 0;
        for beats in hostile {
            for at_ns in hostile {
                for spent_ns in hostile {
                    now += 7 * MS;
                    let reading = BeatReading {
                        beats,
                        at_ns,
                        worked_ns: (beats % 2 == 0).then_some(spent_ns),
                        spent_ns,
                        allotted_ns: at_ns,
                    };
                    log.read(now, &reading);
                    let rates = log.rates(now);
                    for rate in [rates.windowed, rates.global, rates.instant] {
                        let rate = rate.unwrap_or(0.0);
                        assert!((0.0..=MAX_RATE).contains(&rate), "{rates:?}");
                    }
                    for seen in [log.so_far(now), log.interval(2, 200 * MS)] {
                        let Some(seen) = seen else { continue };
                        assert!((0.0..=MAX_RATE).contains(&seen.rate), "{seen:?}");
                        assert!(seen.spent.is_finite() && seen.spent >= 0.0);
                        assert!(seen.allotted.is_finite() && seen.allotted >= 0.0);
                    }
                }
            }
        }
    }

    #[test]
    fn beats_of_the_future_are_those_of_now_and_of_the_past_are_not_seen() {
        let mut log = log();
        log.read(SECOND, &reading(1, SECOND));
        assert!(log.read(2 * SECOND, &reading(11, u64::MAX)));
        assert!((log.rates(2 * SECOND).global.unwrap() - 10.0).abs() < 1e-6);
        assert!(!log.read(3 * SECOND, &reading(21, SECOND)));
        assert!(log.read(4 * SECOND, &reading(31, 4 * SECOND)));
        assert!((log.rates(4 * SECOND).global.unwrap() - 10.0).abs() < 1e-6);
    }
}
