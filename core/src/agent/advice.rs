// SPDX-License-Identifier: GPL-2.0-or-later
//! Finds out what programs are to be told ([`crate::advice`]).
//!
//! A look goes through the task table once, and through the threads of each program that asks; of no more than
//! [`ASKED`] of these the policy is asked how fast they are where.

use rustc_hash::FxHashMap;

use super::{Agent, AgentInterference, Backend, speeds};
use crate::advice::team::{self, WorkShares};
use crate::advice::told::ToldByProgram;
use crate::advice::watch::{AdviceWatch, CpuUse, rooms};
use crate::advice::{Advice, TypeSpeeds, place::place};
use crate::interference::Interference;
use crate::policy::Policy;
use crate::table::Task;
use crate::topology::{MAX_CORE_TYPES, Topology};

/// Threads of a program that are asked about.
const ASKED: usize = 64;

/// What a program measured is forgotten when its company has changed by so many CPUs.
const OTHER_COMPANY: f64 = 0.6;

/// A program that asks.
#[derive(Clone, Debug, Default)]
pub struct AdviceClient {
    /// The process.
    pub tgid: u32,
    /// What it has told.
    pub told: ToldByProgram,
    /// What it was told last.
    pub advice: Advice,
    /// Company in which it measured.
    measured_in: f64,
}

impl AdviceClient {
    /// Of a process.
    pub fn new(tgid: u32) -> Self {
        Self {
            tgid,
            ..Self::default()
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct AgentAdvice {
    watch: AdviceWatch,
    /// By process, where its tasks are in the table; kept for its memory.
    threads: FxHashMap<u32, Vec<usize>>,
}

impl Agent {
    /// Finds out anew what to tell `clients`. To be called each tenth of a second or so while there are any.
    pub fn advise<'a, B: Backend>(
        &mut self,
        backend: &mut B,
        clients: impl Iterator<Item = &'a mut AdviceClient>,
    ) {
        self.look(backend);
        let now_ns = backend.now();
        let Self {
            advice,
            tasks,
            topology,
            policy,
            interference,
            own,
            ..
        } = self;
        if !advice.watch.look(now_ns, tasks, topology, *own) {
            return;
        }
        let clients: Vec<&mut AdviceClient> = clients.collect();
        let threads = &mut advice.threads;
        threads.clear();
        threads.extend(clients.iter().map(|of| (of.tgid, Vec::new())));
        for (at, task) in tasks.iter().enumerate() {
            if let Some(of) = threads.get_mut(&task.tgid) {
                of.push(at);
            }
        }
        for client in clients {
            let own = threads.get(&client.tgid).map_or(&[][..], Vec::as_slice);
            let own = own.iter().map(|&at| &tasks[at]);
            let team: Vec<&Task> = own.filter(|task| client.told.has(task.tid)).collect();
            let about = About {
                watch: &advice.watch,
                topology,
                policy: &**policy,
                interference,
            };
            about.tell(client, &team);
        }
    }
}

/// What is looked up for a client.
struct About<'a> {
    watch: &'a AdviceWatch,
    topology: &'a Topology,
    policy: &'a dyn Policy,
    interference: &'a AgentInterference,
}

impl About<'_> {
    fn tell(&self, client: &mut AdviceClient, team: &[&Task]) {
        let mut own = CpuUse::default();
        team.iter().for_each(|task| own.add(&self.watch.of(task)));
        let company = self.watch.all().without(&own);
        let wants = company.wants.max(company.share.iter().sum());
        if (wants - client.measured_in).abs() > OTHER_COMPANY {
            client.told.forget();
            client.measured_in = wants;
        }
        let allowed = team.iter().fold(0, |all, task| all | task.allowed_types);
        let allowed = if allowed == 0 { u8::MAX } else { allowed };
        let rooms = rooms(self.topology, &company, &self.speeds(team), allowed);
        let by_speed = team::worth(&rooms, WorkShares::BySpeed);
        let equal = team::worth(&rooms, WorkShares::Equal);
        let before = &client.advice;
        let now = |threads: usize| Some(threads).filter(|&threads| threads > 0);
        let measured = client.told.measured();
        let threads = team::threads(&by_speed, measured, now(before.threads));
        let threads_equal = team::threads(&equal, measured, now(before.threads_equal));
        let taken = self.watch.taken(team.iter().copied());
        let may = |id: u32| {
            let cpu = self.topology.cpu(id);
            cpu.is_some_and(|cpu| allowed & (1 << cpu.core_type) != 0)
        };
        client.advice = Advice {
            fast_cores: by_speed.get(threads - 1).copied().unwrap_or(0.0),
            company: wants,
            interference: self.worst(team),
            place: place(self.topology, &taken, threads, may),
            rooms,
            threads,
            threads_equal,
        };
    }

    /// How fast the team's threads are by core type, on average.
    fn speeds(&self, team: &[&Task]) -> TypeSpeeds {
        let (mut sum, mut number) = ([0.0; MAX_CORE_TYPES], 0.0);
        let known = |task: &Task| {
            let insight = self.policy.insight(task, self.topology);
            let measured = insight.asymmetry.iter().any(Option::is_some);
            measured.then(|| speeds(&insight, self.topology))
        };
        for speeds in team.iter().take(ASKED).filter_map(|task| known(task)) {
            for (sum, speed) in sum.iter_mut().zip(speeds) {
                *sum += speed;
            }
            number += 1.0;
        }
        match number {
            0.0 => speeds(&Default::default(), self.topology),
            _ => sum.map(|sum| sum / number),
        }
    }

    /// What slows the team's threads down most.
    fn worst(&self, team: &[&Task]) -> Option<Interference> {
        let known = team.iter().take(ASKED);
        let known = known.filter_map(|task| self.interference.of(task.id));
        known.max_by(|a, b| a.slowdown.total_cmp(&b.slowdown))
    }
}

#[cfg(test)]
mod tests;
