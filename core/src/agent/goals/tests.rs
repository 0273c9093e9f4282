// SPDX-License-Identifier: GPL-2.0-or-later

use std::convert::Infallible;
use std::time::Duration;

use super::*;
use crate::agent::{Agent, Author, Outcome};
use crate::pmu::sample::Sample;
use crate::policy::{Insight, Name, Policy, Seen, Snapshot};
use crate::testing::{MS, board, task};
use crate::topology::CpuMask;

/// The session of the first place.
const FIRST: SessionPlace = SessionPlace::first(1);

/// Wants every thread that it may move on the slowest core type.
struct Down;

impl Policy for Down {
    fn interval(&self) -> Option<Duration> {
        None
    }

    fn decide(&mut self, snapshot: &Snapshot, actions: &mut Vec<Action>) {
        let free = snapshot.tasks.iter().filter(|task| !task.pinned);
        actions.extend(free.map(|task| Action::Hint(task.into(), Some(1))));
    }
}

/// Knows that threads of even slots are four times as slow on a slow core, and others as its capacity says.
struct Knows;

impl Policy for Knows {
    fn interval(&self) -> Option<Duration> {
        None
    }

    fn decide(&mut self, _: &Snapshot, _: &mut Vec<Action>) {}

    fn insight(&self, task: &Task, _: &Topology) -> Insight {
        let mut insight = Insight::default();
        insight.asymmetry[1] = task.id.slot.is_multiple_of(2).then_some(4.0);
        insight
    }
}

/// Two fast and two slow cores. Threads of process 100 have session 7, beat 30 times a second, and
/// spend `spends` fast cores for that.
struct Bench {
    now_ns: u64,
    /// Beats/s.
    target: f64,
    /// What they may use, by slot, where that is known.
    cpus: Vec<Vec<u32>>,
    tasks: Vec<Task>,
    sessions: Vec<SessionId>,
    spends: f64,
    gets_more: bool,
    allotted: Vec<(SessionPlace, Allotment)>,
    at: FxHashMap<TaskId, SessionPlace>,
    applied: Vec<(Author, Action)>,
}

impl Backend for Bench {
    type Error = Infallible;

    fn now(&self) -> u64 {
        self.now_ns
    }

    fn samples(&mut self, _: &mut Vec<Sample>) -> Result<(), Infallible> {
        Ok(())
    }

    fn snapshot(&mut self, tasks: &mut Vec<Task>) {
        tasks.clone_from(&self.tasks);
    }

    fn apply(
        &mut self,
        actions: &[Action],
        by: Author,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), Infallible> {
        for action in actions {
            if let Action::Hint(seen, to) = action {
                self.tasks[seen.task.slot as usize].hint = *to;
            }
            if let Action::Join(task, place) = action {
                self.at.insert(*task, *place);
            }
            outcomes.push(Outcome::Applied);
            self.applied.push((by, action.clone()));
        }
        Ok(())
    }

    fn allot(&mut self, session: SessionPlace, allotment: Allotment) {
        self.allotted.push((session, allotment));
    }

    fn spent_ns(&self, _: SessionPlace) -> u64 {
        (self.now_ns as f64 * self.spends) as u64
    }

    fn sessions(&mut self, sessions: &mut Vec<SessionBeats>) {
        let beats = self.now_ns * 30 / (1000 * MS);
        sessions.extend(self.sessions.iter().map(|&id| SessionBeats {
            id,
            target: TargetRate::per_second(self.target).unwrap(),
            weight: 100,
            gets_more: self.gets_more,
            heirs: SessionHeirs::Threads,
            beats,
            beat_at_ns: beats * 1000 * MS / 30,
            worked_ns: None,
        }));
    }

    fn cpus_of(&mut self, task: &Task) -> Option<CpuMask> {
        let cpus = self.cpus.get(task.id.slot as usize)?;
        Some(cpus.iter().copied().collect())
    }

    fn place_of(&self, task: TaskId) -> SessionPlace {
        self.at.get(&task).copied().unwrap_or_default()
    }

    fn session_of(&mut self, task: &Task) -> Belongs {
        match task.tgid {
            100 => Belongs::To(SessionId(7)),
            200 => Belongs::Unknown,
            _ => Belongs::ToNone,
        }
    }
}

impl Bench {
    /// Steers for so many ms, and then reads the table once.
    fn run(&mut self, agent: &mut Agent, ms: u64) -> Vec<(Author, Action)> {
        for _ in 0..ms / 50 {
            self.now_ns += 50 * MS;
            agent.steer(self);
        }
        let Ok(()) = agent.decide(self);
        take(&mut self.applied)
    }
}

