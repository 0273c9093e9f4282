// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero why` and `scx_hetero set`: one question to the running scheduler each.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};

use crate::output;
use crate::policy;
use crate::profile::Profile;
use crate::stats::{Client, SOCKET};
use hetero_core::whole::whole;

/// An interval on the command line.
///
/// # Errors
/// Where it is no number, or not a sensible one.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "not a number of seconds".to_string())?;
    if !(0.01..=86_400.0).contains(&seconds) {
        return Err("must lie between 0.01 and 86400 seconds".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Where the scheduler is asked.
#[derive(Debug, clap::Args)]
pub struct Socket {
    /// The scheduler's statistics socket
    #[arg(long, hide = true, global = true, value_name = "PATH", default_value = SOCKET)]
    pub socket: PathBuf,
}

/// Arguments of `scx_hetero why`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  scx_hetero why $(pidof my-program)")]
pub struct WhyArgs {
    /// Process or thread id
    #[arg(value_parser = whole::<u32>(1..))]
    pid: u32,

    /// Print JSON instead
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    at: Socket,
}

/// Arguments of `scx_hetero set`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    scx_hetero set policy hsp\n  \
    scx_hetero set profile gaming")]
pub struct SetArgs {
    #[command(subcommand)]
    what: Setting,

    #[command(flatten)]
    at: Socket,
}

#[derive(Debug, clap::Subcommand)]
enum Setting {
    /// Let another policy decide from now on
    #[command(after_help = "Example:\n  scx_hetero set policy hsp")]
    Policy {
        /// Which
        #[arg(value_enum)]
        name: policy::Name,
    },
    /// Go by another profile from now on: its policy, its turns, its cores
    #[command(after_help = "Example:\n  scx_hetero set profile gaming")]
    Profile {
        /// Which
        #[arg(value_enum)]
        name: Profile,
    },
    /// Of policy camps: from 0, most throughput, to 100, even progress
    #[command(after_help = "Example:\n  scx_hetero set fairness 50")]
    Fairness {
        /// As of --fairness
        #[arg(value_parser = whole::<u8>(0..=100))]
        percent: u8,
    },
    /// Read the file with the rules again; if it is wrong, the old ones stay
    #[command(after_help = "Example:\n  scx_hetero set rules")]
    Rules,
}

/// Tells about a process.
///
/// # Errors
/// Where no scheduler answers, or it does not know the process.
pub fn why(args: &WhyArgs) -> Result<()> {
    let story = Client::connect(&args.at.socket)?.story(args.pid)?;
    // What asks for advice may have hardly run.
    if story.threads.is_empty() && story.advised.is_none() {
        bail!(
            "the scheduler does not know {}: it does not exist, has run for less than 5 ms in its \
             life, or is not scheduled by it",
            args.pid
        );
    }
    if args.json {
        return output::json(&story);
    }
    output::print(story.lines().join("\n"))
}

/// Changes a setting, and says what it is then.
///
/// # Errors
/// Where no scheduler answers, or it refuses.
pub fn set(args: &SetArgs) -> Result<()> {
    let (name, value) = match args.what {
        Setting::Policy { name } => ("policy", name.to_string()),
        Setting::Profile { name } => ("profile", name.to_string()),
        Setting::Fairness { percent } => ("fairness", percent.to_string()),
        Setting::Rules => ("rules", String::new()),
    };
    let said = Client::connect(&args.at.socket)?.set(name, &value)?;
    output::print(said.map_err(|why| anyhow!(why))?)
}
