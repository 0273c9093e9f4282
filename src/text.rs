// SPDX-License-Identifier: GPL-2.0-only
//! Text for terminals, and moments in words.

use std::time::SystemTime;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Columns of a terminal that everything fits.
pub const WIDTH: usize = 80;

/// A moment as it is written into files, to the second (RFC 3339).
///
/// # Errors
/// It lies beyond the year 9999.
pub fn stamp(time: SystemTime) -> Result<String, time::error::Format> {
    OffsetDateTime::from(time)
        .truncate_to_second()
        .format(&Rfc3339)
}

/// Breaks text between words into lines of at most [`WIDTH`] columns, later ones indented.
pub fn wrap(text: &str) -> String {
    hang(text, 0, 2)
}

/// The same for text that begins in column `first` and goes on in column `indent`.
pub fn hang(text: &str, first: usize, indent: usize) -> String {
    // After a comma too: lists of CPUs can be longer than a line.
    fold(text, first, indent, &[' ', ','])
}

/// The same, but broken at spaces only, for text with numbers like 14,300.
pub fn hang_words(text: &str, first: usize, indent: usize) -> String {
    fold(text, first, indent, &[' '])
}

fn fold(text: &str, first: usize, indent: usize, breaks: &[char]) -> String {
    let (mut wrapped, mut column) = (String::new(), first);
    for word in text.split_inclusive(breaks) {
        if column + word.trim_end().chars().count() > WIDTH {
            wrapped.truncate(wrapped.trim_end().len());
            wrapped += "\n";
            wrapped += &" ".repeat(indent);
            column = indent;
        }
        wrapped += word;
        column += word.chars().count();
    }
    wrapped
}

/// A whole number with its thousands apart: 14,300.
pub fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::from(if number < 0 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_told_apart() {
        let numbers = [0, 999, 14_300, -1_000, 1_234_567];
        let words = numbers.map(grouped);
        assert_eq!(words, ["0", "999", "14,300", "-1,000", "1,234,567"]);
    }

    #[test]
    fn long_text_is_broken_between_words() {
        let wrapped = wrap(&"word ".repeat(40));
        assert!(wrapped.lines().all(|line| line.len() <= WIDTH));
        assert_eq!(wrapped.split_whitespace().count(), 40);
    }
}
