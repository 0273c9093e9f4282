// SPDX-License-Identifier: GPL-2.0-only
//! Asks the scheduler, in a thread of its own, so that the screen never waits for it.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, unbounded};

use super::app::{Question, Update};
use crate::stats::Client;

/// How long it waits before it tries again, when nobody answered.
const RETRY: Duration = Duration::from_secs(1);

struct Asker {
    socket: PathBuf,
    client: Option<Client>,
    story: Option<u32>,
    goals: bool,
    updates: Sender<Update>,
}

/// Asks at `socket` every `interval` from now on, and what comes by the channel. Ends when that is
/// dropped.
pub fn start(socket: PathBuf, interval: Duration) -> (Sender<Question>, Receiver<Update>) {
    let (questions, asked) = unbounded();
    let (updates, news) = unbounded();
    let asker = Asker {
        socket,
        client: None,
        story: None,
        goals: false,
        updates,
    };
    thread::spawn(move || asker.run(&asked, interval));
    (questions, news)
}

impl Asker {
    fn run(mut self, asked: &Receiver<Question>, interval: Duration) {
        let mut due = Instant::now();
        loop {
            match asked.recv_deadline(due) {
                Ok(question) => self.put(question),
                Err(RecvTimeoutError::Timeout) => {
                    let wait = if self.look() {
                        interval
                    } else {
                        RETRY.max(interval)
                    };
                    due = Instant::now() + wait;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Sends an answer on, or why there is none.
    fn tell(&mut self, answer: anyhow::Result<Update>) -> bool {
        let is_there = answer.is_ok();
        let update = answer.unwrap_or_else(|error| {
            self.client = None;
            Update::Gone(format!("{error:#}"))
        });
        // Who does not listen any more has left.
        let _ = self.updates.send(update);
        is_there
    }

    fn ask(&mut self, ask: impl FnOnce(&mut Client) -> anyhow::Result<Update>) -> bool {
        let answer = match &mut self.client {
            Some(client) => ask(client),
            None => {
                Client::connect(&self.socket).and_then(|client| ask(self.client.insert(client)))
            }
        };
        self.tell(answer)
    }

    fn look(&mut self) -> bool {
        let is_there = self.ask(|client| Ok(Update::Live(Box::new(client.live()?))));
        if let Some(tid) = self.story.filter(|_| is_there) {
            self.ask(|client| Ok(Update::Story(client.story(tid)?)));
        }
        if self.goals && is_there {
            self.ask(|client| Ok(Update::Goals(client.goals()?)));
        }
        is_there
    }

    fn put(&mut self, question: Question) {
        match question {
            Question::Story(tid) => {
                self.story = tid;
                if let Some(tid) = tid {
                    self.ask(|client| Ok(Update::Story(client.story(tid)?)));
                }
            }
            Question::Goals(wanted) => {
                self.goals = wanted;
                if wanted {
                    self.ask(|client| Ok(Update::Goals(client.goals()?)));
                }
            }
            Question::SetPolicy(name) => {
                self.ask(|client| Ok(Update::Said(client.set("policy", &name)?)));
            }
        }
    }
}
