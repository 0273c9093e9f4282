// SPDX-License-Identifier: GPL-2.0-only
//! What programs miss of last-level caches, by how much of them they have: curves that are estimated again from the
//! recording, as the scheduler did it, and put together over a program's threads as the store does.

use std::collections::HashMap;
use std::fmt::Write as _;

use hetero_core::cache::{CURVE_POINTS, CurvePoints};
use hetero_core::knowledge::{ProgramFindings, ThreadFinding, told_points};

use super::curves::{self, COLOURS, Named};
use super::gather::Curve;
use super::page::escape;
use crate::order::greatest_first;
use crate::table::{Comm, Task};
use crate::topology::{MAX_CORE_TYPES, Topology};

/// Programs of which curves are kept while gathering; of others nothing is drawn.
const PROGRAMS: usize = 4096;

/// Programs that are named beside those that are drawn, at most.
const NAMED: usize = 20;

/// Less than this is not worth a line, MPKI.
const LEAST_GAIN: f64 = 0.5;

const MIB: f64 = 1024.0 * 1024.0;

/// A program on a core type.
struct MissCurve {
    name: String,
    core_type: String,
    /// Size of the cache, MiB.
    cache: f64,
    points: CurvePoints,
}

/// What is drawn.
#[derive(Default)]
pub(super) struct MissCurves {
    /// Those that gain most by cache, the most first.
    drawn: Vec<MissCurve>,
    /// Names of the others.
    rest: Vec<String>,
}

/// Gathers them.
#[derive(Default)]
pub(super) struct MissGatherer {
    /// Of processes.
    names: HashMap<u32, Comm>,
    programs: HashMap<String, ProgramFindings>,
}

impl MissCurve {
    /// By how many MPKI the most of the cache that is known of is better than the least, if that is more than
    /// chance.
    fn gain(&self) -> Option<f64> {
        let mut known = self.points.iter().flatten();
        let (least, most) = (known.next()?, known.next_back()?);
        let gain = least.mpki - most.mpki;
        let chance = least.error.hypot(most.error);
        (gain > chance.max(LEAST_GAIN)).then_some(gain)
    }
}

impl MissGatherer {
    /// Takes note of what processes are called.
    pub(super) fn look(&mut self, tasks: &[Task]) {
        for task in tasks.iter().filter(|task| task.tid == task.tgid) {
            self.names.insert(task.tgid, task.comm);
        }
    }

    /// Takes in what was found of threads.
    pub(super) fn take(&mut self, found: Vec<(Task, ThreadFinding)>) {
        for (task, found) in found {
            let name = self.names.get(&task.tgid).unwrap_or(&task.comm).to_string();
            if self.programs.len() < PROGRAMS || self.programs.contains_key(&name) {
                let program = self.programs.entry(name).or_default();
                program.take(&task, &found, 0);
            }
        }
    }

    /// All of it, with caches as large as this machine's.
    pub(super) fn finish(self, topology: &Topology) -> MissCurves {
        let mut curves = Vec::new();
        for (name, program) in self.programs {
            let known = program.known();
            for (core_type, kind) in topology.types.iter().enumerate().take(MAX_CORE_TYPES) {
                let points = told_points(&known.curve(core_type));
                if points.iter().any(Option::is_some) {
                    curves.push(MissCurve {
                        name: name.clone(),
                        core_type: kind.name.clone(),
                        cache: topology.llc_of_type(core_type) / MIB,
                        points,
                    });
                }
            }
        }
        curves.sort_by(|a, b| (&a.name, &a.core_type).cmp(&(&b.name, &b.core_type)));
        let gains = curves.iter().enumerate();
        let gains = gains.filter_map(|(at, curve)| Some((at, curve.gain()?)));
        let gains = greatest_first(gains.collect::<Vec<_>>());
        let places: Vec<usize> = gains.iter().take(COLOURS).map(|(at, _)| *at).collect();
        let mut all: Vec<Option<MissCurve>> = curves.into_iter().map(Some).collect();
        let drawn: Vec<MissCurve> = places.iter().filter_map(|&at| all[at].take()).collect();
        let is_drawn = |name: &String| drawn.iter().any(|of| of.name == *name);
        let rest = all.into_iter().flatten().map(|of| of.name);
        let mut rest: Vec<String> = rest.filter(|name| !is_drawn(name)).collect();
        rest.dedup();
        MissCurves { drawn, rest }
    }
}

/// What to say above the drawing, as HTML.
pub(super) fn about(misses: &MissCurves) -> String {
    let mut text = String::from(
        "Misses of the last-level cache for each 1,000 instructions (MPKI), by how much of it a program's threads \
         held: where a line falls, more cache is worth something. Estimated from misses while their company changed; \
         sizes that none held are left out. Of the programs that gain most.",
    );
    let mut names: Vec<String> = misses.rest.iter().map(|name| escape(name)).collect();
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    if !names.is_empty() {
        let _ = write!(
            text,
            " Others gain less, or hold too much the same to tell: {}",
            names.join(", ")
        );
        if more > 0 {
            let _ = write!(text, " and {more} more");
        }
        text.push('.');
    }
    text
}

