// SPDX-License-Identifier: GPL-2.0-only
//! Numbers over time, and over other things.

use std::fmt::Write as _;

use svg::Document;
use svg::node::element::{Group, Path, Title};

use super::gather::Curve;
use crate::chart::{grid, line, number, text};

/// All drawings are so wide, in their own units; where time begins, and what is left beside its end.
pub(super) const WIDTH: f64 = 1000.0;
pub(super) const LEFT: f64 = 170.0;
pub(super) const RIGHT: f64 = 16.0;

const TOP: f64 = 10.0;
const HEIGHT: f64 = 200.0;
const LINE: f64 = 20.0;
/// What a character takes, at most.
const CHARACTER: f64 = 8.6;

/// Curves that have a colour of their own; the others are grey.
pub(super) const COLOURS: usize = 8;

/// One of several in a drawing.
pub(super) struct Named<'a> {
    /// Whose it is.
    pub name: String,
    /// Its points.
    pub curve: &'a Curve,
}

/// A drawing of curves over `seconds`, the first ones in colours; a line ends where there is a gap.
/// `None` if there is no point.
pub(super) fn draw(title: &str, seconds: f64, from_zero: bool, curves: &[Named]) -> Option<String> {
    let is_there = |named: &&Named| named.curve.iter().any(|point| !point.1.is_nan());
    let curves: Vec<&Named> = curves.iter().filter(is_there).collect();
    let drawn = drawing(title, (seconds, "s"), from_zero, &curves, None)?;
    Some(drawn.0.to_string())
}

/// The same from zero on, over what is not time but goes to `end` in that unit.
pub(super) fn over(title: &str, end: (f64, &str), curves: &[Named]) -> Option<String> {
    let curves: Vec<&Named> = curves.iter().collect();
    let drawn = drawing(title, end, true, &curves, None)?;
    Some(drawn.0.to_string())
}

/// The same from zero on, with a line across at a level, and its height. A curve has its colour also where one
/// before it has no point.
pub(super) fn at_level(
    title: &str,
    seconds: f64,
    curves: &[Named],
    level: Option<f64>,
) -> Option<(Document, f64)> {
    let curves: Vec<&Named> = curves.iter().collect();
    drawing(title, (seconds, "s"), true, &curves, level)
}

fn drawing(
    title: &str,
    (end, unit): (f64, &str),
    from_zero: bool,
    curves: &[&Named],
    level: Option<f64>,
) -> Option<(Document, f64)> {
    let values = || curves.iter().flat_map(|c| c.curve).map(|point| point.1);
    let high = values().chain(level).fold(f64::NEG_INFINITY, f64::max);
    let low = values().fold(f64::INFINITY, f64::min);
    if !(high.is_finite() && low.is_finite() && (high - low).is_finite()) {
        return None;
    }
    let base = if from_zero { 0.0 } else { low.min(1.0) };
    let lines = grid(low.min(0.0), high);
    let lines: Vec<f64> = lines.into_iter().filter(|v| *v >= base.floor()).collect();
    let (bottom, top) = (lines[0], lines[lines.len() - 1]);
    let (legend, rows) = legend(curves);
    let above = TOP
        + if curves.len() > 1 {
            rows as f64 * LINE
        } else {
            0.0
        };
    let x = |at: f64| LEFT + (WIDTH - LEFT - RIGHT) * at / end.max(1e-9);
    let y = |value: f64| above + HEIGHT * (top - value) / (top - bottom).max(1e-9);
    let height = above + HEIGHT + 30.0;
    let mut document = Document::new()
        .set("viewBox", (0, 0, WIDTH, height))
        .set("role", "img")
        .add(Title::new(title))
        .add(axis((end, unit), above, above + HEIGHT));
    for value in &lines {
        let at = y(*value);
        document = document
            .add(line(LEFT, at, WIDTH - RIGHT, at, "grid"))
            .add(text(&number(*value), LEFT - 8.0, at + 4.5, "end"));
    }
    if let Some(level) = level {
        document = document.add(line(LEFT, y(level), WIDTH - RIGHT, y(level), "level"));
    }
    // The first ones last, above the grey ones.
    for (index, named) in curves.iter().enumerate().rev() {
        let mut path = String::new();
        let mut letter = 'M';
        for (second, value) in named.curve {
            if value.is_nan() {
                letter = 'M';
                continue;
            }
            let _ = write!(path, "{letter}{:.1} {:.1}", x(*second), y(*value));
            letter = 'L';
        }
        let path = Path::new().set("d", path).set("class", class(index));
        document = document.add(path.add(Title::new(named.name.as_str())));
    }
    if curves.len() > 1 {
        document = document.add(legend);
    }
    Some((document, height))
}

