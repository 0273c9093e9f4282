// SPDX-License-Identifier: GPL-2.0-only
//! For how long what is brief waits beside what computes, and what must not wait at all.

use super::ffi::PF_KTHREAD;
use super::scene::*;
use super::*;
use crate::bpf::intf;

const FRAME: u64 = 16_666_667;

/// Linux' number of the policy.
const SCHED_IDLE: u32 = 5;

/// Ticks come as on Debian's kernels, every 4 ms.
fn ticking(cpus_by_type: &[u32]) -> NativeMachine {
    NativeMachine {
        hz: 250,
        ..machine(cpus_by_type)
    }
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

#[test]
fn a_frame_loop_under_full_load_misses_no_frame() {
    let mut scene = Scene::new(&ticking(&[4]));
    let hogs = scene.hogs(16, &NewTask::default());
    let frames = scene.periodic(&NewTask::default(), 2 * MS, FRAME);
    // So many until it is known to be brief.
    scene.run(30 * FRAME);
    scene.took(frames);
    scene.run(120 * FRAME);
    let took = scene.took(frames);
    assert!(took.len() >= 119, "{}", took.len());
    let longest = took.iter().max().unwrap();
    // It works for two, and waits for no slice.
    assert!(*longest < 5 * MS, "{} us", longest / US);
    // What is preempted near the beginning of its slice waits in turn.
    let ran = scene.measure(&hogs, 2 * S);
    assert!(spread(ran.iter().copied()) < 0.25, "{ran:?}");
}

/// As what plays sound does, or a control loop.
#[test]
fn what_wakes_up_often_waits_for_no_slice_though_it_may_use_one_cpu_alone() {
    for task in [pinned(0), NewTask::default()] {
        for period in [250, 900, 1000, 1100].map(|us| us * US) {
            let mut scene = Scene::new(&ticking(&[4]));
            scene.hogs(8, &NewTask::default());
            let beats = scene.periodic(&task, 20 * US, period);
            scene.run(S / 2);
            scene.took(beats);
            scene.run(S);
            let took = scene.took(beats);
            assert!(
                took.len() as u64 >= S / period - 1,
                "{period}: {}",
                took.len()
            );
            let longest = took.iter().max().unwrap();
            assert!(*longest < 100 * US, "{period}: {} us", longest / US);
        }
    }
}

/// Else they would wait for the end of that, or of a slice.
#[test]
fn frames_that_a_real_time_task_interrupts_go_on_elsewhere() {
    let mut scene = Scene::new(&machine(&[4]));
    scene.hogs(16, &NewTask::default());
    let frames = scene.periodic(&NewTask::default(), 2 * MS, FRAME);
    scene.run(30 * FRAME);
    scene.took(frames);
    for round in 0..160 {
        let cpu = match round % 2 {
            0 => scene.kernel.cpu_of(frames),
            _ => round / 2 % 4,
        };
        scene.kernel.take_cpu(cpu, 0);
        scene.run(7 * MS);
        scene.kernel.give_back(cpu);
        scene.run(4 * MS + u64::from(round % 7) * 100 * US);
    }
    let took = scene.took(frames);
    let longest = took.iter().max().unwrap();
    assert!(*longest < 7 * MS, "{} us", longest / US);
}

/// A CPU that one takes from what waits there, and what has just come to it, is no place to wait.
#[test]
fn what_waits_where_a_real_time_task_comes_goes_elsewhere() {
    let mut scene = Scene::new(&machine(&[2]));
    let [first, second] = [(); 2].map(|()| scene.kernel.fork(&NewTask::default(), 0));
    scene.run(50 * MS);
    let cpu = scene.kernel.cpu_of(first);
    scene.kernel.take_cpu(cpu, 0);
    let ran = scene.measure(&[first, second], 400 * MS);
    // The other CPU is for both.
    assert!(spread(ran.iter().copied()) < 0.1, "{ran:?}");
    scene.kernel.give_back(cpu);
    let ran = scene.measure(&[first, second], 100 * MS);
    assert!(ran.iter().all(|&ran| ran > 90 * MS), "{ran:?}");
}

/// On another CPU, which idles for a moment, it would be in the way of what comes back there.
#[test]
fn what_something_brief_puts_aside_goes_on_where_it_was() {
    let mut scene = Scene::new(&ticking(&[4]));
    // No two in step.
    let bursts = [7, 9, 11, 13].map(|ms| ms * MS + 70 * US);
    let workers = bursts.map(|burst| scene.worker(&NewTask::default(), burst, MS / 5));
    scene.worker(&NewTask::default(), 10 * US, 2 * MS);
    scene.run(S / 2);
    let preempted = scene.kernel.stat(intf::stat_id_STAT_PREEMPTED);
    let mut moves = 0;
    let place = |scene: &Scene| -> Vec<_> {
        let place = |&task: &TaskIndex| {
            let busy = scene.kernel.is_queued(task);
            busy.then(|| {
                (
                    scene.kernel.cpu_of(task),
                    scene.kernel.task_ctx(task).unwrap().woke_at_ns,
                )
            })
        };
        workers.iter().map(place).collect()
    };
    let mut before = place(&scene);
    for _ in 0..30_000 {
        scene.run(100 * US);
        let now = place(&scene);
        let both = now.iter().zip(&before);
        // In the midst of work: it has not slept between.
        moves += both
            .filter(|(now, then)| match (now, then) {
                (Some(now), Some(then)) => now.1 == then.1 && now.0 != then.0,
                _ => false,
            })
            .count();
        before = now;
    }
    let preempted = scene.kernel.stat(intf::stat_id_STAT_PREEMPTED) - preempted;
    assert!(preempted > 500 && moves < 3, "{preempted}, {moves}");
}

#[test]
fn what_is_new_in_a_crowd_soon_gets_a_turn() {
    let mut scene = Scene::new(&ticking(&[4]));
    scene.hogs(80, &NewTask::default());
    scene.run(S);
    let begins = (0..50).map(|round| {
        scene.run(20 * MS);
        let begun = scene.kernel.now();
        let new = scene.kernel.fork(&NewTask::default(), round % 4);
        while scene.ran(new) == 0 {
            scene.run(MS / 10);
        }
        let waited = scene.kernel.now() - begun;
        scene.kernel.exit(scene.kernel.cpu_of(new));
        waited
    });
    let median = median(begins.collect());
    assert!(median < 50 * MS, "{} us", median / US);
}

/// So many times to and fro between two that say that they are about to sleep, as pipes do.
fn ping_pong(scene: &mut Scene, tasks: [TaskIndex; 2], rounds: u64) {
    for round in 0..2 * rounds {
        let [from, to] = match round % 2 {
            0 => tasks,
            _ => [tasks[1], tasks[0]],
        };
        for _ in 0..1000 {
            if scene.kernel.is_running(from) {
                break;
            }
            scene.run(100 * US);
        }
        assert!(scene.kernel.is_running(from));
        scene.run(20 * US);
        let cpu = scene.kernel.cpu_of(from);
        scene.kernel.wake(to, cpu, WAKE_SYNC);
        if scene.kernel.is_running(from) {
            scene.kernel.block(cpu);
        }
        scene.kernel.settle();
    }
}

#[test]
fn a_task_woken_by_one_about_to_sleep_stays_near_unless_a_cpu_is_idle() {
    const ROUNDS: u64 = 500;
    let mut scene = Scene::new(&machine(&[4]));
    let tasks = [(); 2].map(|()| scene.kernel.fork(&NewTask::default(), 0));
    scene.run(MS / 10);
    scene.kernel.block(scene.kernel.cpu_of(tasks[1]));
    scene.kernel.settle();
    let stats = |scene: &Scene| {
        [intf::stat_id_STAT_SYNC, intf::stat_id_STAT_DIRECT].map(|id| scene.kernel.stat(id))
    };
    ping_pong(&mut scene, tasks, 20);
    let before = stats(&scene);
    ping_pong(&mut scene, tasks, ROUNDS);
    let idle = stats(&scene);
    assert!(
        idle[0] - before[0] < ROUNDS / 4 && idle[1] - before[1] > ROUNDS,
        "{before:?} {idle:?}"
    );
    // All CPUs but one compute: behind its waker it has the CPU sooner than by its turn.
    for cpu in 0..3 {
        scene.kernel.fork(&pinned(cpu), cpu);
    }
    scene.run(S);
    let before = stats(&scene);
    ping_pong(&mut scene, tasks, ROUNDS);
    let busy = stats(&scene);
    assert!(busy[0] - before[0] > ROUNDS, "{before:?} {busy:?}");
}

#[test]
fn performance_is_asked_for_by_how_busy_a_cpu_is() {
    let mut scene = Scene::new(&machine(&[2, 2]));
    scene.run(S);
    let perf = |scene: &Scene| {
        let cpus = &scene.kernel.look().cpus;
        cpus.iter().map(|cpu| cpu.perf).collect::<Vec<_>>()
    };
    let idle = perf(&scene);
    let hogs: Vec<_> = (0..4)
        .map(|cpu| scene.kernel.fork(&pinned(cpu), cpu))
        .collect();
    scene.run(300 * MS);
    let busy = perf(&scene);
    for &hog in &hogs {
        scene.kernel.block(scene.kernel.cpu_of(hog));
    }
    scene.run(S);
    let later = perf(&scene);
    assert_eq!(busy, [1024; 4]);
    assert!(
        idle.iter().chain(&later).all(|&perf| perf < 300),
        "{idle:?} {later:?}"
    );
    // A fifth of a CPU for as long as a window, and a quarter more.
    scene.worker(&pinned(0), 10 * MS, 40 * MS);
    scene.run(S);
    let some = perf(&scene)[0];
    assert!((180..1025).contains(&some), "{some}");
    assert!(
        !scene.kernel.take_perf_requests().is_empty(),
        "the most is the kernel's default"
    );
    // Four fifths of another, in bursts shorter than a window.
    scene.worker(&pinned(1), 4 * MS, MS);
    scene.run(S);
    let most = perf(&scene)[1];
    assert!(most > 900, "{most}");
    // And a fifth of one.
    scene.worker(&pinned(2), 2 * MS, 8 * MS);
    scene.run(S);
    let some = perf(&scene)[2];
    assert!((180..700).contains(&some), "{some}");
}

/// The kernel waits for the end of that, for the whole machine, and then ends the scheduler.
#[test]
fn what_is_preempted_inside_an_rcu_section_soon_gets_out_of_it() {
    let mut scene = Scene::new(&machine(&[4]));
    scene.kernel.fork(
        &NewTask {
            nice: -20,
            ..pinned(3)
        },
        3,
    );
    let reader = scene.kernel.fork(
        &NewTask {
            nice: 19,
            ..pinned(3)
        },
        3,
    );
    scene.run(S);
    // SAFETY: a plain bit of the task, and no operation runs.
    unsafe {
        (*scene.kernel.raw(reader))
            .rcu_read_unlock_special
            .b
            .blocked = 1
    }
    let ran = scene.ran(reader);
    let begun = scene.kernel.now();
    while scene.ran(reader) < ran + 150 * MS && scene.kernel.now() < begun + 60 * S {
        scene.run(10 * MS);
    }
    // By its weight alone it has 5 ms in 2.5 s.
    let took = scene.kernel.now() - begun;
    assert!(took < 10 * S, "{} ms", took / MS);
}

/// It weighs little: each time that it queued beside the others it would wait for seconds.
#[test]
fn a_crowd_does_not_keep_the_agent_from_looking_at_them() {
    let mut scene = Scene::new(&machine(&[4, 4]));
    scene.hogs(500, &NewTask::default());
    let agent = NewTask {
        tgid: Some(AGENT_TGID),
        nice: 19,
        ..NewTask::default()
    };
    let agent = scene.periodic(&agent, 6 * MS, 100 * MS);
    scene.run(S);
    scene.took(agent);
    scene.run(5 * S);
    let took = scene.took(agent);
    assert!(took.len() > 45, "{}", took.len());
    let waited: u64 = took.iter().map(|took| took - 6 * MS).sum();
    assert!(waited < 5 * S * 15 / 1000, "{} ms", waited / MS);
}

/// If the agent is killed, the scheduler stays until the last of its threads has ended. (On Linux 7.0 one stayed for
/// 15 s beside twelve busy threads; here one at idle priority waited for 2.5 s by its weight alone.)
#[test]
fn a_crowd_does_not_keep_what_the_agent_does_at_idle_priority_from_ending() {
    let mut scene = Scene::new(&ticking(&[2, 2]));
    let agent = NewTask {
        tgid: Some(AGENT_TGID),
        ..NewTask::default()
    };
    let writer = scene.kernel.fork(&agent, 0);
    scene.kernel.set_policy(writer, SCHED_IDLE, 0);
    scene.run(S);
    scene.hogs(12, &NewTask::default());
    let ran = scene.ran(writer);
    let waited = scene.longest_wait(&[writer], 10 * S);
    assert!(waited < 700 * MS, "{} ms", waited / MS);
    // And no more than that takes: with an equal share it would be 3 s.
    let ran = scene.ran(writer) - ran;
    assert!(ran < S, "{} ms", ran / MS);
}

/// It may hold a program's memory, as khugepaged does. (By its weight alone this one waited for 1.6 s.)
#[test]
fn a_crowd_does_not_keep_a_kernel_thread_of_little_weight_from_what_it_holds() {
    let mut scene = Scene::new(&ticking(&[4, 4]));
    scene.hogs(24, &NewTask::default());
    let khugepaged = NewTask {
        flags: PF_KTHREAD,
        nice: 19,
        ..NewTask::default()
    };
    let khugepaged = scene.kernel.fork(&khugepaged, 0);
    scene.run(S);
    let ran = scene.ran(khugepaged);
    let waited = scene.longest_wait(&[khugepaged], 10 * S);
    assert!(waited < 150 * MS, "{} ms", waited / MS);
    // An equal share would be 3.2 s.
    let ran = scene.ran(khugepaged) - ran;
    assert!(ran < 3 * S, "{} ms", ran / MS);
}

/// Its work is urgent for whatever it serves, even if it is not brief.
#[test]
fn a_kernel_thread_of_a_cpu_goes_first() {
    let mut scene = Scene::new(&machine(&[2]));
    scene.hogs(8, &NewTask::default());
    let kworker = NewTask {
        flags: PF_KTHREAD,
        ..pinned(1)
    };
    let kworker = scene.kernel.fork(&kworker, 1);
    for _ in 0..20 {
        while !scene.kernel.is_running(kworker) {
            scene.run(MS);
        }
        let until = scene.ran(kworker) + 10 * MS;
        while scene.ran(kworker) < until || !scene.kernel.is_running(kworker) {
            scene.run(MS);
        }
        scene.kernel.block(1);
        scene.run(20 * MS);
        scene.kernel.wake(kworker, 0, WAKE);
        scene.kernel.settle();
        assert!(scene.kernel.is_running(kworker));
    }
}

#[test]
fn half_the_cpus_idle_brief_tasks_hold_up_nothing_that_computes() {
    let mut scene = Scene::new(&machine(&[4]));
    let hogs = scene.hogs(2, &NewTask::default());
    let workers: Vec<_> = (0..4)
        .map(|_| scene.worker(&NewTask::default(), 200 * US, 3 * MS))
        .collect();
    scene.run(500 * MS);
    let ran = scene.measure(&hogs, 2 * S);
    assert!(ran.iter().all(|&ran| ran > 2 * S * 96 / 100), "{ran:?}");
    for worker in workers {
        let longest = scene.took(worker).into_iter().max().unwrap();
        assert!(longest < 5 * MS, "{} us", longest / US);
    }
}
