// SPDX-License-Identifier: GPL-2.0-only
//! The command line.

use std::io::{IsTerminal, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use crossbeam::channel::{Receiver, bounded, never};
use hetero_core::files::{check_distinct, named};
use hetero_core::limits::MAX_SLOTS;
use hetero_core::mechanism::Mechanism;
use log::{LevelFilter, info, warn};
use nix::unistd::Gid;
use scx_hetero::ask::{self, seconds};
use scx_hetero::goals::GoalTimingArgs;
use scx_hetero::pmu::Event;
use scx_hetero::profile::{Profile, Saving};
use scx_hetero::scheduler::{self, NAME, Options};
use scx_hetero::slowdown::calibrate;
use scx_hetero::stats::prometheus::{self, Exporter};
use scx_hetero::topology::{CoreTypesSpec, Topology};
use scx_hetero::{
    bench, collect, doctor, exit, goals, knowledge, ml, monitor, output, pmc, policy, power,
    preflight, replay, report, rules, sim, stats,
};
use scx_utils::build_id;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Schedules hybrid CPUs (P and E cores, big.LITTLE): a sched_ext scheduler
/// that places each thread by what a core type is worth to it.
///
/// Without arguments it attaches and schedules until Ctrl-C; then, or if it
/// dies, the kernel's own scheduler takes over.
#[derive(Debug, Parser)]
#[command(
    name = "scx_hetero",
    disable_version_flag = true,
    max_term_width = 80,
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
                  scx_hetero                         until Ctrl-C\n  \
                  scx_hetero --policy hsp --stats 1  most throughput; what it does, every second\n  \
                  scx_hetero monitor                 watch it, from another terminal\n\n\
                  Exit status: 0 detached cleanly; 1 any other error; 2 wrong usage; 3 not root, \
                  or not allowed to load BPF; 4 the kernel has no sched_ext; 5 another scheduler \
                  is attached; 6 the kernel's BTF is missing or malformed; 7 the kernel threw the \
                  scheduler out."
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    run: Run,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the core types found, from which source, and where sources disagree
    #[command(after_help = "Examples:\n  \
        scx_hetero topology\n  \
        scx_hetero topology --core-types P=0-7,E=8-15  what it would be with these")]
    Topology {
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,

        /// Core types by hand, fastest first, e.g. P=0-7,E=8-15
        #[arg(long, value_name = "NAME=CPUS,...")]
        core_types: Option<CoreTypesSpec>,
    },
    /// Count events of a program on each core type, without the scheduler
    Pmc(Box<pmc::Args>),
    /// Measure this machine, which should be idle, for a minute: when contention
    /// is low and what each core type is worth; the scheduler then uses it
    Calibrate(calibrate::Args),
    /// Simulate mixes of programs on hybrid machines under each policy, without
    /// the machines
    Sim(sim::Args),
    /// Run mixes of programs on this machine under schedulers, and compare them
    Bench(bench::Args),
    /// Measure programs on each core type, as data to learn from
    Collect(Box<collect::Args>),
    /// Learn from measurements what a core type is worth to a thread
    Train(Box<ml::args::Train>),
    /// Show what was learnt, and whether it is of this machine
    Model(ml::args::Show),
    /// Look for what keeps the scheduler from working here, or from working well, and
    /// name the remedies
    Doctor(doctor::Args),
    /// Watch the running scheduler on a terminal: CPUs, threads, slowdowns, moves
    Monitor(monitor::Args),
    /// Tell how fast a process's threads are where, and why they were moved
    Why(ask::WhyArgs),
    /// Show what is known of programs from their earlier runs; share it, or forget it
    Know(knowledge::command::KnowArgs),
    /// Change the running scheduler's policy, profile or fairness, without detaching
    Set(ask::SetArgs),
    /// Let programs be as fast as they must be: give them goals, and see what becomes of
    /// these
    Goal(goals::command::GoalArgs),
    /// Tell what another policy would have decided, seeing what was recorded
    Replay(replay::Args),
    /// Draw a recording as one page of HTML: where threads ran, how fast, and why they
    /// were moved
    Report(report::Args),
    /// Put back what a scheduler has set that was killed: the CPUs' energy
    /// preferences
    #[command(hide = true, after_help = "Example:\n  sudo scx_hetero restore")]
    Restore,
    /// Write man pages and completions for shells, for packages
    #[command(
        hide = true,
        after_help = "Example:\n  scx_hetero generate target/release/generated"
    )]
    Generate {
        /// Where to; made if need be
        folder: PathBuf,
    },
}

