// SPDX-License-Identifier: GPL-2.0-only
//! A mix under a scheduler, as the CAMPS paper measures it (section 5.1): all programs start
//! together, each starts anew when it ends, until the longest has ended so often.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng as _};

use super::agent::{MemoryRecording, Told};
use super::caches::{CacheEvents, CacheOutcome, CacheTruth};
use super::contention::PhaseLoad;
use super::counted::SimulatedEvents;
use super::cpu_set::CpuSet;
use super::energy::{MixEnergy, MixTotals, RunEnergy};
use super::fair::Fair;
use super::goals::{self, GoalOutcome};
use super::hetero::Hetero;
use super::job::{Compiled, Job};
use super::kernel::{ANYWHERE, BEGIN_NS, SimulatedKernel};
use super::knowledge::SimulatedKnowledge;
use super::library::Library;
use super::machine::SimulatedMachine;
use super::metrics::{ScheduleMetrics, Times, geometric_mean};
use super::mix::{Member, Mix};
use super::model::{LearntEstimate, SimulatedModel, UnseenEstimates};
use super::partition::SimulatedPartition;
use super::scheduler;
use super::switch::Sim;
use crate::agent::Agent;
use crate::agent::counted::CountedFor;
use crate::pmu::{Event, Meaning};
use crate::policy;
use crate::record::format::{Begin, Chosen};

/// What schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulerChoice {
    /// An approximation of the kernel's own.
    Default,
    /// scx_hetero with a policy.
    Policy(policy::Name),
}

/// When a mix has run for long enough.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Until {
    /// Each program has ended so often.
    Runs(usize),
    /// So many seconds have passed; programs that did not end count by the work they did.
    Seconds(f64),
    /// Each program has ended so often, and does not start anew: all schedulers do the same work.
    Ended(usize),
}

/// How energy is saved, see `crate::agent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SimulatedSaving {
    /// By what places cost, which is learnt from a sensor of the package
    Measured,
    /// As where there is no sensor: slow cores first
    Blind,
}

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct ExperimentOptions<'a> {
    /// What follows from it: when ticks come, where threads begin, how long sleeps are.
    pub seed: u64,
    /// How long.
    pub until: Until,
    /// Slices of scx_hetero.
    pub slice: Duration,
    /// Run time that a sample is made of.
    pub sample: Duration,
    /// Standard deviation of a model's estimates of SF, as parts of it; without it there is none, but
    /// for the policy that is nothing without.
    pub model_error: Option<f64>,
    /// What a learnt one says of programs instead, where one is asked at all.
    pub learnt: Option<&'a UnseenEstimates>,
    /// Save energy, but not the default scheduler.
    pub saving: Option<SimulatedSaving>,
    /// Watts of threads are learnt from a sensor of the package.
    pub sensor: bool,
    /// For policies.
    pub settings: policy::Settings<'a>,
    /// Keep what the policy sees and decides, see [`ExperimentOutcome::recorded`].
    pub record: bool,
    /// What programs' earlier runs teach.
    pub knowledge: KnowledgeChoice,
    /// Of [`KnowledgeChoice::Warm`], how many there were.
    pub warm_runs: u32,
    /// Compare what is estimated of caches with the truth.
    pub caches: Option<CacheEvents>,
    /// Confine programs that gain nothing by caches to few ways of them, but not under the default scheduler.
    pub partition: bool,
}

/// What a run of a simulated program leaves for the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum KnowledgeChoice {
    /// Nothing
    #[default]
    None,
    /// What was learnt of the program since the mix began
    Cold,
    /// The same, and what whole runs of the mix with other seeds have taught (--warm-runs)
    Warm,
}

/// By how much the seed of each run that teaches is another.
const OTHER_SEED: u64 = 1000;

