// SPDX-License-Identifier: GPL-2.0-only
//! Models at work in the scheduler: which one it goes by, the BPF half that asks it, and `--learn`.
//! Models themselves are [`hetero_core::ml`]; `scx_hetero train` is a program of its own, in `learn/`.

pub(crate) mod choice;
pub(crate) mod estimates;
pub mod here;
pub(crate) mod learning;
pub mod program;

pub use hetero_core::ml::*;
