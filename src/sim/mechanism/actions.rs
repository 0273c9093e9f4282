// SPDX-License-Identifier: GPL-2.0-only
//! The agent's actions, applied as `src/bpf/actions.bpf.h` does it.

use super::super::kernel::Kernel;
use super::account::INV_SLOWDOWN_ONE;
use super::hetero::{Hetero, Slot};
use crate::arith;
use crate::bpf::intf;
use crate::policy::{Action, Seen};
use crate::table::{State, Task};

/// What became of actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::sim) struct Applied {
    /// Carried out.
    pub(in crate::sim) applied: u64,
    /// Dropped: the task has ended, or is not where the policy saw it.
    pub(in crate::sim) stale: u64,
    /// Refused: the task's affinity forbids it.
    pub(in crate::sim) invalid: u64,
}

enum Outcome {
    Applied,
    Stale,
    Invalid,
}

impl Hetero {
    /// The tasks in the table, by their ids.
    pub(in crate::sim) fn tasks(&self) -> impl Iterator<Item = Task> + '_ {
        let taken = self.slots.iter().filter(|slot| slot.thread.is_some());
        taken.map(|slot| slot.task)
    }

    /// Applies what a policy has decided, in batches as the live agent does.
    pub(in crate::sim) fn apply_all(&mut self, k: &mut Kernel, actions: &[Action]) {
        self.carried_out.clear();
        for batch in actions.chunks(intf::hetero_consts_MAX_ACTIONS as usize) {
            self.apply(k, batch);
        }
    }

    fn apply(&mut self, k: &mut Kernel, actions: &[Action]) {
        let mut hints_changed = false;
        for action in actions {
            let outcome = match action {
                Action::Hint(seen, core_type) => {
                    hints_changed = true;
                    self.apply_hint(seen, *core_type)
                }
                Action::Swap([(one, to), (other, other_to)]) => {
                    hints_changed = true;
                    self.apply_swap((one, *to), (other, *other_to))
                }
                Action::Slowdown(task, inverse) => {
                    let seen = Seen {
                        task: *task,
                        on: usize::MAX,
                    };
                    let one = INV_SLOWDOWN_ONE as f32;
                    match self.find_target(&seen) {
                        Some(slot) => {
                            self.slots[slot].inv_slowdown =
                                inverse.map(|share| (share * one).clamp(1.0, one) as u32);
                            Outcome::Applied
                        }
                        None => Outcome::Stale,
                    }
                }
                Action::Park(cpu, time) => match self.park(k, *cpu, time.as_nanos() as u64) {
                    true => Outcome::Applied,
                    false => Outcome::Invalid,
                },
                // Rules are no matter of the simulator's.
                Action::Weight(..) => Outcome::Invalid,
            };
            self.carried_out.push(matches!(outcome, Outcome::Applied));
            match outcome {
                Outcome::Applied => self.outcome.applied += 1,
                Outcome::Stale => self.outcome.stale += 1,
                Outcome::Invalid => self.outcome.invalid += 1,
            }
        }
        if hints_changed && self.masks.types.len() > 1 {
            for domain in 0..self.domains.len() {
                if self.domains[domain].somebody_waits() {
                    self.sweep(k, domain);
                }
            }
        }
    }

    /// The slot, if it is still the task's and on the core type that the policy saw.
    fn find_target(&self, seen: &Seen) -> Option<usize> {
        let index = seen.task.slot as usize;
        let slot = self.slots.get(index)?;
        let known = seen.on >= self.masks.types.len() || slot.task.core_type == seen.on;
        (slot.thread.is_some() && slot.task.id == seen.task && known).then_some(index)
    }

    fn apply_hint(&mut self, seen: &Seen, core_type: Option<usize>) -> Outcome {
        let Some(slot) = self.find_target(seen) else {
            return Outcome::Stale;
        };
        let slot = &mut self.slots[slot];
        if core_type.is_some_and(|t| t >= self.masks.types.len() || !slot.task.may_use(t)) {
            return Outcome::Invalid;
        }
        slot.task.hint = core_type;
        Outcome::Applied
    }

    fn apply_swap(&mut self, one: (&Seen, usize), other: (&Seen, usize)) -> Outcome {
        let (Some(a), Some(b)) = (self.find_target(one.0), self.find_target(other.0)) else {
            return Outcome::Stale;
        };
        if !self.slots[a].task.may_use(one.1) || !self.slots[b].task.may_use(other.1) {
            return Outcome::Invalid;
        }
        self.slots[a].task.hint = Some(one.1);
        self.slots[b].task.hint = Some(other.1);
        let (s, o) = (&self.slots[a].task, &self.slots[b].task);
        let runnable = s.state != State::Blocked && o.state != State::Blocked;
        if runnable && s.core_type == other.1 && o.core_type == one.1 {
            let (s_cpu, o_cpu) = (s.cpu as u32, o.cpu as u32);
            self.slots[a].target_cpu = Some(o_cpu);
            self.slots[b].target_cpu = Some(s_cpu);
        }
        Outcome::Applied
    }

    /// The least crowded domain of a core type, by runnable weight per CPU.
    pub(super) fn lightest_domain_of(&self, core_type: usize) -> Option<usize> {
        let mut best: Option<usize> = None;
        for (index, domain) in self.domains.iter().enumerate() {
            let lighter = |best: usize| {
                let best = &self.domains[best];
                arith::more_crowded(best.weight, best.cpus, domain.weight, domain.cpus)
            };
            if domain.core_type == core_type && best.is_none_or(lighter) {
                best = Some(index);
            }
        }
        best
    }

    /// Moves waiting threads whose hint is another type to a queue of that type. The waiting count
    /// and the weight stay with the old domain until the thread runs.
    fn sweep(&mut self, k: &mut Kernel, domain: usize) {
        let wishes = |(thread, place)| {
            let hint = self.hint_of(thread)?;
            let elsewhere =
                hint != self.domains[domain].core_type && self.allows_type(thread, hint);
            Some((
                thread,
                place,
                self.lightest_domain_of(hint).filter(|_| elsewhere)?,
            ))
        };
        let waiting = self.domains[domain].queue.iter();
        let moved: Vec<_> = waiting.filter_map(wishes).collect();
        for (thread, place, to) in moved {
            debug_assert!(k.allowed(thread).len() > 1);
            self.domains[domain].queue.remove(thread, place);
            self.domains[to].queue.insert(thread, place);
        }
    }

    pub(super) fn slot_of(&self, thread: u32) -> Option<&Slot> {
        Some(&self.slots[self.ctx(thread).slot?])
    }

    pub(super) fn slot_of_mut(&mut self, thread: u32) -> Option<&mut Slot> {
        let slot = self.ctx(thread).slot?;
        Some(&mut self.slots[slot])
    }
}
