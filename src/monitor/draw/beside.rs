// SPDX-License-Identifier: GPL-2.0-only
//! The view of which program slows down which.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Text};

use super::{Appearance, fit};
use crate::monitor::app::App;
use crate::monitor::beside::lines;

/// Where nothing is.
const NONE: [&str; 3] = [
    " No program slows another down by 5 % or more, as far as is known.",
    " Which kinds of it this machine's counters tell, says 'scx_hetero doctor';",
    " how, docs/interference.md.",
];

/// From row `first` on.
pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App, first: usize, look: Appearance) {
    let Some(live) = &app.live else { return };
    let wide = usize::from(area.width);
    let told = lines(live, wide.saturating_sub(1));
    if told.rows.is_empty() {
        frame.render_widget(Text::from_iter(NONE), area);
        return;
    }
    let heading = Line::styled(fit(&format!(" {}", told.heading), wide), look.heading());
    let rows = told.rows.iter().skip(first);
    let rows = rows.map(|row| Line::from(fit(&format!(" {row}"), wide)));
    frame.render_widget(Text::from_iter(std::iter::once(heading).chain(rows)), area);
}
