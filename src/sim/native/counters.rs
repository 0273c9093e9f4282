// SPDX-License-Identifier: GPL-2.0-only
//! Perf events on CPUs, the ring of samples, and words of spin notifications.

use std::ffi::c_void;

use super::cpu::{NativePerfEvent, Runs};
use super::ffi;
use super::kernel::{KernelState, NativeKernel};
use super::task::TaskIndex;
use crate::bpf::intf;

const MAX_EVENTS: usize = intf::hetero_consts_MAX_EVENTS as usize;

impl NativeKernel {
    /// Opens the events of a set on a CPU, as the agent does when sets take turns. Counts begin
    /// anywhere.
    pub fn open_events(&self, cpu: u32, set: usize) {
        let core_type = self.machine.type_of(cpu);
        let nr = self
            .machine
            .set_events
            .get(core_type)
            .and_then(|sets| sets.get(set));
        let nr = usize::from(nr.copied().unwrap_or(0));
        self.count(cpu);
        let of = &mut self.st().cpus[cpu as usize];
        of.open_set = (nr > 0).then_some((set, nr));
        let fresh = NativePerfEvent {
            count_q10: 1 << 50,
            counts: true,
            ..NativePerfEvent::default()
        };
        of.events = [fresh; MAX_EVENTS];
    }

    /// Takes the counters of one event on a CPU away (another user has them), or gives them back.
    pub fn detach_event(&self, cpu: u32, k: usize, detached: bool) {
        self.count(cpu);
        self.st().cpus[cpu as usize].events[k].counts = !detached;
    }

    /// Closes the events of a CPU: they cannot be read any more.
    pub fn close_events(&self, cpu: u32) {
        self.count(cpu);
        self.st().cpus[cpu as usize].open_set = None;
    }

    /// Brings the counters of a CPU up to the model's time.
    pub(super) fn count(&self, cpu: u32) {
        let now = self.now();
        let core_type = self.machine.type_of(cpu);
        let mut state = self.st();
        let KernelState { cpus, tasks, .. } = &mut *state;
        let of = &mut cpus[cpu as usize];
        // What runs in other classes counts, too, and belongs to no task.
        const OTHERS: [u32; MAX_EVENTS] = [1024; MAX_EVENTS];
        match of.runs {
            Runs::Idle => of.count(now, None),
            Runs::Other => of.count(now, Some(&OTHERS)),
            Runs::Task(task) => {
                let task = &mut tasks[task.0 as usize];
                let rates = task.rates[core_type];
                let passed = now - of.counted_at;
                for (counted, rate) in task.counted.iter_mut().zip(rates) {
                    *counted += u64::from(rate) * passed;
                }
                of.count(now, Some(&rates));
            }
        }
    }

    /// The events of a CPU have counted so much more than the rates of what runs there say.
    pub fn add_counts(&self, cpu: u32, counts: impl Iterator<Item = f64>) {
        self.count(cpu);
        let of = &mut self.st().cpus[cpu as usize];
        for (event, count) in of.events.iter_mut().zip(counts) {
            if event.counts {
                event.count_q10 += (count * 1024.0) as u64;
            }
        }
    }

    /// What a task has counted of an event in truth, wherever it ran.
    pub fn counted(&self, task: TaskIndex, k: usize) -> u64 {
        if self.is_running(task) {
            self.count(self.cpu_of(task));
        }
        self.look().tasks[task.0 as usize].counted[k] >> 10
    }

    /// An event that counts on one CPU can be read there only: `perf_event_read_local()`.
    pub(super) fn perf_read(&self, index: u64) -> Result<ffi::bpf_perf_event_value, i32> {
        let nr_cpus = u64::from(self.machine.nr_cpus());
        let (cpu, event) = ((index % nr_cpus) as u32, (index / nr_cpus) as usize);
        let (set, k) = (event / MAX_EVENTS, event % MAX_EVENTS);
        self.count(cpu);
        let state = self.look();
        let of = &state.cpus[cpu as usize];
        if of.open_set.is_none_or(|(open, nr)| open != set || k >= nr) {
            return Err(ffi::NOT_EXISTING);
        }
        if cpu != self.here() {
            return Err(ffi::INVALID);
        }
        let NativePerfEvent {
            count_q10,
            enabled,
            running,
            ..
        } = of.events[k];
        Ok(ffi::bpf_perf_event_value {
            counter: count_q10 >> 10,
            enabled,
            running,
        })
    }

    pub(super) fn record(&self, map: *mut c_void, data: &[u8]) {
        if map != self.samples_map {
            self.st().bells += 1;
        } else if data.len() == size_of::<intf::task_sample>() {
            // SAFETY: the BPF half writes samples, of this size, to this ring.
            let sample = unsafe { data.as_ptr().cast::<intf::task_sample>().read_unaligned() };
            self.st().samples.push(sample);
        } else {
            self.error(format!("a sample of {} bytes", data.len()));
        }
    }

    /// Has the ring of the samples no room from now on?
    pub fn set_ring_full(&self, full: bool) {
        // SAFETY: as in enter().
        unsafe { (*self.here.get()).ring_is_full = full }
    }

    pub(super) fn ring_is_full(&self) -> bool {
        // SAFETY: as in enter().
        unsafe { (*self.here.get()).ring_is_full }
    }

    /// The word that the running task's memory has at `address`.
    pub(super) fn read_user(&self, _address: u64) -> Option<u32> {
        match self.runs(self.here()) {
            Runs::Task(task) => Some(self.look().tasks[task.0 as usize].spin_word),
            _ => None,
        }
    }
}
