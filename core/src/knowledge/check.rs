// SPDX-License-Identifier: GPL-2.0-or-later
//! Whether a thread behaves as its program did before.

use super::kept::Sure;

/// Samples that speak against the past before it is dropped, if hardly any speak for it.
const AGAINST: u8 = 3;

/// Samples that speak for it, and it is not doubted any longer.
const FOR: u8 = 8;

/// What is so many standard errors from what was expected speaks against it;
const APART: f64 = 3.0;

/// and is so far from it at least, of the logarithm: contention alone does less, mostly.
const LEAST: f64 = 0.35;

/// What became of what was known of a thread's program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Past {
    /// Nothing was known.
    #[default]
    Unknown,
    /// It stands in for what is not measured yet.
    Expected,
    /// The thread behaves so.
    Confirmed,
    /// It does not: forgotten.
    Wrong,
}

impl Past {
    /// In words; `None` where there is nothing to tell.
    pub fn told(self) -> Option<&'static str> {
        match self {
            Self::Unknown => None,
            Self::Expected => {
                Some("known from earlier runs; not measured enough to tell whether it is alike")
            }
            Self::Confirmed => Some("as in earlier runs"),
            Self::Wrong => Some("unlike its earlier runs: what was known of it is not used"),
        }
    }
}

/// Counts what speaks for it and against it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PastCheck {
    known: bool,
    agrees: u8,
    differs: u8,
}

impl PastCheck {
    /// Something is known.
    pub fn expected() -> Self {
        Self {
            known: true,
            ..Self::default()
        }
    }

    /// Takes in whether a sample was as expected. True: just now it has been found to be wrong.
    pub fn take(&mut self, as_expected: bool) -> bool {
        if self.past() != Past::Expected {
            return false;
        }
        let count = if as_expected {
            &mut self.agrees
        } else {
            &mut self.differs
        };
        *count += 1;
        self.past() == Past::Wrong
    }

    /// What became of it.
    pub fn past(&self) -> Past {
        match self {
            Self { known: false, .. } => Past::Unknown,
            of if of.differs >= AGAINST && of.differs > of.agrees => Past::Wrong,
            of if of.agrees >= FOR => Past::Confirmed,
            _ => Past::Expected,
        }
    }
}

/// Whether a factor that was measured is what was expected, as far as one can tell.
pub(crate) fn agrees(measured: f64, expected: &Sure) -> bool {
    let apart = (measured.ln() - expected.value).abs();
    !apart.is_finite() || apart <= LEAST.max(APART * expected.variance.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_past_is_dropped_after_some_samples_and_kept_where_most_agree() {
        assert_eq!(PastCheck::default().past(), Past::Unknown);
        let mut check = PastCheck::expected();
        assert!(!check.take(false) && !check.take(false));
        assert_eq!(check.past(), Past::Expected);
        assert!(check.take(false) && !check.take(false));
        assert_eq!(check.past(), Past::Wrong);
        let mut check = PastCheck::expected();
        for nth in 0..20 {
            check.take(nth % 3 != 2);
        }
        assert_eq!(check.past(), Past::Confirmed);
        assert!(!PastCheck::default().take(false));
    }

    #[test]
    fn what_is_expected_with_doubt_may_be_far_off() {
        let [sure, unsure] = [0.01, 0.25].map(|variance| Sure {
            value: 0.0,
            variance,
        });
        assert!(agrees(1.3, &sure) && !agrees(1.6, &sure) && agrees(1.6, &unsure));
        assert!(agrees(f64::NAN, &sure));
    }
}
