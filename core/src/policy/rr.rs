// SPDX-License-Identifier: GPL-2.0-or-later
//! `rr`: asymmetry-aware round-robin, the scheme that the CAMPS paper (2018,
//! section 5.1) compares with, after Becchi and Crowley (2006). Big-core time is
//! shared fairly among applications by periodic swaps, whatever it is worth to
//! them.
//!
//! With three or more core types the fastest is what is shared; a thread that
//! leaves it takes the place of the one that enters, on whatever type that was,
//! so the slower types are rotated through as well.

use std::cmp::Reverse;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use super::name::About;
use super::reason::{Measure, Reasons};
use super::{Action, Insight, Policy, Reason, Seen, Snapshot};
use crate::placement;
use crate::table::{Task, TaskId, TaskState};
use crate::topology::Topology;

/// What users are told.
pub(super) const ABOUT: About = About {
    name: "rr",
    help: "Share the fastest cores fairly among applications, by periodic swaps",
    knows: &[],
    build: |settings| Box::new(RoundRobin::new(settings.swap_interval)),
};

/// A thread counts as busy if it ran for at least one in so many nanoseconds.
const BUSY_ONE_IN: u64 = 4;

/// Pauses shorter than this never cost a claim, however short the interval.
const MIN_PATIENCE_NS: u64 = 1_000_000_000;

/// How many looks a move may take.
const SETTLING_LOOKS: u8 = 2;

/// The fastest core type.
const BIG: usize = 0;

/// See the module.
pub struct RoundRobin {
    interval: Duration,
    /// Every task that is in the table.
    threads: FxHashMap<TaskId, Thread>,
    /// Every process that has a task in the table.
    applications: FxHashMap<u32, Share>,
    /// When it last looked.
    looked_at_ns: Option<u64>,
    reasons: Reasons,
    /// What a look needs, kept for its memory.
    scratch: Scratch,
}

#[derive(Default)]
struct Scratch {
    /// Process ids that there are.
    processes: FxHashSet<u32>,
    /// Big-core time among the threads of a process, by process id.
    siblings: FxHashMap<u32, Range>,
    busy: Vec<Task>,
    on_big: Vec<Candidate>,
    elsewhere: Vec<Candidate>,
}

/// A task at the last look; run times in nanoseconds.
#[derive(Clone, Copy, Default)]
struct Thread {
    total_ns: u64,
    big_ns: u64,
    queued: bool,
    /// For so many more looks it counts as being where it was told to go.
    settling: u8,
    share: Share,
}

/// Big-core time that one had while busy.
#[derive(Clone, Copy, Default)]
struct Share {
    ns: u64,
    /// When it was last seen busy, if ever.
    busy_at_ns: Option<u64>,
}

impl Share {
    /// Whether it takes part: it is busy, or was until just before.
    fn is_active(&self, now_ns: u64, patience_ns: u64) -> bool {
        self.busy_at_ns
            .is_some_and(|at| now_ns.saturating_sub(at) <= patience_ns)
    }

    /// Notes that it is busy. As with `amp_progress` in CAMPS (section 4.3), a
    /// newcomer starts level with the one furthest ahead, so that short-lived
    /// threads cannot crowd out the others, and one that slept long comes back level
    /// with the one furthest behind, without a claim for the time it slept.
    fn note_busy(&mut self, now_ns: u64, patience_ns: u64, range: Range) {
        if self.busy_at_ns.is_none() {
            self.ns = range.most;
        } else if !self.is_active(now_ns, patience_ns) {
            self.ns = self.ns.max(range.least);
        }
        self.busy_at_ns = Some(now_ns);
    }
}

/// The least and the most big-core time among those that take part.
#[derive(Clone, Copy, Default)]
struct Range {
    least: u64,
    most: u64,
}

impl Range {
    fn of(shares: impl Iterator<Item = Share>) -> Self {
        let range = shares.fold(None, |range: Option<Self>, share| {
            Some(range.map_or(share.into(), |range| range.with(share)))
        });
        range.unwrap_or_default()
    }

    fn with(self, share: Share) -> Self {
        Self {
            least: self.least.min(share.ns),
            most: self.most.max(share.ns),
        }
    }
}

impl From<Share> for Range {
    fn from(share: Share) -> Self {
        Self {
            least: share.ns,
            most: share.ns,
        }
    }
}

/// A busy thread that may use the big cores and others.
struct Candidate {
    task: Task,
    /// Core type where it is, or is on its way to.
    place: usize,
    /// Big-core time of its process, and its own.
    had: (u64, u64),
}