fn bench(tasks: Vec<Task>, spends: f64) -> (Agent, Bench) {
    let agent = Agent::new(board(2, 2), Name::None, Box::new(Down));
    let bench = Bench {
        now_ns: 1000 * MS,
        target: 30.0,
        cpus: Vec::new(),
        tasks,
        sessions: vec![SessionId(7)],
        spends,
        gets_more: false,
        allotted: Vec::new(),
        at: FxHashMap::default(),
        applied: Vec::new(),
    };
    (agent, bench)
}

fn by_goals(applied: &[(Author, Action)]) -> Vec<&Action> {
    let those = applied.iter().filter(|(by, _)| *by == Author::Goals);
    those.map(|(_, action)| action).collect()
}

#[test]
fn threads_of_a_session_join_it_once_and_leave_it_when_it_ends() {
    let (mut agent, mut bench) = bench(vec![task(0, 0, 0), task(1, 1, 1)], 0.3);
    assert_eq!(agent.goals.due_in(), None);
    let applied = bench.run(&mut agent, 1000);
    assert_eq!(agent.goals.due_in(), Some(Duration::from_millis(50)));
    let (mine, other) = (bench.tasks[0].id, bench.tasks[1].id);
    assert_eq!(by_goals(&applied), [&Action::Join(mine, FIRST)]);
    assert_eq!(by_goals(&bench.run(&mut agent, 100)), [] as [&Action; 0]);
    let given = agent.goals.of(mine).unwrap();
    assert!((given.fast_cores - 0.3).abs() < 0.02, "{given:?}");
    assert_eq!(agent.goals.of(other), None);
    let (place, last) = *bench.allotted.last().unwrap();
    assert_eq!((place, last.gets_more), (FIRST, false));
    assert!((last.fast_cores.unwrap() - 0.3).abs() < 0.02, "{last:?}");

    bench.sessions.clear();
    let applied = bench.run(&mut agent, 50);
    assert_eq!(
        by_goals(&applied),
        [&Action::Join(mine, SessionPlace::NONE)]
    );
    assert_eq!(bench.allotted.last(), Some(&(FIRST, Allotment::default())));
    assert!(agent.goals.is_idle() && agent.goals.of(mine).is_none());
}

#[test]
fn a_thread_that_a_slow_core_is_too_slow_for_is_kept_on_a_fast_one() {
    let (mut agent, mut bench) = bench(vec![task(0, 0, 1)], 0.8);
    bench.run(&mut agent, 2000);
    let seen = Seen::from(&bench.tasks[0]);
    let applied = bench.run(&mut agent, 50);
    // The policy does not see a thread that it could move.
    assert_eq!(applied, []);
    assert_eq!(bench.tasks[0].hint, Some(0));
    let told = &agent.moves.told(seen.task, bench.now_ns)[0];
    assert_eq!((told.from, told.to), (1, 0));
    assert!(told.why.starts_with("sent: goal: "), "{}", told.why);

    // Two threads share it, for each of which a slow core will do. As it may have more, they are not kept together.
    bench.gets_more = true;
    bench.tasks.push(task(1, 1, 1));
    bench.tasks[1].tgid = 100;
    let back = Action::Hint(seen, None);
    let applied: Vec<_> = (0..10).flat_map(|_| bench.run(&mut agent, 50)).collect();
    assert!(by_goals(&applied).contains(&&back), "{applied:?}");
    assert_eq!(bench.tasks[0].hint, Some(1));
}

/// They may wait for each other.
#[test]
fn threads_that_share_a_session_are_kept_on_fast_cores_as_long_as_they_fit_there() {
    let mut tasks: Vec<_> = (0..8).map(|slot| task(slot, slot % 4, 1)).collect();
    tasks.iter_mut().for_each(|task| task.tgid = 100);
    // To each a slow core is enough, by itself.
    let (mut agent, mut bench) = bench(tasks, 0.8);
    bench.run(&mut agent, 2000);
    bench.run(&mut agent, 50);
    assert!(bench.tasks.iter().all(|task| task.hint == Some(0)));
    // Else the policy has them, which wants them on slow cores.
    let mut left_to_policy = |spends: f64, gets_more: bool| {
        (bench.spends, bench.gets_more) = (spends, gets_more);
        bench.now_ns += 10_000 * MS;
        (0..40).for_each(|_| drop(bench.run(&mut agent, 50)));
        bench.tasks.iter().all(|task| task.hint == Some(1))
    };
    assert!(left_to_policy(2.6, false));
    assert!(!left_to_policy(0.8, false));
    assert!(left_to_policy(0.8, true));
}

