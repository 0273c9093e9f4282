// SPDX-License-Identifier: GPL-2.0-only
//! What the statistics socket asks the scheduler, and what that answers.

use std::collections::BTreeMap;
use std::str::FromStr;

use clap::ValueEnum;

use super::Totals;
use super::live::LiveReading;
use super::story::Story;
use crate::policy;
use crate::profile::Profile;

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
    Reading(Box<LiveReading>),
    /// To [`Request::Story`].
    Story(Story),
    /// What became of a setting, or why nothing did.
    Set(Result<String, String>),
}

/// The names of all policies.
pub(super) fn policy_names() -> Vec<String> {
    let names = policy::Name::value_variants().iter();
    names.map(ToString::to_string).collect()
}

/// The setting that a request names.
pub(super) fn setting(args: &BTreeMap<String, String>) -> Result<Request, String> {
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
