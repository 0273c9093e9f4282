// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::goals::GoalStatus;
use crate::policy::Insight;
use crate::stats::{ProcessCaches, ProcessTotals};
use hetero_core::goals::Miss;
use hetero_core::testing::task;

const SECOND: u64 = 1_000_000_000;

/// Two threads, on a fast CPU and a slow one of half the capacity, that have run and come so far.
fn reading(at_s: u64, progress_ns: [u64; 2]) -> LiveReading {
    let thread = |slot: u32| {
        let index = slot as usize;
        let mut run_ns = [0; MAX_CORE_TYPES];
        run_ns[index] = at_s * SECOND;
        let insight = Insight {
            takes_part: Some(true),
            slowdown: [None, Some(2.2), None, None],
            asymmetry: [None, Some(2.0), None, None],
            ..Insight::default()
        };
        ThreadReading {
            task: Task {
                tgid: 100,
                comm: Comm(*b"worker\0\0\0\0\0\0\0\0\0\0"),
                nr_runnable: 2,
                run_ns,
                amp_progress: progress_ns[index],
                ..task(slot, slot, index)
            },
            insight,
            moves: 3,
            joules: None,
            interference: None,
        }
    };
    let kind = |name: &str| CoreTypeTotals {
        name: name.into(),
        cpus: 1,
        busy_ns: at_s * SECOND / 2,
        perf: 0,
    };
    let cpu = |cpu: u32| CpuReading {
        cpu,
        core_type: cpu as usize,
        domain: cpu as usize,
        llc: 0,
        busy_ns: at_s * SECOND / 4,
    };
    LiveReading {
        totals: Totals {
            at_ns: at_s * SECOND,
            policy: "camps".into(),
            core_types: vec![kind("P"), kind("E")],
            tasks: 2,
            runnable: 2,
            ..Totals::default()
        },
        fairness: Some(100),
        capacities: vec![1024, 512],
        cpus: vec![cpu(0), cpu(1)],
        threads: vec![thread(0), thread(1)],
        programs: Vec::new(),
        work: Work {
            progress_ns: progress_ns.iter().sum::<u64>() as f64,
            // SF is 2.
            gain_ns: 2.0 * progress_ns.iter().sum::<u64>() as f64 - (2 * at_s * SECOND) as f64,
            part_ns: (2 * at_s * SECOND) as f64,
        },
        goals: LiveGoals::default(),
        advised: 0,
    }
}

#[test]
fn of_goals_that_are_missed_the_one_missed_by_most_is_told() {
    let lacks = Miss::Machine { lacks: 1.0 }.to_string();
    let status = |id, target, rate, reason: Option<&str>| GoalStatus {
        id,
        target,
        rate,
        reason: reason.map(String::from),
        tids: vec![1],
        ..GoalStatus::default()
    };
    let goals = LiveGoals::of(vec![
        status(1, 0.0, Some(3.0), None),
        status(2, 30.0, Some(30.0), None),
        status(3, 30.0, Some(20.0), Some("it waits")),
        status(4, 100.0, Some(40.0), Some(&lacks)),
        status(5, 10.0, Some(9.0), Some("it waits")),
    ]);
    assert_eq!((goals.all, goals.missed), (4, 3));
    let worst = goals.worst().unwrap();
    assert_eq!((worst.id, worst.tids.len()), (4, 0));
    let ids: Vec<u64> = goals.sessions.iter().map(|session| session.id).collect();
    assert_eq!(ids, [4, 3, 5, 2]);
    let silent = status(6, 10.0, None, Some("no beat comes"));
    let goals = LiveGoals::of(vec![status(4, 9.0, Some(1.0), Some("")), silent]);
    assert_eq!(goals.worst().unwrap().id, 6);
    assert_eq!(LiveGoals::of(Vec::new()), LiveGoals::default());
    let met = (0..1000).map(|id| status(id, 1.0, Some(1.0), None));
    let goals = LiveGoals::of(met.collect());
    assert_eq!((goals.all, goals.sessions.len()), (1000, SESSIONS));
    assert_eq!(goals.worst(), None);
}

#[test]
fn the_processes_that_hold_most_of_caches_are_told() {
    let mut reading = reading(10, [0, 0]);
    let process = |pid: u32, bytes| {
        let caches = ProcessCaches {
            bytes,
            ..ProcessCaches::default()
        };
        let name = format!("p{pid}");
        let process = ProcessTotals {
            name,
            caches,
            ..ProcessTotals::default()
        };
        (pid, process)
    };
    let held = (1..=30).map(|pid| process(pid, Some(f64::from(pid))));
    let others = [process(40, None), process(41, Some(0.0))];
    reading.totals.processes = held.chain(others).collect();
    let told = Rates::default().next(reading).caches;
    assert_eq!(told.len(), PROGRAMS);
    assert_eq!(
        (told[0].pid, &*told[0].comm, told[0].bytes),
        (30, "p30", 30.0)
    );
}

