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
//! - *Bandwidth*: a way that is used to the part L of its capacity answers 1 + L²/2 times as late as
//!   an idle one, and beyond 95 % so late that no more than that is asked for. It is the rule of the
//!   virtual machine (testbed/hybrid/memory.c), so that the two can be compared; assumed.
//!
//! Threads that move about bring their data along: see [`Load::refill_ns`].

use std::collections::HashMap;

use super::machine::Machine;
use super::program::Phase;
use crate::pmu::module::LINE_BYTES;
use crate::topology::MAX_CORE_TYPES;

/// The most of a bandwidth that can be had (testbed/hybrid/memory.c).
const FULL: f64 = 0.95;

/// Misses make up at most this part of a phase's time alone, whatever its profile says; assumed.
const MOST_STALLED: f64 = 0.95;

/// The core that profiles' instructions per cycle are of: a Cortex-A57 of the Juno board, as
/// testbed/machines/juno-r1.toml has it.
const REFERENCE_HZ: f64 = 1.15e9;
const REFERENCE_BYTES: f64 = 2048.0 * 1024.0;
const REFERENCE_LATENCY_NS: f64 = 130.0;
const REFERENCE_OVERLAP: f64 = 3.0;
const REFERENCE_PREFETCH: f64 = 30.0;

/// Less traffic than this part of the memory's bandwidth, or of a cache's lines in a millisecond,
/// disturbs nobody; assumed, and far below what shows.
const NEGLIGIBLE: f64 = 1e-4;

/// Rounds of the search for a balance.
const ROUNDS: usize = 60;

/// It is found when no speed changes by more than this.
const BALANCED: f64 = 1e-5;

/// Balances that are remembered.
const REMEMBERED: usize = 1 << 16;

/// A phase on a machine.
#[derive(Clone, Debug)]
pub(super) struct Load {
    /// Alone, by core type.
    ns_per_instruction: [f64; MAX_CORE_TYPES],
    /// What a miss costs alone, by core type.
    miss_ns: [f64; MAX_CORE_TYPES],
    /// Misses in an instruction that no cache spares.
    stream: f64,
    /// Accesses in an instruction to data that a cache may hold, and how many lines these are.
    reuse: f64,
    lines: f64,
    /// What a miss moves, bytes.
    line_bytes: f64,
    /// Whether it disturbs, or can be disturbed, at all.
    matters: bool,
    /// Loads and branches in an instruction.
    pub(super) loads: f64,
    pub(super) branches: f64,
}

impl Load {
    /// What `phase` is on `machine`.
    pub(super) fn new(machine: &Machine, phase: &Phase) -> Self {
        let mut load = Self {
            ns_per_instruction: [0.0; MAX_CORE_TYPES],
            miss_ns: [0.0; MAX_CORE_TYPES],
            stream: phase.stream,
            reuse: if phase.working_set > 0.0 {
                phase.reuse
            } else {
                0.0
            },
            lines: (phase.working_set / LINE_BYTES).max(1.0),
            line_bytes: LINE_BYTES * (1.0 + phase.written),
            matters: false,
            loads: phase.loads,
            branches: phase.branches,
        };
        let fastest = load.fastest_ns(machine, phase);
        let slowest = machine.cores.len() - 1;
        for (core_type, core) in machine.cores.iter().enumerate() {
            let (least, most) = core.sf;
            let sf = match (core_type, phase.sf.get(&machine.name)) {
                (0, _) => 1.0,
                // What is known is that of the fastest over the slowest.
                (_, Some(known)) => known.powf(core_type as f64 / slowest as f64),
                _ => least * (most / least).powf(phase.asymmetry),
            };
            let ns = fastest * sf;
            let misses = load.alone(ns, machine.llc_of(core_type).bytes).misses;
            let latency = machine.memory_of(core_type).latency_ns;
            let miss = latency * apart(phase, core.overlap, core.prefetch);
            load.ns_per_instruction[core_type] = ns;
            load.miss_ns[core_type] = miss.min(MOST_STALLED * ns / misses.max(1e-12));
        }
        let bandwidth = machine.memory_of(0).bandwidth;
        let traffic = (load.stream + load.reuse) * load.line_bytes / fastest;
        load.matters = traffic > NEGLIGIBLE * bandwidth;
        load
    }

