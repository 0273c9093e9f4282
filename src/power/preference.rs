// SPDX-License-Identifier: GPL-2.0-only
//! The energy performance preference (EPP) of CPUs whose firmware chooses clocks (`intel_pstate`, `amd-pstate-epp`),
//! while energy is saved: [`FRUGAL`] on all core types. Why not by type: docs/decisions/energy-preference.md.
//!
//! What was there before is noted in a file before anything is changed, and put back at the end; after a crash by
//! the service (`ExecStopPost=scx_hetero restore`), or the next start. Nothing is put back, nor set again, where
//! another tool has set something else meanwhile: it is then that tool's. What cannot be read, as of a CPU that is offline, comes
//! back with what was set here, and so does what the governor `performance` hides: it stays noted, and is put back later.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use log::{debug, info, warn};
use serde::{Deserialize, Serialize};

use crate::files::{read_trimmed, write_whole};
use crate::topology::Topology;

/// Below [`crate`]'s root: what is put back.
const STATE: &str = "run/scx_hetero/preferences.json";

const POLICIES: &str = "sys/devices/system/cpu/cpufreq";

/// Names from the least frugal to the most, as the drivers have them. `default` is the firmware's own.
const NAMES: [&str; 5] = [
    "performance",
    "balance_performance",
    "default",
    "balance_power",
    "power",
];

/// What CPUs are set to.
const FRUGAL: &str = "balance_power";

/// While it governs, `intel_pstate` and `amd-pstate` show another preference and take none; afterwards there is again what was
/// set before.
const GOVERNOR: &str = "performance";

/// So many are looked at each time, one after another: each is a file.
const LOOKS: usize = 64;

/// The file of what is put back is no larger, bytes.
const LARGEST: u64 = 1 << 20;

/// One that was set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SetPreference {
    /// As `policy0`.
    policy: String,
    /// What was there.
    found: String,
    /// What is there since.
    set: String,
}

/// See the module.
#[derive(Debug)]
pub struct EnergyPreferences {
    root: PathBuf,
    set: Vec<SetPreference>,
    /// Those that could not be put back yet.
    owed: Vec<SetPreference>,
    /// Which of them is looked at next.
    next: usize,
    complained: bool,
}

impl EnergyPreferences {
    /// Of the machine whose files lie below `root`. What a run before has left is put back.
    pub fn new(root: &Path) -> Self {
        let (_, owed) = restore_noted(root);
        Self {
            root: root.to_path_buf(),
            set: Vec::new(),
            owed,
            next: 0,
            complained: false,
        }
    }

    /// Sets what saves energy, on a machine that has several core types; where another tool was as frugal already,
    /// or what is there is not understood, nothing.
    pub fn lower(&mut self, topology: &Topology) {
        if !self.set.is_empty() || topology.types.len() < 2 {
            return;
        }
        self.pay();
        let mut wished = self.wished();
        wished.retain(|wish| !self.owed.iter().any(|owed| owed.policy == wish.policy));
        if wished.is_empty() {
            return;
        }
        if let Err(error) = self.note(&wished) {
            if !std::mem::replace(&mut self.complained, true) {
                warn!(
                    "the CPUs' energy preferences stay as they are, for what they were cannot be kept: {error:#}"
                );
            }
            return;
        }
        let mut refused = None;
        for wish in wished {
            match fs::write(self.path_of(&wish.policy), &wish.set) {
                Ok(()) => self.set.push(wish),
                Err(error) => refused = Some((wish.policy, error)),
            }
        }
        if let Some((policy, error)) = refused
            && !std::mem::replace(&mut self.complained, true)
        {
            warn!("cannot set the energy preference of {policy}: {error}");
        }
        self.keep_noted();
        if !self.set.is_empty() {
            info!("energy preference {FRUGAL} until energy is no longer saved");
        }
    }

    /// Notices what others have set meanwhile, and leaves that to them. Puts back what could not be before.
    pub fn look(&mut self) {
        self.pay();
        let mut theirs = Vec::new();
        for _ in 0..self.set.len().min(LOOKS) {
            let at = self.next % self.set.len().max(1);
            let Some(set) = self.set.get(at) else {
                return;
            };
            if is_ours(&self.root, set) != Some(false) {
                self.next = at + 1;
                continue;
            }
            debug!(
                "the energy preference of {} was set by another tool: left alone",
                set.policy
            );
            theirs.push(self.set.swap_remove(at));
        }
        if theirs.is_empty() {
            return;
        }
        if self.set.is_empty() {
            info!("another tool has set the CPUs' energy preferences: they are left alone");
        }
        self.keep_noted();
    }

    /// Puts back what was there, if not now then later.
    pub fn restore(&mut self) {
        self.owed.append(&mut self.set);
        self.pay();
    }

    /// Puts back what is owed, as far as that is possible now.
    fn pay(&mut self) {
        if self.owed.is_empty() {
            return;
        }
        let before = self.owed.len();
        self.owed = put_back(&self.root, std::mem::take(&mut self.owed)).1;
        if self.owed.len() < before {
            self.keep_noted();
        }
    }

    /// What is noted is what is set or owed, from now on.
    fn keep_noted(&self) {
        if self.set.is_empty() && self.owed.is_empty() {
            forget(&self.root);
        } else if let Err(error) = self.note(&self.set) {
            debug!("more energy preferences are noted than are set: {error:#}");
        }
    }

