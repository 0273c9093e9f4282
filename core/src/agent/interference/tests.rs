// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use crate::testing::{MS, machine, sample, task, with_smt};

/// Bandwidth of the machines here, bytes/s.
const BANDWIDTH: f64 = 10e9;

/// Some threads, one a CPU unless it is put elsewhere, in looks of 50 ms.
struct Stage {
    topology: Topology,
    agent: AgentInterference,
    tasks: Vec<Task>,
    now_ns: u64,
}

impl Stage {
    fn new(topology: Topology, threads: u32) -> Self {
        let mut agent = AgentInterference::default();
        agent.set_limits(Some(Thresholds::from_bandwidth(BANDWIDTH)));
        let tasks = (0..threads).map(|slot| {
            let core_type = topology.cpu(slot).map_or(0, |cpu| cpu.core_type);
            task(slot, slot, core_type)
        });
        Self {
            tasks: tasks.collect(),
            topology,
            agent,
            now_ns: 0,
        }
    }

    /// So many looks, in which each thread has this IPC and BTR; one with an IPC of 0 sleeps.
    fn run(&mut self, looks: u32, did: &[(f64, f64)]) {
        for _ in 0..looks {
            self.now_ns += 50 * MS;
            for (task, &(ipc, _)) in self.tasks.iter_mut().zip(did) {
                let runs = ipc > 0.0;
                task.run_ns[task.core_type] += if runs { 50 * MS } else { 0 };
                task.state = match runs {
                    true => TaskState::Running,
                    false => TaskState::Blocked,
                };
            }
            let topology = &self.topology;
            self.agent
                .look(self.now_ns, &self.tasks, topology, |_, _| None);
            for (task, &(ipc, btr)) in self.tasks.iter().zip(did) {
                if ipc > 0.0 {
                    let sample = sample(task, ipc, 300.0, btr);
                    self.agent.observe(&sample, topology);
                }
            }
        }
    }

    fn of(&self, thread: usize) -> Interference {
        self.agent.of(self.tasks[thread].id).unwrap()
    }
}

fn shared(mut topology: Topology) -> Topology {
    topology.cpus.iter_mut().for_each(|cpu| cpu.llc = 0);
    topology
}

#[test]
fn new_misses_are_the_cache_and_old_ones_the_way_to_memory() {
    let mut stage = Stage::new(shared(machine(&[4])), 3);
    // The first fits the cache, the second does not, the third streams later.
    stage.run(10, &[(2.0, 1e6), (0.8, 2e9), (0.0, 0.0)]);
    assert_eq!(stage.of(0).class, InterferenceClass::None);
    stage.run(20, &[(1.0, 1.5e9), (0.5, 1.2e9), (1.0, 4e9)]);
    let (cached, memory) = (stage.of(0), stage.of(1));
    assert!((cached.slowdown - 2.0).abs() < 0.15, "{cached:?}");
    assert_eq!(cached.class, InterferenceClass::Llc, "{cached:?}");
    assert_eq!(memory.class, InterferenceClass::Bandwidth, "{memory:?}");
    let culprit = Some(stage.tasks[2].tgid);
    assert_eq!(cached.culprit.map(|of| of.0), culprit, "{cached:?}");
    assert_eq!(memory.culprit.map(|of| of.0), culprit, "{memory:?}");
    stage.run(20, &[(2.0, 1e6), (0.8, 2e9), (0.0, 0.0)]);
    assert_eq!(stage.of(0).class, InterferenceClass::None);
}

