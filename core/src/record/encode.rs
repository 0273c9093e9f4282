// SPDX-License-Identifier: GPL-2.0-or-later
//! What the policy sees and decides, as records in memory. Touches no file.

use std::mem::take;

use clap::ValueEnum;

use super::format::{
    Begin, Changed, Chosen, Decided, GoalRecord, GoalsLook, JoulesLook, Look, MAGIC, Number,
    Record, RememberedRecord, SampleRecord, SessionName, UndisturbedRecord,
};
use super::{GOALS, GOALS_EACH, JOULES_EACH, PROGRAMS};
use crate::energy::ledger::{EnergyLedger, EnergySums};
use crate::goals::{GoalState, MAX_SESSIONS};
use crate::knowledge::{ThreadProfile, UndisturbedProfile};
use crate::mechanism::Mechanism;
use crate::pmu::Event;
use crate::pmu::sample::Sample;
use crate::policy::{self, Action, Policy, Reason, Settings, Snapshot};
use crate::table::{Task, TaskId};

/// Puts records one after another. What it needs to do so it keeps, so that it allocates no more
/// once it knows the threads.
pub struct Encoder {
    bytes: Vec<u8>,
    tasks: Vec<Task>,
    events: Vec<Event>,
    sample_at: u64,
    sample: SampleRecord,
    look: Look,
    decided: Vec<Decided>,
    carried_out: Vec<bool>,
    /// Numbers of sessions that have been named, in ascending order.
    named: Vec<u64>,
    goals: GoalsLook,
    joules: JoulesLook,
    /// What all, and each process by its id, had taken at the last record of joules.
    taken: (EnergySums, Vec<(u32, f64)>),
}

impl Chosen {
    /// For the record.
    pub fn new(policy: policy::Name, settings: &Settings) -> Self {
        let name = |part: &Mechanism| {
            let value = part.to_possible_value();
            value.map_or_else(String::new, |value| value.get_name().to_string())
        };
        Self {
            policy: policy.to_string(),
            swap_ns: settings.swap_interval.as_nanos() as u64,
            fairness: settings.fairness,
            oversubscribe: settings.oversubscribe,
            objective: settings.objective,
            limits: settings.limits,
            without: settings.without.iter().map(name).collect(),
        }
    }
}

impl Default for Encoder {
    fn default() -> Self {
        Self {
            bytes: MAGIC.to_vec(),
            tasks: Vec::new(),
            events: Vec::new(),
            sample_at: 0,
            sample: SampleRecord::default(),
            look: Look::default(),
            decided: Vec::new(),
            carried_out: Vec::new(),
            named: Vec::new(),
            goals: GoalsLook::default(),
            joules: JoulesLook::default(),
            taken: Default::default(),
        }
    }
}

impl Encoder {
    /// How many bytes have come together.
    pub fn pending(&self) -> usize {
        self.bytes.len()
    }

    /// Takes them; `empty` is filled from now on.
    pub fn take(&mut self, mut empty: Vec<u8>) -> Vec<u8> {
        empty.clear();
        std::mem::replace(&mut self.bytes, empty)
    }

    /// The scheduler begins.
    pub fn begin(&mut self, begin: Begin) {
        let caches = begin.topology.llc_bytes.clone();
        self.put(&Record::Begin(Box::new(begin)));
        if !caches.is_empty() {
            self.put(&Record::Caches(caches));
        }
    }

    /// Another policy decides from now on.
    pub fn policy(&mut self, name: policy::Name, settings: &Settings) {
        self.put(&Record::Policy(Chosen::new(name, settings)));
    }

    /// See [`Record::Fairness`].
    pub fn fairness(&mut self, percent: u8) {
        self.put(&Record::Fairness(percent));
    }

    /// The scheduler ends.
    pub fn end(&mut self) {
        self.put(&Record::End);
    }

