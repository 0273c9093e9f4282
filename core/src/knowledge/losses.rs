// SPDX-License-Identifier: GPL-2.0-or-later
//! What threads of a program lose beside others, and make others lose ([`crate::interference`]).

use serde::{Deserialize, Serialize};

use super::kept::{KeptMean, Sure};
use crate::interference::{CLASSES, Interference, InterferenceClass};

/// What disturbs a thread, told apart at a time.
const LOSSES: usize = 4;

/// Programs that are kept of each, beside which it lost time.
const BESIDE: usize = 8;

/// Letters of a program's name that are kept.
const NAME: usize = 64;

/// Variance of the logarithm of a slowdown that is told: it is off by a tenth.
const UNSURE: f64 = 0.01;

/// No program runs for longer, s.
const LONGEST_S: f64 = 1e12;

/// What a thread lost to a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThreadLoss {
    /// Which.
    pub by: u32,
    /// For what.
    pub class: InterferenceClass,
    /// What it would have taken undisturbed, s of run time.
    pub alone_s: f64,
    /// What it took beyond that, s.
    pub lost_s: f64,
}

/// What a thread lost lately, by process and class.
pub type ThreadLosses = [Option<ThreadLoss>; LOSSES];

impl ThreadLoss {
    /// Of `ran_s` of run time in which a thread was disturbed so; `None` where it is not known by which process.
    pub fn of(found: &Interference, ran_s: f64) -> Option<Self> {
        let (by, _) = found.culprit?;
        let alone_s = match found.class {
            InterferenceClass::None => return None,
            InterferenceClass::Wait => ran_s,
            _ => ran_s / found.slowdown,
        };
        let lost_s = found.lost_s(ran_s);
        (alone_s > 0.0 && lost_s > 0.0).then_some(Self {
            by,
            class: found.class,
            alone_s,
            lost_s,
        })
    }

    /// How much slower it was.
    fn slowdown(&self) -> Option<Sure> {
        Sure::of_factor(1.0 + self.lost_s / self.alone_s, UNSURE)
    }

    /// Puts it among others. Where there is no room the one of which least was lost gives way.
    pub fn add_to(self, losses: &mut ThreadLosses) {
        let same = |of: &&mut ThreadLoss| of.by == self.by && of.class == self.class;
        if let Some(there) = losses.iter_mut().flatten().find(same) {
            there.alone_s += self.alone_s;
            there.lost_s += self.lost_s;
            return;
        }
        let lost = |of: &Option<Self>| of.map_or(0.0, |of| of.lost_s);
        if let Some(room) = losses.iter_mut().min_by(|a, b| lost(a).total_cmp(&lost(b))) {
            *room = Some(self);
        }
    }
}

/// What a program lost beside another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptBeside {
    /// Name of the other's executable.
    pub program: String,
    /// For what.
    pub class: InterferenceClass,
    /// What it would have taken undisturbed, s of run time.
    pub alone_s: f64,
    /// What it took beyond that, s.
    pub lost_s: f64,
}

/// What is kept of a program and its company.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptCompany {
    /// Beside which programs it lost most, at most 8.
    #[serde(default)]
    pub beside: Vec<KeptBeside>,
    /// How many times slower others make it, by class.
    #[serde(default)]
    pub suffers: [KeptMean; CLASSES],
    /// How many times slower it makes others.
    #[serde(default)]
    pub harms: [KeptMean; CLASSES],
}

impl KeptCompany {
    /// Takes in what a thread lost to a process of this program.
    pub fn lose(&mut self, program: &str, loss: &ThreadLoss) {
        let slower = loss.slowdown();
        slower
            .into_iter()
            .for_each(|of| self.suffers[loss.class as usize].take(of));
        self.add(KeptBeside {
            program: program.chars().take(NAME).collect(),
            class: loss.class,
            alone_s: loss.alone_s,
            lost_s: loss.lost_s,
        });
    }

    /// Takes in what a thread lost to this program.
    pub fn harm(&mut self, loss: &ThreadLoss) {
        let slower = loss.slowdown();
        slower
            .into_iter()
            .for_each(|of| self.harms[loss.class as usize].take(of));
    }

    /// Forgets what it lost beside programs that are called so. Returns their names, once for each class.
    pub fn forget(&mut self, is_meant: impl Fn(&str) -> bool) -> Vec<String> {
        let gone = self.beside.extract_if(.., |of| is_meant(&of.program));
        gone.map(|of| of.program).collect()
    }

