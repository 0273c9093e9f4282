// SPDX-License-Identifier: GPL-2.0-only
//! The least energy-delay product of all schedules, watts/STP².
//!
//! Watts and STP are linear in the parts of the time that a schedule spends in columns. Where their quotient is
//! least, it also is least of `watts - price × STP` at some price; so schedules that are best at a price
//! are looked at, each giving the next price, from several ones.

use super::{Columns, LeastEdp};

/// Prices to begin with, of what STP costs at the start.
const PRICES: [f64; 5] = [1e6, 4.0, 2.0, 1.0, 0.5];

/// Steps from each.
const STEPS: usize = 12;

impl Columns {
    /// See the module; `None` where no watts are known, or the solver finds nothing.
    pub(super) fn least_edp(&self) -> Option<LeastEdp> {
        if self.watts.is_empty() {
            return None;
        }
        let mut stp = vec![0.0; self.count];
        for program in 0..self.worth.len() {
            // Phases progress alike, so that any of them tells; see `schedules`.
            for (column, progress) in self.terms(program, 0) {
                stp[column] += progress;
            }
        }
        let start = self.at_price(1e6, &stp)?;
        let mut best = start;
        for part in PRICES {
            let mut price = part * start.watts / start.stp;
            let mut last = f64::INFINITY;
            for _ in 0..STEPS {
                let found = self.at_price(price, &stp)?;
                if found.edp < best.edp {
                    best = found;
                }
                if found.edp >= last * (1.0 - 1e-9) {
                    break;
                }
                last = found.edp;
                price = 2.0 * found.watts / found.stp;
            }
        }
        Some(best)
    }

    /// The schedule of the greatest `price × STP - watts`, price in W; `stp` is that of each column.
    fn at_price(&self, price: f64, stp: &[f64]) -> Option<LeastEdp> {
        let most = self.watts.iter().copied().fold(0.0, f64::max);
        // All of the time is to be spent, whatever it costs.
        let all = 2.0 * most;
        let scale = price + all;
        let worth = |column: usize| (price * stp[column] + all - self.watts[column]) / scale;
        let mut objective: Vec<_> = (0..self.count).map(|c| (c, worth(c))).collect();
        objective.push((self.count, 1e-6));
        let parts = self.schedules(None).maximise(&objective)?;
        let sum = |of: &[f64]| {
            of.iter()
                .zip(&parts)
                .map(|(of, part)| of * part)
                .sum::<f64>()
        };
        let (watts, stp) = (sum(&self.watts), sum(stp));
        Some(LeastEdp {
            edp: watts / (stp * stp),
            watts,
            stp,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two programs, of which one is on the big core: of SF 2 and 3, and so many watts there; 0.1 W on
    /// the small one.
    fn columns(watts: [f64; 2]) -> Columns {
        Columns {
            progress: vec![vec![vec![1.0, 0.5]], vec![vec![1.0 / 3.0, 1.0]]],
            count: 2,
            worth: vec![2.0, 3.0],
            watts: watts.map(|big| big + 0.1).to_vec(),
        }
    }

    #[test]
    fn what_gains_most_gets_the_big_core_unless_it_takes_too_much() {
        let alike = columns([0.6, 0.6]).least_edp().unwrap();
        assert!((alike.stp - 1.5).abs() < 1e-6 && (alike.watts - 0.7).abs() < 1e-6);
        let thirsty = columns([0.4, 0.6]).least_edp().unwrap();
        assert!((thirsty.stp - 4.0 / 3.0).abs() < 1e-6, "{thirsty:?}");
        assert!((thirsty.edp - 0.5 / (16.0 / 9.0)).abs() < 1e-6);
        assert_eq!(Columns::default().least_edp(), None);
    }
}
