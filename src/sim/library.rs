// SPDX-License-Identifier: GPL-2.0-only
//! The machines, programs and mixes that come with scx_hetero, and those that the user adds.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use hetero_core::output::WrongUsage;

use super::machine::SimulatedMachine;
use super::mix::{self, Mix};
use super::program::{self, SimulatedProgram};
use super::sourced::SourceText;
use crate::files::read_text;

/// A data file by name and text.
macro_rules! file {
    ($path:literal) => {
        ($path, include_str!(concat!("data/", $path)))
    };
}

const MACHINES: [(&str, &str); 7] = [
    file!("machines/juno-r1.toml"),
    file!("machines/odroid-xu4.toml"),
    file!("machines/alder-lake-4p4e.toml"),
    file!("machines/i7-1260p.toml"),
    file!("machines/meteor-lake.toml"),
    file!("machines/phone-1-2-2-2.toml"),
    file!("machines/server-1024.toml"),
];

const PROGRAMS: [(&str, &str); 4] = [
    file!("programs/cpu2000.toml"),
    file!("programs/cpu2006.toml"),
    file!("programs/parallel.toml"),
    file!("programs/testbed.toml"),
];

const MIXES: [(&str, &str); 5] = [
    file!("mixes/camps-table1.toml"),
    file!("mixes/camps-table3.toml"),
    file!("mixes/pmctrack.toml"),
    file!("mixes/testbed.toml"),
    file!("mixes/testbed-six.toml"),
];

/// All that can be named.
#[derive(Debug)]
pub struct Library {
    /// Machines.
    pub machines: Vec<SimulatedMachine>,
    /// Programs.
    pub programs: Vec<SimulatedProgram>,
    /// Mixes.
    pub mixes: Vec<Mix>,
}

impl Library {
    /// What comes with scx_hetero.
    ///
    /// # Errors
    /// None that its tests have not seen.
    pub fn builtin() -> Result<Self> {
        let mut library = Self {
            machines: Vec::new(),
            programs: Vec::new(),
            mixes: Vec::new(),
        };
        for (name, text) in MACHINES {
            let stem = stem(Path::new(name));
            library
                .machines
                .push(SimulatedMachine::parse(&stem, &SourceText { name, text })?);
        }
        for (name, text) in PROGRAMS {
            library
                .programs
                .extend(program::parse(&SourceText { name, text })?);
        }
        for (name, text) in MIXES {
            library
                .mixes
                .extend(mix::parse(&SourceText { name, text })?);
        }
        Ok(library)
    }

    /// Adds the programs of a file; they go before others of the same name.
    ///
    /// # Errors
    /// The file cannot be read, or which line is wrong.
    pub fn add_programs(&mut self, path: &Path) -> Result<()> {
        let mut programs = read(path, program::parse)?;
        programs.append(&mut self.programs);
        self.programs = programs;
        Ok(())
    }

    /// Adds the mixes of a file; they go before others of the same name.
    ///
    /// # Errors
    /// The file cannot be read, or which line is wrong.
    pub fn add_mixes(&mut self, path: &Path) -> Result<()> {
        let mut mixes = read(path, mix::parse)?;
        mixes.append(&mut self.mixes);
        self.mixes = mixes;
        Ok(())
    }

    /// A machine by name, or by the path of its file.
    ///
    /// # Errors
    /// There is none, or which line is wrong.
    pub fn machine(&self, name: &str) -> Result<SimulatedMachine> {
        let path = Path::new(name);
        if name.ends_with(".toml") {
            return read(path, |source| {
                ensure!(
                    !source.text.lines().any(|line| line.starts_with("[cpuid]")),
                    "{} is a machine of testbed/machines: those of the simulator have other keys, as in \
                     src/sim/data/machines",
                    source.name
                );
                SimulatedMachine::parse(&stem(path), source)
            });
        }
        if let Some(found) = self.machines.iter().find(|machine| machine.name == name) {
            return Ok(found.clone());
        }
        ensure!(
            !path.exists(),
            "{name} is no machine's file: its name must end in .toml"
        );
        let names = self.machines.iter().map(|machine| machine.name.as_str());
        unknown("machine", name, names)
    }

