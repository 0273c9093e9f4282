// SPDX-License-Identifier: GPL-2.0-only
//! Counting a program: the counters of its threads, on every PMU, one set of events at a time.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use super::perf::{GroupReading, How, PerfEvent, What};
use super::totals::{Counted, Slice};
use crate::pmu::{MachinePmus, Plan, Pmu};
use crate::topology::Topology;

/// Where a group of counters counts.
#[derive(Clone, Debug)]
pub(crate) struct CountingPlace<'m> {
    /// The PMU that counts.
    pub pmu: &'m Pmu,
    /// Index of the core type that it counts on.
    pub core_type: usize,
    /// On this CPU alone, else on all that the PMU serves.
    pub cpu: Option<u32>,
}

/// Where to count so that core types can be told apart: with each PMU, and on each CPU by itself
/// where a PMU serves several core types, or where samples are wanted.
pub(crate) fn places<'m>(
    machine: &'m MachinePmus,
    topology: &Topology,
    each_cpu: bool,
) -> Vec<CountingPlace<'m>> {
    let mut places = Vec::new();
    for pmu in &machine.pmus {
        let of = |&cpu: &u32| Some((cpu, topology.cpu(cpu)?.core_type));
        let cpus: Vec<_> = pmu.cpus.iter().filter_map(of).collect();
        let Some(&(_, first)) = cpus.first() else {
            continue;
        };
        if !each_cpu && cpus.iter().all(|&(_, core_type)| core_type == first) {
            places.push(CountingPlace {
                pmu,
                core_type: first,
                cpu: None,
            });
            continue;
        }
        places.extend(cpus.into_iter().map(|(cpu, core_type)| CountingPlace {
            pmu,
            core_type,
            cpu: Some(cpu),
        }));
    }
    places
}

/// The plan for each core type: that of its PMU. One without a PMU counts nothing.
pub(crate) fn plans(
    machine: &MachinePmus,
    topology: &Topology,
    plan: impl Fn(&Pmu) -> Plan,
) -> Vec<Plan> {
    let of = |core_type: &crate::topology::CoreType| machine.pmu_of(core_type.cpus[0]).map(&plan);
    let plans = topology.types.iter().map(|t| of(t).unwrap_or_default());
    plans.collect()
}

/// A group of counters of one thread and what it started, at one place.
#[derive(Debug)]
pub(crate) struct Group {
    leader: PerfEvent,
    /// Open as long as the leader is.
    members: Vec<PerfEvent>,
    before: GroupReading,
}

impl Group {
    /// Opens a group of `what`, each with a sampling period or none.
    pub(crate) fn open(what: &[(What, Option<u64>)], how: How) -> Result<Self> {
        let Some((&(first, period), others)) = what.split_first() else {
            bail!("nothing to count");
        };
        let leader = PerfEvent::open(first, How { period, ..how }, None)?;
        let members = others
            .iter()
            .map(|&(what, period)| PerfEvent::open(what, How { period, ..how }, Some(&leader)));
        Ok(Self {
            members: members.collect::<Result<_>>()?,
            leader,
            before: GroupReading::default(),
        })
    }

    /// The leader and the others.
    pub(crate) fn events(&self) -> (&PerfEvent, &[PerfEvent]) {
        (&self.leader, &self.members)
    }

    /// What was counted since it was last asked.
    pub(crate) fn take(&mut self) -> Result<GroupReading> {
        let now = self.leader.read_group()?;
        let difference = since(&now, &self.before);
        self.before = now;
        Ok(difference)
    }
}

/// What a group counted between two readings.
pub(crate) fn since(now: &GroupReading, before: &GroupReading) -> GroupReading {
    let earlier = before.values.iter().chain(std::iter::repeat(&0));
    let values = now.values.iter().zip(earlier);
    GroupReading {
        enabled: now.enabled.saturating_sub(before.enabled),
        running: now.running.saturating_sub(before.running),
        values: values
            .map(|(now, before)| now.saturating_sub(*before))
            .collect(),
    }
}

#[derive(Debug)]
struct Turns {
    tid: i32,
    core_type: usize,
    /// One for each set.
    groups: Vec<Group>,
}

/// Counters of some threads and of all that they start.
#[derive(Debug)]
pub(crate) struct Counting {
    turns: Vec<Turns>,
    turn: usize,
}

