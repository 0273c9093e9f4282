// SPDX-License-Identifier: GPL-2.0-or-later
//! Which processes are confined to a few ways of the last-level cache: those that fill it and gain nothing by that,
//! so that what they bring in no longer evicts what others use again.
//!
//! LFOC (Garcia-Garcia, Saez, Castro and Prieto-Matias, 2019) calls such programs *streaming*, and gives them a way or two
//! in common. It tells them by their slowdown at each number of ways; here one size is tried, the one that is wanted: a process
//! that brings in much is confined for some seconds, and stays so if it then misses no more than before. Misses for 1,000
//! instructions (MPKI) depend on neither the clock nor, much, on the core type. A process to which the cache is worth something is let go, and spared
//! for ever longer.

use rustc_hash::FxHashMap;

use super::pool::GroupError;
use crate::pmu::sample::LINE_BYTES;

const S: u64 = 1_000_000_000;

/// After a change of its ways a process's misses are not looked at for so long, ns: what it has in other ways it
/// still finds there.
const SETTLING_NS: u64 = 2 * S;

/// They are looked at for so long, ns, and at least for so many instructions.
const WINDOW_NS: u64 = 2 * S;
const LEAST_INSTRUCTIONS: f64 = 1e6;

/// A process is a candidate that brings in as much as the cache holds so often in a second, and so much of all
/// that is brought in.
const FILLS: f64 = 5.0;
const PART: f64 = 1.0 / 16.0;

/// It gains nothing by the cache if it misses no more than this as often without.
const INDIFFERENT: f64 = 1.05;

/// A confined process that misses less or more often than it did by this factor does something else now.
const ELSE: f64 = 1.25;
/// Windows in succession that say so.
const ELSE_WINDOWS: u32 = 2;

/// One to which the cache is worth something is tried again after so long, and one that is confined looked at freely, ns;
/// each time after twice as long, up to the last.
const SPARED_NS: u64 = 20 * S;
const CONFINED_NS: u64 = 60 * S;
const LONGEST_NS: u64 = 600 * S;

/// What has not run for so long is forgotten, ns.
const FORGOTTEN_NS: u64 = 10 * S;

/// Processes that are confined, or considered, at most.
const MOST: usize = 64;

/// What a process did in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessMisses {
    /// Process id.
    pub pid: u32,
    /// Instructions that its samples cover.
    pub instructions: f64,
    /// Misses of the last-level cache in these.
    pub misses: f64,
}

/// Few ways of the cache, for all that are confined together; files are behind it.
pub trait CacheWays {
    /// Confines a process.
    ///
    /// # Errors
    /// It stays as it is.
    fn confine(&mut self, pid: u32) -> Result<(), GroupError>;

    /// Lets a process have the whole cache again.
    fn release(&mut self, pid: u32);
}

/// A process that is confined.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ConfinedProcess {
    /// Process id.
    pub pid: u32,
    /// Misses for 1,000 instructions with the whole cache.
    pub free: f64,
    /// The same since it is confined; `None` while it is tried.
    pub confined: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// It has the whole cache.
    Free,
    /// It is confined, to see what that costs it.
    Tried { free: f64 },
    /// It is confined until then.
    Confined {
        free: f64,
        confined: f64,
        until_ns: u64,
        other: u32,
    },
    /// The cache is worth something to it, or it cannot be confined.
    Spared { until_ns: u64 },
}

#[derive(Clone, Copy, Debug)]
struct Tracked {
    stage: Stage,
    /// When that began, and when it was last there.
    since_ns: u64,
    seen_ns: u64,
    /// When it brought in enough to be a candidate last.
    filled_ns: u64,
    /// For how long it is left as it is the next time.
    patience: u32,
    /// Since it has settled, see [`ProcessMisses`].
    instructions: f64,
    misses: f64,
    window_ns: u64,
    /// Of the last step: bytes/s.
    fill: f64,
}

impl Tracked {
    fn new(fill: f64, now_ns: u64) -> Self {
        Self {
            stage: Stage::Free,
            since_ns: now_ns,
            seen_ns: now_ns,
            filled_ns: now_ns,
            patience: 0,
            instructions: 0.0,
            misses: 0.0,
            window_ns: 0,
            fill,
        }
    }

    fn enter(&mut self, stage: Stage, now_ns: u64) {
        (self.stage, self.since_ns) = (stage, now_ns);
        self.begin_window();
    }

    fn begin_window(&mut self) {
        (self.instructions, self.misses) = (0.0, 0.0);
        self.window_ns = 0;
    }

