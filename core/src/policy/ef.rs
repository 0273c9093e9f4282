// SPDX-License-Identifier: GPL-2.0-or-later
//! `ef`: the fast cores to the threads that save most energy-delay product there, after PMCTrack's
//! EF-driven scheduler (2017, section 4.2.2).
//!
//! The paper defines EF = EDP_small / EDP_big (Eq. 3), with EDP = energy / IPS (Eq. 4), and derives
//! EF = SF × E_small / E_big (Eq. 6): how much faster a thread is on a fast core, times how much of the fast
//! core's energy for the same work a slow one takes. The highest EF go to the fast cores. The paper tried
//! that by static assignment; here it follows the phases of threads, by a model's estimate in each sample.
//!
//! That is each thread's own product, which is [`Objective::Ef`]. The whole machine's, watts over the
//! square of the work done in a second, is not least by that, but mostly greater than by SF (docs/policies/ef.md): to a thread of few watts
//! it matters less what share of them it saves. So where threads' watts are known, [`Objective::Edp`] goes by what a place
//! changes of the logarithm of that product, `2 Δspeed / Σspeed - Δwatts / Σwatts`, and by SF elsewhere.
//!
//! SF is what a model says, and what is measured on both types counts beside that. Where watts are
//! known, with a model or without, threads are sent to both types now and then ([`super::tools::explore`]), for a model knows nothing
//! of what others leave of a cache: two threads that want all of the fast cores' are slow there, and take
//! more. Else none is sent anywhere to be measured. E_small / E_big is what is usual on the core types where a sensor tells watts, else
//! what a model says. Where that says nothing of a thread, the mean of the others stands in, and where it says nothing at all, 1: then SF counts,
//! and without a model of SF capacities do.
//!
//! What a thread saves is known with an error, and where all CPUs are busy P cores' watts can hardly be told from E cores': of an
//! exchange that is no matter, for it falls on both threads alike. So threads' savings are compared with their mean, and of what they
//! differ by so much is believed as is known of it ([`Spread`]). Where nothing is known of that, threads are ordered by SF, as `hsp` does it.
//!
//! With three or more core types, a type between has its part of the energies' ratio by the logarithm of
//! capacities, and two threads on any two types change places where that lowers the product.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::name::{About, Knows};
use super::reason::Measure;
use super::tools::exchange::Exchange;
use super::tools::explore::Explorer;
use super::tools::learnt::ENERGY;
use super::tools::speeds::Speeds;
use super::tools::speedup::Speedups;
use super::tools::{LOOK, remembers};
use super::{Action, Insight, Policy, Reason, Snapshot};
use crate::pmu::Meaning;
use crate::pmu::sample::{Sample, SureWatts};
use crate::table::{Task, TaskId};
use crate::topology::{MAX_CORE_TYPES, Topology};

/// What users are told.
pub(super) const ABOUT: About = About {
    name: "ef",
    help: "Least energy-delay product: the fastest cores to the threads that are most efficient there",
    knows: &[Knows::Model, Knows::NeedsModel, Knows::Energy],
    build: |settings| Box::new(Efficient::new(settings.objective)),
};

/// What fast cores are given away for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Objective {
    /// Most work: by SF.
    Throughput,
    /// Least energy times time of all threads together; by SF where their watts are not known.
    #[default]
    Edp,
    /// Least energy times time of each thread: by EF.
    Ef,
    /// Least energy of all threads together; by E_small / E_big where their watts are not known.
    Energy,
}

impl Objective {
    /// How much speed counts beside energy, and whether energy counts.
    fn exponents(self) -> (f64, f64) {
        match self {
            Self::Throughput => (1.0, 0.0),
            Self::Edp | Self::Ef => (1.0, 1.0),
            Self::Energy => (0.0, 1.0),
        }
    }
}

/// Two threads change places only if what they are ranked by is apart by this factor: less may be the
/// model's error, and they would trade places for ever.
const MARGIN: f64 = 1.05;

