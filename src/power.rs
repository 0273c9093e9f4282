// SPDX-License-Identifier: GPL-2.0-only
//! Does this machine's user want energy saved? Read from the files that power-profiles-daemon, tuned
//! and TLP write, so that no bus has to be asked: the service may not reach it.

mod feedback;
pub mod limits;
pub mod preference;

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
    /// So many percent are left.
    BatteryLow(u8),
    /// Nobody has set any of that, and there is only a battery.
    Battery,
}

impl fmt::Display for SavingReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Platform(profile) => write!(f, "the platform profile is {profile}"),
            Self::Preference => f.write_str("the CPUs' energy preference is power"),
            Self::BatteryLow(percent) => write!(f, "the battery is at {percent} %"),
            Self::Battery => f.write_str("on battery"),
        }
    }
}

/// Platform profiles that stand for saving; what they mean says the kernel's
/// `Documentation/ABI/testing/sysfs-class-platform-profile`.
const FRUGAL: [&str; 2] = ["low-power", "quiet"];

/// The one that stands for speed at any cost.
const PERFORMANCE: &str = "performance";

/// Of the first CPUs, which stands for all.
const PREFERENCE: &str = "sys/devices/system/cpu/cpufreq/policy0/energy_performance_preference";

/// With so many percent of the battery left energy is saved unless the user says otherwise; desktops ask for it at about as
/// many.
pub const LOW_BATTERY: u8 = 20;

/// What the command line says of it.
#[derive(Clone, Debug)]
pub struct PowerOptions {
    /// Percent of the battery below which energy is saved by profile `auto`; 0 is never.
    pub low_battery: u8,
    /// Leave the CPUs' energy preferences alone.
    pub keep_preferences: bool,
}

impl Default for PowerOptions {
    fn default() -> Self {
        Self {
            low_battery: LOW_BATTERY,
            keep_preferences: false,
        }
    }
}

/// It is no longer low with so many percent more: gauges waver.
const RECOVERED: u8 = 5;

/// What the firmware says of that.
pub struct FirmwareSigns {
    platform: Option<String>,
    supplies: PowerSupplies,
}

impl FirmwareSigns {
    /// Asks it, on the machine whose files lie below `root`, which may take long.
    pub fn read(root: &Path) -> Self {
        let platform = read_trimmed(root.join("sys/firmware/acpi/platform_profile"));
        let wants_speed = platform.as_deref() == Some(PERFORMANCE);
        let supplies = match wants_speed {
            // They have no say.
            true => PowerSupplies::default(),
            false => PowerSupplies::read(root),
        };
        Self { platform, supplies }
    }
}

/// Whether energy is to be saved, by what lies below `root` (`/`), and what the firmware said: what the user chose, by a power
/// profile; a battery that holds less than `low` percent; only where there is no profile, whether the machine runs on a
/// battery. `was` is the answer before. Preferences that are set here ([`preference`]) are never this frugal.
pub fn saving(
    root: &Path,
    said: &FirmwareSigns,
    low: u8,
    was: Option<&SavingReason>,
) -> Option<SavingReason> {
    let preference = read_trimmed(root.join(PREFERENCE));
    let supplies = Some(&said.supplies).filter(|supplies| supplies.is_battery());
    let low = match was {
        Some(SavingReason::BatteryLow(_)) => low.saturating_add(RECOVERED),
        _ => low,
    };
    let percent = supplies.and_then(PowerSupplies::percent);
    match (&said.platform, preference) {
        (Some(platform), _) if FRUGAL.contains(&platform.as_str()) => {
            Some(SavingReason::Platform(platform.clone()))
        }
        (_, Some(preference)) if preference == "power" => Some(SavingReason::Preference),
        (None, None) if supplies.is_some() => Some(SavingReason::Battery),
        _ => percent
            .filter(|&percent| percent < low)
            .map(SavingReason::BatteryLow),
    }
}

/// What feeds the machine.
#[derive(Debug, Default)]
struct PowerSupplies {
    is_plugged: bool,
    discharges: bool,
    /// What batteries hold, and could, in their unit; `None` where one does not say.
    charge: Option<(f64, f64)>,
}

impl PowerSupplies {
    fn read(root: &Path) -> Self {
        let supplies = fs::read_dir(root.join("sys/class/power_supply"));
        let mut read = Self {
            charge: Some((0.0, 0.0)),
            ..Self::default()
        };
        for supply in supplies.into_iter().flatten().flatten() {
            let supply = supply.path();
            if !is_battery(&supply) {
                read.is_plugged |= is_online(&supply);
            } else if feeds_the_machine(&supply) {
                read.discharges |= says(&supply, "status", "Discharging");
                let one = charge(&supply);
                let sum = read.charge.zip(one);
                read.charge = sum.map(|(all, one)| (all.0 + one.0, all.1 + one.1));
            }
        }
        read
    }

    /// A battery of the machine itself loses charge, and no supply is plugged in.
    fn is_battery(&self) -> bool {
        self.discharges && !self.is_plugged
    }

    /// What is left, percent.
    fn percent(&self) -> Option<u8> {
        let (now, full) = self.charge.filter(|&(_, full)| full > 0.0)?;
        Some((100.0 * now / full).round().clamp(0.0, 100.0) as u8)
    }
}

