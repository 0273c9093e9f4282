// SPDX-License-Identifier: GPL-2.0-or-later
//! `rank`: the fast cores to the threads that a model says gain most from them, after the placement
//! by a learnt ranking in topology-aware-ml-2024 (sections 4.1 and 4.2).
//!
//! As there: threads that use less than 5 % of a CPU are left alone; the others are ranked, the top
//! ones go to fast cores, and those take more threads than they have CPUs, for else the slower ones
//! would be overworked. Otherwise than there:
//!
//! - Threads are ranked by the SF that a model of the machine estimates, which is right about more
//!   pairs than a classifier like the paper's (`docs/ml.md`); so one evaluation a sample, none here.
//! - Only threads that want most of a CPU are ranked by the phase that they are in. Those that come
//!   and go, on which the paper's scheduler failed (Fig. 4.7), are by all that is known of them or
//!   of their program.
//! - A program of several threads gains by each only its part ([`utility`]), where the paper ranks
//!   each thread as if it were a program.
//! - The top N is in CPUs: threads that come and go count for a part of one, see [`rooms`].
//! - A thread must be better than another by more than models can tell to take its place.
//! - Where it is not sure which of two threads gains more, they change places for a moment, to be
//!   measured ([`visits`]). There is no sampling otherwise.
//!
//! With three or more core types the places on the fastest go to those that gain most there over the next
//! slower one that has room, the places on that one likewise, and so on: a type that the threads do not need
//! plays no part.

use std::time::Duration;

use rustc_hash::FxHashMap;

use super::name::{About, Knows};
use super::reason::Reasons;
use super::tools::demand::Demand;
use super::tools::remembers;
use super::tools::speeds::{Prior, SureSpeeds};
use super::tools::speedup::{Speedups, utility};
use super::tools::weights::least_weight;
use super::{Action, Insight, Policy, Reason, Seen, Snapshot};
use crate::mechanism::Mechanism;
use crate::placement;
use crate::pmu::Meaning;
use crate::pmu::sample::Sample;
use crate::table::{Task, TaskId};
use crate::topology::{MAX_CORE_TYPES, Topology};

mod visits;

use visits::Visits;

/// What users are told.
pub(super) const ABOUT: About = About {
    name: "rank",
    help: "The same by a learnt model, without trying each thread on every core type",
    knows: &[Knows::Model, Knows::NeedsModel, Knows::Oversubscribe],
    build: |settings| {
        Box::new(Rank {
            makes_visits: !settings.without.contains(&Mechanism::Visits),
            ..Rank::new(settings.oversubscribe)
        })
    },
};

/// Threads that each fast core is to have, where slower ones have something to do: the paper's best
/// (Fig. 4.5) is 2.5 to 3.
pub const OVERSUBSCRIBE: f64 = 2.5;

/// Reads [`OVERSUBSCRIBE`] from the command line.
///
/// # Errors
/// It is not a number, or not one from 1 to 100.
pub fn parse_oversubscribe(text: &str) -> Result<f64, String> {
    let threads: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    if !(1.0..=100.0).contains(&threads) {
        return Err("must lie between 1 and 100 threads".into());
    }
    Ok(threads)
}

/// A thread that wants less of a CPU is not ranked (section 4.1).
const CUT_OFF: f64 = 0.05;

/// One that wants less comes and goes: the phase that it was in last says little of the next one.
const STEADY: f64 = 0.5;

/// By how much an SF must be greater for its thread to displace another. Of pairs whose SFs are 5 %
/// apart the model of the virtual machine puts 97 % in the right order, of all 94 % (`docs/ml.md`).
const MARGIN: f64 = 1.05;

/// For so long at most, ns of its CPU time, a thread stays where it began until it was measured there, if a model alone says what it
/// gains. Where that is wrong, it is known as soon as it was measured at the other place: a program that lasts for a second has
/// no time for a visit.
const FIRST_NS: u64 = 300_000_000;

/// Time between decisions: a sample's. Where threads change their phase several times a second,
/// 200 ms would cost up to 7 % of the throughput (`docs/decisions/hint-from-bpf.md`).
const LOOK: Duration = Duration::from_millis(50);

