// SPDX-License-Identifier: MIT
//! The C library's functions, as `scx_hetero_heartbeat.h` has them.

use std::ffi::{c_char, c_int};
use std::marker::{PhantomData, PhantomPinned};

/// A session; only the library looks into it.
#[repr(C)]
pub(crate) struct Session {
    opaque: [u8; 0],
    pinned: PhantomData<(*mut u8, PhantomPinned)>,
}

/// `struct scx_hetero_hb_options`.
#[repr(C)]
pub(crate) struct Options {
    pub(crate) size: usize,
    pub(crate) name: *const c_char,
    pub(crate) rate: f64,
    pub(crate) period_ns: u64,
    pub(crate) deadline_ns: u64,
    pub(crate) weight: u32,
    pub(crate) window: u32,
    pub(crate) pid: i32,
    pub(crate) nr_tids: u32,
    pub(crate) tids: *const i32,
    pub(crate) socket: *const c_char,
    pub(crate) children: u32,
}

unsafe extern "C" {
    pub(crate) fn scx_hetero_hb_open(options: *const Options) -> *mut Session;
    pub(crate) fn scx_hetero_hb_close(hb: *mut Session);
    pub(crate) fn scx_hetero_hb_beat(hb: *mut Session);
    pub(crate) fn scx_hetero_hb_beats(hb: *mut Session, n: u64);
    pub(crate) fn scx_hetero_hb_beats_between(hb: *mut Session, n: u64, start: u64, end: u64);
    pub(crate) safe fn scx_hetero_hb_now_ns() -> u64;
    pub(crate) fn scx_hetero_hb_set_rate(hb: *mut Session, rate: f64) -> c_int;
    pub(crate) fn scx_hetero_hb_set_period(hb: *mut Session, ns: u64) -> c_int;
    pub(crate) fn scx_hetero_hb_set_deadline(hb: *mut Session, ns: u64) -> c_int;
    pub(crate) fn scx_hetero_hb_set_threads(hb: *mut Session, tids: *const i32, n: u32) -> c_int;
    pub(crate) fn scx_hetero_hb_set_weight(hb: *mut Session, weight: u32) -> c_int;
    pub(crate) fn scx_hetero_hb_count(hb: *const Session) -> u64;
    pub(crate) fn scx_hetero_hb_global_rate(hb: *const Session) -> f64;
    pub(crate) fn scx_hetero_hb_window_rate(hb: *const Session) -> f64;
    pub(crate) fn scx_hetero_hb_instant_rate(hb: *const Session) -> f64;
    pub(crate) fn scx_hetero_hb_target(hb: *const Session) -> f64;
    pub(crate) fn scx_hetero_hb_connected(hb: *mut Session) -> c_int;
    pub(crate) fn scx_hetero_hb_state(hb: *mut Session, text: *mut c_char, size: usize) -> c_int;
}
