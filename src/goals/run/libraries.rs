// SPDX-License-Identifier: GPL-2.0-only
//! Which files people mean who name a library or a program.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use log::info;
use nix::libc::O_PATH;

use super::symbols::{SymbolFound, find};
use crate::text::plain;

/// Libraries of several versions may be installed; a program uses one of them.
const MOST: usize = 8;

/// Where libraries are; what the loader's configuration adds comes from its files.
const FOLDERS: [&str; 8] = [
    "/lib",
    "/lib/*",
    "/lib64",
    "/usr/lib",
    "/usr/lib/*",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/local/lib/*",
];

/// What a process has loaded is read up to this size, in bytes: it may be of any.
const LARGEST: u64 = 1 << 30;

/// Where a function begins: in which file, at which offset.
#[derive(Debug)]
pub(super) struct ProbePlace {
    pub(super) path: PathBuf,
    pub(super) offset: u64,
    /// Of what a process has loaded `path` names this, so that it is the file that was read.
    _open: Option<File>,
}

/// What a process has loaded, open as no more than a name.
struct Loaded {
    open: File,
    /// Leads to it, wherever it lies.
    path: PathBuf,
}

/// Finds a function in the first of `files` that is there and has it, in all its versions. What the process `pid` has
/// loaded comes before what is installed: in a container, as games have it, that is another.
///
/// # Errors
/// There is none, with what there is instead.
pub(super) fn places(files: &[String], symbol: &str, pid: Option<u32>) -> Result<Vec<ProbePlace>> {
    for name in files {
        let loaded = pid.map_or_else(Vec::new, |pid| loaded(pid, name));
        let places = loaded.into_iter().filter_map(|Loaded { open, path }| {
            let SymbolFound::At(offset) = find(&path, symbol).ok()? else {
                return None;
            };
            let _open = Some(open);
            Some(ProbePlace {
                path,
                offset,
                _open,
            })
        });
        let places: Vec<_> = places.collect();
        if !places.is_empty() {
            return Ok(places);
        }
    }
    let mut near = Vec::new();
    let mut looked = Vec::new();
    for name in files {
        let mut places = Vec::new();
        for path in candidates(name) {
            match find(&path, symbol) {
                Ok(SymbolFound::At(offset)) => places.push(ProbePlace {
                    path,
                    offset,
                    _open: None,
                }),
                Ok(SymbolFound::Near(names)) => {
                    near.extend(
                        names
                            .into_iter()
                            .filter(|name| !near.contains(name))
                            .collect::<Vec<_>>(),
                    );
                    looked.push(path);
                }
                // Libraries of other machines, and linker scripts. What is named by its path is meant.
                Err(error) if name.contains('/') => return Err(error),
                Err(_) => {}
            }
        }
        if let [first, ..] = &places[..] {
            if let Some(pid) = pid {
                let file = first.path.display();
                info!(
                    "process {pid} has loaded no '{name}' with {symbol}: that of {file} is watched"
                );
            }
            return Ok(places);
        }
    }
    let [first, ..] = &looked[..] else {
        bail!(
            "there is no library or program '{}' in the places for those: name its path, as in \
             ./{}:{symbol}",
            files.join("' nor '"),
            files[0]
        );
    };
    let first = first.display();
    match &near[..] {
        [] => bail!(
            "{first} has no function {symbol}, nor one that is called alike: if it is stripped only \
             what it exports has a name ('nm -D {first}')"
        ),
        near => {
            let near = near.iter().map(|name| plain(name).into_owned());
            let near = near.collect::<Vec<_>>().join(", ");
            bail!("{first} has no function {symbol}; it has {near}")
        }
    }
}

/// Finds a function in a program that is about to be run: one that is linked statically has it in itself, whatever libraries are installed.
pub(super) fn own_place(program: &str, symbol: &str) -> Option<ProbePlace> {
    candidates(program).into_iter().find_map(|path| {
        let Ok(SymbolFound::At(offset)) = find(&path, symbol) else {
            return None;
        };
        Some(ProbePlace {
            path,
            offset,
            _open: None,
        })
    })
}

/// Files of that name that a process has mapped, each once. It may map others at any time, so each is opened but once.
fn loaded(pid: u32, name: &str) -> Vec<Loaded> {
    if name.contains('/') {
        return Vec::new();
    }
    let is_meant = |file: &OsStr| {
        let file = file.to_string_lossy();
        let file = file.strip_suffix(" (deleted)").unwrap_or(&file);
        let rest = file.strip_prefix(name);
        // As in `libfoo.so.1` and `libfoo-1.2.so`.
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
    };
    let mut seen = BTreeSet::new();
    let links = fs::read_dir(format!("/proc/{pid}/map_files"));
    let links = links.into_iter().flatten().flatten();
    let files = links.filter_map(|link| {
        let link = link.path();
        let real = fs::read_link(&link).ok()?;
        let open = || {
            OpenOptions::new()
                .read(true)
                .custom_flags(O_PATH)
                .open(&link)
                .ok()
        };
        let open = real.file_name().is_some_and(is_meant).then(open)??;
        let file = open.metadata().ok()?;
        let fits = file.is_file() && file.len() <= LARGEST && seen.insert((file.dev(), file.ino()));
        let path = format!("/proc/self/fd/{}", open.as_raw_fd()).into();
        fits.then_some(Loaded { open, path })
    });
    files.take(MOST).collect()
}

/// Files of that name, each once.
fn candidates(name: &str) -> Vec<PathBuf> {
    if name.contains('/') {
        return vec![name.into()];
    }
    let mut files = Vec::new();
    let mut seen = BTreeSet::new();
    let mut add = |path: PathBuf| {
        // Of a library, mostly, a file and links to it.
        if let Ok(real) = path.canonicalize()
            && real.is_file()
            && files.len() < MOST
            && seen.insert(real.clone())
        {
            files.push(real);
        }
    };
    for folder in folders() {
        for file in matches(&folder, &format!("{}.so*", glob::Pattern::escape(name))) {
            add(file);
        }
        if name.contains(".so") {
            add(folder.join(name));
        }
    }
    let path = env::var_os("PATH").unwrap_or_default();
    for folder in env::split_paths(&path) {
        add(folder.join(name));
    }
    files
}

/// In the order of the loader, as good as it matters.
fn folders() -> Vec<PathBuf> {
    let own = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&own)
        .filter(|path| path.is_absolute())
        .collect();
    for file in matches(Path::new("/etc/ld.so.conf.d"), "*.conf") {
        let text = fs::read_to_string(file).unwrap_or_default();
        let lines = text.lines().map(str::trim);
        folders.extend(
            lines
                .filter(|line| line.starts_with('/'))
                .map(PathBuf::from),
        );
    }
    for pattern in FOLDERS {
        folders.extend(matches(Path::new("/"), pattern.trim_start_matches('/')));
    }
    folders
}

fn matches(folder: &Path, pattern: &str) -> Vec<PathBuf> {
    let folder = glob::Pattern::escape(&folder.to_string_lossy());
    let paths = glob::glob(&format!("{}/{pattern}", folder.trim_end_matches('/')));
    paths.map_or_else(|_| Vec::new(), |paths| paths.flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(file: &str, symbol: &str) -> Result<Vec<ProbePlace>> {
        places(&[file.into()], symbol, None)
    }

    fn at(places: &[ProbePlace]) -> Vec<(&Path, u64)> {
        let places = places.iter();
        places.map(|place| (&*place.path, place.offset)).collect()
    }

    #[test]
    fn a_function_of_libc_is_found_by_the_librarys_name() {
        // Its own start is at the beginning of no file.
        let places = of("libc", "fopen").unwrap();
        assert!(!places.is_empty() && places.len() <= MOST);
        assert!(places.iter().all(|place| place.offset > 0), "{places:?}");
        let path = places[0].path.to_str().unwrap();
        assert_eq!(at(&of(path, "fopen").unwrap())[0], at(&places)[0]);
        // The first that has it.
        let files = ["libnowhere".to_string(), "libc".into()];
        assert_eq!(
            at(&super::places(&files, "fopen", None).unwrap()),
            at(&places)
        );
    }

    #[test]
    fn a_program_has_functions_that_are_linked_into_it() {
        let program = env::current_exe().unwrap();
        let program = program.to_str().unwrap();
        let own = own_place(program, "main").unwrap();
        assert_eq!(at(&[own]), at(&of(program, "main").unwrap()));
        // Of a library it has but the name; and a script has none.
        assert!(own_place(program, "fopen").is_none());
        assert!(own_place("/etc/passwd", "main").is_none());
        assert!(own_place("no-such-program", "main").is_none());
    }

    #[test]
    fn what_a_process_has_loaded_comes_first() {
        let own = Some(std::process::id());
        let loaded = super::places(&["libc.so".into()], "fopen", own).unwrap();
        // Only root may follow these links.
        if loaded[0]._open.is_some() {
            assert_eq!(loaded.len(), 1);
            let real = fs::canonicalize(fs::read_link(&loaded[0].path).unwrap()).unwrap();
            let installed = of("libc", "fopen").unwrap();
            let same = (&*real, loaded[0].offset);
            assert!(at(&installed).contains(&same), "{same:?}");
        }
        // One that it has not loaded is one that is installed.
        let files = ["libnowhere".to_string(), "sh".into()];
        let path = &super::places(&files, "malloc", own);
        assert!(path.as_ref().is_ok_and(|path| path[0]._open.is_none()) || path.is_err());
    }

    #[test]
    fn what_is_not_there_is_told_with_what_is() {
        let why = |file, symbol| format!("{:#}", of(file, symbol).unwrap_err());
        let told = why("libc", "fopenn");
        assert!(
            told.contains("has no function fopenn; it has fopen"),
            "{told}"
        );
        let told = why("libc", "vkQueuePresentKHR");
        assert!(told.contains("nm -D"), "{told}");
        let told = why("libnowhere", "f");
        assert!(told.contains("./libnowhere:f"), "{told}");
        let told = why("/nowhere/lib.so", "f");
        assert!(told.contains("cannot read /nowhere/lib.so"), "{told}");
    }
}
