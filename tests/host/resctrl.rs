// SPDX-License-Identifier: GPL-2.0-only
//! Monitoring groups of resctrl in a folder that looks like the kernel's.

use std::fs;
use std::path::{Path, PathBuf};

use hetero_core::cache::pool::GroupError;
use hetero_core::cache::{CacheWays, GroupPool, MonitoredBytes, MonitoringGroups};
use scx_hetero::pmu::virtual_counters::{CounterName, VirtualCounters};
use scx_hetero::resctrl::{ResctrlGroups, ResctrlWays};
use tempfile::TempDir;

const S: u64 = 1_000_000_000;
const OWNER: u32 = 7;

/// A kernel, as far as files can be one.
struct Kernel {
    folder: TempDir,
    groups: ResctrlGroups,
}

fn write(path: PathBuf, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn resctrl(root: &Path) -> PathBuf {
    root.join("sys/fs/resctrl")
}

/// What a group has to say.
fn tell(group: &Path, occupancy: &str, total: &str) {
    for cache in ["mon_L3_00", "mon_L3_01"] {
        let folder = group.join("mon_data").join(cache);
        write(folder.join("llc_occupancy"), occupancy);
        write(folder.join("mbm_total_bytes"), total);
    }
}

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let resctrl = resctrl(folder.path());
    write(resctrl.join("info/L3_MON/num_rmids"), "8\n");
    fs::create_dir_all(resctrl.join("mon_groups")).unwrap();
    tell(&resctrl, "1000000", "0");
    folder
}

/// A process of two threads.
fn process(root: &Path, pid: u32, groups: &str) {
    for tid in [pid, pid + 1] {
        write(root.join(format!("proc/{pid}/task/{tid}/comm")), "x\n");
    }
    write(root.join(format!("proc/{pid}/cpu_resctrl_groups")), groups);
}

impl Kernel {
    fn new() -> Self {
        let folder = folder();
        let groups = ResctrlGroups::find(folder.path(), OWNER).unwrap();
        Self { folder, groups }
    }

    fn group(&self, pid: u32) -> PathBuf {
        let groups = resctrl(self.folder.path()).join("mon_groups");
        groups.join(format!("scx_hetero-{OWNER}-{pid}"))
    }
}

/// The kernel fills a folder that is made, and empties one that is removed.
impl MonitoringGroups for Kernel {
    fn open(&mut self, pid: u32) -> Result<(), GroupError> {
        self.groups.open(pid)?;
        tell(&self.group(pid), "500\n", "1000\n");
        let groups = format!("res:/\nmon:scx_hetero-{OWNER}-{pid}\n");
        process(self.folder.path(), pid, &groups);
        Ok(())
    }

    fn read(&mut self, pid: u32) -> Result<MonitoredBytes, GroupError> {
        self.groups.read(pid)
    }

    fn close(&mut self, pid: u32) {
        let group = self.group(pid);
        if group.exists() {
            fs::remove_dir_all(&group).unwrap();
            fs::create_dir(&group).unwrap();
        }
        self.groups.close(pid);
    }
}

#[test]
fn processes_are_monitored_in_groups_of_ours_which_end_with_them() {
    let mut kernel = Kernel::new();
    let root = kernel.folder.path().to_path_buf();
    process(&root, 100, "res:/\nmon:/\n");
    process(&root, 200, "res:/\nmon:/\n");
    let mut pool = GroupPool::new(kernel.groups.most());
    pool.update(S, &[100, 200], &mut kernel);
    let known: Vec<_> = pool.monitored().map(|of| (of.pid, of.occupancy)).collect();
    assert_eq!(known, [(100, Some(1000.0)), (200, Some(1000.0))]);
    // One write each, as the kernel wants it: what is there is the last one.
    let tasks = fs::read_to_string(kernel.group(100).join("tasks")).unwrap();
    assert!(["100\n", "101\n"].contains(&tasks.as_str()), "{tasks}");
    tell(&kernel.group(100), "700\n", "3001000\n");
    tell(&kernel.group(200), "Unavailable\n", "Error\n");
    pool.update(3 * S, &[100, 200], &mut kernel);
    let known: Vec<_> = pool.monitored().map(|of| (of.occupancy, of.rate)).collect();
    assert_eq!(known, [(Some(1400.0), Some(3e6)), (None, None)]);
    pool.update(4 * S, &[200], &mut kernel);
    assert!(!kernel.group(100).exists() && kernel.group(200).exists());
    pool.close(&mut kernel);
    let left = fs::read_dir(resctrl(&root).join("mon_groups")).unwrap();
    assert_eq!(left.count(), 0);
}

