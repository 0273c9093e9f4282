// SPDX-License-Identifier: GPL-2.0-or-later
//! NWC mode, the non-work-conserving one: low contention made on purpose, to learn how fast one
//! thread is undisturbed (CAMPS 2018, section 4.4), within bounds that the paper leaves open.
//!
//! A state machine on plain values: each [`Nwc::step`] takes a [`NwcView`] of the machine and says
//! what is wished for. It acts on nothing itself.

use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::slowdown::Thresholds;
use crate::slowdown::contention::is_low;
use crate::table::TaskId;

/// The rules and their bounds; times in ns.
#[derive(Clone, Copy, Debug)]
pub struct NwcRules {
    /// k: a thread is judged by so many intervals. The warm-up (section 4.3) is among the first.
    pub intervals: u32,
    /// One that exceeds `high_btr` all alone waits for so many where core types share a cache: nearly all
    /// others have to be idled for it (`docs/decisions/young-aggressors.md`).
    pub of_aggressor: u32,
    /// Below this phase hit rate a thread wants in, above it an episode has served its purpose.
    pub hit_rate: f64,
    /// So many samples must go into the history before an episode can have served its purpose.
    pub samples: u32,
    /// CPUs are idled for so long at a time.
    pub idle_ns: u64,
    /// An episode is given up after this.
    pub episode_ns: u64,
    /// Share of time that may pass in NWC mode.
    pub share: f64,
    /// A thread whose episode failed waits this long, then twice as long each time.
    pub back_off_ns: u64,
    /// The longest wait.
    pub max_back_off_ns: u64,
}

impl Default for NwcRules {
    /// 80 %, and 100 ms at a time, are the paper's; k is a second of 50 ms intervals.
    fn default() -> Self {
        Self {
            intervals: 20,
            of_aggressor: 100,
            hit_rate: 0.8,
            samples: 3,
            idle_ns: 100_000_000,
            episode_ns: 500_000_000,
            share: 0.05,
            back_off_ns: 2_000_000_000,
            max_back_off_ns: 256_000_000_000,
        }
    }
}

/// A thread that takes part in scheduling, as NWC mode sees it.
#[derive(Clone, Copy, Debug)]
pub struct NwcThread {
    /// Which.
    pub task: TaskId,
    /// CPU on which it ran last.
    pub cpu: u32,
    /// It is on the fastest type.
    pub on_big: bool,
    /// It may use the fastest type, and may be moved.
    pub may_move: bool,
    /// Monitoring intervals of its life.
    pub intervals: u32,
    /// Phase hits among its last k intervals, 0 to 1.
    pub hit_rate: f64,
    /// Samples that went into its history in its last k intervals.
    pub learned: u32,
    /// Phase hits in its life.
    pub total_hits: u32,
    /// Samples that went into its history in its life.
    pub total_learned: u32,
    /// Its progress is far ahead of the others'.
    pub far_ahead: bool,
    /// Its latest BTR, bytes/s.
    pub btr: f64,
}

/// A busy CPU.
#[derive(Clone, Copy, Debug)]
pub struct BusyCpu {
    /// CPU id.
    pub cpu: u32,
    /// Contention domain.
    pub llc: usize,
    /// Lowest id among its SMT siblings.
    pub core: u32,
    /// BTR of what runs there, bytes/s.
    pub btr: f64,
    /// What runs there must not be held: latency-sensitive, pinned, or the kernel's.
    pub exempt: bool,
}

/// What the machine looks like.
#[derive(Clone, Copy, Debug)]
pub struct NwcView<'a> {
    /// Monotonic, ns.
    pub now_ns: u64,
    /// Runnable threads that take part. A thread that is missing has blocked or ended.
    pub threads: &'a [NwcThread],
    /// CPUs that are running something.
    pub cpus: &'a [BusyCpu],
    /// When contention is low.
    pub limits: Thresholds,
    /// CPUs of the fastest type share their cache with slower ones.
    pub shared: bool,
}

/// What NWC mode wishes for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Bring the thread to the fastest type, in place of `partner` or if `None` wherever there is
    /// room.
    SwapIn {
        /// The NWC thread.
        thread: TaskId,
        /// Those that make room.
        partner: Option<TaskId>,
    },
    /// Keep a CPU idle for so long from now on, at most [`NwcRules::idle_ns`]; zero is no longer.
    Park(u32, Duration),
}

/// Why an episode ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The thread's hit rate is good.
    Learned,
    /// The thread blocked or ended.
    Gone,
    /// It took too long, or there was no low contention to be made.
    GivenUp,
}