/// A drawing, and the same in a table; `None` if nothing gains.
pub(super) fn draw(misses: &MissCurves) -> Option<String> {
    let line = |of: &MissCurve| -> Curve {
        let points = of.points.iter().enumerate();
        let point = |(at, point): (usize, &Option<_>)| {
            let point: &hetero_core::cache::CurvePoint = point.as_ref()?;
            Some(((at + 1) as f64 / CURVE_POINTS as f64 * of.cache, point.mpki))
        };
        points.filter_map(point).collect()
    };
    let lines: Vec<Curve> = misses.drawn.iter().map(line).collect();
    let named = misses.drawn.iter().zip(&lines).map(|(of, curve)| Named {
        name: format!("{} on {}", of.name, of.core_type),
        curve,
    });
    let named: Vec<Named> = named.collect();
    let end = misses.drawn.iter().map(|of| of.cache).fold(0.0, f64::max);
    let mut html = curves::over("MPKI by MiB of cache", (end, "MiB"), &named)?;
    html += "\n<table>\n<tr><th>MPKI with</th><th>on</th><th class=\"number\">of</th>";
    for point in 1..=CURVE_POINTS {
        let _ = write!(html, "<th class=\"number\">{point}/8</th>");
    }
    html += "</tr>\n";
    for of in &misses.drawn {
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{}</td><td class=\"number\">{:.1} MiB</td>",
            escape(&of.name),
            escape(&of.core_type),
            of.cache
        );
        for point in &of.points {
            html += "<td class=\"number\">";
            if let Some(point) = point {
                let _ = write!(
                    html,
                    "{:.1} <span class=\"pale\">&#177; {:.1}</span>",
                    point.mpki, point.error
                );
            }
            html += "</td>";
        }
        html += "</tr>\n";
    }
    html += "</table>";
    Some(html)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hetero_core::cache::CurvePoint;
    use hetero_core::knowledge::logarithms;
    use hetero_core::testing::{board, task};

    fn machine() -> Topology {
        let mut topology = board(2, 2);
        topology.llc_bytes = vec![2 << 20, 4 << 20];
        topology
    }

    fn found(mpki: [f64; CURVE_POINTS]) -> ThreadFinding {
        let mut found = ThreadFinding::default();
        found.profile.curves[1] = logarithms(&mpki.map(|mpki| {
            let error = 0.05 * mpki;
            Some(CurvePoint { mpki, error })
        }));
        found
    }

    const KNEE: [f64; CURVE_POINTS] = [40.0, 40.0, 20.0, 8.0, 2.0, 2.0, 2.0, 2.0];

    #[test]
    fn programs_that_gain_are_drawn_and_the_others_are_named() {
        let mut gatherer = MissGatherer::default();
        let mut knee = task(1, 2, 1);
        knee.comm = Comm(*b"a<b\0\0\0\0\0\0\0\0\0\0\0\0\0");
        (knee.tid, knee.tgid) = (7, 7);
        // A thread that calls itself otherwise is of the same program.
        let mut thread = knee;
        (thread.tid, thread.comm) = (8, Comm(*b"worker\0\0\0\0\0\0\0\0\0\0"));
        let mut flat = task(3, 2, 1);
        (flat.tid, flat.tgid) = (9, 9);
        flat.comm = Comm(*b"flat\0\0\0\0\0\0\0\0\0\0\0\0");
        gatherer.look(&[knee, thread, flat]);
        gatherer.take(vec![
            (knee, found(KNEE)),
            (thread, found(KNEE)),
            (flat, found([3.0; 8])),
        ]);
        let misses = gatherer.finish(&machine());
        let [drawn] = &misses.drawn[..] else {
            panic!("{:?}", misses.rest);
        };
        assert_eq!((drawn.name.as_str(), drawn.cache), ("a<b", 4.0));
        assert_eq!(misses.rest, ["flat"]);
        assert!(about(&misses).contains("too much the same to tell: flat."));
        let html = draw(&misses).unwrap();
        assert!(html.contains("a&lt;b") && !html.contains("a<b"), "{html}");
        assert!(
            html.contains("\n4 MiB\n") && html.contains(">8.0 <span"),
            "{html}"
        );
        assert_eq!(html.matches("<tr>").count(), 2);
        assert_eq!(draw(&MissCurves::default()), None);
    }

    #[test]
    fn as_many_are_drawn_as_have_colours_and_names_are_bounded() {
        let mut gatherer = MissGatherer::default();
        for nth in 0..PROGRAMS + 10 {
            let mut of = task(1, 2, 1);
            of.comm = Comm(std::array::from_fn(|at| (nth >> (4 * at)) as u8 & 15 | 64));
            gatherer.take(vec![(of, found(KNEE))]);
        }
        let misses = gatherer.finish(&machine());
        assert_eq!(misses.drawn.len(), COLOURS);
        assert_eq!(misses.rest.len(), PROGRAMS - COLOURS);
        assert!(about(&misses).ends_with("4068 more."));
    }
}
