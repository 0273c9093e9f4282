// SPDX-License-Identifier: GPL-2.0-only
//! The table of threads.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Row, Table, TableState};

use super::Appearance;
use crate::monitor::app::{App, Sort};
use crate::stats::live::{Live, LiveThread};

/// What the columns mean.
pub(super) const COLUMNS: [&str; 7] = [
    "W     its part of the cores' power, watts, where that is known",
    "SLOW = TYPE x CONT   slowdown here = by core type x by contention",
    "SF    speed on the fastest core type over that on the slowest",
    "BTR   memory traffic, bytes per second",
    "PH    phase, by number in the history; HIT phases that were known",
    "BEHIND AHEAD   progress, against the mean of those that compete",
    "MOVES by the policy, so far",
];

/// Columns for a name, at the least and at the most.
const NAME: [u16; 2] = [9, 32];

/// And for a slowdown in its parts: below ten, and below a hundred.
const SLOW: [u16; 2] = [14, 17];

/// The numbers of the columns for watts and progress.
const WATTS: usize = 5;
const PROGRESS: usize = 11;

/// The columns that a narrow terminal does without, the first ones first: phase, hits, traffic, moves, watts,
/// progress, SF, slowdown.
const DISPENSABLE: [usize; 8] = [9, 10, 8, 12, WATTS, PROGRESS, 7, 6];

/// The columns that are shown, by number, and how wide they are.
fn layout(width: u16, has_watts: bool) -> Vec<(usize, u16)> {
    let spare = width.saturating_sub(80);
    // The name first, then the slowdown, then the bar, which goes on to take its half.
    let name = NAME[0] + spare.min(7);
    let slow = SLOW[0] + (spare.saturating_sub(7)).min(SLOW[1] - SLOW[0]);
    let spare = spare.saturating_sub(10);
    let bar = (9 + spare / 2).min(61) | 1;
    let name = (name + (spare + 9).saturating_sub(bar)).min(NAME[1]);
    let widths = [7, name, 4, 3, 4, 4, slow, 4, 4, 2, 4, bar, 5];
    let mut shown: Vec<(usize, u16)> = widths.into_iter().enumerate().collect();
    shown.retain(|(number, _)| has_watts || *number != WATTS);
    let needs = |shown: &[(usize, u16)]| shown.iter().map(|(_, w)| w + 1).sum::<u16>() - 1;
    for column in DISPENSABLE {
        if needs(&shown) <= width {
            break;
        }
        shown.retain(|(number, _)| *number != column);
    }
    shown
}

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App, look: Appearance) {
    let Some(live) = &app.live else { return };
    let threads = app.threads();
    if threads.is_empty() && !app.filter.is_empty() {
        let text = format!(" no thread has '{}' in its name or id", app.filter);
        frame.render_widget(Line::from(text), area);
        return;
    }
    let shown = layout(area.width, !live.energy.is_empty());
    let bar = shown.iter().find(|(column, _)| *column == PROGRESS);
    let bar = bar.map_or(0, |(_, width)| usize::from(*width));
    let most = threads.iter().filter_map(|thread| thread.lead_ns);
    let most = most.map(i64::unsigned_abs).max().unwrap_or(0).max(1);
    let pick = |cells: [Cell<'static>; 13]| {
        let mut cells = cells.map(Some);
        let picked = shown.iter().filter_map(|(column, _)| cells[*column].take());
        Row::new(picked.collect::<Vec<_>>())
    };
    let rows = threads.iter().map(|thread| {
        let style = if thread.state == "blocked" {
            Style::new().add_modifier(Modifier::DIM)
        } else {
            Style::new()
        };
        pick(cells(thread, live, bar, most, look)).style(style)
    });
    let widths = shown.iter().map(|(_, width)| Constraint::Length(*width));
    let table = Table::new(rows, widths)
        .header(pick(header(app, bar)).style(look.heading()))
        .column_spacing(1)
        .row_highlight_style(Modifier::REVERSED);
    let mut state = TableState::default();
    state.select((!threads.is_empty()).then(|| app.selected_index(&threads)));
    frame.render_stateful_widget(table, area, &mut state);
}

