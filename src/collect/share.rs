// SPDX-License-Identifier: GPL-2.0-only
//! `collect --share`: a copy of a table that holds nothing private, for its owner to give to others.
//!
//! What is copied is only what is known to be harmless: numbers, names of this project's own programs,
//! and of the header what describes the CPU. All else gets a number instead of its name or stays away.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use hetero_core::parse;

use super::measured::{COLUMNS, JOULES};
use super::suite::Suite;
use crate::files::{check_distinct, check_writable, named, read_table, write_whole};
use crate::ml::header::{self, TableHeader};

/// How such a file begins, by which it is known again.
const FIRST_LINE: &str = "# scx_hetero collect --share: a table for 'scx_hetero train'";
/// The suite for the virtual machines: programs that are there for anybody, by commands without
/// anything of their user's.
const LONG_SUITE: &str = include_str!("../../experiments/ml-suite.toml");
/// Core types by the names that the detection gives them, numbered or not.
const CORE_TYPES: [&str; 8] = ["P", "E", "LP-E", "prime", "big", "mid", "LITTLE", "cpu"];

/// What was written.
pub(super) struct Shared {
    /// Programs in the table,
    pub programs: usize,
    /// of which so many go by a number.
    pub renamed: usize,
}

/// Looks whether [`share`] could write `to`, before hours are spent on measuring.
///
/// # Errors
/// In words: it would replace something else, or nothing can be written there.
pub(super) fn check(table: &Path, to: &Path) -> Result<()> {
    let header = header::path_of(table);
    check_distinct(
        named([table], "the table").chain(named([&header], "the table's header")),
        named([to], "--share"),
    )?;
    if to.is_file() {
        ensure!(
            read_table(to).is_ok_and(|before| before.starts_with(FIRST_LINE)),
            "{} is there and was not written by --share: name another file",
            to.display()
        );
    }
    check_writable(to).with_context(|| format!("cannot write {}", to.display()))
}

/// Writes what may be shared of `table` as `to`; `keep_names` leaves programs their names.
///
/// # Errors
/// In words: the table is not one that `collect` writes, or it cannot be written.
pub(super) fn share(table: &Path, to: &Path, keep_names: bool) -> Result<Shared> {
    check(table, to)?;
    let (text, shared) = shareable(table, keep_names)
        .with_context(|| format!("{} cannot be shared", table.display()))?;
    write_whole(to, text.as_bytes())?;
    Ok(shared)
}

fn shareable(table: &Path, keep_names: bool) -> Result<(String, Shared)> {
    let text = read_table(table)?;
    let header = TableHeader::read(table)?.with_context(|| {
        let path = header::path_of(table);
        format!("it has no header, {}", path.display())
    })?;
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let columns = reader.headers().map_err(parse::of_csv)?.clone();
    check_columns(&columns, &header)?;

    let mut names = Names::new(&header, keep_names)?;
    let mut writer = csv::WriterBuilder::new()
        .comment(Some(b'#'))
        .from_writer(Vec::new());
    writer.write_record(&columns)?;
    for record in reader.records() {
        let record = record.map_err(parse::of_csv)?;
        let line = record.position().map_or(0, csv::Position::line);
        let [program, variant, core_type] = [0, 1, 2].map(|column| &record[column]);
        let (program, variant) = names.program(program, variant);
        let core_type = of_core_type(&header, core_type)
            .with_context(|| format!("line {line}: there is no core type '{core_type}'"))?;
        let mut row = vec![program, variant, core_type];
        for (cell, column) in record.iter().zip(&columns).skip(row.len()) {
            let number = cell.is_empty() || cell.parse().is_ok_and(f64::is_finite);
            ensure!(
                number,
                "line {line}: '{cell}' in column {column} is no number"
            );
            row.push(cell.to_string());
        }
        writer.write_record(row)?;
    }
    let rows = String::from_utf8(writer.into_inner()?)?;
    let shared = Shared {
        programs: names.all.len(),
        renamed: if keep_names { 0 } else { names.others.len() },
    };
    Ok((comments(&header) + &rows, shared))
}

/// Only columns of `collect`, for what somebody has added may be anything.
fn check_columns(columns: &csv::StringRecord, header: &TableHeader) -> Result<()> {
    ensure!(
        columns.iter().take(COLUMNS.len()).eq(COLUMNS),
        "its columns do not begin as those of 'scx_hetero collect'"
    );
    for column in columns.iter().skip(COLUMNS.len()) {
        let counted = header
            .machine
            .pmus
            .iter()
            .any(|pmu| pmu.events.contains_key(column));
        ensure!(
            counted || column == JOULES,
            "column '{column}' is no event of its header"
        );
    }
    Ok(())
}

