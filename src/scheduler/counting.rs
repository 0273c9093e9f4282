// SPDX-License-Identifier: GPL-2.0-only
//! Counting while scheduling: the sampler, the ring buffer that feeds it, and what is kept of
//! the samples for people.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libbpf_rs::{RingBuffer, RingBufferBuilder};
use log::{debug, info, warn};
use serde::Serialize;

use super::Options;
use super::samples::SampleLog;
use crate::agent::counted::CountedFor;
use crate::bpf::{BpfSkel, OpenBpfSkel, intf};
use crate::ml::estimates;
use crate::ml::forest::to_number;
use crate::ml::learning::Learning;
use crate::ml::live::LiveEstimator;
use crate::ml::model::Model;
use crate::pmu::sample::Sample;
use crate::pmu::sampler::{SampleTally, Sampler, decode};
use crate::pmu::{Event, MachinePmus, Meaning};
use crate::policy::Policy;
use crate::stats::ProcessCounts;
use crate::table::Task;
use crate::topology::{CoreType, MAX_CORE_TYPES, Topology};

/// Events are chosen, and the BPF half knows how many.
pub(super) struct PlannedEvents {
    sampler: Sampler,
    untold: Vec<Option<String>>,
    live: Option<LiveEstimator>,
    sample: Duration,
}

/// Events are open.
pub(super) struct OpenEvents {
    sampler: Sampler,
    /// What cannot be told of threads on a core type, and why.
    untold: Vec<Option<String>>,
    /// The model at work.
    live: Option<LiveEstimator>,
    sample: Duration,
    ring: RingBuffer<'static>,
    inbox: Rc<RefCell<Vec<intf::task_sample>>>,
    processes: BTreeMap<u32, ProcessCounts>,
}

/// A line of `--samples`.
#[derive(Serialize)]
struct Line<'a> {
    at_ns: u64,
    tid: u32,
    tgid: u32,
    core_type: u8,
    set: u8,
    run_ns: u64,
    discarded_ns: u64,
    counts: &'a [u64],
    last: bool,
    spun: bool,
    /// As estimated when the sample ended.
    slowdown: f64,
    /// By the BPF half, in 1/2^20; 0 where it made no estimate.
    sf: i64,
    /// The same of EF.
    ef: i64,
}

/// What progress is charged by, from its inverse in Q16 (0 is: not known, so 1).
fn slowdown(inverse: u32) -> f64 {
    let one = intf::hetero_consts_INV_SLOWDOWN_ONE;
    let inverse = if inverse == 0 { one } else { inverse };
    f64::from(one) / f64::from(inverse.min(one))
}

/// Where a model says nothing, and why.
fn lacks(live: &LiveEstimator, sampler: &Sampler, topology: &Topology) -> Vec<String> {
    let of_type = |(core_type, kind): (usize, &CoreType)| {
        let Some(events) = live.events(core_type) else {
            return Some(format!(
                "the model says nothing of threads on {}",
                kind.name
            ));
        };
        let lacks: Vec<String> = sampler
            .lacks(core_type, events)
            .iter()
            .map(|event| event.to_string())
            .collect();
        (!lacks.is_empty()).then(|| {
            format!(
                "the model says nothing of threads on {}, for {} cannot be counted there",
                kind.name,
                lacks.join(", ")
            )
        })
    };
    let types = topology.types.iter().enumerate();
    types.filter_map(of_type).collect()
}

