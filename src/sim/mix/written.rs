// SPDX-License-Identifier: GPL-2.0-only
//! A mix as a file has it: programs with commas between, or a list of these and of tables.

use std::fmt;

use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};

use super::{MOST, Member, MixGoal};
use crate::sim::library::nearest;

const KEYS: [&str; 4] = ["program", "threads", "times", "goal"];

/// See the module.
pub(super) struct WrittenMix(pub(super) Vec<Member>);

impl<'de> Deserialize<'de> for WrittenMix {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct TextOrList;
        impl<'de> Visitor<'de> for TextOrList {
            type Value = WrittenMix;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                write!(f, "\"PROGRAM,PROGRAM(THREADS)\" or a list of programs")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<WrittenMix, E> {
                parsed(text).map(WrittenMix)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<WrittenMix, A::Error> {
                let mut members = Vec::new();
                while let Some(WrittenMembers(some)) = list.next_element()? {
                    members.extend(some);
                }
                Ok(WrittenMix(members))
            }
        }
        from.deserialize_any(TextOrList)
    }
}

/// One element of the list.
struct WrittenMembers(Vec<Member>);

impl<'de> Deserialize<'de> for WrittenMembers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct TextOrTable;
        impl<'de> Visitor<'de> for TextOrTable {
            type Value = WrittenMembers;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                write!(
                    f,
                    "\"PROGRAM\" or {{ program = NAME, threads = N, goal = {{ rate = BEATS }} }}"
                )
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<WrittenMembers, E> {
                parsed(text).map(WrittenMembers)
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut table: A,
            ) -> Result<WrittenMembers, A::Error> {
                let (mut program, mut threads, mut times, mut goal) = (None, 1, 1, None);
                while let Some(key) = table.next_key::<String>()? {
                    match &*key {
                        "program" => program = Some(table.next_value()?),
                        "threads" => threads = number::<A>(&mut table)? as u32,
                        "times" => times = number::<A>(&mut table)?,
                        "goal" => goal = Some(table.next_value::<MixGoal>()?),
                        _ => return Err(Error::custom(no_such_key("a program", &key, &KEYS))),
                    }
                }
                let member = Member {
                    program: program.ok_or_else(|| Error::missing_field("program"))?,
                    threads,
                    goal,
                };
                Ok(WrittenMembers(vec![member; times]))
            }
        }
        from.deserialize_any(TextOrTable)
    }
}

fn parsed<E: Error>(text: &str) -> Result<Vec<Member>, E> {
    super::members(text).map_err(|why| E::custom(format!("{why:#}")))
}

fn number<'de, A: MapAccess<'de>>(table: &mut A) -> Result<usize, A::Error> {
    let number: i64 = table.next_value()?;
    let fits = usize::try_from(number).ok();
    let fits = fits.filter(|number| (1..=MOST).contains(number));
    fits.ok_or_else(|| {
        let number = de::Unexpected::Signed(number);
        Error::invalid_value(number, &&*format!("1 to {MOST}"))
    })
}

/// What is said of a key that there is none of.
pub(super) fn no_such_key(of: &str, key: &str, keys: &[&str]) -> String {
    match nearest(key, keys.iter().copied()) {
        Some(known) => format!("{of} has no `{key}`; did you mean `{known}`?"),
        None => format!("{of} has no `{key}`, but {}", keys.join(", ")),
    }
}