/// The fastest core type.
const BIG: usize = 0;

/// A thread that has a rank.
#[derive(Clone, Copy, Debug)]
struct Ranked {
    seen: Seen,
    /// Speeds by core type.
    speeds: SureSpeeds,
    /// CPUs that its program wants.
    cpus: f64,
    /// Core type where it is, or was sent.
    place: usize,
    /// What it gains on the type of which places are given at the moment.
    score: f64,
    /// By how much its score may be on the wrong side of those that have a place: some standard errors less
    /// what it is apart. More than 0 is unsure.
    doubt: f64,
    /// The core type on the other side.
    other: usize,
    /// Its place, of which 1 is the best, and of how many.
    rank: (u32, u32),
    /// Share of a CPU that is kept for it.
    takes: f64,
    /// Core types that its affinity allows, a bit each.
    allowed: u8,
    /// What it was hinted last.
    hint: Option<usize>,
    /// Where it should be.
    to: usize,
    /// It is not changing places at the moment.
    settled: bool,
    /// A model alone says what it gains, and has for long.
    on_trust: bool,
}

impl Ranked {
    fn reason(&self, slowest: usize) -> Reason {
        let (rank, of) = self.rank;
        let sf = (self.sf(slowest) * 100.0).round() as u32;
        Reason::Ranked { sf, rank, of }
    }

    /// SF of the fastest core type over the slowest.
    fn sf(&self, slowest: usize) -> f64 {
        1.0 / self.speeds.speeds[slowest]
    }

    /// What it gains on core type `fast` over `slow`, in speeds on the slowest: its part of what its
    /// program does. A thread on one as fast already gains more, see [`MARGIN`].
    fn gain(&self, fast: usize, slow: usize, slowest: usize) -> f64 {
        let kept = if self.place <= fast { MARGIN } else { 1.0 };
        let speeds = &self.speeds.speeds;
        let sf = speeds[fast] / speeds[slow] * kept;
        utility(sf, self.cpus) * speeds[slow] / speeds[slowest]
    }

    /// Standard error of that.
    fn gain_sigma(&self, fast: usize, slow: usize, slowest: usize) -> f64 {
        let worth = self.speeds.speeds[fast] / self.speeds.speeds[slowest];
        self.speeds.sigma(fast, slow) * worth / self.cpus.max(1.0)
    }

    /// Takes note of how sure it is whether this score is more than `border`, which parts those that have a
    /// place on a core type from those that have one on the other.
    fn compare(&mut self, border: f64, here: usize, other: usize, slowest: usize) {
        let (fast, slow) = (here.min(other), here.max(other));
        let doubt = visits::doubt(self.gain_sigma(fast, slow, slowest), self.score - border);
        if doubt > self.doubt {
            (self.doubt, self.other) = (doubt, other);
        }
    }

    fn may_use(&self, core_type: usize) -> bool {
        self.allowed & 1 << core_type != 0
    }
}

/// See the module.
pub struct Rank {
    oversubscribe: f64,
    speedups: Speedups,
    demand: Demand,
    reasons: Reasons,
    visits: Visits,
    /// They may be left out.
    makes_visits: bool,
    /// Where each thread is in `ranked`.
    places: FxHashMap<TaskId, usize>,
    /// All that follow are kept for their memory.
    ranked: Vec<Ranked>,
    rising: Vec<Ranked>,
    falling: Vec<Ranked>,
    weights: Vec<u32>,
}

impl Rank {
    /// With so many threads for each fast core, see [`OVERSUBSCRIBE`].
    pub fn new(oversubscribe: f64) -> Self {
        Self {
            oversubscribe,
            speedups: Speedups::default(),
            demand: Demand::default(),
            reasons: Reasons::default(),
            visits: Visits::default(),
            makes_visits: true,
            ranked: Vec::new(),
            places: FxHashMap::default(),
            rising: Vec::new(),
            falling: Vec::new(),
            weights: Vec::new(),
        }
    }