/// Whether what is found of programs is kept and used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Knowledge {
    /// It is
    On,
    /// It is not
    Off,
}

#[derive(Debug, clap::Args)]
struct Run {
    /// Which threads get the fast cores [default: camps; acfs without hardware counters;
    /// none if all cores are alike]
    #[arg(short, long, value_enum)]
    policy: Option<policy::Name>,

    /// Core types by hand, fastest first, e.g. P=0-7,E=8-15
    #[arg(long, value_name = "NAME=CPUS,...")]
    core_types: Option<CoreTypesSpec>,

    /// What the machine is used for: which policy, how long turns are, and
    /// which cores are filled first; --policy and --slice-us come before it
    #[arg(long, value_enum, default_value_t)]
    profile: Profile,

    /// Of profile auto: save energy while the battery holds less than so many
    /// percent; 0 is never
    #[arg(long, default_value_t = power::LOW_BATTERY, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    low_battery: u8,

    /// Leave the CPUs' energy preferences alone while energy is saved
    #[arg(long)]
    keep_epp: bool,

    /// Longest run before other tasks get their turn, in microseconds [default:
    /// the profile's, mostly 5000]
    #[arg(short, long, value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    slice_us: Option<u64>,

    #[command(flatten)]
    goals: GoalTimingArgs,

    /// Time between swaps of policies that swap threads, in milliseconds
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    swap_ms: u64,

    /// Of policy camps: 100 evens out progress, 0 gives the fastest cores to
    /// the threads that gain most; in between, the slowest may fall back to so many
    /// percent of the fastest
    /// [default: 80]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    fairness: Option<u8>,

    /// Of policy rank: how many threads each fast core is to have before slower
    /// ones have more than one [default: 2.5]
    #[arg(long, value_name = "THREADS", value_parser = policy::rank::parse_oversubscribe)]
    oversubscribe: Option<f64>,

    /// Of policy ef: what the fastest cores are given away for [default: edp,
    /// energy times time]
    #[arg(long, value_enum)]
    objective: Option<policy::Objective>,

    /// Of policies rank, ef, hsp, acfs and eqp: what `scx_hetero train` has learnt of
    /// this machine [default: /var/lib/scx_hetero/model.json, if there is one]
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,

    /// Where some programs are to be, whatever the policy [default:
    /// /etc/scx_hetero/rules.toml, if there is one]
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,

    /// Learn what core types are worth from threads that are moved, and replace
    /// the model as soon as what was learnt is better (docs/learn.md)
    #[arg(long)]
    learn: bool,

    /// Keep what is found of programs in /var/lib/scx_hetero/knowledge.db, and go by it
    /// when they start again (docs/knowledge.md)
    #[arg(long, value_enum, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_value = "on", default_missing_value = "on")]
    knowledge: Knowledge,

    /// Confine programs that fill the last-level cache and gain nothing by it to a few of
    /// its ways, where resctrl can (docs/caches.md)
    #[arg(long)]
    partition: bool,

    /// Count these events, too, e.g. llc-misses,branches (see `scx_hetero pmc
    /// events`)
    #[arg(long, value_name = "EVENT,...", value_delimiter = ',')]
    events: Vec<Event>,

    /// Count user mode only, and not what the kernel does for a task
    #[arg(long)]
    user_only: bool,

