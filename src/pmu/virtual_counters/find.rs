// SPDX-License-Identifier: GPL-2.0-only
//! Looks for the counters that this machine has.

use std::fs;
use std::path::{Path, PathBuf};

use crate::files::read_trimmed;
use crate::topology::cpulist;

use super::sensor::{self, FileSensor};
use super::{CounterKind, CounterName, CounterStatus, Description, Scope};

const CPU: &str = "sys/devices/system/cpu";
const POWERCAP: &str = "sys/class/powercap";
const HWMON: &str = "sys/class/hwmon";
const THERMAL: &str = "sys/class/thermal";
const RESCTRL: &str = "sys/fs/resctrl";
const POWER_PMU: &str = "sys/bus/event_source/devices/power";

/// hwmon drivers whose temperatures are the CPU's; those that only repeat a thermal zone are not
/// among them.
const CPU_CHIPS: [&str; 7] = [
    "coretemp",
    "k8temp",
    "k10temp",
    "zenpower",
    "via_cputemp",
    "scpi_sensors",
    "scmi_sensors",
];
/// hwmon drivers of GPUs.
const GPU_CHIPS: [&str; 5] = ["amdgpu", "radeon", "nouveau", "i915", "xe"];

/// Describes every counter found and every name of which there is none, by name.
pub(super) fn find(root: &Path) -> Vec<Description> {
    let mut finder = Finder {
        root,
        online: sensor::online(root),
        virtual_machine: is_virtual(root),
        found: Vec::new(),
    };
    let chips = finder.chips();
    finder.energy(&chips);
    finder.power(&chips);
    finder.resctrl();
    finder.frequency();
    finder.temperature(&chips);
    // Stable, so that sources stay in the order in which they were tried.
    finder.found.sort_by_key(|description| description.name);
    finder.found
}

struct Finder<'a> {
    root: &'a Path,
    online: Option<Vec<u32>>,
    virtual_machine: bool,
    found: Vec<Description>,
}

/// A hwmon device.
struct Chip {
    /// Its directory, below the root.
    dir: String,
    /// The same by way of its device, so that the path dies with the device: `hwmonN` is given
    /// out again.
    real_dir: PathBuf,
    /// What its driver calls itself.
    driver: String,
    /// What to call it: as the board's maker does, else like the driver; and if that is not
    /// enough to tell it from others, its device too.
    name: String,
}

/// One of a hwmon device's values.
struct Channel {
    /// The file's name, such as `temp1_input`.
    file: String,
    /// Its label, else its file's name up to the underscore.
    label: String,
}

