// SPDX-License-Identifier: GPL-2.0-only
//! Stretches of a program's run: some alone, some beside an antagonist. All are of one process, for where its pages
//! lie in memory makes caches hit more or less often, by some 5 % from run to run.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use crossbeam::channel::Receiver;

use super::super::run::{FETCH, RunningProgram};
use super::super::windows::{Window, total};

/// What a stretch is.
#[derive(Clone, Copy, Debug)]
pub(super) struct StretchLimits {
    /// So many windows at its beginning are left out: caches are not as they will be.
    pub skipped: usize,
    /// It has at least so many more,
    pub windows: usize,
    /// and takes at least so long,
    pub least: Duration,
    /// and ends after so long, with fewer windows.
    pub most: Duration,
}

/// What a program did in a stretch.
#[derive(Clone, Debug, Default)]
pub(super) struct Stretch {
    /// As many as were asked for, each of several windows where there were more.
    pub windows: Vec<Window>,
    /// Part of the time in which its first thread ran or waited for a CPU, 0 to 1; `None` if that was too short.
    pub awake: Option<f64>,
}

/// Measures a stretch; `None` if `stop` said so.
///
/// # Errors
/// The program has ended, or filled no window.
pub(super) fn stretch(
    running: &mut RunningProgram,
    limits: StretchLimits,
    stop: &Receiver<()>,
) -> Result<Option<Stretch>> {
    // The window that is open began before.
    let skipped = limits.skipped + 1;
    running.cutter.full.clear();
    let (mut begin, mut since) = (Instant::now(), running.awake_for());
    let mut warm = false;
    loop {
        if !running.fetch(stop)? {
            match running.has_ended() {
                true => bail!("it has ended"),
                false => return Ok(None),
            }
        }
        let full = running.cutter.full.len();
        if !warm && full >= skipped {
            warm = true;
            running.cutter.full.drain(..skipped);
            (begin, since) = (Instant::now(), running.awake_for());
            continue;
        }
        let enough = warm && full >= limits.windows && begin.elapsed() >= limits.least;
        if enough || begin.elapsed() >= limits.most {
            break;
        }
    }
    if !warm || running.cutter.full.is_empty() {
        bail!(
            "no window was full after {:.0} s: make windows smaller with --window, or --limit greater",
            limits.most.as_secs_f64()
        );
    }
    let passed = begin.elapsed();
    let awake = since.zip(running.awake_for()).and_then(|(since, now)| {
        let part = now.saturating_sub(since).as_secs_f64() / passed.as_secs_f64();
        (passed >= FETCH).then_some(part.min(1.0))
    });
    let windows = together(&running.cutter.full, limits.windows);
    Ok(Some(Stretch { windows, awake }))
}

/// Equally many windows of `all` in each of no more than `number`.
fn together(all: &[Window], number: usize) -> Vec<Window> {
    let each = (all.len() / number.max(1)).max(1);
    all.chunks_exact(each).take(number).map(total).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_put_together_where_there_are_more() {
        let all: Vec<Window> = (1..=7)
            .map(|n| Window {
                run_ns: f64::from(n),
                counts: vec![1.0],
            })
            .collect();
        let times = |number| -> Vec<f64> {
            let windows = together(&all, number);
            windows.iter().map(|window| window.run_ns).collect()
        };
        assert_eq!(times(3), [3.0, 7.0, 11.0]);
        assert_eq!(times(5), [1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(times(9).len(), 7);
    }
}
