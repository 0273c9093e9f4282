// SPDX-License-Identifier: GPL-2.0-only
//! Saving energy, and staying below the package's limits: when it is to be done. How says `crate::agent`.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use log::{debug, info};

use hetero_core::energy::limit::AtLimit;

use super::Scheduler;
use crate::aside::Aside;
use crate::bpf::intf;
use crate::energy::EnergyDomain;
use crate::policy;
use crate::power::limits::PowerLimits;
use crate::power::preference::EnergyPreferences;
use crate::power::{self, FirmwareSigns, PowerOptions, SavingReason};
use crate::profile::{Profile, Saving};
use crate::topology::Topology;

/// How often it is looked whether energy is to be saved.
const LOOK: Duration = Duration::from_secs(2);

/// Whether energy is saved now, and what else there is to be careful of.
pub(super) struct Saver {
    asked: Saving,
    /// Percent of the battery, see [`power::saving`].
    low_battery: u8,
    sets_preferences: bool,
    preferences: EnergyPreferences,
    limits: PowerLimits,
    at_limit: Option<AtLimit>,
    looked: Option<Instant>,
    /// An embedded controller may take a tenth of a second to answer, or several seconds.
    firmware: Aside<FirmwareSigns>,
    is_on: bool,
    why: Option<SavingReason>,
}

impl Saver {
    pub(super) fn new(profile: Profile, options: &PowerOptions, root: &Path) -> Self {
        Self {
            asked: profile.saving(),
            low_battery: options.low_battery,
            sets_preferences: !options.keep_preferences,
            preferences: EnergyPreferences::new(root),
            limits: PowerLimits::find(root),
            at_limit: None,
            looked: None,
            firmware: Aside::default(),
            is_on: false,
            why: None,
        }
    }

    /// Listens to what the hardware of this machine says, too.
    pub(super) fn listening(mut self) -> Self {
        self.limits = self.limits.listening();
        self
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Looks now and then, and as soon as the firmware has answered; whether it was time to.
    fn look(&mut self, now: Instant, root: &Path, topology: &Topology) -> bool {
        let said = self.firmware.take();
        let is_due = self.looked.is_none_or(|looked| now >= looked + LOOK);
        if !is_due && said.is_none() {
            return false;
        }
        if is_due {
            self.looked = Some(now);
            self.preferences.look();
        }
        let (is_on, why) = match self.asked {
            Saving::Never => (false, None),
            Saving::Asked => {
                if is_due {
                    self.ask_firmware(root);
                }
                // Until it answers all stays as it was.
                let Some(said) = said else { return is_due };
                let why = power::saving(root, &said, self.low_battery, self.why.as_ref());
                (why.is_some(), why)
            }
            Saving::Always => (true, None),
        };
        let was_on = std::mem::replace(&mut self.is_on, is_on);
        match (&why, is_on, was_on) {
            (Some(why), true, false) => info!("saving energy, for {why}"),
            (None, true, false) => info!("saving energy"),
            (_, false, true) => info!("no longer saving energy"),
            _ => {}
        }
        self.why = why;
        match (is_on, was_on) {
            (true, false) if self.sets_preferences => self.preferences.lower(topology),
            (false, true) => self.preferences.restore(),
            _ => {}
        }
        is_due
    }

    fn ask_firmware(&mut self, root: &Path) {
        let root = root.to_path_buf();
        let read = move || FirmwareSigns::read(&root);
        if let Err(error) = self.firmware.begin("power", read) {
            debug!("the firmware is not asked whether energy is to be saved: {error}");
        }
    }

    /// Looks whether the package is at its limit; it has taken so many joules by now, as far as that is known.
    fn look_at_limits(&mut self, now: Instant, joules: Option<f64>) {
        let was = self.at_limit;
        self.at_limit = self.limits.look(now, joules);
        match (was, self.at_limit) {
            (None, Some(AtLimit::Power(watts, limit))) => {
                info!("the package takes {watts:.0} of the {limit:.0} W that it may take for long");
            }
            (None, Some(AtLimit::Heat)) => info!("the firmware lowers clocks for heat"),
            (Some(_), None) => info!("the package is no longer at its limit"),
            _ => {}
        }
    }
}

impl Scheduler<'_> {
    /// Looks whether energy is to be saved, and tells the BPF half.
    pub(super) fn watch_power(&mut self, now: Instant) {
        let is_due = self.saver.look(now, Path::new("/"), &self.agent.topology);
        self.agent.saves = self.saver.is_on();
        if is_due {
            let package = self.half.sensors.energy().of(EnergyDomain::Package);
            self.saver.look_at_limits(now, package);
            self.agent.at_limit = self.saver.at_limit.is_some();
        }
        self.tell_order();
    }

