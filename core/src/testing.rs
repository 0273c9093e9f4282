// SPDX-License-Identifier: GPL-2.0-or-later
//! A small machine, a task and a sample, for the tests of policies.

use crate::pmu::sample::{EventCounts, Sample, SampleMetrics};
use crate::slowdown::Phase;
use crate::table::{Task, TaskId, TaskState};
use crate::topology::{
    CoreType, Cpu, Domain, Identity, MAX_CORE_TYPES, Source, Topology, TypeIdentity,
};

/// A millisecond, ns.
pub const MS: u64 = 1_000_000;

const NAMES: [&str; MAX_CORE_TYPES] = ["big", "LITTLE", "tiny", "tiniest"];

/// A machine of so many CPUs of each type, a cluster with its own cache each; every type is half as fast as
/// the one before.
pub fn machine(counts: &[u32]) -> Topology {
    let (mut types, mut domains, mut cpus) = (Vec::new(), Vec::new(), Vec::new());
    for (core_type, &count) in counts.iter().enumerate() {
        let first = cpus.len() as u32;
        let ids: Vec<u32> = (first..first + count).collect();
        cpus.extend(ids.iter().map(|&id| Cpu {
            id,
            core_type,
            domain: core_type,
            core: id,
            siblings: vec![id],
            llc: core_type,
            package: 0,
            max_freq_khz: None,
            capacity: None,
            highest_perf: None,
        }));
        domains.push(Domain {
            core_type,
            cpus: ids.clone(),
            shares_l2: false,
        });
        types.push(CoreType {
            name: NAMES[core_type].into(),
            cpus: ids,
            capacity: 1024 >> core_type,
            low_power_island: false,
            pmu: None,
        });
    }
    Topology {
        types,
        domains,
        nr_cpu_ids: cpus.len() as u32,
        cpus,
        llc_bytes: Vec::new(),
        smt: false,
        source: Source::Override,
        capacity_source: None,
        disagreements: Vec::new(),
        notes: Vec::new(),
    }
}

/// The same with two threads on each core of a type.
pub fn with_smt(mut topology: Topology, core_type: usize) -> Topology {
    let ids = topology.types[core_type].cpus.clone();
    for pair in ids.chunks(2) {
        for id in pair {
            let cpu = &mut topology.cpus[*id as usize];
            (cpu.core, cpu.siblings) = (pair[0], pair.to_vec());
        }
    }
    topology.smt = true;
    topology
}

/// A board with big cores, first, and small ones.
pub fn board(big: u32, small: u32) -> Topology {
    machine(&[big, small])
}

/// A CPU with two core types, by name.
pub fn identity() -> Identity {
    let kind = |name: &str, cpus: &str| TypeIdentity {
        name: name.to_string(),
        cpus: cpus.to_string(),
        max_freq_khz: Some(4_000_000),
    };
    Identity {
        cpu: "Some CPU".to_string(),
        core_types: vec![kind("P", "0-3"), kind("E", "4-7")],
    }
}

/// A task of its own process that runs on `cpu`, and may use the first two core types.
pub fn task(slot: u32, cpu: u32, core_type: usize) -> Task {
    task_of(slot, cpu, core_type, 2)
}

/// The same, that may use so many core types.
pub fn task_of(slot: u32, cpu: u32, core_type: usize, nr_types: usize) -> Task {
    Task {
        id: TaskId {
            slot,
            generation: 1,
        },
        tid: slot.wrapping_add(100),
        tgid: slot.wrapping_add(100),
        comm: Default::default(),
        start_time: 0,
        state: TaskState::Running,
        cpu: cpu as i32,
        core_type,
        hint: None,
        allowed_types: (1 << nr_types) - 1,
        kthread: false,
        pinned: false,
        spinning: false,
        weight: 1024,
        nr_runnable: 1,
        run_ns: [0; MAX_CORE_TYPES],
        amp_progress: 0,
        first_progress: 0,
        sf: None,
    }
}

/// A phase with so many loads per 1,000 instructions, a tenth of which are branches.
pub fn phase(l1: f64) -> Phase {
    Phase {
        l1_per_kilo: Some(l1),
        branch_percent: Some(10.0),
    }
}

/// A sample of `task` at 1 GHz.
pub fn sample(task: &Task, ipc: f64, l1: f64, btr: f64) -> Sample {
    Sample {
        task: task.id,
        tid: task.tid,
        tgid: task.tgid,
        core_type: task.core_type,
        at_ns: 0,
        run_ns: 50 * MS,
        last: false,
        counts: EventCounts::default(),
        metrics: SampleMetrics {
            ips: ipc * 1e9,
            ipc,
            frequency: 1e9,
            l1_per_kilo: Some(l1),
            branch_fraction: Some(0.1),
            btr: Some(btr),
            stalled: None,
        },
        sf: None,
        ef: None,
        watts: None,
    }
}
