// SPDX-License-Identifier: GPL-2.0-only
//! The BPF half in the kernel, as the agent sees it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail};
use libbpf_rs::{ProgramInput, ProgramMut};
use log::debug;
use nix::sched::sched_getaffinity;
use nix::unistd::Pid;

use super::counting::OpenEvents;
use super::encode::{allot, encode, outcome};
use super::goals::ProgramGoals;
use super::recording::Recording;
use super::rules::RulesFile;
use super::samples::SampleLog;
use crate::agent::{Allotment, Author, Backend, Belongs, Outcome, SessionBeats, Verdict};
use crate::bpf::{BpfSkel, intf};
use crate::energy::Energy;
use crate::knowledge::Familiar;
use crate::pmu::sample::Sample;
use crate::policy::Action;
use crate::record::Encoder;
use crate::table::{self, Task, TaskId};
use crate::topology::{CpuMask, MAX_CORE_TYPES, Topology};
use hetero_core::energy::reading::EnergyReading;
use hetero_core::goals::{SessionId, SessionPlace};
use hetero_core::knowledge::{Remembered, ThreadFinding};

/// How often sensors are read at most, while the agent is awake anyway.
const SENSORS_STEP: Duration = Duration::from_millis(200);

/// Reading them takes this part of the time at most: some are behind a slow bus.
const SENSORS_PART: u32 = 100;

/// See the module.
pub(super) struct BpfHalf<'a> {
    pub(super) skel: BpfSkel<'a>,
    pub(super) counting: Option<OpenEvents>,
    pub(super) rules: RulesFile,
    pub(super) recording: &'a mut Recording,
    pub(super) log: &'a mut SampleLog,
    pub(super) reader: table::TableReader,
    pub(super) programs: &'a mut ProgramGoals,
    pub(super) familiar: &'a mut Option<Familiar>,
    pub(super) sensors: EnergySensors,
    pub(super) began_ns: u64,
    /// When the agent's time began.
    pub(super) started: Instant,
}

/// The energy sensors, and when they may be read again.
pub(super) struct EnergySensors {
    energy: Energy,
    nr_cpu_ids: u32,
    due: Instant,
    busy_ns: [u64; MAX_CORE_TYPES],
}

impl EnergySensors {
    pub(super) fn find(topology: &Topology) -> Self {
        let energy = Energy::below(Path::new("/"), Some(topology));
        energy.say();
        Self {
            energy,
            nr_cpu_ids: topology.nr_cpu_ids,
            due: Instant::now(),
            busy_ns: [0; MAX_CORE_TYPES],
        }
    }

    /// What they are.
    pub(super) fn energy(&self) -> &Energy {
        &self.energy
    }
}

impl Backend for BpfHalf<'_> {
    type Error = Error;

    fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    fn samples(&mut self, samples: &mut Vec<Sample>) -> Result<()> {
        match &mut self.counting {
            Some(counting) => counting.take(samples, self.log),
            None => Ok(()),
        }
    }

    fn snapshot(&mut self, tasks: &mut Vec<Task>) {
        let now_ns = self.now();
        let maps = &self.skel.maps;
        if let (Some(bss), Some(table)) = (&maps.bss_data, &maps.bss_slots_data) {
            let used = bss.nr_slots_used as usize;
            self.programs.begin_look(now_ns);
            self.reader.snapshot(&table.slots, used, tasks);
        }
    }

    fn apply(&mut self, actions: &[Action], by: Author, outcomes: &mut Vec<Outcome>) -> Result<()> {
        let mut batches = actions.chunks(intf::hetero_consts_MAX_ACTIONS as usize);
        batches.try_for_each(|batch| self.apply_batch(batch, by, outcomes))
    }

    fn adopt(&mut self, session: SessionId, place: SessionPlace) {
        let program = &self.skel.progs.join_session;
        self.programs.adopt(program, session, place);
    }

    fn allot(&mut self, session: SessionPlace, allotment: Allotment) {
        let maps = &mut self.skel.maps;
        if let (Some(bss), Some(table)) = (&mut maps.bss_data, &mut maps.bss_sessions_data) {
            allot(
                &mut table.sessions,
                &mut bss.nr_sessions,
                session,
                allotment,
            );
        }
    }

    fn spent_ns(&self, session: SessionPlace) -> u64 {
        let table = self.skel.maps.bss_sessions_data.as_ref();
        let session = table.and_then(|table| table.sessions.get(session.place()));
        session.map_or(0, |session| session.spent_ns)
    }

    fn sessions(&mut self, sessions: &mut Vec<SessionBeats>) {
        self.programs.sessions(self.began_ns, &self.rules, sessions);
        if let Some(recording) = self.recording.encoder() {
            self.programs.name_in(recording);
        }
    }

    fn place_of(&self, task: TaskId) -> SessionPlace {
        let table = self.skel.maps.bss_slots_data.as_ref();
        let slot = table.and_then(|table| table.slots.get(task.slot as usize));
        slot.map_or(SessionPlace::NONE, |slot| slot.session.into())
    }

    fn session_of(&mut self, task: &Task) -> Belongs {
        self.programs.session_of(task)
    }

    fn cpus_of(&mut self, task: &Task) -> Option<CpuMask> {
        let cpus = sched_getaffinity(Pid::from_raw(task.tid as i32)).ok()?;
        let all = 0..self.sensors.nr_cpu_ids;
        let those = all.filter(|&cpu| cpus.is_set(cpu as usize).unwrap_or(false));
        Some(those.collect())
    }

    fn energy(&mut self) -> Option<EnergyReading> {
        let now = Instant::now();
        if now < self.sensors.due || !self.sensors.energy.has_any() {
            return None;
        }
        let busy_ns = self.busy_ns(self.sensors.nr_cpu_ids);
        let EnergySensors {
            energy,
            due,
            busy_ns: seen,
            ..
        } = &mut self.sensors;
        let before = std::mem::replace(seen, busy_ns);
        let sum = |busy_ns: [u64; MAX_CORE_TYPES]| busy_ns.iter().sum::<u64>();
        let grown = sum(busy_ns).saturating_sub(sum(before));
        energy.look(now, grown as f64 / 1e9);
        *due = now + SENSORS_STEP.max(SENSORS_PART * energy.took());
        Some(EnergyReading {
            busy_ns,
            ..energy.reading()
        })
    }

    fn verdict(&mut self, task: &Task) -> Option<Verdict> {
        self.rules.of(task)
    }

    fn remembers(&self) -> bool {
        self.familiar.is_some()
    }

    fn remembered(&mut self, task: &Task) -> Remembered<'_> {
        let familiar = self.familiar.as_mut();
        familiar.map_or(Remembered::Nothing, |familiar| familiar.remembered(task))
    }

    fn keep(&mut self, task: &Task, found: &ThreadFinding) -> bool {
        let familiar = self.familiar.as_mut();
        familiar.is_none_or(|familiar| familiar.keep(task, found))
    }

    fn is_unlike(&mut self, task: &Task) {
        if let Some(familiar) = self.familiar.as_mut() {
            familiar.say_unlike(task);
        }
    }

    fn recording(&mut self) -> Option<&mut Encoder> {
        self.recording.encoder()
    }
}

