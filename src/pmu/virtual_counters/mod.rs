// SPDX-License-Identifier: GPL-2.0-only
//! Virtual counters: what no PMU counts but is worth reading alongside. Energy, cache occupancy,
//! memory bandwidth, frequency and temperature, as the kernel's drivers show them in files. The
//! term is PMCTrack's.
//!
//! None of them is per thread: each belongs to a CPU, a package, a cache or a sensor ([`Scope`]).
//! Every [`CounterName`] is described at least once, be it as absent with the reason, so a caller
//! sees what this machine lacks and never mistakes a lack for a zero.
//!
//! # Where they come from
//!
//! | name | file | remark |
//! |---|---|---|
//! | `energy-package`, `-core`, `-uncore`, `-dram`, `-psys` | `/sys/class/powercap/intel-rapl*/energy_uj` | Intel and AMD; root only since Linux 5.10. A zone that the MSR and the MMIO driver both show is taken once. |
//! | `energy-package`, `-core` | hwmon `energyN_input` of `amd_energy` | |
//! | `energy-sensor` | any other hwmon `energyN_input` | Arm's Juno and TC2, SCMI |
//! | `power-sensor` | hwmon `powerN_input`, else `powerN_average` | **not integrated**, see below |
//! | `llc-occupancy`, `mbm-total`, `mbm-local` | `/sys/fs/resctrl/mon_data/mon_L3_*` | tasks of resctrl's default control group only: all tasks, unless there are other groups; of one group after [`VirtualCounters::read_group`] |
//! | `frequency` | cpufreq's `scaling_cur_freq` | of an idle CPU the last known |
//! | `temperature` | hwmon `tempN_input` of CPU drivers, `thermal_zone*/temp` | thermal zones whose type tells of a CPU |
//!
//! A power reading is a [`CounterKind::Level`] in watts and is not turned into joules: a sensor's
//! reading is of an instant or of a time that it does not tell, so between two reads anything may
//! have happened, and a sum of such readings would pass an estimate off as a count.
//!
//! Energy over time is `src/energy/`'s, which finds its sensors here. The perf PMU `power` is not read here: it shows the same registers as RAPL's powercap zones, and
//! needs a privilege as they do. GPU sensors are left out: they say nothing about CPUs, and
//! reading one may wake a sleeping GPU.
//!
//! Reading is one file each, some through a slow bus: [`VirtualCounters::retain`] what is wanted.

mod find;
mod sensor;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use strum::{IntoStaticStr, VariantArray};

use sensor::FileSensor;

/// What a virtual counter is about; these are also the names on the command line.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    clap::ValueEnum,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum CounterName {
    /// Energy used by a processor package, cores and caches and all
    EnergyPackage,
    /// Energy used by the cores of a package
    EnergyCore,
    /// Energy used by a package's built-in GPU and the like
    EnergyUncore,
    /// Energy used by the memory of a package
    EnergyDram,
    /// Energy used by the whole platform
    EnergyPsys,
    /// Energy seen by a sensor on the board
    EnergySensor,
    /// Power seen by a sensor on the board
    PowerSensor,
    /// Bytes that a last-level cache holds
    LlcOccupancy,
    /// Bytes moved between a last-level cache and all memory
    MbmTotal,
    /// Bytes moved between a last-level cache and the memory of its own NUMA node
    MbmLocal,
    /// Frequency of a CPU
    Frequency,
    /// Temperature of a CPU or of what is close to one
    Temperature,
}

impl CounterName {
    /// Every name, in the order of [`VirtualCounters::describe`].
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The name as users write it.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// What its readings are in.
    pub fn unit(self) -> Unit {
        match self {
            Self::EnergyPackage
            | Self::EnergyCore
            | Self::EnergyUncore
            | Self::EnergyDram
            | Self::EnergyPsys
            | Self::EnergySensor => Unit::Joules,
            Self::PowerSensor => Unit::Watts,
            Self::LlcOccupancy | Self::MbmTotal | Self::MbmLocal => Unit::Bytes,
            Self::Frequency => Unit::Hertz,
            Self::Temperature => Unit::Celsius,
        }
    }

    fn is_level(self) -> bool {
        matches!(
            self,
            Self::PowerSensor | Self::LlcOccupancy | Self::Frequency | Self::Temperature
        )
    }
}

impl fmt::Display for CounterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What readings are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Energy.
    Joules,
    /// Power.
    Watts,
    /// Bytes, of a cache or through a bus.
    Bytes,
    /// Cycles per second.
    Hertz,
    /// Degrees Celsius.
    Celsius,
}

impl Unit {
    /// The unit's symbol: `J`, `W`, `B`, `Hz`, `°C`.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Joules => "J",
            Self::Watts => "W",
            Self::Bytes => "B",
            Self::Hertz => "Hz",
            Self::Celsius => "°C",
        }
    }
}

