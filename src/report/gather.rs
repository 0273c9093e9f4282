// SPDX-License-Identifier: GPL-2.0-only
//! Reads a recording twice: which threads ran most, and then what is drawn of them, thinned to what a page can
//! show. What a policy knew of threads is what it knows when it is run again.

use std::collections::{HashMap, VecDeque};

use anyhow::{Result, bail};

use super::beside::{BesideGatherer, BesideMatrix};
use super::goals::{GoalCurves, GoalGatherer};
use super::misses::{MissCurves, MissGatherer};
use super::power::{PowerCurves, PowerGatherer};
use crate::policy::Insight;
use crate::record::format::{Begin, Decided};
use crate::record::{Input, RecordReader};
use crate::replay::{Changes, Player};
use crate::stats::live::{LiveReading, ThreadReading};
use crate::stats::rates::Rates;
use crate::stats::work::WorkLedger;
use crate::stats::{CoreTypeTotals, Totals};
use crate::table::{Comm, Task, TaskId};
use crate::topology::{MAX_CORE_TYPES, Topology};

/// Threads that are drawn, those that ran most.
pub(super) const ROWS: usize = 30;

/// Parts that the time of a row is cut into, at most.
pub(super) const BINS: usize = 480;

/// Points of a curve, at most.
const POINTS: u64 = 300;

/// Points of a curve are no closer than this, ns.
const POINT_NS: u64 = 500_000_000;

/// Moves that are listed, the latest.
pub(super) const LISTED: usize = 300;

/// A curve: seconds, and a value; not a number where there is a gap.
pub(super) type Curve = Vec<(f64, f64)>;

/// What is drawn.
pub(super) struct ReportData {
    /// How the recording began.
    pub begin: Begin,
    /// Policies, and when they began, s.
    pub policies: Vec<(f64, String)>,
    /// Its length, s.
    pub seconds: f64,
    /// One part of a row, s.
    pub bin_s: f64,
    /// Those that ran most, the most first.
    pub rows: Vec<ThreadRow>,
    /// How many more ran at all.
    pub more: usize,
    /// As the monitor shows it.
    pub unfairness: Curve,
    /// Likewise.
    pub asp: Curve,
    /// Likewise.
    pub stp: Curve,
    /// W, where the machine counts it.
    pub watts: Curve,
    /// And of which programs.
    pub power: PowerCurves,
    /// Which slowed down which.
    pub beside: BesideMatrix,
    /// What programs miss by how much cache they have.
    pub misses: MissCurves,
    /// Programs with goals, and how many more there were.
    pub goals: (Vec<GoalCurves>, usize),
    /// The latest [`LISTED`], oldest first.
    pub moves: VecDeque<DrawnMove>,
    /// How many there were.
    pub all_moves: u64,
    /// What is to be said of the recording's end.
    pub complaint: Option<String>,
}

/// A thread.
pub(super) struct ThreadRow {
    /// Thread id.
    pub tid: u32,
    /// Its name.
    pub comm: String,
    /// What it ran while recorded, s.
    pub run_s: f64,
    /// By part of the time and core type, s.
    pub bins: Vec<[f64; MAX_CORE_TYPES]>,
    /// Slowdown where it was, where the policy measures that.
    pub slowdown: Curve,
    /// `amp_progress` since it was first seen, s.
    pub progress: Curve,
    /// The first move in each part of the time, and how many more there are in it.
    pub marks: HashMap<usize, (DrawnMove, u64)>,
}

/// A thread was moved.
#[derive(Clone, Debug)]
pub(super) struct DrawnMove {
    /// When, s.
    pub at_s: f64,
    /// Thread id.
    pub tid: u32,
    /// Its name.
    pub comm: String,
    /// From this core type, index.
    pub from: usize,
    /// To this one.
    pub to: usize,
    /// What it changed places with, in words.
    pub with: Option<String>,
    /// Why, in words.
    pub why: Option<String>,
}

/// What names a thread for good.
type Name = (u32, u64);

fn name(task: &Task) -> Name {
    (task.tid, task.start_time)
}

/// What is seen at first: each thread's run time at first and at last, and the recording's length.
#[derive(Default)]
struct Survey {
    ran: HashMap<Name, (u64, u64)>,
    length_ns: u64,
}

