// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler: takes what the BPF half enqueues, and says what runs where. To the agent it is what it
//! watches and acts on.

use std::convert::Infallible;
use std::mem::MaybeUninit;
use std::thread::yield_now;
use std::time::Duration;

use anyhow::Result;
use hetero_core::agent::{Author, Backend, Outcome};
use hetero_core::pmu::sample::Sample;
use hetero_core::policy::{Action, Seen};
use hetero_core::table::{Task, TaskId};
use hetero_core::topology::Topology;
use libbpf_rs::{MapCore, MapFlags, OpenObject};
use rustc_hash::FxHashMap;

use crate::bpf::{BpfScheduler, DispatchedTask, QueuedTask};
use crate::courier::Courier;
use crate::pidfd::Pidfd;
use crate::queues::{Key, Queues};
use crate::thread::{Thread, Times};

/// A turn on a CPU, ns. Nothing preempts within it, so a task that wakes up on a busy machine waits for so
/// long at most.
const SLICE_NS: u64 = 5_000_000;

/// So often the scheduler runs even if nothing is enqueued: no policy wants to decide more often.
const TICK: Duration = Duration::from_millis(50);

/// See the module.
pub(crate) struct Half<'a> {
    bpf: BpfScheduler<'a>,
    courier: Courier,
    /// By id: core type of each CPU, 0 for one that is not there.
    core_types: Vec<usize>,
    /// Online CPUs by core type.
    cpus: Vec<Vec<u32>>,
    /// How many they are.
    nr_cpus: u64,
    /// By id: a CPU that was looked at in this round of dispatches.
    tried: Vec<bool>,
    /// A bit for each core type.
    types: u8,
    threads: FxHashMap<i32, Thread>,
    queues: Queues<QueuedTask>,
    /// The vtime of the task that was dispatched last: newcomers and sleepers begin there.
    vtime: u64,
    /// The most progress of all threads.
    progress: u64,
    /// Of the thread that came last.
    generation: u32,
    /// How far CLOCK_MONOTONIC is ahead of the BPF half's clock, at most, ns.
    ahead: i64,
}

impl<'a> Half<'a> {
    /// Attaches it: from now on nothing runs that it does not dispatch.
    ///
    /// # Errors
    /// The BPF half cannot be loaded or attached.
    pub(crate) fn attach(
        object: &'a mut MaybeUninit<OpenObject>,
        topology: &Topology,
        name: &str,
    ) -> Result<Self> {
        let mut core_types = vec![0; topology.nr_cpu_ids as usize];
        for cpu in &topology.cpus {
            core_types[cpu.id as usize] = cpu.core_type;
        }
        let cpus: Vec<_> = topology
            .types
            .iter()
            .map(|kind| kind.cpus.clone())
            .collect();
        // Before memory is locked, and mapping more forbidden.
        let courier = Courier::start(topology.cpus[0].id, topology.nr_cpu_ids, TICK)?;
        // No dump, all tasks, no idle CPU chosen by the BPF half.
        let bpf = BpfScheduler::init(object, None, 0, false, false, false, false, SLICE_NS, name)?;
        Ok(Self {
            bpf,
            courier,
            tried: vec![false; core_types.len()],
            core_types,
            cpus,
            nr_cpus: topology.cpus.len() as u64,
            types: (1u8 << topology.types.len()) - 1,
            threads: FxHashMap::default(),
            queues: Queues::new(topology.types.len()),
            vtime: 0,
            progress: 0,
            generation: 0,
            ahead: i64::MAX,
        })
    }

    /// Whether it is to end, or has been ended.
    pub(crate) fn exited(&mut self) -> bool {
        self.bpf.exited()
    }

    /// Detaches it, and says what was done.
    ///
    /// # Errors
    /// The kernel ended it.
    pub(crate) fn detach(&mut self) -> Result<String> {
        let by_user = *self.bpf.nr_user_dispatches_mut();
        let bounced = *self.bpf.nr_bounce_dispatches_mut();
        let by_kernel = *self.bpf.nr_kernel_dispatches_mut();
        let congested = *self.bpf.nr_sched_congested_mut();
        let cancelled = *self.bpf.nr_cancel_dispatches_mut();
        let said = format!(
            "dispatches: {by_user} by user space, {bounced} bounced by affinity, {by_kernel} by the \
             kernel alone, {congested} of them as the ring buffer was full; {cancelled} cancelled"
        );
        self.bpf.shutdown_and_report()?;
        Ok(said)
    }

