// SPDX-License-Identifier: GPL-2.0-only
//! The command line.

mod manual;

use std::io::{IsTerminal, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args as _, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use crossbeam::channel::{Receiver, bounded, never};
use log::{LevelFilter, info, warn};
use nix::libc;
use scx_hetero::ask::{self, seconds};
use scx_hetero::scheduler::args::SchedulerArgs;
use scx_hetero::scheduler::{self, NAME};
use scx_hetero::slowdown::calibrate;
use scx_hetero::stats::prometheus::{self, Exporter};
use scx_hetero::topology::{CoreTypesSpec, Topology};
use scx_hetero::{
    bench, collect, doctor, exit, goals, knowledge, ml, monitor, output, pmc, power, preflight,
    replay, report, resctrl, sim, stats,
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
                  Exit status: 0 detached cleanly; 1 any other error; 2 wrong usage; 3 not root, in \
                  a container, or not allowed to load BPF; 4 the kernel has no sched_ext, is a real-time one, or was \
                  booted with isolcpus=; 5 another scheduler is attached; 6 the kernel's BTF is missing or \
                  malformed; 7 the kernel threw the scheduler out."
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
    /// Change the running scheduler's policy, profile, fairness or rules, without detaching
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
    /// preferences, and which programs have few ways of a cache
    #[command(after_help = "Example:\n  sudo scx_hetero restore")]
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

#[derive(Debug, clap::Args)]
struct Run {
    #[command(flatten)]
    scheduler: SchedulerArgs,

    /// Attach, and print statistics every so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    stats: Option<Duration>,

    /// Only print a running scheduler's statistics every so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds, conflicts_with_all = scheduling())]
    monitor: Option<Duration>,

    /// Only serve a running scheduler's statistics to Prometheus, over HTTP at
    /// this address and port [default: 127.0.0.1:9754]
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = prometheus::ADDRESS, value_parser = prometheus::parse_address, conflicts_with = "monitor", conflicts_with_all = scheduling())]
    prometheus: Option<SocketAddr>,

    /// Explain the statistics and exit
    #[arg(long)]
    help_stats: bool,

    /// Say more, libbpf's messages included
    #[arg(short, long)]
    verbose: bool,

    /// Print the version and exit
    #[arg(short = 'V', long)]
    version: bool,
}

/// Options of what schedules: beside one that only looks they would do nothing. Were the group of arguments named
/// instead, all of them would be told of and not those that were given.
fn scheduling() -> Vec<clap::Id> {
    let command = SchedulerArgs::augment_args(clap::Command::new(NAME));
    let options = command
        .get_arguments()
        .map(|option| option.get_id().clone());
    options.chain(["stats".into()]).collect()
}

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
    let cli = parsed(Cli::command()).and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match cli {
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

/// What was asked for. A number below 0 is one, if a wrong one, and not an option.
fn parsed(command: clap::Command) -> Result<clap::ArgMatches, clap::Error> {
    fn tolerant(command: clap::Command) -> clap::Command {
        let command = command.allow_negative_numbers(true);
        command.mut_subcommands(tolerant)
    }
    tolerant(command).try_get_matches()
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
            // Groups have their owner's number in their names.
            resctrl::remove_left(root);
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
    args.scheduler.check_files()?;
    preflight::check(Path::new("/"), nix::unistd::geteuid().is_root())?;
    args.scheduler.warn_of_what_does_nothing();
    let options = args.scheduler.options(args.verbose);
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
        manual::write(Cli::command(), folder)?;
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            clap_complete::generate_to(shell, &mut Cli::command(), NAME, folder)?;
        }
        Ok(())
    };
    write().with_context(|| format!("cannot write to {}", folder.display()))
}

/// What ends a program, as a flag and as a message. A terminal's end does not where it was ignored from the start: nohup(1) is
/// for what measures for hours.
fn on_signal(signals: &[i32]) -> Result<(Arc<AtomicBool>, Receiver<()>)> {
    let flag = Arc::new(AtomicBool::new(false));
    let raised = flag.clone();
    let mut heeded = signals.to_vec();
    heeded.retain(|&signal| signal != SIGHUP || !is_ignored(signal));
    let receiver = listen(&heeded, move || {
        raised.store(true, Ordering::Relaxed);
    })?;
    Ok((flag, receiver))
}

/// Whether a signal does nothing now.
fn is_ignored(signal: i32) -> bool {
    // SAFETY: a structure of integers, for which zeros are valid; the call fills it in and changes nothing.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut now) == 0
            && now.sa_sigaction == libc::SIG_IGN
    }
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
