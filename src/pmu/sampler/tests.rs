// SPDX-License-Identifier: GPL-2.0-only

use super::*;

fn raw(set: u8, counts: &[u64]) -> intf::task_sample {
    let mut raw = decode(&[0; size_of::<intf::task_sample>()]).unwrap();
    raw.run_ns = 50_000_000;
    raw.set = set;
    raw.counts[..counts.len()].copy_from_slice(counts);
    raw
}

fn set(events: &[(Meaning, usize)], counters: usize) -> EventSet {
    let encoding = |n| crate::pmu::Encoding::raw(n as u64, "event");
    EventSet {
        counters: (0..counters).map(encoding).collect(),
        events: events.iter().map(|&(m, place)| (m.into(), place)).collect(),
    }
}

fn without_events() -> Sampler {
    Sampler {
        types: Vec::new(),
        nr_cpu_ids: 1,
        user_only: false,
        rotates: true,
        jump: 1.0,
        rounds: FxHashMap::default(),
        tally: SampleTally::default(),
    }
}

#[test]
fn one_set_gives_its_counts_as_they_are() {
    let plan = Plan {
        sets: vec![set(&[(Meaning::LlcMisses, 2)], 3)],
        absent: Vec::new(),
    };
    let counts = counts_of(&layout_of(&plan), &plan.sets[0], &raw(0, &[1000, 2000, 30]));
    assert_eq!(counts.get(Meaning::Instructions), Some(1000.0));
    assert_eq!(counts.get(Meaning::Cycles), Some(2000.0));
    assert_eq!(counts.get(Meaning::LlcMisses), Some(30.0));
    assert_eq!(counts.get(Meaning::Branches), None);
}

#[test]
fn a_round_is_scaled_to_the_sample_that_completes_it() {
    let plan = Plan {
        sets: vec![
            set(&[(Meaning::LlcMisses, 2)], 3),
            set(&[(Meaning::Branches, 2)], 3),
        ],
        absent: Vec::new(),
    };
    let mut round = Round::new(&plan, IPC_JUMP);
    assert!(!round.push(0, &[1000, 2000, 30]).complete);
    let last = raw(1, &[2000, 4000, 400]);
    assert!(round.push(1, &last.counts[..3]).complete);
    let counts = counts_of_round(&layout_of(&plan), &plan, &round, &last);
    assert_eq!(counts.get(Meaning::Instructions), Some(2000.0));
    assert_eq!(counts.get(Meaning::LlcMisses), Some(60.0));
    assert_eq!(counts.get(Meaning::Branches), Some(400.0));
}

#[test]
fn samples_of_tasks_that_spun_are_dropped_and_counted() {
    let mut sampler = without_events();
    let mut sample = raw(0, &[1000, 2000]);
    assert!(sampler.sample(&sample, |_, _| (None, None)).is_none());
    assert_eq!(sampler.tally().spun, 0);
    sample.spun = 1;
    assert!(sampler.sample(&sample, |_, _| (None, None)).is_none());
    assert_eq!(sampler.tally().spun, 1);
}

#[test]
fn what_no_cpu_can_have_counted_is_refused_and_counted() {
    let mut sampler = without_events();
    // 50 ms at 5 GHz and four instructions a cycle.
    assert!(sampler.admits(&raw(0, &[1_000_000_000, 250_000_000])));
    // Seen when a running task's nice was changed from another CPU: all that the counters held.
    assert!(!sampler.admits(&raw(0, &[1_000_000, 1_100_111_627_776])));
    assert!(!sampler.admits(&raw(0, &[1_000_000, 2_000_000, u64::MAX - 5])));
    let tally = sampler.tally();
    assert_eq!((tally.received, tally.refused), (3, 2));
}

#[test]
fn records_that_are_too_short_are_no_samples() {
    assert!(decode(&[0; 8]).is_none());
    let bytes = [0; size_of::<intf::task_sample>()];
    assert!(decode(&bytes).is_some());
}
