// SPDX-License-Identifier: GPL-2.0-only
//! Samples: exact whatever runs between, and none that holds what was not counted all through.

use super::scene::*;
use super::*;
use crate::bpf::intf;
use crate::ml::estimates::FORESTS;
use crate::ml::fixed::feature;
use crate::ml::forest::{Comparison, FeatureScale, Forest, MAX_FEATURES, Sum};
use crate::ml::tree::Tree;
use crate::topology::MAX_CORE_TYPES;

/// Instructions in each 1024 ns on the fastest type, as tasks have it here.
const RATE: u64 = 2048;

fn sampling(cpus_by_type: &[u32], sample_ns: u64) -> Scene {
    Scene::new(&machine(cpus_by_type).sampling(sample_ns))
}

fn ipc(sample: &intf::task_sample) -> f64 {
    sample.counts[0] as f64 / sample.counts[1] as f64
}

#[test]
fn a_lone_spinner_gives_a_sample_each_50_ms() {
    let mut scene = sampling(&[1, 1], 50 * MS);
    scene.hogs(1, &NewTask::default());
    scene.run(10 * S);
    let samples = scene.kernel.take_samples();
    assert!(samples.len().abs_diff(200) <= 2, "{}", samples.len());
    for sample in &samples[1..] {
        assert!(sample.run_ns.abs_diff(50 * MS) <= MS, "{sample:?}");
    }
}

/// Two forests for each core type, none like another.
#[test]
fn samples_have_sf_and_ef_as_the_agent_would_say() {
    const NR_FEATURES: usize = 2;
    let mut scene = sampling(&[1, 1], 50 * MS);
    let mut forests = Vec::new();
    for which in 0..FORESTS {
        let forest = Forest::new(&Sum {
            base: 0.5 + which as f64 / 8.0,
            weights: &[0.3, 0.0],
            trees: &[Tree::Split {
                feature: 0,
                threshold: 1.0,
                low: Box::new(Tree::Leaf(0.25)),
                high: Box::new(Tree::Leaf(-0.25)),
            }],
            scales: &[FeatureScale { min: 0.0, max: 8.0 }; NR_FEATURES],
            comparison: Comparison::AtMost,
            inverse: which % 2 == 1,
            range: Some([0.1, 9.0]),
        });
        forests.push(forest.unwrap());
    }
    for (which, forest) in forests.iter().enumerate() {
        scene.kernel.half().hand_over(which, forest);
        let per_cycle = intf::estimate_divisor_PER_CYCLE as u8;
        scene
            .kernel
            .half()
            .set_at("forest_divisors", which, per_cycle);
    }
    scene.hogs(2, &NewTask::default());
    scene.run(2 * S);
    let mut seen = [0; 2];
    for sample in scene.kernel.take_samples() {
        let mut features = [0; MAX_FEATURES];
        features[0] = feature(sample.counts[0], sample.counts[1]);
        features[1] = feature(sample.counts[1], sample.counts[1]);
        let core_type = usize::from(sample.core_type);
        let [sf, ef] =
            [core_type, MAX_CORE_TYPES + core_type].map(|it| forests[it].score(&features));
        assert_eq!((sample.sf, sample.ef), (sf, ef), "on {core_type}");
        seen[core_type] += 1;
    }
    assert!(seen.iter().all(|&seen| seen > 20), "{seen:?}");
}

/// What others take from the counters is not believed, and nothing wrong is.
#[test]
fn nothing_wrong_gets_through_while_others_count() {
    let mut scene = sampling(&[1], 50 * MS);
    scene.hogs(1, &NewTask::default());
    scene.run(S);
    for round in 0..300 {
        scene.kernel.detach_event(0, round % 2, round % 3 == 0);
        scene.run(10 * MS);
    }
    scene.kernel.detach_event(0, 0, false);
    scene.kernel.detach_event(0, 1, false);
    scene.run(S);
    let samples = scene.kernel.take_samples();
    let discarded: u64 = samples.iter().map(|sample| sample.discarded_ns).sum();
    assert!(
        (S / 2..7 * S / 2).contains(&discarded),
        "{} ms",
        discarded / MS
    );
    for sample in samples.iter().filter(|sample| sample.run_ns > MS) {
        let off = ipc(sample) / 2.0 - 1.0;
        assert!(off.abs() < 0.02, "{off}: {sample:?}");
    }
}

