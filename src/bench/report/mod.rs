// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero bench report`: what was run, compared.

mod chart;
mod csv;
mod scatter;
mod summary;
mod text;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::results::Results;

use crate::files::{check_distinct, named, write_whole};
use crate::output;
pub use summary::Summary;

/// What to report, and how.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  scx_hetero bench report results.jsonl")]
pub struct Args {
    /// Files that 'bench run' has written on one machine, or folders with such
    #[arg(value_name = "FILE|FOLDER", required = true)]
    files: Vec<PathBuf>,

    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,

    /// Also write a line for each run to a file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Also draw a chart for each metric, in this folder, and energy over delay where energy was
    /// counted
    #[arg(long, value_name = "FOLDER")]
    svg: Option<PathBuf>,
}

/// Reads, compares and prints.
///
/// # Errors
/// A file cannot be read or written, or they are of different machines.
pub fn run(args: &Args) -> Result<()> {
    let inputs = args.files.iter().map(|path| in_folder(path));
    let inputs = inputs.collect::<Result<Vec<_>>>()?.concat();
    check_distinct(
        named(&inputs, "a file of results"),
        named(&args.csv, "--csv"),
    )?;
    let files: Result<Vec<_>> = inputs
        .iter()
        .map(|path| Ok((path.display().to_string(), Results::read(path)?)))
        .collect();
    let results = merge(files?)?;
    ensure!(
        !(results.runs.is_empty() && results.failed.is_empty()),
        "no mix was run there yet: name schedulers to 'scx_hetero bench run'"
    );
    let summary = Summary::of(&results)?;
    if let Some(path) = &args.csv {
        write_whole(path, &csv::table(&results)?)?;
    }
    if let Some(folder) = &args.svg {
        let cannot = || format!("cannot write to {}", folder.display());
        let is_other = folder.exists() && !folder.is_dir();
        ensure!(
            !is_other,
            "{} is no folder: name one for the charts",
            folder.display()
        );
        fs::create_dir_all(folder).with_context(cannot)?;
        let scatter = scatter::draw(&summary).map(|drawing| ("edp", drawing));
        for (name, chart) in chart::all(&summary).into_iter().chain(scatter) {
            write_whole(&folder.join(format!("{name}.svg")), chart.as_bytes())?;
        }
    }
    if args.json {
        return output::json(&summary);
    }
    output::print(text::text(&summary))
}

/// The file, or the results in the folder.
fn in_folder(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let cannot = || format!("cannot read the folder {}", path.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(path).with_context(cannot)? {
        let file = entry.with_context(cannot)?.path();
        if file.extension().is_some_and(|of| of == "jsonl") {
            files.push(file);
        }
    }
    files.sort();
    ensure!(
        !files.is_empty(),
        "{} has no results in it: 'scx_hetero bench run' writes files that end in .jsonl",
        path.display()
    );
    Ok(files)
}

/// All files as one.
///
/// # Errors
/// They are of different machines, of different programs by the same name, or both have the same
/// run.
fn merge(files: Vec<(String, Results)>) -> Result<Results> {
    let mut files = files.into_iter();
    let (first, mut all) = files.next().context("no files")?;
    let mut owner: BTreeMap<(String, String, u32), String> = BTreeMap::new();
    let owned = |run: &super::results::MixRun| {
        let (scheduler, mix, repeat) = run.key();
        (scheduler.to_string(), mix.to_string(), repeat)
    };
    owner.extend(all.runs.iter().map(|run| (owned(run), first.clone())));
    for (name, results) in files {
        if let Some(difference) = results.header.machine.differs(&all.header.machine) {
            bail!(
                "{name} and {first} are of different machines: {difference}: give those of one machine at a time"
            );
        }
        for (program, alone) in results.alone {
            if let Some(known) = all.alone.get_mut(&program) {
                ensure!(
                    known.command == alone.command,
                    "'{program}' is '{}' in {name} and '{}' elsewhere: they cannot be compared",
                    alone.command,
                    known.command
                );
                // Lent times are the same ones, and do not count twice.
                if *known != alone {
                    known.fastest.extend(alone.fastest);
                    known.slowest.extend(alone.slowest);
                }
            } else {
                all.alone.insert(program, alone);
            }
        }
        for run in results.runs {
            if let Some(other) = owner.insert(owned(&run), name.clone()) {
                let (scheduler, mix, repeat) = run.key();
                bail!("both {other} and {name} have {mix} under {scheduler}, repeat {repeat}");
            }
            all.runs.push(run);
        }
        all.failed.extend(results.failed);
    }
    let runs = &all.runs;
    all.failed.retain(|failed| {
        let key = (
            failed.scheduler.as_str(),
            failed.mix.as_str(),
            failed.repeat,
        );
        !runs.iter().any(|run| run.key() == key)
    });
    Ok(all)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::results::tests::{header, run};
    use crate::bench::results::{Alone, MixRun};

    pub(crate) fn results(runs: Vec<MixRun>) -> Results {
        let alone = |program: &str, fast: f64, slow: f64| Alone {
            program: program.into(),
            command: format!("run {program}"),
            fastest: vec![fast; 3],
            slowest: vec![slow; 3],
        };
        let alone = [alone("a", 1.0, 2.0), alone("b", 2.0, 8.0)];
        Results {
            header: header(),
            alone: alone.map(|a| (a.program.clone(), a)).into(),
            runs,
            failed: Vec::new(),
        }
    }

    #[test]
    fn a_folder_stands_for_the_results_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let error = in_folder(folder.path()).unwrap_err().to_string();
        assert!(error.contains("no results in it"), "{error}");
        for name in ["b.jsonl", "a.jsonl", "notes.txt"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let found = in_folder(folder.path()).unwrap();
        assert_eq!(
            found,
            ["a.jsonl", "b.jsonl"].map(|name| folder.path().join(name))
        );
        let file = folder.path().join("notes.txt");
        assert_eq!(in_folder(&file).unwrap(), [file]);
    }

    #[test]
    fn files_of_one_machine_become_one() {
        let of = |repeat| results(vec![run("camps", "M1", repeat, [&[1.5], &[2.0]])]);
        let files = |second| vec![("x".to_string(), of(1)), ("y".to_string(), second)];
        let all = merge(files(of(2))).unwrap();
        assert_eq!((all.runs.len(), all.alone["a"].fastest.len()), (2, 3));
        let error = |second| merge(files(second)).unwrap_err().to_string();
        assert!(error(of(1)).contains("both x and y have M1 under camps, repeat 1"));
        let mut other = of(2);
        other.header.machine.kernel = "7.2".into();
        assert!(error(other).contains("different machines: it is of kernel 7.2"));
        let mut other = of(2);
        other.alone.get_mut("a").unwrap().command = "run c".into();
        assert!(error(other).contains("'a' is 'run c' in y"));
    }
}
