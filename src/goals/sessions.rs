// SPDX-License-Identifier: GPL-2.0-only
//! The sessions that there are: the server adds and removes them, the agent reads them.

use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::page::{Beats, GoalTarget, Page, Words};
use super::ruled::{GoalSource, RuledGoal};
use super::{MAX_SESSIONS, MAX_WEIGHT};
use crate::connections::peer::{Process, which_ended};

/// What a session is, for good.
#[derive(Debug)]
pub struct SessionAbout {
    /// Its number; no later session has it.
    pub id: u64,
    /// The process whose work it is about.
    pub tgid: u32,
    /// The user who opened it.
    pub uid: u32,
    /// It is about what that process has started, too, as far as it is the same user's; if root has opened it,
    /// whatever user's it is.
    pub children: bool,
    /// For people.
    pub name: String,
}

/// A session as it is at one look.
#[derive(Clone, Debug)]
pub struct SessionReading {
    /// What it is.
    pub about: Arc<SessionAbout>,
    /// Threads that it is about, in ascending order; none are all of the process.
    pub tids: Arc<[u32]>,
    /// How much its goal counts where goals exceed the machine: 1 to 10,000.
    pub weight: u32,
    /// An administrator has set that weight, or a rule, and not the program.
    pub weight_is_given: bool,
    /// What it is to reach: what an administrator has set, or else a rule, or else what the program wants.
    pub target: GoalTarget,
    /// Which of these.
    pub source: GoalSource,
    /// What it has done, as it says.
    pub beats: Beats,
}

/// A page that is in memory is read in far less.
const LATE: Duration = Duration::from_millis(1);

/// What an administrator wants of a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GoalWish {
    /// What the program itself wants, or a rule.
    Own,
    /// Another target, in thousandths of a beat per second, and if it is given another weight.
    Set(u64, Option<u32>),
    /// No goal, whatever the program wants.
    Remove,
}

#[derive(Debug)]
struct OpenedSession {
    about: Arc<SessionAbout>,
    tids: Arc<[u32]>,
    weight: u32,
    wish: GoalWish,
    rule: Ruling,
    process: Arc<Process>,
    page: Arc<Page>,
    /// What the page said last.
    words: Option<Words>,
    /// When it was read last, if that took long.
    late: Option<Instant>,
}

/// What is known of a session's rule.
#[derive(Clone, Copy, Debug)]
enum Ruling {
    /// It was not looked up yet.
    Unknown,
    Known(Option<RuledGoal>),
}

/// All of them, in ascending order of their numbers.
#[derive(Debug, Default)]
pub struct GoalSessions {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    sessions: Vec<OpenedSession>,
    /// The number of the last.
    last: u64,
    /// There are rules on goals: without having been looked up a session has none.
    ruled: bool,
}

impl GoalSessions {
    /// Nothing is done while it is held that takes long or can fail halfway.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.table().sessions.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads all pages, 64 bytes of each. That may take long, for a program can have its page swapped out each time: the agent
    /// does not do it. Those that took long the last time come last, that of the longest time ago first, and then those of
    /// a user one of whose pages takes long now; and no more of all these once there is something `else_to_do`.
    pub fn refresh(&self, else_to_do: impl Fn() -> bool) {
        let pages: Vec<_> = {
            let table = self.table();
            let sessions = table.sessions.iter();
            sessions
                .map(|session| RefreshedPage {
                    late: session.late,
                    id: session.about.id,
                    uid: session.about.uid,
                    page: session.page.clone(),
                })
                .collect()
        };
        in_turn(pages, else_to_do, |of| {
            let began = Instant::now();
            let words = of.page.read();
            let now = Instant::now();
            let late = (now - began > LATE).then_some(now);
            if let Some(session) = self.table().find(of.id) {
                (session.words, session.late) = (words, late);
            }
            late.is_some()
        });
    }

