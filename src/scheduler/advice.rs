// SPDX-License-Identifier: GPL-2.0-only
//! Programs that want advice, and when they get it.

use std::path::Path;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, never};
use log::warn;

use super::pace::Allowance;
use super::{Scheduler, pace};
use crate::advice::{AdviceServer, SOCKET, Subscribers};

/// How often it is found out what to tell, while a program wants to know.
const LOOK: Duration = Duration::from_millis(100);

/// Outlives a restart, as on CPU hotplug.
pub(super) struct ProgramAdvice {
    server: Option<AdviceServer>,
    allowance: Allowance,
}

impl ProgramAdvice {
    /// Nothing is listened to yet.
    pub(super) fn new() -> Self {
        Self {
            server: None,
            allowance: Allowance::new(Instant::now()),
        }
    }

    /// Listens to programs from now on, unless it does. Where that fails, says why and goes on without.
    pub(super) fn listen(&mut self) {
        if self.server.is_some() {
            return;
        }
        match AdviceServer::start(Path::new(SOCKET)) {
            Ok(server) => self.server = Some(server),
            Err(why) => warn!("programs get no advice: {why:#}"),
        }
    }

    /// The programs that have subscribed.
    pub(super) fn subscribers(&self) -> Option<&Subscribers> {
        self.server.as_ref().map(|server| &**server.subscribers())
    }

    /// Whether finding out what to tell has cost so much that a program that asks has to wait.
    pub(super) fn owes(&self, now: Instant) -> bool {
        self.allowance.owes(now)
    }

    /// Something arrives when a program has subscribed.
    pub(super) fn news(&self) -> Receiver<()> {
        let server = self.server.as_ref();
        server.map_or_else(never, |server| server.news().clone())
    }
}

impl Scheduler<'_> {
    /// Tells programs what to expect; how long until the next time, if there are any.
    pub(super) fn advise(&mut self) -> Option<Duration> {
        let subscribers = self.advice.subscribers()?;
        if subscribers.is_empty() {
            return None;
        }
        let before = pace::cpu_time();
        subscribers.advise(|clients| self.agent.advise(&mut self.half, clients));
        subscribers.tell(&self.agent.topology);
        let took = pace::cpu_time().saturating_sub(before);
        Some(self.advice.allowance.next(Instant::now(), LOOK, took))
    }
}
