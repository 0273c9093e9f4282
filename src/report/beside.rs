// SPDX-License-Identifier: GPL-2.0-only
//! Which program slows down which: a matrix of the time lost.

use std::collections::HashMap;
use std::fmt::Write as _;

use hetero_core::interference::{CLASSES, Interference, InterferenceClass};

use super::page::escape;
use crate::agent::disturbed::SURE;
use crate::order::greatest_first;
use crate::table::{Comm, Task, TaskId};

/// Programs on either side, at most: those that lost most, and those that took most.
const SIDE: usize = 16;

/// Pairs that are kept while gathering, at most.
const PAIRS: usize = 16_384;

/// Less time lost is not shown, s.
const LEAST_S: f64 = 0.01;

/// A program that is known to slow a thread down, or none.
type By = Option<u32>;

/// What is drawn.
#[derive(Default)]
pub(super) struct BesideMatrix {
    /// Those that are slowed down, with their process ids, and how long they ran, s.
    rows: Vec<(String, f64)>,
    /// By which.
    columns: Vec<String>,
    /// Time lost, s, and to what most.
    lost: Vec<Vec<Option<(f64, InterferenceClass)>>>,
}

/// Gathers it.
#[derive(Default)]
pub(super) struct BesideGatherer {
    ran: HashMap<TaskId, u64>,
    names: HashMap<u32, Comm>,
    all: HashMap<u32, f64>,
    lost: HashMap<(u32, By), [f64; CLASSES]>,
}

impl BesideGatherer {
    /// Takes in a look at the tasks, and what was known of each.
    pub(super) fn take(&mut self, tasks: &[Task], of: impl Fn(TaskId) -> Option<Interference>) {
        for task in tasks.iter().filter(|task| !task.kthread) {
            let name = self.names.entry(task.tgid).or_insert(task.comm);
            if task.tid == task.tgid {
                *name = task.comm;
            }
            let total = task.total_ns();
            let before = self.ran.insert(task.id, total).unwrap_or(total);
            let ran = total.saturating_sub(before) as f64 / 1e9;
            *self.all.entry(task.tgid).or_default() += ran;
            let found = of(task.id).filter(|of| {
                of.class != InterferenceClass::None && of.confidence >= SURE && of.slowdown > 1.0
            });
            let Some(found) = found else { continue };
            let pair = (task.tgid, found.culprit.map(|(pid, _)| pid));
            if self.lost.len() < PAIRS || self.lost.contains_key(&pair) {
                self.lost.entry(pair).or_default()[found.class as usize] += found.lost_s(ran);
            }
        }
    }

    /// All of it.
    pub(super) fn finish(self) -> BesideMatrix {
        let sum = |by: &[f64; CLASSES]| by.iter().sum::<f64>();
        let (mut victims, mut others): (HashMap<u32, f64>, HashMap<By, f64>) = Default::default();
        for ((victim, by), lost) in &self.lost {
            *victims.entry(*victim).or_default() += sum(lost);
            *others.entry(*by).or_default() += sum(lost);
        }
        let victims = most(victims);
        let others = most(others);
        let name = |pid: u32| match self.names.get(&pid) {
            Some(comm) => format!("{comm} {pid}"),
            None => pid.to_string(),
        };
        let cell = |victim: u32, by: By| {
            let lost = self.lost.get(&(victim, by))?;
            let classes = InterferenceClass::ALL.iter().zip(lost);
            let (class, _) = classes.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
            Some((sum(lost), *class)).filter(|(lost, _)| *lost >= LEAST_S)
        };
        let rows = victims.iter().map(|&pid| {
            let ran = self.all.get(&pid).copied().unwrap_or(0.0);
            (name(pid), ran)
        });
        BesideMatrix {
            rows: rows.collect(),
            columns: others
                .iter()
                .map(|by| by.map_or_else(|| "not known".into(), name))
                .collect(),
            lost: victims
                .iter()
                .map(|&pid| others.iter().map(|&by| cell(pid, by)).collect())
                .collect(),
        }
    }
}

/// Those with the greatest sums, the greatest first.
fn most<K: Ord + Copy>(sums: HashMap<K, f64>) -> Vec<K> {
    let all = sums.into_iter().filter(|of| of.1 >= LEAST_S);
    let first = greatest_first(all).into_iter().take(SIDE);
    first.map(|(key, _)| key).collect()
}

/// A table; `None` if nothing was slowed down.
pub(super) fn draw(matrix: &BesideMatrix) -> Option<String> {
    if matrix.rows.is_empty() || matrix.columns.is_empty() {
        return None;
    }
    let mut html =
        String::from("<table>\n<tr><th>slowed down</th><th class=\"number\">ran, s</th>");
    for by in &matrix.columns {
        let _ = write!(html, "<th class=\"number\">by {}</th>", escape(by));
    }
    html += "</tr>\n";
    for ((name, ran), lost) in matrix.rows.iter().zip(&matrix.lost) {
        let name = escape(name);
        let _ = write!(
            html,
            "<tr><td>{name}</td><td class=\"number\">{ran:.1}</td>"
        );
        for cell in lost {
            let Some((seconds, class)) = cell else {
                html += "<td></td>";
                continue;
            };
            // From a shade that is just seen to one that text can still be read on.
            let shade = 8.0 + 42.0 * (seconds / ran.max(0.01)).min(1.0);
            let _ = write!(
                html,
                "<td class=\"number\" style=\"background: color-mix(in srgb, #d1495b {shade:.0}%, \
                 transparent)\">{seconds:.2} s<br><span class=\"pale\">{}</span></td>",
                class.told()
            );
        }
        html += "</tr>\n";
    }
    html += "</table>";
    Some(html)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hetero_core::testing::{MS, task};

    #[test]
    fn time_lost_is_summed_by_who_is_slowed_down_and_by_whom() {
        let mut gatherer = BesideGatherer::default();
        let (mut slow, loud) = (task(1, 0, 0), task(2, 1, 0));
        slow.comm = Comm(*b"a<b\0\0\0\0\0\0\0\0\0\0\0\0\0");
        let found = Interference {
            slowdown: 2.0,
            class: InterferenceClass::Bandwidth,
            also: None,
            confidence: 0.9,
            culprit: Some((loud.tgid, 1.0)),
        };
        for _ in 0..11 {
            gatherer.take(&[slow, loud], |id| (id == slow.id).then_some(found));
            slow.run_ns[0] += 100 * MS;
        }
        let matrix = gatherer.finish();
        let [(name, ran)] = &matrix.rows[..] else {
            panic!("{:?}", matrix.rows);
        };
        assert!(name == "a<b 101" && (ran - 1.0).abs() < 1e-9);
        let (lost, class) = matrix.lost[0][0].unwrap();
        assert!((lost - 0.5).abs() < 1e-9 && class == InterferenceClass::Bandwidth);
        let html = draw(&matrix).unwrap();
        assert!(
            html.contains("a&lt;b 101") && html.contains("0.50 s"),
            "{html}"
        );
        assert_eq!(draw(&BesideGatherer::default().finish()), None::<String>);
    }
}
