// SPDX-License-Identifier: GPL-2.0-or-later
//! Reads a recording as what the policy saw and decided.
//!
//! Whatever a file says, reading it takes less than [`BUDGET`]: what is unpacked at a time, a record,
//! each list in one, and what is kept of all of them have limits that none of ours comes near.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use flate2::bufread::GzDecoder;

use super::format::{
    Begin, Chosen, Decided, GoalRecord, GoalsLook, JoulesLook, Look, MAGIC, MOST, Record,
    RememberedRecord, SampleRecord, SessionName, UndisturbedRecord,
};
use super::{GOALS, PROGRAMS};
use crate::knowledge::{ThreadProfile, UndisturbedProfile, is_profile_sound};
use crate::limits::MAX_SLOTS;
use crate::pmu::Event;
use crate::pmu::counts;
use crate::pmu::sample::{EventCounts, Layout, Sample, SampleMetrics};
use crate::table::{Task, TaskId};
use crate::text::plain;
use crate::topology::{MAX_CORE_TYPES, Topology, cpulist};

/// The most memory that a file can make this and the policies take, bytes.
pub const BUDGET: u64 = 1 << 30;

/// The most that a member may hold, bytes: twice what may wait for the disk.
const LARGEST: usize = 64 << 20;

/// The most that a record may take, bytes: a full task table is 2.3 MB.
const LONGEST: usize = 4 << 20;

/// Of so many threads, at the most, something is kept.
const THREADS: usize = 1 << 20;

/// So often the scheduler may begin anew, or another policy.
const CHANGES: usize = 10_000;

/// Events that samples may name, and how long such a name may be.
const EVENTS: usize = 256;
const NAME: usize = 256;

/// Sessions that readers keep names of.
const SESSIONS: usize = 100_000;

/// Texts of a machine about itself.
const TEXTS: usize = 1000;

/// No machine has taken more by the end of a recording, J: a gigawatt for days.
const JOULES: f64 = 1e15;

/// No cache is larger, bytes.
const LARGEST_CACHE: u64 = 1 << 40;

/// The next thing that happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// The scheduler begins, or begins anew.
    Begin(Box<Begin>),
    /// Another policy decides.
    Policy(Chosen),
    /// Its fairness changes.
    Fairness(u8),
    /// It is shown a sample.
    Sample(Box<Sample>),
    /// The task table was read, [`RecordReader::tasks`].
    Look {
        /// As in [`Look`].
        now_ns: u64,
        /// As in [`Look`].
        decides: bool,
        /// ns since the recording began; grows when the scheduler's own clock begins anew, too.
        at_ns: u64,
    },
    /// What was decided then.
    Decision(Vec<Decided>),
    /// Which of that was carried out; may come in parts.
    CarriedOut(Vec<bool>),
    /// Joules since the recording began.
    Energy(f64),
    /// A session gets this name.
    Session(SessionName),
    /// How fast programs with goals are, and what they get.
    Goals {
        /// As of a look.
        at_ns: u64,
        /// In ascending order of sessions.
        goals: Vec<GoalRecord>,
    },
    /// Whose the joules of the last while are, and when that ended, as of a look.
    Joules(u64, JoulesLook),
    /// The policy is told what earlier runs of a thread's program were like.
    Remembered(TaskId, Box<ThreadProfile>),
    /// See [`Record::Undisturbed`].
    Undisturbed(TaskId, Box<UndisturbedProfile>),
    /// Sizes of last-level caches, bytes, as [`Topology::llc_bytes`] has them.
    Caches(Vec<u64>),
}

/// How a recording ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// The scheduler ended.
    Whole,
    /// It was killed, or records still.
    Open,
    /// So many bytes at the end are of no use.
    Cut(u64),
}

