// SPDX-License-Identifier: GPL-2.0-or-later
//! A small machine, a task and a sample, for the tests of policies.

use crate::pmu::sample::{Counts, Metrics, Sample};
use crate::table::{State, Task, TaskId};
use crate::topology::{CoreType, Cpu, Domain, MAX_CORE_TYPES, Source, Topology};

/// A millisecond, ns.
pub const MS: u64 = 1_000_000;

/// A board with a cluster of big cores, first, and one of small ones, each with its own cache.
pub fn board(big: u32, small: u32) -> Topology {
    let all = big + small;
    let kind = |name: &str, cpus: Vec<u32>, capacity| CoreType {
        name: name.into(),
        cpus,
        capacity,
        low_power_island: false,
        pmu: None,
    };
    let cpu = |id: u32| Cpu {
        id,
        core_type: usize::from(id >= big),
        domain: usize::from(id >= big),
        core: id,
        siblings: vec![id],
        llc: usize::from(id >= big),
        package: 0,
        max_freq_khz: None,
        capacity: None,
        highest_perf: None,
    };
    let types = vec![
        kind("big", (0..big).collect(), 1024),
        kind("LITTLE", (big..all).collect(), 512),
    ];
    let domain = |(core_type, kind): (usize, &CoreType)| Domain {
        core_type,
        cpus: kind.cpus.clone(),
    };
    Topology {
        domains: types.iter().enumerate().map(domain).collect(),
        types,
        cpus: (0..all).map(cpu).collect(),
        nr_cpu_ids: all,
        smt: false,
        source: Source::Override,
        capacity_source: None,
        disagreements: Vec::new(),
        notes: Vec::new(),
    }
}

/// A task of its own process that runs on `cpu`.
pub fn task(slot: u32, cpu: u32, core_type: usize) -> Task {
    Task {
        id: TaskId {
            slot,
            generation: 1,
        },
        tid: 100 + slot,
        tgid: 100 + slot,
        comm: Default::default(),
        start_time: 0,
        state: State::Running,
        cpu: cpu as i32,
        core_type,
        hint: None,
        allowed_types: 0b11,
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
        counts: Counts::default(),
        metrics: Metrics {
            ips: ipc * 1e9,
            ipc,
            frequency: 1e9,
            l1_per_kilo: Some(l1),
            branch_fraction: Some(0.1),
            btr: Some(btr),
        },
        sf: None,
    }
}
