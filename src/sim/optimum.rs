// SPDX-License-Identifier: GPL-2.0-only
//! The best that any schedule could do: least unfairness, and the most ASP at each unfairness.
//!
//! A *column* is which threads run on which core types at one moment, and which phases their
//! programs are in; how fast each then is says `contention`. A schedule spends parts of its
//! time in columns. What a program progresses is linear in these parts, so the best are linear
//! programs. They are bounds and not schedules: moving is free, phases may meet as it suits, threads
//! of a program are always even, and time can be cut as finely as needed. No column leaves a CPU
//! idle beside a thread that could use it, so that NWC mode is not among them.

mod search;
mod thrift;

use std::collections::BTreeSet;

use serde::Serialize;

use super::contention::Contention;
use super::experiment::Bench;
use super::lp::LinearProgram;
use crate::topology::MAX_CORE_TYPES;
use search::Search;

/// More columns are not looked at.
const MOST_COLUMNS: usize = 20_000;

/// The least progress of all that counts as some: far below what any schedule gives that does not
/// waste its time, and far above what rounding may seem to give.
const SOME: f64 = 0.02;

/// Unfairness is found to this part.
const PRECISION: f64 = 1e-4;

/// How many threads of a program run on each core type.
type Counts = [u32; MAX_CORE_TYPES];

/// The best of a mix, or why it is not known.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Optimum {
    /// The best.
    Known(Best),
    /// Why not.
    Skipped {
        /// In words.
        skipped: String,
    },
}

/// What no schedule can beat.
#[derive(Clone, Debug, Serialize)]
pub struct Best {
    /// Ways to place the threads that were looked at.
    pub columns: usize,
    /// The least unfairness, and the most ASP there.
    pub fairest: (f64, f64),
    /// The most ASP, and the least unfairness there that was found.
    pub fastest: (f64, f64),
    /// Unfairness and the most ASP there.
    pub curve: Vec<(f64, f64)>,
    /// The least energy-delay product that was found, where the machine's file says what it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thriftiest: Option<LeastEdp>,
    #[serde(skip)]
    columns_by_phase: Columns,
}

/// The schedule whose energy-delay product is least, watts/STP²; see [`super::energy::MixEnergy::edp`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LeastEdp {
    /// Watts/STP².
    pub edp: f64,
    /// Watts of the package and of memory.
    pub watts: f64,
    /// Σ CT_alone/CT_sched.
    pub stp: f64,
}

/// Progress by column: of each program in each of its phases.
#[derive(Clone, Debug, Default)]
struct Columns {
    /// By program, then phase: what it progresses in each column, in parts of its speed alone.
    progress: Vec<Vec<Vec<f64>>>,
    count: usize,
    /// CT_slow / CT_alone by program.
    worth: Vec<f64>,
    /// Watts in each column; empty where they are not known.
    watts: Vec<f64>,
}

impl Optimum {
    /// Of a mix on a machine.
    pub fn of(bench: &Bench) -> Self {
        match Columns::of(bench).and_then(|columns| {
            let trouble = || "the solver did not find it".to_string();
            Best::of(columns).ok_or_else(trouble)
        }) {
            Ok(best) => Self::Known(best),
            Err(skipped) => Self::Skipped { skipped },
        }
    }
}

impl Best {
    fn of(columns: Columns) -> Option<Self> {
        let fastest = columns.most_asp(None)?;
        let (mut low, mut high) = (1.0, fastest.0);
        if columns.can_be(low)? {
            high = low;
        }
        while high - low > PRECISION * low {
            let middle = 0.5 * (low + high);
            if columns.can_be(middle)? {
                high = middle;
            } else {
                low = middle;
            }
        }
        let fairest = (high, columns.most_asp(Some(high * (1.0 + PRECISION)))?.1);
        const STEPS: u32 = 8;
        let at = |step: u32| high + (fastest.0 - high) * f64::from(step) / f64::from(STEPS);
        let curve = (1..STEPS).map(|step| Some((at(step), columns.most_asp(Some(at(step)))?.1)));
        let mut all = vec![fairest];
        all.extend(curve.collect::<Option<Vec<_>>>()?);
        all.push(fastest);
        let thriftiest = columns.least_edp();
        Some(Self {
            thriftiest,
            columns: columns.count,
            fairest,
            fastest,
            curve: all,
            columns_by_phase: columns,
        })
    }

