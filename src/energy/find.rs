// SPDX-License-Identifier: GPL-2.0-only
//! Which energy sensors a machine has, and what each is of. The best of several that show the same comes first:
//!
//! | from | what |
//! |---|---|
//! | powercap's RAPL, `/sys/class/powercap/intel-rapl*` | packages, cores, uncore, memory, the platform; Intel and AMD |
//! | perf's `power`, where powercap shows nothing | the same |
//! | perf's `power_core`, hwmon's `amd_energy` | each core of AMD's; its core type is known by the topology |
//! | hwmon's `energyN_input`, else `powerN_input` | clusters of ARM boards, by their labels, or by the board |

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use hetero_core::energy::judge::SensorKind;

use super::EnergyDomain;
use super::limits::ZoneLimits;
use super::perf;
use super::sensor::{EnergySensor, SensorSource};
use crate::pmu::virtual_counters::{
    CounterKind, CounterName, CounterStatus, Description, Scope, VirtualCounters,
};
use crate::topology::Topology;

/// What is missing where there is nothing.
pub(super) const NONE: &str = "no RAPL and no hwmon sensor of the processors; on Intel and AMD \
                               'modprobe intel_rapl_msr' may help";

/// Sensors of an ODROID-XU3, by their addresses on its bus: their driver has no labels.
const XU3: [(&str, Board); 3] = [
    ("-0040", Board::Fastest),
    ("-0041", Board::Memory),
    ("-0045", Board::Slowest),
];

#[derive(Clone, Copy)]
enum Board {
    Fastest,
    Slowest,
    Memory,
}

pub(super) fn sensors(root: &Path, topology: Option<&Topology>) -> Vec<EnergySensor> {
    let counters = VirtualCounters::discover(root);
    let found: Vec<&Description> = counters
        .describe()
        .iter()
        .filter(|counter| is_found(counter))
        .collect();
    let mut sensors = Vec::new();
    let is_amd = is_amd(root);
    let is_rapl = |counter: &&&Description| counter.source.contains("/powercap/");
    for counter in found.iter().filter(is_rapl) {
        if let Some(domain) = rapl(counter.name) {
            let sensor = match domain {
                EnergyDomain::Cores if is_amd => one_core(counter),
                _ => open(root, counter, domain, "powercap"),
            };
            // Memory and platform have budgets of their own.
            let is_within = matches!(
                domain,
                EnergyDomain::Package | EnergyDomain::Cores | EnergyDomain::Uncore
            );
            let limits = is_within.then(|| ZoneLimits::find(&below(root, counter)));
            sensors.push(sensor.limited(limits.flatten()));
        }
    }
    if sensors.is_empty() {
        perf::power(root, &mut sensors);
    }
    let has_package = sensors.iter().any(|s| s.domain == EnergyDomain::Package);
    let hwmon = || found.iter().filter(|counter| !is_rapl(counter));
    // AMD's driver: sockets where nothing else shows them, and cores.
    for counter in hwmon().filter(|c| rapl(c.name).is_some()) {
        let domain = match (counter.name, &counter.scope) {
            (CounterName::EnergyCore, Scope::Sensor(label)) => of_cpu(label, topology),
            (CounterName::EnergyPackage, _) if !has_package => Some(EnergyDomain::Package),
            _ => None,
        };
        if let Some(domain) = domain {
            sensors.push(open(root, counter, domain, "amd_energy"));
        }
    }
    if let Some(topology) = topology
        && !sensors
            .iter()
            .any(|s| matches!(s.domain, EnergyDomain::CoreType(_)))
    {
        perf::cores(root, topology, &mut sensors);
    }
    let boards = hwmon().filter(|counter| {
        matches!(
            counter.name,
            CounterName::EnergySensor | CounterName::PowerSensor
        )
    });
    add_boards(root, topology, boards.copied(), &mut sensors);
    sensors
}

/// Clusters' sensors: joules where there are, else watts.
fn add_boards<'a>(
    root: &Path,
    topology: Option<&Topology>,
    counters: impl Iterator<Item = &'a Description> + Clone,
    sensors: &mut Vec<EnergySensor>,
) {
    let label = |counter: &Description| match &counter.scope {
        Scope::Sensor(label) => label.clone(),
        other => other.to_string(),
    };
    let ends = |end: &str| {
        let mut labels = counters.clone().map(label);
        labels.any(|label| label.split(' ').any(|word| word.ends_with(end)))
    };
    let is_xu3 = XU3.iter().all(|(end, _)| ends(end));
    let mut has_joules = Vec::new();
    for counter in counters.clone() {
        let label = label(counter);
        if is_battery(root, &label) {
            continue;
        }
        let by_board = is_xu3.then(|| of_board(&label, topology)).flatten();
        let domain = by_board.unwrap_or_else(|| of_label(&label, topology));
        let is_joules = counter.name == CounterName::EnergySensor;
        if is_joules {
            has_joules.push(domain);
        } else if domain != EnergyDomain::Unknown && has_joules.contains(&domain) {
            continue;
        }
        sensors.push(open(root, counter, domain, "hwmon"));
    }
}

