// SPDX-License-Identifier: GPL-2.0-only
//! A bar chart for each metric: groups are mixes, bars are schedulers, whiskers go from the least
//! to the greatest of the repeats.

use svg::Document;
use svg::node::element::{Group, Rectangle, Style, Title};

use super::summary::{MixMean, Stat, Summary, SummaryRow, schedulers};
use crate::bench::scheduler::BenchScheduler;
use crate::chart::{grid, line, number, text};

/// Text and lines follow the reader's colours, light or dark; bars are seen on either.
pub(super) const CHART_STYLE: &str = "text { font: 13px sans-serif; fill: #24292f; } \
    .title { font-size: 16px; font-weight: bold; } \
    .grid { stroke: #8b949e; stroke-opacity: 0.35; } .axis, .whisker { stroke: #57606a; } \
    @media (prefers-color-scheme: dark) { text { fill: #e6edf3; } \
    .axis, .whisker { stroke: #b1bac4; } }";

/// Mid-tones: they stand out from white and from black.
const COLOURS: [&str; 13] = [
    "#8c8c8c", "#c9b458", "#4e79a7", "#76b7b2", "#b07aa1", "#59a14f", "#e15759", "#f28e2b",
    "#9c755f", "#ff9da7", "#7a5cd6", "#2f9bd8", "#86bc25",
];

/// Where the bars are, in pixels, as all that follows.
pub(super) const LEFT: f64 = 62.0;
const RIGHT: f64 = 16.0;
const HEIGHT: f64 = 300.0;
/// Of all bars of a group together, at most.
const GROUP: f64 = 88.0;
const WIDEST_BAR: f64 = 18.0;
const GAP: f64 = 22.0;
/// Between lines of text.
pub(super) const LINE: f64 = 20.0;
/// What a character takes, at most.
const CHARACTER: f64 = 7.8;
pub(super) const LEAST_WIDTH: f64 = 560.0;
/// A metric: its file's name, its title, and its number of a mix and of all mixes.
struct Metric {
    name: &'static str,
    title: &'static str,
    of_row: fn(&SummaryRow) -> Option<Stat>,
    of_mean: fn(&MixMean) -> Option<f64>,
}

const METRICS: [Metric; 6] = [
    Metric {
        name: "unfairness",
        title: "Unfairness: greatest slowdown over least; less is fairer",
        of_row: |row| Some(row.unfairness),
        of_mean: |mean| Some(mean.unfairness),
    },
    Metric {
        name: "asp",
        title: "ASP: speedup over the slowest CPUs; more is better",
        of_row: |row| Some(row.asp),
        of_mean: |mean| Some(mean.asp),
    },
    Metric {
        name: "stp",
        title: "STP: speed over that alone, summed up; more is better",
        of_row: |row| Some(row.stp),
        of_mean: |mean| Some(mean.stp),
    },
    Metric {
        name: "antt",
        title: "ANTT: mean slowdown; less is better",
        of_row: |row| Some(row.antt),
        of_mean: |mean| Some(mean.antt),
    },
    Metric {
        name: "migrations",
        title: "Changes of CPU per second",
        of_row: |row| row.migrations_per_s,
        of_mean: |mean| mean.migrations_per_s,
    },
    Metric {
        name: "energy",
        title: "Energy for what a fastest core does alone in a second, J",
        of_row: |row| row.joules_per_s_alone,
        of_mean: |mean| mean.joules_per_s_alone,
    },
];

/// A mix, or the mean over mixes, and what it has under each scheduler.
struct Cluster<'a> {
    name: &'a str,
    bars: Vec<Option<Stat>>,
}

/// A chart for each metric that could be counted: its name, and SVG.
pub(super) fn all(summary: &Summary) -> Vec<(&'static str, String)> {
    let names = schedulers(summary);
    let chart = |metric: &Metric| {
        let clusters = clusters(summary, &names, metric);
        let mut bars = clusters.iter().flat_map(|cluster| &cluster.bars);
        let any = bars.any(Option::is_some);
        any.then(|| (metric.name, draw(metric.title, &names, &clusters)))
    };
    METRICS.iter().filter_map(chart).collect()
}

fn clusters<'a>(summary: &'a Summary, names: &[&str], metric: &Metric) -> Vec<Cluster<'a>> {
    let of_mix = summary.mixes.iter().map(|of| Cluster {
        name: &of.mix,
        bars: names
            .iter()
            .map(|name| {
                let row = of.schedulers.iter().find(|row| row.scheduler == *name)?;
                (metric.of_row)(row)
            })
            .collect(),
    });
    let mean = |name: &&str| {
        let mean = summary.means.iter().find(|mean| mean.scheduler == *name)?;
        let mean = (metric.of_mean)(mean)?;
        let (min, max) = (mean, mean);
        Some(Stat { mean, min, max })
    };
    let means = Cluster {
        name: "mean",
        bars: names.iter().map(mean).collect(),
    };
    of_mix.chain([means]).collect()
}

