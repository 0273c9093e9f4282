// SPDX-License-Identifier: GPL-2.0-only
//! Where tasks are put: which cores are filled first, what moves, and what is held.

use std::time::Duration;

use super::ffi::PF_KTHREAD;
use super::scene::*;
use super::*;
use crate::agent::Author;
use crate::bpf::intf;
use crate::policy::Action;
use crate::scheduler::encode::encode;
use crate::topology::CpuMask;

/// The type of each CPU that one of these runs on.
fn types(scene: &Scene, tasks: &[TaskIndex]) -> Vec<usize> {
    let on = |&task: &TaskIndex| {
        assert!(scene.kernel.is_running(task));
        scene.kernel.machine().type_of(scene.kernel.cpu_of(task))
    };
    tasks.iter().map(on).collect()
}

/// Which part of these tasks' time was on each type in so much time.
fn parts(scene: &mut Scene, tasks: &[TaskIndex], ns: u64) -> [f64; 2] {
    let sum = |scene: &Scene, core_type: usize| -> u64 {
        let ran = tasks.iter().map(|&task| scene.ran_on(task)[core_type]);
        ran.sum()
    };
    let before = [0, 1].map(|core_type| sum(scene, core_type));
    scene.run(ns);
    let ran = [0, 1].map(|core_type| (sum(scene, core_type) - before[core_type]) as f64);
    ran.map(|part| part / (ran[0] + ran[1]))
}

/// Woken by an interrupt, or by a timer on kernels that offer no other way.
#[test]
fn a_lone_busy_task_ends_up_on_a_fast_core() {
    for can_kick in [true, false] {
        let mut scene = Scene::new(&NativeMachine {
            can_kick,
            ..machine(&[2, 2])
        });
        let task = scene.hogs(1, &NewTask::default())[0];
        for slow in [2, 3] {
            scene
                .kernel
                .set_affinity(task, &CpuMask::from_iter([slow]), 0);
            scene.run(200 * MS);
            assert_eq!(types(&scene, &[task]), [1]);
            scene.kernel.set_affinity(task, &CpuMask::first(4), 0);
            scene.run(20 * MS);
            assert_eq!(types(&scene, &[task]), [0]);
            let parts = parts(&mut scene, &[task], S);
            assert!(parts[0] > 0.98, "{parts:?}");
        }
        assert_eq!(scene.kernel.errors(), [""; 0]);
    }
}

#[test]
fn fast_cores_are_filled_first_and_no_cpu_idles_while_a_task_waits() {
    let mut scene = Scene::new(&machine(&[2, 2]));
    let two = scene.hogs(2, &NewTask::default());
    scene.run(20 * MS);
    assert_eq!(types(&scene, &two), [0, 0]);
    let all = [two, scene.hogs(4, &NewTask::default())].concat();
    scene.run(20 * MS);
    let ran: u64 = scene.measure(&all, S).iter().sum();
    assert!(ran > 4 * S * 999 / 1000, "{ran} ns");
}

/// Not at the next look: at the switch.
#[test]
fn a_cpu_that_falls_idle_takes_what_waits_for_others_at_once() {
    let scene = Scene::new(&machine(&[1, 1]));
    scene.hogs(3, &NewTask::default());
    scene.kernel.run_for(50 * MS);
    let waiting = [0, 1].map(|domain| scene.kernel.queued(domain).len());
    assert_eq!(waiting.iter().sum::<usize>(), 1);
    let falls_idle = u32::from(waiting[0] == 1);
    scene.kernel.block(falls_idle);
    assert!(matches!(
        scene.kernel.runs(falls_idle),
        super::cpu::Runs::Task(_)
    ));
}

