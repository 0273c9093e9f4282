// SPDX-License-Identifier: GPL-2.0-only
//! A server on a socket that knows a machine of its own, and answers as the scheduler would.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use hetero_core::goals::Miss;
use hetero_core::interference::{Interference, InterferenceClass};
use hetero_core::testing::task;
use scx_hetero::goals::{GoalSource, GoalStatus};
use scx_hetero::policy::{Insight, Name};
use scx_hetero::stats::live::{CpuReading, LiveGoals, LiveReading, ThreadReading};
use scx_hetero::stats::story::{HistoryEntry, Move, Story, ThreadStory};
use scx_hetero::stats::work::Work;
use scx_hetero::stats::{
    self, Answer, CoreTypeTotals, Counts, EnergySums, EnergyTotals, ProcessCaches, ProcessTotals,
    Request, Totals,
};
use scx_hetero::table::{Comm, Task, TaskState};

/// It gives a terminal another title, and turns round what follows.
pub(super) const HOSTILE: &str = "\x1b]2;owned\x07\u{202e}x";

/// A process whose thread is called that.
pub(super) const ODD: u32 = 666;

pub(super) const SECOND: u64 = 1_000_000_000;

/// Names, and how much each thread runs and progresses on its CPU, percent.
pub(super) const THREADS: [(&str, u64, u64); 10] = [
    ("openssl", 98, 81),
    ("xz", 99, 80),
    ("fp", 97, 84),
    ("sqlite3", 99, 78),
    ("bzip2", 98, 70),
    ("gzip", 96, 66),
    ("stress-ng-pipe", 70, 50),
    ("stress-ng-pipe", 68, 48),
    ("sleeper", 2, 1),
    ("a-name-of-15-ch", 1, 1),
];

pub(super) fn comm(name: &str) -> Comm {
    let mut bytes = [0; 16];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    Comm(bytes)
}

/// A thread of the fake machine after so many seconds.
pub(super) fn thread(index: usize, seconds: u64) -> ThreadReading {
    let (name, load, progress) = THREADS[index];
    let core_type = usize::from(index >= 4);
    let mut run_ns = [0; 4];
    run_ns[core_type] = seconds * SECOND * load / 100;
    let amp_progress = seconds * SECOND * progress / 100;
    let known = index < 6;
    let of = |on_p: f64, on_e: f64| [Some(on_p), Some(on_e), None, None];
    let slot = index as u32;
    let task = Task {
        tid: 1000 + slot,
        tgid: 1000 + slot,
        comm: comm(name),
        start_time: 1,
        state: if load > 50 {
            TaskState::Running
        } else {
            TaskState::Blocked
        },
        run_ns,
        amp_progress,
        ..task(slot, slot % 8, core_type)
    };
    let insight = Insight {
        takes_part: Some(load > 50),
        progress_ns: Some(amp_progress as i64),
        slowdown: if known {
            of(1.05, 1.92 + index as f64 / 10.0)
        } else {
            [None; 4]
        },
        asymmetry: if known {
            of(1.0, 1.8 + index as f64 / 20.0)
        } else {
            [None; 4]
        },
        btr: known.then_some(3e6 * (1 << index) as f64),
        phase: known.then_some(index % 3),
        hit_rate: known.then_some(0.93),
        ..Insight::default()
    };
    let moves = 3 * index as u64 % 8;
    ThreadReading {
        task,
        insight,
        moves,
        joules: None,
        interference: None,
    }
}

/// What they have all done.
pub(super) fn work(seconds: u64) -> Work {
    let mut work = Work::default();
    let ns = (seconds * SECOND) as f64;
    for index in 0..THREADS.len() {
        let ThreadReading { task, insight, .. } = thread(index, seconds);
        let progress = task.amp_progress as f64;
        work.progress_ns += progress;
        if insight.takes_part == Some(true) {
            work.gain_ns += progress * insight.asymmetry[1].unwrap_or(1024.0 / 560.0) - ns;
            work.part_ns += ns;
        }
    }
    work
}

