// SPDX-License-Identifier: GPL-2.0-only
//! A phase on a machine: how fast it is alone, and what it asks of caches and memory.

use super::{FULL, Rate, User, keep, stay};
use crate::pmu::sample::LINE_BYTES;
use crate::sim::machine::SimulatedMachine;
use crate::sim::program::ProgramPhase;
use crate::topology::MAX_CORE_TYPES;

/// Misses make up at most this part of a phase's time alone, whatever its profile says; assumed.
const MOST_STALLED: f64 = 0.95;

/// The core that profiles' instructions per cycle are of: a Cortex-A57 of the Juno board, as
/// testbed/machines/juno-r1.toml has it.
const REFERENCE_HZ: f64 = 1.15e9;
const REFERENCE_BYTES: f64 = 2048.0 * 1024.0;
const REFERENCE_LATENCY_NS: f64 = 130.0;
const REFERENCE_OVERLAP: f64 = 3.0;
const REFERENCE_PREFETCH: f64 = 30.0;

/// Accesses to more data than a second level holds find in it this part of what they would in random
/// order: of models/alder-lake-4p4e.csv, `chase` over 1024 and `resident` over 768 KiB.
const L2_PART: f64 = 0.5;

/// What a thread of the same core leaves of the misses that may be in flight at a time, of those that neither follow each other nor wait for
/// each other (testbed/hybrid/smt.c).
const FLIGHT: f64 = 0.7;

/// Lines that come to a set of a cache before one that came is gone, see [`ProgramPhase::in_turn`]: half of 12 ways.
const PLACES: f64 = 6.0;

/// Less traffic than this part of the memory's bandwidth, or of a cache's lines in a millisecond,
/// disturbs no other; assumed, and far below what shows.
const NEGLIGIBLE: f64 = 1e-4;

/// A phase on a machine.
#[derive(Clone, Debug)]
pub(in crate::sim) struct PhaseLoad {
    /// Alone, by core type.
    pub(super) ns_per_instruction: [f64; MAX_CORE_TYPES],
    /// What a miss costs alone, by core type, and what of it no contention makes longer besides.
    pub(super) miss_ns: [f64; MAX_CORE_TYPES],
    pub(super) walk_ns: [f64; MAX_CORE_TYPES],
    /// How many times longer it waits for a miss, by core type, where a thread of the same core has a part of those in flight.
    pub(super) in_flight: [f64; MAX_CORE_TYPES],
    /// How late misses are answered alone on the fastest core type, over an idle memory, where that limits how fast it is; else 1.
    pub(super) late: f64,
    /// Misses in an instruction that no cache spares.
    pub(super) stream: f64,
    /// Accesses in an instruction to data that a last-level cache may hold, by core type, and how many
    /// lines these are. What the second level holds does not come so far.
    pub(super) reuse: [f64; MAX_CORE_TYPES],
    pub(super) lines: f64,
    /// See [`ProgramPhase::kept`] and [`ProgramPhase::in_turn`].
    pub(super) kept: bool,
    pub(super) in_turn: bool,
    /// What a miss moves, bytes.
    pub(super) line_bytes: f64,
    /// Whether it disturbs, or can be disturbed, at all.
    pub(super) matters: bool,
    /// Loads and branches in an instruction.
    pub(in crate::sim) loads: f64,
    pub(in crate::sim) branches: f64,
}