    /// Run time that a sample of a task's counters is made of, in milliseconds
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(5..=10_000))]
    sample_ms: u64,

    /// Write every sample to a file, as lines of JSON
    #[arg(long, value_name = "FILE")]
    samples: Option<PathBuf>,

    /// Record what the policy sees and decides, for `scx_hetero replay` and `report`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Schedule only tasks of class SCHED_EXT
    #[arg(long)]
    partial: bool,

    /// Attach, and print statistics every so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    stats: Option<Duration>,

    /// Only print a running scheduler's statistics every so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds, conflicts_with_all = SCHEDULING)]
    monitor: Option<Duration>,

    /// Only serve a running scheduler's statistics to Prometheus, over HTTP at
    /// this address and port [default: 127.0.0.1:9754]
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = prometheus::ADDRESS, value_parser = prometheus::parse_address, conflicts_with = "monitor", conflicts_with_all = SCHEDULING)]
    prometheus: Option<SocketAddr>,

    /// Let members of this group, too, read the statistics; only root changes
    /// settings [default: scx_hetero, if there is such a group]
    #[arg(long, value_name = "GROUP", value_parser = stats::parse_group)]
    group: Option<Gid>,

    /// Explain the statistics and exit
    #[arg(long)]
    help_stats: bool,

    /// Size of the kernel's debug dump after an error, in bytes (0: default)
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    exit_dump_len: u32,

    /// Say more, libbpf's messages included
    #[arg(short, long)]
    verbose: bool,

    /// Print the version and exit
    #[arg(short = 'V', long)]
    version: bool,

    /// How many tasks are measured and placed at most; fewer than the default
    /// for tests
    #[arg(long, hide = true, value_name = "N", default_value_t = MAX_SLOTS, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SLOTS)))]
    slots: u32,

    /// Leave parts out, to see their tests fail
    #[arg(long, hide = true, value_enum, value_delimiter = ',')]
    without: Vec<Mechanism>,
}

/// Options of what schedules: beside one that only looks they would do nothing.
const SCHEDULING: [&str; 27] = [
    "policy",
    "core_types",
    "profile",
    "low_battery",
    "keep_epp",
    "slice_us",
    "goal_look_ms",
    "goal_interval_ms",
    "swap_ms",
    "fairness",
    "oversubscribe",
    "objective",
    "model",
    "rules",
    "learn",
    "knowledge",
    "partition",
    "events",
    "user_only",
    "sample_ms",
    "samples",
    "record",
    "partial",
    "stats",
    "group",
    "exit_dump_len",
    "slots",
];

impl Cli {
    /// Whether it takes over this machine's scheduling.
    fn attaches(&self) -> bool {
        let Run {
            monitor,
            prometheus,
            help_stats,
            version,
            ..
        } = &self.run;
        let looks = monitor.is_some() || prometheus.is_some() || *help_stats || *version;
        self.command.is_none() && !looks
    }
}

/// Names the root of another machine's files for commands that only look. The scheduler, which may be
/// root by sudo -E, must not take its topology from a folder of any user's.
const SYSFS_PREFIX: &str = "SCX_SYSFS_PREFIX";

/// What ends a program, the terminal's end last.
const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => return explain(&usage),
    };
    let ignored = cli.attaches() && std::env::var_os(SYSFS_PREFIX).is_some();
    if ignored {
        // SAFETY: there is no other thread yet.
        unsafe { std::env::remove_var(SYSFS_PREFIX) };
    }
    let level = if cli.run.verbose {
        LevelFilter::Debug
    } else {
        LevelFilter::Info
    };
    output::start_log(level);
    if ignored {
        warn!("{SYSFS_PREFIX} is ignored: what is scheduled is this machine, and no other");
    }
    match dispatch(cli) {
        Ok(status) => status.into(),
        Err(error) => failed(&error),
    }
}

/// Prints help, or what is wrong with the arguments.
fn explain(usage: &clap::Error) -> ExitCode {
    let printed = usage.print().and_then(|()| std::io::stdout().flush());
    match output::written(printed) {
        Err(error) if !usage.use_stderr() => failed(&error),
        _ => u8::try_from(usage.exit_code()).unwrap_or(1).into(),
    }
}

/// The exit status of an error, of which people are told.
fn failed(error: &anyhow::Error) -> ExitCode {
    if error.is::<output::Unread>() {
        return ExitCode::SUCCESS;
    }
    output::complain(NAME, error);
    exit::status(error).into()
}

