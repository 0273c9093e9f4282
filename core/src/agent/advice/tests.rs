// SPDX-License-Identifier: GPL-2.0-or-later
use super::*;
use crate::advice::team::TeamTime;
use crate::advice::told::ProgramSays;
use crate::agent::{Author, Outcome};
use crate::pmu::sample::Sample;
use crate::policy::{Action, NoPolicy};
use crate::table::TaskState;
use crate::testing::{MS, board, task};

/// A clock and tasks.
struct Board {
    now_ns: u64,
    tasks: Vec<Task>,
}

impl Backend for Board {
    type Error = ();

    fn now(&self) -> u64 {
        self.now_ns
    }

    fn samples(&mut self, _: &mut Vec<Sample>) -> Result<(), ()> {
        Ok(())
    }

    fn snapshot(&mut self, tasks: &mut Vec<Task>) {
        tasks.clone_from(&self.tasks);
    }

    fn apply(&mut self, _: &[Action], _: Author, _: &mut Vec<Outcome>) -> Result<(), ()> {
        Ok(())
    }
}

impl Board {
    /// `team` threads of process 7, and `others` of 8, each on a CPU of its own, the team's first.
    fn new(team: u32, others: u32) -> Self {
        let tasks = (0..team + others).map(|n| {
            let mut task = task(n, n, usize::from(n >= 4));
            task.tgid = if n < team { 7 } else { 8 };
            task.state = TaskState::Running;
            task
        });
        Self {
            now_ns: 0,
            tasks: tasks.collect(),
        }
    }

    fn run(&mut self, agent: &mut Agent, client: &mut AdviceClient, looks: u64) {
        for _ in 0..looks {
            self.now_ns += 100 * MS;
            for task in &mut self.tasks {
                task.run_ns[task.core_type] += 100 * MS;
            }
            agent.advise(self, std::iter::once(&mut *client));
        }
    }
}

fn agent() -> Agent {
    Agent::new(board(4, 4), crate::policy::Name::None, Box::new(NoPolicy))
}

#[test]
fn a_team_beside_company_is_told_to_leave_it_its_cpus() {
    let (mut agent, mut client) = (agent(), AdviceClient::new(7));
    Board::new(8, 0).run(&mut agent, &mut client, 20);
    let advice = &client.advice;
    assert_eq!((advice.threads, advice.place.len()), (8, 8));
    assert!((advice.fast_cores - 6.0).abs() < 0.1, "{advice:?}");
    assert!(advice.company < 0.01, "{advice:?}");

    let (mut agent, mut client) = (self::agent(), AdviceClient::new(7));
    Board::new(6, 2).run(&mut agent, &mut client, 20);
    let advice = &client.advice;
    assert_eq!(advice.threads, 6, "{advice:?}");
    assert_eq!(advice.place, [0, 1, 2, 3, 4, 5]);
    assert!((advice.company - 2.0).abs() < 0.01, "{advice:?}");
}

#[test]
fn what_was_measured_counts_until_the_company_is_another() {
    let (mut agent, mut client) = (agent(), AdviceClient::new(7));
    let mut board = Board::new(8, 0);
    board.run(&mut agent, &mut client, 5);
    for (threads, rate) in [(8, 100.0), (4, 150.0)] {
        client.told.hear(ProgramSays::Time(TeamTime {
            threads,
            rate: Some(rate),
            waited: None,
        }));
    }
    board.run(&mut agent, &mut client, 5);
    assert_eq!(client.advice.threads, 4, "{:?}", client.advice);
    for n in 0..2 {
        board.tasks[n].tgid = 8;
    }
    board.run(&mut agent, &mut client, 10);
    assert!(client.told.measured().is_empty());
}

#[test]
fn threads_that_are_not_in_the_team_are_company() {
    let (mut agent, mut client) = (agent(), AdviceClient::new(7));
    let mut board = Board::new(6, 0);
    for task in &board.tasks[..4] {
        client.told.hear(ProgramSays::Member(task.tid, true));
    }
    board.run(&mut agent, &mut client, 20);
    assert!((client.advice.company - 2.0).abs() < 0.01);
}

#[test]
fn a_process_without_threads_in_the_table_is_told_what_there_is() {
    let (mut agent, mut client) = (agent(), AdviceClient::new(99));
    Board::new(0, 8).run(&mut agent, &mut client, 20);
    assert!((client.advice.company - 8.0).abs() < 0.01);
    assert_eq!(client.advice.rooms.len(), 2);
    assert!(client.advice.interference.is_none());
}

/// What two programs of four threads each are advised after 2 s, where the first lies so.
fn beside_lies(lie: impl Fn(&Board, &mut AdviceClient)) -> [AdviceClient; 2] {
    let mut agent = agent();
    let mut board = Board::new(4, 4);
    let mut clients = [AdviceClient::new(7), AdviceClient::new(8)];
    for _ in 0..20 {
        lie(&board, &mut clients[0]);
        board.now_ns += 100 * MS;
        for task in &mut board.tasks {
            task.run_ns[task.core_type] += 100 * MS;
        }
        agent.advise(&mut board, clients.iter_mut());
    }
    clients
}

#[test]
fn lies_about_groups_change_nothing_for_others() {
    let [_, honest] = beside_lies(|_, _| ());
    let [liar, other] = beside_lies(|board, client| {
        // Threads of the other process, of none, and more of these than it can have.
        let others = board.tasks[4..].iter().map(|task| task.tid);
        for tid in others.chain([0, u32::MAX]).chain(10_000..20_000) {
            client.told.hear(ProgramSays::Member(tid, true));
        }
    });
    assert_eq!(other.advice, honest.advice);
    // Of what it names nothing is its own: its threads are company to it, and so are the others.
    assert_eq!(liar.told.members(), crate::advice::told::MOST_MEMBERS);
    assert!(
        (liar.advice.company - 8.0).abs() < 0.01,
        "{:?}",
        liar.advice
    );
    assert!((1..=8).contains(&liar.advice.threads));
    assert!(liar.advice.interference.is_none());
}

#[test]
fn plausible_lies_change_what_the_liar_is_advised_and_nothing_else() {
    let [true_to_itself, honest] = beside_lies(|_, _| ());
    let time = |threads, rate| {
        ProgramSays::Time(TeamTime {
            threads,
            rate: Some(rate),
            waited: Some(0.9),
        })
    };
    // One thread is as fast as all, and more of them than there are CPUs are faster still.
    let [fast, other] = beside_lies(|_, client| {
        for (threads, rate) in [(4, 100.0), (1, 100.0), (64, 1e9), (2, f64::MAX)] {
            client.told.hear(time(threads, rate));
        }
    });
    assert_ne!(fast.advice.threads, true_to_itself.advice.threads);
    assert_eq!(other.advice, honest.advice);
    // Of its four busy threads none is in the team, for that is one which sleeps.
    let [disowning, other] = beside_lies(|board, client| {
        assert!(board.tasks.iter().all(|task| task.tid != 77));
        client.told.hear(ProgramSays::Member(77, true));
        for task in &board.tasks[..4] {
            client.told.hear(ProgramSays::Member(task.tid, false));
        }
        client.told.hear(time(8, 1.0));
    });
    assert!(disowning.advice.company > 7.9, "{:?}", disowning.advice);
    assert_eq!(other.advice, honest.advice);
    assert!((other.advice.company - 4.0).abs() < 0.01);
}
