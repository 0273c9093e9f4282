// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero` as a user runs it.

use std::process::{Command, Output};

/// Where it was built.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_scx_hetero");

/// With these arguments, to run.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(args);
    command
}

/// What it prints where it succeeds.
pub(crate) fn stdout(args: &[&str]) -> String {
    let output = output(args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// What it says when it fails.
pub(crate) fn error(args: &[&str]) -> String {
    let output = output(args);
    assert!(!output.status.success(), "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// What comes of it.
pub(crate) fn output(args: &[&str]) -> Output {
    command(args).output().unwrap()
}
