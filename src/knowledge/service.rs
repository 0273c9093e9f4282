// SPDX-License-Identifier: GPL-2.0-only
//! The thread that knows programs: in memory, and once a minute on disk. It may wait for the disk, and a while for a
//! look-up; nothing waits for it.

use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender};
use hetero_core::knowledge::{ProgramFindings, ThreadFinding, ThreadProfile};
use log::{debug, info, warn};
use rustc_hash::{FxHashMap, FxHashSet};

use super::familiar::KnownProcess;
use super::lookups::Lookups;
use super::process::{ProcessLookup, ProgramKey};
use super::store::{KnowledgeStore, OF_A_USER, PROGRAMS, StoredMachine, StoredProgram};
use crate::connections::CountedUsers;
use crate::scheduler::priority::run_when_idle;
use crate::table::Task;

/// What a sudden end loses at the most.
const SAVE: Duration = Duration::from_secs(60);

/// A thread that lives says so each minute. One that has not for so long is gone, s.
const SILENT: i64 = 150;

/// Threads that are told apart while they live: so many of all programs, of 2.5 KB each.
const LIVING: usize = 4096;

/// Processes that are known by number. When they are more, those that have ended are forgotten.
const PROCESSES: usize = 4096;

/// What a program that is only like another says: so many times the variance.
const VAGUE: f64 = 4.0;

/// What the thread is told.
#[expect(
    clippy::large_enum_variant,
    reason = "the agent, which sends it, allocates nothing"
)]
pub(super) enum ToService {
    /// Which program does this process run, and what is known of it?
    WhoIs(u32),
    /// What was found of a thread.
    Found(Task, ThreadFinding),
    /// What is known of the machine.
    Machine(StoredMachine),
}

#[derive(Debug)]
struct ServedProgram {
    /// As it is to be stored; what is known of it is `findings`'.
    program: StoredProgram,
    findings: ProgramFindings,
    dirty: bool,
}

impl ServedProgram {
    fn new(program: StoredProgram) -> Self {
        Self {
            findings: program.known.clone().into(),
            program,
            dirty: false,
        }
    }

