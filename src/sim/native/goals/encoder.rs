// SPDX-License-Identifier: GPL-2.0-only
//! A video encoder of x264's shape as a session, under the goals' own control, beside others.
//!
//! One thread takes pictures and hands them out, one looks ahead, the others encode a picture each, and can only go on
//! where the picture that it builds upon has got so far. So it often is a single thread that all others wait for.

use super::*;
use hetero_core::goals::together::FastRoom;
use hetero_core::goals::{GoalMachine, GoalSettings, Goals, SessionId, SessionSight, TargetRate};

/// So many films, each beside a crowd of its own.
const SEEDS: u64 = 3;

/// How its pictures build upon each other, and what each takes.
#[derive(Debug)]
struct Film {
    /// What the pictures of a group take, over the mean; the first builds upon the first of the group before, the others
    /// upon theirs.
    group: &'static [f64],
    /// Parts of a picture: each waits for the next one of the picture it builds upon.
    parts: usize,
    /// Pictures that are taken before the first is encoded, and that are encoded at once.
    fills: usize,
    at_once: usize,
    /// What taking a picture and looking ahead take of the work of encoding one.
    taking: f64,
    looking: f64,
    /// Pictures of a phase; each third phase takes twice as much.
    phase: usize,
}

/// By x264's own options: a queue is filled before anything is encoded.
const GROUPS: Film = Film {
    group: &[2.63, 0.72, 0.59, 0.06],
    parts: 8,
    fills: 44,
    at_once: 8,
    taking: 0.02,
    looking: 0.15,
    phase: 60,
};

/// By those of PARSEC: as many pictures are in work at once as there are threads, each a few lines behind the one before.
const IN_ORDER: Film = Film {
    group: &[1.0],
    parts: 24,
    fills: 0,
    at_once: 12,
    taking: 0.1,
    looking: 0.0,
    phase: 96,
};

/// A thread of it.
#[derive(Clone, Debug)]
struct Thread {
    task: TaskIndex,
    /// Work until the present part is done, ns of a fast core.
    left: f64,
    /// Asleep until something has come far enough.
    waits: bool,
    ran: u64,
    /// The picture that it encodes, and the part.
    picture: Option<(usize, usize)>,
    /// Since when it is runnable and does not run, ns.
    stands: u64,
}

/// See the module.
struct Encoder {
    film: &'static Film,
    session: SessionPlace,
    id: SessionId,
    target: f64,
    /// ns of a fast core.
    work: f64,
    dice: Dice,
    threads: Vec<Thread>,
    taken: usize,
    looked: usize,
    begun: usize,
    /// Parts done of each picture begun.
    done: Vec<usize>,
    /// All before this one are encoded.
    out: usize,
    beats: Vec<u64>,
    together: bool,
    /// The longest that a thread waited while some of the allotment was left, ns.
    longest: u64,
}

impl Encoder {
    /// Pictures per second wanted, each of which takes so many ns of a fast core.
    fn new(
        scene: &Scene,
        film: &'static Film,
        place: u16,
        target: f64,
        work: f64,
        seed: u64,
    ) -> Self {
        let first = scene.kernel.fork(&NewTask::default(), 0);
        let tgid = scene.kernel.task_struct(first).tgid;
        let same = NewTask {
            tgid: Some(tgid),
            ..NewTask::default()
        };
        let mut tasks = vec![first];
        tasks.extend((0..1 + film.at_once).map(|_| scene.kernel.fork(&same, 0)));
        let session = SessionPlace::first(place);
        scene.kernel.allot(
            session,
            Allotment {
                heirs: SessionHeirs::Threads,
                ..exactly(1.0)
            },
        );
        for &task in &tasks {
            let tid = scene.kernel.task_struct(task).pid as u32;
            assert_eq!(scene.kernel.join_session(tid, tgid as u32, session), 0);
        }
        let threads = tasks.iter().enumerate().map(|(nr, &task)| Thread {
            task,
            left: if nr == 0 { film.taking * work } else { 0.0 },
            waits: false,
            ran: scene.ran(task),
            picture: None,
            stands: 0,
        });
        Self {
            film,
            session,
            id: SessionId(place.into()),
            target,
            work,
            dice: Dice::new(seed ^ u64::from(place) << 32),
            threads: threads.collect(),
            taken: 0,
            looked: 0,
            begun: 0,
            done: Vec::new(),
            out: 0,
            beats: Vec::new(),
            longest: 0,
            together: false,
        }
    }

