// SPDX-License-Identifier: GPL-2.0-or-later

use std::time::Duration;

use super::format::{
    Begin, Chosen, Decided, GoalRecord, GoalsLook, JoulesLook, MAGIC, Record, SessionName,
    UndisturbedRecord,
};
use super::*;
use crate::energy::ledger::EnergyLedger;
use crate::energy::reading::EnergyReading;
use crate::goals::rate::BeatRates;
use crate::goals::{GoalState, Miss, SessionId};
use crate::knowledge::{Sure, UndisturbedRates};
use crate::pmu::Meaning;
use crate::pmu::sample::{EventCounts, Sample, SampleMetrics, SfEstimate};
use crate::policy::{Action, NoPolicy, Seen, Settings, Snapshot};
use crate::table::{Task, TaskId};
use crate::testing::{board, task};

fn begin() -> Begin {
    Begin {
        version: "0.1.0".into(),
        date: "2026-11-22T00:00:00Z".into(),
        kernel: "6.18".into(),
        cpu: "a board".into(),
        topology: board(1, 1),
        chosen: Chosen::new(crate::policy::Name::Rr, &Settings::default()),
        kept: false,
    }
}

/// A sample whose counts are whole, or not.
fn sample(task: &Task, at_ns: u64, loads: f64) -> Sample {
    let counts: EventCounts = [
        (Meaning::Instructions, 3e6),
        (Meaning::Cycles, 2e6),
        (Meaning::Loads, loads),
    ]
    .into_iter()
    .collect();
    Sample {
        task: task.id,
        tid: task.tid,
        tgid: task.tgid,
        core_type: task.core_type,
        at_ns,
        run_ns: 50_000_000,
        last: false,
        metrics: SampleMetrics::of(&counts, 50_000_000).unwrap(),
        counts,
        sf: Some(SfEstimate {
            sf: 1.75,
            sigma: 0.25,
        }),
        ef: Some(1.25),
        watts: None,
    }
}

fn read(parts: &[Vec<u8>]) -> (Vec<Input>, Vec<Vec<Task>>, Tail) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let mut file = Members::create(&path).unwrap();
    for part in parts {
        file.write(part).unwrap();
    }
    let mut reader = RecordReader::open(&path).unwrap();
    let (mut inputs, mut tables) = (Vec::new(), Vec::new());
    while let Some(input) = reader.next_input().unwrap() {
        if matches!(input, Input::Look { .. }) {
            tables.push(reader.tasks().to_vec());
        }
        inputs.push(input);
    }
    (inputs, tables, reader.tail().unwrap())
}

#[test]
fn what_is_read_is_what_the_policy_saw_to_the_last_bit() {
    let topology = board(1, 1);
    let mut encoder = Encoder::default();
    let mut parts = Vec::new();
    encoder.begin(begin());
    let mut tasks = vec![task(0, 0, 0), task(1, 1, 1), task(5, 1, 1)];
    let mut tables = Vec::new();
    let mut samples = Vec::new();
    for step in 0..4_u64 {
        for (index, task) in tasks.iter_mut().enumerate() {
            task.run_ns[task.core_type] += 17 * step;
            task.amp_progress += 3 + index as u64;
        }
        match step {
            1 => {
                tasks.remove(1);
                // Another task in the same slot as one that ended.
                tasks[1].id.generation += 1;
                tasks[1].tid = 99;
            }
            2 => {
                tasks[0].weight = 15;
                tasks[0].pinned = true;
                // Carried over a restart it might be behind.
                tasks[1].amp_progress = 1;
                tasks.push(task(7, 0, 0));
            }
            3 => (tasks[0].hint, tasks[0].cpu) = (Some(1), -1),
            _ => {}
        }
        let sample = sample(&tasks[0], 1000 - step, 1e6 + step as f64 / 3.0);
        encoder.sample(&sample);
        samples.push(sample);
        let snapshot = Snapshot {
            now_ns: step * 50,
            topology: &topology,
            tasks: &tasks,
        };
        encoder.look(&snapshot, step != 2);
        tables.push(tasks.clone());
        parts.push(encoder.take(Vec::new()));
    }
    let swap = [0, 1].map(|i: usize| (Seen::from(&tasks[i]), 1 - i));
    let actions = [
        Action::Swap(swap),
        Action::Slowdown(tasks[0].id, [0.3, 1.0, 1.0, 1.0]),
        Action::Park(3, Duration::from_millis(70)),
    ];
    encoder.decided(&actions, &NoPolicy);
    encoder.carried_out([true, false, true].into_iter());
    encoder.fairness(40);
    encoder.end();
    parts.push(encoder.take(Vec::new()));

    let (inputs, read_tables, tail) = read(&parts);
    assert_eq!(read_tables, tables);
    assert_eq!(tail, Tail::Whole);
    let read_samples: Vec<_> = inputs
        .iter()
        .filter_map(|input| match input {
            Input::Sample(sample) => Some((**sample).clone()),
            _ => None,
        })
        .collect();
    assert_eq!(read_samples, samples);
    let Input::Begin(first) = &inputs[0] else {
        panic!("{:?}", inputs[0]);
    };
    assert_eq!(**first, begin());
    let [
        ..,
        Input::Decision(decided),
        Input::CarriedOut(outcomes),
        Input::Fairness(40),
    ] = &inputs[..]
    else {
        panic!("{inputs:?}");
    };
    let read_actions: Vec<_> = decided.iter().map(|d| d.action.clone()).collect();
    assert_eq!(read_actions, actions);
    assert_eq!(*outcomes, [true, false, true]);
    assert!(decided.iter().all(|d| d.reasons == [None; 2]));
    let moved: Vec<_> = decided.iter().flat_map(Decided::moves).collect();
    assert_eq!(moved.len(), 2, "only the swap moves threads");
}

