// SPDX-License-Identifier: GPL-2.0-only
//! What the monitor shows: the machine, its CPUs and its threads, as rates between two readings.

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::work::Work;
use super::{CoreTypeTotals, Counts, EnergySums, EnergyTotals, Totals, part_watts, percent, watts};
use crate::agent::disturbed::DisturbedStory;
use crate::goals::GoalStatus;
use crate::order::greatest_first;
use crate::policy::Insight;
use crate::table::{Comm, Task, TaskId, TaskState};
use crate::topology::MAX_CORE_TYPES;
use hetero_core::interference::Interference;

/// The most threads that are told, by load.
pub const LISTED: usize = 500;

/// A thread with so much load, percent of a CPU, is of the field where the policy does not say.
const BUSY_PERCENT: f64 = 25.0;

/// Unfairness and throughput are of the last so many ns, for over one interval between swaps every
/// schedule is unfair.
const WINDOW_NS: u64 = 10_000_000_000;

/// And are looked back to in steps of this, ns.
const STEP_NS: u64 = 1_000_000_000;

/// Processes whose joules are told one by one, the most.
const PROGRAMS: usize = 20;

/// A thread counts for unfairness if it took part for so much of that time: one that has just come
/// has only been where chance put it.
const PART: f64 = 0.5;

/// What the scheduler knows at one moment.
#[derive(Clone, Debug, Default)]
pub struct LiveReading {
    /// What is counted in all.
    pub totals: Totals,
    /// Percent, of a policy that knows it; see `--fairness`.
    pub fairness: Option<u8>,
    /// Static capacity by core type, of 1024.
    pub capacities: Vec<u32>,
    /// Every online CPU.
    pub cpus: Vec<CpuReading>,
    /// Every thread in the table.
    pub threads: Vec<ThreadReading>,
    /// Joules of processes since they were first seen, by their ids.
    pub programs: Vec<(u32, f64)>,
    /// What all threads have done so far, those that have ended, too.
    pub work: Work,
    /// What becomes of goals, in short.
    pub goals: LiveGoals,
    /// Subscriptions to advice.
    pub advised: u64,
}

/// What becomes of programs' goals, in short.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveGoals {
    /// How many there are.
    pub all: u64,
    /// How many of them are missed.
    pub missed: u64,
    /// Of those, that which is missed by most.
    pub worst: Option<GoalStatus>,
}

impl LiveGoals {
    /// Of these sessions, with and without goals.
    pub fn of(statuses: Vec<GoalStatus>) -> Self {
        let mut goals = Self::default();
        for status in statuses.into_iter().filter(|status| status.target > 0.0) {
            goals.all += 1;
            if status.reason.is_none() {
                continue;
            }
            goals.missed += 1;
            let part = |status: &GoalStatus| status.met().unwrap_or(0.0);
            if goals
                .worst
                .as_ref()
                .is_none_or(|worst| part(&status) < part(worst))
            {
                goals.worst = Some(status);
            }
        }
        if let Some(worst) = &mut goals.worst {
            worst.tids.clear();
        }
        goals
    }
}

/// A CPU at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuReading {
    /// CPU id.
    pub cpu: u32,
    /// Core type, index.
    pub core_type: usize,
    /// Cluster of that type.
    pub domain: usize,
    /// CPUs with the same number share the last-level cache.
    pub llc: usize,
    /// How long it has been busy, ns.
    pub busy_ns: u64,
}

/// A thread at one moment.
#[derive(Clone, Copy, Debug)]
pub struct ThreadReading {
    /// What the BPF half says.
    pub task: Task,
    /// What the policy says.
    pub insight: Insight,
    /// How often it was moved by the policy.
    pub moves: u64,
    /// Its energy since it was first seen, J, where that is known.
    pub joules: Option<f64>,
    /// What slows it down.
    pub interference: Option<Interference>,
}