    fn phase(&self, picture: usize) -> f64 {
        if picture / self.film.phase % 3 == 2 {
            1.5
        } else {
            0.75
        }
    }

    /// The picture that another builds upon.
    fn base(&self, picture: usize) -> Option<usize> {
        let group = self.film.group.len();
        match picture % group {
            0 => picture.checked_sub(group),
            more => Some(picture - more),
        }
    }

    fn part_of(&mut self, picture: usize) -> f64 {
        let noise = 0.85 + 0.3 * self.dice.below(1000) as f64 / 1000.0;
        let film = self.film;
        self.work * film.group[picture % film.group.len()] * self.phase(picture) * noise
            / film.parts as f64
    }

    /// What thread number `nr` does next: more work, or nothing until something else has come so far.
    fn next(&mut self, nr: usize, now: u64) -> Option<f64> {
        match nr {
            0 => {
                // It takes another picture unless as many are on their way as the queue holds.
                if self.taken >= self.out + self.film.fills + self.film.at_once {
                    return None;
                }
                self.taken += 1;
                self.beats.push(now);
                Some(self.film.taking * self.work)
            }
            1 => {
                if self.looked >= self.taken {
                    return None;
                }
                self.looked += 1;
                Some(self.film.looking * self.work * self.phase(self.looked))
            }
            _ => {
                if let Some((picture, part)) = self.threads[nr].picture {
                    if part == self.film.parts {
                        self.threads[nr].picture = None;
                    } else {
                        let needs = (part + 2).min(self.film.parts);
                        let base = self.base(picture).map(|base| self.done[base]);
                        if base.is_some_and(|done| done < needs) {
                            return None;
                        }
                        return Some(self.part_of(picture));
                    }
                }
                let ready = self.looked >= self.film.fills + self.begun
                    && self.begun < self.out + self.film.at_once;
                if !ready {
                    return None;
                }
                let picture = self.begun;
                self.begun += 1;
                self.done.push(0);
                self.threads[nr].picture = Some((picture, 0));
                self.next(nr, now)
            }
        }
    }

    /// A thread has done its part.
    fn finish(&mut self, nr: usize) {
        if let Some((picture, part)) = &mut self.threads[nr].picture {
            *part += 1;
            self.done[*picture] = *part;
            while self.done.get(self.out) == Some(&self.film.parts) {
                self.out += 1;
            }
        }
    }

