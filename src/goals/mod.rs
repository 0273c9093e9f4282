// SPDX-License-Identifier: GPL-2.0-only
//! Goals: how fast programs must be, and how fast they are. `docs/goals.md` tells the whole story.
//!
//! A program has a session: a connection to a socket, and a page of 64 bytes that it counts its beats
//! in. [`server`] takes sessions in, [`GoalSessions`] has those that there are, and the agent takes what
//! their pages said last. `scx_hetero goal run` is such a program for one that knows nothing of it.

mod closer;
pub mod command;
mod family;
mod page;
mod request;
mod ruled;
mod run;
pub(crate) mod server;
mod sessions;
mod status;
mod timing;
mod users;

pub use family::{Families, FamilyHead, TreeInProc};
pub use page::{Beats, GoalTarget};
pub use ruled::{GoalRules, GoalSource, RuledGoal};
pub use server::GoalServer;
pub use sessions::{GoalSessions, GoalWish, SessionAbout, SessionReading};
pub use status::GoalStatus;
pub(crate) use status::short;
pub use timing::GoalTimingArgs;
pub(crate) use users::UserWeights;

use hetero_core::goals::rate::MAX_RATE;

/// Where programs open sessions.
pub const SOCKET: &str = "/run/scx_hetero/goals.sock";

/// Names another place, for the library and `goal run`.
pub const SOCKET_VARIABLE: &str = "SCX_HETERO_GOALS";

/// Sessions at a time, on the whole machine.
pub use hetero_core::goals::MAX_SESSIONS;

/// Of one user that is not root.
pub const MAX_OF_USER: usize = 256;

/// Threads of a session that are named one by one.
pub const MAX_TIDS: usize = 256;

/// What a session weighs unless it says so.
pub use hetero_core::goals::WEIGHT_USUAL as DEFAULT_WEIGHT;

/// The most that a session may weigh.
pub const MAX_WEIGHT: u32 = 10_000;

/// The greatest target, in thousandths of a beat per second.
pub const MAX_TARGET: u64 = (MAX_RATE * 1000.0) as u64;