/// A P core with two threads, then an E core with two.
#[test]
fn with_smt_whole_cores_are_filled_before_second_threads() {
    let mut scene = Scene::new(&NativeMachine {
        without: left_out(),
        ..NativeMachine::on(topology(&[(0, 2), (1, 2)], &[0, 1]))
    });
    let tasks = scene.hogs(2, &NewTask::default());
    scene.run(50 * MS);
    let mut on = types(&scene, &tasks);
    on.sort_unstable();
    assert_eq!(on, [0, 1]);
    // A third goes to the second thread of the P core.
    let third = scene.hogs(1, &NewTask::default());
    scene.run(50 * MS);
    let mut on = types(&scene, &[tasks, third].concat());
    on.sort_unstable();
    assert_eq!(on, [0, 0, 1]);
}

#[test]
fn in_a_swap_the_one_that_goes_to_the_faster_type_goes_first() {
    let swapped = |ticks: &[u32]| {
        let mut scene = Scene::new(&machine(&[1, 2]));
        let tasks = scene.hogs(3, &NewTask::default());
        scene.run(50 * MS);
        let on = |cpu| {
            *tasks
                .iter()
                .find(|&&it| scene.kernel.cpu_of(it) == cpu)
                .unwrap()
        };
        let pair = [0, 1].map(on);
        assert!(scene.kernel.swap(pair));
        // At once: no CPU hears of another before all have had theirs.
        ticks.iter().for_each(|&cpu| scene.kernel.tick(cpu));
        scene.kernel.settle();
        types(&scene, &pair)
    };
    assert_eq!(swapped(&[0, 2]), [0, 1], "it waits for the other");
    assert_eq!(swapped(&[0, 2, 1]), [1, 0]);
    assert_eq!(swapped(&[0, 0, 0]), [1, 0], "but not for ever");
}

/// Two P cores with two threads each, and an E core.
#[test]
fn two_of_one_type_trade_cpus_at_the_first_tick_and_keep_their_wishes() {
    let mut scene = Scene::new(&NativeMachine {
        without: left_out(),
        ..NativeMachine::on(topology(&[(0, 4), (1, 1)], &[0]))
    });
    let tasks = scene.hogs(5, &NewTask::default());
    scene.run(50 * MS);
    let on = |at| {
        let is_there = |it: &&TaskIndex| scene.kernel.cpu_of(**it) == at;
        *tasks.iter().find(is_there).unwrap()
    };
    let pair = [1, 2].map(on);
    let cpus = |scene: &Scene| pair.map(|task| scene.kernel.cpu_of(task));
    let wishes = || pair.map(|task| scene.kernel.slot(task).unwrap().hint);
    let before = wishes();
    assert!(scene.kernel.swap(pair));
    assert_eq!(wishes(), before);
    // Ticks of all CPUs at once, and none other comes between.
    (0..5).for_each(|cpu| scene.kernel.tick(cpu));
    scene.kernel.settle();
    assert_eq!(cpus(&scene), [2, 1]);
    scene.run(50 * MS);
    assert_eq!(cpus(&scene), [2, 1]);
    // As well where both are wished there already; but where one has gone to sleep the other stays.
    for task in pair {
        scene.hint(task, 0, false);
    }
    assert!(scene.kernel.swap(pair));
    scene.run(50 * MS);
    assert_eq!(cpus(&scene), [1, 2]);
    assert!(scene.kernel.swap(pair));
    scene.kernel.block(2);
    scene.run(50 * MS);
    assert_eq!(scene.kernel.cpu_of(pair[0]), 1);
}