    /// Speeds by which a thread is ranked.
    fn speeds(&self, task: &Task, wants: f64, topology: &Topology) -> SureSpeeds {
        if task.spinning {
            return SureSpeeds::sure([1.0; MAX_CORE_TYPES]);
        }
        let learnt = self.speedups.learnt();
        if let Some(now) = learnt.speeds(task.id).filter(|_| wants >= STEADY) {
            return now;
        }
        // What the BPF half knows of a thread that has not run since this policy began.
        match learnt.usual(task).or(task.sf) {
            Some(sf) => Prior::of(topology)
                .with_sf(sf)
                .fused(&[None; MAX_CORE_TYPES]),
            None => self.speedups.sure_speeds(task.id, topology),
        }
    }

    /// Fills `ranked`, in no order, and returns what is wanted on each core type by those that
    /// cannot move. Takes their hints back from threads that have no rank any longer.
    fn rank(&mut self, snapshot: &Snapshot, actions: &mut Vec<Action>) -> [f64; MAX_CORE_TYPES] {
        let slowest = snapshot.topology.types.len() - 1;
        let mut fixed = [0.0; MAX_CORE_TYPES];
        let mut ranked = std::mem::take(&mut self.ranked);
        ranked.clear();
        let busy = |task: &&Task| !task.kthread && self.demand.of(task.id) >= CUT_OFF;
        let busy = snapshot.tasks.iter().filter(busy);
        self.weights.clear();
        self.weights.extend(busy.map(|task| task.weight));
        let least_weight = least_weight(&mut self.weights, snapshot.topology.cpus.len());
        for task in snapshot.tasks {
            let wants = self.demand.of(task.id);
            let free = !task.kthread && task.may_choose();
            if wants < CUT_OFF || task.weight < least_weight {
                if free && task.hint.is_some() {
                    actions.push(Action::Hint(task.into(), None));
                }
                continue;
            }
            if !free {
                fixed[task.core_type.min(slowest)] += takes(wants);
                continue;
            }
            let speeds = self.speeds(task, wants, snapshot.topology);
            let is_on_trust = self.speedups.learnt().is_on_trust(task.id);
            let waits = is_on_trust
                && self.makes_visits
                && wants >= STEADY
                && task.total_ns() < FIRST_NS
                && speeds.sigma(BIG, slowest) > visits::SURE
                && !speeds.is_measured(task.core_type.min(slowest));
            ranked.push(Ranked {
                seen: task.into(),
                speeds,
                cpus: self.demand.of_program(task.tgid),
                place: self
                    .visits
                    .home(task.id)
                    .or(task.hint)
                    .unwrap_or(task.core_type)
                    .min(slowest),
                score: 0.0,
                doubt: f64::NEG_INFINITY,
                other: 0,
                rank: (0, 0),
                takes: takes(wants),
                allowed: task.allowed_types,
                hint: task.hint,
                to: task.core_type,
                settled: !waits && !self.demand.is_moving(task.id),
                on_trust: task.total_ns() >= visits::TRUSTED_NS && is_on_trust,
            });
        }
        self.ranked = ranked;
        fixed
    }

