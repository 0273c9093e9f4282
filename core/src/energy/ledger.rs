// SPDX-License-Identifier: GPL-2.0-or-later
//! Whose joules they are: those of each interval go to threads by what the model makes of their work, and to
//! idle CPUs and the rest of the package apart. All of them together are what sensors have counted.

mod known;
mod own;
mod told;

use rustc_hash::FxHashMap;

use super::model::{CoreWork, EventRates, IdleWork, OWNERS, PowerModel};
use super::reading::EnergyReading;
use super::sharing::CoreShares;
use super::thrift::PlaceCosts;
use crate::pmu::sample::Sample;
use crate::table::{Task, TaskId};
use crate::topology::{MAX_CORE_TYPES, Topology};
use known::{Known, shared};
use own::{Owner, own_seconds};

/// An interval is at least so long, ns: reading sensors costs, and run time is charged by ticks.
pub const STEP_NS: u64 = 100_000_000;

/// One that was longer says nothing of when: the machine slept, or the agent stood still.
const LONGEST_NS: u64 = 5_000_000_000;

/// How far the mean rates of a core type go to those of each sample.
const MEAN_STEP: f32 = 0.05;

/// Policies are told watts when the model has seen so many seconds.
const LEARNT_AFTER: f64 = 10.0;

/// Joules of the processors since the first reading, by what took them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EnergySums {
    /// All of it: the others add up to this.
    pub total: f64,
    /// Of threads, by core type.
    pub threads: [f64; MAX_CORE_TYPES],
    /// Of what ran and is not in the table of tasks: threads too young for it.
    pub untold: f64,
    /// Of idle CPUs.
    pub idle: f64,
    /// Of what a package has beside its cores.
    pub uncore: f64,
}

/// A thread's joules.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThreadEnergy {
    /// Since it was first seen, by core type.
    pub joules: [f64; MAX_CORE_TYPES],
    /// Watts while it runs, by core type, and their standard error; `None` where it has not run.
    pub watts: [Option<(f64, f64)>; MAX_CORE_TYPES],
}

/// See the module.
#[derive(Debug)]
pub struct EnergyLedger {
    model: PowerModel,
    before: Option<(u64, EnergyReading)>,
    /// By slot.
    threads: Vec<Option<Known>>,
    processes: FxHashMap<u32, f64>,
    means: [Option<EventRates>; MAX_CORE_TYPES],
    shares: CoreShares,
    owners: [Option<Owner>; OWNERS],
    sums: EnergySums,
}

/// Of an interval.
struct Interval {
    threads: [CoreWork; MAX_CORE_TYPES],
    untold: [CoreWork; MAX_CORE_TYPES],
    idle: IdleWork,
}

impl Default for EnergyLedger {
    fn default() -> Self {
        Self {
            model: PowerModel::default(),
            before: None,
            threads: Vec::new(),
            processes: FxHashMap::default(),
            means: [None; MAX_CORE_TYPES],
            shares: CoreShares::default(),
            owners: [None; OWNERS],
            sums: EnergySums::default(),
        }
    }
}

impl EnergyLedger {
    /// Whether sensors have been read.
    pub fn is_on(&self) -> bool {
        self.before.is_some()
    }

    /// Joules so far; `None` before the second reading.
    pub fn sums(&self) -> Option<EnergySums> {
        (self.sums.total > 0.0).then_some(self.sums)
    }

    /// Joules of a process's threads since it was first seen, those that have ended among them.
    pub fn process(&self, tgid: u32) -> Option<f64> {
        self.processes.get(&tgid).copied()
    }

    /// The same of all that are known, by their ids.
    pub fn processes(&self) -> impl Iterator<Item = (u32, f64)> {
        self.processes.iter().map(|(&tgid, &joules)| (tgid, joules))
    }

    /// Joules of a thread in all; what [`Self::thread`] has of it for less.
    pub fn joules(&self, id: TaskId) -> Option<f64> {
        self.find(id).map(|known| known.joules.iter().sum())
    }

    /// Watts of a thread while it runs on this core type, as [`Self::thread`] has them without their error, for less;
    /// `None` while the model has seen little.
    pub fn watts(&self, id: TaskId, core_type: usize) -> Option<f64> {
        let known = self
            .find(id)
            .filter(|_| self.model.seconds() >= LEARNT_AFTER)?;
        Some(known.watts(core_type, &self.model)?.0)
    }