#[test]
fn saving_energy_fills_efficient_cores_first_and_leaves_none_idle_for_that() {
    let mut scene = Scene::new(&machine(&[2, 2]));
    // What src/scheduler/saving.rs writes.
    scene.kernel.half().set("filled_first", 1u32);
    let two = scene.hogs(2, &NewTask::default());
    scene.kernel.settle();
    assert_eq!(types(&scene, &two), [1, 1], "before any tick");
    // What runs for longer than a frame is none.
    scene.run(80 * MS);
    assert_eq!(types(&scene, &two), [1, 1]);
    let four_more = scene.hogs(4, &NewTask::default());
    let all = [&two[..], &four_more].concat();
    scene.run(S);
    let ran: u64 = scene.measure(&all, S).iter().sum();
    assert!(ran > 4 * S * 999 / 1000, "{ran} ns");
    for _ in 0..4 {
        let ends = four_more
            .iter()
            .find(|&&task| scene.kernel.is_running(task));
        scene.kernel.exit(scene.kernel.cpu_of(*ends.unwrap()));
        scene.run(20 * MS);
    }
    scene.run(100 * MS);
    assert_eq!(types(&scene, &two), [1, 1]);
    let fastest = intf::hetero_consts_NO_TYPE;
    scene.kernel.half().set("filled_first", fastest);
    scene.run(20 * MS);
    assert_eq!(types(&scene, &two), [0, 0]);
}

#[test]
fn while_energy_is_saved_a_frame_that_would_be_late_goes_on_on_a_fast_core() {
    let mut scene = Scene::new(&machine(&[2, 2]));
    scene.kernel.half().set("filled_first", 1u32);
    let [keys, video] =
        [6 * MS, 20 * MS].map(|work_ns| scene.periodic(&NewTask::default(), work_ns, 33 * MS));
    scene.run(S);
    let [short, long] = [keys, video].map(|task| {
        let [fast, slow, ..] = scene.ran_on(task).map(|ns| ns as f64);
        fast / (fast + slow)
    });
    assert!(short < 0.01, "{short}");
    assert!((0.35..0.65).contains(&long), "{long}");
    // Where the agent says where it is to be, it is there.
    scene.hint(video, 1, true);
    scene.run(40 * MS);
    let fast = parts(&mut scene, &[video], S)[0];
    assert!(fast < 0.01, "{fast}");
}

#[test]
fn affinity_changed_in_sleep_holds_on_waking() {
    let mut scene = Scene::new(&machine(&[2, 2]));
    scene.hogs(4, &NewTask::default());
    let sleeper = scene.kernel.fork(&NewTask::default(), 0);
    for round in 0..200 {
        while !scene.kernel.is_running(sleeper) {
            scene.run(MS);
        }
        scene.kernel.block(scene.kernel.cpu_of(sleeper));
        let cpu = round % 4;
        scene
            .kernel
            .set_affinity(sleeper, &CpuMask::from_iter([cpu]), 0);
        scene.kernel.wake(sleeper, round / 4 % 4, WAKE);
        while !scene.kernel.is_running(sleeper) {
            scene.run(MS);
        }
        assert_eq!(scene.kernel.cpu_of(sleeper), cpu);
    }
}

#[test]
fn what_a_rule_weighs_is_its_share() {
    let mut scene = Scene::new(&machine(&[2, 2]));
    let tasks = scene.hogs(2, &pinned(3));
    scene.run(100 * MS);
    let weight = Action::Weight(scene.kernel.seen(tasks[0]).unwrap(), 300);
    let done = scene.kernel.apply(&[encode(&weight, Author::Rules)], 0);
    assert_eq!(done[0].result, intf::action_result_ACTION_APPLIED);
    scene.run(S);
    let ran = scene.measure(&tasks, 4 * S);
    let ratio = ran[0] as f64 / ran[1] as f64;
    assert!((2.7..3.3).contains(&ratio), "{ratio}");
}

fn park(scene: &Scene, cpu: u32, ns: u64) -> u32 {
    let park = Action::Park(cpu, Duration::from_nanos(ns));
    let result = scene.kernel.apply(&[encode(&park, Author::Policy)], 0)[0].result;
    scene.kernel.settle();
    result
}