    /// Lets others run. The BPF half runs the scheduler again on the next CPU that looks for a task, if
    /// some have been enqueued, or wait here.
    pub(crate) fn wait(&mut self) {
        self.bpf.notify_complete(self.queues.len() as u64);
    }

    /// Takes all that the BPF half has enqueued.
    pub(crate) fn take_queued(&mut self) {
        while let Ok(Some(task)) = self.bpf.dequeue_task() {
            self.enqueue(task);
        }
    }

    fn enqueue(&mut self, task: QueuedTask) {
        let latest = task.start_ts.max(task.stop_ts);
        self.ahead = self.ahead.min(self.now() as i64 - latest as i64);
        let now = self.now_of_bpf();
        let thread = self.threads.entry(task.pid).or_insert_with(|| {
            self.generation += 1;
            let id = TaskId {
                slot: task.pid as u32,
                generation: self.generation,
            };
            Thread::new(id, &task, now, self.vtime, self.progress)
        });
        // It was dequeued while it waited, as when its affinity changes.
        if let Some(key) = thread.waits.take() {
            self.queues.remove(self.queues.of(thread.hint), key);
        }
        thread.update(&task);
        thread.cpu = task.cpu as u32;
        thread.core_type = self.core_types[task.cpu as usize];
        thread.narrow = task.nr_cpus_allowed < self.nr_cpus;
        let times = Times {
            start: task.start_ts,
            stop: task.stop_ts,
        };
        thread.charge(times, now);
        thread.vtime = thread.vtime.max(self.vtime.saturating_sub(SLICE_NS));
        self.progress = self.progress.max(thread.progress());
        if thread.narrow {
            let idle = self.bpf.select_cpu(task.pid, task.cpu, 0);
            let cpu = u32::try_from(idle).unwrap_or(task.cpu as u32);
            self.dispatch(&task, cpu);
        } else if let Some(cpu) = thread.next_cpu.take() {
            self.dispatch(&task, cpu);
        } else {
            let key = Key {
                vtime: thread.vtime,
                pid: task.pid,
            };
            thread.waits = Some(key);
            self.queues.push(self.queues.of(thread.hint), key, task);
        }
    }

    /// Gives each free CPU the next task: first each core type its own, then what is left to any. The CPU
    /// that the scheduler runs on is free as soon as it waits, and so the first of its type.
    pub(crate) fn dispatch_queued(&mut self) {
        if self.queues.len() == 0 {
            return;
        }
        // SAFETY: the call takes no memory.
        let own = unsafe { libc::sched_getcpu() } as u32;
        let of_own_type = &mut self.cpus[self.core_types[own as usize]];
        if let Some(at) = of_own_type.iter().position(|&cpu| cpu == own) {
            of_own_type.swap(0, at);
        }
        let others_idle = *self.bpf.nr_running_mut() + 1 < self.nr_cpus;
        self.tried.fill(false);
        for steals in [false, true] {
            for core_type in 0..self.cpus.len() {
                for at in 0..self.cpus[core_type].len() {
                    let cpu = self.cpus[core_type][at];
                    let Some((queue, key)) = self.queues.next(core_type, steals) else {
                        break;
                    };
                    let tried = std::mem::replace(&mut self.tried[cpu as usize], true);
                    let free = !tried && (cpu == own || others_idle && self.claim(cpu));
                    if free && let Some(task) = self.queues.remove(queue, key) {
                        self.dispatch(&task, cpu);
                    }
                }
            }
        }
    }

    /// Claims a CPU, if it is idle. See [`Courier`].
    fn claim(&mut self, cpu: u32) -> bool {
        self.bpf.select_cpu(self.courier.tid, cpu as i32, 0) == cpu as i32
    }

    /// Puts a task into the queue of a CPU.
    fn dispatch(&mut self, task: &QueuedTask, cpu: u32) {
        let now = self.now_of_bpf();
        let mut dispatched = DispatchedTask::new(task);
        dispatched.cpu = cpu as i32;
        dispatched.slice_ns = SLICE_NS;
        if let Some(thread) = self.threads.get_mut(&task.pid) {
            thread.waits = None;
            thread.cpu = cpu;
            thread.core_type = self.core_types[cpu as usize];
            thread.dispatched = now;
            dispatched.vtime = thread.vtime;
            self.vtime = self.vtime.max(thread.vtime);
        }
        // The buffer is full; the BPF half empties it when it looks for a task.
        while self.bpf.dispatch_task(&dispatched).is_err() {
            yield_now();
        }
    }

    /// The BPF half's clock, near enough.
    fn now_of_bpf(&self) -> u64 {
        self.now().saturating_add_signed(-self.ahead)
    }

