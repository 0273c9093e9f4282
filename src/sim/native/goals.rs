// SPDX-License-Identifier: GPL-2.0-only
//! Sessions get what they are allotted, and no more, whatever runs beside them.

mod encoder;

use super::scene::*;
use super::*;
use crate::agent::{Allotment, Author, SessionHeirs};
use crate::policy::Action;
use crate::scheduler::encode::encode;
use hetero_core::goals::SessionPlace;

/// Puts tasks into a session that gets so much, once they have slots.
fn join(scene: &mut Scene, tasks: &[TaskIndex], session: u16, allotment: Allotment) {
    let session = SessionPlace::first(session);
    scene.run(100 * MS);
    let join = |task: &TaskIndex| {
        let task = scene.kernel.seen(*task).expect("a slot");
        encode(&Action::Join(task, session), Author::Policy)
    };
    let joins: Vec<_> = tasks.iter().map(join).collect();
    scene.kernel.apply(&joins, 0);
    scene.kernel.allot(session, allotment);
}

fn exactly(fast_cores: f64) -> Allotment {
    Allotment {
        fast_cores: Some(fast_cores),
        gets_more: false,
        heirs: SessionHeirs::Children,
    }
}

/// In CPUs of the fastest type, over so much time.
fn rate(scene: &mut Scene, session: u16, ns: u64) -> f64 {
    let session = SessionPlace::first(session);
    let before = scene.kernel.half().spent_ns(session);
    scene.run(ns);
    (scene.kernel.half().spent_ns(session) - before) as f64 / ns as f64
}

/// Kernels that lack what others have.
fn kernels(cpus_by_type: &[u32]) -> Vec<NativeMachine> {
    let of = |(version, can_kick, can_iterate, hz)| NativeMachine {
        version,
        can_kick,
        can_iterate,
        hz,
        ..machine(cpus_by_type)
    };
    [
        (Version(6, 18), true, true, 1000),
        (Version(7, 2), false, true, 250),
        (Version(7, 1), false, false, 250),
    ]
    .map(of)
    .into()
}

#[test]
fn a_session_gets_what_it_is_allotted_and_no_more_on_an_idle_machine() {
    for machine in kernels(&[2, 4]) {
        let mut scene = Scene::new(&machine);
        let hogs = scene.hogs(4, &NewTask::default());
        join(&mut scene, &hogs, 1, exactly(1.3));
        scene.run(S);
        let rate = rate(&mut scene, 1, 5 * S);
        assert!(
            (rate / 1.3 - 1.0).abs() < 0.05,
            "{rate} on {}",
            machine.in_short()
        );
    }
}

#[test]
fn a_session_gets_what_it_is_allotted_beside_a_crowd_and_leaves_it_the_rest() {
    for machine in kernels(&[2, 4]) {
        let mut scene = Scene::new(&machine);
        let hogs = scene.hogs(2, &NewTask::default());
        let crowd = scene.hogs(24, &NewTask::default());
        join(&mut scene, &hogs, 1, exactly(1.0));
        scene.run(S);
        let before: u64 = crowd.iter().map(|&task| scene.ran(task)).sum();
        let rate = rate(&mut scene, 1, 5 * S);
        let crowd = crowd.iter().map(|&task| scene.ran(task)).sum::<u64>() - before;
        assert!(
            (rate - 1.0).abs() < 0.05,
            "{rate} on {}",
            machine.in_short()
        );
        // Of six CPUs, of which the session's two threads may take two slower ones.
        assert!(crowd > 19 * S, "{} ms are left", crowd / MS);
    }
}

/// Threads that have got far ahead of a crowd by their allotment, and are let go while it is used up, do not wait
/// until the crowd has come as far: they have waited, and the next allotment may be larger.
#[test]
fn a_session_that_gets_more_again_has_it_at_once() {
    for machine in kernels(&[4, 4]) {
        let mut scene = Scene::new(&machine);
        let hogs = scene.hogs(8, &NewTask::default());
        scene.hogs(16, &NewTask::default());
        join(&mut scene, &hogs, 1, exactly(4.0));
        scene.run(3 * S);
        scene.kernel.allot(SessionPlace::first(1), exactly(0.1));
        scene.run(S);
        scene.kernel.allot(SessionPlace::first(1), exactly(3.0));
        scene.run(200 * MS);
        let rate = rate(&mut scene, 1, 500 * MS);
        assert!(
            (rate / 3.0 - 1.0).abs() < 0.1,
            "{rate} on {}",
            machine.in_short()
        );
    }
}