fn says(supply: &Path, file: &str, what: &str) -> bool {
    read_trimmed(supply.join(file)).is_some_and(|text| text == what)
}

/// Whether a folder of `/sys/class/power_supply` is a battery.
pub(crate) fn is_battery(supply: &Path) -> bool {
    says(supply, "type", "Battery")
}

/// Whether one that is no battery is plugged in; 2 is of one that can be programmed (USB PD).
pub(crate) fn is_online(supply: &Path) -> bool {
    says(supply, "online", "1") || says(supply, "online", "2")
}

/// Whether it is no mouse's, say, which has the scope Device.
pub(crate) fn feeds_the_machine(supply: &Path) -> bool {
    !says(supply, "scope", "Device")
}

/// What a battery holds, and could hold: as energy, else as charge, else by its percentage alone.
fn charge(battery: &Path) -> Option<(f64, f64)> {
    let number = |file: &str| {
        let number: f64 = read_trimmed(battery.join(file))?.parse().ok()?;
        (number.is_finite() && number >= 0.0).then_some(number)
    };
    let pair = |what: &str| {
        let (now, full) = (
            number(&format!("{what}_now"))?,
            number(&format!("{what}_full"))?,
        );
        (full > 0.0).then_some((now, full))
    };
    let percent = || Some((number("capacity").filter(|&it| it <= 100.0)?, 100.0));
    pair("energy").or_else(|| pair("charge")).or_else(percent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SysfsFiles;

    /// As the scheduler asks.
    fn saving(root: &Path, low: u8, was: Option<&SavingReason>) -> Option<SavingReason> {
        super::saving(root, &FirmwareSigns::read(root), low, was)
    }

    impl SysfsFiles {
        fn saving(&self) -> Option<SavingReason> {
            saving(self.root(), LOW_BATTERY, None)
        }
    }

    const PLATFORM: &str = "sys/firmware/acpi/platform_profile";

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
    #[test]
    fn a_battery_that_is_low_asks_for_it_unless_the_user_wants_speed() {
        const NOW: &str = "sys/class/power_supply/BAT0/energy_now";
        let laptop = SysfsFiles::new(&[
            (PLATFORM, "balanced"),
            (PREFERENCE, "balance_power"),
            ("sys/class/power_supply/BAT0/type", "Battery"),
            ("sys/class/power_supply/BAT0/status", "Discharging"),
            ("sys/class/power_supply/BAT0/energy_full", "50000000"),
            (NOW, "12000000"),
        ]);
        assert_eq!(laptop.saving(), None);
        laptop.set(NOW, "9000000");
        let low = laptop.saving();
        assert_eq!(low, Some(SavingReason::BatteryLow(18)));
        assert_eq!(low.as_ref().unwrap().to_string(), "the battery is at 18 %");
        // It stays so until it is plugged in, or well above.
        laptop.set(NOW, "11000000");
        let still = |laptop: &SysfsFiles| saving(laptop.root(), LOW_BATTERY, low.as_ref());
        assert_eq!(
            (laptop.saving(), still(&laptop)),
            (None, Some(SavingReason::BatteryLow(22)))
        );
        laptop.set(NOW, "13000000");
        assert_eq!(still(&laptop), None);
        laptop.set(NOW, "1000000");
        assert_eq!(saving(laptop.root(), 0, None), None, "never");
        laptop.set(PLATFORM, "performance");
        assert_eq!(laptop.saving(), None);
        laptop.set(PLATFORM, "balanced");
        for odd in ["", "-5", "nan", "much"] {
            laptop.set(NOW, odd);
            assert_eq!(laptop.saving(), None, "{odd}");
        }
        laptop.set("sys/class/power_supply/BAT0/capacity", "7");
        assert_eq!(laptop.saving(), Some(SavingReason::BatteryLow(7)));
        laptop.set("sys/class/power_supply/BAT1/type", "Battery");
        laptop.set("sys/class/power_supply/BAT1/status", "Unknown");
        assert_eq!(laptop.saving(), None, "one does not say what it holds");
        laptop.set("sys/class/power_supply/BAT1/capacity", "91");
        assert_eq!(laptop.saving(), None);
        laptop.set("sys/class/power_supply/AC/online", "1");
        laptop.set("sys/class/power_supply/BAT1/capacity", "1");
        assert_eq!(laptop.saving(), None);
    }

    #[test]
    fn what_the_scheduler_set_itself_is_no_wish_of_the_users() {
        let laptop = SysfsFiles::new(&[(PREFERENCE, "balance_performance")]);
        let folder = "sys/devices/system/cpu/cpufreq/policy0";
        laptop.set(
            &format!("{folder}/energy_performance_available_preferences"),
            "balance_performance balance_power power",
        );
        let mut ours = preference::EnergyPreferences::new(laptop.root());
        ours.lower(&hetero_core::testing::board(1, 1));
        let set = read_trimmed(laptop.root().join(PREFERENCE));
        assert_eq!(set.as_deref(), Some("balance_power"));
        assert_eq!(laptop.saving(), None);
    }
}
