// SPDX-License-Identifier: GPL-2.0-only
//! Sessions get what they are allotted, and no more, whatever runs beside them.

use super::scene::*;
use super::*;
use crate::agent::{Allotment, Author};
use crate::policy::Action;
use crate::scheduler::encode::encode;

/// Puts tasks into a session that gets so much, once they have slots.
fn join(scene: &mut Scene, tasks: &[TaskIndex], session: u16, allotment: Allotment) {
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
    }
}

/// In CPUs of the fastest type, over so much time.
fn rate(scene: &mut Scene, session: u16, ns: u64) -> f64 {
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
    let before = scene.kernel.half().spent_ns(2);
    let first = rate(&mut scene, 1, 5 * S);
    let second = (scene.kernel.half().spent_ns(2) - before) as f64 / 5e9;
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
