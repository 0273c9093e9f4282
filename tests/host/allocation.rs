// SPDX-License-Identifier: GPL-2.0-only
//! The agent allocates nothing while it decides: an allocation may fault, and under memory pressure
//! a fault may wait for a thread that waits for the agent.

use std::convert::Infallible;

use crate::model::{Machine, aggressor, compute, sensitive, steady};
use clap::ValueEnum;
use hetero_core::knowledge::{Remembered, Sure, ThreadFinding, ThreadProfile};
use hetero_core::testing::with_smt;
use scx_hetero::agent::{Agent, Author, Backend, Outcome};
use scx_hetero::pmu::Meaning;
use scx_hetero::pmu::counts::{self, EventCounts};
use scx_hetero::pmu::sample::{Sample, SampleMetrics};
use scx_hetero::policy::{Action, Name, Settings};
use scx_hetero::record::Encoder;
use scx_hetero::table::Task;

#[path = "../../core/tests/goals/counting.rs"]
mod counting;

use counting::ALLOCATIONS;

/// A model of a machine, whose agent records all that it sees and decides, as with `--record`.
struct Bench {
    machine: Machine,
    /// What came since the last time.
    samples: Vec<Sample>,
    actions: Vec<Action>,
    recording: Encoder,
    /// What is known of every program, and how often something was found of a thread.
    known: ThreadProfile,
    kept: usize,
}

impl Backend for Bench {
    type Error = Infallible;

    fn now(&self) -> u64 {
        self.machine.now_ns
    }

    fn samples(&mut self, samples: &mut Vec<Sample>) -> Result<(), Infallible> {
        samples.append(&mut self.samples);
        Ok(())
    }

    fn snapshot(&mut self, tasks: &mut Vec<Task>) {
        tasks.clear();
        tasks.extend_from_slice(self.machine.snapshot().tasks);
    }

    fn apply(
        &mut self,
        actions: &[Action],
        _: Author,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), Infallible> {
        self.actions.extend_from_slice(actions);
        outcomes.extend(actions.iter().map(|_| Outcome::Applied));
        Ok(())
    }

    fn remembers(&self) -> bool {
        true
    }

    fn remembered(&mut self, _: &Task) -> Remembered<'_> {
        Remembered::Known(&self.known)
    }

    fn keep(&mut self, _: &Task, found: &ThreadFinding) -> bool {
        self.kept += usize::from(!found.profile.is_empty());
        true
    }

    fn recording(&mut self) -> Option<&mut Encoder> {
        Some(&mut self.recording)
    }
}

/// Allocations of the agent in a minute, after a minute and a half of warm-up, but for those of a thread's first move;
/// and its actions.
fn in_steady_state(name: Name, fairness: u8, smt: bool) -> (u64, usize) {
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
    if smt {
        machine.topology = (0..3).fold(machine.topology, with_smt);
    }
    let policy = name.build(Settings {
        fairness,
        ..Settings::default()
    });
    let every = policy.interval().map_or(u64::MAX, |i| i.as_nanos() as u64);
    let mut agent = Agent::new(machine.snapshot().topology.clone(), name, policy);
    let mut bench = Bench {
        machine,
        samples: Vec::new(),
        actions: Vec::with_capacity(64),
        recording: Encoder::default(),
        known: ThreadProfile::default(),
        kept: 0,
    };
    bench.known.sf[1] = Sure::of_factor(1.5, 0.01);
    let mut written = bench.recording.take(Vec::with_capacity(1 << 20));
    written.reserve(1 << 20);
    let (mut warm_up, mut allocations, mut acted) = (0, 0, 0);
    while bench.machine.now_ns < 150_000_000_000 {
        bench.samples = bench.machine.tick();
        let unmoved = |agent: &Agent| {
            let tasks = agent.tasks().iter();
            tasks.filter(|it| agent.moves.of(it.id) == 0).count() as u64
        };
        let still = unmoved(&agent);
        let before = ALLOCATIONS.get();
        let Ok(()) = agent.take_samples(&mut bench);
        if bench.machine.now_ns.is_multiple_of(every) {
            let Ok(()) = agent.decide(&mut bench);
            written = bench.recording.take(written);
        }
        let made = ALLOCATIONS.get() - before;
        if bench.machine.now_ns < 90_000_000_000 {
            warm_up += made;
        } else {
            allocations += made - (still - unmoved(&agent)).min(made);
            acted += bench.actions.len();
        }
        bench.machine.apply(bench.actions.clone());
        bench.actions.clear();
    }
    assert!(warm_up > 0, "{name}: what is counted?");
    let finds = name.build(Settings::default()).events().is_some();
    assert!(
        bench.kept > 0 || !finds || name == Name::Prim,
        "{name} found nothing"
    );
    (allocations, acted)
}

#[test]
fn no_policy_allocates_while_it_decides_and_is_recorded_after_warm_up() {
    for &name in Name::value_variants() {
        for (fairness, smt) in [(100, false), (50, false), (80, true)] {
            let (allocations, acted) = in_steady_state(name, fairness, smt);
            println!("{name} {fairness}: {acted} actions");
            // The rules that prim has are of another machine.
            let idle = [Name::None, Name::Prim].contains(&name);
            assert!(acted > 10 || idle, "{name} did nothing");
            assert_eq!(allocations, 0, "{name} at fairness {fairness}");
        }
    }
}

#[test]
fn a_sample_is_made_shown_and_dropped_without_an_allocation() {
    let events = [Meaning::Instructions, Meaning::Cycles, Meaning::LlcMisses];
    let layout: counts::Layout = events.into_iter().collect();
    let before = ALLOCATIONS.get();
    for nth in 1..1000 {
        let counts = EventCounts::new(&layout, [2e6 * f64::from(nth), 4e6, 1e4]);
        let metrics = SampleMetrics::of(&counts, 50_000_000).unwrap();
        assert!(metrics.btr.is_some());
    }
    assert_eq!(ALLOCATIONS.get(), before);
}