#[derive(Clone, Debug)]
struct Episode {
    thread: TaskId,
    began_ns: u64,
    /// The thread's [`NwcThread::total_learned`] at the beginning.
    began_learned: u32,
    /// Its intervals and hits when the first sample was seen to have gone in.
    first: Option<(u32, u32)>,
    /// Until when CPUs are idled for it, ns.
    parked_until_ns: u64,
    /// When it was last wished to the fastest type, ns.
    asked_at_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct BackOff {
    wait_ns: u64,
    until_ns: u64,
}

/// The state machine.
#[derive(Debug)]
pub struct Nwc {
    rules: NwcRules,
    episode: Option<Episode>,
    /// CPUs that are idled for the episode.
    parked: Vec<u32>,
    /// Those that have to follow; kept for its memory.
    more: Vec<u32>,
    back_offs: FxHashMap<TaskId, BackOff>,
    /// Time that may be spent, ns; grows by [`NwcRules::share`] of all time.
    credit_ns: f64,
    looked_at_ns: Option<u64>,
    spent_ns: u64,
    episodes: u64,
    learned: u64,
    last_exit: Option<Exit>,
}

impl Nwc {
    /// Out of NWC mode.
    pub fn new(rules: NwcRules) -> Self {
        Self {
            rules,
            episode: None,
            parked: Vec::new(),
            more: Vec::new(),
            back_offs: FxHashMap::default(),
            credit_ns: rules.episode_ns as f64,
            looked_at_ns: None,
            spent_ns: 0,
            episodes: 0,
            learned: 0,
            last_exit: None,
        }
    }

    /// The NWC thread, in NWC mode.
    pub fn thread(&self) -> Option<TaskId> {
        Some(self.episode.as_ref()?.thread)
    }

    /// Time spent in NWC mode, ns.
    pub fn spent_ns(&self) -> u64 {
        self.spent_ns
    }

    /// Episodes begun.
    pub fn episodes(&self) -> u64 {
        self.episodes
    }

    /// Episodes that served their purpose.
    pub fn learned(&self) -> u64 {
        self.learned
    }

    /// Why the last episode ended.
    pub fn last_exit(&self) -> Option<Exit> {
        self.last_exit
    }

    /// The rules in force.
    pub fn rules(&self) -> &NwcRules {
        &self.rules
    }

    /// Looks at the machine, enters or leaves NWC mode, and appends what it wishes to `wishes`.
    pub fn step(&mut self, look: &NwcView, wishes: &mut Vec<Wish>) {
        let elapsed = look.now_ns - self.looked_at_ns.unwrap_or(look.now_ns).min(look.now_ns);
        self.looked_at_ns = Some(look.now_ns);
        // Credit saved up lasts for two episodes.
        let most = 2.0 * self.rules.episode_ns as f64;
        self.credit_ns = (self.credit_ns + elapsed as f64 * self.rules.share).min(most);
        if self.episode.is_some() {
            // No longer than that, and then another decided for a while: CPUs were idled for 100 ms at the most.
            let spent = elapsed.min(self.rules.episode_ns);
            self.credit_ns -= spent as f64;
            self.spent_ns += spent;
        }
        if let Some(exit) = self.exit(look) {
            self.leave(exit, look.now_ns, wishes);
            return;
        }
        if self.episode.is_none() {
            self.enter(look);
        }
        self.pursue(look, wishes);
    }

    /// Forgets threads that ended.
    pub fn retain(&mut self, is_alive: impl Fn(TaskId) -> bool) {
        self.back_offs.retain(|&task, _| is_alive(task));
    }

    fn enter(&mut self, look: &NwcView) {
        // Less than half an episode would be too little to learn from.
        if self.credit_ns < 0.5 * self.rules.episode_ns as f64 {
            return;
        }
        let wants_in = |thread: &&NwcThread| {
            let waits = self.back_offs.get(&thread.task);
            let is_costly = look.shared && thread.btr >= look.limits.high_btr;
            let old_enough = match is_costly {
                true => self.rules.of_aggressor,
                false => self.rules.intervals,
            };
            thread.intervals >= old_enough
                && thread.may_move
                && !thread.far_ahead
                && thread.hit_rate < self.rules.hit_rate
                && thread.learned == 0
                && waits.is_none_or(|back_off| look.now_ns >= back_off.until_ns)
        };
        let worst = look
            .threads
            .iter()
            .filter(wants_in)
            .min_by(|a, b| (a.hit_rate.total_cmp(&b.hit_rate)).then(a.task.cmp(&b.task)));
        if let Some(thread) = worst {
            self.episodes += 1;
            self.parked.clear();
            self.episode = Some(Episode {
                thread: thread.task,
                began_ns: look.now_ns,
                began_learned: thread.total_learned,
                first: None,
                parked_until_ns: 0,
                asked_at_ns: None,
            });
        }
    }

    fn exit(&mut self, look: &NwcView) -> Option<Exit> {
        let rules = self.rules;
        let episode = self.episode.as_mut()?;
        let Some(thread) = look.threads.iter().find(|t| t.task == episode.thread) else {
            return Some(Exit::Gone);
        };
        // The last k intervals still remember why it came to this: what counts is the hit rate
        // since something was learned.
        let learned = thread.total_learned.saturating_sub(episode.began_learned);
        if learned > 0 {
            let now = (thread.intervals, thread.total_hits);
            let first = *episode.first.get_or_insert(now);
            let intervals = f64::from(now.0.saturating_sub(first.0));
            let hits = f64::from(now.1.saturating_sub(first.1));
            if learned >= rules.samples && intervals > 0.0 && hits > rules.hit_rate * intervals {
                return Some(Exit::Learned);
            }
        }
        let too_long = look.now_ns - episode.began_ns >= rules.episode_ns;
        (too_long || self.credit_ns <= 0.0).then_some(Exit::GivenUp)
    }