fn class(index: usize) -> String {
    if index < COLOURS {
        format!("curve curve{index}")
    } else {
        "curve other".into()
    }
}

/// A stroke and a name for each that has a colour, in as many lines as it takes.
fn legend(curves: &[&Named]) -> (Group, usize) {
    const STROKE: f64 = 22.0;
    let (mut legend, mut x, mut rows) = (Group::new(), LEFT, 1);
    let others = curves.len().saturating_sub(COLOURS);
    let others = (others > 0).then(|| format!("{others} others"));
    let names = curves.iter().take(COLOURS).map(|named| named.name.clone());
    for (index, name) in names.chain(others).enumerate() {
        let takes = STROKE + 6.0 + name.chars().count() as f64 * CHARACTER + 12.0;
        if x + takes > WIDTH && x > LEFT {
            (x, rows) = (LEFT, rows + 1);
        }
        let y = rows as f64 * LINE - 6.0;
        let stroke = format!("M{x:.1} {:.1}h{STROKE}", y - 4.0);
        legend = legend
            .add(Path::new().set("d", stroke).set("class", class(index)))
            .add(text(&name, x + STROKE + 6.0, y, "start"));
        x += takes;
    }
    (legend, rows)
}

/// Lines at round seconds, with numbers below.
pub(super) fn time_axis(seconds: f64, top: f64, bottom: f64) -> Group {
    axis((seconds, "s"), top, bottom)
}

fn axis((end, unit): (f64, &str), top: f64, bottom: f64) -> Group {
    let mut axis = Group::new();
    for at in grid(0.0, end).into_iter().filter(|at| *at <= end) {
        let x = LEFT + (WIDTH - LEFT - RIGHT) * at / end.max(1e-9);
        axis = axis.add(line(x, top, x, bottom, "grid"));
        let label = format!("{} {unit}", number(at));
        let half = label.chars().count() as f64 * CHARACTER / 2.0;
        axis = axis.add(text(&label, x.min(WIDTH - half), bottom + 18.0, "middle"));
    }
    axis
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_to_draw_is_no_drawing_and_one_curve_needs_no_legend() {
        let (none, some) = (Vec::new(), vec![(0.0, 1.0), (1.0, 3.0)]);
        // Further apart than numbers can say.
        let endless = vec![(0.0, 1.5e308), (1.0, -1.5e308)];
        let named = |curve| Named {
            name: "xz <1>".into(),
            curve,
        };
        assert_eq!(draw("t", 1.0, true, &[named(&none)]), None);
        let one = draw("t", 1.0, true, &[named(&some), named(&none)]).unwrap();
        assert_eq!(one.matches("<path").count(), 1);
        let two = draw("t", 1.0, true, &[named(&some), named(&some)]).unwrap();
        assert_eq!(two.matches("<path").count(), 4);
        assert!(two.contains("xz &lt;1&gt;"), "{two}");
        assert_eq!(draw("t", 1.0, true, &[named(&endless)]), None);
        let point = draw("t", 0.0, true, &[named(&vec![(0.0, f64::NAN)])]);
        assert_eq!(point, None);
    }

    #[test]
    fn a_gap_is_no_line() {
        let curve = vec![
            (0.0, 1.0),
            (1.0, 2.0),
            (2.0, f64::NAN),
            (3.0, 1.0),
            (4.0, 2.0),
        ];
        let named = Named {
            name: "x".into(),
            curve: &curve,
        };
        let drawn = draw("t", 4.0, true, &[named]).unwrap();
        let path = drawn.split("<path").nth(1).unwrap();
        let path = path
            .split("d=\"")
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap();
        assert_eq!(path.matches('M').count(), 2, "{path}");
        assert_eq!(path.matches('L').count(), 2, "{path}");
    }

    #[test]
    fn beyond_the_colours_curves_are_grey() {
        let curve = vec![(0.0, 1.0)];
        let many: Vec<Named> = (0..12)
            .map(|index| Named {
                name: format!("{index}"),
                curve: &curve,
            })
            .collect();
        let drawn = draw("t", 1.0, true, &many).unwrap();
        assert_eq!(drawn.matches("curve other").count(), 5);
        assert!(drawn.contains("4 others"));
    }
}
