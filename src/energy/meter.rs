// SPDX-License-Identifier: GPL-2.0-only
//! Joules over a stretch of time that something else is busy with: a thread looks at the sensors meanwhile.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam::channel::{RecvTimeoutError, Sender, bounded};

use super::Energy;

/// How often power is read, to be integrated.
const POWER: Duration = Duration::from_millis(100);

/// How often counters are: the smallest wrap around after a minute at some hundred watts.
const COUNTERS: Duration = Duration::from_secs(10);

/// See the module.
pub struct EnergyMeter {
    thread: Option<(Sender<()>, JoinHandle<Option<f64>>)>,
}

impl EnergyMeter {
    /// From now on.
    pub fn start(energy: Energy) -> Self {
        let step = if energy.integrates() { POWER } else { COUNTERS };
        let (stop, stopped) = bounded(1);
        let look = move || {
            let mut energy = energy;
            while stopped.recv_timeout(step) == Err(RecvTimeoutError::Timeout) {
                energy.joules();
            }
            energy.joules()
        };
        let thread = thread::Builder::new().name("energy".into()).spawn(look);
        Self {
            thread: thread.ok().map(|thread| (stop, thread)),
        }
    }

    /// Joules of the processors since; `None` if a part of that is not known.
    pub fn stop(mut self) -> Option<f64> {
        let (stop, thread) = self.thread.take()?;
        drop(stop);
        thread.join().ok()?
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn it_says_what_was_taken_and_nothing_without_a_sensor() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(
            EnergyMeter::start(Energy::below(root.path(), None)).stop(),
            None
        );
        let zone = root.path().join("sys/class/powercap/intel-rapl:0");
        fs::create_dir_all(&zone).unwrap();
        fs::write(zone.join("name"), "package-0").unwrap();
        fs::write(zone.join("energy_uj"), "1000000").unwrap();
        let meter = EnergyMeter::start(Energy::below(root.path(), None));
        fs::write(zone.join("energy_uj"), "3500000").unwrap();
        assert_eq!(meter.stop(), Some(2.5));
    }
}
