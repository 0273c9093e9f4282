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
pub mod process;
mod service;
pub mod store;
mod transfer;

pub(crate) use familiar::Familiar;

use crate::topology::{Topology, cpu_name};

/// What must be the same for what is known to be of use: the CPU's model, and its core types.
pub fn machine_name(topology: &Topology) -> String {
    let types = topology.types.iter();
    let types: Vec<String> = types
        .map(|kind| format!("{} {}", kind.cpus.len(), kind.name))
        .collect();
    let name = format!("{}: {}", cpu_name(), types.join(", "));
    crate::text::plain(&name).into_owned()
}