/// Each has all of the allotment in its turn.
#[test]
fn threads_that_run_one_after_another_are_kept_on_a_fast_core() {
    let mut tasks: Vec<_> = (0..4).map(|slot| task(slot, slot % 2, 1)).collect();
    tasks.iter_mut().for_each(|task| task.tgid = 100);
    let (mut agent, mut bench) = bench(tasks, 0.8);
    for look in 0..40 {
        for (slot, task) in bench.tasks.iter_mut().enumerate() {
            task.state = match look % 4 == slot {
                true => TaskState::Running,
                false => TaskState::Blocked,
            };
            task.run_ns[1] += 10 * MS;
        }
        bench.run(&mut agent, 50);
    }
    assert!(bench.tasks.iter().all(|task| task.hint == Some(0)));
}

#[test]
fn where_no_cpu_is_idle_it_trades_places_with_the_one_that_has_got_furthest() {
    let on = [(0, 0), (1, 0), (2, 1), (3, 1)];
    let mut tasks: Vec<_> = on.map(|(slot, kind)| task(slot, slot, kind)).into();
    for (task, progress) in tasks.iter_mut().zip([5, 7, 9, 1]) {
        (task.amp_progress, task.tgid) = (progress, 300 + task.id.slot);
    }
    tasks[3].tgid = 100;
    let (mut agent, mut bench) = bench(tasks, 0.8);
    let applied = bench.run(&mut agent, 2000);
    let [mine, other] = [3, 1].map(|slot| Seen::from(&bench.tasks[slot]));
    let trade = Action::Swap([(mine, 0), (other, 1)]);
    assert!(by_goals(&applied).contains(&&trade), "{applied:?}");
    // A CPU is idle there.
    bench.tasks[1].state = TaskState::Blocked;
    let applied = bench.run(&mut agent, 50);
    let trades = |action: &&&Action| matches!(action, Action::Swap(_));
    assert_eq!(by_goals(&applied).iter().filter(trades).count(), 0);
}

#[test]
fn a_rule_goes_before_a_goal() {
    let mut pinned = task(0, 0, 1);
    pinned.pinned = true;
    let (mut agent, mut bench) = bench(vec![pinned], 0.8);
    let applied = bench.run(&mut agent, 2000);
    assert_eq!(by_goals(&applied), [&Action::Join(pinned.id, FIRST)]);
}

#[test]
fn a_place_is_had_again_at_once_by_another_name() {
    let (mut agent, mut bench) = bench(vec![task(0, 0, 0)], 0.3);
    bench.run(&mut agent, 100);
    bench.sessions = vec![SessionId(8)];
    bench.now_ns += 50 * MS;
    agent.steer(&mut bench);
    let again = bench.allotted.last().unwrap().0;
    assert_eq!(again, FIRST.next());
    // It still says that it belongs to the one before.
    let applied = bench.run(&mut agent, 50);
    let leaves = Action::Join(bench.tasks[0].id, SessionPlace::NONE);
    assert_eq!(by_goals(&applied), [&leaves]);
}

#[test]
fn what_was_born_in_a_session_stays_there_until_it_is_looked_up() {
    let (mut agent, mut bench) = bench(vec![task(0, 0, 0), task(1, 1, 1)], 0.3);
    bench.run(&mut agent, 100);
    bench.tasks[1].tgid = 200;
    let born = bench.tasks[1].id;
    bench.at.insert(born, FIRST);
    assert_eq!(by_goals(&bench.run(&mut agent, 50)), [] as [&Action; 0]);
    assert_eq!(agent.goals.of(born).unwrap().session, SessionId(7));
    bench.tasks[1].tgid = 300;
    let leaves = Action::Join(born, SessionPlace::NONE);
    assert_eq!(by_goals(&bench.run(&mut agent, 50)), [&leaves]);
    assert_eq!(agent.goals.of(born), None);
}

#[test]
fn sessions_beyond_the_places_there_are_get_nothing() {
    let (mut agent, mut bench) = bench(vec![task(0, 0, 0)], 0.3);
    bench.sessions = (0..2000).rev().map(SessionId).collect();
    agent.steer(&mut bench);
    assert_eq!(bench.allotted.len(), MAX_SESSIONS);
    let places = bench.allotted.iter().map(|(place, _)| place.place());
    assert_eq!(
        (places.clone().min(), places.max()),
        (Some(1), Some(MAX_SESSIONS))
    );
}

