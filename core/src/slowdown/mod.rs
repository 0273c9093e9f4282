// SPDX-License-Identifier: GPL-2.0-or-later
//! How much slower a thread is than it would be on the fastest core type alone (CAMPS 2018,
//! section 4.2): [`phase`] tells what it is doing, [`history`] how fast it did that undisturbed,
//! [`contention`] whether it is disturbed, [`sibling`] how much by the other thread of its core, and an [`Estimator`] per thread puts them together.

pub mod contention;
pub mod estimator;
pub mod history;
pub mod phase;
pub mod sibling;

pub use contention::{MemoryLoad, Thresholds, likely_bandwidth};
pub use estimator::{Estimator, Reading, ReadingOutcome};
pub use history::History;
pub use phase::Phase;
pub use sibling::SiblingFactor;
