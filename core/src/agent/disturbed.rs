// SPDX-License-Identifier: GPL-2.0-or-later
//! What slows a thread down, for people.

use serde::{Deserialize, Serialize};

use crate::interference::{DISTURBED, Interference, InterferenceClass};
use crate::table::Task;

/// Less sure than this is not worth telling.
pub const SURE: f64 = 0.5;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DisturbedStory {
    /// How much slower it is than undisturbed on the same core type.
    pub slowdown: f64,
    /// Why.
    pub class: InterferenceClass,
    /// And why besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub also: Option<InterferenceClass>,
    /// How sure that is, 0 to 1; of both together where there are two.
    pub confidence: f64,
    /// The process that disturbs it most.
    pub pid: Option<u32>,
    /// Its name.
    pub by: Option<String>,
    /// Its part of what all do, 0 to 1.
    pub part: Option<f64>,
}

impl DisturbedStory {
    /// With the culprit's name, which `named` knows by process; `None` if the thread is not disturbed.
    pub fn of(found: &Interference, named: impl Fn(u32) -> Option<String>) -> Option<Self> {
        let disturbed = found.class != InterferenceClass::None && found.slowdown >= DISTURBED;
        let pid = found.culprit.map(|(pid, _)| pid);
        disturbed.then(|| Self {
            slowdown: found.slowdown,
            class: found.class,
            also: found.also,
            confidence: found.confidence,
            pid,
            by: pid.and_then(named),
            part: found.culprit.map(|(_, part)| part),
        })
    }

    /// In words; `own` is the process of the thread itself.
    pub fn told(&self, own: u32) -> String {
        let Self {
            slowdown,
            confidence,
            ..
        } = self;
        if *confidence < SURE {
            return format!("slowed {slowdown:.2}x, by what is not clear");
        }
        let by = match (self.pid, &self.by) {
            (Some(pid), _) if pid == own => ", by other threads of its own process".into(),
            (Some(pid), Some(name)) => format!(", by {name} (pid {pid})"),
            (Some(pid), None) => format!(", by pid {pid}"),
            (None, _) => String::new(),
        };
        let sure = 100.0 * confidence;
        let also = self
            .also
            .map_or_else(String::new, |also| format!(" and {}", also.told()));
        let class = self.class.told();
        format!("slowed {slowdown:.2}x: {class}{also}{by}; {sure:.0}% sure")
    }
}

/// What a process is called: the name of its first thread, or of any other.
pub fn name_of(tasks: &[Task], pid: u32) -> Option<String> {
    let of = tasks.iter().filter(|task| task.tgid == pid);
    let first = of.clone().find(|task| task.tid == pid);
    let any = first.or_else(|| of.clone().next());
    any.map(|task| task.comm.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Comm;
    use crate::testing::task;

    #[test]
    fn the_class_and_the_culprit_are_told_by_name() {
        let mut stream = task(1, 0, 0);
        stream.comm = Comm(*b"stream\0\0\0\0\0\0\0\0\0\0");
        let found = Interference {
            slowdown: 1.4,
            class: InterferenceClass::Bandwidth,
            also: None,
            confidence: 0.87,
            culprit: Some((stream.tgid, 0.9)),
        };
        let of = |found: &Interference| {
            let story = DisturbedStory::of(found, |pid| name_of(&[stream], pid))?;
            Some(story.told(7))
        };
        assert_eq!(
            of(&found).as_deref(),
            Some("slowed 1.40x: memory bandwidth, by stream (pid 101); 87% sure")
        );
        let both = Interference {
            also: Some(InterferenceClass::Llc),
            ..found
        };
        assert_eq!(
            of(&both).as_deref(),
            Some(
                "slowed 1.40x: memory bandwidth and last-level cache, by stream (pid 101); 87% sure"
            )
        );
        let own = DisturbedStory::of(&found, |_| None).unwrap();
        assert!(own.told(101).contains("other threads of its own process"));
        let unsure = Interference {
            confidence: 0.3,
            ..found
        };
        assert!(of(&unsure).unwrap().contains("not clear"));
        let little = Interference {
            slowdown: 1.02,
            ..found
        };
        assert_eq!(of(&little), None);
    }
}