impl Counting {
    /// Opens counters for each of these threads at each of these places, for all sets of the
    /// plans. The first sets count at once, or from `exec` on.
    pub(crate) fn open(
        places: &[CountingPlace],
        plans: &[Plan],
        tids: &[i32],
        how: How,
    ) -> Result<Self> {
        let mut turns = Vec::new();
        for &tid in tids {
            for place in places {
                let open = |(number, set): (usize, &crate::pmu::EventSet)| {
                    let what = set.counters.iter();
                    let what: Vec<_> = what.map(|e| (What::Hardware(place.pmu, e), None)).collect();
                    let how = How {
                        tid,
                        cpu: place.cpu,
                        on_exec: how.on_exec && number == 0,
                        stopped: true,
                        ..how
                    };
                    Group::open(&what, how)
                };
                let sets = plans[place.core_type].sets.iter().enumerate();
                turns.push(Turns {
                    tid,
                    core_type: place.core_type,
                    groups: sets.map(open).collect::<Result<_>>()?,
                });
            }
        }
        turns.retain(|turns| !turns.groups.is_empty());
        if !how.on_exec {
            for turns in &turns {
                turns.groups[0].leader.switch(true)?;
            }
        }
        Ok(Self { turns, turn: 0 })
    }

    /// What was counted since the last time; the next sets' turn begins, where there are several.
    pub(crate) fn next(&mut self) -> Result<Slice> {
        let several = self.turns.iter().any(|turns| turns.groups.len() > 1);
        let (turn, next) = (self.turn, self.turn + 1);
        let of = |turns: &Turns, turn: usize| turn % turns.groups.len();
        if several {
            for turns in &self.turns {
                turns.groups[of(turns, turn)].leader.switch(false)?;
            }
        }
        let mut taken = Vec::with_capacity(self.turns.len());
        for turns in &mut self.turns {
            let set = of(turns, turn);
            taken.push((turns.tid, turns.core_type, set, turns.groups[set].take()?));
        }
        if several {
            for turns in &self.turns {
                turns.groups[of(turns, next)].leader.switch(true)?;
            }
            self.turn = next;
        }
        Ok(combine(taken))
    }
}

/// Adds up what groups counted, each of a thread, on a core type, of a set.
pub(super) fn combine(taken: Vec<(i32, usize, usize, GroupReading)>) -> Slice {
    // Each group of a thread has been enabled for as long as the thread ran.
    let mut ran: BTreeMap<i32, u64> = BTreeMap::new();
    let mut counted: BTreeMap<usize, Counted> = BTreeMap::new();
    for (tid, core_type, set, reading) in taken {
        let longest = ran.entry(tid).or_default();
        *longest = reading.enabled.max(*longest);
        let sum = counted.entry(core_type).or_insert_with(|| Counted {
            core_type,
            set,
            run_ns: 0,
            counts: vec![0; reading.values.len()],
        });
        sum.run_ns += reading.running;
        for (sum, value) in sum.counts.iter_mut().zip(&reading.values) {
            *sum += value;
        }
    }
    Slice {
        run_ns: ran.values().sum(),
        counted: counted.into_values().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(enabled: u64, running: u64, values: &[u64]) -> GroupReading {
        GroupReading {
            enabled,
            running,
            values: values.to_vec(),
        }
    }

    #[test]
    fn a_thread_runs_once_however_many_groups_watch_it() {
        let slice = combine(vec![
            (1, 0, 0, reading(100, 60, &[600, 300])),
            (1, 1, 0, reading(100, 40, &[200, 200])),
            (2, 0, 0, reading(50, 50, &[500, 250])),
            (2, 1, 0, reading(50, 0, &[0, 0])),
        ]);
        assert_eq!(slice.run_ns, 150);
        assert_eq!(slice.counted[0].run_ns, 110);
        assert_eq!(slice.counted[0].counts, [1100, 550]);
        assert_eq!(slice.counted[1].counts, [200, 200]);
    }

    #[test]
    fn a_first_reading_stands_for_itself() {
        let now = reading(100, 90, &[7, 8]);
        assert_eq!(since(&now, &GroupReading::default()), now);
        assert_eq!(since(&now, &now), reading(0, 0, &[0, 0]));
    }
}
