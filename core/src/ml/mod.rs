// SPDX-License-Identifier: GPL-2.0-or-later
//! Learning from measurements what a core type is worth to a thread.
//!
//! Two halves that share no code but [`fixed`]. Training ([`data`], [`tree`], [`boosting`],
//! [`learn`], [`validate`], and the program in `learn/`) takes tables, time and memory, and writes a
//! [`model`]. Inference ([`live`], [`forest`]) is that model laid out in one piece: it allocates
//! nothing, and says the same to the last bit in Rust and in C (`src/bpf/forest.h`).
//!
//! With `--learn` the first half learns from what the second sees: threads that are moved are
//! [`examples`], a [`reservoir`] keeps some, and [`refit`] judges what is learnt from them.

pub mod args;
pub mod boosting;
pub mod data;
pub mod events;
pub mod examples;
pub mod fixed;
pub mod forest;
pub mod header;
pub mod learn;
pub mod linear;
pub mod live;
pub mod model;
pub mod refit;
pub mod reservoir;
pub mod scores;
pub mod tree;
pub mod validate;
