// SPDX-License-Identifier: GPL-2.0-only
//! Files of mixes: which commands are the programs, and which programs run together.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use hetero_core::output::WrongUsage;
use serde::Deserialize;
use toml::Spanned;

use super::processes::Command;
use crate::files::read_text;
use crate::sim::library::nearest;
use crate::sim::mix::{self, Mix};
use crate::sim::sourced::SourceText;

/// What a command has instead of its number of threads.
const THREADS: &str = "{threads}";

/// The mixes of a file, W2 before W10, and the commands of their programs.
#[derive(Debug)]
pub struct Mixes {
    /// As the simulator knows them.
    pub mixes: Vec<Mix>,
    /// Words of each program's command.
    commands: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMixes {
    programs: BTreeMap<String, Spanned<String>>,
    mixes: BTreeMap<String, Spanned<String>>,
}

impl Mixes {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or which line is wrong, and why.
    pub fn read(path: &Path) -> Result<Self> {
        let text = read_text(path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&SourceText {
            name: &path.display().to_string(),
            text: &text,
        })
    }

    fn parse(source: &SourceText) -> Result<Self> {
        let raw: RawMixes = source.parse()?;
        let mut commands = BTreeMap::new();
        for (name, command) in raw.programs {
            let words = shlex::split(command.get_ref()).filter(|words| !words.is_empty());
            let Some(words) = words else {
                let message = format!("the command of '{name}' is empty, or a quote is not closed");
                return source.wrong(command.span().start, &message);
            };
            commands.insert(name, words);
        }
        let mut mixes = Vec::new();
        for (name, programs) in raw.mixes {
            let at = programs.span().start;
            let mix: Mix = match programs.get_ref().parse() {
                Ok(mix) => mix,
                Err(error) => return source.wrong(at, &format!("{error:#}")),
            };
            let strangers = mix.members.iter().map(|member| &member.program);
            if let Some(stranger) = strangers.into_iter().find(|p| !commands.contains_key(*p)) {
                let known = nearest(stranger, commands.keys().map(String::as_str));
                let known = known.map_or(String::new(), |known| format!("; is it '{known}'?"));
                let message = format!("mix {name}: [programs] has no '{stranger}'{known}");
                return source.wrong(at, &message);
            }
            mixes.push(Mix { name, ..mix });
        }
        mixes.sort_by_key(|mix| mix::place(&mix.name));
        Ok(Self { mixes, commands })
    }

    /// Keeps the mixes of these names; all if none is named.
    ///
    /// # Errors
    /// There is no mix of a name, or no mix at all.
    pub fn choose(&mut self, names: &[String]) -> Result<()> {
        for name in names {
            if !self.mixes.iter().any(|mix| mix.name == *name) {
                let all: Vec<_> = self.mixes.iter().map(|mix| mix.name.as_str()).collect();
                let rest = match nearest(name, all.iter().copied()) {
                    Some(known) => format!("did you mean '{known}'?"),
                    None => format!("it has {}", all.join(", ")),
                };
                return Err(WrongUsage(format!("there is no mix '{name}'; {rest}")).into());
            }
        }
        if !names.is_empty() {
            self.mixes.retain(|mix| names.contains(&mix.name));
        }
        if self.mixes.is_empty() {
            bail!("the file has no mixes");
        }
        Ok(())
    }

    /// The commands of a mix of this file, in its order.
    pub fn commands(&self, mix: &Mix) -> Vec<Command> {
        let command = |member: &mix::Member| {
            let threads = member.threads.to_string();
            let words = self.commands.get(&member.program).into_iter().flatten();
            Command {
                program: member.to_string(),
                words: words.map(|word| word.replace(THREADS, &threads)).collect(),
            }
        };
        mix.members.iter().map(command).collect()
    }

    /// All different commands of all mixes, by program.
    pub fn all_commands(&self) -> BTreeMap<String, Command> {
        let commands = self.mixes.iter().flat_map(|mix| self.commands(mix));
        commands
            .map(|command| (command.program.clone(), command))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Mixes> {
        Mixes::parse(&SourceText {
            name: "mixes.toml",
            text,
        })
    }

    const GOOD: &str = "[programs]\na = 'prog --units 5'\nb = \"sh -c 'x y' {threads}\"\n\
                        [mixes]\nM10 = 'a'\nM2 = '2*a, b(4)'\n";

    #[test]
    fn programs_are_commands_and_mixes_are_as_in_the_simulator() {
        let mut mixes = parse(GOOD).unwrap();
        let commands = mixes.commands(&mixes.mixes[0]);
        let programs: Vec<_> = commands.iter().map(|c| c.program.as_str()).collect();
        assert_eq!(programs, ["a", "a", "b(4)"]);
        assert_eq!(commands[2].words, ["sh", "-c", "x y", "4"]);
        assert_eq!(mixes.all_commands().len(), 2);
        mixes.choose(&["M10".into()]).unwrap();
        assert_eq!(mixes.all_commands().len(), 1);
        let error = mixes.choose(&["M3".into()]).unwrap_err().to_string();
        assert!(error.contains("'M3'") && error.contains("M10"), "{error}");
    }

    #[test]
    fn errors_name_the_line() {
        let wrong = |from: &str, to: &str| parse(&GOOD.replace(from, to)).unwrap_err().to_string();
        let error = wrong("2*a, b(4)", "2*a, bb(4)");
        assert!(error.starts_with("mixes.toml:6: "), "{error}");
        assert!(error.contains("'bb'") && error.contains("'b'?"), "{error}");
        assert!(wrong("M10 = 'a'", "M10 = 'a,,a'").starts_with("mixes.toml:5: "));
        let error = wrong("'prog --units 5'", "\"prog 'x\"");
        assert!(error.starts_with("mixes.toml:2: "), "{error}");
        let error = wrong("[mixes]", "[mixers]");
        assert!(error.contains("mixers"), "{error}");
    }
}
