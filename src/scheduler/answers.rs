// SPDX-License-Identifier: GPL-2.0-only
//! What the scheduler answers those who ask at its statistics socket, and does for them.

use anyhow::Result;
use log::info;

use super::Scheduler;
use crate::agent::Backend as _;
use crate::agent::disturbed::{DisturbedStory, name_of};
use crate::policy::{self, Knows, Name};
use crate::stats::live::{CpuReading, LiveGoals, LiveReading, ThreadReading};
use crate::stats::story::{EnergyStory, HistoryEntry, Story, THREADS, ThreadStory};
use crate::stats::{Answer, Request};
use crate::table::Task;
use hetero_core::cache::{CacheStory, ConfinedStory};

impl Scheduler<'_> {
    pub(super) fn answer(&mut self, request: Request) -> Result<Answer> {
        Ok(match request {
            Request::Totals => Answer::Totals(Box::new(self.totals())),
            Request::Reading => Answer::Reading(Box::new(self.reading())),
            Request::Story(pid) => Answer::Story(self.story(pid)),
            Request::SetPolicy(name) => Answer::Set(Ok(self.set_policy(name)?)),
            Request::SetFairness(percent) => Answer::Set(self.set_fairness(percent)),
            Request::SetProfile(profile) => Answer::Set(Ok(self.set_profile(profile)?)),
            Request::ReadRules => Answer::Set(self.reload_rules()),
            Request::Goals => Answer::Goals(self.goals()),
            Request::SetGoal(id, wish) => Answer::Set(self.set_goal(id, wish)),
        })
    }

    fn reading(&mut self) -> LiveReading {
        let totals = self.totals();
        let busy_ns = |cpu: u32| {
            let bss = self.half.skel.maps.bss_data.as_ref();
            bss.map_or(0, |bss| bss.cpu_ctxs[cpu as usize].busy_ns.iter().sum())
        };
        let cpus = self.agent.topology.cpus.iter().map(|cpu| CpuReading {
            cpu: cpu.id,
            core_type: cpu.core_type,
            domain: cpu.domain,
            llc: cpu.llc,
            busy_ns: busy_ns(cpu.id),
        });
        let threads = self.agent.tasks().iter().map(|task| ThreadReading {
            task: *task,
            insight: self.agent.policy().insight(task, &self.agent.topology),
            moves: self.agent.moves.of(task.id),
            joules: self.agent.energy.joules(task.id),
            interference: self.agent.interference.of(task.id),
        });
        let types = self.agent.topology.types.iter();
        LiveReading {
            totals,
            fairness: self
                .agent
                .name()
                .knows(policy::Knows::Fairness)
                .then_some(self.wish.fairness),
            capacities: types.map(|kind| kind.capacity).collect(),
            cpus: cpus.collect(),
            threads: threads.collect(),
            programs: self.agent.energy.processes().collect(),
            work: self.agent.work(),
            goals: LiveGoals::of(self.goals()),
            advised: self.advice.subscribers().map_or(0, |all| all.len() as u64),
        }
    }

    /// Of the process or of the thread with this id.
    fn story(&mut self, pid: u32) -> Story {
        self.agent.look(&mut self.half);
        let process = self.agent.tasks().iter().filter(|task| task.tgid == pid);
        let mut tasks: Vec<&Task> = process.collect();
        if tasks.is_empty() {
            tasks.extend(self.agent.tasks().iter().find(|task| task.tid == pid));
        }
        tasks.sort_by_key(|task| std::cmp::Reverse((task.total_ns(), task.id)));
        let process = tasks.first().map_or(pid, |task| task.tgid);
        let types = self.agent.topology.types.iter();
        Story {
            advised: self.advice.subscribers().and_then(|all| all.story(process)),
            core_types: types.map(|kind| kind.name.clone()).collect(),
            policy: self.agent.name().to_string(),
            saves: self.saver.is_on(),
            more: tasks.len().saturating_sub(THREADS),
            threads: tasks
                .iter()
                .take(THREADS)
                .map(|task| self.thread_story(task))
                .collect(),
        }
    }

    fn thread_story(&self, task: &Task) -> ThreadStory {
        let nr_types = self.agent.topology.types.len();
        let insight = self.agent.policy().insight(task, &self.agent.topology);
        let history = self.agent.policy().history(task.id);
        let phase = |entry: &crate::slowdown::history::Entry| HistoryEntry {
            l1_per_kilo: entry.phase.l1_per_kilo,
            branch_percent: entry.phase.branch_percent,
            ipc: entry.ipc,
            frequency: entry.frequency,
            samples: entry.samples,
        };
        let now_ns = self.half.now();
        ThreadStory {
            tid: task.tid,
            pid: task.tgid,
            comm: task.comm.to_string(),
            state: task.state.name().into(),
            cpu: task.cpu.max(0) as u32,
            core_type: task.core_type,
            pinned: task.pinned,
            spinning: task.spinning,
            rule: self.agent.rules.told(task.id, &self.agent.topology),
            goal: self.goal_told(task),
            past: self.agent.past(task.id).told().map(Into::into),
            disturbed: self.agent.interference.of(task.id).and_then(|found| {
                DisturbedStory::of(&found, |pid| name_of(self.agent.tasks(), pid))
            }),
            untold: match &self.half.counting {
                Some(counting) => counting.untold(task.core_type).map(String::from),
                None => {
                    Some("what slows it down beside others is not told: nothing is counted".into())
                }
            },
            run_ns: task.run_ns[..nr_types].to_vec(),
            energy: self.agent.energy.thread(task.id).map(|energy| EnergyStory {
                joules: energy.joules[..nr_types].to_vec(),
                watts: energy.watts[..nr_types].to_vec(),
            }),
            rank: insight.rank,
            slowdown: insight.slowdown[..nr_types].to_vec(),
            asymmetry: insight.asymmetry[..nr_types].to_vec(),
            btr: insight.btr,
            cache: self.cache_told(task),
            hit_rate: insight.hit_rate,
            phase: insight.phase,
            phases: history.map_or_else(Vec::new, |h| h.entries().iter().map(phase).collect()),
            moves: self.agent.moves.of(task.id),
            last_moves: self.agent.moves.told(task.id, now_ns),
        }
    }

    fn cache_told(&self, task: &Task) -> Option<CacheStory> {
        let measured = self.resctrl.as_ref().and_then(|it| it.of(task.tgid));
        let size = self.agent.topology.largest_llc();
        let measured = measured.and_then(|known| Some((known.settled(size)?, known.rate)));
        let caches = &self.agent.caches;
        let mut story = caches.story(task, &self.agent.topology, measured)?;
        let curve = self.agent.curve(task.id, task.core_type);
        story.set_curve(&curve.points, curve.earlier);
        let confined = self.resctrl.as_ref().and_then(|it| it.confined(task.tgid));
        story.confined = confined.map(|(of, ways)| ConfinedStory {
            ways,
            mpki: (of.free, of.confined),
        });
        Some(story)
    }

    /// Lets another policy decide from now on.
    pub(super) fn set_policy(&mut self, name: policy::Name) -> Result<String> {
        if name == self.agent.name() {
            return Ok(format!("policy {name}, as before"));
        }
        self.wish.policy = Some(name);
        self.agent
            .set_policy(&mut self.half, name, &self.settings)?;
        self.tell_order();
        let lacks = self.lacking();
        info!("policy {name}{lacks}");
        Ok(format!("policy {name}{lacks}"))
    }

    /// What the policy would count and is not counted, in words.
    fn lacking(&self) -> String {
        let Some(events) = self.agent.policy().events() else {
            return String::new();
        };
        let name = self.agent.name();
        let remedy = format!("start with --policy {name} to have that");
        match &self.half.counting {
            None => format!(", without hardware counters ({remedy})"),
            Some(counting) => {
                let lacks = counting.lacks(events, self.agent.topology.types.len());
                let mut names: Vec<String> = lacks.iter().map(ToString::to_string).collect();
                // What threads take can be measured instead.
                let measures =
                    name.knows(policy::Knows::Energy) && self.half.sensors.energy().has_any();
                if name.knows(policy::Knows::NeedsModel) && !counting.has_model() && !measures {
                    names.push("a model".into());
                }
                match names.is_empty() {
                    true => String::new(),
                    false => format!(", without {} ({remedy})", names.join(", ")),
                }
            }
        }
    }

    fn set_fairness(&mut self, percent: u8) -> Result<String, String> {
        if !self.agent.set_fairness(percent) {
            let (name, those) = (self.agent.name(), Name::all_that_know(Knows::Fairness));
            return Err(format!(
                "fairness is for policy {those}, and {name} is in force: 'scx_hetero set policy' first"
            ));
        }
        self.settings.fairness = percent;
        if let Some(recording) = self.half.recording() {
            recording.fairness(percent);
        }
        self.wish.fairness = percent;
        info!("fairness {percent}");
        Ok(format!("fairness {percent}"))
    }
}
