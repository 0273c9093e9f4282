// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero` as a user runs it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

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

/// A process that ends with the test.
pub(crate) struct Ends(pub(crate) Child);

impl Deref for Ends {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Ends {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder that other users may look into.
pub(crate) fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// A test that serves, as a process of its own after a shell has done something: where it serves is told it by a variable.
pub(crate) fn serving(first: &str, test: &str, (variable, at): (&str, &Path)) -> Ends {
    let mut child = Command::new("sh")
        .args(["-c", &format!("{first}; exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(variable, at)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("serving")));
    Ends(child)
}
