// SPDX-License-Identifier: GPL-2.0-only
//! How time goes by for threads that run: what they have done since, how fast they are from now on,
//! and when they come to the end of it.

use super::super::contention::{Rate, RunningThread};
use super::super::event::SimulatedEvent;
use super::{BEGIN_NS, SimulatedCpu, SimulatedKernel, SimulatedThread, ThreadState};

/// Less than this is left over by rounding: instructions' worth of time, ns.
const ROUNDING_NS: f64 = 1.0;

impl SimulatedKernel {
    /// Brings what the thread on a CPU has done up to date.
    pub(super) fn settle(&mut self, cpu: u32) {
        let core_type = self.cpu(cpu).core_type;
        let Some(thread) = self.cpu(cpu).current else {
            return;
        };
        let hz = self.machine.cores[core_type].hz;
        let now = self.now;
        let t = &mut self.threads[thread as usize];
        let passed = (now - t.settled_at) as f64;
        if passed == 0.0 {
            return;
        }
        t.settled_at = now;
        let stalled = t.debt.min(passed);
        t.debt -= stalled;
        let instructions = (passed - stalled) / t.rate.ns_per_instruction;
        t.left -= instructions;
        t.awake_left -= instructions;
        let load = &self.contention.loads[t.load];
        t.counters.instructions += instructions;
        t.counters.cycles += passed * hz / 1e9;
        t.counters.stalled += (passed - stalled) * t.rate.stalled * hz / 1e9;
        t.counters.loads += instructions * load.loads;
        t.counters.branches += instructions * load.branches;
        t.counters.misses += instructions * t.rate.misses;
        t.counters.references += instructions * load.llc_accesses(core_type);
        if let Some(energy) = &self.machine.energy {
            let did = (instructions, t.rate.misses);
            t.nj += energy.run_nj((core_type, hz), load, passed, did);
        }
    }

    /// What idle CPUs and the rest of the package have taken since the beginning, nJ: of no thread.
    pub(in crate::sim) fn shared_nj(&self) -> f64 {
        let Some(energy) = &self.machine.energy else {
            return 0.0;
        };
        let passed = (self.now - BEGIN_NS) as f64;
        let since = if self.running > 0 {
            self.now - self.awake_from
        } else {
            0
        };
        let awake = (self.awake_ns + since) as f64;
        let idle = |cpu: &SimulatedCpu| {
            energy.cores[cpu.core_type].idle_w * (passed - cpu.busy_ns as f64).max(0.0)
        };
        let idle: f64 = self.cpus.iter().map(idle).sum();
        idle + awake * energy.uncore_w + (passed - awake) * energy.idle_w
    }

    /// What all of it takes while nothing runs, W.
    pub(in crate::sim) fn idle_watts(&self) -> f64 {
        let Some(energy) = &self.machine.energy else {
            return 0.0;
        };
        let idle = |cpu: &SimulatedCpu| energy.cores[cpu.core_type].idle_w;
        energy.idle_w + self.cpus.iter().map(idle).sum::<f64>()
    }

    /// What a sensor of the package and memory has counted, J, where the machine's file says what it takes.
    pub(in crate::sim) fn counted_j(&self) -> Option<f64> {
        self.machine.energy.as_ref()?;
        Some((self.past_nj + self.threads_nj() + self.shared_nj()) / 1e9)
    }

    fn threads_nj(&self) -> f64 {
        let alive = self.threads.iter();
        let alive = alive.filter(|thread| thread.state != ThreadState::Dead);
        alive.map(|thread| thread.nj).sum()
    }

    /// Charges the thread on a CPU for the time that it ran, as the kernel's `update_curr` does.
    pub(in crate::sim) fn update_current(&mut self, cpu: u32) {
        self.settle(cpu);
        let Some(thread) = self.cpu(cpu).current else {
            return;
        };
        let now = self.now;
        let t = self.thread_mut(thread);
        let ran = now - t.exec_start;
        t.exec_start = now;
        t.sum_exec += ran;
        self.cpus[cpu as usize].busy_ns += ran;
    }

    /// The thread on a CPU begins another phase, or has just come.
    pub(in crate::sim) fn changes_load(&mut self, cpu: u32) {
        let c = self.cpu(cpu);
        let (core_type, memory_is_dirty) = (c.core_type, self.is_dirty[c.memory]);
        let Some(thread) = c.current else { return };
        let matters = self.disturbs(self.threads[thread as usize].load);
        let load = &self.contention.loads[self.threads[thread as usize].load];
        self.threads[thread as usize].rate = Rate {
            ns_per_instruction: load.alone_ns(core_type),
            misses: 0.0,
            lines: 0.0,
            stalled: 0.0,
        };
        if matters && !memory_is_dirty {
            self.mark_dirty(cpu);
        }
        self.touched.push(cpu);
    }

    /// Whether a load disturbs others, or can be disturbed: where cores have two threads all can.
    pub(super) fn disturbs(&self, load: usize) -> bool {
        self.machine.topology.smt || self.contention.loads[load].matters()
    }

