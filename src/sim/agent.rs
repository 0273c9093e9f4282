// SPDX-License-Identifier: GPL-2.0-only
//! What the agent watches and acts on ([`crate::agent`]): the natively compiled BPF half.
//!
//! Here the agent takes no time and is never late. The live one runs beside the threads it schedules.

use std::convert::Infallible;

use rustc_hash::FxHashMap;

use super::caches::CacheTruth;
use super::counted::SimulatedEvents;
use super::goals::SimulatedGoals;
use super::kernel::BEGIN_NS;
use super::knowledge::SimulatedKnowledge;
use super::model::{STATED, SimulatedModel};
use super::native;
use super::partition::SimulatedPartition;
use crate::agent::{Allotment, Author, Backend, Belongs, Outcome, SessionBeats};
use crate::bpf::intf;
use crate::pmu::sample::{Sample, SampleWatts};
use crate::pmu::sampler::complete;
use crate::policy::Action;
use crate::record::format::Begin;
use crate::record::{Encoder, FLUSH};
use crate::scheduler::encode::{encode, outcome};
use crate::table::{TableReader, Task, TaskId};
use crate::topology::CpuMask;
use hetero_core::energy::reading::EnergyReading;
use hetero_core::goals::{SessionId, SessionPlace};
use hetero_core::knowledge::{Remembered, ThreadFinding};

/// A recording in memory: records as they go to a file, half a second's together.
pub(super) struct MemoryRecording {
    encoder: Encoder,
    parts: Vec<Vec<u8>>,
    flushed_ns: u64,
}

impl MemoryRecording {
    /// With what comes first.
    pub(super) fn new(begin: Begin) -> Self {
        let mut encoder = Encoder::default();
        encoder.begin(begin);
        Self {
            encoder,
            parts: Vec::new(),
            flushed_ns: 0,
        }
    }

    /// Ends a part, if the last one was long enough ago.
    pub(super) fn flush(&mut self, now_ns: u64) {
        if now_ns - self.flushed_ns >= FLUSH.as_nanos() as u64 {
            self.parts.push(self.encoder.take(Vec::new()));
            self.flushed_ns = now_ns;
        }
    }

    /// All of it.
    pub(super) fn end(mut self) -> Vec<Vec<u8>> {
        self.encoder.end();
        self.parts.push(self.encoder.take(Vec::new()));
        self.parts
    }
}

/// What the BPF half has told, until the agent takes it.
pub(super) struct Told {
    /// Where its samples have an SF from.
    model: Option<SimulatedModel>,
    /// What is counted.
    pub(super) events: SimulatedEvents,
    inbox: Vec<Sample>,
    reader: TableReader,
    /// What the model said of tasks' latest samples.
    sf: FxHashMap<TaskId, f64>,
    /// Energy is counted.
    pub(super) has_sensor: bool,
    /// What its sensor says now.
    pub(super) reading: Option<EnergyReading>,
    /// How fast programs are to be.
    pub(super) goals: SimulatedGoals,
    /// What is recorded, if it is to be.
    pub(super) recording: Option<MemoryRecording>,
    /// What is known of programs, if anything is to be.
    pub(super) knowledge: Option<SimulatedKnowledge>,
    /// Where estimates of what threads hold of caches are compared with the truth, if they are to be.
    pub(super) caches: Option<CacheTruth>,
    /// Which programs are confined to few ways of caches, if any are to be.
    pub(super) partition: Option<SimulatedPartition>,
}

impl Told {
    /// Nothing yet.
    pub(super) fn new(
        model: Option<SimulatedModel>,
        events: SimulatedEvents,
        recording: Option<MemoryRecording>,
    ) -> Self {
        Self {
            model,
            events,
            inbox: Vec::new(),
            reader: TableReader::default(),
            sf: FxHashMap::default(),
            has_sensor: false,
            reading: None,
            goals: SimulatedGoals::default(),
            recording,
            knowledge: None,
            caches: None,
            partition: None,
        }
    }