/// Two sessions do not take from each other, whatever their threads would.
#[test]
fn sessions_get_what_each_is_allotted() {
    let mut scene = Scene::new(&machine(&[4]));
    let first = scene.hogs(8, &nice(-10));
    let second = scene.hogs(1, &nice(10));
    scene.hogs(6, &NewTask::default());
    join(&mut scene, &first, 1, exactly(1.5));
    join(&mut scene, &second, 2, exactly(0.7));
    scene.run(S);
    let second = SessionPlace::first(2);
    let before = scene.kernel.half().spent_ns(second);
    let first = rate(&mut scene, 1, 5 * S);
    let second = (scene.kernel.half().spent_ns(second) - before) as f64 / 5e9;
    assert!((first / 1.5 - 1.0).abs() < 0.05, "{first}");
    assert!((second / 0.7 - 1.0).abs() < 0.05, "{second}");
}

#[test]
fn a_loop_of_frames_gets_each_in_time_beside_a_crowd() {
    let mut scene = Scene::new(&machine(&[2]));
    let frames = scene.periodic(&NewTask::default(), 10 * MS, 33 * MS);
    scene.hogs(12, &NewTask::default());
    join(&mut scene, &[frames], 1, exactly(0.4));
    scene.run(S);
    scene.took(frames);
    scene.run(5 * S);
    let took = scene.took(frames);
    let late = took.iter().filter(|&&ns| ns > 25 * MS).count();
    assert!(
        took.len() > 140 && late == 0,
        "{late} of {}: {took:?}",
        took.len()
    );
}

#[test]
fn a_session_that_may_have_more_is_not_held() {
    let mut scene = Scene::new(&machine(&[2]));
    let hogs = scene.hogs(2, &NewTask::default());
    let more = Allotment {
        gets_more: true,
        ..exactly(0.5)
    };
    join(&mut scene, &hogs, 1, more);
    let rate = rate(&mut scene, 1, 2 * S);
    assert!(rate > 1.95, "{rate}");
}

/// Where no program can wake a CPU a timer puts a task that was held on its own CPU, and the kernel charges it for the
/// time that the CPU slept: alone it was held for what it had not run, and its goal was missed by half and more.
#[test]
fn on_kernels_that_charge_for_a_cpus_sleep_a_session_pays_for_what_it_ran() {
    for machine in kernels(&[2]).into_iter().filter(|it| !it.can_kick) {
        let mut scene = Scene::new(&machine);
        let hog = scene.hogs(1, &NewTask::default());
        let more = Allotment {
            gets_more: true,
            ..exactly(1.0)
        };
        join(&mut scene, &hog, 1, more);
        let session = SessionPlace::first(1);
        let before = scene.kernel.half().spent_ns(session);
        for _ in 0..50 {
            scene.run(20 * MS);
            scene.kernel.overcharge(hog[0], 50 * MS);
        }
        let spent = scene.kernel.half().spent_ns(session) - before;
        assert!(
            (950 * MS..1050 * MS).contains(&spent),
            "{} ms of a second on {}",
            spent / MS,
            machine.in_short()
        );
    }
}

#[test]
fn an_agent_that_is_silent_holds_nothing() {
    let mut scene = Scene::new(&machine(&[2]));
    let hogs = scene.hogs(2, &NewTask::default());
    join(&mut scene, &hogs, 1, exactly(0.1));
    scene.run(S);
    scene.silent = true;
    scene.run(1500 * MS);
    let ran = scene.measure(&hogs, S);
    assert!(ran.iter().all(|&ran| ran > 990 * MS), "{ran:?}");
}

/// The id of the session to which a task belongs that has no slot yet.
fn born_in(scene: &Scene, task: TaskIndex) -> u32 {
    let found = scene.kernel.with_task_ctx(task, |ctx| ctx.session);
    found.expect("it lives")
}

#[test]
fn what_a_session_makes_belongs_to_it_from_the_beginning_and_pays() {
    let mut scene = Scene::new(&machine(&[2, 4]));
    let maker = scene.hogs(1, &NewTask::default())[0];
    let tgid = scene.kernel.task_struct(maker).tgid;
    let session = SessionPlace::first(1);
    let make = |tgid: Option<i32>| {
        let task = NewTask {
            tgid,
            maker: Some(maker),
            ..NewTask::default()
        };
        scene.kernel.make(&task, 0)
    };
    assert_eq!(born_in(&scene, make(Some(tgid))), 0, "there is none yet");
    for heirs in [
        SessionHeirs::None,
        SessionHeirs::Threads,
        SessionHeirs::Children,
    ] {
        let allotment = Allotment {
            heirs,
            ..exactly(1.0)
        };
        scene.kernel.allot(session, allotment);
        let (tid, tgid) = (scene.kernel.task_struct(maker).pid as u32, tgid as u32);
        assert_eq!(scene.kernel.join_session(tid, tgid, session), 0);
        let is_heir = |wanted| u32::from(wanted) * session.raw();
        let thread = born_in(&scene, make(Some(tgid as i32)));
        assert_eq!(thread, is_heir(heirs != SessionHeirs::None));
        let child = born_in(&scene, make(None));
        assert_eq!(child, is_heir(heirs == SessionHeirs::Children));
    }
    // Another session has the place of one that has ended.
    scene.kernel.allot(session, Allotment::default());
    scene.kernel.allot(session.next(), exactly(1.0));
    assert_eq!(born_in(&scene, make(None)), 0);
    scene.kernel.allot(session, exactly(1.0));

    // One that ends before it has a slot has paid all the same.
    let before = scene.kernel.half().spent_ns(session);
    let child = make(None);
    scene.kernel.wake_new(child, 0);
    scene.kernel.allot(session, exactly(6.0));
    scene.run(3 * MS);
    assert_eq!(scene.kernel.seen(child), None, "it has a slot");
    let spent = scene.kernel.half().spent_ns(session) - before;
    assert!(spent > 4 * MS, "the maker's 3 ms and {spent}");
}

