// SPDX-License-Identifier: GPL-2.0-or-later
//! Which microarchitecture a PMU belongs to: by its name, and by what the CPUs say they are.

use super::tables::{self, EventTable};

/// What a CPU says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuIdentity {
    /// An Intel CPU.
    Intel {
        /// CPUID family.
        family: u32,
        /// CPUID model.
        model: u32,
    },
    /// An AMD CPU.
    Amd {
        /// CPUID family.
        family: u32,
        /// CPUID model.
        model: u32,
    },
    /// An ARM CPU.
    Arm {
        /// Implementer and part of the MIDR, such as 0x41 (ARM itself) and 0xd03.
        implementer: u32,
        /// Part number.
        part: u32,
    },
}

/// The first CPU that `/proc/cpuinfo` describes, or that of id `cpu` where each has its own lines.
pub(super) fn from_cpuinfo(text: &str, cpu: u32) -> Option<CpuIdentity> {
    let blocks = text.split("\n\n");
    let value = |block: &str, name: &str| {
        let line = block.lines().find(|line| {
            line.split_once(':')
                .is_some_and(|(key, _)| key.trim() == name)
        })?;
        Some(line.split_once(':')?.1.trim().to_string())
    };
    let id = cpu.to_string();
    let block = blocks
        .clone()
        .find(|block| value(block, "processor").as_deref() == Some(&id))
        .or_else(|| blocks.clone().next())?;
    let decimal = |name| value(block, name)?.parse().ok();
    let hex = |name| {
        let text = value(block, name)?;
        u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    };
    match value(block, "vendor_id").as_deref() {
        Some("GenuineIntel") => Some(CpuIdentity::Intel {
            family: decimal("cpu family")?,
            model: decimal("model")?,
        }),
        Some("AuthenticAMD" | "HygonGenuine") => Some(CpuIdentity::Amd {
            family: decimal("cpu family")?,
            model: decimal("model")?,
        }),
        _ => Some(CpuIdentity::Arm {
            implementer: hex("CPU implementer")?,
            part: hex("CPU part")?,
        }),
    }
}

/// The CPU whose identification register (`midr_el1`) reads so.
pub(super) fn from_midr(midr: u64) -> CpuIdentity {
    let bits = |first: u32, width: u32| (midr >> first) as u32 & ((1 << width) - 1);
    CpuIdentity::Arm {
        implementer: bits(24, 8),
        part: bits(4, 12),
    }
}

/// The table for the PMU of this name, all of whose CPUs are such a `cpu`; `None` where the CPUs
/// differ or say nothing, and the name alone must do.
pub(super) fn table(pmu: &str, cpu: Option<CpuIdentity>) -> Option<&'static EventTable> {
    let name = match (pmu, cpu) {
        ("cpu_core", Some(CpuIdentity::Intel { family: 6, model })) => p_core(model),
        ("cpu_atom", Some(CpuIdentity::Intel { family: 6, model })) => e_core(model),
        // The low-power island of Arrow Lake-H, whose cores differ from its E cores.
        (
            "cpu_lowpower",
            Some(CpuIdentity::Intel {
                family: 6,
                model: 0xc5,
            }),
        ) => Some("crestmont"),
        ("cpu", Some(CpuIdentity::Intel { family: 6, model })) => homogeneous(model),
        ("cpu", Some(CpuIdentity::Amd { family, model })) => zen(family, model),
        (_, arm) => match pmu.split_once("_cortex_") {
            Some((_, core)) => return tables::by_name(&format!("cortex-{core}")),
            None => arm.and_then(cortex),
        },
    };
    name.and_then(tables::by_name)
}

/// P cores of the hybrids, by the model both core types share.
fn p_core(model: u32) -> Option<&'static str> {
    match model {
        0x97 | 0x9a | 0xb7 | 0xba | 0xbf => Some("golden-cove"),
        0xaa | 0xac | 0xb5 => Some("redwood-cove"),
        0xbd | 0xc5 | 0xc6 => Some("lion-cove"),
        _ => None,
    }
}

/// Their E cores; on Meteor Lake the LP-E cores, too.
fn e_core(model: u32) -> Option<&'static str> {
    match model {
        0x97 | 0x9a | 0xb7 | 0xba | 0xbf => Some("gracemont"),
        0xaa | 0xac | 0xb5 => Some("crestmont"),
        0xbd | 0xc5 | 0xc6 => Some("skymont"),
        _ => None,
    }
}

