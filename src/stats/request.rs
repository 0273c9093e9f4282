// SPDX-License-Identifier: GPL-2.0-only
//! What the statistics socket asks the scheduler, and what that answers.

use std::collections::BTreeMap;
use std::str::FromStr;

use clap::ValueEnum;

use super::Totals;
use super::live::LiveReading;
use super::story::Story;
use crate::goals::{GoalStatus, GoalWish};
use crate::policy;
use crate::profile::Profile;

/// What a client wants of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq)]
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
    /// Every goal.
    Goals,
    /// Another goal for a session.
    SetGoal(u64, GoalWish),
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
    /// To [`Request::Goals`].
    Goals(Vec<GoalStatus>),
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

/// The change of a goal that a request names.
pub(super) fn goal(args: &BTreeMap<String, String>) -> Result<Request, String> {
    let id = args.get("id").and_then(|id| id.parse().ok());
    let id = id.ok_or("of which session? Its number is a whole one")?;
    let (rate, weight) = (args.get("rate"), args.get("weight"));
    let wish = match (rate, args.contains_key("own"), args.contains_key("remove")) {
        (Some(rate), false, false) => {
            let target = rate.parse().map(|rate: f64| (rate * 1000.0).round());
            let target =
                target.map_err(|_| format!("'{rate}' is no number of beats per second"))?;
            let weight = weight.map(|weight| weight.parse()).transpose();
            // What is no number, or too large for one, is no target either.
            GoalWish::Set(target as u64, weight.map_err(|_| "no such weight")?)
        }
        (None, true, false) => GoalWish::Own,
        (None, false, true) => GoalWish::Remove,
        _ => return Err("a goal has a rate, is the program's own, or is removed".into()),
    };
    Ok(Request::SetGoal(id, wish))
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

    #[test]
    fn goals_are_set_given_back_and_removed() {
        let of = |pairs: &[(&str, &str)]| {
            let args = pairs.iter();
            goal(&args.map(|(k, v)| ((*k).into(), (*v).into())).collect())
        };
        let set = |target, weight| Ok(Request::SetGoal(3, GoalWish::Set(target, weight)));
        assert_eq!(of(&[("id", "3"), ("rate", "59.94")]), set(59_940, None));
        let weighed = of(&[("id", "3"), ("rate", "8"), ("weight", "200")]);
        assert_eq!(weighed, set(8000, Some(200)));
        // The sessions know what is too much.
        assert_eq!(of(&[("id", "3"), ("rate", "NaN")]), set(0, None));
        assert_eq!(of(&[("id", "3"), ("rate", "-1")]), set(0, None));
        assert_eq!(of(&[("id", "3"), ("rate", "1e99")]), set(u64::MAX, None));
        let own = Ok(Request::SetGoal(3, GoalWish::Own));
        assert_eq!(of(&[("id", "3"), ("own", "")]), own);
        let remove = Ok(Request::SetGoal(3, GoalWish::Remove));
        assert_eq!(of(&[("id", "3"), ("remove", "")]), remove);
        for bad in [
            &[("id", "x"), ("rate", "8")][..],
            &[("rate", "8")],
            &[("id", "3")],
            &[("id", "3"), ("rate", "fast")],
            &[("id", "3"), ("rate", "8"), ("weight", "-1")],
            &[("id", "3"), ("own", ""), ("remove", "")],
        ] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }
}
