// SPDX-License-Identifier: GPL-2.0-only
//! Windows of a given number of retired instructions: the same window of two runs of a program is
//! the same work, wherever it ran and however long that took (PMCTrack 2017, section 4.1.2).

/// What was counted in a window, or in several together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Window {
    /// Run time, ns.
    pub run_ns: f64,
    /// A count for each counter of the run's set; instructions first.
    pub counts: Vec<f64>,
}

impl Window {
    fn add(&mut self, run_ns: f64, counts: impl IntoIterator<Item = f64>) {
        self.run_ns += run_ns;
        for (n, count) in counts.into_iter().enumerate() {
            match self.counts.get_mut(n) {
                Some(sum) => *sum += count,
                None => self.counts.push(count),
            }
        }
    }

    fn instructions(&self) -> f64 {
        self.counts.first().copied().unwrap_or(0.0)
    }
}

/// Cuts a run into windows.
#[derive(Clone, Debug)]
pub(super) struct Cutter {
    size: f64,
    open: Window,
    /// The ones that are full.
    pub full: Vec<Window>,
}

impl Cutter {
    /// Windows of so many instructions.
    pub(super) fn new(size: u64) -> Self {
        Self {
            size: size as f64,
            open: Window::default(),
            full: Vec::new(),
        }
    }

    /// Adds what a thread has counted since its last sample; samples come every `size`
    /// instructions, and a little late.
    pub(super) fn push(&mut self, run_ns: u64, counts: &[u64]) {
        let counts = counts.iter().map(|&count| count as f64);
        self.open.add(run_ns as f64, counts);
        if self.open.instructions() >= 0.99 * self.size {
            self.full.push(std::mem::take(&mut self.open));
        }
    }
}

/// All windows together.
pub(super) fn total(windows: &[Window]) -> Window {
    let mut total = Window::default();
    for window in windows {
        total.add(window.run_ns, window.counts.iter().copied());
    }
    total
}

/// A run of a program on a core type.
#[derive(Clone, Debug)]
pub(crate) struct ProgramRun {
    /// Number of the set that was counted.
    pub set: usize,
    /// Its windows, from the program's begin.
    pub windows: Vec<Window>,
    /// What it took beyond what the idle machine takes, W, where that is measured.
    pub watts: Option<f64>,
}

/// Standard deviation of the speeds of runs, in instructions per second, over their mean;
/// compared over as many windows as all have.
pub(super) fn deviation(runs: &[ProgramRun]) -> f64 {
    let common = common(runs);
    let speeds: Vec<f64> = runs
        .iter()
        .map(|run| total(&run.windows[..common]))
        .filter(|sum| sum.run_ns > 0.0)
        .map(|sum| sum.instructions() / sum.run_ns)
        .collect();
    let number = speeds.len() as f64;
    if number < 2.0 {
        return f64::INFINITY;
    }
    let mean = speeds.iter().sum::<f64>() / number;
    let squares: f64 = speeds.iter().map(|speed| (speed - mean).powi(2)).sum();
    (squares / (number - 1.0)).sqrt() / mean
}

/// How many windows all runs have.
pub(super) fn common(runs: &[ProgramRun]) -> usize {
    runs.iter().map(|run| run.windows.len()).min().unwrap_or(0)
}

/// The mean of one window, or of all together (`None`), over all runs: run time in ns,
/// instructions, cycles; and of counter `counter` of set `set`, scaled to the mean instructions.
pub(super) struct WindowMean<'r> {
    runs: &'r [ProgramRun],
    windows: Vec<Window>,
}

impl<'r> WindowMean<'r> {
    /// Of these runs.
    pub(super) fn of(runs: &'r [ProgramRun], window: Option<usize>) -> Self {
        let common = common(runs);
        let pick = |run: &ProgramRun| match window {
            Some(number) => run.windows[number].clone(),
            None => total(&run.windows[..common]),
        };
        Self {
            runs,
            windows: runs.iter().map(pick).collect(),
        }
    }

    fn mean(&self, value: impl Fn(&Window) -> f64) -> f64 {
        self.windows.iter().map(value).sum::<f64>() / self.windows.len() as f64
    }

    /// Run time, ns.
    pub(super) fn run_ns(&self) -> f64 {
        self.mean(|window| window.run_ns)
    }

    /// Of a counter that every set has.
    pub(super) fn of_all(&self, counter: usize) -> f64 {
        self.mean(|window| window.counts.get(counter).copied().unwrap_or(0.0))
    }

    /// Of a counter of one set; `None` if no run counted it.
    pub(super) fn of_set(&self, set: usize, counter: usize) -> Option<f64> {
        let (mut count, mut instructions) = (0.0, 0.0);
        for (run, window) in self.runs.iter().zip(&self.windows) {
            if run.set == set {
                count += window.counts.get(counter)?;
                instructions += window.instructions();
            }
        }
        (instructions > 0.0).then(|| count / instructions * self.mean(Window::instructions))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(set: usize, windows: &[(f64, &[f64])]) -> ProgramRun {
        let window = |&(run_ns, counts): &(f64, &[f64])| Window {
            run_ns,
            counts: counts.to_vec(),
        };
        ProgramRun {
            set,
            windows: windows.iter().map(window).collect(),
            watts: None,
        }
    }

    #[test]
    fn windows_are_full_by_instructions_of_all_threads() {
        let mut cutter = Cutter::new(100);
        cutter.push(10, &[100, 50]);
        cutter.push(5, &[40, 20]);
        cutter.push(5, &[60, 30]);
        cutter.push(9, &[98, 1]);
        assert_eq!(cutter.full.len(), 2);
        assert_eq!(cutter.full[1].counts, [100.0, 50.0]);
        assert_eq!(cutter.full[1].run_ns, 10.0);
    }

    #[test]
    fn deviation_is_of_speeds_over_what_all_runs_have() {
        let a = run(0, &[(10.0, &[100.0]), (10.0, &[100.0])]);
        let b = run(0, &[(12.5, &[100.0])]);
        assert_eq!(deviation(std::slice::from_ref(&a)), f64::INFINITY);
        assert_eq!(deviation(&[a.clone(), a.clone()]), 0.0);
        // Speeds 10 and 8: standard deviation sqrt(2), mean 9.
        assert!((deviation(&[a, b]) - 2f64.sqrt() / 9.0).abs() < 1e-12);
    }

    #[test]
    fn counters_of_a_set_are_scaled_to_the_mean_of_all_runs() {
        let runs = [
            run(0, &[(10.0, &[100.0, 200.0, 7.0])]),
            run(1, &[(20.0, &[300.0, 400.0, 30.0])]),
        ];
        let mean = WindowMean::of(&runs, Some(0));
        assert_eq!(
            (mean.run_ns(), mean.of_all(0), mean.of_all(1)),
            (15.0, 200.0, 300.0)
        );
        let is = |set, number: f64| (mean.of_set(set, 2).unwrap() - number).abs() < 1e-9;
        assert!(is(1, 20.0) && is(0, 14.0));
        assert_eq!(mean.of_set(2, 2), None);
        assert_eq!(WindowMean::of(&runs, None).of_all(0), 200.0);
    }
}
