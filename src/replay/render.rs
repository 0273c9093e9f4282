// SPDX-License-Identifier: GPL-2.0-only
//! A comparison for people and for programs.

use serde::Serialize;

use super::compare::{Difference, ReplayComparison};
use super::sums::{Sums, ThreadSums};
use crate::text::{hang_words, wrap};
use crate::topology::Topology;

/// The most threads that are listed, those that ran most.
const THREADS: usize = 16;

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct ReplayReport {
    /// CPU, kernel and version that it was recorded with.
    cpu: String,
    kernel: String,
    version: String,
    core_types: Vec<String>,
    seconds: f64,
    /// Decisions of the recorded policies that came out the same when they were run again, of how
    /// many.
    same_again: u64,
    decided_again: u64,
    recorded: Side,
    replayed: Side,
    differences: u64,
    first_differences: Vec<Told>,
    /// What is to be said of the recording's end.
    note: Option<String>,
}

#[derive(Debug, Serialize)]
struct Side {
    policy: String,
    decisions: u64,
    hints_per_s: f64,
    swaps_per_s: f64,
    parks_per_s: f64,
    predicted_unfairness: Option<f64>,
    predicted_asp: Option<f64>,
    threads: Vec<Thread>,
}

#[derive(Debug, Serialize)]
struct Thread {
    tid: u32,
    comm: String,
    run_s: f64,
    /// Part of its run time for which it was wished on each core type.
    wished: Vec<f64>,
    predicted_slowdown: Option<f64>,
    moves: u64,
}

#[derive(Debug, Serialize)]
struct Told {
    at_s: f64,
    by: &'static str,
    tid: u32,
    comm: String,
    from: String,
    to: String,
    with: Option<u32>,
    why: Option<String>,
}

fn name(topology: &Topology, core_type: usize) -> &str {
    let kind = topology.types.get(core_type);
    kind.map_or("?", |kind| kind.name.as_str())
}

impl ReplayReport {
    pub(super) fn new(of: &ReplayComparison) -> Self {
        let topology = &of.begin.topology;
        let seconds = of.length_ns as f64 / 1e9;
        let told = |difference: &Difference| Told {
            at_s: difference.at_ns as f64 / 1e9,
            by: if difference.recorded {
                "recorded"
            } else {
                "replayed"
            },
            tid: difference.tid,
            comm: difference.comm.clone(),
            from: name(topology, difference.from).into(),
            to: name(topology, difference.to).into(),
            with: difference.with,
            why: difference.why.clone(),
        };
        Self {
            cpu: of.begin.cpu.clone(),
            kernel: of.begin.kernel.clone(),
            version: of.begin.version.clone(),
            core_types: topology
                .types
                .iter()
                .map(|kind| kind.name.clone())
                .collect(),
            seconds,
            same_again: of.check.same,
            decided_again: of.check.all,
            recorded: Side::new(of.policies.join(", then "), &of.recorded, topology, seconds),
            replayed: Side::new(of.replayed_policy.clone(), &of.replayed, topology, seconds),
            differences: of.all_differences,
            first_differences: of.differences.iter().map(told).collect(),
            note: of.complaint.clone(),
        }
    }