/// They run on the same counters, and at quite another rate.
#[test]
fn real_time_tasks_do_not_disturb() {
    let mut scene = sampling(&[1], 50 * MS);
    scene.hogs(1, &NewTask::default());
    scene.run(500 * MS);
    for _ in 0..100 {
        scene.kernel.take_cpu(0, 0);
        scene.run(5 * MS);
        scene.kernel.give_back(0);
        scene.run(20 * MS);
    }
    let samples = scene.kernel.take_samples();
    assert!(samples.len() > 45, "{}", samples.len());
    for sample in samples {
        let off = ipc(&sample) / 2.0 - 1.0;
        assert!(off.abs() < 0.001, "{off}: {sample:?}");
    }
}

#[test]
fn a_task_that_does_little_is_not_counted() {
    let mut scene = sampling(&[1, 1], 5 * MS);
    let lazy = scene.worker(&NewTask::default(), MS, 49 * MS);
    scene.run(10 * S);
    let samples = scene.kernel.take_samples();
    let counted: u64 = samples.iter().map(|sample| sample.run_ns).sum();
    let part = counted as f64 / scene.ran(lazy) as f64;
    assert!(part < 0.2, "{part}");
}

/// To the last instruction, in as many samples as there are: of all that ever ran.
fn assert_exact(scene: &Scene, samples: &[intf::task_sample], tasks: &[TaskIndex]) {
    for &task in tasks {
        let tid = scene.kernel.task_struct(task).pid as u32;
        let of = samples.iter().filter(|sample| sample.tid == tid);
        let counted: u64 = of.map(|sample| sample.counts[0]).sum();
        let really = scene.kernel.counted(task, 0);
        assert!(
            counted.abs_diff(really) <= really / 1000,
            "task {tid}: {counted} of {really}"
        );
    }
}

#[test]
fn counts_are_exact_in_a_storm_of_forks() {
    let mut scene = sampling(&[2, 2], 50 * MS);
    let children: Vec<_> = (0..200)
        .map(|_| scene.kernel.fork(&NewTask::default(), 0))
        .collect();
    let mut left = children.clone();
    while !left.is_empty() {
        scene.run(MS);
        left.retain(|&child| {
            let ends = scene.ran(child) > 8 * MS && scene.kernel.is_running(child);
            if ends {
                scene.kernel.exit(scene.kernel.cpu_of(child));
                scene.kernel.settle();
            }
            !ends
        });
    }
    let samples = scene.kernel.take_samples();
    assert_eq!(
        samples.iter().filter(|sample| sample.last != 0).count() / 200,
        1
    );
    assert_exact(&scene, &samples, &children);
}

#[test]
fn counts_are_exact_over_switches_and_changes_of_the_core_type() {
    let mut scene = Scene::new(&NativeMachine {
        slice_ns: Some(500 * US),
        ..machine(&[2, 2]).sampling(20 * MS)
    });
    let tasks = scene.hogs(6, &NewTask::default());
    // Two that hand over to each other all the time.
    for _ in 0..2 {
        scene.worker(&pinned(1), 30 * US, 20 * US);
    }
    scene.run(50 * MS);
    for round in 0..100u32 {
        for (index, &task) in tasks.iter().enumerate() {
            scene.hint(task, (round as usize + index) as u8 % 2, false);
        }
        scene.run(20 * MS);
    }
    let mut left = tasks.clone();
    while !left.is_empty() {
        scene.run(MS);
        left.retain(|&task| {
            let ends = scene.kernel.is_running(task);
            if ends {
                scene.kernel.exit(scene.kernel.cpu_of(task));
                scene.kernel.settle();
            }
            !ends
        });
    }
    let samples = scene.kernel.take_samples();
    let both = |core_type| samples.iter().any(|sample| sample.core_type == core_type);
    assert!(both(0) && both(1));
    assert_exact(&scene, &samples, &tasks);
}