    fn take(&mut self, step: &ProcessMisses, fill: f64, now_ns: u64, step_ns: u64) {
        (self.seen_ns, self.fill) = (now_ns, fill);
        if matches!(self.stage, Stage::Free) && self.window_ns >= 2 * WINDOW_NS {
            // What was long ago counts for less and less.
            self.instructions /= 2.0;
            self.misses /= 2.0;
            self.window_ns /= 2;
        }
        if now_ns - step_ns >= self.since_ns + SETTLING_NS {
            self.instructions += step.instructions;
            self.misses += step.misses;
            self.window_ns += step_ns;
        }
    }

    /// MPKI of a window, once it is over.
    fn mpki(&self) -> Option<f64> {
        let over = self.window_ns >= WINDOW_NS && self.instructions >= LEAST_INSTRUCTIONS;
        over.then(|| 1e3 * self.misses / self.instructions)
    }

    fn is_confined(&self) -> bool {
        matches!(self.stage, Stage::Tried { .. } | Stage::Confined { .. })
    }

    /// Twice as long as the last time.
    fn wait(&mut self, first_ns: u64) -> u64 {
        let ns = first_ns.saturating_mul(1 << self.patience.min(16));
        self.patience += 1;
        ns.min(LONGEST_NS)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Partition {
    /// What a candidate brings in at least, bytes/s.
    fills: f64,
    tracked: FxHashMap<u32, Tracked>,
    last_ns: Option<u64>,
    /// Kept for its memory.
    order: Vec<u32>,
}

impl Partition {
    /// For caches of so many bytes.
    pub fn new(cache_bytes: f64) -> Self {
        Self {
            fills: FILLS * cache_bytes,
            tracked: FxHashMap::default(),
            last_ns: None,
            order: Vec::new(),
        }
    }

    /// Those that are confined, in ascending order.
    pub fn confined(&self) -> Vec<ConfinedProcess> {
        let of = self.tracked.iter().filter_map(|(&pid, tracked)| {
            let (free, confined) = match tracked.stage {
                Stage::Tried { free } => (free, None),
                Stage::Confined { free, confined, .. } => (free, Some(confined)),
                _ => return None,
            };
            Some(ConfinedProcess {
                pid,
                free,
                confined,
            })
        });
        let mut confined: Vec<_> = of.collect();
        confined.sort_unstable_by_key(|of| of.pid);
        confined
    }

    /// Whether a process is.
    pub fn is_confined(&self, pid: u32) -> bool {
        self.tracked.get(&pid).is_some_and(Tracked::is_confined)
    }

    /// Takes in what processes did since the last time, each of which is there once, and confines or releases.
    pub fn update(&mut self, now_ns: u64, steps: &[ProcessMisses], ways: &mut impl CacheWays) {
        let Some(step_ns) = self.last_ns.replace(now_ns).map(|last| now_ns - last) else {
            return;
        };
        if step_ns == 0 {
            return;
        }
        let fills = self.fills;
        let all: f64 = steps.iter().map(|step| step.misses).sum();
        let is_candidate =
            |step: &ProcessMisses, fill: f64| fill >= fills && step.misses >= PART * all;
        for step in steps {
            let fill = step.misses * LINE_BYTES / (step_ns as f64 / 1e9);
            let known = self.tracked.len();
            match self.tracked.get_mut(&step.pid) {
                Some(tracked) => tracked.take(step, fill, now_ns, step_ns),
                None if is_candidate(step, fill) && known < MOST => {
                    let tracked = Tracked::new(fill, now_ns);
                    self.tracked.insert(step.pid, tracked);
                }
                None => {}
            }
        }
        self.tracked.retain(|&pid, tracked| {
            let runs = now_ns - tracked.seen_ns < FORGOTTEN_NS;
            if !runs && tracked.is_confined() {
                ways.release(pid);
            }
            if tracked.fill >= fills {
                tracked.filled_ns = now_ns;
            }
            let free = matches!(tracked.stage, Stage::Free);
            if free && tracked.fill < fills {
                // What it does now is none of a candidate's.
                tracked.begin_window();
            }
            // A quiet second is no reason to try it again sooner.
            runs && (!free || now_ns - tracked.filled_ns < FORGOTTEN_NS)
        });
        // Always in the same order.
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        order.extend(self.tracked.keys());
        order.sort_unstable();
        for &pid in &order {
            self.judge(pid, now_ns, ways);
        }
        self.order = order;
        self.try_next(now_ns, steps, is_candidate, ways);
    }

    fn judge(&mut self, pid: u32, now_ns: u64, ways: &mut impl CacheWays) {
        let fills = self.fills;
        let Some(tracked) = self.tracked.get_mut(&pid) else {
            return;
        };
        let mpki = tracked.mpki();
        match tracked.stage {
            Stage::Spared { until_ns } if now_ns >= until_ns => tracked.enter(Stage::Free, now_ns),
            Stage::Free | Stage::Spared { .. } => {}
            Stage::Tried { free } => match mpki {
                Some(confined) if confined <= INDIFFERENT * free => {
                    let until_ns = now_ns + tracked.wait(CONFINED_NS);
                    let stage = Stage::Confined {
                        free,
                        confined,
                        until_ns,
                        other: 0,
                    };
                    tracked.enter(stage, now_ns);
                }
                Some(_) => {
                    ways.release(pid);
                    let until_ns = now_ns + tracked.wait(SPARED_NS);
                    tracked.enter(Stage::Spared { until_ns }, now_ns);
                }
                None => {}
            },
            Stage::Confined {
                confined,
                until_ns,
                ref mut other,
                ..
            } => {
                if let Some(mpki) = mpki {
                    let same = mpki <= ELSE * confined && confined <= ELSE * mpki;
                    *other = if same { 0 } else { *other + 1 };
                }
                let does_else = *other >= ELSE_WINDOWS;
                if does_else {
                    tracked.patience = 0;
                }
                if mpki.is_some() {
                    tracked.begin_window();
                }
                if does_else || tracked.fill < fills || now_ns >= until_ns {
                    ways.release(pid);
                    tracked.enter(Stage::Free, now_ns);
                }
            }
        }
    }

    /// One at a time, that which brings in most first; and only while others are there to gain by it.
    fn try_next(
        &mut self,
        now_ns: u64,
        steps: &[ProcessMisses],
        is_candidate: impl Fn(&ProcessMisses, f64) -> bool,
        ways: &mut impl CacheWays,
    ) {
        let tried = |tracked: &Tracked| matches!(tracked.stage, Stage::Tried { .. });
        if self.tracked.values().any(tried) {
            return;
        }
        let mut best: Option<(f64, u32, f64)> = None;
        for step in steps {
            let Some(tracked) = self.tracked.get(&step.pid) else {
                continue;
            };
            let (Stage::Free, Some(free)) = (tracked.stage, tracked.mpki()) else {
                continue;
            };
            if is_candidate(step, tracked.fill) && best.is_none_or(|(fill, ..)| tracked.fill > fill)
            {
                best = Some((tracked.fill, step.pid, free));
            }
        }
        let Some((_, pid, free)) = best else { return };
        let gains = |step: &ProcessMisses| {
            step.pid != pid
                && step.instructions >= LEAST_INSTRUCTIONS
                && !self.is_confined(step.pid)
        };
        if !steps.iter().any(gains) {
            return;
        }
        let confined = ways.confine(pid);
        let Some(tracked) = self.tracked.get_mut(&pid) else {
            return;
        };
        let stage = match confined {
            Ok(()) => Stage::Tried { free },
            Err(_) => Stage::Spared {
                until_ns: now_ns + tracked.wait(SPARED_NS),
            },
        };
        tracked.enter(stage, now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHE: f64 = 3.0 * 1024.0 * 1024.0;

    /// Programs that run side by side: MPKI with the whole cache, and with few ways.
    struct Machine {
        programs: Vec<(u32, f64, f64)>,
        confined: Vec<u32>,
        refused: Option<u32>,
        changes: Vec<(u64, u32, bool)>,
        now: u64,
    }

    impl Machine {
        fn of(programs: &[(u32, f64, f64)]) -> Self {
            Self {
                programs: programs.to_vec(),
                confined: Vec::new(),
                refused: None,
                changes: Vec::new(),
                now: 0,
            }
        }

        /// So many seconds.
        fn run(&mut self, partition: &mut Partition, seconds: u64) {
            for _ in 0..seconds {
                let step = |&(pid, free, few): &(u32, f64, f64)| ProcessMisses {
                    pid,
                    instructions: 100e6,
                    misses: 100e3
                        * if self.confined.contains(&pid) {
                            few
                        } else {
                            free
                        },
                };
                let steps: Vec<_> = self.programs.iter().map(step).collect();
                self.now += S;
                partition.update(self.now, &steps, self);
            }
        }
    }

    impl CacheWays for Machine {
        fn confine(&mut self, pid: u32) -> Result<(), GroupError> {
            if self.refused == Some(pid) {
                return Err(GroupError::NotThisOne);
            }
            assert!(!self.confined.contains(&pid));
            self.confined.push(pid);
            self.changes.push((self.now / S, pid, true));
            Ok(())
        }

        fn release(&mut self, pid: u32) {
            assert!(self.confined.contains(&pid));
            self.confined.retain(|&of| of != pid);
            self.changes.push((self.now / S, pid, false));
        }
    }

    #[test]
    fn a_stream_is_confined_and_what_the_cache_is_worth_something_to_is_not() {
        let mut machine = Machine::of(&[(1, 20.0, 20.2), (2, 8.0, 30.0), (3, 0.1, 0.3)]);
        let mut partition = Partition::new(CACHE);
        machine.run(&mut partition, 30);
        assert_eq!(machine.confined, [1]);
        // The other one was tried once, and its ways taken back after four seconds.
        let of = |pid| machine.changes.iter().filter(move |of| of.1 == pid);
        assert_eq!(of(2).count(), 2, "{:?}", machine.changes);
        let times: Vec<u64> = of(2).map(|of| of.0).collect();
        assert!(times[1] - times[0] <= 5, "{times:?}");
        assert_eq!(of(3).count(), 0);
        let told = partition.confined();
        assert_eq!((told.len(), told[0].pid), (1, 1));
        assert!((told[0].free - 20.0).abs() < 1e-9);
        assert!((told[0].confined.unwrap() - 20.2).abs() < 1e-9);
    }

    #[test]
    fn trials_become_rare() {
        let mut machine = Machine::of(&[(1, 20.0, 20.0), (2, 8.0, 30.0)]);
        let mut partition = Partition::new(CACHE);
        machine.run(&mut partition, 3600);
        let confined = |pid, from| {
            let of = machine.changes.iter();
            of.filter(|&&(at, of, confined)| of == pid && confined && at > from)
                .count()
        };
        assert!((6..=12).contains(&confined(1, 0)), "{}", confined(1, 0));
        assert!((6..=12).contains(&confined(2, 0)), "{}", confined(2, 0));
        assert!(confined(1, 1800) <= 4 && confined(2, 1800) <= 4);
    }

    #[test]
    fn one_that_is_quiet_now_and_then_is_tried_as_rarely() {
        let mut machine = Machine::of(&[(2, 8.0, 30.0), (3, 0.1, 0.3)]);
        let mut partition = Partition::new(CACHE);
        for _ in 0..120 {
            machine.programs[0].1 = 8.0;
            machine.run(&mut partition, 29);
            if !partition.is_confined(2) {
                machine.programs[0].1 = 0.0;
            }
            machine.run(&mut partition, 1);
        }
        let tried = machine.changes.iter().filter(|of| of.1 == 2 && of.2);
        assert!((5..=12).contains(&tried.count()), "{:?}", machine.changes);
    }

    #[test]
    fn a_program_that_does_something_else_is_let_go() {
        let mut machine = Machine::of(&[(1, 20.0, 20.0), (3, 0.1, 0.3)]);
        let mut partition = Partition::new(CACHE);
        machine.run(&mut partition, 12);
        assert_eq!(machine.confined, [1]);
        // Now it would be served by the cache.
        machine.programs[0] = (1, 4.0, 40.0);
        machine.run(&mut partition, 6);
        assert!(machine.confined.is_empty(), "{:?}", machine.changes);
        // And now it does little.
        machine.programs[0] = (1, 20.0, 20.0);
        machine.run(&mut partition, 40);
        assert_eq!(machine.confined, [1]);
        machine.programs[0] = (1, 0.1, 0.1);
        machine.run(&mut partition, 4);
        assert!(machine.confined.is_empty());
    }

    #[test]
    fn where_no_other_gains_or_it_may_not_be_moved_nothing_is_done() {
        // Two streams and nothing else: one of them stays free.
        let mut machine = Machine::of(&[(1, 20.0, 20.0), (2, 20.0, 20.0)]);
        let mut partition = Partition::new(CACHE);
        machine.run(&mut partition, 50);
        assert_eq!(machine.confined.len(), 1);
        let mut machine = Machine::of(&[(1, 20.0, 20.0), (3, 0.1, 0.3)]);
        machine.refused = Some(1);
        let mut partition = Partition::new(CACHE);
        machine.run(&mut partition, 50);
        assert!(machine.changes.is_empty() && partition.confined().is_empty());
    }

    #[test]
    fn those_that_have_ended_are_forgotten_and_crowds_are_bounded() {
        let mut machine = Machine::of(&[(1, 20.0, 20.0), (3, 0.1, 0.3)]);
        let mut partition = Partition::new(CACHE);
        machine.run(&mut partition, 12);
        machine.programs.remove(0);
        machine.run(&mut partition, 12);
        assert!(machine.confined.is_empty() && !partition.is_confined(1));
        let crowd: Vec<_> = (10..500).map(|pid| (pid, 500.0, 500.0)).collect();
        let mut machine = Machine::of(&crowd);
        let mut partition = Partition::new(CACHE);
        machine.run(&mut partition, 100);
        assert!(partition.tracked.len() <= MOST);
    }
}
