// SPDX-License-Identifier: GPL-2.0-only
//! The subcommand's options.

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use super::caches::CacheEvents;
use super::experiment::{KnowledgeChoice, SchedulerChoice, SimulatedSaving, Until};
use crate::files::{check_distinct, named};
use crate::policy::{self, rank};
use hetero_core::output::WrongUsage;
use hetero_core::whole::whole;

/// What to simulate, and how to show it.
#[derive(Clone, Debug, clap::Args)]
#[command(
    override_usage = "scx_hetero sim [OPTIONS] MIX...\n       \
                      scx_hetero sim --list",
    after_help = "Examples:\n  \
                  scx_hetero sim W5 --policy default,rr,camps --optimum\n  \
                  scx_hetero sim --machine juno-r1 'galgel,2*lbm,kmeans(3)'\n  \
                  scx_hetero sim bench --as-testbed --seconds 10 --policy all"
)]
pub struct Args {
    /// A mix by name, or programs with commas between, e.g. W5 or
    /// 'soplex,2*art,kmeans(4)'
    #[arg(value_name = "MIX", required_unless_present = "list")]
    pub(super) mixes: Vec<String>,

    /// A machine by name, or the path of a .toml file [default: the mix's own]
    #[arg(short, long, value_name = "NAME|FILE")]
    pub(super) machine: Option<String>,

    /// Slow the machine down as the virtual one of testbed/ that stands for it, and
    /// start programs as `scx_hetero bench` does, by a thread for each
    #[arg(long)]
    pub(super) as_testbed: bool,

    /// Let policies know the thresholds that `scx_hetero calibrate` has found on
    /// the machine
    #[arg(long)]
    pub(super) calibrated: bool,

    /// Schedulers to compare
    #[arg(short, long, value_name = "NAME,...", value_delimiter = ',', default_value = "default,none,rr,camps", value_parser = choices())]
    pub(super) policy: Vec<Choice>,

    /// Runs of each program that are waited for
    #[arg(short, long, default_value_t = 3, value_parser = whole::<u16>(1..=1000))]
    pub(super) repeats: u16,

    /// Simulate so many seconds instead, and judge programs by the work done
    #[arg(long, value_name = "SECONDS", conflicts_with = "repeats", value_parser = seconds)]
    pub(super) seconds: Option<f64>,

    /// Run each program so often and no more: all schedulers do the same work
    #[arg(long, value_name = "RUNS", conflicts_with_all = ["repeats", "seconds"], value_parser = whole::<u16>(1..=1000))]
    pub(super) once: Option<u16>,

    /// Save energy, as --profile powersave does
    #[arg(long, value_enum, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "measured")]
    pub(super) powersave: Option<SimulatedSaving>,

    /// Watts of threads are learnt from a sensor of the package, as by the scheduler itself, and
    /// are not a model's; SF and EF are, with --model-error alone
    #[arg(long)]
    pub(super) sensor: bool,

    /// Another seed: other moments of ticks, other places where threads begin
    #[arg(long, default_value_t = 1, value_parser = whole::<u64>(0..))]
    pub(super) seed: u64,

    /// Of policy camps, as for the scheduler itself
    #[arg(long, default_value_t = policy::camps::FAIRNESS, value_name = "PERCENT", value_parser = whole::<u8>(0..=100))]
    pub(super) fairness: u8,

    /// Of policy rank, as for the scheduler itself
    #[arg(long, default_value_t = rank::OVERSUBSCRIBE, value_name = "THREADS", value_parser = rank::parse_oversubscribe)]
    pub(super) oversubscribe: f64,

    /// Of policy ef, as for the scheduler itself
    #[arg(long, value_enum, default_value_t = policy::Objective::Edp)]
    pub(super) objective: policy::Objective,

    /// Standard deviation of a model's estimates of SF from the truth, in percent;
    /// without it no policy has a model, but rank and ef one of 5 %
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(super) model_error: Option<f64>,

    /// What a learnt model says of programs, by 'scx_hetero train --leave-out ... --estimates
    /// FILE'; of others it errs by lot
    #[arg(long, value_name = "FILE.csv")]
    pub(super) model: Option<PathBuf>,

    /// What a run of a program teaches the next ones, as with the scheduler's store
    /// (docs/knowledge.md)
    #[arg(long, value_enum, default_value_t)]
    pub(super) knowledge: KnowledgeChoice,

    /// Runs that have taught, of --knowledge warm
    #[arg(long, value_name = "N", default_value_t = 1, requires = "knowledge", value_parser = whole::<u32>(1..=1000))]
    pub(super) warm_runs: u32,

    /// Compare what is estimated of last-level caches with the truth, by these events
    /// (docs/caches.md)
    #[arg(long, value_enum, value_name = "EVENTS", num_args = 0..=1, require_equals = true, default_missing_value = "misses")]
    pub(super) caches: Option<CacheEvents>,

    /// Confine programs that gain nothing by last-level caches to a tenth of them, as with resctrl
    /// (docs/caches.md); the default scheduler goes without
    #[arg(long)]
    pub(super) partition: bool,

