// SPDX-License-Identifier: GPL-2.0-only
//! What the statistics are in Prometheus' words: every metric with its help, type and labels.

use std::fmt::Write;

use hetero_core::interference::InterferenceClass;
use scx_stats::prelude::*;

use crate::goals::GoalStatus;
use crate::stats::Counts;
use crate::stats::live::{Live, LiveGoals, LiveThread};

/// Threads whose slowdown is told one by one, the most.
const WORST: usize = 20;

/// Its metrics, as text.
pub(super) fn render(live: &Live) -> String {
    let mut text = Text::default();
    text.family("info", "gauge", "policy in force");
    text.sample("info", &[("policy", &live.policy)], 1.0);
    if let Some(percent) = live.fairness {
        text.gauge(
            "fairness_ratio",
            "the knob --fairness, 0 to 1",
            f64::from(percent) / 100.0,
        );
    }
    if let Some(joules) = live.joules {
        let help = "energy of the processor packages since the scheduler began";
        text.family("energy_joules_total", "counter", help);
        text.sample("energy_joules_total", &[], joules);
    }
    if !live.energy.is_empty() {
        let help = "energy by what took it: threads by core type, those too young to be told \
                    apart, idle CPUs, the rest of the packages; and memory, where counted";
        text.family("energy_part_joules_total", "counter", help);
        for part in &live.energy {
            let labels = [("part", &*part.part)];
            text.sample("energy_part_joules_total", &labels, part.joules);
        }
    }
    if !live.programs.is_empty() {
        let help = "energy of the processes that took most, since each was first seen";
        text.family("process_joules_total", "counter", help);
        for program in &live.programs {
            let labels = [("pid", &*program.pid.to_string()), ("comm", &program.comm)];
            text.sample("process_joules_total", &labels, program.joules);
        }
    }
    if !live.caches.is_empty() {
        let help = "last-level cache of the processes that hold most, counted by resctrl or \
                    estimated from misses";
        text.family("process_llc_bytes", "gauge", help);
        for process in &live.caches {
            let labels = [("pid", &*process.pid.to_string()), ("comm", &process.comm)];
            text.sample("process_llc_bytes", &labels, process.bytes);
        }
    }
    text.gauge(
        "saves_energy",
        "1 while efficient cores are filled first",
        live.saves.into(),
    );
    text.gauge("tasks", "tasks in the table", live.tasks as f64);
    text.gauge(
        "tasks_runnable",
        "tasks in the table that are runnable",
        live.runnable as f64,
    );
    for (name, help, value) in [
        (
            "unfairness",
            "greatest slowdown over the least, last ten seconds",
            live.unfairness,
        ),
        (
            "asp",
            "aggregate speedup over the slowest core type, last ten seconds",
            live.asp,
        ),
        (
            "stp",
            "system throughput, threads alone on the fastest core type, last ten seconds",
            live.stp,
        ),
    ] {
        if let Some(value) = value {
            text.gauge(name, help, value);
        }
    }

    text.family("core_type_cpus", "gauge", "online CPUs of a core type");
    for kind in &live.core_types {
        text.sample(
            "core_type_cpus",
            &[("core_type", &kind.name)],
            kind.cpus as f64,
        );
    }
    text.family(
        "cpu_busy_ratio",
        "gauge",
        "busy since the last scrape, 0 to 1",
    );
    let name = |core_type: usize| live.core_types.get(core_type).map_or("", |kind| &kind.name);
    for cpu in &live.cpus {
        let labels = [
            ("cpu", &*cpu.cpu.to_string()),
            ("core_type", name(cpu.core_type)),
        ];
        text.sample("cpu_busy_ratio", &labels, cpu.busy_pct / 100.0);
    }
    if live.cpus.iter().any(|cpu| cpu.mhz.is_some()) {
        text.family("cpu_hertz", "gauge", "present clock");
    }
    for cpu in &live.cpus {
        if let Some(mhz) = cpu.mhz {
            let labels = [
                ("cpu", &*cpu.cpu.to_string()),
                ("core_type", name(cpu.core_type)),
            ];
            text.sample("cpu_hertz", &labels, f64::from(mhz) * 1e6);
        }
    }
    disturbed(&mut text, live);
    goals(&mut text, &live.goals);
    counts(&mut text, &live.total_counts);
    text.0
}

