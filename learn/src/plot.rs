// SPDX-License-Identifier: GPL-2.0-or-later
//! The report: a picture of how good a model is.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use hetero_core::ml::boosting::TrainingError;
use hetero_core::ml::model::{Classifier, Model, Speedup};
use hetero_core::ml::validate::HeldOutSpeedups;

const SIZE: (u32, u32) = (1200, 420);
const BLUE: RGBColor = RGBColor(31, 119, 180);
const ORANGE: RGBColor = RGBColor(214, 98, 10);
const GREY: RGBColor = RGBColor(120, 120, 120);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws, as SVG: for each estimate of SF what is and what was said, the learning curve and what
/// features are worth; for the classifier its confusion matrix and the same.
///
/// # Errors
/// None but of the drawing itself.
pub fn draw(model: &Model, found: &[HeldOutSpeedups]) -> Result<String> {
    let panels = model.speedup.len() + usize::from(model.classifier.is_some());
    let mut text = String::new();
    {
        let size = (SIZE.0, 40 + SIZE.1 * panels as u32);
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        root.fill(&WHITE).map_err(drawing)?;
        let name = model
            .machine
            .as_ref()
            .map_or("a machine without a name", |m| &m.name);
        let title = format!(
            "{name}: {} programs, on those not learnt from",
            model.data.programs.len()
        );
        let root = root.titled(&title, ("sans-serif", 22)).map_err(drawing)?;
        let rows = root.split_evenly((panels, 1));
        for ((speedup, found), row) in model.speedup.iter().zip(found).zip(&rows) {
            let cells = row.split_evenly((1, 3));
            scatter(&cells[0], speedup, found)?;
            let unit = match speedup.trees.inverse {
                true => "mean absolute error of 1 / SF",
                false => "mean absolute error of SF",
            };
            curve(&cells[1], &speedup.curve, unit, speedup.trees.trees.len())?;
            let names = speedup
                .trees
                .features
                .iter()
                .map(|feature| feature.name.as_str());
            bars(
                &cells[2],
                "What features are worth",
                names,
                &speedup.importances,
            )?;
        }
        if let (Some(classifier), Some(row)) = (&model.classifier, rows.last()) {
            let cells = row.split_evenly((1, 3));
            matrix(&cells[0], classifier)?;
            let taken = classifier.trees.trees.len();
            curve(&cells[1], &classifier.curve, "logistic loss", taken)?;
            let names = classifier
                .trees
                .features
                .iter()
                .map(|feature| feature.name.as_str());
            let title = "What features are worth (a: first, b: second)";
            bars(&cells[2], title, names, &classifier.importances)?;
        }
        root.present().map_err(drawing)?;
    }
    Ok(text)
}

/// The drawing library's errors borrow what it draws on.
fn drawing(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot draw the report: {error}")
}

fn scatter(area: &Area, speedup: &Speedup, found: &HeldOutSpeedups) -> Result<()> {
    let values = found.rows.iter().flat_map(|it| [it.is, it.said]);
    let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(low, high), v| {
        (low.min(v), high.max(v))
    });
    if found.rows.is_empty() {
        return Ok(());
    }
    let margin = 0.05 * (high - low).max(0.1);
    let range = low - margin..high + margin;
    let caption = format!(
        "SF from {}: correlation {:.3}, error {:.3}",
        speedup.core_type, speedup.scores.correlation, speedup.scores.mae
    );
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(44)
        .build_cartesian_2d(range.clone(), range.clone())
        .map_err(drawing)?;
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(TRANSPARENT)
        .x_desc("measured")
        .y_desc("estimated");
    mesh.draw().map_err(drawing)?;
    let diagonal = LineSeries::new([(range.start, range.start), (range.end, range.end)], GREY);
    chart.draw_series(diagonal).map_err(drawing)?;
    let points = found
        .rows
        .iter()
        .map(|it| Circle::new((it.is, it.said), 2, BLUE.mix(0.5).filled()));
    chart.draw_series(points).map_err(drawing)?;
    Ok(())
}

