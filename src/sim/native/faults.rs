// SPDX-License-Identifier: GPL-2.0-only
//! Faults that the BPF half had, each in the smallest scenario that shows it.

use std::time::Duration;

mod queues;
mod taken;

use super::ffi::PF_KTHREAD;
use super::scene::{MS, WAKE, WAKE_SYNC, on, pinned};
use super::*;
use crate::agent::Author;
use crate::bpf::intf;
use crate::policy::Action;
use crate::scheduler::encode::encode;
use crate::table::TableReader;
use crate::topology::CpuMask;

/// A task that runs for `burst_ns` each time that it wakes up, and is known for it; asleep now.
fn brief(kernel: &NativeKernel, task: &NewTask, burst_ns: u64) -> TaskIndex {
    let task = kernel.fork(task, 0);
    for _ in 0..20 {
        kernel.run_for(burst_ns);
        kernel.block(kernel.cpu_of(task));
        kernel.run_for(MS);
        kernel.wake(task, 0, WAKE);
    }
    kernel.run_for(10_000);
    kernel.block(kernel.cpu_of(task));
    kernel.run_for(MS);
    task
}

#[test]
fn what_a_rule_keeps_on_efficient_cores_does_not_hop_among_them_while_a_fast_one_idles() {
    for ruled in [true, false] {
        let kernel = NativeKernel::new(&NativeMachine::of(&[1, 2])).unwrap();
        let task = kernel.fork(&NewTask::default(), 0);
        kernel.run_for(20 * MS);
        let by = if ruled { Author::Rules } else { Author::Policy };
        assert!(kernel.hint(task, 1, by));
        kernel.block(kernel.cpu_of(task));
        kernel.wake(task, 0, WAKE);
        let efficient = kernel.cpu_of(task);
        assert_eq!(kernel.machine().type_of(efficient), 1);
        let before = kernel.stat(intf::stat_id_STAT_UPGRADED);
        kernel.run_for(50 * MS);
        let moves = kernel.stat(intf::stat_id_STAT_UPGRADED) - before;
        // A policy's hint shares out what is busy: the idle P core is better all the same.
        let expected = if ruled { (0, efficient) } else { (1, 0) };
        assert_eq!((moves, kernel.cpu_of(task)), expected, "by a rule: {ruled}");
        assert_eq!(kernel.errors(), [""; 0]);
    }
}

#[test]
fn of_many_that_see_one_idle_fast_core_one_goes_and_all_others_stay() {
    // Two P cores with two threads each, eight E cores, two LP-E cores on an island of their own.
    let mut topology = topology(&[(0, 4), (1, 8), (2, 2)], &[0]);
    topology.types[2].low_power_island = true;
    let kernel = NativeKernel::new(&NativeMachine::on(topology)).unwrap();
    kernel.fork(&pinned(2), 2);
    let tasks: Vec<_> = (4..12).map(|cpu| kernel.fork(&pinned(cpu), cpu)).collect();
    kernel.run_for(2 * MS);
    let before = kernel.stat(intf::stat_id_STAT_UPGRADED);
    for &task in &tasks {
        kernel.set_affinity(task, &CpuMask::first(14), kernel.cpu_of(task));
    }
    // Ticks come on all CPUs at once: all of them see that core before one of them goes.
    kernel.advance(MS);
    (4..12).for_each(|cpu| kernel.tick(cpu));
    kernel.run_for(20 * MS);
    let mut places: Vec<_> = tasks.iter().map(|&task| kernel.cpu_of(task)).collect();
    places.sort_unstable();
    assert!(places[0] < 2, "the idle P core: {places:?}");
    assert!(
        places[1..].iter().all(|cpu| (4..12).contains(cpu)),
        "{places:?}"
    );
    assert_eq!(kernel.stat(intf::stat_id_STAT_UPGRADED) - before, 1);
    assert_eq!(kernel.errors(), [""; 0]);
}

#[test]
fn a_frequency_request_ends_by_one_clock_only() {
    let kernel = NativeKernel::new(&NativeMachine::of(&[1])).unwrap();
    let task = kernel.fork(&NewTask::default(), 0);
    kernel.run_for(30 * MS);
    kernel.block(0);
    kernel.skew_ktime(3600 * 1000 * MS as i64);
    kernel.run_for(70 * MS);
    kernel.wake(task, 0, WAKE);
    kernel.run_for(25 * MS);
    kernel.block(0);
    kernel.take_perf_requests();
    // The timer finds that the CPU went idle 10 ms ago.
    kernel.run_for(10 * MS);
    assert_eq!(kernel.take_perf_requests(), []);
    kernel.run_for(200 * MS);
    assert_eq!(kernel.take_perf_requests(), [(0, 0)]);
}

