// SPDX-License-Identifier: GPL-2.0-only
//! What charts have in common: text, lines, and the numbers beside them.

use svg::node::element::{Line, Text};

/// Lines of the grid, about.
const STEPS: f64 = 6.0;

/// The lines of the grid: multiples of a round number, from below `low` to above `high`.
pub(crate) fn grid(low: f64, high: f64) -> Vec<f64> {
    let (low, high) = (low.min(0.0), high.max(1e-9));
    let rough = (high - low) / STEPS;
    let decade = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
    let step = steps.into_iter().find(|&step| step >= rough * 0.999);
    let step = step.unwrap_or(10.0 * decade);
    let (first, last) = ((low / step).floor() as i64, (high / step).ceil() as i64);
    (first..=last).map(|line| line as f64 * step).collect()
}

/// Text that begins, is centred or ends at a point.
pub(crate) fn text(content: &str, x: f64, y: f64, anchor: &str) -> Text {
    Text::new(content)
        .set("x", x)
        .set("y", y)
        .set("text-anchor", anchor)
}

/// A line of a class.
pub(crate) fn line(x1: f64, y1: f64, x2: f64, y2: f64, class: &str) -> Line {
    Line::new()
        .set("x1", x1)
        .set("y1", y1)
        .set("x2", x2)
        .set("y2", y2)
        .set("class", class)
}

/// Without what rounding has left behind.
pub(crate) fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_has_round_numbers_and_zero() {
        assert_eq!(grid(0.0, 5.3), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(grid(-0.3, 1.1), [-0.5, 0.0, 0.5, 1.0, 1.5]);
        assert!(grid(0.0, 0.0).len() > 1);
        assert_eq!(
            (number(0.30000000000000004), number(20.0)),
            ("0.3".into(), "20".into())
        );
    }
}