/// Intel's CPUs with one core type, and hybrids whose other type the firmware switched off.
fn homogeneous(model: u32) -> Option<&'static str> {
    match model {
        0x4e | 0x5e | 0x8e | 0x9e | 0xa5 | 0xa6 | 0x55 => Some("skylake"),
        0x7d | 0x7e | 0x6a | 0x6c | 0x8c | 0x8d | 0xa7 => Some("ice-lake"),
        0x8f | 0xcf => Some("golden-cove"),
        0xad | 0xae => Some("redwood-cove"),
        0xbe => Some("gracemont"),
        0xaf => Some("crestmont"),
        _ => p_core(model),
    }
}

/// AMD's, with the borders that the kernel's event lists draw.
fn zen(family: u32, model: u32) -> Option<&'static str> {
    match (family, model) {
        (0x19, 0x00..=0x0f | 0x20..=0x2f | 0x40..=0x5f) => None, // Zen 3
        (0x19, _) => Some("zen4"),
        (0x1a, 0x00..=0x2f | 0x40..=0x4f | 0x60..=0x7f) => Some("zen5"),
        _ => None,
    }
}

fn cortex(cpu: CpuIdentity) -> Option<&'static str> {
    let CpuIdentity::Arm {
        implementer: 0x41,
        part,
    } = cpu
    else {
        return None;
    };
    Some(match part {
        0xc07 => "cortex-a7",
        0xc0f => "cortex-a15",
        0xd03 => "cortex-a53",
        0xd05 => "cortex-a55",
        0xd07 => "cortex-a57",
        0xd08 => "cortex-a72",
        0xd0b => "cortex-a76",
        0xd41 | 0xd4b => "cortex-a78",
        0xd44 | 0xd4c => "cortex-x1",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(pmu: &str, cpu: Option<CpuIdentity>) -> Option<&'static str> {
        table(pmu, cpu).map(|table| table.name)
    }

    #[test]
    fn hybrids_are_told_by_model_and_pmu() {
        let intel = |model| Some(CpuIdentity::Intel { family: 6, model });
        assert_eq!(name("cpu_core", intel(0x9a)), Some("golden-cove"));
        assert_eq!(name("cpu_atom", intel(0x9a)), Some("gracemont"));
        assert_eq!(name("cpu_atom", intel(0xaa)), Some("crestmont"));
        assert_eq!(name("cpu_core", intel(0xbd)), Some("lion-cove"));
        assert_eq!(name("cpu_lowpower", intel(0xc5)), Some("crestmont"));
        assert_eq!(name("cpu_core", intel(0xcc)), None);
        assert_eq!(name("cpu", intel(0x9a)), Some("golden-cove"));
        assert_eq!(name("cpu", intel(0xbe)), Some("gracemont"));
        assert_eq!(name("cpu_core", None), None);
    }

    #[test]
    fn zen_generations_share_families() {
        let amd = |family, model| name("cpu", Some(CpuIdentity::Amd { family, model }));
        assert_eq!(amd(0x19, 0x61), Some("zen4"));
        assert_eq!(amd(0x19, 0x11), Some("zen4"));
        assert_eq!(amd(0x19, 0x21), None);
        assert_eq!(amd(0x1a, 0x24), Some("zen5"));
        assert_eq!(amd(0x1a, 0x50), None);
        assert_eq!(amd(0x17, 0x71), None);
    }

    #[test]
    fn arm_cores_are_told_by_pmu_or_register() {
        assert_eq!(name("armv7_cortex_a15", None), Some("cortex-a15"));
        assert_eq!(name("armv8_cortex_a53", None), Some("cortex-a53"));
        assert_eq!(name("armv8_cortex_a510", None), None);
        assert_eq!(
            name("armv8_pmuv3_0", Some(from_midr(0x410fd0b1))),
            Some("cortex-a76")
        );
        assert_eq!(name("armv8_pmuv3_0", Some(from_midr(0x611f0221))), None);
        assert_eq!(name("apple_icestorm_pmu", None), None);
    }

    #[test]
    fn cpuinfo_of_each_kind() {
        let intel = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 154\n\
                     model name\t: 12th Gen\n\nprocessor\t: 1\n";
        assert_eq!(
            from_cpuinfo(intel, 0),
            Some(CpuIdentity::Intel {
                family: 6,
                model: 154
            })
        );
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd03\n\n\
                   processor\t: 4\nCPU implementer\t: 0x41\nCPU part\t: 0xd08\n\n";
        let part = |cpu| match from_cpuinfo(arm, cpu) {
            Some(CpuIdentity::Arm { part, .. }) => part,
            other => panic!("{other:?}"),
        };
        assert_eq!((part(0), part(4)), (0xd03, 0xd08));
        assert_eq!(from_cpuinfo("", 0), None);
    }
}