/// What of the header describes the machine, and not its owner.
fn comments(header: &TableHeader) -> String {
    let machine = &header.machine;
    let modes = if header.user_only {
        "user mode"
    } else {
        "user and kernel mode"
    };
    let mut text = format!("{FIRST_LINE}\n");
    let mut line = |what: &str, value: &str| {
        let value = value.replace(|c: char| c.is_control(), " ");
        // Writing into a string cannot fail.
        let _ = writeln!(text, "# {what}: {value}");
    };
    line("written by", &header.written_by);
    line("cpu", &machine.identity.cpu);
    line(
        "microcode",
        machine.microcode.as_deref().unwrap_or("unknown"),
    );
    line("kernel", &version(&machine.kernel));
    line(
        "window",
        &format!("{} instructions, {modes}", header.window),
    );
    for (number, kind) in (1..).zip(&machine.identity.core_types) {
        let clock = kind
            .max_freq_khz
            .map_or("unknown clock".into(), |khz| format!("{} MHz", khz / 1000));
        let pmu = machine.pmus.iter().find(|pmu| pmu.core_type == kind.name);
        let pmu = pmu.map_or(String::new(), |pmu| {
            let [general, fixed] = pmu.counters;
            let what = &pmu.microarchitecture;
            format!(", {what}, {general} general and {fixed} fixed counters")
        });
        let name = shared_name(&kind.name, number);
        line(
            "core type",
            &format!("{name}, CPUs {}, {clock}{pmu}", kind.cpus),
        );
    }
    for (number, pmu) in (1..).zip(&machine.pmus) {
        let events = pmu
            .events
            .iter()
            .map(|(feature, event)| format!("{feature} = {}", event.name));
        let events = events.collect::<Vec<_>>().join(", ");
        line(
            &format!("events of {}", shared_name(&pmu.core_type, number)),
            &events,
        );
    }
    text
}

/// A kernel's version, without what its builder has added: `6.18.15` of `6.18.15-laptop-of-mine`.
fn version(release: &str) -> String {
    let end = release.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (version, rest) = release.split_at(end.unwrap_or(release.len()));
    let candidate = rest.strip_prefix("-rc").map(|rest| {
        let digits = rest.chars().take_while(char::is_ascii_digit);
        format!("-rc{}", digits.collect::<String>())
    });
    version.to_string() + &candidate.unwrap_or_default()
}

/// A core type that its user has named (`--core-types`) goes by its number.
fn shared_name(name: &str, number: usize) -> String {
    match CORE_TYPES.contains(&name.trim_end_matches(|c: char| c.is_ascii_digit())) {
        true => name.to_string(),
        false => format!("type-{number}"),
    }
}

fn of_core_type(header: &TableHeader, name: &str) -> Option<String> {
    let mut types = header.machine.identity.core_types.iter();
    let index = types.position(|kind| kind.name == name)?;
    Some(shared_name(name, index + 1))
}

/// What programs are called.
struct Names {
    /// Labels of programs of ours.
    own: BTreeSet<(String, String)>,
    keep: bool,
    /// Names of other programs, by number, with their variants.
    others: Vec<(String, Vec<String>)>,
    all: BTreeSet<String>,
}

impl Names {
    fn new(header: &TableHeader, keep: bool) -> Result<Self> {
        let mut own = BTreeSet::new();
        for suite in [Suite::builtin()?, Suite::parse(LONG_SUITE)?] {
            for program in suite.programs {
                // Anybody may call anything by such a name.
                if header.commands.get(&program.label()) == Some(&program.command) {
                    own.insert((program.name, program.variant));
                }
            }
        }
        Ok(Self {
            own,
            keep,
            others: Vec::new(),
            all: BTreeSet::new(),
        })
    }

    /// Name and variant to share.
    fn program(&mut self, name: &str, variant: &str) -> (String, String) {
        let label = (name.to_string(), variant.to_string());
        let (name, variant) = match self.own.contains(&label) {
            true => label,
            false => self.numbered(name, variant),
        };
        self.all.insert(name.clone());
        (name, variant)
    }

    /// A variant is mostly arguments, so it keeps nothing even where the name is kept.
    fn numbered(&mut self, name: &str, variant: &str) -> (String, String) {
        let program = place(
            &mut self.others,
            |other| other.0 == name,
            || (name.to_string(), Vec::new()),
        );
        let shown = match self.keep {
            true => name.to_string(),
            false => format!("program-{}", program + 1),
        };
        if variant.is_empty() {
            return (shown, String::new());
        }
        let variants = &mut self.others[program].1;
        let number = place(variants, |other| other == variant, || variant.to_string());
        (shown, format!("variant-{}", number + 1))
    }
}

/// Where in `list` it is, put at its end if need be.
fn place<T>(list: &mut Vec<T>, is_it: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> usize {
    list.iter().position(is_it).unwrap_or_else(|| {
        list.push(new());
        list.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_kernel_only_the_version_is_shared() {
        for (release, shared) in [
            ("6.18.15+deb13-amd64", "6.18.15"),
            ("7.3.0-rc2-of-jane", "7.3.0-rc2"),
            ("6.16", "6.16"),
            ("6.16-jane", "6.16"),
            ("", ""),
        ] {
            assert_eq!(version(release), shared);
        }
    }

    #[test]
    fn core_types_by_hand_go_by_number() {
        for (name, shared) in [
            ("P", "P"),
            ("E2", "E2"),
            ("LP-E", "LP-E"),
            ("jane", "type-3"),
        ] {
            assert_eq!(shared_name(name, 3), shared);
        }
    }
}
