// SPDX-License-Identifier: GPL-2.0-or-later
//! Which process disturbs a thread: that which takes most of what the thread lacks, where both can reach it.

use super::InterferenceClass;

/// A thread beside the one that is disturbed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Neighbour {
    /// Its process.
    pub tgid: u32,
    /// Part of the time in which it ran lately.
    pub share: f64,
    /// It runs on another thread of the same core.
    pub sibling: bool,
    /// On another core behind the same L2.
    pub cluster: bool,
    /// In the same contention domain.
    pub domain: bool,
    /// What it transfers while it runs, bytes/s.
    pub btr: f64,
    /// What it asks of the last-level cache while it runs, bytes/s; `None` where that is not counted.
    pub l2: Option<f64>,
    /// What it takes while it runs, in any unit that is the same for all.
    pub watts: f64,
}

impl Neighbour {
    /// How much it takes of what a thread of this class lacks; 0 if it cannot be the one.
    pub fn weight(&self, class: InterferenceClass) -> f64 {
        let one = |is: bool| f64::from(u8::from(is));
        let much = match class {
            InterferenceClass::None | InterferenceClass::Wait => 0.0,
            InterferenceClass::Llc => one(self.domain) * self.btr,
            InterferenceClass::L2 => one(self.cluster) * self.l2.unwrap_or(self.btr + 1.0),
            // Domains share memory where they share nothing else.
            InterferenceClass::Bandwidth => self.btr * if self.domain { 1.0 } else { 0.5 },
            InterferenceClass::Sibling => one(self.sibling),
            InterferenceClass::Power => self.watts,
        };
        much * self.share
    }
}

/// Most processes that are weighed; of more only the first ones seen.
const PROCESSES: usize = 64;

/// The process that weighs most, and its part of the sum. `before` is what processes transferred when the thread was
/// as fast as it can be, so that is not what slows it down now.
pub fn culprit(
    class: InterferenceClass,
    neighbours: impl Iterator<Item = Neighbour>,
    before: &[(u32, f64)],
) -> Option<(u32, f64)> {
    let mut weights = [(0_u32, 0.0_f64); PROCESSES];
    let mut used = 0;
    for neighbour in neighbours {
        let weight = neighbour.weight(class);
        if weight <= 0.0 {
            continue;
        }
        match weights[..used].iter_mut().find(|of| of.0 == neighbour.tgid) {
            Some(of) => of.1 += weight,
            None if used < PROCESSES => {
                weights[used] = (neighbour.tgid, weight);
                used += 1;
            }
            None => {}
        }
    }
    let weights = &mut weights[..used];
    if matches!(class, InterferenceClass::Llc | InterferenceClass::Bandwidth) {
        for (tgid, weight) in weights.iter_mut() {
            let known = before.iter().find(|of| of.0 == *tgid);
            *weight = (*weight - known.map_or(0.0, |of| of.1)).max(0.0);
        }
    }
    let sum: f64 = weights.iter().map(|of| of.1).sum();
    let most = weights.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    (most.1 > 0.0).then(|| (most.0, most.1 / sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn neighbour(tgid: u32, btr: f64) -> Neighbour {
        Neighbour {
            tgid,
            share: 1.0,
            domain: true,
            btr,
            watts: 1.0,
            ..Neighbour::default()
        }
    }

    fn process(class: InterferenceClass, all: &[Neighbour], before: &[(u32, f64)]) -> Option<u32> {
        culprit(class, all.iter().copied(), before).map(|of| of.0)
    }

    #[test]
    fn it_is_the_process_whose_threads_take_most_together() {
        use InterferenceClass::{Bandwidth, Llc, None, Sibling};
        let all = [
            neighbour(1, 3e9),
            neighbour(2, 2e9),
            neighbour(2, 2e9),
            Neighbour {
                sibling: true,
                ..neighbour(3, 0.0)
            },
        ];
        assert_eq!(process(Llc, &all, &[]), Some(2));
        assert_eq!(process(Bandwidth, &all, &[]), Some(2));
        assert_eq!(process(Sibling, &all, &[]), Some(3));
        assert_eq!(process(None, &all, &[]), Option::None);
        let (_, part) = culprit(Llc, all.into_iter(), &[]).unwrap();
        assert!((part - 4.0 / 7.0).abs() < 1e-12);
    }

    #[test]
    fn what_was_there_before_is_not_it() {
        let all = [neighbour(1, 3e9), neighbour(2, 2e9)];
        let before = [(1, 2.9e9), (0, 0.0)];
        assert_eq!(
            process(InterferenceClass::Bandwidth, &all, &before),
            Some(2)
        );
    }
}
