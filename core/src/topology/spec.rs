// SPDX-License-Identifier: GPL-2.0-or-later
//! The user's own list of core types: `--core-types P=0-7,E=8-15`.

use std::str::FromStr;

use anyhow::{Error, Result, anyhow, bail, ensure};

use super::sysfs::TopologyFacts;
use super::{MAX_CORE_TYPES, are, cpulist};

/// The longest name of a core type, in bytes.
const MAX_NAME: usize = 15;

/// Core types as the user lists them, fastest first: `NAME=CPULIST[,NAME=CPULIST]...`.
///
/// A CPU list may hold commas itself: a part without `=` continues the list before it, so
/// `P=0,2,E=1,3` reads as P on CPUs 0 and 2 and E on CPUs 1 and 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreTypesSpec {
    /// Name and CPUs (ascending) of each core type, fastest first.
    entries: Vec<(String, Vec<u32>)>,
}

impl FromStr for CoreTypesSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parts: Vec<(&str, String)> = Vec::new();
        for part in text.split(',') {
            match (part.split_once('='), parts.last_mut()) {
                (Some((name, list)), _) => parts.push((name.trim(), list.to_string())),
                (None, Some((_, list))) => {
                    list.push(',');
                    list.push_str(part);
                }
                (None, None) => {
                    bail!("'{part}' has no core type name: write NAME=CPUS, such as P=0-7,E=8-15")
                }
            }
        }
        ensure!(
            parts.len() <= MAX_CORE_TYPES,
            "{} core types are listed but at most {MAX_CORE_TYPES} are supported: join the \
             most alike",
            parts.len()
        );

        let mut entries: Vec<(String, Vec<u32>)> = Vec::new();
        for (name, list) in parts {
            check_name(name, &list)?;
            let cpus = cpulist::parse(&list)
                // In one line: of an option's error only that is shown.
                .map_err(|why| anyhow!("the CPUs of core type {name} are not understood: {why}"))?;
            ensure!(
                !cpus.is_empty(),
                "core type {name} has no CPUs: list some, such as {name}=0-7, or leave it out"
            );
            for (other, taken) in &entries {
                ensure!(
                    other != name,
                    "core type {name} is listed twice: give all its CPUs in one list"
                );
                if let Some(cpu) = cpus.iter().find(|cpu| taken.contains(cpu)) {
                    bail!("CPU {cpu} is in both {other} and {name}: take it out of one of them");
                }
            }
            entries.push((name.to_string(), cpus));
        }
        Ok(Self { entries })
    }
}

fn check_name(name: &str, list: &str) -> Result<()> {
    ensure!(
        !name.is_empty(),
        "the core type of CPUs {list} has an empty name: write NAME={list}, such as P={list}"
    );
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    ensure!(
        name.len() <= MAX_NAME && name.chars().all(plain),
        "'{name}' cannot name a core type: use at most {MAX_NAME} letters, digits, '-' and '_'"
    );
    Ok(())
}

impl CoreTypesSpec {
    /// Names and online CPUs of the listed core types on the machine `facts` describes.
    ///
    /// Every online CPU must be listed, and every listed CPU must be there. A CPU that is present
    /// but offline is left out with a note, so that taking a CPU offline does not turn a list that
    /// was right at start-up into an error.
    pub(super) fn resolve(
        &self,
        facts: &TopologyFacts,
        notes: &mut Vec<String>,
    ) -> Result<(Vec<String>, Vec<Vec<u32>>)> {
        let online = facts.online();
        let (mut names, mut groups) = (Vec::new(), Vec::new());
        for (name, listed) in &self.entries {
            let (here, away): (Vec<u32>, Vec<u32>) =
                listed.iter().partition(|cpu| online.contains(cpu));
            if let Some(cpu) = away.iter().find(|cpu| !facts.present.contains(cpu)) {
                bail!(
                    "--core-types: CPU {cpu} (in {name}) is not online, nor on this machine at \
                     all, which has CPUs {}: take it out of the list",
                    cpulist::format(&facts.present)
                );
            }
            if !away.is_empty() {
                notes.push(format!("{} offline and left out of {name}", are(&away)));
            }
            if !here.is_empty() {
                names.push(name.clone());
                groups.push(here);
            }
        }
        let missing: Vec<u32> = online
            .into_iter()
            .filter(|cpu| !groups.iter().any(|group| group.contains(cpu)))
            .collect();
        ensure!(
            missing.is_empty(),
            "--core-types: {} online but in no core type: add them to one of the lists",
            are(&missing)
        );
        Ok((names, groups))
    }
}
