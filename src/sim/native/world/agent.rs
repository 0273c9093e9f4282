// SPDX-License-Identifier: GPL-2.0-only
//! The agent: it says that it is there, and asks for this and that.

use super::{Chaos, Event, MS, World};
use crate::agent::{Allotment, SessionHeirs};
use crate::bpf::{intf, types};
use hetero_core::goals::SessionPlace;

impl World {
    /// The agent: it says that it is there, and asks for this and that.
    pub(super) fn act(&mut self) {
        let silent = self.has(Chaos::Silence) && self.dice.one_in(24);
        let again = if silent {
            2500 * MS
        } else {
            self.dice.of(&[20 * MS, 100 * MS, 900 * MS])
        };
        self.post(again, Event::Agent);
        self.kernel.beat();
        if self.has(Chaos::Rest) {
            // It says so before it sleeps for long, and so that what computes rings for it.
            let rests = self.dice.one_in(8);
            self.kernel.half.set("agent_sleeps", u32::from(rests));
        }
        // As policies that are for even progress come and go.
        let fair = self.kernel.now() / (1000 * MS) % 2;
        self.kernel.half.set("hosts_first", fair as u32);
        let nr = self.dice.below(4);
        let mut actions: Vec<_> = (0..nr).filter_map(|_| self.action()).collect();
        if self.has(Chaos::Swaps) && self.fate.one_in(2) {
            actions.extend(self.swap_of_runnable());
        }
        if self.has(Chaos::Slow) && self.dice.one_in(2) {
            // What it saw was long ago: tasks have ended and moved since.
            std::mem::swap(&mut actions, &mut self.late_actions);
        }
        if self.has_goals && self.goals.one_in(2) {
            actions.extend(self.goal());
        }
        for action in &actions {
            self.kernel.trace(|| format!("{action:?}"));
        }
        let from = self.any_cpu();
        let done = self.kernel.apply(&actions, from);
        self.watch.applied(&self.kernel, &done);
        if self.has(Chaos::Rotation) && self.dice.one_in(3) {
            let core_type = self
                .dice
                .below(self.kernel.machine.topology.types.len() as u64);
            let sets = self.kernel.machine.set_events[core_type as usize].len() as u64;
            let set = self.dice.below(sets) as usize;
            let before = self.kernel.half.global::<u8>("current_set");
            // SAFETY: within the array.
            if usize::from(unsafe { *before.add(core_type as usize) }) == set {
                return;
            }
            let cpus = self.kernel.machine.topology.types[core_type as usize]
                .cpus
                .clone();
            // First it closes the old ones, then it says which are open.
            cpus.iter()
                .for_each(|&cpu| self.kernel.open_events(cpu, set));
            self.kernel
                .half
                .set_at("current_set", core_type as usize, set as u8);
        }
    }

    fn slot_of(&mut self) -> Option<(u32, intf::task_slot)> {
        let task = self.any_task()?;
        let slot = self.kernel.with_task_ctx(task, |ctx| ctx.slot)?;
        Some((slot, self.kernel.slot(task)?))
    }

    /// Two tasks trade CPUs, of different types, as most policies ask for: of any two, few could.
    fn swap_of_runnable(&mut self) -> Option<types::action> {
        let alive = self.kernel.look().alive.clone();
        let blocked = intf::task_state_TASK_BLOCKED as u8;
        let slots = alive.iter().filter_map(|&task| {
            let index = self.kernel.with_task_ctx(task, |ctx| ctx.slot)?;
            let slot = self.kernel.slot(task)?;
            (slot.state != blocked).then_some((index, slot))
        });
        let slots: Vec<_> = slots.collect();
        let first = *slots.get(self.fate.below(slots.len() as u64) as usize)?;
        let differs = |of: &&(u32, intf::task_slot)| of.1.core_type != first.1.core_type;
        let others: Vec<_> = slots.iter().filter(differs).collect();
        let other = **others.get(self.fate.below(others.len() as u64) as usize)?;
        Some(types::action {
            op: intf::action_op_ACTION_SWAP,
            slot: first.0,
            generation: first.1.generation,
            core_type: other.1.core_type,
            other_slot: other.0,
            other_generation: other.1.generation,
            other_core_type: first.1.core_type,
            expected_type: first.1.core_type,
            other_expected_type: other.1.core_type,
            ..Default::default()
        })
    }

