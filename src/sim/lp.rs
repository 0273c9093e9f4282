// SPDX-License-Identifier: GPL-2.0-only
//! Linear programs whose origin is feasible, by a library's simplex method.

use rustplex::prelude::{LinearExpr, Maximize, Model, VariableKey};

/// What is added to every right-hand side of 0, times its row's number: so that no two rows bind at
/// the same corner, where the simplex method may go in circles.
const APART: f64 = 1e-9;

/// Numbers below this count as 0 to the solver.
const TOLERANCE: f64 = 1e-9;

const MOST_STEPS: u32 = 50_000;

/// Rows `sum(coefficient × variable) <= bound` over variables that are at least 0.
#[derive(Debug, Default)]
pub(super) struct LinearProgram {
    variables: usize,
    rows: Vec<(Vec<(usize, f64)>, f64)>,
}

impl LinearProgram {
    pub(super) fn new(variables: usize) -> Self {
        Self {
            variables,
            rows: Vec::new(),
        }
    }

    /// Adds a row; its bound is at least 0.
    pub(super) fn at_most(&mut self, coefficients: Vec<(usize, f64)>, bound: f64) {
        self.rows.push((coefficients, bound));
    }

    /// The variables where `objective` is greatest; `None` if the solver does not find them.
    pub(super) fn maximise(&self, objective: &[(usize, f64)]) -> Option<Vec<f64>> {
        let mut model = Model::new();
        model.set_tolerance(TOLERANCE);
        model.set_max_iterations(MOST_STEPS);
        let keys: Vec<VariableKey> = (0..self.variables)
            .map(|_| model.add_variable().non_negative().real())
            .collect();
        let sum = |terms: &[(usize, f64)]| {
            let terms = terms
                .iter()
                .map(|&(variable, factor)| (keys[variable], factor));
            LinearExpr::with_terms(terms.collect())
        };
        model.set_objective(Maximize, sum(objective));
        for (number, (coefficients, bound)) in (1..).zip(&self.rows) {
            let apart = if *bound == 0.0 {
                APART * f64::from(number)
            } else {
                0.0
            };
            model.add_constraint(sum(coefficients)).le(bound + apart);
        }
        let solution = model
            .solve()
            .ok()
            .filter(|found| found.status().is_optimal())?;
        Some(keys.iter().map(|&key| solution.value(key)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_corner_is_found() {
        let mut program = LinearProgram::new(2);
        program.at_most(vec![(0, 1.0), (1, 2.0)], 4.0);
        program.at_most(vec![(0, 1.0)], 3.0);
        let found = program.maximise(&[(0, 1.0), (1, 1.0)]).unwrap();
        assert!((found[0] - 3.0).abs() < 1e-6 && (found[1] - 0.5).abs() < 1e-6);
    }

    proptest! {
        /// Of programs with one row the answer is known: all of it goes to the best ratio.
        #[test]
        fn a_knapsack_of_fractions_takes_the_best(
            pairs in proptest::collection::vec((0.1f64..10.0, 0.1f64..10.0), 1..30),
        ) {
            let mut program = LinearProgram::new(pairs.len());
            program.at_most(pairs.iter().map(|&(cost, _)| cost).enumerate().collect(), 1.0);
            let worth: Vec<_> = pairs.iter().map(|&(_, worth)| worth).enumerate().collect();
            let found = program.maximise(&worth).unwrap();
            let value: f64 = found.iter().zip(&worth).map(|(x, (_, worth))| x * worth).sum();
            let best = pairs.iter().map(|(cost, worth)| worth / cost).fold(0.0, f64::max);
            prop_assert!((value - best).abs() < 1e-6 * best, "{value} {best}");
        }
    }
}