/// Something was found, though it may not be readable.
fn is_found(counter: &Description) -> bool {
    counter.status == CounterStatus::Present || counter.source.ends_with("_uj") || {
        let file = counter.source.rsplit('/').next().unwrap_or_default();
        file.ends_with("_input") || file.ends_with("_average")
    }
}

fn rapl(name: CounterName) -> Option<EnergyDomain> {
    Some(match name {
        CounterName::EnergyPackage => EnergyDomain::Package,
        CounterName::EnergyCore => EnergyDomain::Cores,
        CounterName::EnergyUncore => EnergyDomain::Uncore,
        CounterName::EnergyDram => EnergyDomain::Memory,
        CounterName::EnergyPsys => EnergyDomain::Platform,
        _ => return None,
    })
}

fn open(root: &Path, counter: &Description, domain: EnergyDomain, driver: &str) -> EnergySensor {
    let name = match &counter.scope {
        Scope::Sensor(label) => label.clone(),
        scope => format!("{domain} of {scope}"),
    };
    let kind = match counter.kind {
        CounterKind::Cumulative { wraps_at } => SensorKind::Counter { wraps_at },
        CounterKind::Level => SensorKind::Power,
    };
    let source = match File::open(below(root, counter)) {
        Ok(file) => SensorSource::File(file),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => SensorSource::Denied,
        Err(error) => SensorSource::Unreadable(error.to_string()),
    };
    EnergySensor::new(domain, (driver, &name), &counter.source, source, kind)
}

fn below(root: &Path, counter: &Description) -> PathBuf {
    root.join(counter.source.trim_start_matches('/'))
}

fn is_amd(root: &Path) -> bool {
    let cpuinfo = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let vendor = cpuinfo.lines().find(|line| line.starts_with("vendor_id"));
    vendor.is_some_and(|line| line.ends_with("AuthenticAMD") || line.ends_with("HygonGenuine"))
}

/// The zone `core` of AMD's: the register is each core's own, and powercap's driver reads that of a single one.
fn one_core(counter: &Description) -> EnergySensor {
    EnergySensor::new(
        EnergyDomain::Cores,
        ("powercap", "core"),
        &counter.source,
        SensorSource::Unreadable("on AMD's processors it counts a single core".into()),
        SensorKind::Counter { wraps_at: None },
    )
}

/// `amd_energy Ecore003` is of CPU 3.
fn of_cpu(label: &str, topology: Option<&Topology>) -> Option<EnergyDomain> {
    let (_, number) = label.rsplit_once("Ecore")?;
    let id: u32 = number.parse().ok()?;
    let cpu = topology?.cpus.iter().find(|cpu| cpu.id == id)?;
    Some(EnergyDomain::CoreType(cpu.core_type))
}

fn of_board(label: &str, topology: Option<&Topology>) -> Option<EnergyDomain> {
    let last = topology?
        .types
        .len()
        .checked_sub(1)
        .filter(|&last| last > 0)?;
    let (_, what) = XU3
        .iter()
        .find(|(end, _)| label.split(' ').any(|word| word.ends_with(end)))?;
    Some(match what {
        Board::Fastest => EnergyDomain::CoreType(0),
        Board::Slowest => EnergyDomain::CoreType(last),
        Board::Memory => EnergyDomain::Memory,
    })
}

/// By the words of its label: `SYS_ENM_A57`, `A15 Jcore`, `big`.
fn of_label(label: &str, topology: Option<&Topology>) -> EnergyDomain {
    let words: Vec<String> = label
        .split(|c: char| !c.is_ascii_alphanumeric())
        .map(str::to_ascii_lowercase)
        .collect();
    let has = |word: &str| words.iter().any(|w| w == word);
    if has("gpu") {
        return EnergyDomain::Unknown;
    }
    let types = topology.map_or(&[][..], |topology| &topology.types);
    for (core_type, kind) in types.iter().enumerate() {
        // The core's own name is in that of its PMU: armv8_cortex_a57.
        let core = kind.pmu.as_deref().and_then(|pmu| pmu.rsplit('_').next());
        let core = core.unwrap_or_default().to_ascii_lowercase();
        if has(&kind.name.to_ascii_lowercase()) || (core.len() > 1 && has(&core)) {
            return EnergyDomain::CoreType(core_type);
        }
    }
    match () {
        () if has("ddr") || has("dram") || has("mem") || has("memory") => EnergyDomain::Memory,
        () => EnergyDomain::Unknown,
    }
}

/// A battery's gauge shows itself as a sensor, too, under its name.
fn is_battery(root: &Path, label: &str) -> bool {
    let chip = label.split(' ').next().unwrap_or_default();
    let supply = root.join("sys/class/power_supply").join(chip);
    fs::exists(supply).unwrap_or(false) || chip.starts_with("BAT")
}
