// SPDX-License-Identifier: GPL-2.0-or-later
//! What threads take beyond what their counts say: busy ones have a term of their own in the model, which begins with what earlier
//! runs of their program told, and is told to the next ones.

use super::EnergyLedger;
use super::known::{self, Known};
use crate::energy::model::{OWNERS, PowerModel, own_spread};
use crate::knowledge::Sure;
use crate::table::{Task, TaskId};
use crate::topology::MAX_CORE_TYPES;

/// A thread that runs for so much of an interval gets a term of its own, which it loses when it has not run on that
/// core type for so long, ns.
const OWNS: f32 = 0.2;
const OWNS_FOR: u64 = 60_000_000_000;

/// What has a term of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) id: TaskId,
    pub(super) core_type: usize,
    /// When it last ran there, ns.
    ran_ns: u64,
}

/// What a thread takes on a core type over what its counts say there, apart from what its term tells at present.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnPast {
    /// As earlier runs of its program were.
    told: Option<Sure>,
    /// As it was itself, by terms that it has no longer.
    found: Option<Sure>,
}

impl OwnPast {
    /// What its term is expected to be, before it has one.
    pub(super) fn expected(&self) -> Sure {
        let both = [self.told, self.found].into_iter().flatten();
        both.fold(own_spread(), Sure::with)
    }
}

impl Known {
    /// What its term on a core type told of it so far, beside what it was expected to be.
    fn tells(&self, core_type: usize, model: &PowerModel) -> Option<Sure> {
        let owner = self.own[core_type]?;
        let (watts, _) = self.counted(core_type, model)?;
        model.own_tells(owner.into(), watts)
    }

    /// The same with what earlier terms told.
    fn found(&self, core_type: usize, model: &PowerModel) -> Option<Sure> {
        let before = self.past[core_type].found;
        match self.tells(core_type, model) {
            Some(now) => Some(before.map_or(now, |before| before.with(now))),
            None => before,
        }
    }
}

impl EnergyLedger {
    /// Takes note of what threads of a thread's program took in earlier runs, by core type, over what their counts said: in the place
    /// of what was said before.
    pub fn remember(&mut self, task: &Task, told: &[Option<Sure>; MAX_CORE_TYPES]) {
        if told.iter().all(Option::is_none) && self.find(task.id).is_none() {
            return;
        }
        let Some(known) = known::find_or_begin(&mut self.threads, task) else {
            return;
        };
        for (past, &told) in known.past.iter_mut().zip(told) {
            past.told = told;
        }
    }

    /// What a thread took, by core type, over what its counts say, as far as that was measured in its own life.
    pub fn found(&self, id: TaskId) -> [Option<Sure>; MAX_CORE_TYPES] {
        let known = self.find(id);
        std::array::from_fn(|core_type| known?.found(core_type, &self.model))
    }

    /// Gives busy threads terms of their own, as far as there are any left.
    pub(super) fn own(&mut self, at_ns: u64, elapsed: u64, tasks: &[Task]) {
        for owner in 0..OWNERS {
            let Some(of) = self.owners[owner] else {
                continue;
            };
            let known = self.threads.get_mut(of.id.slot as usize);
            let known = known.and_then(Option::as_mut);
            let known = known.filter(|known| known.generation == of.id.generation);
            let ended = tasks.binary_search_by_key(&of.id, |task| task.id).is_err();
            if at_ns.saturating_sub(of.ran_ns) > OWNS_FOR || ended || known.is_none() {
                if let Some(known) = known {
                    known.past[of.core_type].found = known.found(of.core_type, &self.model);
                    known.own[of.core_type] = None;
                }
                self.owners[owner] = None;
                self.model.clear_own(owner);
            }
        }
        let least = OWNS * (elapsed as f64 / 1e9) as f32;
        let mut free = 0;
        for task in tasks {
            let Some(Some(known)) = self.threads.get_mut(task.id.slot as usize) else {
                continue;
            };
            for core_type in 0..MAX_CORE_TYPES {
                if known.ran[core_type] < least {
                    continue;
                }
                let owner = match known.own[core_type] {
                    Some(owner) => usize::from(owner),
                    None => {
                        while free < OWNERS && self.owners[free].is_some() {
                            free += 1;
                        }
                        if free == OWNERS {
                            continue;
                        }
                        known.own[core_type] = Some(free as u8);
                        free
                    }
                };
                self.owners[owner] = Some(Owner {
                    id: task.id,
                    core_type,
                    ran_ns: at_ns,
                });
                let rates = known.rates[core_type].or(self.means[core_type]);
                let work = self.model.work(core_type, 1.0, &rates.unwrap_or_default());
                let watts = self.model.joules(core_type, &work);
                self.model
                    .expect_own(owner, watts, known.past[core_type].expected());
            }
        }
    }
}

/// For how long owners ran on some core types.
pub(super) fn own_seconds<'a>(
    owners: &'a [Option<Owner>; OWNERS],
    threads: &'a [Option<Known>],
    types: std::ops::Range<usize>,
) -> impl Iterator<Item = (usize, f64)> + 'a {
    let owners = owners.iter().enumerate();
    owners.filter_map(move |(owner, of)| {
        let of = of.filter(|of| types.contains(&of.core_type))?;
        let known = threads.get(of.id.slot as usize)?.as_ref()?;
        Some((owner, known.ran[of.core_type].into()))
    })
}
