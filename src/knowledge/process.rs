// SPDX-License-Identifier: GPL-2.0-only
//! Which program a process runs, and as what: by `/proc`, each file bounded.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use anyhow::{Result, ensure};
use rustc_hash::FxHashMap;
use twox_hash::XxHash64;

use super::image::{Executable, FileVersion};
use crate::cgroups;
use crate::text::plain;

/// Of a command line.
const LONGEST_LINE: u64 = 16 << 10;

/// Of names of units and programs, letters.
const LONGEST_NAME: usize = 48;

/// Executables that are known without being read again.
const IMAGES: usize = 1024;

/// Programs whose first argument is the program: by the beginning of their names.
const INTERPRETERS: [&str; 9] = [
    "python", "perl", "ruby", "node", "java", "bash", "dash", "sh", "php",
];

/// What tells a program from others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProgramKey {
    /// Of its executable: build id or content hash.
    pub image: String,
    /// Class of its arguments: which options, no values.
    pub args: u32,
    /// Unit, or the last part of its cgroup, without numbers.
    pub unit: String,
    /// User.
    pub uid: u32,
}

/// A program, and its name for people.
pub(super) type FoundProgram = (ProgramKey, String);

/// Looks up programs of processes.
#[derive(Debug, Default)]
pub(super) struct ProcessLookup {
    images: FxHashMap<FileVersion, String>,
}

impl ProcessLookup {
    /// The program that a process runs, and its name for people.
    ///
    /// # Errors
    /// It has ended, or its executable is none that may be read.
    pub(super) fn of(&mut self, tgid: u32) -> Result<FoundProgram> {
        self.of_while(tgid, || ())
    }

    /// The same; something happens before its end.
    fn of_while(&mut self, tgid: u32, happens: impl FnOnce()) -> Result<FoundProgram> {
        let uid = owner(tgid)?;
        let executable = Executable::of(tgid)?;
        let image = match self.images.get(&executable.version) {
            Some(known) => known.clone(),
            None => {
                let read = executable.identity()?;
                if self.images.len() >= IMAGES {
                    self.images.clear();
                }
                self.images.insert(executable.version, read.clone());
                read
            }
        };
        let path = fs::read_link(format!("/proc/{tgid}/exe"))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = shortened(name.trim_end_matches(" (deleted)"));
        let key = ProgramKey {
            image,
            args: class_of(&name, &read(tgid, "cmdline")?),
            unit: unit_of(&String::from_utf8_lossy(&read(tgid, "cgroup")?)),
            uid,
        };
        happens();
        // It may call exec meanwhile: a key of one program and another's user would be none of either.
        ensure!(
            (Executable::of(tgid)?.version, owner(tgid)?) == (executable.version, uid),
            "it runs another program by now"
        );
        Ok((key, name))
    }
}

/// The user that a process runs as.
pub(super) fn owner(tgid: u32) -> Result<u32> {
    Ok(fs::metadata(format!("/proc/{tgid}"))?.uid())
}

