// SPDX-License-Identifier: GPL-2.0-or-later
//! Which places cost least for what runs now: a slow core takes few watts, but what runs there keeps the rest of
//! the package awake for longer.
//!
//! Threads that compute all the time are done the sooner the more they do together, and then the package sleeps. So the
//! energy of their work is least where (awake + Σ watts) / Σ speed is least, over all ways to place them:
//! a fractional program, solved by Dinkelbach's method (1967): at a price for work, each goes where
//! price × speed - watts is most, which gives the next price. To run on a few fast cores and then to sleep (race
//! to idle), and to go slow and steady, are the two ends of this.
//!
//! Where the package is at its limit, the firmware lowers clocks until it takes what it may. What is taken goes with about
//! the third power of the clock, so that most is done where (awake + Σ watts) / (Σ speed)³ is least at one clock: by the same
//! method, with a threefold price.
//!
//! Threads that mostly sleep have so much to do whatever the speed. While others keep the package awake
//! anyway, a core type costs watts / speed; else (awake + watts) / speed. So it is with threads that have a goal and are held
//! to it ([`PlacedThread::with_given`]), of which some core types are too slow besides.

use crate::topology::MAX_CORE_TYPES;

/// What places cost, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlaceCosts {
    /// What a core of each type takes for a usual thread, beyond what it takes idle, W; and the standard error of that
    /// and `awake` together, against the same work on the slowest type.
    pub cores: [(f64, f64); MAX_CORE_TYPES],
    /// What the rest of the package takes while any core runs, beyond what it takes while none does, W.
    pub awake: f64,
    /// Core types on which nothing has run yet, a bit each: what is said of them is a guess.
    pub unseen: u8,
}

impl PlaceCosts {
    /// Watts of a core type: the faster the type, the more it has to be sure of. What is not known well speaks for
    /// slow cores.
    pub fn sure_watts(&self, core_type: usize, slowest: usize) -> f64 {
        let (watts, error) = self.cores[core_type];
        match core_type < slowest {
            true => watts + error,
            false => watts,
        }
    }

    /// The cheapest of so many core types for threads that mostly sleep and have these speeds, while the package is awake
    /// for a part of the time, 0 to 1, in any case. `now` is the present answer, which stays unless another is cheaper
    /// by [`WORTH_IT`].
    pub fn cheapest(
        &self,
        nr_types: usize,
        speeds: &[f64; MAX_CORE_TYPES],
        awake: f64,
        now: Option<usize>,
    ) -> usize {
        let slowest = nr_types.saturating_sub(1).min(MAX_CORE_TYPES - 1);
        let own = self.awake * (1.0 - awake.clamp(0.0, 1.0));
        let cost = |on: usize| {
            let cost = (own + self.sure_watts(on, slowest)) / speeds[on].max(1e-3);
            match now == Some(on) {
                true => cost * (1.0 - WORTH_IT),
                false => cost,
            }
        };
        // Of two that cost the same the slower one.
        let order = (0..=slowest).rev();
        order
            .min_by(|&a, &b| cost(a).total_cmp(&cost(b)))
            .unwrap_or(slowest)
    }
}

/// A place must be better by such a part than the present one: less is below what is known.
pub const WORTH_IT: f64 = 0.03;

/// What the work done in a second counts for against watts: its exponent, see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceAim {
    /// Least energy.
    Energy,
    /// Most work of a package at its limit.
    AtLimit,
}

impl PlaceAim {
    fn exponent(self) -> f64 {
        match self {
            Self::Energy => 1.0,
            Self::AtLimit => 3.0,
        }
    }
}

/// Prices converge in fewer steps.
const STEPS: usize = 12;

/// A thread that computes all the time, or as much as its goal takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlacedThread {
    /// Relative to the fastest core type; the work that it does in a second, if that is given.
    pub speeds: [f64; MAX_CORE_TYPES],
    /// What it takes on each core type beyond what that takes idle, W.
    pub watts: [f64; MAX_CORE_TYPES],
    /// It does so much and no more, wherever it is.
    pub is_given: bool,
    /// Core types that it may use, a bit each.
    pub allowed: u8,
    /// Where it is.
    pub now: usize,
    /// Where it is best.
    pub best: usize,
    /// Where it was in the best of the ways tried before.
    pub kept: usize,
}

/// What a thread is to do, and no more.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GivenWork {
    /// In a second, in what the fastest core type does in one.
    pub needs: f64,
    /// Core types that were seen to suffice for that, a bit each, and those that were seen not to.
    pub fits: u8,
    /// See there.
    pub fails: u8,
}

/// A core type has to be so much faster than a goal takes before its thread goes there.
const GOAL_MARGIN: f64 = 1.1;

