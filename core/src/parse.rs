// SPDX-License-Identifier: GPL-2.0-or-later
//! Files from elsewhere, and in words which line of one is wrong and what has to be there.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use anyhow::{Context, Error, Result, anyhow, bail};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::error::Category;

use crate::text::make_plain;

/// Parses JSON; its strings are [`plain`](crate::text::plain) from then on.
///
/// # Errors
/// Which line is wrong, and what has to be there.
pub fn json<T: DeserializeOwned>(text: &str) -> Result<T> {
    json_line(text, 1)
}

/// The same of one line of a file of many, by its number.
///
/// # Errors
/// Which line is wrong, and what has to be there.
pub fn json_line<T: DeserializeOwned>(text: &str, line: usize) -> Result<T> {
    typed(untyped(text, line)?, text, line)
}

/// The same of a file that begins with an object whose "schema" is a version that we know.
///
/// # Errors
/// It is of another version, or none of ours; or which line is wrong, and what has to be there.
pub fn json_of<T: DeserializeOwned>(text: &str, known: RangeInclusive<u32>) -> Result<T> {
    let value = untyped(text, 1)?;
    let schema = value.get("schema").and_then(Value::as_u64);
    let schema = schema.context("it is of another kind: it has no \"schema\" with a number")?;
    let (oldest, newest) = (u64::from(*known.start()), u64::from(*known.end()));
    if schema > newest {
        bail!(
            "a later version has written it: its schema is {schema}, and this one reads {newest}"
        );
    }
    if schema < oldest {
        bail!(
            "an earlier version has written it: its schema is {schema}, and this one reads {oldest}"
        );
    }
    typed(value, text, 1)
}

fn untyped(text: &str, line: usize) -> Result<Value> {
    let mut value = serde_json::from_str(text).map_err(|error| of_json(&error, line))?;
    make_plain(&mut value);
    Ok(value)
}

fn typed<T: DeserializeOwned>(value: Value, text: &str, line: usize) -> Result<T> {
    serde_json::from_value(value).map_err(|error| {
        // Values have forgotten where they stood.
        let there = serde_json::from_str::<T>(text).err();
        of_json(&there.unwrap_or(error), line)
    })
}

/// What is wrong with a table of comma-separated values.
pub fn of_csv(error: csv::Error) -> Error {
    let line = error.position().map_or(1, csv::Position::line);
    let said = error.to_string();
    match error.into_kind() {
        csv::ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => anyhow!("line {line}: {expected_len} cells are expected, not {len}"),
        csv::ErrorKind::Deserialize { err, .. } => {
            let column = err.field().map(|field| format!(", cell {}", field + 1));
            let column = column.unwrap_or_default();
            anyhow!("line {line}{column}: {}", expected(&err.kind().to_string()))
        }
        _ => anyhow!("line {line}: {said}"),
    }
}

fn of_json(error: &serde_json::Error, first: usize) -> Error {
    let (line, column) = (error.line(), error.column());
    let said = error.to_string();
    let said = said
        .rsplit_once(" at line ")
        .map_or(&*said, |(said, _)| said);
    // One that comes of a value has no line.
    let at = match line {
        0 => format!("line {first}"),
        _ => format!("line {}, column {column}", line + first - 1),
    };
    match error.classify() {
        Category::Eof if column == 0 && line <= 1 => anyhow!("it is empty"),
        Category::Eof => anyhow!(
            "it ends in the middle, in line {}: it was cut short",
            line + first - 1
        ),
        Category::Syntax | Category::Io => anyhow!("{at}: it is damaged, or no JSON: {said}"),
        Category::Data => anyhow!("{at}: {}", expected(said)),
    }
}

