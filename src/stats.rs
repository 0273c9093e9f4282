// SPDX-License-Identifier: GPL-2.0-only
//! Live statistics: running totals inside, rates per interval on the wire.

mod client;
mod counts;
mod http;
pub mod live;
pub mod prometheus;
pub mod rates;
mod request;
mod serve;

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};

use crate::text::{percent, printable};
use crate::topology::MAX_CORE_TYPES;
pub use client::Client;
pub use counts::{Counts, OfBpf};
pub use hetero_core::agent::{story, work};
pub use hetero_core::energy::ledger::EnergySums;
pub use request::{Answer, Request};
pub use serve::{SOCKET, StatisticsServer, default_group, explain, parse_group};

/// How many processes are listed, by CPU time.
const LISTED: usize = 10;

/// What the scheduler counted since it started.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Monotonic time, ns.
    pub at_ns: u64,
    /// Name of the policy.
    pub policy: String,
    /// One per core type, fastest first.
    pub core_types: Vec<CoreTypeTotals>,
    /// By process id.
    pub processes: BTreeMap<u32, ProcessTotals>,
    /// Tasks in the table, and how many of them were runnable.
    pub tasks: u64,
    /// See `tasks`.
    pub runnable: u64,
    /// Tasks found again after the last restart.
    pub carried: u64,
    /// Energy; `None` where it cannot be counted.
    pub energy: Option<EnergyTotals>,
    /// Whether efficient cores are filled first.
    pub saves: bool,
    /// Events.
    pub counts: Counts,
}

/// Energy of the processors since the scheduler began, J.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EnergyTotals {
    /// When sensors were last read: monotonic time, ns.
    pub at_ns: u64,
    /// All of it: of packages, or of cores where nothing counts those.
    pub joules: f64,
    /// Of memory, where it is counted apart.
    pub memory: Option<f64>,
    /// What took it, from a moment after the beginning on.
    pub sums: Option<EnergySums>,
}

/// A core type's totals.
#[derive(Clone, Debug, Default)]
pub struct CoreTypeTotals {
    /// Its name.
    pub name: String,
    /// Its online CPUs.
    pub cpus: u64,
    /// CPU time used, ns.
    pub busy_ns: u64,
    /// Sum of the performance that its CPUs are asked for, each of 1024.
    pub perf: u64,
}

/// A process's totals, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct ProcessTotals {
    /// Name of its first thread.
    pub name: String,
    /// Threads that have run for some milliseconds.
    pub threads: u64,
    /// Runnable threads, when one of them was last charged.
    pub runnable: u64,
    /// CPU time on the fastest core type.
    pub big_ns: u64,
    /// CPU time in all.
    pub total_ns: u64,
    /// Sum of what its threads' `amp_progress` grew by.
    pub progress_ns: u64,
    /// What the counters said while it ran.
    pub counted: ProcessCounts,
    /// Its energy since its first thread was seen, J, where that is known.
    pub joules: Option<f64>,
    /// What it has of last-level caches and of memory, where that is known.
    pub caches: ProcessCaches,
    /// Threads that it is advised to use, if it has subscribed; 0 where nothing was found out yet.
    pub advised: usize,
}

/// What a process has of last-level caches and of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessCaches {
    /// Bytes that caches hold for it.
    pub bytes: Option<f64>,
    /// Hardware has counted them, and they are not estimated.
    pub measured: bool,
    /// Bytes/s to and from memory, as hardware has counted them.
    pub moved: Option<f64>,
    /// It is confined to few ways of them.
    pub confined: bool,
}

/// Sums over a process's samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessCounts {
    /// Run time that was counted, ns.
    pub run_ns: u64,
    /// Instructions, user and kernel mode together.
    pub instructions: u64,
    /// Cycles, likewise.
    pub cycles: u64,
}

/// Of a core type.
#[stat_doc]
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
#[stat(desc = "one core type", _om_prefix = "type_", _om_label = "core_type")]
pub struct CoreTypeStats {
    #[stat(desc = "rank: 0 is the fastest core type")]
    pub rank: u64,
    #[stat(desc = "online CPUs")]
    pub cpus: u64,
    #[stat(desc = "busy, percent of all its CPUs")]
    pub busy_pct: f64,
    #[stat(desc = "performance that its CPUs are asked for at the moment, mean in percent")]
    pub perf_pct: f64,
    #[stat(desc = "power of the threads on it, watts; 0 where it cannot be told")]
    pub watts: f64,
}

