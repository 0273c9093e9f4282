// SPDX-License-Identifier: GPL-2.0-only
//! Programs with goals over time: how fast they were, and what they were given.

use std::collections::HashMap;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use log::warn;
use svg::Document;
use svg::node::element::Style;

use super::curves::{self, LEFT, Named, WIDTH};
use super::gather::Curve;
use super::page::CURVES;
use super::write;
use crate::chart::text;
use crate::record::format::{GoalRecord, SessionName};
use crate::record::{Input, RecordReader};

/// Sessions that are drawn, those that had a goal for longest.
const DRAWN: usize = curves::COLOURS;

/// Points of a curve, at most, and how close they are at most, ns.
const POINTS: u64 = 600;
const POINT_NS: u64 = 100_000_000;

/// A heading's height in a drawing of its own.
const HEADING: f64 = 30.0;

/// A program with a goal.
pub(super) struct GoalCurves {
    /// Its name and its process.
    pub name: String,
    /// Rate over target.
    pub met: Curve,
    /// CPUs of the fastest core type.
    pub given: Curve,
    /// The last look that it was in.
    look: u64,
}

/// Gathers them.
pub(super) struct GoalGatherer {
    names: HashMap<u64, SessionName>,
    curves: HashMap<u64, GoalCurves>,
    looks: u64,
    point_ns: u64,
    due_ns: u64,
}

impl GoalGatherer {
    /// For a recording of so long.
    pub(super) fn new(length_ns: u64) -> Self {
        Self {
            names: HashMap::new(),
            curves: HashMap::new(),
            looks: 0,
            point_ns: (length_ns / POINTS).max(POINT_NS),
            due_ns: 0,
        }
    }

    pub(super) fn name(&mut self, named: SessionName) {
        self.names.insert(named.id, named);
    }

    pub(super) fn take(&mut self, at_ns: u64, goals: &[GoalRecord]) {
        // What is looked at each 100 ms may be a little early; that the last one has gone is always told.
        if !goals.is_empty() && at_ns + POINT_NS / 5 < self.due_ns {
            return;
        }
        self.due_ns = at_ns + self.point_ns;
        self.looks += 1;
        let at_s = at_ns as f64 / 1e9;
        for goal in goals {
            let names = &self.names;
            let curves = self.curves.entry(goal.session).or_insert_with(|| {
                let named = names.get(&goal.session);
                let name = named.map(|it| format!("{} {}", it.name, it.pid));
                GoalCurves {
                    name: name.unwrap_or_else(|| format!("session {}", goal.session)),
                    met: Vec::new(),
                    given: Vec::new(),
                    look: self.looks - 1,
                }
            });
            let real = |value: f32| value.is_finite().then_some(f64::from(value));
            let met = goal.rate.map(|rate| rate / goal.target).and_then(real);
            for (curve, value) in [
                (&mut curves.met, met),
                (&mut curves.given, real(goal.given)),
            ] {
                if curves.look + 1 != self.looks {
                    curve.push((at_s, f64::NAN));
                }
                curve.push((at_s, value.unwrap_or(f64::NAN)));
            }
            curves.look = self.looks;
        }
    }

    /// Those that are drawn, in the order in which they came, and how many more there were.
    pub(super) fn finish(self) -> (Vec<GoalCurves>, usize) {
        let mut all: Vec<(u64, GoalCurves)> = self.curves.into_iter().collect();
        all.sort_by_key(|(id, curves)| (std::cmp::Reverse(curves.given.len()), *id));
        let more = all.len().saturating_sub(DRAWN);
        all.truncate(DRAWN);
        all.sort_by_key(|(id, _)| *id);
        (all.into_iter().map(|(_, curves)| curves).collect(), more)
    }
}

