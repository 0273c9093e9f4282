// SPDX-License-Identifier: GPL-2.0-only
//! Threads by descriptor. Unlike what /proc takes, none of these calls waits for a lock that a thread may
//! hold which waits to be scheduled.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A thread, be it alive or not.
pub(crate) struct Pidfd(OwnedFd);

impl Pidfd {
    /// `None` if there is no such thread.
    pub(crate) fn open(tid: u32) -> Option<Self> {
        // SAFETY: the call takes no memory.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, tid, libc::PIDFD_THREAD) };
        let fd = i32::try_from(fd).ok().filter(|&fd| fd >= 0)?;
        // SAFETY: the kernel has just made this descriptor for us alone.
        Some(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// As the key of a map of task storage.
    pub(crate) fn key(&self) -> [u8; 4] {
        self.0.as_raw_fd().to_ne_bytes()
    }

    /// Its process, and that one's parent; `None` if the kernel is too old to say (before 6.13).
    pub(crate) fn process(&self) -> Option<(u32, u32)> {
        // SAFETY: zeros are valid for a struct of integers; the kernel writes no more than its size,
        // which is part of the request.
        unsafe {
            let mut info: libc::pidfd_info = std::mem::zeroed();
            info.mask = libc::PIDFD_INFO_PID.into();
            let answer = libc::ioctl(self.0.as_raw_fd(), libc::PIDFD_GET_INFO, &mut info);
            (answer == 0).then_some((info.tgid, info.ppid))
        }
    }
}
