// SPDX-License-Identifier: GPL-2.0-only
//! A recording, run through the policy as it was and as it might have been, side by side.

use std::collections::HashMap;

use anyhow::{Result, bail};

use super::player::{Changes, Player};
use super::sums::{Ran, Sums};
use crate::record::format::{Begin, Decided};
use crate::record::{Input, RecordReader};
use crate::table::{Comm, Task, TaskId};
use crate::topology::{MAX_CORE_TYPES, Topology};

/// What came of it.
pub struct ReplayComparison {
    /// How the recording began.
    pub begin: Begin,
    /// Its length, ns.
    pub length_ns: u64,
    /// The policies that decided in it, in turn.
    pub policies: Vec<String>,
    /// What they are replaced by.
    pub replayed_policy: String,
    /// What was decided.
    pub recorded: Sums,
    /// What would have been.
    pub replayed: Sums,
    /// Whether the recorded policies, run again, decide as they did.
    pub check: Reproduced,
    /// The first moves that only one of both makes.
    pub differences: Vec<Difference>,
    /// And how many there are.
    pub all_differences: u64,
    /// What is to be said of the recording's end.
    pub complaint: Option<String>,
}

/// Decisions that came out as recorded when the recorded policies were run again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reproduced {
    /// So many.
    pub same: u64,
    /// Of so many.
    pub all: u64,
    /// When the first did not, ns.
    pub first_other_ns: Option<u64>,
}

/// A move that only one of both makes.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// ns since the recording began.
    pub at_ns: u64,
    /// It was made; else it would have been.
    pub recorded: bool,
    /// Thread id.
    pub tid: u32,
    /// Its name.
    pub comm: String,
    /// From this core type, index.
    pub from: usize,
    /// To this one.
    pub to: usize,
    /// Thread id of the one that it changes places with.
    pub with: Option<u32>,
    /// Why, in words.
    pub why: Option<String>,
}

struct Run {
    topology: Topology,
    as_recorded: Player,
    other: Player,
    /// Run time of each task by core type at the last look, ns.
    before: HashMap<TaskId, [u64; MAX_CORE_TYPES]>,
    ran: Vec<Ran>,
    /// The decision of this moment: as recorded, and how much of it was carried out.
    decided: Option<Vec<Decided>>,
    done: Vec<bool>,
    /// The same, and the other's, run again.
    again: Option<Vec<Decided>>,
    replayed: Option<Vec<Decided>>,
    /// Thread id and name of every task that was seen.
    names: HashMap<TaskId, (u32, Comm)>,
    at_ns: u64,
    looked: bool,
}

/// Reads all of a recording; keeps the first `most` differences.
///
/// # Errors
/// It does not make sense, or names a policy that there is not.
pub fn compare(
    reader: &mut RecordReader,
    changes: Changes,
    most: usize,
) -> Result<ReplayComparison> {
    let first = reader.next_input()?;
    let Some(Input::Begin(begin)) = first else {
        bail!("the recording ends before the scheduler begins");
    };
    let mut out = ReplayComparison {
        length_ns: 0,
        policies: vec![begin.chosen.policy.clone()],
        replayed_policy: String::new(),
        recorded: Sums::default(),
        replayed: Sums::default(),
        check: Reproduced::default(),
        differences: Vec::new(),
        all_differences: 0,
        complaint: None,
        begin: *begin,
    };
    let mut run = Run {
        topology: out.begin.topology.clone(),
        as_recorded: Player::new(&out.begin, Changes::default())?,
        other: Player::new(&out.begin, changes)?,
        before: HashMap::new(),
        ran: Vec::new(),
        decided: None,
        done: Vec::new(),
        again: None,
        replayed: None,
        names: HashMap::new(),
        at_ns: 0,
        looked: false,
    };
    while let Some(input) = reader.next_input()? {
        match input {
            Input::Begin(begin) => {
                run.settle(&mut out, most);
                run.topology = begin.topology.clone();
                run.as_recorded.begin(&begin)?;
                run.other.begin(&begin)?;
                run.looked = false;
                if !begin.kept {
                    out.recorded.forget_threads();
                    out.replayed.forget_threads();
                }
            }
            Input::Policy(chosen) => {
                run.settle(&mut out, most);
                run.as_recorded.switch(&chosen)?;
                run.other.switch(&chosen)?;
                out.recorded.forget_wishes();
                if changes.policy.is_none() {
                    out.replayed.forget_wishes();
                }
                out.policies.push(chosen.policy);
            }
            Input::Fairness(percent) => {
                run.as_recorded.fairness(percent);
                run.other.fairness(percent);
            }
            Input::Sample(sample) => {
                run.as_recorded.observe(&sample);
                run.other.observe(&sample);
            }
            Input::Look {
                now_ns,
                decides,
                at_ns,
            } => {
                run.settle(&mut out, most);
                run.look(reader.tasks(), now_ns, decides, at_ns, &mut out);
            }
            Input::Decision(decided) => {
                run.decided = Some(decided);
                run.done.clear();
            }
            Input::CarriedOut(outcomes) => run.done.extend(outcomes),
            Input::Remembered(task, known) => {
                run.as_recorded.remember(task, &known);
                run.other.remember(task, &known);
            }
            Input::Undisturbed(task, known) => {
                run.as_recorded.remember_undisturbed(task, &known);
                run.other.remember_undisturbed(task, &known);
            }
            Input::Caches(sizes) => {
                run.as_recorded.set_caches(sizes.clone());
                run.other.set_caches(sizes);
            }
            Input::Energy(_) | Input::Session(_) | Input::Goals { .. } | Input::Joules(..) => {}
        }
    }
    run.settle(&mut out, most);
    out.length_ns = run.at_ns;
    out.replayed_policy = run.other.name().to_string();
    out.complaint = reader.complaint();
    Ok(out)
}