/// What came of it.
#[derive(Clone, Debug)]
pub struct ExperimentOutcome {
    /// By program, in the order of the mix.
    pub times: Vec<Times>,
    /// What they are worth.
    pub metrics: ScheduleMetrics,
    /// What it took, where the machine's file says so.
    pub energy: Option<MixEnergy>,
    /// Times that a thread changed CPUs, per second.
    pub migrations: f64,
    /// Seconds simulated.
    pub seconds: f64,
    /// Events that it took.
    pub events: u64,
    /// Actions of the policy that were applied, and those dropped as stale.
    pub actions: (u64, u64),
    /// Part of all CPUs' time in which some thread ran.
    pub busy: f64,
    /// How near programs with goals were to them; the default scheduler knows of none.
    pub goals: Vec<GoalOutcome>,
    /// What was recorded, as members of a file ([`crate::record`]) that are not packed yet.
    pub recorded: Vec<Vec<u8>>,
    /// Threads that behaved unlike earlier runs of their programs.
    pub unlike: u64,
    /// How well caches were estimated, if that was asked for.
    pub caches: Option<CacheOutcome>,
}

/// A mix on a machine, and how long its programs take alone.
pub struct Bench {
    machine: Rc<SimulatedMachine>,
    loads: Vec<PhaseLoad>,
    /// Whose phases these are, by name.
    programs_of_loads: Vec<String>,
    members: Vec<(Rc<Compiled>, Member)>,
    /// Starts them, if a program does.
    starters: Option<Rc<Compiled>>,
    /// CPUs to which members are confined, in the order of the mix; the others may run anywhere.
    pub(super) confined: Vec<Option<CpuSet>>,
    alone: Vec<(f64, f64)>,
    /// What it takes there, J.
    alone_j: Vec<(f64, f64)>,
}

/// A program takes at most so many times as long as alone on the slowest CPUs, times threads per
/// CPU; one that takes longer counts by the work done.
const PATIENCE: f64 = 20.0;

/// See [`ExperimentOptions::model_error`]: the models of the virtual machines have mean absolute errors of 0.03 to 0.09
/// at SFs of about 2 (`docs/ml.md`), which is as much as deviations of 2 to 6 % have, but for `odroid-xu4`'s.
const MODEL_ERROR: f64 = 0.05;

/// The longest that a program runs alone, s.
const LONGEST_ALONE: f64 = 1e5;

impl Bench {
    /// Looks the programs up and runs each alone.
    ///
    /// # Errors
    /// The library has no such program.
    pub fn new(library: &Library, machine: &Rc<SimulatedMachine>, mix: &Mix) -> Result<Self> {
        let (mut loads, mut programs_of_loads) = (Vec::new(), Vec::new());
        let mut compiled: BTreeMap<&str, Rc<Compiled>> = BTreeMap::new();
        let mut members = Vec::new();
        for member in &mix.members {
            if !compiled.contains_key(member.program.as_str()) {
                let program = library.program(&member.program)?;
                let program = Compiled::new(machine, program, &mut loads);
                programs_of_loads.resize(loads.len(), member.program.clone());
                compiled.insert(&member.program, program);
            }
            let program = compiled[member.program.as_str()].clone();
            goals::check(member, &program)?;
            members.push((program, member.clone()));
        }
        let starters = machine.start_ns.map(|ns| {
            let starters = Compiled::starters(machine, members.len(), ns, &mut loads);
            programs_of_loads.resize(loads.len(), starters.name.clone());
            starters
        });
        let mut bench = Self {
            machine: machine.clone(),
            loads,
            programs_of_loads,
            members,
            starters,
            confined: Vec::new(),
            alone: Vec::new(),
            alone_j: Vec::new(),
        };
        let mut known: BTreeMap<(&str, u32), [(f64, f64); 2]> = BTreeMap::new();
        let slowest = machine.topology.types.len() - 1;
        for (program, member) in &bench.members {
            let runs = || [0, slowest].map(|on| bench.run_alone(program, member.threads, on));
            let key = (member.program.as_str(), member.threads);
            let [fast, slow] = *known.entry(key).or_insert_with(runs);
            bench.alone.push((fast.0, slow.0));
            bench.alone_j.push((fast.1, slow.1));
        }
        Ok(bench)
    }

    pub(super) fn machine(&self) -> &SimulatedMachine {
        &self.machine
    }

    pub(super) fn loads(&self) -> &[PhaseLoad] {
        &self.loads
    }

    pub(super) fn members(&self) -> &[(Rc<Compiled>, Member)] {
        &self.members
    }

    /// CT_alone and CT_slow of each program, seconds.
    pub fn alone(&self) -> &[(f64, f64)] {
        &self.alone
    }

