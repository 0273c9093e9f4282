// SPDX-License-Identifier: GPL-2.0-or-later
//! A look allocates nothing once its sessions are known: it is taken in the agent's loop.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use hetero_core::goals::{GoalMachine, GoalSettings, Goals, SessionSight};

use crate::plant::{MS, Plant};

thread_local! {
    /// Allocations of this thread so far.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
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

#[test]
fn a_look_allocates_nothing_whichever_sessions_come_and_go() {
    let mut sights: Vec<SessionSight> = (0..100)
        .map(|id| Plant::new(id, 30.0, 0.01).sight())
        .collect();
    let mut goals = Goals::new(GoalSettings::default());
    let machine = GoalMachine {
        fast_cores: 8.0,
        others: 1.0,
    };
    let mut look = |look: u64, sights: &mut [SessionSight]| {
        for sight in &mut *sights {
            sight.beats += 2;
            sight.beat_at_ns = look * 50 * MS;
            sight.spent_ns += 4 * MS;
        }
        goals.look(look * 50 * MS, &machine, sights);
    };
    for at in 1..10 {
        look(at, &mut sights);
        look(at, &mut sights[..50]);
    }
    let before = ALLOCATIONS.get();
    for at in 10..100 {
        let there = if at % 3 == 0 { 40 } else { 100 };
        look(at, &mut sights[..there]);
    }
    assert_eq!(ALLOCATIONS.get(), before);
}