    /// The policy is shown a sample.
    pub fn sample(&mut self, sample: &Sample) {
        let mut record = take(&mut self.sample);
        record.counts.clear();
        for (event, value) in sample.counts.iter() {
            if let Some(number) = self.number(event) {
                record.counts.push((number, Number::from(value)));
            }
        }
        record = SampleRecord {
            slot: sample.task.slot,
            generation: sample.task.generation,
            tid: sample.tid,
            tgid: sample.tgid,
            core_type: sample.core_type,
            at: sample.at_ns.wrapping_sub(self.sample_at) as i64,
            run_ns: sample.run_ns,
            last: sample.last,
            counts: record.counts,
            sf: sample.sf,
            ef: sample.ef,
            watts: sample.watts,
        };
        self.sample_at = sample.at_ns;
        let record = Record::Sample(record);
        self.put(&record);
        if let Record::Sample(record) = record {
            self.sample = record;
        }
    }

    /// The number of an event; `None` beyond the 256th.
    fn number(&mut self, event: &Event) -> Option<u8> {
        let known = self.events.iter().position(|known| known == event);
        let number = known.unwrap_or(self.events.len());
        let as_byte = u8::try_from(number).ok()?;
        if known.is_none() {
            self.put(&Record::Event(event.to_string()));
            self.events.push(event.clone());
        }
        Some(as_byte)
    }

    /// The task table was read, by the policy, which decides now, or for the recording alone.
    pub fn look(&mut self, snapshot: &Snapshot, decides: bool) {
        let mut look = take(&mut self.look);
        look.now_ns = snapshot.now_ns;
        look.decides = decides;
        difference(&self.tasks, snapshot.tasks, &mut look);
        self.tasks.clear();
        self.tasks.extend_from_slice(snapshot.tasks);
        let record = Record::Look(look);
        self.put(&record);
        if let Record::Look(look) = record {
            self.look = look;
        }
    }

    /// The policy is told what is known of a task's program.
    pub fn remembered(&mut self, task: &Task, known: &ThreadProfile) {
        let record = RememberedRecord {
            slot: task.id.slot,
            generation: task.id.generation,
            known: *known,
        };
        self.put(&Record::Remembered(Box::new(record)));
    }

    /// It is told what that program did undisturbed.
    pub fn undisturbed(&mut self, task: &Task, known: &UndisturbedProfile) {
        if known.iter().any(Option::is_some) {
            let record = UndisturbedRecord {
                slot: task.id.slot,
                generation: task.id.generation,
                known: *known,
            };
            self.put(&Record::Undisturbed(Box::new(record)));
        }
    }

    /// What the policy decided.
    pub fn decided(&mut self, actions: &[Action], policy: &dyn Policy) {
        let mut decided = take(&mut self.decided);
        decided.clear();
        decided.reserve(2 * self.tasks.len());
        decided.extend(actions.iter().map(|action| Decided {
            action: action.clone(),
            reasons: reasons(action, |task| policy.reason(task)),
        }));
        let record = Record::Decision(decided);
        self.put(&record);
        if let Record::Decision(decided) = record {
            self.decided = decided;
        }
    }

    /// Which of the actions were carried out, in order; those of a decision may come in parts.
    pub fn carried_out(&mut self, outcomes: impl Iterator<Item = bool>) {
        let mut carried_out = take(&mut self.carried_out);
        carried_out.clear();
        carried_out.reserve(2 * self.tasks.len());
        carried_out.extend(outcomes);
        let record = Record::CarriedOut(carried_out);
        self.put(&record);
        if let Record::CarriedOut(carried_out) = record {
            self.carried_out = carried_out;
        }
    }

    /// Says what a session is called, once.
    pub fn session(&mut self, id: u64, pid: u32, name: &str) {
        let Err(at) = self.named.binary_search(&id) else {
            return;
        };
        // Numbers grow: the first ones are those of sessions that ended longest ago.
        if self.named.len() >= 2 * MAX_SESSIONS && at > 0 {
            self.named.remove(0);
        }
        let at = self.named.partition_point(|&named| named < id);
        self.named.insert(at, id);
        let name = name.to_string();
        self.put(&Record::Session(SessionName { id, pid, name }));
    }

