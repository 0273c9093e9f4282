// SPDX-License-Identifier: GPL-2.0-only
//! Learning while scheduling (`--learn`): threads that are moved give examples, a thread that runs
//! when no other wants its CPU learns from them, and the model at work is replaced by one that
//! is better.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use crossbeam::channel::{Receiver, TryRecvError, bounded};
use log::{debug, info, warn};

use crate::files::write_whole;
use crate::ml::data::INSTRUCTIONS;
use crate::ml::events::countable;
use crate::ml::examples::{Examples, SeenSample};
use crate::ml::fixed;
use crate::ml::header::MeasuredMachine;
use crate::ml::model::Model;
use crate::ml::refit::{self, Refit};
use crate::ml::reservoir::Reservoir;
use crate::pmu::sample::Sample;
use crate::pmu::sampler::Sampler;
use crate::pmu::{Event, MachinePmus, Meaning};
use crate::scheduler::priority::run_when_idle;
use crate::table::{Task, TaskState};
use crate::topology::Topology;

/// A model is learnt anew when so many examples more came,
const FRESH: u64 = 48;
/// or so much of all that are kept, whichever is more;
const FRESH_PART: u64 = 8;
/// and not before so long.
const EVERY: Duration = Duration::from_secs(10);

/// See the module. It outlives a restart of the scheduler.
pub(crate) struct Learning {
    path: PathBuf,
    /// The one at work.
    model: Option<Model>,
    machine: Option<MeasuredMachine>,
    core_types: Vec<String>,
    /// SF where nothing is known of a thread.
    usual: f64,
    /// By core type: what is counted there, by name.
    features: Vec<Vec<(String, Event)>>,
    examples: Examples,
    reservoir: Reservoir,
    /// Running threads, by last-level cache.
    loads: Vec<f64>,
    /// Of the sample at hand; kept for its memory.
    values: Vec<f64>,
    /// How many examples had come when it was last learnt from them, and when that was.
    learnt: (u64, Instant),
    job: Option<Receiver<Result<Option<Learnt>>>>,
}

/// What the thread that learns has to say.
struct Learnt {
    refit: Refit,
    /// Whether the model could be written; one that is no better was not to be.
    kept: Result<()>,
}

impl Learning {
    /// What is learnt is written to `path`, where `model` may lie already.
    pub(crate) fn new(path: &Path, model: Option<Model>) -> Self {
        info!(
            "learning from threads that are moved, for {}",
            path.display()
        );
        Self {
            path: path.to_path_buf(),
            model,
            machine: None,
            core_types: Vec::new(),
            usual: 1.0,
            features: Vec::new(),
            examples: Examples::new(0),
            reservoir: Reservoir::default(),
            loads: Vec::new(),
            values: Vec::new(),
            learnt: (0, Instant::now()),
            job: None,
        }
    }

    /// The model at work.
    pub(crate) fn model(&self) -> Option<&Model> {
        self.model.as_ref()
    }

    /// Begins, on this machine and with what `sampler` counts; where the machine is another than
    /// before, or counts something else, from nothing.
    pub(crate) fn begin(&mut self, topology: &Topology, machine: &MachinePmus, sampler: &Sampler) {
        let features = topology.types.iter().enumerate().map(|(core_type, kind)| {
            let pmu = machine.pmu_of(*kind.cpus.first()?)?;
            let (meanings, further) = countable(pmu);
            let named = meanings.into_iter().map(|event| (event.to_string(), event));
            let further = further
                .into_iter()
                .map(|(name, event)| (name.to_string(), event));
            let base = (INSTRUCTIONS.to_string(), Meaning::Instructions.into());
            let mut all: Vec<_> = named.chain(further).collect();
            all.retain(|(_, event)| {
                let always = [Meaning::Instructions, Meaning::Cycles].map(Event::from);
                let lacks = sampler.lacks(core_type, std::slice::from_ref(event));
                !always.contains(event) && lacks.is_empty()
            });
            all.insert(0, base);
            Some(all)
        });
        let features: Vec<_> = features.map(Option::unwrap_or_default).collect();
        let machine = match &self.model {
            Some(Model {
                machine: Some(machine),
                ..
            }) => machine.clone(),
            _ => MeasuredMachine::this(topology, None, Vec::new()),
        };
        let same = self
            .machine
            .as_ref()
            .is_some_and(|m| m.identity == machine.identity);
        if !same || features != self.features {
            self.reservoir = Reservoir::default();
            self.learnt.0 = 0;
        }
        let slowest = topology.types.len() - 1;
        self.examples = Examples::new(slowest);
        self.machine = Some(machine);
        self.core_types = topology
            .types
            .iter()
            .map(|kind| kind.name.clone())
            .collect();
        self.usual = 1024.0 / f64::from(topology.types[slowest].capacity.max(1));
        self.features = features;
    }

    /// Takes note of how many threads run in each contention domain.
    pub(crate) fn look(&mut self, tasks: &[Task], topology: &Topology) {
        self.loads.clear();
        for task in tasks.iter().filter(|task| task.state == TaskState::Running) {
            if let Some(llc) = llc_of(task, topology) {
                let room = self.loads.len().max(llc + 1);
                self.loads.resize(room, 0.0);
                self.loads[llc] += 1.0;
            }
        }
    }

