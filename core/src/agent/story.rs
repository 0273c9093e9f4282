// SPDX-License-Identifier: GPL-2.0-or-later
//! What `scx_hetero why` tells of a process's threads: how fast they are where, and why they were
//! moved.

use serde::{Deserialize, Serialize};

use super::disturbed::DisturbedStory;
use crate::advice::story::AdvisedStory;
use crate::cache::CacheStory;
use crate::text::{hang_words, percent};

/// The most threads of a process that are told of, those that ran most.
pub const THREADS: usize = 8;

/// How many moves of a thread are remembered.
pub const MOVES: usize = 16;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Story {
    /// Names, fastest first.
    pub core_types: Vec<String>,
    /// Policy in force.
    pub policy: String,
    /// Efficient cores are filled first, and while all fit there it decides nothing.
    #[serde(default)]
    pub saves: bool,
    /// At most [`THREADS`].
    pub threads: Vec<ThreadStory>,
    /// How many more there are.
    pub more: usize,
    /// What its program is advised, if it has asked for that.
    #[serde(default)]
    pub advised: Option<AdvisedStory>,
}

/// A thread's part of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadStory {
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// `running`, `queued` or `blocked`.
    pub state: String,
    /// CPU that it runs on, or ran on last.
    pub cpu: u32,
    /// Core type of that CPU, index.
    pub core_type: usize,
    /// It may run on one CPU only.
    pub pinned: bool,
    /// It says that it waits actively.
    pub spinning: bool,
    /// The rule of the user that places it, in words.
    #[serde(default)]
    pub rule: Option<String>,
    /// How fast its session is and is to be, and what it gets for that, in words.
    #[serde(default)]
    pub goal: Option<String>,
    /// What became of what earlier runs of its program were like, in words.
    #[serde(default)]
    pub past: Option<String>,
    /// What slows it down beside others.
    #[serde(default)]
    pub disturbed: Option<DisturbedStory>,
    /// What cannot be told of that, and why.
    #[serde(default)]
    pub untold: Option<String>,
    /// Time run by core type, ns.
    pub run_ns: Vec<u64>,
    /// What it has taken, where that is known.
    #[serde(default)]
    pub energy: Option<EnergyStory>,
    /// Its place in the policy's ranking, of which 1 is the best, and of how many.
    #[serde(default)]
    pub rank: Option<(u32, u32)>,
    /// Slowdown by core type; of it, by the core type alone.
    pub slowdown: Vec<Option<f64>>,
    /// See `slowdown`.
    pub asymmetry: Vec<Option<f64>>,
    /// Bus transfer rate, bytes/s.
    pub btr: Option<f64>,
    /// What it holds of its last-level cache, where that is known.
    #[serde(default)]
    pub cache: Option<CacheStory>,
    /// Phase hits among its latest samples, 0 to 1.
    pub hit_rate: Option<f64>,
    /// Its present phase, index into `phases`.
    pub phase: Option<usize>,
    /// Its history table.
    pub phases: Vec<HistoryEntry>,
    /// Moves by the policy in its life.
    pub moves: u64,
    /// The last [`MOVES`] of them, oldest first.
    pub last_moves: Vec<Move>,
}

/// What a thread takes, by core type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EnergyStory {
    /// J since it was first seen.
    pub joules: Vec<f64>,
    /// W while it runs, and the standard error of that; `None` where it has not run.
    pub watts: Vec<Option<(f64, f64)>>,
}

/// An entry of a history table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// L1 data accesses per 1,000 instructions.
    pub l1_per_kilo: Option<f64>,
    /// Branches among the instructions, percent.
    pub branch_percent: Option<f64>,
    /// Instructions per cycle on the fastest core type, undisturbed.
    pub ipc: f64,
    /// Clock at which that was measured, Hz.
    pub frequency: f64,
    /// Samples in the averages, at most 16.
    pub samples: u32,
}

/// A thread was moved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Move {
    /// How long ago, ns.
    pub ago_ns: u64,
    /// From this core type, index.
    pub from: usize,
    /// To this one.
    pub to: usize,
    /// Why, in words.
    pub why: String,
}