#[test]
fn a_cache_that_says_nothing_makes_no_rate_of_what_the_others_say() {
    let mut kernel = Kernel::new();
    process(kernel.folder.path(), 100, "");
    let mut pool = GroupPool::new(4);
    let second = kernel.group(100).join("mon_data/mon_L3_01/mbm_total_bytes");
    let mut rates = Vec::new();
    for (at, says) in [
        (1, "1000\n"),
        (2, "Unavailable\n"),
        (3, "1000\n"),
        (4, "2000\n"),
    ] {
        pool.update(at * S, &[100], &mut kernel);
        write(second.clone(), says);
        pool.update(at * S + S / 2, &[100], &mut kernel);
        rates.extend(pool.monitored().map(|of| of.rate));
    }
    assert_eq!(rates, [Some(0.0), None, None, Some(2000.0)]);
}

#[test]
fn half_of_the_numbers_are_left_to_others_and_processes_take_turns() {
    let mut kernel = Kernel::new();
    assert_eq!(kernel.groups.most(), 4);
    let pids: Vec<u32> = (1..=6).map(|n| 100 * n).collect();
    for &pid in &pids {
        process(kernel.folder.path(), pid, "");
    }
    let mut pool = GroupPool::new(kernel.groups.most());
    let mut seen = Vec::new();
    for second in 0..12 {
        pool.update(second * S, &pids, &mut kernel);
        seen.extend(pool.monitored().map(|of| of.pid));
        let folders = fs::read_dir(resctrl(kernel.folder.path()).join("mon_groups"));
        assert_eq!(folders.unwrap().count(), 4);
    }
    assert!(pids.iter().all(|pid| seen.contains(pid)), "{seen:?}");
}

#[test]
fn what_an_owner_that_was_killed_left_is_removed_and_nothing_else() {
    let folder = folder();
    let groups = resctrl(folder.path()).join("mon_groups");
    let names = [
        "scx_hetero-999-100", // it has ended
        "scx_hetero-7-100",   // had our number
        "scx_hetero-junk",
        "scx_hetero-55-100", // another one runs, and
        "scx_hetero-66-100", // another program has that number now
        "theirs",
    ];
    let confined = [
        "scx_hetero-999-confined",
        "scx_hetero-55-confined",
        "theirs",
    ];
    for name in names {
        fs::create_dir(groups.join(name)).unwrap();
    }
    for name in confined {
        fs::create_dir(resctrl(folder.path()).join(name)).unwrap();
    }
    write(folder.path().join("proc/55/comm"), "scx_hetero\n");
    write(folder.path().join("proc/66/comm"), "bash\n");
    ResctrlGroups::find(folder.path(), OWNER).unwrap();
    let left = names.map(|name| groups.join(name).exists());
    assert_eq!(left, [false, false, false, true, false, true]);
    let left = confined.map(|name| resctrl(folder.path()).join(name).exists());
    assert_eq!(left, [false, true, true]);
}

#[test]
fn processes_of_others_groups_are_left_alone() {
    let mut kernel = Kernel::new();
    let root = kernel.folder.path().to_path_buf();
    process(&root, 100, "res:/\nmon:theirs\n");
    process(&root, 200, "res:theirs\nmon:/\n");
    process(&root, 300, "res:/\nmon:scx_hetero-7-1\n");
    // As a QEMU of libvirt's: a thread alone is in a group, and not the first.
    process(&root, 500, "res:/\nmon:/\n");
    let second = root.join("proc/500/task/501/cpu_resctrl_groups");
    write(second.clone(), "res:theirs\nmon:/\n");
    assert_eq!(kernel.open(500), Err(GroupError::NotThisOne));
    assert!(!kernel.group(500).exists());
    write(second, "res:/\nmon:scx_hetero-7-1\n");
    assert_eq!(kernel.open(500), Ok(()));
    assert_eq!(kernel.open(100), Err(GroupError::NotThisOne));
    assert_eq!(kernel.open(200), Err(GroupError::NotThisOne));
    assert_eq!(kernel.open(300), Ok(()));
    assert_eq!(kernel.open(400), Err(GroupError::Ended));
    assert!(!kernel.group(100).exists() && !kernel.group(400).exists());
}