    /// All of them into `readings`, in ascending order of their numbers, with what their pages said at the last
    /// [`Self::refresh`]. A page that cannot be read has no goal and no beats.
    pub fn read(&self, readings: &mut Vec<SessionReading>) {
        readings.clear();
        let table = self.table();
        let sessions = table.sessions.iter();
        readings.extend(sessions.map(|session| session.read(table.ruled)));
    }

    /// Takes one in; its number.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn open(
        &self,
        process: Process,
        page: Page,
        (uid, name, children): (u32, String, bool),
        (tids, weight): (Vec<u32>, u32),
    ) -> Result<u64, String> {
        let words = page.read();
        let mut table = self.table();
        if table.sessions.len() >= MAX_SESSIONS {
            return Err(format!("there are {MAX_SESSIONS} sessions already"));
        }
        table.last += 1;
        let id = table.last;
        let about = SessionAbout {
            id,
            tgid: process.tgid,
            uid,
            children,
            name,
        };
        table.sessions.push(OpenedSession {
            about: Arc::new(about),
            tids: tids.into(),
            weight,
            wish: GoalWish::Own,
            rule: Ruling::Unknown,
            process: Arc::new(process),
            words,
            late: None,
            page: Arc::new(page),
        });
        Ok(id)
    }

    /// The process that a session is about.
    pub(super) fn process(&self, id: u64) -> Option<u32> {
        self.table().find(id).map(|session| session.about.tgid)
    }

    pub(super) fn change(&self, id: u64, tids: Vec<u32>, weight: u32) -> bool {
        let mut table = self.table();
        let Some(session) = table.find(id) else {
            return false;
        };
        session.tids = tids.into();
        session.weight = weight;
        true
    }

    /// Ends a session, if it is still there.
    pub(super) fn close(&self, id: u64) {
        let mut table = self.table();
        let at = table.position(id);
        let gone = at.map(|at| table.sessions.remove(at));
        // Descriptors are closed without the lock.
        drop(table);
        drop(gone);
    }

    /// Ends those whose processes have ended; whether there were any.
    pub(super) fn bury(&self) -> bool {
        let processes: Vec<Arc<Process>> = {
            let table = self.table();
            let processes = table.sessions.iter().map(|session| &session.process);
            processes.cloned().collect()
        };
        let mut ended = vec![false; processes.len()];
        which_ended(processes.iter().map(Arc::as_ref), &mut ended);
        let dead = |of: &Arc<Process>| {
            let at = processes
                .iter()
                .position(|process| Arc::ptr_eq(process, of));
            at.is_some_and(|at| ended[at])
        };
        if !ended.contains(&true) {
            return false;
        }
        let mut table = self.table();
        let sessions = take(&mut table.sessions).into_iter();
        let (gone, stay) = sessions.partition::<Vec<_>, _>(|session| dead(&session.process));
        table.sessions = stay;
        drop(table);
        !gone.is_empty()
    }

    /// Whether there are rules on goals; true if that is new. Where there are, a session has no goal before it
    /// was looked up, or one that is short would go by what it may not have; without rules none holds.
    pub(super) fn await_rules(&self, ruled: bool) -> bool {
        let mut table = self.table();
        let is_new = table.ruled != ruled;
        if is_new && !ruled {
            for session in &mut table.sessions {
                session.rule = Ruling::Unknown;
            }
        }
        table.ruled = ruled;
        is_new
    }

    /// A session's rule was looked up.
    pub(super) fn rule(&self, id: u64, rule: Option<RuledGoal>) {
        if let Some(session) = self.table().find(id) {
            session.rule = Ruling::Known(rule);
        }
    }

    /// Goes by another wish from now on; the session's name.
    ///
    /// # Errors
    /// There is no such session, or the wish makes no sense, in words.
    pub fn wish(&self, id: u64, wish: GoalWish) -> Result<String, String> {
        if let GoalWish::Set(target, weight) = wish {
            if !(1..=super::MAX_TARGET).contains(&target) {
                return Err("a target is 0.001 to 1000000 beats per second".into());
            }
            if weight.is_some_and(|weight| !(1..=MAX_WEIGHT).contains(&weight)) {
                return Err(format!("a weight is 1 to {MAX_WEIGHT}"));
            }
        }
        let mut table = self.table();
        let session = table.find(id).ok_or_else(|| {
            format!("there is no session {id}: 'scx_hetero goal list' shows those that there are")
        })?;
        session.wish = wish;
        Ok(session.about.name.clone())
    }
}

