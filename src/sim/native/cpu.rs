// SPDX-License-Identifier: GPL-2.0-only
//! A CPU of the model: what runs there, its local queue, its counters.

use std::cell::UnsafeCell;

use super::ffi;
use super::queue::NativeQueue;
use super::task::TaskIndex;
use crate::bpf::intf;

const MAX_EVENTS: usize = intf::hetero_consts_MAX_EVENTS as usize;

/// What a CPU runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// Its idle task.
    Idle,
    /// A task of sched_ext.
    Task(TaskIndex),
    /// One of a scheduling class above: real-time, deadline or stop.
    Other,
}

/// A perf event on one CPU. Counts and times since it was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NativePerfEvent {
    pub(super) count_q10: u64,
    pub(super) enabled: u64,
    pub(super) running: u64,
    /// Not the case while another user has the counter: the event is enabled, and does not count.
    pub(super) counts: bool,
}

/// A CPU.
pub(super) struct NativeCpu {
    pub(super) runs: Runs,
    pub(super) local: NativeQueue,
    /// Stand for the idle task and for those of other classes in what the BPF half asks.
    pub(super) idle_task: Box<UnsafeCell<ffi::task_struct>>,
    pub(super) other_task: Box<UnsafeCell<ffi::task_struct>>,
    pub(super) in_balance: bool,
    pub(super) need_resched: bool,
    /// ops.cpu_release was called, and the CPU has not been balanced since.
    pub(super) released: bool,
    /// What scx_bpf_now() says beyond the model's time; each CPU's clock is its own.
    pub(super) skew: i64,
    pub(super) idle_since: u64,
    /// Whether it was parked after the last event, and when it was last.
    pub(super) parked: bool,
    pub(super) parked_until: u64,
    pub(super) perf: u32,
    /// The set of events that is open, of so many events.
    pub(super) open_set: Option<(usize, usize)>,
    pub(super) events: [NativePerfEvent; MAX_EVENTS],
    pub(super) counted_at: u64,
}

impl NativeCpu {
    pub(super) fn new(cpu: u32) -> Self {
        let stand_in = |pid, comm: &[u8]| {
            let mut task = ffi::task_struct {
                pid,
                tgid: pid,
                native_cpu: cpu as i32,
                ..Default::default()
            };
            for (to, &from) in task.comm.iter_mut().zip(comm) {
                *to = from as _;
            }
            task.native_index = u32::MAX;
            Box::new(UnsafeCell::new(task))
        };
        Self {
            runs: Runs::Idle,
            local: NativeQueue::default(),
            idle_task: stand_in(0, b"swapper"),
            other_task: stand_in(999_999, b"rt"),
            in_balance: false,
            need_resched: false,
            released: false,
            skew: 0,
            idle_since: 0,
            parked: false,
            parked_until: 0,
            // Unless a scheduler says otherwise.
            perf: ffi::SCX_CPUPERF_ONE,
            open_set: None,
            events: Default::default(),
            counted_at: 0,
        }
    }

    /// Brings the counters up to `now`; what runs counts at `rates` (1/1024 per ns), if anything.
    pub(super) fn count(&mut self, now: u64, rates: Option<&[u32; MAX_EVENTS]>) {
        let passed = now - self.counted_at;
        self.counted_at = now;
        let Some((_, nr)) = self.open_set else { return };
        for (k, event) in self.events[..nr].iter_mut().enumerate() {
            event.enabled += passed;
            if event.counts {
                event.running += passed;
                event.count_q10 += rates.map_or(0, |rates| u64::from(rates[k])) * passed;
            }
        }
    }
}
