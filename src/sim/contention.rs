// SPDX-License-Identifier: GPL-2.0-only
//! How fast threads are, alone and in company: last-level caches and ways to memory.
//!
//! **Alone**, a phase takes the time per instruction that its profile says. **In company** it waits
//! for more misses, and longer for each:
//!
//! - *Cache*: the characteristic-time approximation of an LRU cache (Che, Tung and Wang, 2002). A
//!   line stays for a time T that is the same for all lines; T is such that all that was brought in
//!   or used within it fills the cache. Data of N lines used at random a times a second occupy
//!   N (1 - e^(-aT/N)) lines, and miss with probability e^(-aT/N); a stream occupies its rate times T.
//!   Data that are used in turn, each once in a round, are there for the next one if it comes within T,
//!   and of the virtual machine's caches some is kept, see [`super::program::ProgramPhase::in_turn`].
//! - *Bandwidth*: a way that is used to the part L of its capacity answers 1 + L²/2 times as late as
//!   an idle one, and beyond 95 % so late that no more than that is asked for. It is the rule of the
//!   virtual machine (testbed/hybrid/memory.c), so that the two can be compared; assumed.
//!
//! Threads that move about bring their data along: see [`PhaseLoad::refill_ns`].

mod load;

use std::collections::HashMap;

pub(super) use load::PhaseLoad;

use super::machine::SimulatedMachine;
use crate::pmu::sample::LINE_BYTES;
use crate::topology::MAX_CORE_TYPES;

/// The most of a bandwidth that can be had (testbed/hybrid/memory.c).
const FULL: f64 = 0.95;

/// How late a way answers that is full, without a queue: 1 + L²/2 of L = 0.95.
const FULL_LOAD: f64 = 1.45;

/// New lines enter so far from the front of a cache, and data before that is kept (testbed/hybrid/cache.c).
const MOST_KEPT: f64 = 0.5;

/// What those have of it at most that use their data in turn: the rest is data that none asks for any more. Counted for
/// `chase` alone (`hybrid totals`): 0.39 to 0.42 on each machine.
const MOST_IN_TURN: f64 = 0.4;

/// What they have of that in company, of what it was that they found as they began: `chase` and `resident` beside `stream` and
/// `chase` on the virtual Alder Lake 0 to 1, 0.83 in the mean of 17 placements. Of several caches they began in one.
const IN_COMPANY: f64 = 0.83;

/// Of its speed, lost to a thread of the same core that waits (testbed/hybrid/smt.c).
const HALVED: f64 = 0.08;

/// The part of a last-level cache that those have which are confined, and the others not: as
/// [`crate::resctrl::ResctrlWays`] gives them, but those that are not use that, too, there.
const CONFINED: f64 = 0.1;

/// Rounds of the search for a balance.
const ROUNDS: usize = 60;

/// It is found when no speed changes by more than this.
const BALANCED: f64 = 1e-4;

/// Balances that are remembered.
const REMEMBERED: usize = 1 << 16;

/// How fast a thread is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rate {
    /// Time per instruction, ns.
    pub(super) ns_per_instruction: f64,
    /// Misses of the last-level cache in an instruction.
    pub(super) misses: f64,
    /// Lines of it that it holds.
    pub(super) lines: f64,
    /// What part of its time it waits for memory.
    pub(super) stalled: f64,
}

/// Threads that do the same beside each other.
#[derive(Clone, Copy)]
struct User<'a> {
    load: &'a PhaseLoad,
    /// Accesses in an instruction that the last-level cache sees, see [`PhaseLoad`].
    reuse: f64,
    /// How many.
    count: f64,
    rate: Rate,
    /// The part of its data that nothing displaces.
    kept: f64,
}

impl User<'_> {
    /// Lines of data that it uses again and that can be displaced.
    fn lines(&self) -> f64 {
        match self.reuse > 0.0 {
            true => self.count * self.load.lines * (1.0 - self.kept),
            false => 0.0,
        }
    }
}

/// What part of its data each of `users` of a cache of `bytes` keeps, see [`super::program::ProgramPhase::kept`];
/// of what is used in turn `in_turn` of what could be.
fn keep(bytes: f64, in_turn: f64, users: &mut [User]) {
    let lines = bytes / LINE_BYTES;
    let met_soon = share(MOST_KEPT * lines, users, |load| load.kept);
    share(
        (MOST_IN_TURN * lines - met_soon).max(0.0) * in_turn,
        users,
        |load| load.in_turn,
    );
}

