// SPDX-License-Identifier: GPL-2.0-only
//! The energy performance preference (EPP) of CPUs whose firmware chooses clocks (`intel_pstate`, `amd-pstate-epp`),
//! by core type, while energy is saved: the fastest type runs at its thriftiest, where high clocks cost most,
//! and the others nearly so.
//!
//! What was there before is noted in a file before anything is changed, and put back at the end; after a crash by
//! the service (`ExecStopPost=scx_hetero restore`), or the next start. Nothing is put back, nor set again, where
//! another tool has set something else meanwhile: it is then that tool's.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use log::{debug, info, warn};
use serde::{Deserialize, Serialize};

use crate::files::{read_trimmed, write_whole};
use crate::topology::{Topology, cpulist};

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

/// What the fastest core type is set to, and the others.
const FASTEST: &str = "power";
const OTHERS: &str = "balance_power";

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
    /// Which of them is looked at next.
    next: usize,
    complained: bool,
}

impl EnergyPreferences {
    /// Of the machine whose files lie below `root`. What a run before has left is put back.
    pub fn new(root: &Path) -> Self {
        restore_left(root);
        Self {
            root: root.to_path_buf(),
            set: Vec::new(),
            next: 0,
            complained: false,
        }
    }

    /// Sets what saves energy, on each core type of a machine that has several; where another tool was more frugal already,
    /// or what is there is not understood, nothing.
    pub fn lower(&mut self, topology: &Topology) {
        if !self.set.is_empty() || topology.types.len() < 2 {
            return;
        }
        let wished = self.wished(topology);
        if wished.is_empty() {
            return;
        }
        if let Err(error) = self.write_state(&wished) {
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
        if self.set.is_empty() {
            self.forget_state();
        } else {
            let kinds = &topology.types;
            info!(
                "energy preference {FASTEST} on {}, {OTHERS} on the others, until energy is no longer saved",
                kinds[0].name
            );
        }
    }

    /// Notices what others have set meanwhile, and leaves that to them.
    pub fn look(&mut self) {
        for _ in 0..self.set.len().min(LOOKS) {
            let at = self.next % self.set.len().max(1);
            let Some(set) = self.set.get(at) else {
                return;
            };
            let now = self.read(&set.policy);
            if now.as_deref() == Some(&set.set) {
                self.next = at + 1;
                continue;
            }
            debug!(
                "the energy preference of {} is {} now: left alone",
                set.policy,
                now.as_deref().unwrap_or("gone")
            );
            self.set.swap_remove(at);
            if self.set.is_empty() {
                info!("another tool has set the CPUs' energy preferences: they are left alone");
                self.forget_state();
            }
        }
    }

    /// What a policy's preference was before it was set here; `None` if it is another tool's.
    pub fn found(&self, policy: &str) -> Option<&str> {
        let set = self.set.iter().find(|set| set.policy == policy)?;
        let is_ours = self.read(policy).as_deref() == Some(&set.set);
        is_ours.then_some(set.found.as_str())
    }

    /// Puts back what was there.
    pub fn restore(&mut self) {
        if self.set.is_empty() {
            return;
        }
        put_back(&self.root, &self.set);
        self.set.clear();
        self.forget_state();
    }

    fn wished(&self, topology: &Topology) -> Vec<SetPreference> {
        let folders = fs::read_dir(self.root.join(POLICIES));
        let mut wished = Vec::new();
        for folder in folders.into_iter().flatten().flatten() {
            let Some(policy) = folder.file_name().to_str().map(str::to_string) else {
                continue;
            };
            if !is_policy(&policy) {
                continue;
            }
            let first = |file: &str| {
                let cpus = read_trimmed(folder.path().join(file))?;
                // The kernel separates these by spaces.
                let cpus = cpulist::parse(&cpus.replace(' ', ",")).ok()?;
                cpus.first().copied()
            };
            let Some(cpu) = first("affected_cpus").or_else(|| first("related_cpus")) else {
                continue;
            };
            let Some(cpu) = topology.cpus.iter().find(|known| known.id == cpu) else {
                continue;
            };
            let set = if cpu.core_type == 0 { FASTEST } else { OTHERS };
            let offered = read_trimmed(
                folder
                    .path()
                    .join("energy_performance_available_preferences"),
            );
            let is_offered = offered.is_some_and(|all| all.split_whitespace().any(|it| it == set));
            let Some(found) = self.read(&policy).filter(|_| is_offered) else {
                continue;
            };
            let rank = |name: &str| NAMES.iter().position(|known| *known == name);
            if rank(&found).is_some_and(|found| Some(found) < rank(set)) {
                wished.push(SetPreference {
                    policy,
                    found,
                    set: set.into(),
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

    fn write_state(&self, set: &[SetPreference]) -> anyhow::Result<()> {
        let path = self.root.join(STATE);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        write_whole(&path, &serde_json::to_vec(set)?)
    }

    fn forget_state(&self) {
        forget(&self.root);
    }
}

impl Drop for EnergyPreferences {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Puts back what a scheduler has set that did not come to its end; how many.
pub fn restore_left(root: &Path) -> usize {
    let path = root.join(STATE);
    let left = match fs::metadata(&path) {
        Ok(there) if there.is_file() && there.len() <= LARGEST => fs::read(&path),
        Ok(_) => Err(ErrorKind::InvalidData.into()),
        Err(error) => Err(error),
    };
    let left = match left {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return 0,
        Err(error) => {
            warn!("cannot read {}: {error}", path.display());
            return 0;
        }
    };
    let restored = match serde_json::from_slice::<Vec<SetPreference>>(&left) {
        Ok(left) => put_back(root, &left),
        Err(error) => {
            warn!("{} is damaged ({error}), and is removed", path.display());
            0
        }
    };
    if restored > 0 {
        info!(
            "{restored} energy preferences are again what they were before the last run, which did not end by itself"
        );
    }
    forget(root);
    restored
}

fn forget(root: &Path) {
    let path = root.join(STATE);
    if let Err(error) = fs::remove_file(&path)
        && error.kind() != ErrorKind::NotFound
    {
        warn!("cannot remove {}: {error}", path.display());
    }
}

/// Those that are still as they were set here; how many.
fn put_back(root: &Path, set: &[SetPreference]) -> usize {
    let mut back = 0;
    for it in set {
        let is_known = |name: &str| NAMES.contains(&name);
        if !is_policy(&it.policy) || !is_known(&it.found) || !is_known(&it.set) {
            continue;
        }
        let path = path_of(root, &it.policy);
        if read_trimmed(&path).as_deref() != Some(&it.set) {
            continue;
        }
        match fs::write(&path, &it.found) {
            Ok(()) => back += 1,
            Err(error) => warn!("cannot put {} back to {}: {error}", it.policy, it.found),
        }
    }
    back
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
mod tests {
    use super::*;
    use crate::testing::SysfsFiles;
    use hetero_core::testing::board;

    const ALL: &str = "default performance balance_performance balance_power power";

    /// CPUs 0 and 1 are fast, 2 and 3 are not.
    fn laptop(found: [&str; 4]) -> SysfsFiles {
        let files = SysfsFiles::below(POLICIES, &[]);
        for (cpu, found) in found.iter().enumerate() {
            files.set(&format!("policy{cpu}/affected_cpus"), &cpu.to_string());
            files.set(
                &format!("policy{cpu}/energy_performance_available_preferences"),
                ALL,
            );
            set(&files, cpu, found);
        }
        files
    }

    fn set(files: &SysfsFiles, cpu: usize, to: &str) {
        files.set(&format!("policy{cpu}/energy_performance_preference"), to);
    }

    fn now(files: &SysfsFiles) -> Vec<String> {
        let read = |cpu| read_trimmed(path_of(files.root(), &format!("policy{cpu}")));
        (0..4).map(|cpu| read(cpu).unwrap_or_default()).collect()
    }

    fn has_state(files: &SysfsFiles) -> bool {
        files.root().join(STATE).exists()
    }

    const BALANCED: [&str; 4] = ["balance_performance"; 4];
    const SAVING: [&str; 4] = ["power", "power", "balance_power", "balance_power"];

    #[test]
    fn each_core_type_has_its_own_and_all_is_put_back() {
        let files = laptop(BALANCED);
        let mut preferences = EnergyPreferences::new(files.root());
        preferences.lower(&board(2, 2));
        assert_eq!(now(&files), SAVING);
        assert_eq!(preferences.found("policy0"), Some("balance_performance"));
        preferences.look();
        preferences.restore();
        assert_eq!(now(&files), BALANCED);
        preferences.lower(&board(2, 2));
        assert_eq!(now(&files), SAVING);
        drop(preferences);
        assert_eq!(now(&files), BALANCED);
        assert!(!has_state(&files));
    }

    #[test]
    fn after_a_crash_the_next_start_puts_it_back() {
        let files = laptop(BALANCED);
        let mut preferences = EnergyPreferences::new(files.root());
        preferences.lower(&board(2, 2));
        std::mem::forget(preferences);
        set(&files, 3, "performance");
        assert!(has_state(&files));
        assert_eq!(restore_left(files.root()), 3);
        let left = [
            "balance_performance",
            "balance_performance",
            "balance_performance",
            "performance",
        ];
        assert_eq!(now(&files), left);
        assert!(!has_state(&files));
        assert_eq!(restore_left(files.root()), 0);
    }

    #[test]
    fn what_another_tool_sets_meanwhile_is_its_own() {
        let files = laptop(BALANCED);
        let mut preferences = EnergyPreferences::new(files.root());
        preferences.lower(&board(2, 2));
        set(&files, 0, "balance_performance");
        set(&files, 2, "performance");
        assert_eq!(preferences.found("policy0"), None);
        preferences.look();
        preferences.look();
        assert_eq!(now(&files)[0], "balance_performance", "it is not set again");
        preferences.restore();
        let left = [
            "balance_performance",
            "balance_performance",
            "performance",
            "balance_performance",
        ];
        assert_eq!(now(&files), left);
    }

    #[test]
    fn more_frugal_or_odd_values_and_missing_files_are_left_alone() {
        let found = ["power", "128", "", "balance_power"];
        let files = laptop(found);
        let mut preferences = EnergyPreferences::new(files.root());
        preferences.lower(&board(2, 2));
        assert_eq!(now(&files), found);
        assert!(!has_state(&files));
        for cpu in 0..4 {
            set(&files, cpu, "balance_performance");
        }
        files.set(
            "policy1/energy_performance_available_preferences",
            "performance",
        );
        files.set("policy2/affected_cpus", "nonsense");
        preferences.lower(&board(2, 2));
        let lowered = [
            "power",
            "balance_performance",
            "balance_performance",
            "balance_power",
        ];
        assert_eq!(now(&files), lowered);
        // They vanish, as where the driver is changed.
        fs::remove_dir_all(files.root().join(POLICIES)).unwrap();
        preferences.look();
        preferences.look();
        preferences.restore();
        assert!(!has_state(&files));
        let nothing = SysfsFiles::new(&[]);
        EnergyPreferences::new(nothing.root()).lower(&board(2, 2));
        assert!(!has_state(&nothing));
    }

    #[test]
    fn machines_of_one_core_type_are_left_to_their_tools() {
        let files = laptop(BALANCED);
        let alike = hetero_core::testing::machine(&[4]);
        EnergyPreferences::new(files.root()).lower(&alike);
        assert_eq!(now(&files), BALANCED);
    }

    #[test]
    fn a_state_that_is_damaged_or_hostile_writes_nowhere_else() {
        let files = laptop(BALANCED);
        let state = files.root().join(STATE);
        fs::create_dir_all(state.parent().unwrap()).unwrap();
        fs::write(&state, "{").unwrap();
        assert_eq!(restore_left(files.root()), 0);
        assert!(!state.exists());
        let victim = files.root().join("victim");
        fs::create_dir_all(&victim).unwrap();
        fs::write(victim.join("energy_performance_preference"), "power").unwrap();
        let hostile = r#"[{"policy":"../../../../../victim","found":"performance","set":"power"},
            {"policy":"policy0","found":"rm -rf","set":"balance_performance"}]"#;
        fs::write(&state, hostile).unwrap();
        assert_eq!(restore_left(files.root()), 0);
        let kept = fs::read_to_string(victim.join("energy_performance_preference")).unwrap();
        assert_eq!(
            (kept.as_str(), now(&files)),
            ("power", BALANCED.map(String::from).to_vec())
        );
    }

    #[test]
    fn what_cannot_be_put_back_is_not_set() {
        let files = laptop(BALANCED);
        // A file lies where the folder should be.
        fs::write(files.root().join("run"), "").unwrap();
        let mut preferences = EnergyPreferences::new(files.root());
        preferences.lower(&board(2, 2));
        assert_eq!(now(&files), BALANCED);
    }
}
