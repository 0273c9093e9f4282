// SPDX-License-Identifier: GPL-2.0-only
//! Counting from begin to end.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use crossbeam::channel::{Receiver, never};
use crossbeam::select;
use hetero_core::output::WrongUsage;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use super::args::Args;
use super::cache_group::CacheGroup;
use super::counting::{Counting, CountingPlace, places, plans};
use super::joules::ProgramJoules;
use super::lines::{Label, LineKind, PmcReport};
use super::perf::How;
use super::ring;
use super::sampling::{self, ByThread, SampledThreads, Sampling, Trigger};
use super::target::{self, Launcher};
use super::totals::{OutputRow, PmcTotals, Slice};
use crate::pmu::sets::Absent;
use crate::pmu::virtual_counters::{CounterStatus, VirtualCounters, VirtualReading, difference};
use crate::pmu::{Event, MachinePmus, Plan, Pmu, availability, plan};
use crate::stream;
use crate::topology::Topology;

/// The longest turn of a set of events, and the longest time that is lost when another program
/// takes the counters away.
const TURN: Duration = Duration::from_millis(100);
/// The shortest turn.
const SHORTEST_TURN: Duration = Duration::from_millis(10);
/// Samples are fetched so often.
const FETCH: Duration = Duration::from_millis(50);
/// After Ctrl-C the command has so long to end.
const GRACE: Duration = Duration::from_millis(500);

/// See [`super::run`].
pub(super) fn run(
    args: &Args,
    machine: &MachinePmus,
    topology: &Topology,
    stop: &Receiver<()>,
) -> Result<u8> {
    if machine.pmus.is_empty() {
        bail!("{}", availability(machine).err().unwrap_or_default());
    }
    let job = Job::new(args, machine, topology)?;
    let places = places(machine, topology, job.trigger.is_some());
    let how = How {
        user_only: args.user_only,
        on_exec: args.pid.is_none(),
        ..How::default()
    };
    let mut watched = Watched::new(args)?;
    let counters = Counters::open(&job, &places, &watched.tids, how)?;
    let mut session = Session::new(args, job, topology, counters, &watched)?;
    session.warn()?;
    watched.start(args)?;
    let result = session.count(args, &watched, stop);
    let status = result.and_then(|status| session.finish(args).map(|()| status));
    if let Some(launcher) = watched.launcher {
        launcher.end();
    }
    // Interrupted: as a shell has it.
    Ok(match (status?, args.pid) {
        (Some(status), _) => target::exit_code(status),
        (None, Some(_)) => 0,
        (None, None) => 130,
    })
}

/// What is to be counted.
struct Job {
    events: Vec<Event>,
    trigger: Option<Trigger>,
    /// One per core type.
    plans: Vec<Plan>,
    /// What cannot be counted, and the PMUs' reasons.
    absent: Vec<Absent>,
}

impl Job {
    fn new(args: &Args, machine: &MachinePmus, topology: &Topology) -> Result<Self> {
        let wished = args.wished();
        let countable = |event: &Event| machine.pmus.iter().any(|pmu| pmu.encode(event).is_ok());
        let mut events = wished.clone().unwrap_or_else(|| {
            let mut events = Args::by_default();
            events.retain(countable);
            events
        });
        let trigger = match &args.ebs {
            Some(threshold) => {
                events.retain(|event| *event != threshold.event);
                events.insert(0, threshold.event.clone());
                Some(Trigger::Events(threshold.event.clone(), threshold.number))
            }
            None => args.per_thread.then_some(Trigger::Time),
        };
        let of_pmu = |pmu: &Pmu| match trigger {
            Some(_) => one_set(&events, pmu),
            None => plan(&events, pmu),
        };
        let mut absent: Vec<Absent> = Vec::new();
        for lack in machine.pmus.iter().flat_map(|pmu| of_pmu(pmu).absent) {
            // By default, what a core type lacks is no disappointment.
            if wished.is_some() && !absent.contains(&lack) {
                absent.push(lack);
            }
        }
        let plans = plans(machine, topology, of_pmu);
        if plans.iter().all(|plan| plan.sets.is_empty()) {
            let why = absent
                .first()
                .map_or("no counter is free", |lack| &lack.why);
            bail!("Nothing can be counted: {why}.");
        }
        if let Some(unknown) = wished.iter().flatten().find(|event| !countable(event)) {
            let why = machine.pmus[0].encode(unknown).err();
            let why = why.context("an event that no PMU can count")?;
            return Err(WrongUsage(format!("{why:#}")).into());
        }
        Ok(Self {
            events,
            trigger,
            plans,
            absent,
        })
    }

