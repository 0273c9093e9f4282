// SPDX-License-Identifier: GPL-2.0-or-later
//! What places are worth: which threads a swap serves, and which it disturbs.
//!
//! Algorithm 1 of the CAMPS paper (2018, section 4.3) swaps in the thread that lags most, unless that
//! makes contention high. It asks neither what the faster core gains that thread, nor how much others
//! lose by contention, nor whether they can afford it. All three are known here: with the speed of
//! thread *i* on core type *t*, as part of that alone on the fastest type, *v(i, t)*, what it transfers
//! there, *b(i, t)*, and how far it lags behind the mean, *lag(i)*, which is bounded, a place is worth
//!
//! ```text
//! w(i) v(i, t) - b(i, t) H(t) - c(i) S(t)      w(i) = lag(i) + SPEED * amp_threshold
//! ```
//!
//! where *H(t)* is by how much the weighted speeds of all others that share a cache with *t* fall for
//! each byte a second: the sum of *w(j) v(j) k / (1 + k B)*, for contention slows *j* down by
//! *1 + k B* where others transfer *B*. And where cores have two threads, *c(i)* is what part of its time *i* computes
//! ([`crate::slowdown::sibling::computing`]), and *S(t)* by how much the weighted speed of a thread on *t* falls, in the mean, for each
//! such part of its sibling's: so what waits for memory shares the fast cores, and what computes and gains little there leaves them.
//!
//! By its first part alone that is how the square of all distances from the mean falls fastest: a
//! thread that is ahead is held back, too. The second gives speed some weight of its own. Whoever serves the
//! greatest sum of weighted rates at every moment comes to what is best over time (max-weight
//! scheduling: Tassiulas and Ephremides 1992), of which pairwise swaps are a local search.

use super::sharing::{Crowding, SharedParts};
use crate::policy::tools::swap::SwapCandidate;
use crate::slowdown::MemoryLoad;
use crate::topology::{MAX_CORE_TYPES, Topology};

/// What speed is worth besides lag, in thresholds of it.
const SPEED: f64 = 1.0;

/// Lags beyond so many thresholds count as that: farther away is what cannot catch up, or be held back. By its distance
/// it would shift the mean, and all others would lag alike.
const FAR: f64 = 4.0;

/// A thread as others see it, and what it makes of a core type.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Forecast {
    /// Speed on each core type beside those that run now, as part of that alone on the fastest.
    pub speed: [f64; MAX_CORE_TYPES],
    /// Speed where it is, had it its core to itself.
    pub unshared: f64,
    /// What part of its time it computes, 0 to 1.
    pub computing: f64,
    /// By what part its speed where it is falls for each byte/s more that others transfer.
    pub sensitivity: f64,
    /// What it transfers on each core type, bytes/s.
    pub btr: [f64; MAX_CORE_TYPES],
}

/// What places are worth to runners, ns of progress.
#[derive(Debug, Default)]
pub struct Worths {
    /// By runner and core type.
    of: Vec<[f64; MAX_CORE_TYPES]>,
    /// By contention domain: what part of each core type's CPUs it holds.
    part: Vec<[f64; MAX_CORE_TYPES]>,
    /// By contention domain: BTR of all that run there, bytes/s.
    load: Vec<f64>,
    /// By contention domain: see H in the module.
    harm: Vec<f64>,
    /// By runner: w.
    weights: Vec<f64>,
    /// By runner: progress; kept for its memory.
    progress: Vec<i64>,
}

impl Worths {
    /// Takes note of how much memory each uses.
    pub fn look(&mut self, topology: &Topology, load: &MemoryLoad) {
        let domains = topology.cpus.iter().map(|cpu| cpu.llc + 1).max();
        let domains = domains.unwrap_or(0);
        self.load.clear();
        self.load
            .extend((0..domains).map(|llc| load.in_domain(llc)));
        self.part.clear();
        self.part.resize(domains, [0.0; MAX_CORE_TYPES]);
        for cpu in &topology.cpus {
            let cpus = topology.types[cpu.core_type].cpus.len();
            self.part[cpu.llc][cpu.core_type] += 1.0 / cpus.max(1) as f64;
        }
    }

    /// BTR, bytes/s, of the others that a runner which transfers `btr` would meet on each core type.
    pub fn others(
        &self,
        topology: &Topology,
        runner: &SwapCandidate,
        btr: f64,
    ) -> [f64; MAX_CORE_TYPES] {
        self.without_own(topology, runner, &self.load, self.means(&self.load), btr)
            .map(|others| others.max(0.0))
    }