    /// The same and its standard error: what it may well be.
    pub fn sure_watts(&self, id: TaskId, core_type: usize) -> Option<f64> {
        let known = self
            .find(id)
            .filter(|_| self.model.seconds() >= LEARNT_AFTER)?;
        let (watts, work) = known.watts(core_type, &self.model)?;
        let owner = known.own[core_type].map(usize::from);
        Some(watts + self.model.error(core_type, &work, owner))
    }

    /// What a usual thread takes on a core type, W, and what it does there in a second.
    fn usual(&self, core_type: usize) -> Option<(f64, CoreWork)> {
        let rates = self.means[core_type].as_ref()?;
        let work = self.model.work(core_type, 1.0, rates);
        Some((self.model.joules(core_type, &work), work))
    }

    /// The same of the nearest core type on which anything has run, and which that is.
    fn usual_near(&self, core_type: usize, nr_types: usize) -> Option<(usize, f64, CoreWork)> {
        let order = 0..nr_types.min(MAX_CORE_TYPES);
        let nearest = order.min_by_key(|&other| {
            let is_seen = self.usual(other).is_some_and(|(watts, _)| watts > 0.0);
            (!is_seen, other.abs_diff(core_type))
        })?;
        let (watts, work) = self.usual(nearest)?;
        Some((nearest, watts, work))
    }

    /// What places cost, on a machine of so many core types; `None` while the model has seen little.
    pub fn place_costs(&self, nr_types: usize) -> Option<PlaceCosts> {
        if self.model.seconds() < LEARNT_AFTER {
            return None;
        }
        let mut costs = PlaceCosts {
            awake: self.model.awake_watts(),
            ..PlaceCosts::default()
        };
        let nr_types = nr_types.min(MAX_CORE_TYPES);
        let slowest = nr_types.checked_sub(1)?;
        let seen = |core_type: usize| {
            let (watts, work) = self.usual(core_type)?;
            let watts = watts - self.model.idle_watts(core_type);
            (watts > 0.0).then_some((watts, work))
        };
        for core_type in 0..nr_types {
            let order = (0..nr_types).map(|other| (other.abs_diff(core_type), other));
            let nearest = order.filter_map(|(far, other)| Some((far, other, seen(other)?)));
            let (_, other, (watts, work)) = nearest.min_by_key(|&(far, ..)| far)?;
            costs.unseen |= u8::from(other != core_type) << core_type;
            costs.cores[core_type] = match seen(slowest) {
                // Where nothing has run yet.
                _ if other != core_type => self.model.as_on(other, core_type, watts),
                Some((_, slow)) if core_type < slowest => {
                    let (fast, slow) = ((core_type, &work), (slowest, &slow));
                    (watts, self.model.difference_error(fast, slow))
                }
                _ => (watts, 0.0),
            };
        }
        Some(costs)
    }

    /// What an idle CPU of a core type takes, W.
    pub fn idle_watts(&self, core_type: usize) -> f64 {
        self.model.idle_watts(core_type)
    }

    /// What is known of a thread.
    pub fn thread(&self, id: TaskId) -> Option<ThreadEnergy> {
        let known = self.find(id)?;
        let mut energy = ThreadEnergy {
            joules: known.joules,
            ..ThreadEnergy::default()
        };
        for (core_type, told) in energy.watts.iter_mut().enumerate() {
            let owner = known.own[core_type].map(usize::from);
            *told = known
                .watts(core_type, &self.model)
                .map(|(watts, work)| (watts, self.model.error(core_type, &work, owner)));
        }
        Some(energy)
    }

    fn find(&self, id: TaskId) -> Option<&Known> {
        known::find(&self.threads, id)
    }

    /// Sensors and CPUs begin to count anew.
    pub fn rebase(&mut self) {
        self.before = None;
    }

    /// Takes note of what a thread did.
    pub fn observe(&mut self, sample: &Sample) {
        if !self.is_on() || sample.run_ns == 0 || sample.core_type >= MAX_CORE_TYPES {
            return;
        }
        let rates = EventRates::of(&sample.counts, sample.run_ns);
        self.model.observe(sample.core_type, &rates);
        let mean = self.means[sample.core_type].get_or_insert(rates);
        *mean = mean.mixed(&rates, MEAN_STEP);
        let known = self.threads.get_mut(sample.task.slot as usize);
        if let Some(Some(known)) = known
            && known.generation == sample.task.generation
        {
            let (fresh, ns) = &mut known.fresh[sample.core_type];
            *ns += sample.run_ns;
            *fresh = fresh.mixed(&rates, sample.run_ns as f32 / *ns as f32);
        }
    }

