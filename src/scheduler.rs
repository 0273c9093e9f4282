// SPDX-License-Identifier: GPL-2.0-only
//! Runs the agent on the BPF half in the kernel, until it detaches.

mod advice;
mod answers;
pub mod args;
mod caches;
mod carry;
mod counting;
mod describe;
pub(crate) mod encode;
mod explain;
mod goals;
mod half;
mod limits;
pub(crate) mod pace;
pub(crate) mod priority;
mod recording;
mod rest;
mod rules;
mod samples;
mod saving;
mod slots;
mod spinning;
mod start;
mod storage;
mod totals;

use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use crossbeam::channel::{Receiver, never};
use crossbeam::select;
use log::{debug, info, warn};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Gid;
use scx_utils::{UserExitInfo, try_set_rlimit_infinity, uei_exited, uei_report};

use advice::ProgramAdvice;
use carry::CarriedState;
use counting::OpenEvents;
use goals::ProgramGoals;
use half::{BpfHalf, beat};
use hetero_core::goals::GoalSettings;
use limits::CgroupLimits;
use pace::Allowance;
use recording::Recording;
use rest::{Bell, Rest};
use samples::SampleLog;
use saving::Saver;
use slots::Sleepers;

use crate::agent::{Agent, Backend as _};
use crate::bpf::intf;
use crate::exit::{ExitReason, Failure};
use crate::knowledge::Familiar;
use crate::mechanism::Mechanism;
use crate::ml::choice;
pub use crate::ml::estimates::Trial as EstimateTrial;
use crate::ml::learning::Learning;
use crate::ml::model::{self, Model};
use crate::pmu::Event;
use crate::policy;
use crate::power::PowerOptions;
use crate::profile::Profile;
use crate::resctrl::ResctrlWays;
use crate::resctrl::service::ResctrlService;
use crate::spin;
use crate::stats;
use crate::topology::CoreTypesSpec;
use crate::watchdog::Watchdog;

/// The scheduler's name, as the kernel and people see it.
pub const NAME: &str = "scx_hetero";

/// How long the agent sleeps at most while the machine is busy: well below the second after which
/// the BPF half takes it for dead.
const AWAKE_WAIT: Duration = Duration::from_millis(250);

/// And while hardly anything runs: with its other threads it wakes up once a second at most.
const REST_WAIT: Duration = Duration::from_millis(1250);

/// How soon it is seen that a session that had no goal has one.
const GOALLESS_WAIT: Duration = Duration::from_secs(1);

/// How long sums of tasks that are gone may lie about.
const TIDY: Duration = Duration::from_secs(10);

/// How the scheduler is to run.
pub struct Options {
    /// Which policy; `None` is the profile's, or the best that this machine allows.
    pub policy: Option<policy::Name>,
    /// What is said to it.
    pub settings: policy::Settings<'static>,
    /// A model of what core types are worth; `None` is the one at [`model::PATH`], if any.
    pub model: Option<PathBuf>,
    /// Rules for some programs; `None` are those at [`rules::PATH`](crate::rules::PATH), if any.
    pub rules: Option<PathBuf>,
    /// Learn from threads that are moved, and replace the model by a better one.
    pub learn: bool,
    /// Go by what is known of programs from earlier runs, and keep what is found of them.
    pub knowledge: bool,
    /// What the machine is used for.
    pub profile: Profile,
    /// How often programs with goals are looked at, and over how long they are measured.
    pub goals: GoalSettings,
    /// When energy is saved, and by what.
    pub power: PowerOptions,
    /// How long a task runs before others get their turn; `None` is as the profile says.
    pub slice: Option<Duration>,
    /// Confine programs that gain nothing by the last-level cache to few of its ways.
    pub partition: bool,
    /// Events to count besides those that the policy and `partition` need.
    pub events: Vec<Event>,
    /// Count in user mode only.
    pub user_only: bool,
    /// How much run time a sample is made of.
    pub sample: Duration,
    /// Where to write every sample, as lines of JSON.
    pub samples: Option<PathBuf>,
    /// Who besides root may use the statistics socket.
    pub group: Option<Gid>,
    /// Where to record what the policy sees and decides.
    pub record: Option<PathBuf>,
    /// The user's own list of core types.
    pub core_types: Option<CoreTypesSpec>,
    /// Take only the tasks of class SCHED_EXT.
    pub partial: bool,
    /// Size of the kernel's debug dump, bytes; 0 is the kernel's default.
    pub exit_dump_len: u32,
    /// Let libbpf talk.
    pub verbose: bool,
    /// How many tasks are measured and placed, at most [`MAX_SLOTS`](hetero_core::limits::MAX_SLOTS).
    pub slots: u32,
    /// Parts to leave out (for tests).
    pub without: Vec<Mechanism>,
}