/// Reads one input after another.
#[derive(Debug)]
pub struct RecordReader {
    path: PathBuf,
    file: BufReader<File>,
    size: u64,
    /// Bytes of the file that were read and made sense.
    good: u64,
    member: Vec<u8>,
    /// Place in `member`.
    at: usize,
    tail: Option<Tail>,
    events: Vec<Event>,
    /// By core type: numbers of the events that its last sample had counts of, and these.
    layouts: [(Vec<u8>, Layout); MAX_CORE_TYPES],
    sample_at: u64,
    tasks: Vec<Task>,
    /// Threads there ever were, and beginnings.
    threads: usize,
    changes: usize,
    /// Sessions there ever were.
    sessions: usize,
    /// Threads of whose programs the policy was told since the last look.
    remembered: usize,
    /// Actions decided of which nothing is known yet.
    open: usize,
    core_types: usize,
    cpus: usize,
    /// Of the last look: `now_ns`, `at_ns`.
    looked: (u64, u64),
    /// There was none since the scheduler began.
    anew: bool,
}

impl RecordReader {
    /// Opens a recording.
    ///
    /// # Errors
    /// It cannot be read, is none, or of another version.
    pub fn open(path: &Path) -> Result<Self> {
        ensure!(
            path != Path::new("-"),
            "a recording is not read from standard input: name a file ('./-' if it is called so)"
        );
        let cannot = || format!("cannot read the recording {}", path.display());
        let file = File::open(path).with_context(cannot)?;
        let about = file.metadata().with_context(cannot)?;
        ensure!(
            !about.is_dir(),
            "cannot read the recording {}: name a file, not a folder",
            path.display()
        );
        let size = about.len();
        let mut reader = Self {
            path: path.to_path_buf(),
            file: BufReader::with_capacity(1 << 16, file),
            size,
            good: 0,
            member: Vec::new(),
            at: 0,
            tail: None,
            events: Vec::new(),
            layouts: Default::default(),
            sample_at: 0,
            tasks: Vec::new(),
            threads: 0,
            changes: 0,
            sessions: 0,
            remembered: 0,
            open: 0,
            core_types: 0,
            cpus: 0,
            looked: (0, 0),
            anew: true,
        };
        reader.next_member()?;
        reader.check_magic().with_context(cannot)?;
        Ok(reader)
    }

    /// One record more of what is known of programs.
    fn check_known(&mut self, is_sound: bool) -> Result<()> {
        self.remembered += 1;
        ensure!(
            self.remembered <= MOST && is_sound,
            "{}: what is known of programs makes no sense, or is of more than {MOST} threads",
            self.path.display()
        );
        Ok(())
    }

    fn check_magic(&mut self) -> Result<()> {
        let line = self.member.iter().position(|&byte| byte == b'\n');
        let line = line.map_or(&[][..], |end| &self.member[..=end]);
        let name = &MAGIC[..MAGIC.len() - 2];
        ensure!(
            line.starts_with(name),
            "it is no recording of scx_hetero, or was cut short before its first second; \
             'scx_hetero --record FILE' makes one"
        );
        ensure!(
            line == MAGIC,
            "it is in version {} of the form, and this scx_hetero reads version {}: use the one that \
             wrote it",
            String::from_utf8_lossy(&line[name.len()..]).trim(),
            String::from_utf8_lossy(&MAGIC[name.len()..]).trim()
        );
        self.at = MAGIC.len();
        Ok(())
    }

    /// The tasks as they were at the last [`Input::Look`], in ascending order of ids.
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// How it ends; `None` before the end.
    pub fn tail(&self) -> Option<Tail> {
        self.tail
    }

    /// What to say of the end, where there is something to say.
    pub fn complaint(&self) -> Option<String> {
        let path = self.path.display();
        match self.tail? {
            Tail::Whole => None,
            Tail::Open => Some(format!(
                "{path}: the recording was not closed: the scheduler was killed, or still records"
            )),
            Tail::Cut(bytes) => Some(format!(
                "{path}: the last {bytes} bytes are cut short or damaged and left out"
            )),
        }
    }

