// SPDX-License-Identifier: GPL-2.0-or-later
//! Last-level caches: how much of them each holds, what that is worth to it, which may be monitored by hardware
//! that can do so for few at once, and which is confined to a few ways (`docs/caches.md`).

mod counted;
pub mod curve;
pub mod ledger;
pub mod occupancy;
pub mod partition;
pub mod pool;
pub mod told;

pub use curve::{CURVE_POINTS, CurvePoint, CurvePoints, MissRateCurve, falling};
pub use ledger::CacheLedger;
pub use partition::{CacheWays, ConfinedProcess, Partition, ProcessMisses};
pub use pool::{GroupPool, MonitoredBytes, MonitoringGroups};
pub use told::{CacheStory, ConfinedStory, mpki_told};