/// Rates over targets, and allotments, each with its heading and its height.
pub(super) fn drawings(goals: &[GoalCurves], seconds: f64) -> Vec<(String, Document, f64)> {
    let met: Vec<&Curve> = goals.iter().map(|goal| &goal.met).collect();
    let given: Vec<&Curve> = goals.iter().map(|goal| &goal.given).collect();
    let both = [(RATES, met, Some(1.0)), (GIVEN, given, None)];
    let draw = |(heading, curves, level): (&str, Vec<&Curve>, Option<f64>)| {
        let (curves, cut) = cut_off(&curves);
        let heading = format!("{heading}{}", if cut { CUT } else { "" });
        let names = goals.iter().map(|goal| goal.name.clone());
        let named = names
            .zip(&curves)
            .map(|(name, curve)| Named { name, curve });
        let named: Vec<Named> = named.collect();
        let (drawing, height) = curves::at_level(&heading, seconds, &named, level)?;
        Some((heading, drawing, height))
    };
    both.into_iter().filter_map(draw).collect()
}

/// Headings, and what is said where a drawing does not show all.
const RATES: &str = "Rate over target, in the last second";
const GIVEN: &str = "Allotment, CPUs of the fastest core type";
const CUT: &str = " (more is cut off)";

/// The part of the points that decides how far up a drawing goes, and by how much it goes beyond them:
/// programs begin with all that is free, and beside that nothing else could be seen.
const SHOWN: f64 = 0.9;
const BEYOND: f64 = 1.5;

/// Curves as they are drawn, and whether there was more.
fn cut_off(curves: &[&Curve]) -> (Vec<Curve>, bool) {
    let all = curves.iter().flat_map(|curve| curve.iter());
    let mut values: Vec<f64> = all.map(|point| point.1).filter(|v| !v.is_nan()).collect();
    values.sort_by(f64::total_cmp);
    let at = (SHOWN * values.len() as f64) as usize;
    let most = values.get(at).map_or(f64::INFINITY, |v| v * BEYOND);
    let cut = values.last().is_some_and(|last| *last > most);
    // Not a number stays that.
    let below = |&(at_s, value): &(f64, f64)| (at_s, if value > most { most } else { value });
    let curves = curves.iter();
    let curves = curves.map(|curve| curve.iter().map(below).collect());
    (curves.collect(), cut)
}

/// Arguments of `scx_hetero goal plot`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    sudo scx_hetero --record FILE      while programs with goals run\n  \
    scx_hetero goal plot FILE          writes FILE.svg")]
pub struct PlotArgs {
    /// A recording, by `scx_hetero --record FILE`
    file: PathBuf,

    /// The drawing, or - for standard output [default: the recording's name and .svg]
    #[arg(short, long, value_name = "DRAWING")]
    out: Option<PathBuf>,
}

/// Draws rates and allotments as SVG.
///
/// # Errors
/// The file is no recording that this version can read, no program had a goal, or the drawing cannot be written.
pub fn plot(args: &PlotArgs) -> Result<()> {
    let to = super::place(&args.file, args.out.as_deref(), ".svg")?;
    let mut seconds = 0.0f64;
    let mut reader = RecordReader::open(&args.file)?;
    while let Some(input) = reader.next_input()? {
        if let Input::Look { at_ns, .. } | Input::Goals { at_ns, .. } = input {
            seconds = seconds.max(at_ns as f64 / 1e9);
        }
    }
    let mut gatherer = GoalGatherer::new((seconds * 1e9) as u64);
    let mut reader = RecordReader::open(&args.file)?;
    while let Some(input) = reader.next_input()? {
        match input {
            Input::Session(named) => gatherer.name(named),
            Input::Goals { at_ns, goals } => gatherer.take(at_ns, &goals),
            _ => {}
        }
    }
    if let Some(complaint) = reader.complaint() {
        warn!("{complaint}");
    }
    let (goals, more) = gatherer.finish();
    let parts = drawings(&goals, seconds);
    ensure!(
        !parts.is_empty(),
        "{}: no program had a goal while this was recorded; 'scx_hetero goal run' gives it one",
        args.file.display()
    );
    if more > 0 {
        warn!("{more} more sessions, which had goals for a shorter time, are not drawn");
    }
    let drawing = format!("{}\n", alone(parts));
    let what = match goals.len() {
        1 => "a session's goal".to_string(),
        many => format!("goals of {many} sessions"),
    };
    write(&drawing, to.as_deref(), &what)
}

