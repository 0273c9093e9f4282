// SPDX-License-Identifier: GPL-2.0-only
//! The thread that reads resctrl for the scheduler: the kernel may take its time for that, and nothing waits for it.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, bounded};
use hetero_core::cache::GroupPool;
use hetero_core::cache::pool::MonitoredProcess;
use log::{debug, info};
use rustc_hash::FxHashMap;

use super::groups::ResctrlGroups;
use crate::table::Task;

/// Groups are read so often, and reading takes at most this part of the time.
const STEP: Duration = Duration::from_secs(1);
const PART: u32 = 100;
const LONGEST: Duration = Duration::from_secs(30);

/// How much nicer than others the thread is.
const NICE: i32 = 19;

/// A process is monitored that has run for so long within a step, ns, and until it has not for so long.
const BUSY_NS: u64 = 20_000_000;
const IDLE: Duration = Duration::from_secs(10);

/// Processes that are asked for at once, at most.
const MOST_PROCESSES: usize = 256;

/// The agent's end of it.
#[derive(Debug)]
pub(crate) struct ResctrlService {
    ask: Sender<Vec<u32>>,
    known: Arc<Mutex<Vec<MonitoredProcess>>>,
    thread: Option<JoinHandle<()>>,
    due: Instant,
    busy: BusyProcesses,
    /// What was known last, by process id.
    latest: Vec<MonitoredProcess>,
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
    /// Starts it, if there is anything to read below `root`.
    pub(crate) fn start(root: &Path) -> Option<Self> {
        let groups = match ResctrlGroups::find(root, std::process::id()) {
            Ok(groups) => groups,
            Err(why) => {
                debug!("caches are not monitored: {why}");
                return None;
            }
        };
        info!(
            "resctrl monitors caches of up to {} processes at a time",
            groups.most()
        );
        let (ask, asked) = bounded(1);
        let known = Arc::new(Mutex::new(Vec::new()));
        let told = known.clone();
        let serve = move || serve(groups, &asked, &told);
        let thread = thread::Builder::new().name("scx_resctrl".into());
        Some(Self {
            ask,
            known,
            thread: thread.spawn(serve).ok(),
            due: Instant::now(),
            busy: BusyProcesses::default(),
            latest: Vec::new(),
        })
    }

    /// Whether it is time to say which processes there are.
    pub(crate) fn is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    /// Tells which processes are busy, and takes in what is known of those that were before.
    pub(crate) fn look(&mut self, tasks: &[Task]) {
        let now = Instant::now();
        self.due = now + STEP;
        self.busy.look(now, tasks);
        let _ = self.ask.try_send(self.busy.processes());
        if let Ok(known) = self.known.try_lock() {
            self.latest.clone_from(&known);
        }
    }

    /// Of a process.
    pub(crate) fn of(&self, pid: u32) -> Option<&MonitoredProcess> {
        let found = self.latest.binary_search_by_key(&pid, |known| known.pid);
        found.ok().map(|at| &self.latest[at])
    }

    /// All that are monitored.
    pub(crate) fn all(&self) -> &[MonitoredProcess] {
        &self.latest
    }
}

impl Drop for ResctrlService {
    /// Groups are gone when it ends.
    fn drop(&mut self) {
        let (nothing, _) = bounded(0);
        self.ask = nothing;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(
    mut groups: ResctrlGroups,
    asked: &Receiver<Vec<u32>>,
    told: &Mutex<Vec<MonitoredProcess>>,
) {
    // SAFETY: it changes the calling thread alone.
    if unsafe { nix::libc::setpriority(nix::libc::PRIO_PROCESS, 0, NICE) } != 0 {
        debug!("the thread that reads resctrl is as nice as others");
    }
    let began = Instant::now();
    let mut pool = GroupPool::new(groups.most());
    let mut ready = began;
    // While the agent sleeps, so does all that would be monitored.
    while let Ok(processes) = asked.recv() {
        let from = Instant::now();
        if from < ready {
            continue;
        }
        pool.update(began.elapsed().as_nanos() as u64, &processes, &mut groups);
        if let Ok(mut told) = told.lock() {
            told.clear();
            told.extend(pool.monitored());
            told.sort_unstable_by_key(|known| known.pid);
        }
        ready = from + (PART * from.elapsed()).min(LONGEST);
    }
    pool.close(&mut groups);
}