/// Sessions that come and go between two looks at the table, before any thread is known to be theirs.
#[test]
fn places_that_were_left_are_had_again_though_no_thread_ever_joined() {
    let (mut agent, mut bench) = bench(Vec::new(), 0.3);
    for id in 0..3 * MAX_SESSIONS as u64 {
        bench.sessions = vec![SessionId(id)];
        agent.steer(&mut bench);
        let (place, allotment) = *bench.allotted.last().unwrap();
        assert!(
            allotment.fast_cores.is_some(),
            "session {id} has no place, but {place:?}"
        );
        bench.sessions.clear();
        bench.run(&mut agent, 50);
    }
}

/// A fast CPU and a slow one, half as fast.
#[test]
fn a_session_gets_no_more_than_the_cpus_have_that_its_threads_may_use() {
    let mut tasks: Vec<_> = (0..4).map(|slot| task(slot, slot % 2, 1)).collect();
    tasks.iter_mut().for_each(|task| task.tgid = 100);
    let (mut agent, mut bench) = bench(tasks, 1.3);
    bench.target = 60.0;
    let slow = f64::from(agent.topology.types[1].capacity) / 1024.0;
    let mut told = |bench: &mut Bench| {
        (0..60).for_each(|_| drop(bench.run(&mut agent, 50)));
        *agent.goals.of(bench.tasks[0].id).unwrap()
    };
    // Nothing is known: all of the machine counts.
    let state = told(&mut bench);
    assert!(state.fast_cores >= 2.6, "{state:?}");
    // Two threads are on a CPU each, and no thread may be elsewhere.
    bench.cpus = vec![vec![0], vec![2], vec![0, 2], vec![0, 2]];
    let state = told(&mut bench);
    assert!((state.fast_cores - 1.0 - slow).abs() < 0.01, "{state:?}");
    let Some(Miss::Cpus { lacks }) = state.miss else {
        panic!("{state:?}");
    };
    assert!(
        (lacks - state.demand + 1.0 + slow).abs() < 0.05,
        "{state:?}"
    );
    // One may again.
    bench.cpus[3] = vec![0, 1, 2, 3];
    let state = told(&mut bench);
    assert!(state.fast_cores >= 2.6, "{state:?}");
}

#[test]
fn threads_are_kept_together_on_the_fast_cpus_that_they_may_use() {
    let mut tasks: Vec<_> = (0..3).map(|slot| task(slot, slot, 1)).collect();
    tasks.iter_mut().for_each(|task| task.tgid = 100);
    let (mut agent, mut bench) = bench(tasks, 1.2);
    let mut are_together = |bench: &mut Bench| {
        (0..60).for_each(|_| drop(bench.run(&mut agent, 50)));
        bench.tasks.iter().all(|task| task.hint == Some(0))
    };
    assert!(are_together(&mut bench));
    bench.cpus = vec![vec![0, 2, 3]; 3];
    assert!(!are_together(&mut bench));
    bench.spends = 0.8;
    bench.now_ns += 10_000 * MS;
    assert!(are_together(&mut bench));
}

/// Each is worth half a fast core by its capacity.
#[test]
fn slow_cores_count_for_what_threads_with_goals_do_there() {
    let mut tasks: Vec<_> = (0..4)
        .map(|slot| task(slot, slot, slot as usize / 2))
        .collect();
    tasks.iter_mut().for_each(|task| task.tgid = 100);
    let (_, mut bench) = bench(tasks, 2.0);
    let mut agent = Agent::new(board(2, 2), Name::None, Box::new(Knows));
    bench.target = 100.0;
    // Each thread is on that core type, or on none.
    let mut given = |kinds: [Option<usize>; 4]| {
        for _ in 0..60 {
            for (task, kind) in bench.tasks.iter_mut().zip(kinds) {
                if let Some(kind) = kind {
                    task.core_type = kind;
                    task.run_ns[kind] += 50 * MS;
                }
            }
            bench.run(&mut agent, 50);
        }
        agent.goals.of(bench.tasks[0].id).unwrap().fast_cores
    };
    let near = |given: f64, expected: f64| (given - expected).abs() < 0.01;
    let (on_fast, on_slow) = (Some(0), Some(1));
    for (kinds, expected) in [
        ([on_fast, on_fast, None, None], 3.0),
        ([on_fast, on_fast, on_slow, on_slow], 2.0 + 0.25 + 0.5),
        ([on_slow, on_fast, on_slow, on_fast], 2.0 + 0.25 + 0.25),
        ([on_fast, on_slow, on_fast, on_slow], 2.0 + 0.5 + 0.5),
    ] {
        let given = given(kinds);
        assert!(near(given, expected), "{given} of {expected}: {kinds:?}");
    }
}
