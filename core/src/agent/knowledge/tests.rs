// SPDX-License-Identifier: GPL-2.0-or-later
use std::convert::Infallible;

use super::*;
use crate::agent::{Author, Outcome};
use crate::knowledge::{ProgramFindings, Sure};
use crate::pmu::sample::Sample;
use crate::policy::{Action, Name, Settings, Snapshot};
use crate::testing::{MS, board, sample, task};

/// What has found nothing.
macro_rules! nothing {
    () => {
        Finders {
            interference: &mut AgentInterference::default(),
            caches: &CacheLedger::default(),
            energy: &mut EnergyLedger::default(),
        }
    };
}

/// A program that was four times as fast on the fast core, with an IPC of 2 there.
struct Programs {
    now_ns: u64,
    known: ThreadProfile,
    is_known: bool,
    asked: usize,
    /// No answer comes.
    is_late: bool,
    kept: Vec<ThreadFinding>,
    /// So many times there is no room.
    full: usize,
    program: ProgramFindings,
    unlike: usize,
}

impl Backend for Programs {
    type Error = Infallible;

    fn now(&self) -> u64 {
        self.now_ns
    }

    fn samples(&mut self, _: &mut Vec<Sample>) -> Result<(), Infallible> {
        Ok(())
    }

    fn snapshot(&mut self, _: &mut Vec<Task>) {}

    fn apply(&mut self, _: &[Action], _: Author, _: &mut Vec<Outcome>) -> Result<(), Infallible> {
        Ok(())
    }

    fn remembers(&self) -> bool {
        true
    }

    fn remembered(&mut self, _: &Task) -> Remembered<'_> {
        self.asked += 1;
        match self.asked {
            1 => Remembered::Later,
            _ if self.is_late => Remembered::Later,
            _ if !self.is_known => Remembered::Nothing,
            _ => Remembered::Known(&self.known),
        }
    }

    fn keep(&mut self, task: &Task, found: &ThreadFinding) -> bool {
        if self.full > 0 {
            self.full -= 1;
            return false;
        }
        self.kept.push(*found);
        self.program.take(task, found, 0);
        true
    }

    fn is_unlike(&mut self, _: &Task) {
        self.unlike += 1;
    }
}

fn programs(it: &Task) -> Programs {
    let mut known = ThreadProfile::default();
    known.sf[1] = Sure::of_factor(4.0, 0.01);
    known.ipc[0] = Sure::of_factor(2.0, 0.01);
    known.phases[0] = Some(crate::knowledge::ProfilePhase {
        phase: crate::slowdown::Phase::of(&sample(it, 2.0, 300.0, 0.0).metrics),
        alone: known.ipc[0].map(|ipc| (ipc, 1e9)),
        sf: known.sf[1],
    });
    Programs {
        now_ns: 0,
        known,
        is_known: true,
        asked: 0,
        is_late: false,
        kept: Vec::new(),
        full: 0,
        program: ProgramFindings::default(),
        unlike: 0,
    }
}

/// A thread under a policy for so many looks, each of a sample with this IPC: what the BPF half was told
/// last of its speed on the small core, and what became of the rest.
fn lives(name: Name, ipc: f64, looks: u64) -> (Option<f32>, Past, Programs) {
    let topology = board(2, 4);
    let mut it = task(0, 0, 0);
    let mut programs = programs(&it);
    let mut policy = name.build(Settings::default());
    let mut agent = AgentKnowledge::default();
    let mut told = None;
    let mut step = |programs: &mut Programs, tasks: &[Task]| {
        programs.now_ns += 50 * MS;
        agent.look(programs, &mut *policy, &mut nothing!(), tasks);
        let mut actions = Vec::new();
        let now_ns = programs.now_ns;
        let snapshot = Snapshot {
            now_ns,
            topology: &topology,
            tasks,
        };
        policy.decide(&snapshot, &mut actions);
        for action in actions {
            if let Action::Slowdown(_, inverse) = action {
                told = Some(inverse[1]);
            }
        }
        let past = agent.past(it.id);
        if let [task, ..] = tasks {
            policy.observe(&sample(task, ipc, 300.0, 0.0));
        }
        past
    };
    let mut past = Past::Unknown;
    for _ in 0..looks {
        it.run_ns[0] += 50 * MS;
        past = step(&mut programs, &[it]);
    }
    step(&mut programs, &[]);
    (told, past, programs)
}

const MEASURE: [Name; 6] = [
    Name::Camps,
    Name::Acfs,
    Name::Hsp,
    Name::Eqp,
    Name::Ef,
    Name::Rank,
];

#[test]
fn a_policy_goes_by_earlier_runs_as_soon_as_it_is_told_of_them() {
    for name in MEASURE {
        let (told, past, programs) = lives(name, 2.0, 2);
        assert_eq!((programs.asked, past), (2, Past::Expected), "{name}");
        let slow = told.unwrap_or_else(|| panic!("{name} says nothing"));
        assert!((slow - 0.25).abs() < 0.02, "{name}: {slow}");
    }
}