    /// A program by name.
    ///
    /// # Errors
    /// There is none.
    pub fn program(&self, name: &str) -> Result<&SimulatedProgram> {
        let names = || self.programs.iter().map(|program| program.name.as_str());
        let found = self.programs.iter().find(|program| program.name == name);
        found.map_or_else(|| unknown("program", name, names()), Ok)
    }

    /// A mix by name, or programs with commas between.
    ///
    /// # Errors
    /// There is none, or no such program.
    pub fn mix(&self, name: &str) -> Result<Mix> {
        if let Some(mix) = self.mixes.iter().find(|mix| mix.name == name) {
            return Ok(mix.clone());
        }
        let names = || self.mixes.iter().map(|mix| mix.name.as_str());
        let is_list = name.contains([',', '(', '*', '@']);
        if !is_list && self.program(name).is_err() {
            let programs = self.programs.iter().map(|program| program.name.as_str());
            return unknown("mix or program", name, names().chain(programs));
        }
        let mix = name.parse();
        let mix: Mix = mix.map_err(|error: anyhow::Error| WrongUsage(format!("{error:#}")))?;
        for member in &mix.members {
            self.program(&member.program)?;
        }
        Ok(mix)
    }
}

fn read<T>(path: &Path, parse: impl FnOnce(&SourceText) -> Result<T>) -> Result<T> {
    let text = read_text(path);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    parse(&SourceText {
        name: &path.display().to_string(),
        text: &text,
    })
}

fn stem(path: &Path) -> String {
    path.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// What the user may have meant.
fn unknown<'a, T>(what: &str, name: &str, names: impl Iterator<Item = &'a str>) -> Result<T> {
    let meant = nearest(name, names).map(|known| format!("; did you mean '{known}'?"));
    let listed = meant.map_or_else(|| "; ".into(), |meant| meant + " ");
    Err(WrongUsage(format!(
        "there is no {what} '{name}'{listed}--list names them all"
    ))
    .into())
}

/// The name that is most like this one, if any is.
pub(crate) fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let begins = |known: &str| lower.len() > 2 && known.to_lowercase().starts_with(&lower);
    let near = names.map(|known| (!begins(known), distance(name, known), known));
    let (is_other, distance, known) = near.min()?;
    (!is_other || distance <= 1 + name.len() / 4).then_some(known)
}

/// How many letters to change, add or drop, upper and lower case alike.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.chars().enumerate() {
            let replaced = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(corner + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_comes_along_is_sound() {
        let library = Library::builtin().unwrap();
        for mix in &library.mixes {
            let machine = library.machine(mix.machine.as_ref().unwrap()).unwrap();
            let threads: u32 = mix.members.iter().map(|member| member.threads).sum();
            assert_eq!(
                threads as usize,
                machine.cpus(),
                "{}: a thread a CPU",
                mix.name
            );
            for member in &mix.members {
                library.program(&member.program).unwrap();
            }
        }
        let of = |prefix: &str| {
            library
                .mixes
                .iter()
                .filter(|mix| mix.name.starts_with(prefix))
                .count()
        };
        assert_eq!(
            (of("W"), of("M"), of("J")),
            (24, 16, 40),
            "Tables 1 and 3 of the CAMPS paper, and as many as PMCTrack's 4.2.2 has"
        );
    }

    #[test]
    fn misspelt_names_are_guessed() {
        let library = Library::builtin().unwrap();
        let error = library.program("gemsfdtd").unwrap_err().to_string();
        assert!(error.contains("'GemsFDTD'"), "{error}");
        let error = library.mix("soplex,gobmkk").unwrap_err().to_string();
        assert!(
            error.contains("program") && error.contains("'gobmk'"),
            "{error}"
        );
        let error = library.mix("nothing-like-it").unwrap_err().to_string();
        assert!(error.contains("--list"), "{error}");
        assert_eq!(
            (
                distance("abc", "abd"),
                distance("W1", "w11"),
                distance("", "ab")
            ),
            (1, 1, 2)
        );
    }
}
