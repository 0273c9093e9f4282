// SPDX-License-Identifier: GPL-2.0-only
//! The program that learns and shows what was learnt (`learn/`), beside this one.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::Error;

use crate::ml::args::CALLER;

/// Its name.
const NAME: &str = "scx_hetero-learn";

/// Runs it in place of this program, with the same arguments; comes back only with why it cannot.
pub fn become_it() -> Error {
    let here = match env::current_exe() {
        Ok(here) => here,
        Err(error) => return Error::new(error).context("this program's own place is unknown"),
    };
    let program = here.with_file_name(NAME);
    let error = Command::new(&program)
        .args(env::args_os().skip(1))
        .env(CALLER, env!("CARGO_PKG_VERSION"))
        .exec();
    Error::new(error).context(format!(
        "cannot run {}, which comes with scx_hetero and does this",
        program.display()
    ))
}
