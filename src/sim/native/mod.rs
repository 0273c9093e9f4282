// SPDX-License-Identifier: GPL-2.0-only
//! The BPF half itself, compiled natively, on a model of the kernel.
//!
//! `build.rs` compiles `src/bpf/main.bpf.c` as it is against the shim in this folder, and each
//! [`NativeKernel`] loads a copy of its own: any number of machines run in one process. The kernel's
//! side is here: queues, idle masks, kicks, timers, counters and clocks, and the operations called in
//! the order, on the CPU and with the flags with which `kernel/sched/ext.c` and `core.c` call them.
//!
//! ```text
//!  src/bpf/*.h ─► half.c, shim.c ─► half.so ─► half ◄──► kernel (calls, steps) ◄── test
//! ```
//!
//! A test makes a [`NativeKernel`], forks tasks and takes steps: [`NativeKernel::wake`],
//! [`NativeKernel::tick`], [`NativeKernel::set_nice`], [`NativeKernel::advance`]. Everything is on
//! one thread, and nothing is random.

mod answers;
mod attach;
mod calls;
mod change;
mod check;
mod counters;
#[cfg(test)]
mod counting;
mod cpu;
mod dice;
mod enqueue;
#[cfg(test)]
mod faults;
mod ffi;
#[cfg(test)]
mod goals;
mod half;
mod kernel;
mod machine;
#[cfg(test)]
mod placing;
mod queue;
#[cfg(test)]
mod scene;
mod switch;
mod task;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod waits;
mod wake;
#[cfg(test)]
mod weights;
mod world;

pub use check::Bounds;
pub use cpu::Runs;
pub use dice::Dice;
pub use ffi::{account, bpf_perf_event_value, cpu_ctx, domain_ctx, reading, task_ctx};
pub use half::NativeHalf;
pub use kernel::{BEGIN_NS, Kick, NativeKernel};
pub use machine::{AGENT_TGID, NativeMachine, Version, topology};
pub use task::{NewTask, TaskIndex};
pub use wake::WAKE_TTWU;
pub use world::{BrokenRule, Calm, Chaos, World};