    /// The most ASP of all schedules with at most this unfairness; at the least unfairness where
    /// that is more.
    pub fn asp_at(&self, unfairness: f64) -> Option<f64> {
        if unfairness >= self.fastest.0 {
            return Some(self.fastest.1);
        }
        let unfairness = unfairness.max(self.fairest.0 * (1.0 + PRECISION));
        self.columns_by_phase
            .most_asp(Some(unfairness))
            .map(|(_, asp)| asp)
    }
}

impl Columns {
    /// All columns; an error says why they are not looked at.
    fn of(bench: &Bench) -> Result<Self, String> {
        let topology = &bench.machine().topology;
        let mut llcs = Vec::new();
        for kind in &topology.types {
            let of = |id: &u32| topology.cpu(*id).map(|cpu| cpu.llc);
            let all: BTreeSet<_> = kind.cpus.iter().filter_map(of).collect();
            match all.into_iter().collect::<Vec<_>>()[..] {
                [llc] => llcs.push(llc),
                _ => return Err("CPUs of one core type do not share one cache".into()),
            }
        }
        let stages = |program: usize| &bench.members()[program].0.stages;
        let members = bench.members().len();
        if (0..members).any(|program| stages(program).iter().any(|s| s.sleep.is_some())) {
            return Err("programs that sleep are not looked at".into());
        }
        let mut room = [0; MAX_CORE_TYPES];
        for (room, cpus) in room.iter_mut().zip(bench.machine().cpus_by_type()) {
            *room = cpus as u32;
        }
        let mut columns = Self {
            progress: (0..members)
                .map(|p| vec![Vec::new(); stages(p).len()])
                .collect(),
            count: 0,
            worth: bench
                .alone()
                .iter()
                .map(|(alone, slow)| slow / alone)
                .collect(),
            watts: Vec::new(),
        };
        let mut search = Search {
            bench,
            types: llcs.len(),
            llcs,
            contention: Contention::new(bench.machine(), bench.loads().to_vec()),
            chosen: Vec::new(),
            columns: &mut columns,
        };
        if search.phases(&mut vec![0; members], 0, room).is_none() {
            return Err(format!(
                "more than {MOST_COLUMNS} ways to place its threads"
            ));
        }
        Ok(columns)
    }

    /// The sum over columns of what a program progresses in a phase.
    fn terms(&self, program: usize, phase: usize) -> Vec<(usize, f64)> {
        let of = self.progress[program][phase].iter().copied().enumerate();
        of.filter(|&(_, progress)| progress != 0.0).collect()
    }

    /// Schedules with at most this unfairness: parts of the time in each column, and (the last
    /// variable) the least progress of all programs.
    fn schedules(&self, unfairness: Option<f64>) -> LinearProgram {
        let least = self.count;
        let mut program = LinearProgram::new(self.count + 1);
        program.at_most((0..self.count).map(|column| (column, 1.0)).collect(), 1.0);
        let negative = |terms: Vec<(usize, f64)>| terms.into_iter().map(|(v, f)| (v, -f));
        for (index, phases) in self.progress.iter().enumerate() {
            let first = self.terms(index, 0);
            // All phases of a program progress alike.
            for phase in 1..phases.len() {
                let other = self.terms(index, phase);
                let more = first.iter().copied().chain(negative(other.clone()));
                program.at_most(more.collect(), 0.0);
                let less = other.iter().copied().chain(negative(first.clone()));
                program.at_most(less.collect(), 0.0);
            }
            let mut behind: Vec<_> = negative(first.clone()).collect();
            behind.push((least, 1.0));
            program.at_most(behind, 0.0);
            if let Some(unfairness) = unfairness {
                let mut ahead = first;
                ahead.push((least, -unfairness));
                program.at_most(ahead, 0.0);
            }
        }
        program
    }

    /// Whether any schedule has at most this unfairness.
    fn can_be(&self, unfairness: f64) -> Option<bool> {
        let found = self
            .schedules(Some(unfairness))
            .maximise(&[(self.count, 1.0)])?;
        Some(found[self.count] > SOME)
    }