    /// Which type is filled first may change with what runs, and the policy at any time.
    pub(super) fn tell_order(&mut self) {
        let first = self.agent.filled_first();
        if let Some(bss) = &mut self.half.skel.maps.bss_data {
            bss.hosts_first = self.agent.puts_hosts_first().into();
        }
        if let Some(data) = &mut self.half.skel.maps.data_data {
            data.filled_first = first.map_or(intf::hetero_consts_NO_TYPE, |kind| kind as u32);
        }
    }

    /// Another profile from now on, with all that it stands for.
    pub(super) fn set_profile(&mut self, profile: Profile) -> Result<String> {
        self.wish.profile = profile;
        self.wish.slice = profile.slice();
        self.saver.asked = profile.saving();
        self.saver.looked = None;
        let data = self.half.skel.maps.data_data.as_mut();
        data.context("the BPF half has no data")?.slice_ns = profile.slice().as_nanos() as u64;
        let best = policy::Name::best(&self.agent.topology, self.half.counting.is_some());
        let policy = self.set_policy(profile.policy().unwrap_or(best))?;
        self.watch_power(Instant::now());
        info!("profile {profile}");
        Ok(format!("profile {profile}, {policy}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SysfsFiles;
    use hetero_core::testing::board;

    const PLATFORM: &str = "sys/firmware/acpi/platform_profile";

    fn saver(profile: Profile, files: &SysfsFiles) -> Saver {
        Saver::new(profile, &PowerOptions::default(), files.root())
    }

    impl Saver {
        /// Looks, and again when the firmware has answered.
        fn look_twice(&mut self, now: Instant, files: &SysfsFiles, topology: &Topology) {
            self.look(now, files.root(), topology);
            self.firmware.wait();
            self.look(now, files.root(), topology);
        }
    }

    #[test]
    fn the_users_wish_is_looked_at_now_and_then() {
        let files = SysfsFiles::new(&[(PLATFORM, "balanced")]);
        let begun = Instant::now();
        let mut auto = saver(Profile::Auto, &files);
        let look = |saver: &mut Saver, looks: u32| {
            saver.look_twice(begun + looks * LOOK / 2, &files, &board(2, 2));
            saver.is_on()
        };
        assert!(!look(&mut auto, 0));
        files.set(PLATFORM, "low-power");
        assert!(!look(&mut auto, 1));
        assert!(look(&mut auto, 2) && look(&mut auto, 4));
        files.set(PLATFORM, "performance");
        assert!(!look(&mut auto, 6));

        files.set(PLATFORM, "low-power");
        assert!(!look(&mut saver(Profile::Gaming, &files), 0));
        assert!(look(&mut saver(Profile::Powersave, &files), 0));
    }

    #[test]
    fn firmware_that_takes_its_time_is_not_waited_for() {
        let files = SysfsFiles::new(&[]);
        let profile = files.root().join(PLATFORM);
        std::fs::create_dir_all(profile.parent().unwrap()).unwrap();
        // Its reader waits until there is a writer.
        nix::unistd::mkfifo(&profile, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let begun = Instant::now();
        let mut auto = saver(Profile::Auto, &files);
        for looks in 0..3 {
            assert!(auto.look(begun + looks * LOOK, files.root(), &board(2, 2)));
            assert!(!auto.is_on() && auto.firmware.is_busy());
        }
        std::fs::write(&profile, "low-power\n").unwrap();
        auto.firmware.wait();
        assert!(!auto.look(begun + 2 * LOOK, files.root(), &board(2, 2)));
        assert!(auto.is_on(), "as soon as it has answered");
    }

    #[test]
    fn preferences_are_lowered_while_energy_is_saved_and_are_no_reason_to_go_on() {
        const POLICY: &str = "sys/devices/system/cpu/cpufreq/policy0";
        let preference = format!("{POLICY}/energy_performance_preference");
        let files = SysfsFiles::new(&[
            (PLATFORM, "low-power"),
            (&preference, "balance_performance"),
        ]);
        files.set(
            &format!("{POLICY}/energy_performance_available_preferences"),
            "balance_performance balance_power",
        );
        let now = || crate::files::read_trimmed(files.root().join(&preference)).unwrap();
        let begun = Instant::now();
        let mut auto = saver(Profile::Auto, &files);
        auto.look_twice(begun, &files, &board(1, 1));
        assert_eq!(now(), "balance_power");
        files.set(PLATFORM, "balanced");
        auto.look_twice(begun + LOOK, &files, &board(1, 1));
        assert!(!auto.is_on());
        assert_eq!(now(), "balance_performance");

        let kept = PowerOptions {
            keep_preferences: true,
            ..PowerOptions::default()
        };
        let mut powersave = Saver::new(Profile::Powersave, &kept, files.root());
        powersave.look(begun, files.root(), &board(1, 1));
        assert!(powersave.is_on());
        assert_eq!(now(), "balance_performance");
    }
}