/// What it ran is held there, lest it disturb from elsewhere; and the deadline is kept whatever the
/// agent does.
#[test]
fn a_parked_cpu_runs_nothing_but_what_must_not_wait_until_its_deadline() {
    let mut scene = Scene::new(&machine(&[1, 2]));
    let hogs: Vec<_> = (0..3)
        .map(|cpu| scene.kernel.fork(&on([cpu, 2]), cpu))
        .collect();
    scene.run(100 * MS);
    let held = hogs[usize::from(scene.kernel.cpu_of(hogs[0]) != 0)];
    let held = match scene.kernel.runs(0) {
        super::cpu::Runs::Task(task) => task,
        _ => held,
    };
    scene.silent = true;
    assert_eq!(
        park(&scene, 0, 400 * MS),
        intf::action_result_ACTION_APPLIED
    );
    scene.run(5 * MS);
    let kernel_thread = scene.kernel.fork(
        &NewTask {
            flags: PF_KTHREAD,
            ..pinned(0)
        },
        0,
    );
    let ran = scene.measure(&[held, kernel_thread], 80 * MS);
    assert_eq!(ran[0], 0, "it is held");
    assert!(ran[1] > 79 * MS, "{} ms", ran[1] / MS);
    scene.kernel.block(0);
    // No agent can park a CPU for longer than 100 ms.
    scene.run(20 * MS);
    let ran = scene.measure(&[held], 50 * MS);
    assert!(ran[0] > 20 * MS, "{} ms", ran[0] / MS);
    assert!(scene.kernel.stat(intf::stat_id_STAT_HELD) > 0);
    assert_eq!(scene.kernel.errors(), [""; 0]);
}

/// As the scheduler starts anew: the agent hands the table on, and tasks are found by id and start.
#[test]
fn a_task_is_known_again_and_one_with_the_id_of_another_that_ended_is_not_taken_for_it() {
    let before = Scene::new(&machine(&[2, 2]));
    let known = before.hogs(2, &pinned(1));
    before.kernel.run_for(500 * MS);
    let scene = Scene::new(&machine(&[2, 2]));
    for &task in &known {
        let index = before.kernel.task_ctx(task).unwrap().slot;
        let slot = before.kernel.slot(task).unwrap();
        scene.kernel.half().set_at("slots", index as usize, slot);
        let put = scene.kernel.half().put("carried_slots", slot.tid, index);
        put.unwrap();
    }
    scene.kernel.half().set("nr_slots_used", 2u32);
    scene.kernel.half().set("nr_carried", 2u32);
    // Process ids begin where they began before; the second one's task is a younger one.
    let first = scene.kernel.fork(&pinned(1), 0);
    scene.kernel.advance(MS);
    let second = scene.kernel.fork(&pinned(1), 0);
    let ran = [first, second].map(|task| scene.ran_on(task)[0]);
    assert!(ran[0] > 200 * MS, "{ran:?}");
    assert_eq!(ran[1], 0, "it has the history of another one");
    assert_eq!(scene.kernel.stat(intf::stat_id_STAT_CARRIED), 1);
}

/// While it sleeps its CPU is for what the policy wants elsewhere, and no longer.
#[test]
fn a_thread_that_wakes_up_takes_its_cpu_back_from_a_guest() {
    let mut scene = Scene::new(&NativeMachine {
        hz: 250,
        ..machine(&[1, 1])
    });
    scene.kernel.half().set("hosts_first", 1_u32);
    let host = scene.worker(&NewTask::default(), 20 * MS, 9 * MS);
    let guest = scene.hogs(1, &NewTask::default())[0];
    scene.run(15 * MS);
    scene.hint(host, 0, false);
    scene.hint(guest, 1, false);
    scene.run(S / 2);
    let before = [host, guest].map(|task| scene.ran_on(task));
    scene.run(2 * S);
    let now = [host, guest].map(|task| scene.ran_on(task));
    let [host, guest] = [0, 1].map(|at| [0, 1].map(|on| now[at][on] - before[at][on]));
    assert!(host[1] < host[0] / 20, "{host:?}");
    // The guest has what is left of it, but for what goes by until its tick.
    assert!(
        guest[0] > S / 4 && guest[0] + guest[1] > 19 * S / 10,
        "{guest:?}"
    );
}