    /// Time per instruction alone on the fastest core type, ns: what the profile says of the
    /// reference, of which computing goes by this core's clock and waiting by this machine's memory.
    fn fastest_ns(&self, machine: &Machine, phase: &Phase) -> f64 {
        let all = 1e9 / (phase.ipc * REFERENCE_HZ);
        let misses = self.alone(all, REFERENCE_BYTES).misses;
        let miss = REFERENCE_LATENCY_NS * apart(phase, REFERENCE_OVERLAP, REFERENCE_PREFETCH);
        let computing = all - (misses * miss).min(MOST_STALLED * all);
        let core = &machine.cores[0];
        let (llc, memory) = (machine.llc_of(0), machine.memory_of(0));
        let computing = computing * REFERENCE_HZ / (core.ipc * core.hz);
        let miss = memory.latency_ns * apart(phase, core.overlap, core.prefetch);
        let bandwidth = FULL * llc.bandwidth.min(memory.bandwidth);
        let mut ns = all;
        // How much it misses follows from how fast it is, a little.
        for _ in 0..20 {
            let misses = self.alone(ns, llc.bytes).misses;
            ns = (computing + misses * miss).max(misses * self.line_bytes / bandwidth);
        }
        ns
    }

    /// Whether it disturbs, or can be disturbed, at all.
    pub(super) fn matters(&self) -> bool {
        self.matters
    }

    /// Time per instruction alone on a core type, ns.
    pub(super) fn alone_ns(&self, core_type: usize) -> f64 {
        self.ns_per_instruction[core_type]
    }

    /// What a thread loses when it comes to another last-level cache of `bytes`: its data are
    /// brought there again, ns.
    pub(super) fn refill_ns(&self, core_type: usize, bytes: f64) -> f64 {
        if self.reuse == 0.0 {
            return 0.0;
        }
        self.lines.min(bytes / LINE_BYTES) * self.miss_ns[core_type]
    }

    /// Misses in an instruction where a line stays for `stay` ns, and lines held, if an instruction
    /// takes `ns`.
    fn in_cache(&self, ns: f64, stay: f64) -> (f64, f64) {
        let missed = if self.reuse > 0.0 {
            (-self.reuse / ns * stay / self.lines).exp()
        } else {
            0.0
        };
        let reused = if self.reuse > 0.0 {
            self.lines * (1.0 - missed)
        } else {
            0.0
        };
        let streamed = if self.stream > 0.0 {
            self.stream / ns * stay
        } else {
            0.0
        };
        (self.stream + self.reuse * missed, reused + streamed)
    }

    fn alone(&self, ns: f64, bytes: f64) -> Rate {
        let stay = stay(bytes, &[(self, ns)]);
        Rate {
            ns_per_instruction: ns,
            misses: self.in_cache(ns, stay).0,
        }
    }
}

/// What part of the memory's latency a miss of this phase costs.
fn apart(phase: &Phase, overlap: f64, prefetch: f64) -> f64 {
    let free = 1.0 - phase.sequential - phase.dependent;
    phase.sequential / prefetch + free / overlap + phase.dependent
}

/// How fast a thread is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rate {
    /// Time per instruction, ns.
    pub(super) ns_per_instruction: f64,
    /// Misses of the last-level cache in an instruction.
    pub(super) misses: f64,
}

/// For how long a line stays in a cache of `bytes` that these use, each with its time per
/// instruction; ns.
fn stay(bytes: f64, users: &[(&Load, f64)]) -> f64 {
    let size = bytes / LINE_BYTES;
    let streams = users.iter().any(|(load, _)| load.stream > 0.0);
    let reused = users
        .iter()
        .map(|(load, _)| if load.reuse > 0.0 { load.lines } else { 0.0 });
    if !streams && reused.sum::<f64>() <= size {
        return f64::INFINITY;
    }
    // What is held is concave in the time, so that Newton's steps come from below.
    let mut stay = 0.0;
    for _ in 0..40 {
        let (mut held, mut slope) = (0.0, 0.0);
        for (load, ns) in users {
            held += load.in_cache(*ns, stay).1;
            slope += load.stream / ns;
            if load.reuse > 0.0 {
                let rate = load.reuse / ns;
                slope += rate * (-rate * stay / load.lines).exp();
            }
        }
        let step = (size - held) / slope.max(f64::MIN_POSITIVE);
        stay += step;
        if step <= 1e-7 * stay {
            break;
        }
    }
    stay
}

/// A thread that runs: which phase, on which core type, below which last-level cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Runner {
    /// Index of the last-level cache.
    pub(super) llc: usize,
    /// Index of the core type.
    pub(super) core_type: usize,
    /// Index into the phases on this machine.
    pub(super) load: usize,
}