/// The whole of it: 4 P and 4 E CPUs.
pub(super) fn reading(seconds: u64, policy: Name) -> LiveReading {
    let kind = |name: &str| CoreTypeTotals {
        name: name.into(),
        cpus: 4,
        busy_ns: 4 * seconds * SECOND * 9 / 10,
        perf: 4096,
    };
    let cpu = |cpu: u32| CpuReading {
        cpu,
        core_type: usize::from(cpu >= 4),
        domain: usize::from(cpu >= 4),
        llc: 0,
        busy_ns: seconds * SECOND * u64::from(100 - 5 * cpu) / 100,
    };
    LiveReading {
        totals: Totals {
            at_ns: seconds * SECOND,
            policy: policy.to_string(),
            core_types: vec![kind("P"), kind("E")],
            tasks: THREADS.len() as u64,
            runnable: 8,
            counts: Counts {
                samples: 160 * seconds,
                stretches: 1000 * seconds,
                stretches_discarded: seconds,
                swapped: 2 * seconds,
                forced_swaps: 1,
                nwc_episodes: 3,
                nwc_learned: 2,
                ..Counts::default()
            },
            ..Totals::default()
        },
        fairness: (policy == Name::Camps).then_some(100),
        capacities: vec![1024, 560],
        programs: Vec::new(),
        cpus: (0..8).map(cpu).collect(),
        threads: (0..THREADS.len()).map(|i| thread(i, seconds)).collect(),
        work: work(seconds),
        goals: LiveGoals::of(goals()),
        advised: 2,
    }
}

/// A machine that has all sensors and counters besides.
pub(super) fn with_all_sensors(reading: &mut LiveReading) {
    let joules = reading.totals.at_ns as f64 / SECOND as f64;
    reading.totals.energy = Some(EnergyTotals {
        at_ns: reading.totals.at_ns,
        joules,
        memory: None,
        sums: Some(EnergySums {
            total: joules,
            idle: joules,
            ..EnergySums::default()
        }),
    });
    reading.programs.push((1000, joules));
    let openssl = ProcessTotals {
        name: "openssl".into(),
        caches: ProcessCaches {
            bytes: Some(1_572_864.0),
            ..ProcessCaches::default()
        },
        ..ProcessTotals::default()
    };
    reading.totals.processes.insert(1000, openssl);
    reading.threads[1].interference = Some(Interference {
        slowdown: 1.5,
        class: InterferenceClass::Llc,
        also: None,
        confidence: 1.0,
        culprit: Some((1000, 1.0)),
    });
}

pub(super) fn story(pid: u32) -> Story {
    let index = match pid {
        ODD => 0,
        pid => pid.wrapping_sub(1000) as usize,
    };
    let moved = |ago: u64, from, why: &str| Move {
        ago_ns: ago * SECOND / 10,
        from,
        to: 1 - from,
        why: why.into(),
    };
    let threads = THREADS.get(index).map(|(name, ..)| ThreadStory {
        tid: pid,
        pid,
        comm: if pid == ODD { HOSTILE } else { name }.into(),
        state: "running".into(),
        cpu: 5,
        core_type: 1,
        run_ns: vec![7 * SECOND, 3 * SECOND],
        slowdown: vec![Some(1.05), Some(1.92)],
        asymmetry: vec![Some(1.0), Some(1.8)],
        btr: Some(120e6),
        hit_rate: Some(0.93),
        phase: Some(0),
        phases: vec![HistoryEntry {
            l1_per_kilo: Some(350.0),
            branch_percent: Some(12.0),
            ipc: 1.9,
            frequency: 4.7e9,
            samples: 16,
        }],
        moves: 5,
        last_moves: vec![
            moved(
                123,
                1,
                "swapped with 1004 (bzip2): progress 9,100 ms behind 14,300",
            ),
            moved(
                21,
                0,
                "swapped with 1005 (gzip): progress 15,000 ms ahead of 11,200",
            ),
        ],
        ..ThreadStory::default()
    });
    Story {
        core_types: vec!["P".into(), "E".into()],
        policy: "camps".into(),
        threads: threads.into_iter().collect(),
        more: 0,
        ..Story::default()
    }
}