fn header(app: &App, bar: usize) -> [Cell<'static>; 13] {
    let columns = [
        ("    TID", Some(Sort::Tid)),
        ("NAME", Some(Sort::Name)),
        ("ON", Some(Sort::Type)),
        ("CPU", None),
        ("LOAD", Some(Sort::Load)),
        ("   W", Some(Sort::Watts)),
        ("SLOW=TYPExCONT", Some(Sort::Slowdown)),
        ("  SF", Some(Sort::Sf)),
        (" BTR", Some(Sort::Btr)),
        ("PH", None),
        (" HIT", Some(Sort::Hits)),
        ("", Some(Sort::Progress)),
        ("MOVES", Some(Sort::Moves)),
    ];
    columns.map(|(name, sort)| {
        let half = bar / 2;
        let name = match (sort, bar >= 15) {
            (Some(Sort::Progress), true) => format!("{:>half$}|AHEAD", "BEHIND"),
            (Some(Sort::Progress), false) => format!("{:^bar$}", "PROGRESS"),
            _ => name.to_string(),
        };
        let style = if sort == Some(app.sort) {
            Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
        } else {
            Style::new()
        };
        Cell::from(Span::styled(name, style))
    })
}

fn cells(
    thread: &LiveThread,
    live: &Live,
    bar: usize,
    most: u64,
    look: Appearance,
) -> [Cell<'static>; 13] {
    let kind = live.core_types.get(thread.core_type);
    let number = |value: Option<f64>| value.map_or_else(|| "   -".into(), |v| format!("{v:4.2}"));
    let hits = thread
        .hit_rate
        .map(|rate| format!("{:>3.0}%", 100.0 * rate));
    let phase = thread.phase.map(|phase| format!("{phase:>2}"));
    [
        format!("{:>7}", thread.tid).into(),
        thread.comm.clone().into(),
        Span::styled(
            kind.map_or_else(|| "?".into(), |kind| kind.name.clone()),
            look.core_type(thread.core_type),
        )
        .into(),
        format!("{:>3}", thread.cpu).into(),
        format!("{:>3.0}%", thread.load_pct).into(),
        thread.watts.map_or_else(|| "   -".into(), watts).into(),
        slowdown(thread).into(),
        number(thread.sf).into(),
        thread.btr.map_or_else(|| "   -".into(), bytes).into(),
        phase.unwrap_or_else(|| " -".into()).into(),
        hits.unwrap_or_else(|| "   -".into()).into(),
        progress(thread.lead_ns, bar, most, look).into(),
        format!("{:>5}", thread.moves).into(),
    ]
}

fn slowdown(thread: &LiveThread) -> String {
    let Some(whole) = thread.slowdown else {
        return "   -".into();
    };
    let mut text = format!("{whole:4.2}");
    if let (Some(part), Some(rest)) = (thread.asymmetry, thread.contention) {
        text += &format!("={part:.2}x{rest:.2}");
    }
    text
}

/// Watts in four columns.
fn watts(watts: f64) -> String {
    match watts < 9.95 {
        true => format!("{watts:>4.1}"),
        false => format!("{watts:>4.0}"),
    }
}

/// Bytes per second in four columns.
fn bytes(per_second: f64) -> String {
    let units = [(1e9, 'G'), (1e6, 'M'), (1e3, 'k')];
    let unit = units.iter().find(|(size, _)| per_second >= 0.9995 * size);
    match unit {
        Some((size, name)) if per_second / size < 9.95 => {
            format!("{:.1}{name}", per_second / size)
        }
        Some((size, name)) => format!("{:>3.0}{name}", per_second / size),
        None => format!("{per_second:>4.0}"),
    }
}

/// To the left of the middle what is behind, to the right what is ahead.
fn progress(lead_ns: Option<i64>, width: usize, most: u64, look: Appearance) -> Line<'static> {
    let half = width / 2;
    let Some(lead) = lead_ns else {
        return Line::from(format!("{:>half$}", ""));
    };
    let part = lead.unsigned_abs() as f64 / most as f64;
    let full = "#".repeat((part * half as f64).round() as usize);
    let (left, right) = if lead < 0 {
        (full, String::new())
    } else {
        (String::new(), full)
    };
    Line::from(vec![
        Span::styled(format!("{left:>half$}"), look.style(Color::Red)),
        Span::raw("|"),
        Span::styled(right, look.style(Color::Green)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_takes_four_columns() {
        let texts = [0.0, 999.0, 1234.0, 9.96e6, 999.7e6, 12.3e9].map(bytes);
        assert_eq!(texts, ["   0", " 999", "1.2k", " 10M", "1.0G", " 12G"]);
    }

    #[test]
    fn progress_points_where_it_is() {
        let plain = Appearance {
            color: false,
            unicode: false,
        };
        let bar = |lead| progress(Some(lead), 9, 100, plain).to_string();
        assert_eq!(bar(-100), "####|");
        assert_eq!(bar(50), "    |##");
        assert_eq!(bar(0), "    |");
        assert!(progress(None, 9, 100, plain).to_string().trim().is_empty());
    }
}
