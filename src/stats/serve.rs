// SPDX-License-Identifier: GPL-2.0-only
//! The statistics socket: what can be asked there, and who may ask.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Gid, Group, chown};
use scx_stats::prelude::*;
use serde::de::DeserializeOwned;

use super::live::{Live, Rates, Reading};
use super::story::Story;
use super::{CoreTypeStats, Counts, Metrics, ProcessStats, Totals};
use crate::policy;
use crate::profile::Profile;

/// Where the socket is, as with all sched_ext schedulers.
pub const SOCKET: &str = "/var/run/scx/root/stats";

/// Who does not answer for so long, ms, does not answer.
const PATIENCE_MS: u64 = 3000;

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

/// What a client wants of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// What is counted.
    Totals,
    /// Every CPU and thread.
    Reading,
    /// All that is known of a thread, or of a process's threads, by its id.
    Story(u32),
    /// Another policy from now on.
    SetPolicy(policy::Name),
    /// Another profile from now on, with its policy.
    SetProfile(Profile),
    /// Another `--fairness` from now on, percent.
    SetFairness(u8),
    /// What the file with the rules says now.
    ReadRules,
}

/// Answers, each to the request of the same name.
#[derive(Clone, Debug)]
pub enum Answer {
    /// To [`Request::Totals`].
    Totals(Box<Totals>),
    /// To [`Request::Reading`].
    Reading(Box<Reading>),
    /// To [`Request::Story`].
    Story(Story),
    /// What became of a setting, or why nothing did.
    Set(Result<String, String>),
}

type Channels<'a> = (
    &'a crossbeam::channel::Sender<Request>,
    &'a crossbeam::channel::Receiver<Answer>,
);

fn ask(request: Request, (requests, answers): Channels) -> Result<Answer> {
    requests.send(request)?;
    Ok(answers.recv()?)
}

fn totals(channels: Channels) -> Result<Totals> {
    match ask(Request::Totals, channels)? {
        Answer::Totals(totals) => Ok(*totals),
        other => bail!("the scheduler answered something else: {other:?}"),
    }
}

fn reading(channels: Channels) -> Result<Reading> {
    match ask(Request::Reading, channels)? {
        Answer::Reading(reading) => Ok(*reading),
        other => bail!("the scheduler answered something else: {other:?}"),
    }
}

fn live(rates: &mut Rates, channels: Channels) -> Result<Live> {
    let mut live = rates.next(reading(channels)?);
    live.policies = policy_names();
    for cpu in &mut live.cpus {
        cpu.mhz = clock_mhz(cpu.cpu);
    }
    Ok(live)
}

/// The names of all policies.
pub fn policy_names() -> Vec<String> {
    let names = policy::Name::value_variants().iter();
    names.map(ToString::to_string).collect()
}

/// A CPU's clock, as the kernel says.
fn clock_mhz(cpu: u32) -> Option<u32> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq");
    let khz: u32 = std::fs::read_to_string(path).ok()?.trim().parse().ok()?;
    Some(khz / 1000)
}

/// The setting that a request names.
fn setting(args: &BTreeMap<String, String>) -> Result<Request, String> {
    let policy = args.get("policy").map(|name| {
        policy::Name::from_str(name, false)
            .map(Request::SetPolicy)
            .map_err(|_| {
                let names = policy_names().join(", ");
                format!("there is no policy '{name}'; there are {names}")
            })
    });
    let profile = args.get("profile").map(|name| {
        Profile::from_str(name, false)
            .map(Request::SetProfile)
            .map_err(|_| {
                let names = Profile::value_variants().iter().map(ToString::to_string);
                let names = names.collect::<Vec<_>>().join(", ");
                format!("there is no profile '{name}'; there are {names}")
            })
    });
    let fairness = args.get("fairness").map(|percent| {
        let percent = u8::from_str(percent).ok().filter(|&percent| percent <= 100);
        percent
            .map(Request::SetFairness)
            .ok_or_else(|| "fairness is a whole number of percent, 0 to 100".into())
    });
    let rules = args.get("rules").map(|_| Ok(Request::ReadRules));
    let mut settings = [policy, profile, fairness, rules].into_iter().flatten();
    match (settings.next(), settings.next()) {
        (Some(setting), None) => setting,
        _ => Err("set either policy, profile, fairness or rules".into()),
    }
}

fn set(args: &BTreeMap<String, String>, channels: Channels) -> Result<Result<String, String>> {
    let request = match setting(args) {
        Ok(request) => request,
        Err(why) => return Ok(Err(why)),
    };
    match ask(request, channels)? {
        Answer::Set(outcome) => Ok(outcome),
        other => bail!("the scheduler answered something else: {other:?}"),
    }
}

fn story(args: &BTreeMap<String, String>, channels: Channels) -> Result<Story> {
    let pid = args.get("pid").context("of which pid?")?;
    let pid = pid.parse().with_context(|| format!("'{pid}' is no pid"))?;
    match ask(Request::Story(pid), channels)? {
        Answer::Story(story) => Ok(story),
        other => bail!("the scheduler answered something else: {other:?}"),
    }
}