/// A page that is to be read.
struct RefreshedPage<P> {
    late: Option<Instant>,
    id: u64,
    uid: u32,
    page: P,
}

/// Has pages read in the order that [`GoalSessions::refresh`] has; `read` says whether that took long.
fn in_turn<P>(
    mut pages: Vec<RefreshedPage<P>>,
    else_to_do: impl Fn() -> bool,
    mut read: impl FnMut(&RefreshedPage<P>) -> bool,
) {
    pages.sort_unstable_by_key(|of| (of.late, of.id));
    let (mut slow, mut later) = (Vec::new(), Vec::new());
    for of in pages {
        if of.late.is_none() && slow.contains(&of.uid) {
            later.push(of);
        } else if of.late.is_some() && else_to_do() {
            return;
        } else if read(&of) && !slow.contains(&of.uid) {
            slow.push(of.uid);
        }
    }
    for of in later {
        if else_to_do() {
            return;
        }
        read(&of);
    }
}

impl Table {
    fn position(&self, id: u64) -> Option<usize> {
        let found = self
            .sessions
            .binary_search_by_key(&id, |session| session.about.id);
        found.ok()
    }

    fn find(&mut self, id: u64) -> Option<&mut OpenedSession> {
        let at = self.position(id)?;
        self.sessions.get_mut(at)
    }
}

impl OpenedSession {
    fn read(&self, ruled: bool) -> SessionReading {
        let own = self.words.as_ref().map(|words| words.target());
        let own = own.unwrap_or_default();
        let (target, ruled_weight, source) = match self.rule {
            Ruling::Unknown if ruled => (GoalTarget::None, None, GoalSource::Own),
            Ruling::Known(Some(rule)) => rule.apply(own),
            Ruling::Unknown | Ruling::Known(None) => (own, None, GoalSource::Own),
        };
        let (target, set_weight, source) = match self.wish {
            GoalWish::Own => (target, None, source),
            GoalWish::Remove => (GoalTarget::None, None, GoalSource::Set),
            GoalWish::Set(target, weight) => (own.with(target), weight, GoalSource::Set),
        };
        let given = set_weight.or(ruled_weight);
        SessionReading {
            about: self.about.clone(),
            tids: self.tids.clone(),
            weight: given.unwrap_or(self.weight),
            weight_is_given: given.is_some(),
            target,
            source,
            beats: self.words.map(|words| words.beats()).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_with_slow_pages_delays_others_by_one_of_them() {
        let now = Instant::now();
        let page = |id, uid, late: Option<u64>| RefreshedPage {
            late: late.map(|ago| now - Duration::from_millis(ago)),
            id,
            uid,
            page: (),
        };
        let pages = || {
            vec![
                page(1, 7, None),
                page(2, 7, None),
                page(3, 8, None),
                page(4, 7, Some(10)),
                page(5, 8, Some(20)),
                page(6, 7, None),
                page(7, 9, None),
            ]
        };
        let read = |else_to_do: bool, slow: u32| {
            let mut ids = Vec::new();
            in_turn(
                pages(),
                || else_to_do,
                |of| {
                    ids.push(of.id);
                    of.uid == slow
                },
            );
            ids
        };
        assert_eq!(read(false, 0), [1, 2, 3, 6, 7, 5, 4]);
        assert_eq!(read(false, 7), [1, 3, 7, 5, 4, 2, 6]);
        assert_eq!(read(true, 7), [1, 3, 7]);
    }
}
