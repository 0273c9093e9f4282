// SPDX-License-Identifier: GPL-2.0-only
//! From readings of a running scheduler what is shown of it: rates between two of them, and how even and how fast
//! threads were in the last ten seconds.

use std::collections::{HashMap, VecDeque};

use super::live::*;
use super::work::Work;
use super::{CoreTypeTotals, EnergySums, EnergyTotals, Totals, part_watts, percent, watts};
use crate::agent::disturbed::DisturbedStory;
use crate::order::greatest_first;
use crate::table::{Comm, Task, TaskId, TaskState};
use crate::topology::MAX_CORE_TYPES;

/// A thread with so much load, percent of a CPU, is of the field where the policy does not say.
const BUSY_PERCENT: f64 = 25.0;

/// Unfairness and throughput are of the last so many ns, for over one interval between swaps every
/// schedule is unfair.
const WINDOW_NS: u64 = 10_000_000_000;

/// And are looked back to in steps of this, ns.
const STEP_NS: u64 = 1_000_000_000;

/// A thread counts for unfairness if it took part for so much of that time: one that has just come
/// has only been where chance put it.
const PART: f64 = 0.5;

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

/// Turns readings into what is shown, for a client that asks again and again.
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
            caches: caches(&now.totals),
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

/// The processes that hold most of last-level caches.
fn caches(totals: &Totals) -> Vec<LiveCache> {
    let processes = totals.processes.iter();
    let held = processes.filter_map(|(&pid, process)| Some((pid, process.caches.bytes?)));
    let most = greatest_first(held.filter(|(_, bytes)| *bytes > 0.0));
    let told = most
        .into_iter()
        .take(PROGRAMS)
        .map(|(pid, bytes)| LiveCache {
            pid,
            comm: totals.processes[&pid].name.clone(),
            bytes,
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
