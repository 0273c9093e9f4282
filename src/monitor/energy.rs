// SPDX-License-Identifier: GPL-2.0-only
//! Where power went in the last minutes: by core type, and by the programs that took most.

use std::collections::{HashMap, VecDeque};

use crate::stats::live::{Live, LiveEnergy};

/// A point of a curve is the mean of so many readings, and a curve has so many points.
const READINGS: u32 = 6;
const POINTS: usize = 40;

/// Programs that are kept, those that took most.
const PROGRAMS: usize = 100;

/// Watts over time.
#[derive(Clone, Debug, Default)]
pub struct PowerCurve {
    /// At the last reading.
    pub now: f64,
    /// Sums over readings, and of how many, the oldest first.
    points: VecDeque<(f64, u32)>,
}

/// A program's power.
#[derive(Clone, Debug)]
pub struct ProgramPower {
    /// Process id.
    pub pid: u32,
    /// Name of its first thread, or of another where that has ended.
    pub name: String,
    /// What all its threads take.
    pub curve: PowerCurve,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct EnergyHistory {
    /// By core type, and what is beside, as in [`Live::energy`].
    pub parts: Vec<(String, PowerCurve)>,
    /// Those that took most first.
    pub programs: Vec<ProgramPower>,
    readings: u32,
    points: usize,
}

impl PowerCurve {
    /// Nothing was taken at so many points before.
    fn new(points: usize) -> Self {
        Self {
            now: 0.0,
            points: VecDeque::from(vec![(0.0, 1); points]),
        }
    }

    fn begin_point(&mut self) {
        if self.points.len() == POINTS {
            self.points.pop_front();
        }
        self.points.push_back((0.0, 0));
    }

    fn add(&mut self, watts: f64) {
        self.now = watts;
        if let Some((sum, readings)) = self.points.back_mut() {
            (*sum, *readings) = (*sum + watts, *readings + 1);
        }
    }

    fn sum(&self) -> f64 {
        self.points.iter().map(|point| point.0).sum()
    }

    /// Over all points.
    pub fn mean(&self) -> f64 {
        let points = || self.means().into_iter().flatten();
        points().sum::<f64>() / points().count().max(1) as f64
    }

    /// By point, the oldest first.
    pub fn means(&self) -> VecDeque<Option<f64>> {
        let mean =
            |&(sum, readings): &(f64, u32)| (readings > 0).then(|| sum / f64::from(readings));
        self.points.iter().map(mean).collect()
    }
}

impl EnergyHistory {
    /// Takes in a reading, if it says anything of power.
    pub fn push(&mut self, live: &Live) {
        let is_told = |part: &LiveEnergy| part.watts.is_some();
        if !live.energy.iter().any(is_told) {
            return;
        }
        let names = live.energy.iter().map(|part| &part.part);
        if !names.eq(self.parts.iter().map(|(name, _)| name)) {
            // Another scheduler, or another machine.
            *self = Self::default();
            let parts = live.energy.iter();
            self.parts = parts
                .map(|part| (part.part.clone(), PowerCurve::default()))
                .collect();
        }
        if self.readings.is_multiple_of(READINGS) {
            self.points = (self.points + 1).min(POINTS);
            let parts = self.parts.iter_mut().map(|(_, curve)| curve);
            let programs = self.programs.iter_mut().map(|program| &mut program.curve);
            parts.chain(programs).for_each(PowerCurve::begin_point);
        }
        self.readings = self.readings.wrapping_add(1);
        for ((_, curve), part) in self.parts.iter_mut().zip(&live.energy) {
            curve.add(part.watts.unwrap_or(0.0));
        }
        self.push_programs(live);
    }

    fn push_programs(&mut self, live: &Live) {
        let mut taken: HashMap<u32, (f64, &str)> = HashMap::new();
        for thread in &live.threads {
            let Some(watts) = thread.watts else { continue };
            let (sum, name) = taken.entry(thread.pid).or_insert((0.0, &thread.comm));
            *sum += watts;
            if thread.tid == thread.pid {
                *name = &thread.comm;
            }
        }
        for program in &mut self.programs {
            let now = taken.remove(&program.pid);
            program.curve.add(now.map_or(0.0, |(watts, _)| watts));
            if let Some((_, name)) = now.filter(|(_, name)| *name != program.name) {
                program.name = name.into();
            }
        }
        for (pid, (watts, name)) in taken.into_iter().filter(|(_, (watts, _))| *watts > 0.0) {
            let mut curve = PowerCurve::new(self.points.saturating_sub(1));
            curve.begin_point();
            curve.add(watts);
            self.programs.push(ProgramPower {
                pid,
                name: name.into(),
                curve,
            });
        }
        self.programs.retain(|program| program.curve.sum() > 0.0);
        self.programs.sort_by(|a, b| {
            let most_first = b.curve.mean().total_cmp(&a.curve.mean());
            most_first.then(a.pid.cmp(&b.pid))
        });
        self.programs.truncate(PROGRAMS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::live::LiveThread;

    fn reading(of_type: f64, programs: &[(u32, f64)]) -> Live {
        let thread = |&(pid, watts): &(u32, f64)| LiveThread {
            tid: pid,
            pid,
            comm: format!("p{pid}"),
            watts: Some(watts),
            ..LiveThread::default()
        };
        Live {
            energy: vec![LiveEnergy {
                part: "P".into(),
                watts: Some(of_type),
                ..LiveEnergy::default()
            }],
            threads: programs.iter().map(thread).collect(),
            ..Live::default()
        }
    }

    #[test]
    fn points_are_means_and_programs_come_by_what_they_took() {
        let mut history = EnergyHistory::default();
        history.push(&Live::default());
        assert!(history.parts.is_empty());
        for watts in 0..READINGS {
            history.push(&reading(f64::from(watts), &[(1, 2.0)]));
        }
        for _ in 0..READINGS {
            history.push(&reading(7.0, &[(2, 6.0)]));
        }
        let (name, curve) = &history.parts[0];
        assert_eq!((name.as_str(), curve.now), ("P", 7.0));
        assert_eq!(curve.means(), [Some(2.5), Some(7.0)]);
        let of = |at: usize| (history.programs[at].pid, history.programs[at].curve.mean());
        assert_eq!((of(0), of(1)), ((2, 3.0), (1, 1.0)));
        assert_eq!(history.programs[1].curve.now, 0.0);
    }

    #[test]
    fn what_has_taken_nothing_for_long_is_forgotten_and_there_is_a_most() {
        let mut history = EnergyHistory::default();
        history.push(&reading(1.0, &[(1, 2.0)]));
        for _ in 0..READINGS as usize * POINTS {
            history.push(&reading(1.0, &[]));
        }
        assert!(history.programs.is_empty());
        assert_eq!(history.parts[0].1.points.len(), POINTS);
        let crowd: Vec<_> = (1..300).map(|pid| (pid, f64::from(pid))).collect();
        history.push(&reading(1.0, &crowd));
        assert_eq!(history.programs.len(), PROGRAMS);
        assert_eq!(history.programs[0].pid, 299);
    }
}
