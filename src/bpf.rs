// SPDX-License-Identifier: GPL-2.0-only
//! The compiled BPF half: its skeleton and the types it shares with the agent.
#![allow(
    clippy::all,
    dead_code,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals
)]

include!(concat!(env!("OUT_DIR"), "/bpf_skel.rs"));

/// Types and constants of `src/bpf/intf.h`.
pub mod intf {
    include!(concat!(env!("OUT_DIR"), "/bpf_intf.rs"));
}