/// A session that does what it should.
fn state(id: u64) -> GoalState {
    GoalState {
        session: SessionId(id),
        fast_cores: 0.5,
        demand: 0.5,
        target: 30.0,
        rates: BeatRates {
            windowed: Some(29.5),
            ..BeatRates::default()
        },
        spent: 0.5,
        model: None,
        miss: None,
    }
}

#[test]
fn goals_are_recorded_ten_times_a_second_with_names_told_once() {
    let topology = board(1, 1);
    let mut encoder = Encoder::default();
    encoder.begin(begin());
    let step_ns = 50_000_000;
    for step in 0..=20 {
        let now_ns = step * step_ns;
        let snapshot = Snapshot {
            now_ns,
            topology: &topology,
            tasks: &[],
        };
        encoder.look(&snapshot, false);
        encoder.session(3, 4711, "x264");
        let mut states = vec![state(3)];
        if step >= 10 {
            encoder.session(7, 5, "\u{1b}[2J");
            states.push(state(7));
        }
        states.truncate(if step < 20 { 2 } else { 0 });
        encoder.goals(now_ns, &states);
    }
    // A session of the next scheduler, whose clock begins anew.
    encoder.begin(begin());
    encoder.goals(5, &[state(8)]);
    let many: Vec<GoalState> = (0..1000).map(state).collect();
    encoder.goals(5 + 2 * step_ns, &many);
    encoder.end();
    let (inputs, ..) = read(&[encoder.take(Vec::new())]);
    let (mut names, mut looks) = (Vec::new(), Vec::new());
    for input in &inputs {
        match input {
            Input::Session(named) => names.push((named.id, named.pid, named.name.as_str())),
            Input::Goals { at_ns, goals } => looks.push((*at_ns, goals.len())),
            _ => {}
        }
    }
    assert_eq!(names.len(), 2);
    assert_eq!(names[0], (3, 4711, "x264"));
    assert!(!names[1].2.contains('\u{1b}'));
    let mut expected: Vec<(u64, usize)> = (1..10)
        .map(|n| (2 * n * step_ns, if n < 5 { 1 } else { 2 }))
        .collect();
    // That the last has gone is told at once; then what began anew.
    let end = 20 * step_ns;
    expected.extend([(end, 0), (end + 5, 1), (end + 5 + 2 * step_ns, GOALS)]);
    assert_eq!(looks, expected);
}

