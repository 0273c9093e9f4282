// SPDX-License-Identifier: GPL-2.0-only
//! What the agent does for last-level caches (docs/caches.md), whichever policy decides.

use std::time::Duration;

use super::Scheduler;

/// For the sake of caches the task table is read so often where the policy decides nothing, and so often in any case.
const CACHES_LOOK: Duration = Duration::from_millis(200);
const CACHES_WAIT: Duration = Duration::from_secs(1);

impl Scheduler<'_> {
    /// What caches hold, and which processes are to be monitored or confined, goes by looks at tasks, which not every
    /// policy makes.
    pub(super) fn look_for_caches(&mut self, decides: bool) {
        if self.resctrl.is_some() || self.agent.caches.is_on() {
            let age = if decides { CACHES_WAIT } else { CACHES_LOOK };
            self.agent.look_again(&mut self.half, age);
        }
    }

    /// Takes in what resctrl has counted, and tells which processes there are.
    pub(super) fn watch_caches(&mut self) {
        let Some(resctrl) = self.resctrl.as_mut().filter(|it| it.is_due()) else {
            return;
        };
        let (tasks, caches, topology) = self.agent.tasks_and_caches();
        resctrl.look(tasks, caches.processes.as_mut());
        for known in resctrl.all() {
            if let Some(bytes) = known.settled(topology.largest_llc()) {
                caches.measured(known.pid, known.read_ns, bytes, topology);
            }
        }
    }
}
