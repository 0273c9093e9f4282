// SPDX-License-Identifier: GPL-2.0-only

use super::cpu::Runs;
use super::*;
use crate::mechanism::Mechanism;

const MS: u64 = 1_000_000;

#[test]
fn a_task_runs_where_it_wakes_up_and_its_time_is_charged() {
    let kernel = Kernel::new(&Machine::of(&[2, 2])).unwrap();
    let task = kernel.fork(&Task::default(), 3);
    kernel.run_for(20 * MS);
    let cpu = kernel.cpu_of(task);
    assert_eq!(kernel.runs(cpu), Runs::Task(task));
    assert_eq!(
        kernel.machine().type_of(cpu),
        0,
        "the fastest type comes first"
    );
    assert_eq!(kernel.task_struct(task).se.sum_exec_runtime, 20 * MS);
    assert_eq!(kernel.task_ctx(task).unwrap().run_ns, 20 * MS);
    let slot = kernel.slot(task).expect("it has run long enough for one");
    assert_eq!(slot.core_type, 0);
    assert_eq!(kernel.errors(), [""; 0]);
}

#[test]
fn machines_share_nothing() {
    let kernels: Vec<_> = (0..3)
        .map(|_| Kernel::new(&Machine::of(&[1, 1])).unwrap())
        .collect();
    let tasks: Vec<_> = kernels
        .iter()
        .map(|kernel| kernel.fork(&Task::default(), 0))
        .collect();
    for ((kernel, task), ms) in kernels.iter().zip(&tasks).zip([10, 20, 30]) {
        kernel.run_for(ms * MS);
        assert_eq!(kernel.task_ctx(*task).unwrap().run_ns, ms * MS);
    }
}

/// The events of a task that runs are read on its own CPU only, and ananicy, gamemode or `taskset`
/// change tasks from others: nothing of that may get into a sample.
#[test]
fn a_running_task_that_is_reniced_from_another_cpu_gives_no_impossible_sample() {
    let kernel = Kernel::new(&Machine::of(&[2, 2]).sampling(50 * MS)).unwrap();
    let task = kernel.fork(&Task::default(), 0);
    kernel.run_for(120 * MS);
    kernel.set_nice(task, 5, 3);
    kernel.run_for(200 * MS);
    let samples = kernel.take_samples();
    assert!(samples.len() >= 3, "{samples:?}");
    for sample in samples {
        let cycles = sample.counts[1];
        assert!(
            cycles <= sample.run_ns + 1,
            "{cycles} cycles in {} ns at 1 GHz",
            sample.run_ns
        );
    }
}

#[test]
fn six_tasks_on_two_and_two_cpus_get_alike() {
    let kernel = Kernel::new(&Machine::of(&[2, 2])).unwrap();
    let tasks: Vec<_> = (0..6).map(|_| kernel.fork(&Task::default(), 0)).collect();
    for _ in 0..100 {
        kernel.run_for(100 * MS);
        kernel.beat();
    }
    for task in tasks {
        let ms = kernel.task_struct(task).se.sum_exec_runtime / MS;
        assert!((6500..6834).contains(&ms), "{ms} ms");
    }
    assert_eq!(kernel.errors(), [""; 0]);
}

/// Events of each seed, and seeds: a million events in all. `NATIVE_SEEDS=first-last` and
/// `NATIVE_EVENTS` ask for others, `NATIVE_TRACE=1` prints what happens.
const EVENTS: u64 = 5000;
const SEEDS: std::ops::Range<u64> = 0..200;

/// Runs seeds, and makes what fails smaller. Stops after so many failures.
#[expect(
    clippy::print_stderr,
    reason = "the seed is what is needed to see it again"
)]
fn failures(seeds: std::ops::Range<u64>, without: &[Mechanism], most: usize) -> Vec<Failure> {
    let calm = std::env::var("NATIVE_CALM").unwrap_or_default();
    let is_calm = |chaos: &Chaos| calm.split(',').any(|name| name == format!("{chaos:?}"));
    let chaos = Chaos::ALL
        .into_iter()
        .filter(|chaos| !is_calm(chaos))
        .collect();
    let events = std::env::var("NATIVE_EVENTS").map_or(EVENTS, |events| events.parse().unwrap());
    let traced = std::env::var_os("NATIVE_TRACE").is_some();
    let mut failures = Vec::new();
    for seed in seeds {
        let mut world = World::random(seed, &chaos, without).unwrap();
        let Err(failure) = world.run(events) else {
            continue;
        };
        eprintln!("{failure}");
        failures.push(if traced {
            failure
        } else {
            World::shrink(failure, without).unwrap()
        });
        eprintln!("at least: {}", failures[failures.len() - 1]);
        if failures.len() == most {
            break;
        }
    }
    failures
}

#[test]
fn random_lives_break_no_rule() {
    let seeds = std::env::var("NATIVE_SEEDS").map_or(SEEDS, |range| {
        let (first, last) = range.split_once('-').unwrap_or((&range, &range));
        first.parse().unwrap()..last.parse::<u64>().unwrap() + 1
    });
    let failures = failures(seeds.clone(), &[], usize::MAX);
    let nr = failures.len();
    assert!(nr == 0, "{nr} of the seeds {seeds:?} fail: {}", failures[0]);
}

#[test]
fn the_same_seed_is_the_same_life() {
    let chaos = Chaos::ALL.into_iter().collect();
    let life = || {
        let mut world = World::random(7, &chaos, &[]).unwrap();
        world.run(3000).unwrap();
        let kernel = &world.kernel;
        let ran = (0..).map_while(|index| kernel.task_of(1000 + index));
        let ran = ran.map(|task| kernel.task_struct(task).se.sum_exec_runtime);
        (kernel.now(), kernel.idle(), ran.collect::<Vec<_>>())
    };
    assert_eq!(life(), life());
}

#[test]
fn random_lives_show_what_is_left_out() {
    for mechanism in [Mechanism::Validity, Mechanism::Chain] {
        let found = failures(0..50, &[mechanism], 1);
        assert!(
            found
                .iter()
                .any(|failure| failure.message.contains("a sample of")),
            "without {mechanism:?}: {found:?}"
        );
    }
}
