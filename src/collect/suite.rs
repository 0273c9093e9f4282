// SPDX-License-Identifier: GPL-2.0-only
//! Which programs are measured.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::files::read_text;
use crate::toml_text::from_toml;

/// What is measured if nothing else is asked for: programs that are in `experiments/programs`.
const BUILTIN: &str = include_str!("suite.toml");

/// Programs in a TOML file: `[[program]]` with `name`, `variant` and `command`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Suite {
    /// In the order of measuring.
    #[serde(rename = "program")]
    pub programs: Vec<Program>,
}

/// A program to be measured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Program {
    /// The application: what is never both learnt from and tested on.
    pub name: String,
    /// Which of several ways to run it.
    #[serde(default)]
    pub variant: String,
    /// The command and its arguments. It may run without end: it is stopped when all windows are
    /// full.
    pub command: Vec<String>,
    /// Windows at its begin to leave out, where it prepares itself.
    #[serde(default = "first")]
    pub skip: usize,
}

/// Loading, and the first touch of its memory.
fn first() -> usize {
    1
}

impl Program {
    /// Name, and variant if it has one.
    pub(crate) fn label(&self) -> String {
        match self.variant.as_str() {
            "" => self.name.clone(),
            variant => format!("{} {variant}", self.name),
        }
    }
}

impl Suite {
    /// What comes with scx_hetero.
    ///
    /// # Errors
    /// None that its tests have not seen.
    pub(super) fn builtin() -> Result<Self> {
        Self::parse(BUILTIN)
    }

    /// Reads a file.
    pub(super) fn read(path: &Path) -> Result<Self> {
        read_text(path)
            .map_err(anyhow::Error::from)
            .and_then(|text| Self::parse(&text))
            .with_context(|| format!("cannot use the suite {}", path.display()))
    }

    /// One command, by the name of its program.
    pub(super) fn of_command(command: &[String]) -> Self {
        let file = command.first().map(Path::new).and_then(Path::file_name);
        let name = file.map(|name| name.to_string_lossy().into_owned());
        Self {
            programs: vec![Program {
                name: name.unwrap_or_default(),
                variant: command.get(1..).unwrap_or_default().join(" "),
                command: command.to_vec(),
                skip: first(),
            }],
        }
    }

    /// Of a file's text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let suite: Self = from_toml(text)?;
        ensure!(!suite.programs.is_empty(), "it names no program");
        let mut labels = BTreeSet::new();
        for program in &suite.programs {
            let label = program.label();
            ensure!(!program.name.trim().is_empty(), "a program without a name");
            ensure!(!program.command.is_empty(), "{label} has no command");
            ensure!(
                labels.insert(label.clone()),
                "{label} is there twice: give each a variant"
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
        let suite = Suite::builtin().unwrap();
        assert!(suite.programs.len() > 10);
        assert!(
            suite
                .programs
                .iter()
                .all(|p| p.command[0] == "hetero-programs")
        );
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| format!("{:#}", Suite::parse(text).unwrap_err());
        let twice = "[[program]]\nname='a'\ncommand=['x']\n".repeat(2);
        assert!(error(&twice).contains("a is there twice"));
        assert!(error("[[program]]\nname='a'\ncommand=[]\n").contains("a has no command"));
        assert!(error("[[program]]\nname='a'\ncommand=['x']\nunits=3").contains("units"));
        assert!(error("program = []").contains("no program"));
    }

    #[test]
    fn a_command_is_named_by_its_file() {
        let words = ["/usr/bin/xz", "-9"].map(String::from);
        let suite = Suite::of_command(&words);
        assert_eq!(suite.programs[0].label(), "xz -9");
    }
}
