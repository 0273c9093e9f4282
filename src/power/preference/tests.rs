// SPDX-License-Identifier: GPL-2.0-only
use super::*;
use crate::testing::SysfsFiles;
use hetero_core::testing::board;

const ALL: &str = "default performance balance_performance balance_power power";

/// Of four CPUs.
fn laptop(found: [&str; 4]) -> SysfsFiles {
    let files = SysfsFiles::below(POLICIES, &[]);
    for (cpu, found) in found.iter().enumerate() {
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
const SAVING: [&str; 4] = [FRUGAL; 4];

#[test]
fn all_is_set_and_put_back() {
    let files = laptop(BALANCED);
    let mut preferences = EnergyPreferences::new(files.root());
    preferences.lower(&board(2, 2));
    assert_eq!(now(&files), SAVING);
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
fn what_another_tool_sets_on_all_cpus_is_its_own() {
    let files = laptop(BALANCED);
    let mut preferences = EnergyPreferences::new(files.root());
    let choose = |to: &str| (0..4).for_each(|cpu| set(&files, cpu, to));
    // The user chooses to save power, which the desktop writes everywhere.
    preferences.lower(&board(2, 2));
    choose("power");
    preferences.look();
    preferences.restore();
    assert_eq!(now(&files), ["power"; 4]);
    assert!(!has_state(&files));
    // The same where it is not seen before the end, or after a crash.
    choose("balance_performance");
    preferences.lower(&board(2, 2));
    choose("power");
    preferences.restore();
    assert_eq!(now(&files), ["power"; 4]);
    choose("balance_performance");
    preferences.lower(&board(2, 2));
    choose("power");
    std::mem::forget(preferences);
    assert_eq!(restore_left(files.root()), 0);
    assert_eq!(now(&files), ["power"; 4]);
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
    preferences.lower(&board(2, 2));
    let lowered = [FRUGAL, "balance_performance", FRUGAL, FRUGAL];
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

/// A CPU goes offline: its file is there and cannot be read. Here it is a folder.
fn unplug(files: &SysfsFiles, cpu: usize) {
    let path = path_of(files.root(), &format!("policy{cpu}"));
    fs::remove_file(&path).unwrap();
    fs::create_dir(path).unwrap();
}

fn plug(files: &SysfsFiles, cpu: usize, value: &str) {
    fs::remove_dir(path_of(files.root(), &format!("policy{cpu}"))).unwrap();
    set(files, cpu, value);
}

#[test]
fn what_is_offline_is_put_back_when_it_is_online_again() {
    let files = laptop(BALANCED);
    let mut preferences = EnergyPreferences::new(files.root());
    preferences.lower(&board(2, 2));
    unplug(&files, 0);
    unplug(&files, 2);
    preferences.look();
    preferences.look();
    assert_eq!(preferences.set.len(), 4);
    preferences.restore();
    assert!(has_state(&files));
    plug(&files, 0, SAVING[0]);
    preferences.look();
    assert_eq!(now(&files)[0], BALANCED[0]);
    // The others are lowered again meanwhile, and the last one is owed beyond the end.
    preferences.lower(&board(2, 2));
    assert_eq!(preferences.set.len(), 3);
    drop(preferences);
    assert!(has_state(&files));
    assert_eq!(restore_left(files.root()), 0);
    let mut preferences = EnergyPreferences::new(files.root());
    plug(&files, 2, SAVING[2]);
    preferences.look();
    assert_eq!(now(&files), BALANCED);
    assert!(!has_state(&files));
}

/// As the driver does: under `performance` it shows that, and then again what there was.
fn govern(files: &SysfsFiles, cpu: usize, governor: &str, shown: &str) {
    files.set(&format!("policy{cpu}/scaling_governor"), governor);
    set(files, cpu, shown);
}

#[test]
fn what_the_governor_hides_is_still_owed() {
    let files = laptop(BALANCED);
    let mut preferences = EnergyPreferences::new(files.root());
    preferences.lower(&board(2, 2));
    // A game begins, and ends.
    (0..4).for_each(|cpu| govern(&files, cpu, "performance", "performance"));
    preferences.look();
    preferences.look();
    assert_eq!(preferences.set.len(), 4);
    (0..4).for_each(|cpu| govern(&files, cpu, "powersave", SAVING[cpu]));
    preferences.look();
    // The same where energy is no longer saved meanwhile, and after a crash.
    (0..2).for_each(|cpu| govern(&files, cpu, "performance", "performance"));
    preferences.restore();
    std::mem::forget(preferences);
    assert_eq!(now(&files)[0], "performance", "nothing is written");
    assert_eq!(restore_left(files.root()), 0);
    assert!(has_state(&files));
    (0..2).for_each(|cpu| govern(&files, cpu, "powersave", SAVING[cpu]));
    assert_eq!(restore_left(files.root()), 2);
    assert_eq!(now(&files), BALANCED);
    assert!(!has_state(&files));
}

#[test]
fn a_governor_does_not_hide_what_another_tool_sets_on_the_others() {
    let files = laptop(BALANCED);
    let mut preferences = EnergyPreferences::new(files.root());
    preferences.lower(&board(2, 2));
    govern(&files, 3, "performance", "performance");
    (0..3).for_each(|cpu| set(&files, cpu, "power"));
    preferences.restore();
    assert_eq!(now(&files)[..3], ["power"; 3]);
    // What is set under another governor is another tool's, whatever it is.
    govern(&files, 3, "powersave", "performance");
    preferences.look();
    assert!(!has_state(&files));
    assert_eq!(now(&files)[3], "performance");
}

#[test]
fn what_another_tool_has_set_is_no_longer_noted() {
    let files = laptop(BALANCED);
    let mut preferences = EnergyPreferences::new(files.root());
    preferences.lower(&board(2, 2));
    set(&files, 0, "performance");
    preferences.look();
    std::mem::forget(preferences);
    // By chance to what was set here.
    set(&files, 0, SAVING[0]);
    assert_eq!(restore_left(files.root()), 3);
    assert_eq!(now(&files)[0], SAVING[0]);
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
