// SPDX-License-Identifier: GPL-2.0-or-later
//! Last-level caches: who holds how much of them, what that is worth to whom, and who may be monitored
//! by hardware that can do so for few at once (`docs/caches.md`).

pub mod curve;
pub mod ledger;
pub mod occupancy;
pub mod pool;
pub mod told;

pub use curve::{CURVE_POINTS, CurvePoint, MissRateCurve};
pub use ledger::CacheLedger;
pub use pool::{GroupPool, MonitoredBytes, MonitoringGroups};
pub use told::CacheStory;
