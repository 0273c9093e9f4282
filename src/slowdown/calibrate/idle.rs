// SPDX-License-Identifier: GPL-2.0-only
//! What else goes on while one wants to measure.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// A machine busier than this is not idle.
pub(super) const MOST_PERCENT: f64 = 10.0;

/// For which it looks at a time.
const LOOK: Duration = Duration::from_millis(500);

/// How often it looks: the command that starts us, or a boot, is soon over.
const LOOKS: usize = 6;

/// How busy the CPUs are, in percent of all of their time; the first that is little enough, or
/// else the last. 0 if nobody says.
pub(super) fn busy_percent() -> f64 {
    let mut busy = look();
    for _ in 1..LOOKS {
        if busy <= MOST_PERCENT {
            break;
        }
        busy = look();
    }
    busy
}

fn look() -> f64 {
    let before = times(&fs::read_to_string("/proc/stat").unwrap_or_default());
    thread::sleep(LOOK);
    let after = times(&fs::read_to_string("/proc/stat").unwrap_or_default());
    let (busy, all) = (after.0 - before.0, after.1 - before.1);
    if all > 0.0 { 100.0 * busy / all } else { 0.0 }
}

/// Busy and whole time of all CPUs, ticks.
fn times(stat: &str) -> (f64, f64) {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    busy_and_all(line.unwrap_or_default().split_whitespace())
}

/// Of a CPU's line in `/proc/stat`, without its name: busy and whole time, ticks.
pub(crate) fn busy_and_all<'a>(fields: impl Iterator<Item = &'a str>) -> (f64, f64) {
    // user nice system idle iowait irq softirq steal; what follows is part of the first two.
    let ticks = fields.take(8).enumerate();
    let ticks = ticks.filter_map(|(place, ticks)| Some((place, ticks.parse::<f64>().ok()?)));
    ticks.fold((0.0, 0.0), |(busy, all), (place, ticks)| match place {
        3 | 4 => (busy, all + ticks),
        _ => (busy + ticks, all + ticks),
    })
}

/// The sched_ext scheduler that is attached now, by what `sysfs` says below its folder.
pub(super) fn attached_scheduler(sysfs: &Path) -> Option<String> {
    let read = |file: &str| fs::read_to_string(sysfs.join(file)).ok();
    let enabled = read("state")?.trim() == "enabled";
    let name = read("root/ops").unwrap_or_default();
    enabled.then(|| name.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_disks_is_idle_and_stolen_time_is_not() {
        let stat = "cpu  10 1 5 100 20 1 2 3 7 0\ncpu0 1 1 1 1\n";
        assert_eq!(times(stat), (22.0, 142.0));
        assert_eq!(times(""), (0.0, 0.0));
    }

    #[test]
    fn an_attached_scheduler_is_known_by_name() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(attached_scheduler(folder.path()), None);
        fs::create_dir(folder.path().join("root")).unwrap();
        fs::write(folder.path().join("root/ops"), "hetero\n").unwrap();
        fs::write(folder.path().join("state"), "enabled\n").unwrap();
        assert_eq!(attached_scheduler(folder.path()).as_deref(), Some("hetero"));
        fs::write(folder.path().join("state"), "disabled\n").unwrap();
        assert_eq!(attached_scheduler(folder.path()), None);
    }
}