/// Of a process.
#[stat_doc]
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
#[stat(desc = "one process", _om_prefix = "process_", _om_label = "pid")]
pub struct ProcessStats {
    #[stat(desc = "name of its first thread")]
    pub name: String,
    #[stat(desc = "threads that have run for some milliseconds")]
    pub threads: u64,
    #[stat(desc = "runnable threads, when one of them last ran")]
    pub runnable: u64,
    #[stat(desc = "CPU time, percent of one CPU")]
    pub cpu_pct: f64,
    #[stat(desc = "share of its CPU time spent on the fastest core type, percent")]
    pub big_pct: f64,
    #[stat(desc = "progress (amp_progress), percent of one thread alone at the fastest core type")]
    pub progress_pct: f64,
    #[stat(desc = "instructions per cycle; 0 if they were not counted")]
    pub ipc: f64,
    #[stat(desc = "its part of the cores' power, watts; 0 where it cannot be told")]
    pub watts: f64,
    #[stat(desc = "last-level cache that it holds, MiB; 0 where it cannot be told")]
    pub llc_mib: f64,
    #[stat(desc = "1 if hardware (resctrl) has counted that, 0 if it is estimated from misses")]
    pub llc_measured: u64,
    #[stat(desc = "1 if it is confined to few ways of that cache (--partition)")]
    pub llc_confined: u64,
    #[stat(desc = "traffic with memory that hardware (resctrl) has counted, MB/s; 0 without")]
    pub memory_mb_s: f64,
    #[stat(
        desc = "threads that it is advised to use; 0 if it does not ask, or nothing is known yet"
    )]
    pub advised_threads: u64,
}

/// All that the scheduler tells of an interval.
#[stat_doc]
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
#[stat(top)]
pub struct Metrics {
    #[stat(desc = "policy in force")]
    pub policy: String,
    #[stat(desc = "tasks in the table: those that have run for some milliseconds")]
    pub tasks: u64,
    #[stat(desc = "tasks in the table that were runnable at the end of the interval")]
    pub runnable: u64,
    #[stat(desc = "tasks known from before when the scheduler started anew, as CPUs came or went")]
    pub carried: u64,
    #[stat(desc = "power of the processor packages, watts; 0 where it cannot be counted")]
    pub watts: f64,
    #[stat(desc = "of it, what idle CPUs and all beside the cores take, watts")]
    pub idle_watts: f64,
    #[stat(desc = "1 while energy is saved: efficient cores are filled first")]
    pub saves: u64,
    #[stat(desc = "core types by name")]
    pub core_types: BTreeMap<String, CoreTypeStats>,
    #[stat(desc = "the busiest processes by process id")]
    pub processes: BTreeMap<u32, ProcessStats>,
    #[stat(desc = "events in the interval")]
    pub counts: Counts,
}

impl ProcessCounts {
    fn ipc_since(&self, before: &Self) -> f64 {
        let cycles = self.cycles.saturating_sub(before.cycles);
        let instructions = self.instructions.saturating_sub(before.instructions);
        if cycles == 0 {
            0.0
        } else {
            instructions as f64 / cycles as f64
        }
    }
}

/// Power between two readings, W, of something that has taken so many joules by each; `None` where sensors have
/// not been read since the first.
pub fn watts(
    before: &Totals,
    now: &Totals,
    joules: impl Fn(&Totals) -> Option<f64>,
) -> Option<f64> {
    let at_ns = |totals: &Totals| Some(totals.energy?.at_ns);
    let seconds = at_ns(now)?.saturating_sub(at_ns(before)?) as f64 / 1e9;
    let grown = joules(now)? - joules(before)?;
    (seconds > 0.0).then(|| (grown / seconds).max(0.0))
}

/// The same of what sums have by name.
pub fn part_watts(before: &Totals, now: &Totals, part: impl Fn(&EnergySums) -> f64) -> Option<f64> {
    watts(before, now, |totals| {
        totals.energy?.sums.as_ref().map(&part)
    })
}

