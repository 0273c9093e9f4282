// SPDX-License-Identifier: GPL-2.0-or-later

use std::time::Duration;

use super::*;
use crate::policy::Seen;
use crate::record::Encoder;
use crate::table::TaskState;
use crate::testing::{MS, board, sample, task};

/// Wants each thread on the fastest core type, and tells how many samples it was shown.
struct Up {
    samples: usize,
    /// How often another decided.
    rests: u64,
    every: Duration,
}

impl Default for Up {
    fn default() -> Self {
        Self {
            samples: 0,
            rests: 0,
            every: Duration::from_millis(50),
        }
    }
}

impl Policy for Up {
    fn interval(&self) -> Option<Duration> {
        Some(self.every)
    }

    fn observe(&mut self, _: &Sample) {
        self.samples += 1;
    }

    fn decide(&mut self, snapshot: &Snapshot, actions: &mut Vec<Action>) {
        let free = snapshot.tasks.iter().filter(|task| !task.pinned);
        actions.extend(free.map(|task| Action::Hint(task.into(), Some(0))));
    }

    fn rest(&mut self, _: &Snapshot) {
        self.rests += 1;
    }

    fn tally(&self) -> crate::policy::PolicyTally {
        crate::policy::PolicyTally {
            nwc_episodes: self.rests,
            phase_hits: self.samples as u64,
            ..Default::default()
        }
    }
}

/// Does as it is told, and notes that.
#[derive(Default)]
struct Bench {
    /// After 500 ms.
    now_ns: u64,
    tasks: Vec<Task>,
    samples: Vec<Sample>,
    applied: Vec<(Author, Action)>,
    verdict: Option<Verdict>,
    recording: Option<Encoder>,
    /// What becomes of actions, in turn; then it fails.
    outcomes: Vec<Outcome>,
}

impl Backend for Bench {
    type Error = &'static str;

    fn now(&self) -> u64 {
        500 * MS + self.now_ns
    }

    fn samples(&mut self, samples: &mut Vec<Sample>) -> Result<(), Self::Error> {
        samples.append(&mut self.samples);
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
    ) -> Result<(), Self::Error> {
        for action in actions {
            if self.outcomes.is_empty() {
                return Err("the end");
            }
            outcomes.push(self.outcomes.remove(0));
            self.applied.push((by, action.clone()));
        }
        Ok(())
    }

    fn verdict(&mut self, task: &Task) -> Option<Verdict> {
        self.verdict.filter(|_| task.id.slot == 0)
    }

    fn recording(&mut self) -> Option<&mut Encoder> {
        self.recording.as_mut()
    }
}

fn bench(tasks: &[Task]) -> (Agent, Bench) {
    let agent = Agent::new(board(2, 2), Name::None, Box::new(Up::default()));
    let bench = Bench {
        tasks: tasks.to_vec(),
        outcomes: vec![Outcome::Applied; 100],
        ..Bench::default()
    };
    (agent, bench)
}

#[test]
fn samples_are_shown_once_and_recorded() {
    let (mut agent, mut bench) = bench(&[]);
    bench.recording = Some(Encoder::default());
    let before = bench.recording.as_ref().unwrap().pending();
    bench.samples = vec![sample(&task(0, 0, 0), 1.0, 0.0, 0.0); 3];
    agent.take_samples(&mut bench).unwrap();
    assert_eq!(
        (agent.policy().tally().phase_hits, agent.samples().len()),
        (3, 3)
    );
    assert!(bench.recording.as_ref().unwrap().pending() > before);
    agent.take_samples(&mut bench).unwrap();
    assert_eq!(
        (agent.policy().tally().phase_hits, agent.samples().len()),
        (3, 0)
    );
}

#[test]
fn rules_come_first_and_neither_theirs_nor_its_own_threads_are_the_policys() {
    let tasks = [task(0, 0, 1), task(1, 7, 1), task(2, 1, 1)];
    let (mut agent, mut bench) = bench(&tasks);
    agent.own = Some(tasks[1].tgid);
    agent.rules.renew(true);
    bench.verdict = Some(Verdict {
        place: Place::Prefer(0),
        weight: WEIGHT_ONE,
    });
    agent.decide(&mut bench).unwrap();
    let hint = |place: usize| Action::Hint(Seen::from(&tasks[place]), Some(0));
    let [ruled, decided] = [(Author::Rules, hint(0)), (Author::Policy, hint(2))];
    assert_eq!(bench.applied, [ruled, decided]);
    let seen: Vec<u32> = agent.tasks().iter().map(|task| task.id.slot).collect();
    assert_eq!(seen, [0, 2]);
    // People see all of them.
    agent.look(&mut bench);
    assert_eq!(agent.tasks(), tasks);
}