    /// Appends what brings every thread to where it should be: exchanges of two first, for neither
    /// can go where the other still runs; no more than `most`, which is how many can run.
    fn act(&mut self, slowest: usize, most: usize, actions: &mut Vec<Action>) {
        for list in [&mut self.rising, &mut self.falling] {
            list.clear();
            // Nothing is to be allocated later.
            list.reserve(self.ranked.len());
        }
        for ranked in &self.ranked {
            let list = match ranked.to.cmp(&ranked.seen.on) {
                _ if !ranked.settled => continue,
                std::cmp::Ordering::Less => &mut self.rising,
                std::cmp::Ordering::Greater => &mut self.falling,
                std::cmp::Ordering::Equal => {
                    // Below all others no wish is needed, and a faster CPU that idles may take it. But
                    // among three types it would be queued now on this slower one, now on that.
                    let wish = (ranked.to < slowest || slowest > 1).then_some(ranked.to);
                    if ranked.hint != wish {
                        actions.push(Action::Hint(ranked.seen, wish));
                    }
                    continue;
                }
            };
            list.push(*ranked);
        }
        // The best goes up first, the worst goes down first.
        self.falling.reverse();
        let mut left = most;
        let (falling, demand) = (&mut self.falling, &mut self.demand);
        let (reasons, visits) = (&mut self.reasons, &self.visits);
        self.rising.retain(|up| {
            let exact = |down: &Ranked| down.seen.on == up.to && down.to == up.seen.on;
            // Among three types it may have to go round.
            let here = 1 << up.seen.on;
            let makes_room = |down: &Ranked| down.seen.on == up.to && down.allowed & here != 0;
            let partner = match left {
                0 => None,
                _ => falling
                    .iter()
                    .position(exact)
                    .or_else(|| falling.iter().position(makes_room)),
            };
            let Some(partner) = partner else {
                return true;
            };
            let down = falling.remove(partner);
            actions.push(Action::Swap([(down.seen, up.seen.on), (up.seen, up.to)]));
            demand.send(down.seen.task, up.seen.on);
            demand.send(up.seen.task, up.to);
            for moved in [&down, up] {
                reasons.note(moved.seen.task, visits.reason(moved, slowest));
            }
            left -= 1;
            false
        });
        for alone in self.rising.iter().chain(&self.falling) {
            if alone.hint != Some(alone.to) {
                actions.push(Action::Hint(alone.seen, Some(alone.to)));
                // It stays where it runs until a CPU there is free, so it is not on its way: it changes places with the
                // next thread that is to go from there.
                let reason = self.visits.reason(alone, slowest);
                self.reasons.note(alone.seen.task, reason);
            }
        }
    }
}

/// How many CPUs' worth of threads each core type is to have, of `wanted` in all.
///
/// The fast type has its part of the machine, as without a ranking. Where more is wanted than there
/// are CPUs it has up to `oversubscribe` for each of its cores, but never so much that a slower CPU
/// would have nothing to do. With 16 threads on 4 fast and 4 slow cores: 10, as in the paper; with
/// 8 threads 4, for else the slow cores would take what they find waiting, whatever its rank.
fn rooms(topology: &Topology, wanted: f64, oversubscribe: f64) -> [f64; MAX_CORE_TYPES] {
    // Below a thread a CPU what is wanted in part takes a whole one.
    let threads = wanted.ceil().min(topology.cpus.len() as f64);
    let shares = placement::shares(topology, threads.max(wanted.round()) as usize);
    let mut rooms = shares.map(|share| share as f64);
    let fast = &topology.types[BIG].cpus;
    let is_first = |cpu: &&u32| {
        let cpu = topology.cpu(**cpu);
        cpu.is_some_and(|cpu| cpu.siblings.iter().all(|&sibling| sibling >= cpu.id))
    };
    let cores = fast.iter().filter(is_first).count() as f64;
    let slower = (topology.cpus.len() - fast.len()) as f64;
    let most = (oversubscribe * cores).min(wanted - slower);
    let others: f64 = rooms[1..].iter().sum();
    if most > rooms[BIG] && others > 0.0 {
        let left = (wanted - most) / others;
        rooms[1..].iter_mut().for_each(|room| *room *= left);
        rooms[BIG] = most;
    }
    rooms
}

/// Share of a CPU to be kept for a thread that wants so much. Two that want most of one do not fit on
/// it: either would often find the other there.
fn takes(wants: f64) -> f64 {
    if wants < STEADY { wants } else { 1.0 }
}

