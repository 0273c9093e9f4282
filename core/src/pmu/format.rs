// SPDX-License-Identifier: GPL-2.0-or-later
//! Raw events in the words of a PMU: the terms its sysfs `format/` files define.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};

/// The three words of `perf_event_attr` that say what to count.
pub(super) type Config = [u64; 3];

/// Where the bits of a term go, as a `format/` file says it (`config:0-7,32-35`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// 0 for `config`, 1 for `config1`, 2 for `config2`.
    word: usize,
    /// First and last bit of each piece, the lowest piece of the value first.
    pieces: Vec<(u32, u32)>,
}

impl Field {
    /// Reads the contents of a `format/` file; `None` if it is for a word we do not set.
    pub fn parse(text: &str) -> Option<Self> {
        let (word, bits) = text.trim().split_once(':')?;
        let word = match word {
            "config" => 0,
            "config1" => 1,
            "config2" => 2,
            _ => return None,
        };
        let pieces = bits.split(',').map(|piece| {
            let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
            let (first, last) = (first.parse().ok()?, last.parse().ok()?);
            (first <= last && last < 64).then_some((first, last))
        });
        let pieces = pieces.collect::<Option<Vec<_>>>()?;
        Some(Self { word, pieces })
    }

    fn width(&self) -> u32 {
        self.pieces
            .iter()
            .map(|(first, last)| last - first + 1)
            .sum()
    }

    fn set(&self, config: &mut Config, mut value: u64) {
        for &(first, last) in &self.pieces {
            let width = last - first + 1;
            let mask = u64::MAX >> (64 - width);
            config[self.word] &= !(mask << first);
            config[self.word] |= (value & mask) << first;
            value = value.checked_shr(width).unwrap_or(0);
        }
    }
}

/// A number as users and sysfs write them: `0x4f` or `79`.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The code in `r4f2e` or `0x4f2e`; `None` if it is not written so.
pub(super) fn code(text: &str) -> Option<u64> {
    let hex = text.strip_prefix('r').or_else(|| text.strip_prefix("0x"))?;
    u64::from_str_radix(hex, 16).ok()
}

/// Puts terms such as `event=0x2e,umask=0x4f,inv` together, by the PMU's own format.
pub(super) fn terms(text: &str, formats: &BTreeMap<String, Field>) -> Result<Config> {
    let mut config = Config::default();
    for term in text.split(',').map(str::trim) {
        let (name, value) = term.split_once('=').unwrap_or((term, "1"));
        let value =
            number(value).with_context(|| format!("'{value}' in '{term}' is not a number"))?;
        let word = ["config", "config1", "config2"]
            .iter()
            .position(|w| *w == name);
        if let Some(word) = word {
            config[word] = value;
            continue;
        }
        let Some(field) = formats.get(name) else {
            let known: Vec<_> = formats.keys().map(String::as_str).collect();
            bail!("no term '{name}' here, only {}", known.join(", "));
        };
        let width = field.width();
        let fits = width >= 64 || value >> width == 0;
        ensure!(fits, "'{term}' does not fit: '{name}' has {width} bits");
        field.set(&mut config, value);
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formats() -> BTreeMap<String, Field> {
        let files = [
            ("event", "config:0-7,32-35"),
            ("umask", "config:8-15\n"),
            ("inv", "config:23"),
            ("cmask", "config:24-31"),
            ("ldlat", "config1:0-15"),
        ];
        let fields = files.map(|(name, text)| (name.to_string(), Field::parse(text).unwrap()));
        fields.into()
    }

    #[test]
    fn terms_go_where_the_format_says() {
        let config = |text| terms(text, &formats()).map_err(|e| e.to_string());
        assert_eq!(config("event=0x2e,umask=0x4f"), Ok([0x4f2e, 0, 0]));
        assert_eq!(config("event=0x1a0,umask=1"), Ok([0x1_0000_01a0, 0, 0]));
        assert_eq!(
            config("event=0xa3, umask=5, cmask=5, inv"),
            Ok([0x58005a3, 0, 0])
        );
        assert_eq!(config("config=0x4f2e,ldlat=3"), Ok([0x4f2e, 3, 0]));
    }

    #[test]
    fn wrong_terms_are_explained() {
        let error = |text| terms(text, &formats()).unwrap_err().to_string();
        assert_eq!(
            error("umask=0x100"),
            "'umask=0x100' does not fit: 'umask' has 8 bits"
        );
        assert_eq!(error("event=x"), "'x' in 'event=x' is not a number");
        assert_eq!(
            error("offcore=1"),
            "no term 'offcore' here, only cmask, event, inv, ldlat, umask"
        );
    }

    #[test]
    fn codes_are_hexadecimal() {
        assert_eq!(code("r4f2e"), Some(0x4f2e));
        assert_eq!(code("0x4f2e"), Some(0x4f2e));
        assert_eq!(code("ref-cycles"), None);
        assert_eq!(code("4f2e"), None);
    }

    #[test]
    fn formats_that_make_no_sense_are_left_out() {
        assert_eq!(Field::parse("config3:0-7"), None);
        assert_eq!(Field::parse("config:7-0"), None);
        assert_eq!(Field::parse("config:0-64"), None);
        assert_eq!(Field::parse("attr:0"), None);
    }
}
