// SPDX-License-Identifier: GPL-2.0-only
//! Sessions that are about a process and all that it has started: which threads are theirs.
//!
//! Nothing tells of that but a walk up the parents, in small reads of files. Each thread is looked up once,
//! some at a look, each in its turn; what belongs to a session stays with it when its parents end.

use std::collections::hash_map::Entry;
use std::mem::take;

use rustc_hash::FxHashMap;

use crate::connections::peer::{parent, uids};
use hetero_core::agent::Belongs;
use hetero_core::goals::SessionId;
use hetero_core::limits::MAX_SLOTS;
use hetero_core::table::TaskId;

/// Reads of files per second, and at once: they take from what decisions may take, and any user can open a
/// session at any time, after which all processes are looked up again.
const READS: f64 = 125.0;
const AT_ONCE: f64 = 250.0;

/// Ancestors of a process that are looked at.
const GENERATIONS: usize = 16;

/// Reads that one process takes at most.
const MOST: f64 = GENERATIONS as f64 + 1.0;

/// The session of a family, by the process at its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FamilyHead {
    /// The session's number.
    pub session: u64,
    /// Descendants count only if they are this user's; `None`: root has opened it, and all count.
    pub uid: Option<u32>,
}

/// What is found out about processes.
pub trait ProcessTree {
    /// The process that has started another, or has adopted it since.
    fn parent(&self, tgid: u32) -> Option<u32>;
    /// Its users: real, effective and saved.
    fn uids(&self, tgid: u32) -> Option<[u32; 3]>;
}

/// By /proc.
#[derive(Clone, Copy, Debug)]
pub struct TreeInProc;

impl ProcessTree for TreeInProc {
    fn parent(&self, tgid: u32) -> Option<u32> {
        parent(tgid)
    }

    fn uids(&self, tgid: u32) -> Option<[u32; 3]> {
        uids(tgid)
    }
}

#[derive(Clone, Copy, Debug)]
struct FoundFamily {
    generation: u32,
    session: Option<u64>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Families {
    /// By process.
    heads: FxHashMap<u32, FamilyHead>,
    /// The sessions of these.
    sessions: Vec<u64>,
    /// Grows when there is another one.
    generation: u32,
    found: FxHashMap<TaskId, FoundFamily>,
    /// Of processes that were looked up at this look.
    seen: FxHashMap<u32, Option<u64>>,
    /// The nearest head above each process that was come by at this look.
    above: FxHashMap<u32, Option<FamilyHead>>,
    /// Reads that are not earned yet, and as of when, ns.
    owed: f64,
    at_ns: u64,
    /// The slot whose turn is next, and the first that has had none at this look.
    turn: u32,
    missed: Option<u32>,
    /// Threads were asked for at this look.
    asked: bool,
}

impl Families {
    /// These are all that there are now. Of several for one process the first counts.
    pub fn set(&mut self, heads: impl Iterator<Item = (u32, FamilyHead)>) {
        let before = take(&mut self.sessions);
        self.heads.clear();
        for (tgid, head) in heads {
            if let Entry::Vacant(entry) = self.heads.entry(tgid) {
                entry.insert(head);
                self.sessions.push(head.session);
            }
        }
        self.sessions.sort_unstable();
        let is_new = |id: &u64| before.binary_search(id).is_err();
        if self.sessions.iter().any(is_new) {
            self.generation = self.generation.wrapping_add(1);
        }
        if self.heads.is_empty() {
            self.found.clear();
        }
    }

    /// The task table is read anew, at `now_ns`.
    pub fn begin_look(&mut self, now_ns: u64) {
        self.seen.clear();
        self.above.clear();
        let passed = now_ns.saturating_sub(self.at_ns) as f64 / 1e9;
        self.owed = (self.owed - passed * READS).max(0.0);
        self.at_ns = now_ns;
        // Not every look is for a decision.
        if take(&mut self.asked) {
            self.turn = self.missed.take().unwrap_or(0);
        }
        // What is gone is forgotten by `retain`, now and then.
        if self.found.len() > 4 * MAX_SLOTS as usize {
            self.found.clear();
        }
    }

