// SPDX-License-Identifier: GPL-2.0-only
//! What the user wants for some programs, whatever the policy (`/etc/scx_hetero/rules.toml`,
//! `docs/rules.md`).
//!
//! A rule names threads and says where they are to be, and what goals their programs have. The first one
//! that fits a thread counts.

mod goal;

use std::cell::OnceCell;
use std::fs;
use std::ops::{Range, RangeInclusive};
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use glob::Pattern;
use serde::Deserialize;
use toml::Spanned;

pub use crate::agent::{Place, Verdict, WEIGHT_ONE};
use crate::cgroups;
use crate::files::read_text;
use crate::goals::RuledGoal;
use crate::toml_text::{from_toml, place};
use crate::topology::Topology;
pub use goal::ProcessInProc;
use goal::WrittenGoal;

/// Where rules lie that nobody has named.
pub const PATH: &str = "/etc/scx_hetero/rules.toml";

/// What `weight` may be, as `CPUWeight=` of systemd.
const WEIGHTS: RangeInclusive<u16> = 1..=10_000;

/// What `prefer` may be besides the name of a core type.
const EFFICIENT: &str = "efficient";

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default, rename = "rule")]
    rules: Vec<Spanned<Written>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    comm: Option<Spanned<String>>,
    exe: Option<Spanned<String>>,
    cgroup: Option<Spanned<String>>,
    unit: Option<Spanned<String>>,
    prefer: Option<Spanned<String>>,
    #[serde(default)]
    leave: bool,
    weight: Option<Spanned<u16>>,
    goal: Option<Spanned<WrittenGoal>>,
}

/// Of a thread; each a shell's pattern, `None` is anything.
#[derive(Debug)]
struct Rule {
    comm: Option<Pattern>,
    exe: Option<Pattern>,
    cgroup: Option<Pattern>,
    unit: Option<Pattern>,
    verdict: Verdict,
    goal: Option<RuledGoal>,
}

/// All of a file's.
#[derive(Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
}

/// What can be known of a thread. Asked only for what a rule names.
pub trait ThreadFacts {
    /// Its name.
    fn comm(&self) -> String;
    /// Path of its program.
    fn exe(&self) -> Option<String>;
    /// Path of its cgroup, from the root.
    fn cgroup(&self) -> Option<String>;
}

impl Rules {
    /// Reads a file, for a machine with these core types.
    ///
    /// # Errors
    /// It cannot be read, or is wrong: with line and column.
    pub fn read(path: &Path, topology: &Topology) -> Result<Self> {
        let text =
            read_text(path).with_context(|| format!("cannot read the rules {}", path.display()))?;
        Self::parse(&text, topology).with_context(|| format!("wrong rules in {}", path.display()))
    }

    fn parse(text: &str, topology: &Topology) -> Result<Self> {
        let file: File = from_toml(text)?;
        let rules = file.rules.iter().map(|written| {
            Rule::new(written, topology)
                .map_err(|(at, why)| anyhow!("{}: {why}", place(text, at.start)))
        });
        let rules = rules.collect::<Result<_>>()?;
        Ok(Self { rules })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// What they say of a thread.
    pub fn of(&self, thread: &impl ThreadFacts) -> Option<Verdict> {
        self.fitting(thread).map(|rule| rule.verdict)
    }

    /// How many say something of goals.
    pub fn nr_goals(&self) -> usize {
        let goals = self.rules.iter().filter(|rule| rule.goal.is_some());
        goals.count()
    }

    /// What they say of the goals of a program, by its first thread.
    pub fn goal_of(&self, process: &impl ThreadFacts) -> Option<RuledGoal> {
        self.fitting(process)?.goal
    }

    fn fitting(&self, thread: &impl ThreadFacts) -> Option<&Rule> {
        let thread = Once::new(thread);
        self.rules.iter().find(|rule| rule.fits(&thread))
    }
}

/// What is known of a thread, asked for once however many rules want it.
struct Once<'a, F> {
    thread: &'a F,
    comm: OnceCell<String>,
    exe: OnceCell<Option<String>>,
    cgroup: OnceCell<Option<String>>,
}

impl<'a, F: ThreadFacts> Once<'a, F> {
    fn new(thread: &'a F) -> Self {
        Self {
            thread,
            comm: OnceCell::new(),
            exe: OnceCell::new(),
            cgroup: OnceCell::new(),
        }
    }

