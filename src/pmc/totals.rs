// SPDX-License-Identifier: GPL-2.0-only
//! Putting together what was counted: per core type, over turns of several event sets.

use crate::pmu::round::IPC_JUMP;
use crate::pmu::sets::{CYCLES, INSTRUCTIONS};
use crate::pmu::{Event, Meaning, Plan, Round};

/// What counters of one core type said of a slice of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Index of the core type.
    pub core_type: usize,
    /// Number of the set that was counted.
    pub set: usize,
    /// Run time that was counted, ns.
    pub run_ns: u64,
    /// A count for each counter of the set.
    pub counts: Vec<u64>,
}

/// A slice of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slice {
    /// Run time on whatever core type, ns.
    pub run_ns: u64,
    /// What was counted of it, at most once for a core type.
    pub counted: Vec<Counted>,
}

impl Slice {
    /// Run time that was not counted, as another program had the counters.
    fn uncounted_ns(&self) -> u64 {
        let counted: u64 = self.counted.iter().map(|counted| counted.run_ns).sum();
        self.run_ns.saturating_sub(counted)
    }

    /// Whether counters counted all the while, but for what switching and reading them one after
    /// the other makes of it. When they had to yield, it is for milliseconds.
    fn is_valid(&self) -> bool {
        self.uncounted_ns() <= self.run_ns / 50 + 200_000
    }
}

#[derive(Clone, Debug, Default)]
struct Sums {
    run_ns: u64,
    counts: Vec<u64>,
}

/// All that one core type counted.
#[derive(Clone, Debug)]
struct Tally {
    plan: Plan,
    run_ns: u64,
    sets: Vec<Sums>,
    round: Round,
    /// Of complete rounds: instructions, and what each counter of each set counted of them.
    rounds: (f64, Vec<Vec<f64>>),
}

impl Tally {
    fn new(plan: &Plan) -> Self {
        let zeros = |set: &crate::pmu::EventSet| vec![0.0; set.counters.len()];
        let sums = plan.sets.iter().map(|set| Sums {
            run_ns: 0,
            counts: vec![0; set.counters.len()],
        });
        Self {
            sets: sums.collect(),
            run_ns: 0,
            round: Round::new(plan, IPC_JUMP),
            rounds: (0.0, plan.sets.iter().map(zeros).collect()),
            plan: plan.clone(),
        }
    }

    fn push(&mut self, counted: &Counted) {
        let Some(sums) = self.sets.get_mut(counted.set) else {
            return;
        };
        self.run_ns += counted.run_ns;
        sums.run_ns += counted.run_ns;
        for (sum, count) in sums.counts.iter_mut().zip(&counted.counts) {
            *sum += count;
        }
        if self.sets.len() > 1 && self.round.push(counted.set, &counted.counts).complete {
            let instructions = self.round.instructions() as f64;
            self.rounds.0 += instructions;
            for (set, sums) in self.rounds.1.iter_mut().enumerate() {
                for (counter, sum) in sums.iter_mut().enumerate() {
                    let rate = self.round.per_instruction((set, counter));
                    *sum += rate.unwrap_or(0.0) * instructions;
                }
            }
        }
    }

    fn in_all_sets(&self, counter: usize) -> f64 {
        self.sets
            .iter()
            .map(|sums| sums.counts[counter] as f64)
            .sum()
    }

    /// Count of an event, and the share of the time for which it was counted.
    fn value(&self, event: &Event) -> Value {
        let in_all = match event {
            Event::Meaning(Meaning::Instructions) => Some(INSTRUCTIONS),
            Event::Meaning(Meaning::Cycles) => Some(CYCLES),
            Event::Raw(_) | Event::Meaning(_) => None,
        };
        let place = self.plan.find(event);
        if let (Some(counter), false) = (in_all, self.sets.is_empty()) {
            return Value::exact(self.in_all_sets(counter));
        }
        let Some((set, counter)) = place else {
            return Value::default();
        };
        let sums = &self.sets[set];
        if self.run_ns == 0 || sums.run_ns == self.run_ns {
            return Value::exact(sums.counts[counter] as f64);
        }
        let instructions = self.in_all_sets(INSTRUCTIONS);
        let (of, counted) = match self.rounds.0 > 0.0 {
            true => (self.rounds.0, self.rounds.1[set][counter]),
            false => (
                sums.counts[INSTRUCTIONS] as f64,
                sums.counts[counter] as f64,
            ),
        };
        Value {
            count: (of > 0.0).then(|| counted / of * instructions),
            share: sums.run_ns as f64 / self.run_ns as f64,
        }
    }
}