/// A socket that answers as a scheduler does, until it is dropped; a second passes with each
/// reading.
pub(super) struct Fake {
    _server: stats::StatisticsServer,
    asked: Arc<Mutex<Vec<Request>>>,
}

/// As the scheduler says it.
pub(super) fn lacks() -> String {
    Miss::Machine { lacks: 0.8 }.to_string()
}

/// One that is missed, one that is met, and one of a program that wants nothing.
pub(super) fn goals() -> Vec<GoalStatus> {
    let missed = GoalStatus {
        id: 3,
        pid: 1000,
        name: "openssl".into(),
        weight: 100,
        target: 30.0,
        beats: 7,
        rate: Some(24.5),
        demand: Some(3.2),
        allotment: Some(2.4),
        reason: Some(lacks()),
        ..GoalStatus::default()
    };
    let met = GoalStatus {
        id: 12,
        pid: 4_000_002,
        name: "a-name-of-15-ch".into(),
        weight: 10_000,
        deadline: true,
        children: true,
        target: 125.0,
        source: GoalSource::Rule,
        rate: Some(127.0),
        demand: Some(0.61),
        allotment: Some(0.62),
        ..GoalStatus::default()
    };
    let wants_none = GoalStatus {
        id: 1023,
        pid: 1001,
        name: "xz".into(),
        weight: 100,
        ..GoalStatus::default()
    };
    vec![missed, met, wants_none]
}

impl Fake {
    pub(super) fn start(socket: &Path) -> Self {
        Self::of(socket, |_| {})
    }

    /// One with something more to see in its readings.
    pub(super) fn of(socket: &Path, more: fn(&mut LiveReading)) -> Self {
        let server = stats::StatisticsServer::listen(socket, None).unwrap();
        let (answers, requests) = server.channels();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        thread::spawn(move || {
            let (mut seconds, mut policy) = (100, Name::Camps);
            for request in requests {
                let answer = match request {
                    Request::Totals => Answer::Totals(Box::new(reading(seconds, policy).totals)),
                    Request::Reading => {
                        seconds += 1;
                        let mut reading = reading(seconds, policy);
                        more(&mut reading);
                        Answer::Reading(Box::new(reading))
                    }
                    Request::Story(pid) => Answer::Story(story(pid)),
                    Request::SetPolicy(name) => {
                        policy = name;
                        Answer::Set(Ok(format!("policy {name}")))
                    }
                    Request::SetProfile(profile) => {
                        policy = profile.policy().unwrap_or(Name::Camps);
                        Answer::Set(Ok(format!("profile {profile}, policy {policy}")))
                    }
                    Request::Goals => Answer::Goals(goals()),
                    Request::SetGoal(3, wish) => Answer::Set(Ok(format!("{wish:?}"))),
                    Request::SetGoal(id, _) => Answer::Set(Err(format!("no session {id}"))),
                    Request::ReadRules => Answer::Set(Err("line 3, column 1: no".into())),
                    Request::SetFairness(percent) => Answer::Set(if policy == Name::Camps {
                        Ok(format!("fairness {percent}"))
                    } else {
                        Err(format!(
                            "fairness is for policy camps; {policy} is in force"
                        ))
                    }),
                };
                log.lock().unwrap().push(request);
                if answers.send(answer).is_err() {
                    return;
                }
            }
        });
        Self {
            _server: server,
            asked,
        }
    }

    pub(super) fn was_asked(&self, request: Request) -> bool {
        self.asked.lock().unwrap().contains(&request)
    }
}