/// What serde says of a value, in the words of those who write files: of objects, lists and numbers, not of Rust's types.
pub fn expected(said: &str) -> Cow<'_, str> {
    let wrong = ["invalid type: ", "invalid value: ", "invalid length "];
    let found = wrong.iter().find_map(|wrong| said.strip_prefix(wrong));
    let Some((found, wanted)) = found.and_then(|rest| rest.split_once(", expected ")) else {
        return match said {
            "invalid float literal" | "invalid digit found in string" => "it is no number".into(),
            _ if said.starts_with("data did not match any variant") => {
                "it is damaged: nothing that may stand here looks like that".into()
            }
            _ => said.into(),
        };
    };
    let found = match found.split_once(' ') {
        Some(("integer" | "floating" | "boolean" | "string", _)) => {
            let quoted = found.find(['`', '"']).map_or(found, |at| &found[at..]);
            quoted.trim_matches('`')
        }
        // A length is that of a list.
        _ if said.starts_with(wrong[2]) => &format!("a list of {found}"),
        _ => in_words(found),
    };
    let wanted = in_words(wanted);
    format!("expected {wanted}, not {found}").into()
}

/// A type by serde's name.
fn in_words(name: &str) -> &str {
    match name {
        "map" | "a map" => "an object",
        "sequence" | "a sequence" => "a list",
        "unit value" | "unit" | "null" => "null",
        "a string" | "str" | "string" => "text",
        "a boolean" => "true or false",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        _ if name.starts_with("struct ") || name.contains(" enum ") => "an object",
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Inner {
        #[expect(dead_code)]
        name: String,
        #[expect(dead_code)]
        at: [f64; 2],
    }

    #[derive(Debug, Deserialize)]
    struct Outer {
        #[expect(dead_code)]
        schema: u32,
        #[expect(dead_code)]
        all: Vec<Inner>,
    }

    #[test]
    fn a_wrong_line_is_named_and_what_has_to_be_there() {
        for (text, said) in [
            ("", "it is empty"),
            (
                "{\"schema\": 2,\n\"all\": [",
                "it ends in the middle, in line 2: it was cut short",
            ),
            (
                "{\"schema\": 2,\n\"all\" [",
                "line 2, column 7: it is damaged, or no JSON: expected `:`",
            ),
            (
                "{\"schema\": 2,\n\"all\": [[]]}",
                "line 2, column 10: expected an object, not a list of 0",
            ),
            (
                "[1]",
                "it is of another kind: it has no \"schema\" with a number",
            ),
            (
                "{\"schema\": 7}",
                "a later version has written it: its schema is 7, and this one reads 2",
            ),
            (
                "{\"schema\": 0}",
                "an earlier version has written it: its schema is 0, and this one reads 1",
            ),
            (
                "{\"schema\": 2,\n\"all\": {}}",
                "line 2, column 7: expected a list, not an object",
            ),
            ("{\"schema\": 2}", "line 1, column 13: missing field `all`"),
            (
                "{\"schema\": 2,\n\"all\": [{\"name\": 3}]}",
                "line 2, column 18: expected text, not 3",
            ),
            (
                "{\"schema\": 2,\n\"all\": [\"x\"]}",
                "line 2, column 11: expected an object, not \"x\"",
            ),
            (
                "{\"schema\": 2, \"all\": [{\"name\": \"a\", \"at\": [1, null]}]}",
                "line 1, column 50: expected a number, not null",
            ),
        ] {
            let error = json_of::<Outer>(text, 1..=2).unwrap_err();
            assert_eq!(error.to_string(), said, "{text}");
        }
        let error = json_line::<Outer>("[]", 7).unwrap_err().to_string();
        assert!(error.starts_with("line 7"), "{error}");
    }

    #[test]
    fn a_wrong_line_of_a_table_is_named() {
        let read = |text: &str| {
            let mut reader = csv::Reader::from_reader(text.as_bytes());
            let row = reader.deserialize::<(String, f64)>().next().unwrap();
            of_csv(row.unwrap_err()).to_string()
        };
        assert_eq!(read("a,b\nx\n"), "line 2: 2 cells are expected, not 1");
        assert_eq!(read("a,b\nx,y\n"), "line 2, cell 2: it is no number");
    }

    #[test]
    fn json_from_elsewhere_is_plain() {
        let value: Value = json(r#"{"na\u001bme": ["\u202eab", {"x": "\n"}], "y": 1}"#).unwrap();
        assert_eq!(value["na\\u{1b}me"][0], "\\u{202e}ab");
        assert_eq!(value["na\\u{1b}me"][1]["x"], "\\n");
        assert_eq!(value["y"], 1);
    }
}
