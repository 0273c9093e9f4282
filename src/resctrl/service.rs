// SPDX-License-Identifier: GPL-2.0-only
//! The thread that reads and writes resctrl for the scheduler: the kernel may take its time for that, and nothing waits for it.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, bounded};
use hetero_core::cache::pool::{GroupError, MonitoredProcess};
use hetero_core::cache::{CacheWays, ConfinedProcess, GroupPool, Partition, ProcessMisses};
use log::{debug, info, warn};
use rustc_hash::{FxHashMap, FxHashSet};

use super::groups::ResctrlGroups;
use super::ways::ResctrlWays;
use crate::connections::join_in_time;
use crate::scheduler::priority::run_when_idle;
use crate::table::Task;

/// Groups are read so often, and reading takes at most this part of the time.
const STEP: Duration = Duration::from_secs(1);
const PART: u32 = 100;
const LONGEST: Duration = Duration::from_secs(30);

/// A process is monitored that has run for so long within a step, ns, and until it has not for so long.
const BUSY_NS: u64 = 20_000_000;
const IDLE: Duration = Duration::from_secs(10);

/// Processes that are asked for at once, at most.
const MOST_PROCESSES: usize = 256;

/// What the agent tells.
#[derive(Debug, Default)]
struct Asked {
    /// Busy processes.
    busy: Vec<u32>,
    /// What processes did since the last time.
    misses: Vec<ProcessMisses>,
}

/// What the agent is told, by process id.
#[derive(Clone, Debug, Default)]
struct Told {
    monitored: Vec<MonitoredProcess>,
    confined: Vec<ConfinedProcess>,
}

/// The agent's end of it.
#[derive(Debug)]
pub(crate) struct ResctrlService {
    ask: Sender<Asked>,
    known: Arc<Mutex<Told>>,
    thread: Option<JoinHandle<Caches>>,
    due: Instant,
    busy: BusyProcesses,
    latest: Told,
    /// Those that are confined have so many ways of so many.
    ways: Option<[u32; 2]>,
}

/// Which processes run for more than a moment.
#[derive(Debug, Default)]
struct BusyProcesses {
    /// By process id: run time, ns, and when it last grew by enough.
    known: FxHashMap<u32, (u64, Option<Instant>)>,
    sums: FxHashMap<u32, u64>,
}

impl BusyProcesses {
    fn look(&mut self, now: Instant, tasks: &[Task]) {
        self.sums.clear();
        let own = std::process::id();
        let ordinary = |task: &&Task| !task.kthread && task.tgid != own;
        for task in tasks.iter().filter(ordinary) {
            *self.sums.entry(task.tgid).or_default() += task.total_ns();
        }
        self.known.retain(|tgid, _| self.sums.contains_key(tgid));
        for (&tgid, &ns) in &self.sums {
            let (before, busy) = self.known.entry(tgid).or_insert((ns, None));
            if ns.saturating_sub(*before) >= BUSY_NS {
                *busy = Some(now);
            }
            *before = ns;
        }
        let idle = |since: Instant| now.duration_since(since) > IDLE;
        for (_, busy) in self.known.values_mut() {
            *busy = busy.filter(|&since| !idle(since));
        }
    }

    /// At most [`MOST_PROCESSES`].
    fn processes(&self) -> Vec<u32> {
        let busy = self.known.iter().filter(|(_, (_, busy))| busy.is_some());
        busy.map(|(&tgid, _)| tgid).take(MOST_PROCESSES).collect()
    }
}

impl ResctrlService {
    /// Starts it, if there is anything to read below `root`, or, with `partition`, to write. Its caches have `cache_bytes`.
    pub(crate) fn start(root: &Path, partition: bool, cache_bytes: f64) -> Option<Self> {
        let owner = std::process::id();
        let groups = ResctrlGroups::find(root, owner)
            .inspect_err(|why| debug!("caches are not monitored: {why}"))
            .ok();
        let ways = partition.then(|| ResctrlWays::find(root, owner));
        let ways = ways.and_then(|ways| {
            ways.inspect_err(|why| warn!("caches are not partitioned: {why}"))
                .ok()
        });
        if groups.is_none() && ways.is_none() {
            return None;
        }
        if let Some(groups) = &groups {
            info!(
                "resctrl monitors caches of up to {} processes at a time",
                groups.most()
            );
        }
        let (ask, asked) = bounded(1);
        let known = Arc::new(Mutex::new(Told::default()));
        let told = known.clone();
        let few = ways.as_ref().map(ResctrlWays::ways);
        let pool = GroupPool::new(groups.as_ref().map_or(0, ResctrlGroups::most));
        let caches = Caches {
            processes: Processes { pool, groups, ways },
            partition: Partition::new(cache_bytes),
            misses: FxHashMap::default(),
            seen: FxHashSet::default(),
        };
        let serve = move || serve(caches, &asked, &told);
        let thread = thread::Builder::new().name("scx_resctrl".into());
        Some(Self {
            ask,
            known,
            thread: thread.spawn(serve).ok(),
            due: Instant::now(),
            busy: BusyProcesses::default(),
            latest: Told::default(),
            ways: few,
        })
    }

    /// Whether it goes by what processes miss.
    pub(crate) fn partitions(&self) -> bool {
        self.ways.is_some()
    }

