// SPDX-License-Identifier: GPL-2.0-only
//! Where a real-time task has a CPU, nothing that could run elsewhere is sent there.

use super::*;
use crate::policy::Seen;

/// A task that runs on one CPU of each type trades places with the other.
fn swap(kernel: &NativeKernel, tasks: [TaskIndex; 2]) {
    let seen = |task: TaskIndex| Seen {
        task: kernel.seen(task).expect("it has a slot"),
        on: kernel.machine().type_of(kernel.cpu_of(task)),
    };
    let [one, other] = tasks.map(seen);
    let (to, from) = (other.on, one.on);
    let action = Action::Swap([(one, to), (other, from)]);
    let done = kernel.apply(&[encode(&action, Author::Policy)], 0);
    assert_eq!(done[0].result, intf::action_result_ACTION_APPLIED);
}

#[test]
fn a_swap_does_not_send_a_task_behind_a_real_time_one() {
    let kernel = NativeKernel::new(&NativeMachine::of(&[1, 2])).unwrap();
    let tasks = [0, 1].map(|cpu| kernel.fork(&pinned(cpu), cpu));
    kernel.run_for(20 * MS);
    let any = CpuMask::first(3);
    for task in tasks {
        kernel.set_affinity(task, &any, kernel.cpu_of(task));
    }
    swap(&kernel, tasks);
    kernel.take_cpu(1, 0);
    kernel.run_for(MS);
    assert!(tasks.iter().all(|&task| kernel.is_running(task)));
}

/// For how long a task that wakes up with CPU 0 for its last one waits, which a real-time task has, while
/// another computes on CPU 1; ns, 60 ms at most.
fn waits_with_last_cpu_taken(task: &NewTask, parked: bool, from_idle: bool) -> u64 {
    let kernel = NativeKernel::new(&NativeMachine::of(&[2])).unwrap();
    let task = kernel.fork(task, 0);
    kernel.set_affinity(task, &CpuMask::from_iter([0]), 1);
    kernel.run_for(5 * MS);
    kernel.block(0);
    kernel.set_affinity(task, &CpuMask::from_iter([0, 1]), 1);
    kernel.fork(&pinned(1), 1);
    kernel.run_for(5 * MS);
    if parked {
        parks(&kernel, 0);
    }
    if !from_idle {
        kernel.fork(&pinned(0), 0);
        kernel.settle();
    }
    kernel.take_cpu(0, 0);
    kernel.settle();
    kernel.wake(task, 1, WAKE);
    let woke = kernel.now();
    while !kernel.is_running(task) && kernel.now() < woke + 60 * MS {
        kernel.run_for(MS / 4);
    }
    kernel.now() - woke
}

/// Parks a CPU for as long as can be.
fn parks(kernel: &NativeKernel, cpu: u32) {
    let parks = Action::Park(cpu, Duration::from_millis(100));
    kernel.apply(&[encode(&parks, Author::Policy)], 1);
}

#[test]
fn the_agent_does_not_wait_behind_a_real_time_task() {
    let agent = NewTask {
        tgid: Some(AGENT_TGID),
        ..NewTask::default()
    };
    for from_idle in [true, false] {
        let waited = waits_with_last_cpu_taken(&agent, false, from_idle);
        assert!(waited < 20 * MS, "{waited} ns, from idle: {from_idle}");
    }
}

#[test]
fn nor_does_what_is_urgent_on_a_parked_cpu() {
    let urgent = NewTask {
        flags: PF_KTHREAD,
        ..NewTask::default()
    };
    for from_idle in [true, false] {
        let waited = waits_with_last_cpu_taken(&urgent, true, from_idle);
        assert!(waited < 20 * MS, "{waited} ns, from idle: {from_idle}");
    }
}

/// The wish of the agent is for a type whose only CPU is parked.
#[test]
fn nor_what_is_urgent_and_wished_on_a_parked_cpu() {
    let kernel = NativeKernel::new(&NativeMachine::of(&[1, 1])).unwrap();
    let urgent = NewTask {
        flags: PF_KTHREAD,
        ..NewTask::default()
    };
    let task = kernel.fork(&urgent, 0);
    kernel.run_for(20 * MS);
    assert!(kernel.hint(task, 0, Author::Policy));
    kernel.set_affinity(task, &CpuMask::from_iter([1]), 0);
    kernel.run_for(MS);
    kernel.block(1);
    kernel.set_affinity(task, &CpuMask::from_iter([0, 1]), 0);
    kernel.fork(&pinned(1), 1);
    parks(&kernel, 0);
    kernel.take_cpu(0, 0);
    kernel.settle();
    kernel.wake(task, 1, WAKE);
    kernel.settle();
    assert_eq!(kernel.queued_on(0), []);
    kernel.block(1);
    kernel.settle();
    assert!(kernel.is_running(task));
}