impl OpenEvents {
    /// Chooses events, if the policy, its model or the user wants any, and then those of `energy`, too, where
    /// that is counted. Where nothing can be counted, says so once and goes on without.
    pub(super) fn plan(
        skel: &mut OpenBpfSkel,
        topology: &Topology,
        policy: &dyn Policy,
        energy: bool,
        model: Option<&Model>,
        mut learning: Option<&mut Learning>,
        options: &Options,
    ) -> Result<Option<PlannedEvents>> {
        let mut counted = CountedFor {
            asked: &options.events,
            partition: options.partition,
            learns: learning.is_some(),
            energy,
            ..CountedFor::policy(policy, topology)
        };
        if !counted.anything() && options.samples.is_none() {
            return Ok(None);
        }
        let machine = MachinePmus::detect();
        let pmu_of = |core_type: usize| machine.pmu_of(*topology.types[core_type].cpus.first()?);
        let live = match model {
            Some(model) => Some(LiveEstimator::new(model, topology, pmu_of)?),
            None => None,
        };
        let needs = |core_type: usize| {
            live.as_ref()
                .map_or(Vec::new(), |live| live.needs(core_type))
        };
        counted.model = live.as_ref().map(|_| &needs as _);
        let planned = Sampler::plan(
            &machine,
            topology,
            &|core_type, pmu| counted.events(core_type, pmu),
            options.user_only,
            &options.without,
        );
        let sampler = match planned {
            Ok(sampler) => sampler,
            Err(why) => {
                warn!("scheduling without hardware counters: {why:#}");
                if options.partition {
                    warn!("without them no program is confined to few ways of the cache");
                }
                return Ok(None);
            }
        };
        for line in sampler.describe(topology) {
            info!("{line}");
        }
        for line in live.iter().flat_map(|live| lacks(live, &sampler, topology)) {
            warn!("{line}");
        }
        let untold = |core_type| counted.untold(core_type, pmu_of(core_type)?);
        let untold: Vec<_> = (0..topology.types.len()).map(untold).collect();
        for (kind, untold) in topology.types.iter().zip(&untold) {
            if let Some(untold) = untold {
                info!("{}: {untold}", kind.name);
            }
        }
        if let Some(learning) = &mut learning {
            learning.begin(topology, &machine, &sampler);
        }
        if live.is_some() || learning.is_some() {
            estimates::make_room(skel)?;
        }
        skel.maps
            .events
            .set_max_entries(sampler.map_entries())
            .context("cannot size the map of events")?;
        if let Some(rodata) = skel.maps.rodata_data.as_mut() {
            rodata.set_events = sampler.set_events();
            rodata.sample_ns = options.sample.as_nanos() as u64;
        }
        Ok(Some(PlannedEvents {
            sampler,
            untold,
            live,
            sample: options.sample,
        }))
    }

    /// What is counted, by core type, for people.
    pub(super) fn describe(&self, topology: &Topology) -> Vec<String> {
        self.sampler.describe(topology)
    }

    /// Hands the next sets of events their turn; returns the sets that count now.
    pub(super) fn rotate(&mut self) -> [u8; MAX_CORE_TYPES] {
        self.sampler.rotate()
    }

    /// How long a turn is, where events have to take turns.
    pub(super) fn turn(&self) -> Option<Duration> {
        self.sampler.turn(self.sample)
    }

    /// Appends the samples that BPF has sent since the last time, and writes them to `log`.
    pub(super) fn take(&mut self, samples: &mut Vec<Sample>, log: &mut SampleLog) -> Result<()> {
        self.ring.consume().context("cannot read samples")?;
        let mut inbox = self.inbox.borrow_mut();
        for raw in inbox.drain(..) {
            if !self.sampler.admits(&raw) {
                debug!("no CPU can have counted {raw:?}");
                continue;
            }
            let process = self.processes.entry(raw.tgid).or_default();
            process.run_ns += raw.run_ns;
            process.instructions += raw.counts[0];
            process.cycles += raw.counts[1];
            if log.is_open() {
                log.add(&Line {
                    at_ns: raw.at,
                    tid: raw.tid,
                    tgid: raw.tgid,
                    core_type: raw.core_type,
                    set: raw.set,
                    run_ns: raw.run_ns,
                    discarded_ns: raw.discarded_ns,
                    counts: &raw.counts,
                    last: raw.last != 0,
                    spun: raw.spun != 0,
                    slowdown: slowdown(raw.inv_slowdown),
                    sf: raw.sf,
                    ef: raw.ef,
                });
            }
            let live = self.live.as_ref();
            let sample = self.sampler.sample(&raw, |core_type, counts| {
                let sf = live.and_then(|live| match raw.sf {
                    0 => live.estimate(core_type, counts),
                    sf => live.rated(core_type, counts, to_number(sf)),
                });
                let ef = match raw.ef {
                    0 => live.and_then(|live| live.ef(core_type, counts)),
                    ef => live.map(|_| to_number(ef)),
                };
                (sf, ef)
            });
            samples.extend(sample);
        }
        log.flush(Instant::now());
        Ok(())
    }