/// The same where it is the whole machine's product that they change: it is of many threads.
const MARGIN_OF_ALL: f64 = 1.01;

/// Logarithms are told in whole numbers: millionths.
const PER_LOG: f64 = 1e6;

/// See the module.
pub struct Efficient {
    objective: Objective,
    speedups: Speedups,
    exchange: Exchange,
    explorer: Explorer,
}

impl Efficient {
    /// One that makes the most of that.
    pub fn new(objective: Objective) -> Self {
        Self {
            objective,
            speedups: Speedups::default(),
            exchange: Exchange::by(Measure::Efficiency),
            explorer: Explorer::default(),
        }
    }
}

/// What part of the way from the slowest core type to the fastest each is, by the logarithm of
/// capacities.
fn parts(topology: &Topology) -> [f64; MAX_CORE_TYPES] {
    let slowest = topology.types.len().saturating_sub(1);
    let log = |core_type: usize| f64::from(topology.types[core_type].capacity.max(1)).ln();
    std::array::from_fn(|core_type| match core_type {
        0 => 1.0,
        of if of >= slowest => 0.0,
        of => {
            let part = (log(of) - log(slowest)) / (log(0) - log(slowest));
            if part.is_finite() {
                part.clamp(0.0, 1.0)
            } else {
                0.5
            }
        }
    })
}

/// Of what threads differ by, so much more is asked than what is known of each errs by: what is gained where it is right is to be
/// worth what is lost where it is wrong, and what threads differ by is itself known from few of them. Chosen by mixes in the
/// simulator and by `experiments/ef-optimum`: docs/decisions/edp-aim.md.
const DOUBT: f64 = 2.0;

/// A quantity that differs between threads, as far as it is known.
#[derive(Clone, Copy, Debug, Default)]
struct Spread {
    mean: f64,
    /// What they really differ by: a variance.
    variance: f64,
}

impl Spread {
    /// Of values and the variances of their errors; an infinite one is of a guess, which counts where nothing else is known.
    fn of(values: impl Iterator<Item = (f64, f64)>) -> Self {
        let (mut known, mut guessed) = ([0.0; 4], [0.0; 2]);
        for (value, variance) in values {
            match variance.is_finite() {
                true => {
                    let more = [1.0, value, value * value, variance];
                    known.iter_mut().zip(more).for_each(|(sum, of)| *sum += of);
                }
                false => guessed = [guessed[0] + 1.0, guessed[1] + value],
            }
        }
        let [n, sum, squares, errors] = known;
        if n < 1.0 {
            return Self {
                mean: guessed[1] / f64::max(guessed[0], 1.0),
                variance: 0.0,
            };
        }
        let seen = (squares - sum * sum / n) / (n - 1.0).max(1.0);
        Self {
            mean: sum / n,
            variance: (seen - errors / n).max(0.0),
        }
    }

    /// A value that may err by this variance, as far as it is believed: of what is not known better than threads differ, the mean is left.
    fn believed(&self, value: f64, variance: f64) -> f64 {
        if self.variance <= 0.0 || !variance.is_finite() {
            return self.mean;
        }
        let part = self.variance / (self.variance + DOUBT * variance);
        self.mean + part * (value - self.mean)
    }
}

/// What stands in for a thread of which it is not known.
#[derive(Clone, Copy, Debug, Default)]
struct Usual {
    /// Logarithm of E_small / E_big, if a model says it of any thread.
    energy: Option<f64>,
    /// On the fastest core type, W.
    watts: Option<f64>,
}

