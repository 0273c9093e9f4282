// SPDX-License-Identifier: GPL-2.0-or-later
//! What each session gets when demands exceed the machine: equation 3 of Sironi et al. (2013), the
//! same part of its demand, weighted by service levels.
//!
//! A part is never more than the whole: what a heavy session does not need goes to the others. And
//! none gets less than its least share, one fast core or what its weight gives it of the machine,
//! whichever is less, or its demand where that is less still.

/// What a session asks for, and gets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Claim {
    /// Fast cores that it asks for, finite and at least 0.
    pub demand: f64,
    /// Its service level, above 0.
    pub weight: f64,
    /// Fast cores that it gets.
    pub given: f64,
}

/// Shares so many fast cores out.
pub fn share(fast_cores: f64, claims: &mut [Claim]) {
    let (mut asked, mut weights) = (0.0, 0.0);
    for claim in claims.iter() {
        asked += claim.demand;
        weights += claim.weight;
    }
    if asked <= fast_cores {
        claims
            .iter_mut()
            .for_each(|claim| claim.given = claim.demand);
        return;
    }
    let least = |claim: &Claim| (fast_cores * claim.weight / weights).min(1.0);
    let part = |claim: &Claim, level: f64| {
        let given = level * claim.weight * claim.demand;
        given.max(least(claim)).min(claim.demand)
    };
    // What is given grows with the level: at 0 it is the least shares, which the machine has, and
    // where the lightest gets all it asks for it is more than there is.
    let lightest = claims
        .iter()
        .fold(f64::INFINITY, |least, claim| least.min(claim.weight));
    let (mut low, mut high) = (0.0, 1.0 / lightest);
    for _ in 0..64 {
        let level = 0.5 * (low + high);
        let given: f64 = claims.iter().map(|claim| part(claim, level)).sum();
        if given > fast_cores {
            high = level;
        } else {
            low = level;
        }
    }
    for claim in claims {
        claim.given = part(claim, low);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(fast_cores: f64, claims: &[(f64, f64)]) -> Vec<f64> {
        let claim = |&(demand, weight)| Claim {
            demand,
            weight,
            given: f64::NAN,
        };
        let mut claims: Vec<Claim> = claims.iter().map(claim).collect();
        share(fast_cores, &mut claims);
        claims.iter().map(|claim| claim.given).collect()
    }

    fn close(given: &[f64], expected: &[f64]) {
        let near = |(given, expected): (&f64, &f64)| (given - expected).abs() < 1e-9;
        assert!(given.iter().zip(expected).all(near), "{given:?}");
    }

    #[test]
    fn what_fits_is_given() {
        close(&shared(4.0, &[(1.5, 100.0), (2.5, 1.0)]), &[1.5, 2.5]);
        close(&shared(4.0, &[]), &[]);
    }

    #[test]
    fn each_gets_the_same_part_of_its_demand() {
        close(&shared(6.0, &[(4.0, 100.0), (8.0, 100.0)]), &[2.0, 4.0]);
    }

    #[test]
    fn parts_are_as_weights_and_never_more_than_the_whole() {
        // 2/3 and 1/3 of their demands.
        close(&shared(6.0, &[(6.0, 200.0), (6.0, 100.0)]), &[4.0, 2.0]);
        // Ten times the weight would be more than all of it.
        close(&shared(6.0, &[(3.0, 1000.0), (6.0, 100.0)]), &[3.0, 3.0]);
    }

    #[test]
    fn none_gets_less_than_its_least_share() {
        // By the rule alone the small one had 0.04.
        close(&shared(4.0, &[(100.0, 100.0), (1.0, 100.0)]), &[3.0, 1.0]);
        // A core is more than what its weight gives: a tenth of 4.
        close(&shared(4.0, &[(100.0, 900.0), (1.0, 100.0)]), &[3.6, 0.4]);
    }

    #[test]
    fn no_more_is_given_than_there_is_whatever_is_asked_for() {
        let mut seed = 1_u64;
        let mut lot = || {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (seed >> 33) as f64 / (1_u64 << 31) as f64
        };
        for _ in 0..2000 {
            let claims: Vec<(f64, f64)> = (0..1 + (lot() * 40.0) as usize)
                .map(|_| {
                    (
                        10.0_f64.powf(6.0 * lot() - 3.0),
                        1.0 + (lot() * 9999.0).floor(),
                    )
                })
                .collect();
            let fast_cores = 0.5 + 16.0 * lot();
            let given = shared(fast_cores, &claims);
            let asked: f64 = claims.iter().map(|(demand, _)| demand).sum();
            let sum: f64 = given.iter().sum();
            assert!(
                (sum - asked.min(fast_cores)).abs() < 1e-6,
                "{sum} of {fast_cores}"
            );
            for (given, (demand, _)) in given.iter().zip(&claims) {
                assert!((0.0..=demand + 1e-12).contains(given));
            }
        }
    }
}