/// What slows threads down: how many by class, and of the worst by what.
fn disturbed(text: &mut Text, live: &Live) {
    let mut threads: Vec<_> = live.threads.iter().collect();
    threads.retain(|thread| thread.disturbed.is_some());
    let help = "threads that others slow down, by what they contend for";
    text.family("disturbed_threads", "gauge", help);
    for class in &InterferenceClass::ALL[1..] {
        let is = |thread: &&&LiveThread| {
            thread
                .disturbed
                .as_ref()
                .is_some_and(|of| of.class == *class)
        };
        let number = threads.iter().filter(is).count();
        text.sample(
            "disturbed_threads",
            &[("class", class.name())],
            number as f64,
        );
    }
    if threads.is_empty() {
        return;
    }
    let worst = |thread: &LiveThread| thread.disturbed.as_ref().map_or(0.0, |of| of.slowdown);
    threads.sort_by(|a, b| worst(b).total_cmp(&worst(a)).then(a.tid.cmp(&b.tid)));
    let help =
        "slowdown of the threads that are disturbed most, by what, and by which process most";
    text.family("thread_disturbed_ratio", "gauge", help);
    for thread in threads.into_iter().take(WORST) {
        let Some(of) = &thread.disturbed else {
            continue;
        };
        let [tid, by_pid] = [Some(thread.tid), of.pid].map(|id| id.map(|id| id.to_string()));
        let labels = [
            ("tid", tid.as_deref().unwrap_or_default()),
            ("comm", &thread.comm),
            ("class", of.class.name()),
            ("by", of.by.as_deref().unwrap_or_default()),
            ("by_pid", by_pid.as_deref().unwrap_or_default()),
        ];
        text.sample("thread_disturbed_ratio", &labels, of.slowdown);
    }
}

/// How many goals there are and are missed, and of the sessions that miss theirs by most by how much.
fn goals(text: &mut Text, goals: &LiveGoals) {
    type Of = fn(&GoalStatus) -> Option<f64>;
    text.gauge("goal_sessions", "sessions with a goal", goals.all as f64);
    text.gauge(
        "goal_sessions_missed",
        "sessions that miss their goal",
        goals.missed as f64,
    );
    let families: [(&str, &str, Of); 6] = [
        (
            "goal_target_hertz",
            "beats per second that a session is to reach; of a deadline, one over it",
            |session| Some(session.target),
        ),
        ("goal_rate_hertz", "beats per second of late", |session| {
            session.rate
        }),
        (
            "goal_demand_fast_cores",
            "CPUs of the fastest core type that the target takes",
            |session| session.demand,
        ),
        (
            "goal_allotment_fast_cores",
            "CPUs of the fastest core type that a session is given",
            |session| session.allotment,
        ),
        (
            "goal_weight",
            "how much a goal counts where all together exceed the machine",
            |session| Some(session.weight.into()),
        ),
        (
            "goal_missed",
            "1 while a session misses its goal",
            |session| Some(session.reason.is_some().into()),
        ),
    ];
    for (name, help, of) in families {
        let sessions = goals.sessions.iter();
        let mut known = sessions
            .filter_map(|session| Some((session, of(session)?)))
            .peekable();
        if known.peek().is_some() {
            text.family(name, "gauge", help);
        }
        for (session, value) in known {
            // A process may have several sessions, of one name.
            let labels = [
                ("session", &*session.id.to_string()),
                ("pid", &*session.pid.to_string()),
                ("name", &session.name),
            ];
            text.sample(name, &labels, value);
        }
    }
}

/// Every count by its name and description, as the statistics have them.
fn counts(text: &mut Text, counts: &Counts) {
    let Ok(serde_json::Value::Object(counts)) = serde_json::to_value(counts) else {
        return;
    };
    let described = Counts::meta().fields;
    for (name, value) in counts {
        let help = described
            .get(&name)
            .and_then(|field| field.attrs.desc.as_deref());
        let value = value.as_f64().unwrap_or_default();
        // Prometheus counts time in seconds.
        let (name, help, value) = match name.strip_suffix("_ns") {
            Some(name) => (
                format!("{name}_seconds_total"),
                "seconds in NWC mode",
                value / 1e9,
            ),
            None => (format!("{name}_total"), help.unwrap_or_default(), value),
        };
        text.family(&name, "counter", help);
        text.sample(&name, &[], value);
    }
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP scx_hetero_{name} {help}");
        let _ = writeln!(self.0, "# TYPE scx_hetero_{name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let _ = write!(self.0, "scx_hetero_{name}");
        for (i, (label, of)) in labels.iter().enumerate() {
            let of = of
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            let _ = write!(self.0, "{}{label}=\"{of}\"", if i == 0 { '{' } else { ',' });
        }
        let _ = writeln!(
            self.0,
            "{} {value}",
            if labels.is_empty() { "" } else { "}" }
        );
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }
}

#[cfg(test)]
mod tests {
    use hetero_core::goals::Miss;

    use super::*;
    use crate::stats::live::{LiveCache, LiveCoreType, LiveCpu, LiveEnergy, LiveProgram};

