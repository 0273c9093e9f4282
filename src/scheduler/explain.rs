// SPDX-License-Identifier: GPL-2.0-only
//! What the kernel says about loading and attaching, for people.

use std::path::Path;

use anyhow::Result;
use libbpf_rs::btf::Btf;
use log::debug;
use scx_utils::compat;

use super::NAME;
use crate::exit::{ExitReason, Failure};
use crate::preflight;

/// Says how many instructions the verifier went through for each program.
pub(super) fn report_verifier_cost() {
    for program in libbpf_rs::query::ProgInfoIter::default() {
        let name = program.name.to_string_lossy().into_owned();
        if name.starts_with("hetero_") || name == "apply_actions" {
            debug!("verifier: {name} {} instructions", program.verified_insns);
        }
    }
}

/// Whether the kernel's type information can be read; scx_utils panics where it cannot.
pub(super) fn check_type_information() -> Result<()> {
    let Err(error) = Btf::from_vmlinux() else {
        return Ok(());
    };
    let error = anyhow::Error::from(error);
    let text = format!("{error:#}");
    if ["os error 12)", "os error 24)"]
        .iter()
        .any(|of| text.contains(of))
    {
        return Err(explain_load_error(error));
    }
    Err(error.context("cannot read the kernel's type information (/sys/kernel/btf/vmlinux)"))
}

pub(super) fn explain_load_error(error: anyhow::Error) -> anyhow::Error {
    let failure = |reason, message| Failure { reason, message }.into();
    // EPERM is a ban; the verifier's verdict is EACCES or EINVAL.
    if format!("{error:#}").contains("os error 1)") {
        return failure(
            ExitReason::NotAllowed,
            format!(
                "the kernel does not let us load BPF programs ({error:#}); kernel lockdown (see \
                 /sys/kernel/security/lockdown), a container or missing capabilities do that"
            ),
        );
    }
    if format!("{error:#}").contains("os error 24)") {
        return error.context(
            "too few open files are allowed; raise the limit (ulimit -n, or LimitNOFILE= of the \
             service)",
        );
    }
    if format!("{error:#}").contains("os error 12)") {
        return error
            .context("too little memory is left, or allowed (ulimit -v, a cgroup's memory.max)");
    }
    // EOPNOTSUPP.
    if format!("{error:#}").contains("os error 95)")
        && let Err(obstacle) = preflight::not_realtime(Path::new("/"))
    {
        return obstacle.into();
    }
    // ENOTSUPP, which the C library has no word for.
    if format!("{error:#}").contains("os error 524)") {
        return error.context(
            "the kernel's compiler for BPF programs is switched off, and sched_ext needs it; switch it on \
             (sysctl net.core.bpf_jit_enable=1)",
        );
    }
    let malformed = compat::malformed_scx_kfuncs();
    if malformed.is_empty() {
        error.context(format!(
            "the kernel rejected {NAME}; -v shows the verifier's reasons"
        ))
    } else {
        failure(
            ExitReason::BadBtf,
            format!(
                "this kernel's type information is wrong for {}, and {NAME} could not do without: \
                 {error:#}; use another build of the kernel",
                malformed.join(", ")
            ),
        )
    }
}

pub(super) fn explain_attach_error(error: anyhow::Error) -> anyhow::Error {
    // libbpf-rs has no kind of its own for EBUSY, which the kernel says if
    // somebody attached between our look and our attempt.
    let text = format!("{error:#}");
    if text.contains("already running") || text.contains("os error 16") {
        let message = "another sched_ext scheduler got there first; stop it (for instance: \
                       systemctl stop scx) and try again";
        return Failure {
            reason: ExitReason::AnotherScheduler,
            message: message.into(),
        }
        .into();
    }
    // EINVAL alone; the reason is in the kernel's log.
    if text.contains("os error 22)")
        && let Err(obstacle) = preflight::none_isolated_at_boot(Path::new("/"))
    {
        return obstacle.into();
    }
    error.context(
        "the kernel did not accept the scheduler; its log may say why (dmesg | grep sched_ext)",
    )
}
