// SPDX-License-Identifier: GPL-2.0-only
//! What is known, as a file for other machines of the same kind.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use hetero_core::knowledge::ProgramKnowledge;
use hetero_core::parse;
use serde::{Deserialize, Serialize};

use super::process::ProgramKey;
use super::store::{PROGRAMS, StoredMachine, StoredProgram};
use crate::files::{read_text, write_private};
use crate::text::plain;

/// Grows when a field changes its meaning.
const SCHEMA: u32 = 2;

/// The oldest that is read.
const OLDEST: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TransferFile {
    schema: u32,
    machine: String,
    /// What is known of the machine itself; nothing in schema 1.
    #[serde(default)]
    told: StoredMachine,
    programs: Vec<TransferProgram>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TransferProgram {
    name: String,
    image: String,
    arguments: u32,
    unit: String,
    uid: u32,
    runs: u64,
    first_seen: i64,
    last_seen: i64,
    known: ProgramKnowledge,
}

impl From<&StoredProgram> for TransferProgram {
    fn from(of: &StoredProgram) -> Self {
        Self {
            name: of.name.clone(),
            image: of.key.image.clone(),
            arguments: of.key.args,
            unit: of.key.unit.clone(),
            uid: of.key.uid,
            runs: of.runs,
            first_seen: of.seen.0,
            last_seen: of.seen.1,
            known: of.known.clone(),
        }
    }
}

impl From<TransferProgram> for StoredProgram {
    fn from(of: TransferProgram) -> Self {
        let text = |text: &str| plain(text).chars().take(128).collect();
        Self {
            id: None,
            key: ProgramKey {
                image: text(&of.image),
                args: of.arguments,
                unit: text(&of.unit),
                uid: of.uid,
            },
            name: text(&of.name),
            runs: of.runs,
            seen: (of.first_seen, of.last_seen),
            known: of.known,
        }
    }
}

/// Writes programs of a machine called so, for the file's owner alone, like the store.
pub(super) fn write(
    path: &Path,
    machine: &str,
    told: StoredMachine,
    programs: &[StoredProgram],
) -> Result<()> {
    let file = TransferFile {
        schema: SCHEMA,
        machine: machine.to_string(),
        told,
        programs: programs.iter().map(TransferProgram::from).collect(),
    };
    write_private(
        path,
        (serde_json::to_string_pretty(&file)? + "\n").as_bytes(),
    )
}

/// Reads what [`write()`] wrote on a machine called so.
pub(super) fn read(
    path: &Path,
    machine: &str,
    now: i64,
) -> Result<(StoredMachine, Vec<StoredProgram>)> {
    let text = read_text(path).with_context(|| format!("cannot read {}", path.display()))?;
    let file: TransferFile = parse::json_of(&text, OLDEST..=SCHEMA)
        .with_context(|| format!("cannot use {}", path.display()))?;
    if file.machine != machine {
        bail!(
            "{} is of another machine ({}): what core types are worth to programs there says nothing here \
             ({machine})",
            path.display(),
            plain(&file.machine)
        );
    }
    let sound = |of: &TransferProgram| {
        of.known.is_sound()
            && (0..=now + 86_400).contains(&of.last_seen)
            && of.first_seen <= of.last_seen
    };
    ensure!(
        file.programs.len() <= PROGRAMS && file.programs.iter().all(sound),
        "{}: its numbers make no sense, or it is of more than {PROGRAMS} programs",
        path.display()
    );
    let programs = file.programs.into_iter().map(StoredProgram::from);
    Ok((file.told.cut(), programs.collect()))
}