    /// The load of what runs on the other half of a CPU's core.
    fn beside(&self, cpu: u32) -> Option<usize> {
        let siblings = &self.machine.topology.cpus[cpu as usize].siblings;
        let other = siblings.iter().find(|&&sibling| sibling != cpu)?;
        Some(self.thread(self.cpu(*other).current?).load)
    }

    /// What runs on a CPU has changed, and with it the speed of those that share its memory.
    pub(in crate::sim) fn mark_dirty(&mut self, cpu: u32) {
        let memory = self.cpu(cpu).memory;
        if !std::mem::replace(&mut self.is_dirty[memory], true) {
            self.dirty.push(memory);
        }
    }

    /// Gives a program few ways of last-level caches, or all.
    pub(in crate::sim) fn confine(&mut self, job: usize, confined: bool) {
        if std::mem::replace(&mut self.jobs[job].confined, confined) == confined {
            return;
        }
        for cpu in 0..self.cpus.len() as u32 {
            let runs = self.cpu(cpu).current;
            if runs.is_some_and(|thread| self.thread(thread).job == job) {
                self.mark_dirty(cpu);
            }
        }
    }

    /// Ends an instant: works out how fast threads are from now on, and when they come to the end
    /// of what they do.
    pub(in crate::sim) fn end_instant(&mut self) {
        while let Some(memory) = self.dirty.pop() {
            self.is_dirty[memory] = false;
            self.rebalance(memory);
        }
        while let Some(cpu) = self.touched.pop() {
            self.arm_work(cpu);
        }
    }

    fn rebalance(&mut self, memory: usize) {
        let mut runners = std::mem::take(&mut self.runners);
        let mut key = std::mem::take(&mut self.key);
        runners.clear();
        for &cpu in &self.by_memory[memory] {
            let c = self.cpu(cpu);
            let Some(thread) = c.current else { continue };
            let SimulatedThread { load, job, .. } = *self.thread(thread);
            if self.disturbs(load) {
                let runner = RunningThread {
                    llc: c.llc % self.machine.llcs_in_module,
                    core_type: c.core_type,
                    load,
                    beside: self.beside(cpu),
                    confined: self.jobs[job].confined,
                };
                runners.push((runner, cpu));
            }
        }
        runners.sort_unstable();
        key.clear();
        key.extend(runners.iter().map(|(runner, _)| *runner));
        let mut rates = std::mem::take(&mut self.rates);
        rates.clear();
        rates.extend_from_slice(self.contention.rates(&key));
        for (&(_, cpu), &rate) in runners.iter().zip(&rates) {
            self.settle(cpu);
            let Some(thread) = self.cpu(cpu).current else {
                continue;
            };
            let t = &mut self.threads[thread as usize];
            if t.rate != rate {
                t.rate = rate;
                self.touched.push(cpu);
            }
        }
        self.rates = rates;
        self.runners = runners;
        self.key = key;
    }

    pub(super) fn arm_tick(&mut self, cpu: u32) {
        let now = self.now;
        let tick = self.machine.tick_ns;
        let c = &mut self.cpus[cpu as usize];
        if c.tick_armed {
            return;
        }
        c.tick_armed = true;
        c.next_tick = now + tick - (now + tick - c.offset) % tick;
        self.events.push(c.next_tick, SimulatedEvent::Tick(cpu));
    }

    /// A tick has come: the next one, if the CPU is busy. Whether it is.
    pub(in crate::sim) fn next_tick(&mut self, cpu: u32) -> bool {
        self.cpus[cpu as usize].tick_armed = false;
        if self.cpu(cpu).current.is_none() {
            return false;
        }
        self.arm_tick(cpu);
        self.touched.push(cpu);
        true
    }

    /// Foresees the end of what the thread on a CPU does, if it comes before the next tick: that one
    /// looks again.
    fn arm_work(&mut self, cpu: u32) {
        let c = &mut self.cpus[cpu as usize];
        c.stamp += 1;
        let Some(thread) = c.current else { return };
        let t = &self.threads[thread as usize];
        let since = (self.now - t.settled_at) as f64;
        let left = t.left.min(t.awake_left).max(0.0);
        let takes = t.debt + left * t.rate.ns_per_instruction - since;
        if takes < (c.next_tick - self.now) as f64 {
            let at = self.now + takes.max(0.0).ceil() as u64;
            self.events.push(at, SimulatedEvent::Work(cpu, c.stamp));
        }
    }

    /// Whether an event of a thread's work is still what was foreseen.
    pub(in crate::sim) fn is_current(&self, cpu: u32, stamp: u64) -> bool {
        self.cpu(cpu).stamp == stamp && self.cpu(cpu).current.is_some()
    }

    /// Whether so many instructions of a thread are as good as none.
    pub(in crate::sim) fn is_done(&self, thread: u32, left: f64) -> bool {
        let t = self.thread(thread);
        t.debt <= 0.0 && left * t.rate.ns_per_instruction < ROUNDING_NS
    }

    /// A thread that is not done after all, for rounding, or goes on with more of the same: works on.
    pub(in crate::sim) fn look_again(&mut self, cpu: u32) {
        self.touched.push(cpu);
    }
}
