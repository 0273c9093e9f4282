// SPDX-License-Identifier: GPL-2.0-only
//! TOML that users write, and in words which line of it is wrong.

use anyhow::{Result, anyhow};
use hetero_core::parse;
use serde::de::DeserializeOwned;

/// Parses a file's text.
///
/// # Errors
/// Line and column of what is wrong, and what has to be there.
pub(crate) fn from_toml<T: DeserializeOwned>(text: &str) -> Result<T> {
    toml::from_str(text).map_err(|error| {
        let at = error.span().unwrap_or_default().start;
        anyhow!("{}: {}", place(text, at), parse::expected(error.message()))
    })
}

/// Line and column of a byte.
pub(crate) fn place(text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let last = before.rsplit('\n').next().unwrap_or_default();
    format!("line {line}, column {}", last.chars().count() + 1)
}
