// SPDX-License-Identifier: GPL-2.0-only
//! What waits does so where a CPU of its affinity serves the queue.

use super::*;
use crate::agent::{Allotment, SessionHeirs};
use crate::sim::native::scene::{S, Scene};
use hetero_core::goals::SessionPlace;

/// Intel's E cores have a domain for each four, by their L2.
#[test]
fn a_hint_moves_what_waits_to_a_queue_from_which_it_may_be_taken() {
    for can_iterate in [true, false] {
        let topology = topology(&[(0, 2), (1, 2), (1, 2)], &[]);
        let mut machine = NativeMachine::on(topology);
        (machine.version, machine.can_iterate) = (Version(7, 1), can_iterate);
        let kernel = NativeKernel::new(&machine).unwrap();
        // The last domain is the least crowded, and is not for the task.
        for (cpu, tasks) in [(0, 2), (1, 2), (2, 4), (3, 4), (4, 1), (5, 1)] {
            for _ in 0..tasks {
                kernel.fork(&pinned(cpu), cpu);
            }
        }
        let task = kernel.fork(&on([0, 1, 2, 3]), 0);
        let waits = || kernel.waits(task) && kernel.task_ctx(task).unwrap().domain == 0;
        for _ in 0..1000 {
            kernel.run_for(MS);
            if waits() && kernel.slot(task).is_some() {
                break;
            }
        }
        assert!(waits(), "{can_iterate}");
        // It may use two of four CPUs of that type: there a policy has no say.
        assert!(!kernel.hint(task, 1, Author::Policy));
        assert!(kernel.hint(task, 1, Author::Rules));
        kernel.settle();
        kernel.check(&Bounds::default()).unwrap();
        let ran = || kernel.task_ctx(task).unwrap().run_ns;
        let before = ran();
        kernel.run_for(500 * MS);
        assert!(ran() > before, "{can_iterate}");
    }
}

/// A CPU looks at 32 of those that wait. One behind these, which it may not run, has its turn all the same beside some that only it
/// may run.
#[test]
fn what_waits_behind_many_that_a_cpu_may_not_run_has_its_turn_beside_pinned_ones() {
    for can_iterate in [true, false] {
        let mut machine = NativeMachine::of(&[4]);
        (machine.version, machine.can_iterate) = (Version(7, 1), can_iterate);
        let mut scene = Scene::new(&machine);
        scene.hogs(200, &on([0, 1]));
        for cpu in [2, 3] {
            scene.hogs(2, &pinned(cpu));
        }
        let task = scene.hogs(1, &on([2, 3]));
        scene.run(S);
        let ran = scene.measure(&task, 5 * S)[0];
        assert!(ran > S, "{} of 2000 ms, {can_iterate}", ran / MS);
    }
}

/// Its session has used up its allotment as the CPU looks for another task, and may have more before it is put back: what is
/// left in the local queue of a CPU that goes idle stays there until something else wakes that up.
#[test]
fn a_pinned_thread_that_may_go_on_as_its_cpu_goes_idle_goes_on() {
    let kernel = NativeKernel::new(&NativeMachine::of(&[2])).unwrap();
    let task = brief(&kernel, &pinned(1), MS / 2);
    let session = SessionPlace::first(1);
    let allot = |gets_more| {
        let allotment = Allotment {
            fast_cores: Some(0.01),
            gets_more,
            heirs: SessionHeirs::None,
        };
        kernel.allot(session, allotment);
    };
    allot(false);
    let join = Action::Join(kernel.seen(task).expect("a slot"), session);
    kernel.apply(&[encode(&join, Author::Policy)], 0);
    kernel.wake(task, 0, WAKE);
    kernel.settle();
    assert!(kernel.is_running(task));
    kernel.advance(MS);
    kernel.enter(1);
    kernel.update_curr(1);
    kernel.call(|ops| unsafe { ops.tick.unwrap()(kernel.raw(task)) });
    assert_eq!(
        kernel.task_struct(task).scx.slice,
        0,
        "its allotment is used up"
    );
    kernel.enter(1);
    assert!(!kernel.balance(1), "nor does it go on");
    allot(true);
    kernel.pick(1);
    kernel.run_later();
    kernel.run_for(10 * MS);
    assert!(kernel.is_running(task), "it waits on a CPU that idles");
    kernel.check(&Bounds::default()).unwrap();
}
