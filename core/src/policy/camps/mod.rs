// SPDX-License-Identifier: GPL-2.0-or-later
//! `camps`: contention-aware fair scheduling (Garcia-Garcia et al., "Contention-Aware Fair
//! Scheduling for Asymmetric Single-ISA Multicore Systems", 2018).
//!
//! Each thread's slowdown, by [`crate::slowdown`], goes to the BPF half, which charges its progress
//! with it (Eq. 3, and TLP scaling). Threads ahead on fast cores change places with threads behind
//! on slow ones ([`crate::policy::tools::swap`]) once they are `amp_threshold` apart, by what that is worth to them and
//! costs those that they disturb ([`worth`], in place of Algorithm 1). [`nwc`] makes for low
//! contention where it does not occur.
//!
//! With three or more core types, slowdown is relative to the fastest, and a thread may change places
//! with any on a slower type.

mod aggressiveness;
pub mod fairness;
pub mod nwc;
mod pairing;
mod past;
mod sensitivity;
mod sharing;
mod threads;
pub mod worth;

use std::time::Duration;

use super::name::{About, Knows};
use super::reason::{Measure, Reasons};
use super::tools::balance::balance;
use super::tools::progress::{Progress, patience_ns};
use super::tools::swap::{PlannedSwaps, SwapCandidate};
use super::tools::threshold::Threshold;
use super::tools::{LOOK, is_contested, remembers};
use super::{Action, Insight, Policy, PolicyTally, Reason, Seen, Snapshot};
use crate::mechanism::Mechanism;
use crate::pmu::Meaning;
use crate::pmu::sample::Sample;
use crate::slowdown::history::THREAD_ENTRIES;
use crate::slowdown::{History, Thresholds};
use crate::table::{Task, TaskId, TaskState};
use crate::topology::{MAX_CORE_TYPES, Topology};
use fairness::Fairness;
use nwc::{Nwc, NwcRules, Wish};
use pairing::{Pairing, SharedPlace};
use threads::ThreadEstimators;
use worth::{Forecast, Worths};

/// What users are told.
pub(super) const ABOUT: About = About {
    name: "camps",
    help: "Even out progress, aware of contention for caches and memory",
    knows: &[Knows::Fairness],
    build: |settings| {
        let works = |part| !settings.without.contains(&part);
        let options = CampsOptions::default();
        Box::new(Camps::new(CampsOptions {
            migration_interval: settings.swap_interval,
            fairness: settings.fairness,
            limits: settings.limits,
            nwc: options.nwc.filter(|_| works(Mechanism::Nwc)),
            escape: options.escape.filter(|_| works(Mechanism::Escape)),
            entries: match works(Mechanism::History) {
                true => options.entries,
                false => 0,
            },
        }))
    },
};

/// The fastest core type.
const BIG: usize = 0;

/// [`CampsOptions::fairness`] unless it is told otherwise. The paper's is 100; a little less is about as fair, and faster
/// than the kernel's scheduler (`docs/decisions/fairness.md`).
pub const FAIRNESS: u8 = 80;

/// Threads ahead of the mean by so many thresholds do not trigger NWC mode.
const FAR_AHEAD: i64 = 2;

/// Threads so many thresholds apart change places even if neither gains (Algorithm 1).
const ESCAPE: i64 = 2;

/// Threads of one core type change places for the sake of their siblings (SMT) if that is worth so many thresholds: as between types
/// that hardly differ.
const PAIRED: f64 = LEAST_PART;

/// A core type counts as slower by so much at least.
const LEAST_PART: f64 = 0.1;

/// How `camps` is to behave.
#[derive(Clone, Copy, Debug)]
pub struct CampsOptions {
    /// Wanted time between migrations on the whole machine (section 4.3: 400 ms).
    pub migration_interval: Duration,
    /// When contention is low, as calibrated; `None` is by the clock.
    pub limits: Option<Thresholds>,
    /// NWC mode; `None` is never.
    pub nwc: Option<NwcRules>,
    /// Threads so many thresholds apart change places even if neither gains (Algorithm 1: 2); `None`
    /// is never.
    pub escape: Option<i64>,
    /// Entries of a thread's history table, L1.
    pub entries: usize,
    /// Percent of the progress of the thread with the highest SF to which the one with the lowest
    /// may fall back: 100 is even progress, 0 throughput alone. See [`fairness`].
    pub fairness: u8,
}