fn read(tgid: u32, what: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(format!("/proc/{tgid}/{what}"))?;
    file.take(LONGEST_LINE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The class of a command line: a hash of the names of its options, each once, in order; of an interpreter also of
/// what it runs. 32 bits tell whether two are alike, and not what they were.
fn class_of(program: &str, line: &[u8]) -> u32 {
    let words = line.split(|&byte| byte == 0).skip(1);
    let mut options: Vec<&[u8]> = words.clone().filter_map(option).collect();
    options.sort_unstable();
    options.dedup();
    let interprets = INTERPRETERS.iter().any(|of| program.starts_with(of));
    let mut others = words.filter(|word| !word.is_empty() && !word.starts_with(b"-"));
    let script = others.next().filter(|_| interprets);
    let script = script.map(|path| std::path::Path::new(std::ffi::OsStr::from_bytes(path)));
    let script = script.and_then(|path| path.file_name());
    let all: Vec<&[u8]> = options
        .into_iter()
        .chain(script.map(OsStrExt::as_bytes))
        .collect();
    XxHash64::oneshot(0, &all.join(&0)) as u32
}

/// The name of an option, if the word is one: `--name` of `--name=value`; of `-Ipath` two letters, of `-O2` all.
fn option(word: &[u8]) -> Option<&[u8]> {
    match word {
        [b'-', b'-', ..] => word.split(|&byte| byte == b'=').next(),
        [b'-', _, ..] if word.len() <= 4 => Some(word),
        [b'-', _, ..] => Some(&word[..2]),
        _ => None,
    }
}

/// The unit that a cgroup is, or its last part. What differs each time (`session-12.scope`, a container's id) is
/// the same: digits, and long runs of hexadecimal ones, are left out.
fn unit_of(cgroup: &str) -> String {
    let path = cgroups::unified(cgroup).unwrap_or("/");
    let last = path
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or_default();
    let mut unit = String::new();
    for part in last.split_inclusive(['-', '.', '@', '_', ':']) {
        let word = part.trim_end_matches(['-', '.', '@', '_', ':']);
        let hexadecimal = word.len() >= 8 && word.chars().all(|c| c.is_ascii_hexdigit());
        let number = !word.is_empty() && word.chars().all(|c| c.is_ascii_digit());
        if hexadecimal || number {
            unit.push('*');
            unit.push_str(&part[word.len()..]);
        } else {
            unit.push_str(part);
        }
    }
    shortened(&unit)
}

fn shortened(name: &str) -> String {
    plain(name).chars().take(LONGEST_NAME).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::Path;
    use std::process::{Command, Stdio};

    use super::*;

    fn class(program: &str, words: &[&str]) -> u32 {
        class_of(program, words.join("\0").as_bytes())
    }

    #[test]
    fn commands_are_alike_by_their_options_whatever_their_values() {
        let one = class("cc1", &["cc1", "-O2", "-I/usr/include", "--std=c11", "a.c"]);
        let other = class(
            "cc1",
            &["cc1", "b.c", "--std=c99", "-O2", "-Iinclude", "-Iother"],
        );
        assert_eq!(one, other);
        assert_ne!(
            one,
            class("cc1", &["cc1", "-O0", "-Iother", "--std=c11", "a.c"])
        );
        assert_eq!(
            class("xz", &["xz", "secret"]),
            class("xz", &["xz", "other"])
        );
        let script = |path| class("python3.11", &["python3", path, "x"]);
        assert_eq!(script("/a/train.py"), script("/b/train.py"));
        assert_ne!(script("train.py"), script("serve.py"));
    }

    #[test]
    fn units_that_differ_by_a_number_are_one() {
        let unit = |last: &str| unit_of(&format!("0::/system.slice/{last}\n"));
        assert_eq!(unit("nginx.service"), "nginx.service");
        assert_eq!(unit("session-12.scope"), "session-*.scope");
        assert_eq!(unit("docker-0123456789abcdef0123.scope"), "docker-*.scope");
        assert_eq!(
            (unit(""), unit_of("")),
            ("system.slice".into(), String::new())
        );
        assert_eq!(unit(&"x".repeat(500)).len(), LONGEST_NAME);
    }

    #[test]
    fn this_process_is_found_and_one_that_has_ended_is_not() {
        let mut lookup = ProcessLookup::default();
        let (key, name) = lookup.of(std::process::id()).unwrap();
        assert_eq!(lookup.of(std::process::id()).unwrap(), (key.clone(), name));
        assert_eq!(key.uid, nix::unistd::geteuid().as_raw());
        assert!(lookup.of(u32::MAX).is_err() && lookup.images.len() == 1);
    }

    #[test]
    fn what_runs_another_program_before_all_is_read_is_not_known() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "read word; exec sleep 1000"]);
        let mut child = shell.stdin(Stdio::piped()).spawn().unwrap();
        let link = format!("/proc/{}/exe", child.id());
        let exe = || fs::read_link(&link).unwrap();
        let own = fs::read_link("/proc/self/exe").unwrap();
        let wait = |before: &Path| {
            while exe() == before {
                std::thread::yield_now();
            }
        };
        wait(&own);
        let before = exe();
        let mut input = child.stdin.take().unwrap();
        let found = ProcessLookup::default().of_while(child.id(), || {
            input.write_all(b"go\n").unwrap();
            wait(&before);
        });
        child.kill().unwrap();
        child.wait().unwrap();
        let why = found.unwrap_err().to_string();
        assert!(why.contains("another program"), "{why}");
    }
}