const SECOND: f64 = 1e9;

impl Story {
    /// For people, in lines of 80 columns at most.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (index, thread) in self.threads.iter().enumerate() {
            if index > 0 {
                lines.push(String::new());
            }
            thread.tell(self, &mut lines);
        }
        if self.more > 0 {
            lines.push(String::new());
            lines.push(format!(
                "and {} more threads that ran less: ask for one by its own id",
                self.more
            ));
        }
        if let Some(advised) = &self.advised {
            if !lines.is_empty() {
                lines.push(String::new());
            }
            lines.extend(advised.lines());
        }
        lines
    }

    fn name(&self, core_type: usize) -> &str {
        self.core_types.get(core_type).map_or("?", String::as_str)
    }
}

impl ThreadStory {
    fn tell(&self, story: &Story, lines: &mut Vec<String>) {
        let process = if self.tid == self.pid {
            String::new()
        } else {
            format!(" of process {}", self.pid)
        };
        let bound = if self.pinned { ", bound to it" } else { "" };
        let spins = if self.spinning {
            "; waits actively, as it says"
        } else {
            ""
        };
        let Self {
            tid, comm, state, ..
        } = self;
        lines.push(format!(
            "{tid} ({comm}){process}: {state} on CPU {}, type {}{bound}{spins}",
            self.cpu,
            story.name(self.core_type)
        ));
        let mut item = |name: &str, text: String| {
            lines.extend(format!("  {name:<9}{text}").lines().map(String::from));
        };
        item("ran", self.ran(story));
        if let Some(energy) = &self.energy {
            item("energy", energy.told(story));
        }
        item("slowdown", self.slowdowns(story));
        if let Some(disturbed) = &self.disturbed {
            item("beside", hang_words(&disturbed.told(self.pid), 11, 11));
        } else if let Some(untold) = &self.untold {
            item("beside", hang_words(untold, 11, 11));
        }
        if let Some(goal) = &self.goal {
            item("goal", hang_words(goal, 11, 11));
        }
        if let Some(past) = &self.past {
            item("program", hang_words(past, 11, 11));
        }
        if let Some((rank, of)) = self.rank {
            let sf = self.asymmetry.last().copied().flatten();
            let sf = sf.map_or_else(String::new, |sf| format!(", by an SF of {sf:.2}"));
            item("rank", format!("{rank} of {of}{sf}"));
        }
        if let Some(btr) = self.btr {
            item("BTR", format!("{:.1} MB/s", btr / 1e6));
        }
        if let Some(cache) = &self.cache {
            item("cache", cache.told());
            if let Some(curve) = cache.curve_told() {
                item("", curve);
            }
            if let Some(earlier) = cache.earlier_told() {
                item("", earlier);
            }
            if let Some(confined) = cache.confined_told() {
                item("", hang_words(&confined, 11, 11));
            }
        }
        if let Some(rate) = self.hit_rate {
            let now = match self.phase {
                Some(phase) => format!("now in phase {phase}"),
                None => "now in one that is not known".into(),
            };
            let known = self.phases.len();
            let rate = 100.0 * rate;
            item(
                "phases",
                format!("{known} known, {now}; {rate:.0}% of its latest samples were hits"),
            );
        }
        if !self.phases.is_empty() {
            lines.push(
                "           PHASE  L1/1000  BRANCHES    IPC    GHZ  SAMPLES  (undisturbed)".into(),
            );
        }
        for (index, phase) in self.phases.iter().enumerate() {
            let or_none = |value: Option<f64>, unit: &str| {
                value.map_or_else(|| "-".into(), |value| format!("{value:.1}{unit}"))
            };
            lines.push(format!(
                "           {index:>5} {:>8} {:>9} {:>6.2} {:>6.3} {:>8}",
                or_none(phase.l1_per_kilo, ""),
                or_none(phase.branch_percent, "%"),
                phase.ipc,
                phase.frequency / 1e9,
                phase.samples
            ));
        }
        if story.saves {
            lines.push(
                "  energy is saved: while all fit on efficient cores no policy moves it".into(),
            );
        }
        if let Some(rule) = &self.rule {
            lines.push(format!("  placed by a rule: {rule}"));
        }
        self.tell_moves(story, lines);
    }