impl Candidate {
    /// Why it changes places with `other`: see [`RoundRobin::should_yield`].
    fn compared(&self, other: &Self) -> Reason {
        let had = |candidate: &Self| {
            if self.task.tgid == other.task.tgid {
                candidate.had.1
            } else {
                candidate.had.0
            }
        };
        Reason::Compared {
            by: Measure::BigTime,
            own: had(self) as i64,
            other: had(other) as i64,
        }
    }
}

impl RoundRobin {
    /// Decides once per `interval`, which is about how long a thread holds a
    /// big core.
    pub fn new(interval: Duration) -> Self {
        Self {
            interval,
            threads: FxHashMap::default(),
            applications: FxHashMap::default(),
            looked_at_ns: None,
            reasons: Reasons::default(),
            scratch: Scratch::default(),
        }
    }

    fn interval_ns(&self) -> u64 {
        self.interval.as_nanos() as u64
    }

    /// How long one may pause without losing a claim to big-core time.
    fn patience_ns(&self) -> u64 {
        (4 * self.interval_ns()).max(MIN_PATIENCE_NS)
    }

    /// Which tasks are busy: those that ran a good part of the time since the
    /// last look, or waited then and now. A busy task stays so while it is
    /// runnable; one that just happens to be on a CPU does not become so.
    fn busy<'a>(&self, snapshot: &Snapshot<'a>) -> impl Iterator<Item = &'a Task> {
        let enough = self.interval_ns() / BUSY_ONE_IN;
        let is_busy = move |task: &&Task| {
            let before = self.threads.get(&task.id).copied().unwrap_or_default();
            let was_busy =
                before.share.busy_at_ns.is_some() && before.share.busy_at_ns == self.looked_at_ns;
            task.total_ns().saturating_sub(before.total_ns) >= enough
                || (task.state == TaskState::Queued && before.queued)
                || (task.state != TaskState::Blocked && was_busy)
        };
        let tasks = snapshot.tasks.iter();
        tasks.filter(|task| !task.kthread).filter(is_busy)
    }

    /// Brings the accounts up to date: what the busy threads ran on big cores is
    /// charged to themselves and to their processes.
    fn charge(&mut self, snapshot: &Snapshot, busy: &[Task]) {
        let (now, patience) = (snapshot.now_ns, self.patience_ns());
        let Scratch {
            processes,
            siblings,
            ..
        } = &mut self.scratch;
        processes.clear();
        processes.extend(snapshot.tasks.iter().map(|task| task.tgid));
        self.applications.retain(|tgid, _| processes.contains(tgid));
        let active = |share: &Share| share.is_active(now, patience);
        let range = Range::of(self.applications.values().copied().filter(active));
        for task in busy {
            let share = self.applications.entry(task.tgid).or_default();
            share.note_busy(now, patience, range);
        }

        siblings.clear();
        for task in snapshot.tasks {
            let share = self.threads.get(&task.id).map(|thread| thread.share);
            if let Some(share) = share.filter(active) {
                let range = siblings.entry(task.tgid).or_insert(share.into());
                *range = range.with(share);
            }
        }
        self.threads.retain(|&id, _| snapshot.is_alive(id));
        let mut busy = busy.iter().map(|task| task.id).peekable();
        for task in snapshot.tasks {
            let big_ns = task.run_ns[BIG];
            let thread = self.threads.entry(task.id).or_insert(Thread {
                big_ns,
                ..Thread::default()
            });
            if busy.next_if_eq(&task.id).is_some() {
                let range = siblings.get(&task.tgid).copied().unwrap_or_default();
                thread.share.note_busy(now, patience, range);
            }
            if thread.share.is_active(now, patience) {
                let gained = big_ns.saturating_sub(thread.big_ns);
                thread.share.ns += gained;
                self.applications.entry(task.tgid).or_default().ns += gained;
            }
            thread.total_ns = task.total_ns();
            thread.big_ns = big_ns;
            thread.queued = task.state == TaskState::Queued;
            thread.settling = thread.settling.saturating_sub(1);
        }
        self.looked_at_ns = Some(now);
    }

    /// The core type where a task is: where it runs; if it waits, where it was
    /// told to go, for as long as that may take, and then where it ran last, for
    /// an idle CPU may have taken it there against the hint.
    fn place(&self, task: &Task) -> usize {
        let thread = self.threads.get(&task.id);
        let settling = thread.is_some_and(|thread| thread.settling > 0);
        match task.hint {
            Some(hint) if settling && task.state == TaskState::Queued => hint,
            _ => task.core_type,
        }
    }

    /// Notes which were told to move.
    fn note_moves(&mut self, actions: &[Action]) {
        for action in actions {
            let moved: &[Seen] = match action {
                Action::Hint(seen, _) => &[*seen],
                Action::Swap([(one, _), (other, _)]) => &[*one, *other],
                Action::Slowdown(..) | Action::Park(..) | Action::Weight(..) | Action::Join(..) => {
                    &[]
                }
            };
            for seen in moved {
                if let Some(thread) = self.threads.get_mut(&seen.task) {
                    thread.settling = SETTLING_LOOKS;
                }
            }
        }
    }

    fn candidate(&self, task: &Task) -> Candidate {
        Candidate {
            task: *task,
            place: self.place(task),
            had: (
                self.applications
                    .get(&task.tgid)
                    .map_or(0, |share| share.ns),
                self.threads
                    .get(&task.id)
                    .map_or(0, |thread| thread.share.ns),
            ),
        }
    }

    /// Whether `out` had so much more of the big cores than `next` that they
    /// should change places: half an interval, or they would be swapped for
    /// ever over the noise of the clock.
    fn should_yield(&self, out: &Candidate, next: &Candidate) -> bool {
        let margin = self.interval_ns() / 2;
        if out.task.tgid == next.task.tgid {
            out.had.1 > next.had.1 + margin
        } else {
            out.had.0 > next.had.0 + margin
        }
    }
}

