// SPDX-License-Identifier: GPL-2.0-only
//! Asks the running scheduler at its statistics socket.

use std::path::Path;

use anyhow::{Result, anyhow};
use scx_stats::prelude::*;
use serde::de::DeserializeOwned;

use super::live::Live;
use super::story::Story;
use crate::goals::GoalStatus;

/// A scheduler that is silent for so long, ms, does not answer.
const PATIENCE_MS: u64 = 3000;

/// Asks the scheduler.
pub struct Client(StatsClient);

impl Client {
    /// Connects to the socket at `path`.
    ///
    /// # Errors
    /// What to do about it, in one line.
    pub fn connect(path: &Path) -> Result<Self> {
        let client = StatsClient::new().set_path(path);
        let connected = client.connect(Some(PATIENCE_MS));
        let client = connected.map_err(|error| {
            let why = error.downcast_ref::<std::io::Error>().map(|e| e.kind());
            match why {
                Some(std::io::ErrorKind::PermissionDenied) => error.context(
                    "only root may ask the scheduler, and members of the group scx_hetero, or \
                         of that which it was started with (--group)",
                ),
                // Where no socket is, or one that nothing serves: that is all there is to say.
                Some(std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused) => {
                    anyhow!(
                        "no sched_ext scheduler answers: start it with 'sudo scx_hetero', or 'sudo \
                     systemctl start scx_hetero'"
                    )
                }
                _ => anyhow!(
                    "no sched_ext scheduler answers ({error:#}): start it with 'sudo scx_hetero', \
                     or 'sudo systemctl start scx_hetero'"
                ),
            }
        })?;
        Ok(Self(client))
    }

    fn get<T: DeserializeOwned>(&mut self, target: &str, args: &[(&str, &str)]) -> Result<T> {
        let target = [("target", target)];
        let args = target.iter().chain(args);
        let args = args.map(|(key, value)| ((*key).into(), (*value).into()));
        self.0
            .request("stats", args.collect())
            .map_err(|error| match format!("{error:#}") {
                text if text.contains("unknown stat target") => {
                    error.context("the scheduler that runs is another one, or an older scx_hetero")
                }
                _ => error.context("the scheduler does not answer"),
            })
    }

    /// What there is to see, with rates since the last call.
    ///
    /// # Errors
    /// Where the scheduler is gone or is another one.
    pub fn live(&mut self) -> Result<Live> {
        self.get("threads", &[])
    }

    /// All about a thread, or a process's threads.
    ///
    /// # Errors
    /// As [`Client::live`].
    pub fn story(&mut self, pid: u32) -> Result<Story> {
        self.get("why", &[("pid", &pid.to_string())])
    }

    /// Sets `policy`, `profile` or `fairness`, or reads `rules` again; what the scheduler says to that, in words.
    ///
    /// # Errors
    /// As [`Client::live`].
    pub fn set(&mut self, name: &str, value: &str) -> Result<Result<String, String>> {
        self.get("set", &[(name, value)])
    }

    /// All goals there are.
    ///
    /// # Errors
    /// As [`Client::live`].
    pub fn goals(&mut self) -> Result<Vec<GoalStatus>> {
        self.get("goals", &[])
    }

    /// Changes a session's goal: `rate` in beats per second and `weight`, `own` or `remove`; what the scheduler
    /// says to that, in words.
    ///
    /// # Errors
    /// As [`Client::live`].
    pub fn goal(&mut self, id: u64, wish: &[(&str, &str)]) -> Result<Result<String, String>> {
        let id = id.to_string();
        self.get("goal", &[&[("id", &*id)], wish].concat())
    }
}