    /// Seconds and joules that a program takes alone on CPUs of one core type.
    fn run_alone(&self, program: &Rc<Compiled>, threads: u32, core_type: usize) -> (f64, f64) {
        let mut kernel = SimulatedKernel::new(self.machine.clone(), self.loads.clone(), 0);
        let cpus = &self.machine.topology.types[core_type].cpus;
        let cpus = CpuSet::of(self.machine.cpus(), cpus.iter().copied());
        kernel.affinities.push(cpus);
        let affinity = kernel.affinities.len() - 1;
        let mut sim = Sim::new(kernel, Fair::default());
        sim.restarts = false;
        sim.start(
            Job::new(program.clone(), Vec::new(), BEGIN_NS),
            threads,
            affinity,
        );
        let until = BEGIN_NS + (LONGEST_ALONE * 1e9) as u64;
        sim.run(until, |_| true);
        let runs = sim.work_of(0) / program.instructions();
        let seconds = match sim.completions.first() {
            Some(run) => run.took as f64 / 1e9,
            None => LONGEST_ALONE / runs,
        };
        (seconds, sim.nj_of(0) / 1e9 / runs)
    }

    /// Runs the mix.
    ///
    /// # Errors
    /// If the native BPF half cannot be loaded, or did what the kernel would have thrown it out for.
    pub fn run(
        &self,
        scheduler: SchedulerChoice,
        options: &ExperimentOptions,
    ) -> Result<ExperimentOutcome> {
        match scheduler {
            SchedulerChoice::Default => Ok(self.run_with(Fair::default(), options).0),
            SchedulerChoice::Policy(name) => {
                let knowledge = match options.knowledge {
                    KnowledgeChoice::None => None,
                    KnowledgeChoice::Cold => Some(SimulatedKnowledge::default()),
                    KnowledgeChoice::Warm => self.taught(name, options)?,
                };
                Ok(self.run_policy(name, options, knowledge)?.0)
            }
        }
    }

    /// What runs with other seeds teach, one after another.
    fn taught(
        &self,
        name: policy::Name,
        options: &ExperimentOptions,
    ) -> Result<Option<SimulatedKnowledge>> {
        let mut knowledge = Some(SimulatedKnowledge::default());
        for run in 1..=u64::from(options.warm_runs) {
            let options = ExperimentOptions {
                seed: options.seed.wrapping_add(run * OTHER_SEED),
                record: false,
                ..*options
            };
            knowledge = self.run_policy(name, &options, knowledge)?.1;
            knowledge = knowledge.map(SimulatedKnowledge::for_another_run);
        }
        Ok(knowledge)
    }

    /// What a model says of each phase on this machine, by core type.
    fn said_by(&self, learnt: &UnseenEstimates) -> Vec<Vec<Option<LearntEstimate>>> {
        let of_load = |program: &String| learnt.of(program);
        self.programs_of_loads.iter().map(of_load).collect()
    }