#[test]
fn rates_are_of_the_time_between_two_readings() {
    let mut rates = Rates::default();
    let first = rates.next(reading(10, [0, 0]));
    assert_eq!(first.elapsed_ns, 0);
    assert!(first.threads.iter().all(|thread| thread.load_pct == 0.0));
    assert_eq!((first.unfairness, first.stp), (None, None));
    let live = rates.next(reading(11, [SECOND, SECOND / 2]));
    assert_eq!(live.elapsed_ns, SECOND);
    assert_eq!(live.core_types[0].busy_pct, 50.0);
    assert_eq!((live.cpus[1].busy_pct, live.cpus[1].tid), (25.0, Some(101)));
    let thread = &live.threads[1];
    assert_eq!((thread.load_pct, thread.moves), (100.0, 3));
}

#[test]
fn a_slowdown_is_told_in_its_two_parts() {
    let live = Rates::default().next(reading(1, [0, 0]));
    let thread = live
        .threads
        .iter()
        .find(|thread| thread.tid == 101)
        .unwrap();
    assert_eq!((thread.slowdown, thread.asymmetry), (Some(2.2), Some(2.0)));
    assert!((thread.contention.unwrap() - 1.1).abs() < 1e-9);
    assert_eq!(thread.sf, Some(2.0));
}

#[test]
fn unfairness_and_throughput_are_of_progress_made() {
    let mut rates = Rates::default();
    rates.next(reading(10, [0, 0]));
    let live = rates.next(reading(12, [2 * SECOND, SECOND]));
    assert_eq!((live.unfairness, live.stp), (Some(2.0), Some(1.5)));
    // Twice as fast as on the slowest core type, and just as fast.
    assert_eq!(live.asp, Some(1.0));
    let leads: Vec<_> = live.threads.iter().map(|thread| thread.lead_ns).collect();
    let half = SECOND as i64 / 2;
    assert_eq!(leads, [Some(half), Some(-half)]);
}

/// Threads that come and go: none is there for long, and four CPUs are busy all the time.
#[test]
fn throughput_is_of_all_that_ran_and_unfairness_of_what_was_there_for_long() {
    let mut rates = Rates::default();
    let mut lives = Vec::new();
    for second in 10..40_u64 {
        let mut now = reading(second, [SECOND * second, SECOND * second / 2]);
        if second < 30 {
            for (slot, thread) in now.threads.iter_mut().enumerate() {
                thread.task.id.generation = (second / 2) as u32;
                thread.task.amp_progress = SECOND * (second % 2) / (1 + slot as u64);
            }
        }
        lives.push(rates.next(now));
    }
    for live in &lives[1..] {
        assert!((live.stp.unwrap() - 1.5).abs() < 1e-9, "{:?}", live.stp);
        assert!((live.asp.unwrap() - 1.0).abs() < 1e-9, "{:?}", live.asp);
    }
    assert!(lives[11..20].iter().all(|live| live.unfairness.is_none()));
    assert!(lives[26..].iter().all(|live| live.unfairness == Some(2.0)));
}

#[test]
fn a_slow_reader_is_told_of_the_time_since_it_asked_last() {
    let mut rates = Rates::default();
    rates.next(reading(10, [0, 0]));
    rates.next(reading(70, [60 * SECOND, 60 * SECOND]));
    let live = rates.next(reading(130, [120 * SECOND, 90 * SECOND]));
    assert_eq!((live.unfairness, live.stp), (Some(2.0), Some(1.5)));
}

#[test]
fn what_is_told_is_bounded() {
    let mut now = reading(1, [0, 0]);
    now.threads = vec![now.threads[0]; 2 * LISTED];
    assert_eq!(Rates::default().next(now).threads.len(), LISTED);
}

#[test]
fn of_programs_those_that_took_most_are_told_and_no_more_than_some() {
    let mut reading = reading(1, [0; 2]);
    let named = reading.threads[0].task.tgid;
    reading.programs = (1000..1100)
        .map(|pid| (pid, f64::from(pid) / 1e3))
        .collect();
    reading.programs.extend([(named, 7.0), (2000, 0.0)]);
    let live = Rates::default().next(reading);
    assert_eq!(live.programs.len(), PROGRAMS);
    assert_eq!(
        (live.programs[0].pid, live.programs[0].joules),
        (named, 7.0)
    );
    assert!(!live.programs[0].comm.is_empty());
    assert_eq!((live.programs[1].pid, &*live.programs[1].comm), (1099, ""));
}
