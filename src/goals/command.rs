// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero goal`: what goals there are, what becomes of them, and programs that are run with one.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, anyhow};

use super::run::{self, RunArgs};
use super::status;
use crate::ask::Socket;
use crate::output;
use crate::report::{self, PlotArgs};
use crate::stats::Client;
use hetero_core::whole::whole;

/// Arguments of `scx_hetero goal`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    scx_hetero goal run --rate 10 -- ./encode-a-file\n  \
    scx_hetero goal list\n\n\
    Programs set goals themselves by the library libscx_hetero_heartbeat: docs/goals.md.")]
pub struct GoalArgs {
    #[command(subcommand)]
    what: GoalCommand,

    #[command(flatten)]
    at: Socket,
}

#[derive(Debug, clap::Subcommand)]
enum GoalCommand {
    /// Run a program that knows nothing of goals with one
    Run(Box<RunArgs>),
    /// List goals: how fast programs must be, how fast they are, what that takes
    #[command(after_help = "Example:\n  scx_hetero goal list")]
    List {
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Change the goal of a session, whatever its program wants
    #[command(
        override_usage = "scx_hetero goal set ID --rate BEATS [--weight N]\n       \
                          scx_hetero goal set ID --own",
        after_help = "Examples:\n  \
        scx_hetero goal set 3 --rate 24\n  \
        scx_hetero goal set 3 --own      as the program wants it, or a rule, again"
    )]
    Set {
        /// The session's number, as in 'goal list'
        #[arg(value_parser = whole::<u64>(0..))]
        id: u64,

        /// Beats per second
        #[arg(long, value_name = "BEATS", value_parser = rate, required_unless_present = "own")]
        rate: Option<f64>,

        /// How much it counts where goals exceed the machine; most have 100
        #[arg(long, requires = "rate", value_parser = whole::<u32>(1..=super::MAX_WEIGHT))]
        weight: Option<u32>,

        /// As the program itself wants it, or a rule
        #[arg(long, conflicts_with = "rate")]
        own: bool,
    },
    /// Take a session's goal away; its program goes on like others
    #[command(after_help = "Example:\n  scx_hetero goal remove 3")]
    Remove {
        /// The session's number, as in 'goal list'
        #[arg(value_parser = whole::<u64>(0..))]
        id: u64,
    },
    /// Draw from a recording how fast programs with goals were, and what they were given
    Plot(PlotArgs),
}

/// A rate on the command line, beats per second.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text
        .parse()
        .map_err(|_| "not a number of beats per second".to_string())?;
    let most = super::MAX_TARGET as f64 / 1000.0;
    match (0.001..=most).contains(&rate) {
        true => Ok(rate),
        false => Err(format!(
            "must lie between 0.001 and {most} beats per second"
        )),
    }
}

impl GoalArgs {
    /// Whether it runs a program.
    pub fn runs_a_program(&self) -> bool {
        matches!(&self.what, GoalCommand::Run(args) if args.runs_a_program())
    }
}

/// Does what was asked for; the exit status. `stopping` is set when it is to end.
///
/// # Errors
/// Where no scheduler answers, or it refuses; or a program cannot be run so.
pub fn run(args: &GoalArgs, stopping: &Arc<AtomicBool>) -> Result<u8> {
    let connect = || Client::connect(&args.at.socket);
    let said = match &args.what {
        GoalCommand::Run(args) => return run::run(args, stopping),
        GoalCommand::Plot(args) => return report::plot(args).map(|()| 0),
        GoalCommand::List { json } => {
            let goals = connect()?.goals()?;
            match (json, goals.is_empty()) {
                (true, _) => output::json(&goals)?,
                (false, true) => output::print("no program has a goal")?,
                (false, false) => output::print(status::table(&goals))?,
            }
            return Ok(0);
        }
        GoalCommand::Set { id, own: true, .. } => connect()?.goal(*id, &[("own", "")])?,
        GoalCommand::Set {
            id, rate, weight, ..
        } => {
            let rate = rate.map(|rate| ("rate", rate.to_string()));
            let weight = weight.map(|weight| ("weight", weight.to_string()));
            let wish: Vec<_> = rate.into_iter().chain(weight).collect();
            let wish: Vec<_> = wish.iter().map(|(key, value)| (*key, &**value)).collect();
            connect()?.goal(*id, &wish)?
        }
        GoalCommand::Remove { id } => connect()?.goal(*id, &[("remove", "")])?,
    };
    output::print(said.map_err(|why| anyhow!(why))?).map(|()| 0)
}
