// SPDX-License-Identifier: GPL-2.0-or-later
//! What is known of a thread: what it did in the present interval, and what it took so far.

use super::own::OwnPast;
use crate::energy::model::{CoreWork, EventRates, PowerModel};
use crate::limits::MAX_SLOTS;
use crate::table::{Task, TaskId};
use crate::topology::MAX_CORE_TYPES;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Of the thread that has the slot.
    pub(super) generation: u32,
    pub(super) ran_ns: [u64; MAX_CORE_TYPES],
    /// Seconds in the present interval, and what part of its core it had meanwhile.
    pub(super) ran: [f32; MAX_CORE_TYPES],
    pub(super) share: [f32; MAX_CORE_TYPES],
    pub(super) rates: [Option<EventRates>; MAX_CORE_TYPES],
    /// Of samples that ended since the last interval, and how long they are, ns.
    pub(super) fresh: [(EventRates, u64); MAX_CORE_TYPES],
    /// What is typical of its rates in the last interval, in units of the model's; 0 where it was not.
    pub(super) typical: [f64; MAX_CORE_TYPES],
    /// Its own term in the model, by core type.
    pub(super) own: [Option<u8>; MAX_CORE_TYPES],
    /// What is known of that beside.
    pub(super) past: [OwnPast; MAX_CORE_TYPES],
    pub(super) joules: [f64; MAX_CORE_TYPES],
}

/// That of a thread, among those of all slots.
pub(super) fn find(threads: &[Option<Known>], id: TaskId) -> Option<&Known> {
    let known = threads.get(id.slot as usize)?.as_ref()?;
    (known.generation == id.generation).then_some(known)
}

/// The same, of which nothing need be known yet: what it ran before does not count. `None` where there is no such slot.
pub(super) fn find_or_begin<'t>(
    threads: &'t mut Vec<Option<Known>>,
    task: &Task,
) -> Option<&'t mut Known> {
    let slot = task.id.slot as usize;
    if slot >= MAX_SLOTS as usize {
        return None;
    }
    if slot >= threads.len() {
        threads.resize(slot + 1, None);
    }
    let place = &mut threads[slot];
    let is_same = |known: &Known| known.generation == task.id.generation;
    if !place.as_ref().is_some_and(is_same) {
        *place = Some(Known {
            generation: task.id.generation,
            ran_ns: task.run_ns,
            ..Known::default()
        });
    }
    place.as_mut()
}

impl Known {
    pub(super) fn follow(&mut self, task: &Task) {
        for core_type in 0..MAX_CORE_TYPES {
            let ran = task.run_ns[core_type].saturating_sub(self.ran_ns[core_type]);
            self.ran[core_type] = (ran as f64 / 1e9) as f32;
            let (fresh, ns) = std::mem::take(&mut self.fresh[core_type]);
            if ns > 0 {
                self.rates[core_type] = Some(fresh);
            }
        }
        self.ran_ns = task.run_ns;
    }

    /// What it did in the interval.
    pub(super) fn work(
        &self,
        core_type: usize,
        model: &PowerModel,
        means: &[Option<EventRates>; MAX_CORE_TYPES],
    ) -> CoreWork {
        let rates = self.rates[core_type]
            .or(means[core_type])
            .unwrap_or_default();
        let work = model.work(core_type, self.ran[core_type].into(), &rates);
        shared(work, self.share[core_type].into())
    }

    /// And what that took.
    pub(super) fn joules_of(
        &self,
        core_type: usize,
        model: &PowerModel,
        means: &[Option<EventRates>; MAX_CORE_TYPES],
    ) -> f64 {
        let work = self.work(core_type, model, means);
        let joules = model.joules(core_type, &work);
        let own = self.own_joules(core_type, self.ran[core_type].into(), joules, model);
        (joules + own).max(0.0)
    }

    /// What it takes while it runs on a core type, W, and what it does there in a second; `None` where it has not run.
    pub(super) fn watts(&self, core_type: usize, model: &PowerModel) -> Option<(f64, CoreWork)> {
        let (counted, work) = self.counted(core_type, model)?;
        let own = self.own_joules(core_type, 1.0, counted, model);
        let watts = (counted + own).max(0.0);
        (counted > 0.0).then_some((watts, work))
    }

    /// The same as its counts alone say.
    pub(super) fn counted(&self, core_type: usize, model: &PowerModel) -> Option<(f64, CoreWork)> {
        let rates = self.rates.get(core_type)?.as_ref()?;
        let work = model.work(core_type, 1.0, rates);
        Some((model.joules(core_type, &work), work))
    }

    /// What it takes on a core type in so many seconds beyond the `joules` that the model makes of its work, J.
    fn own_joules(&self, core_type: usize, seconds: f64, joules: f64, model: &PowerModel) -> f64 {
        match self.own[core_type] {
            Some(owner) => seconds * model.own(owner.into()),
            None => (self.past[core_type].expected().factor() - 1.0) * joules,
        }
    }
}

/// What is left of a thread's work where it had a part of its core: a sibling pays for the rest of its leakage and its
/// clock.
pub(super) fn shared(mut work: CoreWork, share: f64) -> CoreWork {
    work[0] *= share;
    work[1] *= share;
    work
}
