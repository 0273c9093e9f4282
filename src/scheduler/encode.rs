// SPDX-License-Identifier: GPL-2.0-only
//! A policy's actions as the BPF half reads them, and what it says became of them.

use crate::agent::{Allotment, Author, Outcome, SessionHeirs};
use crate::bpf::{intf, types};
use crate::policy::{Action, Seen};
use hetero_core::goals::SessionPlace;

pub(crate) fn encode(action: &Action, by: Author) -> types::action {
    let no_type = intf::hetero_consts_NO_TYPE as u8;
    let mut entry = types::action {
        other_slot: intf::hetero_consts_NO_SLOT,
        core_type: no_type,
        other_core_type: no_type,
        ..Default::default()
    };
    let first = |entry: &mut types::action, seen: &Seen, core_type: Option<usize>| {
        entry.slot = seen.task.slot;
        entry.generation = seen.task.generation;
        entry.expected_type = seen.on as u8;
        entry.core_type = core_type.map_or(no_type, |core_type| core_type as u8);
    };
    match action {
        Action::Hint(seen, core_type) => {
            entry.op = intf::action_op_ACTION_HINT;
            first(&mut entry, seen, *core_type);
            entry.ruled = (by != Author::Policy).into();
        }
        Action::Swap([(seen, to), (other, other_to)]) => {
            entry.op = intf::action_op_ACTION_SWAP;
            first(&mut entry, seen, Some(*to));
            entry.other_slot = other.task.slot;
            entry.other_generation = other.task.generation;
            entry.other_expected_type = other.on as u8;
            entry.other_core_type = *other_to as u8;
        }
        Action::Slowdown(task, inverse) => {
            entry.op = intf::action_op_ACTION_SLOWDOWN;
            entry.slot = task.slot;
            entry.generation = task.generation;
            entry.expected_type = no_type;
            let one = intf::hetero_consts_INV_SLOWDOWN_ONE as f32;
            entry.inv_slowdown = inverse.map(|share| (share * one).clamp(1.0, one) as u32);
        }
        Action::Park(cpu, time) => {
            entry.op = intf::action_op_ACTION_PARK;
            entry.slot = *cpu;
            entry.park_ns = time.as_nanos().try_into().unwrap_or(u32::MAX);
        }
        Action::Weight(task, hundredths) => {
            entry.op = intf::action_op_ACTION_WEIGHT;
            entry.slot = task.slot;
            entry.generation = task.generation;
            entry.rule_weight = u32::from(*hundredths);
        }
        Action::Join(task, session) => {
            entry.op = intf::action_op_ACTION_JOIN;
            entry.slot = task.slot;
            entry.generation = task.generation;
            entry.session = session.raw();
        }
    }
    entry
}

/// Writes what a session is allotted where the BPF half reads it.
pub(crate) fn allot(
    sessions: &mut [types::goal_session],
    nr_sessions: &mut u32,
    session: SessionPlace,
    allotment: Allotment,
) {
    let Some(entry) = sessions.get_mut(session.place()) else {
        return;
    };
    let one = f64::from(intf::hetero_consts_ALLOTMENT_ONE);
    // At least a hundredth of a CPU: what is held for ever is no goal.
    let of = |fast_cores: f64| (fast_cores * one).clamp(one / 100.0, one * 65536.0) as u32;
    let given = allotment.fast_cores.map_or(0, of);
    if entry.id != session.raw() || given == 0 {
        // Nothing is to be paid to one session by another's threads.
        entry.allotment = 0;
        entry.id = session.raw();
    }
    entry.gets_more = allotment.gets_more.into();
    entry.heirs = match allotment.heirs {
        SessionHeirs::None => intf::session_heirs_HEIRS_NONE,
        SessionHeirs::Threads => intf::session_heirs_HEIRS_THREADS,
        SessionHeirs::Children => intf::session_heirs_HEIRS_CHILDREN,
    };
    entry.allotment = given;
    *nr_sessions = (*nr_sessions).max(session.place() as u32 + 1);
}

/// What became of an action, by the `result` in its entry.
pub(crate) fn outcome(result: intf::action_result) -> Outcome {
    match result {
        intf::action_result_ACTION_APPLIED => Outcome::Applied,
        intf::action_result_ACTION_STALE => Outcome::Stale,
        _ => Outcome::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::TaskId;

    #[test]
    fn actions_carry_what_bpf_checks() {
        let seen = |slot, on| Seen {
            task: TaskId {
                slot,
                generation: slot + 10,
            },
            on,
        };
        let entry = encode(
            &Action::Swap([(seen(1, 0), 2), (seen(2, 2), 0)]),
            Author::Policy,
        );
        assert_eq!(
            (
                entry.slot,
                entry.generation,
                entry.expected_type,
                entry.core_type
            ),
            (1, 11, 0, 2)
        );
        assert_eq!(
            (
                entry.other_slot,
                entry.other_generation,
                entry.other_expected_type,
                entry.other_core_type
            ),
            (2, 12, 2, 0)
        );
        let entry = encode(&Action::Hint(seen(3, 1), None), Author::Rules);
        assert_eq!(entry.ruled, 1);
        assert_eq!(u32::from(entry.core_type), intf::hetero_consts_NO_TYPE);
        assert_eq!(entry.other_slot, intf::hetero_consts_NO_SLOT);
    }
}