#[test]
fn a_group_that_another_removes_and_an_unmounted_resctrl_are_told() {
    let mut kernel = Kernel::new();
    let root = kernel.folder.path().to_path_buf();
    process(&root, 100, "");
    kernel.open(100).unwrap();
    fs::remove_dir_all(kernel.group(100)).unwrap();
    assert_eq!(kernel.read(100), Err(GroupError::Gone));
    let mut pool = GroupPool::new(4);
    pool.update(S, &[100], &mut kernel);
    assert_eq!(pool.monitored().len(), 1);
    fs::remove_dir_all(resctrl(&root)).unwrap();
    for second in 2..9 {
        pool.update(second * S, &[100], &mut kernel);
    }
    assert_eq!((pool.monitored().len(), pool.waiting()), (0, 1));
}

#[test]
fn a_process_that_pmc_takes_for_a_while_is_monitored_again_afterwards() {
    let mut kernel = Kernel::new();
    let root = kernel.folder.path().to_path_buf();
    process(&root, 100, "res:/\nmon:\n");
    let mut pool = GroupPool::new(4);
    pool.update(S, &[100], &mut kernel);
    assert_eq!(pool.monitored().len(), 1);
    // It has a group of its own, into which it moves what the scheduler's holds.
    let mut pmc = ResctrlGroups::find(&root, 55).unwrap();
    write(root.join("proc/55/comm"), "scx_hetero\n");
    assert_eq!(pmc.take_over(100), Ok(()));
    process(&root, 100, "res:/\nmon:scx_hetero-55-100\n");
    for second in 2..12 {
        pool.update(second * S, &[100], &mut kernel);
        assert_eq!(pool.monitored().len(), 0);
    }
    // It ends, and its group with it.
    fs::remove_dir_all(root.join("proc/55")).unwrap();
    process(&root, 100, "res:/\nmon:\n");
    pool.update(12 * S, &[100], &mut kernel);
    assert_eq!(pool.monitored().len(), 1);
}

#[test]
fn where_there_is_nothing_to_monitor_by_it_says_why() {
    let why = |root: &Path| ResctrlGroups::find(root, OWNER).unwrap_err();
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    assert!(why(root).contains("no resctrl"));
    fs::create_dir_all(resctrl(root)).unwrap();
    assert!(why(root).contains("mount -t resctrl"));
    write(resctrl(root).join("info/L3/num_closids"), "16");
    assert!(why(root).contains("does not monitor"));
    fs::create_dir_all(resctrl(root).join("mon_groups")).unwrap();
    tell(&resctrl(root), "1", "1");
    for rmids in ["1", "many", "-5", ""] {
        write(resctrl(root).join("info/L3_MON/num_rmids"), rmids);
        assert!(why(root).contains("no number"), "{rmids}");
    }
    write(resctrl(root).join("info/L3_MON/num_rmids"), "4294967295\n");
    assert_eq!(ResctrlGroups::find(root, OWNER).unwrap().most(), 32);
}

#[test]
fn virtual_counters_can_be_of_one_group() {
    let folder = folder();
    let group = Path::new("sys/fs/resctrl/mon_groups/scx_hetero-7-100");
    tell(&folder.path().join(group), "42\n", "4200\n");
    let mut counters = VirtualCounters::discover(folder.path());
    counters.retain(|counter| counter.name == CounterName::LlcOccupancy);
    let read = |counters: &VirtualCounters| -> Vec<(String, Option<f64>)> {
        let scopes = counters.describe().iter().map(|of| of.scope.to_string());
        let values = counters.read();
        scopes
            .zip(values.iter().map(|value| value.value()))
            .collect()
    };
    assert_eq!(read(&counters)[0], ("L3 0".into(), Some(1e6)));
    counters.read_group(group);
    let read = read(&counters);
    assert_eq!(read[0], ("the program, L3 0".into(), Some(42.0)));
    assert_eq!(read.len(), 2);
}