    /// Takes a sample in. `tasks` are in the order of their ids.
    pub(crate) fn observe(&mut self, sample: &Sample, tasks: &[Task], topology: &Topology) {
        let Some(features) = self.features.get(sample.core_type) else {
            return;
        };
        let Some(cycles) = sample.counts.get(Meaning::Cycles) else {
            return;
        };
        self.values.clear();
        for (_, event) in features {
            let Some(count) = sample.counts.of(event) else {
                return;
            };
            let feature = fixed::feature(count.round() as u64, cycles.round() as u64);
            self.values.push(fixed::number(feature));
        }
        let Ok(place) = tasks.binary_search_by_key(&sample.task, |task| task.id) else {
            return;
        };
        let task = &tasks[place];
        let llc = llc_of(task, topology);
        let seen = SeenSample {
            sample,
            features: &self.values,
            load: llc
                .and_then(|llc| self.loads.get(llc))
                .copied()
                .unwrap_or(0.0),
        };
        let name = || {
            let mut all = tasks.iter();
            all.find(|of| of.tid == task.tgid)
                .unwrap_or(task)
                .comm
                .to_string()
        };
        for example in self.examples.observe(seen, name).into_iter().flatten() {
            self.reservoir.add(example);
        }
    }

    /// Forgets threads that are gone.
    pub(crate) fn retain(&mut self, tasks: &[Task]) {
        let alive = |id| tasks.binary_search_by_key(&id, |task| task.id).is_ok();
        self.examples.retain(alive);
    }

    /// Has what came learnt from, if that is enough; a model that is better than the one at work,
    /// as soon as there is one. It is written by then.
    pub(crate) fn step(&mut self, now: Instant) -> Option<&Model> {
        let Some(job) = &self.job else {
            let due = FRESH.max(self.reservoir.kept().len() as u64 / FRESH_PART);
            let fresh = self.reservoir.came() - self.learnt.0;
            if fresh >= due && now.saturating_duration_since(self.learnt.1) >= EVERY {
                self.learnt = (self.reservoir.came(), now);
                self.start();
            }
            return None;
        };
        let found = match job.try_recv() {
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Ok(None),
            Ok(found) => found,
        };
        self.job = None;
        self.learnt.1 = now;
        match found {
            Err(error) => {
                debug!("nothing learnt: {error:#}");
                None
            }
            Ok(None) => {
                debug!("too few examples or programs to learn from yet");
                None
            }
            Ok(Some(learnt)) => self.judge(learnt),
        }
    }

    fn judge(&mut self, Learnt { refit, kept }: Learnt) -> Option<&Model> {
        let Refit {
            error, old_error, ..
        } = refit;
        let data = &refit.model.data;
        let (rows, programs) = (data.rows, data.programs.len());
        let outcome = format!(
            "{rows} examples of {programs} programs: the new model errs by {error:.3}, the one at \
             work by {old_error:.3}"
        );
        if !refit.is_better() {
            debug!("{outcome}; it stays");
            return None;
        }
        info!("{outcome}; the new one takes its place");
        if let Err(error) = kept {
            warn!("it is not kept beyond this run: {error:#}");
        }
        self.model = Some(refit.model);
        self.model.as_ref()
    }

    fn start(&mut self) {
        let Some(machine) = self.machine.clone() else {
            return;
        };
        let names = |of: &Vec<(String, Event)>| of.iter().map(|(name, _)| name.clone()).collect();
        let task = refit::RefitInput {
            machine,
            core_types: self.core_types.clone(),
            features: self.features.iter().map(names).collect(),
            usual: self.usual,
            kept: self.reservoir.kept().to_vec(),
            old: self.model.clone(),
        };
        let (sender, receiver) = bounded(1);
        let path = self.path.clone();
        let learn = move || {
            let found = run_when_idle()
                .context("cannot go to idle priority")
                .and_then(|()| task.run());
            // Here, as a disk may be slow, and the scheduler must not wait for it.
            let found = found.map(|found| {
                found.map(|refit| {
                    let kept = match refit.is_better() {
                        true => keep(&path, &refit.model),
                        false => Ok(()),
                    };
                    Learnt { refit, kept }
                })
            });
            // Nothing waits for it any longer when the scheduler ends.
            let _ = sender.send(found);
        };
        match std::thread::Builder::new()
            .name("learn".into())
            .spawn(learn)
        {
            Ok(_) => self.job = Some(receiver),
            Err(error) => warn!("cannot start a thread to learn: {error}"),
        }
    }
}

/// Which contention domain a task runs in.
fn llc_of(task: &Task, topology: &Topology) -> Option<usize> {
    Some(topology.cpu(task.cpu.try_into().ok()?)?.llc)
}

/// Writes a model, and keeps the one before beside it, as `.old`.
fn keep(path: &Path, model: &Model) -> Result<()> {
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    if path.exists() {
        let mut old = path.as_os_str().to_owned();
        old.push(".old");
        let kept = fs::read(path).with_context(|| format!("cannot keep {}", path.display()))?;
        write_whole(Path::new(&old), &kept)?;
    }
    write_whole(path, model.to_json()?.as_bytes())
}
