// SPDX-License-Identifier: GPL-2.0-only
//! Answers to what the BPF half calls: timers, idle CPUs, kicks, performance, queues.

use super::ffi::{self, DSQ_GLOBAL, DSQ_LOCAL, DSQ_LOCAL_ON};
use super::kernel::{Kick, Later, NativeKernel};
use super::queue::{NativeQueue, QueueKey};
use super::task::{At, Insertion, TaskIndex};
use crate::topology::CpuMask;

impl NativeKernel {
    // Timers.

    pub(super) fn timer_start(&self, timer: *mut ffi::bpf_timer, ns: u64) {
        let cpu = self.here();
        let at = self.now() + ns;
        let mut state = self.st();
        state.nr_timers += 1;
        let key = (at, state.nr_timers);
        if let Some(before) = state.armed.insert(timer, key) {
            state.timers.remove(&before);
        }
        state.timers.insert(key, (timer, cpu));
    }

    /// When the next timer is due.
    pub fn next_timer(&self) -> Option<u64> {
        self.look().timers.first_key_value().map(|(key, _)| key.0)
    }

    /// Fires the next timer, on the CPU that armed it, if it is due. Says whether it was.
    pub fn fire_timer(&self) -> bool {
        let due = self.next_timer().is_some_and(|at| at <= self.now());
        let Some((_, (timer, cpu))) = due.then(|| self.st().timers.pop_first()).flatten() else {
            return false;
        };
        self.st().armed.remove(&timer);
        self.enter(cpu);
        // SAFETY: the BPF half armed it, and its memory lives as long as the maps.
        unsafe { (self.half.fire)(timer) };
        self.run_later();
        true
    }

    // Idle CPUs.

    pub(super) fn test_and_clear_idle(&self, cpu: i32) -> bool {
        let mut state = self.st();
        let idle = state.idle.contains(cpu as u32);
        if idle {
            state.idle.set(cpu as u32, false);
        }
        idle
    }

    /// `pick_idle_cpu_in_node()`: of a core that is idle as a whole, else, unless only that is asked
    /// for, any.
    pub(super) fn pick_idle(&self, cpus: &CpuMask, flags: u64) -> i32 {
        let whole_cores = flags & u64::from(ffi::SCX_PICK_IDLE_CORE) != 0;
        let idle = self.idle();
        let mut both = *cpus;
        both.intersect(&idle);
        let topology = &self.machine.topology;
        let is_whole = |cpu: &u32| {
            // One that came online since has no sibling that is known.
            let Some(of) = topology.cpu(*cpu) else {
                return true;
            };
            of.siblings.iter().all(|&sibling| idle.contains(sibling))
        };
        // SAFETY: as in enter().
        let cursor = unsafe { &mut (*self.here.get()).cursor };
        let from = *cursor + 1;
        let mut in_turn = both.cpus_from(from);
        let found = if topology.smt {
            let whole = in_turn.clone().find(is_whole);
            whole.or_else(|| in_turn.next().filter(|_| !whole_cores))
        } else {
            in_turn.next()
        };
        let Some(cpu) = found else {
            return -(ffi::EBUSY as i32);
        };
        *cursor = cpu;
        self.st().idle.set(cpu, false);
        cpu as i32
    }

    // Kicks, performance, errors.

    pub(super) fn kick(&self, cpu: i32, flags: u64) {
        if cpu < 0 || cpu as u32 >= self.machine.nr_cpus() {
            return self.error(format!("kick of CPU {cpu}"));
        }
        if self.bypasses(self.here()) {
            return;
        }
        let kick = Kick {
            cpu: cpu as u32,
            from: self.here(),
            flags,
        };
        self.trace(|| format!("kicks CPU {cpu}, flags {flags:#x}"));
        let mut state = self.st();
        state.kicks.push(kick);
        state.later.push(Later::Kick(kick));
    }