impl PhaseLoad {
    /// What `phase` is on `machine`.
    pub(in crate::sim) fn new(machine: &SimulatedMachine, phase: &ProgramPhase) -> Self {
        let mut load = Self {
            ns_per_instruction: [0.0; MAX_CORE_TYPES],
            miss_ns: [0.0; MAX_CORE_TYPES],
            walk_ns: [0.0; MAX_CORE_TYPES],
            in_flight: [1.0; MAX_CORE_TYPES],
            late: 1.0,
            stream: phase.stream,
            reuse: [0.0; MAX_CORE_TYPES],
            lines: (phase.working_set / LINE_BYTES).max(1.0),
            kept: phase.kept,
            in_turn: phase.in_turn,
            line_bytes: LINE_BYTES * (1.0 + phase.written),
            matters: false,
            loads: phase.loads,
            branches: phase.branches,
        };
        for (reuse, core) in load.reuse.iter_mut().zip(&machine.cores) {
            let held = match phase.working_set {
                bytes if bytes <= core.l2_bytes => 1.0,
                bytes => L2_PART * core.l2_bytes / bytes,
            };
            *reuse = phase.reuse * (1.0 - held);
        }
        let (fastest, late) = load.fastest_ns(machine, phase);
        load.late = late;
        let slowest = machine.cores.len() - 1;
        for (core_type, core) in machine.cores.iter().enumerate() {
            let (least, most) = core.sf;
            let kind = &machine.topology.types[core_type].name;
            let here = phase.sf.get(&format!("{}/{kind}", machine.name));
            let sf = match (core_type, here.or(phase.sf.get(&machine.name))) {
                (0, _) => 1.0,
                (_, Some(&known)) if here.is_some() => known,
                // What is known is that of the fastest over the slowest.
                (_, Some(known)) => known.powf(core_type as f64 / slowest as f64),
                _ => least * (most / least).powf(phase.asymmetry),
            };
            let ns = fastest * sf;
            let bytes = machine.llc_of(core_type).bytes;
            let misses = load.alone(core_type, ns, bytes).misses;
            let latency = machine.memory_of(core_type).latency_ns;
            let miss = latency * apart(phase, core.overlap, core.prefetch);
            load.ns_per_instruction[core_type] = ns;
            load.miss_ns[core_type] = miss.min(MOST_STALLED * ns / misses.max(1e-12));
            let shared = apart(phase, (core.overlap * FLIGHT).max(1.0), core.prefetch);
            load.in_flight[core_type] = shared / apart(phase, core.overlap, core.prefetch);
            load.walk_ns[core_type] = core.walk_ns
                * (apart(phase, core.overlap, core.prefetch) - phase.sequential / core.prefetch);
        }
        let bandwidth = machine.memory_of(0).bandwidth;
        let most = load.reuse.iter().copied().fold(0.0, f64::max);
        let traffic = (load.stream + most) * load.line_bytes / fastest;
        load.matters = traffic > NEGLIGIBLE * bandwidth;
        load
    }

    /// Time per instruction alone on the fastest core type, ns: what the profile says of the
    /// reference, of which computing goes by this core's clock and waiting by this machine's memory. And how late misses
    /// are answered then, if it asks for all that can be moved, else 1.
    fn fastest_ns(&self, machine: &SimulatedMachine, phase: &ProgramPhase) -> (f64, f64) {
        let all = 1e9 / (phase.ipc * REFERENCE_HZ);
        // There the second level is the last.
        let reference = Self {
            reuse: [phase.reuse; MAX_CORE_TYPES],
            ..self.clone()
        };
        let misses = reference.alone(0, all, REFERENCE_BYTES).misses;
        let miss = REFERENCE_LATENCY_NS * apart(phase, REFERENCE_OVERLAP, REFERENCE_PREFETCH);
        let computing = all - (misses * miss).min(MOST_STALLED * all);
        let core = &machine.cores[0];
        let (llc, memory) = (machine.llc_of(0), machine.memory_of(0));
        let computing = computing * REFERENCE_HZ / (core.ipc * core.hz);
        let miss = memory.latency_ns * apart(phase, core.overlap, core.prefetch);
        let bandwidth = FULL * llc.bandwidth.min(memory.bandwidth);
        let (mut ns, mut late) = (all, 1.0);
        // How much it misses follows from how fast it is, a little.
        for _ in 0..20 {
            let misses = self.alone(0, ns, llc.bytes).misses;
            let (wished, moved) = (
                computing + misses * miss,
                misses * self.line_bytes / bandwidth,
            );
            ns = wished.max(moved);
            late = if moved > wished {
                (moved - computing) / (misses * miss)
            } else {
                1.0
            };
        }
        (ns, late)
    }

    /// Whether it disturbs, or can be disturbed, at all.
    pub(in crate::sim) fn matters(&self) -> bool {
        self.matters
    }

    /// Time per instruction alone on a core type, ns.
    pub(in crate::sim) fn alone_ns(&self, core_type: usize) -> f64 {
        self.ns_per_instruction[core_type]
    }

    /// Misses of the last-level cache in an instruction alone on a core type, below a cache of `bytes`.
    pub(in crate::sim) fn alone_misses(&self, core_type: usize, bytes: f64) -> f64 {
        self.alone(core_type, self.alone_ns(core_type), bytes)
            .misses
    }

    /// Accesses to the last-level cache in an instruction on a core type.
    pub(in crate::sim) fn llc_accesses(&self, core_type: usize) -> f64 {
        self.stream + self.reuse[core_type]
    }

    /// What a miss moves, with what is written back, bytes.
    pub(in crate::sim) fn moved_bytes(&self) -> f64 {
        self.line_bytes
    }