impl PlacedThread {
    /// The same if it is to do that and no more. While it runs the package takes `own` W that it would not without it.
    pub fn with_given(mut self, work: GivenWork, own: f64, nr_types: usize) -> Self {
        let needs = work.needs;
        let suffices = |on: &usize| {
            let least = if *on == self.now {
                needs
            } else {
                GOAL_MARGIN * needs
            };
            let seen = |mask: u8| mask & 1 << *on != 0;
            self.may(*on) && !seen(work.fails) && (seen(work.fits) || self.speeds[*on] >= least)
        };
        let enough = (0..nr_types).filter(suffices);
        let enough = enough.fold(0, |mask, on| mask | 1 << on);
        let fastest = || (0..nr_types).find(|&on| self.may(on));
        self.allowed = match enough {
            0 => 1 << fastest().unwrap_or(self.now),
            enough => enough,
        };
        for on in 0..nr_types {
            let speed = self.speeds[on].max(1e-3);
            // It runs for as long as it takes.
            self.watts[on] = (own + self.watts[on]) * (needs / speed).min(1.0);
        }
        self.speeds = [needs; MAX_CORE_TYPES];
        self.is_given = true;
        self
    }

    /// How much better it could be there, W, if all threads there are so many times as fast as is thought.
    pub fn hoped_gain(&self, price: f64, on: usize, times: f64) -> f64 {
        if self.is_given {
            return times * self.watts[self.best] - self.watts[on];
        }
        let gains = price * (times * self.speeds[on] - self.speeds[self.best]);
        gains - (self.watts[on] - self.watts[self.best])
    }

    fn may(&self, on: usize) -> bool {
        (on == self.now && !self.is_given) || self.allowed & 1 << on != 0
    }

    /// What a place is worth at a price for work, W.
    fn worth(&self, price: f64, on: usize) -> f64 {
        let stay = match on == self.now {
            true => WORTH_IT * price * self.speeds[on],
            false => 0.0,
        };
        price * self.speeds[on] - self.watts[on] + stay
    }
}

/// Says of each thread where it is best, if the core types have room for so many (`rooms`, one after another) and the
/// package takes `awake` W while any runs; returns what work is worth then, J for what a fastest core does in a second. Where
/// there is no room for some, they stay where they are. `order` is for its memory.
pub fn place(
    threads: &mut [PlacedThread],
    rooms: &[usize],
    awake: f64,
    aim: PlaceAim,
    order: &mut Vec<usize>,
) -> f64 {
    for thread in threads.iter_mut() {
        (thread.best, thread.kept) = (thread.now, thread.now);
    }
    let exponent = aim.exponent();
    // As they are they may not fit, and count for nothing.
    let mut least = f64::INFINITY;
    let (mut watts, mut speed) = sums(threads, awake);
    for _ in 0..STEPS {
        let price = exponent * watts / speed.max(1e-9);
        at_price(threads, rooms, price, order);
        (watts, speed) = sums(threads, awake);
        // By what is stayed for, too: else a way that is hardly better would count.
        let stays = threads.iter().filter(|t| t.best == t.now);
        let stays = WORTH_IT * stays.map(|thread| thread.speeds[thread.best]).sum::<f64>();
        let cost = watts.max(1e-9).ln() - exponent * (speed + stays).max(1e-9).ln();
        if cost >= least - 1e-9 {
            break;
        }
        least = cost;
        for thread in threads.iter_mut() {
            thread.kept = thread.best;
        }
    }
    for thread in threads.iter_mut() {
        thread.best = thread.kept;
    }
    let (watts, speed) = sums(threads, awake);
    exponent * watts / speed.max(1e-9)
}

/// Watts and speed of all together, where they are best.
fn sums(threads: &[PlacedThread], awake: f64) -> (f64, f64) {
    threads.iter().fold((awake, 0.0), |(watts, speed), thread| {
        let on = thread.best;
        (watts + thread.watts[on], speed + thread.speeds[on])
    })
}

