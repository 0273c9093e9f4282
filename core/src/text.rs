// SPDX-License-Identifier: GPL-2.0-or-later
//! Text for terminals, and moments in words.

use std::borrow::Cow;
use std::time::SystemTime;

use serde_json::Value;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Columns of a terminal that everything fits.
pub const WIDTH: usize = 80;

/// A name from elsewhere (a thread's, a file's, another machine's) such that it stays one line and a
/// terminal only shows it: what acts, hides or turns text round is escaped, as `\u{1b}`.
pub fn plain(name: &str) -> Cow<'_, str> {
    escaped(name, |_| false)
}

/// The same for text of several lines, whose ends stay.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c == '\n')
}

fn escaped(text: &str, keep: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(|c| shows(c) || keep(c)) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if shows(c) || keep(c) {
            out.push(c);
        } else {
            out.extend(c.escape_default());
        }
    }
    out.into()
}

/// JSON with every character that does not show escaped: in JSON they stand in strings alone.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    if json.chars().all(|c| shows(c) || c == '\n') {
        return json.into();
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if shows(c) || c == '\n' {
            out.push(c);
        } else {
            let units = c.encode_utf16(&mut [0; 2]).to_vec();
            out.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    out.into()
}

/// Makes all strings of JSON that came from elsewhere [`plain`].
pub(crate) fn make_plain(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(escaped) = plain(text) {
                *text = escaped;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(make_plain),
        Value::Object(fields) => {
            let odd = |(name, _): (&String, &Value)| matches!(plain(name), Cow::Owned(_));
            if fields.iter().any(odd) {
                let all = std::mem::take(fields).into_iter();
                fields.extend(all.map(|(name, value)| (plain(&name).into_owned(), value)));
            }
            fields.values_mut().for_each(make_plain);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether a terminal draws it, and does nothing else. Controls, bidirectional and other format
/// characters are told by the standard library; it leaves letters that have no shape to us.
fn shows(c: char) -> bool {
    match c {
        ' '..='~' => true,
        '\u{34f}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{ffa0}'
        | '\u{e0000}'..='\u{e0fff}' => false,
        // After a letter, as an accent that stands by itself would be escaped.
        _ => ['x', c].iter().collect::<String>().escape_debug().count() == 2,
    }
}

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

/// What `part` is of `whole`, %; nothing of nothing.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        100.0 * part as f64 / whole as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_hides_or_turns_text_round_is_escaped_and_letters_are_not() {
        for (name, shown) in [
            ("\x1b]2;owned\x07", "\\u{1b}]2;owned\\u{7}"),
            ("a\nb\tc\r\0", "a\\nb\\tc\\r\\u{0}"),
            ("\x7f\u{80}\u{9b}31m", "\\u{7f}\\u{80}\\u{9b}31m"),
            (
                "\u{202e}gpj.\u{2066}\u{200f}",
                "\\u{202e}gpj.\\u{2066}\\u{200f}",
            ),
            (
                "a\u{200b}\u{200d}\u{feff}\u{2060}",
                "a\\u{200b}\\u{200d}\\u{feff}\\u{2060}",
            ),
            (
                "\u{2028}\u{ad}\u{e0041}\u{3164}",
                "\\u{2028}\\u{ad}\\u{e0041}\\u{3164}",
            ),
        ] {
            assert_eq!(plain(name), shown);
            assert_eq!(plain(&plain(name)), shown, "once is enough");
        }
        for name in [
            "kworker/0:1-events",
            "x\\x2d'\"",
            "名前",
            "żółw",
            "e\u{301}",
            "हिन्दी",
            "🦀",
        ] {
            assert!(matches!(plain(name), Cow::Borrowed(_)), "{name}");
        }
        assert_eq!(printable("one\ntwo\x1b[m\n"), "one\ntwo\\u{1b}[m\n");
    }

    #[test]
    fn json_of_ours_stays_json() {
        let text = "a\u{9b}b\u{7f}\u{e0041}\x1b";
        let json = serde_json::to_string_pretty(&[text]).unwrap();
        let shown = printable_json(&json);
        assert!(shown.is_ascii() && shown.chars().all(|c| shows(c) || c == '\n'));
        assert_eq!(serde_json::from_str::<[String; 1]>(&shown).unwrap(), [text]);
    }

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