#[test]
fn a_cpu_that_leaves_idle_is_measured_from_then_on() {
    let mut machine = NativeMachine::of(&[1]);
    machine.hz = 100;
    let kernel = NativeKernel::new(&machine).unwrap();
    let task = kernel.fork(&NewTask::default(), 0);
    kernel.run_for(50 * MS);
    kernel.block(0);
    kernel.run_for(500 * MS);
    kernel.take_perf_requests();
    kernel.wake(task, 0, WAKE);
    kernel.run_for(10 * MS);
    assert_eq!(kernel.take_perf_requests(), [(0, 1024)]);
}

#[test]
fn a_cpu_that_was_kicked_in_vain_is_found_again() {
    let kernel = NativeKernel::new(&NativeMachine::of(&[2])).unwrap();
    let task = kernel.fork(&NewTask::default(), 0);
    kernel.run_for(MS);
    let idle = 1 - kernel.cpu_of(task);
    type AnyIdleFor = unsafe extern "C" fn(*mut ffi::task_struct) -> i32;
    // SAFETY: the function of that name in src/bpf/idle.bpf.h.
    let any_idle_for: AnyIdleFor =
        unsafe { std::mem::transmute(kernel.half().global::<u8>("any_idle_for")) };
    let claim = || kernel.call(|_| unsafe { any_idle_for(kernel.raw(task)) });
    // The kernel's mask gives it once, ours once more: from then on nothing finds it.
    assert_eq!([claim(), claim()], [idle as i32; 2]);
    assert!(claim() < 0);
    // Another CPU has taken what it was kicked for.
    kernel.schedule(idle);
    kernel.run_for(MS);
    let claimed = [claim(), claim()];
    assert_eq!(
        claimed, [idle as i32; 2],
        "by the kernel's mask, and by ours"
    );
}

#[test]
fn a_cpu_that_may_not_take_what_waits_stays_asleep() {
    let kernel = NativeKernel::new(&NativeMachine::of(&[3])).unwrap();
    let crowd = NewTask {
        cpus: Some(CpuMask::first(2)),
        ..Default::default()
    };
    for _ in 0..3 {
        kernel.fork(&crowd, 0);
    }
    kernel.fork(&pinned(2), 2);
    kernel.run_for(20 * MS);
    kernel.take_kicks();
    kernel.block(2);
    let kicks = kernel.take_kicks();
    assert!(kicks.iter().all(|kick| kick.cpu != 2), "{kicks:?}");
}

#[test]
fn a_change_of_nice_is_no_sleep() {
    let kernel = NativeKernel::new(&NativeMachine::of(&[2])).unwrap();
    let task = kernel.fork(&NewTask::default(), 0);
    for round in 0..40 {
        kernel.run_for(MS);
        kernel.set_nice(task, round % 3, 1 - kernel.cpu_of(task));
    }
    kernel.set_affinity(task, &CpuMask::from_iter([0, 1]), 1 - kernel.cpu_of(task));
    let known = kernel.task_ctx(task).unwrap();
    assert_eq!((known.burst_ns, known.woke_at_ns), (0, 0));
    assert_eq!(known.competes, 1);
    // All that was counted of it is taken back when it does sleep.
    kernel.run_for(MS);
    kernel.block(kernel.cpu_of(task));
    assert_eq!(kernel.domain_ctx(0).weight, 0);
    assert!(kernel.task_ctx(task).unwrap().burst_ns > 0);
}

#[test]
fn the_agents_threads_have_one_allowance_together() {
    let kernel = NativeKernel::new(&NativeMachine::of(&[2])).unwrap();
    for cpu in 0..2 {
        kernel.fork(&pinned(cpu), cpu);
    }
    kernel.run_for(50 * MS);
    let agent = |cpu| NewTask {
        tgid: Some(AGENT_TGID),
        ..pinned(cpu)
    };
    let threads = [0, 1].map(|cpu| kernel.fork(&agent(cpu), cpu));
    kernel.run_for(100 * MS);
    let ran = threads.map(|thread| kernel.task_struct(thread).se.sum_exec_runtime / MS);
    // 50 ms each, and then their turns; with an allowance each, all of the time.
    assert!(ran.iter().all(|ran| (50..90).contains(ran)), "{ran:?}");
}

