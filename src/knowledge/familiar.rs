// SPDX-License-Identifier: GPL-2.0-only
//! The agent's side: asks, takes answers, hands on what was found. It waits for nothing, and what finds no room
//! is dropped.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use hetero_core::knowledge::{Remembered, ThreadFinding, ThreadProfile};
use log::{info, warn};
use rustc_hash::{FxHashMap, FxHashSet};

use super::service::{KnowledgeService, ToService};
use super::store::StoredMachine;
use crate::connections::join_in_time;
use crate::table::{Comm, Task};

/// Questions and answers that may wait.
const WAITING: usize = 256;

/// Of the thread that knows, bytes: SQLite and files of JSON take their part, and all of it is locked.
const STACK: usize = 512 << 10;

/// Programs that a word is said of because they behave unlike before; after so many, none.
const SAID: usize = 64;

/// What is known of a process's program.
pub(super) struct KnownProcess {
    pub(super) tgid: u32,
    pub(super) known: Option<ThreadProfile>,
}

#[derive(Debug)]
struct Process {
    /// Name of its first thread when it was asked for: another one may mean another program.
    comm: Comm,
    /// The outer one once there is an answer.
    known: Option<Option<ThreadProfile>>,
}

/// See the module.
pub(crate) struct Familiar {
    /// Whose core types this is about.
    pub(crate) machine: String,
    to: Sender<ToService>,
    answers: Receiver<KnownProcess>,
    processes: FxHashMap<u32, Process>,
    /// Kept for its memory.
    alive: FxHashSet<u32>,
    /// Names of programs that behaved unlike before.
    said: FxHashSet<[u8; 16]>,
    thread: Option<JoinHandle<KnowledgeService>>,
    /// Answers are not waited for any longer.
    ends: Arc<AtomicBool>,
}

impl Familiar {
    /// Starts the thread that knows. `None` where none can be started.
    pub(crate) fn start(path: &Path, machine: String) -> Option<Self> {
        let (to, messages) = bounded(WAITING);
        let (answer, answers) = bounded(WAITING);
        let path = path.to_path_buf();
        let name = machine.clone();
        let ends = Arc::new(AtomicBool::new(false));
        let told = ends.clone();
        let serve = move || KnowledgeService::open(&path, &name).run(&messages, &answer, &told);
        match builder().spawn(serve) {
            Ok(thread) => Some(Self {
                machine,
                to,
                answers,
                processes: FxHashMap::default(),
                alive: FxHashSet::default(),
                said: FxHashSet::default(),
                thread: Some(thread),
                ends,
            }),
            Err(error) => {
                warn!("nothing is known of programs: cannot start a thread ({error})");
                None
            }
        }
    }

    /// What is known of the program that a thread runs.
    pub(crate) fn remembered(&mut self, task: &Task) -> Remembered<'_> {
        for KnownProcess { tgid, known } in self.answers.try_iter() {
            if let Some(process) = self.processes.get_mut(&tgid) {
                process.known = Some(known);
            }
        }
        let is_other = |of: &Process| task.tid == task.tgid && of.comm != task.comm;
        if self.processes.get(&task.tgid).is_none_or(is_other) {
            match self.to.try_send(ToService::WhoIs(task.tgid)) {
                Err(TrySendError::Disconnected(_)) => return Remembered::Nothing,
                // It has too much to do: at the next look.
                Err(TrySendError::Full(_)) => return Remembered::Later,
                Ok(()) => {}
            }
            let (comm, known) = (task.comm, None);
            self.processes.insert(task.tgid, Process { comm, known });
        }
        let process = self.processes.get(&task.tgid);
        match process.and_then(|process| process.known.as_ref()) {
            None => Remembered::Later,
            Some(Some(known)) => Remembered::Known(known),
            Some(None) => Remembered::Nothing,
        }
    }

    /// Hands on what is known of the machine itself.
    pub(crate) fn tell(&mut self, machine: StoredMachine) {
        let _ = self.to.try_send(ToService::Machine(machine));
    }

    /// Hands on what was found of a thread.
    pub(crate) fn keep(&mut self, task: &Task, found: &ThreadFinding) {
        let _ = self.to.try_send(ToService::Found(*task, *found));
    }

    /// Says that a thread behaves unlike its program did, once for each name.
    pub(crate) fn say_unlike(&mut self, task: &Task) {
        if self.said.len() < SAID && self.said.insert(task.comm.0) {
            info!(
                "{} (process {}) behaves unlike its earlier runs: what was known of it is not used",
                task.comm, task.tgid
            );
        }
    }

    /// Forgets processes that are gone.
    pub(crate) fn retain(&mut self, tasks: &[Task]) {
        self.alive.clear();
        self.alive.extend(tasks.iter().map(|task| task.tgid));
        let alive = &self.alive;
        self.processes.retain(|tgid, _| alive.contains(tgid));
    }
}

/// What was found so far is written.
impl Drop for Familiar {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let (never, _) = bounded(0);
        drop(std::mem::replace(&mut self.to, never));
        let Some(thread) = self.thread.take() else {
            return;
        };
        // By another thread: that one may hardly get to it, and the disk may be slow.
        let finish = move || {
            if let Ok(service) = thread.join() {
                service.finish();
            }
        };
        match builder().spawn(finish) {
            Ok(finishes) => _ = join_in_time(finishes),
            Err(error) => {
                warn!(
                    "what was found of programs in the last minute is lost: cannot start a thread ({error})"
                );
            }
        }
    }
}

fn builder() -> thread::Builder {
    thread::Builder::new().name("know".into()).stack_size(STACK)
}