/// A count as it is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Value {
    /// `None`: it was not, or cannot be, counted.
    pub count: Option<f64>,
    /// For which share of the run time it was counted; scaled, where that is less than 1.
    pub share: f64,
}

impl Value {
    fn exact(count: f64) -> Self {
        Self {
            count: Some(count),
            share: 1.0,
        }
    }
}

/// What a row of the output says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OutputRow {
    /// Name of the core type, or `all`.
    pub core_type: String,
    /// Run time that was counted, ns.
    pub run_ns: f64,
    /// The events wished, in their order.
    pub values: Vec<Value>,
    /// Retired instructions.
    pub instructions: f64,
    /// Cycles.
    pub cycles: f64,
    /// Its part of the processors' energy, J, where that is counted.
    pub joules: Option<f64>,
}

impl OutputRow {
    /// Instructions per cycle.
    pub(crate) fn ipc(&self) -> Option<f64> {
        (self.cycles > 0.0).then(|| self.instructions / self.cycles)
    }
}

/// What was counted of a program or of a thread, on each core type.
#[derive(Clone, Debug)]
pub(crate) struct PmcTotals {
    tallies: Vec<Tally>,
    /// Run time that was not counted, and what was counted then is not in the counts, ns.
    pub lost_ns: u64,
}

impl PmcTotals {
    /// Nothing yet. `plans`: one per core type.
    pub(crate) fn new(plans: &[Plan]) -> Self {
        Self {
            tallies: plans.iter().map(Tally::new).collect(),
            lost_ns: 0,
        }
    }

    /// Adds a slice of time, if it was counted.
    pub(crate) fn push(&mut self, slice: &Slice) {
        if !slice.is_valid() {
            self.lost_ns += slice.run_ns;
            return;
        }
        for counted in &slice.counted {
            self.add(counted);
        }
    }

    /// Adds what is known to have been counted.
    pub(crate) fn add(&mut self, counted: &Counted) {
        self.tallies[counted.core_type].push(counted);
    }

    /// Run time that was counted, ns.
    pub(crate) fn run_ns(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.run_ns).sum()
    }

    /// A row for each core type that something ran on, and one for all if there are several.
    pub(crate) fn rows(&self, events: &[Event], names: &[String]) -> Vec<OutputRow> {
        let ran = self.tallies.iter().zip(names).filter(|(t, _)| t.run_ns > 0);
        let mut rows: Vec<OutputRow> = ran
            .map(|(tally, name)| OutputRow {
                core_type: name.clone(),
                run_ns: tally.run_ns as f64,
                values: events.iter().map(|event| tally.value(event)).collect(),
                instructions: tally.in_all_sets(INSTRUCTIONS),
                cycles: tally.in_all_sets(CYCLES),
                joules: None,
            })
            .collect();
        if rows.len() > 1 {
            rows.push(sum(&rows, events.len()));
        }
        rows
    }
}

