// SPDX-License-Identifier: GPL-2.0-only
//! How much each gets: shares by nice, by cgroup, on each core type, beside whatever else happens.

use super::scene::*;
use super::*;
use crate::bpf::intf;
use crate::policy::{Name, Objective, Policy, Settings};
use crate::topology::CpuMask;
use std::time::Duration;

/// Shares of these among all that they ran, each within so much of what is fair by `weights`.
fn assert_shares(ran: &[u64], weights: &[f64], within: f64) {
    let (total, whole) = (ran.iter().sum::<u64>() as f64, weights.iter().sum::<f64>());
    for (ran, weight) in ran.iter().zip(weights) {
        let off = *ran as f64 / total / (weight / whole) - 1.0;
        assert!(off.abs() < within, "{ran:?} ns of {total}, off by {off:.3}");
    }
}

#[test]
fn nice_0_and_nice_19_share_one_cpu_by_weight() {
    let mut scene = Scene::new(&machine(&[2, 2]));
    let tasks = [0, 19].map(|nice| scene.kernel.fork(&NewTask { nice, ..pinned(1) }, 1));
    scene.run(S);
    let ran = scene.measure(&tasks, 8 * S);
    assert_shares(&ran, &[1024.0, 15.0], 0.1);
}

#[test]
fn nice_0_and_nice_19_share_all_cpus_by_weight() {
    let mut scene = Scene::new(&machine(&[4]));
    let tasks = [scene.hogs(8, &nice(0)), scene.hogs(8, &nice(19))].concat();
    scene.run(S);
    let ran = scene.measure(&tasks, 10 * S);
    let sums = [ran[..8].iter().sum(), ran[8..].iter().sum()];
    assert_shares(&sums, &[1024.0, 15.0], 0.1);
}

#[test]
fn of_four_times_as_many_as_cpus_none_waits_for_long_and_all_get_alike() {
    for threads in [16, 5] {
        let mut scene = Scene::new(&machine(&[2, 2]));
        let hogs = scene.hogs(threads, &NewTask::default());
        scene.run(S);
        let before: Vec<_> = hogs.iter().map(|&hog| scene.ran(hog)).collect();
        let longest = scene.longest_wait(&hogs, 4 * S);
        let ran = hogs
            .iter()
            .zip(before)
            .map(|(&hog, then)| scene.ran(hog) - then);
        let off = spread(ran);
        assert!(longest < 200 * MS, "{} ms", longest / MS);
        assert!(off < 0.1, "{threads} threads: off by {off}");
    }
}

fn every_20_ms() -> Settings<'static> {
    Settings {
        swap_interval: Duration::from_millis(20),
        fairness: 100,
        oversubscribe: 2.5,
        objective: Objective::Edp,
        swap_rules: None,
        limits: None,
        without: &[],
    }
}

/// Lets so much time pass under a policy.
fn under(policy: &mut dyn Policy, scene: &mut Scene, ns: u64) {
    for _ in 0..ns / (20 * MS) {
        scene.run(20 * MS);
        scene.decide(policy);
    }
}

#[test]
fn equal_threads_get_equal_time_on_each_type_while_a_policy_swaps_them() {
    for threads in [4, 8] {
        let mut scene = Scene::new(&machine(&[2, 2]));
        let mut policy = Name::Rr.build(every_20_ms());
        let hogs = scene.hogs(threads, &NewTask::default());
        under(&mut *policy, &mut scene, S);
        let before: Vec<_> = hogs.iter().map(|&hog| scene.ran_on(hog)).collect();
        under(&mut *policy, &mut scene, 16 * S);
        let ran = |core_type: usize| {
            let both = hogs.iter().zip(&before);
            both.map(move |(&hog, then)| (hog, then[core_type]))
                .map(|(hog, then)| scene.ran_on(hog)[core_type] - then)
                .collect::<Vec<_>>()
        };
        let off = [spread(ran(0)), spread(ran(1))];
        assert!(
            off.iter().all(|&off| off < 0.1),
            "{threads}: off by {off:?}"
        );
    }
}

/// A partition of cpusets, or a virtual machine, has the other fast CPUs: policies count on these, too.
#[test]
fn equal_threads_get_equal_time_on_a_part_of_the_fast_cpus_and_all_slow_ones() {
    for (name, threads) in [Name::None, Name::Rr, Name::Acfs, Name::Hsp]
        .into_iter()
        .flat_map(|name| [(name, 4), (name, 6), (name, 7)])
    {
        let mut scene = Scene::new(&machine(&[4, 2]));
        let mut policy = name.build(every_20_ms());
        let hogs = scene.hogs(threads, &on(3..6));
        under(&mut *policy, &mut scene, S);
        let before: Vec<_> = hogs.iter().map(|&hog| scene.ran(hog)).collect();
        under(&mut *policy, &mut scene, 8 * S);
        let ran = hogs
            .iter()
            .zip(before)
            .map(|(&hog, then)| scene.ran(hog) - then);
        let off = spread(ran);
        assert!(off < 0.2, "{name}, {threads} threads: off by {off}");
    }
}