#[test]
fn a_sibling_and_a_neighbour_behind_the_same_l2_are_told_apart() {
    let mut topology = shared(with_smt(machine(&[4, 4]), 0));
    topology.domains[1].shares_l2 = true;
    let mut stage = Stage::new(topology, 3);
    stage.tasks[1] = task(1, 4, 1);
    stage.tasks[2] = task(2, 6, 1);
    stage.run(10, &[(2.0, 1e6), (1.0, 1e6), (0.0, 0.0)]);
    stage.run(10, &[(2.0, 1e6), (0.7, 1e6), (1.0, 1e6)]);
    let cluster = stage.of(1);
    assert_eq!(cluster.class, InterferenceClass::L2, "{cluster:?}");
    assert_eq!(cluster.culprit.map(|of| of.0), Some(stage.tasks[2].tgid));
    // The third moves to the other thread of the first one's core.
    stage.tasks[2].cpu = 1;
    stage.tasks[2].core_type = 0;
    stage.run(10, &[(1.3, 1e6), (1.0, 1e6), (1.3, 1e6)]);
    let sibling = stage.of(0);
    assert_eq!(sibling.class, InterferenceClass::Sibling, "{sibling:?}");
    assert_eq!(sibling.culprit.map(|of| of.0), Some(stage.tasks[2].tgid));
    assert_eq!(stage.of(1).class, InterferenceClass::None);
}

/// Two threads of a process, undisturbed so far, and another process, 900, on the CPU of the second.
fn with_another_on_the_cpu_of_the_second() -> Stage {
    let mut stage = Stage::new(machine(&[4]), 3);
    stage.tasks[1].tgid = stage.tasks[0].tgid;
    stage.tasks[2] = Task {
        tid: 900,
        tgid: 900,
        ..task(2, 1, 0)
    };
    stage.run(100, &[(1.0, 1e6), (1.0, 1e6), (0.0, 0.0)]);
    stage
}

#[test]
fn what_waits_for_a_late_thread_is_slowed_down_by_what_keeps_that() {
    let mut stage = with_another_on_the_cpu_of_the_second();
    assert_eq!(stage.of(0).class, InterferenceClass::None);
    for _ in 0..60 {
        stage.run(1, &[(0.0, 0.0), (1.0, 1e6), (1.0, 1e6)]);
        stage.run(1, &[(1.0, 1e6), (1.0, 1e6), (1.0, 1e6)]);
    }
    let waits = stage.of(0);
    assert_eq!(waits.class, InterferenceClass::Wait, "{waits:?}");
    assert!(waits.slowdown > 1.5, "{waits:?}");
    assert_eq!(waits.culprit.map(|of| of.0), Some(900));
}

#[test]
fn a_late_thread_is_waited_for_also_when_it_did_not_run_since_the_last_look() {
    let mut stage = with_another_on_the_cpu_of_the_second();
    for round in 0..60 {
        // Its CPU is the other's from one look to the next, and then its own.
        for (own, other) in [(0, 50), (50, 0)] {
            stage.now_ns += 50 * MS;
            for (task, ms) in stage.tasks.iter_mut().zip([own, own, other]) {
                task.run_ns[0] += ms * MS;
                // All but the first want to run.
                task.state = match (ms, task.id.slot) {
                    (0, 0) => TaskState::Blocked,
                    (0, _) => TaskState::Queued,
                    _ => TaskState::Running,
                };
            }
            let (now, tasks, topology) = (stage.now_ns, &stage.tasks, &stage.topology);
            stage.agent.look(now, tasks, topology, |_, _| None);
            let waits = stage.of(0);
            if round >= 40 {
                assert_eq!(waits.class, InterferenceClass::Wait, "{waits:?}");
                assert_eq!(waits.culprit.map(|of| of.0), Some(900), "{waits:?}");
            }
        }
    }
}