#[test]
fn what_is_asked_for_first_is_looked_for_soon_and_once() {
    let soon = Some(ANSWERED);
    for (name, expected) in [
        (Name::Camps, [soon, None, soon, None, None]),
        (Name::Eqp, [None; 5]),
    ] {
        let mut programs = programs(&task(0, 0, 0));
        programs.is_late = true;
        let mut policy = name.build(Settings::default());
        let mut agent = AgentKnowledge::default();
        // A thread comes at each of four looks.
        let due = [1, 2, 3, 4, 4].map(|threads| {
            let tasks: Vec<Task> = (0..threads).map(|slot| task(slot, 0, 0)).collect();
            agent.look(&mut programs, &mut *policy, &mut nothing!(), &tasks);
            agent.due_in()
        });
        assert_eq!(due, expected, "{name}");
    }
}

#[test]
fn a_policy_that_goes_by_nothing_of_the_kind_costs_no_look_ups() {
    for name in [Name::None, Name::Rr, Name::Adwrr] {
        let (_, _, programs) = lives(name, 2.0, 10);
        assert_eq!((programs.asked, programs.kept.len()), (0, 0), "{name}");
    }
}

#[test]
fn what_is_found_is_kept_when_a_thread_ends_and_each_minute() {
    for name in MEASURE {
        let (_, past, programs) = lives(name, 2.0, 30);
        assert_eq!((past, programs.unlike), (Past::Confirmed, 0), "{name}");
        let [found] = programs.kept[..] else {
            panic!("{name} kept {:?}", programs.kept);
        };
        let alone = found.profile.phases[0].and_then(|phase| phase.alone);
        let ipc = alone.map(|(ipc, _)| ipc).or(found.profile.ipc[0]);
        assert!(
            (ipc.unwrap().factor() - 2.0).abs() < 0.01 && !found.unlike && found.last,
            "{name}"
        );
        // Once for each minute of two, and at the end; and it is one thread all the same.
        let (_, _, programs) = lives(name, 2.0, 2500);
        let last: Vec<bool> = programs.kept.iter().map(|found| found.last).collect();
        assert_eq!(last, [false, false, true], "{name}");
        let known = programs.program.known();
        let values = known.phases.iter().map(|phase| phase.alone.values);
        let most = values.chain([known.ipc[0].values]).fold(0.0, f64::max);
        assert_eq!((known.threads, most), (1, 1.0), "{name}");
    }
}

/// A thread that was like its program for so many looks calls itself otherwise, and the store knows this of it then.
fn renames(name: Name, ipc: f64, known: Option<ThreadProfile>) -> (Past, Past) {
    let topology = board(2, 4);
    let mut it = task(0, 0, 0);
    let mut programs = programs(&it);
    let known = known.map(|known| {
        if known.is_empty() {
            programs.known
        } else {
            known
        }
    });
    let mut policy = name.build(Settings::default());
    let mut agent = AgentKnowledge::default();
    let mut past = [Past::Unknown; 2];
    for look in 0..40 {
        if look == 30 {
            it.comm.0[0] = b'x';
            programs.known = known.unwrap_or_default();
            programs.is_known = known.is_some();
        }
        programs.now_ns += 50 * MS;
        it.run_ns[0] += 50 * MS;
        agent.look(&mut programs, &mut *policy, &mut nothing!(), &[it]);
        let snapshot = Snapshot {
            now_ns: programs.now_ns,
            topology: &topology,
            tasks: &[it],
        };
        policy.decide(&snapshot, &mut Vec::new());
        policy.observe(&sample(&it, ipc, 300.0, 0.0));
        past[usize::from(look >= 30)] = policy.past(it.id);
    }
    (past[0], past[1])
}

#[test]
fn what_runs_an_unknown_program_now_has_no_past_and_what_was_wrong_is_not_told_again() {
    for name in MEASURE {
        let unknown = renames(name, 2.0, None);
        assert_eq!(unknown, (Past::Confirmed, Past::Unknown), "{name}");
        // The same, by another name.
        let same = Some(ThreadProfile::default());
        let wrong = renames(name, 0.7, same);
        assert_eq!(wrong, (Past::Wrong, Past::Wrong), "{name}");
        let confirmed = renames(name, 2.0, same);
        assert_eq!(confirmed, (Past::Confirmed, Past::Confirmed), "{name}");
    }
}

