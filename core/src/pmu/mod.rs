// SPDX-License-Identifier: GPL-2.0-or-later
//! Hardware counters: what can be counted on each core type, how, and what counts mean.
//!
//! Events are asked for by [`Meaning`]; each PMU has its own [`Encoding`] for them, from a table
//! of its microarchitecture ([`tables`]), or where there is none from what the kernel offers.
//! [`plan`] sorts the events wished into sets that fit the PMU's counters, and [`Round`] puts samples
//! from several sets together again. But for the reading of sysfs there is no I/O here.

pub mod candidates;
pub mod clock;
pub mod counts;
mod event;
mod facts;
mod fallback;
mod format;
mod identify;
pub mod listed;
mod machine;
pub mod round;
pub mod sample;
pub mod sets;
pub mod tables;

pub use event::{ANY, Encoding, Event, Meaning, Space, plain};
pub use facts::{MachineFacts, PmuFacts, root_from_env};
pub use format::Field;
pub use identify::CpuIdentity;
pub use machine::{Countable, MachinePmus, Pmu};
pub use round::Round;
pub use sets::{EventSet, Plan, plan};
pub use tables::{Counters, EventTable};
