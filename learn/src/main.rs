// SPDX-License-Identifier: GPL-2.0-or-later
//! `scx_hetero-learn`, which scx_hetero calls as git calls its subcommands.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use hetero_core::ml::args::{CALLER, Show, Train};
use hetero_core::output;
use log::LevelFilter;
use scx_hetero_learn::{show, train};

/// Not to be called by hand: 'scx_hetero train' and 'scx_hetero model' do.
#[derive(Debug, Parser)]
#[command(name = "scx_hetero", version, max_term_width = 80)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Learn from measurements what a core type is worth to a thread
    Train(Box<Train>),
    /// Show what was learnt, and whether it is of this machine
    Model(Show),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    output::start_log(LevelFilter::Info);
    match same_version().and_then(|()| match cli.command {
        Command::Train(args) => train::run(&args),
        Command::Model(args) => show::run(&args),
    }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<output::Unread>() => ExitCode::SUCCESS,
        Err(error) => {
            output::complain("scx_hetero", &error);
            output::status(&error).into()
        }
    }
}

/// A model is for the scheduler that is installed beside this program.
fn same_version() -> Result<()> {
    let ours = env!("CARGO_PKG_VERSION");
    match std::env::var(CALLER) {
        Ok(theirs) if theirs != ours => anyhow::bail!(
            "scx_hetero is of version {theirs}, and scx_hetero-learn of {ours}: install both of the \
             same"
        ),
        _ => Ok(()),
    }
}