/// How a counter's readings over time are to be understood.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CounterKind {
    /// It only grows; what counts is the [`difference`].
    Cumulative {
        /// The highest reading, after which it starts at 0 again. `None` where it does not wrap
        /// around, or nothing says where.
        wraps_at: Option<f64>,
    },
    /// It goes up and down; each reading stands for itself.
    Level,
}

/// What a counter belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// All of the machine.
    Machine,
    /// A processor package, by the number that the topology has for it.
    Package(u32),
    /// One of several dies in a package.
    Die {
        /// The package.
        package: u32,
        /// The die's number in it.
        die: u32,
    },
    /// A level 3 cache.
    Llc {
        /// The kernel's number of it.
        id: u32,
        /// Online CPUs that share it, ascending; empty where the kernel does not say.
        cpus: Vec<u32>,
    },
    /// What the program that is counted has of a level 3 cache.
    LlcPart {
        /// The kernel's number of the cache.
        id: u32,
    },
    /// A CPU.
    Cpu(u32),
    /// A sensor, by its driver and label: what it measures, only the maker of the board knows.
    Sensor(String),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine => f.pad("machine"),
            Self::Package(id) => f.pad(&format!("package {id}")),
            Self::Die { package, die } => f.pad(&format!("package {package} die {die}")),
            Self::Llc { id, .. } => f.pad(&format!("L3 {id}")),
            Self::LlcPart { id } => f.pad(&format!("the program, L3 {id}")),
            Self::Cpu(id) => f.pad(&format!("CPU {id}")),
            Self::Sensor(label) => f.pad(label),
        }
    }
}

/// Whether a counter could be read when it was looked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CounterStatus {
    /// It could.
    Present,
    /// It could not, and why: a phrase for people, with the remedy where there is one.
    Absent(String),
}

/// A virtual counter of this machine, or one that it lacks.
#[derive(Clone, Debug, Serialize)]
pub struct Description {
    /// What it is about. Not unique: there is one a CPU, package, sensor, and so on.
    pub name: CounterName,
    /// What its readings are in.
    pub unit: Unit,
    /// How to understand them.
    pub kind: CounterKind,
    /// What it belongs to. Unique together with the name, except that energy may have two sources.
    pub scope: Scope,
    /// The file it is read from; for a counter that was not found, where it was looked for.
    pub source: String,
    /// Whether it could be read when it was looked for.
    pub status: CounterStatus,
    /// How to read it; `None` where nothing was found.
    #[serde(skip)]
    sensor: Option<FileSensor>,
}

/// What reading a counter gave.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VirtualReading {
    /// A value, in the counter's unit.
    Value(f64),
    /// No value now, and why: a phrase for people.
    Absent(String),
}

impl VirtualReading {
    /// The value, if there is one.
    pub fn value(&self) -> Option<f64> {
        match self {
            Self::Value(value) => Some(*value),
            Self::Absent(_) => None,
        }
    }
}

/// What a counter says of the time between two of its readings: how much a cumulative one grew,
/// the later value of a level.
///
/// One wrap-around is made up for; more of them cannot be seen, so read more often than a counter
/// wraps (RAPL: after minutes at full power). A suspended machine resets RAPL, which looks like a
/// wrap-around: drop the interval that a suspend lies in.
pub fn difference(
    kind: CounterKind,
    before: &VirtualReading,
    after: &VirtualReading,
) -> VirtualReading {
    let CounterKind::Cumulative { wraps_at } = kind else {
        return after.clone();
    };
    let (before, after) = match (before, after) {
        (VirtualReading::Value(before), VirtualReading::Value(after)) => (*before, *after),
        (VirtualReading::Absent(_), _) => return before.clone(),
        (_, VirtualReading::Absent(_)) => return after.clone(),
    };
    match wraps_at {
        _ if after >= before => VirtualReading::Value(after - before),
        Some(highest) if before <= highest => VirtualReading::Value(highest - before + after),
        _ => VirtualReading::Absent("it went backwards: somebody reset the counter".into()),
    }
}

/// The virtual counters of a machine.
#[derive(Clone, Debug)]
pub struct VirtualCounters {
    root: PathBuf,
    counters: Vec<Description>,
}

