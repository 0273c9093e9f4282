// SPDX-License-Identifier: GPL-2.0-only
//! What threads that meet do to each other.

use std::rc::Rc;

use super::super::cpu_set::CpuSet;
use super::super::fair::Fair;
use super::super::job::Compiled;
use super::super::kernel::BEGIN_NS;
use super::super::library::Library;
use super::*;

/// When threads of `barrier` go on after their first meeting, µs after the last has come, where each has one of these
/// CPUs of the virtual `odroid-xu4`.
fn go_on_after(cpus: &[u32]) -> Vec<u64> {
    let library = Library::builtin().unwrap();
    let machine = Rc::new(library.machine("odroid-xu4").unwrap().as_testbed().unwrap());
    let mut loads = Vec::new();
    let program = Compiled::new(&machine, library.program("barrier").unwrap(), &mut loads);
    let all = machine.cpus();
    let mut sim = Sim::new(SimulatedKernel::new(machine, loads, 7), Fair::default());
    sim.kernel
        .affinities
        .push(CpuSet::of(all, cpus.iter().copied()));
    sim.start(
        Job::new(program, Vec::new(), BEGIN_NS),
        cpus.len() as u32,
        1,
    );
    let threads = sim.kernel.jobs[0].members.clone();
    let wait = |sim: &Sim<Fair>| {
        let state = |&id: &u32| sim.kernel.thread(id).state == ThreadState::Blocked;
        threads.iter().filter(|id| state(id)).count()
    };
    let mut now = BEGIN_NS;
    let mut step = |sim: &mut Sim<Fair>| {
        now += 1000;
        sim.run(now, |_| false);
    };
    while wait(&sim) < threads.len() - 1 {
        step(&mut sim);
    }
    let mut after = Vec::new();
    for us in 0..200 {
        let woken = threads.len() - 1 - wait(&sim);
        after.resize(woken.max(after.len()), us);
        step(&mut sim);
    }
    after
}

#[test]
fn what_comes_last_wakes_the_others_one_after_the_other() {
    // 8.5 µs each on a big core, 23 on a small one.
    assert_eq!(go_on_after(&[4, 5, 6, 7]), [9, 17, 26]);
    assert_eq!(go_on_after(&[0, 1, 2, 3]), [23, 46, 69]);
}