/// Balances of threads that share a memory.
pub(super) struct Contention {
    /// Bytes and bandwidth by last-level cache; bandwidth by memory.
    llcs: Vec<(f64, f64, usize)>,
    memories: Vec<f64>,
    /// All phases that can run.
    pub(super) loads: Vec<Load>,
    /// What was worked out before. Only looked up, so its order never shows.
    known: HashMap<Vec<Runner>, Vec<Rate>>,
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

    /// The factor for one who uses it alone.
    fn alone(bandwidth: f64, traffic: f64) -> f64 {
        let load = (traffic / bandwidth).min(1.0);
        1.0 + load * load / 2.0
    }
}

impl Contention {
    /// For a machine and all phases that can run there.
    pub(super) fn new(machine: &Machine, loads: Vec<Load>) -> Self {
        let llcs = machine.llcs.iter();
        Self {
            llcs: llcs
                .map(|llc| (llc.bytes, llc.bandwidth, llc.memory))
                .collect(),
            memories: machine
                .memories
                .iter()
                .map(|memory| memory.bandwidth)
                .collect(),
            loads,
            known: HashMap::new(),
        }
    }

    /// How fast each of `runners`, who share one memory and are sorted, is.
    pub(super) fn rates(&mut self, runners: &[Runner]) -> &[Rate] {
        if !self.known.contains_key(runners) {
            if self.known.len() >= REMEMBERED {
                self.known.clear();
            }
            let rates = self.balance(runners);
            self.known.insert(runners.to_vec(), rates);
        }
        &self.known[runners]
    }

    fn balance(&self, runners: &[Runner]) -> Vec<Rate> {
        let Some(first) = runners.first() else {
            return Vec::new();
        };
        let load = |runner: &Runner| &self.loads[runner.load];
        let mut memory = Way::new(self.memories[self.llcs[first.llc].2]);
        let mut rates: Vec<Rate> = Vec::with_capacity(runners.len());
        // What each would be alone, and how late its misses were answered then.
        let mut alone: Vec<(Rate, f64)> = Vec::with_capacity(runners.len());
        for runner in runners {
            let (bytes, bandwidth, _) = self.llcs[runner.llc];
            let rate = load(runner).alone(load(runner).alone_ns(runner.core_type), bytes);
            let traffic = rate.misses * load(runner).line_bytes / rate.ns_per_instruction;
            let factor = Way::alone(bandwidth, traffic) * Way::alone(memory.bandwidth, traffic);
            alone.push((rate, factor));
            rates.push(rate);
        }
        if runners.len() == 1 {
            return rates;
        }
        let groups: Vec<std::ops::Range<usize>> = by_llc(runners);
        let mut ways: Vec<Way> = groups
            .iter()
            .map(|group| Way::new(self.llcs[runners[group.start].llc].1))
            .collect();
        for round in 0..ROUNDS {
            let mut changed: f64 = 0.0;
            let mut all_traffic = 0.0;
            for (group, way) in groups.iter().zip(&mut ways) {
                let users: Vec<(&Load, f64)> = group
                    .clone()
                    .map(|i| (load(&runners[i]), rates[i].ns_per_instruction))
                    .collect();
                let stay = stay(self.llcs[runners[group.start].llc].0, &users);
                let factor = way.factor() * memory.factor();
                let mut traffic = 0.0;
                for (i, (load, ns)) in group.clone().zip(users) {
                    let (before, unhurried) = alone[i];
                    let misses = load.in_cache(ns, stay).0.max(before.misses);
                    let waits = misses * factor.max(unhurried) - before.misses * unhurried;
                    let wished =
                        before.ns_per_instruction + load.miss_ns[runners[i].core_type] * waits;
                    // Half the way, or two who slow each other down would go on taking turns.
                    let ns = 0.5 * (ns + wished);
                    changed = changed.max((ns / rates[i].ns_per_instruction - 1.0).abs());
                    rates[i] = Rate {
                        ns_per_instruction: ns,
                        misses,
                    };
                    traffic += misses * load.line_bytes / ns;
                }
                way.ask(traffic);
                all_traffic += traffic;
            }
            memory.ask(all_traffic);
            // At first nobody knows yet how late misses are answered.
            if changed < BALANCED && round > 3 {
                break;
            }
        }
        rates
    }
}

/// Where the runners of each last-level cache stand; they are sorted by it.
fn by_llc(runners: &[Runner]) -> Vec<std::ops::Range<usize>> {
    let mut groups: Vec<std::ops::Range<usize>> = Vec::new();
    for (i, runner) in runners.iter().enumerate() {
        match groups.last_mut() {
            Some(group) if runners[group.start].llc == runner.llc => group.end = i + 1,
            _ => groups.push(i..i + 1),
        }
    }
    groups
}