    /// When something happens to it at the earliest.
    fn due(&self, scene: &Scene) -> u64 {
        let now = scene.kernel.now();
        let works = self
            .threads
            .iter()
            .filter(|thread| !thread.waits && scene.kernel.is_running(thread.task));
        let speed = |task| speed(scene, task);
        works
            .map(|thread| now + (thread.left / speed(thread.task)).ceil() as u64)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Takes in what its threads have run since the last time.
    fn step(&mut self, scene: &Scene, passed: u64) {
        let now = scene.kernel.now();
        let paid = scene.kernel.half().paid_until(self.session) <= now;
        for nr in 0..self.threads.len() {
            let task = self.threads[nr].task;
            let ran = scene.ran(task);
            let thread = &mut self.threads[nr];
            let since = (ran - thread.ran) as f64 * speed(scene, task);
            thread.ran = ran;
            thread.left -= since;
            thread.stands = match !thread.waits && paid && since == 0.0 {
                true => thread.stands + passed,
                false => 0,
            };
            self.longest = self.longest.max(thread.stands);
        }
        for nr in 0..self.threads.len() {
            let task = self.threads[nr].task;
            while !self.threads[nr].waits && self.threads[nr].left <= 0.0 {
                if !scene.kernel.is_running(task) {
                    break;
                }
                self.finish(nr);
                match self.next(nr, now) {
                    Some(work) => self.threads[nr].left = work,
                    None => {
                        self.threads[nr].left = 0.0;
                        self.threads[nr].waits = true;
                        scene.kernel.block(scene.kernel.cpu_of(task));
                        scene.kernel.settle();
                    }
                }
                self.wake(scene, now);
            }
        }
    }

    fn wake(&mut self, scene: &Scene, now: u64) {
        for nr in 0..self.threads.len() {
            if self.threads[nr].waits
                && let Some(work) = self.next(nr, now)
            {
                let task = self.threads[nr].task;
                self.threads[nr].waits = false;
                self.threads[nr].left = work;
                self.threads[nr].ran = scene.ran(task);
                scene.kernel.wake(task, scene.kernel.cpu_of(task), WAKE);
                scene.kernel.settle();
            }
        }
    }

    fn runnable(&self) -> u32 {
        let awake = self.threads.iter().filter(|it| !it.waits);
        awake.count() as u32
    }

    /// The rate over the target in each window of a second, one each 0.25 s, that lies in a phase and began two seconds after it.
    fn settled(&self, until: u64) -> Vec<f64> {
        let mut rates = Vec::new();
        for begin in (0..self.beats.len()).step_by(self.film.phase) {
            let next = self.beats.get(begin + self.film.phase);
            let end = next.copied().unwrap_or(until);
            let mut at = self.beats[begin] + 2 * S;
            while at + S <= end {
                let first = self.beats.partition_point(|beat| *beat < at);
                let last = self.beats.partition_point(|beat| *beat < at + S);
                let Some(ends) = self.beats.get(last) else {
                    break;
                };
                let lasted = (ends - self.beats[first]) as f64 / 1e9;
                rates.push((last - first) as f64 / lasted / self.target);
                at += S / 4;
            }
        }
        rates
    }

    /// Windows of a second within 10 % of the target, and all, from two seconds after the first picture on.
    fn windows(&self, until: u64) -> [u32; 2] {
        let mut windows = [0, 0];
        let mut at = self.beats[0] + 2 * S;
        while at + S <= until {
            let first = self.beats.partition_point(|beat| *beat < at);
            let last = self.beats.partition_point(|beat| *beat < at + S);
            // As experiments/goals-video has it: between whole beats.
            let lasted = self
                .beats
                .get(last)
                .map_or(0, |end| end - self.beats[first]);
            let rate = (last - first) as f64 * 1e9 / lasted.max(1) as f64;
            windows[0] += u32::from((rate / self.target - 1.0).abs() <= 0.1);
            windows[1] += 1;
            at += S;
        }
        windows
    }
}

fn speed(scene: &Scene, task: TaskIndex) -> f64 {
    match scene.kernel.machine().type_of(scene.kernel.cpu_of(task)) {
        0 => 1.0,
        _ => 0.5,
    }
}

/// Encoders, sixteen others, and goals.
struct Studio {
    scene: Scene,
    encoders: Vec<Encoder>,
    goals: Goals,
    most: Vec<u32>,
    /// Threads are kept together on fast cores where there is room, as the agent does; else they run where they happen to.
    hints: bool,
}

impl Studio {
    fn new(
        machine: &NativeMachine,
        film: &'static Film,
        targets: &[f64],
        hints: bool,
        seed: u64,
    ) -> Self {
        let mut scene = Scene::new(machine);
        scene.hogs(16, &NewTask::default());
        let mut dice = Dice::new(seed);
        scene.run(dice.below(50 * MS));
        let mut encoders = Vec::new();
        for (nr, &target) in targets.iter().enumerate() {
            let work = 100e6 * (0.9 + 0.2 * dice.below(1000) as f64 / 1000.0);
            encoders.push(Encoder::new(
                &scene,
                film,
                nr as u16 + 1,
                target,
                work,
                seed,
            ));
        }
        Self {
            scene,
            goals: Goals::new(GoalSettings::default()),
            most: vec![1; encoders.len()],
            hints,
            encoders,
        }
    }

    fn look(&mut self) {
        let now = self.scene.kernel.now();
        let topology = &self.scene.kernel.machine().topology;
        let speeds = topology.cpus.iter();
        let fast_cores: f64 = speeds
            .map(|cpu| if cpu.core_type == 0 { 1.0 } else { 0.5 })
            .sum();
        let machine = GoalMachine {
            fast_cores,
            others: 0.1 * fast_cores,
        };
        let sights = self.encoders.iter().zip(&self.most);
        let sights: Vec<_> = sights
            .map(|(it, &runnable)| SessionSight {
                id: it.id,
                target: TargetRate::per_second(it.target).unwrap(),
                weight: 100,
                runnable,
                room: None,
                joined: false,
                beats: it.beats.len() as u64,
                beat_at_ns: it.beats.last().copied().unwrap_or(0),
                worked_ns: None,
                spent_ns: self.scene.kernel.half().spent_ns(it.session),
            })
            .collect();
        let states = self.goals.look(now, &machine, &sights).to_vec();
        let mut room = FastRoom::new(0.9 * topology.types[0].cpus.len() as f64);
        for (encoder, state) in self.encoders.iter_mut().zip(&states) {
            let allotment = Allotment {
                heirs: SessionHeirs::Threads,
                ..exactly(state.fast_cores)
            };
            self.scene.kernel.allot(encoder.session, allotment);
            if self.hints {
                let is_known = state.model.is_some();
                encoder.together = is_known && room.take(state.fast_cores, encoder.together);
                let to = encoder.together.then_some(0);
                let tasks = encoder.threads.iter().map(|it| it.task);
                let known = tasks.filter(|&task| self.scene.kernel.seen(task).is_some());
                known.for_each(|task| {
                    self.scene.kernel.hint(task, to, Author::Goals);
                });
            }
        }
        for (most, encoder) in self.most.iter_mut().zip(&self.encoders) {
            *most = encoder.runnable().max(1);
        }
    }