impl Default for CampsOptions {
    fn default() -> Self {
        Self {
            migration_interval: Duration::from_millis(400),
            limits: None,
            nwc: Some(NwcRules::default()),
            escape: Some(ESCAPE),
            entries: THREAD_ENTRIES,
            fairness: FAIRNESS,
        }
    }
}

/// See the module.
pub struct Camps {
    threads: ThreadEstimators,
    progress: Progress,
    threshold: Threshold,
    escape: Option<i64>,
    forced_swaps: u64,
    nwc: Option<Nwc>,
    fairness: Option<Fairness>,
    looked_at_ns: Option<u64>,
    pairing: Pairing,
    reasons: Reasons,
    runners: Vec<SwapCandidate>,
    forecasts: Vec<Forecast>,
    worths: Worths,
    wishes: Vec<Wish>,
    /// What NWC mode sees, kept for its memory.
    nwc_threads: Vec<nwc::NwcThread>,
    busy_cpus: Vec<nwc::BusyCpu>,
}

impl Camps {
    /// Makes the policy.
    pub fn new(options: CampsOptions) -> Self {
        Self {
            threads: ThreadEstimators::new(options.limits, options.entries),
            progress: Progress::default(),
            threshold: Threshold::new(options.migration_interval),
            escape: options.escape,
            forced_swaps: 0,
            nwc: options.nwc.map(Nwc::new),
            fairness: Fairness::new(options.fairness),
            looked_at_ns: None,
            pairing: Pairing::new(options.migration_interval),
            reasons: Reasons::default(),
            runners: Vec::new(),
            forecasts: Vec::new(),
            worths: Worths::default(),
            wishes: Vec::new(),
            nwc_threads: Vec::new(),
            busy_cpus: Vec::new(),
        }
    }

    /// NWC mode, unless it is switched off.
    pub fn nwc(&self) -> Option<&Nwc> {
        self.nwc.as_ref()
    }

    /// What is known of each thread.
    pub fn threads(&self) -> &ThreadEstimators {
        &self.threads
    }

    /// `amp_threshold`, ns of progress.
    pub fn amp_threshold(&self) -> i64 {
        self.threshold.ns()
    }

    /// Appends swaps by what they are worth, and says how many.
    fn swap(&mut self, snapshot: &Snapshot, actions: &mut Vec<Action>) -> u32 {
        let topology = snapshot.topology;
        let (threads, worths) = (&self.threads, &mut self.worths);
        let threshold = self.threshold.ns();
        // What two threads without contention gain that lag by the threshold.
        let capacity = |on: usize| f64::from(topology.types[on].capacity.max(1));
        let least = |fast, slow| {
            let part = 1.0 - capacity(slow) / capacity(fast);
            threshold as f64 * part.max(LEAST_PART)
        };
        let mut planned = PlannedSwaps::default();
        worths.look(topology, threads.load());
        while planned.has_room() {
            self.forecasts.clear();
            let forecast = |runner| threads.forecast(topology, runner, worths);
            self.forecasts.extend(self.runners.iter().map(forecast));
            let (runners, forecasts) = (&self.runners, &self.forecasts);
            worths.refill(topology, runners, forecasts, threads.shared(), threshold);
            let gain = |runner, on, and_not| worths.gain(runner, on, and_not);
            let runners = &mut self.runners;
            let Some(pair) = planned.add(runners, topology.types.len(), gain, least, actions)
            else {
                break;
            };
            // The next one is planned with this one done.
            worths.swap(topology, runners, &self.forecasts, pair);
        }
        if planned.swaps() == 0
            && let Some(escape) = self.escape
        {
            // Where each single swap makes things worse, two may make them better.
            let runners = &self.runners;
            let gain = |runner: usize, _, _| -runners[runner].progress as f64;
            let least = |_, _| escape.saturating_mul(threshold) as f64;
            planned.add(runners, topology.types.len(), gain, least, actions);
            self.forced_swaps += u64::from(planned.swaps());
        }
        planned.swaps()
    }