    /// Whether it is time to say which processes there are.
    pub(crate) fn is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    /// Tells which processes are busy, and what they `missed` since the last time, which is empty then if it was told; takes in what
    /// is known of those that were before.
    pub(crate) fn look(
        &mut self,
        tasks: &[Task],
        missed: Option<&mut FxHashMap<u32, ProcessMisses>>,
    ) {
        let now = Instant::now();
        self.due = now + STEP;
        self.busy.look(now, tasks);
        let misses = missed.as_ref().map(|of| of.values().copied().collect());
        let asked = Asked {
            busy: self.busy.processes(),
            misses: misses.unwrap_or_default(),
        };
        if let (Ok(()), Some(missed)) = (self.ask.try_send(asked), missed) {
            missed.clear();
        }
        if let Ok(known) = self.known.try_lock() {
            self.latest.clone_from(&known);
        }
    }

    /// Of a process.
    pub(crate) fn of(&self, pid: u32) -> Option<&MonitoredProcess> {
        let known = &self.latest.monitored;
        let found = known.binary_search_by_key(&pid, |known| known.pid);
        found.ok().map(|at| &known[at])
    }

    /// All that are monitored.
    pub(crate) fn all(&self) -> &[MonitoredProcess] {
        &self.latest.monitored
    }

    /// A process that is confined, and how many ways it has of how many.
    pub(crate) fn confined(&self, pid: u32) -> Option<(ConfinedProcess, [u32; 2])> {
        let known = &self.latest.confined;
        let found = known.binary_search_by_key(&pid, |known| known.pid);
        found.ok().map(|at| known[at]).zip(self.ways)
    }
}

impl Drop for ResctrlService {
    /// Groups are gone when it ends.
    fn drop(&mut self) {
        let (nothing, _) = bounded(0);
        self.ask = nothing;
        // Not by that thread, which may hardly get to it. What is left behind the next scheduler removes.
        if let Some(mut caches) = self.thread.take().and_then(join_in_time) {
            caches.close();
        }
    }
}

/// What is behind the folders.
struct Processes {
    pool: GroupPool,
    groups: Option<ResctrlGroups>,
    ways: Option<ResctrlWays>,
}

impl Processes {
    /// A monitoring group is one of a control group's: it is made anew in the other.
    fn leave(&mut self, pid: u32) {
        if let Some(groups) = &mut self.groups {
            self.pool.leave(pid, groups);
        }
    }
}

impl CacheWays for Processes {
    fn confine(&mut self, pid: u32) -> Result<(), GroupError> {
        self.leave(pid);
        let ways = self.ways.as_mut().ok_or(GroupError::Gone)?;
        ways.confine(pid)
    }

    fn release(&mut self, pid: u32) {
        self.leave(pid);
        if let Some(ways) = &mut self.ways {
            ways.release(pid);
        }
    }
}

struct Caches {
    processes: Processes,
    partition: Partition,
    /// Since the last step.
    misses: FxHashMap<u32, ProcessMisses>,
    /// Those that were busy at the last step.
    seen: FxHashSet<u32>,
}

impl Caches {
    fn take(&mut self, misses: &[ProcessMisses]) {
        for new in misses {
            let sum = self.misses.entry(new.pid).or_insert(ProcessMisses {
                pid: new.pid,
                ..ProcessMisses::default()
            });
            sum.instructions += new.instructions;
            sum.misses += new.misses;
        }
    }

    fn step(&mut self, now_ns: u64, busy: &[u32]) {
        let processes = &mut self.processes;
        if processes.ways.is_some() {
            // What a confined process has started is not it.
            for &pid in busy.iter().filter(|pid| !self.seen.contains(pid)) {
                if let Some(ways) = &mut processes.ways
                    && !self.partition.is_confined(pid)
                {
                    ways.release(pid);
                }
            }
            self.seen.clear();
            self.seen.extend(busy);
            // Not kernel threads, nor what looks.
            let misses = self.misses.drain().map(|(_, misses)| misses);
            let misses: Vec<_> = misses.filter(|of| self.seen.contains(&of.pid)).collect();
            self.partition.update(now_ns, &misses, processes);
        }
        if let Some(groups) = &mut processes.groups {
            processes.pool.update(now_ns, busy, groups);
        }
    }

    /// Removes all monitoring groups.
    fn close(&mut self) {
        let Processes { pool, groups, .. } = &mut self.processes;
        if let Some(groups) = groups {
            pool.close(groups);
        }
    }

    fn tell(&self, told: &mut Told) {
        told.monitored.clear();
        told.monitored.extend(self.processes.pool.monitored());
        told.monitored.sort_unstable_by_key(|known| known.pid);
        told.confined = self.partition.confined();
    }
}

fn serve(mut caches: Caches, asked: &Receiver<Asked>, told: &Mutex<Told>) -> Caches {
    // Else it would go before all other tasks, as one of the agent's.
    if let Err(why) = run_when_idle() {
        debug!("the thread that reads resctrl goes before others: {why}");
    }
    let began = Instant::now();
    let mut ready = began;
    // While the agent sleeps, so does all that would be monitored.
    while let Ok(Asked { busy, misses }) = asked.recv() {
        caches.take(&misses);
        let from = Instant::now();
        if from < ready {
            continue;
        }
        caches.step(began.elapsed().as_nanos() as u64, &busy);
        if let Ok(mut told) = told.lock() {
            caches.tell(&mut told);
        }
        ready = from + (PART * from.elapsed()).min(LONGEST);
    }
    caches
}