impl Run {
    fn look(
        &mut self,
        tasks: &[Task],
        now_ns: u64,
        decides: bool,
        at_ns: u64,
        out: &mut ReplayComparison,
    ) {
        if self.looked {
            self.ran.clear();
            for (index, task) in tasks.iter().enumerate().filter(|(_, task)| !task.kthread) {
                let Some(before) = self.before.get(&task.id) else {
                    continue;
                };
                let mut on_ns = [0; MAX_CORE_TYPES];
                for (ran, (now, before)) in on_ns.iter_mut().zip(task.run_ns.iter().zip(before)) {
                    *ran = now.saturating_sub(*before);
                }
                if on_ns.iter().all(|&ns| ns == 0) {
                    continue;
                }
                // Both are judged by one measure, which is the same whatever replays.
                self.ran.push(Ran {
                    index,
                    on_ns,
                    insight: self.as_recorded.insight(task),
                });
            }
            let passed = at_ns - self.at_ns;
            let (topology, ran) = (&self.topology, &self.ran);
            out.recorded.ran(topology, tasks, ran, passed);
            out.replayed.ran(topology, tasks, ran, passed);
        }
        self.before.clear();
        self.before
            .extend(tasks.iter().map(|task| (task.id, task.run_ns)));
        self.names
            .extend(tasks.iter().map(|task| (task.id, (task.tid, task.comm))));
        (self.at_ns, self.looked) = (at_ns, true);
        let again = self.as_recorded.look(now_ns, tasks, decides);
        self.again = again.map(<[_]>::to_vec);
        let replayed = self.other.look(now_ns, tasks, decides);
        self.replayed = replayed.map(<[_]>::to_vec);
    }

    /// Takes stock of what was decided after the last look, now that all of it has been read.
    fn settle(&mut self, out: &mut ReplayComparison, most: usize) {
        // A decision that is not there was cut off, and says nothing.
        let recorded = self.decided.take();
        let done = std::mem::take(&mut self.done);
        if let (Some(again), Some(recorded)) = (self.again.take(), &recorded) {
            out.recorded
                .decided(recorded, |place| done.get(place) == Some(&true));
            out.check.all += 1;
            if *recorded == again {
                out.check.same += 1;
            } else {
                out.check.first_other_ns.get_or_insert(self.at_ns);
            }
        }
        let recorded = recorded.unwrap_or_default();
        let replayed = self.replayed.take();
        if let Some(replayed) = &replayed {
            // What was decided in the recording, too, became what it became there.
            out.replayed.decided(replayed, |place| {
                let same = recorded.iter().position(|one| *one == replayed[place]);
                same.is_none_or(|place| done.get(place) == Some(&true))
            });
        }
        let replayed = replayed.unwrap_or_default();
        for (one, other, is_recorded) in
            [(&recorded, &replayed, true), (&replayed, &recorded, false)]
        {
            for decided in one.iter().filter(|decided| !other.contains(decided)) {
                self.differ(decided, is_recorded, out, most);
            }
        }
    }

    fn differ(&self, decided: &Decided, recorded: bool, out: &mut ReplayComparison, most: usize) {
        let all: Vec<_> = decided.moves().collect();
        for (place, &(id, from, to, why)) in all.iter().enumerate() {
            // To be wished where it is, is no move.
            if from == to {
                continue;
            }
            out.all_differences += 1;
            if out.differences.len() >= most {
                continue;
            }
            let name = |id: &TaskId| self.names.get(id).copied().unwrap_or_default();
            let partner = all.get(1 - place).filter(|_| all.len() == 2);
            let (tid, comm) = name(&id);
            out.differences.push(Difference {
                at_ns: self.at_ns,
                recorded,
                tid,
                comm: comm.to_string(),
                from,
                to,
                with: partner.map(|(id, ..)| name(id).0),
                why: why.map(|why| why.words()),
            });
        }
    }
}
