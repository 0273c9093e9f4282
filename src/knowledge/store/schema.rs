// SPDX-License-Identifier: GPL-2.0-only
//! Tables of the database, by version.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

/// Grows when tables change; older ones are migrated ([`migrate`]).
pub const SCHEMA: i64 = 4;

/// Says that the file is ours: "scxh".
pub(super) const APPLICATION: i64 = 0x7363_7868;

/// Brings tables of an older version to the present form; of version 0 there are none.
pub(super) fn migrate(connection: &mut Connection, schema: i64) -> rusqlite::Result<()> {
    if schema == SCHEMA {
        return Ok(());
    }
    let write = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have been faster.
    let made = write
        .query_row(
            "SELECT 1 FROM sqlite_schema WHERE name = 'program'",
            [],
            |_| Ok(()),
        )
        .optional()?;
    // Schema 2 says of a machine what was calibrated, and which events tell of programs there. Schema 3 has miss-rate
    // curves in `known`, and schema 4 what is undisturbed, which an older version would write without them.
    let told = write
        .query_row(
            "SELECT 1 FROM pragma_table_info('machine') WHERE name = 'events'",
            [],
            |_| Ok(()),
        )
        .optional()?;
    if made.is_some() && told.is_none() {
        write.execute_batch(
            "ALTER TABLE machine ADD COLUMN calibrated TEXT NOT NULL DEFAULT '';
             ALTER TABLE machine ADD COLUMN events TEXT NOT NULL DEFAULT '';",
        )?;
    }
    if made.is_none() {
        write.execute_batch(
            "CREATE TABLE machine (
               id INTEGER PRIMARY KEY,
               name TEXT NOT NULL UNIQUE,
               calibrated TEXT NOT NULL DEFAULT '',
               events TEXT NOT NULL DEFAULT ''
             );
             CREATE TABLE program (
               id INTEGER PRIMARY KEY AUTOINCREMENT,
               machine INTEGER NOT NULL,
               image TEXT NOT NULL,
               args INTEGER NOT NULL,
               unit TEXT NOT NULL,
               uid INTEGER NOT NULL,
               name TEXT NOT NULL,
               runs INTEGER NOT NULL,
               first_seen INTEGER NOT NULL,
               last_seen INTEGER NOT NULL,
               known TEXT NOT NULL,
               UNIQUE (machine, image, args, unit, uid)
             );",
        )?;
    }
    write.pragma_update(None, "application_id", APPLICATION)?;
    write.pragma_update(None, "user_version", SCHEMA)?;
    write.commit()
}
