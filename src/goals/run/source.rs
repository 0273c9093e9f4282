// SPDX-License-Identifier: GPL-2.0-only
//! Where the beats of a program come from that does not tell them.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use crossbeam::channel::Receiver;
use nix::errno::Errno;

use super::events::{WatchedEvents, is_group, unknown};
use super::kind::BeatKind;
use super::libraries::{own_place, places};
use crate::connections::peer::descends;
use crate::pmc::target::threads;
use crate::pmu::{Counter, CounterOptions, MachinePmus, Meaning, Target};

/// How often it is looked whether something is done.
const GLANCE: Duration = Duration::from_millis(10);

/// Where beats come from.
pub(super) enum BeatSource {
    /// From a thread that passes on what the program prints; it tells its end.
    Passed(Receiver<()>),
    /// From what all processes do.
    OfAll(WatchedEvents),
    /// From what the program alone does.
    Own(WatchedEvents),
    /// From what its threads count.
    Instructions(Instructions),
}

impl BeatSource {
    /// Of `program`, which the thread `tid`, which is ours, is about to start; `None` where that has to print its beats.
    ///
    /// # Errors
    /// Why beats cannot be seen so, and what to do.
    pub(super) fn of_command(beat: &BeatKind, program: &str, tid: i32) -> Result<Option<Self>> {
        Ok(Some(match beat {
            BeatKind::Function(files, symbol) => {
                let places = match own_place(program, symbol) {
                    Some(own) if !files[0].contains('/') => vec![own],
                    _ => places(files, symbol, None)?,
                };
                Self::OfAll(WatchedEvents::functions(&places)?)
            }
            BeatKind::Tracepoint(group, name) => {
                Self::Own(WatchedEvents::tracepoint_of(group, name, tid)?)
            }
            BeatKind::Instructions(each) => Self::Instructions(Instructions::open(*each, &[tid])?),
            BeatKind::Lines(_) | BeatKind::Bytes(..) | BeatKind::Either(..) => return Ok(None),
        }))
    }

    /// Of a process that runs, and of what it has started; nothing is waited for once `stop` is set.
    ///
    /// # Errors
    /// As with a command; and what it prints cannot be seen.
    pub(super) fn of_process(beat: &BeatKind, pid: u32, stop: &AtomicBool) -> Result<Self> {
        Ok(match beat {
            BeatKind::Function(files, symbol) => {
                let (files, symbol) = (files.clone(), symbol.clone());
                let places = unless(stop, move || places(&files, &symbol, Some(pid)))?;
                Self::OfAll(WatchedEvents::functions(&places)?)
            }
            BeatKind::Tracepoint(group, name) => {
                Self::OfAll(WatchedEvents::tracepoint(group, name)?)
            }
            BeatKind::Instructions(each) => {
                let tids = threads_of_family(pid)?;
                Self::Instructions(Instructions::open(*each, &tids)?)
            }
            BeatKind::Lines(_) | BeatKind::Bytes(..) | BeatKind::Either(..) => bail!(
                "what a process prints that runs already cannot be seen: name another --beat, such as x264, \
                 LIBRARY:SYMBOL or instructions"
            ),
        })
    }
}

/// Does what may take for ever, as reading a file does that another user serves, until `stop` is set.
fn unless<T: Send + 'static>(
    stop: &AtomicBool,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let thread = thread::spawn(work);
    while !thread.is_finished() {
        ensure!(
            !stop.load(Ordering::Relaxed),
            "it was ended before anything was watched"
        );
        thread::sleep(GLANCE);
    }
    let outcome = thread.join();
    outcome.unwrap_or_else(|_| bail!("what was looked at makes no sense"))
}

/// The threads of a process, and of all that it has started.
fn threads_of_family(pid: u32) -> Result<Vec<i32>> {
    let mut tids = threads(pid)?;
    let all = fs::read_dir("/proc")
        .context("cannot read /proc")?
        .flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for child in all.filter(|&other| descends(other, pid)) {
        // It may have ended.
        tids.extend(threads(child).unwrap_or_default());
    }
    Ok(tids)
}

/// Which of the two is meant that two words may be.
///
/// # Errors
/// Neither can be found.
pub(super) fn decided(beat: &BeatKind, pid: Option<u32>) -> Result<BeatKind> {
    let BeatKind::Either(first, second) = beat else {
        return Ok(beat.clone());
    };
    let files = vec![first.clone()];
    let is_tracepoint = match is_group(first) {
        Some(known) => known,
        // Of a process that runs it is found out below.
        None if pid.is_some() => false,
        None => {
            places(&files, second, None).map_err(|error| unknown(&error))?;
            false
        }
    };
    Ok(match is_tracepoint {
        true => BeatKind::Tracepoint(first.clone(), second.clone()),
        false => BeatKind::Function(files, second.clone()),
    })
}

/// Instructions of the program and all that it starts, on every core type.
pub(super) struct Instructions {
    counters: Vec<Counter>,
    each: u64,
    told: u64,
}

impl Instructions {
    /// Counts in these threads, and in all that they start from now on.
    ///
    /// # Errors
    /// Why they cannot be counted.
    pub(super) fn open(each: u64, tids: &[i32]) -> Result<Self> {
        let options = CounterOptions {
            // Without it everybody may count; and it is the program's own work.
            exclude_kernel: true,
            inherit: true,
            ..CounterOptions::default()
        };
        let mut counters = Vec::new();
        for pmu in &MachinePmus::detect().pmus {
            let Some(encoding) = pmu.meaning(Meaning::Instructions) else {
                continue;
            };
            for &tid in tids {
                let counter = Counter::open(pmu, &encoding, Target::Thread(tid), None, options);
                match counter {
                    Ok(counter) => counters.push(counter),
                    // It has ended since its process was looked at.
                    Err(error) if tids.len() > 1 && error.errno == Errno::ESRCH => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        ensure!(
            !counters.is_empty(),
            "instructions cannot be counted: 'scx_hetero doctor' says why, unless the process has ended"
        );
        Ok(Self {
            counters,
            each,
            told: 0,
        })
    }

    /// Beats since the last call.
    pub(super) fn beats(&mut self) -> u64 {
        let counts = self.counters.iter().flat_map(Counter::read).map(|reading| {
            // Where others count, too, it was counted for a part of the time.
            let part = reading.enabled as f64 / reading.running.max(1) as f64;
            (reading.value as f64 * part) as u64
        });
        let all = counts.sum::<u64>() / self.each;
        let beats = all.saturating_sub(self.told);
        self.told += beats;
        beats
    }
}