#[test]
fn joules_are_recorded_once_a_second_by_what_took_them() {
    let topology = board(1, 1);
    let mut ledger = EnergyLedger::default();
    let mut tasks = [task(0, 0, 0), task(1, 1, 1)];
    let mut reading = EnergyReading {
        package: Some(0.0),
        ..EnergyReading::default()
    };
    let mut encoder = Encoder::default();
    encoder.begin(begin());
    let second = 1_000_000_000;
    for step in 0..=30_u64 {
        let now_ns = step * second / 5;
        ledger.update(now_ns, &reading, &tasks, &topology);
        encoder.joules(now_ns, &ledger);
        for (core_type, task) in tasks.iter_mut().enumerate() {
            task.run_ns[core_type] += second / 5;
            reading.busy_ns[core_type] += second / 5;
        }
        reading.package = reading.package.map(|sum| sum + 2.0);
    }
    encoder.end();
    let (inputs, ..) = read(&[encoder.take(Vec::new())]);
    let looks = inputs.iter().filter_map(|input| match input {
        Input::Joules(at_ns, look) => Some((*at_ns, look)),
        _ => None,
    });
    let looks: Vec<_> = looks.collect();
    let times: Vec<u64> = looks.iter().map(|(at_ns, _)| *at_ns / second).collect();
    assert_eq!(times, [1, 2, 3, 4, 5, 6]);
    for (_, look) in &looks {
        let threads: f32 = look.threads.iter().sum();
        let all = threads + look.untold + look.idle + look.uncore;
        assert!((all - 10.0).abs() < 1e-3, "{look:?}");
        let programs: Vec<u32> = look.programs.iter().map(|(tgid, _)| *tgid).collect();
        assert_eq!(programs, [100, 101]);
        let of_programs: f32 = look.programs.iter().map(|(_, joules)| joules).sum();
        assert!((of_programs - threads).abs() < 1e-3);
    }
}

