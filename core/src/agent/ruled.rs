// SPDX-License-Identifier: GPL-2.0-or-later
//! The user's rules at work: threads that one fits are kept from the policy, and hinted to where the
//! rule wants them.

use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::policy::{Action, Seen};
use crate::table::{Comm, Task, TaskId, TaskState};
use crate::topology::Topology;

/// A weight that changes nothing.
pub const WEIGHT_ONE: u16 = 100;

/// How often rules are looked at where the policy does not look by itself.
pub(super) const LOOK: Duration = Duration::from_millis(250);

/// Threads are looked up no faster than this per second, after this many at once: each may mean to
/// read files in the agent's loop, and any user can make threads and rename them as fast as it likes.
const LOOKUPS: f64 = 1000.0;
const AT_ONCE: f64 = 2000.0;

/// What a rule says of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Where it is to be.
    pub place: Place,
    /// How many hundredths its weight counts.
    pub weight: u16,
}

/// Where a thread is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Where the policy wants it.
    AsDecided,
    /// On this core type (index) while it is not crowded out, like by a hint of the policy's.
    Prefer(usize),
    /// Wherever the kernel's rules for idle CPUs put it: the policy neither moves it, nor
    /// idles its CPU to measure others.
    Leave,
}

/// What was found for a thread.
#[derive(Clone, Copy, Default)]
struct Found {
    /// While it had this name: whoever starts another program mostly gets another one.
    comm: Comm,
    /// By this generation of the rules.
    generation: u32,
    verdict: Option<Verdict>,
    /// The one that was acted on last.
    before: Option<Verdict>,
}

/// See the module.
pub struct Ruled {
    /// There are rules.
    any: bool,
    generation: u32,
    found: FxHashMap<TaskId, Found>,
    /// How many threads may be looked up now, as of when, ns, and the slot of the one whose turn is
    /// next.
    lookups: f64,
    earned_ns: u64,
    next: u32,
    /// Runnable threads that were not where their rule wants them, and where that is.
    strays: Vec<(Seen, usize)>,
}

/// Without rules.
impl Default for Ruled {
    fn default() -> Self {
        Self {
            any: false,
            generation: 0,
            found: FxHashMap::default(),
            lookups: AT_ONCE,
            earned_ns: 0,
            next: 0,
            strays: Vec::new(),
        }
    }
}

impl Ruled {
    /// The rules are others from now on, if there are any.
    pub fn renew(&mut self, any: bool) {
        self.any = any;
        self.generation += 1;
    }

