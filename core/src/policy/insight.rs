// SPDX-License-Identifier: GPL-2.0-or-later
//! What a policy knows of a thread, to be shown.

use serde::{Deserialize, Serialize};

use crate::topology::MAX_CORE_TYPES;

/// See the module; `None` is not known, or nothing to this policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Insight {
    /// It competes for fast cores.
    pub takes_part: Option<bool>,
    /// Effective progress, ns.
    pub progress_ns: Option<i64>,
    /// Its place in the ranking, of which 1 is the best, and of how many.
    pub rank: Option<(u32, u32)>,
    /// Slowdown by core type, relative to the fastest one undisturbed: both parts together.
    pub slowdown: [Option<f64>; MAX_CORE_TYPES],
    /// Of it, what the core type alone makes: IPS_big/IPS there, measured without contention, or as a
    /// model has it. That of the slowest type is the SF.
    pub asymmetry: [Option<f64>; MAX_CORE_TYPES],
    /// Latest BTR, bytes/s.
    pub btr: Option<f64>,
    /// Its present phase, by number in its history table.
    pub phase: Option<usize>,
    /// Phase hits among its latest samples, 0 to 1.
    pub hit_rate: Option<f64>,
}