/// All core types together: an event that one of them could not count has no sum.
fn sum(rows: &[OutputRow], events: usize) -> OutputRow {
    let add = |value: fn(&OutputRow) -> f64| rows.iter().map(value).sum::<f64>();
    let run_ns = add(|row| row.run_ns);
    let values = (0..events).map(|n| {
        let counts = rows.iter().map(|row| row.values[n].count);
        let shares = rows.iter().map(|row| row.values[n].share * row.run_ns);
        Value {
            count: counts.sum::<Option<f64>>(),
            share: shares.sum::<f64>() / run_ns,
        }
    });
    OutputRow {
        core_type: "all".into(),
        run_ns,
        values: values.collect(),
        instructions: add(|row| row.instructions),
        cycles: add(|row| row.cycles),
        joules: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::{Encoding, EventSet};

    fn event(name: &str) -> Event {
        name.parse().unwrap()
    }

    fn plan(sets: &[&[&str]]) -> Plan {
        let set = |names: &&[&str]| EventSet {
            counters: ["i", "c"]
                .iter()
                .chain(*names)
                .map(|n| Encoding::raw(0, n.to_string()))
                .collect(),
            events: names
                .iter()
                .enumerate()
                .map(|(n, name)| (event(name), n + 2))
                .collect(),
        };
        Plan {
            sets: sets.iter().map(set).collect(),
            absent: Vec::new(),
        }
    }

    fn counted(core_type: usize, set: usize, counts: &[u64]) -> Counted {
        Counted {
            core_type,
            set,
            run_ns: 100_000_000,
            counts: counts.to_vec(),
        }
    }

    fn slice(counted: Vec<Counted>) -> Slice {
        Slice {
            run_ns: 100_000_000 * counted.len() as u64,
            counted,
        }
    }

    const NAMES: [&str; 2] = ["P", "E"];

    fn rows(totals: &PmcTotals, events: &[&str]) -> Vec<OutputRow> {
        let events: Vec<_> = events.iter().map(|name| event(name)).collect();
        totals.rows(&events, &NAMES.map(String::from))
    }

    #[test]
    fn core_types_are_rows_and_their_sum_is_another() {
        let plan = plan(&[&["branches"]]);
        let mut totals = PmcTotals::new(&[plan.clone(), plan]);
        totals.push(&slice(vec![counted(0, 0, &[1000, 500, 10])]));
        assert_eq!(rows(&totals, &["branches"]).len(), 1);
        totals.push(&slice(vec![
            counted(1, 0, &[400, 400, 4]),
            counted(0, 0, &[0, 0, 0]),
        ]));
        let rows = rows(&totals, &["cycles", "branches"]);
        let names: Vec<_> = rows.iter().map(|row| row.core_type.as_str()).collect();
        assert_eq!(names, ["P", "E", "all"]);
        assert_eq!(rows[2].values, [Value::exact(900.0), Value::exact(14.0)]);
        assert_eq!(rows[0].ipc(), Some(2.0));
    }

    #[test]
    fn what_was_not_counted_all_the_while_is_left_out_and_told() {
        let mut totals = PmcTotals::new(&[plan(&[&["branches"]])]);
        totals.push(&slice(vec![counted(0, 0, &[1000, 500, 10])]));
        let half = Slice {
            run_ns: 200_000_000,
            ..slice(vec![counted(0, 0, &[1000, 500, 10])])
        };
        totals.push(&half);
        assert_eq!(totals.lost_ns, 200_000_000);
        assert_eq!(rows(&totals, &["branches"])[0].values, [Value::exact(10.0)]);
    }

    #[test]
    fn sets_that_take_turns_are_scaled_by_instructions_and_marked() {
        let mut totals = PmcTotals::new(&[plan(&[&["branches"], &["loads"]])]);
        totals.push(&slice(vec![counted(0, 0, &[1000, 500, 100])]));
        // A program that ended before its turn: nothing to go by.
        assert_eq!(rows(&totals, &["loads"])[0].values[0].count, None);
        totals.push(&slice(vec![counted(0, 1, &[3000, 1500, 600])]));
        let row = &rows(&totals, &["instructions", "branches", "loads"])[0];
        assert_eq!(row.values[0], Value::exact(4000.0));
        assert_eq!(row.values[1].count, Some(400.0));
        assert_eq!(row.values[2].count, Some(800.0));
        assert_eq!(row.values[2].share, 0.5);
    }

    #[test]
    fn a_change_of_phase_is_not_mixed_into_a_round() {
        let mut totals = PmcTotals::new(&[plan(&[&["branches"], &["loads"]])]);
        for (set, counts) in [
            (0, [1000, 500, 100]),
            // Another phase begins: the slice before belongs to no round.
            (1, [1000, 2000, 300]),
            (0, [1000, 2000, 200]),
        ] {
            totals.push(&slice(vec![counted(0, set, &counts)]));
        }
        let row = &rows(&totals, &["branches", "loads"])[0];
        assert_eq!(row.values[0].count, Some(600.0));
        assert_eq!(row.values[1].count, Some(900.0));
    }

    #[test]
    fn an_event_that_one_core_type_lacks_has_no_sum() {
        let mut totals = PmcTotals::new(&[plan(&[&["fp-ops"]]), plan(&[&[]])]);
        totals.push(&slice(vec![
            counted(0, 0, &[10, 5, 1]),
            counted(1, 0, &[10, 5]),
        ]));
        let rows = rows(&totals, &["fp-ops"]);
        let counts: Vec<_> = rows.iter().map(|row| row.values[0].count).collect();
        assert_eq!(counts, [Some(1.0), None, None]);
    }
}
