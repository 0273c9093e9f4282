// SPDX-License-Identifier: GPL-2.0-only
//! The one reader of energy sensors: what there is, what cannot be seen and why, and joules since it was made.
//!
//! Where sensors come from says [`find`]; whether one is believed, [`hetero_core::energy::judge`] and, beside others,
//! [`hetero_core::energy::whole`]. Files stay
//! open, and a look allocates nothing.

mod battery;
mod find;
mod limits;
pub mod meter;
mod perf;
mod sensor;

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use log::{info, warn};
use nix::time::{ClockId, clock_gettime};

use hetero_core::energy::judge::SensorLie;
use hetero_core::energy::reading::EnergyReading;
use hetero_core::energy::whole::WholeJudge;

use crate::topology::{MAX_CORE_TYPES, Sysfs, Topology};
use battery::Battery;
pub use sensor::{EnergySensor, SensorStatus};

/// A battery's gauge is looked at no more often: its firmware reckons as slowly.
const BATTERY_LOOK: Duration = Duration::from_secs(5);

/// The machine slept between two looks if the clocks that count that and do not are so much further apart.
const ASLEEP: Duration = Duration::from_millis(500);

/// What a sensor measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EnergyDomain {
    /// A processor package, all in all.
    Package,
    /// Its cores.
    Cores,
    /// What it has beside them, as a graphics unit.
    Uncore,
    /// Cores of a type, by index, or some of them.
    CoreType(usize),
    /// Memory.
    Memory,
    /// The whole machine.
    Platform,
    /// Nothing says.
    Unknown,
}

impl EnergyDomain {
    const SUMS: usize = 6 + MAX_CORE_TYPES;

    fn index(self) -> usize {
        match self {
            Self::Package => 0,
            Self::Cores => 1,
            Self::Uncore => 2,
            Self::Memory => 3,
            Self::Platform => 4,
            Self::Unknown => 5,
            Self::CoreType(core_type) => 6 + core_type.min(MAX_CORE_TYPES - 1),
        }
    }
}

impl fmt::Display for EnergyDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Package => f.pad("package"),
            Self::Cores => f.pad("cores"),
            Self::Uncore => f.pad("uncore"),
            Self::CoreType(core_type) => f.pad(&format!("core type {core_type}")),
            Self::Memory => f.pad("memory"),
            Self::Platform => f.pad("platform"),
            Self::Unknown => f.pad("unknown"),
        }
    }
}

/// See the module.
pub struct Energy {
    sensors: Vec<EnergySensor>,
    nr_types: usize,
    battery: Battery,
    battery_looked: Option<Instant>,
    wholes: WholeJudge,
    /// By [`EnergyDomain::index`]; `None` where nothing counts it, or did not at the last look.
    sums: [Option<f64>; EnergyDomain::SUMS],
    /// Each interval since it was made is known.
    is_whole: bool,
    looked: Option<Instant>,
    /// For how long the machine had slept by then, see [`asleep`].
    asleep: Duration,
    began: Instant,
    /// What the last look took.
    took: Duration,
}

/// For how long the machine has been suspended since it was started: [`Instant`] does not count that.
fn asleep() -> Duration {
    let of = |clock| clock_gettime(clock).map_or(Duration::ZERO, Duration::from);
    let running = of(ClockId::CLOCK_MONOTONIC);
    of(ClockId::CLOCK_BOOTTIME).saturating_sub(running)
}

impl Energy {
    /// Counts on this machine from now on.
    pub fn from_now() -> Self {
        let root = Path::new("/");
        let topology = Topology::read(&Sysfs::new(root), None).ok();
        Self::below(root, topology.as_ref())
    }

    /// The same of a machine whose files lie below `root`. Without a topology it knows no clusters.
    pub fn below(root: &Path, topology: Option<&Topology>) -> Self {
        let nr_types = topology.map_or(0, |topology| topology.types.len().min(MAX_CORE_TYPES));
        let mut energy = Self {
            sensors: find::sensors(root, topology),
            nr_types,
            battery: Battery::find(root),
            battery_looked: None,
            wholes: WholeJudge::new(nr_types),
            sums: [None; EnergyDomain::SUMS],
            is_whole: true,
            looked: None,
            asleep: asleep(),
            began: Instant::now(),
            took: Duration::ZERO,
        };
        energy.look(Instant::now(), 0.0);
        energy
    }