    /// What happened next; `None` at the end.
    ///
    /// # Errors
    /// Records that this version cannot understand, in a member that is not damaged.
    pub fn next_input(&mut self) -> Result<Option<Input>> {
        loop {
            while self.at == self.member.len() {
                if self.tail.is_some() || !self.next_member()? {
                    return Ok(None);
                }
            }
            let left = &self.member[self.at..];
            let left = &left[..left.len().min(LONGEST)];
            let (record, rest) = postcard::take_from_bytes::<Record>(left)
                .map_err(|error| anyhow::anyhow!("{error}"))
                .with_context(|| {
                    format!(
                        "{} has a record that does not make sense: it was written by another version, \
                         or damaged",
                        self.path.display()
                    )
                })?;
            self.at += left.len() - rest.len();
            if let Some(input) = self.take(record)? {
                return Ok(Some(input));
            }
        }
    }

    /// Unpacks the next member; false at the end, whatever that is.
    fn next_member(&mut self) -> Result<bool> {
        self.member.clear();
        self.at = 0;
        let more = self.file.fill_buf().is_ok_and(|bytes| !bytes.is_empty());
        if more {
            let mut unpacked = GzDecoder::new(&mut self.file);
            let read = unpacked
                .by_ref()
                .take(LARGEST as u64 + 1)
                .read_to_end(&mut self.member);
            ensure!(
                self.member.len() <= LARGEST,
                "{}: a part of it unpacks to more than {} MiB, and scx_hetero writes none like that: \
                 it is damaged, or made to fill memory",
                self.path.display(),
                LARGEST >> 20
            );
            if read.is_ok() {
                self.good = self.place();
                return Ok(true);
            }
            self.member.clear();
        }
        self.tail = Some(match self.size.saturating_sub(self.good) {
            0 => Tail::Open,
            lost => Tail::Cut(lost),
        });
        Ok(false)
    }

    /// Bytes of the file that were consumed.
    fn place(&mut self) -> u64 {
        use std::io::Seek;
        self.file.stream_position().unwrap_or(self.good)
    }

