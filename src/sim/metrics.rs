// SPDX-License-Identifier: GPL-2.0-only
//! What a schedule is worth, by completion times (CAMPS 2018, Eq. 1; PMCTrack 2017, section 4.1.3).

use serde::Serialize;

use super::energy::RunEnergy;

/// Completion times of a program, seconds.
#[derive(Clone, Debug, Serialize)]
pub struct Times {
    /// The program, with its number of threads.
    pub program: String,
    /// Alone, on CPUs of the fastest type.
    pub alone: f64,
    /// Alone, on CPUs of the slowest type.
    pub slow: f64,
    /// In the mix: the geometric mean over its runs.
    pub scheduled: f64,
    /// Runs that it completed.
    pub runs: usize,
    /// How long each of them took.
    pub times: Vec<f64>,
    /// Frames done, and those of them that were late, of a program that has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames: Option<(u64, u64)>,
    /// What a run takes, where the machine's file says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<RunEnergy>,
}

impl Times {
    /// CT_sched / CT_alone.
    pub fn slowdown(&self) -> f64 {
        self.scheduled / self.alone
    }

    /// Energy times time of a run, over the same alone on the fastest cores.
    pub fn energy_delay(&self) -> Option<f64> {
        let energy = self.energy?;
        Some(energy.scheduled / energy.alone * self.slowdown())
    }
}

/// What a schedule is worth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ScheduleMetrics {
    /// The greatest slowdown over the least.
    pub unfairness: f64,
    /// Aggregate speedup: Σ(CT_slow/CT_sched − 1).
    pub asp: f64,
    /// System throughput: Σ CT_alone/CT_sched.
    pub stp: f64,
    /// Average normalised turnaround time: the mean slowdown.
    pub antt: f64,
}

impl ScheduleMetrics {
    /// Of these programs.
    pub fn of(times: &[Times]) -> Self {
        let slowdowns = || times.iter().map(Times::slowdown);
        let most = slowdowns().fold(0.0, f64::max);
        let least = slowdowns().fold(f64::INFINITY, f64::min);
        Self {
            unfairness: most / least,
            asp: times.iter().map(|t| t.slow / t.scheduled - 1.0).sum(),
            stp: slowdowns().map(|slowdown| 1.0 / slowdown).sum(),
            antt: slowdowns().sum::<f64>() / times.len().max(1) as f64,
        }
    }
}

/// The geometric mean; `None` of nothing.
pub fn geometric_mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.into_iter().fold((0.0, 0u32), |(sum, count), value| {
        (sum + value.ln(), count + 1)
    });
    (count > 0).then(|| (sum / f64::from(count)).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_follow_from_completion_times() {
        let times = |alone, slow, scheduled| Times {
            program: "p".into(),
            alone,
            slow,
            scheduled,
            runs: 3,
            times: Vec::new(),
            frames: None,
            energy: Some(RunEnergy {
                alone: 2.0,
                slow: 1.0,
                scheduled: 1.5,
            }),
        };
        assert_eq!(times(10.0, 20.0, 20.0).energy_delay(), Some(1.5));
        let metrics = ScheduleMetrics::of(&[times(10.0, 20.0, 10.0), times(10.0, 40.0, 20.0)]);
        assert_eq!(metrics.unfairness, 2.0);
        assert_eq!(metrics.asp, 1.0 + 1.0);
        assert_eq!(metrics.stp, 1.5);
        assert_eq!(metrics.antt, 1.5);
    }

    #[test]
    fn the_geometric_mean_is_that_of_logarithms() {
        assert!((geometric_mean([2.0, 8.0]).unwrap() - 4.0).abs() < 1e-12);
        assert_eq!(geometric_mean([]), None);
    }
}