    fn run_policy(
        &self,
        name: policy::Name,
        options: &ExperimentOptions,
        knowledge: Option<SimulatedKnowledge>,
    ) -> Result<(ExperimentOutcome, Option<SimulatedKnowledge>)> {
        let topology = &self.machine.topology;
        let needs_model = name.knows(policy::Knows::NeedsModel);
        let error = match needs_model && !(options.sensor && name.knows(policy::Knows::Energy)) {
            true => options.model_error.or(Some(MODEL_ERROR)),
            false => options
                .model_error
                .filter(|_| name.knows(policy::Knows::Model)),
        };
        let seed = options.seed;
        let learnt = options.learnt.map(|learnt| self.said_by(learnt));
        let learnt = learnt.unwrap_or_default();
        let model = error.map(|error| SimulatedModel::new(error, seed, learnt));
        let mut agent = Agent::new(topology.clone(), name, name.build(options.settings));
        agent.saves = options.saving.is_some();
        agent.interference.set_limits(options.settings.limits);
        let recording = options.record.then(|| {
            MemoryRecording::new(Begin {
                version: env!("CARGO_PKG_VERSION").into(),
                date: String::new(),
                kernel: "simulated".into(),
                cpu: self.machine.name.clone(),
                topology: topology.clone(),
                chosen: Chosen::new(name, &options.settings),
                kept: false,
            })
        });
        let asked: &[Meaning] = match options.caches {
            None => &[],
            Some(CacheEvents::Misses) => &[Meaning::LlcMisses],
            Some(CacheEvents::References) => &[Meaning::LlcMisses, Meaning::LlcReferences],
        };
        let asked: Vec<Event> = asked.iter().copied().map(Event::from).collect();
        let cores = &self.machine.cores;
        let needs = |core_type: usize| cores[core_type].model_counts.clone();
        let has_sensor = options.sensor || options.saving == Some(SimulatedSaving::Measured);
        let counted = CountedFor {
            model: model.is_some().then_some(&needs as _),
            asked: &asked,
            partition: options.partition,
            learns: false,
            energy: has_sensor,
            ..CountedFor::policy(agent.policy(), &self.machine.topology)
        };
        let sample = match counted.anything() {
            true => options.sample,
            false => Duration::ZERO,
        };
        let events = SimulatedEvents::plan(&self.machine, &counted);
        let mut told = Told::new(model, events, recording);
        let before = knowledge.as_ref().map_or(0, SimulatedKnowledge::unlike);
        told.knowledge = knowledge;
        told.has_sensor = has_sensor;
        told.caches = options.caches.map(|_| CacheTruth::default());
        if options.partition {
            agent.caches.follow_processes();
            told.partition = Some(SimulatedPartition::new(topology.largest_llc()));
        }
        let order = self.order(options);
        for (job, &member) in order.iter().enumerate() {
            let (program, of) = &self.members[member];
            if let Some(goal) = of.goal {
                let alone = program.instructions() / self.alone[member].0;
                told.goals.add(job, of.to_string(), goal, alone);
            }
        }
        let hetero = Hetero::new(&self.machine, options.slice, sample, Some(agent), told)?;
        let (mut outcome, hetero) = self.run_with(hetero, options);
        let end = hetero.end().with_context(|| format!("policy {name}"))?;
        outcome.actions = (end.applied.applied, end.applied.stale);
        outcome.goals = end.goals;
        outcome.recorded = end.recorded;
        let unlike = end.knowledge.as_ref().map_or(0, SimulatedKnowledge::unlike);
        outcome.unlike = unlike - before;
        outcome.caches = end.caches.map(CacheTruth::end);
        Ok((outcome, end.knowledge))
    }