    /// Forgets tasks and processes that are gone.
    pub(super) fn retain(&mut self, tasks: &[Task]) {
        let ids: BTreeSet<_> = tasks.iter().map(|task| task.id).collect();
        let tgids: BTreeSet<_> = tasks.iter().map(|task| task.tgid).collect();
        self.sampler.retain(|id| ids.contains(&id));
        self.processes.retain(|tgid, _| tgids.contains(tgid));
    }

    /// Sums by process.
    pub(super) fn processes(&self) -> impl Iterator<Item = (u32, ProcessCounts)> + '_ {
        self.processes
            .iter()
            .map(|(&tgid, &counted)| (tgid, counted))
    }

    /// Which of these events no core type counts.
    pub(super) fn lacks(&self, events: &[Meaning], nr_types: usize) -> Vec<Meaning> {
        let is_counted = |meaning: &Meaning| {
            let event = [Event::from(*meaning)];
            (0..nr_types).any(|core_type| self.sampler.lacks(core_type, &event).is_empty())
        };
        let wanted = events.iter().copied();
        wanted.filter(|meaning| !is_counted(meaning)).collect()
    }

    /// Goes by another model from now on.
    ///
    /// # Errors
    /// The model cannot be laid out, or the kernel refuses it.
    pub(super) fn put_to_work(
        &mut self,
        model: &Model,
        topology: &Topology,
        skel: &mut BpfSkel,
    ) -> Result<()> {
        let machine = MachinePmus::detect();
        let pmu_of = |core_type: usize| machine.pmu_of(*topology.types[core_type].cpus.first()?);
        let live = LiveEstimator::new(model, topology, pmu_of)?;
        estimates::hand_over(&live, &self.sampler, skel)?;
        self.live = Some(live);
        Ok(())
    }

    /// What cannot be told of what slows threads down on a core type, and why, in words.
    pub(super) fn untold(&self, core_type: usize) -> Option<&str> {
        self.untold.get(core_type)?.as_deref()
    }

    pub(super) fn has_model(&self) -> bool {
        self.live.is_some()
    }

    pub(super) fn tally(&self) -> SampleTally {
        self.sampler.tally()
    }
}

impl PlannedEvents {
    /// Opens the events. Where that fails, says why once and goes on without.
    pub(super) fn open(mut self, skel: &mut BpfSkel) -> Result<Option<OpenEvents>> {
        if let Err(why) = self.sampler.open(&skel.maps.events) {
            warn!("scheduling without hardware counters: {why:#}");
            return Ok(None);
        }
        if let Some(live) = &self.live {
            estimates::hand_over(live, &self.sampler, skel)?;
        }
        let inbox = Rc::new(RefCell::new(Vec::new()));
        let slot = Rc::clone(&inbox);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&skel.maps.samples, move |bytes| {
                match decode(bytes) {
                    Some(raw) => slot.borrow_mut().push(raw),
                    None => debug!("a record of {} bytes is no sample", bytes.len()),
                }
                0
            })
            .context("cannot listen to samples")?;
        Ok(Some(OpenEvents {
            sampler: self.sampler,
            untold: self.untold,
            live: self.live,
            sample: self.sample,
            ring: builder.build().context("cannot listen to samples")?,
            inbox,
            processes: BTreeMap::new(),
        }))
    }
}
