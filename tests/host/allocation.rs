// SPDX-License-Identifier: GPL-2.0-only
//! The agent allocates nothing while it decides: an allocation may fault, and under memory pressure
//! a fault may wait for a thread that waits for the agent.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::model::{Machine, aggressor, compute, sensitive, steady};
use clap::ValueEnum;
use scx_hetero::policy::{Name, Settings};
use scx_hetero::record::Encoder;

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

/// Allocations within a policy's calls in a minute, after a minute of warm-up; and its actions.
fn in_steady_state(name: Name, fairness: u8) -> (u64, usize) {
    let phased = crate::model::Program {
        phases: vec![compute(1.2), compute(2.4), sensitive()],
        work_ns: 3e9,
    };
    let mut programs: Vec<_> = [1.1, 2.8, 1.7, 2.0, 2.3]
        .map(|sf| steady(compute(sf)))
        .into();
    programs.extend([
        phased,
        steady(aggressor()),
        steady(sensitive()),
        steady(compute(1.4)),
    ]);
    let mut machine = Machine::new(&[2, 4, 2], programs);
    machine.estimates = true;
    let mut policy = name.build(Settings {
        fairness,
        ..Settings::default()
    });
    let every = policy.interval().map_or(u64::MAX, |i| i.as_nanos() as u64);
    let (mut warm_up, mut allocations, mut acted) = (0, 0, 0);
    let mut actions = Vec::new();
    // It records all that, as with `--record`.
    let mut recording = Encoder::default();
    let mut written = recording.take(Vec::with_capacity(1 << 20));
    written.reserve(1 << 20);
    while machine.now_ns < 120_000_000_000 {
        let samples = machine.tick();
        let before = ALLOCATIONS.get();
        for sample in &samples {
            recording.sample(sample);
            policy.observe(sample);
        }
        if machine.now_ns.is_multiple_of(every) {
            let snapshot = machine.snapshot();
            recording.look(&snapshot, true);
            policy.decide(&snapshot, &mut actions);
            recording.decided(&actions, &*policy);
            recording.carried_out(actions.iter().map(|_| true));
            written = recording.take(written);
        }
        let made = ALLOCATIONS.get() - before;
        if machine.now_ns < 60_000_000_000 {
            warm_up += made;
        } else {
            allocations += made;
            acted += actions.len();
        }
        machine.apply(actions.clone());
        actions.clear();
    }
    assert!(
        warm_up > 0 || name == Name::None,
        "{name}: what is counted?"
    );
    (allocations, acted)
}

#[test]
fn no_policy_allocates_while_it_decides_and_is_recorded_after_warm_up() {
    for &name in Name::value_variants() {
        for fairness in [100, 50] {
            let (allocations, acted) = in_steady_state(name, fairness);
            println!("{name} {fairness}: {acted} actions");
            assert!(acted > 10 || name == Name::None, "{name} did nothing");
            assert_eq!(allocations, 0, "{name} at fairness {fairness}");
        }
    }
}
