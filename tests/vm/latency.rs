// SPDX-License-Identifier: GPL-2.0-only
//! How long brief tasks wait beside those that compute, in the virtual machine (`make test`): in
//! its own time, so how busy the host is changes nothing.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::support::*;

const FRAME: Duration = Duration::from_nanos(16_666_667);

/// Value below which so many hundredths of them lie.
fn percentile(values: &mut [Duration], hundredths: usize) -> Duration {
    values.sort();
    values[(values.len() * hundredths / 100).min(values.len() - 1)]
}

/// Frames that took longer than until the next one was due, and the longest time from a frame's
/// beginning to its end.
#[derive(Debug)]
struct Drawn {
    missed: usize,
    longest: Duration,
}

/// A loop that draws 60 frames a second, each 2 ms of work.
fn draw(frames: u32) -> Drawn {
    let begin = Instant::now();
    let times: Vec<_> = (1..=frames)
        .map(|frame| {
            let due = begin + FRAME * frame;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            work(ms(2));
            due.elapsed()
        })
        .collect();
    Drawn {
        missed: times.iter().filter(|&&time| time > FRAME).count(),
        longest: times.into_iter().max().unwrap_or_default(),
    }
}

#[test]
fn a_frame_loop_under_full_load_misses_no_frame() {
    let hogs = Hog::start_many(4 * CPUS);
    let theirs = draw(30);
    // Beside them it would take seconds to start.
    drop(hogs);
    let scheduler = Scheduler::start(&[]);
    let hogs = Hog::start_many(4 * CPUS);
    thread::sleep(ms(500));
    let mut statistics = Statistics::from_now();
    // So many until it is known to be brief: it has done other things before.
    draw(30);
    let ours = draw(60);
    eprintln!("{ours:?}; with the kernel's own scheduler {theirs:?}");
    eprintln!("preempted: {}", statistics.take().counts.preempted);
    // It works for two, and waits for no other's slice.
    assert!(ours.missed == 0 && ours.longest < ms(5));
    // Near the beginning of their slices, preempted ones wait in turn.
    let ran: Vec<_> = measure(&hogs, ms(0), ms(2000))
        .iter()
        .map(Ran::total)
        .collect();
    assert!(spread(ran.iter().copied()) < 0.25, "{ran:?}");
    scheduler.stop();
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn frames_that_a_real_time_task_interrupts_go_on_elsewhere() {
    let scheduler = Scheduler::start(&[]);
    let hogs = Hog::start_many(4 * CPUS);
    let drawn = beside_realtime(ms(7), ms(4), || {
        draw(30);
        [(); 3].map(|()| draw(60))
    });
    eprintln!("{drawn:?}");
    assert!(drawn.iter().all(|drawn| drawn.missed == 0));
    // Else they would wait for the end of that, or of a slice; now and then none makes room at once.
    assert!(drawn.iter().any(|drawn| drawn.longest < ms(4)));
    drop(hogs);
    scheduler.stop();
}

/// On another CPU, which idles for a moment, it would be in the way of one that comes back there.
#[test]
#[ignore = "native, and here with make test-kernels"]
fn who_is_put_aside_by_something_brief_goes_on_where_it_was() {
    let scheduler = Scheduler::start(&[]);
    let mut statistics = Statistics::from_now();
    let stop = AtomicBool::new(false);
    let moves = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..CPUS {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let cpus = [(); 20].map(|()| {
                        work(ms(1) / 2);
                        // SAFETY: it takes nothing.
                        unsafe { libc::sched_getcpu() }
                    });
                    let moved = cpus.windows(2).filter(|two| two[0] != two[1]).count();
                    moves.fetch_add(moved, Ordering::Relaxed);
                    thread::sleep(ms(1) / 5);
                }
            });
        }
        for _ in 0..1500 {
            work(Duration::from_micros(10));
            thread::sleep(ms(2));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let (moves, preempted) = (moves.into_inner(), statistics.take().counts.preempted);
    eprintln!("put aside {preempted} times, went elsewhere in the midst of work {moves} times");
    scheduler.stop();
    assert!(preempted > 500 && moves < 30);
}

