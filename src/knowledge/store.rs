// SPDX-License-Identifier: GPL-2.0-only
//! The database. Whatever is wrong with it, the scheduler goes on: a damaged or foreign file is set aside, one of
//! a newer version is left alone, and where nothing can be written what is known ends with the scheduler.

mod file;
mod forget;
mod schema;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use hetero_core::knowledge::ProgramKnowledge;
use log::warn;
use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, TransactionBehavior, params};

use serde::{Deserialize, Serialize};

use super::process::ProgramKey;
use crate::connections::CountedUsers;
use crate::text::plain;
use file::{StoreAccess, Unusable, has_journal, prepare, set_aside};
pub use schema::SCHEMA;
use schema::{APPLICATION, migrate};

/// Where it is.
pub const PATH: &str = "/var/lib/scx_hetero/knowledge.db";

/// Programs that are kept.
pub const PROGRAMS: usize = 2048;

/// Of each user but root so many are safe from those of others, and where there is no room what one has beyond that goes first: else
/// one user could have those of all others forgotten.
pub const OF_A_USER: usize = PROGRAMS / 4;

/// What has not been seen for so long is forgotten, s.
const OLDEST: i64 = 365 * DAY;

const DAY: i64 = 86_400;

/// Each run of a program keeps it as long as if it was seen a day later, up to so many.
const WORTH: i64 = 60;

/// Of the file, pages of 4 KiB; a larger one is none of ours.
const PAGES: i64 = 8192;
const LARGEST: u64 = 2 * 4096 * PAGES as u64;

/// Of what is kept of one program, bytes: eight times what it takes.
const LONGEST: usize = 64 << 10;

/// Letters of what is kept of a machine, of each of both.
pub const TOLD: usize = 1000;

/// As [`program`] has them.
const COLUMNS: &str = "id, image, args, unit, uid, name, runs, first_seen, last_seen, known";

/// How long another process may be at it.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is known of a machine itself, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredMachine {
    /// What was calibrated.
    pub calibrated: String,
    /// Which events tell of programs, by core type.
    pub events: String,
}

impl StoredMachine {
    /// No longer than may be kept, and without what a terminal would take for a command.
    pub fn cut(&self) -> Self {
        let cut = |text: &str| plain(text).chars().take(TOLD).collect();
        Self {
            calibrated: cut(&self.calibrated),
            events: cut(&self.events),
        }
    }

    /// This, and what is known of the other where this says nothing.
    pub fn or(self, other: Self) -> Self {
        let or = |own: String, other: String| if own.is_empty() { other } else { own };
        Self {
            calibrated: or(self.calibrated, other.calibrated),
            events: or(self.events, other.events),
        }
    }
}

/// A program in the store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredProgram {
    /// Its row, once it has one.
    pub id: Option<i64>,
    /// Which.
    pub key: ProgramKey,
    /// Its executable's name, for people.
    pub name: String,
    /// How often it was started.
    pub runs: u64,
    /// When it was seen first and last, seconds since 1970.
    pub seen: (i64, i64),
    /// What is known of it.
    pub known: ProgramKnowledge,
}

/// The open database of one machine's programs.
#[derive(Debug)]
pub struct KnowledgeStore {
    connection: Connection,
    machine: i64,
    path: PathBuf,
    /// Changes by others, as SQLite counts them.
    version: i64,
}

impl KnowledgeStore {
    /// Opens it for programs of the machine called so, and makes it if need be. A damaged or foreign file is set
    /// aside.
    ///
    /// # Errors
    /// It cannot be used: what happened, and why.
    pub fn open(path: &Path, machine: &str) -> Result<Self> {
        let open = || Self::try_open(path, machine, StoreAccess::Make);
        let opened = match open() {
            Err(Unusable::Foreign(why)) => {
                let aside = set_aside(path).with_context(|| format!("{why:#}"))?;
                warn!(
                    "what was known of programs, {}, cannot be used: {why:#}; it is now {}, and a new one begins",
                    path.display(),
                    aside.display()
                );
                open()
            }
            opened => opened,
        };
        opened.map_err(|why| why.told(path))
    }

    /// Opens it only if it is there, to change it or to `read` alone. It is left as it is if it cannot be used.
    ///
    /// # Errors
    /// It cannot be used.
    pub fn open_existing(path: &Path, machine: &str, read: bool) -> Result<Option<Self>> {
        if !path.try_exists().unwrap_or(true) {
            return Ok(None);
        }
        let access = match read {
            true => StoreAccess::Read,
            false => StoreAccess::Change,
        };
        let opened = match Self::try_open(path, machine, access) {
            // What a crash has left half written is played back by what may write.
            Err(Unusable::Older) => Self::try_open(path, machine, StoreAccess::Change),
            Err(Unusable::Other(_)) if read && has_journal(path) => {
                Self::try_open(path, machine, StoreAccess::Change)
            }
            opened => opened,
        };
        match opened {
            Ok(store) => Ok(Some(store)),
            Err(why) => Err(why.told(path)),
        }
    }

