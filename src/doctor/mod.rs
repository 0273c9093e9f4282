// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero doctor`: what on this machine keeps the scheduler from working, or from working
//! well, each with its remedy. It reads files, opens a counter and closes it, and changes nothing.

mod kernel;
mod machine;
mod neighbours;
mod programs;
mod render;

use std::path::Path;

use anyhow::Result;
use scx_utils::build_id;
use serde::Serialize;

use crate::output;
use crate::{pmu, preflight};

/// Options of `scx_hetero doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    scx_hetero doctor\n  \
    scx_hetero doctor --json > report.json  for a bug report")]
pub struct Args {
    /// Print JSON, for bug reports; names of cgroups are left out of it
    #[arg(long)]
    json: bool,
}

/// How grave a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Good to know, and nobody's fault.
    Note,
    /// The scheduler works, but less well than it could.
    Warning,
    /// The scheduler will not start.
    Failed,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What, in one word; the same on all machines.
    pub name: &'static str,
    /// How grave it is.
    pub status: Severity,
    /// What was found, for people.
    pub found: String,
    /// What to do about it; whatever failed has one, and each warning.
    pub remedy: Option<String>,
    /// Names that tell what a machine is used for: for its owner's eyes only.
    #[serde(skip)]
    pub private: Option<String>,
}

impl Check {
    fn new(name: &'static str, status: Severity, found: impl Into<String>) -> Self {
        Self {
            name,
            status,
            found: found.into(),
            remedy: None,
            private: None,
        }
    }

    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Severity::Ok, found)
    }

    fn note(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Severity::Note, found)
    }

    fn warning(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(name, Severity::Warning, found).remedied_by(remedy)
    }

    fn failed(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(name, Severity::Failed, found).remedied_by(remedy)
    }

    fn remedied_by(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    fn naming(mut self, private: String) -> Self {
        self.private = Some(private);
        self
    }
}

/// Checks of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    /// Which kind.
    pub topic: &'static str,
    /// In the order in which they are shown.
    pub checks: Vec<Check>,
}

/// All that was found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Grows when a field changes its meaning; new names of checks may come at any time.
    pub schema: u32,
    /// Of scx_hetero.
    pub version: String,
    /// How many checks failed.
    pub failed: usize,
    /// How many are warnings.
    pub warnings: usize,
    /// In the order in which they are shown.
    pub sections: Vec<Section>,
}

impl Report {
    fn new(sections: Vec<Section>) -> Self {
        let count = |status| {
            let checks = sections.iter().flat_map(|section| &section.checks);
            checks.filter(|check| check.status == status).count()
        };
        Self {
            schema: 1,
            version: build_id::full_version(env!("CARGO_PKG_VERSION")),
            failed: count(Severity::Failed),
            warnings: count(Severity::Warning),
            sections,
        }
    }
}

/// Examines the machine whose `/sys` and `/proc` lie below `root`. Counters are tried out only
/// where that is `/`.
pub fn examine(root: &Path) -> Report {
    let section = |topic, checks| Section { topic, checks };
    let permissions = preflight::Permissions::read(root);
    Report::new(vec![
        section("kernel", kernel::checks(root, permissions.as_ref())),
        section("core types", machine::core_types(root)),
        section("counters", machine::counters(root, permissions.as_ref())),
        section(
            "energy",
            [machine::energy(root), machine::power(root)].concat(),
        ),
        section("neighbours", neighbours::checks(root)),
        section("programs", vec![programs::advice(root)]),
    ])
}

/// Examines this machine, or what lies below `SCX_SYSFS_PREFIX` where it is set, and prints what
/// was found. Returns the exit status: 1 if something fails.
///
/// # Errors
/// The output cannot be written.
pub fn run(args: &Args) -> Result<u8> {
    let report = examine(&pmu::root_from_env());
    match args.json {
        true => output::json(&report)?,
        false => output::styled(render::text(&report).trim_end())?,
    }
    Ok(u8::from(report.failed > 0))
}