    pub(super) fn cpuperf_set(&self, cpu: i32, perf: u32) {
        if cpu < 0 || cpu as u32 >= self.machine.nr_cpus() || perf > ffi::SCX_CPUPERF_ONE {
            return self.error(format!("performance {perf} for CPU {cpu}"));
        }
        self.trace(|| format!("CPU {cpu} is asked for {perf}"));
        let mut state = self.st();
        state.cpus[cpu as usize].perf = perf;
        state.perf_requests.push((cpu as u32, perf));
    }

    pub(super) fn error(&self, message: String) {
        self.st().errors.push(message);
    }

    // Queues.

    pub(super) fn create_dsq(&self, dsq: u64) -> i32 {
        let mut state = self.st();
        if state.queues.contains_key(&dsq) {
            return -(ffi::EEXIST as i32);
        }
        state.queues.insert(dsq, NativeQueue::default());
        0
    }

    /// Which queue an id means, for a task of this CPU.
    pub(super) fn find_queue(&self, dsq: u64, cpu: u32) -> At {
        let on = dsq as u32;
        if dsq == DSQ_LOCAL {
            return At::Local(cpu);
        }
        if dsq & DSQ_LOCAL_ON == DSQ_LOCAL_ON {
            if on < self.machine.nr_cpus() {
                return At::Local(on);
            }
            self.error(format!("local queue of CPU {on}"));
        } else if self.look().queues.contains_key(&dsq) {
            return At::User(dsq);
        } else if dsq != DSQ_GLOBAL {
            self.error(format!("non-existent DSQ {dsq:#x}"));
        }
        At::Global
    }

    pub(super) fn queue<R>(&self, at: At, with: impl FnOnce(&mut NativeQueue) -> R) -> R {
        let state = &mut *self.st();
        with(match at {
            At::Local(cpu) => &mut state.cpus[cpu as usize].local,
            At::Global => &mut state.global,
            At::User(dsq) => state.queues.get_mut(&dsq).expect("find_queue() found it"),
        })
    }

    pub(super) fn seq_of(&self, dsq: u64) -> u64 {
        self.queue(self.find_queue(dsq, self.here()), |queue| queue.seq())
    }

    pub(super) fn next_in(
        &self,
        dsq: u64,
        place: Option<QueueKey>,
        seq: u64,
    ) -> Option<(QueueKey, TaskIndex)> {
        self.queue(self.find_queue(dsq, self.here()), |queue| {
            queue.after(place, seq)
        })
    }

    pub(super) fn nr_queued(&self, dsq: u64) -> i32 {
        self.queue(self.find_queue(dsq, self.here()), |queue| {
            queue.len() as i32
        })
    }

    /// `scx_bpf_dsq_insert()` and `scx_bpf_dsq_insert_vtime()` within select_cpu and enqueue.
    pub(super) fn dsq_insert(
        &self,
        task: TaskIndex,
        dsq: u64,
        slice: u64,
        vtime: Option<u64>,
        flags: u64,
    ) {
        let mut state = self.st();
        if state.verdict_of != Some(task) {
            state
                .errors
                .push("a task is inserted that was not asked about".into());
            return;
        }
        let entity = &mut state.tasks[task.0 as usize];
        // SAFETY: as in task_struct().
        let raw = unsafe { &mut *entity.raw.get() };
        raw.scx.slice = if slice > 0 {
            slice
        } else {
            raw.scx.slice.max(1)
        };
        if let Some(vtime) = vtime {
            raw.scx.dsq_vtime = vtime;
        }
        let verdict = Insertion {
            dsq,
            flags,
            by_vtime: vtime.is_some(),
        };
        if entity.verdict.replace(verdict).is_some() {
            state
                .errors
                .push(format!("task {} is inserted twice", raw.pid));
        }
    }

    pub(super) fn reenqueue_later(&self, dsq: u64) {
        let at = self.find_queue(dsq, self.here());
        self.st().later.push(Later::Requeue(at));
    }
}
