// SPDX-License-Identifier: GPL-2.0-only
//! Energy and delay for the same work, beside those of the first scheduler: a mark for each mix under a scheduler,
//! a large one for all its mixes, and lines of equal energy-delay product (EDP; PMCTrack 2017, section 4.2).

use std::fmt::Write as _;

use svg::Document;
use svg::node::element::{Circle, ClipPath, Definitions, Path, Rectangle, Style, Title};

use super::chart::{CHART_STYLE, LEAST_WIDTH, LEFT, LINE, colours, legend};
use super::summary::{OfMix, Summary, schedulers};
use crate::chart::{grid, line, number, text};
use crate::sim::metrics::geometric_mean;

/// Of the plane of delay and energy, in pixels.
const SIDE: f64 = 420.0;

/// EDP of the lines, of the first scheduler's.
const LEVELS: [f64; 13] = [
    0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0,
];

/// Delay and energy, of those of the first scheduler.
type Place = (f64, f64);

/// The drawing; `None` where energy was not counted under two schedulers.
pub(super) fn draw(summary: &Summary) -> Option<String> {
    let names = schedulers(summary);
    let (reference, _) = names.split_first()?;
    let of_scheduler = |name: &&str| -> Vec<(&str, Place)> {
        let mixes = summary.mixes.iter();
        let places = mixes.filter_map(|mix| Some((mix.mix.as_str(), place(mix, name, reference)?)));
        places.collect()
    };
    let all: Vec<Vec<(&str, Place)>> = names.iter().map(of_scheduler).collect();
    if all.iter().filter(|places| !places.is_empty()).count() < 2 {
        return None;
    }
    let (low, high) = ends(&all);
    let lines = lines(low, high);
    let (low, high) = (*lines.first()?, *lines.last()?);
    let colours = colours(&names);
    let (legend, rows) = legend(&names, &colours, LEAST_WIDTH);
    let above = (2.0 + rows as f64) * LINE;
    let x = |delay: f64| LEFT + SIDE * (delay - low) / (high - low);
    let y = |energy: f64| above + SIDE * (high - energy) / (high - low);

    let title = format!("Energy over delay, {reference} being 1");
    let inside = Rectangle::new()
        .set("x", LEFT)
        .set("y", above)
        .set("width", SIDE)
        .set("height", SIDE);
    let height = above + SIDE + 3.0 * LINE;
    let mut document = Document::new()
        .set("viewBox", (0, 0, LEAST_WIDTH, height))
        .set("role", "img")
        .add(Title::new(title.as_str()))
        .add(Style::new(format!(
            "{CHART_STYLE} .edp {{ fill: none; stroke: #8b949e; stroke-dasharray: 5 4; }} \
             .small {{ font-size: 11px; }}"
        )))
        .add(Definitions::new().add(ClipPath::new().set("id", "inside").add(inside)))
        .add(text(&title, LEFT, LINE, "start").set("class", "title"))
        .add(legend);
    for &value in &lines {
        let (at_x, at_y) = (x(value), y(value));
        document = document
            .add(line(LEFT, at_y, LEFT + SIDE, at_y, "grid"))
            .add(text(&number(value), LEFT - 8.0, at_y + 4.5, "end"))
            .add(line(at_x, above, at_x, above + SIDE, "grid"))
            .add(text(&number(value), at_x, above + SIDE + 18.0, "middle"));
    }
    for level in LEVELS.into_iter().filter(|level| level.sqrt() > low) {
        let Some(end) = label(level, low, high) else {
            continue;
        };
        let curve = Path::new()
            .set("d", hyperbola(level, (low, high), &x, &y))
            .set("class", "edp")
            .set("clip-path", "url(#inside)");
        let name = format!("EDP {}", number(level));
        // Below, it is left of the line, where that has come down.
        let (dx, dy, anchor) = if end.0 < high {
            (-6.0, -6.0, "end")
        } else {
            (6.0, 4.0, "start")
        };
        let name = text(&name, x(end.0) + dx, y(end.1) + dy, anchor).set("class", "small");
        document = document.add(curve).add(name);
    }
    for ((places, name), colour) in all.iter().zip(&names).zip(&colours) {
        let mark = |radius: f64, opacity: f64, place: Place, of: &str| {
            let tip = format!(
                "{of}, {name}: delay {:.3}, energy {:.3}, EDP {:.3}",
                place.0,
                place.1,
                place.0 * place.1
            );
            Circle::new()
                .set("cx", x(place.0))
                .set("cy", y(place.1))
                .set("r", radius)
                .set("fill", *colour)
                .set("fill-opacity", opacity)
                .add(Title::new(tip))
        };
        // The reference is in one place.
        if name != reference {
            for &(mix, place) in places {
                document = document.add(mark(3.5, 0.55, place, mix));
            }
        }
        if let Some(mean) = mean(places) {
            document = document.add(mark(7.5, 1.0, mean, "all mixes"));
        }
    }
    let middle = LEFT + SIDE / 2.0;
    document = document.add(text(
        "delay, one over STP; energy upwards, for the same work",
        middle,
        height - LINE / 2.0,
        "middle",
    ));
    Some(format!("{document}\n"))
}