/// Everything that the monitor shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Live {
    /// Time that the rates are of, ns.
    pub elapsed_ns: u64,
    /// Policy in force.
    pub policy: String,
    /// Those that there are.
    pub policies: Vec<String>,
    /// Percent, of a policy that knows it; see `--fairness`.
    pub fairness: Option<u8>,
    /// Power of the processor packages, W, where it can be counted.
    pub watts: Option<f64>,
    /// And the energy that they have taken since the scheduler began, J.
    pub joules: Option<f64>,
    /// Where that went.
    #[serde(default)]
    pub energy: Vec<LiveEnergy>,
    /// The [`PROGRAMS`] processes that took most, those first.
    #[serde(default)]
    pub programs: Vec<LiveProgram>,
    /// Whether efficient cores are filled first.
    pub saves: bool,
    /// Fastest first.
    pub core_types: Vec<LiveCoreType>,
    /// By id.
    pub cpus: Vec<LiveCpu>,
    /// The busiest [`LISTED`], the busiest first.
    pub threads: Vec<LiveThread>,
    /// Threads in the table, and how many of them are runnable.
    pub tasks: u64,
    /// See `tasks`.
    pub runnable: u64,
    /// The greatest slowdown over the least among threads that competed for fast cores for half of the
    /// last ten seconds or more, by what they did then; `None` with fewer than two.
    pub unfairness: Option<f64>,
    /// Aggregate speedup over the slowest core type in the last ten seconds, Σ(progress · SF − 1), each
    /// thread for as long as it took part; `None` if none did.
    pub asp: Option<f64>,
    /// Throughput of all threads then, in units of one alone on the fastest core type.
    pub stp: Option<f64>,
    /// Events in the interval, and since the scheduler began.
    pub counts: Counts,
    /// See `counts`.
    pub total_counts: Counts,
    /// What becomes of goals, in short; `goal list` and the monitor's view of them have it all.
    #[serde(default)]
    pub goals: LiveGoals,
    /// Subscriptions of programs to advice.
    #[serde(default)]
    pub advised: u64,
}

/// A part of the energy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveEnergy {
    /// `P`, say, for the threads on that core type; `untold` for what ran there too briefly to be told apart; `idle` for
    /// idle CPUs; `uncore` for what packages have beside cores; `memory`, which is not in the sum.
    pub part: String,
    /// J since the scheduler began.
    pub joules: f64,
    /// W in the interval; `None` where that cannot be told.
    pub watts: Option<f64>,
}

/// A process, and what it took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveProgram {
    /// Process id.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// J since it was first seen, threads that have ended among them.
    pub joules: f64,
}

/// A core type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveCoreType {
    /// Its name.
    pub name: String,
    /// Its online CPUs.
    pub cpus: u64,
    /// Busy, percent of all of them.
    pub busy_pct: f64,
}

/// A CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveCpu {
    /// CPU id.
    pub cpu: u32,
    /// Core type, index.
    pub core_type: usize,
    /// Cluster of that type.
    pub domain: usize,
    /// CPUs with the same number share the last-level cache.
    pub llc: usize,
    /// Busy, percent.
    pub busy_pct: f64,
    /// Present clock; `None` where the kernel does not say.
    pub mhz: Option<u32>,
    /// The thread that is on it, of those in the table.
    pub tid: Option<u32>,
    /// That thread's name.
    pub comm: String,
}

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveThread {
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// `running`, `queued` or `blocked`.
    pub state: String,
    /// CPU that it runs on, or ran on last.
    pub cpu: u32,
    /// Core type of that CPU, index.
    pub core_type: usize,
    /// CPU time, percent of one CPU.
    pub load_pct: f64,
    /// It competes for fast cores.
    pub takes_part: bool,
    /// Slowdown where it is, relative to the fastest core type undisturbed.
    pub slowdown: Option<f64>,
    /// Of it, what the core type makes.
    pub asymmetry: Option<f64>,
    /// And what contention makes.
    pub contention: Option<f64>,
    /// IPS on the fastest core type over that on the slowest, alone.
    pub sf: Option<f64>,
    /// Bus transfer rate, bytes/s.
    pub btr: Option<f64>,
    /// Its phase, by number in its history table.
    pub phase: Option<usize>,
    /// Phase hits among its latest samples, 0 to 1.
    pub hit_rate: Option<f64>,
    /// Effective progress, ns, from the mean of those that take part.
    pub lead_ns: Option<i64>,
    /// Moves by the policy in its life.
    pub moves: u64,
    /// Its part of the cores' power in the interval, W, where that is known.
    #[serde(default)]
    pub watts: Option<f64>,
    /// What slows it down beside others, if anything does.
    #[serde(default)]
    pub disturbed: Option<DisturbedStory>,
}

