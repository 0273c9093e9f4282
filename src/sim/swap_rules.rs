// SPDX-License-Identifier: GPL-2.0-only
//! The rules of policy `prim` for a machine, induced from the programs that the simulator has: each phase
//! of one on the fastest core type beside each of another on the slowest, and what it would gain in
//! energy-delay product that the two change places.

use super::contention::PhaseLoad;
use super::energy;
use super::library::Library;
use super::machine::SimulatedMachine;
use crate::policy::prim::rules::{FEATURES, SwapExample, SwapRules};

/// See the module; `None` where the machine's file does not say what it takes.
pub(super) fn induced(library: &Library, machine: &SimulatedMachine) -> Option<SwapRules> {
    let slowest = machine.cores.len() - 1;
    let phases = library.programs.iter().flat_map(|program| &program.phases);
    let seen = phases.map(|phase| {
        let load = PhaseLoad::new(machine, phase);
        let ef = load.sf() * energy::ratio(machine, &load)?;
        Some([0, slowest].map(|on| (counted(machine, &load, on), ef.ln())))
    });
    let seen: Vec<_> = seen.collect::<Option<_>>()?;
    let pairs = seen
        .iter()
        .flat_map(|[down, _]| seen.iter().map(move |[_, up]| (down, up)));
    let examples = pairs.map(|(down, up)| SwapExample {
        down: down.0,
        up: up.0,
        gain: up.1 - down.1,
    });
    Some(SwapRules::induced(&examples.collect::<Vec<_>>()))
}

/// What is counted of a phase alone on a core type.
fn counted(machine: &SimulatedMachine, load: &PhaseLoad, core_type: usize) -> [f64; FEATURES] {
    let cycles = load.alone_ns(core_type) * machine.cores[core_type].hz / 1e9;
    let misses = load.alone_misses(core_type, machine.llc_of(core_type).bytes);
    [
        1.0 / cycles,
        1e3 * misses,
        1e3 * load.loads,
        1e3 * load.branches,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_come_along_are_those_of_the_juno_board() {
        let library = Library::builtin().unwrap();
        let rules = induced(&library, &library.machine("juno-r1").unwrap()).unwrap();
        let text = serde_json::to_string(&rules).unwrap();
        // A number that was printed and read again may have another last bit.
        let numbers = |text: &str| -> Vec<f64> {
            let words = text.split(|c: char| !c.is_ascii_digit() && !"+-.e".contains(c));
            words.filter_map(|word| word.parse().ok()).collect()
        };
        let juno = serde_json::to_string(&SwapRules::of_juno()).unwrap();
        let (now, before) = (numbers(&text), numbers(&juno));
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * a.abs();
        assert!(
            now.len() == before.len() && now.iter().zip(&before).all(near),
            "core/src/policy/prim/juno.json should be\n{text}"
        );
        let phone = library.machine("phone-1-2-2-2").unwrap();
        assert_eq!(induced(&library, &phone), None);
    }
}
