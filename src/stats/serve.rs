// SPDX-License-Identifier: GPL-2.0-only
//! The statistics socket: what can be asked there, and who may ask.
//!
//! It speaks the protocol of `scx_stats`, whose own server has a thread for each client, of which
//! it has any number, and takes lines of any length. The agent locks its memory, so here one thread
//! serves a few, whose lines are short.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};
use log::{debug, warn};
use nix::errno::Errno;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Gid, Group, chown, geteuid};
use scx_stats::prelude::*;
use serde::Serialize;

use super::live::Live;
use super::rates::Rates;
use super::request::{Answer, Request, goal, policy_names, setting};
use super::story::Story;
use super::{CoreTypeStats, Counts, Metrics, ProcessStats, Totals};
use crate::connections::{
    ClientLimits, Connections, MayIdle, Served, Service, join_in_time, make_open_folder,
    refuse_descriptors,
};
use crate::goals::GoalStatus;
use crate::text::hang_words;

/// Where the socket is, as with all sched_ext schedulers.
pub const SOCKET: &str = "/var/run/scx/root/stats";

/// The group whose members may read, if there is one of that name and no other was named.
const GROUP: &str = "scx_hetero";

const LIMITS: ClientLimits = ClientLimits {
    connections: 16,
    request: 64 << 10,
    patience: Duration::from_secs(10),
    may_idle: MayIdle::Always,
};

/// After an answer the thread rests for so long, or for so many times as long as that took, whatever clients want: for
/// some the scheduler looks at each thread. But no longer than the last of these, as the next client waits for it.
const REST: Duration = Duration::from_millis(10);
const REST_TIMES: u32 = 4;
const LONGEST_REST: Duration = Duration::from_millis(250);

/// And clients are listened to no faster than this: as one of the agent's, the thread goes before
/// all other tasks, and no client is to keep it busy.
const BREATH: Duration = Duration::from_millis(1);

/// The thread's stack, bytes; the agent's memory is locked.
const STACK: usize = 256 << 10;

/// How soon the thread notices that no answer will come any more.
const GLANCE: Duration = Duration::from_millis(100);

/// Looks a group up by its name.
///
/// # Errors
/// There is none, or nobody knows.
pub fn parse_group(name: &str) -> Result<Gid, String> {
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid),
        Ok(None) => Err(format!(
            "there is no group of that name; 'groupadd --system {name}' makes it"
        )),
        Err(error) => Err(format!("cannot look it up: {error}")),
    }
}

/// The group that may read where none was named, if this machine has it.
pub fn default_group() -> Option<Gid> {
    parse_group(GROUP).ok()
}

/// A CPU's clock, as the kernel says.
fn clock_mhz(cpu: u32) -> Option<u32> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq");
    let khz: u32 = fs::read_to_string(path).ok()?.trim().parse().ok()?;
    Some(khz / 1000)
}

/// What is told of in `--monitor`, by name.
fn metas() -> [StatsMeta; 4] {
    [
        Metrics::meta(),
        CoreTypeStats::meta(),
        ProcessStats::meta(),
        Counts::meta(),
    ]
}

