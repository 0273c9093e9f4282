// SPDX-License-Identifier: GPL-2.0-only
//! Which parts of the BPF half are left out.

pub use hetero_core::mechanism::*;

use crate::bpf::intf;

/// Its number in the BPF half; `None` if it is of the Rust half alone.
fn bit(mechanism: Mechanism) -> Option<u32> {
    match mechanism {
        Mechanism::Kick => Some(intf::mechanism_MECHANISM_KICK),
        Mechanism::Iterate => Some(intf::mechanism_MECHANISM_ITERATE),
        Mechanism::Park => Some(intf::mechanism_MECHANISM_PARK),
        Mechanism::Spin => Some(intf::mechanism_MECHANISM_SPIN),
        Mechanism::Validity => Some(intf::mechanism_MECHANISM_VALIDITY),
        Mechanism::Chain => Some(intf::mechanism_MECHANISM_CHAIN),
        Mechanism::Tick => Some(intf::mechanism_MECHANISM_TICK),
        Mechanism::CutOff => Some(intf::mechanism_MECHANISM_CUT_OFF),
        Mechanism::Flush => Some(intf::mechanism_MECHANISM_FLUSH),
        Mechanism::CgroupWeight => Some(intf::mechanism_MECHANISM_CGROUP_WEIGHT),
        Mechanism::Release => Some(intf::mechanism_MECHANISM_RELEASE),
        Mechanism::Heartbeat => Some(intf::mechanism_MECHANISM_HEARTBEAT),
        Mechanism::Cpuperf => Some(intf::mechanism_MECHANISM_CPUPERF),
        Mechanism::Preempt => Some(intf::mechanism_MECHANISM_PREEMPT),
        Mechanism::Sync => Some(intf::mechanism_MECHANISM_SYNC),
        Mechanism::Stay => Some(intf::mechanism_MECHANISM_STAY),
        Mechanism::Newcomer => Some(intf::mechanism_MECHANISM_NEWCOMER),
        Mechanism::Rcu => Some(intf::mechanism_MECHANISM_RCU),
        Mechanism::AgentFirst => Some(intf::mechanism_MECHANISM_AGENT_FIRST),
        Mechanism::Identity => Some(intf::mechanism_MECHANISM_IDENTITY),
        Mechanism::Exiting
        | Mechanism::RealTime
        | Mechanism::Rest
        | Mechanism::Carry
        | Mechanism::History
        | Mechanism::Escape
        | Mechanism::Nwc
        | Mechanism::Rotation
        | Mechanism::Jump => None,
    }
}

/// What of `without` concerns the BPF half, a bit each.
pub(crate) fn bits(without: &[Mechanism]) -> u64 {
    let bits = without.iter().filter_map(|mechanism| bit(*mechanism));
    bits.fold(0, |bits, bit| bits | 1 << bit)
}
