// SPDX-License-Identifier: GPL-2.0-only
//! What must be so before the scheduler can start, each with its remedy.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use anyhow::Result;
use hetero_core::kernel;

use crate::exit::{ExitReason, Failure};
use crate::files::read_trimmed;

pub(crate) const SCHED_EXT: &str = "sys/kernel/sched_ext";
const BTF: &str = "sys/kernel/btf/vmlinux";
/// First bytes of BTF in this machine's byte order (linux/btf.h).
const BTF_MAGIC: u16 = 0xeb9f;

/// What this process may do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permissions {
    /// It runs as root.
    pub root: bool,
    /// Bits by linux/capability.h.
    capabilities: u64,
    /// `kernel.perf_event_paranoid`.
    pub paranoid: Option<i32>,
}

/// `CAP_SYS_ADMIN` (linux/capability.h), which stands for all others that we need.
const SYS_ADMIN: u32 = 21;

impl Permissions {
    /// `None` if the kernel does not say.
    pub(crate) fn read(root: &Path) -> Option<Self> {
        let status = fs::read_to_string(root.join("proc/self/status")).ok()?;
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
        let paranoid = fs::read_to_string(root.join("proc/sys/kernel/perf_event_paranoid")).ok();
        Some(Self {
            // Real, effective, and two more.
            root: field("Uid:")?.split_whitespace().nth(1)? == "0",
            capabilities: u64::from_str_radix(field("CapEff:")?.trim(), 16).ok()?,
            paranoid: paranoid.and_then(|level| level.trim().parse().ok()),
        })
    }

    /// Whether it has the capability of this number, or the one that stands for all.
    pub(crate) fn has(self, number: u32) -> bool {
        [number, SYS_ADMIN]
            .iter()
            .any(|number| self.capabilities >> number & 1 == 1)
    }

    /// The level of `kernel.perf_event_paranoid`, if only `CAP_SYS_ADMIN` will do for counters and is
    /// not there. Above 2 is unknown to Linux itself; Debian's kernels, and those made from them, refuse
    /// whoever lacks it, `CAP_PERFMON` or not.
    pub(crate) fn too_paranoid(self) -> Option<i32> {
        self.paranoid
            .filter(|&level| level > 2 && !self.has(SYS_ADMIN))
    }
}

/// What keeps the scheduler from starting.
#[derive(Debug)]
pub(crate) struct Obstacle {
    reason: ExitReason,
    /// What is found, and why that is an obstacle.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
}

impl From<Obstacle> for anyhow::Error {
    fn from(obstacle: Obstacle) -> Self {
        Failure {
            reason: obstacle.reason,
            message: format!("{}; {}", obstacle.what, obstacle.remedy),
        }
        .into()
    }
}

/// Checks everything that can be checked without loading anything. `root` is
/// the root of the file system (`/`), `is_root` whether we run as root.
///
/// # Errors
/// A [`Failure`] that says what is missing and how to get it.
pub fn check(root: &Path, is_root: bool) -> Result<()> {
    if !is_root {
        return Err(Obstacle {
            reason: ExitReason::NotAllowed,
            what: "only root may replace the kernel's scheduler".into(),
            remedy: "run it with sudo".into(),
        }
        .into());
    }
    sees_all_processes(root)?;
    sched_ext(root)?;
    btf(root)?;
    nobody_else(root)?;
    Ok(())
}

/// The machine's own PID namespace (`PROC_PID_INIT_INO` of linux/proc_ns.h).
const PID_NAMESPACE: &str = "pid:[4026531836]";

/// The BPF half has processes by the machine's own numbers. In another namespace this process would not be known as the
/// agent, another one would, and rules, goals and what is known of programs would be other processes'.
pub(crate) fn sees_all_processes(root: &Path) -> Result<(), Obstacle> {
    match fs::read_link(root.join("proc/self/ns/pid")) {
        Ok(own) if own.as_os_str() != PID_NAMESPACE => Err(Obstacle {
            reason: ExitReason::NotAllowed,
            what: "this is a container, or another PID namespace of its own, where processes have other numbers than the \
                   kernel tells of"
                .into(),
            remedy: "run it outside, or with the machine's PID namespace (docker run --pid=host)".into(),
        }),
        _ => Ok(()),
    }
}

