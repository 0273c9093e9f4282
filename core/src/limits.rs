// SPDX-License-Identifier: GPL-2.0-or-later
//! Sizes that `src/bpf/intf.h` has, too: the scheduler does not compile where they differ.

/// Threads that are measured and placed, at most.
pub const MAX_SLOTS: u32 = 16384;
/// CPUs, at most.
pub const MAX_CPUS: usize = 1024;
/// Hardware events that are read together, at most.
pub const MAX_EVENTS: usize = 12;
/// Sets of events that take turns, at most.
pub const MAX_SETS: usize = 8;