    /// Works out what places are worth to `runners` with `forecasts`, in the same order; `threshold`
    /// is `amp_threshold`, ns.
    pub fn refill(
        &mut self,
        topology: &Topology,
        runners: &[SwapCandidate],
        forecasts: &[Forecast],
        shared: &SharedParts,
        threshold: i64,
    ) {
        let middle = self.middle(runners);
        let lag = |runner: &SwapCandidate| {
            let far = FAR * threshold as f64;
            (middle - runner.progress as f64).clamp(-far, far)
        };
        let mean = runners.iter().map(lag).sum::<f64>() / runners.len().max(1) as f64;
        let weight = |runner: &SwapCandidate| lag(runner) - mean + SPEED * threshold as f64;
        self.weights.clear();
        self.weights.extend(runners.iter().map(weight));
        let suffers = |runner: &SwapCandidate, forecast: &Forecast| {
            weight(runner) * forecast.speed[runner.place] * forecast.sensitivity
        };
        let both = || runners.iter().zip(forecasts);
        let crowding = Crowding::of(
            both().map(|(runner, of)| (runner.place, weight(runner), of)),
            shared,
        );
        let mut harm = std::mem::take(&mut self.harm);
        harm.clear();
        harm.resize(self.load.len(), 0.0);
        for (runner, forecast) in both() {
            if let Some(cpu) = topology.cpu(runner.cpu) {
                harm[cpu.llc] += suffers(runner, forecast);
            }
        }
        let means = self.means(&harm);
        let mut of = std::mem::take(&mut self.of);
        of.clear();
        of.extend(both().map(|(runner, forecast)| {
            let own = suffers(runner, forecast);
            let harm = self.without_own(topology, runner, &harm, means, own);
            let mut worth = [0.0; MAX_CORE_TYPES];
            for (on, worth) in worth.iter_mut().enumerate() {
                let own = (on == runner.place).then(|| (weight(runner), forecast));
                let siblings = forecast.computing * crowding.without(own, on, shared);
                *worth =
                    weight(runner) * forecast.speed[on] - forecast.btr[on] * harm[on] - siblings;
            }
            worth
        }));
        (self.of, self.harm) = (of, harm);
    }

    /// What the speed of the runner with this index is worth, had it its core to itself, ns of progress.
    pub fn unshared(&self, runner: usize, forecast: &Forecast) -> f64 {
        self.weights[runner] * forecast.unshared
    }

    /// The median of their progress, ns.
    fn middle(&mut self, runners: &[SwapCandidate]) -> f64 {
        self.progress.clear();
        self.progress
            .extend(runners.iter().map(|runner| runner.progress));
        match self.progress.len() {
            0 => 0.0,
            number => *self.progress.select_nth_unstable(number / 2).1 as f64,
        }
    }

    /// What it is worth to the runner with this index to be on the one core type and not on the
    /// other, ns of progress.
    pub fn gain(&self, runner: usize, on: usize, and_not: usize) -> f64 {
        let worth = &self.of[runner];
        worth[on] - worth[and_not]
    }

    /// Two runners, by index, change places: where each uses memory, from now on.
    pub fn swap(
        &mut self,
        topology: &Topology,
        runners: &mut [SwapCandidate],
        forecasts: &[Forecast],
        pair: [usize; 2],
    ) {
        let mut transfer = |runner: &SwapCandidate, forecast: &Forecast, sign: f64| {
            if let Some(cpu) = topology.cpu(runner.cpu) {
                self.load[cpu.llc] += sign * forecast.btr[runner.place];
            }
        };
        let [a, b] = pair;
        for index in pair {
            transfer(&runners[index], &forecasts[index], -1.0);
        }
        let (there, here) = (runners[b], runners[a]);
        (runners[a].place, runners[a].cpu) = (there.place, there.cpu);
        (runners[b].place, runners[b].cpu) = (here.place, here.cpu);
        for index in pair {
            transfer(&runners[index], &forecasts[index], 1.0);
        }
    }

    /// By core type, the mean over its CPUs, which may be of several domains.
    fn means(&self, by_domain: &[f64]) -> [f64; MAX_CORE_TYPES] {
        let mut means = [0.0; MAX_CORE_TYPES];
        for (part, here) in self.part.iter().zip(by_domain) {
            for (mean, part) in means.iter_mut().zip(part) {
                *mean += part * here;
            }
        }
        means
    }