/// The kernel must have sched_ext.
pub(crate) fn sched_ext(root: &Path) -> Result<(), Obstacle> {
    if root.join(SCHED_EXT).join("state").exists() {
        return Ok(());
    }
    let release = kernel::release(root);
    let release = release.as_deref().unwrap_or("(unknown)");
    Err(Obstacle {
        reason: ExitReason::NoSchedExt,
        what: format!("this kernel ({release}) has no sched_ext"),
        remedy: "boot Linux 6.16 or later with CONFIG_SCHED_CLASS_EXT=y, as Debian's backports, \
                 Fedora, Arch, CachyOS and Ubuntu 25.10 have"
            .into(),
    })
}

/// The kernel must describe its types.
pub(crate) fn btf(root: &Path) -> Result<(), Obstacle> {
    let bad = |what, remedy: &str| {
        Err(Obstacle {
            reason: ExitReason::BadBtf,
            what,
            remedy: remedy.to_string(),
        })
    };
    let mut magic = [0; 2];
    match File::open(root.join(BTF)).and_then(|mut file| file.read(&mut magic)) {
        Ok(2) if magic == BTF_MAGIC.to_ne_bytes() => Ok(()),
        Ok(_) => bad(
            format!(
                "/{BTF} is not BTF (it does not start with 0x{BTF_MAGIC:x}): the kernel was built \
                 without CONFIG_DEBUG_INFO_BTF or by a broken pahole"
            ),
            "use another kernel build",
        ),
        Err(error) => bad(
            format!("cannot read the kernel's type information, /{BTF}: {error}"),
            "the kernel must be built with CONFIG_DEBUG_INFO_BTF=y",
        ),
    }
}

/// The name and version of the scx_hetero that is attached, if one is.
pub fn attached_hetero(root: &Path) -> Option<String> {
    let ops = read_trimmed(root.join(SCHED_EXT).join("root/ops"))?;
    // Its version follows, after an underscore.
    (ops.split('_').next() == Some("hetero")).then_some(ops)
}

/// A real-time kernel (PREEMPT_RT) lets no BPF program use timers, up to 7.3 at least, and the BPF half needs them.
pub(crate) fn not_realtime(root: &Path) -> Result<(), Obstacle> {
    let version = read_trimmed(root.join("proc/sys/kernel/version")).unwrap_or_default();
    if !version.split_whitespace().any(|word| word == "PREEMPT_RT") {
        return Ok(());
    }
    Err(Obstacle {
        reason: ExitReason::NoSchedExt,
        what: "this is a real-time kernel (PREEMPT_RT), where BPF programs may use no timers, and \
               scx_hetero needs them"
            .into(),
        remedy: "boot an ordinary one, perhaps with preempt=full".into(),
    })
}

/// CPUs may not have been isolated on the kernel's command line: up to 7.3 at least, Linux then takes no
/// sched_ext scheduler. It does not mind partitions of cpusets, which look the same in sysfs on some kernels.
pub(crate) fn none_isolated_at_boot(root: &Path) -> Result<(), Obstacle> {
    let isolated = read_trimmed(root.join("sys/devices/system/cpu/isolated")).unwrap_or_default();
    let arguments = read_trimmed(root.join("proc/cmdline")).unwrap_or_default();
    let mut arguments = arguments.split_whitespace();
    if isolated.is_empty() || !arguments.any(|argument| argument.starts_with("isolcpus=")) {
        return Ok(());
    }
    Err(Obstacle {
        reason: ExitReason::NoSchedExt,
        what: format!(
            "CPUs {isolated} are isolated by isolcpus= on the kernel's command line, and a kernel \
             booted so takes no sched_ext scheduler"
        ),
        remedy: "boot it without isolcpus=, and isolate CPUs by a partition of cpusets instead \
                 (cpuset.cpus.partition), or keep others off them (AllowedCPUs= of systemd)"
            .into(),
    })
}

/// How to stop what is attached.
const STOP_ANY: &str = "stop it first (for instance: systemctl stop scx, or scxctl stop)";
const STOP_OURS: &str = "stop it first (Ctrl-C where it runs, or systemctl stop scx_hetero), or change it as it runs \
                         ('scx_hetero set')";

