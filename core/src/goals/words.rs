// SPDX-License-Identifier: GPL-2.0-or-later
//! What a session gets, and why it misses its target, in words.

use std::fmt;

use super::{GoalState, Miss};

/// Without zeros that say nothing: "30", "29.97", "0.5".
fn short(number: f64) -> String {
    let text = if number >= 100.0 {
        format!("{number:.0}")
    } else {
        format!("{number:.2}")
    };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

/// As in "24.1 of 30 beats/s, needs 2.4 fast cores, has 1.6: the machine lacks 0.80 fast cores".
impl fmt::Display for GoalState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = short(self.target);
        match self.rates.windowed {
            Some(rate) => write!(f, "{rate:.1} of {target} beats/s")?,
            None => write!(f, "no rate yet, of {target} beats/s")?,
        }
        if self.model.is_some() {
            write!(f, ", needs {:.2} fast cores, has", self.demand)?;
        } else {
            write!(f, ", has")?;
        }
        write!(f, " {:.2}", self.fast_cores)?;
        match self.miss {
            Some(miss) => write!(f, ": {miss}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine { lacks } => write!(f, "the machine lacks {lacks:.2} fast cores"),
            Self::Cpus { lacks } => {
                write!(f, "the CPUs that it may use lack {lacks:.2} fast cores")
            }
            Self::Threads { threads: 1 } => write!(f, "it runs one thread at a time"),
            Self::Threads { threads } => {
                write!(f, "it runs no more than {threads} threads at once")
            }
            Self::NoBeats => write!(f, "no beat comes"),
            Self::Learning => write!(f, "how much it needs is still being learnt"),
            Self::Waits => write!(
                f,
                "it does not use what it has: it waits for something else"
            ),
            Self::Approaching => write!(f, "it will be there soon"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goals::SessionId;
    use crate::goals::model::RateModel;
    use crate::goals::rate::BeatRates;

    #[test]
    fn a_state_is_told_with_the_reason_of_a_miss() {
        let mut state = GoalState {
            session: SessionId(1),
            fast_cores: 1.6,
            demand: 2.4,
            target: 30.0,
            rates: BeatRates {
                windowed: Some(24.12),
                ..BeatRates::default()
            },
            spent: 1.6,
            model: Some(RateModel::new(24.0, 1.6)),
            miss: Some(Miss::Machine { lacks: 0.8 }),
        };
        let text = "24.1 of 30 beats/s, needs 2.40 fast cores, has 1.60: the machine lacks 0.80 fast cores";
        assert_eq!(state.to_string(), text);
        (state.target, state.miss) = (29.97, None);
        let text = "24.1 of 29.97 beats/s, needs 2.40 fast cores, has 1.60";
        assert_eq!(state.to_string(), text);
        (state.model, state.rates) = (None, BeatRates::default());
        state.miss = Some(Miss::NoBeats);
        let text = "no rate yet, of 29.97 beats/s, has 1.60: no beat comes";
        assert_eq!(state.to_string(), text);
    }
}
