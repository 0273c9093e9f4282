// SPDX-License-Identifier: GPL-2.0-only
//! The compiled BPF half: its skeleton and the types it shares with the agent.
#![allow(
    clippy::all,
    dead_code,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub
)]

include!(concat!(env!("OUT_DIR"), "/bpf_skel.rs"));

/// Types and constants of `src/bpf/intf.h`.
pub mod intf {
    include!(concat!(env!("OUT_DIR"), "/bpf_intf.rs"));
}

/// What the agent goes by is what the BPF half goes by.
const _: () = {
    use hetero_core::agent::WEIGHT_ONE;
    use hetero_core::limits::{MAX_CPUS, MAX_EVENTS, MAX_SETS, MAX_SLOTS};
    use hetero_core::topology::MAX_CORE_TYPES;

    assert!(MAX_CPUS == intf::hetero_consts_MAX_CPUS as usize);
    assert!(MAX_SLOTS == intf::hetero_consts_MAX_SLOTS);
    assert!(MAX_EVENTS == intf::hetero_consts_MAX_EVENTS as usize);
    assert!(MAX_SETS == intf::hetero_consts_MAX_SETS as usize);
    assert!(MAX_CORE_TYPES == intf::hetero_consts_MAX_CORE_TYPES as usize);
    assert!(WEIGHT_ONE as u32 == intf::hetero_consts_RULE_WEIGHT_ONE);
};