    /// Appends the exchange of two threads of one core type that is worth most by which threads share a core then. After
    /// [`Self::swap`], which knows what the runners' speeds are worth.
    fn pair(&mut self, snapshot: &Snapshot, actions: &mut Vec<Action>) {
        let (topology, now_ns) = (snapshot.topology, snapshot.now_ns);
        if !topology.smt || !self.pairing.is_due(now_ns) {
            return;
        }
        let (load, worths) = (self.threads.load(), &self.worths);
        let has_siblings: [bool; MAX_CORE_TYPES] =
            std::array::from_fn(|core_type| topology.has_siblings(core_type));
        let place = |(index, (runner, forecast)): (usize, (&SwapCandidate, &Forecast))| {
            let (task, cpu) = (snapshot.task(runner.seen.task)?, topology.cpu(runner.cpu)?);
            let runs = task.state == TaskState::Running && has_siblings[cpu.core_type];
            runs.then(|| SharedPlace {
                task: task.id,
                runner: index,
                core_type: cpu.core_type,
                core: cpu.core,
                cpu: cpu.id,
                shared: load.is_shared(topology, cpu.id),
                free: !runner.resting,
                computing: forecast.computing,
                value: worths.unshared(index, forecast),
            })
        };
        let places = self.runners.iter().zip(&self.forecasts).enumerate();
        let places = places.filter_map(place);
        let least = PAIRED * self.threshold.ns() as f64;
        if let Some(pair) = self.pairing.exchange(places, least, now_ns) {
            let [a, b] = pair.map(|index| &self.runners[index]);
            actions.push(Action::Swap([(a.seen, b.place), (b.seen, a.place)]));
            for runner in [a, b] {
                self.reasons.note(runner.seen.task, Reason::Siblings);
            }
        }
    }

    /// Looks whether NWC mode is due, or still; appends the swap that it wants.
    fn step_nwc(&mut self, snapshot: &Snapshot, actions: &mut Vec<Action>) -> bool {
        let Some(nwc) = &mut self.nwc else {
            return false;
        };
        let mean = mean_progress(&self.runners);
        let far = FAR_AHEAD * self.threshold.ns();
        let intervals = nwc.rules().intervals;
        self.nwc_threads.clear();
        self.nwc_threads.extend(self.runners.iter().map(|runner| {
            let known = self.threads.known(runner.seen.task);
            let estimator = known.map(|(estimator, _)| estimator);
            let (total_hits, total_learned) = estimator.map_or((0, 0), |e| e.totals());
            nwc::NwcThread {
                task: runner.seen.task,
                cpu: runner.cpu,
                on_big: runner.place == BIG,
                may_move: runner.allowed & 1 << BIG != 0,
                intervals: estimator.map_or(0, |e| e.intervals()),
                hit_rate: estimator.map_or(1.0, |e| e.hit_rate(intervals)),
                learned: estimator.map_or(0, |e| e.learned(intervals)),
                total_hits,
                total_learned,
                // Nor is one that spins worth a search for its slowdown.
                far_ahead: runner.progress - mean > far || runner.spinning,
                btr: known.map_or(0.0, |(_, btr)| btr),
            }
        }));
        let busy_cpu = |task: &Task| {
            let (cpu, btr) = self.threads.runs(task)?;
            let cpu = snapshot.topology.cpu(cpu)?;
            Some(nwc::BusyCpu {
                cpu: cpu.id,
                llc: cpu.llc,
                core: cpu.core,
                // As harmful as what is learnt goes by.
                btr: self.threads.load().on(cpu.id).unwrap_or(btr),
                // A thread that wants little of a CPU is taken to be waited for.
                exempt: !self.progress.wants_much(task),
            })
        };
        self.busy_cpus.clear();
        self.busy_cpus
            .extend(snapshot.tasks.iter().filter_map(busy_cpu));
        nwc::each_cpu_once(&mut self.busy_cpus);
        let look = nwc::NwcView {
            now_ns: snapshot.now_ns,
            threads: &self.nwc_threads,
            cpus: &self.busy_cpus,
            limits: self.threads.limits(),
            shared: snapshot.topology.fastest_share_a_cache(),
        };
        nwc.step(&look, &mut self.wishes);
        for wish in self.wishes.drain(..) {
            match wish {
                Wish::SwapIn { thread, partner } => {
                    let Some(thread) = snapshot.task(thread) else {
                        continue;
                    };
                    let place = self.progress.place(thread);
                    let partner = partner
                        .and_then(|partner| snapshot.task(partner))
                        .filter(|partner| partner.may_use(place));
                    self.reasons.note(thread.id, Reason::Undisturbed);
                    if let Some(partner) = partner {
                        self.reasons.note(partner.id, Reason::MadeRoom);
                    }
                    actions.push(match partner {
                        Some(partner) => {
                            Action::Swap([(Seen::from(thread), BIG), (Seen::from(partner), place)])
                        }
                        None => Action::Hint(thread.into(), Some(BIG)),
                    });
                }
                Wish::Park(cpu, time) => actions.push(Action::Park(cpu, time)),
            }
        }
        nwc.thread().is_some()
    }
}

