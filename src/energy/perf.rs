// SPDX-License-Identifier: GPL-2.0-only
//! Energy by perf: the PMU `power` shows RAPL's registers where powercap's driver is missing, and `power_core`
//! those of each core on AMD.

use std::io::ErrorKind;
use std::path::Path;

use hetero_core::energy::judge::SensorKind;

use super::EnergyDomain;
use super::sensor::{EnergySensor, SensorSource};
use crate::files::read_trimmed;
use crate::pmu::open::Counter;
use crate::topology::{Topology, cpulist};

const PMUS: &str = "sys/bus/event_source/devices";

/// The machine's own root, below which alone there is a kernel to ask.
const HERE: &str = "/";

/// Events of `power`, and what they are of.
const DOMAINS: [(&str, EnergyDomain); 5] = [
    ("energy-pkg", EnergyDomain::Package),
    ("energy-cores", EnergyDomain::Cores),
    ("energy-gpu", EnergyDomain::Uncore),
    ("energy-ram", EnergyDomain::Memory),
    ("energy-psys", EnergyDomain::Platform),
];

/// More cores than this are not read one by one.
const MOST_CORES: usize = 64;

/// Adds the domains of `power`.
pub(super) fn power(root: &Path, sensors: &mut Vec<EnergySensor>) {
    for (event, domain) in DOMAINS {
        for cpu in cpus(root, "power") {
            sensors.extend(sensor(root, "power", event, cpu, domain));
        }
    }
}

/// Adds AMD's cores, each to its core type.
pub(super) fn cores(root: &Path, topology: &Topology, sensors: &mut Vec<EnergySensor>) {
    let cpus = cpus(root, "power_core");
    if cpus.len() > MOST_CORES {
        return;
    }
    for cpu in cpus {
        let known = topology.cpus.iter().find(|known| known.id == cpu);
        let domain = known.map_or(EnergyDomain::Unknown, |known| {
            EnergyDomain::CoreType(known.core_type)
        });
        sensors.extend(sensor(root, "power_core", "energy-core", cpu, domain));
    }
}

fn text(root: &Path, file: &str) -> Option<String> {
    read_trimmed(root.join(PMUS).join(file))
}

/// Those at which each of its units is read.
fn cpus(root: &Path, pmu: &str) -> Vec<u32> {
    let list = text(root, &format!("{pmu}/cpumask"));
    list.and_then(|list| cpulist::parse(&list).ok())
        .unwrap_or_default()
}

fn sensor(
    root: &Path,
    pmu: &str,
    event: &str,
    cpu: u32,
    domain: EnergyDomain,
) -> Option<EnergySensor> {
    let config = text(root, &format!("{pmu}/events/{event}"))?;
    let config = config.strip_prefix("event=0x")?;
    let config = u64::from_str_radix(config, 16).ok()?;
    let joules: f64 = text(root, &format!("{pmu}/events/{event}.scale"))?
        .parse()
        .ok()?;
    let type_id: u32 = text(root, &format!("{pmu}/type"))?.parse().ok()?;
    let source = match root == Path::new(HERE) {
        true => match Counter::open_system_wide(type_id, config, cpu) {
            Ok(counter) => SensorSource::Perf(counter, joules),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => SensorSource::Denied,
            Err(error) => SensorSource::Unreadable(format!("perf refuses: {error}")),
        },
        false => SensorSource::Unreadable("it is another machine's".into()),
    };
    let kind = SensorKind::Counter { wraps_at: None };
    let name = format!("{event} of CPU {cpu}");
    let path = format!("/{PMUS}/{pmu}");
    Some(EnergySensor::new(
        domain,
        ("perf", &name),
        &path,
        source,
        kind,
    ))
}