/// Whoever changes these bytes changes the form: then [`MAGIC`] must change, and `docs/record.md`.
#[test]
fn the_bytes_are_those_of_the_documented_form() {
    let bytes = |record: &Record| {
        let mut bytes = Vec::new();
        encode::append(&mut bytes, record);
        bytes
    };
    assert_eq!(MAGIC, b"scx_hetero recording 7\n");
    let caches = bytes(&Record::Caches(vec![0, 300]));
    assert_eq!(caches, [14, 2, 0, 172, 2]);
    let mut undisturbed = UndisturbedRecord {
        slot: 300,
        generation: 1,
        ..UndisturbedRecord::default()
    };
    undisturbed.known[0] = Some(UndisturbedRates {
        core_type: 1,
        ipc: Sure {
            value: 1.0,
            variance: 0.0,
        },
        ..UndisturbedRates::default()
    });
    let undisturbed = bytes(&Record::Undisturbed(Box::new(undisturbed)));
    // Of a phase of which nothing is counted, and with no misses counted; and nothing more.
    let expected = [
        &[15, 172, 2, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 240, 63][..],
        &[0; 8],
        &[0],
        &[0; 5],
    ];
    assert_eq!(undisturbed, expected.concat());
    assert_eq!(bytes(&Record::Fairness(40)), [2, 40]);
    assert_eq!(bytes(&Record::Event("ab".into())), [3, 2, b'a', b'b']);
    assert_eq!(bytes(&Record::CarriedOut(vec![true, false])), [7, 2, 1, 0]);
    assert_eq!(bytes(&Record::Energy(1.0)), [8, 0, 0, 0, 0, 0, 0, 240, 63]);
    assert_eq!(bytes(&Record::End), [9]);
    let named = SessionName {
        id: 300,
        pid: 5,
        name: "ab".into(),
    };
    let named = bytes(&Record::Session(named));
    assert_eq!(named, [10, 172, 2, 5, 2, b'a', b'b']);
    let goal = GoalRecord {
        session: 300,
        target: 1.0,
        rate: None,
        demand: Some(2.0),
        given: 0.0,
        miss: Some(Miss::Threads { threads: 4 }),
    };
    let goals = bytes(&Record::Goals(GoalsLook {
        now_ns: 7,
        goals: vec![goal],
    }));
    // At 7 ns, of one: session 300, target, no rate, demand, given, and few threads.
    let expected = [
        &[11, 7, 1, 172, 2, 0, 0, 128, 63, 0][..],
        &[1, 0, 0, 0, 64, 0, 0, 0, 0, 1, 1, 4],
    ];
    assert_eq!(goals, expected.concat());
    let joules = bytes(&Record::Joules(JoulesLook {
        now_ns: 7,
        passed_ns: 5,
        threads: [1.0, 0.0, 0.0, 0.0],
        uncore: 2.0,
        programs: vec![(300, 1.0)],
        ..JoulesLook::default()
    }));
    let none = [0; 12];
    // At 7 ns, in 5; of threads; too young, idle, beside; of one program.
    let expected = [
        &[12, 7, 5, 0, 0, 128, 63][..],
        &none,
        &[0; 8],
        &[0, 0, 0, 64],
        &[1, 172, 2, 0, 0, 128, 63],
    ];
    assert_eq!(joules, expected.concat());
    let id = TaskId {
        slot: 300,
        generation: 2,
    };
    let decided = |action| {
        Record::Decision(vec![Decided {
            action,
            reasons: [Some(crate::policy::Reason::Room), None],
        }])
    };
    let seen = Seen { task: id, on: 1 };
    // Decision, of one, a hint, slot 300, generation 2, seen on 1, to 0, for room.
    assert_eq!(
        bytes(&decided(Action::Hint(seen, Some(0)))),
        [6, 1, 0, 172, 2, 2, 1, 1, 0, 1, 2, 0]
    );
    assert_eq!(
        bytes(&decided(Action::Park(4, Duration::from_nanos(5)))),
        [6, 1, 3, 4, 0, 5, 1, 2, 0]
    );

    let topology = board(1, 1);
    let mut first = task(3, 1, 1);
    first.comm.0 = *b"xz\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut encoder = Encoder::default();
    let mut look = |tasks: &[Task], now_ns| {
        encoder.take(Vec::new());
        let snapshot = Snapshot {
            now_ns,
            topology: &topology,
            tasks,
        };
        encoder.look(&snapshot, true);
        encoder.take(Vec::new())
    };
    let mut expected = vec![5, 7, 1, 0, 1, 3];
    expected.push(first.id.generation as u8);
    let whole = look(&[first], 7);
    assert_eq!(whole[..7], expected[..]);
    assert!(whole.windows(16).any(|part| part == first.comm.0));
    assert_eq!(whole[whole.len() - 1], 0, "none only changed");
    let mut later = first;
    later.run_ns[1] += 200;
    later.amp_progress += 1;
    let changed = look(&[later], 8);
    // Look, 8 ns, decides, none gone, none whole, one changed: slot, state, CPU 1, core type 1, no
    // hint, does not spin, weight 1024, one runnable thread, ran 0, 200, 0, 0, progress 1, no SF.
    let state = later.state as u8;
    let runnable = later.nr_runnable as u8;
    assert_eq!(
        changed,
        [
            5, 8, 1, 0, 0, 1, 3, state, 2, 1, 0, 0, 128, 8, runnable, 0, 200, 1, 0, 0, 2, 0
        ]
    );
    let gone = look(&[], 9);
    assert_eq!(gone, [5, 9, 1, 1, 3, later.id.generation as u8, 0, 0]);
}

#[test]
fn sizes_of_caches_come_after_the_beginning() {
    let mut sized = begin();
    sized.topology.llc_bytes = vec![3 << 20, 0];
    let mut encoder = Encoder::default();
    encoder.begin(sized);
    encoder.end();
    let written = encoder.take(Vec::new());
    let (inputs, _, tail) = read(std::slice::from_ref(&written));
    assert_eq!(tail, Tail::Whole);
    // The beginning has them no more than it ever had.
    let [Input::Begin(first), Input::Caches(sizes)] = &inputs[..] else {
        panic!("{inputs:?}");
    };
    assert_eq!((&**first, &sizes[..]), (&begin(), &[3 << 20, 0][..]));
}

