// SPDX-License-Identifier: GPL-2.0-only
//! Where each thread was at the last readings.

use std::collections::{HashMap, VecDeque};

use crate::stats::live::LiveThread;

/// How many are kept.
pub const READINGS: usize = 60;

/// By thread id, oldest first: the core type where it ran, `None` while it slept.
#[derive(Clone, Debug, Default)]
pub struct Timelines(HashMap<u32, VecDeque<Option<usize>>>);

impl Timelines {
    /// Takes in a reading.
    pub fn push(&mut self, threads: &[LiveThread]) {
        for line in self.0.values_mut() {
            if line.len() == READINGS {
                line.pop_front();
            }
            line.push_back(None);
        }
        for thread in threads.iter().filter(|thread| thread.load_pct > 0.0) {
            let line = self.0.entry(thread.tid);
            let line = line.or_insert_with(|| VecDeque::from([None]));
            if let Some(now) = line.back_mut() {
                *now = Some(thread.core_type);
            }
        }
        self.0.retain(|_, line| line.iter().any(Option::is_some));
    }

    /// A row for each core type, with a mark for each reading; nothing of threads that never ran.
    pub fn rows<'a>(
        &self,
        tid: u32,
        core_types: impl Iterator<Item = &'a str> + Clone,
        mark: char,
    ) -> Vec<String> {
        let Some(line) = self.0.get(&tid) else {
            return Vec::new();
        };
        let wide = core_types.clone().map(str::len).max().unwrap_or(0);
        let rows = core_types.enumerate().map(|(core_type, name)| {
            let label = if core_type == 0 { "where" } else { "" };
            let there = |&at: &Option<usize>| if at == Some(core_type) { mark } else { ' ' };
            let marks: String = line.iter().map(there).collect();
            let row = format!("  {label:<9}{name:<wide$}  {marks}");
            row.trim_end().to_string()
        });
        let caption = format!(
            "{:11}{:wide$}  (a mark a reading, the last at the right)",
            "", ""
        );
        rows.chain([caption]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_seen_to_move_sleep_and_end() {
        let mut timelines = Timelines::default();
        let thread = |core_type: usize, load_pct| LiveThread {
            tid: 7,
            core_type,
            load_pct,
            ..LiveThread::default()
        };
        for (core_type, load) in [(0, 90.0), (0, 90.0), (1, 0.0), (1, 50.0)] {
            timelines.push(&[thread(core_type, load)]);
        }
        let rows = |timelines: &Timelines| timelines.rows(7, ["P", "E"].into_iter(), '#');
        assert_eq!(
            rows(&timelines)[..2],
            ["  where    P  ##", "           E     #"]
        );
        for _ in 0..READINGS {
            timelines.push(&[]);
        }
        assert!(rows(&timelines).is_empty() && timelines.0.is_empty());
    }
}
