// SPDX-License-Identifier: GPL-2.0-only
//! Cgroups with a weight, and busy processes in them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use super::pin;

const ROOT: &str = "/sys/fs/cgroup";

/// A cgroup with busy processes in it. They end, and it goes, when dropped.
pub(crate) struct Slice {
    pub(crate) path: PathBuf,
    pub(crate) busy: Vec<Child>,
}

impl Slice {
    pub(crate) fn new(name: &str, weight: u32) -> Self {
        Self::below(Path::new(ROOT), name, weight)
    }

    pub(crate) fn below(parent: &Path, name: &str, weight: u32) -> Self {
        fs::write(parent.join("cgroup.subtree_control"), "+cpu").unwrap();
        let path = parent.join(name);
        fs::create_dir(&path).unwrap();
        let slice = Self {
            path,
            busy: Vec::new(),
        };
        slice.set("cpu.weight", &weight.to_string());
        slice
    }

    /// Starts so many busy processes in it, on these CPUs alone.
    pub(crate) fn run(mut self, count: usize, cpus: &[usize]) -> Self {
        for _ in 0..count {
            let child = Command::new("sh")
                .args(["-c", "while :; do :; done"])
                .spawn()
                .unwrap();
            pin(child.id() as i32, cpus);
            self.take(&child);
            self.busy.push(child);
        }
        self
    }

    pub(crate) fn take(&self, child: &Child) {
        self.set("cgroup.procs", &child.id().to_string());
    }

    pub(crate) fn set(&self, file: &str, value: &str) {
        fs::write(self.path.join(file), value).unwrap();
    }

    /// CPU time of all that is or was in it, in microseconds.
    pub(crate) fn usage(&self) -> f64 {
        let stat = fs::read_to_string(self.path.join("cpu.stat")).unwrap();
        let usage = stat
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec "));
        usage.unwrap().parse().unwrap()
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        for child in &mut self.busy {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir(&self.path);
    }
}