    fn comm(&self) -> Option<&str> {
        Some(self.comm.get_or_init(|| self.thread.comm()))
    }

    fn exe(&self) -> Option<&str> {
        self.exe.get_or_init(|| self.thread.exe()).as_deref()
    }

    fn cgroup(&self) -> Option<&str> {
        self.cgroup.get_or_init(|| self.thread.cgroup()).as_deref()
    }
}

/// What is wrong, and where.
type Wrong = (Range<usize>, String);

impl Rule {
    fn new(written: &Spanned<Written>, topology: &Topology) -> Result<Self, Wrong> {
        let whole = written.span();
        let rule = written.get_ref();
        let pattern = |of: &Option<Spanned<String>>| match of {
            None => Ok(None),
            Some(text) => match Pattern::new(text.get_ref()) {
                Ok(pattern) => Ok(Some(pattern)),
                Err(error) => Err((text.span(), format!("not a pattern: {error}"))),
            },
        };
        let place = match (&rule.prefer, rule.leave) {
            (Some(name), false) => Place::Prefer(core_type(name, topology)?),
            (None, true) => Place::Leave,
            (None, false) if rule.weight.is_some() || rule.goal.is_some() => Place::AsDecided,
            _ => {
                let why = "a rule says either prefer = \"a core type\" or leave = true, or a weight \
                           or a goal";
                return Err((whole, why.into()));
            }
        };
        let weight = match &rule.weight {
            Some(weight) if !WEIGHTS.contains(weight.get_ref()) => {
                let (least, most) = (WEIGHTS.start(), WEIGHTS.end());
                let why =
                    format!("a weight is from {least} to {most}; {WEIGHT_ONE} changes nothing");
                return Err((weight.span(), why));
            }
            weight => weight
                .as_ref()
                .map_or(WEIGHT_ONE, |weight| *weight.get_ref()),
        };
        let goal = rule.goal.as_ref().map(WrittenGoal::read).transpose()?;
        let rule = Self {
            goal,
            comm: pattern(&rule.comm)?,
            exe: pattern(&rule.exe)?,
            cgroup: pattern(&rule.cgroup)?,
            unit: pattern(&rule.unit)?,
            verdict: Verdict { place, weight },
        };
        let names = [&rule.comm, &rule.exe, &rule.cgroup, &rule.unit];
        if names.iter().all(|pattern| pattern.is_none()) {
            let why = "a rule names threads by comm, exe, cgroup or unit";
            return Err((whole, why.into()));
        }
        Ok(rule)
    }

    fn fits(&self, thread: &Once<impl ThreadFacts>) -> bool {
        fn fits<'f>(pattern: &Option<Pattern>, fact: impl FnOnce() -> Option<&'f str>) -> bool {
            let Some(pattern) = pattern else { return true };
            fact().is_some_and(|fact| pattern.matches(fact))
        }
        fits(&self.comm, || thread.comm())
            && fits(&self.exe, || thread.exe())
            && fits(&self.cgroup, || thread.cgroup())
            && fits(&self.unit, || unit_of(thread.cgroup()?))
    }
}

fn core_type(name: &Spanned<String>, topology: &Topology) -> Result<usize, Wrong> {
    let types = &topology.types;
    if name.get_ref() == EFFICIENT {
        return Ok(types.len() - 1);
    }
    let found = types.iter().position(|kind| kind.name == *name.get_ref());
    found.ok_or_else(|| {
        let names: Vec<_> = types.iter().map(|kind| kind.name.as_str()).collect();
        let why = format!(
            "this machine has no core type '{}'; it has {}, and '{EFFICIENT}' is the slowest",
            name.get_ref(),
            names.join(", ")
        );
        (name.span(), why)
    })
}

/// The systemd unit of a cgroup: the innermost directory that is one.
fn unit_of(cgroup: &str) -> Option<&str> {
    let is_unit = |name: &&str| [".service", ".scope"].iter().any(|end| name.ends_with(end));
    cgroup.rsplit('/').find(is_unit)
}

/// A place in a text as people count.
/// A thread of this machine, by /proc.
pub struct InProc<'a> {
    /// Thread id.
    pub tid: u32,
    /// Its name.
    pub comm: &'a dyn std::fmt::Display,
}