impl Metrics {
    /// The rates between two readings.
    pub fn between(before: &Totals, now: &Totals) -> Self {
        let elapsed = now.at_ns.saturating_sub(before.at_ns);
        let core_types = now.core_types.iter().enumerate().map(|(rank, kind)| {
            let earlier = before.core_types.get(rank).map_or(0, |kind| kind.busy_ns);
            let busy = kind.busy_ns.saturating_sub(earlier);
            let stats = CoreTypeStats {
                rank: rank as u64,
                cpus: kind.cpus,
                busy_pct: percent(busy, elapsed * kind.cpus).min(100.0),
                perf_pct: percent(kind.perf, 1024 * kind.cpus),
                watts: part_watts(before, now, |sums| {
                    sums.threads[rank.min(MAX_CORE_TYPES - 1)]
                })
                .unwrap_or_default(),
            };
            (kind.name.clone(), stats)
        });
        let mut processes: Vec<_> = now
            .processes
            .iter()
            .map(|(&pid, process)| {
                let none = ProcessTotals::default();
                let earlier = before.processes.get(&pid).unwrap_or(&none);
                let total = process.total_ns.saturating_sub(earlier.total_ns);
                let big = process.big_ns.saturating_sub(earlier.big_ns);
                let progress = process.progress_ns.saturating_sub(earlier.progress_ns);
                let stats = ProcessStats {
                    name: process.name.clone(),
                    threads: process.threads,
                    runnable: process.runnable,
                    cpu_pct: percent(total, elapsed),
                    big_pct: percent(big, total),
                    progress_pct: percent(progress, elapsed),
                    ipc: process.counted.ipc_since(&earlier.counted),
                    watts: watts(before, now, |totals| {
                        totals
                            .processes
                            .get(&pid)
                            .and_then(|process| process.joules)
                    })
                    .unwrap_or_default(),
                    llc_mib: process.caches.bytes.unwrap_or_default() / f64::from(1 << 20),
                    llc_measured: process.caches.measured.into(),
                    llc_confined: process.caches.confined.into(),
                    memory_mb_s: process.caches.moved.unwrap_or_default() / 1e6,
                    advised_threads: process.advised as u64,
                };
                (pid, stats)
            })
            .filter(|(_, stats)| stats.cpu_pct >= 0.1)
            .collect();
        processes.sort_by(|a, b| b.1.cpu_pct.total_cmp(&a.1.cpu_pct));
        processes.truncate(LISTED);
        Self {
            policy: now.policy.clone(),
            tasks: now.tasks,
            runnable: now.runnable,
            carried: now.carried,
            watts: watts(before, now, |totals| Some(totals.energy?.joules)).unwrap_or_default(),
            idle_watts: part_watts(before, now, |sums| sums.idle + sums.uncore).unwrap_or_default(),
            saves: now.saves.into(),
            core_types: core_types.collect(),
            processes: processes.into_iter().collect(),
            counts: now.counts.since(&before.counts),
        }
    }

    /// Writes a block of lines, 80 columns wide at most.
    pub fn format(&self, out: &mut dyn Write) -> Result<()> {
        let mut kinds: Vec<_> = self.core_types.iter().collect();
        kinds.sort_by_key(|(_, kind)| kind.rank);
        write!(
            out,
            "policy {}  tasks {} ({} runnable)",
            self.policy, self.tasks, self.runnable
        )?;
        for (name, kind) in &kinds {
            write!(out, "  {name} {:.0}%", kind.busy_pct)?;
        }
        if self.watts > 0.0 {
            write!(out, "  {:.1} W", self.watts)?;
        }
        if self.saves > 0 {
            write!(out, "  saving")?;
        }
        let counts = &self.counts;
        writeln!(
            out,
            "\n  direct {} queued {} stolen {} rotated {} upgraded {} actions {} swapped {}",
            counts.direct,
            counts.queued,
            counts.stolen,
            counts.rotated,
            counts.upgraded,
            counts.actions_applied,
            counts.swapped
        )?;
        let counting = counts.stretches > 0;
        if counting {
            writeln!(
                out,
                "  samples {} lost {} jumped {} spun {} refused {}  not believed {:.1}% of {} stretches",
                counts.samples,
                counts.samples_lost,
                counts.samples_jumped,
                counts.samples_spun,
                counts.samples_refused,
                percent(counts.stretches_discarded, counts.stretches),
                counts.stretches
            )?;
        }
        let phases = counts.phase_hits + counts.phase_misses;
        if phases > 0 {
            writeln!(
                out,
                "  phase hits {:.0}% of {} samples  learned from {} of them, {} of new phases",
                percent(counts.phase_hits, phases),
                phases,
                counts.samples_learned,
                counts.phases_learned
            )?;
            writeln!(
                out,
                "  forced swaps {}  NWC mode entered {} learned {} parked {} held {}",
                counts.forced_swaps,
                counts.nwc_episodes,
                counts.nwc_learned,
                counts.parked,
                counts.held
            )?;
        }
        // For the column of watts another becomes narrower: lines end at 80.
        let has_watts = self.processes.values().any(|process| process.watts > 0.0);
        let many = if has_watts { 4 } else { 7 };
        let fastest = kinds.first().map_or("", |(name, _)| name.as_str());
        let on_fastest = format!("ON {fastest}");
        writeln!(
            out,
            "  {:>7} {:<16} {:>many$} {:>8} {:>7} {:>8} {:>9}{}{}",
            "PID",
            "NAME",
            if has_watts { "THR" } else { "THREADS" },
            "RUNNABLE",
            "CPU",
            on_fastest,
            "PROGRESS",
            if counting { "    IPC" } else { "" },
            if has_watts { "     W" } else { "" }
        )?;
        let mut processes: Vec<_> = self.processes.iter().collect();
        processes.sort_by(|a, b| b.1.cpu_pct.total_cmp(&a.1.cpu_pct));
        for (pid, process) in processes {
            let ipc = match process.ipc {
                _ if !counting => String::new(),
                0.0 => "      -".into(),
                ipc => format!(" {ipc:>6.2}"),
            };
            let watts = match has_watts {
                true => format!(" {:>5.1}", process.watts),
                false => String::new(),
            };
            writeln!(
                out,
                "  {pid:>7} {:<16} {:>many$} {:>8} {:>6.1}% {:>7.1}% {:>8.1}%{ipc}{watts}",
                process.name,
                process.threads,
                process.runnable,
                process.cpu_pct,
                process.big_pct,
                process.progress_pct
            )?;
        }
        writeln!(out)?;
        Ok(())
    }
}