    /// By core type, what a runner meets there without what is its `own`: in the domain where it is,
    /// or in the mean.
    fn without_own(
        &self,
        topology: &Topology,
        runner: &SwapCandidate,
        by_domain: &[f64],
        mut means: [f64; MAX_CORE_TYPES],
        own: f64,
    ) -> [f64; MAX_CORE_TYPES] {
        let Some(cpu) = topology.cpu(runner.cpu) else {
            return means;
        };
        for (mean, part) in means.iter_mut().zip(&self.part[cpu.llc]) {
            *mean -= part * own;
        }
        means[cpu.core_type] = by_domain[cpu.llc] - own;
        means
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slowdown::sibling::loss;
    use crate::testing::{board, task, with_smt};

    const THRESHOLD: i64 = 100;

    /// Runners on these core types of a board whose two fast and four slow CPUs have a cache each;
    /// runner n has come so far, ns, and is on a CPU of its own. Alone all gain the factor 2.
    fn worths(threads: &[(usize, i64, f64, f64)]) -> Worths {
        let topology = board(2, 4);
        let mut free = [0, 2];
        let runner = |&(place, progress, ..): &(usize, i64, f64, f64)| {
            free[place] += 1;
            SwapCandidate::new(&task(free[place], free[place] - 1, place), place, progress)
        };
        let runners: Vec<SwapCandidate> = threads.iter().map(runner).collect();
        let forecast = |&(_, _, btr, sensitivity): &(usize, i64, f64, f64)| Forecast {
            speed: [1.0, 0.5, 0.0, 0.0],
            unshared: 1.0,
            computing: 1.0,
            sensitivity,
            btr: [btr, btr / 2.0, 0.0, 0.0],
        };
        let forecasts: Vec<Forecast> = threads.iter().map(forecast).collect();
        let running = runners.iter().zip(threads).map(|(r, t)| (r.cpu, t.2));
        let mut worths = Worths::default();
        worths.look(&topology, &MemoryLoad::of(&topology, running));
        worths.refill(
            &topology,
            &runners,
            &forecasts,
            &[0.0; MAX_CORE_TYPES],
            THRESHOLD,
        );
        worths
    }

    #[test]
    fn without_contention_it_is_lag_times_what_the_faster_core_gains() {
        let worths = worths(&[(0, 1000, 0.0, 0.0), (1, 600, 0.0, 0.0)]);
        // Behind the mean by -200 and by 200, and the threshold on top.
        assert_eq!(worths.gain(0, 0, 1), -50.0);
        assert_eq!(worths.gain(1, 0, 1), 150.0);
    }

    #[test]
    fn one_that_is_far_away_changes_little_for_the_others() {
        let of = |far: i64| {
            let worths = worths(&[
                (0, 1000, 0.0, 0.0),
                (0, 1050, 0.0, 0.0),
                (1, 950, 0.0, 0.0),
                (1, 1000, 0.0, 0.0),
                (1, 1000 + far, 0.0, 0.0),
            ]);
            [0, 1, 2, 3].map(|runner| worths.gain(runner, 0, 1))
        };
        let near = of(0);
        for far in [-1_000_000, 1_000_000] {
            // A fifth of the bound at the most, half of which a core type makes.
            let most = 0.5 * FAR * THRESHOLD as f64 / 5.0;
            for (far, near) in of(far).into_iter().zip(near) {
                assert!((far - near).abs() <= most, "{far}, not {near}");
            }
        }
    }

    #[test]
    fn harm_counts_where_it_is_done_by_how_far_behind_they_are_whom_it_is_done_to() {
        // The first suffers on a fast core, from the second there; the last transfers as much.
        let of = |progress: i64| {
            let worths = worths(&[
                (0, progress, 0.0, 0.1),
                (0, 1000, 2.0, 0.0),
                (1, 1000, 2.0, 0.0),
            ]);
            [0, 1, 2].map(|runner| worths.gain(runner, 0, 1))
        };
        let [sufferer, neighbour, stranger] = of(1000);
        // Each weighs 100: speeds that differ by a half, and 2 bytes/s that cost 0.1 of a speed of 1.
        assert_eq!(sufferer, 50.0);
        assert_eq!(neighbour, 50.0 - 2.0 * 100.0 * 0.1);
        assert_eq!(neighbour, stranger);
        let [_, worse, _] = of(700);
        assert!(worse < 0.5 * neighbour, "{worse} after {neighbour}");
    }

    #[test]
    fn on_shared_cores_what_computes_is_worth_less_by_what_it_takes_from_siblings() {
        let topology = with_smt(board(2, 4), 0);
        let runners = [(0, 0), (1, 0), (2, 1), (3, 1)]
            .map(|(id, place)| SwapCandidate::new(&task(id, id, place), place, 0));
        let gains = |shared: f64| {
            let forecasts = [1.0, 1.0, 1.0, 0.0].map(|computing| Forecast {
                speed: [0.6, 0.5, 0.0, 0.0],
                unshared: 1.0,
                computing,
                ..Forecast::default()
            });
            let shared = [shared, 0.0, 0.0, 0.0];
            let mut worths = Worths::default();
            worths.look(&topology, &MemoryLoad::default());
            worths.refill(&topology, &runners, &forecasts, &shared, THRESHOLD);
            [0, 1, 2, 3].map(|runner| worths.gain(runner, 0, 1))
        };
        assert!(gains(0.0).iter().all(|gain| (gain - 10.0).abs() < 1e-9));
        let [here, _, elsewhere, waits] = gains(1.0);
        let takes = THRESHOLD as f64 * loss(1.0, 1.0);
        assert!((here - (10.0 - takes)).abs() < 1e-9, "{here}");
        assert!((elsewhere - here).abs() < 1e-9);
        assert!((waits - 10.0).abs() < 1e-9, "{waits}");
    }

    #[test]
    fn the_others_are_those_of_the_domain_where_it_would_be() {
        let topology = board(2, 4);
        let running = [(0, 5.0), (1, 2.0), (2, 1.0), (3, 3.0)];
        let mut worths = Worths::default();
        worths.look(&topology, &MemoryLoad::of(&topology, running.into_iter()));
        let runner = SwapCandidate::new(&task(0, 0, 0), 0, 0);
        let others = worths.others(&topology, &runner, 5.0);
        assert_eq!(others[..2], [2.0, 4.0]);
    }
}