impl Policy for Camps {
    fn events(&self) -> Option<&'static [Meaning]> {
        // Phases by loads and branches (section 4.2), contention by bus transfers.
        Some(&[Meaning::LlcMisses, Meaning::Loads, Meaning::Branches])
    }

    fn events_of_siblings(&self) -> &'static [Meaning] {
        &[Meaning::StalledMem]
    }

    fn observe(&mut self, sample: &Sample) {
        self.threads.take(sample);
    }

    fn interval(&self) -> Option<Duration> {
        Some(LOOK)
    }

    fn decide(&mut self, snapshot: &Snapshot, actions: &mut Vec<Action>) {
        self.reasons.begin();
        let nr_types = snapshot.topology.types.len();
        self.threads.look(snapshot, actions);
        if nr_types < 2 {
            return;
        }
        let threshold = self.threshold.ns();
        let average = |id| self.threads.estimator(id).map_or(1.0, |e| e.average());
        self.progress
            .update(snapshot, |id| patience_ns(threshold, average(id)));
        if let Some(nwc) = &mut self.nwc {
            nwc.retain(|id| self.threads.estimator(id).is_some());
        }
        self.runners.clear();
        self.progress.runners(snapshot, &mut self.runners);
        let elapsed = snapshot.now_ns - self.looked_at_ns.unwrap_or(snapshot.now_ns);
        self.looked_at_ns = Some(snapshot.now_ns);
        if let Some(fairness) = &mut self.fairness {
            let (progress, threads) = (&self.progress, &self.threads);
            fairness.apply(snapshot, elapsed, progress, threads, &mut self.runners);
        }

        self.progress.release(snapshot, actions);
        let first = actions.len();
        if self.step_nwc(snapshot, actions) {
            self.progress.note(&actions[first..], snapshot.now_ns);
            return;
        }
        let contested = is_contested(&self.runners);
        balance(snapshot, &self.progress, &mut self.runners, actions);
        self.reasons.balanced(&actions[first..]);
        let mut swaps = 0;
        if actions.len() == first {
            self.progress.settled(&mut self.runners);
            for runner in &mut self.runners {
                runner.resting = !self.progress.is_rested(runner, snapshot.now_ns);
            }
            swaps = self.swap(snapshot, actions);
            self.reasons
                .compared(&actions[first..], Measure::Progress, &self.runners);
            if swaps == 0 {
                self.pair(snapshot, actions);
            }
        }
        if contested {
            self.threshold.note(elapsed, swaps);
        }
        self.progress.note(&actions[first..], snapshot.now_ns);
    }

    fn tally(&self) -> PolicyTally {
        let (phase_hits, phase_misses) = self.threads.hits_and_misses();
        let (samples_learned, phases_learned) = self.threads.learned();
        let nwc = self.nwc.as_ref();
        PolicyTally {
            phase_hits,
            phase_misses,
            samples_learned,
            phases_learned,
            forced_swaps: self.forced_swaps,
            nwc_episodes: nwc.map_or(0, Nwc::episodes),
            nwc_learned: nwc.map_or(0, Nwc::learned),
            nwc_ns: nwc.map_or(0, Nwc::spent_ns),
        }
    }

    fn reason(&self, task: TaskId) -> Option<Reason> {
        self.reasons.of(task)
    }

    fn insight(&self, task: &Task, topology: &Topology) -> Insight {
        Insight {
            takes_part: Some(self.progress.takes_part(task)),
            progress_ns: self.progress.of(task),
            ..self.threads.insight(task.id, topology)
        }
    }

    fn history(&self, task: TaskId) -> Option<&History> {
        Some(self.threads.estimator(task)?.history())
    }

    remembers!(threads);

    fn set_fairness(&mut self, percent: u8) -> bool {
        self.fairness = Fairness::new(percent);
        true
    }
}

fn mean_progress(runners: &[SwapCandidate]) -> i64 {
    let sum: i128 = runners
        .iter()
        .map(|runner| i128::from(runner.progress))
        .sum();
    (sum / runners.len().max(1) as i128) as i64
}

#[cfg(test)]
mod tests;