    fn ran(&self, story: &Story) -> String {
        let all: u64 = self.run_ns.iter().sum();
        let by_type = self.run_ns.iter().enumerate().map(|(core_type, &ns)| {
            let share = percent(ns, all);
            format!("{} {share:.0}%", story.name(core_type))
        });
        let by_type: Vec<String> = by_type.collect();
        format!("{:.1} s: {}", all as f64 / SECOND, by_type.join(", "))
    }

    fn slowdowns(&self, story: &Story) -> String {
        let told = self.slowdown.iter().zip(&self.asymmetry).enumerate();
        let told: Vec<String> = told
            .filter_map(|(core_type, (whole, part))| {
                let (name, whole) = (story.name(core_type), (*whole)?);
                Some(match part {
                    Some(part) => {
                        let rest = (whole / part).max(1.0);
                        let parts = format!("{part:.2} by the core type x {rest:.2} by contention");
                        format!("{name} {whole:.2} = {parts}")
                    }
                    None => format!("{name} {whole:.2}"),
                })
            })
            .collect();
        if told.is_empty() {
            format!("not measured by policy {}", story.policy)
        } else {
            told.join("\n           ")
        }
    }

    fn tell_moves(&self, story: &Story, lines: &mut Vec<String>) {
        if self.moves == 0 {
            lines.push("  never moved by the policy".into());
            return;
        }
        let shown = self.last_moves.len();
        lines.push(format!("  moved {} times; the last {shown}:", self.moves));
        let wide = story.core_types.iter().map(String::len).max().unwrap_or(0);
        for moved in &self.last_moves {
            let (from, to) = (story.name(moved.from), story.name(moved.to));
            let ago = moved.ago_ns as f64 / SECOND;
            let head = format!("  {ago:>7.1} s ago  {from:>wide$} -> {to:<wide$}  ");
            let text = hang_words(&moved.why, head.len(), head.len());
            lines.extend(format!("{head}{text}").lines().map(String::from));
        }
    }
}

