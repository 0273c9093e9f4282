// SPDX-License-Identifier: GPL-2.0-only
//! `none`: placement by idle CPU, which the BPF half does by itself.

use std::time::Duration;

use super::{Action, Policy, Snapshot};

/// Never asks for anything.
pub struct None;

impl Policy for None {
    fn interval(&self) -> Option<Duration> {
        Option::None
    }

    fn decide(&mut self, _: &Snapshot, _: &mut Vec<Action>) {}
}