impl Usual {
    /// The means over these threads.
    fn of<'t>(
        tasks: impl Iterator<Item = &'t Task>,
        speedups: &Speedups,
        topology: &Topology,
        parts: &[f64; MAX_CORE_TYPES],
    ) -> Self {
        let (mut energy, mut watts) = ((0.0, 0u32), (0.0, 0u32));
        for task in tasks {
            let profile = Profile::of(task, speedups, topology, parts, &Self::default());
            if let Some(own) = profile.own_energy {
                energy = (energy.0 + own, energy.1 + 1);
            }
            if let Some(fast) = profile.fast_watts {
                watts = (watts.0 + fast, watts.1 + 1);
            }
        }
        let mean = |(sum, n): (f64, u32)| (n > 0).then(|| sum / f64::from(n));
        Self {
            energy: mean(energy),
            watts: mean(watts),
        }
    }
}

/// What is known of a thread.
struct Profile {
    speeds: Speeds,
    /// Logarithm of E_small / E_big, by a model.
    own_energy: Option<f64>,
    /// A sensor tells what is usual on each core type.
    by_sensor: bool,
    /// Watts over those on the fastest core type.
    over_fast: [f64; MAX_CORE_TYPES],
    /// What it takes where it was measured.
    measured: [Option<SureWatts>; MAX_CORE_TYPES],
    /// Standard error of how much more that is on the fastest core type, against other threads, where it is told, W.
    apart: [Option<f32>; MAX_CORE_TYPES],
    /// On the fastest, by all of them, W.
    fast_watts: Option<f64>,
}

impl Profile {
    fn of(
        task: &Task,
        speedups: &Speedups,
        topology: &Topology,
        parts: &[f64; MAX_CORE_TYPES],
        usual: &Usual,
    ) -> Self {
        let learnt = speedups.learnt();
        let speeds = speedups.speeds(task.id, topology);
        let own_energy = learnt.energy_ratio(task.id).map(f64::ln);
        let told = learnt.watts(task.id);
        // What a sensor's watts of all threads err by alike is no matter where threads are compared, but for one of which a model says them.
        let by_sensor = told.usual[0] > 0.0;
        // Energy for the work, over the time that it takes.
        let over_fast = std::array::from_fn(|on| match own_energy.or(usual.energy) {
            _ if by_sensor && told.usual[on] > 0.0 => told.usual[on] / told.usual[0],
            Some(energy) => ((1.0 - parts[on]) * energy).exp() * speeds[on],
            None => speeds[on],
        });
        let mut profile = Self {
            speeds,
            own_energy,
            by_sensor,
            over_fast,
            measured: told.on,
            apart: told.apart,
            fast_watts: None,
        };
        let (mut sum, mut known) = (0.0, 0u32);
        for (on, &of) in profile.measured.iter().zip(&over_fast) {
            if let Some(on) = on {
                (sum, known) = (sum + on.watts / of, known + 1);
            }
        }
        profile.fast_watts = (known > 0).then(|| sum / f64::from(known));
        profile
    }

    /// What it takes on a core type, if it takes `usual` on the fastest where nothing is known.
    fn watts(&self, on: usize, usual: f64) -> SureWatts {
        let guess = || {
            let watts = self.over_fast[on] * self.fast_watts.unwrap_or(usual);
            let is_said = self.own_energy.is_some() && self.fast_watts.is_some();
            let sigma = if is_said && !self.by_sensor {
                ENERGY * watts
            } else {
                f64::INFINITY
            };
            SureWatts { watts, sigma }
        };
        self.measured[on].unwrap_or_else(guess)
    }

    /// How much more it takes on the fastest core type than on another, W, and the variance of that.
    fn saves(&self, on: usize, usual: f64) -> (f64, f64) {
        let (fast, slow) = (self.watts(0, usual), self.watts(on, usual));
        let is_measured = self.measured[0].is_some() && self.measured[on].is_some();
        let variance = match self.apart[on].filter(|_| is_measured) {
            Some(sigma) => f64::from(sigma).powi(2),
            None => fast.sigma.powi(2) + slow.sigma.powi(2),
        };
        (fast.watts - slow.watts, variance)
    }
}

