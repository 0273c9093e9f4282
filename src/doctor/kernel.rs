// SPDX-License-Identifier: GPL-2.0-only
//! Whether the kernel can run the scheduler, and lets us.

use std::fs;
use std::path::Path;

use hetero_core::kernel;

use super::Check;
use crate::preflight::{self, Obstacle, Permissions};

/// The first Linux that has all the BPF half needs.
const OLDEST: (u32, u32) = (6, 16);

/// Without these it will not load.
const NEEDED: [&str; 4] = [
    "CONFIG_SCHED_CLASS_EXT",
    "CONFIG_BPF_SYSCALL",
    "CONFIG_BPF_JIT",
    "CONFIG_DEBUG_INFO_BTF",
];

/// What the kernel asks for before it loads and attaches the BPF half and opens counters, by
/// number (linux/capability.h).
const CAPABILITIES: [(u32, &str); 2] = [(38, "CAP_PERFMON"), (39, "CAP_BPF")];

pub(super) fn checks(root: &Path, permissions: Option<&Permissions>) -> Vec<Check> {
    let mut checks = vec![release(root)];
    checks.extend(options(root));
    checks.push(judge(
        "btf",
        preflight::btf(root),
        "it describes its types (BTF)".into(),
    ));
    checks.extend(jit(root));
    checks.extend(lockdown(root));
    if preflight::sched_ext(root).is_ok() {
        checks.push(scheduler(root));
        checks.extend(failed("isolation", preflight::none_isolated_at_boot(root)));
        checks.extend(failed("real-time", preflight::not_realtime(root)));
    }
    checks.extend(failed("pid-namespace", preflight::sees_all_processes(root)));
    checks.push(allowed(permissions));
    checks
}

fn judge(name: &'static str, result: Result<(), Obstacle>, good: String) -> Check {
    match result {
        Ok(()) => Check::ok(name, good),
        Err(obstacle) => Check::failed(name, obstacle.what, obstacle.remedy),
    }
}

fn release(root: &Path) -> Check {
    const NAME: &str = "release";
    let Some(release) = kernel::release(root) else {
        return Check::note(NAME, "the kernel does not say its release");
    };
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next()?.parse().ok();
    let version: Option<(u32, u32)> = number().zip(number());
    if version.is_some_and(|version| version < OLDEST) {
        let (major, minor) = OLDEST;
        return Check::failed(
            NAME,
            format!("Linux {release} is too old"),
            format!("boot Linux {major}.{minor} or later"),
        );
    }
    Check::ok(NAME, format!("Linux {release}"))
}

/// Whether it has sched_ext, and was built with all that this takes.
fn options(root: &Path) -> Vec<Check> {
    const NAME: &str = "options";
    const SCHED_EXT: &str = "sched-ext";
    let sched_ext = preflight::sched_ext(root);
    let Some(config) = kernel::config(root) else {
        let text = "its options are not shown (/proc/config.gz, /boot/config-RELEASE)";
        let has = judge(SCHED_EXT, sched_ext, "it has sched_ext".into());
        return vec![has, Check::note(NAME, text)];
    };
    let is_set = |option: &str| kernel::is_set(&config, option);
    let missing: Vec<_> = NEEDED.into_iter().filter(|o| !is_set(o)).collect();
    let without = format!("it was built without {}", missing.join(", "));
    if let (Err(lack), false) = (&sched_ext, missing.is_empty()) {
        // One lack, of which that is the cause.
        let what = format!("{}: {without}", lack.what);
        return vec![Check::failed(SCHED_EXT, what, &lack.remedy)];
    }
    let mut checks = vec![
        judge(SCHED_EXT, sched_ext, "it has sched_ext".into()),
        match missing.is_empty() {
            true => Check::ok(NAME, "it was built with all options that are needed"),
            false => Check::failed(
                NAME,
                format!("{without}, which is needed"),
                "boot a kernel built with all of them set to y",
            ),
        },
    ];
    if missing.is_empty() && !is_set("CONFIG_EXT_GROUP_SCHED") {
        checks.push(Check::warning(
            "cgroup-weights",
            "it was built without CONFIG_EXT_GROUP_SCHED: cpu.weight (CPUWeight=) has no effect \
             while a sched_ext scheduler is attached",
            "where weights of cgroups matter, boot a kernel that has it",
        ));
    }
    checks
}

/// `None` if all is well or, as only root may read it, unknown.
fn jit(root: &Path) -> Option<Check> {
    let enabled = fs::read_to_string(root.join("proc/sys/net/core/bpf_jit_enable")).ok()?;
    (enabled.trim() == "0").then(|| {
        Check::failed(
            "jit",
            "the compiler for BPF programs is switched off, and sched_ext needs it",
            "sysctl net.core.bpf_jit_enable=1",
        )
    })
}

fn lockdown(root: &Path) -> Option<Check> {
    let modes = fs::read_to_string(root.join("sys/kernel/security/lockdown")).ok()?;
    modes.contains("[confidentiality]").then(|| {
        Check::failed(
            "lockdown",
            "it is locked down for confidentiality: BPF programs may not read its memory, and \
             nobody may count",
            "boot it without lockdown=confidentiality",
        )
    })
}

/// Nothing where all is well, as it mostly is.
fn failed(name: &'static str, result: Result<(), Obstacle>) -> Option<Check> {
    let obstacle = result.err()?;
    Some(Check::failed(name, obstacle.what, obstacle.remedy))
}

fn scheduler(root: &Path) -> Check {
    const NAME: &str = "scheduler";
    if let Some(ops) = preflight::attached_hetero(root) {
        return Check::ok(NAME, format!("{ops} is attached"));
    }
    judge(
        NAME,
        preflight::nobody_else(root),
        "no sched_ext scheduler is attached".into(),
    )
}

fn allowed(permissions: Option<&Permissions>) -> Check {
    const NAME: &str = "permissions";
    match permissions {
        None => Check::note(NAME, "what this process may do is not known"),
        Some(permissions) if !permissions.root => Check::note(
            NAME,
            "this is not root: some of what follows is hidden, and to schedule takes root",
        )
        .remedied_by("sudo scx_hetero doctor"),
        Some(permissions) => {
            let missing = CAPABILITIES
                .iter()
                .filter(|&&(number, _)| !permissions.has(number));
            let missing: Vec<_> = missing.map(|&(_, name)| name).collect();
            let grant = "run it outside of the container, or grant it that (docker run --cap-add, \
                         CapabilityBoundingSet= of a service)";
            match (&missing[..], permissions.too_paranoid()) {
                ([], None) => {
                    Check::ok(NAME, "this is root, with all capabilities that are needed")
                }
                ([], Some(level)) => Check::warning(
                    NAME,
                    format!(
                        "this is root, but without CAP_SYS_ADMIN, which some kernels want for \
                         counters where kernel.perf_event_paranoid is {level}"
                    ),
                    format!("{grant}, or 'sysctl kernel.perf_event_paranoid=2'"),
                ),
                (missing, _) => Check::failed(
                    NAME,
                    format!("this is root, but without {}", missing.join(", ")),
                    grant,
                ),
            }
        }
    }
}
