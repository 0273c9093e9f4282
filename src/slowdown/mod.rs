// SPDX-License-Identifier: GPL-2.0-only
//! Slowdown: what a thread loses where it runs, and to others ([`hetero_core::slowdown`]); and the
//! measuring of what a machine's core types and its caches are like, without which that is a guess.

pub mod calibrate;

pub use hetero_core::slowdown::*;