    /// Another one to swap with: the best of some, one that runs on another core type.
    fn partner_of(&mut self, slot: intf::task_slot) -> Option<(u32, intf::task_slot)> {
        let blocked = intf::task_state_TASK_BLOCKED as u8;
        let mut found = None;
        for _ in 0..6 {
            let other = self.slot_of()?;
            found = Some(other);
            if other.1.core_type != slot.core_type && other.1.state != blocked {
                break;
            }
        }
        found
    }

    /// A thread joins a session or leaves it, and some session is allotted so much: also nothing that
    /// makes sense.
    fn goal(&mut self) -> Option<types::action> {
        let mut session = SessionPlace::first(self.goals.of(&[0, 1, 1, 2, 3]));
        if self.goals.one_in(4) {
            session = session.next();
        }
        let allotment = Allotment {
            fast_cores: match self.goals.below(6) {
                0 => None,
                1 => Some(0.0),
                2 => Some(1e9),
                _ => Some(self.goals.below(100) as f64 / 20.0),
            },
            gets_more: self.goals.one_in(4),
            heirs: self.goals.of(&[
                SessionHeirs::None,
                SessionHeirs::Threads,
                SessionHeirs::Children,
            ]),
        };
        self.kernel.allot(session, allotment);
        let alive = self.kernel.look().alive.clone();
        let task = *alive.get(self.goals.below(alive.len() as u64) as usize)?;
        let slot = self.kernel.with_task_ctx(task, |ctx| ctx.slot)?;
        Some(types::action {
            op: intf::action_op_ACTION_JOIN,
            slot,
            generation: self.kernel.slot(task)?.generation,
            session: match self.has(Chaos::Hostile) && self.goals.one_in(8) {
                true => u32::MAX >> self.goals.below(32),
                false => session.raw(),
            },
            ..Default::default()
        })
    }

    fn action(&mut self) -> Option<types::action> {
        let none = intf::hetero_consts_NO_TYPE as u8;
        let mut action = types::action {
            op: self.dice.below(5) as u32,
            core_type: none,
            other_core_type: none,
            expected_type: none,
            other_expected_type: none,
            ruled: self.dice.one_in(8).into(),
            ..Default::default()
        };
        let types = self.kernel.machine.topology.types.len() as u64;
        let hostile = self.has(Chaos::Hostile) && self.dice.one_in(4);
        if hostile {
            let mut number = |bits: u32| self.dice.below(1 << bits) as u32;
            action.op = number(3);
            action.slot = number(15).wrapping_sub(number(4));
            action.other_slot = number(3);
            action.generation = number(2);
            action.other_generation = number(2);
            action.core_type = number(3) as u8;
            action.other_core_type = number(3) as u8;
            action.expected_type = number(3) as u8;
            action.park_ns = number(31);
            action.rule_weight = number(31);
            action.inv_slowdown = [0, number(31), u32::MAX, number(17)];
            // Its park would be as good as any; see below.
            let parks = action.op == intf::action_op_ACTION_PARK && !self.has(Chaos::Parks);
            return (!parks).then_some(action);
        }
        let wanted = match action.op {
            intf::action_op_ACTION_HINT => Chaos::Hints,
            intf::action_op_ACTION_SWAP => Chaos::Swaps,
            intf::action_op_ACTION_PARK => Chaos::Parks,
            _ => Chaos::Slowdowns,
        };
        if !self.has(wanted) {
            return None;
        }
        if wanted == Chaos::Parks {
            action.slot = self.any_cpu();
            action.park_ns = self.dice.below(150 * MS) as u32;
            return Some(action);
        }
        let (index, slot) = self.slot_of()?;
        (action.slot, action.generation) = (index, slot.generation);
        action.core_type = self.dice.below(types + 1) as u8;
        if u64::from(action.core_type) == types {
            action.core_type = none;
        }
        if wanted == Chaos::Swaps {
            let (other_index, other) = self.partner_of(slot)?;
            (action.other_slot, action.other_generation) = (other_index, other.generation);
            (action.core_type, action.other_core_type) = (other.core_type, slot.core_type);
        }
        action.rule_weight = self.dice.of(&[1, 50, 100, 200, 10_000]);
        action.inv_slowdown = [65536, 40_000, 30_000, 20_000];
        Some(action)
    }
}