    /// The session of the family that a thread of a process belongs to.
    pub fn of(&mut self, task: TaskId, tgid: u32, tree: &impl ProcessTree) -> Belongs {
        let to =
            |session: Option<u64>| session.map_or(Belongs::ToNone, |id| Belongs::To(SessionId(id)));
        if self.heads.is_empty() {
            return Belongs::ToNone;
        }
        self.asked = true;
        if let Some(found) = self.found.get(&task) {
            let still = found
                .session
                .filter(|id| self.sessions.binary_search(id).is_ok());
            if still.is_some() || found.generation == self.generation {
                return to(still);
            }
        }
        let session = match self.seen.get(&tgid) {
            Some(session) => *session,
            None if task.slot < self.turn => return Belongs::Unknown,
            None if self.owed + MOST > AT_ONCE => {
                self.missed.get_or_insert(task.slot);
                return Belongs::Unknown;
            }
            None => {
                let session = self.look_up(tgid, tree);
                self.seen.insert(tgid, session);
                session
            }
        };
        let generation = self.generation;
        self.found.insert(
            task,
            FoundFamily {
                generation,
                session,
            },
        );
        to(session)
    }

    /// The nearest one, if it is to count.
    fn look_up(&mut self, tgid: u32, tree: &impl ProcessTree) -> Option<u64> {
        let head = self.nearest(tgid, tree)?;
        if let Some(uid) = head.uid {
            self.owed += 1.0;
            tree.uids(tgid).filter(|uids| *uids == [uid; 3])?;
        }
        Some(head.session)
    }

    fn nearest(&mut self, tgid: u32, tree: &impl ProcessTree) -> Option<FamilyHead> {
        let mut line = [0; GENERATIONS];
        let mut process = tgid;
        for at in 0..GENERATIONS {
            line[at] = process;
            let known = self.above.get(&process).copied();
            let nearest = known.or_else(|| {
                self.owed += 1.0;
                let Some(parent) = tree.parent(process).filter(|&parent| parent > 1) else {
                    return Some(None);
                };
                process = parent;
                self.heads.get(&parent).copied().map(Some)
            });
            if let Some(nearest) = nearest {
                let line = line[..=at].iter();
                self.above.extend(line.map(|&process| (process, nearest)));
                return nearest;
            }
        }
        // Those above have some more generations to go.
        None
    }

