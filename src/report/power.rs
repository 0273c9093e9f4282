// SPDX-License-Identifier: GPL-2.0-only
//! Power over time, by core type and by program, of the joules that the scheduler has told apart.

use std::collections::HashMap;

use super::curves::{self, Named};
use super::gather::{Curve, ROWS, point};
use crate::record::format::JoulesLook;
use crate::table::{Comm, Task};
use crate::topology::{MAX_CORE_TYPES, Topology};

/// Programs of which curves are kept while gathering; of others nothing is drawn.
const PROGRAMS: usize = 4096;

/// Beside core types: threads too young to be told apart, idle CPUs, and the rest of the package.
const BESIDE: [&str; 3] = ["untold", "idle", "uncore"];

const PARTS: usize = MAX_CORE_TYPES + BESIDE.len();

/// What is drawn.
#[derive(Default)]
pub(super) struct PowerCurves {
    /// By part of the package, with its name, W.
    pub parts: Vec<(String, Curve)>,
    /// By program, with its name and process id, those that took most first, W.
    pub programs: Vec<(String, Curve)>,
}

#[derive(Default)]
struct Program {
    joules: f64,
    /// Since the last point, J.
    fresh: f64,
    curve: Curve,
}

/// Gathers them.
#[derive(Default)]
pub(super) struct PowerGatherer {
    point_ns: u64,
    parts: [Curve; PARTS],
    /// Since the last point: J, and ns.
    fresh: ([f64; PARTS], u64),
    programs: HashMap<u32, Program>,
    names: HashMap<u32, Comm>,
}

impl PowerGatherer {
    /// Points are no closer than `point_ns`.
    pub(super) fn new(point_ns: u64) -> Self {
        Self {
            point_ns,
            ..Self::default()
        }
    }

    /// Takes note of what programs are called.
    pub(super) fn look(&mut self, tasks: &[Task]) {
        for task in tasks.iter().filter(|task| task.tid == task.tgid) {
            if self.programs.contains_key(&task.tgid) {
                self.names.insert(task.tgid, task.comm);
            }
        }
    }

    /// Takes in a record that ends at `at_ns`.
    pub(super) fn take(&mut self, at_ns: u64, look: &JoulesLook) {
        let beside = [look.untold, look.idle, look.uncore];
        let (sums, passed) = &mut self.fresh;
        for (sum, joules) in sums.iter_mut().zip(look.threads.iter().chain(&beside)) {
            *sum += f64::from(*joules);
        }
        *passed += look.passed_ns;
        for &(tgid, joules) in &look.programs {
            if self.programs.len() < PROGRAMS || self.programs.contains_key(&tgid) {
                let program = self.programs.entry(tgid).or_default();
                program.fresh += f64::from(joules);
                program.joules += f64::from(joules);
            }
        }
        if *passed < self.point_ns || *passed == 0 {
            return;
        }
        let (at_s, seconds) = (at_ns as f64 / 1e9, *passed as f64 / 1e9);
        for (curve, sum) in self.parts.iter_mut().zip(sums) {
            curve.push((at_s, *sum / seconds));
        }
        for program in self.programs.values_mut() {
            let watts = Some(program.fresh / seconds).filter(|&watts| watts > 0.0);
            point(&mut program.curve, at_s, watts);
            program.fresh = 0.0;
        }
        self.fresh = Default::default();
    }

    /// All of it.
    pub(super) fn finish(self, topology: &Topology) -> PowerCurves {
        let types = topology.types.iter().map(|kind| kind.name.clone());
        let names = types.map(Some).chain(std::iter::repeat(None));
        let beside = BESIDE.map(|name| Some(name.to_string()));
        let names = names.take(MAX_CORE_TYPES).chain(beside);
        let parts = names.zip(self.parts);
        let took = |curve: &Curve| curve.iter().any(|&(_, watts)| watts > 0.0);
        let parts = parts.filter(|(_, curve)| took(curve));
        let mut programs: Vec<(u32, Program)> = self.programs.into_iter().collect();
        programs.sort_by(|(a, of_a), (b, of_b)| {
            let order = of_b.joules.total_cmp(&of_a.joules);
            order.then(a.cmp(b))
        });
        let programs = programs.into_iter().take(ROWS).map(|(tgid, program)| {
            let name = self.names.get(&tgid).map(Comm::to_string);
            let name = name.unwrap_or_else(|| "?".into());
            (format!("{name} {tgid}"), program.curve)
        });
        PowerCurves {
            parts: parts
                .filter_map(|(name, curve)| Some((name?, curve)))
                .collect(),
            programs: programs.collect(),
        }
    }
}

/// Headings, what to say below them, and drawings; none of what was not counted.
pub(super) fn drawings(
    power: &PowerCurves,
    seconds: f64,
) -> impl Iterator<Item = (&'static str, &'static str, Option<String>)> {
    fn named(curves: &[(String, Curve)]) -> Vec<Named<'_>> {
        let named = curves.iter().map(|(name, curve)| Named {
            name: name.clone(),
            curve,
        });
        named.collect()
    }
    let draw = |title: &str, curves: &[(String, Curve)]| {
        curves::draw(title, seconds, true, &named(curves))
    };
    [
        (
            "Power by core type",
            "Of threads by where they ran, as the scheduler's model shares what sensors count, W. Beside \
             them threads too young to be told apart, idle CPUs, and the rest of the package.",
            draw("Power by core type over time", &power.parts),
        ),
        (
            "Power by program",
            "Of all threads of a process, likewise, W.",
            draw("Power by program over time", &power.programs),
        ),
    ]
    .into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hetero_core::testing::{board, task};

    fn look(passed_s: u64, threads: [f32; 2], programs: &[(u32, f32)]) -> JoulesLook {
        JoulesLook {
            passed_ns: passed_s * 1_000_000_000,
            threads: [threads[0], threads[1], 0.0, 0.0],
            uncore: 3.0 * passed_s as f32,
            programs: programs.to_vec(),
            ..JoulesLook::default()
        }
    }

    #[test]
    fn joules_become_watts_by_core_type_and_program() {
        let mut gatherer = PowerGatherer::new(2_000_000_000);
        let second = 1_000_000_000;
        gatherer.take(second, &look(1, [4.0, 1.0], &[(101, 5.0)]));
        gatherer.look(&[task(1, 0, 0), task(2, 0, 0)]);
        gatherer.take(2 * second, &look(1, [2.0, 1.0], &[(101, 1.0), (7, 2.0)]));
        gatherer.take(4 * second, &look(2, [8.0, 0.0], &[(101, 8.0)]));
        let power = gatherer.finish(&board(2, 2));
        let expected = [
            ("big", [3.0, 4.0]),
            ("LITTLE", [1.0, 0.0]),
            ("uncore", [3.0, 3.0]),
        ];
        let expected = expected.map(|(name, [a, b])| (name.to_string(), vec![(2.0, a), (4.0, b)]));
        assert_eq!(power.parts, expected);
        assert_eq!(power.programs[0].1, [(2.0, 3.0), (4.0, 4.0)]);
        assert_eq!(power.programs[1].0, "? 7");
        assert!(power.programs[1].1[1].1.is_nan(), "it took nothing then");
        let drawn: Vec<_> = drawings(&power, 4.0).collect();
        assert!(drawn.iter().all(|(.., drawing)| drawing.is_some()));
        let none = PowerCurves::default();
        assert!(drawings(&none, 4.0).all(|(.., drawing)| drawing.is_none()));
    }
}
