// SPDX-License-Identifier: GPL-2.0-only
//! What programs take, beyond what the idle machine takes: the watts of the processors while one
//! runs, less those before any did. So nothing is charged to a program that would be spent without it.

use std::time::{Duration, Instant};

use crate::energy::Energy;
use crate::energy::meter::EnergyMeter;

/// The idle machine is looked at for so long.
const IDLE: Duration = Duration::from_secs(2);

/// A run that took less time says nothing: power is read ten times a second.
pub(super) const LEAST: Duration = Duration::from_millis(200);

/// See the module.
pub(super) struct Meter {
    /// W, where there is a sensor.
    idle: Option<f64>,
    begun: Option<(Instant, EnergyMeter)>,
}

impl Meter {
    /// Looks at the machine, which should be idle, for two seconds where it has a sensor.
    pub(super) fn new() -> Self {
        let mut meter = Self {
            idle: None,
            begun: None,
        };
        if Energy::from_now().is_counted() {
            meter.start();
            std::thread::sleep(IDLE);
            meter.idle = meter.mean();
        }
        meter
    }

    /// Whether it tells anything.
    pub(super) fn tells(&self) -> bool {
        self.idle.is_some()
    }

    /// A program begins.
    pub(super) fn begin(&mut self) {
        if self.tells() {
            self.start();
        }
    }

    fn start(&mut self) {
        self.begun = Some((Instant::now(), EnergyMeter::start(Energy::from_now())));
    }

    /// Watts since.
    fn mean(&mut self) -> Option<f64> {
        let (begun, meter) = self.begun.take()?;
        let joules = meter.stop()?;
        let passed = begun.elapsed();
        (passed >= LEAST && joules > 0.0).then(|| joules / passed.as_secs_f64())
    }

    /// Watts since it began, once, beyond those of the idle machine; `None` if they cannot be told from these.
    pub(super) fn watts(&mut self) -> Option<f64> {
        let idle = self.idle?;
        let watts = self.mean()? - idle;
        (watts > 0.02 * idle).then_some(watts)
    }
}
