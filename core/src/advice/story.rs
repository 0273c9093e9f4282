// SPDX-License-Identifier: GPL-2.0-or-later
//! What a program is advised and has told, for people.

use serde::{Deserialize, Serialize};

use super::Advice;
use super::team::TeamTime;
use super::told::ToldByProgram;
use crate::text::hang_words;
use crate::topology::cpulist;

/// CPUs that are named; the rest is counted.
const NAMED: usize = 16;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AdvisedStory {
    /// Process id.
    pub pid: u32,
    /// Threads with which it finishes soonest, if each gets work by the speed of its core type; 0: nothing was found out
    /// yet.
    pub threads: usize,
    /// The same, if all get equal work.
    pub threads_equal: usize,
    /// What `threads` are worth together, in CPUs of the fastest type.
    pub fast_cores: f64,
    /// CPUs that others want.
    pub company: f64,
    /// CPUs with most room, best first.
    pub place: Vec<u32>,
    /// The phase that it is in, as it says.
    pub phase: u32,
    /// How many threads it has named as its team; 0: all are.
    pub members: usize,
    /// What it has measured in that phase.
    pub measured: Vec<MeasuredStory>,
}

/// What a program has measured with so many threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredStory {
    /// How many.
    pub threads: usize,
    /// Work a time, in its own unit.
    pub rate: Option<f64>,
    /// Part of the time that they waited, 0 to 1.
    pub waited: Option<f64>,
}

impl From<&TeamTime> for MeasuredStory {
    fn from(time: &TeamTime) -> Self {
        Self {
            threads: time.threads,
            rate: time.rate,
            waited: time.waited,
        }
    }
}

impl AdvisedStory {
    /// Of process `pid`.
    pub fn of(pid: u32, advice: &Advice, told: &ToldByProgram) -> Self {
        Self {
            pid,
            threads: advice.threads,
            threads_equal: advice.threads_equal,
            fast_cores: advice.fast_cores,
            company: advice.company,
            place: advice.place.clone(),
            phase: told.phase(),
            members: told.members(),
            measured: told.measured().iter().map(Into::into).collect(),
        }
    }

    /// For people, in lines of 80 columns at most.
    pub fn lines(&self) -> Vec<String> {
        let mut text = vec![format!("  {:<9}{}", "advised", self.advised())];
        let told = self.told();
        if !told.is_empty() {
            text.push(format!("  {:<9}{}", "it told", hang_words(&told, 11, 11)));
        }
        let head = format!("process {} has subscribed to advice", self.pid);
        let lines = text.iter().flat_map(|text| text.lines().map(String::from));
        std::iter::once(head).chain(lines).collect()
    }

    fn advised(&self) -> String {
        if self.threads == 0 {
            return "nothing yet".into();
        }
        let threads = |number: usize| match number {
            1 => "1 thread".to_string(),
            n => format!("{n} threads"),
        };
        let mut cpus: Vec<u32> = self.place.iter().copied().take(NAMED).collect();
        cpus.sort_unstable();
        let more = match self.place.len().saturating_sub(NAMED) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        let text = format!(
            "{}, worth {:.2} fast cores; {} if all get equal work; others want {:.1} CPUs; most room on CPUs {}{more}",
            threads(self.threads),
            self.fast_cores,
            threads(self.threads_equal),
            self.company,
            cpulist::format(&cpus),
        );
        hang_words(&text, 11, 11)
    }

    fn told(&self) -> String {
        let mut parts = Vec::new();
        if self.phase > 0 {
            parts.push(format!("it is in phase {}", self.phase));
        }
        if self.members > 0 {
            parts.push(format!("{} of its threads are its team", self.members));
        }
        // Any unit will do, so only how they compare says something.
        let best = self.measured.iter().filter_map(|of| of.rate);
        let best = best.fold(0.0, f64::max);
        for of in &self.measured {
            let rate = of.rate.filter(|_| best > 0.0);
            let rate = rate.map(|rate| format!("{:.0}% of the best rate", 100.0 * rate / best));
            let waited = of.waited.map(|part| format!("{:.0}% waited", 100.0 * part));
            let both: Vec<String> = rate.into_iter().chain(waited).collect();
            if !both.is_empty() {
                parts.push(format!("with {} threads {}", of.threads, both.join(", ")));
            }
        }
        parts.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::told::ProgramSays;

    #[test]
    fn what_is_advised_and_what_was_told_fit_80_columns() {
        let mut told = ToldByProgram::default();
        told.hear(ProgramSays::Phase(3));
        for (threads, rate) in [(8, 900.0), (6, 1000.0)] {
            told.hear(ProgramSays::Time(TeamTime {
                threads,
                rate: Some(rate),
                waited: Some(0.25),
            }));
        }
        told.hear(ProgramSays::Member(7, true));
        let advice = Advice {
            threads: 6,
            threads_equal: 1,
            fast_cores: 4.5,
            company: 2.04,
            place: (0..100).map(|cpu| 2 * cpu).collect(),
            ..Advice::default()
        };
        let lines = AdvisedStory::of(1230, &advice, &told).lines();
        let text = lines.join("\n");
        assert!(
            lines.iter().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "process 1230 has subscribed",
            "advised 6 threads, worth 4.50 fast cores; 1 thread if all get equal work",
            "others want 2.0 CPUs",
            "and 84 more",
            "it is in phase 3; 1 of its threads are its team; with 8 threads 90% of the best rate, 25% waited",
        ] {
            assert!(words.contains(part), "{part} is not in {words}");
        }
        let nothing = AdvisedStory::default().lines();
        assert_eq!(nothing.len(), 2, "{nothing:?}");
        assert!(nothing[1].contains("nothing yet"));
    }
}