#[test]
fn what_finds_no_room_is_tried_again_at_the_next_look_and_nothing_of_it_is_lost() {
    let topology = board(2, 4);
    let tasks = [task(0, 0, 0), task(1, 1, 0)];
    let mut programs = programs(&tasks[0]);
    let mut policy = Name::Camps.build(Settings::default());
    let mut interference = AgentInterference::default();
    interference.look(0, &tasks, &topology, |_, _| None);
    let loss = crate::knowledge::ThreadLoss {
        by: 7,
        ..Default::default()
    };
    for task in &tasks {
        interference.observe(&sample(task, 1.0, 300.0, 0.0), &topology);
        interference.losses_mut(task.id).unwrap()[0] = Some(loss);
    }
    let mut agent = AgentKnowledge::default();
    let mut kept = Vec::new();
    for (now_ns, full) in [(0, 0), (KEEP_NS, 1), (1, 1), (1, 0), (1, 0)] {
        programs.now_ns += now_ns;
        programs.full = full;
        agent.look(
            &mut programs,
            &mut *policy,
            &mut Finders {
                interference: &mut interference,
                caches: &CacheLedger::default(),
                energy: &mut EnergyLedger::default(),
            },
            &tasks,
        );
        assert_eq!(programs.full, 0, "one attempt a look is enough");
        kept.push(programs.kept.len());
    }
    assert_eq!(kept, [0, 0, 0, 2, 2]);
    let lost = programs.kept.iter().map(|found| found.losses[0]);
    assert!(lost.eq([Some(loss); 2]), "{:?}", programs.kept);
    assert!(agent.threads.iter().all(|of| of.kept));
}

#[test]
fn a_thread_unlike_its_past_is_told_of_once_and_the_past_is_forgotten() {
    for name in MEASURE {
        let (told, past, programs) = lives(name, 0.7, 30);
        assert_eq!((past, programs.unlike), (Past::Wrong, 1), "{name}");
        assert!(programs.kept[0].unlike, "{name}");
        // By static capacities again.
        assert!((told.unwrap() - 0.5).abs() < 0.02, "{name}: {told:?}");
    }
}

/// Two threads run by turns on one CPU, with the same counts, and the second takes twice as much; a third one comes at last.
fn ledger(tasks: &mut [Task; 3], topology: &crate::topology::Topology) -> EnergyLedger {
    use crate::energy::reading::EnergyReading;
    use crate::pmu::Meaning;

    let mut ledger = EnergyLedger::default();
    let mut reading = EnergyReading {
        package: Some(0.0),
        ..EnergyReading::default()
    };
    for look in 0..400 {
        let present = if look < 399 { 2 } else { 3 };
        ledger.update(look * 100 * MS, &reading, &tasks[..present], topology);
        let turn = if look < 398 { look as usize / 3 % 2 } else { 2 };
        // Too little for a term of its own.
        tasks[turn].run_ns[0] += if turn == 2 { 10 * MS } else { 100 * MS };
        reading.busy_ns[0] += 100 * MS;
        reading.package = reading.package.map(|joules| joules + [0.2, 0.4, 0.3][turn]);
        let mut sample = sample(&tasks[turn], 1.0, 300.0, 0.0);
        let counts = [(Meaning::Cycles, 5e7), (Meaning::Instructions, 5e7)];
        sample.counts = counts.into_iter().collect();
        ledger.observe(&sample);
    }
    ledger.update(400 * 100 * MS, &reading, tasks, topology);
    ledger
}

#[test]
fn what_a_thread_takes_beyond_its_counts_is_kept_and_told_and_forgotten_with_what_was_wrong() {
    let topology = board(2, 4);
    let mut tasks = [0, 1, 2].map(|slot| task(slot, 0, 0));
    let mut energy = ledger(&mut tasks, &topology);
    let mut programs = programs(&tasks[0]);
    programs.known.watts[0] = Sure::of_factor(3.0, 0.0001);
    let mut policy = Name::Camps.build(Settings::default());
    let mut agent = AgentKnowledge::default();
    let new = tasks[2].id;
    let watts = |energy: &EnergyLedger| energy.watts(new, 0).unwrap();
    let untold = watts(&energy);
    let caches = CacheLedger::default();
    let mut look = |programs: &mut Programs, energy: &mut EnergyLedger, tasks: &[Task]| {
        let mut finders = Finders {
            interference: &mut AgentInterference::default(),
            caches: &caches,
            energy,
        };
        programs.now_ns += 50 * MS;
        agent.look(programs, &mut *policy, &mut finders, tasks);
        let snapshot = Snapshot {
            now_ns: programs.now_ns,
            topology: &topology,
            tasks,
        };
        policy.decide(&snapshot, &mut Vec::new());
        for task in tasks.iter().filter(|task| task.id == new) {
            policy.observe(&sample(task, 0.7, 300.0, 0.0));
        }
    };
    look(&mut programs, &mut energy, &tasks);
    look(&mut programs, &mut energy, &tasks);
    let told = watts(&energy);
    assert!((2.5..3.1).contains(&(told / untold)), "{told} {untold}");
    (0..40).for_each(|_| look(&mut programs, &mut energy, &tasks));
    assert!(programs.unlike > 0);
    assert_eq!(watts(&energy), untold);
    // All end.
    look(&mut programs, &mut energy, &[]);
    let kept: Vec<_> = programs.kept.iter().map(|of| of.profile.watts[0]).collect();
    let [Some(one), Some(two), None] = kept[..] else {
        panic!("{kept:?}");
    };
    assert!(one.factor() < 0.9 && two.factor() > 1.2, "{kept:?}");
}