    /// Whether there is nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        !self.any && self.found.is_empty()
    }

    /// Where a rule wants a task, in words; `None` where none places it.
    pub fn told(&self, task: TaskId, topology: &Topology) -> Option<String> {
        match self.found.get(&task)?.verdict?.place {
            Place::AsDecided => None,
            Place::Prefer(core_type) => {
                let name = &topology.types.get(core_type)?.name;
                Some(format!(
                    "on {name} while there is room, and no policy moves it"
                ))
            }
            Place::Leave => Some("wherever a CPU is idle, and no policy moves it".to_string()),
        }
    }

    /// Looks up threads that are new or have another name, one after the other, as far as that may
    /// be done now: so each has its turn, whatever others do.
    fn look_up(
        &mut self,
        tasks: &[Task],
        now_ns: u64,
        mut verdict: impl FnMut(&Task) -> Option<Verdict>,
    ) {
        let passed = now_ns.saturating_sub(self.earned_ns) as f64 / 1e9;
        self.lookups = (self.lookups + passed * LOOKUPS).min(AT_ONCE);
        self.earned_ns = now_ns;
        let (before, after) = tasks.split_at(tasks.partition_point(|t| t.id.slot < self.next));
        for task in after.iter().chain(before).filter(|task| !task.kthread) {
            let known = self.found.get(&task.id);
            if known.is_some_and(|it| it.comm == task.comm && it.generation == self.generation) {
                continue;
            }
            // Where there is no rule nothing is looked up.
            let mut said = None;
            if self.any {
                if self.lookups < 1.0 {
                    self.next = task.id.slot;
                    return;
                }
                self.lookups -= 1.0;
                said = verdict(task);
            }
            let found = Found {
                comm: task.comm,
                generation: self.generation,
                verdict: said,
                before: known.and_then(|known| known.before),
            };
            self.found.insert(task.id, found);
        }
    }

    /// Lets rules have their say: a thread that one fits looks pinned to the policy.
    pub(super) fn apply(
        &mut self,
        tasks: &mut [Task],
        now_ns: u64,
        verdict: impl FnMut(&Task) -> Option<Verdict>,
        actions: &mut Vec<Action>,
    ) {
        self.strays.clear();
        if self.is_idle() {
            return;
        }
        self.look_up(tasks, now_ns, verdict);
        let Self { found, strays, .. } = self;
        for task in tasks.iter_mut().filter(|task| !task.kthread) {
            let Some(found) = found.get_mut(&task.id) else {
                continue;
            };
            let before = std::mem::replace(&mut found.before, found.verdict);
            let weight = |verdict: Option<Verdict>| verdict.map_or(WEIGHT_ONE, |it| it.weight);
            if weight(found.verdict) != weight(before) {
                actions.push(Action::Weight(task.id, weight(found.verdict)));
            }
            let place = |verdict: Option<Verdict>| verdict.map_or(Place::AsDecided, |it| it.place);
            let wanted = match place(found.verdict) {
                Place::Prefer(core_type) if task.may_use(core_type) => Some(core_type),
                Place::Prefer(_) | Place::Leave => None,
                // The policy goes on with it from nothing.
                Place::AsDecided if place(before) != Place::AsDecided => None,
                Place::AsDecided => continue,
            };
            if task.hint != wanted {
                actions.push(Action::Hint((&*task).into(), wanted));
            }
            task.pinned |= place(found.verdict) != Place::AsDecided;
            if let Some(to) = wanted.filter(|&to| to != task.core_type)
                && task.state != TaskState::Blocked
            {
                strays.push(((&*task).into(), to));
            }
            // Where it is to be is where it takes up room, or those whose room it has now would
            // not make any.
            task.core_type = wanted.unwrap_or(task.core_type);
        }
    }

    /// Has a thread that is sent to where a stray is trade places with it: where no CPU is idle two hints
    /// that cross each other may move neither for long.
    pub(super) fn trade(&mut self, actions: &mut [Action]) {
        for action in actions {
            let Action::Hint(seen, Some(to)) = *action else {
                continue;
            };
            let crosses = |&(stray, wanted): &(Seen, usize)| stray.on == to && wanted == seen.on;
            if let Some(at) = self.strays.iter().position(crosses) {
                *action = Action::Swap([(seen, to), self.strays.swap_remove(at)]);
            }
        }
    }

    /// Forgets threads that are gone, and all of them if there are no rules any longer.
    pub(super) fn retain(&mut self, tasks: &[Task]) {
        if !self.any {
            self.found.clear();
        } else if self.found.len() > tasks.len() {
            let alive: FxHashSet<TaskId> = tasks.iter().map(|task| task.id).collect();
            self.found.retain(|id, _| alive.contains(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{MS, board, task};

    /// What is said of threads by the first letter of their names.
    fn says(letter: u8, place: Place) -> impl Fn(&Task) -> Option<Verdict> + Copy {
        let weight = WEIGHT_ONE;
        move |task| (task.comm.0[0] == letter).then_some(Verdict { place, weight })
    }

    fn ruled() -> Ruled {
        let mut ruled = Ruled::default();
        ruled.renew(true);
        ruled
    }

    #[test]
    fn whom_a_rule_fits_is_hinted_once_and_given_back_when_it_is_gone() {
        let rules = |task: &Task| {
            let prefers = says(b'a', Place::Prefer(1))(task);
            prefers.or(says(b'b', Place::Leave)(task))
        };
        let mut ruled = ruled();
        let mut tasks = [task(0, 0, 0), task(1, 0, 0), task(2, 0, 0)];
        for (task, name) in tasks.iter_mut().zip(*b"abc") {
            task.comm.0 = [0; 16];
            task.comm.0[0] = name;
        }
        tasks[1].hint = Some(0);
        let as_they_are = tasks;
        let hints = |ruled: &mut Ruled, tasks: &mut [Task]| {
            let mut actions = Vec::new();
            ruled.apply(tasks, 0, rules, &mut actions);
            let hint = |action| match action {
                Action::Hint(seen, to) => (seen.task.slot, to),
                other => panic!("{other:?}"),
            };
            actions.into_iter().map(hint).collect::<Vec<_>>()
        };
        assert_eq!(hints(&mut ruled, &mut tasks), [(0, Some(1)), (1, None)]);
        assert_eq!(tasks.map(|task| task.pinned), [true, true, false]);
        // The policy gives its room to others.
        assert_eq!(tasks.map(|task| task.core_type), [1, 0, 0]);

        let mut tasks = as_they_are;
        (tasks[0].hint, tasks[1].hint) = (Some(1), None);
        assert_eq!(hints(&mut ruled, &mut tasks), []);

        ruled.renew(false);
        let mut tasks = as_they_are;
        (tasks[0].hint, tasks[1].hint) = (Some(1), None);
        assert_eq!(hints(&mut ruled, &mut tasks), [(0, None)]);
        assert!(tasks.iter().all(|task| !task.pinned));
        ruled.retain(&tasks);
        assert!(ruled.is_idle());
    }

    #[test]
    fn neither_a_crowd_nor_one_that_renames_itself_costs_more_than_so_much_or_is_in_the_way() {
        let rules = says(b'v', Place::Prefer(1));
        let mut ruled = ruled();
        let mut tasks: Vec<_> = (0..5000).map(|slot| task(slot, 0, 0)).collect();
        let victim = tasks.len() - 1;
        tasks[victim].comm.0[..6].copy_from_slice(b"victim");
        let mut now_ns = 0;
        let mut looks = 0;
        while ruled.told(tasks[victim].id, &board(1, 1)).is_none() {
            // All the others have new names at each look.
            for task in &mut tasks[..victim] {
                task.comm.0[..4].copy_from_slice(&u32::to_ne_bytes(looks + 1));
            }
            ruled.look_up(&tasks, now_ns, rules);
            now_ns += 100 * MS;
            looks += 1;
            assert!(looks < 100, "it never has its turn");
        }
        // 2000 at once, and 100 in a tenth of a second: 5000 after three seconds.
        assert!((30..=32).contains(&looks), "{looks}");
        // And it keeps what was found, as long as it has the name.
        ruled.look_up(&tasks, now_ns, rules);
        assert!(ruled.told(tasks[victim].id, &board(1, 1)).is_some());
    }

    #[test]
    fn a_weight_is_told_once_and_taken_back_and_leaves_placing_to_the_policy() {
        let heavy = Verdict {
            place: Place::AsDecided,
            weight: 250,
        };
        let mut ruled = ruled();
        let mut tasks = [task(0, 0, 0), task(1, 0, 0)];
        // What cannot be placed can be weighed.
        tasks[1].pinned = true;
        let as_they_are = tasks;
        let told = |ruled: &mut Ruled| {
            let (mut tasks, mut actions) = (as_they_are, Vec::new());
            ruled.apply(&mut tasks, 0, |_| Some(heavy), &mut actions);
            assert_eq!(tasks, as_they_are);
            actions
        };
        let weigh = |weight| as_they_are.map(|task| Action::Weight(task.id, weight));
        assert_eq!(told(&mut ruled), weigh(250));
        assert_eq!(told(&mut ruled), []);
        ruled.renew(false);
        assert_eq!(told(&mut ruled), weigh(100));
    }

    #[test]
    fn who_is_sent_to_where_a_stray_is_trades_places_with_it() {
        let rules = says(b'a', Place::Prefer(1));
        let mut ruled = ruled();
        let mut tasks = [task(0, 0, 0), task(1, 0, 1), task(2, 0, 1)];
        tasks[0].comm.0 = [0; 16];
        tasks[0].comm.0[0] = b'a';
        let stray = Seen::from(&tasks[0]);
        let [one, other] = [1, 2].map(|at| Seen::from(&tasks[at]));
        let sent = |seen| Action::Hint(seen, Some(0));
        let mut actions = Vec::new();
        ruled.apply(&mut tasks.clone(), 0, rules, &mut actions);
        let mut actions = [Action::Hint(one, None), sent(one), sent(other)];
        ruled.trade(&mut actions);
        // Once.
        let traded = Action::Swap([(one, 0), (stray, 1)]);
        assert_eq!(actions, [Action::Hint(one, None), traded, sent(other)]);

        // Neither with one that is where it should be, nor with one that sleeps.
        for (core_type, state) in [(1, TaskState::Queued), (0, TaskState::Blocked)] {
            (tasks[0].core_type, tasks[0].state) = (core_type, state);
            ruled.apply(&mut tasks.clone(), 0, rules, &mut Vec::new());
            let mut actions = [sent(one)];
            ruled.trade(&mut actions);
            assert_eq!(actions, [sent(one)]);
        }
    }
}
