// SPDX-License-Identifier: GPL-2.0-only
//! Which processes are the program's: itself, and those that it has started.
//!
//! Processes of any user may call the same function, as many as they like, and those that are not known are looked up by a
//! real-time thread: some at a look. What the others do meanwhile is no beat.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Processes of which it is known.
const KNOWN: usize = 4096;

/// For how long.
const FORGET: Duration = Duration::from_secs(10);

/// Reads of files at a look, which take about a millisecond; the last process may take more.
const READS: usize = 64;

/// Ancestors of a process that are looked at.
const GENERATIONS: usize = 64;

/// See the module.
pub(super) struct OwnProcesses {
    /// The process that was started, or is watched.
    head: u32,
    known: HashMap<u32, bool>,
    /// Since when.
    since: Instant,
    left: usize,
}

impl OwnProcesses {
    pub(super) fn of(head: u32) -> Self {
        Self {
            head,
            known: HashMap::new(),
            since: Instant::now(),
            left: READS,
        }
    }

    pub(super) fn begin_look(&mut self) {
        self.left = READS;
        // The number of another's may be one of the program's after a while. What was its own stays, as in the scheduler: its
        // parent may have ended.
        if self.since.elapsed() > FORGET {
            self.since = Instant::now();
            self.known.retain(|_, own| *own);
        }
    }

    /// Whether a process is among them, by what tells its `parent`.
    pub(super) fn contains(&mut self, pid: u32, parent: impl Fn(u32) -> Option<u32>) -> bool {
        let known = self.known.get(&pid).copied();
        known.unwrap_or_else(|| self.left > 0 && self.look_up(pid, parent))
    }

    fn look_up(&mut self, pid: u32, parent: impl Fn(u32) -> Option<u32>) -> bool {
        if self.known.len() >= KNOWN {
            self.known.retain(|_, own| *own);
        }
        if self.known.len() >= KNOWN {
            self.known.clear();
        }
        let (mut line, mut above) = (Vec::new(), pid);
        let own = loop {
            if above == self.head {
                break true;
            }
            if let Some(&own) = self.known.get(&above) {
                break own;
            }
            if line.len() == GENERATIONS {
                // Those above have some more to go.
                line.truncate(1);
                break false;
            }
            line.push(above);
            self.left = self.left.saturating_sub(1);
            match parent(above).filter(|&parent| parent > 1) {
                Some(parent) => above = parent,
                None => break false,
            }
        };
        self.known.extend(line.into_iter().map(|pid| (pid, own)));
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn ancestors_are_looked_up_once_and_so_many_at_a_look() {
        let reads = Cell::new(0);
        // Each has started the next; those of 1000 are another's.
        let parent = |pid: u32| {
            reads.set(reads.get() + 1);
            (pid != 1000).then_some(pid - 1)
        };
        let mut own = OwnProcesses::of(100);
        assert!(own.contains(100, parent) && reads.get() == 0);
        assert!(own.contains(130, parent) && reads.get() == 30);
        assert!(own.contains(131, parent) && own.contains(115, parent) && reads.get() == 31);
        // The last may take more, and then there are none.
        assert!(!own.contains(1039, parent) && reads.get() == 71);
        assert!(!own.contains(132, parent) && own.contains(131, parent) && reads.get() == 71);
        own.begin_look();
        assert!(own.contains(132, parent) && !own.contains(1040, parent) && reads.get() == 73);
        // Too far from the program, but not all above it.
        own.begin_look();
        assert!(!own.contains(200, parent) && reads.get() == 73 + GENERATIONS);
        own.begin_look();
        assert!(own.contains(160, parent) && reads.get() == 73 + GENERATIONS + 28);
    }
}