impl VirtualCounters {
    /// Looks for all of them, in the file system below `root` (`/`), and tries each once.
    ///
    /// What appears later (a driver loaded, resctrl mounted) is found by looking again.
    pub fn discover(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
            counters: find::find(root),
        }
    }

    /// The counters, by name, then from the best source to the worst, then by number. Each name is
    /// there at least once.
    pub fn describe(&self) -> &[Description] {
        &self.counters
    }

    /// Keeps the counters for which `wanted` is true and forgets the others.
    pub fn retain(&mut self, wanted: impl FnMut(&Description) -> bool) {
        self.counters.retain(wanted);
    }

    /// Has those of resctrl read from one of its groups, a folder below the root, instead of that which all tasks
    /// belong to at first.
    pub fn read_group(&mut self, group: &Path) {
        for counter in &mut self.counters {
            let (Scope::Llc { id, .. }, Some(sensor)) = (&counter.scope, &mut counter.sensor)
            else {
                continue;
            };
            // mon_data/mon_L3_00/llc_occupancy
            let names = sensor.file.iter().rev().take(3).collect::<Vec<_>>();
            let file: PathBuf = group.iter().chain(names.into_iter().rev()).collect();
            counter.scope = Scope::LlcPart { id: *id };
            counter.source = format!("/{}", file.display());
            sensor.file = self.root.join(file);
        }
    }

    /// Reads them all, in the order of [`Self::describe`].
    ///
    /// A counter that has vanished (a CPU taken offline, a driver unloaded) reads as absent, and
    /// has values again once it is back; one that was not found at all stays absent.
    pub fn read(&self) -> Vec<VirtualReading> {
        let of_cpus = |counter: &Description| matches!(counter.scope, Scope::Cpu(_));
        let online = if self.counters.iter().any(of_cpus) {
            sensor::online(&self.root)
        } else {
            None
        };
        let readings = self.counters.iter().map(|counter| {
            let result = match (&counter.sensor, &counter.status) {
                (Some(sensor), _) => sensor.read(counter.name, &counter.scope, online.as_deref()),
                (None, CounterStatus::Absent(why)) => Err(why.clone()),
                (None, CounterStatus::Present) => Err("it has no source".into()),
            };
            result.map_or_else(VirtualReading::Absent, VirtualReading::Value)
        });
        readings.collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    const ENERGY: CounterKind = CounterKind::Cumulative {
        wraps_at: Some(262_143.0),
    };
    const BYTES: CounterKind = CounterKind::Cumulative { wraps_at: None };

    fn diff(kind: CounterKind, before: f64, after: f64) -> VirtualReading {
        difference(
            kind,
            &VirtualReading::Value(before),
            &VirtualReading::Value(after),
        )
    }

    #[test]
    fn a_cumulative_counter_grows() {
        assert_eq!(diff(ENERGY, 10.5, 42.0), VirtualReading::Value(31.5));
        assert_eq!(diff(ENERGY, 42.0, 42.0), VirtualReading::Value(0.0));
        assert_eq!(diff(BYTES, 1e15, 1e15 + 1.0), VirtualReading::Value(1.0));
    }

    #[test]
    fn energy_that_wrapped_around_goes_on_from_zero() {
        assert_eq!(diff(ENERGY, 262_133.0, 20.0), VirtualReading::Value(30.0));
        assert_eq!(diff(ENERGY, 262_143.0, 0.0), VirtualReading::Value(0.0));
    }

    #[test]
    fn a_counter_that_cannot_have_wrapped_was_reset() {
        for reading in [diff(BYTES, 100.0, 99.0), diff(ENERGY, 300_000.0, 1.0)] {
            assert!(
                matches!(&reading, VirtualReading::Absent(why) if why.contains("reset")),
                "{reading:?}"
            );
        }
    }

    #[test]
    fn a_level_stands_for_itself() {
        assert_eq!(
            diff(CounterKind::Level, 60.0, 55.5),
            VirtualReading::Value(55.5)
        );
        let absent = VirtualReading::Absent("CPU 3 is offline".into());
        let back = difference(CounterKind::Level, &absent, &VirtualReading::Value(1.0));
        assert_eq!(back, VirtualReading::Value(1.0));
    }

    #[test]
    fn no_difference_without_both_readings() {
        let absent = VirtualReading::Absent("gone".into());
        let one = VirtualReading::Value(1.0);
        assert_eq!(difference(ENERGY, &absent, &one), absent);
        assert_eq!(difference(ENERGY, &one, &absent), absent);
    }

    #[test]
    fn units_are_those_of_the_si() {
        let symbols = CounterName::ALL.iter().map(|name| name.unit().symbol());
        let symbols = symbols.collect::<Vec<_>>().join(" ");
        assert_eq!(symbols, "J J J J J J W B B B Hz °C");
    }

    #[test]
    fn names_are_the_command_lines() {
        assert_eq!(CounterName::value_variants(), CounterName::ALL);
        assert!(CounterName::ALL.is_sorted());
        for name in CounterName::ALL {
            let value = name.to_possible_value().unwrap();
            assert_eq!(value.get_name(), name.as_str());
            assert_eq!(serde_json::to_string(&name).unwrap(), format!("\"{name}\""));
        }
    }
}