/// A kernel that gives ways away, of these resources.
fn with_ways(resources: &[&str], mask: &str) -> TempDir {
    let folder = folder();
    let resctrl = resctrl(folder.path());
    let mut schemata = "    MB:0=100;1=100\n".to_string();
    for resource in resources {
        write(resctrl.join(format!("info/{resource}/cbm_mask")), mask);
        write(resctrl.join(format!("info/{resource}/min_cbm_bits")), "1\n");
        let mask = mask.trim();
        schemata += &format!("    {resource}:0={mask};1={mask}\n");
    }
    write(resctrl.join("schemata"), &schemata);
    folder
}

fn last_task(group: &Path) -> String {
    fs::read_to_string(group.join("tasks")).unwrap_or_default()
}

#[test]
fn confined_processes_have_a_tenth_of_the_ways_and_get_all_back() {
    let folder = with_ways(&["L3"], "fffff\n");
    let (root, resctrl) = (folder.path(), resctrl(folder.path()));
    let group = resctrl.join("scx_hetero-7-confined");
    process(root, 100, "res:/\nmon:/\n");
    process(root, 200, "res:theirs\nmon:/\n");
    let mut ways = ResctrlWays::find(root, OWNER).unwrap();
    ways.check().unwrap();
    assert_eq!((ways.ways(), group.exists()), ([2, 20], false));
    // As the kernel makes it.
    assert_eq!(ways.confine(200), Err(GroupError::NotThisOne));
    ways.confine(100).unwrap();
    let schemata = fs::read_to_string(group.join("schemata")).unwrap();
    assert_eq!(schemata, "L3:0=3;1=3\n");
    assert!(["100\n", "101\n"].contains(&last_task(&group).as_str()));
    process(root, 100, "res:scx_hetero-7-confined\nmon:/\n");
    assert!(ways.holds(100) && !ways.holds(200));
    // Monitored, it is so there.
    fs::create_dir_all(group.join("mon_groups")).unwrap();
    let mut groups = ResctrlGroups::find(root, OWNER).unwrap();
    groups.open(100).unwrap();
    let monitored = group.join("mon_groups/scx_hetero-7-100");
    assert_eq!(groups.folder_of(100), Some(monitored.as_path()));
    groups.close(100);
    ways.release(100);
    assert!(["100\n", "101\n"].contains(&last_task(&resctrl).as_str()));
    ways.release(300);
}

#[test]
fn with_code_and_data_apart_both_are_confined() {
    let folder = with_ways(&["L3CODE", "L3DATA"], "7f8");
    process(folder.path(), 100, "res:/\nmon:/\n");
    let mut ways = ResctrlWays::find(folder.path(), OWNER).unwrap();
    assert_eq!(ways.ways(), [1, 8]);
    ways.confine(100).unwrap();
    let group = resctrl(folder.path()).join("scx_hetero-7-confined");
    // One write each: what is there is the last one.
    let schemata = fs::read_to_string(group.join("schemata")).unwrap();
    assert_eq!(schemata, "L3DATA:0=8;1=8\n");
}

#[test]
fn where_no_ways_can_be_given_away_it_says_why() {
    let why = |root: &Path| ResctrlWays::find(root, OWNER).unwrap_err();
    let empty = tempfile::tempdir().unwrap();
    assert!(why(empty.path()).contains("no resctrl"));
    for (resources, mask) in [
        (&[][..], "f"),
        (&["L3"], "0"),
        (&["L3"], "x"),
        (&["L3"], "1"),
    ] {
        let folder = with_ways(resources, mask);
        assert!(why(folder.path()).contains("cbm_mask"), "{mask}");
    }
}

#[test]
fn a_group_of_ways_that_cannot_be_made_leaves_processes_alone() {
    let folder = with_ways(&["L3"], "fff");
    let root = folder.path();
    process(root, 100, "res:/\nmon:/\n");
    let mut ways = ResctrlWays::find(root, OWNER).unwrap();
    // As if none were left: a file is in the way.
    write(resctrl(root).join("scx_hetero-7-confined"), "");
    assert!(ways.check().unwrap_err().contains("scx_hetero-7-confined"));
    assert_eq!(ways.confine(100), Err(GroupError::Gone));
    assert_eq!(last_task(&resctrl(root)), "");
    assert!(!ways.holds(100));
}