    fn try_open(path: &Path, machine: &str, access: StoreAccess) -> Result<Self, Unusable> {
        let path = prepare(path, access).map_err(Unusable::Other)?;
        let size = fs::metadata(&path).map_or(0, |file| file.size());
        if size > LARGEST {
            let why = anyhow!("it has {} MiB, more than ever are kept", size >> 20);
            return Err(Unusable::Foreign(why));
        }
        let reads = access == StoreAccess::Read;
        let flags = match reads {
            true => OpenFlags::SQLITE_OPEN_READ_ONLY,
            false => OpenFlags::SQLITE_OPEN_READ_WRITE,
        };
        let flags = flags
            | OpenFlags::SQLITE_OPEN_NOFOLLOW
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_EXRESCODE;
        let mut connection = Connection::open_with_flags(&path, flags)?;
        connection.busy_timeout(PATIENCE)?;
        // Nothing in a file may run code or reach other tables than ours.
        connection.execute_batch(
            "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0;
             PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY;
             PRAGMA cache_size = -1024;",
        )?;
        let schema = number(&connection, "user_version")?;
        let application = number(&connection, "application_id")?;
        let tables: i64 =
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if application != APPLICATION && (tables > 0 || schema != 0) {
            return Err(Unusable::Foreign(anyhow!(
                "it is the database of another program"
            )));
        }
        if schema > SCHEMA {
            return Err(Unusable::Other(anyhow!(
                "it was written by a later version (schema {schema}, this one knows {SCHEMA}); it is left as it is"
            )));
        }
        let check: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if check != "ok" {
            return Err(Unusable::Foreign(anyhow!(
                "it is damaged ({})",
                plain(&check)
            )));
        }
        if !reads {
            connection.pragma_update(None, "max_page_count", PAGES)?;
            // What is written anew, too old or forgotten is not to be found in the file any more.
            connection.pragma_update(None, "secure_delete", true)?;
            migrate(&mut connection, schema)?;
            connection.execute(
                "INSERT OR IGNORE INTO machine (name) VALUES (?1)",
                [machine],
            )?;
            count_users(&connection, CountedUsers::here())?;
        } else if schema == 0 {
            return Err(Unusable::Other(anyhow!("there is nothing in it yet")));
        } else if schema != SCHEMA {
            return Err(Unusable::Older);
        }
        let known = connection
            .query_row("SELECT id FROM machine WHERE name = ?1", [machine], |row| {
                row.get(0)
            })
            .optional()?;
        let machine = known.unwrap_or(-1);
        let version = number(&connection, "data_version")?;
        Ok(Self {
            connection,
            machine,
            path,
            version,
        })
    }

