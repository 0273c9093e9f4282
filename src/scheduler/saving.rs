// SPDX-License-Identifier: GPL-2.0-only
//! Saving energy: CPUs are filled from the most efficient core type up, and the policy has its say only
//! when the fastest type is needed (`crate::agent`).

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use log::info;

use super::Scheduler;
use crate::bpf::intf;
use crate::placement;
use crate::policy;
use crate::power;
use crate::profile::{Profile, Saving};

/// How often it is looked whether energy is to be saved.
const LOOK: Duration = Duration::from_secs(2);

/// Whether energy is saved now.
pub(super) struct Saver {
    asked: Saving,
    looked: Option<Instant>,
    is_on: bool,
}

impl Saver {
    pub(super) fn new(profile: Profile) -> Self {
        Self {
            asked: profile.saving(),
            looked: None,
            is_on: false,
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Looks now and then; whether that changed something.
    fn look(&mut self, now: Instant, root: &Path) -> bool {
        if self.looked.is_some_and(|looked| now < looked + LOOK) {
            return false;
        }
        self.looked = Some(now);
        let why = match self.asked {
            Saving::Never => None,
            Saving::Asked => power::saving(root).map(|why| format!(", for {why}")),
            Saving::Always => Some(String::new()),
        };
        let was_on = std::mem::replace(&mut self.is_on, why.is_some());
        match why {
            Some(why) if !was_on => info!("saving energy{why}: efficient cores first"),
            None if was_on => info!("no longer saving energy"),
            _ => return false,
        }
        true
    }
}

impl Scheduler<'_> {
    /// Looks whether energy is to be saved, and tells the BPF half.
    pub(super) fn watch_power(&mut self, now: Instant) {
        if self.saver.look(now, Path::new("/")) {
            self.agent.saves = self.saver.is_on();
            self.fill_first();
        }
    }

    fn fill_first(&mut self) {
        let first = placement::most_efficient(&self.agent.topology).filter(|_| self.saver.is_on());
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

    #[test]
    fn the_users_wish_is_looked_at_now_and_then() {
        let root = tempfile::tempdir().unwrap();
        let write = |text: &str| {
            let folder = root.path().join("sys/firmware/acpi");
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("platform_profile"), text).unwrap();
        };
        write("balanced\n");
        let begun = Instant::now();
        let mut saver = Saver::new(Profile::Auto);
        assert!(!saver.look(begun, root.path()));
        write("low-power\n");
        assert!(!saver.look(begun + LOOK / 2, root.path()));
        assert!(saver.look(begun + LOOK, root.path()) && saver.is_on());
        assert!(!saver.look(begun + 2 * LOOK, root.path()) && saver.is_on());
        write("performance\n");
        assert!(saver.look(begun + 3 * LOOK, root.path()) && !saver.is_on());

        let mut gaming = Saver::new(Profile::Gaming);
        write("low-power\n");
        assert!(!gaming.look(begun, root.path()) && !gaming.is_on());
        assert!(Saver::new(Profile::Powersave).look(begun, root.path()));
    }
}