#[test]
fn a_full_table_is_tried_once_and_a_sleepers_slot_can_be_taken_back() {
    let mut machine = NativeMachine::of(&[4]);
    machine.slots = 4;
    let kernel = NativeKernel::new(&machine).unwrap();
    let sleepers: Vec<_> = (0..4).map(|cpu| kernel.fork(&pinned(cpu), cpu)).collect();
    kernel.run_for(20 * MS);
    for cpu in 0..4 {
        kernel.block(cpu);
    }
    let task = kernel.fork(&NewTask::default(), 0);
    kernel.run_for(200 * MS);
    assert!(kernel.slot(task).is_none());
    assert_eq!(kernel.stat(intf::stat_id_STAT_SLOTS_FULL), 1);

    let of = kernel.task_ctx(sleepers[1]).unwrap().slot;
    let mut request = intf::slot_request {
        slot: of,
        generation: kernel.slot(sleepers[1]).unwrap().generation,
    };
    type TakeBack = unsafe extern "C" fn(*mut intf::slot_request) -> i32;
    // SAFETY: the function of that name in src/bpf/account.bpf.h.
    let take_back: TakeBack =
        unsafe { std::mem::transmute(kernel.half().global::<u8>("take_back_slot")) };
    let mut ask = || kernel.call(|_| unsafe { take_back(&raw mut request) });
    assert_eq!(ask(), 0);
    assert!(ask() < 0, "once");
    kernel.run_for(10 * MS);
    assert_eq!(kernel.task_ctx(task).unwrap().slot, of);
    // The one that lost it runs on all the same.
    kernel.wake(sleepers[1], 1, WAKE);
    kernel.run_for(50 * MS);
    assert!(kernel.slot(sleepers[1]).is_none());
    assert!(kernel.task_ctx(sleepers[1]).unwrap().run_ns > 50 * MS);
    assert_eq!(kernel.errors(), [""; 0]);
}

#[test]
fn a_synchronous_wake_up_takes_an_idle_cpu_rather_than_wait_for_its_waker() {
    for busy in [false, true] {
        let kernel = NativeKernel::new(&NativeMachine::of(&[2])).unwrap();
        let [waker, wakee] = [0, 1].map(|_| brief(&kernel, &NewTask::default(), MS / 2));
        if busy {
            kernel.fork(&pinned(1), 1);
            kernel.run_for(20 * MS);
        }
        kernel.wake(waker, 0, WAKE);
        kernel.run_for(MS / 10);
        let here = kernel.cpu_of(waker);
        assert!(kernel.is_running(waker));
        kernel.wake(wakee, here, WAKE_SYNC);
        kernel.run_for(10_000);
        // Where no CPU is idle it is near its data behind the waker, and soon has its turn.
        assert_eq!(kernel.is_running(wakee), !busy);
        assert_eq!(kernel.cpu_of(wakee) == here, busy);
    }
}

#[test]
fn what_is_brief_on_the_fastest_cores_is_brief_on_slower_ones() {
    let kernel = NativeKernel::new(&NativeMachine::of(&[1, 1])).unwrap();
    // A frame of 3 ms on P takes 6 ms on E, which is half as fast.
    let task = brief(&kernel, &pinned(1), 6 * MS);
    let known = kernel.task_ctx(task).unwrap();
    assert!(
        (2 * MS..4 * MS).contains(&known.burst_ns),
        "{} ns",
        known.burst_ns
    );
}

#[test]
fn what_a_kernel_thread_preempts_does_not_wait_for_one_that_takes_long() {
    let kernel = NativeKernel::new(&NativeMachine::of(&[1])).unwrap();
    let kworker = NewTask {
        flags: PF_KTHREAD,
        ..pinned(0)
    };
    let kworker = brief(&kernel, &kworker, MS / 20);
    let task = kernel.fork(&NewTask::default(), 0);
    kernel.run_for(50 * MS);
    kernel.wake(kworker, 0, WAKE);
    kernel.run_for(MS / 2);
    assert!(kernel.is_running(kworker));
    kernel.run_for(5 * MS / 2);
    assert!(kernel.is_running(task), "3 ms after it was preempted");
}

#[test]
fn a_cpu_that_came_online_since_serves_what_is_pinned_to_it() {
    let mut topology = topology(&[(0, 2)], &[]);
    topology.nr_cpu_ids = 3;
    let kernel = NativeKernel::new(&NativeMachine::on(topology)).unwrap();
    let tasks = [0, 1].map(|_| kernel.fork(&pinned(2), 2));
    kernel.run_for(200 * MS);
    let ran = tasks.map(|task| kernel.task_struct(task).se.sum_exec_runtime / MS);
    assert!(ran.iter().all(|ran| (80..121).contains(ran)), "{ran:?}");
    assert_eq!(kernel.errors(), [""; 0]);
}