#[test]
fn samples_that_are_not_taken_are_lost_and_counted() {
    let mut scene = sampling(&[2], 5 * MS);
    let hogs = scene.hogs(4, &NewTask::default());
    scene.run(S);
    let lost = |scene: &Scene| scene.kernel.stat(intf::stat_id_STAT_SAMPLES_LOST);
    assert_eq!(lost(&scene), 0);
    scene.kernel.set_ring_full(true);
    let ran = scene.measure(&hogs, S);
    assert!(lost(&scene) > 100 && ran.iter().all(|&ran| ran > 400 * MS));
    scene.kernel.set_ring_full(false);
    scene.kernel.take_samples();
    let before = lost(&scene);
    scene.run(S);
    assert_eq!(lost(&scene), before);
    let samples = scene.kernel.take_samples();
    assert!(samples.len() > 300);
    // The first may hold what was lost before it; all after that are whole.
    for sample in &samples[8..] {
        let expected = sample.run_ns * RATE / 1024;
        assert!(
            sample.counts[0].abs_diff(expected) <= expected / 500,
            "{sample:?}"
        );
    }
}

#[test]
fn sets_of_events_take_turns_and_each_sample_is_of_one() {
    let mut scene = Scene::new(&NativeMachine {
        set_events: vec![vec![3, 3], vec![3, 3]],
        ..machine(&[1, 1]).sampling(50 * MS)
    });
    scene.hogs(1, &NewTask::default());
    for turn in 0..40 {
        let set = turn % 2;
        // First the agent closes the old ones, then it says which are open.
        scene.kernel.open_events(0, set);
        scene.kernel.half().set_at("current_set", 0, set as u8);
        scene.run(100 * MS);
    }
    let samples = scene.kernel.take_samples();
    let under = |set| samples.iter().filter(|sample| sample.set == set).count();
    assert!(under(0) > 10 && under(1) > 10, "{} {}", under(0), under(1));
    for sample in samples.iter().filter(|sample| sample.run_ns > 20 * MS) {
        assert!((ipc(sample) / 2.0 - 1.0).abs() < 0.001, "{sample:?}");
    }
}

/// What a thread says in its own memory is believed about itself alone, and no longer than its
/// program lives.
#[test]
fn a_word_says_that_its_thread_waits_actively_and_nothing_of_others() {
    const ADDRESS: u64 = 4096;
    let mut scene = sampling(&[2, 2], 50 * MS);
    let [spins, victim] = [0, 1].map(|cpu| scene.kernel.fork(&pinned(cpu), cpu));
    scene.run(100 * MS);
    let ids = |scene: &Scene, task| {
        let raw = scene.kernel.task_struct(task);
        (raw.pid, raw.tgid)
    };
    let (tid, tgid) = ids(&scene, spins);
    assert_eq!(scene.kernel.register_spin(tid, tgid, ADDRESS), 0);
    let (other, _) = ids(&scene, victim);
    assert!(scene.kernel.register_spin(other, tgid, ADDRESS) < 0);
    scene.kernel.set_spin_word(spins, 1);
    scene.kernel.set_spin_word(victim, 1);
    let spun = |scene: &mut Scene, tid: i32| {
        scene.run(200 * MS);
        scene.kernel.take_samples();
        scene.run(S);
        let mut samples = scene.kernel.take_samples();
        samples.retain(|sample| sample.tid == tid as u32);
        let spun = samples.iter().filter(|sample| sample.spun != 0).count();
        spun as f64 / samples.len() as f64
    };
    assert_eq!(spun(&mut scene, tid), 1.0);
    assert_eq!(spun(&mut scene, other), 0.0);
    scene.kernel.set_spin_word(spins, 0);
    assert_eq!(spun(&mut scene, tid), 0.0);
    scene.kernel.set_spin_word(spins, 1);
    assert_eq!(spun(&mut scene, tid), 1.0);
    // It runs another program now: the address means something else.
    // SAFETY: a plain counter of the task, and no operation runs.
    unsafe { (*scene.kernel.raw(spins)).self_exec_id += 1 }
    assert_eq!(spun(&mut scene, tid), 0.0);
}

/// On two P and two E cores, half as fast: while all of a thread's time there is work.
#[test]
fn progress_is_charged_by_what_the_core_type_is_worth() {
    let mut scene = sampling(&[2, 2], 50 * MS);
    let tasks = [0, 2].map(|cpu| scene.kernel.fork(&pinned(cpu), cpu));
    scene.run(100 * MS);
    let progress = |scene: &Scene| tasks.map(|task| scene.kernel.slot(task).unwrap().amp_progress);
    let before = progress(&scene);
    scene.run(S);
    let now = progress(&scene);
    let parts = [0, 1].map(|at| (now[at] - before[at]) as f64 / 1e9);
    assert!(
        (parts[0] - 1.0).abs() < 0.01 && (parts[1] - 0.5).abs() < 0.01,
        "{parts:?}"
    );
}