impl Finder<'_> {
    fn energy(&mut self, chips: &[Chip]) {
        self.rapl();
        let has_rapl = !self.found.is_empty();
        self.hwmon_energy(chips);

        let without_rapl = if self.exists(POWER_PMU) {
            "the processor has RAPL, but its powercap driver is not loaded: modprobe intel_rapl_msr"
                .to_string()
        } else {
            self.none("there is no RAPL: the processor has none or the driver is not loaded")
        };
        for (name, domain) in [
            (CounterName::EnergyPackage, "package"),
            (CounterName::EnergyCore, "core"),
            (CounterName::EnergyUncore, "uncore"),
            (CounterName::EnergyDram, "dram"),
            (CounterName::EnergyPsys, "psys"),
        ] {
            let why = match has_rapl {
                true => format!("this processor's RAPL has no {domain} domain"),
                false => without_rapl.clone(),
            };
            self.absent_unless_found(name, POWERCAP, why);
        }
        let why = self.none("no hwmon driver shows an energy sensor");
        self.absent_unless_found(CounterName::EnergySensor, HWMON, why);
    }

    fn rapl(&mut self) {
        let zones = self.names(POWERCAP).into_iter();
        let mut zones: Vec<_> = zones
            .filter_map(|zone| Some((zone_order(&zone)?, zone)))
            .collect();
        zones.sort();
        for (_, zone) in zones {
            let dir = format!("{POWERCAP}/{zone}");
            if !self.exists(&format!("{dir}/energy_uj")) {
                continue;
            }
            let domain = self.text(&format!("{dir}/name")).unwrap_or_default();
            let name = match domain.as_str() {
                "core" => CounterName::EnergyCore,
                "uncore" => CounterName::EnergyUncore,
                "dram" => CounterName::EnergyDram,
                "psys" => CounterName::EnergyPsys,
                _ if domain.starts_with("package") => CounterName::EnergyPackage,
                _ => continue,
            };
            // A domain in a package carries the package's number: intel-rapl:0:1 is of
            // intel-rapl:0.
            let package = match zone.split(':').nth(2) {
                None => domain,
                Some(_) => zone
                    .rsplit_once(':')
                    .and_then(|(parent, _)| self.text(&format!("{POWERCAP}/{parent}/name")))
                    .unwrap_or_default(),
            };
            let scope = package_scope(&package);
            if self.has(name, &scope) {
                continue;
            }
            let range = self.text(&format!("{dir}/max_energy_range_uj"));
            let wraps_at = range
                .and_then(|text| text.parse::<u64>().ok())
                .filter(|&range| range > 0)
                .map(|range| sensor::in_unit(name.unit(), range as f64));
            self.add(name, scope, wraps_at, format!("{dir}/energy_uj"));
        }
    }

    fn hwmon_energy(&mut self, chips: &[Chip]) {
        for (chip, channel) in self.channels(chips, "energy", &["input"]) {
            let number = |prefix| numbered(&channel.label, prefix, "");
            let (name, scope) = match chip.driver.as_str() {
                driver if GPU_CHIPS.contains(&driver) => continue,
                "amd_energy" => match (number("Esocket"), number("Ecore")) {
                    (Some(socket), _) => (CounterName::EnergyPackage, Scope::Package(socket)),
                    (_, Some(_)) => (CounterName::EnergyCore, chip.scope(&channel)),
                    _ => (CounterName::EnergySensor, chip.scope(&channel)),
                },
                _ => (CounterName::EnergySensor, chip.scope(&channel)),
            };
            self.add_channel(name, scope, chip, &channel);
        }
    }

    fn power(&mut self, chips: &[Chip]) {
        for (chip, channel) in self.channels(chips, "power", &["input", "average"]) {
            if !GPU_CHIPS.contains(&chip.driver.as_str()) {
                self.add_channel(
                    CounterName::PowerSensor,
                    chip.scope(&channel),
                    chip,
                    &channel,
                );
            }
        }
        let why = self.none("no hwmon driver shows a power sensor");
        self.absent_unless_found(CounterName::PowerSensor, HWMON, why);
    }

    fn resctrl(&mut self) {
        let mon_data = format!("{RESCTRL}/mon_data");
        let why = if !self.exists(RESCTRL) {
            self.none("this processor or kernel has no resctrl")
        } else if !self.exists(&format!("{RESCTRL}/info")) {
            "resctrl is not mounted: mount -t resctrl resctrl /sys/fs/resctrl".into()
        } else if !self.exists(&mon_data) {
            "this processor's resctrl does not monitor".into()
        } else {
            let mut caches: Vec<_> = self.names(&mon_data);
            caches.retain(|name| numbered(name, "mon_L3_", "").is_some());
            caches.sort_by_key(|name| numbered(name, "mon_L3_", ""));
            for cache in caches {
                let id = numbered(&cache, "mon_L3_", "").unwrap_or_default();
                let cpus = self.sharing_l3(id);
                for (name, file) in [
                    (CounterName::LlcOccupancy, "llc_occupancy"),
                    (CounterName::MbmTotal, "mbm_total_bytes"),
                    (CounterName::MbmLocal, "mbm_local_bytes"),
                ] {
                    let (file, cpus) = (format!("{mon_data}/{cache}/{file}"), cpus.clone());
                    if self.exists(&file) {
                        self.add(name, Scope::Llc { id, cpus }, None, file);
                    }
                }
            }
            "this processor's resctrl does not monitor this".into()
        };
        for name in [
            CounterName::LlcOccupancy,
            CounterName::MbmTotal,
            CounterName::MbmLocal,
        ] {
            self.absent_unless_found(name, RESCTRL, why.clone());
        }
    }

    /// The online CPUs that share the level 3 cache with this number, ascending.
    fn sharing_l3(&self, id: u32) -> Vec<u32> {
        let mut cpus = self.online.clone().unwrap_or_default();
        cpus.retain(|cpu| {
            (0..10).any(|index| {
                let cache = format!("{CPU}/cpu{cpu}/cache/index{index}");
                self.text(&format!("{cache}/level")).as_deref() == Some("3")
                    && self.text(&format!("{cache}/id")) == Some(id.to_string())
            })
        });
        cpus
    }

    fn frequency(&mut self) {
        let file = |cpu| format!("{CPU}/cpu{cpu}/cpufreq/scaling_cur_freq");
        let present = self.text(&format!("{CPU}/present"));
        let cpus = present
            .and_then(|list| cpulist::parse(&list).ok())
            .or_else(|| self.online.clone())
            .unwrap_or_default();
        // Where there is cpufreq, a CPU that is offline now is listed: it may come back.
        if cpus.iter().any(|&cpu| self.exists(&file(cpu))) {
            for cpu in cpus {
                self.add(CounterName::Frequency, Scope::Cpu(cpu), None, file(cpu));
            }
        }
        let why = self.none("no CPU has a cpufreq driver");
        self.absent_unless_found(CounterName::Frequency, CPU, why);
    }

    fn temperature(&mut self, chips: &[Chip]) {
        for (chip, channel) in self.channels(chips, "temp", &["input"]) {
            if CPU_CHIPS.contains(&chip.driver.as_str()) {
                let scope = match numbered(&channel.label, "Package id ", "") {
                    Some(package) => Scope::Package(package),
                    None => chip.scope(&channel),
                };
                self.add_channel(CounterName::Temperature, scope, chip, &channel);
            }
        }
        let mut zones = self.names(THERMAL);
        zones.retain(|zone| numbered(zone, "thermal_zone", "").is_some());
        zones.sort_by_key(|zone| numbered(zone, "thermal_zone", ""));
        let kind = |zone: &String| self.text(&format!("{THERMAL}/{zone}/type"));
        let kinds: Vec<_> = zones
            .iter()
            .map(|zone| kind(zone).unwrap_or_default())
            .collect();
        for (zone, kind) in zones.iter().zip(&kinds) {
            if !is_cpu_zone(kind) {
                continue;
            }
            let alike = kinds.iter().filter(|other| *other == kind).count();
            let scope = Scope::Sensor(match alike {
                1 => kind.clone(),
                _ => format!("{kind} {zone}"),
            });
            let path = format!("{THERMAL}/{zone}/temp");
            let sensor = FileSensor {
                file: self.root.join(&path),
                identity: Some((
                    self.root.join(format!("{THERMAL}/{zone}/type")),
                    kind.clone(),
                )),
            };
            self.add_sensor(CounterName::Temperature, scope, None, path, sensor);
        }
        let why = match kinds.is_empty() {
            true => self.none("no thermal zone or hwmon driver shows one"),
            false => format!("no thermal zone is a CPU's: there is {}", kinds.join(", ")),
        };
        self.absent_unless_found(CounterName::Temperature, THERMAL, why);
    }

    /// The hwmon devices, by number.
    fn chips(&self) -> Vec<Chip> {
        let mut names = self.names(HWMON);
        names.sort_by_key(|name| numbered(name, "hwmon", ""));
        let (mut chips, mut devices) = (Vec::new(), Vec::new());
        for hwmon in names {
            let dir = format!("{HWMON}/{hwmon}");
            let Some(driver) = self.text(&format!("{dir}/name")) else {
                continue;
            };
            let label = self.text(&format!("{dir}/label"));
            let real_dir = self.root.join(&dir);
            let device = fs::read_link(real_dir.join("device")).ok();
            let device = device.as_ref().and_then(|path| path.file_name()?.to_str());
            devices.push(device.unwrap_or(&hwmon).to_string());
            chips.push(Chip {
                name: label.unwrap_or_else(|| driver.clone()),
                driver,
                real_dir: fs::canonicalize(&real_dir).unwrap_or(real_dir),
                dir,
            });
        }
        let names: Vec<_> = chips.iter().map(|chip| chip.name.clone()).collect();
        for (chip, device) in chips.iter_mut().zip(devices) {
            if names.iter().filter(|name| **name == chip.name).count() > 1 {
                chip.name = format!("{} {device}", chip.name);
            }
        }
        chips
    }

    /// The channels of one kind of all devices; of a channel's files, the first that there is of
    /// those that end in `suffixes`.
    fn channels<'c>(
        &self,
        chips: &'c [Chip],
        kind: &str,
        suffixes: &[&str],
    ) -> Vec<(&'c Chip, Channel)> {
        let mut channels = Vec::new();
        for chip in chips {
            let files = self.names(&chip.dir);
            let number = |file: &str, suffix| numbered(file, kind, &format!("_{suffix}"));
            let numbers = suffixes
                .iter()
                .flat_map(|suffix| files.iter().filter_map(move |file| number(file, suffix)));
            let mut numbers: Vec<u32> = numbers.collect();
            numbers.sort_unstable();
            numbers.dedup();
            for n in numbers {
                let mut names = suffixes.iter().map(|suffix| format!("{kind}{n}_{suffix}"));
                let Some(file) = names.find(|name| files.contains(name)) else {
                    continue;
                };
                let label = self.text(&format!("{}/{kind}{n}_label", chip.dir));
                let label = label.unwrap_or_else(|| format!("{kind}{n}"));
                channels.push((chip, Channel { file, label }));
            }
        }
        channels
    }

    /// Adds a hwmon sensor.
    fn add_channel(&mut self, name: CounterName, scope: Scope, chip: &Chip, channel: &Channel) {
        let source = format!("{}/{}", chip.dir, channel.file);
        let sensor = FileSensor {
            file: chip.real_dir.join(&channel.file),
            identity: None,
        };
        self.add_sensor(name, scope, None, source, sensor);
    }

    /// Adds a counter whose path, below the root, is its own for good.
    fn add(&mut self, name: CounterName, scope: Scope, wraps_at: Option<f64>, path: String) {
        let sensor = FileSensor {
            file: self.root.join(&path),
            identity: None,
        };
        self.add_sensor(name, scope, wraps_at, path, sensor);
    }

    fn add_sensor(
        &mut self,
        name: CounterName,
        scope: Scope,
        wraps_at: Option<f64>,
        path: String,
        sensor: FileSensor,
    ) {
        let status = match sensor.read(name, &scope, self.online.as_deref()) {
            Ok(_) => CounterStatus::Present,
            Err(why) => CounterStatus::Absent(why),
        };
        self.push(name, scope, wraps_at, &path, status, Some(sensor));
    }

    /// Says why there is no counter of this name, if there is none.
    fn absent_unless_found(&mut self, name: CounterName, looked_in: &str, why: String) {
        if !self.found.iter().any(|found| found.name == name) {
            let status = CounterStatus::Absent(why);
            self.push(name, Scope::Machine, None, looked_in, status, None);
        }
    }

    fn push(
        &mut self,
        name: CounterName,
        scope: Scope,
        wraps_at: Option<f64>,
        path: &str,
        status: CounterStatus,
        sensor: Option<FileSensor>,
    ) {
        self.found.push(Description {
            name,
            unit: name.unit(),
            kind: match name.is_level() {
                true => CounterKind::Level,
                false => CounterKind::Cumulative { wraps_at },
            },
            scope,
            source: format!("/{path}"),
            status,
            sensor,
        });
    }

    fn has(&self, name: CounterName, scope: &Scope) -> bool {
        let mut found = self.found.iter();
        found.any(|found| found.name == name && found.scope == *scope)
    }

    /// `why` something is missing, and that a virtual machine is no place to look for it.
    fn none(&self, why: &str) -> String {
        match self.virtual_machine {
            true => format!("{why}; virtual machines rarely have it"),
            false => why.to_string(),
        }
    }

    fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    fn text(&self, path: &str) -> Option<String> {
        read_trimmed(self.root.join(path))
    }

    /// The names in a directory, in no order; none where there is no such directory.
    fn names(&self, dir: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(dir)).into_iter().flatten();
        let names = entries.flatten().map(|entry| entry.file_name());
        names.filter_map(|name| name.into_string().ok()).collect()
    }
}

