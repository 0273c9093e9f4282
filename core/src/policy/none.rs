// SPDX-License-Identifier: GPL-2.0-or-later
//! `none`: placement by idle CPU, which the BPF half does by itself.

use std::time::Duration;

use super::name::About;
use super::{Action, Policy, Snapshot};

/// What users are told.
pub(super) const ABOUT: About = About {
    name: "none",
    help: "Place each thread on the best idle CPU; no further opinion",
    knows: &[],
    build: |_| Box::new(None),
};

/// Never asks for anything.
pub struct None;

impl Policy for None {
    fn interval(&self) -> Option<Duration> {
        Option::None
    }

    fn decide(&mut self, _: &Snapshot, _: &mut Vec<Action>) {}
}
