// SPDX-License-Identifier: GPL-2.0-only
//! Numbers that say where they come from, and errors that say where they stand.

use std::ops::RangeInclusive;

use anyhow::{Result, anyhow, bail};
use hetero_core::parse;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;

/// A number of a data file, and its provenance: exactly one of the three.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sourced {
    value: Spanned<f64>,
    /// Where in which paper it stands.
    paper: Option<String>,
    /// Where in the virtual machine's description or measurements it stands.
    testbed: Option<String>,
    /// Why it was assumed.
    assumed: Option<String>,
}

impl Sourced {
    /// The number.
    pub fn get(&self) -> f64 {
        *self.value.get_ref()
    }

    /// Whether nobody has measured or published it.
    pub fn is_assumed(&self) -> bool {
        self.assumed.is_some()
    }
}

/// The text of a data file and its name, for errors.
pub(crate) struct SourceText<'a> {
    /// As the user knows it.
    pub(crate) name: &'a str,
    /// All of it.
    pub(crate) text: &'a str,
}

impl SourceText<'_> {
    /// Reads it.
    ///
    /// # Errors
    /// Which line is wrong, and why.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        toml::from_str(self.text).map_err(|error| {
            let line = error.span().map_or(1, |span| self.line(span.start));
            anyhow!("{}:{line}: {}", self.name, parse::expected(error.message()))
        })
    }

    /// A number within `range`, or which line has one that is not; or one that does not say where
    /// it comes from, or says so twice.
    pub(super) fn check(
        &self,
        what: &str,
        number: &Sourced,
        range: RangeInclusive<f64>,
    ) -> Result<f64> {
        let (value, span) = (number.get(), number.value.span());
        if !range.contains(&value) {
            let (least, most) = (range.start(), range.end());
            return self.wrong(
                span.start,
                &format!("`{what}` must lie between {least} and {most}, not {value}"),
            );
        }
        let sources = [&number.paper, &number.testbed, &number.assumed];
        if sources.into_iter().flatten().count() != 1 {
            return self.wrong(
                span.start,
                &format!(
                    "`{what}` needs one of `paper`, `testbed` and `assumed`: where it is from"
                ),
            );
        }
        Ok(value)
    }

    /// The error that `message` applies to what begins at byte `at`.
    pub(crate) fn wrong<T>(&self, at: usize, message: &str) -> Result<T> {
        bail!("{}:{}: {message}", self.name, self.line(at))
    }

    fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().iter().take(at);
        1 + before.filter(|&&byte| byte == b'\n').count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct One {
        speed: Sourced,
    }

    fn check(text: &str) -> Result<f64> {
        let source = SourceText {
            name: "test.toml",
            text,
        };
        let one: One = source.parse()?;
        source.check("speed", &one.speed, 0.0..=10.0)
    }

    #[test]
    fn a_number_says_where_it_is_from() {
        let good = "speed = { value = 3, paper = \"Table 1\" }";
        assert_eq!(check(good).unwrap(), 3.0);
        let error = |text: &str| check(text).unwrap_err().to_string();
        assert!(error("\nspeed = { value = 3 }").starts_with("test.toml:2: `speed` needs one of"));
        let both = "speed = { value = 3, paper = \"a\", assumed = \"b\" }";
        assert!(error(both).contains("needs one of"));
    }

    #[test]
    fn errors_name_the_line() {
        let error = |text: &str| check(text).unwrap_err().to_string();
        let far = "\n\nspeed = { value = 11, assumed = \"fast\" }";
        assert_eq!(
            error(far),
            "test.toml:3: `speed` must lie between 0 and 10, not 11"
        );
        let unknown = "speed = { value = 1, assumed = \"x\" }\nsped = 1";
        let unknown = error(unknown);
        assert!(
            unknown.starts_with("test.toml:2: ") && unknown.contains("`sped`"),
            "{unknown}"
        );
    }
}