#[test]
fn what_a_parked_cpu_held_does_not_return_to_it_while_a_real_time_task_has_it() {
    for (can_kick, can_iterate) in [(true, true), (false, true), (false, false)] {
        let mut machine = NativeMachine::of(&[2]);
        (machine.can_kick, machine.can_iterate) = (can_kick, can_iterate);
        machine.version = Version(7, 1);
        let kernel = NativeKernel::new(&machine).unwrap();
        let held = kernel.fork(&pinned(0), 0);
        kernel.run_for(20 * MS);
        kernel.set_affinity(held, &CpuMask::first(2), 0);
        kernel.fork(&pinned(1), 1);
        parks(&kernel, 0);
        kernel.run_for(10 * MS);
        assert_eq!(kernel.runs(0), Runs::Idle, "it is held");
        kernel.take_cpu(0, 0);
        kernel.run_for(10 * MS);
        kernel.block(1);
        kernel.run_for(100 * MS);
        assert!(kernel.is_running(held), "{can_kick}, {can_iterate}");
        assert_eq!(kernel.errors(), [""; 0]);
    }
}

/// It came there from another type, whose queue no CPU takes from that it may use.
#[test]
fn what_a_parked_cpu_held_of_another_type_waits_where_it_may_run() {
    let kernel = NativeKernel::new(&NativeMachine::of(&[2, 1])).unwrap();
    let held = kernel.fork(&pinned(2), 2);
    kernel.run_for(20 * MS);
    for cpu in [0, 1] {
        parks(&kernel, cpu);
    }
    kernel.set_affinity(held, &CpuMask::from_iter([0, 1]), 2);
    kernel.run_for(10 * MS);
    assert!(!kernel.is_running(held), "it is held");
    for cpu in [0, 1] {
        kernel.take_cpu(cpu, 0);
    }
    kernel.run_for(100 * MS);
    assert_eq!(kernel.queued(0), [held]);
    kernel.give_back(0);
    kernel.run_for(10 * MS);
    assert!(kernel.is_running(held));
}

/// What ran there went to a better CPU: it idles, and nothing is left to be put aside.
#[test]
fn a_brief_task_does_not_take_over_a_cpu_that_its_task_has_left() {
    let kernel = NativeKernel::new(&NativeMachine::of(&[1, 2])).unwrap();
    let wakee = brief(&kernel, &pinned(1), MS / 2);
    kernel.fork(&pinned(0), 0);
    kernel.fork(&pinned(2), 2);
    let leaves = kernel.fork(&NewTask::default(), 1);
    kernel.run_for(20 * MS);
    assert_eq!(kernel.cpu_of(leaves), 1);
    kernel.block(0);
    kernel.run_for(10 * MS);
    assert_eq!((kernel.cpu_of(leaves), kernel.runs(1)), (0, Runs::Idle));
    kernel.set_affinity(wakee, &CpuMask::from_iter([1, 2]), 0);
    kernel.take_cpu(1, 0);
    kernel.settle();
    kernel.wake(wakee, 0, WAKE);
    kernel.settle();
    assert!(kernel.is_running(wakee));
}

/// A timer sends what waits to an idle CPU, and one that has just come online is in no mask but the kernel's.
#[test]
fn what_waits_is_not_sent_to_an_unknown_cpu_that_a_real_time_task_has_just_taken() {
    let mut machine = NativeMachine::of(&[2]);
    (machine.version, machine.can_kick) = (Version(7, 2), false);
    machine.forget(1);
    let kernel = NativeKernel::new(&machine).unwrap();
    kernel.fork(&pinned(0), 0);
    kernel.run_for(20 * MS);
    let task = kernel.fork(&NewTask::default(), 0);
    assert_eq!(kernel.queued(0), [task], "the timer is about to look");
    kernel.take_cpu(1, 0);
    kernel.run_for(20 * MS);
    assert_eq!(kernel.queued_on(1), []);
}

/// A core type with one CPU, as a prime core, and one with three. What ran on the one, and what waits for it, goes on where there are
/// CPUs, though each of these has a task, or two.
#[test]
fn what_waits_where_a_real_time_task_has_all_cpus_is_served_elsewhere() {
    for (prime, others, hinted) in [(1, 3, false), (2, 3, false), (2, 6, false), (1, 3, true)] {
        let kernel = NativeKernel::new(&NativeMachine::of(&[1, 3])).unwrap();
        let fork = |cpu| kernel.fork(&NewTask::default(), cpu);
        let first: Vec<_> = (0..prime).map(|_| fork(0)).collect();
        let rest: Vec<_> = (0..others).map(|nth| fork(1 + nth % 3)).collect();
        kernel.run_for(50 * MS);
        if hinted {
            assert!(kernel.hint(first[0], 0, Author::Policy));
            kernel.run_for(20 * MS);
        }
        kernel.take_cpu(0, 0);
        let all: Vec<_> = first.iter().chain(&rest).copied().collect();
        let ran = |task| kernel.task_struct(task).se.sum_exec_runtime;
        let before: Vec<u64> = all.iter().map(|&task| ran(task)).collect();
        kernel.run_for(2000 * MS);
        let fair = 3 * 2000 * MS / all.len() as u64;
        for (&task, before) in all.iter().zip(before) {
            let got = ran(task) - before;
            assert!(
                got > fair / 2,
                "{got} of {fair} ns, {prime} and {others}, hinted: {hinted}"
            );
        }
        assert_eq!(kernel.errors(), [""; 0]);
    }
}
