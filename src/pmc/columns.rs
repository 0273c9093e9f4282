// SPDX-License-Identifier: GPL-2.0-only
//! Lines of fixed columns, which can be written one by one, and numbers short enough for them.

use std::io::{self, Write};

use crate::pmu::{Event, Meaning};

/// On which side a column's cells stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A column.
#[derive(Clone, Debug)]
pub(super) struct Column {
    header: Vec<String>,
    width: usize,
    align: Align,
}

impl Column {
    /// At least `width` wide. A header of several lines stands above one another.
    pub(super) fn new(header: &str, width: usize, align: Align) -> Self {
        let header: Vec<String> = header.lines().map(String::from).collect();
        let longest = header.iter().map(|line| line.chars().count()).max();
        Self {
            width: width.max(longest.unwrap_or(0)),
            header,
            align,
        }
    }

    /// Of an event's counts, with room for a mark where they are `scaled`.
    pub(super) fn event(event: &Event, scaled: bool) -> Self {
        let header = match event {
            Event::Meaning(Meaning::Instructions) => "instr.".to_string(),
            Event::Meaning(Meaning::LlcReferences) => "llc-\nrefs".to_string(),
            Event::Meaning(meaning) => meaning.name().replace('-', "-\n"),
            Event::Raw(text) => text.clone(),
        };
        Self::new(&header, if scaled { 12 } else { 6 }, Align::Right)
    }
}

/// Writes lines.
#[derive(Clone, Debug)]
pub(super) struct LineWriter {
    columns: Vec<Column>,
}

impl LineWriter {
    /// Lines of these columns.
    pub(super) fn new(columns: Vec<Column>) -> Self {
        Self { columns }
    }

    /// The columns' headers, standing on the line below.
    pub(super) fn header(&self, out: &mut dyn Write) -> io::Result<()> {
        let height = self.columns.iter().map(|c| c.header.len()).max();
        for line in (0..height.unwrap_or(0)).rev() {
            let cell = |column: &Column| {
                let from_below = column.header.iter().rev().nth(line);
                from_below.cloned().unwrap_or_default()
            };
            self.line(out, &self.columns.iter().map(cell).collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// A line. Text that is too long for its column is cut, a number is not.
    pub(super) fn line(&self, out: &mut dyn Write, cells: &[String]) -> io::Result<()> {
        let mut text = String::new();
        for (column, cell) in self.columns.iter().zip(cells) {
            if !text.is_empty() {
                text.push(' ');
            }
            let width = column.width;
            match column.align {
                Align::Left => {
                    let cut: String = cell.chars().take(width).collect();
                    text += &format!("{cut:<width$}");
                }
                Align::Right => text += &format!("{cell:>width$}"),
            }
        }
        writeln!(out, "{}", text.trim_end())
    }
}

/// A number in four digits: `1234`, `12.35k`, `1.235G`.
pub(super) fn amount(value: f64) -> String {
    if value < 9999.5 {
        return if value.fract() == 0.0 || value >= 999.95 {
            format!("{value:.0}")
        } else {
            format!("{value:.3}")
        };
    }
    let mut scaled = value;
    for unit in ["k", "M", "G", "T", "P"] {
        scaled /= 1000.0;
        for (limit, decimals) in [(9.9995, 3), (99.995, 2), (999.95, 1)] {
            if scaled < limit {
                return format!("{scaled:.decimals$}{unit}");
            }
        }
    }
    format!("{value:.3e}")
}

/// A number with its unit: `1.235 GHz`.
pub(super) fn quantity(value: f64, unit: &str) -> String {
    let text = amount(value);
    let digits = text.trim_end_matches(char::is_alphabetic);
    format!("{digits} {}{unit}", &text[digits.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_four_digits() {
        let shown = [
            0.0, 7.0, 0.5, 9999.0, 10_000.0, 123_456.0, 999_960.0, 1.2345e9, 5e12,
        ];
        assert_eq!(
            shown.map(amount),
            [
                "0", "7", "0.500", "9999", "10.00k", "123.5k", "1.000M", "1.234G", "5.000T"
            ]
        );
    }

    #[test]
    fn a_unit_takes_the_prefix() {
        assert_eq!(quantity(4.4e9, "Hz"), "4.400 GHz");
        assert_eq!(quantity(55.5, "J"), "55.500 J");
    }

    #[test]
    fn headers_stand_on_the_line_below() {
        let lines = LineWriter::new(vec![
            Column::new("TYPE", 6, Align::Left),
            Column::event(&Meaning::BranchMisses.into(), false),
        ]);
        let mut out = Vec::new();
        lines.header(&mut out).unwrap();
        lines
            .line(&mut out, &["a-long-name".into(), "12".into()])
            .unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "       branch-\nTYPE    misses\na-long      12\n");
    }
}
