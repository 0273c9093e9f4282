// SPDX-License-Identifier: GPL-2.0-only
//! Samples of single threads: every so many events (`--ebs`), or every few milliseconds of their
//! run time and whenever they stop running (`--per-thread`).
//!
//! The kernel counts each thread by itself and adds it up with all others when asked for the sum;
//! what one thread has counted it tells in samples only. So what a thread does after its last
//! sample is in the sum but not in the thread's own row.

use std::collections::{BTreeMap, HashMap};
use std::fs;

use anyhow::{Context, Result};

use super::counting::{CountingPlace, Group, since};
use super::perf::{GroupReading, How, What};
use super::ring::{DATA, PerfRecord, PerfSample, parse};
use super::totals::{Counted, PmcTotals, Slice};
use crate::pmu::ring::PerfRing;
use crate::pmu::{Event, Plan};
use crate::text::plain;

/// Run time between samples of a thread, ns.
const RUN_TIME: u64 = 4_000_000;

/// What makes a thread give a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// So many events on one CPU.
    Events(Event, u64),
    /// The passing of its run time, and the end of its run.
    Time,
}

/// What a thread counted between two samples on the same CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SampleStep {
    /// The thread.
    pub tid: u32,
    /// Monotonic time, ns.
    pub at_ns: u64,
    /// Where it ran.
    pub cpu: u32,
    /// What it counted since its last sample there.
    pub counted: Counted,
}

/// All that is known of threads from their samples.
#[derive(Debug, Default)]
pub(crate) struct SampledThreads {
    names: HashMap<u32, String>,
    /// The last sample, by thread and CPU.
    last: HashMap<(u32, u32), GroupReading>,
    /// Samples that found no room.
    pub lost: u64,
}

impl SampledThreads {
    /// Takes in a sample. `counters`: how many of the group's values are to be counted.
    fn step(&mut self, sample: PerfSample, core_type: usize, counters: usize) -> SampleStep {
        let before = self.last.entry((sample.tid, sample.cpu)).or_default();
        let mut step = since(&sample.group, before);
        *before = sample.group;
        step.values.truncate(counters);
        SampleStep {
            tid: sample.tid,
            at_ns: sample.at_ns,
            cpu: sample.cpu,
            counted: Counted {
                core_type,
                set: 0,
                run_ns: step.running,
                counts: step.values,
            },
        }
    }

    fn name_is_known(&mut self, pid: u32, tid: u32) {
        if self.names.contains_key(&tid) {
            return;
        }
        let now = fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm"));
        let name = match (now, self.names.get(&pid)) {
            (Ok(name), _) => plain(name.trim()).into_owned(),
            // It has gone; threads start with their process's name.
            (Err(_), Some(name)) => name.clone(),
            (Err(_), None) => return,
        };
        self.names.insert(tid, name);
    }

    /// Name of a thread, or `?` where it was gone before it could be asked.
    pub(crate) fn name(&self, tid: u32) -> &str {
        self.names.get(&tid).map_or("?", String::as_str)
    }
}

struct Watch {
    tid: i32,
    core_type: usize,
    counters: usize,
    ring: PerfRing,
    group: Group,
}

/// Sampling counters of some threads and of all that they start.
pub(crate) struct Sampling {
    watches: Vec<Watch>,
}

impl Sampling {
    /// Opens counters for each of these threads at each of these places, each one CPU.
    pub(crate) fn open(
        places: &[CountingPlace],
        plans: &[Plan],
        tids: &[i32],
        how: How,
        trigger: &Trigger,
    ) -> Result<Self> {
        let mut watches = Vec::new();
        for &tid in tids {
            for place in places {
                let plan = &plans[place.core_type];
                let Some(set) = plan.sets.first() else {
                    continue;
                };
                let how = How {
                    tid,
                    cpu: place.cpu,
                    stopped: true,
                    sampled: true,
                    ..how
                };
                let counters = set.counters.iter();
                let mut what: Vec<_> = counters
                    .map(|encoding| (What::Hardware(place.pmu, encoding), None))
                    .collect();
                match trigger {
                    Trigger::Time => {
                        what.push((What::RunTime, Some(RUN_TIME)));
                        what.push((What::Switches, Some(1)));
                    }
                    Trigger::Events(event, period) => {
                        let (_, counter) = plan
                            .find(event)
                            .filter(|(set, _)| *set == 0)
                            .with_context(|| format!("{} cannot count {event}", place.pmu.name))?;
                        what[counter].1 = Some(*period);
                    }
                }
                let group = Group::open(&what, how)?;
                let (leader, members) = group.events();
                let ring = PerfRing::map(leader, DATA)?;
                for member in members {
                    member.output_to(leader)?;
                }
                watches.push(Watch {
                    tid,
                    core_type: place.core_type,
                    counters: set.counters.len(),
                    ring,
                    group,
                });
            }
        }
        if !how.on_exec {
            for watch in &watches {
                watch.group.events().0.switch(true)?;
            }
        }
        Ok(Self { watches })
    }

    /// The samples that have arrived, by time.
    pub(crate) fn steps(&self, threads: &mut SampledThreads) -> Vec<SampleStep> {
        let mut steps = Vec::new();
        for watch in &self.watches {
            for record in parse(&watch.ring.drain()) {
                match record {
                    PerfRecord::Sample(sample) => {
                        threads.name_is_known(sample.pid, sample.tid);
                        let step = threads.step(sample, watch.core_type, watch.counters);
                        steps.push(step);
                    }
                    PerfRecord::Lost(number) => threads.lost += number,
                    PerfRecord::Name(tid, name) => {
                        threads.names.insert(tid, name);
                    }
                }
            }
        }
        steps.sort_by_key(|step| step.at_ns);
        steps
    }

    /// All that was counted since the last time, of all threads together.
    pub(crate) fn next(&mut self) -> Result<Slice> {
        let taken = self.watches.iter_mut().map(|watch| {
            let mut reading = watch.group.take()?;
            reading.values.truncate(watch.counters);
            Ok((watch.tid, watch.core_type, 0, reading))
        });
        Ok(super::counting::combine(taken.collect::<Result<_>>()?))
    }
}

/// Steps added up, by thread.
pub(crate) type ByThread = BTreeMap<u32, PmcTotals>;

/// Adds a step to its thread.
pub(crate) fn add(threads: &mut ByThread, step: &SampleStep, plans: &[Plan]) {
    let totals = threads
        .entry(step.tid)
        .or_insert_with(|| PmcTotals::new(plans));
    totals.add(&step.counted);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(tid: u32, cpu: u32, running: u64, values: &[u64]) -> PerfSample {
        PerfSample {
            pid: 1,
            tid,
            at_ns: running,
            cpu,
            group: GroupReading {
                enabled: running,
                running,
                values: values.to_vec(),
            },
        }
    }

    #[test]
    fn a_step_is_from_sample_to_sample_of_a_thread_on_a_cpu() {
        let mut threads = SampledThreads::default();
        let mut step = |tid, cpu, running, values: &[u64]| {
            let step = threads.step(sample(tid, cpu, running, values), 0, 2);
            (step.counted.run_ns, step.counted.counts)
        };
        assert_eq!(step(7, 0, 10, &[100, 50, 9]), (10, vec![100, 50]));
        assert_eq!(step(8, 0, 4, &[40, 20, 9]), (4, vec![40, 20]));
        assert_eq!(step(7, 1, 5, &[30, 30, 9]), (5, vec![30, 30]));
        assert_eq!(step(7, 0, 12, &[130, 60, 9]), (2, vec![30, 10]));
    }
}
