// SPDX-License-Identifier: GPL-2.0-only
//! Programs: what they do in each phase, read from TOML.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Deserialize;
use toml::Spanned;

use super::sourced::{SourceText, Sourced};

/// A program's profile.
#[derive(Clone, Debug)]
pub struct SimulatedProgram {
    /// As mixes name it.
    pub name: String,
    /// What it is.
    pub description: String,
    /// How often the phases come round in one run.
    pub rounds: u32,
    /// In turn.
    pub phases: Vec<ProgramPhase>,
}

/// A stretch of a program in which it behaves alike.
#[derive(Clone, Debug)]
pub struct ProgramPhase {
    /// Only the first thread works, the others wait for it.
    pub serial: bool,
    /// Threads take so many equal pieces of a round, each the next when it is done with one; without,
    /// all have the same part of it.
    pub pieces: Option<u32>,
    /// Each thread goes on to the next phase as soon as it is done with this one; without, all meet first.
    pub goes_on: bool,
    /// Of one round, of all threads together.
    pub instructions: f64,
    /// Instructions per cycle alone on a Cortex-A57 of the Juno board.
    pub ipc: f64,
    /// Where its SF lies between the least and the most of a machine: 0 to 1, logarithmic.
    pub asymmetry: f64,
    /// The SF where it is known: of the fastest core type over the slowest by machine, and over
    /// another type by `MACHINE/TYPE`.
    pub sf: BTreeMap<String, f64>,
    /// Loads in an instruction.
    pub loads: f64,
    /// Branches in an instruction.
    pub branches: f64,
    /// Misses of the last-level cache in an instruction that no cache would spare.
    pub stream: f64,
    /// Accesses in an instruction to the last-level cache, to data that fit there if they are let.
    pub reuse: f64,
    /// Bytes of these data.
    pub working_set: f64,
    /// They are met again soon after they came. Caches that let new lines in half way to the front, as
    /// testbed/hybrid/cache.c does, then keep them from what is used once, up to half of the cache.
    pub kept: bool,
    /// Its data are used in turn, each once in a round: they are there for the next round, or they are not. Such a cache keeps what it kept
    /// as they were first used, and nothing that comes later.
    pub in_turn: bool,
    /// Part of the missed lines that are written, and so go back some time.
    pub written: f64,
    /// Part of the misses that a prefetcher foresees.
    pub sequential: f64,
    /// Part of the misses that wait for the one before.
    pub dependent: f64,
    /// Sleeps for so many ns after so many instructions of a thread.
    pub sleep: Option<(f64, f64)>,
    /// What it does between two sleeps is a frame, and the ns are from one's beginning to the next's; one that takes longer
    /// has missed its deadline, and the next begins at once.
    pub paced: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawProgram {
    description: String,
    rounds: Option<Sourced>,
    phase: Vec<RawPhase>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPhase {
    #[serde(default)]
    serial: bool,
    pieces: Option<Sourced>,
    #[serde(default)]
    goes_on: bool,
    minstructions: Sourced,
    ipc: Sourced,
    asymmetry: Sourced,
    #[serde(default)]
    sf: BTreeMap<String, Sourced>,
    loads_per_kilo: Sourced,
    branches_per_kilo: Sourced,
    stream_mpki: Sourced,
    reuse_apki: Sourced,
    working_set_kib: Sourced,
    kept: Option<Sourced>,
    in_turn: Option<Sourced>,
    written: Sourced,
    sequential: Sourced,
    dependent: Sourced,
    sleep: Option<RawSleep>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSleep {
    every_minstructions: Sourced,
    ms: Sourced,
    #[serde(default)]
    paced: bool,
}

/// Reads all programs of a file: a table each.
///
/// # Errors
/// Which line is wrong, and why.
pub(super) fn parse(source: &SourceText) -> Result<Vec<SimulatedProgram>> {
    let raw: BTreeMap<String, Spanned<RawProgram>> = source.parse()?;
    let mut programs = Vec::new();
    for (name, raw) in raw {
        let at = raw.span().start;
        let raw = raw.into_inner();
        let rounds = raw.rounds.as_ref();
        let rounds = rounds.map(|rounds| source.check("rounds", rounds, 1.0..=1e6));
        let phases: Result<Vec<ProgramPhase>> =
            raw.phase.iter().map(|raw| phase(source, raw)).collect();
        let phases = phases?;
        if phases.is_empty() {
            return source.wrong(at, &format!("program {name} has no [[{name}.phase]]"));
        }
        let apart = |phase: &ProgramPhase| phase.serial || phase.pieces.is_some();
        let wrong = |(at, phase): (usize, &ProgramPhase)| {
            let next = phases.get(at + 1);
            phase.goes_on && (apart(phase) || next.is_none_or(apart))
        };
        if phases.iter().enumerate().any(wrong) {
            let what = "goes_on needs a next phase, and neither may be serial or in pieces";
            return source.wrong(at, &format!("program {name}: {what}"));
        }
        programs.push(SimulatedProgram {
            name,
            description: raw.description,
            rounds: rounds.transpose()?.unwrap_or(1.0) as u32,
            phases,
        });
    }
    Ok(programs)
}

fn phase(source: &SourceText, raw: &RawPhase) -> Result<ProgramPhase> {
    let check = |what, number, least: f64, most| source.check(what, number, least..=most);
    let sf = raw.sf.iter().map(|(machine, sf)| {
        let sf = check("sf", sf, 1.0, 100.0)?;
        Ok((machine.clone(), sf))
    });
    let sequential = check("sequential", &raw.sequential, 0.0, 1.0)?;
    let sleep = raw.sleep.as_ref().map(|raw| {
        let every = check("every_minstructions", &raw.every_minstructions, 1e-3, 1e9)?;
        anyhow::Ok((every * 1e6, check("ms", &raw.ms, 1e-3, 1e6)? * 1e6))
    });
    let pieces = raw.pieces.as_ref();
    let pieces = pieces.map(|pieces| check("pieces", pieces, 1.0, 1e4));
    let flag = |what, number: &Option<Sourced>| match number {
        Some(number) => anyhow::Ok(source.check(what, number, 0.0..=1.0)? > 0.0),
        None => Ok(false),
    };
    Ok(ProgramPhase {
        serial: raw.serial,
        pieces: pieces.transpose()?.map(|pieces| pieces as u32),
        goes_on: raw.goes_on,
        instructions: check("minstructions", &raw.minstructions, 1e-3, 1e9)? * 1e6,
        ipc: check("ipc", &raw.ipc, 0.001, 16.0)?,
        asymmetry: check("asymmetry", &raw.asymmetry, 0.0, 1.0)?,
        sf: sf.collect::<Result<_>>()?,
        loads: check("loads_per_kilo", &raw.loads_per_kilo, 0.0, 1000.0)? / 1e3,
        branches: check("branches_per_kilo", &raw.branches_per_kilo, 0.0, 1000.0)? / 1e3,
        stream: check("stream_mpki", &raw.stream_mpki, 0.0, 1000.0)? / 1e3,
        reuse: check("reuse_apki", &raw.reuse_apki, 0.0, 1000.0)? / 1e3,
        working_set: check("working_set_kib", &raw.working_set_kib, 0.0, 1e7)? * 1024.0,
        kept: flag("kept", &raw.kept)?,
        in_turn: flag("in_turn", &raw.in_turn)?,
        written: check("written", &raw.written, 0.0, 1.0)?,
        sequential,
        dependent: check("dependent", &raw.dependent, 0.0, 1.0 - sequential)?,
        sleep: sleep.transpose()?,
        paced: raw.sleep.as_ref().is_some_and(|raw| raw.paced),
    })
}
