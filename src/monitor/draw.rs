// SPDX-License-Identifier: GPL-2.0-only
//! How the monitor looks: pure, state in and a frame out.

mod beside;
mod cpus;
mod curve;
mod energy;
mod goals;
mod threads;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Clear, Paragraph};

use super::app::{App, Screen};
use super::goals::summary;
use super::keys;
use crate::stats::live::Live;

/// Less than this cannot be read.
const LEAST: (u16, u16) = (40, 10);

/// Lines that the last words may take.
const FOOTER: usize = 5;

/// What the numbers above mean.
const NUMBERS: [&str; 5] = [
    "unfairness   greatest slowdown over the least; 1 is even",
    "throughput   of all threads; 1 is one alone on the fastest type",
    "ASP          speedup over running all on the slowest type, summed up",
    "NWC          times that a thread was measured without contention",
    "forced       swaps though neither gains; doubted counts are not used",
];

/// What the terminal can do, and what the user wants of it.
#[derive(Clone, Copy, Debug)]
pub struct Appearance {
    /// Colours may be used.
    pub color: bool,
    /// Letters beyond ASCII may be used.
    pub unicode: bool,
}

impl Appearance {
    /// As the environment says: <https://no-color.org>, and the locale.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
        let locale = locale.unwrap_or_default().to_lowercase();
        Self {
            color: set("NO_COLOR").is_none(),
            unicode: locale.contains("utf-8") || locale.contains("utf8"),
        }
    }

    /// Where there are no colours, what matters stands out otherwise or not at all.
    fn style(self, color: Color) -> Style {
        if self.color {
            Style::new().fg(color)
        } else {
            Style::new()
        }
    }

    fn warning(self) -> Style {
        self.style(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// Of a core type: the fastest stands out.
    fn core_type(self, rank: usize) -> Style {
        const COLORS: [Color; 4] = [Color::Cyan, Color::Yellow, Color::Magenta, Color::Blue];
        self.style(COLORS[rank.min(COLORS.len() - 1)])
    }

    fn heading(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}

/// Text cut and filled up to so many columns: letters may take two.
fn fit(text: &str, width: usize) -> String {
    let (mut out, mut used) = (String::new(), 0);
    for letter in text.chars() {
        let takes = Span::raw(letter.to_string()).width();
        if used + takes > width {
            break;
        }
        out.push(letter);
        used += takes;
    }
    out + &" ".repeat(width - used)
}

/// Draws everything.
pub fn draw(frame: &mut Frame, app: &App, look: Appearance) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let (width, height) = LEAST;
        let text = format!("too small: {width}x{height} at the least");
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let nr_rows = app.live.as_ref().map_or(0, |live| {
        cpus::rows(live, area.width, usize::from(area.height / 3)).len()
    });
    let footer_lines = footer(app, look, area.width);
    let is_story = matches!(app.view, Screen::Story(..));
    let goals_line = app
        .live
        .as_ref()
        .and_then(|live| summary(&live.goals, live.advised));
    let power = app
        .live
        .as_ref()
        .and_then(|live| curve::power(app, live, area.width, look));
    let [
        title,
        curves,
        power_area,
        events,
        goals_area,
        above,
        below,
        footer,
    ] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(u16::from(power.is_some())),
        Constraint::Length(1),
        Constraint::Length(u16::from(goals_line.is_some())),
        Constraint::Length(if is_story { 0 } else { nr_rows as u16 }),
        Constraint::Min(0),
        Constraint::Length(footer_lines.len() as u16),
    ])
    .areas(area);
    draw_title(frame, title, app, look);
    if let Some(live) = &app.live {
        frame.render_widget(curve::line(app, live, curves.width, look), curves);
        if let Some(power) = power {
            frame.render_widget(power, power_area);
        }
        frame.render_widget(events_line(live, look), events);
        if let Some(text) = goals_line {
            let style = match live.goals.missed {
                0 => Style::new(),
                _ => look.warning(),
            };
            frame.render_widget(Line::styled(format!(" {text}"), style), goals_area);
        }
        if !is_story {
            let rows = cpus::rows(live, above.width, usize::from(area.height / 3));
            let lines = rows.iter().map(|row| cpus::line(live, row, look));
            frame.render_widget(Text::from_iter(lines), above);
        }
    }
    match app.view {
        Screen::Story(tid, first) => draw_story(frame, below, app, (tid, first), look),
        Screen::Goals(first) => goals::draw(frame, below, app, first, look),
        Screen::Beside(first) => beside::draw(frame, below, app, first, look),
        Screen::Energy(first) => energy::draw(frame, below, app, first, look),
        _ => threads::draw(frame, below, app, look),
    }
    frame.render_widget(Text::from(footer_lines), footer);
    match app.view {
        Screen::Policies(index) => draw_policies(frame, below, app, index, look),
        Screen::Help => draw_help(frame, area, look),
        _ => {}
    }
}

fn draw_title(frame: &mut Frame, area: Rect, app: &App, look: Appearance) {
    let mut left = vec![Span::raw(" scx_hetero").style(Modifier::BOLD)];
    let mut right = String::new();
    if let Some(live) = &app.live {
        left.push(Span::raw(format!("  policy {}", live.policy)));
        if let Some(fairness) = live.fairness {
            left.push(Span::raw(format!(", fairness {fairness}")));
        }
        if live.saves {
            left.push(Span::raw(", saving"));
        }
        right = format!("{} threads, {} runnable ", live.tasks, live.runnable);
    } else if app.gone.is_none() {
        right = "asking ... ".into();
    }
    if app.paused {
        left.push("  ".into());
        left.push(Span::raw(" PAUSED ").style(look.heading()));
    }
    if app.gone.is_some() {
        left.push("  ".into());
        left.push(Span::raw(" NO ANSWER ").style(look.warning().add_modifier(Modifier::REVERSED)));
    }
    frame.render_widget(Line::from(left), area);
    let width = (right.len() as u16).min(area.width);
    let corner = Rect {
        x: area.right() - width,
        width,
        ..area
    };
    frame.render_widget(Line::from(right), corner);
}