impl BpfHalf<'_> {
    fn apply_batch(
        &mut self,
        actions: &[Action],
        by: Author,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<()> {
        let Some(data) = self.skel.maps.bss_actions_data.as_mut() else {
            bail!("the action batch is not mapped");
        };
        let batch = &mut data.action_batch;
        for (entry, action) in batch.actions.iter_mut().zip(actions) {
            *entry = encode(action, by);
        }
        batch.nr = actions.len() as u32;
        let outcome_of_all = self
            .skel
            .progs
            .apply_actions
            .test_run(ProgramInput::default())
            .context("the kernel refused a batch of actions")?;
        if outcome_of_all.return_value != 0 {
            bail!(
                "applying actions failed with {}",
                outcome_of_all.return_value as i32
            );
        }
        let Some(data) = self.skel.maps.bss_actions_data.as_ref() else {
            return Ok(());
        };
        for (entry, action) in data.action_batch.actions.iter().zip(actions) {
            let outcome = outcome(entry.result);
            if outcome == Outcome::Refused {
                debug!("{action:?} was refused ({})", entry.result);
            }
            outcomes.push(outcome);
        }
        Ok(())
    }

    /// How long all of the first CPUs have been busy on each core type, together, ns.
    pub(super) fn busy_ns(&self, nr_cpu_ids: u32) -> [u64; MAX_CORE_TYPES] {
        let mut busy_ns = [0; MAX_CORE_TYPES];
        if let Some(bss) = &self.skel.maps.bss_data {
            for cpu in &bss.cpu_ctxs[..nr_cpu_ids as usize] {
                for (sum, ns) in busy_ns.iter_mut().zip(cpu.busy_ns) {
                    *sum += ns;
                }
            }
        }
        busy_ns
    }

    /// Tells it that the agent is silent because it sleeps, or no longer does.
    pub(super) fn set_asleep(&mut self, asleep: bool) {
        if let Some(bss) = &mut self.skel.maps.bss_data {
            bss.agent_sleeps = asleep.into();
        }
    }

    /// Gives other events their turn, where not all fit at once.
    pub(super) fn rotate(&mut self) {
        if let (Some(counting), Some(bss)) = (&mut self.counting, &mut self.skel.maps.bss_data) {
            bss.current_set = counting.rotate();
        }
    }
}

/// Runs a program of the BPF half on a request, the C struct as it lies in memory; what it returns.
///
/// # Errors
/// The kernel refuses.
pub(super) fn request(program: &ProgramMut, context: &mut [u8]) -> libbpf_rs::Result<i32> {
    let outcome = program.test_run(ProgramInput {
        context_in: Some(context),
        ..Default::default()
    })?;
    Ok(outcome.return_value as i32)
}

/// Tells the BPF half that the agent is alive; a second without it, and hints are void.
pub(super) fn beat(skel: &mut BpfSkel) {
    if let (Some(bss), Some(now)) = (skel.maps.bss_data.as_mut(), monotonic()) {
        bss.agent_seen = now.as_nanos() as u64;
    }
}

/// The monotonic clock, as the BPF half and programs have it.
pub(super) fn monotonic() -> Option<Duration> {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    now.ok().map(Duration::from)
}
