// SPDX-License-Identifier: GPL-2.0-only
//! Cgroups whose `cpu.max` limits them: the kernel leaves it to a sched_ext scheduler to enforce
//! that, and this one does not. So it names them.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use log::{debug, warn};

/// Where systemd, and everybody else, mounts the cgroups.
const ROOT: &str = "/sys/fs/cgroup";

/// So many are named, the others counted.
const NAMED: usize = 5;

/// So many are looked at, those near the root first, and down to this depth: any user may own a
/// cgroup, and make as many below it as it likes.
const MOST: usize = 10_000;
const DEEPEST: usize = 32;

/// The cgroup that `/proc/PID/cgroup` names, by its path below [`ROOT`].
pub(crate) fn unified(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

/// The cgroups that lose a limit, as far as people were told.
#[derive(Debug, Default)]
pub(crate) struct Limited {
    known: BTreeSet<PathBuf>,
}

impl Limited {
    /// Looks for limits, and names those that are new.
    pub(crate) fn warn_of_new(&mut self) {
        if let Some(message) = self.look(Path::new(ROOT)) {
            warn!("{message}");
        }
    }

    fn look(&mut self, root: &Path) -> Option<String> {
        let now = limited(root, "cpu.max");
        let new: Vec<_> = now.difference(&self.known).cloned().collect();
        self.known = now;
        message(&new)
    }
}

/// The cgroups that have a limit in `file`, as paths below `root`, of the first ten thousand. One that
/// goes away meanwhile has none.
pub(crate) fn limited(root: &Path, file: &str) -> BTreeSet<PathBuf> {
    find(root, file, MOST)
}

fn find(root: &Path, file: &str, most: usize) -> BTreeSet<PathBuf> {
    let mut limited = BTreeSet::new();
    let mut next = VecDeque::from([(root.to_path_buf(), 0)]);
    let mut found = 1;
    while let Some((dir, depth)) = next.pop_front() {
        let max = fs::read_to_string(dir.join(file)).unwrap_or_default();
        let limit = max.split_whitespace().next();
        if limit.is_some_and(|limit| limit != "max") {
            limited.insert(dir.strip_prefix(root).unwrap_or(&dir).to_path_buf());
        }
        if depth == DEEPEST || found == most {
            continue;
        }
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        for entry in below.take(most - found) {
            next.push_back((entry.path(), depth + 1));
            found += 1;
        }
    }
    if found == most {
        debug!("there are more than {most} cgroups: the others' limits are not looked for");
    }
    limited
}

fn message(limited: &[PathBuf]) -> Option<String> {
    if limited.is_empty() {
        return None;
    }
    Some(format!(
        "cpu.max is not enforced: {} may use more CPU time than its limit (CPUQuota=) allows",
        names(limited)
    ))
}

/// The first few by name, the others by number.
pub(crate) fn names<'a>(cgroups: impl IntoIterator<Item = &'a PathBuf>) -> String {
    let mut cgroups = cgroups.into_iter();
    let names = cgroups.by_ref().take(NAMED);
    let names: Vec<_> = names.map(|path| path.display().to_string()).collect();
    let more = match cgroups.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    names.join(", ") + &more
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(root: &Path, cgroup: &str, max: &str) {
        let dir = root.join(cgroup);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("cpu.max"), max).unwrap();
    }

    #[test]
    fn each_limited_cgroup_is_named_once() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let mut limited = Limited::default();
        set(root, "system.slice", "max 100000\n");
        fs::create_dir(root.join("init.scope")).unwrap();
        assert_eq!(limited.look(root), None);

        set(root, "system.slice/backup.service", "50000 100000\n");
        let text = limited.look(root).unwrap();
        assert!(text.contains(": system.slice/backup.service may"), "{text}");
        assert_eq!(limited.look(root), None);

        set(root, "user.slice", "200000 100000\n");
        let text = limited.look(root).unwrap();
        assert!(
            text.contains("user.slice") && !text.contains("backup"),
            "{text}"
        );

        // Who loses the limit and gets another is named anew.
        set(root, "user.slice", "max 100000\n");
        assert_eq!(limited.look(root), None);
        set(root, "user.slice", "100000 100000\n");
        assert!(limited.look(root).unwrap().contains("user.slice"));
    }

    #[test]
    fn very_many_or_very_deep_cgroups_are_not_all_looked_at_and_hide_none_near_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let deep = |depth| vec!["d"; depth].join("/");
        set(root, &deep(DEEPEST), "1000 100000");
        set(root, &deep(DEEPEST + 1), "1000 100000");
        assert_eq!(limited(root, "cpu.max"), [deep(DEEPEST).into()].into());
        for i in 0..200 {
            set(root, &format!("a/user.slice/{i}"), "1000 100000");
        }
        set(root, "z.slice/backup.service", "1000 100000");
        let found = find(root, "cpu.max", 100);
        assert!(found.contains(Path::new("z.slice/backup.service")));
        assert!(found.len() < 100, "{}", found.len());
    }

    #[test]
    fn many_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        for i in 0..8 {
            set(dir.path(), &format!("{i}.service"), "1000 100000\n");
        }
        let text = Limited::default().look(dir.path()).unwrap();
        assert!(text.contains("4.service and 3 more"), "{text}");
    }
}
