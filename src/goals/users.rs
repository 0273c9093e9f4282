// SPDX-License-Identifier: GPL-2.0-only
//! What goals weigh beside each other where several users have some.
//!
//! Programs choose their weights, and how many sessions they open. So none of the users has more weight together than the one that
//! has least, or than one session usually has. What root's sessions weigh, and what an administrator or a rule gives, counts as it is.

use rustc_hash::FxHashMap;

use super::{DEFAULT_WEIGHT, GoalTarget, SessionReading};
use crate::connections::CountedUsers;

/// Weights are whole numbers: where some are cut all grow by this.
const FINER: u64 = 1000;

/// What the goals of each user weigh together, at the latest look.
#[derive(Debug, Default)]
pub(crate) struct UserWeights {
    users: CountedUsers,
    sums: FxHashMap<u32, u64>,
    /// No user's are to weigh more together.
    most: u64,
    is_cut: bool,
}

impl UserWeights {
    /// Of these users.
    pub(crate) fn new(users: CountedUsers) -> Self {
        Self {
            users,
            ..Self::default()
        }
    }

    /// Looks at all sessions.
    pub(crate) fn look(&mut self, readings: &[SessionReading]) {
        self.look_at(readings.iter().map(chosen));
    }

    /// The weight by which this one shares; all are in the same unit, that of this look.
    pub(crate) fn of(&self, reading: &SessionReading) -> u32 {
        self.cut(chosen(reading))
    }

    fn look_at(&mut self, sessions: impl Iterator<Item = (Option<u32>, u32)>) {
        // Its memory stays: the agent decides after this.
        self.sums.clear();
        for (user, weight) in sessions {
            if let Some(user) = user {
                *self.sums.entry(self.users.of(user)).or_default() += u64::from(weight);
            }
        }
        let least = self.sums.values().copied().min().unwrap_or(0);
        self.most = least.max(u64::from(DEFAULT_WEIGHT));
        self.is_cut = self.sums.values().any(|&sum| sum > self.most);
    }

    fn cut(&self, (user, weight): (Option<u32>, u32)) -> u32 {
        if !self.is_cut {
            return weight;
        }
        let sum = user.and_then(|user| self.sums.get(&self.users.of(user)));
        let sum = sum.copied();
        let fine = u64::from(weight) * FINER;
        let fine = match sum.filter(|&sum| sum > self.most) {
            Some(sum) => fine * self.most / sum,
            None => fine,
        };
        fine.clamp(1, u64::from(u32::MAX)) as u32
    }
}

/// The user whose program has chosen a session's weight, if one has; and the weight. What has no goal asks for nothing.
fn chosen(reading: &SessionReading) -> (Option<u32>, u32) {
    let is_chosen = reading.target != GoalTarget::None && !reading.weight_is_given;
    let user = Some(reading.about.uid).filter(|&uid| is_chosen && uid != 0);
    (user, reading.weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weigh(sessions: &[(Option<u32>, u32)]) -> Vec<u32> {
        let mut weights = UserWeights::new(CountedUsers::of_lines("a:100000:65536"));
        weights.look_at(sessions.iter().copied());
        sessions.iter().map(|&of| weights.cut(of)).collect()
    }

    fn sums(sessions: &[(Option<u32>, u32)]) -> Vec<(Option<u32>, u64)> {
        let mut sums = Vec::new();
        for (&(user, _), weight) in sessions.iter().zip(weigh(sessions)) {
            assert!(weight > 0);
            match sums.iter_mut().find(|(of, _)| *of == user) {
                Some((_, sum)) => *sum += u64::from(weight),
                None => sums.push((user, u64::from(weight))),
            }
        }
        sums
    }

    #[test]
    fn of_one_user_and_of_root_weights_are_as_they_say() {
        for sessions in [
            vec![(Some(1000), 10_000), (Some(1000), 1)],
            vec![(Some(1000), 10_000), (None, 100)],
            vec![(Some(1000), 100), (Some(1001), 20)],
            vec![],
        ] {
            let weights: Vec<u32> = sessions.iter().map(|of| of.1).collect();
            assert_eq!(weigh(&sessions), weights);
        }
    }

    #[test]
    fn no_user_weighs_more_than_another_however_many_sessions_it_opens() {
        let mut sessions = vec![(Some(1000), 10_000); 256];
        sessions.extend([(Some(1001), 100), (None, 300)]);
        let [(_, many), (_, one), (_, root)] = sums(&sessions)[..] else {
            panic!("two users and root");
        };
        assert!(one.abs_diff(many) * 100 < one, "{one} and {many}");
        assert_eq!(root, 3 * one);
        // Nor one that takes on its subordinate ids, another one for each.
        let others = (100_000..100_255).map(|uid| (Some(uid), 10_000));
        let sessions: Vec<_> = others.chain([(Some(1001), 100)]).collect();
        let one = sums(&sessions)[255].1;
        let many: u64 = sums(&sessions)[..255].iter().map(|of| of.1).sum();
        assert!(one.abs_diff(many) * 100 < one, "{one} and {many}");
        // One that asks for little does not take the others down with it.
        let [(_, little), (_, usual)] = sums(&[(Some(1), 1), (Some(2), 400)])[..] else {
            panic!("two users");
        };
        assert_eq!(usual, 100 * little);
        // Among its own, a user's weights count.
        let own = weigh(&[(Some(1), 300), (Some(1), 100), (Some(2), 100)]);
        assert_eq!(own[0], 3 * own[1]);
    }
}
