// SPDX-License-Identifier: GPL-2.0-only
//! Unfairness and throughput over time, in one line, and power in another.

use std::collections::VecDeque;

use ratatui::style::Color;
use ratatui::text::{Line, Span};

use super::Appearance;
use crate::monitor::app::App;
use crate::stats::live::Live;

/// Levels of a curve, the lowest first.
const UNICODE: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII: [char; 8] = ['_', '.', ',', '-', '~', '=', '+', '#'];

/// An unfairness of this or less is the lower half of the curve.
const FAIR: f64 = 2.0;

pub(super) fn line(app: &App, live: &Live, width: u16, look: Appearance) -> Line<'static> {
    let number = |value: Option<f64>| value.map_or_else(|| "   -".into(), |v| format!("{v:.2}"));
    let power = live.watts.map(|watts| format!("  {watts:.1} W"));
    let asp = format!("  ASP {}{}", number(live.asp), power.unwrap_or_default());
    let unfairness = format!(" unfairness {} ", number(live.unfairness));
    let stp = format!("  throughput {} ", number(live.stp));
    let left = usize::from(width).saturating_sub(unfairness.len() + stp.len() + asp.len() + 1);
    let top = app
        .unfairness
        .iter()
        .flatten()
        .copied()
        .fold(FAIR, f64::max);
    let unfair = curve(&app.unfairness, (1.0, top), left / 2, look);
    let top = app
        .stp
        .iter()
        .flatten()
        .copied()
        .fold(f64::MIN_POSITIVE, f64::max);
    let through = curve(&app.stp, (0.0, top), left / 2, look);
    Line::from(vec![
        Span::raw(unfairness),
        Span::styled(unfair, look.style(Color::Red)),
        Span::raw(stp),
        Span::styled(through, look.style(Color::Green)),
        Span::raw(asp),
    ])
}

/// Power by core type over time, and of what is beside; `None` where energy is not counted.
pub(super) fn power(app: &App, live: &Live, width: u16, look: Appearance) -> Option<Line<'static>> {
    if app.power.is_empty() || live.energy.is_empty() {
        return None;
    }
    let number = |watts: Option<f64>| watts.map_or_else(|| "-".into(), |w| format!("{w:.1}"));
    let (types, beside) = live.energy.split_at(app.power.len().min(live.energy.len()));
    let labels: Vec<String> = types
        .iter()
        .map(|part| format!("  {} {:>4} ", part.part, number(part.watts)))
        .collect();
    let beside = beside
        .iter()
        .filter(|part| part.watts.is_some_and(|watts| watts >= 0.05));
    let beside: String = beside
        .map(|part| format!("  {} {}", part.part, number(part.watts)))
        .collect();
    const NAME: &str = " watts";
    let taken: usize = labels.iter().map(String::len).sum();
    let left = usize::from(width).saturating_sub(NAME.len() + taken + beside.len() + 1);
    let top = app.power.iter().flatten().flatten().copied();
    let top = top.fold(f64::MIN_POSITIVE, f64::max);
    let mut spans = vec![Span::raw(NAME)];
    for (rank, (label, values)) in labels.into_iter().zip(&app.power).enumerate() {
        let drawn = curve(values, (0.0, top), left / app.power.len(), look);
        spans.push(Span::raw(label));
        spans.push(Span::styled(drawn, look.core_type(rank)));
    }
    spans.push(Span::raw(beside));
    Some(spans.into())
}

/// The last values as one letter each, from the left, filled up to `width`; what is not known is a gap.
pub(super) fn curve(
    values: &VecDeque<Option<f64>>,
    (low, high): (f64, f64),
    width: usize,
    look: Appearance,
) -> String {
    let levels = if look.unicode { UNICODE } else { ASCII };
    let skipped = values.len().saturating_sub(width);
    let shown = values.iter().skip(skipped).map(|value| {
        let Some(value) = value else {
            return ' ';
        };
        let part = (value - low) / (high - low).max(f64::MIN_POSITIVE);
        let level = (part.clamp(0.0, 1.0) * (levels.len() - 1) as f64).round();
        levels[level as usize]
    });
    let text: String = shown.collect();
    format!("{text:<width$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_shows_the_latest_values_between_its_ends() {
        let ascii = Appearance {
            color: false,
            unicode: false,
        };
        let values = VecDeque::from([Some(9.0), None, Some(1.0), Some(1.5), Some(2.0)]);
        assert_eq!(curve(&values, (1.0, 2.0), 3, ascii), "_~#");
        assert_eq!(curve(&values, (1.0, 2.0), 6, ascii), "# _~# ");
    }
}