/// A colour for each name; policies always have the same.
pub(super) fn colours(names: &[&str]) -> Vec<&'static str> {
    let mut free = vec![true; COLOURS.len()];
    let colour = |name: &&str| {
        let (kind, policy, _) = BenchScheduler::place(name);
        let wished = (kind + policy) % COLOURS.len();
        let places = (0..COLOURS.len()).map(|step| (wished + step) % COLOURS.len());
        let place = places.into_iter().find(|&place| free[place]);
        let place = place.unwrap_or(wished);
        free[place] = false;
        COLOURS[place]
    };
    names.iter().map(colour).collect()
}

fn draw(title: &str, names: &[&str], clusters: &[Cluster]) -> String {
    let stats = || clusters.iter().flat_map(|c| &c.bars).flatten();
    let low = stats().map(|stat| stat.min).fold(0.0, f64::min);
    let high = stats().map(|stat| stat.max).fold(0.0, f64::max);
    let grid = grid(low, high);
    let (bottom, top) = (grid[0], grid[grid.len() - 1]);
    let bar = (GROUP / names.len().max(1) as f64).min(WIDEST_BAR);
    let group = bar * names.len() as f64 + GAP;
    let width = (LEFT + RIGHT + group * clusters.len() as f64).max(LEAST_WIDTH);
    let colours = colours(names);
    let (legend, lines) = legend(names, &colours, width);
    let above = 2.0 * LINE + lines as f64 * LINE;
    let y = |value: f64| above + HEIGHT * (top - value) / (top - bottom);

    let mut document = Document::new()
        .set("viewBox", (0, 0, width.ceil(), above + HEIGHT + 2.0 * LINE))
        .set("role", "img")
        .add(Title::new(title))
        .add(Style::new(CHART_STYLE))
        .add(text(title, LEFT, LINE, "start").set("class", "title"))
        .add(legend);
    for value in &grid {
        let class = if *value == 0.0 { "axis" } else { "grid" };
        let at = y(*value);
        document = document
            .add(line(LEFT, at, width - RIGHT, at, class))
            .add(text(&number(*value), LEFT - 8.0, at + 4.5, "end"));
    }
    for (place, cluster) in clusters.iter().enumerate() {
        let left = LEFT + GAP / 2.0 + group * place as f64;
        let middle = left + (group - GAP) / 2.0;
        document = document.add(text(cluster.name, middle, above + HEIGHT + LINE, "middle"));
        for (scheduler, stat) in cluster.bars.iter().enumerate() {
            let Some(stat) = stat else { continue };
            let left = left + bar * scheduler as f64;
            let (from, to) = (y(stat.mean.max(0.0)), y(stat.mean.min(0.0)));
            let tip = format!(
                "{}, {}: {:.2} ({:.2}..{:.2})",
                cluster.name, names[scheduler], stat.mean, stat.min, stat.max
            );
            let rectangle = Rectangle::new()
                .set("x", left)
                .set("y", from)
                .set("width", bar - 1.0)
                .set("height", to - from)
                .set("fill", colours[scheduler]);
            let mut drawn = Group::new().add(Title::new(tip)).add(rectangle);
            if stat.max > stat.min {
                let x = left + (bar - 1.0) / 2.0;
                drawn = drawn.add(line(x, y(stat.max), x, y(stat.min), "whisker"));
            }
            document = document.add(drawn);
        }
    }
    format!("{document}\n")
}

/// A square and a name for each scheduler, in as many lines as it takes.
pub(super) fn legend(names: &[&str], colours: &[&str], width: f64) -> (Group, usize) {
    const SQUARE: f64 = 11.0;
    let (mut legend, mut x, mut lines) = (Group::new(), LEFT, 1);
    for (name, colour) in names.iter().zip(colours) {
        let takes = SQUARE + 6.0 + name.chars().count() as f64 * CHARACTER + 14.0;
        if x + takes > width && x > LEFT {
            (x, lines) = (LEFT, lines + 1);
        }
        let y = LINE + lines as f64 * LINE;
        let square = Rectangle::new()
            .set("x", x)
            .set("y", y - SQUARE + 1.0)
            .set("width", SQUARE)
            .set("height", SQUARE)
            .set("fill", *colour);
        legend = legend.add(square);
        legend = legend.add(text(name, x + SQUARE + 6.0, y, "start"));
        x += takes;
    }
    (legend, lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::summary::tests::example;

    #[test]
    fn there_is_a_chart_for_what_could_be_counted() {
        let charts = all(&example());
        let names: Vec<_> = charts.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["unfairness", "asp", "stp", "antt", "migrations"]);
        let (_, unfairness) = &charts[0];
        assert!(unfairness.contains("M1, camps: 1.50 (1.00..2.00)"));
        assert!(unfairness.contains("mean, default: 4.00"));
        assert!(!unfairness.contains("M1, default"), "not run");
        assert_eq!(unfairness.matches("class=\"whisker\"").count(), 1);
    }

    #[test]
    fn schedulers_have_colours_of_their_own() {
        let names = [
            "default",
            "camps",
            "camps --fairness 50",
            "scx_lavd",
            "scx_cosmos",
        ];
        let mut all = colours(&names);
        assert_eq!(all[1], colours(&["camps"])[0], "whoever else is there");
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), names.len());
    }
}
