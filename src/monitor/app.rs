// SPDX-License-Identifier: GPL-2.0-only
//! What the monitor knows and shows: pure state. News and keys' actions in, questions out.

use std::cmp::Ordering;
use std::collections::VecDeque;

use super::energy::EnergyHistory;
use super::keys::KeyAction;
use super::timeline::Timelines;
use crate::goals::GoalStatus;
use crate::stats::live::{Live, LiveThread};
use crate::stats::story::Story;

/// How many readings the curves go back.
const CURVE: usize = 240;

/// News for the monitor.
#[derive(Clone, Debug)]
pub enum Update {
    /// A reading.
    Live(Box<Live>),
    /// Of the thread that was asked about.
    Story(Story),
    /// Sessions of programs, and their goals.
    Goals(Vec<GoalStatus>),
    /// What the scheduler says to a setting.
    Said(Result<String, String>),
    /// No scheduler answers, and why.
    Gone(String),
}

/// What the monitor wants of the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// This thread's story with every reading; `None` is no longer.
    Story(Option<u32>),
    /// All goals with every reading, or no longer.
    Goals(bool),
    /// Another policy.
    SetPolicy(String),
}

/// What is on the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Screen {
    /// The table of threads.
    Threads,
    /// The same, while the filter is being typed.
    Filter,
    /// A thread's story, from this line on.
    Story(u32, usize),
    /// Programs with goals, from this line on.
    Goals(usize),
    /// Which program slows down which, from this row on.
    Beside(usize),
    /// Power over the last minutes, with programs from this one on.
    Energy(usize),
    /// The list of policies, with the one that is pointed at.
    Policies(usize),
    /// Which key does what.
    Help,
}

/// By what threads are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// CPU time.
    #[default]
    Load,
    /// Thread id.
    Tid,
    /// Name.
    Name,
    /// Core type, the fastest first.
    Type,
    /// Slowdown where it is.
    Slowdown,
    /// Speedup factor.
    Sf,
    /// Bus transfer rate.
    Btr,
    /// Phase hits, the fewest first.
    Hits,
    /// Progress, those behind first.
    Progress,
    /// Moves.
    Moves,
    /// Its part of the cores' power.
    Watts,
}

impl Sort {
    const ALL: [Self; 11] = [
        Self::Load,
        Self::Watts,
        Self::Tid,
        Self::Name,
        Self::Type,
        Self::Slowdown,
        Self::Sf,
        Self::Btr,
        Self::Hits,
        Self::Progress,
        Self::Moves,
    ];

    /// As people see it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Tid => "tid",
            Self::Name => "name",
            Self::Type => "core type",
            Self::Slowdown => "slowdown",
            Self::Sf => "SF",
            Self::Btr => "BTR",
            Self::Hits => "hits",
            Self::Progress => "progress",
            Self::Moves => "moves",
            Self::Watts => "watts",
        }
    }

    fn step(self, by: usize) -> Self {
        let here = Self::ALL.iter().position(|&sort| sort == self);
        Self::ALL[(here.unwrap_or(0) + by) % Self::ALL.len()]
    }

    /// What is not known comes last.
    fn order(self, a: &LiveThread, b: &LiveThread) -> Ordering {
        let most = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => b.total_cmp(&a),
            (a, b) => a.is_none().cmp(&b.is_none()),
        };
        let least = |a: Option<f64>, b: Option<f64>| most(a.map(|a| -a), b.map(|b| -b));
        match self {
            Self::Load => b.load_pct.total_cmp(&a.load_pct),
            Self::Tid => Ordering::Equal,
            Self::Name => a.comm.cmp(&b.comm),
            Self::Type => a.core_type.cmp(&b.core_type),
            Self::Slowdown => most(a.slowdown, b.slowdown),
            Self::Sf => most(a.sf, b.sf),
            Self::Btr => most(a.btr, b.btr),
            Self::Hits => least(a.hit_rate, b.hit_rate),
            Self::Progress => least(a.lead_ns.map(|ns| ns as f64), b.lead_ns.map(|ns| ns as f64)),
            Self::Moves => b.moves.cmp(&a.moves),
            Self::Watts => most(a.watts, b.watts),
        }
        .then(a.tid.cmp(&b.tid))
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct App {
    /// The last reading.
    pub live: Option<Live>,
    /// Why there is none any more.
    pub gone: Option<String>,
    /// What is on the screen.
    pub view: Screen,
    /// By what threads are sorted.
    pub sort: Sort,
    /// And whether the other way round.
    pub reversed: bool,
    /// Only threads with this in their name or at the beginning of an id.
    pub filter: String,
    /// The thread that is pointed at.
    pub selected: Option<u32>,
    /// Readings are let pass.
    pub paused: bool,
    /// What the scheduler said last, and whether it refused.
    pub said: Option<Result<String, String>>,
    /// The story that was asked for.
    pub story: Option<Story>,
    /// The goals that were asked for.
    pub goals: Option<Vec<GoalStatus>>,
    /// Unfairness in the last readings, oldest first; `None` where there was none.
    pub unfairness: VecDeque<Option<f64>>,
    /// Throughput, likewise.
    pub stp: VecDeque<Option<f64>>,
    /// Power of threads by core type, the fastest first, likewise; nothing where energy is not counted.
    pub power: Vec<VecDeque<Option<f64>>>,
    /// Power over the last minutes.
    pub energy: EnergyHistory,
    /// Where threads were in the last readings.
    pub timelines: Timelines,
    /// It is time to go.
    pub quit: bool,
}