/// Intel's E cores have a queue for each four: of one the threads may use all CPUs, of another one.
#[test]
fn equal_threads_get_equal_time_on_unequal_parts_of_clusters_of_one_type() {
    for threads in [5, 10, 15] {
        let topology = topology(&[(0, 2), (1, 4), (1, 4)], &[]);
        let mut scene = Scene::new(&NativeMachine {
            without: left_out(),
            ..NativeMachine::on(topology)
        });
        let hogs = scene.hogs(threads, &on(2..7));
        scene.run(S);
        let ran = scene.measure(&hogs, 8 * S);
        let off = spread(ran.iter().copied());
        assert!(off < 0.2, "{threads} threads: off by {off}, {ran:?}");
    }
}

/// One that is woken all the time is put before them often, and paid for.
#[test]
fn beside_a_storm_of_wakeups_computing_tasks_get_their_shares_by_weight() {
    let mut scene = Scene::new(&machine(&[4]));
    let tasks = [scene.hogs(4, &nice(0)), scene.hogs(4, &nice(5))].concat();
    for _ in 0..4 {
        scene.worker(&NewTask::default(), MS, MS);
    }
    scene.run(S);
    let ran = scene.measure(&tasks, 8 * S);
    let [plain, nice]: [u64; 2] = [ran[..4].iter().sum(), ran[4..].iter().sum()];
    let ratio = plain as f64 / nice as f64 / (1024.0 / 335.0);
    assert!((ratio - 1.0).abs() < 0.15, "{ratio}");
    // The storm's weight is that of the plain ones, so these get no less than it may.
    let part = plain as f64 / 8e9;
    assert!(part > 4.0 * 1024.0 / (2.0 * 1024.0 + 335.0) * 0.9, "{part}");
}

#[test]
fn more_tasks_than_the_table_holds_run_all_the_same_and_what_ends_makes_room() {
    let mut scene = Scene::new(&NativeMachine {
        slots: 8,
        ..machine(&[2, 2])
    });
    let hogs = scene.hogs(24, &NewTask::default());
    scene.run(S);
    let ran = scene.measure(&hogs, 5 * S);
    assert!(spread(ran.iter().copied()) < 0.15, "{ran:?}");
    let known = |scene: &Scene| {
        let known = hogs.iter().filter(|&&hog| scene.kernel.slot(hog).is_some());
        known.count()
    };
    assert_eq!(known(&scene), 8);
    let runs = hogs
        .iter()
        .find(|&&hog| scene.kernel.slot(hog).is_some() && scene.kernel.is_running(hog));
    let ends = *runs.unwrap();
    scene.kernel.exit(scene.kernel.cpu_of(ends));
    scene.run(S);
    let others = hogs.iter().filter(|&&hog| hog != ends);
    let known = others.filter(|&&hog| scene.kernel.slot(hog).is_some());
    assert_eq!(known.count(), 8);
}

/// So many busy tasks in a cgroup, on these CPUs alone.
fn busy(
    scene: &Scene,
    cgroup: usize,
    count: usize,
    cpus: impl IntoIterator<Item = u32>,
) -> Vec<TaskIndex> {
    let task = NewTask {
        cgroup: Some(cgroup),
        ..on(cpus)
    };
    scene.hogs(count, &task)
}

/// What each group of tasks runs together in a while, once things have settled.
fn sums(scene: &mut Scene, groups: &[&[TaskIndex]]) -> Vec<u64> {
    scene.run(S);
    let all = groups.concat();
    let ran = scene.measure(&all, 4 * S);
    let mut ran = ran.into_iter();
    let sum = |group: &&[TaskIndex]| ran.by_ref().take(group.len()).sum();
    groups.iter().map(sum).collect()
}

