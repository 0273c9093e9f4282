// SPDX-License-Identifier: GPL-2.0-only
//! Mixes: which programs run together, with how many threads, on which machine.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use toml::Spanned;

use super::sourced::SourceText;

/// As many threads as have a place in the task table.
const MOST: usize = hetero_core::limits::MAX_SLOTS as usize;

/// A program of a mix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub program: String,
    /// How many threads it runs.
    pub threads: u32,
    /// How fast it is to be, percent of alone on the fastest cores; see [`super::goals`].
    pub goal: Option<u32>,
}

impl FromStr for Member {
    type Err = anyhow::Error;

    /// As the papers write it: `soplex`, `kmeans(4)`; with a goal `soplex@60`.
    fn from_str(text: &str) -> Result<Self> {
        let (text, goal) = match text.split_once('@') {
            None => (text, None),
            Some((text, percent)) => {
                let goal = percent
                    .parse()
                    .ok()
                    .filter(|goal| (1..=1000).contains(goal));
                let goal = goal.with_context(|| format!("'@{percent}': 1 to 1000 percent"))?;
                (text, Some(goal))
            }
        };
        let (program, threads) = match text.split_once('(') {
            None => (text, 1),
            Some((program, rest)) => {
                let number = rest.strip_suffix(')').and_then(|n| n.parse().ok());
                let number = number.with_context(|| format!("'{text}' is no PROGRAM(THREADS)"))?;
                (program, number)
            }
        };
        ensure!(!program.is_empty(), "a program without a name");
        ensure!(
            (1..=MOST as u32).contains(&threads),
            "'{text}': 1 to {MOST} threads"
        );
        Ok(Self {
            program: program.to_string(),
            threads,
            goal,
        })
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.threads {
            1 => f.write_str(&self.program)?,
            threads => write!(f, "{}({threads})", self.program)?,
        }
        self.goal.map_or(Ok(()), |goal| write!(f, "@{goal}"))
    }
}

/// Programs that run together.
#[derive(Clone, Debug)]
pub struct Mix {
    /// As the command line takes it.
    pub name: String,
    /// The machine that it was made for.
    pub machine: Option<String>,
    /// Its programs.
    pub members: Vec<Member>,
}

impl FromStr for Mix {
    type Err = anyhow::Error;

    /// Programs with commas between; `3*soplex` is three of them.
    fn from_str(text: &str) -> Result<Self> {
        let mut members: Vec<Member> = Vec::new();
        for word in text.split(',') {
            let (count, word) = word.trim().split_once('*').unwrap_or(("1", word.trim()));
            let times = count
                .parse()
                .ok()
                .filter(|times| (1..=MOST).contains(times));
            let times = times.with_context(|| format!("'{count}*': 1 to {MOST} of a program"))?;
            let member = word.parse()?;
            members.extend(std::iter::repeat_n(member, times));
        }
        let threads: usize = members.iter().map(|member| member.threads as usize).sum();
        ensure!(
            threads <= MOST,
            "at most {MOST} threads in all, not {threads}"
        );
        Ok(Self {
            name: text.to_string(),
            machine: None,
            members,
        })
    }
}

impl Mix {
    /// Its programs as they are written on the command line.
    pub fn members_in_words(&self) -> Vec<String> {
        let groups = self.members.chunk_by(|a, b| a == b);
        let words = groups.map(|group| match group.len() {
            1 => group[0].to_string(),
            times => format!("{times}*{}", group[0]),
        });
        words.collect()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSet {
    machine: String,
    #[allow(dead_code, reason = "says where the mixes are from")]
    source: String,
    mixes: BTreeMap<String, Spanned<String>>,
}

/// Reads all mixes of a file.
///
/// # Errors
/// Which line is wrong, and why.
pub(super) fn parse(source: &SourceText) -> Result<Vec<Mix>> {
    let raw: RawSet = source.parse()?;
    let mixes =
        raw.mixes
            .into_iter()
            .map(|(name, programs)| match programs.get_ref().parse::<Mix>() {
                Ok(mix) => Ok(Mix {
                    name,
                    machine: Some(raw.machine.clone()),
                    ..mix
                }),
                Err(error) => source.wrong(programs.span().start, &format!("{error:#}")),
            });
    let mut mixes = mixes.collect::<Result<Vec<_>>>()?;
    mixes.sort_by_key(|mix| place(&mix.name));
    Ok(mixes)
}

/// What mixes are sorted by: W2 stands before W10.
pub(crate) fn place(name: &str) -> (String, u64) {
    let stem = name.trim_end_matches(char::is_numeric);
    (stem.to_string(), number(name))
}

fn number(name: &str) -> u64 {
    let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
    digits.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_are_written_as_in_the_papers() {
        let mix: Mix = "art, semphy(4)".parse().unwrap();
        assert_eq!((mix.members[0].threads, mix.members[1].threads), (1, 4));
        assert_eq!(mix.members[1].to_string(), "semphy(4)");
        let mix: Mix = "2*art,2*EP(4)".parse().unwrap();
        assert_eq!((mix.members.len(), mix.members[3].threads), (4, 4));
        assert_eq!(mix.members_in_words(), ["2*art", "2*EP(4)"]);
        let mix: Mix = "art@60,2*EP(4)@5".parse().unwrap();
        let goals: Vec<_> = mix.members.iter().map(|member| member.goal).collect();
        assert_eq!(goals, [Some(60), Some(5), Some(5)]);
        assert_eq!(mix.members_in_words(), ["art@60", "2*EP(4)@5"]);
        for bad in [
            "",
            "a@",
            "a@0",
            "a@x",
            "a@1001",
            "@60",
            "a,,b",
            "0*a",
            "x*a",
            "5000*a(4)",
            "a(0)",
            "a(x)",
            "a(4",
            "(4)",
        ] {
            assert!(bad.parse::<Mix>().is_err(), "{bad}");
        }
    }

    #[test]
    fn mixes_of_a_file_are_in_the_order_of_their_numbers() {
        let text =
            "machine = \"m\"\nsource = \"s\"\n[mixes]\nW10 = \"a\"\nW2 = \"b\"\nW1 = \"c,,\"";
        let source = |text| SourceText {
            name: "x.toml",
            text,
        };
        assert!(
            parse(&source(text))
                .unwrap_err()
                .to_string()
                .starts_with("x.toml:6: ")
        );
        let names: Vec<_> = parse(&source(&text.replace(",,", ""))).unwrap();
        let names: Vec<_> = names.into_iter().map(|mix| mix.name).collect();
        assert_eq!(names, ["W1", "W2", "W10"]);
    }
}
