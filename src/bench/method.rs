// SPDX-License-Identifier: GPL-2.0-only
//! When a run is over (CAMPS 2018, section 5.1; PMCTrack 2017, section 4.1.3): all programs start
//! together, each starts again when it ends, until the longest has ended so often.

/// Completion times of programs that run together.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionTimes {
    wanted: usize,
    times: Vec<Vec<f64>>,
}

impl CompletionTimes {
    /// Of so many programs, until each has ended `wanted` times.
    pub fn new(programs: usize, wanted: usize) -> Self {
        Self {
            wanted,
            times: vec![Vec::new(); programs],
        }
    }

    /// A program has ended after so many seconds. Whether that was the last that was waited for.
    pub fn ended(&mut self, program: usize, seconds: f64) -> bool {
        self.times[program].push(seconds);
        self.is_over()
    }

    /// Whether each has ended often enough.
    pub fn is_over(&self) -> bool {
        self.times.iter().all(|times| times.len() >= self.wanted)
    }

    /// The program that has ended least often.
    pub fn last(&self) -> Option<usize> {
        (0..self.times.len()).min_by_key(|&program| self.times[program].len())
    }

    /// By program, the seconds of each completed run, in their order.
    pub fn into_times(self) -> Vec<Vec<f64>> {
        self.times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs programs that always take as long, by a clock that jumps from end to end.
    fn run(seconds: &[f64], wanted: usize) -> Vec<usize> {
        let mut tally = CompletionTimes::new(seconds.len(), wanted);
        let mut ends: Vec<f64> = seconds.to_vec();
        loop {
            let next = (0..ends.len()).min_by(|&a, &b| ends[a].total_cmp(&ends[b]));
            let next = next.unwrap();
            ends[next] += seconds[next];
            if tally.ended(next, seconds[next]) {
                return tally.into_times().iter().map(Vec::len).collect();
            }
        }
    }

    #[test]
    fn others_go_on_until_the_longest_has_ended_three_times() {
        assert_eq!(run(&[1.0, 4.0, 2.5], 3), [12, 3, 4]);
        assert_eq!(run(&[1.0], 3), [3]);
        assert_eq!(run(&[2.0, 2.0], 1), [1, 1]);
    }

    #[test]
    fn the_one_behind_is_known() {
        let mut tally = CompletionTimes::new(2, 3);
        assert!(!tally.ended(0, 1.0));
        assert_eq!(tally.last(), Some(1));
        assert!(!tally.is_over());
    }
}
