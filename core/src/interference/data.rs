// SPDX-License-Identifier: GPL-2.0-or-later
//! Tables of pairs, as `scx_hetero collect --pairs` writes them, to learn from.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::InterferenceClass;
use super::signs::{InterferenceSigns, NR_SIGNS, SIGNS};
use crate::files::read_table;
use crate::parse;

/// A window of a program beside an antagonist, or alone.
#[derive(Clone, Debug, PartialEq)]
pub struct PairExample {
    /// The program that is disturbed.
    pub program: String,
    /// What disturbs it; empty if nothing does.
    pub antagonist: String,
    /// What it suffers from.
    pub class: InterferenceClass,
    /// What was seen.
    pub signs: InterferenceSigns,
}

/// Reads tables.
///
/// # Errors
/// One cannot be read, lacks a column, or has something in it that makes no sense: with the line.
pub fn read(paths: &[impl AsRef<Path>]) -> Result<Vec<PairExample>> {
    let mut examples = Vec::new();
    for path in paths {
        let path = path.as_ref();
        let from = examples.len();
        one(path, &mut examples).with_context(|| format!("cannot use {}", path.display()))?;
        ensure!(
            examples.len() > from,
            "cannot use {}: it has no rows",
            path.display()
        );
    }
    Ok(examples)
}

fn one(path: &Path, examples: &mut Vec<PairExample>) -> Result<()> {
    let text = read_table(path)?;
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().map_err(parse::of_csv)?.clone();
    let find = |name: &str| {
        let place = header.iter().position(|column| column == name);
        place.with_context(|| {
            format!("it has no column '{name}': is it from 'scx_hetero collect --pairs'?")
        })
    };
    let [program, antagonist, class] = ["program", "antagonist", "class"].map(find);
    let (program, antagonist, class) = (program?, antagonist?, class?);
    let signs = SIGNS.iter().map(|name| find(name));
    let signs = signs.collect::<Result<Vec<usize>>>()?;
    for (number, row) in reader.records().enumerate() {
        let row = row.map_err(parse::of_csv)?;
        let line = || format!("in line {}", number + 2);
        let mut values = [None; NR_SIGNS];
        for (value, &column) in values.iter_mut().zip(&signs) {
            *value = match &row[column] {
                "" => None,
                text => match text.parse::<f64>() {
                    Ok(number) if number.is_finite() => Some(number),
                    _ => bail!("'{text}' {} is not a number", line()),
                },
            };
        }
        examples.push(PairExample {
            program: row[program].to_string(),
            antagonist: row[antagonist].to_string(),
            class: row[class].parse().with_context(line)?,
            signs: InterferenceSigns::from_values(values),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(class: &str, slow: &str) -> String {
        let signs = SIGNS.map(|name| if name == "slow" { slow } else { "" });
        format!(
            "program,antagonist,class,{}\nsort,stream,{class},{}\n",
            SIGNS.join(","),
            signs.join(",")
        )
    }

    #[test]
    fn a_table_is_read_and_what_is_wrong_is_said_with_the_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pairs.csv");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read(&[&path]).map_err(|error| format!("{error:#}"))
        };
        let examples = read(&table("llc", "0.5")).unwrap();
        assert_eq!(examples[0].class, InterferenceClass::Llc);
        assert_eq!(examples[0].signs.values[0], 0.5);
        assert_eq!(examples[0].signs.known, 1);
        assert!(read(&table("moon", "0.5")).unwrap_err().contains("line 2"));
        assert!(
            read(&table("llc", "fast"))
                .unwrap_err()
                .contains("'fast' in line 2")
        );
        assert!(read("program,x\na,b\n").unwrap_err().contains("--pairs"));
    }
}