/// A drawing outside a page: with its own colours, on a light background and on a dark one.
fn alone(parts: Vec<(String, Document, f64)>) -> Document {
    let mut style = String::from(
        "text { font: 13px sans-serif; fill: #24292f; } .title { font-size: 16px; font-weight: bold; } \
         .grid { stroke: #8b949e; stroke-opacity: 0.35; } .level { stroke: #57606a; stroke-dasharray: 6 4; } \
         .curve { fill: none; stroke-width: 2; stroke-linejoin: round; } \
         @media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .level { stroke: #b1bac4; } }",
    );
    for (index, colour) in CURVES.iter().enumerate() {
        style += &format!(" .curve{index} {{ stroke: {colour}; }}");
    }
    let mut document = Document::new().set("role", "img").add(Style::new(style));
    let mut top = 0.0;
    for (heading, drawing, height) in parts {
        let heading = text(&heading, LEFT, top + 20.0, "start").set("class", "title");
        let drawing = drawing
            .set("y", top + HEADING)
            .set("width", WIDTH)
            .set("height", height);
        document = document.add(heading).add(drawing);
        top += HEADING + height + 10.0;
    }
    document.set("viewBox", (0, 0, WIDTH, top))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(session: u64, rate: Option<f32>, given: f32) -> GoalRecord {
        GoalRecord {
            session,
            target: 30.0,
            rate,
            demand: None,
            given,
            miss: None,
        }
    }

    #[test]
    fn sessions_come_and_go_with_gaps_and_those_that_stay_are_drawn() {
        let mut gatherer = GoalGatherer::new(2_000_000_000);
        gatherer.name(SessionName {
            id: 3,
            pid: 4711,
            name: "x264".into(),
        });
        for step in 0..20 {
            let mut goals = vec![goal(3, Some(15.0), 0.5)];
            if step != 10 {
                goals.push(goal(7, None, f32::NAN));
            }
            // Each of these for a moment.
            goals.extend((100..110).map(|id| goal(id + 20 * step, Some(30.0), 1.0)));
            gatherer.take(step * POINT_NS, &goals);
            gatherer.take(step * POINT_NS + POINT_NS / 2, &goals);
        }
        let (drawn, more) = gatherer.finish();
        assert_eq!((drawn.len(), more), (DRAWN, 2 + 200 - DRAWN));
        assert_eq!(drawn[0].name, "x264 4711");
        assert_eq!(drawn[0].met.len(), 20);
        assert_eq!(
            (drawn[0].met[5], drawn[0].given[5]),
            ((0.5, 0.5), (0.5, 0.5))
        );
        assert_eq!(drawn[1].name, "session 7");
        assert!(drawn[1].met.iter().all(|point| point.1.is_nan()));
        let parts = drawings(&drawn, 2.0);
        assert_eq!(parts.len(), 2);
        let drawing = alone(parts).to_string();
        assert_eq!(drawing.matches("<svg").count(), 3);
        assert!(drawing.contains("class=\"level\"") && drawing.contains("x264 4711"));
        assert!(!drawing.contains("NaN"));
        assert!(drawings(&[], 2.0).is_empty());
    }

    #[test]
    fn a_moment_of_much_is_cut_off() {
        let curve = |of: &[f64]| -> Curve { of.iter().map(|&value| (0.0, value)).collect() };
        let steady = curve(&[1.0; 30]);
        let mut leaps = curve(&[1.0; 10]);
        leaps[0].1 = 5.0;
        leaps[1].1 = f64::NAN;
        let (cut, was) = cut_off(&[&steady, &leaps]);
        assert!(was && cut[0] == steady && cut[1][0].1 == 1.5 && cut[1][1].1.is_nan());
        assert_eq!(cut_off(&[&steady]), (vec![steady.clone()], false));
        assert!(!cut_off(&[]).1);
    }
}