/// Shares `lines` among those users that want them: those with little data get all they want, and others alike much; how
/// many they keep.
fn share(lines: f64, users: &mut [User], wants: impl Fn(&PhaseLoad) -> bool) -> f64 {
    let mut left = lines;
    let wanting = users
        .iter_mut()
        .filter(|user| user.reuse > 0.0 && wants(user.load));
    let mut wanting: Vec<&mut User> = wanting.collect();
    wanting.sort_by(|a, b| a.load.lines.total_cmp(&b.load.lines));
    let mut threads: f64 = wanting.iter().map(|user| user.count).sum();
    for user in wanting {
        user.kept = (left / threads / user.load.lines).min(1.0);
        left -= user.count * user.load.lines * user.kept;
        threads -= user.count;
    }
    lines - left
}

/// For how long a line stays in a cache of `bytes` that these use, ns. The search begins at `start`.
fn stay(bytes: f64, users: &[User], start: f64) -> f64 {
    let kept = users.iter().filter(|user| user.kept > 0.0);
    let kept = kept.map(|user| user.count * user.load.lines * user.kept);
    let lines = bytes / LINE_BYTES;
    // What is met again at random moves on towards the front, and what is used in turn hardly ever does.
    let size = match users.iter().any(|user| user.load.in_turn) {
        true => (1.0 - MOST_KEPT) * lines,
        false => lines - kept.sum::<f64>(),
    };
    let streams = users.iter().any(|user| user.load.stream > 0.0);
    if !streams && users.iter().map(User::lines).sum::<f64>() <= size {
        return f64::INFINITY;
    }
    // What is held is concave in the time, so that Newton's steps come from below, but for the first.
    let mut stay = if start.is_finite() { start } else { 0.0 };
    for _ in 0..40 {
        let (mut held, mut slope) = (0.0, 0.0);
        for user in users {
            let (load, ns) = (user.load, user.rate.ns_per_instruction);
            held += user.count * load.stream / ns * stay;
            slope += user.count * load.stream / ns;
            if user.reuse > 0.0 {
                let rate = user.reuse / ns;
                let (there, more) = load.there(user.lines(), rate * stay);
                held += there;
                slope += more * rate;
            }
        }
        let step = (size - held) / slope.max(f64::MIN_POSITIVE);
        stay = (stay + step).max(0.0);
        if step.abs() <= 1e-6 * stay {
            break;
        }
    }
    stay
}

/// A thread that runs: which phase, on which core type, below which last-level cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RunningThread {
    /// Index of the last-level cache within its module.
    pub(super) llc: usize,
    /// Its program has few ways of that, see [`CONFINED`].
    pub(super) confined: bool,
    /// Index of the core type.
    pub(super) core_type: usize,
    /// Index into the phases on this machine.
    pub(super) load: usize,
    /// That of the thread which has the other half of its core, if one runs there.
    pub(super) beside: Option<usize>,
}

/// Balances of threads that share a memory.
pub(super) struct Contention {
    /// Bytes, bandwidth and memory by last-level cache of a module; bandwidth by memory.
    llcs: Vec<(f64, f64, usize)>,
    memories: Vec<f64>,
    /// See [`super::machine::Core::smt`].
    smt: Vec<f64>,
    types: usize,
    /// By load, core type and last-level cache.
    alone: Vec<(Rate, f64)>,
    /// All phases that can run.
    pub(super) loads: Vec<PhaseLoad>,
    /// What was worked out before. Only looked up, so its order never shows.
    known: HashMap<Vec<u64>, Vec<Rate>>,
    key: Vec<u64>,
}

/// A way to memory: what it can move, and how late it answers.
#[derive(Clone, Copy)]
struct Way {
    bandwidth: f64,
    load: f64,
    queue: f64,
}

impl Way {
    fn new(bandwidth: f64) -> Self {
        Self {
            bandwidth,
            load: 0.0,
            queue: 1.0,
        }
    }

    fn factor(&self) -> f64 {
        (1.0 + self.load * self.load / 2.0) * self.queue
    }

    /// Takes in what is asked for, bytes/ns.
    fn ask(&mut self, traffic: f64) {
        let used = traffic / self.bandwidth;
        self.load += 0.5 * (used.min(1.0) - self.load);
        self.queue = (self.queue * (used / FULL).max(0.01).sqrt()).clamp(1.0, 1000.0);
    }

    /// The factor for one that uses it alone.
    fn alone(bandwidth: f64, traffic: f64) -> f64 {
        let load = (traffic / bandwidth).min(1.0);
        1.0 + load * load / 2.0
    }
}

