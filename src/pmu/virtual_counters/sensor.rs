// SPDX-License-Identifier: GPL-2.0-only
//! Reading one counter's file, and saying in words why there is no value.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::topology::cpulist;

use super::{CounterName, Scope, Unit};

/// Absolute zero, °C.
const COLDEST: f64 = -273.15;

/// A file with a counter's value.
#[derive(Clone, Debug)]
pub(super) struct FileSensor {
    pub file: PathBuf,
    /// A file and what it must hold: for a counter whose path may come to be another's, as the
    /// numbers of thermal zones are given out again.
    pub identity: Option<(PathBuf, String)>,
}

impl FileSensor {
    /// Reads the value in the unit of `name`; the error is a phrase. `online` is the CPUs that
    /// are, where known.
    pub(super) fn read(
        &self,
        name: CounterName,
        scope: &Scope,
        online: Option<&[u32]>,
    ) -> Result<f64, String> {
        // The file tells nothing: an offline CPU's may be gone or show what its cluster does.
        if let (Scope::Cpu(cpu), Some(online)) = (scope, online)
            && online.binary_search(cpu).is_err()
        {
            return Err(format!("CPU {cpu} is offline"));
        }
        if let Some((file, expected)) = &self.identity {
            let found = fs::read_to_string(file).map_err(|e| reason(&e, file))?;
            if found.trim() != expected {
                return Err(format!("the {expected} sensor is gone"));
            }
        }
        let text = fs::read_to_string(&self.file).map_err(|e| reason(&e, &self.file))?;
        value(name, text.trim())
    }
}

/// The CPUs that are online, ascending, where the kernel says so.
pub(super) fn online(root: &Path) -> Option<Vec<u32>> {
    let text = fs::read_to_string(root.join("sys/devices/system/cpu/online")).ok()?;
    cpulist::parse(&text).ok()
}

/// A file's number in the unit of `name`. Drivers say in several ways that they have none.
fn value(name: CounterName, text: &str) -> Result<f64, String> {
    // i64 holds all there is: 2^63 µJ is 9 TJ, and 2^63 bytes take months at the fastest memory.
    let raw: i64 = text
        .parse()
        .map_err(|_| format!("the kernel says '{text}' instead of a number"))?;
    let value = in_unit(name.unit(), raw as f64);
    let sane = match name.unit() {
        Unit::Hertz => raw > 0,
        Unit::Celsius => value > COLDEST,
        // A discharging battery's sensor may show negative power.
        Unit::Watts => true,
        Unit::Joules | Unit::Bytes => raw >= 0,
    };
    match sane {
        true => Ok(value),
        false => Err(format!("the driver does not know it (it says {raw})")),
    }
}

/// The kernel's number in `unit`: it counts in µJ, µW, bytes, kHz and m°C.
pub(super) fn in_unit(unit: Unit, raw: f64) -> f64 {
    match unit {
        Unit::Joules | Unit::Watts => raw / 1e6,
        Unit::Bytes => raw,
        Unit::Hertz => raw * 1e3,
        Unit::Celsius => raw / 1e3,
    }
}

fn reason(error: &io::Error, file: &Path) -> String {
    let file = file.display();
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!("{file} is not readable without root"),
        io::ErrorKind::NotFound => {
            format!("{file} is gone: the device was unplugged or its driver unloaded")
        }
        _ => format!("the driver gives no value now ({error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(name: CounterName, text: &str, expected: &str) {
        let error = value(name, text).expect_err("accepted");
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn numbers_become_base_units() {
        assert_eq!(value(CounterName::EnergyPackage, "1500000"), Ok(1.5));
        assert_eq!(value(CounterName::Frequency, "4700000"), Ok(4.7e9));
        assert_eq!(value(CounterName::Temperature, "-40000"), Ok(-40.0));
        assert_eq!(value(CounterName::LlcOccupancy, "0"), Ok(0.0));
        assert_eq!(value(CounterName::PowerSensor, "-250000"), Ok(-0.25));
    }

    #[test]
    fn what_is_no_number_is_quoted() {
        fails(CounterName::MbmTotal, "Unavailable", "'Unavailable'");
        fails(CounterName::Frequency, "<unknown>", "'<unknown>'");
        fails(CounterName::Temperature, "", "''");
        fails(CounterName::EnergyCore, "1e99", "'1e99'");
    }

    #[test]
    fn numbers_that_mean_none_are_none() {
        fails(CounterName::Frequency, "0", "does not know");
        fails(CounterName::Temperature, "-274000", "does not know");
        fails(CounterName::EnergyPackage, "-1", "does not know");
    }

    #[test]
    fn errors_tell_their_remedy_or_cause() {
        let say = |kind| reason(&io::Error::from(kind), Path::new("/sys/x"));
        let denied = say(io::ErrorKind::PermissionDenied);
        assert_eq!(denied, "/sys/x is not readable without root");
        assert!(say(io::ErrorKind::NotFound).contains("/sys/x is gone"));
        assert!(say(io::ErrorKind::ResourceBusy).contains("no value now"));
    }
}