    fn run(&mut self, ns: u64) {
        let end = self.scene.kernel.now() + ns;
        let mut look_at = self.scene.kernel.now();
        while self.scene.kernel.now() < end {
            let now = self.scene.kernel.now();
            if now >= look_at {
                self.look();
                look_at += 50 * MS;
            }
            self.scene.kernel.beat();
            let tick = 1_000_000_000 / u64::from(self.scene.kernel.machine().hz);
            let scene = &self.scene;
            let next = self.encoders.iter().map(|it| it.due(scene)).min();
            let until = next
                .unwrap_or(u64::MAX)
                .min((now / tick + 1) * tick)
                .min(scene.kernel.next_timer().unwrap_or(u64::MAX).max(now + 1))
                .min(look_at)
                .min(end)
                .max(now + 1);
            self.scene.run(until - now);
            let passed = self.scene.kernel.now() - now;
            for encoder in &mut self.encoders {
                encoder.step(&self.scene, passed);
            }
        }
    }
}

/// A thread for which all others of its session may wait is not left behind a crowd while its session has something left:
/// others of its own, and a session that has more left, are all that it waits for. (Such threads waited for up to 375 ms,
/// where those that were let go with the allotment used up again queued like the crowd's.)
#[test]
#[expect(
    clippy::print_stdout,
    reason = "`docs/decisions/goal-video.md` has these numbers"
)]
fn no_thread_of_an_encoder_waits_behind_a_crowd_while_some_of_its_allotment_is_left() {
    let mut windows = [0, 0];
    let mut longest = 0;
    for machine in kernels(&[4, 4]) {
        for seed in 1..=8_u64 {
            let mut studio = Studio::new(
                &machine,
                &GROUPS,
                &[11.2, 16.8],
                seed.is_multiple_of(2),
                seed,
            );
            studio.run(15 * S);
            for encoder in &studio.encoders {
                let of = encoder.windows(studio.scene.kernel.now());
                windows = [windows[0] + of[0], windows[1] + of[1]];
                longest = longest.max(encoder.longest);
                assert!(
                    encoder.longest < 80 * MS,
                    "{} ms with seed {seed} on {}",
                    encoder.longest / MS,
                    machine.in_short()
                );
            }
            assert_eq!(studio.scene.kernel.errors(), [""; 0]);
        }
    }
    let percent = 100.0 * f64::from(windows[0]) / f64::from(windows[1]);
    println!("{percent:.1} % of windows within 10 %, {} ms", longest / MS);
}

/// All of its threads wait for the one that a slow core holds up, so where they run decides as much as what they are
/// given.
#[test]
#[expect(
    clippy::print_stdout,
    reason = "`docs/decisions/goal-together.md` has these numbers"
)]
fn encoders_keep_their_rate_beside_a_crowd_where_their_threads_are_kept_together() {
    let near = |machine: &NativeMachine, scale: f64, hints: bool| {
        let mut rates = Vec::new();
        for seed in 1..=SEEDS {
            let targets = [8.0, 12.0].map(|rate| scale * rate);
            let mut studio = Studio::new(machine, &IN_ORDER, &targets, hints, seed);
            studio.run(24 * S);
            let until = studio.scene.kernel.now();
            rates.extend(studio.encoders.iter().flat_map(|it| it.settled(until)));
            assert_eq!(studio.scene.kernel.errors(), [""; 0]);
        }
        let within = rates.iter().filter(|rate| (**rate - 1.0).abs() <= 0.1);
        within.count() as f64 / rates.len() as f64
    };
    let machine = &kernels(&[4, 4])[0];
    for scale in [1.5, 2.0] {
        let [apart, together] = [false, true].map(|hints| near(machine, scale, hints));
        println!(
            "times {scale}: {:.1} % of settled windows, {:.1} % where they run anywhere",
            100.0 * together,
            100.0 * apart
        );
        assert!(together > 0.85, "{together} at {scale}");
        assert!(together > apart + 0.15, "{together} and {apart} at {scale}");
    }
}
