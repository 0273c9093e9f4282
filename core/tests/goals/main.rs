// SPDX-License-Identifier: GPL-2.0-or-later
//! The loop of goals, closed over programs of many kinds.
//!
//! `cargo test -p hetero-core --test goals -- --nocapture` prints what it comes to.

mod allocation;
mod bench;
mod counting;
mod many;
mod plant;
mod single;
mod stable;