    fn take(&mut self, record: Record) -> Result<Option<Input>> {
        Ok(Some(match record {
            Record::Begin(begin) => {
                ensure!(
                    is_sound(&begin.topology),
                    "{} is of a machine that makes no sense",
                    self.path.display()
                );
                self.core_types = begin.topology.types.len();
                self.cpus = begin.topology.cpus.len();
                self.anew = true;
                self.change()?;
                Input::Begin(Box::new(begin.plain()))
            }
            Record::Policy(chosen) => {
                self.change()?;
                Input::Policy(chosen)
            }
            Record::Fairness(percent) => Input::Fairness(percent),
            Record::Event(name) => {
                ensure!(
                    self.events.len() < EVENTS && name.len() <= NAME,
                    "{} names more than {EVENTS} events, or one in more than {NAME} letters",
                    self.path.display()
                );
                self.events.push(Event::from(name));
                return Ok(None);
            }
            Record::Sample(record) => match self.sample(record)? {
                Some(sample) => Input::Sample(Box::new(sample)),
                None => return Ok(None),
            },
            Record::Look(look) => {
                let (now_ns, decides) = (look.now_ns, look.decides);
                self.look(look)?;
                self.remembered = 0;
                let (before, at_ns) = self.looked;
                // A scheduler that begins may have a clock of its own.
                let own = self.anew.then_some(now_ns);
                self.anew = false;
                let passed = now_ns.checked_sub(before).or(own);
                let passed = passed
                    .with_context(|| format!("{}: its time runs backwards", self.path.display()))?;
                let at_ns = at_ns.saturating_add(passed);
                self.looked = (now_ns, at_ns);
                Input::Look {
                    now_ns,
                    decides,
                    at_ns,
                }
            }
            Record::Decision(decided) => {
                self.open = decided.len();
                Input::Decision(decided)
            }
            Record::CarriedOut(mut outcomes) => {
                outcomes.truncate(self.open);
                self.open -= outcomes.len();
                Input::CarriedOut(outcomes)
            }
            Record::Energy(joules) => {
                ensure!(
                    can_be(joules),
                    "{}: joules that cannot be",
                    self.path.display()
                );
                Input::Energy(joules)
            }
            Record::Session(mut named) => {
                self.sessions += 1;
                ensure!(
                    self.sessions <= SESSIONS && named.name.len() <= NAME,
                    "{} is of more than {SESSIONS} sessions of programs with goals, or names one in more \
                     than {NAME} letters",
                    self.path.display()
                );
                named.name = plain(&named.name).into_owned();
                Input::Session(named)
            }
            Record::Goals(GoalsLook { now_ns, goals }) => {
                ensure!(
                    goals.len() <= GOALS && goals.is_sorted_by(|a, b| a.session < b.session),
                    "{}: goals of sessions in no order, or of more than {GOALS}",
                    self.path.display()
                );
                let at_ns = self.beside_looks(now_ns);
                Input::Goals { at_ns, goals }
            }
            Record::Joules(look) => {
                let parts = [look.untold, look.idle, look.uncore];
                let of_programs = look.programs.iter().map(|(_, joules)| joules);
                let mut all = look.threads.iter().chain(&parts).chain(of_programs);
                ensure!(
                    look.programs.len() <= PROGRAMS && all.all(|&j| can_be(j.into())),
                    "{}: joules that cannot be, or of more than {PROGRAMS} programs",
                    self.path.display()
                );
                Input::Joules(self.beside_looks(look.now_ns), look)
            }
            Record::Remembered(record) => {
                let RememberedRecord {
                    slot,
                    generation,
                    known,
                } = *record;
                self.check_known(known.is_sound())?;
                Input::Remembered(TaskId { slot, generation }, Box::new(known))
            }
            Record::Undisturbed(record) => {
                let UndisturbedRecord {
                    slot,
                    generation,
                    known,
                } = *record;
                self.check_known((slot as usize) < MOST && is_profile_sound(&known))?;
                Input::Undisturbed(TaskId { slot, generation }, Box::new(known))
            }
            Record::Caches(sizes) => {
                ensure!(
                    sizes.len() <= self.cpus && sizes.iter().all(|&bytes| bytes <= LARGEST_CACHE),
                    "{}: more caches than CPUs, or sizes that cannot be",
                    self.path.display()
                );
                Input::Caches(sizes)
            }
            Record::End => {
                self.tail = Some(Tail::Whole);
                return Ok(None);
            }
        }))
    }

    /// A time of the scheduler's as looks have it, ns.
    fn beside_looks(&self, now_ns: u64) -> u64 {
        let (before, at_ns) = self.looked;
        // A scheduler that begins may have a clock of its own.
        let passed = now_ns.checked_sub(before).or(self.anew.then_some(now_ns));
        at_ns.saturating_add(passed.unwrap_or(0))
    }

    /// Counts what readers keep for good.
    fn change(&mut self) -> Result<()> {
        self.changes += 1;
        ensure!(
            self.changes <= CHANGES,
            "{} has more than {CHANGES} changes of the policy",
            self.path.display()
        );
        Ok(())
    }

    fn sample(&mut self, record: SampleRecord) -> Result<Option<Sample>> {
        self.sample_at = self.sample_at.wrapping_add(record.at as u64);
        ensure!(
            record.core_type < self.core_types && record.counts.len() <= counts::MOST,
            "a sample from a core type that there is not, or of too many events"
        );
        let layout = self.layout(&record)?;
        let counts = EventCounts::new(layout, record.counts.iter().map(|&(_, n)| n.into()));
        let Some(metrics) = SampleMetrics::of(&counts, record.run_ns) else {
            return Ok(None);
        };
        Ok(Some(Sample {
            task: TaskId {
                slot: record.slot,
                generation: record.generation,
            },
            tid: record.tid,
            tgid: record.tgid,
            core_type: record.core_type,
            at_ns: self.sample_at,
            run_ns: record.run_ns,
            last: record.last,
            counts,
            metrics,
            sf: record.sf,
            ef: record.ef,
            watts: record.watts,
        }))
    }