/// Each goes where it is worth most, and from core types that would be too full those go on that lose least.
fn at_price(threads: &mut [PlacedThread], rooms: &[usize], price: f64, order: &mut Vec<usize>) {
    let mut left = [0_isize; MAX_CORE_TYPES];
    for (left, room) in left.iter_mut().zip(rooms) {
        *left = *room as isize;
    }
    let nr_types = rooms.len().min(MAX_CORE_TYPES);
    let best = |thread: &PlacedThread, may: &dyn Fn(usize) -> bool| {
        let types = (0..nr_types).rev().filter(|&on| thread.may(on) && may(on));
        types.max_by(|&a, &b| thread.worth(price, a).total_cmp(&thread.worth(price, b)))
    };
    for thread in threads.iter_mut() {
        thread.best = best(thread, &|_| true).unwrap_or(thread.now);
        left[thread.best] -= 1;
    }
    for full in 0..nr_types {
        if left[full] >= 0 {
            continue;
        }
        let loss = |thread: &PlacedThread| {
            let other = best(thread, &|on| on != full && left[on] > 0);
            other.map_or(f64::INFINITY, |on| {
                thread.worth(price, full) - thread.worth(price, on)
            })
        };
        order.clear();
        order.extend((0..threads.len()).filter(|&at| threads[at].best == full));
        order.sort_unstable_by(|&a, &b| loss(&threads[a]).total_cmp(&loss(&threads[b])));
        let too_many = left[full].unsigned_abs();
        for &at in order.iter().take(too_many) {
            let Some(on) = best(&threads[at], &|on| on != full && left[on] > 0) else {
                break;
            };
            threads[at].best = on;
            left[on] -= 1;
            left[full] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(sf: f64, fast: f64, slow: f64, now: usize) -> PlacedThread {
        PlacedThread {
            speeds: [1.0, 1.0 / sf, 1.0, 1.0],
            watts: [fast, slow, 0.0, 0.0],
            is_given: false,
            allowed: 0b11,
            now,
            best: now,
            kept: now,
        }
    }

    fn places(threads: &[PlacedThread], rooms: &[usize], awake: f64) -> Vec<usize> {
        places_for(PlaceAim::Energy, threads, rooms, awake)
    }

    fn places_for(
        aim: PlaceAim,
        threads: &[PlacedThread],
        rooms: &[usize],
        awake: f64,
    ) -> Vec<usize> {
        let mut threads = threads.to_vec();
        place(&mut threads, rooms, awake, aim, &mut Vec::new());
        threads.iter().map(|thread| thread.best).collect()
    }

    fn price_of(threads: &[PlacedThread], awake: f64) -> f64 {
        let (watts, speed) = sums(threads, awake);
        watts / speed
    }

    /// Joules for work of all ways to place them; the least.
    fn least(threads: &[PlacedThread], rooms: &[usize], awake: f64) -> f64 {
        let ways = (0..1 << threads.len()).filter_map(|way: usize| {
            let mut threads = threads.to_vec();
            let mut on = [0; 2];
            for (at, thread) in threads.iter_mut().enumerate() {
                thread.best = way >> at & 1;
                on[thread.best] += 1;
            }
            let fits = on[0] <= rooms[0] && on[1] <= rooms[1];
            fits.then(|| price_of(&threads, awake))
        });
        ways.min_by(f64::total_cmp).unwrap()
    }

    #[test]
    fn a_package_that_takes_much_is_to_sleep_soon_and_one_that_takes_little_may_wait() {
        let one = [thread(2.0, 3.0, 1.0, 1)];
        assert_eq!(places(&one, &[1, 1], 0.2), [1]);
        assert_eq!(places(&one, &[1, 1], 5.0), [0]);
        // With others the package is awake in any case.
        let four = [thread(2.0, 3.0, 1.0, 1); 4];
        assert_eq!(places(&four, &[4, 4], 3.0), [1; 4]);
        assert_eq!(places(&four, &[4, 4], 20.0), [0; 4]);
    }

    #[test]
    fn fast_cores_are_for_what_gains_most_there() {
        let threads = [
            thread(1.2, 2.0, 0.5, 1),
            thread(3.5, 2.0, 0.5, 1),
            thread(3.0, 2.0, 0.5, 1),
        ];
        assert_eq!(places(&threads, &[1, 2], 1.0), [1, 0, 1]);
        let pinned = PlacedThread {
            allowed: 0b10,
            ..threads[1]
        };
        assert_eq!(places(&[threads[0], pinned], &[1, 2], 20.0), [0, 1]);
    }

    #[test]
    fn it_comes_within_a_few_percent_of_the_best_of_all_ways() {
        let mut state = 1_u64;
        let mut draw = move |least: f64, most: f64| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            least + (most - least) * (state >> 33) as f64 / f64::from(1_u32 << 31)
        };
        let mut worst = 1.0_f64;
        for _ in 0..500 {
            let count = 1 + draw(0.0, 6.0) as usize;
            let threads: Vec<_> = (0..count)
                .map(|at| thread(draw(1.0, 5.0), draw(0.5, 8.0), draw(0.1, 1.5), at % 2))
                .collect();
            let (rooms, awake) = ([3, 4], draw(0.0, 12.0));
            let mut placed = threads.clone();
            place(
                &mut placed,
                &rooms,
                awake,
                PlaceAim::Energy,
                &mut Vec::new(),
            );
            let on_fast = placed.iter().filter(|thread| thread.best == 0).count();
            assert!(on_fast <= rooms[0] && count - on_fast <= rooms[1]);
            worst = worst.max(price_of(&placed, awake) / least(&threads, &rooms, awake));
        }
        assert!(worst < 1.0 + 2.0 * WORTH_IT, "{worst}");
    }

    #[test]
    fn a_goal_is_met_where_that_costs_least_and_never_where_it_is_too_slow() {
        let given = |needs| GivenWork {
            needs,
            ..GivenWork::default()
        };
        let goal = |needs, own, now| thread(2.0, 3.0, 1.0, now).with_given(given(needs), own, 2);
        // 3 W for half of the time, or 1 W for all of it.
        assert_eq!(places(&[goal(0.45, 0.0, 0)], &[1, 1], 0.0), [1]);
        // 8 W for half of it, or 6 W for all of it.
        assert_eq!(places(&[goal(0.45, 5.0, 1)], &[1, 1], 0.0), [0]);
        assert_eq!(places(&[goal(0.49, 0.0, 0)], &[1, 1], 0.0), [0], "too near");
        assert_eq!(places(&[goal(0.49, 0.0, 1)], &[1, 1], 0.0), [1]);
        assert_eq!(places(&[goal(0.6, 0.0, 1)], &[1, 1], 0.0), [0]);
        let slow_only = PlacedThread {
            allowed: 0b10,
            ..thread(2.0, 3.0, 1.0, 1)
        };
        let slow_only = slow_only.with_given(given(0.9), 0.0, 2);
        assert_eq!(places(&[slow_only], &[1, 1], 0.0), [1]);
        // Beside what computes all the time: it is what is done, not how soon, that counts for it.
        let beside = [goal(0.45, 0.0, 0), thread(2.0, 3.0, 1.0, 1)];
        assert_eq!(places(&beside, &[2, 2], 5.0), [1, 0]);
        // What was seen goes before what speeds say.
        let seen = |(fits, fails), now| {
            let work = GivenWork {
                needs: 0.49,
                fits,
                fails,
            };
            thread(2.0, 3.0, 1.0, now).with_given(work, 0.0, 2)
        };
        assert_eq!(places(&[seen((0b10, 0), 0)], &[1, 1], 0.0), [1]);
        assert_eq!(places(&[seen((0, 0b10), 1)], &[1, 1], 0.0), [0]);
        assert!(goal(0.4, 4.0, 1).hoped_gain(1.0, 0, 1.6) > 0.0);
        assert!(goal(0.4, 0.0, 1).hoped_gain(1.0, 0, 1.4) < 0.0);
    }

    #[test]
    fn at_its_limit_what_gains_least_for_its_watts_leaves_the_fast_cores() {
        // One does a tenth more there for three times the watts, the other thrice as much for four times.
        let threads = [thread(1.1, 3.0, 1.0, 0), thread(3.0, 4.0, 1.0, 0)];
        let limited = places_for(PlaceAim::AtLimit, &threads, &[2, 2], 2.0);
        assert_eq!(limited, [1, 0]);
        let full = places_for(
            PlaceAim::AtLimit,
            &[threads[0], thread(3.0, 4.0, 1.0, 1)],
            &[1, 1],
            2.0,
        );
        assert_eq!(full, [1, 0]);
    }

    #[test]
    fn where_little_is_gained_all_stay() {
        let alike = [thread(2.0, 2.0, 1.0, 0), thread(2.02, 2.0, 1.0, 1)];
        assert_eq!(places(&alike, &[1, 1], 1.0), [0, 1]);
    }

    #[test]
    fn what_mostly_sleeps_goes_by_whether_the_package_is_awake_anyway() {
        let mut costs = PlaceCosts {
            cores: [(3.0, 0.0), (1.0, 0.0), (0.0, 0.0), (0.0, 0.0)],
            awake: 5.0,
            unseen: 0,
        };
        let speeds = [1.0, 0.5, 1.0, 1.0];
        assert_eq!(costs.cheapest(2, &speeds, 0.0, None), 0);
        assert_eq!(costs.cheapest(2, &speeds, 1.0, None), 1);
        assert!(thread(2.0, 3.0, 1.0, 1).hoped_gain(3.0, 0, 1.5) > 0.0);
        assert!(thread(2.0, 9.0, 1.0, 1).hoped_gain(3.0, 0, 1.5) < 0.0);
        // What is not sure is not acted upon.
        costs.cores[0].1 = 4.5;
        assert_eq!(costs.cheapest(2, &speeds, 0.0, None), 1);
        assert_eq!(PlaceCosts::default().cheapest(3, &speeds, 0.0, None), 2);
    }
}