    /// Unfairness and ASP of the schedule with the most ASP among those with at most this
    /// unfairness, or all.
    fn most_asp(&self, unfairness: Option<f64>) -> Option<(f64, f64)> {
        let mut objective = vec![0.0; self.count];
        for (program, worth) in self.worth.iter().enumerate() {
            for (column, progress) in self.terms(program, 0) {
                objective[column] += worth * progress;
            }
        }
        // Of the least progress a little, or nothing asks for any of the slowest program.
        let mut objective: Vec<_> = objective.into_iter().enumerate().collect();
        objective.push((self.count, 1e-6));
        let parts = self.schedules(unfairness).maximise(&objective)?;
        let progress = |program| -> f64 {
            let terms = self.terms(program, 0).into_iter();
            terms
                .map(|(column, progress)| parts[column] * progress)
                .sum()
        };
        let all: Vec<f64> = (0..self.worth.len()).map(progress).collect();
        let most = all.iter().copied().fold(0.0, f64::max);
        let least = all.iter().copied().fold(f64::INFINITY, f64::min);
        let asp = all
            .iter()
            .zip(&self.worth)
            .map(|(progress, worth)| progress * worth - 1.0);
        Some((most / least, asp.sum()))
    }
}

#[cfg(test)]
mod tests {
    use super::search::splits;
    use super::*;

    /// Programs that nothing disturbs, on `big` big and as many small CPUs as are left.
    fn columns(sfs: &[f64], big: usize) -> Columns {
        let n = sfs.len();
        let mut columns = Columns {
            progress: vec![vec![Vec::new()]; n],
            count: 0,
            worth: sfs.to_vec(),
            watts: Vec::new(),
        };
        for set in 0u32..1 << n {
            if set.count_ones() as usize == big {
                for (program, sf) in sfs.iter().enumerate() {
                    let on_big = set >> program & 1 == 1;
                    columns.progress[program][0].push(if on_big { 1.0 } else { 1.0 / sf });
                }
                columns.count += 1;
            }
        }
        columns
    }

    /// As experiments/mix works it out: the share of a big core with which each makes this progress.
    fn evenly(sfs: &[f64], big: f64) -> f64 {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            let shares = sfs.iter().map(|sf| (middle - 1.0 / sf) / (1.0 - 1.0 / sf));
            if shares.map(|s: f64| s.clamp(0.0, 1.0)).sum::<f64>() < big {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }

    #[test]
    fn undisturbed_programs_can_be_even_and_the_fastest_go_by_speedup() {
        let sfs = [1.68, 1.34, 2.79, 1.65, 1.95, 1.68, 2.79, 1.65];
        let best = Best::of(columns(&sfs, 4)).unwrap();
        let even = evenly(&sfs, 4.0);
        let asp: f64 = sfs.iter().map(|sf| sf * even - 1.0).sum();
        assert!(best.fairest.0 < 1.001, "{best:?}");
        assert!(
            (best.fairest.1 - asp).abs() < 2e-3,
            "{} {asp}",
            best.fairest.1
        );
        let most: f64 = [2.79, 2.79, 1.95, 1.68].iter().map(|sf| sf - 1.0).sum();
        assert!(
            (best.fastest.1 - most).abs() < 1e-4,
            "{} {most}",
            best.fastest.1
        );
        assert!(
            best.curve.is_sorted_by(|a, b| a.1 <= b.1 + 1e-6),
            "{:?}",
            best.curve
        );
        let at = best.asp_at(1.3).unwrap();
        assert!(best.fairest.1 <= at && at <= best.fastest.1);
    }

    #[test]
    fn where_one_can_never_be_as_slow_as_another_unfairness_remains() {
        // Two that gain nothing beside one that gains fourfold, and one small CPU too many.
        let best = Best::of(columns(&[1.0, 1.0, 4.0], 1)).unwrap();
        assert!((best.fairest.0 - 1.0).abs() < 1e-3);
        let best = Best::of(columns(&[4.0, 4.0, 1.0], 1)).unwrap();
        // Each of the two has the big core for half of the time: 5/8 of the speed.
        assert!(
            (best.fairest.0 - 8.0 / 5.0).abs() < 1e-3,
            "{:?}",
            best.fairest
        );
    }

    #[test]
    fn threads_are_split_in_all_ways_that_there_is_room_for() {
        assert_eq!(splits(2, &[1, 4, 0, 0], 2), [[0, 2, 0, 0], [1, 1, 0, 0]]);
        assert_eq!(splits(0, &[1, 4, 0, 0], 2), [[0; MAX_CORE_TYPES]]);
        assert!(splits(9, &[1, 4, 0, 0], 2).is_empty());
    }
}
