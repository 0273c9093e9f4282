// SPDX-License-Identifier: GPL-2.0-only
//! Does this machine's user want energy saved? Read from the files that power-profiles-daemon, tuned
//! and TLP write, so that no bus has to be asked: the service may not reach it.

use std::fmt;
use std::fs;
use std::path::Path;

use crate::files::read_trimmed;

/// Why energy is to be saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SavingReason {
    /// The firmware's platform profile, by its name.
    Platform(String),
    /// The CPUs' energy preference.
    Preference,
    /// Nobody has set any of that, and there is only a battery.
    Battery,
}

impl fmt::Display for SavingReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Platform(profile) => write!(f, "the platform profile is {profile}"),
            Self::Preference => f.write_str("the CPUs' energy preference is power"),
            Self::Battery => f.write_str("on battery"),
        }
    }
}

/// Platform profiles that stand for saving; what they mean says the kernel's
/// `Documentation/ABI/testing/sysfs-class-platform-profile`.
const FRUGAL: [&str; 2] = ["low-power", "quiet"];

/// Whether energy is to be saved, by what lies below `root` (`/`): what the user chose, by a power
/// profile; only where there is no such thing, whether the machine runs on a battery.
pub fn saving(root: &Path) -> Option<SavingReason> {
    let read = |path: &str| read_trimmed(root.join(path));
    let platform = read("sys/firmware/acpi/platform_profile");
    let preference = read("sys/devices/system/cpu/cpufreq/policy0/energy_performance_preference");
    match (platform, preference) {
        (Some(platform), _) if FRUGAL.contains(&platform.as_str()) => {
            Some(SavingReason::Platform(platform))
        }
        (_, Some(preference)) if preference == "power" => Some(SavingReason::Preference),
        (None, None) => on_battery(root).then_some(SavingReason::Battery),
        _ => None,
    }
}

/// A battery of the machine itself loses charge, and no supply is plugged in.
fn on_battery(root: &Path) -> bool {
    let Ok(supplies) = fs::read_dir(root.join("sys/class/power_supply")) else {
        return false;
    };
    let mut discharging = false;
    for supply in supplies.flatten() {
        let says = |file: &str, what: &str| {
            read_trimmed(supply.path().join(file)).is_some_and(|text| text == what)
        };
        let is_battery = says("type", "Battery");
        if !is_battery && says("online", "1") {
            return false;
        }
        // A mouse's, say, has the scope Device.
        discharging |= is_battery && says("status", "Discharging") && !says("scope", "Device");
    }
    discharging
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SysfsFiles;

    impl SysfsFiles {
        fn saving(&self) -> Option<SavingReason> {
            saving(self.root())
        }
    }

    const PLATFORM: &str = "sys/firmware/acpi/platform_profile";
    const PREFERENCE: &str = "sys/devices/system/cpu/cpufreq/policy0/energy_performance_preference";

    #[test]
    fn the_users_profile_counts_and_not_the_battery() {
        let laptop = SysfsFiles::new(&[
            (PLATFORM, "balanced"),
            (PREFERENCE, "balance_power"),
            ("sys/class/power_supply/BAT0/type", "Battery"),
            ("sys/class/power_supply/BAT0/status", "Discharging"),
        ]);
        assert_eq!(laptop.saving(), None);
        laptop.set(PREFERENCE, "power");
        assert_eq!(laptop.saving(), Some(SavingReason::Preference));
        laptop.set(PLATFORM, "low-power");
        let why = laptop.saving().unwrap();
        assert_eq!(why.to_string(), "the platform profile is low-power");
    }

    #[test]
    fn without_any_profile_the_battery_does() {
        assert_eq!(SysfsFiles::new(&[]).saving(), None);
        let laptop = SysfsFiles::new(&[
            ("sys/class/power_supply/AC/type", "Mains"),
            ("sys/class/power_supply/AC/online", "1"),
            ("sys/class/power_supply/BAT0/type", "Battery"),
            ("sys/class/power_supply/BAT0/status", "Discharging"),
        ]);
        assert_eq!(laptop.saving(), None);
        laptop.set("sys/class/power_supply/AC/online", "0");
        assert_eq!(laptop.saving(), Some(SavingReason::Battery));
        laptop.set("sys/class/power_supply/BAT0/status", "Full");
        assert_eq!(laptop.saving(), None);

        let mouse = SysfsFiles::new(&[
            ("sys/class/power_supply/hid/type", "Battery"),
            ("sys/class/power_supply/hid/scope", "Device"),
            ("sys/class/power_supply/hid/status", "Discharging"),
        ]);
        assert_eq!(mouse.saving(), None);
    }
}
