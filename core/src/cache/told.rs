// SPDX-License-Identifier: GPL-2.0-or-later
//! What is told of a thread's caches.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::curve::{CURVE_POINTS, CurvePoints};

const MIB: f64 = 1024.0 * 1024.0;

/// A process that is confined, see [`super::partition`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConfinedStory {
    /// It has so many ways of so many.
    pub ways: [u32; 2],
    /// Misses for 1,000 instructions with all of them, and since it is confined; `None` while that is tried.
    pub mpki: (f64, Option<f64>),
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheStory {
    /// That it holds of its last-level cache, bytes, as estimated.
    pub bytes: f64,
    /// Size of that cache, bytes.
    pub size: f64,
    /// Of its whole process, bytes, and whether hardware has counted it.
    pub process_bytes: f64,
    /// See `process_bytes`.
    pub measured: bool,
    /// What hardware has counted that its process moves to and from memory, bytes/s.
    pub moved: Option<f64>,
    /// Its process is confined to few ways of it.
    #[serde(default)]
    pub confined: Option<ConfinedStory>,
    /// Misses for 1,000 instructions and the error of that, by eighths of the cache, on the core type where it is.
    pub curve: [Option<(f64, f64)>; CURVE_POINTS],
    /// How many of these sizes only earlier runs of its program tell of.
    #[serde(default)]
    pub earlier: usize,
}

/// A curve's MPKI in words.
pub fn mpki_told(mpki: impl Iterator<Item = Option<f64>>) -> String {
    let mut told = String::new();
    for point in mpki {
        let _ = match point {
            Some(mpki) if mpki < 9.95 => write!(told, "{mpki:.1} "),
            Some(mpki) => write!(told, "{mpki:.0} "),
            None => write!(told, "- "),
        };
    }
    told + "MPKI"
}

impl CacheStory {
    /// Takes its curve in, with how many sizes only earlier runs of its program tell of.
    pub fn set_curve(&mut self, points: &CurvePoints, earlier: usize) {
        self.curve = points.map(|point| point.map(|of| (of.mpki, of.error)));
        self.earlier = earlier;
    }

    /// In words.
    pub fn told(&self) -> String {
        let mib = |bytes: f64| format!("{:.1} MiB", bytes / MIB);
        let by = if self.measured {
            "counted"
        } else {
            "estimated"
        };
        let mut text = format!(
            "{} of {}; its process {}, {by}",
            mib(self.bytes),
            mib(self.size),
            mib(self.process_bytes)
        );
        if let Some(moved) = self.moved {
            text += &format!(", {:.0} MB/s", moved / 1e6);
        }
        text
    }

    /// That its process is confined, in words, if it is.
    pub fn confined_told(&self) -> Option<String> {
        let ConfinedStory {
            ways: [few, all],
            mpki: (free, confined),
        } = self.confined?;
        let there = confined.map_or("being tried".into(), |mpki| format!("{mpki:.1} there"));
        Some(format!(
            "its process is confined to {few} of {all} ways: {free:.1} MPKI before, {there}"
        ))
    }

    /// Its miss-rate curve in words, if there is any.
    pub fn curve_told(&self) -> Option<String> {
        let known = self.curve.iter().flatten().count();
        let mean_error = self
            .curve
            .iter()
            .flatten()
            .map(|(_, error)| error)
            .sum::<f64>();
        let error = mean_error / known.max(1) as f64;
        (known > 0).then(|| {
            let mpki = mpki_told(self.curve.iter().map(|point| Some(point.as_ref()?.0)));
            format!("{mpki} by eighths of it (error {error:.1})")
        })
    }

    /// How much of that only earlier runs tell, in words, if they do.
    pub fn earlier_told(&self) -> Option<String> {
        let known = self.curve.iter().flatten().count();
        match self.earlier {
            0 => None,
            all if all == known => Some("all by earlier runs of its program".into()),
            some => Some(format!("{some} of {known} by earlier runs of its program")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_in_short() {
        let mut story = CacheStory {
            bytes: 1.5 * MIB,
            size: 30.0 * MIB,
            process_bytes: 2.0 * MIB,
            measured: true,
            moved: Some(320e6),
            ..CacheStory::default()
        };
        assert_eq!(
            story.told(),
            "1.5 MiB of 30.0 MiB; its process 2.0 MiB, counted, 320 MB/s"
        );
        assert_eq!((story.curve_told(), story.confined_told()), (None, None));
        story.confined = Some(ConfinedStory {
            ways: [1, 12],
            mpki: (20.0, Some(20.31)),
        });
        assert_eq!(
            story.confined_told().unwrap(),
            "its process is confined to 1 of 12 ways: 20.0 MPKI before, 20.3 there"
        );
        story.curve[1] = Some((12.3, 0.4));
        story.curve[2] = Some((4.56, 0.2));
        let told = story.curve_told().unwrap();
        assert_eq!(told, "- 12 4.6 - - - - - MPKI by eighths of it (error 0.3)");
        assert_eq!(story.earlier_told(), None);
        story.earlier = 1;
        let told = story.earlier_told().unwrap();
        assert_eq!(told, "1 of 2 by earlier runs of its program");
        story.earlier = 2;
        assert!(story.earlier_told().unwrap().starts_with("all by earlier"));
    }
}
