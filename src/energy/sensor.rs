// SPDX-License-Identifier: GPL-2.0-only
//! One energy sensor, kept open.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;

use hetero_core::energy::judge::{SensorJudge, SensorKind, SensorLie};

use super::EnergyDomain;
use super::limits::ZoneLimits;
use crate::pmu::open::Counter;
use crate::topology::Topology;

/// Whether a sensor is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SensorStatus {
    /// It is.
    Used,
    /// It cannot be read, and why: a phrase with the remedy.
    Unreadable(String),
    /// It was read, and is not believed.
    Lies(SensorLie),
}

/// Where a number comes from.
pub(super) enum SensorSource {
    /// A file with a number in µJ or µW.
    File(File),
    /// A counter of the perf PMU `power`, and the joules of each count.
    Perf(Counter, f64),
    /// Nothing can be read, and why.
    Unreadable(String),
    /// Only root may.
    Denied,
}

/// See the module.
pub struct EnergySensor {
    /// What it measures.
    pub domain: EnergyDomain,
    /// What its driver or board calls it.
    name: String,
    driver: String,
    /// Where it is read.
    path: String,
    source: SensorSource,
    kind: SensorKind,
    judge: SensorJudge,
    /// What may be taken, where anything says so.
    limits: Option<ZoneLimits>,
    /// Whether it was said that it lies.
    is_told: bool,
}

impl EnergySensor {
    pub(super) fn new(
        domain: EnergyDomain,
        (driver, name): (&str, &str),
        path: &str,
        source: SensorSource,
        kind: SensorKind,
    ) -> Self {
        Self {
            domain,
            name: name.into(),
            driver: driver.into(),
            path: path.into(),
            source,
            kind,
            judge: SensorJudge::new(kind),
            limits: None,
            is_told: false,
        }
    }

    /// The same of which no more than so much is believed.
    pub(super) fn limited(mut self, limits: Option<ZoneLimits>) -> Self {
        self.limits = limits;
        self
    }

    /// Whether it is.
    pub fn status(&self) -> SensorStatus {
        match (&self.source, self.judge.lie()) {
            (SensorSource::Unreadable(why), _) => SensorStatus::Unreadable(why.clone()),
            (SensorSource::Denied, _) => SensorStatus::Unreadable("only root may read it".into()),
            (_, Some(lie)) => SensorStatus::Lies(lie),
            _ => SensorStatus::Used,
        }
    }

    /// The same in a word.
    pub fn is_used(&self) -> bool {
        let is_open = matches!(self.source, SensorSource::File(_) | SensorSource::Perf(..));
        is_open && self.judge.lie().is_none()
    }

    /// Only root may read it.
    pub fn is_denied(&self) -> bool {
        matches!(self.source, SensorSource::Denied)
    }

    /// What it measures, with a core type's name.
    pub fn domain_name(&self, topology: Option<&Topology>) -> String {
        let types = topology.map_or(&[][..], |topology| &topology.types);
        match self.domain {
            EnergyDomain::CoreType(core_type) => types
                .get(core_type)
                .map_or_else(|| self.domain.to_string(), |kind| kind.name.clone()),
            other => other.to_string(),
        }
    }

    /// It shows watts, not joules.
    pub fn is_power(&self) -> bool {
        self.kind == SensorKind::Power
    }

    /// Which driver has it.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// Where it is read.
    pub fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn distrust(&mut self, lie: SensorLie) {
        self.judge.distrust(lie);
    }

    /// The machine slept, see [`SensorJudge::resume`].
    pub(super) fn resume(&mut self) {
        self.judge.resume();
    }

    /// That it lies, once.
    pub(super) fn take_news(&mut self) -> Option<SensorLie> {
        let lie = self.judge.lie()?;
        (!std::mem::replace(&mut self.is_told, true)).then_some(lie)
    }

    /// Joules since the last look.
    pub(super) fn look(&mut self, at_ns: u64, busy: f64) -> Option<f64> {
        let value = match &self.source {
            SensorSource::File(file) => number(file).map(|micro| micro / 1e6),
            SensorSource::Perf(counter, joules) => {
                let reading = counter.read().ok();
                reading.map(|reading| reading.value as f64 * joules)
            }
            SensorSource::Unreadable(_) | SensorSource::Denied => return None,
        };
        let limits = self.limits.as_ref();
        let limit = || limits.and_then(ZoneLimits::highest);
        self.judge.look(at_ns, busy, value, limit)
    }
}

impl fmt::Display for EnergySensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the sensor {} ({})", self.name, self.path)
    }
}

/// The number that a file holds, from its beginning.
pub(super) fn number(file: &File) -> Option<f64> {
    let mut text = [0; 32];
    let length = file.read_at(&mut text, 0).ok()?;
    let text = str::from_utf8(text.get(..length)?).ok()?;
    let whole: i64 = text.trim().parse().ok()?;
    Some(whole as f64)
}
