// SPDX-License-Identifier: GPL-2.0-only
//! The subcommand's options.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Subcommand;

use super::lines::Format;
use crate::pmu::virtual_counters::CounterName;
use crate::pmu::{Event, Meaning};
use crate::topology::CoreTypesSpec;
use hetero_core::whole::whole;

/// What to count, of which program, and how to show it.
#[derive(Clone, Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    group = clap::ArgGroup::new("whom").required(true).args(["pid", "command"]),
    override_usage = "scx_hetero pmc [OPTIONS] -- COMMAND [ARGS]...\n       \
                      scx_hetero pmc [OPTIONS] -p PID\n       \
                      scx_hetero pmc events [--json]",
    after_help = "Examples:\n  \
                  scx_hetero pmc -- xz -k FILE\n  \
                  scx_hetero pmc -e llc-misses,branches -I 1000 -p PID\n\n\
                  Counts go to standard error with a command, to standard output with --pid. \
                  The exit status is the command's."
)]
pub struct Args {
    #[command(subcommand)]
    pub(super) list: Option<List>,

    /// Count this process, with all its threads, until it ends or Ctrl-C
    #[arg(short, long, value_name = "PID")]
    pub(super) pid: Option<u32>,

    /// Events by meaning (see 'pmc events') or in a PMU's own words, e.g.
    /// llc-misses,branches,r4f2e
    #[arg(short, long, value_name = "EVENT,...")]
    pub(super) events: Vec<EventList>,

    /// Also print what was counted every so many milliseconds
    #[arg(short = 'I', long, value_name = "MS", value_parser = whole::<u64>(10..=86_400_000))]
    pub(super) interval: Option<u64>,

    /// Print a sample of a thread each time it has raised an event so often on a CPU,
    /// e.g. instructions=100M
    #[arg(long, value_name = "EVENT=N", conflicts_with = "interval")]
    pub(super) ebs: Option<SampleThreshold>,

    /// List threads by themselves
    #[arg(long)]
    pub(super) per_thread: bool,

    /// Read these, too: energy, temperature, cache occupancy and such
    #[arg(
        long = "virtual",
        value_name = "NAME,...",
        value_delimiter = ',',
        value_enum
    )]
    pub(super) virtual_counters: Vec<CounterName>,

    /// Count user mode only, and not what the kernel does for the program
    #[arg(short, long)]
    pub(super) user_only: bool,

    /// How to print
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,

    /// Print to a file
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,

    /// Core types by hand, fastest first, e.g. P=0-7,E=8-15
    #[arg(long, value_name = "NAME=CPUS,...")]
    pub(super) core_types: Option<CoreTypesSpec>,

    /// The command to run and count
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<String>,
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum List {
    /// List what this machine can count
    #[command(after_help = "Example:\n  scx_hetero pmc events")]
    Events {
        /// Print JSON instead of tables
        #[arg(long)]
        json: bool,
    },
}

/// What is counted if nothing is asked for.
const DEFAULT: [Meaning; 6] = [
    Meaning::Instructions,
    Meaning::Cycles,
    Meaning::Branches,
    Meaning::BranchMisses,
    Meaning::LlcReferences,
    Meaning::LlcMisses,
];

impl Args {
    /// The events asked for, each once; `None`: it is left to us.
    pub(super) fn wished(&self) -> Option<Vec<Event>> {
        let mut wished: Vec<Event> = Vec::new();
        for event in self.events.iter().flat_map(|list| &list.0) {
            if !wished.contains(event) {
                wished.push(event.clone());
            }
        }
        (!wished.is_empty()).then_some(wished)
    }

    /// What is counted unless something else is asked for.
    pub(super) fn by_default() -> Vec<Event> {
        DEFAULT.map(Event::from).to_vec()
    }

    pub(super) fn every(&self) -> Option<Duration> {
        self.interval.map(Duration::from_millis)
    }
}

/// Events with commas between; those in an event's own terms do not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EventList(Vec<Event>);

impl FromStr for EventList {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut words: Vec<String> = Vec::new();
        for word in text.split(',') {
            match words.last_mut() {
                // Of PMU/TERM,TERM/ and of event=N,TERM.
                Some(last) if is_open(last) || (last.contains('=') && is_term(word)) => {
                    *last += ",";
                    *last += word;
                }
                _ => words.push(word.to_string()),
            }
        }
        ensure!(
            words.iter().all(|word| !word.trim().is_empty()),
            "an event without a name"
        );
        let events = words.iter().map(|word| word.parse());
        Ok(Self(events.collect::<Result<_, _>>()?))
    }
}

fn is_open(word: &str) -> bool {
    word.matches('/').count() == 1
}

fn is_term(word: &str) -> bool {
    let key = word.split_once('=').map(|(key, _)| key);
    key.is_some_and(|key| key != "event" && !key.starts_with("config"))
}

/// An event and how many make a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SampleThreshold {
    pub(super) event: Event,
    pub(super) number: u64,
}

impl FromStr for SampleThreshold {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts = text.rsplit_once('=');
        let (event, number) = parts.context("write EVENT=N, such as instructions=100M")?;
        let digits = number.trim_end_matches(['k', 'K', 'M', 'G']);
        let unit = match &number[digits.len()..] {
            "" => 1,
            "k" | "K" => 1_000,
            "M" => 1_000_000,
            "G" => 1_000_000_000,
            _ => 0,
        };
        let count = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
        let number = count.with_context(|| format!("'{number}' is no number such as 100M"))?;
        ensure!(
            (1000..1 << 40).contains(&number),
            "must lie between 1000 and 1000G"
        );
        Ok(Self {
            event: event.parse()?,
            number,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(text: &str) -> Vec<String> {
        let list: EventList = text.parse().unwrap();
        list.0.iter().map(|event| event.to_string()).collect()
    }

    #[test]
    fn commas_within_an_event_do_not_end_it() {
        assert_eq!(events("llc-misses,r4f2e"), ["llc-misses", "r4f2e"]);
        assert_eq!(
            events("event=0x2e,umask=0x4f,event=0xc0,branches"),
            ["event=0x2e,umask=0x4f", "event=0xc0", "branches"]
        );
        assert_eq!(
            events("cpu_core/event=0x2e,umask=0x4f/,loads"),
            ["cpu_core/event=0x2e,umask=0x4f/", "loads"]
        );
        assert!("a,,b".parse::<EventList>().is_err());
    }

    #[test]
    fn thresholds_have_units() {
        let number = |text: &str| text.parse::<SampleThreshold>().map(|t| t.number).ok();
        assert_eq!(number("instructions=100M"), Some(100_000_000));
        assert_eq!(number("r4f2e=20k"), Some(20_000));
        for bad in [
            "instructions",
            "instructions=",
            "cycles=5",
            "cycles=1MM",
            "cycles=-1k",
        ] {
            assert_eq!(number(bad), None, "{bad}");
        }
    }
}
