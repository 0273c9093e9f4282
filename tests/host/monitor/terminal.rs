// SPDX-License-Identifier: GPL-2.0-only
//! A terminal that a test reads and types on: tmux's, with a server of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::monitor::text;
use crate::program::PROGRAM;

/// A terminal with the monitor in it.
pub(super) struct Terminal {
    server: PathBuf,
}

impl Terminal {
    /// `environment` is put before the command, as for env(1).
    pub(super) fn open(folder: &Path, size: (u32, u32), environment: &str, socket: &Path) -> Self {
        let binary = PROGRAM;
        let socket = socket.display();
        let command = format!(
            "env {environment} {binary} monitor -d 0.1 --socket {socket}; code=$?; stty -a; echo left with $code; cat"
        );
        Self::run(folder, size, &command)
    }

    pub(super) fn run(folder: &Path, size: (u32, u32), command: &str) -> Self {
        let terminal = Self {
            server: folder.join("tmux"),
        };
        let (width, height) = (size.0.to_string(), size.1.to_string());
        terminal.tmux(&["new-session", "-d", "-x", &width, "-y", &height, command]);
        terminal
    }

    pub(super) fn tmux(&self, args: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command
            .args(["-u", "-f", "/dev/null", "-S"])
            .arg(&self.server);
        let output = command.args(args).output().unwrap();
        assert!(output.status.success(), "tmux {args:?}: {output:?}");
        text(&output.stdout)
    }

    /// The monitor's process.
    pub(super) fn pid(&self) -> i32 {
        let shell = self.tmux(&["display-message", "-p", "#{pane_pid}"]);
        let shell = shell.trim();
        let children = format!("/proc/{shell}/task/{shell}/children");
        let children = std::fs::read_to_string(children).unwrap();
        children.split_whitespace().next().unwrap().parse().unwrap()
    }

    pub(super) fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    pub(super) fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen is as `is` wants it.
    pub(super) fn wait(&self, what: &str, is: impl Fn(&str) -> bool) -> String {
        let give_up = Instant::now() + Duration::from_secs(60);
        loop {
            let screen = self.screen();
            if is(&screen) {
                return screen;
            }
            assert!(Instant::now() < give_up, "no {what} on\n{screen}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    pub(super) fn see(&self, text: &str) -> String {
        self.wait(text, |screen| screen.contains(text))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let mut command = Command::new("tmux");
        let _ = command
            .arg("-S")
            .arg(&self.server)
            .arg("kill-server")
            .output();
    }
}

pub(super) fn has_tmux() -> bool {
    let found = Command::new("tmux").arg("-V").output().is_ok();
    if !found {
        println!("SKIPPED: there is no tmux; testbed/setup installs it");
    }
    found
}

/// Whether these are the first threads on a screen, in order.
pub(super) fn lists(screen: &str, names: &[&str]) -> bool {
    let rows = screen.lines().skip_while(|line| !line.contains("NAME"));
    let listed = rows.skip(1).map(|row| row.split_whitespace().nth(1));
    names
        .iter()
        .copied()
        .eq(listed.map_while(|name| name).take(names.len()))
}