    /// What its next thread is expected to be like.
    fn recollect(&self) -> Option<ThreadProfile> {
        match self.findings.living() {
            0 => self.findings.settled().recollect(),
            _ => self.findings.known().recollect(),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct KnowledgeService {
    path: PathBuf,
    /// As the store calls it.
    machine: String,
    store: Option<KnowledgeStore>,
    /// What is known of the machine, until it is written.
    about: Option<StoredMachine>,
    programs: FxHashMap<ProgramKey, ServedProgram>,
    processes: FxHashMap<u32, ProgramKey>,
    lookups: Lookups,
    users: CountedUsers,
    /// Threads that are told apart, see [`LIVING`].
    living: usize,
    /// Between two times that it writes.
    every: Duration,
    /// Threads live and end by the clock that starts here, and is never set.
    began: Instant,
    /// That nothing can be written was said.
    complained: bool,
}

impl KnowledgeService {
    /// With what the store knows of programs of a machine called so. Without a store it knows nothing at first,
    /// and keeps nothing until there is one.
    pub(super) fn open(path: &Path, machine: &str) -> Self {
        let mut service = Self {
            path: path.to_path_buf(),
            machine: machine.into(),
            store: None,
            about: None,
            users: CountedUsers::here(),
            programs: FxHashMap::default(),
            processes: FxHashMap::default(),
            lookups: Lookups::new(ProcessLookup::of),
            living: 0,
            every: SAVE,
            began: Instant::now(),
            complained: false,
        };
        service.open_store();
        if !service.programs.is_empty() {
            let number = service.programs.len();
            let programs = if number == 1 {
                "program is"
            } else {
                "programs are"
            };
            info!("{number} {programs} known from earlier runs (scx_hetero know)");
        }
        service
    }

    /// Serves until the agent ends; what is left is to be written then ([`Self::finish`]). Once it `ends`, questions find no answer.
    pub(super) fn run(
        mut self,
        messages: &Receiver<ToService>,
        answers: &Sender<KnownProcess>,
        ends: &AtomicBool,
    ) -> Self {
        // Else it would go before all other tasks, as one of the agent's.
        if let Err(why) = run_when_idle() {
            debug!("the thread that knows programs goes before others: {why}");
        }
        let mut save_at = Instant::now() + self.every;
        loop {
            match messages.recv_deadline(save_at) {
                Ok(ToService::WhoIs(_)) if ends.load(Ordering::Relaxed) => {}
                Ok(ToService::WhoIs(tgid)) => {
                    let known = self.known_of(tgid, now());
                    // There is room for it, unless the agent does not listen.
                    let _ = answers.try_send(KnownProcess { tgid, known });
                }
                Ok(ToService::Machine(machine)) => self.tell(machine),
                Ok(ToService::Found(task, found)) => self.take(&task, &found, self.up()),
                Err(RecvTimeoutError::Timeout) => {
                    self.save(now(), self.up());
                    save_at = Instant::now() + self.every;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if Instant::now() >= save_at {
                self.save(now(), self.up());
                save_at = Instant::now() + self.every;
            }
        }
        self
    }

    /// Writes what is left.
    pub(super) fn finish(mut self) {
        self.save(now(), self.up());
    }

    /// Seconds since it began, those of a suspend left out.
    fn up(&self) -> i64 {
        self.began.elapsed().as_secs() as i64
    }

    /// Opens the store unless it is open. A disk that was full may have room by now, and one that was not there may have
    /// come: what it knows of a program counts more than what was found meanwhile.
    fn open_store(&mut self) {
        if self.store.is_some() {
            return;
        }
        match KnowledgeStore::open(&self.path, &self.machine) {
            Ok(store) => {
                self.store = Some(store);
                self.load();
            }
            Err(why) => self.complain(&why),
        }
    }

    /// Says once that nothing can be written.
    fn complain(&mut self, why: &anyhow::Error) {
        match std::mem::replace(&mut self.complained, true) {
            false => warn!(
                "what is found of programs is not kept, which is tried again each minute: {why:#}"
            ),
            true => debug!("{why:#}"),
        }
    }

    /// False where it cannot be read.
    fn load(&mut self) -> bool {
        let Some(store) = &self.store else {
            return false;
        };
        match store.load() {
            Ok(programs) => {
                let kept = programs
                    .into_iter()
                    .map(|program| (program.key.clone(), ServedProgram::new(program)));
                self.programs.extend(kept);
                true
            }
            Err(why) => {
                warn!("{} cannot be read: {why:#}", self.path.display());
                false
            }
        }
    }

    fn known_of(&mut self, tgid: u32, now: i64) -> Option<ThreadProfile> {
        let (key, name) = match self.lookups.of(tgid, &self.users) {
            Ok(found) => found,
            Err(why) => {
                debug!("which program process {tgid} runs is not known: {why:#}");
                self.processes.remove(&tgid);
                return None;
            }
        };
        if self.processes.len() >= PROCESSES {
            self.processes
                .retain(|tgid, _| Path::new(&format!("/proc/{tgid}")).exists());
        }
        if self.processes.len() < PROCESSES {
            self.processes.insert(tgid, key.clone());
        }
        self.remember(&key);
        let known = self.recollect(&key);
        match self.programs.entry(key.clone()) {
            Entry::Occupied(mut there) => {
                let there = there.get_mut();
                there.program.runs = there.program.runs.saturating_add(1);
                // The clock may have been set back.
                there.program.seen.1 = there.program.seen.1.max(now);
            }
            Entry::Vacant(room) => {
                let program = StoredProgram {
                    key,
                    name,
                    runs: 1,
                    seen: (now, now),
                    ..StoredProgram::default()
                };
                // That it runs is written with what is found of it.
                room.insert(ServedProgram::new(program));
            }
        }
        known
    }

    /// Takes a program from the store again that is no longer in memory: else it would be stored as a new one, over all
    /// that is known of it.
    fn remember(&mut self, key: &ProgramKey) {
        if self.programs.contains_key(key) {
            return;
        }
        self.make_room();
        match self.store.as_ref().map(|store| store.find(key)) {
            Some(Ok(Some(program))) => {
                self.programs
                    .insert(key.clone(), ServedProgram::new(program));
            }
            Some(Err(why)) => debug!("a program cannot be looked up: {why:#}"),
            _ => {}
        }
    }

    /// What is known of a program, or less surely of one that is most like it: the same executable of the same
    /// user in another unit, or with other options.
    fn recollect(&self, key: &ProgramKey) -> Option<ThreadProfile> {
        let told = ServedProgram::recollect;
        if let Some(known) = self.programs.get(key).and_then(told) {
            return Some(known);
        }
        let like = self.programs.values().filter(|of| {
            let other = &of.program.key;
            other.image == key.image && other.uid == key.uid && !of.findings.is_empty()
        });
        let near = |of: &&ServedProgram| (of.program.key.args == key.args, of.program.seen.1);
        let known = like.max_by_key(near).and_then(told);
        known.map(|known| known.vaguely(VAGUE))
    }

    /// Keeps what is known of the machine.
    fn tell(&mut self, machine: StoredMachine) {
        self.about = Some(machine);
        self.write_about();
    }

    fn write_about(&mut self) {
        match self.store.as_mut().zip(self.about.as_ref()) {
            None => {}
            Some((store, machine)) => match store.tell(machine) {
                Ok(()) => self.about = None,
                Err(why) => self.complain(&why),
            },
        }
    }

    /// Takes in what a process lost to others, on both sides.
    fn take_losses(&mut self, tgid: u32, found: &ThreadFinding) {
        for loss in found.losses.iter().flatten() {
            // What is not known by now ran too short to be asked for.
            let Some((own, by)) = self.processes.get(&tgid).zip(self.processes.get(&loss.by))
            else {
                continue;
            };
            let Some(there) = self.programs.get_mut(by) else {
                continue;
            };
            there.findings.harm(loss);
            there.dirty = true;
            let name = there.program.name.clone();
            if let Some(of) = self.programs.get_mut(own) {
                of.findings.lose(&name, loss);
                of.dirty = true;
            }
        }
    }

    fn take(&mut self, task: &Task, found: &ThreadFinding, up: i64) {
        self.take_losses(task.tgid, found);
        let key = self.processes.get(&task.tgid);
        let Some(of) = key.and_then(|key| self.programs.get_mut(key)) else {
            return;
        };
        if found.last || self.living < LIVING {
            let before = of.findings.living();
            of.findings.take(task, found, up);
            self.living = (self.living + of.findings.living()).saturating_sub(before);
            of.dirty = true;
        }
    }

    /// Threads of which nothing has come for long are gone, as where there was no room to say so.
    fn settle(&mut self, up: i64) {
        let programs = self.programs.values_mut();
        self.living = programs
            .map(|of| {
                of.findings.settle(up - SILENT);
                of.findings.living()
            })
            .sum();
    }

    /// Forgets what is worth least, if there are too many: first of a user who has more than their part.
    fn make_room(&mut self) {
        if self.programs.len() < PROGRAMS {
            return;
        }
        let mut of_users: FxHashMap<u32, usize> = FxHashMap::default();
        let uids = self.programs.values().map(|of| of.program.key.uid);
        uids.filter(|&uid| uid != 0)
            .for_each(|uid| *of_users.entry(self.users.of(uid)).or_default() += 1);
        match of_users.into_iter().max_by_key(|of| of.1) {
            Some((uid, number)) if number > OF_A_USER => {
                let users = self.users.clone();
                self.forget_oldest(OF_A_USER / 8, |of| users.of(of.program.key.uid) == uid);
            }
            _ => self.forget_oldest(PROGRAMS / 8, |_| true),
        }
    }

    /// Forgets so many, or some more that are as old as these, of those that are meant.
    fn forget_oldest(&mut self, number: usize, is_meant: impl Fn(&ServedProgram) -> bool) {
        let meant = self.programs.values().filter(|of| is_meant(of));
        let mut seen: Vec<i64> = meant.map(|of| of.program.seen.1).collect();
        let (_, &mut oldest, _) = seen.select_nth_unstable(number);
        self.programs
            .retain(|_, of| !is_meant(of) || of.program.seen.1 > oldest);
    }

    /// Writes what is new, at a time since 1970 and one since it began.
    fn save(&mut self, now: i64, up: i64) {
        self.settle(up);
        self.open_store();
        self.write_about();
        // Before anything is written: names that were forgotten are not to come back.
        let store = self.store.as_mut();
        if matches!(store.map(KnowledgeStore::has_changed), Some(Ok(true))) {
            self.reload();
        }
        let Some(store) = &mut self.store else { return };
        for of in self.programs.values_mut().filter(|of| of.dirty) {
            of.program.known = of.findings.known();
            // One that runs on is seen, too; and the clock may have been set since it began.
            of.program.seen.1 = of.program.seen.1.max(now);
        }
        let dirty: Vec<&StoredProgram> = self
            .programs
            .values()
            .filter(|of| of.dirty)
            .map(|of| &of.program)
            .collect();
        let mut gone = Vec::new();
        if !dirty.is_empty() {
            match store.save(&dirty, now) {
                Ok(ids) => {
                    let keys: Vec<ProgramKey> = dirty.iter().map(|of| of.key.clone()).collect();
                    for (key, id) in keys.into_iter().zip(ids) {
                        match (self.programs.get_mut(&key), id) {
                            (Some(of), Some(id)) => (of.program.id, of.dirty) = (Some(id), false),
                            _ => gone.push(key),
                        }
                    }
                    if std::mem::take(&mut self.complained) {
                        info!("what is found of programs is kept from now on");
                    }
                }
                Err(why) => self.complain(&why),
            }
        }
        // Forgotten by another process: what is found from now on is new.
        let gone = gone.iter().filter_map(|key| self.programs.remove(key));
        let names = gone.map(|of| of.program.name).collect();
        self.forget_beside(&names);
    }

    fn forget_beside(&mut self, names: &FxHashSet<String>) {
        for of in self.programs.values_mut() {
            of.dirty |= of.findings.forget_beside(|name| names.contains(name));
        }
    }

    /// Another process has changed the store: takes over what is not newer here.
    fn reload(&mut self) {
        let before = std::mem::take(&mut self.programs);
        let is_read = self.load();
        let mut forgotten = FxHashSet::default();
        for (key, of) in before {
            if is_read && of.program.id.is_some() && !self.programs.contains_key(&key) {
                forgotten.insert(of.program.name.clone());
            }
            let is_newer = of.dirty || of.program.id.is_none();
            // Threads of it that live on are among what was stored, and are not to count twice.
            let is_same =
                |there: &ServedProgram| there.program.known.threads == of.program.known.threads;
            if is_newer || self.programs.get(&key).is_some_and(is_same) {
                self.programs.insert(key, of);
            }
        }
        self.forget_beside(&forgotten);
    }
}

/// Seconds since 1970.
pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as i64)
}

#[cfg(test)]
mod tests;