impl Survey {
    fn of(reader: &mut RecordReader) -> Result<Self> {
        let mut survey = Self::default();
        while let Some(input) = reader.next_input()? {
            let Input::Look { at_ns, .. } = input else {
                continue;
            };
            survey.length_ns = at_ns;
            for task in reader.tasks().iter().filter(|task| !task.kthread) {
                let total = task.total_ns();
                survey.ran.entry(name(task)).or_insert((total, total)).1 = total;
            }
        }
        Ok(survey)
    }

    /// The threads that ran, the most first, and for how long, ns.
    fn busiest(&self) -> Vec<(Name, u64)> {
        let ran = self.ran.iter();
        let ran = ran.map(|(name, (first, last))| (*name, last.saturating_sub(*first)));
        let mut ran: Vec<_> = ran.filter(|(_, ns)| *ns > 0).collect();
        ran.sort_by_key(|&(name, ns)| (std::cmp::Reverse(ns), name));
        ran
    }
}

/// At work on the second reading.
struct Gatherer {
    story: ReportData,
    player: Player,
    topology: Topology,
    places: HashMap<Name, usize>,
    names: HashMap<TaskId, (Name, Comm)>,
    /// Run time by core type of each row at the last look, ns.
    before: Vec<Option<[u64; MAX_CORE_TYPES]>>,
    /// `amp_progress` of each row when it was first seen.
    began: Vec<Option<u64>>,
    rates: Rates,
    ledger: WorkLedger,
    looked_ns: Option<u64>,
    drawn_ns: Option<u64>,
    energy: Option<(u64, f64)>,
    power: PowerGatherer,
    beside: BesideGatherer,
    misses: MissGatherer,
    goals: GoalGatherer,
    decided: Vec<Decided>,
    done: usize,
    bin_ns: u64,
    point_ns: u64,
}

/// Gathers it; `open` begins a reading.
///
/// # Errors
/// The recording cannot be read, does not make sense, or has nothing in it.
pub(super) fn gather(open: impl Fn() -> Result<RecordReader>) -> Result<ReportData> {
    let survey = Survey::of(&mut open()?)?;
    let mut reader = open()?;
    let Some(Input::Begin(begin)) = reader.next_input()? else {
        bail!("the recording ends before the scheduler begins");
    };
    if survey.length_ns == 0 {
        bail!("the recording ends before anything ran: there is nothing to report");
    }
    let mut gatherer = Gatherer::new(*begin, &survey)?;
    while let Some(input) = reader.next_input()? {
        gatherer.take(input, reader.tasks())?;
    }
    gatherer.story.complaint = reader.complaint();
    gatherer.story.goals = gatherer.goals.finish();
    gatherer.story.beside = gatherer.beside.finish();
    gatherer.misses.take(gatherer.player.findings(true));
    gatherer.story.misses = gatherer.misses.finish(&gatherer.topology);
    gatherer.story.power = gatherer.power.finish(&gatherer.topology);
    Ok(gatherer.story)
}

/// Adds a point, or a gap after the last one.
pub(super) fn point(curve: &mut Curve, at_s: f64, value: Option<f64>) {
    match value {
        Some(value) => curve.push((at_s, value)),
        None if curve.last().is_some_and(|(_, value)| !value.is_nan()) => {
            curve.push((at_s, f64::NAN));
        }
        None => {}
    }
}