    /// All that were found, those that cannot be read or are not believed among them.
    pub fn sensors(&self) -> &[EnergySensor] {
        &self.sensors
    }

    /// Joules of a domain since it was made, all sensors of it together; `None` unless all of them are read and
    /// believed.
    pub fn of(&self, domain: EnergyDomain) -> Option<f64> {
        self.sums[domain.index()]
    }

    /// What was counted by the last look, as attribution takes it.
    pub fn reading(&self) -> EnergyReading {
        EnergyReading {
            package: self.of(EnergyDomain::Package),
            cores: self.of(EnergyDomain::Cores),
            by_type: std::array::from_fn(|t| self.of(EnergyDomain::CoreType(t))),
            busy_ns: Default::default(),
        }
    }

    /// Whether what the processors take is counted, by any sensor.
    pub fn is_counted(&self) -> bool {
        self.reading().total_of(self.nr_types).is_some()
    }

    /// Whether there is any sensor to look at.
    pub fn has_any(&self) -> bool {
        let mut sensors = self.sensors.iter();
        sensors.any(|sensor| sensor.is_used() && sensor.domain != EnergyDomain::Unknown)
    }

    /// When it was last looked at.
    pub fn looked(&self) -> Option<Instant> {
        self.looked
    }

    /// How long the last look took: sensors behind slow buses are to be looked at more seldom.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// Joules of the processors since it was made; `None` if a part of that is not known. Counters wrap around
    /// after some minutes at the least, and power is integrated from look to look.
    pub fn joules(&mut self) -> Option<f64> {
        self.look(Instant::now(), 0.0);
        let known = self.reading().total_of(self.nr_types);
        known.filter(|_| self.is_whole)
    }

    /// Whether some of what [`Self::joules`] says is power, integrated from look to look.
    pub fn integrates(&self) -> bool {
        let used = self.sensors.iter().filter(|sensor| sensor.is_used());
        used.into_iter().any(EnergySensor::is_power)
    }

    /// Reads all sensors. CPUs have been busy for `busy` seconds since the last look, together; 0 is not known.
    pub fn look(&mut self, now: Instant, busy: f64) {
        self.look_at(now, busy, asleep());
    }

    /// The same on a machine that has slept for so long.
    fn look_at(&mut self, now: Instant, busy: f64, asleep: Duration) {
        let before = std::mem::replace(&mut self.asleep, asleep);
        if asleep.saturating_sub(before) >= ASLEEP {
            // `now` does not tell of that time, and what was taken in it was for no thread.
            self.sensors.iter_mut().for_each(EnergySensor::resume);
        }
        let at_ns = (now - self.began).as_nanos() as u64;
        let seconds = self
            .looked
            .replace(now)
            .map(|before| (now - before).as_secs_f64());
        let mut grown = [None; EnergyDomain::SUMS];
        for sensor in self.sensors.iter_mut().filter(|sensor| sensor.is_used()) {
            let joules = sensor.look(at_ns, busy);
            let sum: &mut Option<Option<f64>> = &mut grown[sensor.domain.index()];
            *sum = Some(match *sum {
                None => joules,
                Some(others) => others.zip(joules).map(|(a, b)| a + b),
            });
        }
        if let Some(seconds) = seconds {
            self.take(&grown);
            self.compare(now, seconds, &grown);
        } else {
            // Readable, and nothing counted yet.
            for (sum, grown) in self.sums.iter_mut().zip(grown) {
                *sum = grown.map(|_| 0.0);
            }
        }
        self.took = now.elapsed();
    }

    /// Adds up what domains have taken.
    fn take(&mut self, grown: &[Option<Option<f64>>; EnergyDomain::SUMS]) {
        for (index, grown) in grown.iter().enumerate() {
            let sum = &mut self.sums[index];
            let counts = index != EnergyDomain::Unknown.index();
            match (*grown, *sum) {
                (Some(Some(joules)), known) => *sum = Some(known.unwrap_or_default() + joules),
                (Some(None), _) => {
                    *sum = None;
                    self.is_whole &= !counts;
                }
                (None, _) => *sum = None,
            }
        }
        for sensor in &mut self.sensors {
            if let Some(lie) = sensor.take_news() {
                warn!("{sensor} is not used any more: {lie}");
                if sensor.domain != EnergyDomain::Unknown {
                    self.is_whole = false;
                    self.sums[sensor.domain.index()] = None;
                }
            }
        }
    }

