// SPDX-License-Identifier: GPL-2.0-only
//! The subcommand's options.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use super::run::RunLimits;
use super::suite::Suite;
use crate::files::{check_distinct, named};
use crate::ml::args::number;
use crate::ml::header::path_of;
use crate::pmu::Event;
use crate::topology::CoreTypesSpec;
use hetero_core::whole::whole;

/// Windows of a run.
const WINDOWS: u16 = 20;
/// A run takes so many seconds at most.
const LIMIT: u64 = 30;

/// What to run, and how long.
#[derive(Clone, Debug, clap::Args)]
#[command(
    override_usage = "scx_hetero collect [OPTIONS]\n       \
                      scx_hetero collect [OPTIONS] -- COMMAND [ARGS]...\n       \
                      scx_hetero collect --from FILE --share FILE [--share-names]",
    after_help = "Examples:\n  \
                  scx_hetero collect -o mine.csv\n  \
                  scx_hetero collect -o mine.csv -- my-program --its args  adds one of your own\n  \
                  scx_hetero collect --pairs -o pairs.csv  see docs/interference.md\n  \
                  scx_hetero collect --discover -o all.csv  what to count, see docs/counters.md\n  \
                  scx_hetero collect --from mine.csv --share shared.csv  measures nothing\n\n\
                  The table's columns are explained in docs/ml.md; a .json beside it says which \
                  machine it is of. Interrupted, or given again with other programs, the same \
                  command goes on."
)]
pub struct Args {
    /// The table to write, or to go on with
    #[arg(short, long, value_name = "FILE", default_value = "measurements.csv")]
    pub(super) output: PathBuf,

    /// Programs to measure, a TOML file with `[[program]]`: name, variant, command
    /// [default: those of experiments/programs]
    #[arg(short, long, value_name = "FILE", conflicts_with = "command")]
    pub(super) suite: Option<PathBuf>,

    /// Measure programs beside others in several placements, as data to learn what disturbs threads from;
    /// `[[antagonist]]` in --suite says beside which
    #[arg(long, conflicts_with_all = ["command", "share", "from"])]
    pub(super) pairs: bool,

    /// What to call this machine [default: the CPU's own name]
    #[arg(long, value_name = "NAME")]
    pub(super) machine: Option<String>,

    /// Instructions of a window, e.g. 100M
    #[arg(short, long, value_name = "N", default_value = "100M", value_parser = number)]
    pub(super) window: u64,

    /// Windows of a run; the program is stopped then
    #[arg(short = 'n', long, value_name = "N", default_value_t = WINDOWS, value_parser = whole::<u16>(1..=10_000))]
    windows: u16,

    /// A run is stopped after so many seconds at the latest
    #[arg(long, value_name = "SECONDS", default_value_t = LIMIT, value_parser = whole::<u64>(1..=3600))]
    limit: u64,

    /// Count these events [default: all that a core type can]
    #[arg(short, long, value_name = "EVENT,...", value_delimiter = ',')]
    pub(super) events: Vec<Event>,

    /// Measure all events that this machine's PMUs, the kernel, our tables and --list name,
    /// for 'scx_hetero train --discover' to choose from
    #[arg(long, conflicts_with_all = ["events", "pairs"])]
    pub(super) discover: bool,

    /// With --discover, also the events of these vendor's lists, JSON files as in
    /// tools/perf/pmu-events/arch of Linux, or folders of them
    #[arg(long, value_name = "PATH", requires = "discover")]
    pub(super) list: Vec<PathBuf>,

    /// With --discover, do as if no table knew this machine
    #[arg(long, requires = "discover")]
    pub(super) no_tables: bool,

    /// Count user mode only, and not what the kernel does for the program
    #[arg(short, long)]
    pub(super) user_only: bool,

    /// Core types by hand, fastest first, e.g. P=0-7,E=8-15
    #[arg(long, value_name = "NAME=CPUS,...")]
    pub(super) core_types: Option<CoreTypesSpec>,

    /// Write the table also without anything private, to be given to others: programs
    /// that are not this project's become program-1, program-2, ...
    #[arg(long, value_name = "FILE")]
    pub(super) share: Option<PathBuf>,

    /// Share programs under their own names; their variants are numbered all the same
    #[arg(long, requires = "share")]
    pub(super) share_names: bool,

    /// Share this table, measured before, on this machine or another
    #[arg(long, value_name = "FILE", requires = "share", conflicts_with_all = [
        "output", "suite", "machine", "window", "windows", "limit", "events", "user_only",
        "core_types", "command", "discover",
    ])]
    pub(super) from: Option<PathBuf>,

    /// The table's folder is made if need be, once it is known that there is something to measure.
    #[arg(skip)]
    pub(super) makes_folder: bool,

    /// A command to measure instead
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Args {
    /// For all that can be counted of these programs.
    pub(crate) fn to_train(
        output: &Path,
        suite: Option<PathBuf>,
        window: u64,
        core_types: Option<CoreTypesSpec>,
    ) -> Self {
        Self {
            output: output.to_path_buf(),
            suite,
            pairs: false,
            machine: None,
            window,
            windows: WINDOWS,
            limit: LIMIT,
            events: Vec::new(),
            discover: false,
            list: Vec::new(),
            no_tables: false,
            user_only: false,
            core_types,
            share: None,
            share_names: false,
            from: None,
            makes_folder: true,
            command: Vec::new(),
        }
    }

    /// The table that is written, or else shared.
    pub(super) fn table(&self) -> &Path {
        self.from.as_deref().unwrap_or(&self.output)
    }

    /// Whether it would spoil what it reads: the table's header takes the place of any `.json` beside it.
    ///
    /// # Errors
    /// In words: which option is to name another file.
    pub(super) fn check_files(&self) -> Result<()> {
        if self.from.is_some() {
            return Ok(());
        }
        let header = path_of(&self.output);
        check_distinct(
            named(&self.suite, "the suite").chain(named(&self.list, "a list of events")),
            named([&self.output], "--output")
                .chain(named([&header], "the header beside the table"))
                .chain(named(&self.share, "--share")),
        )
    }

    /// The programs to measure.
    pub(super) fn suite(&self) -> Result<Suite> {
        match (&self.suite, self.command.is_empty()) {
            (_, false) => Ok(Suite::of_command(&self.command)),
            (Some(path), true) => Suite::read(path),
            (None, true) => Suite::builtin(),
        }
    }

    /// How long each run is.
    pub(super) fn limits(&self) -> RunLimits {
        RunLimits {
            window: self.window,
            windows: self.windows.into(),
            time: Duration::from_secs(self.limit),
            user_only: self.user_only,
        }
    }
}
