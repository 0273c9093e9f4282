// SPDX-License-Identifier: GPL-2.0-only
//! Mixes: which programs run together, with how many threads and what goals, on which machine.

mod goal;
mod written;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use toml::Spanned;

use super::sourced::SourceText;
pub use goal::{MixGoal, MixTarget};
use written::WrittenMix;

/// As many threads as have a place in the task table.
const MOST: usize = hetero_core::limits::MAX_SLOTS as usize;

/// A program of a mix.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Its name.
    pub program: String,
    /// How many threads it runs.
    pub threads: u32,
    /// What it is to reach; see [`super::goals`].
    pub goal: Option<MixGoal>,
}

impl FromStr for Member {
    type Err = anyhow::Error;

    /// As the papers write it: `soplex`, `kmeans(4)`; with a goal `soplex@60`.
    fn from_str(text: &str) -> Result<Self> {
        let (text, goal) = match text.split_once('@') {
            None => (text, None),
            Some((text, goal)) => (text, Some(goal.parse()?)),
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
        self.goal.map_or(Ok(()), |goal| write!(f, "{goal}"))
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
        Self::of(text, members(text)?)
    }
}

/// Programs with commas between.
fn members(text: &str) -> Result<Vec<Member>> {
    let mut members = Vec::new();
    for word in text.split(',') {
        let (count, word) = word.trim().split_once('*').unwrap_or(("1", word.trim()));
        let times = count
            .parse()
            .ok()
            .filter(|times| (1..=MOST).contains(times));
        let times = times.with_context(|| format!("'{count}*': 1 to {MOST} of a program"))?;
        let member: Member = word.parse()?;
        members.extend(std::iter::repeat_n(member, times));
    }
    Ok(members)
}

impl Mix {
    /// Of a machine that is not known.
    fn of(name: &str, members: Vec<Member>) -> Result<Self> {
        ensure!(!members.is_empty(), "mix {name} has no program");
        let threads: usize = members.iter().map(|member| member.threads as usize).sum();
        ensure!(
            threads <= MOST,
            "at most {MOST} threads in all, not {threads}"
        );
        Ok(Self {
            name: name.to_string(),
            machine: None,
            members,
        })
    }

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
    /// What they are for, unless the command line says.
    machine: Option<String>,
    #[allow(dead_code, reason = "says where the mixes are from")]
    source: Option<String>,
    mixes: BTreeMap<String, Spanned<WrittenMix>>,
}

/// Reads all mixes of a file.
///
/// # Errors
/// Which line is wrong, and why.
pub(super) fn parse(source: &SourceText) -> Result<Vec<Mix>> {
    let raw: RawSet = source.parse()?;
    let mixes = raw.mixes.into_iter().map(|(name, written)| {
        let at = written.span().start;
        match Mix::of(&name, written.into_inner().0) {
            Ok(mix) => Ok(Mix {
                machine: raw.machine.clone(),
                ..mix
            }),
            Err(error) => source.wrong(at, &format!("{error:#}")),
        }
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
        let mix: Mix = "art@60,2*EP(4)@5:200,art".parse().unwrap();
        let goals: Vec<_> = mix.members.iter().map(|member| member.goal).collect();
        let goal = |percent, weight| {
            let target = MixTarget::Percent(percent);
            Some(MixGoal { target, weight })
        };
        assert_eq!(goals, [goal(60, 100), goal(5, 200), goal(5, 200), None]);
        assert_eq!(mix.members_in_words(), ["art@60", "2*EP(4)@5:200", "art"]);
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

    fn list(list: &str) -> Result<Vec<String>> {
        let text = format!("machine = \"m\"\nsource = \"s\"\n[mixes]\nW1 = \"a\"\nW2 = {list}\n");
        let source = SourceText {
            name: "x.toml",
            text: &text,
        };
        Ok(parse(&source)?[1].members_in_words())
    }

    #[test]
    fn a_file_has_lists_of_programs_with_goals() {
        let members = list(
            "[\n  { program = \"art\", goal = { rate = 20, weight = 200 } },\n  \
             { program = \"EP\", threads = 4, times = 2, goal = { percent = 60 } },\n  \
             { program = \"film\", goal = { deadline_ms = 12.5 } }, \"3*lbm, mcf@5\" ]",
        );
        assert_eq!(
            members.unwrap(),
            [
                "art@20/s:200",
                "2*EP(4)@60",
                "film@12.5ms",
                "3*lbm",
                "mcf@5"
            ]
        );
    }

    #[test]
    fn what_is_wrong_in_a_list_is_said_with_its_line() {
        let goal = |goal: &str| format!("[\n{{ program = \"a\", goal = {goal} }} ]");
        for (list, line, reason) in [
            (goal("{ rate = 0 }"), 6, "goal.rate: a target of 0"),
            (
                goal("{ rate = nan }"),
                6,
                "goal.rate: a target has to be a finite",
            ),
            (goal("{ rate = 1e9 }"), 6, "too high"),
            (goal("{ rate = \"x\" }"), 6, "expected a number"),
            (goal("{ deadline_ms = 0 }"), 6, "goal.deadline_ms: must lie"),
            (goal("{ rate = 3, weight = 0 }"), 6, "goal.weight: must be"),
            (
                goal("{ rate = 3, wieght = 2 }"),
                6,
                "did you mean `weight`?",
            ),
            (goal("{ rate = 3, colour = 2 }"), 6, "but percent, rate"),
            (goal("{ rate = 3, percent = 2 }"), 6, "one of percent"),
            (goal("{ weight = 3 }"), 6, "one of percent"),
            (goal("30"), 6, "expected an object"),
            (
                "[\n{ progam = \"a\" } ]".into(),
                6,
                "did you mean `program`?",
            ),
            ("[\n{ threads = 2 } ]".into(), 6, "missing field `program`"),
            (
                "[\n{ program = \"a\", threads = 0 } ]".into(),
                6,
                "expected 1 to",
            ),
            ("[\n\"a@0\" ]".into(), 6, "goal.percent"),
            ("[\n3 ]".into(), 6, "expected \"PROGRAM\" or {"),
            ("[]".into(), 5, "mix W2 has no program"),
            ("3".into(), 5, "or a list of programs"),
        ] {
            let error = format!("{:#}", super::tests::list(&list).unwrap_err());
            let place = format!("x.toml:{line}: ");
            assert!(
                error.starts_with(&place) && error.contains(reason),
                "{list}: {error}"
            );
        }
    }
}
