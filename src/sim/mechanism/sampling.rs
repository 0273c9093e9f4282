// SPDX-License-Identifier: GPL-2.0-only
//! Counters to samples, after `src/bpf/counters.bpf.h`. All events fit the PMU at once and count all
//! the time; none of it costs anything.

use super::super::kernel::{Counters, Kernel};
use super::hetero::Hetero;
use crate::pmu::Meaning;
use crate::pmu::module::{Counts, Metrics, Sample};
use crate::topology::MAX_CORE_TYPES;

/// Threads that use less of the time in which nobody keeps them waiting are not counted, in 1/1024.
const MIN_UTILISATION: u64 = 51;
const UTILISATION_WINDOW_NS: u64 = 200_000_000;
/// So many windows without use, and a thread is not counted.
const IDLE_WINDOWS: u8 = 2;

/// What a thread's samples on one core type are made of, until the next is due.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    run_ns: u64,
    due_ns: u64,
    counts: Counters,
}

/// What is counted of a thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    sums: [Sums; MAX_CORE_TYPES],
    counting: bool,
    from_ns: u64,
    from: Counters,
    slept_at: u64,
    slept_ns: u64,
    window_run_ns: u64,
    window_slept_ns: u64,
    idle_windows: u8,
}

impl Account {
    /// Does a thread use enough CPU to be worth counting?
    fn is_busy(&mut self, run_ns: u64) -> bool {
        let ran = run_ns - self.window_run_ns;
        let passed = ran + self.slept_ns - self.window_slept_ns;
        if passed >= UTILISATION_WINDOW_NS {
            if ran * 1024 >= passed * MIN_UTILISATION {
                self.idle_windows = 0;
            } else if self.idle_windows < IDLE_WINDOWS {
                self.idle_windows += 1;
            }
            self.window_run_ns = run_ns;
            self.window_slept_ns = self.slept_ns;
        } else if ran * 1024 >= UTILISATION_WINDOW_NS * MIN_UTILISATION {
            self.idle_windows = 0;
        }
        self.idle_windows < IDLE_WINDOWS
    }
}

impl Hetero {
    fn sample_ns(&self) -> Option<u64> {
        self.agent.as_ref()?.sample_ns()
    }

    pub(super) fn note_sleep(&mut self, k: &Kernel, thread: u32, asleep: bool) {
        if self.sample_ns().is_none() {
            return;
        }
        let account = &mut self.ctxs[thread as usize].account;
        if asleep {
            account.slept_at = k.now;
        } else if account.slept_at > 0 {
            account.slept_ns += k.now - account.slept_at;
        }
    }

    /// A thread begins a stretch.
    pub(super) fn start_counting(&mut self, k: &Kernel, thread: u32) {
        if self.sample_ns().is_none() {
            return;
        }
        let ctx = &mut self.ctxs[thread as usize];
        let run_ns = ctx.run_ns;
        let account = &mut ctx.account;
        account.counting = account.is_busy(run_ns);
        account.from_ns = k.thread(thread).sum_exec;
        account.from = k.thread(thread).counters;
    }

    /// A stretch ends.
    pub(super) fn stop_counting(&mut self, k: &Kernel, thread: u32) {
        let Some(sample_ns) = self.sample_ns() else {
            return;
        };
        let t = k.thread(thread);
        let core_type = k.cpu(t.cpu).core_type;
        let account = &mut self.ctxs[thread as usize].account;
        if !std::mem::take(&mut account.counting) {
            return;
        }
        let ran = t.sum_exec - account.from_ns;
        let (now, from) = (&t.counters, account.from);
        let sums = &mut account.sums[core_type];
        sums.run_ns += ran;
        sums.counts.instructions += now.instructions - from.instructions;
        sums.counts.cycles += now.cycles - from.cycles;
        sums.counts.loads += now.loads - from.loads;
        sums.counts.branches += now.branches - from.branches;
        sums.counts.misses += now.misses - from.misses;
        if sums.due_ns == 0 {
            sums.due_ns = sample_ns;
        }
        if ran > 0 && sums.run_ns >= sums.due_ns {
            self.send_sample(k, thread, core_type, false);
        }
    }

    /// Looks after a thread that runs on and on.
    pub(super) fn tick_counting(&mut self, k: &Kernel, thread: u32) {
        let Some(sample_ns) = self.sample_ns() else {
            return;
        };
        let t = k.thread(thread);
        let account = &self.ctx(thread).account;
        let sums = &account.sums[k.cpu(t.cpu).core_type];
        let due = if sums.due_ns > 0 {
            sums.due_ns
        } else {
            sample_ns
        };
        if account.counting && sums.run_ns + (t.sum_exec - account.from_ns) < due {
            return;
        }
        self.stop_counting(k, thread);
        self.start_counting(k, thread);
    }

    /// What an ending thread has left.
    pub(super) fn flush_counting(&mut self, k: &Kernel, thread: u32) {
        if self.sample_ns().is_none() {
            return;
        }
        for core_type in 0..self.masks.types.len() {
            if self.ctx(thread).account.sums[core_type].run_ns > 0 {
                self.send_sample(k, thread, core_type, true);
            }
        }
    }

    fn send_sample(&mut self, k: &Kernel, thread: u32, core_type: usize, last: bool) {
        let Some(sample_ns) = self.sample_ns() else {
            return;
        };
        let Some(task) = self.slot_of(thread).map(|slot| slot.task) else {
            return;
        };
        let sums = &mut self.ctxs[thread as usize].account.sums[core_type];
        let counts: Counts = [
            (Meaning::Instructions, sums.counts.instructions),
            (Meaning::Cycles, sums.counts.cycles),
            (Meaning::LlcMisses, sums.counts.misses),
            (Meaning::Loads, sums.counts.loads),
            (Meaning::Branches, sums.counts.branches),
        ]
        .into_iter()
        .collect();
        let metrics = Metrics::of(&counts, sums.run_ns);
        let run_ns = sums.run_ns;
        // What was too much of this sample is taken off the next.
        let over = run_ns.saturating_sub(sums.due_ns) % sample_ns;
        *sums = Sums {
            due_ns: sample_ns - over,
            ..Sums::default()
        };
        let Some(metrics) = metrics else { return };
        let model = self.agent.as_ref().and_then(|agent| agent.model);
        let load = k.thread(thread).load;
        let sf = model.map(|model| model.sf(k.contention.loads[load].sf(), load, core_type));
        let sample = Sample {
            task: task.id,
            tid: task.tid,
            tgid: task.tgid,
            core_type,
            at_ns: k.now,
            run_ns,
            last,
            counts,
            metrics,
            sf,
        };
        if sf.is_some()
            && let Some(slot) = self.slot_of_mut(thread)
        {
            slot.task.sf = sf;
        }
        if let Some(agent) = &mut self.agent {
            agent.note(sample);
        }
    }
}