impl Contention {
    /// For a machine and all phases that can run there.
    pub(super) fn new(machine: &SimulatedMachine, loads: Vec<PhaseLoad>) -> Self {
        let llcs = machine.llcs[..machine.llcs_in_module].iter();
        let llcs: Vec<_> = llcs
            .map(|llc| (llc.bytes, llc.bandwidth, llc.memory))
            .collect();
        let memories = machine.memories.iter();
        let memories: Vec<f64> = memories.map(|memory| memory.bandwidth).collect();
        let mut alone = Vec::new();
        for load in &loads {
            for core_type in 0..machine.cores.len() {
                for &(bytes, bandwidth, memory) in &llcs {
                    let mut rate = load.alone(core_type, load.alone_ns(core_type), bytes);
                    let traffic = rate.misses * load.line_bytes / rate.ns_per_instruction;
                    let factor =
                        Way::alone(bandwidth, traffic) * Way::alone(memories[memory], traffic);
                    let late = if core_type == 0 { load.late } else { 1.0 };
                    let unhurried = factor.max(late);
                    let waits = rate.misses * load.miss_ns[core_type] * unhurried;
                    rate.stalled = (waits / rate.ns_per_instruction).min(1.0);
                    alone.push((rate, unhurried));
                }
            }
        }
        Self {
            llcs,
            memories,
            smt: machine.cores.iter().map(|core| core.smt).collect(),
            types: machine.cores.len(),
            alone,
            loads,
            known: HashMap::new(),
            key: Vec::new(),
        }
    }

    /// How fast each of `runners`, which share one memory and are sorted, is.
    pub(super) fn rates(&mut self, runners: &[RunningThread]) -> &[Rate] {
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        for alike in runners.chunk_by(|a, b| a == b) {
            let RunningThread {
                llc,
                confined,
                core_type,
                load,
                beside,
            } = alike[0];
            if let Some(beside) = beside {
                key.push(u64::MAX - beside as u64);
            }
            if confined {
                key.push(u64::MAX / 2);
            }
            // Hashing takes its time: a word for each group.
            key.push(
                (((load * MAX_CORE_TYPES + core_type) * self.llcs.len() + llc) as u64) << 16
                    | alike.len() as u64,
            );
        }
        if !self.known.contains_key(&key) {
            if self.known.len() >= REMEMBERED {
                self.known.clear();
            }
            let rates = self.balance(runners);
            self.known.insert(key.clone(), rates);
        }
        self.key = key;
        &self.known[&self.key]
    }

    fn balance(&self, runners: &[RunningThread]) -> Vec<Rate> {
        // What does the same under the same cache is as fast.
        let alike: Vec<&[RunningThread]> = runners.chunk_by(|a, b| a == b).collect();
        let mut users: Vec<User> = alike.iter().map(|group| self.user(group)).collect();
        let mut caches: Vec<Cache> = Vec::new();
        let mut ways: Vec<(usize, Way, f64)> = Vec::new();
        for (index, group) in alike.iter().enumerate() {
            let RunningThread { llc, confined, .. } = group[0];
            if ways.last().is_none_or(|way| way.0 != llc) {
                ways.push((llc, Way::new(self.llcs[llc].1), 0.0));
            }
            match caches.last_mut() {
                Some(cache) if (cache.llc, cache.confined) == (llc, confined) => {
                    cache.users.end = index + 1;
                }
                _ => caches.push(Cache {
                    llc,
                    confined,
                    bytes: self.llcs[llc].0,
                    users: index..index + 1,
                    way: ways.len() - 1,
                    stay: 0.0,
                }),
            }
        }
        // Without those that are confined, the others have all of it.
        for at in 0..caches.len() {
            if caches[at].confined {
                caches[at].bytes *= CONFINED;
                if at > 0 && caches[at - 1].llc == caches[at].llc {
                    caches[at - 1].bytes *= 1.0 - CONFINED;
                }
            }
        }
        let alone = runners.len() == 1 && !runners[0].confined;
        if let (Some(cache), false) = (caches.first(), alone) {
            let mut memory = Way::new(self.memories[self.llcs[cache.llc].2]);
            for cache in &caches {
                let users = &mut users[cache.users.clone()];
                keep(cache.bytes, IN_COMPANY / self.llcs.len() as f64, users);
                // Where one alone asks for all that can be moved, others find it like that.
                let late = users.iter().map(|user| user.load.late);
                let way = &mut ways[cache.way].1;
                let narrow = if way.bandwidth < memory.bandwidth {
                    way
                } else {
                    &mut memory
                };
                narrow.queue = late.fold(narrow.queue, |most, late| most.max(late / FULL_LOAD));
            }
            for round in 0..ROUNDS {
                let mut changed: f64 = 0.0;
                let mut traffic = 0.0;
                for cache in &mut caches {
                    let range = cache.users.clone();
                    let (_, way, asked) = &mut ways[cache.way];
                    let factor = way.factor() * memory.factor();
                    cache.stay = stay(cache.bytes, &users[range.clone()], cache.stay);
                    for (user, group) in users[range.clone()].iter_mut().zip(&alike[range]) {
                        changed = changed.max(self.step(user, group[0], cache.stay, factor));
                        *asked += user.traffic();
                    }
                }
                for (_, way, asked) in &mut ways {
                    way.ask(*asked);
                    traffic += std::mem::take(asked);
                }
                memory.ask(traffic);
                // At first it is not known how late misses are answered.
                if changed < BALANCED && round > 3 {
                    break;
                }
            }
        }
        let each = alike.iter().zip(&users);
        each.flat_map(|(group, user)| std::iter::repeat_n(user.rate, group.len()))
            .collect()
    }

