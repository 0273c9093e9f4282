// SPDX-License-Identifier: GPL-2.0-only
//! What programs want to be, and what is told of it.

use std::path::Path;

use log::{info, warn};

use super::Scheduler;
use crate::goals::{GoalServer, GoalStatus, GoalWish, SOCKET};

/// Listens to programs that have goals. Where that fails, says why once and goes on without.
pub(super) fn listen() -> Option<GoalServer> {
    match GoalServer::start(Path::new(SOCKET)) {
        Ok(server) => Some(server),
        Err(why) => {
            warn!("programs cannot tell how fast they must be: {why:#}");
            None
        }
    }
}

impl Scheduler<'_> {
    /// Every session.
    pub(super) fn goals(&self) -> Vec<GoalStatus> {
        let mut readings = Vec::new();
        if let Some(server) = &self.goal_server {
            server.sessions().read(&mut readings);
        }
        readings.iter().map(GoalStatus::from).collect()
    }

    /// Gives a session another goal.
    pub(super) fn set_goal(&self, id: u64, wish: GoalWish) -> Result<String, String> {
        let server = self.goal_server.as_ref();
        let server =
            server.ok_or("the scheduler could not open the socket for goals: see its log")?;
        let name = server.sessions().wish(id, wish)?;
        let becomes = match wish {
            GoalWish::Own => "what the program wants".to_string(),
            GoalWish::Remove => "none".into(),
            GoalWish::Set(target, _) => format!("{} beats per second", target as f64 / 1000.0),
        };
        info!("goal of session {id} ({name}): {becomes}");
        Ok(format!("goal of session {id} ({name}): {becomes}"))
    }
}
