// SPDX-License-Identifier: GPL-2.0-only
//! What the scheduler knows at one moment, and what the monitor shows of that: the machine, its CPUs and its threads
//! (`rates.rs` makes the one from the other).

use serde::{Deserialize, Serialize};

use super::work::Work;
use super::{Counts, Totals};
use crate::agent::disturbed::DisturbedStory;
use crate::goals::GoalStatus;
use crate::policy::Insight;
use crate::table::Task;
use hetero_core::interference::Interference;

/// The most threads that are told, by load.
pub const LISTED: usize = 500;

/// Processes whose joules or caches are told one by one, the most.
pub const PROGRAMS: usize = 20;

/// Sessions with a goal that are told one by one, the most.
pub const SESSIONS: usize = 20;

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
    /// The [`SESSIONS`] that are missed by most, without their threads, the worst first; where fewer are missed, others
    /// by number.
    #[serde(default)]
    pub sessions: Vec<GoalStatus>,
}

impl LiveGoals {
    /// Of these sessions, with and without goals.
    pub fn of(mut sessions: Vec<GoalStatus>) -> Self {
        sessions.retain(|status| status.target > 0.0);
        let all = sessions.len() as u64;
        let missed = sessions.iter().filter(|status| status.reason.is_some());
        let missed = missed.count() as u64;
        let part = |status: &GoalStatus| match status.reason {
            Some(_) => status.met().unwrap_or(0.0),
            None => f64::INFINITY,
        };
        sessions.sort_by(|a, b| part(a).total_cmp(&part(b)).then(a.id.cmp(&b.id)));
        sessions.truncate(SESSIONS);
        // A reading is kept for each client, in memory that is locked.
        sessions.shrink_to_fit();
        for status in &mut sessions {
            status.tids = Vec::new();
        }
        Self {
            all,
            missed,
            sessions,
        }
    }

    /// The session that misses its goal by most.
    pub fn worst(&self) -> Option<&GoalStatus> {
        let first = self.sessions.first();
        first.filter(|status| status.reason.is_some())
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
    /// The [`PROGRAMS`] processes that hold most of last-level caches, those first.
    #[serde(default)]
    pub caches: Vec<LiveCache>,
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

/// A process, and what it holds of last-level caches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveCache {
    /// Process id.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// Bytes, counted by hardware or estimated from misses.
    pub bytes: f64,
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