#[test]
fn a_thread_that_has_ended_is_in_no_policys_way_until_the_kernel_frees_it() {
    let kernel = NativeKernel::new(&NativeMachine::of(&[1]).sampling(50 * MS)).unwrap();
    let tasks = || {
        let (mut tasks, (slots, used)) = (Vec::new(), kernel.half().slots());
        TableReader::default().snapshot(slots, used, &mut tasks);
        tasks.len()
    };
    let task = kernel.fork(&NewTask::default(), 0);
    kernel.run_for(70 * MS);
    assert_eq!((tasks(), kernel.take_samples().len()), (1, 1));
    kernel.die(0);
    assert_eq!(tasks(), 0, "its slot is free");
    let left = kernel.take_samples();
    assert!(matches!(&left[..], [left] if left.last != 0 && left.run_ns < 30 * MS));
    kernel.run_for(2000 * MS);
    kernel.free(task, 0);
    assert!(kernel.take_samples().is_empty(), "once");
    assert_eq!(kernel.errors(), [""; 0]);
}

#[test]
fn counts_of_two_sets_do_not_add_up_while_a_task_has_no_slot() {
    let mut machine = NativeMachine::of(&[1]).sampling(50 * MS);
    machine.set_events = vec![vec![2, 2]];
    let kernel = NativeKernel::new(&machine).unwrap();
    kernel.fork(&NewTask::default(), 0);
    kernel.run_for(3 * MS);
    kernel.half().set_at("current_set", 0, 1u8);
    kernel.open_events(0, 1);
    kernel.run_for(100 * MS);
    let samples = kernel.take_samples();
    assert_eq!(samples[0].set, 1);
    // Of set 1 there is nothing from before its turn: all later samples are of 50 ms.
    let (first, run_ns) = (samples[0].at, samples[0].run_ns);
    assert!(run_ns <= first - (kernel.ktime() - 100 * MS), "{samples:?}");
    assert_eq!(kernel.errors(), [""; 0]);
}

#[test]
fn a_preempted_thread_of_the_agent_goes_to_an_idle_cpu() {
    let kernel = NativeKernel::new(&NativeMachine::of(&[2])).unwrap();
    let busy = NewTask {
        tgid: Some(AGENT_TGID),
        ..Default::default()
    };
    let thread = kernel.fork(&busy, 0);
    kernel.run_for(5 * MS);
    let here = kernel.cpu_of(thread);
    // Another one of the agent's that may run there alone computes from now on.
    let other = NewTask {
        tgid: Some(AGENT_TGID),
        ..pinned(here)
    };
    kernel.fork(&other, here);
    kernel.run_for(5 * MS);
    kernel.set_nice(thread, 0, here);
    kernel.run_for(2 * MS);
    assert!(
        kernel.is_running(thread),
        "beside CPU {}, which idles",
        1 - here
    );
    assert_eq!(kernel.errors(), [""; 0]);
}

/// It has no other chance, while the agent goes first.
#[test]
fn what_was_on_its_way_to_a_cpu_as_the_agent_woke_up_there_does_not_wait_for_it() {
    let kernel = NativeKernel::new(&NativeMachine::of(&[1, 1])).unwrap();
    let agent = NewTask {
        tgid: Some(AGENT_TGID),
        ..pinned(0)
    };
    let agent = kernel.fork(&agent, 0);
    kernel.run_for(MS);
    kernel.block(0);
    let task = kernel.fork(&pinned(1), 1);
    kernel.run_for(20 * MS);
    kernel.set_affinity(task, &CpuMask::from_iter([0, 1]), 1);
    // It has claimed the idle CPU, and is not there yet.
    kernel.waits.set(true);
    kernel.tick(1);
    kernel.wake(agent, 1, WAKE);
    kernel.settle();
    kernel.waits.set(false);
    kernel.run_later();
    assert_eq!(kernel.queued_on(0), [task]);
    kernel.run_for(2 * MS);
    assert!(kernel.is_running(task));
}

#[test]
fn a_cpu_that_a_task_is_called_back_from_is_not_lost() {
    let kernel = NativeKernel::new(&NativeMachine::of(&[4])).unwrap();
    for cpu in 0..2 {
        kernel.fork(&pinned(cpu), cpu);
    }
    kernel.run_for(20 * MS);
    let task = kernel.fork(&pinned(0), 0);
    // The kernel puts it back for the change, and at once takes it to the first CPU that it may use now.
    kernel.set_affinity(task, &CpuMask::from_iter([1, 2, 3]), 0);
    kernel.settle();
    assert!(kernel.is_running(task));
    let other = 5 - kernel.cpu_of(task);
    assert_eq!(kernel.idle(), CpuMask::from_iter([other]));
}