/// What was asked for at the start, or at the statistics socket since.
#[derive(Clone, Copy)]
struct Wish {
    policy: Option<policy::Name>,
    fairness: u8,
    profile: Profile,
    slice: Duration,
}

/// What outlives a restart, as on CPU hotplug. It ends in this order: a slow disk that holds up the last two keeps no socket, and
/// nothing that was found of programs.
struct Lasting {
    wish: Wish,
    /// The model to begin with.
    model: Option<Model>,
    learning: Option<Learning>,
    cgroup_limits: CgroupLimits,
    /// What the one before knew of the threads.
    carried: Option<CarriedState>,
    programs: ProgramGoals,
    advice: ProgramAdvice,
    familiar: Option<Familiar>,
    recording: Recording,
    log: SampleLog,
}

/// A loaded and attached scheduler: the agent, and what talks to the kernel and to people. It
/// detaches when dropped.
pub struct Scheduler<'a> {
    agent: Agent,
    half: BpfHalf<'a>,
    link: Option<libbpf_rs::Link>,
    settings: policy::Settings<'a>,
    wish: &'a mut Wish,
    learning: &'a mut Option<Learning>,
    carried: &'a mut Option<CarriedState>,
    saver: Saver,
    sleepers: Sleepers,
    stats_server: stats::StatisticsServer,
    spin_server: Option<spin::server::SpinServer>,
    advice: &'a mut ProgramAdvice,
    resctrl: Option<ResctrlService>,
    limits: &'a mut CgroupLimits,
    bell: Option<Bell>,
    /// Places in the task table.
    nr_slots: usize,
    /// Whether the agent may sleep while nothing computes.
    may_rest: bool,
    /// What the BPF half had counted when these were last looked at.
    cgroups_seen: (u32, u32),
}

/// Runs the scheduler until something arrives on `stop` or the kernel ends it; what arrives on
/// `reload` has it read its rules again.
/// Starts it anew when the kernel asks for that, as it does on CPU hotplug.
/// Calls `attached` once, when it schedules for the first time.
///
/// # Errors
/// What kept it from starting, or why the kernel threw it out, as a [`Failure`]
/// where scripts may want to tell.
pub fn run(
    options: &Options,
    stop: &Receiver<()>,
    reload: &Receiver<()>,
    attached: impl FnOnce(),
) -> Result<()> {
    try_set_rlimit_infinity();
    raise_file_limit();
    if options.partition {
        ResctrlWays::find(Path::new("/"), std::process::id())
            .and_then(|ways| ways.check())
            .map_err(|why| anyhow!("--partition: {why}"))?;
    }
    let policy = options.policy.or(options.profile.policy());
    let takes_model = policy.is_some_and(|name| name.knows(policy::Knows::Model));
    let model = match takes_model {
        true => choice::choose(
            options.model.as_deref(),
            Path::new(model::PATH),
            options.core_types.as_ref(),
            options.learn,
        )?,
        false => None,
    };
    let learning = (options.learn && takes_model).then(|| {
        let path = options.model.as_deref().unwrap_or(Path::new(model::PATH));
        Learning::new(path, model.clone())
    });
    let mut lasting = Lasting {
        wish: Wish {
            policy,
            fairness: options.settings.fairness,
            profile: options.profile,
            slice: options.slice.unwrap_or(options.profile.slice()),
        },
        model,
        learning,
        cgroup_limits: CgroupLimits::new(),
        carried: None,
        programs: ProgramGoals::new(),
        advice: ProgramAdvice::new(),
        familiar: None,
        recording: Recording::new(options.record.as_deref()),
        log: SampleLog::new(options.samples.as_deref()),
    };
    let mut object = MaybeUninit::uninit();
    let mut attached = Some(attached);
    let mut watchdog = Watchdog::from_env();
    loop {
        watchdog.alive(Instant::now());
        let mut scheduler = Scheduler::init(options, &mut object, &mut lasting)?;
        if let Some(attached) = attached.take() {
            watchdog.ready();
            attached();
        }
        let exit = scheduler.run(stop, reload, &mut watchdog)?;
        if !exit.should_restart() {
            return Ok(());
        }
        info!("CPUs came or went, starting anew");
        if !options.without.contains(&Mechanism::Carry) {
            scheduler.carry()?;
        }
    }
}

