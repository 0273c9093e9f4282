// SPDX-License-Identifier: GPL-2.0-only
//! What commands say on standard output and standard error: the only way there, so that no name from
//! elsewhere (of a thread, in a file) can act on a terminal.
#![allow(clippy::print_stderr)]

use std::fmt::{self, Display};
use std::io::{ErrorKind, Write};

use anyhow::{Context, Result};
use log::{Log, Metadata, Record};
use serde::Serialize;

use crate::text::{printable, printable_json};

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

/// Prints a text and ends its line; see [`printable`].
///
/// # Errors
/// It cannot be written, or nobody reads it: [`Unread`].
pub fn print(text: impl Display) -> Result<()> {
    write(printable(&text.to_string()))
}

/// Prints a text in which escape sequences are ours and all else went through [`printable`]; colours
/// are left out where it is no terminal.
///
/// # Errors
/// As [`print()`].
pub fn styled(text: impl Display) -> Result<()> {
    write(text)
}

/// Says a line on standard error.
pub fn note(line: impl Display) {
    eprintln!("{}", printable(&line.to_string()));
}

/// A log that is [`printable`].
pub struct Printable<L>(pub L);

impl<L: Log> Log for Printable<L> {
    fn enabled(&self, metadata: &Metadata) -> bool {
        self.0.enabled(metadata)
    }

    fn log(&self, record: &Record) {
        let text = record.args().to_string();
        self.0.log(
            &Record::builder()
                .metadata(record.metadata().clone())
                .module_path(record.module_path())
                .args(format_args!("{}", printable(&text)))
                .build(),
        );
    }

    fn flush(&self) {
        self.0.flush();
    }
}

fn write(text: impl Display) -> Result<()> {
    let mut out = anstream::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Unread.into()),
        written => written.context("cannot write to standard output"),
    }
}

/// Prints a value as JSON, indented.
///
/// # Errors
/// As [`print()`].
pub fn json(value: &impl Serialize) -> Result<()> {
    write(printable_json(&serde_json::to_string_pretty(value)?))
}
