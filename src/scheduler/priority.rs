// SPDX-License-Identifier: GPL-2.0-only
//! How the calling thread is scheduled itself.

use std::io::{Error, Result};

use log::warn;
use nix::libc;

/// Lets the calling thread run only where no other wants to; the BPF half then takes it for a
/// thread like any other, and not for the agent.
///
/// # Errors
/// Where the kernel refuses.
pub(crate) fn run_when_idle() -> Result<()> {
    set(libc::SCHED_IDLE, 0)
}

/// Lets the calling thread run before all ordinary ones. It must need little, whatever they do.
///
/// # Errors
/// Where the kernel refuses, as it does without CAP_SYS_NICE.
pub(crate) fn run_first() -> Result<()> {
    set(libc::SCHED_FIFO, 1)
}

/// Attaches a scheduler as a real-time thread. Older kernels (seen on 6.16) move one thread after the
/// other to the class of sched_ext, which runs where ordinary ones do not want to, and the one that
/// attaches, too: beside many that are moved later, and take all CPUs, it would never get to them.
pub(super) fn at_real_time<T>(attach: impl FnOnce() -> T) -> T {
    // SAFETY: asks about the calling thread, and takes no memory.
    let before = unsafe { libc::sched_getscheduler(0) };
    // An agent that was started at real-time priority already has that left.
    if ![libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE].contains(&before) {
        return attach();
    }
    if let Err(why) = set(libc::SCHED_FIFO, 1) {
        warn!(
            "cannot attach at real-time priority ({why}): with many busy threads, it may never end"
        );
        return attach();
    }
    let attached = attach();
    if let Err(why) = set(before, 0) {
        warn!("the agent stays at real-time priority: {why}");
    }
    attached
}

fn set(policy: i32, priority: i32) -> Result<()> {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: it reads a structure that lives through the call, and changes the calling thread.
    match unsafe { libc::sched_setscheduler(0, policy, &parameters) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}
