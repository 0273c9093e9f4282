// SPDX-License-Identifier: GPL-2.0-only
//! What else has a say in where tasks run, and what they ask for that is not done.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::Check;
use crate::cgroups::{limited, names};

/// A daemon: its name in `/proc/PID/comm`, what it does, and what to do about it.
struct Daemon(&'static str, &'static str, &'static str);

const DAEMONS: [Daemon; 3] = [
    Daemon(
        "intel_lpmd",
        "moves all tasks to the E or LP-E cores when little runs, by cpusets that no scheduler \
         may overrule",
        "systemctl disable --now intel_lpmd",
    ),
    Daemon(
        "scx_loader",
        "starts sched_ext schedulers when asked, and two cannot run at once",
        "systemctl disable --now scx_loader, or do not ask it for one",
    ),
    Daemon(
        "gamemoded",
        "binds games to the P cores, where no policy can move them",
        "set pin_cores=no and park_cores=no below [cpu] in /etc/gamemode.ini",
    ),
];

pub(super) fn checks(root: &Path) -> Vec<Check> {
    let mut checks = daemons(&running(root));
    checks.extend(cgroups(&root.join("sys/fs/cgroup")));
    checks
}

/// Names of all processes that can be seen, as the kernel knows them.
fn running(root: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(root.join("proc")).into_iter().flatten();
    let pids = entries.flatten().filter(|entry| {
        let name = entry.file_name();
        name.as_encoded_bytes().iter().all(u8::is_ascii_digit)
    });
    let comms = pids.filter_map(|pid| fs::read_to_string(pid.path().join("comm")).ok());
    comms.map(|comm| comm.trim_end().to_string()).collect()
}

fn daemons(running: &BTreeSet<String>) -> Vec<Check> {
    const NAME: &str = "daemons";
    let found = DAEMONS.iter().filter(|daemon| running.contains(daemon.0));
    let mut checks: Vec<_> = found
        .map(|Daemon(name, does, remedy)| {
            Check::warning(NAME, format!("{name} runs: it {does}"), *remedy)
        })
        .collect();
    if checks.is_empty() {
        let names: Vec<_> = DAEMONS.iter().map(|daemon| daemon.0).collect();
        checks.push(Check::ok(
            NAME,
            format!("no other daemon chooses CPUs ({})", names.join(", ")),
        ));
    }
    if running.contains("thermald") {
        checks.push(Check::note(
            NAME,
            "thermald runs: it lowers clocks and power, which is measured along, and moves \
             nobody",
        ));
    }
    checks
}

/// Limits of cgroups that are lost while the scheduler is attached.
fn cgroups(root: &Path) -> Vec<Check> {
    const NAME: &str = "cgroup-limits";
    if !root.join("cgroup.controllers").exists() {
        return vec![Check::note(
            NAME,
            "there is no hierarchy of cgroups version 2 at /sys/fs/cgroup: limits of CPU time by \
             version 1 are not enforced either, and not looked for",
        )];
    }
    let lost = [
        (
            "cpu.max",
            "CPU time (cpu.max, CPUQuota=)",
            "take the limit away, use cpu.weight (CPUWeight=) or a cpuset (AllowedCPUs=) \
             instead, or run scx_hetero with --partial",
        ),
        (
            "cpu.uclamp.max",
            "CPU frequency (cpu.uclamp.max)",
            "limit the clock for all by cpufreq instead, or run scx_hetero with --partial",
        ),
    ];
    let lost = lost.into_iter().filter_map(|(file, what, remedy)| {
        let cgroups: BTreeSet<PathBuf> = limited(root, file);
        let subject = match cgroups.len() {
            0 => return None,
            1 => "1 cgroup has".to_string(),
            n => format!("{n} cgroups have"),
        };
        let found = format!("{subject} a limit of {what} that is not enforced");
        Some(Check::warning(NAME, found, remedy).naming(names(&cgroups)))
    });
    let mut checks: Vec<_> = lost.collect();
    if checks.is_empty() {
        checks.push(Check::ok(NAME, "no cgroup has a limit that would be lost"));
    }
    checks
}