    #[test]
    fn every_metric_has_a_help_and_a_type_and_labels_are_quoted() {
        let live = Live {
            policy: "a\\b\"c\nd".into(),
            fairness: Some(50),
            unfairness: Some(1.25),
            joules: Some(2.5),
            energy: vec![LiveEnergy {
                part: "P".into(),
                joules: 1.5,
                watts: None,
            }],
            programs: vec![LiveProgram {
                pid: 7,
                comm: "sort".into(),
                joules: 1.25,
            }],
            caches: vec![LiveCache {
                pid: 7,
                comm: "sort".into(),
                bytes: 1_572_864.0,
            }],
            goals: LiveGoals::of(vec![
                GoalStatus {
                    id: 3,
                    pid: 7,
                    name: "a\\b\"c\nd".into(),
                    weight: 200,
                    target: 30.0,
                    rate: Some(24.5),
                    demand: Some(3.25),
                    allotment: Some(2.5),
                    reason: Some(Miss::Machine { lacks: 0.75 }.to_string()),
                    ..GoalStatus::default()
                },
                GoalStatus {
                    id: 4,
                    pid: 7,
                    name: "new".into(),
                    weight: 100,
                    target: 0.5,
                    ..GoalStatus::default()
                },
                GoalStatus::default(),
            ]),
            core_types: vec![LiveCoreType {
                name: "P".into(),
                cpus: 1,
                ..LiveCoreType::default()
            }],
            cpus: vec![LiveCpu {
                busy_pct: 12.5,
                mhz: Some(4400),
                ..LiveCpu::default()
            }],
            total_counts: Counts {
                nwc_ns: 1_500_000_000,
                swapped: 7,
                ..Counts::default()
            },
            ..Live::default()
        };
        let text = render(&live);
        for line in [
            r#"scx_hetero_info{policy="a\\b\"c\nd"} 1"#,
            "scx_hetero_fairness_ratio 0.5",
            "scx_hetero_unfairness 1.25",
            "scx_hetero_energy_joules_total 2.5",
            r#"scx_hetero_energy_part_joules_total{part="P"} 1.5"#,
            r#"scx_hetero_process_joules_total{pid="7",comm="sort"} 1.25"#,
            r#"scx_hetero_process_llc_bytes{pid="7",comm="sort"} 1572864"#,
            "# TYPE scx_hetero_goal_rate_hertz gauge",
            "scx_hetero_goal_sessions 2",
            "scx_hetero_goal_sessions_missed 1",
            r#"scx_hetero_goal_target_hertz{session="3",pid="7",name="a\\b\"c\nd"} 30"#,
            r#"scx_hetero_goal_target_hertz{session="4",pid="7",name="new"} 0.5"#,
            r#"scx_hetero_goal_rate_hertz{session="3",pid="7",name="a\\b\"c\nd"} 24.5"#,
            r#"scx_hetero_goal_demand_fast_cores{session="3",pid="7",name="a\\b\"c\nd"} 3.25"#,
            r#"scx_hetero_goal_allotment_fast_cores{session="3",pid="7",name="a\\b\"c\nd"} 2.5"#,
            r#"scx_hetero_goal_weight{session="3",pid="7",name="a\\b\"c\nd"} 200"#,
            r#"scx_hetero_goal_missed{session="3",pid="7",name="a\\b\"c\nd"} 1"#,
            r#"scx_hetero_goal_missed{session="4",pid="7",name="new"} 0"#,
            "scx_hetero_saves_energy 0",
            r#"scx_hetero_core_type_cpus{core_type="P"} 1"#,
            r#"scx_hetero_cpu_busy_ratio{cpu="0",core_type="P"} 0.125"#,
            r#"scx_hetero_cpu_hertz{cpu="0",core_type="P"} 4400000000"#,
            "# HELP scx_hetero_swapped_total tasks that arrived on the CPU of their swap partner",
            "# TYPE scx_hetero_swapped_total counter",
            "scx_hetero_swapped_total 7",
            "scx_hetero_nwc_seconds_total 1.5",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\n{text}");
        }
        // What is not known is left out, and everything else is explained, once.
        assert!(!text.contains("_asp"));
        assert!(!text.contains(r#"_goal_rate_hertz{session="4""#));
        let (mut helps, mut names) = (Vec::new(), Vec::new());
        for line in text.lines() {
            match line.strip_prefix("# HELP ") {
                Some(help) => {
                    let (name, help) = help.split_once(' ').unwrap();
                    assert!(!help.is_empty(), "{name}");
                    helps.push(name);
                }
                None if !line.starts_with('#') => {
                    names.push(line.split(['{', ' ']).next().unwrap())
                }
                None => {}
            }
        }
        names.dedup();
        assert_eq!(helps, names);
    }
}