/// What was done and what was lost.
fn events_line(live: &Live, look: Appearance) -> Line<'static> {
    let (now, all) = (&live.counts, &live.total_counts);
    let seconds = (live.elapsed_ns as f64 / 1e9).max(f64::MIN_POSITIVE);
    let mut spans = vec![Span::raw(format!(
        " NWC {}, learned {}  swapped {}, forced {}",
        all.nwc_episodes, all.nwc_learned, all.swapped, all.forced_swaps
    ))];
    if all.samples == 0 {
        spans.push("  no counters".into());
        return spans.into();
    }
    let per_second = now.samples as f64 / seconds;
    let doubted = 100.0 * now.stretches_discarded as f64 / now.stretches.max(1) as f64;
    spans.push(format!("  samples {per_second:.0}/s, ").into());
    let parts = [
        (format!("lost {}", all.samples_lost), all.samples_lost > 0),
        (format!("doubted {doubted:.1}%"), doubted >= 5.0),
    ];
    for (index, (text, is_much)) in parts.into_iter().enumerate() {
        if index > 0 {
            spans.push(", ".into());
        }
        let style = if is_much {
            look.warning()
        } else {
            Style::new()
        };
        spans.push(Span::styled(text, style));
    }
    spans.into()
}

fn draw_story(
    frame: &mut Frame,
    area: Rect,
    app: &App,
    (tid, first): (u32, usize),
    look: Appearance,
) {
    let mark = if look.unicode { '█' } else { '#' };
    let Some(lines) = app.story_lines(mark) else {
        frame.render_widget(Line::from(format!(" asking about {tid} ...")), area);
        return;
    };
    let lines = match lines {
        lines if lines.is_empty() => vec![format!("{tid} has ended")],
        lines => lines,
    };
    let lines = lines.into_iter().skip(first).enumerate();
    let text = lines.map(|(index, line)| {
        let line = Line::from(format!(" {line}"));
        if index == 0 && first == 0 {
            line.style(look.heading())
        } else {
            line
        }
    });
    frame.render_widget(Text::from_iter(text), area);
}

/// The last line; of what is longer, as many as it takes up to [`FOOTER`].
fn footer(app: &App, look: Appearance, width: u16) -> Vec<Line<'static>> {
    let (text, style) = if let Some(why) = &app.gone {
        (format!("{why}; trying again ... (q quits)"), look.warning())
    } else if let Some(said) = &app.said {
        match said {
            Ok(text) => (format!("now {text}"), look.style(Color::Green)),
            Err(why) => (format!("refused: {why}"), look.warning()),
        }
    } else if app.view == Screen::Filter {
        let hint = keys::hint(&app.view);
        (format!("filter: {}_   {hint}", app.filter), Style::new())
    } else {
        (keys::hint(&app.view).to_string(), Style::new())
    };
    let width = usize::from(width);
    let mut lines = vec![String::from(" ")];
    for word in text.split_inclusive(' ') {
        let line = lines.len() - 1;
        let is_full = lines[line].chars().count() + word.trim_end().chars().count() > width;
        if is_full && line + 1 < FOOTER && lines[line].len() > 1 {
            lines.push(format!(" {word}"));
        } else {
            lines[line] += word;
        }
    }
    let styled = |line| Line::styled(line, style);
    lines.into_iter().map(styled).collect()
}

/// A box over what is there, with a heading.
fn draw_box(frame: &mut Frame, around: Rect, heading: &str, lines: Vec<Line>, look: Appearance) {
    let widest = lines.iter().map(Line::width).max().unwrap_or(0);
    let width = (widest.max(heading.len()) as u16 + 4).min(around.width);
    let height = (lines.len() as u16 + 2).min(around.height);
    let area = Rect {
        x: around.x + (around.width - width) / 2,
        y: around.y + (around.height - height) / 2,
        width,
        height,
    };
    let wide = usize::from(width);
    let mut text = vec![Line::styled(format!("  {heading:<wide$}"), look.heading())];
    text.extend(lines.into_iter().map(|line| {
        let mut spans = vec![Span::raw("  ")];
        let style = line.style;
        spans.extend(line.spans);
        Line::from(spans).style(style)
    }));
    text.push(Line::styled(" ".repeat(wide), look.heading()));
    text.truncate(usize::from(height));
    frame.render_widget(Clear, area);
    frame.render_widget(Text::from(text), area);
}

fn draw_policies(frame: &mut Frame, area: Rect, app: &App, index: usize, look: Appearance) {
    let Some(live) = &app.live else { return };
    let lines = live.policies.iter().enumerate().map(|(place, name)| {
        let at = if place == index { ">" } else { " " };
        let force = if *name == live.policy {
            " (in force)"
        } else {
            ""
        };
        let line = Line::from(format!("{at} {name}{force}"));
        if place == index {
            line.style(Modifier::BOLD)
        } else {
            line
        }
    });
    draw_box(frame, area, "Switch the policy", lines.collect(), look);
}

fn draw_help(frame: &mut Frame, area: Rect, look: Appearance) {
    let mut lines: Vec<Line> = keys::KEYS
        .iter()
        .map(|(key, what)| format!("{key:<14}{what}").into())
        .collect();
    lines.push("".into());
    lines.extend(NUMBERS.map(Line::from));
    lines.extend(threads::COLUMNS.map(Line::from));
    draw_box(frame, area, "Keys, and columns", lines, look);
}

#[cfg(test)]
mod tests;