/// No other scheduler may be attached.
pub(crate) fn nobody_else(root: &Path) -> Result<(), Obstacle> {
    let dir = root.join(SCHED_EXT);
    let state = fs::read_to_string(dir.join("state")).unwrap_or_default();
    if state.trim() == "disabled" {
        return Ok(());
    }
    let name = read_trimmed(dir.join("root/ops")).unwrap_or_default();
    let (name, remedy) = match &*name {
        "" => ("another sched_ext scheduler", STOP_ANY),
        name if attached_hetero(root).is_some() => (name, STOP_OURS),
        name => (name, STOP_ANY),
    };
    Err(Obstacle {
        reason: ExitReason::AnotherScheduler,
        what: format!(
            "{name} is attached already ({}), and the kernel takes one scheduler at a time",
            state.trim()
        ),
        remedy: remedy.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit;

    fn machine() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, bytes) in [
            ("sys/kernel/sched_ext/state", &b"disabled\n"[..]),
            (BTF, &[0x9f, 0xeb, 1, 0]),
            ("proc/sys/kernel/osrelease", b"6.18.15\n"),
        ] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        dir
    }

    fn refusal(dir: &Path, is_root: bool) -> (u8, String) {
        let error = check(dir, is_root).unwrap_err();
        (exit::status(&error), error.to_string())
    }

    #[test]
    fn a_good_machine_passes() {
        check(machine().path(), true).unwrap();
    }

    #[test]
    fn one_of_our_own_that_is_attached_is_known_by_its_name() {
        let dir = machine();
        assert_eq!(attached_hetero(dir.path()), None);
        let root = dir.path().join(SCHED_EXT).join("root");
        fs::create_dir(&root).unwrap();
        for (ops, ours) in [("lavd_1.1.4\n", false), ("hetero_0.1.0\n", true)] {
            fs::write(root.join("ops"), ops).unwrap();
            assert_eq!(attached_hetero(dir.path()).is_some(), ours, "{ops}");
        }
    }

    #[test]
    fn isolation_on_the_command_line_is_told_from_partitions_and_other_flags() {
        let dir = machine();
        let path = dir.path().join("sys/devices/system/cpu/isolated");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        for (isolated, arguments, fine) in [
            ("\n", "quiet isolcpus=managed_irq,2-3 nohz_full=2-3\n", true),
            ("2-3\n", "quiet nohz_full=2-3\n", true),
            ("2-3\n", "quiet isolcpus=2-3\n", false),
        ] {
            fs::write(&path, isolated).unwrap();
            fs::write(dir.path().join("proc/cmdline"), arguments).unwrap();
            let found = none_isolated_at_boot(dir.path());
            assert_eq!(found.is_ok(), fine, "{arguments} {found:?}");
        }
    }

    #[test]
    fn every_refusal_names_its_remedy_and_has_its_own_status() {
        let dir = machine();
        let (status, text) = refusal(dir.path(), false);
        assert_eq!(status, 3);
        assert!(text.contains("sudo"), "{text}");

        let namespaces = dir.path().join("proc/self/ns");
        fs::create_dir_all(&namespaces).unwrap();
        std::os::unix::fs::symlink("pid:[4026532345]", namespaces.join("pid")).unwrap();
        let (status, text) = refusal(dir.path(), true);
        assert_eq!(status, 3);
        assert!(text.contains("--pid=host"), "{text}");
        fs::remove_file(namespaces.join("pid")).unwrap();
        std::os::unix::fs::symlink(PID_NAMESPACE, namespaces.join("pid")).unwrap();
        check(dir.path(), true).unwrap();

        let attached = dir.path().join("sys/kernel/sched_ext");
        fs::write(attached.join("state"), "enabled\n").unwrap();
        fs::create_dir(attached.join("root")).unwrap();
        fs::write(attached.join("root/ops"), "lavd_1.1.4\n").unwrap();
        let (status, text) = refusal(dir.path(), true);
        assert_eq!(status, 5);
        assert!(
            text.contains("lavd_1.1.4") && text.contains("systemctl stop"),
            "{text}"
        );

        fs::write(dir.path().join(BTF), "no BTF").unwrap();
        assert_eq!(refusal(dir.path(), true).0, 6);
        fs::remove_file(dir.path().join(BTF)).unwrap();
        let (status, text) = refusal(dir.path(), true);
        assert_eq!(status, 6);
        assert!(text.contains("CONFIG_DEBUG_INFO_BTF"), "{text}");

        fs::remove_dir_all(attached).unwrap();
        let (status, text) = refusal(dir.path(), true);
        assert_eq!(status, 4);
        assert!(
            text.contains("6.18.15") && text.contains("CONFIG_SCHED_CLASS_EXT"),
            "{text}"
        );
    }
}
