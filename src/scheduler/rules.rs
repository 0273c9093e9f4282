// SPDX-License-Identifier: GPL-2.0-only
//! The file of the user's rules, read when the scheduler begins and when it is told to.

use std::path::{Path, PathBuf};

use anyhow::Result;
use log::{info, warn};

use crate::agent::Verdict;
use crate::goals::RuledGoal;
use crate::rules::{self, InProc, ProcessInProc, Rules};
use crate::table::Task;
use crate::topology::Topology;

/// See the module.
pub(super) struct RulesFile {
    path: PathBuf,
    rules: Rules,
}

impl RulesFile {
    /// With the rules that the user named, or those that lie at [`rules::PATH`]. Only `strict` are
    /// wrong ones an error; else none hold, for the service must start all the same.
    ///
    /// # Errors
    /// The rules that the user named cannot be used.
    pub(super) fn find(named: Option<&Path>, strict: bool, topology: &Topology) -> Result<Self> {
        let path = named.unwrap_or(Path::new(rules::PATH));
        let rules = if named.is_none() && !path.exists() {
            Rules::default()
        } else {
            match Rules::read(path, topology) {
                Err(error) if named.is_none() || !strict => {
                    warn!("{error:#}; going on without rules");
                    Rules::default()
                }
                read => read?,
            }
        };
        if !rules.is_empty() {
            info!("{}", summary(path, &rules));
        }
        Ok(Self {
            path: path.to_path_buf(),
            rules,
        })
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// What they say of a thread.
    pub(super) fn of(&self, task: &Task) -> Option<Verdict> {
        self.rules.of(&InProc {
            tid: task.tid,
            comm: &task.comm.raw(),
        })
    }

    /// Whether some say anything of goals.
    pub(super) fn on_goals(&self) -> bool {
        self.rules.nr_goals() > 0
    }

    /// What they say of a process's goal.
    pub(super) fn goal_of(&self, tgid: u32) -> Option<RuledGoal> {
        self.rules.goal_of(&ProcessInProc { tgid })
    }

    /// Reads the file again. If it is wrong the old rules stay.
    pub(super) fn reload(&mut self, topology: &Topology) -> Result<String, String> {
        let read = Rules::read(&self.path, topology);
        self.rules = read.map_err(|error| format!("{error:#}; the old rules stay"))?;
        let said = summary(&self.path, &self.rules);
        info!("{said}");
        Ok(said)
    }
}

/// How many there are.
fn summary(path: &Path, rules: &Rules) -> String {
    let all = format!("rules from {}: {}", path.display(), rules.len());
    match rules.nr_goals() {
        0 => all,
        goals => format!("{all}, {goals} of them on goals of programs that report beats"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use hetero_core::testing::{board, task};

    #[test]
    fn a_wrong_file_is_refused_later_and_the_old_rules_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.toml");
        let topology = board(1, 1);
        fs::write(&path, "[[rule]]\ncomm = \"*\"\nleave = true").unwrap();
        let mut file = RulesFile::find(Some(&path), true, &topology).unwrap();
        let verdict = file.of(&task(0, 0, 0));
        assert!(verdict.is_some());
        fs::write(&path, "[[rule]]").unwrap();
        let why = file.reload(&topology).unwrap_err();
        assert!(why.contains("old rules stay"), "{why}");
        assert_eq!(file.of(&task(0, 0, 0)), verdict);
        assert!(!file.on_goals());
        fs::write(&path, "[[rule]]\ncomm = \"*\"\ngoal = { rate = 30 }").unwrap();
        let said = file.reload(&topology).unwrap();
        assert!(
            said.ends_with(": 1, 1 of them on goals of programs that report beats"),
            "{said}"
        );
        assert!(file.on_goals() && file.goal_of(std::process::id()).is_some());
        fs::write(&path, "").unwrap();
        file.reload(&topology).unwrap();
        assert!(file.is_empty());
    }

    #[test]
    fn a_wrong_file_is_refused_at_the_start_only_where_it_was_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.toml");
        let topology = board(1, 1);
        assert!(RulesFile::find(Some(&path), true, &topology).is_err());
        fs::write(&path, "[[rule]]").unwrap();
        assert!(RulesFile::find(Some(&path), true, &topology).is_err());
        // After a restart, say.
        assert!(
            RulesFile::find(Some(&path), false, &topology)
                .unwrap()
                .is_empty()
        );
    }
}
