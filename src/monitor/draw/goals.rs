// SPDX-License-Identifier: GPL-2.0-only
//! The view of programs with goals.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Text};

use super::{Appearance, fit};
use crate::monitor::app::App;
use crate::monitor::goals::{HEADING, lines};

/// Where no program has a session.
const NONE: [&str; 3] = [
    " No program reports beats.",
    " 'scx_hetero goal run --rate 30 -- COMMAND' gives one a goal, and so do programs",
    " themselves, by libscx_hetero_heartbeat: docs/goals.md.",
];

/// From line `first` on.
pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App, first: usize, look: Appearance) {
    let Some(goals) = &app.goals else {
        frame.render_widget(Line::from(" asking for goals ..."), area);
        return;
    };
    if goals.is_empty() {
        frame.render_widget(Text::from_iter(NONE), area);
        return;
    }
    let wide = usize::from(area.width);
    let heading = Line::styled(fit(&format!(" {HEADING}"), wide), look.heading());
    let lines = lines(goals).into_iter().skip(first).map(|(text, missed)| {
        let style = match missed {
            true => look.style(Color::Red),
            false => Style::new(),
        };
        Line::styled(fit(&format!(" {text}"), wide), style)
    });
    frame.render_widget(Text::from_iter(std::iter::once(heading).chain(lines)), area);
}
