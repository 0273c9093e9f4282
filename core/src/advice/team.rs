// SPDX-License-Identifier: GPL-2.0-or-later
//! How many threads of a team finish soonest.
//!
//! A team meets in barriers, so it is as fast as the slowest of its threads, for what each has to do. Each thread takes
//! a *place*: a CPU that nothing else wants, fastest first, and when these are used up one that it shares with
//! company, where it gets half. With shares by core type a team of n is worth the sum of its places' speeds, cut to the
//! least availability among them; with equal shares n times its slowest place. What the program has measured
//! then says how much of its time does not get shorter with more threads (Amdahl 1967), and where two sizes were measured
//! and compared, that comparison goes before the model.

use super::TypeRoom;

/// Places that are considered: a team is never told to be larger.
pub const MOST_THREADS: usize = 256;

/// A smaller team is advised if it is slower by no more than this part: fewer threads leave more to others.
const ALIKE: f64 = 0.02;

/// Another number is advised only if it is better than the one before by this part.
const BETTER: f64 = 0.04;

/// What a thread gets of a CPU that something else wants all the time.
const SHARED: f64 = 0.5;

/// Less of a CPU than this is free by chance: looks are some ten a second.
const FREE_BY_CHANCE: f64 = 0.15;

/// The most of a program's time that is taken for serial.
const MOST_SERIAL: f64 = 0.95;

/// How work is divided among threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkShares {
    /// By the speed of the core type that each is on.
    BySpeed,
    /// All get the same.
    Equal,
}

/// What a program has measured with a number of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TeamTime {
    /// How many.
    pub threads: usize,
    /// Work done per time, in any unit that all measurements of the program share.
    pub rate: Option<f64>,
    /// Part of the threads' time that they waited in barriers, 0 to 1.
    pub waited: Option<f64>,
}

/// A place for a thread.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Slot {
    speed: f64,
    available: f64,
}

/// What a team of each size is worth, in fast cores: by number of threads - 1, at most one thread for each CPU.
pub fn worth(rooms: &[TypeRoom], shares: WorkShares) -> Vec<f64> {
    let slots = slots(rooms);
    let mut worth = Vec::with_capacity(slots.len());
    let (mut sum, mut available, mut slowest) = (0.0, 1.0f64, f64::INFINITY);
    for (before, slot) in slots.iter().enumerate() {
        sum += slot.speed;
        available = available.min(slot.available);
        slowest = slowest.min(slot.speed * slot.available);
        worth.push(match shares {
            WorkShares::BySpeed => sum * available,
            WorkShares::Equal => (before + 1) as f64 * slowest,
        });
    }
    worth
}

/// Places in the order in which a team takes them.
fn slots(rooms: &[TypeRoom]) -> Vec<Slot> {
    let (mut free, mut shared) = (Vec::new(), Vec::new());
    for room in rooms {
        let speed = if room.speed.is_finite() {
            room.speed.clamp(0.01, 1.0)
        } else {
            1.0
        };
        let cpus = (room.cpus.max(0.0) as usize).min(MOST_THREADS);
        let mut left = room.free();
        for _ in 0..cpus {
            let part = left.clamp(0.0, 1.0);
            left -= part;
            let available = match part {
                _ if part >= 1.0 - FREE_BY_CHANCE => 1.0,
                _ if part <= FREE_BY_CHANCE => SHARED,
                _ => SHARED + (1.0 - SHARED) * part,
            };
            let of = if available == 1.0 {
                &mut free
            } else {
                &mut shared
            };
            of.push(Slot { speed, available });
        }
    }
    let value = |slot: &Slot| slot.speed * slot.available;
    shared.sort_by(|a, b| value(b).total_cmp(&value(a)));
    free.extend(shared);
    free.truncate(MOST_THREADS);
    free
}