    /// Forgets threads that are not `alive`.
    pub fn retain(&mut self, alive: impl Fn(TaskId) -> bool) {
        self.found.retain(|id, _| alive(*id));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Each process was started by that whose number is a tenth of its own; 77 and its children are another
    /// user's.
    #[derive(Default)]
    struct Tens(Cell<usize>);

    impl ProcessTree for Tens {
        fn parent(&self, tgid: u32) -> Option<u32> {
            self.0.set(self.0.get() + 1);
            Some(tgid / 10)
        }

        fn uids(&self, tgid: u32) -> Option<[u32; 3]> {
            self.0.set(self.0.get() + 1);
            let other = tgid.to_string().starts_with("77");
            Some(if other { [7, 1000, 7] } else { [1000; 3] })
        }
    }

    fn task(slot: u32) -> TaskId {
        TaskId {
            slot,
            generation: 1,
        }
    }

    const NONE: Belongs = Belongs::ToNone;

    fn to(session: u64) -> Belongs {
        Belongs::To(SessionId(session))
    }

    fn head(session: u64, uid: Option<u32>) -> FamilyHead {
        FamilyHead { session, uid }
    }

    #[test]
    fn a_thread_is_of_the_nearest_family_of_its_own_user_and_stays() {
        let (mut families, tree) = (Families::default(), Tens::default());
        families.set([(7, head(1, Some(1000))), (71, head(2, None))].into_iter());
        families.begin_look(0);
        let mut of = |slot, tgid| families.of(task(slot), tgid, &tree);
        assert_eq!((of(1, 72), of(2, 724)), (to(1), to(1)));
        assert_eq!((of(3, 711), of(4, 7111)), (to(2), to(2)));
        // Of others, of another user, and the head, whose own session is found otherwise.
        assert_eq!((of(5, 82), of(6, 77), of(7, 7)), (NONE, NONE, NONE));
        // Root has opened that one.
        let heads = [(7, head(1, None)), (71, head(2, None))];
        families.set(heads.into_iter());
        families.begin_look(0);
        assert_eq!(families.of(task(6), 77, &tree), NONE, "it is known");
        families.set([(7, head(3, None))].into_iter());
        families.begin_look(0);
        assert_eq!(families.of(task(6), 77, &tree), to(3));
        // Those of a session that has ended are looked up again.
        assert_eq!(families.of(task(3), 711, &tree), to(3));
        // A daemon that its parents have left behind.
        struct Orphans;
        impl ProcessTree for Orphans {
            fn parent(&self, _: u32) -> Option<u32> {
                Some(1)
            }
            fn uids(&self, _: u32) -> Option<[u32; 3]> {
                None
            }
        }
        families.begin_look(0);
        assert_eq!(families.of(task(6), 77, &Orphans), to(3));
        assert_eq!(families.of(task(9), 78, &Orphans), NONE);
        families.retain(|id| id.slot != 6);
        assert_eq!(families.of(task(6), 77, &Orphans), NONE);
        families.set(std::iter::empty());
        assert_eq!(families.of(task(3), 711, &tree), NONE);
    }

    #[test]
    fn a_crowd_costs_so_much_a_second_and_each_has_its_turn() {
        let (mut families, tree) = (Families::default(), Tens::default());
        families.set([(7, head(1, None))].into_iter());
        let mut looks = 0;
        let victim = task(10_000);
        loop {
            let now_ns = u64::from(looks) * 500_000_000;
            families.begin_look(now_ns);
            // As for what is told of threads: it asks for none.
            families.begin_look(now_ns);
            looks += 1;
            // All before it are new at each look.
            for slot in 0..1000 {
                let id = TaskId {
                    slot,
                    generation: looks,
                };
                families.of(id, 80_000 + slot, &tree);
            }
            if families.of(victim, 72, &tree) == to(1) {
                break;
            }
            assert!(looks < 100, "it never has its turn");
        }
        assert!((15..=17).contains(&looks), "{looks}");
        let most = AT_ONCE + READS * 0.5 * f64::from(looks - 1);
        assert!(tree.0.get() as f64 <= most, "{}", tree.0.get());
        // Threads of one process are looked up together.
        families.begin_look(u64::MAX);
        let before = tree.0.get();
        (20_000..20_100).for_each(|slot| assert_eq!(families.of(task(slot), 73, &tree), to(1)));
        assert_eq!(tree.0.get(), before + 1);
    }

    #[test]
    fn sessions_that_come_and_go_all_the_time_cost_no_more_and_each_is_known_in_turn() {
        let (mut families, tree) = (Families::default(), Tens::default());
        let mut known = [false; 1000];
        for look in 0..1000 {
            families.set([(8, head(look, Some(1000)))].into_iter());
            families.begin_look(look * 50_000_000);
            for slot in 0..1000 {
                let belongs = families.of(task(slot), 80_000 + slot, &tree);
                known[slot as usize] |= belongs == to(look);
            }
        }
        assert!(tree.0.get() as f64 <= AT_ONCE + READS * 50.0);
        assert!(known.iter().all(|known| *known));
    }

    #[test]
    fn ancestors_are_looked_up_once_and_those_beyond_the_last_generation_are_not_taken_for_strangers()
     {
        /// Each has started the next.
        struct Chain(Cell<usize>);
        impl ProcessTree for Chain {
            fn parent(&self, tgid: u32) -> Option<u32> {
                self.0.set(self.0.get() + 1);
                tgid.checked_sub(1)
            }
            fn uids(&self, _: u32) -> Option<[u32; 3]> {
                None
            }
        }
        let (mut families, chain) = (Families::default(), Chain(Cell::new(0)));
        families.set([(7, head(1, None))].into_iter());
        families.begin_look(0);
        let mut of = |tgid| families.of(task(tgid), tgid, &chain);
        assert_eq!((of(24), chain.0.get()), (NONE, 16));
        assert_eq!((of(15), chain.0.get()), (to(1), 16 + 8));
        assert_eq!((of(14), of(16), chain.0.get()), (to(1), to(1), 24 + 1));
    }

    #[test]
    fn of_two_sessions_of_one_process_the_first_has_its_children() {
        let (mut families, tree) = (Families::default(), Tens::default());
        families.set([(7, head(2, None))].into_iter());
        families.begin_look(0);
        assert_eq!(families.of(task(1), 72, &tree), to(2));
        families.set([(7, head(1, None)), (7, head(2, None))].into_iter());
        families.begin_look(0);
        // Also of what was known.
        assert_eq!(families.of(task(1), 72, &tree), to(1));
    }
}