impl Default for App {
    fn default() -> Self {
        Self {
            live: None,
            gone: None,
            view: Screen::Threads,
            sort: Sort::default(),
            reversed: false,
            filter: String::new(),
            selected: None,
            paused: false,
            said: None,
            story: None,
            goals: None,
            unfairness: VecDeque::new(),
            stp: VecDeque::new(),
            power: Vec::new(),
            energy: EnergyHistory::default(),
            timelines: Timelines::default(),
            quit: false,
        }
    }
}

fn push(curve: &mut VecDeque<Option<f64>>, value: Option<f64>) {
    if curve.len() == CURVE {
        curve.pop_front();
    }
    curve.push_back(value);
}

impl App {
    /// Takes news in.
    pub fn update(&mut self, update: Update) {
        match update {
            Update::Live(_) | Update::Story(_) | Update::Goals(_) if self.paused => {
                self.gone = None
            }
            Update::Live(live) => {
                self.gone = None;
                push(&mut self.unfairness, live.unfairness);
                let types = if live.energy.is_empty() {
                    0
                } else {
                    live.core_types.len()
                };
                self.power.resize_with(types, VecDeque::new);
                for (curve, part) in self.power.iter_mut().zip(&live.energy) {
                    push(curve, part.watts);
                }
                push(&mut self.stp, live.stp);
                self.energy.push(&live);
                self.timelines.push(&live.threads);
                self.live = Some(*live);
            }
            Update::Story(story) => self.story = Some(story),
            Update::Goals(goals) => self.goals = Some(goals),
            Update::Said(said) => self.said = Some(said),
            Update::Gone(why) => self.gone = Some(why),
        }
    }

    /// The threads to be listed, in order.
    pub fn threads(&self) -> Vec<&LiveThread> {
        let all = self.live.iter().flat_map(|live| &live.threads);
        let filter = self.filter.to_lowercase();
        let fits = |thread: &&LiveThread| {
            thread.comm.to_lowercase().contains(&filter)
                || thread.tid.to_string().starts_with(&filter)
                || thread.pid.to_string().starts_with(&filter)
        };
        let mut threads: Vec<&LiveThread> = all.filter(fits).collect();
        threads.sort_by(|a, b| self.sort.order(a, b));
        if self.reversed {
            threads.reverse();
        }
        threads
    }

    /// The place of the thread that is pointed at among those listed; the first if that is gone.
    pub fn selected_index(&self, threads: &[&LiveThread]) -> usize {
        let is_it = |thread: &&LiveThread| Some(thread.tid) == self.selected;
        threads.iter().position(is_it).unwrap_or(0)
    }

    /// The story that was asked for, with the thread's timeline below the line on its run time; drawn
    /// with `mark`.
    pub fn story_lines(&self, mark: char) -> Option<Vec<String>> {
        let story = self.story.as_ref()?;
        let mut lines = story.lines();
        if let (Screen::Story(tid, _), true) = (&self.view, lines.len() > 1) {
            let names = story.core_types.iter().map(String::as_str);
            lines.splice(2..2, self.timelines.rows(*tid, names, mark));
        }
        Some(lines)
    }