    /// Notes these besides what is owed.
    fn note(&self, set: &[SetPreference]) -> anyhow::Result<()> {
        write_state(&self.root, set.iter().chain(&self.owed))
    }

    fn wished(&self) -> Vec<SetPreference> {
        let folders = fs::read_dir(self.root.join(POLICIES));
        let mut wished = Vec::new();
        for folder in folders.into_iter().flatten().flatten() {
            let Some(policy) = folder.file_name().to_str().map(str::to_string) else {
                continue;
            };
            if !is_policy(&policy) {
                continue;
            }
            let offered = read_trimmed(
                folder
                    .path()
                    .join("energy_performance_available_preferences"),
            );
            let is_offered =
                offered.is_some_and(|all| all.split_whitespace().any(|it| it == FRUGAL));
            let Some(found) = self.read(&policy).filter(|_| is_offered) else {
                continue;
            };
            let rank = |name: &str| NAMES.iter().position(|known| *known == name);
            if rank(&found).is_some_and(|found| Some(found) < rank(FRUGAL)) {
                wished.push(SetPreference {
                    policy,
                    found,
                    set: FRUGAL.into(),
                });
            }
        }
        wished
    }

    fn path_of(&self, policy: &str) -> PathBuf {
        path_of(&self.root, policy)
    }

    fn read(&self, policy: &str) -> Option<String> {
        read_trimmed(self.path_of(policy))
    }
}

fn write_state<'a>(
    root: &Path,
    set: impl Iterator<Item = &'a SetPreference>,
) -> anyhow::Result<()> {
    let path = root.join(STATE);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    write_whole(&path, &serde_json::to_vec(&set.collect::<Vec<_>>())?)
}

impl Drop for EnergyPreferences {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Puts back what a scheduler has set that did not come to its end; how many. What cannot be put back yet stays noted.
pub fn restore_left(root: &Path) -> usize {
    restore_noted(root).0
}

/// The same, and what cannot be put back yet.
fn restore_noted(root: &Path) -> (usize, Vec<SetPreference>) {
    let path = root.join(STATE);
    let left = match fs::metadata(&path) {
        Ok(there) if there.is_file() && there.len() <= LARGEST => fs::read(&path),
        Ok(_) => Err(ErrorKind::InvalidData.into()),
        Err(error) => Err(error),
    };
    let left = match left {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return (0, Vec::new()),
        Err(error) => {
            warn!("cannot read {}: {error}", path.display());
            return (0, Vec::new());
        }
    };
    let (restored, owed) = match serde_json::from_slice::<Vec<SetPreference>>(&left) {
        Ok(left) => put_back(root, left),
        Err(error) => {
            warn!("{} is damaged ({error}), and is removed", path.display());
            (0, Vec::new())
        }
    };
    if restored > 0 {
        info!(
            "{restored} energy preferences are again what they were before the last run, which did not end by itself"
        );
    }
    if owed.is_empty() {
        forget(root);
    } else {
        let number = owed.len();
        info!(
            "{number} energy preferences cannot be put back yet, as of CPUs that are offline, or whose governor is {GOVERNOR}"
        );
        if let Err(error) = write_state(root, owed.iter()) {
            debug!("more energy preferences are noted than are owed: {error:#}");
        }
    }
    (restored, owed)
}

fn forget(root: &Path) {
    let path = root.join(STATE);
    if let Err(error) = fs::remove_file(&path)
        && error.kind() != ErrorKind::NotFound
    {
        warn!("cannot remove {}: {error}", path.display());
    }
}

/// Those that are still as they were set here; how many, and those of which that cannot be told or done now.
fn put_back(root: &Path, set: Vec<SetPreference>) -> (usize, Vec<SetPreference>) {
    let mut back = 0;
    let mut owed = Vec::new();
    let is_known = |name: &str| NAMES.contains(&name);
    let mut set = set;
    set.retain(|it| is_policy(&it.policy) && is_known(&it.found) && is_known(&it.set));
    for it in set {
        match is_ours(root, &it) {
            Some(true) => {}
            Some(false) => continue,
            None => {
                owed.push(it);
                continue;
            }
        }
        match fs::write(path_of(root, &it.policy), &it.found) {
            Ok(()) => back += 1,
            Err(error) => {
                debug!("cannot put {} back to {}: {error}", it.policy, it.found);
                owed.push(it);
            }
        }
    }
    (back, owed)
}

/// Whether a preference is still as it was set here; `None` where that cannot be told, as the kernel answers EBUSY for
/// a CPU that is offline, or as the governor hides it.
fn is_ours(root: &Path, set: &SetPreference) -> Option<bool> {
    match fs::read_to_string(path_of(root, &set.policy)) {
        Ok(now) if now.trim() == set.set => Some(true),
        Ok(_) => (!is_hidden(root, &set.policy)).then_some(false),
        Err(error) if error.kind() == ErrorKind::NotFound => Some(false),
        Err(_) => None,
    }
}

/// Whether what is shown of a policy is its governor's and not what was set.
fn is_hidden(root: &Path, policy: &str) -> bool {
    let folder = root.join(POLICIES).join(policy);
    read_trimmed(folder.join("scaling_governor")).as_deref() == Some(GOVERNOR)
}

fn path_of(root: &Path, policy: &str) -> PathBuf {
    let folder = root.join(POLICIES).join(policy);
    folder.join("energy_performance_preference")
}

fn is_policy(name: &str) -> bool {
    let number = name.strip_prefix("policy");
    number.is_some_and(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests;
