// SPDX-License-Identifier: GPL-2.0-only
//! A thread that runs where it is sent, for a moment, and has three uses.
//!
//! - A task alone on its CPU runs on without a word to the scheduler. If another task waits for that CPU
//!   the kernel hands the first one back at the end of its slice. So the courier is sent there.
//! - While nothing is enqueued the scheduler does not run. The courier wakes up at each tick, and a wake-up
//!   is an enqueue.
//! - It may always use one CPU only. Asked for an idle CPU for such a task, the BPF half says whether a
//!   certain CPU is idle, and claims it.
//!
//! The scheduler tells it by atomics and a futex. With a lock, it would wait for a thread that it has yet
//! to schedule.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::{self, Thread};
use std::time::Duration;

use anyhow::{Context, Result};

/// See the module.
pub(crate) struct Courier {
    /// Thread id.
    pub(crate) tid: i32,
    thread: Thread,
    /// By CPU: whether it is to go there.
    visits: Arc<[AtomicBool]>,
}

impl Courier {
    /// Starts it on one of the machine's CPUs.
    ///
    /// # Errors
    /// There can be no thread.
    pub(crate) fn start(home: u32, nr_cpu_ids: u32, tick: Duration) -> Result<Self> {
        let visits: Arc<[AtomicBool]> = (0..nr_cpu_ids).map(|_| AtomicBool::new(false)).collect();
        let asked = Arc::clone(&visits);
        let (tell, told) = sync_channel(1);
        let courier = move || {
            go_to(home);
            // SAFETY: the call takes no memory and cannot fail.
            let _ = tell.send(unsafe { libc::gettid() });
            loop {
                thread::park_timeout(tick);
                for (cpu, visit) in (0..).zip(asked.iter()) {
                    if visit.swap(false, Ordering::AcqRel) {
                        go_to(cpu);
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("courier".into()).spawn(courier);
        let thread = thread.context("no thread can be started")?.thread().clone();
        let tid = told.recv().context("the courier has ended")?;
        Ok(Self {
            tid,
            thread,
            visits,
        })
    }

    /// Sends it to a CPU.
    pub(crate) fn visit(&self, cpu: u32) {
        if let Some(visit) = self.visits.get(cpu as usize) {
            visit.store(true, Ordering::Release);
            self.thread.unpark();
        }
    }
}

/// Lets the calling thread run on one CPU only. One that went offline meanwhile is no loss.
fn go_to(cpu: u32) {
    // SAFETY: a cpu_set_t of zeros is a valid empty set; the kernel reads it during the call only.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu as usize % libc::CPU_SETSIZE as usize, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}
