// SPDX-License-Identifier: MIT
use super::*;

/// A session that finds no scheduler.
fn alone(options: HeartbeatOptions) -> Heartbeat {
    Heartbeat::open(HeartbeatOptions {
        socket: Some(Path::new("/proc/none/goals.sock")),
        ..options
    })
    .unwrap()
}

const MS: u64 = 1_000_000;

#[test]
fn rates_are_over_all_beats_the_last_ones_and_the_last() {
    let heartbeat = alone(HeartbeatOptions {
        window: 4,
        ..HeartbeatOptions::default()
    });
    assert_eq!(heartbeat.global_rate(), None);
    heartbeat.beats_between(1, 0, 1000 * MS);
    assert_eq!((heartbeat.count(), heartbeat.window_rate()), (1, None));
    // Ten beats of 100 ms, then four of 50 ms, of which the last is of 25 ms.
    let mut at = 1000;
    for ms in [[100; 10].as_slice(), &[50, 50, 50, 25]].concat() {
        at += ms;
        heartbeat.beats_between(1, 0, at * MS);
    }
    assert_eq!(heartbeat.count(), 15);
    let near = |rate: Option<f64>, expected: f64| (rate.unwrap() - expected).abs() < 1e-9;
    assert!(near(heartbeat.global_rate(), 14.0 / 1.175));
    assert!(near(heartbeat.window_rate(), 4.0 / 0.175));
    assert!(near(heartbeat.instant_rate(), 1.0 / 0.025));
}

#[test]
fn several_beats_at_once_are_spread_over_the_time_since_the_last() {
    let heartbeat = alone(HeartbeatOptions::default());
    heartbeat.beats_between(1, 0, 1000 * MS);
    heartbeat.beats_between(10, 0, 2000 * MS);
    assert_eq!(heartbeat.count(), 11);
    assert!((heartbeat.instant_rate().unwrap() - 10.0).abs() < 1e-6);
    assert!((heartbeat.global_rate().unwrap() - 10.0).abs() < 1e-6);
    // More than are kept.
    heartbeat.beats_between(1_000_000, 0, 3000 * MS);
    assert!((heartbeat.window_rate().unwrap() / 1e6 - 1.0).abs() < 1e-3);
    heartbeat.beats(0);
    assert_eq!(heartbeat.count(), 1_000_011);
}

#[test]
fn targets_have_three_forms_and_nonsense_is_refused() {
    use HeartbeatTarget::{Deadline, None, Period, Rate};
    let heartbeat = alone(HeartbeatOptions::default());
    assert_eq!(heartbeat.target(), Option::None);
    for (target, rate) in [
        (Rate(59.94), 59.94),
        (Rate(1e6), 1e6),
        (Rate(0.001), 0.001),
        (Period(Duration::from_millis(40)), 25.0),
        (Deadline(Duration::from_millis(8)), 125.0),
    ] {
        heartbeat.set_target(target).unwrap();
        assert_eq!(heartbeat.target(), Some(rate), "{target:?}");
        let opened = alone(HeartbeatOptions {
            target,
            ..HeartbeatOptions::default()
        });
        assert_eq!(opened.target(), Some(rate), "{target:?}");
    }
    for target in [
        Rate(f64::NAN),
        Rate(f64::INFINITY),
        Rate(-1.0),
        Rate(1e9),
        Rate(1e-9),
        Period(Duration::MAX),
        Period(Duration::from_nanos(1)),
    ] {
        let refused = heartbeat.set_target(target).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{target:?}");
    }
    assert_eq!(heartbeat.target(), Some(125.0));
    heartbeat.set_target(None).unwrap();
    assert_eq!(heartbeat.target(), Option::None);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let many = vec![1; 257];
    let fine = HeartbeatOptions::default();
    for options in [
        HeartbeatOptions {
            window: 1024,
            ..fine
        },
        HeartbeatOptions {
            weight: 10_001,
            ..fine
        },
        HeartbeatOptions {
            tids: &many,
            ..fine
        },
        HeartbeatOptions { tids: &[0], ..fine },
        HeartbeatOptions {
            tids: &[1],
            children: true,
            ..fine
        },
        HeartbeatOptions {
            name: "a\0b",
            ..fine
        },
        HeartbeatOptions {
            pid: u32::MAX,
            ..fine
        },
    ] {
        let refused = Heartbeat::open(options).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{options:?}");
    }
    assert!(alone(fine).set_weight(0).is_err());
    assert!(alone(fine).set_threads(&[-1]).is_err());
}

#[test]
fn without_a_scheduler_it_says_so() {
    let heartbeat = alone(HeartbeatOptions::default());
    assert!(!heartbeat.connected());
    assert!(
        heartbeat.state().starts_with("no scheduler"),
        "{}",
        heartbeat.state()
    );
}

#[test]
fn threads_beat_at_once_and_no_beat_is_lost() {
    let heartbeat = alone(HeartbeatOptions::default());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..10_000).for_each(|_| heartbeat.beat()));
        }
    });
    assert_eq!(heartbeat.count(), 40_000);
    assert!(heartbeat.window_rate().is_some());
}