    /// Longest run before other threads get their turn, in microseconds
    #[arg(long, default_value_t = 5000, value_parser = whole::<u64>(100..=1_000_000))]
    pub(super) slice_us: u64,

    /// Time between swaps of policies that swap threads, in milliseconds
    #[arg(long, default_value_t = 400, value_parser = whole::<u64>(1..=60_000))]
    pub(super) swap_ms: u64,

    /// Run time that a sample of a thread's counters is made of, in milliseconds
    #[arg(long, default_value_t = 50, value_parser = whole::<u64>(5..=10_000))]
    pub(super) sample_ms: u64,

    /// Also print the best that any schedule could do, by linear programming
    #[arg(long)]
    pub(super) optimum: bool,

    /// List each program's completion times
    #[arg(long)]
    pub(super) programs: bool,

    /// Read more programs from a file
    #[arg(long, value_name = "FILE")]
    pub(super) add_programs: Vec<PathBuf>,

    /// Read more mixes from a file
    #[arg(long, value_name = "FILE")]
    pub(super) add_mixes: Vec<PathBuf>,

    /// Record what the policy sees and decides, for `scx_hetero replay` and
    /// `report`; of one mix and one policy
    #[arg(long, value_name = "FILE")]
    pub(super) record: Option<PathBuf>,

    /// Print JSON instead of tables, a line for each mix
    #[arg(long)]
    pub(super) json: bool,

    /// List machines, mixes and programs; as JSON with --json
    #[arg(long)]
    pub(super) list: bool,
}

/// What `--policy` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    All,
    One(SchedulerChoice),
}

impl Choice {
    fn named(name: &str) -> Option<Self> {
        match name {
            "all" => Some(Self::All),
            "default" => Some(Self::One(SchedulerChoice::Default)),
            _ => {
                let policy = policy::Name::from_str(name, false).ok()?;
                Some(Self::One(SchedulerChoice::Policy(policy)))
            }
        }
    }
}

fn choices() -> impl TypedValueParser<Value = Choice> {
    let policies = policy::Name::value_variants().iter();
    let policies = policies.filter_map(ValueEnum::to_possible_value);
    let others = [
        PossibleValue::new("default").help("An approximation of the kernel's own"),
        PossibleValue::new("all").help("All of these"),
    ];
    PossibleValuesParser::new(policies.chain(others))
        .try_map(|name| Choice::named(&name).ok_or("no such policy"))
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "not a number of seconds".to_string())?;
    if !(0.1..=1e6).contains(&seconds) {
        return Err("must lie between 0.1 and 1000000 seconds".into());
    }
    Ok(seconds)
}

fn percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    if !(0.0..=100.0).contains(&percent) {
        return Err("must lie between 0 and 100".into());
    }
    Ok(percent)
}

impl Args {
    /// The schedulers asked for, each once, in the order asked for.
    pub(super) fn schedulers(&self) -> Vec<SchedulerChoice> {
        let all = policy::Name::value_variants()
            .iter()
            .copied()
            .map(SchedulerChoice::Policy);
        let all = || std::iter::once(SchedulerChoice::Default).chain(all.clone());
        let mut wished: Vec<SchedulerChoice> = Vec::new();
        for choice in &self.policy {
            let more: Vec<SchedulerChoice> = match choice {
                Choice::All => all().collect(),
                Choice::One(scheduler) => vec![*scheduler],
            };
            wished.extend(
                more.into_iter()
                    .filter(|one| !wished.contains(one))
                    .collect::<Vec<_>>(),
            );
        }
        wished
    }

    /// # Errors
    /// What is to be recorded is not one run of a policy that looks at threads.
    pub(super) fn check_record(&self) -> Result<()> {
        let looks = |scheduler: &SchedulerChoice| match scheduler {
            SchedulerChoice::Default | SchedulerChoice::Policy(policy::Name::None) => false,
            SchedulerChoice::Policy(_) => true,
        };
        let one = matches!(&self.schedulers()[..], [scheduler] if looks(scheduler));
        if self.record.is_none() || (one && self.mixes.len() == 1) {
            return Ok(());
        }
        let what = "--record takes one mix, and --policy with one policy that decides anything";
        Err(WrongUsage(what.into()).into())
    }

    /// Whether the recording would spoil what is read.
    ///
    /// # Errors
    /// In words: it is to be another file.
    pub(super) fn check_files(&self) -> Result<()> {
        let machine = self.machine.iter().filter(|name| name.ends_with(".toml"));
        check_distinct(
            named(machine, "the machine")
                .chain(named(&self.add_programs, "a file of programs"))
                .chain(named(&self.add_mixes, "a file of mixes"))
                .chain(named(&self.model, "the model")),
            named(&self.record, "--record"),
        )
    }

    pub(super) fn until(&self) -> Until {
        match (self.seconds, self.once) {
            (Some(seconds), _) => Until::Seconds(seconds),
            (None, Some(runs)) => Until::Ended(runs.into()),
            (None, None) => Until::Runs(self.repeats.into()),
        }
    }
}

impl std::fmt::Display for SchedulerChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Policy(name) => name.fmt(f),
        }
    }
}
