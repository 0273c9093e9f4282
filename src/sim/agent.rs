// SPDX-License-Identifier: GPL-2.0-only
//! The agent's loop: samples to the policy, and at its interval a look at the tasks.
//!
//! It takes no time and is never late. The live one runs beside the threads it schedules.

use std::time::Duration;

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng as _};

use rustc_hash::FxHashMap;

use super::native;
use crate::bpf::intf;
use crate::pmu::Meaning;
use crate::pmu::module::{Counts, Layout, Sample};
use crate::policy::{Action, Policy, Snapshot};
use crate::record::format::Begin;
use crate::record::{Encoder, FLUSH};
use crate::table::{Reader, Task, TaskId};
use crate::topology::Topology;

/// What is counted of threads, in the order in which samples have it; all at once.
pub(super) const COUNTED: [Meaning; 5] = [
    Meaning::Instructions,
    Meaning::Cycles,
    Meaning::LlcMisses,
    Meaning::Loads,
    Meaning::Branches,
];

/// A model of SF, such as could be learnt: the truth, and an error that a phase has on a core type
/// whenever it is seen there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    /// Standard deviation of the errors, as parts of SF.
    pub(super) error: f64,
    /// What they follow from.
    pub(super) seed: u64,
}

impl Model {
    /// What it says of a phase, the `load`-th on this machine, whose SF is `sf`.
    pub(super) fn sf(&self, sf: f64, load: usize, core_type: usize) -> f64 {
        let of_phase = (load as u64) << 8 | core_type as u64;
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed ^ of_phase.rotate_left(32));
        // The sum of twelve uniform numbers is near enough to a normal one.
        let uniform = || rng.next_u64() as f64 / u64::MAX as f64;
        let normal: f64 = std::iter::repeat_with(uniform).take(12).sum::<f64>() - 6.0;
        (sf * (1.0 + self.error * normal)).max(1.0)
    }
}

/// A policy, and what it is told and asked.
pub(super) struct Agent {
    policy: Box<dyn Policy>,
    /// Where its samples have an SF from.
    pub(super) model: Option<Model>,
    sample_ns: Option<u64>,
    layout: Layout,
    inbox: Vec<Sample>,
    reader: Reader,
    tasks: Vec<Task>,
    /// What the model said of tasks' latest samples.
    sf: FxHashMap<TaskId, f64>,
    /// What the policy decided last.
    pub(super) actions: Vec<Action>,
    /// What is recorded, if it is to be.
    pub(super) recording: Option<Recording>,
}

/// A recording in memory: records as they go to a file, half a second's together.
pub(super) struct Recording {
    pub(super) encoder: Encoder,
    parts: Vec<Vec<u8>>,
    flushed_ns: u64,
}

impl Recording {
    /// With what comes first.
    pub(super) fn new(begin: Begin) -> Self {
        let mut encoder = Encoder::default();
        encoder.begin(begin);
        Self {
            encoder,
            parts: Vec::new(),
            flushed_ns: 0,
        }
    }

    fn flush(&mut self, now_ns: u64) {
        if now_ns - self.flushed_ns >= FLUSH.as_nanos() as u64 {
            self.parts.push(self.encoder.take(Vec::new()));
            self.flushed_ns = now_ns;
        }
    }

    /// All of it.
    pub(super) fn end(mut self) -> Vec<Vec<u8>> {
        self.encoder.end();
        self.parts.push(self.encoder.take(Vec::new()));
        self.parts
    }
}

impl Agent {
    /// With samples of so much run time, if the policy wants any.
    pub(super) fn new(policy: Box<dyn Policy>, sample: Duration, model: Option<Model>) -> Self {
        let sample_ns = policy.module().map(|_| sample.as_nanos() as u64);
        Self {
            policy,
            model,
            sample_ns,
            layout: COUNTED.into_iter().collect(),
            inbox: Vec::new(),
            reader: Reader::default(),
            tasks: Vec::new(),
            sf: FxHashMap::default(),
            actions: Vec::new(),
            recording: None,
        }
    }

    /// What a sample is made of, ns of run time; `None` if nobody asks for any.
    pub(super) fn sample_ns(&self) -> Option<u64> {
        self.sample_ns
    }

    /// When it looks for the first time, ns; `None` is never.
    pub(super) fn first_look(&self) -> Option<u64> {
        self.policy
            .interval()
            .map(|interval| interval.as_nanos() as u64)
    }

    /// Takes note of a sample that the BPF half has sent, of a thread whose phase is the `load`-th on
    /// this machine and has an SF of `sf`.
    pub(super) fn note(&mut self, raw: &intf::task_sample, load: usize, sf: f64) {
        let counts = raw.counts.map(|count| count as f64);
        let counts = Counts::new(&self.layout, counts.into_iter().take(COUNTED.len()));
        let core_type = usize::from(raw.core_type);
        let sf = self.model.map(|model| model.sf(sf, load, core_type));
        let Some(sample) = Sample::of(raw, counts, sf) else {
            return;
        };
        match sample.sf {
            _ if sample.last => _ = self.sf.remove(&sample.task),
            Some(sf) => _ = self.sf.insert(sample.task, sf),
            None => {}
        }
        self.inbox.push(sample);
    }

    /// Shows the policy its samples and the tasks, and lets it decide. When it wants to be asked
    /// again, from now.
    pub(super) fn decide(
        &mut self,
        now_ns: u64,
        topology: &Topology,
        half: &native::Half,
    ) -> Option<Duration> {
        for sample in self.inbox.drain(..) {
            if let Some(recording) = &mut self.recording {
                recording.encoder.sample(&sample);
            }
            self.policy.observe(&sample);
        }
        let (slots, used) = half.slots();
        self.reader.snapshot(slots, used, &mut self.tasks);
        for task in &mut self.tasks {
            task.sf = self.sf.get(&task.id).copied();
        }
        let snapshot = Snapshot {
            now_ns,
            topology,
            tasks: &self.tasks,
        };
        if let Some(recording) = &mut self.recording {
            recording.encoder.look(&snapshot, true);
        }
        self.actions.clear();
        self.policy.decide(&snapshot, &mut self.actions);
        if let Some(recording) = &mut self.recording {
            recording.encoder.decided(&self.actions, &*self.policy);
        }
        self.policy.due_in(&snapshot)
    }

    /// Notes which of its actions were carried out.
    pub(super) fn carried_out(&mut self, now_ns: u64, outcomes: impl Iterator<Item = bool>) {
        if let Some(recording) = &mut self.recording {
            recording.encoder.carried_out(outcomes);
            recording.flush(now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_errs_in_the_same_way_whenever_it_is_asked_and_as_much_as_it_is_said_to() {
        let model = Model {
            error: 0.05,
            seed: 7,
        };
        let errors: Vec<f64> = (0..4000)
            .map(|of| model.sf(2.0, of / 2, of % 2) / 2.0 - 1.0)
            .collect();
        let number = errors.len() as f64;
        let mean = errors.iter().sum::<f64>() / number;
        let variance = errors.iter().map(|e| (e - mean).powi(2)).sum::<f64>() / number;
        assert!(mean.abs() < 0.003, "{mean}");
        assert!((variance.sqrt() - 0.05).abs() < 0.002, "{variance}");
        assert_eq!(model.sf(2.0, 3, 1), model.sf(2.0, 3, 1));
        assert_ne!(model.sf(2.0, 3, 1), model.sf(2.0, 3, 0));
    }
}