/// Threads that run for a millisecond and sleep as long, all the time, until dropped.
struct Storm {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Storm {
    fn start(count: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let wake = |stop: Arc<AtomicBool>| {
            while !stop.load(Ordering::Relaxed) {
                work(ms(1));
                thread::sleep(ms(1));
            }
        };
        let threads = (0..count)
            .map(|_| {
                let stop = stop.clone();
                thread::spawn(move || wake(stop))
            })
            .collect();
        Self { stop, threads }
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn beside_a_storm_of_wakeups_computing_threads_get_their_shares_by_weight() {
    let scheduler = Scheduler::start(&[]);
    let hogs = Hog::start_many(2 * CPUS);
    for hog in &hogs[CPUS..] {
        hog.renice(5);
    }
    let storm = Storm::start(CPUS);
    let ran: Vec<_> = measure(&hogs, ms(1000), ms(8000))
        .iter()
        .map(|ran| ran.total() as f64 / 8e9)
        .collect();
    let (plain, nice): (f64, f64) = (ran[..CPUS].iter().sum(), ran[CPUS..].iter().sum());
    let ratio = plain / nice / (1024.0 / 335.0);
    eprintln!("nice 0: {plain:.3} CPUs, nice 5: {nice:.3}; to what is fair {ratio:.3}");
    // The storm's weight is that of the plain ones, so these get no less than it may.
    assert!(plain > CPUS as f64 * 1024.0 / (2.0 * 1024.0 + 335.0) * 0.9);
    assert!((ratio - 1.0).abs() < 0.15);
    drop(storm);
    drop(hogs);
    scheduler.stop();
}

/// As schbench has it: each of these hands work of 0.2 ms to a worker of its own every 3 ms. The
/// time from handing over to the worker's start.
fn message(messengers: usize, time: Duration) -> Vec<Duration> {
    let serve = || {
        let (to_worker, requests) = mpsc::channel::<Instant>();
        let worker = thread::spawn(move || {
            let serve = |asked: Instant| {
                let waited = asked.elapsed();
                work(Duration::from_micros(200));
                waited
            };
            requests.into_iter().map(serve).collect::<Vec<_>>()
        });
        let messenger = thread::spawn(move || {
            let begin = Instant::now();
            while begin.elapsed() < time {
                thread::sleep(ms(3));
                to_worker.send(Instant::now()).unwrap();
            }
        });
        (worker, messenger)
    };
    let threads: Vec<_> = (0..messengers).map(|_| serve()).collect();
    let waits = threads.into_iter().flat_map(|(worker, messenger)| {
        messenger.join().unwrap();
        worker.join().unwrap()
    });
    waits.collect()
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn messages_wait_no_longer_than_with_the_kernels_own_scheduler() {
    const LOADS: [(&str, usize); 2] = [("half", CPUS / 2), ("full", 2 * CPUS)];
    let measure = || {
        LOADS.map(|(_, load)| {
            let hogs = Hog::start_many(load);
            thread::sleep(ms(300));
            hogs.iter().for_each(|hog| _ = hog.take());
            let begin = Instant::now();
            let mut waits = message(CPUS, ms(1500));
            let ran: u64 = hogs.iter().map(|hog| hog.take().total()).sum();
            let part = ran as f64 / (load as f64 * begin.elapsed().as_nanos() as f64);
            drop(hogs);
            let waits = [50, 99].map(|hundredths| percentile(&mut waits, hundredths));
            (waits, part)
        })
    };
    let theirs = measure();
    let scheduler = Scheduler::start(&[]);
    let ours = measure();
    for ((name, _), (ours, theirs)) in LOADS.iter().zip(ours.iter().zip(&theirs)) {
        eprintln!("{name} load: p50, p99, and part of a CPU that computes {ours:?}");
        eprintln!("    with the kernel's own scheduler {theirs:?}");
    }
    for ((ours, _), (theirs, _)) in ours.iter().zip(&theirs) {
        assert!(ours[1] <= theirs[1] * 2 + ms(1), "{ours:?}, {theirs:?}");
    }
    // Half of the CPUs were idle: what computes had no need to make room.
    assert!(ours[0].1 > 0.96, "{ours:?}");
    scheduler.stop();
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn who_is_new_in_a_crowd_soon_gets_a_turn() {
    let scheduler = Scheduler::start(&[]);
    let crowd = Hog::start_many(20 * CPUS);
    thread::sleep(ms(1000));
    let begins = (0..50).map(|_| {
        thread::sleep(ms(20));
        let begin = Instant::now();
        thread::spawn(move || begin.elapsed()).join().unwrap()
    });
    let mut begins: Vec<_> = begins.collect();
    let waits = [50, 90].map(|hundredths| percentile(&mut begins, hundredths));
    eprintln!("a new thread begins after {waits:?} (p50, p90)");
    assert!(waits[0] < ms(50));
    drop(crowd);
    scheduler.stop();
}

/// How often threads of the scheduler have gone to sleep so far.
fn sleeps(scheduler: &Scheduler) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", scheduler.pid())).unwrap();
    tasks
        .map(|task| {
            let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            line.unwrap().trim().parse::<u64>().unwrap()
        })
        .sum()
}

#[test]
fn on_an_idle_machine_the_agent_sleeps() {
    let scheduler = Scheduler::start(SWAPPING);
    thread::sleep(ms(2000));
    let before = sleeps(&scheduler);
    thread::sleep(ms(10_000));
    let idle = sleeps(&scheduler) - before;
    // Nor was it left on a CPU that had gone idle, to wait for the next interrupt.
    let waited = scheduler.waited();
    // Work wakes it, soon.
    let mut statistics = Statistics::from_now();
    let hogs = Hog::start_many(CPUS);
    thread::sleep(ms(250));
    let before = sleeps(&scheduler);
    thread::sleep(ms(1000));
    let busy = sleeps(&scheduler) - before;
    let counts = statistics.take().counts;
    eprintln!("wake-ups: {idle} in ten seconds idle, {busy} in a busy one; waited {waited:.3} s");
    drop(hogs);
    assert!(waited < 1.0);
    assert!(idle <= 10);
    assert!(busy >= 40 && counts.actions_applied > 0 && counts.stalls == 0);
    scheduler.stop();
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn performance_is_asked_for_by_how_busy_a_cpu_is() {
    let scheduler = Scheduler::start(&["--core-types", HYBRID]);
    let mut statistics = Statistics::from_now();
    let mut perf = || {
        let types = statistics.take().core_types;
        ["P", "E"].map(|name| types[name].perf_pct)
    };
    thread::sleep(ms(1500));
    let idle = perf();
    let hogs = Hog::start_many(CPUS);
    for (cpu, hog) in hogs.iter().enumerate() {
        hog.pin(&[cpu]);
    }
    thread::sleep(ms(300));
    let busy = perf();
    drop(hogs);
    thread::sleep(ms(1000));
    let later = perf();
    eprintln!("percent of the most: idle {idle:?}, busy {busy:?}, idle again {later:?}");
    assert_eq!(busy, [100.0; 2]);
    for idle in idle.iter().chain(&later) {
        assert!(*idle < 30.0, "{idle}");
    }
    scheduler.stop();
}

/// Two threads that hand a byte to and fro, and how often each found the other asleep.
fn ping_pong(rounds: u64) {
    let (mut ask, mut asked) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut byte = [0];
            for _ in 0..rounds {
                ask.0.read_exact(&mut byte).unwrap();
                asked.1.write_all(&byte).unwrap();
            }
        });
        let mut byte = [0];
        for _ in 0..rounds {
            ask.1.write_all(&byte).unwrap();
            asked.0.read_exact(&mut byte).unwrap();
        }
    });
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn a_task_woken_by_one_about_to_sleep_stays_near_unless_a_cpu_is_idle() {
    const ROUNDS: u64 = 2000;
    let scheduler = Scheduler::start(&[]);
    let mut statistics = Statistics::from_now();
    ping_pong(ROUNDS);
    let idle = statistics.take().counts;
    // All CPUs but one compute: behind its waker it has the CPU sooner than by its turn.
    let hogs = Hog::start_many(CPUS - 1);
    for (cpu, hog) in hogs.iter().enumerate() {
        hog.pin(&[cpu]);
    }
    thread::sleep(s(1));
    statistics.take();
    ping_pong(ROUNDS);
    let busy = statistics.take().counts;
    eprintln!(
        "behind the waker: {} of {} wake-ups, {} where no other CPU is idle",
        idle.sync,
        2 * ROUNDS,
        busy.sync
    );
    assert!(idle.sync < ROUNDS / 4 && idle.direct > ROUNDS, "{idle:?}");
    assert!(busy.sync > ROUNDS, "{busy:?}");
    drop(hogs);
    scheduler.stop();
}