    /// How fast programs with goals are at `now_ns`, and what they are given: all [`GOALS_EACH`], and when the
    /// last one has gone.
    pub fn goals(&mut self, now_ns: u64, states: &[GoalState]) {
        let last_are_gone = states.is_empty() && !self.goals.goals.is_empty();
        // They are looked at each 50 ms, or a little later; a clock that begins anew is behind.
        let passed = now_ns.checked_sub(self.goals.now_ns);
        let soon = passed.is_some_and(|ns| u128::from(ns) + 10_000_000 < GOALS_EACH.as_nanos());
        if !last_are_gone && (states.is_empty() || soon) {
            return;
        }
        let mut look = take(&mut self.goals);
        look.now_ns = now_ns;
        look.goals.clear();
        look.goals
            .extend(states.iter().take(GOALS).map(GoalRecord::from));
        let record = Record::Goals(look);
        self.put(&record);
        if let Record::Goals(look) = record {
            self.goals = look;
        }
    }

    /// Whose the joules are that were taken until `now_ns`: each [`JOULES_EACH`], once they are known.
    pub fn joules(&mut self, now_ns: u64, ledger: &EnergyLedger) {
        let Some(sums) = ledger.sums() else { return };
        // A clock that begins anew is behind.
        let passed_ns = now_ns.checked_sub(self.joules.now_ns).unwrap_or(now_ns);
        if u128::from(passed_ns) < JOULES_EACH.as_nanos() {
            return;
        }
        let mut look = take(&mut self.joules);
        let (before, processes) = &mut self.taken;
        let grown = |of: fn(&EnergySums) -> f64| (of(&sums) - of(before)).max(0.0) as f32;
        look = JoulesLook {
            now_ns,
            passed_ns,
            threads: std::array::from_fn(|t| (sums.threads[t] - before.threads[t]).max(0.0) as f32),
            untold: grown(|sums| sums.untold),
            idle: grown(|sums| sums.idle),
            uncore: grown(|sums| sums.uncore),
            programs: look.programs,
        };
        *before = sums;
        look.programs.clear();
        let mut now: Vec<(u32, f64)> = ledger.processes().collect();
        now.sort_unstable_by_key(|&(tgid, _)| tgid);
        for &(tgid, joules) in &now {
            let known = processes.binary_search_by_key(&tgid, |&(tgid, _)| tgid);
            let before = known.map_or(0.0, |at| processes[at].1);
            // An id that another process has now begins at zero.
            let taken = if joules < before {
                joules
            } else {
                joules - before
            };
            if taken > 0.0 {
                look.programs.push((tgid, taken as f32));
            }
        }
        *processes = now;
        look.programs.sort_unstable_by(|a, b| b.1.total_cmp(&a.1));
        look.programs.truncate(PROGRAMS);
        look.programs.sort_unstable_by_key(|&(tgid, _)| tgid);
        let record = Record::Joules(look);
        self.put(&record);
        if let Record::Joules(look) = record {
            self.joules = look;
        }
    }

    fn put(&mut self, record: &Record) {
        append(&mut self.bytes, record);
    }
}

/// Appends a record in postcard's form.
pub fn append(bytes: &mut Vec<u8>, record: &Record) {
    match postcard::to_extend(record, take(bytes)) {
        Ok(longer) => *bytes = longer,
        Err(error) => unreachable!("a vector takes every record of known length: {error}"),
    }
}

/// Why the threads of an action are moved.
pub fn reasons(action: &Action, reason: impl Fn(TaskId) -> Option<Reason>) -> [Option<Reason>; 2] {
    match action {
        Action::Hint(seen, _) => [reason(seen.task), None],
        Action::Swap([(one, _), (other, _)]) => [reason(one.task), reason(other.task)],
        Action::Slowdown(..) | Action::Park(..) | Action::Weight(..) | Action::Join(..) => {
            [None, None]
        }
    }
}

/// Fills in how `new` differs from `old`; both are in ascending order of ids.
fn difference(old: &[Task], new: &[Task], look: &mut Look) {
    look.gone.clear();
    look.whole.clear();
    look.changed.clear();
    let mut old = old.iter().peekable();
    for task in new {
        while let Some(gone) = old.next_if(|old| old.id < task.id) {
            look.gone.push(gone.id);
        }
        match old.next_if(|old| old.id == task.id) {
            Some(before) if before == task => {}
            Some(before) => match Changed::between(before, task) {
                Some(changed) => look.changed.push(changed),
                None => look.whole.push(*task),
            },
            None => look.whole.push(*task),
        }
    }
    look.gone.extend(old.map(|gone| gone.id));
}