    fn user(&self, group: &[RunningThread]) -> User<'_> {
        User {
            load: &self.loads[group[0].load],
            reuse: self.loads[group[0].load].reuse[group[0].core_type],
            count: group.len() as f64,
            rate: self.alone_of(group[0]).0,
            kept: 0.0,
        }
    }

    /// What a runner would be alone, and how late its misses were answered then.
    fn alone_of(&self, runner: RunningThread) -> (Rate, f64) {
        let place = (runner.load * self.types + runner.core_type) * self.llcs.len() + runner.llc;
        self.alone[place]
    }

    /// What a runner computes longer for each instruction because another thread has half of its core, ns: as in the
    /// virtual machine (`testbed/hybrid/smt.c`), but that all disturb each other alike, and that how long the other one waits
    /// is as it would be alone.
    fn shared_ns(&self, runner: RunningThread) -> f64 {
        let Some(beside) = runner.beside else {
            return 0.0;
        };
        let computes = |load| self.computing_ns(RunningThread { load, ..runner });
        let other = computes(beside) / self.loads[beside].alone_ns(runner.core_type);
        let lost = other * (1.0 - self.smt[runner.core_type] / 2.0) + (1.0 - other) * HALVED;
        computes(runner.load) * (1.0 / (1.0 - lost) - 1.0)
    }

    /// What of the time per instruction alone a runner computes, ns.
    fn computing_ns(&self, runner: RunningThread) -> f64 {
        let (alone, _) = self.alone_of(runner);
        alone.ns_per_instruction * (1.0 - alone.stalled)
    }

    /// Goes towards how fast users are if lines stay for so long and misses are answered so late;
    /// by what part they changed.
    fn step(&self, user: &mut User, runner: RunningThread, stay: f64, factor: f64) -> f64 {
        let (alone, unhurried) = self.alone_of(runner);
        let ns = user.rate.ns_per_instruction;
        let (load, core_type) = (user.load, runner.core_type);
        let misses = load
            .misses(core_type, ns, stay, user.kept)
            .max(alone.misses);
        let in_flight = runner.beside.map_or(1.0, |_| load.in_flight[core_type]);
        let waits = misses * factor.max(unhurried) * in_flight - alone.misses * unhurried;
        let walks = misses * in_flight - alone.misses;
        let shared = self.shared_ns(runner);
        let wished = alone.ns_per_instruction
            + shared
            + load.miss_ns[core_type] * waits
            + load.walk_ns[core_type] * walks;
        // Half the way, or two that slow each other down would go on taking turns.
        user.rate = Rate {
            ns_per_instruction: 0.5 * (ns + wished),
            misses,
            lines: load.held(core_type, ns, stay, user.kept),
            stalled: (1.0 - (self.computing_ns(runner) + shared) / wished).max(0.0),
        };
        (user.rate.ns_per_instruction / ns - 1.0).abs()
    }
}

/// A last-level cache in use, or the part of one that those have which are confined.
struct Cache {
    llc: usize,
    confined: bool,
    bytes: f64,
    /// Which users are its.
    users: std::ops::Range<usize>,
    /// Which way to memory is its.
    way: usize,
    stay: f64,
}

impl User<'_> {
    /// What they ask of memory, bytes/ns.
    fn traffic(&self) -> f64 {
        self.count * self.rate.misses * self.load.line_bytes / self.rate.ns_per_instruction
    }
}

#[cfg(test)]
mod tests;