    /// Which events take turns with others.
    fn scaled(&self) -> Vec<bool> {
        let in_turns = |event: &Event| {
            let base = Args::by_default()[..2].contains(event);
            let several = |plan: &&Plan| plan.sets.len() > 1 && plan.find(event).is_some();
            !base && self.plans.iter().any(|plan| several(&plan))
        };
        self.events.iter().map(in_turns).collect()
    }
}

/// A plan of as many of these events as one set has room for, the first ones first: samples are
/// of one set.
pub(crate) fn one_set(events: &[Event], pmu: &Pmu) -> Plan {
    let (mut chosen, mut full) = (Vec::new(), Vec::new());
    for event in events {
        chosen.push(event.clone());
        if plan(&chosen, pmu).sets.len() > 1 {
            chosen.pop();
            full.push(Absent {
                event: event.clone(),
                why: format!("{} has no counter left for it beside the others", pmu.name),
            });
        }
    }
    let mut plan = plan(&chosen, pmu);
    plan.absent.extend(full);
    plan
}

/// Whose events are counted.
pub(super) struct Watched {
    pub(super) tids: Vec<i32>,
    launcher: Option<Launcher>,
    /// The command's process id.
    child: Option<i32>,
    end: Receiver<ExitStatus>,
}

impl Watched {
    fn new(args: &Args) -> Result<Self> {
        let launcher = match args.pid {
            Some(_) => None,
            None => Some(Launcher::new(target::command(&args.command)?)?),
        };
        let tids = match (&launcher, args.pid) {
            (Some(launcher), _) => vec![launcher.tid],
            (None, Some(pid)) => target::threads(pid)?,
            (None, None) => Vec::new(),
        };
        Ok(Self {
            tids,
            launcher,
            child: None,
            end: never(),
        })
    }

    fn start(&mut self, args: &Args) -> Result<()> {
        if let Some(launcher) = &self.launcher {
            let (pid, end) = launcher.start(&args.command[0])?;
            (self.child, self.end) = (Some(pid), end);
        }
        Ok(())
    }

    /// Gives the command the time to end: Ctrl-C in a terminal has reached it, too. Then tells it.
    fn await_end(&self) -> Option<ExitStatus> {
        let pid = self.child?;
        self.end.recv_timeout(GRACE).ok().or_else(|| {
            let _ = signal::kill(Pid::from_raw(pid), Signal::SIGTERM);
            self.end.recv_timeout(GRACE).ok()
        })
    }
}

enum Counters {
    Turns(Counting),
    Samples(Sampling),
}

impl Counters {
    fn open(job: &Job, places: &[CountingPlace], tids: &[i32], how: How) -> Result<Self> {
        Ok(match &job.trigger {
            None => Self::Turns(Counting::open(places, &job.plans, tids, how)?),
            Some(trigger) => Self::Samples(Sampling::open(places, &job.plans, tids, how, trigger)?),
        })
    }

    fn next(&mut self) -> Result<Slice> {
        match self {
            Self::Turns(counting) => counting.next(),
            Self::Samples(sampling) => sampling.next(),
        }
    }
}

struct Session {
    job: Job,
    names: Vec<String>,
    counters: Counters,
    report: PmcReport,
    began: Instant,
    began_ns: u64,
    /// Of all the time, and since the last line.
    totals: [PmcTotals; 2],
    threads: SampledThreads,
    by_thread: [ByThread; 2],
    virtual_counters: Option<VirtualCounters>,
    /// At the begin, and at the last line.
    readings: [Vec<VirtualReading>; 2],
    joules: Option<ProgramJoules>,
    /// Held until the end.
    _group: Option<CacheGroup>,
}

