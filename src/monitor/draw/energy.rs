// SPDX-License-Identifier: GPL-2.0-only
//! The view of power over the last minutes.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span, Text};

use super::curve::curve;
use super::{Appearance, fit};
use crate::monitor::app::App;
use crate::monitor::energy::{EnergyHistory, PowerCurve};

/// Where energy is not counted.
const NONE: [&str; 2] = [
    " Nothing is known of energy: there is no sensor, or it was not read twice yet.",
    " 'scx_hetero doctor' says what is missing.",
];

const HEADING: &str = "     PID NAME             WATTS   MEAN  over time, the latest at the right";

/// What stands before a curve takes so many columns.
const LABEL: usize = 40;

/// From line `first` of the programs on.
pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App, first: usize, look: Appearance) {
    let EnergyHistory {
        parts, programs, ..
    } = &app.energy;
    if parts.is_empty() {
        frame.render_widget(Text::from_iter(NONE), area);
        return;
    }
    let wide = usize::from(area.width);
    let most = |curves: &mut dyn Iterator<Item = &PowerCurve>| {
        let means = curves.flat_map(|curve| curve.means().into_iter().flatten());
        means.fold(f64::MIN_POSITIVE, f64::max)
    };
    let top = most(&mut parts.iter().map(|(_, curve)| curve));
    let mut lines = vec![Line::styled(fit(HEADING, wide), look.heading())];
    let types = app.live.as_ref().map_or(0, |live| live.core_types.len());
    for (rank, (name, of)) in parts.iter().enumerate() {
        let style = match rank < types {
            true => look.core_type(rank),
            false => Style::new(),
        };
        if rank < types || of.mean() > 0.0 {
            let label = format!("         {}", fit(name, 15));
            lines.push(line(&label, of, top, style, wide, look));
        }
    }
    let top = most(&mut programs.iter().map(|program| &program.curve));
    for program in programs.iter().skip(first) {
        let label = format!("{:>8} {}", program.pid, fit(&program.name, 15));
        lines.push(line(&label, &program.curve, top, Style::new(), wide, look));
    }
    frame.render_widget(Text::from(lines), area);
}

/// A name, the watts now and on average, and their curve up to `top`.
fn line(
    name: &str,
    of: &PowerCurve,
    top: f64,
    style: Style,
    wide: usize,
    look: Appearance,
) -> Line<'static> {
    let label = format!("{name} {:>6.2} {:>6.2}", of.now, of.mean());
    let drawn = curve(&of.means(), (0.0, top), wide.saturating_sub(LABEL), look);
    Line::from(vec![
        Span::raw(fit(&label, LABEL.min(wide))),
        Span::styled(drawn, style),
    ])
}
