// SPDX-License-Identifier: GPL-2.0-or-later
//! Counts allocations, for tests in which nothing may allocate: here, and in tests/host/allocation.rs.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Allocations of this thread so far.
    pub(crate) static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts, and leaves the rest to the system.
struct Counting;

// SAFETY: every call is handed on unchanged; the counter is a constant-initialised thread local,
// which allocates nothing itself.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is handed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
