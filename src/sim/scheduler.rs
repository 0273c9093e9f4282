// SPDX-License-Identifier: GPL-2.0-only
//! What decides which thread runs where.

use super::event::SimulatedEvent;
use super::kernel::SimulatedKernel;

/// A scheduler: it puts threads onto CPUs ([`SimulatedKernel::put_on`]) and takes them off
/// ([`SimulatedKernel::take_off`]).
pub(super) trait SimulatedScheduler {
    /// The simulation begins.
    fn begin(&mut self, kernel: &mut SimulatedKernel);
    /// A new thread, asleep. Its process is that of `leader`, which may be itself.
    fn add(&mut self, kernel: &mut SimulatedKernel, thread: u32, leader: u32);
    /// A thread that is asleep has ended.
    fn remove(&mut self, kernel: &mut SimulatedKernel, thread: u32);
    /// Whether it schedules threads that start programs again; otherwise [`Self::restarts`] stands for them.
    fn has_starters(&self) -> bool {
        true
    }
    /// A program whose last thread ran on `cpu` has ended, and starts again in a moment.
    fn restarts(&mut self, _: &mut SimulatedKernel, _: u32) {}
    /// What runs on CPU `from` wakes a thread up.
    fn wake(&mut self, kernel: &mut SimulatedKernel, thread: u32, from: u32);
    /// The thread on a CPU goes to sleep, or waits for others.
    fn block(&mut self, kernel: &mut SimulatedKernel, cpu: u32);
    /// A tick on a CPU that is busy.
    fn tick(&mut self, kernel: &mut SimulatedKernel, cpu: u32);
    /// All CPUs that are to look for something else to run do, and those that these cause to.
    fn switch_all(&mut self, kernel: &mut SimulatedKernel);
    /// An event of its own.
    fn event(&mut self, kernel: &mut SimulatedKernel, event: SimulatedEvent);
    /// When the next of its timers is due, ns.
    fn next_timer(&self) -> Option<u64> {
        None
    }
    /// Fires the timers that are due.
    fn fire_timers(&mut self, _: &mut SimulatedKernel) {}
}
