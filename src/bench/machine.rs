// SPDX-License-Identifier: GPL-2.0-only
//! On which machine something was measured.

use serde::{Deserialize, Serialize};

use crate::slowdown::calibrate;
use crate::topology::Topology;
use crate::topology::{Identity, cpu_name};

/// What must be the same for results to be comparable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineIdentity {
    /// The CPU and its core types.
    #[serde(flatten)]
    pub identity: Identity,
    /// Of each core type, 1024 for the fastest.
    pub capacities: Vec<u32>,
    /// The kernel's release.
    pub kernel: String,
    /// The machine of testbed/machines, if it is a virtual one.
    pub testbed: Option<String>,
}

impl MachineIdentity {
    /// This one.
    pub fn detect(topology: &Topology) -> Self {
        let testbed = std::env::var("SCX_HETERO_MACHINE").ok();
        Self {
            identity: Identity::of(topology, cpu_name()),
            capacities: topology.types.iter().map(|kind| kind.capacity).collect(),
            kernel: calibrate::kernel(),
            testbed: testbed.filter(|name| !name.is_empty()),
        }
    }

    /// In which way it is not `now`; `None` if it is.
    pub fn differs(&self, now: &Self) -> Option<String> {
        let name = |machine: &Self| {
            let name = machine.testbed.as_deref();
            name.unwrap_or("a machine that is not virtual").to_string()
        };
        if self.testbed != now.testbed {
            return Some(format!("it is of {}, not of {}", name(self), name(now)));
        }
        if let Some(difference) = self.identity.differs(&now.identity) {
            return Some(difference);
        }
        if self.kernel != now.kernel {
            let (then, now) = (&self.kernel, &now.kernel);
            return Some(format!("it is of kernel {then}, not of {now}"));
        }
        (self.capacities != now.capacities).then(|| {
            let (then, now) = (&self.capacities, &now.capacities);
            format!("it is of capacities {then:?}, not of {now:?}")
        })
    }

    /// In a line.
    pub fn describe(&self) -> String {
        let types = self.identity.core_types.iter();
        let types: Vec<_> = types.map(|t| format!("{}={}", t.name, t.cpus)).collect();
        let name = self.testbed.as_deref().map(|name| format!("{name}, "));
        format!(
            "{}{}, {}, Linux {}",
            name.unwrap_or_default(),
            self.identity.cpu,
            types.join(" "),
            self.kernel
        )
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::topology::TypeIdentity;

    /// A machine with two core types.
    pub(crate) fn hybrid() -> MachineIdentity {
        let kind = |name: &str, cpus: &str| TypeIdentity {
            name: name.into(),
            cpus: cpus.into(),
            max_freq_khz: None,
        };
        MachineIdentity {
            identity: Identity {
                cpu: "A CPU".into(),
                core_types: vec![kind("P", "0-3"), kind("E", "4-7")],
            },
            capacities: vec![1024, 600],
            kernel: "6.18.15".into(),
            testbed: None,
        }
    }

    #[test]
    fn another_machine_is_known_by_what_differs() {
        let now = hybrid();
        assert_eq!(now.differs(&now), None);
        let differs = |change: fn(&mut MachineIdentity)| {
            let mut then = hybrid();
            change(&mut then);
            then.differs(&now).unwrap()
        };
        assert!(differs(|m| m.kernel = "7.2".into()).contains("kernel 7.2"));
        assert!(differs(|m| m.identity.cpu = "B".into()).contains("another CPU, B"));
        assert!(differs(|m| m.testbed = Some("juno-r1".into())).contains("of juno-r1"));
        assert!(differs(|m| m.capacities[1] = 500).contains("[1024, 500]"));
    }
}