impl Session {
    fn new(
        args: &Args,
        job: Job,
        topology: &Topology,
        counters: Counters,
        watched: &Watched,
    ) -> Result<Self> {
        let out: Box<dyn Write> = match &args.output {
            Some(path) => {
                let file = stream::create(path)
                    .with_context(|| format!("cannot write {}", path.display()))?;
                Box::new(BufWriter::new(file))
            }
            None if args.pid.is_some() => Box::new(BufWriter::new(io::stdout())),
            None => Box::new(BufWriter::new(io::stderr())),
        };
        let group = CacheGroup::of(args, watched);
        // Looking for them takes a moment.
        let virtual_counters = (!args.virtual_counters.is_empty()).then(|| {
            let mut counters = VirtualCounters::discover(Path::new("/"));
            counters.retain(|counter| args.virtual_counters.contains(&counter.name));
            if let Some(group) = &group {
                counters.read_group(&group.folder());
            }
            counters
        });
        let readings = virtual_counters.as_ref().map(VirtualCounters::read);
        let readings = readings.unwrap_or_default();
        let joules = ProgramJoules::below(Path::new("/"), topology);
        let mut report = PmcReport::new(out, args.format, &job.events, &job.scaled());
        if joules.is_some() {
            report.with_joules();
        }
        Ok(Self {
            report,
            joules,
            names: topology.types.iter().map(|t| t.name.clone()).collect(),
            totals: [PmcTotals::new(&job.plans), PmcTotals::new(&job.plans)],
            job,
            counters,
            began: Instant::now(),
            began_ns: ring::now_ns(),
            threads: SampledThreads::default(),
            by_thread: Default::default(),
            readings: [readings.clone(), readings],
            virtual_counters,
            _group: group,
        })
    }

    /// Says what will be missing.
    fn warn(&mut self) -> Result<()> {
        for lack in &self.job.absent {
            log::warn!("{}", lack.why);
        }
        for counter in self.virtual_counters.iter().flat_map(|v| v.describe()) {
            if let CounterStatus::Absent(why) = &counter.status {
                log::warn!("no {}: {why}", counter.name);
            }
        }
        Ok(())
    }

    /// Counts until the program ends (its status) or somebody stops it.
    fn count(
        &mut self,
        args: &Args,
        watched: &Watched,
        stop: &Receiver<()>,
    ) -> Result<Option<ExitStatus>> {
        self.began = Instant::now();
        self.began_ns = ring::now_ns();
        if let Some(joules) = &mut self.joules {
            joules.begin();
        }
        let sets = self.job.plans.iter().map(|plan| plan.sets.len()).max();
        let most = if matches!(self.counters, Counters::Samples(_)) {
            FETCH
        } else {
            TURN
        };
        let every = args.every();
        let turn = every.map_or(most, |every| every / sets.unwrap_or(1).max(1) as u32);
        let turn = turn.clamp(SHORTEST_TURN, most);
        let mut due = every.map(|every| self.began + every);
        loop {
            let wait = due.map_or(turn, |due| {
                due.saturating_duration_since(Instant::now()).min(turn)
            });
            let mut ended = None;
            let over;
            select! {
                recv(watched.end) -> status => (ended, over) = (status.ok(), true),
                recv(stop) -> _ => (ended, over) = (watched.await_end(), true),
                default(wait) => over = args.pid.is_some_and(|pid| !target::lives(pid)),
            }
            let is_due = due.is_some_and(|next| Instant::now() >= next);
            self.look(over || is_due)?;
            if let (Some(next), Some(every)) = (due, every) {
                let now = Instant::now();
                if now >= next || over {
                    self.interval()?;
                    let mut next = next;
                    while next <= now {
                        next += every;
                    }
                    due = Some(next);
                }
            }
            if over {
                return Ok(ended);
            }
        }
    }

    /// Takes in what was counted since the last look; a line follows if `now`.
    fn look(&mut self, now: bool) -> Result<()> {
        let slice = self.counters.next()?;
        if let Some(joules) = &mut self.joules {
            joules.take(&slice, now);
        }
        for totals in &mut self.totals {
            totals.push(&slice);
        }
        let Counters::Samples(sampling) = &self.counters else {
            return Ok(());
        };
        for step in sampling.steps(&mut self.threads) {
            for threads in &mut self.by_thread {
                sampling::add(threads, &step, &self.job.plans);
            }
            if !matches!(self.job.trigger, Some(Trigger::Events(..))) {
                continue;
            }
            let mut alone = PmcTotals::new(&self.job.plans);
            alone.add(&step.counted);
            let label = Label {
                time: Some(step.at_ns.saturating_sub(self.began_ns) as f64 / 1e9),
                tid: Some(step.tid),
                name: Some(self.threads.name(step.tid).to_string()),
                cpu: Some(step.cpu),
            };
            for mut row in alone.rows(&self.job.events, &self.names) {
                let known = self.joules.as_ref();
                let core_type = step.counted.core_type;
                row.joules = known.and_then(|known| known.of_sample(core_type, row.run_ns));
                self.report
                    .row(LineKind::Sample, &label, &row, row.run_ns)?;
            }
        }
        Ok(())
    }