    fn leave(&mut self, exit: Exit, now_ns: u64, wishes: &mut Vec<Wish>) {
        let Some(episode) = self.episode.take() else {
            return;
        };
        if now_ns < episode.parked_until_ns {
            let parked = self.parked.iter();
            wishes.extend(parked.map(|&cpu| Wish::Park(cpu, Duration::ZERO)));
        }
        self.last_exit = Some(exit);
        self.learned += u64::from(exit == Exit::Learned);
        let first = self.rules.back_off_ns;
        let wait_ns = match (exit, self.back_offs.get(&episode.thread)) {
            (Exit::Learned, _) | (_, None) => first,
            (_, Some(last)) => (last.wait_ns * 2).min(self.rules.max_back_off_ns),
        };
        let until_ns = now_ns + wait_ns;
        self.back_offs
            .insert(episode.thread, BackOff { wait_ns, until_ns });
    }

    fn pursue(&mut self, look: &NwcView, wishes: &mut Vec<Wish>) {
        let idle_ns = self.rules.idle_ns;
        let Some(episode) = self.episode.as_mut() else {
            return;
        };
        let Some(thread) = look.threads.iter().find(|t| t.task == episode.thread) else {
            return;
        };
        if !thread.on_big {
            let asked = episode.asked_at_ns;
            // Again if nothing came of it: one of the two may have moved meanwhile.
            if asked.is_none_or(|at| look.now_ns >= at + idle_ns) {
                // A memory-intensive partner takes its contention away with it.
                let partners = look.threads.iter().filter(|t| t.on_big && t.may_move);
                let partner = partners
                    .max_by(|a, b| a.btr.total_cmp(&b.btr).then(b.task.cmp(&a.task)))
                    .map(|partner| partner.task);
                wishes.push(Wish::SwapIn {
                    thread: thread.task,
                    partner,
                });
                episode.asked_at_ns = Some(look.now_ns);
            }
            return;
        }
        // Those parked already stay so as long as this goes on; more may have to follow.
        to_park(thread, look, &mut self.more);
        let due = look.now_ns + idle_ns / 2 >= episode.parked_until_ns;
        if self.more.is_empty() && (!due || self.parked.is_empty()) {
            return;
        }
        self.parked.append(&mut self.more);
        self.parked.sort_unstable();
        self.parked.dedup();
        episode.parked_until_ns = look.now_ns + idle_ns;
        let time = Duration::from_nanos(idle_ns);
        let parked = self.parked.iter();
        wishes.extend(parked.map(|&cpu| Wish::Park(cpu, time)));
    }
}

/// Where several are said to use one CPU, as one that waits and ran for most of the last look: once, with the greatest BTR;
/// exempt if any of them is.
pub(super) fn each_cpu_once(cpus: &mut Vec<BusyCpu>) {
    cpus.sort_unstable_by_key(|cpu| cpu.cpu);
    cpus.dedup_by(|other, kept| {
        let same = other.cpu == kept.cpu;
        if same {
            kept.btr = kept.btr.max(other.btr);
            kept.exempt |= other.exempt;
        }
        same
    });
}

/// Fills `parked` with the fewest CPUs to idle for low contention around `thread`, those with the
/// highest BTR; none if contention is low, or if idling all would not do. The paper idles big cores,
/// whose cluster shares its cache with no other; where core types share one, the aggressor may be on any
/// of them.
fn to_park(thread: &NwcThread, look: &NwcView, parked: &mut Vec<u32>) {
    parked.clear();
    let Some(here) = look.cpus.iter().find(|cpu| cpu.cpu == thread.cpu) else {
        return;
    };
    let others = || look.cpus.iter().filter(|cpu| cpu.cpu != here.cpu);
    for sibling in others().filter(|cpu| cpu.core == here.core) {
        if sibling.exempt {
            parked.clear();
            return;
        }
        parked.push(sibling.cpu);
    }
    let in_domain = || others().filter(|cpu| cpu.llc == here.llc);
    let running = in_domain().filter(|cpu| !parked.contains(&cpu.cpu));
    let mut left: f64 = running.map(|cpu| cpu.btr).sum();
    while !is_low(thread.btr, left, &look.limits) {
        let candidates = in_domain().filter(|cpu| !cpu.exempt && !parked.contains(&cpu.cpu));
        let most = candidates.max_by(|a, b| a.btr.total_cmp(&b.btr).then(b.cpu.cmp(&a.cpu)));
        let Some(next) = most else {
            parked.clear();
            return;
        };
        left = (left - next.btr).max(0.0);
        parked.push(next.cpu);
    }
}

#[cfg(test)]
mod tests;
