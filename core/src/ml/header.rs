// SPDX-License-Identifier: GPL-2.0-or-later
//! What stands beside a table of measurements, and later in the model: which machine it is of.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::files::{read_text, read_trimmed};
use crate::parse;
use crate::pmu::candidates::EventSource;
use crate::topology::{Identity, Topology, cpu_name};

/// Grows when a field changes its meaning.
pub const SCHEMA: u32 = 1;

/// The machine that was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredMachine {
    /// What to call it: the CPU's own name, or what the user said.
    pub name: String,
    /// What must be the same for a model of it to be of use.
    pub identity: Identity,
    /// Revision of the microcode, if told.
    pub microcode: Option<String>,
    /// The kernel's release.
    pub kernel: String,
    /// The PMU of each core type, in their order; none where nothing was counted.
    pub pmus: Vec<CountedBy>,
}

/// What counted on a core type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedBy {
    /// The core type.
    pub core_type: String,
    /// Its microarchitecture.
    pub microarchitecture: String,
    /// How many general and fixed counters each of its CPUs has.
    pub counters: [u32; 2],
    /// The events counted, by feature.
    pub events: BTreeMap<String, EventCounted>,
}

/// An event, as a PMU counts it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventCounted {
    /// The vendor's name, or its code.
    pub name: String,
    /// The general counters that can count it, a bit each.
    pub general: u64,
    /// The fixed counter that can.
    pub fixed: Option<u8>,
    /// Where it is named; `collect --discover` says so.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub sources: BTreeSet<EventSource>,
}

/// A table's header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableHeader {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The program that wrote it, with its version.
    pub written_by: String,
    /// When it was begun, in UTC.
    pub date: String,
    /// The machine.
    pub machine: MeasuredMachine,
    /// Instructions of a window.
    pub window: u64,
    /// User mode was counted alone.
    pub user_only: bool,
    /// The commands, by program and variant.
    pub commands: BTreeMap<String, Vec<String>>,
}

impl MeasuredMachine {
    /// This machine.
    pub fn this(topology: &Topology, name: Option<&str>, pmus: Vec<CountedBy>) -> Self {
        let cpu = cpu_name();
        Self {
            name: name.unwrap_or(&cpu).to_string(),
            identity: Identity::of(topology, cpu),
            microcode: microcode(),
            kernel: read_trimmed("/proc/sys/kernel/osrelease").unwrap_or_default(),
            pmus,
        }
    }
}

fn microcode() -> Option<String> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = cpuinfo.lines().find(|line| line.starts_with("microcode"))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

/// Where the header of a table lies: beside it, as `.json`.
pub fn path_of(table: &Path) -> PathBuf {
    table.with_extension("json")
}

impl TableHeader {
    /// Reads the header of a table; `None` if it has none.
    ///
    /// # Errors
    /// It is there, and damaged or of another version.
    pub fn read(table: &Path) -> Result<Option<Self>> {
        let path = path_of(table);
        let text = match read_text(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        parse::json_of(&text, SCHEMA..=SCHEMA)
            .map(Some)
            .with_context(|| format!("the table's header {} is of no use", path.display()))
    }
}