#[test]
fn only_a_thread_of_the_process_that_is_meant_joins_by_its_id() {
    let scene = Scene::new(&machine(&[2]));
    let task = scene.hogs(1, &NewTask::default())[0];
    let session = SessionPlace::first(1);
    scene.kernel.allot(session, exactly(1.0));
    let tid = scene.kernel.task_struct(task).pid as u32;
    assert!(scene.kernel.join_session(tid, tid + 1, session) < 0);
    assert!(scene.kernel.join_session(tid + 1000, tid + 1000, session) < 0);
    assert_eq!(born_in(&scene, task), 0);
    assert_eq!(scene.kernel.join_session(tid, tid, session), 0);
    assert_eq!(born_in(&scene, task), session.raw());
}

/// Each of a session's threads that has waited for long enough runs until a tick. That is all that very many of them get beyond
/// its allotment, though they are let go together: by weight they had 7.6 of 8 CPUs.
#[test]
fn many_threads_of_a_session_leave_a_crowd_what_is_not_allotted() {
    let mut scene = Scene::new(&machine(&[8]));
    let session = SessionPlace::first(1);
    scene.kernel.allot(session, exactly(0.5));
    let many = scene.hogs(300, &NewTask::default());
    for &task in &many {
        let task = scene.kernel.task_struct(task);
        let (tid, tgid) = (task.pid as u32, task.tgid as u32);
        assert_eq!(scene.kernel.join_session(tid, tgid, session), 0);
    }
    let crowd = scene.hogs(16, &NewTask::default());
    scene.run(S);
    let before: u64 = crowd.iter().map(|&task| scene.ran(task)).sum();
    let rate = rate(&mut scene, 1, 5 * S);
    let crowd = crowd.iter().map(|&task| scene.ran(task)).sum::<u64>() - before;
    assert!(rate < 3.0, "{rate}");
    assert!(crowd > 25 * S, "{} ms are left", crowd / MS);
}

/// On the one CPU that its thread may use a session cannot use up what it is allotted.
#[test]
fn what_is_confined_with_a_session_to_a_cpu_is_left_a_quarter_of_it() {
    for cpus in [vec![3], vec![2, 3]] {
        let mut scene = Scene::new(&machine(&[2, 2]));
        let hogs = scene.hogs(cpus.len(), &on(cpus.clone()));
        let neighbours = scene.hogs(cpus.len(), &on(cpus.clone()));
        join(&mut scene, &hogs, 1, exactly(2.0));
        scene.run(S);
        let ran = scene.measure(&neighbours, 10 * S);
        let ran = ran.iter().sum::<u64>() / cpus.len() as u64;
        assert!(
            (2 * S..3 * S).contains(&ran),
            "{} ms of 10 s on {cpus:?}",
            ran / MS
        );
    }
}

/// Held to it, too, and what that leaves of the CPU is its neighbour's.
#[test]
fn what_is_confined_with_a_session_to_a_cpu_gets_no_more_than_it_is_allotted() {
    for machine in kernels(&[2, 2]) {
        for beside in [0, 1] {
            let mut scene = Scene::new(&machine);
            let hogs = scene.hogs(1, &on(vec![1]));
            let neighbours = scene.hogs(beside, &on(vec![1]));
            join(&mut scene, &hogs, 1, exactly(0.3));
            scene.run(S);
            let before: u64 = neighbours.iter().map(|&task| scene.ran(task)).sum();
            let rate = rate(&mut scene, 1, 5 * S);
            let left = neighbours.iter().map(|&task| scene.ran(task)).sum::<u64>() - before;
            let told = format!("beside {beside} on {}", machine.in_short());
            assert!((rate / 0.3 - 1.0).abs() < 0.05, "{rate} {told}");
            let due = beside as u64 * 32 * S / 10;
            assert!(left >= due, "{} ms are left {told}", left / MS);
        }
    }
}
