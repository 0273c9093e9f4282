// SPDX-License-Identifier: GPL-2.0-only
//! Programs are looked up by a thread of their own. To read a command line is to wait for the lock of the process's
//! memory, and what has that may wait for a file server, also one of the user's own (FUSE): for good.

use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use crossbeam::channel::{Receiver, Sender, bounded};

use super::process::{FoundProgram, ProcessLookup, owner};
use crate::connections::CountedUsers;

/// One that takes longer is left behind. Less might be for want of a CPU, at the lowest priority.
const LONGEST: Duration = Duration::from_secs(3);

/// Threads that are left behind; so many for processes of one user.
const LATE: usize = 8;
const LATE_OF_A_USER: usize = 4;

/// One that was late counts for so long, also if it came back: else a user could have others wait all the time.
const COUNTS: Duration = Duration::from_secs(60);

/// After a look-up it rests for so many times as long as that took, but no longer than [`REST`].
const REST_TIMES: u32 = 10;
const REST: Duration = Duration::from_millis(20);

/// Of each thread, bytes.
const STACK: usize = 256 << 10;

/// How one is looked up.
type LookUp = fn(&mut ProcessLookup, u32) -> Result<FoundProgram>;

#[derive(Debug)]
struct LookupThread {
    ask: Sender<u32>,
    found: Receiver<Result<FoundProgram>>,
    thread: JoinHandle<()>,
}

impl LookupThread {
    /// It has the scheduling policy of the one that starts it.
    fn start(look_up: LookUp) -> Result<Self> {
        let (ask, asked) = bounded(1);
        let (find, found) = bounded(1);
        let serve = move || {
            let mut lookup = ProcessLookup::default();
            for tgid in asked {
                let began = Instant::now();
                if find.send(look_up(&mut lookup, tgid)).is_err() {
                    break;
                }
                sleep((REST_TIMES * began.elapsed()).min(REST));
            }
        };
        let thread = Builder::new().name("know".into()).stack_size(STACK);
        Ok(Self {
            ask,
            found,
            thread: thread.spawn(serve)?,
        })
    }
}

/// A look-up that was left behind.
#[derive(Debug)]
struct LateLookup {
    tgid: u32,
    user: Option<u32>,
    at: Instant,
    thread: JoinHandle<()>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Lookups {
    look_up: LookUp,
    longest: Duration,
    thread: Option<LookupThread>,
    late: Vec<LateLookup>,
}

impl Lookups {
    pub(super) fn new(look_up: LookUp) -> Self {
        Self {
            look_up,
            longest: LONGEST,
            thread: None,
            late: Vec::new(),
        }
    }

    /// The program that a process runs.
    ///
    /// # Errors
    /// It has ended, its executable is none that may be read, or it cannot be found out in time.
    pub(super) fn of(&mut self, tgid: u32, users: &CountedUsers) -> Result<FoundProgram> {
        let user = owner(tgid).ok().map(|uid| users.of(uid));
        self.late
            .retain(|of| !of.thread.is_finished() || of.at.elapsed() < COUNTS);
        let of_user = self.late.iter().filter(|of| of.user == user).count();
        ensure!(
            self.late.len() < LATE
                && of_user < LATE_OF_A_USER
                && self.late.iter().all(|of| of.tgid != tgid),
            "too much that was asked for does not come"
        );
        let thread = match self.thread.take() {
            Some(thread) => thread,
            None => LookupThread::start(self.look_up)?,
        };
        thread.ask.send(tgid)?;
        if let Ok(found) = thread.found.recv_timeout(self.longest) {
            self.thread = Some(thread);
            return found;
        }
        self.late.push(LateLookup {
            tgid,
            user,
            at: Instant::now(),
            thread: thread.thread,
        });
        Err(anyhow!("it does not come in time, and is left behind"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    static GATE: Mutex<()> = Mutex::new(());

    /// Processes that are not there hang.
    fn look_up(lookup: &mut ProcessLookup, tgid: u32) -> Result<FoundProgram> {
        if tgid > u32::MAX / 2 {
            let _waits = GATE.lock().unwrap_or_else(PoisonError::into_inner);
        }
        lookup.of(tgid)
    }

    #[test]
    fn what_hangs_is_left_behind_and_others_are_looked_up() {
        let users = CountedUsers::of_lines("");
        let mut lookups = Lookups::new(look_up);
        let own = std::process::id();
        let gate = GATE.lock().unwrap();
        for hangs in 0..2 * LATE_OF_A_USER as u32 {
            lookups.longest = Duration::from_millis(1);
            // The same again is not asked for.
            for tgid in [u32::MAX - hangs; 2] {
                assert!(lookups.of(tgid, &users).is_err());
            }
            lookups.longest = Duration::MAX;
            assert!(lookups.of(own, &users).is_ok());
        }
        assert_eq!(lookups.late.len(), LATE_OF_A_USER);
        drop(gate);
        for late in lookups.late.drain(..) {
            late.thread.join().unwrap();
        }
        assert!(lookups.of(own, &users).is_ok());
    }
}
