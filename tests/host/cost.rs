// SPDX-License-Identifier: GPL-2.0-only
//! What the agent's decisions cost. Nothing is asserted of time: `experiments/look-cost` counts
//! instructions.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use clap::ValueEnum;
use hetero_core::testing::{machine, task_of};
use scx_hetero::ml::live::LiveEstimator;
use scx_hetero::ml::model::Model;
use scx_hetero::pmu::Meaning;
use scx_hetero::pmu::sample::{EventCounts, Sample, SampleMetrics, SampleWatts, SfEstimate};
use scx_hetero::policy::{Name, Settings, Snapshot};
use scx_hetero::table::{Task, TaskState};

/// How often each thing is done.
const TIMES: u32 = 20;

/// How many threads, by the environment.
fn threads() -> u32 {
    let threads = std::env::var("THREADS").ok();
    threads.map_or(16, |threads| threads.parse().unwrap())
}

/// Of a policy, by the environment, on eight CPUs.
#[test]
#[ignore = "for experiments/look-cost, which counts its instructions"]
fn looks() {
    let name = std::env::var("POLICY").unwrap_or("rank".to_string());
    let name = Name::from_str(&name, false).unwrap();
    let topology = machine(&[4, 4]);
    let mut tasks: Vec<Task> = (0..threads())
        .map(|slot| task_of(slot, slot % 8, usize::from(slot % 8 >= 4), 2))
        .collect();
    for task in tasks.iter_mut().skip(8) {
        task.state = TaskState::Queued;
    }
    let mut policy = name.build(Settings::default());
    let (mut actions, mut took) = (Vec::new(), Vec::new());
    for look in 0..TIMES {
        for task in &mut tasks {
            task.run_ns[task.core_type] += 200_000_000;
            task.amp_progress += 100_000_000 + u64::from(task.id.slot * 37 % 101) * 1_000_000;
            // Some are near each other, and all change a little from look to look.
            let sf = 1.2 + f64::from(task.id.slot * 37 % 101) / 60.0 + f64::from(look % 3) / 50.0;
            policy.observe(&Sample {
                task: task.id,
                tid: task.tid,
                tgid: task.tgid,
                core_type: task.core_type,
                at_ns: 0,
                run_ns: 50_000_000,
                last: false,
                counts: EventCounts::default(),
                metrics: SampleMetrics {
                    ips: 1e9,
                    ipc: 1.0,
                    frequency: 1e9,
                    ..SampleMetrics::default()
                },
                sf: Some(SfEstimate { sf, sigma: 0.05 }),
                ef: Some(0.4 * sf),
                watts: Some(SampleWatts::on(task.core_type, 1.0, 0.1)),
            });
        }
        let snapshot = Snapshot {
            now_ns: u64::from(look) * 200_000_000,
            topology: &topology,
            tasks: &tasks,
        };
        actions.clear();
        let begun = Instant::now();
        policy.decide(&snapshot, &mut actions);
        took.push(begun.elapsed());
    }
    took.sort();
    println!(
        "{} threads: {:?} (median)",
        tasks.len(),
        took[took.len() / 2]
    );
}

#[test]
#[ignore = "for experiments/look-cost, which counts its instructions"]
fn estimates() {
    let (_tree, topology, machine) = crate::fixtures::alder_lake();
    let path = "models/virtual-alder-lake-4p4e.model.json";
    let model = Model::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let pmu_of = |core_type: usize| machine.pmu_of(topology.types[core_type].cpus[0]);
    let live = LiveEstimator::new(&model, &topology, pmu_of).unwrap();
    let counts: EventCounts = Meaning::all()
        .iter()
        .zip(1..)
        .map(|(&meaning, nth)| (meaning, 1e8 / f64::from(nth)))
        .collect();
    let begun = Instant::now();
    for _ in 0..TIMES {
        assert!(live.sf(0, black_box(&counts)).is_some());
    }
    println!("one estimate: {:?} (mean)", begun.elapsed() / TIMES);
}
