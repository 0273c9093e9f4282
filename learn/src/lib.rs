// SPDX-License-Identifier: GPL-2.0-or-later
//! Learning from measurements what a core type is worth to a thread, and showing what was learnt.
//!
//! A program of its own, that `scx_hetero train` and `scx_hetero model` call: it may link what the
//! scheduler, which is root's and GPL-2.0-only, may not. What both use is [`hetero_core::ml`].

#![deny(clippy::print_stdout, clippy::print_stderr)] // `output` is the way.

pub mod beside;
pub mod discover;
pub mod estimates;
pub mod fit;
pub mod import;
pub mod interference;
pub mod kinds;
pub mod left_out;
pub mod plot;
pub mod resample;
mod scaled;
pub mod select;
pub mod settle;
pub mod show;
pub mod train;
pub mod trial;
mod voting;
pub mod ways;
