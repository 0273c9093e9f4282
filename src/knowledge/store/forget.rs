// SPDX-License-Identifier: GPL-2.0-only
//! What people have forgotten: nothing of it is left in the file.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use hetero_core::knowledge::ProgramKnowledge;
use rusqlite::{Transaction, TransactionBehavior};

use super::file::remove_aside;
use super::{KnowledgeStore, LONGEST};

impl KnowledgeStore {
    /// Forgets programs. Returns how many there were.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn forget(&mut self, ids: &[i64]) -> Result<usize> {
        self.erase(|write| {
            let mut gone = 0;
            for id in ids {
                gone += write.execute("DELETE FROM program WHERE id = ?1", [id])?;
            }
            Ok(gone)
        })
    }

    /// Forgets names of programs beside which others lost time. Returns those.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn forget_beside(&mut self, is_meant: impl Fn(&str) -> bool) -> Result<BTreeSet<String>> {
        self.erase(|write| {
            let mut names = BTreeSet::new();
            let mut changed = Vec::new();
            let mut query =
                write.prepare("SELECT id, known FROM program WHERE length(known) <= ?1")?;
            let mut rows = query.query([LONGEST as i64])?;
            while let Some(row) = rows.next()? {
                let (id, known): (i64, String) = (row.get(0)?, row.get(1)?);
                let Ok(mut known) = serde_json::from_str::<ProgramKnowledge>(&known) else {
                    continue;
                };
                let gone = known.company.forget(&is_meant);
                if !gone.is_empty() {
                    names.extend(gone);
                    changed.push((id, serde_json::to_string(&known)?));
                }
            }
            for of in changed {
                write.execute("UPDATE program SET known = ?2 WHERE id = ?1", of)?;
            }
            Ok(names)
        })
    }

    /// Forgets all that was found: also on other machines, what makes no sense, and the file that was set aside. Returns
    /// how many programs there were.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn forget_all(&mut self) -> Result<usize> {
        remove_aside(&self.path)?;
        self.erase(|write| {
            // The rows stay: a scheduler that runs goes by their numbers.
            write.execute("UPDATE machine SET calibrated = '', events = ''", [])?;
            Ok(write.execute("DELETE FROM program", [])?)
        })
    }

    fn erase<T>(&mut self, what: impl FnOnce(&Transaction) -> Result<T>) -> Result<T> {
        let work = || -> Result<T> {
            let write = self
                .connection
                .transaction_with_behavior(TransactionBehavior::Immediate)?;
            let gone = what(&write)?;
            write.commit()?;
            // Older versions left in the file what they had no use for.
            self.connection.execute_batch("VACUUM")?;
            Ok(gone)
        };
        work().with_context(|| format!("cannot write {}", self.path.display()))
    }
}
