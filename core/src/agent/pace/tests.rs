// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use crate::testing::{MS, board, sample, task};
use crate::topology::Topology;

const STALE: u64 = 60_000 * MS;
const SPEEDS: [f64; MAX_CORE_TYPES] = [1.0, 0.35, 1.0, 1.0];

struct Bench {
    topology: Topology,
    tasks: [Task; 1],
    paces: Paces,
    now_ns: u64,
}

impl Bench {
    fn new() -> Self {
        let mut bench = Self {
            topology: board(2, 2),
            tasks: [task(0, 0, 0)],
            paces: Paces::default(),
            now_ns: MS,
        };
        bench.runs(0, 0.0, 1);
        bench
    }

    /// For so many looks it runs there for so much of the time.
    fn runs(&mut self, on: usize, share: f64, looks: u32) {
        self.runs_in(on, share, looks, false);
    }

    fn runs_in(&mut self, on: usize, share: f64, looks: u32, is_crowded: bool) {
        for _ in 0..looks {
            self.now_ns += 200 * MS;
            self.tasks[0].run_ns[on] += (share * 200.0) as u64 * MS;
            let snapshot = Snapshot {
                now_ns: self.now_ns,
                topology: &self.topology,
                tasks: &self.tasks,
            };
            self.paces.notice(&snapshot);
            self.paces.look(&snapshot, is_crowded);
        }
    }

    fn wants(&self) -> Option<f64> {
        self.work().map(|work| (work.needs * 100.0).round() / 100.0)
    }

    fn work(&self) -> Option<GivenWork> {
        self.paces
            .wants(self.tasks[0].id, &SPEEDS, self.now_ns, STALE)
    }
}

#[test]
fn what_drops_frames_on_a_slow_type_is_known_by_what_it_does_on_a_fast_one() {
    let mut bench = Bench::new();
    assert_eq!(bench.wants(), None);
    bench.runs(1, 0.5, 3);
    assert_eq!(bench.wants(), Some(0.18));
    let seen = |bench: &Bench| {
        bench
            .paces
            .is_seen(bench.tasks[0].id, 0, bench.now_ns, STALE)
    };
    assert!(!seen(&bench));
    bench.runs(0, 0.36, 2);
    assert!(seen(&bench));
    assert_eq!(bench.wants(), Some(0.36));
    // On the slow type again it does half, and that is not taken for what it wants.
    bench.runs(1, 0.5, 8);
    assert_eq!(bench.wants(), Some(0.36));
    let seen_to = |bench: &Bench| bench.work().map(|work| (work.fits, work.fails));
    assert_eq!(seen_to(&bench), Some((0b01, 0b10)));
    // Half as much is wanted, which the slow type does.
    bench.runs(0, 0.18, 8);
    assert_eq!(seen_to(&bench), Some((0b11, 0)));
    bench.now_ns += STALE + MS;
    assert!(!seen(&bench));
}

#[test]
fn what_computes_all_the_time_wants_no_certain_amount() {
    let mut bench = Bench::new();
    bench.runs(1, 1.0, 3);
    assert_eq!(bench.wants(), None);
    bench.runs(0, 0.6, 2);
    assert_eq!(bench.wants(), Some(0.6));
    bench.runs(0, 1.0, 9);
    assert_eq!(bench.wants(), None);
}

#[test]
fn at_a_lower_clock_it_runs_for_longer_and_wants_no_more() {
    let mut bench = Bench::new();
    let at = |bench: &mut Bench, clock: f64| {
        let mut sample = sample(&bench.tasks[0], 1.0, 300.0, 0.0);
        sample.metrics.frequency = clock;
        bench.paces.observe(&sample);
    };
    // One of them is wrong.
    for clock in [4e9, 4e9, 16e9, 2e9] {
        at(&mut bench, clock);
    }
    bench.runs(0, 0.8, 3);
    assert_eq!(bench.wants(), Some(0.4));
}

#[test]
fn an_interval_on_two_types_says_nothing() {
    let mut bench = Bench::new();
    bench.tasks[0].run_ns[1] += 50 * MS;
    bench.runs(0, 0.4, 1);
    assert_eq!(bench.wants(), None);
}

/// On the slow type, which does so much in a second of what the fast one does, it is for a third of the time.
#[test]
fn whether_a_slow_type_suffices_is_told_by_what_frames_leave_to_a_fast_one() {
    let told = |speed: f64| {
        let mut bench = Bench::new();
        bench.runs(0, 0.36, 2);
        let is_told = |bench: &Bench| {
            bench
                .paces
                .is_told(bench.tasks[0].id, 1, bench.now_ns, STALE)
        };
        for _ in 0..3 {
            assert!(!is_told(&bench));
            bench.tasks[0].run_ns[1] += 66 * MS;
            bench.runs(0, 0.36 - 0.33 * speed, 1);
        }
        assert!(is_told(&bench));
        bench.work().map(|work| (work.fits, work.fails))
    };
    assert_eq!(told(0.5), Some((0b11, 0)));
    assert_eq!(told(0.37), Some((0b01, 0)), "it is to be seen");
    assert_eq!(told(0.3), Some((0b01, 0b10)));
}

#[test]
fn what_waits_for_a_cpu_has_no_pace() {
    let mut bench = Bench::new();
    let is_paced = |bench: &Bench| bench.paces.is_paced(bench.tasks[0].id);
    bench.tasks[0].state = TaskState::Queued;
    bench.runs(1, 0.5, 8);
    assert!(!is_paced(&bench));
    bench.tasks[0].state = TaskState::Blocked;
    bench.runs(1, 0.5, 2);
    assert!(is_paced(&bench));
}

#[test]
fn a_video_that_shares_its_core_has_a_pace_and_what_hardly_ever_sleeps_has_none() {
    let mut bench = Bench::new();
    // Of each frame it sleeps for 28 % of the time; looks and what is noticed in between come each 50 ms and some.
    let mut paced = |asleep: f64| {
        let (mut found, mut of) = (0, 0);
        for n in 0..400_u64 {
            bench.now_ns += 53 * MS;
            let part = (n as f64 * 53.0 / 33.3).fract();
            bench.tasks[0].state = match part < asleep {
                true => TaskState::Blocked,
                false => TaskState::Running,
            };
            bench.tasks[0].run_ns[0] += 20 * MS;
            let snapshot = Snapshot {
                now_ns: bench.now_ns,
                topology: &bench.topology,
                tasks: &bench.tasks,
            };
            bench.paces.notice(&snapshot);
            if n % 4 == 0 {
                bench.paces.look(&snapshot, true);
            }
            if n > 40 {
                (found, of) = (
                    found + u32::from(bench.paces.is_paced(bench.tasks[0].id)),
                    of + 1,
                );
            }
        }
        f64::from(found) / f64::from(of)
    };
    assert!(paced(0.28) > 0.99);
    assert!(paced(0.03) < 0.05);
}

#[test]
fn in_a_crowd_nothing_is_told() {
    let mut bench = Bench::new();
    bench.runs(0, 0.36, 2);
    for _ in 0..4 {
        bench.tasks[0].run_ns[1] += 60 * MS;
        bench.runs_in(0, 0.1, 1, true);
    }
    assert!(
        !bench
            .paces
            .is_told(bench.tasks[0].id, 1, bench.now_ns, STALE)
    );
    // Waiting for its turn there it did as much as it could, and not as it wants.
    bench.runs_in(1, 0.9, 4, true);
    assert!(
        !bench
            .paces
            .is_seen(bench.tasks[0].id, 1, bench.now_ns, STALE)
    );
}