/// How many threads finish soonest.
///
/// `worth` is by number of threads - 1. `now` is what was advised last, if anything. Fewer where it hardly matters.
pub fn threads(worth: &[f64], measured: &[TeamTime], now: Option<usize>) -> usize {
    if worth.is_empty() {
        return 1;
    }
    let serial = serial_part(worth, measured);
    let mut speeds: Vec<f64> = worth.iter().map(|&of| speedup(of, serial)).collect();
    compare(&mut speeds, measured);
    let best = speeds.iter().copied().fold(0.0, f64::max);
    let enough = |&of: &f64| of >= best * (1.0 - ALIKE);
    let advised = speeds.iter().position(enough).map_or(1, |at| at + 1);
    match now {
        Some(now) if now <= speeds.len() && now > 0 => {
            let keeps = speeds[advised - 1] < speeds[now - 1] * (1.0 + BETTER);
            if keeps { now } else { advised }
        }
        _ => advised,
    }
}

/// How much faster than on one fast core, if this part of the work is done by one thread alone.
fn speedup(worth: f64, serial: f64) -> f64 {
    1.0 / (serial + (1.0 - serial) / worth.max(0.01))
}

/// The part of its work that a program does with one thread, by what it has measured: by the waiting that the model does
/// not explain, or by how its rates differ.
fn serial_part(worth: &[f64], measured: &[TeamTime]) -> f64 {
    let rated = rated(worth, measured);
    let distinct = rated.iter().any(|&(at, _)| at != rated[0].0);
    if distinct {
        // Least squares over the logarithms; any unit will do, so their mean is taken off.
        let wrong = |serial: f64| {
            let off = |&(at, rate): &(usize, f64)| (rate / speedup(worth[at], serial)).ln();
            let offs: Vec<f64> = rated.iter().map(off).collect();
            let mean = offs.iter().sum::<f64>() / offs.len() as f64;
            offs.iter().map(|off| (off - mean).powi(2)).sum::<f64>()
        };
        let tried = (0..=19).map(|step| MOST_SERIAL * f64::from(step) / 19.0);
        return tried
            .min_by(|&a, &b| wrong(a).total_cmp(&wrong(b)))
            .unwrap_or(0.0);
    }
    // Of n threads that wait for a part w of their time, (1 - w) n work on average.
    let parts = measured.iter().filter_map(|of| {
        let waited = of.waited.filter(|part| (0.0..1.0).contains(part))?;
        let n = of.threads;
        let ideal = worth.get(n.checked_sub(1)?)?.min(n as f64);
        if n < 2 || ideal <= 1.0 {
            return None;
        }
        let real = ((1.0 - waited) * n as f64).clamp(1.0, n as f64).min(ideal);
        Some(((1.0 / real - 1.0 / ideal) / (1.0 - 1.0 / ideal)).clamp(0.0, MOST_SERIAL))
    });
    let parts: Vec<f64> = parts.collect();
    match parts.len() {
        0 => 0.0,
        number => parts.iter().sum::<f64>() / number as f64,
    }
}

/// Sizes, from 0, and rates that make sense.
fn rated(worth: &[f64], measured: &[TeamTime]) -> Vec<(usize, f64)> {
    let rated = measured.iter().filter_map(|of| {
        let at = of.threads.checked_sub(1).filter(|&at| at < worth.len())?;
        let rate = of.rate.filter(|rate| rate.is_finite() && *rate > 0.0)?;
        Some((at, rate))
    });
    rated.collect()
}