impl Gatherer {
    fn new(begin: Begin, survey: &Survey) -> Result<Self> {
        let busiest = survey.busiest();
        let bin_ns = (survey.length_ns / BINS as u64 + 1).max(20_000_000);
        let bins = (survey.length_ns / bin_ns + 1) as usize;
        let rows = busiest.iter().take(ROWS).map(|((tid, _), ns)| ThreadRow {
            tid: *tid,
            comm: String::new(),
            run_s: *ns as f64 / 1e9,
            bins: vec![[0.0; MAX_CORE_TYPES]; bins],
            slowdown: Vec::new(),
            progress: Vec::new(),
            marks: HashMap::new(),
        });
        let rows: Vec<ThreadRow> = rows.collect();
        let places = busiest.iter().take(ROWS).enumerate();
        let point_ns = (survey.length_ns / POINTS).max(POINT_NS);
        let mut player = Player::new(&begin, Changes::default())?;
        player.keep_findings();
        Ok(Self {
            player,
            topology: begin.topology.clone(),
            places: places.map(|(place, (name, _))| (*name, place)).collect(),
            names: HashMap::new(),
            before: vec![None; rows.len()],
            began: vec![None; rows.len()],
            rates: Rates::default(),
            ledger: WorkLedger::default(),
            looked_ns: None,
            drawn_ns: None,
            energy: None,
            power: PowerGatherer::new(point_ns),
            beside: BesideGatherer::default(),
            misses: MissGatherer::default(),
            goals: GoalGatherer::new(survey.length_ns),
            decided: Vec::new(),
            done: 0,
            bin_ns,
            point_ns,
            story: ReportData {
                policies: vec![(0.0, begin.chosen.policy.clone())],
                seconds: survey.length_ns as f64 / 1e9,
                bin_s: bin_ns as f64 / 1e9,
                more: busiest.len() - rows.len(),
                rows,
                unfairness: Vec::new(),
                asp: Vec::new(),
                stp: Vec::new(),
                watts: Vec::new(),
                power: PowerCurves::default(),
                beside: BesideMatrix::default(),
                misses: MissCurves::default(),
                goals: (Vec::new(), 0),
                moves: VecDeque::new(),
                all_moves: 0,
                complaint: None,
                begin,
            },
        })
    }

    fn take(&mut self, input: Input, tasks: &[Task]) -> Result<()> {
        match input {
            Input::Begin(begin) => {
                self.player.begin(&begin)?;
                self.topology = begin.topology;
                if !begin.kept {
                    self.before.fill(None);
                    self.rates = Rates::default();
                    self.ledger = WorkLedger::default();
                }
            }
            Input::Policy(chosen) => {
                self.player.switch(&chosen)?;
                self.story.policies.push((self.now_s(), chosen.policy));
            }
            Input::Fairness(percent) => self.player.fairness(percent),
            Input::Sample(sample) => self.player.observe(&sample),
            Input::Look {
                now_ns,
                decides,
                at_ns,
            } => {
                self.run(tasks, at_ns);
                self.looked_ns = Some(at_ns);
                self.player.look(now_ns, tasks, decides);
                let player = &self.player;
                self.beside.take(tasks, |task| player.interference(task));
                self.misses.look(tasks);
                self.misses.take(self.player.findings(false));
                let player = &self.player;
                let capacities = self.topology.types.iter().map(|kind| kind.capacity);
                self.ledger
                    .update(at_ns, tasks, capacities, |task| player.insight(task));
                let due = |drawn: u64| at_ns - drawn >= self.point_ns;
                if self.drawn_ns.is_none_or(due) {
                    self.draw(tasks, at_ns);
                    self.drawn_ns = Some(at_ns);
                }
                let names = tasks.iter().map(|task| (task.id, (name(task), task.comm)));
                self.names.extend(names);
                self.power.look(tasks);
            }
            Input::Decision(decided) => (self.decided, self.done) = (decided, 0),
            Input::CarriedOut(outcomes) => {
                for done in outcomes {
                    let Some(decided) = self.decided.get(self.done).cloned() else {
                        break;
                    };
                    self.done += 1;
                    if done {
                        self.moved(&decided);
                    }
                }
            }
            Input::Remembered(task, known) => self.player.remember(task, &known),
            Input::Undisturbed(task, known) => self.player.remember_undisturbed(task, &known),
            Input::Caches(sizes) => {
                self.topology.llc_bytes = sizes.clone();
                self.player.set_caches(sizes);
            }
            Input::Energy(joules) => self.took(joules),
            Input::Session(named) => self.goals.name(named),
            Input::Goals { at_ns, goals } => self.goals.take(at_ns, &goals),
            Input::Joules(at_ns, look) => self.power.take(at_ns, &look),
        }
        Ok(())
    }

    fn now_s(&self) -> f64 {
        self.looked_ns.unwrap_or(0) as f64 / 1e9
    }

