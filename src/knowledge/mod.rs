// SPDX-License-Identifier: GPL-2.0-only
//! What is known of programs from their earlier runs, kept on disk (`docs/knowledge.md`). What it is and how it
//! becomes a prior is in [`hetero_core::knowledge`]; here are files.
//!
//! ```text
//!  agent ─► Familiar ──which program?, findings──► thread "know": /proc, memory ──once a minute──► knowledge.db
//!              ▲ asks, and never waits              │
//!              └────────── recollections ───────────┘
//! ```

pub mod command;
mod familiar;
mod image;
mod lookups;
pub mod process;
mod service;
pub mod store;
mod transfer;

pub(crate) use familiar::Familiar;

use crate::slowdown::Thresholds;
use crate::topology::{Topology, cpu_name};

/// What was calibrated of a machine, for people.
pub(crate) fn calibrated(limits: Option<Thresholds>, topology: &Topology) -> String {
    let Some(limits) = limits else {
        return "no thresholds of contention".into();
    };
    let types = topology.types.iter();
    let types: Vec<String> = types
        .map(|kind| format!("{} {}", kind.name, kind.capacity))
        .collect();
    format!(
        "contention is low below {:.0} MB/s, high above {:.0}; capacities {}",
        limits.low_btr / 1e6,
        limits.high_btr / 1e6,
        types.join(", ")
    )
}

/// What must be the same for what is known to be of use: the CPU's model, and its core types.
pub fn machine_name(topology: &Topology) -> String {
    let types = topology.types.iter();
    let types: Vec<String> = types
        .map(|kind| format!("{} {}", kind.cpus.len(), kind.name))
        .collect();
    let name = format!("{}: {}", cpu_name(), types.join(", "));
    crate::text::plain(&name).into_owned()
}