    /// Takes note of a sample that the BPF half has sent, of a thread whose phase is the `load`-th on
    /// this machine and has an SF of `sf`, and that EF and those watts if the machine's file says what it takes.
    pub(super) fn note(
        &mut self,
        raw: &intf::task_sample,
        load: usize,
        (sf, energy): (f64, Option<(f64, f64)>),
    ) {
        let core_type = usize::from(raw.core_type);
        let counts = self.events.counts(core_type, raw.counts.into_iter());
        let model = self.model.as_ref();
        let sf = model.map(|model| model.sf(sf, load, core_type));
        let known = model.zip(energy);
        let ef = known.map(|(model, (ef, _))| model.ef(ef, load, core_type));
        let Some(mut sample) = complete(raw, counts, sf, ef) else {
            return;
        };
        sample.watts = known
            .filter(|_| !self.has_sensor)
            .map(|(model, (_, watts))| {
                let watts = model.watts(watts, load, core_type);
                SampleWatts::on(core_type, watts, STATED * watts)
            });
        match sample.sf {
            _ if sample.last => _ = self.sf.remove(&sample.task),
            Some(said) => _ = self.sf.insert(sample.task, said.sf),
            None => {}
        }
        self.inbox.push(sample);
    }
}

/// The BPF half at a moment, as the agent sees it.
pub(super) struct SimulatedHalf<'h> {
    pub(super) native: &'h native::NativeKernel,
    pub(super) told: &'h mut Told,
    /// Time of the simulation, ns.
    pub(super) at: u64,
}

impl Backend for SimulatedHalf<'_> {
    type Error = Infallible;

    fn now(&self) -> u64 {
        self.at - BEGIN_NS
    }

    fn samples(&mut self, samples: &mut Vec<Sample>) -> Result<(), Infallible> {
        samples.append(&mut self.told.inbox);
        Ok(())
    }

    fn snapshot(&mut self, tasks: &mut Vec<Task>) {
        let (slots, used) = self.native.half().slots();
        self.told.reader.snapshot(slots, used, tasks);
        for task in tasks {
            task.sf = self.told.sf.get(&task.id).copied();
        }
    }

    /// In batches, as the live one does.
    fn apply(
        &mut self,
        actions: &[Action],
        by: Author,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), Infallible> {
        self.native.advance(self.at - self.native.now());
        for batch in actions.chunks(intf::hetero_consts_MAX_ACTIONS as usize) {
            let encoded: Vec<_> = batch.iter().map(|action| encode(action, by)).collect();
            let done = self.native.apply(&encoded, 0);
            outcomes.extend(done.iter().map(|entry| outcome(entry.result)));
        }
        Ok(())
    }

    fn adopt(&mut self, session: SessionId, place: SessionPlace) {
        if let Some(tgid) = self.told.goals.head_of(session) {
            self.native.join_session(tgid, tgid, place);
        }
    }

    fn allot(&mut self, session: SessionPlace, allotment: Allotment) {
        self.native.half().allot(session, allotment);
    }

    fn spent_ns(&self, session: SessionPlace) -> u64 {
        self.native.half().spent_ns(session)
    }

    fn sessions(&mut self, sessions: &mut Vec<SessionBeats>) {
        let Told {
            goals, recording, ..
        } = &mut *self.told;
        goals.beats(sessions);
        if let Some(recording) = recording {
            goals.name_in(&mut recording.encoder);
        }
    }

    fn place_of(&self, task: TaskId) -> SessionPlace {
        let (slots, _) = self.native.half().slots();
        slots[task.slot as usize].session.into()
    }

    fn session_of(&mut self, task: &Task) -> Belongs {
        let sessions = &self.told.goals.sessions;
        let found = sessions.get(&task.tgid);
        found.map_or(Belongs::ToNone, |&id| Belongs::To(id))
    }

    fn cpus_of(&mut self, task: &Task) -> Option<CpuMask> {
        let task = self.native.task_of(task.tid as i32)?;
        Some(self.native.allowed(task))
    }

    fn remembers(&self) -> bool {
        self.told.knowledge.is_some()
    }

    fn remembered(&mut self, task: &Task) -> Remembered<'_> {
        let knowledge = self.told.knowledge.as_mut();
        knowledge.map_or(Remembered::Nothing, |knowledge| knowledge.of(task))
    }

    fn keep(&mut self, task: &Task, found: &ThreadFinding) -> bool {
        if let Some(knowledge) = &mut self.told.knowledge {
            knowledge.keep(task, found);
        }
        true
    }

    fn is_unlike(&mut self, _: &Task) {
        if let Some(knowledge) = &mut self.told.knowledge {
            knowledge.is_unlike();
        }
    }

    fn energy(&mut self) -> Option<EnergyReading> {
        self.told.reading.take()
    }

    fn recording(&mut self) -> Option<&mut Encoder> {
        let recording = self.told.recording.as_mut()?;
        Some(&mut recording.encoder)
    }
}
