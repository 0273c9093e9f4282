// SPDX-License-Identifier: GPL-2.0-or-later
//! Whether what was measured or learnt is of this machine.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Topology, cpulist};

/// What tells machines apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The CPU's model by its maker.
    pub cpu: String,
    /// Its core types, fastest first.
    pub core_types: Vec<TypeIdentity>,
}

/// What tells core types apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeIdentity {
    /// Its name.
    pub name: String,
    /// Its online CPUs, as a list.
    pub cpus: String,
    /// The highest clock of any, kHz.
    pub max_freq_khz: Option<u32>,
}

impl Identity {
    /// Of a machine whose CPU has this name.
    pub fn of(topology: &Topology, cpu: String) -> Self {
        let core_types = topology.types.iter().map(|kind| {
            let clocks = kind
                .cpus
                .iter()
                .filter_map(|&id| topology.cpu(id)?.max_freq_khz);
            TypeIdentity {
                name: kind.name.clone(),
                cpus: cpulist::format(&kind.cpus),
                max_freq_khz: clocks.max(),
            }
        });
        Self {
            cpu,
            core_types: core_types.collect(),
        }
    }

    /// In which way `other` is another machine; `None` if it is not.
    pub fn differs(&self, other: &Self) -> Option<String> {
        if self.cpu != other.cpu {
            return Some(format!("it is of another CPU, {}", self.cpu));
        }
        let types = |of: &Self| -> Vec<String> {
            let one = |kind: &TypeIdentity| format!("{}={}", kind.name, kind.cpus);
            of.core_types.iter().map(one).collect()
        };
        let (then, now) = (types(self).join(","), types(other).join(","));
        if then != now {
            return Some(format!(
                "it is of core types {then}, and now they are {now}"
            ));
        }
        (self != other).then(|| "the highest clocks have changed since".to_string())
    }
}

/// What its maker, or else the board's, calls this machine's CPU.
pub fn cpu_name() -> String {
    cpu_name_below(Path::new("/"))
}

/// The same where `/proc` lies below `root`.
pub fn cpu_name_below(root: &Path) -> String {
    let cpuinfo = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let field = |name: &str| {
        let mut lines = cpuinfo.lines().filter(|line| line.starts_with(name));
        let value = lines.next()?.split_once(':')?.1.trim();
        Some(value.to_string())
    };
    let board = || fs::read_to_string(root.join("proc/device-tree/model")).ok();
    field("model name")
        .or_else(board)
        .or_else(|| field("CPU part"))
        .map(|name| name.trim_end_matches('\0').to_string())
        .unwrap_or_else(|| "unknown".to_string())
}

#[cfg(test)]
mod tests {
    use crate::testing::identity;

    #[test]
    fn another_machine_is_told_by_its_cpu_its_types_or_its_clocks() {
        let now = identity();
        assert_eq!(now.differs(&identity()), None);
        let mut other = identity();
        other.cpu = "Another CPU".to_string();
        assert!(other.differs(&now).unwrap().contains("Another CPU"));
        let mut other = identity();
        other.core_types[1].cpus = "4-5".to_string();
        let said = other.differs(&now).unwrap();
        assert!(said.contains("P=0-3,E=4-5") && said.contains("P=0-3,E=4-7"));
        let mut other = identity();
        other.core_types[0].max_freq_khz = None;
        assert!(other.differs(&now).unwrap().contains("clocks"));
    }
}