    /// Takes in what sensors say at `at_ns`, with the task table of that moment, in ascending order of ids.
    /// An interval shorter than [`STEP_NS`] goes on.
    pub fn update(
        &mut self,
        at_ns: u64,
        reading: &EnergyReading,
        tasks: &[Task],
        topology: &Topology,
    ) {
        let Some((since, before)) = self.before else {
            let types = topology.types.iter();
            self.model.set_capacities(types.map(|kind| kind.capacity));
            self.before = Some((at_ns, *reading));
            self.follow(tasks);
            return;
        };
        let elapsed = at_ns.saturating_sub(since);
        if elapsed < STEP_NS {
            return;
        }
        self.before = Some((at_ns, *reading));
        self.follow(tasks);
        let nr_types = topology.types.len().min(MAX_CORE_TYPES);
        let grown = reading.since(&before);
        let Some(total) = grown.total_of(nr_types) else {
            return;
        };
        if elapsed > LONGEST_NS {
            return;
        }
        self.share_cores(elapsed, tasks, topology);
        let changes = self.changes(tasks);
        self.own(at_ns, elapsed, tasks);
        let interval = self.interval(elapsed, &grown.busy_ns, tasks, topology);
        let whole = |t: usize| (t, add(&interval.threads[t], &interval.untold[t]));
        let idle = &interval.idle;
        // The finest sensors that there are: each type's cores, all cores, the package.
        let each = grown.by_type[..nr_types].iter().all(Option::is_some);
        let uncore = !each && grown.cores.is_none();
        let parts = (0..if each { nr_types } else { 1 }).map(|part| match each {
            true => (part..part + 1, grown.by_type[part].unwrap_or_default()),
            false => (0..nr_types, grown.cores.unwrap_or(total)),
        });
        let mut rest = total;
        for (types, joules) in parts.clone() {
            rest -= joules;
            let own = own_seconds(&self.owners, &self.threads, types.clone());
            let untold = types
                .clone()
                .map(|t| self.model.typical(t, &interval.untold[t]));
            let untold: f64 = untold.sum();
            let (changed, all) = changes[types.clone()]
                .iter()
                .fold((untold, untold), |(a, b), (c, d)| (a + c, b + d));
            let steady = if all > 0.0 { 1.0 - changed / all } else { 0.0 };
            self.model
                .learn(types.map(whole), own, uncore, idle, (joules, steady));
        }
        if !uncore && grown.package.is_some() {
            // What it takes beside the cores depends on whether any runs.
            let none = std::iter::empty();
            self.model
                .learn(none, std::iter::empty(), true, idle, (rest.max(0.0), 1.0));
        }
        self.model.settle(idle.elapsed);
        for (types, joules) in parts {
            self.share(types, uncore, &interval, tasks, joules);
        }
        self.sums.uncore += rest;
        self.sums.total += total;
    }

    /// Forgets processes of which no thread is left.
    pub fn forget_the_gone(&mut self, tasks: &[Task]) {
        if self.processes.is_empty() {
            return;
        }
        let mut tgids: Vec<u32> = tasks.iter().map(|task| task.tgid).collect();
        tgids.sort_unstable();
        self.processes
            .retain(|tgid, _| tgids.binary_search(tgid).is_ok());
    }

    /// Notes how long each thread ran since it was last looked at.
    fn follow(&mut self, tasks: &[Task]) {
        for task in tasks {
            if let Some(known) = known::find_or_begin(&mut self.threads, task) {
                // What a new one ran before is not of this interval alone: that is left with what is untold.
                known.follow(task);
            }
        }
    }

    /// Notes what part of its core each thread had.
    fn share_cores(&mut self, elapsed: u64, tasks: &[Task], topology: &Topology) {
        let threads = &self.threads;
        let runs = tasks.iter().flat_map(|task| {
            let known = known::find(threads, task.id);
            let ran = known.map_or([0.0; MAX_CORE_TYPES], |known| known.ran);
            let ran = ran.into_iter().enumerate().filter(|&(_, ran)| ran > 0.0);
            ran.map(|(core_type, ran)| (task.cpu, core_type, ran))
        });
        let nr_types = topology.types.len();
        let runs = runs.filter(|&(_, core_type, _)| core_type < nr_types);
        self.shares
            .update((elapsed as f64 / 1e9) as f32, runs, topology);
        for task in tasks {
            let Some(Some(known)) = self.threads.get_mut(task.id.slot as usize) else {
                continue;
            };
            for (core_type, share) in known.share.iter_mut().enumerate().take(nr_types) {
                *share = self.shares.of(task.cpu, core_type, topology);
            }
        }
    }