impl ThreadFacts for InProc<'_> {
    fn comm(&self) -> String {
        self.comm.to_string()
    }

    fn exe(&self) -> Option<String> {
        let path = fs::read_link(format!("/proc/{}/exe", self.tid)).ok()?;
        Some(path.to_string_lossy().trim_end_matches(" (deleted)").into())
    }

    fn cgroup(&self) -> Option<String> {
        // Directories there may be of any bytes.
        let text = fs::read(format!("/proc/{}/cgroup", self.tid)).ok()?;
        cgroups::unified(&String::from_utf8_lossy(&text)).map(str::to_string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hetero_core::testing::board;

    struct Thread(&'static str, &'static str, &'static str);

    impl ThreadFacts for Thread {
        fn comm(&self) -> String {
            self.0.into()
        }
        fn exe(&self) -> Option<String> {
            (!self.1.is_empty()).then(|| self.1.into())
        }
        fn cgroup(&self) -> Option<String> {
            (!self.2.is_empty()).then(|| self.2.into())
        }
    }

    fn rules(text: &str) -> Result<Rules> {
        Rules::parse(text, &board(2, 4))
    }

    const TEXT: &str = r#"
[[rule]]
unit = "backup-*.service"
prefer = "efficient"

[[rule]]
exe = "/usr/bin/ffmpeg"
comm = "ff*"
prefer = "big"

[[rule]]
cgroup = "/user.slice/*"
leave = true
weight = 20

[[rule]]
comm = "game"
weight = 400
"#;

    #[test]
    fn the_first_rule_that_fits_in_all_it_names_counts() {
        let rules = rules(TEXT).unwrap();
        assert_eq!(rules.len(), 4);
        let verdict = |place, weight| Some(Verdict { place, weight });
        let of = |comm, exe, cgroup| rules.of(&Thread(comm, exe, cgroup));
        let backup = "/system.slice/backup-home.service/worker";
        assert_eq!(of("sh", "", backup), verdict(Place::Prefer(1), 100));
        assert_eq!(
            of("ffmpeg", "/usr/bin/ffmpeg", "/user.slice/a"),
            verdict(Place::Prefer(0), 100)
        );
        assert_eq!(
            of("av:h264", "/usr/bin/ffmpeg", "/user.slice/a/b"),
            verdict(Place::Leave, 20)
        );
        assert_eq!(of("game", "", ""), verdict(Place::AsDecided, 400));
        assert_eq!(of("ffmpeg", "", ""), None);
        assert_eq!(of("sh", "/bin/sh", "/system.slice/cron.service"), None);
        assert!(Rules::default().is_empty());
    }

    #[test]
    fn a_goal_is_that_of_the_first_rule_that_fits_the_program() {
        let rules = rules(
            r#"
[[rule]]
comm = "mpv"
prefer = "big"

[[rule]]
comm = "m*"
goal = { rate = 29.97, weight = 200 }

[[rule]]
unit = "batch.service"
goal = false

[[rule]]
exe = "/usr/games/*"
goal = { most = 60 }
"#,
        )
        .unwrap();
        assert_eq!((rules.len(), rules.nr_goals()), (4, 3));
        let of = |comm, exe, cgroup| rules.goal_of(&Thread(comm, exe, cgroup));
        let given = |rate, most, weight| Some(RuledGoal::Given { rate, most, weight });
        assert_eq!(of("mpv", "", ""), None);
        assert_eq!(of("mplayer", "", ""), given(Some(29_970), None, Some(200)));
        let batch = of("x", "", "/system.slice/batch.service");
        assert_eq!(batch, Some(RuledGoal::Forbidden));
        assert_eq!(
            of("x", "/usr/games/quake", ""),
            given(None, Some(60_000), None)
        );
        // What says a goal alone leaves placing and weighing to others.
        let verdict = rules.of(&Thread("mplayer", "", "")).unwrap();
        assert_eq!(
            (verdict.place, verdict.weight),
            (Place::AsDecided, WEIGHT_ONE)
        );
    }

    #[test]
    fn however_many_rules_ask_for_it_proc_is_read_once() {
        use std::cell::Cell;
        #[derive(Default)]
        struct Counting(Cell<u32>);
        impl ThreadFacts for Counting {
            fn comm(&self) -> String {
                "sh".into()
            }
            fn exe(&self) -> Option<String> {
                self.0.set(self.0.get() + 1);
                Some("/bin/sh".into())
            }
            fn cgroup(&self) -> Option<String> {
                self.0.set(self.0.get() + 1);
                None
            }
        }
        let rule =
            "[[rule]]\nexe = \"/none\"\nleave = true\n[[rule]]\nunit = \"a\"\nleave = true\n";
        let thread = Counting::default();
        assert_eq!(rules(&rule.repeat(100)).unwrap().of(&thread), None);
        assert_eq!(thread.0.get(), 2);
    }

    #[test]
    fn what_is_wrong_is_said_with_line_and_column() {
        for (text, at, why) in [
            (
                "[[rule]]\ncomm = \"a\"\nprefer = \"X\"",
                "line 3, column 10",
                "it has big, LITTLE",
            ),
            (
                "[[rule]]\ncomm = \"a\"\ncolour = 1",
                "line 3, column 1",
                "colour",
            ),
            (
                "[[rule]]\nprefer = \"big\"",
                "line 1, column 1",
                "comm, exe",
            ),
            ("[[rule]]\ncomm = \"a\"", "line 1, column 1", "leave = true"),
            (
                "[[rule]]\ncomm = \"a\"\nweight = 0",
                "line 3, column 10",
                "from 1 to 10000",
            ),
            (
                "[[rule]]\ncomm = \"a\"\nweight = \"high\"",
                "line 3, column 10",
                "expected a whole number",
            ),
            (
                "[[rule]]\ncomm = \"a\"\ngoal = { rate = 0 }",
                "line 3, column 17",
                "goal.rate: a target of 0 beats per second is too low",
            ),
            (
                "[[rule]]\ncomm = \"a\"\ngoal = { rate = nan }",
                "line 3, column 17",
                "goal.rate: a target has to be a finite number",
            ),
            (
                "[[rule]]\ncomm = \"a\"\ngoal = { most = 1e9 }",
                "line 3, column 17",
                "goal.most: a target of 1000000000 beats per second is too high",
            ),
            (
                "[[rule]]\ncomm = \"a\"\ngoal = { rate = -inf }",
                "line 3, column 17",
                "finite",
            ),
            (
                "[[rule]]\ncomm = \"a\"\ngoal = { rate = -30.5 }",
                "line 3, column 17",
                "goal.rate: a target of -30.5",
            ),
            (
                "[[rule]]\ncomm = \"a\"\n[rule.goal]\nrate = 30\nweight = -1",
                "line 5, column 10",
                "goal.weight: a weight is from 1 to 10000",
            ),
            (
                "[[rule]]\ncomm = \"a\"\ngoal = { rate = \"fast\" }",
                "line 3, column 17",
                "expected a number",
            ),
            (
                "[[rule]]\ncomm = \"a\"\ngoal = { speed = 3 }",
                "line 3, column 10",
                "speed",
            ),
            (
                "[[rule]]\ncomm = \"a\"\ngoal = 30",
                "line 3, column 8",
                "goal = { rate = BEATS",
            ),
            (
                "[[rule]]\ncomm = \"a\"\ngoal = true",
                "line 3, column 8",
                "how fast",
            ),
            (
                "[[rule]]\ncomm = \"a\"\ngoal = {}",
                "line 3, column 8",
                "rate, most or weight",
            ),
            (
                "[[rule]]\ncomm = \"a\"\ngoal = { rate = 3, most = 4 }",
                "line 3, column 8",
                "either rate",
            ),
            ("[[rule]]\ngoal = false", "line 1, column 1", "comm, exe"),
            (
                "\n[[rule]]\ncomm = \"[\"\nleave = true",
                "line 3, column 8",
                "pattern",
            ),
            (
                "[[rule]]\ncomm = 5\nleave = true",
                "line 2, column 8",
                "expected text",
            ),
            ("[[rule]\n", "line 1", ""),
        ] {
            let error = format!("{:#}", rules(text).unwrap_err());
            assert!(error.contains(at) && error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn this_very_thread_is_found_in_proc() {
        let me = InProc {
            tid: std::process::id(),
            comm: &"me",
        };
        assert!(me.exe().unwrap().contains("scx_hetero"));
        assert_eq!(me.comm(), "me");
        let tgid = std::process::id();
        let process = ProcessInProc { tgid };
        assert_eq!((process.exe(), process.cgroup()), (me.exe(), me.cgroup()));
        assert!(!process.comm().is_empty() && !process.comm().contains('\n'));
        let gone = InProc {
            tid: u32::MAX,
            comm: &"",
        };
        assert_eq!((gone.exe(), gone.cgroup()), (None, None));
    }
}