/// What the scheduler's statistics socket serves.
pub fn server_data() -> StatsServerData<Request, Answer> {
    let top: Box<dyn StatsOpener<Request, Answer>> = Box::new(move |channels| {
        let mut before = totals(channels)?;
        let read: Box<dyn StatsReader<Request, Answer>> = Box::new(move |_, channels| {
            let now = totals(channels)?;
            let metrics = Metrics::between(&before, &now);
            before = now;
            metrics.to_json()
        });
        Ok(read)
    });
    let threads: Box<dyn StatsOpener<Request, Answer>> = Box::new(move |_| {
        let mut rates = Rates::default();
        let read: Box<dyn StatsReader<Request, Answer>> =
            Box::new(move |_, channels| Ok(serde_json::to_value(live(&mut rates, channels)?)?));
        Ok(read)
    });
    let op = |open| StatsOps { open, close: None };
    StatsServerData::new()
        .add_meta(Metrics::meta())
        .add_meta(CoreTypeStats::meta())
        .add_meta(ProcessStats::meta())
        .add_meta(Counts::meta())
        .add_ops("top", op(top))
        .add_ops("threads", op(threads))
        .add_stats(
            "why",
            Box::new(|args, channels| Ok(serde_json::to_value(story(args, channels)?)?)),
        )
        .add_stats(
            "set",
            Box::new(|args, channels| Ok(serde_json::to_value(set(args, channels)?)?)),
        )
}

/// Opens the socket at `path`, for its owner and the members of `group` alone: who can ask can also
/// switch policies.
///
/// # Errors
/// Where it cannot be made, or not given to the group.
pub fn listen(path: &Path, group: Option<Gid>) -> Result<StatsServer<Request, Answer>> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let before = umask(Mode::from_bits_truncate(0o077));
    let server = StatsServer::new(server_data()).set_path(path).launch();
    umask(before);
    let server = server.with_context(|| format!("cannot open the socket {}", path.display()))?;
    if let Some(group) = group {
        let members = Permissions::from_mode(0o660);
        chown(path, None, Some(group))
            .map_err(Into::into)
            .and_then(|()| std::fs::set_permissions(path, members))
            .with_context(|| {
                format!(
                    "cannot let a group use {}: run it without --group, or in a service with \
                     SupplementaryGroups= for that group",
                    path.display()
                )
            })?;
    }
    Ok(server)
}

/// Asks the scheduler.
pub struct Client(StatsClient);

impl Client {
    /// Connects to the socket at `path`.
    ///
    /// # Errors
    /// What to do about it, in one line.
    pub fn connect(path: &Path) -> Result<Self> {
        let client = StatsClient::new().set_path(path);
        let connected = client.connect(Some(PATIENCE_MS));
        let client = connected.map_err(|error| {
            let why = error.downcast_ref::<std::io::Error>().map(|e| e.kind());
            match why {
                Some(std::io::ErrorKind::PermissionDenied) => error
                    .context("only root may ask the scheduler, and the group that --group names"),
                _ => anyhow!(
                    "no sched_ext scheduler answers ({error:#}): start it with 'sudo scx_hetero', \
                     or 'sudo systemctl start scx_hetero'"
                ),
            }
        })?;
        Ok(Self(client))
    }

    fn get<T: DeserializeOwned>(&mut self, target: &str, args: &[(&str, &str)]) -> Result<T> {
        let target = [("target", target)];
        let args = target.iter().chain(args);
        let args = args.map(|(key, value)| ((*key).into(), (*value).into()));
        self.0
            .request("stats", args.collect())
            .map_err(|error| match format!("{error:#}") {
                text if text.contains("unknown stat target") => {
                    error.context("the scheduler that runs is another one, or an older scx_hetero")
                }
                _ => error.context("the scheduler does not answer"),
            })
    }

    /// What there is to see, with rates since the last call.
    ///
    /// # Errors
    /// Where the scheduler is gone or is another one.
    pub fn live(&mut self) -> Result<Live> {
        self.get("threads", &[])
    }

    /// All about a thread, or a process's threads.
    ///
    /// # Errors
    /// As [`Client::live`].
    pub fn story(&mut self, pid: u32) -> Result<Story> {
        self.get("why", &[("pid", &pid.to_string())])
    }

    /// Sets `policy`, `profile` or `fairness`, or reads `rules` again; what the scheduler says to that, in words.
    ///
    /// # Errors
    /// As [`Client::live`].
    pub fn set(&mut self, name: &str, value: &str) -> Result<Result<String, String>> {
        self.get("set", &[(name, value)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Result<Request, String> {
        let args = pairs.iter();
        setting(&args.map(|(k, v)| ((*k).into(), (*v).into())).collect())
    }

    #[test]
    fn settings_are_read_and_bad_ones_refused_with_what_is_allowed() {
        let rr = Request::SetPolicy(policy::Name::Rr);
        assert_eq!(of(&[("target", "set"), ("policy", "rr")]), Ok(rr));
        assert_eq!(of(&[("fairness", "0")]), Ok(Request::SetFairness(0)));
        assert!(of(&[("policy", "cfs")]).unwrap_err().contains("camps"));
        for bad in ["101", "-1", "x", ""] {
            assert!(of(&[("fairness", bad)]).unwrap_err().contains("0 to 100"));
        }
        let server = Request::SetProfile(Profile::Server);
        assert_eq!(of(&[("profile", "server")]), Ok(server));
        assert!(of(&[("profile", "x")]).unwrap_err().contains("powersave"));
        assert!(of(&[]).is_err());
        assert!(of(&[("policy", "rr"), ("fairness", "5")]).is_err());
    }
}
