// SPDX-License-Identifier: GPL-2.0-only
//! A small model of a machine: one thread per CPU, each slowed down by small cores and by others'
//! memory traffic in its cluster.

use std::time::Duration;

use hetero_core::testing::{machine, task_of};
use scx_hetero::arith;
use scx_hetero::pmu::sample::{EventCounts, Sample, SampleMetrics, SfEstimate};
use scx_hetero::policy::{Action, Policy, Snapshot};
use scx_hetero::table::{Task, TaskState};
use scx_hetero::topology::{MAX_CORE_TYPES, Topology};

const TICK_NS: u64 = 10_000_000;
const SAMPLE_NS: u64 = 50_000_000;
pub(crate) const BANDWIDTH: f64 = 10e9;

/// What a program does alone on a big core.
#[derive(Clone, Copy)]
pub(crate) struct Phase {
    pub ipc: f64,
    pub l1_per_kilo: f64,
    pub branches: f64,
    pub btr: f64,
    /// How much slower it is on small cores; of more than two types, on each than on the one before.
    pub sf: f64,
    /// How much slower it is on each core type than on the fastest, where that is not so.
    pub by_type: Option<[f64; MAX_CORE_TYPES]>,
    /// How much slower it gets when others take all of the bandwidth.
    pub sensitivity: f64,
}

/// Phases in turn, each for so much work, ns.
#[derive(Clone)]
pub(crate) struct Program {
    pub phases: Vec<Phase>,
    pub work_ns: f64,
}

pub(crate) fn steady(phase: Phase) -> Program {
    Program {
        phases: vec![phase],
        work_ns: f64::INFINITY,
    }
}

pub(crate) fn compute(sf: f64) -> Phase {
    Phase {
        ipc: sf / 1.5,
        l1_per_kilo: 300.0,
        branches: 0.1,
        btr: 10e6,
        sf,
        by_type: None,
        sensitivity: 0.0,
    }
}

pub(crate) fn aggressor() -> Phase {
    Phase {
        btr: 6e9,
        l1_per_kilo: 450.0,
        sensitivity: 0.5,
        ..compute(1.5)
    }
}

pub(crate) fn sensitive() -> Phase {
    Phase {
        btr: 1e9,
        l1_per_kilo: 380.0,
        sensitivity: 2.5,
        ..compute(2.0)
    }
}

#[derive(Clone, Default)]
struct Window {
    core_type: usize,
    ns: u64,
    instructions: f64,
    cycles: f64,
    bytes: f64,
    phase: Option<usize>,
}

pub(crate) struct Machine {
    pub topology: Topology,
    pub programs: Vec<Program>,
    pub tasks: Vec<Task>,
    inverse: Vec<[f32; MAX_CORE_TYPES]>,
    /// True work done, ns on a big core alone.
    pub work_ns: Vec<f64>,
    windows: Vec<Window>,
    pub now_ns: u64,
    pub clock: f64,
    /// Everything decided but slowdowns.
    pub moves: Vec<(u64, Action)>,
    pub swaps: u64,
    /// A model knows every SF.
    pub estimates: bool,
    /// Until when each CPU is parked, ns.
    parked: Vec<u64>,
}

impl Machine {
    pub(crate) fn new(counts: &[u32], programs: Vec<Program>) -> Self {
        let topology = machine(counts);
        let on = |slot: usize| &topology.cpus[slot % topology.cpus.len()];
        let tasks = (0..programs.len())
            .map(|slot| task_of(slot as u32, on(slot).id, on(slot).core_type, counts.len()));
        let static_inverse = |core_type: usize| 1.0 / (1 << core_type) as f32;
        Self {
            tasks: tasks.collect(),
            inverse: vec![std::array::from_fn(static_inverse); programs.len()],
            work_ns: vec![0.0; programs.len()],
            windows: vec![Window::default(); programs.len()],
            parked: vec![0; topology.cpus.len()],
            topology,
            programs,
            now_ns: 0,
            clock: 1.0,
            moves: Vec::new(),
            swaps: 0,
            estimates: false,
        }
    }

    fn phase(&self, slot: usize) -> (usize, Phase) {
        let program = &self.programs[slot];
        let turn = (self.work_ns[slot] / program.work_ns) as usize % program.phases.len();
        (turn, program.phases[turn])
    }

    /// How much slower the core type alone makes a phase.
    pub(crate) fn type_factor(phase: &Phase, core_type: usize) -> f64 {
        match phase.by_type {
            Some(factors) => factors[core_type],
            None => phase.sf.powi(core_type as i32),
        }
    }

    fn demand(&self, slot: usize) -> f64 {
        if self.tasks[slot].state != TaskState::Running {
            return 0.0;
        }
        let (_, phase) = self.phase(slot);
        phase.btr / Self::type_factor(&phase, self.tasks[slot].core_type)
    }

    fn slowdown(&self, slot: usize) -> f64 {
        let here = self.tasks[slot].core_type;
        let (_, phase) = self.phase(slot);
        let others = (0..self.tasks.len())
            .filter(|&other| other != slot && self.tasks[other].core_type == here)
            .map(|other| self.demand(other));
        let crowd = (others.sum::<f64>() / BANDWIDTH - 0.25).clamp(0.0, 1.0);
        Self::type_factor(&phase, here) * (1.0 + phase.sensitivity * crowd)
    }