    fn add(&mut self, other: KeptBeside) {
        let same = |of: &&mut KeptBeside| of.program == other.program && of.class == other.class;
        if let Some(there) = self.beside.iter_mut().find(same) {
            there.alone_s = (there.alone_s + other.alone_s).min(LONGEST_S);
            there.lost_s = (there.lost_s + other.lost_s).min(LONGEST_S);
        } else if self.beside.len() < BESIDE {
            self.beside.push(other);
        } else if let Some(least) = self
            .beside
            .iter_mut()
            .min_by(|a, b| a.lost_s.total_cmp(&b.lost_s))
        {
            // Else nothing new would ever be seen.
            *least = other;
        }
    }

    /// Takes in what another store knows.
    pub fn merge(&mut self, other: &Self) {
        other.beside.iter().for_each(|of| self.add(of.clone()));
        let each = [
            (&mut self.suffers, &other.suffers),
            (&mut self.harms, &other.harms),
        ];
        for (kept, other) in each {
            kept.iter_mut().zip(other).for_each(|(a, b)| a.merge(b));
        }
    }

    /// The program behaves unlike it did.
    pub(super) fn doubt(&mut self) {
        self.suffers.iter_mut().for_each(KeptMean::doubt);
        self.harms.iter_mut().for_each(KeptMean::doubt);
    }

    /// Whether all numbers are such that one can go by them: it may come from a file.
    pub fn is_sound(&self) -> bool {
        let time = |of: &f64| (0.0..=LONGEST_S).contains(of);
        self.beside.len() <= BESIDE
            && self.beside.iter().all(|of| {
                of.program.chars().count() <= NAME && time(&of.alone_s) && time(&of.lost_s)
            })
            && self
                .suffers
                .iter()
                .chain(&self.harms)
                .all(KeptMean::is_sound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(by: u32, slowdown: f64, ran_s: f64) -> ThreadLoss {
        let found = Interference {
            slowdown,
            class: InterferenceClass::Bandwidth,
            also: None,
            confidence: 0.9,
            culprit: Some((by, 1.0)),
        };
        ThreadLoss::of(&found, ran_s).unwrap()
    }

    #[test]
    fn time_lost_is_summed_by_process_and_class_and_the_least_gives_way() {
        let mut losses = ThreadLosses::default();
        for by in [1, 1, 2, 3, 4, 5] {
            loss(by, 2.0, f64::from(10 - by)).add_to(&mut losses);
        }
        let of = |by| losses.iter().flatten().find(|of: &&ThreadLoss| of.by == by);
        assert_eq!(of(1).unwrap().lost_s, 9.0);
        assert!(of(4).is_none() && of(5).is_some());
        let silent = Interference::default();
        assert_eq!(ThreadLoss::of(&silent, 1.0), None);
        let wait = Interference {
            slowdown: 3.0,
            class: InterferenceClass::Wait,
            also: None,
            confidence: 1.0,
            culprit: Some((1, 1.0)),
        };
        let wait = ThreadLoss::of(&wait, 1.0).unwrap();
        assert_eq!((wait.alone_s, wait.lost_s), (1.0, 2.0));
    }

    #[test]
    fn a_program_knows_beside_which_it_lost_most_and_what_it_suffers_and_does() {
        let (mut own, mut other) = (KeptCompany::default(), KeptCompany::default());
        for nth in 0..BESIDE as u32 + 4 {
            own.lose(&format!("p{nth}"), &loss(nth, 1.5, f64::from(100 - nth)));
        }
        own.lose("p0", &loss(0, 1.5, 100.0));
        assert_eq!(own.beside.len(), BESIDE);
        assert!((own.beside[0].lost_s - 200.0 / 3.0).abs() < 1e-9);
        assert_eq!(own.beside[BESIDE - 1].program, "p11");
        other.harm(&loss(7, 2.0, 1.0));
        other.lose(&"x".repeat(1000), &loss(7, 1.1, 1.0));
        own.merge(&other);
        let of = |means: &[KeptMean; CLASSES]| {
            means[InterferenceClass::Bandwidth as usize]
                .next()
                .unwrap()
                .factor()
        };
        assert!((of(&own.harms) - 2.0).abs() < 1e-9);
        assert!(of(&own.suffers) > 1.4 && of(&own.suffers) < 1.5);
        assert!(own.is_sound() && own.beside.len() == BESIDE);
        own.beside[0].lost_s = f64::NAN;
        assert!(!own.is_sound());
    }
}
