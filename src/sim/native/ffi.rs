// SPDX-License-Identifier: GPL-2.0-only
//! Types of the natively compiled BPF half and of its shim, as `build.rs` has bindgen write them.
#![allow(
    clippy::all,
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unused_imports
)]

include!(concat!(env!("OUT_DIR"), "/native.rs"));

/// Flags that bindgen cannot see in their macros, from `include/scx/common.bpf.h`.
pub const ENQ_WAKEUP: u64 = 1;
pub const ENQ_RESTORE: u64 = 2;
pub const ENQ_HEAD: u64 = 1 << 16;
pub const ENQ_CPU_SELECTED: u64 = 1 << 20;
pub const ENQ_PREEMPT: u64 = 1 << 32;
pub const ENQ_REENQ: u64 = 1 << 40;
pub const ENQ_LAST: u64 = 1 << 41;
pub const OPS_ENQ_EXITING: u64 = 4;
pub const DSQ_INVALID: u64 = 1 << 63;
pub const DSQ_GLOBAL: u64 = 1 << 63 | 1;
pub const DSQ_LOCAL: u64 = 1 << 63 | 2;
pub const DSQ_LOCAL_ON: u64 = 1 << 63 | 1 << 62;
pub const NOT_EXISTING: i32 = -2;
pub const INVALID: i32 = -22;
