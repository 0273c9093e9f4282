// SPDX-License-Identifier: GPL-2.0-only
//! The class of what an antagonist does to a program, by where it is put: what is lost more than in a placement that
//! shares less is lost to what these two placements do not have in common.

use hetero_core::interference::{DISTURBED, InterferenceClass};

use super::place::PairPlacement;

/// What a run lost against the one alone, over all windows; logarithms.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct PairLoss {
    /// By run time, the clock included.
    pub slow: f64,
    /// Of it, by the clock.
    pub clock: f64,
    /// By sleep.
    pub asleep: f64,
    /// Part of its misses of the last-level cache that it did not have alone, 0 to 1.
    pub fresh_misses: f64,
}

impl PairLoss {
    /// By cycles alone.
    fn cycles(&self) -> f64 {
        (self.slow - self.clock).max(0.0)
    }

    /// How many times longer it took.
    pub(super) fn slowdown(&self) -> f64 {
        (self.slow + self.asleep).exp()
    }
}

/// The class of `loss` in a placement; `further` is that of the same antagonist behind the same last-level cache
/// and nothing nearer.
pub(super) fn label(
    placement: PairPlacement,
    loss: &PairLoss,
    further: Option<&PairLoss>,
) -> InterferenceClass {
    use InterferenceClass::{Bandwidth, L2, Llc, None, Power, Sibling, Wait};
    if placement == PairPlacement::Alone || loss.slowdown() < DISTURBED {
        return None;
    }
    let (near, shared) = match placement {
        PairPlacement::Sibling | PairPlacement::Cluster => {
            let further = further.map_or(0.0, PairLoss::cycles);
            let near = (loss.cycles() - further).max(0.0);
            (near, loss.cycles() - near)
        }
        _ => (0.0, loss.cycles()),
    };
    let nearest = match placement {
        PairPlacement::Cluster => L2,
        _ => Sibling,
    };
    // Behind another cache, memory is all that is shared.
    let apart = placement == PairPlacement::Elsewhere || loss.fresh_misses < 0.5;
    let parts = [
        (Wait, loss.asleep.max(0.0)),
        (Power, loss.clock.max(0.0)),
        (nearest, near),
        (if apart { Bandwidth } else { Llc }, shared),
    ];
    let most = parts.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
    most.map_or(None, |(class, _)| class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_is_that_of_the_greatest_loss() {
        use InterferenceClass::{Bandwidth, L2, Llc, None, Power, Sibling, Wait};
        let loss = |slow: f64, clock: f64, asleep: f64, fresh_misses: f64| PairLoss {
            slow,
            clock,
            asleep,
            fresh_misses,
        };
        let class = |place, of: PairLoss| label(place, &of, Option::None);
        assert_eq!(class(PairPlacement::Llc, loss(0.04, 0.0, 0.0, 1.0)), None);
        assert_eq!(class(PairPlacement::Llc, loss(0.4, 0.1, 0.0, 0.9)), Llc);
        assert_eq!(
            class(PairPlacement::Llc, loss(0.4, 0.1, 0.0, 0.1)),
            Bandwidth
        );
        assert_eq!(class(PairPlacement::Llc, loss(0.4, 0.3, 0.0, 0.9)), Power);
        assert_eq!(
            class(PairPlacement::Elsewhere, loss(0.4, 0.0, 0.0, 0.9)),
            Bandwidth
        );
        assert_eq!(class(PairPlacement::Cpu, loss(0.1, 0.0, 0.7, 0.0)), Wait);
        assert_eq!(
            class(PairPlacement::Sibling, loss(0.4, 0.0, 0.0, 0.9)),
            Sibling
        );
        let further = loss(0.3, 0.0, 0.0, 0.9);
        let near = |place| label(place, &loss(0.4, 0.0, 0.0, 0.9), Some(&further));
        assert_eq!(near(PairPlacement::Sibling), Llc);
        let near = |place| label(place, &loss(0.9, 0.0, 0.0, 0.9), Some(&further));
        assert_eq!(near(PairPlacement::Cluster), L2);
    }
}