impl Chip {
    fn scope(&self, channel: &Channel) -> Scope {
        Scope::Sensor(format!("{} {}", self.name, channel.label))
    }
}

/// Whether this is a virtual machine that admits to it.
fn is_virtual(root: &Path) -> bool {
    let cpuinfo = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|line| line.split_whitespace().any(|flag| flag == "hypervisor"))
        || root.join("sys/hypervisor/type").exists()
}

/// The number between `prefix` and `suffix`: 3 in `temp3_input`.
fn numbered(name: &str, prefix: &str, suffix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
    let all_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| digits.parse().ok())?
}

/// Where a powercap zone comes among its like, `None` for what is no RAPL zone: the drivers by
/// trust, then the zones by number. MSR, TPMI and MMIO show the same registers where a processor
/// has several.
fn zone_order(zone: &str) -> Option<(usize, Vec<u32>)> {
    let (driver, numbers) = zone.split_once(':')?;
    let drivers = ["intel-rapl", "intel-rapl-tpmi", "intel-rapl-mmio"];
    let rank = drivers.iter().position(|known| *known == driver)?;
    let numbers = numbers.split(':').map(|number| number.parse().ok());
    Some((rank, numbers.collect::<Option<_>>()?))
}

/// What a RAPL zone called `package-1` or `package-1-die-0` belongs to; the machine for `psys`.
fn package_scope(name: &str) -> Scope {
    if let Some(package) = numbered(name, "package-", "") {
        return Scope::Package(package);
    }
    let (package, die) = name.split_once("-die-").unwrap_or_default();
    match (numbered(package, "package-", ""), die.parse()) {
        (Some(package), Ok(die)) => Scope::Die { package, die },
        _ => Scope::Machine,
    }
}

/// Whether a thermal zone of this type is of a CPU or of the chip it is on. The type is
/// `x86_pkg_temp` on Intel, and else what the board's device tree calls it: `cpu-thermal`,
/// `cpuss0-thermal`, `bigcore0-thermal`, `LITTLE`, `soc_thermal`.
fn is_cpu_zone(kind: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    kind.split(|c: char| !c.is_ascii_alphabetic()).any(|word| {
        ["cpu", "big", "little"]
            .iter()
            .any(|start| word.starts_with(start))
            || ["pkg", "tcpu", "core", "cluster", "mid", "soc"].contains(&word)
    })
}

#[cfg(test)]
mod tests;