#[test]
fn what_takes_a_slot_over_begins_anew_and_the_gone_are_forgotten() {
    let mut stage = Stage::new(shared(machine(&[4])), 2);
    stage.run(10, &[(2.0, 1e6), (0.0, 0.0)]);
    stage.run(10, &[(1.0, 1.5e9), (1.0, 9e9)]);
    let before = stage.tasks[0].id;
    assert!(stage.agent.of(before).is_some());
    stage.tasks[0].id.generation += 1;
    stage.run(1, &[(1.0, 1.5e9), (1.0, 9e9)]);
    assert_eq!(stage.agent.of(before), None);
    assert_eq!(stage.agent.of(stage.tasks[0].id), None);
    stage.run(10, &[(1.0, 1.5e9), (1.0, 9e9)]);
    assert_eq!(
        stage.of(0).class,
        InterferenceClass::None,
        "never seen alone"
    );
    stage.tasks.remove(0);
    stage.run(1, &[(1.0, 9e9)]);
    stage.agent.forget_the_gone();
    assert!(stage.agent.threads[0].is_none());
}

#[test]
fn what_a_sample_says_of_one_is_company_of_the_next_at_once() {
    let mut stage = Stage::new(shared(machine(&[4])), 2);
    stage.run(3, &[(1.0, 1e6), (1.0, 1e6)]);
    let others = |stage: &Stage| stage.agent.company(0, &stage.topology).unwrap().btr;
    assert!(others(&stage) < 2e6);
    let loud = sample(&stage.tasks[1], 1.0, 300.0, 8e9);
    stage.agent.observe(&loud, &stage.topology);
    assert!((others(&stage) - 8e9).abs() < 1e8, "{}", others(&stage));
    let silent = sample(&stage.tasks[1], 1.0, 300.0, 0.0);
    stage.agent.observe(&silent, &stage.topology);
    assert!(others(&stage) < 1e8);
}

#[test]
fn one_thread_does_not_fill_the_memory_of_a_machine_that_was_not_calibrated() {
    let mut stage = Stage::new(shared(machine(&[4])), 3);
    stage.agent.set_limits(None);
    // Samples are of 1 GHz, and 4 bytes a cycle is less than the third transfers.
    stage.run(10, &[(2.0, 1e6), (1.0, 1e6), (0.0, 0.0)]);
    stage.run(40, &[(1.0, 1.5e9), (1.0, 1e6), (1.0, 5e9)]);
    let cached = stage.of(0);
    assert_eq!(cached.class, InterferenceClass::Llc, "{cached:?}");
    assert_eq!(cached.also, None, "{cached:?}");
}

#[test]
fn what_nothing_else_explains_is_bandwidth_on_a_machine_that_was_not_calibrated() {
    let mut stage = Stage::new(shared(machine(&[4])), 3);
    stage.agent.set_limits(None);
    // Behind 4 bytes a cycle the third fills memory, and the first misses no more often than before.
    stage.run(10, &[(1.0, 4e8), (1.0, 1e6), (0.0, 0.0)]);
    stage.run(40, &[(0.7, 2.8e8), (1.0, 1e6), (1.0, 3.6e9)]);
    let memory = stage.of(0);
    assert_eq!(memory.class, InterferenceClass::Bandwidth, "{memory:?}");
}

#[test]
fn what_memory_was_seen_to_transfer_it_can() {
    let mut stage = Stage::new(shared(machine(&[4])), 3);
    stage.agent.set_limits(None);
    stage.run(10, &[(1.0, 1e6), (1.0, 1e6), (1.0, 1e6)]);
    let assumed = stage.agent.bandwidth();
    stage.run(40, &[(1.0, 15e9), (1.0, 15e9), (1.0, 0.0)]);
    let [least, likely] = stage.agent.bandwidth();
    assert_eq!(least, assumed[0]);
    assert!(likely > 2.0 * assumed[1], "{likely:e}, {assumed:?}");
    stage.run(40, &[(1.0, 1e6), (1.0, 1e6), (1.0, 1e6)]);
    assert_eq!(stage.agent.bandwidth(), [least, likely]);
    // What was measured counts.
    stage
        .agent
        .set_limits(Some(Thresholds::from_bandwidth(BANDWIDTH)));
    assert!((stage.agent.bandwidth()[1] - BANDWIDTH).abs() < 1.0);
}