    /// Members in the order in which they start.
    fn order(&self, options: &ExperimentOptions) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.members.len()).collect();
        shuffle(&mut order, options.seed);
        order
    }

    fn run_with<S: scheduler::SimulatedScheduler>(
        &self,
        scheduler: S,
        options: &ExperimentOptions,
    ) -> (ExperimentOutcome, S) {
        let kernel = SimulatedKernel::new(self.machine.clone(), self.loads.clone(), options.seed);
        let mut sim = Sim::new(kernel, scheduler);
        let order = self.order(options);
        // Jobs stand in the order in which they start; `places` in that of the mix.
        let mut places = vec![0; order.len()];
        for (job, &member) in order.iter().enumerate() {
            places[member] = job;
        }
        let job = |program: &Rc<Compiled>| Job::new(program.clone(), Vec::new(), BEGIN_NS);
        let members = order.iter().map(|&member| &self.members[member]);
        let jobs = members.map(|(program, member)| (job(program), member.threads));
        match self
            .starters
            .as_ref()
            .filter(|_| sim.scheduler.has_starters())
        {
            Some(starters) => sim.start_by(job(starters), jobs),
            None => {
                for ((job, threads), &member) in jobs.zip(&order) {
                    let cpus = self.confined.get(member).cloned().flatten();
                    let affinity = cpus.map_or(ANYWHERE, |cpus| {
                        sim.kernel.affinities.push(cpus);
                        sim.kernel.affinities.len() - 1
                    });
                    sim.start(job, threads, affinity);
                }
            }
        }
        let (runs, seconds) = match options.until {
            Until::Runs(runs) => (runs, self.patience() * runs as f64),
            Until::Seconds(seconds) => (usize::MAX, seconds),
            Until::Ended(runs) => {
                sim.runs = Some(runs);
                (runs, self.patience() * runs as f64)
            }
        };
        let mut ended = vec![0; order.len()];
        let (mut seen, mut left) = (0, order.len());
        sim.run(BEGIN_NS + (seconds * 1e9) as u64, |completions| {
            for completion in &completions[seen..] {
                ended[completion.job] += 1;
                left -= usize::from(ended[completion.job] == runs);
            }
            seen = completions.len();
            left == 0
        });
        for cpu in 0..self.machine.cpus() as u32 {
            sim.kernel.update_current(cpu);
        }
        let elapsed = (sim.kernel.now - BEGIN_NS) as f64 / 1e9;
        let mut took = vec![Vec::new(); order.len()];
        for run in &sim.completions {
            took[run.job].push(run.took as f64 / 1e9);
        }
        let alone = self.alone.iter().zip(&self.alone_j);
        let times = self.members.iter().zip(alone).zip(&places);
        let times = times.map(|(((program, member), (&(alone, slow), joules)), &job)| {
            let took = &took[job];
            let runs = sim.work_of(job).max(1.0) / program.instructions();
            let by_work = || elapsed / runs;
            let energy = self.machine.energy.as_ref().map(|_| RunEnergy {
                alone: joules.0,
                slow: joules.1,
                scheduled: sim.nj_of(job) / 1e9 / runs,
            });
            let by_runs = !matches!(options.until, Until::Seconds(_));
            let mean = geometric_mean(took.iter().copied()).filter(|_| by_runs);
            Times {
                program: member.to_string(),
                alone,
                slow,
                scheduled: mean.unwrap_or_else(by_work),
                runs: took.len(),
                times: took.clone(),
                frames: Some(sim.kernel.frames[job])
                    .filter(|frames| frames.done > 0)
                    .map(|frames| (frames.done, frames.late)),
                energy,
            }
        });
        let times: Vec<Times> = times.collect();
        let metrics = ScheduleMetrics::of(&times);
        let energy = self.machine.energy.as_ref().map(|_| {
            let work = self.members.iter().zip(&self.alone).zip(&places);
            let work = work.map(|(((program, _), (alone, _)), &job)| {
                alone * sim.work_of(job) / program.instructions()
            });
            let jobs = 0..order.len();
            let threads = (0..sim.kernel.jobs.len()).map(|job| sim.nj_of(job));
            let all = threads.sum::<f64>() + sim.kernel.shared_nj();
            let totals = MixTotals {
                joules: all / 1e9,
                idle_watts: sim.kernel.idle_watts(),
                seconds: elapsed,
                instructions: jobs.map(|job| sim.work_of(job)).sum(),
                work: work.sum(),
            };
            let each = times.iter().filter_map(Times::energy_delay);
            MixEnergy::of(&totals, each.sum::<f64>() / times.len().max(1) as f64)
        });
        let busy: u64 = sim.kernel.cpus.iter().map(|cpu| cpu.busy_ns).sum();
        let outcome = ExperimentOutcome {
            metrics,
            energy,
            times,
            migrations: sim.moves() as f64 / elapsed,
            seconds: elapsed,
            events: sim.kernel.events.pushed(),
            actions: (0, 0),
            goals: Vec::new(),
            recorded: Vec::new(),
            unlike: 0,
            caches: None,
            busy: busy as f64 / 1e9 / elapsed / self.machine.cpus() as f64,
        };
        (outcome, sim.scheduler)
    }

    /// How long the longest program may take, s.
    fn patience(&self) -> f64 {
        let threads: u32 = self.members.iter().map(|(_, member)| member.threads).sum();
        let crowd = (f64::from(threads) / self.machine.cpus() as f64).max(1.0);
        let longest = self.alone.iter().map(|&(_, slow)| slow).fold(0.0, f64::max);
        PATIENCE * crowd * longest
    }
}

/// Puts them in an order that follows from the seed.
pub(crate) fn shuffle(order: &mut [usize], seed: u64) {
    let mut rng = Pcg64Mcg::seed_from_u64(seed ^ 0x5eed);
    for last in (1..order.len()).rev() {
        order.swap(last, (rng.next_u64() % (last as u64 + 1)) as usize);
    }
}