/// The exit status, unless it is an error's.
fn dispatch(cli: Cli) -> Result<u8> {
    match cli.command {
        Some(Command::Topology { json, core_types }) => {
            show_topology(json, core_types.as_ref()).map(|()| 0)
        }
        Some(Command::Pmc(args)) => {
            let (_, stopping) = on_signal(&ENDING)?;
            pmc::run(&args, &stopping)
        }
        Some(Command::Calibrate(args)) => calibrate::run(&args).map(|()| 0),
        Some(Command::Sim(args)) => sim::run(&args).map(|()| 0),
        Some(Command::Bench(args)) => {
            let (_, stopping) = on_signal(&ENDING)?;
            bench::run(&args, &stopping)
        }
        Some(Command::Collect(args)) => {
            let (_, stopping) = on_signal(&ENDING)?;
            collect::run(&args, &stopping)
        }
        Some(Command::Train(args)) => {
            args.check_files()?;
            if args.here.here {
                let (_, stopping) = on_signal(&ENDING)?;
                let measured = ml::here::measure(&args.here, &args.tables()[0], &stopping)?;
                if measured != 0 {
                    return Ok(measured);
                }
            }
            Err(ml::program::become_it())
        }
        Some(Command::Model(_)) => Err(ml::program::become_it()),
        Some(Command::Doctor(args)) => doctor::run(&args),
        Some(Command::Monitor(args)) => {
            let (stop, _) = on_signal(&ENDING)?;
            monitor::run(&args, &stop).map(|()| 0)
        }
        Some(Command::Why(args)) => ask::why(&args).map(|()| 0),
        Some(Command::Know(args)) => knowledge::command::run(&args).map(|()| 0),
        Some(Command::Set(args)) => ask::set(&args).map(|()| 0),
        Some(Command::Goal(args)) => {
            // A terminal's Ctrl-C reaches a program that is run as well, and is for it to heed.
            let theirs = usize::from(args.runs_a_program());
            let _ignored = on_signal(&ENDING[..theirs])?;
            let (stop, _) = on_signal(&ENDING[theirs..])?;
            goals::command::run(&args, &stop)
        }
        Some(Command::Replay(args)) => replay::run(&args).map(|()| 0),
        Some(Command::Report(args)) => report::run(&args).map(|()| 0),
        Some(Command::Restore) => {
            let root = Path::new("/");
            // The preferences are those of one that runs, as where the service was started beside it.
            match preflight::attached_hetero(root) {
                Some(ops) => info!("{ops} is attached: energy preferences are its own"),
                None => _ = power::preference::restore_left(root),
            }
            Ok(0)
        }
        Some(Command::Generate { folder }) => generate(&folder).map(|()| 0),
        None => schedule(cli.run).map(|()| 0),
    }
}

