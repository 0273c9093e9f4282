// SPDX-License-Identifier: GPL-2.0-only
//! Processes besides the test's own, and cgroups for them.

use std::process::{Child, Command};
use std::{fs, thread};

use super::ms;

/// A cgroup that is removed again.
pub struct Cgroup(String);

impl Cgroup {
    pub fn new(name: &str, controller: &str) -> Self {
        let all = "/sys/fs/cgroup/cgroup.subtree_control";
        fs::write(all, format!("+{controller}")).unwrap();
        let path = format!("/sys/fs/cgroup/{name}");
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub fn set(&self, file: &str, value: &str) {
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

/// Processes that compute until it is dropped.
pub struct Burners(Vec<Child>);

impl Burners {
    pub fn start(count: usize) -> Self {
        Self((0..count).map(|_| burner()).collect())
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A process that computes for ever.
pub fn burner() -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", "while :; do :; done"]);
    command.spawn().unwrap()
}
