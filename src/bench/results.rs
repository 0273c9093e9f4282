// SPDX-License-Identifier: GPL-2.0-only
//! The file of results: a JSON object per line, written as soon as it is known, so that a run that
//! was cut off goes on where it was.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use log::warn;
use serde::{Deserialize, Serialize};

use super::machine::MachineIdentity;
use crate::files::read_table;
use hetero_core::parse;

/// Grows when a field changes its meaning.
pub const SCHEMA: u32 = 1;

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ResultsLine {
    /// The first line.
    Header(ResultsHeader),
    /// A program alone.
    Alone(Alone),
    /// A mix under a scheduler.
    Run(MixRun),
    /// A mix under a scheduler that came to nothing.
    Failed(Failed),
}

/// Where and by what it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultsHeader {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Of scx_hetero.
    pub version: String,
    /// When, in UTC.
    pub date: String,
    /// Where.
    pub machine: MachineIdentity,
}

/// Completion times of a program alone, seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alone {
    /// With its number of threads.
    pub program: String,
    /// What was run.
    pub command: String,
    /// On the CPUs of the fastest core type.
    pub fastest: Vec<f64>,
    /// On those of the slowest.
    pub slowest: Vec<f64>,
}

/// A mix that was run under a scheduler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MixRun {
    /// As it was asked for.
    pub scheduler: String,
    /// The mix's name.
    pub mix: String,
    /// Which repeat, from 1.
    pub repeat: u32,
    /// How long it took, s.
    pub seconds: f64,
    /// How often threads changed CPUs; `None` where that cannot be counted.
    pub migrations: Option<u64>,
    /// Energy of the processors (packages, or all clusters), J; `None` where that cannot be counted.
    pub joules: Option<f64>,
    /// In the order of the mix.
    pub programs: Vec<MixProgram>,
}

/// A program of a mix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MixProgram {
    /// With its number of threads.
    pub program: String,
    /// Seconds of each completed run.
    pub times: Vec<f64>,
}

/// A mix that could not be run to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failed {
    /// As it was asked for.
    pub scheduler: String,
    /// The mix's name.
    pub mix: String,
    /// Which repeat, from 1.
    pub repeat: u32,
    /// Why.
    pub error: String,
}

impl MixRun {
    /// Its scheduler, mix and repeat.
    pub fn key(&self) -> (&str, &str, u32) {
        (&self.scheduler, &self.mix, self.repeat)
    }
}

/// All of a file.
#[derive(Clone, Debug)]
pub struct Results {
    /// Its first line.
    pub header: ResultsHeader,
    /// By program.
    pub alone: BTreeMap<String, Alone>,
    /// In the order in which they were run.
    pub runs: Vec<MixRun>,
    /// What failed, and was not run well later.
    pub failed: Vec<Failed>,
}

impl Results {
    /// Reads a file. A last line that was cut off does not count.
    ///
    /// # Errors
    /// It cannot be read, or which line makes no sense.
    pub fn read(path: &Path) -> Result<Self> {
        let text = read_table(path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} is of no use", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let whole = &text[..whole(text)];
        let mut lines = whole.lines().enumerate();
        let (_, first) = lines.next().context("it is empty")?;
        let ResultsLine::Header(header) = parse::json_of(first, SCHEMA..=SCHEMA)? else {
            bail!("line 1 is no header");
        };
        let (mut alone, mut runs) = (BTreeMap::new(), Vec::new());
        let mut failed: Vec<Failed> = Vec::new();
        for (index, line) in lines {
            match parse::json_line(line, index + 1)? {
                ResultsLine::Header(_) => bail!("line {} is a second header", index + 1),
                ResultsLine::Alone(of) => drop(alone.insert(of.program.clone(), of)),
                ResultsLine::Run(run) => runs.push(run),
                ResultsLine::Failed(run) => failed.push(run),
            }
        }
        failed.retain(|f| {
            let key = (f.scheduler.as_str(), f.mix.as_str(), f.repeat);
            !runs.iter().any(|run: &MixRun| run.key() == key)
        });
        Ok(Self {
            header,
            alone,
            runs,
            failed,
        })
    }

    /// Whether this has been run well.
    pub fn has(&self, scheduler: &str, mix: &str, repeat: u32) -> bool {
        let key = (scheduler, mix, repeat);
        self.runs.iter().any(|run| run.key() == key)
    }
}

/// Bytes up to the end of the last whole line.
fn whole(text: &str) -> usize {
    text.rfind('\n').map_or(0, |end| end + 1)
}

/// A file of results that grows.
pub struct Book {
    path: PathBuf,
    file: File,
    /// What it has.
    pub results: Results,
}

