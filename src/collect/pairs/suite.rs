// SPDX-License-Identifier: GPL-2.0-only
//! Which programs are measured beside which.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::place::PairPlacement;
use crate::files::read_text;
use crate::toml_text::from_toml;

/// What is measured if nothing else is asked for.
const BUILTIN: &str = include_str!("suite.toml");

/// A TOML file: `[[program]]` and `[[antagonist]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PairSuite {
    /// Those that are disturbed.
    #[serde(rename = "program")]
    pub programs: Vec<PairProgram>,
    /// Those that disturb them, of known character.
    #[serde(rename = "antagonist")]
    pub antagonists: Vec<Antagonist>,
}

/// A program that is disturbed. It runs without end; `{cpus}` in its command is where.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PairProgram {
    /// The application: what is never both learnt from and tested on.
    pub name: String,
    /// Which of several ways to run it.
    #[serde(default)]
    pub variant: String,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// It runs on so many CPUs.
    #[serde(default = "one")]
    pub threads: usize,
}

/// A program that disturbs. It runs without end.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Antagonist {
    /// The application.
    pub name: String,
    /// Which of several ways to run it.
    #[serde(default)]
    pub variant: String,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// So many at once, each on a CPU, where there are as many.
    #[serde(default = "one")]
    pub copies: usize,
    /// Where it is put.
    #[serde(default = "PairPlacement::apart")]
    pub places: Vec<PairPlacement>,
}

fn one() -> usize {
    1
}

impl PairSuite {
    /// Reads a file, or what comes with scx_hetero.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else {
            return Self::parse(BUILTIN);
        };
        read_text(path)
            .map_err(anyhow::Error::from)
            .and_then(|text| Self::parse(&text))
            .with_context(|| format!("cannot use the suite {}", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let suite: Self = from_toml(text)?;
        ensure!(!suite.programs.is_empty(), "it names no program");
        ensure!(!suite.antagonists.is_empty(), "it names no antagonist");
        for program in &suite.programs {
            ensure!(
                !program.command.is_empty(),
                "{} has no command",
                program.name
            );
            ensure!(
                (1..=64).contains(&program.threads),
                "{} runs on {} CPUs",
                program.name,
                program.threads
            );
        }
        for other in &suite.antagonists {
            ensure!(!other.command.is_empty(), "{} has no command", other.name);
            ensure!(
                (1..=64).contains(&other.copies),
                "{} copies of {}",
                other.copies,
                other.name
            );
        }
        Ok(suite)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_along_can_be_read() {
        let suite = PairSuite::read(None).unwrap();
        assert!(suite.programs.len() > 8 && suite.antagonists.len() > 3);
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| format!("{:#}", PairSuite::parse(text).unwrap_err());
        let program = "[[program]]\nname='a'\ncommand=['x']\n";
        assert!(error(program).contains("antagonist"));
        let beside = "[[antagonist]]\nname='b'\ncommand=['x']\nplaces=['moon']\n";
        assert!(error(&format!("{program}{beside}")).contains("moon"));
        let many = "[[antagonist]]\nname='b'\ncommand=['x']\ncopies=100\n";
        assert!(error(&format!("{program}{many}")).contains("100 copies"));
    }
}