/// Says of each thread where it should be. Places on the fastest core type go first, to those that gain
/// most there over the next slower type with room; then those on that one, and so on. A thread fits
/// where there is room for at least half of what it takes; a thread that fits nowhere goes to the slowest type.
fn place(ranked: &mut [Ranked], rooms: &mut [f64]) {
    let slowest = rooms.len().saturating_sub(1);
    let of = ranked.len() as u32;
    let mut left = &mut *ranked;
    for core_type in 0..slowest {
        let next = (core_type + 1..slowest).find(|&slower| rooms[slower] > 0.0);
        let next = next.unwrap_or(slowest);
        for thread in &mut *left {
            thread.score = thread.gain(core_type, next, slowest);
        }
        left.sort_unstable_by(best_first);
        if core_type == 0 {
            for (thread, rank) in left.iter_mut().zip(1..) {
                thread.rank = (rank, of);
            }
        }
        let room = &mut rooms[core_type];
        let mut placed = 0;
        for index in 0..left.len() {
            let thread = &mut left[index];
            if thread.may_use(core_type) && *room >= thread.takes / 2.0 {
                *room -= thread.takes;
                thread.to = core_type;
                left.swap(placed, index);
                placed += 1;
            }
        }
        let least = left[..placed].iter().map(|thread| thread.score);
        let least = least.fold(f64::INFINITY, f64::min);
        let most = left[placed..].iter().filter(|it| it.may_use(core_type));
        let most = most
            .map(|thread| thread.score)
            .fold(f64::NEG_INFINITY, f64::max);
        let border = 0.5 * (least + most);
        if border.is_finite() {
            for (index, thread) in left.iter_mut().enumerate() {
                let (here, other) = match index < placed {
                    true => (core_type, next),
                    false => (next, core_type),
                };
                thread.compare(border, here, other, slowest);
            }
        }
        left = &mut left[placed..];
    }
    for thread in left {
        let allowed = (0..=slowest)
            .rev()
            .find(|&core_type| thread.may_use(core_type));
        if let Some(to) = allowed {
            rooms[to] -= thread.takes;
            thread.to = to;
        }
    }
    // For the one that is moved first.
    ranked.sort_unstable_by_key(|thread| thread.rank);
}

/// By score, and between equals by task.
fn best_first(a: &Ranked, b: &Ranked) -> std::cmp::Ordering {
    let by_score = b.score.total_cmp(&a.score);
    by_score.then(a.seen.task.cmp(&b.seen.task))
}

impl Policy for Rank {
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
        self.reasons.begin();
        self.speedups.look(snapshot, actions);
        let nr_types = snapshot.topology.types.len();
        if nr_types < 2 {
            return;
        }
        self.demand.look(snapshot);
        let fixed = self.rank(snapshot, actions);
        let wanted: f64 = self.ranked.iter().map(|ranked| ranked.takes).sum();
        let wanted = wanted + fixed.iter().sum::<f64>();
        let mut rooms = rooms(snapshot.topology, wanted, self.oversubscribe);
        for (room, fixed) in rooms.iter_mut().zip(fixed) {
            *room -= fixed;
        }
        place(&mut self.ranked, &mut rooms[..nr_types]);
        if self.makes_visits {
            self.visits.step(snapshot.now_ns, &mut self.ranked);
        }
        self.act(nr_types - 1, snapshot.topology.cpus.len(), actions);
        self.places.clear();
        let ranked = self.ranked.iter().enumerate();
        self.places
            .extend(ranked.map(|(place, ranked)| (ranked.seen.task, place)));
    }

    remembers!(speedups);

    fn reason(&self, task: TaskId) -> Option<Reason> {
        self.reasons.of(task)
    }

    fn insight(&self, task: &Task, topology: &Topology) -> Insight {
        let place = self.places.get(&task.id);
        let place = place.and_then(|&place| self.ranked.get(place));
        let insight = Insight {
            takes_part: Some(place.is_some()),
            rank: place.map(|place| place.rank),
            ..Insight::default()
        };
        let mut insight = self.speedups.insight(task.id, topology, insight);
        // As it was ranked, be it by another SF than progress is charged by.
        let slowest = topology.types.len().saturating_sub(1);
        if let Some(place) = place.filter(|_| insight.asymmetry[slowest].is_some()) {
            insight.asymmetry[slowest] = Some(place.sf(slowest));
            insight.slowdown[slowest] = Some(place.sf(slowest));
        }
        insight
    }
}

#[cfg(test)]
mod tests;