/// A policy, and those that share the fastest cores while the agent is silent, would take it for one
/// that waits.
#[test]
fn a_task_that_is_alone_since_its_fork_is_known_to_run() {
    let kernel = NativeKernel::new(&NativeMachine::of(&[1, 1])).unwrap();
    let task = kernel.fork(&NewTask::default(), 0);
    kernel.run_for(20 * MS);
    let state = kernel.slot(task).unwrap().state;
    assert_eq!(u32::from(state), intf::task_state_TASK_IS_RUNNING);
}

#[test]
fn a_sleep_that_ends_on_a_cpu_with_an_earlier_clock_is_none() {
    let kernel = NativeKernel::new(&NativeMachine::of(&[2]).sampling(50 * MS)).unwrap();
    kernel.skew_cpu(1, -20_000);
    let task = kernel.fork(&pinned(0), 0);
    kernel.run_for(20 * MS);
    kernel.block(0);
    kernel.set_affinity(task, &CpuMask::from_iter([1]), 0);
    kernel.wake(task, 1, WAKE);
    let slept = kernel.task_ctx(task).unwrap().slept_ns;
    assert!(slept < MS, "{slept} ns");
}

/// On a kernel that cannot wake a CPU for it, only unparking does: nothing else would look.
#[test]
fn what_a_parked_cpu_held_runs_again_on_every_kernel() {
    for (can_kick, can_iterate) in [(true, true), (false, true), (false, false)] {
        let mut machine = NativeMachine::of(&[1, 1]);
        (machine.can_kick, machine.can_iterate) = (can_kick, can_iterate);
        machine.version = Version(7, 1);
        let kernel = NativeKernel::new(&machine).unwrap();
        let held = kernel.fork(&NewTask::default(), 0);
        kernel.run_for(20 * MS);
        let parks = Action::Park(kernel.cpu_of(held), Duration::from_millis(40));
        kernel.apply(&[encode(&parks, Author::Policy)], 1);
        kernel.run_for(30 * MS);
        assert!(!kernel.is_running(held), "{can_kick}, {can_iterate}");
        kernel.run_for(15 * MS);
        assert!(kernel.is_running(held), "{can_kick}, {can_iterate}");
    }
}

/// A machine of two CPUs that a scheduler was just attached to, while a task ran on the first: for all that
/// the kernel knows both idle.
fn attached_to_a_busy_cpu() -> Box<NativeKernel> {
    let machine = NativeMachine::of(&[2]);
    let mut kernel = NativeKernel::new(&machine).unwrap();
    kernel.fork(&on([0, 1]), 0);
    kernel.settle();
    kernel.bypass(true, 1);
    kernel.settle();
    let runnable = kernel.detach(1);
    kernel.attach(&machine, None, &runnable, 1).unwrap();
    kernel.bypass(false, 1);
    kernel.settle();
    assert!(kernel.idle().contains(0) && matches!(kernel.runs(0), Runs::Task(_)));
    kernel
}

#[test]
fn a_cpu_that_is_busy_as_the_scheduler_is_attached_is_not_taken_for_idle_from_its_first_tick_on() {
    let kernel = attached_to_a_busy_cpu();
    kernel.tick(0);
    assert!(!kernel.idle().contains(0));
}

#[test]
fn nor_once_a_real_time_task_has_taken_it() {
    let kernel = attached_to_a_busy_cpu();
    kernel.take_cpu(0, 0);
    kernel.settle();
    let task = kernel.fork(&NewTask::default(), 0);
    kernel.settle();
    // What ran there is on the other one by now, and both queue for that.
    assert_eq!(kernel.queued_on(0), []);
    assert!(kernel.waits(task));
}

/// While the machine suspends the kernel does not say which CPUs go idle, and up to 7.2 not even afterwards.
#[test]
fn a_cpu_that_went_idle_unseen_is_found_where_it_cannot_be_woken() {
    let mut machine = NativeMachine::of(&[2]);
    (machine.version, machine.can_kick) = (Version(7, 2), false);
    let kernel = NativeKernel::new(&machine).unwrap();
    kernel.fork(&pinned(0), 0);
    kernel.fork(&pinned(1), 1);
    kernel.run_for(20 * MS);
    kernel.bypass(true, 0);
    kernel.settle();
    kernel.block(1);
    kernel.bypass(false, 0);
    kernel.settle();
    let task = kernel.fork(&NewTask::default(), 0);
    kernel.run_for(MS);
    assert!(kernel.is_running(task));
}