/// How far threads had come, and all together.
struct Mark {
    at_ns: u64,
    progress: HashMap<TaskId, u64>,
    work: Work,
}

/// What threads did from one mark on, those that took part at the end of it.
struct Step {
    from_ns: u64,
    to_ns: u64,
    /// All work before it.
    work: Work,
    done: Vec<(TaskId, u64)>,
}

/// Turns readings into what is shown, for one who asks again and again.
#[derive(Default)]
pub struct Rates {
    before: Option<LiveReading>,
    steps: VecDeque<Step>,
    mark: Option<Mark>,
}

impl Rates {
    /// What to show after `now`; of the first reading there are no rates yet.
    pub fn next(&mut self, now: LiveReading) -> Live {
        let none = LiveReading::default();
        let before = self.before.as_ref().unwrap_or(&none);
        let since = self
            .before
            .as_ref()
            .map_or(now.totals.at_ns, |b| b.totals.at_ns);
        let elapsed = now.totals.at_ns.saturating_sub(since);
        let earlier = self.before.as_ref().unwrap_or(&now);
        let counts = earlier.totals.counts;
        let ran: HashMap<TaskId, (u64, Option<f64>)> = before
            .threads
            .iter()
            .map(|thread| (thread.task.id, (thread.task.total_ns(), thread.joules)))
            .collect();
        let seconds = match (earlier.totals.energy, now.totals.energy) {
            (Some(before), Some(now)) => now.at_ns.saturating_sub(before.at_ns) as f64 / 1e9,
            _ => 0.0,
        };
        // Of a process its first thread's, or any other's.
        let mut names: HashMap<u32, Comm> = HashMap::new();
        for ThreadReading { task, .. } in &now.threads {
            let name = names.entry(task.tgid).or_insert(task.comm);
            if task.tid == task.tgid {
                *name = task.comm;
            }
        }
        let mut threads: Vec<(TaskId, u64, LiveThread)> = now
            .threads
            .iter()
            .filter(|thread| !thread.task.kthread)
            .map(|reading| {
                let task = &reading.task;
                let (earlier, joules) = match ran.get(&task.id) {
                    Some(&(ran, joules)) => (ran, joules),
                    None => (task.total_ns(), None),
                };
                let load = percent(task.total_ns().saturating_sub(earlier), elapsed);
                let grown = reading.joules.zip(joules).map(|(now, before)| now - before);
                let mut shown = thread(reading, load.min(100.0));
                let found = reading.interference.as_ref();
                let named = |pid: u32| names.get(&pid).map(|comm| comm.to_string());
                shown.disturbed = found.and_then(|found| DisturbedStory::of(found, named));
                shown.watts = grown
                    .filter(|_| seconds > 0.0)
                    .map(|joules| joules / seconds);
                (task.id, task.amp_progress, shown)
            })
            .collect();
        level(&now, &mut threads);
        let mut live = Live {
            elapsed_ns: elapsed,
            policy: now.totals.policy.clone(),
            fairness: now.fairness,
            watts: watts(&earlier.totals, &now.totals, |t| Some(t.energy?.joules)),
            joules: now.totals.energy.map(|energy| energy.joules),
            energy: energy(&earlier.totals, &now.totals),
            programs: programs(&now.programs, &names),
            saves: now.totals.saves,
            core_types: core_types(before, &now, elapsed),
            cpus: cpus(before, &now, elapsed),
            tasks: now.totals.tasks,
            runnable: now.totals.runnable,
            counts: now.totals.counts.since(&counts),
            total_counts: now.totals.counts,
            goals: now.goals.clone(),
            advised: now.advised,
            ..Live::default()
        };
        self.judge(&now, &threads, &mut live);
        threads.sort_by(|(_, _, a), (_, _, b)| {
            (b.load_pct.total_cmp(&a.load_pct)).then(a.tid.cmp(&b.tid))
        });
        threads.truncate(LISTED);
        live.threads = threads.into_iter().map(|(_, _, thread)| thread).collect();
        self.before = Some(now);
        live
    }