    /// Where threads have run since the last look.
    fn run(&mut self, tasks: &[Task], at_ns: u64) {
        let since = self.looked_ns.unwrap_or(at_ns);
        for task in tasks {
            let Some(&place) = self.places.get(&name(task)) else {
                continue;
            };
            let row = &mut self.story.rows[place];
            row.comm = task.comm.to_string();
            let Some(before) = self.before[place].replace(task.run_ns) else {
                continue;
            };
            let (first, last) = (since / self.bin_ns, at_ns / self.bin_ns);
            let passed = (at_ns - since).max(1) as f64;
            for bin in first..=last.min(row.bins.len() as u64 - 1) {
                let from = since.max(bin * self.bin_ns);
                let to = at_ns.min((bin + 1) * self.bin_ns);
                let part = to.saturating_sub(from) as f64 / passed;
                let runs = task.run_ns.iter().zip(before);
                for (sum, (now, before)) in row.bins[bin as usize].iter_mut().zip(runs) {
                    *sum += part * now.saturating_sub(before) as f64 / 1e9;
                }
            }
        }
    }

    /// A point of each curve.
    fn draw(&mut self, tasks: &[Task], at_ns: u64) {
        let at_s = at_ns as f64 / 1e9;
        let insights: Vec<Insight> = tasks.iter().map(|task| self.player.insight(task)).collect();
        for (task, insight) in tasks.iter().zip(&insights) {
            let Some(&place) = self.places.get(&name(task)) else {
                continue;
            };
            let row = &mut self.story.rows[place];
            let slowdown = insight.slowdown.get(task.core_type).copied().flatten();
            point(&mut row.slowdown, at_s, slowdown);
            let began = *self.began[place].get_or_insert(task.amp_progress);
            let progress = task.amp_progress.saturating_sub(began) as f64 / 1e9;
            row.progress.push((at_s, progress));
        }
        for row in &mut self.story.rows {
            for curve in [&mut row.slowdown, &mut row.progress] {
                if curve.last().is_some_and(|(drawn_s, _)| *drawn_s < at_s) {
                    point(curve, at_s, None);
                }
            }
        }
        let threads = tasks.iter().zip(insights);
        let types = &self.topology.types;
        let core_types = types.iter().map(|kind| CoreTypeTotals {
            name: kind.name.clone(),
            cpus: kind.cpus.len() as u64,
            ..CoreTypeTotals::default()
        });
        let live = self.rates.next(LiveReading {
            totals: Totals {
                at_ns,
                core_types: core_types.collect(),
                ..Totals::default()
            },
            capacities: types.iter().map(|kind| kind.capacity).collect(),
            threads: threads
                .map(|(task, insight)| ThreadReading {
                    task: *task,
                    insight,
                    moves: 0,
                    joules: None,
                    interference: None,
                })
                .collect(),
            work: self.ledger.work(),
            ..LiveReading::default()
        });
        let story = &mut self.story;
        for (curve, value) in [
            (&mut story.unfairness, live.unfairness),
            (&mut story.asp, live.asp),
            (&mut story.stp, live.stp),
        ] {
            point(curve, at_s, value);
        }
    }

    fn moved(&mut self, decided: &Decided) {
        let all: Vec<_> = decided.moves().collect();
        for (index, &(id, from, to, why)) in all.iter().enumerate() {
            if from == to {
                continue;
            }
            let Some(&(name, comm)) = self.names.get(&id) else {
                continue;
            };
            let partner = all.get(1 - index).filter(|_| all.len() == 2);
            let partner = partner.and_then(|(id, ..)| self.names.get(id));
            let moved = DrawnMove {
                at_s: self.now_s(),
                tid: name.0,
                comm: comm.to_string(),
                from,
                to,
                with: partner.map(|((tid, _), comm)| format!("{tid} ({comm})")),
                why: why.map(|why| why.words()),
            };
            if let Some(&place) = self.places.get(&name) {
                let bin = (self.looked_ns.unwrap_or(0) / self.bin_ns) as usize;
                let mark = self.story.rows[place].marks.entry(bin);
                mark.and_modify(|(_, more)| *more += 1)
                    .or_insert((moved.clone(), 0));
            }
            let story = &mut self.story;
            story.all_moves += 1;
            story.moves.push_back(moved);
            if story.moves.len() > LISTED {
                story.moves.pop_front();
            }
        }
    }

    fn took(&mut self, joules: f64) {
        let at_ns = self.looked_ns.unwrap_or(0);
        let (since, before) = *self.energy.get_or_insert((at_ns, joules));
        if at_ns - since >= self.point_ns {
            let watts = (joules - before) / ((at_ns - since) as f64 / 1e9);
            self.story.watts.push((at_ns as f64 / 1e9, watts));
            self.energy = Some((at_ns, joules));
        }
    }
}