    /// What the BPF half knows of a thread; `None` if it has ended.
    fn times(&self, pidfd: &Pidfd) -> Option<Times> {
        let map = &self.bpf.skel.maps.task_ctx_stor;
        let bytes = map.lookup(&pidfd.key(), MapFlags::ANY).ok()??;
        let word = |at: usize| {
            Some(u64::from_ne_bytes(
                bytes.get(8 * at..8 * at + 8)?.try_into().ok()?,
            ))
        };
        Some(Times {
            start: word(0)?,
            stop: word(1)?,
        })
    }

    /// The thread that the policy saw, if it is where the policy saw it.
    fn seen(&mut self, seen: Seen) -> Option<&mut Thread> {
        let thread = self.threads.get_mut(&(seen.task.slot as i32))?;
        (thread.id == seen.task && thread.core_type == seen.on).then_some(thread)
    }

    /// Hints a thread to a core type; it is to come to the scheduler at the end of its slice.
    fn hint(&mut self, seen: Seen, hint: Option<usize>) -> Outcome {
        let Some(thread) = self.seen(seen) else {
            return Outcome::Stale;
        };
        let before = std::mem::replace(&mut thread.hint, hint);
        let (cpu, waits) = (thread.cpu, thread.waits);
        if let Some(key) = waits {
            let (from, to) = (self.queues.of(before), self.queues.of(hint));
            if let Some(task) = self.queues.remove(from, key) {
                self.queues.push(to, key, task);
            }
        } else if hint.is_some_and(|hint| hint != seen.on) {
            self.courier.visit(cpu);
        }
        Outcome::Applied
    }

    /// Exchanges two threads: each is to go where the other was. The second comes to the scheduler when the
    /// first waits for its CPU.
    fn swap(&mut self, pair: [(Seen, usize); 2]) -> Outcome {
        let cpus = pair.map(|(seen, _)| self.seen(seen).map(|thread| thread.cpu));
        let [Some(one), Some(other)] = cpus else {
            return Outcome::Stale;
        };
        for ((seen, to), cpu) in pair.into_iter().zip([other, one]) {
            self.hint(seen, Some(to));
            if let Some(thread) = self.seen(seen).filter(|thread| thread.waits.is_none()) {
                thread.next_cpu = Some(cpu);
            }
        }
        Outcome::Applied
    }
}

impl Backend for Half<'_> {
    type Error = Infallible;

    fn now(&self) -> u64 {
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the kernel writes one timespec.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    /// None: opening counters of a thread waits for locks that it holds while it becomes another program.
    fn samples(&mut self, _: &mut Vec<Sample>) -> Result<(), Infallible> {
        Ok(())
    }

    fn snapshot(&mut self, tasks: &mut Vec<Task>) {
        tasks.clear();
        let now = self.now_of_bpf();
        let mut threads = std::mem::take(&mut self.threads);
        threads.retain(|&pid, thread| {
            let pidfd = Pidfd::open(pid as u32);
            let Some((pidfd, times)) =
                pidfd.and_then(|fd| self.times(&fd).map(|times| (fd, times)))
            else {
                if let Some(key) = thread.waits {
                    self.queues.remove(self.queues.of(thread.hint), key);
                }
                return false;
            };
            thread.charge(times, now);
            self.progress = self.progress.max(thread.progress());
            if let Some((tgid, parent)) = pidfd.process() {
                thread.set_process(tgid, parent);
            }
            if let Some(task) = thread.task(times, self.types) {
                tasks.push(task);
            }
            // It ran where there was room; by now there may be some where it should.
            if thread.hint.is_some_and(|hint| hint != thread.core_type) && times.start > times.stop
            {
                self.courier.visit(thread.cpu);
            }
            true
        });
        self.threads = threads;
        tasks.sort_unstable_by_key(|task| task.id);
    }

    fn apply(
        &mut self,
        actions: &[Action],
        _: Author,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), Infallible> {
        outcomes.extend(actions.iter().map(|action| match *action {
            Action::Hint(seen, hint) => self.hint(seen, hint),
            Action::Swap(pair) => self.swap(pair),
            Action::Slowdown(id, inverse) => match self.threads.get_mut(&(id.slot as i32)) {
                Some(thread) if thread.id == id => {
                    thread.inverse = inverse;
                    Outcome::Applied
                }
                _ => Outcome::Stale,
            },
            // No policy here needs a quiet machine, and no rule is read.
            Action::Park(..) | Action::Weight(..) | Action::Join(..) => Outcome::Refused,
        }));
        Ok(())
    }
}
