// SPDX-License-Identifier: GPL-2.0-only
//! The files of vendors' lists.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::files::read_text;
use crate::pmu::listed::VendorLists;

/// Of all files together, bytes at most: those of one CPU have some 2 MB.
const MOST_BYTES: usize = 32 << 20;

/// Reads files, and of folders the `.json` files in them.
///
/// # Errors
/// Which file cannot be read or is broken, and how.
pub(in crate::collect) fn read(paths: &[PathBuf]) -> Result<VendorLists> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = fs::read_dir(path).with_context(|| cannot_read(path))?;
        let mut of_folder: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        of_folder.retain(|path| path.extension().is_some_and(|end| end == "json"));
        ensure!(
            !of_folder.is_empty(),
            "no list in {}: it has no .json file",
            path.display()
        );
        of_folder.sort_unstable();
        files.extend(of_folder);
    }
    let mut texts = Vec::new();
    let mut bytes = 0;
    for path in &files {
        let text = read_text(path).with_context(|| cannot_read(path))?;
        bytes += text.len();
        ensure!(
            bytes <= MOST_BYTES,
            "the lists have more than {} MiB: give those of this CPU only",
            MOST_BYTES >> 20
        );
        texts.push((path.display().to_string(), text));
    }
    VendorLists::parse(&texts)
}

fn cannot_read(path: &Path) -> String {
    format!("cannot read the list {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_read_and_what_is_wrong_is_said_with_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let error = |path: PathBuf| format!("{:#}", read(&[path]).unwrap_err());
        assert!(error(folder.path().into()).contains("no .json file"));
        fs::write(at("b.json"), r#"[{"EventName": "B", "EventCode": "0x2"}]"#).unwrap();
        fs::write(at("a.json"), r#"[{"EventName": "A", "EventCode": "0x1"}]"#).unwrap();
        fs::write(at("readme.md"), "no list").unwrap();
        let events = read(&[folder.path().into()]).unwrap().events;
        let names: Vec<_> = events.iter().map(|of| of.name.as_str()).collect();
        assert_eq!(names, ["A", "B"]);
        assert!(error(at("c.json")).contains("c.json"));
        assert!(error(at("readme.md")).contains("no JSON"));
    }
}