fn schedule(args: Run) -> Result<()> {
    if args.version {
        let version = build_id::full_version(env!("CARGO_PKG_VERSION"));
        return output::print(format_args!("{NAME} {version}"));
    }
    if args.help_stats {
        return output::print(stats::explain()?);
    }

    // A service is told by SIGHUP that its files have changed; of who sits at a terminal it means that
    // the terminal is gone.
    let serves = args.monitor.is_none() && args.prometheus.is_none();
    let (ending, reload) = match serves && !std::io::stdin().is_terminal() {
        true => (&ENDING[..2], listen(&ENDING[2..], || ())?),
        false => (&ENDING[..], never()),
    };
    let (stop, stopping) = on_signal(ending)?;
    if let Some(interval) = args.monitor {
        if let Err(error) = stats::Client::connect(Path::new(stats::SOCKET)) {
            warn!("{error:#}; waiting for it");
        }
        return stats::monitor(interval, &stop);
    }
    if let Some(address) = args.prometheus {
        return Exporter::listen(address)?.serve(Path::new(stats::SOCKET), &stop);
    }
    check_files(&args)?;
    preflight::check(Path::new("/"), nix::unistd::geteuid().is_root())?;
    let policy = args.policy.or(args.profile.policy());
    let unknown = |option, given, what| {
        if given && !policy.is_some_and(|policy| policy.knows(what)) {
            let those = policy::Name::all_that_know(what);
            warn!("{option} is for --policy {those}");
        }
    };
    use policy::Knows;
    let fair = args.fairness.is_some() && policy.is_some();
    unknown("--fairness", fair, Knows::Fairness);
    unknown(
        "--oversubscribe",
        args.oversubscribe.is_some(),
        Knows::Oversubscribe,
    );
    unknown("--objective", args.objective.is_some(), Knows::Energy);
    unknown("--model", args.model.is_some(), Knows::Model);
    unknown("--learn", args.learn, Knows::Model);
    let (profile, saving) = (args.profile, args.profile.saving());
    if args.low_battery != power::LOW_BATTERY && saving != Saving::Asked {
        warn!("--low-battery is for profile auto, and this is {profile}");
    }
    if args.keep_epp && saving == Saving::Never {
        warn!(
            "profile {profile} saves no energy, and leaves energy preferences alone without --keep-epp"
        );
    }
    let options = Options {
        policy: args.policy,
        model: args.model,
        rules: args.rules,
        learn: args.learn,
        knowledge: args.knowledge == Knowledge::On,
        settings: policy::Settings {
            swap_interval: Duration::from_millis(args.swap_ms),
            fairness: args.fairness.unwrap_or(policy::camps::FAIRNESS),
            oversubscribe: args.oversubscribe.unwrap_or(policy::rank::OVERSUBSCRIBE),
            objective: args.objective.unwrap_or_default(),
            ..policy::Settings::default()
        },
        profile: args.profile,
        power: power::PowerOptions {
            low_battery: args.low_battery,
            keep_preferences: args.keep_epp,
        },
        goals: args.goals.settings(),
        slice: args.slice_us.map(Duration::from_micros),
        partition: args.partition,
        events: args.events,
        user_only: args.user_only,
        sample: Duration::from_millis(args.sample_ms),
        samples: args.samples,
        group: args.group.or_else(stats::default_group),
        record: args.record,
        core_types: args.core_types,
        partial: args.partial,
        exit_dump_len: args.exit_dump_len,
        verbose: args.verbose,
        slots: args.slots,
        without: args.without,
    };
    let printer = stop.clone();
    let result = scheduler::run(&options, &stopping, &reload, || {
        let Some(interval) = args.stats else { return };
        std::thread::spawn(move || {
            if let Err(error) = stats::monitor(interval, &printer) {
                warn!("statistics ended: {error:#}");
            }
        });
    });
    stop.store(true, Ordering::Relaxed);
    result
}

/// Whether what is recorded would spoil what is read.
fn check_files(args: &Run) -> Result<()> {
    let model = args.model.as_deref().unwrap_or(Path::new(ml::model::PATH));
    let rules = args.rules.as_deref().unwrap_or(Path::new(rules::PATH));
    check_distinct(
        named([model], "the model").chain(named([rules], "the file of rules")),
        named(&args.record, "--record").chain(named(&args.samples, "--samples")),
    )
}

fn show_topology(json: bool, core_types: Option<&CoreTypesSpec>) -> Result<()> {
    let mut topology = Topology::detect(core_types)?;
    calibrate::store::apply(Path::new(calibrate::store::PATH), &mut topology);
    if json {
        return output::json(&topology.to_json());
    }
    output::print(topology.table())
}

fn generate(folder: &Path) -> Result<()> {
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        clap_mangen::generate_to(Cli::command(), folder)?;
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            clap_complete::generate_to(shell, &mut Cli::command(), NAME, folder)?;
        }
        Ok(())
    };
    write().with_context(|| format!("cannot write to {}", folder.display()))
}

/// What ends a program, as a flag and as a message.
fn on_signal(signals: &[i32]) -> Result<(Arc<AtomicBool>, Receiver<()>)> {
    let flag = Arc::new(AtomicBool::new(false));
    let raised = flag.clone();
    let receiver = listen(signals, move || {
        raised.store(true, Ordering::Relaxed);
    })?;
    Ok((flag, receiver))
}

/// A message for each of these signals.
fn listen(signals: &[i32], then: impl Fn() + Send + 'static) -> Result<Receiver<()>> {
    let mut signals = Signals::new(signals).context("cannot handle signals")?;
    let (sender, receiver) = bounded(1);
    let listens = std::thread::Builder::new().spawn(move || {
        for _ in signals.forever() {
            then();
            let _ = sender.try_send(());
        }
    });
    listens.context(
        "cannot start a thread: too little memory is left, or allowed (ulimit -v, a cgroup's memory.max), \
         or there are too many (ulimit -u)",
    )?;
    Ok(receiver)
}
