// SPDX-License-Identifier: GPL-2.0-only
//! What a machine takes: watts of cores by state, nanojoules by what they do, and of the rest.
//!
//! The terms are those of the virtual machine (`testbed/hybrid/energy.c`), at the highest clock, for no
//! clock changes here: a core that runs takes its leakage, so much for each cycle, and so much for each
//! instruction, load, store, branch and access to the last-level cache; one that idles takes a few
//! watts. A line that memory moves takes energy, too, and is the thread's that asked for it. What the
//! package takes besides, while any core runs and while none does, is no thread's. Profiles say nothing
//! of stores, floating point and branch misses: stores are [`STORES_PER_LOAD`], the others nothing.

use std::ops::RangeInclusive;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::contention::PhaseLoad;
use super::machine::SimulatedMachine;
use super::sourced::{SourceText, Sourced};
use crate::pmu::sample::LINE_BYTES;

/// Stores for each load, of which profiles speak; assumed.
const STORES_PER_LOAD: f64 = 0.5;

/// What a machine's file may say, W and nJ.
const BOUNDS: RangeInclusive<f64> = 0.0..=1000.0;

/// What a core takes.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedCoreEnergy {
    /// While it runs, whatever it does, W.
    pub leakage_w: f64,
    /// While it idles, W.
    pub idle_w: f64,
    /// For a cycle in which it runs, nJ.
    pub cycle_nj: f64,
    /// Besides, for an instruction, nJ.
    pub insn_nj: f64,
    /// Besides, for a load, a store, a branch, and an access to the last-level cache, nJ.
    pub load_nj: f64,
    /// See `load_nj`.
    pub store_nj: f64,
    /// See `load_nj`.
    pub branch_nj: f64,
    /// See `load_nj`.
    pub llc_nj: f64,
}

/// What a machine takes.
#[derive(Clone, Debug)]
pub struct SimulatedEnergy {
    /// By core type.
    pub cores: Vec<SimulatedCoreEnergy>,
    /// The rest of the package while any core runs, W.
    pub uncore_w: f64,
    /// The same while none does, W.
    pub idle_w: f64,
    /// For 64 bytes that memory moves, nJ.
    pub dram_nj: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSimulatedEnergy {
    uncore_w: Sourced,
    idle_w: Sourced,
    dram_nj: Sourced,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSimulatedCoreEnergy {
    leakage_w: Sourced,
    idle_w: Sourced,
    cycle_nj: Sourced,
    insn_nj: Sourced,
    load_nj: Sourced,
    store_nj: Sourced,
    branch_nj: Sourced,
    llc_nj: Sourced,
}

impl SimulatedCoreEnergy {
    pub(super) fn parse(source: &SourceText, raw: &RawSimulatedCoreEnergy) -> Result<Self> {
        let check = |what, number| source.check(what, number, BOUNDS);
        Ok(Self {
            leakage_w: check("leakage_w", &raw.leakage_w)?,
            idle_w: check("idle_w", &raw.idle_w)?,
            cycle_nj: check("cycle_nj", &raw.cycle_nj)?,
            insn_nj: check("insn_nj", &raw.insn_nj)?,
            load_nj: check("load_nj", &raw.load_nj)?,
            store_nj: check("store_nj", &raw.store_nj)?,
            branch_nj: check("branch_nj", &raw.branch_nj)?,
            llc_nj: check("llc_nj", &raw.llc_nj)?,
        })
    }
}

impl SimulatedEnergy {
    /// What its file says; `cores` by core type.
    pub(super) fn parse(
        source: &SourceText,
        raw: &RawSimulatedEnergy,
        cores: Vec<SimulatedCoreEnergy>,
    ) -> Result<Self> {
        Ok(Self {
            cores,
            uncore_w: source.check("uncore_w", &raw.uncore_w, BOUNDS)?,
            idle_w: source.check("idle_w", &raw.idle_w, BOUNDS)?,
            dram_nj: source.check("dram_nj", &raw.dram_nj, BOUNDS)?,
        })
    }

    /// Each instruction takes so many times as much, see [`SimulatedMachine::as_testbed`]: watts stay.
    pub(super) fn stretch(&mut self, by: f64) {
        self.dram_nj *= by;
        for core in &mut self.cores {
            for nj in [
                &mut core.cycle_nj,
                &mut core.insn_nj,
                &mut core.load_nj,
                &mut core.store_nj,
                &mut core.branch_nj,
                &mut core.llc_nj,
            ] {
                *nj *= by;
            }
        }
    }

    /// What a thread takes that runs a phase for `ns` on a core of so many Hz, and executes so many
    /// instructions meanwhile, of which each misses the last-level cache `misses` times, nJ.
    pub(super) fn run_nj(
        &self,
        (core_type, hz): (usize, f64),
        load: &PhaseLoad,
        ns: f64,
        (instructions, misses): (f64, f64),
    ) -> f64 {
        let core = &self.cores[core_type];
        let per_instruction = core.insn_nj
            + load.loads * (core.load_nj + STORES_PER_LOAD * core.store_nj)
            + load.branches * core.branch_nj
            + load.llc_accesses(core_type) * core.llc_nj
            + misses * load.moved_bytes() / LINE_BYTES * self.dram_nj;
        ns * (core.leakage_w + hz / 1e9 * core.cycle_nj) + instructions * per_instruction
    }
}

/// What one instruction of a phase takes alone on a core type, nJ; none without an energy model.
pub(super) fn alone_nj(
    machine: &SimulatedMachine,
    load: &PhaseLoad,
    core_type: usize,
) -> Option<f64> {
    let ns = load.alone_ns(core_type);
    let misses = load.alone_misses(core_type, machine.llc_of(core_type).bytes);
    let core = (core_type, machine.cores[core_type].hz);
    let energy = machine.energy.as_ref()?;
    Some(energy.run_nj(core, load, ns, (1.0, misses)))
}

/// The energy of a phase alone on the slowest core type over that on the fastest: what EF is SF times of
/// (PMCTrack 2017, Eq. 6).
pub(super) fn ratio(machine: &SimulatedMachine, load: &PhaseLoad) -> Option<f64> {
    let slowest = machine.cores.len() - 1;
    Some(alone_nj(machine, load, slowest)? / alone_nj(machine, load, 0)?)
}

/// Energy of a program for one run, J.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RunEnergy {
    /// Alone, on CPUs of the fastest type.
    pub alone: f64,
    /// Alone, on CPUs of the slowest type.
    pub slow: f64,
    /// In the mix.
    pub scheduled: f64,
}

/// What a mix took, and what that means.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MixEnergy {
    /// The package and memory, J.
    pub joules: f64,
    /// The same beyond what the machine takes while nothing runs, J.
    pub joules_above_idle: f64,
    /// The package and memory over time, W.
    pub watts: f64,
    /// Seconds that a fastest core alone would take for what was done in a second: STP, of all the work.
    pub work_per_s: f64,
    /// Joules for what a fastest core does alone in a second, as `bench` has it.
    pub joules_per_work: f64,
    /// Energy-delay product: joules for that work, times the seconds that it takes, W/STP².
    pub edp: f64,
    /// The same for an instruction, in 10⁻¹⁸ J·s: PMCTrack 2017, Eq. 4 with the energy of an instruction.
    pub edp_per_instruction: f64,
    /// Eq. 5 as it is printed, over the whole experiment: joules × seconds / instructions, in 10⁻⁹ J·s.
    pub edp_of_experiment: f64,
    /// Mean over programs of their own energy × time for a run, over that alone on the fastest cores.
    pub edp_of_programs: f64,
}