    /// Prints what was counted since the last line.
    fn interval(&mut self) -> Result<()> {
        let label = Label {
            time: Some(self.began.elapsed().as_secs_f64()),
            ..Label::default()
        };
        let [_, totals] = &mut self.totals;
        let totals = std::mem::replace(totals, PmcTotals::new(&self.job.plans));
        let [_, threads] = &mut self.by_thread;
        let threads = std::mem::take(threads);
        if matches!(self.job.trigger, Some(Trigger::Time)) {
            self.threads(LineKind::Interval, &label, &threads)?;
        } else {
            for row in self.with_joules(1, totals.rows(&self.job.events, &self.names)) {
                let all_ns = totals.run_ns() as f64;
                self.report.row(LineKind::Interval, &label, &row, all_ns)?;
            }
            if totals.run_ns() == 0 && totals.lost_ns > 0 {
                self.report
                    .note("Not counted: another program had the counters.")?;
            }
        }
        if let Some(joules) = &mut self.joules {
            joules.next_line();
        }
        self.virtuals(label.time, 1)
    }

    /// Rows of what the program did since the begin (0) or the last line (1), with its joules.
    fn with_joules(&self, since: usize, mut rows: Vec<OutputRow>) -> Vec<OutputRow> {
        for row in &mut rows {
            let core_type = self.names.iter().position(|name| *name == row.core_type);
            let known = self.joules.as_ref();
            row.joules = known.and_then(|known| known.of_row(since, core_type, row.run_ns));
        }
        rows
    }

    fn threads(&mut self, kind: LineKind, label: &Label, threads: &ByThread) -> Result<()> {
        for (&tid, totals) in threads {
            let label = Label {
                tid: Some(tid),
                name: Some(self.threads.name(tid).to_string()),
                ..label.clone()
            };
            let since = usize::from(kind == LineKind::Interval);
            let rows = self.with_joules(since, totals.rows(&self.job.events, &self.names));
            for row in rows
                .iter()
                .filter(|row| self.names.contains(&row.core_type))
            {
                self.report.row(kind, &label, row, totals.run_ns() as f64)?;
            }
        }
        Ok(())
    }

    /// Virtual counters since the begin (0) or the last line (1).
    fn virtuals(&mut self, time: Option<f64>, since: usize) -> Result<()> {
        let Some(counters) = &self.virtual_counters else {
            return Ok(());
        };
        let now = counters.read();
        let before = std::mem::replace(&mut self.readings[since], now.clone());
        for ((counter, before), now) in counters.describe().iter().zip(&before).zip(&now) {
            let reading = difference(counter.kind, before, now);
            if counter.status == CounterStatus::Present {
                self.report.virtual_counter(time, counter, &reading)?;
            }
        }
        Ok(())
    }

    /// Prints the totals.
    fn finish(&mut self, args: &Args) -> Result<()> {
        let seconds = self.began.elapsed().as_secs_f64();
        let totals = self.totals[0].clone();
        let [threads, _] = std::mem::take(&mut self.by_thread);
        let sampled: u64 = threads.values().map(PmcTotals::run_ns).sum();
        if args.per_thread {
            self.threads(LineKind::Thread, &Label::default(), &threads)?;
        }
        let rows = self.with_joules(0, totals.rows(&self.job.events, &self.names));
        let run_ns = totals.run_ns() as f64;
        for row in &rows {
            self.report
                .row(LineKind::Total, &Label::default(), row, run_ns)?;
        }
        self.report.rates(&rows)?;
        self.report.note("")?;
        self.virtuals(None, 0)?;
        let ran = (totals.run_ns() + totals.lost_ns) as f64 / 1e9;
        self.report
            .note(&format!("Ran for {ran:.3} s in {seconds:.3} s."))?;
        if totals.lost_ns > 0 {
            let share = totals.lost_ns as f64 / 1e9 / ran;
            self.report.lost(totals.lost_ns, share)?;
        }
        if args.per_thread && run_ns > 0.0 {
            let share = 100.0 * sampled as f64 / run_ns;
            let note = format!(
                "The threads' rows have {share:.1}% of the run time; the rest was after their \
                 last samples."
            );
            self.report.note(&note)?;
        }
        if self.threads.lost > 0 {
            log::warn!("{} samples found no room and were lost", self.threads.lost);
        }
        Ok(())
    }
}
