// SPDX-License-Identifier: GPL-2.0-only
//! What commands say on standard output.

use std::fmt::{self, Display};
use std::io::{ErrorKind, Write};

use anyhow::{Context, Result};
use serde::Serialize;

/// Whoever read has seen enough, as in `scx_hetero sim | head`: there is nothing left to do, and nothing
/// went wrong.
#[derive(Debug)]
pub struct Unread;

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody reads what is printed")
    }
}

impl std::error::Error for Unread {}

/// Prints a text and ends its line; colours are left out where it is no terminal.
///
/// # Errors
/// It cannot be written, or nobody reads it: [`Unread`].
pub fn print(text: impl Display) -> Result<()> {
    let mut out = anstream::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Unread.into()),
        written => written.context("cannot write to standard output"),
    }
}

/// Prints a value as JSON, indented.
///
/// # Errors
/// As [`print`].
pub fn json(value: &impl Serialize) -> Result<()> {
    print(serde_json::to_string_pretty(value)?)
}