    /// Cores cannot take more than their package, nor can that take more than the battery gives.
    fn compare(
        &mut self,
        now: Instant,
        seconds: f64,
        grown: &[Option<Option<f64>>; EnergyDomain::SUMS],
    ) {
        let of = |domain: EnergyDomain| grown[domain.index()].flatten();
        let grown = EnergyReading {
            package: of(EnergyDomain::Package),
            cores: of(EnergyDomain::Cores),
            by_type: std::array::from_fn(|t| of(EnergyDomain::CoreType(t))),
            busy_ns: Default::default(),
        };
        let given = self.given(now, seconds);
        let excess = self.wholes.look(seconds, &grown, given);
        if excess.package {
            self.distrust(EnergyDomain::Package);
        }
        if excess.cores {
            self.distrust(EnergyDomain::Cores);
        }
        for (t, _) in excess.types.iter().enumerate().filter(|(_, is)| **is) {
            self.distrust(EnergyDomain::CoreType(t));
        }
    }

    /// What the battery gives in so many seconds by its last answer, J; `None` where it does not feed the machine alone.
    fn given(&mut self, now: Instant, seconds: f64) -> Option<f64> {
        if !self.battery.is_there() {
            return None;
        }
        let due = self
            .battery_looked
            .is_none_or(|at| now >= at + BATTERY_LOOK);
        if due {
            self.battery_looked = Some(now);
            self.battery.look();
        }
        self.battery.watts().map(|watts| watts * seconds)
    }

    fn distrust(&mut self, domain: EnergyDomain) {
        for sensor in self.sensors.iter_mut().filter(|s| s.domain == domain) {
            sensor.distrust(SensorLie::Exceeds);
        }
    }

    /// Says once what there is, and what is missing.
    pub fn say(&self) {
        match self.missing() {
            None => info!("energy is counted by {}", self.told()),
            Some(why) => info!("energy is not counted: {why}"),
        }
    }

    /// The sensors that are used, in words.
    pub fn told(&self) -> String {
        let mut domains: Vec<EnergyDomain> = self
            .sensors
            .iter()
            .filter(|sensor| sensor.is_used() && sensor.domain != EnergyDomain::Unknown)
            .map(|sensor| sensor.domain)
            .collect();
        domains.sort_unstable();
        domains.dedup();
        let told = domains.iter().map(|domain| {
            let mut of = self
                .sensors
                .iter()
                .filter(|s| s.is_used() && s.domain == *domain);
            let by = of.next().map_or("", EnergySensor::driver);
            format!("{domain} ({by})")
        });
        told.collect::<Vec<_>>().join(", ")
    }

    /// What no sensor tells apart, of what a machine may have.
    pub fn unseen(&self) -> String {
        let seen: Vec<EnergyDomain> = self
            .sensors
            .iter()
            .filter(|sensor| sensor.is_used())
            .map(|sensor| match sensor.domain {
                EnergyDomain::CoreType(_) => EnergyDomain::Cores,
                domain => domain,
            })
            .collect();
        let all = [
            EnergyDomain::Cores,
            EnergyDomain::Memory,
            EnergyDomain::Platform,
        ];
        let unseen = all.iter().filter(|domain| !seen.contains(domain));
        unseen
            .map(EnergyDomain::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Why the processors' energy is not counted, with the remedy where there is one; `None` where it is.
    pub fn missing(&self) -> Option<String> {
        if self.is_counted() {
            return None;
        }
        let why = self
            .sensors
            .iter()
            .find_map(|sensor| match sensor.status() {
                SensorStatus::Unreadable(why) => Some(format!("{sensor}: {why}")),
                SensorStatus::Lies(lie) => Some(format!("{sensor}: {lie}")),
                SensorStatus::Used => None,
            });
        let is_unknown = |s: &&EnergySensor| s.is_used() && s.domain == EnergyDomain::Unknown;
        let unknown = self.sensors.iter().find(is_unknown);
        Some(match (why, unknown) {
            (Some(why), _) => why,
            (None, Some(sensor)) => {
                format!("nothing says what {sensor} measures, and there is no other sensor")
            }
            (None, None) if self.has_any() => "only a part of the processors has a sensor".into(),
            (None, None) => find::NONE.to_string(),
        })
    }
}

#[cfg(test)]
mod tests;