/// Explains the statistics, for people.
///
/// # Errors
/// None that its test has not seen.
pub fn explain() -> Result<String> {
    let known = StatsServerData::<(), ()>::new();
    let known = metas().into_iter().fold(known, StatsServerData::add_meta);
    let mut described = Vec::new();
    known.describe_meta(&mut described, None)?;
    let lines = String::from_utf8(described)?;
    let lines = lines.lines().map(|line| {
        let said = line.find(" : ").map_or(0, |column| column + 3);
        hang_words(line, 0, said)
    });
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// Listens until dropped, in a thread of its own: the scheduler's loop waits for no client.
pub struct StatisticsServer {
    requests: Receiver<Request>,
    answers: Sender<Answer>,
    over: Arc<AtomicBool>,
    wake: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl StatisticsServer {
    /// Opens the socket at `path`, for its owner and the members of `group`. Its owner and root may
    /// change settings; the group may read.
    ///
    /// # Errors
    /// Where it cannot be made. That it cannot be given to the group is only said.
    pub fn listen(path: &Path, group: Option<Gid>) -> Result<Self> {
        let listener =
            bind(path).with_context(|| format!("cannot open the socket {}", path.display()))?;
        let members = Permissions::from_mode(0o660);
        let shared = group.map(|group| {
            chown(path, None, Some(group))
                .map_err(io::Error::from)
                .and_then(|()| fs::set_permissions(path, members))
        });
        if let Some(Err(why)) = shared {
            warn!(
                "only root can read the statistics, for {} cannot be given to a group: {why}; a \
                 service needs SupplementaryGroups= for that group",
                path.display()
            );
        }
        let (request, requests) = bounded(1);
        let (answers, answer) = bounded(1);
        let (wake, woken) = UnixStream::pair().context("cannot make a socket")?;
        let over = Arc::new(AtomicBool::new(false));
        let mut lines = Lines {
            request,
            answer,
            over: Arc::clone(&over),
            ready: Instant::now(),
        };
        let thread = thread::Builder::new()
            .name("stats".into())
            .stack_size(STACK)
            .spawn(move || {
                let mut connections = Connections::new(listener, LIMITS);
                while !lines.over.load(Ordering::Relaxed) {
                    let round = connections.round(&mut lines, Some(woken.as_fd()), None);
                    // As where memory is short: it passes, and is no reason to be busy meanwhile.
                    if let Err(error) = round {
                        debug!("no client can be served for the moment: {error}");
                        thread::sleep(Duration::from_secs(1));
                    }
                    thread::sleep(BREATH);
                }
            })
            .context("cannot start a thread")?;
        Ok(Self {
            requests,
            answers,
            over,
            wake: Some(wake),
            thread: Some(thread),
        })
    }

    /// Where answers go, and where requests come from: one at a time, and each wants an answer.
    pub fn channels(&self) -> (Sender<Answer>, Receiver<Request>) {
        (self.answers.clone(), self.requests.clone())
    }
}

impl Drop for StatisticsServer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            join_in_time(thread);
        }
    }
}

/// A listener that only the owner may connect to. What a killed scheduler has left gives way.
fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        make_open_folder(folder)?;
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let before = umask(Mode::from_bits_truncate(0o077));
    let listener = UnixListener::bind(path);
    umask(before);
    let listener = listener?;
    listener.set_nonblocking(true)?;
    refuse_descriptors(&listener)?;
    Ok(listener)
}

/// A client, and what its rates are since.
#[derive(Default)]
struct Asker {
    may_set: bool,
    top: Option<Totals>,
    rates: Rates,
}

/// The protocol: a line of JSON, and one back.
struct Lines {
    request: Sender<Request>,
    answer: Receiver<Answer>,
    over: Arc<AtomicBool>,
    /// When the next is answered.
    ready: Instant,
}

impl Service for Lines {
    type Listener = UnixListener;
    type Client = Asker;

    fn greet(&mut self, stream: &UnixStream) -> io::Result<Asker> {
        let peer = getsockopt(stream, PeerCredentials)?;
        Ok(Asker {
            may_set: may_set(peer.uid()),
            ..Asker::default()
        })
    }

    fn serve(&mut self, client: &mut Asker, received: &[u8], more: bool) -> Served {
        let end = received.iter().position(|&byte| byte == b'\n');
        let (answer, taken) = match end {
            Some(end) => (self.respond(client, &received[..end]), end + 1),
            None if more => return Served::Partial,
            None if received.len() >= LIMITS.request => {
                let why = anyhow!("a request is a line of at most {} bytes", LIMITS.request);
                (Err(why.context(StatsErrno(Errno::EMSGSIZE as i32))), 0)
            }
            // A client that has ended need not have ended the line.
            None => (self.respond(client, received), received.len()),
        };
        let answer = answer.unwrap_or_else(|error| {
            let errno = error.downcast_ref::<StatsErrno>();
            response(
                errno.map_or(Errno::EINVAL as i32, |errno| errno.0),
                format!("{error:#}").into(),
            )
        });
        let mut bytes = serde_json::to_vec(&answer).unwrap_or_default();
        bytes.push(b'\n');
        Served::Answer {
            taken,
            bytes,
            last: end.is_none(),
        }
    }
}

/// A client that may only read can neither stop a policy nor choose one.
fn may_set(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw()
}

fn response(errno: i32, value: serde_json::Value) -> StatsResponse {
    StatsResponse {
        errno,
        args: [("resp".to_string(), value)].into(),
    }
}

impl Lines {
    fn respond(&mut self, client: &mut Asker, line: &[u8]) -> Result<StatsResponse> {
        thread::sleep(self.ready.saturating_duration_since(Instant::now()));
        let began = Instant::now();
        let answer = self.answer_to(client, line);
        self.ready = Instant::now() + rest(began.elapsed());
        answer
    }