    /// SF alone: the fastest core type over the slowest.
    pub(in crate::sim) fn sf(&self) -> f64 {
        let mut from_slowest = self.ns_per_instruction.iter().rev();
        let slowest = from_slowest.find(|&&ns| ns > 0.0).unwrap_or(&0.0);
        slowest / self.alone_ns(0)
    }

    /// What a thread loses when it comes to another last-level cache of `bytes`: its data are
    /// brought there again, ns.
    pub(in crate::sim) fn refill_ns(&self, core_type: usize, bytes: f64) -> f64 {
        if self.reuse[core_type] == 0.0 {
            return 0.0;
        }
        self.lines.min(bytes / LINE_BYTES) * self.miss_ns[core_type]
    }

    /// Misses in an instruction on a core type where a line stays for `stay` ns, if an instruction
    /// takes `ns` and the cache keeps a part of its data.
    pub(super) fn misses(&self, core_type: usize, ns: f64, stay: f64, kept: f64) -> f64 {
        let reuse = self.reuse[core_type];
        if reuse > 0.0 {
            self.stream + reuse * (1.0 - kept) * self.missed(reuse / ns * stay)
        } else {
            self.stream
        }
    }

    /// The part of its data that is not there any more after `uses` of it.
    fn missed(&self, uses: f64) -> f64 {
        let rounds = uses / self.lines;
        if !self.in_turn {
            return (-rounds).exp();
        }
        // A line is pushed out by as many others in its set as there are places, and sets are met by chance.
        let others = PLACES / rounds;
        let mut term = (-others).exp();
        let mut stays = 0.0;
        for others_met in 1..=PLACES as u32 {
            stays += term;
            term *= others / f64::from(others_met);
        }
        1.0 - stays
    }

    /// Lines of `lines` of its data that are there if each stays for `uses` of all of it, and by how much that grows with `uses`.
    pub(super) fn there(&self, lines: f64, uses: f64) -> (f64, f64) {
        let rounds = uses / self.lines;
        match self.in_turn {
            true if rounds < 1.0 => (lines * rounds, lines / self.lines),
            true => (lines, 0.0),
            false => {
                let missed = self.missed(uses);
                (lines * (1.0 - missed), lines / self.lines * missed)
            }
        }
    }

    /// Lines of a last-level cache that it holds where a line stays for `stay` ns.
    pub(super) fn held(&self, core_type: usize, ns: f64, stay: f64, kept: f64) -> f64 {
        let reuse = self.reuse[core_type];
        let mut lines = 0.0;
        if reuse > 0.0 {
            let others = self.there(self.lines * (1.0 - kept), reuse / ns * stay).0;
            lines += self.lines * kept + others;
        }
        if self.stream > 0.0 {
            lines += self.stream / ns * stay;
        }
        lines
    }

    /// Its miss-rate curve: misses in an instruction on a core type if it holds a part of a cache of `bytes`,
    /// however fast it is. More than all of its data serve it no better.
    pub(in crate::sim) fn misses_with(&self, core_type: usize, bytes: f64, part: f64) -> f64 {
        let mut user = [User {
            load: self,
            reuse: self.reuse[core_type],
            count: 1.0,
            rate: Rate {
                ns_per_instruction: 1.0,
                misses: 0.0,
                lines: 0.0,
                stalled: 0.0,
            },
            kept: 0.0,
        }];
        keep(bytes * part, 1.0, &mut user);
        let stay = stay(bytes * part, &user, 0.0);
        self.misses(core_type, 1.0, stay, user[0].kept)
    }

    /// Alone on a core type, below a cache of `bytes`, if an instruction takes `ns`.
    pub(super) fn alone(&self, core_type: usize, ns: f64, bytes: f64) -> Rate {
        let mut user = User {
            kept: 0.0,
            load: self,
            reuse: self.reuse[core_type],
            count: 1.0,
            rate: Rate {
                ns_per_instruction: ns,
                misses: 0.0,
                lines: 0.0,
                stalled: 0.0,
            },
        };
        keep(bytes, 1.0, std::slice::from_mut(&mut user));
        let stay = stay(bytes, &[user], 0.0);
        Rate {
            ns_per_instruction: ns,
            misses: self.misses(core_type, ns, stay, user.kept),
            lines: self.held(core_type, ns, stay, user.kept),
            stalled: 0.0,
        }
    }
}

/// What part of the memory's latency a miss of this phase costs.
fn apart(phase: &ProgramPhase, overlap: f64, prefetch: f64) -> f64 {
    let free = 1.0 - phase.sequential - phase.dependent;
    phase.sequential / prefetch + free / overlap + phase.dependent
}