impl Policy for RoundRobin {
    fn interval(&self) -> Option<Duration> {
        Some(self.interval)
    }

    fn decide(&mut self, snapshot: &Snapshot, actions: &mut Vec<Action>) {
        self.reasons.begin();
        let nr_types = snapshot.topology.types.len();
        if nr_types < 2 {
            return;
        }
        let mut busy = std::mem::take(&mut self.scratch.busy);
        busy.clear();
        busy.extend(self.busy(snapshot));
        self.charge(snapshot, &busy);

        let mut on_big = std::mem::take(&mut self.scratch.on_big);
        let mut elsewhere = std::mem::take(&mut self.scratch.elsewhere);
        on_big.clear();
        elsewhere.clear();
        let mut room = placement::shares(snapshot.topology, busy.len());
        for task in &busy {
            let candidate = self.candidate(task);
            if task.pinned || !task.may_use(BIG) || task.allowed_types.count_ones() < 2 {
                // Threads that cannot move take up room where they are.
                let here = &mut room[candidate.place.min(nr_types - 1)];
                *here = here.saturating_sub(1);
            } else if candidate.place == BIG {
                on_big.push(candidate);
            } else {
                elsewhere.push(candidate);
            }
        }
        // Those that had most leave first; those that had least enter first.
        on_big.sort_unstable_by_key(|candidate| Reverse((candidate.had, candidate.task.id)));
        elsewhere.sort_unstable_by_key(|candidate| (candidate.had, candidate.task.id));
        let first = actions.len();
        let mut leaving = on_big.iter();
        let mut entering = elsewhere.iter();

        // Too few or too many on the big cores: put the number right.
        for next in entering
            .by_ref()
            .take(room[BIG].saturating_sub(on_big.len()))
        {
            actions.push(Action::Hint((&next.task).into(), Some(BIG)));
        }
        for out in leaving
            .by_ref()
            .take(on_big.len().saturating_sub(room[BIG]))
        {
            let emptiest = (1..nr_types)
                .filter(|&core_type| out.task.may_use(core_type))
                .max_by_key(|&core_type| {
                    let there = elsewhere.iter().filter(|c| c.place == core_type).count();
                    (room[core_type].saturating_sub(there), Reverse(core_type))
                });
            if emptiest.is_some() {
                actions.push(Action::Hint((&out.task).into(), emptiest));
            }
        }
        self.reasons.balanced(&actions[first..]);
        for (out, next) in leaving.zip(entering) {
            if self.should_yield(out, next) && out.task.may_use(next.place) {
                actions.push(Action::Swap([
                    ((&out.task).into(), next.place),
                    ((&next.task).into(), BIG),
                ]));
                for (one, other) in [(out, next), (next, out)] {
                    self.reasons.note(one.task.id, one.compared(other));
                }
            }
        }
        self.note_moves(actions);
        self.scratch.busy = busy;
        self.scratch.on_big = on_big;
        self.scratch.elsewhere = elsewhere;
    }

    fn reason(&self, task: TaskId) -> Option<Reason> {
        self.reasons.of(task)
    }

    fn insight(&self, task: &Task, _: &Topology) -> Insight {
        let thread = self.threads.get(&task.id);
        let busy_at = thread.and_then(|thread| thread.share.busy_at_ns);
        Insight {
            takes_part: Some(busy_at.is_some() && busy_at == self.looked_at_ns),
            ..Insight::default()
        }
    }
}