/// Lets what was measured go before the model, where several sizes were.
fn compare(speeds: &mut [f64], measured: &[TeamTime]) {
    let rated = rated(speeds, measured);
    if rated.len() < 2 {
        return;
    }
    let off = |&(at, rate): &(usize, f64)| (speeds[at] / rate).ln();
    let unit = (rated.iter().map(off).sum::<f64>() / rated.len() as f64).exp();
    for (at, rate) in rated {
        speeds[at] = rate * unit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alder_lake(company: f64) -> [TypeRoom; 2] {
        // Company is on both types alike.
        let room = |speed| TypeRoom {
            cpus: 4.0,
            taken: company / 2.0,
            speed,
        };
        [room(1.0), room(0.5)]
    }

    fn advised(rooms: &[TypeRoom], shares: WorkShares) -> usize {
        threads(&worth(rooms, shares), &[], None)
    }

    #[test]
    fn alone_shares_by_speed_make_the_slow_cores_worth_having() {
        let rooms = alder_lake(0.0);
        assert_eq!(advised(&rooms, WorkShares::BySpeed), 8);
        // 4 fast ones are worth as much as 8 that all wait for the slow.
        assert_eq!(advised(&rooms, WorkShares::Equal), 4);
        let by_speed = worth(&rooms, WorkShares::BySpeed);
        assert_eq!((by_speed[3], by_speed[7]), (4.0, 6.0));
        assert_eq!(worth(&rooms, WorkShares::Equal)[7], 4.0);
    }

    #[test]
    fn beside_company_no_thread_shares_a_cpu() {
        let rooms = alder_lake(2.0);
        assert_eq!(advised(&rooms, WorkShares::BySpeed), 6);
        let rooms = alder_lake(4.0);
        assert_eq!(advised(&rooms, WorkShares::BySpeed), 4);
        // With all taken more threads get more of it.
        assert_eq!(advised(&alder_lake(8.0), WorkShares::BySpeed), 8);
    }

    #[test]
    fn a_free_core_by_chance_is_none_and_a_busy_one_by_chance_is_free() {
        let rooms = alder_lake(0.1);
        assert_eq!(advised(&rooms, WorkShares::BySpeed), 8);
        let rooms = alder_lake(1.9);
        assert_eq!(advised(&rooms, WorkShares::BySpeed), 6);
    }

    #[test]
    fn serial_work_and_waiting_make_teams_smaller() {
        let worth: Vec<f64> = (1..=8).map(f64::from).collect();
        let waits = |waited| TeamTime {
            threads: 8,
            rate: None,
            waited: Some(waited),
        };
        assert_eq!(threads(&worth, &[waits(0.0)], None), 8);
        // Of 8 threads one works.
        assert!(threads(&worth, &[waits(0.87)], None) <= 2);
    }

    #[test]
    fn what_was_measured_goes_before_the_model() {
        let worth: Vec<f64> = (1..=8).map(f64::from).collect();
        let time = |threads, rate| TeamTime {
            threads,
            rate: Some(rate),
            waited: None,
        };
        assert_eq!(threads(&worth, &[time(8, 100.0), time(6, 120.0)], None), 6);
        // One number alone says nothing, in whatever unit it is.
        assert_eq!(threads(&worth, &[time(8, 1e9)], None), 8);
        // Twice the threads, 1.2 times the speed: half of it is serial.
        let scaled = [time(4, 1.0), time(8, 1.12)];
        assert!((serial_part(&worth, &scaled) - 0.55).abs() < 0.15);
    }

    #[test]
    fn advice_does_not_swing() {
        let worth = [1.0, 2.0, 2.95, 3.0];
        assert_eq!(threads(&worth, &[], None), 3);
        assert_eq!(threads(&worth, &[], Some(4)), 4);
        assert_eq!(threads(&worth, &[], Some(2)), 3);
        assert_eq!(threads(&worth, &[], Some(77)), 3);
    }

    #[test]
    fn nonsense_is_survived() {
        let room = |cpus, taken, speed| TypeRoom { cpus, taken, speed };
        for rooms in [
            vec![],
            vec![room(0.0, 0.0, 1.0)],
            vec![room(f64::INFINITY, f64::NAN, f64::NAN)],
            vec![room(-3.0, 1e300, -1.0), room(1e300, -1e300, 0.0)],
        ] {
            for shares in [WorkShares::BySpeed, WorkShares::Equal] {
                let worth = worth(&rooms, shares);
                assert!(worth.len() <= MOST_THREADS);
                for threads_told in [0, 1, 4, usize::MAX] {
                    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e308] {
                        let time = TeamTime {
                            threads: threads_told,
                            rate: Some(rate),
                            waited: Some(rate),
                        };
                        let n = threads(&worth, &[time, time], Some(threads_told));
                        assert!((1..=MOST_THREADS).contains(&n), "{rooms:?} {time:?}: {n}");
                    }
                }
            }
        }
    }
}