fn curve(area: &Area, steps: &[TrainingError], unit: &str, taken: usize) -> Result<()> {
    let losses = steps
        .iter()
        .flat_map(|step| [Some(step.learnt), step.held_out])
        .flatten();
    let most = losses.fold(0.0, f64::max);
    if steps.len() < 2 || most <= 0.0 {
        return Ok(());
    }
    let caption = format!("Learning curve; trees taken: {taken}");
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(0..steps.len() - 1, 0.0..most * 1.05)
        .map_err(drawing)?;
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(TRANSPARENT)
        .x_desc("trees")
        .y_desc(unit);
    mesh.draw().map_err(drawing)?;
    let (at, top) = (taken.min(steps.len() - 1), most * 1.05);
    chart
        .draw_series(LineSeries::new([(at, 0.0), (at, top)], GREY))
        .map_err(drawing)?;
    let learnt = steps.iter().map(|step| step.learnt).enumerate();
    let held = steps.iter().filter_map(|step| step.held_out).enumerate();
    let series = [
        (learnt.collect::<Vec<_>>(), BLUE, "learnt from"),
        (held.collect(), ORANGE, "not learnt from"),
    ];
    for (points, color, label) in series {
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)))
            .map_err(drawing)?
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
    }
    let mut legend = chart.configure_series_labels();
    legend
        .position(SeriesLabelPosition::LowerLeft)
        .border_style(GREY)
        .background_style(WHITE)
        .draw()
        .map_err(drawing)
}

fn bars<'n>(
    area: &Area,
    title: &str,
    names: impl Iterator<Item = &'n str>,
    importances: &[f64],
) -> Result<()> {
    let mut bars: Vec<(&str, f64)> = names.zip(importances.iter().copied()).collect();
    bars.sort_by(|a, b| b.1.total_cmp(&a.1));
    bars.truncate(14);
    let text = |size: u32| ("sans-serif", size).into_font().color(&BLACK);
    area.draw(&Text::new(title.to_string(), (20, 14), text(16)))
        .map_err(drawing)?;
    let (width, height) = area.dim_in_pixel();
    let step = ((height as i32 - 60) / bars.len().max(1) as i32).min(26);
    let most = bars.first().map_or(1.0, |bar| bar.1.max(1e-9));
    for (n, (name, share)) in bars.iter().enumerate() {
        let y = 44 + n as i32 * step;
        let length = (f64::from(width as i32 - 210) * share / most) as i32;
        let middle = y + (step - 6 - 13) / 2;
        area.draw(&Text::new(name.to_string(), (20, middle), text(13)))
            .map_err(drawing)?;
        let bar = Rectangle::new(
            [(150, y), (150 + length, y + step - 6)],
            BLUE.mix(0.7).filled(),
        );
        area.draw(&bar).map_err(drawing)?;
        let percent = format!("{:.0}%", 100.0 * share);
        area.draw(&Text::new(percent, (156 + length, middle), text(13)))
            .map_err(drawing)?;
    }
    Ok(())
}

fn matrix(area: &Area, classifier: &Classifier) -> Result<()> {
    let scores = &classifier.scores;
    let text = |size: u32| ("sans-serif", size).into_font().color(&BLACK);
    let title = format!(
        "Which of two gains more: {:.1}% right",
        100.0 * scores.accuracy()
    );
    area.draw(&Text::new(title, (20, 14), text(16)))
        .map_err(drawing)?;
    let cells = [
        (0, 0, scores.true_yes, true),
        (1, 0, scores.false_no, false),
        (0, 1, scores.false_yes, false),
        (1, 1, scores.true_no, true),
    ];
    for (column, row, number, right) in cells {
        let (x, y) = (120 + 120 * column, 90 + 90 * row);
        let color = if right {
            BLUE.mix(0.35)
        } else {
            ORANGE.mix(0.35)
        };
        area.draw(&Rectangle::new([(x, y), (x + 114, y + 84)], color.filled()))
            .map_err(drawing)?;
        area.draw(&Text::new(number.to_string(), (x + 34, y + 32), text(18)))
            .map_err(drawing)?;
    }
    for (label, at) in [
        ("said: first", (130, 64)),
        ("said: second", (250, 64)),
        ("is: first", (20, 124)),
        ("is: second", (20, 214)),
    ] {
        area.draw(&Text::new(label, at, text(14)))
            .map_err(drawing)?;
    }
    let rest = format!(
        "precision {:.3}, recall {:.3}, F1 {:.3}; by the estimated SF {:.1}% right",
        scores.precision(),
        scores.recall(),
        scores.f1(),
        100.0 * classifier.by_speedup.accuracy()
    );
    area.draw(&Text::new(rest, (20, 300), text(13)))
        .map_err(drawing)
}
