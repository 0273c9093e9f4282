// SPDX-License-Identifier: GPL-2.0-only
//! The agent's side: asks, takes answers, hands on what was found. It waits for nothing while it schedules; what finds
//! no room is tried again.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

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

/// What is found at the end waits so long for room, all together.
const LAST: Duration = Duration::from_secs(1);

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
    /// When that was its leader and began: another time means another process. Else 0.
    started: u64,
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
    /// Findings wait for room until then, at the end.
    until: Option<Instant>,
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
                until: None,
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
        let leads = task.tid == task.tgid;
        let is_later = |of: &Process| of.started != 0 && of.started != task.start_time;
        let is_other = |of: &Process| leads && (of.comm != task.comm || is_later(of));
        if self.processes.get(&task.tgid).is_none_or(is_other) {
            match self.to.try_send(ToService::WhoIs(task.tgid)) {
                Err(TrySendError::Disconnected(_)) => return Remembered::Nothing,
                // It has too much to do: at the next look.
                Err(TrySendError::Full(_)) => return Remembered::Later,
                Ok(()) => {}
            }
            let process = Process {
                comm: task.comm,
                started: if leads { task.start_time } else { 0 },
                known: None,
            };
            self.processes.insert(task.tgid, process);
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

    /// Hands on what was found of a thread. False where there is no room for it now.
    pub(crate) fn keep(&mut self, task: &Task, found: &ThreadFinding) -> bool {
        let message = ToService::Found(*task, *found);
        // After a restart the agent schedules again.
        match self.until.filter(|&until| Instant::now() < until) {
            Some(until) => self.to.send_deadline(message, until).is_ok(),
            None => !matches!(self.to.try_send(message), Err(TrySendError::Full(_))),
        }
    }

    /// From now on what finds no room waits for it, a while for all together. For the end, when no tasks wait for the
    /// agent.
    pub(crate) fn wait_for_room(&mut self) {
        self.until = Some(Instant::now() + LAST);
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

#[cfg(test)]
mod tests {
    use super::*;
    use hetero_core::testing::task;

    fn familiar() -> (Familiar, Receiver<ToService>, Sender<KnownProcess>) {
        let (to, messages) = bounded(2);
        let (answer, answers) = bounded(2);
        let familiar = Familiar {
            machine: String::new(),
            to,
            answers,
            processes: FxHashMap::default(),
            alive: FxHashSet::default(),
            said: FxHashSet::default(),
            thread: None,
            ends: Arc::default(),
            until: None,
        };
        (familiar, messages, answer)
    }

    #[test]
    fn a_number_that_is_given_out_again_is_asked_for_again() {
        let (mut familiar, messages, answer) = familiar();
        let mut leader = task(0, 0, 0);
        leader.start_time = 5;
        let thread = Task {
            tid: leader.tid + 1,
            start_time: 6,
            ..leader
        };
        let mut asks = |task: &Task| {
            let known = familiar.remembered(task);
            assert!(matches!(known, Remembered::Later | Remembered::Nothing));
            messages.try_iter().count()
        };
        assert_eq!([asks(&leader), asks(&leader), asks(&thread)], [1, 0, 0]);
        let (tgid, known) = (leader.tgid, None);
        answer.send(KnownProcess { tgid, known }).unwrap();
        assert_eq!(asks(&leader), 0);
        leader.start_time = 7;
        assert_eq!([asks(&leader), asks(&leader)], [1, 0]);
    }

    #[test]
    fn what_finds_no_room_is_said_and_waits_for_it_only_at_the_end() {
        let (mut familiar, messages, _answer) = familiar();
        let (task, found) = (task(0, 0, 0), ThreadFinding::default());
        let keep = |familiar: &mut Familiar| familiar.keep(&task, &found);
        let taken = [(); 3].map(|()| keep(&mut familiar));
        assert_eq!(taken, [true, true, false]);
        familiar.until = Some(Instant::now());
        assert!(!keep(&mut familiar), "that is over");
        familiar.until = Some(Instant::now() + Duration::from_secs(3600));
        let reads = thread::spawn(move || messages.iter().count());
        let taken = [(); 20].map(|()| keep(&mut familiar));
        assert_eq!(taken, [true; 20]);
        drop(familiar);
        assert_eq!(reads.join().unwrap(), 22);
    }
}