impl Scheduler<'_> {
    fn run(
        &mut self,
        stop: &Receiver<()>,
        reload: &Receiver<()>,
        watchdog: &mut Watchdog,
    ) -> Result<UserExitInfo> {
        let (answers, mut requests) = self.stats_server.channels();
        let spinners = self.spin_server.as_ref();
        let mut spinners = spinners.map_or_else(never, |server| server.registrations().clone());
        let mut due = self.interval().map(|interval| Instant::now() + interval);
        let mut programs = self.half.programs.news();
        let mut goals_due = Some(Instant::now());
        let mut subscribers = self.advice.news();
        let mut advice_due = Some(Instant::now());
        let turn = self.half.counting.as_ref().and_then(OpenEvents::turn);
        let mut turn_due = turn.map(|turn| Instant::now() + turn);
        let mut tidied = Instant::now();
        let bell = self.bell.as_ref();
        let mut bell = bell.map_or_else(never, |bell| bell.rung().clone());
        let mut rest = Rest::new(tidied);
        let mut allowance = Allowance::new(tidied);
        // What any user may ask for a thousand times a second.
        let (mut calls, mut called) = (Allowance::new(tidied), false);
        let (mut spins, mut spun) = (Allowance::new(tidied), None);
        let (silence, still) = (never(), never());

        while !uei_exited!(&self.half.skel, uei) {
            let now = Instant::now();
            let rests = self.may_rest && goals_due.is_none() && rest.look(now, self.busy_ns());
            let next = due
                .into_iter()
                .chain(turn_due)
                .chain(goals_due)
                .chain(advice_due)
                .chain(self.half.recording.due())
                .min();
            let wait = match next {
                _ if rests => REST_WAIT,
                Some(due) => due.saturating_duration_since(now).min(AWAKE_WAIT),
                None => AWAKE_WAIT,
            };
            self.half.set_asleep(rests);
            // What is asked for meanwhile is done later, all at once.
            let news = match calls.owes(now) {
                true => &silence,
                false => &programs,
            };
            let asked = match self.advice.owes(now) {
                true => &silence,
                false => &subscribers,
            };
            let waiting = match spins.owes(now) {
                true => &still,
                false => &spinners,
            };
            select! {
                recv(stop) -> _ => break,
                recv(reload) -> _ => {
                    if let Err(why) = self.reload_rules() {
                        warn!("{why}");
                    }
                    due = due.or(self.interval().map(|interval| Instant::now() + interval));
                }
                recv(requests) -> request => match request {
                    Ok(request) => {
                        self.take_samples()?;
                        let policy = self.agent.name();
                        // There is room for it, unless the client has gone.
                        let _ = answers.try_send(self.answer(request)?);
                        if self.agent.name() != policy || due.is_none() {
                            due = self.interval().map(|interval| Instant::now() + interval);
                        }
                    }
                    Err(_) => requests = never(),
                },
                recv(waiting) -> spinner => match spinner {
                    Ok(first) => {
                        spun = Some(pace::cpu_time());
                        spinning::register(&self.half.skel.progs.register_spin, first, waiting);
                    }
                    Err(_) => spinners = never(),
                },
                recv(news) -> news => match news {
                    Ok(()) => {
                        called = true;
                        goals_due = Some(Instant::now());
                        // Their threads are to be known, too.
                        due = goals_due;
                    }
                    Err(_) => programs = never(),
                },
                recv(asked) -> news => match news {
                    Ok(()) => advice_due = Some(Instant::now()),
                    Err(_) => subscribers = never(),
                },
                recv(bell) -> rung => match rung {
                    Ok(()) => rest.disturb(Instant::now(), self.busy_ns()),
                    // Nothing would wake it.
                    Err(_) => {
                        bell = never();
                        self.may_rest = false;
                    }
                },
                default(wait) => {}
            }
            beat(&mut self.half.skel);
            self.half.set_asleep(false);
            let now = Instant::now();
            watchdog.alive(now);
            self.take_samples()?;
            self.agent.measure(&mut self.half);
            if let (Some(at), Some(turn)) = (turn_due, turn)
                && now >= at
            {
                self.half.rotate();
                turn_due = Some(now + turn);
            }
            if now - tidied >= TIDY {
                self.tidy()?;
                tidied = now;
            }
            self.watch_cgroups(now);
            self.watch_power(now);
            self.learn();
            self.look_for_caches(due.is_some());
            self.watch_caches();
            if let Some(since) = spun.take() {
                spins.spend(now, pace::cpu_time().saturating_sub(since));
            }
            let since = std::mem::take(&mut called).then(pace::cpu_time);
            if goals_due.is_some_and(|at| now >= at) {
                goals_due = self.steer().map(|wait| now + wait);
            }
            if due.is_some_and(|at| now >= at) {
                let before = pace::cpu_time();
                self.decide()?;
                let took = pace::cpu_time().saturating_sub(before);
                due = self
                    .interval()
                    .map(|interval| now + allowance.next(now, interval, took));
            }
            if let Some(since) = since {
                calls.spend(now, pace::cpu_time().saturating_sub(since));
            }
            if advice_due.is_some_and(|at| now >= at) {
                advice_due = self.advise().map(|wait| now + wait);
            }
            self.record(now)?;
        }

        // Detach first: whatever follows, the kernel has its scheduler back.
        drop(self.link.take());
        if let Err(error) = self.take_samples() {
            warn!("the last samples are lost: {error:#}");
        }
        if let Some(familiar) = self.half.familiar.as_mut() {
            familiar.wait_for_room();
        }
        self.agent.keep_all(&mut self.half);
        uei_report!(&self.half.skel, uei).map_err(|error| {
            let message = format!("the kernel ended {NAME}: {error:#}");
            Failure {
                reason: ExitReason::Ejected,
                message,
            }
            .into()
        })
    }

    /// Looks at programs with goals; how long until the next look.
    fn steer(&mut self) -> Option<Duration> {
        self.agent.steer(&mut self.half);
        if self.half.programs.awaits_rules() {
            return Some(self.agent.goals.look());
        }
        let without = (!self.half.programs.is_empty()).then_some(GOALLESS_WAIT);
        self.agent.goals.due_in().or(without)
    }

    /// How long all CPUs have been busy, together, ns.
    fn busy_ns(&self) -> u64 {
        let by_type = self.half.busy_ns(self.agent.topology.nr_cpu_ids);
        by_type.iter().sum()
    }

    /// Keeps what the one that starts in its place goes on with.
    fn carry(&mut self) -> Result<()> {
        *self.carried = CarriedState::new(&self.half, &mut self.agent)?;
        Ok(())
    }

    /// Hands what has been counted to the policy.
    fn take_samples(&mut self) -> Result<()> {
        self.agent.take_samples(&mut self.half)?;
        if let Some(learning) = &mut self.learning {
            for sample in self.agent.samples() {
                learning.observe(sample, self.agent.tasks(), &self.agent.topology);
            }
        }
        Ok(())
    }

    /// Goes by what was learnt meanwhile, if that is better.
    fn learn(&mut self) {
        let better = self.learning.as_mut().and_then(|l| l.step(Instant::now()));
        let BpfHalf { skel, counting, .. } = &mut self.half;
        if let (Some(model), Some(counting)) = (better, counting)
            && let Err(error) = counting.put_to_work(model, &self.agent.topology, skel)
        {
            warn!("what was learnt is not used before the next start: {error:#}");
        }
    }

    /// Forgets what was counted of tasks that are gone, and makes room in the task table.
    fn tidy(&mut self) -> Result<()> {
        self.agent.look(&mut self.half);
        let tasks = self.agent.tasks();
        for task in self.sleepers.due(tasks, self.nr_slots, self.half.now()) {
            slots::take_back(&self.half.skel.progs.take_back_slot, task)?;
        }
        if let Some(counting) = &mut self.half.counting {
            counting.retain(tasks);
        }
        if let Some(learning) = &mut self.learning {
            learning.retain(tasks);
        }
        self.half.programs.retain(tasks);
        if let Some(familiar) = self.half.familiar.as_mut() {
            familiar.retain(tasks);
        }
        self.agent.forget_the_gone();
        Ok(())
    }

    /// Time until the next decision, if any is to be made.
    fn interval(&self) -> Option<Duration> {
        self.agent.due_in(self.half.now())
    }

    /// Reads the user's rules again. If they are wrong the old ones stay.
    fn reload_rules(&mut self) -> Result<String, String> {
        let said = self.half.rules.reload(&self.agent.topology)?;
        self.agent.rules.renew(!self.half.rules.is_empty());
        self.half.programs.renew_rules();
        Ok(said)
    }

    /// Says so when a cgroup gets a limit that is not enforced, or finds no place.
    fn watch_cgroups(&mut self, now: Instant) {
        let Some(bss) = &self.half.skel.maps.bss_data else {
            return;
        };
        let counted = (bss.nr_bandwidth_changes, bss.nr_cgroups_left_out);
        let (changes, left_out) = std::mem::replace(&mut self.cgroups_seen, counted);
        if counted.0 != changes {
            self.limits.changed();
        }
        self.limits.step(now);
        if left_out == 0 && counted.1 > 0 {
            warn!(
                "more than {} cgroups: the others' tasks share their parents' cpu.weight",
                intf::hetero_consts_MAX_CGROUPS
            );
        }
    }
}

/// Each event on each CPU takes a descriptor, and so does each client of the statistics.
fn raise_file_limit() {
    let files = Resource::RLIMIT_NOFILE;
    let raised = getrlimit(files).and_then(|(_, most)| setrlimit(files, most, most));
    if let Err(error) = raised {
        debug!("cannot raise the limit on open files: {error}");
    }
}

impl Drop for Scheduler<'_> {
    fn drop(&mut self) {
        drop(self.link.take());
        info!("{NAME} has let go, the kernel schedules");
    }
}