    /// Unfairness and throughput, by what was done within the window.
    fn judge(&mut self, now: &LiveReading, threads: &[(TaskId, u64, LiveThread)], live: &mut Live) {
        let at_ns = now.totals.at_ns;
        let old = |step: &Step| at_ns.saturating_sub(step.from_ns) > WINDOW_NS;
        while self.steps.front().is_some_and(old) {
            self.steps.pop_front();
        }
        let mark = |threads: &[(TaskId, u64, LiveThread)]| Mark {
            at_ns,
            progress: threads.iter().map(|(id, p, _)| (*id, *p)).collect(),
            work: now.work,
        };
        let Some(before) = self.mark.as_ref().filter(|mark| mark.at_ns < at_ns) else {
            self.mark.get_or_insert_with(|| mark(threads));
            return;
        };
        let taking_part = threads.iter().filter(|(_, _, thread)| thread.takes_part);
        let step = Step {
            from_ns: before.at_ns,
            to_ns: at_ns,
            work: before.work,
            done: taking_part
                .filter_map(|(id, progress, _)| {
                    let since = before.progress.get(id)?;
                    Some((*id, progress.saturating_sub(*since)))
                })
                .collect(),
        };
        let is_whole = at_ns - step.from_ns >= STEP_NS;
        self.steps.push_back(step);
        let first = &self.steps[0];
        let elapsed = at_ns - first.from_ns;
        let (stp, asp) = now.work.since(&first.work, elapsed);
        (live.stp, live.asp) = (Some(stp), asp);
        live.unfairness = unfairness(&self.steps, elapsed);
        if is_whole {
            self.mark = Some(mark(threads));
        } else {
            self.steps.pop_back();
        }
    }
}

/// Over all steps together, which take `elapsed` ns.
fn unfairness(steps: &VecDeque<Step>, elapsed: u64) -> Option<f64> {
    let mut all: HashMap<TaskId, (u64, u64)> = HashMap::new();
    for step in steps {
        for (id, progress) in &step.done {
            let (done, time) = all.entry(*id).or_default();
            *done += progress;
            *time += step.to_ns - step.from_ns;
        }
    }
    let took_part = |(_, time): &&(u64, u64)| *time as f64 >= PART * elapsed as f64;
    let speeds = all
        .values()
        .filter(took_part)
        .map(|&(done, time)| done as f64 / time as f64);
    let (mut count, mut most, mut least) = (0, 0.0, f64::INFINITY);
    for speed in speeds {
        (count, most, least) = (count + 1, f64::max(most, speed), f64::min(least, speed));
    }
    (count > 1 && least > 0.0).then(|| most / least)
}

/// The processes that took most.
fn programs(all: &[(u32, f64)], names: &HashMap<u32, Comm>) -> Vec<LiveProgram> {
    let took = all.iter().copied().filter(|(_, joules)| *joules > 0.0);
    let most = greatest_first(took).into_iter().take(PROGRAMS);
    let told = most.map(|(pid, joules)| LiveProgram {
        pid,
        comm: names.get(&pid).map(Comm::to_string).unwrap_or_default(),
        joules,
    });
    told.collect()
}

/// A thread, but for what takes the others to tell.
fn thread(reading: &ThreadReading, load_pct: f64) -> LiveThread {
    let ThreadReading {
        task,
        insight,
        moves,
        ..
    } = reading;
    let on = |by_type: &[Option<f64>]| by_type.get(task.core_type).copied().flatten();
    let (slowdown, asymmetry) = (on(&insight.slowdown), on(&insight.asymmetry));
    let runs = task.state != TaskState::Blocked && load_pct >= BUSY_PERCENT;
    LiveThread {
        tid: task.tid,
        pid: task.tgid,
        comm: task.comm.to_string(),
        state: task.state.name().into(),
        cpu: task.cpu.max(0) as u32,
        core_type: task.core_type,
        load_pct,
        takes_part: insight.takes_part.unwrap_or(runs),
        slowdown,
        asymmetry,
        contention: slowdown
            .zip(asymmetry)
            .map(|(whole, part)| (whole / part).max(1.0)),
        sf: None,
        btr: insight.btr,
        phase: insight.phase,
        hit_rate: insight.hit_rate,
        lead_ns: None,
        moves: *moves,
        watts: None,
        disturbed: None,
    }
}