    /// In lines of 80 columns at most, but for long names.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |words: String| {
            text += &words;
            text.push('\n');
        };
        line(wrap(&format!(
            "{:.1} s on {} ({}, Linux {}), recorded under policy {}.",
            self.seconds,
            self.cpu,
            self.core_types.join(" + "),
            self.kernel,
            self.recorded.policy
        )));
        line(wrap(&self.said_again()));
        line(wrap(
            "Open loop: threads run as they were recorded, whatever is decided here. What they would \
             have run elsewhere is not known; predictions are of CPU time, by slowdowns as measured.",
        ));
        line(format!(
            "\n{:<24} {:>14} {:>14}",
            "", "RECORDED", "REPLAYED"
        ));
        let (a, b) = (&self.recorded, &self.replayed);
        let names = [&a.policy, &b.policy].map(|name| {
            let last = name.rsplit(' ').next().unwrap_or_default();
            last.to_string()
        });
        line(format!(
            "{:<24} {:>14} {:>14}",
            "policy (the last)", names[0], names[1]
        ));
        let number = |value: Option<f64>| value.map_or("-".into(), |v| format!("{v:.3}"));
        type Of = fn(&Side) -> Option<f64>;
        let rows: [(&str, Of); 6] = [
            ("decisions/s", |side| Some(side.decisions as f64)),
            ("hints/s", |side| Some(side.hints_per_s)),
            ("swaps/s", |side| Some(side.swaps_per_s)),
            ("CPUs parked/s", |side| Some(side.parks_per_s)),
            ("predicted unfairness", |side| side.predicted_unfairness),
            ("predicted ASP", |side| side.predicted_asp),
        ];
        for (index, (title, of)) in rows.into_iter().enumerate() {
            let per = if index == 0 {
                self.seconds.max(1e-9)
            } else {
                1.0
            };
            let [a, b] = [a, b].map(|side| number(of(side).map(|value| value / per)));
            line(format!("{title:<24} {a:>14} {b:>14}"));
        }
        self.threads(&mut line);
        self.told(&mut line);
        text.trim_end().to_string()
    }

    fn said_again(&self) -> String {
        let (same, all) = (self.same_again, self.decided_again);
        if same == all {
            format!("What was decided then is decided again, by the same policy: {same} of {all}.")
        } else {
            format!(
                "Of what was decided then only {same} of {all} is decided again by the same policy: \
                 this version decides otherwise than {}, so the comparison is of little worth.",
                self.version
            )
        }
    }

    fn threads(&self, line: &mut impl FnMut(String)) {
        if self.recorded.threads.is_empty() {
            return;
        }
        let types = self.core_types.join("/");
        line(format!(
            "\nRun time by the core type wished for ({types}, percent):"
        ));
        line(format!(
            "{:>9} {:<16} {:>7} {:>15} {:>15} {:>12}",
            "TID", "NAME", "RAN s", "RECORDED", "REPLAYED", "MOVES"
        ));
        let shares = |thread: &Thread| {
            let shares = thread
                .wished
                .iter()
                .map(|part| format!("{:.0}", 100.0 * part));
            shares.collect::<Vec<_>>().join("/")
        };
        for thread in self.recorded.threads.iter().take(THREADS) {
            let mut others = self.replayed.threads.iter();
            let other = others.find(|other| other.tid == thread.tid);
            line(format!(
                "{:>9} {:<16} {:>7.1} {:>15} {:>15} {:>12}",
                thread.tid,
                thread.comm,
                thread.run_s,
                shares(thread),
                other.map_or_else(String::new, shares),
                format!("{}/{}", thread.moves, other.map_or(0, |other| other.moves)),
            ));
        }
    }

    fn told(&self, line: &mut impl FnMut(String)) {
        let shown = self.first_differences.len();
        if self.differences == 0 {
            line("\nNo thread is moved otherwise.".into());
            return;
        }
        line(format!(
            "\nMoves that only one of both makes, the first {shown} of {}:",
            self.differences
        ));
        let wide = self.core_types.iter().map(String::len).max().unwrap_or(0);
        for told in &self.first_differences {
            let with = told.with.map(|tid| format!(" with {tid}"));
            let why = told.why.as_ref().map(|why| format!(": {why}"));
            let head = format!("{:>9.3} s  {}  ", told.at_s, told.by);
            let words = format!(
                "{:>wide$} -> {:<wide$}  {} {}{}{}",
                told.from,
                told.to,
                told.tid,
                told.comm,
                with.unwrap_or_default(),
                why.unwrap_or_default()
            );
            line(format!(
                "{head}{}",
                hang_words(&words, head.len(), head.len())
            ));
        }
    }
}

impl Side {
    fn new(policy: String, sums: &Sums, topology: &Topology, seconds: f64) -> Self {
        let per_s = |count: u64| count as f64 / seconds.max(1e-9);
        let mut threads: Vec<&ThreadSums> = sums.threads.values().collect();
        threads.retain(|thread| thread.ran_ns() > 0.0);
        threads.sort_by(|a, b| (b.ran_ns().total_cmp(&a.ran_ns())).then(a.tid.cmp(&b.tid)));
        let told = |thread: &ThreadSums| Thread {
            tid: thread.tid,
            comm: thread.comm.to_string(),
            run_s: thread.ran_ns() / 1e9,
            wished: thread.wished_ns[..topology.types.len()]
                .iter()
                .map(|&ns| ns / thread.ran_ns())
                .collect(),
            predicted_slowdown: thread.slowdown(),
            moves: thread.moves,
        };
        Self {
            policy,
            decisions: sums.decisions,
            hints_per_s: per_s(sums.hints),
            swaps_per_s: per_s(sums.swaps),
            parks_per_s: per_s(sums.parks),
            predicted_unfairness: sums.unfairness(),
            predicted_asp: sums.asp(),
            threads: threads.into_iter().map(told).collect(),
        }
    }
}