#[test]
fn what_does_not_make_sense_is_an_error_and_no_panic() {
    let errors = |records: &[Record]| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut bytes = MAGIC.to_vec();
        for record in records {
            encode::append(&mut bytes, record);
        }
        Members::create(&path).unwrap().write(&bytes).unwrap();
        let mut reader = RecordReader::open(&path).unwrap();
        loop {
            match reader.next_input() {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(error) => return Some(format!("{error:#}")),
            }
        }
    };
    let good = Record::Begin(Box::new(begin()));
    assert_eq!(errors(std::slice::from_ref(&good)), None);
    let mut odd = begin();
    odd.topology.cpus[0].core_type = 9;
    let odd = Record::Begin(Box::new(odd));
    assert!(errors(&[odd]).unwrap().contains("makes no sense"));
    // Policies make room for as many as these say.
    let spoil: [fn(&mut Begin); 7] = [
        |begin| begin.topology.cpus[1].llc = usize::MAX,
        |begin| begin.topology.cpus[1].llc = 2,
        |begin| begin.topology.nr_cpu_ids = u32::MAX,
        |begin| begin.topology.nr_cpu_ids = 1,
        |begin| begin.topology.cpus[1].id = 0,
        |begin| begin.topology.cpus[0].siblings = vec![0, 7],
        |begin| begin.topology.domains[0].cpus = vec![0; 1000],
    ];
    for (place, spoil) in spoil.into_iter().enumerate() {
        let mut odd = begin();
        spoil(&mut odd);
        let told = errors(&[Record::Begin(Box::new(odd))]);
        assert!(
            told.is_some_and(|told| told.contains("makes no sense")),
            "{place}"
        );
    }
    for sizes in [vec![1; 3], vec![u64::MAX], vec![0; 100_000]] {
        let told = errors(&[good.clone(), Record::Caches(sizes)]);
        assert!(told.is_some());
    }
    assert!(errors(&[Record::Caches(vec![1])]).is_some());
    let undisturbed = |slot, core_type| {
        let known = UndisturbedRates {
            core_type,
            ..UndisturbedRates::default()
        };
        let record = UndisturbedRecord {
            slot,
            known: [Some(known); _],
            ..UndisturbedRecord::default()
        };
        errors(&[good.clone(), Record::Undisturbed(Box::new(record))])
    };
    assert!(undisturbed(0, 1).is_none());
    assert!(undisturbed(u32::MAX, 0).is_some() && undisturbed(0, 9).is_some());
    let look = |now_ns, whole| {
        Record::Look(format::Look {
            now_ns,
            whole,
            ..format::Look::default()
        })
    };
    let backwards = [good.clone(), look(5, vec![]), look(4, vec![])];
    assert!(errors(&backwards).unwrap().contains("runs backwards"));
    let mut twin = task(3, 1, 1);
    twin.id.generation += 1;
    let twice = look(5, vec![task(3, 0, 0), twin]);
    let told = errors(&[good.clone(), twice]).unwrap();
    assert!(told.contains("two tasks in one slot"), "{told}");
    // A table by slots would be as long.
    let far = look(5, vec![task(u32::MAX - 1, 0, 0)]);
    let told = errors(&[good.clone(), far]).unwrap();
    assert!(told.contains("in a slot, that there is not"), "{told}");
    let events = (0..300).map(|number| Record::Event(format!("r{number}")));
    let events: Vec<Record> = [good.clone()].into_iter().chain(events).collect();
    assert!(errors(&events).unwrap().contains("more than 256 events"));
    let restless = vec![good.clone(); 10_001];
    assert!(
        errors(&restless)
            .unwrap()
            .contains("more than 10000 changes")
    );
    let nowhere = look(5, vec![task(0, 0, 3)]);
    assert!(
        errors(&[good.clone(), nowhere])
            .unwrap()
            .contains("core type")
    );
    let sample = Record::Sample(format::SampleRecord {
        counts: vec![(4, format::Number::Whole(1))],
        ..format::SampleRecord::default()
    });
    let told = errors(&[good.clone(), sample]).unwrap();
    assert!(told.contains("unknown event"));
    let state = |id| GoalRecord::from(&state(id));
    let goals = |goals| Record::Goals(GoalsLook { now_ns: 1, goals });
    let told = errors(&[good.clone(), goals(vec![state(2), state(1)])]).unwrap();
    assert!(told.contains("in no order"), "{told}");
    let many = goals((0..257).map(state).collect());
    assert!(
        errors(&[good.clone(), many])
            .unwrap()
            .contains("more than 256")
    );
    let named = |id| SessionName {
        id,
        pid: 1,
        name: String::new(),
    };
    let names = (0..100_001).map(|id| Record::Session(named(id)));
    let names: Vec<Record> = [good].into_iter().chain(names).collect();
    assert!(
        errors(&names)
            .unwrap()
            .contains("more than 100000 sessions")
    );
}
