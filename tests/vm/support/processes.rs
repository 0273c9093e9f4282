// SPDX-License-Identifier: GPL-2.0-only
//! Processes besides the test's own, and cgroups for them.

use std::ops::Deref;
use std::process::{Child, Command, Stdio};
use std::{fs, thread};

use super::ms;

/// A cgroup that is removed again.
pub(crate) struct Cgroup(String);

impl Cgroup {
    pub(crate) fn new(name: &str, controller: &str) -> Self {
        let all = "/sys/fs/cgroup/cgroup.subtree_control";
        fs::write(all, format!("+{controller}")).unwrap();
        let path = format!("/sys/fs/cgroup/{name}");
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn set(&self, file: &str, value: &str) {
        fs::write(format!("{}/{file}", self.0), value).unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(ms(20));
        }
    }
}

/// A process that computes until it is dropped.
pub(crate) struct Burner(Child);

impl Burner {
    /// A program of the testbed's on one CPU.
    pub(crate) fn on(cpu: usize, program: &[&str]) -> Self {
        let mut command = Command::new("hetero-programs");
        command.args(program).args(["--pin", &cpu.to_string()]);
        command.args(["--warmup", "0", "--seconds", "1000"]);
        Self(command.stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Deref for Burner {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn burner() -> Burner {
    let mut command = Command::new("sh");
    command.args(["-c", "while :; do :; done"]);
    Burner(command.spawn().unwrap())
}

pub(crate) fn burners(count: usize) -> Vec<Burner> {
    (0..count).map(|_| burner()).collect()
}