#[test]
fn an_old_table_is_read_again_and_a_new_one_is_not() {
    let (mut agent, mut bench) = bench(&[task(0, 0, 0)]);
    let age = Duration::from_millis(200);
    let mut seen = |bench: &mut Bench, passed: u64| {
        bench.now_ns += passed * MS;
        bench.tasks.push(task(bench.tasks.len() as u32, 1, 1));
        agent.look_again(bench, age);
        agent.tasks().len()
    };
    assert_eq!(seen(&mut bench, 0), 2);
    assert_eq!(seen(&mut bench, 199), 2);
    assert_eq!(seen(&mut bench, 1), 4);
}

#[test]
fn while_energy_is_saved_the_policy_is_asked_when_efficient_cores_do_not_suffice() {
    let mut tasks = [task(0, 0, 0), task(1, 1, 1), task(2, 2, 1)];
    tasks[0].hint = Some(0);
    let (mut agent, mut bench) = bench(&tasks);
    agent.saves = true;
    agent.decide(&mut bench).unwrap();
    assert_eq!(bench.applied.len(), 3);
    bench.applied.clear();
    bench.tasks[2].state = TaskState::Blocked;
    agent.decide(&mut bench).unwrap();
    let back = Action::Hint(Seen::from(&tasks[0]), None);
    assert_eq!(bench.applied, [(Author::Policy, back)]);
    assert_eq!(agent.policy().tally().nwc_episodes, 1);
}

#[test]
fn what_became_of_actions_is_counted_even_if_the_backend_fails_then() {
    let tasks = [task(0, 0, 1), task(1, 1, 1), task(2, 2, 1), task(3, 3, 1)];
    let (mut agent, mut bench) = bench(&tasks);
    bench.outcomes = vec![Outcome::Applied, Outcome::Stale, Outcome::Refused];
    assert_eq!(agent.decide(&mut bench), Err("the end"));
    let Applied {
        applied,
        stale,
        refused,
    } = agent.applied();
    assert_eq!((applied, stale, refused), (1, 1, 1));
    assert_eq!(tasks.map(|task| agent.moves.of(task.id)), [1, 0, 0, 0]);
    bench.tasks.clear();
    agent.look(&mut bench);
    agent.forget_the_gone();
    assert_eq!(agent.moves.of(tasks[0].id), 0);
}

#[test]
fn another_policy_begins_without_the_wishes_of_the_one_before() {
    let mut tasks = [task(0, 0, 0), task(1, 1, 1), task(2, 7, 1)];
    tasks[1].hint = Some(0);
    tasks[2].hint = Some(0);
    let (mut agent, mut bench) = bench(&tasks);
    agent.own = Some(tasks[2].tgid);
    agent
        .set_policy(&mut bench, Name::Rr, &Settings::default())
        .unwrap();
    assert_eq!(agent.name(), Name::Rr);
    let actions: Vec<Action> = bench
        .applied
        .into_iter()
        .map(|(_, action)| action)
        .collect();
    let [zero, one] = [0, 1].map(|place: usize| &tasks[place]);
    let inverse = |action: &Action| match action {
        Action::Slowdown(task, inverse) => Some((*task, inverse[1] < inverse[0])),
        _ => None,
    };
    assert_eq!(actions.len(), 3);
    assert_eq!(inverse(&actions[0]), Some((zero.id, true)));
    assert_eq!(actions[1], Action::Hint(one.into(), None));
    assert_eq!(inverse(&actions[2]), Some((one.id, true)));
    let due = agent.due_in(0);
    assert_eq!(due, agent.policy().interval());
}

#[test]
fn rules_are_looked_at_between_the_turns_of_a_policy_that_decides_rarely() {
    let tasks = [task(0, 0, 1)];
    let (mut agent, mut bench) = bench(&tasks);
    let every = Duration::from_secs(10);
    let up = Up {
        every,
        ..Up::default()
    };
    agent.replace_policy(Name::None, Box::new(up));
    assert_eq!(agent.due_in(bench.now()), Some(every));
    agent.rules.renew(true);
    let (mut looks, mut turns) = (0, 0);
    while bench.now_ns < 30_000 * MS {
        agent.decide(&mut bench).unwrap();
        turns += std::mem::take(&mut bench.applied).len();
        bench.outcomes = vec![Outcome::Applied; 100];
        let due = agent.due_in(bench.now()).unwrap();
        assert!(due <= ruled::LOOK && !due.is_zero(), "{due:?}");
        bench.now_ns += due.as_nanos() as u64;
        looks += 1;
    }
    assert_eq!((turns, looks), (3, 120));
}
