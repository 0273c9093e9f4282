// SPDX-License-Identifier: GPL-2.0-only
//! Where each thread ran over time: a row each, with a mark for each move.

use std::fmt::Write as _;

use svg::Document;
use svg::node::element::{Group, Path, Title};

use super::curves::{LEFT, RIGHT, WIDTH, time_axis};
use super::gather::{DrawnMove, ReportData, ThreadRow};
use crate::chart::text;

const ROW: f64 = 26.0;
const TOP: f64 = 8.0;

/// What a row is high where it ran on the fastest core type, and by how much less on each slower one:
/// types are told apart without colours, too.
const BAR: f64 = 17.0;
const LESS: f64 = 4.0;

/// Shades by the part of the time that a thread ran: from so much on, which class.
const SHADES: [(f64, &str); 3] = [(0.6, "much"), (0.2, "some"), (0.02, "little")];

/// The drawing, as SVG.
pub(super) fn draw(story: &ReportData) -> String {
    let height = TOP + ROW * story.rows.len() as f64 + 30.0;
    let mut document = Document::new()
        .set("viewBox", (0, 0, WIDTH, height))
        .set("role", "img")
        .add(Title::new("Where each thread ran over time"))
        .add(time_axis(story.seconds, TOP, height - 30.0));
    for (index, row) in story.rows.iter().enumerate() {
        document = document.add(draw_row(story, row, TOP + ROW * index as f64));
    }
    document.to_string()
}

/// In words, for the mark and the table.
pub(super) fn words(story: &ReportData, moved: &DrawnMove) -> String {
    let with = moved.with.as_ref();
    let how = with.map_or_else(|| "sent".into(), |with| format!("swapped with {with}"));
    let why = moved.why.as_ref().map(|why| format!(": {why}"));
    format!(
        "{} to {}, {how}{}",
        name(story, moved.from),
        name(story, moved.to),
        why.unwrap_or_default()
    )
}

/// A core type's name.
pub(super) fn name(story: &ReportData, core_type: usize) -> &str {
    let kind = story.begin.topology.types.get(core_type);
    kind.map_or("?", |kind| kind.name.as_str())
}

fn draw_row(story: &ReportData, row: &ThreadRow, top: f64) -> Group {
    let mut drawn = Group::new();
    let label = format!("{} {}", row.comm, row.tid);
    let bottom = top + ROW - 3.0;
    drawn = drawn.add(text(&label, LEFT - 8.0, bottom - 3.0, "end"));
    let scale = (WIDTH - LEFT - RIGHT) / story.seconds.max(1e-9);
    for core_type in 0..story.begin.topology.types.len() {
        for (index, (least, class)) in SHADES.into_iter().enumerate() {
            let most = if index == 0 {
                f64::INFINITY
            } else {
                SHADES[index - 1].0
            };
            let shade = least..most;
            let is_here = |bin: &[f64; 4]| {
                let ran: f64 = bin.iter().sum();
                let mainly = (0..bin.len()).max_by(|&a, &b| bin[a].total_cmp(&bin[b]));
                mainly == Some(core_type) && shade.contains(&(ran / story.bin_s))
            };
            let bar = (BAR - LESS * core_type as f64).max(3.0);
            let path = bars(&row.bins, is_here, |from, to| {
                let (from, to) = (from as f64 * story.bin_s, to as f64 * story.bin_s);
                let (x, width) = (LEFT + from * scale, (to.min(story.seconds) - from) * scale);
                format!("M{x:.1} {:.1}h{width:.1}v{bar}h-{width:.1}z", bottom - bar)
            });
            if !path.is_empty() {
                let class = format!("type{core_type} {class}");
                drawn = drawn.add(Path::new().set("class", class).set("d", path));
            }
        }
    }
    let all: f64 = row.bins.iter().flatten().sum();
    let shares = (0..story.begin.topology.types.len()).map(|core_type| {
        let on: f64 = row.bins.iter().map(|bin| bin[core_type]).sum();
        format!(
            "{} {:.0}%",
            name(story, core_type),
            100.0 * on / all.max(1e-9)
        )
    });
    let shares: Vec<String> = shares.collect();
    let title = format!("{label}: ran {:.1} s, {}", row.run_s, shares.join(", "));
    drawn = drawn.add(Title::new(title));
    let mut marks: Vec<_> = row.marks.iter().collect();
    marks.sort_by_key(|(bin, _)| **bin);
    for (_, (moved, more)) in marks {
        let x = LEFT + moved.at_s * scale;
        let faster = moved.to < moved.from;
        let (tip, base) = if faster {
            (top, top + 6.0)
        } else {
            (top + 6.0, top)
        };
        let mut title = format!("{:.2} s, {label}: {}", moved.at_s, words(story, moved));
        if *more > 0 {
            let _ = write!(title, " (and {more} more moves right after)");
        }
        let path = format!("M{x:.1} {tip:.1}L{:.1} {base:.1}H{:.1}z", x + 3.5, x - 3.5);
        let mark = Path::new().set("d", path).add(Title::new(title));
        drawn = drawn.add(mark.set("class", if faster { "up" } else { "down" }));
    }
    drawn
}

/// A path of all stretches of parts for which `is_here`, each by `draw` from its first part to
/// behind its last.
fn bars<T>(
    bins: &[T],
    is_here: impl Fn(&T) -> bool,
    draw: impl Fn(usize, usize) -> String,
) -> String {
    let mut path = String::new();
    let mut from = None;
    for at in 0..=bins.len() {
        match (from, bins.get(at).is_some_and(&is_here)) {
            (None, true) => from = Some(at),
            (Some(first), false) => {
                path += &draw(first, at);
                from = None;
            }
            _ => {}
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_parts_are_one_bar() {
        let path = |bins: &[u8]| bars(bins, |bin| *bin == 1, |from, to| format!("{from}-{to} "));
        assert_eq!(path(&[0, 1, 1, 0, 1]), "1-3 4-5 ");
        assert_eq!(path(&[0, 2]), "");
    }
}