impl Book {
    /// Opens a file to go on with, or makes one.
    ///
    /// # Errors
    /// It cannot be written, is no such file, or is of another machine.
    pub fn open(path: &Path, header: ResultsHeader) -> Result<Self> {
        let cannot = || format!("cannot write {}", path.display());
        let text = match read_table(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => {
                return Err(error).with_context(|| {
                    format!(
                        "cannot append results to {}: choose another --out",
                        path.display()
                    )
                });
            }
        };
        let length = whole(&text);
        let is_new = length == 0;
        // What is no file of ours must not be cut.
        let ours = is_new && (text.is_empty() || text.starts_with("{\"kind\":\"header\""));
        ensure!(
            ours || !is_new,
            "{} is no file of results: choose another --out",
            path.display()
        );
        let results = if is_new {
            Results::parse(&format!(
                "{}\n",
                line(&ResultsLine::Header(header.clone()))?
            ))?
        } else {
            let results = Results::parse(&text);
            results.with_context(|| format!("{} is of no use", path.display()))?
        };
        if let Some(difference) = results.header.machine.differs(&header.machine) {
            bail!(
                "{} was measured on another machine: {difference}; choose another --out",
                path.display()
            );
        }
        let file = OpenOptions::new().append(true).create(true).open(path);
        let file = file.with_context(cannot)?;
        if length < text.len() {
            warn!("the last line of {} was cut off: left out", path.display());
            file.set_len(length as u64).with_context(cannot)?;
        }
        let path = path.to_path_buf();
        let mut book = Self {
            path,
            file,
            results,
        };
        if is_new {
            book.append(&ResultsLine::Header(header))?;
        }
        Ok(book)
    }

    /// Writes a line, and keeps it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn push(&mut self, record: ResultsLine) -> Result<()> {
        self.append(&record)?;
        match record {
            ResultsLine::Header(_) => {}
            ResultsLine::Alone(alone) => {
                drop(self.results.alone.insert(alone.program.clone(), alone))
            }
            ResultsLine::Run(run) => self.results.runs.push(run),
            ResultsLine::Failed(failed) => self.results.failed.push(failed),
        }
        Ok(())
    }

    fn append(&mut self, record: &ResultsLine) -> Result<()> {
        let line = format!("{}\n", line(record)?);
        // One write: who kills us leaves a whole line or a last one that is cut off.
        let written = self.file.write_all(line.as_bytes());
        written
            .and_then(|()| self.file.sync_data())
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}

fn line(record: &ResultsLine) -> Result<String> {
    Ok(serde_json::to_string(record)?)
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;

    use super::*;
    use crate::bench::machine::tests::hybrid;

    pub(crate) fn header() -> ResultsHeader {
        ResultsHeader {
            schema: SCHEMA,
            version: "0.1.0".into(),
            date: "2026-11-22T00:00:00Z".into(),
            machine: hybrid(),
        }
    }

    /// Programs `a` and `b` in a mix, with the seconds of their runs.
    pub(crate) fn run(scheduler: &str, mix: &str, repeat: u32, times: [&[f64]; 2]) -> MixRun {
        let program = |(name, times): (&str, &&[f64])| MixProgram {
            program: name.into(),
            times: times.to_vec(),
        };
        MixRun {
            scheduler: scheduler.into(),
            mix: mix.into(),
            repeat,
            seconds: 20.0,
            migrations: Some(100),
            joules: None,
            programs: ["a", "b"].into_iter().zip(&times).map(program).collect(),
        }
    }

    fn failed(scheduler: &str) -> Failed {
        Failed {
            scheduler: scheduler.into(),
            mix: "M1".into(),
            repeat: 1,
            error: "it fell out".into(),
        }
    }

    #[test]
    fn a_file_goes_on_where_it_was_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.jsonl");
        let mut book = Book::open(&path, header()).unwrap();
        book.push(ResultsLine::Failed(failed("camps"))).unwrap();
        book.push(ResultsLine::Failed(failed("rr"))).unwrap();
        book.push(ResultsLine::Run(run("camps", "M1", 1, [&[1.0], &[2.0]])))
            .unwrap();
        drop(book);
        let mut text = fs::read_to_string(&path).unwrap();
        text += "{\"kind\":\"run\",\"sched";
        fs::write(&path, &text).unwrap();
        let book = Book::open(&path, header()).unwrap();
        assert!(book.results.has("camps", "M1", 1) && !book.results.has("camps", "M1", 2));
        assert_eq!(book.results.failed, [failed("rr")], "camps ran well later");
        let kept = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with(&kept) && kept.ends_with("}\n"));
    }

    #[test]
    fn other_files_are_refused_and_left_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.jsonl");
        let refused = |text: &str| {
            fs::write(&path, text).unwrap();
            let error = Book::open(&path, header()).map(drop).unwrap_err();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            format!("{error:#}")
        };
        assert!(refused("a letter").contains("no file of results"));
        assert!(refused("a letter\nof two lines\n").contains("is of no use: line 1"));
        let mut other = header();
        other.machine.kernel = "7.2".into();
        let other = line(&ResultsLine::Header(other)).unwrap();
        assert!(refused(&format!("{other}\n")).contains("kernel 7.2"));
        let newer = other.replace("\"schema\":1", "\"schema\":99");
        assert!(refused(&format!("{newer}\n")).contains("its schema is 99, and this one"));
    }
}
