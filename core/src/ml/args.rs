// SPDX-License-Identifier: GPL-2.0-or-later
//! What `scx_hetero train` and `scx_hetero model` are told: scx_hetero explains and checks it, and hands
//! it to the program in `learn/` that does it.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use super::{header, model};
use crate::files::{check_distinct, named};
use crate::topology::CoreTypesSpec;
use crate::whole::whole;

/// Where scx_hetero tells that program its version.
pub const CALLER: &str = "SCX_HETERO_VERSION";

/// What to learn from, and how.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    scx_hetero train mine.csv -o mine.model.json --report mine.svg\n  \
    scx_hetero train --here  measures this machine first, and schedules by that\n  \
    scx_hetero train --discover all.csv  chooses events first: docs/counters.md\n\n\
    What the tables must have, and what scores mean, is in docs/ml.md.")]
pub struct Train {
    /// Tables of measurements, as 'scx_hetero collect' writes them
    #[arg(required_unless_present = "here", value_name = "DATA")]
    pub tables: Vec<PathBuf>,

    /// Whether to measure first, and what.
    #[command(flatten)]
    pub here: Here,

    /// The model to write [default: model.json; with --here the one by which the
    /// scheduler goes]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Draw a report, too
    #[arg(short, long, value_name = "FILE.svg")]
    pub report: Option<PathBuf>,

    /// Learn from these columns as well, as they are
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub column: Vec<String>,

    /// Learn nothing from these programs, say because the model is to be tried on them
    #[arg(long, value_name = "PROGRAM,...", value_delimiter = ',')]
    pub leave_out: Vec<String>,

    /// Write what the model says of those, for `scx_hetero sim --model`
    #[arg(
        long,
        value_name = "FILE.csv",
        requires = "leave_out",
        conflicts_with = "interference"
    )]
    pub estimates: Option<PathBuf>,

    /// Keep all features, also those that do not help
    #[arg(long)]
    pub all_features: bool,

    /// What a model is made of: boosted trees, or a weighted sum alone
    #[arg(long, value_enum, default_value_t, conflicts_with = "import")]
    pub model_kind: ModelKind,

    /// Compare with other kinds of models, on the same programs left out; takes
    /// minutes
    #[arg(long)]
    pub compare: bool,

    /// Of a table of 'collect --discover': say which events are worth counting, and learn
    /// from these; with --interference, which tell classes, of tables of 'collect --pairs'
    #[arg(long, conflicts_with = "here")]
    pub discover: bool,

    /// Of tables of 'collect --pairs': say how well classes of interference are told,
    /// by rules and by what is learnt, and write nothing
    #[arg(long, conflicts_with_all = ["here", "output", "report", "import", "column"])]
    pub interference: bool,

    /// The most trees of each sum
    #[arg(long, default_value_t = 100, value_parser = whole::<u16>(1..=256))]
    pub trees: u16,

    /// The most splits in a row
    #[arg(long, default_value_t = 3, value_parser = whole::<u8>(1..=6))]
    pub depth: u8,

    /// How much of each tree is believed
    #[arg(long, default_value_t = 0.1, value_parser = part)]
    pub shrinkage: f64,

    /// The part of the rows that each tree sees
    #[arg(long, default_value_t = 1.0, value_parser = part)]
    pub subsample: f64,

    /// Take trees that XGBoost or scikit-learn has learnt instead, and score them on the tables.
    /// KIND is 'classifier', or 'sf:' or 'ef:' and a core type
    #[arg(long, value_name = "KIND=FILE")]
    pub import: Vec<Import>,
}

fn part(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    if value > 0.0 && value <= 1.0 {
        Ok(value)
    } else {
        Err("must be above 0 and at most 1".into())
    }
}

/// What can be evaluated in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ModelKind {
    /// Boosted trees, which begin with a weighted sum where that is better
    #[default]
    Boosted,
    /// A weighted sum by least squares, and for pairs logistic regression
    Linear,
}