/// What was measured of a mix.
pub(super) struct MixTotals {
    pub(super) joules: f64,
    /// What it takes while nothing runs, W.
    pub(super) idle_watts: f64,
    pub(super) seconds: f64,
    pub(super) instructions: f64,
    /// Seconds that a fastest core alone would take for all of it.
    pub(super) work: f64,
}

impl MixEnergy {
    pub(super) fn of(totals: &MixTotals, edp_of_programs: f64) -> Self {
        let MixTotals {
            joules,
            idle_watts,
            seconds,
            instructions,
            work,
        } = *totals;
        let watts = joules / seconds;
        let (ips, work_per_s) = (instructions / seconds, work / seconds);
        Self {
            joules,
            joules_above_idle: joules - idle_watts * seconds,
            watts,
            work_per_s,
            joules_per_work: watts / work_per_s,
            edp: watts / (work_per_s * work_per_s),
            edp_per_instruction: watts / ips / ips * 1e18,
            edp_of_experiment: joules * seconds / instructions * 1e9,
            edp_of_programs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::library::Library;

    fn machine() -> SimulatedMachine {
        Library::builtin().unwrap().machine("juno-r1").unwrap()
    }

    fn load(program: &str) -> PhaseLoad {
        let library = Library::builtin().unwrap();
        PhaseLoad::new(&machine(), &library.program(program).unwrap().phases[0])
    }

    #[test]
    fn watts_of_a_busy_core_are_of_the_published_order() {
        let watts = |program: &str, core_type| {
            let load = load(program);
            alone_nj(&machine(), &load, core_type).unwrap() / load.alone_ns(core_type)
        };
        // Arm's firmware for the board has 0.61 and 0.12 W (src/sim/data/machines/juno-r1.toml).
        assert!(
            (0.5..0.75).contains(&watts("hmmer", 0)),
            "{}",
            watts("hmmer", 0)
        );
        assert!(
            (0.09..0.16).contains(&watts("hmmer", 1)),
            "{}",
            watts("hmmer", 1)
        );
    }

    #[test]
    fn what_waits_for_memory_saves_less_on_a_small_core() {
        let of = |program: &str| ratio(&machine(), &load(program)).unwrap();
        assert!(of("lbm") > of("gamess"), "{} {}", of("lbm"), of("gamess"));
        assert!(of("gamess") < 1.0);
    }

    #[test]
    fn as_the_virtual_machine_has_it_watts_stay() {
        let watts = |machine: &SimulatedMachine| {
            let library = Library::builtin().unwrap();
            let load = PhaseLoad::new(machine, &library.program("fp").unwrap().phases[0]);
            alone_nj(machine, &load, 1).unwrap() / load.alone_ns(1)
        };
        let stretched = machine().as_testbed().unwrap();
        let (real, virtual_) = (watts(&machine()), watts(&stretched));
        assert!((real / virtual_ - 1.0).abs() < 1e-9, "{real} {virtual_}");
    }

    #[test]
    fn the_energy_delay_product_does_not_depend_on_how_long_it_was_looked_at() {
        let of = |times: f64| {
            let totals = MixTotals {
                joules: 10.0 * times,
                idle_watts: 0.5,
                seconds: 5.0 * times,
                instructions: 4e9 * times,
                work: 10.0 * times,
            };
            MixEnergy::of(&totals, 1.0)
        };
        assert_eq!(
            (of(1.0).watts, of(1.0).joules_per_work, of(1.0).edp),
            (2.0, 1.0, 0.5)
        );
        assert_eq!(of(1.0).edp_per_instruction, of(3.0).edp_per_instruction);
        assert!((of(1.0).edp_of_experiment - 12.5).abs() < 1e-9);
        assert_eq!(of(2.0).joules_above_idle, 15.0);
    }
}