/// Prints the running scheduler's statistics every `interval` until `stop`.
/// Returns quietly when standard output is closed.
pub fn monitor(interval: Duration, stop: &Arc<AtomicBool>) -> Result<()> {
    let mut first = true;
    scx_utils::monitor_stats::<Metrics>(
        &[],
        interval,
        || stop.load(Ordering::Relaxed),
        |metrics| {
            // The first reading spans no time.
            if !std::mem::take(&mut first) {
                let mut block = Vec::new();
                metrics.format(&mut block)?;
                let block = printable(str::from_utf8(&block)?);
                std::io::stdout().lock().write_all(block.as_bytes())?;
            }
            Ok(())
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(at_ns: u64, big_ns: u64, total_ns: u64) -> Totals {
        let process = |name: &str| ProcessTotals {
            name: name.into(),
            threads: 4,
            runnable: 3,
            big_ns,
            total_ns,
            progress_ns: total_ns / 2,
            counted: ProcessCounts {
                run_ns: total_ns,
                instructions: 3 * total_ns,
                cycles: 2 * total_ns,
            },
            joules: Some(total_ns as f64 / 1e9 * 50.0),
            caches: ProcessCaches::default(),
            advised: 0,
        };
        Totals {
            at_ns,
            policy: "rr".into(),
            core_types: vec![
                CoreTypeTotals {
                    name: "P".into(),
                    cpus: 2,
                    busy_ns: big_ns,
                    perf: 0,
                },
                CoreTypeTotals {
                    name: "LP-E".into(),
                    cpus: 2,
                    busy_ns: total_ns - big_ns,
                    perf: 0,
                },
            ],
            processes: (0..20)
                .map(|pid| (4_000_000 + pid, process("a-name-of-15-ch")))
                .collect(),
            tasks: 10_000,
            runnable: 1_000,
            carried: 0,
            energy: Some(EnergyTotals {
                at_ns,
                joules: total_ns as f64 / 1e9 * 1000.0,
                memory: None,
                sums: Some(EnergySums {
                    idle: total_ns as f64 / 1e9 * 100.0,
                    ..EnergySums::default()
                }),
            }),
            saves: true,
            counts: Counts {
                direct: 123_456,
                swapped: 999,
                queued: 123_456,
                stolen: 999,
                actions_applied: 9_999,
                ..Counts::default()
            },
        }
    }

    #[test]
    fn rates_are_differences_over_elapsed_time() {
        let second = 1_000_000_000;
        let metrics = Metrics::between(&totals(0, 0, 0), &totals(second, second / 2, second));
        assert_eq!(metrics.core_types["P"].busy_pct, 25.0);
        let process = metrics.processes.values().next().unwrap();
        assert_eq!(
            (process.cpu_pct, process.big_pct, process.progress_pct),
            (100.0, 50.0, 50.0)
        );
        assert_eq!(metrics.processes.len(), LISTED);
        assert_eq!((metrics.watts, metrics.idle_watts), (1000.0, 100.0));
        assert_eq!(process.watts, 50.0);
    }

    #[test]
    fn a_block_fits_the_terminal() {
        let metrics = Metrics::between(&totals(0, 0, 0), &totals(1_000_000, 500_000, 1_000_000));
        let mut text = Vec::new();
        metrics.format(&mut text).unwrap();
        for line in String::from_utf8(text).unwrap().lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
