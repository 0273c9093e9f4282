// SPDX-License-Identifier: GPL-2.0-only
//! What programs ask for at the socket, a line of JSON each, and what they are told.

use serde::Deserialize;

use super::{DEFAULT_WEIGHT, MAX_TIDS, MAX_WEIGHT};
use crate::text::plain;

/// Bytes of a request.
pub(super) const MAX_LEN: usize = 8192;

const VERSION: u32 = 1;

/// Bytes of a name.
const NAME: usize = 15;

/// A request.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum GoalRequest {
    /// A session; a page comes along.
    Open(OpenSession),
    /// Other threads or another weight of the session that there is.
    Change(SessionShape),
}

/// What a session is.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(super) struct OpenSession {
    pub version: u32,
    #[serde(default)]
    pub name: String,
    pub pid: Option<u32>,
    /// It is about all that the process starts, too.
    #[serde(default)]
    pub children: bool,
    #[serde(flatten)]
    pub shape: SessionShape,
}

/// What can be changed of it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(super) struct SessionShape {
    #[serde(default = "default_weight")]
    pub weight: u32,
    #[serde(default)]
    pub tids: Vec<u32>,
}

fn default_weight() -> u32 {
    DEFAULT_WEIGHT
}

impl GoalRequest {
    /// Reads a line.
    ///
    /// # Errors
    /// Why it is no request, in words.
    pub(super) fn parse(line: &[u8]) -> Result<Self, String> {
        let mut request: Self = serde_json::from_slice(line)
            .map_err(|error| format!("this is no request, a line of JSON: {error}"))?;
        let shape = match &mut request {
            Self::Open(open) if open.version != VERSION => {
                return Err(format!(
                    "this scheduler knows version {VERSION} of sessions, and not {}",
                    open.version
                ));
            }
            Self::Open(open) if open.children && !open.shape.tids.is_empty() => {
                return Err(
                    "a session is about threads, or about a process and its children".into(),
                );
            }
            Self::Open(open) => &mut open.shape,
            Self::Change(shape) => shape,
        };
        if !(1..=MAX_WEIGHT).contains(&shape.weight) {
            return Err(format!("a weight is 1 to {MAX_WEIGHT}"));
        }
        if shape.tids.len() > MAX_TIDS {
            return Err(format!("a session names at most {MAX_TIDS} threads"));
        }
        shape.tids.sort_unstable();
        shape.tids.dedup();
        Ok(request)
    }
}

/// A name as it is shown.
pub(super) fn name(given: &str) -> String {
    let text = plain(given);
    let mut end = text.len().min(NAME);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_string()
}

/// A line that says what became of a request.
pub(super) fn answer(outcome: &Result<u64, String>) -> Vec<u8> {
    let answer = match outcome {
        Ok(id) => serde_json::json!({ "session": id }),
        // Without what would have to be escaped: clients need no parser for it.
        Err(why) => serde_json::json!({ "error": plain(why).replace(['"', '\\'], "'") }),
    };
    format!("{answer}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_library_sends_is_understood() {
        let line = br#"{"open":{"version":1,"name":"x264","pid":7,"children":false,"weight":200,"tids":[7,8]}}"#;
        let open = OpenSession {
            version: 1,
            name: "x264".into(),
            pid: Some(7),
            children: false,
            shape: SessionShape {
                weight: 200,
                tids: vec![7, 8],
            },
        };
        assert_eq!(GoalRequest::parse(line), Ok(GoalRequest::Open(open)));
        let twice = GoalRequest::parse(br#"{"change":{"tids":[8,7,8]}}"#).unwrap();
        assert!(matches!(twice, GoalRequest::Change(shape) if shape.tids == [7, 8]));
        let line = br#"{"change":{"weight":100,"tids":[]}}"#;
        let shape = SessionShape {
            weight: 100,
            tids: vec![],
        };
        assert_eq!(GoalRequest::parse(line), Ok(GoalRequest::Change(shape)));
        let line = br#"{"open":{"version":1,"children":true}}"#;
        let open = GoalRequest::parse(line).unwrap();
        assert!(matches!(open, GoalRequest::Open(open) if open.children));
        let open = GoalRequest::parse(br#"{"open":{"version":1}}"#).unwrap();
        assert!(matches!(open, GoalRequest::Open(open) if open.shape.weight == 100));
    }

    #[test]
    fn what_is_no_request_is_told_so() {
        let many = format!(r#"{{"change":{{"tids":{:?}}}}}"#, vec![1; 257]);
        for (line, why) in [
            ("", "no request"),
            ("x", "no request"),
            ("{}", "no request"),
            (r#"{"open":{}}"#, "version"),
            (r#"{"open":{"version":2}}"#, "version 1"),
            (r#"{"open":{"version":1,"weight":0}}"#, "1 to 10000"),
            (r#"{"open":{"version":1,"weight":-1}}"#, "no request"),
            (r#"{"open":{"version":1,"pid":-7}}"#, "no request"),
            (
                r#"{"open":{"version":1,"children":true,"tids":[7]}}"#,
                "about threads, or",
            ),
            (&*many, "at most 256"),
        ] {
            let said = GoalRequest::parse(line.as_bytes()).unwrap_err();
            assert!(said.contains(why), "{line}: {said}");
        }
    }

    #[test]
    fn names_are_short_and_plain() {
        assert_eq!(name("x264"), "x264");
        assert_eq!(name("a-name-that-is-too-long"), "a-name-that-is-");
        assert!(name("ääääääääää").len() <= NAME);
        assert!(!name("a\x1b[2J\nb").contains(['\x1b', '\n']));
    }

    #[test]
    fn answers_are_lines_that_need_no_parser() {
        assert_eq!(answer(&Ok(7)), b"{\"session\":7}\n");
        let said = answer(&Err("no \"such\"\nthing\\".into()));
        let said = String::from_utf8(said).unwrap();
        assert!(said.ends_with("\"}\n") && !said.contains('\\'), "{said}");
        assert_eq!(said.matches('"').count(), 4, "{said}");
    }
}