/// Where a mix is under a scheduler, beside the reference: the delay of work is one over STP.
fn place(mix: &OfMix, name: &str, reference: &str) -> Option<Place> {
    let of = |name: &str| {
        let row = mix.schedulers.iter().find(|row| row.scheduler == name)?;
        Some((row.stp.mean, row.joules_per_s_alone?.mean))
    };
    let ((stp, joules), (stp_before, joules_before)) = (of(name)?, of(reference)?);
    let place = (stp_before / stp, joules / joules_before);
    (place.0.is_finite() && place.1.is_finite()).then_some(place)
}

fn mean(places: &[(&str, Place)]) -> Option<Place> {
    let of = |part: fn(&Place) -> f64| geometric_mean(places.iter().map(|(_, place)| part(place)));
    Some((of(|place| place.0)?, of(|place| place.1)?))
}

/// The least and the most that is drawn, of either axis: all marks, and some room beside them.
fn ends(all: &[Vec<(&str, Place)>]) -> (f64, f64) {
    let values = || {
        let places = all.iter().flatten();
        places.flat_map(|(_, place)| [place.0, place.1])
    };
    let low = values().fold(1.0, f64::min);
    let high = values().fold(1.0, f64::max);
    let room = ((high - low) * 0.08).max(0.05);
    ((low - room).max(0.0), high + room)
}

/// Lines of the grid, from the last one below `low` to the first above `high`.
fn lines(low: f64, high: f64) -> Vec<f64> {
    let steps = grid(0.0, high - low);
    let step = steps[1] - steps[0];
    let (first, last) = ((low / step).floor() as i64, (high / step).ceil() as i64);
    (first..=last).map(|line| line as f64 * step).collect()
}

/// Where the line of an EDP leaves the drawing, on its right or below, so that its name stands there; `None` where it
/// is not in it.
fn label(level: f64, low: f64, high: f64) -> Option<Place> {
    let energy = level / high;
    if energy > low {
        return (energy < high).then_some((high, energy));
    }
    let delay = level / low;
    (delay > low && delay < high).then_some((delay, low))
}

fn hyperbola(
    level: f64,
    (low, high): (f64, f64),
    x: &impl Fn(f64) -> f64,
    y: &impl Fn(f64) -> f64,
) -> String {
    const STEPS: u32 = 60;
    let from = low.max(level / high);
    let mut path = String::new();
    for step in 0..=STEPS {
        let delay = from + (high - from) * f64::from(step) / f64::from(STEPS);
        let letter = if step == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{letter}{:.1} {:.1}", x(delay), y(level / delay));
    }
    path
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::report::tests::results;
    use crate::bench::results::tests::run;

    fn summary(joules: Option<f64>) -> Summary {
        let mut runs = vec![
            run("default", "M1", 1, [&[2.0], &[4.0]]),
            run("camps", "M1", 1, [&[1.0], &[2.0]]),
            run("default", "M2", 1, [&[2.0], &[4.0]]),
            run("camps", "M2", 1, [&[1.0], &[4.0]]),
            run("hsp", "M2", 1, [&[1.6], &[3.2]]),
        ];
        for (run, factor) in runs.iter_mut().zip([1.0, 1.0, 1.0, 1.2, 0.9]) {
            run.joules = joules.map(|joules| joules * factor);
        }
        Summary::of(&results(runs)).unwrap()
    }

    #[test]
    fn half_the_delay_for_half_the_energy_is_a_quarter_of_the_edp() {
        let drawn = draw(&summary(Some(10.0))).unwrap();
        assert!(
            drawn.contains("M1, camps: delay 0.500, energy 0.500, EDP 0.250"),
            "{drawn}"
        );
        assert!(drawn.contains("all mixes, default: delay 1.000, energy 1.000, EDP 1.000"));
        assert!(!drawn.contains("M1, hsp"), "not run");
        for level in ["EDP 0.5", "EDP 1"] {
            assert!(
                drawn.lines().any(|line| line == level),
                "{level} in\n{drawn}"
            );
        }
    }

    #[test]
    fn without_energy_there_is_no_drawing() {
        assert_eq!(draw(&summary(None)), None);
    }

    #[test]
    fn all_marks_are_inside() {
        let places = vec![vec![("M1", (0.4, 1.7)), ("M2", (1.0, 1.0))]];
        let (low, high) = ends(&places);
        assert!(low < 0.4 && high > 1.7);
        let lines = lines(0.91, 1.34);
        assert!(lines[0] <= 0.91 && lines[lines.len() - 1] >= 1.34 && lines.len() > 4);
        let path = hyperbola(1.0, (low, high), &|v| v, &|v| v);
        assert!(path.starts_with('M') && path.matches('L').count() == 60);
    }
}