    /// The layout of a sample's counts: mostly that of the one before from its core type.
    fn layout(&mut self, record: &SampleRecord) -> Result<&Layout> {
        let (known, layout) = &mut self.layouts[record.core_type];
        let numbers = || record.counts.iter().map(|&(number, _)| number);
        if !numbers().eq(known.iter().copied()) {
            let event = |number| {
                let event = self.events.get(usize::from(number));
                event.cloned().context("a sample of an unknown event")
            };
            *layout = numbers().map(event).collect::<Result<_>>()?;
            known.clear();
            known.extend(numbers());
        }
        Ok(layout)
    }

    /// Brings the task table up to a look.
    fn look(&mut self, look: Look) -> Result<()> {
        let tasks = &mut self.tasks;
        if !look.gone.is_empty() {
            tasks.retain(|task| look.gone.binary_search(&task.id).is_err());
        }
        for changed in &look.changed {
            let found = tasks.binary_search_by_key(&changed.slot, |task| task.id.slot);
            let Ok(found) = found else {
                bail!("{}: a task changed that there is not", self.path.display());
            };
            changed.apply(&mut tasks[found]);
        }
        let known = tasks.len();
        for whole in look.whole {
            let found = tasks[..known].binary_search_by_key(&whole.id, |task| task.id);
            match found {
                Ok(found) => {
                    let other = |it: &Task| (it.tid, it.tgid, it.start_time);
                    self.threads += usize::from(other(&tasks[found]) != other(&whole));
                    tasks[found] = whole;
                }
                Err(_) => tasks.push(whole),
            }
        }
        self.threads += tasks.len() - known;
        // The known ones are in order, and the new ones: they are only merged.
        tasks.sort_by_key(|task| task.id);
        ensure!(
            tasks.len() <= MOST && tasks.is_sorted_by(|a, b| a.id.slot < b.id.slot),
            "{}: two tasks in one slot, or more than {MOST}",
            self.path.display()
        );
        ensure!(
            self.threads <= THREADS,
            "{} is of more than {THREADS} threads, which is as many as can be held in memory: record \
             for a shorter time",
            self.path.display()
        );
        // Policies index by these.
        let sound = |task: &Task| {
            task.core_type < self.core_types
                && task.hint.is_none_or(|hint| hint < MAX_CORE_TYPES)
                && task.id.slot < MAX_SLOTS
        };
        ensure!(
            tasks.iter().all(sound),
            "{}: a task on a core type, or in a slot, that there is not",
            self.path.display()
        );
        Ok(())
    }
}

/// Whether something can have taken so much.
fn can_be(joules: f64) -> bool {
    (0.0..=JOULES).contains(&joules)
}

/// Whether a topology names no core type, domain, cache or CPU that it has not, and no more CPUs than the
/// kernel can: policies index by these, and make room for as many.
fn is_sound(topology: &Topology) -> bool {
    let (types, domains, cpus) = (&topology.types, &topology.domains, &topology.cpus);
    let known = |list: &[u32]| {
        list.is_sorted_by(|a, b| a < b) && list.iter().all(|&id| topology.cpu(id).is_some())
    };
    (1..=MAX_CORE_TYPES).contains(&types.len())
        && topology.nr_cpu_ids <= cpulist::MAX_CPU_ID + 1
        && domains.len() <= cpus.len()
        && topology.disagreements.len() + topology.notes.len() <= TEXTS
        && cpus.is_sorted_by(|a, b| a.id < b.id)
        && cpus.iter().all(|cpu| {
            cpu.id < topology.nr_cpu_ids
                && cpu.core_type < types.len()
                && cpu.domain < domains.len()
                && cpu.llc < cpus.len()
                && known(&cpu.siblings)
        })
        && types
            .iter()
            .all(|kind| !kind.cpus.is_empty() && known(&kind.cpus))
        && domains
            .iter()
            .all(|domain| domain.core_type < types.len() && known(&domain.cpus))
}