impl Policy for Efficient {
    fn events(&self) -> Option<&'static [Meaning]> {
        Some(&[])
    }

    fn observe(&mut self, sample: &Sample) {
        self.speedups.observe(sample);
    }

    fn interval(&self) -> Option<Duration> {
        Some(LOOK)
    }

    fn decide(&mut self, snapshot: &Snapshot, actions: &mut Vec<Action>) {
        let Self {
            objective,
            speedups,
            exchange,
            explorer,
        } = self;
        speedups.look(snapshot, actions);
        let topology = snapshot.topology;
        if topology.types.len() < 2 {
            return;
        }
        exchange.look(snapshot, |_| u64::MAX);
        let (slowest, parts) = (topology.types.len() - 1, parts(topology));
        let usual = Usual::of(exchange.taking_part(snapshot), speedups, topology, &parts);
        let of = |task: &Task| Profile::of(task, speedups, topology, &parts, &usual);
        let of_all = matches!(objective, Objective::Edp | Objective::Energy);
        if let Some(watts) = usual.watts.filter(|_| of_all) {
            let places = exchange.taking_part(snapshot).map(|task| {
                let (profile, on) = (of(task), task.core_type.min(slowest));
                (profile.speeds[on], profile.watts(on, watts).watts)
            });
            let (speed, all) = places.fold((0.0, 0.0), |sum, at| (sum.0 + at.0, sum.1 + at.1));
            let spreads: [Spread; MAX_CORE_TYPES] = std::array::from_fn(|on| match on <= slowest {
                true => Spread::of(
                    exchange
                        .taking_part(snapshot)
                        .map(|task| of(task).saves(on, watts)),
                ),
                false => Spread::default(),
            });
            let (faster, _) = objective.exponents();
            exchange.rank_by_worth(snapshot, |task| {
                let profile = of(task);
                std::array::from_fn(|on| {
                    let (saves, variance) = profile.saves(on, watts);
                    let saves = match on {
                        0 => 0.0,
                        _ => spreads[on].believed(saves, variance),
                    };
                    let work = (1.0 + faster) * profile.speeds[on] / speed;
                    (work + saves / all) * PER_LOG
                })
            });
            let least = MARGIN_OF_ALL.ln() * PER_LOG;
            let visits = Some((explorer, &*speedups));
            exchange.act_by_worth(snapshot, visits, least, actions);
            return;
        }
        // The highest EFs are not the least product of the machine ([`Objective::Ef`]).
        let by = match objective {
            Objective::Edp => Objective::Throughput,
            other => *other,
        };
        let (faster, cheaper) = by.exponents();
        let guess = usual.energy.unwrap_or_default();
        let energy = |task: &Task| match of(task).own_energy {
            Some(own) => (own, ENERGY * ENERGY),
            None => (guess, f64::INFINITY),
        };
        let spread = Spread::of(exchange.taking_part(snapshot).map(energy));
        exchange.rank_by_worth(snapshot, |task| {
            let speeds = of(task).speeds;
            let (own, variance) = energy(task);
            let energy = match of_all {
                true => spread.believed(own, variance),
                // The paper's is of each thread alone.
                false => own,
            };
            std::array::from_fn(|on| {
                let sf = (speeds[on] / speeds[slowest]).ln();
                (faster * sf + cheaper * parts[on] * energy) * PER_LOG
            })
        });
        let least = MARGIN.ln() * PER_LOG;
        exchange.act_by_worth(snapshot, None, least, actions);
    }

    remembers!(speedups);

    /// It would only visit core types sooner, which a thread that ends soon never gets back.
    fn decides_when_told(&self) -> bool {
        false
    }

    fn reason(&self, task: TaskId) -> Option<Reason> {
        self.exchange.reason(task)
    }

    fn insight(&self, task: &Task, topology: &Topology) -> Insight {
        let insight = self.exchange.insight(task);
        self.speedups.insight(task.id, topology, insight)
    }
}

#[cfg(test)]
mod tests;