    /// What is known of the machine itself.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn machine(&self) -> Result<StoredMachine> {
        let told = self.connection.query_row(
            "SELECT calibrated, events FROM machine
             WHERE id = ?1 AND length(calibrated) <= ?2 AND length(events) <= ?2",
            params![self.machine, TOLD as i64],
            |row| {
                Ok(StoredMachine {
                    calibrated: row.get(0)?,
                    events: row.get(1)?,
                })
            },
        );
        Ok(told.optional()?.unwrap_or_default().cut())
    }

    /// Keeps what is known of the machine itself, in the place of what was.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn tell(&mut self, machine: &StoredMachine) -> Result<()> {
        let StoredMachine { calibrated, events } = machine.cut();
        self.connection
            .execute(
                "UPDATE machine SET calibrated = ?2, events = ?3 WHERE id = ?1",
                params![self.machine, calibrated, events],
            )
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        Ok(())
    }

    /// All that is known of this machine's programs, those seen last first.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn load(&self) -> Result<Vec<StoredProgram>> {
        let mut query = self.connection.prepare(&format!(
            "SELECT {COLUMNS} FROM program
             WHERE machine = ?1 AND length(known) <= ?2 ORDER BY last_seen DESC LIMIT ?3"
        ))?;
        let limits = params![self.machine, LONGEST as i64, PROGRAMS as i64];
        let rows = query.query_map(limits, |row| Ok(program(row)))?;
        let mut programs = Vec::new();
        for row in rows {
            // A row that makes no sense is no reason to forget the others.
            if let Ok(program) = row? {
                programs.push(program);
            }
        }
        Ok(programs)
    }

    /// What is known of one of this machine's programs.
    ///
    /// # Errors
    /// It cannot be read, or makes no sense.
    pub fn find(&self, key: &ProgramKey) -> Result<Option<StoredProgram>> {
        let mut query = self.connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM program WHERE machine = ?1 AND length(known) <= ?2
             AND image = ?3 AND args = ?4 AND unit = ?5 AND uid = ?6"
        ))?;
        let of = params![
            self.machine,
            LONGEST as i64,
            key.image,
            key.args,
            key.unit,
            key.uid
        ];
        query
            .query_row(of, |row| Ok(program(row)))
            .optional()?
            .transpose()
    }

    /// Whether another process has changed it since the last time that this was asked.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn has_changed(&mut self) -> Result<bool> {
        let now = number(&self.connection, "data_version")?;
        Ok(std::mem::replace(&mut self.version, now) != now)
    }

    /// Writes programs, all or none. Returns the row of each; none where the program was forgotten meanwhile.
    ///
    /// # Errors
    /// They cannot be written: nothing is lost of what is there.
    pub fn save(&mut self, programs: &[&StoredProgram], now: i64) -> Result<Vec<Option<i64>>> {
        let machine = self.machine;
        let mut work = || -> Result<Vec<Option<i64>>> {
            let write = self
                .connection
                .transaction_with_behavior(TransactionBehavior::Immediate)?;
            let mut ids = Vec::with_capacity(programs.len());
            for program in programs {
                let known = serde_json::to_string(&program.known)?;
                let runs = i64::try_from(program.runs).unwrap_or(i64::MAX);
                if let Some(id) = program.id {
                    let changed = write.prepare_cached(
                        "UPDATE program SET name = ?2, runs = ?3, last_seen = ?4, known = ?5 WHERE id = ?1",
                    )?
                    .execute(params![id, program.name, runs, program.seen.1, known])?;
                    ids.push((changed > 0).then_some(id));
                    continue;
                }
                let key = &program.key;
                let id = write
                    .prepare_cached(
                        "INSERT INTO program
                           (machine, image, args, unit, uid, name, runs, first_seen, last_seen, known)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
                         ON CONFLICT DO UPDATE SET
                           name = excluded.name, runs = excluded.runs, last_seen = excluded.last_seen,
                           known = excluded.known
                         RETURNING id",
                    )?
                    .query_row(
                        params![
                            machine,
                            key.image,
                            key.args,
                            key.unit,
                            key.uid,
                            program.name,
                            runs,
                            program.seen.0,
                            program.seen.1,
                            known
                        ],
                        |row| row.get(0),
                    )?;
                ids.push(Some(id));
            }
            write.execute(
                "DELETE FROM program WHERE last_seen < ?1",
                [sure_time(&write, now)?.saturating_sub(OLDEST)],
            )?;
            // Where there are too many, first what one user has beyond their part.
            write.execute(
                "DELETE FROM program WHERE id NOT IN (SELECT id FROM
                   (SELECT id, last_seen + min(runs, ?1) * ?2 AS worth, uid <> 0 AND row_number() OVER
                     (PARTITION BY counts_as(uid) ORDER BY last_seen + min(runs, ?1) * ?2 DESC) > ?3 AS beyond
                    FROM program)
                 ORDER BY beyond, worth DESC LIMIT ?4)",
                params![WORTH, DAY, OF_A_USER as i64, PROGRAMS as i64],
            )?;
            write.commit()?;
            Ok(ids)
        };
        work().with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// As disks do to it.
#[cfg(test)]
impl KnowledgeStore {
    /// Lets the file grow, or not: SQLite says of both limits that the database or disk is full.
    pub(super) fn may_grow(&self, may: bool) {
        let pages = if may { PAGES } else { 1 };
        let limited = self.connection.pragma_update(None, "max_page_count", pages);
        limited.unwrap();
    }
}

/// The time by which programs are old. What was seen tells of clocks that are ahead or behind by years, now or then:
/// between its times more than [`OLDEST`] passed. The time is sure up to there.
fn sure_time(connection: &Connection, now: i64) -> rusqlite::Result<i64> {
    let mut query = connection
        .prepare_cached("SELECT last_seen FROM program WHERE last_seen <= ?1 ORDER BY last_seen")?;
    let mut sure = None;
    for at in query.query_map([now], |row| row.get(0))?.chain([Ok(now)]) {
        let at: i64 = at?;
        if sure.is_some_and(|sure| at.saturating_sub(sure) > OLDEST) {
            break;
        }
        sure = Some(at);
    }
    Ok(sure.unwrap_or(now))
}

/// Which of these users one counts as, for statements.
fn count_users(connection: &Connection, users: CountedUsers) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_DIRECTONLY
        | FunctionFlags::SQLITE_UTF8;
    connection.create_scalar_function("counts_as", 1, flags, move |called| {
        Ok(users.of(called.get(0)?))
    })
}

fn number(connection: &Connection, pragma: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, pragma, |row| row.get(0))
}

fn program(row: &Row) -> Result<StoredProgram> {
    let text = |at: usize| -> Result<String> {
        let text: String = row.get(at)?;
        ensure!(text.len() <= 256, "too long");
        Ok(plain(&text).into_owned())
    };
    let known: String = row.get(9)?;
    let known: ProgramKnowledge = serde_json::from_str(&known)?;
    ensure!(known.is_sound(), "numbers that make no sense");
    Ok(StoredProgram {
        id: Some(row.get(0)?),
        key: ProgramKey {
            image: text(1)?,
            args: row.get(2)?,
            unit: text(3)?,
            uid: row.get(4)?,
        },
        name: text(5)?,
        runs: u64::try_from(row.get::<_, i64>(6)?)?,
        seen: (row.get(7)?, row.get(8)?),
        known,
    })
}

#[cfg(test)]
mod tests;