    /// Does what a key asks for.
    pub fn act(&mut self, action: KeyAction) -> Option<Question> {
        self.said = None;
        match action {
            KeyAction::Quit => self.quit = true,
            KeyAction::Help => self.view = Screen::Help,
            KeyAction::Pause => self.paused = !self.paused,
            KeyAction::NextSort => self.sort = self.sort.step(1),
            KeyAction::LastSort => self.sort = self.sort.step(Sort::ALL.len() - 1),
            KeyAction::Reverse => self.reversed = !self.reversed,
            KeyAction::EditFilter => self.view = Screen::Filter,
            KeyAction::Type(letter) => self.filter.push(letter),
            KeyAction::Erase => drop(self.filter.pop()),
            KeyAction::NoFilter => {
                self.filter.clear();
                self.view = Screen::Threads;
            }
            KeyAction::Down(by) => self.step(by as isize),
            KeyAction::Up(by) => self.step(-(by as isize)),
            KeyAction::Policies => {
                let live = self.live.as_ref()?;
                let here = live.policies.iter().position(|name| *name == live.policy);
                self.view = Screen::Policies(here.unwrap_or(0));
            }
            KeyAction::Goals => {
                self.view = Screen::Goals(0);
                return Some(Question::Goals(true));
            }
            KeyAction::Beside => self.view = Screen::Beside(0),
            KeyAction::Energy => self.view = Screen::Energy(0),
            KeyAction::Back => return self.back(),
            KeyAction::Enter => return self.enter(),
        }
        None
    }

    fn back(&mut self) -> Option<Question> {
        match std::mem::replace(&mut self.view, Screen::Threads) {
            Screen::Story(..) => {
                self.story = None;
                Some(Question::Story(None))
            }
            Screen::Goals(_) => {
                self.goals = None;
                Some(Question::Goals(false))
            }
            Screen::Threads => {
                self.filter.clear();
                None
            }
            Screen::Beside(_)
            | Screen::Energy(_)
            | Screen::Filter
            | Screen::Policies(_)
            | Screen::Help => None,
        }
    }

    fn enter(&mut self) -> Option<Question> {
        match self.view {
            Screen::Threads => {
                let threads = self.threads();
                let tid = threads.get(self.selected_index(&threads))?.tid;
                self.selected = Some(tid);
                self.view = Screen::Story(tid, 0);
                Some(Question::Story(Some(tid)))
            }
            Screen::Policies(index) => {
                let name = self.live.as_ref()?.policies.get(index)?.clone();
                self.view = Screen::Threads;
                Some(Question::SetPolicy(name))
            }
            Screen::Story(..)
            | Screen::Goals(_)
            | Screen::Beside(_)
            | Screen::Energy(_)
            | Screen::Filter
            | Screen::Help => self.back(),
        }
    }

    fn step(&mut self, by: isize) {
        let step = |at: usize, of: usize| at.saturating_add_signed(by).min(of.saturating_sub(1));
        match self.view {
            Screen::Story(tid, line) => {
                let lines = self.story_lines(' ').map_or(0, |lines| lines.len());
                self.view = Screen::Story(tid, step(line, lines));
            }
            Screen::Goals(line) => {
                let goals = self.goals.as_deref().unwrap_or_default();
                self.view = Screen::Goals(step(line, super::goals::lines(goals).len()));
            }
            Screen::Beside(row) => {
                let rows = self.live.as_ref();
                let rows = rows.map_or(0, |live| super::beside::lines(live, 0).rows.len());
                self.view = Screen::Beside(step(row, rows));
            }
            Screen::Energy(program) => {
                self.view = Screen::Energy(step(program, self.energy.programs.len()));
            }
            Screen::Policies(index) => {
                let policies = self.live.as_ref().map_or(0, |live| live.policies.len());
                self.view = Screen::Policies(step(index, policies));
            }
            Screen::Threads | Screen::Filter | Screen::Help => {
                let threads = self.threads();
                let index = step(self.selected_index(&threads), threads.len());
                self.selected = threads.get(index).map(|thread| thread.tid);
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
