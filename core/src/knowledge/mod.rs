// SPDX-License-Identifier: GPL-2.0-or-later
//! What outlives a process: what was found of a program's threads, kept for those of its next run
//! (`docs/knowledge.md`).
//!
//! ```text
//!  policy ─► ThreadFinding ─► ProgramFindings: ProgramKnowledge, merged by how sure ─► ThreadProfile ─► policy
//!   (each minute, and at its end)   (kept by the agent's driver)                 (a thread begins)
//! ```
//!
//! A [`ThreadProfile`] is a prior: what is measured soon outweighs it, and [`PastCheck`] drops it where the
//! thread behaves unlike its program did. Glatt et al. (2016) keep such a store to classify interference; the
//! history tables are those of CAMPS (2018, section 4.2).
//!
//! Plain values; which program a thread runs, and where this is kept, is not known here.

mod check;
mod curves;
mod findings;
mod kept;
mod losses;
mod profile;
mod program;
mod undisturbed;

pub(crate) use check::agrees;
pub use check::{Past, PastCheck};
pub use curves::{KeptCurvePoint, ThreadCurve, ThreadCurves, ToldCurve, logarithms, told_points};
pub use findings::ProgramFindings;
pub use kept::{KeptMean, Sure};
pub use losses::{KeptBeside, KeptCompany, ThreadLoss, ThreadLosses};
pub use profile::{PHASES, ProfilePhase, Remembered, Slope, ThreadFinding, ThreadProfile};
pub use program::{KeptPhase, ProgramKnowledge};
pub(crate) use undisturbed::is_profile_sound;
pub use undisturbed::{KeptUndisturbed, UndisturbedProfile, UndisturbedRates};