impl EnergyStory {
    fn told(&self, story: &Story) -> String {
        let all: f64 = self.joules.iter().sum();
        let types = self.joules.iter().zip(&self.watts).enumerate();
        let told = types.filter_map(|(core_type, (joules, watts))| {
            let name = story.name(core_type);
            let (watts, error) = (*watts)?;
            let share = 100.0 * joules / all.max(f64::MIN_POSITIVE);
            Some(format!(
                "{name} {share:.0}%, {watts:.2} W (error {error:.2}) while it runs"
            ))
        });
        let told: Vec<String> = told.collect();
        format!("{all:.1} J: {}", told.join("\n           "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goals::Miss;
    use crate::interference::{Interference, InterferenceClass};

    fn story() -> Story {
        let moved = |ago_ns, from, to| Move {
            ago_ns,
            from,
            to,
            why: "swapped with 1236 (a-name-of-15-ch): progress 9,100 ms behind 14,300".into(),
        };
        Story {
            core_types: vec!["P".into(), "LP-E".into()],
            policy: "camps".into(),
            threads: vec![ThreadStory {
                tid: 1234,
                pid: 1230,
                comm: "xz".into(),
                state: "running".into(),
                cpu: 5,
                core_type: 1,
                run_ns: vec![6_000_000_000, 2_000_000_000],
                energy: Some(EnergyStory {
                    joules: vec![90.0, 10.0],
                    watts: vec![Some((15.0, 0.5)), Some((5.0, 0.25))],
                }),
                slowdown: vec![Some(1.08), Some(1.98)],
                asymmetry: vec![Some(1.0), Some(1.8)],
                btr: Some(120e6),
                hit_rate: Some(0.93),
                phase: Some(0),
                phases: vec![HistoryEntry {
                    l1_per_kilo: Some(350.0),
                    branch_percent: None,
                    ipc: 1.9,
                    frequency: 4.7e9,
                    samples: 16,
                }],
                moves: 20,
                last_moves: vec![moved(12_300_000_000, 1, 0), moved(2_100_000_000, 0, 1)],
                ..ThreadStory::default()
            }],
            more: 3,
            ..Story::default()
        }
    }

    #[test]
    fn a_story_tells_the_slowdown_in_parts_and_each_move_with_its_reason() {
        let text = story().lines().join("\n");
        assert!(text.contains("1234 (xz) of process 1230: running on CPU 5, type LP-E"));
        assert!(text.contains("8.0 s: P 75%, LP-E 25%"), "{text}");
        assert!(
            text.contains("100.0 J: P 90%, 15.00 W (error 0.50) while it runs"),
            "{text}"
        );
        assert!(
            text.contains("LP-E 1.98 = 1.80 by the core type x 1.10 by contention"),
            "{text}"
        );
        assert!(text.contains("moved 20 times; the last 2:"));
        assert!(text.contains("12.3 s ago  LP-E -> P"));
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.join(" ").contains("progress 9,100 ms behind 14,300"));
        assert!(text.contains("3 more threads"));
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }

    #[test]
    fn a_rule_that_places_it_is_told_and_that_energy_is_saved() {
        let mut story = story();
        story.threads[0].rule = Some("on P while there is room".into());
        story.saves = true;
        let text = story.lines().join("\n");
        assert!(text.contains("  placed by a rule: on P while"), "{text}");
        assert!(text.contains("while all fit on efficient cores"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn what_a_subscriber_is_advised_comes_last() {
        let mut story = story();
        story.advised = Some(AdvisedStory {
            pid: 1230,
            threads: 6,
            ..AdvisedStory::default()
        });
        let lines = story.lines();
        let last = &lines[lines.len() - 3..];
        assert!(last[0].contains("process 1230 has subscribed"), "{last:?}");
        assert!(last[1].contains("  advised  6 threads"), "{last:?}");
    }

    #[test]
    fn a_goal_is_told_with_what_it_gets() {
        let mut story = story();
        let miss = Miss::Machine { lacks: 0.8 };
        let goal = format!("24.1 of 30 beats/s, needs 2.40 fast cores, has 1.60: {miss}");
        story.threads[0].goal = Some(goal);
        story.threads[0].past = crate::knowledge::Past::Wrong.told().map(Into::into);
        let text = story.lines().join("\n");
        assert!(
            text.contains("  goal     24.1 of 30 beats/s, needs"),
            "{text}"
        );
        assert!(
            text.contains("  program  unlike its earlier runs"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn what_cannot_be_told_of_company_is_said_where_nothing_is_told() {
        let mut story = story();
        let untold = "contention for last-level cache and memory bandwidth cannot be told: no \
                      counter of cpu_core is left for llc-misses";
        story.threads[0].untold = Some(untold.into());
        let text = story.lines().join("\n");
        assert!(text.contains("  beside   contention for last"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80));
        let found = Interference {
            slowdown: 1.4,
            class: InterferenceClass::Sibling,
            also: None,
            confidence: 0.9,
            culprit: None,
        };
        story.threads[0].disturbed = DisturbedStory::of(&found, |_| None);
        let text = story.lines().join("\n");
        assert!(text.contains("  beside   slowed 1.40x"), "{text}");
        assert!(!text.contains("cannot be told"), "{text}");
    }

    #[test]
    fn a_rank_is_told_with_the_sf() {
        let mut story = story();
        story.threads[0].rank = Some((3, 12));
        let text = story.lines().join("\n");
        assert!(
            text.contains("rank     3 of 12, by an SF of 1.80"),
            "{text}"
        );
    }

    #[test]
    fn what_is_not_measured_is_said_to_be_so() {
        let mut story = story();
        story.threads[0].slowdown = vec![None, None];
        story.threads[0].moves = 0;
        let text = story.lines().join("\n");
        assert!(text.contains("not measured by policy camps"));
        assert!(text.contains("never moved"));
    }
}
