// SPDX-License-Identifier: GPL-2.0-only
//! Schedulers, by the operations of `sched_ext_ops`.

mod account;
mod actions;
pub(super) mod fair;
pub(super) mod hetero;
mod idle;
mod park;
mod queue;
mod sampling;
mod turn;

use super::event::Event;
use super::kernel::Kernel;

/// What the kernel says about a thread that is put into a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    /// It has just woken up.
    pub(super) wakeup: bool,
    /// `select_cpu` was asked.
    pub(super) cpu_selected: bool,
    /// It is alone on its CPU, which goes idle otherwise.
    pub(super) last: bool,
}

/// A CPU for a thread that wakes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Selected {
    pub(super) cpu: u32,
    /// What runs there gives way.
    pub(super) preempts: bool,
}

/// A scheduler. The names are the kernel's.
pub(super) trait Mechanism {
    /// A thread that nobody competes with goes through [`Mechanism::enqueue`], too.
    const ENQ_LAST: bool;

    /// The simulation begins.
    fn begin(&mut self, kernel: &mut Kernel);
    /// How long a thread runs before others get their turn, ns.
    fn slice_ns(&self) -> u64;
    /// A new thread.
    fn enable(&mut self, kernel: &mut Kernel, thread: u32);
    /// It has ended.
    fn exit(&mut self, kernel: &mut Kernel, thread: u32);
    /// The CPU to which a thread that wakes up goes straight: an idle one, claimed for it, or one
    /// that it takes over.
    fn select_cpu(&mut self, kernel: &mut Kernel, thread: u32, previous: u32) -> Option<Selected>;
    /// A thread is to wait, or to go straight to some CPU.
    fn enqueue(&mut self, kernel: &mut Kernel, thread: u32, flags: Flags);
    /// A CPU has nothing to run but `previous`, whose slice is used up.
    fn dispatch(&mut self, kernel: &mut Kernel, cpu: u32, previous: Option<u32>);
    /// A thread can run.
    fn runnable(&mut self, kernel: &mut Kernel, thread: u32);
    /// It begins to.
    fn running(&mut self, kernel: &mut Kernel, thread: u32);
    /// A tick on the CPU where it does.
    fn tick(&mut self, kernel: &mut Kernel, thread: u32);
    /// It no longer does, and still can if it is `runnable`.
    fn stopping(&mut self, kernel: &mut Kernel, thread: u32, runnable: bool);
    /// It no longer can.
    fn quiescent(&mut self, kernel: &mut Kernel, thread: u32);
    /// A CPU goes idle, or no longer is.
    fn update_idle(&mut self, kernel: &mut Kernel, cpu: u32, idle: bool);
    /// A timer of its own.
    fn timer(&mut self, kernel: &mut Kernel, event: Event);
}

/// What its agent did.
#[derive(Default)]
pub(super) struct Acted {
    /// Actions that were applied, and those dropped as stale.
    pub(super) actions: (u64, u64),
    /// What was recorded, in parts.
    pub(super) recorded: Vec<Vec<u8>>,
}

/// See [`Acted`].
pub(super) fn acted(hetero: &mut hetero::Hetero) -> Acted {
    let agent = hetero.agent.as_mut();
    let recording = agent.and_then(|agent| agent.recording.take());
    Acted {
        actions: (hetero.outcome.applied, hetero.outcome.stale),
        recorded: recording.map_or_else(Vec::new, super::agent::Recording::end),
    }
}