/// Fills in SFs, and leads over the mean progress of those that take part.
fn level(now: &LiveReading, threads: &mut [(TaskId, u64, LiveThread)]) {
    let slowest = now.totals.core_types.len().saturating_sub(1);
    let readings = now.threads.iter().filter(|thread| !thread.task.kthread);
    let known: Vec<_> = readings
        .map(|reading| {
            let own = reading.task.amp_progress as i64;
            (reading.insight.progress_ns.unwrap_or(own), reading.insight)
        })
        .collect();
    let (mut sum, mut count) = (0_i128, 0_i128);
    for ((progress, _), (_, _, thread)) in known.iter().zip(&*threads) {
        if thread.takes_part {
            sum += i128::from(*progress);
            count += 1;
        }
    }
    let mean = (sum / count.max(1)) as i64;
    for ((progress, insight), (_, _, thread)) in known.iter().zip(threads) {
        thread.lead_ns = thread.takes_part.then(|| progress.saturating_sub(mean));
        thread.sf = insight.asymmetry.get(slowest).copied().flatten();
    }
}

/// Where energy went; nothing where that is not known.
fn energy(before: &Totals, now: &Totals) -> Vec<LiveEnergy> {
    let Some(EnergyTotals {
        sums: Some(sums),
        memory,
        ..
    }) = now.energy
    else {
        return Vec::new();
    };
    let part = |name: &str, of: fn(&EnergySums) -> f64| LiveEnergy {
        part: name.into(),
        joules: of(&sums),
        watts: part_watts(before, now, of),
    };
    let types = now.core_types.iter().enumerate().take(MAX_CORE_TYPES);
    let types = types.map(|(rank, kind)| LiveEnergy {
        part: kind.name.clone(),
        joules: sums.threads[rank],
        watts: part_watts(before, now, |sums| sums.threads[rank]),
    });
    let memory = memory.map(|joules| LiveEnergy {
        part: "memory".into(),
        joules,
        watts: watts(before, now, |totals| totals.energy?.memory),
    });
    let others = [
        part("untold", |sums| sums.untold),
        part("idle", |sums| sums.idle),
        part("uncore", |sums| sums.uncore),
    ];
    types.chain(others).chain(memory).collect()
}

fn core_types(before: &LiveReading, now: &LiveReading, elapsed: u64) -> Vec<LiveCoreType> {
    let earlier = |rank: usize| before.totals.core_types.get(rank);
    let types = now.totals.core_types.iter().enumerate();
    types
        .map(|(rank, kind): (usize, &CoreTypeTotals)| {
            let busy = earlier(rank).map_or(kind.busy_ns, |earlier| earlier.busy_ns);
            let busy = kind.busy_ns.saturating_sub(busy);
            LiveCoreType {
                name: kind.name.clone(),
                cpus: kind.cpus,
                busy_pct: percent(busy, elapsed * kind.cpus).min(100.0),
            }
        })
        .collect()
}

fn cpus(before: &LiveReading, now: &LiveReading, elapsed: u64) -> Vec<LiveCpu> {
    let running: HashMap<i32, &Task> = now
        .threads
        .iter()
        .filter(|thread| thread.task.state == TaskState::Running)
        .map(|thread| (thread.task.cpu, &thread.task))
        .collect();
    let busy: HashMap<u32, u64> = before
        .cpus
        .iter()
        .map(|cpu| (cpu.cpu, cpu.busy_ns))
        .collect();
    let cpus = now.cpus.iter();
    cpus.map(|cpu| {
        let earlier = busy.get(&cpu.cpu).copied().unwrap_or(cpu.busy_ns);
        let task = running.get(&(cpu.cpu as i32));
        LiveCpu {
            cpu: cpu.cpu,
            core_type: cpu.core_type,
            domain: cpu.domain,
            llc: cpu.llc,
            busy_pct: percent(cpu.busy_ns.saturating_sub(earlier), elapsed).min(100.0),
            mhz: None,
            tid: task.map(|task| task.tid),
            comm: task.map_or_else(String::new, |task| task.comm.to_string()),
        }
    })
    .collect()
}

#[cfg(test)]
mod tests;