    fn answer_to(&mut self, client: &mut Asker, line: &[u8]) -> Result<StatsResponse> {
        let request: StatsRequest = serde_json::from_slice(line)?;
        let unknown = |what: &str, name: &str| {
            anyhow!("unknown {what} {name:?}").context(StatsErrno(Errno::EINVAL as i32))
        };
        if request.req == "stats_meta" {
            let metas = metas().into_iter().map(|meta| (meta.name.clone(), meta));
            return to_response(metas.collect::<BTreeMap<_, _>>());
        }
        if request.req != "stats" {
            return Err(unknown("command", &request.req));
        }
        let target = request.args.get("target").map_or("top", String::as_str);
        match target {
            "top" => to_response(self.top(client)?),
            "threads" => to_response(self.threads(client)?),
            "why" => to_response(self.why(&request.args)?),
            "set" => to_response(self.set(client, setting(&request.args))?),
            "goals" => to_response(self.goals()?),
            "goal" => to_response(self.set(client, goal(&request.args))?),
            _ => Err(unknown("stat target", target)),
        }
    }

    /// Asks the scheduler.
    fn ask(&mut self, request: Request) -> Result<Answer> {
        self.request.send(request)?;
        loop {
            match self.answer.recv_timeout(GLANCE) {
                Err(RecvTimeoutError::Timeout) if !self.over.load(Ordering::Relaxed) => {}
                answer => return answer.context("the scheduler ends"),
            }
        }
    }

    fn totals(&mut self) -> Result<Totals> {
        match self.ask(Request::Totals)? {
            Answer::Totals(totals) => Ok(*totals),
            other => Err(odd(&other)),
        }
    }

    fn top(&mut self, client: &mut Asker) -> Result<Metrics> {
        let before = match client.top.take() {
            Some(before) => before,
            None => self.totals()?,
        };
        let now = self.totals()?;
        let metrics = Metrics::between(&before, &now);
        client.top = Some(now);
        Ok(metrics)
    }

    fn threads(&mut self, client: &mut Asker) -> Result<Live> {
        let reading = match self.ask(Request::Reading)? {
            Answer::Reading(reading) => *reading,
            other => return Err(odd(&other)),
        };
        let mut live = client.rates.next(reading);
        live.policies = policy_names();
        for cpu in &mut live.cpus {
            cpu.mhz = clock_mhz(cpu.cpu);
        }
        Ok(live)
    }

    fn why(&mut self, args: &BTreeMap<String, String>) -> Result<Story> {
        let pid = args.get("pid").context("of which pid?")?;
        let pid = pid.parse().with_context(|| format!("'{pid}' is no pid"))?;
        match self.ask(Request::Story(pid))? {
            Answer::Story(story) => Ok(story),
            other => Err(odd(&other)),
        }
    }

    fn goals(&mut self) -> Result<Vec<GoalStatus>> {
        match self.ask(Request::Goals)? {
            Answer::Goals(goals) => Ok(goals),
            other => Err(odd(&other)),
        }
    }

    fn set(
        &mut self,
        client: &Asker,
        request: Result<Request, String>,
    ) -> Result<Result<String, String>> {
        if !client.may_set {
            let why = "you may read statistics; settings are changed by root, with sudo";
            return Ok(Err(why.into()));
        }
        let request = match request {
            Ok(request) => request,
            Err(why) => return Ok(Err(why)),
        };
        match self.ask(request)? {
            Answer::Set(outcome) => Ok(outcome),
            other => Err(odd(&other)),
        }
    }
}

/// How long the thread rests after an answer that took so long.
fn rest(took: Duration) -> Duration {
    took.saturating_mul(REST_TIMES).clamp(REST, LONGEST_REST)
}

fn to_response(value: impl Serialize) -> Result<StatsResponse> {
    Ok(response(0, serde_json::to_value(value)?))
}

fn odd(answer: &Answer) -> anyhow::Error {
    anyhow!("the scheduler answered something else: {answer:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::WIDTH;

    #[test]
    fn what_explains_the_statistics_fits_a_terminal() {
        let text = explain().unwrap();
        assert!(text.contains("[ProcessStats ] one process\n"), "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
    }

    #[test]
    fn after_a_long_answer_the_thread_rests_for_longer_but_the_next_client_is_answered() {
        let ms = Duration::from_millis;
        assert_eq!(rest(ms(1)), REST);
        assert_eq!(rest(ms(20)), ms(80));
        assert_eq!(rest(ms(2000)), LONGEST_REST);
    }
}