/// Trees from elsewhere.
#[derive(Clone, Debug)]
pub struct Import {
    /// The core type; `None` is the classifier.
    pub core_type: Option<String>,
    /// It is EF that they estimate, and not SF.
    pub efficiency: bool,
    /// The file.
    pub path: PathBuf,
}

impl FromStr for Import {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (kind, path) = text.split_once('=').context("write KIND=FILE")?;
        let (core_type, efficiency) = match kind.split_once(':') {
            Some(("sf", core_type)) => (Some(core_type.to_string()), false),
            Some(("ef", core_type)) => (Some(core_type.to_string()), true),
            _ if kind == "classifier" => (None, false),
            _ => bail!("'{kind}' is neither 'classifier' nor 'sf:' or 'ef:' and a core type"),
        };
        Ok(Self {
            core_type,
            efficiency,
            path: path.into(),
        })
    }
}

impl Train {
    /// The model to write.
    pub fn output(&self) -> &Path {
        let default = match self.here.here {
            true => model::PATH,
            false => "model.json",
        };
        self.output.as_deref().unwrap_or(Path::new(default))
    }

    /// What is learnt from: with `--here`, what has been measured, beside the model.
    pub fn tables(&self) -> Vec<PathBuf> {
        match self.here.here {
            true => vec![self.output().with_file_name("measurements.csv")],
            false => self.tables.clone(),
        }
    }

    /// Whether it would spoil what it learns from.
    ///
    /// # Errors
    /// In words: which option is to name another file.
    pub fn check_files(&self) -> Result<()> {
        if self.interference {
            return Ok(());
        }
        let tables = self.tables();
        let headers: Vec<PathBuf> = tables.iter().map(|table| header::path_of(table)).collect();
        let imported = self.import.iter().map(|import| &import.path);
        check_distinct(
            named(&tables, "the table")
                .chain(named(&headers, "the table's header"))
                .chain(named(&self.here.suite, "the suite"))
                .chain(named(imported, "what is imported")),
            named([self.output()], "--output")
                .chain(named(&self.report, "--report"))
                .chain(named(&self.estimates, "--estimates")),
        )
    }
}

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub struct Here {
    /// Measure this machine first, which should be idle for some minutes, and have
    /// the scheduler go by what is learnt. Interrupted, the same command goes on
    #[arg(long, conflicts_with = "tables")]
    pub here: bool,

    /// With --here, the programs to measure, as for 'scx_hetero collect' [default:
    /// those of experiments/programs]
    #[arg(long, value_name = "FILE", requires = "here")]
    pub suite: Option<PathBuf>,

    /// With --here, instructions of a window, as for 'scx_hetero collect'
    #[arg(long, value_name = "N", requires = "here", default_value = "100M", value_parser = number)]
    pub window: u64,

    /// With --here, core types by hand, fastest first, e.g. P=0-7,E=8-15
    #[arg(long, value_name = "NAME=CPUS,...", requires = "here")]
    pub core_types: Option<CoreTypesSpec>,
}

/// Which model.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    scx_hetero model            that of this machine\n  \
    scx_hetero model mine.json  another")]
pub struct Show {
    /// The model
    #[arg(value_name = "FILE", default_value = model::PATH)]
    pub path: PathBuf,

    /// Print the table only, also if it is of another machine
    #[arg(long)]
    pub any_machine: bool,
}

/// A number of instructions such as 100M.
///
/// # Errors
/// It is none, or not between 10k and 1000G.
pub fn number(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(['k', 'M', 'G']);
    let unit = match &text[digits.len()..] {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        _ => 0,
    };
    let number = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    let number = number.ok_or_else(|| "write a number such as 100M".to_string())?;
    if !(10_000..1 << 40).contains(&number) {
        return Err("must lie between 10k and 1000G".into());
    }
    Ok(number)
}