    /// One tick for all. Gives samples that are full.
    pub(crate) fn tick(&mut self) -> Vec<Sample> {
        for task in &mut self.tasks {
            let held = self.now_ns < self.parked[task.cpu as usize];
            task.state = if held {
                TaskState::Queued
            } else {
                TaskState::Running
            };
        }
        let slowdowns: Vec<f64> = (0..self.tasks.len())
            .map(|slot| self.slowdown(slot))
            .collect();
        self.now_ns += TICK_NS;
        let mut samples = Vec::new();
        for (slot, slowdown) in slowdowns.into_iter().enumerate() {
            let (turn, phase) = self.phase(slot);
            let task = &mut self.tasks[slot];
            if task.state == TaskState::Queued {
                continue;
            }
            let frequency = self.clock * 2e9 / (1.0 + 0.4 * task.core_type as f64);
            let window = &mut self.windows[slot];
            if window.core_type != task.core_type || window.phase.is_some_and(|p| p != turn) {
                *window = Window::default(); // as the sampler does, by core type and IPC
            }
            window.core_type = task.core_type;
            window.phase = Some(turn);
            let seconds = TICK_NS as f64 / 1e9;
            window.ns += TICK_NS;
            window.cycles += frequency * seconds;
            window.instructions += self.clock * 2e9 * phase.ipc / slowdown * seconds;
            window.bytes += phase.btr / slowdown * seconds;
            if window.ns >= SAMPLE_NS {
                let window = std::mem::take(window);
                let mut sample = sample(task, &window, &phase);
                let slowest = self.topology.types.len() - 1;
                sample.sf = self.estimates.then(|| SfEstimate {
                    sf: Self::type_factor(&phase, slowest),
                    sigma: 0.02,
                });
                samples.push(sample);
                self.windows[slot].core_type = task.core_type;
            }
            self.work_ns[slot] += TICK_NS as f64 / slowdown;
            task.run_ns[task.core_type] += TICK_NS;
            let inverse = (self.inverse[slot][task.core_type] * 65536.0) as u32;
            task.amp_progress += arith::charge_progress(TICK_NS, inverse, 1, 1, task.weight);
        }
        samples
    }

    pub(crate) fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            now_ns: self.now_ns,
            topology: &self.topology,
            tasks: &self.tasks,
        }
    }

    pub(crate) fn apply(&mut self, actions: Vec<Action>) {
        for action in actions {
            match &action {
                Action::Slowdown(task, inverse) => {
                    assert!(inverse.iter().all(|&i| i > 0.0 && i <= 1.0), "{inverse:?}");
                    self.inverse[task.slot as usize] = *inverse;
                    continue;
                }
                Action::Swap([(one, to), (other, other_to)]) => {
                    let (a, b) = (one.task.slot as usize, other.task.slot as usize);
                    let (one, other) = (self.tasks[a], self.tasks[b]);
                    assert_eq!((one.core_type, other.core_type), (*other_to, *to));
                    assert!(one.may_use(*to) && other.may_use(*other_to));
                    for (slot, from) in [(a, other), (b, one)] {
                        self.tasks[slot].cpu = from.cpu;
                        self.tasks[slot].core_type = from.core_type;
                        self.tasks[slot].hint = Some(from.core_type);
                    }
                    self.swaps += 1;
                }
                Action::Park(cpu, time) => {
                    assert!(*time <= Duration::from_millis(100));
                    self.parked[*cpu as usize] = self.now_ns + time.as_nanos() as u64;
                }
                Action::Weight(..) | Action::Join(..) => panic!("{action:?} is no policy's"),
                // No CPU is idle, so that is all.
                Action::Hint(seen, to) => self.tasks[seen.task.slot as usize].hint = *to,
            }
            self.moves.push((self.now_ns, action));
        }
    }

    pub(crate) fn run(
        &mut self,
        policy: &mut dyn Policy,
        seconds: u64,
        mut each: impl FnMut(&mut Self),
    ) {
        let end = self.now_ns + seconds * 1_000_000_000;
        let every = policy.interval().map_or(u64::MAX, |i| i.as_nanos() as u64);
        while self.now_ns < end {
            for sample in self.tick() {
                policy.observe(&sample);
            }
            if self.now_ns.is_multiple_of(every) {
                let mut actions = Vec::new();
                policy.decide(&self.snapshot(), &mut actions);
                self.apply(actions);
            }
            each(self);
        }
    }

    /// Aggregate speedup: the sum over all programs of their speed over that on the slowest type
    /// alone, less one. For programs of one phase.
    pub(crate) fn asp(&self) -> f64 {
        let slowest = self.topology.types.len() - 1;
        let speedups = self
            .work_ns
            .iter()
            .zip(&self.programs)
            .map(|(work, program)| {
                work / self.now_ns as f64 * Self::type_factor(&program.phases[0], slowest) - 1.0
            });
        speedups.sum()
    }

    pub(crate) fn unfairness(&self) -> f64 {
        let most = self.work_ns.iter().copied().fold(0.0, f64::max);
        let least = self.work_ns.iter().copied().fold(f64::INFINITY, f64::min);
        most / least
    }
}

fn sample(task: &Task, window: &Window, phase: &Phase) -> Sample {
    let seconds = window.ns as f64 / 1e9;
    Sample {
        task: task.id,
        tid: task.tid,
        tgid: task.tgid,
        core_type: window.core_type,
        at_ns: 0,
        run_ns: window.ns,
        last: false,
        counts: EventCounts::default(),
        metrics: SampleMetrics {
            ips: window.instructions / seconds,
            ipc: window.instructions / window.cycles,
            frequency: window.cycles / seconds,
            l1_per_kilo: Some(phase.l1_per_kilo),
            branch_fraction: Some(phase.branches),
            btr: Some(window.bytes / seconds),
            stalled: None,
        },
        sf: None,
        ef: None,
        watts: None,
    }
}
