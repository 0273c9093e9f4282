// SPDX-License-Identifier: GPL-2.0-only
//! The command line of what schedules.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use hetero_core::files::{check_distinct, is_named_pipe, named};
use hetero_core::limits::MAX_SLOTS;
use hetero_core::output::WrongUsage;
use hetero_core::whole::whole;
use log::warn;
use nix::unistd::Gid;

use super::Options;
use crate::goals::GoalTimingArgs;
use crate::mechanism::Mechanism;
use crate::ml::model;
use crate::pmu::Event;
use crate::policy::{self, Knows};
use crate::power;
use crate::profile::{Profile, Saving};
use crate::stats;
use crate::topology::CoreTypesSpec;

/// Whether what is found of programs is kept and used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Knowledge {
    /// It is
    On,
    /// It is not
    Off,
}

/// What is said on the command line of how to schedule.
#[derive(Debug, clap::Args)]
pub struct SchedulerArgs {
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
    #[arg(long, default_value_t = power::LOW_BATTERY, value_name = "PERCENT", value_parser = whole::<u8>(0..=100))]
    low_battery: u8,

    /// Leave the CPUs' energy preferences alone while energy is saved
    #[arg(long)]
    keep_epp: bool,

    /// Longest run before other tasks get their turn, in microseconds [default:
    /// the profile's, mostly 5000]
    #[arg(short, long, value_parser = whole::<u64>(100..=1_000_000))]
    slice_us: Option<u64>,

    #[command(flatten)]
    goals: GoalTimingArgs,

    /// Time between swaps of policies that swap threads, in milliseconds
    #[arg(long, default_value_t = 400, value_parser = whole::<u64>(1..=60_000))]
    swap_ms: u64,

    /// Of policy camps: 100 evens out progress, 0 gives the fastest cores to
    /// the threads that gain most; in between, the slowest may fall back to so many
    /// percent of the fastest
    /// [default: 80]
    #[arg(long, value_name = "PERCENT", value_parser = whole::<u8>(0..=100))]
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
    #[arg(long, default_value_t = 50, value_parser = whole::<u64>(5..=10_000))]
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

    /// Let members of this group, too, read the statistics; only root changes
    /// settings [default: scx_hetero, if there is such a group]
    #[arg(long, value_name = "GROUP", value_parser = stats::parse_group)]
    group: Option<Gid>,

    /// Size of the kernel's debug dump after an error, in bytes (0: default)
    #[arg(long, default_value_t = 0, value_name = "BYTES", value_parser = whole::<u32>(0..))]
    exit_dump_len: u32,

    /// How many tasks are measured and placed at most; fewer than the default
    /// for tests
    #[arg(long, hide = true, value_name = "N", default_value_t = MAX_SLOTS, value_parser = whole::<u32>(1..=MAX_SLOTS))]
    slots: u32,

    /// Leave parts out, to see their tests fail
    #[arg(long, hide = true, value_enum, value_delimiter = ',')]
    without: Vec<Mechanism>,
}

impl SchedulerArgs {
    /// Whether what is recorded would spoil what is read, and that can be read at all.
    ///
    /// # Errors
    /// In words: which option is to name another file.
    pub fn check_files(&self) -> Result<()> {
        let model = self.model.as_deref().unwrap_or(Path::new(model::PATH));
        let rules = self
            .rules
            .as_deref()
            .unwrap_or(Path::new(crate::rules::PATH));
        for (path, option) in [(model, "--model"), (rules, "--rules")] {
            if is_named_pipe(path) {
                let what = format!("{} is a pipe: name a file with {option}", path.display());
                return Err(WrongUsage(what).into());
            }
        }
        check_distinct(
            named([model], "the model").chain(named([rules], "the file of rules")),
            named(&self.record, "--record").chain(named(&self.samples, "--samples")),
        )
    }

    /// Tells of options that do nothing beside the others.
    pub fn warn_of_what_does_nothing(&self) {
        let policy = self.policy.or(self.profile.policy());
        let unknown = |option, given, what| {
            if given && !policy.is_some_and(|policy| policy.knows(what)) {
                let those = policy::Name::all_that_know(what);
                warn!("{option} is for --policy {those}");
            }
        };
        let fair = self.fairness.is_some() && policy.is_some();
        unknown("--fairness", fair, Knows::Fairness);
        unknown(
            "--oversubscribe",
            self.oversubscribe.is_some(),
            Knows::Oversubscribe,
        );
        unknown("--objective", self.objective.is_some(), Knows::Energy);
        unknown("--model", self.model.is_some(), Knows::Model);
        unknown("--learn", self.learn, Knows::Model);
        let (profile, saving) = (self.profile, self.profile.saving());
        if self.low_battery != power::LOW_BATTERY && saving != Saving::Asked {
            warn!("--low-battery is for profile auto, and this is {profile}");
        }
        if self.keep_epp && saving == Saving::Never {
            warn!(
                "profile {profile} saves no energy, and leaves energy preferences alone without --keep-epp"
            );
        }
    }

    /// What is asked for, all defaults filled in.
    pub fn options(self, verbose: bool) -> Options {
        Options {
            policy: self.policy,
            model: self.model,
            rules: self.rules,
            learn: self.learn,
            knowledge: self.knowledge == Knowledge::On,
            settings: policy::Settings {
                swap_interval: Duration::from_millis(self.swap_ms),
                fairness: self.fairness.unwrap_or(policy::camps::FAIRNESS),
                oversubscribe: self.oversubscribe.unwrap_or(policy::rank::OVERSUBSCRIBE),
                objective: self.objective.unwrap_or_default(),
                ..policy::Settings::default()
            },
            profile: self.profile,
            power: power::PowerOptions {
                low_battery: self.low_battery,
                keep_preferences: self.keep_epp,
            },
            goals: self.goals.settings(),
            slice: self.slice_us.map(Duration::from_micros),
            partition: self.partition,
            events: self.events,
            user_only: self.user_only,
            sample: Duration::from_millis(self.sample_ms),
            samples: self.samples,
            group: self.group.or_else(stats::default_group),
            record: self.record,
            core_types: self.core_types,
            partial: self.partial,
            exit_dump_len: self.exit_dump_len,
            verbose,
            slots: self.slots,
            without: self.without,
        }
    }
}