#[test]
fn busy_cgroups_share_cpu_time_by_weight() {
    let mut scene = Scene::new(&machine(&[4]));
    let [light, heavy] = [100, 300].map(|weight| scene.kernel.make_cgroup(None, weight));
    let tasks = [light, heavy].map(|group| busy(&scene, group, 4, 0..4));
    let ran = sums(&mut scene, &[&tasks[0], &tasks[1]]);
    assert_shares(&ran, &[1.0, 3.0], 0.1);
    // A change takes effect while they run.
    scene.kernel.set_cgroup_weight(heavy, 50, 0);
    let ran = sums(&mut scene, &[&tasks[0], &tasks[1]]);
    assert_shares(&ran, &[2.0, 1.0], 0.1);
}

#[test]
fn a_cgroup_gets_no_more_for_running_more() {
    let mut scene = Scene::new(&machine(&[4]));
    let groups = [(); 2].map(|()| scene.kernel.make_cgroup(None, 100));
    let one = busy(&scene, groups[0], 1, [1]);
    let many = busy(&scene, groups[1], 8, [1]);
    let ran = sums(&mut scene, &[&one, &many]);
    assert_shares(&ran, &[1.0, 1.0], 0.1);
    // Nor on some CPUs of many.
    for &task in one.iter().chain(&many) {
        scene
            .kernel
            .set_affinity(task, &CpuMask::from_iter([0, 1]), 0);
    }
    let ran = sums(&mut scene, &[&one, &many]);
    assert_shares(&ran, &[1.0, 1.0], 0.1);
}

#[test]
fn within_a_cgroup_nice_decides() {
    let mut scene = Scene::new(&machine(&[4]));
    let [mixed, beside] = [(); 2].map(|()| scene.kernel.make_cgroup(None, 100));
    let tasks = busy(&scene, mixed, 2, [1]);
    let other = busy(&scene, beside, 1, [1]);
    scene.kernel.set_nice(tasks[1], 5, 0);
    let ran = sums(&mut scene, &[&tasks[..1], &tasks[1..], &other]);
    assert_shares(&ran, &[1024.0, 335.0, 1359.0], 0.1);
}

/// scx_flatcg's example: B and C share A's third, D has the rest.
#[test]
fn weights_multiply_down_the_tree_and_tasks_may_move_in_it() {
    let mut scene = Scene::new(&machine(&[4]));
    let a = scene.kernel.make_cgroup(None, 100);
    let [b, c] = [(); 2].map(|()| scene.kernel.make_cgroup(Some(a), 100));
    let d = scene.kernel.make_cgroup(None, 200);
    let [b, c, in_d] = [b, c, d].map(|group| busy(&scene, group, 4, 0..4));
    let ran = sums(&mut scene, &[&b, &c, &in_d]);
    assert_shares(&ran, &[1.0, 1.0, 4.0], 0.1);
    // What has nothing to run leaves its share to its siblings.
    for &task in &c {
        scene.kernel.move_to_cgroup(task, Some(d), 0);
    }
    let ran = sums(&mut scene, &[&b, &[in_d, c].concat()]);
    assert_shares(&ran, &[1.0, 2.0], 0.1);
}

/// An agent that is stopped must not leave tasks for good where it saw fit to put them last.
#[test]
fn while_the_agent_is_silent_equal_threads_get_equal_time_on_fast_cores() {
    for threads in [4, 9] {
        let mut scene = Scene::new(&machine(&[2, 2]));
        let hogs = scene.hogs(threads, &NewTask::default());
        scene.run(S);
        for (index, &hog) in hogs.iter().enumerate() {
            scene.hint(hog, u8::from(index >= 2), false);
        }
        scene.run(500 * MS);
        scene.silent = true;
        scene.run(1500 * MS);
        let before: Vec<_> = hogs.iter().map(|&hog| scene.ran_on(hog)).collect();
        scene.run(6 * S);
        let ran: Vec<_> = hogs
            .iter()
            .zip(before)
            .map(|(&hog, then)| {
                (
                    scene.ran_on(hog)[0] - then[0],
                    scene.ran_on(hog)[1] - then[1],
                )
            })
            .collect();
        let (all, fast) = (
            spread(ran.iter().map(|ran| ran.0 + ran.1)),
            spread(ran.iter().map(|ran| ran.0)),
        );
        let stat = |scene: &Scene, id| scene.kernel.stat(id);
        assert!(all < 0.1 && fast < 0.15, "{threads}: {all} {fast} {ran:?}");
        assert_eq!(stat(&scene, intf::stat_id_STAT_STALLS), 1);
        // Its next word ends that.
        scene.silent = false;
        scene.run(100 * MS);
        let shared = stat(&scene, intf::stat_id_STAT_SHARED);
        scene.run(S);
        assert_eq!(stat(&scene, intf::stat_id_STAT_SHARED), shared);
        assert_eq!(scene.kernel.errors(), [""; 0]);
    }
}