    /// By core type: how much is typical of what threads did, and how much of that is other than in the interval
    /// before, in units of the model's.
    fn changes(&mut self, tasks: &[Task]) -> [(f64, f64); MAX_CORE_TYPES] {
        let mut changes = [(0.0, 0.0); MAX_CORE_TYPES];
        for task in tasks {
            let Some(Some(known)) = self.threads.get_mut(task.id.slot as usize) else {
                continue;
            };
            for (core_type, (changed, all)) in changes.iter_mut().enumerate() {
                let seconds = f64::from(known.ran[core_type]);
                let rates = known.rates[core_type].or(self.means[core_type]);
                let (Some(rates), true) = (rates, seconds > 0.0) else {
                    continue;
                };
                let work = self.model.work(core_type, 1.0, &rates);
                let now = self.model.typical(core_type, &work);
                let before = std::mem::replace(&mut known.typical[core_type], now);
                *changed += seconds * (now - before).abs().min(now);
                *all += seconds * now;
            }
        }
        changes
    }

    /// What was done since the last reading.
    fn interval(
        &self,
        elapsed: u64,
        busy_ns: &[u64; MAX_CORE_TYPES],
        tasks: &[Task],
        topology: &Topology,
    ) -> Interval {
        let none = CoreWork::default();
        let mut interval = Interval {
            threads: [none; MAX_CORE_TYPES],
            untold: [none; MAX_CORE_TYPES],
            idle: IdleWork {
                elapsed: elapsed as f64 / 1e9,
                ..IdleWork::default()
            },
        };
        let mut ran = [0.0; MAX_CORE_TYPES];
        for known in tasks.iter().filter_map(|task| self.find(task.id)) {
            for (core_type, all) in interval.threads.iter_mut().enumerate() {
                if known.ran[core_type] > 0.0 {
                    *all = add(all, &known.work(core_type, &self.model, &self.means));
                    ran[core_type] += f64::from(known.ran[core_type]);
                }
            }
        }
        let mut busiest = 0.0_f64;
        for core_type in 0..topology.types.len().min(MAX_CORE_TYPES) {
            let told = ran[core_type];
            let busy = (busy_ns[core_type] as f64 / 1e9).max(told);
            let rates = self.means[core_type].unwrap_or_default();
            let share = self.shares.mean(core_type);
            let work = self.model.work(core_type, busy - told, &rates);
            interval.untold[core_type] = shared(work, share);
            let cores = topology.cores_of(core_type) as f64 * interval.idle.elapsed;
            interval.idle.idle[core_type] = (cores - share * busy).max(0.0);
            busiest += busy;
        }
        interval.idle.awake = busiest.min(interval.idle.elapsed);
        interval
    }

    /// Shares `joules` among threads and idle CPUs of these types, and what is beside cores if `uncore`; learns
    /// how threads differ from the model.
    fn share(
        &mut self,
        types: std::ops::Range<usize>,
        uncore: bool,
        interval: &Interval,
        tasks: &[Task],
        joules: f64,
    ) {
        let model = &self.model;
        let untold = types.clone().map(|t| model.joules(t, &interval.untold[t]));
        let untold: f64 = untold.sum();
        let idle = types.clone().map(|t| model.idle_joules(t, &interval.idle));
        let idle: f64 = idle.sum();
        let uncore = match uncore {
            true => model.uncore_joules(&interval.idle),
            false => 0.0,
        };
        let mut told = 0.0;
        for known in tasks.iter().filter_map(|task| self.find(task.id)) {
            for t in types.clone().filter(|&t| known.ran[t] > 0.0) {
                told += known.joules_of(t, model, &self.means);
            }
        }
        let expected = told + untold + idle + uncore;
        if expected <= 0.0 {
            // Nothing is known yet.
            self.sums.uncore += joules;
            return;
        }
        let scale = joules / expected;
        for task in tasks {
            let Some(Some(known)) = self.threads.get_mut(task.id.slot as usize) else {
                continue;
            };
            let mut taken = 0.0;
            for t in types.clone().filter(|&t| known.ran[t] > 0.0) {
                let own = known.joules_of(t, &self.model, &self.means);
                known.joules[t] += own * scale;
                self.sums.threads[t] += own * scale;
                taken += own * scale;
            }
            if taken > 0.0 {
                *self.processes.entry(task.tgid).or_default() += taken;
            }
        }
        self.sums.untold += untold * scale;
        self.sums.idle += idle * scale;
        self.sums.uncore += uncore * scale;
    }
}

fn add(a: &CoreWork, b: &CoreWork) -> CoreWork {
    std::array::from_fn(|i| a[i] + b[i])
}

#[cfg(test)]
mod tests;
